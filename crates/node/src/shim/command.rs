//! The command to execute, and its environment. Messages of failures must tell the user what to do: they end up in the
//! Pod's status.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use compact_str::CompactString;
use rustix::fs::{Access, access};

use super::layout::{AttemptDir, Layout};
use super::variables::Variables;
use super::{confine, processes};
use crate::port::{OperationError, Start};

/// The command cannot be executed.
pub const START_ERROR: &str = "StartError";
/// Something that the container needs cannot be created.
pub const CREATE_ERROR: &str = "CreateContainerError";

/// The default search path of shells.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub fn failure(reason: &str, message: impl Into<String>) -> OperationError {
    OperationError { reason: CompactString::new(reason), message: message.into(), passing: false }
}

/// Something that the container needs could not be created, because of `error`.
pub fn create_failure(what: &str, error: &io::Error) -> OperationError {
    OperationError { passing: may_pass(error), ..failure(CREATE_ERROR, format!("{what}: {error}")) }
}

/// The machine lacks a resource. Any other error would be the same on a retry.
fn may_pass(error: &io::Error) -> bool {
    use libc::{EAGAIN, EDQUOT, EMFILE, ENFILE, ENOMEM, ENOSPC};
    matches!(error.raw_os_error(), Some(EAGAIN | EDQUOT | EMFILE | ENFILE | ENOMEM | ENOSPC))
}

/// The complete environment of an attempt. Variables of the container override those of the shell that started the node,
/// if the attempt gets them, and these override those that every process gets. The variables by which its orphans are
/// found override all others. `own` are those of this process.
pub fn environment(
    start: &Start,
    own: &Variables,
    layout: &Layout,
    slot: &AttemptDir,
    isolated: bool,
) -> Result<Variables, OperationError> {
    let inherited = |name: &str, otherwise: &str| own.get(name).map_or_else(|| otherwise.into(), OsString::from);
    let home = || -> OsString {
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let user = start.user.unwrap_or_else(|| rustix::process::geteuid().as_raw());
        confine::home_of(user, &passwd).unwrap_or("/").into()
    };
    let unusable = |error: io::Error| failure(START_ERROR, error.to_string());
    let mut variables = if start.inherits_env && !isolated { own.clone() } else { Variables::default() };
    if variables.get("PATH").is_none() {
        variables.insert("PATH", inherited("PATH", DEFAULT_PATH)).map_err(unusable)?;
    }
    if variables.get("HOSTNAME").is_none() {
        variables.insert("HOSTNAME", &start.hostname).map_err(unusable)?;
    }
    if variables.get("HOME").is_none() {
        // Without isolation the home directory is that of the shell, unless the user is another one.
        let home = match (isolated, start.user) {
            (true, _) => home(),
            (false, Some(_)) => "/".into(),
            (false, None) => inherited("HOME", "/"),
        };
        variables.insert("HOME", home).map_err(unusable)?;
    }
    // An isolated container does not see the node's own files.
    let words = if isolated { Path::new(&start.termination_message.path) } else { slot.termination_log() };
    variables.insert("TALLY_TERMINATION_LOG", words).map_err(unusable)?;
    for mount in &start.mounts {
        let path = match isolated {
            true => PathBuf::from(&mount.path),
            false => {
                layout.volume(&start.attempt.pod, &mount.volume).map_err(|error| create_failure("a volume", &error))?
            }
        };
        variables.insert(volume_variable(&mount.volume), path).map_err(unusable)?;
    }
    for (name, value) in &start.env {
        variables.insert(name, value).map_err(unusable)?;
    }
    variables.insert(processes::ATTEMPT, processes::mark(&start.attempt)).map_err(unusable)?;
    variables.insert(processes::NODE, layout.root().display().to_string()).map_err(unusable)?;
    Ok(variables)
}

/// `TALLY_VOLUME_MY_DATA` for `my-data`: the path of the volume, valid even if it cannot be mounted; in an isolated
/// container, where it is mounted.
pub fn volume_variable(volume: &str) -> String {
    format!("TALLY_VOLUME_{}", volume.replace(['-', '.'], "_").to_ascii_uppercase())
}

/// Finds the command: a path as it is, relative to the working directory; a name in PATH.
pub fn resolve(command: &str, environment: &Variables, dir: Option<&str>) -> Result<PathBuf, OperationError> {
    let from = Path::new(dir.unwrap_or("."));
    if command.is_empty() {
        return Err(failure(START_ERROR, "the command is an empty string"));
    }
    if command.contains('/') {
        let path = from.join(command);
        return match usable(&path) {
            // The command is executed after the change of directory, so a relative path keeps its meaning.
            Ok(()) => Ok(PathBuf::from(command)),
            Err(Unusable::Absent) => Err(failure(
                START_ERROR,
                format!("the command {command:?} cannot be run: {} does not exist", path.display()),
            )),
            Err(Unusable::Because(why)) => {
                Err(failure(START_ERROR, format!("the command {command:?} cannot be run: {why}")))
            }
        };
    }
    let search = environment.get("PATH").unwrap_or_default();
    let mut seen = None;
    // An empty entry traditionally means the current directory; searching it for commands is never wanted.
    for entry in std::env::split_paths(search).filter(|entry| !entry.as_os_str().is_empty()) {
        let path = from.join(&entry).join(command);
        match usable(&path) {
            Ok(()) => return Ok(entry.join(command)),
            Err(Unusable::Because(why)) => seen = seen.or_else(|| Some(format!("{}: {why}", path.display()))),
            Err(Unusable::Absent) => {}
        }
    }
    let found = seen.map_or_else(String::new, |seen| format!(" (there is {seen})"));
    let search = search.to_string_lossy();
    Err(failure(START_ERROR, format!("the command {command:?} was not found in PATH={search}{found}")))
}

/// Where commands were found a moment ago: the tasks of a Job have the same one, and PATH may have many directories.
///
/// Which file is started, and whether the working directory was there, is never older than [`KEPT_FOR`]. Within that time a
/// file that appears earlier in PATH is not seen. A file that is gone, or cannot be executed any more, is searched again.
#[derive(Default)]
pub struct KnownCommands(RefCell<Vec<KnownCommand>>);

/// Nobody waits for a new command for less than that.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// There are rarely more different commands within that time, and a search among them costs less than one on disk.
const MOST_KNOWN: usize = 16;

struct KnownCommand {
    name: String,
    search: OsString,
    dir: Option<String>,
    path: PathBuf,
    found_at: Instant,
}

/// Where a command is.
pub struct FoundCommand {
    pub path: PathBuf,
    /// It was found for an earlier attempt.
    pub was_kept: bool,
}

impl KnownCommands {
    pub fn find(&self, name: &str, env: &Variables, dir: Option<&str>) -> Result<FoundCommand, OperationError> {
        let search = env.get("PATH").unwrap_or_default();
        let now = Instant::now();
        let known = self.0.borrow().iter().find_map(|known| {
            let is_it = known.name == name && known.dir.as_deref() == dir && known.search == search;
            (is_it && now.duration_since(known.found_at) < KEPT_FOR).then(|| known.path.clone())
        });
        match known {
            Some(path) => Ok(FoundCommand { path, was_kept: true }),
            None => Ok(FoundCommand { path: self.find_anew(name, env, dir)?, was_kept: false }),
        }
    }

    /// The time is that before the search.
    pub fn find_anew(&self, name: &str, env: &Variables, dir: Option<&str>) -> Result<PathBuf, OperationError> {
        let found_at = Instant::now();
        let search = env.get("PATH").unwrap_or_default();
        let mut known = self.0.borrow_mut();
        known.retain(|known| {
            let is_it = known.name == name && known.dir.as_deref() == dir && known.search == search;
            !is_it && found_at.duration_since(known.found_at) < KEPT_FOR
        });
        check_dir(dir)?;
        let path = resolve(name, env, dir)?;
        if known.len() < MOST_KNOWN {
            let (name, search, dir) = (name.to_owned(), search.to_owned(), dir.map(str::to_owned));
            known.push(KnownCommand { name, search, dir, path: path.clone(), found_at });
        }
        Ok(path)
    }
}

enum Unusable {
    Absent,
    Because(String),
}

fn usable(path: &Path) -> Result<(), Unusable> {
    let about = std::fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Unusable::Absent,
        _ => Unusable::Because(error.to_string()),
    })?;
    if !about.is_file() {
        return Err(Unusable::Because("it is not a file".to_owned()));
    }
    access(path, Access::EXEC_OK).map_err(|_| {
        Unusable::Because(format!("it is not executable (its mode is {:04o})", about.permissions().mode() & 0o7777))
    })
}

pub fn check_dir(dir: Option<&str>) -> Result<(), OperationError> {
    let Some(dir) = dir else { return Ok(()) };
    let problem = match std::fs::metadata(dir) {
        Ok(about) if about.is_dir() => return Ok(()),
        Ok(_) => "it is not a directory".to_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => "it does not exist".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(failure(START_ERROR, format!("the working directory {dir:?} cannot be entered: {problem}")))
}

/// Explains why an execution failed; the file existed a moment ago.
pub fn not_executed(command: &str, path: &Path, error: &io::Error) -> OperationError {
    let why = match error.raw_os_error() {
        Some(libc::ENOENT) => "the interpreter named in its first line, or its loader, was not found".to_owned(),
        Some(libc::ENOEXEC) => "it is neither a program for this machine nor a script with a #! line".to_owned(),
        Some(libc::E2BIG) => "its arguments and environment are too long".to_owned(),
        Some(libc::EAGAIN) => format!("the limit of processes is reached ({error})"),
        _ => error.to_string(),
    };
    let passing = may_pass(error);
    let reason = if passing { CREATE_ERROR } else { START_ERROR };
    let message = format!("the command {command:?} ({}) cannot be run: {why}", path.display());
    OperationError { passing, ..failure(reason, message) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_as_a_shell_would_and_failures_name_the_place() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().display().to_string();
        for (name, mode) in [("yes", 0o755), ("no", 0o644)] {
            let path = dir.path().join(name);
            std::fs::write(&path, "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        }
        let mut env = Variables::default();
        env.insert("PATH", format!("/nowhere::{place}")).unwrap();
        let found = |command: &str, dir: Option<&str>| {
            resolve(command, &env, dir).map(|path| path.display().to_string()).map_err(|failure| failure.message)
        };
        assert_eq!(found("yes", None), Ok(format!("{place}/yes")));
        assert_eq!(found("./yes", Some(&place)), Ok("./yes".to_owned()));
        for (command, words) in [
            ("absent", format!("the command \"absent\" was not found in PATH=/nowhere::{place}")),
            (
                "no",
                format!(
                    "the command \"no\" was not found in PATH=/nowhere::{place} (there is {place}/no: it is not executable \
                     (its mode is 0644))"
                ),
            ),
            ("/nowhere/x", "the command \"/nowhere/x\" cannot be run: /nowhere/x does not exist".to_owned()),
            ("/", "the command \"/\" cannot be run: it is not a file".to_owned()),
            ("", "the command is an empty string".to_owned()),
        ] {
            assert_eq!(found(command, None), Err(words));
        }
    }

    #[test]
    fn only_want_of_room_may_pass() {
        for (number, reason, passing) in [
            (libc::EAGAIN, CREATE_ERROR, true),
            (libc::ENOMEM, CREATE_ERROR, true),
            (libc::EMFILE, CREATE_ERROR, true),
            (libc::ENOSPC, CREATE_ERROR, true),
            (libc::ENOENT, START_ERROR, false),
            (libc::ENOEXEC, START_ERROR, false),
            (libc::E2BIG, START_ERROR, false),
            (libc::EACCES, START_ERROR, false),
        ] {
            let failure = not_executed("x", Path::new("/bin/x"), &io::Error::from_raw_os_error(number));
            assert_eq!((failure.reason.as_str(), failure.passing), (reason, passing), "{}", failure.message);
        }
    }

    #[test]
    fn volumes_have_a_variable_each() {
        assert_eq!(volume_variable("my-data.v1"), "TALLY_VOLUME_MY_DATA_V1");
    }
}
