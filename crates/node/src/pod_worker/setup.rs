//! What must exist before the first container of a Pod starts: the objects it refers to are read, its volumes are filled.
//! If something is missing, the Pod waits; its status and events say what is missing.

use std::collections::BTreeSet;

use compact_str::CompactString;
use serde_json::Value;
use tally_core::time::{Span, Timestamp};
use tally_runtime::cache::retry_at;

use super::Effects;
use crate::options::NodeOptions;
use crate::pod::Pod;
use crate::port::{OperationError, Preparation, ShimCommand, Volume};
use crate::security;
use crate::sources::{Source, Sources};
use crate::volumes::{VolumeError, volumes};

/// Interval at which volumes are updated from their ConfigMaps and Secrets.
const REFRESH: Span = Span::from_seconds(60);

#[derive(Debug, Default)]
pub struct Setup {
    /// A volume whose content the node uses itself, so that it need not exist.
    without: Option<CompactString>,
    wanted: BTreeSet<Source>,
    sources: Sources,
    /// The current round of reads: what is still to be requested, and how many responses are outstanding.
    to_read: BTreeSet<Source>,
    reading: usize,
    read_not_before: Option<Timestamp>,
    /// The first round is complete.
    complete: bool,
    read_again_at: Option<Timestamp>,
    /// The content of the volumes; None: they do not exist yet.
    prepared: Option<Vec<Volume>>,
    preparing: Option<Vec<Volume>>,
    /// An input of the volumes has changed.
    stale: bool,
    /// Why no container can be started.
    blocked: Option<OperationError>,
    prepare_again_at: Option<Timestamp>,
    failures: u32,
}

impl Setup {
    pub fn of(pod: &Pod, without: Option<CompactString>) -> Self {
        Self { wanted: Source::of(pod, without.as_deref()), without, stale: true, ..Self::default() }
    }

    pub fn clock_set_back(&mut self, by: Span) {
        let times = [&mut self.read_not_before, &mut self.read_again_at, &mut self.prepare_again_at];
        times.into_iter().flatten().for_each(|at| *at = *at - by);
    }

    pub fn is_under_way(&self) -> bool {
        self.preparing.is_some()
    }

    pub fn is_prepared(&self) -> bool {
        self.prepared.is_some()
    }

    /// An input of a volume may have changed.
    pub fn touch(&mut self) {
        self.stale = true;
    }

    /// All volumes must be prepared again: volumes in memory were lost with the shim that prepared them.
    pub fn interrupt(&mut self) {
        (self.preparing, self.prepared) = (None, None);
        self.stale = true;
    }

    /// The next object to read.
    pub fn next_read(&mut self, now: Timestamp) -> Option<Source> {
        if self.read_not_before.is_some_and(|at| now < at) {
            return None;
        }
        let source = self.to_read.pop_first()?;
        self.reading += 1;
        Some(source)
    }

    fn is_reading(&self) -> bool {
        self.reading > 0 || !self.to_read.is_empty()
    }

    fn begin_to_read(&mut self, now: Timestamp) {
        let known = |source: &Source| self.sources.0.get(source).and_then(Option::as_ref);
        self.to_read = self.wanted.iter().filter(|source| source.is_due(known(source), now)).cloned().collect();
        // If nothing is due, the next look is after the usual interval.
        self.read_again_at = self.to_read.is_empty().then_some(now + REFRESH);
    }

    fn fail(&mut self, now: Timestamp) -> Timestamp {
        let at = retry_at(now, self.failures);
        self.failures = self.failures.saturating_add(1);
        at
    }

    /// The response to a read. Err: it is unknown whether the object exists. Returns whether the round is complete.
    pub fn read(&mut self, source: Source, object: Result<Option<Value>, ()>, now: Timestamp) -> bool {
        self.reading = self.reading.saturating_sub(1);
        match object {
            Ok(object) => {
                self.read_not_before = None;
                self.sources.0.insert(source, object);
            }
            Err(()) => {
                self.to_read.insert(source);
                self.read_not_before = Some(self.fail(now));
            }
        }
        if self.is_reading() {
            return false;
        }
        self.complete = true;
        self.stale = true;
        self.blocked = None;
        self.read_again_at = Some(now + REFRESH);
        true
    }

    /// Reads and prepares everything that must exist before the first container starts, and keeps it up to date. Returns
    /// whether the Pod's status changes.
    pub fn advance(&mut self, pod: &Pod, node: &NodeOptions, now: Timestamp, out: &mut Effects) -> bool {
        if self.is_reading() {
            self.read_not_before.into_iter().filter(|at| *at > now).for_each(|at| out.wake(at));
        } else if !self.wanted.is_empty() {
            if self.read_again_at.map_or(!self.complete, |at| at <= now) {
                self.begin_to_read(now);
            }
            self.read_again_at.into_iter().for_each(|at| out.wake(at));
        }
        if self.is_reading() || self.preparing.is_some() {
            return false;
        }
        if let Some(at) = self.prepare_again_at {
            if now < at {
                out.wake(at);
                return false;
            }
            self.prepare_again_at = None;
            self.blocked = None;
            self.stale = true;
        }
        std::mem::take(&mut self.stale) && self.prepare(pod, node, now, out)
    }

    fn prepare(&mut self, pod: &Pod, node: &NodeOptions, now: Timestamp, out: &mut Effects) -> bool {
        if let Some(problem) = &pod.unreadable {
            out.warn("Failed", format!("Error: {}: {problem}", super::status::UNREADABLE));
            return true;
        }
        match volumes(pod, self.without.as_deref(), node, &self.sources) {
            Ok(volumes) if self.prepared.as_ref() == Some(&volumes) => {}
            // There is nothing to prepare, and which volumes a Pod has does not change.
            Ok(volumes) if volumes.is_empty() => {
                self.failures = 0;
                return self.prepared.replace(volumes).is_none();
            }
            Ok(volumes) => {
                out.commands.push(ShimCommand::Prepare(Box::new(Preparation {
                    pod: pod.metadata.uid.clone(),
                    volumes: volumes.clone(),
                    group: security::volume_group(&pod.spec, node.security_node()),
                })));
                self.preparing = Some(volumes);
            }
            // The existing content stays as it is; the next round of reads tries again.
            Err(_) if self.is_prepared() => {}
            Err((volume, problem)) => {
                let (reason, what) = match problem {
                    VolumeError::Missing(what) => {
                        self.read_again_at = Some(self.fail(now));
                        ("ContainerCreating", what)
                    }
                    VolumeError::Unsupported(what) => ("UnsupportedVolume", what),
                };
                let message = format!("MountVolume.SetUp failed for volume {volume:?} : {what}");
                out.warn("FailedMount", message.clone());
                self.read_again_at.into_iter().for_each(|at| out.wake(at));
                self.blocked = Some(OperationError { reason: reason.into(), message, passing: false });
                return true;
            }
        }
        false
    }

    /// The volumes exist. Returns whether the Pod's status changes.
    pub fn prepared(&mut self) -> bool {
        let Some(volumes) = self.preparing.take() else { return false };
        self.failures = 0;
        self.prepared.replace(volumes).is_none()
    }

    /// The volumes could not be prepared. Returns whether the Pod's status changes.
    pub fn unprepared(&mut self, failure: OperationError, now: Timestamp, out: &mut Effects) -> bool {
        if self.preparing.take().is_none() {
            return false;
        }
        out.warn("FailedMount", failure.message.clone());
        self.prepare_again_at = Some(self.fail(now));
        if self.prepared.is_some() {
            return false;
        }
        self.blocked = Some(failure);
        true
    }

    /// A container refers to something that does not exist: reads the objects again after a while.
    pub fn read_again(&mut self, now: Timestamp, out: &mut Effects) {
        if !self.wanted.is_empty() {
            let again_at = self.fail(now);
            self.read_again_at = Some(again_at);
            out.wake(again_at);
        }
    }

    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Why no container can be started.
    pub fn blocked(&self) -> Option<&OperationError> {
        self.blocked.as_ref()
    }
}
