//! What the processes of containers use now: processors and memory, for `kubectl top`.
//!
//! Nothing is measured unless it is asked for. The use of processors is an average between two moments. The earlier one is
//! that of the last question, if there was one a short time ago; if not, the first question waits for a second. All who ask
//! within [`FRESH`] get the same figures, so that many questions cost as much as one.
//!
//! Every process of a Pod descends from the shim: only these are looked at. A process
//! belongs to the attempt that its environment names, or else to that of its parent; those above it (a launcher, the first
//! process of a PID namespace) do work for it, and their processor time counts, but not their memory. What a control group
//! has counted is used in place of the sum, where the attempt has such a group.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use compact_str::CompactString;
use tally_core::ids::PodUid;
use tally_core::time::Timestamp;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::port::Attempt;
use crate::shim::layout::Layout;
use crate::shim::processes::{self, Process};
use crate::shim::{self, cgroup};

/// The shortest time for an average. Containers that have run for less have no figures yet.
const LEAST_WINDOW: Duration = Duration::from_secs(1);
/// The longest one: a user who asks after a long time wants to know about now.
const LONGEST_WINDOW: Duration = Duration::from_secs(60);
/// Figures of this age are given again.
const FRESH: Duration = Duration::from_secs(2);

const NANOS: u64 = 1_000_000_000;

/// What is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of processors, in billionths of one.
    pub cpu: u64,
    /// In bytes.
    pub memory: u64,
    /// The time over which the use of processors is an average.
    pub window: Duration,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageReport {
    pub at: Timestamp,
    /// All processes of the machine.
    pub machine: Option<Usage>,
    pub attempts: HashMap<Attempt, Usage>,
}

/// Measures when it is asked.
#[derive(Debug)]
pub struct UsageMeter {
    root: PathBuf,
    /// Held while it measures: all others who ask wait for the result.
    last: Mutex<Option<Measured>>,
}

#[derive(Debug)]
struct Measured {
    sample: Sample,
    report: Arc<UsageReport>,
}

/// What had been used at a moment.
#[derive(Clone, Debug)]
struct Sample {
    taken: Instant,
    at: Timestamp,
    /// Processor time in nanoseconds since the machine started, and memory in bytes.
    machine: Option<(u64, u64)>,
    attempts: HashMap<Attempt, AttemptSample>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AttemptSample {
    /// Processor time in nanoseconds.
    cpu: u64,
    memory: u64,
    /// Since when its first process has been running.
    age: Duration,
}

impl UsageMeter {
    /// `root`: the node's directory.
    pub fn new(root: PathBuf) -> Self {
        Self { root, last: Mutex::default() }
    }

    /// What is used now. Takes a second, if there was no question a short time ago.
    pub async fn read(&self) -> Arc<UsageReport> {
        let mut last = self.last.lock().await;
        let age = last.as_ref().map(|last| last.sample.taken.elapsed());
        if let (Some(measured), Some(true)) = (&*last, age.map(|age| age < FRESH)) {
            return measured.report.clone();
        }
        let before = match last.take() {
            Some(measured) if age.is_some_and(|age| age <= LONGEST_WINDOW) => measured.sample,
            _ => {
                let first = self.sample().await;
                sleep(LEAST_WINDOW).await;
                first
            }
        };
        let sample = self.sample().await;
        let report = Arc::new(report(&before, &sample));
        *last = Some(Measured { sample, report: report.clone() });
        report
    }

    async fn sample(&self) -> Sample {
        let root = self.root.clone();
        let taken = tokio::task::spawn_blocking(move || sample(&root)).await;
        taken.unwrap_or_else(|_| Sample { taken: Instant::now(), at: now(), machine: None, attempts: HashMap::new() })
    }
}

fn report(before: &Sample, after: &Sample) -> UsageReport {
    let window = after.taken.duration_since(before.taken);
    let machine = before.machine.zip(after.machine).map(|((earlier, _), (later, memory))| Usage {
        cpu: rate(later.saturating_sub(earlier), window),
        memory,
        window,
    });
    let attempts = after.attempts.iter().filter_map(|(attempt, now)| {
        // One that is new has used nothing before it started.
        let (earlier, window) = match before.attempts.get(attempt) {
            Some(before) => (before.cpu, window),
            None => (0, now.age),
        };
        let usage = Usage { cpu: rate(now.cpu.saturating_sub(earlier), window), memory: now.memory, window };
        (window >= LEAST_WINDOW).then(|| (attempt.clone(), usage))
    });
    UsageReport { at: after.at, machine, attempts: attempts.collect() }
}

/// In billionths of a processor.
fn rate(nanos: u64, window: Duration) -> u64 {
    let millis = window.as_millis().max(1);
    u64::try_from(u128::from(nanos) * 1_000 / millis).unwrap_or(u64::MAX)
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

fn sample(root: &Path) -> Sample {
    let root = fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
    let layout = Layout::new(&root);
    // Where no control group can be made, there is a guard between this process and the shim.
    let shim = fs::read_to_string(layout.lock()).ok().and_then(|pid| pid.trim().parse().ok()).unwrap_or(0);
    let unit = Unit::of_this_machine();
    let all = processes::all();
    let marked = |process: &Process| attempt(&processes::marked(process.pid, &root)?);
    let mut attempts = attribute(&all, shim, marked, is_launcher, unit);
    for (attempt, used) in &mut attempts {
        let groups = cgroup::directories_of(&layout, attempt);
        used.cpu = groups.iter().find_map(|group| group_cpu(group)).unwrap_or(used.cpu);
        used.memory = groups.iter().find_map(|group| group_memory(group)).unwrap_or(used.memory);
    }
    Sample { taken: Instant::now(), at: now(), machine: machine(unit), attempts }
}

/// The units of the kernel's figures.
#[derive(Clone, Copy, Debug)]
struct Unit {
    ticks_per_second: u64,
    page: u64,
    /// Since boot.
    now: u64,
}

impl Unit {
    fn of_this_machine() -> Self {
        Self {
            ticks_per_second: rustix::param::clock_ticks_per_second().max(1),
            page: rustix::param::page_size() as u64,
            now: processes::ticks(),
        }
    }

    fn nanos(self, ticks: u64) -> u64 {
        ticks.saturating_mul(NANOS / self.ticks_per_second)
    }
}

/// The attempt of a mark in the environment of a process.
fn attempt(mark: &str) -> Option<Attempt> {
    let mut parts = mark.split('/');
    let (pod, container, number) = (parts.next()?, parts.next()?, parts.next()?.parse().ok()?);
    Some(Attempt { pod: PodUid::new(pod), container: CompactString::new(container), number })
}

/// Whether it is a launcher, or the first process of a PID namespace, which is made by one.
fn is_launcher(process: &Process) -> bool {
    let line = fs::read(format!("/proc/{}/cmdline", id(process))).unwrap_or_default();
    let mut words = line.split(|byte| *byte == 0).skip(1);
    words.next() == Some(shim::COMMAND.as_bytes()) && words.next() == Some(shim::LAUNCH.as_bytes())
}

/// What the descendants of the shim use, by the attempt to which they belong.
fn attribute(
    all: &[Process],
    shim: i32,
    marked: impl Fn(&Process) -> Option<Attempt>,
    is_launcher: impl Fn(&Process) -> bool,
    unit: Unit,
) -> HashMap<Attempt, AttemptSample> {
    let mut children: HashMap<i32, Vec<&Process>> = HashMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found: HashMap<Attempt, AttemptSample> = HashMap::new();
    for top in children.get(&shim).into_iter().flatten() {
        // All below one child of the shim belong to one attempt: that of the first which has a mark.
        let (mut of_container, mut above) = (Vec::new(), Vec::new());
        let mut owner = None;
        let mut open = vec![(*top, false)];
        while let Some((process, is_below)) = open.pop() {
            let is_inside = is_below || !is_launcher(process);
            owner = owner.or_else(|| marked(process));
            if is_inside {
                of_container.push(process)
            } else {
                above.push(process)
            }
            open.extend(children.get(&id(process)).into_iter().flatten().map(|child| (*child, is_inside)));
        }
        let Some(owner) = owner else { continue };
        let used = found.entry(owner).or_default();
        for process in of_container.iter().chain(&above) {
            used.cpu += unit.nanos(process.used);
            let ticks = unit.now.saturating_sub(process.ticks);
            used.age = used.age.max(Duration::from_nanos(unit.nanos(ticks)));
        }
        used.memory += of_container.iter().map(|process| process.resident * unit.page).sum::<u64>();
    }
    found
}

fn id(process: &Process) -> i32 {
    process.pid.as_raw_nonzero().get()
}

/// The processor time in nanoseconds that a control group has counted.
fn group_cpu(group: &Path) -> Option<u64> {
    if let Ok(text) = fs::read_to_string(group.join("cpu.stat"))
        && let Some(micros) = field(&text, "usage_usec")
    {
        return Some(micros.saturating_mul(1_000));
    }
    fs::read_to_string(group.join("cpuacct.usage")).ok()?.trim().parse().ok()
}

/// The memory of a control group, without files that were read and not used since.
fn group_memory(group: &Path) -> Option<u64> {
    let files = [("memory.current", "inactive_file"), ("memory.usage_in_bytes", "total_inactive_file")];
    files.into_iter().find_map(|(file, unused)| {
        let all: u64 = fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()?;
        let unused = fs::read_to_string(group.join("memory.stat")).ok().and_then(|text| field(&text, unused));
        Some(all.saturating_sub(unused.unwrap_or_default()))
    })
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

fn machine(unit: Unit) -> Option<(u64, u64)> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let memory = fs::read_to_string("/proc/meminfo").ok()?;
    Some((unit.nanos(busy(&stat)?), used_memory(&memory)?))
}

/// The time of all processors that was not idle, in clock ticks.
fn busy(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
    // user, nice, system, then idle and waiting, irq, softirq, steal. Guests are part of the first two.
    let at = |index: usize| fields.get(index).copied().unwrap_or_default();
    Some(at(0) + at(1) + at(2) + at(5) + at(6))
}

/// The memory that programs could not get, in bytes.
fn used_memory(text: &str) -> Option<u64> {
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    Some(kib("MemTotal:")?.saturating_sub(kib("MemAvailable:")?) << 10)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rustix::process::Pid;

    use super::*;

    const UNIT: Unit = Unit { ticks_per_second: 100, page: 4096, now: 1_000 };

    fn process(pid: i32, parent: i32, used: u64, resident: u64) -> Process {
        let pid = Pid::from_raw(pid).unwrap();
        Process { pid, parent, group: 0, ticks: 700, zombie: false, used, resident }
    }

    fn named(container: &str) -> Attempt {
        Attempt { pod: PodUid::from_u128(7), container: container.into(), number: 2 }
    }

    /// TOP-3
    #[test]
    fn processes_belong_to_the_attempt_that_they_or_those_above_are_marked_with() {
        // 1 is Tally, 2 its shim. 10: a launcher, 11 the first process of a namespace, 12 and 13 the container. 20: a
        // container without a launcher, and 21 its child, which has removed the mark. 30 has no mark at all, 40 is no
        // process of the node.
        let all = [
            process(2, 1, 999, 999),
            process(10, 2, 1, 1000),
            process(11, 10, 2, 1000),
            process(12, 11, 4, 10),
            process(13, 12, 8, 5),
            process(20, 2, 16, 7),
            process(21, 20, 32, 3),
            process(22, 2, 64, 1),
            process(30, 2, 999, 999),
            process(40, 5, 999, 999),
        ];
        let marked = |process: &Process| match id(process) {
            10..=13 => Some(named("a")),
            20 | 22 | 40 => Some(named("b")),
            _ => None,
        };
        let found = attribute(&all, 2, marked, |process| matches!(id(process), 10 | 11), UNIT);
        let age = Duration::from_secs(3);
        let expected = [
            (named("a"), AttemptSample { cpu: 15 * NANOS / 100, memory: 15 * 4096, age }),
            (named("b"), AttemptSample { cpu: 112 * NANOS / 100, memory: 11 * 4096, age }),
        ];
        assert_eq!(found, HashMap::from(expected));
    }

    fn at(taken: Instant, seconds: u64, attempts: &[(&str, AttemptSample)]) -> Sample {
        let attempts = attempts.iter().map(|(name, sample)| (named(name), *sample)).collect();
        let machine = Some((seconds * NANOS, 5));
        Sample { taken: taken + Duration::from_secs(seconds), at: Timestamp::from_seconds(0), machine, attempts }
    }

    /// TOP-2
    #[test]
    fn figures_are_averages_and_new_containers_have_none() {
        let start = Instant::now();
        let used = |cpu: u64, age: u64| AttemptSample { cpu, memory: 9, age: Duration::from_millis(age) };
        let before = at(start, 10, &[("a", used(NANOS, 5_000)), ("gone", used(1, 1)), ("back", used(500, 9_000))]);
        let after = at(
            start,
            14,
            &[
                ("a", used(3 * NANOS, 9_000)),
                ("new", used(NANOS, 2_000)),
                ("newest", used(NANOS, 999)),
                ("back", used(400, 13_000)),
            ],
        );
        let report = report(&before, &after);
        let usage = |cpu, window| Usage { cpu, memory: 9, window: Duration::from_secs(window) };
        let expected = [
            (named("a"), usage(NANOS / 2, 4)),
            (named("new"), usage(NANOS / 2, 2)),
            // A process that ended took its time with it.
            (named("back"), usage(0, 4)),
        ];
        assert_eq!(report.attempts, HashMap::from(expected));
        assert_eq!(report.machine, Some(Usage { cpu: NANOS, memory: 5, window: Duration::from_secs(4) }));
    }

    #[test]
    fn control_groups_of_both_versions_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path();
        assert_eq!((group_cpu(group), group_memory(group)), (None, None));
        fs::write(group.join("cpuacct.usage"), "77\n").unwrap();
        fs::write(group.join("memory.usage_in_bytes"), "4096\n").unwrap();
        assert_eq!((group_cpu(group), group_memory(group)), (Some(77), Some(4096)));
        fs::write(group.join("memory.stat"), "inactive_file 1\ntotal_inactive_file 96\n").unwrap();
        assert_eq!(group_memory(group), Some(4000));
        // A group of version 1 has a file of this name, too.
        fs::write(group.join("cpu.stat"), "nr_periods 0\n").unwrap();
        assert_eq!(group_cpu(group), Some(77));
        fs::write(group.join("cpu.stat"), "usage_usec 5\nuser_usec 3\n").unwrap();
        fs::write(group.join("memory.current"), "1001\n").unwrap();
        assert_eq!((group_cpu(group), group_memory(group)), (Some(5_000), Some(1000)));
    }

    #[test]
    fn the_machine_is_what_its_files_say() {
        assert_eq!(busy("cpu  1 2 4 800 1600 8 16 99\ncpu0 1 2 3\n"), Some(31));
        assert_eq!(busy("intr 1\n"), None);
        assert_eq!(used_memory("MemTotal:  100 kB\nMemFree: 1 kB\nMemAvailable:   40 kB\n"), Some(60 << 10));
        assert!(machine(Unit::of_this_machine()).is_some_and(|(cpu, memory)| cpu > 0 && memory > 0));
    }

    #[tokio::test]
    async fn a_second_question_soon_after_the_first_gets_the_same_answer() {
        let root = tempfile::tempdir().unwrap();
        let meter = UsageMeter::new(root.path().to_owned());
        let (first, second) = tokio::join!(meter.read(), meter.read());
        assert!(Arc::ptr_eq(&first, &second));
        assert!(first.machine.is_some_and(|machine| machine.window >= LEAST_WINDOW));
        assert!(first.attempts.is_empty());
    }
}
