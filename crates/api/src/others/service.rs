//! Services: defaults, allocated addresses and validation. No traffic is routed to them here; tools that create one and
//! wait for its address work as expected.

mod checks;

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Map, Value, json};
use tally_core::time::Timestamp;

use super::{child, count_in, empty_status, fill, keep_apart, part_of, text_in};
use crate::field::FieldError;
use crate::kinds::{Part, Rules};
use crate::meta;

pub struct ServiceRules;
/// The addresses of the Pods behind a Service, written by clients: no controller here maintains them.
pub struct EndpointsRules;

impl Rules for EndpointsRules {
    fn default(&self, endpoints: &mut Value) {
        for subset in endpoints.get_mut("subsets").and_then(Value::as_array_mut).into_iter().flatten() {
            let ports = subset.get_mut("ports").and_then(Value::as_array_mut);
            for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
                fill(port, "protocol", "TCP");
            }
        }
    }

    fn validate_create(&self, endpoints: &Value) -> Vec<FieldError> {
        checks::validate_subsets(endpoints)
    }

    fn validate_update(&self, new: &Value, old: &Value, _: Part) -> Vec<FieldError> {
        if new.get("subsets") == old.get("subsets") { Vec::new() } else { checks::validate_subsets(new) }
    }
}

/// Addresses of Services: 10.96.0.0/12, of which the first 256 are reserved for Services that request a specific one,
/// such as the Service of the API itself.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([10, 96, 1, 0]);
const ADDRESSES: u32 = (1 << 20) - 257;
const FIRST_NODE_PORT: u32 = 30_000;
const NODE_PORTS: u32 = 2_768;

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
        if is_reachable(spec) {
            fill(spec, "externalTrafficPolicy", "Cluster");
        }
        if text_in(spec, "type") == "LoadBalancer" {
            fill(spec, "allocateLoadBalancerNodePorts", true);
        }
    }

    fn prepare_create(&self, service: &mut Value, _: Timestamp) {
        service["status"] = empty_status("", "Service");
        if let Some(spec) = part_of(service, "spec")
            && !text_in(spec, "clusterIP").is_empty()
            && count_in(spec, "clusterIPs") == 0
        {
            let address = spec.get("clusterIP").cloned();
            spec.insert("clusterIPs".to_owned(), address.into_iter().collect());
        }
        allocate(service);
    }

    /// Allocated values stay, even if the client omits them; values that the new type does not use are removed.
    fn prepare_update(&self, new: &mut Value, old: &Value, part: Part) {
        keep_apart(new, old, part);
        if part == Part::Status {
            return;
        }
        let Some(spec) = part_of(new, "spec") else { return };
        if let Some(before) = old.get("spec").and_then(Value::as_object) {
            keep_given(spec, before);
            drop_unused(spec, before);
        }
        if text_in(spec, "type") != "LoadBalancer"
            && let Some(status) = part_of(new, "status")
        {
            status.insert("loadBalancer".to_owned(), json!({}));
        }
        allocate(new);
    }

    fn validate_create(&self, service: &Value) -> Vec<FieldError> {
        checks::validate(service, None)
    }

    fn validate_update(&self, new: &Value, old: &Value, part: Part) -> Vec<FieldError> {
        match part {
            Part::Status => checks::validate_status(new),
            Part::Main => checks::validate(new, Some(old)),
        }
    }

    fn create_warnings(&self, service: &Value) -> Vec<String> {
        checks::warnings(service)
    }

    fn update_warnings(&self, new: &Value, _: &Value, part: Part) -> Vec<String> {
        if part == Part::Main { checks::warnings(new) } else { Vec::new() }
    }

    fn name_problems(&self, name: &str, prefix: bool) -> Vec<String> {
        meta::name_is_dns_label(name, prefix)
    }
}

/// Whether the Service has ports on the nodes.
fn from_outside(spec: &Map<String, Value>) -> bool {
    matches!(text_in(spec, "type"), "NodePort" | "LoadBalancer")
}

/// Whether the Service has a cluster address: all types but ExternalName.
fn has_address(spec: &Map<String, Value>) -> bool {
    text_in(spec, "type") != "ExternalName"
}

/// Whether clients other than Pods and nodes can reach the Service.
fn is_reachable(spec: &Map<String, Value>) -> bool {
    from_outside(spec) || (text_in(spec, "type") == "ClusterIP" && count_in(spec, "externalIPs") > 0)
}

/// Whether a load balancer must check on each node if it has a Pod of the Service.
fn needs_health_port(spec: &Map<String, Value>) -> bool {
    text_in(spec, "type") == "LoadBalancer" && text_in(spec, "externalTrafficPolicy") == "Local"
}

fn node_port(port: &Value) -> i64 {
    port.get("nodePort").and_then(Value::as_i64).unwrap_or_default()
}

/// Restores allocated values that a client did not send.
fn keep_given(spec: &mut Map<String, Value>, before: &Map<String, Value>) {
    if has_address(spec) && has_address(before) {
        let kept = |spec: &mut Map<String, Value>, field: &str| {
            if let Some(value) = before.get(field) {
                spec.insert(field.to_owned(), value.clone());
            }
        };
        if text_in(spec, "clusterIP").is_empty() {
            kept(spec, "clusterIP");
        }
        if count_in(spec, "clusterIPs") == 0 {
            kept(spec, "clusterIPs");
        }
        // A client that changes `clusterIP` also means the first of `clusterIPs`.
        if text_in(spec, "clusterIP") != text_in(before, "clusterIP")
            && spec.get("clusterIPs") == before.get("clusterIPs")
        {
            let address = spec.get("clusterIP").cloned();
            spec.insert("clusterIPs".to_owned(), address.into_iter().collect());
        }
        if text_in(spec, "ipFamilyPolicy").is_empty() {
            kept(spec, "ipFamilyPolicy");
        }
    }
    if needs_health_port(spec)
        && needs_health_port(before)
        && spec.get("healthCheckNodePort").is_none_or(|port| *port == 0)
        && let Some(port) = before.get("healthCheckNodePort")
    {
        spec.insert("healthCheckNodePort".to_owned(), port.clone());
    }
    if !(from_outside(spec) && from_outside(before)) {
        return;
    }
    let earlier: &[Value] = before.get("ports").and_then(Value::as_array).map_or(&[], Vec::as_slice);
    let Some(ports) = spec.get_mut("ports").and_then(Value::as_array_mut) else { return };
    let used: Vec<i64> = ports.iter().map(node_port).collect();
    for port in ports.iter_mut().filter(|port| node_port(port) == 0) {
        let same = earlier.iter().rfind(|old| old.get("name") == port.get("name")).map_or(0, node_port);
        if let Some(port) = port.as_object_mut().filter(|_| same != 0 && !used.contains(&same)) {
            port.insert("nodePort".to_owned(), same.into());
        }
    }
}

/// Removes values that the old type needed and the new one may not have, unless the client changed them: that is an
/// error to report.
fn drop_unused(spec: &mut Map<String, Value>, before: &Map<String, Value>) {
    let drop_same = |spec: &mut Map<String, Value>, fields: &[&str]| {
        for field in fields {
            if spec.get(*field) == before.get(*field) {
                spec.remove(*field);
            }
        }
    };
    if has_address(before) && !has_address(spec) {
        let same = ["clusterIP", "clusterIPs"].iter().all(|field| spec.get(*field) == before.get(*field));
        drop_same(spec, if same { &["clusterIP", "clusterIPs"] } else { &[] });
        drop_same(spec, &["ipFamilies", "ipFamilyPolicy"]);
    }
    if !has_address(spec) {
        spec.remove("internalTrafficPolicy");
    }
    if from_outside(before) && !from_outside(spec) {
        let earlier: Vec<i64> =
            before.get("ports").and_then(Value::as_array).into_iter().flatten().map(node_port).collect();
        let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
        let ports = ports.filter(|ports| ports.iter().map(node_port).all(|port| port == 0 || earlier.contains(&port)));
        for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
            port.remove("nodePort");
        }
    }
    if text_in(before, "type") == "LoadBalancer" && text_in(spec, "type") != "LoadBalancer" {
        drop_same(spec, &["allocateLoadBalancerNodePorts", "loadBalancerClass", "healthCheckNodePort"]);
    }
    if is_reachable(before) && !is_reachable(spec) {
        drop_same(spec, &["externalTrafficPolicy"]);
    }
}

/// Allocates addresses and node ports. They are derived from the UID, so that no second table is needed: among a
/// million addresses, collisions between a few hundred Services are very unlikely, and no traffic is routed to them.
fn allocate(service: &mut Value) {
    let uid = service.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(spec) = part_of(service, "spec") else { return };
    if !has_address(spec) {
        return;
    }
    if text_in(spec, "clusterIP").is_empty() && count_in(spec, "clusterIPs") == 0 {
        let address = Ipv4Addr::from(FIRST_ADDRESS + scattered(&uid, 0) % ADDRESSES).to_string();
        spec.insert("clusterIPs".to_owned(), json!([address]));
        spec.insert("clusterIP".to_owned(), address.into());
    }
    // The endpoints of a headless Service without a selector are set by the user, and may be of either family.
    let both = text_in(spec, "clusterIP") == "None" && count_in(spec, "selector") == 0;
    let six = text_in(spec, "clusterIP").parse::<IpAddr>().is_ok_and(|address| address.is_ipv6());
    fill(spec, "ipFamilyPolicy", if both { "RequireDualStack" } else { "SingleStack" });
    if count_in(spec, "ipFamilies") == 0 {
        let families = match (both && text_in(spec, "ipFamilyPolicy") != "SingleStack", six) {
            (true, _) => json!(["IPv4", "IPv6"]),
            (false, true) => json!(["IPv6"]),
            (false, false) => json!(["IPv4"]),
        };
        spec.insert("ipFamilies".to_owned(), families);
    }
    if needs_health_port(spec) && spec.get("healthCheckNodePort").and_then(Value::as_i64).unwrap_or_default() == 0 {
        spec.insert("healthCheckNodePort".to_owned(), (FIRST_NODE_PORT + scattered(&uid, 0) % NODE_PORTS).into());
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

/// A hash of the text (FNV-1a), different for each `index`.
fn scattered(text: &str, index: u32) -> u32 {
    let bytes = text.bytes().chain(index.to_be_bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (hash >> 32) as u32 ^ hash as u32
}
