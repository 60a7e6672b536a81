//! Control sequences in what tasks print and in what API servers say: which reach a terminal.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use crate::pty::Terminal;
use crate::tool::{Running, directory, eventually, file, said, text};

/// Sets the title, sets the clipboard, erases the screen, and prints `abc`.
const PRINTS: &str = r#"printf 'a\033]0;owned\007b\033]52;c;eA==\007\033[2Jc\n'"#;
const PRINTED: &str = "a\u{1b}]0;owned\u{7}b\u{1b}]52;c;eA==\u{7}\u{1b}[2Jc\n";
/// Tally writes none of these itself.
const SEQUENCES: [&str; 3] = ["\u{1b}]0;", "\u{1b}]52;", "\u{1b}[2J"];

fn tally(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// What a terminal gets.
fn shown(arguments: &[&str]) -> String {
    let mut command = tally(arguments);
    command.env("TERM", "xterm-256color");
    Terminal::start(command, 200, 50).end().1
}

fn is_clean(shown: &str) -> bool {
    !SEQUENCES.iter().any(|sequence| shown.contains(sequence))
}

fn assert_clean(arguments: &[&str], text: &str) {
    let shown = shown(arguments);
    assert!(is_clean(&shown) && shown.contains(text), "{arguments:?}: {shown:?}");
}

fn assert_passed(arguments: &[&str]) {
    let shown = shown(arguments);
    assert!(SEQUENCES.iter().all(|sequence| shown.contains(sequence)), "{arguments:?}: {shown:?}");
}

#[test]
fn of_a_run_only_a_single_command_of_ones_own_controls_the_terminal() {
    let run = |flags: &[&'static str]| [&["run"], flags, &["--", "sh", "-c", PRINTS]].concat();
    assert_passed(&run(&[]));
    assert_passed(&run(&["--logs=raw"]));
    assert_clean(&run(&["--control-sequences=remove"]), "abc");
    let many = ["-n", "2", "-p", "1", "--indexed", "--name", "sum"];
    assert_clean(&run(&many), "sum[1]\u{1b}[0m abc\r\n");
    let raw = [&many[..], &["--logs=raw"]].concat();
    assert_clean(&run(&raw), "abc\r\n");
    assert_passed(&run(&[&many[..], &["--control-sequences=pass"]].concat()));
    assert_passed(&run(&[&raw[..], &["--control-sequences=pass"]].concat()));
    // What is no terminal gets what was printed.
    let piped = said(tally(&run(&raw)).output().unwrap());
    assert_eq!(piped.out, PRINTED.repeat(2), "{}", piped.err);
}

#[test]
fn logs_and_a_run_that_is_followed_do_not_control_the_terminal() {
    let directory = directory();
    let (data, go) = (directory.path().join("d"), directory.path().join("go"));
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done; {PRINTS}", text(&go));
    let at = ["--data-dir", text(&data)];
    let start = || {
        let _ = std::fs::remove_file(&go);
        let mut run = tally(&[&["run", "--name", "one", "--again"], &at[..], &["--", "sh", "-c", &script]].concat());
        let run = Running(run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let shows = || said(tally(&[&["show", "one", "-o", "json"], &at[..]].concat()).output().unwrap());
        eventually("it runs", || shows().out.contains("\"active\": 1"));
        run
    };
    for (flags, passes) in [(&[][..], false), (&["--logs=raw"], false), (&["--control-sequences=pass"], true)] {
        let mut run = start();
        let mut attach = tally(&[&["attach", "one"], &at[..], flags].concat());
        attach.env("TERM", "xterm-256color");
        let terminal = Terminal::start(attach, 200, 50);
        terminal.await_text("following Job");
        std::fs::write(&go, "").unwrap();
        let (_, shown) = terminal.end();
        assert_eq!(!is_clean(&shown), passes, "{flags:?}: {shown:?}");
        assert!(passes || shown.contains("abc"), "{shown:?}");
        assert_eq!(run.0.wait().unwrap().code(), Some(0));
    }
    let logs = [&["logs", "one"], &at[..]].concat();
    assert_clean(&logs, "abc\r\n");
    assert_passed(&[&logs[..], &["--control-sequences=pass"]].concat());
    assert_eq!(said(tally(&logs).output().unwrap()).out, PRINTED);
    // With the names of the tasks in front.
    let many = ["run", "--name", "sum", "-n", "2", "--indexed", "--logs=none"];
    let run = said(tally(&[&many[..], &at, &["--", "sh", "-c", PRINTS]].concat()).output().unwrap());
    assert_eq!(run.code, Some(0), "{}", run.err);
    let logs = [&["logs", "sum"], &at[..]].concat();
    assert_clean(&logs, "sum[1] abc\r\n");
    assert_eq!(said(tally(&logs).output().unwrap()).out, format!("sum[0] {PRINTED}sum[1] {PRINTED}"));
}

/// An API server whose messages and names are sequences.
#[test]
fn what_an_api_server_says_does_not_control_the_terminal() {
    let evil = serde_json::to_string("no \u{1b}]0;owned\u{7}\u{1b}]52;c;eA==\u{7}\u{1b}[2J\u{9b}2Jaccess").unwrap();
    let job = |namespace: &str| format!(r#"{{"metadata": {{"name": "sum", "namespace": {namespace}, "uid": "1"}}}}"#);
    let items = [job(&evil), job("\"b\"")].join(",");
    let head = r#""kind": "JobList", "apiVersion": "batch/v1", "metadata": {"resourceVersion": "1"}"#;
    let list = format!(r#"{{{head}, "items": [{items}]}}"#);
    let refusal =
        format!(r#"{{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "message": {evil}}}"#);
    for (code, body, commands) in [
        (
            "403 Forbidden",
            &refusal,
            &[&["ps"][..], &["show", "sum"], &["logs", "sum"], &["attach", "sum"], &["check-upgrade"]][..],
        ),
        ("200 OK", &list, &[&["attach", "sum"], &["ps"]]),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (code, body) = (code.to_owned(), body.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                // The head of a request without a body.
                while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
                let head = format!("HTTP/1.1 {code}\r\nContent-Type: application/json\r\nConnection: close\r\n");
                let _ = stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
            }
        });
        let directory = directory();
        let config = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
             clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}], users: [{{name: u, user: {{token: t}}}}]}}"
        );
        let config = file(directory.path(), "kubeconfig", &config);
        for command in commands {
            assert_clean(&[command, &["--kubeconfig", text(&config)][..]].concat(), "access");
        }
    }
}
