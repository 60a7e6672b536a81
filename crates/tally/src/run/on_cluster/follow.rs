//! The main loop for Jobs that a server shows: what its streams show updates the model, and the model is shown to the user,
//! with what tasks print.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tally_core::ids::PodUid;
use tally_core::time::Timestamp;
use tally_node::attempts::AttemptRecord;
use tally_node::port::Attempt;
use tally_remote::Remote;
use tally_runtime::controller::{Call, Kind, Refusal, Reply, Verb};
use tally_runtime::driver::api::Api;
use tally_runtime::driver::wall_clock;
use tokio::sync::Notify;
use tokio::sync::watch::Receiver;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;

use super::LOST_FOR;
use super::logs::{LogPlace, LogTail, LoggedRun, TaskLogs};
use crate::place::{Place, PlaceError};
use crate::run::explaining::Explaining;
use crate::run::follow::End;
use crate::run::outcome::RunError;
use crate::run::progress::model::{Model, PodFailure};
use crate::run::progress::output::Output;
use crate::run::progress::render::LOG_LINES;
use crate::run::progress::view::{ContainerRun, JobText, PodText};
use crate::run::tui::RunView;
use crate::signals::{Stop, asked};
use crate::watch::{self, FollowedJob, Inbox};

/// Interval for drawing and printing plain lines.
const BEAT: Duration = Duration::from_millis(100);
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

/// Follows Jobs to their end.
pub struct RemoteFollow<'a> {
    pub place: &'a Place,
    pub jobs: Vec<FollowedJob>,
    pub model: &'a mut Model,
    pub output: &'a mut Output,
    /// What tasks print. None: it is not shown.
    pub logs: Option<TaskLogs>,
    /// Where the ends of logs are read that are shown with failures. None: they are not shown.
    pub tails: Option<LogPlace>,
    pub began: Instant,
    /// The parts of a list begin and stop as this process says.
    pub runs_parts: bool,
    /// A command that follows the Jobs again, for messages.
    pub again: String,
    pub explaining: Explaining,
    /// The view over the run. None: there is none.
    pub view: Option<RunView>,
    pub state: FollowState,
}

/// What the loop remembers.
#[derive(Default)]
pub struct FollowState {
    /// Failures whose ends of logs are being read.
    tails: JoinSet<(PodText, PodFailure)>,
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

impl RemoteFollow<'_> {
    /// `ending` does what a stop needs when the user requests one, and returns what to tell about it.
    pub async fn run(
        &mut self,
        remote: &Remote,
        stop: Receiver<Stop>,
        mut ending: JoinHandle<Vec<String>>,
    ) -> Result<(End, Vec<String>), RunError> {
        let inbox = Arc::new(Inbox::default());
        let _streams = watch::follow_jobs(remote, &self.jobs, &inbox);
        let mut beat = tokio::time::interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let arrived = self.logs.as_ref().map_or_else(|| Arc::new(Notify::new()), TaskLogs::arrived);
        let mut more = false;
        let mut stopping = stop.clone();
        loop {
            tokio::select! {
                told = &mut ending => {
                    self.model.stopping = true;
                    return Ok((End::Interrupted, told.unwrap_or_default()));
                }
                () = asked(&mut stopping), if !self.model.stopping => {
                    self.model.stopping = true;
                    if let Some(view) = &mut self.view {
                        view.close(self.output).await;
                    }
                }
                () = inbox.changed.notified() => {
                    // What a stop deletes has not been deleted by others.
                    self.model.stopping |= *stop.borrow() != Stop::No;
                    self.take(&inbox);
                    self.wait(&inbox);
                }
                () = arrived.notified() => more = true,
                () = std::future::ready(()), if more => more = self.show_tasks(),
                Some(read) = self.state.tails.join_next() => self.read_tail(read.ok()),
                _ = beat.tick() => {
                    self.beat();
                    if let Some(view) = &mut self.view {
                        view.beat(&stop, self.output).await;
                    }
                    self.give_turns();
                    more |= self.logs.as_ref().is_some_and(|logs| logs.tasks.holds_line());
                    self.look_at_streams(&inbox).await?;
                }
            }
            // A stop deletes the Jobs.
            if *stop.borrow() != Stop::No {
                continue;
            }
            // A server that does not answer must not keep a stop waiting.
            tokio::select! {
                biased;
                () = asked(&mut stopping) => continue,
                changed = self.change_parts(remote) => changed?,
            }
            if self.model.is_finished() {
                // Nothing is left that a stop could delete or leave running.
                ending.abort();
                return Ok(tokio::select! {
                    biased;
                    () = asked(&mut stopping) => (End::Interrupted, vec![UNREAD.to_owned()]),
                    () = self.finish(&inbox) => (End::Finished, Vec::new()),
                });
            }
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn beat(&mut self) {
        let now = self.now();
        self.model.tick(now);
        self.explaining.beat(self.model, now);
        self.output.beat(self.model, now);
    }

    fn take(&mut self, inbox: &Inbox) {
        // Pods first: a Job is finished after its Pods.
        for (uid, unread) in inbox.take(Kind::POD) {
            let pod = unread.read();
            if let Some(pod) = &pod {
                self.saw_pod(pod);
            }
            if unread.is_deleted {
                self.lost_pod(&uid, pod.unwrap_or_default());
            }
        }
        for (uid, unread) in inbox.take(Kind::JOB) {
            let (now, job) = (self.now(), unread.read());
            if let Some(job) = &job {
                self.saw_job(job, now);
            }
            if unread.is_deleted && !self.model.stopping {
                self.model.lost_job(&uid, now);
                self.order_tasks(&job.unwrap_or_default());
            }
        }
    }

    /// Shows what Jobs wait for before they retry.
    fn wait(&mut self, inbox: &Inbox) {
        for (job, notice) in inbox.take_backoffs() {
            let left = (notice.retry_at - wall_clock()).millis();
            if let Some(left) = u64::try_from(left).ok().filter(|left| *left > 0) {
                self.model.waits(&job, notice, self.began.elapsed() + Duration::from_millis(left));
            }
        }
    }

    fn saw_job(&mut self, job: &JobText, now: Duration) {
        self.model.saw_job(job, now);
        self.order_tasks(job);
    }

    /// Tells the order of the tasks how far a Job has come.
    fn order_tasks(&mut self, job: &JobText) {
        let Some(logs) = &self.logs else { return };
        if logs.tasks.has_order()
            && let Some((at, first_open)) = self.model.first_open(job)
        {
            let finished = self.model.jobs()[at].state.is_finished();
            self.state.reached.push_back((Instant::now(), at, finished, first_open));
        }
    }

    /// Lets the next tasks have their turn, when the Pods of the finished ones have been seen.
    fn give_turns(&mut self) {
        let Some(logs) = &mut self.logs else { return };
        while let Some((seen_at, at, finished, first_open)) = self.state.reached.front().copied()
            && seen_at.elapsed() >= PODS_WITHIN
        {
            self.state.reached.pop_front();
            logs.tasks.finished_before(at, finished, first_open);
            logs.arrived().notify_one();
        }
    }

    fn lost_pod(&mut self, uid: &str, mut pod: PodText) {
        pod.metadata.uid = uid.to_owned();
        self.model.lost_pod(&pod);
        self.state.succeeded.remove(uid);
        if let Some(logs) = &mut self.logs {
            logs.lost_pod(uid);
        }
    }

    fn saw_pod(&mut self, pod: &PodText) {
        if pod.metadata.job().and_then(|uid| self.model.job(uid)).is_none() {
            return;
        }
        if pod.status.has_ended() {
            self.state.ended.insert(PodUid::new(&pod.metadata.uid));
        }
        if self.model.was_over(&pod.metadata.uid) {
            return;
        }
        if let Some(logs) = &mut self.logs {
            logs.saw_pod(pod);
        }
        while let Some(crash) = self.model.saw_crash(pod).map(|crash| crash.clone()) {
            self.failed(pod, crash);
        }
        if let Some(failure) = self.model.saw_pod(pod).map(|failure| failure.clone()) {
            self.failed(pod, failure);
        }
        if pod.status.phase == "Succeeded" {
            self.succeeded(pod);
        }
    }

    /// Reports a failure, after the end of its log was read if that is shown.
    fn failed(&mut self, pod: &PodText, mut failure: PodFailure) {
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
            return self.tell_failure(pod, &failure);
        }
        self.state.waiting_tails.push((pod.identity(), failure, run, end));
        self.read_tails();
    }

    fn read_tails(&mut self) {
        let Some(place) = &self.tails else { return };
        while self.state.tails.len() < MOST_TAILS
            && let Some((pod, mut failure, run, end)) = self.state.waiting_tails.pop()
        {
            let place = place.clone();
            self.state.tails.spawn(async move {
                failure.log = Some(place.tail(run, end).await);
                (pod, failure)
            });
        }
    }

    fn read_tail(&mut self, read: Option<(PodText, PodFailure)>) {
        if let Some((pod, failure)) = read {
            self.model.read_log(&failure);
            self.tell_failure(&pod, &failure);
        }
        self.read_tails();
    }

    fn tell_failure(&mut self, pod: &PodText, failure: &PodFailure) {
        if let Some(job) = pod.metadata.job().and_then(|uid| self.model.job(uid)) {
            self.output.failed(job, failure);
        }
    }

    fn succeeded(&mut self, pod: &PodText) {
        if !self.output.is_json() || !self.state.succeeded.insert(pod.metadata.uid.clone()) {
            return;
        }
        let Some(container) = pod.status.runs().last().map(|run| run.container.to_owned()) else { return };
        let Some(record) = self.record(pod, &container, None) else { return };
        if let Some(job) = pod.metadata.job().and_then(|uid| self.model.job(uid)) {
            self.output.succeeded(job, &record);
        }
    }

    /// What the status of a Pod says about the last run of a container, or about the run with this number.
    fn record(&mut self, pod: &PodText, container: &str, number: Option<u32>) -> Option<AttemptRecord> {
        let is_it = |run: &ContainerRun<'_>| run.container == container && number.is_none_or(|it| it == run.number);
        let run = pod.status.runs().filter(is_it).last()?;
        let how = run.ended?;
        let job = pod.metadata.job()?.to_owned();
        let index = pod.metadata.index();
        let failed = self.state.failed.entry((job, index)).or_default();
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

    /// Returns whether there may be more to show right now.
    fn show_tasks(&mut self) -> bool {
        self.logs.as_mut().is_some_and(|logs| logs.show(self.output, Instant::now()))
    }

    /// Tells that the server cannot be reached, and gives up when that lasts too long.
    async fn look_at_streams(&mut self, inbox: &Inbox) -> Result<(), RunError> {
        let Some(broken) = inbox.broken() else {
            self.tell_answers();
            return Ok(());
        };
        if !self.place.is_cluster() {
            return self.look_at_directory().await;
        }
        let title = self.place.title();
        let again = &self.again;
        let is_new = self.model.jobs().iter().all(|job| job.is_new());
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
        if broken.since.elapsed() > TOLD_AFTER && !std::mem::replace(&mut self.state.told_broken, true) {
            self.output.note(&format!("{title} cannot be reached, and is tried again: {}", broken.reason));
        }
        Ok(())
    }

    fn tell_answers(&mut self) {
        if std::mem::take(&mut self.state.told_broken) {
            self.output.note(&format!("{} answers again", self.place.title()));
        }
    }

    /// The process that has the data directory does not answer: it may have ended with the Job.
    async fn look_at_directory(&mut self) -> Result<(), RunError> {
        self.read_jobs().await?;
        if self.place.is_idle() && !self.model.is_finished() {
            let title = self.place.title();
            return Err(RunError::Environment(format!(
                "the tally that ran the Job in {title} has ended before the Job; `tally run --data-dir` resumes it"
            )));
        }
        Ok(())
    }

    /// The Jobs as they are now, wherever they are read.
    async fn read_jobs(&mut self) -> Result<(), RunError> {
        let listed = self.place.jobs("").await.map_err(unreadable)?;
        let now = self.now();
        for job in listed.into_iter().filter_map(|job| serde_json::from_value::<JobText>(job).ok()) {
            self.saw_job(&job, now);
        }
        Ok(())
    }

    /// Lets the parts of a list begin when those before them leave room, and stops them when one has failed.
    async fn change_parts(&mut self, remote: &Remote) -> Result<(), RunError> {
        while self.runs_parts
            && let Some((namespace, change)) = self.model.next_change()
        {
            let call = Call::new(Verb::MergePatch, Kind::JOB, &namespace, &change.job).body(&change.patch);
            match remote.call(&call).await.reply {
                // Another user may have deleted the Job; the stream shows that.
                Reply::Refused(Refusal { code: 404 | 409, .. }) => {}
                Reply::Refused(refusal) => {
                    let why = format!("cannot change Job {:?}: {}", change.job, refusal.message);
                    return Err(RunError::Environment(why));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether as many Pods were seen to have ended as the Jobs have counted.
    fn has_all_pods(&self) -> bool {
        let counted: u64 = self.model.jobs().iter().map(|job| u64::from(job.succeeded) + u64::from(job.failed)).sum();
        self.state.ended.len() as u64 >= counted
    }

    /// The stream of Pods may be behind that of Jobs. If it stays behind, the Pods are listed: some may be gone.
    async fn see_all_pods(&mut self, inbox: &Inbox) {
        let until = tokio::time::Instant::now() + CAUGHT_UP_WITHIN;
        while !self.has_all_pods()
            && inbox.broken().is_none()
            && tokio::time::timeout_at(until, inbox.changed.notified()).await.is_ok()
        {
            self.take(inbox);
        }
        if self.has_all_pods() {
            return;
        }
        for job in self.jobs.clone() {
            let Ok(pods) = self.place.pods(&job.namespace, &job.uid).await else { break };
            let read = |pod: Value| serde_json::from_value::<PodText>(pod).ok();
            pods.into_iter().filter_map(read).filter(|pod| pod.status.has_ended()).for_each(|pod| self.saw_pod(&pod));
        }
    }

    /// All Jobs have finished: shows what is left.
    async fn finish(&mut self, inbox: &Inbox) {
        // One of the streams has shown the end.
        self.tell_answers();
        self.see_all_pods(inbox).await;
        while let Some(read) = self.state.tails.join_next().await {
            self.read_tail(read.ok());
        }
        if let Some(logs) = &mut self.logs
            && let Some(lost) = logs.finish(self.output).await
        {
            self.output.note(&lost);
        }
    }
}

pub fn unreadable(error: PlaceError) -> RunError {
    match error {
        PlaceError::Usage(why) => RunError::Input(why),
        PlaceError::Unreadable(why) => RunError::Environment(why),
    }
}
