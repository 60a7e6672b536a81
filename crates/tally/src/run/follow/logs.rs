//! The ends of logs, for failures. The node decides where logs are stored.

use std::collections::BTreeMap;
use std::path::Path;

use tally_core::ids::PodUid;
use tally_node::logs::{self, LogReadOptions};
use tally_node::port::Attempt;

/// The most bytes that are kept of the last lines: a line may have any length.
pub const LONGEST_TAIL: usize = 64 * 1024;

/// The last lines of a container in the files of a node, or of all containers if the name is empty; of the given run, or of
/// the last one. Empty if there is no log any more.
pub fn tail(root: &Path, pod: &str, container: &str, number: Option<u32>, most: usize) -> Vec<String> {
    let mut newest: BTreeMap<&str, &Attempt> = BTreeMap::new();
    let attempts = logs::attempts(root, &PodUid::new(pod));
    for attempt in attempts.iter().filter(|attempt| container.is_empty() || attempt.container == container) {
        if number.is_none_or(|number| number == attempt.number) {
            newest.insert(&attempt.container, attempt);
        }
    }
    let options = LogReadOptions { tail_lines: Some(most as u64), ..LogReadOptions::default() };
    let mut lines = Vec::new();
    for attempt in newest.into_values() {
        let Ok(mut reader) = logs::open(root, attempt, options.clone()) else { continue };
        let mut text = Vec::new();
        while let Ok(Some(chunk)) = reader.read() {
            text.extend_from_slice(&chunk);
            text.drain(..text.len().saturating_sub(LONGEST_TAIL));
        }
        lines.extend(String::from_utf8_lossy(&text).lines().map(str::to_owned));
    }
    lines.split_off(lines.len().saturating_sub(most))
}

/// The only line of a Pod of a hollow node, which runs no processes: it makes the handling of logs visible.
pub fn hollow_line(pod: &str) -> String {
    format!("{pod} ran nothing: its node is hollow")
}
