//! The Pod's rules at the door, and those of Pod templates, which Jobs and CronJobs share.

mod defaults;
mod image;

use serde_json::Value;

use crate::field::{At, FieldError};
use crate::kinds::Rules;

pub struct PodRules;

impl Rules for PodRules {
    fn default(&self, object: &mut Value) {
        defaults::pod(object);
    }
}

/// Fills in what a Pod template (`{metadata, spec}`) leaves out.
pub fn default_template(template: &mut Value) {
    defaults::template(template);
}

/// Everything wrong with a Pod template at `template`, its labels and annotations included.
pub fn validate_template(_template: &At<'_, '_>) -> Vec<FieldError> {
    Vec::new()
}

/// What a client should be warned about in a Pod template at `template`.
pub fn template_warnings(_template: &At<'_, '_>) -> Vec<String> {
    Vec::new()
}
