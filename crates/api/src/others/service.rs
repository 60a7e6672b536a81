//! Services: filled in, given addresses and checked. Nothing routes to them here; tools that create one and wait for
//! its address find what they expect.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Map, Value, json};
use tally_core::time::Timestamp;

use super::{child, count_in, empty_status, fill, keep_apart, part_of, text_in};
use crate::field::{At, FieldError};
use crate::kinds::{Part, Rules};
use crate::meta;

pub struct ServiceRules;
/// Whatever a client says; who routes is not here.
pub struct EndpointsRules;

impl Rules for EndpointsRules {}

/// Addresses of services: 10.96.0.0/12, of which the first 256 are left for those that ask for one by number, like the
/// service of the API itself.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([10, 96, 1, 0]);
const ADDRESSES: u32 = (1 << 20) - 257;
const FIRST_NODE_PORT: u32 = 30_000;
const NODE_PORTS: u32 = 2_768;

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const AFFINITIES: [&str; 2] = ["ClientIP", "None"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

impl Rules for ServiceRules {
    fn default(&self, service: &mut Value) {
        let Some(spec) = part_of(service, "spec") else { return };
        fill(spec, "type", "ClusterIP");
        fill(spec, "sessionAffinity", "None");
        if text_in(spec, "sessionAffinity") == "None" {
            spec.remove("sessionAffinityConfig");
        } else if let Some(config) = child(spec, "sessionAffinityConfig")
            && let Some(client) = child(config, "clientIP")
        {
            fill(client, "timeoutSeconds", 10_800);
        }
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(port) = port.as_object_mut() else { continue };
            fill(port, "protocol", "TCP");
            let number = port.get("port").cloned().unwrap_or_default();
            if port.get("targetPort").is_none_or(|target| target.is_null() || target == 0 || target == "") {
                port.insert("targetPort".to_owned(), number);
            }
        }
        if text_in(spec, "type") == "ExternalName" {
            return;
        }
        fill(spec, "internalTrafficPolicy", "Cluster");
        if from_outside(spec) || count_in(spec, "externalIPs") > 0 {
            fill(spec, "externalTrafficPolicy", "Cluster");
        }
        if text_in(spec, "type") == "LoadBalancer" {
            fill(spec, "allocateLoadBalancerNodePorts", true);
        }
    }

    fn prepare_create(&self, service: &mut Value, _: Timestamp) {
        service["status"] = empty_status("", "Service");
        allocate(service);
    }

    /// What was given to it once stays, also if the client leaves it out.
    fn prepare_update(&self, new: &mut Value, old: &Value, part: Part) {
        keep_apart(new, old, part);
        if part == Part::Status {
            return;
        }
        if let (Some(spec), Some(before)) = (part_of(new, "spec"), old.get("spec").and_then(Value::as_object))
            && text_in(spec, "type") != "ExternalName"
            && text_in(before, "type") != "ExternalName"
        {
            if text_in(spec, "clusterIP").is_empty() && count_in(spec, "clusterIPs") == 0 {
                for field in ["clusterIP", "clusterIPs"] {
                    if let Some(value) = before.get(field) {
                        spec.insert(field.to_owned(), value.clone());
                    }
                }
            }
            if from_outside(spec) {
                keep_node_ports(spec, before);
            }
        }
        allocate(new);
    }

    fn validate_create(&self, service: &Value) -> Vec<FieldError> {
        let root = At::root(service);
        validate(root.at("spec"))
    }

    fn validate_update(&self, new: &Value, old: &Value, part: Part) -> Vec<FieldError> {
        if part == Part::Status {
            return Vec::new();
        }
        let (root, before) = (At::root(new), At::root(old));
        let (spec, before) = (root.at("spec"), before.at("spec"));
        let (addresses, earlier) = (spec.at("clusterIPs"), before.at("clusterIPs"));
        let mut errors = Vec::new();
        let stays = spec.at("type").text() != Some("ExternalName") && !earlier.is_empty();
        if stays && addresses.index(0).value != earlier.index(0).value {
            errors.push(addresses.index(0).invalid_value(addresses.list(), "may not change once set"));
        }
        errors.extend(validate(spec));
        errors
    }

    fn name_problems(&self, name: &str, prefix: bool) -> Vec<String> {
        meta::name_is_dns_label(name, prefix)
    }
}

/// Whether it has ports on the nodes.
fn from_outside(spec: &Map<String, Value>) -> bool {
    matches!(text_in(spec, "type"), "NodePort" | "LoadBalancer")
}

fn keep_node_ports(spec: &mut Map<String, Value>, before: &Map<String, Value>) {
    let earlier: &[Value] = before.get("ports").and_then(Value::as_array).map_or(&[], Vec::as_slice);
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let same = earlier.iter().find(|old| old["port"] == port["port"] && old["protocol"] == port["protocol"]);
        if let (Some(same), Some(port)) = (same.and_then(|same| same.get("nodePort")), port.as_object_mut())
            && !port.contains_key("nodePort")
        {
            port.insert("nodePort".to_owned(), same.clone());
        }
    }
}

/// Gives addresses and node ports to those that need them. They follow from the uid, so that there is no second table
/// to keep: among a million addresses two of a few hundred services hardly ever meet, and nothing routes to them.
fn allocate(service: &mut Value) {
    let uid = service.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(spec) = part_of(service, "spec") else { return };
    if text_in(spec, "type") == "ExternalName" {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
            spec.remove(field);
        }
        return;
    }
    match (text_in(spec, "clusterIP").to_owned(), count_in(spec, "clusterIPs")) {
        (address, 0) if address.is_empty() => {
            let address = Ipv4Addr::from(FIRST_ADDRESS + scattered(&uid, 0) % ADDRESSES).to_string();
            spec.insert("clusterIPs".to_owned(), json!([address]));
            spec.insert("clusterIP".to_owned(), address.into());
        }
        (address, 0) => {
            spec.insert("clusterIPs".to_owned(), json!([address]));
        }
        (address, _) if address.is_empty() => {
            let first = spec.get("clusterIPs").and_then(|addresses| addresses.get(0)).cloned().unwrap_or_default();
            spec.insert("clusterIP".to_owned(), first);
        }
        _ => {}
    }
    // Who finds the endpoints of a headless service by hand may have them of either family.
    let both = text_in(spec, "clusterIP") == "None" && count_in(spec, "selector") == 0;
    let six = text_in(spec, "clusterIP").parse::<IpAddr>().is_ok_and(|address| address.is_ipv6());
    let asked = text_in(spec, "ipFamilyPolicy").to_owned();
    fill(spec, "ipFamilyPolicy", if both { "RequireDualStack" } else { "SingleStack" });
    if count_in(spec, "ipFamilies") == 0 {
        let families = match (both && asked.is_empty(), six) {
            (true, _) => json!(["IPv4", "IPv6"]),
            (false, true) => json!(["IPv6"]),
            (false, false) => json!(["IPv4"]),
        };
        spec.insert("ipFamilies".to_owned(), families);
    }
    if from_outside(spec) && spec.get("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false)) {
        for (index, port) in (1..).zip(spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten()) {
            if let Some(port) = port.as_object_mut()
                && port.get("nodePort").and_then(Value::as_i64).unwrap_or_default() == 0
            {
                port.insert("nodePort".to_owned(), (FIRST_NODE_PORT + scattered(&uid, index) % NODE_PORTS).into());
            }
        }
    }
}

/// A number that follows from the text (FNV-1a), different for each `index`.
fn scattered(text: &str, index: u32) -> u32 {
    let bytes = text.bytes().chain(index.to_be_bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (hash >> 32) as u32 ^ hash as u32
}

fn validate(spec: At<'_, '_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let kind = spec.at("type").text_or_empty();
    let headless = spec.at("clusterIP").text() == Some("None");
    let ports = spec.at("ports");
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.push(ports.required(""));
    }
    if kind == "ExternalName" {
        let name = spec.at("externalName");
        let text = name.text_or_empty();
        if text.is_empty() {
            errors.push(name.required(""));
        } else {
            // A name that ends in a dot is one, too.
            let problems = meta::dns_subdomain_problems(text.strip_suffix('.').unwrap_or(text));
            errors.extend(problems.into_iter().map(|problem| name.invalid(problem)));
        }
    }
    errors.extend(validate_ports(ports));
    errors.extend(meta::validate_labels(spec.at("selector")));
    let affinity = spec.at("sessionAffinity");
    if !AFFINITIES.contains(&affinity.text_or_empty()) {
        errors.push(affinity.not_supported(affinity.text_or_empty(), &AFFINITIES));
    }
    for address in spec.at("clusterIPs").items() {
        let text = address.text_or_empty();
        if text != "None" && text.parse::<IpAddr>().is_err() {
            errors.push(address.invalid("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"));
        }
    }
    let addresses = spec.at("clusterIPs");
    if spec.at("clusterIP").value != addresses.index(0).value {
        errors.push(addresses.index(0).invalid_value(addresses.list(), "first value must match `clusterIP`"));
    }
    if !TYPES.contains(&kind) {
        errors.push(spec.at("type").not_supported(kind, &TYPES));
    }
    let mut seen = BTreeSet::new();
    for port in ports.items() {
        let (number, protocol) = (port.at("port").int().unwrap_or_default(), port.at("protocol").text_or_empty());
        if !seen.insert((number, protocol)) {
            let mut error = port.duplicate();
            error.value = Some(json!({"port": number, "protocol": protocol}).to_string());
            errors.push(error);
        }
    }
    errors
}

fn validate_ports(ports: At<'_, '_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut names = BTreeSet::new();
    for port in ports.items() {
        let name = port.at("name");
        match name.text_or_empty() {
            "" if ports.len() > 1 => errors.push(name.required("")),
            "" => {}
            text => {
                errors.extend(meta::dns_label_problems(text).into_iter().map(|problem| name.invalid(problem)));
                if !names.insert(text) {
                    errors.push(name.duplicate());
                }
            }
        }
        errors.extend(port_problem(port.at("port")));
        let protocol = port.at("protocol");
        if !PROTOCOLS.contains(&protocol.text_or_empty()) {
            errors.push(protocol.not_supported(protocol.text_or_empty(), &PROTOCOLS));
        }
        if port.at("targetPort").text().is_none() {
            errors.extend(port_problem(port.at("targetPort")));
        }
    }
    errors
}

fn port_problem(port: At<'_, '_>) -> Option<FieldError> {
    let number = port.int().unwrap_or_default();
    let valid = (1..=65_535).contains(&number);
    (!valid).then(|| port.invalid_value(number, "must be between 1 and 65535, inclusive"))
}
