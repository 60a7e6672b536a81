//! The flags that choose a cluster, and what they cannot be combined with.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::place::{self, Place};
use crate::run::Args;
use crate::run::outcome::RunError;

/// The name under which the manifests of this project run `tally controller` beside another Job controller.
const MANAGER: &str = "tally.dev/job-controller";

#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "On a cluster")]
pub struct ClusterFlags {
    /// Create the Job on a cluster and follow it: context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Create the Job on a cluster and follow it: kubeconfig file [default: $KUBECONFIG or ~/.kube/config, if --context is
    /// given]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace [default: that of the context]
    #[arg(long, value_name = "NAME", requires = "cluster")]
    pub namespace: Option<String>,
    /// Set spec.managedBy, so that a controller of that name runs the Job [default name: tally.dev/job-controller]
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = MANAGER, requires = "cluster")]
    pub set_managed_by: Option<String>,
    /// Delete the Job when it has ended, with its Pods
    #[arg(long, requires = "cluster")]
    pub rm: bool,
    /// What Ctrl-C does: delete the Job, or detach and leave it running [default: delete]
    #[arg(long, value_name = "WHAT", value_enum, requires = "cluster", hide_possible_values = true)]
    pub on_interrupt: Option<OnInterrupt>,
}

/// The value of `--on-interrupt`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OnInterrupt {
    #[default]
    Delete,
    Detach,
}

impl ClusterFlags {
    pub fn is_given(&self) -> bool {
        self.context.is_some() || self.kubeconfig.is_some()
    }

    pub fn open(&self) -> Result<Place, RunError> {
        Ok(Place::cluster(self.context.clone(), self.kubeconfig.clone(), self.namespace.clone())?)
    }

    /// The same cluster, as the flags of a command that a message proposes.
    pub fn words(&self, namespace: &str) -> String {
        let namespace = self.namespace.as_ref().map(|_| namespace);
        place::words(None, self.context.as_deref(), self.kubeconfig.as_deref(), namespace)
    }
}

/// Flags that make no sense for a cluster are refused, with the reason.
pub fn check(args: &Args) -> Result<(), String> {
    if !args.cluster.is_given() {
        return Ok(());
    }
    let flag = if args.cluster.context.is_some() { "--context" } else { "--kubeconfig" };
    let refused = [
        (
            "--data-dir",
            args.data_dir.is_some(),
            "the cluster keeps the state; `tally attach` follows a Job that is there",
        ),
        ("--again", args.again, "a Job of a cluster is not replaced; delete it with `kubectl delete job`"),
        ("--stdin", args.pass_stdin, "the Pods of a cluster cannot read the standard input of this process"),
        ("--hollow", args.hollow > 0, "the nodes are those of the cluster"),
        ("--isolate", args.isolate, "containers of a cluster are isolated by its nodes"),
        (
            "--results",
            args.results.is_some(),
            "the files would be on the nodes; print results, or write them to a volume",
        ),
        (
            "--joblog",
            args.job_log.is_some(),
            "processor time and signals of tasks are not known here; use --output json",
        ),
        ("--junit", args.junit.is_some(), "when the Job has ended, use `tally report JOB -o junit`"),
        ("--clean-env", args.flags.clean_env, "the environment of the shell is never sent to a cluster; use --env"),
    ];
    if let Some((refused, _, why)) = refused.into_iter().find(|(_, given, _)| *given) {
        return Err(format!("{refused} cannot be combined with {flag}: {why}"));
    }
    if !args.command.is_empty() && args.image.is_none() {
        return Err(format!("{flag} needs --image IMAGE: a cluster runs the command in a container"));
    }
    Ok(())
}
