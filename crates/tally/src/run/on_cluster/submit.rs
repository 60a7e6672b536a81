//! Creates the requested objects on a cluster: all of them or none.

use std::time::Duration;

use serde_json::{Value, json};
use tally_api::kinds::Resource;
use tally_remote::Remote;
use tally_runtime::controller::{Call, Kind, Refusal, Reply, Verb};
use tally_runtime::driver::api::Api;

use crate::place::Place;
use crate::run::input::check::{Checked, CheckedObjects, complain};
use crate::run::input::documents::{Document, Origin};
use crate::run::outcome::RunError;
use crate::run::parts::ListPart;
use crate::run::submit::{Submission, SubmittedJob};

/// How often a request is sent that the server does not accept for now, or whose outcome is unknown.
const ATTEMPTS: u32 = 5;
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Requests to the server of a cluster.
#[derive(Clone)]
pub struct Requests {
    remote: Remote,
    title: String,
}

impl Requests {
    pub fn new(remote: Remote, place: &Place) -> Self {
        Self { remote, title: place.title().to_owned() }
    }

    /// Sends a request, again if the server asks for that.
    async fn send(&self, call: &Call) -> Reply {
        let mut attempt = 1;
        loop {
            let response = self.remote.call(call).await;
            let (Some(wait), true) = (response.retry_after, attempt < ATTEMPTS) else { return response.reply };
            attempt += 1;
            tokio::time::sleep(wait.min(LONGEST_WAIT)).await;
        }
    }

    fn failed(&self, what: &str, reply: &Reply) -> RunError {
        let title = &self.title;
        RunError::Environment(match reply {
            Reply::Refused(refusal) => format!("cannot {what} in {title}: {}", refusal.message),
            _ => format!("cannot {what} in {title}: there was no answer, and it may have been done"),
        })
    }

    /// The object of this name. None: there is none.
    async fn get(&self, document: &Document) -> Result<Option<Value>, RunError> {
        let call = Call::new(Verb::Get, kind(document.resource), document.namespace(), document.name());
        match self.send(&call).await {
            Reply::Done(object) => Ok(serde_json::from_slice(&object).ok()),
            Reply::Refused(Refusal { code: 404, .. }) => Ok(None),
            reply => Err(self.failed(&format!("read {}", document.title()), &reply)),
        }
    }

    /// Creates an object that was not there.
    async fn create(&self, document: &Document, body: &Value) -> Result<Value, RunError> {
        let call = Call::new(Verb::Create, kind(document.resource), document.namespace(), "").body(body);
        let what = format!("create {}", document.title());
        for _ in 0..ATTEMPTS {
            match self.send(&call).await {
                Reply::Done(object) => {
                    return serde_json::from_slice(&object)
                        .map_err(|error| RunError::Environment(format!("cannot {what} in {}: {error}", self.title)));
                }
                // It may have been created: the name was free.
                Reply::Unknown if !document.name().is_empty() => {
                    if let Some(object) = self.get(document).await? {
                        return Ok(object);
                    }
                }
                Reply::Refused(refusal) if refusal.code == 422 && !refusal.causes.is_empty() => {
                    let wrong: Vec<_> =
                        refusal.causes.iter().map(|(field, why)| (field.clone(), why.clone())).collect();
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
                reply => return Err(self.failed(&what, &reply)),
            }
        }
        Err(self.failed(&what, &Reply::Unknown))
    }

    /// Deletes an object, and what depends on it in the background. An object that is gone is deleted.
    pub async fn delete(&self, kind: Kind, namespace: &str, name: &str, uid: &str) -> Result<(), RunError> {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
            "preconditions": {"uid": uid},
        });
        let call = Call::new(Verb::Delete, kind, namespace, name).body(&options);
        match self.send(&call).await {
            Reply::Done(_) | Reply::DoneWithStatus | Reply::Refused(Refusal { code: 404 | 409, .. }) => Ok(()),
            reply => Err(self.failed(&format!("delete {} {name:?}", kind.kind), &reply)),
        }
    }

    /// Makes the garbage collector delete a ConfigMap with the Job that needs it.
    async fn own(&self, namespace: &str, map: &str, job: &SubmittedJob) -> bool {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": job.uid});
        let patch = json!({"metadata": {"ownerReferences": [owner]}});
        let call = Call::new(Verb::MergePatch, Kind::CONFIG_MAP, namespace, map).body(&patch);
        self.send(&call).await.is_done()
    }
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
pub async fn submit(requests: &Requests, wanted: &CheckedObjects, attach: &str) -> Result<SubmittedObjects, RunError> {
    let mut plan = Vec::new();
    for checked in &wanted.objects {
        if is_needed(requests, checked, attach).await? {
            plan.push(checked);
        }
    }
    let (mut created, mut jobs, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for checked in plan {
        match create(requests, checked).await {
            Ok(CreatedObject { identity, job, note }) => {
                created.push(identity);
                jobs.extend(job);
                notes.extend(note);
            }
            Err(error) => {
                // All of them or none.
                for object in created.iter().rev() {
                    let _ = requests.delete(object.kind, &object.namespace, &object.name, &object.uid).await;
                }
                return Err(error);
            }
        }
    }
    for job in &jobs {
        notes.extend(own_lists(requests, wanted, job).await);
    }
    Ok(SubmittedObjects { jobs, notes })
}

/// Whether an object has to be created. A Job must not exist; another object may, if it is the same.
async fn is_needed(requests: &Requests, checked: &Checked, attach: &str) -> Result<bool, RunError> {
    let document = &checked.document;
    if document.name().is_empty() {
        return Ok(true);
    }
    let Some(there) = requests.get(document).await? else { return Ok(true) };
    let (whole, title, place) = (document.origin.whole(), document.title(), &requests.title);
    if document.is_job() {
        let (name, namespace) = (document.name(), document.namespace());
        let rename = if matches!(document.origin, Origin::Flags) { "another --name" } else { "another name" };
        return Err(RunError::Input(format!(
            "{whole}{title} already exists in namespace {namespace} of {place}; follow it with `tally attach \
             job/{name}{attach}`, choose {rename}, or delete it with `kubectl delete job {name}`"
        )));
    }
    // The name of a list is made of its content.
    let same = |part: &str| there[part] == checked.made[part];
    if document.is_list() || ["data", "binaryData", "stringData"].into_iter().all(same) {
        return Ok(false);
    }
    Err(RunError::Input(format!(
        "{whole}{title} already exists in namespace {} of {place} with other data; choose another name, or change it with \
         `kubectl apply`",
        document.namespace()
    )))
}

async fn create(requests: &Requests, checked: &Checked) -> Result<CreatedObject, RunError> {
    let document = &checked.document;
    let mut body = document.object.clone();
    // A part gets its parallelism when the parts before it leave some.
    if document.is_job() && ListPart::of(&body).is_some_and(|part| part.first > 0) {
        body["spec"]["parallelism"] = 0.into();
    }
    let object = requests.create(document, &body).await?;
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
        format!("{} does not know spec.managedBy: its own controller runs the Job, not {manager:?}", requests.title)
    });
    Ok(CreatedObject { identity, job, note })
}

/// Returns what to tell if the lists of a Job will not be deleted with it.
async fn own_lists(requests: &Requests, wanted: &CheckedObjects, job: &SubmittedJob) -> Option<String> {
    let documents = || wanted.objects.iter().map(|checked| &checked.document);
    let document = documents().find(|document| document.is_job() && document.name() == job.name)?;
    let volumes = document.object["spec"]["template"]["spec"]["volumes"].as_array().into_iter().flatten();
    let sources = volumes.filter_map(|volume| volume["projected"]["sources"].as_array()).flatten();
    let maps = sources.filter_map(|source| source["configMap"]["name"].as_str());
    let lists = maps.filter(|map| documents().any(|other| other.is_list() && other.name() == *map));
    let mut left = None;
    for map in lists {
        if !requests.own(&job.namespace, map, job).await {
            left = Some(format!("ConfigMap {map:?} is not deleted with Job {:?}: it could not be changed", job.name));
        }
    }
    left
}
