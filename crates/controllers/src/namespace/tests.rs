use super::*;
use tally_runtime::testing::{Probe, done, refused};

const KINDS: [Kind; 4] = [Kind::CONFIG_MAP, Kind::POD, Kind::NODE, Kind::JOB];
const NOTHING: [&str; 0] = [];

fn namespace(name: &str, uid: &str, revision: u64) -> Value {
    json!({
        "metadata": {
            "name": name, "uid": uid, "resourceVersion": revision.to_string(), "labels": {"a": "b"},
            // Long ago: the grace is over.
            "deletionTimestamp": "2023-01-01T00:00:00Z",
        },
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Terminating"},
    })
}

fn item(name: &str, finalizers: &[&str]) -> Value {
    json!({"metadata": {"name": name, "namespace": "a", "uid": name, "resourceVersion": "5", "finalizers": finalizers}})
}

fn listed(items: &[Value]) -> Reply {
    Reply::Listed { items: items.iter().map(|item| item.to_string().into()).collect(), at: Revision(50) }
}

type Bench = Probe<Namespaces>;

fn started(namespaces: &[Value]) -> Bench {
    let mut probe = Probe::new(Namespaces::new(KINDS.to_vec()));
    probe.lists(Kind::NAMESPACE, namespaces, 10);
    [Kind::CONFIG_MAP, Kind::JOB, Kind::POD].into_iter().for_each(|kind| probe.lists(kind, &[], 10));
    probe
}

/// Expects these requests, one after the other, and responds to them.
fn goes(probe: &mut Bench, replies: &[(&str, Reply)]) {
    for (expected, reply) in replies {
        assert_eq!(probe.asks(), [*expected]);
        probe.answer(0, reply.clone());
    }
}

fn trouble(probe: &Bench) -> Vec<String> {
    let body = probe.body(0);
    let conditions = body["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 5);
    let troubled = conditions.iter().filter(|condition| condition["status"] == "True");
    troubled.map(|condition| format!("{}: {}", condition["reason"], condition["message"]).replace('"', "")).collect()
}

/// The response to a status write: the requested status, at this revision.
fn told(probe: &mut Bench, revision: u64) {
    assert_eq!(probe.asks(), ["merge namespaces /a/status"]);
    let mut object = namespace("a", "u", revision);
    object["status"] = probe.body(0)["status"].clone();
    probe.answer(0, done(object));
}

/// A client that creates an object there in the next moment must learn that the namespace is terminating, and not that
/// it is unknown.
#[test]
fn a_namespace_that_was_just_deleted_is_left_alone_for_a_moment() {
    let mut probe = Probe::new(Namespaces::new(KINDS.to_vec()));
    let mut just_deleted = namespace("a", "u", 10);
    just_deleted["metadata"]["deletionTimestamp"] = probe.now.to_string().into();
    probe.lists(Kind::NAMESPACE, &[just_deleted], 10);
    probe.lists(Kind::POD, &[], 10);
    assert_eq!(probe.asks(), NOTHING);
    probe.passes(4_999);
    assert_eq!(probe.asks(), NOTHING);
    probe.passes(1);
    assert_eq!(probe.asks(), ["list pods a/"]);
}

#[test]
fn an_empty_namespace_is_told_and_let_go() {
    let mut probe = started(&[namespace("a", "u", 3)]);
    let empty = listed(&[]);
    goes(
        &mut probe,
        &[("list pods a/", empty.clone()), ("list configmaps a/", empty.clone()), ("list jobs a/", empty)],
    );
    assert_eq!(probe.asks(), ["merge namespaces /a/status"]);
    assert_eq!(probe.body(0)["metadata"], json!({"uid": "u", "resourceVersion": "3"}));
    assert_eq!(trouble(&probe), NOTHING);
    let mut object = namespace("a", "u", 11);
    object["status"] = probe.body(0)["status"].clone();
    probe.answer(0, done(object.clone()));
    assert_eq!(probe.asks(), ["update namespaces /a/finalize"]);
    object["spec"]["finalizers"] = json!([]);
    object["apiVersion"] = "v1".into();
    object["kind"] = "Namespace".into();
    assert_eq!(probe.body(0), object, "the rest of it stays as it is, and only at this revision");
    probe.answer(0, done(object));
    probe.gone(Kind::NAMESPACE, namespace("a", "u", 12));
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), None));
    assert!(probe.controller.ending.is_empty() && probe.controller.asked.is_empty());
}

#[test]
fn namespaces_that_stay_or_wait_for_others_are_left_alone() {
    let mut living = namespace("a", "u", 3);
    living["metadata"]["deletionTimestamp"].take();
    let mut finished = namespace("b", "v", 4);
    finished["spec"] = json!({});
    let mut foreign = namespace("c", "w", 5);
    foreign["spec"]["finalizers"] = json!(["example.com/hold"]);
    let mut probe = started(&[living, finished, foreign]);
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), None));
}

#[test]
fn pods_go_first_and_the_rest_waits_for_them() {
    let mut probe = started(&[namespace("a", "u", 3)]);
    let (p, q) = (item("p", &[]), item("q", &["x.io/f"]));
    goes(
        &mut probe,
        &[
            ("list pods a/", listed(&[p.clone(), q.clone()])),
            ("delete all pods a/", Reply::DoneWithStatus),
            ("list pods a/", listed(&[p.clone(), q.clone()])),
        ],
    );
    assert_eq!(probe.asks(), ["merge namespaces /a/status"]);
    assert_eq!(
        trouble(&probe),
        [
            "SomeResourcesRemain: Some resources are remaining: pods. has 2 resource instances",
            "SomeFinalizersRemain: Some content in the namespace has finalizers remaining: x.io/f in 1 resource instances",
        ]
    );
    let mut object = namespace("a", "u", 11);
    object["status"] = probe.body(0)["status"].clone();
    probe.answer(0, done(object.clone()));
    probe.sees(Kind::NAMESPACE, object);
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(250)));
    probe.gone(Kind::POD, p);
    assert_eq!(probe.asks(), NOTHING, "there is one more");
    probe.gone(Kind::POD, q);
    assert_eq!(probe.wakes_in(), None);
    let empty = listed(&[]);
    let c = item("c", &[]);
    goes(
        &mut probe,
        &[
            ("list pods a/", empty.clone()),
            ("list configmaps a/", listed(&[c])),
            ("delete all configmaps a/", Reply::DoneWithStatus),
            ("list configmaps a/", empty.clone()),
            ("list jobs a/", empty),
        ],
    );
    told(&mut probe, 12);
    assert_eq!(probe.asks(), ["update namespaces /a/finalize"]);
}

/// A Job keeps a failed Pod of an index until there is a replacement, which is never created here. Found by the
/// simulator.
#[test]
fn pods_that_only_their_job_holds_do_not_hold_up_the_job() {
    const TRACKED: &str = "batch.kubernetes.io/job-tracking";
    for (phase, finalizers, goes_on) in [
        ("Failed", &[TRACKED][..], true),
        ("Succeeded", &[TRACKED], true),
        ("Running", &[TRACKED], false),
        ("Failed", &[TRACKED, "x.io/f"], false),
        ("Failed", &["x.io/f"], false),
        ("Failed", &[], false),
    ] {
        let mut probe = started(&[namespace("a", "u", 3)]);
        let mut pod = item("p", finalizers);
        pod["status"] = json!({"phase": phase});
        let pods = || listed(std::slice::from_ref(&pod));
        let emptied =
            [("list pods a/", pods()), ("delete all pods a/", Reply::DoneWithStatus), ("list pods a/", pods())];
        goes(&mut probe, &emptied);
        told(&mut probe, 11);
        assert_eq!(probe.asks(), NOTHING, "its Job may yet count it");
        probe.passes(250);
        goes(&mut probe, &emptied);
        let expected: &[&str] = if goes_on { &["list configmaps a/"] } else { &[] };
        assert_eq!(probe.asks(), expected, "{phase} {finalizers:?}");
    }
}

#[test]
fn content_is_deleted_in_the_background() {
    let mut probe = started(&[namespace("a", "u", 3)]);
    goes(&mut probe, &[("list pods a/", listed(&[item("p", &[])]))]);
    assert_eq!(probe.asks(), ["delete all pods a/"]);
    assert_eq!(probe.body(0)["propagationPolicy"], "Background");
}

/// A namespace whose only object has a finalizer, as its status says.
fn held() -> Bench {
    let mut probe = started(&[namespace("a", "u", 3)]);
    let c = item("c", &["x.io/f"]);
    goes(
        &mut probe,
        &[
            ("list pods a/", listed(&[])),
            ("list configmaps a/", listed(std::slice::from_ref(&c))),
            ("delete all configmaps a/", Reply::DoneWithStatus),
            ("list configmaps a/", listed(&[c])),
            ("list jobs a/", listed(&[])),
        ],
    );
    told(&mut probe, 11);
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(250)));
    probe
}

#[test]
fn without_news_it_looks_again_less_and_less_often() {
    let mut probe = held();
    for wait in [500, 1000] {
        probe.passes(wait / 2);
        let c = item("c", &["x.io/f"]);
        goes(
            &mut probe,
            &[
                ("list pods a/", listed(&[])),
                ("list configmaps a/", listed(std::slice::from_ref(&c))),
                ("delete all configmaps a/", Reply::DoneWithStatus),
                ("list configmaps a/", listed(&[c])),
                ("list jobs a/", listed(&[])),
            ],
        );
        assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(wait)), "there is nothing new to tell");
    }
}

#[test]
fn a_stream_that_begins_anew_may_have_missed_something() {
    let mut probe = held();
    probe.lists(Kind::CONFIG_MAP, &[], 60);
    assert_eq!(probe.asks(), ["list pods a/"]);
}

#[test]
fn what_goes_while_a_list_is_under_way_is_not_waited_for() {
    let mut probe = started(&[namespace("a", "u", 3)]);
    let p = item("p", &[]);
    goes(
        &mut probe,
        &[("list pods a/", listed(std::slice::from_ref(&p))), ("delete all pods a/", Reply::DoneWithStatus)],
    );
    assert_eq!(probe.asks(), ["list pods a/"]);
    probe.gone(Kind::POD, p.clone());
    probe.answer(0, listed(&[p]));
    told(&mut probe, 11);
    assert_eq!(probe.asks(), ["list pods a/"], "a new pass at once");
}

#[test]
fn trouble_is_told_and_does_not_stop_the_rest() {
    let mut probe = started(&[namespace("a", "u", 3)]);
    let forbidden = || {
        let Reply::Refused(refusal) = refused(403, "Forbidden") else { unreachable!() };
        Reply::Refused(tally_runtime::controller::Refusal { message: "you may not".to_owned(), ..refusal })
    };
    goes(
        &mut probe,
        &[
            ("list pods a/", refused(404, "NotFound")),
            ("list configmaps a/", listed(&[item("c", &[])])),
            ("delete all configmaps a/", forbidden()),
            ("list configmaps a/", listed(&[item("c", &[])])),
            ("list jobs a/", Reply::Unknown),
        ],
    );
    assert_eq!(probe.asks(), ["merge namespaces /a/status"]);
    assert_eq!(
        trouble(&probe),
        [
            "ContentDeletionFailed: Failed to delete all resource types, 2 remaining: you may not, the server did not answer",
            "SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances",
        ]
    );
    probe.answer(0, refused(409, "Conflict"));
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(250)));
}

#[test]
fn a_namespace_that_changed_is_finished_as_it_is_now() {
    let mut probe = started(&[namespace("a", "u", 3)]);
    let empty = || [("list pods a/", listed(&[])), ("list configmaps a/", listed(&[])), ("list jobs a/", listed(&[]))];
    goes(&mut probe, &empty());
    told(&mut probe, 11);
    assert_eq!(probe.asks(), ["update namespaces /a/finalize"]);
    let mut newer: Value = probe.body(0);
    newer["spec"]["finalizers"] = json!(["kubernetes"]);
    newer["metadata"]["labels"]["c"] = "d".into();
    newer["metadata"]["resourceVersion"] = "12".into();
    probe.answer(0, refused(409, "Conflict"));
    probe.sees(Kind::NAMESPACE, newer);
    probe.passes(250);
    goes(&mut probe, &empty());
    assert_eq!(probe.asks(), ["update namespaces /a/finalize"], "it was told already");
    assert_eq!(probe.body(0)["metadata"]["labels"], json!({"a": "b", "c": "d"}));
    assert_eq!(probe.body(0)["metadata"]["resourceVersion"], "12");
}

#[test]
fn the_next_of_the_same_name_begins_anew() {
    let mut probe = started(&[namespace("a", "u", 3)]);
    assert_eq!(probe.asks(), ["list pods a/"]);
    probe.gone(Kind::NAMESPACE, namespace("a", "u", 11));
    probe.sees(Kind::NAMESPACE, namespace("a", "v", 12));
    probe.answer(0, listed(&[]));
    assert_eq!(probe.asks(), ["list pods a/"]);
    // A namespace that was deleted unobserved is not processed forever.
    probe.lists(Kind::NAMESPACE, &[], 20);
    probe.answer(0, listed(&[]));
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), None));
    assert!(probe.controller.ending.is_empty());
}

#[test]
fn namespaces_worked_on_at_once_are_bounded() {
    for (count, first) in [(15, 15), (16, 16), (17, 16)] {
        let namespaces: Vec<_> = (0..count).map(|nth| namespace(&format!("n{nth}"), &format!("u{nth}"), 3)).collect();
        let mut probe = started(&namespaces);
        assert_eq!(probe.asks().len(), first);
        probe.answer(0, listed(&[]));
        assert_eq!(probe.asks().len(), 1, "one comes in for each that is answered");
    }
}
