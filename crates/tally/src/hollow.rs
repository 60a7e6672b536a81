//! `tally hollow`: hollow nodes for a cluster that runs elsewhere, so that the Pods of its Jobs end as a test requires.
//! It serves nothing and stores nothing; a signal ends it, and the next start continues.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use tally_controllers::hollow::Hollow;
use tally_runtime::driver::{self, NoopObserver};

use crate::terminal;
use tally_remote::{Remote, connect};

#[derive(clap::Args)]
pub struct Args {
    /// Kubeconfig file [default: $KUBECONFIG, ~/.kube/config, or the service account of the Pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Number of nodes; they are named hollow-0 to hollow-(N-1)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    nodes: u32,
}

/// Returns only after an error.
pub fn run(args: &Args) -> Result<bool> {
    if let Err(error) = start(args) {
        terminal::tell(format_args!("{error:#}"));
    }
    Ok(false)
}

fn start(args: &Args) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    runtime.block_on(async {
        let place = connect::KubeconfigSource { kubeconfig: args.kubeconfig.clone(), context: args.context.clone() };
        let remote = Remote::new(connect::service(&connect::access(&place)?)?);
        let nodes = Box::new(Hollow::new(args.nodes));
        let for_ever = std::future::pending();
        driver::run(Arc::new(remote), vec![nodes], driver::DriverOptions::default(), Arc::new(NoopObserver), for_ever)
            .await;
        Ok(())
    })
}
