//! port-forward: SPDY in the messages of a WebSocket. Each connection of the client has two streams: one for its content, and
//! one for what goes wrong.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_tungstenite::tungstenite::Message;

use crate::sessions::PodSessions;
use crate::sessions::spdy::{ClientFrame, Reset, SpdyDecoder, SpdyEncoder};
use crate::sessions::upgrade::Socket;

/// The one that kubectl asks for.
pub const PROTOCOL: &str = "SPDY/3.1+portforward.k8s.io";

/// Connections at once in one session.
const MOST_CONNECTIONS: usize = 128;
/// Streams that have been opened and have no connection yet, or no more.
const MOST_STREAMS: usize = 4 * MOST_CONNECTIONS;
/// Pieces that wait for one connection, each of at most 64 KiB. If they are not taken, the client is not read on.
const MOST_PIECES: usize = 16;
/// Frames that wait for the client.
const MOST_FRAMES: usize = 64;
const PIECE: usize = 32 * 1024;
const PING_EVERY: Duration = Duration::from_secs(30);

/// Frames on their way to the client.
type Frames = mpsc::Sender<Outgoing>;

enum Outgoing {
    Frame(Vec<u8>),
    /// A stream is accepted. Encoded when it is sent, because all headers are one text.
    Reply(u32),
}

/// A stream that the client has opened.
enum Stream {
    /// For what goes wrong: it waits for the one with the content.
    Errors { request: String },
    /// What arrives on it goes to the connection. None: the client sends no more, or the connection is closed.
    Content { pieces: Option<mpsc::Sender<Bytes>> },
}

pub async fn serve(socket: Socket, sessions: Arc<dyn PodSessions>, pod_uid: &str, idle: Duration) {
    let (mut sender, mut receiver) = socket.split();
    let (frames, mut outgoing) = mpsc::channel(MOST_FRAMES);
    let mut forwards = Forwards {
        sessions,
        pod_uid: pod_uid.to_owned(),
        frames,
        streams: HashMap::new(),
        connections: JoinSet::new(),
    };
    let send = async {
        let mut encoder = SpdyEncoder::default();
        let mut pings = interval(PING_EVERY);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let message = tokio::select! {
                frame = outgoing.recv() => match frame {
                    Some(Outgoing::Frame(frame)) => Message::binary(frame),
                    Some(Outgoing::Reply(stream)) => Message::binary(encoder.reply(stream)),
                    None => return,
                },
                _ = pings.tick() => Message::Ping(Bytes::new()),
            };
            if sender.send(message).await.is_err() {
                return;
            }
        }
    };
    let receive = async {
        let mut decoder = SpdyDecoder::default();
        // kubectl sends a ping of its own every few seconds, so this is the time without a client.
        while let Ok(Some(Ok(message))) = timeout(idle, receiver.next()).await {
            let Message::Binary(bytes) = message else { continue };
            for part in bytes.chunks(PIECE) {
                decoder.push(part);
                loop {
                    match decoder.next() {
                        Ok(Some(ClientFrame::GoAway)) | Err(_) => return,
                        Ok(Some(frame)) => forwards.take(frame).await,
                        Ok(None) => break,
                    }
                }
            }
        }
    };
    // What is left, the connections included, is dropped.
    tokio::select! {
        () = send => {}
        () = receive => {}
    }
}

struct Forwards {
    sessions: Arc<dyn PodSessions>,
    pod_uid: String,
    frames: Frames,
    streams: HashMap<u32, Stream>,
    /// Each says which streams it had.
    connections: JoinSet<[u32; 2]>,
}

impl Forwards {
    async fn say(&self, frame: Vec<u8>) {
        let _ = self.frames.send(Outgoing::Frame(frame)).await;
    }

    async fn refuse(&self, stream: u32, why: Reset) {
        self.say(SpdyEncoder::reset(stream, why)).await;
    }

    async fn take(&mut self, frame: ClientFrame) {
        while let Some(ended) = self.connections.try_join_next() {
            for stream in ended.into_iter().flatten() {
                self.streams.remove(&stream);
            }
        }
        match frame {
            ClientFrame::Open { stream, headers, is_last } => {
                let (kind, port) = (headers.get("streamtype").unwrap_or_default(), headers.get("port"));
                let port = port.and_then(|port| port.parse::<u16>().ok()).filter(|port| *port > 0);
                let request = headers.get("requestid").unwrap_or_default();
                let is_new = !self.streams.contains_key(&stream) && stream % 2 == 1;
                let Some(port) = port.filter(|_| is_new) else {
                    return self.refuse(stream, Reset::Protocol).await;
                };
                if self.streams.len() >= MOST_STREAMS || self.connections.len() >= MOST_CONNECTIONS {
                    return self.refuse(stream, Reset::Refused).await;
                }
                match kind {
                    "error" => {
                        self.streams.insert(stream, Stream::Errors { request: request.to_owned() });
                        let _ = self.frames.send(Outgoing::Reply(stream)).await;
                    }
                    "data" => self.begin(stream, port, request, is_last).await,
                    _ => self.refuse(stream, Reset::Protocol).await,
                }
            }
            ClientFrame::Data { stream, content, is_last } => {
                let Some(Stream::Content { pieces }) = self.streams.get_mut(&stream) else { return };
                let sent = match pieces {
                    Some(open) if !content.is_empty() => open.send(content).await,
                    _ => Ok(()),
                };
                if is_last || sent.is_err() {
                    *pieces = None;
                }
            }
            ClientFrame::Reset { stream } => {
                self.streams.remove(&stream);
            }
            // Those of the client have odd numbers; others would be answers.
            ClientFrame::Ping { id } if id % 2 == 1 => self.say(SpdyEncoder::ping(id)).await,
            ClientFrame::Ping { .. } | ClientFrame::GoAway => {}
        }
    }

    /// A stream for content: the connection begins.
    async fn begin(&mut self, stream: u32, port: u16, request: &str, is_last: bool) {
        let of_same = |(number, stream): (&u32, &Stream)| match stream {
            Stream::Errors { request: other } if other == request => Some(*number),
            _ => None,
        };
        let Some(errors) = self.streams.iter().find_map(of_same) else {
            return self.refuse(stream, Reset::Protocol).await;
        };
        let (sender, pieces) = mpsc::channel(MOST_PIECES);
        self.streams.insert(stream, Stream::Content { pieces: (!is_last).then_some(sender) });
        let _ = self.frames.send(Outgoing::Reply(stream)).await;
        let (frames, connecting) = (self.frames.clone(), self.sessions.connect(&self.pod_uid, port));
        let pod = self.pod_uid.clone();
        self.connections.spawn(async move {
            let trouble = match connecting.await {
                Ok(connection) => carry(connection, stream, pieces, &frames).await,
                Err(error) => Err(error),
            };
            let say = async |frame| {
                let _ = frames.send(Outgoing::Frame(frame)).await;
            };
            if let Err(error) = trouble {
                let text = format!("error forwarding port {port} to pod {pod}: {error}");
                say(SpdyEncoder::data(errors, text.as_bytes(), false)).await;
            }
            say(SpdyEncoder::data(stream, b"", true)).await;
            say(SpdyEncoder::data(errors, b"", true)).await;
            [stream, errors]
        });
    }
}

/// Until both directions have ended, or one is broken.
async fn carry(
    connection: TcpStream,
    stream: u32,
    mut pieces: mpsc::Receiver<Bytes>,
    frames: &Frames,
) -> std::io::Result<()> {
    let (mut reader, mut writer) = connection.into_split();
    let to_pod = async {
        while let Some(piece) = pieces.recv().await {
            writer.write_all(&piece).await?;
        }
        writer.shutdown().await
    };
    let to_client = async {
        let mut buffer = vec![0; PIECE];
        loop {
            let length = reader.read(&mut buffer).await?;
            if length == 0 {
                return Ok(());
            }
            let frame = SpdyEncoder::data(stream, &buffer[..length], false);
            if frames.send(Outgoing::Frame(frame)).await.is_err() {
                return Ok(());
            }
        }
    };
    // When the Pod has closed the connection, nothing that the client still sends matters.
    let mut to_client = std::pin::pin!(to_client);
    tokio::select! {
        ended = &mut to_client => ended,
        // If the Pod takes no more, what it wrote before may still be there.
        _ = to_pod => to_client.await,
    }
}
