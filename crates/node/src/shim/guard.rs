//! Where no control group can be made, a parent of the shim that outlives it: if the shim is killed, the kernel gives the
//! guard all processes that the shim has started, whatever they have done to their session, parents and environment,
//! and the guard kills them.

use std::fs::File;
use std::process::ExitCode;

use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};

use super::reaper::Status;
use super::sys::{self, OnlyThread};
use super::{cgroup, processes};

/// Makes this process the guard of a copy of it. None: this process is the shim, because it is the copy, or because it
/// needs no guard or cannot have one.
pub fn stand() -> Option<ExitCode> {
    if cgroup::may_be_made() {
        return None;
    }
    let alone = OnlyThread::check().ok()?;
    set_child_subreaper(Some(getpid())).ok()?;
    let shim = sys::fork(&alone).ok()??;
    // The shim has the socket and the input. Their end is seen when the shim has closed them.
    let nothing = File::options().read(true).write(true).open("/dev/null");
    if let Ok(nothing) = nothing {
        let _ = rustix::stdio::dup2_stdin(&nothing);
        let _ = rustix::stdio::dup2_stdout(&nothing);
    }
    let status = wait_for(shim);
    // What they have started becomes a child of this process when they end.
    loop {
        for child in processes::children() {
            let _ = kill_process(child, Signal::KILL);
        }
        match sys::wait_for_ended_child() {
            Ok(Some(pid)) => drop(sys::reap(pid)),
            // There are no more.
            _ => break,
        }
    }
    Some(match status {
        Some(Status::Exited(code)) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
        Some(Status::Signalled(number)) => {
            // The process that started the shim is told how it ended.
            if let Some(signal) = sys::signal(number) {
                let _ = kill_process(getpid(), signal);
            }
            ExitCode::FAILURE
        }
        None => ExitCode::FAILURE,
    })
}

/// Waits for one child, and reaps others.
pub fn wait_for(child: Pid) -> Option<Status> {
    while let Ok(Some(pid)) = sys::wait_for_ended_child() {
        let reaped = sys::reap(pid);
        if pid == child {
            return reaped.map(|(status, _)| Status::of(status));
        }
    }
    None
}
