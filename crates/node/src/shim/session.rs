//! Sessions of clients: a command that runs beside the processes of a container (`kubectl exec`), and the input and
//! output of the container itself (`kubectl attach`).
//!
//! The process that decides makes the pipes and keeps the other ends, so what a command reads and writes does not go
//! through the shim. A session is over for the client when its socket closes; then the pipes, or the terminal, of the
//! command close, too. A command that goes on nevertheless ends with its container at the latest: it is in the same
//! control groups and namespaces, and it is one of the attempt's helpers.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use tokio::net::unix::pipe;

use super::attempt::{KILL_FOR, Launched, RunningAttempt, launched, spawn_session};
use super::cgroup::AttemptGroups;
use super::launch::{Launch, MountNamespace};
use super::reaper::Status;
use super::{Shim, spawn, terminal};
use crate::descriptors::PacketSocket;
use crate::port::{
    Attempt, SessionEnd, SessionFailure, SessionKind, SessionOrder, SessionReport, SessionRequest, TerminalSize,
};

/// The streams of a session, as they came with its request.
struct Streams {
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
}

/// `descriptors`: those that came with the request. None: they did not arrive.
pub fn begin(shim: &Rc<Shim>, request: SessionRequest, descriptors: Option<Vec<OwnedFd>>) {
    // Without its socket a session cannot be answered. Its client notices that the socket is closed.
    let Some(descriptors) = descriptors else { return };
    let mut descriptors = descriptors.into_iter();
    let Some(Ok(socket)) = descriptors.next().map(PacketSocket::new) else { return };
    let mut stream = |given: bool| if given { descriptors.next() } else { None };
    let (stdin, stdout, stderr) = (stream(request.stdin), stream(request.stdout), stream(request.stderr));
    let streams = Streams { stdin, stdout, stderr };
    let shim = shim.clone();
    tokio::task::spawn_local(async move {
        let served = match request.kind {
            SessionKind::Exec { argv, terminal } => {
                exec(&shim, &request.attempt, argv, terminal, streams, &socket).await
            }
            SessionKind::Attach { input } => attach(&shim, &request.attempt, input, streams, &socket).await,
        };
        let last = match served {
            Ok(end) => SessionReport::Ended(end),
            Err(failure) => SessionReport::Failed(failure),
        };
        let _ = socket.send(&last, &[]).await;
        // If it were closed with something unread in it, the other side would get an error in place of the last report.
        while let Ok(Some(_)) = socket.receive::<SessionOrder>().await {}
    });
}

fn running(shim: &Shim, attempt: &Attempt) -> Result<Rc<RunningAttempt>, SessionFailure> {
    let running = shim.attempts.borrow().get(attempt).cloned();
    running.filter(|running| running.is_up.get() && !running.over.get()).ok_or(SessionFailure::NotRunning)
}

async fn exec(
    shim: &Rc<Shim>,
    attempt: &Attempt,
    argv: Vec<String>,
    terminal: Option<TerminalSize>,
    streams: Streams,
    socket: &PacketSocket,
) -> Result<SessionEnd, SessionFailure> {
    let other = |error: &dyn std::fmt::Display| SessionFailure::Other(error.to_string());
    let running = running(shim, attempt)?;
    let mut env = running.env.clone();
    if terminal.is_some() {
        terminal::name(&mut env);
    }
    let launch = Launch {
        argv,
        env,
        working_dir: running.working_dir.clone(),
        mounts: running.namespaces(),
        cgroups: running.cgroups.iter().flat_map(AttemptGroups::dirs).cloned().collect(),
        user: running.user,
        group: running.group,
        confinement: running.confinement.clone(),
        stdin: streams.stdin.is_some(),
        terminal,
        apart: true,
    };
    let output = |given: Option<OwnedFd>| given.map_or_else(spawn::nowhere, Ok);
    let (stdout, stderr) =
        output(streams.stdout).and_then(|out| Ok((out, output(streams.stderr)?))).map_err(|error| other(&error))?;
    let (pid, launcher) = spawn_session(shim, &launch, streams.stdin, stdout, stderr).map_err(|error| other(&error))?;
    let mut ended = shim.reaper.expect_session(pid);
    running.helpers.borrow_mut().insert(pid);
    let _helper = Helper { running: &running, pid };
    let outer = match launched(launcher).await {
        Some(Ok(Launched { terminal, .. })) => terminal,
        outcome => {
            shim.reaper.signal(pid, rustix::process::Signal::KILL);
            let _ = tokio::time::timeout(KILL_FOR, &mut ended).await;
            return Err(match outcome {
                Some(Err(failure)) => SessionFailure::Other(failure.message),
                _ if running.over.get() => SessionFailure::NotRunning,
                _ => SessionFailure::Other("its launcher was killed".to_owned()),
            });
        }
    };
    let given: Vec<_> = outer.iter().map(AsFd::as_fd).collect();
    let told = socket.send(&SessionReport::Started { is_terminal: outer.is_some() }, &given).await;
    drop(given);
    // The client alone has the terminal now: if it is gone, the terminal hangs up.
    drop(outer);
    let _ = told;
    let status = ended.await.map_or(Status::Signalled(libc::SIGKILL), |ended| ended.status);
    Ok(SessionEnd::Exited(match status {
        Status::Exited(code) => code,
        Status::Signalled(signal) => 128 + signal,
    }))
}

/// A process counts as one of the attempt's helpers until it is reaped.
struct Helper<'a> {
    running: &'a RunningAttempt,
    pid: rustix::process::Pid,
}

impl Drop for Helper<'_> {
    fn drop(&mut self) {
        self.running.helpers.borrow_mut().remove(&self.pid);
    }
}

async fn attach(
    shim: &Rc<Shim>,
    attempt: &Attempt,
    input: bool,
    streams: Streams,
    socket: &PacketSocket,
) -> Result<SessionEnd, SessionFailure> {
    let running = running(shim, attempt)?;
    let other = |error: std::io::Error| SessionFailure::Other(error.to_string());
    let pipe = |given: Option<OwnedFd>| given.map(pipe::Sender::from_owned_fd).transpose();
    let (stdout, stderr) = (pipe(streams.stdout).map_err(other)?, pipe(streams.stderr).map_err(other)?);
    let is_terminal = running.has_terminal.get();
    // The size of a terminal is that of the client, with or without input.
    let given = match &*running.input.borrow() {
        Some(open) if is_terminal || input => Some(open.try_clone().map_err(other)?),
        _ => None,
    };
    let descriptors: Vec<_> = given.iter().map(AsFd::as_fd).collect();
    let told = socket.send(&SessionReport::Started { is_terminal }, &descriptors).await;
    drop(descriptors);
    drop(given);
    let _ = told;
    let heard = async {
        loop {
            match socket.receive::<SessionOrder>().await {
                Ok(Some((SessionOrder::InputEnded, _))) if input => running.input_ended(),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return,
            }
        }
    };
    let outcome = tokio::select! {
        shown = running.viewers.show(stdout, stderr) => shown.err().unwrap_or(SessionEnd::Exited(0)),
        () = heard => SessionEnd::Exited(0),
    };
    if input {
        running.input_ended();
    }
    Ok(outcome)
}

impl RunningAttempt {
    /// The namespaces that a process enters which runs beside those of the container.
    pub fn namespaces(&self) -> MountNamespace {
        match &*self.init.borrow() {
            Some(init) => MountNamespace::With { pid: init.pid, pid_namespace: Some(init.pid_namespace.clone()) },
            None if self.apart => MountNamespace::With { pid: self.pid.as_raw_nonzero().get(), pid_namespace: None },
            None => MountNamespace::Machine,
        }
    }

    /// A client that was connected to the container's input sends no more.
    fn input_ended(&self) {
        if self.stdin_once && !self.has_terminal.get() {
            self.input.take();
        }
    }
}
