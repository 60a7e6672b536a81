//! - G8: in a healed cluster nothing is late. I20 is the same for Jobs (`laws/waits.rs`).
//!
//! Whenever there is nothing to do but wait, this law looks in the store for what a controller has yet to do, and asks
//! whether a controller wakes in time to do it. Clocks that were wrong excuse nothing: they are right again since the
//! world was healed. Only a refusal before that may still delay a retry.

use std::collections::BTreeMap;

use compact_str::CompactString;
use tally_core::time::{Span, Timestamp};
use tally_runtime::controller::Kind;

use crate::archive::{Archive, Version};
use crate::judge::{FOREGROUND, Found, ORPHAN, stays};

/// What a refusal during the faults may still cost: the longest delay before the next attempt, and the attempt itself.
const REFUSED: Span = Span::from_seconds(70);
/// How late anything may be apart from that, and apart from what its controller waits for.
const LATE: Span = Span::from_seconds(2);
/// GC-1: how long the Pod garbage collector collects work.
const PERIOD: Span = Span::from_seconds(20);
/// GC-2: how long it waits for a node to return, and for the next round if a Pod has changed meanwhile.
const QUARANTINE: Span = Span::from_seconds(60);
/// How long CronJobs go on in a healed world: two times that no refusal excuses.
const CRONS_GO_ON: Span = Span::from_seconds(200);

/// What a controller has yet to do, and to which object.
type Task = (&'static str, CompactString);

#[derive(Default)]
pub(crate) struct Punctuality {
    healed_at: Option<Timestamp>,
    /// Since when each task has been open.
    since: BTreeMap<Task, Timestamp>,
    /// When users suspend the CronJobs, if they do not do so at once.
    pub(crate) crons_end_at: Option<Timestamp>,
}

impl Punctuality {
    pub(crate) fn heals(&mut self, now: Timestamp, crons_go_on: bool) {
        self.healed_at = Some(now);
        self.crons_end_at = crons_go_on.then_some(now + CRONS_GO_ON);
    }

    /// `ended_pods`: how many ended Pods may stay.
    pub(crate) fn check(
        &mut self,
        archive: &Archive,
        now: Timestamp,
        wake_at: Option<Timestamp>,
        ended_pods: Option<usize>,
    ) -> Found {
        let excused_until = self.healed_at? + REFUSED;
        let late = |due_at: Timestamp| wake_at.is_none_or(|at| at > due_at.max(excused_until) + LATE);
        let tasks = tasks(archive, ended_pods);
        self.since.retain(|task, _| tasks.iter().any(|(open, ..)| open == task));
        for (task, name, within) in tasks {
            let what = task.0;
            let since = *self.since.entry(task).or_insert(now);
            if late(since + within) {
                let (since, now) = (since.seconds(), now.seconds());
                return Some((
                    "G8",
                    format!("{name} is to be {what} since {since}, it is {now}, next wake {wake_at:?}"),
                ));
            }
        }
        for cron in archive.all(&Kind::CRON_JOB) {
            let Some(due_at) = next_start(archive, cron, now) else { continue };
            let goes_on = self.crons_end_at.is_some_and(|end| due_at.max(excused_until) + LATE < end);
            if goes_on && late(due_at) {
                let (due_at, now) = (due_at.seconds(), now.seconds());
                let text = format!("{} is to start a Job at {due_at}, it is {now}, next wake {wake_at:?}", cron.name);
                return Some(("G8", text));
            }
        }
        None
    }
}

/// What collectors have yet to do, to which object, and how long that may take.
fn tasks(archive: &Archive, ended_pods: Option<usize>) -> Vec<(Task, CompactString, Span)> {
    let mut tasks = Vec::new();
    let mut add = |what: &'static str, object: &Version, within: Span| {
        tasks.push(((what, object.uid().into()), object.name.clone(), within));
    };
    for (_, object) in archive.everything() {
        let owners = object.owners();
        if object.deleting() {
            let blocks = |other: &Version| {
                let mut owners = other.owners().iter();
                owners.any(|owner| owner["uid"] == object.uid() && owner["blockOwnerDeletion"] == true)
            };
            let waits = object.has_finalizer(FOREGROUND);
            let is_free = || !archive.everything().any(|(_, other)| blocks(other));
            if object.has_finalizer(ORPHAN) || waits && is_free() {
                add("removed by the collector", object, Span::ZERO);
            }
        } else if !owners.is_empty() && !owners.iter().any(|owner| stays(archive, object, owner)) {
            add("collected", object, Span::ZERO);
        }
    }
    for pod in archive.all(&Kind::POD) {
        let node = pod.text("/spec/nodeName");
        let goes_at_once = || pod.object()["metadata"]["deletionGracePeriodSeconds"] == 0;
        let is_done = pod.has_ended() && pod.deleting() && goes_at_once();
        if node.is_empty() && pod.deleting() && !pod.has_ended() {
            add("removed without a node", pod, PERIOD);
        } else if !node.is_empty() && !is_done && archive.get(&Kind::NODE, "", node).is_none() {
            add("removed with its node", pod, QUARANTINE);
        }
    }
    let mut ended: Vec<_> = archive.all(&Kind::POD).filter(|pod| pod.has_ended() && !pod.deleting()).collect();
    ended.sort_by_key(|pod| (pod.text("/metadata/creationTimestamp"), &pod.namespace, &pod.name));
    let surplus = ended_pods.map_or(0, |most| ended.len().saturating_sub(most));
    ended.iter().take(surplus).for_each(|pod| add("removed as one of too many", pod, PERIOD));
    tasks
}

/// When a CronJob of a simulated cluster, which has a time every minute, starts its next Job. None: not before something
/// else happens. A clock that was ahead may have started Jobs of times to come: those times, and the ones before them, are
/// not started again, as in Kubernetes.
fn next_start(archive: &Archive, cron: &Version, now: Timestamp) -> Option<Timestamp> {
    let namespace = archive.get(&Kind::NAMESPACE, "", &cron.namespace)?;
    let spec = &cron.object()["spec"];
    let forbids = spec["concurrencyPolicy"] == "Forbid" && !cron.list("/status/active").is_empty();
    if cron.deleting() || namespace.deleting() || spec["suspend"] == true || forbids {
        return None;
    }
    let last = [cron.text("/status/lastScheduleTime"), cron.text("/metadata/creationTimestamp")];
    let last = last.iter().find_map(|text| Timestamp::parse(text).ok())?;
    let minute = |at: Timestamp| at.seconds().div_euclid(60);
    let slot = if minute(last) < minute(now) { minute(now) } else { minute(last) + 1 };
    // An orphan of another CronJob of that name, which had a clock that was ahead.
    let taken = archive.get(&Kind::JOB, &cron.namespace, &format!("{}-{slot}", cron.name)).is_some();
    (!taken).then(|| Timestamp::from_seconds(slot * 60))
}
