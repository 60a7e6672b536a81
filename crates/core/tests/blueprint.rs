//! The shape of created Pods, rule by rule (CREATE-1 to 6).

use tally_core::blueprint::{BlueprintError, NewPod, generate_name, pod_body, pod_body_on};
use tally_core::job::JobView;
use tally_value::{Value, json};

const UID: &str = "3b241101-e2bb-4255-8caf-4136c566a962";

fn job(template: &str) -> JobView {
    let text = format!(
        r#"{{"metadata":{{"uid":"{UID}","namespace":"ns","name":"job","resourceVersion":"1"}},"spec":{{"template":{template}}}}}"#
    );
    JobView::from_json(text.as_bytes()).unwrap()
}

fn plain() -> NewPod {
    NewPod { name: "job-bcdfg".into(), index: None, failure_count: None, ignored_failure_count: 0 }
}

fn indexed(index: u32) -> NewPod {
    NewPod { name: format!("job-{index}-bcdfg").into(), index: Some(index), ..plain() }
}

#[track_caller]
fn body(template: &Value, pod: &NewPod) -> Value {
    pod_body(&job(&template.to_string()), pod, false).unwrap()
}

/// Checks one part of the body; `null` means that it must be absent.
#[track_caller]
fn check(template: &Value, pod: &NewPod, pointer: &str, expected: &Value) {
    let body = body(template, pod);
    assert_eq!(body.pointer(pointer).unwrap_or(&Value::Null), expected, "{pointer} of {body:#}");
}

#[test]
fn a_whole_body_of_a_plain_pod() {
    let template = json!({
        "metadata": {"labels": {"job-name": "job"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"},
    });
    let expected = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "job-",
            "name": "job-bcdfg",
            "namespace": "ns",
            "labels": {"job-name": "job"},
            "finalizers": ["batch.kubernetes.io/job-tracking"],
            "ownerReferences": [{
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "job",
                "uid": UID,
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"},
        "status": {},
    });
    assert_eq!(body(&template, &plain()), expected);
}

#[test]
fn create_1_prefix_of_names() {
    let n = |count: usize| "n".repeat(count);
    for (job, index, expected) in [
        ("a".to_owned(), None, "a-".to_owned()),
        ("a.b-c.9".to_owned(), None, "a.b-c.9-".to_owned()),
        ("a_b".to_owned(), None, "a_b".to_owned()),
        (n(70), None, format!("{}-", n(70))),
        (n(252), None, format!("{}-", n(252))),
        (n(253), None, n(253)),
        ("a.".to_owned(), None, "a.".to_owned()),
        ("-a".to_owned(), None, "-a".to_owned()),
        ("A".to_owned(), None, "A".to_owned()),
        ("a".to_owned(), Some(0), "a-0-".to_owned()),
        // VEC-35, and one below, at and one above the limit.
        (n(70), Some(1), format!("{}-1-", n(55))),
        (n(54), Some(1), format!("{}-1-", n(54))),
        (n(55), Some(1), format!("{}-1-", n(55))),
        (n(56), Some(1), format!("{}-1-", n(55))),
        (n(63), Some(2_147_483_647), format!("{}-2147483647-", n(46))),
        ("é".repeat(40), Some(1), format!("{}-1-", "é".repeat(27))),
    ] {
        let prefix = generate_name(&job, index);
        assert_eq!(prefix, expected);
        assert!(index.is_none() || prefix.len() <= 58, "{prefix}");
    }
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {}});
    check(&template, &plain(), "/metadata/generateName", &json!("job-"));
    check(&template, &plain(), "/metadata/name", &json!("job-bcdfg"));
    check(&template, &indexed(3), "/metadata/generateName", &json!("job-3-"));
    check(&template, &indexed(3), "/metadata/name", &json!("job-3-bcdfg"));
}

#[test]
fn create_2_metadata_comes_from_the_template_and_the_owner_from_the_job() {
    let template = json!({
        "metadata": {
            "labels": {"x": "y"},
            "annotations": {"n": "m"},
            "finalizers": ["example.com/a"],
            "name": "ignored",
            "creationTimestamp": null,
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "1"}],
        },
        "spec": {},
    });
    check(&template, &plain(), "/metadata/labels", &json!({"x": "y"}));
    check(&template, &plain(), "/metadata/annotations", &json!({"n": "m"}));
    check(&template, &plain(), "/metadata/finalizers", &json!(["example.com/a", "batch.kubernetes.io/job-tracking"]));
    check(&template, &plain(), "/metadata/name", &json!("job-bcdfg"));
    check(&template, &plain(), "/metadata/creationTimestamp", &Value::Null);
    check(&template, &plain(), "/metadata/ownerReferences/0/uid", &json!(UID));
    check(&template, &plain(), "/metadata/ownerReferences/1", &Value::Null);
    // The finalizer is not added twice, however it is spelt.
    for spelling in ["batch.kubernetes.io/job-tracking", r"batch.kubernetes.io\/job-tracking"] {
        let template = format!(r#"{{"metadata":{{"labels":{{"x":"y"}},"finalizers":["{spelling}"]}},"spec":{{}}}}"#);
        let body = pod_body(&job(&template), &plain(), false).unwrap();
        assert_eq!(body["metadata"]["finalizers"], json!(["batch.kubernetes.io/job-tracking"]));
    }
}

#[test]
fn create_2_without_labels_there_is_no_pod() {
    for template in [
        json!({}),
        json!({"metadata": null, "spec": {}}),
        json!({"metadata": {"labels": null}, "spec": {}}),
        json!({"metadata": {"labels": {}}, "spec": {}}),
    ] {
        let job = job(&template.to_string());
        let error = pod_body(&job, &plain(), false).unwrap_err();
        assert_eq!(error, BlueprintError::NoLabels);
        assert_eq!(error.to_string(), "unable to create pods, no labels");
        // The index is a label.
        assert!(pod_body(&job, &indexed(0), false).is_ok());
    }
}

#[test]
fn create_3_spec_is_copied_whatever_is_in_it() {
    let spec = r#"{"containers":[{"name":"c","new":[1.5,18446744073709551615,-9223372036854775808,"é"]}],"unknown":{"deep":[{"x":null}]}}"#;
    let job = job(&format!(r#"{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{spec}}}"#));
    assert_eq!(pod_body(&job, &plain(), false).unwrap()["spec"].to_string(), spec);
    let body = pod_body(&job, &indexed(0), false).unwrap().to_string();
    for part in [r#""new":[1.5,18446744073709551615,-9223372036854775808,"é"]"#, r#""unknown":{"deep":[{"x":null}]}"#]
    {
        assert!(body.contains(part), "{part} in {body}");
    }
}

#[test]
fn create_4_pods_of_indexed_jobs_know_their_index() {
    let variable = json!({
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']"}},
    });
    let own = json!({"name": "JOB_COMPLETION_INDEX", "value": "mine"});
    let other = json!({"name": "X", "value": "1"});
    let template = json!({
        "metadata": {
            "labels": {"x": "y", "batch.kubernetes.io/job-completion-index": "7"},
            "annotations": {"batch.kubernetes.io/job-completion-index": "7"},
        },
        "spec": {
            "hostname": "mine",
            "initContainers": [{"name": "i"}, {"name": "own", "env": [own]}],
            "containers": [{"name": "c", "env": [other]}, {"name": "d", "env": null}],
        },
    });
    let pod = indexed(3);
    let key = "batch.kubernetes.io~1job-completion-index";
    check(&template, &pod, &format!("/metadata/annotations/{key}"), &json!("3"));
    check(&template, &pod, &format!("/metadata/labels/{key}"), &json!("3"));
    check(&template, &pod, "/metadata/labels/x", &json!("y"));
    check(&template, &pod, "/spec/hostname", &json!("job-3"));
    check(&template, &pod, "/spec/initContainers/0", &json!({"name": "i", "env": [variable]}));
    check(&template, &pod, "/spec/initContainers/1", &json!({"name": "own", "env": [own]}));
    check(&template, &pod, "/spec/containers/0", &json!({"name": "c", "env": [other, variable]}));
    check(&template, &pod, "/spec/containers/1", &json!({"name": "d", "env": [variable]}));
    let bare = json!({"metadata": {"labels": {"x": "y"}}, "spec": {"initContainers": null}});
    check(&bare, &pod, "/spec", &json!({"hostname": "job-3", "initContainers": []}));
    check(&bare, &pod, "/metadata/annotations", &json!({"batch.kubernetes.io/job-completion-index": "3"}));
}

#[test]
fn create_5_failures_of_an_index_are_carried_on() {
    let template = json!({"metadata": {"labels": {"x": "y"}}, "spec": {}});
    let index = "batch.kubernetes.io/job-completion-index";
    let failures = "batch.kubernetes.io/job-index-failure-count";
    let ignored = "batch.kubernetes.io/job-index-ignored-failure-count";
    for (failure_count, ignored_failure_count, expected) in [
        (None, 0, json!({index: "0"})),
        (Some(0), 0, json!({index: "0", failures: "0"})),
        (Some(2), 0, json!({index: "0", failures: "2"})),
        (Some(2), 1, json!({index: "0", failures: "2", ignored: "1"})),
        // Only a Job that limits each index has these annotations.
        (None, 1, json!({index: "0"})),
    ] {
        let pod = NewPod { failure_count, ignored_failure_count, ..indexed(0) };
        check(&template, &pod, "/metadata/annotations", &expected);
    }
}

#[test]
fn create_6_other_pods_get_nothing_of_that() {
    let template = json!({
        "metadata": {"labels": {"x": "y"}},
        "spec": {"containers": [{"name": "c"}], "initContainers": [{"name": "i"}]},
    });
    let body = body(&template, &plain());
    assert_eq!(body["spec"], template["spec"]);
    assert_eq!(body["metadata"]["labels"], json!({"x": "y"}));
    assert_eq!(body["metadata"].get("annotations"), None);
}

/// TTL-23: after the gates of the template, once, and not beside a node.
#[test]
fn a_pod_behind_a_start_gate_has_it_after_those_of_its_template() {
    let own = json!({"name": "tally.dev/counted-once"});
    let other = json!({"name": "example.com/g"});
    for (spec, gates) in [
        (json!({}), json!([own])),
        (json!({"schedulingGates": null, "nodeName": ""}), json!([own])),
        (json!({"schedulingGates": [other], "nodeName": null}), json!([other, own])),
        (json!({"schedulingGates": [own, other]}), json!([other, own])),
        (json!({"nodeName": "n"}), Value::Null),
        (json!({"nodeName": "n", "schedulingGates": [other]}), json!([other])),
    ] {
        let template = json!({"metadata": {"labels": {"x": "y"}}, "spec": spec});
        for pod in [plain(), indexed(0)] {
            let body = pod_body(&job(&template.to_string()), &pod, true).unwrap();
            assert_eq!(body["spec"]["schedulingGates"], gates, "{template}");
            let without = pod_body(&job(&template.to_string()), &pod, false).unwrap();
            assert_eq!(without["spec"]["schedulingGates"], spec["schedulingGates"], "{template}");
        }
    }
}

/// CREATE-8: whatever a scheduler might read is left to it.
#[test]
fn a_pod_that_asks_nothing_of_its_node_is_created_on_the_only_one() {
    let with = |field: &str, value: Value| {
        let mut spec = json!({
            "containers": [{"name": "c", "command": ["true"], "resources": {}}], "dnsPolicy": "ClusterFirst",
            "restartPolicy": "Never", "schedulerName": "default-scheduler", "securityContext": {},
            "terminationGracePeriodSeconds": 30,
        });
        spec[field] = value;
        spec
    };
    let container = |field: &str, value: Value| with("containers", json!([{"name": "d"}, {"name": "c", field: value}]));
    let volume = |source: &str| with("volumes", json!([{"name": "w", "emptyDir": {}}, {"name": "v", source: {}}]));
    for (spec, expected) in [
        (json!({}), true),
        (with("activeDeadlineSeconds", json!(5)), true),
        (with("initContainers", json!([{"name": "i"}])), true),
        (container("env", json!([{"name": "A", "value": "b"}])), true),
        (container("ports", json!([])), true),
        (container("resources", json!({"limits": {}, "requests": null})), true),
        (volume("configMap"), true),
        (volume("projected"), true),
        (with("initContainers", json!([{"name": "i", "resources": {"requests": {"cpu": "1"}}}])), false),
        (container("resources", json!({"limits": {"memory": "1Gi"}})), false),
        (container("resources", json!({"claims": [{"name": "gpu"}]})), false),
        (container("ports", json!([{"containerPort": 80, "hostPort": 80}])), false),
        (volume("persistentVolumeClaim"), false),
        (volume("ephemeral"), false),
        (volume("hostPath"), false),
        (with("nodeSelector", json!({"a": "b"})), false),
        (with("affinity", json!({})), false),
        (with("tolerations", json!([])), false),
        (with("topologySpreadConstraints", json!([])), false),
        (with("schedulingGates", json!([{"name": "g"}])), false),
        (with("schedulerName", json!("another")), false),
        (with("nodeName", json!("another")), false),
        (with("overhead", json!({"cpu": "1"})), false),
        (with("containers", json!(7)), false),
    ] {
        let template = json!({"metadata": {"labels": {"x": "y"}}, "spec": spec}).to_string();
        let node = "n".into();
        let placed = pod_body_on(&job(&template), &plain(), false, Some(&node)).unwrap();
        let plainly = pod_body(&job(&template), &plain(), false).unwrap();
        let mut on_node = plainly.clone();
        on_node["spec"]["nodeName"] = "n".into();
        assert_eq!(placed, if expected { on_node } else { plainly }, "{template}");
        let gated = pod_body_on(&job(&template), &plain(), true, Some(&node)).unwrap();
        assert_eq!(gated, pod_body(&job(&template), &plain(), true).unwrap(), "the API refuses a gate beside a node");
    }
}

#[test]
fn a_template_that_makes_no_sense_is_refused_with_its_field() {
    for (template, field) in [
        (r#"{"metadata":5,"spec":{}}"#, "spec.template.metadata"),
        (r#"{"metadata":{"labels":["a"]},"spec":{}}"#, "spec.template.metadata.labels"),
        (r#"{"metadata":{"finalizers":{"a":1}},"spec":{}}"#, "spec.template.metadata.finalizers"),
        (r#"{"metadata":{"labels":{"a":"b"},"finalizers":[null]},"spec":{}}"#, "spec.template.metadata.finalizers"),
        (r#"{"metadata":{"annotations":"a"},"spec":{}}"#, "spec.template.metadata.annotations"),
        (r#"{"spec":{"containers":{"a":1}}}"#, "spec.template.spec.containers"),
        (r#"{"spec":{"containers":["a"]}}"#, "spec.template.spec.containers"),
        (r#"{"spec":{"initContainers":[{"env":7}]}}"#, "spec.template.spec.initContainers"),
        (r#"{"spec":{"initContainers":[{"env":[7]}]}}"#, "spec.template.spec.initContainers"),
    ] {
        let error = pod_body(&job(template), &indexed(0), false).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot read {field} of the Job: ")), "{template}: {error}");
    }
}

#[test]
fn a_key_given_twice_means_the_later_one_and_escaped_keys_are_read() {
    let template = r#"{"metadata":{"lab\u0065ls":{"x":"y"},"labels":{"x":"1","x":"2"}},"spec":{}}"#;
    let body = pod_body(&job(template), &plain(), false).unwrap();
    assert_eq!(body["metadata"]["labels"], json!({"x": "2"}));
}

/// No API server stores one.
#[test]
fn a_template_that_is_too_deep_is_refused_with_words() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let job = job(&format!(r#"{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"containers":[{{"x":{deep}}}]}}}}"#));
    let error = pod_body(&job, &plain(), false).unwrap_err().to_string();
    assert!(error.starts_with("cannot read spec.template of the Job: recursion limit exceeded"), "{error}");
}
