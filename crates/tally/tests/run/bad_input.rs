//! Invalid input: each with its message, with exit code 2 or 3, and nothing is created.

use std::fs;

use crate::tool::{Said, directory, ends, fed, file, job, run, said, text};

fn refused(said: Said, code: i32, told: &[&str]) {
    assert_eq!(said.code, Some(code), "{}{}", said.out, said.err);
    for part in told {
        assert!(said.err.contains(part), "{part:?} is not in: {}", said.err);
    }
    assert_eq!(said.out, "");
}

#[test]
fn flags_that_make_no_sense_are_explained() {
    for (arguments, told) in [
        (&[][..], "put a command after --"),
        (&["make"], "tally run -- make"),
        (&["-f", "x.yaml", "--", "make"], "-f FILE cannot be combined with a command after --"),
        (
            &["-f", "x.yaml", "--completions", "3"],
            "--completions applies only to a command; with -f FILE, set it in the file",
        ),
        (&["-n", "3"], "--completions applies only to a command; put the command after --"),
        (&["-n", "-3", "--", "true"], "invalid value '-3' for '--completions <N>': -3 is not in 0.."),
        (&["-n", "-1", "--", "true"], "invalid value '-1' for '--completions <N>': -1 is not in 0.."),
        (&["--deadline", "-5s", "--", "true"], "'--deadline <DURATION>': \"-5s\" must not be negative"),
        (&["-p", "0", "--", "true"], "0 is not in"),
        (&["--backoff-limit-per-index", "1", "--", "true"], "--indexed"),
        (&["--deadline", "soon", "--", "true"], "90s or 1h30m"),
        (&["--retry-delay", "soon", "--", "true"], "\"soon\" must be a duration, such as 500ms, 10s or 1m30s"),
        (&["--retry-max-delay", "25h", "--", "true"], "must be at most 24h"),
        (
            &["--retry-delay", "2m", "--retry-max-delay", "90s", "--", "true"],
            "--retry-max-delay 90s must not be less than --retry-delay 2m",
        ),
        (&["-f", "x.yaml", "--retry-delay", "1s"], "--retry-delay applies only to a command; with -f FILE"),
        (&["--timeout", "0", "--", "true"], "'--timeout <DURATION>': \"0\" must be longer than 0"),
        (&["--timeout", "1s", "--restart", "OnFailure", "--", "true"], "use --deadline, or --restart Never"),
        (
            &["--halt", "now", "--", "true"],
            "\"now\" must be now or soon with a number of failures, such as now,fail=1, soon,fail=3 or soon,fail=10%",
        ),
        (&["--halt", "now,fail=1", "--", "true"], "add --indexed, or --each FILE"),
        (&["--halt", "now,fail=1", "--max-failed-indexes", "1", "-i", "--", "true"], "cannot be used with"),
        (&["--retry-failed"], "--data-dir"),
        (&["--resume"], "--data-dir"),
        (&["--data-dir", "d", "--resume", "--retry-failed"], "cannot be used with"),
        (
            &["--data-dir", "d", "--resume", "--", "true"],
            "--resume takes everything from the Job that has ended; remove",
        ),
        (
            &["--retries", "1", "--backoff-limit", "1", "--", "true"],
            "'--retries <N>' cannot be used with '--backoff-limit <R>'",
        ),
        (
            &["--retries", "1", "--backoff-limit-per-index", "1", "-i", "--", "true"],
            "'--retries <N>' cannot be used with",
        ),
        (&["--retries", "-1", "--", "true"], "-1 is not in 0.."),
        (&["-f", "x.yaml", "--retries", "1"], "--retries applies only to a command; with -f FILE, set it in the file"),
        (&["--max-failed-indexes", "1", "--", "true"], "add --indexed, or --each FILE"),
        (&["--env", "NO_SUCH_VARIABLE_HERE", "--", "true"], "not set in the current environment"),
        (&["--workdir", "/no/such/place", "--", "true"], "/no/such/place: no such directory"),
        (&["--again", "--", "true"], "--data-dir"),
        (&["--", "no-such-program-here"], "no-such-program-here: no such program in PATH"),
        (&["--", "./no-such-program-here"], "no such program"),
        (&["--name", "No_Name", "--", "true"], "metadata.name: Invalid value: \"No_Name\""),
        (
            &["--memory", "much", "--", "true"],
            "invalid value 'much' for '--memory <BYTES>': \"much\" is not a quantity; write a number with a unit",
        ),
        (
            &["--memory", "1TB", "--", "true"],
            "invalid value '1TB' for '--memory <BYTES>': \"1TB\" is not a quantity; write 1Ti (TiB) or 1T (TB)",
        ),
        (
            &["--cpu", "lots", "--", "true"],
            "'--cpu <CPUS>': \"lots\" is not a quantity; write a number with a unit, such as 2",
        ),
        (&["-f", "-", "-"], "only once"),
        (&["--output", "xml", "--", "true"], "possible values: text, json"),
    ] {
        refused(ends(arguments), 2, &[told]);
    }
}

#[test]
fn files_that_cannot_be_used_are_named_with_line_and_column() {
    let directory = directory();
    let good = job("good", "", &[]);
    for (content, told) in [
        ("a: [1,\n".to_owned(), &["j.yaml:1:4: ", "the file must be YAML or JSON"][..]),
        ("hello\n".to_owned(), &["j.yaml:1:1: document 1 is a string, not an object"]),
        (String::new(), &["j.yaml is empty; a Job begins with `apiVersion: batch/v1` and `kind: Job`"]),
        ("# only a comment\n".to_owned(), &["j.yaml is empty"]),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n".to_owned(), &["(found ConfigMap \"c\")"]),
        ("apiVersion: v1\nkind: Pod\n".to_owned(), &["j.yaml:2:7: document 1 is a Pod", "tally up"]),
        ("apiVersion: v1\nkind: Job\n".to_owned(), &["Job is in batch/v1"]),
        (format!("{good}---\n{good}"), &["Job \"good\" is defined twice", "rename one of them"]),
        (
            format!("{good}---\n{}", job("bad", "  completions: -1", &[])),
            &["document 2, Job \"bad\"", "j.yaml:21:16: spec.completions: Invalid value: -1"],
        ),
        (job("bad", "  backofLimit: 1", &[]), &["spec.backofLimit: unknown field"]),
        (good.replace("command: [work]", "args: [work]"), &["containers[0].command: Required value"]),
        (
            good.replace("command: [work]", "command: echo hi"),
            &[
                "j.yaml:9:58: spec.template.spec.containers[0].command: expected a list, got string; write it as a list: \
                 [\"echo\",\"hi\"]",
            ],
        ),
        // All at once, each with its line.
        (
            good.replace(
                "command: [work]",
                "command: [work], env: [{name: A, value: 5}], resources: {requests: {cpu: lots, memory: 1TB}}",
            )
            .replace("restartPolicy", "restartPolice"),
            &[
                "j.yaml:8:22: spec.template.spec.restartPolice: unknown field",
                "j.yaml:9:89: spec.template.spec.containers[0].env[0].value: expected a string, got number; put it in \
                 quotes: \"5\"",
                "spec.template.spec.containers[0].resources.requests[cpu]: \"lots\" is not a quantity; write a number with a \
                 unit, such as 2 or 500m for cpu",
                "spec.template.spec.containers[0].resources.requests[memory]: \"1TB\" is not a quantity; write 1Ti (TiB)",
            ],
        ),
    ] {
        let path = file(directory.path(), "j.yaml", &content);
        refused(ends(&["-f", text(&path)]), 2, told);
    }
    refused(ends(&["-f", "/no/such/file.yaml"]), 2, &["cannot read /no/such/file.yaml"]);
    refused(ends(&["-f", text(directory.path())]), 2, &["cannot read "]);
    fs::write(directory.path().join("b"), b"a: \xff\n").unwrap();
    refused(ends(&["-f", text(&directory.path().join("b"))]), 2, &["b:1: invalid UTF-8"]);
    refused(fed(&["-"], "kind: [\n"), 2, &["standard input:1:"]);
}

#[test]
fn bad_input_makes_nothing_in_the_data_directory() {
    let directory = directory();
    let data = directory.path().join("data");
    let two = format!("{}---\n{}", job("good", "", &[]), job("bad", "  completions: -1", &[]));
    refused(fed(&["--data-dir", text(&data), "-"], &two), 2, &["spec.completions"]);
    assert!(!data.exists());
}

#[test]
fn namespaces_must_be_there_or_come_along() {
    let elsewhere = job("sum", "", &[]).replace("{name: sum}", "{name: sum, namespace: nowhere}");
    refused(fed(&["-"], &elsewhere), 2, &["namespaces \"nowhere\" not found"]);
}

#[test]
fn a_data_directory_that_cannot_be_used_is_named() {
    let directory = directory();
    let occupied = file(directory.path(), "file", "");
    for data in [occupied.clone(), occupied.join("below"), "/proc/tally".into()] {
        refused(ends(&["--data-dir", text(&data), "--", "true"]), 3, &[text(&data), "--data-dir"]);
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn without_a_place_for_temporary_files_it_says_so() {
    refused(said(run(&["--", "true"]).env("TMPDIR", "/no/such/place").output().unwrap()), 3, &["set TMPDIR"]);
}

#[test]
fn configmaps_and_secrets_that_are_named_must_be_there_or_come_along() {
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {k: v}\n---\n";
    let with = |more: &str| {
        job("sum", "", &[]).replace("restartPolicy: Never", &format!("restartPolicy: Never\n      {more}"))
    };
    let volume = with("volumes: [{name: v, configMap: {name: settings}}]");
    let told = [
        "standard input:9:45: spec.template.spec.volumes[0].configMap.name: ",
        "ConfigMap \"settings\" not found",
        "optional",
    ];
    refused(fed(&["-"], &volume), 2, &told);
    refused(fed(&["-"], &with("volumes: [{name: v, secret: {secretName: keys}}]")), 2, &["Secret \"keys\" not found"]);
    let said = fed(&["-"], &format!("{map}{volume}"));
    assert_eq!(said.code, Some(0), "{}", said.err);
    // In the data directory it exists for later Jobs.
    let directory = directory();
    let data = directory.path().join("data");
    let data = text(&data);
    refused(fed(&["--data-dir", data, "-"], &volume), 2, &told[1..]);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is made for input that is refused");
    assert_eq!(fed(&["--data-dir", data, "-"], &format!("{map}{}", job("first", "", &[]))).code, Some(0));
    let said = fed(&["--data-dir", data, "-"], &volume);
    assert_eq!(said.code, Some(0), "{}", said.err);
}
