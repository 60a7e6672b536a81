//! The Pod that a Job's template describes, as the body of the create request (CREATE-1 to 6).
//!
//! The template is a tree that all Pods of the Job share: what is not changed is not copied, and unknown fields survive.

use std::sync::Arc;

use compact_str::{CompactString, ToCompactString};
use tally_value::{Map, Value, json};
use thiserror::Error;

use crate::ids::{CompletionIndex, JobUid};
use crate::job::JobView;
use crate::pod::{
    FAILURE_COUNT_ANNOTATION, IGNORED_FAILURE_COUNT_ANNOTATION, INDEX_ANNOTATION, START_GATE, TRACKING_FINALIZER,
};

/// The environment variable from which a container reads its index.
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";
const INDEX_FIELD: &str = "metadata.labels['batch.kubernetes.io/job-completion-index']";
/// The API server truncates a generateName to this length before it adds five characters: 63 in all, a DNS label.
const GENERATE_NAME_LIMIT: usize = 58;
/// The maximum length of a Pod's name: a DNS subdomain.
const NAME_LIMIT: usize = 253;

/// What is specific to one Pod of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPod {
    pub name: CompactString,
    /// Only for an Indexed Job.
    pub index: Option<CompletionIndex>,
    /// How often this index has failed before. Only for a Job that limits the failures of each index.
    pub failure_count: Option<u32>,
    /// How many failures of this index the failure policy ignored. Written only together with `failure_count`.
    pub ignored_failure_count: u32,
}

/// Why no Pod can be created from a template.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BlueprintError {
    /// No selector could find such a Pod. The wording is part of the API.
    #[error("unable to create pods, no labels")]
    NoLabels,
    #[error("cannot read {field} of the Job: {problem}")]
    Unreadable { field: &'static str, problem: String },
}

/// What the Pods of a Job have in common: the same trees, so that a reader who knows one Pod knows it in all of them.
#[derive(Debug)]
pub(crate) struct PodPattern {
    variant: Variant,
    labels: Map,
    annotations: Map,
    finalizers: Value,
    owners: Value,
    spec: Map,
}

/// What of a Job its Pods depend on, beside the template.
#[derive(Debug, PartialEq, Eq)]
struct Variant {
    uid: JobUid,
    name: CompactString,
    has_index: bool,
    start_gate: bool,
    tracks: bool,
    only_node: Option<CompactString>,
}

/// The body of the request that creates this Pod. With `start_gate` it is created behind that gate (TTL-23), unless the
/// template names its node: the API refuses such a Pod with a gate.
pub fn pod_body(job: &JobView, pod: &NewPod, start_gate: bool) -> Result<Value, BlueprintError> {
    pod_body_on(job, pod, start_gate, None)
}

/// The same in a cluster whose only node has room for all Pods of all Jobs: a Pod that asks nothing of its node is created
/// there (CREATE-8).
pub fn pod_body_on(
    job: &JobView,
    pod: &NewPod,
    start_gate: bool,
    only_node: Option<&CompactString>,
) -> Result<Value, BlueprintError> {
    let has_index = pod.index.is_some();
    // The API refuses a Pod with a node and a gate.
    let only_node = only_node.filter(|_| !start_gate).cloned();
    let (uid, name, tracks) = (job.uid.clone(), job.name.clone(), !job.legacy);
    let variant = Variant { uid, name, has_index, start_gate, tracks, only_node };
    let known = job.spec.template.pattern();
    let pattern = match known.get().filter(|known| known.variant == variant) {
        Some(known) => known.clone(),
        None => {
            let made = Arc::new(PodPattern::new(job, variant)?);
            let _ = known.set(made.clone());
            made
        }
    };
    let mut labels = pattern.labels.clone();
    let mut annotations = pattern.annotations.clone();
    let mut spec = pattern.spec.clone();
    if let Some(index) = pod.index {
        let text = Value::from(index.to_compact_string());
        labels.insert(INDEX_ANNOTATION, text.clone());
        annotations.insert(INDEX_ANNOTATION, text);
        spec.insert("hostname", compact_str::format_compact!("{}-{index}", job.name).into());
    }
    if let Some(count) = pod.failure_count {
        annotations.insert(FAILURE_COUNT_ANNOTATION, count.to_compact_string().into());
        if pod.ignored_failure_count > 0 {
            let ignored = pod.ignored_failure_count.to_compact_string();
            annotations.insert(IGNORED_FAILURE_COUNT_ANNOTATION, ignored.into());
        }
    }
    if labels.is_empty() {
        return Err(BlueprintError::NoLabels);
    }
    // With room for what the API server adds: a UID, a time of creation, a generation.
    let mut metadata = Map::with_capacity(10);
    if !annotations.is_empty() {
        metadata.insert("annotations", annotations.into());
    }
    if pattern.finalizers.as_array().is_some_and(|finalizers| !finalizers.is_empty()) {
        metadata.insert("finalizers", pattern.finalizers.clone());
    }
    metadata.insert("generateName", generate_name(&job.name, pod.index).into());
    metadata.insert("labels", labels.into());
    metadata.insert("name", (&pod.name).into());
    metadata.insert("namespace", (&job.namespace).into());
    metadata.insert("ownerReferences", pattern.owners.clone());
    // The empty status is what the API shows of a Pod without one: a body in this form need not be conformed.
    Ok(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}}))
}

impl PodPattern {
    fn new(job: &JobView, variant: Variant) -> Result<Self, BlueprintError> {
        let template = job.spec.template.tree().map_err(|problem| unreadable("spec.template", problem))?;
        let template = map(Some(template), "spec.template")?;
        let from = map(template.get("metadata"), "spec.template.metadata")?;
        let finalizers = list(from.get("finalizers"), "spec.template.metadata.finalizers")?;
        let mut spec = map(template.get("spec"), "spec.template.spec")?;
        if variant.has_index {
            add_index_variables(&mut spec)?;
        }
        if variant.start_gate {
            add_start_gate(&mut spec)?;
        }
        if let Some(node) = &variant.only_node
            && asks_nothing_of_its_node(&spec)
        {
            spec.insert("nodeName", node.clone().into());
        }
        Ok(Self {
            labels: map(from.get("labels"), "spec.template.metadata.labels")?,
            annotations: map(from.get("annotations"), "spec.template.metadata.annotations")?,
            finalizers: with_tracking(finalizers, variant.tracks)?.into(),
            // The owner references of the template are not copied: they are not the Pod's owners.
            owners: json!([owner(job)]),
            spec,
            variant,
        })
    }
}

/// The prefix that a client sees as generateName. For an Indexed Job the Job's name is truncated so that the server,
/// which truncates at the end, keeps the index (VEC-35).
pub fn generate_name(job_name: &str, index: Option<CompletionIndex>) -> String {
    let Some(index) = index else {
        let dash = if is_name_prefix(job_name) { "-" } else { "" };
        return [job_name, dash].concat();
    };
    let mut name = String::with_capacity(GENERATE_NAME_LIMIT.max(job_name.len() + 12));
    name.push_str(job_name);
    let tail = compact_str::format_compact!("-{index}-");
    name.truncate(job_name.floor_char_boundary(GENERATE_NAME_LIMIT - tail.len()));
    name.push_str(&tail);
    name
}

/// Whether this name with a dash is still a valid beginning of a Pod's name: a DNS subdomain with room for the dash.
fn is_name_prefix(name: &str) -> bool {
    let is_label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = label.as_bytes();
        bytes.iter().all(|&byte| plain(byte) || byte == b'-')
            && bytes.first().is_some_and(|&byte| plain(byte))
            && bytes.last().is_some_and(|&byte| plain(byte))
    };
    name.len() < NAME_LIMIT && name.split('.').all(is_label)
}

/// CREATE-4: the host name contains the index, and every container has the index as an environment variable.
fn add_index_variables(spec: &mut Map) -> Result<(), BlueprintError> {
    for (field, path) in
        [("initContainers", "spec.template.spec.initContainers"), ("containers", "spec.template.spec.containers")]
    {
        if !spec.contains_key(field) {
            continue;
        }
        let mut containers = list(spec.get(field), path)?;
        for container in &mut containers {
            add_index_variable(container, path)?;
        }
        spec.insert(field, containers.into());
    }
    Ok(())
}

fn add_index_variable(container: &mut Value, path: &'static str) -> Result<(), BlueprintError> {
    let Value::Object(container) = container else { return Err(unreadable(path, "a container is not an object")) };
    let mut variables = list(container.get("env"), path)?;
    if !variables.iter().all(Value::is_object) {
        return Err(unreadable(path, "a variable of env is not an object"));
    }
    if !variables.iter().any(|variable| variable["name"] == INDEX_VARIABLE) {
        variables.push(
            json!({"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": INDEX_FIELD}}}),
        );
    }
    container.insert("env", variables.into());
    Ok(())
}

/// The finalizers of the template, and the tracking finalizer exactly if the Pod is tracked with it (GATE-8).
fn with_tracking(mut finalizers: Vec<Value>, track: bool) -> Result<Vec<Value>, BlueprintError> {
    if !finalizers.iter().all(Value::is_string) {
        return Err(unreadable("spec.template.metadata.finalizers", "a finalizer is not a text"));
    }
    if !track {
        finalizers.retain(|finalizer| *finalizer != TRACKING_FINALIZER);
    } else if !finalizers.iter().any(|finalizer| *finalizer == TRACKING_FINALIZER) {
        finalizers.push(TRACKING_FINALIZER.into());
    }
    Ok(finalizers)
}

fn add_start_gate(spec: &mut Map) -> Result<(), BlueprintError> {
    if spec.get("nodeName").is_some_and(|node| !node.is_null() && *node != "") {
        return Ok(());
    }
    let mut gates = list(spec.get("schedulingGates"), "spec.template.spec.schedulingGates")?;
    gates.retain(|gate| gate["name"] != START_GATE);
    gates.push(json!({"name": START_GATE}));
    spec.insert("schedulingGates", gates.into());
    Ok(())
}

/// CREATE-8: a scheduler would put such a Pod on any node that takes another one. Whatever else a template says is for the
/// scheduler to decide: only what is known to have nothing to do with it is listed here.
fn asks_nothing_of_its_node(spec: &Map) -> bool {
    const ELSEWHERE: [&str; 14] = [
        "activeDeadlineSeconds",
        "automountServiceAccountToken",
        "containers",
        "dnsPolicy",
        "enableServiceLinks",
        "hostname",
        "initContainers",
        "restartPolicy",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "subdomain",
        "terminationGracePeriodSeconds",
        "volumes",
    ];
    const VOLUMES: [&str; 6] = ["configMap", "downwardAPI", "emptyDir", "name", "projected", "secret"];
    let is_empty = |value: &Value| match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        value => value.is_null(),
    };
    let all = |field: &str, holds: &dyn Fn(&Map) -> bool| match spec.get(field) {
        None => true,
        Some(Value::Array(items)) => items.iter().all(|item| item.as_object().is_some_and(holds)),
        Some(_) => false,
    };
    let asks_nothing = |container: &Map| {
        let resources = container.get("resources").and_then(Value::as_object);
        resources.is_none_or(|resources| resources.iter().all(|(_, amounts)| is_empty(amounts)))
            && container.get("ports").is_none_or(is_empty)
    };
    let is_local = |volume: &Map| volume.iter().all(|(field, _)| VOLUMES.contains(&field.as_str()));
    let is_elsewhere = |(field, value): (_, &Value)| -> bool {
        let field: &str = field;
        ELSEWHERE.contains(&field) || field == "schedulerName" && *value == "default-scheduler"
    };
    spec.iter().all(|(field, value)| is_elsewhere((field.as_str(), value)))
        && all("containers", &asks_nothing)
        && all("initContainers", &asks_nothing)
        && all("volumes", &is_local)
}

fn owner(job: &JobView) -> Value {
    json!({
        "apiVersion": "batch/v1", "blockOwnerDeletion": true, "controller": true, "kind": "Job",
        "name": job.name, "uid": job.uid.to_compact_string(),
    })
}

fn unreadable(field: &'static str, problem: &str) -> BlueprintError {
    BlueprintError::Unreadable { field, problem: problem.to_owned() }
}

/// `null` and absence mean empty, as everywhere in the Kubernetes API.
fn map(value: Option<&Value>, field: &'static str) -> Result<Map, BlueprintError> {
    match value {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(map)) => Ok(map.clone()),
        Some(_) => Err(unreadable(field, "it is not an object")),
    }
}

fn list(value: Option<&Value>, field: &'static str) -> Result<Vec<Value>, BlueprintError> {
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => Ok(items.to_vec()),
        Some(_) => Err(unreadable(field, "it is not a list")),
    }
}
