//! The streams of Jobs and Pods, and timers: how far they have been observed, and what becomes possible with that.

use std::collections::BTreeSet;

use tally_core::ids::{JobUid, PodUid, Revision};
use tally_core::time::Timestamp;

use super::{JobController, Resource, WorkItem, pod_key};
use crate::wire::Object;
use tally_runtime::cache::Meta;
use tally_runtime::controller::{self, Outbox};

/// How far the streams have been observed.
#[derive(Debug, Default)]
pub(super) struct StreamProgress {
    pub jobs_at: Revision,
    pub pods_at: Revision,
    /// The streams whose list is being read.
    listing: BTreeSet<Resource>,
    /// All existing Pods have been observed once.
    pods_listed: bool,
}

impl StreamProgress {
    pub fn jobs_observed(&mut self, at: Revision) {
        self.jobs_at = self.jobs_at.max(at);
    }

    pub fn pods_observed(&mut self, at: Revision) {
        self.pods_at = self.pods_at.max(at);
    }

    pub fn is_listing(&self, resource: Resource) -> bool {
        self.listing.contains(&resource)
    }

    /// Whether every existing Pod has been observed. Before that nothing is planned: an untouched Job has no gate, and
    /// a list that is being read shows a mixture of states.
    pub fn pods_complete(&self) -> bool {
        self.pods_listed && !self.is_listing(Resource::Pods)
    }

    fn list_begins(&mut self, resource: Resource) {
        self.listing.insert(resource);
    }

    fn list_ends(&mut self, resource: Resource) {
        self.listing.remove(&resource);
        self.pods_listed |= resource == Resource::Pods;
    }
}

impl JobController {
    pub(super) fn list_begins(&mut self, resource: Resource) {
        self.progress.list_begins(resource);
        if resource == Resource::Jobs {
            self.jobs.list_begins();
        } else {
            for record in self.jobs.iter_mut() {
                if let Some(ledger) = &mut record.ledger {
                    ledger.relist_begins();
                }
            }
            self.unclaimed.relist_begins();
        }
    }

    pub(super) fn list_ends(&mut self, resource: Resource, at: Revision, now: Timestamp, out: &mut Outbox) {
        self.progress.list_ends(resource);
        match resource {
            Resource::Jobs => {
                let missing = self.jobs.missing_from_list(at);
                for uid in missing {
                    self.job_gone(&uid, now, out);
                }
                self.jobs.list_ends(at);
                self.progress.jobs_observed(at);
                self.jobs_reached(now, out);
            }
            Resource::Pods => {
                for record in self.jobs.iter_mut() {
                    if let Some(ledger) = &mut record.ledger {
                        ledger.relist_ends(at);
                    }
                }
                self.unclaimed.relist_ends(at);
                self.progress.pods_observed(at);
                self.rebuild_pod_owners();
                // First determine which Pods are to be adopted, then which are missing.
                self.settle_unclaimed(now, out);
                for slot in self.jobs.slots() {
                    self.plan(slot, now, out);
                }
                self.jobs_reached(now, out);
            }
        }
    }

    fn rebuild_pod_owners(&mut self) {
        self.pod_owner.clear();
        for (slot, record) in self.jobs.iter() {
            if let Some(ledger) = &record.ledger {
                self.pod_owner.extend(ledger.pods().map(|pod| (pod_key(pod.uid), slot)));
            }
        }
    }

    pub(super) fn pods_reached(&mut self, at: Revision, now: Timestamp, out: &mut Outbox) {
        if self.progress.is_listing(Resource::Pods) {
            return;
        }
        self.progress.pods_observed(at);
        while let Some(&(foreign_at, slot)) = self.gated.first()
            && foreign_at <= self.progress.pods_at
        {
            self.gated.pop_first();
            self.plan(slot, now, out);
        }
    }

    pub(super) fn jobs_reached(&mut self, now: Timestamp, out: &mut Outbox) {
        for slot in self.unconfirmed.clone() {
            self.plan(slot, now, out);
        }
        self.settle_unclaimed(now, out);
    }

    pub(super) fn tick(&mut self, now: Timestamp, out: &mut Outbox) {
        let mut due = Vec::new();
        while let Some((at, _)) = self.timers.first()
            && *at <= now
        {
            due.extend(self.timers.pop_first().map(|(_, item)| item));
        }
        for item in due {
            match item {
                WorkItem::Plan(uid) => {
                    let Some(slot) = self.jobs.slot_of(&uid) else {
                        continue;
                    };
                    if let Some(record) = self.jobs.get_mut(slot) {
                        record.timer = None;
                    }
                    self.settle_adoptions(slot);
                    self.plan(slot, now, out);
                }
                WorkItem::Refresh(uid) => {
                    if let Some(slot) = self.jobs.slot_of(&uid) {
                        self.refresh_job(slot, out);
                    }
                }
                WorkItem::Confirm(uid) => {
                    if let Some(slot) = self.jobs.slot_of(&uid) {
                        if let Some(record) = self.jobs.get_mut(slot) {
                            record.confirming = false;
                        }
                        self.plan(slot, now, out);
                    }
                }
                WorkItem::Reconsider(uid) => self.reconsider_unclaimed(&uid, now, out),
                WorkItem::Doubt(uid) => self.doubt(&uid, now, out),
            }
        }
        self.release_orphans(now, out);
    }

    /// An object that cannot be decoded exists nevertheless: its absence from a list would mean that it is gone. What
    /// is already known about such a Job or Pod is kept.
    pub(super) fn observe_unreadable(
        &mut self,
        resource: Resource,
        object: &controller::Object,
        now: Timestamp,
        out: &mut Outbox,
    ) {
        let Some(meta) = Meta::of(object) else { return };
        match resource {
            Resource::Jobs => {
                self.jobs.unreadable(JobUid::new(&meta.uid));
                if !self.progress.is_listing(Resource::Jobs) {
                    self.progress.jobs_observed(meta.revision());
                    self.jobs_reached(now, out);
                }
            }
            Resource::Pods => {
                let uid = PodUid::new(&meta.uid);
                self.unclaimed.touch(&uid);
                if let Some(slot) = self.pod_owner.get(&pod_key(&uid)).copied()
                    && let Some(ledger) = self.jobs.get_mut(slot).and_then(|record| record.ledger.as_mut())
                {
                    ledger.pod_is_listed(&uid);
                }
                self.pods_reached(meta.revision(), now, out);
            }
        }
    }

    pub(super) fn observe(&mut self, object: Object, now: Timestamp, out: &mut Outbox) {
        match object {
            Object::Job(job) => {
                let at = job.revision;
                self.observe_job(job, now, out);
                if !self.progress.is_listing(Resource::Jobs) {
                    self.progress.jobs_observed(at);
                    self.jobs_reached(now, out);
                }
            }
            Object::Pod(pod) => {
                let at = pod.revision;
                self.observe_pod(pod, now, out);
                self.pods_reached(at, now, out);
            }
        }
    }
}
