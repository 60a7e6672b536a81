//! The paths under the node's root directory (`shim/mod.rs` has an overview).

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use compact_str::CompactString;
use tally_core::ids::PodUid;

use crate::port::Attempt;

#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// The record of all attempts: see `journal.rs`.
    pub fn journal(&self) -> PathBuf {
        self.root.join("journal")
    }

    /// The path of the control groups that a shim of this directory uses.
    pub fn cgroup(&self) -> PathBuf {
        self.root.join("cgroup")
    }

    /// The termination messages of running attempts.
    pub fn words(&self) -> PathBuf {
        self.root.join("words")
    }

    pub fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    /// Pods that are being removed. A single rename moves a Pod here, so that it is never partly there.
    pub fn trash(&self) -> PathBuf {
        self.root.join("trash")
    }

    pub fn pod(&self, pod: &PodUid) -> io::Result<PathBuf> {
        Ok(self.pods().join(plain(&pod.to_string())?))
    }

    /// Accessible only to the node's user: the files inside may then have the modes that containers expect. Created
    /// when there is something to put there.
    pub fn make_pod(&self, pod: &PodUid) -> io::Result<()> {
        make_private(&self.pod(pod)?)
    }

    /// The directories of claims. They stay when Pods end.
    pub fn claims(&self) -> PathBuf {
        self.root.join("claims")
    }

    pub fn claim(&self, uid: &str) -> io::Result<PathBuf> {
        Ok(self.claims().join(plain(uid)?))
    }

    pub fn volumes(&self, pod: &PodUid) -> io::Result<PathBuf> {
        Ok(self.pod(pod)?.join("volumes"))
    }

    pub fn volume(&self, pod: &PodUid, volume: &str) -> io::Result<PathBuf> {
        Ok(self.volumes(pod)?.join(plain(volume)?))
    }

    /// The list of files in a volume that the node wrote. It is next to the volume: no volume's name begins with a dot.
    pub fn written(&self, pod: &PodUid, volume: &str) -> io::Result<PathBuf> {
        Ok(self.volumes(pod)?.join(format!(".{}", plain(volume)?)))
    }

    /// A file is written here before it is moved to its place. There is only one at a time.
    pub fn fresh(&self, pod: &PodUid) -> io::Result<PathBuf> {
        Ok(self.pod(pod)?.join(".fresh"))
    }

    pub fn attempt(&self, attempt: &Attempt) -> io::Result<AttemptDir> {
        let container = plain(&attempt.container)?;
        let stem = format!("{container}.{}", attempt.number);
        let words = self.words().join(format!("{}.{stem}", plain(&attempt.pod.to_string())?));
        Ok(AttemptDir { dir: self.pod(&attempt.pod)?, stem, words })
    }

    /// All attempts of a Pod that have written output, in order.
    pub fn attempts(&self, pod: &PodUid) -> io::Result<Vec<Attempt>> {
        let mut attempts = Vec::new();
        for entry in fs::read_dir(self.pod(pod)?)? {
            let name = entry?.file_name();
            let numbered = name.to_str().and_then(|name| name.strip_suffix(".log")?.rsplit_once('.'));
            let Some((stem, _)) = numbered.filter(|(_, file)| file.parse::<u64>().is_ok()) else { continue };
            let Some((container, Ok(number))) = stem.rsplit_once('.').map(|(name, number)| (name, number.parse()))
            else {
                continue;
            };
            attempts.push(Attempt { pod: pod.clone(), container: CompactString::new(container), number });
        }
        attempts.sort();
        attempts.dedup();
        Ok(attempts)
    }
}

fn make_private(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        outcome => outcome,
    }
}

/// The files of one attempt: in its Pod's directory, each prefixed with the attempt's name. None of them is created
/// before there is something to write: creating and removing files costs more than everything else about a short
/// process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptDir {
    dir: PathBuf,
    stem: String,
    words: PathBuf,
}

impl AttemptDir {
    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{}.{name}", self.stem))
    }

    /// Its termination message, whatever `terminationMessagePath` is. In a directory that exists from the beginning.
    pub fn termination_log(&self) -> &Path {
        &self.words
    }

    /// Creates the directory of the other files.
    pub fn make_dir(&self) -> io::Result<()> {
        make_private(&self.dir)
    }

    /// Moves the /tmp of a container that has ended to the trash, where it is deleted later. False: there is none.
    pub fn discard_tmp(&self, trash: &Path) -> bool {
        let pod = self.dir.file_name().unwrap_or_default().to_string_lossy();
        fs::rename(self.tmp(), trash.join(format!("{pod}.{}.tmp", self.stem))).is_ok()
    }

    /// An empty directory for the launcher to work in.
    pub fn stage(&self) -> PathBuf {
        self.file("stage")
    }

    /// The /tmp of an isolated container.
    pub fn tmp(&self) -> PathBuf {
        self.file("tmp")
    }

    pub fn log(&self, number: u64) -> PathBuf {
        self.file(&format!("{number}.log"))
    }

    /// The numbers of the existing log files, in order.
    pub fn logs(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            let own = name.to_str().and_then(|name| name.strip_prefix(&self.stem)?.strip_prefix('.'));
            numbers.extend(own.and_then(|name| name.strip_suffix(".log")?.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The termination message has been read.
    pub fn forget_words(&self) {
        let _ = fs::remove_file(&self.words);
    }

    /// The files are no longer needed.
    pub fn erase(&self) {
        for number in self.logs().unwrap_or_default() {
            let _ = fs::remove_file(self.log(number));
        }
        self.forget_words();
        let _ = fs::remove_dir(self.stage());
        let _ = super::volumes::delete(&self.tmp());
    }
}

/// A UID or name becomes the name of a directory only if it cannot refer to any other path.
fn plain(name: &str) -> io::Result<&str> {
    // File names have at most 255 bytes; the number of the attempt needs some of them.
    let fits = (1..=200).contains(&name.len());
    let tame = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    if fits && tame && !name.starts_with('.') {
        Ok(name)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} cannot be the name of a directory")))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_lead_elsewhere_are_refused() {
        for (name, fine) in [
            ("3b241101-e2bb-4255-8caf-4136c566a962", true),
            ("pod-7", true),
            ("", false),
            (".", false),
            ("..", false),
            (".hidden", false),
            ("a/b", false),
            ("a\0b", false),
            (&"x".repeat(200), true),
            (&"x".repeat(201), false),
        ] {
            assert_eq!(plain(name).is_ok(), fine, "{name:?}");
        }
    }

    #[test]
    fn attempts_and_their_logs_are_told_apart() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let pod = PodUid::from_u128(7);
        fs::create_dir_all(layout.pod(&pod).unwrap()).unwrap();
        let others = ["a.0.x.log", "b.x.0.log", "0.log", ".log", "a.0.record", "a.3.stage"];
        for name in ["a.0.0.log", "a.0.12.log", "a.0.7.log", "a.0.1.3.log", "a.10.5.log", "a.2.0.log"] {
            fs::write(layout.pod(&pod).unwrap().join(name), "").unwrap();
        }
        for name in others {
            fs::write(layout.pod(&pod).unwrap().join(name), "").unwrap();
        }
        let attempts = layout.attempts(&pod).unwrap();
        let named: Vec<_> = attempts.iter().map(|attempt| (attempt.container.as_str(), attempt.number)).collect();
        assert_eq!(named, [("a", 0), ("a", 2), ("a", 10), ("a.0", 1)]);
        let logs: Vec<_> = attempts.iter().map(|attempt| layout.attempt(attempt).unwrap().logs().unwrap()).collect();
        assert_eq!(logs, [vec![0, 7, 12], vec![0], vec![5], vec![3]]);
    }
}
