//! Information about processes: /proc.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, Signal};

use tally_core::ids::PodUid;

use crate::port::Attempt;

/// Every process of a container has these variables in its environment, and its children inherit them, unless a process
/// removes them: they identify processes that have left their process group and their parents.
pub const ATTEMPT: &str = "TALLY_ATTEMPT";
pub const NODE: &str = "TALLY_NODE";

pub fn mark(attempt: &Attempt) -> String {
    format!("{}/{}/{}", attempt.pod, attempt.container, attempt.number)
}

/// What the marks of all attempts of a Pod begin with.
pub fn mark_of_pod(pod: &PodUid) -> String {
    format!("{pod}/")
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: Pid,
    pub parent: i32,
    pub group: i32,
    /// Clock ticks since boot. Together with the process ID this identifies one process uniquely.
    pub ticks: u64,
    /// The process has ended; its parent has not reaped it.
    pub zombie: bool,
    /// The processor time of the process and of the children that it has reaped, in clock ticks.
    pub used: u64,
    /// The pages that it has in memory.
    pub resident: u64,
}

/// The ID of a process and when it started.
pub type Name = (Pid, u64);

pub fn look(pid: Pid) -> Option<Process> {
    parse(pid, &fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?)
}

fn parse(pid: Pid, stat: &[u8]) -> Option<Process> {
    // The name is in parentheses and may contain anything, including parentheses.
    let rest = &stat[memchr::memrchr(b')', stat)? + 1..];
    let fields: Vec<&str> = std::str::from_utf8(rest).ok()?.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    Some(Process {
        pid,
        zombie: matches!(*fields.first()?, "Z" | "X"),
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        ticks: number(19)?,
        used: (11..15).filter_map(number).sum(),
        resident: number(21).unwrap_or_default(),
    })
}

pub fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?));
    pids.filter_map(look).collect()
}

/// The children of this process. The kernel has a list; if that is not available, all processes are examined.
pub fn children() -> Vec<Pid> {
    if let Ok(list) = fs::read_to_string("/proc/thread-self/children") {
        return list.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect();
    }
    let own = rustix::process::getpid().as_raw_nonzero().get();
    all().into_iter().filter(|process| process.parent == own).map(|process| process.pid).collect()
}

/// The kernel's list of the children of this thread, which is opened once.
pub struct ChildList(Option<File>);

impl Default for ChildList {
    fn default() -> Self {
        Self(File::open("/proc/thread-self/children").ok())
    }
}

impl ChildList {
    /// The same as [`children`], for the thread that has opened the list.
    pub fn pids(&self) -> Vec<Pid> {
        let Some(list) = &self.0 else { return children() };
        let mut text = Vec::new();
        let mut part = [0; 4096];
        // The list is made anew when it is read from its beginning, and ends where nothing is read.
        loop {
            match list.read_at(&mut part, text.len() as u64) {
                Ok(0) => break,
                Ok(length) => text.extend_from_slice(&part[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return children(),
            }
        }
        let pids = text.split(u8::is_ascii_whitespace).filter_map(|pid| std::str::from_utf8(pid).ok()?.parse().ok());
        pids.filter_map(Pid::from_raw).collect()
    }
}

/// The attempt that a process is marked with, for the node with this root. An unreadable environment counts as
/// unmarked.
pub fn marked(pid: Pid, root: &Path) -> Option<String> {
    let environ = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok()?;
    let variables: BTreeMap<&[u8], &[u8]> = environ
        .split(|&byte| byte == 0)
        .filter_map(|variable| {
            let at = memchr::memchr(b'=', variable)?;
            Some((&variable[..at], &variable[at + 1..]))
        })
        .collect();
    // As it was written: with replacement characters for bytes that are not UTF-8.
    if String::from_utf8_lossy(variables.get(NODE.as_bytes())?) != root.to_string_lossy() {
        return None;
    }
    String::from_utf8(variables.get(ATTEMPT.as_bytes())?.to_vec()).ok()
}

/// Kills one process, and no other that has received its ID since: it is checked again once a pidfd is open. False: the
/// process is gone, or may not be killed.
pub fn kill(process: &Process) -> bool {
    let held = rustix::process::pidfd_open(process.pid, PidfdFlags::empty());
    if look(process.pid).is_none_or(|now| now.ticks != process.ticks) {
        return false;
    }
    match held {
        Ok(held) => rustix::process::pidfd_send_signal(held, Signal::KILL).is_ok(),
        Err(_) => rustix::process::kill_process(process.pid, Signal::KILL).is_ok(),
    }
}

/// The time since boot, in the unit of a process's start time. Cheaper than reading it from a process.
pub fn ticks() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let per_second = rustix::param::clock_ticks_per_second();
    now.tv_sec.unsigned_abs() * per_second + now.tv_nsec.unsigned_abs() * per_second / 1_000_000_000
}

/// Identifies where process IDs are valid: on this machine, until its next boot, and in this PID namespace.
pub fn boot() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let numbers = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", boot.trim(), numbers.display())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_do_not_confuse() {
        let pid = Pid::from_raw(7).unwrap();
        let stat = b"7 (a) Z 1 2 (b) S 3 4 5 0 -1 4194560 1 0 0 0 10 2 300 4000 20 0 1 0 987 0 55";
        let process = parse(pid, stat).unwrap();
        assert_eq!(process, Process { pid, parent: 3, group: 4, ticks: 987, zombie: false, used: 4312, resident: 55 });
        assert_eq!(parse(pid, b"7 (short) S 3"), None);
        assert_eq!(parse(pid, b""), None);
    }

    #[test]
    fn numbers_hold_for_one_namespace() {
        let own = fs::read_link("/proc/self/ns/pid").unwrap().display().to_string();
        assert!(own.starts_with("pid:[") && boot().ends_with(&own), "{}", boot());
        assert_eq!(boot(), boot());
    }

    #[test]
    fn this_process_is_found() {
        let own = rustix::process::getpid();
        let process = look(own).unwrap();
        assert!(!process.zombie);
        assert!(all().iter().any(|other| (other.pid, other.ticks) == (process.pid, process.ticks)));
        assert!(process.ticks <= ticks());
        let since = ticks();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let started = look(Pid::from_child(&child)).unwrap().ticks;
        assert!((since..=ticks()).contains(&started), "{started} is not after {since}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
