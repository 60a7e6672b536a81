//! Copies of the fixtures.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::client::{Api, Call};

/// The directories of all versions that there are fixtures of.
pub fn versions() -> Vec<PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut found: Vec<PathBuf> = fs::read_dir(all).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.join("up.tar.gz").exists());
    found.sort();
    assert!(!found.is_empty());
    found
}

/// An archive of a version, in a directory of its own.
pub fn unpacked(version: &Path, archive: &str) -> TempDir {
    let directory = tally_testing::scratch();
    let mut tar = Command::new("tar");
    // Files belong to the user who runs the tests.
    tar.args(["-xz", "--no-same-owner", "-f"]).arg(version.join(archive)).arg("-C").arg(directory.path());
    assert!(tar.status().unwrap().success(), "{archive}");
    directory
}

/// The backup of a version, in a directory.
pub fn backup(version: &Path, directory: &Path) -> PathBuf {
    let path = directory.join("up.bak");
    let unpacked = Command::new("gzip").arg("-dc").arg(version.join("up.bak.gz")).output().unwrap();
    assert!(unpacked.status.success());
    fs::write(&path, unpacked.stdout).unwrap();
    path
}

/// All objects of `up`, as the version that made it has listed them, by the path of the list.
pub struct Objects(BTreeMap<String, Vec<Value>>);

impl Objects {
    pub fn read(directory: &Path) -> Self {
        let text = fs::read_to_string(directory.join("objects.json")).unwrap();
        Self(serde_json::from_str(&text).unwrap())
    }

    pub fn of(&self, path: &str) -> &[Value] {
        &self.0[path]
    }

    pub fn jobs(&self) -> &[Value] {
        self.of("/apis/batch/v1/jobs")
    }

    /// How many are stored. Events have two paths.
    pub fn count(&self) -> usize {
        let stored = self.0.iter().filter(|(path, _)| !path.starts_with("/apis/events.k8s.io/"));
        stored.map(|(_, objects)| objects.len()).sum()
    }

    /// The server has the same objects, with the same content, and no others.
    pub async fn are_in(&self, api: &Api) {
        for (path, expected) in &self.0 {
            let found = items(api, path).await;
            let names = |objects: &[Value]| -> Vec<String> { objects.iter().map(name_and_uid).collect() };
            assert_eq!(names(&found), names(expected), "{path}");
            for (found, expected) in found.iter().zip(expected).filter(|(_, expected)| !is_of_the_server(expected)) {
                assert_eq!(found, expected, "{path}");
            }
        }
    }
}

/// The server brings these objects up to date when it starts.
fn is_of_the_server(object: &Value) -> bool {
    object["metadata"]["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"
}

fn name_and_uid(object: &Value) -> String {
    let metadata = &object["metadata"];
    format!("{} {} {}", metadata["namespace"], metadata["name"], metadata["uid"])
}

pub async fn call(api: &Api, call: Call) -> Value {
    let answer = api.connection().call(&call).await.unwrap();
    assert!(answer.code < 300, "{} {}: {} {}", call.method, call.path, answer.code, answer.text);
    answer.value()
}

pub async fn items(api: &Api, path: &str) -> Vec<Value> {
    let mut list = call(api, Call::get(path)).await;
    serde_json::from_value(list["items"].take()).unwrap()
}
