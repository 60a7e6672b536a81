//! Real processes on a terminal, and what Ctrl-C does to them.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::pty::Terminal;
use crate::tool::{Running, directory, events, eventually, file, job, signal, text};

const CTRL_C: &str = "\u{3}";

/// A process that cleans up when it gets SIGTERM. `SLOW`: the clean-up takes an hour.
const SCRIPT: &str = "trap 'echo asked >> $HERE/said; [ -z \"$SLOW\" ] || sleep 3600; echo tidy >> $HERE/said; exit 0' TERM; \
                      echo up >> $HERE/said; while :; do sleep 0.05; done";

fn on_terminal(here: &Path, slow: &str) -> Terminal {
    let job = format!(
        "apiVersion: batch/v1
kind: Job
metadata: {{name: sum}}
spec:
  completions: 2
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 3600
      containers:
        - name: main
          image: process
          env: [{{name: HERE, value: {}}}, {{name: SLOW, value: '{slow}'}}]
          command: [sh, -c, {SCRIPT:?}]
",
        here.display()
    );
    let path = file(here, "j.yaml", &job);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.args(["run", "-f", text(&path)]).env("TERM", "xterm").env("NO_COLOR", "1").env("TMPDIR", here);
    Terminal::start(command, 100, 24)
}

fn said(here: &Path, word: &str) -> usize {
    let said = fs::read_to_string(here.join("said")).unwrap_or_default();
    said.lines().filter(|line| *line == word).count()
}

/// Processes of this test that are alive; its directory is in their environment.
fn alive(here: &Path) -> usize {
    let mark = format!("HERE={}", here.display());
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read(entry.ok()?.path().join("environ")).ok());
    processes.filter(|environment| environment.split(|byte| *byte == 0).any(|one| one == mark.as_bytes())).count()
}

/// What is left in the directory for temporary files.
fn left(here: &Path) -> Vec<String> {
    let names = fs::read_dir(here).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name != "j.yaml" && name != "said").collect();
    names.sort();
    names
}

#[test]
fn ctrl_c_lets_processes_tidy_up() {
    let directory = directory();
    let here = directory.path();
    let terminal = on_terminal(here, "");
    eventually("two run", || said(here, "up") == 2);
    terminal.type_in(CTRL_C);
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(130), "{shown}");
    assert!(shown.contains("sum: interrupted after "), "{shown}");
    assert_eq!((said(here, "asked"), said(here, "tidy"), alive(here)), (2, 2, 0), "{shown}");
    assert_eq!(left(here), [""; 0]);
}

#[test]
fn a_second_ctrl_c_leaves_nothing_running() {
    let directory = directory();
    let here = directory.path();
    let terminal = on_terminal(here, "yes");
    eventually("two run", || said(here, "up") == 2);
    terminal.type_in(CTRL_C);
    eventually("both have been asked to end", || said(here, "asked") == 2);
    terminal.type_in(CTRL_C);
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(130), "{shown}");
    assert_eq!((alive(here), said(here, "tidy")), (0, 0), "nothing runs on");
    assert_eq!(left(here), [""; 0], "nothing is left behind");
}

#[test]
fn an_end_in_a_hurry_spends_no_tries() {
    let directory = directory();
    let here = directory.path();
    let script = "test ! -e $HERE/go || exit 0; trap 'echo asked >> $HERE/said' TERM; echo up >> $HERE/said; \
                  while :; do sleep 0.05; done";
    let job = serde_json::json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "hurry"},
        "spec": {
            "completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimit": 0,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{
                "name": "c", "image": "process", "command": ["sh", "-c", script],
                "env": [{"name": "HERE", "value": here.display().to_string()}],
            }]}},
        },
    });
    fs::write(here.join("job.json"), job.to_string()).unwrap();
    let run = || {
        let mut tally = Command::new(env!("CARGO_BIN_EXE_tally"));
        tally
            .args(["run", "--output", "json", "--data-dir"])
            .arg(here.join("data"))
            .arg("-f")
            .arg(here.join("job.json"));
        tally.stdin(Stdio::null());
        tally
    };
    let mut first = Running(run().stdout(Stdio::null()).spawn().unwrap());
    eventually("two run", || said(here, "up") == 2);
    signal(first.0.id(), "INT");
    eventually("both have been asked to end", || said(here, "asked") == 2);
    signal(first.0.id(), "INT");
    assert_eq!(first.0.wait().unwrap().code(), Some(130));
    fs::write(here.join("go"), "").unwrap();
    let second = run().output().unwrap();
    let said = String::from_utf8_lossy(&second.stdout);
    assert_eq!(second.status.code(), Some(0), "{said}");
    let last = events(&said).pop().unwrap();
    assert_eq!((&last["succeeded"], &last["failed"]), (&2.into(), &0.into()), "{last}");
}

#[test]
fn what_a_killed_run_left_behind_is_taken_away_by_the_next() {
    let directory = directory();
    let here = directory.path();
    let run = |command: &str| {
        let mut tally = Command::new(env!("CARGO_BIN_EXE_tally"));
        tally.args(["run", "--quiet", "--env", &format!("HERE={}", here.display()), "--", "sh", "-c", command]);
        tally.env("TMPDIR", here).stdin(Stdio::null());
        tally
    };
    let endless = "echo up >> $HERE/said; while :; do sleep 0.05; done";
    let [first, second] = [0, 1].map(|_| Running(run(endless).spawn().unwrap()));
    eventually("two run", || said(here, "up") == 2);
    first.kill();
    assert_eq!(left(here).len(), 2, "there was no time to take it away");
    eventually("only what nobody works in is taken away", || {
        assert!(run("exit 0").status().unwrap().success());
        left(here).len() == 1
    });
    signal(second.0.id(), "INT");
    let mut second = second;
    assert_eq!(second.0.wait().unwrap().code(), Some(130));
    assert_eq!(left(here), [""; 0]);
}

/// Runs `tally run --output json` with these arguments and real processes until its output contains `word`, then sends
/// SIGINT. Returns the output.
fn until(here: &Path, arguments: &[&str], word: &str) -> String {
    let out = here.join("out");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.args(["run", "--output", "json"]).args(arguments).env("TMPDIR", here).stdin(Stdio::null());
    let child = command.stdout(File::create(&out).unwrap()).stderr(Stdio::null()).spawn().unwrap();
    let mut child = Running(child);
    let said = || fs::read_to_string(&out).unwrap();
    eventually(word, || said().contains(word));
    signal(child.0.id(), "INT");
    assert_eq!(child.0.wait().unwrap().code(), Some(130));
    said()
}

#[test]
fn a_pod_that_this_machine_has_no_room_for_is_told_as_json() {
    let directory = directory();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.args(["run", "--output", "json", "--cpu", "64k", "--name", "sum", "--", "true"]);
    let said = crate::tool::said(command.env("TMPDIR", directory.path()).stdin(Stdio::null()).output().unwrap());
    assert_eq!(said.code, Some(3), "{}", said.err);
    assert!(said.err.contains("can never start here: it requests 64k of cpu, and this machine has "), "{}", said.err);
    let events = events(&said.out);
    let stuck = events.iter().find(|event| event["event"] == "stuck").unwrap();
    assert_eq!((&stuck["job"], &stuck["reason"]), (&"sum".into(), &"Unschedulable".into()));
    assert!(stuck["message"].as_str().unwrap().contains("Insufficient cpu"), "{stuck}");
    assert!(stuck["advice"].as_str().unwrap().contains("--cpu"), "{stuck}");
}

#[test]
fn a_volume_that_is_gone_is_told_as_json() {
    let directory = directory();
    let here = directory.path();
    let volumes = "volumes: [{name: v, hostPath: {path: /no/such/place, type: Directory}}]";
    let job = job("sum", "", &[]).replace("restartPolicy: Never", &format!("restartPolicy: Never\n      {volumes}"));
    let path = file(here, "j.yaml", &job.replace("[work]", "['true']"));
    let said = until(here, &["-f", text(&path)], "\"stuck\"");
    let events = events(&said);
    let stuck = events.iter().find(|event| event["event"] == "stuck").unwrap();
    assert!(stuck["message"].as_str().unwrap().contains("/no/such/place"), "{stuck}");
}

/// Output that would wreck a terminal: clear it, hide the cursor, change its title, go back to the line's start.
const WRECKS: &str = r"printf '\033[2J\033[?25l\033]0;gotcha\007\033[31mred\033[0m\rover\n'";

#[test]
fn what_processes_write_cannot_wreck_the_terminal() {
    let directory = directory();
    let here = directory.path();
    let tally = |env: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
        command.args(["run", "--logs", "--name", "sum", "-i", "--", "sh", "-c", WRECKS]).env("TMPDIR", here);
        command.env("TERM", "xterm").env_remove("NO_COLOR").env_remove("CLICOLOR").envs(env.iter().copied());
        command
    };
    for (env, line) in [
        (&[][..], "\u{1b}[36msum[0]\u{1b}[0m \u{1b}[31mred\u{1b}[0m over\u{1b}[0m\r\n"),
        (&[("NO_COLOR", "1")], "sum[0] red over\r\n"),
    ] {
        let (code, shown) = Terminal::start(tally(env), 100, 24).end();
        assert_eq!(code, Some(0), "{shown}");
        assert!(shown.contains(line), "{shown:?}");
        for order in ["\u{1b}[2J", "\u{1b}[?25l", "gotcha"] {
            assert!(!shown.contains(order), "{order:?} in {shown:?}");
        }
    }
    // A pipe gets the output unchanged.
    let output = tally(&[]).stdin(Stdio::null()).output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(out, "sum[0] \u{1b}[2J\u{1b}[?25l\u{1b}]0;gotcha\u{7}\u{1b}[31mred\u{1b}[0m\rover\n");
}

#[test]
fn the_last_words_of_a_process_are_shown() {
    let directory = directory();
    let here = directory.path();
    let out = here.join("out");
    let script = "trap 'echo last words; exit 0' TERM; echo up; while :; do sleep 0.02; done";
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.args(["run", "--logs", "-n", "8", "-p", "8", "-i", "--name", "sum", "--", "sh", "-c", script]);
    command.env("TMPDIR", here).stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = Running(command.stdout(File::create(&out).unwrap()).spawn().unwrap());
    let count = |word: &str| fs::read_to_string(&out).unwrap().lines().filter(|line| line.ends_with(word)).count();
    eventually("all are up", || count("up") == 8);
    signal(child.0.id(), "INT");
    assert_eq!(child.0.wait().unwrap().code(), Some(130));
    assert_eq!(count("last words"), 8, "{}", fs::read_to_string(&out).unwrap());
}

#[test]
fn a_file_that_names_a_program_which_is_not_there_is_refused() {
    let directory = directory();
    let here = directory.path();
    let path = file(here, "j.yaml", &job("sum", "", &[]).replace("[work]", "[no-such-program-here, x]"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    let data = here.join("data");
    command.args(["run", "--data-dir", text(&data), "-f", text(&path)]).stdin(Stdio::null());
    let output = command.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{err}");
    let told =
        "j.yaml:9:59: spec.template.spec.containers[0].command[0]: no-such-program-here: no such program in PATH";
    assert!(err.contains(told) && err.contains("install it"), "{err}");
    assert!(!data.exists(), "nothing is made");
}

#[test]
fn a_crash_is_told_when_it_happens_though_the_pod_goes_on() {
    let directory = directory();
    let command = ["--restart", "OnFailure", "--name", "sum", "--", "sh", "-c", "echo no luck; exit 3"];
    let said = until(directory.path(), &command, "\"event\":\"restart\"");
    let events = events(&said);
    let restarts: Vec<_> = events.iter().filter(|event| event["event"] == "restart").collect();
    assert_eq!((&restarts[0]["job"], &restarts[0]["exitCode"]), (&"sum".into(), &3.into()), "{said}");
    assert_eq!(restarts[0]["log"], serde_json::json!(["no luck"]), "{said}");
    let counts: Vec<_> = restarts.iter().filter_map(|event| event["restarts"].as_u64()).collect();
    assert!(counts[0] >= 1 && counts.is_sorted_by(|one, next| one < next), "each once: {said}");
}

#[test]
fn a_reader_who_is_slow_does_not_keep_ctrl_c_from_being_acted_on() {
    let directory = directory();
    let here = directory.path();
    // Writes much more than a pipe holds, and then waits for SIGTERM.
    let script =
        "trap 'echo asked >> $HERE/said; exit 0' TERM; seq 100000; echo up >> $HERE/said; while :; do sleep 0.05; done";
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.args(["run", "--logs", "--env", &format!("HERE={}", here.display()), "--", "sh", "-c", script]);
    command.env("TMPDIR", here).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = Running(command.spawn().unwrap());
    let out = child.0.stdout.take().unwrap();
    eventually("the pipe is full", || rustix::io::ioctl_fionread(&out).unwrap() > 60_000 && said(here, "up") == 1);
    signal(child.0.id(), "INT");
    eventually("the process is asked to end", || said(here, "asked") == 1);
    drop(out);
    assert_eq!(child.0.wait().unwrap().code(), Some(130));
    assert_eq!(left(here), [""; 0]);
}

#[test]
fn a_bar_advances_with_the_work_and_tells_rate_and_time_left() {
    let directory = directory();
    let here = directory.path();
    // The runs follow one after the other, and each ends when its file exists.
    let script = "until [ -e $HERE/go$JOB_COMPLETION_INDEX ]; do sleep 0.02; done";
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.args(["run", "-n", "4", "-p", "1", "-i", "--name", "sum", "--env", &format!("HERE={}", here.display())]);
    command.args(["--", "sh", "-c", script]).env("TMPDIR", here).env("TERM", "xterm").env("NO_COLOR", "1");
    for name in ["LC_ALL", "LC_CTYPE", "LANG"] {
        command.env_remove(name);
    }
    let terminal = Terminal::start(command, 100, 24);
    let line = r"\r- sum  \[(#*)(\.*)\] +(\d+)%  (\d)/4 ok  \d active(  [\d.]+/(?:s|min|h)  [\d.hms]+ left)?";
    let line = regex_lite::Regex::new(line).unwrap();
    // Per cent, how many have succeeded, how much of the bar is full, and whether rate and time left are shown.
    let frames = |shown: &str| -> Vec<(u32, u32, f64, bool)> {
        let frames = line.captures_iter(shown).map(|frame| {
            let number = |at: usize| frame[at].parse::<u32>().unwrap();
            let full = frame[1].len() as f64 / (frame[1].len() + frame[2].len()) as f64;
            (number(3), number(4), full, frame.get(5).is_some())
        });
        frames.collect()
    };
    eventually("a frame of the beginning", || frames(&terminal.shown()).iter().any(|(_, ok, ..)| *ok == 0));
    for done in 1..=3 {
        fs::write(here.join(format!("go{}", done - 1)), "").unwrap();
        eventually(&format!("a frame that shows {done} of 4, rate and time left"), || {
            frames(&terminal.shown()).iter().any(|(_, ok, _, rate)| *ok == done && *rate)
        });
    }
    fs::write(here.join("go3"), "").unwrap();
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(0), "{shown}");
    let frames = frames(&shown);
    assert!(frames.is_sorted_by_key(|(percent, ..)| *percent), "it never goes back: {frames:?}");
    for (percent, ok, full, _) in &frames {
        assert_eq!(*percent, ok * 25, "{frames:?}");
        assert!((full * 100.0 - f64::from(*percent)).abs() < 3.0, "the bar is as full as it says: {frames:?}");
    }
    assert!(shown.contains("+ sum  Complete  4/4 ok"), "{shown}");
}
