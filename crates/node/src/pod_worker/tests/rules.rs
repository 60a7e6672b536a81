//! How Pods run and end.

use super::*;

#[test]
fn how_a_pod_runs_and_ends() {
    let table = [
        // A Pod that ends at once needs one status write.
        (one("Never"), "c=0", "start c/0, Succeeded[c=0]"),
        (one("Never"), "c=3", "start c/0, Failed[c=3]"),
        (one("Never"), "+1s c=0", "start c/0, Running[c=Ready], Succeeded[c=0]"),
        (one("OnFailure"), "c=0", "start c/0, Succeeded[c=0]"),
        // The first restart is immediate; the back-off before each later one is longer.
        (one("OnFailure"), "c=1 c=0", "start c/0, start c/1, Succeeded[c=0x1]"),
        (
            one("OnFailure"),
            "c=1 c=1 +1s +9s c=0",
            "start c/0, start c/1, !BackOff, Running[c=CrashLoopBackOffx1], start c/2, Succeeded[c=0x2]",
        ),
        (one("Always"), "c=0 +1s", "start c/0, start c/1, Running[c=Readyx1]"),
        (
            json!({"restartPolicy": "Never", "containers": [container("a"), container("b")]}),
            "a=0 +1s b=2",
            "start a/0, start b/0, Running[a=0 b=Ready], Failed[a=0 b=2]",
        ),
    ];
    for (spec, script, expected) in table {
        check(spec, script, expected);
    }
}

#[test]
fn a_container_may_say_after_which_exits_it_starts_again() {
    let rule = |operator: &str, values: Value| {
        let codes = json!({"operator": operator, "values": values});
        json!({"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart", "exitCodes": codes}]})
    };
    let main = |more: Value| json!({"restartPolicy": "Never", "containers": [with(container("c"), more)]});
    for (spec, script, expected) in [
        (main(rule("In", json!([42, 43]))), "c=42 c=0", "start c/1, Succeeded[c=0x1]"),
        (main(rule("In", json!([42, 43]))), "c=1", "Failed[c=1]"),
        (main(rule("NotIn", json!([0, 1]))), "c=2 c=1", "start c/1, Failed[c=1x1]"),
        (main(rule("In", json!([0]))), "c=0 c=1", "start c/1, Failed[c=1x1]"),
    ] {
        check(spec, script, &format!("start c/0, {expected}"));
    }
    let init = with(container("i"), rule("NotIn", json!([3])));
    let spec = json!({"restartPolicy": "Never", "containers": [container("c")], "initContainers": [init]});
    check(spec, "i=1 i=0 c=0", "start i/0, start i/1, start c/0, Succeeded[i=0x1 c=0]");
    let all = json!({"restartPolicyRules": [{"action": "RestartAllContainers"}]});
    let bench = check(main(all), "+1s", "!Failed, Pending[c=CreateContainerConfigError]");
    assert!(bench.waits_for().contains("not \"RestartAllContainers\""), "{}", bench.waits_for());
}

#[test]
fn what_a_container_may_use() {
    let limits = |cpu: &str, memory: &str| {
        let limits = json!({"resources": {"limits": {"cpu": cpu, "memory": memory}}});
        let spec = json!({"restartPolicy": "Never", "containers": [with(container("c"), limits)]});
        let bench = Bench::new(pod(spec), &[]);
        (bench.orders[0].limits.cpu, bench.orders[0].limits.memory)
    };
    assert_eq!(limits("250m", "1Ki"), (Some(250), Some(1024)));
    assert_eq!(limits("0", "0"), (None, None), "no limit");
}

#[test]
fn what_a_container_gets_when_there_is_not_enough() {
    let asks = |name: &str, cpu: &str| with(container(name), json!({"resources": {"requests": {"cpu": cpu}}}));
    let spec = |init: Value| json!({"restartPolicy": "Never", "containers": [asks("a", "250m"), asks("b", "1")], "initContainers": [init]});
    for (init, script, expected) in [
        (asks("i", "3"), "", (3000, 3000)),
        (asks("i", "3"), "i=0", (250, 3000)),
        (asks("i", "100m"), "i=0", (250, 1250)),
        (container("i"), "", (0, 1250)),
        (with(asks("i", "100m"), json!({"restartPolicy": "Always"})), "", (100, 1350)),
    ] {
        let bench = run(Bench::new(pod(spec(init)), &[]), script);
        let order = &bench.orders[usize::from(!script.is_empty())].limits;
        assert_eq!((order.cpu_request, order.pod_cpu_request), expected);
    }
}

fn condition(bench: &Bench, kind: &str) -> Vec<String> {
    let conditions = bench.pod["status"]["conditions"].as_array().unwrap();
    let this = conditions.iter().find(|condition| condition["type"] == kind);
    let text = |field: &str| this.map(|this| this[field].as_str().unwrap_or_default().to_owned());
    ["status", "reason", "message"].into_iter().filter_map(text).collect()
}

#[test]
fn limits_without_effect_are_told_once() {
    let script = "unlimited +1s unlimited c=1 +10s unlimited +1s";
    let expected = "start c/0, !LimitsNotEnforced, Running[c=Ready], start c/1, Running[c=Readyx1]";
    let bench = check(one("OnFailure"), script, expected);
    let told = ["False", "NotSupportedByNode", "no limits here"];
    assert_eq!(condition(&bench, "tally.dev/LimitsEnforced"), told);
    // The next node finds the condition.
    let again = run(Bench::new(bench.pod, &[found("c", 1, Some(1))]), "+20s unlimited +1s");
    assert!(!again.log.contains(&"!LimitsNotEnforced".to_owned()), "{:?}", again.log);
    assert_eq!(condition(&again, "tally.dev/LimitsEnforced"), told);
}

/// A container that may use a kibibyte of disk space.
fn small_disk(policy: &str) -> Value {
    let limits = json!({"resources": {"limits": {"ephemeral-storage": "1Ki"}}});
    json!({"restartPolicy": policy, "terminationGracePeriodSeconds": 60, "containers": [with(container("c"), limits)]})
}

#[test]
fn a_pod_that_uses_too_much_disk_is_evicted() {
    let begun = "start c/0, Running[c=Ready], measure";
    let stopped = "!Evicted, signal 15 c/0, kill c/0, remove volumes, Failed(Evicted)[c=137]";
    for policy in ["Never", "OnFailure", "Always"] {
        let script = "+10s uses:1024 +9s +1s uses:1025 +1s c=137 +60s";
        let bench = check(small_disk(policy), script, &format!("{begun}, measure, {stopped}"));
        let message = "Pod ephemeral local storage usage exceeds the total limit of containers 1Ki. ";
        assert_eq!(bench.pod["status"]["message"], message);
        assert_eq!(condition(&bench, "DisruptionTarget"), ["True", "TerminationByKubelet", message]);
    }
    // One that ends by itself meanwhile, with success, has been evicted nevertheless, as by the kubelet.
    let ended = "!Evicted, signal 15 c/0, remove volumes, Failed(Evicted)[c=0]";
    check(small_disk("Never"), "+10s uses:1025 c=0 +60s", &format!("{begun}, {ended}"));
    // The answer comes too late: the Pod has ended.
    check(small_disk("Never"), "+10s c=0 uses:1025 +60s", &format!("{begun}, Succeeded[c=0]"));
    // Nothing is measured while nothing runs, and without limits.
    check(one("Never"), "+60s", "start c/0, Running[c=Ready]");
    check(small_disk("Never"), "+1s c=0 +60s", "start c/0, Running[c=Ready], Succeeded[c=0]");
}

#[test]
fn measurements_that_take_long_are_rare() {
    // Ten seconds after an answer that came at once, and nine times as long as it took otherwise.
    let begun = "start c/0, Running[c=Ready], measure";
    check(small_disk("Never"), "+10s uses:0 +9s", begun);
    check(small_disk("Never"), "+10s uses:0 +10s", &format!("{begun}, measure"));
    check(small_disk("Never"), "+10s +20s uses:0 +179s", begun);
    check(small_disk("Never"), "+10s +20s uses:0 +180s", &format!("{begun}, measure"));
    check(small_disk("Never"), "+10s +1000s uses:0 +299s", begun);
    check(small_disk("Never"), "+10s +1000s uses:0 +300s", &format!("{begun}, measure"));
}

#[test]
fn a_path_that_cannot_be_filled_in_is_waited_for() {
    let mounts = json!({"volumeMounts": [{"name": "v", "mountPath": "/v", "subPathExpr": "$(NOBODY)"}]});
    let spec = json!({
        "restartPolicy": "Never", "containers": [with(container("c"), mounts)], "volumes": [{"name": "v"}],
    });
    let bench = check(spec, "+1s", "prepare, !Failed, Pending[c=CreateContainerConfigError]");
    assert!(bench.waits_for().contains("missing value for \"NOBODY\""), "{}", bench.waits_for());
}

/// It would hide the whole file system, or, mounted over the root of the process, nothing.
#[test]
fn a_volume_at_the_root_is_refused() {
    for path in ["/", "//", "/.", "/./"] {
        let mounts = json!({"volumeMounts": [{"name": "v", "mountPath": path}]});
        let spec = json!({
            "restartPolicy": "Never", "containers": [with(container("c"), mounts)], "volumes": [{"name": "v"}],
        });
        let bench = check(spec, "+1s", "prepare, !Failed, Pending[c=CreateContainerConfigError]");
        assert!(bench.waits_for().contains("a volume cannot be mounted at /"), "{}", bench.waits_for());
    }
}

#[test]
fn what_cannot_start_has_failed() {
    let bench = Bench::with(pod(one("Never")), &[], true);
    let bench = run(bench, "cannot:c");
    assert_eq!(bench.log.join(", "), "start c/0, !Failed, Failed[c=128StartError]");
}

#[test]
fn what_the_machine_has_no_room_for_is_waited_out_and_costs_nothing() {
    let waits = "start c/0, !Failed, Pending[c=CreateContainerError]";
    for (script, then) in [
        ("not-yet:c +240ms", ""),
        // The attempt keeps its number, and the delay increases each time.
        ("not-yet:c +250ms not-yet:c +490ms", ", start c/0, !Failed"),
        (
            "not-yet:c +250ms not-yet:c +500ms up:c +1s c=0",
            ", start c/0, !Failed, start c/0, Running[c=Ready], Succeeded[c=0]",
        ),
        ("not-yet:c +1s cannot:c", ", start c/0, !Failed, Failed[c=128StartError]"),
        ("not-yet:c +240ms delete:5", ", Failed[c=137ContainerStatusUnknown], remove, clean"),
        // A container that has not started stays as it is; the next start of the node continues with it.
        ("not-yet:c +240ms drain +60s", ""),
    ] {
        let bench = run(Bench::with(pod(one("Never")), &[], true), script);
        assert_eq!(bench.log.join(", "), format!("{waits}{then}"), "{script}");
    }
    // A container that has run before waits in the same way.
    let bench = run(Bench::with(pod(one("OnFailure")), &[], true), "up:c c=1 not-yet:c +240ms");
    let log = bench.log.join(", ");
    assert!(log.ends_with("start c/1, !Failed, Running[c=CreateContainerError]"), "{log}");
}

#[test]
fn init_containers_come_first_and_one_by_one() {
    let spec = |policy: &str| {
        json!({
            "restartPolicy": policy, "containers": [container("c")], "initContainers": [container("i"), container("j")],
        })
    };
    let table = [
        ("Never", "i=0 j=0 c=0", "start i/0, start j/0, start c/0, Succeeded[i=0 j=0 c=0]"),
        (
            "Never",
            "+1s i=0 +1s",
            "start i/0, Pending[i=runs j=PodInitializing c=PodInitializing], start j/0, \
             Pending[i=0 j=runs c=PodInitializing]",
        ),
        ("Never", "i=1 +1s", "start i/0, Failed[i=1 j=PodInitializing c=PodInitializing]"),
        ("OnFailure", "i=1 i=0 j=0 c=0", "start i/0, start i/1, start j/0, start c/0, Succeeded[i=0x1 j=0 c=0]"),
        ("Always", "i=1 i=0 +1s", "start i/0, start i/1, start j/0, Pending[i=0x1 j=runs c=PodInitializing]"),
    ];
    for (policy, script, expected) in table {
        check(spec(policy), script, expected);
    }
}

#[test]
fn sidecars_stay_and_are_stopped_last_in_reverse() {
    let spec = json!({
        "restartPolicy": "Never", "containers": [container("c")],
        "initContainers": [sidecar("s"), container("i"), sidecar("t")],
    });
    let started = "start s/0, start i/0, start t/0, start c/0";
    let table = [
        ("i=0 c=0 t=143 s=143", "signal 15 t/0, signal 15 s/0, Succeeded[s=143 i=0 t=143 c=0]"),
        // The exit codes of sidecars do not affect the verdict.
        ("i=0 s=1 c=0 t=0 s=1", "start s/1, signal 15 t/0, signal 15 s/1, Succeeded[s=1x1 i=0 t=0 c=0]"),
        ("i=0 c=4 t=0 s=0", "signal 15 t/0, signal 15 s/0, Failed[s=0 i=0 t=0 c=4]"),
        // Sidecars run no longer than the grace period.
        ("i=0 c=0 +1s +29s", "signal 15 t/0, Running[s=Ready i=0 t=Ready c=0], kill t/0, kill s/0"),
    ];
    for (script, expected) in table {
        check(spec.clone(), script, &format!("{started}, {expected}"));
    }
}

#[test]
fn a_sidecar_is_up_before_the_next_one_starts() {
    let probe = json!({"startupProbe": {"exec": {"command": ["up?"]}, "periodSeconds": 2, "failureThreshold": 2}});
    let spec = json!({
        "restartPolicy": "Never", "containers": [container("c")], "initContainers": [with(sidecar("s"), probe)],
    });
    let expected = "start s/0, check s/0 up? 1000ms, Pending[s=runs c=PodInitializing], !Unhealthy, \
                    check s/0 up? 1000ms, start c/0, Running[s=Ready c=Ready]";
    check(spec.clone(), "+1s no +1s ok +1s", expected);
    // While the sidecar is not up, the condition names the container that the others wait for.
    let bench = run(Bench::new(pod(spec), &[]), "+1s");
    let conditions = bench.pod["status"]["conditions"].as_array().unwrap();
    let initialized = conditions.iter().find(|condition| condition["type"] == "Initialized").unwrap();
    assert_eq!(initialized["message"], "containers with incomplete status: [s]");
}

#[test]
fn probes() {
    let spec = |more: Value| json!({"restartPolicy": "OnFailure", "containers": [with(container("c"), more)]});
    let exec = |more: Value| with(json!({"exec": {"command": ["well?"]}, "periodSeconds": 5}), more);
    let table = [
        (
            json!({"readinessProbe": exec(json!({"initialDelaySeconds": 3, "failureThreshold": 1}))}),
            "+1s +2s ok +1s +4s no +1s",
            "start c/0, Running[c=runs], check c/0 well? 1000ms, Running[c=Ready], check c/0 well? 1000ms, \
             !Unhealthy, Running[c=runs]",
        ),
        (
            json!({"readinessProbe": exec(json!({"successThreshold": 2}))}),
            "ok +1s +4s ok +1s",
            "start c/0, check c/0 well? 1000ms, Running[c=runs], check c/0 well? 1000ms, Running[c=Ready]",
        ),
        // The container is killed after the probe's own grace period, and then the restart policy applies.
        (
            json!({"livenessProbe": exec(json!({"failureThreshold": 2, "terminationGracePeriodSeconds": 7}))}),
            "no +5s no +6s +1s c=137 +1s",
            "start c/0, check c/0 well? 1000ms, !Unhealthy, Running[c=Ready], check c/0 well? 1000ms, \
             !Unhealthy, !Killing, signal 15 c/0, kill c/0, start c/1, check c/1 well? 1000ms, Running[c=Readyx1]",
        ),
        // The other probes wait for the startup probe.
        (
            json!({
                "startupProbe": exec(json!({"timeoutSeconds": 2})),
                "livenessProbe": {"tcpSocket": {"port": "web"}}, "ports": [{"name": "web", "containerPort": 81}],
            }),
            "+1s ok",
            "start c/0, check c/0 well? 2000ms, Running[c=runs], check c/0 tcp 81 1000ms",
        ),
        (
            json!({"readinessProbe": {"httpGet": {"port": 80, "path": "ok"}}}),
            "",
            "start c/0, check c/0 http 127.0.0.1:80/ok 1000ms",
        ),
        (
            json!({
                "env": [{"name": "A", "value": "1"}, {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "readinessProbe": {"exec": {"command": ["at", "$(A)", "$(N)", "$$(A)", "$(B)"]}},
            }),
            "",
            "start c/0, check c/0 at 1 p $(A) $(B) 1000ms",
        ),
        (json!({"readinessProbe": {"tcpSocket": {"port": "nowhere"}}}), "", "start c/0, !Unhealthy"),
        (json!({"readinessProbe": {"grpc": {"port": 1}}}), "+1s", "!Failed, Pending[c=CreateContainerConfigError]"),
    ];
    for (more, script, expected) in table {
        check(spec(more), script, expected);
    }
}

#[test]
fn hooks() {
    let hook = |name: &str| json!({"exec": {"command": [name]}});
    let spec = |lifecycle: Value| json!({"restartPolicy": "Never", "containers": [with(container("c"), json!({"lifecycle": lifecycle}))]});
    let day = "86400000ms";
    let table = [
        (
            json!({"postStart": hook("hello")}),
            "+1s ok +1s",
            format!("start c/0, check c/0 hello {day}, Running[c=runs], Running[c=Ready]"),
        ),
        (
            json!({"postStart": hook("hello")}),
            "no c=143",
            format!("start c/0, check c/0 hello {day}, !FailedPostStartHook, signal 15 c/0, Failed[c=143]"),
        ),
        (
            json!({"preStop": hook("bye")}),
            "+1s delete:9 +2s ok c=0",
            "start c/0, Running[c=Ready], !Killing, check c/0 bye 9000ms, signal 15 c/0, Succeeded[c=0], \
             remove, clean"
                .to_owned(),
        ),
        // A hook that takes too long does not extend the grace period.
        (
            json!({"preStop": {"sleep": {"seconds": 60}}, "stopSignal": "SIGUSR1"}),
            "+1s delete:9 +9s c=137",
            "start c/0, Running[c=Ready], !Killing, check c/0 sleep 60 9000ms, kill c/0, Failed[c=137], \
             remove, clean"
                .to_owned(),
        ),
        (
            json!({"preStop": hook("bye"), "stopSignal": "SIGUSR1"}),
            "+1s delete:9 no c=0",
            "start c/0, Running[c=Ready], !Killing, check c/0 bye 9000ms, !FailedPreStopHook, \
             signal 10 c/0, Succeeded[c=0], remove, clean"
                .to_owned(),
        ),
    ];
    for (lifecycle, script, expected) in table {
        check(spec(lifecycle), script, &expected);
    }
}

#[test]
fn deletion() {
    let table = [
        // The Pod's end is stored before the Pod is removed.
        ("+1s delete:5 +1s c=143", "Running[c=Ready], !Killing, signal 15 c/0, Failed[c=143], remove, clean"),
        ("+1s delete:5 +5s c=137", "Running[c=Ready], !Killing, signal 15 c/0, kill c/0, Failed[c=137], remove, clean"),
        // A second, shorter grace period counts from the first deletion.
        (
            "+1s delete:30 +3s delete:5 +1s +1s c=137",
            "Running[c=Ready], !Killing, signal 15 c/0, kill c/0, Failed[c=137], remove, clean",
        ),
        // A grace period of zero: a finalizer keeps the object.
        ("+1s delete:0 c=137", "Running[c=Ready], !Killing, kill c/0, Failed[c=137]"),
        // The object is deleted: there is no status left to write.
        ("+1s gone c=137", "Running[c=Ready], kill c/0, clean"),
        // Another client has set a terminal phase.
        ("+1s failed-elsewhere c=143", "Running[c=Ready], signal 15 c/0, Failed[c=143]"),
    ];
    for (script, expected) in table {
        check(one("Always"), script, &format!("start c/0, {expected}"));
    }
}

#[test]
fn what_is_being_started_is_stopped_once_it_runs() {
    let mut bench = Bench::new(pod(one("OnFailure")), &[]);
    bench.slow = true;
    let bench = run(bench, "c=1 delete:5 up:c c=143");
    let expected = "start c/0, start c/1, !Killing, signal 15 c/1, Failed[c=143x1], remove, clean";
    assert_eq!(bench.log.join(", "), expected);
}

#[test]
fn a_pod_deleted_before_anything_started_has_failed() {
    let mut pod = pod(one("Never"));
    pod["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z".into();
    pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    let bench = Bench::new(pod, &[]);
    assert_eq!(bench.log.join(", "), "Failed[c=137ContainerStatusUnknown], remove, clean");
}

/// DEADLINE-6: the Pod's own deadline, independent of its Job's.
#[test]
fn a_pod_has_until_its_deadline() {
    let spec = with(one("OnFailure"), json!({"activeDeadlineSeconds": 5, "terminationGracePeriodSeconds": 3}));
    let bench = check(
        spec,
        "+5s +3s c=137 +60s",
        "start c/0, Running[c=Ready], signal 15 c/0, kill c/0, Failed(DeadlineExceeded)[c=137]",
    );
    let message = &bench.pod["status"]["message"];
    assert_eq!(message, "Pod was active on the node longer than the specified deadline");
}

/// GC-7.
#[test]
fn a_node_that_stops_ends_its_pods_and_says_why() {
    let two = json!({"restartPolicy": "Never", "containers": [container("a"), container("b")]});
    for (spec, script, expected, disrupted) in [
        (one("OnFailure"), "c=143", "Failed(Terminated)[c=143]", true),
        // A container that has completed its work has succeeded.
        (one("OnFailure"), "c=0", "Succeeded[c=0]", false),
        (one("Never"), "c=0", "Succeeded[c=0]", false),
        (two.clone(), "a=0 b=0", "Succeeded[a=0 b=0]", false),
        (two, "a=0 b=143", "Failed(Terminated)[a=0 b=143]", true),
    ] {
        let bench = run(Bench::new(pod(spec), &[]), &format!("+1s drain +1s {script}"));
        assert_eq!(bench.log.last().unwrap(), expected);
        let conditions = bench.pod["status"]["conditions"].as_array().unwrap();
        let target = conditions.iter().find(|condition| condition["type"] == "DisruptionTarget");
        let reason = target.and_then(|target| target["reason"].as_str());
        assert_eq!(reason, disrupted.then_some("TerminationByKubelet"), "{expected}");
    }
    let ran = "start c/0, Running[c=Ready], signal 15 c/0, kill c/0, Failed(Terminated)[c=137]";
    check(one("OnFailure"), "+1s drain +8s c=137", ran);
    check(one("OnFailure"), "+1s drain +2s drain-now c=137", ran);
    // A container that waits for its restart continues with the next start of the node.
    let bench =
        check(one("OnFailure"), "c=1 c=1 drain +60s", "start c/0, start c/1, !BackOff, Running[c=CrashLoopBackOffx1]");
    assert!(bench.machine.is_at_rest());
}

#[test]
fn what_is_missing_is_waited_for() {
    let reference = json!({"configMapKeyRef": {"name": "settings", "key": "A"}});
    let env = with(container("c"), json!({"env": [{"name": "A", "valueFrom": reference}]}));
    let spec = json!({"restartPolicy": "Never", "containers": [env]});
    check(
        spec,
        "+300ms settings +60s c=0",
        "!Failed, Pending[c=CreateContainerConfigError], !Failed, start c/0, Running[c=Ready], Succeeded[c=0]",
    );
    let volume = json!([{"name": "v", "configMap": {"name": "settings"}}]);
    check(
        with(one("Never"), json!({"volumes": volume})),
        "+1s settings +60s c=0",
        "!FailedMount, Pending[c=ContainerCreating], !FailedMount, !FailedMount, prepare, start c/0, \
         Running[c=Ready], Succeeded[c=0]",
    );
    // And updated when it changes.
    let mut bench = Bench::with(pod(with(one("Never"), json!({"volumes": volume}))), &[], false);
    bench.log.clear();
    let bench = run(bench, "settings +1s +59s +3s other-settings +60s");
    assert_eq!(bench.log.join(", "), "Pending[c=ContainerCreating], prepare, start c/0, Running[c=Ready], prepare");
    let volume = json!([{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]);
    let bench =
        check(with(one("Never"), json!({"volumes": volume})), "+600s", "!FailedMount, Pending[c=UnsupportedVolume]");
    let message = bench.pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap();
    assert!(message.contains("\"v\"") && message.contains("no ephemeral volumes") && message.contains("emptyDir"));
}

#[test]
fn what_this_node_cannot_do_is_refused_before_anything_starts() {
    let get = |scheme: &str| json!({"httpGet": {"port": 1, "scheme": scheme}});
    let secret = get("HTTPS");
    let not_https = "with scheme HTTP, not HTTPS";
    let breaks = "container's runAsUser breaks non-root policy (pod: \"p_ns(u)\", container: c)";
    let is_root = "container has runAsNonRoot and image will run as root (pod: \"p_ns(u)\", container: c)";
    let context = |user: Value| json!({"securityContext": {"runAsNonRoot": true, "runAsUser": user}});
    for (root, more, problem) in [
        (false, json!({"livenessProbe": secret}), not_https),
        (false, json!({"startupProbe": secret}), not_https),
        (false, json!({"readinessProbe": secret}), not_https),
        (false, json!({"lifecycle": {"postStart": secret}}), not_https),
        (false, json!({"lifecycle": {"preStop": secret}}), not_https),
        (false, json!({"lifecycle": {"preStop": get("HTTP")}}), ""),
        (false, context(json!(0)), breaks),
        (true, context(json!(null)), is_root),
        (true, context(json!(1000)), ""),
        (false, context(json!(null)), ""),
        (true, json!({"securityContext": {"runAsNonRoot": false}}), ""),
    ] {
        // The setting of the Pod applies if the container has none.
        let mut spec = json!({"restartPolicy": "Never", "securityContext": {"runAsNonRoot": false}});
        if more["securityContext"]["runAsNonRoot"] == true {
            spec["securityContext"]["runAsNonRoot"] = true.into();
        }
        let mut own = with(container("c"), more.clone());
        if let Some(own) = own.get_mut("securityContext").and_then(Value::as_object_mut) {
            own.retain(|key, _| key == "runAsUser");
        }
        spec["containers"] = json!([own]);
        let options = NodeOptions { is_root: root, ..NodeOptions::new("n") };
        let bench = run(Bench::on(options, pod(spec), &[], false), "+1s");
        let shown = &bench.pod["status"]["containerStatuses"][0]["state"];
        if problem.is_empty() {
            assert!(shown["running"].is_object(), "{more}: {shown}");
        } else {
            assert_eq!(shown["waiting"]["reason"], "CreateContainerConfigError", "{more}: {shown}");
            assert!(bench.waits_for().ends_with(problem), "{more}: {shown}");
        }
    }
}

#[test]
fn a_pod_that_makes_no_sense_is_told_so_and_let_go() {
    let spec = with(one("Never"), json!({"volumes": [{"name": "v", "configMap": {"name": "m", "defaultMode": -1}}]}));
    let bench = check(spec.clone(), "+600s", "!Failed, Pending(Unreadable)[]");
    let message = bench.pod["status"]["message"].as_str().unwrap();
    assert!(message.contains("makes no sense to the node: ") && message.contains("-1"), "{message}");
    check(spec, "+1s delete:5", "!Failed, Pending(Unreadable)[], Failed(Unreadable)[], remove, clean");
    // A Pod that was readable before continues, and ends when it is deleted.
    let mut bench = run(Bench::new(pod(one("Never")), &[]), "+1s");
    bench.pod["spec"]["volumes"] = json!(7);
    bench.changed();
    let bench = run(bench, "+1s delete:5 c=143");
    let expected = "start c/0, Running[c=Ready], !Killing, signal 15 c/0, Failed[c=143], remove, clean";
    assert_eq!(bench.log.join(", "), expected);
}

#[test]
fn a_null_says_nothing() {
    let volumes = json!([{"name": "v", "projected": {"sources": null}}, {"name": "w", "configMap": null}]);
    let nothing = ["env", "envFrom", "args", "ports", "volumeMounts", "resources", "securityContext", "lifecycle"];
    let mut own = container("c");
    nothing.iter().for_each(|field| own[*field] = Value::Null);
    let spec = json!({"restartPolicy": "Never", "volumes": volumes, "containers": [own], "initContainers": null});
    check(spec, "c=0", "prepare, start c/0, Succeeded[c=0]");
}

#[test]
fn a_container_without_a_command_waits_and_is_told_what_it_needs() {
    for (args, has) in [(json!([]), "has no command"), (json!(["-e", "print"]), "has args and no command")] {
        let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "perl", "args": args}]});
        let bench = check(spec, "+600s", "!CommandMissing, Pending[c=CommandMissing]");
        let message = bench.waits_for();
        assert!(message.contains(has) && message.contains("entrypoint, so `command` must say"), "{message}");
    }
}
