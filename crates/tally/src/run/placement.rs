//! Whether Pods can be created on this machine's node at once, without a scheduler in between (CREATE-8). It would come to the
//! same: there is one node, and it has room for all Pods of all Jobs. Only the processes of the run write to its store.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow};
use serde_json::Value;
use tally_api::catalog;
use tally_api::options::ListOptions;
use tally_registry::{Registry, Target};

use super::parts::ListPart;

/// A new node has it until it is ready, which the scheduler would wait for. Then its Pods start.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// The name of the node, if so. `room`: the number of Pods that the node takes.
pub fn only_node(registry: &Registry, name: &str, room: u64) -> Result<Option<String>> {
    let all = |group: &str, plural: &str| -> Result<Vec<Value>> {
        let resource = catalog::find(group, "v1", plural).with_context(|| format!("no {plural} are served"))?;
        let listed = registry.list(Target::new(resource, "", ""), &ListOptions::default());
        let listed = listed.map_err(|failure| anyhow!(failure.message))?;
        Ok(listed.items.iter().map(|object| object.plain()).collect())
    };
    // A Pod that asks for nothing may be given something there.
    let is_given_more = !all("", "limitranges")?.is_empty();
    let is_open = all("", "nodes")?.iter().all(|node| takes_all(node, name));
    let has_room = has_room(&all("batch", "jobs")?, room);
    Ok((is_open && has_room && !is_given_more).then(|| name.to_owned()))
}

/// No other node, and nobody has said that Pods should not go there.
fn takes_all(node: &Value, name: &str) -> bool {
    let taints = node["spec"]["taints"].as_array();
    node["metadata"]["name"] == name
        && node["spec"]["unschedulable"] != true
        && taints.into_iter().flatten().all(|taint| taint["key"] == NOT_READY)
}

/// Beside each Pod there may be another one that it replaces and that is still ending.
fn has_room(jobs: &[Value], room: u64) -> bool {
    let is_finished = |job: &Value| {
        let conditions = job["status"]["conditions"].as_array();
        let is_last = |condition: &Value| condition["type"] == "Complete" || condition["type"] == "Failed";
        conditions.into_iter().flatten().any(|condition| is_last(condition) && condition["status"] == "True")
    };
    let mut lists = BTreeMap::new();
    let mut most = 0_u64;
    for job in jobs.iter().filter(|job| !is_finished(job)) {
        match ListPart::of(job) {
            // The parts of a list share its parallelism.
            Some(part) => {
                lists.insert((job["metadata"]["namespace"].to_string(), part.of), part.parallelism);
            }
            None => most = most.saturating_add(job["spec"]["parallelism"].as_u64().unwrap_or(1)),
        }
    }
    let of_lists = lists.values().fold(0_u64, |sum, parallelism| sum.saturating_add(u64::from(*parallelism)));
    most.saturating_add(of_lists).saturating_mul(2) <= room
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_takes_all_pods_unless_somebody_has_said_otherwise() {
        let taint = |key: &str| json!([{"key": key, "effect": "NoSchedule"}]);
        for (name, spec, expected) in [
            ("n", json!({}), true),
            ("n", json!({"taints": taint(NOT_READY)}), true),
            ("n", json!({"taints": taint("example.com/t")}), false),
            ("n", json!({"unschedulable": true}), false),
            ("m", json!({}), false),
        ] {
            let node = json!({"metadata": {"name": name}, "spec": spec});
            assert_eq!(takes_all(&node, "n"), expected, "{node}");
        }
    }

    #[test]
    fn there_is_room_for_the_pods_of_all_unfinished_jobs_twice() {
        let job = |parallelism: u64, status: Value| json!({"spec": {"parallelism": parallelism}, "status": status});
        let ended = |kind: &str, status: &str| json!({"conditions": [{"type": kind, "status": status}]});
        let part = |list: &str, parallelism: u64| {
            let (of, whole) = (list, parallelism.to_string());
            let annotations =
                json!({"tally.dev/part-of": of, "tally.dev/first-index": "0", "tally.dev/parallelism": whole});
            json!({"metadata": {"annotations": annotations}, "spec": {"parallelism": 1}})
        };
        for (jobs, room) in [
            (vec![], 0),
            (vec![job(8, json!({}))], 16),
            (vec![json!({"spec": {}})], 2),
            (vec![job(8, json!({})), job(3, ended("Complete", "False"))], 22),
            (vec![job(8, json!({})), job(3, ended("Complete", "True")), job(3, ended("Failed", "True"))], 16),
            (vec![part("a", 8), part("a", 8), part("b", 2), job(1, json!({}))], 22),
        ] {
            assert!(has_room(&jobs, room), "{jobs:?}");
            assert!(room == 0 || !has_room(&jobs, room - 1), "{jobs:?}");
        }
    }
}
