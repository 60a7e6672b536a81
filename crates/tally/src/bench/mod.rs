//! `tally bench`: load-tests an API server and prints one line of results per case.

#![allow(clippy::print_stderr, clippy::print_stdout)]

mod api;
mod jobs;
mod server;

use anyhow::Result;
use clap::{Args as ClapArgs, Subcommand};

#[derive(ClapArgs)]
#[command(after_help = "Examples:
  tally bench api                                  start a server in a temporary directory and measure it
  tally bench api --clients 16 --pods 2000
  tally bench jobs --completions 1000,100000
  tally bench api --kubeconfig ~/.kube/config      measure a server that is already running")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Measure durable creates, updates, lists, watch deliveries and deletes per second over HTTPS, and memory per Pod
    Api(api::Args),
    /// Measure Jobs on hollow nodes: latency, requests per Pod, CPU time and memory of the controller
    Jobs(jobs::Args),
}

pub fn run(args: &Args) -> Result<bool> {
    match &args.what {
        What::Api(args) => api::run(args),
        What::Jobs(args) => jobs::run(args),
    }
}
