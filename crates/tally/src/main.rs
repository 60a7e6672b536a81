//! Tally: runs Kubernetes Jobs and counts every Pod exactly once.

// `terminal::tell` and `terminal::print` remove control sequences.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod backup;
mod bench;
mod certs;
mod check_upgrade;
mod controller;
mod data_dir;
mod hollow;
mod isolation;
mod local_api;
mod look;
mod metrics;
mod node;
mod node_sessions;
mod node_usage;
mod place;
mod pod_log;
mod run;
mod salvage;
mod signals;
mod terminal;
mod top;
mod up;
mod user;
mod version;
mod watch;
mod web;

use std::io::Write;

use clap::{CommandFactory, Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(name = "tally", version, about = "Runs Kubernetes Jobs and counts every Pod exactly once", long_about = None)]
#[command(after_help = "Examples:
  tally run -n 20 -p 4 --indexed -- sh -c 'echo index $JOB_COMPLETION_INDEX'
                                      run a command 20 times, 4 at a time, on this machine
  tally run -f jobs.yaml --logs       run the Jobs in a file and print their output
  tally run --context test --image busybox -- date
                                      run a command on a cluster and follow it from here
  tally attach sum --context test     follow a Job that runs on a cluster
  tally ps --data-dir ./d             list the Jobs that a data directory has
  tally show sum --data-dir ./d       how every attempt of a Job ended, and what it used
  tally explain job/sum --data-dir ./d
                                      what a Job is waiting for, and what would change that
  tally logs sum --data-dir ./d       what its tasks have printed
  tally report sum --data-dir ./d > report.html
                                      the same with pictures, in one file
  tally up                            serve a Kubernetes API on this machine, for kubectl
  tally web --context test            look at the Jobs of a cluster in a browser
  tally controller --help             run the same Job controller against an existing cluster
  tally completion bash               print completions for your shell
  tally man run | man -l -            show the manual page of a command

tally COMMAND --help shows more examples and all flags.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a command or the Jobs in a file to completion, on this machine or on a cluster
    Run(Box<run::Args>),
    /// Follow a Job that exists, in a data directory that is in use or on a cluster
    Attach(run::on_cluster::AttachArgs),
    /// List the Jobs in a data directory or a cluster
    Ps(look::PsArgs),
    /// Show a Job and its attempts: exit codes, times, processor time and peak memory
    Show(look::ShowArgs),
    /// Say what a Job, a Pod or a CronJob is waiting for, since when, and what would change that
    Explain(look::ExplainArgs),
    /// Print what the tasks of a Job have printed
    Logs(look::LogsArgs),
    /// Look at Jobs in a terminal, live: their indexes, attempts and logs
    Top(top::Args),
    /// Print a report about a Job and its attempts: a page in one file, or JUnit XML
    Report(look::report::ReportArgs),
    /// Serve the Kubernetes API on this machine, ready for kubectl
    Up(up::Args),
    /// Serve a page that shows the Jobs of tally up or of a cluster, for a browser on this machine
    Web(web::Args),
    /// Give other users access to the API of tally up
    User(user::Args),
    /// Show or replace the keys and certificates of tally up
    Certs(certs::Args),
    /// Write all objects and keys of a data directory to a file, also while it is in use
    Backup(backup::BackupArgs),
    /// Make a data directory of a backup
    Restore(backup::RestoreArgs),
    /// Check a data directory, and list what is damaged
    Check(salvage::CheckArgs),
    /// Copy everything that can be read of a damaged data directory to a new one
    Salvage(salvage::SalvageArgs),
    /// List the Jobs that an upgrade, or switching a feature gate off, would affect
    CheckUpgrade(check_upgrade::Args),
    /// Run the Job controllers against a Kubernetes API server
    Controller(controller::Args),
    /// Run hollow nodes for a cluster: they start no process and report what the annotations of the Pods request; for
    /// tests
    #[command(hide = true)]
    Hollow(hollow::Args),
    /// Load-test an API server and print one line of results per case
    Bench(bench::Args),
    /// Print the version and the feature gates
    Version(version::Args),
    /// Print completions for a shell: tally completion bash > /etc/bash_completion.d/tally
    Completion { shell: clap_complete::Shell },
    /// Print the manual page of tally or of one of its commands: tally man run | man -l -
    #[command(hide = true)]
    Man { command: Option<String> },
}

fn main() -> std::process::ExitCode {
    // The shim process that runs Pods is this binary, started again. It needs nothing of what follows.
    let args: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    if let Some((first, rest)) = args.split_first()
        && first == tally_node::shim::COMMAND
    {
        return tally_node::shim::main(rest);
    }
    let outcome = match Cli::parse().command {
        Command::Run(args) => return run::run(&args),
        Command::Attach(args) => return run::on_cluster::attach(&args),
        Command::Ps(args) => return look::ps(&args),
        Command::Show(args) => return look::show(&args),
        Command::Explain(args) => return look::explain(&args),
        Command::Logs(args) => return look::logs(&args),
        Command::Top(args) => return top::run(&args),
        Command::Report(args) => return look::report::report(&args),
        Command::CheckUpgrade(args) => return check_upgrade::run(&args),
        Command::Version(args) => Ok(print(version::text(&args).as_bytes())),
        Command::Up(args) => up::run(&args),
        Command::Web(args) => web::run(&args),
        Command::User(args) => user::run(&args),
        Command::Certs(args) => certs::run(&args),
        Command::Backup(args) => backup::backup(&args),
        Command::Restore(args) => backup::restore(&args),
        Command::Check(args) => salvage::check(&args),
        Command::Salvage(args) => salvage::salvage(&args),
        Command::Controller(args) => controller::run(&args),
        Command::Hollow(args) => hollow::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Completion { shell } => Ok(print(&completion(shell))),
        Command::Man { command } => man(command.as_deref()).map(|page| print(&page)),
    };
    match outcome {
        Ok(true) => std::process::ExitCode::SUCCESS,
        Ok(false) => std::process::ExitCode::FAILURE,
        Err(error) => {
            terminal::tell(format_args!("{error:#}"));
            std::process::ExitCode::from(2)
        }
    }
}

fn completion(shell: clap_complete::Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "tally", &mut text);
    text
}

fn man(command: Option<&str>) -> anyhow::Result<Vec<u8>> {
    let mut cli = Cli::command();
    cli.build();
    let about = match command {
        None => cli,
        Some(name) => {
            let found = cli.find_subcommand(name).ok_or_else(|| anyhow::anyhow!("unknown command {name:?}"))?;
            let name: &'static str = format!("tally-{name}").leak();
            found.clone().name(name)
        }
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(about).render(&mut page)?;
    Ok(page)
}

/// The reader may have closed the pipe; that is not an error.
fn print(text: &[u8]) -> bool {
    let mut out = std::io::stdout();
    let _ = out.write_all(text).and_then(|()| out.flush());
    true
}
