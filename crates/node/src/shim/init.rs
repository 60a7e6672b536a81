//! The first process of an isolated container: it arranges what the container sees, starts the command, reaps what
//! loses its parent, passes signals on, and says how the command ended. When it ends, the kernel kills all processes of
//! its PID namespace, which none of them can leave.
//!
//! ```text
//! shim -> launcher          waits; its end is the end of the container
//!         -> first process  PID 1 of the container's namespace, with the socket to the shim
//!            -> command     in a process group of its own, with the settings of its securityContext
//! ```
//!
//! The command is not the first process itself: the kernel discards signals to that one which it does not handle, so a
//! plain `sleep` would not end by SIGTERM. If the shim is killed, its socket closes, and the first process ends.

use std::fs::File;
use std::io::{self, BufRead, BufReader, PipeReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{ExitCode, exit};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{DumpableBehavior, Pid, Signal, kill_process_group};

use super::command::{CREATE_ERROR, create_failure, failure};
use super::confine::Identity;
use super::guard::wait_for;
use super::launch::{self, Launch, LaunchReport, tell};
use super::mounts::LeftNamespaces;
use super::reaper::Status;
use super::sys::{self, OnlyThread};
use crate::port::OperationError;

/// The launcher, which has left the machine's namespaces: its first child is the first process of the new PID namespace.
pub fn main(
    launch: &Launch,
    identity: &Identity,
    left: &LeftNamespaces,
    mut socket: UnixStream,
    alone: &OnlyThread,
) -> ExitCode {
    let nothing = no_output();
    // Closed when the launcher has told the shim of the first process. Only then may that process tell how it goes on.
    let (introduced, introduction) = match io::pipe() {
        Ok(pipe) => pipe,
        Err(error) => {
            tell(&mut socket, &LaunchReport::Failed(create_failure("it cannot be isolated", &error)));
            return ExitCode::from(127);
        }
    };
    match sys::fork(alone) {
        Ok(None) => {
            drop(introduction);
            let failure = match prepare(launch, identity, left, &socket, alone, &nothing) {
                Ok(started) => serve(started, &mut socket, introduced, *left == LeftNamespaces::Mounts),
                Err(failure) => failure,
            };
            tell(&mut socket, &LaunchReport::Failed(failure));
            ExitCode::from(127)
        }
        Ok(Some(first)) => {
            tell(&mut socket, &LaunchReport::Init { pid: first.as_raw_nonzero().get() });
            drop((introduced, introduction));
            drop(socket);
            close_streams(&nothing);
            let _ = wait_for(first);
            ExitCode::SUCCESS
        }
        Err(error) => {
            tell(&mut socket, &LaunchReport::Failed(create_failure("it cannot be isolated", &error)));
            ExitCode::from(127)
        }
    }
}

/// A probe or hook: the launcher has entered the namespaces of a container, and its child is one of the container's
/// processes.
pub fn beside(launch: &Launch, identity: &Identity, mut socket: UnixStream, alone: &OnlyThread) -> ExitCode {
    let nothing = no_output();
    let terminal = match launch::make_terminal(launch, &socket) {
        Ok(terminal) => terminal,
        Err(failure) => {
            tell(&mut socket, &LaunchReport::Failed(failure));
            return ExitCode::from(127);
        }
    };
    match sys::fork(alone) {
        Ok(None) => {
            sys::leave_session_keyring();
            let failure = match join_group(launch, terminal) {
                Ok(()) => launch::execute(launch, identity, || tell(&mut socket, &LaunchReport::Executing)),
                Err(failure) => failure,
            };
            tell(&mut socket, &LaunchReport::Failed(failure));
            ExitCode::from(127)
        }
        Ok(Some(command)) => {
            drop((socket, terminal));
            close_streams(&nothing);
            match wait_for(command) {
                Some(Status::Exited(code)) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
                Some(Status::Signalled(number)) => {
                    // The shim is told the same by the end of this process.
                    if let Some(signal) = sys::signal(number) {
                        let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
                    }
                    ExitCode::from(u8::try_from(128 + number).unwrap_or(u8::MAX))
                }
                None => ExitCode::FAILURE,
            }
        }
        Err(error) => {
            tell(&mut socket, &LaunchReport::Failed(create_failure("it cannot be started", &error)));
            ExitCode::from(127)
        }
    }
}

/// In the process that becomes the command.
fn join_group(launch: &Launch, terminal: Option<OwnedFd>) -> Result<(), OperationError> {
    match terminal {
        Some(terminal) => launch::enter_terminal(&terminal),
        None if launch.apart => {
            let _ = rustix::process::setpgid(None, None);
            Ok(())
        }
        None => Ok(()),
    }
}

/// In the first process: everything up to the execution of the command.
fn prepare(
    launch: &Launch,
    identity: &Identity,
    left: &LeftNamespaces,
    socket: &UnixStream,
    alone: &OnlyThread,
    nothing: &io::Result<File>,
) -> Result<StartedCommand, OperationError> {
    // The launcher is the only one to wait for this process.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    sys::leave_session_keyring();
    let unstarted = |error: io::Error| create_failure("the command cannot be started", &error);
    // A volume may be mounted over /proc.
    let pid_namespace = std::fs::read_link("/proc/self/ns/pid").map_err(unstarted)?.display().to_string();
    launch::arrange(launch, left)?;
    let terminal = launch::make_terminal(launch, socket)?;
    let (mut answer, mut question) = io::pipe().map_err(unstarted)?;
    let Some(command) = sys::fork(alone).map_err(unstarted)? else {
        drop(answer);
        // Signals go to the command and to its own processes, not to the first process.
        let entered = match terminal {
            Some(terminal) => launch::enter_terminal(&terminal),
            None => {
                let _ = rustix::process::setpgid(None, None);
                Ok(())
            }
        };
        let failure = match entered {
            Ok(()) => launch::execute(launch, identity, || {}),
            Err(failure) => failure,
        };
        let _ = question.write_all(&serde_json::to_vec(&failure).unwrap_or_default());
        exit(127)
    };
    drop((question, terminal));
    close_streams(nothing);
    // The end of the pipe: the command is executed, or its process has ended.
    let mut told = Vec::new();
    answer.read_to_end(&mut told).map_err(unstarted)?;
    match serde_json::from_slice(&told) {
        Ok(failure) => Err(failure),
        Err(_) if told.is_empty() => Ok(StartedCommand { command, pid_namespace }),
        Err(error) => Err(failure(CREATE_ERROR, format!("the command cannot be started: {error}"))),
    }
}

struct StartedCommand {
    command: Pid,
    pid_namespace: String,
}

/// In the first process, to the end of the command. Returns only on failure.
fn serve(
    started: StartedCommand,
    socket: &mut UnixStream,
    mut introduced: PipeReader,
    is_root: bool,
) -> OperationError {
    let unserved = |error: io::Error| create_failure("the command cannot be followed", &error);
    if let Err(error) = introduced.read_to_end(&mut Vec::new()) {
        return unserved(error);
    }
    drop(introduced);
    // A process of the container with the same capabilities must not trace this one. Where the node is not root, this one
    // has capabilities that no process of the container has, and the node's own probes have to find it.
    if is_root {
        let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
    let StartedCommand { command, pid_namespace } = started;
    let orders = match socket.try_clone() {
        Ok(orders) => orders,
        Err(error) => return unserved(error),
    };
    let ended = Arc::new(Mutex::new(false));
    let known = ended.clone();
    let forwards = std::thread::Builder::new().spawn(move || forward(orders, command, &known));
    tell(socket, &LaunchReport::Running { pid_namespace });
    if forwards.is_err() {
        // No signal would reach the command. It has run, and it ends.
        let _ = kill_process_group(command, Signal::KILL);
    }
    loop {
        let pid = match sys::wait_for_ended_child() {
            Ok(Some(pid)) => pid,
            Ok(None) => return failure(CREATE_ERROR, "the command is gone"),
            Err(error) => return unserved(error),
        };
        let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((status, usage)) = sys::reap(pid) else { continue };
        if pid == command {
            *ended = true;
            tell(socket, &LaunchReport::Ended { status: Status::of(status), usage });
            exit(0)
        }
    }
}

/// Every line is the number of a signal for the command and its process group. The end of the lines is the end of the
/// shim.
fn forward(orders: UnixStream, command: Pid, ended: &Mutex<bool>) {
    for line in BufReader::new(orders).lines().map_while(Result::ok) {
        let ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(signal) = line.parse().ok().and_then(sys::signal).filter(|_| !*ended) {
            let _ = kill_process_group(command, signal);
        }
    }
    exit(0)
}

/// Opened first: the container gets another /dev.
fn no_output() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/null")
}

/// The end of the output is that of the command's own processes, and so is that of the interest in the input.
fn close_streams(nothing: &io::Result<File>) {
    if let Ok(nothing) = nothing {
        let _ = rustix::stdio::dup2_stdin(nothing);
        let _ = rustix::stdio::dup2_stdout(nothing);
        let _ = rustix::stdio::dup2_stderr(nothing);
    }
}
