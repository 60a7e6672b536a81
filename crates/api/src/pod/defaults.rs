//! The defaults of a Pod.
//!
//! Templates and Pods share most of them. Only a Pod gets requests from limits, service links and host ports: a
//! template must stay as its author wrote it, or two servers of different versions would disagree about whether it
//! changed.

use tally_value::{Map, Text, Value, json};

use crate::quantity::{Quantity, canonical};

use super::image::pull_policy;
use super::resources::{container_sums, quantity_of};

type Object = Map;

/// The default mode of files in configMap, secret, downwardAPI and projected volumes is `rw-r--r--`.
const FILE_MODE: i64 = 0o644;

const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Defaults of a Pod template, `{metadata, spec}`.
pub(super) fn template(template: &mut Value) {
    if let Some(template) = template.as_object_mut() {
        fill(template, "metadata", || json!({}));
        fill(template, "spec", || json!({}));
    }
    if let Some(spec) = object_at(template, "spec") {
        pod_spec(spec);
    }
}

/// Defaults of a Pod's status.
pub(super) fn status(pod: &mut Value) {
    if let Some(pod) = pod.as_object_mut() {
        fill(pod, "status", || json!({}));
    }
    if let Some(status) = object_at(pod, "status") {
        align_addresses(status);
    }
}

/// Defaults of a Pod.
pub(super) fn pod(pod: &mut Value) {
    if let Some(pod) = pod.as_object_mut() {
        fill(pod, "spec", || json!({}));
    }
    status(pod);
    let Some(spec) = object_at(pod, "spec") else { return };
    pod_spec(spec);
    fill(spec, "enableServiceLinks", || true.into());
    for list in ["initContainers", "containers"] {
        for_each(spec, list, requests_from_limits);
    }
    pod_level_requests(spec);
    if spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        for list in ["initContainers", "containers"] {
            for_each(spec, list, |container| for_each(container, "ports", host_port));
        }
    }
}

fn pod_spec(spec: &mut Object) {
    fill(spec, "restartPolicy", || "Always".into());
    fill(spec, "terminationGracePeriodSeconds", || 30.into());
    fill(spec, "dnsPolicy", || "ClusterFirst".into());
    fill(spec, "securityContext", || json!({}));
    fill(spec, "schedulerName", || "default-scheduler".into());
    align_service_account(spec);
    with(spec, "overhead", whole_millis);
    with(spec, "resources", resources);
    for list in CONTAINER_LISTS {
        for_each(spec, list, container);
    }
    for_each(spec, "volumes", volume);
}

/// `serviceAccount` is the old name of `serviceAccountName`; clients of either see both.
fn align_service_account(spec: &mut Object) {
    let name = spec.get("serviceAccountName").or_else(|| spec.get("serviceAccount")).cloned();
    match name {
        Some(name) => {
            for field in ["serviceAccount", "serviceAccountName"] {
                if spec.get(field) != Some(&name) {
                    spec.insert(field, name.clone());
                }
            }
        }
        None => {
            spec.remove("serviceAccount");
        }
    }
}

/// `podIP` is the first of `podIPs`. If a client set only one of them, or they differ, `podIP` decides.
fn align_addresses(status: &mut Object) {
    let first = status.get("podIPs").and_then(|list| list.get(0)).and_then(|first| first.get("ip")).cloned();
    match (status.get("podIP").cloned(), first) {
        (Some(single), first) if first.as_ref() != Some(&single) => {
            status.insert("podIPs", json!([{ "ip": single }]));
        }
        (None, Some(first)) => {
            status.insert("podIP", first);
        }
        _ => {}
    }
}

fn container(container: &mut Object) {
    fill(container, "resources", || json!({}));
    with(container, "resources", resources);
    fill(container, "terminationMessagePath", || "/dev/termination-log".into());
    fill(container, "terminationMessagePolicy", || "File".into());
    if !container.contains_key("imagePullPolicy") {
        let policy = pull_policy(container.get("image").and_then(Value::as_str).unwrap_or_default());
        container.insert("imagePullPolicy", policy.into());
    }
    for_each(container, "ports", |port| fill(port, "protocol", || "TCP".into()));
    for_each(container, "env", environment_variable);
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        with(container, name, probe);
    }
    with(container, "lifecycle", |lifecycle| {
        lifecycle.remove("stopSignal");
        for hook in ["postStart", "preStop"] {
            with(lifecycle, hook, |hook| with(hook, "httpGet", http_get));
        }
    });
}

fn environment_variable(variable: &mut Object) {
    with(variable, "valueFrom", |source| {
        with(source, "fieldRef", field_ref);
        with(source, "fileKeyRef", |file| fill(file, "optional", || false.into()));
    });
}

fn field_ref(reference: &mut Object) {
    fill(reference, "apiVersion", || "v1".into());
}

fn probe(probe: &mut Object) {
    for (field, value) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        fill(probe, field, || value.into());
    }
    with(probe, "httpGet", http_get);
    with(probe, "grpc", |grpc| fill(grpc, "service", || "".into()));
}

fn http_get(action: &mut Object) {
    fill(action, "path", || "/".into());
    fill(action, "scheme", || "HTTP".into());
}

fn resources(resources: &mut Object) {
    for list in ["limits", "requests"] {
        with(resources, list, whole_millis);
    }
}

/// Amounts are rounded to thousandths.
fn whole_millis(amounts: &mut Object) {
    let rounded: Vec<(Text, Text)> =
        amounts.iter().filter_map(|(name, amount)| Some((name.clone(), rounded_to_millis(amount)?))).collect();
    for (name, amount) in rounded {
        amounts.insert(name, amount.into());
    }
}

/// None: the amount keeps its text, because it is exact, or because it is too large to count in thousandths.
fn rounded_to_millis(amount: &Value) -> Option<Text> {
    let quantity = quantity_of(Some(amount))?;
    let thousandths = quantity.milli_value();
    if thousandths.unsigned_abs() >= i64::MAX.unsigned_abs() {
        return None;
    }
    let rounded = format!("{thousandths}m");
    let differs = Quantity::parse(&rounded).is_ok_and(|rounded| rounded != quantity);
    if differs { canonical(&rounded).ok().map(Text::from) } else { None }
}

/// A Pod with its own limits requests the sum of its containers' requests, or its limits where they request nothing.
fn pod_level_requests(spec: &mut Object) {
    let limits = spec.get("resources").and_then(|resources| resources.get("limits")).and_then(Value::as_object);
    let Some(limits) = limits.filter(|limits| !limits.is_empty()).cloned() else { return };
    let whole = Value::Object(std::mem::take(spec));
    let sums: Vec<(Text, Value)> = container_sums(&whole, "requests")
        .into_iter()
        .filter(|(name, _)| matches!(*name, "cpu" | "memory"))
        .map(|(name, sum)| (name.into(), sum.to_string().into()))
        .collect();
    if let Value::Object(whole) = whole {
        *spec = whole;
    }
    with(spec, "resources", |resources| {
        fill(resources, "requests", || json!({}));
        with(resources, "requests", |requests| {
            for (name, amount) in sums.into_iter().chain(limits) {
                requests.entry(name).or_insert(amount);
            }
        });
    });
}

/// A limit without a request is also the request.
fn requests_from_limits(container: &mut Object) {
    with(container, "resources", |resources| {
        let Some(limits) =
            resources.get("limits").and_then(Value::as_object).filter(|limits| !limits.is_empty()).cloned()
        else {
            return;
        };
        fill(resources, "requests", || json!({}));
        with(resources, "requests", |requests| {
            for (name, quantity) in limits {
                if !requests.contains_key(&name) {
                    requests.insert(name, quantity);
                }
            }
        });
    });
}

/// On the host network a container port is a port of the host.
fn host_port(port: &mut Object) {
    if let Some(number) = port.get("containerPort").cloned() {
        fill(port, "hostPort", || number);
    }
}

fn volume(volume: &mut Object) {
    if !volume.keys().any(|key| key != "name") {
        volume.insert("emptyDir", json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        with(volume, source, |source| fill(source, "defaultMode", || FILE_MODE.into()));
    }
    with(volume, "downwardAPI", downward_items);
    with(volume, "projected", |projected| for_each(projected, "sources", projection));
    with(volume, "ephemeral", |ephemeral| {
        with(ephemeral, "volumeClaimTemplate", |template| {
            with(template, "spec", |spec| fill(spec, "volumeMode", || "Filesystem".into()));
        });
    });
    with(volume, "image", |image| {
        if !image.contains_key("pullPolicy") {
            let policy = pull_policy(image.get("reference").and_then(Value::as_str).unwrap_or_default());
            image.insert("pullPolicy", policy.into());
        }
    });
    for (source, field, value) in [
        ("hostPath", "type", ""),
        ("iscsi", "iscsiInterface", "default"),
        ("rbd", "pool", "rbd"),
        ("rbd", "user", "admin"),
        ("rbd", "keyring", "/etc/ceph/keyring"),
        ("azureDisk", "cachingMode", "ReadWrite"),
        ("azureDisk", "kind", "Shared"),
        ("azureDisk", "fsType", "ext4"),
        ("scaleIO", "storageMode", "ThinProvisioned"),
        ("scaleIO", "fsType", "xfs"),
    ] {
        with(volume, source, |source| fill(source, field, || value.into()));
    }
    with(volume, "azureDisk", |disk| fill(disk, "readOnly", || false.into()));
}

fn projection(source: &mut Object) {
    // Disabled by default in Kubernetes.
    for kind in ["clusterTrustBundle", "podCertificate"] {
        source.remove(kind);
    }
    with(source, "downwardAPI", downward_items);
    with(source, "serviceAccountToken", |token| fill(token, "expirationSeconds", || 3600.into()));
}

fn downward_items(source: &mut Object) {
    for_each(source, "items", |item| with(item, "fieldRef", field_ref));
}

// ---- helpers ----

/// The wire form shows `null` for some unset fields.
fn fill(object: &mut Object, field: &str, value: impl FnOnce() -> Value) {
    if object.get(field).is_none_or(Value::is_null) {
        object.insert(field, value());
    }
}

fn object_at<'a>(value: &'a mut Value, field: &str) -> Option<&'a mut Object> {
    value.get_mut(field).and_then(Value::as_object_mut)
}

/// A part that needs no change stays shared with where it comes from: the Pods of a Job share most of their template.
fn with(object: &mut Object, field: &str, change: impl FnOnce(&mut Object)) {
    let Some(inner) = object.get(field).and_then(Value::as_object) else { return };
    let mut changed = inner.clone();
    change(&mut changed);
    if !changed.is_same(inner) {
        object.insert(field, changed.into());
    }
}

fn for_each(object: &mut Object, list: &str, change: impl Fn(&mut Object)) {
    let Some(items) = object.get(list).and_then(Value::as_array) else { return };
    let mut changed_items: Option<Vec<Value>> = None;
    for (place, item) in items.iter().enumerate() {
        let Some(item) = item.as_object() else { continue };
        let mut changed = item.clone();
        change(&mut changed);
        if !changed.is_same(item) {
            changed_items.get_or_insert_with(|| items.to_vec())[place] = changed.into();
        }
    }
    if let Some(items) = changed_items {
        object.insert(list, items.into());
    }
}
