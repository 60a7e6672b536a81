//! Jobs as the cases write them.

use serde_json::{Value, json};

use crate::cluster::Cluster;

/// Longer than any case: the Pods run until the case ends them.
pub const FOR_EVER: &str = "1h";

pub struct Job(pub Value);

/// A Job whose Pods succeed at once.
pub fn job(name: &str) -> Job {
    Job(json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"template": {
            "metadata": {"annotations": {}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "hollow"}]},
        }},
    }))
}

/// A Job whose Pods run until the case ends them.
pub fn waiting_job(name: &str) -> Job {
    job(name).does("run-for", FOR_EVER)
}

pub fn indexed(job: Job, completions: u32, parallelism: u32) -> Job {
    job.set("completionMode", "Indexed").set("completions", completions).set("parallelism", parallelism)
}

impl Job {
    /// A field of the spec.
    pub fn set(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.0["spec"][field] = value.into();
        self
    }

    /// A field of the Pods' spec.
    pub fn pod(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.0["spec"]["template"]["spec"][field] = value.into();
        self
    }

    /// A field of the Job's metadata.
    pub fn meta(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.0["metadata"][field] = value.into();
        self
    }

    /// What its Pods do, as an annotation.
    pub fn does(mut self, what: &str, how: &str) -> Self {
        self.0["spec"]["template"]["metadata"]["annotations"][format!("hollow.tally.dev/{what}")] = how.into();
        self
    }

    /// The Job as it is created in this cluster: the real nodes of a foreign cluster must not run hollow Pods.
    pub fn in_cluster(&self, cluster: &Cluster) -> Value {
        let mut job = self.0.clone();
        let pod = &mut job["spec"]["template"]["spec"];
        let has_place = ["nodeName", "nodeSelector", "schedulingGates"].iter().any(|field| !pod[*field].is_null());
        if cluster.foreign && !has_place {
            pod["nodeName"] = "hollow-0".into();
        }
        if let Some(manager) = cluster.managed_by.as_deref().filter(|_| job["spec"]["managedBy"].is_null()) {
            job["spec"]["managedBy"] = manager.into();
        }
        job
    }
}
