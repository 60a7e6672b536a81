//! From a Pod to its first processes: the objects it refers to are read, its volumes are filled, its containers start
//! in order. If something is missing, the Pod waits; its status and events say what is missing.

use std::collections::BTreeSet;

use serde_json::Value;
use tally_core::time::{Span, Timestamp};
use tally_runtime::cache::retry_at;

use super::container::State;
use super::{Effects, Machine};
use crate::config_error::ContainerConfigError;
use crate::env::{Environment, environment};
use crate::options::Options;
use crate::pod::{self, Pod, Role, quantity};
use crate::port::{Failure, Mount, Preparation, ShimCommand, Start, TerminationMessage, Volume};
use crate::sources::{Source, Sources};
use crate::volumes::{Problem, mounts, volumes};

/// Interval at which volumes are updated from their ConfigMaps and Secrets.
const REFRESH: Span = Span::from_seconds(60);

/// A container's configuration refers to something that does not exist or is invalid.
const CONFIG_ERROR: &str = "CreateContainerConfigError";
/// The maximum length of a host name.
const LONGEST_HOSTNAME: usize = 63;

#[derive(Debug, Default)]
pub struct Setup {
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
    pub blocked: Option<Failure>,
    prepare_again_at: Option<Timestamp>,
    failures: u32,
}

impl Setup {
    pub fn of(pod: &Pod) -> Self {
        Self { wanted: Source::of(pod), stale: true, ..Self::default() }
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

    fn begin_to_read(&mut self) {
        self.to_read = self.wanted.clone();
        self.read_again_at = None;
    }

    fn fail(&mut self, now: Timestamp) -> Timestamp {
        let at = retry_at(now, self.failures);
        self.failures = self.failures.saturating_add(1);
        at
    }
}

impl Machine {
    /// The response to a read. Err: it is unknown whether the object exists.
    pub fn read(&mut self, source: Source, object: Result<Option<Value>, ()>, now: Timestamp) {
        let setup = &mut self.setup;
        setup.reading = setup.reading.saturating_sub(1);
        match object {
            Ok(object) => {
                setup.read_not_before = None;
                setup.sources.0.insert(source, object);
            }
            Err(()) => {
                setup.to_read.insert(source);
                setup.read_not_before = Some(setup.fail(now));
            }
        }
        if setup.is_reading() {
            return;
        }
        setup.complete = true;
        setup.stale = true;
        setup.blocked = None;
        setup.read_again_at = Some(now + REFRESH);
        for container in &mut self.containers {
            container.waiting = container.waiting.take().filter(|waiting| waiting.reason != CONFIG_ERROR);
        }
    }

    /// Reads and prepares everything that must exist before the first container starts, and keeps it up to date.
    pub(super) fn set_up(&mut self, node: &Options, now: Timestamp, out: &mut Effects) {
        let setup = &mut self.setup;
        if setup.is_reading() {
            setup.read_not_before.into_iter().filter(|at| *at > now).for_each(|at| out.wake(at));
        } else if !setup.wanted.is_empty() {
            match setup.read_again_at {
                None if !setup.complete => setup.begin_to_read(),
                Some(at) if at <= now => setup.begin_to_read(),
                Some(at) => out.wake(at),
                None => {}
            }
        }
        if setup.is_reading() || setup.preparing.is_some() {
            return;
        }
        if let Some(at) = setup.prepare_again_at {
            if now < at {
                out.wake(at);
                return;
            }
            setup.prepare_again_at = None;
            setup.blocked = None;
            setup.stale = true;
        }
        if std::mem::take(&mut setup.stale) {
            self.prepare(node, now, out);
        }
    }

    fn prepare(&mut self, node: &Options, now: Timestamp, out: &mut Effects) {
        if let Some(problem) = &self.pod.unreadable {
            out.warn("Failed", format!("Error: {}: {problem}", super::status::UNREADABLE));
            return self.told.touch(now);
        }
        match volumes(&self.pod, node, &self.setup.sources) {
            Ok(volumes) if self.setup.prepared.as_ref() == Some(&volumes) => {}
            Ok(volumes) => {
                let metadata = &self.pod.metadata;
                out.commands.push(ShimCommand::Prepare(Box::new(Preparation {
                    pod: metadata.uid.clone(),
                    namespace: metadata.namespace.clone(),
                    name: metadata.name.clone(),
                    volumes: volumes.clone(),
                })));
                self.setup.preparing = Some(volumes);
            }
            // The existing content stays as it is; the next round of reads tries again.
            Err(_) if self.setup.is_prepared() => {}
            Err((volume, problem)) => {
                let (reason, what) = match problem {
                    Problem::Missing(what) => {
                        self.setup.read_again_at = Some(self.setup.fail(now));
                        ("ContainerCreating", what)
                    }
                    Problem::Unsupported(what) => ("UnsupportedVolume", what),
                };
                let message = format!("MountVolume.SetUp failed for volume {volume:?} : {what}");
                out.warn("FailedMount", message.clone());
                self.setup.read_again_at.into_iter().for_each(|at| out.wake(at));
                self.setup.blocked = Some(Failure { reason: reason.into(), message, passing: false });
                self.told.touch(now);
            }
        }
    }

    pub(super) fn prepared(&mut self, now: Timestamp) {
        if let Some(volumes) = self.setup.preparing.take() {
            if self.setup.prepared.is_none() {
                self.told.touch(now);
            }
            self.setup.prepared = Some(volumes);
            self.setup.failures = 0;
        }
    }

    pub(super) fn unprepared(&mut self, failure: Failure, now: Timestamp, out: &mut Effects) {
        if self.setup.preparing.take().is_none() {
            return;
        }
        out.warn("FailedMount", failure.message.clone());
        self.setup.prepare_again_at = Some(self.setup.fail(now));
        if self.setup.prepared.is_none() {
            self.setup.blocked = Some(failure);
            self.told.touch(now);
        }
    }

    /// Starts the containers that are due: init containers one after the other, sidecars once the containers before
    /// them are up, the main containers all at once; and restarts those that have ended and whose back-off is over.
    pub(super) fn start_what_may(&mut self, node: &Options, now: Timestamp, out: &mut Effects) {
        if !self.setup.is_prepared() {
            return;
        }
        let policy = self.pod.spec.restart_policy;
        let mut open = true;
        for at in 0..self.containers.len() {
            let container = &mut self.containers[at];
            match container.not_before {
                Some(then) if then > now => out.wake(then),
                Some(_) => (container.not_before, container.waiting) = (None, None),
                None => {}
            }
            let (container, Some(spec)) = (&self.containers[at], self.spec(at)) else { return };
            let role = container.role;
            let may_start = match &container.state {
                State::Fresh => open && container.waiting.is_none(),
                State::Ended { again_at, how, .. } if container.restarts(spec, policy, how.exit_code) => {
                    if *again_at > now {
                        out.wake(*again_at);
                        let message =
                            format!("Back-off restarting failed container {} in pod {}", spec.name, self.full_name());
                        if !std::mem::replace(&mut self.containers[at].backs_off, true) {
                            out.warn("BackOff", message);
                            self.told.touch(now);
                        }
                        false
                    } else {
                        container.waiting.is_none()
                    }
                }
                _ => false,
            };
            if may_start {
                self.start(at, node, now, out);
            }
            let (container, Some(spec)) = (&self.containers[at], self.spec(at)) else { return };
            open &= match role {
                Role::Init => container.exit_code() == Some(0),
                Role::Sidecar => container.has_started(spec),
                Role::Main => true,
            };
        }
    }

    fn start(&mut self, at: usize, node: &Options, now: Timestamp, out: &mut Effects) {
        let Some(spec) = self.spec(at) else { return };
        match self.ready_to_start(spec, node) {
            Ok((env, mounts)) => {
                let number = self.containers[at].begin();
                let Some(spec) = self.spec(at) else { return };
                out.commands.push(ShimCommand::Start(Box::new(self.order(spec, number, env, mounts, node))));
            }
            Err(failure) => {
                if failure.reason == CONFIG_ERROR {
                    out.warn("Failed", format!("Error: {}", failure.message));
                    // The missing object may be created later.
                    if !self.setup.wanted.is_empty() {
                        let again_at = self.setup.fail(now);
                        self.setup.read_again_at = Some(again_at);
                        out.wake(again_at);
                    }
                } else {
                    out.warn("CommandMissing", failure.message.clone());
                }
                self.containers[at].waiting = Some(failure);
                self.told.touch(now);
            }
        }
    }

    fn ready_to_start(&self, spec: &pod::Container, node: &Options) -> Result<(Environment, Vec<Mount>), Failure> {
        if spec.command.is_empty() {
            let has = if spec.args.is_empty() { "no command" } else { "args and no command" };
            let message = format!(
                "container {:?} has {has}: this node runs Pods as plain processes, starts no images and knows no \
                 image's entrypoint, so `command` must say what to run",
                spec.name.as_str()
            );
            return Err(Failure { reason: "CommandMissing".into(), message, passing: false });
        }
        let config_error = |message| Failure { reason: CONFIG_ERROR.into(), message, passing: false };
        let probes = [&spec.startup_probe, &spec.liveness_probe, &spec.readiness_probe];
        if probes.into_iter().flatten().any(|probe| probe.handler.grpc.is_some()) {
            let message = "this node has exec, httpGet and tcpSocket probes, not grpc";
            return Err(config_error(message.to_owned()));
        }
        let hooks = [&spec.lifecycle.post_start, &spec.lifecycle.pre_stop].into_iter().flatten();
        let handlers = probes.into_iter().flatten().map(|probe| &probe.handler).chain(hooks);
        // An HTTPS check would fail each time and end a healthy container.
        if handlers.filter_map(|handler| handler.http_get.as_ref()).any(|get| get.scheme == "HTTPS") {
            let message = "this node has httpGet probes and hooks with scheme HTTP, not HTTPS";
            return Err(config_error(message.to_owned()));
        }
        if let Some(problem) = self.runs_as_root_against_its_will(spec, node) {
            let (pod, name) = (self.full_name(), &spec.name);
            return Err(config_error(format!("{problem} (pod: {pod:?}, container: {name})")));
        }
        if let Some(rule) = spec.restart_policy_rules.iter().find(|rule| rule.action != "Restart") {
            let message =
                format!("this node has restartPolicyRules with action Restart, not {:?}", rule.action.as_str());
            return Err(config_error(message));
        }
        let invalid = |error: ContainerConfigError| config_error(error.to_string());
        let env = environment(&self.pod, spec, node, &self.setup.sources).map_err(invalid)?;
        let mounts = mounts(spec, &env).map_err(invalid)?;
        Ok((env, mounts))
    }

    fn runs_as_root_against_its_will(&self, spec: &pod::Container, node: &Options) -> Option<&'static str> {
        let (own, of_pod) = (&spec.security_context, &self.pod.spec.security_context);
        if !own.run_as_non_root.or(of_pod.run_as_non_root).unwrap_or(false) {
            return None;
        }
        match own.run_as_user.or(of_pod.run_as_user) {
            Some(0) => Some("container's runAsUser breaks non-root policy"),
            None if node.is_root => Some("container has runAsNonRoot and image will run as root"),
            _ => None,
        }
    }

    /// The command of a probe, with variables expanded as in the container's own command.
    pub(super) fn filled_in(&self, spec: &pod::Container, argv: &[String], node: &Options) -> Vec<String> {
        match environment(&self.pod, spec, node, &self.setup.sources) {
            Ok(env) => argv.iter().map(|word| env.expand(word)).collect(),
            // An object that the container's environment came from has been deleted since.
            Err(_) => argv.to_vec(),
        }
    }

    fn order(&self, spec: &pod::Container, number: u32, env: Environment, mounts: Vec<Mount>, node: &Options) -> Start {
        let pod = &self.pod.spec;
        // A limit of zero means no limit.
        let limit = |name| quantity(spec.resources.limits.get(name)).filter(|limit| !limit.is_zero());
        let id = |own: Option<i64>, of_pod: Option<i64>| own.or(of_pod).and_then(|id| u32::try_from(id).ok());
        let context = &spec.security_context;
        Start {
            attempt: crate::port::Attempt { pod: self.uid().clone(), container: spec.name.clone(), number },
            argv: env.argv(spec),
            working_dir: Some(&spec.working_dir).filter(|dir| !dir.is_empty()).cloned(),
            hostname: self.hostname(node),
            mounts,
            cpu_limit: limit("cpu").and_then(|limit| u64::try_from(limit.milli_value()).ok()),
            memory_limit: limit("memory").and_then(|limit| u64::try_from(limit.value()).ok()),
            user: id(context.run_as_user, pod.security_context.run_as_user),
            group: id(context.run_as_group, pod.security_context.run_as_group),
            termination_message: TerminationMessage {
                path: match spec.termination_message_path.as_str() {
                    "" => "/dev/termination-log".to_owned(),
                    path => path.to_owned(),
                },
                from_logs: spec.termination_message_policy == "FallbackToLogsOnError",
            },
            env: env.into_variables(),
        }
    }

    fn hostname(&self, node: &Options) -> String {
        let spec = &self.pod.spec;
        let name = match &spec.hostname {
            _ if spec.host_network => &node.hostname,
            own if own.is_empty() => &self.pod.metadata.name,
            own => own,
        };
        let short: String = name.chars().take(LONGEST_HOSTNAME).collect();
        short.trim_end_matches(['-', '.']).to_owned()
    }

    pub(super) fn full_name(&self) -> String {
        let metadata = &self.pod.metadata;
        format!("{}_{}({})", metadata.name, metadata.namespace, metadata.uid)
    }
}
