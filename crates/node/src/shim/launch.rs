//! The launcher: this executable again, running for a moment in place of the command. It does what takes more than
//! starting a process - namespaces, mounts, another user, a control group - and then becomes the command. Between fork
//! and exec none of that could be done in safe Rust; in a separate process all of it can.
//!
//! Its instructions arrive over its standard input, a socket, as one line, and its reports go back there, one line each.
//! The socket closes by itself when the command is executed. An isolated command is started by the first process of its
//! PID namespace (`init.rs`), which keeps the socket.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, PidfdFlags};
use rustix::thread::ThreadNameSpaceType;
use serde::{Deserialize, Serialize};

use super::command::{self, CREATE_ERROR, failure};
use super::confine::{self, Identity, identity};
use super::mounts::LeftNamespaces;
use super::reaper::Status;
use super::sys::{self, OnlyThread};
use super::variables::Variables;
use super::{cgroup, init, mounts, terminal};
use crate::attempts::ResourceUsage;
use crate::descriptors;
use crate::port::{Confinement, OperationError, TerminalSize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    pub argv: Vec<String>,
    pub env: Variables,
    pub working_dir: Option<String>,
    pub mounts: MountNamespace,
    /// The control groups that it enters.
    pub cgroups: Vec<PathBuf>,
    pub user: Option<u32>,
    pub group: Option<u32>,
    pub confinement: Confinement,
    /// Its standard input comes with these instructions.
    #[serde(default)]
    pub stdin: bool,
    /// It has a terminal.
    #[serde(default)]
    pub terminal: Option<TerminalSize>,
    /// What it starts may go on after it, so it is in a process group without the launcher.
    #[serde(default)]
    pub apart: bool,
}

impl Launch {
    /// The command has, or is started into, namespaces that show nothing of the node.
    pub fn is_isolated(&self) -> bool {
        match &self.mounts {
            MountNamespace::Machine => false,
            MountNamespace::Apart { view, .. } => view.hidden.is_some(),
            MountNamespace::With { pid_namespace, .. } => pid_namespace.is_some(),
        }
    }
}

/// The mount namespace of the process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum MountNamespace {
    /// The machine's.
    Machine,
    /// A new one of its own.
    Apart { hostname: String, view: mounts::View },
    /// That of another process, which has its own.
    With { pid: i32, pid_namespace: Option<String> },
}

/// What the launcher says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LaunchReport {
    /// The command is about to be executed. If the socket closes next, it was.
    Executing,
    Failed(OperationError),
    /// Comes with the other end of the command's terminal.
    Terminal,
    /// The first process of the command's PID namespace, as this namespace numbers it.
    Init {
        pid: i32,
    },
    /// The command was executed, in this PID namespace.
    Running {
        pid_namespace: String,
    },
    /// The command has ended. Nothing else of its PID namespace will be left.
    Ended {
        status: Status,
        usage: ResourceUsage,
    },
}

/// Makes the terminal, and sends its other end to the shim. Returns the command's own end.
pub fn make_terminal(launch: &Launch, socket: &UnixStream) -> Result<Option<OwnedFd>, OperationError> {
    let Some(size) = launch.terminal else { return Ok(None) };
    let made = terminal::open(launch.is_isolated(), size).and_then(|terminal| {
        let mut line = serde_json::to_vec(&LaunchReport::Terminal)?;
        line.push(b'\n');
        descriptors::send(socket.as_fd(), &line, &[terminal.outer.as_fd()])?;
        Ok(terminal.inner)
    });
    made.map(Some).map_err(|error| command::create_failure("no terminal can be made", &error))
}

/// To be called in the process that becomes the command. It must not lead a process group.
pub fn enter_terminal(inner: &OwnedFd) -> Result<(), OperationError> {
    terminal::enter(inner).map_err(|error| command::create_failure("its terminal cannot be used", &error))
}

pub fn tell(socket: &mut UnixStream, report: &LaunchReport) {
    let mut line = serde_json::to_vec(report).unwrap_or_default();
    line.push(b'\n');
    // The shim may be gone. Then nothing is left to be told, and the socket's end is noticed elsewhere.
    let _ = socket.write_all(&line);
}

pub fn main() -> ExitCode {
    let (Ok(mut socket), Ok(alone)) = (take_socket(), OnlyThread::check()) else { return ExitCode::from(127) };
    let failure = match listen(&socket) {
        // The machine's own list of users is read before the container's files are there.
        Ok(launch) => match identity(&launch).and_then(|identity| Ok((identity, leave(&launch)?))) {
            Err(failure) => failure,
            Ok((identity, left)) if launch.is_isolated() => {
                return match &launch.mounts {
                    MountNamespace::With { .. } => init::beside(&launch, &identity, socket, &alone),
                    _ => init::main(&launch, &identity, &left, socket, &alone),
                };
            }
            Ok((identity, left)) => match arrange(&launch, &left).and_then(|()| {
                let inner = make_terminal(&launch, &socket)?;
                inner.as_ref().map_or(Ok(()), enter_terminal)
            }) {
                Ok(()) => execute(&launch, &identity, || tell(&mut socket, &LaunchReport::Executing)),
                Err(failure) => failure,
            },
        },
        Err(error) => failure(CREATE_ERROR, format!("the launcher was not told what to do: {error}")),
    };
    tell(&mut socket, &LaunchReport::Failed(failure));
    ExitCode::from(127)
}

/// The shim sends nothing else before it has heard that the command runs.
fn listen(socket: &UnixStream) -> io::Result<Launch> {
    let mut line = vec![0];
    // The first byte alone: descriptors come with it.
    let (_, group) = descriptors::receive(socket.as_fd(), &mut line)?;
    BufReader::with_capacity(64 * 1024, socket).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let launch: Launch = serde_json::from_slice(&line)?;
    match (launch.stdin, group.as_deref()) {
        (false, _) => {}
        (true, Some([stdin])) => rustix::stdio::dup2_stdin(stdin)?,
        (true, _) => return Err(io::Error::other("its standard input did not arrive")),
    }
    Ok(launch)
}

/// Standard input becomes what a command expects: /dev/null.
fn take_socket() -> io::Result<UnixStream> {
    let socket = UnixStream::from(rustix::stdio::stdin().try_clone_to_owned()?);
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    Ok(socket)
}

/// Enters the control groups, and leaves the namespaces of the machine.
fn leave(launch: &Launch) -> Result<LeftNamespaces, OperationError> {
    for group in &launch.cgroups {
        cgroup::join(group).map_err(|error| command::create_failure("no control group could be entered", &error))?;
    }
    match &launch.mounts {
        MountNamespace::Machine => Ok(LeftNamespaces::None),
        MountNamespace::Apart { hostname, view } => {
            let left = mounts::leave(view.hidden.is_some());
            if left.is_ok() {
                // A host name that is too long, or that this user may not set, is still in HOSTNAME.
                let _ = rustix::system::sethostname(hostname.as_bytes());
            }
            left.or_else(|error| not_left(view, &error))
        }
        MountNamespace::With { pid, pid_namespace } => with(*pid, pid_namespace.as_deref())
            .map(|()| LeftNamespaces::None)
            .map_err(|error| failure(CREATE_ERROR, format!("the container's namespaces cannot be entered: {error}"))),
    }
}

fn not_left(view: &mounts::View, error: &io::Error) -> Result<LeftNamespaces, OperationError> {
    let needs = "this user may not make a mount namespace here";
    if view.hidden.is_some() || view.read_only_root {
        return Err(failure(CREATE_ERROR, format!("the container cannot be isolated: {needs} ({error})")));
    }
    if view.binds.iter().all(|bind| bind.optional) {
        return Ok(LeftNamespaces::None);
    }
    let wanted: Vec<_> = view.binds.iter().filter(|bind| !bind.optional).map(|bind| bind.target.as_str()).collect();
    Err(failure(
        CREATE_ERROR,
        format!(
            "volumes cannot be mounted at {}: {needs} ({error}). Run the node as root or where user namespaces are \
             allowed, or drop the volumeMounts and use the directory that TALLY_VOLUME_<NAME> names",
            wanted.join(", ")
        ),
    ))
}

/// Mounts what the command sees, if its mount namespace is new.
pub fn arrange(launch: &Launch, left: &LeftNamespaces) -> Result<(), OperationError> {
    match (&launch.mounts, left) {
        (MountNamespace::Apart { view, .. }, LeftNamespaces::Mounts | LeftNamespaces::MountsAndUsers) => {
            mounts::arrange(view.clone()).map_err(|why| failure(CREATE_ERROR, why))
        }
        _ => Ok(()),
    }
}

fn with(pid: i32, pid_namespace: Option<&str>) -> io::Result<()> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    let mut apart = ThreadNameSpaceType::MOUNT | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME;
    if pid_namespace.is_some() {
        apart |= ThreadNameSpaceType::PROCESS_ID | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION;
    }
    // The process may have ended, and another one may have got its number before it was opened.
    if let Some(expected) = pid_namespace
        && std::fs::read_link(format!("/proc/{}/ns/pid", pid.as_raw_nonzero()))?.as_os_str() != expected
    {
        return Err(io::Error::other("the container has ended"));
    }
    // The initial user namespace, where the node is root, cannot be entered again, and need not be.
    rustix::thread::move_into_thread_name_spaces(process.as_fd(), apart)
        .or_else(|_| rustix::thread::move_into_thread_name_spaces(process.as_fd(), apart | ThreadNameSpaceType::USER))
        .map_err(io::Error::from)
}

/// Becomes the command. Returns only on failure. `ready` is called when nothing but the execution can fail.
pub fn execute(launch: &Launch, identity: &Identity, ready: impl FnOnce()) -> OperationError {
    let Some(name) = launch.argv.first() else { return failure(command::START_ERROR, "there is no command") };
    let dir = launch.working_dir.as_deref();
    let path = match command::check_dir(dir).and_then(|()| command::resolve(name, &launch.env, dir)) {
        Ok(path) => path,
        Err(failure) => return failure,
    };
    let isolated = launch.is_isolated();
    if isolated && let Err(error) = sys::close_others_on_exec() {
        return command::create_failure("descriptors of the node cannot be closed", &error);
    }
    if let Err(failure) = confine::apply(launch, identity) {
        return failure;
    }
    if let Err(error) = enter(dir, isolated) {
        let dir = dir.unwrap_or_default();
        return failure(command::START_ERROR, format!("the working directory {dir:?} cannot be entered: {error}"));
    }
    let mut command = Command::new(&path);
    command.arg0(name).args(&launch.argv[1..]).env_clear().envs(launch.env.iter());
    ready();
    let error = command.exec();
    command::not_executed(name, &path, &error)
}

/// By a path in /proc, a directory can be entered that is not in the container's mounts. It has no path there.
fn enter(dir: Option<&str>, isolated: bool) -> io::Result<()> {
    if let Some(dir) = dir {
        rustix::process::chdir(dir)?;
    }
    // The kernel's own answer: the C library would look for a path by the names of the directories above.
    match rustix::process::getcwd(Vec::new()) {
        _ if !isolated => Ok(()),
        Ok(here) if here.to_bytes().starts_with(b"/") => Ok(()),
        _ => Err(io::Error::other("it is not a directory of the container")),
    }
}
