//! REPL-8, REPL-9 and REPL-10: Pods that terminate on a dead node and are given up, where each index has a limit of its own: the
//! replacement needs the counts of the Pod, and the Pod must be fenced before it exists.

use super::*;

const WAIT: i64 = 60_000;

/// Two indexes, of which each may fail `limit` times. `action`: of a rule that matches every Pod with the condition Gone.
fn waiting_job(limit: i32, action: Option<&str>) -> Value {
    let mut job = indexed(json!({
        "completions": 2, "parallelism": 2, "podReplacementPolicy": "Failed", "backoffLimitPerIndex": limit,
        "backoffLimit": i32::MAX,
    }));
    job["metadata"]["annotations"] = json!({"tally.dev/replace-terminating-after": "60s"});
    if let Some(action) = action {
        let conditions = json!([{"type": "Gone", "status": "True"}]);
        job["spec"]["podFailurePolicy"] = json!({"rules": [{"action": action, "onPodConditions": conditions}]});
    }
    job
}

/// The Pod "p" of index 0, which terminates and carries the counts of failures and of ignored failures.
fn going(revision: u64, phase: &str, (failures, ignored): (u32, u32)) -> Value {
    let mut pod = deleting(at_index(pod("p", revision, phase), 0));
    pod["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] = failures.to_string().into();
    if ignored > 0 {
        let name = "batch.kubernetes.io/job-index-ignored-failure-count";
        pod["metadata"]["annotations"][name] = ignored.to_string().into();
    }
    pod["status"]["conditions"] = json!([{"type": "Gone", "status": "True"}]);
    pod
}

/// A leader that sees "p" terminate beside the Pod "b" of index 1, and has waited for long enough.
fn leader(job: &Value, p: Value) -> Bench {
    let mut bench = Bench::new(job);
    bench.sees(p);
    bench.sees(at_index(pod("b", 21, "Running"), 1));
    bench.passes(WAIT);
    bench
}

/// A plan whose status write, if it has one, succeeds.
fn look(bench: &mut Bench, revision: u64) -> Plan {
    let plan = bench.plan();
    if plan.status.is_some() {
        bench.written(&plan, revision);
    }
    plan
}

/// What the status says: active, terminating, the UIDs recorded as failed, failed, the failed indexes.
fn told(job: &JobView) -> (i32, Option<i32>, Vec<String>, i32, String) {
    let status = &job.status;
    let recorded = status.uncounted().failed.iter().map(ToString::to_string).collect();
    let indexes = status.failed_indexes.as_deref().unwrap_or_default().to_owned();
    (status.active, status.terminating, recorded, status.failed, indexes)
}

/// The creation of this Pod is answered, and the stream shows the Pod.
fn created_as(bench: &mut Bench, pod: &Value) {
    bench.ledger.created(&pod_view(pod), Revision(bench.pods_at), bench.now);
    bench.sees(pod.clone());
}

fn counts(plan: &Plan) -> Vec<(Option<u32>, Option<u32>, u32)> {
    plan.creations.iter().map(|new| (new.index, new.failure_count, new.ignored_failure_count)).collect()
}

/// One row: what is carried by the replacement; None if the index has failed instead.
struct Row {
    limit: i32,
    action: Option<&'static str>,
    carries: (u32, u32),
    /// What the Pod shows after it was given up.
    then: &'static str,
    replacement: Option<(u32, u32)>,
}

fn check(row: &Row, another_leader: bool) {
    let title = format!(
        "limit {}, {:?}, {:?}, then {}, another leader: {another_leader}",
        row.limit, row.action, row.carries, row.then
    );
    let ignored = row.action == Some("Ignore");
    let object = waiting_job(row.limit, row.action);
    let mut bench = leader(&object, going(20, "Running", row.carries));
    let plan = look(&mut bench, 25);
    assert_eq!(names(&plan.looks), ["p"], "{title}");
    assert!(plan.creations.is_empty() && plan.releases.is_empty(), "{title}");

    // Given up: its failure is stored before anything else happens, unless it counts nowhere.
    bench.ledger.pod_given_up(&uid("p"));
    let plan = look(&mut bench, 30);
    assert!(plan.releases.is_empty(), "{title}: its counts are needed");
    let recorded: &[&str] = if ignored { &[] } else { &["p"] };
    let (_, terminating, found, failed, indexes) = told(bench.ledger.job());
    assert_eq!((terminating, failed), (Some(1), 0), "{title}: it occupies its node");
    assert_eq!(found, recorded, "{title}");
    assert_eq!(indexes, if row.replacement.is_none() { "0" } else { "" }, "{title}");
    assert!(ignored || plan.creations.is_empty(), "{title}: it is not fenced");

    let Some((failures, ignored_failures)) = row.replacement else {
        let plan = bench.plan();
        assert!(plan.creations.is_empty(), "{title}");
        assert_eq!(names(&plan.releases), recorded, "{title}: its index has failed, and no replacement needs it");
        return;
    };
    let mut plan = plan;
    if plan.creations.is_empty() {
        if another_leader {
            let mut stored = object.clone();
            stored["metadata"]["resourceVersion"] = "30".into();
            merge(&mut stored["status"], json!({"active": 1, "ready": 0, "terminating": 1, "failedIndexes": ""}));
            stored["status"]["uncountedTerminatedPods"] = json!({"failed": ["p"]});
            bench = leader(&stored, going(20, "Running", row.carries));
            let plan = look(&mut bench, 35);
            assert_eq!(names(&plan.looks), ["p"], "{title}: what the other leader knew of the node is not stored");
            assert!(plan.creations.is_empty() && plan.releases.is_empty(), "{title}");
            bench.ledger.pod_given_up(&uid("p"));
        }
        if row.then != "Running" {
            bench.sees(going(40, row.then, row.carries));
        }
        // Longer than the longest back-off.
        bench.passes(600_000);
        plan = bench.plan();
        assert!(plan.releases.is_empty(), "{title}: the replacement does not exist yet");
    }
    assert_eq!(counts(&plan), [(Some(0), Some(failures), ignored_failures)], "{title}");

    // The replacement exists: the Pod is released and tallied, and goes on occupying its node.
    let name = plan.creations[0].name.clone();
    created_as(&mut bench, &at_index(pod(&name, 50, "Running"), 0));
    let plan = look(&mut bench, 55);
    assert_eq!(names(&plan.releases), ["p"], "{title}");
    let phase = if ignored { "Running" } else { row.then };
    bench.ledger.pod_answered(&uid("p"));
    bench.sees(released(going(51, phase, row.carries)));
    bench.passes(10_000);
    look(&mut bench, 60);
    let (active, terminating, found, failed, indexes) = told(bench.ledger.job());
    let lives = i32::from(phase == "Running");
    assert_eq!((active, terminating, failed), (2, Some(lives), i32::from(!ignored)), "{title}");
    assert!(found.is_empty() && indexes.is_empty(), "{title}");

    // A success of the Pod changes nothing any more.
    bench.sees(released(going(70, "Succeeded", row.carries)));
    bench.passes(10_000);
    look(&mut bench, 80);
    let status = &bench.ledger.job().status;
    assert_eq!((status.succeeded, &*status.completed_indexes, status.terminating), (0, "", Some(0)), "{title}");
}

#[test]
fn a_pod_of_an_index_with_a_limit_is_given_up_fenced_and_replaced_with_its_counts() {
    let row = |limit, action, carries, then, replacement| Row { limit, action, carries, then, replacement };
    for row in [
        row(1, None, (0, 0), "Running", Some((1, 0))),
        row(3, None, (2, 0), "Running", Some((3, 0))),
        row(3, None, (1, 4), "Running", Some((2, 4))),
        // Its last attempt.
        row(0, None, (0, 0), "Running", None),
        row(2, None, (2, 1), "Running", None),
        // It comes back after it was recorded as failed.
        row(2, None, (0, 0), "Failed", Some((1, 0))),
        row(2, None, (0, 0), "Succeeded", Some((1, 0))),
        // What the failure policy says about it.
        row(2, Some("Count"), (1, 0), "Running", Some((2, 0))),
        row(2, Some("FailIndex"), (0, 0), "Running", None),
        row(0, Some("Ignore"), (0, 0), "Running", Some((0, 1))),
        row(2, Some("Ignore"), (2, 3), "Running", Some((2, 4))),
    ] {
        check(&row, false);
        if row.replacement.is_some() && row.action != Some("Ignore") {
            check(&row, true);
        }
    }
}

/// BLPI-6: the back-off of the index counts from the deletion.
#[test]
fn the_replacement_of_a_pod_that_was_given_up_waits_for_the_back_off_of_its_index() {
    // After the fifth failure: 160 s.
    let mut bench = leader(&waiting_job(9, None), going(20, "Running", (4, 0)));
    look(&mut bench, 25);
    bench.ledger.pod_given_up(&uid("p"));
    let plan = bench.plan();
    bench.written(&plan, 30);
    let plan = bench.plan();
    assert!(plan.creations.is_empty());
    assert_eq!(bench.wakes_in(&plan), Some(160_000 - WAIT));
    bench.passes(160_000 - WAIT);
    assert_eq!(counts(&bench.plan()), [(Some(0), Some(5), 0)]);
}

/// A success that it shows before its failure is stored is its outcome.
#[test]
fn a_pod_that_succeeds_before_it_is_recorded_completes_its_index() {
    let mut bench = leader(&waiting_job(2, None), going(20, "Running", (0, 0)));
    look(&mut bench, 25);
    bench.ledger.pod_given_up(&uid("p"));
    bench.sees(going(22, "Succeeded", (0, 0)));
    let plan = bench.plan();
    let status = &plan.status.as_ref().expect("an index is complete").status;
    assert_eq!((&*status.completed_indexes, status.uncounted().failed.len()), ("0", 0));
    assert!(plan.creations.is_empty());
}

/// Without the annotation a recorded Pod is released at once, as before.
#[test]
fn only_jobs_with_the_annotation_keep_recorded_pods() {
    for (annotated, released) in [(true, &[][..]), (false, &["p"])] {
        let mut job = waiting_job(2, None);
        if !annotated {
            job["metadata"]["annotations"] = json!({});
        }
        job["status"]["uncountedTerminatedPods"] = json!({"failed": ["p"]});
        let mut bench = leader(&job, going(20, "Failed", (0, 0)));
        assert_eq!(names(&bench.plan().releases), released, "annotated: {annotated}");
    }
}

/// REPL-9, STATUSVAL-18: a Pod that was given up is in `terminating` while the Job runs, and does not delay its end.
#[test]
fn a_fenced_pod_is_among_those_that_terminate_until_the_job_ends() {
    let mut object = job(json!({"podReplacementPolicy": "Failed"}));
    object["metadata"]["annotations"] = json!({"tally.dev/replace-terminating-after": "60s"});
    let mut bench = Bench::new(&object);
    bench.sees(deleting(pod("p", 20, "Running")));
    bench.passes(WAIT);
    look(&mut bench, 25);
    bench.ledger.pod_given_up(&uid("p"));
    let plan = bench.plan();
    assert_eq!(told(&bench.stored(&plan, 30)).1, Some(1));
    bench.written(&plan, 30);
    let plan = bench.plan();
    assert_eq!((plan.creations.len(), names(&plan.releases)), (1, vec!["p"]), "it keeps no place");
    let name = plan.creations[0].name.clone();
    bench.ledger.pod_answered(&uid("p"));
    bench.sees(released(deleting(pod("p", 51, "Running"))));
    created_as(&mut bench, &pod(&name, 52, "Running"));
    bench.passes(10_000);
    let plan = bench.plan();
    assert_eq!(told(&bench.stored(&plan, 60)), (1, Some(1), Vec::new(), 1, String::new()));
    bench.written(&plan, 60);
    let mut revision = 60;
    bench.sees(pod(&name, 61, "Succeeded"));
    for _ in 0..10 {
        bench.passes(10_000);
        let plan = bench.plan();
        if !plan.releases.is_empty() {
            bench.ledger.pod_answered(&uid(&name));
            bench.sees(released(pod(&name, 62, "Succeeded")));
        }
        if plan.status.is_some() {
            revision += 10;
            bench.written(&plan, revision);
        }
    }
    let status = &bench.ledger.job().status;
    assert!(status.is_finished(), "{status:?}");
    assert_eq!((status.succeeded, status.failed, status.terminating), (1, 1, Some(0)));
}
