//! What is known about failures beyond the objects of the API: the last lines of logs, and records of Pods that are gone.

use std::collections::BTreeSet;
use std::time::Duration;

use tally_core::ids::PodUid;
use tally_core::time::Timestamp;
use tally_explain::{Explanation, Failure, State, TOLD_OF_FAILED};
use tally_node::logs::{self, LogReadOptions};
use tally_node::port::Attempt;

use super::attempts;
use crate::place::Place;
use crate::pod_log::{PodLogRequest, next_piece};

/// Lines of each log that are told, and letters of each line.
const LINES: usize = 10;
const LETTERS: usize = 500;
/// Of ten lines, no more than this is read.
const MOST_BYTES: usize = 256 << 10;
/// A server that does not answer, such as that of a lost node, does not keep the explanation back.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// Adds to an explanation how the Job failed if its Pods are gone, and the last lines that what failed has printed.
pub async fn told(place: &Place, mut explanation: Explanation) -> Explanation {
    if explanation.failures.is_empty() && explanation.state == State::Failed {
        recorded(place, &mut explanation);
    }
    for failure in &mut explanation.failures {
        // One that failed as a whole has no log, nor has a container that did not start.
        if !failure.container.is_empty() {
            let reading = last_lines(place, &explanation.namespace, failure);
            failure.log = tokio::time::timeout(READ_WITHIN, reading).await.unwrap_or_default();
        }
    }
    explanation
}

/// The last failure of each index, by the records of attempts.
fn recorded(place: &Place, explanation: &mut Explanation) {
    let Ok(Some(records)) = place.records(&explanation.uid) else { return };
    let mut rows = attempts::rows(&[records], &[], true);
    rows.retain(|row| row.exit_code.is_some_and(|code| code != 0));
    rows.sort_by_key(|row| std::cmp::Reverse(row.finished_at));
    let total = rows.len();
    let mut indexes = BTreeSet::new();
    rows.retain(|row| row.index.is_none_or(|index| indexes.insert(index)));
    explanation.failures = rows
        .into_iter()
        .take(TOLD_OF_FAILED)
        .map(|row| Failure {
            pod: row.pod,
            pod_uid: row.pod_uid,
            index: row.index,
            container: row.container,
            restarts: row.restarts,
            exit_code: row.exit_code,
            signal: row.signal,
            reason: if row.out_of_memory { "OOMKilled".to_owned() } else { String::new() },
            message: row.message,
            at: row.finished_at.map(Timestamp::from_millis),
            log: Vec::new(),
        })
        .collect();
    explanation.more_failures = total - explanation.failures.len();
}

/// Empty: there is no log, or it cannot be read.
async fn last_lines(place: &Place, namespace: &str, failure: &Failure) -> Vec<String> {
    let mut text = Vec::new();
    match (place.node(), place.remote()) {
        (Some(root), _) => {
            let attempt = Attempt {
                pod: PodUid::new(&failure.pod_uid),
                container: failure.container.as_str().into(),
                number: failure.restarts,
            };
            let options = LogReadOptions { tail_lines: Some(LINES as u64), ..LogReadOptions::default() };
            let Ok(mut reader) = logs::open(&root, &attempt, options) else { return Vec::new() };
            while let Ok(Some(piece)) = reader.read()
                && text.len() < MOST_BYTES
            {
                text.extend_from_slice(&piece);
            }
        }
        (None, Some(remote)) => {
            let request = PodLogRequest { tail_lines: Some(LINES as u64), ..PodLogRequest::default() };
            let request = request.of(namespace, &failure.pod, &failure.container);
            let Ok(mut log) = request.open(&remote).await else { return Vec::new() };
            while let Some(piece) = next_piece(&mut log).await
                && text.len() < MOST_BYTES
            {
                text.extend_from_slice(&piece);
            }
        }
        (None, None) => {}
    }
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let cut = |line: &&str| line.chars().take(LETTERS).collect();
    lines[lines.len().saturating_sub(LINES)..].iter().map(cut).collect()
}
