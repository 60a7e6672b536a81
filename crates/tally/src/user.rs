//! `tally user`: access to the API of `tally up` for others than its administrator.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use tally_server::{NewClient, kubeconfig};

use crate::terminal;
use crate::up::default_data_dir;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: UserCommand,
}

#[derive(clap::Subcommand)]
enum UserCommand {
    /// Write a kubeconfig with a client certificate for a user
    Add(AddArgs),
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  tally user add alice                       write alice.kubeconfig: a user without rights beyond discovery
  tally user add ci --group builders         a user in a group
  kubectl create rolebinding alice --clusterrole=edit --user=alice
                                             what the user may do is said by roles and bindings
  kubectl --kubeconfig alice.kubeconfig auth can-i --list

The certificate cannot be revoked: it is valid for its time, or until the certificate authority in the data directory is
replaced. Remove the bindings of a user to take its rights away.

Exit code 0: written; 1: the certificate or the file cannot be made; 2: bad usage.")]
struct AddArgs {
    /// The name of the user
    name: String,
    /// A group of the user; may be given several times
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Days for which the certificate is valid
    #[arg(long, value_name = "DAYS", default_value_t = 365)]
    days: u32,
    /// Data directory of tally up [default: $XDG_DATA_HOME/tally, or ~/.local/share/tally]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Path of the kubeconfig to write [default: NAME.kubeconfig in the current directory]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// URL of the server [default: that of the kubeconfig in the data directory]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
}

/// Returns whether the command succeeded.
pub fn run(args: &Args) -> Result<bool> {
    let UserCommand::Add(add) = &args.command;
    match write(add) {
        Ok(path) => {
            terminal::print(&format!("{} is the kubeconfig of {}\n", path.display(), add.name));
            Ok(true)
        }
        Err(error) => {
            // Exit code 2 means bad usage.
            terminal::tell(format_args!("{error:#}"));
            Ok(false)
        }
    }
}

fn write(args: &AddArgs) -> Result<PathBuf> {
    let data = match &args.data_dir {
        Some(directory) => directory.clone(),
        None => default_data_dir()?,
    };
    let path = args.kubeconfig.clone().unwrap_or_else(|| file_name(&args.name));
    let url = match &args.server {
        Some(url) => url.clone(),
        None => url_of(&data)?,
    };
    let client = NewClient { name: &args.name, groups: &args.groups, days: args.days };
    let certificate = client.issue(&data.join("pki")).context("cannot issue a certificate")?;
    kubeconfig::write_user(&path, &url, &args.name, &certificate)?;
    Ok(path)
}

/// The name of a user can contain what the name of a file should not.
fn file_name(user: &str) -> PathBuf {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || "-_.@".contains(letter) { letter } else { '_' };
    let name: String = user.chars().map(plain).collect();
    PathBuf::from(format!("{}.kubeconfig", name.trim_start_matches('.')))
}

fn url_of(data: &Path) -> Result<String> {
    let path = data.join("kubeconfig");
    kubeconfig::url_in(&path).ok_or_else(|| {
        anyhow!(
            "there is no address of a server in {}; start tally up, or, if its kubeconfig is elsewhere, give the address, such \
             as --server https://127.0.0.1:6443",
            path.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_name_becomes_a_plain_file_name() {
        for (user, file) in [
            ("alice", "alice.kubeconfig"),
            ("a/../b", "a_.._b.kubeconfig"),
            ("..", ".kubeconfig"),
            ("a b", "a_b.kubeconfig"),
        ] {
            assert_eq!(file_name(user), PathBuf::from(file));
        }
    }
}
