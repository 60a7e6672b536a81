//! How many Pods can run at the same time on this machine: as many as the Jobs ask for, up to what it can bear.

use rustix::process::{Resource, getrlimit};
use serde_json::Value;

use super::input::check::CheckedObjects;

/// Fewer are always accepted: a small machine runs them more slowly.
const ALWAYS: u64 = 250;
/// Processes and threads that other programs of this user, and the rest of the machine, are left with.
const SPARE_PROCESSES: u64 = 1_000;
/// What a small process and its Pod use at least.
const MEMORY_PER_POD: u64 = 2 << 20;
/// The open files that the shim needs for a Pod.
const FILES_PER_POD: u64 = 8;

/// What the machine can bear, and what limits it.
#[derive(Debug, PartialEq, Eq)]
pub struct Bearable {
    pub pods: u64,
    limit: String,
}

/// The parallelism of all Jobs together. The parts of a list run as one Job.
pub fn asked_for(wanted: &CheckedObjects) -> u64 {
    let jobs = || wanted.objects.iter().filter(|checked| checked.document.is_job());
    let parallelism = |job: &Value| job["spec"]["parallelism"].as_u64().unwrap_or(1);
    let is_list = wanted.objects.iter().any(|checked| checked.document.is_list());
    let all = jobs()
        .map(|checked| parallelism(if checked.made.is_null() { &checked.document.object } else { &checked.made }));
    if is_list { all.max().unwrap_or(0) } else { all.sum() }
}

pub fn bearable() -> Bearable {
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let memory = std::fs::read_to_string("/proc/meminfo").ok();
    let memory = memory.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix("MemTotal:")));
    let memory = memory.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    least(
        getrlimit(Resource::Nproc).current,
        number("/proc/sys/kernel/pid_max"),
        getrlimit(Resource::Nofile).maximum,
        memory.map(|kib| kib << 10),
    )
}

/// The smallest of the limits that there are.
fn least(processes: Option<u64>, pids: Option<u64>, files: Option<u64>, memory: Option<u64>) -> Bearable {
    let limits = [
        processes.map(|most| (most.saturating_sub(SPARE_PROCESSES), format!("ulimit -u is {most}"))),
        pids.map(|most| (most.saturating_sub(SPARE_PROCESSES), format!("kernel.pid_max is {most}"))),
        files.map(|most| (most / FILES_PER_POD, format!("ulimit -Hn is {most}"))),
        memory.map(|bytes| (bytes / MEMORY_PER_POD, format!("the machine has {} MiB of memory", bytes >> 20))),
    ];
    let least = limits.into_iter().flatten().min_by_key(|(pods, _)| *pods);
    let (pods, limit) = least.unwrap_or((u64::from(u32::MAX), "no limit is known".to_owned()));
    Bearable { pods: pods.max(ALWAYS), limit }
}

impl Bearable {
    pub fn note(&self, asked: u64) -> String {
        format!("{} Pods run at a time, not the {asked} that the parallelism asks for: {}", self.pods, self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_counts_and_is_named() {
        let check = |limits: [Option<u64>; 4], pods: u64, why: &str| {
            let found = least(limits[0], limits[1], limits[2], limits[3]);
            assert_eq!((found.pods, found.limit.as_str()), (pods, why));
        };
        let much = Some(1 << 40);
        check([Some(3_000), much, much, much], 2_000, "ulimit -u is 3000");
        check([much, Some(32_768), much, much], 31_768, "kernel.pid_max is 32768");
        check([much, much, Some(4_096), much], 512, "ulimit -Hn is 4096");
        check([much, much, much, Some(4 << 30)], 2_048, "the machine has 4096 MiB of memory");
        check([Some(100), much, much, much], 250, "ulimit -u is 100");
        let note = least(Some(3_000), None, None, None).note(5_000);
        assert_eq!(note, "2000 Pods run at a time, not the 5000 that the parallelism asks for: ulimit -u is 3000");
    }
}
