use serde_json::{Value, json};

use super::*;
use tally_runtime::testing::{Probe, done, refused};

const NOTHING: [&str; 0] = [];
const DELETED: &str = "2026-01-01T00:00:00Z";

fn pod(name: &str, node: &str, phase: &str, revision: u64) -> Value {
    json!({
        "metadata": {
            "namespace": "ns", "name": name, "uid": format!("pod-{name}"),
            "resourceVersion": revision.to_string(), "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"nodeName": node},
        "status": {"phase": phase},
    })
}

fn deleted(mut pod: Value, grace: i64) -> Value {
    pod["metadata"]["deletionTimestamp"] = DELETED.into();
    pod["metadata"]["deletionGracePeriodSeconds"] = grace.into();
    pod
}

fn node(name: &str, ready: &str, taints: &[&str]) -> Value {
    let taints: Vec<_> = taints.iter().map(|key| json!({"key": key, "effect": "NoExecute"})).collect();
    json!({
        "metadata": {"name": name, "uid": format!("node-{name}"), "resourceVersion": "1"},
        "spec": {"taints": taints},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    })
}

fn started(nodes: &[Value], pods: &[Value]) -> Probe<PodGc> {
    with(PodGcOptions::default(), nodes, pods)
}

fn with(options: PodGcOptions, nodes: &[Value], pods: &[Value]) -> Probe<PodGc> {
    let mut probe = Probe::new(PodGc::new(options));
    probe.lists(Kind::POD, pods, 100);
    assert_eq!(probe.wakes_in(), None, "no node is known yet");
    probe.lists(Kind::NODE, nodes, 100);
    probe
}

fn options(uid: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": uid},
    })
}

#[test]
fn pods_of_a_node_that_is_gone_fail_and_are_deleted() {
    let mut running = pod("a", "gone", "Running", 7);
    running["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    let pods = [running, pod("b", "gone", "Succeeded", 8), pod("c", "n", "Running", 9)];
    let mut probe = started(&[node("n", "True", &[])], &pods);
    assert_eq!(probe.wakes_in(), Some(40_000));
    probe.passes(39_999);
    assert_eq!(probe.asks(), NOTHING);
    probe.passes(1);
    assert_eq!(probe.asks(), ["get nodes /gone"]);
    probe.answer(0, refused(404, "NotFound"));
    assert_eq!(probe.asks(), ["patch pods ns/a/status", "delete pods ns/b"]);
    let expected = json!({
        "metadata": {"uid": "pod-a", "resourceVersion": "7"},
        "status": {
            "phase": "Failed", "observedGeneration": 3,
            "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "DisruptionTarget"}],
            "conditions": [{
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "observedGeneration": 3,
                "message": "PodGC: node no longer exists", "lastTransitionTime": "2023-11-14T22:14:00Z",
            }],
        },
    });
    assert_eq!(probe.body(0), expected);
    assert_eq!(probe.body(1), options("pod-b"));
    probe.answer(0, done(json!({})));
    assert_eq!(probe.asks(), ["delete pods ns/a"]);
    assert_eq!(probe.body(0), options("pod-a"));
    probe.answer(0, Reply::DoneWithStatus);
    probe.gone(Kind::POD, pod("a", "gone", "Failed", 101));
    probe.gone(Kind::POD, pod("b", "gone", "Succeeded", 102));
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), None));
}

/// Of two responses about a node the older may arrive last: it says that the node is gone, although it exists again.
#[test]
fn a_node_is_looked_for_once_at_a_time() {
    let mut probe = started(&[], &[pod("a", "gone", "Running", 7)]);
    probe.passes(40_000);
    assert_eq!(probe.asks(), ["get nodes /gone"]);
    // Its Pods change, and rounds pass.
    probe.sees(Kind::POD, pod("a", "gone", "Running", 101));
    probe.sees(Kind::POD, pod("b", "gone", "Running", 102));
    probe.passes(60_000);
    assert_eq!(probe.asks(), NOTHING);
    probe.answer(0, refused(500, "InternalError"));
    probe.passes(60_000);
    assert_eq!(probe.asks(), ["get nodes /gone"], "and once more when nobody knew");
}

#[test]
fn a_clock_that_was_ahead_makes_no_quarantine_and_no_round_longer() {
    const DAY: i64 = 86_400_000;
    let mut probe = started(&[], &[]);
    probe.passes(DAY);
    probe.sees(Kind::POD, pod("a", "gone", "Running", 101));
    probe.passes(10_000);
    probe.clock_is_set_back(DAY);
    probe.passes(29_999);
    assert_eq!(probe.asks(), NOTHING);
    probe.passes(1);
    assert_eq!(probe.asks(), ["get nodes /gone"]);
    probe.passes(DAY);
    probe.answer(0, refused(500, "InternalError"));
    probe.clock_is_set_back(DAY);
    probe.passes(20_000);
    assert_eq!(probe.asks(), ["get nodes /gone"]);
}

#[test]
fn the_quarantine_is_the_nodes_and_not_the_pods() {
    let mut probe = started(&[], &[pod("a", "gone", "Running", 7)]);
    probe.passes(40_000);
    assert_eq!(probe.asks(), ["get nodes /gone"]);
    probe.answer(0, refused(404, "NotFound"));
    assert_eq!(probe.asks(), ["patch pods ns/a/status"]);
    probe.gone(Kind::POD, pod("a", "gone", "Running", 101));
    probe.answer(0, refused(404, "NotFound"));
    probe.passes(1_000_000);
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), None));

    probe.sees(Kind::POD, pod("b", "gone", "Running", 102));
    assert_eq!(probe.wakes_in(), Some(20_000), "the next round");
    probe.passes(20_000);
    assert_eq!(probe.asks(), ["get nodes /gone"], "it may have come back");
    probe.answer(0, refused(404, "NotFound"));
    assert_eq!(probe.asks(), ["patch pods ns/b/status"]);
}

#[test]
fn a_node_that_shows_up_keeps_its_pods() {
    let mut probe = started(&[], &[pod("a", "n", "Running", 7)]);
    probe.passes(30_000);
    probe.sees(Kind::NODE, node("n", "True", &[]));
    assert_eq!(probe.wakes_in(), None);
    probe.gone(Kind::NODE, node("n", "True", &[]));
    assert_eq!(probe.wakes_in(), Some(40_000), "from the beginning");
    probe.passes(40_000);
    assert_eq!(probe.asks(), ["get nodes /n"]);
    probe.answer(0, done(node("n", "True", &[])));
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(40_000)), "our list was old");
    probe.passes(40_000);
    assert_eq!(probe.asks(), ["get nodes /n"]);
    probe.answer(0, Reply::Unknown);
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(20_000)), "nobody knows");
    probe.passes(20_000);
    assert_eq!(probe.asks(), ["get nodes /n"]);
    // It returns between the request and the response.
    probe.sees(Kind::NODE, node("n", "True", &[]));
    probe.answer(0, refused(404, "NotFound"));
    assert_eq!(probe.asks(), NOTHING);
}

/// Whether a round ends a Pod, and how.
/// GC-3, GC-4.
#[test]
fn which_pods_are_ended() {
    const LOST: &str = OUT_OF_SERVICE;
    let rows: [(&str, Value, Value, &[&str]); 9] = [
        (
            "deleted, never scheduled",
            node("n", "True", &[]),
            deleted(pod("a", "", "Pending", 1), 0),
            &["patch", "delete"],
        ),
        ("not deleted, not scheduled", node("n", "True", &[]), pod("a", "", "Pending", 1), &[]),
        ("held by a finalizer only", node("n", "True", &[]), deleted(pod("a", "", "Failed", 1), 0), &[]),
        ("deleted, on a node", node("n", "True", &[]), deleted(pod("a", "n", "Running", 1), 30), &[]),
        ("deleted, on a dead node", node("n", "False", &[]), deleted(pod("a", "n", "Running", 1), 30), &[]),
        (
            "the same, and out of service",
            node("n", "False", &[LOST]),
            deleted(pod("a", "n", "Running", 1), 30),
            &["patch", "delete"],
        ),
        ("ended before", node("n", "False", &[LOST]), deleted(pod("a", "n", "Succeeded", 1), 30), &["delete"]),
        ("not deleted", node("n", "False", &[LOST]), pod("a", "n", "Running", 1), &[]),
        ("out of service, yet ready", node("n", "True", &[LOST]), deleted(pod("a", "n", "Running", 1), 30), &[]),
    ];
    for (what, node, pod, steps) in rows {
        let mut probe = started(&[node], &[pod]);
        assert_eq!(probe.wakes_in(), (!steps.is_empty()).then_some(20_000), "{what}");
        probe.passes(20_000);
        for step in steps {
            let sub = if *step == "patch" { "/status" } else { "" };
            assert_eq!(probe.asks(), [format!("{step} pods ns/a{sub}")], "{what}");
            if *step == "patch" {
                let status = json!({"phase": "Failed", "observedGeneration": 3});
                assert_eq!(probe.body(0)["status"], status, "{what}: no condition");
            }
            probe.answer(0, done(json!({})));
        }
        assert_eq!(probe.asks(), NOTHING, "{what}");
    }
}

#[test]
fn what_fails_is_left_to_the_next_round() {
    let mut probe = started(&[], &[deleted(pod("a", "", "Pending", 1), 0)]);
    probe.passes(20_000);
    assert_eq!(probe.asks(), ["patch pods ns/a/status"]);
    probe.answer(0, refused(409, "Conflict"));
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(20_000)), "not deleted unless it failed");
    // Meanwhile it succeeded: that stays.
    probe.sees(Kind::POD, deleted(pod("a", "", "Succeeded", 101), 30));
    probe.passes(20_000);
    assert_eq!(probe.asks(), ["delete pods ns/a"]);
    probe.answer(0, Reply::Unknown);
    probe.passes(20_000);
    assert_eq!(probe.asks(), ["delete pods ns/a"]);
}

/// GC-1.
#[test]
fn too_many_that_have_ended_go_evicted_and_oldest_first() {
    let aged = |name: &str, second: u64, phase: &str| {
        let mut pod = pod(name, "n", phase, 1);
        pod["metadata"]["creationTimestamp"] = format!("2026-01-01T00:00:{second:02}Z").into();
        pod
    };
    let mut evicted = aged("f", 50, "Failed");
    evicted["status"]["reason"] = "Evicted".into();
    let pods = [
        aged("a", 3, "Succeeded"),
        aged("b", 2, "Failed"),
        aged("c", 1, "Running"),
        aged("d", 2, "Succeeded"),
        deleted(aged("e", 0, "Succeeded"), 0),
        evicted,
    ];
    let rows: [(Option<usize>, &[&str]); 5] =
        [(None, &[]), (Some(4), &[]), (Some(3), &["f"]), (Some(1), &["b", "d", "f"]), (Some(0), &["a", "b", "d", "f"])];
    for (most, expected) in rows {
        let options = PodGcOptions { terminated_pods: most, ..PodGcOptions::default() };
        let mut probe = with(options, &[node("n", "True", &[])], &pods);
        probe.passes(20_000);
        let expected: Vec<_> = expected.iter().map(|name| format!("delete pods ns/{name}")).collect();
        assert_eq!(probe.asks(), expected, "{most:?}");
    }
}

/// GC-1: of Pods of the same age the first by name goes first, whatever the UIDs are.
#[test]
fn the_order_of_work_is_that_of_names_and_not_of_uids() {
    let named = |namespace: &str, name: &str, node: &str, uid: u32| {
        let mut pod = pod(name, node, "Running", 1);
        pod["metadata"]["namespace"] = namespace.into();
        pod["metadata"]["uid"] = format!("00000000-0000-0000-0000-{uid:012}").into();
        pod
    };
    let all = |node: &str| {
        [("ns", "b"), ("ns", "a"), ("ms", "z"), ("ns", "c")].map(|(namespace, name)| (namespace, name, node.to_owned()))
    };
    let order = ["ms/z", "ns/a", "ns/b", "ns/c"];
    let uid = |namespace: &str, name: &str| {
        9 - order.iter().position(|known| *known == format!("{namespace}/{name}")).unwrap() as u32
    };
    let pods =
        |node: &str| all(node).map(|(namespace, name, node)| named(namespace, name, &node, uid(namespace, name)));

    let ended = pods("n").map(|mut pod| {
        pod["status"]["phase"] = "Succeeded".into();
        pod
    });
    for surplus in 1..=order.len() {
        let options = PodGcOptions { terminated_pods: Some(order.len() - surplus), ..PodGcOptions::default() };
        let mut probe = with(options, &[node("n", "True", &[])], &ended);
        probe.passes(20_000);
        let expected: Vec<_> = order[..surplus].iter().map(|pod| format!("delete pods {pod}")).collect();
        assert_eq!(probe.asks(), expected);
    }

    let patches = order.map(|pod| format!("patch pods {pod}/status"));
    let mut probe = started(&[], &pods("gone"));
    probe.passes(40_000);
    assert_eq!(probe.asks(), ["get nodes /gone"]);
    probe.answer(0, refused(404, "NotFound"));
    assert_eq!(probe.asks(), patches, "of a node that is gone");
    let mut probe = started(&[], &pods("").map(|pod| deleted(pod, 0)));
    probe.passes(20_000);
    assert_eq!(probe.asks(), patches, "deleted, never scheduled");
}

/// Times that no time can be read from.
fn odd(mut pod: Value) -> Value {
    pod["status"]["conditions"] =
        json!([{"type": "Ready", "status": "False", "lastTransitionTime": "-001-12-31T23:00:00Z"}]);
    pod["status"]["containerStatuses"] = json!([{"state": {"terminated": {"finishedAt": "yesterday"}}}]);
    pod
}

#[test]
fn a_pod_whose_times_cannot_be_read_is_ended_and_forgotten_like_others() {
    let mut probe = started(&[], &[odd(pod("a", "gone", "Running", 7))]);
    assert_eq!(probe.wakes_in(), Some(40_000));
    probe.passes(40_000);
    assert_eq!(probe.asks(), ["get nodes /gone"]);
    probe.answer(0, refused(404, "NotFound"));
    assert_eq!(probe.asks(), ["patch pods ns/a/status"]);
    let order = &probe.body(0)["status"]["$setElementOrder/conditions"];
    assert_eq!(*order, json!([{"type": "Ready"}, {"type": "DisruptionTarget"}]), "the condition that it has stays");

    let options = PodGcOptions { terminated_pods: Some(1), ..PodGcOptions::default() };
    let nodes = [node("n", "True", &[])];
    let running = [pod("a", "n", "Running", 1), pod("b", "n", "Running", 2)];
    let mut probe = with(options, &nodes, &running);
    probe.sees(Kind::POD, odd(pod("a", "n", "Succeeded", 101)));
    probe.sees(Kind::POD, pod("b", "n", "Succeeded", 102));
    probe.lists(Kind::POD, &[odd(pod("a", "n", "Succeeded", 101)), pod("b", "n", "Succeeded", 102)], 103);
    probe.passes(20_000);
    assert_eq!(probe.asks(), ["delete pods ns/a"], "its end is observed");
    probe.answer(0, Reply::DoneWithStatus);
    probe.gone(Kind::POD, odd(pod("a", "n", "Succeeded", 104)));
    assert_eq!(probe.controller.ended.len(), 1);
    probe.gone(Kind::POD, odd(pod("b", "n", "Succeeded", 105)));
    assert!(probe.controller.ended.is_empty() && probe.controller.by_node.is_empty());
    probe.passes(100_000);
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), None));
}

#[test]
fn a_node_is_there_whatever_its_finalizers_and_owners_look_like() {
    for (field, value) in [("finalizers", json!("text")), ("ownerReferences", json!([{"controller": "text"}]))] {
        let mut node = node("n", "True", &[]);
        node["metadata"][field] = value;
        let probe = started(&[node], &[pod("a", "n", "Running", 7)]);
        assert_eq!(probe.wakes_in(), None, "{field}");
    }
}

#[test]
fn the_loss_of_a_large_node_is_worked_off_in_turns() {
    let pods: Vec<_> = (0..500).map(|n| pod(&format!("p{n}"), "gone", "Running", n)).collect();
    let mut probe = started(&[], &pods);
    probe.passes(40_000);
    assert_eq!(probe.asks(), ["get nodes /gone"]);
    probe.answer(0, refused(404, "NotFound"));
    let mut ended = 0;
    loop {
        let asked = probe.asks();
        assert!(asked.len() <= MOST_UNDER_WAY);
        if asked.is_empty() {
            break;
        }
        ended += asked.iter().filter(|line| line.starts_with("delete")).count();
        (0..asked.len()).for_each(|nth| probe.answer(nth, done(json!({}))));
    }
    assert_eq!(ended, 500);
}

/// GC-2, GATE-6.
#[test]
fn without_their_gates_lost_pods_get_no_condition_or_no_phase() {
    let conditions = FeatureGates::ALL_ON.with(Gate::PodDisruptionConditions, false);
    let both = conditions.with(Gate::JobPodReplacementPolicy, false);
    for (gates, first) in [
        (FeatureGates::ALL_ON, "patch pods ns/a/status"),
        (conditions, "patch pods ns/a/status"),
        (both, "delete pods ns/a"),
    ] {
        let options = PodGcOptions { gates, ..PodGcOptions::default() };
        let mut probe = with(options, &[node("n", "True", &[])], &[pod("a", "gone", "Running", 7)]);
        probe.passes(40_000);
        assert_eq!(probe.asks(), ["get nodes /gone"]);
        probe.answer(0, refused(404, "NotFound"));
        assert_eq!(probe.asks(), [first], "{gates:?}");
        if gates == conditions {
            let status = &probe.body(0)["status"];
            assert_eq!((&status["phase"], status.get("conditions")), (&json!("Failed"), None));
        }
    }
}
