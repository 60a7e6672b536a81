//! Jobs that a server shows: the changes come from its streams, and what tasks print from their logs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tally_core::ids::PodUid;
use tally_core::time::Timestamp;
use tally_node::attempts::AttemptRecord;
use tally_node::port::Attempt;
use tally_remote::Remote;
use tally_runtime::controller::Kind;
use tokio::sync::Notify;
use tokio::sync::watch::Receiver;
use tokio::task::JoinSet;

use super::LOST_FOR;
use super::logs::{LogPlace, LogTail, LoggedRun, TaskLogs};
use crate::place::Place;
use crate::run::follow::{End, Ended, EventSource, Reporter};
use crate::run::outcome::RunError;
use crate::run::progress::model::{Model, PodFailure};
use crate::run::progress::output::Output;
use crate::run::progress::render::LOG_LINES;
use crate::run::progress::view::{ContainerRun, JobText, PodText};
use crate::signals::{Stop, asked};
use crate::watch::{self, FollowedJob, Inbox, Streams};

/// A connection that is back sooner is not mentioned.
const TOLD_AFTER: Duration = Duration::from_secs(1);
/// A server that refuses to show Jobs or Pods is tried again for this time: credentials may be renewed.
const REFUSED_FOR: Duration = Duration::from_secs(30);
/// The stream of Pods is behind that of Jobs by less than this, as a rule.
const PODS_WITHIN: Duration = Duration::from_millis(500);
/// At the end it may be behind for this time.
const CAUGHT_UP_WITHIN: Duration = Duration::from_secs(2);
/// What a stop ends after the last Job has finished.
const UNREAD: &str = "interrupted before all Pods and logs were read; the Job has finished";
/// The ends of logs that are read at the same time.
const MOST_TAILS: usize = 16;

/// The Jobs of a server.
pub struct ServedJobs {
    place: Arc<Place>,
    jobs: Vec<FollowedJob>,
    inbox: Arc<Inbox>,
    _streams: Vec<Streams>,
    /// What tasks print. None: it is not shown.
    logs: Option<TaskLogs>,
    arrived: Arc<Notify>,
    /// Where the ends of logs are read that are shown with failures. None: they are not shown.
    tails: Option<LogPlace>,
    /// A command that follows the Jobs again, for messages.
    again: String,
    seen: Seen,
}

/// What has been seen, and what of it was not shown yet.
#[derive(Default)]
struct Seen {
    /// Failures whose ends of logs are being read.
    reading_tails: JoinSet<(PodText, PodFailure)>,
    waiting_tails: Vec<(PodText, PodFailure, LoggedRun, LogTail)>,
    /// The number of attempts that failed, by Job and index.
    failed: BTreeMap<(String, Option<u32>), u32>,
    /// Pods whose success was reported. Forgotten when the Pod is deleted.
    succeeded: BTreeSet<String>,
    /// Pods that were seen to have ended.
    ended: BTreeSet<PodUid>,
    told_broken: bool,
    /// How far Jobs have come, and when that was seen: the position of the Job, whether it has finished, and the first index
    /// that is not done.
    reached: VecDeque<(Instant, usize, bool, u32)>,
}

pub enum ServedEvent {
    Changed,
    LogArrived,
    Tail(Option<Box<(PodText, PodFailure)>>),
}

impl ServedJobs {
    pub fn new(
        place: &Arc<Place>,
        remote: &Remote,
        jobs: Vec<FollowedJob>,
        logs: Option<TaskLogs>,
        tails: Option<LogPlace>,
        again: String,
    ) -> Self {
        let inbox = Arc::new(Inbox::default());
        Self {
            place: place.clone(),
            _streams: watch::follow_jobs(remote, &jobs, &inbox),
            jobs,
            inbox,
            arrived: logs.as_ref().map_or_else(Arc::default, TaskLogs::arrived),
            logs,
            tails,
            again,
            seen: Seen::default(),
        }
    }

    fn take_changes(&mut self, reporter: &mut Reporter<'_>) {
        // Pods first: a Job is finished after its Pods.
        for (uid, unread) in self.inbox.take(Kind::POD) {
            let pod = unread.read::<PodText>();
            if let Some(pod) = &pod {
                self.saw_pod(reporter, pod);
            }
            if unread.is_deleted {
                self.lost_pod(reporter.model, &uid, pod.unwrap_or_default());
            }
        }
        for (uid, unread) in self.inbox.take(Kind::JOB) {
            let job = unread.read::<JobText>();
            if let Some(job) = &job {
                self.saw_job(reporter, job);
            }
            if unread.is_deleted && !reporter.model.stopping {
                reporter.model.lost_job(&uid, reporter.began.elapsed());
                self.order_tasks(reporter.model, &job.unwrap_or_default());
            }
        }
        self.inbox.take_backoffs().into_iter().for_each(|(job, notice)| reporter.waits(&job, notice));
    }

    fn saw_job(&mut self, reporter: &mut Reporter<'_>, job: &JobText) {
        reporter.model.saw_job(job, reporter.began.elapsed());
        self.order_tasks(reporter.model, job);
    }

    /// Updates how far a Job has come in the order of the tasks.
    fn order_tasks(&mut self, model: &Model, job: &JobText) {
        if self.logs.as_ref().is_some_and(|logs| logs.tasks.has_order())
            && let Some((at, is_finished, first_open)) = model.first_open(job)
        {
            self.seen.reached.push_back((Instant::now(), at, is_finished, first_open));
        }
    }

    /// Lets the next tasks have their turn, when the Pods of the finished ones have been seen.
    fn give_turns(&mut self) {
        let Some(logs) = &mut self.logs else { return };
        while let Some((seen_at, at, finished, first_open)) = self.seen.reached.front().copied()
            && seen_at.elapsed() >= PODS_WITHIN
        {
            self.seen.reached.pop_front();
            logs.tasks.finished_before(at, finished, first_open);
            logs.arrived().notify_one();
        }
    }

    fn lost_pod(&mut self, model: &mut Model, uid: &str, mut pod: PodText) {
        pod.metadata.uid = uid.to_owned();
        model.lost_pod(&pod);
        self.seen.succeeded.remove(uid);
        if let Some(logs) = &mut self.logs {
            logs.lost_pod(uid);
        }
    }

    fn saw_pod(&mut self, reporter: &mut Reporter<'_>, pod: &PodText) {
        if pod.metadata.job().and_then(|uid| reporter.model.job(uid)).is_none() {
            return;
        }
        if pod.status.has_ended() {
            self.seen.ended.insert(PodUid::new(&pod.metadata.uid));
        }
        if reporter.model.was_over(&pod.metadata.uid) {
            return;
        }
        if let Some(logs) = &mut self.logs {
            logs.saw_pod(pod);
        }
        while let Some(crash) = reporter.model.saw_crash(pod).map(|crash| crash.clone()) {
            self.failed(reporter, pod, crash);
        }
        if let Some(failure) = reporter.model.saw_pod(pod).map(|failure| failure.clone()) {
            self.failed(reporter, pod, failure);
        }
        if pod.status.phase == "Succeeded" {
            self.succeeded(reporter, pod);
        }
    }

    /// Reports a failure, after the end of its log was read if that is shown.
    fn failed(&mut self, reporter: &mut Reporter<'_>, pod: &PodText, mut failure: PodFailure) {
        failure.record = self.record(pod, &failure.container, failure.crash).map(Box::new);
        let run = LoggedRun {
            namespace: failure.namespace.clone(),
            pod: failure.pod.clone(),
            attempt: Attempt {
                pod: PodUid::new(&failure.uid),
                container: failure.container.as_str().into(),
                number: failure.crash.unwrap_or(0),
            },
        };
        let is_it = |run: &ContainerRun<'_>| run.container == failure.container && Some(run.number) == failure.crash;
        let is_previous = pod.status.runs().any(|run| is_it(&run) && run.is_previous);
        let end = LogTail { lines: LOG_LINES, number: failure.crash, is_previous };
        if self.tails.is_none() {
            return reporter.failed(pod, &failure);
        }
        self.seen.waiting_tails.push((pod.identity(), failure, run, end));
        self.read_tails();
    }

    fn read_tails(&mut self) {
        let Some(place) = &self.tails else { return };
        while self.seen.reading_tails.len() < MOST_TAILS
            && let Some((pod, mut failure, run, end)) = self.seen.waiting_tails.pop()
        {
            let place = place.clone();
            self.seen.reading_tails.spawn(async move {
                failure.log = Some(place.tail(run, end).await);
                (pod, failure)
            });
        }
    }

    fn read_tail(&mut self, reporter: &mut Reporter<'_>, read: Option<(PodText, PodFailure)>) {
        if let Some((pod, failure)) = read {
            reporter.model.read_log(&failure);
            reporter.failed(&pod, &failure);
        }
        self.read_tails();
    }

    fn succeeded(&mut self, reporter: &mut Reporter<'_>, pod: &PodText) {
        if !reporter.output.is_json() || !self.seen.succeeded.insert(pod.metadata.uid.clone()) {
            return;
        }
        let Some(container) = pod.status.runs().last().map(|run| run.container.to_owned()) else { return };
        let Some(record) = self.record(pod, &container, None) else { return };
        if let Some(job) = pod.metadata.job().and_then(|uid| reporter.model.job(uid)) {
            reporter.output.succeeded(job, &record);
        }
    }

    /// What the status of a Pod says about the last run of a container, or about the run with this number.
    fn record(&mut self, pod: &PodText, container: &str, number: Option<u32>) -> Option<AttemptRecord> {
        let is_it = |run: &ContainerRun<'_>| run.container == container && number.is_none_or(|it| it == run.number);
        let run = pod.status.runs().filter(is_it).last()?;
        let how = run.ended?;
        let job = pod.metadata.job()?.to_owned();
        let index = pod.metadata.index();
        let failed = self.seen.failed.entry((job, index)).or_default();
        let attempt = failed.saturating_add(1);
        if how.exit_code != 0 {
            *failed = attempt;
        }
        let millis = |at: &Option<String>| Some(Timestamp::parse(at.as_deref()?).ok()?.millis());
        Some(AttemptRecord {
            pod: pod.metadata.name.as_str().into(),
            pod_uid: pod.metadata.uid.as_str().into(),
            container: container.into(),
            restarts: run.number,
            index,
            attempt,
            started_at: millis(&how.started_at)?,
            finished_at: millis(&how.finished_at)?,
            exit_code: Some(how.exit_code),
            ..AttemptRecord::default()
        })
    }

    /// Notes that the server cannot be reached, and gives up when that lasts too long.
    async fn look_at_streams(&mut self, reporter: &mut Reporter<'_>) -> Result<(), RunError> {
        let Some(broken) = self.inbox.broken() else {
            self.note_answer(reporter.output);
            return Ok(());
        };
        if !self.place.is_cluster() {
            return self.look_at_directory(reporter).await;
        }
        let title = self.place.title();
        let again = &self.again;
        let is_new = reporter.model.jobs().iter().all(|job| job.is_new());
        if broken.is_refused && (is_new || broken.since.elapsed() > REFUSED_FOR) {
            return Err(RunError::Environment(format!("cannot follow the Job in {title}: {}", broken.reason)));
        }
        if broken.since.elapsed() > LOST_FOR {
            return Err(RunError::Environment(format!(
                "{title} could not be reached for {} minutes: {}. The Job may go on; follow it again with `{again}`",
                LOST_FOR.as_secs() / 60,
                broken.reason
            )));
        }
        if broken.since.elapsed() > TOLD_AFTER && !std::mem::replace(&mut self.seen.told_broken, true) {
            reporter.output.note(&format!("{title} cannot be reached, and is tried again: {}", broken.reason));
        }
        Ok(())
    }

    fn note_answer(&mut self, output: &mut Output) {
        if std::mem::take(&mut self.seen.told_broken) {
            output.note(&format!("{} answers again", self.place.title()));
        }
    }

    /// The process that has the data directory does not answer: it may have ended with the Job.
    async fn look_at_directory(&mut self, reporter: &mut Reporter<'_>) -> Result<(), RunError> {
        for job in self.place.jobs("").await? {
            if let Ok(job) = serde_json::from_value(job) {
                self.saw_job(reporter, &job);
            }
        }
        if self.place.is_idle() && !reporter.model.is_finished() {
            let title = self.place.title();
            return Err(RunError::Environment(format!(
                "the tally that ran the Job in {title} has ended before the Job; `tally run --data-dir` resumes it"
            )));
        }
        Ok(())
    }

    /// Whether as many Pods were seen to have ended as the Jobs have counted.
    fn has_all_pods(&self, model: &Model) -> bool {
        let counted: u64 = model.jobs().iter().map(|job| u64::from(job.succeeded) + u64::from(job.failed)).sum();
        self.seen.ended.len() as u64 >= counted
    }

    /// The stream of Pods may be behind that of Jobs. If it stays behind, the Pods are listed: some may be gone.
    async fn see_all_pods(&mut self, reporter: &mut Reporter<'_>) {
        let until = tokio::time::Instant::now() + CAUGHT_UP_WITHIN;
        while !self.has_all_pods(reporter.model)
            && self.inbox.broken().is_none()
            && tokio::time::timeout_at(until, self.inbox.changed.notified()).await.is_ok()
        {
            self.take_changes(reporter);
        }
        if self.has_all_pods(reporter.model) {
            return;
        }
        for job in self.jobs.clone() {
            let Ok(pods) = self.place.pods::<PodText>(&job.namespace, &job.uid).await else { break };
            let ended = pods.into_iter().filter(|pod| pod.status.has_ended());
            ended.for_each(|pod| self.saw_pod(reporter, &pod));
        }
    }

    /// All Jobs have finished: shows what is left.
    async fn show_rest(&mut self, reporter: &mut Reporter<'_>) {
        // One of the streams has shown the end.
        self.note_answer(reporter.output);
        self.see_all_pods(reporter).await;
        while let Some(read) = self.seen.reading_tails.join_next().await {
            self.read_tail(reporter, read.ok());
        }
        if let Some(logs) = &mut self.logs
            && let Some(lost) = logs.finish(reporter.output).await
        {
            reporter.output.note(&lost);
        }
    }
}

impl EventSource for ServedJobs {
    type Event = ServedEvent;

    async fn next(&mut self) -> ServedEvent {
        tokio::select! {
            () = self.inbox.changed.notified() => ServedEvent::Changed,
            () = self.arrived.notified() => ServedEvent::LogArrived,
            Some(read) = self.seen.reading_tails.join_next() => ServedEvent::Tail(read.ok().map(Box::new)),
        }
    }

    fn handle(&mut self, reporter: &mut Reporter<'_>, event: ServedEvent) -> Result<bool, RunError> {
        match event {
            ServedEvent::Changed => self.take_changes(reporter),
            ServedEvent::LogArrived => return Ok(true),
            ServedEvent::Tail(read) => self.read_tail(reporter, read.map(|read| *read)),
        }
        Ok(false)
    }

    fn show_tasks(&mut self, output: &mut Output) -> bool {
        self.logs.as_mut().is_some_and(|logs| logs.show(output, Instant::now()))
    }

    async fn check(&mut self, reporter: &mut Reporter<'_>) -> Result<bool, RunError> {
        self.give_turns();
        let holds_line = self.logs.as_ref().is_some_and(|logs| logs.tasks.holds_line());
        self.look_at_streams(reporter).await?;
        Ok(holds_line)
    }

    async fn finish(&mut self, reporter: &mut Reporter<'_>, stop: &Receiver<Stop>) -> Result<Ended, RunError> {
        let mut stop = stop.clone();
        Ok(tokio::select! {
            biased;
            () = asked(&mut stop) => (End::Interrupted, vec![UNREAD.to_owned()]),
            () = self.show_rest(reporter) => (End::Finished, Vec::new()),
        })
    }
}
