//! One rule per row: a Pod, a script of what happens to it, and everything that the state machine does in response.

mod again;
mod rules;

use std::collections::VecDeque;

use serde_json::{Value, json};
use tally_core::pod::PodView;
use tally_runtime::controller::Object;

use super::*;
use crate::port::{Check, Exit, Found, Signal, Start, StorageUsage};

/// One state machine, a fake of the half that acts, and a fake of the API.
struct Bench {
    machine: PodWorker,
    options: NodeOptions,
    pod: Value,
    now: Timestamp,
    out: Effects,
    checks: VecDeque<u64>,
    running: Vec<Attempt>,
    drain_within: Option<Span>,
    /// The test itself answers the start commands.
    slow: bool,
    log: Vec<String>,
    objects: Value,
    writes: Vec<Value>,
    orders: Vec<Start>,
}

fn pod(spec: Value) -> Value {
    json!({
        "metadata": {
            "name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 1,
            "creationTimestamp": "2023-11-14T22:13:20Z",
        },
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
        Self::on(NodeOptions::new("n"), pod, found, slow)
    }

    fn on(options: NodeOptions, pod: Value, found: &[Found], slow: bool) -> Self {
        Self::after(0, options, pod, found, slow)
    }

    /// With this number of restarts that ended earlier Pods of the attempt.
    fn after(restarts: u32, options: NodeOptions, pod: Value, found: &[Found], slow: bool) -> Self {
        let now = begin();
        let mut machine = PodWorker::adopt(Pod::read(&pod.to_string().into()).unwrap(), found, now);
        machine.continue_from(restarts);
        let mut bench = Self {
            machine,
            options,
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
            orders: Vec::new(),
        };
        bench.settle();
        bench
    }

    /// Runs the state machine until it has nothing more to do.
    fn settle(&mut self) {
        for _ in 0..100 {
            self.out.wake_at = None;
            self.machine.proceed(self.drain_within, &self.options, self.now, &mut self.out);
            self.log_events();
            let mut reports = Vec::new();
            for command in std::mem::take(&mut self.out.commands) {
                reports.extend(self.carry_out(command));
            }
            if self.machine.to_be_counted(&self.options).is_some() {
                self.machine.set_on_record(true);
            }
            let asked = self.machine.next_request(self.drain_within.is_some(), &self.options, self.now);
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

    fn carry_out(&mut self, command: ShimCommand) -> Option<Report> {
        let short = |attempt: &Attempt| format!("{}/{}", attempt.container, attempt.number);
        match command {
            ShimCommand::Prepare(order) => {
                self.log.push("prepare".to_owned());
                Some(Report::Prepared { pod: order.pod })
            }
            ShimCommand::Start(order) => {
                self.log.push(format!("start {}", short(&order.attempt)));
                assert!(!self.running.contains(&order.attempt), "started twice");
                self.running.push(order.attempt.clone());
                self.orders.push((*order).clone());
                (!self.slow).then_some(Report::Started { attempt: order.attempt, at: self.now })
            }
            ShimCommand::Signal { attempt, signal } => {
                let signal = match signal {
                    Signal::Kill => "kill".to_owned(),
                    Signal::Number(number) => format!("signal {number}"),
                };
                self.log.push(format!("{signal} {}", short(&attempt)));
                Some(Report::Signalled { attempt })
            }
            ShimCommand::Check { id, attempt, check, timeout_millis } => {
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
            ShimCommand::Measure { .. } => {
                self.log.push("measure".to_owned());
                None
            }
            ShimCommand::RemoveVolumes { .. } => {
                self.log.push("remove volumes".to_owned());
                None
            }
            ShimCommand::RemoveClaim { .. } => unreachable!("sent for claims"),
            ShimCommand::OutputRead { .. } => unreachable!("sent by readers of output"),
            ShimCommand::Session(_) => unreachable!("sent for clients"),
            ShimCommand::Clean { .. } => {
                self.log.push("clean".to_owned());
                None
            }
        }
    }

    fn answer(&mut self, ask: PodRequest) {
        match ask {
            PodRequest::Read(source, _) => {
                let object = self.objects.get(source.name().as_str()).cloned();
                self.machine.read(source, Ok(object), self.now);
            }
            PodRequest::Write(call) => {
                let body: Value = serde_json::from_slice(&call.body.text()).unwrap();
                assert_eq!(body["metadata"]["resourceVersion"], self.pod["metadata"]["resourceVersion"]);
                if body.get("status").is_none() {
                    self.pod["metadata"]["finalizers"] = body["metadata"]["finalizers"].clone();
                    self.log.push(format!("keep {}", body["metadata"]["finalizers"]));
                    self.stored();
                    let pod = Pod::read(&self.pod.to_string().into()).unwrap();
                    return self.machine.written(WriteOutcome::Done(Some(Box::new(pod))), self.now);
                }
                self.writes.push(body["status"].clone());
                merge(&mut self.pod["status"], &body["status"]);
                self.log.push(shown(&self.pod["status"]));
                self.stored();
                let object = Object::from(self.pod.to_string());
                if !PodView::of(&object).is_ok_and(|view| self.machine.end_is_stored(&view)) {
                    let pod = Pod::read(&object).unwrap();
                    self.machine.written(WriteOutcome::Done(Some(Box::new(pod))), self.now);
                }
            }
            PodRequest::Remove(_) => {
                self.log.push("remove".to_owned());
                self.machine.removed(WriteOutcome::Done(None), self.now);
            }
        }
    }

    fn stored(&mut self) {
        let revision: u64 = self.pod["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        self.pod["metadata"]["resourceVersion"] = (revision + 1).to_string().into();
    }

    fn changed(&mut self) {
        self.stored();
        self.machine.observe(Pod::read(&self.pod.to_string().into()).unwrap());
    }

    fn pass(&mut self, millis: i64) {
        let end = self.now + Span::from_millis(millis);
        loop {
            let asks_at = self.machine.next_request_at(&self.options, self.now);
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

    /// The message of the first container's waiting state.
    fn waits_for(&self) -> String {
        let waiting = &self.pod["status"]["containerStatuses"][0]["state"]["waiting"];
        waiting["message"].as_str().unwrap_or_default().to_owned()
    }

    /// Executes one word of a script.
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
        } else if let Some(seconds) = word.strip_prefix("back:") {
            let by = Span::from_seconds(seconds.parse().unwrap());
            self.now = self.now - by;
            self.machine.clock_set_back(by);
        } else if let Some(bytes) = word.strip_prefix("uses:") {
            let usage = StorageUsage { volumes: Vec::new(), containers: vec![("c".into(), bytes.parse().unwrap())] };
            let report = Report::Measured { pod: PodUid::new("u"), usage };
            self.machine.hear(report, self.now, &mut self.out);
        } else if let Some(container) = word.strip_prefix("up:") {
            let attempt = self.running.iter().rfind(|attempt| attempt.container == container).unwrap().clone();
            self.machine.hear(Report::Started { attempt, at: self.now }, self.now, &mut self.out);
        } else if let Some((how @ ("cannot" | "not-yet"), container)) = word.split_once(':') {
            let at = self.running.iter().rposition(|attempt| attempt.container == container).unwrap();
            let attempt = self.running.remove(at);
            let passing = how == "not-yet";
            let reason = if passing { "CreateContainerError" } else { "StartError" };
            let failure = OperationError { reason: reason.into(), message: "no".to_owned(), passing };
            self.machine.hear(Report::Unstarted { attempt, failure }, self.now, &mut self.out);
        } else {
            match word {
                "ok" => self.checked(Ok(())),
                "no" => self.checked(Err("nothing there".to_owned())),
                "drain" => self.drain_within = Some(Span::from_seconds(8)),
                "drain-now" => self.drain_within = Some(Span::ZERO),
                "gone" => self.machine.lose(),
                "unlimited" => {
                    let report =
                        Report::LimitsNotEnforced { pod: PodUid::new("u"), message: "no limits here".to_owned() };
                    self.machine.hear(report, self.now, &mut self.out);
                }
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

/// Merges a status patch as the API server does: conditions by type, all other fields replaced.
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

/// A status in one word: `Running[c=run]`, `Failed(DeadlineExceeded)[i=0 c=137x1]`. Lower case if not ready.
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

/// Whatever happens also happens, after the same waits, if the clock is set back in between.
#[track_caller]
fn check(spec: Value, script: &str, expected: &str) -> Bench {
    for after in 0..script.split_whitespace().count() {
        let mut words: Vec<_> = script.split_whitespace().collect();
        words.insert(after, "back:3600");
        let bench = run(Bench::new(pod(spec.clone()), &[]), &words.join(" "));
        assert_eq!(bench.log.join(", "), expected, "{words:?}");
    }
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
