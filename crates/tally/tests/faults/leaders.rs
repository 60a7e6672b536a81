//! Two controllers that both believe they lead, with nothing between them and the server.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::{Cluster, JOBS, ask, make};
use crate::process::{Controller, GIVE_UP_AFTER};
use crate::setting;
use crate::support::client::Call;
use crate::truth::{PodStory, Truth};
use crate::verdict::{Terms, judge};

/// Runs, completions and parallelism.
const SHORT: (u64, u64, u64) = (2, 200, 40);
const FULL: (u64, u64) = (1000, 200);

fn job(name: &str, mode: &str, completions: u64, parallelism: u64) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "completions": completions, "parallelism": parallelism, "completionMode": mode,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
    }})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_two_leaders_make_is_made_and_counted_once() {
    let (runs, completions, parallelism) = setting("TALLY_FAULT_RUNS").map_or(SHORT, |runs| (runs, FULL.0, FULL.1));
    let cluster = Cluster::start().await;
    let truth = Truth::begin(&cluster.api).await;
    let lead = |name: &str| Controller::start(&cluster.kubeconfig(), name, &["--leader-elect=false"]);
    let mut leaders = [lead("left"), lead("right")];
    for leader in &mut leaders {
        leader.until("ready", |leader| leader.said().contains("metrics are at") && leader.get("/readyz").0 == 200);
    }
    let mut wrongs = Vec::new();
    for run in 0..runs {
        let modes = ["NonIndexed", "Indexed"];
        let names = modes.map(|mode| format!("{}-{run}", mode.to_lowercase()));
        for (mode, name) in modes.iter().zip(&names) {
            make(&cluster.api, &job(name, mode, completions, parallelism)).await;
        }
        wait(&cluster, &truth, "finished", |story| !names.contains(&story.name) || story.finished()).await;
        for name in &names {
            let told = truth.told();
            let (uid, story) = told.jobs.iter().find(|(_, story)| story.name == *name).unwrap();
            let terms =
                Terms { parallelism: parallelism as usize, instances: 2, fixed_indexes: true, ..Terms::default() };
            let verdict = judge(story, told.pods_of(uid), &terms);
            let ever = told.pods_of(uid).filter(|pod| pod.phase == "Succeeded").count();
            println!(
                "run {run}, {name}: {} created, {ever} succeeded, {} removed, at most {} alive beyond parallelism",
                verdict.created, verdict.removed, verdict.excess
            );
            wrongs.extend(verdict.wrongs);
            if story.object["status"]["succeeded"] != completions || !story.condition("Complete") {
                wrongs.push(format!("{name} ends as {}", story.object["status"]));
            }
            if ever as u64 > completions {
                let twice = |pod: &&PodStory| told.pods_of(uid).filter(|other| other.index == pod.index).count() > 1;
                let indexed: Vec<&PodStory> =
                    told.pods_of(uid).filter(|pod| pod.index.is_some()).filter(twice).collect();
                wrongs.push(format!("{name}: {ever} Pods succeeded; of the same index: {indexed:#?}"));
            }
        }
        // Deletes the Jobs to make room for the next run.
        for name in &names {
            let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
            ask(&cluster.api, &Call::new("DELETE", format!("{JOBS}/{name}")).body(&options)).await;
        }
    }
    assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
    // Otherwise the test proves nothing.
    for leader in &leaders {
        let metrics = leader.get("/metrics").1;
        assert!(
            metrics.contains(r#"tally_requests_total{verb="create",resource="pods""#),
            "one does nothing: {metrics}"
        );
    }
}

/// I14, TTL-23, TTL-24: counted Pods are deleted and their names are free, while leaders are stopped in the middle of what they do
/// and go on later, or are killed and begin anew. Which one it is, and when it goes on, depends on what is counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_leaders_that_are_stopped_make_late_does_no_work_twice() {
    const JOBS_AT_ONCE: usize = 6;
    const COMPLETIONS: u64 = 12;
    let rounds = setting("TALLY_FAULT_RUNS").unwrap_or(2) as usize;
    let cluster = Cluster::start().await;
    let truth = Truth::begin(&cluster.api).await;
    let lead = |name: &str| Controller::start(&cluster.kubeconfig(), name, &["--leader-elect=false"]);
    let mut leaders = [lead("left"), lead("middle"), lead("right")];
    for leader in &mut leaders {
        leader.until("ready", |leader| leader.said().contains("metrics are at") && leader.get("/readyz").0 == 200);
    }
    let (mut stops, mut kills) = (0, 0);
    for round in 0..rounds {
        for nth in 0..JOBS_AT_ONCE {
            let mode = ["NonIndexed", "Indexed"][nth % 2];
            let mut job = job(&format!("early-{round}-{nth}"), mode, COMPLETIONS, 1 + nth as u64 % 3);
            job["metadata"]["annotations"] = json!({"tally.dev/delete-finished-pods": "all"});
            make(&cluster.api, &job).await;
        }
        let counted = || {
            let told = truth.told();
            told.jobs.values().map(|job| job.object["status"]["succeeded"].as_u64().unwrap_or(0)).sum::<u64>()
        };
        let until = Instant::now() + 4 * GIVE_UP_AFTER;
        let finished = || {
            let told = truth.told();
            told.jobs.len() == JOBS_AT_ONCE * (round + 1) && told.jobs.values().all(|job| job.finished())
        };
        let mut turn = 0;
        while !finished() {
            // One of the three is stopped until the others have counted a few more.
            let stopped = &leaders[turn % leaders.len()];
            stopped.signal("STOP");
            let enough = counted() + 2 + turn as u64 % 7;
            while counted() < enough && !finished() {
                assert!(Instant::now() < until, "{} counted, {enough} awaited", counted());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            // One in four does not go on: what it sent may still arrive, and another begins without what it knew.
            if turn % 4 == 3 {
                kills += 1;
                let next = lead(&format!("after-{kills}"));
                std::mem::replace(&mut leaders[turn % 3], next).kill();
            } else {
                stops += 1;
                stopped.signal("CONT");
            }
            turn += 1;
        }
    }
    wait(&cluster, &truth, "finished", |story| story.finished()).await;
    let told = truth.told();
    let done = |uid: &str| told.pods_of(uid).filter(|pod| pod.phase == "Succeeded").count() as u64;
    let twice = told.jobs.keys().filter(|uid| done(uid) > COMPLETIONS).count();
    println!("{stops} stops, {kills} kills: {twice} of {} Jobs did work more than once", told.jobs.len());
    for (uid, story) in &told.jobs {
        let succeeded: Vec<&PodStory> = told.pods_of(uid).filter(|pod| pod.phase == "Succeeded").collect();
        assert_eq!(story.object["status"]["succeeded"], COMPLETIONS, "{}", story.object["status"]);
        assert_eq!(succeeded.len() as u64, COMPLETIONS, "{}: {succeeded:#?}", story.name);
    }
    assert!(told.pods.values().all(|pod| pod.ever_start_gated), "a Pod was created without a gate");
    assert!(told.pods.values().filter(|pod| pod.gone).count() > 0, "no Pod was deleted early");
}

/// Polls until `is` holds for every Job that still exists and no Pod has the tracking finalizer.
pub async fn wait(cluster: &Cluster, truth: &Truth, what: &str, is: impl Fn(&crate::truth::JobStory) -> bool) {
    let until = Instant::now() + 4 * GIVE_UP_AFTER;
    loop {
        let done = {
            let told = truth.told();
            told.jobs.values().all(|job| job.gone || is(job)) && told.pods.values().all(|pod| !pod.tracked)
        };
        if done && truth.is_current(&cluster.api).await {
            return;
        }
        assert!(
            Instant::now() < until,
            "not {what}: {:?}",
            truth.told().jobs.values().map(|job| &job.object["status"]).collect::<Vec<_>>()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
