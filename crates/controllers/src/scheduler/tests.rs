use serde_json::{Value, json};

use super::*;
use tally_runtime::testing::{Probe, done, refused};

const NOTHING: [&str; 0] = [];

/// A node with two processors, 4 GiB and room for ten Pods, with `more` merged in.
fn node(name: &str, more: Value) -> Value {
    let mut node = json!({
        "metadata": {"name": name, "uid": format!("node-{name}"), "resourceVersion": "1", "labels": {"zone": "a"}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    merge(&mut node, more);
    node
}

/// A Pod that waits, with `more` merged in.
fn pod(name: &str, revision: u64, more: Value) -> Value {
    let mut pod = json!({
        "metadata": {
            "namespace": "ns", "name": name, "uid": format!("pod-{name}"), "resourceVersion": revision.to_string(),
            "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c"}]},
        "status": {"phase": "Pending"},
    });
    merge(&mut pod, more);
    pod
}

fn asking_for(name: &str, revision: u64, cpu: &str) -> Value {
    pod(name, revision, json!({"spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}}))
}

fn on(mut pod: Value, node: &str, phase: &str) -> Value {
    merge(&mut pod, json!({"spec": {"nodeName": node}, "status": {"phase": phase}}));
    pod
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn at_revision(mut object: Value, revision: u64) -> Value {
    object["metadata"]["resourceVersion"] = revision.to_string().into();
    object
}

fn started(nodes: &[Value], pods: &[Value]) -> Probe<Scheduler> {
    let mut probe = Probe::new(Scheduler::default());
    probe.lists(Kind::POD, pods, 100);
    assert_eq!(probe.asks(), NOTHING, "no node is known yet");
    probe.lists(Kind::NODE, nodes, 100);
    probe
}

/// The Pods that the last requests assigned to a node, and which node.
fn placed(probe: &mut Probe<Scheduler>) -> Vec<String> {
    let asked = probe.asks();
    let place = |(nth, line): (usize, &String)| {
        let body = probe.body(nth);
        let (name, node) = (&body["metadata"]["name"], &body["target"]["name"]);
        assert_eq!(*line, format!("create pods ns/{}/binding", name.as_str().unwrap()));
        assert_eq!(body["metadata"]["uid"], format!("pod-{}", name.as_str().unwrap()));
        format!("{}>{}", name.as_str().unwrap(), node.as_str().unwrap())
    };
    asked.iter().enumerate().map(place).collect()
}

#[test]
fn a_pod_is_bound_by_the_first_request_after_it_is_seen() {
    let mut probe = started(&[node("n", json!({}))], &[]);
    probe.sees(Kind::POD, pod("a", 101, json!({})));
    assert_eq!(probe.asks(), ["create pods ns/a/binding"]);
    let expected = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"namespace": "ns", "name": "a", "uid": "pod-a"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
    });
    assert_eq!(probe.body(0), expected);
    // The stream may be faster than the response.
    probe.sees(Kind::POD, on(pod("a", 102, json!({})), "n", "Pending"));
    probe.answer(0, done(json!({"kind": "Status", "metadata": {}})));
    assert_eq!(probe.events(), ["a Scheduled: Successfully assigned ns/a to n"]);
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), None));
}

#[test]
fn pods_that_do_not_wait_for_us_are_left_alone() {
    for (why, more) in [
        ("bound", json!({"spec": {"nodeName": "n"}})),
        ("another scheduler", json!({"spec": {"schedulerName": "mine"}})),
        ("gated", json!({"spec": {"schedulingGates": [{"name": "g"}]}})),
        ("deleting", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
        ("failed", json!({"status": {"phase": "Failed"}})),
    ] {
        let mut probe = started(&[node("n", json!({}))], &[pod("a", 1, more)]);
        assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), None), "{why}");
    }
    let mut probe =
        started(&[node("n", json!({}))], &[pod("a", 1, json!({"spec": {"schedulingGates": [{"name": "g"}]}}))]);
    probe.sees(Kind::POD, pod("a", 101, json!({"spec": {"schedulingGates": []}})));
    assert_eq!(placed(&mut probe), ["a>n"], "the gate is open");
}

/// Where a Pod is assigned, or which reason it gets, given three nodes.
#[test]
fn a_pod_goes_where_it_may_and_fits() {
    let nodes = [
        node(
            "n1",
            json!({"metadata": {"labels": {"zone": "b", "rank": "7"}}, "status": {"allocatable": {"x.io/gpu": "2"}}}),
        ),
        node("n2", json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}})),
        node("n3", json!({"spec": {"unschedulable": true}})),
    ];
    let requests = |amounts: Value| json!({"containers": [{"resources": {"requests": amounts}}]});
    let term = |key: &str, operator: &str, values: Value| {
        let expression = json!({"key": key, "operator": operator, "values": values});
        let kind = if key == "metadata.name" { "matchFields" } else { "matchExpressions" };
        let terms = json!([{"matchExpressions": []}, {kind: [expression]}]);
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
    };
    let tolerate = |toleration: Value| {
        let mut spec = term("metadata.name", "NotIn", json!(["n1"]));
        spec["tolerations"] = json!([toleration]);
        spec
    };
    let others = "1 node(s) had untolerated taint {k: v}, 1 node(s) were unschedulable";
    let unwanted = format!("!0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, {others}.");
    let lacks = |what: &str| format!("!0/3 nodes are available: 1 Insufficient {what}, {others}.");
    let rows = [
        (json!({}), "n1".to_owned()),
        (requests(json!({"cpu": "2", "memory": "4Gi"})), "n1".to_owned()),
        (requests(json!({"cpu": "2001m"})), lacks("cpu")),
        (requests(json!({"memory": "4097Mi"})), lacks("memory")),
        (requests(json!({"cpu": 3, "memory": "5Gi"})), lacks("cpu, 1 Insufficient memory")),
        (requests(json!({"x.io/gpu": "2"})), "n1".to_owned()),
        (requests(json!({"x.io/gpu": "3"})), lacks("x.io/gpu")),
        (requests(json!({"ephemeral-storage": "1"})), lacks("ephemeral-storage")),
        (requests(json!({"ephemeral-storage": "0"})), "n1".to_owned()),
        (json!({"nodeSelector": {"zone": "b"}}), "n1".to_owned()),
        (json!({"nodeSelector": {"zone": "c"}}), unwanted.clone()),
        (json!({"nodeSelector": {"zone": "b", "more": ""}}), unwanted.clone()),
        (term("zone", "In", json!(["x", "b"])), "n1".to_owned()),
        (term("zone", "In", json!(["x"])), unwanted.clone()),
        (term("zone", "NotIn", json!(["b"])), unwanted.clone()),
        (term("none", "NotIn", json!(["b"])), "n1".to_owned()),
        (term("zone", "Exists", json!(null)), "n1".to_owned()),
        (term("zone", "DoesNotExist", json!(null)), unwanted.clone()),
        (term("rank", "Gt", json!(["6"])), "n1".to_owned()),
        (term("rank", "Gt", json!(["7"])), unwanted.clone()),
        (term("rank", "Lt", json!(["8"])), "n1".to_owned()),
        (term("zone", "Lt", json!(["8"])), unwanted.clone()),
        (term("metadata.name", "In", json!(["n1"])), "n1".to_owned()),
        (tolerate(json!({"operator": "Exists"})), "n2".to_owned()),
        (tolerate(json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"})), "n2".to_owned()),
        (tolerate(json!({"key": "k", "value": "v"})), "n2".to_owned()),
        (tolerate(json!({"key": "k", "value": "w"})), unwanted.clone()),
        (tolerate(json!({"key": "k", "value": "v", "effect": "NoExecute"})), unwanted.clone()),
        (tolerate(json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"})), "n3".to_owned()),
    ];
    for (spec, expected) in rows {
        let mut probe = started(&nodes, &[pod("a", 1, json!({"spec": spec}))]);
        probe.passes(1000);
        let asked = probe.asks();
        let body = probe.body(0);
        let told = match asked[0].as_str() {
            "create pods ns/a/binding" => body["target"]["name"].as_str().unwrap().to_owned(),
            _ => format!("!{}", body["status"]["conditions"][0]["message"].as_str().unwrap()),
        };
        assert_eq!(told, expected, "{spec}");
    }
}

#[test]
fn nodes_that_are_not_ready_are_as_tainted() {
    for conditions in [json!([]), json!([{"type": "Ready", "status": "Unknown"}])] {
        let broken = node("n", json!({"status": {"conditions": conditions}}));
        let mut probe = started(&[broken], &[pod("a", 1, json!({}))]);
        probe.passes(1000);
        assert_eq!(probe.asks(), ["patch pods ns/a/status"]);
        let message = &probe.body(0)["status"]["conditions"][0]["message"];
        assert_eq!(
            message,
            "0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }."
        );
        probe.sees(Kind::NODE, at_revision(node("n", json!({})), 101));
        assert_eq!(placed(&mut probe), ["a>n"]);
    }
}

#[test]
fn a_pod_takes_what_it_needs_at_most_at_any_time() {
    let one = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
    let sidecar = |cpu: &str| json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
    for (spec, cpu) in [
        (json!({"containers": [one("100m"), one("200m")]}), 300),
        (json!({"containers": [one("100m")], "initContainers": [one("50m"), one("400m")]}), 400),
        (json!({"containers": [one("100m")], "initContainers": [one("50m"), one("90m")]}), 100),
        (json!({"containers": [one("100m")], "initContainers": [sidecar("30m"), one("90m")]}), 130),
        (json!({"containers": [one("100m")], "initContainers": [sidecar("30m"), one("200m")]}), 230),
        (json!({"containers": [one("100m")], "initContainers": [one("200m"), sidecar("30m")]}), 200),
        (json!({"containers": [one("100m")], "overhead": {"cpu": "5m"}}), 105),
        (
            json!({"containers": [one("100m")], "resources": {"requests": {"cpu": "1"}}, "overhead": {"cpu": "5m"}}),
            1005,
        ),
        (json!({"containers": [{}]}), 0),
    ] {
        let object = Object::from(pod("a", 1, json!({"spec": spec})).to_string());
        let read = Pod::read(&PodView::of(&object).unwrap(), &object, None).unwrap();
        assert_eq!((read.requirements.requests.get("cpu"), read.requirements.requests.get("pods")), (cpu, 1), "{spec}");
    }
}

#[test]
fn the_least_taken_node_comes_first_and_the_first_of_equals() {
    let nodes = [node("n2", json!({})), node("n1", json!({})), node("n3", json!({}))];
    let running = on(asking_for("x", 1, "1"), "n1", "Running");
    let ended = on(asking_for("y", 1, "2"), "n2", "Succeeded");
    let pods = [running, ended, asking_for("a", 2, "1"), asking_for("b", 3, "500m"), asking_for("c", 4, "1")];
    let mut probe = started(&nodes, &pods);
    assert_eq!(placed(&mut probe), ["a>n2", "b>n3", "c>n3"]);
}

#[test]
fn the_number_of_pods_is_limited_too() {
    let small = node("n", json!({"status": {"allocatable": {"pods": "1"}}}));
    let mut probe = started(&[small], &[pod("a", 1, json!({})), pod("b", 2, json!({}))]);
    assert_eq!(placed(&mut probe), ["a>n"]);
    probe.passes(1000);
    assert_eq!(probe.asks(), ["patch pods ns/b/status"]);
    assert_eq!(probe.body(0)["status"]["conditions"][0]["message"], "0/1 nodes are available: 1 Too many pods.");
}

#[test]
fn priority_comes_first_then_age_then_revision() {
    let aged = |name: &str, revision: u64, priority: i64, created: &str| {
        pod(name, revision, json!({"spec": {"priority": priority}, "metadata": {"creationTimestamp": created}}))
    };
    let pods = [
        aged("a", 9, 0, "2026-01-01T00:00:02Z"),
        aged("b", 8, 0, "2026-01-01T00:00:02Z"),
        aged("c", 7, 0, "2026-01-01T00:00:01Z"),
        aged("d", 6, 5, "2026-01-01T00:00:09Z"),
    ];
    let mut probe = started(&[node("n", json!({}))], &pods);
    assert_eq!(placed(&mut probe), ["d>n", "c>n", "b>n", "a>n"]);
}

#[test]
fn a_pod_that_does_not_fit_blocks_no_other_and_is_tried_when_something_ends() {
    let x = on(asking_for("x", 1, "1500m"), "n", "Running");
    let pods = [x.clone(), asking_for("large", 2, "1"), asking_for("small", 3, "500m"), asking_for("other", 4, "500m")];
    let mut probe = started(&[node("n", json!({}))], &pods);
    assert_eq!(placed(&mut probe), ["small>n"]);
    probe.sees(Kind::POD, on(at_revision(x, 101), "n", "Succeeded"));
    assert_eq!(placed(&mut probe), ["large>n", "other>n"]);
}

#[test]
fn what_frees_room() {
    let holder = on(asking_for("x", 1, "2"), "n", "Running");
    let begin = || {
        let mut probe = started(&[node("n", json!({}))], &[holder.clone(), asking_for("a", 2, "1")]);
        assert_eq!(probe.asks(), NOTHING);
        probe
    };
    let mut probe = begin();
    probe.gone(Kind::POD, at_revision(holder.clone(), 101));
    assert_eq!(placed(&mut probe), ["a>n"], "a Pod went");

    let mut probe = begin();
    probe.lists(Kind::POD, &[asking_for("a", 2, "1")], 102);
    assert_eq!(placed(&mut probe), ["a>n"], "a Pod is not in a new list");

    let mut probe = begin();
    probe.sees(Kind::NODE, at_revision(node("n", json!({"status": {"allocatable": {"cpu": "3"}}})), 101));
    assert_eq!(placed(&mut probe), ["a>n"], "a node grew");

    let mut probe = begin();
    probe.sees(Kind::NODE, node("m", json!({})));
    assert_eq!(placed(&mut probe), ["a>m"], "a node came");

    let mut probe = begin();
    let mut namesake = on(asking_for("x", 101, "100m"), "n", "Running");
    namesake["metadata"]["uid"] = "another".into();
    probe.sees(Kind::POD, namesake);
    assert_eq!(placed(&mut probe), ["a>n"], "another Pod of the same name");

    let mut probe = begin();
    let mut smaller = on(at_revision(asking_for("x", 1, "1"), 101), "n", "Running");
    smaller["metadata"]["generation"] = 2.into();
    probe.sees(Kind::POD, smaller);
    assert_eq!(placed(&mut probe), ["a>n"], "a Pod was made smaller");
}

/// Times that no time can be read from.
fn odd(mut pod: Value) -> Value {
    let conditions = json!([{"type": "Ready", "status": "False", "lastTransitionTime": "-001-12-31T23:00:00Z"}]);
    let containers = json!([{"state": {"terminated": {"finishedAt": "yesterday"}}}]);
    merge(&mut pod, json!({"status": {"conditions": conditions, "containerStatuses": containers}}));
    pod
}

#[test]
fn a_pod_whose_times_cannot_be_read_takes_room_and_frees_it_like_others() {
    let holder = || on(asking_for("x", 1, "2"), "n", "Running");
    let ended = |revision: u64| odd(on(at_revision(holder(), revision), "n", "Succeeded"));
    for before in [holder(), odd(holder())] {
        let begin = || {
            let mut probe = started(&[node("n", json!({}))], &[before.clone(), asking_for("a", 2, "1")]);
            assert_eq!(probe.asks(), NOTHING, "its room is taken");
            probe
        };
        let mut probe = begin();
        probe.lists(Kind::POD, &[odd(holder()), asking_for("a", 2, "1")], 102);
        assert_eq!(placed(&mut probe), NOTHING, "it is in the list");
        probe.sees(Kind::POD, ended(103));
        assert_eq!(placed(&mut probe), ["a>n"], "it has ended");
        probe.gone(Kind::POD, ended(104));
        assert!(probe.controller.taken.len() == 1 && probe.controller.pods.get(&PodUid::new("pod-x")).is_none());

        let mut probe = begin();
        probe.gone(Kind::POD, odd(at_revision(holder(), 103)));
        assert_eq!(placed(&mut probe), ["a>n"], "it went");
    }
    let mut probe = started(&[node("n", json!({}))], &[odd(asking_for("a", 2, "1"))]);
    assert_eq!(placed(&mut probe), ["a>n"], "it waits");
}

/// No kubelet does this, but another client may write the phase.
#[test]
fn a_pod_that_runs_again_takes_its_room_again() {
    let at = |revision: u64, phase: &str| on(at_revision(asking_for("x", 1, "2"), revision), "n", phase);
    let mut probe = started(&[node("n", json!({}))], &[at(1, "Running")]);
    for revision in [101, 103] {
        probe.sees(Kind::POD, at(revision, "Succeeded"));
        probe.sees(Kind::POD, at(revision + 1, "Running"));
    }
    probe.sees(Kind::POD, asking_for("a", 105, "1"));
    assert_eq!(placed(&mut probe), NOTHING);
    probe.sees(Kind::POD, at(106, "Failed"));
    assert_eq!(placed(&mut probe), ["a>n"]);
}

/// A write on behalf of a state that was not understood would not be conditional on it.
#[test]
fn a_waiting_pod_that_cannot_be_read_keeps_its_revision_and_its_requirements() {
    let mut probe = started(&[node("n", json!({}))], &[asking_for("a", 7, "3")]);
    let mut odd = asking_for("a", 101, "1");
    odd["spec"]["tolerations"] = "text".into();
    probe.sees(Kind::POD, odd);
    probe.passes(1000);
    assert_eq!(probe.asks(), ["patch pods ns/a/status"]);
    assert_eq!(probe.body(0)["metadata"]["resourceVersion"], "7");
}

#[test]
fn a_refused_binding_frees_its_place_and_is_tried_again() {
    let pods = [asking_for("a", 1, "2"), asking_for("b", 2, "1500m")];
    let mut probe = started(&[node("n", json!({}))], &pods);
    assert_eq!(placed(&mut probe), ["a>n"]);
    probe.answer(0, refused(409, "Conflict"));
    assert_eq!(placed(&mut probe), ["b>n"], "the place is free");
    assert_eq!(probe.wakes_in(), Some(250));
    probe.gone(Kind::POD, at_revision(asking_for("b", 2, "1500m"), 101));
    assert_eq!(probe.asks(), NOTHING, "not before its time");
    probe.passes(250);
    assert_eq!(placed(&mut probe), ["a>n"]);
}

#[test]
fn a_binding_of_which_nothing_is_known_keeps_its_place_and_is_repeated() {
    let pods = [asking_for("a", 1, "2"), asking_for("b", 2, "1")];
    let mut probe = started(&[node("n", json!({}))], &pods);
    assert_eq!(placed(&mut probe), ["a>n"]);
    probe.answer(0, Reply::Unknown);
    probe.sees(Kind::NODE, node("m", json!({"metadata": {"labels": {"better": "yes"}}})));
    assert_eq!(placed(&mut probe), ["b>m"], "nothing else goes to n");
    probe.passes(250);
    assert_eq!(placed(&mut probe), ["a>n"], "the same node again");
    probe.answer(0, Reply::Unknown);
    probe.sees(Kind::POD, on(at_revision(asking_for("a", 1, "2"), 101), "n", "Pending"));
    probe.passes(10_000);
    assert_eq!(probe.asks(), NOTHING, "it was done");
}

/// Whichever binding is carried out first counts: the API refuses the other.
#[test]
fn a_binding_to_a_node_that_is_gone_is_not_repeated() {
    let mut probe = started(&[node("n", json!({}))], &[asking_for("a", 1, "2")]);
    assert_eq!(placed(&mut probe), ["a>n"]);
    probe.answer(0, Reply::Unknown);
    probe.gone(Kind::NODE, node("n", json!({})));
    probe.passes(250);
    assert_eq!(placed(&mut probe), NOTHING);
    probe.sees(Kind::NODE, node("m", json!({})));
    assert_eq!(placed(&mut probe), ["a>m"]);
    // The first one was carried out.
    probe.answer(0, refused(409, "Conflict"));
    probe.sees(Kind::POD, on(at_revision(asking_for("a", 1, "2"), 101), "n", "Pending"));
    probe.passes(10_000);
    assert_eq!(probe.asks(), NOTHING);
    probe.sees(Kind::POD, asking_for("b", 102, "2"));
    assert_eq!(placed(&mut probe), ["b>m"], "its room is free");
}

/// The node is gone and another one has its name: the binding may have been carried out, or may yet be.
#[test]
fn a_node_has_less_room_if_a_pod_may_have_been_bound_to_one_of_its_name() {
    for carried_out in [true, false] {
        let first = asking_for("a", 1, "2");
        let mut probe = started(&[node("n", json!({}))], std::slice::from_ref(&first));
        assert_eq!(placed(&mut probe), ["a>n"]);
        probe.answer(0, Reply::Unknown);
        probe.gone(Kind::NODE, node("n", json!({})));
        probe.passes(250);
        probe.sees(Kind::NODE, at_revision(node("m", json!({})), 101));
        assert_eq!(placed(&mut probe), ["a>m"]);
        probe.answer(0, refused(409, "Conflict"));
        probe.sees(Kind::NODE, at_revision(node("n", json!({})), 102));
        probe.sees(Kind::POD, asking_for("b", 103, "2"));
        assert_eq!(probe.asks(), NOTHING, "b gets room neither of n nor of m");
        let found = if carried_out {
            on(at_revision(first, 104), "n", "Running")
        } else {
            on(at_revision(first, 104), "m", "Running")
        };
        probe.sees(Kind::POD, found);
        assert_eq!(placed(&mut probe), [if carried_out { "b>m" } else { "b>n" }]);
    }
}

/// It does not wait for the room that it may take itself.
#[test]
fn a_pod_that_may_have_been_bound_to_a_node_is_bound_to_the_next_one_of_that_name() {
    let mut probe = started(&[node("n", json!({}))], &[asking_for("a", 1, "2"), asking_for("b", 2, "2")]);
    assert_eq!(placed(&mut probe), ["a>n"]);
    probe.answer(0, Reply::Unknown);
    probe.gone(Kind::NODE, node("n", json!({})));
    probe.passes(250);
    assert_eq!(probe.asks(), NOTHING);
    probe.sees(Kind::NODE, at_revision(node("n", json!({})), 101));
    assert_eq!(placed(&mut probe), ["a>n"], "b waits");
}

/// The refusal of the second binding may be caused by the first, or hide that the first is still in flight.
#[test]
fn a_binding_refused_after_one_of_which_nothing_is_known_frees_no_room() {
    for refusal in [refused(409, "Conflict"), refused(503, "ServiceUnavailable")] {
        let pods = [asking_for("a", 1, "2"), asking_for("b", 2, "1")];
        let mut probe = started(&[node("n", json!({}))], &pods);
        assert_eq!(placed(&mut probe), ["a>n"]);
        probe.answer(0, Reply::Unknown);
        probe.passes(250);
        assert_eq!(placed(&mut probe), ["a>n"]);
        probe.answer(0, refusal);
        assert_eq!(probe.asks(), NOTHING, "b does not get the room of a");
        probe.sees(Kind::POD, on(at_revision(asking_for("a", 1, "2"), 101), "n", "Succeeded"));
        assert_eq!(placed(&mut probe), ["b>n"]);
    }
}

#[test]
fn a_pod_that_finds_no_place_is_told_once() {
    let mut probe = started(&[node("n", json!({}))], &[asking_for("a", 7, "3")]);
    assert_eq!(probe.wakes_in(), Some(1000));
    probe.passes(1000);
    assert_eq!(probe.asks(), ["patch pods ns/a/status"]);
    let expected = json!({
        "metadata": {"uid": "pod-a", "resourceVersion": "7"},
        "status": {"$setElementOrder/conditions": [{"type": "PodScheduled"}], "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "observedGeneration": 1,
            "message": "0/1 nodes are available: 1 Insufficient cpu.", "lastTransitionTime": "2023-11-14T22:13:21Z",
        }]},
    });
    assert_eq!(probe.body(0), expected);
    assert_eq!(probe.events(), NOTHING, "not before it is written");
    probe.answer(0, done(json!({})));
    assert_eq!(probe.events(), ["a FailedScheduling: 0/1 nodes are available: 1 Insufficient cpu."]);
    let mut told = asking_for("a", 101, "3");
    told["status"]["conditions"] = expected["status"]["conditions"].clone();
    probe.sees(Kind::POD, told.clone());
    probe.passes(100_000);
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), None));

    // Nor after a restart.
    let mut probe = started(&[node("n", json!({}))], &[told]);
    probe.passes(1000);
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), None));

    // Another reason is written after a while, and the condition keeps its time.
    probe.sees(Kind::NODE, node("m", json!({})));
    probe.sees(Kind::NODE, node("m2", json!({})));
    assert_eq!(probe.wakes_in(), Some(10_000));
    probe.passes(10_000);
    assert_eq!(probe.asks(), ["patch pods ns/a/status"]);
    let condition = &probe.body(0)["status"]["conditions"][0];
    assert_eq!(condition["message"], "0/3 nodes are available: 3 Insufficient cpu.");
    assert_eq!(condition.get("lastTransitionTime"), None);
    probe.answer(0, refused(409, "Conflict"));
    probe.passes(250);
    assert_eq!(probe.asks(), ["patch pods ns/a/status"], "tried again");
}

#[test]
fn without_nodes_pods_are_told_so() {
    let mut probe = started(&[], &[pod("a", 1, json!({}))]);
    probe.passes(1000);
    assert_eq!(probe.asks(), ["patch pods ns/a/status"]);
    assert_eq!(probe.body(0)["status"]["conditions"][0]["message"], "no nodes available to schedule pods");
}

#[test]
fn bindings_are_limited_and_so_are_words() {
    let large = node("n", json!({"status": {"allocatable": {"pods": "100"}}}));
    let pods: Vec<_> = (0..150).map(|n| pod(&format!("p{n:03}"), n, json!({}))).collect();
    let mut probe = started(&[large], &pods);
    let mut asked = placed(&mut probe);
    assert_eq!(asked.len(), 64);
    for nth in 0..64 {
        probe.answer(nth, done(json!({})));
    }
    asked.extend(placed(&mut probe));
    assert_eq!(asked.len(), 100);
    assert!(asked.iter().enumerate().all(|(n, line)| *line == format!("p{n:03}>n")));
    probe.passes(1000);
    let mut told = 0;
    loop {
        let asked = probe.asks().len();
        assert!(asked <= 8);
        if asked == 0 {
            break;
        }
        told += asked;
        (0..asked).for_each(|nth| probe.answer(nth, done(json!({}))));
    }
    assert_eq!(told, 50);
}

/// Ten thousand Pods wait while Pods end, one after the other: each end leads to one binding, and nothing else.
#[test]
fn a_crowd_costs_no_more_than_one() {
    let full = node("n", json!({"status": {"allocatable": {"pods": "100"}}}));
    let running: Vec<_> = (0..100).map(|n| on(pod(&format!("r{n}"), n, json!({})), "n", "Running")).collect();
    let waiting = (0..10_000).map(|n| pod(&format!("w{n:05}"), 100 + n, json!({})));
    let pods: Vec<_> = running.iter().cloned().chain(waiting).collect();
    let mut probe = started(&[full], &pods);
    assert_eq!(probe.asks(), NOTHING);
    for (n, pod) in running.into_iter().enumerate() {
        let finds = probe.controller.places.finds.get();
        probe.sees(Kind::POD, on(at_revision(pod, 20_000 + n as u64), "n", "Succeeded"));
        assert_eq!(placed(&mut probe), [format!("w{n:05}>n")]);
        assert_eq!(probe.controller.places.finds.get() - finds, 2, "one that fits, one that does not");
        probe.answer(0, done(json!({})));
    }
}
