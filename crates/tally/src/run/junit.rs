//! `--junit`: how each task ended, as a file for CI systems.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tally_node::attempts as records;

use super::outcome::RunError;
use super::submit::{Submission, SubmittedJob};
use crate::look::report::{ReportedJob, junit};
use crate::look::waiting::Waits;
use crate::look::{attempts, jobs};
use crate::place::Place;
use crate::run::progress::view::PodText;

/// Whether the file can be written: to be asked before hours of work.
pub fn check(file: &Path) -> Result<(), RunError> {
    if file.is_dir() || file.file_name().is_none() {
        return Err(unusable(file, &std::io::ErrorKind::IsADirectory.into()));
    }
    let beside = beside(file);
    match std::fs::File::create_new(&beside) {
        Ok(_) => std::fs::remove_file(&beside).map_err(|error| unusable(file, &error)),
        // Of a run that was killed.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(unusable(file, &error)),
    }
}

/// Writes the file beside its place first: a file that is there is complete.
pub async fn write(file: &Path, place: &Place, placed: &[SubmittedJob]) -> Result<(), RunError> {
    let text = junit::document(&reported(place, placed).await?);
    let beside = beside(file);
    let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, file));
    written.map_err(|error| unusable(file, &error))
}

fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

fn unusable(file: &Path, error: &std::io::Error) -> RunError {
    RunError::Environment(format!("--junit: cannot write {}: {error}", file.display()))
}

/// The Jobs of this run with their attempts. The parts of a list are one.
async fn reported(place: &Place, placed: &[SubmittedJob]) -> Result<Vec<ReportedJob>, RunError> {
    let (all_jobs, all_pods) = (place.jobs("").await?, place.all_pods("").await?);
    let mut pods: BTreeMap<String, Vec<PodText>> = BTreeMap::new();
    for pod in all_pods {
        let pod: PodText = pod;
        if let Some(uid) = pod.metadata.job().map(str::to_owned) {
            pods.entry(uid).or_default().push(pod);
        }
    }
    let root = place.node().unwrap_or_default();
    let mut lists: Vec<(&str, Vec<&SubmittedJob>)> = Vec::new();
    for job in placed.iter().filter(|job| job.how != Submission::ManagedElsewhere) {
        let name = job.part.as_ref().map_or(job.name.as_str(), |part| part.of.as_str());
        match lists.iter_mut().find(|(list, parts)| *list == name && parts[0].namespace == job.namespace) {
            Some((_, parts)) => parts.push(job),
            None => lists.push((name, vec![job])),
        }
    }
    let mut reported = Vec::new();
    for (_, parts) in lists {
        let is_part = |job: &&Value| parts.iter().any(|part| job["metadata"]["uid"] == part.uid.as_str());
        let found: Vec<Value> = all_jobs.iter().filter(is_part).cloned().collect();
        let (mut recorded, mut of_list) = (Vec::new(), Vec::new());
        for part in &parts {
            let read = records::read(&root, &part.uid);
            let unreadable = |error| RunError::Environment(format!("--junit: cannot read the records: {error}"));
            recorded.extend(read.map_err(unreadable)?);
            of_list.extend(pods.remove(&part.uid).unwrap_or_default());
        }
        let dropped = recorded.iter().map(|records| records.job.dropped).sum();
        let attempts = attempts::rows(&recorded, &of_list, true);
        reported.extend(jobs::rows(&found, false, &Waits::new()).into_iter().map(|job| ReportedJob {
            job,
            attempts: attempts.clone(),
            dropped,
        }));
    }
    Ok(reported)
}
