//! Replays the fuzzing corpus as ordinary tests, with their toolchain and in their time.

#[path = "../../../fuzz/api_properties.rs"]
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
fn object() {
    replay("object", properties::object);
}

#[test]
fn apply() {
    replay("apply", properties::apply);
}

#[test]
fn patches() {
    replay("patches", properties::patches);
}

#[test]
fn quantity() {
    replay("quantity", properties::quantity_text);
}

#[test]
fn schedule() {
    replay("schedule", properties::schedule_text);
}

#[test]
fn selectors() {
    replay("selectors", properties::selectors);
}
