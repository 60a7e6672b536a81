//! CronJobs: a Job for every scheduled time, once.
//!
//! The name of a Job contains its scheduled time, so that two controllers, or one that was killed and restarted, can
//! request it any number of times: there will be one. Nothing else has to be remembered: a Job whose time is later than
//! `lastScheduleTime` is added to the status by the first controller that observes it (`plan::status`), and no Job is
//! cleaned up before that. Before a Job is created the CronJob is read again, because the stream may be behind.
//!
//! There is one request at a time for each CronJob; `step` examines everything again after each response and each
//! change.

mod bodies;
mod plan;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use compact_str::CompactString;
use tally_core::cron::CronTiming;
use tally_core::ids::Revision;
use tally_core::time::Timestamp;

use plan::{Memory, Note};
use tally_runtime::cache::{CacheChange, Meta, ObjectCache, RequestsInFlight, retry_at};
use tally_runtime::controller::{Call, Controller, Event, Input, Kind, Outbox, Reference, Reply, Stream, Verb};
use view::{Child, CronJob, Policy};

/// The maximum number of requests in flight, and so of CronJobs in progress.
const IN_FLIGHT: usize = 64;

type Uid = CompactString;

#[derive(Default)]
pub struct CronJobs {
    crons: BTreeMap<Uid, CronJobRecord>,
    /// Jobs that a CronJob controls.
    jobs: ObjectCache<Child>,
    /// The revision up to which their stream has been observed.
    jobs_at: Revision,
    /// Jobs in responses that arrived in the middle of a list. Only at its end is it known whether the list is older
    /// than they are.
    held: Vec<Child>,
    /// Namespace and name of each Job, by the UID of its CronJob.
    children: BTreeMap<Uid, BTreeSet<(CompactString, CompactString)>>,
    /// When to check a CronJob again. Includes those that are due and wait for their turn.
    timers: BTreeSet<(Timestamp, Uid)>,
    asked: RequestsInFlight<(Uid, Purpose)>,
    epoch: u32,
}

struct CronJobRecord {
    cron: CronJob,
    epoch: u32,
    busy: bool,
    timer: Option<Timestamp>,
    failures: u32,
    /// When it was last read, and at which revision it was.
    confirmed: Option<(Revision, Timestamp)>,
    /// A write was refused: it is read before anything else, and may turn out to be gone.
    doubted: bool,
    memory: Memory,
    /// A Job that should not exist, unless a read of the CronJob explains it.
    suspect: Option<Uid>,
    /// The last Event about a scheduled time or a revision, so that it is recorded once.
    noted: Option<(i64, &'static str)>,
    /// A time whose Job cannot be created: the name is taken.
    blocked: Option<Timestamp>,
}

/// What a request is for.
enum Purpose {
    /// Events to record once the status is written.
    Status(Vec<Note>),
    Look,
    /// Does this active Job exist?
    Find {
        job: Uid,
    },
    Prune {
        job: Uid,
        name: CompactString,
    },
    Replace {
        job: Uid,
        name: CompactString,
    },
    Create {
        slot: Timestamp,
        name: String,
    },
    /// Which owner has the Job that already has the name?
    Whose {
        slot: Timestamp,
    },
}

impl CronJobs {
    fn cron_observed(&mut self, bytes: &[u8], now: Timestamp) {
        let Some(cron) = CronJob::read(bytes) else { return };
        let (uid, epoch) = (cron.uid.clone(), self.epoch);
        match self.crons.get_mut(&uid) {
            Some(tracked) => {
                tracked.epoch = epoch;
                if tracked.cron.revision > cron.revision {
                    return;
                }
                tracked.cron = cron;
            }
            None => {
                let tracked = CronJobRecord {
                    cron,
                    epoch,
                    busy: false,
                    timer: None,
                    failures: 0,
                    confirmed: None,
                    doubted: false,
                    memory: Memory::default(),
                    suspect: None,
                    noted: None,
                    blocked: None,
                };
                self.crons.insert(uid.clone(), tracked);
            }
        }
        self.arm(&uid, Some(now));
    }

    fn forget(&mut self, uid: &str) {
        if let Some(timer) = self.crons.remove(uid).and_then(|tracked| tracked.timer) {
            self.timers.remove(&(timer, uid.into()));
        }
    }

    fn crons_listed(&mut self) {
        let epoch = self.epoch;
        let missing = self.crons.iter().filter(|(_, tracked)| tracked.epoch != epoch);
        let missing: Vec<Uid> = missing.map(|(uid, _)| uid.clone()).collect();
        missing.iter().for_each(|uid| self.forget(uid));
    }

    /// Takes over a Job as it is now, and returns its revision.
    fn job_observed(&mut self, bytes: &[u8], now: Timestamp) -> Option<Revision> {
        match Child::read(bytes) {
            Ok(child) => Some(self.file(child, now)),
            // A CronJob may have controlled it until now.
            Err(Some(meta)) => {
                self.job_gone(&meta, now);
                Some(meta.revision())
            }
            Err(None) => None,
        }
    }

    fn file(&mut self, child: Child, now: Timestamp) -> Revision {
        let revision = child.meta.revision();
        let (owner, place) = (child.owner.clone(), (child.meta.namespace.clone(), child.meta.name.clone()));
        if let CacheChange::Changed(before) = self.jobs.observe(child)
            && before.owner != owner
        {
            self.unlink(&before, now);
        }
        self.children.entry(owner.clone()).or_default().insert(place);
        self.arm(&owner, Some(now));
        revision
    }

    /// A Job in a response. False: the stream is already as far, and may have shown its end since.
    fn job_answered(&mut self, child: Child, now: Timestamp) -> bool {
        if !self.jobs.is_complete() {
            // The list may be from a time when the Job had been created and deleted. Nothing is decided before its end
            // anyway.
            self.held.push(child);
            return true;
        }
        if child.meta.revision() > self.jobs_at {
            self.file(child, now);
            return true;
        }
        let known = self.jobs.get(&child.meta.namespace, &child.meta.name);
        known.is_some_and(|known| known.meta.uid == child.meta.uid)
    }

    fn job_gone(&mut self, meta: &Meta, now: Timestamp) {
        if let Some(child) = self.jobs.gone(meta) {
            self.unlink(&child, now);
        }
    }

    fn unlink(&mut self, child: &Child, now: Timestamp) {
        if let Some(places) = self.children.get_mut(&child.owner) {
            places.remove(&(child.meta.namespace.clone(), child.meta.name.clone()));
            if places.is_empty() {
                self.children.remove(&child.owner);
            }
        }
        if let Some(tracked) = self.crons.get_mut(&child.owner) {
            tracked.memory.forget(&child.meta.uid);
        }
        self.arm(&child.owner.clone(), Some(now));
    }

    fn jobs_listed(&mut self, at: Revision, now: Timestamp) {
        for child in self.jobs.list_ends(at) {
            self.unlink(&child, now);
        }
        for child in std::mem::take(&mut self.held) {
            self.job_answered(child, now);
        }
        self.look_at_all(now);
    }

    fn look_at_all(&mut self, now: Timestamp) {
        let all: Vec<Uid> = self.crons.keys().cloned().collect();
        all.iter().for_each(|uid| self.arm(uid, Some(now)));
    }

    /// A CronJob with a request in flight has no timer: the response will set it.
    fn arm(&mut self, uid: &str, at: Option<Timestamp>) {
        let Some(tracked) = self.crons.get_mut(uid) else { return };
        let wanted = at.filter(|_| !tracked.busy);
        let before = std::mem::replace(&mut tracked.timer, wanted);
        if before == wanted {
            return;
        }
        if let Some(before) = before {
            self.timers.remove(&(before, uid.into()));
        }
        if let Some(at) = wanted {
            self.timers.insert((at, uid.into()));
        }
    }

    fn ask(&mut self, uid: &Uid, purpose: Purpose, call: Call, out: &mut Outbox) {
        if let Some(tracked) = self.crons.get_mut(uid) {
            tracked.busy = true;
            self.asked.ask((uid.clone(), purpose), call, out);
        }
    }

    /// Takes the next step for a CronJob.
    fn step(&mut self, uid: &Uid, now: Timestamp, out: &mut Outbox) {
        // A CronJob cannot be judged without all its Jobs.
        let Some(tracked) = self.crons.get_mut(uid).filter(|_| self.jobs.is_complete()) else { return };
        let cron = &tracked.cron;
        if tracked.doubted {
            let call = bodies::read_cron_job(cron);
            return self.ask(uid, Purpose::Look, call, out);
        }
        let places = self.children.get(uid);
        let children = places.into_iter().flatten().filter_map(|(namespace, name)| self.jobs.get(namespace, name));
        let is_known = |job: &str| children.clone().any(|child| child.meta.uid == job);

        let replacing = tracked.is_replacing(now);
        let (status, notes) = plan::status(cron, children.clone(), &tracked.memory, replacing, now);
        if status != cron.status {
            let call = bodies::write_status(cron, &status);
            return self.ask(uid, Purpose::Status(notes), call, out);
        }
        let unseen = cron
            .status
            .active
            .iter()
            .find(|active| !is_known(&active.uid) && !tracked.memory.replaced.contains(&active.uid));
        if let Some(active) = unseen {
            let call = Call::new(Verb::Get, Kind::JOB, &cron.namespace, &active.name);
            let purpose = Purpose::Find { job: active.uid.clone() };
            return self.ask(uid, purpose, call, out);
        }
        if cron.deleting {
            return;
        }
        if let Some(child) = plan::surplus(cron, children.clone(), &tracked.memory).first() {
            let call = bodies::delete_job(&cron.namespace, &child.meta.name, &child.meta.uid);
            let purpose = Purpose::Prune { job: child.meta.uid.clone(), name: child.meta.name.clone() };
            return self.ask(uid, purpose, call, out);
        }
        if let Some(child) = plan::unexpected(cron, children.clone(), &tracked.memory) {
            let job = child.meta.uid.clone();
            if tracked.suspect.as_ref() != Some(&job) {
                tracked.suspect = Some(job);
                let call = bodies::read_cron_job(cron);
                return self.ask(uid, Purpose::Look, call, out);
            }
            let message = format!("Saw a job that the controller did not create or forgot: {}", child.meta.name);
            tracked.memory.told.insert(job);
            tracked.tell(Note::warning("UnexpectedJob", message), out);
            return self.arm(uid, Some(now));
        }
        if !cron.suspended {
            self.schedule(uid, now, out);
        }
    }

    /// Starts what is due, and sets the timer for the rest.
    fn schedule(&mut self, uid: &Uid, now: Timestamp, out: &mut Outbox) {
        let Some(tracked) = self.crons.get_mut(uid) else { return };
        let cron = &tracked.cron;
        let (slot, next, many) = match plan::timing(cron, now) {
            CronTiming::Due { slot, next, many } => (slot, next, many),
            CronTiming::Wait { next } => return self.arm(uid, next),
            CronTiming::Missed { slot, next } => {
                let message = format!("Missed scheduled time to start a job: {}", bodies::rfc1123(slot));
                tracked.tell_once(slot.seconds(), Note::warning("MissSchedule", message), out);
                return self.arm(uid, next);
            }
            CronTiming::Unreadable { reason, message } => {
                let revision = i64::try_from(cron.revision.0).unwrap_or(i64::MAX);
                tracked.tell_once(revision, Note::warning(reason, message), out);
                return self.arm(uid, None);
            }
        };
        if tracked.blocked == Some(slot) {
            return self.arm(uid, next);
        }
        // Since it became due, another controller may have started it, and later ones too.
        let confirmed = tracked.confirmed.is_some_and(|(revision, at)| revision == cron.revision && at >= slot);
        if !confirmed {
            let call = bodies::read_cron_job(cron);
            return self.ask(uid, Purpose::Look, call, out);
        }
        if cron.policy == Policy::Forbid && !cron.status.active.is_empty() {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            tracked.tell_once(slot.seconds(), Note::normal("JobAlreadyActive", message.to_owned()), out);
            return self.arm(uid, next);
        }
        let mut active = cron.status.active.iter().filter(|_| cron.policy == Policy::Replace);
        if let Some(active) = active.find(|active| !tracked.memory.replaced.contains(&active.uid)) {
            let call = bodies::delete_job(&cron.namespace, &active.name, &active.uid);
            let purpose = Purpose::Replace { job: active.uid.clone(), name: active.name.clone() };
            return self.ask(uid, purpose, call, out);
        }
        let (call, name) = (bodies::create_job(cron, slot), plan::job_name(&cron.name, slot));
        if many {
            let message =
                "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            tracked.tell_once(slot.seconds(), Note::warning("TooManyMissedTimes", message.to_owned()), out);
        }
        self.ask(uid, Purpose::Create { slot, name }, call, out);
    }

    fn answered(&mut self, uid: &Uid, purpose: Purpose, reply: &Reply, now: Timestamp, out: &mut Outbox) {
        let Some(tracked) = self.crons.get_mut(uid) else { return };
        tracked.busy = false;
        let gone = reply.is_not_found();
        let settled = match purpose {
            Purpose::Status(notes) => match reply {
                Reply::Done(bytes) => {
                    notes.into_iter().for_each(|note| tracked.tell(note, out));
                    tracked.memory.missing.clear();
                    tracked.memory.replaced.clear();
                    // Written by us: nothing can be newer.
                    self.look(uid, bytes, now);
                    true
                }
                // The CronJob is gone, or has changed. The stream may never show more than it already has.
                _ => {
                    tracked.doubted = true;
                    false
                }
            },
            Purpose::Look => match reply {
                Reply::Done(bytes) => {
                    self.look(uid, bytes, now);
                    true
                }
                _ if gone => {
                    self.forget(uid);
                    true
                }
                _ => false,
            },
            Purpose::Find { job } => match reply {
                Reply::Done(bytes) => {
                    let child = Child::read(bytes).ok().filter(|child| child.meta.uid == job && child.owner == *uid);
                    match child {
                        Some(child) => self.job_answered(child, now),
                        None => tracked.memory.missing.insert(job),
                    }
                }
                _ if gone => tracked.memory.missing.insert(job),
                _ => false,
            },
            Purpose::Prune { job, name } => match reply {
                _ if reply.is_done() || gone => {
                    if reply.is_done() {
                        tracked.tell(Note::normal("SuccessfulDelete", format!("Deleted job {name}")), out);
                    }
                    self.deleted(uid, job, &name);
                    true
                }
                _ => tracked.delete_failed(reply, out),
            },
            Purpose::Replace { job, name } => match reply {
                _ if reply.is_done() || gone => {
                    if reply.is_done() {
                        tracked.tell(Note::normal("SuccessfulDelete", format!("Deleted job {name}")), out);
                    }
                    tracked.memory.replaced.insert(job.clone());
                    self.deleted(uid, job, &name);
                    true
                }
                _ => tracked.delete_failed(reply, out),
            },
            Purpose::Create { slot, name } => match reply {
                Reply::Done(bytes) => {
                    tracked.tell(Note::normal("SuccessfulCreate", format!("Created job {name}")), out);
                    tracked.memory.started = Some(slot);
                    if let Ok(child) = Child::read(bytes) {
                        self.job_answered(child, now);
                    }
                    true
                }
                Reply::Refused(refusal) if refusal.reason == "AlreadyExists" => {
                    let call = Call::new(Verb::Get, Kind::JOB, &tracked.cron.namespace, &name);
                    return self.ask(uid, Purpose::Whose { slot }, call, out);
                }
                Reply::Refused(refusal) => {
                    let ends = refusal.causes.iter().any(|(_, reason)| reason == "NamespaceTerminating");
                    if !ends {
                        let message = format!("Error creating job: {}", refusal.message);
                        tracked.tell(Note::warning("FailedCreate", message), out);
                    }
                    false
                }
                _ => false,
            },
            Purpose::Whose { slot } => match reply {
                Reply::Done(bytes) => {
                    let child = Child::read(bytes).ok().filter(|child| child.owner == *uid);
                    // Ours and for this time: it is added to the status.
                    match child.as_ref().and_then(|child| child.scheduled_at) == Some(slot) {
                        true => tracked.memory.started = Some(slot),
                        false => tracked.blocked = Some(slot),
                    }
                    match child {
                        Some(child) => {
                            self.job_answered(child, now);
                        }
                        None => {
                            let message = format!(
                                "Error creating job: jobs.batch {:?} already exists",
                                plan::job_name(&tracked.cron.name, slot)
                            );
                            tracked.tell(Note::warning("FailedCreate", message), out);
                        }
                    }
                    true
                }
                _ => gone,
            },
        };
        let Some(tracked) = self.crons.get_mut(uid) else { return };
        let again_at = if settled {
            tracked.failures = 0;
            now
        } else {
            tracked.confirmed = None;
            tracked.failures = tracked.failures.saturating_add(1);
            retry_at(now, tracked.failures - 1)
        };
        self.arm(uid, Some(again_at));
    }

    /// Takes over a CronJob from a response: it is as new as possible. But only the stream shows whether it exists at
    /// all, so a response in the middle of a list does not make it part of the list.
    fn look(&mut self, uid: &Uid, bytes: &[u8], now: Timestamp) {
        let Some(cron) = CronJob::read(bytes) else { return };
        if cron.uid != *uid {
            // The name belongs to another CronJob, which the stream shows, or whose end it has shown.
            return self.forget(uid);
        }
        if let Some(tracked) = self.crons.get_mut(uid).filter(|tracked| tracked.cron.revision <= cron.revision) {
            tracked.confirmed = Some((cron.revision, now));
            tracked.doubted = false;
            tracked.cron = cron;
        }
    }

    /// Remembers a deletion until the stream shows it, unless it already has.
    fn deleted(&mut self, uid: &Uid, job: Uid, name: &str) {
        let Some(tracked) = self.crons.get_mut(uid) else { return };
        let known = self.jobs.get(&tracked.cron.namespace, name);
        if known.is_some_and(|child| child.meta.uid == job) {
            tracked.memory.deleted.insert(job);
        }
    }

    fn proceed(&mut self, now: Timestamp, out: &mut Outbox) {
        while self.asked.len() < IN_FLIGHT
            && let Some((at, _)) = self.timers.first()
            && *at <= now
        {
            let Some((_, uid)) = self.timers.pop_first() else { break };
            if let Some(tracked) = self.crons.get_mut(&uid) {
                tracked.timer = None;
            }
            self.step(&uid, now, out);
        }
        let room = self.asked.len() < IN_FLIGHT;
        out.wake_at = self.timers.first().map(|(at, _)| *at).filter(|_| room);
    }
}

impl CronJobRecord {
    /// Whether the next Job is created at once. Not if it was suspended since, or has another policy, or the API
    /// refuses.
    fn is_replacing(&self, now: Timestamp) -> bool {
        let cron = &self.cron;
        let is_due = || match plan::timing(cron, now) {
            CronTiming::Due { slot, .. } => self.blocked != Some(slot),
            CronTiming::Wait { .. } | CronTiming::Missed { .. } | CronTiming::Unreadable { .. } => false,
        };
        let replaces = cron.policy == Policy::Replace && !cron.suspended && !cron.deleting && self.failures == 0;
        !self.memory.replaced.is_empty() && replaces && is_due()
    }

    fn tell(&self, note: Note, out: &mut Outbox) {
        out.events.push(Event {
            about: Reference {
                kind: Kind::CRON_JOB,
                namespace: self.cron.namespace.clone(),
                name: self.cron.name.clone(),
                uid: self.cron.uid.clone(),
            },
            warning: note.warning,
            reason: note.reason.into(),
            message: note.message,
        });
    }

    fn tell_once(&mut self, of: i64, note: Note, out: &mut Outbox) {
        if self.noted != Some((of, note.reason)) {
            self.noted = Some((of, note.reason));
            self.tell(note, out);
        }
    }

    fn delete_failed(&self, reply: &Reply, out: &mut Outbox) -> bool {
        if let Reply::Refused(refusal) = reply {
            self.tell(Note::warning("FailedDelete", format!("Deleted job: {}", refusal.message)), out);
        }
        false
    }
}

impl Controller for CronJobs {
    fn name(&self) -> &'static str {
        "cronjob-controller"
    }

    fn streams(&self) -> Vec<Stream> {
        vec![Stream::of(Kind::CRON_JOB), Stream::of(Kind::JOB)]
    }

    fn handle(&mut self, input: Input, now: Timestamp, out: &mut Outbox) {
        match input {
            Input::Init(Kind::CRON_JOB) => self.epoch = self.epoch.wrapping_add(1),
            Input::Apply(Kind::CRON_JOB, bytes) => {
                self.cron_observed(&bytes, now);
            }
            Input::Delete(Kind::CRON_JOB, bytes) => {
                if let Some(cron) = CronJob::read(&bytes) {
                    self.forget(&cron.uid);
                }
            }
            Input::InitDone(Kind::CRON_JOB, _) => self.crons_listed(),
            Input::Init(Kind::JOB) => self.jobs.list_begins(),
            Input::Apply(Kind::JOB, bytes) => {
                let at = self.job_observed(&bytes, now);
                // A list is in the order of names: its revisions say nothing.
                if self.jobs.is_complete() {
                    self.jobs_at = self.jobs_at.max(at.unwrap_or_default());
                }
            }
            Input::Delete(Kind::JOB, bytes) => {
                if let Ok(Child { meta, .. }) | Err(Some(meta)) = Child::read(&bytes) {
                    self.jobs_at = self.jobs_at.max(meta.revision());
                    self.job_gone(&meta, now);
                }
            }
            Input::InitDone(Kind::JOB, at) => {
                self.jobs_at = self.jobs_at.max(at);
                self.jobs_listed(at, now);
            }
            Input::Bookmark(Kind::JOB, at) => self.jobs_at = self.jobs_at.max(at),
            Input::Response { request, reply, .. } => {
                if let Some((uid, purpose)) = self.asked.answered(request) {
                    self.answered(&uid, purpose, &reply, now, out);
                }
            }
            Input::ClockSetBack(_) => {
                // A read is dated by the clock: one of a clock that was ahead says nothing about the times that follow.
                self.crons.values_mut().for_each(|tracked| tracked.confirmed = None);
                self.look_at_all(now);
            }
            Input::Tick | Input::Bookmark(..) => {}
            Input::Init(_) | Input::Apply(..) | Input::Delete(..) | Input::InitDone(..) => {}
        }
        self.proceed(now, out);
    }
}

#[cfg(test)]
mod tests;
