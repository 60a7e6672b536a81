//! What a ResourceQuota limits: how much of it an object uses, and whether one more object fits. The messages are those of
//! kube-apiserver.

mod scopes;
mod validation;

use std::collections::BTreeMap;

use tally_core::quantity::Quantity;
use tally_value::Value;

use crate::catalog;
use crate::kinds::{AdmissionError, Resource};
use crate::limits::of_pod;
use crate::pod::quantity_of;
use scopes::Scopes;
pub use validation::{immutable_errors, validate};

/// Amounts by the names that quotas have for them: `pods`, `requests.cpu`, `count/jobs.batch`.
pub type Usage = BTreeMap<String, Quantity>;

/// Resources whose objects have had a name of their own in quotas since before there was `count/`.
const NAMED: [&str; 7] =
    ["configmaps", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas", "secrets", "services", "pods"];
/// If a quota limits one of these, each container must have an amount of it.
const REQUIRED: [&str; 6] = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];

const STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// A ResourceQuota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    pub name: String,
    pub hard: Usage,
    scopes: Scopes,
}

impl Quota {
    pub fn of(object: &Value) -> Self {
        let hard = object.pointer("/spec/hard").and_then(Value::as_object).into_iter().flatten();
        Self {
            name: object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned(),
            hard: hard.filter_map(|(name, amount)| Some((name.to_string(), quantity_of(Some(amount))?))).collect(),
            scopes: Scopes::of(object),
        }
    }

    /// Whether the object counts.
    pub fn applies_to(&self, object: &Value) -> bool {
        self.scopes.contain(object)
    }

    /// Whether it limits anything that objects of this resource may use.
    pub fn concerns(&self, resource: &Resource) -> bool {
        self.hard.keys().any(|name| counted_by(name).is_some_and(|counted| std::ptr::eq(counted, resource)))
    }

    /// Refuses a new Pod whose containers do not say how much of a limited resource they need.
    pub fn check_stated(&self, resource: &Resource, pod: &Value) -> Result<(), AdmissionError> {
        if resource.kind != "Pod" {
            return Ok(());
        }
        let Some(spec) = pod.get("spec") else { return Ok(()) };
        // The amounts of the Pod as a whole are enough.
        let of_pod = |list: &str| spec.pointer(&format!("/resources/{list}")).and_then(Value::as_object);
        if ["requests", "limits"].into_iter().any(|list| of_pod(list).is_some_and(|amounts| !amounts.is_empty())) {
            return Ok(());
        }
        let lists = ["initContainers", "containers"].into_iter().filter_map(|list| spec.get(list)?.as_array());
        let containers: Vec<&Value> = lists.flatten().collect();
        let mut missing = Vec::new();
        for name in REQUIRED.iter().filter(|name| self.hard.contains_key(**name)) {
            let (list, amount) = name.split_once('.').unwrap_or(("requests", name));
            let states = |holder: &Value| holder.pointer(&format!("/resources/{list}/{amount}")).is_some();
            let mut silent: Vec<&str> = containers
                .iter()
                .filter(|container| !states(container))
                .filter_map(|container| container.get("name")?.as_str())
                .collect();
            silent.sort_unstable();
            if !silent.is_empty() {
                missing.push(format!("{name} for: {}", silent.join(",")));
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(AdmissionError(format!("failed quota: {}: must specify {}", self.name, missing.join("; "))))
    }

    /// Refuses what does not fit beside what is used.
    pub fn check_fits(&self, requested: &Usage, used: &Usage) -> Result<(), AdmissionError> {
        let used_of = |name: &str| used.get(name).copied().unwrap_or(Quantity::ZERO);
        let exceeds = |name: &str, hard: &Quantity| {
            let amount = requested.get(name).filter(|amount| **amount > Quantity::ZERO)?;
            used_of(name).checked_add(amount).is_none_or(|sum| sum > *hard).then_some(*amount)
        };
        let exceeded: Vec<_> =
            self.hard.iter().filter_map(|(name, hard)| Some((name, exceeds(name, hard)?, hard))).collect();
        if exceeded.is_empty() {
            return Ok(());
        }
        let list = |amount: &dyn Fn(&(&String, Quantity, &Quantity)) -> Quantity| {
            exceeded.iter().map(|row| format!("{}={}", row.0, amount(row))).collect::<Vec<_>>().join(",")
        };
        Err(AdmissionError(format!(
            "exceeded quota: {}, requested: {}, used: {}, limited: {}",
            self.name,
            list(&|row| row.1),
            list(&|row| used_of(row.0)),
            list(&|row| *row.2),
        )))
    }
}

/// The resource whose objects use what a quota calls by this name.
pub fn counted_by(name: &str) -> Option<&'static Resource> {
    if let Some(counted) = name.strip_prefix("count/") {
        let (plural, group) = counted.split_once('.').unwrap_or((counted, ""));
        return catalog::resources()
            .iter()
            .find(|resource| resource.plural == plural && resource.group == group && is_counted(resource))
            .copied();
    }
    let plural = match name {
        "services.nodeports" | "services.loadbalancers" => "services",
        "requests.storage" => "persistentvolumeclaims",
        _ if name.contains(".storageclass.storage.k8s.io/") => "persistentvolumeclaims",
        _ => NAMED.into_iter().find(|named| *named == name).unwrap_or("pods"),
    };
    catalog::find("", "v1", plural)
}

/// Events are never limited: they tell about what is.
fn is_counted(resource: &Resource) -> bool {
    !catalog::is_virtual(resource) && resource.storage != "events"
}

/// Everything that an object uses.
pub fn usage(resource: &Resource, object: &Value) -> Usage {
    let mut usage = Usage::new();
    let group = if resource.group.is_empty() { String::new() } else { format!(".{}", resource.group) };
    let mut add = |name: String, amount: Quantity| {
        usage.insert(name, amount);
    };
    let one = Quantity::from_int(1);
    add(format!("count/{}{group}", resource.plural), one);
    let is_core = resource.group.is_empty();
    match resource.plural {
        "pods" if is_core => {
            let phase = object.pointer("/status/phase").and_then(Value::as_str);
            let Some(spec) = object.get("spec").filter(|_| !matches!(phase, Some("Succeeded" | "Failed"))) else {
                return usage;
            };
            add("pods".to_owned(), one);
            for (name, amount) in of_pod(spec, "requests") {
                if !name.contains('/') {
                    add(name.to_owned(), amount);
                }
                add(format!("requests.{name}"), amount);
            }
            for (name, amount) in of_pod(spec, "limits").into_iter().filter(|(name, _)| !name.contains('/')) {
                add(format!("limits.{name}"), amount);
            }
        }
        "persistentvolumeclaims" if is_core => {
            add("persistentvolumeclaims".to_owned(), one);
            let storage = quantity_of(object.pointer("/spec/resources/requests/storage"));
            if let Some(storage) = storage {
                add("requests.storage".to_owned(), storage);
            }
            // The annotation is older than the field, and counts before it.
            let annotated =
                object.get("metadata").and_then(|meta| meta.get("annotations")?.get(STORAGE_CLASS)?.as_str());
            let class = annotated.or_else(|| object.pointer("/spec/storageClassName")?.as_str());
            let class = class.filter(|class| !class.is_empty());
            if let Some(class) = class {
                let of_class = |what: &str| format!("{class}.storageclass.storage.k8s.io/{what}");
                add(of_class("persistentvolumeclaims"), one);
                if let Some(storage) = storage {
                    add(of_class("requests.storage"), storage);
                }
            }
        }
        "services" if is_core => {
            add("services".to_owned(), one);
            let kind = object.pointer("/spec/type").and_then(Value::as_str);
            let ports = object.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten();
            // A load balancer may need no ports of the nodes.
            let all = object.pointer("/spec/allocateLoadBalancerNodePorts") != Some(&Value::Bool(false));
            let ports = ports.filter(|port| all || kind == Some("NodePort") || port.get("nodePort").is_some()).count();
            if kind == Some("LoadBalancer") {
                add("services.loadbalancers".to_owned(), one);
            }
            if matches!(kind, Some("LoadBalancer" | "NodePort")) {
                add("services.nodeports".to_owned(), Quantity::from_int(i64::try_from(ports).unwrap_or(i64::MAX)));
            }
        }
        named if is_core && NAMED.contains(&named) => add(named.to_owned(), one),
        _ => {}
    }
    usage
}

/// Adds the amounts that a quota limits. False: a sum cannot be expressed exactly; then it is the largest of its parts.
pub fn add(sums: &mut Usage, usage: &Usage, hard: &Usage) -> bool {
    let mut exact = true;
    for (name, amount) in usage.iter().filter(|(name, _)| hard.contains_key(*name)) {
        let sum = sums.entry(name.clone()).or_insert(Quantity::ZERO);
        let added = sum.checked_add(amount);
        exact &= added.is_some();
        *sum = added.unwrap_or((*sum).max(*amount));
    }
    exact
}

pub fn subtract(sums: &mut Usage, usage: &Usage, hard: &Usage) -> bool {
    let negated = usage.iter().map(|(name, amount)| (name.clone(), amount.negated())).collect();
    add(sums, &negated, hard)
}
