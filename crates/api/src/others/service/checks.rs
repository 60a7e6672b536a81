//! Validation of a Service. Most of its fields apply to one type of Service only.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::field::{At, FieldError};
use crate::meta;

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const AFFINITIES: [&str; 2] = ["ClientIP", "None"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const FAMILY_POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
const TRAFFIC_POLICIES: [&str; 2] = ["Cluster", "Local"];
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];
/// The longest time for which a client is kept with the same Pod: a day.
const LONGEST_AFFINITY: i64 = 86_400;

const NO_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const ONCE: &str = "may not change once set";
const FOR_BALANCERS: &str = "may only be used when `type` is 'LoadBalancer'";
const NOT_FOR_NAMES: &str = "may not be set for ExternalName services";

/// All errors of a Service, or of a change of one.
pub fn validate(service: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let (root, before) = (At::root(service), old.map(At::root));
    let spec = root.at("spec");
    let mut errors = before.map_or_else(Vec::new, |before| validate_change(&spec, &before.at("spec")));
    let kind = spec.at("type").text_or_empty();
    let (addresses, ports) = (spec.at("clusterIPs"), spec.at("ports"));
    let headless = is_headless(&spec);
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.push(ports.required(""));
    }
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            errors.push(addresses.index(0).invalid(format!("may not be set to 'None' for {kind} services")));
        }
        "ExternalName" => errors.extend(validate_name_elsewhere(&spec)),
        _ => {}
    }
    errors.extend(validate_ports(&ports));
    errors.extend(meta::validate_labels(spec.at("selector")));
    errors.extend(validate_affinity(&spec));
    if kind != "ExternalName" {
        errors.extend(validate_addresses(&spec, headless));
    }
    for address in spec.at("externalIPs").items() {
        errors.extend(outside_address_problem(&address));
    }
    match kind {
        "" => errors.push(spec.at("type").required("")),
        known if TYPES.contains(&known) => {}
        other => errors.push(spec.at("type").not_supported(other, &TYPES)),
    }
    errors.extend(validate_numbers(&ports, kind));
    errors.extend(validate_balancing(&spec, kind));
    errors.extend(validate_traffic(&spec));
    errors
}

/// The status contains the addresses of a load balancer; only Services of that type may have some.
pub fn validate_status(service: &Value) -> Vec<FieldError> {
    let root = At::root(service);
    let (spec, status) = (root.at("spec"), root.at("status"));
    let balancer = status.at("loadBalancer");
    let ingress = balancer.at("ingress");
    if spec.at("type").text() != Some("LoadBalancer") && !ingress.is_empty() {
        return vec![ingress.forbidden("may only be used when `spec.type` is 'LoadBalancer'")];
    }
    Vec::new()
}

pub fn warnings(service: &Value) -> Vec<String> {
    let root = At::root(service);
    let spec = root.at("spec");
    let kind = spec.at("type").text_or_empty();
    let headless = kind == "ClusterIP" && spec.at("clusterIP").text() == Some("None");
    let outside = !spec.at("externalIPs").is_empty();
    let mut warnings = Vec::new();
    let mut warn = |when: bool, text: &str| {
        if when {
            warnings.push(text.to_owned());
        }
    };
    let has_ip = !spec.at("loadBalancerIP").text_or_empty().is_empty();
    warn(headless && has_ip, "spec.loadBalancerIP is ignored for headless services");
    warn(headless && outside, "spec.externalIPs is ignored for headless services");
    let sticky = spec.at("sessionAffinity").text() != Some("None");
    warn(headless && sticky, "spec.SessionAffinity is ignored for headless services");
    let named = kind == "ExternalName";
    let text = "spec.externalIPs is deprecated and may no longer be implemented in some clusters";
    warn(outside && !headless && !named, text);
    warn(outside && named, "spec.externalIPs is ignored when spec.type is \"ExternalName\"");
    let names = !spec.at("externalName").text_or_empty().is_empty();
    warn(names && !named, "spec.externalName is ignored when spec.type is not \"ExternalName\"");
    let close = spec.at("trafficDistribution").text() == Some("PreferClose");
    warn(close, "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"");
    warnings
}

/// All errors of the subsets of Endpoints.
pub fn validate_subsets(endpoints: &Value) -> Vec<FieldError> {
    let root = At::root(endpoints);
    let mut errors = Vec::new();
    for subset in root.at("subsets").items() {
        let (ready, waiting, ports) = (subset.at("addresses"), subset.at("notReadyAddresses"), subset.at("ports"));
        if ready.is_empty() && waiting.is_empty() {
            errors.push(subset.required("must specify `addresses` or `notReadyAddresses`"));
        }
        for address in ready.items().chain(waiting.items()) {
            errors.extend(validate_endpoint(&address));
        }
        for port in ports.items() {
            errors.extend(port_name_errors(&port, ports.len() > 1));
            errors.extend(port_number_errors(&port));
            errors.extend(application_errors(&port));
        }
    }
    errors
}

fn validate_endpoint(endpoint: &At<'_, '_>) -> Vec<FieldError> {
    let (address, host, node) = (endpoint.at("ip"), endpoint.at("hostname"), endpoint.at("nodeName"));
    let mut errors = Vec::new();
    let text = address.text_or_empty();
    if text.parse::<IpAddr>().is_err() {
        errors.push(address.invalid_value(text, NO_ADDRESS));
    }
    let name = host.text_or_empty();
    if !name.is_empty() {
        errors.extend(meta::dns_label_problems(name).into_iter().map(|problem| host.invalid(problem)));
    }
    if let Some(name) = node.text() {
        errors.extend(meta::dns_subdomain_problems(name).into_iter().map(|problem| node.invalid(problem)));
    }
    if text.parse::<IpAddr>().is_err() {
        // kube-apiserver checks this twice, and reports it twice.
        errors.push(address.invalid_value(text, "must be a valid IP address"));
    }
    errors.extend(special_address(&address));
    errors
}

fn is_headless(spec: &At<'_, '_>) -> bool {
    matches!(spec.at("clusterIPs").list(), [one] if one == "None")
}

/// An allocated address may be in use by clients, so it does not change.
fn validate_change(spec: &At<'_, '_>, before: &At<'_, '_>) -> Vec<FieldError> {
    let (addresses, earlier) = (spec.at("clusterIPs"), before.at("clusterIPs"));
    let mut errors = Vec::new();
    let named = [spec, before].iter().any(|spec| spec.at("type").text() == Some("ExternalName"));
    let free = named || (is_headless(spec) && is_headless(before));
    if !free {
        // If the lists differ in length, only the first elements are compared.
        let compared = if addresses.len() == earlier.len() { usize::MAX } else { 1 };
        for (index, (new, old)) in addresses.list().iter().zip(earlier.list()).enumerate().take(compared) {
            if new != old {
                errors.push(addresses.index(index).invalid_value(addresses.list(), ONCE));
            }
        }
        if addresses.is_empty() && !earlier.is_empty() {
            errors.push(addresses.index(0).invalid_value(Value::Null, "primary clusterIP can not be unset"));
        }
        let (families, earlier) = (spec.at("ipFamilies"), before.at("ipFamilies"));
        let same_kind = is_headless(spec) == is_headless(before);
        if same_kind && families.list().first() != earlier.list().first() && !earlier.is_empty() {
            errors.push(families.index(0).invalid_value(families.list(), ONCE));
        }
    }
    let balanced = [spec, before].iter().all(|spec| spec.at("type").text() == Some("LoadBalancer"));
    let class = spec.at("loadBalancerClass");
    if balanced && class.value != before.at("loadBalancerClass").value {
        errors.push(class.invalid(ONCE));
    }
    errors
}

fn validate_name_elsewhere(spec: &At<'_, '_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let at = spec.at(field);
        if at.is_set() && (at.text().is_some() || !at.is_empty()) {
            errors.push(at.forbidden(NOT_FOR_NAMES));
        }
    }
    let name = spec.at("externalName");
    // A trailing dot is allowed in a name.
    let text = name.text_or_empty();
    let text = text.strip_suffix('.').unwrap_or(text);
    if text.is_empty() {
        errors.push(name.required(""));
    } else {
        let problems = meta::dns_subdomain_problems(text);
        errors.extend(problems.into_iter().map(|problem| name.invalid_value(text, problem)));
    }
    errors
}

fn validate_ports(ports: &At<'_, '_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut names = BTreeSet::new();
    for port in ports.items() {
        errors.extend(port_name_errors(&port, ports.len() > 1));
        let name = port.at("name");
        if !name.text_or_empty().is_empty() && !names.insert(name.text_or_empty()) {
            errors.push(name.duplicate());
        }
        errors.extend(port_number_errors(&port));
        let target = port.at("targetPort");
        match target.text() {
            Some(name) => {
                errors.extend(meta::port_name_problems(name).into_iter().map(|problem| target.invalid(problem)));
            }
            None => errors.extend(number_problem(&target)),
        }
        errors.extend(application_errors(&port));
    }
    errors
}

/// If there are several ports, each needs a name.
fn port_name_errors(port: &At<'_, '_>, of_several: bool) -> Vec<FieldError> {
    let name = port.at("name");
    match name.text_or_empty() {
        "" if of_several => vec![name.required("")],
        "" => Vec::new(),
        text => meta::dns_label_problems(text).into_iter().map(|problem| name.invalid(problem)).collect(),
    }
}

fn port_number_errors(port: &At<'_, '_>) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = number_problem(&port.at("port")).into_iter().collect();
    let protocol = port.at("protocol");
    if !PROTOCOLS.contains(&protocol.text_or_empty()) {
        errors.push(protocol.not_supported(protocol.text_or_empty(), &PROTOCOLS));
    }
    errors
}

fn application_errors(port: &At<'_, '_>) -> Vec<FieldError> {
    let application = port.at("appProtocol");
    let problems = application.text().map(meta::qualified_name_problems).unwrap_or_default();
    problems.into_iter().map(|problem| application.invalid(problem)).collect()
}

fn number_problem(port: &At<'_, '_>) -> Option<FieldError> {
    let number = port.int().unwrap_or_default();
    let valid = (1..=65_535).contains(&number);
    (!valid).then(|| port.invalid_value(number, "must be between 1 and 65535, inclusive"))
}

fn validate_affinity(spec: &At<'_, '_>) -> Vec<FieldError> {
    let (affinity, config) = (spec.at("sessionAffinity"), spec.at("sessionAffinityConfig"));
    let client = config.at("clientIP");
    let timeout = client.at("timeoutSeconds");
    match affinity.text_or_empty() {
        "" => vec![affinity.required("")],
        "ClientIP" => {
            let seconds = timeout.int().unwrap_or_default();
            let text = format!("must be greater than 0 and less than {LONGEST_AFFINITY}");
            let wrong = !(1..=LONGEST_AFFINITY).contains(&seconds);
            if wrong { vec![timeout.invalid_value(seconds, text)] } else { Vec::new() }
        }
        "None" if config.is_set() => vec![config.forbidden("must not be set when session affinity is None")],
        "None" => Vec::new(),
        other => vec![affinity.not_supported(other, &AFFINITIES)],
    }
}

fn validate_addresses(spec: &At<'_, '_>, headless: bool) -> Vec<FieldError> {
    let (one, all, families) = (spec.at("clusterIP"), spec.at("clusterIPs"), spec.at("ipFamilies"));
    let policy = spec.at("ipFamilyPolicy");
    let mut errors = Vec::new();
    match (one.text_or_empty(), all.list().first()) {
        ("", None) => {}
        ("", Some(_)) => errors.push(all.invalid("must be empty when `clusterIP` is not specified")),
        (_, None) => errors.push(all.required("")),
        (text, Some(first)) if first == text => {}
        _ => errors.push(all.invalid("first value must match `clusterIP`")),
    }
    let mut seen = BTreeSet::new();
    for family in families.items() {
        let text = family.text_or_empty();
        if !FAMILIES.contains(&text) {
            errors.push(family.not_supported(text, &FAMILIES));
        }
        if !seen.insert(text) {
            errors.push(family.duplicate());
        }
    }
    if let Some(text) = policy.text().filter(|text| !FAMILY_POLICIES.contains(text)) {
        errors.push(policy.not_supported(text, &FAMILY_POLICIES));
    }
    let mut broken = false;
    for (index, address) in all.items().enumerate() {
        let text = address.text_or_empty();
        if index == 0 && text == "None" {
            if all.len() > 1 {
                broken = true;
                errors.push(all.invalid("'None' must be the first and only value"));
            }
        } else if text.parse::<IpAddr>().is_err() {
            broken = true;
            errors.push(address.invalid(NO_ADDRESS));
        }
    }
    if all.len() > 2 {
        errors.push(all.invalid("may only hold up to 2 values"));
    }
    if broken || headless {
        return errors;
    }
    let is_six = |value: &Value| value.as_str().is_some_and(|text| text.contains(':'));
    if all.len() > 1 && all.list().iter().filter(|address| is_six(address)).count() != 1 {
        errors.push(all.invalid("may specify no more than one IP for each IP family"));
    }
    for (index, address) in all.items().enumerate().take(families.len()) {
        let family = families.index(index).text_or_empty();
        if FAMILIES.contains(&family) && (family == "IPv6") != address.value.is_some_and(is_six) {
            let text = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            errors.push(address.invalid(text));
        }
    }
    if errors.is_empty() {
        errors.extend(validate_stack(spec, &families));
    }
    errors
}

/// This cluster has one address family.
fn validate_stack(spec: &At<'_, '_>, families: &At<'_, '_>) -> Vec<FieldError> {
    let policy = spec.at("ipFamilyPolicy");
    let mut errors = Vec::new();
    if policy.text() == Some("RequireDualStack") {
        errors.push(policy.invalid("this cluster is not configured for dual-stack services"));
    }
    let foreign = families.items().filter(|family| family.text() == Some("IPv6"));
    errors.extend(foreign.map(|family| family.invalid("not configured on this cluster")));
    errors
}

/// Why an address cannot be an external one.
fn outside_address_problem(at: &At<'_, '_>) -> Option<FieldError> {
    if at.text_or_empty().parse::<IpAddr>().is_err() {
        return Some(at.invalid(NO_ADDRESS));
    }
    special_address(at)
}

/// Addresses that have a special meaning on every machine.
fn special_address(at: &At<'_, '_>) -> Option<FieldError> {
    let text = at.text_or_empty();
    let address: IpAddr = text.parse().ok()?;
    let (near, many) = match address {
        IpAddr::V4(four) => (four.is_link_local(), four.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(six) => (six.is_unicast_link_local(), six.segments()[0] & 0xff0f == 0xff02),
    };
    if address.is_unspecified() {
        Some(at.invalid(format!("may not be unspecified ({text})")))
    } else if address.is_loopback() {
        Some(at.invalid("may not be in the loopback range (127.0.0.0/8, ::1/128)"))
    } else if near {
        Some(at.invalid("may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
    } else if many {
        Some(at.invalid("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"))
    } else {
        None
    }
}

/// Ports and node ports are identified by their number and protocol.
fn validate_numbers(ports: &At<'_, '_>, kind: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let outside = |port: &At<'_, '_>| port.at("nodePort").int().unwrap_or_default();
    for port in ports.items().filter(|port| kind == "ClusterIP" && outside(port) != 0) {
        errors.push(port.at("nodePort").forbidden("may not be used when `type` is 'ClusterIP'"));
    }
    let (first, last) = (super::FIRST_NODE_PORT, super::FIRST_NODE_PORT + super::NODE_PORTS - 1);
    let is_ours = |number: i64| (i64::from(first)..=i64::from(last)).contains(&number);
    for port in ports.items().filter(|port| kind != "ClusterIP" && outside(port) != 0 && !is_ours(outside(port))) {
        let text = format!("provided port is not in the valid range. The range of valid ports is {first}-{last}");
        errors.push(port.at("nodePort").invalid(text));
    }
    let mut seen = BTreeSet::new();
    for port in ports.items().filter(|port| outside(port) != 0) {
        if !seen.insert((outside(&port), port.at("protocol").text_or_empty())) {
            errors.push(port.at("nodePort").duplicate());
        }
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

fn validate_balancing(spec: &At<'_, '_>, kind: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // The spelling of kube-apiserver.
    let ranges = At::rooted("spec.LoadBalancerSourceRanges", spec.at("loadBalancerSourceRanges").value);
    if !ranges.is_empty() && kind != "LoadBalancer" {
        errors.push(ranges.forbidden(FOR_BALANCERS));
    }
    for range in ranges.items() {
        let text = range.text_or_empty().trim();
        if !super::super::is_cidr(text) {
            errors.push(range.invalid_value(text, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"));
        }
    }
    let allocates = spec.at("allocateLoadBalancerNodePorts");
    if allocates.is_set() && kind != "LoadBalancer" {
        errors.push(allocates.forbidden(FOR_BALANCERS));
    }
    let class = spec.at("loadBalancerClass");
    match class.text() {
        Some(text) if kind == "LoadBalancer" => {
            let problems = meta::qualified_name_problems(text);
            errors.extend(problems.into_iter().map(|problem| class.invalid(problem)));
        }
        Some(_) => errors.push(class.forbidden(FOR_BALANCERS)),
        None => {}
    }
    errors
}

fn validate_traffic(spec: &At<'_, '_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (outer, inner) = (spec.at("externalTrafficPolicy"), spec.at("internalTrafficPolicy"));
    let reachable = spec.value.and_then(Value::as_object).is_some_and(super::is_reachable);
    match outer.text_or_empty() {
        "" if reachable => errors.push(outer.required("")),
        "" => {}
        _ if !reachable => errors.push(outer.invalid("may only be set for externally-accessible services")),
        text if TRAFFIC_POLICIES.contains(&text) => {}
        text => errors.push(outer.not_supported(text, &TRAFFIC_POLICIES)),
    }
    let health = spec.at("healthCheckNodePort");
    let checked = spec.value.and_then(Value::as_object).is_some_and(super::needs_health_port);
    if !checked && health.int().unwrap_or_default() != 0 {
        let text = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.push(health.invalid(text));
    }
    if let Some(text) = inner.text().filter(|text| !TRAFFIC_POLICIES.contains(text)) {
        errors.push(inner.not_supported(text, &TRAFFIC_POLICIES));
    }
    let distribution = spec.at("trafficDistribution");
    if let Some(text) = distribution.text().filter(|text| !DISTRIBUTIONS.contains(text)) {
        errors.push(distribution.not_supported(text, &DISTRIBUTIONS));
    }
    errors
}
