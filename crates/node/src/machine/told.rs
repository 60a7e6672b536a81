//! What has been reported to the API about a Pod, and what is requested next. At most one write is in flight; changes
//! that happen meanwhile go into the next write. The status of a Pod that has not ended is written after a short delay,
//! so that a Pod that ends at once needs one write only.

use std::hash::BuildHasher;

use serde_json::{Value, json};
use tally_core::ids::Revision;
use tally_core::pod::{
    FAILURE_COUNT_ANNOTATION, IGNORED_FAILURE_COUNT_ANNOTATION, INDEX_ANNOTATION, Phase, TRACKING_FINALIZER,
};
use tally_core::time::{Span, Timestamp};
use tally_runtime::cache::retry_at;
use tally_runtime::controller::{Call, Kind, Verb};

use super::{Machine, Why};
use crate::losses::{self, Slot};
use crate::options::Options;
use crate::pod::Pod;
use crate::sources::Source;

/// A label of every Pod that a Job has created.
const OF_A_JOB: &str = "batch.kubernetes.io/controller-uid";

#[derive(Debug, Default)]
pub struct Told {
    /// The time since which there are changes to report.
    since: Option<Timestamp>,
    /// The write in flight: the revision that it was decided from.
    under_way: Option<Revision>,
    /// A request failed: do not retry before this time.
    not_before: Option<Timestamp>,
    failures: u32,
    /// A digest of the last status written, without conditions: an unchanged status need not be written again.
    last: Option<u64>,
}

/// A request about a Pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    Read(Source, Call),
    Write(Call),
    Remove(Call),
}

/// The outcome of a write or a removal.
#[derive(Debug)]
pub enum Heard {
    /// The request succeeded; this is the Pod now, unless it is deleted.
    Done(Option<Box<Pod>>),
    /// The Pod no longer exists.
    Gone,
    /// The request failed, or its outcome is unknown.
    Failed,
}

/// Whether the Pod has the tracking finalizer of a Job.
pub fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().any(|finalizer| finalizer == TRACKING_FINALIZER)
}

fn digest(status: &Value) -> u64 {
    let told = ["phase", "reason", "initContainerStatuses", "containerStatuses"].map(|field| &status[field]);
    foldhash::fast::FixedState::default().hash_one(told.map(Value::to_string))
}

impl Told {
    pub fn touch(&mut self, now: Timestamp) {
        self.since.get_or_insert(now);
    }

    pub fn is_up_to_date(&self) -> bool {
        self.since.is_none() && self.under_way.is_none()
    }

    fn due_at(&self, ended: bool, report_after: Span) -> Option<Timestamp> {
        let since = self.since.filter(|_| self.under_way.is_none())?;
        let due_at = if ended { since } else { since + report_after };
        Some(self.not_before.map_or(due_at, |at| at.max(due_at)))
    }
}

impl Machine {
    /// The next request, if there is one to send now.
    pub fn ask(&mut self, draining: bool, node: &Options, now: Timestamp) -> Option<Ask> {
        if self.gone {
            return None;
        }
        let (namespace, name) = (self.pod.metadata.namespace.clone(), self.pod.metadata.name.clone());
        if !draining
            && self.ending.is_none()
            && self.verdict.is_none()
            && let Some(source) = self.setup.next_read(now)
        {
            let call = Call::new(Verb::Get, source.kind(), &namespace, source.name());
            return Some(Ask::Read(source, call));
        }
        if self.waits_for_the_record(node) {
            return None;
        }
        let revision = self.revision();
        let is_due = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        if self.is_to_be_released(node) && is_due(self.told.due_at(true, node.report_after)) {
            self.told.under_way = Some(revision);
            self.told.not_before = None;
            return Some(self.release());
        }
        if self.told.due_at(self.verdict.is_some(), node.report_after).is_some_and(|at| at <= now) {
            let status = self.status(node, now);
            self.told.since = None;
            let digest = digest(&status);
            if self.told.last == Some(digest) && status["conditions"] == json!([]) {
                return self.ask(draining, node, now);
            }
            self.told.last = Some(digest);
            self.told.under_way = Some(revision);
            self.told.not_before = None;
            let guard = json!({"uid": self.uid().to_string(), "resourceVersion": revision.0.to_string()});
            let call = Call::new(Verb::StrategicPatch, Kind::POD, &namespace, &name);
            return Some(Ask::Write(call.subresource("status").body(&json!({"metadata": guard, "status": status}))));
        }
        if self.may_go() && self.told.not_before.is_none_or(|at| at <= now) {
            self.told.under_way = Some(revision);
            self.told.not_before = None;
            return Some(self.removal());
        }
        None
    }

    fn removal(&self) -> Ask {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
            "preconditions": {"uid": self.uid().to_string()},
        });
        let metadata = &self.pod.metadata;
        Ask::Remove(Call::new(Verb::Delete, Kind::POD, &metadata.namespace, &metadata.name).body(&options))
    }

    /// The Job and the index that the Pod belongs to, if it is a Pod of a Job and may be released.
    pub fn slot(&self) -> Option<Slot> {
        let metadata = &self.pod.metadata;
        let index = metadata.annotations.get(INDEX_ANNOTATION).map_or("", String::as_str);
        Some(Slot { job: metadata.labels.get(OF_A_JOB)?.into(), index: index.into() })
    }

    /// The number of restarts that ended earlier Pods of this attempt. None: the record has not been consulted yet.
    pub fn lives_before(&self) -> Option<u32> {
        self.lives.before
    }

    pub fn goes_on_from(&mut self, restarts: u32) {
        self.lives.before = Some(restarts);
    }

    /// The Pod has the tracking finalizer.
    pub fn is_tracked(&self) -> bool {
        is_tracked(&self.pod)
    }

    /// `stored`: the loss of this Pod is recorded, as far as it has to be.
    pub fn on_record(&mut self, stored: bool) {
        self.lives.on_record = stored;
    }

    pub fn is_on_record(&self) -> bool {
        self.lives.on_record
    }

    /// Whether the Pod's end counts as a restart of the node. An orderly stop does not: a user requested it.
    fn counts(&self) -> bool {
        !self.was_stopped()
    }

    /// The number of restarts to record before the Pod is released. None: the Pod is not to be released.
    pub fn to_be_counted(&self, node: &Options) -> Option<u32> {
        let restarts = if self.counts() { self.lives.before? + 1 } else { 0 };
        self.is_to_be_released(node).then_some(restarts)
    }

    /// Whether the Pod is released depends on the count of restarts, and that is not known, or not stored, yet.
    fn waits_for_the_record(&self, node: &Options) -> bool {
        self.ended_with_the_node(node)
            && (self.lives.before.is_none() || self.is_to_be_released(node) && !self.lives.on_record)
    }

    /// Too many restarts have ended Pods of this attempt: this Pod is not released.
    pub(super) fn is_given_up(&self) -> bool {
        self.counts() && self.lives.before.is_some_and(|before| before + 1 >= losses::MOST)
    }

    fn is_to_be_released(&self, node: &Options) -> bool {
        self.ended_with_the_node(node) && !self.is_given_up()
    }

    /// The node itself has ended the Pod, or its end was not observed, and this must not count against its Job. A Pod
    /// that carries the failure counts of its index stays: they would be lost with it.
    pub fn ended_with_the_node(&self, node: &Options) -> bool {
        let metadata = &self.pod.metadata;
        let carries = |count| metadata.annotations.get(count).is_some_and(|count| count != "0");
        // If another finalizer remains, the node can only report how the Pod ended.
        let released = metadata.deletion_timestamp.is_some() && !self.is_tracked();
        node.release_lost
            && !released
            && metadata.labels.contains_key(OF_A_JOB)
            && self.verdict == Some(Phase::Failed)
            && self.ending.is_none_or(|ending| ending.why != Why::Deadline)
            && !self.pod.status.phase.is_terminal()
            && (self.is_lost() || self.was_stopped())
            && !carries(FAILURE_COUNT_ANNOTATION)
            && !carries(IGNORED_FAILURE_COUNT_ANNOTATION)
    }

    /// First removes the tracking finalizer, so that the Job no longer counts the Pod; then deletes the Pod.
    fn release(&self) -> Ask {
        let metadata = &self.pod.metadata;
        let kept: Vec<_> = metadata.finalizers.iter().filter(|finalizer| *finalizer != TRACKING_FINALIZER).collect();
        if kept.len() == metadata.finalizers.len() {
            return self.removal();
        }
        let revision = self.revision().0.to_string();
        let patch = json!({"uid": self.uid().to_string(), "resourceVersion": revision, "finalizers": kept});
        let call = Call::new(Verb::MergePatch, Kind::POD, &metadata.namespace, &metadata.name);
        Ask::Write(call.body(&json!({"metadata": patch})))
    }

    /// The Pod has ended, its end is stored in the API, and only its grace period keeps the object.
    pub(super) fn may_go(&self) -> bool {
        self.is_over() && self.pod.grace().is_some_and(|grace| grace > 0)
    }

    /// When to call `ask` again. Reads are not included: `proceed` requests a wake-up for them.
    pub fn ask_at(&self, node: &Options, now: Timestamp) -> Option<Timestamp> {
        if self.gone || self.waits_for_the_record(node) {
            return None;
        }
        let removal = self.may_go().then(|| self.told.not_before.unwrap_or(now));
        let write = self.told.due_at(self.verdict.is_some(), node.report_after);
        write.into_iter().chain(removal).min()
    }

    pub fn written(&mut self, heard: Heard, now: Timestamp) {
        let Some(about) = self.told.under_way.take() else { return };
        match heard {
            Heard::Done(pod) => {
                self.told.failures = 0;
                pod.into_iter().for_each(|pod| self.observe(*pod));
            }
            Heard::Gone => self.lose(),
            Heard::Failed => {
                self.told.last = None;
                self.told.touch(now);
                self.hold(about, now);
            }
        }
    }

    pub fn removed(&mut self, heard: Heard, now: Timestamp) {
        let Some(about) = self.told.under_way.take() else { return };
        match heard {
            // If another finalizer remains, the Pod still exists, with a grace period of zero.
            Heard::Done(Some(pod)) => {
                self.told.failures = 0;
                self.observe(*pod);
                // The response may show the Pod as it was before. If the Pod still exists, the watch will show it.
                self.told.not_before = Some(retry_at(now, 4));
            }
            Heard::Done(None) | Heard::Gone => self.lose(),
            Heard::Failed => self.hold(about, now),
        }
    }

    /// Delays the retry, unless the Pod has changed, which is then the reason for the failure.
    fn hold(&mut self, about: Revision, now: Timestamp) {
        if self.revision() == about {
            self.told.not_before = Some(retry_at(now, self.told.failures));
            self.told.failures = self.told.failures.saturating_add(1);
        }
    }

    /// The Pod has changed: a request that failed because of a conflict can be retried now.
    pub(super) fn try_again(&mut self) {
        if !self.is_over() {
            self.told.not_before = None;
        }
    }
}
