//! Checks that all requested objects are valid, before anything is created.
//!
//! All objects are created in a scratch registry that is discarded: it rejects what the real one would reject, with the
//! same messages, and shows each object with all defaults. An error names the file, the line and the field.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tally_api::catalog;
use tally_api::options::{FieldValidation, Format, WriteOptions};
use tally_api::pod_security::PodIds;
use tally_api::status_error::StatusError;
use tally_core::after::AFTER;
use tally_registry::{Registry, Target};
use tally_store::{Store, StoreOptions};

use super::documents::{Document, Origin};
use super::programs;
use super::types::misfits;
use crate::data_dir;
use crate::run::submit::JOB_CONTROLLER;

/// A valid object, and the form in which the server would store it.
pub struct Checked {
    pub document: Document,
    pub made: Value,
}

/// All objects in the order in which they are to be created: Jobs last.
pub struct CheckedObjects {
    pub objects: Vec<Checked>,
    /// The warnings of the server.
    pub warnings: Vec<String>,
}

pub fn write_options() -> WriteOptions {
    // An unknown field is a typing error, and a Job that runs without it is not what the user meant.
    WriteOptions { field_validation: FieldValidation::Strict, ..WriteOptions::default() }
}

/// Where the Jobs are to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunsOn {
    /// The programs must exist on this machine.
    ThisMachine,
    HollowNodes,
    /// Images, controllers and people of the cluster may do what this process cannot.
    Cluster,
}

/// Returns all objects, or all errors.
pub async fn check(mut documents: Vec<Document>, runs_on: RunsOn) -> Result<CheckedObjects, String> {
    // The sort is stable: objects of the same rank stay in file order.
    documents.sort_by_key(|document| (document.is_job(), document.resource.kind != "Namespace"));
    let mut complaints = twice(&documents);
    let scratch = data_dir::begin(Store::memory(StoreOptions::default()), Default::default(), PodIds::all())
        .await
        .map_err(|error| format!("{error:#}"))?;
    make_namespaces(&scratch, &documents).await;
    let (mut objects, mut warnings) = (Vec::new(), Vec::new());
    for document in documents {
        let mut wanted = misfits(document.resource, &document.object);
        let typed: Vec<String> = wanted.iter().map(|(field, _)| field.clone()).collect();
        if runs_on != RunsOn::Cluster {
            wanted.extend(runnable(&document).into_iter().filter(|(field, _)| !typed.contains(field)));
        }
        // Commands given by flags have been checked already, with messages that name the flag.
        if runs_on == RunsOn::ThisMachine && document.is_job() && matches!(document.origin, Origin::File { .. }) {
            wanted.extend(absent_programs(&document.object));
        }
        if !wanted.is_empty() {
            complaints.push(complain(&document, &wanted));
            continue;
        }
        if document.is_list() {
            // It is valid, and a copy of a long list would need much memory.
            objects.push(Checked { made: Value::Null, document });
            continue;
        }
        let body = document.object.to_string();
        let target = Target::new(document.resource, document.namespace(), "");
        match scratch.create(target, body.as_bytes(), Format::Json, &write_options()).await {
            Ok(written) => {
                warnings.extend(written.warnings.iter().map(|text| format!("{}: {text}", document.title())));
                objects.push(Checked { made: written.object.plain(), document });
            }
            // `twice` has reported it.
            Err(failure) if failure.reason == "AlreadyExists" => {}
            Err(failure) => complaints.push(complaint(&document, &failure)),
        }
    }
    if complaints.is_empty() { Ok(CheckedObjects { objects, warnings }) } else { Err(complaints.join("\n")) }
}

/// Creates the namespaces that the files do not define. Whether they exist is checked later, in the real registry.
async fn make_namespaces(scratch: &Registry, documents: &[Document]) {
    let Some(namespaces) = catalog::find("", "v1", "namespaces") else { return };
    for document in documents.iter().filter(|document| document.resource.namespaced) {
        let name = document.namespace();
        if documents.iter().any(|other| other.resource.kind == "Namespace" && other.name() == name) {
            continue;
        }
        let body = json!({"metadata": {"name": name}}).to_string();
        let target = Target::new(namespaces, "", "");
        // An invalid name is reported with the object that uses it.
        let _ = scratch.create(target, body.as_bytes(), Format::Json, &WriteOptions::default()).await;
    }
}

fn twice(documents: &[Document]) -> Vec<String> {
    let mut first: BTreeMap<(&str, &str, &str), &Document> = BTreeMap::new();
    let mut complaints = Vec::new();
    for document in documents.iter().filter(|document| !document.name().is_empty()) {
        let key = (document.resource.storage, document.namespace(), document.name());
        match first.get(&key) {
            None => drop(first.insert(key, document)),
            Some(other) => complaints.push(format!(
                "{}{} is defined twice, first at {}; rename one of them",
                document.origin.whole(),
                document.title(),
                other.origin.at("metadata.name").trim_end_matches(": ")
            )),
        }
    }
    complaints
}

/// Reasons why a Job cannot finish here: fields, and what is wrong with them.
fn runnable(document: &Document) -> Vec<(String, String)> {
    let mut wrong = Vec::new();
    if !document.is_job() {
        return wrong;
    }
    let spec = &document.object["spec"];
    // A Job that waits for others is resumed when they have ended.
    if spec["suspend"] == true && document.object["metadata"]["annotations"][AFTER].is_null() {
        wrong.push(("spec.suspend".to_owned(), "a suspended Job never finishes; remove the field".to_owned()));
    }
    if let Some(manager) = spec["managedBy"].as_str().filter(|manager| *manager != JOB_CONTROLLER) {
        let why = format!("no controller named {manager:?} runs here; remove the field to run the Job locally");
        wrong.push(("spec.managedBy".to_owned(), why));
    }
    for list in ["initContainers", "containers"] {
        let containers = spec.pointer(&format!("/template/spec/{list}")).and_then(Value::as_array);
        for (index, container) in containers.into_iter().flatten().enumerate() {
            let given = container["command"].as_array().is_some_and(|command| !command.is_empty());
            if container.is_object() && !given {
                let field = format!("spec.template.spec.{list}[{index}].command");
                let why = "Required value: Pods run as plain processes and images are not used, so every \
                           container needs a command";
                wrong.push((field, why.to_owned()));
            }
        }
    }
    wrong
}

fn absent_programs(job: &Value) -> Vec<(String, String)> {
    let Some(here) = std::env::current_dir().ok().and_then(|here| here.into_os_string().into_string().ok()) else {
        return Vec::new();
    };
    let path = std::env::var("PATH").unwrap_or_else(|_| programs::USUAL_PATH.to_owned());
    programs::missing(job, &path, &here)
}

/// Formats what is wrong with an object, one line per field.
pub fn complain(document: &Document, wrong: &[(String, String)]) -> String {
    let mut text = format!("{}{} cannot be run:", document.origin.whole(), document.title());
    for (field, why) in wrong {
        text += &format!("\n  {}{field}: {why}", document.origin.at(field));
    }
    text
}

/// Formats a status error of the server, with its message.
pub fn complaint(document: &Document, failure: &StatusError) -> String {
    let causes = failure.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    let fields: Vec<(String, String)> =
        causes.iter().map(|cause| (cause.field.clone(), cause.message.clone())).collect();
    if failure.code == 422 && !fields.is_empty() {
        return complain(document, &fields);
    }
    let fields = named_fields(&failure.message);
    if fields.is_empty() {
        return format!("{}{}: {}", document.origin.whole(), document.title(), failure.message);
    }
    complain(document, &fields)
}

/// Fields that a status error names in its message: unknown and duplicate ones, or one whose value has the wrong type.
fn named_fields(message: &str) -> Vec<(String, String)> {
    if let Some((_, told)) = message.split_once("strict decoding error: ") {
        let fields = told.split(", ").filter_map(|one| {
            let (what, field) = one.split_once(" field \"")?;
            let why = match what {
                "unknown" => "unknown field",
                _ => "duplicate field",
            };
            Some((field.trim_end_matches('"').to_owned(), why.to_owned()))
        });
        return fields.collect();
    }
    if let Some((what, rest)) = message.split_once(" into Go struct field ")
        && let Some((field, wanted)) = rest.split_once(" of type ")
        && let Some((_, given)) = what.rsplit_once("cannot unmarshal ")
    {
        // The message puts the name of the Go struct in front of the field.
        let field = field.split_once('.').map_or(field, |(_, field)| field);
        return vec![(field.to_owned(), format!("expected {}, got {given}", plain_type(wanted)))];
    }
    Vec::new()
}

fn plain_type(wanted: &str) -> &str {
    match wanted.rsplit('.').next().unwrap_or(wanted) {
        "int32" | "int64" | "int" => "an integer",
        "bool" => "true or false",
        "string" => "a string",
        wanted if wanted.starts_with("[]") => "a list",
        wanted if wanted.starts_with("map[") => "an object",
        wanted => wanted,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::documents::parse;
    use super::*;

    fn job(name: &str, more: &str) -> String {
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}}}\nspec:\n  template:\n    spec:\n      \
             restartPolicy: Never\n      containers:\n      - {{name: c, image: i, command: [x]}}\n{more}"
        )
    }

    fn checked(text: &str) -> Result<Vec<String>, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let everything = runtime.block_on(check(parse("f.yaml", text)?, RunsOn::HollowNodes))?;
        Ok(everything.objects.iter().map(|checked| checked.document.title()).collect())
    }

    #[test]
    fn jobs_come_last_and_namespaces_first() {
        let text = format!(
            "{}---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c, namespace: team}}\n---\napiVersion: v1\nkind: \
             Namespace\nmetadata: {{name: team}}\n",
            job("j", "")
        );
        assert_eq!(checked(&text).unwrap(), ["Namespace \"team\"", "ConfigMap \"c\"", "Job \"j\""]);
    }

    #[test]
    fn complaints_name_file_line_and_field() {
        let broken = |from: &str, to: &str| job("j", "").replace(from, to);
        for (text, told) in [
            (job("j", "  completions: -1\n"), "f.yaml:10:16: spec.completions: Invalid value: -1"),
            (job("j", "  compeltions: 1\n"), "f.yaml:10:16: spec.compeltions: unknown field"),
            (job("j", "  completions: many\n"), "f.yaml:10:16: spec.completions: expected an integer, got string"),
            (job("j", "  suspend: true\n"), "f.yaml:10:12: spec.suspend: a suspended Job never finishes"),
            (broken("Never", "Always"), "f.yaml:7:22: spec.template.spec.restartPolicy: Required value: valid values"),
            (
                broken(", command: [x]", ""),
                "f.yaml:9:9: spec.template.spec.containers[0].command: Required value: Pods run as",
            ),
            (job("No_Name", ""), "f.yaml:3:18: metadata.name: Invalid value: \"No_Name\""),
            (
                format!("{}---\n{}", job("j", ""), job("j", "")),
                "f.yaml:11:1: document 2, Job \"j\" is defined twice, first at f.yaml:3:18",
            ),
        ] {
            let said = checked(&text).unwrap_err();
            assert!(said.contains(told), "{told}\n{said}");
            assert!(said.starts_with("f.yaml:"), "{said}");
        }
    }

    #[test]
    fn all_complaints_are_told_at_once() {
        let text = format!("{}---\n{}", job("a", "  completions: -1\n  parallelism: -1\n"), job("b", "  nope: 1\n"));
        let said = checked(&text).unwrap_err();
        for told in ["spec.completions", "spec.parallelism", "spec.nope"] {
            assert!(said.contains(told), "{said}");
        }
    }
}
