//! Claims for storage. The node of `tally up` gives each a directory; whether there is such a node, the registry knows.

use tally_core::claims;
use tally_core::quantity::Quantity;
use tally_core::time::Timestamp;
use tally_value::Value;

use super::{IMMUTABLE, fill, keep_apart, part_of, put_back};
use crate::field::{At, FieldError};
use crate::kinds::{ClusterObjects, Part, Rules};
use crate::limits::LimitType;
use crate::pod::{claim_spec, difference, same};

pub struct PersistentVolumeClaimRules;

impl Rules for PersistentVolumeClaimRules {
    fn limit_type(&self) -> Option<LimitType> {
        Some(LimitType::PersistentVolumeClaim)
    }

    fn default(&self, claim: &mut Value) {
        if let Some(spec) = part_of(claim, "spec") {
            fill(spec, "volumeMode", "Filesystem");
        }
    }

    fn prepare_create(&self, claim: &mut Value, _: Timestamp) {
        claim["status"] = tally_value::json!({"phase": "Pending"});
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, part: Part) {
        keep_apart(new, old, part);
    }

    /// CLAIM-6
    fn validate_create(&self, claim: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        claim_spec(&At::root(claim).at("spec"), &mut errors);
        errors
    }

    /// CLAIM-6
    fn validate_update(&self, new: &Value, old: &Value, part: Part) -> Vec<FieldError> {
        if part == Part::Status {
            return Vec::new();
        }
        let mut errors = self.validate_create(new);
        let (Some(after), Some(before)) = (new.get("spec"), old.get("spec")) else { return errors };
        let root = At::root(new);
        let text = |spec: &Value, field: &str| spec.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut settled = after.clone();
        // The volume is found once, and a claim that named no class may get one.
        if text(before, "volumeName").is_empty() {
            put_back(&mut settled, before, "volumeName");
        }
        if before.get("storageClassName").is_none() {
            put_back(&mut settled, before, "storageClassName");
        }
        if old.pointer("/status/phase").is_some_and(|phase| phase == "Bound") {
            put_back(&mut settled, before, "volumeAttributesClassName");
            let asked = before.pointer("/resources/requests/storage").cloned();
            if let (Some(wanted), Some(asked)) = (settled.pointer_mut("/resources/requests/storage"), asked) {
                *wanted = asked;
            }
        }
        let spec = root.at("spec");
        if !same(&settled, before) {
            let told = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
            errors.push(spec.forbidden(format!("{told}\n{}", difference(before, &settled))));
        }
        let amount = |value: Option<&Value>| value.and_then(Value::as_str).and_then(|text| Quantity::parse(text).ok());
        let size = |spec: &Value| amount(spec.pointer("/resources/requests/storage"));
        if let (Some(wanted), Some(asked)) = (size(after), size(before))
            && wanted < asked
            && amount(old.pointer("/status/capacity/storage")).is_none_or(|capacity| wanted <= capacity)
        {
            let resources = spec.at("resources");
            errors.push(resources.at("requests").at("storage").forbidden("field can not be less than status.capacity"));
        }
        if text(before, "volumeMode") != text(after, "volumeMode") {
            errors.push(root.at("volumeMode").invalid_value(text(after, "volumeMode"), IMMUTABLE));
        }
        errors
    }

    /// CLAIM-5
    fn cluster_warnings(&self, claim: &Value, cluster: &dyn ClusterObjects) -> Vec<String> {
        let uid = claim.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        let spec = claim.get("spec").unwrap_or(&Value::Null);
        let why = match cluster.provisions_claims() {
            true => claims::obstacle(uid, &spec.into()),
            false => Some("this server has no node that provisions volumes".to_owned()),
        };
        if let Some(why) = why {
            return vec![format!("this claim stays Pending, and Pods that use it do not start: {why}")];
        }
        let modes = spec.get("accessModes").and_then(Value::as_array).into_iter().flatten();
        let alone = modes.into_iter().any(|mode| mode == "ReadWriteOncePod");
        let told = "access modes are not enforced here: several Pods can use this claim in spite of ReadWriteOncePod";
        if alone { vec![told.to_owned()] } else { Vec::new() }
    }
}
