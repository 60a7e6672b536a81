//! The launcher: this executable again, running for a moment in place of the command. It does what takes more than
//! starting a process - namespaces, mounts, another user, a control group - and then becomes the command. Between fork
//! and exec none of that could be done in safe Rust; in a separate process all of it can.
//!
//! Its instructions arrive over its standard input, a socket, and its answer goes back there: a full stop when it is
//! about to execute the command, and a failure if there is one. The socket closes by itself when the command is
//! executed.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use rustix::process::{Gid, Pid, PidfdFlags, Uid};
use rustix::thread::ThreadNameSpaceType;
use serde::{Deserialize, Serialize};

use super::command::{self, CREATE_ERROR, failure};
use super::{cgroup, mounts};
use crate::port::OperationError;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    pub argv: Vec<String>,
    pub env: command::Variables,
    pub working_dir: Option<String>,
    pub mounts: MountNamespace,
    pub cgroup: Option<PathBuf>,
    pub user: Option<u32>,
    pub group: Option<u32>,
}

/// The mount namespace of the process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum MountNamespace {
    /// The machine's.
    Machine,
    /// A new one of its own.
    Apart { hostname: String, binds: Vec<mounts::Bind>, stage: PathBuf },
    /// That of another process, which has its own.
    With { pid: i32 },
}

/// The byte that is sent before the command is executed.
pub const READY: u8 = b'.';

pub fn main() -> ExitCode {
    let Ok(mut socket) = take_socket() else { return ExitCode::from(127) };
    let mut text = Vec::new();
    let told = socket.read_to_end(&mut text).and_then(|_| Ok(serde_json::from_slice::<Launch>(&text)?));
    let failure = match told {
        Ok(launch) => match enter(&launch) {
            Ok(()) => execute(&launch, &mut socket),
            Err(failure) => failure,
        },
        Err(error) => failure(CREATE_ERROR, format!("the launcher was not told what to do: {error}")),
    };
    let _ = socket.write_all(&serde_json::to_vec(&failure).unwrap_or_default());
    ExitCode::from(127)
}

/// Standard input becomes what a command expects: /dev/null.
fn take_socket() -> io::Result<UnixStream> {
    let socket = UnixStream::from(rustix::stdio::stdin().try_clone_to_owned()?);
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    Ok(socket)
}

fn enter(launch: &Launch) -> Result<(), OperationError> {
    if let Some(group) = &launch.cgroup {
        cgroup::join(group).map_err(|error| command::create_failure("no control group could be entered", &error))?;
    }
    match &launch.mounts {
        MountNamespace::Machine => Ok(()),
        MountNamespace::Apart { hostname, binds, stage } => apart(hostname, binds, stage),
        MountNamespace::With { pid } => with(*pid)
            .map_err(|error| failure(CREATE_ERROR, format!("the container's namespaces cannot be entered: {error}"))),
    }
}

fn apart(hostname: &str, binds: &[mounts::Bind], stage: &std::path::Path) -> Result<(), OperationError> {
    if let Err(error) = mounts::leave() {
        if binds.iter().all(|bind| bind.optional) {
            return Ok(());
        }
        let wanted: Vec<_> = binds.iter().filter(|bind| !bind.optional).map(|bind| bind.target.as_str()).collect();
        return Err(failure(
            CREATE_ERROR,
            format!(
                "volumes cannot be mounted at {}: this user may not make a mount namespace here ({error}). Run the node as \
                 root or where user namespaces are allowed, or drop the volumeMounts and use the directory that \
                 TALLY_VOLUME_<NAME> names",
                wanted.join(", ")
            ),
        ));
    }
    // A host name that is too long, or that this user may not set, is still in HOSTNAME.
    let _ = rustix::system::sethostname(hostname.as_bytes());
    mounts::arrange(binds.to_vec(), stage).map_err(|why| failure(CREATE_ERROR, why))
}

fn with(pid: i32) -> io::Result<()> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    let apart = ThreadNameSpaceType::MOUNT | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME;
    // The initial user namespace, where the node is root, cannot be entered again, and need not be.
    rustix::thread::move_into_thread_name_spaces(process.as_fd(), apart)
        .or_else(|_| rustix::thread::move_into_thread_name_spaces(process.as_fd(), apart | ThreadNameSpaceType::USER))
        .map_err(io::Error::from)
}

/// Returns only on failure.
fn execute(launch: &Launch, socket: &mut UnixStream) -> OperationError {
    let Some(name) = launch.argv.first() else { return failure(command::START_ERROR, "there is no command") };
    let dir = launch.working_dir.as_deref();
    let own = rustix::process::geteuid().as_raw();
    let other = launch.user.filter(|user| *user != own);
    if let Some(user) = other.filter(|_| own != 0) {
        return failure(
            CREATE_ERROR,
            format!("runAsUser {user}: this node runs as user {own} and cannot become another"),
        );
    }
    let own_group = rustix::process::getegid().as_raw();
    let other_group = launch.group.filter(|group| *group != own_group);
    if let Some(group) = other_group.filter(|_| own != 0) {
        let message = format!("runAsGroup {group}: this node runs as group {own_group} and cannot become another");
        return failure(CREATE_ERROR, message);
    }
    let path = match command::check_dir(dir).and_then(|()| command::resolve(name, &launch.env, dir)) {
        Ok(path) => path,
        Err(failure) => return failure,
    };
    let mut command = Command::new(&path);
    command.arg0(name).args(&launch.argv[1..]).env_clear().envs(launch.env.iter().map(|(name, value)| (name, value)));
    if let Some(dir) = dir {
        command.current_dir(dir);
    }
    if let Some(group) = other_group {
        command.gid(group);
    }
    if let Some(user) = other {
        command.uid(user);
    }
    if other.is_some() || other_group.is_some() {
        // So that the new user can open /dev/stdout. If the owner cannot be changed, the process can still write to its
        // output.
        let (user, group) = (other.map(Uid::from_raw), other_group.map(Gid::from_raw));
        let _ = rustix::fs::fchown(rustix::stdio::stdout(), user, group);
        let _ = rustix::fs::fchown(rustix::stdio::stderr(), user, group);
    }
    let _ = socket.write_all(&[READY]);
    let error = command.exec();
    command::not_executed(name, &path, &error)
}
