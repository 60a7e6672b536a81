//! `tally bench`: all figures about speed and cost. One line for each case, as text or as JSON, and a picture of them.

#[allow(clippy::print_stdout, reason = "its lines are printed in parts")]
mod api;
mod disk;
mod jobs;
mod plot;
mod proc;
mod server;
mod tasks;

use anyhow::Result;
use clap::{Args as ClapArgs, Subcommand};

use crate::terminal;

#[derive(ClapArgs)]
#[command(after_help = "Examples:
  tally bench jobs                            a quick set of Jobs on hollow nodes; --list, --all
  tally bench run                             tasks of tally run beside xargs and make
  tally bench api                             requests per second of a server in a temporary directory
  tally bench api --kubeconfig ~/.kube/config of a server that is already running
  tally bench plot figures.json > figures.svg draw what tally bench jobs -o json printed")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Measure durable creates, updates, lists, watch deliveries and deletes per second over HTTPS, and memory per Pod
    Api(api::Args),
    /// Measure Jobs of all sizes: time, Pods per minute, processor time, memory, requests, time until a Pod is counted
    Jobs(jobs::Args),
    /// Measure tasks of tally run beside xargs and make, and the time of the process that starts them
    Run(tasks::Args),
    /// Draw the cost of a Pod against the size of its Job, as SVG
    Plot(plot::Args),
}

/// Prints a line.
fn say(line: &str) {
    terminal::print(&format!("{line}\n"));
}

pub fn run(args: &Args) -> Result<bool> {
    match &args.what {
        What::Api(args) => api::run(args),
        What::Jobs(args) => jobs::run(args),
        What::Run(args) => tasks::run(args),
        What::Plot(args) => plot::run(args),
    }
}
