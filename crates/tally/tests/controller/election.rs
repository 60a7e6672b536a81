//! Two instances, one lease.

use serde_json::Value;

use crate::process::Controller;
use crate::support::client::{Api, Call};
use crate::support::server::{Server, directory};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/tally-job-controller";
/// Short, so that a killed leader is soon replaced, but longer than a busy machine may stall.
const QUICK: [&str; 3] =
    ["--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=5s", "--leader-elect-retry-period=300ms"];

async fn lease(api: &Api) -> Value {
    api.connection().call(&Call::get(LEASE)).await.unwrap().value()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_is_handed_over_by_those_who_stop_and_taken_from_those_who_die() {
    let directory = directory();
    let server = Server::start(directory.path()).await;
    let start = |name: &str| Controller::start(&server.kubeconfig(), name, &QUICK);
    let mut first = start("first");
    first.until_it_says("this process leads");
    let held = lease(&server.api).await;
    let holder = held["spec"]["holderIdentity"].as_str().unwrap().to_owned();
    assert!(first.said().contains(&holder), "{holder}");
    assert_eq!(held["metadata"]["labels"]["tally.dev/lease-of"], "job-controller");

    let mut second = start("second");
    second.until_it_says(&format!("{holder} leads"));
    assert!(!second.said().contains("this process leads"));
    assert_eq!(second.get("/readyz").0, 200, "who waits is ready");
    assert!(second.get("/metrics").1.contains("leader_election_master_status{name=\"tally-job-controller\"} 0"));

    first.signal("TERM");
    assert_eq!(first.ended(), Some(0), "{}", first.said());
    assert!(first.said().contains("the lease was released"), "{}", first.said());
    second.until_it_says("this process leads");
    assert!(second.get("/metrics").1.contains("leader_election_master_status{name=\"tally-job-controller\"} 1"));
    let taken = lease(&server.api).await;
    assert_eq!(taken["spec"]["leaseTransitions"], 1);
    assert_ne!(taken["spec"]["holderIdentity"], held["spec"]["holderIdentity"]);
    assert_eq!(taken["metadata"]["uid"], held["metadata"]["uid"]);

    let mut third = start("third");
    third.until_it_says("waits for the lease");
    second.kill();
    third.until_it_says("this process leads");
    assert_eq!(lease(&server.api).await["spec"]["leaseTransitions"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_loses_the_lease_stops_and_says_so() {
    let directory = directory();
    let server = Server::start(directory.path()).await;
    let mut controller = Controller::start(&server.kubeconfig(), "loser", &QUICK);
    controller.until_it_says("this process leads");
    // Another client overwrites the holder. If a renewal comes in between, the write conflicts and is repeated.
    loop {
        let mut stolen = lease(&server.api).await;
        stolen["spec"]["holderIdentity"] = "somebody-else".into();
        stolen["spec"]["leaseDurationSeconds"] = 3600.into();
        let answer = server.api.connection().call(&Call::new("PUT", LEASE).body(&stolen)).await.unwrap();
        if answer.code == 200 {
            break;
        }
        assert_eq!(answer.code, 409, "{}", answer.text);
    }
    assert_eq!(controller.ended(), Some(1), "{}", controller.said());
    assert!(controller.said().contains("the lease is lost"), "{}", controller.said());
    assert_eq!(lease(&server.api).await["spec"]["holderIdentity"], "somebody-else", "and leaves it alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_election_there_is_no_lease() {
    let directory = directory();
    let server = Server::start(directory.path()).await;
    let mut controller = Controller::start(&server.kubeconfig(), "alone", &["--leader-elect=false"]);
    controller.until("ready", |controller| {
        controller.said().contains("metrics are at") && controller.get("/readyz").0 == 200
    });
    assert_eq!(lease(&server.api).await["code"], 404);
    controller.signal("INT");
    assert_eq!(controller.ended(), Some(0), "{}", controller.said());
}
