//! What happened, as a hash always and in words on demand.

use std::hash::{BuildHasher, Hasher};

use compact_str::CompactString;
use tally_controllers::machine::{Action, Answer, Object, PodChange};
use tally_core::job::JobView;

/// What happened, as a hash always and as text on demand.
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

pub(crate) fn describe(object: &Object) -> String {
    match object {
        Object::Job(job) => format!("Job {} {}", job.name, describe_job(job)),
        Object::Pod(pod) => {
            let uid = pod.uid.to_string();
            let mut words = vec![format!(
                "Pod {} #{} @{} {:?}",
                pod.name,
                uid[30..].trim_start_matches('0'),
                pod.revision,
                pod.phase
            )];
            if pod.tracked {
                words.push("tracked".into());
            }
            if pod.deleting() {
                words.push("deleting".into());
            }
            if pod.ready {
                words.push("ready".into());
            }
            words.join(" ")
        }
    }
}

pub(crate) fn describe_action(action: &Action) -> String {
    match action {
        Action::CreatePod { name, .. } => format!("create Pod {name}"),
        Action::PatchPod { name, change, revision, .. } => {
            let at: CompactString = revision.map_or("".into(), |at| compact_str::format_compact!(" at {at}"));
            match change {
                PodChange::Release => format!("release {name}{at}"),
                PodChange::Adopt { .. } => format!("adopt {name}{at}"),
                PodChange::Disown { .. } => format!("disown {name}{at}"),
            }
        }
        Action::DeletePod { name, .. } => format!("delete Pod {name}"),
        Action::GetPod { name, .. } => format!("get Pod {name}"),
        Action::ListPods { selector, .. } => format!("list Pods with {selector}"),
        Action::GetJob { name, .. } => format!("get Job {name}"),
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
        Action::DeleteJob { name, .. } => format!("delete Job {name} (TTL)"),
    }
}

pub(crate) fn describe_answer(answer: &Answer) -> String {
    match answer {
        Answer::Done(object) => describe(object),
        Answer::Gone => "gone".into(),
        Answer::Conflict => "conflict".into(),
        Answer::AlreadyExists => "already exists".into(),
        Answer::Refused { message, .. } => format!("refused: {message}"),
        Answer::Unavailable => "unavailable".into(),
        Answer::Unknown => "nobody knows".into(),
        Answer::Pods { pods, at } => format!("{} Pods as of {at}", pods.len()),
    }
}
