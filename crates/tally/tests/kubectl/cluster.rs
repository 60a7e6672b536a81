//! What kubectl requests about the cluster itself: versions, resources, rights, configuration.

use super::tool::with_each_kubectl;

#[tokio::test]
async fn resources_and_versions_are_discovered() {
    with_each_kubectl(async |kubectl| {
        let resources = kubectl.ok("api-resources --no-headers");
        let lines: Vec<_> = resources.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        for expected in [
            &["jobs", "batch/v1", "true", "Job"][..],
            &["cronjobs", "cj", "batch/v1", "true", "CronJob"],
            &["pods", "po", "v1", "true", "Pod"],
            &["nodes", "no", "v1", "false", "Node"],
            &["namespaces", "ns", "v1", "false", "Namespace"],
            &["events", "ev", "v1", "true", "Event"],
            &["leases", "coordination.k8s.io/v1", "true", "Lease"],
        ] {
            assert!(lines.iter().any(|line| line == expected), "{expected:?}\n{resources}");
        }
        let versions = kubectl.ok("api-versions");
        for version in ["v1", "batch/v1", "coordination.k8s.io/v1", "events.k8s.io/v1"] {
            assert!(versions.lines().any(|line| line == version), "{version}\n{versions}");
        }
        let verbs = kubectl.ok("api-resources --api-group=batch -o wide --no-headers");
        let jobs = verbs.lines().find(|line| line.starts_with("jobs")).unwrap_or_default();
        for verb in ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"] {
            assert!(jobs.contains(verb), "{verb}: {jobs}");
        }
    })
    .await;
}

#[tokio::test]
async fn the_cluster_says_what_and_where_it_is() {
    with_each_kubectl(async |kubectl| {
        let version = kubectl.json("version -o json");
        assert_eq!(version["serverVersion"]["major"], "1", "{version}");
        assert!(version["serverVersion"]["gitVersion"].as_str().unwrap_or_default().starts_with("v1."), "{version}");
        let info = kubectl.ok("cluster-info");
        assert!(info.contains("is running at") && info.contains("https://127.0.0.1:"), "{info}");
        let view = kubectl.ok("config view");
        assert!(view.contains("certificate-authority-data: DATA+OMITTED"), "{view}");
        assert!(view.contains("client-key-data: ") && !view.contains("PRIVATE"), "{view}");
        assert!(!kubectl.ok("config current-context").trim().is_empty());
        for path in ["/healthz", "/livez", "/readyz"] {
            assert_eq!(kubectl.ok(&format!("get --raw {path}")), "ok");
        }
    })
    .await;
}

#[tokio::test]
async fn whoever_holds_the_kubeconfig_may_do_everything() {
    with_each_kubectl(async |kubectl| {
        assert_eq!(kubectl.ok("auth can-i create jobs"), "yes\n");
        assert_eq!(kubectl.ok("auth can-i get pods --subresource=log -n kube-system"), "yes\n");
    })
    .await;
}

#[tokio::test]
async fn explain_says_that_it_cannot() {
    with_each_kubectl(async |kubectl| {
        // Until the server has an OpenAPI document, kubectl must fail: it must not look as if Jobs had no fields.
        let said = kubectl.say("explain job.spec");
        assert_ne!(said.code, Some(0), "the server explains: turn this into a test of what it says: {}", said.out);
    })
    .await;
}
