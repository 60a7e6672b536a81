//! What happened, always as a hash and on demand as text.

use std::hash::{BuildHasher, Hasher};

use tally_core::job::JobView;
use tally_core::pod::PodView;
use tally_runtime::cache::Meta;
use tally_runtime::controller::{Call, Kind, Reply};

use crate::action::{Action, PodChange};

/// What happened, always as a hash and on demand as text.
pub(crate) struct Trace {
    pub(crate) hash: u64,
    pub(crate) lines: Option<Vec<String>>,
}

impl Trace {
    pub(crate) fn mix(&mut self, value: u64) {
        let mut hasher = foldhash::fast::FixedState::with_seed(self.hash).build_hasher();
        hasher.write_u64(value);
        self.hash = hasher.finish();
    }

    pub(crate) fn say(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(line());
        }
    }
}

pub(crate) fn describe_job(job: &JobView) -> String {
    let (spec, status) = (&job.spec, &job.status);
    let mut words = vec![format!("@{}", job.revision)];
    if spec.is_indexed() {
        words.push("Indexed".into());
    }
    words.push(format!("P{} C{}", spec.parallelism, spec.completions.map_or("-".into(), |c| c.to_string())));
    words.push(format!(
        "active {} ready {} terminating {} succeeded {} failed {}",
        status.active,
        status.ready.unwrap_or(-1),
        status.terminating.unwrap_or(-1),
        status.succeeded,
        status.failed
    ));
    let lists = status.uncounted();
    if !lists.is_empty() {
        let short = |uids: &[tally_core::ids::PodUid]| {
            uids.iter()
                .map(|uid| uid.to_string()[30..].trim_start_matches('0').to_owned())
                .collect::<Vec<_>>()
                .join(",")
        };
        words.push(format!("uncounted [{}] [{}]", short(&lists.succeeded), short(&lists.failed)));
    }
    if !status.completed_indexes.is_empty() {
        words.push(format!("completed {}", status.completed_indexes));
    }
    if let Some(failed) = status.failed_indexes.as_deref().filter(|text| !text.is_empty()) {
        words.push(format!("failed indexes {failed}"));
    }
    for known in &status.conditions {
        words.push(format!("{}={}", known.kind, known.status));
    }
    if job.deleting {
        words.push("deleting".into());
    }
    if spec.suspend {
        words.push("suspend".into());
    }
    words.join(" ")
}

pub(crate) fn describe_bytes(kind: Kind, bytes: &[u8]) -> String {
    match kind {
        Kind::JOB => match JobView::from_json(bytes) {
            Ok(job) => format!("Job {} {}", job.name, describe_job(&job)),
            Err(error) => error.to_string(),
        },
        Kind::POD => match PodView::from_json(bytes) {
            Ok(pod) => describe_pod(&pod),
            Err(error) => error.to_string(),
        },
        _ => {
            let meta = Meta::of(&bytes.to_vec().into()).unwrap_or_default();
            format!("{} {}/{} @{}", kind.plural, meta.namespace, meta.name, meta.revision())
        }
    }
}

fn describe_pod(pod: &PodView) -> String {
    let uid = pod.uid.to_string();
    let mut words =
        vec![format!("Pod {} #{} @{} {:?}", pod.name, uid[30..].trim_start_matches('0'), pod.revision, pod.phase)];
    for (word, holds) in [("tracked", pod.tracked), ("deleting", pod.deleting()), ("ready", pod.ready)] {
        if holds {
            words.push(word.into());
        }
    }
    words.join(" ")
}

pub(crate) fn describe_call(call: &Call) -> String {
    match Action::of(call) {
        Action::CreatePod { name, .. } => format!("create Pod {name}"),
        Action::PatchPod { name, change, revision, .. } => {
            let at = revision.map_or(String::new(), |at| format!(" at {at}"));
            match change {
                PodChange::Release => format!("release {name}{at}"),
                PodChange::Start => format!("start {name}{at}"),
                PodChange::Adopt { .. } => format!("adopt {name}{at}"),
                PodChange::Disown { .. } => format!("disown {name}{at}"),
            }
        }
        Action::ListPods { selector, .. } => format!("list Pods {selector}"),
        Action::WriteJobStatus { name, revision, status, .. } => {
            let lists = status.uncounted();
            format!(
                "write status of {name} over {}: active {} succeeded {} failed {} uncounted {}+{}{}",
                revision.map_or("anything".into(), |at| at.to_string()),
                status.active,
                status.succeeded,
                status.failed,
                lists.succeeded.len(),
                lists.failed.len(),
                status.conditions.iter().map(|known| format!(" {}={}", known.kind, known.status)).collect::<String>()
            )
        }
        _ => {
            let place = [call.namespace.as_str(), call.name.as_str()].join("/");
            let sub = if call.subresource.is_empty() { "" } else { " " };
            format!("{:?} {} {place}{sub}{}", call.verb, call.kind.plural, call.subresource)
        }
    }
}

pub(crate) fn describe_reply(kind: Kind, reply: &Reply) -> String {
    match reply {
        Reply::Done(bytes) if kind == Kind::JOB || kind == Kind::POD => describe_bytes(kind, bytes),
        Reply::Done(_) => "done".into(),
        Reply::DoneWithStatus => "done, and nothing to show".into(),
        Reply::Listed { items, at } => format!("{} objects as of {at}", items.len()),
        Reply::Refused(refusal) => format!("refused ({}): {}", refusal.code, refusal.message),
        Reply::Unknown => "outcome unknown".into(),
    }
}
