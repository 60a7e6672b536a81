//! Pod security levels of namespaces: what is refused, what is warned about, and when. The checks themselves are tested in
//! `crates/api/tests/pod_security`.

use crate::support::Cluster;
use tally_value::{Value, json};

const BASELINE: &str = "host namespaces (hostNetwork=true)";

fn pod(name: &str, host: bool) -> Value {
    json!({"metadata": {"name": name}, "spec": {"hostNetwork": host, "containers": [{"name": "c", "image": "i"}]}})
}

fn labelled(labels: &Value) -> Cluster {
    let cluster = Cluster::new();
    label(&cluster, labels).unwrap();
    cluster
}

/// The warnings of the update.
fn label(cluster: &Cluster, labels: &Value) -> Result<Vec<String>, String> {
    let labels: tally_value::Map = labels
        .as_object()
        .unwrap()
        .iter()
        .map(|(mode, level)| (format!("pod-security.kubernetes.io/{mode}"), level.clone()))
        .collect();
    let target = cluster.target("", "namespaces", "", "default");
    let patched = cluster.merge(target, &json!({"metadata": {"labels": labels}}));
    patched.map(|written| written.warnings).map_err(|failure| failure.message)
}

/// The warnings, or the error.
fn make(cluster: &Cluster, group: &str, plural: &str, object: &Value) -> Result<Vec<String>, String> {
    let made = cluster.create(cluster.target(group, plural, "default", ""), object);
    made.map(|written| written.warnings).map_err(|failure| {
        assert_eq!((failure.code, failure.reason), (403, "Forbidden"));
        assert_eq!(failure.warnings, Vec::<String>::new());
        failure.message
    })
}

/// PODSEC-3.
#[test]
fn a_pod_is_refused_or_warned_about() {
    let refusal = format!("pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": {BASELINE}");
    let warning = format!("would violate PodSecurity \"baseline:v1.30\": {BASELINE}");
    for (labels, host, expected) in [
        (json!({}), true, Ok(vec![])),
        (json!({"enforce": "privileged"}), true, Ok(vec![])),
        (json!({"enforce": "baseline"}), false, Ok(vec![])),
        (json!({"enforce": "baseline"}), true, Err(refusal.clone())),
        (json!({"enforce": "baseline", "warn": "baseline"}), true, Err(refusal)),
        (json!({"warn": "baseline", "warn-version": "v1.30"}), true, Ok(vec![warning])),
        // Only the audit log is concerned.
        (json!({"audit": "restricted"}), true, Ok(vec![])),
    ] {
        assert_eq!(make(&labelled(&labels), "", "pods", &pod("p", host)), expected, "{labels}");
    }
}

/// PODSEC-3.
#[test]
fn objects_with_a_template_are_warned_about_and_accepted() {
    let template =
        json!({"spec": {"hostNetwork": true, "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": template}});
    let cron = json!({"metadata": {"name": "c"}, "spec": {
        "schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}});
    // Without a level of its own, `warn` is that of `enforce`: the Pods will be refused.
    for (labels, expected) in [
        (json!({"enforce": "baseline"}), vec![format!("would violate PodSecurity \"baseline:latest\": {BASELINE}")]),
        (json!({"enforce": "baseline", "warn": "privileged"}), vec![]),
    ] {
        let cluster = labelled(&labels);
        assert_eq!(make(&cluster, "batch", "jobs", &job).unwrap(), expected, "{labels}");
        assert_eq!(make(&cluster, "batch", "cronjobs", &cron).unwrap(), expected, "{labels}");
        let target = cluster.target("batch", "jobs", "default", "j");
        let scaled = cluster.merge(target, &json!({"spec": {"parallelism": 3}})).unwrap();
        assert_eq!(scaled.warnings, expected, "{labels}");
    }
}

/// PODSEC-3, PODSEC-4.
#[test]
fn a_pod_that_exists_can_be_changed_but_not_run_another_program() {
    let cluster = Cluster::new();
    make(&cluster, "", "pods", &pod("p", true)).unwrap();
    make(&cluster, "", "pods", &pod("q", true)).unwrap();
    make(&cluster, "", "pods", &pod("r", false)).unwrap();
    let warnings = label(&cluster, &json!({"enforce": "baseline"})).unwrap();
    let new_level =
        "existing pods in namespace \"default\" violate the new PodSecurity enforce level \"baseline:latest\"";
    assert_eq!(warnings, [new_level, "p (and 1 other pod): host namespaces"]);
    // Not again for another label, and not for a level that accepts more.
    assert_eq!(label(&cluster, &json!({"warn": "restricted"})).unwrap(), Vec::<String>::new());
    let target = || cluster.target("", "pods", "default", "p");
    cluster.merge(target(), &json!({"metadata": {"labels": {"a": "b"}}})).unwrap();
    cluster.merge(target(), &json!({"spec": {"activeDeadlineSeconds": 9}})).unwrap();
    let image = json!({"spec": {"containers": [{"name": "c", "image": "other"}]}});
    let refused = cluster.merge(target(), &image).map(|_| ()).unwrap_err();
    assert!(refused.message.contains("violates PodSecurity \"baseline:latest\""), "{}", refused.message);
    assert_eq!(label(&cluster, &json!({"enforce": "privileged"})).unwrap(), Vec::<String>::new());
    cluster.merge(target(), &image).unwrap();
}

/// PODSEC-1.
#[test]
fn labels_of_namespaces_are_validated() {
    let cluster = Cluster::new();
    let told = label(&cluster, &json!({"enforce": "strict"})).unwrap_err();
    assert_eq!(
        told,
        "Namespace \"default\" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": \
         must be one of privileged, baseline, restricted"
    );
}

/// PODSEC-5.
#[test]
fn a_group_of_the_machine_is_refused_and_templates_are_warned_about() {
    let cluster = labelled(&json!({"enforce": "baseline"}));
    let mut pod = pod("p", false);
    pod["spec"]["securityContext"] = json!({"fsGroup": 42});
    let what = "groups of the machine (pod must not set fsGroup=42: ";
    let refused = make(&cluster, "", "pods", &pod).unwrap_err();
    let start = format!("pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": {what}");
    assert!(refused.starts_with(&start), "{refused}");
    let mut template = pod.clone();
    template["spec"]["restartPolicy"] = json!("Never");
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": template}});
    let warnings = make(&cluster, "batch", "jobs", &job).unwrap();
    let start = format!("would violate PodSecurity \"baseline:latest\": {what}");
    assert!(warnings.len() == 1 && warnings[0].starts_with(&start), "{warnings:?}");
    // A namespace without a level accepts it, and names it when it gets a level.
    let cluster = Cluster::new();
    assert_eq!(make(&cluster, "", "pods", &pod), Ok(vec![]));
    let warnings = label(&cluster, &json!({"enforce": "baseline"})).unwrap();
    assert_eq!(warnings[1..], ["p: groups of the machine"]);
}
