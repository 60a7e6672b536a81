//! Runs every command of the README and of docs/recipes.md in its order, with an empty home directory.
//!
//! Blocks of `sh` must succeed. A block of `console` is a recording: its commands must print what follows them, except
//! for times and the suffixes of the names of Pods.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/mod.rs"]
mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::kubectl::programs;
use support::server;

const BUILD_AND_RUN: &str = "cargo run --release -- ";
/// The first command of the README.
const FIRST: &str = "tally run -n 20 -p 4 -i -- sh -c 'echo index $JOB_COMPLETION_INDEX'";
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All blocks, each with its language.
fn blocks(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            blocks.push((language, lines.by_ref().take_while(|line| *line != "```").collect()));
        }
    }
    blocks
}

struct Person {
    home: tempfile::TempDir,
    server: Option<Child>,
}

impl Person {
    fn new() -> Self {
        let home = server::directory();
        let bin = home.path().join("bin");
        fs::create_dir(&bin).unwrap();
        symlink(env!("CARGO_BIN_EXE_tally"), bin.join("tally")).unwrap();
        symlink(fs::canonicalize(&programs()[0]).unwrap(), bin.join("kubectl")).unwrap();
        symlink(root().join("examples"), home.path().join("examples")).unwrap();
        Self { home, server: None }
    }

    fn shell(&self, script: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("sh");
        command
            .args(["-e", "-c", script])
            .current_dir(self.home.path())
            .env("HOME", self.home.path())
            .env("PATH", format!("{}:{path}", self.home.path().join("bin").display()))
            .env_remove("XDG_DATA_HOME")
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null());
        command
    }

    /// The exit code, and standard output and standard error together.
    fn says(&self, script: &str) -> (Option<i32>, String) {
        let output = self.shell(&format!("exec 2>&1\n{script}")).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts `tally up`, which keeps running. On another port than the default one, which another process may use.
    fn serve(&mut self, command: &str) {
        let script = format!("exec {command} --listen 127.0.0.1:0");
        self.server = Some(self.shell(&script).stdout(Stdio::null()).spawn().unwrap());
        let until = Instant::now() + GIVE_UP_AFTER;
        while !self.home.path().join(".local/share/tally/kubeconfig").exists() {
            assert!(Instant::now() < until, "never ready: {command}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Without what differs between runs.
fn timeless(text: &str) -> String {
    let word = |word: &str| {
        let is_time =
            word.trim_end_matches([':', ';']).strip_suffix('s').is_some_and(|time| time.parse::<f64>().is_ok());
        match word.rsplit_once('-') {
            _ if is_time => "TIME".to_owned(),
            Some((name, end)) if end.len() == 5 => format!("{name}-POD"),
            _ => word.to_owned(),
        }
    };
    text.lines().map(|line| line.split(' ').map(word).collect::<Vec<_>>().join(" ") + "\n").collect()
}

/// Lines of progress are printed once per second and depend on timing: `sum: waiting`, `sum: 3/5 ok, 1 failed, 1
/// active`.
fn without_progress(text: &str) -> String {
    let is_progress = |line: &str| {
        let said = line.split_once(": ").map_or("", |(_, said)| said);
        let mut words = said.split([' ', ',']);
        let counted =
            words.next().is_some_and(|word| word.chars().all(|letter| letter.is_ascii_digit() || letter == '/'));
        said == "waiting" || counted && words.next() == Some("ok")
    };
    text.lines().filter(|line| !is_progress(line)).map(|line| format!("{line}\n")).collect()
}

#[test]
fn only_progress_is_left_out() {
    let kept =
        "sums: index 3: exit code 2, Pod sums-3-POD\n  | no input\nsums: Failed in TIME: FailedIndexes: x; 4/5 ok\n";
    let progress =
        "sums: waiting\nsums: 0/5 ok, 5 active\nsums: 4/5 ok, 1 failed, failing: FailedIndexes\nsums: 2 ok\n";
    assert_eq!(without_progress(&format!("{progress}{kept}")), kept);
}

/// Runs the blocks of a page. Returns how many were commands, and how many were recordings.
fn run(page: &str, person: &mut Person) -> (usize, usize) {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let (mut ran, mut recorded) = (0, 0);
    for (language, lines) in blocks(page) {
        match language {
            "sh" => {
                let mut script = String::new();
                for line in lines {
                    let line = line.replace(BUILD_AND_RUN, "tally ");
                    match line.split_once(' ') {
                        // It would run this test, too.
                        Some(("make", target)) => assert!(makefile.contains(&format!("\n{target}:")), "{line}"),
                        Some(("tally", up)) if up.starts_with("up") => person.serve(&line),
                        _ => script += &format!("{line}\n"),
                    }
                }
                let (code, said) = person.says(&script);
                assert_eq!(code, Some(0), "{script}{said}");
                if script.starts_with(FIRST) {
                    let printed = said.lines().filter(|line| line.contains("] index ")).count();
                    assert_eq!(printed, 20, "what tasks print is shown: {said}");
                }
                ran += 1;
            }
            "console" => {
                let command = lines[0].strip_prefix("$ ").expect("a command, and what it prints");
                let expected = timeless(&(lines[1..].join("\n") + "\n"));
                let (code, said) = person.says(command);
                assert_eq!(without_progress(&timeless(&said)), expected, "{command}");
                let failed = expected.contains(": Failed in TIME");
                assert!(failed || expected.contains(": Complete in TIME"), "it is not said how {command} ends");
                assert_eq!(code, Some(i32::from(failed)), "{command}");
                recorded += 1;
            }
            _ => panic!("a block of {language:?}, which this test does not run"),
        }
    }
    (ran, recorded)
}

#[test]
fn the_commands_of_the_readme_work() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let mut person = Person::new();
    let (ran, recorded) = run(&readme, &mut person);
    assert!(ran > 4 && recorded > 0);
    let first = blocks(&readme).swap_remove(0).1;
    assert_eq!(first, [&FIRST.replace("tally ", BUILD_AND_RUN), "make test"]);
    let done = fs::read_to_string(person.home.path().join("done.txt")).unwrap();
    assert_eq!(done.lines().count(), 100, "the second run of the same command ran nothing again");
}

/// A person reads it in five minutes, also in a terminal.
#[test]
fn the_readme_is_short() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.lines().count() <= 120, "{} lines", readme.lines().count());
    let long: Vec<&str> = readme.lines().filter(|line| line.chars().count() > 100).collect();
    assert_eq!(long, [""; 0]);
}

#[test]
fn the_recipes_work() {
    let recipes = fs::read_to_string(root().join("docs/recipes.md")).unwrap();
    let (ran, _) = run(&recipes, &mut Person::new());
    assert!(ran > 12, "{ran}");
}
