//! Tally: runs Kubernetes Jobs and counts every Pod exactly once.

mod bench;
mod client;
mod controller;
mod hollow;
mod metrics;
mod model;
mod node;
mod sim;
mod up;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "tally", version, about = "Runs Kubernetes Jobs and counts every Pod exactly once", long_about = None)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the Kubernetes API on this machine, ready for kubectl
    Up(up::Args),
    /// Run the Job controllers against a Kubernetes API server
    Controller(controller::Args),
    /// Give a cluster nodes that run nothing, whose Pods do as their annotations say; for tests
    #[command(hide = true)]
    Hollow(hollow::Args),
    /// Load an API server and print what it does, one line of figures a case
    Bench(bench::Args),
    /// Run the deterministic simulator: controllers under faults, judged by an oracle at every write
    Sim(sim::Args),
    /// Search every interleaving of a small world: the counting rule must be safe, its rivals must be found wanting
    Model(model::Args),
}

fn main() -> std::process::ExitCode {
    // The process that runs Pods is this program again. It has no use for anything below.
    let args: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    if let Some((first, rest)) = args.split_first()
        && first == tally_node::shim::COMMAND
    {
        return tally_node::shim::main(rest);
    }
    let outcome = match Cli::parse().command {
        Command::Up(args) => up::run(&args),
        Command::Controller(args) => controller::run(&args),
        Command::Hollow(args) => hollow::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Model(args) => model::run(&args),
    };
    match outcome {
        Ok(true) => std::process::ExitCode::SUCCESS,
        Ok(false) => std::process::ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tally: {error:#}");
            std::process::ExitCode::from(2)
        }
    }
}
