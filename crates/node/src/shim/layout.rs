//! Where things are under the node's root directory (the picture is in `shim/mod.rs`).

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

    pub fn containers(&self, pod: &PodUid) -> io::Result<PathBuf> {
        Ok(self.pod(pod)?.join("containers"))
    }

    pub fn attempt(&self, attempt: &Attempt) -> io::Result<PathBuf> {
        let container = plain(&attempt.container)?;
        Ok(self.containers(&attempt.pod)?.join(format!("{container}.{}", attempt.number)))
    }

    /// All attempts of a Pod there is a directory of, in order.
    pub fn attempts(&self, pod: &PodUid) -> io::Result<Vec<Attempt>> {
        let mut attempts = Vec::new();
        for entry in std::fs::read_dir(self.containers(pod)?)? {
            let name = entry?.file_name();
            let Some((container, number)) = name.to_str().and_then(|name| name.rsplit_once('.')) else { continue };
            let Ok(number) = number.parse() else { continue };
            attempts.push(Attempt { pod: pod.clone(), container: CompactString::new(container), number });
        }
        attempts.sort();
        Ok(attempts)
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
}
