//! The hierarchies of control groups that this machine has, and what can be done to one group: by the files of the
//! kernel. Version 1 has a hierarchy for each controller, version 2 has one for all; a machine may have both.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, PidfdFlags, Signal};

use crate::shim::volumes::unescaped;

/// How deep groups are looked for: those of a node have three levels, and a container may make some of its own.
const DEEPEST: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    Cpu,
    Memory,
    Pids,
}

impl Controller {
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Pids];

    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Pids => "pids",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1,
    V2,
}

/// The group of this process in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    pub version: Version,
    pub dir: PathBuf,
}

/// The groups of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Homes {
    pub v2: Option<Home>,
    /// The controllers that have a hierarchy of version 1.
    pub v1: Vec<(Controller, Home)>,
}

impl Homes {
    pub fn all(&self) -> impl Iterator<Item = &Home> {
        self.v2.iter().chain(self.v1.iter().map(|(_, home)| home))
    }

    pub fn own() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self::read(&fs::read("/proc/self/mountinfo").unwrap_or_default(), &read("/proc/self/cgroup"))
    }

    /// `mounts` as in /proc/self/mountinfo, `own` as in /proc/self/cgroup.
    fn read(mounts: &[u8], own: &str) -> Self {
        let path_of = |controller: &str| {
            own.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let (controllers, path) = (parts.next()?, parts.next()?);
                controllers.split(',').any(|name| name == controller).then_some(path)
            })
        };
        let mut homes = Self::default();
        for mount in mounts.split(|&byte| byte == b'\n').filter_map(CgroupMount::read) {
            match mount.version {
                Version::V2 if homes.v2.is_none() => homes.v2 = path_of("").and_then(|path| mount.home(path)),
                Version::V2 => {}
                Version::V1 => {
                    for controller in Controller::ALL.into_iter().filter(|one| mount.has(one.name())) {
                        let known = homes.v1.iter().any(|(other, _)| *other == controller);
                        let home = path_of(controller.name()).filter(|_| !known).and_then(|path| mount.home(path));
                        homes.v1.extend(home.map(|home| (controller, home)));
                    }
                }
            }
        }
        homes
    }

    /// One of them is this group or is inside of it.
    pub fn are_within(&self, group: &Path) -> bool {
        self.v1.iter().map(|(_, home)| home).chain(&self.v2).any(|home| home.dir.starts_with(group))
    }
}

struct CgroupMount {
    version: Version,
    point: PathBuf,
    /// The group that is mounted there.
    root: PathBuf,
    options: String,
}

impl CgroupMount {
    fn read(line: &[u8]) -> Option<Self> {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let (before, after) = fields.split_at(fields.iter().position(|field| *field == b"-")?);
        let version = match *after.get(1)? {
            b"cgroup" => Version::V1,
            b"cgroup2" => Version::V2,
            _ => return None,
        };
        let path = |at: usize| Some(PathBuf::from(OsString::from_vec(unescaped(before.get(at)?))));
        let options = String::from_utf8_lossy(after.get(3)?).into_owned();
        Some(Self { version, root: path(3)?, point: path(4)?, options })
    }

    fn has(&self, controller: &str) -> bool {
        self.options.split(',').any(|option| option == controller)
    }

    /// The group with this path, if it can be seen here.
    fn home(&self, path: &str) -> Option<Home> {
        let path = Path::new(path);
        let below = path.strip_prefix(&self.root).or_else(|_| path.strip_prefix("/")).ok()?;
        let dir = self.point.join(below);
        // A line of the record of groups is a path.
        let plain = dir.to_str().is_some_and(|dir| !dir.contains('\n'));
        (plain && dir.is_dir()).then_some(Home { version: self.version, dir })
    }
}

/// Whether the group may distribute a controller to its children.
pub fn has(dir: &Path, controller: Controller) -> bool {
    names(dir, "cgroup.controllers", controller)
}

pub fn shares(dir: &Path, controller: Controller) -> bool {
    names(dir, "cgroup.subtree_control", controller)
}

fn names(dir: &Path, file: &str, controller: Controller) -> bool {
    let there = fs::read_to_string(dir.join(file)).unwrap_or_default();
    there.split_ascii_whitespace().any(|word| word == controller.name())
}

pub fn enable(dir: &Path, controller: Controller) -> io::Result<()> {
    fs::write(dir.join("cgroup.subtree_control"), format!("+{}", controller.name()))
}

/// Creates the group, unless it exists.
pub fn make(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        outcome => outcome,
    }
}

/// Moves this process into the group; its children start there.
pub fn join(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("cgroup.procs"), "0")
}

/// Kills what is in the group and in those inside of it. Where the kernel has no file for that, processes may start others
/// meanwhile: the caller repeats it until the group is empty.
pub fn kill(dir: &Path) {
    if fs::write(dir.join("cgroup.kill"), "1").is_err() {
        for_each(dir, DEEPEST, &mut kill_members);
    }
}

fn kill_members(dir: &Path) {
    // With the controller of processes nothing new can start here.
    let _ = fs::write(dir.join("pids.max"), "0");
    let held: Vec<(Pid, OwnedFd)> = members(dir)
        .into_iter()
        .filter_map(|pid| Some((pid, rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?)))
        .collect();
    // A number may have been given to another process before it was opened: only those that are members still.
    let still = if held.is_empty() { Vec::new() } else { members(dir) };
    for (_, process) in held.iter().filter(|(pid, _)| still.contains(pid)) {
        let _ = rustix::process::pidfd_send_signal(process, Signal::KILL);
    }
}

pub fn members(dir: &Path) -> Vec<Pid> {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// No process is in the group or in one inside of it.
pub fn is_empty(dir: &Path) -> bool {
    if let Ok(events) = fs::read_to_string(dir.join("cgroup.events")) {
        return counter(&events, "populated") == Some(0);
    }
    let mut empty = true;
    for_each(dir, DEEPEST, &mut |group| empty &= members(group).is_empty());
    empty
}

/// The kernel killed a process of the group because it needed more memory than its limit.
pub fn out_of_memory(dir: &Path) -> bool {
    ["memory.events", "memory.oom_control"].iter().any(|file| {
        fs::read_to_string(dir.join(file)).is_ok_and(|events| counter(&events, "oom_kill").unwrap_or(0) > 0)
    })
}

/// Removes the group and those inside of it, unless they have processes.
pub fn remove(dir: &Path) {
    // Most groups have none inside.
    if fs::remove_dir(dir).is_err() {
        for_each(dir, DEEPEST, &mut |group| drop(fs::remove_dir(group)));
    }
}

/// The groups inside first.
fn for_each(dir: &Path, deepest: usize, act: &mut impl FnMut(&Path)) {
    if deepest > 0 {
        let inside = fs::read_dir(dir).into_iter().flatten().flatten();
        for entry in inside.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            for_each(&entry.path(), deepest - 1, act);
        }
    }
    act(dir);
}

fn counter(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn counters_as_the_kernel_writes_them() {
        let events = "low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 0\n";
        assert_eq!(counter(events, "oom_kill"), Some(1));
        assert_eq!(counter(events, "oom"), Some(2));
        assert_eq!(counter(events, "populated"), None);
        assert_eq!(counter("oom_kill_disable 1\nunder_oom 0\noom_kill 3\n", "oom_kill"), Some(3));
    }

    #[test]
    fn the_own_groups_are_found_in_all_layouts() {
        // The paths are directories of every machine: others would not be taken.
        let home = |version, dir: &str| Home { version, dir: dir.into() };
        let v2 = |dir| Homes { v2: Some(home(Version::V2, dir)), v1: Vec::new() };
        let hybrid = "30 25 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n\
                      31 30 0:27 / /sys shared:9 - cgroup2 cgroup2 rw\n\
                      32 30 0:28 / /proc rw - cgroup cgroup rw,memory\n\
                      33 30 0:29 / /usr rw,nosuid shared:10 master:1 - cgroup cgroup rw,cpu,cpuacct\n\
                      34 30 0:30 / /etc rw - cgroup cgroup rw,name=systemd\n";
        let v1 = |cpu, memory: &[&str]| {
            let memory = memory.iter().map(|dir| (Controller::Memory, home(Version::V1, dir)));
            memory.chain([(Controller::Cpu, home(Version::V1, cpu))]).collect::<Vec<_>>()
        };
        let root = Homes { v2: Some(home(Version::V2, "/sys/")), v1: v1("/usr/", &["/proc/"]) };
        let inside = Homes { v2: None, v1: v1("/usr/bin", &["/proc/sys/kernel"]) };
        let no_memory = Homes { v2: None, v1: v1("/usr/", &[]) };
        // A container of another runtime sees its own group as the root of a mount.
        let contained = "31 30 0:27 /x/y /sys rw - cgroup2 cgroup2 rw\n";
        for (mounts, own, expected) in [
            ("31 30 0:27 / /sys rw - cgroup2 cgroup2 rw\n", "0::/\n", v2("/sys/")),
            (contained, "0::/x/y/fs\n", v2("/sys/fs")),
            (contained, "0::/x/y\n", v2("/sys/")),
            (contained, "0::/\n", v2("/sys/")),
            (contained, "0::/no/such/group\n", Homes::default()),
            (hybrid, "4:memory:/\n2:cpu,cpuacct:/\n1:name=systemd:/\n0::/\n", root),
            (hybrid, "4:memory:/sys/kernel\n2:cpu,cpuacct:/bin\n", inside),
            (hybrid, "4:memory:/no/such\n2:cpu:/\n", no_memory),
            ("30 25 0:26 / /x rw - tmpfs tmpfs rw\n", "0::/\n", Homes::default()),
            ("", "", Homes::default()),
        ] {
            assert_eq!(Homes::read(mounts.as_bytes(), own), expected, "{mounts}{own}");
        }
    }
}
