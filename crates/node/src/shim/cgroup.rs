//! Control groups: limits, and a way to end all processes of an attempt whatever they do to their environment.
//!
//! Version 2 is used for what it can limit here, and version 1 for the rest; a machine may have both, or a part of one.
//! What cannot be limited is said (`Limits::unenforced`), and processes run in the same way.
//!
//! The shim itself is in a group of its own, and so is everything that it starts: if it is killed, the next one kills what
//! is in that group. This costs a container nothing, which a group for each would not. Where no group can be made, the shim
//! has a guard (`guard.rs`).
//!
//! ```text
//! HOME                       the group in which the node was started, in each hierarchy that is used
//!     tally-DEVICE-INODE     the groups of one node; the numbers are those of its root directory
//!         shim-PID           the shim, and containers without limits; in one hierarchy only
//!         UID                the containers with limits of one Pod, and the limit of its processes
//!             NAME.NUMBER    an attempt with limits
//! ```

mod hierarchy;

use std::cell::{Cell, OnceCell};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::Access;

use hierarchy::{Controller, Home, Homes, Version};
use tally_core::ids::PodUid;

use super::layout::Layout;
use crate::port::{Attempt, ResourceLimits};

pub use hierarchy::join;

/// The period of the CPU scheduler, in microseconds: 100 ms, the default of the kernel.
const PERIOD: u64 = 100_000;
/// The kernel refuses a smaller quota.
const LEAST_QUOTA: u64 = 1_000;
/// The shares of one CPU, as the kubelet and version 1 count them, and the bounds of the kernel.
const SHARES_OF_A_CPU: u64 = 1024;
const LEAST_SHARES: u64 = 2;
const MOST_SHARES: u64 = 262_144;
/// How names of groups begin.
const PREFIX: &str = "tally-";
/// The group for the node itself where its own has to be free of processes.
const ASIDE: &str = "tally";
/// How long to wait until killed processes are gone.
const KILL_FOR: Duration = Duration::from_secs(10);

/// The groups of a node.
#[derive(Debug)]
pub struct Cgroups {
    homes: Homes,
    /// Different for every root directory.
    name: String,
    /// The file that has the paths of the trees, for the next shim.
    record: PathBuf,
    /// Where this shim was before it entered a group of its own, in which everything is that it starts. None: this machine
    /// permits none.
    tracking: Option<Home>,
    limits: OnceCell<Limits>,
    left: Cell<bool>,
}

/// What can be limited here, and where.
#[derive(Debug)]
pub struct Limits {
    trees: Vec<Tree>,
    /// Why a controller cannot be used.
    missing: Vec<(Controller, String)>,
}

/// The groups of this node in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tree {
    version: Version,
    dir: PathBuf,
    controllers: Vec<Controller>,
}

/// The groups of one attempt, in all hierarchies that are used for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptGroups {
    /// The first is that which processes are killed by.
    dirs: Vec<PathBuf>,
}

impl Cgroups {
    /// Ends what a killed shim of the same directory has left, and moves this process to a group of its own, if this machine
    /// permits that.
    pub fn enter(layout: &Layout) -> Self {
        end_left_behind(layout);
        let (homes, name, record) = (Homes::own(), name(layout), layout.cgroup());
        let pids = homes.v1.iter().find(|(controller, _)| *controller == Controller::Pids).map(|(_, home)| home);
        let tracking = homes.v2.iter().chain(pids).find(|home| enter(home, &name, &record).is_ok()).cloned();
        Self { homes, name, record, tracking, limits: OnceCell::new(), left: Cell::new(false) }
    }

    /// What can be limited here. Groups are made with the first call.
    pub fn limits(&self) -> &Limits {
        self.limits.get_or_init(|| Limits::find(&self.homes, &self.name, &self.record))
    }

    /// This process leaves its group, and all groups are removed. No container may be running.
    pub fn leave(&self) {
        // Once: the next shim may use the same groups by now.
        if self.left.replace(true) {
            return;
        }
        if let Some(home) = &self.tracking {
            let _ = join(&home.dir).or_else(|_| join(&home.dir.join(ASIDE)));
        }
        remove_trees(&self.record);
        // The record may be gone with the node's directory.
        for home in self.homes.all() {
            hierarchy::remove(&home.dir.join(&self.name));
        }
    }
}

impl Drop for Cgroups {
    /// The shim could not start.
    fn drop(&mut self) {
        self.leave();
    }
}

/// Whether this user may make a group.
pub fn may_be_made() -> bool {
    Homes::own().all().any(|home| permitted(home).is_ok())
}

fn permitted(home: &Home) -> io::Result<()> {
    Ok(rustix::fs::access(&home.dir, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Moves this process to a group of its own.
fn enter(home: &Home, name: &str, record: &Path) -> io::Result<()> {
    let tree = home.dir.join(name);
    let group = tree.join(format!("shim-{}", rustix::process::getpid().as_raw_nonzero()));
    // On record before the group has a process, so that the next shim finds it.
    let entered = note(record, &tree)
        .and_then(|()| hierarchy::make(&tree))
        .and_then(|()| fs::create_dir(&group))
        .and_then(|()| join(&group));
    entered.inspect_err(|_| remove_trees(record))
}

impl Limits {
    fn find(homes: &Homes, name: &str, record: &Path) -> Self {
        let mut this = Self { trees: Vec::new(), missing: Vec::new() };
        let note_and_make = |home: &Home| {
            let dir = home.dir.join(name);
            let made = match dir.is_dir() {
                true => Ok(()),
                // Asked first: only what is made is on record.
                false => permitted(home).and_then(|()| note(record, &dir)).and_then(|()| hierarchy::make(&dir)),
            };
            made.map(|()| dir)
                .map_err(|error| format!("no control group can be made in {}: {error}", home.dir.display()))
        };
        let mut refused = None;
        if let Some(home) = &homes.v2 {
            match note_and_make(home) {
                Ok(dir) => {
                    let controllers = delegate(&home.dir, &dir);
                    this.trees.push(Tree { version: Version::V2, dir, controllers });
                }
                Err(why) => refused = Some(why),
            }
        }
        // Processes are killed by the first tree: best by one in which none can start others.
        for controller in [Controller::Pids, Controller::Cpu, Controller::Memory] {
            if this.has(controller) {
                continue;
            }
            let home = homes.v1.iter().find(|(other, _)| *other == controller).map(|(_, home)| home);
            let made = home.map(|home| {
                note_and_make(home).and_then(|dir| match dir.join(limit_file(Version::V1, controller)).exists() {
                    true => Ok(dir),
                    false => Err(format!("the kernel has no limits of {}", controller.name())),
                })
            });
            match made {
                // Controllers may share a hierarchy.
                Some(Ok(dir)) => match this.trees.iter_mut().find(|tree| tree.dir == dir) {
                    Some(tree) => tree.controllers.push(controller),
                    None => this.trees.push(Tree { version: Version::V1, dir, controllers: vec![controller] }),
                },
                Some(Err(why)) => this.missing.push((controller, why)),
                None => {
                    let none = match homes.v2 {
                        None => "this machine has no control groups",
                        Some(_) => "its controller is not available to this process",
                    };
                    this.missing.push((controller, refused.clone().unwrap_or_else(|| none.to_owned())));
                }
            }
        }
        // All containers with a group share the machine with other processes as if they had all its CPUs.
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
        for tree in this.trees.iter().filter(|tree| tree.has(Controller::Cpu)) {
            tree.set_shares(&tree.dir, cpus.saturating_mul(1000));
        }
        this
    }

    fn has(&self, controller: Controller) -> bool {
        self.trees.iter().any(|tree| tree.has(controller))
    }

    /// No group can be made, or none that limits anything.
    pub fn are_impossible(&self) -> bool {
        self.missing.len() == Controller::ALL.len()
    }

    /// Which of these limits are not enforced here, and why. None: all are.
    pub fn unenforced(&self, limits: &ResourceLimits) -> Option<String> {
        let wanted = [(Controller::Cpu, limits.cpu), (Controller::Memory, limits.memory)];
        let wanted = wanted.iter().filter(|(_, limit)| limit.is_some()).map(|(controller, _)| *controller);
        let missing: Vec<_> = wanted.filter_map(|wanted| self.missing.iter().find(|(one, _)| *one == wanted)).collect();
        let names: Vec<_> = missing.iter().map(|(controller, _)| controller.name()).collect();
        let (_, why) = missing.first()?;
        Some(format!("limits of {} are not enforced on this node: {why}", names.join(" and ")))
    }

    /// Why the number of processes cannot be limited.
    pub fn no_pids(&self) -> Option<&str> {
        self.missing.iter().find(|(controller, _)| *controller == Controller::Pids).map(|(_, why)| why.as_str())
    }

    /// Creates the groups of one attempt, with its limits. `pids`: the limit of processes and threads of its Pod.
    pub fn make(&self, attempt: &Attempt, limits: &ResourceLimits, pids: Option<u64>) -> io::Result<AttemptGroups> {
        let mut groups = AttemptGroups { dirs: Vec::new() };
        let made = self.trees.iter().filter(|tree| tree.is_used(limits)).try_for_each(|tree| {
            let dir =
                tree.make_pod(&attempt.pod, limits, pids)?.join(format!("{}.{}", attempt.container, attempt.number));
            groups.dirs.push(dir.clone());
            fs::create_dir(&dir)?;
            tree.limit(&dir, limits)
        });
        match made {
            Ok(()) => Ok(groups),
            Err(error) => {
                groups.remove();
                Err(error)
            }
        }
    }
}

impl Tree {
    fn has(&self, controller: Controller) -> bool {
        self.controllers.contains(&controller)
    }

    /// A group of version 1 that limits memory is made only where memory is limited: the kernel keeps such a group as long
    /// as files that were read in it are in memory.
    fn is_used(&self, limits: &ResourceLimits) -> bool {
        self.version == Version::V2 || limits.memory.is_some() || self.controllers != [Controller::Memory]
    }

    /// The group of a Pod, which may exist already.
    fn make_pod(&self, pod: &PodUid, limits: &ResourceLimits, pids: Option<u64>) -> io::Result<PathBuf> {
        let dir = self.dir.join(pod.to_string());
        if !dir.is_dir() {
            hierarchy::make(&dir)?;
            // A group without its limit must not be found by the next container of the Pod.
            self.set_up_pod(&dir, limits, pids).inspect_err(|_| hierarchy::remove(&dir))?;
        }
        Ok(dir)
    }

    fn set_up_pod(&self, dir: &Path, limits: &ResourceLimits, pids: Option<u64>) -> io::Result<()> {
        if let Some(pids) = pids.filter(|_| self.has(Controller::Pids)) {
            fs::write(dir.join(limit_file(self.version, Controller::Pids)), pids.to_string())?;
        }
        if self.version == Version::V2 {
            for controller in self.controllers.iter().filter(|controller| **controller != Controller::Pids) {
                hierarchy::enable(dir, *controller)?;
            }
        }
        self.set_shares(dir, limits.pod_cpu_request);
        Ok(())
    }

    fn limit(&self, dir: &Path, limits: &ResourceLimits) -> io::Result<()> {
        self.set_shares(dir, limits.cpu_request);
        if let Some(cpu) = limits.cpu.filter(|_| self.has(Controller::Cpu)) {
            self.set_quota(dir, cpu)?;
        }
        let Some(memory) = limits.memory.filter(|_| self.has(Controller::Memory)) else { return Ok(()) };
        fs::write(dir.join(limit_file(self.version, Controller::Memory)), memory.to_string())?;
        // No container uses swap, and with version 2 an OOM kill ends all its processes. Not every kernel has these files.
        let more: &[(&str, &str)] = match self.version {
            Version::V1 => &[("memory.memsw.limit_in_bytes", &memory.to_string())],
            Version::V2 => &[("memory.oom.group", "1"), ("memory.swap.max", "0")],
        };
        for (file, value) in more {
            let _ = fs::write(dir.join(file), value);
        }
        Ok(())
    }

    fn set_quota(&self, dir: &Path, thousandths: u64) -> io::Result<()> {
        let file = dir.join(limit_file(self.version, Controller::Cpu));
        match self.version {
            Version::V2 => fs::write(file, format!("{} {PERIOD}", quota(thousandths))),
            Version::V1 => {
                fs::write(dir.join("cpu.cfs_period_us"), PERIOD.to_string())?;
                match fs::write(file, quota(thousandths).to_string()) {
                    // The node itself has a smaller limit, which applies to all groups in its own.
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
                    outcome => outcome,
                }
            }
        }
    }

    /// What the group gets, compared with those beside it, when there is not enough for all. This is no limit: a kernel that
    /// has no shares is no reason not to start.
    fn set_shares(&self, dir: &Path, thousandths: u64) {
        let shares = shares(thousandths);
        let _ = match self.version {
            _ if !self.has(Controller::Cpu) => Ok(()),
            Version::V1 => fs::write(dir.join("cpu.shares"), shares.to_string()),
            Version::V2 => fs::write(dir.join("cpu.weight"), weight(shares).to_string()),
        };
    }
}

impl AttemptGroups {
    /// The groups that a process of the attempt joins.
    pub fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }

    pub fn kill(&self) {
        self.dirs.first().into_iter().for_each(|dir| hierarchy::kill(dir));
    }

    pub fn is_empty(&self) -> bool {
        self.dirs.iter().all(|dir| hierarchy::is_empty(dir))
    }

    pub fn out_of_memory(&self) -> bool {
        self.dirs.iter().any(|dir| hierarchy::out_of_memory(dir))
    }

    /// Removes them, and those of their Pod with the last attempt.
    pub fn remove(&self) {
        for dir in &self.dirs {
            hierarchy::remove(dir);
            let _ = dir.parent().map(fs::remove_dir);
        }
    }
}

/// Kills everything that an earlier shim of this directory has started, and removes its groups. The caller has the lock of
/// the directory, or has seen that no process has it.
pub fn end_left_behind(layout: &Layout) {
    let trees = recorded(&layout.cgroup());
    if trees.is_empty() {
        return;
    }
    // A user who started this node from within a container of the same node is not killed.
    let homes = Homes::own();
    if trees.iter().any(|tree| homes.are_within(tree)) {
        return;
    }
    let until = Instant::now() + KILL_FOR;
    let is_left = |tree: &&PathBuf| tree.exists() && !hierarchy::is_empty(tree);
    while trees.iter().any(|tree| is_left(&tree)) && Instant::now() < until {
        trees.iter().filter(is_left).for_each(|tree| hierarchy::kill(tree));
        std::thread::sleep(Duration::from_millis(1));
    }
    remove_trees(&layout.cgroup());
}

/// The directories of this attempt, in the trees that the shim has on record. Some may not exist.
pub fn directories_of(layout: &Layout, attempt: &Attempt) -> Vec<PathBuf> {
    let inside = format!("{}/{}.{}", attempt.pod, attempt.container, attempt.number);
    recorded(&layout.cgroup()).into_iter().map(|tree| tree.join(&inside)).collect()
}

fn recorded(record: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(record).unwrap_or_default();
    let is_tree =
        |tree: &PathBuf| tree.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()));
    text.lines().map(PathBuf::from).filter(is_tree).collect()
}

/// A process that does not end keeps its group. Then the next shim finds it, too.
fn remove_trees(record: &Path) {
    let trees = recorded(record);
    trees.iter().for_each(|tree| hierarchy::remove(tree));
    if trees.iter().all(|tree| !tree.exists()) {
        let _ = fs::remove_file(record);
    }
}

/// Adds a tree to the record, before it exists.
fn note(record: &Path, tree: &Path) -> io::Result<()> {
    let mut file = fs::File::options().create(true).append(true).mode(0o600).open(record)?;
    let between: &[u8] = if file.metadata()?.len() == 0 { b"" } else { b"\n" };
    file.write_all(&[between, tree.as_os_str().as_encoded_bytes()].concat())
}

fn name(layout: &Layout) -> String {
    use std::os::unix::fs::MetadataExt;
    let root = fs::metadata(layout.root());
    root.map_or_else(|_| format!("{PREFIX}node"), |root| format!("{PREFIX}{}-{}", root.dev(), root.ino()))
}

/// The controllers of version 2 that the groups of the tree can have.
fn delegate(home: &Path, tree: &Path) -> Vec<Controller> {
    // A group that contains processes cannot delegate controllers, except the root group. So if no other process is in our
    // group, we move into a child group.
    for controller in Controller::ALL {
        if hierarchy::has(home, controller) && hierarchy::enable(home, controller).is_err() {
            step_aside(home);
            let _ = hierarchy::enable(home, controller);
        }
        let _ = hierarchy::enable(tree, controller);
    }
    Controller::ALL.into_iter().filter(|controller| hierarchy::shares(tree, *controller)).collect()
}

/// Only if no other process is in this group: other processes must not be moved.
fn step_aside(home: &Path) {
    let ours = [Some(rustix::process::getpid()), rustix::process::getppid()];
    let members = hierarchy::members(home);
    let aside = home.join(ASIDE);
    if members.iter().all(|pid| ours.contains(&Some(*pid))) && hierarchy::make(&aside).is_ok() {
        for pid in members {
            let _ = fs::write(aside.join("cgroup.procs"), pid.as_raw_nonzero().to_string());
        }
    }
}

fn limit_file(version: Version, controller: Controller) -> &'static str {
    match (version, controller) {
        (Version::V1, Controller::Cpu) => "cpu.cfs_quota_us",
        (Version::V1, Controller::Memory) => "memory.limit_in_bytes",
        (Version::V2, Controller::Cpu) => "cpu.max",
        (Version::V2, Controller::Memory) => "memory.max",
        (_, Controller::Pids) => "pids.max",
    }
}

/// In microseconds for each period.
fn quota(thousandths: u64) -> u64 {
    (thousandths.saturating_mul(PERIOD) / 1000).max(LEAST_QUOTA)
}

fn shares(thousandths: u64) -> u64 {
    (thousandths.saturating_mul(SHARES_OF_A_CPU) / 1000).clamp(LEAST_SHARES, MOST_SHARES)
}

/// The weight of version 2, 1 to 10,000, for shares of version 1.
fn weight(shares: u64) -> u64 {
    1 + (shares - LEAST_SHARES) * 9_999 / (MOST_SHARES - LEAST_SHARES)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn amounts_as_the_kernel_counts_them() {
        for (thousandths, expected) in [(1000, 100_000), (250, 25_000), (1, 1000), (0, 1000), (3500, 350_000)] {
            assert_eq!(quota(thousandths), expected, "a limit of {thousandths}m");
        }
        for (thousandths, expected) in [
            (0, (2, 1)),
            (1, (2, 1)),
            (100, (102, 4)),
            (1000, (1024, 39)),
            (2000, (2048, 79)),
            (u64::MAX, (262_144, 10_000)),
        ] {
            let shares = shares(thousandths);
            assert_eq!((shares, weight(shares)), expected, "a request of {thousandths}m");
        }
    }

    fn attempt() -> Attempt {
        Attempt { pod: PodUid::from_u128(7), container: "main".into(), number: 2 }
    }

    /// What is in the files of the groups, without the directory in front.
    fn written(dir: &Path) -> Vec<String> {
        fn walk(root: &Path, dir: &Path, found: &mut Vec<String>) {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                match fs::read_to_string(entry.path()) {
                    Ok(text) => found.push(format!("{} {text}", entry.path().strip_prefix(root).unwrap().display())),
                    Err(_) => walk(root, &entry.path(), found),
                }
            }
        }
        let mut found = Vec::new();
        walk(dir, dir, &mut found);
        found.sort();
        found
    }

    /// Plain directories in place of the kernel's: what is written to which file.
    #[test]
    fn each_version_gets_its_own_files() {
        let limits = ResourceLimits { cpu: Some(500), memory: Some(1 << 20), cpu_request: 250, pod_cpu_request: 1000 };
        let uid = PodUid::from_u128(7);
        for (version, controllers, limits, expected) in [
            (
                Version::V2,
                &Controller::ALL[..],
                limits,
                &[
                    "UID/cgroup.subtree_control +memory",
                    "UID/cpu.weight 39",
                    "UID/main.2/cpu.max 50000 100000",
                    "UID/main.2/cpu.weight 10",
                    "UID/main.2/memory.max 1048576",
                    "UID/main.2/memory.oom.group 1",
                    "UID/main.2/memory.swap.max 0",
                    "UID/pids.max 64",
                ][..],
            ),
            (
                Version::V1,
                &Controller::ALL,
                limits,
                &[
                    "UID/cpu.shares 1024",
                    "UID/main.2/cpu.cfs_period_us 100000",
                    "UID/main.2/cpu.cfs_quota_us 50000",
                    "UID/main.2/cpu.shares 256",
                    "UID/main.2/memory.limit_in_bytes 1048576",
                    "UID/main.2/memory.memsw.limit_in_bytes 1048576",
                    "UID/pids.max 64",
                ],
            ),
            (Version::V1, &[Controller::Pids], limits, &["UID/pids.max 64"]),
            (Version::V2, &[], limits, &[]),
            (
                Version::V1,
                &[Controller::Cpu],
                ResourceLimits::default(),
                &["UID/cpu.shares 2", "UID/main.2/cpu.shares 2"],
            ),
            (Version::V1, &[Controller::Memory], ResourceLimits::default(), &[]),
        ] {
            let root = tempfile::tempdir().unwrap();
            let tree = Tree { version, dir: root.path().to_owned(), controllers: controllers.to_vec() };
            let used = tree.is_used(&limits);
            let all = Limits { trees: vec![tree], missing: Vec::new() };
            let groups = all.make(&attempt(), &limits, Some(64)).unwrap();
            assert_eq!(groups.dirs().len(), usize::from(used));
            let found: Vec<_> = written(root.path()).iter().map(|line| line.replace(&uid.to_string(), "UID")).collect();
            assert_eq!(found, expected, "{version:?} {controllers:?}");
        }
    }

    #[test]
    fn groups_are_removed_although_the_nodes_directory_was_removed_first() {
        let (root, node) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let home = |name: &str| Home { version: Version::V1, dir: root.path().join(name) };
        let homes = Homes { v2: Some(home("unified")), v1: vec![(Controller::Pids, home("pids"))] };
        for home in homes.all() {
            fs::create_dir_all(home.dir.join("tally-1-2/pod")).unwrap();
        }
        let cgroups = Cgroups {
            homes,
            name: "tally-1-2".into(),
            record: node.path().join("gone/cgroup"),
            tracking: None,
            limits: OnceCell::new(),
            left: Cell::new(false),
        };
        cgroups.leave();
        for name in ["unified", "pids"] {
            assert_eq!(fs::read_dir(root.path().join(name)).unwrap().count(), 0, "{name}");
        }
    }

    #[test]
    fn what_is_not_enforced_is_said() {
        let limits = |cpu, memory| ResourceLimits { cpu, memory, ..ResourceLimits::default() };
        let nothing = Limits {
            trees: Vec::new(),
            missing: Controller::ALL.map(|controller| (controller, "there are none".to_owned())).to_vec(),
        };
        let said = |names: &str| Some(format!("limits of {names} are not enforced on this node: there are none"));
        assert!(nothing.are_impossible());
        for (wanted, expected) in [
            (limits(None, None), None),
            (limits(Some(1), None), said("cpu")),
            (limits(Some(1), Some(1)), said("cpu and memory")),
        ] {
            assert_eq!(nothing.unenforced(&wanted), expected);
        }
        let no_cpu = Limits { trees: Vec::new(), missing: vec![(Controller::Cpu, "there are none".to_owned())] };
        assert_eq!(no_cpu.unenforced(&limits(None, Some(1))), None);
        assert_eq!(no_cpu.unenforced(&limits(Some(1), Some(1))), said("cpu"));
        assert_eq!((no_cpu.no_pids(), nothing.no_pids()), (None, Some("there are none")));
    }
}
