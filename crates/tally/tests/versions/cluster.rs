//! `tally up` on the directory and the backup of an earlier version, whose server was killed in the middle of a write.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fixture::{Objects, backup, call, items, unpacked, versions};
use crate::support::client::{Api, Call};
use crate::support::server::Server;
use crate::tool::{ok, text};

/// Ends a test that would otherwise hang; it asserts nothing.
const GIVE_UP_AFTER: Duration = Duration::from_secs(120);
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const PODS: &str = "/api/v1/namespaces/default/pods";
const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// On a data directory. Events stay, however old the fixture is.
async fn start(directory: &Path, data: &Path, options: &[&str]) -> Server {
    let kept = ["--event-ttl", "1000000h", "--data-dir", text(data)];
    Server::start_with(directory, &[&kept[..], options].concat()).await
}

/// Nothing but the API: no object changes.
const ALONE: &[&str] = &["--no-node", "--controllers", ""];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_objects_of_an_earlier_version_are_there_as_they_were() {
    for version in versions() {
        let directory = unpacked(&version, "up.tar.gz");
        let objects = Objects::read(directory.path());
        assert_eq!(objects.jobs().len(), 12, "the fixture itself");
        let server = start(directory.path(), &directory.path().join("up"), ALONE).await;
        objects.are_in(&server.api).await;
        accepts_its_token(&server.api, &directory.path().join("up")).await;
    }
}

/// The token of a data directory is that of its administrator.
async fn accepts_its_token(api: &Api, data: &Path) {
    let token = std::fs::read_to_string(data.join("pki/token")).unwrap();
    let with_token = Call::get("/api/v1/namespaces").header("authorization", &format!("Bearer {}", token.trim()));
    call(&api.without_certificate(), with_token).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_an_earlier_version_is_restored_with_the_same_objects() {
    for version in versions() {
        let directory = unpacked(&version, "up.tar.gz");
        let objects = Objects::read(directory.path());
        let (file, new) = (backup(&version, directory.path()), directory.path().join("new"));
        ok(&["restore", text(&file), "--data-dir", text(&new)]);
        let told = ok(&["check", text(&new)]);
        assert!(told.contains(&format!("{} objects at revision", objects.count())), "{told}");
        let server = start(directory.path(), &new, ALONE).await;
        objects.are_in(&server.api).await;
        accepts_its_token(&server.api, &directory.path().join("up")).await;
    }
}

fn job<'a>(jobs: &'a [Value], name: &str) -> &'a Value {
    jobs.iter().find(|job| job["metadata"]["name"] == name).unwrap_or_else(|| panic!("there is no Job {name}"))
}

fn end(job: &Value) -> Option<&str> {
    let conditions = job["status"]["conditions"].as_array()?.iter();
    let mut ends =
        conditions.filter(|one| one["status"] == "True" && (one["type"] == "Complete" || one["type"] == "Failed"));
    ends.next()?["type"].as_str()
}

async fn patch(api: &Api, path: String, body: Value) {
    let merge = Call::new("PATCH", path).header("content-type", "application/merge-patch+json");
    call(api, merge.body(&body)).await;
}

/// The Jobs of a namespace, once these have ended.
async fn ended(api: &Api, names: &[&str]) -> Vec<Value> {
    let until = Instant::now() + GIVE_UP_AFTER;
    loop {
        let jobs = items(api, JOBS).await;
        if names.iter().all(|name| end(job(&jobs, name)).is_some()) {
            return jobs;
        }
        assert!(Instant::now() < until, "they do not end: {}", json!(jobs));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Of each Pod of a Job: UID, index and phase.
async fn pods(api: &Api, job: &str) -> Vec<(String, String, String)> {
    let mut pods = items(api, PODS).await;
    pods.retain(|pod| pod["metadata"]["labels"]["job-name"] == job);
    let told = |pod: &Value| {
        let finalizers = pod["metadata"]["finalizers"].as_array();
        assert!(!finalizers.is_some_and(|all| all.contains(&TRACKING.into())), "not released: {pod}");
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let index = &pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"];
        (word(&pod["metadata"]["uid"]), word(index), word(&pod["status"]["phase"]))
    };
    pods.iter().map(told).collect()
}

/// Job `half` was killed with Pods that had ended and were not counted, or counted and not released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_an_earlier_version_go_on_and_every_pod_is_counted_once() {
    for version in versions() {
        let directory = unpacked(&version, "up.tar.gz");
        let (objects, data) = (Objects::read(directory.path()), directory.path().join("up"));
        let before = job(objects.jobs(), "half");
        assert!(before["status"]["uncountedTerminatedPods"] != json!({}) && end(before).is_none(), "{before}");
        let server = start(directory.path(), &data, &["--hollow", "2"]).await;
        let api = &server.api;
        for name in ["suspended", "paused"] {
            patch(api, format!("{JOBS}/{name}"), json!({"spec": {"suspend": false}})).await;
        }
        patch(api, format!("{JOBS}/leaving"), json!({"metadata": {"finalizers": null}})).await;
        for pod in items(api, PODS).await.iter().filter(|pod| pod["metadata"]["labels"]["job-name"] == "running") {
            let ends = json!({"metadata": {"annotations": {"hollow.tally.dev/run-for": "1ms"}}});
            patch(api, format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap()), ends).await;
        }
        let jobs = ended(api, &["half", "report", "suspended", "paused", "running"]).await;
        for (name, expected, succeeded, failed) in [
            ("half", "Failed", 58, 4),
            ("report", "Complete", 1, 0),
            ("suspended", "Complete", 3, 0),
            ("paused", "Complete", 8, 0),
            ("running", "Complete", 2, 0),
        ] {
            let job = job(&jobs, name);
            let count = |field: &str| job["status"][field].as_u64().unwrap_or(0);
            assert_eq!((end(job), count("succeeded"), count("failed")), (Some(expected), succeeded, failed), "{job}");
            assert_eq!(job["status"]["uncountedTerminatedPods"], json!({}), "{job}");
        }
        assert_eq!(job(&jobs, "half")["status"]["failedIndexes"], "3,50");
        assert_eq!(job(&jobs, "half")["status"]["completedIndexes"], "0-2,4-49,51-59");
        assert!(!jobs.iter().any(|job| job["metadata"]["name"] == "leaving"));
        for name in ["done", "failed", "indexes"] {
            assert_eq!(job(&jobs, name), job(objects.jobs(), name), "what had ended stays as it was");
        }

        let half = pods(api, "half").await;
        let of_phase = |phase: &str| half.iter().filter(|(.., found)| found == phase).count();
        assert_eq!((half.len(), of_phase("Succeeded"), of_phase("Failed")), (62, 58, 4));
        let indexes: BTreeSet<&str> = half.iter().map(|(_, index, _)| index.as_str()).collect();
        assert_eq!(indexes.len(), 60);
        let there: BTreeSet<&str> = half.iter().map(|(uid, ..)| uid.as_str()).collect();
        let mut earlier = objects.of("/api/v1/pods").iter();
        let lost = earlier.find(|pod| {
            pod["metadata"]["labels"]["job-name"] == "half" && !there.contains(pod["metadata"]["uid"].as_str().unwrap())
        });
        assert_eq!(lost, None, "no work is done again");
        drop(server);
        assert!(ok(&["check", text(&data)]).contains("nothing is damaged"));
    }
}

#[test]
fn commands_read_the_directory_of_an_earlier_version() {
    for version in versions() {
        let directory = unpacked(&version, "up.tar.gz");
        let (objects, data) = (Objects::read(directory.path()), directory.path().join("up"));
        // The first one that opens it removes what was not finished.
        let told = ok(&["check", text(&data)]);
        assert!(told.contains("ends with a write that was not finished and not acknowledged"), "{told}");
        let sound = format!("{} objects at revision", objects.count());
        assert!(told.contains(&sound) && told.contains("nothing is damaged"), "{told}");

        let listed: Value = serde_json::from_str(&ok(&["ps", "--data-dir", text(&data), "-o", "json"])).unwrap();
        let listed = listed["jobs"].as_array().unwrap();
        assert_eq!(listed.len(), objects.jobs().len());
        for expected in objects.jobs() {
            let uid = &expected["metadata"]["uid"];
            let found = listed.iter().find(|job| job["uid"] == *uid).unwrap();
            let count = |field: &str| expected["status"][field].as_u64().unwrap_or(0);
            assert_eq!(found["name"], expected["metadata"]["name"]);
            assert_eq!((&found["succeeded"], &found["failed"]), (&count("succeeded").into(), &count("failed").into()));
            assert_eq!(found["state"], end(expected).unwrap_or("Stopped"), "{found}");
        }
        let shown: Value =
            serde_json::from_str(&ok(&["show", "indexes", "--data-dir", text(&data), "-o", "json"])).unwrap();
        assert_eq!(shown["attempts"].as_array().unwrap().len(), 8, "{shown}");
        let explained = ok(&["explain", "job/indexes", "--data-dir", text(&data)]);
        assert!(explained.contains("Failed indexes: 1,4"), "{explained}");

        let new = directory.path().join("salvaged");
        ok(&["salvage", text(&data), "--to", text(&new)]);
        assert!(ok(&["check", text(&new)]).contains(&sound));
        let file = directory.path().join("again.bak");
        assert!(ok(&["backup", text(&file), "--data-dir", text(&data)]).contains(&sound));
    }
}
