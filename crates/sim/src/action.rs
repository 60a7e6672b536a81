//! What the Job and TTL controllers request, read from the requests themselves. Written from the API's side: it shares
//! nothing with the code that makes the requests.

use compact_str::CompactString;
use serde_json::Value;
use tally_core::ids::{JobUid, PodUid, Revision};
use tally_core::job::JobStatus;
use tally_core::pod::TRACKING_FINALIZER;
use tally_runtime::controller::{Call, Kind, Verb};

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    CreatePod {
        namespace: CompactString,
        name: CompactString,
        body: Value,
    },
    PatchPod {
        namespace: CompactString,
        name: CompactString,
        uid: Option<PodUid>,
        revision: Option<Revision>,
        change: PodChange,
    },
    DeletePod {
        namespace: CompactString,
        name: CompactString,
        uid: Option<PodUid>,
    },
    GetPod {
        namespace: CompactString,
        name: CompactString,
    },
    ListPods {
        namespace: CompactString,
        selector: String,
    },
    GetJob {
        namespace: CompactString,
        name: CompactString,
    },
    WriteJobStatus {
        namespace: CompactString,
        name: CompactString,
        uid: JobUid,
        revision: Option<Revision>,
        status: Box<JobStatus>,
    },
    DeleteJob {
        namespace: CompactString,
        name: CompactString,
        uid: JobUid,
        revision: Option<Revision>,
    },
    /// Not relevant to the laws about Jobs.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodChange {
    /// Removes the tracking finalizer.
    Release,
    /// Removes the start gate.
    Start,
    /// Makes a Job the Pod's controller.
    Adopt { job: JobUid },
    /// Removes the Job as the Pod's controller.
    Disown { job: JobUid },
}

fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}

fn revision(value: &Value, pointer: &str) -> Option<Revision> {
    text(value, pointer).and_then(|text| text.parse().ok()).map(Revision)
}

fn pod_change(body: &Value) -> Option<PodChange> {
    let owner = body.pointer("/metadata/ownerReferences/0");
    let job = || owner.and_then(|owner| text(owner, "/uid")).map(JobUid::new);
    let releases = body.pointer("/metadata/$deleteFromPrimitiveList~1finalizers");
    let releases =
        releases.and_then(Value::as_array).is_some_and(|names| names.iter().any(|n| n == TRACKING_FINALIZER));
    match owner {
        Some(owner) if owner.get("$patch").is_some() => job().map(|job| PodChange::Disown { job }),
        Some(_) => job().map(|job| PodChange::Adopt { job }),
        None if releases => Some(PodChange::Release),
        None if text(body, "/spec/schedulingGates/0/name") == Some("tally.dev/counted-once") => Some(PodChange::Start),
        None => None,
    }
}

impl Action {
    pub fn of(call: &Call) -> Self {
        Self::read(call).unwrap_or(Self::Other)
    }

    fn read(call: &Call) -> Option<Self> {
        let body = call.body.text();
        let body: Value = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).ok()? };
        let (namespace, name) = (call.namespace.clone(), call.name.clone());
        Some(match (call.kind, call.verb, call.subresource) {
            (Kind::POD, Verb::Create, "") => {
                Self::CreatePod { namespace, name: text(&body, "/metadata/name")?.into(), body }
            }
            (Kind::POD, Verb::StrategicPatch, "") => Self::PatchPod {
                namespace,
                name,
                uid: text(&body, "/metadata/uid").map(PodUid::new),
                revision: revision(&body, "/metadata/resourceVersion"),
                change: pod_change(&body)?,
            },
            (Kind::POD, Verb::Delete, "") => {
                Self::DeletePod { namespace, name, uid: text(&body, "/preconditions/uid").map(PodUid::new) }
            }
            (Kind::POD, Verb::Get, "") => Self::GetPod { namespace, name },
            (Kind::POD, Verb::List, "") => Self::ListPods { namespace, selector: call.label_selector.clone() },
            (Kind::JOB, Verb::Get, "") => Self::GetJob { namespace, name },
            (Kind::JOB, Verb::MergePatch, "status") => Self::WriteJobStatus {
                namespace,
                name,
                uid: JobUid::new(text(&body, "/metadata/uid")?),
                revision: revision(&body, "/metadata/resourceVersion"),
                status: Box::new(status(&body)?),
            },
            (Kind::JOB, Verb::Delete, "") => Self::DeleteJob {
                namespace,
                name,
                uid: JobUid::new(text(&body, "/preconditions/uid")?),
                revision: revision(&body, "/preconditions/resourceVersion"),
            },
            _ => Self::Other,
        })
    }
}

/// A status as the patch would leave it: a field set to null is absent.
fn status(body: &Value) -> Option<JobStatus> {
    let mut status = body.get("status")?.clone();
    if let Value::Object(fields) = &mut status {
        fields.retain(|_, value| !value.is_null());
        if let Some(Value::Object(lists)) = fields.get_mut("uncountedTerminatedPods") {
            lists.retain(|_, value| !value.is_null());
        }
    }
    serde_json::from_value(status).ok()
}
