//! delete: every cascade, grace, force, selectors, and what remains.

use super::tool::{Kubectl, with_each_kubectl};

fn finalizers(kubectl: &Kubectl, name: &str) -> String {
    kubectl.ok(&format!("get job {name} -o jsonpath={{.metadata.finalizers[*]}}"))
}

#[tokio::test]
async fn every_cascade_leaves_the_job_as_it_says() {
    with_each_kubectl(async |kubectl| {
        for name in ["background", "foreground", "orphan", "default"] {
            kubectl.ok(&format!("create job {name} --image=i"));
        }
        assert_eq!(
            kubectl.ok("delete job background --cascade=background"),
            deleted(&kubectl, "job.batch", "background", "default")
        );
        kubectl.fails("get job background");
        // Without a garbage collector the finalizers stay, and show what was requested.
        for (name, finalizer) in [("foreground", "foregroundDeletion"), ("orphan", "orphan")] {
            let out = kubectl.ok(&format!("delete job {name} --cascade={name} --wait=false"));
            assert_eq!(out, deleted(&kubectl, "job.batch", name, "default"));
            assert_eq!(finalizers(&kubectl, name), finalizer);
            assert_ne!(kubectl.ok(&format!("get job {name} -o jsonpath={{.metadata.deletionTimestamp}}")), "");
            kubectl.run(&["patch", "job", name, "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]);
            kubectl.fails(&format!("get job {name}"));
        }
        kubectl.ok("delete job default");
        assert_eq!(kubectl.ok("get jobs -o name"), "");
    })
    .await;
}

#[tokio::test]
async fn a_pod_on_a_node_is_given_its_grace_unless_forced() {
    with_each_kubectl(async |kubectl| {
        let pod = |name: &str| {
            let overrides = r#"--overrides={"apiVersion":"v1","spec":{"nodeName":"n1"}}"#;
            let said = kubectl.run(&["run", name, "--image=i", "--restart=Never", overrides]);
            assert_eq!(said.code, Some(0), "{said:?}");
        };
        let grace =
            |name: &str| kubectl.ok(&format!("get pod {name} -o jsonpath={{.metadata.deletionGracePeriodSeconds}}"));
        pod("slow");
        kubectl.ok("delete pod slow --wait=false");
        assert_eq!(grace("slow"), "30");
        let row = &kubectl.table("get pods")[1];
        assert_eq!((row[0].as_str(), row[2].as_str()), ("slow", "Terminating"));
        kubectl.ok("delete pod slow --grace-period=5 --wait=false");
        assert_eq!(grace("slow"), "5");
        kubectl.ok("delete pod slow --now --wait=false");
        assert_eq!(grace("slow"), "1");
        kubectl.ok("delete pod slow --grace-period=0 --force");
        kubectl.fails("get pod slow");

        pod("forced");
        let said = kubectl.say("delete pod forced --force");
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.out.contains("pod \"forced\" force deleted"), "{said:?}");
        kubectl.fails("get pod forced");

        kubectl.ok("run unbound --image=i --restart=Never");
        kubectl.ok("delete pod unbound");
        kubectl.fails("get pod unbound");
    })
    .await;
}

#[tokio::test]
async fn many_are_deleted_by_name_label_file_and_all() {
    with_each_kubectl(async |kubectl| {
        for name in ["a", "b", "c", "d", "e"] {
            kubectl.ok(&format!("create job {name} --image=i"));
        }
        kubectl.ok("label job c d half=yes");
        assert_eq!(
            kubectl.ok("delete job a b"),
            deleted(&kubectl, "job.batch", "a", "default") + &deleted(&kubectl, "job.batch", "b", "default")
        );
        kubectl.ok("delete jobs -l half=yes");
        assert_eq!(kubectl.ok("get jobs -o name"), "job.batch/e\n");
        let file = kubectl.file("e.yaml", &super::JOB_YAML.replace("name: pi", "name: e"));
        kubectl.ok(&format!("delete -f {file}"));
        kubectl.ok("create job f --image=i");
        kubectl.ok("create job g --image=i");
        kubectl.ok("delete jobs --all");
        assert_eq!(kubectl.ok("get jobs -o name"), "");
        assert_eq!(kubectl.fails("delete job a"), "Error from server (NotFound): jobs.batch \"a\" not found\n");
        assert_eq!(kubectl.ok("delete job a --ignore-not-found"), "");
        kubectl.ok("create job h --image=i");
        let dry = kubectl.ok("delete job h --dry-run=server");
        assert!(dry.contains("(server dry run)"), "{dry}");
        assert_eq!(kubectl.ok("get jobs -o name"), "job.batch/h\n");
    })
    .await;
}

#[tokio::test]
async fn a_terminating_namespace_takes_nothing_new() {
    with_each_kubectl(async |kubectl| {
        kubectl.ok("create namespace leaving");
        kubectl.ok("delete namespace leaving --wait=false");
        assert_eq!(kubectl.table("get namespace leaving")[1][..2], ["leaving", "Terminating"]);
        let refused = kubectl.fails("create job late --image=i -n leaving");
        assert!(
            refused.contains(
                "is forbidden: unable to create new content in namespace leaving because it is being terminated"
            ),
            "{refused}"
        );
    })
    .await;
}

/// kubectl names the namespace since 1.33.
fn deleted(kubectl: &Kubectl, kind: &str, name: &str, namespace: &str) -> String {
    match kubectl.minor {
        33.. => format!("{kind} \"{name}\" deleted from {namespace} namespace\n"),
        _ => format!("{kind} \"{name}\" deleted\n"),
    }
}
