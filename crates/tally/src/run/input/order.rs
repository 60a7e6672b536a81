//! The order between the Jobs of a run (`tally.dev/after`): every Job that is waited for must be there, or the run would
//! never end. Cycles are refused by the API's own rules.

use std::collections::BTreeSet;

use tally_api::catalog;
use tally_api::options::ReadAt;
use tally_core::after::{AFTER, parse};
use tally_registry::{Registry, Target};

use super::check::{CheckedObjects, complain};
use super::documents::Document;

/// The names that a Job waits for.
fn awaited(document: &Document) -> Vec<String> {
    let text = document.object["metadata"]["annotations"][AFTER].as_str().filter(|_| document.is_job());
    let after = text.and_then(|text| parse(text).ok());
    after.into_iter().flatten().map(|predecessor| predecessor.name.to_string()).collect()
}

/// Whether all Jobs that are waited for are in the files or in the store. The error names those that are not.
pub fn check(wanted: &CheckedObjects, registry: &Registry) -> Result<(), String> {
    let documents = || wanted.objects.iter().map(|checked| &checked.document);
    let jobs: BTreeSet<(&str, &str)> = documents()
        .filter(|document| document.is_job())
        .map(|document| (document.namespace(), document.name()))
        .collect();
    let resource = catalog::find("batch", "v1", "jobs");
    let stored = |namespace: &str, name: &str| {
        resource.is_some_and(|resource| registry.get(Target::new(resource, namespace, name), ReadAt::default()).is_ok())
    };
    let mut complaints = Vec::new();
    for document in documents() {
        let namespace = document.namespace();
        let missing: Vec<(String, String)> = awaited(document)
            .into_iter()
            .filter(|name| !jobs.contains(&(namespace, name.as_str())) && !stored(namespace, name))
            .map(|name| {
                let why =
                    format!("there is no Job named {name:?} to wait for; add it to the files, or correct the name");
                (format!("metadata.annotations[{AFTER}]"), why)
            })
            .collect();
        if !missing.is_empty() {
            complaints.push(complain(document, &missing));
        }
    }
    if complaints.is_empty() { Ok(()) } else { Err(complaints.join("\n")) }
}
