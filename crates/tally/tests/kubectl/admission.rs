//! Quotas and Pod security levels, as kubectl shows them.

use super::tool::with_node;

const JOB: &str = "
apiVersion: batch/v1
kind: Job
metadata: {name: six}
spec:
  completions: 6
  parallelism: 6
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: process, command: [sh, -c, 'sleep 0.3']}]
";

/// The Pods that do not fit wait for those that do: the Job completes, and never has more than the quota allows.
#[tokio::test]
async fn a_job_completes_within_a_quota() {
    let kubectl = with_node().await;
    kubectl.ok("create quota two --hard=pods=2,count/jobs.batch=1");
    let mut seen = kubectl.follow("get quota two -o jsonpath={.status.used.pods}{\"\\n\"} --watch");
    kubectl.ok(&format!("create -f {}", kubectl.file("job.yaml", JOB)));
    kubectl.ok("wait --for=condition=complete job/six --timeout=120s");
    assert_eq!(kubectl.ok("get job six -o jsonpath={.status.succeeded}"), "6");
    let events = kubectl.ok("get events --field-selector reason=FailedCreate -o jsonpath={.items[*].message}");
    assert!(events.contains("exceeded quota: two, requested: pods=1, used: pods=2, limited: pods=2"), "{events}");
    // What it said meanwhile.
    let mut most = 0;
    while most < 2 {
        let used = seen.line();
        most = most.max(used.trim().parse().unwrap_or(0));
        assert!(most <= 2, "{used}");
    }
    let refused = kubectl.fails(&format!("create -f {}", kubectl.file("again.yaml", &JOB.replace("six", "again"))));
    assert!(refused.contains("exceeded quota: two, requested: count/jobs.batch=1"), "{refused}");
    let described = kubectl.ok("describe quota two");
    let row: Vec<_> = described.lines().filter(|line| line.starts_with("count/jobs.batch")).collect();
    assert_eq!(
        row.first().map(|row| row.split_whitespace().collect::<Vec<_>>()),
        Some(vec!["count/jobs.batch", "1", "1"])
    );
}

#[tokio::test]
async fn a_namespace_accepts_what_its_level_allows() {
    let kubectl = with_node().await;
    kubectl.ok("create namespace strict");
    kubectl.ok("label namespace strict pod-security.kubernetes.io/enforce=baseline");
    let yaml = JOB.replace("restartPolicy: Never", "restartPolicy: Never\n      hostNetwork: true");
    let said = kubectl.say(&format!("create -n strict -f {}", kubectl.file("job.yaml", &yaml)));
    assert_eq!(said.code, Some(0), "{said:?}");
    let warning = "would violate PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)";
    assert!(said.err.contains(warning), "{said:?}");
    let mut events = kubectl.follow("get events -n strict --watch -o jsonpath={.message}{\"\\n\"}");
    let refusal = "violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)";
    while !events.line().contains(refusal) {}
    assert_eq!(kubectl.ok("get pods -n strict -o name"), "");
    let wrong = kubectl.fails("label namespace strict pod-security.kubernetes.io/warn=strict");
    assert!(wrong.contains("must be one of privileged, baseline, restricted"), "{wrong}");
}

/// What is stored and acted upon by nothing is accepted with a warning; what acts is accepted without one.
#[tokio::test]
async fn kinds_that_nothing_acts_on_say_so() {
    let kubectl = with_node().await;
    let template = "selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}";
    for (version, kind) in
        [("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("apps/v1", "DaemonSet"), ("apps/v1", "ReplicaSet")]
    {
        let yaml = format!("{{apiVersion: {version}, kind: {kind}, metadata: {{name: it}}, spec: {{{template}}}}}");
        let said = kubectl.with_input("create -f -", &yaml);
        assert_eq!(said.code, Some(0), "{said:?}");
        let warning = format!("Warning: this server only stores a {kind}: no controller acts on it");
        assert!(said.err.contains(&warning), "{said:?}");
    }
    for (service, warns) in [("loadbalancer", true), ("clusterip", false)] {
        let said = kubectl.say(&format!("create service {service} {service} --tcp=80"));
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(said.err.contains("no address to a Service of type LoadBalancer"), warns, "{said:?}");
    }
    let said = kubectl.with_input("create -f -", JOB);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said:?}");
}

#[tokio::test]
async fn a_pod_that_names_an_unknown_service_account_is_refused() {
    let kubectl = with_node().await;
    let job = JOB.replace("restartPolicy: Never", "restartPolicy: Never\n      serviceAccountName: robot");
    kubectl.ok(&format!("create -f {}", kubectl.file("job.yaml", &job)));
    let mut events = kubectl.follow("get events --watch -o jsonpath={.message}{\"\\n\"}");
    let refusal = "error looking up service account default/robot: serviceaccount \"robot\" not found";
    while !events.line().contains(refusal) {}
    kubectl.ok("create serviceaccount robot");
    kubectl.ok("wait --for=condition=complete job/six --timeout=120s");
}
