//! Starting containers: in order, and again when their back-off is over.

use std::path::PathBuf;

use serde_json::Value;
use tally_core::time::Timestamp;

use super::container::State;
use super::{Effects, PodWorker};
use crate::config_error::ContainerConfigError;
use crate::each::FIRST_INDEX_ANNOTATION;
use crate::env::{ENVIRONMENT_ANNOTATION, Environment, environment};
use crate::options::NodeOptions;
use crate::output::{OutputSource, ResultsOptions};
use crate::pod::{self, Role, quantity};
use crate::port::{Confinement, Mount, OperationError, ResourceLimits, ShimCommand, Start, TerminationMessage};
use crate::security;
use crate::sources::Source;
use crate::volumes::mounts;

/// A container's configuration refers to something that does not exist or is invalid.
const CONFIG_ERROR: &str = "CreateContainerConfigError";
/// A label of every Pod that a Job has created.
pub const JOB_UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
const JOB_NAME_LABEL: &str = "batch.kubernetes.io/job-name";
/// The maximum length of a host name.
const LONGEST_HOSTNAME: usize = 63;

/// What is decided about a container before it starts.
struct ContainerStart {
    env: Environment,
    mounts: Vec<Mount>,
    confinement: Confinement,
}

impl PodWorker {
    /// The response to a read. Err: it is unknown whether the object exists.
    pub fn read(&mut self, source: Source, object: Result<Option<Value>, ()>, now: Timestamp) {
        if self.setup.read(source, object, now) {
            for container in self.containers.iter_mut() {
                container.waiting = container.waiting.take().filter(|waiting| waiting.reason != CONFIG_ERROR);
            }
        }
    }

    /// Starts the containers that are due: init containers one after the other, sidecars once the containers before
    /// them are up, the main containers all at once; and restarts those that have ended and whose back-off is over.
    pub(super) fn start_what_may(&mut self, node: &NodeOptions, now: Timestamp, out: &mut Effects) {
        if !self.setup.is_prepared() || self.row.is_pending() {
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
                            self.reporter.touch(now);
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

    fn start(&mut self, at: usize, node: &NodeOptions, now: Timestamp, out: &mut Effects) {
        let Some(spec) = self.spec(at) else { return };
        match self.ready_to_start(spec, node) {
            Ok(ready) => {
                let number = self.containers[at].begin();
                let Some(spec) = self.spec(at) else { return };
                out.commands.push(ShimCommand::Start(Box::new(self.order(spec, number, ready, node))));
            }
            Err(failure) => {
                if failure.reason == CONFIG_ERROR {
                    out.warn("Failed", format!("Error: {}", failure.message));
                    // The missing object may be created later.
                    self.setup.read_again(now, out);
                } else {
                    out.warn("CommandMissing", failure.message.clone());
                }
                self.containers[at].waiting = Some(failure);
                self.reporter.touch(now);
            }
        }
    }

    fn ready_to_start(&self, spec: &pod::Container, node: &NodeOptions) -> Result<ContainerStart, OperationError> {
        if spec.command.is_empty() {
            let has = if spec.args.is_empty() { "no command" } else { "args and no command" };
            let message = format!(
                "container {:?} has {has}: this node runs Pods as plain processes, starts no images and knows no \
                 image's entrypoint, so `command` must say what to run",
                spec.name.as_str()
            );
            return Err(OperationError { reason: "CommandMissing".into(), message, passing: false });
        }
        let config_error = |message| OperationError { reason: CONFIG_ERROR.into(), message, passing: false };
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
        let who = format!("pod: {:?}, container: {}", self.full_name(), spec.name);
        let confinement = security::confinement(&self.pod.spec, spec, node.security_node(), &who)
            .map_err(|refusal| config_error(refusal.to_string()))?;
        if let Some(rule) = spec.restart_policy_rules.iter().find(|rule| rule.action != "Restart") {
            let message =
                format!("this node has restartPolicyRules with action Restart, not {:?}", rule.action.as_str());
            return Err(config_error(message));
        }
        let invalid = |error: ContainerConfigError| config_error(error.to_string());
        let env = environment(&self.pod, spec, node, self.setup.sources()).map_err(invalid)?;
        let mut mounts = mounts(spec, &env).map_err(invalid)?;
        let claims =
            self.pod.spec.volumes.iter().filter_map(|it| Some((&it.name, it.persistent_volume_claim.as_ref()?)));
        for (volume, _) in claims.filter(|(_, claim)| claim.read_only) {
            mounts.iter_mut().filter(|mount| mount.volume == *volume).for_each(|mount| mount.read_only = true);
        }
        if let Some(unmounted) = self.row.unmounted() {
            mounts.retain(|mount| mount.volume != unmounted);
        }
        Ok(ContainerStart { env, mounts, confinement })
    }

    /// The command of a probe, with variables expanded as in the container's own command.
    pub(super) fn filled_in(&self, spec: &pod::Container, argv: &[String], node: &NodeOptions) -> Vec<String> {
        match environment(&self.pod, spec, node, self.setup.sources()) {
            Ok(env) => argv.iter().map(|word| env.expand(word)).collect(),
            // An object that the container's environment came from has been deleted since.
            Err(_) => argv.to_vec(),
        }
    }

    fn order(&self, spec: &pod::Container, number: u32, ready: ContainerStart, node: &NodeOptions) -> Start {
        let ContainerStart { mut env, mounts, confinement } = ready;
        let argv = match self.row.row() {
            Some(row) => row.run(spec, &mut env),
            None => env.argv(spec),
        };
        // A limit of zero means no limit.
        let limit = |name| quantity(spec.resources.limits.get(name)).filter(|limit| !limit.is_zero());
        let id = |field: &str| {
            let contexts = [&spec.security_context, &self.pod.spec.security_context];
            let set = contexts.into_iter().find_map(|context| context.get(field)?.as_u64());
            set.and_then(|id| u32::try_from(id).ok())
        };
        Start {
            attempt: crate::port::Attempt { pod: self.uid().clone(), container: spec.name.clone(), number },
            pod_name: format!("{}/{}", self.pod.metadata.namespace, self.pod.metadata.name),
            argv,
            working_dir: Some(&spec.working_dir).filter(|dir| !dir.is_empty()).cloned(),
            hostname: self.hostname(node),
            mounts,
            limits: ResourceLimits {
                cpu: limit("cpu").and_then(|limit| u64::try_from(limit.milli_value()).ok()),
                memory: limit("memory").and_then(|limit| u64::try_from(limit.value()).ok()),
                cpu_request: cpu_request(spec),
                pod_cpu_request: self.pod_cpu_request(),
            },
            user: id("runAsUser"),
            group: id("runAsGroup"),
            confinement,
            termination_message: TerminationMessage {
                path: match spec.termination_message_path.as_str() {
                    "" => "/dev/termination-log".to_owned(),
                    path => path.to_owned(),
                },
                from_logs: spec.termination_message_policy == "FallbackToLogsOnError",
            },
            env: env.into_variables(),
            stdin: spec.stdin,
            stdin_once: spec.stdin_once,
            tty: spec.tty,
            inherits_env: node.shares_env
                && !node.security.isolates
                && self.pod.metadata.annotations.get(ENVIRONMENT_ANNOTATION).is_some_and(|value| value == "shell"),
            results: node.results.as_ref().map(|options| self.results(spec, options)),
            source: (node.tells_source || node.results.is_some()).then(|| Box::new(self.output_source())),
        }
    }

    fn output_source(&self) -> OutputSource {
        let metadata = &self.pod.metadata;
        let number = |name: &str| metadata.annotations.get(name).and_then(|number| number.parse::<u32>().ok());
        let (index, first) = (self.pod.task_index(), number(FIRST_INDEX_ANNOTATION).unwrap_or(0));
        let label = |name: &str| metadata.labels.get(name).map_or("", String::as_str).into();
        OutputSource {
            namespace: metadata.namespace.clone(),
            job: label(JOB_UID_LABEL),
            job_name: label(JOB_NAME_LABEL),
            pod: metadata.name.clone(),
            index: index.map(|index| first.saturating_add(index)),
            several: self.pod.containers().count() > 1,
        }
    }

    /// `DIR/INDEX`, or `DIR/POD` if the Job is not Indexed.
    fn results(&self, spec: &pod::Container, options: &ResultsOptions) -> PathBuf {
        let source = self.output_source();
        let mut path = options.directory.clone();
        if options.by_job {
            path.push(match source.namespace.as_str() {
                "default" => source.job_name.to_string(),
                namespace => format!("{namespace}.{}", source.job_name),
            });
        }
        path.push(source.index.map_or_else(|| source.pod.to_string(), |index| index.to_string()));
        if source.several {
            path.push(spec.name.as_str());
        }
        path
    }

    fn hostname(&self, node: &NodeOptions) -> String {
        let spec = &self.pod.spec;
        let name = match &spec.hostname {
            _ if spec.host_network => &node.hostname,
            own if own.is_empty() => &self.pod.metadata.name,
            own => own,
        };
        let short: String = name.chars().take(LONGEST_HOSTNAME).collect();
        short.trim_end_matches(['-', '.']).to_owned()
    }

    /// Init containers run one after the other, beside the sidecars.
    fn pod_cpu_request(&self) -> u64 {
        let of = |which: Role| {
            self.pod.containers().filter(move |(role, _)| *role == which).map(|(_, spec)| cpu_request(spec))
        };
        let sidecars: u64 = of(Role::Sidecar).sum();
        sidecars + of(Role::Main).sum::<u64>().max(of(Role::Init).max().unwrap_or(0))
    }

    pub(super) fn full_name(&self) -> String {
        let metadata = &self.pod.metadata;
        format!("{}_{}({})", metadata.name, metadata.namespace, metadata.uid)
    }
}

/// In thousandths of a CPU.
fn cpu_request(spec: &pod::Container) -> u64 {
    let request = quantity(spec.resources.requests.get("cpu"));
    request.and_then(|request| u64::try_from(request.milli_value()).ok()).unwrap_or(0)
}
