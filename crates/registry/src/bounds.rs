//! LimitRanges: what new Pods and claims may request. A namespace without any costs one lookup of an empty range.

use serde_json::Value;
use tally_api::failure::Failure;
use tally_api::kinds::Resource;
use tally_api::limits;

use crate::create::is_deleting;
use crate::{Registry, Result, Target, text};

impl Registry {
    /// The LimitRanges that apply to new objects of a resource.
    pub(crate) fn limit_ranges(&self, resource: &Resource, namespace: &str) -> Result<Vec<Value>> {
        if !is_limited(resource) {
            return Ok(Vec::new());
        }
        let ranges = self.store.range(&format!("limitranges/{namespace}/"), None, None, None);
        let ranges = ranges.map_err(crate::read::gone)?;
        Ok(ranges.entries.iter().map(|entry| text::parse(&entry.value)).collect())
    }

    /// Claims can grow, so updates of them are checked. The requests of a Pod are fixed when it is created, and an
    /// object that is being deleted is not checked.
    pub(crate) fn admit_change(&self, target: &Target<'_>, new: &Value) -> Result<()> {
        if is_pods(target.resource) || target.subresource.is_some() || is_deleting(new) {
            return Ok(());
        }
        within(target.resource, new, target.name, &self.limit_ranges(target.resource, target.namespace)?)
    }
}

/// Whether an object is within the limits of its namespace.
pub fn within(resource: &Resource, object: &Value, name: &str, ranges: &[Value]) -> Result<()> {
    let check = if is_pods(resource) { limits::check_pod } else { limits::check_claim };
    let refusal = ranges.iter().find_map(|range| check(object, range).err());
    refusal.map_or(Ok(()), |why| Err(Failure::forbidden(resource, name, &why)))
}

fn is_pods(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.plural == "pods"
}

fn is_limited(resource: &Resource) -> bool {
    is_pods(resource) || (resource.group.is_empty() && resource.plural == "persistentvolumeclaims")
}
