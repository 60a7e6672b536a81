//! What the Job and TTL controllers request from an API server, and what its responses mean to them. Pure.
//!
//! Every write is conditional: on the UID, and on the revision where the decision depends on the whole object.

use std::sync::Arc;

use compact_str::CompactString;
use tally_core::ids::{JobUid, PodUid, Revision};
use tally_core::job::{JobStatus, JobView, TRACKING_ANNOTATION, TRACKING_LEGACY};
use tally_core::pod::{PodView, START_GATE, TRACKING_FINALIZER};
use tally_core::time::Timestamp;
use tally_core::view::ViewError;

use tally_runtime::cache::Meta;
use tally_runtime::controller::{self, Call, Kind, Refusal, Reply, Verb};
use tally_value::{Map, Value, json};

#[derive(Clone, Debug)]
pub enum Object {
    Job(Arc<JobView>),
    Pod(Arc<PodView>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    CreatePod {
        namespace: CompactString,
        name: CompactString,
        body: Value,
    },
    /// The change is conditional on `uid` (and `revision`): a Pod with the same name is not the same Pod.
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
        revision: Option<Revision>,
    },
    GetPod {
        namespace: CompactString,
        name: CompactString,
    },
    /// The Pods with these labels, read consistently; of all namespaces if `namespace` is empty.
    ListPods {
        namespace: CompactString,
        selector: String,
    },
    GetNode {
        name: CompactString,
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
        /// Marks the Job as one that is tracked the old way, in the same write (GATE-7).
        ends_tracking: bool,
    },
    /// Foreground, so that the Pods are deleted first (TTL-7).
    DeleteJob {
        namespace: CompactString,
        name: CompactString,
        uid: JobUid,
        revision: Revision,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodChange {
    /// Remove the tracking finalizer.
    Release,
    /// Remove the start gate.
    Start,
    /// Become the Pod's controller and, if the Job is tracked with finalizers, add the tracking finalizer.
    Adopt { job: JobUid, job_name: CompactString, track: bool },
    /// Stop being the Pod's controller and remove the tracking finalizer.
    Disown { job: JobUid },
}

/// The outcome of a request. Conflict is a normal outcome.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Done; this is the object as stored.
    Done(Object),
    /// There is no such object (any more): not found, removed at once, or the name belongs to another object by now.
    Gone,
    /// The object has changed since the revision from which the request was planned.
    Conflict,
    AlreadyExists,
    /// Since when the node has not been ready; None if it is, or if that is unknown.
    Node {
        not_ready_since: Option<Timestamp>,
    },
    /// A definite refusal: forbidden, invalid.
    Refused {
        code: u16,
        namespace_terminating: bool,
        message: String,
    },
    /// Not done for now: too many requests, server unavailable.
    Unavailable,
    /// The outcome is unknown: a timeout, a broken connection.
    Unknown,
    /// A consistent list of Pods, as of `at`.
    Pods {
        pods: Vec<Arc<PodView>>,
        at: Revision,
    },
}

/// The request for an action.
pub fn call(action: &Action) -> Call {
    let pods = |verb, namespace: &str, name: &str| Call::new(verb, Kind::POD, namespace, name);
    let jobs = |verb, namespace: &str, name: &str| Call::new(verb, Kind::JOB, namespace, name);
    match action {
        Action::CreatePod { namespace, body, .. } => pods(Verb::Create, namespace, "").body(body),
        Action::PatchPod { namespace, name, uid, revision, change } => {
            pods(Verb::StrategicPatch, namespace, name).body(&pod_patch(uid.as_ref(), *revision, change))
        }
        Action::DeletePod { namespace, name, uid, revision } => pods(Verb::Delete, namespace, name).body(&json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
            "preconditions": uid.as_ref().map(|uid| match revision {
                Some(at) => json!({"uid": uid.to_string(), "resourceVersion": at.0.to_string()}),
                None => json!({"uid": uid.to_string()}),
            }),
        })),
        Action::GetPod { namespace, name } => pods(Verb::Get, namespace, name),
        Action::ListPods { namespace, selector } => {
            Call { label_selector: selector.clone(), ..pods(Verb::List, namespace, "") }
        }
        Action::GetNode { name } => Call::new(Verb::Get, Kind::NODE, "", name),
        Action::GetJob { namespace, name } => jobs(Verb::Get, namespace, name),
        Action::WriteJobStatus { namespace, name, uid, revision, status, ends_tracking } => {
            let mut body = status_patch(uid, *revision, status);
            if *ends_tracking {
                // Metadata can be changed through /status too, so that the mark and the counters are one write.
                body["metadata"]["annotations"] = json!({TRACKING_ANNOTATION: TRACKING_LEGACY});
            }
            jobs(Verb::MergePatch, namespace, name).subresource("status").body(&body)
        }
        Action::DeleteJob { namespace, name, uid, revision } => jobs(Verb::Delete, namespace, name).body(&json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground",
            "preconditions": {"uid": uid.to_string(), "resourceVersion": revision.0.to_string()},
        })),
    }
}

fn guard(uid: Option<String>, revision: Option<Revision>) -> Map {
    let mut metadata = Map::new();
    metadata.extend(uid.map(|uid| ("uid", Value::from(uid))));
    metadata.extend(revision.map(|revision| ("resourceVersion", Value::from(revision.0.to_string()))));
    metadata
}

/// Strategic, because a Pod may have finalizers and owners that we do not know.
fn pod_patch(uid: Option<&PodUid>, revision: Option<Revision>, change: &PodChange) -> Value {
    let mut metadata = guard(uid.map(ToString::to_string), revision);
    let release = || ("$deleteFromPrimitiveList/finalizers", json!([TRACKING_FINALIZER]));
    match change {
        PodChange::Release => metadata.extend([release()]),
        PodChange::Start => {
            let gone = json!([{"$patch": "delete", "name": START_GATE}]);
            return json!({"metadata": metadata, "spec": {"schedulingGates": gone}});
        }
        PodChange::Adopt { job, job_name, track } => {
            let owner = json!({
                "apiVersion": "batch/v1", "kind": "Job", "name": job_name.as_str(), "uid": job.to_string(),
                "controller": true, "blockOwnerDeletion": true,
            });
            metadata.insert("ownerReferences", json!([owner]));
            if *track {
                metadata.insert("finalizers", json!([TRACKING_FINALIZER]));
            }
        }
        PodChange::Disown { job } => {
            let gone = json!([{"$patch": "delete", "uid": job.to_string()}]);
            metadata.insert("ownerReferences", gone);
            metadata.extend([release()]);
        }
    }
    json!({"metadata": metadata})
}

/// A merge patch keeps the fields that it does not name. The whole status is ours, so absent fields are named as null.
const STATUS_FIELDS: [&str; 11] = [
    "conditions",
    "startTime",
    "completionTime",
    "active",
    "succeeded",
    "failed",
    "terminating",
    "completedIndexes",
    "failedIndexes",
    "uncountedTerminatedPods",
    "ready",
];

/// A patch and not an update: an update through /status would remove the Job's labels and annotations.
fn status_patch(uid: &JobUid, revision: Option<Revision>, status: &JobStatus) -> Value {
    let mut said = match serde_json::to_value(status).map(Value::from) {
        Ok(Value::Object(said)) => said,
        _ => Map::new(),
    };
    for field in STATUS_FIELDS {
        said.entry(field).or_insert(Value::Null);
    }
    if let Some(Value::Object(uncounted)) = said.get_mut("uncountedTerminatedPods") {
        for list in ["succeeded", "failed"] {
            uncounted.entry(list).or_insert(Value::Null);
        }
    }
    json!({"metadata": guard(Some(uid.to_string()), revision), "status": said})
}

/// The outcome of a request, for the controller that sent it.
pub fn answer(action: &Action, reply: &Reply) -> Answer {
    match reply {
        Reply::Done(object) => done(action, Some(object)),
        Reply::DoneWithStatus => done(action, None),
        Reply::Listed { items, at } => match items.iter().map(PodView::of).collect() {
            Ok(pods) => Answer::Pods { pods, at: *at },
            // A list with a gap would mean that a Pod is gone.
            Err(_) => Answer::Unknown,
        },
        Reply::Refused(refused) => refusal(action, refused),
        Reply::Unknown => Answer::Unknown,
    }
}

/// What a refused request means to the controller that sent it.
pub fn refusal(action: &Action, refusal: &Refusal) -> Answer {
    let names_uid = || refusal.causes.iter().any(|(field, _)| field == "metadata.uid");
    let deletes = matches!(action, Action::DeletePod { .. } | Action::DeleteJob { .. });
    let reads = matches!(
        action,
        Action::GetPod { .. } | Action::GetJob { .. } | Action::GetNode { .. } | Action::ListPods { .. }
    );
    let creates = matches!(action, Action::CreatePod { .. });
    match (refusal.code, refusal.reason.as_str()) {
        // A creation gets this response if its namespace is missing, which the last arm handles.
        (404, _) if !creates => Answer::Gone,
        (409, "AlreadyExists") => Answer::AlreadyExists,
        // API-15: only the text of the message names the precondition that failed.
        (409, _) if deletes && refusal.message.contains("the UID in the precondition") => Answer::Gone,
        (409, _) => Answer::Conflict,
        // API-4: the UID precondition of a patch. The name belongs to another object by now.
        (422, _) if names_uid() => Answer::Gone,
        (429 | 503, _) => Answer::Unavailable,
        // The store may have applied a write although the server, or a proxy, has failed since.
        (500..=599, _) if !reads => Answer::Unknown,
        (500..=599, _) => Answer::Unavailable,
        (code, _) => Answer::Refused {
            code,
            namespace_terminating: refusal.causes.iter().any(|(_, reason)| reason == "NamespaceTerminating"),
            message: refusal.message.clone(),
        },
    }
}

/// The Job that an object is.
pub fn job(object: &controller::Object) -> Result<Arc<JobView>, ViewError> {
    object.view(|object| JobView::from_json(object))
}

/// What a successful response means: `object` is the object in it, None if it was a Status (removed at once).
pub fn done(action: &Action, object: Option<&controller::Object>) -> Answer {
    let Some(object) = object else { return Answer::Gone };
    // Also for patches: removing the last finalizer removes a deleted Pod, and the response shows the Pod at the
    // revision it had before. Taken as the Pod's newest state, it would let an older event revive the Pod.
    if matches!(action, Action::DeletePod { .. } | Action::PatchPod { .. }) && nothing_holds(object) {
        return Answer::Gone;
    }
    let read = match action {
        Action::GetNode { .. } => return Answer::Node { not_ready_since: node_not_ready_since(object) },
        Action::CreatePod { .. } | Action::PatchPod { .. } | Action::DeletePod { .. } | Action::GetPod { .. } => {
            PodView::of(object).ok().map(Object::Pod)
        }
        Action::GetJob { .. } | Action::WriteJobStatus { .. } | Action::DeleteJob { .. } => {
            job(object).ok().map(Object::Job)
        }
        Action::ListPods { .. } => return Answer::Unknown,
    };
    match read {
        Some(object) => Answer::Done(object),
        // Done, but the response is not a Kubernetes object: the stream will show the outcome.
        None => Answer::Unknown,
    }
}

/// Since when a Node has had the condition Ready with another status than True.
fn node_not_ready_since(node: &[u8]) -> Option<Timestamp> {
    let node: Value = serde_json::from_slice(node).ok()?;
    let conditions = node.pointer("/status/conditions")?.as_array()?;
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready" && condition["status"] != "True")?;
    Timestamp::parse(ready["lastTransitionTime"].as_str()?).ok()
}

/// Whether a Pod in a response was removed at once: an API server still returns it, deleted, without grace period and
/// finalizers (API-8, API-10).
fn nothing_holds(pod: &controller::Object) -> bool {
    let (deleted, grace, held) = match PodView::of(pod) {
        Ok(pod) => (pod.deleting(), pod.deletion_grace, !pod.finalizers.is_empty()),
        Err(_) => match Meta::of(pod) {
            Some(meta) => (meta.deleting(), meta.deletion_grace_period_seconds, !meta.finalizers.is_empty()),
            None => return false,
        },
    };
    deleted && grace.unwrap_or(0) == 0 && !held
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {

    use super::*;

    fn body(action: &Action) -> Value {
        serde_json::from_slice(&call(action).body.text()).unwrap()
    }

    /// TRACK-12.
    #[test]
    fn a_release_is_guarded_and_leaves_other_finalizers_alone() {
        let action = Action::PatchPod {
            namespace: "ns".into(),
            name: "p".into(),
            uid: Some(PodUid::new("u")),
            revision: Some(Revision(7)),
            change: PodChange::Release,
        };
        let expected = json!({"metadata": {
            "uid": "u", "resourceVersion": "7", "$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER],
        }});
        assert_eq!(body(&action), expected);
    }

    /// TYPE-3.
    #[test]
    fn a_status_says_what_it_lacks() {
        let status = JobStatus { active: 2, uncounted_terminated_pods: Some(Default::default()), ..Default::default() };
        let action = Action::WriteJobStatus {
            namespace: "ns".into(),
            name: "j".into(),
            uid: JobUid::new("u"),
            revision: Some(Revision(7)),
            status: Box::new(status),
            ends_tracking: false,
        };
        let body = body(&action);
        assert_eq!(body["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
        assert_eq!(body["status"]["active"], 2);
        assert_eq!(body["status"]["uncountedTerminatedPods"], json!({"succeeded": null, "failed": null}));
        let named: Vec<_> = body["status"].as_object().unwrap().keys().collect();
        assert_eq!(named.len(), STATUS_FIELDS.len(), "every field of the status is named: {named:?}");
    }

    /// Found by the simulator once it ran on the registry: the response has the old revision, and the event of that
    /// revision, still to come, shows the Pod with its finalizer.
    #[test]
    fn a_deleted_pod_that_is_released_is_gone_whatever_the_answer_shows() {
        let release = Action::PatchPod {
            namespace: "ns".into(),
            name: "p".into(),
            uid: None,
            revision: None,
            change: PodChange::Release,
        };
        let pod = |metadata: Value| -> controller::Object {
            json!({"metadata": metadata, "status": {"phase": "Failed"}}).to_string().into()
        };
        let deleted = json!({
            "name": "p", "uid": "u", "resourceVersion": "50", "deletionTimestamp": "2026-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": 0,
        });
        assert!(matches!(done(&release, Some(&pod(deleted.clone()))), Answer::Gone));
        let mut waits = deleted.clone();
        waits["deletionGracePeriodSeconds"] = 30.into();
        assert!(matches!(done(&release, Some(&pod(waits))), Answer::Done(_)), "its node has not confirmed");
        let mut held = deleted;
        held["finalizers"] = json!(["example.com/other"]);
        assert!(matches!(done(&release, Some(&pod(held))), Answer::Done(_)), "another owner holds it");
    }

    /// MANAGE-10: a terminating namespace is distinguished from other refusals.
    #[test]
    fn refusals_mean_what_they_say() {
        let read = Action::GetPod { namespace: "ns".into(), name: "p".into() };
        let delete = Action::DeletePod { namespace: "ns".into(), name: "p".into(), uid: None, revision: None };
        let refused = |code, reason: &str, message: &str, causes: &[(&str, &str)]| Refusal {
            code,
            reason: reason.to_owned(),
            message: message.to_owned(),
            causes: causes.iter().map(|(field, reason)| ((*field).to_owned(), (*reason).to_owned())).collect(),
        };
        assert!(matches!(refusal(&read, &refused(404, "NotFound", "", &[])), Answer::Gone));
        assert!(matches!(refusal(&read, &refused(409, "Conflict", "", &[])), Answer::Conflict));
        assert!(matches!(refusal(&read, &refused(409, "AlreadyExists", "", &[])), Answer::AlreadyExists));
        let other = "the UID in the precondition (a) does not match the UID in record (b).";
        assert!(matches!(refusal(&delete, &refused(409, "Conflict", other, &[])), Answer::Gone));
        assert!(matches!(refusal(&read, &refused(422, "Invalid", "", &[("metadata.uid", "")])), Answer::Gone));
        let create = Action::CreatePod { namespace: "ns".into(), name: "p".into(), body: Value::Null };
        let namespace = refused(404, "NotFound", "namespaces \"ns\" not found", &[]);
        assert!(matches!(refusal(&create, &namespace), Answer::Refused { code: 404, .. }));
        for code in [500, 502, 504] {
            assert!(matches!(refusal(&read, &refused(code, "", "", &[])), Answer::Unavailable), "{code}");
            assert!(matches!(refusal(&delete, &refused(code, "", "", &[])), Answer::Unknown), "{code}");
            assert!(matches!(refusal(&create, &refused(code, "", "", &[])), Answer::Unknown), "{code}");
        }
        assert!(matches!(refusal(&create, &refused(503, "", "", &[])), Answer::Unavailable));
        let terminating = refused(403, "Forbidden", "", &[("metadata.namespace", "NamespaceTerminating")]);
        assert!(matches!(refusal(&read, &terminating), Answer::Refused { code: 403, namespace_terminating: true, .. }));
    }
}
