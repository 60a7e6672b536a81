//! The server accepts the rendered objects.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};

use super::renderings::STORED_ONLY;
use super::renderings::{self, Rendering, deploy, succeeds};
use super::support::client::{Call, Connection};
use super::support::server::{self, Server};

/// Kinds that the embedded server does not serve; this file checks them by their fields.
const NOT_SERVED: [&str; 4] =
    ["PrometheusRule", "ServiceMonitor", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];

#[tokio::test]
async fn every_object_of_every_rendering_is_accepted_without_a_warning() {
    let mut not_served = BTreeSet::new();
    for rendering in renderings::all() {
        let directory = server::directory();
        let server = Server::start(directory.path()).await;
        let mut api = server.api.connection();
        if rendering.of_kind("Namespace").next().is_none() {
            let namespace = json!({"metadata": {"name": rendering.namespace}});
            create(&mut api, "/api/v1/namespaces", &namespace, &rendering.title).await;
        }
        for object in &rendering.objects {
            match place(&mut api, object).await {
                Some(place) => create(&mut api, &place, object, &rendering.title).await,
                None => {
                    not_served.insert(object["kind"].as_str().unwrap().to_owned());
                    by_its_fields(object);
                }
            }
        }
    }
    assert_eq!(not_served, NOT_SERVED.map(str::to_owned).into(), "served by now? then NOT_SERVED is too long");
}

async fn create(api: &mut Connection, place: &str, object: &Value, title: &str) {
    let mut call = Call::new("POST", place).body(object);
    call.query.push(("fieldValidation".to_owned(), "Strict".to_owned()));
    let answer = api.call(&call).await.unwrap();
    assert_eq!(answer.code, 201, "{title}: {object}: {}", answer.text);
    let warnings: Vec<_> = answer.warnings.iter().filter(|warning| !warning.contains(STORED_ONLY)).collect();
    assert!(warnings.is_empty(), "{title}: {object}: {warnings:?}");
}

/// Where objects of this kind are created; `None` if the server has no such kind.
async fn place(api: &mut Connection, object: &Value) -> Option<String> {
    let version = object["apiVersion"].as_str().unwrap();
    let group = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let list = api.call(&Call::get(&group)).await.unwrap().value();
    let resource = list["resources"].as_array()?.iter().find(|one| one["kind"] == object["kind"])?;
    let plural = resource["name"].as_str()?;
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) if resource["namespaced"] == true => Some(format!("{group}/namespaces/{namespace}/{plural}")),
        named => {
            assert_eq!((named, &resource["namespaced"]), (None, &json!(false)), "{object}");
            Some(format!("{group}/{plural}"))
        }
    }
}

/// The object has exactly these fields, which its kind defines; their values are tested elsewhere.
fn by_its_fields(object: &Value) {
    let kind = object["kind"].as_str().unwrap();
    let (version, fields): (_, &[&str]) = match kind {
        "ValidatingAdmissionPolicy" => (
            "admissionregistration.k8s.io/v1",
            &[
                "failurePolicy",
                "matchConditions.expression",
                "matchConditions.name",
                "matchConstraints.resourceRules.apiGroups",
                "matchConstraints.resourceRules.apiVersions",
                "matchConstraints.resourceRules.operations",
                "matchConstraints.resourceRules.resources",
                "validations.expression",
                "validations.message",
                "validations.reason",
            ],
        ),
        "ValidatingAdmissionPolicyBinding" => ("admissionregistration.k8s.io/v1", &["policyName", "validationActions"]),
        "PrometheusRule" => (
            "monitoring.coreos.com/v1",
            &[
                "groups.name",
                "groups.rules.alert",
                "groups.rules.annotations.description",
                "groups.rules.annotations.summary",
                "groups.rules.expr",
                "groups.rules.for",
                "groups.rules.labels.severity",
            ],
        ),
        "ServiceMonitor" => (
            "monitoring.coreos.com/v1",
            &["endpoints.interval", "endpoints.path", "endpoints.port", "selector.matchLabels"],
        ),
        _ => panic!("{kind} is not served, and nothing checks it"),
    };
    assert_eq!(object["apiVersion"], version);
    let mut found = BTreeSet::new();
    paths(&object["spec"], "", &mut found);
    assert_eq!(found, fields.iter().map(|&field| field.to_owned()).collect(), "{object}");
}

/// The paths of all values except objects and lists of objects; labels are values.
fn paths(value: &Value, way: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) if !way.ends_with(".matchLabels") => {
            let under = |name: &str| if way.is_empty() { name.to_owned() } else { format!("{way}.{name}") };
            fields.iter().for_each(|(name, value)| paths(value, &under(name), into));
        }
        Value::Array(items) => items.iter().for_each(|item| paths(item, way, into)),
        _ => _ = into.insert(way.to_owned()),
    }
}

#[tokio::test]
async fn kubectl_applies_the_overlays_and_finds_nothing_to_change_afterwards() {
    for overlay in ["beside", "in-place"] {
        let directory = server::directory();
        let server = Server::start(directory.path()).await;
        let kubectl = |verb: &str, options: &[&str]| {
            let mut command = Command::new(renderings::kubectl());
            command.arg(verb).arg("-k").arg(deploy().join("kustomize/overlays").join(overlay)).args(options);
            command.env("HOME", directory.path()).env("KUBECONFIG", server.kubeconfig());
            succeeds(&mut command)
        };
        let apply = || kubectl("apply", &[]);
        let first = apply();
        assert!(first.lines().count() > 5 && first.lines().all(|line| line.ends_with(" created")), "{first}");
        let made = kubectl("get", &["-o", "yaml"]);
        // Budgets are "configured" every time: kubectl always sends the selector. Nothing changes.
        let again = apply();
        let quiet = |line: &str| line.ends_with(" unchanged") || line.contains("poddisruptionbudget");
        assert!(again.lines().all(quiet), "{again}");
        assert_eq!(kubectl("get", &["-o", "yaml"]), made, "the same to the last revision");
    }
}

/// Kustomize and Helm install the same objects, except for the labels that Helm adds.
#[test]
fn the_chart_installs_what_the_overlays_install() {
    let (overlays, charts) = (renderings::kustomized(), renderings::charts());
    for (overlay, chart) in overlays.iter().zip(charts) {
        let (ours, theirs) = (comparable(overlay), comparable(chart));
        assert_eq!(ours.len(), theirs.len(), "{} and {}", overlay.title, chart.title);
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs, "{} and {}", overlay.title, chart.title);
        }
    }
}

fn comparable(rendering: &Rendering) -> Vec<Value> {
    let mut objects: Vec<_> = rendering.objects.iter().filter(|it| it["kind"] != "Namespace").cloned().collect();
    objects.iter_mut().for_each(strip);
    objects.sort_by_key(|object| (object["kind"].to_string(), object["metadata"]["name"].to_string()));
    objects
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for label in ["instance", "managed-by", "version"] {
                fields.remove(&format!("app.kubernetes.io/{label}"));
            }
            fields.remove("helm.sh/chart");
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

#[test]
fn the_chart_is_clean_and_refuses_values_that_mean_nothing() {
    let Some(helm) = renderings::helm() else { return };
    succeeds(Command::new(&helm).args(["lint", "--strict"]).arg(renderings::chart()));
    for wrong in [
        "managed_by=x",
        "managedBy=x",
        "managedBy=kubernetes.io/job-controller",
        "controllers={job,cron}",
        "logFormat=xml",
        "replicas=-1",
        "burst=5",
        "protectStatus.alsoAllow[0]=it's",
        "image.repository=",
    ] {
        let mut command = Command::new(&helm);
        command.args(["template", "tally"]).arg(renderings::chart()).args(["--kube-version", "1.36.4", "--set", wrong]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("values"), "{wrong}: {said}");
    }
}
