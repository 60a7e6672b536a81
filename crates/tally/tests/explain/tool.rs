//! A cluster, what is created in it, and what `tally explain` says about that.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::client::{Call, Connection};
use crate::support::server::Server;

/// Ends a test that would otherwise hang; it asserts nothing.
const GIVE_UP_AFTER: Duration = Duration::from_secs(120);

pub const NAMESPACE: &str = "default";

pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

pub fn tally(arguments: &[&str]) -> Said {
    let output =
        Command::new(env!("CARGO_BIN_EXE_tally")).args(arguments).stdin(Stdio::null()).output().expect("it starts");
    let lossy = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Said { code: output.status.code(), out: lossy(output.stdout), err: lossy(output.stderr) }
}

pub fn text(path: &Path) -> String {
    path.to_str().expect("a path that can be written down").to_owned()
}

/// Waits for a value, without a bound that a busy machine could exceed.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let until = Instant::now() + GIVE_UP_AFTER;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < until, "never: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

pub fn reasons(explained: &Value) -> Vec<String> {
    let all = explained["reasons"].as_array().expect("reasons");
    all.iter().map(|reason| reason["reason"].as_str().expect("a name").to_owned()).collect()
}

/// What `tally explain` prints as JSON about an object in this place.
pub fn explain(place: &[&str], object: &str) -> Value {
    let said = tally(&[&["explain", object, "-o", "json"], place].concat());
    assert_eq!(said.code, Some(0), "{object}: {}{}", said.out, said.err);
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {}", said.out))
}

/// Waits until these reasons are given, in this order, and the first one says this.
async fn says(place: &[&str], object: &str, expected: &[&str], part: &str) -> Value {
    let mut last = Value::Null;
    let until = Instant::now() + GIVE_UP_AFTER;
    while Instant::now() < until {
        last = explain(place, object);
        let message = last["reasons"][0]["message"].as_str().unwrap_or_default();
        if reasons(&last) == expected && (expected.is_empty() || message.contains(part)) {
            let change = last["reasons"][0]["change"].as_str();
            assert!(expected.is_empty() || change.is_some_and(|change| !change.is_empty()));
            return last;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("{object} is never explained by {expected:?} and {part:?}: {last:#}");
}

/// The reasons that were given in one part of these tests.
#[derive(Default)]
pub struct Seen(Mutex<BTreeSet<String>>);

impl Seen {
    /// The same as `says`, and remembers the reasons.
    pub async fn says(&self, place: &[&str], object: &str, expected: &[&str], part: &str) -> Value {
        let said = says(place, object, expected, part).await;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(reasons(&said));
        said
    }

    /// The part has shown all the reasons that it is relied on for, and no others.
    pub fn are(&self, expected: &[&str]) {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert_eq!(seen, expected.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>());
    }
}

pub struct Cluster {
    pub server: Server,
    pub kubeconfig: String,
    pub seen: Seen,
    connection: tokio::sync::Mutex<Connection>,
    pub directory: tempfile::TempDir,
}

impl Cluster {
    pub fn of(server: Server, directory: tempfile::TempDir) -> Self {
        let kubeconfig = text(&server.kubeconfig());
        let connection = tokio::sync::Mutex::new(server.api.connection());
        Self { server, kubeconfig, seen: Seen::default(), connection, directory }
    }

    pub async fn call(&self, call: Call) -> Value {
        let answer = self.connection.lock().await.call(&call).await.expect("an answer");
        assert!(answer.code < 300, "{} {}: {} {}", call.method, call.path, answer.code, answer.text);
        answer.value()
    }

    pub async fn get(&self, path: &str) -> Value {
        self.call(Call::get(path)).await
    }

    pub async fn create(&self, path: &str, object: &Value) -> Value {
        self.call(Call::new("POST", path).body(object)).await
    }

    pub async fn patch(&self, path: &str, patch: &Value) -> Value {
        let call = Call::new("PATCH", path).header("content-type", "application/merge-patch+json");
        self.call(call.body(patch)).await
    }

    /// A Job in the default namespace, from the parts that matter.
    pub async fn job(&self, name: &str, metadata: Value, spec: Value, command: &str) -> Value {
        let created = self.create("/apis/batch/v1/namespaces/default/jobs", &job(name, metadata, spec, command)).await;
        assert_eq!(created["metadata"]["name"], name);
        created
    }

    /// The Pods of a Job, once there are so many.
    pub async fn pods(&self, job: &str, count: usize) -> Vec<Value> {
        let path = format!("/api/v1/namespaces/default/pods?labelSelector=batch.kubernetes.io%2Fjob-name%3D{job}");
        eventually("the Pods are created", async || {
            let pods = self.get(&path).await["items"].as_array()?.clone();
            (pods.len() == count).then_some(pods)
        })
        .await
    }

    /// A kubeconfig for a user with these rights in all namespaces, and the path of its ClusterRole.
    pub async fn user(&self, name: &str, rules: &Value) -> (String, String) {
        let kubeconfig = text(&self.directory.path().join(format!("{name}.kubeconfig")));
        let data = text(&self.directory.path().join("data"));
        let server = format!("https://{}", self.server.api.authority());
        let added =
            tally(&["user", "add", name, "--data-dir", &data, "--kubeconfig", &kubeconfig, "--server", &server]);
        assert_eq!(added.code, Some(0), "{}", added.err);
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        self.create(&format!("{rbac}/clusterroles"), &json!({"metadata": {"name": name}, "rules": rules})).await;
        let binding = json!({"metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]});
        self.create(&format!("{rbac}/clusterrolebindings"), &binding).await;
        (kubeconfig, format!("{rbac}/clusterroles/{name}"))
    }

    pub async fn add_node(&self, name: &str) {
        self.create("/api/v1/nodes", &json!({"metadata": {"name": name}})).await;
        self.set_ready(name, "True").await;
    }

    pub async fn set_ready(&self, name: &str, ready: &str) {
        let condition = json!({"type": "Ready", "status": ready, "reason": "Test", "message": "",
            "lastTransitionTime": "2026-01-31T12:00:00Z", "lastHeartbeatTime": "2026-01-31T12:00:00Z"});
        self.patch(&format!("/api/v1/nodes/{name}/status"), &json!({"status": {"conditions": [condition]}})).await;
    }

    /// Gives the Pod a node, and returns its path.
    pub async fn bind(&self, pod: &Value, node: &str) -> String {
        let path = format!("/api/v1/namespaces/default/pods/{}", name_of(pod));
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name_of(pod)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        self.create(&format!("{path}/binding"), &binding).await;
        path
    }

    /// Acts as the node of the Pod with this path.
    pub async fn report(&self, pod: &str, phase: &str, state: Value) {
        let container =
            json!({"name": "c", "image": "none", "imageID": "", "ready": false, "restartCount": 0, "state": state});
        let status = json!({"status": {"phase": phase, "containerStatuses": [container]}});
        self.patch(&format!("{pod}/status"), &status).await;
    }

    pub async fn report_running(&self, pod: &str) {
        self.report(pod, "Running", json!({"running": {"startedAt": "2026-01-31T12:00:00Z"}})).await;
    }

    /// Waits for the reasons, seen through the kubeconfig.
    pub async fn says(&self, object: &str, expected: &[&str], part: &str) -> Value {
        self.seen.says(&["--kubeconfig", &self.kubeconfig], object, expected, part).await
    }
}

pub fn job(name: &str, metadata: Value, spec: Value, command: &str) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata,
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers":
            [{"name": "c", "image": "none", "command": ["sh", "-c", command]}]}}},
    });
    job["metadata"]["name"] = name.into();
    merge(&mut job["spec"], &spec);
    job
}

pub fn merge(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, patch) => *into = patch.clone(),
    }
}

pub fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().expect("a name")
}
