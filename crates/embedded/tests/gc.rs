//! The garbage collector on the real registry.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::{Cluster, kinds};
use serde_json::{Value, json};
use tally_controllers::gc::GarbageCollector;
use tally_runtime::controller::{Kind, Refusal, Reply};

fn started() -> Cluster {
    Cluster::new(vec![Box::new(GarbageCollector::new(kinds()))])
}

/// A reference to an object as the API returned it.
fn owner(kind: Kind, object: &Value, blocks: bool) -> Value {
    let meta = &object["metadata"];
    json!({
        "apiVersion": kind.api_version(), "kind": kind.kind, "name": meta["name"], "uid": meta["uid"],
        "blockOwnerDeletion": blocks,
    })
}

fn configmap(cluster: &Cluster, name: &str, owners: &[Value], finalizers: &[&str]) -> Value {
    let metadata = json!({"name": name, "ownerReferences": owners, "finalizers": finalizers});
    cluster.create(Kind::CONFIG_MAP, "default", &json!({"metadata": metadata}))
}

fn job(cluster: &Cluster, name: &str, owners: &[Value], finalizers: &[&str]) -> Value {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({
        "metadata": {"name": name, "ownerReferences": owners, "finalizers": finalizers},
        "spec": {"suspend": true, "template": template},
    });
    cluster.create(Kind::JOB, "default", &job)
}

fn pod(cluster: &Cluster, name: &str, node: Option<&str>, owners: &[Value]) -> Value {
    let mut pod = Cluster::pod(name, node);
    pod["metadata"]["ownerReferences"] = owners.into();
    cluster.create(Kind::POD, "default", &pod)
}

fn policy(name: &str) -> Value {
    json!({"propagationPolicy": name})
}

fn names(cluster: &Cluster, kind: Kind) -> Vec<String> {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.list(kind, "default").iter().map(name).collect()
}

fn meta(cluster: &Cluster, kind: Kind, name: &str) -> Value {
    cluster.get(kind, "default", name).map(|mut object| object["metadata"].take()).unwrap_or_default()
}

const NONE: [&str; 0] = [];

#[test]
fn a_cluster_at_rest_costs_nothing() {
    let mut cluster = started();
    let job = job(&cluster, "j", &[], &[]);
    pod(&cluster, "p", None, &[owner(Kind::JOB, &job, true)]);
    cluster.pass(3600);
    assert_eq!(cluster.log, NONE);
}

#[test]
fn deletion_in_the_background_cascades() {
    let mut cluster = started();
    let root = configmap(&cluster, "c", &[], &[]);
    let job = job(&cluster, "j", &[owner(Kind::CONFIG_MAP, &root, false)], &[]);
    pod(&cluster, "p", None, &[owner(Kind::JOB, &job, true)]);
    pod(&cluster, "bystander", None, &[]);
    cluster.settle();
    cluster.delete(Kind::CONFIG_MAP, "default", "c", &policy("Background"));
    cluster.settle();
    assert_eq!((names(&cluster, Kind::JOB), names(&cluster, Kind::POD)), (vec![], vec!["bystander".to_owned()]));
    assert_eq!(cluster.log, ["Delete jobs default/j", "Delete pods default/p"]);
}

#[test]
fn pods_on_a_node_get_their_grace_period() {
    let mut cluster = started();
    let job = job(&cluster, "j", &[], &[]);
    pod(&cluster, "p", Some("n"), &[owner(Kind::JOB, &job, true)]);
    cluster.settle();
    cluster.delete(Kind::JOB, "default", "j", &policy("Foreground"));
    cluster.pass(3600);
    assert_eq!(meta(&cluster, Kind::POD, "p")["deletionGracePeriodSeconds"], 30);
    assert_eq!(meta(&cluster, Kind::JOB, "j")["finalizers"], json!(["foregroundDeletion"]), "it waits for its Pod");
    cluster.delete(Kind::POD, "default", "p", &json!({"gracePeriodSeconds": 0}));
    cluster.settle();
    assert_eq!(names(&cluster, Kind::JOB), NONE);
    assert_eq!(cluster.log, ["Delete pods default/p", "MergePatch jobs default/j"]);
}

#[test]
fn a_default_delete_of_a_job_leaves_its_pods() {
    let mut cluster = started();
    let job = job(&cluster, "j", &[], &[]);
    pod(&cluster, "p", None, &[owner(Kind::JOB, &job, true)]);
    pod(&cluster, "q", None, &[owner(Kind::JOB, &job, true)]);
    cluster.settle();
    cluster.delete(Kind::JOB, "default", "j", &Value::Null);
    cluster.settle();
    assert_eq!(names(&cluster, Kind::JOB), NONE);
    assert_eq!(names(&cluster, Kind::POD), ["p", "q"]);
    assert_eq!(meta(&cluster, Kind::POD, "p").get("ownerReferences"), None);
    assert_eq!(
        cluster.log,
        ["StrategicPatch pods default/p", "StrategicPatch pods default/q", "MergePatch jobs default/j"]
    );
}

#[test]
fn a_foreign_finalizer_outlives_ours() {
    let mut cluster = started();
    for (nth, policy_name) in ["Foreground", "Orphan"].into_iter().enumerate() {
        let name = format!("j{nth}");
        job(&cluster, &name, &[], &["example.com/hold"]);
        cluster.settle();
        cluster.delete(Kind::JOB, "default", &name, &policy(policy_name));
        cluster.settle();
        assert_eq!(meta(&cluster, Kind::JOB, &name)["finalizers"], json!(["example.com/hold"]), "{policy_name}");
    }
}

#[test]
fn owners_that_never_were() {
    let mut cluster = started();
    let claim = |kind: Kind, name: &str| json!({"apiVersion": kind.api_version(), "kind": kind.kind, "name": name, "uid": "11111111-2222-3333-4444-555555555555"});
    let there = configmap(&cluster, "there", &[], &[]);
    pod(&cluster, "alone", None, &[claim(Kind::JOB, "nojob")]);
    pod(&cluster, "other-namespace", None, &[claim(Kind::NODE, "nonode")]);
    pod(&cluster, "two", None, &[claim(Kind::JOB, "nojob"), owner(Kind::CONFIG_MAP, &there, false)]);
    let foreign = Kind::new("example.com", "v1", "Thing", "things", true);
    pod(&cluster, "foreign", None, &[claim(foreign, "x")]);
    cluster.settle();
    assert_eq!(names(&cluster, Kind::POD), ["foreign", "two"]);
    assert_eq!(meta(&cluster, Kind::POD, "two")["ownerReferences"].as_array().unwrap().len(), 1);
}

#[test]
fn an_owner_in_another_namespace_is_none() {
    let mut cluster = started();
    cluster.create(Kind::NAMESPACE, "", &json!({"metadata": {"name": "other"}}));
    let elsewhere = cluster.create(Kind::CONFIG_MAP, "other", &json!({"metadata": {"name": "c"}}));
    cluster.settle();
    pod(&cluster, "p", None, &[owner(Kind::CONFIG_MAP, &elsewhere, true)]);
    cluster.settle();
    assert_eq!(names(&cluster, Kind::POD), NONE);
    assert_eq!(cluster.events[0].reason, "OwnerRefInvalidNamespace");
}

#[test]
fn a_pod_the_collector_has_not_seen_is_not_lost_when_its_job_lets_go() {
    for policy_name in ["Orphan", "Foreground"] {
        let mut cluster = started();
        let job = job(&cluster, "j", &[], &[]);
        cluster.settle();
        cluster.held.insert(Kind::POD);
        pod(&cluster, "p", Some("n"), &[owner(Kind::JOB, &job, true)]);
        cluster.delete(Kind::JOB, "default", "j", &policy(policy_name));
        cluster.settle();
        assert_eq!(names(&cluster, Kind::JOB), ["j"], "its Pods are not known yet");
        cluster.held.clear();
        cluster.settle();
        let pod = meta(&cluster, Kind::POD, "p");
        assert_eq!(pod.get("deletionTimestamp").is_some(), policy_name == "Foreground");
        assert_eq!(names(&cluster, Kind::JOB).is_empty(), policy_name == "Orphan");
    }
}

#[test]
fn an_owner_the_collector_has_not_seen_is_not_taken_for_gone() {
    let mut cluster = started();
    cluster.held.insert(Kind::JOB);
    let job = job(&cluster, "j", &[], &[]);
    pod(&cluster, "p", None, &[owner(Kind::JOB, &job, true)]);
    cluster.settle();
    cluster.pass(10);
    assert_eq!(names(&cluster, Kind::POD), ["p"]);
    cluster.held.clear();
    cluster.pass(3600);
    let looks = cluster.log.len();
    assert!((1..10).contains(&looks), "{:?}", cluster.log);
    cluster.delete(Kind::JOB, "default", "j", &policy("Background"));
    cluster.settle();
    assert_eq!(names(&cluster, Kind::POD), NONE);
}

#[test]
fn a_new_collector_finishes_what_another_began() {
    for policy_name in ["Orphan", "Foreground", "Background"] {
        let mut cluster = started();
        let job = job(&cluster, "j", &[], &[]);
        pod(&cluster, "p", None, &[owner(Kind::JOB, &job, true)]);
        cluster.stop();
        cluster.delete(Kind::JOB, "default", "j", &policy(policy_name));
        cluster.start(Box::new(GarbageCollector::new(kinds())));
        cluster.settle();
        assert_eq!(names(&cluster, Kind::JOB), NONE, "{policy_name}");
        assert_eq!(names(&cluster, Kind::POD).is_empty(), policy_name != "Orphan");
    }
}

#[test]
fn those_that_own_each_other_come_to_an_end() {
    let mut cluster = started();
    let a = configmap(&cluster, "a", &[], &[]);
    let b = configmap(&cluster, "b", &[owner(Kind::CONFIG_MAP, &a, true)], &[]);
    let back = json!({"metadata": {"ownerReferences": [owner(Kind::CONFIG_MAP, &b, true)]}});
    cluster.merge(Kind::CONFIG_MAP, "default", "a", &back);
    cluster.settle();
    cluster.delete(Kind::CONFIG_MAP, "default", "a", &policy("Foreground"));
    cluster.settle();
    assert_eq!(names(&cluster, Kind::CONFIG_MAP), NONE);
}

#[test]
fn thousands_of_dependents_cost_one_request_each() {
    let mut cluster = started();
    let job = job(&cluster, "j", &[], &[]);
    (0..2000).for_each(|nth| drop(pod(&cluster, &format!("p{nth}"), None, &[owner(Kind::JOB, &job, true)])));
    cluster.settle();
    cluster.delete(Kind::JOB, "default", "j", &policy("Foreground"));
    cluster.settle();
    assert_eq!((names(&cluster, Kind::JOB), names(&cluster, Kind::POD)), (vec![], vec![]));
    assert_eq!(cluster.log.len(), 2001);
}

/// A small random number generator: the cases must be the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

/// What should exist: names, and the names of their owners.
#[derive(Debug, Default, PartialEq)]
struct Model(BTreeMap<String, BTreeSet<String>>);

impl Model {
    fn delete(&mut self, name: &str, orphan: bool) {
        if orphan {
            self.0.values_mut().for_each(|owners| owners.retain(|owner| owner != name));
        }
        self.0.remove(name);
        loop {
            let there: BTreeSet<_> = self.0.keys().cloned().collect();
            let lost = |owners: &BTreeSet<String>| !owners.is_empty() && owners.is_disjoint(&there);
            let Some(next) = self.0.iter().find(|(_, owners)| lost(owners)).map(|(name, _)| name.clone()) else {
                break;
            };
            self.0.remove(&next);
        }
        let there: BTreeSet<_> = self.0.keys().cloned().collect();
        self.0.values_mut().for_each(|owners| owners.retain(|owner| there.contains(owner)));
    }

    fn of(cluster: &Cluster) -> Self {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let objects = [Kind::CONFIG_MAP, Kind::POD].into_iter().flat_map(|kind| cluster.list(kind, "default"));
        let entry = |object: Value| {
            let meta = &object["metadata"];
            let owners = meta["ownerReferences"].as_array().into_iter().flatten();
            (text(&meta["name"]), owners.map(|owner| text(&owner["name"])).collect())
        };
        Self(objects.map(entry).collect())
    }
}

/// Requests are refused, or lost before or after they are carried out; streams fall behind; the collector is replaced.
#[test]
fn whatever_goes_wrong_the_right_objects_stay() {
    for seed in 0..24 {
        let mut dice = Dice(seed);
        let mut cluster = started();
        let mut model = Model::default();
        let mut made: Vec<(Kind, Value)> = Vec::new();
        for nth in 0..14 {
            let kind = if dice.roll(2) == 0 { Kind::CONFIG_MAP } else { Kind::POD };
            let name = format!("{}{nth}", kind.plural);
            let mut owners: BTreeMap<String, Value> = BTreeMap::new();
            for _ in 0..dice.roll(3).min(made.len() as u64) {
                let (kind, object) = &made[dice.roll(made.len() as u64) as usize];
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                owners.insert(name, owner(*kind, object, dice.roll(2) == 0));
            }
            model.0.insert(name.clone(), owners.keys().cloned().collect());
            let owners: Vec<_> = owners.into_values().collect();
            let object = if kind == Kind::POD {
                pod(&cluster, &name, None, &owners)
            } else {
                configmap(&cluster, &name, &owners, &[])
            };
            made.push((kind, object));
        }
        assert_eq!(Model::of(&cluster), model);
        for step in 0..6 {
            let held = [Kind::CONFIG_MAP, Kind::POD][dice.roll(2) as usize];
            if dice.roll(2) == 0 {
                cluster.held.insert(held);
            }
            let Some(name) = model.0.keys().nth(dice.roll(14) as usize).cloned() else { continue };
            let kind = if name.starts_with("pods") { Kind::POD } else { Kind::CONFIG_MAP };
            let how = ["Background", "Foreground", "Orphan"][dice.roll(3) as usize];
            model.delete(&name, how == "Orphan");
            cluster.delete(kind, "default", &name, &policy(how));
            let mut trouble = Dice(seed * 100 + step);
            cluster.intercept = Box::new(move |_| match trouble.roll(8) {
                0 => Some(Reply::Unknown),
                1 => Some(Reply::Refused(Refusal { code: 500, ..Refusal::default() })),
                2 => Some(Reply::Refused(Refusal { code: 429, ..Refusal::default() })),
                _ => None,
            });
            cluster.settle();
            if dice.roll(3) == 0 {
                cluster.stop();
                cluster.start(Box::new(GarbageCollector::new(kinds())));
            }
            cluster.held.clear();
            cluster.pass(200);
            assert_eq!(Model::of(&cluster), model, "seed {seed}, step {step}: {how} {name}: {:?}", cluster.log);
        }
    }
}
