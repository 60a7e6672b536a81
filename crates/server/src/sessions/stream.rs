//! exec and attach: the streams of a command on the channels of a WebSocket.
//!
//! The two directions do not wait for each other. What the client sends is not read on while the command does not take it,
//! and what the command writes is not read on while the client does not take it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tally_value::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use crate::sessions::channels::{self, ChannelProtocol, ClientMessage, STATUS, STDERR, STDOUT};
use crate::sessions::upgrade::Socket;
use crate::sessions::{PodSession, PodSessionControl, PodSessionError, PodSessionKind, PodSessions, WantedSession};

/// The most that is sent in one message.
const PIECE: usize = 32 * 1024;
/// How long to wait for the size of a terminal, so that the command finds it. kubectl sends it first.
const SIZE_WITHIN: Duration = Duration::from_millis(300);
/// A client that is gone is noticed by the ping that cannot be sent.
const PING_EVERY: Duration = Duration::from_secs(30);
/// What a process wrote before it ended can be read at once. What others write that it left behind is not waited for.
const DRAIN_FOR: Duration = Duration::from_millis(100);
/// How long the client may take to close the connection after the end.
const GOODBYE_WITHIN: Duration = Duration::from_secs(5);

type Output = Box<dyn AsyncRead + Send + Unpin>;
type Sender = SplitSink<Socket, Message>;
type Receiver = SplitStream<Socket>;

/// The connection to the client is lost.
struct Lost;

/// Notes that something was transferred.
struct Activity(watch::Sender<Instant>);

impl Activity {
    fn new() -> Self {
        Self(watch::Sender::new(Instant::now()))
    }

    fn note(&self) {
        self.0.send_replace(Instant::now());
    }

    /// Ready once nothing has been transferred for this long.
    async fn idle_for(&self, patience: Duration) {
        loop {
            let until = *self.0.borrow() + patience;
            sleep_until(until).await;
            if *self.0.borrow() + patience <= Instant::now() {
                return;
            }
        }
    }
}

pub async fn serve(
    socket: Socket,
    protocol: ChannelProtocol,
    sessions: Arc<dyn PodSessions>,
    wanted: WantedSession,
    idle: Duration,
) {
    let (mut sender, mut receiver) = socket.split();
    let status = match wanted.missing {
        Some(missing) => channels::failed(&missing),
        None => match session(&mut sender, &mut receiver, protocol, sessions, wanted.request, idle).await {
            Ok(status) => status,
            Err(Lost) => return,
        },
    };
    let content = channels::message(STATUS, status.to_string().as_bytes());
    let end = async {
        sender.send(Message::binary(content)).await?;
        let frame = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        sender.send(Message::Close(Some(frame))).await
    };
    if end.await.is_ok() {
        // If the connection were closed with bytes of the client unread, what was sent last could be lost.
        let _ = timeout(GOODBYE_WITHIN, async { while let Some(Ok(_)) = receiver.next().await {} }).await;
    }
}

async fn session(
    sender: &mut Sender,
    receiver: &mut Receiver,
    protocol: ChannelProtocol,
    sessions: Arc<dyn PodSessions>,
    mut request: crate::sessions::PodSessionRequest,
    idle: Duration,
) -> Result<Value, Lost> {
    // The client is told that it is connected, as by the reference.
    let first = if request.stdout { STDOUT } else { STDERR };
    if request.stdout || request.stderr {
        sender.send(Message::binary(channels::message(first, b""))).await.map_err(|_| Lost)?;
    }
    let mut early = None;
    if let PodSessionKind::Exec { terminal: Some(size), .. } = &mut request.kind
        && let Ok(message) = timeout(SIZE_WITHIN, receiver.next()).await
    {
        let message = message.and_then(Result::ok).ok_or(Lost)?;
        match ClientMessage::parse(protocol, bytes_of(&message)) {
            ClientMessage::Resize(columns, rows) => *size = (columns, rows),
            _ => early = Some(message),
        }
    }
    let is_exec = matches!(request.kind, PodSessionKind::Exec { .. });
    let container = request.container.clone();
    let session = match sessions.open(request).await {
        Ok(session) => session,
        Err(error) => return Ok(channels::failed(&explain(error, &container, is_exec))),
    };
    let PodSession { stdin, stdout, stderr, control } = session;
    let activity = Activity::new();
    let outgoing = send_output(sender, stdout, stderr, &*control, &activity);
    let incoming = receive_input(receiver, early, protocol, stdin, &*control, &activity);
    tokio::select! {
        ended = outgoing => Ok(match ended? {
            Ok(code) => channels::ended(code),
            Err(error) => channels::failed(&explain(error, &container, is_exec)),
        }),
        Lost = incoming => Err(Lost),
        () = activity.idle_for(idle) => Ok(channels::failed("the session was idle for too long")),
    }
}

fn explain(error: PodSessionError, container: &str, is_exec: bool) -> String {
    match error {
        PodSessionError::NotRunning => super::not_found(container),
        PodSessionError::Failed(why) if is_exec => format!("error executing command in container: {why}"),
        PodSessionError::Failed(why) => format!("error attaching to container: {why}"),
    }
}

fn bytes_of(message: &Message) -> &[u8] {
    match message {
        Message::Binary(bytes) => bytes,
        // Some clients send text.
        Message::Text(text) => text.as_bytes(),
        _ => &[],
    }
}

/// Until the client is gone.
async fn receive_input(
    receiver: &mut Receiver,
    mut early: Option<Message>,
    protocol: ChannelProtocol,
    mut stdin: Option<Box<dyn tokio::io::AsyncWrite + Send + Unpin>>,
    control: &dyn PodSessionControl,
    activity: &Activity,
) -> Lost {
    loop {
        let message = match early.take() {
            Some(message) => message,
            None => match receiver.next().await {
                Some(Ok(message)) => message,
                _ => return Lost,
            },
        };
        match ClientMessage::parse(protocol, bytes_of(&message)) {
            ClientMessage::Input(input) => {
                activity.note();
                if let Some(open) = &mut stdin
                    && open.write_all(input).await.is_err()
                {
                    // The command reads no more.
                    stdin = None;
                }
                activity.note();
            }
            ClientMessage::InputEnded => {
                stdin = None;
                control.input_ended().await;
            }
            ClientMessage::Resize(columns, rows) => control.resize(columns, rows),
            ClientMessage::Other => {}
        }
    }
}

/// Until the command has ended and what it wrote is sent.
async fn send_output(
    sender: &mut Sender,
    mut stdout: Option<Output>,
    mut stderr: Option<Output>,
    control: &dyn PodSessionControl,
    activity: &Activity,
) -> Result<Result<i32, PodSessionError>, Lost> {
    let mut pings = interval(PING_EVERY);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ended = control.ended();
    let (mut from_stdout, mut from_stderr) = (vec![0; PIECE], vec![0; PIECE]);
    let code = loop {
        tokio::select! {
            read = read(&mut stdout, &mut from_stdout) => {
                forward(sender, STDOUT, &mut stdout, &from_stdout[..read], activity).await?;
            }
            read = read(&mut stderr, &mut from_stderr) => {
                forward(sender, STDERR, &mut stderr, &from_stderr[..read], activity).await?;
            }
            code = &mut ended => break code,
            _ = pings.tick() => sender.send(Message::Ping(Default::default())).await.map_err(|_| Lost)?,
        }
    };
    for (channel, mut output) in [(STDOUT, stdout), (STDERR, stderr)] {
        while output.is_some() {
            let Ok(length) = timeout(DRAIN_FOR, read(&mut output, &mut from_stdout)).await else { break };
            forward(sender, channel, &mut output, &from_stdout[..length], activity).await?;
        }
    }
    Ok(code)
}

/// Pending if there is nothing to read from. Zero at the end; a terminal that has hung up answers with an error.
async fn read(output: &mut Option<Output>, buffer: &mut [u8]) -> usize {
    match output {
        Some(output) => output.read(buffer).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

async fn forward(
    sender: &mut Sender,
    channel: u8,
    output: &mut Option<Output>,
    bytes: &[u8],
    activity: &Activity,
) -> Result<(), Lost> {
    if bytes.is_empty() {
        *output = None;
        return Ok(());
    }
    activity.note();
    sender.send(Message::binary(channels::message(channel, bytes))).await.map_err(|_| Lost)
}
