//! One rule a row: a Pod, what happens to it, and all that the machine does about it.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::*;
use crate::port::{Check, Exit, Found, Signal};

/// One machine, a fake of the half that does, and a fake of the API.
struct Bench {
    machine: Machine,
    options: Options,
    pod: Value,
    now: Timestamp,
    out: Effects,
    checks: VecDeque<u64>,
    running: Vec<Attempt>,
    drain_within: Option<Span>,
    /// Starts are answered by hand.
    slow: bool,
    log: Vec<String>,
    objects: Value,
    writes: Vec<Value>,
}

fn pod(spec: Value) -> Value {
    json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 1},
        "spec": spec, "status": {"phase": "Pending"},
    })
}

fn begin() -> Timestamp {
    Timestamp::from_seconds(1_700_000_000)
}

impl Bench {
    fn new(pod: Value, found: &[Found]) -> Self {
        Self::with(pod, found, false)
    }

    fn with(pod: Value, found: &[Found], slow: bool) -> Self {
        let now = begin();
        let machine = Machine::adopt(Pod::read(pod.to_string().as_bytes()).unwrap(), found, now);
        let mut bench = Self {
            machine,
            options: Options::new("n"),
            pod,
            now,
            out: Effects::default(),
            checks: VecDeque::new(),
            running: Vec::new(),
            drain_within: None,
            slow,
            log: Vec::new(),
            objects: json!({}),
            writes: Vec::new(),
        };
        bench.settle();
        bench
    }

    /// Lets the machine act until it rests.
    fn settle(&mut self) {
        for _ in 0..100 {
            self.out.wake_at = None;
            self.machine.proceed(self.drain_within, &self.options, self.now, &mut self.out);
            self.log_events();
            let mut reports = Vec::new();
            for deed in std::mem::take(&mut self.out.deeds) {
                reports.extend(self.carry_out(deed));
            }
            let asked = self.machine.ask(self.drain_within.is_some(), &self.options, self.now);
            if reports.is_empty() && asked.is_none() {
                return;
            }
            for report in reports {
                self.machine.hear(report, self.now, &mut self.out);
            }
            if let Some(ask) = asked {
                self.answer(ask);
            }
        }
        panic!("it never rests: {:?}", self.log);
    }

    fn log_events(&mut self) {
        for event in std::mem::take(&mut self.out.events) {
            self.log.push(format!("!{}", event.reason));
        }
    }

    fn carry_out(&mut self, deed: Deed) -> Option<Report> {
        let short = |attempt: &Attempt| format!("{}/{}", attempt.container, attempt.number);
        match deed {
            Deed::Prepare(order) => {
                self.log.push("prepare".to_owned());
                Some(Report::Prepared { pod: order.pod })
            }
            Deed::Start(order) => {
                self.log.push(format!("start {}", short(&order.attempt)));
                assert!(!self.running.contains(&order.attempt), "started twice");
                self.running.push(order.attempt.clone());
                (!self.slow).then_some(Report::Started { attempt: order.attempt, at: self.now })
            }
            Deed::Signal { attempt, signal } => {
                let signal = match signal {
                    Signal::Kill => "kill".to_owned(),
                    Signal::Number(number) => format!("signal {number}"),
                };
                self.log.push(format!("{signal} {}", short(&attempt)));
                Some(Report::Signalled { attempt })
            }
            Deed::Check { id, attempt, check, timeout_millis } => {
                let what = match check {
                    Check::Exec { argv } => argv.join(" "),
                    Check::Http { host, port, path, .. } => format!("http {host}:{port}{path}"),
                    Check::Tcp { port, .. } => format!("tcp {port}"),
                    Check::Sleep { seconds } => format!("sleep {seconds}"),
                };
                self.log.push(format!("check {} {what} {timeout_millis}ms", short(&attempt)));
                self.checks.push_back(id);
                None
            }
            Deed::Clean { .. } => {
                self.log.push("clean".to_owned());
                None
            }
        }
    }

    fn answer(&mut self, ask: Ask) {
        match ask {
            Ask::Read(source, _) => {
                let object = self.objects.get(source.name().as_str()).cloned();
                self.machine.read(source, Ok(object), self.now);
            }
            Ask::Write(call) => {
                let body: Value = serde_json::from_slice(&call.body).unwrap();
                assert_eq!(body["metadata"]["resourceVersion"], self.pod["metadata"]["resourceVersion"]);
                self.writes.push(body["status"].clone());
                merge(&mut self.pod["status"], &body["status"]);
                self.log.push(shown(&self.pod["status"]));
                self.stored();
                let pod = Pod::read(self.pod.to_string().as_bytes()).unwrap();
                self.machine.written(Heard::Done(Some(Box::new(pod))), self.now);
            }
            Ask::Remove(_) => {
                self.log.push("remove".to_owned());
                self.machine.removed(Heard::Done(None), self.now);
            }
        }
    }

    fn stored(&mut self) {
        let revision: u64 = self.pod["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        self.pod["metadata"]["resourceVersion"] = (revision + 1).to_string().into();
    }

    fn changed(&mut self) {
        self.stored();
        self.machine.observe(Pod::read(self.pod.to_string().as_bytes()).unwrap());
    }

    fn pass(&mut self, millis: i64) {
        let end = self.now + Span::from_millis(millis);
        loop {
            let asks_at = self.machine.ask_at(&self.options, self.now);
            let wake = self.out.wake_at.into_iter().chain(asks_at).min().filter(|at| *at <= end);
            let Some(wake) = wake else { break };
            assert!(wake > self.now, "a wish to be woken in the past: {:?}", self.log);
            self.now = wake;
            self.settle();
        }
        self.now = end;
    }

    fn exit(&mut self, container: &str, code: i32) {
        let at = self.running.iter().rposition(|attempt| attempt.container == container).unwrap();
        let attempt = self.running[at].clone();
        let exit = Exit {
            code,
            signal: None,
            out_of_memory: false,
            started_at: self.now,
            finished_at: self.now,
            message: String::new(),
        };
        self.machine.hear(Report::Ended { attempt, exit }, self.now, &mut self.out);
    }

    /// One word of a script.
    fn step(&mut self, word: &str) {
        if let Some(span) = word.strip_prefix('+') {
            let (number, unit) = span.split_at(span.find(|c: char| c.is_alphabetic()).unwrap());
            let unit = if unit == "ms" { 1 } else { 1000 };
            self.pass(number.parse::<i64>().unwrap() * unit);
        } else if let Some((container, code)) = word.split_once('=') {
            self.exit(container, code.parse().unwrap());
        } else if let Some(grace) = word.strip_prefix("delete:") {
            self.pod["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z".into();
            self.pod["metadata"]["deletionGracePeriodSeconds"] = grace.parse::<i64>().unwrap().into();
            self.changed();
        } else if let Some(container) = word.strip_prefix("up:") {
            let attempt = self.running.iter().rfind(|attempt| attempt.container == container).unwrap().clone();
            self.machine.hear(Report::Started { attempt, at: self.now }, self.now, &mut self.out);
        } else if let Some(container) = word.strip_prefix("cannot:") {
            let attempt = self.running.iter().rfind(|attempt| attempt.container == container).unwrap().clone();
            let failure = Failure { reason: "StartError".into(), message: "no such program".to_owned() };
            self.machine.hear(Report::Unstarted { attempt, failure }, self.now, &mut self.out);
        } else {
            match word {
                "ok" => self.checked(Ok(())),
                "no" => self.checked(Err("nothing there".to_owned())),
                "drain" => self.drain_within = Some(Span::from_seconds(8)),
                "drain-now" => self.drain_within = Some(Span::ZERO),
                "gone" => self.machine.lose(),
                "failed-elsewhere" => {
                    self.pod["status"]["phase"] = "Failed".into();
                    self.changed();
                }
                "other-settings" => {
                    self.objects = json!({"settings": {"data": {"A": "2"}}});
                }
                "settings" => {
                    self.objects = json!({"settings": {"data": {"A": "1"}}});
                }
                other => panic!("no such step: {other}"),
            }
        }
        self.log_events();
        self.settle();
    }

    fn checked(&mut self, outcome: Result<(), String>) {
        let id = self.checks.pop_front().unwrap();
        self.machine.hear(Report::Checked { id, outcome }, self.now, &mut self.out);
    }
}

/// As a server does with a status patch: conditions by type, everything else replaced.
fn merge(status: &mut Value, patch: &Value) {
    for (key, value) in patch.as_object().unwrap() {
        if key != "conditions" {
            status[key] = value.clone();
            continue;
        }
        let mut conditions = status[key].as_array().cloned().unwrap_or_default();
        for condition in value.as_array().unwrap() {
            conditions.retain(|known| known["type"] != condition["type"]);
            let mut condition = condition.clone();
            condition.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            conditions.push(condition);
        }
        status[key] = conditions.into();
    }
}

/// A status in one word: `Running[c=run]`, `Failed(DeadlineExceeded)[i=0 c=137x1]`. Small letters where it is not ready.
fn shown(status: &Value) -> String {
    let none = Vec::new();
    let lists = ["initContainerStatuses", "containerStatuses"];
    let each = lists.into_iter().flat_map(|list| status[list].as_array().unwrap_or(&none)).map(|container| {
        let state = &container["state"];
        let ready = container["ready"] == true;
        let text = if let Some(ended) = state.get("terminated") {
            let reason = ended["reason"].as_str().unwrap();
            let reason = if matches!(reason, "Completed" | "Error") { "" } else { reason };
            format!("{}{reason}", ended["exitCode"])
        } else if let Some(waiting) = state.get("waiting") {
            waiting["reason"].as_str().unwrap().to_owned()
        } else if ready {
            "Ready".to_owned()
        } else {
            "runs".to_owned()
        };
        let restarts = match container["restartCount"].as_u64().unwrap() {
            0 => String::new(),
            count => format!("x{count}"),
        };
        format!("{}={text}{restarts}", container["name"].as_str().unwrap())
    });
    let each = each.collect::<Vec<_>>().join(" ");
    let reason = status["reason"].as_str().map_or(String::new(), |reason| format!("({reason})"));
    format!("{}{reason}[{each}]", status["phase"].as_str().unwrap())
}

#[track_caller]
fn check(spec: Value, script: &str, expected: &str) -> Bench {
    let bench = run(Bench::new(pod(spec), &[]), script);
    assert_eq!(bench.log.join(", "), expected);
    bench
}

fn run(mut bench: Bench, script: &str) -> Bench {
    script.split_whitespace().for_each(|word| bench.step(word));
    bench
}

fn container(name: &str) -> Value {
    json!({"name": name, "image": "process", "command": ["work"]})
}

fn with(mut container: Value, more: Value) -> Value {
    more.as_object().unwrap().iter().for_each(|(key, value)| container[key] = value.clone());
    container
}

fn one(policy: &str) -> Value {
    json!({"restartPolicy": policy, "containers": [container("c")]})
}

fn sidecar(name: &str) -> Value {
    with(container(name), json!({"restartPolicy": "Always"}))
}

#[test]
fn how_a_pod_runs_and_ends() {
    let table = [
        // A Pod that ends at once is told of once.
        (one("Never"), "c=0", "prepare, start c/0, Succeeded[c=0]"),
        (one("Never"), "c=3", "prepare, start c/0, Failed[c=3]"),
        (one("Never"), "+1s c=0", "prepare, start c/0, Running[c=Ready], Succeeded[c=0]"),
        (one("OnFailure"), "c=0", "prepare, start c/0, Succeeded[c=0]"),
        // The first restart is at once, those after it wait ever longer.
        (one("OnFailure"), "c=1 c=0", "prepare, start c/0, start c/1, Succeeded[c=0x1]"),
        (
            one("OnFailure"),
            "c=1 c=1 +1s +9s c=0",
            "prepare, start c/0, start c/1, !BackOff, Running[c=CrashLoopBackOffx1], start c/2, Succeeded[c=0x2]",
        ),
        (one("Always"), "c=0 +1s", "prepare, start c/0, start c/1, Running[c=Readyx1]"),
        (
            json!({"restartPolicy": "Never", "containers": [container("a"), container("b")]}),
            "a=0 +1s b=2",
            "prepare, start a/0, start b/0, Running[a=0 b=Ready], Failed[a=0 b=2]",
        ),
    ];
    for (spec, script, expected) in table {
        check(spec, script, expected);
    }
}

#[test]
fn what_cannot_start_has_failed() {
    let bench = Bench::with(pod(one("Never")), &[], true);
    let bench = run(bench, "cannot:c");
    assert_eq!(bench.log.join(", "), "prepare, start c/0, !Failed, Failed[c=128StartError]");
}

#[test]
fn init_containers_come_first_and_one_by_one() {
    let spec = |policy: &str| {
        json!({
            "restartPolicy": policy, "containers": [container("c")], "initContainers": [container("i"), container("j")],
        })
    };
    let table = [
        ("Never", "i=0 j=0 c=0", "prepare, start i/0, start j/0, start c/0, Succeeded[i=0 j=0 c=0]"),
        (
            "Never",
            "+1s i=0 +1s",
            "prepare, start i/0, Pending[i=runs j=PodInitializing c=PodInitializing], start j/0, \
             Pending[i=0 j=runs c=PodInitializing]",
        ),
        ("Never", "i=1 +1s", "prepare, start i/0, Failed[i=1 j=PodInitializing c=PodInitializing]"),
        (
            "OnFailure",
            "i=1 i=0 j=0 c=0",
            "prepare, start i/0, start i/1, start j/0, start c/0, Succeeded[i=0x1 j=0 c=0]",
        ),
        ("Always", "i=1 i=0 +1s", "prepare, start i/0, start i/1, start j/0, Pending[i=0x1 j=runs c=PodInitializing]"),
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
    let started = "prepare, start s/0, start i/0, start t/0, start c/0";
    let table = [
        ("i=0 c=0 t=143 s=143", "signal 15 t/0, signal 15 s/0, Succeeded[s=143 i=0 t=143 c=0]"),
        // What a sidecar does decides nothing.
        ("i=0 s=1 c=0 t=0 s=1", "start s/1, signal 15 t/0, signal 15 s/1, Succeeded[s=1x1 i=0 t=0 c=0]"),
        ("i=0 c=4 t=0 s=0", "signal 15 t/0, signal 15 s/0, Failed[s=0 i=0 t=0 c=4]"),
        // No longer than the grace period.
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
    let expected = "prepare, start s/0, check s/0 up? 1000ms, Pending[s=runs c=PodInitializing], !Unhealthy, \
                    check s/0 up? 1000ms, start c/0, Running[s=Ready c=Ready]";
    check(spec, "+1s no +1s ok +1s", expected);
}

#[test]
fn probes() {
    let spec = |more: Value| json!({"restartPolicy": "OnFailure", "containers": [with(container("c"), more)]});
    let exec = |more: Value| with(json!({"exec": {"command": ["well?"]}, "periodSeconds": 5}), more);
    let table = [
        (
            json!({"readinessProbe": exec(json!({"initialDelaySeconds": 3, "failureThreshold": 1}))}),
            "+1s +2s ok +1s +4s no +1s",
            "prepare, start c/0, Running[c=runs], check c/0 well? 1000ms, Running[c=Ready], check c/0 well? 1000ms, \
             !Unhealthy, Running[c=runs]",
        ),
        (
            json!({"readinessProbe": exec(json!({"successThreshold": 2}))}),
            "ok +1s +4s ok +1s",
            "prepare, start c/0, check c/0 well? 1000ms, Running[c=runs], check c/0 well? 1000ms, Running[c=Ready]",
        ),
        // It is killed after its own time, and then the restart policy applies.
        (
            json!({"livenessProbe": exec(json!({"failureThreshold": 2, "terminationGracePeriodSeconds": 7}))}),
            "no +5s no +6s +1s c=137 +1s",
            "prepare, start c/0, check c/0 well? 1000ms, !Unhealthy, Running[c=Ready], check c/0 well? 1000ms, \
             !Unhealthy, !Killing, signal 15 c/0, kill c/0, start c/1, check c/1 well? 1000ms, Running[c=Readyx1]",
        ),
        // A startup probe holds the others back.
        (
            json!({
                "startupProbe": exec(json!({"timeoutSeconds": 2})),
                "livenessProbe": {"tcpSocket": {"port": "web"}}, "ports": [{"name": "web", "containerPort": 81}],
            }),
            "+1s ok",
            "prepare, start c/0, check c/0 well? 2000ms, Running[c=runs], check c/0 tcp 81 1000ms",
        ),
        (
            json!({"readinessProbe": {"httpGet": {"port": 80, "path": "ok"}}}),
            "",
            "prepare, start c/0, check c/0 http 127.0.0.1:80/ok 1000ms",
        ),
        (json!({"readinessProbe": {"tcpSocket": {"port": "nowhere"}}}), "", "prepare, start c/0, !Unhealthy"),
        (
            json!({"readinessProbe": {"grpc": {"port": 1}}}),
            "+1s",
            "prepare, !Failed, Pending[c=CreateContainerConfigError]",
        ),
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
            format!("prepare, start c/0, check c/0 hello {day}, Running[c=runs], Running[c=Ready]"),
        ),
        (
            json!({"postStart": hook("hello")}),
            "no c=143",
            format!("prepare, start c/0, check c/0 hello {day}, !FailedPostStartHook, signal 15 c/0, Failed[c=143]"),
        ),
        (
            json!({"preStop": hook("bye")}),
            "+1s delete:9 +2s ok c=0",
            "prepare, start c/0, Running[c=Ready], !Killing, check c/0 bye 9000ms, signal 15 c/0, Succeeded[c=0], \
             remove, clean"
                .to_owned(),
        ),
        // A hook that takes too long does not prolong anything.
        (
            json!({"preStop": {"sleep": {"seconds": 60}}, "stopSignal": "SIGUSR1"}),
            "+1s delete:9 +9s c=137",
            "prepare, start c/0, Running[c=Ready], !Killing, check c/0 sleep 60 9000ms, kill c/0, Failed[c=137], \
             remove, clean"
                .to_owned(),
        ),
        (
            json!({"preStop": hook("bye"), "stopSignal": "SIGUSR1"}),
            "+1s delete:9 no c=0",
            "prepare, start c/0, Running[c=Ready], !Killing, check c/0 bye 9000ms, !FailedPreStopHook, \
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
        // Its end is told before it goes.
        ("+1s delete:5 +1s c=143", "Running[c=Ready], !Killing, signal 15 c/0, Failed[c=143], remove, clean"),
        ("+1s delete:5 +5s c=137", "Running[c=Ready], !Killing, signal 15 c/0, kill c/0, Failed[c=137], remove, clean"),
        // A second, shorter one counts from the first.
        (
            "+1s delete:30 +3s delete:5 +1s +1s c=137",
            "Running[c=Ready], !Killing, signal 15 c/0, kill c/0, Failed[c=137], remove, clean",
        ),
        // No time at all: something else holds the object.
        ("+1s delete:0 c=137", "Running[c=Ready], !Killing, kill c/0, Failed[c=137]"),
        // Nobody is left to tell.
        ("+1s gone c=137", "Running[c=Ready], kill c/0, clean"),
        // Somebody else has said how it ended.
        ("+1s failed-elsewhere c=143", "Running[c=Ready], signal 15 c/0, Failed[c=143]"),
    ];
    for (script, expected) in table {
        check(one("Always"), script, &format!("prepare, start c/0, {expected}"));
    }
}

#[test]
fn what_is_being_started_is_stopped_once_it_runs() {
    let mut bench = Bench::new(pod(one("OnFailure")), &[]);
    bench.slow = true;
    let bench = run(bench, "c=1 delete:5 up:c c=143");
    let expected = "prepare, start c/0, start c/1, !Killing, signal 15 c/1, Failed[c=143x1], remove, clean";
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

#[test]
fn a_pod_has_until_its_deadline() {
    let spec = with(one("OnFailure"), json!({"activeDeadlineSeconds": 5, "terminationGracePeriodSeconds": 3}));
    let bench = check(
        spec,
        "+5s +3s c=137 +60s",
        "prepare, start c/0, Running[c=Ready], signal 15 c/0, kill c/0, Failed(DeadlineExceeded)[c=137]",
    );
    let message = &bench.pod["status"]["message"];
    assert_eq!(message, "Pod was active on the node longer than the specified deadline");
}

#[test]
fn a_node_that_stops_ends_its_pods_and_says_why() {
    let bench = check(
        one("OnFailure"),
        "+1s drain +1s c=0",
        "prepare, start c/0, Running[c=Ready], signal 15 c/0, Failed(Terminated)[c=0]",
    );
    let conditions = bench.pod["status"]["conditions"].as_array().unwrap();
    let target = conditions.iter().find(|condition| condition["type"] == "DisruptionTarget").unwrap();
    assert_eq!(target["reason"], "TerminationByKubelet");
    let ran = "prepare, start c/0, Running[c=Ready], signal 15 c/0, kill c/0, Failed(Terminated)[c=137]";
    check(one("OnFailure"), "+1s drain +8s c=137", ran);
    check(one("OnFailure"), "+1s drain +2s drain-now c=137", ran);
    // What waits to be restarted goes on with the next start.
    let bench = check(
        one("OnFailure"),
        "c=1 c=1 drain +60s",
        "prepare, start c/0, start c/1, !BackOff, Running[c=CrashLoopBackOffx1]",
    );
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
        "prepare, !Failed, Pending[c=CreateContainerConfigError], !Failed, start c/0, Running[c=Ready], Succeeded[c=0]",
    );
    let volume = json!([{"name": "v", "configMap": {"name": "settings"}}]);
    check(
        with(one("Never"), json!({"volumes": volume})),
        "+1s settings +60s c=0",
        "!FailedMount, Pending[c=ContainerCreating], !FailedMount, !FailedMount, prepare, start c/0, \
         Running[c=Ready], Succeeded[c=0]",
    );
    // And followed as it changes.
    let mut bench = Bench::with(pod(with(one("Never"), json!({"volumes": volume}))), &[], false);
    bench.log.clear();
    let bench = run(bench, "settings +1s +59s +3s other-settings +60s");
    assert_eq!(bench.log.join(", "), "Pending[c=ContainerCreating], prepare, start c/0, Running[c=Ready], prepare");
    let volume = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]);
    let bench =
        check(with(one("Never"), json!({"volumes": volume})), "+600s", "!FailedMount, Pending[c=UnsupportedVolume]");
    let message = bench.pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap();
    assert!(message.contains("\"v\"") && message.contains("persistentVolumeClaim") && message.contains("emptyDir"));
}

#[test]
fn a_container_without_a_command_waits_and_is_told_what_it_needs() {
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]});
    let bench = check(spec, "+600s", "prepare, !CommandMissing, Pending[c=CommandMissing]");
    let message = bench.pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap();
    assert!(message.contains("`command`"), "{message}");
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "args": ["work"]}]});
    check(spec, "c=0", "prepare, start c/0, Succeeded[c=0]");
}

fn found(container: &str, number: u32, code: Option<i32>) -> Found {
    let at = begin() - Span::from_seconds(60);
    let exit = code.map(|code| Exit {
        code,
        signal: None,
        out_of_memory: false,
        started_at: at,
        finished_at: at,
        message: "done".to_owned(),
    });
    Found { attempt: Attempt { pod: PodUid::new("u"), container: container.into(), number }, started_at: at, exit }
}

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
        // An exit on record is taken as if heard now, and the Pod is not run again.
        ("Never", "Pending", empty.clone(), vec![found("c", 0, Some(0))], "Succeeded[c=0]"),
        ("Never", "Running", status(0, &running), vec![found("c", 0, Some(3))], "Failed[c=3]"),
        ("OnFailure", "Running", status(0, &running), vec![found("c", 0, Some(3))], "prepare, start c/1"),
        // What nobody saw end has failed.
        ("Never", "Running", status(0, &running), vec![found("c", 0, None)], "Failed[c=137NodeRestarted]"),
        ("Never", "Pending", empty.clone(), vec![found("c", 0, None)], "Failed[c=137NodeRestarted]"),
        ("OnFailure", "Running", status(0, &running), vec![found("c", 0, None)], "prepare, start c/1"),
        // What ran once and left no trace too.
        ("Never", "Running", status(0, &running), vec![], "Failed[c=137ContainerStatusUnknown]"),
        // What is shown as ended is not started and not counted again.
        ("OnFailure", "Running", status(0, &ended(0, 0)), vec![found("c", 0, Some(0))], "Succeeded[c=0]"),
        ("OnFailure", "Running", status(1, &ended(1, 1)), vec![found("c", 1, Some(1))], "prepare, start c/2"),
        ("OnFailure", "Running", status(1, &running), vec![found("c", 0, Some(1))], "!BackOff"),
        // The record may be ahead of what was told.
        (
            "OnFailure",
            "Running",
            status(0, &running),
            vec![found("c", 0, Some(1)), found("c", 1, Some(0))],
            "Succeeded[c=0x1]",
        ),
        // Nothing had begun.
        ("Never", "Pending", empty, vec![], "prepare, start c/0"),
    ];
    for (policy, phase, containers, found, expected) in table {
        let mut pod = pod(one(policy));
        pod["status"] = json!({"phase": phase, "startTime": "2023-11-14T22:00:00Z", "containerStatuses": containers});
        let bench = Bench::new(pod, &found);
        let log = bench.log.join(", ");
        assert!(log == expected || log == format!("prepare, {expected}"), "{policy} {containers} {found:?}: {log}");
    }
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
    let Some(Ask::Write(_)) = bench.machine.ask(false, &bench.options, bench.now) else { panic!("no write") };
    assert!(bench.machine.ask(false, &bench.options, bench.now).is_none(), "one at a time");
    bench.machine.written(Heard::Failed, bench.now);
    assert!(bench.machine.ask(false, &bench.options, bench.now).is_none(), "not at once");
    // Unless the Pod has changed.
    bench.changed();
    bench.settle();
    assert_eq!(bench.log.join(", "), "prepare, start c/0, Succeeded[c=0]");
}

#[test]
fn a_write_that_changed_no_condition_is_made_again_too() {
    let mut bench = run(Bench::new(pod(one("OnFailure")), &[]), "+1s c=1");
    bench.now = bench.now + Span::from_seconds(1);
    let Some(Ask::Write(call)) = bench.machine.ask(false, &bench.options, bench.now) else { panic!("no write") };
    assert_eq!(serde_json::from_slice::<Value>(&call.body).unwrap()["status"]["conditions"], json!([]));
    bench.machine.written(Heard::Failed, bench.now);
    bench.pass(60_000);
    assert_eq!(bench.log.join(", "), "prepare, start c/0, Running[c=Ready], start c/1, Running[c=Readyx1]");
}

#[test]
fn a_removal_that_failed_is_asked_for_again() {
    let mut bench = run(Bench::new(pod(one("Never")), &[]), "+1s delete:5");
    bench.exit("c", 0);
    loop {
        bench.machine.proceed(None, &bench.options, bench.now, &mut bench.out);
        match bench.machine.ask(false, &bench.options, bench.now) {
            Some(Ask::Remove(_)) => break,
            Some(ask) => bench.answer(ask),
            None => panic!("no removal"),
        }
    }
    bench.machine.removed(Heard::Failed, bench.now);
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
    let failure = Failure { reason: "StartError".into(), message: String::new() };
    bench.machine.hear(Report::Unstarted { attempt: first, failure }, bench.now, &mut bench.out);
    let bench = run(bench, "+1s c=0");
    assert_eq!(bench.log.join(", "), "prepare, start c/0, start c/1, Running[c=Readyx1], Succeeded[c=0x1]");
}

/// The half that does has been replaced.
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
