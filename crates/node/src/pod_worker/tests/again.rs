//! Input that arrives late, twice or not at all; and state that is rebuilt after a restart.

use super::*;
use crate::pod::Role;
use crate::pod_worker::container::Container;

#[test]
fn after_a_restart_of_the_node() {
    let running = json!({"running": {"startedAt": "2023-11-14T22:12:00Z"}});
    let ended = |code: i32, number: u32| {
        let id = format!("process://u/c/{number}");
        let reason = if code == 0 { "Completed" } else { "Error" };
        let at = "2023-11-14T22:00:00Z";
        json!({"terminated": {
            "exitCode": code, "reason": reason, "containerID": id, "startedAt": at, "finishedAt": at,
        }})
    };
    let status = |restarts: u32, state: &Value| json!([{"name": "c", "restartCount": restarts, "state": state}]);
    let empty = json!([]);
    let table = [
        // A recorded exit is applied as if it were reported now, and the Pod is not run again.
        ("Never", "Pending", empty.clone(), vec![found("c", 0, Some(0))], "Succeeded[c=0]"),
        ("Never", "Running", status(0, &running), vec![found("c", 0, Some(3))], "Failed[c=3]"),
        ("OnFailure", "Running", status(0, &running), vec![found("c", 0, Some(3))], "start c/1"),
        // A run whose end was not observed has failed.
        ("Never", "Running", status(0, &running), vec![found("c", 0, None)], "Failed[c=137NodeRestarted]"),
        ("Never", "Pending", empty.clone(), vec![found("c", 0, None)], "Failed[c=137NodeRestarted]"),
        ("OnFailure", "Running", status(0, &running), vec![found("c", 0, None)], "start c/1"),
        // So has a run that was shown as running and left no record.
        ("Never", "Running", status(0, &running), vec![], "Failed[c=137ContainerStatusUnknown]"),
        // A run that the status shows as ended is not started and not counted again.
        ("OnFailure", "Running", status(0, &ended(0, 0)), vec![found("c", 0, Some(0))], "Succeeded[c=0]"),
        ("OnFailure", "Running", status(1, &ended(1, 1)), vec![found("c", 1, Some(1))], "start c/2"),
        // Only a container that failed by itself waits for its back-off before it is restarted.
        ("OnFailure", "Running", status(1, &running), vec![found("c", 0, Some(1))], "start c/2"),
        ("OnFailure", "Running", status(5, &running), vec![found("c", 5, None)], "start c/6"),
        // The record may be ahead of the stored status.
        (
            "OnFailure",
            "Running",
            status(0, &running),
            vec![found("c", 0, Some(1)), found("c", 1, Some(0))],
            "Succeeded[c=0x1]",
        ),
        // No container had started.
        ("Never", "Pending", empty, vec![], "start c/0"),
    ];
    for (policy, phase, containers, found, expected) in table {
        let mut pod = pod(one(policy));
        pod["status"] = json!({"phase": phase, "startTime": "2023-11-14T22:00:00Z", "containerStatuses": containers});
        let bench = Bench::new(pod, &found);
        let log = bench.log.join(", ");
        assert_eq!(log, expected, "{policy} {containers} {found:?}");
    }
}

/// A Job can ignore failures of Pods with this condition: it is only for Pods that did not fail by themselves.
#[test]
fn only_what_the_node_itself_has_ended_is_a_disruption() {
    let two = json!({"restartPolicy": "Never", "containers": [container("c"), container("d")]});
    let running = json!([{"name": "c", "state": {"running": {"startedAt": "2023-11-14T22:12:00Z"}}}]);
    for (spec, containers, found, disrupted) in [
        (one("Never"), json!([]), vec![found("c", 0, None)], true),
        (one("Never"), running, vec![], true),
        (one("Never"), json!([]), vec![found("c", 0, Some(137))], false),
        (two.clone(), json!([]), vec![found("c", 0, Some(0)), found("d", 0, None)], true),
        (two.clone(), json!([]), vec![found("c", 0, Some(3)), found("d", 0, None)], false),
        (two, json!([]), vec![found("c", 0, Some(0)), found("d", 0, Some(0))], false),
    ] {
        let mut pod = pod(spec);
        pod["status"] = json!({"phase": "Running", "containerStatuses": containers});
        let bench = Bench::new(pod, &found);
        let conditions = bench.pod["status"]["conditions"].as_array().unwrap();
        let target = conditions.iter().find(|condition| condition["type"] == "DisruptionTarget");
        let target = target.map(|target| (&target["status"], &target["reason"]));
        assert_eq!(target, disrupted.then_some((&json!("True"), &json!("NodeRestarted"))), "{found:?}");
    }
}

#[test]
fn a_pod_whose_end_was_not_seen_can_be_released_uncounted() {
    let count = "batch.kubernetes.io/job-index-failure-count";
    let failed = "Failed[c=137NodeRestarted]";
    for (job, finalizers, annotations, exit, expected) in [
        (true, json!(["x/y", "batch.kubernetes.io/job-tracking"]), json!({}), None, "keep [\"x/y\"], remove, clean"),
        (true, json!(["batch.kubernetes.io/job-tracking"]), json!({count: "0"}), None, "keep [], remove, clean"),
        // The node was killed once more between release and removal.
        (true, json!([]), json!({}), None, "remove, clean"),
        // A container that failed by itself counts as failed.
        (true, json!(["batch.kubernetes.io/job-tracking"]), json!({}), Some(1), "Failed[c=1]"),
        // The failure count of its index must not be lost.
        (true, json!(["batch.kubernetes.io/job-tracking"]), json!({count: "2"}), None, failed),
        (false, json!([]), json!({}), None, failed),
    ] {
        let mut pod = pod(one("Never"));
        pod["metadata"]["finalizers"] = finalizers;
        pod["metadata"]["annotations"] = annotations;
        if job {
            pod["metadata"]["labels"] = json!({"batch.kubernetes.io/controller-uid": "j"});
        }
        let options = NodeOptions { release_lost: true, ..NodeOptions::new("n") };
        let bench = Bench::on(options, pod.clone(), &[found("c", 0, exit)], false);
        assert_eq!(bench.log.join(", "), expected, "{pod}");
        let usual = Bench::new(pod, &[found("c", 0, None)]);
        assert_eq!(usual.log.join(", "), failed);
    }
}

fn of_a_job(spec: Value) -> Value {
    let mut pod = pod(spec);
    pod["metadata"]["finalizers"] = json!(["batch.kubernetes.io/job-tracking"]);
    pod["metadata"]["labels"] = json!({"batch.kubernetes.io/controller-uid": "j"});
    pod
}

/// The Pod itself may be what brings the node down. With backoffLimit 0 it would otherwise do so indefinitely.
#[test]
fn what_did_not_survive_three_restarts_has_failed_and_is_counted() {
    let target = |bench: &Bench| {
        let conditions = bench.pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == "DisruptionTarget")
    };
    for (before, expected) in [(0, "keep [], remove, clean"), (1, "keep [], remove, clean"), (2, "Failed")] {
        let options = || NodeOptions { release_lost: true, ..NodeOptions::new("n") };
        let killed = Bench::after(before, options(), of_a_job(one("Never")), &[found("c", 0, None)], false);
        let log = killed.log.join(", ");
        if expected == "Failed" {
            assert!(log.ends_with("Failed[c=137NodeRestarted]"), "{log}");
            assert!(!log.contains("keep") && killed.machine.is_at_rest());
            let target = target(&killed).unwrap();
            assert_eq!((&target["status"], &target["reason"]), (&json!("True"), &json!("TerminationByKubelet")));
            let message = target["message"].as_str().unwrap();
            assert!(message.starts_with("The node was killed 3 times while this Pod"), "{message}");
        } else {
            assert!(log.ends_with(expected), "{before}: {log}");
        }
        // An orderly stop is not counted.
        let stopped = Bench::after(before, options(), of_a_job(one("Never")), &[], false);
        let stopped = run(stopped, "+1s drain +1s c=143").log.join(", ");
        assert!(stopped.ends_with("keep [], remove, clean"), "{stopped}");
        // A container that ended by itself has failed by itself, and its Pod is no disruption.
        let itself = Bench::after(before, options(), of_a_job(one("Never")), &[found("c", 0, Some(1))], false);
        assert_eq!(itself.log.join(", "), "Failed[c=1]");
        assert!(target(&itself).is_none());
    }
}

/// A crash between the release and the record would lose the count.
#[test]
fn nothing_is_released_before_it_is_on_record_what_it_did_not_survive() {
    let options = NodeOptions { release_lost: true, ..NodeOptions::new("n") };
    let pod = Pod::read(&of_a_job(one("Never")).to_string().into()).unwrap();
    let mut machine = PodWorker::adopt(pod, &[found("c", 0, None)], begin());
    let asks = |machine: &mut PodWorker| {
        machine.proceed(None, &options, begin(), &mut Effects::default());
        let asked = machine.next_request(false, &options, begin());
        assert_eq!(machine.next_request_at(&options, begin()), None, "there is no wake-up time without work");
        asked
    };
    assert_eq!(asks(&mut machine), None, "it is not known yet what its attempt has been through");
    machine.continue_from(1);
    assert_eq!(machine.to_be_counted(&options), Some(2));
    assert_eq!(asks(&mut machine), None);
    machine.set_on_record(true);
    assert!(matches!(asks(&mut machine), Some(PodRequest::Write(_))));
}

#[test]
fn a_deadline_that_passed_while_the_node_was_down_is_reported() {
    let mut pod = pod(with(one("OnFailure"), json!({"activeDeadlineSeconds": 5})));
    pod["metadata"]["finalizers"] = json!(["batch.kubernetes.io/job-tracking"]);
    pod["metadata"]["labels"] = json!({"batch.kubernetes.io/controller-uid": "j"});
    pod["status"] = json!({"phase": "Running", "startTime": "2000-01-01T00:00:00Z"});
    let options = NodeOptions { release_lost: true, ..NodeOptions::new("n") };
    let bench = Bench::on(options, pod, &[found("c", 0, None)], false);
    assert_eq!(bench.log.join(", "), "Failed(DeadlineExceeded)[c=137NodeRestarted]");
}

#[test]
fn what_the_node_has_stopped_is_taken_out_of_its_jobs_account_too() {
    let two = |policy: &str| json!({"restartPolicy": policy, "containers": [container("c"), container("d")]});
    let begun = |spec: &Value| spec["initContainers"].is_null();
    let init = with(one("Never"), json!({"initContainers": [container("i")]}));
    for (spec, script, expected) in [
        (one("Never"), "drain +1s c=143", "keep [], remove, clean"),
        (one("OnFailure"), "drain +1s c=1", "keep [], remove, clean"),
        (one("Never"), "drain +8s c=137", "kill c/0, keep [], remove, clean"),
        (one("Never"), "drain +1s c=0", "Succeeded[c=0]"),
        // The node stops before the main containers start.
        (init, "drain +1s i=0", "keep [], remove, clean"),
        // A container that failed for good before the stop has failed; one that would have been restarted has not.
        (two("Never"), "c=3 +1s drain +1s d=143", "Failed(Terminated)[c=3 d=143]"),
        (two("OnFailure"), "c=3 c=3 +1s drain +1s d=143", "keep [], remove, clean"),
    ] {
        let mut pod = pod(spec.clone());
        pod["metadata"]["finalizers"] = json!(["batch.kubernetes.io/job-tracking"]);
        pod["metadata"]["labels"] = json!({"batch.kubernetes.io/controller-uid": "j"});
        let options = NodeOptions { release_lost: true, ..NodeOptions::new("n") };
        let bench = run(Bench::on(options, pod.clone(), &[], false), &format!("+1s {script}"));
        let log = bench.log.join(", ");
        assert!(log.ends_with(&format!(", {expected}")), "{script}: {log}");
        assert!(bench.machine.is_at_rest(), "{script}");
        if !expected.contains("keep") || !begun(&spec) {
            continue;
        }
        // With the default options, as on any other node.
        let usual = run(Bench::new(pod, &[]), &format!("+1s {script}")).log.join(", ");
        assert!(usual.contains("Failed(Terminated)"), "{usual}");
    }
}

/// Its end is then reported like that of any other Pod, and the drain does not wait for it.
#[test]
fn what_is_released_while_something_else_holds_it_has_failed() {
    let mut pod = pod(one("Never"));
    pod["metadata"]["finalizers"] = json!(["x/y"]);
    pod["metadata"]["labels"] = json!({"batch.kubernetes.io/controller-uid": "j"});
    let options = NodeOptions { release_lost: true, ..NodeOptions::new("n") };
    let mut bench = run(Bench::on(options, pod, &[], false), "+1s drain");
    bench.exit("c", 143);
    bench.machine.proceed(bench.drain_within, &bench.options, bench.now, &mut bench.out);
    bench.machine.set_on_record(true);
    let asked = bench.machine.next_request(true, &bench.options, bench.now);
    assert!(matches!(asked, Some(PodRequest::Remove(_))), "{asked:?}");
    bench.pod["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z".into();
    bench.pod["metadata"]["deletionGracePeriodSeconds"] = 0.into();
    bench.stored();
    let held = Pod::read(&bench.pod.to_string().into()).unwrap();
    bench.machine.removed(WriteOutcome::Done(Some(Box::new(held))), bench.now);
    bench.pass(10_000);
    assert_eq!(bench.log.last().unwrap(), "Failed(Terminated)[c=143]");
    assert!(bench.machine.is_at_rest());
}

#[test]
fn a_pod_that_has_ended_stays_as_it_is() {
    let mut pod = pod(one("OnFailure"));
    pod["status"] = json!({"phase": "Failed"});
    let bench = Bench::new(pod, &[found("c", 0, Some(0))]);
    assert_eq!(bench.log, Vec::<String>::new());
    assert!(bench.machine.is_settled());
}

#[test]
fn conditions_keep_their_times_until_they_change() {
    let bench = run(Bench::new(pod(one("OnFailure")), &[]), "+1s c=1 +1s c=1 +1s");
    let kinds = |write: &Value| {
        let list = write["conditions"].as_array().unwrap();
        let each = list.iter().map(|it| format!("{}={}", it["type"].as_str().unwrap(), it["status"].as_str().unwrap()));
        each.collect::<Vec<_>>().join(" ")
    };
    let all: Vec<_> = bench.writes.iter().map(kinds).collect();
    assert_eq!(
        all,
        [
            "PodReadyToStartContainers=True Initialized=True Ready=True ContainersReady=True PodScheduled=True",
            "",
            "Ready=False ContainersReady=False",
        ]
    );
    let status = &bench.pod["status"];
    assert_eq!(status["startTime"], begin().to_string());
    assert_eq!((&status["hostIP"], &status["podIP"]), (&json!("127.0.0.1"), &json!("127.0.0.1")));
    let container = &status["containerStatuses"][0];
    assert_eq!(container["containerID"], "process://u/c/1");
    assert_eq!(container["lastState"]["terminated"]["containerID"], "process://u/c/1");
}

#[test]
fn a_write_that_fails_is_made_again_and_says_the_newest() {
    let mut bench = Bench::new(pod(one("Never")), &[]);
    bench.exit("c", 0);
    bench.machine.proceed(None, &bench.options, bench.now, &mut bench.out);
    let Some(PodRequest::Write(_)) = bench.machine.next_request(false, &bench.options, bench.now) else {
        panic!("no write")
    };
    assert!(bench.machine.next_request(false, &bench.options, bench.now).is_none(), "one at a time");
    bench.machine.written(WriteOutcome::Failed, bench.now);
    assert!(bench.machine.next_request(false, &bench.options, bench.now).is_none(), "not at once");
    // A change of the Pod permits the retry at once.
    bench.changed();
    bench.settle();
    assert_eq!(bench.log.join(", "), "start c/0, Succeeded[c=0]");
}

#[test]
fn a_view_is_enough_of_a_response_that_shows_the_end_of_the_pod_and_nothing_else() {
    let is_enough = |change: &dyn Fn(&mut Bench, &mut Value)| {
        let mut bench = Bench::new(pod(one("Never")), &[]);
        bench.exit("c", 0);
        bench.machine.proceed(None, &bench.options, bench.now, &mut bench.out);
        assert!(bench.machine.next_request(false, &bench.options, bench.now).is_some());
        let mut shown = bench.pod.clone();
        (shown["metadata"]["resourceVersion"], shown["status"]["phase"]) = (json!("2"), json!("Succeeded"));
        change(&mut bench, &mut shown);
        let view = PodView::of(&Object::from(shown.to_string())).unwrap();
        let is_enough = bench.machine.end_is_stored(&view);
        assert_eq!(bench.machine.is_settled(), is_enough);
        assert_eq!(bench.machine.revision().0, if is_enough { 2 } else { 1 });
        is_enough
    };
    assert!(is_enough(&|_, _| {}));
    for (pointer, value) in [
        ("/metadata/uid", json!("another")),
        ("/metadata/resourceVersion", json!("1")),
        ("/metadata/finalizers", json!(["x"])),
        ("/status/phase", json!("Running")),
    ] {
        let set = |_: &mut Bench, shown: &mut Value| match shown.pointer_mut(pointer) {
            Some(field) => *field = value.clone(),
            None => shown["metadata"]["finalizers"] = value.clone(),
        };
        assert!(!is_enough(&set), "{pointer}");
    }
    assert!(!is_enough(&|_, shown| {
        shown["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:25Z".into();
        shown["metadata"]["deletionGracePeriodSeconds"] = 5.into();
    }));
    assert!(!is_enough(&|bench, _| bench.machine.lose()));
    assert!(!is_enough(&|bench, _| bench.machine.reporter.touch(bench.now)), "there is more to report");
}

#[test]
fn a_write_that_changed_no_condition_is_made_again_too() {
    let mut bench = run(Bench::new(pod(one("OnFailure")), &[]), "+1s c=1");
    bench.now = bench.now + Span::from_seconds(1);
    let Some(PodRequest::Write(call)) = bench.machine.next_request(false, &bench.options, bench.now) else {
        panic!("no write")
    };
    assert_eq!(serde_json::from_slice::<Value>(&call.body.text()).unwrap()["status"]["conditions"], json!([]));
    bench.machine.written(WriteOutcome::Failed, bench.now);
    bench.pass(60_000);
    assert_eq!(bench.log.join(", "), "start c/0, Running[c=Ready], start c/1, Running[c=Readyx1]");
}

#[test]
fn a_removal_that_failed_is_asked_for_again() {
    let mut bench = run(Bench::new(pod(one("Never")), &[]), "+1s delete:5");
    bench.exit("c", 0);
    loop {
        bench.machine.proceed(None, &bench.options, bench.now, &mut bench.out);
        match bench.machine.next_request(false, &bench.options, bench.now) {
            Some(PodRequest::Remove(_)) => break,
            Some(ask) => bench.answer(ask),
            None => panic!("no removal"),
        }
    }
    bench.machine.removed(WriteOutcome::Failed, bench.now);
    bench.settle();
    assert_eq!(bench.log.last().unwrap(), "Succeeded[c=0]", "not at once");
    bench.pass(1_000);
    assert_eq!(bench.log[bench.log.len() - 2..], ["remove", "clean"]);
}

#[test]
fn what_is_said_of_a_run_of_the_past_is_not_heard() {
    let mut bench = run(Bench::new(pod(one("OnFailure")), &[]), "c=1");
    let first = bench.running[0].clone();
    let exit = found("c", 0, Some(0)).exit.unwrap();
    bench.machine.hear(Report::Ended { attempt: first.clone(), exit }, bench.now, &mut bench.out);
    let failure = OperationError { reason: "StartError".into(), message: String::new(), passing: false };
    bench.machine.hear(Report::Unstarted { attempt: first, failure }, bench.now, &mut bench.out);
    let bench = run(bench, "+1s c=0");
    assert_eq!(bench.log.join(", "), "start c/0, start c/1, Running[c=Readyx1], Succeeded[c=0x1]");
}

/// The half that acts (the shim) has been replaced.
#[test]
fn what_ran_when_the_doing_half_was_lost() {
    let lost = |slow: bool, found: &[Found]| {
        let mut bench = Bench::with(pod(one("Never")), &[], slow);
        bench.log.clear();
        bench.running.clear();
        bench.machine.recover(found, bench.now);
        bench.settle();
        bench.log.join(", ")
    };
    assert_eq!(lost(false, &[found("c", 0, Some(4))]), "Failed[c=4]");
    assert_eq!(lost(false, &[found("c", 0, None)]), "Failed[c=137NodeRestarted]");
    assert_eq!(lost(false, &[]), "Failed[c=137NodeRestarted]", "it ran, and must not run again");
    assert_eq!(lost(true, &[found("c", 0, Some(0))]), "Succeeded[c=0]", "it had been started after all");
    assert_eq!(lost(true, &[]), "start c/0", "it had never begun");
}

#[test]
fn what_is_said_of_a_wait_is_how_long_it_is() {
    // The last run was long, so the back-off has been reset.
    let mut long = found("c", 3, Some(1));
    long.exit.iter_mut().for_each(|exit| exit.started_at = exit.started_at - Span::from_seconds(700));
    let bench = run(Bench::new(pod(one("OnFailure")), &[long]), "c=1 +1s");
    let waiting = &bench.pod["status"]["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["message"], "back-off 10s restarting failed container=c pod=p_ns(u)");
}

/// A wall clock that was ahead by an hour must not make anything an hour late. `check` sets it back in all other scripts.
#[test]
fn a_clock_that_is_set_back_delays_nothing_of_a_pod() {
    let exec = json!({"exec": {"command": ["well?"]}, "periodSeconds": 5, "initialDelaySeconds": 3});
    let probed = json!({
        "restartPolicy": "OnFailure", "containers": [with(container("c"), json!({"livenessProbe": exec}))],
    });
    let deadline = with(one("OnFailure"), json!({"activeDeadlineSeconds": 5, "terminationGracePeriodSeconds": 3}));
    let volume = json!({"volumes": [{"name": "v", "configMap": {"name": "settings"}}]});
    let table = [
        // The back-off of a container.
        (one("OnFailure"), false, "+1s c=1 c=1 +1s", "+10s", "start c/2"),
        // The grace period of a deletion, and one that is shortened later.
        (one("Never"), false, "+1s delete:5", "+5s", "kill c/0"),
        (one("Never"), false, "+1s delete:30 +3s", "delete:5 +2s", "kill c/0"),
        (deadline.clone(), false, "+1s", "+4s", "signal 15 c/0"),
        (deadline, false, "+5s", "+3s", "kill c/0"),
        // The first run of a probe, and the next.
        (probed.clone(), false, "+1s", "+2s", "check c/0 well? 1000ms"),
        (probed, false, "+3s ok", "+5s", "check c/0 well? 1000ms"),
        // The report, a start for which the machine lacked something, content of a volume, the measured disk.
        (one("Never"), false, "", "+1s", "Running[c=Ready]"),
        (one("Never"), true, "not-yet:c", "+250ms", "start c/0"),
        (with(one("Never"), volume.clone()), false, "+1s", "settings +1s", "start c/0"),
        (with(one("Never"), volume), false, "settings +4s", "other-settings +60s", "prepare"),
        (
            with(
                one("Never"),
                json!({"containers": [with(container("c"), json!({
                    "resources": {"limits": {"ephemeral-storage": "1Ki"}}
                }))]}),
            ),
            false,
            "+1s",
            "+9s",
            "measure",
        ),
    ];
    for (spec, slow, before, after, then) in table {
        let bench = || run(Bench::with(pod(spec.clone()), &[], slow), before);
        let known = bench().log;
        let (undisturbed, set_back) = (run(bench(), after), run(run(bench(), "back:3600"), after));
        assert_eq!(undisturbed.log, set_back.log, "{before} {after}");
        let news = &set_back.log[known.len()..];
        assert!(news.iter().any(|entry| entry == then), "{before} {after}: {news:?}");
    }
    // Without word of the clock, as when the clock is slow to be noticed, a start that left no record is not late either.
    let mut bench = run(Bench::with(pod(one("OnFailure")), &[], true), "up:c c=1");
    bench.now = bench.now - Span::from_seconds(3600);
    bench.running.clear();
    bench.log.clear();
    bench.machine.recover(&[], bench.now);
    bench.settle();
    assert_eq!(bench.log.join(", "), "start c/1");
}

/// The start of the Pod was stored by a clock that was ahead, and this node has been started since.
#[test]
fn a_deadline_counts_from_now_at_the_latest() {
    let mut pod = pod(with(one("OnFailure"), json!({"activeDeadlineSeconds": 5})));
    pod["status"] = json!({"phase": "Running", "startTime": "2199-01-01T00:00:00Z"});
    let bench = run(Bench::new(pod, &[]), "+5s");
    assert_eq!(bench.log.last().unwrap(), "signal 15 c/0");
}

#[test]
fn the_waits_before_a_restart() {
    let waits: Vec<_> = (0..8).map(|restarts| container::delay_after(restarts).millis() / 1000).collect();
    assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
    let mut long = Container::new(Role::Main);
    long.delay = Span::from_seconds(160);
    let ran = |seconds| pod::Terminated {
        started_at: Some(begin() - Span::from_seconds(seconds)),
        finished_at: Some(begin()),
        ..pod::Terminated::default()
    };
    long.end(5, ran(599), begin());
    assert!(matches!(long.state, State::Ended { again_at, .. } if again_at == begin() + Span::from_seconds(160)));
    long.end(6, ran(600), begin());
    assert!(matches!(long.state, State::Ended { again_at, .. } if again_at == begin()));
    assert_eq!(long.delay, Span::from_seconds(10));
}
