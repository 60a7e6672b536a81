//! What to do about a CronJob. Pure: the CronJob, its Jobs and the time in, decisions out.

use std::collections::BTreeSet;

use compact_str::CompactString;
pub use tally_core::cron::job_name;
use tally_core::cron::{CronTimes, CronTiming};
use tally_core::time::Timestamp;

use super::view::{Active, Child, CronJob, Finished, Status};

/// An Event to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Note {
    pub fn normal(reason: &'static str, message: String) -> Self {
        Self { warning: false, reason, message }
    }

    pub fn warning(reason: &'static str, message: String) -> Self {
        Self { warning: true, reason, message }
    }
}

/// What is known in addition to the objects, and may be forgotten.
#[derive(Debug, Default)]
pub struct Memory {
    /// UIDs of active Jobs that are gone according to the server.
    pub missing: BTreeSet<CompactString>,
    /// UIDs of Jobs that were deleted to make room for the next one.
    pub replaced: BTreeSet<CompactString>,
    /// UIDs of Jobs that were deleted, until the stream shows it.
    pub deleted: BTreeSet<CompactString>,
    /// UIDs of Jobs that were reported as unexpected.
    pub told: BTreeSet<CompactString>,
    /// The time whose Job existed when it was requested, even if it is gone since.
    pub started: Option<Timestamp>,
}

impl Memory {
    fn goes(&self, child: &Child) -> bool {
        child.meta.deleting() || self.deleted.contains(&child.meta.uid)
    }

    /// The Job is gone: drops everything that is remembered about it.
    pub fn forget(&mut self, uid: &str) {
        self.deleted.remove(uid);
        self.told.remove(uid);
    }
}

/// The scheduled time of a Job, if it has come and the name of the Job confirms it.
fn is_scheduled(cron: &CronJob, child: &Child, now: Timestamp) -> Option<Timestamp> {
    child.scheduled_at.filter(|slot| *slot <= now && job_name(&cron.name, *slot) == child.meta.name)
}

/// The status that results from the Jobs, and the Events about the changes.
///
/// A Job of a time after the last recorded one is added here: that is how a new Job gets into the status, and how one
/// does whose creator died before it could record it. `replacing`: the next Job is about to be created.
pub fn status<'a>(
    cron: &CronJob,
    children: impl Iterator<Item = &'a Child> + Clone,
    memory: &Memory,
    replacing: bool,
    now: Timestamp,
) -> (Status, Vec<Note>) {
    let mut status = cron.status.clone();
    let mut notes = Vec::new();
    let last = status.last_schedule_time;
    let newer = |child: &&Child| is_scheduled(cron, child, now).is_some_and(|slot| Some(slot) > last);
    // Replaced Jobs are removed by the write that adds the next Job; if there is none, nothing else removes them.
    if !replacing || children.clone().any(|child| newer(&child)) {
        status.active.retain(|active| !memory.replaced.contains(&active.uid));
    }
    for child in children.clone().filter(newer) {
        status.last_schedule_time = status.last_schedule_time.max(child.scheduled_at);
        if child.finished.is_none() && status.active.iter().all(|active| active.uid != child.meta.uid) {
            status.active.push(reference(child));
        }
    }
    status.last_schedule_time = status.last_schedule_time.max(memory.started);
    for child in children {
        let Some(finished) = child.finished else { continue };
        let before = status.active.len();
        status.active.retain(|active| active.uid != child.meta.uid);
        if status.active.len() != before {
            let condition = match finished {
                Finished::Complete { .. } => "Complete",
                Finished::Failed => "Failed",
            };
            let message = format!("Saw completed job: {}, condition: {condition}", child.meta.name);
            notes.push(Note::normal("SawCompletedJob", message));
        }
        if let Finished::Complete { at } = finished {
            status.last_successful_time = status.last_successful_time.max(at);
        }
    }
    status.active.retain(|active| {
        let missing = memory.missing.contains(&active.uid);
        if missing {
            notes.push(Note::normal("MissingJob", format!("Active job went missing: {}", active.name)));
        }
        !missing
    });
    (status, notes)
}

fn reference(child: &Child) -> Active {
    Active {
        api_version: "batch/v1".into(),
        kind: "Job".into(),
        namespace: child.meta.namespace.clone(),
        name: child.meta.name.clone(),
        uid: child.meta.uid.clone(),
        resource_version: child.meta.resource_version.clone(),
    }
}

/// The finished Jobs above the limits, oldest first.
pub fn surplus<'a>(
    cron: &CronJob,
    children: impl Iterator<Item = &'a Child> + Clone,
    memory: &Memory,
) -> Vec<&'a Child> {
    // A Job whose time is not recorded yet must stay: its name prevents it from being created again.
    let recorded = |child: &&Child| child.scheduled_at.is_none_or(|slot| Some(slot) <= cron.status.last_schedule_time);
    let mut surplus = Vec::new();
    for (limit, complete) in [(cron.successful_limit, true), (cron.failed_limit, false)] {
        let Some(limit) = limit else { continue };
        let is_one = |child: &&Child| match child.finished {
            Some(Finished::Complete { .. }) => complete,
            Some(Finished::Failed) => !complete,
            None => false,
        };
        let mut finished: Vec<&Child> = children.clone().filter(is_one).filter(recorded).collect();
        finished.sort_by_key(|child| (child.started_at.is_none(), child.started_at, &child.meta.name));
        let many = finished.len().saturating_sub(limit);
        surplus.extend(finished.into_iter().take(many).filter(|child| !memory.goes(child)));
    }
    surplus
}

/// A running Job that the CronJob controls and that is not recorded.
pub fn unexpected<'a>(
    cron: &CronJob,
    mut children: impl Iterator<Item = &'a Child>,
    memory: &Memory,
) -> Option<&'a Child> {
    children.find(|child| {
        let known = cron.status.active.iter().any(|active| active.uid == child.meta.uid);
        child.finished.is_none() && !memory.goes(child) && !known && !memory.told.contains(&child.meta.uid)
    })
}

pub fn timing(cron: &CronJob, now: Timestamp) -> CronTiming {
    let times = CronTimes {
        schedule: &cron.schedule,
        time_zone: cron.time_zone.as_deref(),
        created_at: cron.created_at,
        last_schedule_time: cron.status.last_schedule_time,
        starting_deadline: cron.starting_deadline,
    };
    times.timing(now)
}
