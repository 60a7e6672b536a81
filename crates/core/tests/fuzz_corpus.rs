//! Replays the fuzzing corpus, with the toolchain and in the time of ordinary tests.

#[path = "../../../fuzz/properties.rs"]
mod properties;

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

#[track_caller]
fn replay(target: &str, property: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut paths: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    for path in paths {
        let data = fs::read(&path).unwrap();
        assert!(catch_unwind(|| property(&data)).is_ok(), "{} does not hold", path.display());
    }
}

#[test]
fn index_text() {
    replay("index_text", properties::index_text);
}

#[test]
fn job_view() {
    replay("job_view", properties::job_view);
}

#[test]
fn pod_view() {
    replay("pod_view", properties::pod_view);
}

#[test]
fn status_rules() {
    replay("status_rules", properties::status_rules);
}
