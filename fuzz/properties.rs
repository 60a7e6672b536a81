//! Properties that must hold for all input bytes. Shared by the fuzz targets, which look for new inputs, and by the
//! ordinary tests of the core, which replay the corpus.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use tally_core::blueprint::{BlueprintError, NewPod, generate_name, pod_body};
use tally_core::indexes::{IndexSet, strict_intervals};
use tally_core::job::{JobSpec, JobStatus, JobView};
use tally_core::pod::{Phase, PodView, TRACKING_FINALIZER};
use tally_core::status_rules::{self, FieldError};

/// The rules that check a status whether it has changed or not.
const ALWAYS: [&str; 4] = ["STATUSVAL-1", "STATUSVAL-2", "STATUSVAL-20", "STATUSVAL-21"];

/// Input: `limit:text`, or only a text with a limit of ten.
pub fn index_text(data: &[u8]) {
    let Ok(input) = std::str::from_utf8(data) else {
        return;
    };
    let (limit, text) = match input.split_once(':') {
        Some((limit, text)) => (limit.parse().unwrap_or(10), text),
        None => (10, input),
    };
    let tolerant = IndexSet::read_tolerant(text, limit);
    check_written(&tolerant, limit);
    let intervals: Result<Vec<_>, _> = strict_intervals(text, limit).collect();
    match IndexSet::read_strict(text, limit) {
        Ok(strict) => {
            assert_eq!(strict, tolerant, "the tolerant reader agrees where the strict one accepts");
            check_written(&strict, limit);
            let size: u64 = intervals.unwrap().iter().map(|(start, end)| u64::from(end - start) + 1).sum();
            assert_eq!(u64::try_from(strict.len()).unwrap(), size, "strict intervals do not overlap");
        }
        Err(error) => {
            assert_eq!(intervals.unwrap_err(), error);
            assert!(!error.to_string().is_empty());
        }
    }
}

/// Both readers read back what was written, and there is only one way to write a set.
fn check_written(set: &IndexSet, limit: u32) {
    assert!(set.intervals().all(|(start, end)| start <= end && end < limit), "every index is valid");
    let text = set.text();
    assert_eq!(IndexSet::read_strict(&text, limit).as_ref(), Ok(set));
    assert_eq!(&IndexSet::read_tolerant(&text, limit), set);
    assert_eq!(IndexSet::read_tolerant(&text, limit).text(), text);
}

/// Input: a Job as JSON.
pub fn job_view(data: &[u8]) {
    let Ok(job) = JobView::from_json(data) else {
        return;
    };
    assert!(!job.uid.is_empty());
    if let Some(rewritten) = rewritten(data) {
        let mut again = JobView::from_json(&rewritten).expect("the same object in another spelling");
        let spec = JobSpec { template: job.spec.template.clone(), ..JobSpec::clone(&again.spec) };
        again.spec = spec.into();
        assert_eq!(again, job, "order and space make no difference");
    }
    check_status_round_trip(&job.status);
    check_unchanged(&job.spec, &job.status);
    check_body(&job, None);
    check_body(&job, Some(job.spec.index_limit()));
}

/// The same object with its members in another order and without whitespace. None: `Value` cannot represent it.
fn rewritten(data: &[u8]) -> Option<Vec<u8>> {
    serde_json::to_vec(&serde_json::from_slice::<Value>(data).ok()?).ok()
}

/// Writing a status loses fractions of seconds and nothing else.
fn check_status_round_trip(status: &JobStatus) {
    let text = serde_json::to_string(status).expect("a status can be written");
    let again: JobStatus = serde_json::from_str(&text).expect("what was written can be read");
    let mut expected = status.clone();
    let times = [&mut expected.start_time, &mut expected.completion_time];
    let conditions = expected.conditions.iter_mut();
    for time in times
        .into_iter()
        .chain(conditions.flat_map(|condition| [&mut condition.last_probe_time, &mut condition.last_transition_time]))
    {
        *time = time.map(|at| at.truncated());
    }
    assert_eq!(again, expected);
    assert_eq!(serde_json::to_string(&again).expect("a status can be written"), text);
}

fn check_body(job: &JobView, index: Option<u32>) {
    #[derive(Deserialize)]
    struct Body {
        kind: String,
        metadata: Metadata,
        #[serde(rename = "spec")]
        _spec: IgnoredAny,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        generate_name: String,
        finalizers: Vec<String>,
        owner_references: [Owner; 1],
    }
    #[derive(Deserialize)]
    struct Owner {
        uid: String,
    }
    let pod = NewPod { name: "pod".into(), index, failure_count: index, ignored_failure_count: 1 };
    match pod_body(job, &pod, index.is_none()) {
        Ok(body) => {
            let body: Body = Body::deserialize(&body).expect("the body is a Pod");
            assert_eq!(body.kind, "Pod");
            assert_eq!(body.metadata.owner_references[0].uid, job.uid.to_string());
            assert!(body.metadata.finalizers.iter().any(|finalizer| finalizer == TRACKING_FINALIZER));
            assert_eq!(body.metadata.generate_name, generate_name(&job.name, index));
            assert!(index.is_none() || body.metadata.generate_name.len() <= 58);
        }
        Err(BlueprintError::NoLabels) => assert_eq!(index, None, "an index is a label"),
        Err(error @ BlueprintError::Unreadable { .. }) => assert!(!error.to_string().is_empty()),
    }
}

/// Input: a Pod as JSON.
pub fn pod_view(data: &[u8]) {
    let Ok(pod) = PodView::from_json(data) else {
        return;
    };
    if let Some(rewritten) = rewritten(data) {
        let again = PodView::from_json(&rewritten).expect("the same object in another spelling");
        assert_eq!(again, pod, "order and space make no difference");
        let tree = serde_json::from_slice(&rewritten).expect("the same object");
        assert_eq!(
            PodView::from_tree(&tree).expect("the same object as a tree"),
            pod,
            "a tree says what its text says"
        );
    }
    assert!(!pod.uid.is_empty());
    assert!(pod.index.is_none_or(|index| index <= i32::MAX as u32));
    assert!(pod.exits.iter().all(|exit| exit.code != 0));
    assert!(pod.restarts.regular <= pod.restarts.sum && pod.restarts.sidecar <= pod.restarts.sum);
    assert!(!pod.ready || pod.conditions.iter().any(|(kind, status)| kind == "Ready" && status == "True"));
    assert_eq!(pod.phase.is_terminal(), matches!(pod.phase, Phase::Succeeded | Phase::Failed));
    assert!(!(pod.is_active() && (pod.deleting() || pod.phase.is_terminal())));
    assert!(pod.job().is_none() || pod.controller.is_some());
}

/// Input: three lines, the spec of a Job, an old status and a new one.
pub fn status_rules(data: &[u8]) {
    let Some((spec, old, new)) = three_lines(data) else {
        return;
    };
    check_unchanged(&spec, &old);
    check_unchanged(&spec, &new);
    let errors = status_rules::check(&spec, &old, &new);
    check_errors(&errors);
    check_overlap(&spec, &old, &new, &errors);
    if errors.is_empty() {
        assert_eq!(status_rules::check(&spec, &new, &new), [], "an accepted status may stay as it is");
        assert!(new.is_finished() || !old.is_finished(), "what is over stays over");
        assert!(new.failed >= old.failed);
        let elastic = spec.is_indexed() && spec.completions == Some(spec.parallelism);
        assert!(new.succeeded >= old.succeeded || elastic);
        assert!(new.active >= 0 && new.succeeded >= 0 && new.failed >= 0);
    }
}

fn three_lines(data: &[u8]) -> Option<(JobSpec, JobStatus, JobStatus)> {
    let mut lines = std::str::from_utf8(data).ok()?.splitn(3, '\n');
    let spec = lines.next()?;
    let (old, new) = (lines.next()?, lines.next()?);
    let job = format!(r#"{{"metadata":{{"uid":"u","name":"job","resourceVersion":"1"}},"spec":{spec}}}"#);
    let job = JobView::from_json(job.as_bytes()).ok()?;
    let (old, new) = (serde_json::from_str(old).ok()?, serde_json::from_str(new).ok()?);
    Some((JobSpec::clone(&job.spec), old, new))
}

/// A status that does not change violates only the rules that are always checked.
fn check_unchanged(spec: &JobSpec, status: &JobStatus) {
    let errors = status_rules::check(spec, status, status);
    check_errors(&errors);
    assert!(errors.iter().all(|error| ALWAYS.contains(&error.rule)), "{errors:?}");
}

fn check_errors(errors: &[FieldError]) {
    let number = |error: &FieldError| -> u32 {
        error.rule.strip_prefix("STATUSVAL-").and_then(|number| number.parse().ok()).expect("a rule's name")
    };
    assert!(errors.iter().map(number).is_sorted(), "{errors:?}");
    for error in errors {
        let text = error.to_string();
        assert!(text.starts_with("status.") && text.contains(" value"), "{text}");
        assert!(!text.contains(|character| character < ' '), "{text:?} is one line");
        if let Some(value) = &error.value {
            serde_json::from_str::<IgnoredAny>(value).expect("the value is JSON");
        }
    }
}

/// Rule 17 compared with the sets themselves, if both lists can be read.
fn check_overlap(spec: &JobSpec, old: &JobStatus, new: &JobStatus, errors: &[FieldError]) {
    let Some(failed) = &new.failed_indexes else {
        return;
    };
    let limit = spec.index_limit();
    let (Ok(completed), Ok(failed)) =
        (IndexSet::read_strict(&new.completed_indexes, limit), IndexSet::read_strict(failed, limit))
    else {
        return;
    };
    let changed = old.completed_indexes != new.completed_indexes || old.failed_indexes != new.failed_indexes;
    let overlap = completed.intersection(&failed).intervals().next().map(|(start, _)| start);
    let expected = overlap.filter(|_| changed && spec.completions.is_some());
    let said = errors.iter().find(|error| error.rule == "STATUSVAL-17");
    assert_eq!(
        said.map(|error| error.detail.clone()),
        expected.map(|index| format!("failedIndexes and completedIndexes overlap at index: {index}")),
    );
}
