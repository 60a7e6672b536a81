//! `tally bench`: load an API server and print what it does, one line of figures a case.

mod api;
mod jobs;
mod server;

use anyhow::Result;
use clap::{Args as ClapArgs, Subcommand};

#[derive(ClapArgs)]
#[command(after_help = "Examples:
  tally bench api                                  start a server on a temporary directory and measure it
  tally bench api --clients 16 --pods 2000
  tally bench jobs --completions 1000,100000
  tally bench api --kubeconfig ~/.kube/config      measure a server that runs already")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Durable creates, updates, lists, watch deliveries and deletes a second over HTTPS; memory per Pod
    Api(api::Args),
    /// Jobs on hollow nodes: latency, requests per Pod, processor time and memory of the controller
    Jobs(jobs::Args),
}

pub fn run(args: &Args) -> Result<bool> {
    match &args.what {
        What::Api(args) => api::run(args),
        What::Jobs(args) => jobs::run(args),
    }
}
