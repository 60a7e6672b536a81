//! The mounts of a container, in a mount namespace of its own: its volumes, and for isolation the rest (`isolate.rs`). The
//! machine's own mounts do not change, and all mounts disappear with the container's last process. Runs in the launcher,
//! before the command.
//!
//! A mount point that does not exist on this machine is created without changing the machine: the nearest existing
//! directory is covered by a tmpfs that shows all its entries, and the new one. As in any container, what a process
//! creates there outside its volumes is lost with the container.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_bind_recursive,
    mount_change, mount_move, move_mount, open_tree, unmount,
};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

use super::isolate::{self, Devices, HiddenPath, KnownDirectory};
use super::{sys, volumes};

/// One volume at one mount point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bind {
    /// For messages: `volume "data"`.
    pub what: String,
    pub source: PathBuf,
    pub sub_path: String,
    pub target: String,
    pub read_only: bool,
    /// Read-only with everything that is mounted below the source, too.
    pub recursive: bool,
    /// A failure of this mount is ignored.
    pub optional: bool,
    /// The source is a path of the machine, not of the node.
    pub host: bool,
}

/// What a container sees instead of the machine's own mounts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct View {
    pub binds: Vec<Bind>,
    /// An empty directory to work in.
    pub stage: PathBuf,
    /// Everything but volumes, /dev and /proc is read-only.
    pub read_only_root: bool,
    /// What the container must not see. None: it is not isolated.
    pub hidden: Option<Vec<HiddenPath>>,
    /// What contains the sources that are the node's own. None: they are found by their paths.
    pub node: Option<KnownDirectory>,
}

/// Which namespaces of the machine a process has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftNamespaces {
    None,
    Mounts,
    /// It is in a user namespace of its own, too.
    MountsAndUsers,
}

/// Where devices and processes are.
const OF_THE_KERNEL: [&str; 3] = ["/dev", "/proc", "/sys"];

/// Showing a directory costs one mount per entry; the kernel permits 100,000 in a namespace.
const MOST_ENTRIES: usize = 10_000;

/// Leaves the machine's mount and host name namespaces, and for isolation those of processes and of memory that
/// processes share: as root, or else in a user namespace that contains only this user.
pub fn leave(isolated: bool) -> io::Result<LeftNamespaces> {
    let mut apart = UnshareFlags::NEWNS | UnshareFlags::NEWUTS;
    if isolated {
        apart |= UnshareFlags::NEWPID | UnshareFlags::NEWIPC;
    }
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let left = match sys::unshare(apart) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            sys::unshare(apart | UnshareFlags::NEWUSER)?;
            fs::write("/proc/self/setgroups", "deny")?;
            fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
            fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
            LeftNamespaces::MountsAndUsers
        }
        outcome => outcome.map(|()| LeftNamespaces::Mounts)?,
    };
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    Ok(left)
}

/// Mounts everything. For isolation, called in the namespace of the container's processes, of which /proc shows those.
pub fn arrange(view: View) -> Result<(), String> {
    let View { mut binds, stage, read_only_root, hidden, node } = view;
    let here = std::env::current_dir().ok();
    // Parents first, so that no mount is hidden by a later one above it.
    binds.sort_by_key(|bind| Path::new(&bind.target).components().count());
    let mut trees: Vec<(Bind, Option<Tree>)> = binds.into_iter().map(|bind| (bind, None)).collect();
    // Sources are opened before anything is mounted: a volume may be mounted over the very directory that contains
    // them. For isolation, those of the machine are opened when the rest is hidden: a part of the machine is mounted
    // without the node's own files, and with the container's own processes and devices. A device that a volume names
    // itself is meant, and opened before.
    let isolated = hidden.is_some();
    let node = match &node {
        Some(node) => Some((
            node.path.as_path(),
            node.open().map_err(|error| format!("{} cannot be used: {error}", node.path.display()))?,
        )),
        None => None,
    };
    take_all(&mut trees, |bind| !bind.host || !isolated, node.as_ref())?;
    trees.iter_mut().filter(|(_, tree)| tree.is_none()).for_each(|(bind, tree)| *tree = take_device(bind));
    let mut places = Places { covers: Vec::new(), covered: Vec::new(), mounted: Vec::new() };
    if let Some(hidden) = &hidden {
        let devices = Devices::take();
        isolate::hide(hidden)?;
        // There is no list of permitted devices: root could open the disk by any node of it.
        isolate::change_root(libc::MOUNT_ATTR_NODEV).map_err(|error| format!("/ cannot be restricted: {error}"))?;
        places.covers.push(isolate::furnish(&devices)?);
    }
    take_all(&mut trees, |_| true, None)?;
    trees.retain(|(_, tree)| tree.is_some());
    if read_only_root {
        shut_root().map_err(|error| format!("/ cannot be made read-only: {error}"))?;
    }
    // First of all, while the stage is visible: a volume may hide it.
    if trees
        .iter()
        .any(|(bind, _)| matches!(nearest(Path::new(&bind.target)), Ok((there, Some(_))) if there == Path::new("/")))
    {
        // The files of the node are hidden; the container gets another /tmp afterwards.
        let stage = if isolated { Path::new("/tmp") } else { &stage };
        places.cover_root(stage).map_err(|error| format!("no new directory can be shown in /: {error}"))?;
    }
    let mut read_only = Vec::new();
    for (bind, tree) in trees {
        let Some(tree) = tree else { continue };
        let outcome = places.find(&bind.target, tree.is_dir).and_then(|(place, path)| {
            if bind.recursive {
                sys::set_mount_attributes(tree.fd.as_fd(), libc::MOUNT_ATTR_RDONLY)?;
            }
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
            move_mount(&tree.fd, "", &place, "", flags)?;
            Ok(path)
        });
        match outcome {
            Ok(path) => {
                if bind.read_only {
                    read_only.push((bind, tree.fd));
                }
                places.mounted.push(path);
            }
            Err(_) if bind.optional => {}
            Err(error) => return Err(format!("{} cannot be mounted at {}: {error}", bind.what, bind.target)),
        }
    }
    // Last: mount points for other volumes may have been created in these.
    for (bind, tree) in read_only {
        sys::shut_mount(tree.as_fd())
            .map_err(|error| format!("{} cannot be made read-only at {}: {error}", bind.what, bind.target))?;
    }
    for place in places.covered.iter().filter(|_| read_only_root) {
        shut(place).map_err(|error| format!("{} cannot be made read-only: {error}", place.display()))?;
    }
    if isolated {
        // By its path: a mount may cover the working directory of this process by now.
        let entered = here.is_some_and(|here| rustix::process::chdir(here).is_ok());
        if !entered {
            rustix::process::chdir("/").map_err(|error| format!("/ cannot be entered: {error}"))?;
        }
    }
    Ok(())
}

/// Opens the sources that are wanted now and have not been opened.
fn take_all(
    trees: &mut [(Bind, Option<Tree>)],
    now: impl Fn(&Bind) -> bool,
    node: Option<&(&Path, OwnedFd)>,
) -> Result<(), String> {
    for (bind, tree) in trees.iter_mut().filter(|(bind, tree)| tree.is_none() && now(bind)) {
        match take(bind, node) {
            Ok(taken) => *tree = Some(taken),
            Err(_) if bind.optional => {}
            Err(error) => return Err(format!("{} cannot be mounted at {}: {error}", bind.what, bind.target)),
        }
    }
    Ok(())
}

/// A character device that a volume of the machine names. What was looked at is what is mounted: a Pod may put something
/// else at the path meanwhile.
fn take_device(bind: &Bind) -> Option<Tree> {
    let opened = rustix::fs::open(&bind.source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&opened).ok()?.st_mode);
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let is_device = kind == FileType::CharacterDevice && bind.sub_path.is_empty();
    is_device.then(|| open_tree(&opened, "", flags).ok().map(|fd| Tree { fd, is_dir: false }))?
}

/// Makes everything that is mounted read-only, except what the kernel shows there: devices have to work, and /proc has a
/// process's own settings.
fn shut_root() -> io::Result<()> {
    let kept = OF_THE_KERNEL.map(Path::new).map(|place| isolate::clone_tree(place).map(|tree| (place, tree)));
    isolate::change_root(libc::MOUNT_ATTR_RDONLY)?;
    for kept in kept {
        let (place, tree) = kept?;
        isolate::attach(&tree, place)?;
    }
    Ok(())
}

struct Tree {
    fd: OwnedFd,
    is_dir: bool,
}

/// A clone of what is to be mounted, not attached anywhere yet.
/// `node`: the node's own directory, which its own sources do not leave.
fn take(bind: &Bind, node: Option<&(&Path, OwnedFd)>) -> io::Result<Tree> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let mut source = match node.and_then(|(path, opened)| Some((bind.source.strip_prefix(path).ok()?, opened))) {
        Some((inside, node)) if !bind.host => {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            rustix::fs::openat2(node, inside, flags, Mode::empty(), resolve)?
        }
        _ => rustix::fs::open(&bind.source, flags, Mode::empty())?,
    };
    if !bind.sub_path.is_empty() {
        source = below(source, &bind.sub_path)?;
    }
    let is_dir = FileType::from_raw_mode(rustix::fs::fstat(&source)?.st_mode).is_dir();
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    Ok(Tree { fd: open_tree(&source, "", flags)?, is_dir })
}

/// The kernel itself ensures that no symlink leads out of the volume. A missing path is created, as a directory with
/// the volume's mode: a user who may write to the volume may write to it.
fn below(volume: OwnedFd, sub_path: &str) -> io::Result<OwnedFd> {
    let path = volumes::within(sub_path).map_err(io::Error::other)?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let open = |path: &Path| {
        rustix::fs::openat2(&volume, path, flags, Mode::empty(), resolve).map_err(|error| match error {
            rustix::io::Errno::XDEV => io::Error::other(format!("the subPath {sub_path:?} leads out of the volume")),
            error => error.into(),
        })
    };
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&volume)?.st_mode & 0o777);
    let make = |parent: &OwnedFd, name: &OsStr| {
        let masked = rustix::process::umask(Mode::empty());
        let made = rustix::fs::mkdirat(parent, name, mode);
        rustix::process::umask(masked);
        made
    };
    let mut so_far = PathBuf::new();
    let mut parent: Option<OwnedFd> = None;
    for step in path.components() {
        so_far.push(step);
        match open(&so_far) {
            Ok(found) => parent = Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make(parent.as_ref().unwrap_or(&volume), step.as_os_str())?;
                parent = Some(open(&so_far)?);
            }
            Err(error) => return Err(error),
        }
    }
    parent.ok_or_else(|| io::ErrorKind::NotFound.into())
}

struct Places {
    /// Devices of the tmpfs mounts over directories: new entries may be created in them.
    covers: Vec<u64>,
    /// Where they are.
    covered: Vec<PathBuf>,
    /// Mount points of volumes so far. Their content is the Pod's own: new entries may be created there too.
    mounted: Vec<PathBuf>,
}

impl Places {
    /// A mount point of the right kind, and its path without symlinks. Opened: another container of the Pod, which mounts
    /// the same volume, may put a symlink in its place meanwhile.
    fn find(&mut self, target: &str, is_dir: bool) -> io::Result<(OwnedFd, PathBuf)> {
        let target = Path::new(target);
        if !target.is_absolute() || target.components().any(|step| step == Component::ParentDir) {
            return Err(io::Error::other("the path must be absolute and must not contain '..'"));
        }
        let (parent, missing) = nearest(target)?;
        if missing.is_none() && parent == Path::new("/") {
            return Err(io::Error::other("it leads to /, at which no volume can be mounted"));
        }
        let Some(missing) = missing else {
            let place = open_real(&parent)?;
            let found = FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode).is_dir();
            let kind = |is_dir| if is_dir { "a directory" } else { "a file" };
            return if found == is_dir {
                Ok((place, parent))
            } else {
                let (found, wanted) = (kind(found), kind(is_dir));
                Err(io::Error::other(format!("{} is {found}, the volume is {wanted}", parent.display())))
            };
        };
        if !parent.is_dir() {
            return Err(io::Error::other(format!("{} is not a directory", parent.display())));
        }
        let in_volume = self.mounted.iter().any(|place| parent.starts_with(place));
        if !in_volume && !self.covers.contains(&fs::metadata(&parent)?.dev()) {
            self.cover(&parent)?;
        }
        let opened = open_real(&parent)?;
        if !in_volume && !self.covers.contains(&rustix::fs::fstat(&opened)?.st_dev) {
            return Err(io::Error::other(format!("{} was replaced meanwhile", parent.display())));
        }
        Ok((volumes::make_below(opened, &missing, is_dir)?, parent.join(missing)))
    }

    /// Covers a directory with a tmpfs that shows the covered entries, which are reached by a descriptor opened before.
    fn cover(&mut self, dir: &Path) -> io::Result<()> {
        let covered = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        self.fill(Path::new(&format!("/proc/self/fd/{}", covered.as_raw_fd())), dir)?;
        self.covered.push(dir.to_owned());
        Ok(())
    }

    /// A root cannot be covered; it is replaced by another one.
    fn cover_root(&mut self, stage: &Path) -> io::Result<()> {
        self.fill(Path::new("/"), stage)?;
        self.covered.push(PathBuf::from("/"));
        turn(stage)
    }

    fn fill(&mut self, from: &Path, at: &Path) -> io::Result<()> {
        let about = fs::metadata(from)?;
        let entries: Vec<_> = fs::read_dir(from)?.take(MOST_ENTRIES + 1).collect::<Result<_, _>>()?;
        if entries.len() > MOST_ENTRIES {
            let place = fs::read_link(from).unwrap_or_else(|_| from.to_owned());
            let place = place.display();
            return Err(io::Error::other(format!("{place} has more than {MOST_ENTRIES} entries; make the path first")));
        }
        mount("tmpfs", at, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=0755")?;
        // Showing only part of the entries would be worse than failing without the new mount point.
        let device = show_all(&entries, &about, at).inspect_err(|_| {
            let _ = unmount(at, UnmountFlags::DETACH);
        })?;
        self.covers.push(device);
        Ok(())
    }
}

/// Returns the device of the tmpfs that shows the entries.
fn show_all(entries: &[fs::DirEntry], about: &fs::Metadata, at: &Path) -> io::Result<u64> {
    for entry in entries {
        show(entry, &at.join(entry.file_name()))?;
    }
    // Not every owner exists in a user namespace.
    let _ = chown(at, Some(about.uid()), Some(about.gid()));
    fs::set_permissions(at, fs::Permissions::from_mode(about.mode() & 0o7777))?;
    Ok(fs::metadata(at)?.dev())
}

/// Opens a path that has no symlinks, and fails if it has one by now.
pub fn open_real(path: &Path) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?)
}

/// The longest existing part of a path, without symlinks, and the missing rest.
pub fn nearest(target: &Path) -> io::Result<(PathBuf, Option<PathBuf>)> {
    for there in target.ancestors() {
        match fs::canonicalize(there) {
            Ok(found) => {
                let missing = target.strip_prefix(there).unwrap_or(Path::new(""));
                return Ok((found, (missing != Path::new("")).then(|| missing.to_owned())));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Shows an entry of a covered directory as it was.
fn show(entry: &fs::DirEntry, at: &Path) -> io::Result<()> {
    let kind = entry.file_type()?;
    if kind.is_symlink() {
        return symlink(fs::read_link(entry.path())?, at);
    }
    if kind.is_dir() {
        fs::create_dir(at)?;
    } else {
        File::create_new(at)?;
    }
    Ok(mount_bind_recursive(entry.path(), at)?)
}

/// Makes a directory the root. The old root is stacked on top of it and unmounted.
fn turn(root: &Path) -> io::Result<()> {
    rustix::process::chdir(root)?;
    if rustix::process::pivot_root(".", ".").is_ok() {
        unmount(".", UnmountFlags::DETACH)?;
    } else {
        // The initial root of a machine, a ramfs, cannot be pivoted; it can be mounted over.
        mount_move(".", "/")?;
        rustix::process::chroot(".")?;
    }
    Ok(rustix::process::chdir("/")?)
}

fn shut(place: &Path) -> io::Result<()> {
    sys::shut_mount(open_real(place)?.as_fd())
}
