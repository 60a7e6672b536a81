//! Operations on a Pod other than plain writes: creation, binding to a node, eviction, deletion.

use std::collections::{BTreeMap, VecDeque};

use tally_core::time::Timestamp;
use tally_value::{Map, Value, json};

use crate::kinds::{AdmissionError, ClusterObjects, is_kept};
use crate::status_error::{Details, StatusError};

use super::update::{put_back, same};
use super::{annotations, resources, scheduling};

/// Sets what the server decides about a new Pod: generation, status, priority and the default tolerations.
pub(super) fn prepare_create(pod: &mut Value, now: Timestamp) {
    scheduling::add_default_tolerations(pod);
    let class = resources::class_of_service(&pod["spec"]);
    let gated = pod.pointer("/spec/schedulingGates").and_then(Value::as_array).is_some_and(|gates| !gates.is_empty());
    if let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("generation", 1.into());
    }
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        let class = spec.get("priorityClassName").and_then(Value::as_str).and_then(system_class);
        let priority = class.map_or(Value::from(0), |mut class| class["value"].take());
        spec.entry("priority").or_insert(priority);
        spec.entry("preemptionPolicy").or_insert_with(|| "PreemptLowerPriority".into());
    }
    if let Some(pod) = pod.as_object_mut() {
        pod.insert("status", json!({ "phase": "Pending", "qosClass": class }));
    }
    if gated {
        let told = "Scheduling is blocked due to non-empty scheduling gates";
        set_condition(pod, "PodScheduled", "False", &[("reason", "SchedulingGated"), ("message", told)], now);
    }
    scheduling::merge_label_keys(pod);
    annotations::app_armor_fields(pod);
}

/// Sets the priority of a new Pod from its class, or from the default class. Runs before `prepare_create`.
pub(super) fn admit_priority(pod: &mut Value, cluster: &dyn ClusterObjects) -> Result<(), AdmissionError> {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    let name = spec.get("priorityClassName").and_then(Value::as_str).unwrap_or_default().to_owned();
    let found = match name.as_str() {
        "" => cluster.default_priority_class(),
        _ => match cluster.priority_class(&name).or_else(|| system_class(&name)) {
            None => return Err(AdmissionError(format!("no PriorityClass with name {name} was found"))),
            found => found,
        },
    };
    let field = |field| found.as_ref().and_then(|class| class.get(field));
    let priority = field("value").and_then(Value::as_i64).unwrap_or(0);
    let policy = field("preemptionPolicy").and_then(Value::as_str).unwrap_or("PreemptLowerPriority");
    let computed = "must not be provided in pod spec; priority admission controller computed";
    let source = "from the given PriorityClass name";
    if let Some(given) = spec.get("priority").and_then(Value::as_i64).filter(|given| *given != priority) {
        let why = format!("the integer value of priority ({given}) {computed} {priority} {source}");
        return Err(AdmissionError(why));
    }
    if let Some(given) = spec.get("preemptionPolicy").and_then(Value::as_str).filter(|given| *given != policy) {
        let why = format!("the string value of PreemptionPolicy ({given}) {computed} {policy} {source}");
        return Err(AdmissionError(why));
    }
    if let Some(default_name) = found.as_ref().and_then(|class| class.pointer("/metadata/name")) {
        spec.insert("priorityClassName", default_name.clone());
    }
    spec.insert("priority", priority.into());
    spec.insert("preemptionPolicy", policy.into());
    Ok(())
}

/// Refuses a new Pod that names a ServiceAccount which does not exist. The one named `default` is not required: a namespace
/// gets it a moment after it is created, and a Pod here gets no token that it does not request.
pub(super) fn admit_service_account(pod: &Value, cluster: &dyn ClusterObjects) -> Result<(), AdmissionError> {
    let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/spec/serviceAccountName"));
    if matches!(name, "" | "default") || cluster.has_service_account(namespace, name) {
        return Ok(());
    }
    let why = format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
    Err(AdmissionError(why))
}

/// Refuses a new Pod that requests a RuntimeClass: none are served here, so no Pod can have one.
pub(super) fn admit_runtime_class(pod: &Value) -> Result<(), AdmissionError> {
    match pod.pointer("/spec/runtimeClassName").and_then(Value::as_str) {
        Some(class) => Err(AdmissionError(format!("pod rejected: RuntimeClass {class:?} not found"))),
        None => Ok(()),
    }
}

/// Refuses an otherwise valid new Pod that sets an overhead: only its RuntimeClass may define it.
pub(super) fn admit_overhead(pod: &Value) -> Result<(), AdmissionError> {
    let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
    match pod.pointer("/spec/overhead") {
        Some(_) => Err(AdmissionError(why.to_owned())),
        None => Ok(()),
    }
}

/// The classes that always exist, whether or not a user created them.
fn system_class(name: &str) -> Option<Value> {
    let value = match name {
        "system-node-critical" => 2_000_001_000,
        "system-cluster-critical" => 2_000_000_000,
        _ => return None,
    };
    Some(json!({ "metadata": { "name": name }, "value": value }))
}

/// The main resource does not change the status.
pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    // Removed default tolerations are restored, and so are values that the server computed: clients send the manifest
    // they created the Pod from.
    let spec_is_kept = is_kept(new, old, "spec");
    if !spec_is_kept {
        scheduling::add_default_tolerations(new);
    }
    if !spec_is_kept
        && let (Some(spec), Some(before)) = (new.get_mut("spec").and_then(Value::as_object_mut), old.get("spec"))
    {
        for field in ["priority", "preemptionPolicy"] {
            if let Some(computed) = before.get(field) {
                spec.entry(field).or_insert_with(|| computed.clone());
            }
        }
    }
    put_back(new, old, "status");
    let raised = i64::from(!spec_is_kept && !same(&new["spec"], &old["spec"]));
    set_generation(new, old, raised);
}

/// The status does not change the spec, nor the owners: node agents are known to corrupt them.
pub(super) fn prepare_status_update(new: &mut Value, old: &Value) {
    put_back(new, old, "spec");
    set_generation(new, old, 0);
    if let (Some(metadata), Some(old)) = (new.get_mut("metadata"), old.get("metadata")) {
        put_back(metadata, old, "ownerReferences");
        // A status write cannot change whether a Pod is being deleted; the attempt is ignored, not refused.
        put_back(metadata, old, "deletionTimestamp");
    }
    let Some(status) = new.get_mut("status").and_then(Value::as_object_mut) else { return };
    let old = &old["status"];
    // Values that are set once must not be lost because a writer does not know them.
    for field in ["qosClass", "observedGeneration"] {
        if let Some(value) = old.get(field) {
            status.entry(field).or_insert_with(|| value.clone());
        }
    }
    // There may be several conditions of one type; they are matched in order, and each keeps its generation.
    let mut known: BTreeMap<&str, VecDeque<&Value>> = BTreeMap::new();
    for condition in old.get("conditions").and_then(Value::as_array).into_iter().flatten() {
        known.entry(condition["type"].as_str().unwrap_or_default()).or_default().push_back(condition);
    }
    for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        let old = known.get_mut(condition["type"].as_str().unwrap_or_default()).and_then(VecDeque::pop_front);
        let generation = old.and_then(|old| old.get("observedGeneration"));
        if let (Some(condition), Some(generation)) = (condition.as_object_mut(), generation) {
            condition.entry("observedGeneration").or_insert_with(|| generation.clone());
        }
    }
}

fn set_generation(new: &mut Value, old: &Value, raised: i64) {
    let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    match old.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0).saturating_add(raised) {
        0 => metadata.remove("generation"),
        generation => metadata.insert("generation", generation.into()),
    };
}

/// The grace period of a Pod: the requested one, else its own; none if it is not scheduled or has finished.
pub(super) fn grace_period(pod: &Value, asked: Option<i64>) -> i64 {
    let own = pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
    let is_scheduled = pod.pointer("/spec/nodeName").and_then(Value::as_str).is_some_and(|node| !node.is_empty());
    let phase = pod.pointer("/status/phase").and_then(Value::as_str);
    match asked.or(own).unwrap_or(0) {
        _ if !is_scheduled || matches!(phase, Some("Failed" | "Succeeded")) => 0,
        ..0 => 1,
        seconds => seconds,
    }
}

/// Marks a Pod that the eviction API is about to delete, so that its owner can see that it did not fail by itself.
pub fn add_disruption_target(pod: &mut Value, now: Timestamp) {
    let told = [("reason", "EvictionByEvictionAPI"), ("message", "Eviction API: evicting")];
    set_condition(pod, "DisruptionTarget", "True", &told, now);
}

/// Validates a Binding by itself. kube-apiserver checks it before it looks up the Pod.
pub fn validate_binding(binding: &Value) -> Result<(), StatusError> {
    let text = |field| binding.pointer(field).and_then(Value::as_str).unwrap_or_default();
    let mut problems = Vec::new();
    if !matches!(text("/target/kind"), "" | "Node") {
        let kind = Value::from(text("/target/kind"));
        problems.push(format!("target.kind: Unsupported value: {kind}: supported values: \"Node\", \"<empty>\""));
    }
    if text("/target/name").is_empty() {
        problems.push("target.name: Required value".to_owned());
    }
    match problems.as_slice() {
        [] => Ok(()),
        [problem] => Err(StatusError::new(500, "", problem)),
        problems => Err(StatusError::new(500, "", format!("[{}]", problems.join(", ")))),
    }
}

/// Assigns the Pod to the node that the Binding names, and adds the Binding's labels and annotations.
pub fn bind(pod: &mut Value, binding: &Value, now: Timestamp) -> Result<(), StatusError> {
    validate_binding(binding)?;
    let text = |value: &Value, field| value.pointer(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = text(pod, "/metadata/name");
    let conflict = |resource: &str, why: String| {
        let details = Details { name: name.clone(), kind: resource.to_owned(), ..Details::default() };
        let told = format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}");
        Err(StatusError::new(409, "Conflict", told).with(details))
    };
    for (field, named, shown) in [
        ("/metadata/uid", "UID", "UID in object meta"),
        ("/metadata/resourceVersion", "ResourceVersion", "ResourceVersion in object meta"),
    ] {
        let (wanted, actual) = (text(binding, field), text(pod, field));
        // If the stored object has no revision, there is nothing to compare with.
        if !wanted.is_empty() && !actual.is_empty() && wanted != actual {
            let key = format!("/registry/pods/{}/{name}", text(pod, "/metadata/namespace"));
            let told = format!(
                "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: \
                 Precondition failed: {named} in precondition: {wanted}, {shown}: {actual}"
            );
            return conflict("pods", told);
        }
    }
    let node = text(pod, "/spec/nodeName");
    if pod.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()) {
        return conflict("pods/binding", format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if !node.is_empty() {
        return conflict("pods/binding", format!("pod {name} is already assigned to node {node:?}"));
    }
    if pod.pointer("/spec/schedulingGates").and_then(Value::as_array).is_some_and(|gates| !gates.is_empty()) {
        return conflict("pods/binding", format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("nodeName", text(binding, "/target/name").into());
    }
    if let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) {
        // The nomination ends with the binding.
        status.remove("nominatedNodeName");
    }
    for kind in ["annotations", "labels"] {
        let Some(added) = binding.get("metadata").and_then(|it| it.get(kind)).and_then(Value::as_object) else {
            continue;
        };
        let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) else { continue };
        let entries = metadata.entry(kind).or_insert_with(|| Map::new().into());
        if let Some(entries) = entries.as_object_mut() {
            entries.extend(added.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
    }
    set_condition(pod, "PodScheduled", "True", &[], now);
    Ok(())
}

/// Sets a condition of the Pod's status. The time stays if the status of the condition is unchanged.
fn set_condition(pod: &mut Value, kind: &str, status: &str, told: &[(&str, &str)], now: Timestamp) {
    let Some(pod) = pod.as_object_mut() else { return };
    let holder = pod.entry("status").or_insert_with(|| Map::new().into());
    let Some(holder) = holder.as_object_mut() else { return };
    let list = holder.entry("conditions").or_insert_with(|| json!([]));
    if list.is_null() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else { return };
    let mut condition = json!({
        "type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": now.to_string(),
    });
    for (field, text) in told {
        condition[*field] = (*text).into();
    }
    match list.iter_mut().find(|old| old["type"] == kind) {
        None => list.push(condition),
        Some(old) => {
            if old["status"] == status {
                condition["lastTransitionTime"] = old["lastTransitionTime"].take();
            }
            *old = condition;
        }
    }
}
