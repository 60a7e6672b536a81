use serde_json::{Value, json};
use tally_core::time::{Span, Timestamp};

use super::*;
use tally_runtime::testing::{Probe, done, refused};

fn node(number: u32, revision: u64) -> Value {
    json!({
        "metadata": {"name": nodes::name(number), "uid": format!("n{number}"), "resourceVersion": revision.to_string()},
        "status": {"allocatable": {"pods": "1"}, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn ready(count: u32) -> Probe<Hollow> {
    let mut probe = Probe::new(Hollow::new(count));
    let nodes: Vec<_> = (0..count).map(|number| node(number, 1)).collect();
    probe.lists(Kind::NODE, &nodes, 1);
    probe.lists(Kind::POD, &[], 1);
    assert!(probe.asks().is_empty());
    probe
}

fn pod(policy: &str, annotations: &[(&str, &str)]) -> Value {
    let annotations: serde_json::Map<_, _> =
        annotations.iter().map(|(name, text)| (format!("{PREFIX}{name}"), (*text).into())).collect();
    json!({
        "metadata": {
            "namespace": "ns", "name": "p", "uid": "u", "resourceVersion": "5", "generation": 1,
            "annotations": annotations,
        },
        "spec": {
            "nodeName": "hollow-0", "restartPolicy": policy,
            "initContainers": [{"name": "i", "image": "x"}, {"name": "s", "image": "x", "restartPolicy": "Always"}],
            "containers": [{"name": "c", "image": "x"}],
        },
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
    })
}

/// One Pod, and the small part of an API server that it needs. Records what is reported about it, and when in
/// milliseconds.
struct Story {
    probe: Probe<Hollow>,
    pod: Value,
    revision: u64,
    told: Vec<String>,
    /// Forget everything before each step, as after kill -9.
    restarts: bool,
    began: Timestamp,
}

impl Story {
    fn new(pod: Value) -> Self {
        let probe = ready(1);
        let began = probe.now;
        let mut story = Self { probe, pod, revision: 5, told: Vec::new(), restarts: false, began };
        story.probe.sees(Kind::POD, story.pod.clone());
        story
    }

    fn change(&mut self, change: impl FnOnce(&mut Value)) {
        change(&mut self.pod);
        self.revision += 1;
        self.pod["metadata"]["resourceVersion"] = self.revision.to_string().into();
        self.probe.sees(Kind::POD, self.pod.clone());
    }

    fn delete(&mut self, grace: i64) {
        let at = self.probe.now + Span::from_seconds(grace);
        self.change(|pod| {
            pod["metadata"]["deletionTimestamp"] = at.to_string().into();
            pod["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        });
    }

    /// Responds to requests until there are none, or until this many milliseconds have passed since the start.
    fn until(&mut self, millis: i64) {
        let end = self.began + Span::from_millis(millis);
        loop {
            for line in self.probe.asks() {
                self.answer(&line);
            }
            if !self.probe.out.requests.is_empty() {
                continue;
            }
            if self.restarts {
                let (now, out) = (self.probe.now, Outbox::default());
                let mut fresh = ready(1);
                (fresh.now, fresh.out) = (now, out);
                self.probe = fresh;
                self.probe.sees(Kind::POD, self.pod.clone());
                if !self.probe.out.requests.is_empty() {
                    continue;
                }
            }
            match self.probe.out.wake_at.filter(|at| *at <= end) {
                Some(at) => {
                    let wait = (at - self.probe.now).millis();
                    assert!(wait >= 0, "a tick for what could have been done already");
                    self.probe.passes(wait);
                }
                None => break,
            }
        }
        let wait = (end - self.probe.now).millis();
        self.probe.passes(wait);
    }

    fn answer(&mut self, line: &str) {
        let at = (self.probe.now - self.began).millis();
        if line == "delete pods ns/p" {
            let body = self.probe.body(0);
            assert_eq!((&body["gracePeriodSeconds"], &body["preconditions"]["uid"]), (&json!(0), &json!("u")));
            self.told.push(format!("{at} gone"));
            self.probe.answer(0, Reply::DoneWithStatus);
            let gone = self.pod.clone();
            self.probe.gone(Kind::POD, gone);
            self.pod = json!({});
            return;
        }
        assert_eq!(line, "patch pods ns/p/status");
        let body = self.probe.body(0);
        assert_eq!(body["metadata"], json!({"uid": "u", "resourceVersion": self.revision.to_string()}));
        self.revision += 1;
        self.pod["metadata"]["resourceVersion"] = self.revision.to_string().into();
        for (key, value) in body["status"].as_object().unwrap() {
            if key != "conditions" {
                self.pod["status"][key] = value.clone();
                continue;
            }
            for condition in value.as_array().unwrap() {
                let list = self.pod["status"]["conditions"].as_array_mut().unwrap();
                list.retain(|known| known["type"] != condition["type"]);
                list.push(condition.clone());
            }
        }
        self.told.push(format!("{at} {}", told(&self.pod["status"])));
        let pod = self.pod.clone();
        // The stream may be faster than the response, or slower.
        if self.revision.is_multiple_of(2) {
            self.probe.sees(Kind::POD, pod.clone());
        }
        self.probe.answer(0, done(pod.clone()));
        self.probe.sees(Kind::POD, pod);
    }
}

fn told(status: &Value) -> String {
    let container = &status["containerStatuses"][0];
    let state = container["state"].as_object().unwrap().keys().next().unwrap().clone();
    let ready = status["conditions"].as_array().unwrap().iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
    let mut told = format!("{} {state}", status["phase"].as_str().unwrap());
    if let Some(code) = container["state"]["terminated"]["exitCode"].as_i64() {
        told += &format!(" {code}");
    }
    if ready {
        told += " ready";
    }
    if container["restartCount"] != 0 {
        told += &format!(" restarts={}", container["restartCount"]);
    }
    if let Some(reason) = status["reason"].as_str() {
        told += &format!(" ({reason})");
    }
    let disrupted = status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "DisruptionTarget");
    if let Some(condition) = disrupted {
        told += &format!(" disrupted={}", condition["reason"].as_str().unwrap());
    }
    told
}

/// What is reported about a Pod in 20 s, if it is deleted with 5 s of grace after `delete` milliseconds.
fn check(policy: &str, annotations: &[(&str, &str)], delete: Option<i64>, expected: &[&str]) {
    let mut story = Story::new(pod(policy, annotations));
    if let Some(at) = delete {
        story.until(at);
        story.delete(5);
    }
    story.until(20_000);
    assert_eq!(story.told, expected, "{policy} {annotations:?} deleted after {delete:?}");
}

#[test]
fn pods_do_as_their_annotations_say() {
    check("Never", &[], None, &["0 Succeeded terminated 0"]);
    check("OnFailure", &[], None, &["0 Succeeded terminated 0"]);
    check("Always", &[], None, &["0 Running running ready"]);
    check("Never", &[("exit-code", "3")], None, &["0 Failed terminated 3"]);
    let run = [("run-for", "1.5s")];
    check("Never", &run, None, &["0 Running running ready", "1500 Succeeded terminated 0"]);
    let run_and_fail = [("run-for", "1500ms"), ("exit-code", "3")];
    check("Never", &run_and_fail, None, &["0 Running running ready", "1500 Failed terminated 3"]);
    check("Never", &[("hang", "true")], None, &[]);
    check("Never", &[("pending", "true")], None, &["0 Pending waiting"]);
    check("Never", &[("run-for", "soon")], None, &["0 Failed terminated 137 (BadAnnotation)"]);
    check(
        "Never",
        &[("disrupted", "TerminationByKubelet")],
        None,
        &["0 Failed terminated 137 disrupted=TerminationByKubelet"],
    );
    check(
        "OnFailure",
        &[("disrupted", "X"), ("run-for", "1s"), ("exit-code", "9")],
        None,
        &["0 Running running ready", "1000 Failed terminated 9 disrupted=X"],
    );
}

#[test]
fn containers_are_restarted_in_place() {
    check(
        "OnFailure",
        &[("fail-times", "2"), ("restart-delay", "100ms"), ("run-for", "1s")],
        None,
        &[
            "0 Running running ready",
            "1000 Running waiting",
            "1100 Running running ready restarts=1",
            "2100 Running waiting restarts=1",
            "2200 Running running ready restarts=2",
            "3200 Succeeded terminated 0 restarts=2",
        ],
    );
    check(
        "OnFailure",
        &[("fail-times", "1"), ("restart-delay", "0s")],
        None,
        &["0 Running running ready", "0 Running running ready restarts=1", "0 Succeeded terminated 0 restarts=1"],
    );
    // The delays of a kubelet.
    check(
        "OnFailure",
        &[("exit-code", "1"), ("run-for", "1s")],
        None,
        &[
            "0 Running running ready",
            "1000 Running running ready restarts=1",
            "2000 Running waiting restarts=1",
            "12000 Running running ready restarts=2",
            "13000 Running waiting restarts=2",
        ],
    );
    check(
        "Always",
        &[("run-for", "6s"), ("restart-delay", "4s")],
        None,
        &[
            "0 Running running ready",
            "6000 Running waiting",
            "10000 Running running ready restarts=1",
            "16000 Running waiting restarts=1",
            "20000 Running running ready restarts=2",
        ],
    );
}

#[test]
fn deleted_pods_report_their_end_before_they_go() {
    let up = "0 Running running ready";
    check("Never", &[("run-for", "1m")], Some(1000), &[up, "1000 Failed terminated 143", "1000 gone"]);
    let slow = [("run-for", "1m"), ("terminate-after", "2s")];
    check("Never", &slow, Some(1000), &[up, "4000 Failed terminated 143", "4000 gone"]);
    let too_slow = [("run-for", "1m"), ("terminate-after", "1m")];
    check("Never", &too_slow, Some(1000), &[up, "6000 Failed terminated 137", "6000 gone"]);
    let polite = [("run-for", "1m"), ("terminate-exit-code", "0")];
    check("Never", &polite, Some(1000), &[up, "1000 Succeeded terminated 0", "1000 gone"]);
    let nearly_done = [("run-for", "3s"), ("terminate-after", "1m"), ("exit-code", "7")];
    check("OnFailure", &nearly_done, Some(1000), &[up, "3000 Failed terminated 7", "3000 gone"]);
    check("Always", &[], Some(1000), &[up, "1000 Failed terminated 143", "1000 gone"]);
    let waits = [("exit-code", "1"), ("restart-delay", "1m")];
    check("OnFailure", &waits, Some(1000), &[up, "0 Running waiting", "1000 Failed terminated 143", "1000 gone"]);
    check(
        "Never",
        &[("pending", "true")],
        Some(1000),
        &["0 Pending waiting", "1000 Failed terminated 137", "1000 gone"],
    );
    check("Never", &[("hang", "true")], Some(1000), &[]);
    check("Never", &[], Some(1000), &["0 Succeeded terminated 0", "1000 gone"]);
}

#[test]
fn a_pod_deleted_without_grace_still_gets_a_phase() {
    let mut story = Story::new(pod("Never", &[("run-for", "1m"), ("terminate-after", "30s")]));
    story.until(1000);
    story.delete(0);
    story.until(2000);
    assert_eq!(story.told, ["0 Running running ready", "1000 Failed terminated 137"]);
}

#[test]
fn a_pod_deleted_before_it_is_seen_never_starts() {
    let mut probe = ready(1);
    let mut pod = pod("Never", &[]);
    pod["metadata"]["deletionTimestamp"] = (probe.now + Span::from_seconds(30)).to_string().into();
    pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    probe.sees(Kind::POD, pod);
    assert_eq!(probe.asks(), ["patch pods ns/p/status"]);
    let status = &probe.body(0)["status"];
    assert_eq!(status["phase"], "Failed");
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["reason"], "ContainerStatusUnknown");
    assert_eq!(status["podIP"], Value::Null);
}

#[test]
fn pods_have_deadlines() {
    for (policy, annotations, expected) in [
        (
            "Never",
            &[("run-for", "1m")][..],
            &["0 Running running ready", "3000 Failed terminated 143 (DeadlineExceeded)"],
        ),
        ("Always", &[], &["0 Running running ready", "3000 Failed terminated 143 (DeadlineExceeded)"]),
        ("Never", &[("pending", "true")], &["0 Pending waiting", "3000 Failed terminated 137 (DeadlineExceeded)"]),
        ("Never", &[("run-for", "2s")], &["0 Running running ready", "2000 Succeeded terminated 0"]),
    ] {
        let mut pod = pod(policy, annotations);
        pod["spec"]["activeDeadlineSeconds"] = 3.into();
        let mut story = Story::new(pod);
        story.until(20_000);
        assert_eq!(story.told, expected, "{annotations:?}");
    }
}

/// Kill -9 before every step: the same is reported, up to a second later.
#[test]
fn a_restart_costs_a_second_at_most() {
    for annotations in [
        &[("run-for", "1.5s")][..],
        &[("run-for", "1s"), ("fail-times", "2"), ("restart-delay", "700ms")],
        &[("pending", "true")],
        &[("exit-code", "4")],
    ] {
        let run = |restarts: bool| {
            let mut story = Story::new(pod("OnFailure", annotations));
            story.restarts = restarts;
            story.until(19_000);
            let split = |line: &String| line.split_once(' ').map(|(at, told)| (at.parse().unwrap(), told.to_owned()));
            story.told.iter().filter_map(split).collect::<Vec<(i64, String)>>()
        };
        let (calm, stormy) = (run(false), run(true));
        let texts = |told: &[(i64, String)]| told.iter().map(|(_, text)| text.clone()).collect::<Vec<_>>();
        assert_eq!(texts(&calm), texts(&stormy), "{annotations:?}");
        for (step, ((at, _), (later, _))) in (1..).zip(calm.iter().zip(&stormy)) {
            assert!((0..=1000 * step).contains(&(later - at)), "{annotations:?}: {calm:?} {stormy:?}");
        }
    }
}

#[test]
fn an_attempt_knows_those_before_it() {
    for (failures, ignored, phase) in [("0", "0", "Failed"), ("1", "0", "Failed"), ("1", "1", "Succeeded")] {
        let mut pod = pod("Never", &[("exit-code", "3=1"), ("fail-times", "2")]);
        let annotations = &mut pod["metadata"]["annotations"];
        annotations["batch.kubernetes.io/job-completion-index"] = "3".into();
        annotations["batch.kubernetes.io/job-index-failure-count"] = failures.into();
        annotations["batch.kubernetes.io/job-index-ignored-failure-count"] = ignored.into();
        let mut story = Story::new(pod);
        story.until(0);
        assert!(story.told[0].contains(phase), "{failures}+{ignored}: {:?}", story.told);
    }
}

#[test]
fn a_running_pod_can_be_steered() {
    let mut story = Story::new(pod("Never", &[("run-for", "1h")]));
    story.until(1000);
    story.change(|pod| pod["metadata"]["annotations"] = json!({format!("{PREFIX}exit-code"): "5"}));
    story.until(1000);
    assert_eq!(story.told, ["0 Running running ready", "1000 Failed terminated 5"]);
}

#[test]
fn a_completed_pod_looks_as_a_kubelet_leaves_it() {
    let mut story = Story::new(pod("Never", &[]));
    story.until(0);
    let status = &story.pod["status"];
    let at = story.began.to_string();
    assert_eq!((&status["startTime"], &status["observedGeneration"]), (&json!(at), &json!(1)));
    assert_eq!(status["hostIP"], "10.240.0.0");
    assert!(status["podIP"].as_str().unwrap().starts_with("10."));
    let conditions: Vec<_> = status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| [&c["type"], &c["status"], &c["reason"]].map(|text| text.as_str().unwrap_or_default()))
        .collect();
    let expected = [
        ["PodScheduled", "True", ""],
        ["PodReadyToStartContainers", "False", ""],
        ["Initialized", "True", "PodCompleted"],
        ["Ready", "False", "PodCompleted"],
        ["ContainersReady", "False", "PodCompleted"],
    ];
    assert_eq!(conditions, expected);
    let terminated = json!({"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at});
    let expected = json!({
        "name": "c", "image": "x", "imageID": "", "restartCount": 0, "ready": false, "started": false,
        "state": {"terminated": terminated}, "lastState": {}, "containerID": "hollow://u-c-0",
    });
    assert_eq!(status["containerStatuses"], json!([expected]));
    let init: Vec<_> = status["initContainerStatuses"].as_array().unwrap().iter().map(|c| &c["ready"]).collect();
    assert_eq!(init, [&json!(true), &json!(false)], "what ran first is ready for ever, a sidecar has ended");
}

#[test]
fn a_report_is_repeated_until_it_is_heard_or_overtaken() {
    let mut probe = ready(1);
    probe.sees(Kind::POD, pod("Never", &[]));
    assert_eq!(probe.asks(), ["patch pods ns/p/status"]);
    probe.answer(0, Reply::Unknown);
    assert!(probe.asks().is_empty());
    assert_eq!(probe.wakes_in(), Some(250));
    probe.passes(250);
    assert_eq!(probe.asks().len(), 1);
    probe.answer(0, refused(409, "Conflict"));
    assert_eq!(probe.wakes_in(), Some(500));
    // Another client ended it: it stays as it ended.
    let mut ended = pod("Never", &[]);
    ended["metadata"]["resourceVersion"] = "6".into();
    ended["status"]["phase"] = "Failed".into();
    probe.sees(Kind::POD, ended);
    probe.passes(10_000);
    assert!(probe.asks().is_empty() && probe.controller.pods.is_empty() && probe.controller.timers.is_empty());
}

#[test]
fn an_answer_older_than_what_is_known_changes_nothing() {
    let mut probe = ready(1);
    probe.sees(Kind::POD, pod("Never", &[("run-for", "1m")]));
    assert_eq!(probe.asks().len(), 1);
    let mut ended = pod("Never", &[]);
    ended["metadata"]["resourceVersion"] = "7".into();
    ended["status"]["phase"] = "Failed".into();
    probe.sees(Kind::POD, ended);
    let mut running = pod("Never", &[("run-for", "1m")]);
    running["metadata"]["resourceVersion"] = "6".into();
    probe.answer(0, done(running));
    assert!(probe.controller.pods.is_empty());
}

#[test]
fn what_is_not_ours_or_gone_is_not_reported() {
    let mut probe = ready(2);
    for node in ["hollow-2", "hollow-01", "hollow-", "other", ""] {
        let mut pod = pod("Never", &[]);
        pod["spec"]["nodeName"] = node.into();
        probe.sees(Kind::POD, pod);
    }
    assert!(probe.asks().is_empty());
    probe.sees(Kind::POD, pod("Never", &[("run-for", "1s")]));
    assert_eq!(probe.asks().len(), 1);
    probe.answer(0, Reply::Unknown);
    probe.lists(Kind::POD, &[], 9);
    probe.passes(60_000);
    assert!(probe.asks().is_empty() && probe.controller.timers.is_empty());
}

#[test]
fn a_pod_with_a_condition_whose_time_cannot_be_read_runs_ends_and_is_forgotten() {
    let at = |revision: u64, phase: &str| {
        let mut pod = pod("Never", &[("run-for", "1m")]);
        pod["metadata"]["resourceVersion"] = revision.to_string().into();
        pod["status"]["phase"] = phase.into();
        let odd = json!({"type": "Ready", "status": "False", "lastTransitionTime": "-001-12-31T23:00:00Z"});
        pod["status"]["conditions"].as_array_mut().unwrap().push(odd);
        pod
    };
    let mut probe = ready(1);
    probe.sees(Kind::POD, at(5, "Pending"));
    assert_eq!(probe.asks(), ["patch pods ns/p/status"]);
    let mut running = at(6, "Running");
    running["status"]["startTime"] = probe.now.to_string().into();
    running["status"]["containerStatuses"] = json!([{"state": {"running": {"startedAt": probe.now.to_string()}}}]);
    probe.answer(0, done(running.clone()));
    probe.lists(Kind::POD, &[running], 7);
    probe.passes(60_000);
    assert_eq!(probe.asks(), ["patch pods ns/p/status"]);
    assert_eq!(probe.body(0)["status"]["phase"], "Succeeded");
    probe.answer(0, done(at(8, "Succeeded")));
    assert!(probe.controller.pods.is_empty(), "it has ended");
    probe.sees(Kind::POD, at(9, "Pending"));
    assert_eq!(probe.controller.pods.len(), 1);
    probe.gone(Kind::POD, at(10, "Pending"));
    assert!(probe.controller.pods.is_empty() && probe.controller.timers.is_empty(), "it went");
}

#[test]
fn nodes_are_created_once_and_made_ready() {
    let mut probe = Probe::new(Hollow::new(3));
    let mut tainted = node(1, 3);
    tainted["spec"]["taints"] = json!([{"key": "node.kubernetes.io/not-ready"}, {"key": "other"}]);
    let mut unready = node(2, 3);
    unready["status"]["conditions"][0]["status"] = "False".into();
    probe.lists(Kind::NODE, &[tainted, unready.clone()], 5);
    assert_eq!(probe.asks(), ["merge nodes /hollow-1", "merge nodes /hollow-2/status", "create nodes /"]);
    assert_eq!(probe.body(0)["spec"]["taints"], json!([{"key": "other"}]));
    assert_eq!(probe.body(1)["metadata"], json!({"uid": "n2", "resourceVersion": "3"}));
    probe.answer(0, done(node(1, 6)));
    probe.answer(1, refused(409, "Conflict"));
    probe.answer(2, refused(409, "AlreadyExists"));
    assert!(probe.asks().is_empty());
    probe.passes(250);
    assert_eq!(probe.asks(), ["merge nodes /hollow-2/status"]);
    probe.answer(0, done(node(2, 7)));
    assert!(probe.asks().is_empty() && probe.out.wake_at.is_none());
}

#[test]
fn a_missing_node_is_created_again_only_if_that_failed() {
    let mut probe = Probe::new(Hollow::new(1));
    probe.lists(Kind::NODE, &[], 5);
    assert_eq!(probe.asks(), ["create nodes /"]);
    let body = probe.body(0);
    assert_eq!(body["metadata"]["labels"]["kubernetes.io/hostname"], "hollow-0");
    assert_eq!(body["status"]["allocatable"]["pods"], "100000");
    probe.answer(0, refused(500, "InternalError"));
    probe.passes(250);
    assert_eq!(probe.asks(), ["create nodes /"]);
    probe.answer(0, done(node(0, 9)));
    // A list from before the creation does not lose it.
    probe.lists(Kind::NODE, &[], 8);
    probe.sees(Kind::POD, pod("Never", &[]));
    assert_eq!(probe.asks(), ["patch pods ns/p/status"]);
}

#[test]
fn a_lost_node_says_nothing_until_it_is_back() {
    let mut probe = ready(1);
    probe.gone(Kind::NODE, node(0, 5));
    probe.sees(Kind::POD, pod("Never", &[]));
    probe.sees(Kind::POD, pod("Never", &[]));
    probe.lists(Kind::NODE, &[], 6);
    probe.passes(60_000);
    assert!(probe.asks().is_empty(), "neither a report nor a Node");
    let mut back = node(0, 7);
    back["metadata"]["uid"] = "another".into();
    probe.sees(Kind::NODE, back);
    assert_eq!(probe.asks(), ["patch pods ns/p/status"]);
}

/// Lost-node seed 960000397: the Node was patched for ever.
#[test]
fn a_late_response_does_not_bring_a_node_back_that_is_gone() {
    let tainted = |revision| {
        let mut node = node(0, revision);
        node["spec"]["taints"] = json!([{"key": "node.kubernetes.io/not-ready"}]);
        node
    };
    let mut probe = Probe::new(Hollow::new(1));
    probe.lists(Kind::NODE, &[], 1);
    assert_eq!(probe.asks(), ["create nodes /"]);
    probe.sees(Kind::NODE, tainted(2));
    probe.gone(Kind::NODE, tainted(3));
    probe.answer(0, done(tainted(2)));
    assert!(probe.asks().is_empty() && probe.out.wake_at.is_none());
    probe.sees(Kind::NODE, tainted(4));
    assert_eq!(probe.asks(), ["merge nodes /hollow-0"], "another Node with the name");
}

#[test]
fn requests_under_way_are_limited() {
    let mut probe = ready(1);
    for number in 0..IN_FLIGHT + 10 {
        let mut pod = pod("Never", &[]);
        pod["metadata"]["uid"] = format!("u{number}").into();
        probe.sees(Kind::POD, pod);
    }
    assert_eq!(probe.asks().len(), IN_FLIGHT);
    assert_eq!(probe.out.wake_at, None, "answers make room, time does not");
    probe.answer(0, refused(404, "NotFound"));
    assert_eq!(probe.asks().len(), 1);
}

#[test]
fn a_waiting_pod_is_small() {
    // With its key and its timer; the containers are shared by the Pods of a Job.
    let size = size_of::<Live>() + 2 * size_of::<PodUid>() + size_of::<Timestamp>();
    assert!(size <= 300, "{size}");
}
