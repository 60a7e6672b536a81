//! Pod security levels: the labels of a namespace say which Pods it accepts (`enforce`), about which the client is warned
//! (`warn`), and which the audit log marks (`audit`). The messages are those of kube-apiserver, because clients and tests
//! compare them; `crates/api/tests/pod_security` has them as they were recorded.

mod checks;
mod ids;

use tally_value::Value;

use crate::field::{At, FieldError};
pub use checks::{Violation, violations};
pub use ids::{IdRanges, IdRangesError, NOBODY, PodIds};

/// The beginning of the keys of the labels. A namespace whose text does not contain it has no levels.
pub const LABELS: &str = "pod-security.kubernetes.io/";

const MODES: [&str; 3] = ["enforce", "audit", "warn"];
const LEVELS: [&str; 3] = ["privileged", "baseline", "restricted"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecurityLevel {
    Privileged,
    Baseline,
    Restricted,
}

/// The minor version of Kubernetes whose rules apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RulesVersion {
    Minor(u32),
    Latest,
}

/// What the levels of a namespace mean for the objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecuritySubject {
    /// They are Pods: refused, or accepted with a warning.
    Pod,
    /// They have the template of a Pod at this place: accepted with a warning.
    Template(&'static str),
    /// They are the namespaces that have the labels.
    Namespace,
}

/// A level and the version of its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecurityPolicy {
    pub level: SecurityLevel,
    pub version: RulesVersion,
}

/// What the labels of a namespace ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceSecurity {
    pub enforce: SecurityPolicy,
    pub audit: SecurityPolicy,
    pub warn: SecurityPolicy,
}

impl SecurityLevel {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "privileged" => Some(Self::Privileged),
            "baseline" => Some(Self::Baseline),
            "restricted" => Some(Self::Restricted),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        LEVELS[self as usize]
    }
}

impl RulesVersion {
    /// `latest`, or `v1.` and a number.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "latest" {
            return Some(Self::Latest);
        }
        let minor = text.strip_prefix("v1.")?;
        let plain = minor == "0" || (!minor.starts_with('0') && minor.bytes().all(|byte| byte.is_ascii_digit()));
        minor.parse().ok().filter(|_| plain).map(Self::Minor)
    }
}

impl std::fmt::Display for SecurityPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.version {
            RulesVersion::Latest => write!(f, "{}:latest", self.level.name()),
            RulesVersion::Minor(minor) => write!(f, "{}:v1.{minor}", self.level.name()),
        }
    }
}

impl NamespaceSecurity {
    /// A namespace that was stored before labels were checked may have a level that does not exist: for `enforce` that means
    /// the strictest one, otherwise none.
    pub fn of(namespace: &Value) -> Self {
        let root = At::root(namespace);
        let metadata = root.at("metadata");
        let labels = metadata.at("labels");
        let level = |mode: &str, unknown| {
            let text = labels.at(&format!("{LABELS}{mode}")).text();
            text.map(|text| SecurityLevel::parse(text).unwrap_or(unknown))
        };
        let version = |mode: &str| labels.at(&format!("{LABELS}{mode}-version")).text().and_then(RulesVersion::parse);
        let open = SecurityLevel::Privileged;
        let policy = |mode: &str, level: Option<SecurityLevel>| SecurityPolicy {
            level: level.unwrap_or(open),
            version: version(mode).unwrap_or(RulesVersion::Latest),
        };
        let enforce = policy("enforce", level("enforce", SecurityLevel::Restricted));
        // Objects with a template are not refused. Without a level of its own, `warn` tells what will happen to their Pods.
        let warn = match level("warn", open) {
            Some(level) => policy("warn", Some(level)),
            None => SecurityPolicy { level: enforce.level, version: version("warn").unwrap_or(enforce.version) },
        };
        Self { enforce, audit: policy("audit", level("audit", open)), warn }
    }
}

/// The errors of the labels of a namespace.
pub fn label_errors(namespace: &Value) -> Vec<FieldError> {
    let root = At::root(namespace);
    let metadata = root.at("metadata");
    let labels = metadata.at("labels");
    let mut errors = Vec::new();
    for mode in MODES {
        let key = format!("{LABELS}{mode}");
        if let Some(level) = labels.at(&key).text().filter(|level| SecurityLevel::parse(level).is_none()) {
            errors.push(labels.key(&key).invalid_value(level, format!("must be one of {}", LEVELS.join(", "))));
        }
        let key = format!("{LABELS}{mode}-version");
        if let Some(version) = labels.at(&key).text().filter(|version| RulesVersion::parse(version).is_none()) {
            errors.push(labels.key(&key).invalid_value(version, "must be \"latest\" or \"v1.x\""));
        }
    }
    errors
}

/// `reason (detail), reason (detail)`.
pub fn in_full(violations: &[Violation]) -> String {
    let texts: Vec<_> =
        violations.iter().map(|violation| format!("{} ({})", violation.reason, violation.detail)).collect();
    texts.join(", ")
}

/// The warnings for a namespace that enforces another level from now on: which of its Pods it would not accept. Pods with the
/// same violations are told together.
pub fn warnings_about_existing<'a>(
    namespace: &str,
    policy: SecurityPolicy,
    allowed: &PodIds,
    pods: impl Iterator<Item = &'a Value>,
) -> Vec<String> {
    let mut groups: Vec<(String, String, usize)> = Vec::new();
    for pod in pods {
        let found = violations(policy, pod, allowed);
        if found.is_empty() {
            continue;
        }
        let reasons: Vec<_> = found.iter().map(|violation| violation.reason).collect();
        let reasons = reasons.join(", ");
        match groups.iter_mut().find(|(known, ..)| *known == reasons) {
            Some((_, _, others)) => *others += 1,
            None => {
                let name = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
                groups.push((reasons, name, 0));
            }
        }
    }
    if groups.is_empty() {
        return Vec::new();
    }
    let mut warnings = vec![format!(
        "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{policy}\""
    )];
    warnings.extend(groups.into_iter().map(|(reasons, name, others)| match others {
        0 => format!("{name}: {reasons}"),
        1 => format!("{name} (and 1 other pod): {reasons}"),
        _ => format!("{name} (and {others} other pods): {reasons}"),
    }));
    warnings
}

/// Whether an update of a Pod can change what the checks say. Labels, annotations other than those of AppArmor, and the
/// fields of a Pod that may be changed are of no consequence, except for images: a program may be another one.
pub fn is_relevant_update(new: &Value, old: &Value) -> bool {
    let app_armor = |pod: &Value| {
        checks::app_armor_annotations(pod).map(|(key, value)| (key.to_owned(), value.clone())).collect::<Vec<_>>()
    };
    let images =
        |pod: &Value| checks::containers(pod).map(|container| container.get("image").cloned()).collect::<Vec<_>>();
    app_armor(new) != app_armor(old) || images(new) != images(old)
}
