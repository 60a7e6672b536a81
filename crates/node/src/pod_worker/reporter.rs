//! What has been reported to the API about a Pod, and what is requested next. At most one write is in flight; changes
//! that happen meanwhile go into the next write. The status of a Pod that has not ended is written after a short delay,
//! so that a Pod that ends at once needs one write only.

use std::hash::BuildHasher;

use tally_core::ids::Revision;
use tally_core::pod::{PodView, TRACKING_FINALIZER};
use tally_core::time::{Span, Timestamp};
use tally_runtime::cache::retry_at;
use tally_runtime::controller::{Call, Kind, Verb};
use tally_value::{Value, json};

use super::PodWorker;
use crate::options::NodeOptions;
use crate::pod::Pod;
use crate::sources::Source;

#[derive(Debug, Default)]
pub struct StatusReporter {
    /// The time since which there are changes to report.
    since: Option<Timestamp>,
    /// The write in flight: the revision that it was decided from.
    in_flight: Option<Revision>,
    /// A request failed: do not retry before this time.
    not_before: Option<Timestamp>,
    failures: u32,
    /// A digest of the last status written, without conditions: an unchanged status need not be written again.
    last: Option<u64>,
}

/// A request about a Pod.
#[derive(Clone, Debug, PartialEq)]
pub enum PodRequest {
    Read(Source, Call),
    Write(Call),
    Remove(Call),
}

/// The outcome of a write or a removal.
#[derive(Debug)]
pub enum WriteOutcome {
    /// The request succeeded; this is the Pod now, unless it is deleted.
    Done(Option<Box<Pod>>),
    /// The Pod no longer exists.
    Gone,
    /// The request failed, or its outcome is unknown.
    Failed,
}

fn digest(status: &Value) -> u64 {
    let told = ["phase", "reason", "initContainerStatuses", "containerStatuses"].map(|field| &status[field]);
    foldhash::fast::FixedState::default().hash_one(told)
}

impl StatusReporter {
    pub fn clock_set_back(&mut self, by: Span) {
        [&mut self.since, &mut self.not_before].into_iter().flatten().for_each(|at| *at = *at - by);
    }

    /// There is something to report.
    pub fn touch(&mut self, now: Timestamp) {
        self.since.get_or_insert(now);
    }

    pub fn is_up_to_date(&self) -> bool {
        self.since.is_none() && self.in_flight.is_none()
    }

    /// What there is to report is in the write in flight.
    fn says_all(&self) -> bool {
        self.since.is_none() && self.in_flight.is_some()
    }

    /// When the next write is due. `ended`: the Pod has ended, so its status is written without delay.
    fn due_at(&self, ended: bool, report_after: Span) -> Option<Timestamp> {
        let since = self.since.filter(|_| self.in_flight.is_none())?;
        let due_at = if ended { since } else { since + report_after };
        Some(self.not_before.map_or(due_at, |at| at.max(due_at)))
    }

    /// Takes what there is to report. Returns whether it has to be written: a status that was written already and has no
    /// new conditions does not.
    fn take_changes(&mut self, status: &Value) -> bool {
        self.since = None;
        let digest = digest(status);
        if self.last == Some(digest) && status["conditions"] == json!([]) {
            return false;
        }
        self.last = Some(digest);
        true
    }

    /// A write decided from this revision is sent.
    fn begin(&mut self, revision: Revision) {
        self.in_flight = Some(revision);
        self.not_before = None;
    }

    /// The request that was in flight is answered. Returns the revision that it was decided from.
    fn answered(&mut self) -> Option<Revision> {
        self.in_flight.take()
    }

    fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// The status that was sent may not be stored.
    fn forget_last(&mut self, now: Timestamp) {
        self.last = None;
        self.touch(now);
    }

    fn may_request_at(&self, now: Timestamp) -> Timestamp {
        self.not_before.unwrap_or(now)
    }

    /// Requests nothing until the watch has had time to show the Pod.
    fn wait_for_watch(&mut self, now: Timestamp) {
        self.not_before = Some(retry_at(now, 4));
    }

    fn retry_later(&mut self, now: Timestamp) {
        self.not_before = Some(retry_at(now, self.failures));
        self.failures = self.failures.saturating_add(1);
    }

    pub fn retry_now(&mut self) {
        self.not_before = None;
    }
}

impl PodWorker {
    /// The next request, if there is one to send now.
    pub fn next_request(&mut self, draining: bool, node: &NodeOptions, now: Timestamp) -> Option<PodRequest> {
        if self.gone {
            return None;
        }
        let (namespace, name) = (self.pod.metadata.namespace.clone(), self.pod.metadata.name.clone());
        if !draining
            && !self.termination.has_begun()
            && self.termination.verdict().is_none()
            && let Some(source) = self.setup.next_read(now)
        {
            let call = source.request(&self.pod);
            return Some(PodRequest::Read(source, call));
        }
        if self.waits_for_the_record(node) {
            return None;
        }
        let revision = self.revision();
        let is_due = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        if self.is_to_be_released(node) && is_due(self.reporter.due_at(true, node.report_after)) {
            self.reporter.begin(revision);
            return Some(self.release());
        }
        if self.reporter.due_at(self.termination.verdict().is_some(), node.report_after).is_some_and(|at| at <= now) {
            let status = self.status(node, now);
            if !self.reporter.take_changes(&status) {
                return self.next_request(draining, node, now);
            }
            self.reporter.begin(revision);
            let guard = json!({"uid": self.uid().to_string(), "resourceVersion": revision.0.to_string()});
            let call = Call::new(Verb::StrategicPatch, Kind::POD, &namespace, &name);
            return Some(PodRequest::Write(
                call.subresource("status").body(&json!({"metadata": guard, "status": status})),
            ));
        }
        if self.may_go() && self.reporter.may_request_at(now) <= now {
            self.reporter.begin(revision);
            return Some(self.removal());
        }
        None
    }

    fn removal(&self) -> PodRequest {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
            "preconditions": {"uid": self.uid().to_string()},
        });
        let metadata = &self.pod.metadata;
        PodRequest::Remove(Call::new(Verb::Delete, Kind::POD, &metadata.namespace, &metadata.name).body(&options))
    }

    /// First removes the tracking finalizer, so that the Job no longer counts the Pod; then deletes the Pod.
    fn release(&self) -> PodRequest {
        let metadata = &self.pod.metadata;
        let kept: Vec<_> = metadata.finalizers.iter().filter(|finalizer| *finalizer != TRACKING_FINALIZER).collect();
        if kept.len() == metadata.finalizers.len() {
            return self.removal();
        }
        let revision = self.revision().0.to_string();
        let patch = json!({"uid": self.uid().to_string(), "resourceVersion": revision, "finalizers": kept});
        let call = Call::new(Verb::MergePatch, Kind::POD, &metadata.namespace, &metadata.name);
        PodRequest::Write(call.body(&json!({"metadata": patch})))
    }

    /// The Pod has ended, its end is stored in the API, and only its grace period keeps the object.
    pub(super) fn may_go(&self) -> bool {
        self.is_over() && self.pod.grace().is_some_and(|grace| grace > 0)
    }

    /// When to call `next_request` again. Reads are not included: `proceed` requests a wake-up for them.
    pub fn next_request_at(&self, node: &NodeOptions, now: Timestamp) -> Option<Timestamp> {
        if self.gone || self.waits_for_the_record(node) {
            return None;
        }
        let removal = self.may_go().then(|| self.reporter.may_request_at(now));
        let write = self.reporter.due_at(self.termination.verdict().is_some(), node.report_after);
        write.into_iter().chain(removal).min()
    }

    pub fn written(&mut self, outcome: WriteOutcome, now: Timestamp) {
        let Some(about) = self.reporter.answered() else { return };
        match outcome {
            WriteOutcome::Done(pod) => {
                self.reporter.succeeded();
                pod.into_iter().for_each(|pod| self.observe(*pod));
            }
            WriteOutcome::Gone => self.lose(),
            WriteOutcome::Failed => {
                self.reporter.forget_last(now);
                self.hold(about, now);
            }
        }
    }

    /// The response to the write of the Pod's end. Most Pods need nothing else from their node: then the few fields of the view
    /// are enough, and this is true. Otherwise nothing is changed, and the whole object must be read (`written`).
    pub fn end_is_stored(&mut self, view: &PodView) -> bool {
        let metadata = &self.pod.metadata;
        let is_the_end = self.termination.verdict().is_some() && view.phase.is_terminal();
        // The write was guarded with the revision, so nothing but the status is new. The removal of a finalizer is a write, too.
        let is_guarded = view.uid == metadata.uid
            && view.revision > metadata.resource_version
            && view.finalizers.len() == metadata.finalizers.len();
        if self.gone || view.deleting() || !is_the_end || !is_guarded || !self.reporter.says_all() {
            return false;
        }
        self.reporter.answered();
        self.reporter.succeeded();
        (self.pod.status.phase, self.pod.metadata.resource_version) = (view.phase, view.revision);
        true
    }

    pub fn removed(&mut self, outcome: WriteOutcome, now: Timestamp) {
        let Some(about) = self.reporter.answered() else { return };
        match outcome {
            // If another finalizer remains, the Pod still exists, with a grace period of zero.
            WriteOutcome::Done(Some(pod)) => {
                self.reporter.succeeded();
                self.observe(*pod);
                // The response may show the Pod as it was before. If the Pod still exists, the watch will show it.
                self.reporter.wait_for_watch(now);
            }
            WriteOutcome::Done(None) | WriteOutcome::Gone => self.lose(),
            WriteOutcome::Failed => self.hold(about, now),
        }
    }

    /// Delays the retry, unless the Pod has changed, which is then the reason for the failure.
    fn hold(&mut self, about: Revision, now: Timestamp) {
        if self.revision() == about {
            self.reporter.retry_later(now);
        }
    }

    /// The Pod has changed: a request that failed because of a conflict can be retried now.
    pub(super) fn try_again(&mut self) {
        if !self.is_over() {
            self.reporter.retry_now();
        }
    }
}
