//! Consistent lists of the Pods of a few Jobs, for those that cannot wait for the stream: another leader has changed
//! their accounting, or the outcome of a creation must be determined.
//!
//! One list is in flight at a time. Jobs that need one meanwhile wait for the next, which is for all of them together;
//! so another leader that writes without pause costs one list after the other at most, and each Job one per
//! [`LIST_INTERVAL`].

use std::collections::HashMap;
use std::sync::Arc;

use tally_core::ids::JobUid;
use tally_core::job::CONTROLLER_UID_LABEL;
use tally_core::mutation::Mutation;
use tally_core::pod::PodView;
use tally_core::time::{Span, Timestamp};

use super::{FixedState, JobController, JobSlot, Pending};
use crate::wire::{Action, Answer};
use tally_runtime::cache;
use tally_runtime::controller::Outbox;

/// The maximum number of Jobs in one list: a request line of two kilobytes passes every proxy.
const LIST_JOBS: usize = 50;
/// The minimum interval between lists of the Pods of the same Job. The stream delivers them too.
const LIST_INTERVAL: Span = Span::from_seconds(1);
/// No delay is longer than this, even if the clock has stepped back.
const LIST_PATIENCE: Span = Span::from_seconds(64);

impl<S: Mutation> JobController<S> {
    /// Requests a list of this Job's Pods, now or at the returned time.
    pub(super) fn want_list(&mut self, slot: JobSlot, now: Timestamp) -> Option<Timestamp> {
        let next_ticket = self.next_list_ticket;
        let tracked = self.tracked_mut(slot)?;
        if tracked.listing || tracked.list_ticket.is_some() {
            return None;
        }
        let wait_until = tracked.list_retry_at.filter(|at| *at > now && *at - now <= LIST_PATIENCE);
        if wait_until.is_none() {
            tracked.list_ticket = Some(next_ticket);
            let uid = tracked.view.uid.clone();
            self.next_list_ticket += 1;
            self.to_list.insert(next_ticket, uid);
        }
        wait_until
    }

    /// The list is not needed: the stream was faster, or the Job is gone.
    pub(super) fn want_no_list(&mut self, slot: JobSlot) {
        if let Some(ticket) = self.tracked_mut(slot).and_then(|tracked| tracked.list_ticket.take()) {
            self.to_list.remove(&ticket);
        }
    }

    /// Requests the next list, unless one is in flight. Called last, so that the list is for all Jobs that need one.
    pub(super) fn ask_for_list(&mut self, out: &mut Outbox) {
        if self.list_under_way {
            return;
        }
        let by_uid = |controller: &Self, uid: &JobUid| {
            let slot = controller.slot_of(uid)?;
            Some(controller.tracked(slot)?.view.selects_itself_by(CONTROLLER_UID_LABEL))
        };
        let Some(first) = self.to_list.values().next() else {
            return;
        };
        let tickets: Vec<u64> = if by_uid(self, first) == Some(true) {
            let alike = self.to_list.iter().filter(|(_, uid)| by_uid(self, uid) == Some(true));
            alike.map(|(ticket, _)| *ticket).take(LIST_JOBS).collect()
        } else {
            // A selector of its own: the Pods of other Jobs cannot be listed with it.
            self.to_list.keys().copied().take(1).collect()
        };
        let mut jobs = Vec::new();
        let mut views = Vec::new();
        for ticket in tickets {
            let Some(uid) = self.to_list.remove(&ticket) else {
                continue;
            };
            let Some(tracked) = self.slot_of(&uid).and_then(|slot| self.tracked_mut(slot)) else {
                continue;
            };
            tracked.list_ticket = None;
            tracked.listing = true;
            if let Some(ledger) = &mut tracked.ledger {
                ledger.list_begins();
            }
            views.push(tracked.view.clone());
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
        self.list_under_way = true;
        self.send(out, Pending::ListPods { jobs }, Action::ListPods { namespace, selector });
    }

    pub(super) fn list_answered(&mut self, jobs: Vec<JobUid>, answer: Answer, now: Timestamp, out: &mut Outbox) {
        self.list_under_way = false;
        let listed = if let Answer::Pods { pods, at } = answer { Some((pods, at)) } else { None };
        self.list_failures = if listed.is_some() { 0 } else { self.list_failures.saturating_add(1) };
        let failures = self.list_failures;
        let retry_at = if failures == 0 { now + LIST_INTERVAL } else { cache::retry_at(now, failures) };
        for job in &jobs {
            if let Some(tracked) = self.slot_of(job).and_then(|slot| self.tracked_mut(slot)) {
                tracked.listing = false;
                tracked.list_retry_at = Some(retry_at);
            }
        }
        let Some((pods, at)) = listed else {
            for slot in jobs.iter().filter_map(|job| self.slot_of(job)).collect::<Vec<_>>() {
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
                self.hear_of_pod(pod, now, out);
            }
        }
        for job in jobs {
            if loose && let Some(slot) = self.slot_of(&job) {
                let idle = |tracked: &super::JobRecord<S>| tracked.adopting.is_empty() && tracked.adoptions.is_empty();
                if self.tracked(slot).is_some_and(idle) {
                    self.consider_adoptions(slot, out);
                }
            }
            let pods = by_job.remove(&job).unwrap_or_default();
            self.pods_listed(&job, pods, at, now, out);
        }
    }
}
