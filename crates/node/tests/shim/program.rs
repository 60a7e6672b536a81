//! The processes of these tests: the shim and the launcher (`node-shim`), and a stand-in for the process that decides,
//! which the tests kill (`decider`).

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod start;

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use start::{code_of, shell};
use tally_core::ids::PodUid;
use tally_node::port::{Attempt, Report, ShimCommand};
use tally_node::shim_client::{Config, ShimClient};

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    match args.first().and_then(|arg| arg.to_str()) {
        Some("node-shim") => tally_node::shim::main(&args[1..]),
        Some("decider") => decider(&args[1..]),
        Some("change-itself") => change_itself(),
        _ => panic!("only the tests of the shim start this program"),
    }
}

/// Gives its own file the mode that it has, and says what came of it.
fn change_itself() -> ExitCode {
    let mode = std::fs::metadata("/proc/self/exe").unwrap().permissions();
    match std::fs::set_permissions("/proc/self/exe", mode) {
        Ok(()) => println!("changed"),
        Err(error) => println!("{error}"),
    }
    ExitCode::SUCCESS
}

/// How many Pods run at once, and so how many may be in progress when the decider is killed.
const PARALLEL: u128 = 4;

/// Runs Pods indefinitely, and writes down every end that was reported to it. Arguments: root, directory, sign.
fn decider(args: &[OsString]) -> ExitCode {
    let (root, dir, sign) = (PathBuf::from(&args[0]), PathBuf::from(&args[1]), args[2].to_string_lossy().into_owned());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut node = ShimClient::start(Config::new(std::env::current_exe().unwrap(), root)).await.unwrap();
        while node.reports.next().await.unwrap() != Report::Recovered {}
        let mut next = first(&dir);
        for _ in 0..PARALLEL {
            begin(&node, &dir, &sign, next).await;
            next += 1;
        }
        loop {
            if let Report::Ended { attempt, exit } = node.reports.next().await.unwrap() {
                note(&dir.join("told"), &format!("{} {}\n", attempt.pod, exit.code));
                begin(&node, &dir, &sign, next).await;
                next += 1;
            }
        }
    })
}

/// Every run of the decider has Pod numbers of its own.
fn first(dir: &Path) -> u128 {
    let life = std::fs::read_to_string(dir.join("lives")).unwrap_or_default().len() as u128;
    note(&dir.join("lives"), "x");
    life * 1_000_000 + 1
}

async fn begin(node: &ShimClient, dir: &Path, sign: &str, number: u128) {
    let pod = PodUid::from_u128(number);
    // The script writes that it began, leaves a process behind, writes that it is done, and exits with a code of its
    // own.
    let dir = dir.display();
    let code = code_of(&pod);
    let script = format!(
        "echo {pod} >> {dir}/began; setsid sleep {sign} >/dev/null 2>&1 & sleep 0.0{}; echo {pod} >> {dir}/done; exit {code}",
        number % 4
    );
    let attempt = Attempt { pod, container: "main".into(), number: 0 };
    node.commands.send(&ShimCommand::Start(Box::new(shell(attempt, &script)))).await.unwrap();
}

/// Writes a line with one call: it is there completely or not at all.
fn note(path: &Path, line: &str) {
    OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(line.as_bytes()).unwrap();
}
