//! The life of a Job at random: what happens to it and to its Pods, what its ledger observes of that, and when.
//!
//! The world keeps the true state of the store and, beside it, what the ledger must know: the newest version of each
//! Pod that it was shown. From that the expected plan is computed at the end. Comparing plans consumes the ledger, so
//! each case compares once, after a random number of events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use compact_str::CompactString;
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;
use tally_core::blueprint::NewPod;
use tally_core::ids::{PodUid, Revision};
use tally_core::job::{JobSpec, JobStatus, JobView, PodReplacementPolicy};
use tally_core::ledger::{Ledger, Limits, Plan, StatusWrite};
use tally_core::pod::{Phase, PodView};
use tally_core::time::{Span, Timestamp};

use super::arbitrary::{self, NOW, PodSeed};
use super::compare::{self, Memory, check_rules};
use super::{Ending, Facts, UnknownCreation, endings, text};

/// When the ledger observes a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    AtOnce,
    /// Perhaps later, by `Show`.
    NotYet,
}

#[derive(Clone, Debug)]
pub enum Step {
    Appear(PodSeed, Told),
    Change(usize, Change, Told),
    /// The Pod is gone, as the stream or a response will show.
    Vanish(usize, Told),
    /// Shows the newest version of a Pod, or that it is gone.
    Show(usize),
    /// Shows some version of a Pod, most likely an old one.
    ShowAgain(usize),
    Edit(Edit, Told),
    ShowJob,
    Plan,
    Answer(usize, Reply),
    Wait(i64),
}

#[derive(Clone, Debug)]
pub enum Change {
    Phase(Phase, Option<i32>),
    Ready(bool),
    Restart,
    Schedule,
    Delete,
    Disrupt,
    /// Another writer removes the finalizer.
    Strip,
}

#[derive(Clone, Debug)]
pub enum Edit {
    Parallelism(i32),
    Completions(i32),
    Suspend(bool),
    Deadline(Option<i64>),
    BackoffLimit(i32),
    LimitPerIndex(Option<i32>),
    MaxFailedIndexes(Option<i32>),
    ReplaceFailedOnly(bool),
    Delete,
    Status(Box<JobStatus>),
}

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Done,
    /// Done, and the stream is faster than the response.
    DoneStreamFirst,
    /// Done, but the response is lost.
    Lost,
    /// Not done.
    Refused,
    /// The name is taken by another Pod.
    Taken,
}

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 1..60)
}

fn told() -> impl Strategy<Value = Told> {
    proptest::bool::weighted(0.8).prop_map(|at_once| if at_once { Told::AtOnce } else { Told::NotYet })
}

fn reply() -> impl Strategy<Value = Reply> {
    use Reply::*;
    select(vec![Done, Done, Done, Done, Done, Done, DoneStreamFirst, DoneStreamFirst, Lost, Refused, Taken])
}

fn step() -> impl Strategy<Value = Step> {
    let which = any::<usize>;
    prop_oneof![
        4 => (arbitrary::pod_seed(), told()).prop_map(|(seed, told)| {
            // When a Pod starts depends on what a ledger has seen go (`ledger/tests.rs`).
            Step::Appear(PodSeed { start_gated: false, ..seed }, told)
        }),
        9 => (which(), change(), told()).prop_map(|(which, change, told)| Step::Change(which, change, told)),
        2 => (which(), told()).prop_map(|(which, told)| Step::Vanish(which, told)),
        2 => which().prop_map(Step::Show),
        2 => which().prop_map(Step::ShowAgain),
        3 => (edit(), told()).prop_map(|(edit, told)| Step::Edit(edit, told)),
        1 => Just(Step::ShowJob),
        9 => Just(Step::Plan),
        16 => (which(), reply()).prop_map(|(which, reply)| Step::Answer(which, reply)),
        3 => select(vec![10i64, 200, 1_500, 11_000, 70_000, 700_000]).prop_map(Step::Wait),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        8 => (arbitrary::phase(), weighted(0.6, 1..5i32)).prop_map(|(phase, code)| Change::Phase(phase, code)),
        2 => any::<bool>().prop_map(Change::Ready),
        1 => Just(Change::Restart),
        1 => Just(Change::Schedule),
        2 => Just(Change::Delete),
        1 => Just(Change::Disrupt),
        1 => Just(Change::Strip),
    ]
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        3 => (0..7i32).prop_map(Edit::Parallelism),
        3 => (0..7i32).prop_map(Edit::Completions),
        2 => any::<bool>().prop_map(Edit::Suspend),
        1 => proptest::option::of(select(vec![0, 100, 1_000])).prop_map(Edit::Deadline),
        1 => (0..7i32).prop_map(Edit::BackoffLimit),
        1 => proptest::option::of(0..4i32).prop_map(Edit::LimitPerIndex),
        1 => proptest::option::of(0..4i32).prop_map(Edit::MaxFailedIndexes),
        2 => any::<bool>().prop_map(Edit::ReplaceFailedOnly),
        1 => Just(Edit::Delete),
        2 => arbitrary::status().prop_map(|status| Edit::Status(Box::new(status))),
    ]
}

/// A request without a response yet.
#[derive(Clone, Debug)]
enum Flight {
    /// With the Pods whose success it records by their index: that stands, whatever phase they show before the response.
    Status(Box<StatusWrite>, Vec<PodUid>),
    Release(PodUid, Option<Revision>),
    Delete(PodUid),
    /// Release, then delete.
    Remove(PodUid, Option<Revision>),
    /// With the number of times that the outcome was unknown before.
    Create(NewPod, u32),
}

impl Flight {
    fn pod(&self) -> Option<&PodUid> {
        match self {
            Flight::Release(uid, _) | Flight::Delete(uid) | Flight::Remove(uid, _) => Some(uid),
            Flight::Status(..) | Flight::Create(..) => None,
        }
    }
}

pub struct World {
    pub now: Timestamp,
    revision: u64,
    // The store.
    job: JobView,
    pods: BTreeMap<PodUid, PodView>,
    versions: Vec<PodView>,
    numbers: u128,
    // What the ledger has requested, and what it knows.
    pub ledger: Ledger,
    limits: Limits,
    flights: Vec<Flight>,
    unknown: BTreeMap<CompactString, UnknownCreation>,
    known: BTreeMap<PodUid, PodView>,
    /// A request was refused, and no newer version of the Pod has been observed since.
    refused: BTreeSet<PodUid>,
    /// The response to the request for its removal was lost, and no newer version has been observed since.
    unknown_removals: BTreeSet<PodUid>,
    /// Gone according to a response; the stream has yet to show it.
    buried: BTreeSet<PodUid>,
    /// Gone according to the stream, which never shows them again.
    forgotten: BTreeSet<PodUid>,
    // What the ledger may remember although a fresh one could not know it.
    /// Ends of Pods that affected the back-off.
    endings: BTreeSet<Ending>,
    /// Observed as Succeeded, and not recorded, while their index was complete.
    index_counted: BTreeSet<PodUid>,
    pub memory: Memory,
}

impl World {
    pub fn new(mut job: JobView, limits: Limits) -> Self {
        job.revision = Revision(1);
        let mut world = Self {
            now: NOW,
            revision: 1,
            ledger: Ledger::new(Arc::new(job.clone()), limits),
            job,
            pods: BTreeMap::new(),
            versions: Vec::new(),
            numbers: 0,
            limits,
            flights: Vec::new(),
            unknown: BTreeMap::new(),
            known: BTreeMap::new(),
            refused: BTreeSet::new(),
            unknown_removals: BTreeSet::new(),
            buried: BTreeSet::new(),
            forgotten: BTreeSet::new(),
            endings: BTreeSet::new(),
            index_counted: BTreeSet::new(),
            memory: Memory::default(),
        };
        world.remember();
        world
    }

    /// What the ledger must know, as of some later time.
    pub fn facts(&self, now: Timestamp) -> Facts {
        Facts {
            job: JobView::clone(self.ledger.job()),
            pods: self.known.values().cloned().collect(),
            now,
            limits: self.limits,
            window: 256,
            pods_at: Revision(u64::MAX),
            jobs_at: Revision(u64::MAX),
            unknown: self.unknown.values().cloned().collect(),
            unknown_removals: self.unknown_removals.clone(),
        }
    }

    /// Whether the size of the next batch of creations can be told: after a failed one it is small, and creations of
    /// unknown outcome may fill it.
    pub fn batch_is_derivable(&self) -> bool {
        self.unknown.is_empty() || !self.memory.failed_creations
    }

    /// Whether the ledger has no reason to wait other than what its Pods show.
    pub fn waits_are_derivable(&self) -> bool {
        self.refused.is_empty() && !self.memory.failed_creations && endings(&self.facts(self.now)) == self.endings
    }

    /// Whether each success that the ledger considers booked is still as it was. If not (the Pod's phase changed, or a
    /// scale-down dropped the index), only memory contains it, and a fresh ledger would count the Pod again.
    pub fn bookings_are_derivable(&self) -> bool {
        let status = &self.ledger.job().status;
        let completed = text::read(&status.completed_indexes, self.ledger.job().spec.index_limit());
        self.index_counted
            .iter()
            .filter_map(|uid| self.known.get(uid))
            .filter(|pod| pod.tracked)
            .all(|pod| pod.phase == Phase::Succeeded && pod.index.is_some_and(|index| completed.contains(&index)))
    }

    pub fn take(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Appear(seed, told) => {
                self.numbers += 1;
                let indexed = self.job.spec.is_indexed();
                let mut pod = arbitrary::pod(self.numbers, seed, indexed);
                pod.finished_at = pod.finished_at.min(self.now);
                pod.deletion_asked_at = pod.deletion_asked_at.map(|at| at.min(self.now));
                if self.pods.values().any(|other| other.name == pod.name) {
                    pod.name = compact_str::format_compact!("other-{}", self.numbers);
                }
                self.bury_namesakes(&pod);
                self.store(pod, *told);
            }
            Step::Change(which, change, told) => {
                if let Some(mut pod) = self.pick(*which) {
                    self.change(&mut pod, change);
                    self.store(pod, *told);
                }
            }
            Step::Vanish(which, told) => {
                if let Some(pod) = self.pick(*which) {
                    self.pods.remove(&pod.uid);
                    if *told == Told::AtOnce {
                        self.show_gone(&pod.uid);
                    }
                }
            }
            Step::Show(which) => {
                if let Some(old) = pick(&self.versions, *which) {
                    match self.pods.get(&old.uid).cloned() {
                        Some(pod) => self.show(&pod),
                        None => self.show_gone(&old.uid),
                    }
                }
            }
            Step::ShowAgain(which) => {
                if let Some(pod) = pick(&self.versions, *which) {
                    self.show(&pod);
                }
            }
            Step::Edit(edit, told) => {
                self.edit(edit);
                if *told == Told::AtOnce {
                    self.ledger.observe_job(Arc::new(self.job.clone()));
                }
            }
            Step::ShowJob => self.ledger.observe_job(Arc::new(self.job.clone())),
            Step::Plan => self.plan()?,
            Step::Answer(which, reply) => {
                if !self.flights.is_empty() {
                    let flight = self.flights.remove(which % self.flights.len());
                    self.answer(flight, *reply);
                }
            }
            Step::Wait(millis) => self.now = self.now + Span::from_millis(*millis),
        }
        self.remember();
        Ok(())
    }

    /// Responds to everything, so that nothing is in flight: the last write did not happen, and the requested Pods exist
    /// or, if responses are lost, may exist.
    pub fn settle(&mut self, creations: Reply) {
        self.ledger.status_unwritten();
        for flight in std::mem::take(&mut self.flights) {
            // Pods without a request are left alone: a response would index them again.
            if let Some(uid) = flight.pod() {
                self.ledger.pod_answered(uid);
            }
            if let Flight::Create(new, times) = flight {
                self.create(&new, times, creations);
            }
        }
        if creations == Reply::Done {
            for UnknownCreation { name, index, times, .. } in std::mem::take(&mut self.unknown).into_values() {
                let new = NewPod { name, index, failure_count: None, ignored_failure_count: 0 };
                self.create(&new, times, Reply::Done);
            }
        }
        self.remember();
    }

    fn remember(&mut self) {
        let facts = self.facts(self.now);
        self.endings.extend(endings(&facts));
        let status = &facts.job.status;
        let completed = text::read(&status.completed_indexes, facts.job.spec.index_limit());
        for pod in &facts.pods {
            let complete = pod.index.is_some_and(|index| completed.contains(&index)) && facts.job.spec.is_indexed();
            let lists = status.uncounted();
            let recorded = lists.succeeded.contains(&pod.uid) || lists.failed.contains(&pod.uid);
            if pod.tracked && pod.phase == Phase::Succeeded && complete && !recorded {
                self.index_counted.insert(pod.uid.clone());
            }
        }
    }

    // ---- the store ----

    fn pick(&self, which: usize) -> Option<PodView> {
        let pods: Vec<&PodView> = self.pods.values().collect();
        pick(&pods, which).cloned()
    }

    fn store(&mut self, mut pod: PodView, told: Told) -> PodView {
        self.revision += 1;
        pod.revision = Revision(self.revision);
        self.pods.insert(pod.uid.clone(), pod.clone());
        self.versions.push(pod.clone());
        if told == Told::AtOnce {
            self.show(&pod);
        }
        pod
    }

    /// A name is free again once its Pod is gone, and the stream shows the two events in this order.
    fn bury_namesakes(&mut self, pod: &PodView) {
        let namesakes = self.known.values().filter(|known| known.name == pod.name && known.uid != pod.uid);
        for uid in namesakes.map(|known| known.uid.clone()).collect::<Vec<_>>() {
            self.show_gone(&uid);
        }
    }

    fn change(&self, pod: &mut PodView, change: &Change) {
        match change {
            Change::Phase(phase, code) => {
                if phase.is_terminal() && !pod.phase.is_terminal() {
                    pod.finished_at = self.now;
                }
                pod.phase = *phase;
                pod.ready &= !phase.is_terminal();
                if let (Phase::Failed, Some(code)) = (phase, code) {
                    pod.exits = [tally_core::pod::Exit { container: "main".into(), code: *code }].into_iter().collect();
                }
            }
            Change::Ready(ready) => {
                pod.ready = *ready && !pod.phase.is_terminal();
                pod.ready_changed_at = Some(self.now);
            }
            Change::Restart => {
                pod.restarts.regular += 1;
                pod.restarts.sum += 1;
            }
            Change::Schedule => pod.scheduled = true,
            Change::Delete => self.delete(pod),
            Change::Disrupt => pod.conditions.push(("DisruptionTarget".into(), "True".into())),
            Change::Strip => pod.tracked = false,
        }
    }

    fn delete(&self, pod: &mut PodView) {
        if !pod.deleting() {
            pod.deletion_asked_at = Some(self.now);
            if !pod.phase.is_terminal() {
                pod.finished_at = self.now;
            }
        }
    }

    fn edit(&mut self, edit: &Edit) {
        let spec: &mut JobSpec = Arc::make_mut(&mut self.job.spec);
        match edit {
            Edit::Parallelism(parallelism) => spec.parallelism = *parallelism,
            Edit::Completions(completions) => spec.completions = spec.completions.map(|_| *completions),
            Edit::Suspend(suspend) => spec.suspend = *suspend,
            Edit::Deadline(deadline) => spec.active_deadline_seconds = *deadline,
            Edit::BackoffLimit(limit) => spec.backoff_limit = *limit,
            Edit::LimitPerIndex(limit) => spec.backoff_limit_per_index = *limit,
            Edit::MaxFailedIndexes(limit) => spec.max_failed_indexes = *limit,
            Edit::ReplaceFailedOnly(failed_only) => {
                spec.pod_replacement_policy = match failed_only {
                    true => PodReplacementPolicy::Failed,
                    false => PodReplacementPolicy::TerminatingOrFailed,
                };
            }
            Edit::Delete => self.job.deleting = true,
            Edit::Status(status) => self.job.status = (**status).clone(),
        }
        self.revision += 1;
        self.job.revision = Revision(self.revision);
    }

    // ---- what the ledger observes ----

    fn show(&mut self, pod: &PodView) {
        if self.forgotten.contains(&pod.uid) {
            return;
        }
        self.ledger.observe_pod(pod, self.now);
        if self.buried.contains(&pod.uid) {
            return;
        }
        if !self.known.contains_key(&pod.uid) {
            self.unknown.remove(&pod.name);
        }
        let known = self.known.entry(pod.uid.clone()).or_insert_with(|| pod.clone());
        if known.revision < pod.revision {
            self.refused.remove(&pod.uid);
            self.unknown_removals.remove(&pod.uid);
        }
        if known.revision <= pod.revision {
            known.clone_from(pod);
        }
    }

    fn show_gone(&mut self, uid: &PodUid) {
        self.ledger.pod_gone(uid, Revision(self.revision));
        self.refused.remove(uid);
        self.unknown_removals.remove(uid);
        self.known.remove(uid);
        self.buried.remove(uid);
        self.forgotten.insert(uid.clone());
    }

    /// A response shows it.
    fn show_vanished(&mut self, uid: &PodUid) {
        self.ledger.pod_gone_by_response(uid);
        self.refused.remove(uid);
        self.unknown_removals.remove(uid);
        if self.known.remove(uid).is_some() {
            self.buried.insert(uid.clone());
        }
    }

    // ---- what the ledger requests ----

    fn plan(&mut self) -> Result<(), String> {
        let facts = self.facts(self.now);
        let plan = compare::plan(&mut self.ledger, &facts);
        let again = compare::plan(&mut self.ledger, &facts);
        if !again.is_empty() {
            return Err(format!("planned twice: {again:?}"));
        }
        let Plan { status, releases, deletions, removals, creations, .. } = plan;
        for uid in releases.iter().chain(&deletions).map(|pod| &pod.uid).chain(removals.iter().map(|pod| &pod.uid)) {
            if !self.known.contains_key(uid) || self.flights.iter().any(|flight| flight.pod() == Some(uid)) {
                return Err(format!("{uid} is unknown, or something is asked of it already"));
            }
        }
        if let Some(write) = status {
            if self.flights.iter().any(|flight| matches!(flight, Flight::Status(..))) {
                return Err("two status writes in flight".to_owned());
            }
            if crate::ledger_equals_reference::may_be_written(&facts) {
                check_rules(&facts.job, &write.status)?;
            }
            let completed = text::read(&write.status.completed_indexes, facts.job.spec.index_limit());
            let succeeded = facts.pods.iter().filter(|pod| pod.tracked && pod.phase == Phase::Succeeded);
            let booked = succeeded.filter(|pod| pod.index.is_some_and(|index| completed.contains(&index)));
            let booked = booked.map(|pod| pod.uid.clone()).collect();
            self.flights.push(Flight::Status(write, booked));
        }
        self.flights.extend(releases.into_iter().map(|pod| Flight::Release(pod.uid, pod.revision)));
        self.flights.extend(deletions.into_iter().map(|pod| Flight::Delete(pod.uid)));
        self.flights.extend(
            removals.into_iter().map(|pod| Flight::Remove(pod.uid, Some(pod.revision).filter(|_| pod.tracked))),
        );
        for new in creations {
            let times = self.unknown.remove(&new.name).map_or(0, |unknown| unknown.times);
            self.flights.push(Flight::Create(new, times));
        }
        Ok(())
    }

    fn answer(&mut self, flight: Flight, reply: Reply) {
        match flight {
            Flight::Status(write, booked) => self.answer_status(*write, booked, reply),
            Flight::Create(new, times) => self.create(&new, times, reply),
            Flight::Release(uid, revision) => self.answer_about(&uid, revision, reply, |_, pod| pod.tracked = false),
            Flight::Delete(uid) => self.answer_about(&uid, None, reply, Self::delete),
            Flight::Remove(uid, None) => self.answer_about(&uid, None, reply, Self::delete),
            Flight::Remove(uid, Some(revision)) => {
                let unchanged = self.pods.get(&uid).is_some_and(|pod| pod.revision == revision);
                if unchanged && matches!(reply, Reply::Done | Reply::DoneStreamFirst) {
                    let mut pod = self.pods[&uid].clone();
                    pod.tracked = false;
                    self.store(pod, Told::AtOnce);
                    self.ledger.removal_released(&uid);
                    self.flights.push(Flight::Remove(uid, None));
                } else {
                    if unchanged && reply == Reply::Lost && self.known.contains_key(&uid) {
                        self.unknown_removals.insert(uid.clone());
                        self.ledger.removal_unknown(&uid);
                    }
                    self.answer_about(&uid, Some(revision), reply, |_, pod| pod.tracked = false);
                }
            }
        }
    }

    fn answer_status(&mut self, write: StatusWrite, booked: Vec<PodUid>, reply: Reply) {
        if write.base != self.job.revision || matches!(reply, Reply::Refused | Reply::Taken) {
            self.ledger.status_unwritten();
            return;
        }
        self.revision += 1;
        self.job.revision = Revision(self.revision);
        self.job.status = write.status;
        let job = Arc::new(self.job.clone());
        if reply == Reply::DoneStreamFirst {
            self.ledger.observe_job(job.clone());
        }
        if reply == Reply::Lost {
            self.ledger.status_unwritten();
        } else {
            self.ledger.status_written(job, self.now);
            self.index_counted.extend(booked);
        }
    }

    fn answer_about(
        &mut self,
        uid: &PodUid,
        only_at: Option<Revision>,
        reply: Reply,
        act: impl FnOnce(&Self, &mut PodView),
    ) {
        let Some(mut pod) = self.pods.get(uid).cloned() else {
            self.show_vanished(uid);
            return;
        };
        let conflict = only_at.is_some_and(|revision| revision != pod.revision);
        if conflict || matches!(reply, Reply::Refused | Reply::Taken) {
            self.refuse(uid);
            return;
        }
        act(self, &mut pod);
        if reply == Reply::Lost {
            self.store(pod, Told::NotYet);
            self.refuse(uid);
            return;
        }
        let pod = self.store(pod, Told::NotYet);
        // A response is applied only to a Pod that the ledger still knows.
        if self.known.contains_key(uid) {
            self.show(&pod);
        }
        self.refused.remove(uid);
        self.ledger.pod_answered(uid);
    }

    fn refuse(&mut self, uid: &PodUid) {
        self.memory.early_wakes = true;
        self.refused.insert(uid.clone());
        self.ledger.pod_refused(uid, self.now);
    }

    fn create(&mut self, new: &NewPod, times: u32, reply: Reply) {
        match reply {
            // The refusal says nothing about the attempts before it.
            Reply::Refused if times > 0 => {
                self.lose(new, times);
                self.ledger.creation_failed(&new.name, self.now);
                return;
            }
            Reply::Refused => {
                self.memory.failed_creations = true;
                self.ledger.creation_failed(&new.name, self.now);
                return;
            }
            Reply::Taken => {
                self.memory.burned_names = true;
                self.ledger.name_taken(&new.name);
                return;
            }
            Reply::Done | Reply::DoneStreamFirst | Reply::Lost => {}
        }
        let made = match self.pods.values().find(|pod| pod.name == new.name).cloned() {
            Some(made) => made,
            None => {
                let pod = self.new_pod(new);
                self.bury_namesakes(&pod);
                self.store(pod, Told::NotYet)
            }
        };
        if reply == Reply::Lost {
            self.lose(new, times);
            self.ledger.creation_unknown(&new.name, self.now);
            return;
        }
        if reply == Reply::DoneStreamFirst {
            let mut pod = made.clone();
            pod.scheduled = true;
            self.store(pod, Told::AtOnce);
        }
        // If the stream has already shown the Pod and its deletion, the response is outdated.
        let gone = self.forgotten.contains(&made.uid);
        self.ledger.created(&made, Revision(if gone { u64::MAX } else { 0 }), self.now);
        self.unknown.remove(&made.name);
        if !gone {
            self.show(&made);
        }
    }

    /// The outcome is unknown, unless the stream has shown the Pod.
    fn lose(&mut self, new: &NewPod, times: u32) {
        if !self.known.values().any(|pod| pod.name == new.name) {
            let retry_at = self.now + Span::from_seconds(1 << times.min(6));
            let (name, index) = (new.name.clone(), new.index);
            self.unknown.insert(name.clone(), UnknownCreation { name, index, retry_at, times: times + 1 });
        }
    }

    fn new_pod(&mut self, new: &NewPod) -> PodView {
        self.numbers += 1;
        arbitrary::plain_pod(self.numbers, |pod| {
            pod.name = new.name.clone();
            pod.phase = Phase::Pending;
            pod.scheduled = false;
            pod.finished_at = self.now;
            pod.index = new.index;
            pod.failure_count = new.failure_count.unwrap_or(0);
            pod.ignored_failure_count = new.ignored_failure_count;
        })
    }
}

fn pick<T: Clone>(from: &[T], which: usize) -> Option<T> {
    (!from.is_empty()).then(|| from[which % from.len()].clone())
}
