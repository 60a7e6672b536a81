//! The result of creating a Job: defaults, labels, selector, names and warnings.

use tally_api::job::JobRules;
use tally_api::kinds::{Part, Rules};
use tally_core::time::Timestamp;
use tally_value::{Value, json};

use super::{UID, check, create, indexed, job, labels, merge, spec, update};

#[test]
fn what_is_left_out_is_filled_in() {
    let rows = [
        ("DEFAULT-1", json!({}), json!({"completions": 1, "parallelism": 1})),
        ("DEFAULT-1", json!({"parallelism": 3}), json!({"completions": null, "parallelism": 3})),
        ("DEFAULT-1", json!({"completions": 3}), json!({"completions": 3, "parallelism": 1})),
        ("DEFAULT-1", json!({"completions": 0, "parallelism": 0}), json!({"completions": 0, "parallelism": 0})),
        ("DEFAULT-2", json!({}), json!({"backoffLimit": 6})),
        ("DEFAULT-2", json!({"backoffLimit": 0}), json!({"backoffLimit": 0})),
        ("DEFAULT-2", json!({"backoffLimitPerIndex": 1}), json!({"backoffLimit": i32::MAX})),
        ("DEFAULT-4", json!({}), json!({"completionMode": "NonIndexed", "suspend": false, "manualSelector": false})),
        ("DEFAULT-4", json!({"suspend": true, "completionMode": "Indexed"}), json!({"suspend": true})),
        ("DEFAULT-5", json!({}), json!({"podReplacementPolicy": "TerminatingOrFailed"})),
        ("DEFAULT-5", json!({"podFailurePolicy": {}}), json!({"podReplacementPolicy": "Failed"})),
        ("DEFAULT-5", json!({"podReplacementPolicy": ""}), json!({"podReplacementPolicy": ""})),
        (
            "DEFAULT-6",
            json!({"podFailurePolicy": {"rules": [{"onPodConditions": [{"type": "X"}, {"status": "False"}]}]}}),
            json!({"podFailurePolicy": {"rules": [
                {"onPodConditions": [{"type": "X", "status": "True"}, {"status": "False"}]},
            ]}}),
        ),
        ("DEFAULT-9", json!({}), json!({"successPolicy": null, "managedBy": null, "ttlSecondsAfterFinished": null})),
    ];
    for (rule, sent, expected) in rows {
        let mut job = spec(sent);
        JobRules.default(&mut job);
        let once = job.clone();
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(&job["spec"][field], value, "{rule} {field}");
        }
        JobRules.default(&mut job);
        assert_eq!(job, once, "{rule} twice is once");
    }
    // DEFAULT-7; any object is enough.
    for mut nothing in [json!({}), json!({"spec": {"template": {}}})] {
        JobRules.default(&mut nothing);
        assert_eq!(nothing["spec"]["template"]["spec"]["restartPolicy"], "Always");
    }
}

#[test]
fn labels_and_selector_are_generated() {
    let generated = json!({
        "controller-uid": UID, "batch.kubernetes.io/controller-uid": UID,
        "job-name": "a", "batch.kubernetes.io/job-name": "a",
    });
    let with = |labels: Value| {
        let mut all = generated.clone();
        merge(&mut all, &labels);
        all
    };
    let app = json!({"app": "x"});
    let rows = [
        // The labels of the template and of the Job as sent; then the labels of the template and of the Job as stored.
        ("LABEL-2, DEFAULT-3", json!(null), json!(null), generated.clone(), generated.clone()),
        ("DEFAULT-3", app.clone(), json!(null), with(app.clone()), with(app.clone())),
        ("DEFAULT-3", app.clone(), json!({}), with(app.clone()), with(app.clone())),
        ("DEFAULT-3", app.clone(), json!({"mine": "y"}), with(app.clone()), json!({"mine": "y"})),
        // The same labels, but set by the user.
        ("DEFAULT-3", app.clone(), app.clone(), with(app.clone()), app.clone()),
        ("LABEL-2", json!({"job-name": "a"}), json!(null), generated.clone(), generated.clone()),
    ];
    for (rule, template, own, expected_template, expected_own) in rows {
        let sent = job(json!({"metadata": {"labels": own}, "spec": {"template": {"metadata": {"labels": template}}}}));
        let job = create(sent).unwrap();
        assert_eq!(job["spec"]["template"]["metadata"]["labels"], expected_template, "{rule}");
        assert_eq!(job["metadata"]["labels"], expected_own, "{rule}");
    }
    let selectors = [
        (json!(null), json!({"matchLabels": {"batch.kubernetes.io/controller-uid": UID}})),
        (json!({}), json!({"matchLabels": {"batch.kubernetes.io/controller-uid": UID}})),
        (
            json!({"matchLabels": {"job-name": "a"}, "matchExpressions": [{"key": "job-name", "operator": "Exists"}]}),
            json!({
                "matchLabels": {"job-name": "a", "batch.kubernetes.io/controller-uid": UID},
                "matchExpressions": [{"key": "job-name", "operator": "Exists"}],
            }),
        ),
    ];
    for (sent, expected) in selectors {
        assert_eq!(create(spec(json!({"selector": sent}))).unwrap()["spec"]["selector"], expected, "LABEL-3");
    }
    let manual =
        json!({"manualSelector": true, "selector": {"matchLabels": app}, "template": labels(app.clone())["template"]});
    let job = create(spec(manual)).unwrap();
    assert_eq!(job["spec"]["selector"], json!({"matchLabels": app}), "LABEL-4");
    assert_eq!(job["spec"]["template"]["metadata"]["labels"], app, "LABEL-4");
    assert_eq!(job["metadata"]["labels"], app, "LABEL-4");
}

/// Kubernetes works on a copy while it generates a name, and the labels of the copy are not those of the template.
#[test]
fn a_job_whose_name_is_generated_keeps_the_labels_its_template_was_given() {
    let app = json!({"app": "x"});
    let mut sent = job(json!({"metadata": {"name": null, "generateName": "a-"}, "spec": labels(app.clone())}));
    assert_eq!(create(sent.clone()).unwrap()["metadata"]["labels"], app);
    merge(&mut sent, &json!({"spec": {"template": {"metadata": null}}}));
    assert_eq!(create(sent).unwrap()["metadata"]["labels"]["job-name"], "generated");
}

/// LABEL-6: what readers see is not what is stored, so a write without changes is stored.
#[test]
fn labels_that_only_readers_see_are_told_to_the_store() {
    for (sent, completed) in [
        (job(json!({})), true),
        (spec(labels(json!({"app": "x"}))), false),
        (job(json!({"metadata": {"labels": {"app": "x"}}})), false),
    ] {
        let mut job = sent;
        JobRules.default(&mut job);
        job["metadata"]["uid"] = json!(UID);
        JobRules.prepare_create(&mut job, Timestamp::default());
        assert_eq!(JobRules.complete(&mut job), completed);
        assert!(!JobRules.complete(&mut job));
    }
}

#[test]
fn the_servers_part_of_a_new_job_is_the_servers() {
    let job = create(job(json!({"metadata": {"generation": 7}, "status": {"active": 3, "succeeded": 2}}))).unwrap();
    assert_eq!(job["metadata"]["generation"], 1, "LABEL-1");
    assert_eq!(job["status"], json!({}), "LABEL-1");
}

#[test]
fn names_labels_and_selectors() {
    let name = |name: &str, completions: u32| {
        let mut job = indexed(json!({"completions": completions}));
        job["metadata"]["name"] = json!(name);
        job
    };
    let long = "n".repeat(61);
    check("SPECVAL-2", name(&long, 10), &[]);
    let expected = format!(
        "metadata.name: Invalid value: {long:?}: will not able to create pod with invalid DNS label: {long}-10"
    );
    check("SPECVAL-2", name(&long, 11), &[&expected]);
    check(
        "SPECVAL-2",
        name("a.b", 5),
        &["metadata.name: Invalid value: \"a.b\": will not able to create pod with invalid DNS label: a.b-4"],
    );
    check("SPECVAL-2", name("a.b", 0), &[]);
    check("SPECVAL-2", job(json!({"metadata": {"name": "a.b"}})), &[]);

    let labelled = r#"{"batch.kubernetes.io/controller-uid":"0b1c","batch.kubernetes.io/job-name":"a","controller-uid":"0b1c","job-name":"other"}"#;
    let expected = format!("spec.template.metadata.labels[job-name]: Invalid value: {labelled}: must be 'a'");
    check("SPECVAL-4", spec(labels(json!({"job-name": "other"}))), &[&expected]);
    check("SPECVAL-4", spec(labels(json!({"job-name": "a"}))), &[]);

    let mut sent = labels(json!({"app": "x"}));
    sent["selector"] = json!({"matchLabels": {"app": "x"}});
    check(
        "SPECVAL-5",
        spec(sent.clone()),
        &[
            "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"x\",\"batch.kubernetes.io/controller-uid\":\"0b1c\"}}: \
           `selector` not auto-generated",
        ],
    );
    sent["manualSelector"] = json!(true);
    check("SPECVAL-5", spec(sent.clone()), &[]);
    sent["selector"] = json!({});
    check("SPECVAL-6", spec(sent.clone()), &[]);
    sent.as_object_mut().unwrap().remove("selector");
    check(
        "SPECVAL-6",
        spec(sent.clone()),
        &[
            "spec.selector: Required value",
            "spec.template.metadata.labels: Invalid value: {\"app\":\"x\"}: `selector` does not match template `labels`",
        ],
    );
    sent["selector"] = json!({"matchExpressions": [{"key": "app", "operator": "In"}]});
    check(
        "SPECVAL-6",
        spec(sent),
        &[
            "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
        ],
    );
    check(
        "SPECVAL-7",
        spec(json!({"manualSelector": true, "selector": {"matchLabels": {"app": "x"}}})),
        &["spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`"],
    );
}

#[test]
fn warnings() {
    let warned = |sent: Value| JobRules.create_warnings(&create(sent).unwrap());
    assert_eq!(warned(job(json!({}))), Vec::<String>::new());
    assert_eq!(
        warned(job(json!({"metadata": {"name": "a.b"}}))),
        [
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label \
          is recommended: [must not contain dots]"
        ],
        "WARN-1"
    );
    let large =
        |completions: i64, parallelism: i64| indexed(json!({"completions": completions, "parallelism": parallelism}));
    let warning = "spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than \
                   10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail";
    assert_eq!(warned(large(100_001, 10_001)), [warning], "WARN-2");
    assert_eq!(warned(large(100_000, 10_001)), Vec::<String>::new(), "WARN-2");
    assert_eq!(warned(large(100_001, 10_000)), Vec::<String>::new(), "WARN-2");
    assert_eq!(warned(spec(json!({"completions": 100_001, "parallelism": 10_001}))), Vec::<String>::new(), "WARN-2");

    let stored = create(large(100_001, 10_001)).unwrap();
    let changed = update(&stored, Part::Main, json!({"spec": {"suspend": true}})).unwrap();
    assert_eq!(JobRules.update_warnings(&changed, &stored, Part::Main), [warning], "WARN-2");
    let labelled = update(&stored, Part::Main, json!({"metadata": {"labels": {"a": "b"}}})).unwrap();
    assert_eq!(JobRules.update_warnings(&labelled, &stored, Part::Main), Vec::<String>::new(), "WARN-2");
}
