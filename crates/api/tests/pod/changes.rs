//! The result of creating a Pod, its allowed changes, and the other operations on it.

use tally_api::field::At;
use tally_api::kinds::{AdmissionError, ClusterObjects, Part, Rules};
use tally_api::pod::{self, PodRules};
use tally_core::time::Timestamp;
use tally_value::{Value, json};

use super::{NOW, compare, created, merge, received, texts, written};

#[test]
fn templates_leave_more_open_than_pods() {
    let mut template = json!({
        "metadata": { "labels": { "a": "b c" } },
        "spec": { "containers": [{ "name": "c", "image": " i ", "ports": [{ "containerPort": 80, "protocol": "TCP" }] }],
                  "hostNetwork": true, "terminationGracePeriodSeconds": -1 },
    });
    pod::default_template(&mut template);
    assert_eq!(template["spec"].get("enableServiceLinks"), None);
    assert_eq!(template["spec"]["containers"][0]["ports"][0].get("hostPort"), None);
    let told = texts(&pod::validate_template(&At::rooted("spec.template", Some(&template))));
    compare(&told, &["spec.template.labels: Invalid value: \"b c\": a valid label must be..."], &template);
    let told = pod::template_warnings(&At::rooted("spec.template", Some(&template)));
    let grace = "spec.template.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1";
    assert_eq!(told, [grace]);
}

#[test]
fn the_server_decides_status_class_and_tolerations() {
    for (resources, class) in [
        (json!({}), "BestEffort"),
        (json!({ "limits": { "cpu": "1", "memory": "1Gi" } }), "Guaranteed"),
        (json!({ "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "500m" } }), "Burstable"),
        (json!({ "requests": { "cpu": "500m" } }), "Burstable"),
        (json!({ "limits": { "ephemeral-storage": "1Gi" } }), "BestEffort"),
    ] {
        let pod = created(json!({ "containers": [{ "name": "c", "image": "i", "resources": resources }] }));
        assert_eq!(pod["status"], json!({ "phase": "Pending", "qosClass": class }), "{resources}");
    }
    let mut pod = received(&written(
        json!({ "containers": [{ "name": "c", "image": "i", "resources": { "limits": { "cpu": "0.0001" } } }] }),
    ));
    assert_eq!(
        pod["spec"]["containers"][0]["resources"],
        json!({ "limits": { "cpu": "1m" }, "requests": { "cpu": "1m" } })
    );
    let probe = json!({ "grpc": { "port": 1 } });
    pod = received(&written(json!({
        "containers": [{ "name": "c", "image": "i", "startupProbe": probe, "resources": { "requests": { "cpu": "1" } } }],
        "resources": { "limits": { "cpu": "2", "memory": "1Gi" } },
    })));
    assert_eq!(pod["spec"]["containers"][0]["startupProbe"]["grpc"]["service"], "");
    let requests = json!({ "cpu": "1", "memory": "1Gi" });
    assert_eq!(pod["spec"]["resources"]["requests"], requests, "of the containers together, else the limit");
    let again = pod.clone();
    PodRules.default(&mut pod);
    assert_eq!(pod, again, "filling in twice changes nothing");
    let pod = created(
        json!({ "tolerations": [{ "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute" }] }),
    );
    let keys: Vec<&Value> = pod["spec"]["tolerations"].as_array().unwrap().iter().map(|it| &it["key"]).collect();
    assert_eq!(keys, ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"]);
}

#[test]
fn label_keys_take_the_pods_labels() {
    let constraint = json!({ "maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["app", "none"], "labelSelector": {} });
    let mut body = written(json!({ "topologySpreadConstraints": [constraint] }));
    body["metadata"]["labels"] = json!({ "app": "x" });
    let mut pod = received(&body);
    PodRules.prepare_create(&mut pod, NOW);
    let expressions = &pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"];
    assert_eq!(*expressions, json!([{ "key": "app", "operator": "In", "values": ["x"] }]));
    assert_eq!(texts(&PodRules.validate_create(&pod)), [""; 0]);
}

/// The errors for a change of a stored Pod's spec, and the generation afterwards.
fn check_change(stored: Value, spec: Value, told: &[&str], generation: i64) {
    let old = created(stored);
    let mut new = old.clone();
    merge(&mut new["spec"], spec.clone());
    PodRules.default(&mut new);
    PodRules.prepare_update(&mut new, &old, Part::Main);
    compare(&texts(&PodRules.validate_update(&new, &old, Part::Main)), told, &spec);
    assert_eq!(new["metadata"]["generation"], generation, "{spec}");
}

#[test]
fn almost_all_of_a_spec_is_settled() {
    const SETTLED: &str = "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,\
         `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
         tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n...";
    let gated = || json!({ "schedulingGates": [{ "name": "g" }], "nodeSelector": { "a": "b" } });
    check_change(json!({}), json!({}), &[], 1);
    check_change(
        json!({}),
        json!({ "containers": [{ "name": "c", "image": "other", "imagePullPolicy": "Always" }] }),
        &[],
        2,
    );
    check_change(json!({}), json!({ "containers": [{ "name": "d", "image": "i" }] }), &[SETTLED], 2);
    check_change(json!({}), json!({ "restartPolicy": "Never" }), &[SETTLED], 2);
    check_change(
        json!({}),
        json!({ "tolerations": [{ "operator": "Exists" }] }),
        &["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"],
        2,
    );
    check_change(json!({}), json!({ "tolerations": [] }), &[], 1);
    check_change(
        json!({ "activeDeadlineSeconds": 5 }),
        json!({ "activeDeadlineSeconds": null }),
        &["spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value"],
        2,
    );
    check_change(json!({ "terminationGracePeriodSeconds": -5 }), json!({ "terminationGracePeriodSeconds": 1 }), &[], 2);
    check_change(
        json!({ "terminationGracePeriodSeconds": 5 }),
        json!({ "terminationGracePeriodSeconds": 1 }),
        &[SETTLED],
        2,
    );
    check_change(gated(), json!({ "nodeSelector": { "a": "b", "c": "d" } }), &[], 2);
    check_change(
        gated(),
        json!({ "nodeSelector": { "c": "d" } }),
        &[
            "spec.nodeSelector: Invalid value: {\"c\":\"d\"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)",
        ],
        2,
    );
    check_change(gated(), json!({ "schedulingGates": [] }), &[], 2);
    check_change(
        gated(),
        json!({ "schedulingGates": [{ "name": "h" }] }),
        &["spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'h'"],
        2,
    );
    let required = |terms: Value| json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } });
    let term = |keys: &[&str]| {
        let expressions: Vec<Value> = keys.iter().map(|key| json!({ "key": key, "operator": "Exists" })).collect();
        json!({ "matchExpressions": expressions })
    };
    check_change(gated(), json!({ "affinity": required(json!([term(&["a"])])) }), &[], 2);
    let mut with_term = gated();
    with_term["affinity"] = required(json!([term(&["a"])]));
    check_change(with_term.clone(), json!({ "affinity": required(json!([term(&["a", "b"])])) }), &[], 2);
    check_change(
        with_term.clone(),
        json!({ "affinity": required(json!([term(&["a"]), term(&["b"])])) }),
        &[
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Invalid value: ...",
        ],
        2,
    );
    check_change(
        with_term,
        json!({ "affinity": required(json!([term(&["b"])])) }),
        &[
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]: Invalid value: ...",
        ],
        2,
    );
}

#[test]
fn a_refused_change_is_shown() {
    let old = created(json!({}));
    let mut new = old.clone();
    new["spec"]["restartPolicy"] = "Never".into();
    let told = texts(&PodRules.validate_update(&new, &old, Part::Main)).join("");
    let difference: Vec<&str> = told.lines().filter(|line| line.starts_with(['+', '-'])).collect();
    assert_eq!(difference, ["- \"restartPolicy\": \"Always\",", "+ \"restartPolicy\": \"Never\","]);
}

#[test]
fn amounts_that_mean_the_same_are_no_change() {
    let with = |memory: &str| json!({ "containers": [{ "name": "c", "image": "i", "resources": { "limits": { "memory": memory } } }] });
    let (old, mut new) = (created(with("1Gi")), created(with("1073741824")));
    PodRules.prepare_update(&mut new, &old, Part::Main);
    assert_eq!(
        (&new["metadata"]["generation"], texts(&PodRules.validate_update(&new, &old, Part::Main))),
        (&json!(1), vec![])
    );
}

/// The errors for a new status, on a Pod that never restarts and ran on node `n` with status `stored`.
fn check_status(stored: Value, status: Value, told: &[&str]) {
    let mut old = created(json!({ "restartPolicy": "Never", "nodeName": "n" }));
    merge(&mut old["status"], stored);
    let mut new = old.clone();
    merge(&mut new["status"], status.clone());
    PodRules.default(&mut new);
    PodRules.prepare_update(&mut new, &old, Part::Status);
    compare(&texts(&PodRules.validate_update(&new, &old, Part::Status)), told, &status);
}

#[test]
fn what_a_status_may_not_say() {
    let ended =
        |code: i64| json!({ "containerStatuses": [{ "name": "c", "state": { "terminated": { "exitCode": code } } }] });
    let running = json!({ "containerStatuses": [{ "name": "c", "state": { "running": {} } }] });
    check_status(json!({}), ended(1), &[]);
    check_status(running.clone(), ended(0), &[]);
    check_status(
        ended(0),
        running,
        &["status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"],
    );
    check_status(
        json!({}),
        json!({ "qosClass": "Guaranteed" }),
        &["status.qosClass: Invalid value: \"Guaranteed\": field is immutable"],
    );
    check_status(
        json!({}),
        json!({ "conditions": [{ "type": "a b", "status": "True" }] }),
        &["status.conditions[0].Type: Invalid value: \"a b\": name part must..."],
    );
    check_status(
        json!({}),
        json!({ "nominatedNodeName": "m" }),
        &["status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node"],
    );
    check_status(
        json!({}),
        json!({ "podIPs": [{ "ip": "x" }] }),
        &["status.podIPs[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"],
    );
    check_status(json!({}), json!({ "podIPs": [{ "ip": "1.2.3.4" }, { "ip": "::1" }] }), &[]);
    check_status(
        json!({}),
        json!({ "podIPs": [{ "ip": "1.2.3.4" }, { "ip": "1.2.3.5" }] }),
        &["status.podIPs: Invalid value: ..."],
    );
    check_status(
        json!({}),
        json!({ "hostIP": "1.2.3.4", "hostIPs": [{ "ip": "1.2.3.5" }] }),
        &["status.hostIPs[0].ip: Invalid value: \"1.2.3.5\": must be equal to `hostIP`"],
    );
}

#[test]
fn a_pod_may_be_sent_again_as_it_was_written() {
    let old = created(json!({}));
    let mut new = received(&written(json!({})));
    PodRules.prepare_update(&mut new, &old, Part::Main);
    assert_eq!((&new["spec"], &new["metadata"]["generation"]), (&old["spec"], &json!(1)));
}

#[test]
fn a_status_write_keeps_spec_owners_and_class() {
    let old = created(json!({}));
    let mut new = old.clone();
    new["metadata"]["deletionTimestamp"] = "2024-05-01T10:00:00Z".into();
    new["spec"]["restartPolicy"] = "Never".into();
    new["metadata"]["ownerReferences"] = json!([{ "uid": "u" }]);
    new["metadata"]["labels"] = json!({ "a": "b" });
    new["status"] = json!({ "phase": "Running", "podIP": "1.2.3.4" });
    PodRules.default(&mut new);
    PodRules.prepare_update(&mut new, &old, Part::Status);
    assert_eq!(new["spec"], old["spec"]);
    assert_eq!(new["metadata"]["labels"], json!({ "a": "b" }));
    assert_eq!(new["metadata"].get("ownerReferences"), None);
    assert_eq!(new["metadata"].get("deletionTimestamp"), None);
    let status =
        json!({ "phase": "Running", "podIP": "1.2.3.4", "podIPs": [{ "ip": "1.2.3.4" }], "qosClass": "BestEffort" });
    assert_eq!(new["status"], status);
}

#[test]
fn pods_are_warned_about() {
    let pod = created(json!({
        "nodeSelector": { "beta.kubernetes.io/os": "linux" },
        "imagePullSecrets": [{ "name": "a" }, { "name": "a" }],
        "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule" }],
        "containers": [{ "name": "c", "image": "i", "resources": { "limits": { "memory": "100m" } },
            "env": [{ "name": "A", "value": "1" }, { "name": "A", "value": "$(A)2" }, { "name": "A", "value": "3" }],
            "ports": [{ "containerPort": 80, "name": "w" }, { "containerPort": 80, "name": "w2" }] }],
        "volumes": [{ "name": "g", "gitRepo": { "repository": "r" } },
                    { "name": "m", "configMap": { "name": "x", "items": [{ "key": "a", "path": "p" }, { "key": "b", "path": "p/q" }] } }],
    }));
    assert_eq!(
        PodRules.create_warnings(&pod),
        [
            "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
            "spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
            "spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
            "volume \"m\" (ConfigMap \"x\"): overlapping paths: \"p/q\" with \"p\"",
            "spec.imagePullSecrets[1].name: duplicate name \"a\"",
            "spec.containers[0].resources.limits[memory]: fractional byte value \"100m\" is invalid, must be an integer",
            "spec.containers[0].resources.requests[memory]: fractional byte value \"100m\" is invalid, must be an integer",
            "spec.containers[0].env[2]: hides previous definition of \"A\", which may be dropped when using apply",
            "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
        ]
    );
}

#[test]
fn warnings_about_pairs_have_an_end() {
    let ports: Vec<Value> = (0..2000).map(|_| json!({ "containerPort": 80 })).collect();
    let pod = created(json!({ "containers": [{ "name": "c", "image": "i", "ports": ports }] }));
    assert!((100..2000).contains(&PodRules.create_warnings(&pod).len()));
}

#[test]
fn unknown_claims_are_told_up_to_a_point() {
    let claims: Vec<Value> = (0..1000).map(|at| json!({ "name": format!("c{at}") })).collect();
    let pod = created(json!({ "containers": [{ "name": "c", "image": "i", "resources": { "claims": claims } }] }));
    assert_eq!(PodRules.validate_create(&pod).len(), 10);
}

#[test]
fn a_pod_is_bound_once() {
    let binding =
        json!({ "metadata": { "name": "p", "labels": { "zone": "z" } }, "target": { "kind": "Node", "name": "n" } });
    let mut bound = created(json!({}));
    pod::bind(&mut bound, &binding, NOW).unwrap();
    assert_eq!((&bound["spec"]["nodeName"], &bound["metadata"]["labels"]["zone"]), (&json!("n"), &json!("z")));
    let condition = json!({ "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2024-05-01T10:00:00Z" });
    assert_eq!(bound["status"]["conditions"], json!([condition]));
    assert_eq!(bound["metadata"]["generation"], 1);
    let gated = created(json!({ "schedulingGates": [{ "name": "g" }] }));
    let mut of_another = created(json!({}));
    of_another["metadata"]["uid"] = "one".into();
    let mut for_another = binding.clone();
    for_another["metadata"]["uid"] = "two".into();
    for (mut pod, binding, told) in [
        (
            bound,
            &binding,
            "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\"",
        ),
        (
            gated,
            &binding,
            "Operation cannot be fulfilled on pods/binding \"p\": pod p has non-empty .spec.schedulingGates",
        ),
        (
            of_another,
            &for_another,
            "Operation cannot be fulfilled on pods \"p\": StorageError: invalid object, Code: 4, Key: /registry/pods//p, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: two, UID in object meta: one",
        ),
        (created(json!({})), &json!({ "target": {} }), "target.name: Required value"),
    ] {
        let before = pod.clone();
        assert_eq!(pod::bind(&mut pod, binding, NOW).unwrap_err().message, told);
        assert_eq!(pod, before);
    }
}

#[test]
fn grace_is_for_pods_that_run() {
    for (spec, phase, asked, seconds) in [
        (json!({}), "Pending", Some(60), 0),
        (json!({ "nodeName": "n" }), "Pending", None, 30),
        (json!({ "nodeName": "n" }), "Running", Some(5), 5),
        (json!({ "nodeName": "n" }), "Running", Some(-5), 1),
        (json!({ "nodeName": "n", "terminationGracePeriodSeconds": -1 }), "Running", None, 1),
        (json!({ "nodeName": "n" }), "Succeeded", Some(60), 0),
        (json!({ "nodeName": "n" }), "Failed", None, 0),
    ] {
        let mut pod = created(spec.clone());
        pod["status"]["phase"] = phase.into();
        assert_eq!(PodRules.grace_period(&pod, asked), Some(seconds), "{spec} {phase} {asked:?}");
    }
}

#[test]
fn an_evicted_pod_is_marked_once() {
    let mut pod = created(json!({}));
    pod::add_disruption_target(&mut pod, NOW);
    let marked = pod.clone();
    pod::add_disruption_target(&mut pod, Timestamp::from_seconds(1_800_000_000));
    assert_eq!(pod, marked);
    assert_eq!(pod["status"]["conditions"][0]["reason"], "EvictionByEvictionAPI");
}

#[test]
fn priority_comes_from_the_class_and_the_service_account_exists() {
    struct OneOfEach;
    impl ClusterObjects for OneOfEach {
        fn priority_class(&self, name: &str) -> Option<Value> {
            (name == "high").then(|| json!({ "metadata": { "name": "high" }, "value": 7, "preemptionPolicy": "Never" }))
        }

        fn default_priority_class(&self) -> Option<Value> {
            None
        }

        fn has_service_account(&self, namespace: &str, name: &str) -> bool {
            (namespace, name) == ("default", "robot")
        }

        fn provisions_claims(&self) -> bool {
            false
        }
    }
    for (spec, answer) in [
        (json!({}), Ok((0, "PreemptLowerPriority"))),
        (json!({ "priorityClassName": "high" }), Ok((7, "Never"))),
        (json!({ "priorityClassName": "system-node-critical" }), Ok((2_000_001_000, "PreemptLowerPriority"))),
        (json!({ "serviceAccountName": "robot" }), Ok((0, "PreemptLowerPriority"))),
        (json!({ "serviceAccountName": "default" }), Ok((0, "PreemptLowerPriority"))),
        (
            json!({ "serviceAccountName": "other" }),
            Err("error looking up service account default/other: serviceaccount \"other\" not found"),
        ),
        (json!({ "priorityClassName": "none" }), Err("no PriorityClass with name none was found")),
        (
            json!({ "priority": 5 }),
            Err(
                "the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name",
            ),
        ),
    ] {
        let mut pod = received(&written(spec.clone()));
        pod["metadata"]["namespace"] = "default".into();
        let found = PodRules.admit_create(&mut pod, &OneOfEach);
        match answer {
            Err(told) => assert_eq!(found, Err(AdmissionError(told.to_owned()))),
            Ok((priority, policy)) => {
                assert_eq!(found, Ok(()), "{spec}");
                assert_eq!(
                    (&pod["spec"]["priority"], &pod["spec"]["preemptionPolicy"]),
                    (&json!(priority), &json!(policy))
                );
            }
        }
    }
}

/// TRACK-19, whether it has an owner or not: a Pod without one may be adopted. The adoption of a Pod that has not ended adds
/// the finalizer together with the owner.
#[test]
fn the_tracking_finalizer_is_not_put_back_on_a_pod_that_has_ended() {
    const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true}]);
    let cases = [
        ("Succeeded", true, json!([]), false),
        ("Failed", true, json!(["example.com/x"]), false),
        ("Failed", true, json!([FINALIZER]), true),
        ("Running", true, json!([]), true),
        ("Running", false, json!([]), true),
        ("Succeeded", false, json!([]), false),
        ("Failed", false, json!([]), false),
        ("Failed", false, json!([FINALIZER]), true),
    ];
    for (phase, owned, finalizers, allowed) in cases {
        let mut old = created(json!({ "restartPolicy": "Never" }));
        old["status"]["phase"] = phase.into();
        old["metadata"]["finalizers"] = finalizers.clone();
        if owned {
            old["metadata"]["ownerReferences"] = owner.clone();
        }
        let mut new = old.clone();
        new["metadata"]["ownerReferences"] = owner.clone();
        new["metadata"]["finalizers"] = json!([FINALIZER, "example.com/x"]);
        for part in [Part::Main, Part::Status] {
            let told = texts(&PodRules.validate_update(&new, &old, part));
            let refused = told
                .iter()
                .any(|text| text.starts_with("metadata.finalizers: Forbidden: ") && text.contains(FINALIZER));
            assert_eq!(told.len(), usize::from(!allowed), "{phase} {owned} {finalizers}: {told:?}");
            assert_eq!(refused, !allowed, "{phase} {owned} {finalizers}: {told:?}");
        }
    }
}
