//! Patches of all three kinds have the same results as in Kubernetes.

use proptest::prelude::*;
use tally_api::catalog;
use tally_api::decode::{Decoded, conform};
use tally_api::kinds::Resource;
use tally_api::options::{FieldValidation, PatchKind};
use tally_api::patch::{apply, patched};
use tally_api::status_error::StatusError;
use tally_value::{Value, json};

fn resource(plural: &str) -> &'static Resource {
    catalog::resources().iter().find(|resource| resource.plural == plural).unwrap()
}

fn object(plural: &str, value: Value) -> Value {
    conform(resource(plural), value, FieldValidation::Strict).unwrap().object
}

fn patch(plural: &str, kind: PatchKind, current: Value, patch: Value) -> Result<Decoded, StatusError> {
    patched(resource(plural), kind, object(plural, current), patch.to_string().as_bytes(), FieldValidation::Warn)
}

fn strategic(plural: &str, current: Value, patches: Value) -> Value {
    patch(plural, PatchKind::Strategic, current, patches).unwrap().object
}

/// Patching this Pod spec gives the expected one.
#[track_caller]
fn check_spec(current: Value, patch: Value, expected: Value) {
    let pod = strategic("pods", json!({"spec": current}), json!({"spec": patch}));
    assert_eq!(pod["spec"], object("pods", json!({"spec": expected}))["spec"]);
}

const REJECTED: &str = "the server rejected our request due to an error in our request";

// ---- JSON patch ----

fn configmap() -> Value {
    json!({"metadata": {"name": "c", "finalizers": ["x.io/a", "x.io/b", "x.io/c"]}, "data": {"a": "1", "b": "2"}})
}

#[test]
fn operations_change_the_object_in_turn() {
    for (operations, pointer, expected) in [
        (json!([]), "/data", json!({"a": "1", "b": "2"})),
        (json!([{"op": "add", "path": "/data/c", "value": "3"}]), "/data/c", json!("3")),
        (json!([{"op": "add", "path": "/data/a"}]), "/data/a", json!("")),
        (json!([{"op": "replace", "path": "/data/a", "value": "9"}]), "/data/a", json!("9")),
        (json!([{"op": "replace", "path": "/data/zz", "value": "9"}]), "/data/zz", json!("9")),
        (json!([{"op": "copy", "from": "/data/zz", "path": "/data/z"}]), "/data/z", json!("")),
        (json!([{"op": "remove", "path": "/data/a"}]), "/data", json!({"b": "2"})),
        (json!([{"op": "move", "from": "/data/a", "path": "/data/z"}]), "/data", json!({"b": "2", "z": "1"})),
        (json!([{"op": "copy", "from": "/data/a", "path": "/data/z"}]), "/data/z", json!("1")),
        (json!([{"op": "test", "path": "/data", "value": {"a": "1", "b": "2"}}]), "/data/a", json!("1")),
        (json!([{"op": "test", "path": "/data/none", "value": null}]), "/data/a", json!("1")),
        (
            json!([{"op": "add", "path": "/metadata/finalizers/-", "value": "x.io/d"}]),
            "/metadata/finalizers/3",
            json!("x.io/d"),
        ),
        (
            json!([{"op": "add", "path": "/metadata/finalizers/3", "value": "x.io/d"}]),
            "/metadata/finalizers/3",
            json!("x.io/d"),
        ),
        (
            json!([{"op": "add", "path": "/metadata/finalizers/0", "value": "x.io/d"}]),
            "/metadata/finalizers/1",
            json!("x.io/a"),
        ),
        (
            json!([{"op": "remove", "path": "/metadata/finalizers/-1"}]),
            "/metadata/finalizers",
            json!(["x.io/a", "x.io/b"]),
        ),
        (
            json!([
                {"op": "add", "path": "/metadata/annotations", "value": {"x.io/a": "1", "t~": "2"}},
                {"op": "replace", "path": "/metadata/annotations/x.io~1a", "value": "8"},
                {"op": "remove", "path": "/metadata/annotations/t~0"},
            ]),
            "/metadata/annotations",
            json!({"x.io/a": "8"}),
        ),
        (
            json!([{"op": "replace", "path": "", "value": {"metadata": {"name": "c"}, "data": {"only": "this"}}}]),
            "/data",
            json!({"only": "this"}),
        ),
    ] {
        let made = patch("configmaps", PatchKind::Json, configmap(), operations.clone()).unwrap();
        assert_eq!(made.object.pointer(pointer), Some(&expected), "{operations}");
        assert_eq!(made.warnings, Vec::<String>::new());
    }
}

#[test]
fn operations_that_do_not_fit_are_rejected_without_a_reason() {
    for operation in [
        json!({"op": "add", "path": "/metadata/labels/x", "value": "y"}),
        json!({"op": "add", "path": "/metadata/finalizers/7", "value": "x"}),
        json!({"op": "add", "path": "", "value": {}}),
        json!({"op": "add", "path": "data", "value": {}}),
        json!({"op": "add", "value": "y"}),
        json!({"op": "remove", "path": "/data/zz"}),
        json!({"op": "remove", "path": "/metadata/finalizers/9"}),
        json!({"op": "remove", "path": "/metadata/finalizers/x"}),
        json!({"op": "replace", "path": "/metadata/finalizers/9", "value": "x"}),
        json!({"op": "replace", "path": "/data/a/zz", "value": "x"}),
        json!({"op": "replace", "path": "", "value": "x"}),
        json!({"op": "replace", "path": "x", "value": {}}),
        json!({"op": "move", "from": "/data/zz", "path": "/data/z"}),
        json!({"op": "copy", "from": "/nope/zz", "path": "/data/z"}),
        json!({"op": "copy", "from": "", "path": "/data/z"}),
        json!({"op": "move", "from": "/data", "path": "/data/z"}),
        json!({"op": "copy", "path": "/data/z"}),
        json!({"op": "test", "path": "/data/a", "value": "2"}),
        json!({"op": "test", "path": "/data/zz", "value": "2"}),
        json!({"op": "frob", "path": "/data/a", "value": "2"}),
        json!({"path": "/data/a", "value": "2"}),
        json!(null),
    ] {
        let failure = patch("configmaps", PatchKind::Json, configmap(), json!([operation])).unwrap_err();
        let told = (failure.code, failure.reason, failure.message.as_str(), failure.details.is_some());
        assert_eq!(told, (422, "Invalid", REJECTED, true), "{operation}");
    }
}

#[test]
fn what_stands_before_the_first_slash_is_not_looked_at() {
    let made =
        patch("configmaps", PatchKind::Json, configmap(), json!([{"op": "add", "path": "data/a", "value": "2"}]));
    let made = made.unwrap();
    assert_eq!((&made.object["data"]["a"], made.warnings), (&json!("1"), vec!["unknown field \"a\"".to_owned()]));
}

#[test]
fn operations_are_bounded() {
    let many = |count: usize| Value::from(vec![json!({"op": "test", "path": "/data/a", "value": "1"}); count]);
    assert!(patch("configmaps", PatchKind::Json, configmap(), many(10_000)).is_ok());
    let failure = patch("configmaps", PatchKind::Json, configmap(), many(10_001)).unwrap_err();
    assert_eq!((failure.code, failure.reason), (413, "RequestEntityTooLarge"));
    assert!(failure.message.ends_with("The allowed maximum operations in a JSON patch is 10000, got 10001"));
    // Thirty doublings would produce gigabytes.
    let doubling: Vec<Value> =
        (0..30).map(|n| json!({"op": "copy", "from": "/data", "path": format!("/data/x{n}")})).collect();
    let failure = patch("configmaps", PatchKind::Json, configmap(), Value::from(doubling)).unwrap_err();
    assert_eq!((failure.code, failure.message.as_str()), (422, REJECTED));
}

// ---- merge patch ----

/// The examples of RFC 7386, as far as an object is patched with an object.
#[test]
fn merge_patches_do_what_the_rfc_says() {
    for (target, patches, expected) in [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
    ] {
        let made = apply(resource("configmaps"), PatchKind::Merge, &target, patches.to_string().as_bytes());
        assert_eq!(made, Ok(expected), "{target} {patches}");
    }
}

#[test]
fn documents_of_the_wrong_form_are_refused() {
    for (kind, body, text) in [
        (PatchKind::Merge, "", "error decoding patch: unexpected end of JSON input"),
        (
            PatchKind::Merge,
            "{x",
            "error decoding patch: invalid character 'x' looking for beginning of object key string",
        ),
        (
            PatchKind::Merge,
            "[]",
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (
            PatchKind::Merge,
            "5",
            "error decoding patch: json: cannot unmarshal number into Go value of type map[string]interface {}",
        ),
        (PatchKind::Merge, "null", "Invalid JSON Patch"),
        (PatchKind::Json, "this", "error decoding patch: invalid character 'h' in literal true (expecting 'r')"),
        (PatchKind::Json, "tris", "error decoding patch: invalid character 'i' in literal true (expecting 'u')"),
        (
            PatchKind::Json,
            "{}",
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (
            PatchKind::Json,
            "[5]",
            "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
        ),
        (
            PatchKind::Json,
            r#"[{"op":5}]"#,
            "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
        ),
        (PatchKind::Strategic, "[]", "json: cannot unmarshal array into Go value of type map[string]interface {}"),
    ] {
        let failure = apply(resource("configmaps"), kind, &configmap(), body.as_bytes()).unwrap_err();
        assert_eq!((failure.code, failure.reason, failure.message.as_str()), (400, "BadRequest", text), "{body}");
    }
}

// ---- the result conforms to the schema ----

#[test]
fn unknown_fields_of_a_patch_are_told_or_refused() {
    let job = object("jobs", json!({"metadata": {"name": "j"}}));
    let run = |kind, body: &str, validation| patched(resource("jobs"), kind, job.clone(), body.as_bytes(), validation);
    let body = r#"{"nope":1,"metadata":{"blah":2},"spec":{"parallelism":1,"parallelism":2}}"#;
    for (kind, told) in [
        (
            PatchKind::Merge,
            vec!["duplicate field \"spec.parallelism\"", "unknown field \"metadata.blah\"", "unknown field \"nope\""],
        ),
        (
            PatchKind::Strategic,
            vec!["duplicate field \"spec.parallelism\"", "unknown field \"metadata.blah\"", "unknown field \"nope\""],
        ),
    ] {
        let made = run(kind, body, FieldValidation::Warn).unwrap();
        assert_eq!(
            (made.warnings, &made.object["spec"]["parallelism"]),
            (told.iter().map(|text| (*text).to_owned()).collect(), &json!(2))
        );
        assert!(run(kind, body, FieldValidation::Ignore).unwrap().warnings.is_empty());
        let failure = run(kind, body, FieldValidation::Strict).unwrap_err();
        assert_eq!((failure.code, failure.details.as_ref().unwrap().causes[0].field.as_str()), (422, "patch"));
        assert!(
            failure.message.ends_with(&format!("strict decoding error: {}", told.join(", "))),
            "{}",
            failure.message
        );
    }
    let operations = r#"[{"op":"test","path":"/kind","value":"Job","Op":"x"}]"#;
    assert_eq!(
        run(PatchKind::Json, operations, FieldValidation::Warn).unwrap().warnings,
        [r#"json patch unknown field "[0].Op""#]
    );
}

#[test]
fn a_bad_strategic_patch_is_shown_as_go_prints_it() {
    let job = object("jobs", json!({"metadata": {"name": "j"}}));
    let body = json!({"spec": {"template": {"spec": {"frobs": [1, "a", null, true]}}}});
    let failure = patched(
        resource("jobs"),
        PatchKind::Strategic,
        job.clone(),
        body.to_string().as_bytes(),
        FieldValidation::Strict,
    );
    let text = " \"\" is invalid: patch: Invalid value: \"map[spec:map[template:map[spec:map[frobs:[1 a <nil> true]]]]]\": strict decoding error: unknown field \"spec.template.spec.frobs\"";
    assert_eq!(failure.unwrap_err().message, text);
    for (body, why) in [
        (json!({"spec": {"parallelism": "x"}}), "unrecognized type: int32"),
        (json!({"spec": {"parallelism": 1.5}}), "cannot convert float64 to int32"),
        (json!({"spec": "x"}), "cannot restore struct from: string"),
        (json!({"metadata": {"labels": ["x"]}}), "cannot restore map from slice"),
        (json!({"metadata": {"labels": {"x": 1}}}), "cannot convert int64 to string"),
        (json!({"spec": {"template": {"spec": {"containers": 5}}}}), "cannot restore slice from int64"),
        (json!({"metadata": {"creationTimestamp": 5}}), "json: cannot unmarshal number into Go value of type string"),
    ] {
        let failure = patch("jobs", PatchKind::Strategic, json!({}), body).unwrap_err();
        assert!(failure.message.ends_with(&format!(": {why}")), "{}", failure.message);
    }
}

#[test]
fn a_patch_cannot_make_another_kind() {
    let secret = json!({"kind": "Secret"});
    let failure = patch("configmaps", PatchKind::Merge, configmap(), secret.clone()).unwrap_err();
    assert_eq!((failure.code, failure.details.unwrap().causes[0].field.as_str()), (422, "patch"));
    assert_eq!(strategic("configmaps", configmap(), secret)["kind"], "ConfigMap");
}

// ---- strategic merge patch ----

#[test]
fn an_object_is_replaced_where_the_table_says_so() {
    let budget = json!({"spec": {"selector": {"matchLabels": {"a": "1"}}, "minAvailable": 1}});
    let patched = strategic("poddisruptionbudgets", budget, json!({"spec": {"selector": {"matchLabels": {"b": "2"}}}}));
    assert_eq!(patched["spec"], json!({"selector": {"matchLabels": {"b": "2"}}, "minAvailable": 1}));
}

#[test]
fn containers_are_merged_by_name() {
    let current = json!({"containers": [
        {"name": "a", "image": "ia", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
        {"name": "b", "image": "ib"},
    ]});
    let a = |image: &str| json!({"name": "a", "image": image, "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]});
    let b = json!({"name": "b", "image": "ib"});
    let n = json!({"name": "n", "image": "x"});
    let order = |names: &[&str]| names.iter().map(|name| json!({"name": name})).collect::<Value>();
    for (patch, expected) in [
        (json!({"containers": [{"name": "a", "image": "p"}, {"name": "a", "image": "q"}]}), json!([a("q"), b])),
        (json!({"containers": [{"name": "n", "image": "x"}]}), json!([n, a("ia"), b])),
        (json!({"containers": [{"name": "b", "image": "ib"}, {"name": "n", "image": "x"}]}), json!([a("ia"), b, n])),
        (json!({"containers": [{"name": "a", "$patch": "delete"}]}), json!([b])),
        (json!({"containers": [{"$patch": "replace"}, {"name": "n", "image": "x"}]}), json!([n])),
        (json!({"$setElementOrder/containers": order(&["b", "a"])}), json!([b, a("ia")])),
        (
            json!({"$setElementOrder/containers": order(&["b", "a"]), "containers": [{"name": "a", "image": "x"}]}),
            json!([b, a("x")]),
        ),
        (json!({"$setElementOrder/containers": order(&["n", "b", "a"]), "containers": [n]}), json!([n, b, a("ia")])),
        (json!({"$setElementOrder/containers": order(&["b", "n"]), "containers": [n]}), json!([a("ia"), b, n])),
        (
            json!({"$setElementOrder/containers": order(&["b"]), "containers": [{"name": "a", "$patch": "delete"}]}),
            json!([b]),
        ),
        (
            json!({"containers": [{"name": "a", "env": [{"name": "Y", "value": "9"}, {"name": "Z", "value": "3"}]}]}),
            json!([{"name": "a", "image": "ia", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "9"}, {"name": "Z", "value": "3"}]}, b]),
        ),
        (json!({"containers": [{"name": "a", "env": null}]}), json!([{"name": "a", "image": "ia"}, b])),
    ] {
        check_spec(current.clone(), patch, json!({"containers": expected}));
    }
}

#[test]
fn other_lists_have_other_keys_or_none() {
    let with = |name: &str, value: Value| {
        let mut spec = json!({"containers": [{"name": "a"}]});
        spec[name] = value;
        spec
    };
    for (name, current, patch, expected) in [
        ("tolerations", json!([{"key": "a"}]), json!([{"key": "c"}]), json!([{"key": "c"}])),
        ("imagePullSecrets", json!([{"name": "a"}]), json!([{"name": "b"}]), json!([{"name": "b"}, {"name": "a"}])),
        ("nodeSelector", json!({"a": "1", "b": "2"}), json!({"a": null, "c": "3"}), json!({"b": "2", "c": "3"})),
        ("nodeSelector", json!({"a": "1"}), json!({"$patch": "replace", "c": "3"}), json!({"c": "3"})),
        ("nodeSelector", json!({"a": "1"}), json!({"$patch": "delete"}), json!(null)),
        (
            "volumes",
            json!([{"name": "v", "emptyDir": {}}]),
            json!([{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "m"}}]),
            json!([{"name": "v", "configMap": {"name": "m"}}]),
        ),
        (
            "volumes",
            json!([{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}]),
            json!([{"name": "v", "$patch": "delete"}]),
            json!([{"name": "w", "emptyDir": {}}]),
        ),
        (
            "hostAliases",
            json!([{"ip": "1", "hostnames": ["a"]}]),
            json!([{"ip": "1", "hostnames": ["b"]}, {"ip": "2", "hostnames": ["c"]}]),
            json!([{"ip": "1", "hostnames": ["b"]}, {"ip": "2", "hostnames": ["c"]}]),
        ),
        // In new values there is nothing to remove and nothing to delete.
        ("affinity", json!(null), json!({"podAffinity": null, "nodeAffinity": {"$patch": "delete"}}), json!({})),
    ] {
        check_spec(with(name, current), json!({name: patch}), with(name, expected));
    }
}

#[test]
fn plain_values_are_merged_with_the_new_ones_first() {
    let finalizers = |patch: Value| {
        strategic("configmaps", configmap(), json!({"metadata": patch}))["metadata"]["finalizers"].clone()
    };
    assert_eq!(finalizers(json!({"finalizers": ["x.io/d"]})), json!(["x.io/d", "x.io/a", "x.io/b", "x.io/c"]));
    assert_eq!(finalizers(json!({"finalizers": ["x.io/c", "x.io/b"]})), json!(["x.io/a", "x.io/c", "x.io/b"]));
    assert_eq!(
        finalizers(json!({"$deleteFromPrimitiveList/finalizers": ["x.io/b", "x.io/z"]})),
        json!(["x.io/a", "x.io/c"])
    );
    assert_eq!(
        finalizers(json!({"$setElementOrder/finalizers": ["x.io/c", "x.io/b", "x.io/a"]})),
        json!(["x.io/c", "x.io/b", "x.io/a"])
    );
    assert_eq!(finalizers(json!({"finalizers": null})), Value::Null);
}

#[test]
fn bad_directives_are_refused() {
    let spec = json!({"spec": {"containers": [{"name": "a"}], "volumes": [{"name": "v"}]}});
    for (patches, code, text) in [
        (
            json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name"], "configMap": {"name": "m"}}]}}),
            400,
            "invalid patch format of retainKeys",
        ),
        (json!({"spec": {"$retainKeys": 5}}), 400, "invalid patch format of retainKeys"),
        (json!({"metadata": {"$deleteFromPrimitiveList": ["x"]}}), 400, "invalid patch format of primitive list"),
        (json!({"spec": {"$setElementOrder": []}}), 400, "invalid patch format of setElementOrder list"),
        (
            json!({"spec": {"containers": [{"image": "x"}]}}),
            500,
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (json!({"spec": {"$patch": "frob"}}), 500, "unknown patch type: frob in map: map[$patch:frob]"),
        (
            json!({"spec": {"containers": [{"name": "a", "$patch": "merge"}]}}),
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (
            json!({"spec": {"$setElementOrder/containers": "x"}}),
            500,
            "expected a []interface {}, but received a string",
        ),
        (
            json!({"spec": {"$setElementOrder/containers": [], "containers": {}}}),
            500,
            "expected a map[string]interface {}, but received a []interface {}",
        ),
        (
            json!({"spec": {"$setElementOrder/frobs": []}}),
            500,
            "unable to find api field in struct PodSpec for the json field \"frobs\"",
        ),
        (
            json!({"spec": {"containers": ["x"]}}),
            500,
            "list element types are not identical: [[map[name:a resources:map[]]] [x]]",
        ),
        (
            json!({"spec": {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a", "image": "x"}]}}),
            500,
            "The order in patch list:\n[map[image:x name:a]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n",
        ),
    ] {
        let failure = patch("pods", PatchKind::Strategic, spec.clone(), patches).unwrap_err();
        assert_eq!((failure.code, failure.message.as_str()), (code, text));
    }
}

/// Fast enough for the longest lists that fit in a body.
#[test]
fn long_lists_are_merged_in_good_time() {
    let names = |from: usize| (from..from + 60_000).map(|n| format!("x.io/{n}")).collect::<Vec<_>>();
    let current = json!({"metadata": {"finalizers": names(0)}});
    let made = strategic("configmaps", current, json!({"metadata": {"finalizers": names(30_000)}}));
    assert_eq!(made["metadata"]["finalizers"].as_array().unwrap().len(), 90_000);
}

// ---- properties of every patch ----

fn pod_spec() -> impl Strategy<Value = Value> {
    let name = prop_oneof![Just("a"), Just("b"), Just("c"), Just("d")];
    let env = prop::collection::btree_map(name.clone(), "[0-9]", 0..3)
        .prop_map(|env| env.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect::<Value>());
    let container =
        (name.clone(), "[a-z]", env).prop_map(|(name, image, env)| json!({"name": name, "image": image, "env": env}));
    let containers = prop::collection::vec(container, 0..4);
    let selector = prop::collection::btree_map("[a-c]", "[0-9]", 0..3);
    let tolerations = prop::collection::vec("[a-c]".prop_map(|key| json!({"key": key})), 0..3);
    (containers, selector, tolerations).prop_map(|(mut containers, selector, tolerations)| {
        // Elements of a stored list have unique names.
        let mut seen = std::collections::BTreeSet::new();
        containers.retain(|container| seen.insert(container["name"].to_string()));
        json!({"containers": containers, "nodeSelector": selector, "tolerations": tolerations})
    })
}

fn any_document() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        Just("spec"),
        Just("containers"),
        Just("metadata"),
        Just("finalizers"),
        Just("name"),
        Just("$patch"),
        Just("$retainKeys"),
        Just("$setElementOrder/containers"),
        Just("$deleteFromPrimitiveList/finalizers"),
        Just("$deleteFromPrimitiveList/containers"),
        Just("op"),
        Just("path"),
        Just("value"),
    ];
    let leaf = prop_oneof![
        Just(json!(null)),
        Just(json!("delete")),
        Just(json!("replace")),
        Just(json!("add")),
        Just(json!("/spec/containers/-1")),
        Just(json!("a")),
        Just(json!(1)),
    ];
    leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..5).prop_map(|entries| Value::Object(
                entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            )),
        ]
    })
}

/// The merge patch that makes the second of the first.
fn merge_difference(old: &Value, new: &Value) -> Value {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return new.clone() };
    let gone = old.keys().filter(|key| !new.contains_key(key)).map(|key| (key.clone(), Value::Null));
    let changed = new.iter().filter(|(key, value)| old.get(key) != Some(*value));
    let changed =
        changed.map(|(key, value)| (key.clone(), merge_difference(old.get(key).unwrap_or(&Value::Null), value)));
    Value::Object(gone.chain(changed).collect())
}

/// The operations that make the second of the first.
fn operations_between(path: &str, old: &Value, new: &Value, operations: &mut Vec<Value>) {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        if old != new {
            operations.push(json!({"op": "replace", "path": path, "value": new}));
        }
        return;
    };
    let below = |key: &str| format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
    for key in old.keys().filter(|key| !new.contains_key(key)) {
        operations.push(json!({"op": "remove", "path": below(key)}));
    }
    for (key, value) in new {
        match old.get(key) {
            Some(before) => operations_between(&below(key), before, value, operations),
            None => operations.push(json!({"op": "add", "path": below(key), "value": value})),
        }
    }
}

/// The strategic merge patch that makes the second Pod spec, or part of one, of the first.
fn strategic_difference(old: &Value, new: &Value) -> Value {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return new.clone() };
    let mut patch = tally_value::Map::new();
    for key in old.keys().filter(|key| !new.contains_key(key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new.iter().filter(|(key, value)| old.get(key) != Some(*value)) {
        let before = old.get(key).unwrap_or(&Value::Null);
        let (true, Some(before), Some(after)) =
            (matches!(key.as_str(), "containers" | "env"), before.as_array(), value.as_array())
        else {
            patch.insert(key.clone(), strategic_difference(before, value));
            continue;
        };
        let named = |list: &[Value], name: &Value| list.iter().find(|item| item["name"] == *name).cloned();
        let mut items = Vec::new();
        for item in after {
            let before = named(before, &item["name"]).unwrap_or(Value::Null);
            let mut item_patch = strategic_difference(&before, item);
            item_patch["name"] = item["name"].clone();
            items.push(item_patch);
        }
        let gone = before.iter().filter(|item| named(after, &item["name"]).is_none());
        items.extend(gone.map(|item| json!({"$patch": "delete", "name": item["name"]})));
        let order: Vec<_> = after.iter().map(|item| json!({"name": item["name"]})).collect();
        patch.insert(key.clone(), items.into());
        patch.insert(format!("$setElementOrder/{key}"), order.into());
    }
    patch.into()
}

proptest! {
    #[test]
    fn the_difference_of_two_objects_makes_the_second_of_the_first(old in pod_spec(), new in pod_spec()) {
        let pod = |spec| object("pods", json!({"metadata": {"name": "p"}, "spec": spec}));
        let (old, new) = (pod(old), pod(new));
        let mut operations = Vec::new();
        operations_between("", &old, &new, &mut operations);
        for (kind, patch) in [
            (PatchKind::Json, operations.into()),
            (PatchKind::Merge, merge_difference(&old, &new)),
            (PatchKind::Strategic, strategic_difference(&old, &new)),
        ] {
            let text = patch.to_string();
            let made = patched(resource("pods"), kind, old.clone(), text.as_bytes(), FieldValidation::Strict).unwrap();
            prop_assert_eq!(made.object, new.clone(), "{:?}: {}", kind, text);
        }
    }

    #[test]
    fn what_a_patch_does_not_name_is_as_if_it_had_been_held_to_the_schema_again(current in pod_spec(), change in pod_spec()) {
        let current = object("pods", json!({"metadata": {"name": "p"}, "spec": current, "status": {"phase": "Pending"}}));
        for patch in [
            json!({"status": {"phase": "Running"}}),
            json!({"metadata": {"labels": {"a": "b"}}, "spec": change}),
            json!({"status": null, "metadata": {"finalizers": []}}),
            json!({"$patch": "replace", "metadata": {"name": "p"}, "spec": change}),
        ] {
            for kind in [PatchKind::Strategic, PatchKind::Merge] {
                let text = patch.to_string();
                let whole = tally_api::patch::apply(resource("pods"), kind, &current, text.as_bytes()).unwrap();
                let whole = conform(resource("pods"), whole, FieldValidation::Ignore).unwrap().object;
                let (held, ignore) = (current.clone(), FieldValidation::Ignore);
                let parts = patched(resource("pods"), kind, held, text.as_bytes(), ignore).unwrap().object;
                prop_assert_eq!(&parts, &whole);
                let tree: tally_value::Value = serde_json::from_str(&text).unwrap();
                let sent = patched(resource("pods"), kind, current.clone(), &tree, ignore).unwrap().object;
                prop_assert_eq!(sent, whole, "a client in the same process sends the tree");
            }
        }
    }

    #[test]
    fn a_patch_that_has_been_applied_changes_nothing_more(current in pod_spec(), change in pod_spec()) {
        let change = json!({"spec": change});
        for kind in [PatchKind::Strategic, PatchKind::Merge] {
            let once = patch("pods", kind, json!({"spec": current}), change.clone()).unwrap().object;
            let twice = patched(resource("pods"), kind, once.clone(), change.to_string().as_bytes(), FieldValidation::Warn).unwrap().object;
            prop_assert_eq!(once, twice);
        }
    }

    #[test]
    fn strategic_patches_lose_no_element(current in pod_spec(), change in pod_spec()) {
        let made = strategic("pods", json!({"spec": current}), json!({"spec": change}));
        let names = |spec: &Value| -> std::collections::BTreeSet<String> {
            spec["containers"].as_array().into_iter().flatten().map(|container| container["name"].to_string()).collect()
        };
        let all = names(&current).union(&names(&change)).cloned().collect::<std::collections::BTreeSet<_>>();
        prop_assert_eq!(names(&made["spec"]), all.clone());
        prop_assert_eq!(made["spec"]["containers"].as_array().map_or(0, Vec::len), all.len());
    }

    #[test]
    fn no_document_makes_it_panic(current in pod_spec(), document in any_document()) {
        let pod = object("pods", json!({"spec": current, "metadata": {"finalizers": ["a", "b"]}}));
        for kind in [PatchKind::Json, PatchKind::Merge, PatchKind::Strategic] {
            for body in [document.clone(), json!([document])] {
                let _ = patched(resource("pods"), kind, pod.clone(), body.to_string().as_bytes(), FieldValidation::Strict);
                let _ = patched(resource("pods"), kind, pod.clone(), body.to_string().as_bytes(), FieldValidation::Ignore);
            }
        }
    }
}

// ---- managers of fields ----

#[test]
fn managers_that_a_patch_does_not_name_stay_and_others_are_checked() {
    let entry = json!({"manager": "m", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}});
    let mut current = configmap();
    current["metadata"]["managedFields"] = json!([entry]);
    let current = object("configmaps", current);
    let send = |kind, text: &str| {
        patched(resource("configmaps"), kind, current.clone(), text.as_bytes(), FieldValidation::Ignore)
    };
    for kind in [PatchKind::Merge, PatchKind::Strategic] {
        let labelled = send(kind, r#"{"metadata": {"labels": {"a": "b"}}}"#).unwrap().object;
        assert_eq!(labelled["metadata"]["managedFields"], json!([entry]));
        assert_eq!(labelled["metadata"]["labels"]["a"], "b");
        // Of two values for one key the last one counts.
        for wrong in [r#""x""#, "[5]", r#"[{"manager": 5}]"#, r#"[{"manager": "q", "time": "zzz"}]"#] {
            for text in [
                "{\"metadata\": {\"managedFields\": WRONG}}",
                "{\"metadata\": {}, \"metadata\": {\"managedFields\": WRONG}}",
            ] {
                assert!(send(kind, &text.replace("WRONG", wrong)).is_err(), "{text} {wrong}");
            }
        }
    }
}
