//! Where no controller runs: what is left undone, and CronJobs in every state.

use serde_json::{Value, json};
use tally_runtime::driver::wall_clock;

use crate::support::client::Call;
use crate::support::server::{self, Server};
use crate::tool::{Cluster, name_of};

/// What this part shows.
pub const REASONS: [&str; 10] = [
    "ConcurrencyForbidden",
    "ControllerBehind",
    "ControllerNotRunning",
    "DeletionPending",
    "DiscardingPods",
    "MissedSchedule",
    "NamespaceTerminating",
    "NeverDue",
    "Suspended",
    "UncountedPods",
];

/// As many finished Pods as are deleted before further Pods are created.
const MANY: usize = 1_001;
/// How many of them are created at the same time.
const AT_ONCE: usize = 16;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

async fn cron(cluster: &Cluster, name: &str, spec: Value, status: Value) {
    let template = json!({"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}}}});
    let mut cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": template}});
    crate::tool::merge(&mut cron["spec"], &spec);
    let path = "/apis/batch/v1/namespaces/default/cronjobs";
    cluster.create(path, &cron).await;
    cluster.patch(&format!("{path}/{name}/status"), &json!({"status": status})).await;
}

/// A Pod of the Job that a controller would have created.
fn pod_of(job: &Value, name: &str, finalizers: &[&str]) -> Value {
    json!({"metadata": {"name": name, "finalizers": finalizers,
        "labels": job["spec"]["template"]["metadata"]["labels"],
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": name_of(job), "controller": true,
            "uid": job["metadata"]["uid"]}]},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}})
}

/// Pods that have succeeded and are counted.
async fn add_finished_pods(cluster: &Cluster, job: &Value) {
    let mut parts = tokio::task::JoinSet::new();
    for part in 0..AT_ONCE {
        let (job, mut connection) = (job.clone(), cluster.server.api.connection());
        parts.spawn(async move {
            for number in (part..MANY).step_by(AT_ONCE) {
                let name = format!("done-{number}");
                let path = "/api/v1/namespaces/default/pods";
                let create = Call::new("POST", path).body(&pod_of(&job, &name, &[]));
                let end = Call::new("PATCH", format!("{path}/{name}/status"))
                    .header("content-type", "application/merge-patch+json")
                    .body(&json!({"status": {"phase": "Succeeded"}}));
                for call in [create, end] {
                    let answer = connection.call(&call).await.expect("an answer");
                    assert!(answer.code < 300, "{}", answer.text);
                }
            }
        });
    }
    parts.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_controller_does_is_explained() {
    let directory = server::directory();
    let cluster = Cluster::of(Server::start(directory.path()).await, directory);
    let none = || json!({});
    cluster.job("new", none(), none(), "true").await;
    let ended = cluster.job("ended", none(), none(), "true").await;
    let pod = pod_of(&ended, "ended-0", &["batch.kubernetes.io/job-tracking"]);
    let pods = "/api/v1/namespaces/default/pods";
    let pod = cluster.create(pods, &pod).await;
    cluster.patch(&format!("{pods}/{}/status", name_of(&pod)), &json!({"status": {"phase": "Succeeded"}})).await;
    let orphan = json!({"propagationPolicy": "Orphan"});
    cluster.job("orphaned", none(), none(), "true").await;
    cluster.call(Call::new("DELETE", "/apis/batch/v1/namespaces/default/jobs/orphaned").body(&orphan)).await;

    // A namespace that stays, because no controller empties it.
    cluster.create("/api/v1/namespaces", &json!({"metadata": {"name": "going"}})).await;
    let body = crate::tool::job("late", none(), none(), "true");
    cluster.create("/apis/batch/v1/namespaces/going/jobs", &body).await;
    cluster.call(Call::new("DELETE", "/api/v1/namespaces/going")).await;
    let going = ["-n", "going", "--kubeconfig", &cluster.kubeconfig];
    let closed = "The namespace is being deleted: no Pods can be created in it";
    cluster.seen.says(&going, "job/late", &["NamespaceTerminating"], closed).await;

    // CronJobs.
    let long_ago = json!({"lastScheduleTime": "2024-02-01T00:00:00Z"});
    cron(&cluster, "paused", json!({"suspend": true}), long_ago.clone()).await;
    cluster.says("cronjob/paused", &["Suspended"], "The CronJob is suspended").await;
    cron(&cluster, "late", json!({"startingDeadlineSeconds": 60}), long_ago.clone()).await;
    let said =
        cluster.says("cronjob/late", &["MissedSchedule"], "was not started within startingDeadlineSeconds (60)").await;
    assert_eq!(said["next"][0]["what"], "the next Job is due", "{said:#}");
    let active = json!({"lastScheduleTime": "2024-02-01T00:00:00Z",
        "active": [{"kind": "Job", "namespace": "default", "name": "new"}]});
    cron(&cluster, "forbids", json!({"concurrencyPolicy": "Forbid"}), active).await;
    cluster.says("cronjob/forbids", &["ConcurrencyForbidden"], "while an earlier one runs: new.").await;
    cron(&cluster, "never", json!({"schedule": "0 0 31 2 *"}), none()).await;
    cluster.says("cronjob/never", &["NeverDue"], "\"0 0 31 2 *\" has no next time.").await;
    cron(&cluster, "waits", json!({"timeZone": "Asia/Tokyo"}), none()).await;
    let silent = cluster.says("cronjob/waits", &[], "").await;
    let next = silent["next"][0]["what"].as_str().unwrap();
    assert!(next.contains("-01-01T00:00:00+09:00"), "{next}");
    cron(&cluster, "due", none(), long_ago).await;
    cluster
        .says(
            "cronjob/due",
            &["ControllerNotRunning"],
            "No running CronJob controller is seen that would start Job due-",
        )
        .await;

    // Finished Pods that are to be deleted first.
    let early = json!({"annotations": {"tally.dev/delete-finished-pods": "all"}});
    let many = cluster.job("many", early, json!({"completions": 5_000, "parallelism": 2}), "true").await;
    add_finished_pods(&cluster, &many).await;
    let counted = json!({"status": {"startTime": many["metadata"]["creationTimestamp"], "succeeded": MANY}});
    cluster.patch("/apis/batch/v1/namespaces/default/jobs/many/status", &counted).await;
    let said = cluster.says("job/many", &["ControllerNotRunning", "DiscardingPods"], "that would delete Pods").await;
    let message = said["reasons"][1]["message"].as_str().unwrap();
    assert!(message.starts_with("Many finished Pods are to be deleted early"), "{message}");

    // No Lease at all, then one that is renewed, then one that is not.
    let nowhere = "that would create Pods: the server of the API runs without it (tally up --controllers), and there is no \
                   Lease of another one.";
    cluster.says("job/new", &["ControllerNotRunning"], nowhere).await;
    let uncounted = ["ControllerNotRunning", "UncountedPods"];
    let said = cluster.says("job/ended", &uncounted, "that would count the Pods that have ended").await;
    let message = said["reasons"][1]["message"].as_str().unwrap();
    assert!(message.starts_with("Pod ended-0 has ended and is not counted and released"), "{message}");
    cluster
        .says("job/orphaned", &["DeletionPending"], "the garbage collector has not removed its finalizer yet: orphan.")
        .await;
    let lease = |renewed: String| {
        json!({"metadata": {"name": "tally-job-controller"}, "spec": {"holderIdentity": "host-1",
            "leaseDurationSeconds": 3600, "renewTime": renewed}})
    };
    let micro = |time: String| time.replace('Z', ".000000Z");
    let renewed = micro(wall_clock().truncated().to_string());
    cluster.create(LEASE, &lease(renewed)).await;
    let behind = "has to create Pods, and has not done so: host-1 holds the Lease kube-system/tally-job-controller and renews it.";
    cluster.says("job/new", &["ControllerBehind"], behind).await;
    cluster.says("job/ended", &["UncountedPods", "ControllerBehind"], "Pod ended-0 has ended").await;
    cluster.says("pod/ended-0", &["UncountedPods", "ControllerBehind"], "Pod ended-0 has ended").await;
    let old = lease("2026-01-31T12:00:00.000000Z".to_owned());
    cluster.patch(&format!("{LEASE}/tally-job-controller"), &json!({"spec": old["spec"]})).await;
    let expired = "host-1 renewed the Lease kube-system/tally-job-controller last at 2026-01-31T12:00:00Z.";
    cluster.says("job/new", &["ControllerNotRunning"], expired).await;
    // Whatever its name is, if it has the label.
    let mut labelled = lease(micro(wall_clock().truncated().to_string()));
    labelled["metadata"] = json!({"name": "mine", "labels": {"tally.dev/lease-of": "job-controller"}});
    cluster.create(LEASE, &labelled).await;
    cluster.says("job/new", &["ControllerBehind"], "host-1 holds the Lease kube-system/mine and renews it.").await;
    cluster.seen.are(&REASONS);
}
