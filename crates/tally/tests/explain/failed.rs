//! What `tally explain` says about a Job that has failed, or fails.

use serde_json::{Value, json};

use crate::support::client::Call;
use crate::support::server::{self, Server};
use crate::tool::{Cluster, eventually, explain, tally, text};

const NO_PROGRAM: &str = "the command \"no-such-program\" was not found in PATH=";

fn program(name: &str, more: Value) -> Value {
    let mut spec = json!({"template": {"spec": {"containers": [{"name": "c", "image": "none", "command": [name]}]}}});
    crate::tool::merge(&mut spec, &more);
    spec
}

async fn once_in(place: &[&str], object: &str, state: &str) -> Value {
    eventually("it is in that state", async || {
        let said = explain(place, object);
        (said["state"] == state).then_some(said)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_job_says_why_it_failed() {
    let directory = server::directory();
    let mut cluster = Cluster::of(Server::start_node(directory.path()).await, directory);
    let none = || json!({});
    // One stream: lines of two have no order.
    let script = "exec 2>&1; seq 1 30; printf '\\033[2Jred\\n'; echo cannot open the door >&2; exit 3";
    let indexed = json!({"completionMode": "Indexed", "completions": 6, "parallelism": 6, "backoffLimitPerIndex": 0});
    cluster.job("three", none(), json!({"backoffLimit": 0}), script).await;
    cluster.job("signal", none(), json!({"backoffLimit": 0}), "kill -9 $$$$").await;
    cluster.job("indexes", none(), indexed, "echo mine $JOB_COMPLETION_INDEX; exit $JOB_COMPLETION_INDEX").await;
    cluster.job("no-program", none(), program("no-such-program", json!({"backoffLimit": 0})), "").await;
    cluster.job("tried-again", none(), program("no-such-program", none()), "").await;
    cluster.job("complete", none(), none(), "true").await;

    let data = text(&cluster.directory.path().join("data"));
    let kubeconfig = cluster.kubeconfig.clone();
    // From the server of the cluster, and from the process that has the directory.
    for place in [["--kubeconfig", &kubeconfig], ["--data-dir", &data]] {
        told(&place).await;
        let again = eventually("it waits for its next attempt", async || {
            let said = explain(&place, "job/tried-again");
            (said["reasons"][0]["reason"] == "BackOff").then_some(said)
        })
        .await;
        assert_eq!(again["state"], "Waiting");
        assert!(again["reasons"][0]["message"].as_str().unwrap().contains(NO_PROGRAM), "{again:#}");
        assert!(again["failures"][0]["summary"].as_str().unwrap().contains(NO_PROGRAM), "{again:#}");
        let complete = once_in(&place, "job/complete", "Complete").await;
        assert_eq!(complete["failures"], json!([]));
        assert!(complete["summary"].as_str().unwrap().starts_with("The Job is complete"), "{complete:#}");
    }
    // A Pod by itself.
    let pod = cluster.pods("three", 1).await.remove(0);
    let said = tally(&["explain", &format!("pod/{}", crate::tool::name_of(&pod)), "--data-dir", &data]).out;
    assert!(said.contains(": exit code 3.") && said.contains("cannot open the door"), "{said}");
    assert!(!said.contains("Nothing is wrong"), "{said}");
    // From the files, when no process has them any more.
    cluster.server.signal("TERM");
    cluster.server.ended();
    told(&["--data-dir", &data]).await;
}

async fn told(place: &[&str]) {
    let three = once_in(place, "job/three", "Failed").await;
    assert!(three["summary"].as_str().unwrap().contains("has failed: BackoffLimitExceeded"), "{three:#}");
    let failure = &three["failures"][0];
    assert_eq!(
        (&failure["exitCode"], &failure["signal"], &failure["container"]),
        (&json!(3), &json!(null), &json!("c"))
    );
    let log: Vec<&str> = failure["log"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    assert_eq!((log.len(), log[0], log[9]), (10, "23", "cannot open the door"), "{three:#}");
    let said = tally(&[&["explain", "three"], place].concat()).out;
    assert!(said.starts_with("job/three in namespace default: Failed. The Job has failed: "), "{said}");
    assert!(said.contains("\nFailed:    Pod three-") && said.contains(": exit code 3.\n"), "{said}");
    assert!(said.contains("\n  log:     23\n") && said.contains("\n           cannot open the door\n"), "{said}");
    assert!(!said.contains("Nothing is wrong") && !said.contains('\u{1b}'), "{said}");

    let signal = once_in(place, "job/signal", "Failed").await;
    assert_eq!(
        (&signal["failures"][0]["signal"], &signal["failures"][0]["log"]),
        (&json!(9), &json!([])),
        "{signal:#}"
    );
    // At most three, and of each its own log.
    let indexes = once_in(place, "job/indexes", "Failed").await;
    assert!(indexes["summary"].as_str().unwrap().ends_with(" Failed indexes: 1-5."), "{indexes:#}");
    let failures = indexes["failures"].as_array().unwrap();
    assert_eq!((failures.len(), &indexes["moreFailures"]), (3, &json!(2)), "{indexes:#}");
    for failure in failures {
        assert_eq!(
            (&failure["exitCode"], &failure["log"][0]),
            (&failure["index"], &json!(format!("mine {}", failure["index"])))
        );
    }
    let missing = once_in(place, "job/no-program", "Failed").await;
    let failure = &missing["failures"][0];
    assert_eq!((&failure["exitCode"], &failure["reason"]), (&json!(128), &json!("StartError")));
    let said = tally(&[&["explain", "no-program"], place].concat()).out;
    assert!(said.contains(NO_PROGRAM) && !said.contains("Nothing is wrong"), "{said}");
}

/// Pods can be deleted; what is recorded about them stays in the data directory.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_job_whose_pods_are_gone_is_told_from_its_records() {
    let directory = server::directory();
    let cluster = Cluster::of(Server::start_node(directory.path()).await, directory);
    cluster.job("sum", json!({}), json!({"backoffLimit": 0}), "exit 7").await;
    let data = text(&cluster.directory.path().join("data"));
    let place = ["--data-dir", data.as_str()];
    once_in(&place, "job/sum", "Failed").await;
    let pod = format!("/api/v1/namespaces/default/pods/{}", crate::tool::name_of(&cluster.pods("sum", 1).await[0]));
    cluster.call(Call::new("DELETE", pod)).await;
    cluster.pods("sum", 0).await;
    let said = explain(&place, "job/sum");
    assert_eq!((&said["state"], &said["failures"][0]["exitCode"]), (&json!("Failed"), &json!(7)), "{said:#}");
    // A cluster has no records: the verdict is what is left.
    let said = tally(&["explain", "sum", "--kubeconfig", &cluster.kubeconfig]).out;
    assert!(said.contains("has failed: BackoffLimitExceeded") && !said.contains("Nothing is wrong"), "{said}");
}
