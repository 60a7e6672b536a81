//! Pods that can never start: the node is this machine, and it will not grow. Such a run ends at once instead of waiting
//! for ever.

use std::collections::BTreeMap;

use serde_json::Value;
use tally_core::quantity::Quantity;

use crate::run::progress::model::Stuck;
use crate::run::progress::view::PodText;

/// What the machine has.
#[derive(Debug, Default)]
pub struct Machine {
    allocatable: BTreeMap<String, String>,
}

impl Machine {
    /// From its Node object. None: it does not say yet.
    pub fn of(node: &Value) -> Option<Self> {
        let amounts = node["status"]["allocatable"].as_object()?;
        let text = |(name, amount): (&String, &Value)| Some((name.clone(), amount.as_str()?.to_owned()));
        Some(Self { allocatable: amounts.iter().filter_map(text).collect() })
    }

    /// Why this Pod can never start here, and what the cluster says about it. None: it may start when others have ended,
    /// or it is unknown.
    pub fn never(&self, pod: &PodText) -> Option<(String, Stuck)> {
        let stuck = |reason: &str, message: &str| Stuck {
            pod: pod.metadata.name.clone(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            elsewhere: false,
        };
        if let Some(why) = pod.status.unscheduled() {
            return Some((self.never_fits(pod, why)?, stuck("Unschedulable", why)));
        }
        // What a run needs is created before its Jobs, and no other program creates a claim meanwhile.
        let lacks_claim = |text: &str| text.contains(": persistentvolumeclaim ") && text.ends_with(" not found");
        let waiting = pod.status.stuck();
        let waiting = waiting.filter(|it| it.reason == "UnsupportedVolume" || lacks_claim(&it.message))?;
        Some((waiting.message.clone(), stuck(&waiting.reason, &waiting.message)))
    }

    fn never_fits(&self, pod: &PodText, why: &str) -> Option<String> {
        // With one node, what it says about the labels of the node does not change.
        if why.contains("didn't match Pod's node affinity/selector") {
            return Some("this machine does not have the labels that its nodeSelector or affinity wants".to_owned());
        }
        pod.spec.requests().into_iter().find_map(|(name, amounts)| {
            let millis = |text: &str| Quantity::parse(text).ok().map(|amount| amount.milli_value());
            let wanted: i64 = amounts.iter().filter_map(|text| millis(text)).fold(0, i64::saturating_add);
            let told = amounts.join(" + ");
            match self.allocatable.get(name) {
                None if wanted > 0 => Some(format!("it requests {told} of {name}, and this machine has no {name}")),
                Some(has) if millis(has).is_some_and(|has| wanted > has) => {
                    Some(format!("it requests {told} of {name}, and this machine has {has}"))
                }
                _ => None,
            }
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_machine_does_not_have_never_starts() {
        let machine = Machine::of(&json!({"status": {"allocatable": {"cpu": "2000m", "memory": "1Gi"}}})).unwrap();
        let check = |requests: Value, message: &str, expected: Option<&str>| {
            let condition =
                json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
            let container = json!({"resources": {"requests": requests}});
            let pod = json!({"spec": {"containers": [container, container]}, "status": {"conditions": [condition]}});
            let pod: PodText = serde_json::from_value(pod).unwrap();
            assert_eq!(machine.never(&pod).map(|(why, _)| why).as_deref(), expected, "{message}");
        };
        let full = "0/1 nodes are available: 1 Insufficient cpu.";
        check(json!({"cpu": "1"}), full, None);
        check(json!({"cpu": "1500m"}), full, Some("it requests 1500m + 1500m of cpu, and this machine has 2000m"));
        let gpu = Some("it requests 1 + 1 of example.com/gpu, and this machine has no example.com/gpu");
        check(json!({"example.com/gpu": "1"}), "0/1 nodes are available: 1 Insufficient example.com/gpu.", gpu);
        let labels = "this machine does not have the labels that its nodeSelector or affinity wants";
        check(json!({}), "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.", Some(labels));
        check(json!({}), "0/1 nodes are available: 1 Too many pods.", None);
    }
}
