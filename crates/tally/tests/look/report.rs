//! `tally report` and `tally run --junit`.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::tool::{command, directory, said, tally, text};

/// Index 1 fails at its first attempt, index 2 always, and says something that is no markup.
const TASK: &str = "case $JOB_COMPLETION_INDEX in 1) mkdir tried 2>/dev/null && exit 5;; 2) echo '<b>&\"bad\"' \
                    > /dev/termination-log; exit 7;; esac; true";
/// Reads a JUnit file with a parser of XML that is not ours.
const READ: &str = "
import json, sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
cases = [[case.get('name'), [(child.tag, child.get('message')) for child in case]] for case in root.iter('testcase')]
counts = {name: int(root.get(name)) for name in ('tests', 'failures', 'errors', 'skipped')}
print(json.dumps({'cases': cases, 'counts': counts, 'suite': root.find('testsuite').get('name')}))";

fn read(file: &str) -> Value {
    let output = Command::new("python3").args(["-c", READ, file]).output().expect("python3");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_run_is_reported_to_ci_systems_and_to_people() {
    let directory = directory();
    let (data, file) = (directory.path().join("d"), directory.path().join("report.xml"));
    let run = |more: &[&str]| {
        let head =
            ["run", "--name", "sum", "-n", "4", "-i", "--backoff-limit-per-index", "1", "--retry-delay", "100ms"];
        let tail = ["--junit", text(&file), "--", "sh", "-c", TASK];
        let all = [&head[..], more, &tail[..]].concat();
        said(command(&all).current_dir(directory.path()).output().unwrap())
    };
    let ran = run(&["--data-dir", text(&data)]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let found = read(text(&file));
    assert_eq!(found["suite"], "default/sum");
    assert_eq!(found["counts"], json!({"tests": 4, "failures": 1, "errors": 0, "skipped": 0}), "{found}");
    let expected = json!([
        ["index 0", []],
        ["index 1", [["flakyFailure", "exit 5"]]],
        ["index 2", [["failure", "exit 7"], ["rerunFailure", "exit 7"]]],
        ["index 3", []],
    ]);
    assert_eq!(found["cases"], expected);

    let again = directory.path().join("again.xml");
    let printed = tally(&["report", "sum", "--data-dir", text(&data), "-o", "junit"]);
    fs::write(&again, &printed.out).unwrap();
    assert_eq!(read(text(&again)), found);
    let page = tally(&["report", "job/sum", "--data-dir", text(&data)]);
    assert_eq!(page.code, Some(0), "{}", page.err);
    for part in ["<h1>Job sum</h1>", "succeeded 2", "retried 1", "failed 1", "exit 7", "&lt;b&gt;&amp;&quot;bad&quot;"]
    {
        assert!(page.out.contains(part), "{part}: {}", page.out);
    }
    assert!(!page.out.contains("<b>") && !page.out.contains("<script") && !page.out.contains("//"), "{}", page.out);
    let missing = tally(&["report", "other", "--data-dir", text(&data)]);
    assert!(missing.code == Some(1) && missing.err.contains("it has sum"), "{}", missing.err);

    // Nothing is kept beyond the run, except the file.
    fs::remove_file(&file).unwrap();
    fs::remove_dir(directory.path().join("tried")).unwrap();
    let ran = run(&[]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert_eq!(read(text(&file))["cases"], expected);
}

#[test]
fn a_file_that_cannot_be_written_ends_the_run_with_an_error_and_a_job_without_tasks_is_one() {
    let directory = directory();
    let file = directory.path().join("no/report.xml");
    let ran = tally(&["run", "--junit", text(&file), "--", "sleep", "600"]);
    assert!(ran.code == Some(3) && ran.err.contains("--junit"), "before anything runs: {:?} {}", ran.code, ran.err);
    let file = directory.path().join("report.xml");
    let ran = tally(&["run", "--junit", text(&file), "--deadline", "1s", "--name", "slow", "--", "sleep", "600"]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let found = read(text(&file));
    assert_eq!(found["counts"]["tests"], 1, "{found}");
    let told = found["cases"][0].to_string();
    assert!(told.contains("slow") && (told.contains("failure") || told.contains("DeadlineExceeded")), "{found}");
}
