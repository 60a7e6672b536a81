//! The Pod that a Job's template describes, as the JSON body of the create request (CREATE-1 to 6).
//!
//! The template is decoded only where something must be added; every other part is copied byte for byte. So unknown
//! fields survive, numbers keep their notation, and a large template costs little more than its length.

use std::borrow::Cow;
use std::fmt;

use compact_str::{CompactString, ToCompactString};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::ids::CompletionIndex;
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

/// The body of the request that creates this Pod. With `start_gate` it is created behind that gate (TTL-23), unless the
/// template names its node: the API refuses such a Pod with a gate.
pub fn pod_body(job: &JobView, pod: &NewPod, start_gate: bool) -> Result<Vec<u8>, BlueprintError> {
    let mut template = Object::read(Some(&job.spec.template.0), "spec.template")?;
    let mut from = Object::read(template.take("metadata"), "spec.template.metadata")?;
    let mut labels = Object::read(from.take("labels"), "spec.template.metadata.labels")?;
    let mut annotations = Object::read(from.take("annotations"), "spec.template.metadata.annotations")?;
    let finalizers = list(from.take("finalizers"), "spec.template.metadata.finalizers")?;
    let spec = template.take("spec");

    if let Some(index) = pod.index {
        let text = index.to_compact_string();
        labels.set(INDEX_ANNOTATION, Part::Text(text.clone()));
        annotations.set(INDEX_ANNOTATION, Part::Text(text));
    }
    if let Some(count) = pod.failure_count {
        annotations.set(FAILURE_COUNT_ANNOTATION, Part::Text(count.to_compact_string()));
        if pod.ignored_failure_count > 0 {
            let ignored = pod.ignored_failure_count.to_compact_string();
            annotations.set(IGNORED_FAILURE_COUNT_ANNOTATION, Part::Text(ignored));
        }
    }
    if labels.0.is_empty() {
        return Err(BlueprintError::NoLabels);
    }

    let mut metadata = Object::default();
    metadata.set("generateName", Part::Text(generate_name(&job.name, pod.index).into()));
    metadata.set("name", Part::Text(pod.name.clone()));
    metadata.set("namespace", Part::Text(job.namespace.clone()));
    metadata.set("labels", Part::Object(labels));
    if !annotations.0.is_empty() {
        metadata.set("annotations", Part::Object(annotations));
    }
    let finalizers = with_tracking(finalizers, !job.legacy)?;
    if !finalizers.is_empty() {
        metadata.set("finalizers", Part::List(finalizers));
    }
    // The owner references of the template are not copied: they are not the Pod's owners.
    metadata.set("ownerReferences", Part::List(vec![Part::Object(owner(job))]));

    let spec = match pod.index {
        Some(index) => Part::Object(indexed_spec(spec, job, index)?),
        None if start_gate => Part::Object(Object::read(spec, "spec.template.spec")?),
        None => spec.map_or_else(|| Part::Object(Object::default()), Part::Raw),
    };
    let spec = match spec {
        Part::Object(spec) if start_gate => Part::Object(with_start_gate(spec)?),
        spec => spec,
    };
    let body = Object(vec![
        ("apiVersion".into(), Part::Text("v1".into())),
        ("kind".into(), Part::Text("Pod".into())),
        ("metadata".into(), Part::Object(metadata)),
        ("spec".into(), spec),
    ]);
    serde_json::to_vec(&body).map_err(|problem| unreadable("spec.template", problem))
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
fn indexed_spec<'a>(
    spec: Option<&'a RawValue>,
    job: &JobView,
    index: CompletionIndex,
) -> Result<Object<'a>, BlueprintError> {
    let mut spec = Object::read(spec, "spec.template.spec")?;
    spec.set("hostname", Part::Text(compact_str::format_compact!("{}-{index}", job.name)));
    for (field, path) in
        [("initContainers", "spec.template.spec.initContainers"), ("containers", "spec.template.spec.containers")]
    {
        let Some(containers) = spec.take(field) else {
            continue;
        };
        let containers = list(Some(containers), path)?
            .into_iter()
            .map(|container| with_index_variable(container, path).map(Part::Object))
            .collect::<Result<_, _>>()?;
        spec.set(field, Part::List(containers));
    }
    Ok(spec)
}

fn with_index_variable<'a>(container: &'a RawValue, path: &'static str) -> Result<Object<'a>, BlueprintError> {
    #[derive(serde::Deserialize)]
    struct Variable {
        #[serde(default)]
        name: Option<CompactString>,
    }
    let mut container = Object::read(Some(container), path)?;
    let mut variables = Vec::new();
    let mut has_index = false;
    for raw in list(container.take("env"), path)? {
        let variable: Variable = serde_json::from_str(raw.get()).map_err(|problem| unreadable(path, problem))?;
        has_index |= variable.name.as_deref() == Some(INDEX_VARIABLE);
        variables.push(Part::Raw(raw));
    }
    if !has_index {
        variables.push(Part::Object(index_variable()));
    }
    container.set("env", Part::List(variables));
    Ok(container)
}

fn index_variable() -> Object<'static> {
    let field = Object(vec![("fieldPath".into(), Part::Text(INDEX_FIELD.into()))]);
    let source = Object(vec![("fieldRef".into(), Part::Object(field))]);
    Object(vec![("name".into(), Part::Text(INDEX_VARIABLE.into())), ("valueFrom".into(), Part::Object(source))])
}

/// The finalizers of the template, and the tracking finalizer exactly if the Pod is tracked with it (GATE-8).
fn with_tracking(finalizers: Vec<&RawValue>, track: bool) -> Result<Vec<Part<'_>>, BlueprintError> {
    let mut tracked = false;
    let mut parts = Vec::new();
    for finalizer in finalizers {
        let name: CompactString = serde_json::from_str(finalizer.get())
            .map_err(|problem| unreadable("spec.template.metadata.finalizers", problem))?;
        let tracking = name == TRACKING_FINALIZER;
        tracked |= tracking;
        if track || !tracking {
            parts.push(Part::Raw(finalizer));
        }
    }
    if track && !tracked {
        parts.push(Part::Text(TRACKING_FINALIZER.into()));
    }
    Ok(parts)
}

fn with_start_gate(mut spec: Object<'_>) -> Result<Object<'_>, BlueprintError> {
    let node = |part: &Part<'_>| matches!(part, Part::Raw(raw) if !matches!(raw.get(), "null" | "\"\""));
    if spec.0.iter().any(|(key, part)| key == "nodeName" && node(part)) {
        return Ok(spec);
    }
    let gates = list(spec.take("schedulingGates"), "spec.template.spec.schedulingGates")?;
    let own = Object(vec![("name".into(), Part::Text(START_GATE.into()))]);
    let is_own = |gate: &&RawValue| serde_json::from_str::<Gate>(gate.get()).is_ok_and(|gate| gate.name == START_GATE);
    let others = gates.into_iter().filter(|gate| !is_own(gate)).map(Part::Raw);
    spec.set("schedulingGates", Part::List(others.chain([Part::Object(own)]).collect()));
    Ok(spec)
}

#[derive(serde::Deserialize)]
struct Gate {
    #[serde(default)]
    name: CompactString,
}

fn owner(job: &JobView) -> Object<'static> {
    Object(vec![
        ("apiVersion".into(), Part::Text("batch/v1".into())),
        ("kind".into(), Part::Text("Job".into())),
        ("name".into(), Part::Text(job.name.clone())),
        ("uid".into(), Part::Text(job.uid.to_compact_string())),
        ("controller".into(), Part::True),
        ("blockOwnerDeletion".into(), Part::True),
    ])
}

fn unreadable(field: &'static str, problem: serde_json::Error) -> BlueprintError {
    BlueprintError::Unreadable { field, problem: problem.to_string() }
}

/// A piece of JSON, decoded only as far as necessary.
enum Part<'a> {
    Raw(&'a RawValue),
    Text(CompactString),
    True,
    List(Vec<Part<'a>>),
    Object(Object<'a>),
}

/// Members in their original order, each key once.
#[derive(Default)]
struct Object<'a>(Vec<(Cow<'a, str>, Part<'a>)>);

impl<'a> Object<'a> {
    /// `null` and absence mean empty, as everywhere in the Kubernetes API.
    fn read(raw: Option<&'a RawValue>, field: &'static str) -> Result<Self, BlueprintError> {
        let Some(raw) = raw else {
            return Ok(Self::default());
        };
        serde_json::from_str::<Option<Self>>(raw.get())
            .map(Option::unwrap_or_default)
            .map_err(|problem| unreadable(field, problem))
    }

    fn set(&mut self, key: &'static str, part: Part<'a>) {
        match self.0.iter_mut().find(|(candidate, _)| candidate == key) {
            Some((_, slot)) => *slot = part,
            None => self.0.push((key.into(), part)),
        }
    }

    /// Removes a member and returns its raw JSON.
    fn take(&mut self, key: &str) -> Option<&'a RawValue> {
        let at = self.0.iter().position(|(candidate, _)| candidate == key)?;
        match self.0.remove(at).1 {
            Part::Raw(raw) => Some(raw),
            _ => None,
        }
    }
}

fn list<'a>(raw: Option<&'a RawValue>, field: &'static str) -> Result<Vec<&'a RawValue>, BlueprintError> {
    let Some(raw) = raw else {
        return Ok(Vec::new());
    };
    serde_json::from_str::<Option<Vec<_>>>(raw.get())
        .map(Option::unwrap_or_default)
        .map_err(|problem| unreadable(field, problem))
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut members: Vec<(Cow<'de, str>, Part<'de>)> = Vec::new();
                while let Some((Key(key), value)) = map.next_entry()? {
                    match members.iter_mut().find(|(earlier, _)| *earlier == key) {
                        Some((_, slot)) => *slot = Part::Raw(value),
                        None => members.push((key, Part::Raw(value))),
                    }
                }
                Ok(Object(members))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

/// A key that borrows unless it contains escapes.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Part::Raw(raw) => raw.serialize(serializer),
            Part::Text(text) => serializer.serialize_str(text),
            Part::True => serializer.serialize_bool(true),
            Part::List(items) => serializer.collect_seq(items),
            Part::Object(object) => object.serialize(serializer),
        }
    }
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, part) in &self.0 {
            map.serialize_entry(key, part)?;
        }
        map.end()
    }
}
