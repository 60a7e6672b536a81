//! Laws of server-side apply, and cases beyond those of `tests/golden/api/ssa.jsonl`.

use proptest::prelude::*;
use tally_value::{Value, json};

use super::*;
use crate::catalog;

fn resource(plural: &str) -> &'static Resource {
    catalog::resources().iter().find(|resource| resource.plural == plural).unwrap()
}

fn writer(manager: &str) -> Writer<'_> {
    Writer { manager, subresource: "", now: "2026-01-01T00:00:00Z" }
}

fn apply(old: Option<&Value>, config: &Value, manager: &str, force: bool) -> Result<Value, StatusError> {
    let mut config = config.clone();
    config["apiVersion"] = "v1".into();
    config["kind"] = "Pod".into();
    applied(resource("pods"), old, &config, writer(manager), force)
}

/// The managers and the paths that they own.
fn owners(object: &Value) -> Vec<(String, Vec<String>)> {
    let read = entries(object).unwrap();
    read.iter().map(|entry| (entry.id.manager.clone(), fields::paths(&entry.fields))).collect()
}

fn without_managers(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

#[test]
fn elements_that_both_have_are_in_the_applied_order_and_others_stay_between_them() {
    let names = |config: &[&str]| json!({"spec": {"containers": config.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()}});
    let order = |object: &Value| -> Vec<String> {
        let list = object["spec"]["containers"].as_array().unwrap();
        list.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    };
    for (live, config, expected) in [
        (&["a", "b", "c"][..], &["c", "a"][..], &["b", "c", "a"][..]),
        (&["a"], &["b"], &["a", "b"]),
        (&["x", "a", "y", "b", "z"], &["a", "b"], &["x", "a", "y", "b", "z"]),
        (&["x", "a", "y", "b", "z"], &["a", "n", "b"], &["x", "a", "y", "n", "b", "z"]),
        (&["a", "b"], &["b", "a"], &["b", "a"]),
    ] {
        let live = apply(None, &names(live), "other", false).unwrap();
        let new = apply(Some(&live), &names(config), "me", false).unwrap();
        assert_eq!(order(&new), expected, "{live} and {config:?}");
    }
}

#[test]
fn all_conflicts_are_named_at_once_by_manager() {
    let one = apply(None, &json!({"metadata": {"labels": {"a": "1", "b": "1"}}}), "m1", false).unwrap();
    let two = apply(Some(&one), &json!({"metadata": {"labels": {"c": "1"}}}), "m2", false).unwrap();
    let all = json!({"metadata": {"labels": {"a": "2", "b": "2", "c": "2"}}});
    let refused = apply(Some(&two), &all, "m3", false).unwrap_err();
    assert_eq!(refused.code, 409);
    assert_eq!(
        refused.message,
        "Apply failed with 3 conflicts: conflicts with \"m1\":\n- .metadata.labels.a\n- .metadata.labels.b\n\
         conflicts with \"m2\":\n- .metadata.labels.c"
    );
    assert_eq!(refused.details.unwrap().causes.len(), 3);
    let forced = apply(Some(&two), &all, "m3", true).unwrap();
    assert_eq!(owners(&forced).len(), 1, "{forced}");
}

#[test]
fn an_object_that_has_no_managers_gets_one_for_everything_at_its_first_apply() {
    let old =
        json!({"metadata": {"name": "p", "labels": {"a": "1"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let new = apply(Some(&old), &json!({"metadata": {"labels": {"b": "1"}}}), "me", false).unwrap();
    let names: Vec<_> = owners(&new).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["me", BEFORE_FIRST_APPLY]);
    let refused = apply(Some(&old), &json!({"metadata": {"labels": {"a": "2"}}}), "me", false).unwrap_err();
    assert!(refused.message.contains(BEFORE_FIRST_APPLY), "{}", refused.message);
}

#[test]
fn the_oldest_of_many_managers_become_one() {
    let resource = resource("configmaps");
    let mut object = json!({"metadata": {"name": "c"}, "data": {"k0": "0"}});
    created(resource, &mut object, Writer { manager: "m0", subresource: "", now: "2026-01-01T00:00:00Z" });
    for at in 1..15 {
        let mut new = object.clone();
        new["data"][format!("k{at}")] = "1".into();
        let (manager, now) = (format!("m{at}"), format!("2026-01-01T00:00:{at:02}Z"));
        updated(resource, &object, &mut new, Writer { manager: &manager, subresource: "", now: &now });
        object = new;
    }
    let owners = owners(&object);
    assert_eq!(owners.len(), MOST_UPDATERS);
    let ancient = owners.iter().find(|(name, _)| name == ANCIENT).unwrap();
    assert_eq!(ancient.1, [".data", ".data.k0", ".data.k1", ".data.k2", ".data.k3", ".data.k4", ".data.k5"]);
}

#[test]
fn what_is_no_list_of_managers_is_ignored() {
    let resource = resource("configmaps");
    let mut old = json!({"metadata": {"name": "c"}, "data": {"a": "1"}});
    created(resource, &mut old, writer("m1"));
    for bad in [
        json!([{"manager": "x", "operation": "Other", "fieldsType": "FieldsV1", "fieldsV1": {}}]),
        json!([{"manager": "x", "operation": "Apply", "fieldsType": "FieldsV2", "fieldsV1": {}}]),
        json!([{"manager": "x", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {"data": {}}}]),
    ] {
        let mut new = old.clone();
        new["metadata"]["managedFields"] = bad.clone();
        updated(resource, &old, &mut new, writer("m2"));
        assert_eq!(new, old, "{bad}");
    }
    for reset in [json!([]), json!([{}])] {
        let mut new = old.clone();
        new["metadata"]["managedFields"] = reset.clone();
        updated(resource, &old, &mut new, writer("m2"));
        assert_eq!(new["metadata"].get("managedFields"), None, "{reset}");
    }
}

/// A Pod with parts of every kind: maps, lists with keys, sets, lists that are owned as a whole.
fn config() -> impl Strategy<Value = Value> {
    let text = || prop_oneof![Just("1"), Just("2")];
    let labels = proptest::collection::btree_map(prop_oneof![Just("a"), Just("b"), Just("c")], text(), 0..3);
    let finalizers = proptest::sample::subsequence(vec!["x.io/a", "x.io/b", "x.io/c"], 0..3);
    let container = move |name: &'static str| {
        let parts = (text(), proptest::option::of(text()), proptest::sample::subsequence(vec![80, 81], 0..2));
        parts.prop_map(move |(image, dir, ports)| {
            let mut container = json!({"name": name, "image": image});
            if let Some(dir) = dir {
                container["workingDir"] = dir.into();
            }
            if !ports.is_empty() {
                container["ports"] = ports.iter().map(|port| json!({"containerPort": port})).collect();
                container["args"] = json!(["x", ports.len().to_string()]);
            }
            container
        })
    };
    let containers = proptest::sample::subsequence(vec!["c", "d", "e"], 0..3)
        .prop_flat_map(move |names| names.into_iter().map(container).collect::<Vec<_>>());
    (labels, finalizers, containers, proptest::option::of(text())).prop_map(|(labels, finalizers, containers, node)| {
        let mut object = json!({"metadata": {"name": "p"}, "spec": {}});
        if !labels.is_empty() {
            object["metadata"]["labels"] = json!(labels);
        }
        if !finalizers.is_empty() {
            object["metadata"]["finalizers"] = json!(finalizers);
        }
        if !containers.is_empty() {
            object["spec"]["containers"] = containers.into();
        }
        if let Some(node) = node {
            object["spec"]["nodeName"] = node.into();
        }
        object
    })
}

/// Every field that a manager owns is in the object, and every applied field belongs to its manager.
fn check_owners(object: &Value, manager: &str, config: &Value) {
    let strategy = MergeStrategy::Struct(structure(resource("pods")).unwrap());
    let there = typed::with_named(strategy, &typed::fields_of(strategy, &without_managers(object)));
    for entry in entries(object).unwrap() {
        let missing = fields::paths(&fields::difference(&entry.fields, &there));
        assert!(missing.is_empty(), "{} owns {missing:?}, which is not in {object}", entry.id.manager);
    }
    let mut wanted = typed::fields_of(strategy, config);
    leave_out(&mut wanted, resource("pods"), "");
    let own = entries(object).unwrap().into_iter().find(|entry| entry.id.manager == manager);
    assert_eq!(own.map(|entry| entry.fields).unwrap_or_default(), wanted);
}

proptest! {
    #[test]
    fn applying_again_changes_nothing(first in config(), second in config()) {
        let one = apply(None, &first, "m1", false).unwrap();
        let two = apply(Some(&one), &second, "m2", true).unwrap();
        check_owners(&two, "m2", &second);
        prop_assert_eq!(apply(Some(&two), &second, "m2", false).unwrap(), two);
    }

    #[test]
    fn what_is_given_up_is_removed_unless_another_manager_owns_it(first in config(), second in config(), third in config()) {
        let one = apply(None, &first, "m1", false).unwrap();
        let two = apply(Some(&one), &second, "m2", true).unwrap();
        let three = apply(Some(&two), &third, "m1", true).unwrap();
        check_owners(&three, "m1", &third);
        // Everything in the object has an owner: nothing was there before.
        let strategy = MergeStrategy::Struct(structure(resource("pods")).unwrap());
        let mut all = FieldSet::new();
        entries(&three).unwrap().iter().for_each(|entry| fields::add(&mut all, &entry.fields));
        let mut there = typed::difference(strategy, structure(resource("pods")).unwrap().zero(), &without_managers(&three));
        leave_out_all(&mut there, resource("pods"), "");
        let unowned = fields::difference(&fields::union(&there.added, &there.changed), &typed::with_named(strategy, &all));
        prop_assert!(unowned.is_empty(), "{:?} in {three}", fields::paths(&unowned));
    }

    #[test]
    fn sets_that_share_nothing_can_be_applied_in_any_order(first in config(), second in config()) {
        let other = {
            let mut other = json!({"metadata": {"annotations": second["metadata"].get("labels").cloned().unwrap_or_else(|| json!({"z": "1"}))}, "spec": {}});
            if let Some(node) = second["spec"].get("nodeName") {
                other["spec"]["schedulerName"] = node.clone();
            }
            other
        };
        let there = |one: &Value, by: &str, two: &Value, and: &str| {
            let object = apply(None, one, by, false).unwrap();
            apply(Some(&object), two, and, false).unwrap()
        };
        prop_assert_eq!(there(&first, "m1", &other, "m2"), there(&other, "m2", &first, "m1"));
    }

    #[test]
    fn managers_always_describe_the_object(configs in proptest::collection::vec((config(), 0..4_usize), 1..8)) {
        let strategy = MergeStrategy::Struct(structure(resource("pods")).unwrap());
        let (first, rest) = configs.split_first().unwrap();
        let mut object = first.0.clone();
        created(resource("pods"), &mut object, writer("m0"));
        for (config, who) in rest {
            let manager = format!("m{who}");
            object = if who % 2 == 0 {
                let mut new = config.clone();
                updated(resource("pods"), &object, &mut new, writer(&manager));
                new
            } else {
                apply(Some(&object), config, &manager, true).unwrap()
            };
            let there = typed::with_named(strategy, &typed::fields_of(strategy, &without_managers(&object)));
            for entry in entries(&object).unwrap() {
                let missing = fields::paths(&fields::difference(&entry.fields, &there));
                prop_assert!(missing.is_empty(), "{} owns {missing:?}, which is not in {object}", entry.id.manager);
            }
        }
    }
}

/// TYPE-9
#[test]
fn a_manager_owns_the_status_only_through_its_subresource_and_nothing_else_there() {
    let resource = resource("jobs");
    let mut old = json!({"metadata": {"name": "j"}, "spec": {"parallelism": 1}, "status": {"active": 1}});
    created(resource, &mut old, writer("m1"));
    assert_eq!(owners(&old), [("m1".to_owned(), vec![".spec.parallelism".to_owned()])]);
    let mut new = old.clone();
    (new["status"]["active"], new["spec"]["parallelism"]) = (2.into(), 5.into());
    updated(resource, &old, &mut new, Writer { subresource: "status", ..writer("m2") });
    let expected = [("m1", ".spec.parallelism"), ("m2", ".status.active")];
    assert_eq!(owners(&new), expected.map(|(name, path)| (name.to_owned(), vec![path.to_owned()])));
}
