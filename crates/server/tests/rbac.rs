//! Roles and bindings over HTTPS: the pure authorizer, reviews and real requests give the same answer.

use crate::support::{Answer, Credentials, Running, get, request};
use rcgen::{CertificateParams, DnType};
use tally_api::catalog;
use tally_api::rbac::{AccessRequest, AccessTarget, RbacPolicy, Requester, ResourceAttributes, builtin};
use tally_value::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1";

fn role_ref(kind: &str, name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name})
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name})
}

fn group(name: &str) -> Value {
    json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": name})
}

fn account(namespace: &str, name: &str) -> Value {
    json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

fn named_rule(group: &str, resources: &[&str], names: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "resourceNames": names, "verbs": verbs})
}

/// Resource, namespace and object.
type Stored = (&'static str, &'static str, Value);

fn cluster_role(name: &str, rules: Value) -> Stored {
    ("clusterroles", "", json!({"metadata": {"name": name}, "rules": rules}))
}

fn role(namespace: &'static str, name: &str, rules: Value) -> Stored {
    ("roles", namespace, json!({"metadata": {"name": name}, "rules": rules}))
}

fn bound(namespace: &'static str, name: &str, (kind, role): (&str, &str), subjects: Value) -> Stored {
    let plural = if namespace.is_empty() { "clusterrolebindings" } else { "rolebindings" };
    (plural, namespace, json!({"metadata": {"name": name}, "roleRef": role_ref(kind, role), "subjects": subjects}))
}

/// The roles and bindings of the tests.
fn policy_objects() -> Vec<Stored> {
    let part = json!({
        "metadata": {"name": "monitor-pods", "labels": {"example.com/monitor": "true"}},
        "rules": [rule("", &["pods"], &["list"])],
    });
    let other_part = json!({
        "metadata": {"name": "monitor-jobs", "labels": {"example.com/monitor": "true"}},
        "rules": [rule("batch", &["jobs"], &["list"])],
    });
    let whole = json!({
        "metadata": {"name": "monitor"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"example.com/monitor": "true"}}]}, "rules": [],
    });
    vec![
        bound("ci", "runner", ("ClusterRole", "edit"), json!([account("ci", "runner")])),
        bound("ci", "developers", ("ClusterRole", "view"), json!([group("dev")])),
        bound("ci", "carol", ("ClusterRole", "admin"), json!([user("carol")])),
        role(
            "ci",
            "one-pod",
            json!([
                named_rule(
                    "",
                    &["pods"],
                    &["p1"],
                    &["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"],
                ),
                named_rule("", &["pods/log"], &["p1"], &["get"]),
            ]),
        ),
        bound("ci", "bob", ("Role", "one-pod"), json!([user("bob")])),
        cluster_role(
            "operator",
            json!([
                rule("", &["nodes"], &["get", "list"]),
                rule("*", &["*/status"], &["get"]),
                {"nonResourceURLs": ["/metrics", "/debug/*"], "verbs": ["get"]},
            ]),
        ),
        bound("", "operator", ("ClusterRole", "operator"), json!([user("ops")])),
        // The paths of a ClusterRole count only if it is bound in the whole cluster.
        bound("ci", "local-operator", ("ClusterRole", "operator"), json!([user("local")])),
        ("clusterroles", "", part),
        ("clusterroles", "", other_part),
        ("clusterroles", "", whole),
        bound("", "monitor", ("ClusterRole", "monitor"), json!([user("mona")])),
        bound("ci", "dangling", ("Role", "missing"), json!([user("dan")])),
        cluster_role(
            "impersonator",
            json!([
                named_rule("", &["users"], &["bob"], &["impersonate"]),
                named_rule("", &["groups"], &["dev"], &["impersonate"])
            ]),
        ),
        bound("", "impersonator", ("ClusterRole", "impersonator"), json!([user("isa")])),
        bound("", "root", ("ClusterRole", "cluster-admin"), json!([user("root")])),
    ]
}

/// The policy of these objects and of the built-in ones, without a server.
fn pure_policy() -> RbacPolicy {
    let mut policy = RbacPolicy::default();
    let name_of = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    for role in builtin::cluster_roles() {
        policy.put_cluster_role(&name_of(&role), &role);
    }
    for binding in builtin::cluster_role_bindings() {
        policy.put_binding("", &name_of(&binding), &binding);
    }
    for (plural, namespace, object) in policy_objects() {
        let name = name_of(&object);
        match plural {
            "roles" => policy.put_role(namespace, &name, &object),
            "clusterroles" => policy.put_cluster_role(&name, &object),
            _ => policy.put_binding(namespace, &name, &object),
        }
    }
    policy.settle();
    policy
}

/// An identity of the tests: its user name, its groups, and its credentials.
struct Identity {
    name: String,
    groups: Vec<String>,
    credentials: Credentials,
}

struct World {
    server: Running,
    policy: RbacPolicy,
}

impl World {
    async fn start() -> World {
        let server = Running::start().await;
        for namespace in ["ci", "other"] {
            created(&server.create("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await);
        }
        for (namespace, name) in [("ci", "runner"), ("ci", "default"), ("other", "runner")] {
            let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
            created(&server.create(&accounts, &json!({"metadata": {"name": name}})).await);
        }
        for (plural, namespace, object) in policy_objects() {
            created(&server.create(&rbac_path(plural, namespace), &object).await);
        }
        World { server, policy: pure_policy() }
    }

    /// `namespace:name` is a service account, `name` a user with a certificate; `dev` users are in the group `dev`.
    async fn identity(&self, name: &str) -> Identity {
        let owned = |groups: &[&str]| groups.iter().map(|group| (*group).to_owned()).collect::<Vec<_>>();
        if let Some((namespace, account)) = name.split_once(':') {
            let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
            let token = self.server.create(&path, &json!({})).await.value();
            let of_namespace = format!("system:serviceaccounts:{namespace}");
            return Identity {
                name: format!("system:serviceaccount:{name}"),
                groups: owned(&["system:serviceaccounts", &of_namespace, "system:authenticated"]),
                credentials: self.server.token(token["status"]["token"].as_str().unwrap()),
            };
        }
        let organizations: &[&str] = match name {
            "kubernetes-admin" => &["system:masters"],
            "alice" => &["dev"],
            _ => &[],
        };
        let change = |params: &mut CertificateParams| {
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, name);
            for organization in organizations {
                params.distinguished_name.push(DnType::OrganizationName, *organization);
            }
        };
        let mut groups = owned(organizations);
        groups.push("system:authenticated".to_owned());
        Identity { name: name.to_owned(), groups, credentials: self.server.issue(change) }
    }

    async fn call(&self, who: &str, method: &str, path: &str, body: &Value) -> Answer {
        let identity = self.identity(who).await;
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.server.call(&identity.credentials, request(method, path, body)).await
    }
}

fn created(answer: &Answer) {
    assert_eq!(answer.code, 201, "{}", answer.value());
}

fn message(answer: &Answer) -> String {
    answer.value()["message"].as_str().unwrap_or_default().to_owned()
}

fn rbac_path(plural: &str, namespace: &str) -> String {
    if namespace.is_empty() { format!("{RBAC}/{plural}") } else { format!("{RBAC}/namespaces/{namespace}/{plural}") }
}

/// One row: identity, verb, `resource[.group][/subresource]` or path, namespace, name, allowed.
type Row = (&'static str, &'static str, &'static str, &'static str, &'static str, bool);

const ROWS: &[Row] = &[
    // The administrator may do everything, whatever the roles say.
    ("kubernetes-admin", "get", "jobs.batch", "ci", "j", true),
    ("kubernetes-admin", "deletecollection", "secrets", "other", "", true),
    ("kubernetes-admin", "create", "clusterrolebindings.rbac.authorization.k8s.io", "", "", true),
    ("kubernetes-admin", "get", "/metrics", "", "", true),
    ("kubernetes-admin", "get", "/", "", "", true),
    // A user with cluster-admin by a binding.
    ("root", "delete", "nodes", "", "n", true),
    ("root", "get", "/metrics", "", "", true),
    ("root", "list", "secrets", "", "", true),
    // A service account without a binding: discovery, and questions about itself.
    ("ci:default", "get", "/api", "", "", true),
    ("ci:default", "get", "/apis/batch/v1", "", "", true),
    ("ci:default", "get", "/openapi/v3", "", "", true),
    ("ci:default", "get", "/version", "", "", true),
    ("ci:default", "get", "/", "", "", false),
    ("ci:default", "get", "/metrics", "", "", false),
    ("ci:default", "post", "/api", "", "", false),
    ("ci:default", "create", "selfsubjectaccessreviews.authorization.k8s.io", "", "", true),
    ("ci:default", "create", "selfsubjectrulesreviews.authorization.k8s.io", "", "", true),
    ("ci:default", "create", "selfsubjectreviews.authentication.k8s.io", "", "", true),
    ("ci:default", "create", "subjectaccessreviews.authorization.k8s.io", "", "", false),
    ("ci:default", "create", "localsubjectaccessreviews.authorization.k8s.io", "ci", "", false),
    ("ci:default", "create", "tokenreviews.authentication.k8s.io", "", "", false),
    ("ci:default", "get", "pods", "ci", "p", false),
    ("ci:default", "create", "jobs.batch", "ci", "", false),
    ("ci:default", "get", "serviceaccounts", "ci", "default", false),
    ("ci:default", "create", "serviceaccounts/token", "ci", "default", false),
    // A service account with edit in one namespace.
    ("ci:runner", "create", "jobs.batch", "ci", "", true),
    ("ci:runner", "get", "jobs.batch", "ci", "j", true),
    ("ci:runner", "list", "jobs.batch", "ci", "", true),
    ("ci:runner", "watch", "jobs.batch", "ci", "", true),
    ("ci:runner", "patch", "jobs.batch", "ci", "j", true),
    ("ci:runner", "delete", "jobs.batch", "ci", "j", true),
    ("ci:runner", "deletecollection", "jobs.batch", "ci", "", true),
    ("ci:runner", "get", "pods/log", "ci", "p", true),
    ("ci:runner", "create", "pods/eviction", "ci", "p", true),
    ("ci:runner", "create", "pods/binding", "ci", "p", false),
    ("ci:runner", "update", "jobs.batch/status", "ci", "j", false),
    ("ci:runner", "get", "jobs.batch/status", "ci", "j", true),
    ("ci:runner", "get", "secrets", "ci", "s", true),
    ("ci:runner", "get", "namespaces", "ci", "ci", true),
    ("ci:runner", "create", "jobs.batch", "other", "", false),
    ("ci:runner", "list", "jobs.batch", "other", "", false),
    ("ci:runner", "list", "jobs.batch", "", "", false),
    ("ci:runner", "watch", "pods", "", "", false),
    ("ci:runner", "get", "namespaces", "other", "other", false),
    ("ci:runner", "list", "namespaces", "", "", false),
    ("ci:runner", "get", "roles.rbac.authorization.k8s.io", "ci", "one-pod", false),
    ("ci:runner", "create", "rolebindings.rbac.authorization.k8s.io", "ci", "", false),
    ("ci:runner", "delete", "resourcequotas", "ci", "q", false),
    ("ci:runner", "get", "nodes", "", "n", false),
    // An account of the same name in another namespace.
    ("other:runner", "list", "jobs.batch", "ci", "", false),
    ("other:runner", "list", "jobs.batch", "other", "", false),
    // A group with view.
    ("alice", "list", "pods", "ci", "", true),
    ("alice", "get", "configmaps", "ci", "c", true),
    ("alice", "get", "secrets", "ci", "s", false),
    ("alice", "create", "pods", "ci", "", false),
    ("alice", "delete", "jobs.batch", "ci", "j", false),
    ("alice", "list", "pods", "other", "", false),
    // An administrator of one namespace.
    ("carol", "create", "rolebindings.rbac.authorization.k8s.io", "ci", "", true),
    ("carol", "get", "roles.rbac.authorization.k8s.io", "ci", "one-pod", true),
    ("carol", "create", "localsubjectaccessreviews.authorization.k8s.io", "ci", "", true),
    ("carol", "create", "jobs.batch", "ci", "", true),
    ("carol", "create", "clusterrolebindings.rbac.authorization.k8s.io", "", "", false),
    ("carol", "delete", "namespaces", "ci", "ci", false),
    ("carol", "create", "rolebindings.rbac.authorization.k8s.io", "other", "", false),
    // RBAC-3: names.
    ("bob", "get", "pods", "ci", "p1", true),
    ("bob", "get", "pods", "ci", "p2", false),
    ("bob", "get", "pods/log", "ci", "p1", true),
    ("bob", "get", "pods/log", "ci", "p2", false),
    ("bob", "get", "pods/status", "ci", "p1", false),
    ("bob", "patch", "pods", "ci", "p1", true),
    ("bob", "delete", "pods", "ci", "p1", true),
    ("bob", "list", "pods", "ci", "", false),
    ("bob", "list", "pods", "ci", "p1", true),
    ("bob", "watch", "pods", "ci", "p1", true),
    ("bob", "watch", "pods", "ci", "p2", false),
    ("bob", "create", "pods", "ci", "", false),
    ("bob", "deletecollection", "pods", "ci", "", false),
    // RBAC-4: the whole cluster, subresources of everything, and paths.
    ("ops", "get", "nodes", "", "n", true),
    ("ops", "delete", "nodes", "", "n", false),
    ("ops", "get", "pods/status", "other", "p", true),
    ("ops", "get", "jobs.batch/status", "ci", "j", true),
    ("ops", "get", "pods", "other", "p", false),
    ("ops", "get", "/metrics", "", "", true),
    ("ops", "post", "/metrics", "", "", false),
    ("ops", "get", "/debug/x", "", "", true),
    ("ops", "get", "/debug", "", "", false),
    ("local", "get", "/metrics", "", "", false),
    ("local", "get", "pods/status", "ci", "p", true),
    ("local", "get", "pods/status", "other", "p", false),
    ("local", "list", "nodes", "", "", false),
    // RBAC-5: aggregation.
    ("mona", "list", "pods", "", "", true),
    ("mona", "list", "jobs.batch", "other", "", true),
    ("mona", "get", "pods", "ci", "p", false),
    // A binding to a role that does not exist.
    ("dan", "get", "pods", "ci", "p", false),
    // Resources that are not served.
    ("root", "list", "frobs.example.com", "ci", "", true),
    ("alice", "list", "frobs.example.com", "ci", "", false),
];

struct Asked<'a> {
    group: &'a str,
    resource: &'a str,
    subresource: &'a str,
}

impl<'a> Asked<'a> {
    fn read(text: &'a str) -> Asked<'a> {
        let (text, subresource) = text.split_once('/').unwrap_or((text, ""));
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        Asked { group, resource, subresource }
    }
}

/// The request that does what a row says.
fn real_request((_, verb, what, namespace, name, _): Row) -> (String, String) {
    if what.starts_with('/') {
        return (verb.to_uppercase(), what.to_owned());
    }
    let Asked { group, resource, subresource } = Asked::read(what);
    let mut path = if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{group}/v1") };
    let namespaced = catalog::find(group, "v1", resource).is_none_or(|row| row.namespaced);
    if namespaced && !namespace.is_empty() {
        path += &format!("/namespaces/{namespace}");
    }
    path += &format!("/{resource}");
    let listed = matches!(verb, "list" | "watch");
    if !name.is_empty() && !listed {
        path += &format!("/{name}");
    }
    if !subresource.is_empty() {
        path += &format!("/{subresource}");
    }
    path += "?dryRun=All";
    if listed && !name.is_empty() {
        path += &format!("&fieldSelector=metadata.name%3D{name}");
    }
    if verb == "watch" {
        path += "&watch=1&timeoutSeconds=1";
    }
    let method = match verb {
        "create" => "POST",
        "update" => "PUT",
        "patch" => "PATCH",
        "delete" | "deletecollection" => "DELETE",
        _ => "GET",
    };
    (method.to_owned(), path)
}

fn spec_of((_, verb, what, namespace, name, _): Row) -> Value {
    if what.starts_with('/') {
        return json!({"nonResourceAttributes": {"path": what, "verb": verb}});
    }
    let Asked { group, resource, subresource } = Asked::read(what);
    json!({"resourceAttributes": {
        "verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": namespace, "name": name,
    }})
}

fn pure_request<'a>((_, verb, what, namespace, name, _): &'a Row) -> AccessRequest<'a> {
    if what.starts_with('/') {
        return AccessRequest { verb, target: AccessTarget::Path(what) };
    }
    let Asked { group, resource, subresource } = Asked::read(what);
    AccessRequest::resource(verb, ResourceAttributes { group, resource, subresource, namespace, name })
}

/// RBAC-1, RBAC-2, RBAC-3, RBAC-4, RBAC-5, RBAC-14.
#[tokio::test]
async fn the_authorizer_the_reviews_and_the_requests_agree() {
    let world = World::start().await;
    assert!(ROWS.len() >= 60, "{} rows", ROWS.len());
    let mut problems = Vec::new();
    for row in ROWS {
        let (who, .., allowed) = *row;
        let identity = world.identity(who).await;
        let requester = Requester { name: &identity.name, groups: &identity.groups };
        let pure = world.policy.allows(requester, &pure_request(row));

        let mut spec = spec_of(*row);
        let own = json!({"spec": spec}).to_string();
        let own = request("POST", &format!("{REVIEWS}/selfsubjectaccessreviews"), own);
        let own = world.server.call(&identity.credentials, own).await.value()["status"]["allowed"] == true;
        spec["user"] = identity.name.as_str().into();
        spec["groups"] = json!(identity.groups);
        let review = world.server.create(&format!("{REVIEWS}/subjectaccessreviews"), &json!({"spec": spec})).await;
        let reviewed = review.value()["status"]["allowed"] == true;

        let (method, path) = real_request(*row);
        let answer = world.server.open(&identity.credentials, request(&method, &path, "")).await;
        let served = answer.status() != 403;
        if [pure, own, reviewed, served] != [allowed; 4] {
            problems.push(format!(
                "{row:?}: pure {pure}, own review {own}, review {reviewed}, {method} {path} {}",
                answer.status()
            ));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// RBAC-10.
#[tokio::test]
async fn a_refusal_has_the_message_of_kubernetes() {
    let world = World::start().await;
    for (who, path, expected) in [
        (
            "alice",
            "/apis/batch/v1/namespaces/other/jobs/x",
            "jobs.batch \"x\" is forbidden: User \"alice\" cannot get resource \"jobs\" in API group \"batch\" in the \
             namespace \"other\"",
        ),
        (
            "alice",
            "/api/v1/nodes",
            "nodes is forbidden: User \"alice\" cannot list resource \"nodes\" in API group \"\" at the cluster scope",
        ),
        (
            "dan",
            "/api/v1/namespaces/ci/pods/p",
            "pods \"p\" is forbidden: User \"dan\" cannot get resource \"pods\" in API group \"\" in the namespace \"ci\": \
             RBAC: role.rbac.authorization.k8s.io \"missing\" not found",
        ),
        ("ci:default", "/metrics", {
            "forbidden: User \"system:serviceaccount:ci:default\" cannot get path \"/metrics\""
        }),
    ] {
        let answer = world.call(who, "GET", path, &Value::Null).await;
        assert_eq!((answer.code, message(&answer).as_str()), (403, expected));
    }
    let answer = world.call("alice", "GET", "/apis/batch/v1/namespaces/other/jobs/x", &Value::Null).await.value();
    assert_eq!(answer["reason"], "Forbidden");
    assert_eq!(answer["details"], json!({"name": "x", "group": "batch", "kind": "jobs"}));
}

/// RBAC-1: authorization comes before everything that a body could cause.
#[tokio::test]
async fn a_request_is_refused_before_its_body_is_read() {
    let world = World::start().await;
    let path = "/apis/batch/v1/namespaces/other/jobs";
    let identity = world.identity("ci:runner").await;
    let bad = world.server.call(&identity.credentials, request("POST", path, "{not json")).await;
    assert_eq!(bad.code, 403);
    let bad =
        world.server.call(&identity.credentials, request("POST", &path.replace("other", "ci"), "{not json")).await;
    assert_eq!(bad.code, 400);
}

/// RBAC-16.
#[tokio::test]
async fn a_service_account_with_edit_runs_jobs_in_its_namespace_and_nothing_elsewhere() {
    let world = World::start().await;
    let job = json!({
        "metadata": {"name": "j"},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "process", "command": ["true"]}]}}},
    });
    let jobs = |namespace: &str| format!("/apis/batch/v1/namespaces/{namespace}/jobs");
    created(&world.call("ci:runner", "POST", &jobs("ci"), &job).await);
    assert_eq!(world.call("ci:runner", "GET", &format!("{}/j", jobs("ci")), &Value::Null).await.code, 200);
    assert_eq!(world.call("ci:runner", "DELETE", &format!("{}/j", jobs("ci")), &Value::Null).await.code, 200);
    assert_eq!(world.call("ci:runner", "POST", &jobs("other"), &job).await.code, 403);
    assert_eq!(world.call("ci:default", "POST", &jobs("ci"), &job).await.code, 403);

    // The binding counts until it is deleted, and no longer.
    let binding = format!("{}/runner", rbac_path("rolebindings", "ci"));
    assert_eq!(world.call("kubernetes-admin", "DELETE", &binding, &Value::Null).await.code, 200);
    assert_eq!(world.call("ci:runner", "GET", &jobs("ci"), &Value::Null).await.code, 403);
}

/// RBAC-8.
#[tokio::test]
async fn a_role_grants_no_more_than_its_writer_holds() {
    let world = World::start().await;
    let path = rbac_path("roles", "ci");
    let wanted = |rules: Value| json!({"metadata": {"name": "r"}, "rules": rules});
    // Carol is administrator of the namespace: she holds Jobs and Roles, and not the status of Jobs.
    let answer =
        world.call("carol", "POST", &path, &wanted(json!([rule("batch", &["jobs"], &["get", "create"])]))).await;
    created(&answer);
    let more = json!([rule("batch", &["jobs", "jobs/status"], &["get", "update"])]);
    let answer = world.call("carol", "PUT", &format!("{path}/r"), &wanted(more.clone())).await;
    assert_eq!(answer.code, 403);
    assert_eq!(
        message(&answer),
        "roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"carol\" (groups=[\"system:authenticated\"]) is \
         attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"batch\"], Resources:[\"jobs/status\"], Verbs:[\"update\"]}"
    );
    let patch = json!([{"op": "add", "path": "/rules/-", "value": rule("*", &["*"], &["*"])}]);
    let identity = world.identity("carol").await;
    let mut asked = request("PATCH", &format!("{path}/r"), patch.to_string());
    asked.headers_mut().insert("content-type", "application/json-patch+json".parse().unwrap());
    assert_eq!(world.server.call(&identity.credentials, asked).await.code, 403, "a patch");
    let dry = world.call("carol", "POST", &format!("{path}?dryRun=All"), &wanted(more.clone())).await;
    assert_eq!(dry.code, 403, "a dry run");
    let stored = world.call("carol", "GET", &format!("{path}/r"), &Value::Null).await.value();
    assert_eq!(stored["rules"], json!([rule("batch", &["jobs"], &["get", "create"])]));

    // With `escalate` the same write is allowed.
    let escalate = json!([named_rule("rbac.authorization.k8s.io", &["roles"], &["r"], &["escalate"])]);
    created(&world.server.create(&path, &json!({"metadata": {"name": "escalate"}, "rules": escalate})).await);
    let (plural, namespace, binding) = bound("ci", "escalate", ("Role", "escalate"), json!([user("carol")]));
    created(&world.server.create(&rbac_path(plural, namespace), &binding).await);
    assert_eq!(world.call("carol", "PUT", &format!("{path}/r"), &wanted(more)).await.code, 200);

    // A user with all rights by a binding may aggregate; others may not.
    let role = cluster_role("writer", json!([rule("rbac.authorization.k8s.io", &["clusterroles"], &["create"])]));
    created(&world.server.create(&rbac_path(role.0, ""), &role.2).await);
    let (plural, _, binding) = bound("", "writer", ("ClusterRole", "writer"), json!([user("wanda")]));
    created(&world.server.create(&rbac_path(plural, ""), &binding).await);
    let gather = json!({
        "metadata": {"name": "gather"}, "rules": [], "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
    });
    let answer = world.call("wanda", "POST", &rbac_path("clusterroles", ""), &gather).await;
    assert_eq!(answer.code, 403);
    assert!(message(&answer).ends_with("must have cluster-admin privileges to use the aggregationRule"));
    created(&world.call("root", "POST", &rbac_path("clusterroles", ""), &gather).await);
}

/// RBAC-9.
#[tokio::test]
async fn a_binding_grants_no_more_than_its_writer_holds() {
    let world = World::start().await;
    let path = rbac_path("rolebindings", "ci");
    let wanted = |kind: &str, role: &str| bound("ci", "b", (kind, role), json!([user("eve")])).2;
    let answer = world.call("carol", "POST", &path, &wanted("ClusterRole", "cluster-admin")).await;
    assert_eq!(answer.code, 403);
    let text = message(&answer);
    assert!(text.contains("is attempting to grant RBAC permissions not currently held"), "{text}");
    let answer = world.call("carol", "POST", &path, &wanted("Role", "nope")).await;
    assert_eq!((answer.code, message(&answer).as_str()), (404, "roles.rbac.authorization.k8s.io \"nope\" not found"));
    created(&world.call("carol", "POST", &path, &wanted("ClusterRole", "edit")).await);
    assert_eq!(world.call("eve", "GET", "/api/v1/namespaces/ci/secrets", &Value::Null).await.code, 200);

    // RBAC-7: the role of a binding stays.
    let mut other = wanted("ClusterRole", "view");
    let answer = world.call("carol", "PUT", &format!("{path}/b"), &other).await;
    assert_eq!(answer.code, 422);
    assert!(message(&answer).ends_with("cannot change roleRef"), "{}", message(&answer));

    // With `bind` on one role that role can be bound.
    let bind = json!([named_rule("rbac.authorization.k8s.io", &["clusterroles"], &["operator"], &["bind"])]);
    created(
        &world.server.create(&rbac_path("roles", "ci"), &json!({"metadata": {"name": "bind"}, "rules": bind})).await,
    );
    let (plural, namespace, binding) = bound("ci", "bind", ("Role", "bind"), json!([user("carol")]));
    created(&world.server.create(&rbac_path(plural, namespace), &binding).await);
    other = bound("ci", "c", ("ClusterRole", "operator"), json!([user("eve")])).2;
    created(&world.call("carol", "POST", &path, &other).await);
    other = bound("ci", "d", ("ClusterRole", "cluster-admin"), json!([user("eve")])).2;
    assert_eq!(world.call("carol", "POST", &path, &other).await.code, 403);
    // RBAC-15: a PUT that creates is a create.
    let updater = json!([rule("rbac.authorization.k8s.io", &["rolebindings"], &["update"])]);
    let role = json!({"metadata": {"name": "update"}, "rules": updater});
    created(&world.server.create(&rbac_path("roles", "other"), &role).await);
    let (plural, namespace, binding) = bound("other", "update", ("Role", "update"), json!([user("uma")]));
    created(&world.server.create(&rbac_path(plural, namespace), &binding).await);
    let own = bound("other", "new", ("Role", "update"), json!([user("uma")])).2;
    let answer = world.call("uma", "PUT", &format!("{}/new", rbac_path("rolebindings", "other")), &own).await;
    assert_eq!(answer.code, 403);
    assert!(message(&answer).contains("cannot create resource \"rolebindings\""), "{}", message(&answer));
}

/// RBAC-5: a role that gets the label of an aggregation counts at once, and the built-in roles can be extended.
#[tokio::test]
async fn a_labelled_role_becomes_part_of_a_built_in_one() {
    let world = World::start().await;
    assert_eq!(world.call("alice", "GET", "/api/v1/namespaces/ci/secrets", &Value::Null).await.code, 403);
    let mut part = cluster_role("secrets-in-view", json!([rule("", &["secrets"], &["list"])])).2;
    part["metadata"]["labels"] = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    created(&world.server.create(&rbac_path("clusterroles", ""), &part).await);
    assert_eq!(world.call("alice", "GET", "/api/v1/namespaces/ci/secrets", &Value::Null).await.code, 200);
    // Clients see the rules in the roles a moment later.
    let shown = async |name: &str| {
        world
            .server
            .call(&world.server.admin(), get(&format!("{}/{name}", rbac_path("clusterroles", ""))))
            .await
            .value()
    };
    for role in ["view", "edit", "admin"] {
        let mut waited = 0;
        while !shown(role).await["rules"].as_array().unwrap().contains(&rule("", &["secrets"], &["list"])) {
            waited += 1;
            assert!(waited < 200, "{role} never shows what it aggregates");
            tokio::time::sleep(std::time::Duration::from_millis(25)).await;
        }
    }
    let path = format!("{}/secrets-in-view", rbac_path("clusterroles", ""));
    assert_eq!(world.call("kubernetes-admin", "DELETE", &path, &Value::Null).await.code, 200);
    assert_eq!(world.call("alice", "GET", "/api/v1/namespaces/ci/secrets", &Value::Null).await.code, 403);
}

async fn call_as(world: &World, who: &str, headers: &[(&'static str, &str)], path: &str) -> Answer {
    let identity = world.identity(who).await;
    let mut asked = get(path);
    for (name, value) in headers {
        asked.headers_mut().append(*name, value.parse().unwrap());
    }
    world.server.call(&identity.credentials, asked).await
}

/// RBAC-11.
#[tokio::test]
async fn a_user_acts_as_those_that_the_user_may_impersonate() {
    let world = World::start().await;
    let (own_pod, pods) = ("/api/v1/namespaces/ci/pods/p1", "/api/v1/namespaces/ci/pods");
    let (as_user, as_group) = ("impersonate-user", "impersonate-group");
    for (who, headers, path, code) in [
        ("isa", &[][..], own_pod, 403),
        ("isa", &[(as_user, "bob")], own_pod, 404),
        ("isa", &[(as_user, "bob")], pods, 403),
        ("isa", &[(as_user, "bob"), (as_group, "dev")], pods, 200),
        ("isa", &[(as_user, "bob"), (as_group, "system:masters")], pods, 403),
        ("isa", &[(as_user, "kubernetes-admin")], pods, 403),
        ("isa", &[(as_user, "system:serviceaccount:ci:runner")], pods, 403),
        ("isa", &[(as_group, "dev")], pods, 400),
        ("isa", &[(as_user, "bob"), ("impersonate-extra-scopes", "x")], pods, 400),
        // edit contains impersonation of the service accounts of the namespace.
        ("ci:runner", &[(as_user, "system:serviceaccount:ci:default")], pods, 403),
        ("ci:runner", &[(as_user, "system:serviceaccount:ci:default")], "/api", 200),
        ("ci:runner", &[(as_user, "system:serviceaccount:other:runner")], "/api", 403),
        ("kubernetes-admin", &[(as_user, "a-user-without-roles")], pods, 403),
        ("kubernetes-admin", &[(as_user, "system:serviceaccount:ci:runner")], pods, 200),
        ("kubernetes-admin", &[(as_user, "x"), (as_group, "system:masters")], "/metrics", 200),
        ("kubernetes-admin", &[(as_user, "system:anonymous")], "/version", 200),
        ("kubernetes-admin", &[(as_user, "system:anonymous")], "/api", 403),
    ] {
        let answer = call_as(&world, who, headers, path).await;
        assert_eq!(answer.code, code, "{who} {headers:?} {path}: {}", answer.value());
    }
    let answer = call_as(&world, "isa", &[(as_user, "root")], pods).await;
    let expected = "users \"root\" is forbidden: User \"isa\" cannot impersonate resource \"users\" in API group \"\" at the \
                    cluster scope";
    assert_eq!(message(&answer), expected);

    let identity = world.identity("kubernetes-admin").await;
    let mut asked = request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", "{}");
    asked.headers_mut().insert(as_user, "system:serviceaccount:ci:runner".parse().unwrap());
    let info = world.server.call(&identity.credentials, asked).await.value()["status"]["userInfo"].clone();
    assert_eq!(info["username"], "system:serviceaccount:ci:runner");
    assert_eq!(info["groups"], json!(["system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated"]));
}

/// RBAC-14.
#[tokio::test]
async fn reviews_say_why_and_what_is_allowed() {
    let world = World::start().await;
    let review = async |who: &str, path: &str, spec: Value| {
        world.call(who, "POST", &format!("{REVIEWS}/{path}"), &json!({"spec": spec})).await
    };
    let attributes = json!({"verb": "create", "group": "batch", "resource": "jobs", "namespace": "ci"});
    let own = review("ci:runner", "selfsubjectaccessreviews", json!({"resourceAttributes": attributes})).await.value();
    let reason = "RBAC: allowed by RoleBinding \"runner/ci\" of ClusterRole \"edit\" to ServiceAccount \"runner/ci\"";
    assert_eq!(own["status"], json!({"allowed": true, "reason": reason}));
    let own = review("kubernetes-admin", "selfsubjectaccessreviews", json!({"resourceAttributes": attributes})).await;
    assert_eq!(own.value()["status"], json!({"allowed": true}));

    let local = "namespaces/ci/localsubjectaccessreviews";
    let about = json!({"user": "bob", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "ci", "name": "p1"}});
    let answer = review("carol", local, about.clone()).await;
    assert_eq!((answer.code, &answer.value()["status"]["allowed"]), (201, &json!(true)), "{}", answer.value());
    let mut elsewhere = about.clone();
    elsewhere["resourceAttributes"]["namespace"] = "other".into();
    let answer = review("carol", local, elsewhere).await;
    let text = "spec.resourceAttributes.namespace must match namespace: ci";
    assert_eq!((answer.code, message(&answer).as_str()), (400, text));
    assert_eq!(review("carol", "subjectaccessreviews", about.clone()).await.code, 403);
    let without_user = json!({"resourceAttributes": {"verb": "get", "resource": "pods"}});
    let answer = review("root", "subjectaccessreviews", without_user).await;
    assert_eq!(answer.code, 422);
    assert!(message(&answer).ends_with("at least one of user or group must be specified"));

    let rules = review("bob", "selfsubjectrulesreviews", json!({"namespace": "ci"})).await.value()["status"].clone();
    assert_eq!(rules["incomplete"], false);
    let listed = rules["resourceRules"].as_array().unwrap();
    assert!(
        listed.iter().any(|rule| rule["resourceNames"] == json!(["p1"]) && rule["resources"] == json!(["pods"])),
        "{rules}"
    );
    assert!(rules["nonResourceRules"][0]["nonResourceURLs"].as_array().unwrap().contains(&json!("/api")), "{rules}");
    let elsewhere = review("bob", "selfsubjectrulesreviews", json!({"namespace": "other"})).await.value();
    assert!(!elsewhere.to_string().contains("p1"));
    let admin = review("kubernetes-admin", "selfsubjectrulesreviews", json!({"namespace": "ci"})).await.value();
    assert_eq!(admin["status"]["resourceRules"][0], rule("*", &["*"], &["*"]));
    assert_eq!(review("bob", "selfsubjectrulesreviews", json!({})).await.code, 400);
}

/// RBAC-6.
#[tokio::test]
async fn roles_and_bindings_are_validated() {
    let world = World::start().await;
    let roles = rbac_path("roles", "ci");
    for (rules, expected) in [
        (json!([{"verbs": ["get"], "apiGroups": [""]}]), {
            "rules[0].resources: Required value: resource rules must supply at least one resource"
        }),
        (json!([{"verbs": ["get"], "resources": ["pods"]}]), {
            "rules[0].apiGroups: Required value: resource rules must supply at least one api group"
        }),
        (json!([{"verbs": [], "apiGroups": [""], "resources": ["pods"]}]), {
            "rules[0].verbs: Required value: verbs must contain at least one value"
        }),
        (json!([{"verbs": ["get"], "nonResourceURLs": ["/x"]}]), {
            "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs"
        }),
    ] {
        let answer = world.server.create(&roles, &json!({"metadata": {"name": "bad"}, "rules": rules})).await;
        assert_eq!(answer.code, 422, "{}", answer.value());
        assert!(message(&answer).ends_with(expected), "{}", message(&answer));
    }
    let bindings = rbac_path("clusterrolebindings", "");
    for (role, subject, expected) in [
        (("Role", "r"), user("u"), "roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\""),
        (("ClusterRole", ""), user("u"), "roleRef.name: Required value"),
        (("ClusterRole", "r"), json!({"kind": "ServiceAccount", "name": "s"}), "subjects[0].namespace: Required value"),
        (("ClusterRole", "r"), json!({"kind": "Robot", "name": "s"}), {
            "subjects[0].kind: Unsupported value: \"Robot\": supported values: \"ServiceAccount\", \"User\", \"Group\""
        }),
    ] {
        let binding = json!({"metadata": {"name": "bad"}, "roleRef": role_ref(role.0, role.1), "subjects": [subject]});
        let answer = world.server.create(&bindings, &binding).await;
        assert_eq!(answer.code, 422, "{}", answer.value());
        assert!(message(&answer).ends_with(expected), "{}", message(&answer));
    }
}

/// RBAC-13: at the next start the built-in roles have what they had, unless their owner keeps them.
#[tokio::test]
async fn built_in_roles_come_back_at_the_next_start() {
    let world = World::start().await;
    let server = &world.server;
    let roles = rbac_path("clusterroles", "");
    let admin = server.admin();
    let path = format!("{roles}/system:discovery");
    let basic = format!("{roles}/system:basic-user");
    let put = async |path: &str, change: fn(&mut Value)| {
        let mut role = server.call(&admin, get(path)).await.value();
        change(&mut role);
        assert_eq!(server.call(&admin, request("PUT", path, role.to_string())).await.code, 200);
    };
    put(&path, |role| role["rules"] = json!([])).await;
    put(&basic, |role| {
        role["rules"] = json!([]);
        role["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"] = "false".into();
    })
    .await;
    assert_eq!(server.call(&admin, request("DELETE", &format!("{roles}/view"), "")).await.code, 200);
    assert_eq!(world.call("alice", "GET", "/api", &Value::Null).await.code, 403);
    assert_eq!(world.call("alice", "GET", "/api/v1/namespaces/ci/pods", &Value::Null).await.code, 403);

    tally_server::install_roles(&server.registry).await.unwrap();
    assert_eq!(world.call("alice", "GET", "/api", &Value::Null).await.code, 200);
    assert_eq!(world.call("alice", "GET", "/api/v1/namespaces/ci/pods", &Value::Null).await.code, 200);
    let review = json!({}).to_string();
    let own = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let alice = world.identity("alice").await;
    assert_eq!(server.call(&alice.credentials, request("POST", own, review)).await.code, 403, "kept by its owner");
}
