//! What a Pod costs, without a clock: how often it allocates, how much, and what it writes, from its creation to its release,
//! with the controllers of `tally up` on the real registry. These figures are the same on every machine and follow the
//! processor time of a Pod. They are held to those of `cost.txt`: a change that makes a Pod dearer says so in that file.
//!
//! Builds without optimisation check again what is skipped (`debug_assert`), so the memory is held in optimised ones only, which
//! `make sim` runs. `TALLY_COST=write cargo test --release -p tally-embedded --test cost` writes the file anew.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fmt::Write;

use serde_json::{Value, json};
use support::{Cluster, kinds};
use tally_controllers::gc::GarbageCollector;
use tally_controllers::hollow::Hollow;
use tally_controllers::job::{Config, JobController};
use tally_controllers::pod_gc::{PodGc, PodGcOptions};
use tally_controllers::scheduler::Scheduler;
use tally_controllers::ttl::TtlController;
use tally_runtime::controller::{Controller, Kind};

const TOLERANCE: f64 = 0.03;
const PARALLELISM: u32 = 20;
/// Whether nothing is done here that is not done in production.
fn is_optimised() -> bool {
    !cfg!(debug_assertions)
}

const FIGURES: [&str; 4] = ["allocations", "bytes", "requests", "revisions"];

fn controllers() -> Vec<Box<dyn Controller>> {
    vec![
        Box::new(JobController::new(Config::default())),
        Box::new(Scheduler::default()),
        Box::new(Hollow::new(3)),
        Box::new(TtlController::default()),
        Box::new(PodGc::new(PodGcOptions::default())),
        Box::new(GarbageCollector::new(kinds())),
    ]
}

/// What a whole Job costs, in the order of [`FIGURES`], beside so many Pods without a controller that have ended.
fn job_cost(mode: &str, completions: u32, bare: u32) -> [f64; 4] {
    let mut cluster = Cluster::new(controllers());
    for number in 0..bare {
        let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
        let metadata = json!({"name": format!("bare-{number}"), "labels": {"app": "bare"}});
        cluster.create(Kind::POD, "default", &json!({"metadata": metadata, "spec": spec}));
    }
    cluster.pass(600);
    for number in 0..bare {
        let pod = cluster.get(Kind::POD, "default", &format!("bare-{number}")).unwrap();
        assert_eq!(pod["status"]["phase"], "Succeeded");
    }
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({
        "completions": completions, "parallelism": PARALLELISM, "completionMode": mode, "template": template,
    });
    let revision = |job: &Value| job["metadata"]["resourceVersion"].as_str().unwrap().parse::<f64>().unwrap();
    let created = cluster.create(Kind::JOB, "default", &json!({"metadata": {"name": "j"}, "spec": spec}));
    let requests = cluster.log.len();
    let spent = allocation_counter::measure(|| cluster.pass(600));
    let job = cluster.get(Kind::JOB, "default", "j").unwrap();
    assert_eq!(job["status"]["succeeded"], completions, "{mode}");
    let requests = (cluster.log.len() - requests) as f64;
    // The end of the Job is its last write.
    [spent.count_total as f64, spent.bytes_total as f64, requests, revision(&job) - revision(&created)]
}

/// What each further Pod costs, between two sizes of a Job.
fn pod_cost(mode: &str, from: u32, to: u32, bare: u32) -> [f64; 4] {
    let (small, large) = (job_cost(mode, from, bare), job_cost(mode, to, bare));
    std::array::from_fn(|at| (large[at] - small[at]) / f64::from(to - from))
}

#[test]
fn a_pod_costs_what_it_did_and_no_more_in_a_large_job() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cost.txt");
    let recorded = std::fs::read_to_string(path).unwrap_or_default();
    let (mut told, mut changed) = (String::new(), Vec::new());
    for mode in ["Indexed", "NonIndexed"] {
        // A status counts at most 500 Pods: a whole round of that.
        let sizes = [(50, 150), (500, 1000)];
        let costs = sizes.map(|(from, to)| (from, to, pod_cost(mode, from, to, 0)));
        for (from, to, cost) in &costs {
            for (figure, value) in FIGURES.iter().zip(cost) {
                let name = format!("{mode} {from} to {to}, {figure}:");
                writeln!(told, "{name} {value:.2}").unwrap();
                let before = recorded.lines().find_map(|line| line.strip_prefix(&name)?.trim().parse::<f64>().ok());
                let is_held = is_optimised() || ["requests", "revisions"].contains(figure);
                if is_held && before.is_none_or(|before| (value - before).abs() > before * TOLERANCE) {
                    changed.push(format!("{name} {value:.2}, was {before:?}"));
                }
            }
        }
        let [(.., small), (.., large)] = &costs;
        for ((figure, small), large) in FIGURES.iter().zip(small).zip(large) {
            assert!(*large <= small * 1.1, "{mode}: {figure} of a Pod grow with the Job: {small:.2}, then {large:.2}");
        }
    }
    if std::env::var("TALLY_COST").is_ok_and(|wish| wish == "write") {
        assert!(is_optimised(), "only an optimised build writes the file");
        std::fs::write(path, &told).unwrap();
        return;
    }
    assert!(changed.is_empty(), "a Pod costs other than {path} says; if that is right, write it anew: {changed:#?}");
}

/// Finished Pods without a controller are no work for the controllers of others: 1,000 of them made a small Job a hundred times
/// as dear (C1).
#[test]
fn a_pod_costs_the_same_beside_200_finished_pods_without_a_controller() {
    for mode in ["Indexed", "NonIndexed"] {
        let [alone, beside] = [0, 200].map(|bare| pod_cost(mode, 50, 150, bare));
        for ((figure, alone), beside) in FIGURES.iter().zip(alone).zip(beside) {
            let is_held = is_optimised() || ["requests", "revisions"].contains(figure);
            assert!(
                !is_held || beside <= alone * (1.0 + TOLERANCE),
                "{mode}, {figure}: {alone:.2} alone, then {beside:.2}"
            );
        }
    }
}
