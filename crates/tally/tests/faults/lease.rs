//! Leaders that are killed, stopped or paused while Jobs run, and the instances that take over.

use serde_json::{Value, json};

use crate::cluster::{Cluster, get, make};
use crate::leaders::wait;
use crate::process::{Controller, GIVE_UP_AFTER};
use crate::proxy::{IN_JSON, Proxy, Weather};
use crate::truth::Truth;
use crate::verdict::{Terms, judge};

/// Short, so that a leader that died is soon replaced.
pub const QUICK: [&str; 3] =
    ["--leader-elect-lease-duration=2s", "--leader-elect-renew-deadline=1500ms", "--leader-elect-retry-period=200ms"];
/// A lease that does not expire during a test: it can be acquired only after it is released.
const ENDLESS: [&str; 3] =
    ["--leader-elect-lease-duration=2h", "--leader-elect-renew-deadline=1h", "--leader-elect-retry-period=200ms"];
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/tally-job-controller";
const COMPLETIONS: u64 = 60;
const PARALLELISM: u64 = 4;

/// Two Jobs that take a while.
async fn jobs(cluster: &Cluster) {
    for mode in ["NonIndexed", "Indexed"] {
        let annotations = json!({"hollow.tally.dev/run-for": "60ms"});
        let job = json!({"metadata": {"name": mode.to_lowercase()}, "spec": {
            "completions": COMPLETIONS, "parallelism": PARALLELISM, "completionMode": mode,
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
            },
        }});
        make(&cluster.api, &job).await;
    }
}

/// Waits until some Pods have ended, but not all Jobs.
async fn until_under_way(truth: &Truth) {
    let until = tokio::time::Instant::now() + GIVE_UP_AFTER;
    while truth.told().pods.values().filter(|pod| pod.ended()).count() < 10 {
        assert!(tokio::time::Instant::now() < until, "nothing gets done");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(truth.told().jobs.values().any(|job| !job.finished()), "too late to take over anything");
}

async fn finish(cluster: &Cluster, truth: &Truth, instances: usize) {
    wait(cluster, truth, "finished", crate::truth::JobStory::finished).await;
    let told = truth.told();
    for (uid, job) in &told.jobs {
        let terms = Terms { parallelism: PARALLELISM as usize, instances, fixed_indexes: true, ..Terms::default() };
        let verdict = judge(job, told.pods_of(uid), &terms);
        assert!(verdict.wrongs.is_empty(), "{:?}", verdict.wrongs);
        let status = &job.object["status"];
        assert!(status["succeeded"] == COMPLETIONS && job.condition("Complete"), "{status}");
        assert_eq!(verdict.created as u64, COMPLETIONS, "each Pod is made once, whoever leads: {status}");
    }
}

/// Starts two controllers; the first one leads.
async fn pair(cluster: &Cluster, arguments: &[&str]) -> [Controller; 2] {
    let mut leader = Controller::start(&cluster.kubeconfig(), "leader", arguments);
    leader.until_it_says("this process leads");
    let mut other = Controller::start(&cluster.kubeconfig(), "other", arguments);
    other.until_it_says("waits for the lease");
    [leader, other]
}

async fn lease(cluster: &Cluster) -> Value {
    get(&cluster.api, LEASE).await["spec"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_killed_is_succeeded() {
    let cluster = Cluster::start().await;
    let truth = Truth::begin(&cluster.api).await;
    let [leader, mut other] = pair(&cluster, &QUICK).await;
    jobs(&cluster).await;
    until_under_way(&truth).await;
    leader.kill();
    other.until_it_says("this process leads");
    finish(&cluster, &truth, 1).await;
    assert_eq!(lease(&cluster).await["leaseTransitions"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_stops_hands_over_without_a_wait() {
    let cluster = Cluster::start().await;
    let truth = Truth::begin(&cluster.api).await;
    let [mut leader, mut other] = pair(&cluster, &ENDLESS).await;
    jobs(&cluster).await;
    until_under_way(&truth).await;
    leader.signal("TERM");
    assert_eq!(leader.ended(), Some(0), "{}", leader.said());
    other.until_it_says("this process leads");
    finish(&cluster, &truth, 1).await;
    assert_eq!(lease(&cluster).await["leaseTransitions"], 1);
}

/// The process resumes in the belief that it leads, and finds that it does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_slept_gives_way() {
    let cluster = Cluster::start().await;
    let truth = Truth::begin(&cluster.api).await;
    let [mut leader, mut other] = pair(&cluster, &QUICK).await;
    jobs(&cluster).await;
    until_under_way(&truth).await;
    leader.signal("STOP");
    other.until_it_says("this process leads");
    leader.signal("CONT");
    assert_eq!(leader.ended(), Some(1), "{}", leader.said());
    assert!(leader.said().contains("the lease is lost"), "{}", leader.said());
    finish(&cluster, &truth, 2).await;
}

/// A request that is never answered is abandoned while there is time for another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_renewal_without_an_answer_does_not_end_a_leadership() {
    let cluster = Cluster::start().await;
    let proxy = Proxy::start(&cluster.api, 1, 0, Weather { zombies: false }).await;
    proxy.calm();
    let kubeconfig = cluster.directory().join("proxy");
    std::fs::write(&kubeconfig, proxy.kubeconfig(0)).unwrap();
    // Short, so that half of the renew deadline is less than the usual timeout of a request.
    let deadlines = ["--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=5s", IN_JSON];
    let mut leader =
        Controller::start(&kubeconfig, "leader", &[&deadlines[..], &["--leader-elect-retry-period=200ms"]].concat());
    leader.until_it_says("this process leads");
    proxy.swallow("PUT", "/leases/").await;
    let before = lease(&cluster).await;
    let until = tokio::time::Instant::now() + GIVE_UP_AFTER;
    while lease(&cluster).await["renewTime"] == before["renewTime"] {
        assert!(!leader.has_ended() && tokio::time::Instant::now() < until, "{}", leader.said());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(lease(&cluster).await["holderIdentity"], before["holderIdentity"]);
}
