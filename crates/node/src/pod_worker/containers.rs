//! The containers of a Pod together: what their runs mean for the Pod.

use std::ops::{Deref, DerefMut};

use super::container::Container;
use crate::pod::{self, Pod, Role};
use crate::port::Attempt;

/// In the order of `Pod::containers`.
#[derive(Debug)]
pub struct Containers(pub Vec<Container>);

impl Deref for Containers {
    type Target = [Container];

    fn deref(&self) -> &[Container] {
        &self.0
    }
}

impl DerefMut for Containers {
    fn deref_mut(&mut self) -> &mut [Container] {
        &mut self.0
    }
}

impl Containers {
    pub fn with_specs<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = (&'a Container, &'a pod::Container)> {
        self.iter().zip(pod.containers()).map(|(container, (_, spec))| (container, spec))
    }

    pub fn any_alive(&self) -> bool {
        self.iter().any(Container::is_alive)
    }

    /// The container whose current attempt this is. None: the attempt is an earlier one.
    pub fn with_attempt(&self, pod: &Pod, attempt: &Attempt) -> Option<usize> {
        let at = pod.containers().position(|(_, spec)| spec.name == attempt.container)?;
        (self.get(at)?.number() == Some(attempt.number)).then_some(at)
    }

    /// No container has failed for good by itself.
    pub fn are_unharmed(&self, pod: &Pod) -> bool {
        let policy = pod.spec.restart_policy;
        self.with_specs(pod).all(|(container, spec)| {
            let again = |code| code == 0 || container.was_lost() || container.restarts(spec, policy, code);
            container.exit_code().is_none_or(again)
        })
    }

    pub fn have_failed_to_initialize(&self, pod: &Pod) -> bool {
        let policy = pod.spec.restart_policy;
        self.with_specs(pod).any(|(container, spec)| {
            container.role == Role::Init
                && container.exit_code().is_some_and(|code| code != 0 && !container.restarts(spec, policy, code))
        })
    }

    /// Whether all main containers have ended for good.
    pub fn have_finished(&self, pod: &Pod) -> bool {
        let policy = pod.spec.restart_policy;
        !self.is_empty()
            && self.with_specs(pod).all(|(container, spec)| {
                container.role != Role::Main
                    || container.exit_code().is_some_and(|code| !container.restarts(spec, policy, code))
            })
    }

    pub fn have_succeeded(&self) -> bool {
        let done = |container: &Container| match container.role {
            Role::Sidecar => true,
            Role::Init | Role::Main => container.exit_code() == Some(0),
        };
        !self.is_empty() && self.iter().all(done)
    }

    /// The Pod failed because the node was killed. A single container that failed by itself rules this out: the Pod
    /// would have failed anyway.
    pub fn are_lost(&self) -> bool {
        let failed = self.iter().filter(|container| container.role != Role::Sidecar);
        let mut failed = failed.filter(|container| container.exit_code().is_some_and(|code| code != 0)).peekable();
        failed.peek().is_some() && failed.all(Container::was_lost)
    }

    pub fn are_initialized(&self, pod: &Pod) -> bool {
        self.with_specs(pod).all(|(container, spec)| self.lets_others_begin(container, spec))
    }

    pub fn lets_others_begin(&self, container: &Container, spec: &pod::Container) -> bool {
        match container.role {
            Role::Init => container.exit_code() == Some(0),
            Role::Sidecar => container.has_started(spec) || self.main_has_run(),
            Role::Main => true,
        }
    }

    fn main_has_run(&self) -> bool {
        self.iter().any(|container| container.role == Role::Main && !container.is_fresh())
    }
}
