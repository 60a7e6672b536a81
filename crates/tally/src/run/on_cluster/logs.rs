//! What the tasks of a cluster print: one request for each run of a container, which ends when the container has ended.
//!
//! A log stays on its node until the Pod is deleted, so it is read only when its turn has come: nothing has to be kept
//! here, whatever the order. A connection that breaks is opened again, and what was read before is skipped. A request names
//! a container and not its run: of a container that may have been started again since, the Pod then says whose log it is.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::Incoming;
use tally_core::ids::PodUid;
use tally_node::logs::{self, LogReadOptions};
use tally_node::output::OutputSource;
use tally_node::port::Attempt;
use tally_node::shim::log::Stream;
use tally_remote::Remote;
use tally_runtime::controller::{Call, Kind, Reply, Verb};
use tally_runtime::driver::api::Api;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;

use super::LOST_FOR;
use crate::pod_log::{PodLogRequest, try_next_piece};
use crate::run::follow::display::LogStyle;
use crate::run::follow::lines::Lines;
use crate::run::follow::logs::{LONGEST_TAIL, tail};
use crate::run::follow::tasks::{Task, Tasks, Turn};
use crate::run::follow::turns::{JobOrder, OutputOrder};
use crate::run::progress::output::{Output, TaskName};
use crate::run::progress::view::{ContainerRun, PodText};

/// Logs that are read at the same time. Others wait until one of them has ended.
const MOST_READ: usize = 48;
/// Pieces of a log that wait to be shown. After that its server waits.
const MOST_PIECES: usize = 16;
/// Pieces that are shown in one turn: a task that prints without end does not delay the others.
const PIECES_AT_ONCE: usize = 8;
/// The status of a Pod says that a container has ended some time after its log has ended.
const STATUS_WITHIN: Duration = Duration::from_secs(5);
/// How long to wait before a log is requested again: the first time, and at most.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How often a log is requested that the server does not send: about a quarter of a minute.
const MOST_REFUSALS: u32 = 6;
/// At the end of the run, how long to wait for a log of which nothing comes.
const SILENT_FOR: Duration = Duration::from_secs(30);
/// The last lines of a failure are given up after this time.
const TAIL_WITHIN: Duration = Duration::from_secs(10);

/// Where logs are read.
#[derive(Clone)]
pub enum LogPlace {
    Server(Remote),
    /// The files of the node on this machine: the process that runs the Job ends with it, and its streams break off.
    Files(PathBuf),
}

/// A run of a container whose log is read.
#[derive(Clone, Debug)]
pub struct LoggedRun {
    pub namespace: String,
    pub pod: String,
    pub attempt: Attempt,
}

/// What the status of the Pod says about a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RunState {
    has_ended: bool,
    /// The container has been started again since.
    is_previous: bool,
}

impl LoggedRun {
    fn request(&self, previous: bool) -> PodLogRequest {
        let request = PodLogRequest { previous, ..PodLogRequest::default() };
        request.of(&self.namespace, &self.pod, &self.attempt.container)
    }
}

/// Which end of a log is read.
#[derive(Clone, Copy, Debug)]
pub struct LogTail {
    pub lines: usize,
    /// The run of the container. None: the last one.
    pub number: Option<u32>,
    /// The container has been started again since.
    pub is_previous: bool,
}

impl LogPlace {
    /// The last lines of a container, or of all if the name is empty. Empty if there is no log any more.
    pub async fn tail(&self, run: LoggedRun, end: LogTail) -> Vec<String> {
        match self {
            Self::Files(root) => {
                tail(root, &run.attempt.pod.to_string(), &run.attempt.container, end.number, end.lines)
            }
            Self::Server(remote) => {
                let request = PodLogRequest { tail_lines: Some(end.lines as u64), ..run.request(end.is_previous) };
                let read = timeout(TAIL_WITHIN, read_end(remote, &request)).await;
                let text = read.unwrap_or_default();
                String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
            }
        }
    }
}

async fn read_end(remote: &Remote, request: &PodLogRequest) -> Vec<u8> {
    let mut text = Vec::new();
    let Ok(mut log) = request.open(remote).await else { return text };
    while let Ok(Some(piece)) = try_next_piece(&mut log).await {
        text.extend_from_slice(&piece);
        text.drain(..text.len().saturating_sub(LONGEST_TAIL));
    }
    text
}

/// What the tasks print, in the order in which it is shown.
pub struct TaskLogs {
    place: LogPlace,
    style: LogStyle,
    pub tasks: Tasks<TaskLog>,
    /// Those that are shown to their end. Forgotten when the Pod is deleted.
    shown: BTreeSet<Attempt>,
    /// Logs that are being read.
    reading: usize,
    /// Notified when there is something to show.
    arrived: Arc<Notify>,
    /// How many logs could not be read, and why the first of them.
    lost: Option<(usize, String)>,
}

/// The log of a run of a container.
pub struct TaskLog {
    run: LoggedRun,
    /// The container may be started again in its Pod.
    may_restart: bool,
    state: watch::Sender<RunState>,
    /// None: its turn has not come.
    pieces: Option<mpsc::Receiver<LogPiece>>,
}

impl TaskLog {
    /// Begins to read it.
    fn read(&mut self, place: LogPlace, arrived: Arc<Notify>) {
        let (sender, pieces) = mpsc::channel(MOST_PIECES);
        self.pieces = Some(pieces);
        let (run, state) = (self.run.clone(), self.state.subscribe());
        let reader = LogReader { run, state, sender, count: 0, confirms: self.may_restart };
        tokio::spawn(async move {
            reader.run(place, &arrived).await;
            arrived.notify_one();
        });
    }
}

enum LogPiece {
    Text(Bytes),
    /// The rest cannot be read, and why.
    Lost(String),
}

impl TaskLogs {
    pub fn new(place: LogPlace, style: LogStyle, order: OutputOrder, jobs: JobOrder) -> Self {
        Self {
            place,
            style,
            tasks: Tasks::new(order, jobs),
            shown: BTreeSet::new(),
            reading: 0,
            arrived: Arc::default(),
            lost: None,
        }
    }

    pub fn arrived(&self) -> Arc<Notify> {
        self.arrived.clone()
    }

    /// The Pod of a followed Job, as it is now.
    pub fn saw_pod(&mut self, pod: &PodText) {
        let Some(job) = pod.metadata.job().filter(|job| self.tasks.has_job(job)) else { return };
        let uid = PodUid::new(&pod.metadata.uid);
        for run in pod.status.runs() {
            let attempt = Attempt { pod: uid.clone(), container: run.container.into(), number: run.number };
            if self.shown.contains(&attempt) {
                continue;
            }
            if self.tasks.get(&attempt).is_none() {
                self.begin(pod.output_source(job), attempt.clone(), pod.spec.may_restart());
            }
            let has_ended = run.ended.is_some() || pod.status.has_ended();
            self.change(&attempt, RunState { has_ended, is_previous: run.is_previous });
        }
    }

    fn begin(&mut self, source: OutputSource, attempt: Attempt, may_restart: bool) {
        let run = LoggedRun {
            namespace: source.namespace.to_string(),
            pod: source.pod.to_string(),
            attempt: attempt.clone(),
        };
        self.tasks.began(attempt, source, TaskLog { run, may_restart, state: watch::Sender::default(), pieces: None });
        self.arrived.notify_one();
    }

    fn change(&mut self, attempt: &Attempt, state: RunState) {
        let Some(task) = self.tasks.get(attempt) else { return };
        let before = task.log.state.send_replace(state);
        if state.has_ended && !before.has_ended {
            self.tasks.ended(attempt);
            self.arrived.notify_one();
        }
    }

    fn end(&mut self, attempt: &Attempt) {
        if let Some(task) = self.tasks.get(attempt) {
            let state = RunState { has_ended: true, ..*task.log.state.borrow() };
            self.change(attempt, state);
        }
    }

    /// A Pod was deleted: its logs end, and are gone soon.
    pub fn lost_pod(&mut self, uid: &str) {
        let uid = PodUid::new(uid);
        self.shown.retain(|attempt| attempt.pod != uid);
        self.tasks.attempts().iter().filter(|attempt| attempt.pod == uid).for_each(|attempt| self.end(attempt));
    }

    /// Shows a part of what there is. Returns whether there may be more right now.
    pub fn show(&mut self, output: &mut Output, now: Instant) -> bool {
        let Self { place, style, tasks, shown, reading, arrived, lost } = self;
        tasks.show(output, now, |attempt, Task { name, lines, log }, output| {
            if log.pieces.is_none() && *reading < MOST_READ {
                *reading += 1;
                log.read(place.clone(), arrived.clone());
            }
            let received = log.pieces.as_mut()?;
            let mut turn = Turn { pieces: 0, is_over: false };
            while turn.pieces < PIECES_AT_ONCE && !turn.is_over {
                match received.try_recv() {
                    Ok(LogPiece::Text(text)) => {
                        turn.pieces += 1;
                        show_text(*style, name, lines, &text, output);
                    }
                    Ok(LogPiece::Lost(reason)) => lost.get_or_insert((0, reason)).0 += 1,
                    Err(mpsc::error::TryRecvError::Empty) => break,
                    Err(mpsc::error::TryRecvError::Disconnected) => turn.is_over = true,
                }
            }
            if turn.is_over {
                *reading -= 1;
                shown.insert(attempt.clone());
            }
            Some(turn)
        })
    }

    /// No Job runs any more: shows all that is left. Returns what to tell about logs that cannot be read to their end.
    pub async fn finish(&mut self, output: &mut Output) -> Option<String> {
        self.tasks.attempts().iter().for_each(|attempt| self.end(attempt));
        self.tasks.reach_last();
        let mut silent_since = Instant::now();
        while !self.tasks.is_empty() {
            if self.show(output, Instant::now()) {
                silent_since = Instant::now();
                continue;
            }
            let left = SILENT_FOR.saturating_sub(silent_since.elapsed());
            if left.is_zero() {
                let left = self.tasks.attempts().len();
                return Some(format!("the rest of the output of {left} tasks does not come, and is not shown"));
            }
            // A notification that came while nothing waited for it is kept.
            let _ = timeout(left, self.arrived.notified()).await;
        }
        let (count, why) = self.lost.take()?;
        let more = if count > 1 { format!("; nor that of {} more tasks", count - 1) } else { String::new() };
        Some(format!("{why}{more}"))
    }
}

/// The streams of a container cannot be told apart on a cluster: everything is shown as standard output.
fn show_text(style: LogStyle, name: &TaskName, lines: &mut Lines, text: &[u8], output: &mut Output) {
    match style {
        LogStyle::Hidden => {}
        LogStyle::PassThrough => output.pass_through(Stream::Stdout, text, false),
        LogStyle::Raw | LogStyle::Prefix => {
            for line in text.split_inclusive(|byte| *byte == b'\n') {
                let (line, complete) = line.strip_suffix(b"\n").map_or((line, false), |line| (line, true));
                lines.record(Stream::Stdout, complete, line, |piece| output.task_line(name, piece, false));
            }
        }
    }
}

/// Reads the log of one run of a container.
struct LogReader {
    run: LoggedRun,
    state: watch::Receiver<RunState>,
    sender: mpsc::Sender<LogPiece>,
    /// The bytes that were sent.
    count: usize,
    /// The container may have been started again since the status that shows this run: it may be restarted, or the log was
    /// requested before.
    confirms: bool,
}

/// How a request for a log ended.
enum LogEnd {
    /// It was read to its end, as far as the server knows.
    Complete,
    /// There was no answer, or the connection broke.
    Broken(String),
    /// The server answers, but not with the log: its node does not, or the container is said to be starting.
    Refused(String),
    /// There is no log, and there will be none.
    Gone(String),
    /// No one reads it.
    Unread,
}

impl LogReader {
    async fn run(mut self, place: LogPlace, arrived: &Notify) {
        let lost = match place {
            LogPlace::Files(root) => {
                self.read_files(root, arrived).await;
                None
            }
            LogPlace::Server(remote) => self.read_server(&remote, arrived).await,
        };
        if let Some(why) = lost {
            let _ = self.sender.send(LogPiece::Lost(why)).await;
        }
    }

    async fn read_files(&mut self, root: PathBuf, arrived: &Notify) {
        let options = LogReadOptions { follow: true, ..LogReadOptions::default() };
        let Ok(mut reader) = logs::open(&root, &self.run.attempt, options) else { return };
        let state = self.state.clone();
        while let Ok(Some(piece)) = reader.next(|| state.borrow().has_ended).await {
            if !self.send(piece, arrived).await {
                return;
            }
        }
    }

    /// Returns why a part of the log is lost.
    async fn read_server(&mut self, remote: &Remote, arrived: &Notify) -> Option<String> {
        let (mut wait, mut worked_at, mut refusals) = (FIRST_WAIT, Instant::now(), 0);
        loop {
            let (before, has_ended) = (self.count, self.state.borrow().has_ended);
            match self.read_once(remote, arrived).await {
                LogEnd::Unread => return None,
                LogEnd::Complete if has_ended || self.ends_soon().await => return None,
                LogEnd::Gone(_) if self.count > 0 => return None,
                LogEnd::Gone(why) => return Some(why),
                // The server may be about to stop.
                LogEnd::Complete => {}
                LogEnd::Broken(why) if worked_at.elapsed() > LOST_FOR => return Some(why),
                LogEnd::Broken(_) => {}
                LogEnd::Refused(why) if refusals == MOST_REFUSALS => return Some(why),
                LogEnd::Refused(_) => refusals += 1,
            }
            if self.count > before {
                (wait, worked_at, refusals) = (FIRST_WAIT, Instant::now(), 0);
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Whether the status of the Pod says in time that the container has ended.
    async fn ends_soon(&mut self) -> bool {
        let mut state = self.state.clone();
        timeout(STATUS_WITHIN, state.wait_for(|state| state.has_ended)).await.is_ok()
    }

    /// Requests the log of this run. Where it may be that of the next one, a status that is read after it confirms it.
    async fn open(&mut self, remote: &Remote) -> Result<Incoming, LogEnd> {
        let mut previous = self.state.borrow().is_previous;
        // A run that has become the previous one stays that, or is gone.
        for _ in 0..2 {
            let request = PodLogRequest { follow: true, ..self.run.request(previous) };
            let log = request.open(remote).await.map_err(|error| {
                let why = error.to_string();
                match error.code {
                    None => LogEnd::Broken(why),
                    Some(404) => LogEnd::Gone(why),
                    Some(_) => LogEnd::Refused(why),
                }
            });
            if !std::mem::replace(&mut self.confirms, true) {
                return log;
            }
            let log = log?;
            match self.is_previous_now(remote).await? {
                now if now == previous => return Ok(log),
                now => previous = now,
            }
        }
        Err(LogEnd::Broken(format!("the server does not say which run of Pod {} the log is of", self.run.pod)))
    }

    /// Whether the Pod says now that the container has been started again since this run.
    async fn is_previous_now(&self, remote: &Remote) -> Result<bool, LogEnd> {
        let LoggedRun { namespace, pod, attempt } = &self.run;
        let gone = || LogEnd::Gone(format!("the log of Pod {pod} is gone"));
        let text = match remote.call(&Call::new(Verb::Get, Kind::POD, namespace, pod)).await.reply {
            Reply::Done(text) => text,
            reply if reply.is_not_found() => return Err(gone()),
            Reply::Refused(refusal) => return Err(LogEnd::Refused(refusal.message)),
            _ => return Err(LogEnd::Broken(format!("Pod {pod} cannot be read"))),
        };
        let read: PodText = serde_json::from_slice(&text).map_err(|error| LogEnd::Broken(error.to_string()))?;
        let is_it = |run: &ContainerRun<'_>| *run.container == *attempt.container && run.number == attempt.number;
        let same_pod = PodUid::new(&read.metadata.uid) == attempt.pod;
        let run = read.status.runs().find(is_it).filter(|_| same_pod);
        run.map(|run| run.is_previous).ok_or_else(gone)
    }

    async fn read_once(&mut self, remote: &Remote, arrived: &Notify) -> LogEnd {
        let mut log = match self.open(remote).await {
            Ok(log) => log,
            Err(end) => return end,
        };
        let mut skipped = 0;
        loop {
            let mut piece = match try_next_piece(&mut log).await {
                Ok(Some(piece)) => piece,
                Ok(None) => return LogEnd::Complete,
                Err(error) => return LogEnd::Broken(error.to_string()),
            };
            // What was read before the connection broke.
            let known = (self.count - skipped).min(piece.len());
            if skipped < self.count {
                let _ = piece.split_to(known);
                skipped += known;
            }
            if piece.is_empty() {
                continue;
            }
            skipped += piece.len();
            if !self.send(piece, arrived).await {
                return LogEnd::Unread;
            }
        }
    }

    async fn send(&mut self, piece: Bytes, arrived: &Notify) -> bool {
        self.count += piece.len();
        let sent = self.sender.send(LogPiece::Text(piece)).await.is_ok();
        arrived.notify_one();
        sent
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;
    use tally_remote::fake;

    use super::*;

    /// A server with a Pod whose first run has printed `begin`, and so has the second one, which goes on.
    async fn reads(may_restart: bool, states: [bool; 2]) -> String {
        let restarted = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default", "uid": "u", "resourceVersion": "9"},
            "status": {"phase": "Running", "containerStatuses": [{
                "name": "main", "restartCount": 1, "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 143}},
            }]},
        });
        let is_restarted = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let now = is_restarted.clone();
        let (remote, _) = fake::server(move |target| {
            let is_restarted = now.load(std::sync::atomic::Ordering::SeqCst);
            let body = match (target.contains("/log?"), target.contains("previous=true"), is_restarted) {
                (false, ..) => restarted.to_string(),
                (true, false, true) => "begin\nend\n".to_owned(),
                (true, true, true) => "begin\nkilled\n".to_owned(),
                (true, ..) => "begin\n".to_owned(),
            };
            Some((200, body))
        })
        .await;
        let attempt = Attempt { pod: PodUid::new("u"), container: "main".into(), number: 0 };
        let run = LoggedRun { namespace: "default".into(), pod: "p".into(), attempt };
        let (sender, mut pieces) = mpsc::channel(MOST_PIECES);
        // The status that the reader knows is old.
        let state = watch::Sender::new(RunState::default());
        let mut reader = LogReader { run, state: state.subscribe(), sender, count: 0, confirms: may_restart };
        let arrived = Notify::new();
        for state in states {
            is_restarted.store(state, std::sync::atomic::Ordering::SeqCst);
            assert!(matches!(reader.read_once(&remote, &arrived).await, LogEnd::Complete));
        }
        drop(reader);
        let mut text = Vec::new();
        while let Some(LogPiece::Text(piece)) = pieces.recv().await {
            text.extend_from_slice(&piece);
        }
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn a_log_that_is_opened_again_is_that_of_the_same_run() {
        assert_eq!(reads(false, [false, true]).await, "begin\nkilled\n");
    }

    /// The container was started again between the status that showed its first run and the request for its log.
    #[tokio::test]
    async fn the_first_log_of_a_container_that_may_be_restarted_is_that_of_its_run() {
        assert_eq!(reads(true, [true, true]).await, "begin\nkilled\n");
    }
}
