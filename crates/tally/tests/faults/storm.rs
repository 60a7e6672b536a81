//! All faults at the same time; then none, and the resulting state must be correct.
//!
//! The bound on Pods: one controller never has more than `parallelism` of a Job's Pods alive, however often it is
//! killed. Two controllers that both believe they lead never have more than twice that, and never let more than
//! `parallelism` Pods succeed beyond `completions`. A Job that adopts Pods may have as many more as it adopts, because
//! it may create Pods before the orphans have lost their owner.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::cluster::Cluster;
use crate::lease::QUICK;
use crate::monkey::Monkey;
use crate::process::Controller;
use crate::proxy::{IN_JSON, Proxy, Weather};
use crate::setting;
use crate::truth::{Told, Truth};
use crate::verdict::{Verdict, judge};
use crate::workload::Made;

/// Kills in each of the three storms, unless TALLY_FAULT_KILLS is set.
const KILLS: u64 = 5;
/// Ends a test that would otherwise hang. It is longer than the longest back-offs of the Jobs.
const SETTLED_WITHIN: Duration = Duration::from_secs(240);

struct Storm {
    name: &'static str,
    instances: usize,
    elected: bool,
    /// Processes are also paused and resumed, so that two lead for a while.
    pauses: bool,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_controller_is_killed_and_comes_back() {
    storm(Storm { name: "one", instances: 1, elected: false, pauses: false }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_controllers_that_both_lead_are_killed_and_come_back() {
    storm(Storm { name: "two", instances: 2, elected: false, pauses: true }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_controllers_with_a_lease_are_killed_and_come_back() {
    storm(Storm { name: "lease", instances: 2, elected: true, pauses: true }).await;
}

async fn storm(storm: Storm) {
    let seed = setting("TALLY_FAULT_SEED").unwrap_or_else(|| fastrand::u64(..1 << 48));
    println!("storm {}: TALLY_FAULT_SEED={seed}", storm.name);
    let kills = setting("TALLY_FAULT_KILLS").unwrap_or(KILLS);
    let cluster = Cluster::start().await;
    let truth = Arc::new(Truth::begin(&cluster.api).await);
    let proxy = Proxy::start(&cluster.api, storm.instances, seed, Weather { zombies: storm.instances > 1 }).await;
    // More deleted Pods mean more failures in a row, and these mean long back-offs.
    let blows = if kills > KILLS { 4 } else { 2 };
    let monkey = Arc::new(Monkey::new(&cluster.api, truth.clone(), seed ^ 1, blows));
    let (stop, stopped) = watch::channel(false);
    let meddling = tokio::spawn(monkey.clone().work(stopped));
    let mut fleet = Fleet::new(&storm, &cluster, proxy, seed ^ 2);
    fleet.rage(kills).await;
    stop.send_replace(true);
    meddling.await.unwrap();
    fleet.calm();

    let made = monkey.made().clone();
    let settled = settle(&cluster, &truth, &made, &mut fleet).await;
    let told = truth.told().clone();
    let (sum, mut wrongs) = sum(&told, &made, storm.instances);
    if !settled {
        wrongs.extend(unsettled(&told, &made));
    }
    let (jobs, pods) = (made.len(), sum.created);
    println!(
        "storm {}: {} kills, {} pauses, {} ended by themselves",
        storm.name, fleet.kills, fleet.pauses, fleet.ended
    );
    println!("storm {}: requests {}", storm.name, listed(&fleet.proxy.thrown()));
    println!(
        "storm {}: {jobs} Jobs, {pods} Pods: {} succeeded, {} failed, {} removed, {} ignored, {} adopted, {} late, {} \
         unsure; at most {} beyond parallelism",
        storm.name, sum.succeeded, sum.failed, sum.removed, sum.ignored, sum.adopted, sum.late, sum.unsure, sum.excess
    );
    if !wrongs.is_empty() {
        let said = fleet.said();
        panic!("TALLY_FAULT_SEED={seed}\n{}\n{said}\n{}", wrongs.join("\n"), cluster.said());
    }
}

fn listed(thrown: &BTreeMap<String, usize>) -> String {
    thrown.iter().map(|(what, times)| format!("{what}: {times}")).collect::<Vec<_>>().join(", ")
}

/// The controllers, and what is done to them.
struct Fleet {
    running: Vec<Option<Controller>>,
    kubeconfigs: Vec<PathBuf>,
    proxy: Proxy,
    rng: fastrand::Rng,
    elected: bool,
    can_pause: bool,
    births: usize,
    kills: u64,
    pauses: usize,
    ended: usize,
}

impl Fleet {
    fn new(storm: &Storm, cluster: &Cluster, proxy: Proxy, seed: u64) -> Fleet {
        let kubeconfigs = (0..storm.instances).map(|at| {
            let path = cluster.directory().join(format!("proxy-{at}"));
            std::fs::write(&path, proxy.kubeconfig(at)).unwrap();
            path
        });
        Fleet {
            kubeconfigs: kubeconfigs.collect(),
            running: (0..storm.instances).map(|_| None).collect(),
            proxy,
            rng: fastrand::Rng::with_seed(seed),
            elected: storm.elected,
            can_pause: storm.pauses,
            births: 0,
            kills: 0,
            pauses: 0,
            ended: 0,
        }
    }

    /// Starts the controllers that do not run.
    fn revive(&mut self) {
        for at in 0..self.running.len() {
            if self.running[at].as_mut().is_some_and(Controller::has_ended) {
                // It lost its lease, or its startup checks failed.
                self.ended += 1;
                self.running[at] = None;
            }
            if self.running[at].is_none() {
                self.births += 1;
                let name = format!("controller-{at}-{}", self.births);
                let election: &[&str] = if self.elected { &QUICK } else { &["--leader-elect=false"] };
                let arguments = [election, &[IN_JSON]].concat();
                self.proxy.begin(at);
                self.running[at] = Some(Controller::start(&self.kubeconfigs[at], &name, &arguments));
            }
        }
    }

    async fn rage(&mut self, kills: u64) {
        while self.kills < kills {
            self.revive();
            if self.can_pause && self.rng.u32(0..3) == 0 {
                self.pause().await;
            }
            let at = self.victim().await;
            if let Some(controller) = self.running[at].take() {
                controller.kill();
                self.kills += 1;
            }
            if self.running.len() == 1 {
                // With one controller, no request of the killed process may be in flight: otherwise there would be two.
                self.proxy.quiet(at).await;
            }
            tokio::time::sleep(Duration::from_millis(self.rng.u64(0..150))).await;
        }
    }

    /// Chooses the controller to kill now: mostly one that is in the middle of writes.
    async fn victim(&mut self) -> usize {
        let any = self.rng.usize(0..self.running.len());
        let (writes, within) = match self.rng.u32(0..8) {
            0 => (self.rng.u64(1..5), 1_000),
            1..4 => (self.rng.u64(5..50), 3_000),
            _ => (self.rng.u64(50..200), 3_000),
        };
        let busy = tokio::time::timeout(Duration::from_millis(within), self.proxy.after_writes(writes)).await;
        busy.unwrap_or(any)
    }

    /// One controller is paused and resumes with what it knew before.
    async fn pause(&mut self) {
        let at = self.rng.usize(0..self.running.len());
        let Some(controller) = &mut self.running[at] else { return };
        if controller.has_ended() {
            return;
        }
        controller.signal("STOP");
        self.pauses += 1;
        tokio::time::sleep(Duration::from_millis(self.rng.u64(100..2500))).await;
        controller.signal("CONT");
    }

    fn calm(&mut self) {
        self.proxy.calm();
        self.revive();
    }

    fn said(&self) -> String {
        let tail = |controller: &Controller| {
            let said = controller.said();
            said.lines().rev().take(20).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n")
        };
        self.running.iter().flatten().map(tail).collect::<Vec<_>>().join("\n---\n")
    }
}

async fn settle(cluster: &Cluster, truth: &Truth, made: &[Made], fleet: &mut Fleet) -> bool {
    let until = Instant::now() + SETTLED_WITHIN;
    while Instant::now() < until {
        // A controller that lost its lease in the storm exits when it notices.
        fleet.revive();
        let left = unsettled(&truth.told(), made).len();
        if left == 0 && truth.is_current(&cluster.api).await && unsettled(&truth.told(), made).is_empty() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    false
}

/// What has not settled yet.
fn unsettled(told: &Told, made: &[Made]) -> Vec<String> {
    let mut waits = Vec::new();
    for made in made {
        let Some(job) = told.jobs.get(&made.uid) else {
            waits.push(format!("{}: nothing is known of it", made.name));
            continue;
        };
        let goes = made.kind.goes() || made.deleted.is_some();
        if goes && !job.gone {
            waits.push(format!("{}: it is still there: {}", made.name, job.object["status"]));
        }
        if !goes && !job.finished() {
            waits.push(format!("{}: it goes on: {}", made.name, job.object["status"]));
        }
        let pods_go = made.deleted.unwrap_or(made.kind.goes());
        for pod in told.pods_of(&made.uid) {
            if pod.tracked || (pods_go && !pod.gone) {
                let (phase, tracked, deleting) = (&pod.phase, pod.tracked, pod.deleting);
                waits.push(format!("{}: {} is {phase}, tracked {tracked}, deleted {deleting}", made.name, pod.name));
            }
        }
    }
    waits
}

/// The sum of all verdicts, and everything that is wrong.
fn sum(told: &Told, made: &[Made], instances: usize) -> (Verdict, Vec<String>) {
    let mut sum = Verdict::default();
    let mut wrongs = Vec::new();
    for made in made {
        let Some(job) = told.jobs.get(&made.uid) else { continue };
        let verdict = judge(job, told.pods_of(&made.uid), &made.terms(instances));
        sum.created += verdict.created;
        sum.excess = sum.excess.max(verdict.excess);
        if made.deleted.is_some() {
            // Its counters were deleted with it; `unsettled` checks that no Pod keeps its finalizer.
            continue;
        }
        sum.succeeded += verdict.succeeded;
        sum.failed += verdict.failed;
        sum.removed += verdict.removed;
        sum.ignored += verdict.ignored;
        sum.unsure += verdict.unsure;
        sum.late += verdict.late;
        sum.adopted += verdict.adopted;
        if !verdict.wrongs.is_empty() {
            // The releases of the adopted Pods show the cause.
            let met_at = job.criteria_met_at;
            wrongs.extend(told.pods_of(&made.uid).filter(|pod| pod.adopted).map(|pod| {
                format!("{}: adopted {}, criteria met at {met_at:?}: {:?}", made.name, pod.name, pod.released)
            }));
        }
        wrongs.extend(verdict.wrongs);
        if job.finished() && !job.condition(made.kind.ends_as()) {
            wrongs.push(format!("{} is not {}: {}", made.name, made.kind.ends_as(), job.object["status"]));
        }
    }
    (sum, wrongs)
}
