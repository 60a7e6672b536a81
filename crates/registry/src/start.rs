//! The objects that a cluster starts with: its namespaces, and the Service through which Pods find the API.

use tally_api::catalog;
use tally_api::options::{Format, WriteOptions};
use tally_api::status_error::StatusError;
use tally_value::{Value, json};

use crate::{Registry, Result, Target};

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

impl Registry {
    /// Creates the objects a cluster starts with, if they are missing. The history starts after them, as it starts
    /// empty at every later start: a client that requests an earlier revision did not get it from this process.
    pub async fn begin(&self) -> Result<()> {
        for name in NAMESPACES {
            self.ensure("namespaces", "", &json!({"metadata": {"name": name}})).await?;
        }
        let service = json!({
            "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "targetPort": 6443}]},
        });
        self.ensure("services", "default", &service).await?;
        self.start_history();
        Ok(())
    }

    /// Forgets the changes so far: watches start after them. For objects that the server creates at its start.
    pub fn start_history(&self) {
        self.store.compact(self.store.revision());
    }

    async fn ensure(&self, plural: &str, namespace: &str, object: &Value) -> Result<()> {
        let resource =
            catalog::find("", "v1", plural).ok_or_else(|| StatusError::internal(format!("no {plural} served")))?;
        let target = Target::new(resource, namespace, "");
        match self.create(target, object.to_string().as_bytes(), Format::Json, &WriteOptions::default()).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.reason == "AlreadyExists" => Ok(()),
            Err(failure) => Err(failure),
        }
    }
}
