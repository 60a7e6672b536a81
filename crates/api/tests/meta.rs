//! Metadata of creates and updates, one row per rule.

use tally_api::kinds::{Resource, Rules};
use tally_api::meta;
use tally_value::{Value, json};

struct Plain;
impl Rules for Plain {}

fn resource(namespaced: bool) -> Resource {
    Resource {
        group: "batch",
        version: "v1",
        kind: "Job",
        plural: "jobs",
        singular: "job",
        short_names: &[],
        categories: &[],
        namespaced,
        verbs: &[],
        subresources: &[],
        storage: "jobs",
        create_on_update: false,
        orphans_by_default: false,
        delete_returns_object: false,
        rules: &Plain,
    }
}

fn texts(errors: Vec<tally_api::field::FieldError>) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// A valid object with this merged into its metadata; `null` removes a field.
fn object(change: Value) -> Value {
    let mut meta = json!({"name": "a", "namespace": "n"});
    for (key, value) in change.as_object().unwrap() {
        meta[key] = value.clone();
    }
    json!({"metadata": meta})
}

#[track_caller]
fn check_create(change: Value, expected: &[&str]) {
    let errors = texts(meta::validate_create(&resource(true), &object(change)));
    assert_eq!(errors.len(), expected.len(), "{errors:#?}");
    for (error, expected) in errors.iter().zip(expected) {
        assert!(error.starts_with(expected), "{error}\nshould begin\n{expected}");
    }
}

#[test]
fn create_specval_1_names() {
    check_create(json!({}), &[]);
    check_create(json!({"name": null}), &["metadata.name: Required value: name or generateName is required"]);
    check_create(json!({"name": "A"}), &[r#"metadata.name: Invalid value: "A": a lowercase RFC 1123 subdomain"#]);
    check_create(json!({"generateName": "gen-"}), &[]);
    check_create(json!({"generateName": "Bad_"}), &[r#"metadata.generateName: Invalid value: "Bad_": a lowercase"#]);
    check_create(json!({"namespace": ""}), &["metadata.namespace: Required value"]);
    check_create(json!({"namespace": "a.b"}), &[r#"metadata.namespace: Invalid value: "a.b": must not contain dots"#]);
    check_create(json!({"generation": 9}), &[]);
    check_create(json!({"generation": -1}), &["metadata.generation: Invalid value: -1: must be greater than or equal"]);
    let cluster = texts(meta::validate_create(&resource(false), &object(json!({}))));
    assert_eq!(cluster, ["metadata.namespace: Forbidden: not allowed on this type"]);
}

#[test]
fn create_specval_1_labels_annotations_finalizers() {
    check_create(
        json!({"labels": {"bad key": "bad value!"}, "annotations": {"bad key": "any thing"}}),
        &[
            r#"metadata.labels: Invalid value: "bad key": name part must consist"#,
            r#"metadata.labels: Invalid value: "bad value!": a valid label must be"#,
            r#"metadata.annotations: Invalid value: "bad key": name part must consist"#,
        ],
    );
    check_create(json!({"finalizers": ["x.io/a", "orphan", "kubernetes"]}), &[]);
    check_create(
        json!({"finalizers": ["x.io/a", "plain"]}),
        &[
            r#"metadata.finalizers[1]: Invalid value: "plain": name is neither a standard finalizer name nor is it fully qualified"#,
        ],
    );
    check_create(
        json!({"finalizers": ["bad name/x y"]}),
        &[
            r#"metadata.finalizers: Invalid value: "bad name/x y": prefix part a lowercase"#,
            r#"metadata.finalizers: Invalid value: "bad name/x y": name part must consist"#,
        ],
    );
    check_create(
        json!({"finalizers": ["orphan", "foregroundDeletion"]}),
        &[
            r#"metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and foregroundDeletion cannot be both set"#,
        ],
    );
}

fn owner(change: Value) -> Value {
    let mut owner = json!({"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "u"});
    for (key, value) in change.as_object().unwrap() {
        owner[key] = value.clone();
    }
    owner
}

#[test]
fn create_api_17_owner_references() {
    check_create(json!({"ownerReferences": [owner(json!({"controller": true})), owner(json!({"uid": "v"}))]}), &[]);
    check_create(
        json!({"ownerReferences": [{"apiVersion": "", "kind": "", "name": "", "uid": ""}]}),
        &[
            r#"metadata.ownerReferences.apiVersion: Invalid value: "": version must not be empty"#,
            r#"metadata.ownerReferences.kind: Invalid value: "": must not be empty"#,
            r#"metadata.ownerReferences.name: Invalid value: "": must not be empty"#,
            r#"metadata.ownerReferences.uid: Invalid value: "": must not be empty"#,
        ],
    );
    for bad in ["a/b/c", "apps/", "/"] {
        let expected =
            format!(r#"metadata.ownerReferences.apiVersion: Invalid value: "{bad}": version must not be empty"#);
        check_create(json!({"ownerReferences": [owner(json!({"apiVersion": bad}))]}), &[&expected]);
    }
    check_create(
        json!({"ownerReferences": [owner(json!({"apiVersion": "v1", "kind": "Event"}))]}),
        &[
            r#"metadata.ownerReferences: Invalid value: {"apiVersion":"v1","kind":"Event","name":"c","uid":"u"}: /v1, Kind=Event is disallowed from being an owner"#,
        ],
    );
    check_create(
        json!({"ownerReferences": [
            owner(json!({"controller": true, "blockOwnerDeletion": false})), owner(json!({"controller": true, "name": "d"})),
        ]}),
        &[
            r#"metadata.ownerReferences: Invalid value: [{"apiVersion":"batch/v1","kind":"CronJob","name":"c","uid":"u","controller":true,"blockOwnerDeletion":false},{"apiVersion":"batch/v1","kind":"CronJob","name":"d","uid":"u","controller":true}]: Only one reference can have Controller set to true. Found "true" in references for CronJob/c and CronJob/d"#,
        ],
    );
}

/// Merges `sent` into the metadata of a stored object, as a patch does, and writes the result.
fn update(stored: Value, sent: Value) -> (Value, Vec<String>) {
    let mut old = object(json!({"uid": "u", "creationTimestamp": "2024-01-01T00:00:00Z", "resourceVersion": "5"}));
    for (key, value) in stored.as_object().unwrap() {
        old["metadata"][key] = value.clone();
    }
    let mut new = old.clone();
    for (key, value) in sent.as_object().unwrap() {
        let meta = new["metadata"].as_object_mut().unwrap();
        if value.is_null() {
            meta.remove(key)
        } else {
            meta.insert(key.clone(), value.clone())
        };
    }
    meta::prepare_update(&mut new, &old);
    let errors = texts(meta::validate_update(&resource(true), &new, &old));
    (new["metadata"].clone(), errors)
}

#[test]
fn update_puts_back_what_clients_do_not_mean() {
    let deleting =
        json!({"deletionTimestamp": "2024-02-02T00:00:00Z", "deletionGracePeriodSeconds": 30, "generation": 2});
    let (untouched, _) = update(deleting.clone(), json!({}));
    for sent in [
        json!({"creationTimestamp": null}),
        json!({"creationTimestamp": "2020-01-01T00:00:00Z"}),
        json!({"uid": null}),
        json!({"uid": ""}),
        json!({"generation": 7}),
        json!({"generation": null}),
        json!({"selfLink": "/x"}),
        json!({"deletionTimestamp": null, "deletionGracePeriodSeconds": null}),
        json!({"deletionTimestamp": "2020-01-01T00:00:00Z"}),
    ] {
        let (meta, errors) = update(deleting.clone(), sent.clone());
        assert_eq!((meta, errors), (untouched.clone(), vec![]), "{sent}");
    }
}

#[test]
fn update_refuses_what_never_changes() {
    let deleting = json!({"deletionTimestamp": "2024-02-02T00:00:00Z", "deletionGracePeriodSeconds": 30,
        "finalizers": ["x.io/a", "x.io/b"]});
    let rows = [
        (json!({}), json!({"uid": "v"}), r#"metadata.uid: Invalid value: "v": field is immutable"#),
        (json!({}), json!({"name": "b"}), r#"metadata.name: Invalid value: "b": field is immutable"#),
        (json!({}), json!({"namespace": "b"}), r#"metadata.namespace: Invalid value: "b": field is immutable"#),
        (
            json!({}),
            json!({"resourceVersion": null}),
            r#"metadata.resourceVersion: Invalid value: "": must be specified for an update"#,
        ),
        (
            json!({}),
            json!({"deletionTimestamp": "2024-02-02T00:00:00Z"}),
            r#"metadata.deletionTimestamp: Invalid value: "2024-02-02T00:00:00Z": field is immutable"#,
        ),
        (
            deleting.clone(),
            json!({"deletionGracePeriodSeconds": 1}),
            "metadata.deletionGracePeriodSeconds: Invalid value: 1: field is immutable",
        ),
        (
            deleting.clone(),
            json!({"finalizers": ["x.io/z", "x.io/a", "x.io/c", "x.io/c"]}),
            r#"metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"x.io/c", "x.io/z"}"#,
        ),
        (
            json!({}),
            json!({"finalizers": ["x.io/a b"]}),
            r#"metadata.finalizers: Invalid value: "x.io/a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
        ),
        (
            json!({}),
            json!({"finalizers": ["foregroundDeletion", "orphan"]}),
            r#"metadata.finalizers: Invalid value: ["foregroundDeletion","orphan"]: finalizer orphan and foregroundDeletion cannot be both set"#,
        ),
        (
            json!({}),
            json!({"finalizers": ["plain"]}),
            r#"metadata.finalizers[0]: Invalid value: "plain": name is neither a standard finalizer name nor is it fully qualified"#,
        ),
    ];
    for (stored, sent, expected) in rows {
        assert_eq!(update(stored, sent).1, [expected]);
    }
    // Errors of the new values come before errors about immutable fields, and domains of finalizers last.
    let sent = json!({"uid": "v", "labels": {"b d": ""}, "annotations": {"b d": ""}, "finalizers": ["p", "x.io/a b"],
        "ownerReferences": [owner(json!({"name": ""}))]});
    let fields: Vec<String> =
        update(json!({}), sent).1.iter().map(|it| it.split(':').next().unwrap().to_owned()).collect();
    let expected = ["labels", "annotations", "ownerReferences.name", "finalizers", "uid", "finalizers[0]"];
    assert_eq!(fields, expected.map(|field| format!("metadata.{field}")));
    // Finalizers may be removed and reordered.
    assert_eq!(update(deleting, json!({"finalizers": ["x.io/b"]})).1, Vec::<String>::new());
    assert_eq!(update(json!({}), json!({"finalizers": ["x.io/new"]})).1, Vec::<String>::new());
}

#[test]
fn what_is_told_of_long_lists_has_an_end() {
    let controllers: Vec<Value> =
        (0..1000).map(|at| owner(json!({"uid": at.to_string(), "controller": true}))).collect();
    let errors = meta::validate_create(&resource(true), &object(json!({"ownerReferences": controllers})));
    assert_eq!(errors.len(), 10);
}

#[test]
fn equal_owner_references_are_folded_with_a_warning() {
    let mut object = json!({"metadata": {"ownerReferences": [
        owner(json!({})), owner(json!({"uid": "v"})), owner(json!({})), owner(json!({"name": "d"})),
    ]}});
    let warnings = meta::dedupe_owner_references(&mut object);
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].ends_with("duplicate UID(s) observed: u"), "{warnings:?}");
    assert_eq!(object["metadata"]["ownerReferences"].as_array().unwrap().len(), 3);
    assert_eq!(meta::dedupe_owner_references(&mut object), Vec::<String>::new());
}

#[test]
fn generated_names_fit_into_a_label() {
    assert_eq!(meta::generated_name("gen-", "abcde"), "gen-abcde");
    assert_eq!(meta::generated_name(&"g".repeat(58), "abcde").len(), 63);
    assert_eq!(meta::generated_name(&"g".repeat(59), "abcde").len(), 63);
    assert_eq!(meta::generated_name(&"é".repeat(40), "abcde"), format!("{}abcde", "é".repeat(29)));
}

#[test]
fn objects_of_any_shape_do_no_harm() {
    for mut odd in [json!(null), json!([]), json!({"metadata": 1}), json!({"metadata": {"ownerReferences": [1, null]}})]
    {
        meta::prepare_create(&mut odd);
        let old = odd.clone();
        meta::prepare_update(&mut odd, &old);
        meta::dedupe_owner_references(&mut odd);
        assert!(!meta::validate_create(&resource(true), &odd).is_empty());
        assert!(!meta::validate_update(&resource(true), &odd, &old).is_empty());
    }
}
