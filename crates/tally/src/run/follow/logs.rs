//! The ends of logs, for failures. The node decides where logs are stored.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tally_core::ids::PodUid;
use tally_node::logs::{self, LogReadOptions};
use tally_node::port::Attempt;

/// The identity of a Pod, as the node uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodId {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

pub trait Logs: Send + Sync {
    /// The last lines of a container, or of all containers if the name is empty; of the given run, or of the last one.
    /// Empty if there is no log any more.
    fn tail(&self, pod: &PodId, container: &str, number: Option<u32>, most: usize) -> Vec<String>;
}

/// The most bytes that are kept of the last lines: a line may have any length.
const LONGEST_TAIL: usize = 64 * 1024;

/// The logs of the processes of this machine.
pub struct ProcessLogs {
    root: PathBuf,
}

impl ProcessLogs {
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }
}

impl Logs for ProcessLogs {
    fn tail(&self, pod: &PodId, container: &str, number: Option<u32>, most: usize) -> Vec<String> {
        let uid = PodUid::new(&pod.uid);
        let mut newest: BTreeMap<&str, &Attempt> = BTreeMap::new();
        let attempts = logs::attempts(&self.root, &uid);
        for attempt in attempts.iter().filter(|attempt| container.is_empty() || attempt.container == container) {
            if number.is_none_or(|number| number == attempt.number) {
                newest.insert(&attempt.container, attempt);
            }
        }
        let options = LogReadOptions { tail_lines: Some(most as u64), ..LogReadOptions::default() };
        let mut lines = Vec::new();
        for attempt in newest.into_values() {
            let Ok(mut reader) = logs::open(&self.root, attempt, options.clone()) else { continue };
            let mut text = Vec::new();
            while let Ok(Some(chunk)) = reader.read() {
                text.extend_from_slice(&chunk);
                text.drain(..text.len().saturating_sub(LONGEST_TAIL));
            }
            lines.extend(String::from_utf8_lossy(&text).lines().map(str::to_owned));
        }
        lines.split_off(lines.len().saturating_sub(most))
    }
}

/// Hollow nodes run no processes. The logs of their Pods say so, which makes the handling of logs visible.
pub struct HollowLogs;

impl HollowLogs {
    /// The only line of a Pod.
    pub fn said(pod: &PodId) -> String {
        format!("{} ran nothing: its node is hollow", pod.name)
    }
}

impl Logs for HollowLogs {
    fn tail(&self, pod: &PodId, _: &str, _: Option<u32>, most: usize) -> Vec<String> {
        [Self::said(pod)].into_iter().take(most).collect()
    }
}
