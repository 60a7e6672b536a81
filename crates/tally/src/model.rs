//! `tally model`: the exhaustive model from the command line.

use anyhow::{Context, Result};
use tally_sim::model;

#[derive(clap::Args)]
#[command(after_help = "Examples:
  tally model            every row, about two minutes on one core
  tally model --quick    small worlds, a few seconds
  tally model --trace    with the shortest way to each mistake

Exit code 0: every rule that should be safe was exhausted and is, every other was found to fail; 1 otherwise.")]
pub struct Args {
    /// Smaller worlds
    #[arg(long)]
    quick: bool,
    /// Show how each bad rule goes wrong
    #[arg(long)]
    trace: bool,
}

pub fn run(args: &Args) -> Result<bool> {
    let options = model::Options { quick: args.quick, trace: args.trace };
    model::run(&options, &mut std::io::stdout().lock()).context("cannot print the model's results")
}
