//! Any sequence of writes stores what a plain reference says.
//!
//! For ConfigMaps the reference is this file's own, and shares no type with the value that objects are made of. For Pods it is a
//! registry that remembers nothing of what it wrote: every object is read from its text, and all of it is checked and written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::{Cluster, now};
use proptest::prelude::*;
use serde_json::{Map, Value as Plain, json as plain};
use tally_api::options::{DeleteOptions, Format, PatchKind, WriteOptions};
use tally_api::status_error::StatusError;
use tally_core::time::Timestamp;
use tally_registry::{Env, Target};
use tally_store::{Store, StoreOptions};
use tally_value::{Value, json};

// ---- ConfigMaps ----

/// RFC 7396.
fn merge(target: &mut Plain, patch: &Plain) {
    let Plain::Object(patch) = patch else { return target.clone_from(patch) };
    if !target.is_object() {
        *target = Plain::Object(Map::new());
    }
    let fields = target.as_object_mut().unwrap();
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name).or_insert(Plain::Null), value);
        }
    }
}

/// The stored form: no maps without content, and the metadata with the revision first.
fn stored(object: &Plain, revision: u64) -> String {
    let mut fields = object.as_object().unwrap().clone();
    let mut metadata = fields.remove("metadata").unwrap().as_object().unwrap().clone();
    for map in [&mut metadata, &mut fields] {
        map.retain(|_, value| !value.as_object().is_some_and(Map::is_empty));
    }
    let mut text = format!(r#"{{"metadata":{{"resourceVersion":"{revision}""#);
    for (name, value) in metadata {
        text += &format!(",{}:{value}", plain!(name));
    }
    text += "}";
    for (name, value) in fields {
        text += &format!(",{}:{value}", plain!(name));
    }
    text + "}"
}

fn texts() -> impl Strategy<Value = Plain> {
    prop_oneof![
        3 => "[a-d]{1,3}".prop_map(Plain::from),
        1 => "[\\x00-\\x7f\u{e9}\u{1f600}]{0,40}".prop_map(Plain::from),
    ]
}

/// Few names, so that the same fields change again and again. Null removes, and an empty map changes nothing.
fn map() -> impl Strategy<Value = Plain> {
    let value = prop_oneof![4 => texts(), 1 => Just(Plain::Null)];
    proptest::collection::btree_map("[a-e]|a-longer-name-than-fits-in-place", value, 0..4)
        .prop_map(|fields| fields.into_iter().collect())
}

fn patch() -> impl Strategy<Value = Plain> {
    (map(), map(), map()).prop_map(|(labels, annotations, data)| {
        // Labels are names.
        let labels: Map<String, Plain> = labels
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name.clone(), if value.is_null() { Plain::Null } else { "label".into() }))
            .collect();
        plain!({"metadata": {"labels": labels, "annotations": annotations}, "data": data})
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn config_maps_are_stored_as_the_plain_reference_says(patches in proptest::collection::vec((patch(), any::<bool>()), 1..20)) {
        let cluster = Cluster::new();
        cluster.create(cluster.configmaps(), &json!({"metadata": {"name": "m"}})).unwrap();
        let text = |cluster: &Cluster| {
            let entry = cluster.store.get("configmaps/default/m").unwrap();
            (String::from_utf8(entry.value.to_vec()).unwrap(), entry.revision)
        };
        let mut expected: Plain = serde_json::from_str(&text(&cluster).0).unwrap();
        for (patch, as_tree) in patches {
            let before = text(&cluster);
            let tree: Value = serde_json::from_value(patch.clone()).unwrap();
            let bytes = patch.to_string();
            let options = WriteOptions::default();
            let done = match as_tree {
                true => now(cluster.registry.patch(cluster.configmap("m"), &tree, PatchKind::Merge, &options)),
                false => now(cluster.registry.patch(cluster.configmap("m"), bytes.as_bytes(), PatchKind::Merge, &options)),
            };
            done.unwrap();
            merge(&mut expected, &patch);
            let (found, revision) = text(&cluster);
            // Metadata has the revision of the write, by which the reference need not know it.
            expected["metadata"].as_object_mut().unwrap().remove("resourceVersion");
            prop_assert_eq!(&found, &stored(&expected, revision));
            prop_assert!(found == before.0 || revision > before.1, "only a change is written");
        }
    }
}

// ---- Pods ----

#[derive(Clone, Debug)]
enum Step {
    /// With the template of a Job, or with one of its own that is equal, or with one that is not.
    Create {
        pod: usize,
        template: usize,
        index: u8,
    },
    Bind {
        pod: usize,
    },
    Status {
        pod: usize,
        phase: &'static str,
    },
    Labels {
        pod: usize,
        value: u8,
    },
    Release {
        pod: usize,
    },
    Invalid {
        pod: usize,
    },
    Delete {
        pod: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let pod = || 0..3_usize;
    prop_oneof![
        4 => (pod(), 0..4_usize, 0..3_u8).prop_map(|(pod, template, index)| Step::Create { pod, template, index }),
        2 => pod().prop_map(|pod| Step::Bind { pod }),
        3 => (pod(), prop::sample::select(vec!["Running", "Succeeded"])).prop_map(|(pod, phase)| Step::Status { pod, phase }),
        2 => (pod(), 0..3_u8).prop_map(|(pod, value)| Step::Labels { pod, value }),
        2 => pod().prop_map(|pod| Step::Release { pod }),
        1 => pod().prop_map(|pod| Step::Invalid { pod }),
        2 => pod().prop_map(|pod| Step::Delete { pod }),
    ]
}

fn template(number: usize) -> Value {
    let mut spec = json!({
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "x"}], "resources": {"requests": {"cpu": "1"}}}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    });
    match number {
        2 => spec["containers"][0]["name"] = "Not a name".into(),
        // A warning: a variable hides another one.
        3 => spec["containers"][0]["env"] = json!([{"name": "A", "value": "x"}, {"name": "A", "value": "y"}]),
        _ => {}
    }
    // As it is stored in a Job.
    let mut template = json!({ "spec": spec });
    tally_api::pod::default_template(&mut template);
    template["spec"].clone()
}

const NAMES: [&str; 3] = ["a", "b", "c.d"];

/// The same times and UIDs for two registries, however often one of them starts.
struct Counted(Arc<AtomicU32>);

impl Env for Counted {
    fn now(&self) -> Timestamp {
        Timestamp::from_seconds(1_700_000_000)
    }

    fn new_uid(&self) -> String {
        format!("00000000-0000-4000-8000-{:012}", self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn random(&self, limit: u32) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed) % limit
    }
}

struct Side {
    store: Store,
    drawn: Arc<AtomicU32>,
    cluster: Cluster,
    /// Trees are sent, and what was written is remembered.
    is_warm: bool,
}

impl Side {
    fn new(is_warm: bool) -> Self {
        let (store, drawn) = (Store::memory(StoreOptions::default()), Arc::new(AtomicU32::new(0)));
        let cluster = Cluster::on(store.clone(), Box::new(Counted(drawn.clone())));
        now(cluster.registry.begin()).unwrap();
        Self { store, drawn, cluster, is_warm }
    }

    /// Whether it was done, and what was said.
    fn take(&mut self, step: &Step, templates: &[Value]) -> Result<Vec<String>, String> {
        if !self.is_warm {
            self.cluster = Cluster::on(self.store.clone(), Box::new(Counted(self.drawn.clone())));
        }
        let cluster = &self.cluster;
        let named = |pod: usize| cluster.target("", "pods", "default", NAMES[pod]);
        let part = |pod: usize, subresource| {
            let target = named(pod);
            Target { subresource: target.resource.subresource(subresource), ..target }
        };
        let said = |failure: StatusError| format!("{} {}", failure.code, failure.message);
        let create = |target: Target<'_>, body: &Value| {
            let (text, options) = (body.to_string(), WriteOptions::default());
            let done = match self.is_warm {
                true => now(cluster.registry.create(target, body, Format::Json, &options)),
                false => now(cluster.registry.create(target, text.as_bytes(), Format::Json, &options)),
            };
            done.map(|written| written.warnings).map_err(said)
        };
        let patch = |target: Target<'_>, body: Value, kind: PatchKind| {
            let (text, options) = (body.to_string(), WriteOptions::default());
            let done = match self.is_warm {
                true => now(cluster.registry.patch(target, &body, kind, &options)),
                false => now(cluster.registry.patch(target, text.as_bytes(), kind, &options)),
            };
            done.map(|written| written.warnings).map_err(said)
        };
        match step {
            Step::Create { pod, template, index } => {
                let mut spec = templates[*template].clone();
                spec["hostname"] = format!("j-{index}").into();
                let metadata = json!({
                    "name": NAMES[*pod], "finalizers": ["batch.kubernetes.io/job-tracking"],
                    "annotations": {"batch.kubernetes.io/job-completion-index": index.to_string()},
                    "labels": {"batch.kubernetes.io/job-completion-index": index.to_string()},
                });
                let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}});
                create(cluster.target("", "pods", "default", ""), &body)
            }
            Step::Bind { pod } => {
                let body = json!({
                    "apiVersion": "v1", "kind": "Binding", "metadata": {"name": NAMES[*pod]},
                    "target": {"kind": "Node", "name": "n"},
                });
                create(part(*pod, "binding"), &body)
            }
            Step::Status { pod, phase } => {
                let at = "2024-01-01T00:00:00Z";
                let state = match *phase {
                    "Running" => json!({"running": {"startedAt": at}}),
                    _ => {
                        json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at}})
                    }
                };
                let status = json!({
                    "phase": phase, "podIP": "10.0.0.1",
                    "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": at}],
                    "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state}],
                });
                patch(part(*pod, "status"), json!({ "status": status }), PatchKind::Strategic)
            }
            Step::Labels { pod, value } => {
                patch(named(*pod), json!({"metadata": {"labels": {"own": format!("v{value}")}}}), PatchKind::Merge)
            }
            Step::Release { pod } => {
                let body =
                    json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["batch.kubernetes.io/job-tracking"]}});
                patch(named(*pod), body, PatchKind::Strategic)
            }
            Step::Invalid { pod } => patch(named(*pod), json!({"spec": {"hostname": "other"}}), PatchKind::Merge),
            Step::Delete { pod } => {
                let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
                now(cluster.registry.delete(named(*pod), &options)).map(|_| Vec::new()).map_err(said)
            }
        }
    }

    fn texts(&self) -> Vec<Option<String>> {
        let text = |name: &&str| {
            let entry = self.store.get(&format!("pods/default/{name}"))?;
            Some(String::from_utf8(entry.value.to_vec()).unwrap())
        };
        NAMES.iter().map(text).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn pods_are_stored_as_by_a_registry_that_remembers_nothing(steps in proptest::collection::vec(step(), 1..30)) {
        let (mut warm, mut cold) = (Side::new(true), Side::new(false));
        let templates: Vec<Value> = (0..4).map(template).collect();
        for (number, step) in steps.iter().enumerate() {
            let (found, expected) = (warm.take(step, &templates), cold.take(step, &templates));
            prop_assert_eq!(found, expected, "step {}: {:?}", number, step);
            prop_assert_eq!(warm.texts(), cold.texts(), "step {}: {:?}", number, step);
        }
    }
}
