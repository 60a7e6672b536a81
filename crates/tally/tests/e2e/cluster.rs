//! The cluster that all cases share: one started here, or an existing one.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::json;

use crate::api::Api;
use crate::space::until;
use crate::support::server::{self, Server};

const NODES: u32 = 4;
/// A node that runs only Pods that tolerate `SPARE_TAINT`, so that its loss does not affect other cases.
pub const SPARE: &str = "hollow-3";
pub const SPARE_TAINT: &str = "e2e.tally.dev/spare";
const HOLLOW_NODES: &str = "/api/v1/nodes?labelSelector=hollow.tally.dev%2Fnode";

pub struct Cluster {
    pub kubeconfig: PathBuf,
    /// The cluster exists before and after the test.
    pub foreign: bool,
    pub managed_by: Option<String>,
    server: Option<Server>,
    /// The namespaces of the cases.
    namespaces: Mutex<Vec<String>>,
    /// The process that runs the hollow nodes of a foreign cluster.
    hollow: Mutex<Option<Child>>,
    _directory: tempfile::TempDir,
}

impl Cluster {
    pub async fn start() -> Self {
        let directory = server::directory();
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let managed_by = set("TALLY_E2E_MANAGED_BY");
        let cluster = match set("TALLY_E2E_KUBECONFIG") {
            None => {
                let nodes = NODES.to_string();
                let options = ["--no-node", "--ephemeral", "--hollow", &nodes];
                let server = Server::start_with(directory.path(), &options).await;
                Self {
                    kubeconfig: server.kubeconfig(),
                    foreign: false,
                    managed_by,
                    server: Some(server),
                    namespaces: Mutex::default(),
                    hollow: Mutex::default(),
                    _directory: directory,
                }
            }
            Some(kubeconfig) => {
                // Tests run in the directory of their crate, which a relative path is resolved against.
                let kubeconfig = std::path::absolute(kubeconfig).expect("a path");
                let nodes = Api::to(&kubeconfig).await.get(HOLLOW_NODES).await.ok();
                let there = nodes["items"].as_array().is_some_and(|nodes| !nodes.is_empty());
                let hollow = Mutex::new((!there).then(|| {
                    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
                    command.args(["hollow", "--nodes", &NODES.to_string(), "--kubeconfig"]).arg(&kubeconfig);
                    command.stdin(Stdio::null()).spawn().expect("the binary under test starts")
                }));
                let (server, namespaces) = (None, Mutex::default());
                Self { kubeconfig, foreign: true, managed_by, server, namespaces, hollow, _directory: directory }
            }
        };
        cluster.prepare_spare().await;
        cluster
    }

    async fn prepare_spare(&self) {
        let api = Api::to(&self.kubeconfig).await;
        let path = format!("/api/v1/nodes/{SPARE}");
        until("the last of the nodes is ready", Duration::from_secs(60), async || {
            let node = api.get(&path).await.found()?;
            let ready = node["status"]["conditions"].as_array()?.iter().any(|it| it["type"] == "Ready");
            let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
            (ready && taints.all(|taint| taint["key"] == SPARE_TAINT)).then_some(())
        })
        .await;
        let taint = json!({"spec": {"taints": [{"key": SPARE_TAINT, "effect": "NoSchedule"}]}});
        api.patch(&path, &taint).await.ok();
    }

    pub fn has_namespace(&self, namespace: &str) {
        self.namespaces.lock().expect("nobody panics with it").push(namespace.to_owned());
    }

    /// Restores a foreign cluster to its state before the test.
    pub async fn finish(&self) {
        if !self.foreign {
            return;
        }
        let api = Api::to(&self.kubeconfig).await;
        let namespaces = std::mem::take(&mut *self.namespaces.lock().expect("nobody panics with it"));
        for namespace in &namespaces {
            api.delete(&format!("/api/v1/namespaces/{namespace}"), &json!({})).await;
        }
        for namespace in &namespaces {
            // Before the nodes are removed: without nodes, no process would end the Pods.
            until("the namespaces are gone", Duration::from_secs(120), async || {
                api.get(&format!("/api/v1/namespaces/{namespace}")).await.found().is_none().then_some(())
            })
            .await;
        }
        let hollow = self.hollow.lock().expect("nobody panics with it").take();
        if let Some(mut child) = hollow {
            child.kill().expect("it runs until now");
            child.wait().expect("its state can be asked");
            for node in 0..NODES {
                api.delete(&format!("/api/v1/nodes/hollow-{node}"), &json!({})).await;
            }
        }
    }

    /// The log of the server.
    pub fn said(&self) -> String {
        self.server.as_ref().map(|server| format!("\n{}", server.said())).unwrap_or_default()
    }
}
