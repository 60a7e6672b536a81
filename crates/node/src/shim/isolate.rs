//! What an isolated container sees of the machine: all its files except those of the node and its credentials, and its
//! own /proc, /dev, /dev/shm and /tmp. Runs in the launcher, in a mount namespace of the container's own; the container
//! has no capability to undo it.
//!
//! The rest of the machine's files stays as it is, because there are no images: a container uses the machine's programs.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags, mount, move_mount, open_tree};
use serde::{Deserialize, Serialize};

use super::{sys, volumes};

/// A directory, known by what it is: a Pod that can write to the directories above it may put another one at its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownDirectory {
    pub path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl KnownDirectory {
    pub fn new(path: &Path) -> io::Result<Self> {
        let about = fs::metadata(path)?;
        Ok(Self { path: path.to_owned(), identity: (about.dev(), about.ino()) })
    }

    pub fn open(&self) -> io::Result<OwnedFd> {
        let other = || io::Error::other("another directory is at its path; stop Tally, and put the directory back");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&self.path, flags, Mode::empty()).map_err(|error| match error {
            Errno::NOENT | Errno::NOTDIR => other(),
            error => error.into(),
        })?;
        let about = rustix::fs::fstat(&opened)?;
        if (about.st_dev, about.st_ino) == self.identity { Ok(opened) } else { Err(other()) }
    }
}

/// A path that must not be readable in a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenPath {
    /// Without symlinks.
    pub path: PathBuf,
    /// The directory itself, or the one that contains the file. None: nothing was there when the node started.
    known: Option<KnownDirectory>,
    is_file: bool,
}

impl HiddenPath {
    pub fn new(path: &Path) -> Self {
        let Ok(real) = fs::canonicalize(path) else {
            return Self { path: path.to_owned(), known: None, is_file: false };
        };
        let is_file = !real.is_dir();
        let directory = if is_file { real.parent().unwrap_or(&real) } else { &real };
        Self { known: KnownDirectory::new(directory).ok(), path: real, is_file }
    }

    /// None: there is nothing to hide. A file may be deleted, and others may be put at its path; but what contains it
    /// is what it was.
    fn open(&self) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = match (&self.known, self.path.file_name()) {
            (Some(directory), Some(name)) if self.is_file => {
                rustix::fs::openat(directory.open()?, name, flags, Mode::empty())
            }
            (Some(directory), _) => return directory.open().map(Some),
            (None, _) => rustix::fs::open(&self.path, flags, Mode::empty()),
        };
        match opened {
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            opened => Ok(Some(opened?)),
        }
    }
}

/// Nodes of /dev that every program may use.
const DEVICES: [&str; 6] = ["full", "null", "random", "tty", "urandom", "zero"];
/// Parts of /proc and /sys that show more than the container: memory and keys of the machine, and the like.
const MASKED: [&str; 15] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/kmsg",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/vmcore",
    "/sys/firmware",
    "/sys/fs/bpf",
    "/sys/kernel/debug",
    "/sys/kernel/tracing",
];
/// Parts through which root could command the machine, without any capability.
const READ_ONLY: [&str; 6] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/sys"];

/// File systems that show the kernel and not files. Those of the machine that are mounted elsewhere than in /proc, /sys and
/// /dev, for a chroot for example, are hidden.
const OF_THE_KERNEL: [&[u8]; 17] = [
    b"binfmt_misc",
    b"bpf",
    b"cgroup",
    b"cgroup2",
    b"configfs",
    b"debugfs",
    b"devpts",
    b"devtmpfs",
    b"efivarfs",
    b"mqueue",
    b"nfsd",
    b"proc",
    b"pstore",
    b"resctrl",
    b"securityfs",
    b"sysfs",
    b"tracefs",
];

/// A mount that is not attached anywhere, of a path and all mounts below it.
pub fn clone_tree(path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    Ok(open_tree(CWD, path, flags)?)
}

pub fn attach(tree: &OwnedFd, place: &Path) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
    Ok(move_mount(tree, "", CWD, place, flags)?)
}

/// Sets attributes of everything that is mounted.
pub fn change_root(attributes: u64) -> io::Result<()> {
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    sys::set_mount_attributes(root.as_fd(), attributes)
}

/// The machine's own nodes, to be shown again in another /dev.
pub struct Devices(Vec<(&'static str, OwnedFd)>);

impl Devices {
    pub fn take() -> Self {
        let take = |name: &'static str| Some((name, clone_tree(&Path::new("/dev").join(name)).ok()?));
        Self(DEVICES.into_iter().filter_map(take).collect())
    }

    /// Mounts a /dev with nothing else. Returns its device number: entries may be added to it.
    fn show(&self) -> io::Result<u64> {
        let dev = Path::new("/dev");
        mount("tmpfs", dev, "tmpfs", MountFlags::NOSUID | MountFlags::NOEXEC, c"mode=0755,size=64k")?;
        for (name, tree) in &self.0 {
            File::create_new(dev.join(name))?;
            // A device on a read-only mount can be written to; its mode and owner cannot be changed.
            sys::set_mount_attributes(tree.as_fd(), libc::MOUNT_ATTR_RDONLY)?;
            attach(tree, &dev.join(name))?;
        }
        for (name, target) in [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
            ("ptmx", "pts/ptmx"),
        ] {
            symlink(target, dev.join(name))?;
        }
        let apart = MountFlags::NOSUID | MountFlags::NOEXEC;
        fs::create_dir(dev.join("pts"))?;
        mount("devpts", dev.join("pts"), "devpts", apart, c"newinstance,ptmxmode=0666,mode=0620")?;
        fs::create_dir(dev.join("shm"))?;
        mount("tmpfs", dev.join("shm"), "tmpfs", apart | MountFlags::NODEV, c"mode=1777")?;
        fs::set_permissions(dev, fs::Permissions::from_mode(0o755))?;
        Ok(fs::metadata(dev)?.dev())
    }
}

/// Mounts what a container has of its own, except /tmp, which is a volume. Returns the device number of /dev.
pub fn furnish(devices: &Devices) -> Result<u64, String> {
    let failed = |what: &'static str| move |error: io::Error| format!("{what} cannot be mounted: {error}");
    let safe = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", safe, None).map_err(|error| failed("/proc")(error.into()))?;
    let device = devices.show().map_err(failed("/dev"))?;
    for path in READ_ONLY.map(Path::new) {
        shut_tree(path).map_err(|error| format!("{} cannot be made read-only: {error}", path.display()))?;
    }
    for path in MASKED.map(Path::new) {
        cover(path).map_err(|error| format!("{} cannot be hidden: {error}", path.display()))?;
    }
    Ok(device)
}

fn shut_tree(path: &Path) -> io::Result<()> {
    let tree = match clone_tree(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        tree => tree?,
    };
    sys::set_mount_attributes(tree.as_fd(), libc::MOUNT_ATTR_RDONLY)?;
    attach(&tree, path)
}

/// Covers a path with nothing, if there is something.
fn cover(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(about) if about.is_symlink() => Ok(()),
        Ok(about) => mask(path, about.is_dir()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn mask(place: &Path, is_dir: bool) -> io::Result<()> {
    if is_dir {
        let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        return Ok(mount("tmpfs", place, "tmpfs", flags, c"mode=0000,size=4k,nr_inodes=2")?);
    }
    // What hides a file is the machine's own device: its mode and owner must not change.
    let nothing = clone_tree(Path::new("/dev/null"))?;
    sys::set_mount_attributes(nothing.as_fd(), libc::MOUNT_ATTR_RDONLY)?;
    attach(&nothing, place)
}

/// Hides paths: a directory becomes an empty one, a file an empty one, wherever the same directory or file, or a part of
/// it, is mounted on this machine. A path that does not exist needs nothing.
pub fn hide(hidden: &[HiddenPath]) -> Result<(), String> {
    let failed = |path: &Path, error: io::Error| format!("{} cannot be hidden: {error}", path.display());
    let table = fs::read("/proc/self/mountinfo").map_err(|error| failed(Path::new("/proc"), error))?;
    let mounts = parse(&table);
    for mounted in mounts.iter().filter(|mounted| mounted.shows_kernel_elsewhere()) {
        hide_mount(mounted).map_err(|error| failed(&mounted.place, error))?;
    }
    // All of them through descriptors: what was looked at is what is hidden, whatever is renamed meanwhile. All are opened
    // first, because one path may be inside another.
    let mut all = Vec::with_capacity(hidden.len());
    for hidden in hidden {
        let path = &hidden.path;
        let Some(opened) = hidden.open().map_err(|error| failed(path, error))? else { continue };
        let about = rustix::fs::fstat(&opened).map_err(|error| failed(path, error.into()))?;
        all.push((path, opened, about));
    }
    for (path, opened, about) in all {
        let Aliases { same, parts } = aliases(&mounts, path);
        mask_opened(&opened, &about).map_err(|error| failed(path, error))?;
        for place in same {
            hide_alias(&place, Some((about.st_dev, about.st_ino))).map_err(|error| failed(&place, error))?;
        }
        for place in parts {
            hide_alias(&place, None).map_err(|error| failed(&place, error))?;
        }
    }
    Ok(())
}

/// A mount that another one covers is not found by its path, and needs nothing; one that this user cannot reach, neither.
fn hide_mount(mounted: &Mounted) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match rustix::fs::open(&mounted.place, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(()),
        opened => opened?,
    };
    let about = rustix::fs::fstat(&opened)?;
    let device = format!("{}:{}", rustix::fs::major(about.st_dev), rustix::fs::minor(about.st_dev));
    if device.as_bytes() == mounted.device { mask_opened(&opened, &about) } else { Ok(()) }
}

/// Another mount of the same. Another file at a path of the same name is left alone: it is mounted over this one.
fn hide_alias(place: &Path, identity: Option<(u64, u64)>) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match rustix::fs::open(place, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    let about = rustix::fs::fstat(&opened)?;
    if identity.is_some_and(|identity| identity != (about.st_dev, about.st_ino)) {
        return Ok(());
    }
    mask_opened(&opened, &about)
}

fn mask_opened(opened: &OwnedFd, about: &rustix::fs::Stat) -> io::Result<()> {
    let is_dir = rustix::fs::FileType::from_raw_mode(about.st_mode).is_dir();
    mask(Path::new(&format!("/proc/self/fd/{}", opened.as_raw_fd())), is_dir)
}

/// One line of the table of mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mounted {
    device: Vec<u8>,
    /// The directory of the file system that is shown.
    root: PathBuf,
    place: PathBuf,
    /// The kind of the file system.
    kind: Vec<u8>,
}

impl Mounted {
    fn shows_kernel_elsewhere(&self) -> bool {
        let in_place = ["/proc", "/sys", "/dev"].iter().any(|own| self.place.starts_with(own));
        OF_THE_KERNEL.contains(&self.kind.as_slice()) && !in_place
    }
}

fn parse(table: &[u8]) -> Vec<Mounted> {
    let line = |line: &[u8]| {
        let mut fields = line.split(|&byte| byte == b' ').skip(2);
        let device = fields.next()?.to_vec();
        let mut path = || Some(PathBuf::from(OsString::from_vec(volumes::unescaped(fields.next()?))));
        let (root, place) = (path()?, path()?);
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?.to_vec();
        Some(Mounted { device, root, place, kind })
    };
    table.split(|&byte| byte == b'\n').filter_map(line).collect()
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Aliases {
    /// Other paths of the same file.
    same: Vec<PathBuf>,
    /// Mounts of something inside it.
    parts: Vec<PathBuf>,
}

fn aliases(mounts: &[Mounted], path: &Path) -> Aliases {
    // The last of several mounts at one place is on top.
    let length = |mounted: &Mounted| mounted.place.components().count();
    let above = mounts.iter().filter(|mounted| path.starts_with(&mounted.place)).max_by_key(|mounted| length(mounted));
    let Some(above) = above else { return Aliases::default() };
    let Ok(below) = path.strip_prefix(&above.place) else { return Aliases::default() };
    let inside = above.root.join(below);
    let mut found = Aliases::default();
    for other in mounts.iter().filter(|other| other.device == above.device) {
        match inside.strip_prefix(&other.root) {
            Ok(rest) => {
                let same = other.place.join(rest);
                if same != path && !found.same.contains(&same) {
                    found.same.push(same);
                }
            }
            Err(_) if other.root.starts_with(&inside) && !other.place.starts_with(path) => {
                found.parts.push(other.place.clone());
            }
            Err(_) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_paths_of_the_same_directory_are_found() {
        let table = b"22 27 0:21 / /proc rw - proc proc rw\n\
            27 1 254:0 / / rw - ext4 /dev/vda rw\n\
            30 27 254:0 / /other rw - ext4 /dev/vda rw\n\
            31 27 254:0 /home /h rw - ext4 /dev/vda rw\n\
            32 27 254:0 /home/me/my\\040data/pki /keys rw - ext4 /dev/vda rw\n\
            33 27 254:0 /home/me/my\\040data/node /home/me/my\\040data/x rw - ext4 /dev/vda rw\n\
            34 27 254:1 / /elsewhere rw - ext4 /dev/vdb rw\n\
            short\n";
        let mounts = parse(table);
        assert_eq!(mounts.len(), 7);
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        let found = aliases(&mounts, Path::new("/home/me/my data"));
        assert_eq!(found.same, paths(&["/other/home/me/my data", "/h/me/my data"]));
        assert_eq!(found.parts, paths(&["/keys"]));
        let found = aliases(&mounts, Path::new("/elsewhere/data"));
        assert_eq!(found, Aliases::default());
    }

    #[test]
    fn file_systems_of_the_kernel_are_known_by_their_kind() {
        let table = b"22 27 0:21 / /proc rw - proc proc rw\n\
            23 27 0:22 / /sys/fs/cgroup rw shared:3 - cgroup2 cgroup2 rw\n\
            24 27 0:21 / /srv/root/proc rw shared:1 master:2 - proc proc rw\n\
            25 27 0:21 /sys /srv/sysctl rw - proc proc rw\n\
            26 27 0:22 / /srv/groups rw - cgroup2 cgroup2 rw\n\
            27 1 254:0 / / rw - ext4 /dev/vda rw\n\
            28 27 0:23 / /process rw - tmpfs proc rw\n";
        let found: Vec<_> = parse(table).into_iter().filter(Mounted::shows_kernel_elsewhere).collect();
        let places: Vec<_> = found.iter().map(|mounted| mounted.place.to_str()).collect();
        assert_eq!(places, [Some("/srv/root/proc"), Some("/srv/sysctl"), Some("/srv/groups")]);
    }
}
