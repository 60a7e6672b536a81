//! How Pods have failed: what their status says about the containers that ended.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};
use tally_core::pod::Phase;
use tally_core::time::Timestamp;

use crate::cause::ended;
use crate::evidence::{list, text, time};
use crate::pod::Pod;

/// How many failures of a Job that has failed are told, and of one that goes on.
pub const TOLD_OF_FAILED: usize = 3;
const TOLD_OF_UNFINISHED: usize = 1;
/// With these reasons a container did not start at all: its message is what is wrong.
const CANNOT_START: [&str; 2] = ["StartError", "ContainerCannotRun"];
/// Letters of a message in a sentence. A container may write 4 KiB, and more of it is in its log.
const MESSAGE_LETTERS: usize = 400;
/// The same where the failure is only a part of the sentence.
const PART_LETTERS: usize = 100;

/// One container that failed, or a Pod that failed without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    pub pod: String,
    pub pod_uid: String,
    pub index: Option<u32>,
    /// Empty: the Pod failed as a whole.
    pub container: String,
    /// How often the container had been restarted before: which of its logs it is.
    pub restarts: u32,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// `OOMKilled`, `StartError`, `Evicted`; empty where it would only be `Error`.
    pub reason: String,
    pub message: String,
    pub at: Option<Timestamp>,
    /// The last lines that it printed. They are no part of any object: the caller reads them.
    pub log: Vec<String>,
}

impl Failure {
    /// `Pod sum-1-x (index 1): exit code 3.` On one line.
    pub fn sentence(&self) -> String {
        let mut sentence = format!("Pod {}", self.pod);
        if let Some(index) = self.index {
            let _ = write!(sentence, " (index {index})");
        }
        let how = match (self.signal, self.exit_code) {
            (Some(signal), _) => Some(format!("signal {signal}")),
            (None, Some(code)) => Some(format!("exit code {code}")),
            (None, None) => None,
        };
        let parts = how.into_iter().chain(Some(self.reason.clone()).filter(|reason| !reason.is_empty()));
        let parts: Vec<String> = parts.collect();
        let how = if parts.is_empty() { "failed".to_owned() } else { parts.join(", ") };
        let message = self.short_message(MESSAGE_LETTERS);
        let separator = if message.is_empty() { "" } else { ": " };
        ended(&format!("{sentence}: {how}{separator}{message}"))
    }

    fn short_message(&self, letters: usize) -> String {
        let line = self.message.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.char_indices().nth(letters) {
            Some((at, _)) => format!("{}…", &line[..at]),
            None => line,
        }
    }

    /// What is wrong if the container did not start at all, such as a program that does not exist.
    pub(crate) fn start_error(&self) -> Option<String> {
        let is_meant = CANNOT_START.contains(&self.reason.as_str()) && !self.message.is_empty();
        is_meant.then(|| self.short_message(PART_LETTERS))
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "summary": self.sentence(), "pod": self.pod, "index": self.index, "container": self.container, "exitCode": self.exit_code,
            "signal": self.signal, "reason": self.reason, "message": self.message, "at": self.at, "log": self.log,
        })
    }

    fn of_container(self, container: &Value, terminated: &Value, restarts: u32) -> Self {
        let number = |name: &str| terminated[name].as_i64().and_then(|number| i32::try_from(number).ok());
        let reason = text(terminated, "/reason");
        Self {
            container: text(container, "/name").to_owned(),
            restarts,
            exit_code: number("exitCode"),
            signal: number("signal").filter(|signal| *signal != 0),
            reason: if reason == "Error" { String::new() } else { reason.to_owned() },
            message: text(terminated, "/message").to_owned(),
            at: time(&terminated["finishedAt"]),
            ..self
        }
    }

    /// How the Pod failed, or a container of it that is restarted in place. None: nothing of it has failed.
    pub(crate) fn of(pod: &Pod<'_>) -> Option<Self> {
        let view = &pod.view;
        let base =
            Self { pod: view.name.to_string(), pod_uid: view.uid.to_string(), index: view.index, ..Self::default() };
        let lists = ["/status/initContainerStatuses", "/status/containerStatuses"];
        for container in lists.into_iter().flat_map(|pointer| list(pod.object, pointer)) {
            let count = container["restartCount"].as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or(0);
            let (state, last) = (&container["state"], &container["lastState"]["terminated"]);
            let has_failed = |terminated: &Value| terminated["exitCode"].as_i64().is_some_and(|code| code != 0);
            if has_failed(&state["terminated"]) {
                return Some(base.of_container(container, &state["terminated"], count));
            }
            // While a container waits for its restart, the count is still that of the run that ended.
            if state["waiting"].is_object() && has_failed(last) {
                return Some(base.of_container(container, last, count));
            }
        }
        let (reason, message) = (text(pod.object, "/status/reason"), text(pod.object, "/status/message"));
        (view.phase == Phase::Failed).then(|| Self {
            reason: reason.to_owned(),
            message: message.to_owned(),
            at: Some(view.finished_at),
            ..base
        })
    }
}

/// The last failures of a Job's Pods, one of each index, and how many Pods more have failed. Pods that were deleted come
/// last: they may have failed because the Job has.
pub(crate) fn of_job(pods: &[Pod<'_>], has_failed: bool) -> (Vec<Failure>, usize) {
    let mut all: Vec<(bool, Failure)> =
        pods.iter().filter_map(|pod| Some((pod.view.deleting(), Failure::of(pod)?))).collect();
    let total = all.len();
    all.sort_by(|(one_goes, one), (other_goes, other)| (one_goes, other.at).cmp(&(other_goes, one.at)));
    let mut indexes = BTreeSet::new();
    all.retain(|(_, failure)| failure.index.is_none_or(|index| indexes.insert(index)));
    all.truncate(if has_failed { TOLD_OF_FAILED } else { TOLD_OF_UNFINISHED });
    let told: Vec<Failure> = all.into_iter().map(|(_, failure)| failure).collect();
    let more = total - told.len();
    (told, more)
}
