//! The cost of the verbs without HTTP and without a disk: prints figures, asserts nothing.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;

use support::{Cluster, now};
use tally_api::options::{DeleteOptions, ListOptions, PatchKind, WriteOptions};
use tally_registry::Target;
use tally_value::{Value, json};

const PODS: usize = 10_000;
const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

fn measure(name: &str, mut work: impl FnMut(usize)) {
    let began = Instant::now();
    for number in 0..PODS {
        work(number);
    }
    println!("{name:<24} {:>7.1} us", began.elapsed().as_secs_f64() * 1e6 / PODS as f64);
}

fn main() {
    let cluster = Cluster::new();
    let names: Vec<String> = (0..PODS).map(|number| format!("p{number}")).collect();
    let pods = cluster.target("", "pods", "default", "");
    let pod = |number: usize| cluster.target("", "pods", "default", &names[number]);
    let status = |number: usize| Target { subresource: pods.resource.subresource("status"), ..pod(number) };
    let body = |name: &str| -> Value {
        json!({
            "metadata": {"name": name, "labels": {"job-name": "j"}, "finalizers": [FINALIZER]},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox", "command": ["true"]}]},
        })
    };
    measure("create a Pod", |number| drop(cluster.create(pods, &body(&names[number])).unwrap()));
    measure("report its status", |number| {
        drop(cluster.merge(status(number), &json!({"status": {"phase": "Succeeded"}})).unwrap());
    });
    let release = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}}).to_string();
    measure("release it", |number| {
        let options = WriteOptions::default();
        let done = cluster.registry.patch(pod(number), release.as_bytes(), PatchKind::Strategic, &options);
        drop(now(done).unwrap());
    });
    measure("get it", |number| drop(cluster.registry.get(pod(number), Default::default()).unwrap()));
    let began = Instant::now();
    let selected = ListOptions { label_selector: "job-name=j".to_owned(), ..ListOptions::default() };
    let listed = cluster.registry.list(pods, &selected).unwrap().items.len();
    println!("{:<24} {:>7.1} ms", format!("list {listed} by label"), began.elapsed().as_secs_f64() * 1e3);
    measure("delete it", |number| drop(now(cluster.registry.delete(pod(number), &DeleteOptions::default())).unwrap()));
}
