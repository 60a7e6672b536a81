//! `kubectl apply --server-side`: who owns which fields.

use serde_json::{Value, json};

use super::JOB_YAML;
use super::tool::{Kubectl, with_each_kubectl};

fn apply(kubectl: &Kubectl, manager: &str, yaml: &str, more: &str) -> super::tool::Said {
    // Older versions validate here, and know no configuration that is a part of an object.
    let validates = if kubectl.minor < 25 { "--validate=false" } else { "" };
    let command = format!("apply --server-side {validates} --field-manager={manager} {more} -f -");
    kubectl.with_input(&command, yaml)
}

/// Each manager, how it writes, and its part of the list.
fn managers(object: &Value) -> Vec<(String, String, Value)> {
    let list = object["metadata"]["managedFields"].as_array().unwrap();
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    list.iter().map(|entry| (text(entry, "manager"), text(entry, "operation"), entry["fieldsV1"].clone())).collect()
}

fn job(kubectl: &Kubectl) -> Value {
    let shows = if kubectl.minor < 21 { "" } else { "--show-managed-fields" };
    kubectl.json(&format!("get job pi -o json {shows}"))
}

#[tokio::test]
async fn two_managers_share_a_job_and_conflicts_are_refused_until_forced() {
    with_each_kubectl(async |kubectl| {
        let made = apply(&kubectl, "me", JOB_YAML, "");
        assert_eq!(made.out, "job.batch/pi serverside-applied\n", "{made:?}");
        let revision = |job: &Value| job["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        let before = revision(&job(&kubectl));
        assert_eq!(apply(&kubectl, "me", JOB_YAML, "").code, Some(0));
        assert_eq!(revision(&job(&kubectl)), before, "the same again is no write");

        let scale = |parallelism: u32| {
            format!("apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: pi\nspec:\n  parallelism: {parallelism}\n")
        };
        let refused = apply(&kubectl, "scaler", &scale(7), "");
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.err.contains("conflict with \"me\": .spec.parallelism"), "{}", refused.err);
        assert_eq!(apply(&kubectl, "scaler", &scale(7), "--force-conflicts").code, Some(0));
        let job_now = job(&kubectl);
        assert_eq!(job_now["spec"]["parallelism"], 7);
        let scaler = managers(&job_now).into_iter().find(|(name, ..)| name == "scaler").unwrap();
        assert_eq!((scaler.1.as_str(), scaler.2), ("Apply", json!({"f:spec": {"f:parallelism": {}}})));

        // The first manager no longer gives the field, and gives up a label.
        let less = JOB_YAML.replace("  parallelism: 2\n", "").replace("  labels:\n    app: pi\n", "");
        let applied = apply(&kubectl, "me", &less, "");
        assert_eq!(applied.code, Some(0), "{applied:?}");
        let job_now = job(&kubectl);
        assert_eq!(job_now["spec"]["parallelism"], 7, "the other manager's");
        assert_eq!(job_now["metadata"]["labels"].get("app"), None, "{job_now}");
    })
    .await;
}

#[tokio::test]
async fn a_controller_owns_the_status_and_a_user_the_rest() {
    with_each_kubectl(async |kubectl| {
        if kubectl.minor < 24 {
            return;
        }
        apply(&kubectl, "me", JOB_YAML, "");
        let status = r#"{"status":{"active":1,"startTime":"2026-01-01T00:00:00Z"}}"#;
        let patch =
            ["patch", "job", "pi", "--subresource=status", "--type=merge", "--field-manager=robot", "-p", status];
        assert_eq!(kubectl.run(&patch).code, Some(0));
        let job_now = job(&kubectl);
        let robot = managers(&job_now).into_iter().find(|(name, ..)| name == "robot").unwrap();
        assert_eq!(robot.1, "Update");
        assert_eq!(robot.2, json!({"f:status": {"f:active": {}, "f:startTime": {}}}), "{robot:?}");
        let applied = apply(&kubectl, "me", &JOB_YAML.replace("parallelism: 2", "parallelism: 3"), "");
        assert_eq!(applied.code, Some(0), "{applied:?}");
        assert_eq!(job(&kubectl)["status"]["active"], 1);
    })
    .await;
}

#[tokio::test]
async fn what_was_applied_by_the_client_is_taken_over_and_can_be_rolled_back() {
    with_each_kubectl(async |kubectl| {
        let file = kubectl.file("job.yaml", JOB_YAML);
        kubectl.ok(&format!("apply -f {file}"));
        // Since 1.26, kubectl hands the fields of the old form over to the new one.
        let force = if kubectl.minor < 26 { "--force-conflicts" } else { "" };
        let more = JOB_YAML.replace("parallelism: 2", "parallelism: 3");
        let taken = kubectl.with_input(&format!("apply --server-side {force} -f -"), &more);
        assert_eq!(taken.code, Some(0), "{taken:?}");
        assert_eq!(job(&kubectl)["spec"]["parallelism"], 3);
        let differs = kubectl.with_input("diff --server-side -f -", JOB_YAML);
        assert_eq!(differs.code, Some(1), "{differs:?}");
        assert!(differs.out.contains("-  parallelism: 3") && differs.out.contains("+  parallelism: 2"), "{differs:?}");
        let back = kubectl.with_input(&format!("apply --server-side {force} -f -"), JOB_YAML);
        assert_eq!(back.code, Some(0), "{back:?}");
        assert_eq!(job(&kubectl)["spec"]["parallelism"], 2);
        assert_eq!(kubectl.with_input("diff --server-side -f -", JOB_YAML).code, Some(0));
    })
    .await;
}
