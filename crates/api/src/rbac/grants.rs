//! Whether rules stay within other rules: a user may grant what the user holds, and nothing else (RBAC-8).

use std::collections::BTreeMap;
use std::fmt;

use super::{EVERYTHING, PolicyRule, lists, url_matches};

/// The combinations of group, resource, name and verb that are compared. A rule is the product of its lists, so that a
/// short text can stand for very many; a role with more than these must be split, or created by an administrator.
const MOST_COMBINATIONS: usize = 16_384;
/// Lines of the message about missing permissions.
const MOST_LINES: usize = 50;

/// Why rules go beyond those that a user holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ungranted {
    /// These permissions are not held.
    Missing(Vec<PolicyRule>),
    /// The rules have too many combinations to compare.
    TooMany,
}

/// One permission: a verb on one resource (or one of its objects), or on one path.
struct Permission<'a> {
    verb: &'a str,
    group: &'a str,
    resource: &'a str,
    /// None: every object.
    name: Option<&'a str>,
    /// Instead of group, resource and name.
    path: Option<&'a str>,
}

/// Which of `wanted` is not within `held`; None if all of it is.
pub fn ungranted(held: &[PolicyRule], wanted: &[PolicyRule]) -> Option<Ungranted> {
    // A rule that is within one other rule needs no comparison of its combinations.
    let open: Vec<&PolicyRule> = wanted.iter().filter(|rule| !held.iter().any(|held| held.covers_rule(rule))).collect();
    let combinations = open.iter().map(|rule| combinations(rule)).fold(0_usize, usize::saturating_add);
    if combinations > MOST_COMBINATIONS {
        return Some(Ungranted::TooMany);
    }
    let mut missing: BTreeMap<PolicyRule, Vec<String>> = BTreeMap::new();
    for permission in open.into_iter().flat_map(permissions) {
        if !held.iter().any(|rule| rule.covers(&permission)) {
            let verbs = missing.entry(permission.without_verb()).or_default();
            let verb = permission.verb.to_owned();
            if !verbs.contains(&verb) {
                verbs.push(verb);
            }
        }
    }
    let missing: Vec<PolicyRule> = missing.into_iter().map(|(rule, verbs)| PolicyRule { verbs, ..rule }).collect();
    (!missing.is_empty()).then_some(Ungranted::Missing(missing))
}

fn combinations(rule: &PolicyRule) -> usize {
    let resources = rule.api_groups.len().saturating_mul(rule.resources.len());
    let resources = resources.saturating_mul(rule.resource_names.len().max(1));
    rule.verbs.len().saturating_mul(resources.saturating_add(rule.non_resource_urls.len()))
}

fn permissions(rule: &PolicyRule) -> Vec<Permission<'_>> {
    let mut all = Vec::new();
    let names: Vec<Option<&str>> = if rule.resource_names.is_empty() {
        vec![None]
    } else {
        rule.resource_names.iter().map(|name| Some(name.as_str())).collect()
    };
    for verb in &rule.verbs {
        for path in &rule.non_resource_urls {
            all.push(Permission { verb, group: "", resource: "", name: None, path: Some(path) });
        }
        for group in &rule.api_groups {
            for resource in &rule.resources {
                for name in names.iter().copied() {
                    all.push(Permission { verb, group, resource, name, path: None });
                }
            }
        }
    }
    all
}

impl Permission<'_> {
    fn without_verb(&self) -> PolicyRule {
        match self.path {
            Some(path) => PolicyRule { non_resource_urls: vec![path.to_owned()], ..PolicyRule::default() },
            None => PolicyRule {
                api_groups: vec![self.group.to_owned()],
                resources: vec![self.resource.to_owned()],
                resource_names: self.name.map(str::to_owned).into_iter().collect(),
                ..PolicyRule::default()
            },
        }
    }
}

impl PolicyRule {
    /// Whether this rule alone contains the permission. A permission for everything (`*`) is only within a rule for
    /// everything.
    fn covers(&self, permission: &Permission<'_>) -> bool {
        if !lists(&self.verbs, permission.verb) {
            return false;
        }
        if let Some(path) = permission.path {
            return self.non_resource_urls.iter().any(|url| url_matches(url, path));
        }
        let named = match permission.name {
            None => self.resource_names.is_empty(),
            Some(name) => self.names_object(name),
        };
        named && lists(&self.api_groups, permission.group) && self.covers_resource(permission.resource)
    }

    /// Whether this rule alone contains all of another.
    fn covers_rule(&self, other: &Self) -> bool {
        let named = self.resource_names.is_empty()
            || (!other.resource_names.is_empty() && other.resource_names.iter().all(|name| self.names_object(name)));
        other.verbs.iter().all(|verb| lists(&self.verbs, verb))
            && other.api_groups.iter().all(|group| lists(&self.api_groups, group))
            && other.resources.iter().all(|resource| self.covers_resource(resource))
            && other
                .non_resource_urls
                .iter()
                .all(|path| self.non_resource_urls.iter().any(|url| url_matches(url, path)))
            && (named || other.resources.is_empty())
    }

    fn covers_resource(&self, wanted: &str) -> bool {
        let sub = wanted.split_once('/').map(|(_, sub)| sub);
        self.resources.iter().any(|listed| {
            listed == EVERYTHING
                || listed == wanted
                || listed.split_once('/').is_some_and(|(of, of_sub)| of == EVERYTHING && Some(of_sub) == sub)
        })
    }
}

impl fmt::Display for Ungranted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(
                f,
                "the rules have more than {MOST_COMBINATIONS} combinations of group, resource, name and verb; split \
                 the role"
            ),
            Self::Missing(rules) => {
                let lines: Vec<String> = rules.iter().take(MOST_LINES).map(PolicyRule::compact).collect();
                f.write_str(&lines.join("\n"))?;
                match rules.len().saturating_sub(MOST_LINES) {
                    0 => Ok(()),
                    more => write!(f, "\nand {more} more"),
                }
            }
        }
    }
}

impl PolicyRule {
    /// The form that messages about missing permissions have: `{APIGroups:["batch"], Resources:["jobs"], Verbs:["get" "list"]}`.
    fn compact(&self) -> String {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("ResourceNames", &self.resource_names),
            ("NonResourceURLs", &self.non_resource_urls),
            ("Verbs", &self.verbs),
        ];
        let parts = parts.into_iter().filter(|(_, values)| !values.is_empty());
        let parts: Vec<String> = parts.map(|(name, values)| format!("{name}:{}", quoted(values))).collect();
        format!("{{{}}}", parts.join(", "))
    }
}

/// `["a" "b"]`, as Go prints a list of texts.
pub fn quoted(values: &[String]) -> String {
    let values: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    format!("[{}]", values.join(" "))
}

#[cfg(test)]
mod tests {
    use tally_value::{Value, json};

    use super::*;

    fn rules(rules: Value) -> Vec<PolicyRule> {
        PolicyRule::read_all(Some(&rules))
    }

    fn check(held: Value, wanted: Value, missing: Option<&str>) {
        let found = ungranted(&rules(held.clone()), &rules(wanted.clone()));
        assert_eq!(found.map(|found| found.to_string()).as_deref(), missing, "held {held}, wanted {wanted}");
    }

    fn rule(groups: &[&str], resources: &[&str], names: &[&str], verbs: &[&str]) -> Value {
        json!({"apiGroups": groups, "resources": resources, "resourceNames": names, "verbs": verbs})
    }

    /// RBAC-8.
    #[test]
    fn a_user_grants_what_the_user_holds_and_nothing_else() {
        let reader = || json!([rule(&["batch"], &["jobs"], &[], &["get", "list"])]);
        check(reader(), reader(), None);
        check(reader(), json!([]), None);
        check(reader(), json!([rule(&["batch"], &["jobs"], &["a"], &["get"])]), None);
        check(
            reader(),
            json!([rule(&["batch"], &["jobs", "cronjobs"], &[], &["get", "watch"])]),
            Some(
                "{APIGroups:[\"batch\"], Resources:[\"cronjobs\"], Verbs:[\"get\" \"watch\"]}\n\
                 {APIGroups:[\"batch\"], Resources:[\"jobs\"], Verbs:[\"watch\"]}",
            ),
        );
        check(
            reader(),
            json!([rule(&["*"], &["*"], &[], &["*"])]),
            Some("{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}"),
        );
        // Two rules together hold what neither holds alone.
        let both = json!([rule(&[""], &["pods"], &[], &["get"]), rule(&[""], &["pods"], &[], &["list"])]);
        check(both, json!([rule(&[""], &["pods"], &[], &["get", "list"])]), None);
        // One name is not every name.
        let one = json!([rule(&[""], &["pods"], &["p"], &["get"])]);
        check(one.clone(), json!([rule(&[""], &["pods"], &["p"], &["get"])]), None);
        let all = json!([rule(&[""], &["pods"], &[], &["get"])]);
        check(one, all, Some("{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\"]}"));
        // Subresources.
        let status = json!([rule(&["*"], &["*/status"], &[], &["get"])]);
        check(status.clone(), json!([rule(&[""], &["pods/status"], &[], &["get"])]), None);
        let missing = "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\"]}";
        check(status, json!([rule(&[""], &["pods"], &[], &["get"])]), Some(missing));
        // Paths.
        let paths = |urls: &[&str]| json!([{"nonResourceURLs": urls, "verbs": ["get"]}]);
        check(paths(&["/a/*"]), paths(&["/a/b", "/a/*"]), None);
        check(paths(&["/a/*"]), paths(&["/a"]), Some("{NonResourceURLs:[\"/a\"], Verbs:[\"get\"]}"));
        check(paths(&["/a/*"]), paths(&["*"]), Some("{NonResourceURLs:[\"*\"], Verbs:[\"get\"]}"));
    }

    #[test]
    fn the_work_of_a_comparison_is_limited() {
        let many = |count: usize| -> Vec<String> { (0..count).map(|number| format!("x{number}")).collect() };
        let of = |resources: usize| {
            vec![PolicyRule {
                verbs: many(128),
                api_groups: many(1),
                resources: many(resources),
                ..PolicyRule::default()
            }]
        };
        let one_verb = |verb: String| PolicyRule { verbs: vec![verb], ..PolicyRule::all_resources() };
        let each: Vec<PolicyRule> = many(128).into_iter().map(one_verb).collect();
        assert_eq!(ungranted(&each, &of(127)), None);
        assert_eq!(ungranted(&each, &of(128)), None);
        assert_eq!(ungranted(&each, &of(129)), Some(Ungranted::TooMany));
        assert_eq!(ungranted(&of(129), &of(129)), None, "the same rules");
        assert_eq!(ungranted(&[PolicyRule::all_resources()], &of(5_000)), None, "everything");
        let Some(Ungranted::Missing(missing)) = ungranted(&[], &of(100)) else { panic!("nothing is held") };
        assert_eq!(missing.len(), 100);
        assert!(Ungranted::Missing(missing).to_string().ends_with("\nand 50 more"));
    }
}
