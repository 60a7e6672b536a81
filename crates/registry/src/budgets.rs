//! Disruption budgets: whether a Pod may be evicted now, and how that changes its budget.
//!
//! No controller of Tally maintains the status of budgets; the controller that does writes there how many disruptions
//! are allowed. An eviction takes one of them, and records the Pod it is for, before it changes the Pod: two concurrent
//! evictions cannot both take the last one.

use tally_api::selector::LabelSelector;
use tally_api::status_error::{Cause, Details, StatusError};
use tally_store::{Change, Entry, Expect, Write, WriteError};
use tally_value::{Map, Value, json};

use crate::{MOST_ROUNDS, Registry, Result, Target, refused, text};

const ALLOWED: &str = "DisruptionAllowed";

impl Registry {
    /// Checks the budget of a Pod that is about to be evicted, and takes a disruption from it if one is needed.
    /// `sound`: further preconditions, checked after the budget and before the disruption is taken.
    pub(crate) async fn ask_budgets(
        &self,
        pod: &Target<'_>,
        object: &Value,
        dry_run: bool,
        sound: impl Fn() -> Result<()>,
    ) -> Result<()> {
        for _ in 0..MOST_ROUNDS {
            let paying = match self.budget_of(pod.namespace, object)? {
                Some(entry) => paid(&text::parse(&entry.value), object, pod.name, self.now().truncated())?
                    .map(|budget| (entry, budget)),
                None => None,
            };
            sound()?;
            let Some((entry, budget)) = paying.filter(|_| !dry_run) else { return Ok(()) };
            let change = Change::Put(text::body(&budget));
            let write = Write { key: entry.key.to_string(), expect: Expect::At(entry.revision), change };
            match self.store.commit(write).await {
                Ok(_) => return Ok(()),
                Err(WriteError::Conflict(_)) => {}
                Err(error) => return Err(refused(error)),
            }
        }
        Err(refused(WriteError::Overloaded))
    }

    /// The budget that selects a Pod, if any.
    fn budget_of(&self, namespace: &str, pod: &Value) -> Result<Option<Entry>> {
        let labels = pod.pointer("/metadata/labels").and_then(Value::as_object);
        let prefix = format!("poddisruptionbudgets/{namespace}/");
        let budgets = self.store.range(&prefix, None, None, None).map_err(crate::read::gone)?;
        let mut guarding = budgets.entries.into_iter().filter(|entry| {
            let selector = text::parse(&entry.value);
            LabelSelector::from_json(selector.pointer("/spec/selector")).is_ok_and(|it| it.matches(labels))
        });
        match (guarding.next(), guarding.next()) {
            (_, Some(_)) => Err(StatusError::bad_request(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            )),
            (first, None) => Ok(first),
        }
    }
}

/// The budget after the eviction of this Pod; none if the eviction needs no disruption.
fn paid(budget: &Value, pod: &Value, pod_name: &str, now: tally_core::time::Timestamp) -> Result<Option<Value>> {
    let number = |pointer| budget.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let (healthy, needed) = (number("/status/currentHealthy"), number("/status/desiredHealthy"));
    let name = text::text(budget, "/metadata/name");
    // An unhealthy Pod does not reduce the number of healthy ones; its eviction is free once these are enough.
    let always = text::text(budget, "/spec/unhealthyPodEvictionPolicy") == "AlwaysAllow";
    if !is_ready(pod) && (always || (healthy >= needed && needed > 0)) {
        return Ok(None);
    }
    if number("/status/observedGeneration") < number("/metadata/generation") {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(holds(why, 10));
    }
    let allowed = number("/status/disruptionsAllowed");
    if allowed <= 0 {
        return Err(holds(why_none(budget, name, healthy, needed), 0));
    }
    let mut budget = budget.clone();
    let Some(status) = budget.get_mut("status").and_then(Value::as_object_mut) else { return Ok(None) };
    status.insert("disruptionsAllowed", (allowed - 1).into());
    let disrupted = status.entry("disruptedPods").or_insert_with(|| Map::new().into());
    if let Some(disrupted) = disrupted.as_object_mut() {
        disrupted.insert(pod_name.to_owned(), now.to_string().into());
    }
    if allowed == 1 {
        used_up(status, now);
    }
    Ok(Some(budget))
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    ready.is_some_and(|condition| condition["status"] == "True")
}

/// Why a budget allows no disruption: the message of its condition where the numbers do not explain it.
fn why_none(budget: &Value, name: &str, healthy: i64, needed: i64) -> String {
    let conditions = budget.pointer("/status/conditions").and_then(Value::as_array);
    let told = conditions.into_iter().flatten().find(|condition| condition["type"] == ALLOWED);
    let told = told.filter(|condition| condition["status"] == "False" && !text::text(condition, "/message").is_empty());
    let words = told.map(|condition| (text::text(condition, "/reason"), text::text(condition, "/message")));
    match words {
        Some(("SyncFailed", message)) => {
            format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
            )
        }
        _ if healthy <= needed => {
            format!("The disruption budget {name} needs {needed} healthy pods and has {healthy} currently")
        }
        Some((reason, message)) => {
            format!("The disruption budget {name} does not allow evicting pods currently ({reason}): {message}")
        }
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}

/// Sets the condition that no disruption is allowed.
fn used_up(status: &mut Map, now: tally_core::time::Timestamp) {
    let generation = status.get("observedGeneration").cloned().unwrap_or(Value::from(0));
    let conditions = status.entry("conditions").or_insert_with(|| tally_value::json!([]));
    let Some(conditions) = conditions.as_array_mut() else { return };
    let mut condition = json!({
        "type": ALLOWED, "status": "False", "reason": "InsufficientPods", "message": "",
        "observedGeneration": generation, "lastTransitionTime": now.to_string(),
    });
    match conditions.iter_mut().find(|condition| condition["type"] == ALLOWED) {
        None => conditions.push(condition),
        Some(before) => {
            if before["status"] == "False" {
                condition["lastTransitionTime"] = before["lastTransitionTime"].take();
            }
            *before = condition;
        }
    }
}

fn holds(why: String, retry_after_seconds: u32) -> StatusError {
    let cause = Cause { reason: "DisruptionBudget".to_owned(), message: why, field: String::new() };
    let text = "Cannot evict pod as it would violate the pod's disruption budget.";
    let details = Details { causes: vec![cause], retry_after_seconds, ..Details::default() };
    StatusError::new(429, "TooManyRequests", text).with(details)
}
