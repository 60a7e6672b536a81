//! How new the view of the Job is, and that of its Pods. Both come from streams of their own, so one may be behind the
//! other; what may be decided depends on which.

use crate::ids::Revision;
use crate::job::JobView;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Freshness {
    /// The newest revision of the Job at which another writer changed its accounting: what the gate compares with.
    foreign: Foreign,
    /// The newest revision of the Job that another writer wrote, whatever it changed: what the end of the Job compares
    /// with. Another leader may have reported that Pods run, and they must not outlive the Job because we have not
    /// observed them.
    edited: Foreign,
    /// The view of the Job was current at this revision: a write of ours or a read confirmed it.
    current_at: Revision,
    /// The view of the Job has been current at some time since this ledger was created, with the Pods known then.
    confirmed: bool,
    /// The newest observed revision of any Pod of this Job.
    newest_pod_at: Revision,
    /// The revision at which another writer released a Pod that is not accounted for in our view of the Job.
    unexplained_at: Revision,
    /// Before this revision Pods of this Job may have come and gone unseen: a list shows what is there, and not what was.
    unseen_before: Option<Revision>,
}

/// A revision of another writer, and the one before it, in case the last change turns out to be our own write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Foreign {
    at: Revision,
    before: Revision,
}

impl Foreign {
    fn changed(&mut self, at: Revision) {
        self.before = std::mem::replace(&mut self.at, at);
    }

    fn was_ours(&mut self, at: Revision) {
        if self.at == at {
            self.at = self.before;
        }
    }
}

impl Freshness {
    pub fn new(job: &JobView) -> Self {
        // No Pod of an untouched Job can have been counted, and Pods that another leader may have created for it have
        // the names that ours would get.
        let at = if job.is_untouched() { Revision(0) } else { job.revision };
        let seen = Foreign { at, before: at };
        Self {
            foreign: seen,
            edited: seen,
            current_at: job.revision,
            confirmed: false,
            newest_pod_at: Revision(0),
            unexplained_at: Revision(0),
            unseen_before: None,
        }
    }

    /// Accounting requires Pods as new as this.
    pub fn foreign_at(&self) -> Revision {
        self.foreign.at
    }

    /// The end of the Job requires Pods as new as this.
    pub fn edited_at(&self) -> Revision {
        self.edited.at
    }

    pub fn newest_pod_at(&self) -> Revision {
        self.newest_pod_at
    }

    pub fn unseen_before(&self) -> Revision {
        self.unseen_before.unwrap_or_default()
    }

    /// A revision after all that are known, for an event whose own is not.
    pub fn next_pod_at(&self) -> Revision {
        Revision(self.newest_pod_at.0 + 1)
    }

    /// The stream shows a newer Job: another writer wrote it, as far as is known.
    pub fn job_changed(&mut self, at: Revision, accounting: bool) {
        if accounting {
            self.foreign.changed(at);
        }
        self.edited.changed(at);
    }

    /// Our own write stored the Job at this revision. It was conditional, so no other writer had changed the Job by
    /// then; if the stream was faster than the response, what it showed was this write.
    pub fn job_written(&mut self, at: Revision) {
        self.job_confirmed(at);
        self.foreign.was_ours(at);
        self.edited.was_ours(at);
    }

    /// The Job was read, after Pods up to this revision were known.
    pub fn job_confirmed(&mut self, at: Revision) {
        self.jobs_observed(at);
        self.confirmed = true;
    }

    /// The stream of Jobs has been observed up to this revision.
    pub fn jobs_observed(&mut self, at: Revision) {
        self.current_at = self.current_at.max(at);
    }

    pub fn pod_observed(&mut self, at: Revision) {
        self.newest_pod_at = self.newest_pod_at.max(at);
    }

    /// A plan begins. What happened before the first one was not observed.
    pub fn planning(&mut self, pods_at: Revision) {
        self.unseen_before.get_or_insert(pods_at);
    }

    /// A list of Pods is complete.
    pub fn pods_listed(&mut self, at: Revision) {
        self.unseen_before = self.unseen_before.map(|before| before.max(at));
    }

    /// Whether our view of the Job counts every Pod that was counted and deleted before a Pod at this revision was
    /// created. Those that we have seen go are explained; those that we have not seen were gone before a list.
    pub fn counts_all_before(&self, pod_at: Revision) -> bool {
        let counts_unseen = self.unseen_before.is_some_and(|before| self.covers(before));
        self.covers(pod_at) && self.explains_all() && counts_unseen
    }

    /// Only a Job read after `at` accounts for a Pod that is missing.
    pub fn doubt_job(&mut self, at: Revision) {
        self.unexplained_at = self.unexplained_at.max(at);
        self.pod_observed(at);
    }

    /// Whether the view of the Job is at least as new as a Pod at this revision.
    pub fn covers(&self, pod_at: Revision) -> bool {
        pod_at <= self.current_at
    }

    /// A new ledger may know Pods newer than its Job: the Job may have finished since (S04). Once the view has been as
    /// new as the Pods, it is ours to follow.
    pub fn is_confirmed(&mut self) -> bool {
        self.confirmed |= self.covers(self.newest_pod_at);
        self.confirmed
    }

    /// Whether our view of the Job accounts for every Pod that other writers released. A Pod that another leader has
    /// counted and released is missing only from an older view of the Job: it would be created twice.
    pub fn explains_all(&self) -> bool {
        self.covers(self.unexplained_at)
    }
}
