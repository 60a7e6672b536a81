//! Pods of Jobs that ended only because the node did: they are released instead of counted, a limited number of times.

use tally_core::pod::{
    FAILURE_COUNT_ANNOTATION, IGNORED_FAILURE_COUNT_ANNOTATION, INDEX_ANNOTATION, Phase, TRACKING_FINALIZER,
};

use super::PodWorker;
use super::ending::EndReason;
use super::start::JOB_UID_LABEL;
use crate::losses::{self, JobSlot};
use crate::options::NodeOptions;
use crate::pod::Pod;

/// What is known about the restarts of the node that ended a Pod of this attempt of a Job.
#[derive(Clone, Copy, Debug, Default)]
pub struct LossRecord {
    /// The number of such restarts before this Pod. None: the record has not been consulted yet.
    before: Option<u32>,
    /// These restarts, including the one that ended this Pod, are recorded.
    on_record: bool,
}

/// Whether the Pod has the tracking finalizer of a Job.
pub fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().any(|finalizer| finalizer == TRACKING_FINALIZER)
}

impl PodWorker {
    /// The Job and the index that the Pod belongs to, if it is a Pod of a Job and may be released.
    pub fn slot(&self) -> Option<JobSlot> {
        let metadata = &self.pod.metadata;
        let index = metadata.annotations.get(INDEX_ANNOTATION).map_or("", String::as_str);
        Some(JobSlot { job: metadata.labels.get(JOB_UID_LABEL)?.into(), index: index.into() })
    }

    /// The number of restarts that ended earlier Pods of this attempt. None: the record has not been consulted yet.
    pub fn restarts_before(&self) -> Option<u32> {
        self.losses.before
    }

    pub fn continue_from(&mut self, restarts: u32) {
        self.losses.before = Some(restarts);
    }

    /// The Pod has the tracking finalizer.
    pub fn is_tracked(&self) -> bool {
        is_tracked(&self.pod)
    }

    /// `stored`: the loss of this Pod is recorded, as far as it has to be.
    pub fn set_on_record(&mut self, stored: bool) {
        self.losses.on_record = stored;
    }

    pub fn is_on_record(&self) -> bool {
        self.losses.on_record
    }

    /// Whether the Pod's end counts as a restart of the node. An orderly stop does not: a user requested it.
    fn counts(&self) -> bool {
        !self.termination.was_stopped()
    }

    /// The number of restarts to record before the Pod is released. None: the Pod is not to be released.
    pub fn to_be_counted(&self, node: &NodeOptions) -> Option<u32> {
        let restarts = if self.counts() { self.losses.before? + 1 } else { 0 };
        self.is_to_be_released(node).then_some(restarts)
    }

    /// Whether the Pod is released depends on the count of restarts, and that is not known, or not stored, yet.
    pub(super) fn waits_for_the_record(&self, node: &NodeOptions) -> bool {
        self.ended_with_the_node(node)
            && (self.losses.before.is_none() || self.is_to_be_released(node) && !self.losses.on_record)
    }

    /// Too many restarts have ended Pods of this attempt: this Pod is not released.
    pub(super) fn is_given_up(&self) -> bool {
        self.counts() && self.losses.before.is_some_and(|before| before + 1 >= losses::MOST)
    }

    pub(super) fn is_to_be_released(&self, node: &NodeOptions) -> bool {
        self.ended_with_the_node(node) && !self.is_given_up()
    }

    /// The node itself has ended the Pod, or its end was not observed, and this must not count against its Job. A Pod
    /// that carries the failure counts of its index stays: they would be lost with it.
    pub fn ended_with_the_node(&self, node: &NodeOptions) -> bool {
        let metadata = &self.pod.metadata;
        let carries = |count| metadata.annotations.get(count).is_some_and(|count| count != "0");
        // If another finalizer remains, the node can only report how the Pod ended.
        let released = metadata.deletion_timestamp.is_some() && !self.is_tracked();
        node.release_lost
            && !released
            && metadata.labels.contains_key(JOB_UID_LABEL)
            && self.termination.verdict() == Some(Phase::Failed)
            && !matches!(self.termination.reason(), Some(EndReason::Deadline | EndReason::Evicted))
            && !self.pod.status.phase.is_terminal()
            && (self.containers.are_lost() || self.termination.was_stopped())
            && !carries(FAILURE_COUNT_ANNOTATION)
            && !carries(IGNORED_FAILURE_COUNT_ANNOTATION)
    }
}
