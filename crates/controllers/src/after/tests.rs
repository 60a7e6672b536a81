use serde_json::{Value, json};
use tally_runtime::controller::{Kind, Reply};
use tally_runtime::testing::{Probe, done, refused};

use super::*;

fn job(name: &str, revision: u64, more: Value) -> Value {
    let mut job = json!({
        "metadata": {"namespace": "ns", "name": name, "uid": format!("u-{name}"), "resourceVersion": revision.to_string()},
        "spec": {"suspend": false, "template": {}}, "status": {},
    });
    for (pointer, value) in more.as_object().unwrap() {
        match pointer.as_str() {
            "after" => job["metadata"]["annotations"][AFTER] = value.clone(),
            "state" => job["metadata"]["annotations"][AFTER_STATE] = value.clone(),
            "uid" => job["metadata"]["uid"] = value.clone(),
            "suspend" => job["spec"]["suspend"] = value.clone(),
            "managedBy" => job["spec"]["managedBy"] = value.clone(),
            _ => job["status"]["conditions"] = json!([{"type": value, "status": "True"}]),
        }
    }
    job
}

fn waits(name: &str, revision: u64, after: &str) -> Value {
    job(name, revision, json!({"after": after, "suspend": true}))
}

fn ended(name: &str, revision: u64, end: &str) -> Value {
    job(name, revision, json!({"end": end}))
}

fn probe(jobs: &[Value]) -> Probe<AfterController> {
    let mut probe = Probe::new(AfterController::new(None));
    probe.lists(Kind::JOB, jobs, 10);
    probe
}

/// What the next request does to which Job: `resume b`, `note b`, `fail b: reason: message`.
fn next(probe: &mut Probe<AfterController>) -> String {
    let asks = probe.asks();
    let mut told = Vec::new();
    for nth in 0..asks.len() {
        let body = probe.body(nth);
        assert!(body["metadata"]["resourceVersion"].is_string(), "every write is conditional: {body}");
        let uid = body["metadata"]["uid"].as_str().unwrap();
        told.push(match (&body["spec"]["suspend"], body["status"]["conditions"].as_array()) {
            (Value::Bool(false), _) => format!("resume {uid}"),
            (_, Some(conditions)) => {
                let last = conditions.last().unwrap();
                assert_eq!(last["type"], "FailureTarget");
                format!("fail {uid}: {}: {}", last["reason"].as_str().unwrap(), last["message"].as_str().unwrap())
            }
            _ => format!("note {uid}"),
        });
    }
    told.join("; ")
}

/// ORDER-3, ORDER-4: one row per end of the other Job.
#[test]
fn a_job_begins_when_the_other_has_ended_as_it_wants() {
    let check = |after: &str, end: &str, expected: &str| {
        assert_eq!(next(&mut probe(&[ended("a", 1, end), waits("b", 2, after)])), expected, "{after} {end}");
    };
    let failed = "fail u-b: DependencyFailed: the Job a has ended";
    check("a", "Complete", "resume u-b");
    check("a", "Failed", &format!("{failed} Failed, and tally.dev/after wants it Complete"));
    check("a=Failed", "Failed", "resume u-b");
    check("a=Failed", "Complete", &format!("{failed} Complete, and tally.dev/after wants it Failed"));
    check("a=Finished", "Complete", "resume u-b");
    check("a=Finished", "Failed", "resume u-b");
    check("a", "FailureTarget", "note u-b");
    check(
        "a=Done",
        "Complete",
        "fail u-b: DependencyInvalid: the annotation tally.dev/after \"Done\" is not one of Complete, \
           Failed, Finished, for example \"prepare\" or \"prepare=Complete,cleanup=Finished\"",
    );
}

/// ORDER-3: what was seen is stored first, and the end is remembered when the Job is deleted.
#[test]
fn what_was_seen_is_stored() {
    let mut probe = probe(&[job("a", 1, json!({})), waits("b", 2, "a,c")]);
    assert_eq!(next(&mut probe), "note u-b");
    let state = probe.body(0)["metadata"]["annotations"][AFTER_STATE].clone();
    assert_eq!(state, r#"{"job":"u-b","seen":{"a":{"uid":"u-a"}}}"#);
    let mut b = waits("b", 11, "a,c");
    b["metadata"]["annotations"][AFTER_STATE] = state;
    probe.answer(0, done(b));
    assert_eq!(next(&mut probe), "", "nothing more until the other Job ends");
    probe.gone(Kind::JOB, ended("a", 12, "Complete"));
    assert_eq!(next(&mut probe), "note u-b", "the last state was the end");
    let state = probe.body(0)["metadata"]["annotations"][AFTER_STATE].clone();
    assert_eq!(state, r#"{"job":"u-b","seen":{"a":{"uid":"u-a","end":"Complete"}}}"#);

    let kept = json!({"after": "a,c", "suspend": true, "state": state});
    let mut later = self::probe(&[job("b", 13, kept), ended("c", 14, "Complete")]);
    assert_eq!(next(&mut later), "resume u-b", "after a restart, with one of the Jobs deleted");
}

/// ORDER-4, ORDER-5.
#[test]
fn a_missing_job_is_waited_for_and_a_deleted_one_is_not() {
    let mut probe = probe(&[waits("b", 2, "a")]);
    assert_eq!(next(&mut probe), "");
    let told: Vec<_> = probe.out.events.drain(..).map(|event| format!("{} {}", event.reason, event.message)).collect();
    assert_eq!(told, ["WaitingForJob the Job a does not exist; this Job starts when there is one and it is Complete"]);
    probe.sees(Kind::JOB, waits("b", 3, "a"));
    assert!(probe.out.events.is_empty(), "it is said once");
    probe.sees(Kind::JOB, job("a", 11, json!({})));
    assert_eq!(next(&mut probe), "note u-b");
    let stored = json!({"after": "a", "suspend": true, "state": r#"{"job":"u-b","seen":{"a":{"uid":"u-a"}}}"#});
    probe.answer(0, done(job("b", 12, stored.clone())));
    probe.gone(Kind::JOB, job("a", 13, json!({})));
    let lost = "fail u-b: DependencyFailed: the Job a was deleted before it was seen to end, and tally.dev/after wants it \
                Complete";
    assert_eq!(next(&mut probe), lost);
    let again = job("a", 14, json!({"uid": "another", "end": "Complete"}));
    assert_eq!(next(&mut self::probe(&[job("b", 12, stored), again])), lost, "another Job of that name is not the one");
}

/// ORDER-6.
#[test]
fn jobs_that_wait_for_each_other_all_fail() {
    let mut probe = probe(&[waits("a", 1, "b=Finished"), waits("b", 2, "c=Finished"), waits("c", 3, "a=Finished")]);
    let told = next(&mut probe);
    let cycle = |names: &str| format!("DependencyCycle: tally.dev/after: the Jobs wait for each other: {names}");
    let expected = [
        format!("fail u-a: {}", cycle("a -> b -> c -> a")),
        format!("fail u-b: {}", cycle("b -> c -> a -> b")),
        format!("fail u-c: {}", cycle("c -> a -> b -> c")),
    ];
    assert_eq!(told, expected.join("; "));
    // One of them has ended for that reason: the others are not resumed by its end.
    let mut failed = waits("a", 4, "b=Finished");
    failed["status"]["conditions"] = json!([
        {"type": "FailureTarget", "status": "True", "reason": "DependencyCycle"}, {"type": "Failed", "status": "True"},
    ]);
    let mut probe = self::probe(&[failed, waits("b", 2, "c=Finished"), waits("c", 3, "a=Finished")]);
    assert_eq!(next(&mut probe), expected[1..].join("; "));
}

/// ORDER-2: whose suspension it is.
#[test]
fn a_job_is_resumed_once() {
    let resumed = r#"{"job":"u-b","resumed":true}"#;
    let suspended = json!({"after": "a", "suspend": true, "state": resumed});
    assert_eq!(next(&mut probe(&[ended("a", 1, "Complete"), job("b", 2, suspended)])), "", "a user has suspended it");
    let copied = json!({"after": "a", "suspend": true, "state": resumed.replace("u-b", "u-x")});
    assert_eq!(next(&mut probe(&[ended("a", 1, "Complete"), job("b", 2, copied)])), "resume u-b", "a copied manifest");
    let mut by_user = probe(&[job("a", 1, json!({})), job("b", 2, json!({"after": "a"}))]);
    assert_eq!(next(&mut by_user), "note u-b", "a user has resumed it: from now on it is left alone");
    assert!(by_user.body(0)["metadata"]["annotations"][AFTER_STATE].as_str().unwrap().contains(r#""resumed":true"#));
    assert_eq!(by_user.out.events[0].reason, "AfterIgnored");
    let others = json!({"after": "a", "suspend": true, "managedBy": "example.com/other"});
    assert_eq!(next(&mut probe(&[ended("a", 1, "Complete"), job("b", 2, others)])), "", "the Job of another manager");
    let over = json!({"after": "a", "suspend": true, "end": "SuccessCriteriaMet"});
    assert_eq!(next(&mut probe(&[ended("a", 1, "Complete"), job("b", 2, over)])), "", "its end is decided");
}

/// ORDER-7.
#[test]
fn a_refused_write_is_decided_again() {
    for reply in [refused(409, "Conflict"), refused(403, "Forbidden"), Reply::Unknown] {
        let mut probe = probe(&[ended("a", 1, "Complete"), waits("b", 2, "a")]);
        assert_eq!(next(&mut probe), "resume u-b");
        probe.answer(0, reply.clone());
        assert_eq!(next(&mut probe), "", "not at once");
        probe.passes(250);
        assert_eq!(next(&mut probe), "resume u-b", "{reply:?}");
        probe.answer(0, reply);
        probe.sees(Kind::JOB, job("b", 20, json!({"after": "a", "suspend": true, "end": "FailureTarget"})));
        probe.passes(60_000);
        assert_eq!(next(&mut probe), "", "another leader has decided");
    }
}

#[test]
fn nothing_is_decided_before_the_list_is_complete() {
    let mut probe = Probe::new(AfterController::new(None));
    probe.input(Input::Init(Kind::JOB));
    let stored = json!({"after": "a", "suspend": true, "state": r#"{"job":"u-b","seen":{"a":{"uid":"u-a"}}}"#});
    probe.sees(Kind::JOB, job("b", 12, stored));
    assert_eq!(next(&mut probe), "");
    probe.sees(Kind::JOB, ended("a", 2, "Complete"));
    probe.input(Input::InitDone(Kind::JOB, tally_core::ids::Revision(12)));
    assert_eq!(next(&mut probe), "resume u-b");
}
