//! `tally certs`: the keys and certificates of `tally up`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use tally_core::time::Timestamp;
use tally_registry::Env;
use tally_server::pki::{self, CertificateFacts};
use tally_server::{SystemEnv, kubeconfig};
use tally_store::{Store, StoreOptions};

use crate::terminal;
use crate::up::default_data_dir;

#[derive(clap::Args)]
#[command(after_help = "Examples:
  tally certs show                 until when the authority and the kubeconfig are valid
  tally certs show a.kubeconfig    the same for a kubeconfig that tally wrote
  tally certs rotate               make all keys and certificates anew at the next start of tally up

tally up issues its own certificate and that of its kubeconfig at every start, and replaces an authority that is about to
expire.

Exit code 0: done; 1: the files cannot be read or removed, or tally up is running; 2: bad usage.")]
pub struct Args {
    #[command(subcommand)]
    command: CertsCommand,
    /// Data directory of tally up [default: $XDG_DATA_HOME/tally, or ~/.local/share/tally]
    #[arg(long, value_name = "DIR", global = true)]
    data_dir: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum CertsCommand {
    /// Show the certificate of the authority, and those in kubeconfigs
    Show {
        /// Kubeconfigs that tally wrote [default: kubeconfig in the data directory]
        kubeconfigs: Vec<PathBuf>,
    },
    /// Remove all keys, so that the next start of tally up makes new ones: every kubeconfig and token becomes invalid
    Rotate,
}

/// Returns whether the command succeeded.
pub fn run(args: &Args) -> Result<bool> {
    let done = match &args.command {
        CertsCommand::Show { kubeconfigs } => show(args, kubeconfigs),
        CertsCommand::Rotate => rotate(args),
    };
    match done {
        Ok(text) => {
            terminal::print(&text);
            Ok(true)
        }
        Err(error) => {
            // Exit code 2 means bad usage.
            terminal::tell(format_args!("{error:#}"));
            Ok(false)
        }
    }
}

fn data_directory(args: &Args) -> Result<PathBuf> {
    match &args.data_dir {
        Some(directory) => Ok(directory.clone()),
        None => default_data_dir(),
    }
}

fn show(args: &Args, kubeconfigs: &[PathBuf]) -> Result<String> {
    let data = data_directory(args)?;
    let mut text = line("authority", &CertificateFacts::of_authority(&data.join("pki"))?);
    let usual = [data.join("kubeconfig")];
    let files = if kubeconfigs.is_empty() {
        usual.iter().filter(|path| path.exists()).collect()
    } else {
        kubeconfigs.iter().collect::<Vec<_>>()
    };
    for path in files {
        let pem = kubeconfig::certificate_in(path)
            .with_context(|| format!("{} has no client certificate that tally wrote", path.display()))?;
        text += &line(&path.display().to_string(), &CertificateFacts::read(path, &pem)?);
    }
    Ok(text)
}

fn line(what: &str, facts: &CertificateFacts) -> String {
    let day = |seconds: i64| Timestamp::from_seconds(seconds).to_string().chars().take(10).collect::<String>();
    let left = facts.valid_until.saturating_sub(SystemEnv.now().seconds()) / 86_400;
    let until = if left < 0 { "expired".to_owned() } else { format!("{left} days left") };
    format!("{what}: {}, valid {} to {}, {until}\n", facts.subject, day(facts.valid_from), day(facts.valid_until))
}

fn rotate(args: &Args) -> Result<String> {
    let data = data_directory(args)?;
    let keys = data.join("pki");
    CertificateFacts::of_authority(&keys)?;
    // While the store is open here, no tally up can start.
    let store = Store::open(&data.join("store"), StoreOptions::default()).context("tally up must be stopped first")?;
    let discarded = pki::discard(&keys);
    store.close();
    discarded?;
    let text = "the keys are removed; the next start of tally up makes new ones and writes its kubeconfig. Kubeconfigs of \
                other users (tally user add) and service account tokens are invalid from then on\n";
    Ok(text.to_owned())
}
