//! What may change in an existing Job, and in its status.

use tally_api::kinds::Part;
use tally_value::{Value, json};

use super::{UID, check_update, create, indexed, job, spec, success_rules, update};

#[test]
fn the_generation_counts_changes_of_the_spec() {
    let stored = create(job(json!({}))).unwrap();
    let rows = [
        (Part::Main, json!({"spec": {"parallelism": 2}}), 2),
        (Part::Main, json!({"spec": {"parallelism": 1, "suspend": null}}), 1),
        (Part::Main, json!({"metadata": {"generation": 50, "labels": {"a": "b"}}}), 1),
        (Part::Status, json!({"spec": {"parallelism": 2}, "status": {"active": 1}}), 1),
    ];
    for (part, patch, generation) in rows {
        let updated = update(&stored, part, patch.clone()).unwrap();
        assert_eq!(updated["metadata"]["generation"], generation, "LABEL-6: {patch}");
    }
}

#[test]
fn what_means_the_same_is_no_change() {
    let policy = json!({"podFailurePolicy": {}, "template": {"metadata": {"annotations": {"limits": "none"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"memory": "1Ki"}}}]}}});
    let stored = create(spec(policy)).unwrap();
    let amount = |memory| {
        let resources = json!({"limits": {"memory": memory}});
        let mut containers = stored["spec"]["template"]["spec"]["containers"].clone();
        containers[0]["resources"] = resources;
        json!({"spec": {"podFailurePolicy": {"rules": []}, "template": {"spec": {"containers": containers}}}})
    };
    let updated = update(&stored, Part::Main, amount("1024")).unwrap();
    assert_eq!(updated["metadata"]["generation"], 1, "LABEL-6");
    assert!(update(&stored, Part::Main, amount("1025")).is_err(), "UPD-6");
}

#[test]
fn a_change_of_generate_name_is_looked_at() {
    let stored = create(job(json!({}))).unwrap();
    let errors = update(&stored, Part::Main, json!({"metadata": {"generateName": "Bad_"}})).unwrap_err();
    assert!(
        errors[0].starts_with("metadata.generateName: Invalid value: \"Bad_\": a lowercase RFC 1123"),
        "{errors:?}"
    );
    for (part, prefix) in [(Part::Main, "good-"), (Part::Main, ""), (Part::Status, "Bad_")] {
        assert!(update(&stored, part, json!({"metadata": {"generateName": prefix}})).is_ok(), "{part:?} {prefix}");
    }
}

/// BACKOFF-12.
#[test]
fn how_long_to_wait_before_a_retry_must_be_a_time() {
    let annotated =
        |name: &str, value: &str| json!({"metadata": {"annotations": {(format!("tally.dev/{name}")): value}}});
    for (name, value) in [
        ("backoff-base", "0s"),
        ("backoff-base", "500ms"),
        ("backoff-base", "24h"),
        ("backoff-max", "1m30s"),
        ("backoff-jitter", "0"),
        ("backoff-jitter", "1"),
        ("backoff-other", "soon"),
        ("halt", "now"),
        ("halt", "soon"),
    ] {
        assert!(create(job(annotated(name, value))).is_ok(), "{name}: {value}");
    }
    let rows = [
        ("backoff-base", "soon", "must be a duration, such as 500ms, 10s or 1m30s"),
        ("backoff-base", "", "must be a duration, such as 500ms, 10s or 1m30s"),
        ("backoff-max", "-1s", "must not be negative; 0s retries at once"),
        ("backoff-max", "25h", "must be at most 24h, such as 10m"),
        ("halt", "later", "must be now, to stop Pods that run, or soon, to let them end"),
        ("backoff-jitter", "1.01", "must be a fraction of the delay between 0 and 1, such as 0.2"),
    ];
    for (name, value, detail) in rows {
        let told = format!("metadata.annotations[tally.dev/{name}]: Invalid value: {value:?}: {detail}");
        assert_eq!(create(job(annotated(name, value))).unwrap_err(), std::slice::from_ref(&told));
        let stored = create(job(json!({}))).unwrap();
        for part in [Part::Main, Part::Status] {
            assert_eq!(
                update(&stored, part, annotated(name, value)).unwrap_err(),
                std::slice::from_ref(&told),
                "{part:?}"
            );
        }
        // It was stored before there was the rule: other changes are accepted.
        let mut older = stored.clone();
        older["metadata"]["annotations"] = annotated(name, value)["metadata"]["annotations"].clone();
        let suspended = json!({"spec": {"suspend": true}});
        assert!(update(&older, Part::Main, suspended).is_ok(), "{name}: {value}");
        assert!(update(&older, Part::Status, json!({"status": {"active": 1}})).is_ok(), "{name}: {value}");
    }
    let both = json!({"tally.dev/backoff-base": "10s", "tally.dev/backoff-max": "9s"});
    let errors = create(job(json!({"metadata": {"annotations": both}}))).unwrap_err();
    assert!(errors[0].contains("must not be less than tally.dev/backoff-base"), "{errors:?}");
}

/// TTL-14, TTL-18, TTL-21, REPL-8.
#[test]
fn ttls_and_waits_in_annotations_are_validated() {
    let annotated =
        |name: &str, value: &str| json!({"metadata": {"annotations": {(format!("tally.dev/{name}")): value}}});
    let seconds = "must be a number of seconds from 0 to 2147483647, such as 3600";
    let which = "must be succeeded, to delete Pods that have succeeded, or all";
    let rows = [
        ("delete-finished-pods", &["succeeded", "all"][..], "none", which),
        ("delete-finished-pods", &[], "", which),
        ("ttl-seconds-after-complete", &["0", "2147483647"], "2147483648", seconds),
        ("ttl-seconds-after-failed", &["3600"], "-1", seconds),
        ("replace-terminating-after", &["10m", "1s", "168h"], "10", "must be a duration, such as 10m or 1h30m"),
        ("replace-terminating-after", &[], "0s", "must be at least 1s, such as 10m"),
        ("replace-terminating-after", &[], "169h", "must be at most 168h, such as 10m"),
    ];
    for (name, good, bad, detail) in rows {
        for value in good {
            assert!(create(job(annotated(name, value))).is_ok(), "{name}: {value}");
        }
        let told = format!("metadata.annotations[tally.dev/{name}]: Invalid value: {bad:?}: {detail}");
        assert_eq!(create(job(annotated(name, bad))).unwrap_err(), std::slice::from_ref(&told));
        let stored = create(job(json!({}))).unwrap();
        for part in [Part::Main, Part::Status] {
            assert_eq!(
                update(&stored, part, annotated(name, bad)).unwrap_err(),
                std::slice::from_ref(&told),
                "{part:?}"
            );
        }
        // It was stored before there was the rule: other changes are accepted.
        let mut older = stored.clone();
        older["metadata"]["annotations"] = annotated(name, bad)["metadata"]["annotations"].clone();
        assert!(update(&older, Part::Status, json!({"status": {"active": 1}})).is_ok(), "{name}: {bad}");
    }
    let template = |value: &str| {
        let annotations = json!({"tally.dev/ttl-seconds-after-finished": value});
        json!({"spec": {"template": {"metadata": {"annotations": annotations}}}})
    };
    assert!(create(job(template("60"))).is_ok());
    let errors = create(job(template("1m"))).unwrap_err();
    let told = "spec.template.annotations[tally.dev/ttl-seconds-after-finished]: Invalid value: \"1m\": ".to_owned();
    assert_eq!(errors, [told + seconds]);
}

#[test]
fn each_door_changes_its_own_part() {
    let stored = create(job(json!({}))).unwrap();
    let patch = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"parallelism": 2}, "status": {"active": 1}});
    let main = update(&stored, Part::Main, patch.clone()).unwrap();
    assert_eq!((&main["spec"]["parallelism"], &main["status"]), (&json!(2), &json!({})), "LABEL-6");
    let status = update(&stored, Part::Status, patch).unwrap();
    assert_eq!((&status["spec"], &status["status"]), (&stored["spec"], &json!({"active": 1})), "LABEL-7");
    assert_eq!(status["metadata"]["labels"]["a"], "b", "LABEL-7");
    // Removed labels are set again, by both resources.
    for part in [Part::Main, Part::Status] {
        let updated = update(&stored, part, json!({"metadata": {"labels": null}})).unwrap();
        assert_eq!(updated["metadata"]["labels"], stored["metadata"]["labels"], "DEFAULT-3");
    }
}

#[test]
fn what_never_changes() {
    let plain = create(job(json!({}))).unwrap();
    let wide = create(indexed(json!({"backoffLimitPerIndex": 1, "managedBy": "x.io/y"}))).unwrap();
    let policies = create(success_rules(json!([{"succeededCount": 1}]))).unwrap();
    check_update(
        "UPD-1",
        &plain,
        json!({"spec": {"parallelism": -1}}),
        &["spec.parallelism: Invalid value: -1: must be greater than or equal to 0"],
    );
    check_update(
        "UPD-2",
        &wide,
        json!({"spec": {"backoffLimitPerIndex": 2, "managedBy": "x.io/z"}}),
        &[
            "spec.backoffLimitPerIndex: Invalid value: 2: field is immutable",
            "spec.managedBy: Invalid value: \"x.io/z\": field is immutable",
        ],
    );
    check_update(
        "UPD-2",
        &plain,
        json!({"spec": {"completionMode": "Indexed"}}),
        &["spec.completionMode: Invalid value: \"Indexed\": field is immutable"],
    );
    check_update(
        "UPD-2",
        &policies,
        json!({"spec": {"successPolicy": null}}),
        &["spec.successPolicy: Invalid value: null: field is immutable"],
    );
    check_update(
        "UPD-2",
        &plain,
        json!({"spec": {"podFailurePolicy": {"rules": [
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}},
            {"action": "Ignore", "onPodConditions": [{"type": "X", "status": "True"}]},
        ]}}}),
        &[
            "spec.podReplacementPolicy: Unsupported value: \"TerminatingOrFailed\": supported values: \"Failed\"",
            "spec.podFailurePolicy: Invalid value: {\"Rules\":[\
             {\"Action\":\"FailJob\",\"OnExitCodes\":{\"ContainerName\":null,\"Operator\":\"In\",\"Values\":[1]},\"OnPodConditions\":null},\
             {\"Action\":\"Ignore\",\"OnExitCodes\":null,\"OnPodConditions\":[{\"Type\":\"X\",\"Status\":\"True\"}]}]}: field is immutable",
        ],
    );
    let selector = r#"{"matchLabels":{"batch.kubernetes.io/controller-uid":"0b1c","job-name":"a"},"matchExpressions":[{"key":"job-name","operator":"Exists"}]}"#;
    check_update(
        "UPD-2",
        &plain,
        json!({"spec": {"selector": {
            "matchLabels": {"job-name": "a"}, "matchExpressions": [{"key": "job-name", "operator": "Exists"}],
        }}}),
        &[&format!("spec.selector: Invalid value: {selector}: field is immutable")],
    );
    check_update(
        "UPD-4",
        &wide,
        json!({"metadata": {"labels": {"l": "v"}, "annotations": {"a": "b"}}, "spec": {
            "parallelism": 2, "activeDeadlineSeconds": 9, "backoffLimit": 8, "maxFailedIndexes": 2,
            "ttlSecondsAfterFinished": 4, "suspend": true, "podReplacementPolicy": "Failed", "manualSelector": true,
        }}),
        &[],
    );
}

#[test]
fn completions_change_in_tandem() {
    let plain = create(job(json!({}))).unwrap();
    let wide = create(indexed(json!({"parallelism": 2}))).unwrap();
    let both = |completions: Value, parallelism: Value| json!({"spec": {"completions": completions, "parallelism": parallelism}});
    check_update("UPD-3", &wide, both(json!(7), json!(7)), &[]);
    check_update("UPD-3", &wide, both(json!(0), json!(0)), &[]);
    check_update("UPD-3", &wide, both(json!(5), json!(9)), &[]);
    check_update("UPD-3", &wide, both(json!(null), json!(null)), &[]);
    check_update(
        "UPD-3",
        &wide,
        both(json!(6), json!(5)),
        &["spec.completions: Invalid value: 6: can only be modified in tandem with spec.parallelism"],
    );
    check_update(
        "UPD-3",
        &wide,
        json!({"spec": {"completions": null}}),
        &["spec.completions: Required value: when completion mode is Indexed"],
    );
    check_update(
        "UPD-3",
        &plain,
        both(json!(2), json!(2)),
        &["spec.completions: Invalid value: 2: field is immutable"],
    );
    check_update(
        "UPD-3",
        &plain,
        both(json!(null), json!(2)),
        &["spec.completions: Invalid value: null: field is immutable"],
    );
}

/// UPD-12: Jobs of old releases have no labels with a prefix, and need none.
#[test]
fn a_job_with_the_labels_of_old_releases_can_be_changed() {
    let mut old = create(job(json!({}))).unwrap();
    old["spec"]["template"]["metadata"]["labels"] = json!({"controller-uid": UID, "job-name": "a"});
    old["spec"]["selector"] = json!({"matchLabels": {"controller-uid": UID}});
    check_update("UPD-12", &old, json!({"spec": {"parallelism": 2}}), &[]);
    old["spec"]["manualSelector"] = json!(true);
    old["spec"]["template"]["metadata"]["labels"] = json!({"controller-uid": UID});
    check_update(
        "UPD-12",
        &old,
        json!({"spec": {"manualSelector": false}}),
        &["spec.template.metadata.labels[job-name]: Required value: must be 'a'"],
    );
}

/// The errors for a patch of the template's Pod, without the printed value.
fn template_change(stored: &Value, pod: Value) -> Vec<String> {
    let errors = update(stored, Part::Main, json!({"spec": {"template": {"spec": pod}}})).err().unwrap_or_default();
    let ends = |error: &String| {
        let path = error.split(':').next().unwrap_or_default();
        format!("{path}: {}", error.rsplit(": ").next().unwrap_or_default())
    };
    errors.iter().map(ends).collect()
}

#[test]
fn the_template_opens_while_the_job_holds_still() {
    let suspended = create(spec(json!({"suspend": true}))).unwrap();
    let with_status = |job: &Value, status: Value| {
        let mut job = job.clone();
        job["status"] = status;
        job
    };
    let condition = |status: &str| json!([{"type": "Suspended", "status": status}]);
    let started = "2024-05-01T10:00:00Z";
    let running = create(job(json!({}))).unwrap();
    let closed = ["spec.template: field is immutable"];
    let rows = [
        ("UPD-7", suspended.clone(), true),
        ("UPD-7", with_status(&suspended, json!({"startTime": started, "conditions": condition("True")})), true),
        ("UPD-7", with_status(&suspended, json!({"startTime": started, "conditions": condition("False")})), false),
        ("UPD-7", with_status(&suspended, json!({"active": 1})), false),
        ("UPD-6", running.clone(), false),
        ("UPD-11", with_status(&running, json!({"conditions": condition("True")})), false),
    ];
    for (rule, stored, open) in rows {
        let errors = template_change(&stored, json!({"nodeSelector": {"a": "b"}}));
        assert_eq!(errors, if open { &[][..] } else { &closed }, "{rule}: {}", stored["status"]);
    }
    // The write that resumes the Job may still change the mutable fields; the next one may not.
    let patch = json!({"spec": {"suspend": false, "template": {"spec": {"nodeSelector": {"a": "b"}}}}});
    let resumed = update(&suspended, Part::Main, patch).unwrap();
    assert_eq!(template_change(&resumed, json!({"nodeSelector": {"z": "z"}})), closed, "UPD-7");
}

#[test]
fn what_an_open_template_may_change() {
    let node_affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "k", "operator": "Exists"}]},
    ]}});
    let anti_affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "k"},
    ]});
    let suspended = |pod: Value| create(spec(json!({"suspend": true, "template": {"spec": pod}}))).unwrap();
    let plain = suspended(json!({}));
    let node_bound = suspended(json!({"affinity": {"nodeAffinity": node_affinity}}));
    let mixed = suspended(json!({"affinity": {"nodeAffinity": node_affinity, "podAntiAffinity": anti_affinity}}));
    let two = suspended(json!({"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]}));
    let cpu = json!({"requests": {"cpu": "1"}});
    let rows = [
        ("UPD-8", &plain, json!({"tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]}), true),
        ("UPD-8", &plain, json!({"schedulingGates": [{"name": "x.io/g"}]}), true),
        ("UPD-8", &plain, json!({"affinity": {"nodeAffinity": node_affinity}}), true),
        ("UPD-8", &plain, json!({"affinity": {"podAntiAffinity": anti_affinity}}), false),
        ("UPD-8", &node_bound, json!({"affinity": null}), true),
        ("UPD-8", &mixed, json!({"affinity": {"nodeAffinity": null}}), true),
        ("UPD-8", &mixed, json!({"affinity": {"podAntiAffinity": null}}), false),
        ("UPD-8", &mixed, json!({"affinity": null}), false),
        ("UPD-9", &plain, json!({"containers": [{"name": "c", "image": "i", "resources": cpu}]}), true),
        ("UPD-9", &plain, json!({"containers": [{"name": "c", "image": "other"}]}), false),
        ("UPD-9", &plain, json!({"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]}), false),
        (
            "UPD-9",
            &two,
            json!({"containers": [{"name": "c", "image": "i", "resources": cpu}, {"name": "d", "image": "j"}]}),
            true,
        ),
        ("UPD-9", &two, json!({"containers": [{"name": "d", "image": "j"}, {"name": "c", "image": "i"}]}), false),
        ("UPD-9", &two, json!({"containers": [{"name": "c", "image": "i"}]}), false),
        ("UPD-9", &plain, json!({"restartPolicy": "OnFailure"}), false),
        ("UPD-9", &plain, json!({"nodeName": "n"}), false),
    ];
    for (rule, stored, patch, fine) in rows {
        let expected: &[&str] = if fine { &[] } else { &["spec.template.spec: field is immutable"] };
        assert_eq!(template_change(stored, patch.clone()), expected, "{rule}: {patch}");
    }
    // UPD-8 and UPD-10: only then may its metadata change.
    let patch = json!({"spec": {"template": {"metadata": {
        "annotations": {"n": "l"}, "labels": {"n": "l"}, "name": "nm", "finalizers": ["x.io/y"],
    }}}});
    check_update("UPD-10", &plain, patch.clone(), &[]);
    let running = create(job(json!({}))).unwrap();
    let errors = update(&running, Part::Main, patch).unwrap_err();
    assert!(errors.len() == 1 && errors[0].starts_with("spec.template: Invalid value: {"), "UPD-6: {errors:?}");
}

/// The rules themselves are tested in their own crate; this tests that they are called, with the right arguments.
#[test]
fn a_status_is_held_to_its_rules() {
    let check = |rule: &str, stored: &Value, status: Value, expected: &[&str]| {
        let errors = update(stored, Part::Status, json!({"status": status})).err().unwrap_or_default();
        assert_eq!(errors, expected, "{rule}");
    };
    let plain = create(job(json!({}))).unwrap();
    let wide = create(indexed(json!({"backoffLimitPerIndex": 1}))).unwrap();
    let time = "2024-05-01T10:00:00Z";
    let finished = json!([
        {"type": "SuccessCriteriaMet", "status": "True", "lastProbeTime": time, "lastTransitionTime": time},
        {"type": "Complete", "status": "True"},
    ]);
    check("STATUSVAL-6", &plain, json!({"conditions": finished, "startTime": time, "completionTime": time}), &[]);
    check(
        "STATUSVAL-12",
        &plain,
        json!({
            "conditions": finished, "startTime": time, "completionTime": time,
            "uncountedTerminatedPods": {"failed": ["a"]},
        }),
        &["status.uncountedTerminatedPods: Invalid value: {\"Succeeded\":null,\"Failed\":[\"a\"]}: must be empty for \
           finished job"],
    );
    check(
        "STATUSVAL-13",
        &wide,
        json!({"completedIndexes": "5", "failedIndexes": "0,1"}),
        &["status.completedIndexes: Invalid value: \"5\": error parsing completedIndexes: too large index: \"5\""],
    );
    check(
        "STATUSVAL-16",
        &plain,
        json!({"failedIndexes": ""}),
        &[
            "status.failedIndexes: Invalid value: \"\": cannot set non-null failedIndexes when backoffLimitPerIndex is null",
        ],
    );
    let policy = create(success_rules(json!([{"succeededCount": 1}]))).unwrap();
    check(
        "STATUSVAL-21",
        &policy,
        json!({"conditions": [{"type": "Complete", "status": "True"}], "startTime": time, "completionTime": time}),
        &[
            "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true \
             condition",
            "status.conditions: Invalid value: cannot set Complete=True for Job with SuccessPolicy unless \
             SuccessCriteriaMet=True",
        ],
    );
    // Times are compared as instants, not as text, and before the fraction is dropped.
    let started = update(&plain, Part::Status, json!({"status": {"startTime": time}})).unwrap();
    check("STATUSVAL-26", &started, json!({"startTime": "2024-05-01T12:00:00+02:00"}), &[]);
    let fixed = "field is immutable for unsuspended job once set";
    check(
        "STATUSVAL-26",
        &started,
        json!({"startTime": "2024-05-01T10:00:00.9Z"}),
        &[&format!("status.startTime: Invalid value: \"{time}\": {fixed}")],
    );
    check(
        "STATUSVAL-26",
        &started,
        json!({"startTime": null}),
        &[&format!("status.startTime: Invalid value: null: {fixed}")],
    );
    let suspended = update(&started, Part::Main, json!({"spec": {"suspend": true}})).unwrap();
    check("STATUSVAL-26", &suspended, json!({"startTime": null}), &[]);
    check("STATUSVAL-30", &plain, json!({"conditions": [{"type": "Mine", "status": "Maybe"}, {"type": "Mine"}]}), &[]);
}
