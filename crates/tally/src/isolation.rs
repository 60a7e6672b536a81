//! Whether Pods are isolated, and what they must not see.

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, lchown};
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
            Ok(()) => {
                let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
                let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
                let homes = homes(variable, &passwd, rustix::process::geteuid().as_raw());
                homes.iter().for_each(|home| make_kube(home));
                Ok(Self::On { hidden: hidden(own, variable, &homes) })
            }
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

/// The home directories of the user who runs Tally: that of the environment, that of the list of users, and that of the
/// user who became root to run it.
fn homes(variable: impl Fn(&str) -> Option<PathBuf>, passwd: &str, user: u32) -> Vec<PathBuf> {
    let entries = || passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).filter(|entry| entry.len() > 5);
    let home = |entry: Vec<&str>| PathBuf::from(entry[5]);
    let before = variable("SUDO_USER");
    let listed = entries().find(|entry| entry[2].parse() == Ok(user)).map(home);
    let of_sudo = entries().find(|entry| before.as_deref() == Some(Path::new(entry[0]))).map(home);
    let mut homes = Vec::new();
    for home in [variable("HOME"), listed, of_sudo].into_iter().flatten() {
        if home.is_absolute() && home != Path::new("/") && !homes.contains(&home) {
            homes.push(home);
        }
    }
    homes
}

/// Makes `~/.kube`, if there is none: one that is made while a Pod runs could not be hidden from it. What fails here would
/// fail for the user as well.
fn make_kube(home: &Path) {
    let Ok(owner) = std::fs::metadata(home).map(|about| (about.uid(), about.gid())) else { return };
    let kube = home.join(".kube");
    if DirBuilder::new().mode(0o700).create(&kube).is_ok() {
        let _ = lchown(&kube, Some(owner.0), Some(owner.1));
    }
}

/// The node's own paths, and other places where this user keeps credentials of clusters.
fn hidden(own: &[&Path], variable: impl Fn(&str) -> Option<PathBuf>, homes: &[PathBuf]) -> Vec<PathBuf> {
    let mut hidden: Vec<PathBuf> = own.iter().map(|path| path.to_path_buf()).collect();
    hidden.extend(default_data_dir().ok());
    for home in homes {
        hidden.extend([home.join(".kube"), home.join(".local/share/tally")]);
    }
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
            "KUBECONFIG" => Some(PathBuf::from(format!("{}:/not/there:relative:Cargo.toml", file.path().display()))),
            _ => None,
        };
        let found = hidden(&[Path::new("/data"), Path::new("/data")], variable, &["/home/me".into()]);
        let default = default_data_dir().ok();
        let relative = std::path::absolute("Cargo.toml").unwrap();
        let expected = [
            Some(Path::new("/data")),
            default.as_deref(),
            Some(Path::new("/home/me/.kube")),
            Some(Path::new("/home/me/.local/share/tally")),
            Some(file.path()),
            Some(&relative),
        ];
        assert_eq!(found, expected.into_iter().flatten().collect::<Vec<_>>());
    }

    #[test]
    fn a_user_has_the_homes_of_the_environment_of_the_list_and_of_sudo() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nodd:x:7\nd:x:2:2::/:/x\n";
        let found = |home: Option<&str>, sudo: Option<&str>, user: u32| {
            let variable = |name: &str| match name {
                "HOME" => home.map(PathBuf::from),
                "SUDO_USER" => sudo.map(PathBuf::from),
                _ => None,
            };
            homes(variable, passwd, user).iter().map(|home| home.display().to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(found(Some("/elsewhere"), None, 0), "/elsewhere /root");
        assert_eq!(found(None, None, 0), "/root");
        assert_eq!(found(Some("/root"), Some("ann"), 0), "/root /home/ann");
        assert_eq!(found(Some("relative"), Some("nobody-here"), 1000), "/home/ann");
        assert_eq!((found(None, Some("odd"), 7), found(Some("/"), None, 2)), (String::new(), String::new()));
    }

    #[test]
    fn the_directory_for_credentials_exists_before_pods_do() {
        let home = tempfile::tempdir().unwrap();
        make_kube(home.path());
        let kube = home.path().join(".kube");
        assert_eq!(std::fs::metadata(&kube).unwrap().mode() & 0o777, 0o700);
        std::fs::write(kube.join("config"), "kept").unwrap();
        make_kube(home.path());
        assert_eq!(std::fs::read_to_string(kube.join("config")).unwrap(), "kept");
        make_kube(&home.path().join("not-there"));
        assert!(!home.path().join("not-there").exists());
    }

    #[test]
    fn what_pods_can_reach_is_said() {
        assert!(PodIsolation::Off { why: None }.describe().starts_with("not isolated: they can read the keys"));
        let why = Some("no namespaces".to_owned());
        assert!(PodIsolation::Off { why }.describe().contains("not possible here (no namespaces): they can read"));
        assert_eq!(PodIsolation::choose(Some(false), &[]).unwrap(), PodIsolation::Off { why: None });
    }
}
