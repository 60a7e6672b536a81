//! How the processes of a cluster start and end with it.

use std::fs;

use serde_json::json;

use crate::support::client::Call;
use crate::support::kubectl::with_node;
use crate::support::server::Server;
use crate::tool::{alive, eventually, job, lines};

#[tokio::test]
async fn an_image_without_a_command_is_told_what_is_missing() {
    let kubectl = with_node().await;
    kubectl.ok("create job nothing --image=busybox");
    let waiting = "get pods -o jsonpath={.items[*].status.containerStatuses[*].state.waiting}";
    eventually("it waits", || kubectl.ok(waiting).contains("\"CommandMissing\""));
    assert!(kubectl.ok(waiting).contains("`command` must say what to run"), "{}", kubectl.ok(waiting));
    eventually("there is an event", || kubectl.ok("get events").contains("CommandMissing"));
    let table = kubectl.ok("get pods --no-headers");
    assert!(table.contains("CommandMissing"), "{table}");
}

#[tokio::test]
async fn the_node_is_seen_with_what_it_asks_for() {
    let kubectl = with_node().await;
    eventually("the node is ready", || kubectl.ok("get nodes --no-headers").contains(" Ready "));
    let metrics = kubectl.ok("get --raw /metrics");
    assert!(metrics.contains("tally_requests_total{verb=\"create\",resource=\"nodes\",code=\"2xx\"} 1"), "{metrics}");
}

#[tokio::test]
async fn processes_end_with_the_cluster_and_jobs_go_on_with_the_next() {
    let mut kubectl = with_node().await;
    let here = kubectl.directory.path().to_owned();
    // The first run never ends by itself; it cleans up on SIGTERM.
    let script = "[ -e $HERE/again ] && exit 0; trap 'echo bye >> $HERE/said; exit 1' TERM; \
                  echo up >> $HERE/said; while :; do sleep 0.05; done";
    let said = || lines(&here.join("said"));
    for (signal, pod) in [("TERM", "restartPolicy: OnFailure"), ("INT", "restartPolicy: Never")] {
        let name = signal.to_lowercase();
        let made = kubectl.with_input("create --validate=false -f -", &job(&name, &here, "", pod, script));
        assert_eq!(made.code, Some(0), "{}", made.err);
        eventually("it runs", || said() == ["up"]);
        kubectl.server.signal(signal);
        assert_eq!(kubectl.server.ended(), Some(0), "{}", kubectl.server.said());
        assert_eq!(said(), ["up", "bye"], "SIG{signal}");
        assert_eq!(alive(&here), [""; 0]);
        fs::write(here.join("again"), "").unwrap();
        kubectl.server = Server::start_node(&here).await;
        kubectl.ok(&format!("wait --for=condition=complete job/{name} --timeout=60s"));
        fs::remove_file(here.join("again")).unwrap();
        fs::remove_file(here.join("said")).unwrap();
    }
}

/// REPL-4: with podReplacementPolicy Failed, a process that catches SIGTERM and goes on keeps its place until it has ended.
#[tokio::test]
async fn a_process_that_catches_sigterm_is_replaced_only_once_it_has_ended() {
    let kubectl = with_node().await;
    let here = kubectl.directory.path().to_owned();
    // The first one cleans up for as long as the test wants; the second one succeeds.
    let script = "echo up >> $HERE/said; [ -e $HERE/go ] && exit 0; \
                  trap 'echo term >> $HERE/said; while [ ! -e $HERE/go ]; do sleep 0.05; done; echo bye >> $HERE/said; exit 7' TERM; \
                  while :; do sleep 0.05; done";
    let spec = "podReplacementPolicy: Failed\n  backoffLimit: 1";
    let pod = "restartPolicy: Never\n      terminationGracePeriodSeconds: 3600";
    let made = kubectl.with_input("create --validate=false -f -", &job("slow", &here, spec, pod, script));
    assert_eq!(made.code, Some(0), "{}", made.err);
    let said = || lines(&here.join("said"));
    eventually("it runs", || said() == ["up"]);
    kubectl.ok("delete pods -l job-name=slow --wait=false");
    eventually("it has caught the signal", || said() == ["up", "term"]);
    let status = || kubectl.ok("get job slow -o jsonpath={.status}");
    eventually("it terminates", || status().contains("\"terminating\":1"));
    let counts = "get job slow -o jsonpath={.status.active}/{.status.failed}/{.status.terminating}";
    assert!(matches!(kubectl.ok(counts).trim(), "//1" | "0/0/1" | "0//1"), "{}", status());
    assert_eq!(kubectl.ok("get pods --no-headers").lines().count(), 1, "no replacement while it runs");
    fs::write(here.join("go"), "").unwrap();
    kubectl.ok("wait --for=condition=complete job/slow --timeout=120s");
    assert_eq!(said(), ["up", "term", "bye", "up"], "the replacement came after the end");
    let counts = kubectl.ok("get job slow -o jsonpath={.status.succeeded}/{.status.failed}/{.status.terminating}");
    assert_eq!(counts.trim(), "1/1/0");
}

/// Stopping the cluster does not count against the backoffLimit of its Jobs.
#[tokio::test]
async fn a_job_outlives_many_stops() {
    let mut kubectl = with_node().await;
    let here = kubectl.directory.path().to_owned();
    let script = "[ -e $HERE/again ] && exit 0; echo up >> $HERE/said; exec sleep 600";
    let yaml = job("many", &here, "parallelism: 8\n  completions: 8", "restartPolicy: Never", script);
    let made = kubectl.with_input("create --validate=false -f -", &yaml);
    assert_eq!(made.code, Some(0), "{}", made.err);
    for life in 1..=3 {
        eventually("all run", || lines(&here.join("said")).len() == 8 * life);
        kubectl.server.signal("TERM");
        assert_eq!(kubectl.server.ended(), Some(0), "{}", kubectl.server.said());
        assert_eq!(alive(&here), [""; 0]);
        if life == 3 {
            fs::write(here.join("again"), "").unwrap();
        }
        kubectl.server = Server::start_node(&here).await;
    }
    kubectl.ok("wait --for=condition=complete job/many --timeout=60s");
    let counts = kubectl.ok("get job many -o jsonpath={.status.succeeded}/{.status.failed}");
    assert!(matches!(counts.trim(), "8/" | "8/0"), "{counts}");
}

#[tokio::test]
async fn a_deleted_job_ends_its_processes() {
    let kubectl = with_node().await;
    let here = kubectl.directory.path().to_owned();
    let script = "trap 'echo bye >> $HERE/said; exit 0' TERM; echo up >> $HERE/said; while :; do sleep 0.05; done";
    let made =
        kubectl.with_input("create --validate=false -f -", &job("long", &here, "", "restartPolicy: Never", script));
    assert_eq!(made.code, Some(0), "{}", made.err);
    eventually("it runs", || lines(&here.join("said")) == ["up"]);
    kubectl.ok("delete job long");
    eventually("it has ended", || alive(&here).is_empty());
    assert_eq!(lines(&here.join("said")), ["up", "bye"]);
}

/// A token in a projected volume is that of the Pod's service account, and ends with the Pod.
#[tokio::test]
async fn a_pod_gets_the_token_that_it_asks_for() {
    let kubectl = with_node().await;
    let here = kubectl.directory.path().to_owned();
    kubectl.ok("create serviceaccount runner");
    let pod = "restartPolicy: Never\n      serviceAccountName: runner\n      volumes: [{name: v, projected: {sources: \
               [{serviceAccountToken: {path: token, expirationSeconds: 600}}]}}]";
    let yaml =
        job("asks", &here, "", pod, "cat /v/token > $HERE/token.part; mv $HERE/token.part $HERE/token; sleep 600");
    let yaml = yaml.replace("image: process", "image: process\n          volumeMounts: [{name: v, mountPath: /v}]");
    let made = kubectl.with_input("create --validate=false -f -", &yaml);
    assert_eq!(made.code, Some(0), "{}", made.err);
    eventually("the Pod has its token", || here.join("token").exists());
    let token = fs::read_to_string(here.join("token")).unwrap();
    let review = async || {
        let call = Call::new("POST", "/apis/authentication.k8s.io/v1/tokenreviews");
        kubectl.request(call.body(&json!({"spec": {"token": token}}))).await.value()["status"].clone()
    };
    assert_eq!(review().await["user"]["username"], "system:serviceaccount:default:runner");
    kubectl.ok("delete job asks --cascade=foreground --timeout=60s");
    assert_eq!(review().await["authenticated"], json!(null));
}
