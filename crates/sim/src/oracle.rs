//! The ghost ledger: what really happened, kept outside the store, and the invariants checked for every write. I15 to
//! I28 and O1 to O4 are in `laws`, G1 to G7 in `judge.rs`, G8 in `late.rs`; `docs/scenarios.md` describes all of them in
//! full.
//!
//! - I1: no UID is tallied twice, nor with an outcome that it never had.
//! - I2: at rest every Pod that carried the finalizer and ended is tallied, or need not be.
//! - I3: no finalizer is removed before its Pod is recorded.
//! - I4: no UID is listed twice, and at most 500 are.
//! - I5: counters and conditions that decide are not reverted.
//! - I6: a finished Job has nothing left to do, and is not written any more.
//! - I7: the counts are consistent, and no more Pods live than permitted.
//! - I8: no index is complete and failed, out of range, or complete without a Pod.
//! - I9: when faults stop, every Job finishes, and then nothing is written (`heal.rs`).
//! - I10: planning again yields nothing (`world.rs`).
//! - I11: no Job ends before it starts, and nothing is early.
//! - I12: the same seed gives the same trace (`crates/sim/tests/cli.rs`).
//! - I13: every status that is written passes the server's validation (`host/network.rs`).
//! - I14: work is done once.
//! - F1: the write that ends the tracking of a Job moves exactly the recorded UIDs into the counters.
//! - F2: a Job that is tracked the old way never has more completions or failures than Pods that ended so.
//! - F3: such a Job is never tracked with finalizers again.
//! - F4: while the gates of interim conditions are off, a Job ends with Complete or Failed alone (I5, `laws/verdicts.rs`).
//! - L1: a leader has stopped before another takes over (`election.rs`).
//! - X1: a Job that stands still is explained (`explained.rs`).
//! - E1: no event is recorded more often than it happened (`heal.rs`).
//! - M1: a controller writes only to the Jobs of its own manager (`world.rs`).
//! - C1: cost follows change: an answered status write leads to no look at Pods that the Job has not recorded.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tally_core::ids::{JobUid, PodUid, Revision};
use tally_core::job::{JobView, condition};
use tally_core::pod::{Phase, PodView};
use tally_core::time::{Span, Timestamp};

use crate::api::{Actor, Api, Change};
use crate::counters::{Counters, Sometimes};
use crate::laws::{Laws, indexes};
use crate::setup::GatesOff;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub invariant: &'static str,
    pub text: String,
}

/// What the writer of the current change knew when it sent the request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context {
    pub asked_at: Timestamp,
    pub pods_at: Revision,
    pub jobs_at: Revision,
    pub clocks_sane: bool,
    pub incarnations: usize,
    /// The step of the world in which it was sent.
    pub step: usize,
    /// The controller gave up waiting for the response before the server carried out the request.
    pub given_up: bool,
}

#[derive(Debug)]
struct PodGhost {
    job: Option<JobUid>,
    name: String,
    created_by: Actor,
    /// The Job from which a third party has taken it.
    taken_from: Option<JobUid>,
    gone: bool,
    /// By a request that its sender had given up: it can land after any list that looks for it.
    created_late: bool,
    ever_tracked: bool,
    succeeded_at: Option<Revision>,
    ever_failed: bool,
    index: Option<u32>,
    /// The Job whose status listed it.
    recorded_by: Option<JobUid>,
    tallied: u32,
    /// Why it need not be counted.
    forgiven: Option<&'static str>,
    removed_by: Option<Actor>,
    ended: bool,
    /// Its deletion was requested, or it is gone: its name is free, or will be.
    deleted: bool,
    /// A third party has changed its owner or labels.
    meddled: bool,
}

impl PodGhost {
    fn ever_succeeded(&self) -> bool {
        self.succeeded_at.is_some()
    }

    /// By a controller, for its Job.
    fn is_made(&self) -> bool {
        matches!(self.created_by, Actor::Controller { .. })
    }

    /// Its work is not done, or not for its Job: another Pod does it.
    fn is_spent(&self) -> bool {
        self.ever_failed || self.forgiven.is_some() || (self.is_made() && self.meddled)
    }
}

#[derive(Debug, Default)]
struct JobGhost {
    max_parallelism: i32,
    /// The revision since which its spec is unchanged.
    spec_since: Revision,
    /// The number of indexes, and since when.
    limits: Vec<(Revision, u32)>,
    /// Until when the status listed an index as complete; still, if None.
    completed: BTreeMap<u32, Option<Revision>>,
    ever_suspended: bool,
    gone: bool,
    /// A third party has written its status.
    meddled: bool,
    /// It is tracked the old way, without finalizers.
    legacy: bool,
    /// Its Pods have started behind a gate from the first one on (TTL-23).
    gated: bool,
}

impl JobGhost {
    /// The success of a Pod is counted by its index: the index was complete at a time when the Pod had succeeded.
    fn has_booked(&self, pod: &PodGhost) -> bool {
        let until = pod.index.and_then(|index| self.completed.get(&index));
        let booked = |at: Revision| until.is_some_and(|until| until.is_none_or(|until| until > at));
        pod.succeeded_at.is_some_and(booked)
    }

    fn note_completed(&mut self, job: &JobView) {
        let now = indexes::read(&job.status.completed_indexes, job.spec.index_limit());
        for (index, until) in &mut self.completed {
            if !now.contains(index) && until.is_none() {
                *until = Some(job.revision);
            }
        }
        self.completed.extend(now.into_iter().map(|index| (index, None)));
    }

    /// A Pod may be released by the number of indexes that the Job had when the Pod last changed, or later.
    fn smallest_limit_since(&self, at: Revision) -> u32 {
        let before = self.limits.iter().rev().find(|(since, _)| *since <= at);
        let after = self.limits.iter().filter(|(since, _)| *since > at);
        before.into_iter().chain(after).map(|(_, limit)| *limit).min().unwrap_or(0)
    }
}

#[derive(Default)]
pub struct Oracle {
    pods: HashMap<PodUid, PodGhost>,
    jobs: BTreeMap<JobUid, JobGhost>,
    pub violation: Option<Violation>,
    pub uncounted_limit: usize,
    /// The most Pods beyond `parallelism` that ever lived at once.
    pub excess: usize,
    /// Every controller creates the Pods of Jobs with early deletion behind a gate (TTL-23).
    pub gates_pods: bool,
    gates_off: GatesOff,
    pub(crate) laws: Laws,
}

macro_rules! require {
    ($self:ident, $condition:expr, $invariant:literal, $($text:tt)*) => {
        if !$condition && $self.violation.is_none() {
            $self.violation = Some(Violation { invariant: $invariant, text: format!($($text)*) });
        }
    };
}

impl Oracle {
    pub fn new(uncounted_limit: usize, instances: usize, gates_off: GatesOff) -> Self {
        Self { uncounted_limit, gates_off, laws: Laws::new(uncounted_limit, instances, gates_off), ..Self::default() }
    }

    pub fn fail(&mut self, invariant: &'static str, text: String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { invariant, text });
        }
    }

    pub fn observe(&mut self, change: &Change, context: Context, api: &Api, counters: &mut Counters) {
        self.laws.observe(change, context, api.now);
        match change {
            Change::Job { before, after, gone, actor, .. } => {
                self.job_changed(before.as_deref(), after, *gone, *actor, context, api, counters);
            }
            Change::Pod { before, after, gone, actor, .. } => {
                self.pod_changed(before.as_deref(), after, *gone, *actor, context, api, counters);
            }
        }
        self.ask_laws();
    }

    fn ask_laws(&mut self) {
        if let Some(violation) = self.laws.take_violation() {
            self.violation.get_or_insert(violation);
        }
    }

    /// I20, when a healed world has nothing to do but wait.
    pub fn check_waits(
        &mut self,
        now: Timestamp,
        wake_at: Option<Timestamp>,
        clocks_sane: bool,
        closed: impl Fn(&str) -> bool,
    ) {
        self.laws.check_waits(now, wake_at, clocks_sane, closed);
        self.ask_laws();
    }

    /// O3, when everything is at rest.
    pub fn check_order_at_rest(&mut self) {
        self.laws.check_order_at_rest();
        self.ask_laws();
    }

    // ---- Jobs ----

    #[allow(clippy::too_many_arguments)]
    fn job_changed(
        &mut self,
        before: Option<&JobView>,
        after: &JobView,
        gone: bool,
        actor: Actor,
        context: Context,
        api: &Api,
        counters: &mut Counters,
    ) {
        let ghost = self.jobs.entry(after.uid.clone()).or_default();
        if before.is_none_or(|before| before.spec != after.spec) {
            ghost.spec_since = after.revision;
        }
        ghost.max_parallelism = ghost.max_parallelism.max(after.spec.parallelism);
        if ghost.limits.last().is_none_or(|(_, limit)| *limit != after.spec.index_limit()) {
            ghost.limits.push((after.revision, after.spec.index_limit()));
        }
        ghost.gone |= gone;
        ghost.gated = self.gates_pods && self.laws.deletes_early(&after.uid) && (before.is_none() || ghost.gated);
        let was_legacy = std::mem::replace(&mut ghost.legacy, after.legacy);
        ghost.ever_suspended |= after.spec.suspend;
        if before.is_none_or(|before| {
            before.status.completed_indexes != after.status.completed_indexes
                || before.spec.index_limit() != after.spec.index_limit()
        }) {
            ghost.note_completed(after);
        }
        let Some(before) = before else { return };
        let Actor::Controller { .. } = actor else {
            ghost.meddled |= before.status != after.status;
            let lists = after.status.uncounted();
            for uid in lists.succeeded.iter().chain(&lists.failed) {
                if let Some(pod) = self.pods.get_mut(uid) {
                    pod.recorded_by = Some(after.uid.clone());
                }
            }
            return;
        };
        if was_legacy || after.legacy {
            self.check_legacy(before, after, was_legacy, counters);
        }
        if before.status == after.status {
            return;
        }
        if !after.legacy {
            self.check_lists(before, after, api, counters);
        }
        self.check_indexes(before, after);
        self.check_monotone(before, after);
        self.check_finish(before, after, actor, api, counters);
        self.check_clocks(before, after, context, counters);
        let status = &after.status;
        let (ready, terminating) = (status.ready.unwrap_or(0), status.terminating.unwrap_or(0));
        require!(
            self,
            status.active >= 0 && ready >= 0 && terminating >= 0 && ready <= status.active,
            "I7",
            "{} has active {} ready {ready} terminating {terminating}",
            after.name,
            status.active
        );
        if after.status.is_true(condition::SUSPENDED) {
            counters.hit(Sometimes::Suspended);
        } else if before.status.is_true(condition::SUSPENDED) {
            counters.hit(Sometimes::Resumed);
        }
    }

    /// I1, I4: every UID enters and leaves the lists once, and leaves into exactly one counter.
    fn check_lists(&mut self, before: &JobView, after: &JobView, api: &Api, counters: &mut Counters) {
        let (old, new) = (before.status.uncounted(), after.status.uncounted());
        let mut seen = BTreeSet::new();
        for uid in new.succeeded.iter().chain(&new.failed) {
            require!(self, seen.insert(uid.clone()), "I4", "{}: {uid} is listed twice", after.name);
        }
        require!(
            self,
            new.len() <= self.uncounted_limit.max(old.len()),
            "I4",
            "{}: {} UIDs wait, more than {}",
            after.name,
            new.len(),
            self.uncounted_limit
        );
        if new.len() == self.uncounted_limit {
            counters.hit(Sometimes::UncountedLimit);
        }
        for (list, succeeded) in [(&new.succeeded, true), (&new.failed, false)] {
            for uid in list {
                if old.succeeded.contains(uid) || old.failed.contains(uid) {
                    continue;
                }
                let Some(ghost) = self.pods.get_mut(uid) else {
                    self.fail("I1", format!("{}: {uid} was recorded and never existed", after.name));
                    continue;
                };
                let name = ghost.name.clone();
                let real = if succeeded { ghost.ever_succeeded() } else { ghost.ever_failed };
                let tallied = ghost.tallied;
                ghost.recorded_by = Some(after.uid.clone());
                require!(self, tallied == 0, "I1", "{name} was recorded again after it was tallied");
                require!(self, real, "I1", "{name} was recorded as what it never was");
            }
        }
        let mut moved = [0i64; 2];
        for (list, into) in [(&old.succeeded, 0), (&old.failed, 1)] {
            for uid in list {
                if new.succeeded.contains(uid) || new.failed.contains(uid) {
                    continue;
                }
                moved[into] += 1;
                let held = api.pods.values().any(|stored| stored.view.uid == *uid && stored.view.tracked);
                let Some(ghost) = self.pods.get_mut(uid) else {
                    continue;
                };
                ghost.tallied += 1;
                let (name, tallied) = (ghost.name.clone(), ghost.tallied);
                require!(self, tallied == 1, "I1", "{name} was tallied {tallied} times");
                require!(self, !held, "I3", "{name} was tallied and still carries the finalizer");
            }
        }
        let grown = |old: i32, new: i32| i64::from(new) - i64::from(old);
        let failed = grown(before.status.failed, after.status.failed);
        require!(self, failed == moved[1], "I1", "{}: failed moved by {failed}, UIDs by {}", after.name, moved[1]);
        if !after.spec.is_indexed() {
            let succeeded = grown(before.status.succeeded, after.status.succeeded);
            let expected = moved[0];
            require!(
                self,
                succeeded == expected,
                "I1",
                "{}: succeeded moved by {succeeded}, UIDs by {expected}",
                after.name
            );
        }
    }

    /// F1, F2, F3.
    fn check_legacy(&mut self, before: &JobView, after: &JobView, was_legacy: bool, counters: &mut Counters) {
        let (old, new) = (&before.status, &after.status);
        let (name, indexed) = (&after.name, after.spec.is_indexed());
        require!(self, after.legacy, "F3", "{name}: it is no longer marked as tracked the old way");
        let listed = new.uncounted_terminated_pods.is_some();
        require!(self, !listed, "F3", "{name}: it is tracked the old way, and UIDs can be listed again");
        if !was_legacy {
            counters.hit(Sometimes::TrackingEnded);
            let lists = old.uncounted();
            let ended = (if indexed { 0 } else { lists.succeeded.len() as i32 }, lists.failed.len() as i32);
            let expected = (old.succeeded + ended.0, old.failed + ended.1);
            let found = (new.succeeded, new.failed);
            require!(self, found == expected, "F1", "{name}: counts {found:?} when tracking ended, not {expected:?}");
            if !lists.is_empty() {
                counters.hit(Sometimes::TrackingEndedWithBacklog);
            }
            for uid in lists.succeeded.iter().chain(&lists.failed) {
                if let Some(ghost) = self.pods.get_mut(uid) {
                    ghost.tallied += 1;
                    let (pod, tallied) = (ghost.name.clone(), ghost.tallied);
                    require!(self, tallied == 1, "I1", "{pod} was tallied {tallied} times");
                }
            }
            return;
        }
        let own = || self.pods.values().filter(|ghost| ghost.job.as_ref() == Some(&after.uid));
        let succeeded = own().filter(|ghost| ghost.ever_succeeded()).count() as i32;
        let failed = own().filter(|ghost| ghost.ever_failed).count() as i32;
        require!(
            self,
            new.succeeded <= succeeded && new.failed <= failed,
            "F2",
            "{name}: {} succeeded of {succeeded}, {} failed of {failed}",
            new.succeeded,
            new.failed
        );
    }

    /// I8, and that no index is invented.
    fn check_indexes(&mut self, before: &JobView, after: &JobView) {
        if !after.spec.is_indexed()
            || before.status.completed_indexes == after.status.completed_indexes
                && before.status.failed_indexes == after.status.failed_indexes
        {
            return;
        }
        let limit = after.spec.index_limit();
        let read = |text: &str| indexes::read_own(text, limit);
        let failed_text = after.status.failed_indexes.as_deref().unwrap_or_default();
        let (completed, failed) = match (read(&after.status.completed_indexes), read(failed_text)) {
            (Ok(completed), Ok(failed)) => (completed, failed),
            (Err(error), _) | (_, Err(error)) => {
                self.fail("I8", format!("{}: {error}", after.name));
                return;
            }
        };
        require!(
            self,
            completed.is_disjoint(&failed),
            "I8",
            "{}: completed {} and failed {failed_text} overlap",
            after.name,
            after.status.completed_indexes
        );
        require!(
            self,
            completed.len() as i64 == i64::from(after.status.succeeded)
                || (after.spec.completions != Some(after.spec.parallelism)
                    && after.status.succeeded == before.status.succeeded),
            "I8",
            "{}: succeeded {} but completed {}",
            after.name,
            after.status.succeeded,
            after.status.completed_indexes
        );
        let succeeded: BTreeSet<u32> = self
            .pods
            .values()
            .filter(|ghost| ghost.job.as_ref() == Some(&after.uid) && ghost.ever_succeeded())
            .filter_map(|ghost| ghost.index)
            .collect();
        for index in &completed {
            require!(self, succeeded.contains(index), "I8", "{}: index {index} never succeeded", after.name);
        }
    }

    /// I5.
    fn check_monotone(&mut self, before: &JobView, after: &JobView) {
        let (old, new) = (&before.status, &after.status);
        require!(self, new.failed >= old.failed, "I5", "{}: failed fell", after.name);
        require!(
            self,
            new.succeeded >= old.succeeded || after.spec.is_indexed(),
            "I5",
            "{}: succeeded fell",
            after.name
        );
        for kind in [condition::COMPLETE, condition::FAILED, condition::FAILURE_TARGET, condition::SUCCESS_CRITERIA_MET]
        {
            require!(self, new.is_true(kind) || !old.is_true(kind), "I5", "{}: {kind} was taken back", after.name);
        }
        let place = |kind: &str| new.conditions.iter().position(|known| known.kind == kind && known.is_true());
        for (first, then) in
            [(condition::FAILURE_TARGET, condition::FAILED), (condition::SUCCESS_CRITERIA_MET, condition::COMPLETE)]
        {
            if let Some(then_at) = place(then) {
                // GATE-11: by what only its Pods show, or with a success policy, a Job ends with an interim condition.
                let reason = &new.conditions[then_at].reason;
                let shown = ["PodFailurePolicy", "SuccessPolicy", "PendingTimeout"].contains(&reason.as_str());
                let policy = then == condition::COMPLETE && after.spec.success_policy.is_some();
                let has_policy = policy && !self.gates_off.success_policy;
                let expected = !self.gates_off.interim || shown || has_policy;
                let found = place(first).is_some_and(|first_at| first_at < then_at);
                require!(self, found == expected, "I5", "{}: {then} and {first}: {:?}", after.name, new.conditions);
            }
        }
    }

    /// I6.
    fn check_finish(&mut self, before: &JobView, after: &JobView, actor: Actor, api: &Api, counters: &mut Counters) {
        let Some(terminal) = after.status.terminal_condition() else {
            return;
        };
        require!(self, !before.status.is_finished(), "I6", "{}: a finished Job was written", after.name);
        let status = &after.status;
        require!(
            self,
            status.active == 0
                && status.terminating == (!self.gates_off.interim).then_some(0)
                && status.uncounted().is_empty(),
            "I6",
            "{}: finished with active {} terminating {:?} uncounted {}",
            after.name,
            status.active,
            status.terminating,
            status.uncounted().len()
        );
        let nothing_to_do = after.spec.suspend && after.spec.completions == Some(0);
        require!(self, status.start_time.is_some() || nothing_to_do, "I6", "{}: finished unstarted", after.name);
        for stored in api.pods_of(&after.uid) {
            let known = |ghost: &PodGhost| ghost.created_by == actor && !ghost.created_late;
            let own = self.pods.get(&stored.view.uid).is_some_and(known);
            require!(
                self,
                !stored.view.tracked || !own || !after.spec.selector.matches(&stored.view.labels),
                "I6",
                "{} finished while {} still carries the finalizer",
                after.name,
                stored.view.name
            );
        }
        counters.hit(if terminal.kind == condition::COMPLETE { Sometimes::Completed } else { Sometimes::Failed });
        match terminal.reason.as_str() {
            "SuccessPolicy" => counters.hit(Sometimes::SuccessPolicy),
            "PodFailurePolicy" => counters.hit(Sometimes::FailJob),
            "FailedIndexes" | "MaxFailedIndexesExceeded" => counters.hit(Sometimes::FailedIndexes),
            "DeadlineExceeded" => counters.hit(Sometimes::DeadlineExceeded),
            "BackoffLimitExceeded" => counters.hit(Sometimes::BackoffLimitExceeded),
            _ => {}
        }
    }

    /// I11.
    fn check_clocks(&mut self, before: &JobView, after: &JobView, context: Context, counters: &mut Counters) {
        if let (Some(start_at), Some(completed_at)) = (after.status.start_time, after.status.completion_time) {
            require!(self, completed_at >= start_at, "I11", "{}: completed before it started", after.name);
        }
        let newly = |job: &JobView| {
            let verdict = job.status.true_condition(condition::FAILURE_TARGET);
            let verdict = verdict.or_else(|| job.status.true_condition(condition::FAILED));
            verdict.is_some_and(|at| at.reason == "DeadlineExceeded")
        };
        if newly(after) && !newly(before) {
            let deadline = before.spec.active_deadline_seconds.unwrap_or(0);
            // With a deadline of 0 the write that starts a Job may end it.
            let start_at = before.status.start_time.or(after.status.start_time);
            let due_at = start_at.map(|start_at| start_at + Span::from_seconds(deadline));
            require!(
                self,
                due_at.is_some_and(|due_at| context.asked_at >= due_at),
                "I11",
                "{}: the deadline fired early",
                after.name
            );
            counters.hit(Sometimes::DeadlineExceeded);
        }
    }

    // ---- Pods ----

    #[allow(clippy::too_many_arguments)]
    fn pod_changed(
        &mut self,
        before: Option<&PodView>,
        after: &PodView,
        gone: bool,
        actor: Actor,
        context: Context,
        api: &Api,
        counters: &mut Counters,
    ) {
        let ghost = self.pods.entry(after.uid.clone()).or_insert_with(|| PodGhost {
            job: None,
            name: after.name.to_string(),
            created_by: actor,
            taken_from: None,
            gone: false,
            created_late: context.given_up,
            ever_tracked: false,
            succeeded_at: None,
            ever_failed: false,
            index: None,
            recorded_by: None,
            tallied: 0,
            forgiven: None,
            removed_by: None,
            ended: false,
            deleted: false,
            meddled: false,
        });
        if let Some(job) = after.job() {
            ghost.job = Some(job.clone());
        }
        ghost.index = ghost.index.or(after.index);
        ghost.ever_tracked |= after.tracked;
        if after.phase == Phase::Succeeded {
            ghost.succeeded_at.get_or_insert(after.revision);
        }
        // Taken from its Job by a third party: if it comes back that is an adoption, and the Job may have replaced it
        // meanwhile.
        if before.is_some_and(|before| before.job().is_some()) && after.job().is_none() && actor != Actor::Node {
            ghost.created_by = Actor::User;
            ghost.taken_from = before.and_then(|before| before.job().cloned());
        }
        ghost.ever_failed |= after.phase == Phase::Failed || (after.deleting() && after.phase != Phase::Succeeded);
        ghost.gone |= gone;
        ghost.ended |= gone || after.phase.is_terminal();
        let controlled = matches!(actor, Actor::Controller { .. });
        let is_other = |before: &PodView| before.job() != after.job() || before.labels != after.labels;
        ghost.deleted |= gone || after.deleting();
        ghost.meddled |= before.map_or(!controlled, is_other);
        if after.phase == Phase::Succeeded && before.is_some_and(|before| before.phase != Phase::Succeeded) {
            self.check_work_of(after, api);
        }
        match before {
            None if controlled => self.check_creation(after, context, api, counters),
            Some(before) if before.tracked && !after.tracked => {
                if controlled {
                    self.check_release(before, after, actor, api, counters);
                } else if matches!(actor, Actor::Hosted { .. }) {
                    let text = format!("{} lost its finalizer to a controller that counts nothing", before.name);
                    self.fail("I3", text);
                } else if let Some(ghost) = self.pods.get_mut(&after.uid) {
                    ghost.forgiven = Some("stripped by a user");
                }
            }
            Some(before)
                if controlled && before.phase.is_terminal() && !before.deleting() && (gone || after.deleting()) =>
            {
                self.check_counted(before, counters);
            }
            _ => {}
        }
    }

    /// I26: a controller deletes a finished Pod only once it is in the counters or its index is complete, unless it
    /// need not be counted.
    fn check_counted(&mut self, pod: &PodView, counters: &mut Counters) {
        counters.hit(Sometimes::FinishedPodDeleted);
        let Some(ghost) = self.pods.get(&pod.uid).filter(|ghost| ghost.ever_tracked) else { return };
        // A Pod that a third party has taken from its Job has no owner that needs it.
        let owner = ghost.job.as_ref().filter(|job| pod.job() == Some(job));
        let Some(known) = owner.and_then(|job| self.jobs.get(job)) else { return };
        let counted = ghost.tallied == 1 || ghost.forgiven.is_some() || known.has_booked(ghost);
        let holds = !pod.tracked && counted || known.gone || known.meddled;
        require!(self, holds, "I26", "{} was deleted and is not counted", pod.name);
    }

    fn check_work_of(&mut self, pod: &PodView, api: &Api) {
        if let Some(job) = pod.job().and_then(|uid| api.job_by_uid(uid)).map(|stored| stored.view.clone()) {
            self.check_work(&job);
        }
    }

    /// I14: work is done once, however many controllers lead and whatever they know, for a Job that wants as much as at
    /// first: the Pods that controllers have created for it and that succeeded are at most its completions, one for each
    /// index, and another one is created only for a Pod that failed, was removed or was changed by others. A Pod that is
    /// deleted frees its name, and a creation that was requested before may take it: that excuses one more, unless Pods
    /// start behind a gate, which excuses none that succeeds. Pods that others created and a Job adopts are additional.
    /// A Job that is tracked the old way counts the Pods that a leader sees, and two leaders may create more.
    fn check_work(&mut self, job: &JobView) {
        let Some(completions) = job.spec.completions else { return };
        let Some(ghost) = self.jobs.get(&job.uid) else { return };
        if ghost.limits.len() > 1 || ghost.meddled || ghost.legacy {
            return;
        }
        let gated = ghost.gated;
        let mut work: BTreeMap<Option<u32>, [i64; 4]> = BTreeMap::new();
        for pod in self.pods.values() {
            let taken = pod.taken_from.as_ref() == Some(&job.uid) && pod.gone;
            if pod.job.as_ref() != Some(&job.uid) && !taken {
                continue;
            }
            let [made, done, spent, free] = work.entry(pod.index.filter(|_| job.spec.is_indexed())).or_default();
            *made += i64::from(pod.is_made());
            *done += i64::from(pod.is_made() && pod.ever_succeeded() && !pod.is_spent());
            *spent += i64::from(pod.is_spent());
            // A Pod that failed and is deleted excuses its replacement, and a late creation under its name.
            *free += i64::from(pod.deleted || taken);
        }
        let wanted = if job.spec.is_indexed() { 1 } else { i64::from(completions) };
        for (index, [made, done, spent, free]) in work {
            let which = index.map_or_else(|| job.name.to_string(), |index| format!("index {index} of {}", job.name));
            let most = if gated { wanted } else { wanted + free };
            require!(self, done <= most, "I14", "{which}: {done} Pods succeeded, and {wanted} were wanted");
            let most = wanted + spent + free;
            require!(self, made <= most, "I14", "{which}: {made} Pods were made for {wanted}, and {spent} failed");
        }
    }

    /// C1: cost follows change. When the write of a status is answered, a controller decides again about those Pods without
    /// a controller that are listed in the status which it replaces, or in the one which was sent (`listed`), and about no
    /// others.
    pub(crate) fn check_decisions(&mut self, name: &str, listed: u64, made: u64) {
        let text = "decisions about Pods without a controller after a status write";
        require!(self, made <= listed, "C1", "{name}: {made} {text}, and it lists {listed} of them");
    }

    /// I7, and that nothing is created before its back-off is over (S34).
    fn check_creation(&mut self, pod: &PodView, context: Context, api: &Api, counters: &mut Counters) {
        let Some(job) = pod.job().and_then(|uid| api.job_by_uid(uid)).map(|stored| stored.view.clone()) else {
            return;
        };
        // A Pod whose creation was given up and carried out after all is additional: a list that looked for it may have been
        // served before, and its place was taken.
        let made = |pod: &PodView| {
            let ghost = self.pods.get(&pod.uid);
            // REPL-9: counted as failed while it terminates, and replaced.
            let counted = ghost.is_some_and(|ghost| ghost.recorded_by.is_some()) || !pod.tracked;
            // An index completes once: there a failure that is ignored, and counted nowhere, needs no record.
            let counted = counted || (job.spec.limits_each_index() && self.laws.is_ignored(&job.uid, &pod.uid));
            let fenced = job.gives_up_after().is_some() && pod.deleting() && counted;
            let own = |ghost: &PodGhost| matches!(ghost.created_by, Actor::Controller { .. }) && !ghost.created_late;
            !fenced && ghost.is_none_or(own)
        };
        let live = api.live_pods(&job, made);
        let allowed = self.jobs.get(&job.uid).map_or(0, |ghost| ghost.max_parallelism.max(0) as usize);
        let excess = live.saturating_sub(allowed);
        if excess > 0 {
            counters.hit(Sometimes::MoreThanParallelism);
            self.excess = self.excess.max(excess);
        }
        let bound = allowed * context.incarnations.max(1);
        require!(self, live <= bound, "I7", "{}: {live} Pods live, parallelism {allowed}", job.name);
        self.check_work(&job);
        let current = self.jobs.get(&job.uid).is_some_and(|ghost| ghost.spec_since <= context.jobs_at);
        // The old way, the deletion of a Pod is no failure, and nothing is promised about the wait after it.
        if job.spec.limits_each_index() || !context.clocks_sane || !current || job.legacy {
            return;
        }
        if let Some(retry_at) = self.laws.retry_at(&job.uid, context.pods_at) {
            counters.hit(Sometimes::BackoffWaited);
            require!(
                self,
                context.asked_at >= retry_at,
                "S34",
                "{} was asked for at {} ms, {} ms before its back-off was over",
                pod.name,
                context.asked_at.millis(),
                (retry_at - context.asked_at).millis()
            );
        }
    }

    /// I3: no finalizer is removed before its Pod is in a committed ledger, unless no Job has to count the Pod.
    fn check_release(&mut self, before: &PodView, after: &PodView, actor: Actor, api: &Api, counters: &mut Counters) {
        let job = before.job().and_then(|uid| api.job_by_uid(uid)).map(|stored| stored.view.clone());
        let reason = match (&job, before.job()) {
            (None, None) => Some("nobody's Pod"),
            (None, Some(_)) => {
                counters.hit(Sometimes::OrphanReleased);
                Some("its Job is gone")
            }
            (Some(_), _) if after.job().is_none() => {
                counters.hit(Sometimes::Disowned);
                Some("disowned")
            }
            (Some(job), _) => self.forgiveness(before, job, counters),
        };
        let Some(ghost) = self.pods.get_mut(&before.uid) else {
            return;
        };
        let booked = job.as_ref().is_some_and(|job| {
            job.spec.is_indexed() && self.jobs.get(&job.uid).is_some_and(|known| known.has_booked(ghost))
        });
        // A Job that is gone will not tally what it has recorded.
        let recorded = ghost.recorded_by.as_ref().and_then(|job| self.jobs.get(job)).is_some_and(|job| !job.gone);
        if recorded || booked {
            return;
        }
        if before.is_active() && reason.is_none() {
            ghost.removed_by = Some(actor);
            ghost.forgiven = Some("removed on purpose");
            counters.hit(Sometimes::RemovedOnPurpose);
            return;
        }
        match reason {
            Some(reason) => ghost.forgiven = Some(reason),
            None => {
                let text = format!("{} ({:?}) lost its finalizer unrecorded", before.name, before.phase);
                self.fail("I3", text);
            }
        }
    }

    /// Why a Pod of an existing Job need not be counted.
    fn forgiveness(&self, pod: &PodView, job: &JobView, counters: &mut Counters) -> Option<&'static str> {
        let ghost = self.jobs.get(&job.uid);
        if job.legacy {
            counters.hit(Sometimes::LegacyReleased);
            return Some("its Job is tracked the old way");
        }
        if job.deleting {
            return Some("its Job is being deleted");
        }
        if job.status.is_finished() {
            counters.hit(Sometimes::LeftoverReleased);
            return Some("its Job has finished");
        }
        if job.status.is_true(condition::SUCCESS_CRITERIA_MET) && (pod.deleting() || pod.is_active()) {
            return Some("its Job has succeeded");
        }
        if job.spec.is_indexed() {
            let limit = ghost.map_or(0, |ghost| ghost.smallest_limit_since(pod.revision));
            match pod.index {
                None => return Some("no index"),
                Some(index) if index >= limit && !pod.is_active() => {
                    counters.hit(Sometimes::InvalidIndexReleased);
                    return Some("invalid index");
                }
                Some(index) => {
                    let failed = job.status.failed_indexes.as_deref().unwrap_or_default();
                    let failed = indexes::read(failed, job.spec.index_limit());
                    let succeeded = self.pods.get(&pod.uid).is_some_and(PodGhost::ever_succeeded);
                    if succeeded && failed.contains(&index) {
                        return Some("its index has failed");
                    }
                }
            }
        }
        if self.laws.is_ignored(&job.uid, &pod.uid) && !pod.is_active() {
            counters.hit(Sometimes::FailureIgnored);
            return Some("ignored by policy");
        }
        None
    }

    /// H2: a Pod whose removal has begun is still running; returns the controller that began it.
    pub fn half_removed(&self, pod: &PodView) -> Option<Actor> {
        if pod.tracked || !pod.is_active() {
            return None;
        }
        self.pods.get(&pod.uid).and_then(|ghost| ghost.removed_by)
    }

    /// A suspended Job removes all its Pods, in whatever order responses arrive.
    pub fn was_suspended(&self, job: &JobUid) -> bool {
        self.jobs.get(job).is_some_and(|ghost| ghost.ever_suspended)
    }

    /// I2, I6 at rest.
    pub fn at_rest(&mut self, api: &Api, ours: impl Fn(&JobView) -> bool) {
        // A Job of an absent manager may still adopt it.
        let waits = |pod: &PodView| {
            let adopts =
                |job: &JobView| !ours(job) && !job.status.is_finished() && job.spec.selector.matches(&pod.labels);
            pod.controller.is_none() && api.jobs.values().any(|stored| adopts(&stored.view))
        };
        for stored in api.pods.values() {
            let pod = &stored.view;
            let job = pod.job().and_then(|uid| api.job_by_uid(uid));
            if pod.controller.as_ref().is_some_and(|controller| !controller.is_job) {
                continue;
            }
            if job.is_some_and(|stored| !ours(&stored.view)) {
                continue;
            }
            // BLPI-3: a Job that stays suspended keeps the last failed Pod of an index.
            let keeps = |job: &JobView| !job.status.is_finished() && job.spec.limits_each_index();
            if pod.phase == Phase::Failed && job.is_some_and(|stored| keeps(&stored.view)) {
                continue;
            }
            if waits(pod) {
                continue;
            }
            if pod.tracked {
                self.fail("I6", format!("at rest {} still carries the finalizer", pod.name));
            }
        }
        let mut uids: Vec<&PodUid> = self.pods.keys().collect();
        uids.sort();
        for uid in uids {
            let ghost = &self.pods[uid];
            let Some(job) = &ghost.job else { continue };
            if !ghost.ever_tracked || ghost.forgiven.is_some() || !ghost.ended || ghost.tallied == 1 {
                continue;
            }
            if api.pods.values().any(|stored| stored.view.uid == *uid && waits(&stored.view)) {
                continue;
            }
            let Some(known) = self.jobs.get(job).filter(|known| !known.gone && !known.legacy) else {
                continue;
            };
            // BLPI-3: kept, and not counted yet, by a Job that stays suspended.
            let keeps = |job: &JobView| !job.status.is_finished() && job.spec.limits_each_index();
            let failed = |pod: &PodView| pod.uid == *uid && pod.tracked && pod.phase == Phase::Failed;
            let is_kept = !ghost.ever_succeeded() || api.pods.values().any(|stored| failed(&stored.view));
            if is_kept && api.job_by_uid(job).is_some_and(|stored| keeps(&stored.view)) {
                continue;
            }
            if !known.has_booked(ghost) {
                let text = format!("{} ended and was never counted", ghost.name);
                self.violation.get_or_insert(Violation { invariant: "I2", text });
            }
        }
    }
}
