//! Consistent lists of the Pods of a few Jobs, for those that cannot wait for the stream: another leader has changed
//! their accounting, or the outcome of a creation must be determined.
//!
//! One list is in flight at a time. Jobs that need one meanwhile wait for the next, which is for all of them together;
//! so another leader that writes without pause costs one list after the other at most, and each Job one per
//! [`LIST_INTERVAL`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tally_core::ids::JobUid;
use tally_core::job::CONTROLLER_UID_LABEL;
use tally_core::pod::PodView;
use tally_core::time::{Span, Timestamp};

use super::table::{JobRecord, JobSlot};
use super::{FixedState, JobController, Pending};
use crate::wire::{Action, Answer};
use tally_runtime::cache;
use tally_runtime::controller::Outbox;

/// The maximum number of Jobs in one list: a request line of two kilobytes passes every proxy.
const LIST_JOBS: usize = 50;
/// The minimum interval between lists of the Pods of the same Job. The stream delivers them too.
const LIST_INTERVAL: Span = Span::from_seconds(1);
/// No delay is longer than this, even if the clock has stepped back.
const LIST_PATIENCE: Span = Span::from_seconds(64);

/// Jobs whose Pods are to be listed.
#[derive(Debug, Default)]
pub(super) struct PodListQueue {
    /// In the order of their tickets.
    waiting: BTreeMap<u64, JobUid>,
    next_ticket: u64,
    under_way: bool,
    /// Consecutive lists that failed.
    failures: u32,
}

impl JobController {
    /// Requests a list of this Job's Pods, now or at the returned time.
    pub(super) fn want_list(&mut self, slot: JobSlot, now: Timestamp) -> Option<Timestamp> {
        let next_ticket = self.pod_lists.next_ticket;
        let record = self.jobs.get_mut(slot)?;
        if record.listing || record.list_ticket.is_some() {
            return None;
        }
        let wait_until = record.list_retry_at.filter(|at| *at > now && *at - now <= LIST_PATIENCE);
        if wait_until.is_none() {
            record.list_ticket = Some(next_ticket);
            let uid = record.view.uid.clone();
            self.pod_lists.next_ticket += 1;
            self.pod_lists.waiting.insert(next_ticket, uid);
        }
        wait_until
    }

    /// The list is not needed: the stream was faster, or the Job is gone.
    pub(super) fn want_no_list(&mut self, slot: JobSlot) {
        if let Some(ticket) = self.jobs.get_mut(slot).and_then(|record| record.list_ticket.take()) {
            self.pod_lists.waiting.remove(&ticket);
        }
    }

    /// Requests the next list, unless one is in flight. Called last, so that the list is for all Jobs that need one.
    pub(super) fn ask_for_list(&mut self, out: &mut Outbox) {
        if self.pod_lists.under_way {
            return;
        }
        let by_uid = |controller: &Self, uid: &JobUid| {
            let slot = controller.jobs.slot_of(uid)?;
            Some(controller.jobs.get(slot)?.view.selects_itself_by(CONTROLLER_UID_LABEL))
        };
        let Some(first) = self.pod_lists.waiting.values().next() else {
            return;
        };
        let tickets: Vec<u64> = if by_uid(self, first) == Some(true) {
            let alike = self.pod_lists.waiting.iter().filter(|(_, uid)| by_uid(self, uid) == Some(true));
            alike.map(|(ticket, _)| *ticket).take(LIST_JOBS).collect()
        } else {
            // A selector of its own: the Pods of other Jobs cannot be listed with it.
            self.pod_lists.waiting.keys().copied().take(1).collect()
        };
        let mut jobs = Vec::new();
        let mut views = Vec::new();
        for ticket in tickets {
            let Some(uid) = self.pod_lists.waiting.remove(&ticket) else {
                continue;
            };
            let Some(record) = self.jobs.slot_of(&uid).and_then(|slot| self.jobs.get_mut(slot)) else {
                continue;
            };
            record.list_ticket = None;
            record.listing = true;
            if let Some(ledger) = &mut record.ledger {
                ledger.list_begins();
            }
            views.push(record.view.clone());
            jobs.push(uid);
        }
        let Some(first) = views.first() else {
            return;
        };
        let alone = views.iter().all(|view| view.namespace == first.namespace);
        let namespace = if alone { first.namespace.clone() } else { "".into() };
        let selector = if first.selects_itself_by(CONTROLLER_UID_LABEL) {
            let uids: Vec<String> = jobs.iter().map(ToString::to_string).collect();
            format!("{CONTROLLER_UID_LABEL} in ({})", uids.join(","))
        } else {
            first.spec.selector.to_string()
        };
        self.pod_lists.under_way = true;
        self.send(out, Pending::ListPods { jobs }, Action::ListPods { namespace, selector });
    }

    pub(super) fn list_answered(&mut self, jobs: Vec<JobUid>, answer: Answer, now: Timestamp, out: &mut Outbox) {
        self.pod_lists.under_way = false;
        let listed = if let Answer::Pods { pods, at } = answer { Some((pods, at)) } else { None };
        self.pod_lists.failures = if listed.is_some() { 0 } else { self.pod_lists.failures.saturating_add(1) };
        let failures = self.pod_lists.failures;
        let retry_at = if failures == 0 { now + LIST_INTERVAL } else { cache::retry_at(now, failures) };
        for job in &jobs {
            if let Some(record) = self.jobs.slot_of(job).and_then(|slot| self.jobs.get_mut(slot)) {
                record.listing = false;
                record.list_retry_at = Some(retry_at);
            }
        }
        let Some((pods, at)) = listed else {
            for slot in jobs.iter().filter_map(|job| self.jobs.slot_of(job)).collect::<Vec<_>>() {
                self.plan(slot, now, out);
            }
            return;
        };
        let mut by_job: HashMap<JobUid, Vec<Arc<PodView>>, FixedState> = HashMap::default();
        let mut loose = false;
        for pod in pods {
            if let Some(job) = pod.job() {
                by_job.entry(job.clone()).or_default().push(pod);
            } else if pod.controller.is_none() {
                // The Pod may have to be adopted, before another one is created in its place.
                loose = true;
                self.observe_response(pod, now, out);
            }
        }
        for job in jobs {
            if loose && let Some(slot) = self.jobs.slot_of(&job) {
                let idle = |record: &JobRecord| record.adopting.is_empty() && record.adoptions.is_empty();
                if self.jobs.get(slot).is_some_and(idle) {
                    self.consider_adoptions(slot, out);
                }
            }
            let pods = by_job.remove(&job).unwrap_or_default();
            self.pods_listed(&job, pods, at, now, out);
        }
    }
}
