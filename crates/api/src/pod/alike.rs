//! Pods of one template: what was checked in one of them need not be checked in the next.

use std::num::NonZeroUsize;

use tally_value::{Map, Value};

use crate::meta;

/// What a Pod has in common with the others of its template.
pub(super) fn likeness(pod: &Value) -> Option<NonZeroUsize> {
    pod.get("spec")?.get("containers")?.address()
}

/// Whether a new Pod is valid and without warnings because another one is. All that the rules look at is the very same, but
/// for what differs between the Pods of a Job, which is checked here.
pub(super) fn is_like(pod: &Value, accepted: &Value) -> bool {
    let Some((spec, accepted_spec)) = both(pod, accepted, "spec") else { return false };
    let own_label = |field: &str, value: &Value| {
        field == "hostname" && value.as_str().is_some_and(|name| !name.is_empty() && is_label(name))
    };
    let name = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    same_but(spec, accepted_spec, own_label)
        && has_the_same_annotations(pod, accepted)
        && is_label(name)
        && !has_claims(spec)
}

fn is_label(name: &str) -> bool {
    meta::dns_label_problems(name).is_empty()
}

fn both<'a>(pod: &'a Value, accepted: &'a Value, part: &str) -> Option<(&'a Map, &'a Map)> {
    Some((pod.get(part)?.as_object()?, accepted.get(part)?.as_object()?))
}

/// Both have the same fields, and the same values but where `may_differ`.
fn same_but(new: &Map, accepted: &Map, may_differ: impl Fn(&str, &Value) -> bool) -> bool {
    new.len() == accepted.len()
        && new.iter().zip(accepted).all(|((name, value), (accepted_name, accepted))| {
            name == accepted_name && (value.is_same(accepted) || may_differ(name, value))
        })
}

/// No rule is about the numbers that the Job controller writes.
fn has_the_same_annotations(pod: &Value, accepted: &Value) -> bool {
    let (Some(new), Some(old)) = (pod.get("metadata"), accepted.get("metadata")) else { return false };
    match both(new, old, "annotations") {
        Some((new, old)) => same_but(new, old, |name, _| name.starts_with("batch.kubernetes.io/job-")),
        None => new.get("annotations").is_none() && old.get("annotations").is_none(),
    }
}

/// Their names are compared with the name of the Pod.
fn has_claims(spec: &Map) -> bool {
    let volumes = spec.get("volumes").and_then(Value::as_array).into_iter().flatten();
    volumes
        .filter_map(Value::as_object)
        .any(|volume| volume.contains_key("persistentVolumeClaim") || volume.contains_key("ephemeral"))
}

#[cfg(test)]
mod tests {
    use tally_value::json;

    use super::*;
    use crate::kinds::Rules;
    use crate::pod::PodRules;

    fn pod(name: &str) -> Value {
        let mut pod = json!({
            "metadata": {"name": name, "annotations": {"batch.kubernetes.io/job-completion-index": "0", "own": "x"}},
            "spec": {"containers": [{"name": "c", "image": "i"}], "hostname": "j-0", "securityContext": {}},
        });
        PodRules.default(&mut pod);
        pod
    }

    #[test]
    fn what_is_the_very_same_is_checked_once() {
        let accepted = pod("a");
        assert_eq!(PodRules.validate_create(&accepted), []);
        let check = |change: &dyn Fn(&mut Value), expected: bool| {
            let mut new = accepted.clone();
            change(&mut new);
            let found = (PodRules.validate_create(&new).len(), PodRules.create_warnings(&new).len());
            assert_eq!(is_like(&new, &accepted), expected, "{new}");
            assert!(!expected || found == (0, 0), "{new}: {found:?}");
        };
        check(&|_| {}, true);
        check(&|new| new["metadata"]["name"] = "b".into(), true);
        check(&|new| new["spec"]["hostname"] = "j-1".into(), true);
        check(&|new| new["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = "1".into(), true);
        check(&|new| new["metadata"]["labels"] = json!({"any": "label"}), true);
        // These have errors or warnings of their own.
        check(&|new| new["spec"]["hostname"] = "-".into(), false);
        check(&|new| new["metadata"]["name"] = "a.b".into(), false);
        check(&|new| new["spec"]["containers"][0]["name"] = "C".into(), false);
        check(&|new| new["spec"]["terminationGracePeriodSeconds"] = json!(-1), false);
        check(&|new| new["spec"]["nodeName"] = "-".into(), false);
        check(&|new| new["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "x".into(), false);
        check(&|new| new["metadata"]["annotations"]["own"] = "y".into(), false);
        // And these are equal, but not the same.
        check(&|new| new["spec"]["containers"] = json!([pod("a")["spec"]["containers"][0].clone()]), false);
        check(&|new| drop(new["metadata"].as_object_mut().map(|metadata| metadata.remove("annotations"))), false);
    }

    #[test]
    fn names_of_claims_depend_on_the_name_of_the_pod() {
        for source in ["ephemeral", "persistentVolumeClaim"] {
            let mut accepted = pod("a");
            accepted["spec"]["volumes"] = json!([{"name": "v", source: {}}]);
            assert!(!is_like(&accepted, &accepted), "{source}");
        }
    }
}
