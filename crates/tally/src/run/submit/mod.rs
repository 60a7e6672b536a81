//! Submits the requested objects: each is created, resumed or refused - all of them or none.

pub mod resume;
pub mod retry;
mod sources;

use serde_json::{Value, json};
use tally_api::catalog;
use tally_api::kinds::Resource;
use tally_api::options::{DeleteOptions, Format, ListOptions, PatchKind, Propagation, ReadAt, WriteOptions};
use tally_api::status_error::StatusError;
use tally_registry::{Object, Registry, Target};

use super::input::check::{Checked, CheckedObjects, complain, complaint, write_options};
use super::input::documents::Origin;
use super::outcome::RunError;
use super::parts::ListPart;
use resume::{Decision, Loose, decide, is_finished};
use sources::missing;

/// A Job that this run follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmittedJob {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// Its Pods restart failed containers in place.
    pub restarts: bool,
    /// The list that it is a part of, if any.
    pub part: Option<ListPart>,
    /// It has one completion and one container.
    pub single: bool,
    pub how: Submission,
    /// It keeps its limits of retries, though others are wanted: which.
    pub keeps_retries: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submission {
    Created,
    /// The Job existed and is resumed.
    Resumed,
    /// The Job was not requested, but it exists and is not finished: it is resumed, too.
    ResumedToo,
    /// The Job exists and is not finished, but its `managedBy` names another controller.
    ManagedElsewhere,
    Finished,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct SubmitOptions<'a> {
    /// Environment variables that may differ from those of the existing Job.
    pub loose: &'a [&'a str],
    /// An existing Job of the same name is deleted first.
    pub again: bool,
    /// The directory of the cluster, for messages.
    pub place: &'a str,
}

/// The controller that manages Jobs without `spec.managedBy`.
pub const JOB_CONTROLLER: &str = "kubernetes.io/job-controller";

enum Step {
    Make,
    /// A ConfigMap or a Secret of that name exists: it is updated to what the file says.
    Renew {
        revision: String,
    },
    Keep,
    Job(Value, Decision),
}

pub async fn submit(
    registry: &Registry,
    wanted: &CheckedObjects,
    manner: SubmitOptions<'_>,
) -> Result<Vec<SubmittedJob>, RunError> {
    let mut plan = Vec::new();
    let mut complaints = Vec::new();
    for checked in &wanted.objects {
        match step(registry, wanted, checked, manner).await {
            Ok(step) => plan.push((checked, step)),
            Err(RunError::Input(why)) => complaints.push(why),
            Err(other) => return Err(other),
        }
    }
    if !complaints.is_empty() {
        return Err(RunError::Input(complaints.join("\n")));
    }
    let mut placed = Vec::new();
    for (checked, step) in plan {
        if let Some(job) =
            carry_out(registry, checked, step, manner).await.map_err(|failure| late(checked, &failure))?
        {
            placed.push(job);
        }
    }
    placed.extend(unfinished(registry, &placed)?);
    Ok(placed)
}

/// The object was valid a moment ago, so only the environment can be the cause.
fn late(checked: &Checked, failure: &StatusError) -> RunError {
    RunError::Environment(format!("cannot create {}: {}", checked.document.title(), failure.message))
}

fn target<'a>(checked: &'a Checked) -> Target<'a> {
    let document = &checked.document;
    Target::new(document.resource, document.namespace(), document.name())
}

/// Plans what to do for one object. Nothing is changed yet.
async fn step(
    registry: &Registry,
    all: &CheckedObjects,
    checked: &Checked,
    manner: SubmitOptions<'_>,
) -> Result<Step, RunError> {
    let document = &checked.document;
    let there: Option<Value> = match document.name() {
        "" => None,
        _ => registry.get(target(checked), ReadAt::Newest).ok().map(|object| object.plain()),
    };
    if document.is_list() {
        // Its name is made of its content.
        return Ok(if there.is_some() { Step::Keep } else { Step::Make });
    }
    let Some(there) = there else {
        let comes = |other: &Checked| {
            other.document.resource.kind == "Namespace" && other.document.name() == document.namespace()
        };
        // In a namespace that does not exist yet, nothing can conflict.
        if !all.objects.iter().any(comes) {
            let collection = Target { name: "", ..target(checked) };
            let options = WriteOptions { dry_run: true, ..write_options() };
            let body = document.object.to_string();
            let tried = registry.create(collection, body.as_bytes(), Format::Json, &options).await;
            tried.map_err(|failure| RunError::Input(complaint(document, &failure)))?;
        }
        has_its_sources(registry, all, checked)?;
        return Ok(Step::Make);
    };
    if !document.is_job() {
        let renewed = matches!(document.resource.kind, "ConfigMap" | "Secret");
        let same = ["data", "binaryData", "stringData"].iter().all(|part| there[part] == checked.made[part]);
        let revision = there["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        return Ok(if renewed && !same { Step::Renew { revision } } else { Step::Keep });
    }
    let of_flags = matches!(document.origin, Origin::Flags);
    let decision = decide(&there, &checked.made, Loose { env: manner.loose, retries: of_flags });
    match decision {
        Decision::Other(fields) if !manner.again => Err(RunError::Input(format!(
            "{}{} already exists in {} with a different specification ({} differs); choose another name or another \
             --data-dir, or delete that Job with --again",
            document.origin.whole(),
            document.title(),
            manner.place,
            fields.join(", ")
        ))),
        Decision::Finished if !manner.again => Ok(Step::Job(there, Decision::Finished)),
        decision => {
            has_its_sources(registry, all, checked)?;
            Ok(Step::Job(there, decision))
        }
    }
}

/// Checks that the ConfigMaps and Secrets of a Job's Pods exist, or are created in this run.
fn has_its_sources(registry: &Registry, all: &CheckedObjects, checked: &Checked) -> Result<(), RunError> {
    let document = &checked.document;
    // A Job of flags needs nothing but its own lists.
    if !document.is_job() || matches!(document.origin, Origin::Flags) {
        return Ok(());
    }
    let find = |kind: &str, name: &str| {
        let comes = all.objects.iter().find(|other| {
            (other.document.resource.kind, other.document.namespace(), other.document.name())
                == (kind, document.namespace(), name)
        });
        let there = || {
            let resource = catalog::find_kind("", "v1", kind)?;
            registry.get(Target::new(resource, document.namespace(), name), ReadAt::Newest).ok()
        };
        comes.map(|other| other.made.clone()).or_else(|| there().map(|object| object.plain()))
    };
    let missing = missing(&document.object, find);
    if missing.is_empty() { Ok(()) } else { Err(RunError::Input(complain(document, &missing))) }
}

async fn carry_out(
    registry: &Registry,
    checked: &Checked,
    step: Step,
    manner: SubmitOptions<'_>,
) -> Result<Option<SubmittedJob>, StatusError> {
    let document = &checked.document;
    match step {
        Step::Keep => Ok(None),
        Step::Renew { revision } => {
            let mut object = document.object.clone();
            object["metadata"]["resourceVersion"] = revision.into();
            let body = object.to_string();
            registry.update(target(checked), body.as_bytes(), Format::Json, &write_options()).await?;
            Ok(None)
        }
        Step::Make => make(registry, checked).await,
        Step::Job(there, _) if manner.again => {
            let options = DeleteOptions {
                propagation: Some(Propagation::Background),
                precondition_uid: there["metadata"]["uid"].as_str().map(str::to_owned),
                ..DeleteOptions::default()
            };
            registry.delete(target(checked), &options).await?;
            make(registry, checked).await
        }
        Step::Job(there, decision) => {
            // The parts of a list share theirs: see `Model::next_change`.
            let part = ListPart::of(&checked.made);
            let waits = resume::changed_waits(&there, &checked.made);
            if let Decision::GoOn { parallelism } = decision
                && let parallelism = parallelism.filter(|_| part.is_none())
                && (parallelism.is_some() || waits.is_some())
            {
                let mut body = json!({"metadata": {"resourceVersion": there["metadata"]["resourceVersion"]}});
                if let Some(parallelism) = parallelism {
                    body["spec"] = json!({"parallelism": parallelism});
                }
                if let Some(waits) = waits {
                    body["metadata"]["annotations"] = waits;
                }
                let body = body.to_string();
                registry.patch(target(checked), body.as_bytes(), PatchKind::Merge, &write_options()).await?;
            }
            let how = if decision == Decision::Finished { Submission::Finished } else { Submission::Resumed };
            let keeps_retries = resume::kept_retries(&there, &checked.made).filter(|_| how == Submission::Resumed);
            Ok(Some(SubmittedJob { part, keeps_retries, ..SubmittedJob::of(&there, how) }))
        }
    }
}

async fn make(registry: &Registry, checked: &Checked) -> Result<Option<SubmittedJob>, StatusError> {
    let part = ListPart::of(&checked.made);
    let body = match &part {
        // It gets its parallelism when the parts before it leave some.
        Some(part) if part.first > 0 => {
            let mut object = checked.document.object.clone();
            object["spec"]["parallelism"] = 0.into();
            object.to_string()
        }
        _ => checked.document.object.to_string(),
    };
    let collection = Target { name: "", ..target(checked) };
    let written = registry.create(collection, body.as_bytes(), Format::Json, &write_options()).await?;
    let job = checked.document.is_job();
    Ok(job.then(|| SubmittedJob { part, ..SubmittedJob::of(&written.object.plain(), Submission::Created) }))
}

impl SubmittedJob {
    pub fn of(job: &Value, how: Submission) -> Self {
        let text = |pointer: &str| job.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let restarts = job.pointer("/spec/template/spec/restartPolicy").is_some_and(|policy| policy == "OnFailure");
        let count = |pointer: &str| job.pointer(pointer).and_then(Value::as_array).map_or(0, Vec::len);
        let containers = count("/spec/template/spec/containers") + count("/spec/template/spec/initContainers");
        Self {
            single: job["spec"]["completions"] == 1 && containers == 1,
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            restarts,
            part: ListPart::of(job),
            how,
            keeps_retries: None,
        }
    }
}

/// The Jobs, with the parts of a list as one.
pub fn as_shown(placed: &[SubmittedJob]) -> Vec<SubmittedJob> {
    let mut shown: Vec<SubmittedJob> = Vec::new();
    for job in placed {
        let Some(part) = &job.part else {
            shown.push(job.clone());
            continue;
        };
        let same = |other: &&mut SubmittedJob| (&other.namespace, &other.name) == (&job.namespace, &part.of);
        match shown.iter_mut().find(same) {
            // What is unfinished in one part is unfinished as a whole.
            Some(whole) if whole.how == Submission::Finished && job.how != Submission::Finished => whole.how = job.how,
            Some(_) => {}
            None => shown.push(SubmittedJob { name: part.of.clone(), ..job.clone() }),
        }
    }
    shown
}

pub fn jobs() -> Result<&'static Resource, RunError> {
    catalog::find("batch", "v1", "jobs").ok_or_else(|| RunError::Environment("no Jobs are served".to_owned()))
}

/// Jobs that an earlier run left unfinished. The controllers work on all Jobs in the store, requested or not.
pub fn unfinished(registry: &Registry, known: &[SubmittedJob]) -> Result<Vec<SubmittedJob>, RunError> {
    let listing = registry.list(Target::new(jobs()?, "", ""), &ListOptions::default());
    let listing = listing.map_err(|failure| RunError::Environment(failure.message))?;
    let all: Vec<Value> = listing.items.iter().map(Object::plain).collect();
    let list = |job: &Value| Some((job["metadata"]["namespace"].clone(), ListPart::of(job)?.of));
    // A suspended Job waits until a user resumes it, which cannot happen here.
    let is_open = |job: &Value| !is_finished(job) && job["spec"]["suspend"] != true;
    let lists: Vec<_> = all.iter().filter(|job| is_open(job)).filter_map(list).collect();
    let how = |job: &Value| match job["spec"]["managedBy"].as_str() {
        _ if is_finished(job) => Submission::Finished,
        None | Some(JOB_CONTROLLER) => Submission::ResumedToo,
        Some(_) => Submission::ManagedElsewhere,
    };
    // The finished parts of an unfinished list are shown with the others.
    let wanted = |job: &&Value| is_open(job) || is_finished(job) && list(job).is_some_and(|list| lists.contains(&list));
    let found = all.iter().filter(wanted).map(|job| SubmittedJob::of(job, how(job)));
    Ok(found.filter(|job| known.iter().all(|known| known.uid != job.uid)).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tally_store::{Store, StoreOptions};

    use super::*;
    use crate::data_dir;

    #[tokio::test]
    async fn jobs_of_other_controllers_are_told_apart() {
        let registry = data_dir::begin(Store::memory(StoreOptions::default()), Default::default(), Default::default())
            .await
            .unwrap();
        for (name, more) in [
            ("a", json!({})),
            ("b", json!({"managedBy": "example.com/other"})),
            ("c", json!({"managedBy": JOB_CONTROLLER})),
            ("d", json!({"suspend": true})),
        ] {
            let containers = json!([{"name": "c", "image": "i", "command": ["x"]}]);
            let mut spec = json!({"template": {"spec": {"restartPolicy": "Never", "containers": containers}}});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let body = json!({"metadata": {"name": name}, "spec": spec}).to_string();
            let target = Target::new(jobs().unwrap(), "default", "");
            registry.create(target, body.as_bytes(), Format::Json, &write_options()).await.unwrap();
        }
        let found: Vec<_> = unfinished(&registry, &[]).unwrap().into_iter().map(|job| (job.name, job.how)).collect();
        let expected =
            [("a", Submission::ResumedToo), ("b", Submission::ManagedElsewhere), ("c", Submission::ResumedToo)];
        assert_eq!(found, expected.map(|(name, how)| (name.to_owned(), how)));
    }
}
