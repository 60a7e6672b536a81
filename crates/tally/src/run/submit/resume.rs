//! Compares a requested Job with an existing one of the same name: is it the same work? Pure.

use serde_json::{Map, Value};
use tally_core::backoff::{BASE_ANNOTATION, JITTER_ANNOTATION, MAX_ANNOTATION};
use tally_core::job::HALT_ANNOTATION;

use crate::run::input::flags::MOST_FAILED;
use crate::run::parts::ListPart;

/// Labels that the server generates from the Job's identity.
pub const GENERATED: [&str; 4] =
    ["batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"];

/// The limits of retries.
const RETRIES: [&str; 2] = ["backoffLimit", "backoffLimitPerIndex"];

/// Maximum number of differences named in a message.
const NAMED: usize = 3;

#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// The same work: it is resumed, with another `parallelism` if requested.
    GoOn { parallelism: Option<i64> },
    /// The same work, and it is finished.
    Finished,
    /// Other work: these fields differ.
    Other(Vec<String>),
}

/// What may differ without making it other work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loose<'a> {
    /// Environment variables that the user did not set explicitly.
    pub env: &'a [&'a str],
    /// The limits of retries, which the Job keeps: those of a command line are not those of earlier versions.
    pub retries: bool,
}

/// Both Jobs are in the form that the server stores, with all defaults.
pub fn decide(there: &Value, wanted: &Value, loose: Loose<'_>) -> Decision {
    let [old, mut new] = [there, wanted].map(|job| essence(job, loose));
    // With retries per index, a command of very many indexes gets a limit that it did not need in earlier versions.
    if loose.retries && there["spec"]["backoffLimitPerIndex"].is_null() && new["maxFailedIndexes"] == MOST_FAILED {
        new.as_object_mut().into_iter().for_each(|fields| drop(fields.remove("maxFailedIndexes")));
    }
    let mut differences = Vec::new();
    differ("spec", &old, &new, &mut differences);
    if !differences.is_empty() {
        differences.truncate(NAMED);
        return Decision::Other(differences);
    }
    // A part is suspended when another part of its list has failed.
    if is_finished(there) || ListPart::of(there).is_some() && there["spec"]["suspend"] == true {
        return Decision::Finished;
    }
    let at_a_time = |job: &Value| job.pointer("/spec/parallelism").and_then(Value::as_i64);
    Decision::GoOn { parallelism: at_a_time(wanted).filter(|wanted| at_a_time(there) != Some(*wanted)) }
}

/// The annotations that say how long to wait before a retry, and how to halt, as a merge patch, if others are wanted than there are:
/// that does not make it other work.
pub fn changed_waits(there: &Value, wanted: &Value) -> Option<Value> {
    let of = |job: &Value, name: &str| job["metadata"]["annotations"][name].clone();
    let names = [BASE_ANNOTATION, MAX_ANNOTATION, JITTER_ANNOTATION, HALT_ANNOTATION];
    let changed = names.into_iter().filter(|name| of(there, name) != of(wanted, name));
    let changed: Map<String, Value> = changed.map(|name| (name.to_owned(), of(wanted, name))).collect();
    (!changed.is_empty()).then_some(changed.into())
}

/// What to say about the limits of retries, if others are wanted than the Job has: it keeps its own.
pub fn kept_retries(there: &Value, wanted: &Value) -> Option<String> {
    let limit = |job: &Value| {
        let limit = |field: &str| Some(format!("{field} {}", job["spec"][field].as_i64()?));
        limit("backoffLimitPerIndex").or_else(|| limit("backoffLimit"))
    };
    let (there, wanted) = (limit(there)?, limit(wanted)?);
    (there != wanted).then(|| format!("{there}, not {wanted}"))
}

pub fn is_finished(job: &Value) -> bool {
    let conditions = job.pointer("/status/conditions").and_then(Value::as_array);
    let finished = |condition: &Value| {
        condition["status"] == "True" && (condition["type"] == "Complete" || condition["type"] == "Failed")
    };
    conditions.is_some_and(|conditions| conditions.iter().any(finished))
}

/// What identifies the work of a Job: its specification without generated fields and without `parallelism`.
fn essence(job: &Value, loose: Loose<'_>) -> Value {
    let mut spec = job.get("spec").cloned().unwrap_or_default();
    let own_selector = spec["manualSelector"] == true;
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("parallelism");
        if loose.retries {
            RETRIES.iter().for_each(|limit| drop(fields.remove(*limit)));
        }
        if ListPart::of(job).is_some() {
            fields.remove("suspend");
        }
        if !own_selector {
            fields.remove("selector");
        }
    }
    if let Some(labels) = spec.pointer_mut("/template/metadata/labels").and_then(Value::as_object_mut) {
        labels.retain(|label, _| !GENERATED.contains(&label.as_str()));
    }
    if let Some(metadata) = spec.pointer_mut("/template/metadata").and_then(Value::as_object_mut) {
        metadata.remove("creationTimestamp");
        metadata.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|map| !map.is_empty()));
    }
    let containers = spec.pointer_mut("/template/spec/containers").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        if let Some(env) = container.get_mut("env").and_then(Value::as_array_mut) {
            env.retain(|row| !row["name"].as_str().is_some_and(|name| loose.env.contains(&name)));
        }
    }
    spec
}

fn differ(path: &str, old: &Value, new: &Value, differences: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(one), Value::Object(other)) => {
            let mut keys: Vec<&String> = one.keys().chain(other.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let absent = Value::Null;
                let (old, new) = (one.get(key).unwrap_or(&absent), other.get(key).unwrap_or(&absent));
                differ(&format!("{path}.{key}"), old, new, differences);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() && one.iter().any(Value::is_object) => {
            for (index, (old, new)) in one.iter().zip(other).enumerate() {
                differ(&format!("{path}[{index}]"), old, new, differences);
            }
        }
        (old, new) if old == new => {}
        _ => differences.push(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(parallelism: i64, command: &str, path: &str) -> Value {
        json!({"spec": {
            "parallelism": parallelism,
            "selector": {"matchLabels": {"controller-uid": path}},
            "template": {
                "metadata": {"labels": {"controller-uid": path, "job-name": "x", "mine": "1"}},
                "spec": {"containers": [{"command": [command], "env": [{"name": "PATH", "value": path}]}]},
            },
        }})
    }

    #[test]
    fn the_same_work_goes_on() {
        let there = job(4, "make", "/a");
        for (wanted, loose, expected) in [
            (job(4, "make", "/a"), &[][..], Decision::GoOn { parallelism: None }),
            (job(2, "make", "/a"), &[], Decision::GoOn { parallelism: Some(2) }),
            (job(4, "make", "/b"), &["PATH"], Decision::GoOn { parallelism: None }),
            (
                job(4, "make", "/b"),
                &[],
                Decision::Other(vec!["spec.template.spec.containers[0].env[0].value".to_owned()]),
            ),
            (job(4, "test", "/a"), &[], Decision::Other(vec!["spec.template.spec.containers[0].command".to_owned()])),
        ] {
            assert_eq!(decide(&there, &wanted, Loose { env: loose, retries: false }), expected, "{wanted}");
        }
    }

    #[test]
    fn other_waits_are_the_same_work() {
        let job = |annotations: Value| json!({"metadata": {"annotations": annotations}, "spec": {}});
        let short = job(json!({"tally.dev/backoff-base": "1s", "other": "x"}));
        let long = job(json!({"tally.dev/backoff-base": "9s", "tally.dev/backoff-max": "9s"}));
        assert_eq!(decide(&short, &long, Loose::default()), Decision::GoOn { parallelism: None });
        let patch = json!({"tally.dev/backoff-base": "9s", "tally.dev/backoff-max": "9s"});
        assert_eq!(changed_waits(&short, &long), Some(patch));
        let patch = json!({"tally.dev/backoff-base": "1s", "tally.dev/backoff-max": null});
        assert_eq!(changed_waits(&long, &short), Some(patch));
        assert_eq!(changed_waits(&short, &short), None);
    }

    /// RETRY-4.
    #[test]
    fn other_retries_of_a_command_are_the_same_work_and_the_job_keeps_its_own() {
        let job = |limits: Value| json!({"spec": limits});
        let (six, none) =
            (job(json!({"backoffLimit": 6})), job(json!({"backoffLimit": i32::MAX, "backoffLimitPerIndex": 0})));
        let loose = Loose { retries: true, ..Loose::default() };
        assert_eq!(decide(&six, &none, loose), Decision::GoOn { parallelism: None });
        let differ = ["spec.backoffLimit", "spec.backoffLimitPerIndex"].map(str::to_owned).to_vec();
        assert_eq!(decide(&six, &none, Loose::default()), Decision::Other(differ));
        assert_eq!(kept_retries(&six, &none).as_deref(), Some("backoffLimit 6, not backoffLimitPerIndex 0"));
        assert_eq!(kept_retries(&six, &six), None);
        let many = |most: i32| decide(&six, &job(json!({"backoffLimitPerIndex": 0, "maxFailedIndexes": most})), loose);
        assert_eq!(many(MOST_FAILED), Decision::GoOn { parallelism: None });
        assert_eq!(many(1), Decision::Other(vec!["spec.maxFailedIndexes".to_owned()]), "--halt was asked for");
    }

    #[test]
    fn fields_that_are_only_on_one_side_are_differences() {
        let (there, mut wanted) = (job(1, "x", "/a"), job(1, "x", "/a"));
        wanted["spec"]["completions"] = 3.into();
        assert_eq!(decide(&there, &wanted, Loose::default()), Decision::Other(vec!["spec.completions".to_owned()]));
        assert_eq!(decide(&wanted, &there, Loose::default()), Decision::Other(vec!["spec.completions".to_owned()]));
    }

    #[test]
    fn a_finished_job_is_done_unless_it_was_other_work() {
        let mut there = job(1, "x", "/a");
        there["status"] = json!({"conditions": [{"type": "Failed", "status": "True"}]});
        assert_eq!(decide(&there, &job(7, "x", "/a"), Loose::default()), Decision::Finished);
        assert!(matches!(decide(&there, &job(1, "y", "/a"), Loose::default()), Decision::Other(_)));
        there["status"] = json!({"conditions": [{"type": "Failed", "status": "False"}]});
        assert!(!is_finished(&there));
    }
}
