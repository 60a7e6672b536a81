//! Sessions of clients with containers, seen from the process that serves the clients: `shim/session.rs` is the other
//! side.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use crate::descriptors::PacketSocket;
use crate::port::{
    Attempt, SessionEnd, SessionFailure, SessionKind, SessionOrder, SessionReport, SessionRequest, ShimCommand,
    TerminalSize,
};
use crate::shim::resize;
use crate::shim::wire;
use crate::shim_client::OutgoingFrame;

/// What a client wants of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    pub kind: ClientKind,
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientKind {
    /// A terminal, or None for pipes.
    Exec {
        argv: Vec<String>,
        terminal: Option<TerminalSize>,
    },
    Attach,
}

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("the container is not running")]
    NotRunning,
    #[error("{0}")]
    Failed(String),
    /// The shim ended, or the node stops.
    #[error("the node's helper process ended")]
    Gone,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Opens sessions, as long as the node runs.
#[derive(Clone)]
pub struct Sessions {
    pub(crate) sender: mpsc::WeakSender<OutgoingFrame>,
    pub(crate) life: Arc<AtomicU64>,
}

/// A session, from the start of its command to its end. If it is dropped, the streams of the command close.
pub struct Session {
    /// None: none was asked for, or the container has none.
    pub stdin: Option<pipe::Sender>,
    pub stdout: Option<pipe::Receiver>,
    /// None with a terminal: its output is one stream.
    pub stderr: Option<pipe::Receiver>,
    pub terminal: Option<TerminalControl>,
    pub end: SessionControl,
}

/// The size of a terminal can be changed.
pub struct TerminalControl(OwnedFd);

impl TerminalControl {
    pub fn resize(&self, columns: u16, rows: u16) {
        // It may have hung up.
        let _ = resize(&self.0, TerminalSize { columns, rows });
    }
}

/// Says when the session ends.
pub struct SessionControl {
    socket: PacketSocket,
}

impl SessionControl {
    /// The end of the command: what it wrote is in the streams. Cancel safe.
    pub async fn ended(&self) -> Result<SessionEnd, SessionError> {
        loop {
            match self.socket.receive().await? {
                Some((SessionReport::Ended(end), _)) => return Ok(end),
                Some((SessionReport::Failed(failure), _)) => return Err(failure.into()),
                Some((SessionReport::Started { .. }, _)) => {}
                None => return Err(SessionError::Gone),
            }
        }
    }

    /// The client sends no more input.
    pub async fn input_ended(&self) {
        let _ = self.socket.send(&SessionOrder::InputEnded, &[]).await;
    }
}

impl From<SessionFailure> for SessionError {
    fn from(failure: SessionFailure) -> Self {
        match failure {
            SessionFailure::NotRunning => Self::NotRunning,
            SessionFailure::Other(why) => Self::Failed(why),
        }
    }
}

impl Sessions {
    /// Returns when the command runs, or the client is connected to the container.
    pub async fn open(&self, attempt: Attempt, options: SessionOptions) -> Result<Session, SessionError> {
        let SessionOptions { kind, stdin, stdout, stderr } = options;
        let (socket, theirs) = PacketSocket::pair()?;
        let mut descriptors = vec![theirs];
        let mut session =
            Session { stdin: None, stdout: None, stderr: None, terminal: None, end: SessionControl { socket } };
        let has_terminal = matches!(kind, ClientKind::Exec { terminal: Some(_), .. });
        let pipes = !has_terminal;
        let gives_stdin = pipes && stdin && matches!(kind, ClientKind::Exec { .. });
        if gives_stdin {
            let (reader, writer) = io::pipe()?;
            descriptors.push(reader.into());
            session.stdin = Some(pipe::Sender::from_owned_fd(writer.into())?);
        }
        let mut output = |wanted: bool| {
            if !wanted {
                return Ok::<_, io::Error>(None);
            }
            let (reader, writer) = io::pipe()?;
            descriptors.push(writer.into());
            Ok(Some(pipe::Receiver::from_owned_fd(reader.into())?))
        };
        session.stdout = output(pipes && stdout)?;
        session.stderr = output(pipes && stderr)?;
        let request = SessionRequest {
            attempt,
            kind: match kind {
                ClientKind::Exec { argv, terminal } => SessionKind::Exec { argv, terminal },
                ClientKind::Attach => SessionKind::Attach { input: stdin },
            },
            stdin: gives_stdin,
            stdout: session.stdout.is_some(),
            stderr: session.stderr.is_some(),
        };
        let mut bytes = Vec::new();
        wire::encode(&ShimCommand::Session(Box::new(request)), &mut bytes)?;
        let frame = OutgoingFrame { life: self.life.load(Ordering::Acquire), bytes, descriptors };
        let sender = self.sender.upgrade().ok_or(SessionError::Gone)?;
        sender.send(frame).await.map_err(|_| SessionError::Gone)?;
        drop(sender);
        let (is_terminal, given) = match session.end.socket.receive().await? {
            Some((SessionReport::Started { is_terminal }, given)) => (is_terminal, given.into_iter().next()),
            Some((SessionReport::Failed(failure), _)) => return Err(failure.into()),
            Some((SessionReport::Ended(_), _)) | None => return Err(SessionError::Gone),
        };
        let Some(given) = given else {
            return if has_terminal { Err(SessionError::Gone) } else { Ok(session) };
        };
        rustix::io::ioctl_fionbio(&given, true).map_err(io::Error::from)?;
        // What is given is a terminal or a pipe; both are used in the same way.
        if has_terminal {
            session.stdout = Some(pipe::Receiver::from_owned_fd_unchecked(given.try_clone()?)?);
        }
        if stdin {
            session.stdin = Some(pipe::Sender::from_owned_fd_unchecked(given.as_fd().try_clone_to_owned()?)?);
        }
        session.terminal = is_terminal.then_some(TerminalControl(given));
        Ok(session)
    }
}
