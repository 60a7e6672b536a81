//! What this machine permits the node to do for its containers.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use super::mounts::{self, View};
use super::sys::{self, OnlyThread};
use super::{COMMAND, TRY_ISOLATION, confine, seccomp};
use crate::security::SecurityAbilities;

/// The abilities of this process. `isolates`: containers are isolated, which `try_isolation` has found to work.
pub fn own(isolates: bool) -> SecurityAbilities {
    let user_namespaces = fs::read_to_string("/proc/sys/user/max_user_namespaces");
    let user_namespaces = user_namespaces.is_ok_and(|most| most.trim() != "0");
    SecurityAbilities {
        isolates,
        // If the kernel refuses one after all, the container does not start.
        mount_namespaces: isolates || rustix::process::geteuid().is_root() || user_namespaces,
        capabilities: confine::own_capabilities(),
        group: rustix::process::getegid().as_raw(),
        ..SecurityAbilities::default()
    }
}

/// Tries whether this machine permits the isolation of containers. `program` is as in `shim_client::Config`. Err: why not.
pub fn try_isolation(program: &Path) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args([COMMAND, TRY_ISOLATION]).stdin(Stdio::null());
    let tried = command.output().map_err(|error| error.to_string())?;
    match String::from_utf8_lossy(&tried.stdout).trim() {
        "" if tried.status.success() => Ok(()),
        "" => Err(format!("the attempt ended with {}", tried.status)),
        why => Err(why.to_owned()),
    }
}

/// The process that tries: it does for nothing what the launcher does for a container.
pub fn main() -> ExitCode {
    match try_here() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(std::io::stdout(), "{why}");
            ExitCode::FAILURE
        }
    }
}

fn try_here() -> Result<(), String> {
    let alone = OnlyThread::check().map_err(|error| error.to_string())?;
    mounts::leave(true).map_err(|error| format!("this user may not make namespaces here ({error})"))?;
    match sys::fork(&alone) {
        Ok(None) => {
            mounts::arrange(View { hidden: Some(Vec::new()), ..View::default() })?;
            seccomp::refuse_user_namespaces().map_err(|error| format!("no seccomp filter can be installed ({error})"))
        }
        // The first process of the namespace has said why it failed.
        Ok(Some(_)) => match sys::wait_for_ended_child().ok().flatten().and_then(sys::reap) {
            Some((0, _)) => Ok(()),
            _ => std::process::exit(1),
        },
        Err(error) => Err(format!("no process can be started in a PID namespace ({error})")),
    }
}
