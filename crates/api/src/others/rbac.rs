//! Roles, ClusterRoles and their bindings. What they allow is decided in `rbac`.

use tally_value::{Value, json};

use crate::field::{At, FieldError};
use crate::kinds::{Part, Rules};
use crate::meta;
use crate::rbac::GROUP;
use crate::selector::validate_label_selector;

/// Roles (namespaced) and ClusterRoles.
pub struct RoleRules {
    pub namespaced: bool,
}

/// RoleBindings (namespaced) and ClusterRoleBindings.
pub struct RoleBindingRules {
    pub namespaced: bool,
}

impl Rules for RoleRules {
    fn name_problems(&self, name: &str, prefix: bool) -> Vec<String> {
        meta::name_is_path_segment(name, prefix)
    }

    /// RBAC-6.
    fn validate_create(&self, role: &Value) -> Vec<FieldError> {
        let root = At::root(role);
        let mut errors: Vec<FieldError> =
            root.at("rules").items().flat_map(|rule| validate_rule(&rule, self.namespaced)).collect();
        let aggregation = root.at("aggregationRule");
        if aggregation.is_set() {
            let selectors = aggregation.at("clusterRoleSelectors");
            if selectors.is_empty() {
                let text = "at least one clusterRoleSelector required if aggregationRule is non-nil";
                errors.push(selectors.required(text));
            }
            errors.extend(selectors.items().flat_map(validate_label_selector));
        }
        errors
    }

    fn validate_update(&self, new: &Value, _: &Value, _: Part) -> Vec<FieldError> {
        self.validate_create(new)
    }
}

fn validate_rule(rule: &At<'_, '_>, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if rule.at("verbs").is_empty() {
        errors.push(rule.at("verbs").required("verbs must contain at least one value"));
    }
    let urls = rule.at("nonResourceURLs");
    let of_resources = ["apiGroups", "resources", "resourceNames"];
    if !urls.is_empty() {
        if namespaced {
            errors.push(urls.invalid("namespaced rules cannot apply to non-resource URLs"));
        }
        if of_resources.iter().any(|field| !rule.at(field).is_empty()) {
            errors.push(urls.invalid("rules cannot apply to both regular resources and non-resource URLs"));
        }
        return errors;
    }
    if rule.at("apiGroups").is_empty() {
        errors.push(rule.at("apiGroups").required("resource rules must supply at least one api group"));
    }
    if rule.at("resources").is_empty() {
        errors.push(rule.at("resources").required("resource rules must supply at least one resource"));
    }
    errors
}

impl Rules for RoleBindingRules {
    fn default(&self, binding: &mut Value) {
        let fill = |object: &mut Value| {
            if object.get("apiGroup").and_then(Value::as_str).unwrap_or_default().is_empty() {
                object["apiGroup"] = GROUP.into();
            }
        };
        if let Some(role) = binding.get_mut("roleRef").filter(|role| role.is_object()) {
            fill(role);
        }
        for subject in binding.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
            if subject.is_object() && matches!(subject["kind"].as_str(), Some("User" | "Group")) {
                fill(subject);
            }
        }
    }

    fn name_problems(&self, name: &str, prefix: bool) -> Vec<String> {
        meta::name_is_path_segment(name, prefix)
    }

    /// RBAC-6.
    fn validate_create(&self, binding: &Value) -> Vec<FieldError> {
        let root = At::root(binding);
        let mut errors = self.validate_role_ref(&root.at("roleRef"));
        errors.extend(root.at("subjects").items().flat_map(|subject| validate_subject(&subject)));
        errors
    }

    /// RBAC-7.
    fn validate_update(&self, new: &Value, old: &Value, _: Part) -> Vec<FieldError> {
        let mut errors = self.validate_create(new);
        if new.get("roleRef") != old.get("roleRef") {
            let root = At::root(new);
            let role = root.at("roleRef");
            let [group, kind, name] =
                ["apiGroup", "kind", "name"].map(|field| role.at(field).text_or_empty().to_owned());
            let shown = json!({"APIGroup": group, "Kind": kind, "Name": name});
            errors.push(role.invalid_value(shown, "cannot change roleRef"));
        }
        errors
    }
}

impl RoleBindingRules {
    fn validate_role_ref(&self, role: &At<'_, '_>) -> Vec<FieldError> {
        let (group, kind, name) = (role.at("apiGroup"), role.at("kind"), role.at("name"));
        let mut errors = Vec::new();
        if group.text_or_empty() != GROUP {
            errors.push(group.not_supported(group.text_or_empty(), &[GROUP]));
        }
        let kinds: &[&str] = if self.namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
        if !kinds.contains(&kind.text_or_empty()) {
            errors.push(kind.not_supported(kind.text_or_empty(), kinds));
        }
        match name.text_or_empty() {
            "" => errors.push(name.required("")),
            text => {
                let problems = meta::path_segment_problems(text, false);
                errors.extend(problems.into_iter().map(|problem| name.invalid(problem)));
            }
        }
        errors
    }
}

fn validate_subject(subject: &At<'_, '_>) -> Vec<FieldError> {
    let (group, kind, name) = (subject.at("apiGroup"), subject.at("kind"), subject.at("name"));
    let mut errors = Vec::new();
    if name.text_or_empty().is_empty() {
        errors.push(name.required(""));
    }
    let wanted_group = match kind.text_or_empty() {
        "ServiceAccount" => {
            let text = name.text_or_empty();
            if !text.is_empty() {
                let problems = meta::name_is_dns_subdomain(text, false);
                errors.extend(problems.into_iter().map(|problem| name.invalid(problem)));
            }
            if subject.at("namespace").text_or_empty().is_empty() {
                errors.push(subject.at("namespace").required(""));
            }
            ""
        }
        "User" | "Group" => GROUP,
        other => {
            errors.push(kind.not_supported(other, &["ServiceAccount", "User", "Group"]));
            return errors;
        }
    };
    if group.text_or_empty() != wanted_group {
        errors.push(group.not_supported(group.text_or_empty(), &[wanted_group]));
    }
    errors
}
