//! Services: defaults and allocated addresses. No traffic is routed to them here; tools that create one and wait for its
//! address work. Their fields are not validated.

use std::net::Ipv4Addr;

use tally_core::time::Timestamp;
use tally_value::{Map, Value, json};

use super::{count_in, empty_status, fill, keep_apart, part_of, text_in};
use crate::kinds::{Part, Rules};
use crate::meta;

pub struct ServiceRules;

/// Addresses of Services: 10.96.0.0/12, of which the first 256 are reserved for Services that request a specific one,
/// such as the Service of the API itself.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([10, 96, 1, 0]);
const ADDRESSES: u32 = (1 << 20) - 257;

impl Rules for ServiceRules {
    fn default(&self, service: &mut Value) {
        let Some(spec) = part_of(service, "spec") else { return };
        fill(spec, "type", "ClusterIP");
        fill(spec, "sessionAffinity", "None");
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(port) = port.as_object_mut() else { continue };
            fill(port, "protocol", "TCP");
            let number = port.get("port").cloned().unwrap_or_default();
            if port.get("targetPort").is_none_or(|target| target.is_null() || target == 0 || target == "") {
                port.insert("targetPort", number);
            }
        }
        if has_address(spec) {
            fill(spec, "internalTrafficPolicy", "Cluster");
        }
    }

    fn create_warnings(&self, service: &Value) -> Vec<String> {
        if service.pointer("/spec/type").and_then(Value::as_str) != Some("LoadBalancer") {
            return Vec::new();
        }
        let why = "this server gives no address to a Service of type LoadBalancer, and routes no traffic to Services; \
                   Pods use the network of the machine";
        vec![why.to_owned()]
    }

    fn prepare_create(&self, service: &mut Value, _: Timestamp) {
        service["status"] = empty_status("", "Service");
        allocate(service);
    }

    /// The allocated address stays, even if the client omits it.
    fn prepare_update(&self, new: &mut Value, old: &Value, part: Part) {
        keep_apart(new, old, part);
        if part == Part::Status {
            return;
        }
        if let (Some(spec), Some(before)) = (part_of(new, "spec"), old.get("spec").and_then(Value::as_object))
            && has_address(spec)
        {
            for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                let absent = text_in(spec, field).is_empty() && count_in(spec, field) == 0;
                if let Some(value) = before.get(field).filter(|_| absent) {
                    spec.insert(field, value.clone());
                }
            }
        }
        allocate(new);
    }

    fn name_problems(&self, name: &str, prefix: bool) -> Vec<String> {
        meta::name_is_dns_label(name, prefix)
    }
}

/// Whether the Service has a cluster address: all types but ExternalName.
fn has_address(spec: &Map) -> bool {
    text_in(spec, "type") != "ExternalName"
}

/// Allocates an address. It is derived from the UID, so that no second table is needed: among a million addresses,
/// collisions between a few hundred Services are very unlikely, and no traffic is routed to them.
fn allocate(service: &mut Value) {
    let uid = service.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(spec) = part_of(service, "spec") else { return };
    if !has_address(spec) {
        return;
    }
    fill(spec, "clusterIP", Ipv4Addr::from(FIRST_ADDRESS + hashed(&uid) % ADDRESSES).to_string());
    if count_in(spec, "clusterIPs") == 0 {
        let address = spec.get("clusterIP").cloned();
        spec.insert("clusterIPs", address.into_iter().collect());
    }
    fill(spec, "ipFamilyPolicy", "SingleStack");
    if count_in(spec, "ipFamilies") == 0 {
        spec.insert("ipFamilies", json!(["IPv4"]));
    }
}

/// FNV-1a.
fn hashed(text: &str) -> u32 {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (hash >> 32) as u32 ^ hash as u32
}
