//! Runs every file in `examples/` with real processes and checks that it does what its first lines say.
//!
//! These lines are for people, and are parsed here: how it ends ("It ends Failed with the reason X"), what is counted
//! ("failedIndexes is X"), what is printed ("print: TEXT", up to the end of the paragraph) and the commands to try,
//! which the test runs. An example without them fails the test.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use serde_json::Value;
use support::kubectl::{Kubectl, with_node};

/// Number of concurrent runs. Most of them wait most of the time.
const AT_ONCE: usize = 6;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// What the first lines of an example say.
#[derive(Debug)]
struct Example {
    name: String,
    /// Complete or Failed; `None` for kubectl, whose commands check it.
    ends: Option<String>,
    reason: Option<String>,
    /// Fields of the summary and their expected values.
    counts: Vec<(&'static str, String)>,
    prints: String,
    commands: Vec<String>,
}

fn read(path: &Path) -> Example {
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    let text = fs::read_to_string(path).unwrap();
    let head: Vec<&str> = text.lines().map_while(|line| line.strip_prefix('#')).collect();
    let said = head.iter().take_while(|line| !line.trim().is_empty()).map(|line| line.trim());
    let said = said.collect::<Vec<_>>().join(" ");
    let after = |words: &str| said.split_once(words).map(|(_, rest)| rest.to_owned());
    let word = |text: String| text.split([' ', ',', '.']).next().unwrap().to_owned();
    let prints = after(" print: ").or_else(|| after(" prints: "));
    Example {
        ends: after("It ends ").map(word),
        reason: after(" with the reason ").map(word),
        counts: ["succeeded", "failed", "failedIndexes"]
            .into_iter()
            .filter_map(|field| Some((field, word(after(&format!(" {field} is "))?))))
            .collect(),
        prints: prints.unwrap_or_else(|| panic!("{name} does not say what is printed: {said}")),
        commands: head.iter().filter_map(|line| line.strip_prefix("   ")).map(str::to_owned).collect(),
        name,
    }
}

fn examples() -> Vec<Example> {
    let files = fs::read_dir(root().join("examples")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect();
    files.sort();
    files.iter().map(|path| read(path)).collect()
}

impl Example {
    fn is_for_run(&self) -> bool {
        self.commands.iter().any(|command| command.starts_with("tally run "))
    }

    /// With `tally run`: runs its one command, unchanged except for how the results are printed.
    fn run(&self) -> Result<(), String> {
        let [line] = &self.commands[..] else { return Err(format!("one command, not {:?}", self.commands)) };
        let plain = format!("tally run -f examples/{}", self.name);
        if *line != plain && *line != format!("{plain} --logs") {
            return Err(format!("{line:?} is not {plain:?}, with or without --logs"));
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
        command.args(line.split(' ').skip(1)).args(["--output", "json"]);
        if *line == plain {
            command.arg("--logs");
        }
        let output = command.current_dir(root()).stdin(Stdio::null()).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let events: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let Some(summary) = events.iter().find(|event| event["event"] == "summary") else {
            return Err(format!("no summary: {out}{err}"));
        };
        let logs = events.iter().filter(|event| event["event"] == "log");
        let logs = logs.filter_map(|event| event["line"].as_str().or(event["text"].as_str())).collect::<Vec<_>>();
        if !logs.iter().any(|line| line.contains(&self.prints)) {
            return Err(format!("{:?} was not printed, but {logs:?}; {err}", self.prints));
        }
        let ends = self.ends.as_deref().ok_or("it does not say how it ends")?;
        let code = if ends == "Complete" { 0 } else { 1 };
        if summary["result"] != ends || output.status.code() != Some(code) {
            return Err(format!("it does not end {ends}: {summary}"));
        }
        for (field, expected) in &self.counts {
            let counted = summary[field].as_str().map_or_else(|| summary[field].to_string(), str::to_owned);
            if counted != *expected {
                return Err(format!("{field} is not {expected}: {summary}"));
            }
        }
        match self.reason.as_deref() {
            Some(reason) if summary["reason"] != reason => Err(format!("the reason is not {reason}: {summary}")),
            _ => Ok(()),
        }
    }

    /// With `tally up`: runs all its commands, one after the other.
    fn run_with(&self, kubectl: &Kubectl) -> Result<(), String> {
        if self.commands.is_empty() {
            return Err("it has no commands to try".to_owned());
        }
        let mut printed = String::new();
        for command in &self.commands {
            let said = kubectl.shell(command, &root());
            if said.code != Some(0) {
                return Err(format!("{command}: {}{}", said.out, said.err));
            }
            printed += &said.out;
        }
        let flat = printed.replace('\n', " ");
        if flat.contains(&self.prints) { Ok(()) } else { Err(format!("{:?} is not in {printed:?}", self.prints)) }
    }
}

/// Applies `act` to all examples, a few at a time, and reports everything that went wrong.
fn with_all(examples: &[Example], act: impl Fn(&Example) -> Result<(), String> + Sync) {
    let (next, wrong) = (Mutex::new(examples.iter()), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(example) = next.lock().unwrap().next() else { return };
                    if let Err(why) = act(example) {
                        wrong.lock().unwrap().insert(&example.name, why);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn examples_for_run_do_what_they_say() {
    let examples: Vec<_> = examples().into_iter().filter(Example::is_for_run).collect();
    assert!(examples.len() > 15, "{examples:?}");
    with_all(&examples, Example::run);
}

#[tokio::test(flavor = "multi_thread")]
async fn examples_for_a_cluster_do_what_they_say() {
    let examples: Vec<_> = examples().into_iter().filter(|example| !example.is_for_run()).collect();
    assert!(examples.len() > 3, "{examples:?}");
    let kubectl = with_node().await;
    with_all(&examples, |example| example.run_with(&kubectl));
}

/// The features of Jobs, each identified by its field.
#[test]
fn every_feature_has_an_example() {
    let files = fs::read_dir(root().join("examples")).unwrap();
    let text: String = files.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    for field in [
        "activeDeadlineSeconds",
        "backoffLimit",
        "backoffLimitPerIndex",
        "completionMode: Indexed",
        "completions",
        "managedBy",
        "maxFailedIndexes",
        "parallelism",
        "podFailurePolicy",
        "action: FailJob",
        "action: FailIndex",
        "action: Ignore",
        "podReplacementPolicy",
        "successPolicy",
        "suspend",
        "ttlSecondsAfterFinished",
        "kind: CronJob",
        "initContainers",
        "restartPolicy: Always",
        "restartPolicy: OnFailure",
        "envFrom",
        "workingDir",
        "startupProbe",
        "readinessProbe",
        "exec:",
        "httpGet",
        "tcpSocket",
        "livenessProbe",
        "postStart",
        "preStop",
        "emptyDir",
        "configMap",
        "secret",
        "downwardAPI",
        "hostPath",
        "fieldRef",
        "resourceFieldRef",
        "terminationMessagePolicy",
        "terminationGracePeriodSeconds",
        "limits",
    ] {
        assert!(text.contains(field), "no example has {field}");
    }
}
