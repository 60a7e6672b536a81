//! The ClusterRoles and ClusterRoleBindings that every cluster has (RBAC-12). Their rules are those of Kubernetes for the
//! resources that are served here.

use tally_value::{Value, json};

use super::{GROUP, MASTERS, PolicyRule, Ungranted, ungranted};

/// Users set it to "false" to keep their changes of a built-in object.
pub const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
const BOOTSTRAPPING: &str = "kubernetes.io/bootstrapping";
const DEFAULTS: &str = "rbac-defaults";

const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";

const SELECTORS: &str = "clusterRoleSelectors";

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];
const READ_AND_WRITE: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// The built-in ClusterRoles, without `apiVersion` and `kind`.
pub fn cluster_roles() -> Vec<Value> {
    let mut roles = vec![
        role("cluster-admin", vec![PolicyRule::all_resources(), PolicyRule::all_paths()]),
        aggregate("admin", "admin", None),
        aggregate("edit", "edit", Some("admin")),
        aggregate("view", "view", Some("edit")),
        role("system:basic-user", basic_user()),
        role("system:discovery", vec![paths(DISCOVERY)]),
        role("system:public-info-viewer", vec![paths(PUBLIC)]),
        role("system:monitoring", vec![paths(MONITORING)]),
        role("system:auth-delegator", auth_delegator()),
    ];
    for (level, rules) in [("admin", admin()), ("edit", edit()), ("view", view())] {
        let mut part = role(&format!("system:aggregate-to-{level}"), rules);
        part["metadata"]["labels"][aggregate_to(level)] = "true".into();
        roles.push(part);
    }
    // What a cluster gets with its metrics server: those who may see Pods may see what they use.
    let mut part = role("system:aggregated-metrics-reader", vec![rule("metrics.k8s.io", &["nodes", "pods"], READ)]);
    for level in ["admin", "edit", "view"] {
        part["metadata"]["labels"][aggregate_to(level)] = "true".into();
    }
    roles.push(part);
    roles
}

/// The built-in ClusterRoleBindings, without `apiVersion` and `kind`.
pub fn cluster_role_bindings() -> Vec<Value> {
    vec![
        binding("cluster-admin", &[MASTERS]),
        binding("system:basic-user", &[AUTHENTICATED]),
        binding("system:discovery", &[AUTHENTICATED]),
        binding("system:monitoring", &["system:monitoring"]),
        binding("system:public-info-viewer", &[AUTHENTICATED, UNAUTHENTICATED]),
    ]
}

const DISCOVERY: &[&str] = &[
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
];
const PUBLIC: &[&str] = &["/healthz", "/livez", "/readyz", "/version", "/version/"];
const MONITORING: &[&str] =
    &["/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/metrics/slis", "/readyz", "/readyz/*"];

fn basic_user() -> Vec<PolicyRule> {
    vec![
        rule("authorization.k8s.io", &["selfsubjectaccessreviews", "selfsubjectrulesreviews"], &["create"]),
        rule("authentication.k8s.io", &["selfsubjectreviews"], &["create"]),
    ]
}

fn auth_delegator() -> Vec<PolicyRule> {
    vec![
        rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
    ]
}

fn admin() -> Vec<PolicyRule> {
    vec![
        rule("authorization.k8s.io", &["localsubjectaccessreviews"], &["create"]),
        rule(GROUP, &["rolebindings", "roles"], READ_AND_WRITE),
    ]
}

fn edit() -> Vec<PolicyRule> {
    vec![
        rule("", &["pods/attach", "pods/exec", "pods/portforward", "secrets"], READ),
        rule("", &["serviceaccounts"], &["impersonate"]),
        rule("", &["pods", "pods/attach", "pods/exec", "pods/portforward"], WRITE),
        rule("", &["pods/eviction", "serviceaccounts/token"], &["create"]),
        rule(
            "",
            &[
                "configmaps",
                "events",
                "persistentvolumeclaims",
                "replicationcontrollers",
                "secrets",
                "serviceaccounts",
                "services",
            ],
            WRITE,
        ),
        rule("apps", &["daemonsets", "deployments", "replicasets", "statefulsets"], WRITE),
        rule("batch", &["cronjobs", "jobs"], WRITE),
        rule("policy", &["poddisruptionbudgets"], WRITE),
        rule("coordination.k8s.io", &["leases"], READ_AND_WRITE),
    ]
}

fn view() -> Vec<PolicyRule> {
    vec![
        rule(
            "",
            &[
                "configmaps",
                "endpoints",
                "persistentvolumeclaims",
                "persistentvolumeclaims/status",
                "pods",
                "replicationcontrollers",
                "serviceaccounts",
                "services",
                "services/status",
            ],
            READ,
        ),
        rule(
            "",
            &[
                "bindings",
                "events",
                "limitranges",
                "namespaces/status",
                "pods/log",
                "pods/status",
                "replicationcontrollers/status",
                "resourcequotas",
                "resourcequotas/status",
            ],
            READ,
        ),
        rule("", &["namespaces"], READ),
        rule(
            "apps",
            &[
                "daemonsets",
                "daemonsets/status",
                "deployments",
                "deployments/status",
                "replicasets",
                "replicasets/status",
                "statefulsets",
                "statefulsets/status",
            ],
            READ,
        ),
        rule("batch", &["cronjobs", "cronjobs/status", "jobs", "jobs/status"], READ),
        rule("policy", &["poddisruptionbudgets", "poddisruptionbudgets/status"], READ),
    ]
}

fn owned(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let api_groups = vec![group.to_owned()];
    PolicyRule { verbs: owned(verbs), api_groups, resources: owned(resources), ..PolicyRule::default() }
}

fn paths(urls: &[&str]) -> PolicyRule {
    PolicyRule { verbs: owned(&["get"]), non_resource_urls: owned(urls), ..PolicyRule::default() }
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "labels": {BOOTSTRAPPING: DEFAULTS}, "annotations": {AUTO_UPDATE: "true"}})
}

fn role(name: &str, rules: Vec<PolicyRule>) -> Value {
    let rules: Vec<Value> = rules.iter().map(PolicyRule::to_json).collect();
    json!({"metadata": metadata(name), "rules": rules})
}

fn aggregate_to(level: &str) -> String {
    format!("{GROUP}/aggregate-to-{level}")
}

/// A role that has the rules of all roles with its label, and is itself a part of a higher one.
fn aggregate(name: &str, level: &str, part_of: Option<&str>) -> Value {
    let selector = json!({"matchLabels": {(aggregate_to(level)): "true"}});
    let mut role = role(name, Vec::new());
    role["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
    if let Some(higher) = part_of {
        role["metadata"]["labels"][aggregate_to(higher)] = "true".into();
    }
    role
}

/// The binding of the ClusterRole of the same name.
fn binding(name: &str, groups: &[&str]) -> Value {
    let subjects: Vec<Value> =
        groups.iter().map(|group| json!({"kind": "Group", "apiGroup": GROUP, "name": group})).collect();
    json!({
        "metadata": metadata(name), "subjects": subjects,
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
    })
}

/// RBAC-13: the stored object with what it lacks of the built-in one, or None if it lacks nothing or its owner keeps it
/// as it is. What users added stays.
pub fn restored(stored: &Value, wanted: &Value) -> Option<Value> {
    let kept = stored.pointer("/metadata/annotations").and_then(|annotations| annotations.get(AUTO_UPDATE));
    if kept.and_then(Value::as_str) == Some("false") {
        return None;
    }
    let mut object = stored.clone();
    for map in ["labels", "annotations"] {
        restore_map(&mut object["metadata"], map, &wanted["metadata"][map]);
    }
    match wanted.pointer("/aggregationRule/clusterRoleSelectors").and_then(Value::as_array) {
        Some(selectors) => {
            selectors.iter().for_each(|selector| restore_item(&mut object["aggregationRule"], SELECTORS, selector));
        }
        None => restore_rules(&mut object, wanted),
    }
    if let Some(role) = wanted.get("roleRef") {
        object["roleRef"] = role.clone();
    }
    for subject in wanted.get("subjects").and_then(Value::as_array).into_iter().flatten() {
        restore_item(&mut object, "subjects", subject);
    }
    (object != *stored).then_some(object)
}

fn restore_map(metadata: &mut Value, map: &str, wanted: &Value) {
    for (key, value) in wanted.as_object().into_iter().flatten() {
        metadata[map][key] = value.clone();
    }
}

fn restore_rules(object: &mut Value, wanted: &Value) {
    let held = PolicyRule::read_all(object.get("rules"));
    for rule in wanted.get("rules").and_then(Value::as_array).into_iter().flatten() {
        let one = PolicyRule::read_all(Some(&json!([rule])));
        match ungranted(&held, &one) {
            None => {}
            Some(Ungranted::Missing(_) | Ungranted::TooMany) => restore_item(object, "rules", rule),
        }
    }
}

fn restore_item(object: &mut Value, list: &str, item: &Value) {
    if !object[list].is_array() {
        object[list] = json!([]);
    }
    if let Some(items) = object[list].as_array_mut().filter(|items| !items.contains(item)) {
        items.push(item.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;

    /// RBAC-12: a rule for something that is not served would be a promise that no request can use.
    #[test]
    fn the_built_in_roles_name_what_is_served() {
        for role in cluster_roles() {
            let name = role["metadata"]["name"].as_str().unwrap();
            for rule in
                PolicyRule::read_all(role.get("rules")).iter().filter(|rule| !rule.resources.contains(&"*".into()))
            {
                for resource in &rule.resources {
                    let (plural, sub) = resource.split_once('/').unwrap_or((resource, ""));
                    let row = catalog::find(&rule.api_groups[0], catalog::version_of(&rule.api_groups[0]), plural);
                    let row = row.unwrap_or_else(|| panic!("{name}: {plural} is not served"));
                    assert!(sub.is_empty() || row.subresource(sub).is_some(), "{name}: {resource} is not served");
                }
            }
        }
        let roles: Vec<Value> = cluster_roles();
        for binding in cluster_role_bindings() {
            let bound = roles.iter().any(|role| role["metadata"]["name"] == binding["roleRef"]["name"]);
            assert!(bound, "{}", binding["metadata"]["name"]);
        }
    }

    /// RBAC-13.
    #[test]
    fn a_built_in_role_gets_back_what_it_lacks_and_keeps_what_users_added() {
        let wanted = role("r", vec![rule("", &["pods"], READ), rule("batch", &["jobs"], READ)]);
        assert_eq!(restored(&wanted, &wanted), None);

        let mut changed = wanted.clone();
        changed["rules"] = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
            {"verbs": ["*"], "apiGroups": ["batch"], "resources": ["*"]}]);
        changed["metadata"]["labels"] = json!({"mine": "yes"});
        let back = restored(&changed, &wanted).unwrap();
        assert_eq!(back["rules"].as_array().unwrap().len(), 3, "{back}");
        assert_eq!(back["rules"][2], wanted["rules"][0]);
        assert_eq!(back["metadata"]["labels"], json!({"mine": "yes", BOOTSTRAPPING: DEFAULTS}));

        changed["metadata"]["annotations"] = json!({AUTO_UPDATE: "false"});
        assert_eq!(restored(&changed, &wanted), None);

        let wanted = aggregate("a", "view", None);
        assert_eq!(restored(&wanted, &wanted), None);
        let mut changed = wanted.clone();
        changed["aggregationRule"] = json!({SELECTORS: [{"matchLabels": {"mine": "yes"}}]});
        let back = restored(&changed, &wanted).unwrap();
        assert_eq!(back["aggregationRule"][SELECTORS].as_array().unwrap().len(), 2, "{back}");
        assert_eq!(restored(&role("a", Vec::new()), &wanted).unwrap()["aggregationRule"], wanted["aggregationRule"]);

        let wanted = binding("b", &["g", "h"]);
        let mut changed = wanted.clone();
        changed["subjects"] = json!([{"kind": "User", "apiGroup": GROUP, "name": "u"}, wanted["subjects"][1]]);
        let back = restored(&changed, &wanted).unwrap();
        assert_eq!(back["subjects"], json!([changed["subjects"][0], wanted["subjects"][1], wanted["subjects"][0]]));
    }
}
