//! The shim with real processes. This executable is everything: the tests, the shim and the launcher (`node-shim`), and
//! a stand-in for the process that decides, which the tests kill (`decider`).
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "shim/harness.rs"]
mod harness;
#[path = "shim/kills.rs"]
mod kills;
#[path = "shim/processes.rs"]
mod processes;
#[path = "shim/volumes.rs"]
mod volumes;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    match args.first().and_then(|arg| arg.to_str()) {
        Some("node-shim") => return tally_node::shim::main(&args[1..]),
        Some("decider") => return kills::decider(&args[1..]),
        _ => {}
    }
    let mut tests = processes::tests();
    tests.extend(volumes::tests());
    tests.extend(kills::tests());
    harness::run(&tests)
}
