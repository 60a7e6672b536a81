//! How much disk space a Pod uses: its volumes, and what its containers have written to their logs, to their own /tmp and
//! to their termination messages.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use compact_str::CompactString;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use tally_core::ids::PodUid;

use super::layout::Layout;
use crate::port::StorageUsage;

/// Blocks of `stat` have this size, whatever those of the file system have.
const BLOCK: u64 = 512;

/// What cannot be read counts as nothing. Blocks: this may take as long as the Pod has files.
pub fn measure(layout: &Layout, pod: &PodUid) -> StorageUsage {
    let mut usage = StorageUsage::default();
    let volumes = layout.volumes(pod).and_then(fs::read_dir);
    for entry in volumes.into_iter().flatten().flatten() {
        // A symlink is a directory of the machine.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            usage.volumes.push((CompactString::new(entry.file_name().to_string_lossy()), of_tree(&entry.path())));
        }
    }
    let mut containers = BTreeMap::<CompactString, u64>::new();
    for entry in layout.pod(pod).and_then(fs::read_dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if let Some(container) = name.to_str().and_then(container_of) {
            *containers.entry(container.into()).or_default() += of_tree(&entry.path());
        }
    }
    let words = format!("{pod}.");
    for entry in fs::read_dir(layout.words()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if let Some(container) = name.to_str().and_then(|name| attempt_of(name.strip_prefix(&words)?)) {
            *containers.entry(container.into()).or_default() += of_tree(&entry.path());
        }
    }
    usage.containers = containers.into_iter().collect();
    usage
}

/// `NAME.NUMBER.tmp` and `NAME.NUMBER.FILE.log` are of the container NAME.
fn container_of(file: &str) -> Option<&str> {
    let number = |text: &str| text.parse::<u64>().is_ok();
    let stem = match file.strip_suffix(".log") {
        Some(rest) => rest.rsplit_once('.').filter(|(_, file)| number(file))?.0,
        None => file.strip_suffix(".tmp")?,
    };
    attempt_of(stem)
}

/// `NAME.NUMBER` is an attempt of the container NAME.
fn attempt_of(stem: &str) -> Option<&str> {
    stem.rsplit_once('.').filter(|(_, number)| number.parse::<u64>().is_ok()).map(|(container, _)| container)
}

/// A directory on the way from the top of a tree to the place that is being counted.
struct Level {
    identity: (u64, u64),
    /// Its name in the directory above it.
    name: OsString,
    /// Directories in it that are not counted yet.
    ahead: Vec<OsString>,
}

/// What a file or directory occupies on the disk. A file with several names counts once.
///
/// By descriptors, of which two are open at a time: containers decide how deep a tree is, and a path has at most 4096
/// bytes; and no symlink that takes the place of a directory is followed.
fn of_tree(path: &Path) -> u64 {
    let Ok(about) = rustix::fs::lstat(path) else { return 0 };
    let mut tree = Tree::default();
    tree.add(&about);
    let Ok(top) = open_dir(CWD, path.as_os_str()) else { return tree.bytes };
    let Ok(mut here) = top.try_clone() else { return tree.bytes };
    let mut levels: Vec<Level> = tree.enter(&here, OsString::new()).into_iter().collect();
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.ahead.pop() {
            if let Ok(below) = open_dir(&here, &name)
                && let Some(level) = tree.enter(&below, name)
            {
                here = below;
                levels.push(level);
            }
            continue;
        }
        levels.pop();
        let Some(above) = levels.last() else { break };
        match open_dir(&here, OsStr::new("..")).ok().filter(|found| identity(found) == Some(above.identity)) {
            Some(found) => here = found,
            // It was moved meanwhile. What is still where it was is counted.
            None => match find(&top, &mut levels) {
                Some(found) => here = found,
                None => break,
            },
        }
    }
    tree.bytes
}

#[derive(Default)]
struct Tree {
    seen: HashSet<(u64, u64)>,
    entered: HashSet<(u64, u64)>,
    bytes: u64,
}

impl Tree {
    fn add(&mut self, about: &Stat) {
        let is_dir = FileType::from_raw_mode(about.st_mode).is_dir();
        if is_dir || about.st_nlink == 1 || self.seen.insert((about.st_dev, about.st_ino)) {
            self.bytes = self.bytes.saturating_add(about.st_blocks.unsigned_abs().saturating_mul(BLOCK));
        }
    }

    /// Counts all entries of a directory. None: it cannot be read, or was moved here after it was counted.
    fn enter(&mut self, dir: &OwnedFd, name: OsString) -> Option<Level> {
        let mut level = Level { identity: identity(dir)?, name, ahead: Vec::new() };
        if !self.entered.insert(level.identity) {
            return None;
        }
        for entry in Dir::read_from(dir).ok()?.flatten() {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let Ok(about) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            self.add(&about);
            if FileType::from_raw_mode(about.st_mode).is_dir() {
                level.ahead.push(name.to_owned());
            }
        }
        Some(level)
    }
}

fn open_dir(parent: impl AsFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

fn identity(dir: &OwnedFd) -> Option<(u64, u64)> {
    rustix::fs::fstat(dir).ok().map(|about| (about.st_dev, about.st_ino))
}

/// Goes down from the top again, as far as the directories are where they were. The levels below are left out.
fn find(top: &OwnedFd, levels: &mut Vec<Level>) -> Option<OwnedFd> {
    let mut here = top.try_clone().ok()?;
    let mut found = 1;
    for level in levels.iter().skip(1) {
        match open_dir(&here, &level.name).ok().filter(|below| identity(below) == Some(level.identity)) {
            Some(below) => here = below,
            None => break,
        }
        found += 1;
    }
    levels.truncate(found);
    Some(here)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn files_belong_to_containers_by_their_names() {
        for (file, container) in [
            ("main.0.tmp", Some("main")),
            ("main.12.3.log", Some("main")),
            ("a.b.0.tmp", Some("a.b")),
            ("a.0.1.2.log", Some("a.0")),
            ("main.0.stage", None),
            ("main.tmp", None),
            ("main.x.tmp", None),
            ("main.0.x.log", None),
            ("volumes", None),
            (".fresh", None),
        ] {
            assert_eq!(container_of(file), container, "{file}");
        }
    }

    #[test]
    fn what_a_pod_has_written_is_counted_once_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let pod = PodUid::from_u128(7);
        assert_eq!(measure(&layout, &pod), StorageUsage::default());
        let volumes = layout.volumes(&pod).unwrap();
        let elsewhere = root.path().join("elsewhere");
        for dir in
            [volumes.join("v/deep"), volumes.join("w"), layout.pod(&pod).unwrap().join("main.0.tmp"), elsewhere.clone()]
        {
            fs::create_dir_all(dir).unwrap();
        }
        let mib = vec![b'x'; 1 << 20];
        let write = |path: PathBuf| fs::write(path, &mib).unwrap();
        write(volumes.join("v/deep/file"));
        fs::hard_link(volumes.join("v/deep/file"), volumes.join("v/same")).unwrap();
        write(elsewhere.join("file"));
        symlink(&elsewhere, volumes.join("v/link")).unwrap();
        symlink(&elsewhere, volumes.join("host")).unwrap();
        for file in ["main.0.tmp/file", "main.0.0.log", "main.1.0.log", "side.0.3.log", "main.0.stage"] {
            write(layout.pod(&pod).unwrap().join(file));
        }
        fs::create_dir(layout.words()).unwrap();
        for file in [format!("{pod}.side.0"), format!("{}.side.0", PodUid::from_u128(8)), format!("{pod}.side")] {
            write(layout.words().join(file));
        }
        // A file that was made longer without writing to it occupies nothing.
        fs::File::create(volumes.join("w/sparse")).unwrap().set_len(1 << 30).unwrap();
        let usage = measure(&layout, &pod);
        let mib = |bytes: u64| bytes >> 20;
        assert_eq!(usage.volumes.len(), 2, "{usage:?}");
        assert_eq!((mib(usage.volume("v")), mib(usage.volume("w")), usage.volume("host")), (1, 0, 0), "{usage:?}");
        assert_eq!((mib(usage.container("main")), mib(usage.container("side"))), (3, 2), "{usage:?}");
    }

    /// A path has at most 4096 bytes, and the kernel gives no process a descriptor for each level.
    #[test]
    fn what_is_below_a_path_of_any_length_is_counted() {
        let place = tempfile::tempdir().unwrap();
        let (top, below) = (place.path().join("top"), place.path().join("below"));
        let mib = vec![b'x'; 1 << 20];
        fs::create_dir(&below).unwrap();
        fs::write(below.join("file"), mib.repeat(16)).unwrap();
        for level in 0..3000 {
            fs::create_dir(&top).unwrap();
            fs::rename(&below, top.join("directory")).unwrap();
            if level % 1000 == 0 {
                fs::create_dir(top.join("beside")).unwrap();
                fs::write(top.join("beside/file"), &mib).unwrap();
            }
            fs::rename(&top, &below).unwrap();
        }
        // On some file systems directories have a size, too, but not as much as the file at the bottom.
        assert!(of_tree(&below) >> 20 >= 19, "{}", of_tree(&below));
        super::super::volumes::delete(&below).unwrap();
    }

    #[test]
    fn what_was_moved_is_left_out_and_the_rest_is_found_again() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().join("top");
        fs::create_dir_all(top.join("a/b/c")).unwrap();
        let opened = |path: &Path| open_dir(CWD, path.as_os_str()).unwrap();
        let level = |path: &Path| {
            let name = path.file_name().unwrap().to_owned();
            Level { identity: identity(&opened(path)).unwrap(), name, ahead: Vec::new() }
        };
        let mut levels: Vec<_> = ["", "a", "a/b", "a/b/c"].map(|path| level(&top.join(path))).into();
        let found = find(&opened(&top), &mut levels).unwrap();
        assert_eq!((levels.len(), identity(&found)), (4, identity(&opened(&top.join("a/b/c")))));
        fs::rename(top.join("a/b"), place.path().join("away")).unwrap();
        symlink(place.path().join("away"), top.join("a/b")).unwrap();
        let found = find(&opened(&top), &mut levels).unwrap();
        assert_eq!((levels.len(), identity(&found)), (2, identity(&opened(&top.join("a")))));
    }
}
