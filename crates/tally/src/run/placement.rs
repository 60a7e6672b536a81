//! Whether Pods can be created on this machine's node at once, without a scheduler in between (CREATE-8). It would come to the
//! same: there is one node, and it has room for all Pods of all Jobs, beside those that are there. Only the processes of the run
//! write to its store.

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
    let some = |group: &str, plural: &str, selector: &str| -> Result<Vec<Value>> {
        let resource = catalog::find(group, "v1", plural).with_context(|| format!("no {plural} are served"))?;
        let options = ListOptions { field_selector: selector.to_owned(), ..ListOptions::default() };
        let listed = registry.list(Target::new(resource, "", ""), &options);
        let listed = listed.map_err(|failure| anyhow!(failure.message))?;
        Ok(listed.items.iter().map(|object| object.plain()).collect())
    };
    let all = |group: &str, plural: &str| some(group, plural, "");
    // A Pod that asks for nothing may be given something there.
    let is_given_more = !all("", "limitranges")?.is_empty();
    let is_open = all("", "nodes")?.iter().all(|node| takes_all(node, name));
    // There may be many that have ended.
    let pods = some("", "pods", "status.phase!=Succeeded,status.phase!=Failed")?;
    let has_room = has_room(&all("batch", "jobs")?, &pods, room);
    Ok((is_open && has_room && !is_given_more).then(|| name.to_owned()))
}

/// No other node, and nobody has said that Pods should not go there.
fn takes_all(node: &Value, name: &str) -> bool {
    let taints = node["spec"]["taints"].as_array();
    node["metadata"]["name"] == name
        && node["spec"]["unschedulable"] != true
        && taints.into_iter().flatten().all(|taint| taint["key"] == NOT_READY)
}

/// The Pods of a Job, or of the parts of a list, which share its parallelism.
#[derive(Default)]
struct Demand {
    parallelism: u64,
    /// The completions that are left.
    left: u64,
    /// The Pods that are there and have not ended.
    there: u64,
}

impl Demand {
    /// Beside each Pod that is wanted there may be another one that it replaces and that is still ending, and beside all of
    /// them those that are there already, if these are more.
    fn most(&self) -> u64 {
        let wanted = self.parallelism.min(self.left);
        wanted.saturating_add(wanted.max(self.there))
    }
}

fn has_room(jobs: &[Value], pods: &[Value], room: u64) -> bool {
    let is_finished = |job: &Value| {
        let conditions = job["status"]["conditions"].as_array();
        let is_last = |condition: &Value| condition["type"] == "Complete" || condition["type"] == "Failed";
        conditions.into_iter().flatten().any(|condition| is_last(condition) && condition["status"] == "True")
    };
    let mut demands: Vec<Demand> = Vec::new();
    let (mut of_jobs, mut of_lists) = (BTreeMap::new(), BTreeMap::new());
    for job in jobs.iter().filter(|job| !is_finished(job)) {
        let part = ListPart::of(job);
        let new = demands.len();
        let at = match &part {
            Some(part) => *of_lists.entry((job["metadata"]["namespace"].to_string(), part.of.clone())).or_insert(new),
            None => new,
        };
        if at == new {
            demands.push(Demand::default());
        }
        demands[at].parallelism = match part {
            Some(part) => part.parallelism.into(),
            None => job["spec"]["parallelism"].as_u64().unwrap_or(1),
        };
        let succeeded = job["status"]["succeeded"].as_u64().unwrap_or(0);
        let left = job["spec"]["completions"].as_u64().map_or(u64::MAX, |all| all.saturating_sub(succeeded));
        demands[at].left = demands[at].left.saturating_add(left);
        of_jobs.insert(job["metadata"]["uid"].as_str().unwrap_or_default(), at);
    }
    // Those of no Job, of a finished Job, and of one that is gone.
    let mut others = 0_u64;
    for pod in pods.iter().filter(|pod| pod["status"]["phase"] != "Succeeded" && pod["status"]["phase"] != "Failed") {
        let owners = pod["metadata"]["ownerReferences"].as_array();
        let owner = owners.into_iter().flatten().find(|owner| owner["controller"] == true);
        match owner.and_then(|owner| of_jobs.get(owner["uid"].as_str()?)) {
            Some(at) => demands[*at].there += 1,
            None => others += 1,
        }
    }
    demands.iter().fold(others, |sum, demand| sum.saturating_add(demand.most())) <= room
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

    #[track_caller]
    fn needs(jobs: &[Value], pods: &[Value], room: u64) {
        assert!(has_room(jobs, pods, room), "{jobs:?} {pods:?}");
        assert!(room == 0 || !has_room(jobs, pods, room - 1), "{jobs:?} {pods:?}");
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
            needs(&jobs, &[], room);
        }
    }

    #[test]
    fn a_job_has_no_more_pods_than_completions_that_are_left() {
        let job = |completions: u64, succeeded: u64| json!({"spec": {"parallelism": 8, "completions": completions}, "status": {"succeeded": succeeded}});
        for (completions, succeeded, room) in [(8, 0, 16), (9, 0, 16), (3, 0, 6), (9, 5, 8), (9, 9, 0)] {
            needs(&[job(completions, succeeded)], &[], room);
        }
    }

    #[test]
    fn pods_that_are_there_take_room_whoever_made_them() {
        let job = |uid: &str, parallelism: u64, status: Value| json!({"metadata": {"uid": uid}, "spec": {"parallelism": parallelism}, "status": status});
        let pod = |job: &str, phase: &str| {
            let owner = json!({"uid": job, "controller": true});
            json!({"metadata": {"ownerReferences": [owner]}, "status": {"phase": phase}})
        };
        let bare = |phase: &str| json!({"metadata": {}, "status": {"phase": phase}});
        let complete = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        for (jobs, pods, room) in [
            (vec![], vec![bare("Running"), bare("Pending"), bare("Succeeded"), bare("Failed"), json!({})], 3),
            // Of a Job that has finished, and of one that is gone.
            (vec![job("a", 4, complete)], vec![pod("a", "Running"), pod("b", "Pending"), pod("a", "Failed")], 2),
            // Its own are in what it needs, unless they are more: its parallelism was larger.
            (vec![job("a", 2, json!({}))], vec![pod("a", "Running"); 2], 4),
            (vec![job("a", 2, json!({}))], vec![pod("a", "Running"); 5], 7),
            (vec![job("a", 2, json!({}))], vec![pod("a", "Running"), bare("Running")], 5),
        ] {
            needs(&jobs, &pods, room);
        }
    }
}
