//! wait, describe and events: what kubectl reports about what happened.

use serde_json::json;

use super::JOB_YAML;
use super::support::client::Call;
use super::tool::{Kubectl, with_each_kubectl};

const JOB: &str = "/apis/batch/v1/namespaces/default/jobs/pi";

fn create(kubectl: &Kubectl) {
    let file = kubectl.file("job.yaml", JOB_YAML);
    kubectl.ok(&format!("create -f {file}"));
}

/// What the Job controller would write when all three Pods have succeeded.
async fn complete(kubectl: &Kubectl) {
    let (start, end) = ("2026-01-01T00:00:00Z", "2026-01-01T00:01:30Z");
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "CompletionsReached", "message": "Reached expected number of succeeded pods",
            "lastProbeTime": end, "lastTransitionTime": end})
    };
    kubectl.set_status(JOB, &json!({"startTime": start, "active": 1, "ready": 1, "succeeded": 2})).await;
    let met = [condition("SuccessCriteriaMet")];
    kubectl.set_status(JOB, &json!({"active": 0, "ready": 0, "succeeded": 3, "conditions": met})).await;
    let both = [condition("SuccessCriteriaMet"), condition("Complete")];
    kubectl.set_status(JOB, &json!({"completionTime": end, "conditions": both})).await;
}

#[tokio::test]
async fn wait_sees_a_job_complete_and_go() {
    with_each_kubectl(async |kubectl| {
        create(&kubectl);
        let impatient = kubectl.fails("wait --for=condition=complete job/pi --timeout=1s");
        assert!(impatient.contains("timed out waiting for the condition"), "{impatient}");
        let mut waiting = kubectl.follow("wait --for=condition=complete job/pi --timeout=60s");
        complete(&kubectl).await;
        assert_eq!(waiting.line(), "job.batch/pi condition met");
        if kubectl.minor >= 23 {
            let out = kubectl.ok("wait --for=jsonpath={.status.succeeded}=3 job/pi --timeout=60s");
            assert_eq!(out, "job.batch/pi condition met\n");
        }
        assert_eq!(kubectl.table("get jobs")[1][..4], ["pi", "Complete", "3/3", "90s"]);
        let mut gone = kubectl.follow("wait --for=delete job/pi --timeout=60s");
        kubectl.ok("delete job pi");
        // kubectl may have looked only after the Job was deleted; then it prints nothing and succeeds.
        assert!(["job.batch/pi condition met", ""].contains(&gone.line().as_str()));
        let done = kubectl.say("wait --for=delete job/pi --timeout=60s");
        assert!(done.code == Some(0) || done.err == "error: no matching resources found\n", "{done:?}");
    })
    .await;
}

#[tokio::test]
async fn describe_tells_the_story_of_a_job() {
    with_each_kubectl(async |kubectl| {
        create(&kubectl);
        complete(&kubectl).await;
        record(&kubectl, "pi.1", "Job", "batch/v1", "pi", "Completed", "Job completed").await;
        let said = kubectl.ok("describe job pi");
        let lines: Vec<_> = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for line in [
            "Name: pi",
            "Namespace: default",
            "Labels: app=pi",
            "Parallelism: 2",
            "Completions: 3",
            "Duration: 90s",
            "Pods Statuses: 0 Active (0 Ready) / 3 Succeeded / 0 Failed",
            "Image: perl:5.34",
        ] {
            // kubectl 1.20 shows running Pods, later versions show active and ready ones.
            let old = line.replace("0 Active (0 Ready)", "0 Running");
            assert!(lines.iter().any(|there| there == line || *there == old), "{line}\n{said}");
        }
        let event = lines.last().expect("it says something");
        assert!(event.starts_with("Normal Completed") && event.ends_with("tester Job completed"), "{said}");
    })
    .await;
}

#[tokio::test]
async fn describe_tells_of_pods_nodes_and_namespaces() {
    with_each_kubectl(async |kubectl| {
        let node = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","labels":{"zone":"a"}}}"#;
        let file = kubectl.file("node.json", node);
        kubectl.ok(&format!("create -f {file}"));
        let overrides = r#"--overrides={"apiVersion":"v1","spec":{"nodeName":"n1"}}"#;
        let said = kubectl.run(&["run", "p", "--image=busybox", "--restart=Never", overrides]);
        assert_eq!(said.code, Some(0), "{said:?}");
        record(&kubectl, "p.1", "Pod", "v1", "p", "Pulled", "Image is there").await;
        let pod = kubectl.ok("describe pod p");
        for part in [
            "Name:",
            "Node:",
            "n1",
            "Status:",
            "Pending",
            "Image:",
            "busybox",
            "QoS Class:",
            "BestEffort",
            "Pulled",
            "Image is there",
        ] {
            assert!(pod.contains(part), "{part}\n{pod}");
        }
        let node = kubectl.ok("describe node n1");
        for part in [
            "Name:               n1",
            "zone=a",
            "Non-terminated Pods:",
            "(1 in total)",
            "default",
            "Allocated resources:",
        ] {
            assert!(node.contains(part), "{part}\n{node}");
        }
        let namespace = kubectl.ok("describe namespace default");
        let expected =
            ["Name:         default", "Status:       Active", "No resource quota.", "No LimitRange resource."];
        for part in expected {
            assert!(namespace.contains(part), "{part}\n{namespace}");
        }
        let missing = kubectl.fails("describe job nope");
        assert_eq!(missing, "Error from server (NotFound): jobs.batch \"nope\" not found\n");
    })
    .await;
}

#[tokio::test]
async fn events_are_listed_and_chosen() {
    with_each_kubectl(async |kubectl| {
        create(&kubectl);
        record(&kubectl, "pi.1", "Job", "batch/v1", "pi", "SuccessfulCreate", "Created pod: pi-x").await;
        record(&kubectl, "q.1", "Pod", "v1", "q", "Scheduled", "Found a node").await;
        let table = kubectl.table("get events --field-selector involvedObject.kind=Job");
        assert_eq!(table[0], ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]);
        assert_eq!(table.len(), 2, "{table:?}");
        assert_eq!(table[1][1..], ["Normal", "SuccessfulCreate", "job/pi", "Created pod: pi-x"]);
        assert_eq!(kubectl.ok("get events --field-selector reason=Scheduled -o name"), "event/q.1\n");
        assert_eq!(
            kubectl.ok("get events.events.k8s.io -o name"),
            "event.events.k8s.io/pi.1\nevent.events.k8s.io/q.1\n"
        );
        if kubectl.minor >= 26 {
            let events = kubectl.table("events --for job/pi");
            assert_eq!(events[0], ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]);
            assert_eq!(events[1][1..], ["Normal", "SuccessfulCreate", "Job/pi", "Created pod: pi-x"]);
        }
    })
    .await;
}

/// An event, as a controller records one.
async fn record(kubectl: &Kubectl, name: &str, kind: &str, version: &str, about: &str, reason: &str, message: &str) {
    let resource = match kind {
        "Job" => "jobs",
        _ => "pods",
    };
    let found = kubectl.say(&format!("get {resource} {about} -o jsonpath={{.metadata.uid}}"));
    let now = kubectl.json("get namespace default -o json")["metadata"]["creationTimestamp"].clone();
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": kind, "apiVersion": version, "name": about, "namespace": "default", "uid": found.out},
        "type": "Normal", "reason": reason, "message": message, "count": 1, "firstTimestamp": now, "lastTimestamp": now,
        "source": {"component": "tester"}});
    kubectl.request(Call::new("POST", "/api/v1/namespaces/default/events").body(&event)).await;
}
