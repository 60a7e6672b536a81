//! Invalid input: a rule defines its meaning, or it is refused with an error that names the place. Nothing panics.

use serde::Deserialize;
use serde_json::{Value, json};
use tally_core::indexes::IndexSet;
use tally_core::job::{CompletionMode, JobStatus, JobView};
use tally_core::pod::{Phase, PodView};
use tally_core::selector::Labels;
use tally_core::status_rules;
use tally_core::view::ViewError;
use tally_value::Object;

fn job() -> Value {
    json!({
        "metadata": {"uid": "u-1", "namespace": "ns", "name": "job", "resourceVersion": "7"},
        "spec": {"template": {"spec": {"restartPolicy": "Never"}}},
    })
}

fn pod() -> Value {
    json!({"metadata": {"uid": "p-1", "namespace": "ns", "name": "pod", "resourceVersion": "7"}})
}

/// Sets the member at `path` (dots between names, numbers for positions in lists).
fn with(mut object: Value, path: &str, value: Value) -> Value {
    let mut at = &mut object;
    for part in path.split('.') {
        at = match part.parse::<usize>() {
            Ok(place) => &mut at[place],
            Err(_) => &mut at[part.replace('~', ".")],
        };
    }
    *at = value;
    object
}

#[track_caller]
fn read_job(object: &Value) -> JobView {
    JobView::from_json(object.to_string().as_bytes()).unwrap()
}

#[track_caller]
fn read_pod(object: &Value) -> PodView {
    PodView::from_json(object.to_string().as_bytes()).unwrap()
}

#[track_caller]
fn check_refused(result: Result<(), ViewError>, kind: &str, name: &str, said: &str) {
    let error = result.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot read {kind} {name:?}: ")), "{error}");
    assert!(error.contains(said), "{said:?} in {error:?}");
}

#[track_caller]
fn job_refused(object: &Value, said: &str) {
    check_refused(JobView::from_json(object.to_string().as_bytes()).map(drop), "Job", "job", said);
}

#[track_caller]
fn pod_refused(object: &Value, said: &str) {
    check_refused(PodView::from_json(object.to_string().as_bytes()).map(drop), "Pod", "pod", said);
}

#[test]
fn an_index_that_is_not_a_number_is_unknown_and_a_count_is_zero() {
    let annotation = |key: &str, value: &str| {
        with(pod(), "metadata.annotations", json!({ format!("batch.kubernetes.io/{key}"): value }))
    };
    for (text, index) in [
        ("0", Some(0)),
        ("+3", Some(3)),
        ("007", Some(7)),
        ("++7", None),
        ("+", None),
        ("2147483647", Some(2_147_483_647)),
        ("2147483648", None),
        ("99999999999999999999999", None),
        ("-1", None),
        ("", None),
        ("one", None),
        ("1.0", None),
        ("1e3", None),
        ("0x1", None),
        (" 1", None),
        ("١", None),
    ] {
        assert_eq!(read_pod(&annotation("job-completion-index", text)).index, index, "{text:?}");
        let count = index.unwrap_or(0);
        assert_eq!(read_pod(&annotation("job-index-failure-count", text)).failure_count, count, "{text:?}");
        let ignored = annotation("job-index-ignored-failure-count", text);
        assert_eq!(read_pod(&ignored).ignored_failure_count, count, "{text:?}");
    }
    assert_eq!(read_pod(&pod()).index, None);
    let number = json!({"batch.kubernetes.io/job-completion-index": 1});
    pod_refused(&with(pod(), "metadata.annotations", number), "expected a string");
}

#[test]
fn overlapping_lists_decode_and_are_read_as_far_as_they_make_sense() {
    let status = json!({"completedIndexes": "0-3,x,2-9,1", "failedIndexes": "3,2,5-4"});
    let job = read_job(&with(with(job(), "spec.completions", json!(5)), "status", status));
    assert_eq!(IndexSet::read_tolerant(&job.status.completed_indexes, job.spec.index_limit()).text(), "0-4");
    let failed = job.status.failed_indexes.as_deref().unwrap();
    assert_eq!(IndexSet::read_tolerant(failed, job.spec.index_limit()).text(), "2,3");
    // A stored status like this does not block other changes.
    assert_eq!(status_rules::check(&job.spec, &job.status, &job.status), []);
}

#[test]
fn a_condition_status_other_than_true_is_kept_and_is_not_true() {
    for status in ["Maybe", "true", "TRUE", " True", "", "False", "Unknown"] {
        let conditions = json!([{"type": "Complete", "status": status}, {"type": "Ready", "status": status}]);
        let job = read_job(&with(job(), "status", json!({ "conditions": conditions })));
        assert!(!job.status.is_finished(), "{status:?}");
        assert_eq!(job.status.conditions[0].status, status);
        let written = serde_json::to_value(&job.status).unwrap();
        assert_eq!(written["conditions"], conditions);
        let pod = read_pod(&with(pod(), "status", json!({ "conditions": conditions })));
        assert!(!pod.ready, "{status:?}");
        assert_eq!(pod.conditions[1].1, status);
    }
    job_refused(&with(job(), "status", json!({"conditions": [{"status": true}]})), "expected");
}

#[test]
fn a_condition_without_type_or_given_twice_is_kept() {
    let conditions =
        json!([{"status": "True"}, {"type": "Failed", "status": "False"}, {"type": "Failed", "status": "True"}]);
    let job = read_job(&with(job(), "status", json!({ "conditions": conditions })));
    assert!(job.status.is_true("Failed"), "any of them counts");
    assert_eq!(job.status.conditions.len(), 3);
    assert_eq!(job.status.conditions[0].kind, "");
}

#[test]
fn times_before_1970_are_times() {
    let status = json!({"startTime": "1969-12-31T23:59:59Z", "completionTime": "0001-01-01T00:00:00Z"});
    let job = read_job(&with(
        with(job(), "status", status.clone()),
        "metadata.creationTimestamp",
        json!("1966-01-01T00:00:00Z"),
    ));
    assert_eq!(job.status.start_time.unwrap().seconds(), -1);
    assert!(job.status.completion_time < job.status.start_time);
    assert_eq!(serde_json::to_value(&job.status).unwrap(), status);
    let deleted = json!({
        "uid": "p-1", "name": "pod", "resourceVersion": "7",
        "deletionTimestamp": "0000-01-01T00:00:00Z", "deletionGracePeriodSeconds": i64::MAX,
    });
    let pod = read_pod(&with(pod(), "metadata", deleted.clone()));
    assert!(pod.deletion_asked_at.is_some_and(|at| at.seconds() < -62_000_000_000));
    let pod =
        read_pod(&with(with(json!({}), "metadata", deleted), "metadata.deletionGracePeriodSeconds", json!(i64::MIN)));
    assert!(pod.deletion_asked_at.is_some_and(|at| at.seconds() > 0));
    assert_eq!(pod.finished_at, pod.deletion_asked_at.unwrap());
}

#[test]
fn times_that_are_no_times_are_refused_and_named() {
    for nonsense in [
        json!("yesterday"),
        json!(""),
        json!("2026-02-30T00:00:00Z"),
        json!("2026-01-31T25:00:00Z"),
        json!("2026-01-31"),
        json!("2026-01-31T12:00:00"),
        json!("99999-01-31T12:00:00Z"),
    ] {
        let said = format!("{nonsense} is not an RFC 3339 time");
        for path in
            ["metadata.creationTimestamp", "metadata.deletionTimestamp", "status.startTime", "status.completionTime"]
        {
            job_refused(&with(job(), path, nonsense.clone()), &said);
        }
        let condition = json!([{"type": "Failed", "status": "True", "lastTransitionTime": nonsense}]);
        job_refused(&with(job(), "status.conditions", condition), &said);
        pod_refused(&with(pod(), "metadata.creationTimestamp", nonsense.clone()), &said);
        let ready = json!([{"type": "Ready", "status": "False", "lastTransitionTime": nonsense}]);
        pod_refused(&with(pod(), "status.conditions", ready), &said);
        let scheduled = json!([
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": nonsense},
        ]);
        pod_refused(&with(pod(), "status.conditions", scheduled), &said);
        let ended = json!([{"name": "c", "state": {"terminated": {"exitCode": 1, "finishedAt": nonsense}}}]);
        pod_refused(&with(pod(), "status.containerStatuses", ended), &said);
    }
    for wrong in [json!(5), json!(["2026-01-31T12:00:00Z"]), json!({}), json!(true)] {
        job_refused(&with(job(), "status.startTime", wrong), "expected a time");
    }
}

/// A client may add conditions of its own to a Pod. Only the times that a rule uses must be times (BACKOFF-6, PENDING-2).
#[test]
fn times_of_a_pod_that_no_rule_uses_may_be_anything_that_the_api_has_stored() {
    let odd = "-001-12-31T23:00:00Z";
    let status = json!({
        "phase": "Running",
        "conditions": [
            {"type": "example.com/Checked", "status": "True", "lastTransitionTime": odd},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": odd},
            {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:30Z"},
        ],
        "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 0, "finishedAt": odd}}}],
        "containerStatuses": [
            {"name": "a", "state": {"terminated": {"exitCode": 3, "finishedAt": odd}}},
            {"name": "b", "state": {"running": {"startedAt": odd}}},
        ],
    });
    let pod = read_pod(&with(pod(), "status", status.clone()));
    assert_eq!((pod.phase, pod.conditions.len(), pod.exits[0].code), (Phase::Running, 3, 3));
    assert_eq!(Some(pod.finished_at), pod.ready_changed_at);
    let pod = with(self::pod(), "status", with(status, "phase", json!("Pending")));
    assert_eq!(read_pod(&pod).pending, None, "no reason, so it does not matter since when");
    pod_refused(
        &with(pod, "status.containerStatuses.1.state", json!({"waiting": {"reason": "ErrImagePull"}})),
        "status.conditions[PodScheduled].lastTransitionTime: \"-001-12-31T23:00:00Z\" is not an RFC 3339 time",
    );
}

/// What the controllers that count nothing do: see `PodView::lenient`.
#[track_caller]
fn read_leniently(object: &Value) -> Option<PodView> {
    let text = object.to_string();
    let tree: tally_value::Value = serde_json::from_str(&text).unwrap();
    let mut object = Object::from(text);
    let read = PodView::lenient(&object);
    object.tree = Some(tree);
    assert_eq!(PodView::lenient(&object), read, "from the tree");
    assert!(PodView::of(&object).ok().is_none_or(|whole| Some(whole) == read));
    read.map(|read| (*read).clone())
}

#[test]
fn of_a_pod_whose_times_are_none_its_place_and_its_state_are_known() {
    let odd = json!({
        "metadata": {
            "uid": "p-1", "namespace": "ns", "name": "pod", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "long ago", "deletionTimestamp": "soon", "deletionGracePeriodSeconds": 30,
            "labels": {"a": 7}, "finalizers": {"a": 7}, "ownerReferences": "text",
            "annotations": {
                "batch.kubernetes.io/job-completion-index": "3", "batch.kubernetes.io/job-index-failure-count": "2",
                "example.com/other": "x",
            },
        },
        "spec": {"nodeName": "n", "initContainers": 7, "schedulingGates": 7},
        "status": {
            "phase": "Failed", "reason": "Evicted", "initContainerStatuses": 7,
            "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": 5, "reason": 5}],
            "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 3, "finishedAt": "yesterday"}}}],
        },
    });
    let pod = read_leniently(&odd).unwrap();
    assert_eq!((pod.uid.to_string(), pod.revision.0), ("p-1".to_owned(), 7));
    assert_eq!((&*pod.namespace, &*pod.name, &*pod.node_name), ("ns", "pod", "n"));
    assert_eq!((pod.phase, pod.evicted, pod.generation), (Phase::Failed, true, Some(2)));
    assert!(pod.deleting() && pod.deletion_grace == Some(30));
    assert_eq!(pod.conditions[..], [("Ready".into(), "False".into())]);
    assert_eq!((pod.index, pod.failure_count), (Some(3), 2));
    assert!(!pod.tracked && pod.job().is_none() && pod.exits.is_empty(), "nothing that a Job could count");

    for (path, value) in [
        ("metadata.generation", json!("text")),
        ("metadata.annotations", json!({"batch.kubernetes.io/job-completion-index": 3})),
        ("metadata.deletionTimestamp", Value::Null),
        ("spec", Value::Null),
        ("status", Value::Null),
    ] {
        assert!(read_leniently(&with(odd.clone(), path, value)).is_some(), "{path}");
    }
    for path in ["metadata.uid", "metadata.resourceVersion", "metadata.name", "spec.nodeName", "status.phase"] {
        assert_eq!(read_leniently(&with(odd.clone(), path, json!(5))), None, "{path}");
    }
}

#[test]
fn numbers_at_the_edge_of_their_type() {
    let fields = [
        "parallelism",
        "completions",
        "backoffLimit",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
        "ttlSecondsAfterFinished",
    ];
    for field in fields {
        let path = format!("spec.{field}");
        for edge in [i32::MAX, i32::MIN, -1, 0] {
            read_job(&with(job(), &path, json!(edge)));
        }
        for beyond in [
            json!(i64::from(i32::MAX) + 1),
            json!(i64::from(i32::MIN) - 1),
            json!(u64::MAX),
            json!(1.5),
            json!(1e3),
            json!("1"),
        ] {
            job_refused(&with(job(), &path, beyond), "invalid");
        }
    }
    let large = read_job(&with(job(), "spec.parallelism", json!(2_147_483_647)));
    assert_eq!(large.spec.parallelism, i32::MAX);
    assert_eq!(large.spec.completions, None, "a parallelism alone is a work queue");
    assert_eq!(read_job(&with(job(), "spec.completions", json!(-5))).spec.index_limit(), 0);
    assert_eq!(read_job(&with(job(), "spec.completions", json!(i32::MAX))).spec.index_limit(), 2_147_483_647);
    read_job(&with(job(), "spec.activeDeadlineSeconds", json!(i64::MAX)));
    job_refused(&with(job(), "spec.activeDeadlineSeconds", json!(u64::MAX)), "invalid value");
    job_refused(&with(job(), "status.active", json!(4_294_967_296_u64)), "invalid value");
    let restarts = json!([{"restartCount": -3}, {"restartCount": i32::MAX}, {"restartCount": i32::MAX}, {"restartCount": i32::MAX}]);
    let pod = read_pod(&with(pod(), "status.containerStatuses", restarts));
    assert_eq!((pod.restarts.regular, pod.restarts.sum), (i32::MAX as u32, u32::MAX), "saturates");
}

#[test]
fn an_object_without_identity_is_refused() {
    for uid in [json!(null), json!("")] {
        job_refused(&with(job(), "metadata.uid", uid.clone()), "metadata.uid: is missing");
        pod_refused(&with(pod(), "metadata.uid", uid), "metadata.uid: is missing");
    }
    let bare = json!({"name": "job", "resourceVersion": "7"});
    job_refused(&with(job(), "metadata", bare), "metadata.uid: is missing");
    let bare = json!({"name": "pod", "resourceVersion": "7"});
    pod_refused(&with(pod(), "metadata", bare), "metadata.uid: is missing");
    for (version, said) in [
        (json!("abc"), "metadata.resourceVersion: \"abc\" is not a decimal number"),
        (json!(""), "metadata.resourceVersion: \"\" is not a decimal number"),
        (json!(null), "metadata.resourceVersion: \"\" is not a decimal number"),
        (json!("-1"), "is not a decimal number"),
        (json!("+1"), "is not a decimal number"),
        (json!("1.0"), "is not a decimal number"),
        (json!("18446744073709551616"), "is not a decimal number"),
        (json!(7), "invalid type"),
    ] {
        job_refused(&with(job(), "metadata.resourceVersion", version.clone()), said);
        pod_refused(&with(pod(), "metadata.resourceVersion", version), said);
    }
    assert_eq!(read_job(&with(job(), "metadata.resourceVersion", json!("18446744073709551615"))).revision.0, u64::MAX);
    check_refused(JobView::from_json(b"{}").map(drop), "Job", "", "missing field `metadata`");
    check_refused(PodView::from_json(b"[]").map(drop), "Pod", "", "");
}

#[test]
fn null_is_absence_wherever_a_field_may_be_absent() {
    let mut nothing = job();
    for path in [
        "metadata.namespace",
        "metadata.generation",
        "metadata.creationTimestamp",
        "metadata.deletionTimestamp",
        "metadata.labels",
        "spec.parallelism",
        "spec.completions",
        "spec.completionMode",
        "spec.backoffLimit",
        "spec.backoffLimitPerIndex",
        "spec.maxFailedIndexes",
        "spec.activeDeadlineSeconds",
        "spec.ttlSecondsAfterFinished",
        "spec.suspend",
        "spec.podReplacementPolicy",
        "spec.podFailurePolicy",
        "spec.successPolicy",
        "spec.managedBy",
        "spec.selector",
        "status.conditions",
        "status.startTime",
        "status.completionTime",
        "status.active",
        "status.succeeded",
        "status.failed",
        "status.terminating",
        "status.completedIndexes",
        "status.failedIndexes",
        "status.uncountedTerminatedPods",
        "status.ready",
    ] {
        nothing = with(nothing, path, Value::Null);
    }
    let mut expected = read_job(&job());
    expected.namespace = "".into();
    assert_eq!(read_job(&nothing), expected);
    assert_eq!(read_job(&with(job(), "status", Value::Null)).status, JobStatus::default());
    assert!(!read_job(&with(job(), "spec.template", Value::Null)).spec.restart_policy_on_failure);
    assert!(!read_job(&with(job(), "spec.template.spec", Value::Null)).spec.restart_policy_on_failure);

    let inner = json!({
        "conditions": [{"type": null, "status": null, "reason": null, "message": null, "lastProbeTime": null, "lastTransitionTime": null}],
        "uncountedTerminatedPods": {"succeeded": null, "failed": null},
    });
    let status = read_job(&with(job(), "status", inner)).status;
    assert_eq!(status.conditions[0].kind, "");
    assert_eq!(status.uncounted_terminated_pods, Some(Default::default()));

    let policies = with(
        job(),
        "spec.podFailurePolicy",
        json!({"rules": [
            {"action": null, "onExitCodes": {"containerName": null, "operator": null, "values": null}, "onPodConditions": null},
            {"onExitCodes": null, "onPodConditions": [{"type": null, "status": null}, {"type": "A"}, {"type": "B", "status": ""}]},
        ]}),
    );
    let policies =
        with(policies, "spec.successPolicy", json!({"rules": [{"succeededIndexes": null, "succeededCount": null}]}));
    let policies = with(
        policies,
        "spec.selector",
        json!({"matchLabels": {"a": null}, "matchExpressions": [{"key": null, "operator": null, "values": null}]}),
    );
    let job = read_job(&policies);
    let rules = &job.spec.pod_failure_policy.as_ref().unwrap().rules;
    assert!(rules[1].on_pod_conditions.iter().all(|pattern| pattern.status == "True"), "DEFAULT-6");
    assert!(!job.spec.selector.matches(&Labels::default()));
    assert!(
        read_job(&with(policies, "spec.podFailurePolicy", json!({"rules": null}))).spec.pod_failure_policy.is_some()
    );

    let mut nothing = pod();
    for path in [
        "metadata.namespace",
        "metadata.creationTimestamp",
        "metadata.deletionTimestamp",
        "metadata.deletionGracePeriodSeconds",
        "metadata.labels",
        "metadata.annotations",
        "metadata.finalizers",
        "metadata.ownerReferences",
        "spec.nodeName",
        "spec.initContainers",
        "status.phase",
        "status.conditions",
        "status.containerStatuses",
        "status.initContainerStatuses",
    ] {
        nothing = with(nothing, path, Value::Null);
    }
    let mut expected = read_pod(&pod());
    expected.namespace = "".into();
    assert_eq!(read_pod(&nothing), expected);
    let nothing = with(with(pod(), "spec", Value::Null), "status", Value::Null);
    assert_eq!(read_pod(&nothing).phase, Phase::Pending);
    let inner = json!({
        "metadata": {
            "uid": "p-1", "name": null, "resourceVersion": "7", "labels": {"a": null},
            "annotations": {"batch.kubernetes.io/job-completion-index": null},
            "ownerReferences": [{"apiVersion": null, "kind": null, "name": null, "uid": null, "controller": true}],
        },
        "spec": {"initContainers": [{"name": null, "restartPolicy": null}]},
        "status": {
            "conditions": [{"type": null, "status": null, "lastTransitionTime": null}],
            "containerStatuses": [
                {"name": null, "restartCount": null, "state": null},
                {"state": {"terminated": null}},
                {"state": {"terminated": {"exitCode": null, "finishedAt": null}}},
            ],
        },
    });
    let pod = read_pod(&inner);
    assert_eq!(pod.labels.get("a"), Some(""));
    assert_eq!(pod.index, None);
    assert_eq!(pod.job(), None, "somebody's Pod, and not a Job's");
    assert!(pod.controller.is_some_and(|owner| owner.uid.is_empty()));
}

#[test]
fn an_owner_without_uid_is_still_an_owner() {
    let owners = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "job", "controller": true}]);
    let pod = read_pod(&with(pod(), "metadata.ownerReferences", owners));
    assert!(pod.job().is_some_and(|uid| uid.is_empty()));
}

/// TYPE-6.
#[test]
fn enumerations_from_a_newer_api_do_not_stop_the_rest() {
    let newer = read_job(&with(job(), "spec.completionMode", json!("Ordered")));
    assert_eq!(newer.spec.completion_mode, CompletionMode::Unknown("Ordered".into()));
    assert!(!newer.spec.is_indexed());
    assert_eq!(read_pod(&with(pod(), "status.phase", json!("Hibernating"))).phase, Phase::Unknown);
    read_job(&with(job(), "spec.podFailurePolicy", json!({"rules": [{"action": "Retry", "onMoonPhase": {}}]})));
}

#[test]
fn fields_of_the_wrong_type_are_refused() {
    for (path, value) in [
        ("metadata", json!(null)),
        ("metadata.name", json!(null)),
        ("spec", json!(null)),
        ("spec", json!("x")),
        ("spec.suspend", json!("true")),
        ("spec.template", json!(7)),
        ("spec.template.spec", json!("x")),
        ("status", json!("x")),
        ("spec.selector", json!({"matchLabels": {"a": 1}})),
        ("spec.selector", json!({"matchExpressions": {}})),
        ("status.conditions", json!({"Failed": "True"})),
        ("status.conditions", json!([null])),
        ("status.uncountedTerminatedPods", json!(["a"])),
        ("status.uncountedTerminatedPods", json!({"failed": [1]})),
        ("status.failedIndexes", json!(3)),
    ] {
        let result = JobView::from_json(with(job(), path, value.clone()).to_string().as_bytes());
        assert!(result.is_err(), "{path}: {value}");
    }
    for (path, value) in [
        ("metadata.labels", json!({"a": 1})),
        ("metadata.finalizers", json!("batch.kubernetes.io/job-tracking")),
        ("metadata.ownerReferences", json!([{"uid": "u", "controller": "true"}])),
        ("status.phase", json!(1)),
        ("status.containerStatuses", json!([{"state": {"terminated": {"exitCode": "1"}}}])),
    ] {
        let result = PodView::from_json(with(pod(), path, value.clone()).to_string().as_bytes());
        assert!(result.is_err(), "{path}: {value}");
    }
}

/// Every prefix of a valid text, and every text with one corrupted byte.
#[test]
fn truncated_and_spoilt_text_is_refused_or_read_but_never_panics() {
    let whole_job = with(
        with(
            job(),
            "status",
            json!({"startTime": "2026-01-01T00:00:00Z", "completedIndexes": "0-3", "uncountedTerminatedPods": {"failed": ["é"]}}),
        ),
        "spec.podFailurePolicy",
        json!({"rules": [{"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}}]}),
    );
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "u-1", "controller": true}]);
    let whole_pod = with(
        with(pod(), "metadata.ownerReferences", owner),
        "status.containerStatuses",
        json!([{"name": "c", "state": {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:00:00Z"}}}]),
    );
    for text in [whole_job.to_string(), whole_pod.to_string()] {
        let bytes = text.as_bytes();
        for length in 0..bytes.len() {
            assert!(JobView::from_json(&bytes[..length]).is_err());
            assert!(PodView::from_json(&bytes[..length]).is_err());
        }
        for at in 0..bytes.len() {
            for spoilt in [0, b'"', b'{', b'}', b'[', b',', b'9', b'-', b'\\', 0x80, 0xff] {
                let mut bytes = bytes.to_vec();
                bytes[at] = spoilt;
                let _ = JobView::from_json(&bytes);
                let _ = PodView::from_json(&bytes);
            }
        }
        assert!(JobView::from_json(&[bytes, b"x"].concat()).is_err(), "nothing may follow");
        assert!(PodView::from_json(&[b"\xef\xbb\xbf", bytes].concat()).is_err(), "no byte order mark");
    }
}

/// Depth does no harm in parts that are not decoded, and is an error in parts that are.
#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let deep_objects = format!("{}1{}", r#"{"a":"#.repeat(200_000), "}".repeat(200_000));
    let meta = r#"{"uid":"u","name":"job","resourceVersion":"1"}"#;
    for deep in [&deep, &deep_objects] {
        let unknown = format!(r#"{{"metadata":{meta},"x":{deep},"spec":{{"y":{deep},"template":{{"z":{deep}}}}}}}"#);
        let job = JobView::from_json(unknown.as_bytes()).unwrap();
        assert!(job.spec.template.text().len() > deep.len());
        assert!(PodView::from_json(unknown.as_bytes()).is_ok());
        for known in [
            format!(r#"{{"metadata":{meta},"spec":{deep}}}"#),
            format!(r#"{{"metadata":{meta},"status":{{"conditions":{deep}}},"spec":{{"template":{{}}}}}}"#),
            format!(r#"{{"metadata":{meta},"spec":{{"template":{{}},"selector":{{"matchLabels":{{"a":{deep}}}}}}}}}"#),
            deep.to_string(),
            deep[..deep.len() / 2].to_owned(),
        ] {
            assert!(JobView::from_json(known.as_bytes()).is_err());
        }
    }
}

#[test]
fn a_field_given_twice_is_refused_where_it_matters() {
    let twice = br#"{"metadata":{"uid":"u","name":"job","resourceVersion":"1","uid":"v"},"spec":{"template":{}}}"#;
    let error = JobView::from_json(twice).unwrap_err().to_string();
    assert!(error.contains("duplicate field `uid`"), "{error}");
    let twice = br#"{"metadata":{"uid":"u","name":"pod","resourceVersion":"1","labels":{"a":"1","a":"2"}}}"#;
    assert_eq!(PodView::from_json(twice).unwrap().labels.get("a"), Some("2"));
}

#[test]
fn unusual_uids_and_names_survive() {
    for uid in ["é", "\u{0}", "a b", "3B241101-E2BB-4255-8CAF-4136C566A962", &"x".repeat(100_000)] {
        let job = read_job(&with(job(), "metadata.uid", json!(uid)));
        assert_eq!(job.uid.to_string(), uid);
        let status = json!({"uncountedTerminatedPods": {"failed": [uid]}});
        let status: JobStatus = serde_json::from_value(status.clone()).unwrap();
        assert_eq!(serde_json::to_value(&status).unwrap()["uncountedTerminatedPods"]["failed"][0], uid);
    }
}

/// The places of a value, as JSON pointers.
fn places(value: &Value, at: String, all: &mut Vec<String>) {
    let mut inner = |step: String, value: &Value| places(value, format!("{at}/{}", step.replace('/', "~1")), all);
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| inner(name.clone(), value)),
        Value::Array(items) => items.iter().enumerate().for_each(|(place, value)| inner(place.to_string(), value)),
        _ => {}
    }
    all.push(at);
}

#[track_caller]
fn read_alike(object: &Value, said: &str, counts: &mut [u32; 2]) {
    let text = object.to_string();
    let read = PodView::from_json(text.as_bytes()).ok();
    let tree: tally_value::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(PodView::deserialize(&tree).ok(), read, "{said}");
    let mut object = Object::from(text);
    assert_eq!(PodView::of(&object).ok().as_deref(), read.as_ref(), "{said}, from the text");
    let lenient = PodView::lenient(&object);
    assert!(read.is_none() || lenient.as_deref() == read.as_ref(), "{said}, leniently");
    object.tree = Some(tree);
    assert_eq!(PodView::of(&object).ok().as_deref(), read.as_ref(), "{said}, from the tree");
    assert_eq!(PodView::lenient(&object), lenient, "{said}, leniently from the tree");
    counts[usize::from(read.is_some())] += 1;
}

#[test]
fn a_pod_is_read_from_a_tree_as_from_its_text() {
    let whole = json!({
        "metadata": {
            "uid": "p-1", "namespace": "ns", "name": "pod", "resourceVersion": "7", "managedFields": [{"manager": "m"}],
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T00:01:00Z",
            "deletionGracePeriodSeconds": 30, "generation": 2, "labels": {"a": "b", "c": ""},
            "finalizers": ["example.com/other", "batch.kubernetes.io/job-tracking"],
            "annotations": {
                "batch.kubernetes.io/job-completion-index": "3", "batch.kubernetes.io/job-index-failure-count": "2",
                "batch.kubernetes.io/job-index-ignored-failure-count": "1",
                "tally.dev/ttl-seconds-after-finished": "60", "example.com/other": "x",
            },
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n-1"},
                {
                    "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j-1", "controller": true,
                    "blockOwnerDeletion": true,
                },
            ],
        },
        "spec": {
            "nodeName": "n", "initContainers": [{"name": "i", "restartPolicy": "Always"}],
            "schedulingGates": [{"name": "tally.dev/counted-once"}], "containers": [{"name": "c", "image": "x"}],
        },
        "status": {
            "phase": "Failed", "reason": "Evicted",
            "conditions": [
                {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:30Z"},
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "\"no\" room"},
            ],
            "containerStatuses": [{
                "name": "c", "restartCount": 1,
                "state": {"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": "2026-01-01T00:00:20Z"}},
            }],
            "initContainerStatuses": [{"name": "i", "restartCount": 2, "state": {"waiting": {"reason": "Odd"}}}],
        },
    });
    let odd = [
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(1e30),
        json!(u64::MAX),
        json!(""),
        json!("7"),
        json!("text"),
        json!([]),
        json!([null]),
        json!(["text"]),
        json!({}),
        json!({"a": null}),
        json!({"name": 7}),
    ];
    let mut all = Vec::new();
    places(&whole, String::new(), &mut all);
    // Unreadable ones, and readable ones.
    let mut counts = [0, 0];
    for place in all {
        for value in &odd {
            let mut object = whole.clone();
            *object.pointer_mut(&place).unwrap() = value.clone();
            read_alike(&object, &format!("{place} is {value}"), &mut counts);
        }
        if let Some((parent, name)) = place.rsplit_once('/') {
            let mut object = whole.clone();
            if let Some(fields) = object.pointer_mut(parent).unwrap().as_object_mut() {
                fields.remove(&name.replace("~1", "/"));
                read_alike(&object, &format!("{place} is missing"), &mut counts);
            }
        }
        let mut object = whole.clone();
        if let Some(fields) = object.pointer_mut(&place).unwrap().as_object_mut() {
            fields.insert("unknown".to_owned(), json!("x"));
            read_alike(&object, &format!("{place} has a field that is not known"), &mut counts);
        }
    }
    assert!(counts[0] > 100 && counts[1] > 100, "{counts:?}");
}
