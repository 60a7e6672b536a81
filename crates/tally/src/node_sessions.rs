//! exec, attach and port-forward: what the server asks for, and what the node does.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tally_core::ids::PodUid;
use tally_node::port::{Attempt, SessionEnd, TerminalSize};
use tally_node::ports;
use tally_node::sessions::{
    ClientKind, Session, SessionControl, SessionError, SessionOptions, Sessions, TerminalControl,
};
use tally_server::{
    BoxFuture, PodSession, PodSessionControl, PodSessionError, PodSessionKind, PodSessionRequest, PodSessions,
};
use tokio::net::TcpStream;

/// The sessions of clients with this node's Pods.
pub struct NodeSessions {
    pub node: String,
    pub root: PathBuf,
    pub sessions: Sessions,
}

impl PodSessions for NodeSessions {
    fn node(&self) -> &str {
        &self.node
    }

    fn open(&self, wanted: PodSessionRequest) -> BoxFuture<'static, Result<PodSession, PodSessionError>> {
        let sessions = self.sessions.clone();
        Box::pin(async move {
            let PodSessionRequest { pod_uid, container, run, kind, stdin, stdout, stderr } = wanted;
            let attempt = Attempt { pod: PodUid::new(&pod_uid), container: container.as_str().into(), number: run };
            let kind = match kind {
                PodSessionKind::Exec { command, terminal } => ClientKind::Exec {
                    argv: command,
                    terminal: terminal.map(|(columns, rows)| TerminalSize { columns, rows }),
                },
                PodSessionKind::Attach => ClientKind::Attach,
            };
            let opened = sessions.open(attempt, SessionOptions { kind, stdin, stdout, stderr }).await;
            let Session { stdin, stdout, stderr, terminal, end } = opened.map_err(explain)?;
            Ok(PodSession {
                stdin: stdin.map(|stdin| Box::new(stdin) as _),
                stdout: stdout.map(|stdout| Box::new(stdout) as _),
                stderr: stderr.map(|stderr| Box::new(stderr) as _),
                control: Arc::new(NodeSessionControl { terminal, end }),
            })
        })
    }

    fn connect(&self, pod_uid: &str, port: u16) -> BoxFuture<'static, io::Result<TcpStream>> {
        let (root, pod) = (self.root.clone(), PodUid::new(pod_uid));
        Box::pin(async move {
            let is_its = tokio::task::spawn_blocking(move || ports::listens(&root, &pod, port)).await;
            if !is_its.unwrap_or(false) {
                let text = format!("no process of the Pod listens on port {port}");
                return Err(io::Error::new(io::ErrorKind::ConnectionRefused, text));
            }
            match TcpStream::connect(("127.0.0.1", port)).await {
                Ok(connection) => Ok(connection),
                Err(error) => TcpStream::connect(("::1", port)).await.map_err(|_| error),
            }
        })
    }
}

struct NodeSessionControl {
    terminal: Option<TerminalControl>,
    end: SessionControl,
}

impl PodSessionControl for NodeSessionControl {
    fn resize(&self, columns: u16, rows: u16) {
        if let Some(terminal) = &self.terminal {
            terminal.resize(columns, rows);
        }
    }

    fn input_ended(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.end.input_ended())
    }

    fn ended(&self) -> BoxFuture<'_, Result<i32, PodSessionError>> {
        Box::pin(async {
            match self.end.ended().await {
                Ok(SessionEnd::Exited(code)) => Ok(code),
                Ok(SessionEnd::TooSlow) => {
                    Err(PodSessionError::Failed("the client did not read the output for too long".to_owned()))
                }
                Err(error) => Err(explain(error)),
            }
        })
    }
}

fn explain(error: SessionError) -> PodSessionError {
    match error {
        SessionError::NotRunning => PodSessionError::NotRunning,
        other => PodSessionError::Failed(other.to_string()),
    }
}
