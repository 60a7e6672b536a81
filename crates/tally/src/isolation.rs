//! Whether Pods are isolated, and what they must not see.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tally_node::shim::abilities;

use crate::up::default_data_dir;

/// What the Pods of a node can reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodIsolation {
    /// They have mount and PID namespaces of their own, without these paths.
    On { hidden: Vec<PathBuf> },
    /// They are processes like any other. `why`: isolation is not possible here; None: it was not wanted.
    Off { why: Option<String> },
}

impl PodIsolation {
    /// `wanted`: what the user asked for; None: isolation where the machine permits it. `own`: the node's files and
    /// credentials.
    pub fn choose(wanted: Option<bool>, own: &[&Path]) -> Result<Self> {
        if wanted == Some(false) {
            return Ok(Self::Off { why: None });
        }
        let program = std::env::current_exe().context("cannot find the path of this executable")?;
        match abilities::try_isolation(&program) {
            Ok(()) => Ok(Self::On { hidden: hidden(own, |name| std::env::var_os(name).map(PathBuf::from)) }),
            Err(why) if wanted == Some(true) => bail!("--isolate: Pods cannot be isolated on this machine: {why}"),
            Err(why) => Ok(Self::Off { why: Some(why) }),
        }
    }

    pub fn is_on(&self) -> bool {
        matches!(self, Self::On { .. })
    }

    /// For the message at the start.
    pub fn describe(&self) -> String {
        let reach = "they can read the keys and the kubeconfig of this cluster, and the files of other Pods";
        match self {
            Self::On { .. } => "isolated from each other, from the data directory and from the kubeconfig".to_owned(),
            Self::Off { why: None } => format!("not isolated: {reach}"),
            Self::Off { why: Some(why) } => format!("not isolated, which is not possible here ({why}): {reach}"),
        }
    }
}

/// The node's own paths, and other places where this user keeps credentials of clusters.
fn hidden(own: &[&Path], variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let mut hidden: Vec<PathBuf> = own.iter().map(|path| path.to_path_buf()).collect();
    hidden.extend(default_data_dir().ok());
    hidden.extend(variable("HOME").filter(|home| home.is_absolute()).map(|home| home.join(".kube")));
    let configured = variable("KUBECONFIG").unwrap_or_default();
    let files = std::env::split_paths(&configured).filter(|path| path.is_file());
    hidden.extend(files.filter_map(|path| std::path::absolute(path).ok()));
    let mut seen = std::collections::BTreeSet::new();
    hidden.retain(|path| seen.insert(path.clone()));
    hidden
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_the_user_are_hidden_with_those_of_the_node() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let variable = |name: &str| match name {
            "HOME" => Some(PathBuf::from("/home/me")),
            "KUBECONFIG" => Some(PathBuf::from(format!("{}:/not/there:relative:Cargo.toml", file.path().display()))),
            _ => None,
        };
        let found = hidden(&[Path::new("/data"), Path::new("/data")], variable);
        let default = default_data_dir().ok();
        let relative = std::path::absolute("Cargo.toml").unwrap();
        let expected = [
            Some(Path::new("/data")),
            default.as_deref(),
            Some(Path::new("/home/me/.kube")),
            Some(file.path()),
            Some(&relative),
        ];
        assert_eq!(found, expected.into_iter().flatten().collect::<Vec<_>>());
    }

    #[test]
    fn what_pods_can_reach_is_said() {
        assert!(PodIsolation::Off { why: None }.describe().starts_with("not isolated: they can read the keys"));
        let why = Some("no namespaces".to_owned());
        assert!(PodIsolation::Off { why }.describe().contains("not possible here (no namespaces): they can read"));
        assert_eq!(PodIsolation::choose(Some(false), &[]).unwrap(), PodIsolation::Off { why: None });
    }
}
