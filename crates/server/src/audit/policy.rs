//! Which requests are recorded: the rules of an `audit.k8s.io/v1` Policy, as far as they are obeyed.
//!
//! The first rule that matches a request decides. Bodies are never recorded, so the levels are `None` and `Metadata`. A
//! policy that asks for more is refused: it must not seem to be obeyed.

use tally_api::decode::tree::Tree;
use tally_api::rbac::ResourceAttributes;
use tally_value::{Map, Value};

use crate::auth::User;

/// Used without a policy of the operator: writes and everything about credentials, no other reads.
pub const DEFAULT_POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
  resources:
  - group: ""
    resources: [secrets, serviceaccounts/token]
  - group: authentication.k8s.io
    resources: [tokenreviews]
- level: None
  verbs: [get, list, watch, head, options]
- level: Metadata
"#;

/// A stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditStage {
    /// Never recorded: the user is not known yet.
    RequestReceived,
    ResponseStarted,
    ResponseComplete,
    Panic,
}

const STAGES: [AuditStage; 4] =
    [AuditStage::RequestReceived, AuditStage::ResponseStarted, AuditStage::ResponseComplete, AuditStage::Panic];

impl AuditStage {
    pub const fn name(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// What a request is about.
#[derive(Clone, Debug, Default)]
pub struct AuditTerms {
    pub verb: String,
    pub path: String,
    /// None for paths that are not those of resources.
    pub resource: Option<AuditResource>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditResource {
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
}

impl From<ResourceAttributes<'_>> for AuditResource {
    fn from(attributes: ResourceAttributes<'_>) -> Self {
        Self {
            group: attributes.group.to_owned(),
            resource: attributes.resource.to_owned(),
            subresource: attributes.subresource.to_owned(),
            namespace: attributes.namespace.to_owned(),
            name: attributes.name.to_owned(),
        }
    }
}

impl AuditTerms {
    /// Whether objects of this kind contain secrets.
    pub fn is_confidential(&self) -> bool {
        self.resource.as_ref().is_some_and(|resource| {
            matches!(
                (resource.group.as_str(), resource.resource.as_str(), resource.subresource.as_str()),
                ("", "secrets", _) | ("", "serviceaccounts", "token") | ("authentication.k8s.io", "tokenreviews", _)
            )
        })
    }
}

#[derive(Clone, Debug)]
pub struct AuditPolicy {
    rules: Vec<AuditRule>,
    omit_stages: Vec<AuditStage>,
}

#[derive(Clone, Debug, Default)]
struct AuditRule {
    /// Metadata, not None.
    is_recorded: bool,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    non_resource_urls: Vec<String>,
    omit_stages: Vec<AuditStage>,
}

#[derive(Clone, Debug, Default)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

/// Why a policy is not obeyed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AuditPolicyError(String);

impl AuditPolicy {
    /// Reads YAML or JSON.
    pub fn parse(text: &str) -> Result<Self, AuditPolicyError> {
        let tree =
            Tree::parse(text).map_err(|error| AuditPolicyError(format!("not a YAML document: {}", error.why)))?;
        let value = tree.value();
        let mut fields = Fields::of(&value, "")?;
        for (name, expected) in [("apiVersion", "audit.k8s.io/v1"), ("kind", "Policy")] {
            let found = fields.text(name)?;
            if found != expected {
                return Err(AuditPolicyError(format!("{name}: {found:?} is not {expected:?}")));
            }
        }
        fields.take("metadata");
        let omit_stages = stages(&mut fields)?;
        let rules = fields.list("rules")?;
        if rules.is_empty() {
            return Err(AuditPolicyError("rules: at least one is required".to_owned()));
        }
        let rules = rules.iter().enumerate().map(|(at, rule)| AuditRule::parse(rule, &format!("rules[{at}]")));
        let rules = rules.collect::<Result<Vec<_>, _>>()?;
        fields.end()?;
        Ok(Self { rules, omit_stages })
    }

    /// Whether a stage of a request is recorded.
    pub fn records(&self, terms: &AuditTerms, user: &User, stage: AuditStage) -> bool {
        let Some(rule) = self.rules.iter().find(|rule| rule.matches(terms, user)) else { return false };
        rule.is_recorded && !self.omit_stages.contains(&stage) && !rule.omit_stages.contains(&stage)
    }
}

impl Default for AuditPolicy {
    fn default() -> Self {
        // A test parses the text.
        Self::parse(DEFAULT_POLICY).unwrap_or(Self { rules: Vec::new(), omit_stages: Vec::new() })
    }
}

impl AuditRule {
    fn parse(value: &Value, at: &str) -> Result<Self, AuditPolicyError> {
        let mut fields = Fields::of(value, at)?;
        let is_recorded = match fields.text("level")? {
            "None" => false,
            "Metadata" => true,
            level @ ("Request" | "RequestResponse") => {
                return Err(AuditPolicyError(format!(
                    "{at}.level: {level} is not supported, because bodies are never recorded; use Metadata or None"
                )));
            }
            other => return Err(AuditPolicyError(format!("{at}.level: {other:?} is not None or Metadata"))),
        };
        let resources = fields.list("resources")?;
        let resources = resources.iter().enumerate();
        let rule = Self {
            is_recorded,
            users: fields.texts("users")?,
            user_groups: fields.texts("userGroups")?,
            verbs: fields.texts("verbs")?,
            resources: resources
                .map(|(number, value)| GroupResources::parse(value, &format!("{at}.resources[{number}]")))
                .collect::<Result<_, _>>()?,
            namespaces: fields.texts("namespaces")?,
            non_resource_urls: fields.texts("nonResourceURLs")?,
            omit_stages: stages(&mut fields)?,
        };
        fields.end()?;
        let is_about_resources = !rule.resources.is_empty() || !rule.namespaces.is_empty();
        if is_about_resources && !rule.non_resource_urls.is_empty() {
            return Err(AuditPolicyError(format!(
                "{at}: nonResourceURLs cannot be combined with resources or namespaces; use two rules"
            )));
        }
        Ok(rule)
    }

    fn matches(&self, terms: &AuditTerms, user: &User) -> bool {
        let among = |list: &[String], text: &str| list.is_empty() || list.iter().any(|item| item == text);
        let groups = &self.user_groups;
        if !among(&self.users, &user.name) || !among(&self.verbs, &terms.verb) {
            return false;
        }
        if !groups.is_empty() && !user.groups.iter().any(|group| groups.contains(group)) {
            return false;
        }
        match &terms.resource {
            Some(resource) => {
                self.non_resource_urls.is_empty()
                    && among(&self.namespaces, &resource.namespace)
                    && (self.resources.is_empty() || self.resources.iter().any(|group| group.matches(resource)))
            }
            None => {
                let is_at = |url: &String| match url.strip_suffix('*') {
                    Some(prefix) => terms.path.starts_with(prefix),
                    None => terms.path == *url,
                };
                self.resources.is_empty()
                    && self.namespaces.is_empty()
                    && (self.non_resource_urls.is_empty() || self.non_resource_urls.iter().any(is_at))
            }
        }
    }
}

impl GroupResources {
    fn parse(value: &Value, at: &str) -> Result<Self, AuditPolicyError> {
        let mut fields = Fields::of(value, at)?;
        let group = fields.take("group").and_then(Value::as_str).unwrap_or_default().to_owned();
        let found =
            Self { group, resources: fields.texts("resources")?, resource_names: fields.texts("resourceNames")? };
        fields.end()?;
        if !found.resource_names.is_empty() && found.resources.is_empty() {
            return Err(AuditPolicyError(format!("{at}: resourceNames needs resources")));
        }
        Ok(found)
    }

    fn matches(&self, wanted: &AuditResource) -> bool {
        if self.group != wanted.group {
            return false;
        }
        let is_named = self.resource_names.is_empty() || self.resource_names.contains(&wanted.name);
        let is_meant = |pattern: &String| match pattern.split_once('/') {
            None => pattern == "*" || (*pattern == wanted.resource && wanted.subresource.is_empty()),
            Some(("*", subresource)) => subresource == wanted.subresource,
            Some((resource, "*")) => resource == wanted.resource,
            Some((resource, subresource)) => resource == wanted.resource && subresource == wanted.subresource,
        };
        self.resources.is_empty() || (is_named && self.resources.iter().any(is_meant))
    }
}

fn stages(fields: &mut Fields<'_>) -> Result<Vec<AuditStage>, AuditPolicyError> {
    let names = fields.texts("omitStages")?;
    let find = |name: &String| {
        STAGES
            .into_iter()
            .find(|stage| stage.name() == name)
            .ok_or_else(|| AuditPolicyError(format!("{}: {name:?} is not a stage", fields.path("omitStages"))))
    };
    names.iter().map(find).collect()
}

/// The fields of an object. What is not taken is unknown.
struct Fields<'a> {
    at: &'a str,
    map: &'a Map,
    taken: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    fn of(value: &'a Value, at: &'a str) -> Result<Self, AuditPolicyError> {
        let shown = if at.is_empty() { "the policy" } else { at };
        let map = value.as_object().ok_or_else(|| AuditPolicyError(format!("{shown} is not an object")))?;
        Ok(Self { at, map, taken: Vec::new() })
    }

    fn path(&self, name: &str) -> String {
        if self.at.is_empty() { name.to_owned() } else { format!("{}.{name}", self.at) }
    }

    fn take(&mut self, name: &'static str) -> Option<&'a Value> {
        self.taken.push(name);
        self.map.get(name).filter(|value| !value.is_null())
    }

    fn text(&mut self, name: &'static str) -> Result<&'a str, AuditPolicyError> {
        let text = self.take(name).and_then(Value::as_str);
        text.ok_or_else(|| AuditPolicyError(format!("{}: a text is required", self.path(name))))
    }

    fn list(&mut self, name: &'static str) -> Result<&'a [Value], AuditPolicyError> {
        match self.take(name) {
            None => Ok(&[]),
            Some(value) => {
                let list = value.as_array().map(Vec::as_slice);
                list.ok_or_else(|| AuditPolicyError(format!("{}: a list is required", self.path(name))))
            }
        }
    }

    fn texts(&mut self, name: &'static str) -> Result<Vec<String>, AuditPolicyError> {
        let list = self.list(name)?.iter().map(|item| item.as_str().map(str::to_owned));
        let texts: Option<Vec<String>> = list.collect();
        texts.ok_or_else(|| AuditPolicyError(format!("{}: a list of texts is required", self.path(name))))
    }

    fn end(&self) -> Result<(), AuditPolicyError> {
        match self.map.keys().find(|key| !self.taken.contains(&key.as_str())) {
            Some(key) => Err(AuditPolicyError(format!("{}: this field is not supported", self.path(key)))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn user(name: &str, group: &str) -> User {
        User { name: name.to_owned(), uid: String::new(), groups: vec![group.to_owned()] }
    }

    /// `get pods/log n/x`, `get /healthz`, `list jobs.batch n/`
    fn terms(text: &str) -> AuditTerms {
        let mut words = text.split(' ');
        let (verb, what) = (words.next().unwrap().to_owned(), words.next().unwrap());
        if what.starts_with('/') {
            return AuditTerms { verb, path: what.to_owned(), resource: None };
        }
        let (what, subresource) = what.split_once('/').unwrap_or((what, ""));
        let (resource, group) = what.split_once('.').unwrap_or((what, ""));
        let (namespace, name) = words.next().unwrap_or("/").split_once('/').unwrap();
        let [group, resource, subresource, namespace, name] =
            [group, resource, subresource, namespace, name].map(str::to_owned);
        let resource = AuditResource { group, resource, subresource, namespace, name };
        AuditTerms { verb, path: String::new(), resource: Some(resource) }
    }

    fn check(policy: &AuditPolicy, table: &[(&str, bool)]) {
        for (text, recorded) in table {
            let found = policy.records(&terms(text), &user("alice", "developers"), AuditStage::ResponseComplete);
            assert_eq!(found, *recorded, "{text}");
        }
    }

    #[test]
    fn by_default_writes_and_credentials_are_recorded() {
        assert!(AuditPolicy::parse(DEFAULT_POLICY).is_ok());
        check(
            &AuditPolicy::default(),
            &[
                ("create jobs.batch n/", true),
                ("update pods/status n/p", true),
                ("deletecollection pods n/", true),
                ("create subjectaccessreviews.authorization.k8s.io", true),
                ("get jobs.batch n/j", false),
                ("list pods n/", false),
                ("watch pods", false),
                ("get secrets n/s", true),
                ("list secrets", true),
                ("create serviceaccounts/token n/s", true),
                ("get serviceaccounts n/s", false),
                ("get /healthz", false),
                ("get /metrics", false),
                ("post /healthz", true),
            ],
        );
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let policy = AuditPolicy::parse(
            "{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [RequestReceived], rules: [
               {level: None, users: [bob]},
               {level: None, userGroups: [robots]},
               {level: Metadata, verbs: [get], nonResourceURLs: ['/api*', /metrics]},
               {level: None, resources: [{group: '', resources: [pods]}], namespaces: [quiet]},
               {level: Metadata, resources: [{group: '', resources: [pods, '*/scale', 'nodes/*']}]},
               {level: Metadata, resources: [{group: batch, resources: [jobs], resourceNames: [j]}, {group: apps}], omitStages: [ResponseStarted]},
             ]}",
        )
        .unwrap();
        check(
            &policy,
            &[
                ("get /api", true),
                ("get /apis/batch", true),
                ("get /metrics", true),
                ("get /metrics/x", false),
                ("post /api", false),
                ("get pods n/p", true),
                ("get pods quiet/p", false),
                ("get pods/log n/p", false),
                ("get x/scale n/p", true),
                ("get nodes /n", true),
                ("get nodes/status /n", true),
                ("get jobs.batch n/j", true),
                ("get jobs.batch n/k", false),
                ("get deployments.apps n/k", true),
                ("get secrets n/s", false),
            ],
        );
        let at = |who: &User, stage| policy.records(&terms("get jobs.batch n/j"), who, stage);
        let alice = user("alice", "developers");
        assert!(at(&alice, AuditStage::ResponseComplete) && !at(&alice, AuditStage::ResponseStarted));
        assert!(!at(&user("bob", "developers"), AuditStage::ResponseComplete));
        assert!(!at(&user("carol", "robots"), AuditStage::ResponseComplete));
    }

    #[test]
    fn what_is_not_obeyed_is_refused() {
        let policy = |rest: &str| format!("{{apiVersion: audit.k8s.io/v1, kind: Policy, {rest}}}");
        for (text, told) in [
            ("[".to_owned(), "not a YAML document"),
            ("[]".to_owned(), "the policy is not an object"),
            ("{kind: Policy}".to_owned(), "apiVersion: a text is required"),
            ("{apiVersion: audit.k8s.io/v1beta1, kind: Policy}".to_owned(), "is not \"audit.k8s.io/v1\""),
            (policy("rules: []"), "rules: at least one is required"),
            (policy("rules: [{level: Request}]"), "rules[0].level: Request is not supported"),
            (policy("rules: [{level: RequestResponse}]"), "bodies are never recorded; use Metadata or None"),
            (policy("rules: [{level: metadata}]"), "rules[0].level: \"metadata\" is not None or Metadata"),
            (policy("rules: [{}]"), "rules[0].level: a text is required"),
            (policy("rules: [{level: None, verb: [get]}]"), "rules[0].verb: this field is not supported"),
            (policy("rules: [{level: None, omitManagedFields: true}]"), "rules[0].omitManagedFields: this field"),
            (policy("rules: [{level: None, verbs: get}]"), "rules[0].verbs: a list is required"),
            (policy("rules: [{level: None, verbs: [1]}]"), "rules[0].verbs: a list of texts is required"),
            (policy("rules: [{level: None, omitStages: [End]}]"), "rules[0].omitStages: \"End\" is not a stage"),
            (policy("rules: [{level: None, resources: [pods]}]"), "rules[0].resources[0] is not an object"),
            (policy("rules: [{level: None, resources: [{resourceNames: [a]}]}]"), "resourceNames needs resources"),
            (policy("rules: [{level: None, namespaces: [a], nonResourceURLs: [/b]}]"), "use two rules"),
            (policy("omitManagedFields: true, rules: [{level: None}]"), "omitManagedFields: this field"),
        ] {
            let why = AuditPolicy::parse(&text).unwrap_err().to_string();
            assert!(why.contains(told), "{text}: {why}");
        }
    }
}
