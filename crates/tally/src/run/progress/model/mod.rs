//! The state that is shown, derived from watch events: pure, without a clock, and no larger than what is shown.
//!
//! Counts come from the Job's status, which counts every Pod once. Pods are used only to learn how they failed or why
//! they cannot start. Times are relative to the start of the run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tally_core::backoff::BackoffNotice;
use tally_core::indexes::{IndexSet, task_index};
use tally_core::pod::PodView;
use tally_node::attempts::AttemptRecord;

use super::view::{JobText, PodText};
use crate::run::parts::{ListPart, ListParts, PartChange};
use crate::run::submit::SubmittedJob;

/// Number of failures remembered per Job: more than the display shows.
const FAILURES: usize = 8;

/// Number of waits for retries remembered per Job: one is shown.
const WAITS: usize = 64;

/// Window over which the rate is measured: long enough to be steady, short enough to follow a change.
const WINDOW: Duration = Duration::from_secs(20);
/// Number of samples kept in the window.
const SAMPLES: usize = 40;

/// Short moments in which nothing runs are normal: between Pods, and before the first one.
const IDLE_FOR: Duration = Duration::from_secs(1);

/// It is asked why a Job does not move when nothing has changed for this long.
const STANDS_AFTER: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub struct Model {
    /// In the order in which they were given.
    jobs: Vec<Job>,
    by_uid: BTreeMap<String, usize>,
    /// The lists that consist of several Jobs, by their position in `jobs`.
    lists: BTreeMap<usize, FollowedList>,
    /// Pods whose failure has been reported. A deleted Pod is forgotten, so there are never more than existing Pods.
    failed_pods: BTreeSet<String>,
    /// Those that had ended before this run began.
    over: BTreeSet<String>,
    /// The number of crashed runs that have been reported, by Pod UID and container. Forgotten when the Pod is deleted.
    crashes: BTreeMap<String, BTreeMap<String, u32>>,
    /// Pods that fit on no node, by UID. Forgotten when the Pod is deleted.
    unscheduled: BTreeMap<String, Unscheduled>,
    /// Since when all active Pods are such Pods.
    idle_since: Option<Duration>,
    /// The Pods run on a cluster, not on this machine.
    pub elsewhere: bool,
    /// The user requested a stop.
    pub stopping: bool,
    /// The user requested an immediate stop: everything is killed.
    pub killed: bool,
    /// The user requested a stop that leaves the Jobs running.
    pub detached: bool,
}

#[derive(Debug, Default)]
struct FollowedList {
    parts: ListParts,
    parallelism: u32,
}

#[derive(Debug, Clone)]
pub struct Job {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// `None`: the Job completes when one of its Pods has succeeded and the others have ended.
    pub completions: Option<u32>,
    pub active: u32,
    /// Active Pods that have no node: they wait for room.
    pub waiting: u32,
    pub terminating: u32,
    pub succeeded: u32,
    pub failed: u32,
    /// Indexes that have failed for good, as the API writes them: `1,3-5`.
    pub failed_indexes: String,
    /// The same as it was observed, in the numbers of this Job.
    observed_failed: String,
    failed_index_count: u32,
    /// Of a Job that has Failed: the indexes that were not run to the end.
    pub not_run: NotRun,
    /// The lines of a list that have failed, by index: the first ones.
    pub failed_lines: Vec<(u32, String)>,
    pub state: State,
    /// When the Job was first observed as finished.
    pub finished_after: Option<Duration>,
    /// It was finished before this run began.
    pub was_finished: bool,
    /// It had Failed, and everything of it has succeeded since: the last Job that ran a part of it.
    pub succeeded_since: Option<String>,
    /// The newest last.
    pub failures: VecDeque<PodFailure>,
    /// A Pod that cannot start, and why.
    pub stuck: Option<Stuck>,
    /// Why the Job does not move, if nothing above says that.
    standstill: Option<Standstill>,
    /// When its counts or its state last changed.
    moved_at: Duration,
    /// The indexes of another Job that it runs again.
    retried: Option<String>,
    /// What waits before it is retried: the indexes, or None for the Job.
    waits: BTreeMap<Option<u32>, RetryWait>,
    samples: VecDeque<(Duration, u32)>,
}

/// The indexes that have neither succeeded nor failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NotRun {
    /// As the API writes them: `1,3-5`.
    pub indexes: String,
    pub count: u32,
    /// Failures are counted for the whole Job: some of these may have failed.
    pub or_failed: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum State {
    #[default]
    Waiting,
    Running,
    Suspended,
    /// It begins when these Jobs have ended.
    WaitingFor {
        jobs: Vec<String>,
    },
    /// The verdict is decided; the last Pods still exist.
    Ending {
        failed: bool,
        reason: String,
    },
    Complete {
        reason: String,
        message: String,
    },
    Failed {
        reason: String,
        message: String,
    },
    /// The Job was deleted before it finished.
    Deleted,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodFailure {
    pub pod: String,
    pub uid: String,
    pub namespace: String,
    pub index: Option<u32>,
    pub container: String,
    pub exit_code: Option<i32>,
    pub reason: String,
    pub message: String,
    /// The run of the container that crashed, if the Pod restarts the container.
    pub crash: Option<u32>,
    /// The last lines of the log. `None`: not read yet.
    pub log: Option<Vec<String>>,
    /// When the attempt started and ended, and what it used, if that is known.
    pub record: Option<Box<AttemptRecord>>,
}

/// A wait before a retry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryWait {
    /// Its index is that of the whole list, if the Job is a part of one.
    pub notice: BackoffNotice,
    pub until: Duration,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stuck {
    pub pod: String,
    pub reason: String,
    pub message: String,
    /// It is a Pod of a cluster, not of this machine.
    pub elsewhere: bool,
}

/// Why a Job does not move, as `tally explain` says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standstill {
    pub reason: &'static str,
    pub message: String,
    /// What would change that.
    pub change: String,
}

#[derive(Debug)]
struct Unscheduled {
    job: usize,
    pod: String,
    message: String,
}

impl Unscheduled {
    /// Whether the Pod may become schedulable when other Pods end.
    fn may_pass(&self) -> bool {
        ["Insufficient ", "Too many pods", "no nodes", "0/0 nodes"].iter().any(|sign| self.message.contains(sign))
    }
}

impl PodFailure {
    /// A failure of this Pod, without details.
    fn of(text: &PodText) -> Self {
        Self {
            pod: text.metadata.name.clone(),
            uid: text.metadata.uid.clone(),
            namespace: text.metadata.namespace.clone(),
            index: text.metadata.index(),
            ..Self::default()
        }
    }
}

impl State {
    pub fn is_finished(&self) -> bool {
        matches!(self, Self::Complete { .. } | Self::Failed { .. } | Self::Deleted)
    }

    fn of(text: &JobText) -> Self {
        let conditions = text.status.conditions.as_deref().unwrap_or_default();
        let holds =
            |kind: &str| conditions.iter().find(|condition| condition.r#type == kind && condition.status == "True");
        if let Some(complete) = holds("Complete") {
            return Self::Complete { reason: complete.reason.clone(), message: complete.message.clone() };
        }
        if let Some(failed) = holds("Failed") {
            return Self::Failed { reason: failed.reason.clone(), message: failed.message.clone() };
        }
        if let Some(target) = holds("FailureTarget") {
            return Self::Ending { failed: true, reason: target.reason.clone() };
        }
        if let Some(met) = holds("SuccessCriteriaMet") {
            return Self::Ending { failed: false, reason: met.reason.clone() };
        }
        let status = &text.status;
        if text.spec.suspend == Some(true) {
            text.metadata.awaits().map_or(Self::Suspended, |jobs| Self::WaitingFor { jobs })
        } else if status.active + status.succeeded + status.failed > 0 {
            Self::Running
        } else {
            Self::Waiting
        }
    }
}

impl Job {
    /// Runs that are done: they have succeeded, or will not be retried.
    pub fn done(&self) -> u32 {
        self.succeeded.saturating_add(self.failed_index_count)
    }

    pub fn failed_index_count(&self) -> u32 {
        self.failed_index_count
    }

    /// The wait for a retry that ends first, and how many there are.
    pub fn retry_wait(&self) -> Option<(&RetryWait, usize)> {
        let first = self.waits.values().min_by_key(|wait| wait.until)?;
        Some((first, self.waits.len()))
    }

    /// Its namespace, name and UID.
    pub fn id(&self) -> (String, String, String) {
        (self.namespace.clone(), self.name.clone(), self.uid.clone())
    }

    /// Why it does not move, if nothing else says that.
    pub fn standstill(&self) -> Option<&Standstill> {
        self.standstill.as_ref().filter(|_| !self.says_why() && !self.state.is_finished())
    }

    /// What it waits for is shown already.
    fn says_why(&self) -> bool {
        self.stuck.is_some() || !self.waits.is_empty() || matches!(self.state, State::WaitingFor { .. })
    }

    /// Nothing of it has been observed yet.
    pub fn is_new(&self) -> bool {
        self.samples.is_empty()
    }

    /// Active Pods that have a node.
    pub fn running(&self) -> u32 {
        self.active.saturating_sub(self.waiting)
    }

    /// Finished runs per second.
    pub fn rate(&self) -> Option<f64> {
        let ((began, first), (ended, last)) = (self.samples.front()?, self.samples.back()?);
        let seconds = ended.saturating_sub(*began).as_secs_f64();
        (seconds > 0.0 && last > first).then(|| f64::from(last - first) / seconds)
    }

    pub fn time_left(&self) -> Option<Duration> {
        if self.state != State::Running {
            return None;
        }
        let left = self.completions?.saturating_sub(self.done());
        Duration::try_from_secs_f64(f64::from(left) / self.rate()?).ok()
    }

    /// Between 0 and 1.
    pub fn share_done(&self) -> Option<f64> {
        match self.completions? {
            0 => Some(1.0),
            completions => Some((f64::from(self.done()) / f64::from(completions)).min(1.0)),
        }
    }

    fn failed_how(&mut self, failure: PodFailure) -> Option<&mut PodFailure> {
        if self.failures.len() == FAILURES {
            self.failures.pop_front();
        }
        self.failures.push_back(failure);
        self.failures.back_mut()
    }

    fn sample(&mut self, now: Duration) {
        let done = self.done();
        // The newest sample is replaced until it is far enough from the one before.
        let pace = WINDOW / SAMPLES as u32;
        let crowded = self.samples.len() > 1
            && self.samples.iter().rev().nth(1).is_some_and(|(before, _)| now.saturating_sub(*before) < pace);
        if crowded {
            self.samples.pop_back();
        }
        self.samples.push_back((now, done));
        while self.samples.len() > SAMPLES
            || self.samples.len() > 2
                && self.samples.front().is_some_and(|(first, _)| now.saturating_sub(*first) > WINDOW)
        {
            self.samples.pop_front();
        }
    }
}

impl Model {
    /// The lines of a list that have failed, by index.
    pub fn failed_lines(&mut self, uid: &str, lines: Vec<(u32, String)>) {
        if let Some(job) = self.by_uid.get(uid).and_then(|index| self.jobs.get_mut(*index)) {
            job.failed_lines = lines;
        }
    }

    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// What a stop does to unfinished Jobs.
    pub fn stop_word(&self) -> &'static str {
        match (self.killed, self.detached) {
            (true, _) => "killed",
            (_, true) => "left running",
            _ => "interrupted",
        }
    }

    pub fn is_finished(&self) -> bool {
        self.jobs.iter().all(|job| job.state.is_finished())
    }

    /// Starts to follow a Job.
    pub fn follow_submitted(&mut self, job: &SubmittedJob) {
        match &job.part {
            Some(part) => self.follow_part(&job.namespace, &job.name, &job.uid, part),
            None => self.follow(&job.namespace, &job.name, &job.uid),
        }
    }

    pub fn follow(&mut self, namespace: &str, name: &str, uid: &str) {
        self.by_uid.insert(uid.to_owned(), self.jobs.len());
        self.jobs.push(Job {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            completions: None,
            active: 0,
            waiting: 0,
            terminating: 0,
            succeeded: 0,
            failed: 0,
            failed_indexes: String::new(),
            observed_failed: String::new(),
            failed_index_count: 0,
            not_run: NotRun::default(),
            failed_lines: Vec::new(),
            state: State::Waiting,
            finished_after: None,
            was_finished: false,
            succeeded_since: None,
            failures: VecDeque::new(),
            stuck: None,
            standstill: None,
            moved_at: Duration::ZERO,
            retried: None,
            waits: BTreeMap::new(),
            samples: VecDeque::new(),
        });
    }

    /// Starts to follow a Job that is a part of a list. All parts of a list are shown as one Job.
    pub fn follow_part(&mut self, namespace: &str, name: &str, uid: &str, part: &ListPart) {
        let known = self.lists.keys().copied().find(|at| {
            self.jobs.get(*at).is_some_and(|job| (job.namespace.as_str(), &job.name) == (namespace, &part.of))
        });
        let at = known.unwrap_or_else(|| {
            self.follow(namespace, &part.of, uid);
            self.jobs.len() - 1
        });
        self.by_uid.insert(uid.to_owned(), at);
        let list = self.lists.entry(at).or_default();
        list.parts.expect(part.first, name, uid);
        list.parallelism = list.parallelism.max(part.parallelism);
    }

    /// The next change to a part of a list, with its namespace. It must be made before the next call.
    pub fn next_change(&mut self) -> Option<(String, PartChange)> {
        self.lists.iter_mut().find_map(|(at, list)| {
            let change = list.parts.next_change(list.parallelism)?;
            Some((self.jobs.get(*at)?.namespace.clone(), change))
        })
    }

    /// The UIDs of all Jobs that are followed, with the position and the name under which each is shown.
    pub fn followed(&self) -> impl Iterator<Item = (&str, usize, &str)> {
        self.by_uid.iter().filter_map(|(uid, at)| Some((uid.as_str(), *at, self.jobs.get(*at)?.name.as_str())))
    }

    /// The position of a Job, whether it has finished, and the first of its indexes that is not done: of the whole list, if it
    /// is a part.
    pub fn first_open(&self, text: &JobText) -> Option<(usize, bool, u32)> {
        let at = *self.by_uid.get(&text.metadata.uid)?;
        let is_finished = self.jobs.get(at)?.state.is_finished();
        if let Some(list) = self.lists.get(&at) {
            return Some((at, is_finished, list.parts.first_open()));
        }
        let (status, limit) = (&text.status, text.spec.completions.unwrap_or(u32::MAX));
        let set = |text: &Option<String>| IndexSet::read_tolerant(text.as_deref().unwrap_or_default(), limit);
        let open = set(&status.completed_indexes).union(&set(&status.failed_indexes)).first_absent_from(0);
        Some((at, is_finished, task_index(&open.to_string(), text.metadata.retried()).unwrap_or(u32::MAX)))
    }

    pub fn job(&self, uid: &str) -> Option<&Job> {
        self.jobs.get(*self.by_uid.get(uid)?)
    }

    /// Handles an observed state of a Job. Returns whether anything that is shown has changed.
    pub fn saw_job(&mut self, text: &JobText, now: Duration) -> bool {
        let Some(index) = self.by_uid.get(&text.metadata.uid) else { return false };
        let mut list = self.lists.get_mut(index);
        let whole = list.as_mut().map(|list| list.parts.observe(text));
        let text = whole.as_ref().unwrap_or(text);
        let Some(job) = self.jobs.get_mut(*index) else { return false };
        if job.state.is_finished() {
            return false;
        }
        let before =
            (job.active, job.terminating, job.succeeded, job.failed, job.failed_index_count, job.state.clone());
        let status = &text.status;
        job.completions = text.spec.completions;
        job.active = status.active;
        job.terminating = status.terminating.unwrap_or(0);
        job.succeeded = status.succeeded;
        job.failed = status.failed;
        let failed_indexes = status.failed_indexes.as_deref().unwrap_or_default();
        // Those of a list are those of the whole list already.
        let shown = |indexes: IndexSet| if list.is_some() { indexes } else { text.metadata.original(indexes) };
        if job.observed_failed != failed_indexes {
            failed_indexes.clone_into(&mut job.observed_failed);
            let failed = IndexSet::read_tolerant(failed_indexes, u32::MAX);
            job.failed_index_count = failed.len() as u32;
            let is_shown = list.is_some() || text.metadata.retried().is_none();
            job.failed_indexes = if is_shown { failed_indexes.to_owned() } else { shown(failed).text() };
        }
        if job.retried.is_none() && list.is_none() {
            job.retried = text.metadata.retried().map(str::to_owned);
        }
        job.state = State::of(text);
        job.sample(now);
        if job.state.is_finished() {
            job.finished_after = Some(now);
            job.stuck = None;
        }
        if matches!(job.state, State::Failed { .. }) && text.spec.completion_mode.as_deref() == Some("Indexed") {
            let not_run = list.as_ref().map_or_else(|| shown(text.not_run()), |list| list.parts.not_run());
            job.not_run = NotRun {
                indexes: not_run.text(),
                count: not_run.len() as u32,
                or_failed: text.spec.backoff_limit_per_index.is_none(),
            };
        }
        if matches!(job.state, State::Ending { .. }) || job.state.is_finished() {
            job.waits.clear();
        }
        let has_moved = before
            != (job.active, job.terminating, job.succeeded, job.failed, job.failed_index_count, job.state.clone());
        if has_moved {
            (job.moved_at, job.standstill) = (now, None);
        }
        has_moved
    }

    /// The Jobs of which nothing has changed for a while, and nothing says why.
    pub fn standing(&self, now: Duration) -> impl Iterator<Item = &Job> {
        let stands = move |job: &&Job| {
            !job.state.is_finished() && !job.says_why() && now.saturating_sub(job.moved_at) >= STANDS_AFTER
        };
        self.jobs.iter().filter(stands)
    }

    /// Why a Job does not move. None: nothing is wrong with it.
    pub fn explain(&mut self, uid: &str, why: Option<Standstill>) {
        let job = self.by_uid.get(uid).and_then(|index| self.jobs.get_mut(*index));
        if let Some(job) = job.filter(|job| !job.state.is_finished()) {
            job.standstill = why;
        }
    }

    /// Marks the failures of these Pods as already reported.
    pub fn knows_of(&mut self, pods: &[String]) {
        self.failed_pods.extend(pods.iter().cloned());
        self.over.extend(pods.iter().cloned());
    }

    /// Whether this Pod had ended before this run began.
    pub fn was_over(&self, pod: &str) -> bool {
        self.over.contains(pod)
    }

    /// The end of the log of a failure was read.
    pub fn read_log(&mut self, read: &PodFailure) {
        let failures = self.jobs.iter_mut().flat_map(|job| &mut job.failures);
        for failure in failures.filter(|it| (&it.uid, it.crash) == (&read.uid, read.crash)) {
            failure.log.clone_from(&read.log);
        }
    }

    /// Marks a Job that was finished when this run began. `succeeded_since`: the Job with which it succeeded after all.
    pub fn was_finished(&mut self, uid: &str, succeeded_since: Option<String>) {
        if let Some(job) = self.by_uid.get(uid).and_then(|index| self.jobs.get_mut(*index)) {
            job.was_finished = true;
            job.succeeded_since = succeeded_since;
        }
    }

    /// Handles the deletion of a Job. The deletion of a finished Job changes nothing.
    pub fn lost_job(&mut self, uid: &str, now: Duration) -> bool {
        let Some(index) = self.by_uid.get(uid) else { return false };
        let part_finished = self.lists.get(index).is_some_and(|list| list.parts.is_finished(uid));
        let Some(job) = self.jobs.get_mut(*index) else { return false };
        if job.state.is_finished() || part_finished {
            return false;
        }
        (job.state, job.finished_after) = (State::Deleted, Some(now));
        true
    }

    /// Handles an observed state of a Pod. Returns its failure if it was not reported yet.
    pub fn saw_pod(&mut self, text: &PodText) -> Option<&mut PodFailure> {
        let index = *self.by_uid.get(text.metadata.job()?)?;
        let job = self.jobs.get_mut(index)?;
        let uid = &text.metadata.uid;
        match text.status.unscheduled().filter(|_| !text.status.has_ended()) {
            Some(message) => {
                let (pod, message) = (text.metadata.name.clone(), message.to_owned());
                self.unscheduled.insert(uid.clone(), Unscheduled { job: index, pod, message });
            }
            None => drop(self.unscheduled.remove(uid)),
        }
        let stuck = text.status.stuck().filter(|_| !text.status.has_ended());
        match stuck {
            Some(why) if !job.state.is_finished() => {
                let (reason, message) = (why.reason.clone(), why.message.clone());
                let (pod, elsewhere) = (text.metadata.name.clone(), self.elsewhere);
                job.stuck = Some(Stuck { pod, reason, message, elsewhere });
            }
            _ if self.unscheduled.contains_key(uid) => {}
            _ if job.stuck.as_ref().is_some_and(|stuck| stuck.pod == text.metadata.name) => job.stuck = None,
            _ => {}
        }
        if text.status.phase != "Failed" || !self.failed_pods.insert(text.metadata.uid.clone()) {
            return None;
        }
        let (container, terminated) = match text.status.culprit() {
            Some((container, terminated)) => (container.to_owned(), Some(terminated)),
            None => (String::new(), None),
        };
        let first = |one: &str, other: Option<&String>| match (one, other) {
            ("", Some(other)) => other.clone(),
            (one, _) => one.to_owned(),
        };
        let failure = PodFailure {
            container,
            exit_code: terminated.map(|terminated| terminated.exit_code),
            // The reason and message of the Pod come first: they describe the whole Pod (evicted, deadline exceeded).
            reason: first(&text.status.reason, terminated.map(|terminated| &terminated.reason)),
            message: first(&text.status.message, terminated.map(|terminated| &terminated.message)),
            ..PodFailure::of(text)
        };
        job.failed_how(failure)
    }

    /// Returns a crash of a container that its Pod restarts, if it was not reported yet. To be called until there is
    /// none.
    pub fn saw_crash(&mut self, text: &PodText) -> Option<&mut PodFailure> {
        let job = self.jobs.get_mut(*self.by_uid.get(text.metadata.job()?)?)?;
        let known = self.crashes.get(&text.metadata.uid);
        let is_news = |container: &str, number| {
            known.and_then(|known| known.get(container)).is_none_or(|told| *told <= number) && !text.status.has_ended()
        };
        let (container, number, how) =
            text.status.crashes().find(|(container, number, _)| is_news(container, *number))?;
        let told = self.crashes.entry(text.metadata.uid.clone()).or_default();
        told.insert(container.to_owned(), number.saturating_add(1));
        job.failed_how(PodFailure {
            container: container.to_owned(),
            exit_code: Some(how.exit_code),
            reason: how.reason.clone(),
            message: how.message.clone(),
            crash: Some(number),
            ..PodFailure::of(text)
        })
    }

    /// A Job, or one of its indexes, waits before it is retried.
    pub fn waits(&mut self, uid: &str, mut notice: BackoffNotice, until: Duration) {
        let Some(index) = self.by_uid.get(uid) else { return };
        let list = self.lists.get(index);
        let Some(job) = self.jobs.get_mut(*index).filter(|job| !job.state.is_finished()) else { return };
        let original = |index: u32| task_index(&index.to_string(), job.retried.as_deref()).unwrap_or(index);
        let shown = |index| list.map_or_else(|| original(index), |list| list.parts.index_of(uid, index));
        notice.index = notice.index.map(shown);
        if job.waits.len() < WAITS || job.waits.contains_key(&notice.index) {
            job.waits.insert(notice.index, RetryWait { notice, until });
        }
    }

    /// Advances the time: Pods that wait for resources are reported when no other Pod is left that could free
    /// resources.
    pub fn tick(&mut self, now: Duration) {
        self.jobs.iter_mut().for_each(|job| job.waits.retain(|_, wait| wait.until > now));
        self.jobs.iter_mut().for_each(|job| job.waiting = 0);
        for waits in self.unscheduled.values() {
            if let Some(job) = self.jobs.get_mut(waits.job) {
                job.waiting = (job.waiting + 1).min(job.active);
            }
        }
        let active: u32 = self.jobs.iter().map(|job| job.active.saturating_add(job.terminating)).sum();
        let idle = !self.unscheduled.is_empty() && active as usize <= self.unscheduled.len();
        self.idle_since = if idle { Some(self.idle_since.unwrap_or(now)) } else { None };
        let idle = self.idle_since.is_some_and(|since| now.saturating_sub(since) >= IDLE_FOR);
        for waits in self.unscheduled.values() {
            let Some(job) = self.jobs.get_mut(waits.job).filter(|job| !job.state.is_finished()) else { continue };
            let told = job.stuck.as_ref().is_some_and(|stuck| stuck.pod == waits.pod);
            match idle || !waits.may_pass() {
                true if told || job.stuck.is_none() => {
                    job.stuck = Some(Stuck {
                        pod: waits.pod.clone(),
                        reason: "Unschedulable".to_owned(),
                        message: waits.message.clone(),
                        elsewhere: self.elsewhere,
                    });
                }
                false if told => job.stuck = None,
                _ => {}
            }
        }
    }

    /// Whether something is known about the Pod that a change of it, or its removal, may end.
    pub fn has_trouble_with(&self, pod: &PodView) -> bool {
        let uid = pod.uid.to_string();
        let job = pod.job().and_then(|job| self.by_uid.get(&job.to_string())).and_then(|index| self.jobs.get(*index));
        self.failed_pods.contains(&uid)
            || self.over.contains(&uid)
            || self.unscheduled.contains_key(&uid)
            || self.crashes.contains_key(&uid)
            || job.is_some_and(|job| job.stuck.as_ref().is_some_and(|stuck| stuck.pod == pod.name))
    }

    pub fn lost_pod(&mut self, text: &PodText) {
        self.failed_pods.remove(&text.metadata.uid);
        self.over.remove(&text.metadata.uid);
        self.unscheduled.remove(&text.metadata.uid);
        self.crashes.remove(&text.metadata.uid);
        let job = text.metadata.job().and_then(|uid| self.by_uid.get(uid)).and_then(|index| self.jobs.get_mut(*index));
        if let Some(job) = job.filter(|job| job.stuck.as_ref().is_some_and(|stuck| stuck.pod == text.metadata.name)) {
            job.stuck = None;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub mod tests;
