//! The CronJob's rules, one row or more per rule.

use tally_api::cronjob::CronJobRules;
use tally_api::kinds::{Part, Rules};
use tally_core::time::Timestamp;
use tally_value::{Value, json};

/// A CronJob named `c`, with these fields of its spec set.
fn cron_job(fields: Value) -> Value {
    let pod = json!({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"});
    let spec = json!({"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": {"spec": pod}}}});
    let mut cron_job = json!({"metadata": {"name": "c"}, "spec": spec});
    set(&mut cron_job["spec"], &fields);
    cron_job
}

/// A CronJob with these fields of the Job in its template set.
fn with_job(fields: Value) -> Value {
    let mut cron_job = cron_job(json!({}));
    set(&mut cron_job["spec"]["jobTemplate"]["spec"], &fields);
    cron_job
}

fn set(to: &mut Value, fields: &Value) {
    for (field, value) in fields.as_object().unwrap() {
        to[field.as_str()] = value.clone();
    }
}

fn refused(errors: Vec<tally_api::field::FieldError>) -> Result<(), Vec<String>> {
    if errors.is_empty() { Ok(()) } else { Err(errors.iter().map(ToString::to_string).collect()) }
}

fn create(mut cron_job: Value) -> Result<Value, Vec<String>> {
    CronJobRules.default(&mut cron_job);
    CronJobRules.prepare_create(&mut cron_job, Timestamp::default());
    refused(CronJobRules.validate_create(&cron_job))?;
    Ok(cron_job)
}

fn update(stored: &Value, part: Part, spec: Value, status: Value) -> Result<Value, Vec<String>> {
    let mut new = stored.clone();
    set(&mut new["spec"], &spec);
    new["status"] = status;
    CronJobRules.default(&mut new);
    CronJobRules.prepare_update(&mut new, stored, part);
    refused(CronJobRules.validate_update(&new, stored, part))?;
    Ok(new)
}

#[track_caller]
fn check(rule: &str, sent: Value, expected: &[&str]) {
    assert_eq!(create(sent).err().unwrap_or_default(), expected, "{rule}");
}

#[track_caller]
fn check_update(rule: &str, stored: &Value, spec: Value, expected: &[&str]) {
    assert_eq!(update(stored, Part::Main, spec, json!({})).err().unwrap_or_default(), expected, "{rule}");
}

#[test]
fn the_job_in_the_template_gets_no_defaults_of_a_job() {
    let rule = json!({"action": "Ignore", "onPodConditions": [{"type": "X"}]});
    let created = create(with_job(json!({"podFailurePolicy": {"rules": [rule]}}))).unwrap();
    let spec = &created["spec"];
    for (field, value) in [
        ("concurrencyPolicy", json!("Allow")),
        ("suspend", json!(false)),
        ("successfulJobsHistoryLimit", json!(3)),
        ("failedJobsHistoryLimit", json!(1)),
        ("timeZone", Value::Null),
        ("startingDeadlineSeconds", Value::Null),
    ] {
        assert_eq!(spec[field], value, "{field}");
    }
    let job = &spec["jobTemplate"]["spec"];
    let mut fields: Vec<_> = job.as_object().unwrap().keys().collect();
    fields.sort();
    assert_eq!(fields, ["podFailurePolicy", "template"], "DEFAULT-8");
    assert_eq!(job["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"], "True", "DEFAULT-6");
    assert_eq!(job["template"]["spec"]["terminationGracePeriodSeconds"], 30, "DEFAULT-7");
    assert_eq!((&created["metadata"]["generation"], &created["status"]), (&json!(1), &json!({})));

    let given =
        json!({"concurrencyPolicy": "", "suspend": true, "successfulJobsHistoryLimit": 0, "failedJobsHistoryLimit": 7});
    let spec = &create(cron_job(given)).unwrap()["spec"];
    assert_eq!(
        [
            &spec["concurrencyPolicy"],
            &spec["suspend"],
            &spec["successfulJobsHistoryLimit"],
            &spec["failedJobsHistoryLimit"]
        ],
        [&json!("Allow"), &json!(true), &json!(0), &json!(7)]
    );
}

#[test]
fn names() {
    let named = |name: String| {
        let mut cron_job = cron_job(json!({}));
        cron_job["metadata"]["name"] = json!(name);
        cron_job
    };
    check("CRON-10", named("n".repeat(52)), &[]);
    let long = "n".repeat(53);
    let expected = format!("metadata.name: Invalid value: \"{long}\": must be no more than 52 characters");
    check("CRON-10", named(long), &[&expected]);
    let dotted = create(named("a.b".to_owned())).unwrap();
    assert_eq!(
        CronJobRules.create_warnings(&dotted),
        [
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label \
          is recommended: [must not contain dots]"
        ],
        "WARN-1"
    );
}

#[test]
fn schedules_and_zones() {
    const ELSEWHERE: &str = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
    let schedule = |schedule: &str| cron_job(json!({"schedule": schedule}));
    check("SPECVAL-25", schedule("@hourly"), &[]);
    check("SPECVAL-25", schedule(""), &["spec.schedule: Required value"]);
    check(
        "SPECVAL-25",
        schedule("* * * *"),
        &["spec.schedule: Invalid value: \"* * * *\": expected exactly 5 fields, found 4: [* * * *]"],
    );
    for zoned in ["TZ=UTC 0 0 * * *", "CRON_TZ=Europe/Paris 0 0 * * *"] {
        check("SPECVAL-25", schedule(zoned), &[&format!("spec.schedule: Invalid value: \"{zoned}\": {ELSEWHERE}")]);
    }
    let nowhere = "TZ=Nowhere/X 0 0 * * *";
    check(
        "SPECVAL-25",
        schedule(nowhere),
        &[
            &format!(
                "spec.schedule: Invalid value: \"{nowhere}\": provided bad location Nowhere/X: unknown time zone Nowhere/X"
            ),
            &format!("spec.schedule: Invalid value: \"{nowhere}\": {ELSEWHERE}"),
        ],
    );

    let explicit = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
    for (zone, problems) in [
        ("UTC", vec![]),
        ("Etc/UTC", vec![]),
        ("America/New_York", vec![]),
        ("America/Argentina/Buenos_Aires", vec![]),
        ("", vec!["timeZone must be nil or non-empty string"]),
        ("Local", vec![explicit]),
        ("local", vec![explicit, "unknown time zone local"]),
        ("Mars/Phobos", vec!["unknown time zone Mars/Phobos"]),
        ("america/new_york", vec!["unknown time zone america/new_york"]),
        ("../x", vec!["unknown time zone ../x"]),
        ("/UTC", vec!["unknown time zone /UTC"]),
        (" UTC", vec!["unknown time zone  UTC"]),
        ("Etc/Unknown", vec!["unknown time zone Etc/Unknown"]),
    ] {
        let expected: Vec<String> =
            problems.iter().map(|problem| format!("spec.timeZone: Invalid value: \"{zone}\": {problem}")).collect();
        let sent = cron_job(json!({"timeZone": zone}));
        check("SPECVAL-25", sent, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn the_rest_of_the_spec() {
    for field in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        let expected = format!("spec.{field}: Invalid value: -1: must be greater than or equal to 0");
        check("SPECVAL-25", cron_job(json!({field: -1})), &[&expected]);
        check("SPECVAL-25", cron_job(json!({field: 0})), &[]);
    }
    check("SPECVAL-25", cron_job(json!({"concurrencyPolicy": "Replace"})), &[]);
    check(
        "SPECVAL-25",
        cron_job(json!({"concurrencyPolicy": "Parallel"})),
        &[
            "spec.concurrencyPolicy: Unsupported value: \"Parallel\": supported values: \"Allow\", \"Forbid\", \"Replace\"",
        ],
    );
    check("SPECVAL-25", with_job(json!({"manualSelector": false})), &[]);
    check(
        "SPECVAL-25",
        with_job(json!({"manualSelector": true, "selector": {"matchLabels": {"a": "b"}}, "parallelism": -1})),
        &[
            "spec.jobTemplate.spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
            "spec.jobTemplate.spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\"}}: `selector` will be auto-generated",
            "spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: \"nil\", \"false\"",
        ],
    );
    // DEFECT-7, as in a Job.
    check(
        "SPECVAL-13",
        with_job(json!({"completionMode": "Indexed", "successPolicy": {"rules": [{"succeededCount": 1}]}})),
        &["spec.jobTemplate.spec.completions: Required value: when completion mode is Indexed"],
    );
}

#[test]
fn updates() {
    let mut stored = create(cron_job(json!({}))).unwrap();
    check_update("SPECVAL-25", &stored, json!({"schedule": "1 1 * * *", "timeZone": "UTC", "suspend": true}), &[]);
    check_update(
        "SPECVAL-25",
        &stored,
        json!({"schedule": "x"}),
        &["spec.schedule: Invalid value: \"x\": expected exactly 5 fields, found 1: [x]"],
    );
    let zoned = "TZ=UTC 0 0 * * *";
    check_update(
        "SPECVAL-25",
        &stored,
        json!({"schedule": zoned}),
        &[&format!(
            "spec.schedule: Invalid value: \"{zoned}\": cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        )],
    );
    // What an older server accepted may stay, but a zone must not be given twice. An unknown zone may stay, too.
    stored["metadata"]["name"] = json!("n".repeat(60));
    stored["spec"]["schedule"] = json!(zoned);
    check_update("SPECVAL-25", &stored, json!({"suspend": true}), &[]);
    check_update(
        "SPECVAL-25",
        &stored,
        json!({"timeZone": "UTC"}),
        &[&format!(
            "spec.schedule: Invalid value: \"{zoned}\": cannot use both timeZone field and TZ or CRON_TZ in schedule"
        )],
    );
    stored["spec"]["schedule"] = json!("0 0 * * *");
    stored["spec"]["timeZone"] = json!("Old/Zone");
    check_update("SPECVAL-25", &stored, json!({"suspend": true}), &[]);
}

#[test]
fn each_door_changes_its_own_part() {
    let stored = create(cron_job(json!({}))).unwrap();
    let status = json!({"lastScheduleTime": "2024-05-01T10:00:00Z"});
    let main = update(&stored, Part::Main, json!({"suspend": true}), status.clone()).unwrap();
    assert_eq!((&main["metadata"]["generation"], &main["status"]), (&json!(2), &json!({})));
    let through_status = update(&stored, Part::Status, json!({"suspend": true}), status.clone()).unwrap();
    assert_eq!((&through_status["spec"], &through_status["status"]), (&stored["spec"], &status));
    assert_eq!(through_status["metadata"]["generation"], 1);
}

#[test]
fn warnings_about_the_job_come_when_the_spec_changes() {
    let warning = "spec.jobTemplate.spec: In Indexed Jobs with a number of completions higher than 10^5 and a \
                   parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big \
                   number of indexes fail";
    let large = with_job(json!({"completionMode": "Indexed", "completions": 100_001, "parallelism": 10_001}));
    let stored = create(large).unwrap();
    assert_eq!(CronJobRules.create_warnings(&stored), [warning], "WARN-2");
    let changed = update(&stored, Part::Main, json!({"suspend": true}), json!({})).unwrap();
    assert_eq!(CronJobRules.update_warnings(&changed, &stored, Part::Main), [warning], "WARN-2");
    assert_eq!(CronJobRules.update_warnings(&stored, &stored, Part::Main), Vec::<String>::new(), "WARN-2");
}

/// BACKOFF-12: a CronJob all of whose Jobs would be refused is refused itself.
#[test]
fn its_jobs_must_be_able_to_wait_before_a_retry() {
    let annotated = |value: &str| {
        let mut cron_job = cron_job(json!({}));
        cron_job["spec"]["jobTemplate"]["metadata"] = json!({"annotations": {"tally.dev/backoff-base": value}});
        cron_job
    };
    let errors = create(annotated("soon")).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].starts_with("spec.jobTemplate.metadata.annotations[tally.dev/backoff-base]: Invalid"),
        "{errors:?}"
    );
    let stored = create(annotated("1s")).unwrap();
    let template = annotated("soon")["spec"]["jobTemplate"].clone();
    assert!(update(&stored, Part::Main, json!({"jobTemplate": template}), json!({})).is_err());
}
