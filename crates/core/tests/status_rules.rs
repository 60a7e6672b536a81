//! One table row for each way to violate, and just not to violate, a rule about changes of a Job's status.
//!
//! Statuses and specs are written in shorthand: a bare word is a condition that is True (`Failed=False` for another
//! status), `field:value` is a field. `start` and `done` are the two times, in minutes; `uncounted` takes
//! `succeeded/failed`.

use serde_json::{Map, Value, json};
use tally_core::gates::{FeatureGates, Gate};
use tally_core::job::{JobSpec, JobStatus, JobView};
use tally_core::status_rules::{self, ErrorKind, FieldError};
use tally_core::time::Timestamp;

const INDEXED: &str = "completionMode:Indexed completions:5 parallelism:2";
const LIMITED: &str = "completionMode:Indexed completions:5 parallelism:2 backoffLimitPerIndex:1";
const COMPLETE: &str = "SuccessCriteriaMet Complete start:0 done:5";
const FAILED: &str = "FailureTarget Failed start:0";

fn scalar(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

fn status(shorthand: &str) -> JobStatus {
    let mut fields = Map::new();
    let mut conditions = Vec::new();
    let minute = |text: &str| json!(format!("2026-01-01T10:{text:0>2}:00Z"));
    for word in shorthand.split_whitespace() {
        let Some((field, value)) = word.split_once(':') else {
            let (kind, status) = word.split_once('=').unwrap_or((word, "True"));
            conditions.push(json!({"type": kind, "status": status}));
            continue;
        };
        let uids = |list: &str| list.split(',').filter(|uid| !uid.is_empty()).map(unquoted).collect::<Value>();
        let (field, value) = match field {
            "start" => ("startTime", minute(value)),
            "done" => ("completionTime", minute(value)),
            "uncounted" => {
                let (succeeded, failed) = value.split_once('/').unwrap();
                ("uncountedTerminatedPods", json!({"succeeded": uids(succeeded), "failed": uids(failed)}))
            }
            "completedIndexes" | "failedIndexes" => (field, unquoted(value)),
            _ => (field, scalar(value)),
        };
        fields.insert(field.to_owned(), value);
    }
    fields.insert("conditions".to_owned(), conditions.into());
    serde_json::from_value(fields.into()).unwrap()
}

/// `''` stands for the empty string.
fn unquoted(text: &str) -> Value {
    if text == "''" { "".into() } else { text.into() }
}

fn spec(shorthand: &str) -> JobSpec {
    let mut fields = Map::new();
    for word in shorthand.split_whitespace() {
        let (field, value) = word.split_once(':').unwrap();
        fields.insert(field.to_owned(), scalar(value));
    }
    fields.insert("template".to_owned(), json!({}));
    let job = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "1"}, "spec": fields});
    let job = JobView::from_json(job.to_string().as_bytes()).unwrap();
    JobSpec::clone(&job.spec)
}

/// Checks a change; each expected error is `(number of the rule, text)`.
#[track_caller]
fn check(spec_text: &str, old: &str, new: &str, expected: &[(u32, &str)]) {
    let found = status_rules::check(&spec(spec_text), &status(old), &status(new));
    let found: Vec<String> = found.iter().map(|error| format!("{}: {error}", error.rule)).collect();
    let expected: Vec<String> =
        expected.iter().map(|(rule, text)| format!("STATUSVAL-{rule}: status.{text}")).collect();
    assert_eq!(found, expected, "{spec_text:?}: {old:?} -> {new:?}");
}

#[test]
fn statusval_1_counts_are_not_negative() {
    let text = |field: &str| format!("{field}: Invalid value: -1: must be greater than or equal to 0");
    check("", "", "active:-1", &[(1, &text("active"))]);
    check(
        "",
        "",
        "succeeded:-1",
        &[(1, &text("succeeded")), (24, "succeeded: Invalid value: -1: cannot decrease the succeeded counter")],
    );
    check(
        "",
        "",
        "failed:-1",
        &[(1, &text("failed")), (23, "failed: Invalid value: -1: cannot decrease the failed counter")],
    );
    check("", "", "ready:-1", &[(1, &text("ready"))]);
    check("", "", "terminating:-1", &[(1, &text("terminating"))]);
    check("", "terminating:-1", "terminating:-1", &[(1, &text("terminating"))]);
    check("", "", "active:0 succeeded:0 failed:0 ready:0 terminating:0", &[]);
    check("", "", "active:2147483647 ready:2147483647", &[]);
}

#[test]
fn statusval_2_uncounted_uids_are_there_and_listed_once() {
    let path = "uncountedTerminatedPods";
    let many: Vec<String> = (0..40).map(|number| format!("pod-{number}")).collect();
    let many = many.join(",");
    check("", "", "uncounted:a,b/c", &[]);
    check("", "", &format!("uncounted:{many}/x"), &[]);
    check("", "", "uncounted:a,b,a/", &[(2, &format!("{path}.succeeded[2]: Duplicate value: \"a\""))]);
    check("", "", "uncounted:a/b,a", &[(2, &format!("{path}.failed[1]: Duplicate value: \"a\""))]);
    check(
        "",
        "",
        "uncounted:''/a,''",
        &[
            (2, &format!("{path}.succeeded[0]: Invalid value: \"\": must not be empty")),
            (2, &format!("{path}.failed[1]: Invalid value: \"\": must not be empty")),
        ],
    );
    check(
        "",
        "",
        &format!("uncounted:{many}/pod-7,x,''"),
        &[
            (2, &format!("{path}.failed[0]: Duplicate value: \"pod-7\"")),
            (2, &format!("{path}.failed[2]: Invalid value: \"\": must not be empty")),
        ],
    );
    check("", "uncounted:a,a/", "uncounted:a,a/", &[(2, &format!("{path}.succeeded[1]: Duplicate value: \"a\""))]);
}

/// The threshold between pairwise comparison and hashing makes no difference to the result.
#[test]
fn statusval_2_duplicates_are_found_in_lists_of_any_length() {
    for length in [15, 16, 17, 500] {
        let uids: Vec<String> = (1..length).map(|number| format!("pod-{number}")).collect();
        check("", "", &format!("uncounted:{}/last", uids.join(",")), &[]);
        check(
            "",
            "",
            &format!("uncounted:{}/pod-1", uids.join(",")),
            &[(2, "uncountedTerminatedPods.failed[0]: Duplicate value: \"pod-1\"")],
        );
    }
}

#[test]
fn statusval_3_and_4_success_and_failure_exclude_each_other() {
    let both = (3, "conditions: Invalid value: cannot set Complete=True and Failed=true conditions");
    let target = (4, "conditions: Invalid value: cannot set Complete=True and FailureTarget=true conditions");
    let criteria = [
        (20, "conditions: Invalid value: cannot set SuccessCriteriaMet=True and Failed=true conditions"),
        (20, "conditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"),
    ];
    let all = "SuccessCriteriaMet Complete FailureTarget Failed start:0 done:5";
    check("", "", all, &[both, target, criteria[0], criteria[1]]);
    check("", COMPLETE, all, &[both, target, criteria[0], criteria[1]]);
    check("", "", "Complete=False FailureTarget Failed start:0", &[]);
    check("", "", "SuccessCriteriaMet Complete FailureTarget=False Failed=Unknown start:0 done:5", &[]);
    // Already invalid, and the update is about something else: only the rules that always apply report an error.
    check("", all, &format!("{all} succeeded:1"), &criteria);
}

#[test]
fn statusval_5_and_6_completion_time_goes_with_complete() {
    let early = "completionTime: Invalid value: \"2026-01-01T10:05:00Z\": \
                 cannot set completionTime when there is no Complete=True condition";
    let missing = (6, "completionTime: Required value: completionTime is required for Complete jobs");
    check("", "", "start:0 done:5", &[(5, early)]);
    check("", "start:0", &format!("{FAILED} done:5"), &[(5, early)]);
    check("", "start:0 done:5", "start:0 done:5 active:1", &[]);
    check("", "", COMPLETE, &[]);
    check("", "start:0", "SuccessCriteriaMet Complete start:0", &[missing]);
    check("", COMPLETE, "SuccessCriteriaMet Complete start:0", &[missing]);
    check("", "SuccessCriteriaMet Complete start:0", "SuccessCriteriaMet Complete start:0 failed:1", &[]);
}

#[test]
fn statusval_7_completion_is_not_before_the_start() {
    let text = "completionTime: Invalid value: \"2026-01-01T10:05:00Z\": must be equal to or after `startTime`";
    let complete = |times: &str| format!("SuccessCriteriaMet Complete {times}");
    check("", "", &complete("start:6 done:5"), &[(7, text)]);
    check("", "start:6", &complete("start:6 done:5"), &[(7, text)]);
    check("suspend:true", &complete("start:0 done:5"), &complete("start:6 done:5"), &[(7, text)]);
    check("", "", &complete("start:5 done:5"), &[]);
    check("", &complete("start:6 done:5"), &complete("start:6 done:5 failed:1"), &[]);
}

#[test]
fn statusval_8_failed_needs_its_target() {
    let text = "conditions: Invalid value: \
                cannot set Failed=True condition without the FailureTarget=true condition";
    check("", "", "Failed start:0", &[(8, text)]);
    check("", "", FAILED, &[]);
    check("", "Failed start:0", "Failed start:0 failed:1", &[]);
    check(LIMITED, "Failed start:0", "Failed start:0 failedIndexes:1", &[(8, text)]);
}

#[test]
fn statusval_9_and_21_complete_needs_its_criteria() {
    let text = "conditions: Invalid value: \
                cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
    let policy = "conditions: Invalid value: \
                  cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
    let complete = "Complete start:0 done:5";
    check("", "start:0", complete, &[(9, text)]);
    check("", "start:0", COMPLETE, &[]);
    check("", complete, &format!("{complete} failed:1"), &[]);
    let with_policy = &format!("{INDEXED} successPolicy:{{\"rules\":[]}}");
    check(with_policy, "start:0", complete, &[(9, text), (21, policy)]);
    check(with_policy, complete, &format!("{complete} failed:1"), &[(21, policy)]);
    check(with_policy, "start:0", COMPLETE, &[]);
}

#[test]
fn statusval_10_nothing_is_active_in_a_finished_job() {
    let text = |active| format!("active: Invalid value: {active}: active>0 is invalid for finished job");
    check("", "active:2", &format!("{COMPLETE} active:1"), &[(10, &text(1))]);
    check("", "active:2", &format!("{FAILED} active:2"), &[(10, &text(2))]);
    check("", COMPLETE, &format!("{COMPLETE} active:1"), &[(10, &text(1))]);
    check("", &format!("{COMPLETE} active:1"), &format!("{COMPLETE} active:1 failed:1"), &[]);
    check("", "active:2", "FailureTarget start:0 active:2", &[]);
}

#[test]
fn statusval_11_a_finished_job_has_started() {
    let text = "startTime: Required value: startTime is required for finished job";
    check("", "", "SuccessCriteriaMet Complete done:5", &[(11, text)]);
    check("", "", "FailureTarget Failed", &[(11, text)]);
    check("completions:0", "", "SuccessCriteriaMet Complete done:5", &[(11, text)]);
    check("completions:0 suspend:true", "", "SuccessCriteriaMet Complete done:5", &[]);
    check("completions:1 suspend:true", "", "SuccessCriteriaMet Complete done:5", &[(11, text)]);
    check("", "FailureTarget Failed", "FailureTarget Failed failed:1", &[]);
}

#[test]
fn statusval_12_nothing_is_uncounted_in_a_finished_job() {
    let text = |value| format!("uncountedTerminatedPods: Invalid value: {value}: must be empty for finished job");
    check("", "", &format!("{COMPLETE} uncounted:a,b/c"), &[(12, &text(r#"{"Succeeded":["a","b"],"Failed":["c"]}"#))]);
    check("", FAILED, &format!("{FAILED} uncounted:/a"), &[(12, &text(r#"{"Succeeded":null,"Failed":["a"]}"#))]);
    check("", FAILED, &format!("{FAILED} uncounted:/"), &[]);
    check("", &format!("{FAILED} uncounted:/a"), &format!("{FAILED} uncounted:/a failed:1"), &[]);
}

#[test]
fn statusval_13_and_15_completed_indexes_are_a_list_of_an_indexed_job() {
    let completed = |detail: &str| format!("completedIndexes: Invalid value: {detail}");
    let plain = "cannot set non-empty completedIndexes when non-indexed completion mode";
    let unreadable = "error parsing completedIndexes: cannot convert string to integer for index: \"x\"";
    check(INDEXED, "", "completedIndexes:0-2,4", &[]);
    check(INDEXED, "", "completedIndexes:x", &[(13, &completed(&format!("\"x\": {unreadable}")))]);
    check(INDEXED, "completedIndexes:x", "completedIndexes:x active:1", &[]);
    check(
        INDEXED,
        "",
        "completedIndexes:3,3",
        &[(13, &completed("\"3,3\": error parsing completedIndexes: non-increasing order, previous: 3, current: 3"))],
    );
    // For a Job that is not Indexed, both the content of the list and its presence are wrong.
    check(
        "",
        "",
        "completedIndexes:1",
        &[
            (13, &completed("\"1\": error parsing completedIndexes: too large index: \"1\"")),
            (15, &completed(&format!("\"1\": {plain}"))),
        ],
    );
    check("completions:1", "", "completedIndexes:0", &[(15, &completed(&format!("\"0\": {plain}")))]);
    check("parallelism:1", "", "completedIndexes:x", &[(15, &completed(&format!("\"x\": {plain}")))]);
    check("", "completedIndexes:1", "", &[]);
}

#[test]
fn statusval_14_and_16_failed_indexes_are_a_list_where_each_index_has_a_limit() {
    let failed = |detail: &str| format!("failedIndexes: Invalid value: {detail}");
    let plain = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
    check(LIMITED, "", "failedIndexes:''", &[]);
    check(LIMITED, "", "failedIndexes:0,4", &[]);
    check(
        LIMITED,
        "",
        "failedIndexes:9",
        &[(14, &failed("\"9\": error parsing failedIndexes: too large index: \"9\""))],
    );
    check(LIMITED, "failedIndexes:9", "failedIndexes:9 active:1", &[]);
    check(
        LIMITED,
        "",
        "completedIndexes:x failedIndexes:9",
        &[
            (
                13,
                "completedIndexes: Invalid value: \"x\": \
                 error parsing completedIndexes: cannot convert string to integer for index: \"x\"",
            ),
            (14, &failed("\"9\": error parsing failedIndexes: too large index: \"9\"")),
        ],
    );
    check("", "", "failedIndexes:z", &[(16, &failed(&format!("\"z\": {plain}")))]);
    check(INDEXED, "", "failedIndexes:''", &[(16, &failed(&format!("\"\": {plain}")))]);
    check(INDEXED, "failedIndexes:1", "", &[]);
    check(INDEXED, "failedIndexes:1", "failedIndexes:1 active:1", &[]);
}

#[test]
fn statusval_17_no_index_is_both_completed_and_failed() {
    let text = |list: &str, index: u32| {
        format!("failedIndexes: Invalid value: {list:?}: failedIndexes and completedIndexes overlap at index: {index}")
    };
    for (completed, failed, overlap) in [
        ("0,2,4", "1,3", None),
        ("0-1", "2-4", None),
        ("2-4", "0-1", None),
        ("0,3-4", "1-3", Some(3)),
        ("0-4", "2", Some(2)),
        ("2", "0-4", Some(2)),
        ("0,4", "1,2,4", Some(4)),
        ("''", "0-4", None),
        ("0-4", "''", None),
    ] {
        let new = format!("completedIndexes:{completed} failedIndexes:{failed}");
        match overlap {
            None => check(LIMITED, "", &new, &[]),
            Some(index) => check(LIMITED, "", &new, &[(17, &text(failed, index))]),
        }
    }
    let overlapping = "completedIndexes:0-4 failedIndexes:2";
    check(LIMITED, "failedIndexes:2", overlapping, &[(17, &text("2", 2))]);
    check(LIMITED, "completedIndexes:0-4", overlapping, &[(17, &text("2", 2))]);
    check(LIMITED, overlapping, &format!("{overlapping} active:1"), &[]);
    // A fragment that cannot be parsed is skipped here.
    let unreadable = "failedIndexes: Invalid value: \"x,1\": \
                      error parsing failedIndexes: cannot convert string to integer for index: \"x\"";
    check(LIMITED, "", "completedIndexes:1 failedIndexes:x,1", &[(14, unreadable), (17, &text("x,1", 1))]);
    // Without completions no index is valid, so none can be in both lists.
    check("parallelism:1 backoffLimitPerIndex:1", "completedIndexes:1", "completedIndexes:1 failedIndexes:1", &[]);
}

#[test]
fn statusval_18_nothing_terminates_in_a_finished_job() {
    let text = "terminating: Invalid value: 1: terminating>0 is invalid for finished job";
    check("", "terminating:1", &format!("{COMPLETE} terminating:1"), &[(18, text)]);
    check("", FAILED, &format!("{FAILED} terminating:1"), &[(18, text)]);
    check("", FAILED, &format!("{FAILED} terminating:0"), &[]);
    check("", &format!("{FAILED} terminating:1"), &format!("{FAILED} terminating:1 failed:1"), &[]);
    check("", "", "FailureTarget start:0 terminating:1", &[]);
}

#[test]
fn statusval_19_no_more_are_ready_than_active() {
    let text = |ready| format!("ready: Invalid value: {ready}: cannot set more ready pods than active");
    check("", "", "ready:1", &[(19, &text(1))]);
    check("", "active:2 ready:2", "active:1 ready:2", &[(19, &text(2))]);
    check("", "", "active:2 ready:2", &[]);
    check("", "ready:2", "ready:2 failed:1", &[]);
}

#[test]
fn statusval_20_success_criteria_exclude_failure() {
    check("", "", "SuccessCriteriaMet FailureTarget=False Failed=False", &[]);
    check(
        "",
        "",
        "SuccessCriteriaMet FailureTarget",
        &[(20, "conditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")],
    );
}

#[test]
fn statusval_22_terminal_conditions_stay() {
    let text = |kind| format!("conditions: Invalid value: cannot disable the terminal {kind}=True condition");
    check("", FAILED, "start:0", &[(22, &text("Failed")), (22, &text("FailureTarget"))]);
    check("", COMPLETE, "SuccessCriteriaMet Complete=False start:0", &[(22, &text("Complete"))]);
    check("", "FailureTarget", "FailureTarget=Maybe", &[(22, &text("FailureTarget"))]);
    check("", "FailureTarget", FAILED, &[]);
    check("", "Suspended", "", &[]);
    // If a type occurs several times, one condition that is True is sufficient (STATUSVAL-30).
    check("", "FailureTarget", "FailureTarget=False FailureTarget", &[]);
}

#[test]
fn statusval_23_and_24_counters_do_not_go_down() {
    let failed = (23, "failed: Invalid value: 0: cannot decrease the failed counter");
    let succeeded = (24, "succeeded: Invalid value: 2: cannot decrease the succeeded counter");
    check("", "failed:1 succeeded:3", "succeeded:2", &[failed, succeeded]);
    check("", "failed:1 succeeded:3", "failed:2 succeeded:3", &[]);
    check(INDEXED, "succeeded:3", "succeeded:2", &[succeeded]);
    check("completionMode:Indexed completions:2 parallelism:2", "succeeded:3", "succeeded:2", &[]);
    check("completions:2 parallelism:2", "succeeded:3", "succeeded:2", &[succeeded]);
    check("completionMode:Indexed completions:2 parallelism:2", "failed:1", "", &[failed]);
}

#[test]
fn statusval_25_completion_time_stays() {
    let text = "completionTime: Invalid value: \"2026-01-01T10:06:00Z\": field is immutable";
    check("", COMPLETE, "SuccessCriteriaMet Complete start:0 done:6", &[(25, text)]);
    check("", COMPLETE, COMPLETE, &[]);
    // A Job that is not Complete but has a completionTime can be repaired.
    check("", "start:0 done:5", "start:0", &[]);
}

#[test]
fn statusval_26_start_time_stays_unless_the_job_is_resumed() {
    let text = |value| format!("startTime: Invalid value: {value}: field is immutable for unsuspended job once set");
    let later = text("\"2026-01-01T10:01:00Z\"");
    check("", "start:0", "start:1", &[(26, &later)]);
    check("", "start:0", "", &[(26, &text("null"))]);
    check("", "", "start:1", &[]);
    check("suspend:true", "start:0", "", &[]);
    check("suspend:true", "start:0", "start:1", &[]);
    check("", "Suspended start:0", "Suspended=False start:1", &[]);
    check("", "Suspended start:0", "start:1", &[(26, &later)]);
    check("", "Suspended=False start:0", "Suspended=False start:1", &[(26, &later)]);
}

#[test]
fn statusval_27_success_criteria_stay() {
    let text = (27, "conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition");
    let criteria = (
        9,
        "conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
    );
    check("", "SuccessCriteriaMet", "SuccessCriteriaMet=False", &[text]);
    check("", COMPLETE, "Complete start:0 done:5", &[criteria, text]);
    check("", "SuccessCriteriaMet", COMPLETE, &[]);
}

#[test]
fn statusval_28_success_criteria_do_not_come_after_complete() {
    let text = "conditions: Invalid value: \
                cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
    check("", "Complete start:0 done:5", COMPLETE, &[(28, text)]);
    check("", "start:0", COMPLETE, &[]);
    check("", COMPLETE, &format!("{COMPLETE} failed:1"), &[]);
}

#[test]
fn statusval_30_what_is_not_looked_at() {
    check("parallelism:1", "", "active:7 Odd=Maybe Complete=Maybe Complete=Maybe succeeded:9 failed:9", &[]);
}

#[test]
fn errors_come_in_the_order_the_api_lists_them() {
    let done = "completionTime: Invalid value: \"2026-01-01T10:00:00Z\": ";
    check(
        "",
        "",
        "active:-1 completedIndexes:1 done:0 Failed failedIndexes:z ready:4 start:5",
        &[
            (1, "active: Invalid value: -1: must be greater than or equal to 0"),
            (5, &format!("{done}cannot set completionTime when there is no Complete=True condition")),
            (7, &format!("{done}must be equal to or after `startTime`")),
            (
                8,
                "conditions: Invalid value: \
                 cannot set Failed=True condition without the FailureTarget=true condition",
            ),
            (13, "completedIndexes: Invalid value: \"1\": error parsing completedIndexes: too large index: \"1\""),
            (
                15,
                "completedIndexes: Invalid value: \"1\": \
                 cannot set non-empty completedIndexes when non-indexed completion mode",
            ),
            (
                16,
                "failedIndexes: Invalid value: \"z\": \
                 cannot set non-null failedIndexes when backoffLimitPerIndex is null",
            ),
            (19, "ready: Invalid value: 4: cannot set more ready pods than active"),
        ],
    );
}

/// A change of less than a second is a change, although the wire format drops it; another zone is not a change.
#[test]
fn times_are_compared_as_instants() {
    let at = |text: &str| JobStatus { start_time: Timestamp::parse(text).ok(), ..JobStatus::default() };
    let check = |new: &str| status_rules::check(&spec(""), &at("2026-01-01T10:00:00Z"), &at(new)).len();
    assert_eq!(check("2026-01-01T11:00:00+01:00"), 0);
    assert_eq!(check("2026-01-01T10:00:00.9Z"), 1);
}

#[test]
fn a_cause_has_the_reason_and_the_message_of_the_api() {
    let errors = status_rules::check(&spec(""), &status(""), &status("uncounted:a,a/ Complete start:0"));
    let causes: Vec<_> = errors.iter().map(|error| (error.kind.reason(), error.message().to_string())).collect();
    let expected = [
        ("FieldValueDuplicate", "Duplicate value: \"a\""),
        ("FieldValueRequired", "Required value: completionTime is required for Complete jobs"),
        (
            "FieldValueInvalid",
            "Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ),
        (
            "FieldValueInvalid",
            r#"Invalid value: {"Succeeded":["a","a"],"Failed":null}: must be empty for finished job"#,
        ),
    ];
    assert_eq!(causes, expected.map(|(reason, message)| (reason, message.to_owned())));
    let unsaid = FieldError {
        rule: "",
        path: "status.x".to_owned(),
        kind: ErrorKind::Required,
        value: None,
        detail: String::new(),
    };
    assert_eq!(unsaid.to_string(), "status.x: Required value");
}

/// STATUSVAL-31, GATE-11: without the gates of interim conditions an end needs none, and a Job without a success policy may
/// have none. What is stored may stay.
#[test]
fn without_their_gates_interim_conditions_are_not_asked_for_nor_allowed() {
    let both = FeatureGates::ALL_ON.with(Gate::JobPodReplacementPolicy, false).with(Gate::JobManagedBy, false);
    let one = FeatureGates::ALL_ON.with(Gate::JobManagedBy, false);
    let with_policy = format!("{INDEXED} successPolicy:{{\"rules\":[{{\"succeededCount\":1}}]}}");
    let ends = "Complete start:0 done:1";
    let fails = "Failed start:0";
    let criteria = "SuccessCriteriaMet start:0";
    let not_indexed = "cannot set SuccessCriteriaMet to NonIndexed Job";
    let no_policy = "cannot set SuccessCriteriaMet=True for Job without SuccessPolicy";
    for (spec_text, old, new, gates, expected) in [
        ("", "start:0", ends, both, &[][..]),
        ("", "start:0", fails, both, &[]),
        ("", "start:0", ends, one, &["STATUSVAL-9"]),
        ("", "start:0", fails, one, &["STATUSVAL-8"]),
        ("", "start:0", criteria, both, &["STATUSVAL-31", "STATUSVAL-31"]),
        (INDEXED, "start:0", criteria, both, &["STATUSVAL-31"]),
        (&with_policy, "start:0", criteria, both, &[]),
        ("", "start:0", criteria, one, &[]),
        ("", criteria, "SuccessCriteriaMet Complete start:0 done:1", both, &[]),
    ] {
        let found = status_rules::check_gated(&spec(spec_text), &status(old), &status(new), gates);
        let rules: Vec<&str> = found.iter().map(|error| error.rule).collect();
        assert_eq!(rules, expected, "{spec_text}: {old} -> {new}, {gates:?}");
        if expected.len() == 2 {
            let details: Vec<&str> = found.iter().map(|error| error.detail.as_str()).collect();
            assert_eq!(details, [not_indexed, no_policy]);
        }
    }
}
