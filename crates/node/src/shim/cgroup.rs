//! Control groups: limits, and a way to end all processes of an attempt whatever they do to their environment.
//!
//! Used if the machine has cgroups v2 and permits creating groups below the shim's own. Otherwise processes run in the
//! same way, but without limits; the user is told once.
//!
//! The shim itself is in a group of its own, and so is everything that it starts: if it is killed, the next one kills what
//! is in that group. This costs a container nothing, which a group for each would not.
//!
//! ```text
//! HOME                       the group in which the node was started
//!     tally-DEVICE-INODE     the groups of one node; the numbers are those of its root directory
//!         shim-PID           the shim, and containers without limits
//!         UID.NAME.NUMBER    an attempt with limits
//! ```

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::layout::Layout;

/// The period of the CPU scheduler, in microseconds: 100 ms, the default of the kernel.
const PERIOD: u64 = 100_000;
/// The kernel refuses a smaller quota.
const LEAST_QUOTA: u64 = 1_000;
/// How names of groups begin.
const PREFIX: &str = "tally-";
/// The group for the node itself where its own has to be free of processes.
const ASIDE: &str = "tally";
/// How long to wait until killed processes are gone.
const KILL_FOR: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Cgroups {
    /// The parent of all groups of this node.
    tree: PathBuf,
    cpu: bool,
    memory: bool,
}

impl Cgroups {
    /// `home` is the group in which the node was started; `name` is different for every root directory. The error says why
    /// control groups cannot be used.
    pub fn new(home: &Path, name: &str) -> Result<Self, String> {
        let tree = make_tree(home, name)?;
        // A group that contains processes cannot delegate controllers, except the root group. So if no other process is
        // in our group, we move into a child group.
        for controller in ["cpu", "memory"] {
            if has(home, controller) && enable(home, controller).is_err() {
                step_aside(home);
                let _ = enable(home, controller);
            }
            let _ = enable(&tree, controller);
        }
        let shared = fs::read_to_string(tree.join("cgroup.subtree_control")).unwrap_or_default();
        let shares = |controller| shared.split_ascii_whitespace().any(|word| word == controller);
        Ok(Self { cpu: shares("cpu"), memory: shares("memory"), tree })
    }

    /// The limits that cannot be applied.
    pub fn missing(&self) -> Vec<&'static str> {
        [("cpu", self.cpu), ("memory", self.memory)].iter().filter(|(_, there)| !there).map(|(name, _)| *name).collect()
    }

    /// Creates a group for one attempt, with its limits.
    pub fn make(&self, name: &str, cpu: Option<u64>, memory: Option<u64>) -> io::Result<PathBuf> {
        let dir = self.tree.join(name);
        fs::create_dir(&dir)?;
        let limits = || -> io::Result<()> {
            if let Some(cpu) = cpu.filter(|_| self.cpu) {
                fs::write(dir.join("cpu.max"), cpu_max(cpu))?;
            }
            if let Some(memory) = memory.filter(|_| self.memory) {
                fs::write(dir.join("memory.max"), memory.to_string())?;
                // On an OOM kill all processes of a container are killed, and none uses swap. Not every kernel has
                // these files.
                let _ = fs::write(dir.join("memory.oom.group"), "1");
                let _ = fs::write(dir.join("memory.swap.max"), "0");
            }
            Ok(())
        };
        limits().inspect_err(|_| remove(&dir))?;
        Ok(dir)
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.tree);
    }
}

/// The group of a shim and of everything that it starts.
#[derive(Debug)]
pub struct TrackingGroup {
    home: PathBuf,
    tree: PathBuf,
    group: PathBuf,
    /// The file that has the path.
    record: PathBuf,
}

impl TrackingGroup {
    /// Ends what a killed shim of the same directory has left, and moves this process to a group of its own. None: this
    /// machine has no groups, or does not permit them.
    pub fn enter(layout: &Layout) -> Option<Self> {
        end_left_behind(layout);
        let home = home().ok()?;
        let tree = make_tree(&home, &name(layout)).ok()?;
        let group = tree.join(format!("shim-{}", rustix::process::getpid().as_raw_nonzero()));
        let entered = fs::create_dir(&group)
            // Before the group has a process, so that the next shim finds it.
            .and_then(|()| fs::write(layout.cgroup(), tree.as_os_str().as_encoded_bytes()))
            .and_then(|()| join(&group));
        let this = Self { home, tree, group, record: layout.cgroup() };
        // What was made before an error is removed with the value.
        entered.ok().map(|()| this)
    }

    /// The group in which the node was started.
    pub fn home(&self) -> &Path {
        &self.home
    }
}

impl Drop for TrackingGroup {
    /// The group is removed, which this process has to leave first.
    fn drop(&mut self) {
        let _ = join(&self.home).or_else(|_| join(&self.home.join(ASIDE)));
        remove(&self.group);
        // A process that does not end keeps its group. Then the next shim finds it, too.
        if !self.group.exists() && (fs::remove_dir(&self.tree).is_ok() || !self.tree.exists()) {
            let _ = fs::remove_file(&self.record);
        }
    }
}

/// Kills everything that an earlier shim of this directory has started. The caller has the lock of the directory, or has
/// seen that no process has it.
pub fn end_left_behind(layout: &Layout) {
    let Ok(tree) = fs::read(layout.cgroup()) else { return };
    let tree = PathBuf::from(OsString::from_vec(tree));
    let is_tree = tree.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()));
    // A user who started this node from within a container of the same node is not killed.
    if !is_tree || home().is_ok_and(|own| own.starts_with(&tree)) {
        return;
    }
    let until = Instant::now() + KILL_FOR;
    while tree.exists() && !is_empty(&tree) && Instant::now() < until {
        kill(&tree);
        std::thread::sleep(Duration::from_millis(1));
    }
    for entry in fs::read_dir(&tree).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()) {
        remove(&entry.path());
    }
    remove(&tree);
    if !tree.exists() {
        let _ = fs::remove_file(layout.cgroup());
    }
}

/// The name of the groups of a node.
pub fn name(layout: &Layout) -> String {
    let root = fs::metadata(layout.root());
    root.map_or_else(|_| format!("{PREFIX}node"), |root| format!("{PREFIX}{}-{}", root.dev(), root.ino()))
}

fn make_tree(home: &Path, name: &str) -> Result<PathBuf, String> {
    let tree = home.join(name);
    match fs::create_dir(&tree) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(format!("no control group can be made in {}: {error}", home.display()));
        }
        _ => {}
    }
    if !(home.join("cgroup.kill").exists() || tree.join("cgroup.kill").exists()) {
        let _ = fs::remove_dir(&tree);
        return Err("control groups of this kernel cannot be killed".to_owned());
    }
    Ok(tree)
}

/// The control group of this process. Err: why control groups cannot be used.
pub fn home() -> Result<PathBuf, String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
    let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
    Ok(home_in(&mounts, &own).ok_or("this machine has no control groups of version 2")?)
}

fn home_in(mounts: &str, own: &str) -> Option<PathBuf> {
    let mount = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        (after.split(' ').next()? == "cgroup2").then(|| before.split(' ').nth(4))?
    })?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let home = Path::new(mount).join(path);
    home.is_dir().then_some(home)
}

fn has(dir: &Path, controller: &str) -> bool {
    let there = fs::read_to_string(dir.join("cgroup.controllers")).unwrap_or_default();
    there.split_ascii_whitespace().any(|word| word == controller)
}

fn enable(dir: &Path, controller: &str) -> io::Result<()> {
    fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"))
}

/// Only if no other process is in this group: other processes must not be moved.
fn step_aside(home: &Path) {
    let own = rustix::process::getpid();
    let ours = [Some(own), rustix::process::getppid()].map(|pid| pid.map_or(0, |pid| pid.as_raw_nonzero().get()));
    let members = fs::read_to_string(home.join("cgroup.procs")).unwrap_or_default();
    let members: Vec<i32> = members.lines().filter_map(|pid| pid.parse().ok()).collect();
    let aside = home.join(ASIDE);
    if members.iter().all(|pid| ours.contains(pid)) && (aside.is_dir() || fs::create_dir(&aside).is_ok()) {
        for pid in members {
            let _ = fs::write(aside.join("cgroup.procs"), pid.to_string());
        }
    }
}

fn cpu_max(thousandths: u64) -> String {
    let quota = thousandths.saturating_mul(PERIOD) / 1000;
    format!("{} {PERIOD}", quota.max(LEAST_QUOTA))
}

/// Moves this process into the group; its children start there.
pub fn join(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("cgroup.procs"), "0")
}

pub fn kill(dir: &Path) {
    let _ = fs::write(dir.join("cgroup.kill"), "1");
}

pub fn is_empty(dir: &Path) -> bool {
    fs::read_to_string(dir.join("cgroup.events")).is_ok_and(|events| counter(&events, "populated") == Some(0))
        || !dir.exists()
}

pub fn out_of_memory(dir: &Path) -> bool {
    fs::read_to_string(dir.join("memory.events")).is_ok_and(|events| counter(&events, "oom_kill").unwrap_or(0) > 0)
}

pub fn remove(dir: &Path) {
    let _ = fs::remove_dir(dir);
}

fn counter(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_counters_as_the_kernel_writes_them() {
        for (thousandths, text) in
            [(1000, "100000 100000"), (250, "25000 100000"), (1, "1000 100000"), (3500, "350000 100000")]
        {
            assert_eq!(cpu_max(thousandths), text);
        }
        let events = "low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 0\n";
        assert_eq!(counter(events, "oom_kill"), Some(1));
        assert_eq!(counter(events, "oom"), Some(2));
        assert_eq!(counter(events, "populated"), None);
    }

    #[test]
    fn the_own_group_is_found_in_both_layouts() {
        let hybrid = "30 25 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n\
                      31 30 0:27 / /sys shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(home_in(hybrid, "4:memory:/\n0::/\n"), Some(PathBuf::from("/sys/")));
        assert_eq!(home_in(hybrid, "0::/no/such/group\n"), None);
        assert_eq!(home_in("30 25 0:26 / /x rw - tmpfs tmpfs rw\n", "0::/\n"), None);
    }
}
