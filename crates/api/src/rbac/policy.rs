//! All roles and bindings, indexed by subject: a decision looks at the bindings of the user and of the user's groups, and
//! at no others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use tally_value::Value;

use super::{AccessRequest, PolicyRule, Requester};
use crate::selector::LabelSelector;

/// Missing roles named in one answer.
const MOST_PROBLEMS: usize = 8;

#[derive(Default)]
pub struct RbacPolicy {
    /// By namespace and name.
    roles: BTreeMap<String, BTreeMap<String, Vec<PolicyRule>>>,
    cluster_roles: BTreeMap<String, ClusterRole>,
    /// Bindings by name, to find what a changed or deleted one had before. The namespace "" is for ClusterRoleBindings.
    bindings: BTreeMap<String, BTreeMap<String, Arc<Binding>>>,
    /// By namespace, with "" as above.
    subjects: BTreeMap<String, SubjectIndex>,
    /// ClusterRoles changed since aggregated rules were computed.
    is_stale: bool,
}

#[derive(Default)]
struct ClusterRole {
    /// The rules of the object, or those of the selected roles if it has an aggregationRule.
    rules: Vec<PolicyRule>,
    labels: BTreeMap<String, String>,
    /// The selectors of its aggregationRule.
    aggregates: Option<Vec<LabelSelector>>,
}

/// A RoleBinding or ClusterRoleBinding.
#[derive(Debug, PartialEq, Eq)]
struct Binding {
    /// "" for a ClusterRoleBinding.
    namespace: String,
    name: String,
    role: RoleName,
    subjects: Vec<Subject>,
}

#[derive(Debug, PartialEq, Eq)]
enum RoleName {
    /// In the namespace of the binding.
    Role(String),
    ClusterRole(String),
    /// A kind that does not exist: nothing is allowed.
    Unknown,
}

#[derive(Debug, PartialEq, Eq)]
enum Subject {
    User(String),
    Group(String),
    ServiceAccount { namespace: String, name: String, user: String },
}

/// The bindings of each subject, in order of their names.
#[derive(Default)]
struct SubjectIndex {
    users: BTreeMap<String, Vec<Arc<Binding>>>,
    groups: BTreeMap<String, Vec<Arc<Binding>>>,
}

/// The answer to an access request.
pub enum AccessDecision<'a> {
    Allowed(Grant<'a>),
    /// Nothing allows it. Bindings of the user whose role does not exist are listed.
    Denied {
        problems: Vec<String>,
    },
}

/// What allows a request.
pub enum Grant<'a> {
    /// The user is in `system:masters`.
    Master,
    Bound(BoundRole<'a>),
}

/// A binding and the subject of it that is the user.
pub struct BoundRole<'a> {
    binding: &'a Binding,
    subject: &'a Subject,
}

impl RbacPolicy {
    pub fn put_role(&mut self, namespace: &str, name: &str, role: &Value) {
        let rules = PolicyRule::read_all(role.get("rules"));
        self.roles.entry(namespace.to_owned()).or_default().insert(name.to_owned(), rules);
    }

    pub fn remove_role(&mut self, namespace: &str, name: &str) {
        if let Some(roles) = self.roles.get_mut(namespace) {
            roles.remove(name);
            if roles.is_empty() {
                self.roles.remove(namespace);
            }
        }
    }

    pub fn put_cluster_role(&mut self, name: &str, role: &Value) {
        self.cluster_roles.insert(name.to_owned(), ClusterRole::read(role));
        self.is_stale = true;
    }

    pub fn remove_cluster_role(&mut self, name: &str) {
        self.cluster_roles.remove(name);
        self.is_stale = true;
    }

    /// `namespace` is "" for a ClusterRoleBinding.
    pub fn put_binding(&mut self, namespace: &str, name: &str, binding: &Value) {
        self.remove_binding(namespace, name);
        let binding = Arc::new(Binding::read(namespace, name, binding));
        self.subjects.entry(namespace.to_owned()).or_default().add(&binding);
        self.bindings.entry(namespace.to_owned()).or_default().insert(name.to_owned(), binding);
    }

    pub fn remove_binding(&mut self, namespace: &str, name: &str) {
        let Some(bindings) = self.bindings.get_mut(namespace) else { return };
        let Some(old) = bindings.remove(name) else { return };
        if let Some(index) = self.subjects.get_mut(namespace) {
            index.remove(&old);
        }
        if bindings.is_empty() {
            self.bindings.remove(namespace);
            self.subjects.remove(namespace);
        }
    }

    /// RBAC-5: computes the rules of ClusterRoles that aggregate others. Must run after changes, before decisions.
    pub fn settle(&mut self) {
        if !std::mem::take(&mut self.is_stale) {
            return;
        }
        let selected = self.selections();
        let computed: Vec<(String, Vec<PolicyRule>)> =
            selected.keys().map(|name| (name.clone(), self.aggregated(name, &selected))).collect();
        for (name, rules) in computed {
            if let Some(role) = self.cluster_roles.get_mut(&name) {
                role.rules = rules;
            }
        }
    }

    /// The roles that each aggregating role selects.
    fn selections(&self) -> BTreeMap<String, Vec<String>> {
        let aggregating = self.cluster_roles.iter().filter_map(|(name, role)| Some((name, role.aggregates.as_ref()?)));
        let selects = |selectors: &[LabelSelector], role: &ClusterRole| {
            selectors.iter().any(|selector| selector.matches_by(|key| role.labels.get(key).map(String::as_str)))
        };
        aggregating
            .map(|(name, selectors)| {
                let others =
                    self.cluster_roles.iter().filter(|(other, role)| *other != name && selects(selectors, role));
                (name.clone(), others.map(|(other, _)| other.clone()).collect())
            })
            .collect()
    }

    /// The rules of all roles that are reached from an aggregating role, each rule once.
    fn aggregated(&self, name: &str, selected: &BTreeMap<String, Vec<String>>) -> Vec<PolicyRule> {
        let (mut seen, mut open) = (BTreeSet::from([name]), vec![name]);
        let mut rules: BTreeSet<&PolicyRule> = BTreeSet::new();
        while let Some(role) = open.pop() {
            match selected.get(role) {
                Some(others) => open.extend(others.iter().map(String::as_str).filter(|other| seen.insert(*other))),
                None => rules.extend(self.cluster_roles.get(role).into_iter().flat_map(|role| &role.rules)),
            }
        }
        rules.into_iter().cloned().collect()
    }

    /// RBAC-1: whether the user may do this. Without a rule that allows it, it is denied.
    pub fn decide<'a>(&'a self, who: Requester<'_>, request: &AccessRequest<'_>) -> AccessDecision<'a> {
        if who.is_master() {
            return AccessDecision::Allowed(Grant::Master);
        }
        let mut problems = Vec::new();
        for bound in self.bound(who, request.namespace()) {
            match self.rules_of(bound.binding) {
                Ok(rules) if rules.iter().any(|rule| rule.allows(request)) => {
                    return AccessDecision::Allowed(Grant::Bound(bound));
                }
                Ok(_) => {}
                Err(problem) if problems.len() < MOST_PROBLEMS && !problems.contains(&problem) => {
                    problems.push(problem)
                }
                Err(_) => {}
            }
        }
        AccessDecision::Denied { problems }
    }

    pub fn allows(&self, who: Requester<'_>, request: &AccessRequest<'_>) -> bool {
        matches!(self.decide(who, request), AccessDecision::Allowed(_))
    }

    /// Everything that the user may do in a namespace, or in the whole cluster if it is "". Each rule once.
    pub fn rules_for(&self, who: Requester<'_>, namespace: &str) -> Vec<PolicyRule> {
        let mut seen = BTreeSet::new();
        let mut rules = Vec::new();
        let everything = [PolicyRule::all_resources(), PolicyRule::all_paths()];
        let masters = if who.is_master() { &everything[..] } else { &[] };
        let bound = self.bound(who, namespace).filter_map(|bound| self.rules_of(bound.binding).ok()).flatten();
        for rule in masters.iter().chain(bound) {
            if seen.insert(rule) {
                rules.push(rule.clone());
            }
        }
        rules
    }

    /// The rules of the role that a binding in this namespace ("" for a ClusterRoleBinding) refers to. The error is the
    /// plural of the missing role's kind.
    pub fn referenced(&self, namespace: &str, kind: &str, name: &str) -> Result<&[PolicyRule], &'static str> {
        match kind {
            "Role" => self.role(namespace, name).ok_or("roles"),
            _ => self.cluster_roles.get(name).map(|role| role.rules.as_slice()).ok_or("clusterroles"),
        }
    }

    /// The rules of a ClusterRole, with those that it aggregates.
    pub fn cluster_role(&self, name: &str) -> Option<&[PolicyRule]> {
        self.cluster_roles.get(name).map(|role| role.rules.as_slice())
    }

    fn role(&self, namespace: &str, name: &str) -> Option<&[PolicyRule]> {
        Some(self.roles.get(namespace)?.get(name)?.as_slice())
    }

    fn rules_of(&self, binding: &Binding) -> Result<&[PolicyRule], String> {
        match &binding.role {
            RoleName::Role(name) => self
                .role(&binding.namespace, name)
                .ok_or_else(|| format!("role.rbac.authorization.k8s.io {name:?} not found")),
            RoleName::ClusterRole(name) => self
                .cluster_role(name)
                .ok_or_else(|| format!("clusterrole.rbac.authorization.k8s.io {name:?} not found")),
            RoleName::Unknown => Ok(&[]),
        }
    }

    /// The bindings of the user and of the user's groups: ClusterRoleBindings first, then RoleBindings of the
    /// namespace.
    fn bound<'a, 'b>(
        &'a self,
        who: Requester<'b>,
        namespace: &'b str,
    ) -> impl Iterator<Item = BoundRole<'a>> + use<'a, 'b> {
        let local = (!namespace.is_empty()).then_some(namespace);
        let indexes = [Some(""), local].into_iter().flatten().filter_map(|namespace| self.subjects.get(namespace));
        indexes.flat_map(move |index| {
            let user = index.users.get(who.name).into_iter().flatten();
            let user = user.filter_map(move |binding| binding.bound(|subject| subject.is_user(who.name)));
            let groups = who.groups.iter().flat_map(move |group| {
                let bindings = index.groups.get(group).into_iter().flatten();
                bindings.filter_map(move |binding| binding.bound(|subject| subject.is_group(group)))
            });
            user.chain(groups)
        })
    }
}

impl SubjectIndex {
    fn add(&mut self, binding: &Arc<Binding>) {
        for subject in &binding.subjects {
            let bindings = match subject {
                Subject::User(name) | Subject::ServiceAccount { user: name, .. } => self.users.entry(name.clone()),
                Subject::Group(name) => self.groups.entry(name.clone()),
            };
            let bindings = bindings.or_default();
            if let Err(at) = bindings.binary_search_by(|other| other.name.cmp(&binding.name)) {
                bindings.insert(at, binding.clone());
            }
        }
    }

    fn remove(&mut self, binding: &Binding) {
        for subject in &binding.subjects {
            let (index, name) = match subject {
                Subject::User(name) | Subject::ServiceAccount { user: name, .. } => (&mut self.users, name),
                Subject::Group(name) => (&mut self.groups, name),
            };
            if let Some(bindings) = index.get_mut(name) {
                bindings.retain(|other| other.name != binding.name);
                if bindings.is_empty() {
                    index.remove(name);
                }
            }
        }
    }
}

impl ClusterRole {
    fn read(role: &Value) -> Self {
        let labels = role.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
        let labels = labels.filter_map(|(key, value)| Some((key.to_string(), value.as_str()?.to_owned()))).collect();
        let aggregation = role.get("aggregationRule").filter(|rule| rule.is_object());
        let aggregates = aggregation.map(|rule| {
            let selectors = rule.get("clusterRoleSelectors").and_then(Value::as_array).into_iter().flatten();
            // A selector that cannot be read selects nothing.
            selectors.filter_map(|selector| LabelSelector::from_json(Some(selector)).ok()).collect()
        });
        Self { rules: PolicyRule::read_all(role.get("rules")), labels, aggregates }
    }
}

impl Binding {
    fn read(namespace: &str, name: &str, binding: &Value) -> Self {
        let text = |pointer: &str| binding.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let role = text("/roleRef/name").to_owned();
        let role = match text("/roleRef/kind") {
            "Role" if !namespace.is_empty() => RoleName::Role(role),
            "ClusterRole" => RoleName::ClusterRole(role),
            _ => RoleName::Unknown,
        };
        let subjects = binding.get("subjects").and_then(Value::as_array).into_iter().flatten();
        let subjects = subjects.filter_map(|subject| Subject::read(subject, namespace)).collect();
        Self { namespace: namespace.to_owned(), name: name.to_owned(), role, subjects }
    }

    fn bound<'a>(&'a self, is_meant: impl Fn(&Subject) -> bool) -> Option<BoundRole<'a>> {
        let subject = self.subjects.iter().find(|subject| is_meant(subject))?;
        Some(BoundRole { binding: self, subject })
    }

    fn is_for_cluster(&self) -> bool {
        self.namespace.is_empty()
    }
}

impl Subject {
    /// None if the kind is unknown. A service account without a namespace is one of the binding's.
    fn read(subject: &Value, binding_namespace: &str) -> Option<Self> {
        let text = |field: &str| subject.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = text("name");
        match text("kind").as_str() {
            "User" => Some(Self::User(name)),
            "Group" => Some(Self::Group(name)),
            "ServiceAccount" => {
                let namespace = match text("namespace") {
                    given if given.is_empty() => binding_namespace.to_owned(),
                    given => given,
                };
                if namespace.is_empty() {
                    return None;
                }
                let user = format!("system:serviceaccount:{namespace}:{name}");
                Some(Self::ServiceAccount { namespace, name, user })
            }
            _ => None,
        }
    }

    fn is_user(&self, user: &str) -> bool {
        matches!(self, Self::User(name) | Self::ServiceAccount { user: name, .. } if name == user)
    }

    fn is_group(&self, group: &str) -> bool {
        matches!(self, Self::Group(name) if name == group)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => write!(f, "User {name:?}"),
            Self::Group(name) => write!(f, "Group {name:?}"),
            Self::ServiceAccount { namespace, name, .. } => write!(f, "ServiceAccount \"{name}/{namespace}\""),
        }
    }
}

/// The reason that reviews give for an allowed request; empty for members of `system:masters`.
impl fmt::Display for Grant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Bound(BoundRole { binding, subject }) = self else { return Ok(()) };
        let (namespace, name) = (&binding.namespace, &binding.name);
        let (kind, role) = match &binding.role {
            RoleName::Role(role) => ("Role", role.as_str()),
            RoleName::ClusterRole(role) => ("ClusterRole", role.as_str()),
            RoleName::Unknown => ("", ""),
        };
        f.write_str("RBAC: allowed by ")?;
        if binding.is_for_cluster() {
            write!(f, "ClusterRoleBinding {name:?}")?;
        } else {
            write!(f, "RoleBinding \"{name}/{namespace}\"")?;
        }
        write!(f, " of {kind} {role:?} to {subject}")
    }
}

#[cfg(test)]
mod tests {
    use tally_value::json;

    use super::*;
    use crate::rbac::{AccessTarget, ResourceAttributes};

    fn rules(resource: &str, verb: &str) -> Value {
        json!([{"apiGroups": [""], "resources": [resource], "verbs": [verb]}])
    }

    fn binding(kind: &str, role: &str, subjects: Value) -> Value {
        json!({"roleRef": {"kind": kind, "name": role}, "subjects": subjects})
    }

    /// Whether the user with these groups may do that, and why or why not.
    fn ask(policy: &RbacPolicy, who: &str, groups: &[&str], verb: &str, resource: &str, namespace: &str) -> String {
        let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        let attributes = ResourceAttributes { resource, namespace, ..ResourceAttributes::default() };
        let request = AccessRequest { verb, target: AccessTarget::Resource(attributes) };
        match policy.decide(Requester { name: who, groups: &groups }, &request) {
            AccessDecision::Allowed(grant) => format!("yes {grant}"),
            AccessDecision::Denied { problems } => format!("no {}", problems.join("; ")),
        }
    }

    #[test]
    fn a_binding_counts_for_its_subjects_until_it_changes() {
        let mut policy = RbacPolicy::default();
        policy.put_role("n", "r", &json!({"rules": rules("pods", "get")}));
        let subjects = json!([{"kind": "User", "name": "u"}, {"kind": "User", "name": "u"}, {"kind": "Group", "name": "g"},
            {"kind": "ServiceAccount", "name": "s"}, {"kind": "Robot", "name": "x"}]);
        policy.put_binding("n", "b", &binding("Role", "r", subjects));
        policy.settle();
        let of = |subject: &str| format!("yes RBAC: allowed by RoleBinding \"b/n\" of Role \"r\" to {subject}");
        assert_eq!(ask(&policy, "u", &[], "get", "pods", "n"), of("User \"u\""));
        assert_eq!(ask(&policy, "v", &["g"], "get", "pods", "n"), of("Group \"g\""));
        assert_eq!(ask(&policy, "system:serviceaccount:n:s", &[], "get", "pods", "n"), of("ServiceAccount \"s/n\""));
        for (who, verb, resource, namespace) in [
            ("g", "get", "pods", "n"),
            ("x", "get", "pods", "n"),
            ("u", "list", "pods", "n"),
            ("u", "get", "nodes", "n"),
            ("u", "get", "pods", "m"),
            ("u", "get", "pods", ""),
            ("", "get", "pods", "n"),
        ] {
            assert_eq!(ask(&policy, who, &[], verb, resource, namespace), "no ", "{who} {verb} {resource} {namespace}");
        }
        policy.put_binding("n", "b", &binding("Role", "r", json!([{"kind": "User", "name": "w"}])));
        assert_eq!(ask(&policy, "u", &["g"], "get", "pods", "n"), "no ");
        assert!(ask(&policy, "w", &[], "get", "pods", "n").starts_with("yes"));
        policy.remove_role("n", "r");
        let missing = "no role.rbac.authorization.k8s.io \"r\" not found";
        assert_eq!(ask(&policy, "w", &[], "get", "pods", "n"), missing);
        policy.remove_binding("n", "b");
        policy.remove_binding("n", "b");
        assert_eq!(ask(&policy, "w", &[], "get", "pods", "n"), "no ");
        assert!(policy.bindings.is_empty() && policy.subjects.is_empty() && policy.roles.is_empty());
        assert_eq!(ask(&policy, "w", &["system:masters"], "get", "pods", "n"), "yes ");
    }

    /// RBAC-5.
    #[test]
    fn roles_aggregate_others_and_themselves_only_once() {
        let aggregate = |own: &str, selected: &str| {
            json!({"metadata": {"labels": {own: ""}}, "rules": rules("secrets", "get"),
                "aggregationRule": {"clusterRoleSelectors": [{"matchExpressions": [{"key": selected, "operator": "Exists"}]}]}})
        };
        let mut policy = RbacPolicy::default();
        policy.put_cluster_role("low", &json!({"metadata": {"labels": {"a": ""}}, "rules": rules("pods", "get")}));
        policy.put_cluster_role("mid", &aggregate("b", "a"));
        policy.put_cluster_role("high", &aggregate("a", "b"));
        policy.settle();
        // `mid` and `high` select each other; their own rules do not count.
        for name in ["mid", "high"] {
            assert_eq!(policy.cluster_role(name), policy.cluster_role("low"), "{name}");
        }
        policy.remove_cluster_role("low");
        policy.settle();
        assert_eq!(policy.cluster_role("high"), Some(&[][..]));
    }

    #[test]
    fn a_cluster_binding_does_not_refer_to_a_role() {
        let mut policy = RbacPolicy::default();
        policy.put_role("", "r", &json!({"rules": rules("pods", "get")}));
        policy.put_binding("", "b", &binding("Role", "r", json!([{"kind": "User", "name": "u"}])));
        assert_eq!(ask(&policy, "u", &[], "get", "pods", "n"), "no ");
    }
}
