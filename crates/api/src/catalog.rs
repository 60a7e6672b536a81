//! The resources that are served.

use crate::kinds::Resource;

/// Every resource, in the order discovery lists them.
pub fn resources() -> &'static [&'static Resource] {
    &[]
}

pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    resources().iter().copied().find(|r| r.group == group && r.version == version && r.plural == plural)
}
