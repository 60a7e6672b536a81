//! The effect of a LimitRange on the Pods and claims of its namespace: containers without amounts get its defaults, and
//! amounts out of its bounds are refused.

use std::collections::BTreeMap;

use tally_value::{Map, Value};

use crate::kinds::AdmissionError;
use crate::pod::{container_sums, quantity_of};
use crate::quantity::Quantity;

/// The annotation of a Pod that lists the defaults that were set.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// The largest number whose thousandths fit into 64 bits: ratios of larger numbers are computed from whole units.
const MOST_WITH_THOUSANDTHS: i64 = i64::MAX / 1000;

/// The most errors that are kept: without a limit their number would grow with the Pod times the range, and users do
/// not read more.
const MOST_TOLD: usize = 100;

/// Which items of a LimitRange apply to a kind: those of its containers and of a Pod as a whole, or those of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitType {
    Pod,
    PersistentVolumeClaim,
}

impl LimitType {
    /// Sets the amounts that a new object does not have.
    pub fn fill_in(self, object: &mut Value, range: &Value) {
        if self == Self::Pod {
            fill_in(object, range);
        }
    }

    /// Refuses an object that is not within the range.
    pub fn check(self, object: &Value, range: &Value) -> Result<(), AdmissionError> {
        match self {
            Self::Pod => check_pod(object, range),
            Self::PersistentVolumeClaim => check_claim(object, range),
        }
    }

    /// Claims can grow, so updates of them are checked. The requests of a Pod are fixed when it is created.
    pub fn applies_to_updates(self) -> bool {
        self == Self::PersistentVolumeClaim
    }
}

type Amounts<'v> = BTreeMap<&'v str, Quantity>;

/// Sets the limits and requests that the containers of a new Pod do not have.
fn fill_in(pod: &mut Value, range: &Value) {
    let mut defaults: BTreeMap<&str, BTreeMap<&str, &Value>> = BTreeMap::new();
    for (from, to) in [("defaultRequest", "requests"), ("default", "limits")] {
        let entries = of_type(range, "Container").filter_map(|item| item.get(from)?.as_object()).flatten();
        defaults.insert(to, entries.map(|(resource, amount)| (resource.as_str(), amount)).collect());
    }
    let mut told = Vec::new();
    for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
        let containers = pod.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let name = container.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            for (list, word) in [("requests", "request"), ("limits", "limit")] {
                let set = fill_list(container, list, &defaults[list]);
                if !set.is_empty() {
                    told.push(format!("{} {word} for {what} {name}", set.join(", ")));
                }
            }
        }
    }
    if told.is_empty() {
        return;
    }
    let annotations = pod.as_object_mut().and_then(|pod| child(pod, "metadata"));
    if let Some(annotations) = annotations.and_then(|metadata| child(metadata, "annotations")) {
        annotations.insert(ANNOTATION.to_owned(), format!("LimitRanger plugin set: {}", told.join("; ")).into());
    }
}

/// Sets the defaults and returns the names of the resources that had none.
fn fill_list<'v>(container: &mut Value, list: &str, defaults: &BTreeMap<&'v str, &Value>) -> Vec<&'v str> {
    if defaults.is_empty() {
        return Vec::new();
    }
    let resources = container.as_object_mut().and_then(|container| child(container, "resources"));
    let Some(amounts) = resources.and_then(|resources| child(resources, list)) else { return Vec::new() };
    let mut set = Vec::new();
    for (resource, amount) in defaults {
        if !amounts.contains_key(resource) {
            amounts.insert(*resource, (*amount).clone());
            set.push(*resource);
        }
    }
    set
}

fn child<'a>(map: &'a mut Map, field: &str) -> Option<&'a mut Map> {
    map.entry(field).or_insert_with(|| Map::new().into()).as_object_mut()
}

/// Why a range refuses a new Pod.
fn check_pod(pod: &Value, range: &Value) -> Result<(), AdmissionError> {
    let mut complaints = Vec::new();
    let Some(spec) = pod.get("spec") else { return Ok(()) };
    for limit in limits(range) {
        let mut check = |kind, requests: &Amounts<'_>, limits: &Amounts<'_>| {
            Use { kind, requests, limits: Some(limits) }.check(limit, &mut complaints);
        };
        match limit.get("type").and_then(Value::as_str) {
            Some("Container") => {
                for list in ["containers", "initContainers"] {
                    for container in spec.get(list).and_then(Value::as_array).into_iter().flatten() {
                        let amounts = |list: &str| amounts(container.pointer(&format!("/resources/{list}")));
                        check("Container", &amounts("requests"), &amounts("limits"));
                    }
                }
            }
            Some("Pod") => check("Pod", &of_pod(spec, "requests"), &of_pod(spec, "limits")),
            _ => {}
        }
    }
    verdict(&complaints)
}

/// Why a range refuses a claim, new or changed.
fn check_claim(claim: &Value, range: &Value) -> Result<(), AdmissionError> {
    let kind = "PersistentVolumeClaim";
    let mut complaints = Vec::new();
    let requests = amounts(claim.pointer("/spec/resources/requests"));
    for limit in of_type(range, kind) {
        Use { kind, requests: &requests, limits: None }.check(limit, &mut complaints);
    }
    verdict(&complaints)
}

/// The amounts of a Pod: those of the Pod as a whole if present, else the sum of its containers.
pub(crate) fn of_pod<'v>(spec: &'v Value, list: &str) -> Amounts<'v> {
    let mut sums = container_sums(spec, list);
    sums.extend(amounts(spec.pointer(&format!("/resources/{list}"))));
    sums
}

fn limits(range: &Value) -> impl Iterator<Item = &Value> {
    range.pointer("/spec/limits").and_then(Value::as_array).into_iter().flatten()
}

fn of_type<'v>(range: &'v Value, kind: &'static str) -> impl Iterator<Item = &'v Value> {
    limits(range).filter(move |limit| limit.get("type").and_then(Value::as_str) == Some(kind))
}

fn amounts(entries: Option<&Value>) -> Amounts<'_> {
    let entries = entries.and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(resource, amount)| Some((resource.as_str(), quantity_of(Some(amount))?))).collect()
}

fn verdict(complaints: &[String]) -> Result<(), AdmissionError> {
    match complaints {
        [] => Ok(()),
        [one] => Err(AdmissionError(one.clone())),
        several => Err(AdmissionError(format!("[{}]", several.join(", ")))),
    }
}

/// The amounts of a container, a Pod or a claim.
struct Use<'a> {
    kind: &'static str,
    requests: &'a Amounts<'a>,
    /// Claims have no limits: the request is also the largest amount they use.
    limits: Option<&'a Amounts<'a>>,
}

impl Use<'_> {
    /// Each error is reported once, however many containers cause it.
    fn check(&self, limit: &Value, complaints: &mut Vec<String>) {
        let bounds = |field: &str| amounts(limit.get(field)).into_iter();
        let least = bounds("min").filter_map(|(resource, least)| self.below(resource, least));
        let most = bounds("max").filter_map(|(resource, most)| self.above(resource, most));
        let ratios = bounds("maxLimitRequestRatio").filter(|_| self.limits.is_some());
        let ratios = ratios.filter_map(|(resource, most)| self.too_elastic(resource, most));
        for complaint in least.chain(most).chain(ratios) {
            if complaints.len() < MOST_TOLD && !complaints.contains(&complaint) {
                complaints.push(complaint);
            }
        }
    }

    fn request(&self, resource: &str) -> Option<Quantity> {
        self.requests.get(resource).copied()
    }

    fn limit(&self, resource: &str) -> Option<Quantity> {
        self.limits.and_then(|limits| limits.get(resource).copied())
    }

    fn below(&self, resource: &str, least: Quantity) -> Option<String> {
        let bound = format!("minimum {resource} usage per {} is {least}", self.kind);
        match (self.request(resource), self.limit(resource)) {
            (None, _) => Some(format!("{bound}.  No request is specified")),
            (Some(request), _) if request < least => Some(format!("{bound}, but request is {request}")),
            (_, Some(limit)) if limit < least => Some(format!("{bound}, but limit is {limit}")),
            _ => None,
        }
    }

    fn above(&self, resource: &str, most: Quantity) -> Option<String> {
        let bound = format!("maximum {resource} usage per {} is {most}", self.kind);
        let request = self.request(resource);
        match (self.limit(resource), request) {
            (None, _) if self.limits.is_some() => Some(format!("{bound}.  No limit is specified")),
            (None, None) => Some(format!("{bound}.  No request is specified")),
            (Some(limit), _) if limit > most => Some(format!("{bound}, but limit is {limit}")),
            (_, Some(request)) if request > most => Some(format!("{bound}, but request is {request}")),
            _ => None,
        }
    }

    fn too_elastic(&self, resource: &str, most: Quantity) -> Option<String> {
        let bound = format!("{resource} max limit to request ratio per {} is {most}", self.kind);
        let given = |amount: Option<Quantity>| amount.filter(|amount| !amount.is_zero());
        let Some(request) = given(self.request(resource)) else {
            return Some(format!("{bound}, but no request is specified or request is 0"));
        };
        let Some(limit) = given(self.limit(resource)) else {
            return Some(format!("{bound}, but no limit is specified or limit is 0"));
        };
        let fine = request.value().max(limit.value()) <= MOST_WITH_THOUSANDTHS;
        let number = |amount: Quantity| (if fine { amount.milli_value() } else { amount.value() }) as f64;
        let ratio = number(limit) / number(request);
        (ratio * 1000.0 > most.milli_value() as f64).then(|| format!("{bound}, but provided ratio is {ratio:.6}"))
    }
}
