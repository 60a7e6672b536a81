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
async fn the_user_of_the_kubeconfig_may_do_everything() {
    with_each_kubectl(async |kubectl| {
        assert_eq!(kubectl.ok("auth can-i create jobs"), "yes\n");
        assert_eq!(kubectl.ok("auth can-i get pods --subresource=log -n kube-system"), "yes\n");
    })
    .await;
}

/// RBAC-14, with the questions that people ask.
#[tokio::test]
async fn can_i_says_what_requests_get() {
    with_each_kubectl(async |kubectl| {
        kubectl.ok("create namespace ci");
        kubectl.ok("create serviceaccount runner -n ci");
        kubectl.ok("create rolebinding runner -n ci --clusterrole=edit --serviceaccount=ci:runner");
        kubectl.ok("create role reader -n ci --verb=get --resource=configmaps --resource-name=one");
        kubectl.ok("create rolebinding reader -n ci --role=reader --user=rita");
        let runner = "--as=system:serviceaccount:ci:runner";
        for (question, who, answer) in [
            ("create jobs -n ci", runner, "yes"),
            ("get pods --subresource=log -n ci", runner, "yes"),
            ("create jobs", runner, "no"),
            ("list jobs -A", runner, "no"),
            ("create rolebindings -n ci", runner, "no"),
            ("get configmaps/one -n ci", "--as=rita", "yes"),
            ("get configmaps/two -n ci", "--as=rita", "no"),
            ("list configmaps -n ci", "--as=rita", "no"),
            ("get /api", "--as=rita", "yes"),
            ("get /metrics", "--as=rita", "no"),
            ("delete nodes", "--as=rita --as-group=system:masters", "yes"),
        ] {
            let said = kubectl.say(&format!("auth can-i {question} {who}"));
            assert_eq!(said.out.trim(), answer, "{question} {who}: {}", said.err);
        }
        assert_eq!(kubectl.say(&format!("get jobs -n ci {runner}")).code, Some(0));
        let said = kubectl.say(&format!("get jobs {runner}"));
        let expected = "Error from server (Forbidden): jobs.batch is forbidden: User \"system:serviceaccount:ci:runner\" cannot \
                        list resource \"jobs\" in API group \"batch\" in the namespace \"default\"";
        assert_eq!((said.code, said.err.trim()), (Some(1), expected));

        let list = kubectl.ok(&format!("auth can-i --list -n ci {runner}"));
        assert!(list.lines().any(|line| line.starts_with("jobs.batch ") && line.contains("create")), "{list}");
        assert!(!list.contains("rolebindings"), "{list}");
        if kubectl.minor >= 28 {
            let whoami = kubectl.ok("auth whoami --as=rita --as-group=readers");
            assert!(whoami.contains("rita") && whoami.contains("[readers system:authenticated]"), "{whoami}");
        }
    })
    .await;
}

/// `tally user add`: a kubeconfig for a user, whose rights are in roles.
#[tokio::test]
async fn a_user_is_added_and_gets_rights_by_a_binding() {
    with_each_kubectl(async |kubectl| {
        let directory = kubectl.directory.path();
        let add = |arguments: &[&str]| {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tally"));
            let url = kubectl.ok("config view -o jsonpath={.clusters[0].cluster.server}");
            command.args(["user", "add", "--server", &url, "--data-dir"]).arg(directory.join("data"));
            command.args(arguments).current_dir(directory).output().unwrap()
        };
        let done = add(&["alice", "--group", "dev"]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let file = directory.join("alice.kubeconfig");
        let alice = format!("--kubeconfig={}", file.display());
        if kubectl.minor >= 28 {
            let whoami = kubectl.ok(&format!("{alice} auth whoami"));
            assert!(whoami.contains("alice") && whoami.contains("[dev system:authenticated]"), "{whoami}");
        }
        assert_eq!(kubectl.say(&format!("{alice} get jobs")).code, Some(1));
        kubectl.ok("create rolebinding dev --clusterrole=view --group=dev");
        kubectl.ok(&format!("{alice} get jobs"));
        assert_eq!(kubectl.say(&format!("{alice} get jobs -A")).code, Some(1));

        for (arguments, code, expected) in [
            (&["alice"][..], 1, "alice.kubeconfig is there already"),
            (&["system:node:x"], 1, "names that begin with \"system:\" are reserved"),
            (&["bob", "--days", "0"], 1, "a certificate is valid for 1 to 3650 days"),
            (&["bob", "--days", "x"], 2, "invalid value 'x' for '--days <DAYS>'"),
        ] {
            let refused = add(arguments);
            let said = String::from_utf8_lossy(&refused.stderr);
            assert_eq!(refused.status.code(), Some(code), "{said}");
            assert!(said.contains(expected), "{said}");
        }
        assert!(!directory.join("bob.kubeconfig").exists());
    })
    .await;
}

/// API-29. The words of a line, however kubectl aligns them.
fn has_line(text: &str, words: &[&str]) -> bool {
    text.lines().any(|line| line.split_whitespace().take(words.len()).eq(words.iter().copied()))
}

#[tokio::test]
async fn fields_are_explained() {
    with_each_kubectl(async |kubectl| {
        let policy = kubectl.ok("explain job.spec.podFailurePolicy --recursive");
        for words in [&["rules"][..], &["action", "<string>"], &["values", "<[]integer>"], &["onPodConditions"]] {
            assert!(has_line(&policy, words), "{words:?}\n{policy}");
        }
        assert!(policy.contains("by its exit code or its conditions"), "{policy}");
        let containers = kubectl.ok("explain pod.spec.containers");
        for words in [&["command", "<[]string>"][..], &["image", "<string>"], &["resources"], &["name", "<string>"]] {
            assert!(has_line(&containers, words), "{words:?}\n{containers}");
        }
        assert!(containers.contains("What the Pod runs."), "{containers}");
        for field in
            ["cronjob.spec.jobTemplate.spec.template.spec", "deployment.spec.strategy", "role.rules", "secret.data"]
        {
            kubectl.ok(&format!("explain {field}"));
        }
        let all = kubectl.ok("explain job --recursive");
        assert!(all.lines().count() > 500, "{all}");
        let said = kubectl.say("explain job.spec.nope");
        assert!(said.code == Some(1) && said.err.contains("nope"), "{said:?}");
    })
    .await;
}

/// API-29. Every version finds a field that does not exist: older ones in the document, newer ones ask the server.
#[tokio::test]
async fn fields_that_do_not_exist_are_found_before_anything_is_stored() {
    with_each_kubectl(async |kubectl| {
        let wrong = kubectl.file("wrong.yaml", &super::JOB_YAML.replace("parallelism", "paralelism"));
        for command in ["create", "apply", "apply --server-side"] {
            let said = kubectl.fails(&format!("{command} -f {wrong}"));
            assert!(said.contains("paralelism"), "{command}: {said}");
        }
        assert_eq!(kubectl.ok("get jobs -o name"), "");
    })
    .await;
}

/// API-30. Subresources are listed with their verbs, and kubectl uses them.
#[tokio::test]
async fn what_has_a_number_of_pods_is_scaled() {
    with_each_kubectl(async |kubectl| {
        kubectl.ok("create deployment web --image=i --replicas=2");
        assert!(kubectl.ok("scale deployment web --replicas=5").contains("scaled"));
        assert_eq!(kubectl.ok("get deployment web -o jsonpath={.spec.replicas}"), "5");
        assert!(kubectl.ok("scale deployment web --current-replicas=5 --replicas=0").contains("scaled"));
        assert_eq!(kubectl.ok("get deployment web -o jsonpath={.spec.replicas}"), "0");
        let said = kubectl.say("scale deployment web --current-replicas=5 --replicas=3");
        assert!(said.code == Some(1) && said.err.contains("xpected"), "{said:?}");
        if kubectl.minor >= 24 {
            let rows = kubectl.table("get deployment web --subresource=scale");
            assert_eq!(rows[0][..3], ["NAME", "DESIRED", "AVAILABLE"]);
            assert_eq!(rows[1][..3], ["web", "0", "0"]);
        }
        let resources = kubectl.json("get --raw /apis/apps/v1");
        let found = resources["resources"].as_array().unwrap().iter().find(|one| one["name"] == "deployments/scale");
        assert_eq!(found.unwrap()["verbs"], serde_json::json!(["get", "patch", "update"]));
    })
    .await;
}
