//! Pods: one word that summarizes the state of all containers.

use tally_core::time::Timestamp;
use tally_value::{Value, json};

use super::row::{NONE, Row, or};
use super::{AGE, Column, NAME, duration};

pub(super) static PODS: &[Column] = &[
    NAME,
    Column::text("Ready", "How many containers are ready, of how many that should be.", |row| {
        let summary = Summary::of(row);
        format!("{}/{}", summary.ready, summary.containers).into()
    }),
    Column::text("Status", "What the Pod is doing, or why it is not.", |row| Summary::of(row).reason.into()),
    Column::text("Restarts", "How often containers were restarted, and when last.", restarts),
    AGE,
    Column::text("IP", "The address of the Pod.", ip).wide(),
    Column::text("Node", "The node the Pod is bound to.", |row| row.text_or("/spec/nodeName", NONE).into()).wide(),
    Column::text("Nominated Node", "The node that is being cleared for the Pod.", |row| {
        row.text_or("/status/nominatedNodeName", NONE).into()
    })
    .wide(),
    Column::text("Readiness Gates", "How many further conditions of readiness hold.", readiness_gates).wide(),
];

/// The summary of the containers.
#[derive(Default)]
struct Summary {
    reason: String,
    ready: u64,
    containers: usize,
    restarts: i64,
    last_restart_at: Option<Timestamp>,
}

impl Summary {
    fn of(row: &Row) -> Self {
        let phase = row.text("/status/phase");
        let mut summary = Self {
            reason: or(row.text("/status/reason"), phase).to_owned(),
            containers: row.list("/spec/containers").len(),
            ..Self::default()
        };
        let gated =
            |condition: &&Value| condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated";
        if row.list("/status/conditions").iter().find(gated).is_some() {
            summary.reason = "SchedulingGated".to_owned();
        }
        let initializing = summary.add_init_containers(row);
        if !initializing || row.condition_is_true("Initialized") {
            summary.add_containers(row);
        }
        if row.is_being_deleted() {
            if row.text("/status/reason") == "NodeLost" {
                summary.reason = "Unknown".to_owned();
            } else if phase != "Succeeded" && phase != "Failed" {
                summary.reason = "Terminating".to_owned();
            }
        }
        summary
    }

    /// Init containers run one after the other, so the first unfinished one shows the progress. Returns whether there
    /// is one.
    fn add_init_containers(&mut self, row: &Row) -> bool {
        let specs = row.list("/spec/initContainers");
        let sidecar = |spec: &&Value| spec["restartPolicy"] == "Always";
        self.containers += specs.iter().filter(sidecar).count();

        let mut initializing = false;
        // Restarts of ordinary init containers do not count after initialization; those of sidecars do.
        let (mut init_restarts, mut init_restart_at) = (0_i64, None);
        for (done, status) in row.list("/status/initContainerStatuses").iter().enumerate() {
            let is_sidecar = specs.iter().filter(sidecar).any(|spec| spec["name"] == status["name"]);
            let (restarts, restart_at) = restarts_of(status);
            init_restarts = init_restarts.saturating_add(restarts);
            init_restart_at = init_restart_at.max(restart_at);
            if is_sidecar {
                self.restarts = self.restarts.saturating_add(restarts);
                self.last_restart_at = self.last_restart_at.max(restart_at);
            }
            let (terminated, waiting) = (object(status, "terminated"), object(status, "waiting"));
            let exit_code = terminated.map(|terminated| terminated["exitCode"].as_i64().unwrap_or_default());
            if exit_code == Some(0) {
                continue;
            }
            if is_sidecar && status["started"] == true {
                self.ready += u64::from(status["ready"] == true);
                continue;
            }
            let waiting = waiting.map_or("", reason_of);
            self.reason = if let Some(terminated) = terminated {
                format!("Init:{}", ended(terminated))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{done}/{}", specs.len())
            };
            initializing = true;
            break;
        }
        if initializing && !row.condition_is_true("Initialized") {
            (self.restarts, self.last_restart_at) = (init_restarts, init_restart_at);
        }
        initializing
    }

    /// The first container with a reason decides the word.
    fn add_containers(&mut self, row: &Row) {
        let mut running = false;
        let mut failure = None;
        for status in row.list("/status/containerStatuses").iter().rev() {
            let (restarts, restart_at) = restarts_of(status);
            self.restarts = self.restarts.saturating_add(restarts);
            self.last_restart_at = self.last_restart_at.max(restart_at);
            let waiting = object(status, "waiting").map_or("", reason_of);
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if let Some(terminated) = object(status, "terminated") {
                self.reason = ended(terminated);
                if terminated["exitCode"].as_i64().unwrap_or_default() != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if status["ready"] == true && object(status, "running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        // If the first container with a reason is completed, the others decide.
        if self.reason == "Completed" {
            self.reason = match failure {
                _ if running && row.condition_is_true("Ready") => "Running".to_owned(),
                Some(failure) => failure,
                None if running => "NotReady".to_owned(),
                None => return,
            };
        }
    }
}

/// The state of a container, if it is the one with this name.
fn object<'a>(status: &'a Value, state: &str) -> Option<&'a Value> {
    status["state"].get(state).filter(|state| !state.is_null())
}

fn reason_of(state: &Value) -> &str {
    state["reason"].as_str().unwrap_or_default()
}

/// The reason why a container terminated, in one word.
fn ended(terminated: &Value) -> String {
    let number = |field: &str| terminated[field].as_i64().unwrap_or_default();
    match (reason_of(terminated), number("signal")) {
        ("", 0) => format!("ExitCode:{}", number("exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn restarts_of(status: &Value) -> (i64, Option<Timestamp>) {
    let finished_at = status.pointer("/lastState/terminated/finishedAt").and_then(Value::as_str);
    (status["restartCount"].as_i64().unwrap_or_default(), finished_at.and_then(|text| Timestamp::parse(text).ok()))
}

fn restarts(row: &Row) -> Value {
    let summary = Summary::of(row);
    match summary.last_restart_at.filter(|_| summary.restarts != 0) {
        Some(at) => format!("{} ({} ago)", summary.restarts, duration::between(at, row.now)).into(),
        None => summary.restarts.to_string().into(),
    }
}

fn ip(row: &Row) -> Value {
    let first = row.text("/status/podIPs/0/ip");
    or(first, row.text_or("/status/podIP", NONE)).into()
}

fn readiness_gates(row: &Row) -> Value {
    let gates = row.list("/spec/readinessGates");
    if gates.is_empty() {
        return NONE.into();
    }
    let open =
        gates.iter().filter(|gate| gate["conditionType"].as_str().is_some_and(|kind| row.condition_is_true(kind)));
    format!("{}/{}", open.count(), gates.len()).into()
}

/// The condition of the row of a finished Pod. Clients grey such rows out, or hide them.
pub(super) fn completed(pod: &Value) -> Option<Value> {
    let (reason, message) = match pod.pointer("/status/phase").and_then(Value::as_str)? {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}
