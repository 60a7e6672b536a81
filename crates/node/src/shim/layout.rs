//! Where things are under the node's root directory (the picture is in `shim/mod.rs`).

use std::fs;
use std::io;
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

    pub fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    /// What is on its way out. One rename takes a Pod here, so that it is never half there.
    pub fn trash(&self) -> PathBuf {
        self.root.join("trash")
    }

    pub fn pod(&self, pod: &PodUid) -> io::Result<PathBuf> {
        Ok(self.pods().join(plain(&pod.to_string())?))
    }

    pub fn volumes(&self, pod: &PodUid) -> io::Result<PathBuf> {
        Ok(self.pod(pod)?.join("volumes"))
    }

    pub fn volume(&self, pod: &PodUid, volume: &str) -> io::Result<PathBuf> {
        Ok(self.volumes(pod)?.join(plain(volume)?))
    }

    pub fn attempt(&self, attempt: &Attempt) -> io::Result<Slot> {
        let container = plain(&attempt.container)?;
        Ok(Slot { dir: self.pod(&attempt.pod)?, stem: format!("{container}.{}", attempt.number) })
    }

    /// All attempts of a Pod there is a record of, in order.
    pub fn attempts(&self, pod: &PodUid) -> io::Result<Vec<Attempt>> {
        let mut attempts = Vec::new();
        for entry in fs::read_dir(self.pod(pod)?)? {
            let name = entry?.file_name();
            let stem = name.to_str().and_then(|name| name.strip_suffix(".record"));
            let Some((container, number)) = stem.and_then(|stem| stem.rsplit_once('.')) else { continue };
            let Ok(number) = number.parse() else { continue };
            attempts.push(Attempt { pod: pod.clone(), container: CompactString::new(container), number });
        }
        attempts.sort();
        Ok(attempts)
    }
}

/// The files of one attempt: in its Pod's directory, each with the attempt's name in front. Directories of their own
/// would be tidier, but making and removing them costs more than all else about a short process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    dir: PathBuf,
    stem: String,
}

impl Slot {
    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{}.{name}", self.stem))
    }

    pub fn record(&self) -> PathBuf {
        self.file("record")
    }

    /// Its last words, whatever `terminationMessagePath` says.
    pub fn termination_log(&self) -> PathBuf {
        self.file("termination-log")
    }

    /// An empty directory for the launcher to work in.
    pub fn stage(&self) -> PathBuf {
        self.file("stage")
    }

    pub fn log(&self, number: u64) -> PathBuf {
        self.file(&format!("{number}.log"))
    }

    /// The numbers of the log files there are, in order.
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

    /// Nothing ever ran: its number is free again. The record goes last.
    pub fn erase(&self) {
        for number in self.logs().unwrap_or_default() {
            let _ = fs::remove_file(self.log(number));
        }
        let _ = fs::remove_file(self.termination_log());
        let _ = fs::remove_dir(self.stage());
        let _ = fs::remove_file(self.record());
    }
}

/// A UID or name becomes the name of a directory only if it can name nothing else.
fn plain(name: &str) -> io::Result<&str> {
    // File names end at 255 bytes; the number of the attempt needs some of them.
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
        for name in ["a.0", "a.10", "a.2", "a.0.1", "about.json", "b.x", "record"] {
            fs::write(layout.pod(&pod).unwrap().join(format!("{name}.record")), "").unwrap();
        }
        for name in ["a.0.0.log", "a.0.12.log", "a.0.7.log", "a.0.1.3.log", "a.10.5.log", "a.0.x.log"] {
            fs::write(layout.pod(&pod).unwrap().join(name), "").unwrap();
        }
        let attempts = layout.attempts(&pod).unwrap();
        let named: Vec<_> = attempts.iter().map(|attempt| (attempt.container.as_str(), attempt.number)).collect();
        assert_eq!(named, [("a", 0), ("a", 2), ("a", 10), ("a.0", 1)]);
        let logs: Vec<_> = attempts.iter().map(|attempt| layout.attempt(attempt).unwrap().logs().unwrap()).collect();
        assert_eq!(logs, [vec![0, 7, 12], vec![], vec![5], vec![3]]);
    }
}
