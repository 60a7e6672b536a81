//! The Job's rules at the door: defaults, generated labels, validation, what may change, warnings.

use crate::kinds::Rules;

pub struct JobRules;

impl Rules for JobRules {}
