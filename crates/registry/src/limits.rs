//! LimitRanges: what new Pods and claims may request. A namespace without any costs one lookup of an empty range.

use tally_api::kinds::Resource;
use tally_api::limits::LimitType;
use tally_api::status_error::StatusError;
use tally_value::Value;

use crate::create::is_deleting;
use crate::{Registry, Result, Target, text};

/// The LimitRanges that apply to the objects of one resource in one namespace.
pub struct Limits(Option<(LimitType, Vec<Value>)>);

impl Registry {
    pub(crate) fn limits(&self, resource: &Resource, namespace: &str) -> Result<Limits> {
        let Some(limit_type) = resource.rules.limit_type() else { return Ok(Limits(None)) };
        let ranges = self.store.range(&format!("limitranges/{namespace}/"), None, None, None);
        let ranges = ranges.map_err(crate::read::gone)?;
        Ok(Limits(Some((limit_type, ranges.entries.iter().map(|entry| text::parse(&entry.value)).collect()))))
    }

    /// Checks an update. An object that is being deleted is not checked.
    pub(crate) fn admit_update(&self, target: &Target<'_>, new: &Value) -> Result<()> {
        let limited = target.resource.rules.limit_type().is_some_and(LimitType::applies_to_updates);
        if !limited || target.subresource.is_some() || is_deleting(new) {
            return Ok(());
        }
        self.limits(target.resource, target.namespace)?.check(target.resource, new, target.name)
    }
}

impl Limits {
    pub fn fill_in(&self, object: &mut Value) {
        for (limit_type, range) in self.ranges() {
            limit_type.fill_in(object, range);
        }
    }

    pub fn check(&self, resource: &Resource, object: &Value, name: &str) -> Result<()> {
        let refusal = self.ranges().find_map(|(limit_type, range)| limit_type.check(object, range).err());
        refusal.map_or(Ok(()), |why| Err(StatusError::forbidden(resource, name, &why.0)))
    }

    fn ranges(&self) -> impl Iterator<Item = (LimitType, &Value)> {
        self.0.iter().flat_map(|(limit_type, ranges)| ranges.iter().map(|range| (*limit_type, range)))
    }
}
