//! Validation of the spec of a Job (SPECVAL-9 to 24).

use tally_value::{Value, json};

use super::{check, create, exit_codes, failure_rule, indexed, merge, spec, success_rules};

#[test]
fn numbers() {
    for field in ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"] {
        let expected = format!("spec.{field}: Invalid value: -1: must be greater than or equal to 0");
        check("SPECVAL-9", spec(json!({field: -1})), &[&expected]);
        check("SPECVAL-9", spec(json!({field: 0})), &[]);
        check("SPECVAL-9", spec(json!({field: i32::MAX})), &[]);
    }
    for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
        let mut fields = json!({"backoffLimitPerIndex": 0});
        fields[field] = json!(-1);
        let expected = format!("spec.{field}: Invalid value: -1: must be greater than or equal to 0");
        check("SPECVAL-9", indexed(fields.clone()), &[&expected]);
        fields[field] = json!(0);
        check("SPECVAL-9", indexed(fields), &[]);
    }
    check(
        "SPECVAL-10",
        indexed(json!({"maxFailedIndexes": 2})),
        &["spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified"],
    );
    check("SPECVAL-10", indexed(json!({"maxFailedIndexes": 2, "backoffLimitPerIndex": 0})), &[]);
}

#[test]
fn managers() {
    const PREFIXED: &str = "must be a domain-prefixed path (such as \\\"acme.io/foo\\\")";
    let check = |manager: &str, expected: &[&str]| check("SPECVAL-11", spec(json!({"managedBy": manager})), expected);
    check("acme.io/foo", &[]);
    check("kubernetes.io/job-controller", &[]);
    check("acme.io/a/b~%!$&'()*+,;=:._-", &[]);
    check("", &["spec.managedBy: Required value"]);
    for manager in ["acme", "acme.io/", "/foo"] {
        let detail = PREFIXED.replace('\\', "");
        check(manager, &[&format!("spec.managedBy: Invalid value: \"{manager}\": {detail}")]);
    }
    check(
        "A_B/f o",
        &[
            "spec.managedBy: Invalid value: \"A_B\": a lowercase RFC 1123 subdomain must consist of lower case \
             alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
             'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            "spec.managedBy: Invalid value: \"f o\": Invalid path (regex used for validation is \
             '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')",
        ],
    );
    check(&format!("a.io/{}", "x".repeat(58)), &[]);
    check(&format!("a.io/{}", "x".repeat(59)), &["spec.managedBy: Too long: may not be more than 63 bytes"]);
}

#[test]
fn completion_modes() {
    check(
        "SPECVAL-12",
        spec(json!({"completionMode": "Random"})),
        &["spec.completionMode: Unsupported value: \"Random\": supported values: \"NonIndexed\", \"Indexed\""],
    );
    check(
        "SPECVAL-13",
        indexed(json!({"completions": null})),
        &["spec.completions: Required value: when completion mode is Indexed"],
    );
    check("SPECVAL-14", indexed(json!({"parallelism": 100_000})), &[]);
    check("SPECVAL-14", spec(json!({"parallelism": 100_001})), &[]);
    check(
        "SPECVAL-14",
        indexed(json!({"parallelism": 100_001})),
        &[
            "spec.parallelism: Invalid value: 100001: must be less than or equal to 100000 when completion mode is Indexed",
        ],
    );
    let per_index = |completions: i64, parallelism: i64, max_failed: Value| {
        indexed(json!({
            "completions": completions, "parallelism": parallelism,
            "backoffLimitPerIndex": 1, "maxFailedIndexes": max_failed,
        }))
    };
    check("SPECVAL-15", per_index(5, 5, json!(5)), &[]);
    check(
        "SPECVAL-15",
        per_index(5, 5, json!(6)),
        &["spec.maxFailedIndexes: Invalid value: 6: must be less than or equal to completions"],
    );
    check(
        "SPECVAL-15",
        per_index(100_000, 5, json!(100_001)),
        &[
            "spec.maxFailedIndexes: Invalid value: 100001: must be less than or equal to completions",
            "spec.maxFailedIndexes: Invalid value: 100001: must be less than or equal to 100000",
        ],
    );
    check("SPECVAL-16", per_index(100_000, 5, json!(null)), &[]);
    check("SPECVAL-16", per_index(100_001, 10_000, json!(10_000)), &[]);
    check("SPECVAL-16", indexed(json!({"completions": 100_001, "parallelism": 10_001})), &[]);
    check(
        "SPECVAL-16",
        per_index(100_001, 5, json!(null)),
        &["spec.maxFailedIndexes: Required value: must be specified when completions is above 100000"],
    );
    check(
        "SPECVAL-16",
        per_index(100_001, 10_001, json!(10_001)),
        &[
            "spec.parallelism: Invalid value: 10001: must be less than or equal to 10000 when completions are above \
             100000 and used with backoff limit per index",
            "spec.maxFailedIndexes: Invalid value: 10001: must be less than or equal to 10000 when completions are \
             above 100000 and used with backoff limit per index",
        ],
    );
    check(
        "SPECVAL-17",
        spec(json!({"backoffLimitPerIndex": 1, "maxFailedIndexes": 2})),
        &[
            "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
            "spec.maxFailedIndexes: Invalid value: 2: requires indexed completion mode",
        ],
    );
}

#[test]
fn success_policies() {
    let count = |count: i64| json!({"succeededCount": count});
    check("SPECVAL-18", success_rules(json!([count(1)])), &[]);
    check(
        "SPECVAL-18",
        spec(json!({"successPolicy": {"rules": [count(1), {"succeededIndexes": "0"}]}})),
        &["spec.successPolicy: Invalid value: {\"Rules\":[{\"SucceededIndexes\":null,\"SucceededCount\":1},\
           {\"SucceededIndexes\":\"0\",\"SucceededCount\":null}]}: requires indexed completion mode"],
    );
    let none = "spec.successPolicy.rules: Required value: at least one rules must be specified when the successPolicy \
                is specified";
    check("SPECVAL-19", success_rules(json!([])), &[none]);
    check("SPECVAL-19", indexed(json!({"successPolicy": {}})), &[none]);
    check("SPECVAL-19", success_rules(vec![count(1); 20].into()), &[]);
    check(
        "SPECVAL-19",
        success_rules(vec![count(1); 21].into()),
        &["spec.successPolicy.rules: Too many: 21: must have at most 20 items"],
    );
    let check = |rule: Value, expected: &[&str]| {
        let expected: Vec<_> = expected.iter().map(|text| format!("spec.successPolicy.rules[0]{text}")).collect();
        let expected: Vec<_> = expected.iter().map(String::as_str).collect();
        check("SPECVAL-20", success_rules(json!([rule])), &expected);
    };
    check(json!({}), &[": Required value: at least one of succeededCount or succeededIndexes must be specified"]);
    check(count(-1), &[".succeededCount: Invalid value: -1: must be greater than or equal to 0"]);
    for fine in [0, 1, 5] {
        check(count(fine), &[]);
    }
    check(
        count(6),
        &[".succeededCount: Invalid value: 6: must be less than or equal to 5 (the number of specified completions)"],
    );
    let of = |indexes: &str, count: i64| json!({"succeededIndexes": indexes, "succeededCount": count});
    check(of("0-2", 3), &[]);
    check(
        of("0-2", 9),
        &[
            ".succeededCount: Invalid value: 9: must be less than or equal to 5 (the number of specified completions)",
            ".succeededCount: Invalid value: 9: must be less than or equal to 3 (the number of indexes in the \
             specified succeededIndexes field)",
        ],
    );
    check(
        of("x", 1),
        &[
            ".succeededIndexes: Invalid value: \"x\": error parsing succeededIndexes: cannot convert string to integer \
             for index: \"x\"",
            ".succeededCount: Invalid value: 1: must be less than or equal to 0 (the number of indexes in the \
             specified succeededIndexes field)",
        ],
    );
    let long = format!("0{}", ",".repeat(64 * 1024));
    check(
        json!({"succeededIndexes": long}),
        &[
            ".succeededIndexes: Too long: may not be more than 65536 bytes",
            &format!(
                ".succeededIndexes: Invalid value: \"{long}\": error parsing succeededIndexes: cannot convert string to \
                 integer for index: \"\""
            ),
        ],
    );
    for (indexes, problem) in [
        ("", None),
        ("+1,02-4", None),
        ("0,1,2,3,4", None),
        (
            "0-1-2",
            Some(
                "the fragment \\\"0-1-2\\\" violates the requirement that an index interval can have at most two parts separated by '-'",
            ),
        ),
        ("2-", Some("cannot convert string to integer for index: \\\"\\\"")),
        ("1, 2", Some("cannot convert string to integer for index: \\\" 2\\\"")),
        ("5", Some("too large index: \\\"5\\\"")),
        ("3,1", Some("non-increasing order, previous: 3, current: 1")),
    ] {
        let text = problem.map(|problem| {
            let problem = problem.replace('\\', "");
            format!(".succeededIndexes: Invalid value: \"{indexes}\": error parsing succeededIndexes: {problem}")
        });
        check(json!({"succeededIndexes": indexes}), &text.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

/// DEFECT-7: kube-apiserver panics on such a Job.
#[test]
fn a_success_policy_without_completions_is_refused_like_any_job_without_them() {
    let mut sent = success_rules(json!([{"succeededIndexes": "7", "succeededCount": 9}]));
    merge(&mut sent, &json!({"spec": {"completions": null}}));
    check("SPECVAL-13", sent, &["spec.completions: Required value: when completion mode is Indexed"]);
}

#[test]
fn replacement_and_restart_policies() {
    let fail_job = json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]});
    check("SPECVAL-21", spec(json!({"podReplacementPolicy": "Failed"})), &[]);
    check("SPECVAL-21", spec(json!({"podReplacementPolicy": "Failed", "podFailurePolicy": fail_job})), &[]);
    for policy in ["", "Never"] {
        let expected = format!(
            "spec.podReplacementPolicy: Unsupported value: \"{policy}\": supported values: \"Failed\", \
             \"TerminatingOrFailed\""
        );
        check("SPECVAL-21", spec(json!({"podReplacementPolicy": policy})), &[&expected]);
    }
    check(
        "SPECVAL-21",
        spec(json!({"podReplacementPolicy": "TerminatingOrFailed", "podFailurePolicy": fail_job})),
        &["spec.podReplacementPolicy: Unsupported value: \"TerminatingOrFailed\": supported values: \"Failed\""],
    );
    let restart = |policy: Value, failure_policy: &Value| {
        spec(json!({"template": {"spec": {"restartPolicy": policy}}, "podFailurePolicy": failure_policy}))
    };
    const NEEDED: &str = "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"";
    let none = Value::Null;
    check("SPECVAL-24", restart(json!("OnFailure"), &none), &[]);
    check("SPECVAL-24", restart(json!("Never"), &fail_job), &[]);
    check("SPECVAL-24", restart(none.clone(), &none), &[NEEDED]);
    check("SPECVAL-24", restart(json!("Always"), &none), &[NEEDED]);
    check("SPECVAL-24", restart(json!("Always"), &fail_job), &[NEEDED]);
    check(
        "SPECVAL-24",
        restart(json!("OnFailure"), &fail_job),
        &["spec.template.spec.restartPolicy: Invalid value: \"OnFailure\": only \"Never\" is supported when \
           podFailurePolicy is specified"],
    );
    let errors = create(restart(json!("Sometimes"), &none)).unwrap_err();
    let expected = "spec.template.spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \
                    \"OnFailure\", \"Never\"";
    assert_eq!(errors.last().map(String::as_str), Some(expected), "SPECVAL-24");
}

#[test]
fn failure_policies() {
    let rule = json!({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}});
    let rules = |count: usize| spec(json!({"podFailurePolicy": {"rules": vec![rule.clone(); count]}}));
    for count in [0, 1, 20] {
        check("SPECVAL-22", rules(count), &[]);
    }
    check("SPECVAL-22", spec(json!({"podFailurePolicy": {}})), &[]);
    check("SPECVAL-22", rules(21), &["spec.podFailurePolicy.rules: Too many: 21: must have at most 20 items"]);

    let checked = |sent: Value, expected: &[&str]| {
        let expected: Vec<_> = expected.iter().map(|text| format!("spec.podFailurePolicy.rules[0]{text}")).collect();
        check("SPECVAL-22", sent, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    };
    let action =
        |action: &str| failure_rule(json!({"action": action, "onExitCodes": {"operator": "In", "values": [1]}}));
    for fine in ["Count", "FailJob", "Ignore"] {
        checked(action(fine), &[]);
    }
    checked(action(""), &[".action: Required value: valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]"]);
    checked(
        action("Stop"),
        &[".action: Unsupported value: \"Stop\": supported values: \"Count\", \"FailIndex\", \"FailJob\", \"Ignore\""],
    );
    checked(
        action("FailIndex"),
        &[".action: Invalid value: \"FailIndex\": requires the backoffLimitPerIndex to be set"],
    );
    let mut per_index = indexed(json!({"backoffLimitPerIndex": 1}));
    merge(&mut per_index, &action("FailIndex"));
    checked(per_index, &[]);

    checked(
        failure_rule(json!({
            "action": "FailJob",
            "onExitCodes": {"operator": "In", "values": [1]}, "onPodConditions": [{"type": "X"}],
        })),
        &[": Invalid value: specifying both OnExitCodes and OnPodConditions is not supported"],
    );
    for neither in [json!({"action": "FailJob"}), json!({"action": "FailJob", "onPodConditions": []})] {
        let expected = ": Invalid value: specifying one of OnExitCodes and OnPodConditions is required";
        checked(failure_rule(neither), &[expected]);
    }

    checked(exit_codes(json!({"operator": "NotIn", "values": [0], "containerName": "c"})), &[]);
    checked(exit_codes(json!({"operator": "In", "values": [-5, 3]})), &[]);
    checked(
        exit_codes(json!({"values": [1]})),
        &[".onExitCodes.operator: Required value: valid values: [\"In\" \"NotIn\"]"],
    );
    checked(
        exit_codes(json!({"operator": "Exists", "values": [1], "containerName": "d"})),
        &[
            ".onExitCodes.operator: Unsupported value: \"Exists\": supported values: \"In\", \"NotIn\"",
            ".onExitCodes.containerName: Invalid value: \"d\": must be one of the container or initContainer names in \
             the pod template",
        ],
    );
    checked(
        exit_codes(json!({"operator": "In", "values": []})),
        &[".onExitCodes.values: Invalid value: []: at least one value is required"],
    );
    checked(
        exit_codes(json!({"operator": "In"})),
        &[".onExitCodes.values: Invalid value: null: at least one value is required"],
    );
    checked(
        exit_codes(json!({"operator": "In", "values": [3, 0, 3]})),
        &[
            ".onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator",
            ".onExitCodes.values[2]: Duplicate value: 3",
            ".onExitCodes.values: Invalid value: [3,0,3]: must be ordered",
        ],
    );
    let values = |last: i64| exit_codes(json!({"operator": "In", "values": (1..=last).collect::<Vec<_>>()}));
    checked(values(255), &[]);
    checked(values(256), &[".onExitCodes.values: Too many: 256: must have at most 255 items"]);

    let conditions = |conditions: Value| failure_rule(json!({"action": "Ignore", "onPodConditions": conditions}));
    checked(conditions(json!([{"type": "x.io/T", "status": "Unknown"}, {"type": "X"}])), &[]);
    checked(
        conditions(json!([{"type": "X", "status": "Maybe"}])),
        &[
            ".onPodConditions[0].status: Unsupported value: \"Maybe\": supported values: \"False\", \"True\", \"Unknown\"",
        ],
    );
    checked(
        conditions(json!([{"type": "bad type"}])),
        &[".onPodConditions[0].type: Invalid value: \"bad type\": name part must consist of alphanumeric characters, \
           '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
           '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"],
    );
    checked(conditions(vec![json!({"type": "X"}); 20].into()), &[]);
    checked(
        conditions(vec![json!({"type": "X"}); 21].into()),
        &[".onPodConditions: Too many: 21: must have at most 20 items"],
    );
}
