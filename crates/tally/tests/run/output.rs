//! What tasks print: nothing is lost and nothing is altered, however much it is and however slowly it is read.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::pty::Terminal;
use crate::tool::{Running, directory, events, eventually, file, said, signal, text};

/// `tally run` with real processes, whose working directory is `here`.
fn tally(here: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.arg("run").args(arguments).env("TMPDIR", here).current_dir(here).stdin(Stdio::null());
    command
}

fn ends(here: &Path, arguments: &[&str]) -> Output {
    tally(here, arguments).output().unwrap()
}

fn sorted(text: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = String::from_utf8_lossy(text).lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// Bytes that look random, and are the same in each run.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes: Vec<u8> = std::iter::repeat_with(next).take(length.div_ceil(8)).flatten().collect();
    bytes.truncate(length);
    bytes
}

/// The most memory that a process has used, in kB.
fn most_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok()).unwrap_or(0)
}

/// The same for it and its children, added up.
fn most_memory_of_all(pid: u32) -> u64 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children.split_ascii_whitespace().filter_map(|child| child.parse().ok());
    most_memory(pid) + children.map(most_memory).sum::<u64>()
}

#[test]
fn a_single_task_is_passed_through_byte_for_byte() {
    let directory = directory();
    let here = directory.path();
    let [out, err] = [noise(300_000), noise(200_001)];
    fs::write(here.join("o"), &out).unwrap();
    fs::write(here.join("e"), &err).unwrap();
    for logs in [&[][..], &["--logs=raw"]] {
        let said = ends(here, &[logs, &["--", "sh", "-c", "cat o; cat e >&2"]].concat());
        assert_eq!(said.status.code(), Some(0));
        assert!(said.stdout == out, "{} bytes instead of {}", said.stdout.len(), out.len());
        assert!(said.stderr == err, "{} bytes instead of {}", said.stderr.len(), err.len());
    }
    let failed = ends(here, &["--backoff-limit", "0", "--name", "sum", "--", "sh", "-c", "printf out; exit 3"]);
    assert_eq!((failed.status.code(), failed.stdout), (Some(1), b"out".to_vec()));
    let err = String::from_utf8_lossy(&failed.stderr);
    assert!(err.contains("sum: exit code 3") && err.contains("sum: Failed in "), "what went wrong is told: {err}");
}

#[test]
fn five_million_lines_come_out_whole() {
    let directory = directory();
    let mut child = Running(
        tally(directory.path(), &["--logs", "--name", "sum", "-i", "--", "seq", "1", "5000000"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let mut count = 0_u64;
    for line in BufReader::with_capacity(1 << 20, child.0.stdout.take().unwrap()).lines() {
        count += 1;
        let line = line.unwrap();
        assert_eq!(line.strip_prefix("sum[0] ").and_then(|line| line.parse().ok()), Some(count), "{line}");
    }
    assert_eq!((count, child.0.wait().unwrap().code()), (5_000_000, Some(0)));
}

/// Much more than the logs of a Pod may hold.
#[test]
fn a_task_waits_for_a_reader_that_is_slow_and_nothing_is_lost() {
    let directory = directory();
    let here = directory.path();
    let piece = noise(1_000_000);
    fs::write(here.join("piece"), &piece).unwrap();
    // Says how many pieces it has written.
    let script = "i=0; while [ $i -lt 160 ]; do cat piece; i=$((i+1)); echo $i > count; done";
    let mut command = tally(here, &["--", "sh", "-c", script]);
    let mut child = Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut out = child.0.stdout.take().unwrap();
    let count = || fs::read_to_string(here.join("count")).ok().and_then(|count| count.trim().parse().ok()).unwrap_or(0);
    let mut before = (0, Instant::now());
    eventually("it waits", || {
        let now = count();
        if now != before.0 {
            before = (now, Instant::now());
        }
        now > 10 && before.1.elapsed() > Duration::from_secs(2)
    });
    assert!((20..120).contains(&before.0), "{before:?}");
    let mut buffer = vec![0; piece.len()];
    for number in 0..160 {
        out.read_exact(&mut buffer).unwrap();
        assert!(buffer == piece, "piece {number}");
    }
    let memory = most_memory_of_all(child.0.id());
    assert_eq!(out.read(&mut buffer).unwrap(), 0);
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
    assert!(memory > 0 && memory < 250_000, "{memory} kB");
}

#[test]
fn what_a_task_has_written_of_a_line_is_passed_through_at_once() {
    let directory = directory();
    let here = directory.path();
    let script = "printf 'name: '; until [ -e go ]; do sleep 0.02; done; echo x";
    let mut child = Running(tally(here, &["--", "sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap());
    let mut buffer = [0; 6];
    let mut out = child.0.stdout.take().unwrap();
    out.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"name: ");
    fs::write(here.join("go"), "").unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), child.0.wait().unwrap().code()), ("x\n", Some(0)));
}

#[test]
fn many_tasks_have_their_index_in_front_on_both_streams() {
    let directory = directory();
    let script = "echo out $JOB_COMPLETION_INDEX; echo err $JOB_COMPLETION_INDEX >&2; printf end";
    let said = ends(directory.path(), &["-n", "3", "-i", "--name", "sum", "--", "sh", "-c", script]);
    assert_eq!(said.status.code(), Some(0));
    let expected = ["sum[0] end", "sum[0] out 0", "sum[1] end", "sum[1] out 1", "sum[2] end", "sum[2] out 2"];
    assert_eq!(sorted(&said.stdout), expected);
    let err = sorted(&said.stderr);
    assert!((0..3).all(|index| err.contains(&format!("sum[{index}] err {index}"))), "{err:?}");
    assert!(err.iter().any(|line| line.starts_with("sum: Complete in ")), "{err:?}");
}

#[test]
fn the_flag_decides_what_is_shown() {
    let directory = directory();
    let here = directory.path();
    let with = |flags: &[&str]| {
        let command = ["-n", "2", "-i", "--name", "sum", "--quiet", "--", "sh", "-c", "echo $JOB_COMPLETION_INDEX"];
        let said = ends(here, &[flags, &command].concat());
        assert_eq!(said.status.code(), Some(0), "{}", String::from_utf8_lossy(&said.stderr));
        assert_eq!(said.stderr, b"", "Tally itself is quiet");
        sorted(&said.stdout)
    };
    for flags in [&[][..], &["--logs"], &["-l"], &["--logs=prefix"], &["--group"], &["-k"]] {
        assert_eq!(with(flags), ["sum[0] 0", "sum[1] 1"], "{flags:?}");
    }
    assert_eq!(with(&["--logs=raw"]), ["0", "1"]);
    assert_eq!(with(&["--logs=none"]), [""; 0]);
    for (flags, told) in [
        (&["--logs=raw", "--output", "json"][..], "--logs=raw cannot be combined with --output json"),
        (&["--group", "--logs=none"], "--group cannot be combined with --logs=none"),
        (&["-k", "--output", "json"], "--keep-order needs --logs with --output json"),
        (&["-k", "-n", "2"], "--keep-order is the order of the indexes: add --indexed"),
    ] {
        let refused = said(ends(here, &[flags, &["--", "true"]].concat()));
        assert_eq!(refused.code, Some(2), "{flags:?}");
        assert!(refused.err.contains(told), "{}", refused.err);
    }
}

#[test]
fn lines_of_any_length_and_any_bytes_stay_whole() {
    let directory = directory();
    let here = directory.path();
    let mut long = noise(1_500_000);
    long.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = 0);
    fs::write(here.join("long"), &long).unwrap();
    // Every task prints a long line in two parts, and short lines before and after it.
    let script = "for i in 1 2 3; do echo $i; done; cat long; echo; for i in 1 2 3; do echo $i; done";
    let said = ends(here, &["-n", "4", "-p", "4", "-i", "--name", "sum", "--quiet", "--", "sh", "-c", script]);
    assert_eq!(said.status.code(), Some(0));
    let mut lines: Vec<&[u8]> = said.stdout.split(|byte| *byte == b'\n').collect();
    assert_eq!(lines.pop(), Some(&b""[..]));
    assert_eq!(lines.len(), 4 * 7);
    for index in 0..4 {
        let prefix = format!("sum[{index}] ");
        let own: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix(prefix.as_bytes())).collect();
        let [one, two, three]: [&[u8]; 3] = [b"1", b"2", b"3"];
        assert!(own == [one, two, three, &long, one, two, three], "task {index}");
    }
}

/// Tasks end in the opposite order of their indexes: each waits until the process of the next index is gone.
const BACKWARDS: &str = "echo $$ > new$JOB_COMPLETION_INDEX; mv new$JOB_COMPLETION_INDEX pid$JOB_COMPLETION_INDEX; \
                         echo a $JOB_COMPLETION_INDEX; n=$((JOB_COMPLETION_INDEX + 1)); \
                         [ $n = 4 ] || until [ -e pid$n ] && ! kill -0 $(cat pid$n) 2> /dev/null; do sleep 0.02; done; \
                         echo b $JOB_COMPLETION_INDEX";

#[test]
fn output_is_shown_in_the_order_that_was_asked_for() {
    for (flags, expected) in [
        (&["--group"][..], "a 3,b 3,a 2,b 2,a 1,b 1,a 0,b 0"),
        (&["--keep-order"], "a 0,b 0,a 1,b 1,a 2,b 2,a 3,b 3"),
        (&["--keep-order", "--group"], "a 0,b 0,a 1,b 1,a 2,b 2,a 3,b 3"),
    ] {
        let directory = directory();
        let command = ["-n", "4", "-p", "4", "-i", "--logs=raw", "--", "sh", "-c", BACKWARDS];
        let said = said(ends(directory.path(), &[flags, &command].concat()));
        assert_eq!(said.code, Some(0), "{}", said.err);
        assert_eq!(said.out.lines().collect::<Vec<_>>().join(","), expected, "{flags:?}");
    }
}

#[test]
fn the_order_of_indexes_holds_for_indexes_that_fail_or_print_nothing() {
    let directory = directory();
    // Index 1 fails for good, index 2 prints nothing, index 3 succeeds at the second attempt.
    let script = "i=$JOB_COMPLETION_INDEX; [ $i = 2 ] || echo $i; [ $i != 1 ] || exit 1; \
                  [ $i != 3 ] || mkdir tried 2>/dev/null && [ $i = 3 ] && exit 1; exit 0";
    let command = ["-k", "-n", "6", "-p", "6", "-i", "--logs=raw", "--quiet", "--backoff-limit-per-index", "1"];
    let said = said(ends(directory.path(), &[&command[..], &["--", "sh", "-c", script]].concat()));
    assert_eq!(said.code, Some(1), "{}", said.err);
    let shown: Vec<u32> = said.out.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(shown, [0, 1, 1, 3, 3, 4, 5]);
}

#[test]
fn the_first_index_is_shown_while_it_runs() {
    let directory = directory();
    let here = directory.path();
    let script = "echo $JOB_COMPLETION_INDEX; until [ -e go ]; do sleep 0.02; done";
    let mut command = tally(here, &["-k", "-n", "2", "-p", "2", "-i", "--logs=raw", "--", "sh", "-c", script]);
    let mut child = Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut out = BufReader::new(child.0.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "0\n");
    fs::write(here.join("go"), "").unwrap();
    out.read_line(&mut line).unwrap();
    assert_eq!((line.as_str(), child.0.wait().unwrap().code()), ("0\n1\n", Some(0)));
}

#[test]
fn json_has_the_stream_and_every_byte() {
    let directory = directory();
    let script = r"printf 'a\377\n'; echo b >&2";
    let said = said(ends(directory.path(), &["--logs", "--output", "json", "--name", "sum", "--", "sh", "-c", script]));
    let events = events(&said.out);
    let logs: Vec<_> = events.iter().filter(|event| event["event"] == "log").collect();
    let of = |stream: &str| *logs.iter().find(|event| event["stream"] == stream).unwrap();
    assert_eq!((&of("stdout")["base64"], &of("stdout")["line"]), (&"Yf8=".into(), &"a\u{fffd}".into()));
    assert_eq!((&of("stderr")["line"], &of("stderr")["job"]), (&"b".into(), &"sum".into()));
    assert!(of("stderr").get("base64").is_none(), "{}", said.out);
    // Without --logs there are only events about the Job.
    let plain = crate::tool::said(ends(directory.path(), &["--output", "json", "--", "echo", "x"]));
    assert!(!plain.out.contains("\"log\""), "{}", plain.out);
}

#[test]
fn what_rotation_removes_from_kept_logs_is_told_with_a_count() {
    let directory = directory();
    let here = directory.path();
    for (logs, data) in [("--logs=none", "a"), ("--logs=raw", "b")] {
        let command = ["--data-dir", data, "--name", "sum", logs, "--", "seq", "1", "2000000"];
        let child = tally(here, &command).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let said = child.wait_with_output().unwrap();
        assert_eq!(said.status.code(), Some(0));
        let err = String::from_utf8_lossy(&said.stderr);
        let count = regex_lite::Regex::new(r"the oldest (\d+) bytes \((\d+) lines\) of default/sum-\w+ were removed");
        let count = count.unwrap().captures(&err).unwrap_or_else(|| panic!("{err}"));
        let lines: u64 = count[2].parse().unwrap();
        let text: u64 = (1..=lines).map(|number| number.to_string().len() as u64 + 1).sum();
        assert_eq!(count[1], text.to_string(), "{err}");
        // What was not removed is there.
        let pods = here.join(data).join("node/pods");
        let pod = fs::read_dir(pods).unwrap().next().unwrap().unwrap().path();
        let kept: usize = fs::read_dir(pod)
            .unwrap()
            .map(|log| BufReader::new(File::open(log.unwrap().path()).unwrap()).lines().count())
            .sum();
        assert_eq!(lines as usize + kept, 2_000_000, "{err}");
    }
}

#[test]
fn results_have_every_byte_the_exit_code_and_the_times() {
    let directory = directory();
    let here = directory.path();
    let bytes = noise(100_000);
    fs::write(here.join("bytes"), &bytes).unwrap();
    // Index 1 fails at first, and then succeeds.
    let script = "cat bytes; echo e $JOB_COMPLETION_INDEX >&2; [ $JOB_COMPLETION_INDEX != 1 ] || ! mkdir tried || exit 7; \
                  [ $JOB_COMPLETION_INDEX != 2 ] || exit 9";
    let command = ["-n", "3", "-i", "--name", "sum", "--results", "r", "--backoff-limit-per-index", "1", "--logs=none"];
    let said = ends(here, &[&command[..], &["--", "sh", "-c", script]].concat());
    assert_eq!(said.status.code(), Some(1));
    for (index, code) in [(0, 0), (1, 0), (2, 9)] {
        let result = here.join(format!("r/{index}"));
        assert!(fs::read(result.join("stdout")).unwrap() == bytes, "index {index}");
        let err = fs::read_to_string(result.join("stderr")).unwrap();
        assert!(err.starts_with(&format!("e {index}\n")), "{err}");
        let told: serde_json::Value = serde_json::from_slice(&fs::read(result.join("result.json")).unwrap()).unwrap();
        assert_eq!((&told["exitCode"], &told["index"], &told["job"]), (&code.into(), &index.into(), &"sum".into()));
        assert!(told["seconds"].as_f64().unwrap() < 60.0 && told["startedAt"].as_str().unwrap().ends_with('Z'));
        assert!(told["startedAt"].as_str() <= told["finishedAt"].as_str(), "{told}");
    }
    let mut names: Vec<_> = fs::read_dir(here.join("r")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["0", "1", "2"], "nothing else is left");
    // A directory that cannot be used is refused before anything runs.
    file(here, "taken", "");
    let refused = crate::tool::said(ends(here, &["--results", "taken", "--", "touch", "ran"]));
    assert_eq!(refused.code, Some(3), "{}", refused.err);
    assert!(refused.err.contains("cannot be used for results") && !here.join("ran").exists(), "{}", refused.err);
}

#[test]
fn a_kill_leaves_no_half_of_a_result_and_every_success_has_one() {
    const INDEXES: usize = 40;
    let directory = directory();
    let here = directory.path();
    let script = "echo begin; echo $JOB_COMPLETION_INDEX >> done$JOB_COMPLETION_INDEX; sleep 0.02; echo end";
    let command = ["--data-dir", "d", "--results", "r", "-n", "40", "-p", "4", "-i", "--quiet", "--logs=none"];
    let run = || tally(here, &[&command[..], &["--", "sh", "-c", script]].concat());
    let complete = |path: &Path| {
        let text = |name: &str| fs::read_to_string(path.join(name)).unwrap_or_default();
        assert_eq!((text("stdout").as_str(), text("stderr").as_str()), ("begin\nend\n", ""), "{}", path.display());
        let told: serde_json::Value = serde_json::from_str(&text("result.json")).unwrap();
        assert_eq!(told["exitCode"], 0);
    };
    let mut rounds = 0_u64;
    let mut pause = 300;
    loop {
        let mut child = Running(run().spawn().unwrap());
        std::thread::sleep(Duration::from_millis(pause));
        // Longer from round to round: a slow machine gets further, too.
        pause = 200 + 20 * rounds + (pause * 7 + 13) % 500;
        if let Some(status) = child.0.try_wait().unwrap() {
            assert_eq!(status.code(), Some(0));
            break;
        }
        child.kill();
        let names = fs::read_dir(here.join("r")).into_iter().flatten().map(|entry| entry.unwrap());
        names
            .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
            .for_each(|entry| complete(&entry.path()));
        rounds += 1;
        assert!(rounds < 200, "it never ends");
    }
    for index in 0..INDEXES {
        complete(&here.join(format!("r/{index}")));
    }
    assert_eq!(fs::read_dir(here.join("r")).unwrap().count(), INDEXES, "what was not complete is gone");
}

#[test]
fn a_terminal_shows_a_single_task_as_it_is() {
    let directory = directory();
    let here = directory.path();
    let script = r"printf '\033[31mred\033[0m\r50%%'; until [ -e go ]; do sleep 0.02; done; printf '\r100%%\n'; \
                   until [ -e stop ]; do sleep 0.02; done";
    let mut command = tally(here, &["--name", "sum", "--", "sh", "-c", script]);
    command.env("TERM", "xterm").env("NO_COLOR", "1");
    let terminal = Terminal::start(command, 100, 24);
    terminal.await_text("\u{1b}[31mred\u{1b}[0m\r50%");
    std::thread::sleep(Duration::from_millis(400));
    let shown = terminal.shown();
    assert!(shown.ends_with("\r50%"), "nothing is drawn in the middle of a line: {shown:?}");
    fs::write(here.join("go"), "").unwrap();
    terminal.await_text("\r100%\r\n");
    eventually("the display is below it", || terminal.shown().rsplit("100%\r\n").next().unwrap().contains("1 active"));
    fs::write(here.join("stop"), "").unwrap();
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(0));
    assert!(shown.ends_with("\u{1b}[J"), "the display is gone: {shown:?}");
    assert!(!shown.contains("Complete in"), "{shown:?}");
}

#[test]
fn a_reader_who_leaves_does_not_stop_a_task() {
    let directory = directory();
    let here = directory.path();
    let script = "seq 1 300000; touch done";
    let mut child = Running(tally(here, &["--", "sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap());
    let mut first = [0; 2];
    child.0.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
    assert!(&first == b"1\n" && here.join("done").exists());
}

#[test]
fn the_environment_of_the_shell_is_that_of_the_task_and_is_not_stored() {
    let directory = directory();
    let here = directory.path();
    let script = "echo $SECRET-$OTHER; printenv ODD | od -An -tx1";
    let with = |arguments: &[&str], value: &str| {
        use std::os::unix::ffi::OsStrExt;
        let mut command = tally(here, &[arguments, &["--", "sh", "-c", script]].concat());
        command.env("SECRET", value).env("OTHER", "o").env("ODD", std::ffi::OsStr::from_bytes(b"x\xff"));
        said(command.output().unwrap())
    };
    assert_eq!(with(&[], "hidden").out, "hidden-o\n 78 ff 0a\n", "any bytes");
    assert_eq!(with(&["--env", "SECRET=mine"], "hidden").out, "mine-o\n 78 ff 0a\n");
    assert_eq!(with(&["--clean-env"], "hidden").out, "-\n");
    assert_eq!(with(&["--clean-env", "--env", "OTHER"], "hidden").out, "-o\n");
    // What is kept has no variable of the shell, and the shell that resumes counts.
    let kept = with(&["--data-dir", "d", "--name", "sum"], "unmistakable");
    assert_eq!(kept.out, "unmistakable-o\n 78 ff 0a\n", "{}", kept.err);
    let found =
        Command::new("grep").args(["-r", "-l", "-e", "SECRET=", "-e", "\"OTHER\"", "d"]).current_dir(here).output();
    assert_eq!(String::from_utf8_lossy(&found.unwrap().stdout), "");
    let stored = Command::new("grep").args(["-r", "-l", "unmistakable", "d/store"]).current_dir(here).output();
    assert_eq!(String::from_utf8_lossy(&stored.unwrap().stdout), "");
}

#[test]
fn a_job_that_is_resumed_gets_the_environment_of_the_shell_that_resumes_it() {
    let directory = directory();
    let here = directory.path();
    let script = "echo $WHO >> said; until [ -e go ]; do sleep 0.02; done";
    let run = |who: &str, arguments: &[&str]| {
        let mut command = tally(here, &[&["--data-dir", "d"], arguments].concat());
        command.env("WHO", who);
        command
    };
    let mut first = Running(run("first", &["--", "sh", "-c", script]).spawn().unwrap());
    let lines = || fs::read_to_string(here.join("said")).unwrap_or_default();
    eventually("it runs", || lines() == "first\n");
    signal(first.0.id(), "INT");
    assert_eq!(first.0.wait().unwrap().code(), Some(130));
    file(here, "go", "");
    let second = run("second", &[]).output().unwrap();
    assert_eq!(second.status.code(), Some(0), "{}", String::from_utf8_lossy(&second.stderr));
    assert_eq!(lines(), "first\nsecond\n");
}

#[test]
fn a_data_directory_that_is_in_use_is_refused_at_once() {
    let directory = directory();
    let here = directory.path();
    let mut first =
        Running(tally(here, &["--data-dir", "d", "--", "sh", "-c", "touch up; sleep 1000"]).spawn().unwrap());
    eventually("it runs", || here.join("up").exists());
    let second = said(ends(here, &["--data-dir", "d", "--", "true"]));
    assert_eq!(second.code, Some(3));
    assert!(second.err.contains("in use by another process"), "{}", second.err);
    signal(first.0.id(), "INT");
    assert_eq!(first.0.wait().unwrap().code(), Some(130));
}

/// Half a gigabyte takes a while in a build without optimisation: `--release` has it by default, `TALLY_BYTES` otherwise.
#[test]
fn hundreds_of_megabytes_of_any_bytes_come_out_whole() {
    let given = std::env::var("TALLY_BYTES").ok().and_then(|bytes| bytes.parse().ok());
    let length: usize = given.unwrap_or(if cfg!(debug_assertions) { 60_000_000 } else { 500_000_000 });
    let directory = directory();
    let here = directory.path();
    let block = noise(length / 10);
    let mut bytes = File::create(here.join("bytes")).unwrap();
    for _ in 0..10 {
        bytes.write_all(&block).unwrap();
    }
    let mut command = tally(here, &["--", "cat", text(&here.join("bytes"))]);
    let mut child = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut out = child.0.stdout.take().unwrap();
    let mut buffer = vec![0; block.len()];
    for number in 0..10 {
        out.read_exact(&mut buffer).unwrap();
        assert!(buffer == block, "block {number}");
    }
    let memory = most_memory_of_all(child.0.id());
    assert_eq!(out.read(&mut buffer).unwrap(), 0);
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
    assert!(memory < 250_000, "{memory} kB");
}
