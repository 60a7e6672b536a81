//! Requests and limits of containers: names, amounts, and the quality-of-service class that follows from them.

use std::collections::{BTreeMap, BTreeSet};

use tally_value::Value;

use crate::field::At;
use crate::meta;
use crate::quantity::Quantity;

use super::checks::{Errors, UniqueTexts, dns_label, duplicate, not_found};

/// Names without a domain that have a meaning for Pods, quotas or claims.
const STANDARD: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

/// Standard names of resources that are counted in whole numbers.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

const HUGE_PAGES: &str = "hugepages-";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Holder {
    Container,
    Pod,
}

pub(super) fn of_container(resources: &At<'_, '_>, claims: &BTreeSet<&str>, errors: &mut Errors) {
    requirements(resources, Holder::Container, errors);
    claim_names(&resources.at("claims"), claims, errors);
}

/// Overhead is a plain map of amounts, and is validated like limits.
pub(super) fn overhead(overhead: &At<'_, '_>, errors: &mut Errors) {
    for (name, quantity) in overhead.entries() {
        // The path in errors contains `limits`, because the same check is used.
        let limits = overhead.at("limits");
        amount(&limits.key(name), name, quantity, Holder::Container, errors);
    }
}

/// Resources of the Pod as a whole, which its containers share.
pub(super) fn of_pod(spec: &At<'_, '_>, errors: &mut Errors) {
    let resources = spec.at("resources");
    if !resources.is_set() {
        return;
    }
    if spec.at("os").at("name").text_or_empty() == "windows" {
        errors.push(resources.forbidden("may not be set for a windows pod"));
        return;
    }
    if resources.at("claims").is_set() {
        errors.push(resources.at("claims").forbidden("claims may not be set for Resources at pod-level"));
    }
    requirements(&resources, Holder::Pod, errors);
    let Some(value) = spec.value else { return };
    for (list, whole, sum) in
        [("requests", true, container_sums(value, "requests")), ("limits", false, container_sums(value, "limits"))]
    {
        let amounts = resources.at(list);
        for (name, sum) in sum {
            let given = amounts.key(name);
            // The sum of the limits of ordinary resources may exceed the Pod's limit: not all are used at once.
            let compared = whole || name.starts_with(HUGE_PAGES);
            if compared && quantity_of(given.value).is_some_and(|given| sum > given) {
                let told = format!("must be greater than or equal to aggregate container {list} of {sum}");
                errors.push(given.invalid(told));
            }
        }
    }
    let limits = resources.at("limits");
    let told_at = resources.at("containers");
    for (index, container) in spec.at("containers").list().iter().enumerate() {
        for (name, given) in amounts(container, "limits") {
            if let Some(most) = quantity_of(limits.key(name).value).filter(|most| given > *most) {
                let told = format!("must be less than or equal to pod limits of {most}");
                let container = told_at.index(index);
                let place = container.key(name);
                errors.push(place.at("limits").invalid_value(given.to_string(), told));
            }
        }
    }
}

fn requirements(resources: &At<'_, '_>, holder: Holder, errors: &mut Errors) {
    let (limits, requests) = (resources.at("limits"), resources.at("requests"));
    for (name, quantity) in limits.entries() {
        amount(&limits.key(name), name, quantity, holder, errors);
    }
    for (name, quantity) in requests.entries() {
        amount(&requests.key(name), name, quantity, holder, errors);
        let overcommitted = is_native(name) && !name.starts_with(HUGE_PAGES);
        let Some(request) = quantity_of(Some(quantity)) else { continue };
        match quantity_of(limits.key(name).value) {
            Some(limit) if request != limit && !overcommitted => {
                errors.push(requests.invalid_value(quantity, format!("must be equal to {name} limit of {limit}")));
            }
            Some(limit) if request > limit => {
                let told = format!("must be less than or equal to {name} limit of {limit}");
                errors.push(requests.invalid_value(quantity, told));
            }
            None if !overcommitted => {
                errors.push(limits.required("Limit must be set for non overcommitable resources"));
            }
            _ => {}
        }
    }
    let named = |wanted: fn(&str) -> bool| limits.entries().chain(requests.entries()).any(|(name, _)| wanted(name));
    if named(|name| name.starts_with(HUGE_PAGES)) && !named(|name| matches!(name, "cpu" | "memory")) {
        errors.push(resources.forbidden("HugePages require cpu or memory"));
    }
}

/// Validates one entry of a list of resources.
fn amount(at: &At<'_, '_>, name: &str, quantity: &Value, holder: Holder, errors: &mut Errors) {
    for problem in name_problems(name, holder) {
        match problem {
            Problem::Told(text) => errors.push(at.invalid_value(name, text)),
            Problem::NotForPods => errors.push(at.not_supported(name, &["cpu", HUGE_PAGES, "memory"])),
        }
    }
    let Some(amount) = quantity_of(Some(quantity)) else { return };
    if amount.is_negative() {
        errors.push(at.invalid_value(quantity, "must be greater than or equal to 0"));
    }
    if (COUNTED.contains(&name) || is_extended(name)) && amount.milli_value() % 1000 != 0 {
        errors.push(at.invalid_value(quantity, "must be an integer"));
    }
    if let Some(size) = name.strip_prefix(HUGE_PAGES) {
        let page = Quantity::parse(size).ok().filter(|page| page.is_integer() && page.value() > 0);
        if page.is_none_or(|page| amount.value() % page.value() != 0) {
            errors.push(at.invalid_value(quantity, format!("{amount} is not positive integer multiple of {name}")));
        }
    }
}

enum Problem {
    Told(String),
    NotForPods,
}

fn name_problems(name: &str, holder: Holder) -> Vec<Problem> {
    let tell = |text: &str| vec![Problem::Told(text.to_owned())];
    let problems: Vec<_> = meta::qualified_name_problems(name).into_iter().map(Problem::Told).collect();
    let (is_plain, has_pages) = (!name.contains('/'), name.starts_with(HUGE_PAGES));
    let unknown = is_plain && !STANDARD.contains(&name) && !has_pages && !name.starts_with("requests.hugepages-");
    let mut problems = match problems {
        problems if !problems.is_empty() => problems,
        _ if unknown => tell("must be a standard resource type or fully qualified"),
        none => none,
    };
    match holder {
        Holder::Pod if !problems.is_empty() => {}
        Holder::Pod if !matches!(name, "cpu" | "memory") && !has_pages => problems.push(Problem::NotForPods),
        Holder::Pod => {}
        Holder::Container if is_plain => {
            if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !has_pages {
                problems.extend(tell("must be a standard resource for containers"));
            }
        }
        Holder::Container => {
            if !is_native(name) && !is_extended(name) {
                problems.extend(tell("doesn't follow extended resource name standard"));
            }
        }
    }
    problems
}

/// Whether the resource is one of Kubernetes: without a domain, or with one of its domains.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether it is a device or another resource that a third party defines. Quotas prefix it with `requests.`, and the
/// result must be a valid name.
fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && meta::qualified_name_problems(&format!("requests.{name}")).is_empty()
}

/// Each error about an unknown claim prints all known ones. With one error for each, long lists would use up the
/// memory.
const MOST_UNKNOWN_CLAIMS_TOLD: usize = 10;

fn claim_names(list: &At<'_, '_>, known: &BTreeSet<&str>, errors: &mut Errors) {
    let mut whole = UniqueTexts::default();
    let mut unknown = 0;
    let mut parts: BTreeSet<(&str, &str)> = BTreeSet::new();
    for claim in list.items() {
        let (name, request) = (claim.at("name").text_or_empty(), claim.at("request"));
        let request_name = request.text_or_empty();
        if name.is_empty() {
            errors.push(claim.required(""));
            continue;
        }
        if whole.contains(name) {
            errors.push(duplicate(&claim, name));
        } else if request_name.is_empty() {
            // The whole claim, of which parts were named before.
            for _ in parts.range((name, "")..).take_while(|(claim, _)| *claim == name) {
                errors.push(duplicate(&claim, name));
            }
            whole.insert(name);
        } else {
            dns_label(&request, errors);
            if !parts.insert((name, request_name)) {
                errors.push(duplicate(&claim, format!("{name}/{request_name}")));
            }
        }
        if !known.contains(name) {
            unknown += 1;
            if unknown > MOST_UNKNOWN_CLAIMS_TOLD {
                continue;
            }
            let known: Vec<&str> = known.iter().copied().collect();
            let choice =
                if known.is_empty() { " which is empty".to_owned() } else { format!(": {}", known.join(", ")) };
            errors.push(not_found(
                &claim,
                name,
                format!("must be one of the names in pod.spec.resourceClaims{choice}"),
            ));
        }
    }
}

pub(crate) fn quantity_of(value: Option<&Value>) -> Option<Quantity> {
    match value? {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
}

/// The sum of `list` (`requests` or `limits`) over the containers of a Pod: the ordinary ones and the sidecars run at
/// the same time, and each init container runs beside the sidecars that started before it.
pub(crate) fn container_sums<'v>(spec: &'v Value, list: &str) -> BTreeMap<&'v str, Quantity> {
    let mut running: BTreeMap<&'v str, Quantity> = BTreeMap::new();
    let mut most: BTreeMap<&'v str, Quantity> = BTreeMap::new();
    for container in items(spec, "initContainers") {
        let amounts = amounts(container, list);
        if container.get("restartPolicy").and_then(Value::as_str) == Some("Always") {
            amounts.for_each(|(name, amount)| add(&mut running, name, amount));
            continue;
        }
        for (name, amount) in amounts {
            let beside = running.get(name).and_then(|sidecars| sidecars.checked_add(&amount));
            raise(&mut most, name, beside.unwrap_or(amount));
        }
    }
    for container in items(spec, "containers") {
        amounts(container, list).for_each(|(name, amount)| add(&mut running, name, amount));
    }
    running.into_iter().for_each(|(name, amount)| raise(&mut most, name, amount));
    most
}

fn items<'v>(spec: &'v Value, list: &str) -> &'v [Value] {
    spec.get(list).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn amounts<'v>(holder: &'v Value, list: &str) -> impl Iterator<Item = (&'v str, Quantity)> {
    let entries = holder.get("resources").and_then(|resources| resources.get(list)).and_then(Value::as_object);
    entries.into_iter().flatten().filter_map(|(name, amount)| Some((name.as_str(), quantity_of(Some(amount))?)))
}

/// If a sum overflows, the largest part is kept: no node has that much.
fn add<'v>(sums: &mut BTreeMap<&'v str, Quantity>, name: &'v str, amount: Quantity) {
    sums.entry(name).and_modify(|sum| *sum = sum.checked_add(&amount).unwrap_or((*sum).max(amount))).or_insert(amount);
}

fn raise<'v>(most: &mut BTreeMap<&'v str, Quantity>, name: &'v str, amount: Quantity) {
    most.entry(name).and_modify(|old| *old = (*old).max(amount)).or_insert(amount);
}

/// The Pod's quality-of-service class: Guaranteed if everything has cpu and memory limits and equal requests,
/// BestEffort if nothing requests or limits either.
pub(crate) fn class_of_service(spec: &Value) -> &'static str {
    let pod_level = spec.get("resources").filter(|resources| resources.is_object()).map(|_| spec);
    let holders: Vec<&Value> = match pod_level {
        Some(spec) => vec![spec],
        None => items(spec, "containers").iter().chain(items(spec, "initContainers")).collect(),
    };
    let (mut requests, mut limits) = (BTreeMap::new(), BTreeMap::new());
    let mut everything_limited = true;
    for holder in holders {
        let counted = |list: &str| {
            amounts(holder, list)
                .filter(|(name, amount)| matches!(*name, "cpu" | "memory") && *amount > Quantity::ZERO)
                .collect::<Vec<_>>()
        };
        let limited = counted("limits");
        // A Pod without limits of its own is classified by its requests alone.
        everything_limited &= limited.len() == 2 || (pod_level.is_some() && amounts(holder, "limits").next().is_none());
        limited.into_iter().for_each(|(name, amount)| add(&mut limits, name, amount));
        counted("requests").into_iter().for_each(|(name, amount)| add(&mut requests, name, amount));
    }
    match () {
        () if requests.is_empty() && limits.is_empty() => "BestEffort",
        () if everything_limited && requests == limits => "Guaranteed",
        () => "Burstable",
    }
}
