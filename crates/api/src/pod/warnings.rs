//! Warnings about a Pod that is accepted.

use std::collections::{BTreeMap, BTreeSet};

use tally_value::Value;

use crate::field::At;
use crate::meta;

use super::annotations::{APP_ARMOR, SECCOMP_CONTAINER, SECCOMP_POD};
use super::containers::LISTS;
use super::resources::quantity_of;

type Warnings = Vec<String>;

/// The number of conflicting pairs can be much larger than the number of elements. Users do not read more than these,
/// and the headers of a response contain fewer.
const MOST_PAIRS: usize = 100;
/// Each element is compared with at most this number of others: comparing all pairs of a very long list would block
/// other requests.
const MOST_COMPARED: usize = 1000;

/// Node labels that have newer names.
const OLD_NODE_LABELS: [(&str, &str); 8] = [
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    ("failure-domain.beta.kubernetes.io/zone", "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"),
    ("beta.kubernetes.io/instance-type", "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    ("scheduler.alpha.kubernetes.io/preferAvoidPods", "deprecated since v1.22; use Taints and Tolerations instead"),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

const OLD_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
];

/// Removed types of volumes, their spelling in the warning, and since when.
const OLD_VOLUMES: [(&str, &str, &str); 9] = [
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// The warnings for a Pod or a template at `holder`, `{metadata, spec}`.
pub(super) fn all(holder: &At<'_, '_>, is_template: bool) -> Warnings {
    let mut warnings = Warnings::new();
    let (metadata, spec) = (holder.at("metadata"), holder.at("spec"));
    let annotations = metadata.at("annotations");
    old_node_labels(&spec, &mut warnings);
    for (key, told) in OLD_ANNOTATIONS {
        if annotations.key(key).is_set() {
            warnings.push(format!("{}: {told}", annotations.key(key).path()));
        }
    }
    volumes(&spec.at("volumes"), &mut warnings);
    repeated(&spec.at("hostAliases"), "ip", &mut warnings);
    let secrets = spec.at("imagePullSecrets");
    repeated(&secrets, "name", &mut warnings);
    for secret in secrets.items().filter(|secret| secret.at("name").text_or_empty().is_empty()) {
        warnings.push(format!("{}: invalid empty name \"\"", secret.at("name").path()));
    }
    fractions(&spec.at("overhead"), &["memory", "ephemeral-storage"], &mut warnings);
    old_profiles(&annotations, &spec, is_template, &mut warnings);
    for_each_container(&spec, |container| {
        let resources = container.at("resources");
        for resource in ["memory", "ephemeral-storage"] {
            for list in ["limits", "requests"] {
                fractions(&resources.at(list), &[resource], &mut warnings);
            }
        }
        hidden_variables(&container.at("env"), &mut warnings);
    });
    ports(&spec, &mut warnings);
    let grace_period = spec.at("terminationGracePeriodSeconds");
    if grace_period.int().is_some_and(|seconds| seconds < 0) {
        let told = "must be >= 0; negative values are invalid and will be treated as 1";
        warnings.push(format!("{}: {told}", grace_period.path()));
    }
    matching_nothing(&spec.at("affinity"), &mut warnings);
    let config = spec.at("dnsConfig");
    for server in config.at("nameservers").items() {
        address(&server, server.text_or_empty(), &mut warnings);
    }
    for alias in spec.at("hostAliases").items() {
        let ip = alias.at("ip");
        address(&ip, ip.text_or_empty(), &mut warnings);
    }
    warnings
}

/// The warnings for a status: addresses that are not in canonical form.
pub(super) fn of_status(pod: &At<'_, '_>) -> Warnings {
    let mut warnings = Warnings::new();
    let status = pod.at("status");
    for list in ["podIPs", "hostIPs"] {
        for item in status.at(list).items() {
            let ip = item.at("ip");
            address(&ip, ip.text_or_empty(), &mut warnings);
        }
    }
    warnings
}

fn for_each_container(spec: &At<'_, '_>, mut look: impl FnMut(&At<'_, '_>)) {
    for list in LISTS {
        for container in spec.at(list).items() {
            look(&container);
        }
    }
}

fn old_label(key: &str) -> Option<&'static str> {
    OLD_NODE_LABELS.iter().find(|(label, _)| *label == key).map(|(_, told)| *told)
}

fn old_node_labels(spec: &At<'_, '_>, warnings: &mut Warnings) {
    let selector = spec.at("nodeSelector");
    for (key, told) in selector.entries().filter_map(|(key, _)| Some((key, old_label(key)?))) {
        warnings.push(format!("{}: {told}", selector.key(key).path()));
    }
    let affinity = spec.at("affinity");
    let affinity = affinity.at("nodeAffinity");
    let required = affinity.at("requiredDuringSchedulingIgnoredDuringExecution");
    for term in required.at("nodeSelectorTerms").items() {
        old_labels_in_term(&term, false, warnings);
    }
    for term in affinity.at("preferredDuringSchedulingIgnoredDuringExecution").items() {
        old_labels_in_term(&term.at("preference"), true, warnings);
    }
    for constraint in spec.at("topologySpreadConstraints").items() {
        let topology = constraint.at("topologyKey");
        if let Some(told) = old_label(topology.text_or_empty()) {
            warnings.push(format!("{}: {} is {told}", topology.path(), topology.text_or_empty()));
        }
        null_selector(&constraint.at("labelSelector"), warnings);
    }
}

fn old_labels_in_term(term: &At<'_, '_>, values_checked: bool, warnings: &mut Warnings) {
    for expression in term.at("matchExpressions").items() {
        let key = expression.at("key");
        if let Some(told) = old_label(key.text_or_empty()) {
            warnings.push(format!("{}: {} is {told}", key.path(), key.text_or_empty()));
        }
        for value in expression.at("values").items().filter(|_| values_checked) {
            let text = value.text_or_empty();
            for problem in meta::label_value_problems(text) {
                warnings.push(format!("{}: {text} is invalid, {problem}", value.path()));
            }
        }
    }
}

fn null_selector(selector: &At<'_, '_>, warnings: &mut Warnings) {
    if !selector.is_set() {
        warnings.push(format!("{}: a null labelSelector results in matching no pod", selector.path()));
    }
}

fn matching_nothing(affinity: &At<'_, '_>, warnings: &mut Warnings) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let affinity = affinity.at(kind);
        for term in affinity.at("requiredDuringSchedulingIgnoredDuringExecution").items() {
            null_selector(&term.at("labelSelector"), warnings);
        }
        for weighted in affinity.at("preferredDuringSchedulingIgnoredDuringExecution").items() {
            let term = weighted.at("podAffinityTerm");
            null_selector(&term.at("labelSelector"), warnings);
        }
    }
}

/// Bytes are whole numbers; `100m` bytes is usually a typing error for mebibytes.
fn fractions(amounts: &At<'_, '_>, names: &[&str], warnings: &mut Warnings) {
    for name in names {
        let amount = amounts.key(name);
        if let Some(quantity) = quantity_of(amount.value).filter(|quantity| quantity.milli_value() % 1000 != 0) {
            let told = format!("fractional byte value \"{quantity}\" is invalid, must be an integer");
            warnings.push(format!("{}: {told}", amount.path()));
        }
    }
}

fn repeated(list: &At<'_, '_>, field: &str, warnings: &mut Warnings) {
    let mut seen = BTreeSet::new();
    for item in list.items() {
        let value = item.at(field);
        if !seen.insert(value.text_or_empty()) {
            warnings.push(format!("{}: duplicate {field} {:?}", value.path(), value.text_or_empty()));
        }
    }
}

fn old_profiles(annotations: &At<'_, '_>, spec: &At<'_, '_>, is_template: bool, warnings: &mut Warnings) {
    if annotations.is_empty() {
        return;
    }
    let context = spec.at("securityContext");
    let mut tell = |key: &str, told: &str| {
        if annotations.key(key).is_set() {
            warnings.push(format!("{}: {told}", annotations.key(key).path()));
        }
    };
    const SECCOMP_GONE: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
    if !context.at("seccompProfile").is_set() {
        tell(SECCOMP_POD, SECCOMP_GONE);
    }
    for_each_container(spec, |container| {
        let (name, own) = (container.at("name").text_or_empty(), container.at("securityContext"));
        if !own.at("seccompProfile").is_set() {
            tell(&format!("{SECCOMP_CONTAINER}{name}"), SECCOMP_GONE);
        }
        // A Pod's annotation was already copied to the field, so the two cannot be distinguished.
        if is_template && !own.at("appArmorProfile").is_set() && !context.at("appArmorProfile").is_set() {
            tell(&format!("{APP_ARMOR}{name}"), "deprecated since v1.30; use the \"appArmorProfile\" field instead");
        }
    });
}

/// A duplicate variable is accepted without a warning if the second refers to the first: `X=$(X)/bin`.
fn hidden_variables(list: &At<'_, '_>, warnings: &mut Warnings) {
    let mut seen = BTreeSet::new();
    for variable in list.items() {
        let (name, value) = (variable.at("name").text_or_empty(), variable.at("value").text_or_empty());
        if seen.insert(name) {
            continue;
        }
        let reference = format!("$({name})");
        if variable.at("valueFrom").is_set() || value == reference || !value.contains(&reference) {
            let told = format!("hides previous definition of {name:?}, which may be dropped when using apply");
            warnings.push(format!("{}: {told}", variable.path()));
        }
    }
}

/// Ports of the Pod by number and protocol, each with its path, host address and host port.
type Ports = BTreeMap<(i64, String), Vec<(String, String, i64)>>;

fn ports(spec: &At<'_, '_>, warnings: &mut Warnings) {
    let mut known = Ports::new();
    for_each_container(spec, |container| {
        for port in container.at("ports").items() {
            let text = |field: &str| port.at(field).text_or_empty().to_owned();
            let number = |field: &str| port.at(field).int().unwrap_or(0);
            let (host, host_port) = (text("hostIP"), number("hostPort"));
            let path = port.path();
            if !host.is_empty() && host_port == 0 {
                let shown = format!(
                    "{{Name:{} HostPort:0 ContainerPort:{} Protocol:{} HostIP:{host}}}",
                    text("name"),
                    number("containerPort"),
                    text("protocol")
                );
                warnings.push(format!("{path}: hostIP set without hostPort: {shown}"));
            }
            if warnings.len() > MOST_PAIRS {
                return;
            }
            let others = known.entry((number("containerPort"), text("protocol"))).or_default();
            for (other_path, other_host, other_port) in others.iter().take(MOST_COMPARED) {
                let same_host = host == *other_host;
                let how = if same_host && host_port == *other_port {
                    "duplicate"
                } else if host_port == 0 || *other_port == 0 {
                    "overlapping"
                } else if host_port == *other_port && host.is_empty() != other_host.is_empty() {
                    "dangerously ambiguous"
                } else {
                    continue;
                };
                warnings.push(format!("{path}: {how} port definition with {other_path}"));
            }
            others.push((path, host, host_port));
        }
    });
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for_each_container(spec, |container| {
        for port in container.at("ports").items() {
            let name = port.at("name").text_or_empty();
            if name.is_empty() {
                continue;
            }
            match names.get(name) {
                None => {
                    names.insert(name.to_owned(), port.path());
                }
                Some(other) => warnings.push(format!(
                    "{}: duplicate port name {name:?} with {other}, services and probes that select ports by name will \
                     use {other}",
                    port.path()
                )),
            }
        }
    });
}

/// Warns about a valid address that is not in canonical form.
fn address(at: &At<'_, '_>, text: &str, warnings: &mut Warnings) {
    if let Ok(parsed) = text.parse::<std::net::Ipv6Addr>()
        && parsed.to_ipv4_mapped().is_none()
        && parsed.to_string() != text
    {
        let told = format!("IPv6 address {text:?} should be in RFC 5952 canonical format (\"{parsed}\")");
        warnings.push(format!("{}: {told}", at.path()));
    }
}

// ---- volumes ----

fn volumes(list: &At<'_, '_>, warnings: &mut Warnings) {
    for volume in list.items() {
        for (kind, spelled, told) in OLD_VOLUMES {
            if volume.at(kind).is_set() {
                warnings.push(format!("{}: {told}", volume.at(spelled).path()));
            }
        }
        let ephemeral = volume.at("ephemeral");
        let template = ephemeral.at("volumeClaimTemplate");
        let claim = template.at("spec");
        let resources = claim.at("resources");
        for amounts in ["requests", "limits"] {
            fractions(&resources.at(amounts), &["storage"], warnings);
        }
    }
    for volume in list.items() {
        overlapping_files(&volume, warnings);
    }
}

/// Files of one volume that conflict: they have the same path, or one is a parent directory of the other.
fn overlapping_files(volume: &At<'_, '_>, warnings: &mut Warnings) {
    let name = volume.at("name").text_or_empty();
    let tell = |kind: &str, files: Vec<(String, String)>, warnings: &mut Warnings| {
        let mut before: Vec<(String, String)> = Vec::new();
        for (path, source) in files {
            let file = (path.trim_end_matches('/').to_owned(), source);
            if warnings.len() > MOST_PAIRS {
                return;
            }
            for other in before.iter().take(MOST_COMPARED).filter(|other| overlap(&file.0, &other.0)) {
                let told = format!("{} with {}", shown(&file), shown(other));
                warnings.push(format!("volume {name:?} ({kind}): overlapping paths: {told}"));
            }
            before.push(file);
        }
    };
    for (kind, word, named) in [
        ("configMap", "ConfigMap", Some("name")),
        ("secret", "Secret", Some("secretName")),
        ("downwardAPI", "DownwardAPI", None),
    ] {
        let source = volume.at(kind);
        let word = match named {
            Some(field) => format!("{word} {:?}", source.at(field).text_or_empty()),
            None => word.to_owned(),
        };
        tell(&word, paths(&source, ""), warnings);
    }
    let projected = volume.at("projected");
    let mut files = Vec::new();
    for source in projected.at("sources").items() {
        if source.is_empty() {
            warnings.push(format!("volume {name:?} (Projected) has no sources provided"));
        }
        for (kind, word) in [("configMap", "ConfigMap"), ("secret", "Secret")] {
            let part = source.at(kind);
            files.extend(paths(&part, &format!("{word} {:?}", part.at("name").text_or_empty())));
        }
        files.extend(paths(&source.at("downwardAPI"), "DownwardAPI"));
        if let Some(path) = source.at("serviceAccountToken").at("path").text() {
            files.push((path.to_owned(), "ServiceAccountToken".to_owned()));
        }
    }
    tell("Projected", files, warnings);
}

fn paths(source: &At<'_, '_>, word: &str) -> Vec<(String, String)> {
    let items = source.at("items");
    let path = |item: &Value| item.get("path").and_then(Value::as_str).unwrap_or_default().to_owned();
    items.list().iter().map(|item| (path(item), word.to_owned())).collect()
}

fn overlap(one: &str, other: &str) -> bool {
    let under = |path: &str, directory: &str| {
        path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    !one.is_empty() && !other.is_empty() && (under(one, other) || under(other, one))
}

fn shown((path, source): &(String, String)) -> String {
    if source.is_empty() { format!("{path:?}") } else { format!("{path:?} ({source})") }
}
