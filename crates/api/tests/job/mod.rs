//! The Job's rules, one row or more per rule: what is accepted, what is refused, and the messages.

mod annotations;
mod changes;
mod gates;
mod identity;
mod spec;

use tally_api::job::JobRules;
use tally_api::kinds::{Part, Rules};
use tally_core::time::Timestamp;
use tally_value::{Value, json};

const UID: &str = "0b1c";

/// A Job named `a` with one container, with changes in the form of a merge patch.
fn job(changes: Value) -> Value {
    let pod = json!({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"});
    let mut job = json!({"metadata": {"name": "a"}, "spec": {"template": {"spec": pod}}});
    merge(&mut job, &changes);
    job
}

/// `job` with changes of its spec.
fn spec(changes: Value) -> Value {
    job(json!({"spec": changes}))
}

fn indexed(changes: Value) -> Value {
    let mut job = spec(json!({"completionMode": "Indexed", "completions": 5, "parallelism": 5}));
    merge(&mut job, &json!({"spec": changes}));
    job
}

fn success_rules(rules: Value) -> Value {
    indexed(json!({"successPolicy": {"rules": rules}}))
}

fn failure_rule(rule: Value) -> Value {
    spec(json!({"podFailurePolicy": {"rules": [rule]}}))
}

fn exit_codes(codes: Value) -> Value {
    failure_rule(json!({"action": "FailJob", "onExitCodes": codes}))
}

fn labels(labels: Value) -> Value {
    json!({"template": {"metadata": {"labels": labels}}})
}

fn merge(to: &mut Value, from: &Value) {
    let Value::Object(fields) = from else {
        *to = from.clone();
        return;
    };
    if !to.is_object() {
        *to = json!({});
    }
    for (field, value) in fields {
        if value.is_null() {
            to.as_object_mut().unwrap().remove(field);
        } else {
            merge(&mut to[field.as_str()], value);
        }
    }
}

/// Applies what a create does to a Job, except for the metadata that all kinds share.
fn create(mut job: Value) -> Result<Value, Vec<String>> {
    JobRules.default(&mut job);
    let meta = job["metadata"].as_object_mut().unwrap();
    meta.entry("name").or_insert(json!("generated"));
    meta.insert("uid".to_owned(), json!(UID));
    JobRules.prepare_create(&mut job, Timestamp::default());
    refused(JobRules.validate_create(&job))?;
    JobRules.complete(&mut job);
    Ok(job)
}

fn refused(errors: Vec<tally_api::field::FieldError>) -> Result<(), Vec<String>> {
    if errors.is_empty() { Ok(()) } else { Err(errors.iter().map(ToString::to_string).collect()) }
}

/// The result of applying a merge patch to a stored Job.
fn update(stored: &Value, part: Part, patch: Value) -> Result<Value, Vec<String>> {
    let mut new = stored.clone();
    merge(&mut new, &patch);
    JobRules.default(&mut new);
    JobRules.prepare_update(&mut new, stored, part);
    refused(JobRules.validate_update(&new, stored, part))?;
    JobRules.complete(&mut new);
    Ok(new)
}

#[track_caller]
fn check(rule: &str, sent: Value, expected: &[&str]) {
    let errors = create(sent).err().unwrap_or_default();
    assert_eq!(errors, expected, "{rule}");
}

#[track_caller]
fn check_update(rule: &str, stored: &Value, patch: Value, expected: &[&str]) {
    let errors = update(stored, Part::Main, patch).err().unwrap_or_default();
    assert_eq!(errors, expected, "{rule}");
}
