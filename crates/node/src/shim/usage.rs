//! How much disk space a Pod uses: its volumes, and what its containers have written to their logs and to their own /tmp.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use compact_str::CompactString;
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
    stem.rsplit_once('.').filter(|(_, attempt)| number(attempt)).map(|(container, _)| container)
}

/// What a file or directory occupies on the disk. A file with several names counts once.
fn of_tree(path: &Path) -> u64 {
    let mut seen = HashSet::new();
    let mut bytes = 0_u64;
    let mut ahead: Vec<PathBuf> = vec![path.to_owned()];
    while let Some(path) = ahead.pop() {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.nlink() > 1 && !metadata.is_dir() && !seen.insert((metadata.dev(), metadata.ino())) {
            continue;
        }
        bytes = bytes.saturating_add(metadata.blocks().saturating_mul(BLOCK));
        if metadata.is_dir() {
            ahead.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    bytes
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::symlink;

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
        // A file that was made longer without writing to it occupies nothing.
        fs::File::create(volumes.join("w/sparse")).unwrap().set_len(1 << 30).unwrap();
        let usage = measure(&layout, &pod);
        let mib = |bytes: u64| bytes >> 20;
        assert_eq!(usage.volumes.len(), 2, "{usage:?}");
        assert_eq!((mib(usage.volume("v")), mib(usage.volume("w")), usage.volume("host")), (1, 0, 0), "{usage:?}");
        assert_eq!((mib(usage.container("main")), mib(usage.container("side"))), (3, 1), "{usage:?}");
    }
}
