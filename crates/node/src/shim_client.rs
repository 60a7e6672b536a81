//! The client of the shim: commands go in, reports come out, and if the shim dies it is replaced.
//!
//! A new shim begins, as at the start, by reporting what it found (`Found` ..., `Recovered`). Commands that the old
//! shim did not answer are never answered. A command that was decided before those reports were read is not carried out
//! by the new shim, because it is based on outdated state. So after `Recovered` exactly the commands sent since the
//! first report of the new shim are in progress. The very first report must be read before any command is sent, too.
//!
//! A caller that sends must continue to receive: both directions are bounded, and a shim whose reports are not read
//! accepts no more commands.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncWriteExt, BufReader, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::descriptors;
use crate::mailbox::{SendOutcome, Sink, Source};
use crate::notes::Notes;
use crate::output::{OutputEvent, OutputQueue};
use crate::port::{Report, ShimCommand};
use crate::sessions::Sessions;
use crate::shim::wire::{self, Frame};
use crate::shim::{Arguments, OutputSettings, PidsLimit};

/// So many commands that wait are written together: each write wakes the shim.
const WRITTEN_AT_ONCE: usize = 64;
/// So many bytes of them, more or less: a writer that waits for the shim must keep little in memory.
const BYTES_AT_ONCE: usize = 64 * 1024;
/// Enough to keep a shim busy, small enough to notice when it is stuck.
const MOST_WAITING: usize = 1024;
/// The delay before a shim that died is replaced: it increases while shims die early, so that a broken machine is not
/// kept busy.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A shim that has run this long did not die because of its start.
const PROVEN_AFTER: Duration = Duration::from_secs(10);
/// The time for an orderly end: the shim kills what it had started, which takes at most ten seconds.
const STOP_FOR: Duration = Duration::from_secs(15);

#[derive(Clone, Debug)]
pub struct Config {
    /// An executable that calls `shim::main` when its first argument is `node-shim`.
    pub program: PathBuf,
    /// The shim's directory; created if it does not exist.
    pub root: PathBuf,
    pub output: OutputSettings,
    /// Receives what is said about the output of attempts, if it is followed.
    pub outputs: Option<Arc<OutputQueue>>,
    /// The directory for the results of tasks.
    pub results: Option<PathBuf>,
    /// The file for a line about each attempt.
    pub job_log: Option<PathBuf>,
    pub pids_limit: Option<PidsLimit>,
    /// Containers are isolated and do not see these paths.
    pub hidden: Option<Vec<PathBuf>>,
    /// Receives messages for the user.
    pub notes: Arc<Notes>,
    /// The standard input of the first container that has `stdin: true`; None: it is empty.
    pub stdin: Option<Arc<OwnedFd>>,
    /// Clients can connect to the input of containers, and containers can have terminals.
    pub attachable: bool,
}

impl Config {
    pub fn new(program: PathBuf, root: PathBuf) -> Self {
        Self {
            program,
            root,
            output: OutputSettings::default(),
            outputs: None,
            results: None,
            job_log: None,
            pids_limit: None,
            hidden: None,
            notes: Arc::default(),
            stdin: None,
            attachable: false,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the node's helper process cannot be started: {0}")]
    Spawn(#[source] io::Error),
    #[error("the node cannot work: {0}")]
    Refused(String),
    #[error("the node's helper process ended before it was ready")]
    Gone,
    #[error("too much for one deed: {0}")]
    TooLong(#[source] io::Error),
}

/// Two ends that may be used by different tasks, and the task between them.
pub struct ShimClient {
    pub commands: ShimCommands,
    pub reports: Reports,
    keeper: JoinHandle<()>,
}

/// Sends commands.
pub struct ShimCommands {
    sender: mpsc::Sender<OutgoingFrame>,
    life: Arc<AtomicU64>,
}

/// A command on its way to the shim.
pub(crate) struct OutgoingFrame {
    /// The shim that it is for.
    pub life: u64,
    pub bytes: Vec<u8>,
    pub descriptors: Vec<OwnedFd>,
}

/// Receives reports.
pub struct Reports {
    receiver: mpsc::Receiver<(u64, Report)>,
    /// The shim whose reports have been read so far. Commands are addressed to it.
    life: Arc<AtomicU64>,
}

impl ShimCommands {
    /// Waits while too many commands are queued.
    pub async fn send(&self, command: &ShimCommand) -> Result<(), Error> {
        let mut frame = Vec::new();
        wire::encode(command, &mut frame).map_err(Error::TooLong)?;
        let life = self.life.load(Ordering::Acquire);
        let frame = OutgoingFrame { life, bytes: frame, descriptors: Vec::new() };
        self.sender.send(frame).await.map_err(|_| Error::Gone)
    }

    /// For clients of the containers. They do not keep the shim from ending.
    pub fn sessions(&self) -> Sessions {
        Sessions { sender: self.sender.downgrade(), life: self.life.clone() }
    }
}

impl Reports {
    /// None when the runtime has been stopped. Cancel safe.
    pub async fn next(&mut self) -> Option<Report> {
        let (life, report) = self.receiver.recv().await?;
        self.life.store(life, Ordering::Release);
        Some(report)
    }
}

impl Sink for ShimCommands {
    async fn send(&self, command: &ShimCommand) -> SendOutcome {
        match ShimCommands::send(self, command).await {
            Ok(()) => SendOutcome::Done,
            Err(Error::TooLong(why)) => SendOutcome::Unfit(why.to_string()),
            Err(_) => SendOutcome::Gone,
        }
    }
}

impl Source for Reports {
    async fn next(&mut self) -> Option<Report> {
        Reports::next(self).await
    }
}

impl ShimClient {
    /// Starts the shim and waits until it has exclusive use of the directory.
    pub async fn start(config: Config) -> Result<Self, Error> {
        let shim = Shim::start(&config).await?;
        let (deed_sender, commands) = mpsc::channel(MOST_WAITING);
        let (report_sender, reports) = mpsc::channel(MOST_WAITING);
        let life = Arc::new(AtomicU64::new(0));
        let keeper = ShimSupervisor { config, commands, reports: report_sender, life: 1 };
        Ok(Self {
            commands: ShimCommands { sender: deed_sender, life: life.clone() },
            reports: Reports { receiver: reports, life },
            keeper: tokio::spawn(keeper.keep(shim)),
        })
    }

    /// Closes the connection to the shim, and waits until the shim has ended: processes that still run are killed.
    pub async fn stop(self) {
        let Self { commands, reports, keeper } = self;
        drop(commands);
        drop(reports);
        let _ = keeper.await;
    }

    /// For callers that keep the two ends apart: the handle waits as `stop` does once both ends have been dropped.
    pub fn split(self) -> (ShimCommands, Reports, JoinHandle<()>) {
        (self.commands, self.reports, self.keeper)
    }
}

/// A running shim.
struct Shim {
    child: Child,
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

impl Shim {
    async fn start(config: &Config) -> Result<Self, Error> {
        let (ours, theirs) = StdUnixStream::pair().map_err(Error::Spawn)?;
        ours.set_nonblocking(true).map_err(Error::Spawn)?;
        let arguments = Arguments {
            root: config.root.clone(),
            output: config.output,
            results: config.results.clone(),
            job_log: config.job_log.clone(),
            pids_limit: config.pids_limit,
            hidden: config.hidden.clone(),
            attachable: config.attachable,
        };
        let mut args = vec![OsString::from(crate::shim::COMMAND)];
        args.extend(arguments.to_args());
        let stdin = match &config.stdin {
            Some(stdin) => stdin.try_clone(),
            None => File::open("/dev/null").map(OwnedFd::from),
        };
        let child = Command::new(&config.program)
            .args(args)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            // The shim writes nothing there, and its own standard input is the socket.
            .stdout(Stdio::from(stdin.map_err(Error::Spawn)?))
            // This process never kills the shim: the end of its socket ends it, after it has ended all other processes.
            .kill_on_drop(false)
            .spawn()
            .map_err(Error::Spawn)?;
        let (reader, writer) = UnixStream::from_std(ours).map_err(Error::Spawn)?.into_split();
        let mut shim = Self { child, reader: BufReader::new(reader), writer };
        loop {
            match wire::read(&mut shim.reader).await {
                Ok(Some(Frame::Ready)) => return Ok(shim),
                Ok(Some(Frame::Refused(why))) => return Err(Error::Refused(why)),
                Ok(Some(Frame::Note(note))) => config.notes.say(note),
                _ => return Err(Error::Gone),
            }
        }
    }
}

struct ShimSupervisor {
    config: Config,
    commands: mpsc::Receiver<OutgoingFrame>,
    reports: mpsc::Sender<(u64, Report)>,
    /// The number of the current shim.
    life: u64,
}

/// Why a shim is no longer served.
enum End {
    /// The sender of commands or the receiver of reports was dropped: a stop was requested.
    Wanted,
    Died,
}

impl ShimSupervisor {
    async fn keep(mut self, mut shim: Shim) {
        let mut pause = FIRST_PAUSE;
        loop {
            let born_at = tokio::time::Instant::now();
            let Shim { mut child, reader, writer } = shim;
            let ended = self.serve(reader, writer).await;
            // Its socket is closed. The shim may take a moment to end the processes that it started.
            if timeout(STOP_FOR, child.wait()).await.is_err() {
                self.config.notes.say("the node's helper process does not end");
            }
            if matches!(ended, End::Wanted) {
                return;
            }
            if let Some(outputs) = &self.config.outputs {
                outputs.push(OutputEvent::AllEnded).await;
            }
            if born_at.elapsed() > PROVEN_AFTER {
                pause = FIRST_PAUSE;
            }
            shim = loop {
                self.config.notes.say("the node's helper process ended unexpectedly; another one is started");
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                if self.reports.is_closed() {
                    return;
                }
                match Shim::start(&self.config).await {
                    Ok(shim) => break shim,
                    Err(error) => {
                        self.config.notes.say(format!("the node's helper process cannot be replaced yet: {error}"));
                    }
                }
            };
            self.life += 1;
        }
    }

    async fn serve(&mut self, reader: BufReader<OwnedReadHalf>, mut writer: OwnedWriteHalf) -> End {
        let (life, reports) = (self.life, self.reports.clone());
        // A task of its own, so that reading is never cancelled in the middle of a frame.
        let (notes, outputs) = (self.config.notes.clone(), self.config.outputs.clone());
        let mut hearing = tokio::spawn(hear(reader, life, reports, notes, outputs));
        let mut frames = Vec::with_capacity(WRITTEN_AT_ONCE);
        let end = loop {
            tokio::select! {
                _ = &mut hearing => return End::Died,
                () = self.reports.closed() => break End::Wanted,
                received = self.commands.recv_many(&mut frames, WRITTEN_AT_ONCE) => {
                    if received == 0 {
                        break End::Wanted;
                    }
                    // Those that were decided before the first report of this shim was read are for another one.
                    let frames = joined(frames.drain(..).filter(|frame| frame.life == life));
                    let written = tokio::select! {
                        written = write_all(&mut writer, frames) => written,
                        _ = &mut hearing => return End::Died,
                        () = self.reports.closed() => break End::Wanted,
                    };
                    if written.is_err() {
                        // The shim's death is noticed as usual, by the end of its reports.
                        let _ = (&mut hearing).await;
                        return End::Died;
                    }
                }
            }
        };
        // Close both halves: the shim takes this as the end of this process.
        hearing.abort();
        let _ = hearing.await;
        end
    }
}

/// The same bytes in fewer frames. A frame with descriptors stays as it is.
fn joined(frames: impl Iterator<Item = OutgoingFrame>) -> Vec<OutgoingFrame> {
    let mut joined: Vec<OutgoingFrame> = Vec::new();
    for frame in frames {
        match joined.last_mut() {
            Some(last)
                if frame.descriptors.is_empty() && last.descriptors.is_empty() && last.bytes.len() < BYTES_AT_ONCE =>
            {
                last.bytes.extend_from_slice(&frame.bytes);
            }
            _ => joined.push(frame),
        }
    }
    joined
}

async fn write_all(writer: &mut OwnedWriteHalf, frames: Vec<OutgoingFrame>) -> io::Result<()> {
    for frame in frames {
        write(writer, frame).await?;
    }
    Ok(())
}

/// Writes a frame. Its descriptors go with its first bytes.
async fn write(writer: &mut OwnedWriteHalf, frame: OutgoingFrame) -> io::Result<()> {
    let mut sent = 0;
    if !frame.descriptors.is_empty() {
        let descriptors: Vec<_> = frame.descriptors.iter().map(AsFd::as_fd).collect();
        let socket = writer.as_ref();
        sent = socket
            .async_io(Interest::WRITABLE, || descriptors::send(socket.as_fd(), &frame.bytes, &descriptors))
            .await?;
    }
    writer.write_all(&frame.bytes[sent..]).await
}

async fn hear(
    mut reader: BufReader<OwnedReadHalf>,
    life: u64,
    reports: mpsc::Sender<(u64, Report)>,
    notes: Arc<Notes>,
    outputs: Option<Arc<OutputQueue>>,
) {
    loop {
        match wire::read(&mut reader).await {
            Ok(Some(Frame::Report(report))) => {
                if reports.send((life, *report)).await.is_err() {
                    return;
                }
            }
            // In this order, so that everything about an attempt's output is known before its end is reported.
            Ok(Some(Frame::Output(event))) => {
                if let Some(outputs) = &outputs {
                    outputs.push(event).await;
                }
            }
            Ok(Some(Frame::Note(note))) => notes.say(note),
            Ok(Some(Frame::Ready | Frame::Refused(_))) => {}
            Ok(None) => return,
            Err(error) => {
                notes.say(format!("the node's helper process cannot be understood: {error}"));
                return;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_written_together_but_what_comes_with_descriptors_alone() {
        let frame = |length: usize, descriptors: usize| OutgoingFrame {
            life: 1,
            bytes: vec![length as u8; length],
            descriptors: (0..descriptors).map(|_| OwnedFd::from(File::open("/dev/null").unwrap())).collect(),
        };
        let check = |frames: &[(usize, usize)], expected: &[(usize, usize)]| {
            let bytes: Vec<u8> = frames.iter().flat_map(|(length, _)| vec![*length as u8; *length]).collect();
            let joined = joined(frames.iter().map(|(length, descriptors)| frame(*length, *descriptors)));
            assert_eq!(joined.iter().flat_map(|frame| frame.bytes.clone()).collect::<Vec<_>>(), bytes);
            let shape: Vec<_> = joined.iter().map(|frame| (frame.bytes.len(), frame.descriptors.len())).collect();
            assert_eq!(shape, expected);
        };
        check(&[], &[]);
        check(&[(5, 0), (6, 0), (7, 0)], &[(18, 0)]);
        check(&[(5, 0), (6, 2), (7, 0), (8, 0), (9, 1)], &[(5, 0), (6, 2), (15, 0), (9, 1)]);
        check(&[(BYTES_AT_ONCE - 1, 0), (9, 0), (9, 0)], &[(BYTES_AT_ONCE + 8, 0), (9, 0)]);
    }
}
