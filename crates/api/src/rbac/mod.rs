//! What Roles and their bindings allow. Pure: the caller supplies the objects, the user and the request.
//!
//! `policy` is the index of all roles and bindings, by subject; `grants` compares rules with rules, for the check that
//! users grant only what they hold; `builtin` lists the roles that every cluster has.

pub mod builtin;
mod grants;
mod policy;

use tally_value::{Value, json};

pub use grants::{Ungranted, ungranted};
pub use policy::{AccessDecision, Grant, RbacPolicy};

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";
/// The group whose members may do everything, whatever the roles say.
pub const MASTERS: &str = "system:masters";

/// What a role allows: verbs on resources, or verbs on paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyRule {
    pub verbs: Vec<String>,
    pub api_groups: Vec<String>,
    pub resources: Vec<String>,
    pub resource_names: Vec<String>,
    pub non_resource_urls: Vec<String>,
}

/// The user whose access is in question.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'a> {
    pub name: &'a str,
    pub groups: &'a [String],
}

/// An access in question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessRequest<'a> {
    pub verb: &'a str,
    pub target: AccessTarget<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessTarget<'a> {
    Resource(ResourceAttributes<'a>),
    /// A path that is not that of a resource, such as `/metrics`.
    Path(&'a str),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceAttributes<'a> {
    pub group: &'a str,
    pub resource: &'a str,
    /// "" for the resource itself.
    pub subresource: &'a str,
    /// "" for objects without a namespace, and for all namespaces.
    pub namespace: &'a str,
    /// "" for collections.
    pub name: &'a str,
}

impl Requester<'_> {
    pub fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }
}

impl<'a> AccessRequest<'a> {
    pub fn resource(verb: &'a str, attributes: ResourceAttributes<'a>) -> Self {
        Self { verb, target: AccessTarget::Resource(attributes) }
    }

    /// The namespace whose RoleBindings apply; "" if only ClusterRoleBindings do.
    fn namespace(&self) -> &'a str {
        match self.target {
            AccessTarget::Resource(attributes) => attributes.namespace,
            AccessTarget::Path(_) => "",
        }
    }
}

const EVERYTHING: &str = "*";

impl PolicyRule {
    /// The rules in a field of an object. What is not a rule is left out, so it allows nothing.
    pub fn read_all(rules: Option<&Value>) -> Vec<Self> {
        rules.and_then(Value::as_array).into_iter().flatten().map(Self::read).collect()
    }

    fn read(rule: &Value) -> Self {
        let texts = |field: &str| -> Vec<String> {
            let items = rule.get(field).and_then(Value::as_array).into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            verbs: texts("verbs"),
            api_groups: texts("apiGroups"),
            resources: texts("resources"),
            resource_names: texts("resourceNames"),
            non_resource_urls: texts("nonResourceURLs"),
        }
    }

    pub fn to_json(&self) -> Value {
        let mut rule = json!({"verbs": self.verbs});
        for (field, values) in [
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("nonResourceURLs", &self.non_resource_urls),
        ] {
            if !values.is_empty() {
                rule[field] = json!(values);
            }
        }
        rule
    }

    /// The rule that allows every verb on every resource.
    pub fn all_resources() -> Self {
        let every = || vec![EVERYTHING.to_owned()];
        Self { verbs: every(), api_groups: every(), resources: every(), ..Self::default() }
    }

    /// The rule that allows every verb on every path.
    pub fn all_paths() -> Self {
        let every = || vec![EVERYTHING.to_owned()];
        Self { verbs: every(), non_resource_urls: every(), ..Self::default() }
    }

    /// RBAC-2, RBAC-3, RBAC-4.
    pub fn allows(&self, request: &AccessRequest<'_>) -> bool {
        if !lists(&self.verbs, request.verb) {
            return false;
        }
        match request.target {
            AccessTarget::Path(path) => self.non_resource_urls.iter().any(|url| url_matches(url, path)),
            AccessTarget::Resource(attributes) => {
                lists(&self.api_groups, attributes.group)
                    && self.names_resource(attributes.resource, attributes.subresource)
                    && self.names_object(attributes.name)
            }
        }
    }

    fn names_resource(&self, resource: &str, subresource: &str) -> bool {
        self.resources.iter().any(|listed| {
            if listed == EVERYTHING {
                return true;
            }
            match listed.split_once('/') {
                None => subresource.is_empty() && listed == resource,
                Some((of, sub)) => {
                    !subresource.is_empty() && sub == subresource && (of == EVERYTHING || of == resource)
                }
            }
        })
    }

    /// Without names the rule is for every object. With names it is for requests that have one of them.
    fn names_object(&self, name: &str) -> bool {
        self.resource_names.is_empty() || self.resource_names.iter().any(|listed| listed == name)
    }
}

fn lists(values: &[String], value: &str) -> bool {
    values.iter().any(|listed| listed == EVERYTHING || listed == value)
}

/// `*` at the end of a URL stands for any text.
fn url_matches(url: &str, path: &str) -> bool {
    match url.strip_suffix('*') {
        Some(start) => path.starts_with(start),
        None => url == path,
    }
}
