//! `tally bench`, as programs read it. Nothing here asserts a time.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn bench(directory: &Path, arguments: &[&str]) -> Output {
    // GNU parallel, which is measured where it is installed, writes to the home directory.
    let home = tally_testing::scratch();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.arg("bench").args(arguments).current_dir(directory).env("HOME", home.path()).output().unwrap()
}

fn lines(said: &Output) -> Vec<Value> {
    assert_eq!(said.status.code(), Some(0), "{}", String::from_utf8_lossy(&said.stderr));
    let text = String::from_utf8(said.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

#[test]
fn the_smallest_case_has_all_its_figures_and_leaves_nothing_behind() {
    let directory = tally_testing::scratch();
    let said = bench(directory.path(), &["jobs", "1x1", "--directory", ".", "-o", "json"]);
    let [figures] = &lines(&said)[..] else { panic!("one line: {said:?}") };
    assert_eq!((&figures["case"], &figures["pods"], &figures["small_jobs"]), (&"1x1".into(), &40.into(), &40.into()));
    let positive = [
        "/wall_seconds",
        "/pods_per_minute",
        "/processor_seconds/server",
        "/processor_us_per_pod/server",
        "/peak_memory_bytes/server",
        "/requests_per_pod",
        "/requests/create pods",
        "/counted_ms/p99",
        "/small_job_ms/p50",
        "/disk_sync_ms",
    ];
    for pointer in positive {
        let value = figures.pointer(pointer).and_then(Value::as_f64);
        assert!(value.is_some_and(|value| value > 0.0), "{pointer}: {figures}");
    }
    assert!(figures.get("target").is_none() && figures["processor_seconds"]["bench"].is_number(), "{figures}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "the data of the server is removed");
}

#[test]
fn tasks_of_tally_run_are_measured_beside_xargs() {
    let directory = tally_testing::scratch();
    let said = bench(directory.path(), &["run", "--count", "10", "--rounds", "1", "--directory", ".", "-o", "json"]);
    let figures = lines(&said);
    for (name, tasks) in
        [("tally run", 10), ("tally run --each", 10), ("tally run --data-dir", 10), ("tally run -- true", 1)]
    {
        let of = figures.iter().find(|one| one["tool"] == name).unwrap_or_else(|| panic!("no {name}: {figures:?}"));
        assert!(of["tasks"] == tasks && of["best_seconds"].as_f64() > Some(0.0), "{of}");
        assert!(of["median_seconds"].as_f64() >= of["best_seconds"].as_f64() && of["disk_sync_ms"].is_number(), "{of}");
        assert_eq!(of.get("shim_us_per_task").is_some(), tasks > 1, "{of}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "lists and data are removed");
}

#[test]
fn figures_become_a_picture() {
    let directory = tally_testing::scratch();
    let line = r#"{"case":"1x1000-indexed","series":"Indexed","pods":1000,"wall_seconds":0.5,"processor_us_per_pod":{"server":400}}"#;
    fs::write(directory.path().join("figures.json"), line).unwrap();
    let said = bench(directory.path(), &["plot", "figures.json"]);
    assert!(said.status.success() && said.stdout.starts_with(b"<svg "), "{said:?}");
    for wrong in [&["plot", "missing.json"][..], &["jobs", "2x2"], &["jobs", "--pid", "a=1"], &["jobs", "1x1", "--all"]]
    {
        assert_eq!(bench(directory.path(), wrong).status.code(), Some(2), "{wrong:?}");
    }
    let said = bench(directory.path(), &["jobs", "--list"]);
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(text.lines().any(|line| line.starts_with("1x1 ") && line.ends_with("(quick)")), "{text}");
}
