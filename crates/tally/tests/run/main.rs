//! `tally run` as a user sees it: what it accepts, what it prints, and how it ends.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod after;
mod bad_input;
mod each;
mod kept;
mod output;
mod pty;
mod real;
mod retries;
mod sequences;
mod terminal;
mod tool;
mod top;
mod tui;
mod waits;

use std::process::{Command, Stdio};

use tool::{directory, ends, events, fed, file, job, run, signal, text};

#[test]
fn a_command_runs_to_its_end() {
    let said = ends(&["-n", "20", "-p", "4", "--indexed", "--name", "sum", "--", "sh", "-c", "echo"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out.starts_with("sum: Complete in ") && said.out.ends_with("; 20/20 succeeded\n"), "{}", said.out);
    assert!(!said.out.contains('\u{1b}') && !said.err.contains('\u{1b}'), "no colours where nobody sees them");
}

#[test]
fn without_a_name_it_is_called_after_its_command() {
    let [one, other] = [0, 1].map(|_| ends(&["--", "sh", "-c", "x"]).out);
    assert!(one.starts_with("sh-"), "{one}");
    assert_eq!(one.split(':').next(), other.split(':').next(), "the same command is the same Job");
}

#[test]
fn a_job_that_fails_is_told_with_its_failures() {
    let directory = directory();
    let spec = "  completions: 4\n  completionMode: Indexed\n  backoffLimitPerIndex: 0";
    let path = file(directory.path(), "j.yaml", &job("sum", spec, &[("exit-code", "2=3")]));
    let said = ends(&["-f", text(&path)]);
    assert_eq!(said.code, Some(1), "{}{}", said.out, said.err);
    assert!(said.out.contains("sum: Failed in ") && said.out.contains("3/4 succeeded, 1 failed"), "{}", said.out);
    assert!(said.out.contains("sum: failed indexes 2\n"), "{}", said.out);
    assert!(said.err.contains("sum: index 2: exit code 3, Pod sum-2-"), "{}", said.err);
    assert!(said.err.contains("  | sum-2-"), "the end of its log: {}", said.err);
}

#[test]
fn json_is_an_object_a_line_and_a_summary_a_job() {
    let directory = directory();
    let spec = "  completions: 3\n  completionMode: Indexed\n  backoffLimitPerIndex: 0";
    let path = file(directory.path(), "j.yaml", &job("sum", spec, &[("exit-code", "1=7")]));
    let said = ends(&["--output", "json", "--logs", "-f", text(&path)]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    let events = events(&said.out);
    let of = |kind: &str| events.iter().filter(|event| event["event"] == kind).collect::<Vec<_>>();
    assert_eq!(of("failure").len(), 1);
    assert_eq!((&of("failure")[0]["index"], &of("failure")[0]["exitCode"]), (&1.into(), &7.into()));
    assert_eq!(of("log").len(), 3);
    let summary = events.last().unwrap();
    assert_eq!(summary["event"], "summary");
    assert_eq!(summary["result"], "Failed");
    assert_eq!(summary["failedIndexes"], "1");
    assert_eq!((&summary["succeeded"], &summary["failed"]), (&2.into(), &1.into()));
}

#[test]
fn logs_have_the_index_or_the_pod_in_front() {
    let said = ends(&["--logs", "-n", "2", "-i", "--name", "sum", "--", "true"]);
    let mut lines: Vec<&str> = said.out.lines().collect();
    lines.sort_unstable();
    assert!(lines[0].starts_with("sum[0] sum-0-") && lines[1].starts_with("sum[1] sum-1-"), "{}", said.out);
    assert_eq!(lines.len(), 2, "the summary is elsewhere: {}", said.out);
    assert!(said.err.contains("sum: Complete"), "{}", said.err);
    let plain = ends(&["--logs", "--name", "one", "--", "true"]);
    assert!(plain.out.starts_with("one-"), "{}", plain.out);
}

#[test]
fn documents_come_from_files_and_standard_input() {
    let directory = directory();
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: team}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n";
    let several = format!("{}---\n{map}---\n{}", job("one", "", &[]), job("two", "", &[]));
    let path = file(directory.path(), "j.yaml", &several);
    let all = fed(&["-f", text(&path), "-f", "-"], &job("three", "", &[]));
    assert_eq!(all.code, Some(0), "{}", all.err);
    for name in ["one", "two", "three"] {
        assert!(all.out.contains(&format!("{name}: Complete")), "{}", all.out);
    }
    let list = r#"{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "four"}, "spec": {"template": {"spec": {"restartPolicy": "Never",
        "containers": [{"name": "c", "image": "process", "command": ["x"]}]}}}}]}"#;
    let list = fed(&["-"], list);
    assert!(list.code == Some(0) && list.out.starts_with("four: Complete"), "{}{}", list.out, list.err);
}

#[test]
fn one_of_several_that_fails_is_enough_to_fail() {
    let both = format!("{}---\n{}", job("good", "", &[]), job("bad", "  backoffLimit: 0", &[("exit-code", "1")]));
    let said = fed(&["-"], &both);
    assert_eq!(said.code, Some(1));
    assert!(said.out.contains("good: Complete") && said.out.contains("bad: Failed"), "{}", said.out);
}

#[test]
fn quiet_is_quiet() {
    let said = ends(&["--quiet", "--", "true"]);
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), "", ""));
}

#[test]
fn a_reader_who_leaves_does_not_end_the_work() {
    let mut child =
        run(&["--logs", "-n", "50", "--", "true"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn signals_end_it_in_order() {
    for name in ["INT", "TERM", "HUP"] {
        let endless = job("long", "  completions: 3\n  parallelism: 3", &[("run-for", "1h")]);
        let directory = directory();
        let path = file(directory.path(), "j.yaml", &endless);
        let out = directory.path().join("out");
        let mut command = run(&["--output", "json", "-f", text(&path)]);
        let child = command.stdout(std::fs::File::create(&out).unwrap()).stderr(Stdio::null()).spawn().unwrap();
        let mut child = tool::Running(child);
        let read = || std::fs::read_to_string(&out).unwrap();
        tool::eventually("three are active", || read().contains("\"active\":3"));
        signal(child.0.id(), name);
        assert_eq!(child.0.wait().unwrap().code(), Some(130), "SIG{name}");
        let events = events(&read());
        let summary = events.last().unwrap();
        assert_eq!((&summary["result"], &summary["failed"]), (&"Interrupted".into(), &0.into()), "SIG{name}");
    }
}

#[test]
fn nothing_is_left_behind() {
    let directory = directory();
    let said = tool::said(run(&["--", "true"]).env("TMPDIR", directory.path()).output().unwrap());
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn help_teaches_and_shells_are_helped() {
    let tally =
        |arguments: &[&str]| tool::said(Command::new(env!("CARGO_BIN_EXE_tally")).args(arguments).output().unwrap());
    let help = tally(&["run", "--help"]).out;
    for told in ["Examples:", "Exit code 0", "--data-dir", "Ctrl-C", "JOB_COMPLETION_INDEX"] {
        assert!(help.contains(told), "{told}: {help}");
    }
    assert!(!help.contains("--hollow"), "{help}");
    let help = tally(&["--help"]).out;
    for told in ["Examples:", "tally run -n 20", "tally up", "tally COMMAND --help"] {
        assert!(help.contains(told), "{told}: {help}");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = tally(&["completion", shell]);
        assert!(said.code == Some(0) && said.out.contains("backoff-limit-per-index"), "{shell}: {}", said.err);
    }
    let page = tally(&["man", "run"]);
    assert!(page.code == Some(0) && page.out.contains(".TH tally-run 1"), "{}", page.out);
    assert!(tally(&["man"]).out.contains("tally\\-run(1)"));
    assert_eq!(tally(&["man", "nonsense"]).code, Some(2));
}

#[test]
fn signals_that_were_ignored_at_the_start_stay_so() {
    let directory = directory();
    let path = file(directory.path(), "j.yaml", &job("long", "", &[("run-for", "1h")]));
    let out = directory.path().join("out");
    let tally = run(&["--output", "json", "-f", text(&path)]);
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP INT; exec \"$@\"", "sh"]).arg(tally.get_program()).args(tally.get_args());
    let child = command.stdin(Stdio::null()).stdout(std::fs::File::create(&out).unwrap()).spawn().unwrap();
    let mut child = tool::Running(child);
    tool::eventually("it runs", || std::fs::read_to_string(&out).unwrap().contains("\"active\":1"));
    // The first two would end it at once if they were not ignored; the third one is the first that counts.
    signal(child.0.id(), "HUP");
    signal(child.0.id(), "INT");
    signal(child.0.id(), "TERM");
    assert_eq!(child.0.wait().unwrap().code(), Some(130));
    let events = events(&std::fs::read_to_string(&out).unwrap());
    assert_eq!(events.last().unwrap()["result"], "Interrupted", "there was time for a summary");
}
