//! Creates the requested objects on a cluster: all of them or none.

use serde_json::{Value, json};
use tally_api::kinds::Resource;
use tally_runtime::controller::{Call, Kind, Refusal, Reply, Verb};

use crate::place::Place;
use crate::run::input::check::{Checked, CheckedObjects, complain};
use crate::run::input::documents::{Document, Origin};
use crate::run::outcome::RunError;
use crate::run::parts::ListPart;
use crate::run::submit::{Submission, SubmittedJob};

/// How often an object is created whose creation has an unknown outcome.
const ATTEMPTS: u32 = 5;

fn failed(place: &Place, what: &str, reply: &Reply) -> RunError {
    let title = place.title();
    RunError::Environment(match reply {
        Reply::Refused(refusal) => format!("cannot {what} in {title}: {}", refusal.message),
        _ => format!("cannot {what} in {title}: there was no answer, and it may have been done"),
    })
}

/// Creates an object that was not there.
async fn create_object(place: &Place, document: &Document, body: &Value) -> Result<Value, RunError> {
    let call = Call::new(Verb::Create, kind(document.resource), document.namespace(), "").body(body);
    let what = format!("create {}", document.title());
    for _ in 0..ATTEMPTS {
        match place.call(&call).await? {
            Reply::Done(object) => {
                return serde_json::from_slice(&object)
                    .map_err(|error| RunError::Environment(format!("cannot {what} in {}: {error}", place.title())));
            }
            // It may have been created: the name was free.
            Reply::Unknown if !document.name().is_empty() => {
                if let Some(object) = place.get(kind(document.resource), document.namespace(), document.name()).await? {
                    return Ok(object);
                }
            }
            Reply::Refused(refusal) if refusal.code == 422 && !refusal.causes.is_empty() => {
                let wrong: Vec<_> = refusal.causes.iter().map(|(field, why)| (field.clone(), why.clone())).collect();
                return Err(RunError::Input(format!("{}\n  {}", complain(document, &wrong), refusal.message)));
            }
            Reply::Refused(refusal) if refusal.code == 422 => {
                return Err(RunError::Input(format!(
                    "{}{}: {}",
                    document.origin.whole(),
                    document.title(),
                    refusal.message
                )));
            }
            reply => return Err(failed(place, &what, &reply)),
        }
    }
    Err(failed(place, &what, &Reply::Unknown))
}

/// Deletes an object, and what depends on it in the background. An object that is gone is deleted.
pub async fn delete(place: &Place, kind: Kind, namespace: &str, name: &str, uid: &str) -> Result<(), RunError> {
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
        "preconditions": {"uid": uid},
    });
    let call = Call::new(Verb::Delete, kind, namespace, name).body(&options);
    match place.call(&call).await? {
        Reply::Done(_) | Reply::DoneWithStatus | Reply::Refused(Refusal { code: 404 | 409, .. }) => Ok(()),
        reply => Err(failed(place, &format!("delete {} {name:?}", kind.kind), &reply)),
    }
}

/// Makes the garbage collector delete a ConfigMap with the Job that needs it.
async fn own(place: &Place, namespace: &str, map: &str, job: &SubmittedJob) -> bool {
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": job.uid});
    let patch = json!({"metadata": {"ownerReferences": [owner]}});
    let call = Call::new(Verb::MergePatch, Kind::CONFIG_MAP, namespace, map).body(&patch);
    place.call(&call).await.is_ok_and(|reply| reply.is_done())
}

pub fn kind(resource: &Resource) -> Kind {
    Kind::new(resource.group, resource.version, resource.kind, resource.plural, resource.namespaced)
}

/// An object that was created, and what a user should know about it.
struct CreatedObject {
    identity: ObjectIdentity,
    job: Option<SubmittedJob>,
    note: Option<String>,
}

struct ObjectIdentity {
    kind: Kind,
    namespace: String,
    name: String,
    uid: String,
}

/// What was created, and what a user should know about it.
pub struct SubmittedObjects {
    pub jobs: Vec<SubmittedJob>,
    pub notes: Vec<String>,
}

/// `attach`: the flags of a command that follows a Job of the cluster.
pub async fn submit(place: &Place, wanted: &CheckedObjects, attach: &str) -> Result<SubmittedObjects, RunError> {
    let mut plan = Vec::new();
    for checked in &wanted.objects {
        if is_needed(place, checked, attach).await? {
            plan.push(checked);
        }
    }
    let (mut created, mut jobs, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for checked in plan {
        match create(place, checked).await {
            Ok(CreatedObject { identity, job, note }) => {
                created.push(identity);
                jobs.extend(job);
                notes.extend(note);
            }
            Err(error) => {
                // All of them or none.
                for object in created.iter().rev() {
                    let _ = delete(place, object.kind, &object.namespace, &object.name, &object.uid).await;
                }
                return Err(error);
            }
        }
    }
    for job in &jobs {
        notes.extend(own_lists(place, wanted, job).await);
    }
    Ok(SubmittedObjects { jobs, notes })
}

/// Whether an object has to be created. A Job must not exist; another object may, if it is the same.
async fn is_needed(place: &Place, checked: &Checked, attach: &str) -> Result<bool, RunError> {
    let document = &checked.document;
    if document.name().is_empty() {
        return Ok(true);
    }
    let Some(there) = place.get(kind(document.resource), document.namespace(), document.name()).await? else {
        return Ok(true);
    };
    let (whole, title, cluster) = (document.origin.whole(), document.title(), place.title());
    if document.is_job() {
        let (name, namespace) = (document.name(), document.namespace());
        let rename = if matches!(document.origin, Origin::Flags) { "another --name" } else { "another name" };
        return Err(RunError::Input(format!(
            "{whole}{title} already exists in namespace {namespace} of {cluster}; follow it with `tally attach \
             job/{name}{attach}`, choose {rename}, or delete it with `kubectl delete job {name}`"
        )));
    }
    // The name of a list is made of its content.
    let same = |part: &str| there[part] == checked.made[part];
    if document.is_list() || ["data", "binaryData", "stringData"].into_iter().all(same) {
        return Ok(false);
    }
    Err(RunError::Input(format!(
        "{whole}{title} already exists in namespace {} of {cluster} with other data; choose another name, or change it with \
         `kubectl apply`",
        document.namespace()
    )))
}

async fn create(place: &Place, checked: &Checked) -> Result<CreatedObject, RunError> {
    let document = &checked.document;
    let mut body = document.object.clone();
    // A part gets its parallelism when the parts before it leave some.
    if document.is_job() && ListPart::of(&body).is_some_and(|part| part.first > 0) {
        body["spec"]["parallelism"] = 0.into();
    }
    let object = create_object(place, document, &body).await?;
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let identity = ObjectIdentity {
        kind: kind(document.resource),
        namespace: text("namespace"),
        name: text("name"),
        uid: text("uid"),
    };
    let job = document.is_job().then(|| SubmittedJob::of(&object, Submission::Created));
    // A server that does not know the field leaves it out.
    let manager = body["spec"]["managedBy"].as_str().filter(|_| object["spec"]["managedBy"].is_null());
    let note = manager.filter(|_| document.is_job()).map(|manager| {
        format!("{} does not know spec.managedBy: its own controller runs the Job, not {manager:?}", place.title())
    });
    Ok(CreatedObject { identity, job, note })
}

/// Returns what to tell if the lists of a Job will not be deleted with it.
async fn own_lists(place: &Place, wanted: &CheckedObjects, job: &SubmittedJob) -> Option<String> {
    let documents = || wanted.objects.iter().map(|checked| &checked.document);
    let document = documents().find(|document| document.is_job() && document.name() == job.name)?;
    let volumes = document.object["spec"]["template"]["spec"]["volumes"].as_array().into_iter().flatten();
    let sources = volumes.filter_map(|volume| volume["projected"]["sources"].as_array()).flatten();
    let maps = sources.filter_map(|source| source["configMap"]["name"].as_str());
    let lists = maps.filter(|map| documents().any(|other| other.is_list() && other.name() == *map));
    let mut left = None;
    for map in lists {
        if !own(place, &job.namespace, map, job).await {
            left = Some(format!("ConfigMap {map:?} is not deleted with Job {:?}: it could not be changed", job.name));
        }
    }
    left
}
