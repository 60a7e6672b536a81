//! `kubectl top`.

use serde_json::Value;

use crate::support::client::Call;
use crate::support::kubectl::{Kubectl, with_each_kubectl, with_node, with_node_and, with_open_node};
use crate::tool::eventually;
use crate::{container, create, pod, wait_for_phase};

/// Uses one processor.
const BUSY: &str = "while :; do :; done";
/// Holds more than 50 MiB, and does not work.
const LARGE: &str = "dd if=/dev/zero bs=64M count=1 2>/dev/null | sleep 1000";

/// The rows below the heading, by the first cells, with thousandths of processors and MiB.
fn rows(kubectl: &Kubectl, arguments: &str, names: usize) -> Vec<(Vec<String>, u64, u64)> {
    let mut table = kubectl.table(arguments);
    let heading = table.remove(0);
    assert_eq!(&heading[names..names + 1], ["CPU(cores)"], "{heading:?}");
    let number = |cell: &str, unit: &str| cell.strip_suffix(unit).and_then(|digits| digits.parse().ok()).unwrap();
    let row = |row: Vec<String>| (row[..names].to_vec(), number(&row[names], "m"), number(row.last().unwrap(), "Mi"));
    table.into_iter().map(row).collect()
}

fn row<'a>(rows: &'a [(Vec<String>, u64, u64)], name: &[&str]) -> &'a (Vec<String>, u64, u64) {
    rows.iter().find(|(found, ..)| found == name).unwrap_or_else(|| panic!("{name:?} is not in {rows:?}"))
}

/// TOP-1, TOP-2, TOP-3
fn figures_are_those_of_the_processes(kubectl: &Kubectl) {
    create(
        kubectl,
        &[
            pod("busy", "", &[container("work", BUSY), container("rest", "sleep 1000")]),
            pod("idle", "", &[container("main", "sleep 1000")]),
            pod("large", "", &[container("main", LARGE)]),
            pod("ended", "", &[container("main", "true")]),
        ]
        .concat(),
    );
    for (name, phase) in [("busy", "Running"), ("idle", "Running"), ("large", "Running"), ("ended", "Succeeded")] {
        wait_for_phase(kubectl, name, phase);
    }
    // Its memory grows while it starts, and containers have figures after a second.
    eventually("50 MiB are seen", || {
        let said = kubectl.say("top pod large --no-headers");
        let memory = said.out.split_whitespace().last().and_then(|cell| cell.strip_suffix("Mi")?.parse::<u64>().ok());
        memory.is_some_and(|memory| memory >= 50)
    });
    eventually("all Pods have figures", || kubectl.say("top pod").out.lines().count() == 4);
    let found = rows(kubectl, "top pod", 1);
    assert_eq!(found.iter().map(|(name, ..)| name[0].as_str()).collect::<Vec<_>>(), ["busy", "idle", "large"]);
    assert!(row(&found, &["busy"]).1 > 100, "{found:?}");
    assert!(row(&found, &["idle"]).1 <= 5 && row(&found, &["idle"]).2 < 20, "{found:?}");
    assert!((50..300).contains(&row(&found, &["large"]).2) && row(&found, &["busy"]).2 < 40, "{found:?}");

    let each = rows(kubectl, "top pod --containers", 2);
    assert!(row(&each, &["busy", "work"]).1 > 100 && row(&each, &["busy", "rest"]).1 <= 5, "{each:?}");
    assert_eq!(rows(kubectl, "top pod -l of=idle", 1).len(), 1);
    assert_eq!(rows(kubectl, "top pod -A", 2).len(), 3);
    assert_eq!(kubectl.say("top pod -n kube-system").err.trim(), "No resources found in kube-system namespace.");
    let refused = kubectl.fails("top pod ended");
    assert!(refused.contains("podmetrics.metrics.k8s.io \"default/ended\" not found"), "{refused}");
    assert!(kubectl.fails("top pod nope").contains("pods \"nope\" not found"));

    // A name, both figures, and what they are of what the node has.
    let nodes = kubectl.table("top node");
    let [heading, node] = &nodes[..] else { panic!("{nodes:?}") };
    assert!(heading[0] == "NAME" && node.len() == 5, "{nodes:?}");
    assert!(node[1].strip_suffix('m').unwrap().parse::<u64>().unwrap() > 100, "{nodes:?}");
    assert_eq!(kubectl.ok(&format!("top node {} --no-headers", node[0])).lines().count(), 1);
}

#[tokio::test]
async fn pods_and_nodes_have_figures() {
    figures_are_those_of_the_processes(&with_node().await);
}

#[tokio::test]
async fn pods_that_are_not_isolated_have_figures() {
    figures_are_those_of_the_processes(&with_open_node().await);
}

/// TOP-1: the figures as an object, and where the group is named.
#[tokio::test]
async fn figures_are_objects_of_an_api() {
    let kubectl = with_node().await;
    create(&kubectl, &pod("idle", "", &[container("main", "sleep 1000")]));
    wait_for_phase(&kubectl, "idle", "Running");
    let path = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/idle";
    eventually("there are figures", || kubectl.say(&format!("get --raw {path}")).code == Some(0));
    let figures = kubectl.json(&format!("get --raw {path}"));
    assert_eq!((&figures["kind"], &figures["apiVersion"]), (&"PodMetrics".into(), &"metrics.k8s.io/v1beta1".into()));
    assert_eq!(figures["metadata"]["labels"]["of"], "idle");
    assert_eq!(figures["containers"][0]["name"], "main");
    assert!(figures["window"].as_str().unwrap().ends_with('s') && figures["timestamp"].is_string(), "{figures}");
    let list = kubectl.json("get --raw /apis/metrics.k8s.io/v1beta1/pods");
    assert_eq!((&list["kind"], &list["metadata"]), (&"PodMetricsList".into(), &serde_json::json!({})));
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(kubectl.table("get podmetrics")[1][0], "idle");
    assert!(kubectl.ok("get podmetrics idle -o yaml").contains("kind: PodMetrics"));
    assert!(kubectl.ok("explain podmetrics.containers").contains("usage"));

    let named = |list: &Value, name: &str| list.as_array().unwrap().iter().any(|group| group["name"] == name);
    assert!(named(&kubectl.json("get --raw /apis")["groups"], "metrics.k8s.io"));
    let rows = kubectl.ok("api-resources --api-group=metrics.k8s.io --no-headers");
    assert_eq!(rows.lines().count(), 2, "{rows}");
    let answer = kubectl.server.api.connection().call(&Call::new("DELETE", path)).await.unwrap();
    assert_eq!(answer.code, 405);

    // TOP-4: who may see Pods may see what they use.
    kubectl.ok("create serviceaccount reader");
    let no = kubectl.fails("top pod --as=system:serviceaccount:default:reader");
    assert!(no.contains("cannot list resource \"pods\" in API group \"metrics.k8s.io\""), "{no}");
    kubectl.ok("create rolebinding reader --clusterrole=view --serviceaccount=default:reader");
    eventually("the role counts", || kubectl.say("top pod --as=system:serviceaccount:default:reader").code == Some(0));
    let no = kubectl.fails("top node --as=system:serviceaccount:default:reader");
    assert!(no.contains("cannot list resource \"nodes\" in API group \"metrics.k8s.io\""), "{no}");
}

/// TOP-5
#[tokio::test]
async fn without_processes_there_are_no_figures() {
    with_each_kubectl(|kubectl| async move {
        assert_eq!(kubectl.say("top pod").err.trim(), "No resources found in default namespace.");
    })
    .await;
    let kubectl = with_node_and(&["--hollow", "1"]).await;
    let annotated = pod("p", "", &[container("main", "true")])
        .replace("labels:", "annotations: {hollow.tally.dev/hang: \"true\"}, labels:");
    create(&kubectl, &annotated);
    let said = kubectl.say("top pod");
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.to_lowercase().contains("metrics not available"), "{said:?}");
    let list = kubectl.json("get --raw /apis/metrics.k8s.io/v1beta1/nodes");
    assert_eq!(list["items"].as_array().unwrap().len(), 0);
}
