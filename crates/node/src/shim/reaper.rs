//! Reaping: this process is the parent of every main process, and of all descendants that lose their own parent.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, oneshot};

use super::processes::{self, ChildList, Process};
use super::sys;
use crate::attempts::ResourceUsage;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    Exited(i32),
    Signalled(i32),
}

impl Status {
    /// From what the kernel says.
    pub fn of(status: i32) -> Self {
        match libc::WIFSIGNALED(status) {
            true => Self::Signalled(libc::WTERMSIG(status)),
            false => Self::Exited(libc::WEXITSTATUS(status)),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub status: Status,
    /// The process group was otherwise empty when the process was reaped.
    pub alone: bool,
    pub usage: ResourceUsage,
}

struct KnownProcess {
    ended: oneshot::Sender<Ended>,
    /// What it started in its own process group may go on after it.
    spares_group: bool,
}

#[derive(Default)]
pub struct Reaper {
    /// The processes that the shim started, by process ID, until they are reaped.
    known: RefCell<HashMap<Pid, KnownProcess>>,
    children: ChildList,
    /// Orphans that do not end.
    given_up: RefCell<HashSet<processes::Name>>,
    /// Notified after every round.
    reaped: Notify,
}

impl Reaper {
    /// Must be called before any other task runs: a child must be registered before its end is handled.
    pub fn expect(&self, pid: Pid) -> oneshot::Receiver<Ended> {
        self.add(pid, false)
    }

    /// The same for a command of a client. What it leaves running in the background goes on, and ends with the container.
    pub fn expect_session(&self, pid: Pid) -> oneshot::Receiver<Ended> {
        self.add(pid, true)
    }

    fn add(&self, pid: Pid, spares_group: bool) -> oneshot::Receiver<Ended> {
        let (ended, receiver) = oneshot::channel();
        self.known.borrow_mut().insert(pid, KnownProcess { ended, spares_group });
        receiver
    }

    /// Reaps everything that has ended. When a process that the shim started ends, the rest of its group is killed,
    /// while the group's ID is still reserved.
    pub fn reap(&self) {
        while let Ok(Some(pid)) = sys::ended_child() {
            let known = self.known.borrow_mut().remove(&pid);
            if known.as_ref().is_some_and(|known| !known.spares_group) {
                let _ = kill_process_group(pid, Signal::KILL);
            }
            let Some((status, usage)) = sys::reap(pid) else { break };
            let status = Status::of(status);
            if let Some(known) = known {
                let alone = !known.spares_group && self.group_is_gone(pid);
                let _ = known.ended.send(Ended { status, alone, usage });
            }
        }
        self.reaped.notify_waiters();
    }

    /// Waits until something may have been reaped; also returns after a short while, for processes that others reap.
    pub async fn round(&self) {
        let _ = tokio::time::timeout(std::time::Duration::from_millis(20), self.reaped.notified()).await;
    }

    /// Children that the shim did not start: they have lost their parents.
    pub fn orphans(&self) -> Vec<Pid> {
        let known = self.known.borrow();
        self.children.pids().into_iter().filter(|pid| !known.contains_key(pid)).collect()
    }

    /// The process has not been reaped yet.
    pub fn knows(&self, pid: Pid) -> bool {
        self.known.borrow().contains_key(&pid)
    }

    /// Sends a signal to a process that the shim started and to its group, while they exist.
    pub fn signal(&self, pid: Pid, signal: Signal) {
        if self.knows(pid) {
            let _ = kill_process_group(pid, signal);
            // The process may have moved itself to another group.
            if signal == Signal::KILL {
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
    }

    /// Whether the group of a reaped process is empty. Called right after the reaping, and again while the answer is
    /// no: an ID is reused only after thousands of others, so it cannot have been reassigned in between.
    pub fn group_is_gone(&self, pid: Pid) -> bool {
        match kill_process_group(pid, Signal::KILL) {
            Ok(()) => false,
            // ESRCH; or EPERM, if all remaining processes belong to another user and may not be killed.
            Err(_) => true,
        }
    }
}

/// What to do with an orphan when an attempt has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrphanAction {
    Kill,
    /// The orphan belongs to another attempt, or may belong to one.
    Leave,
}

/// `running` are the attempts that still run, by mark, with the time they started. An orphan with a mark is killed with
/// the attempt that the mark names. An orphan without the environment may belong to any attempt that ran when it was
/// started, and is killed with the last of these.
pub fn fate<'a>(mark: Option<&str>, ticks: u64, running: impl Iterator<Item = (&'a str, u64)>) -> OrphanAction {
    let mut running = running;
    let held = match mark {
        Some(mark) => running.any(|(other, _)| other == mark),
        None => running.any(|(_, started)| started <= ticks),
    };
    if held { OrphanAction::Leave } else { OrphanAction::Kill }
}

impl Reaper {
    /// Kills the orphans that belong to no running attempt. Returns those that are worth waiting for.
    pub fn sweep(&self, root: &Path, running: impl FnOnce() -> Vec<(String, u64)>) -> Vec<processes::Name> {
        let orphans = self.orphans();
        self.given_up.borrow_mut().retain(|(pid, _)| orphans.contains(pid));
        if orphans.is_empty() {
            return Vec::new();
        }
        let running = running();
        let mut doomed = Vec::new();
        for pid in orphans {
            let Some(process) = processes::look(pid) else { continue };
            let mark = processes::marked(pid, root);
            let running = running.iter().map(|(mark, ticks)| (mark.as_str(), *ticks));
            if !process.zombie && fate(mark.as_deref(), process.ticks, running) == OrphanAction::Kill {
                doomed.push(process);
            }
        }
        self.end(&doomed, processes::kill)
    }

    fn end(&self, doomed: &[Process], mut kill: impl FnMut(&Process) -> bool) -> Vec<processes::Name> {
        let given_up = self.given_up.borrow();
        let killed = doomed.iter().filter(|process| kill(process)).map(|process| (process.pid, process.ticks));
        killed.filter(|name| !given_up.contains(name)).collect()
    }

    /// These have been killed and still exist: they are stuck in the kernel. They are not waited for again.
    pub fn give_up(&self, left: Vec<processes::Name>) {
        self.given_up.borrow_mut().extend(left);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_reaper_does_not_wait_for_a_process_that_does_not_end() {
        let reaper = Reaper::default();
        let process = |pid: i32, ticks| {
            let pid = Pid::from_raw(pid).unwrap();
            Process { pid, parent: 1, group: pid.as_raw_nonzero().get(), ticks, zombie: false, used: 0, resident: 0 }
        };
        let doomed = [process(5, 10), process(6, 10), process(7, 10)];
        // The first may not be killed, the second is stuck.
        let kill = |process: &Process| process.pid != doomed[0].pid;
        let name = |process: &Process| (process.pid, process.ticks);
        let left = reaper.end(&doomed, kill);
        assert_eq!(left, [name(&doomed[1]), name(&doomed[2])]);
        reaper.give_up(vec![left[0]]);
        assert_eq!(reaper.end(&doomed, kill), [name(&doomed[2])]);
        let another = process(6, 20);
        assert_eq!(reaper.end(std::slice::from_ref(&another), kill), [name(&another)], "its number has passed on");
    }

    #[test]
    fn orphans_go_with_the_last_attempt_that_may_have_started_them() {
        let running = [("a", 10), ("b", 20)];
        for (mark, ticks, expected) in [
            (Some("a"), 15, OrphanAction::Leave),
            (Some("gone"), 15, OrphanAction::Kill),
            (None, 15, OrphanAction::Leave),
            (None, 10, OrphanAction::Leave),
            (None, 9, OrphanAction::Kill),
        ] {
            assert_eq!(fate(mark, ticks, running.into_iter()), expected, "{mark:?} {ticks}");
        }
        assert_eq!(fate(None, 15, [].into_iter()), OrphanAction::Kill);
    }
}
