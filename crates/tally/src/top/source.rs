//! What `tally top` shows beside the objects, which `watch` follows, and how it changes Jobs.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use tally_explain::Explanation;
use tally_remote::Remote;
use tally_runtime::controller::{Call, Kind, Reply, Verb};
use tally_runtime::driver::api::Api;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use super::model::Action;
use crate::look::explain::full_explanation;
use crate::look::jobs::JobRow;
use crate::look::waiting::{Waits, waits_of};
use crate::place::Place;
use crate::pod_log::{PodLogRequest, next_piece};

/// Lines of a log that are read from before.
const TAIL: u64 = 1_000;
/// The code of the response if the container has not started yet.
const NOT_STARTED: u16 = 400;
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// How often it is asked why a Job does not move.
const EXPLAIN_EVERY: Duration = Duration::from_secs(5);

/// Lines of the log of what has failed, below the reason.
const LOG_LINES: usize = 3;

/// What has changed and was not shown yet, beside the objects.
#[derive(Default)]
pub struct Changes {
    waiting: Mutex<Waiting>,
    pub changed: Notify,
}

#[derive(Default)]
pub struct Waiting {
    pub log: Vec<u8>,
    pub notes: Vec<String>,
    /// The UID of a Job, and why it does not move.
    pub explanation: Option<(String, Vec<String>)>,
    /// The UIDs of Jobs, and those of them that wait.
    pub waits: Vec<(BTreeSet<String>, Waits)>,
}

impl Changes {
    pub fn add(&self, change: impl FnOnce(&mut Waiting)) {
        change(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
    }

    pub fn take(&self) -> Waiting {
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Ends what it stands for when it is dropped.
pub struct Following {
    _stop: oneshot::Sender<()>,
}

/// Asks why a Job does not move, now and from time to time.
pub fn explain(place: &Arc<Place>, job: &JobRow, changes: &Arc<Changes>) -> Following {
    let (place, job, changes) = (place.clone(), job.clone(), changes.clone());
    let (stop, mut stopped) = oneshot::channel::<()>();
    tokio::spawn(async move {
        loop {
            let explained = full_explanation(&place, Kind::JOB, &job.namespace, &job.name).await;
            let lines = explained.map(|explained| lines(&explained)).unwrap_or_default();
            changes.add(|waiting| waiting.explanation = Some((job.uid.clone(), lines)));
            if tokio::time::timeout(EXPLAIN_EVERY, &mut stopped).await.is_ok() {
                return;
            }
        }
    });
    Following { _stop: stop }
}

/// An explanation in a few lines.
fn lines(explained: &Explanation) -> Vec<String> {
    let mut lines = vec![explained.summary.clone()];
    lines.extend(explained.waiting_for().map(|cause| format!("Waits for: {}", cause.sentence())));
    lines.extend(explained.would_change().map(|change| format!("Would change it: {change}")));
    lines.extend(explained.next.iter().take(2).map(|step| format!("{}: {}", step.at, step.what)));
    for failure in &explained.failures {
        lines.push(format!("Failed: {}", failure.sentence()));
        // The whole log is a key away.
        let first = failure.log.len().saturating_sub(LOG_LINES);
        lines.extend(failure.log[first..].iter().map(|line| format!("  {line}")));
    }
    lines
}

/// Asks which of these Jobs wait, and for what.
pub fn ask_which_wait(place: &Arc<Place>, rows: Vec<JobRow>, changes: &Arc<Changes>) -> JoinHandle<()> {
    let (place, changes) = (place.clone(), changes.clone());
    tokio::spawn(async move {
        let asked: BTreeSet<String> = rows.iter().map(|row| row.uid.clone()).collect();
        let names: Vec<_> = rows.into_iter().map(|row| (row.namespace, row.name)).collect();
        let found = waits_of(&place, &names).await;
        changes.add(|waiting| waiting.waits.push((asked, found)));
    })
}

/// Follows the log of a container.
pub fn follow_log(remote: &Remote, namespace: &str, pod: &str, container: &str, changes: &Arc<Changes>) -> Following {
    let request = PodLogRequest { tail_lines: Some(TAIL), follow: true, ..PodLogRequest::default() };
    let request = request.of(namespace, pod, container);
    let (remote, changes) = (remote.clone(), changes.clone());
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(async move {
        let reading = async {
            loop {
                let error = match request.open(&remote).await {
                    Ok(mut log) => {
                        while let Some(piece) = next_piece(&mut log).await {
                            changes.add(|waiting| waiting.log.extend_from_slice(&piece));
                        }
                        changes.add(|waiting| waiting.notes.push("the log has ended".to_owned()));
                        return;
                    }
                    Err(error) => error,
                };
                changes.add(|waiting| waiting.notes.push(error.to_string()));
                if error.code != Some(NOT_STARTED) {
                    return;
                }
                tokio::time::sleep(ASK_AGAIN_AFTER).await;
            }
        };
        tokio::select! {
            () = reading => {}
            _ = stopped => {}
        }
    });
    Following { _stop: stop }
}

/// Changes a Job. Returns what to tell.
pub async fn act(remote: &Remote, namespace: &str, name: &str, action: &Action) -> String {
    let (verb, body, done) = match action {
        Action::Suspend => (Verb::MergePatch, json!({"spec": {"suspend": true}}), "is suspended".to_owned()),
        Action::Resume => (Verb::MergePatch, json!({"spec": {"suspend": false}}), "resumes".to_owned()),
        Action::Delete => (Verb::Delete, json!({"propagationPolicy": "Background"}), "is deleted".to_owned()),
        Action::Parallelism(to) => {
            (Verb::MergePatch, json!({"spec": {"parallelism": to}}), format!("has the parallelism {to}"))
        }
    };
    let call = Call::new(verb, Kind::JOB, namespace, name).body(&body);
    match remote.call(&call).await.reply {
        Reply::Refused(refusal) => refusal.message,
        Reply::Unknown => "there was no answer; look whether it has changed".to_owned(),
        _ => format!("{namespace}/{name} {done}"),
    }
}
