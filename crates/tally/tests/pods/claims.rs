//! Claims for storage: `kubectl get pvc`, Pods that use them, and what stays.

use std::path::{Path, PathBuf};

use crate::support::kubectl::{Kubectl, with_each_kubectl, with_node, with_open_node};
use crate::support::server::Server;
use crate::tool::eventually;
use crate::{container, create, pod, wait_for_phase};

fn claim(name: &str, more: &str) -> String {
    format!(
        "---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}}}
spec:
  accessModes: [ReadWriteOnce]
  resources: {{requests: {{storage: 1Gi}}}}
  {more}
"
    )
}

/// A Pod that uses a claim, mounted at /data.
fn user(name: &str, claim: &str, script: &str) -> String {
    let volumes = format!("volumes: [{{name: v, persistentVolumeClaim: {{claimName: {claim}}}}}]");
    let mounts = format!(
        "{{name: main, image: process, command: [sh, -c, {script:?}], volumeMounts: [{{name: v, mountPath: /data}}]}}"
    );
    pod(name, &volumes, &[mounts])
}

fn jsonpath(kubectl: &Kubectl, of: &str, path: &str) -> String {
    kubectl.ok(&format!("get {of} -o jsonpath={{{path}}}"))
}

fn directory(root: &Path, uid: &str) -> PathBuf {
    root.join("data/node/claims").join(uid)
}

/// CLAIM-1, CLAIM-3, CLAIM-4
fn data_stays_until_the_claim_is_deleted(kubectl: &Kubectl) {
    let warned = create(kubectl, &(claim("data", "") + &user("writer", "data", "echo hello > /data/file; umask")));
    assert!(!warned.contains("Warning"), "{warned}");
    wait_for_phase(kubectl, "writer", "Succeeded");
    kubectl.ok("wait --for=jsonpath={.status.phase}=Bound pvc/data --timeout=60s");
    let uid = jsonpath(kubectl, "pvc/data", ".metadata.uid");
    let table = kubectl.table("get pvc --no-headers");
    assert_eq!(table[0][..6], ["data", "Bound", &format!("pvc-{uid}"), "1Gi", "RWO", "local"], "{table:?}");
    let here = directory(kubectl.directory.path(), &uid);
    assert_eq!(std::fs::read_to_string(here.join("file")).unwrap(), "hello\n");

    kubectl.ok("delete pod writer");
    create(kubectl, &user("reader", "data", "cat /data/file; sleep 1000"));
    wait_for_phase(kubectl, "reader", "Running");
    eventually("it is read", || kubectl.ok("logs reader") == "hello\n");

    // A claim that is used stays.
    kubectl.ok("delete pvc data --wait=false");
    assert_eq!(kubectl.table("get pvc --no-headers")[0][1], "Terminating");
    create(kubectl, &user("late", "data", "true"));
    eventually("it says why it waits", || {
        let said = kubectl.ok("get pod late -o json").replace('\\', "");
        said.contains("persistentvolumeclaim \"data\" is being deleted")
    });
    kubectl.ok("delete pod late");
    assert!(here.join("file").exists());
    kubectl.ok("delete pod reader");
    kubectl.ok("wait --for=delete pvc/data --timeout=60s");
    assert!(!here.exists());
    assert_eq!(std::fs::read_dir(here.parent().unwrap()).unwrap().count(), 0);
}

#[tokio::test]
async fn claims_of_isolated_pods() {
    data_stays_until_the_claim_is_deleted(&with_node().await);
}

#[tokio::test]
async fn claims_of_pods_that_are_not_isolated() {
    data_stays_until_the_claim_is_deleted(&with_open_node().await);
}

/// CLAIM-3, CLAIM-4: also across restarts of the server.
#[tokio::test]
async fn data_survives_a_restart() {
    let mut kubectl = with_node().await;
    create(&kubectl, &(claim("data", "") + &user("writer", "data", "echo hello > /data/file")));
    wait_for_phase(&kubectl, "writer", "Succeeded");
    let uid = jsonpath(&kubectl, "pvc/data", ".metadata.uid");
    let root = kubectl.directory.path().to_owned();
    kubectl.server = restarted(kubectl.server, &root).await;
    let read_only = user("reader", "data", "cat /data/file; echo more > /data/other || echo refused")
        .replace("claimName: data", "claimName: data, readOnly: true");
    create(&kubectl, &read_only);
    wait_for_phase(&kubectl, "reader", "Succeeded");
    let said = kubectl.ok("logs reader");
    // What it wrote to stderr can come anywhere between.
    let lines: Vec<_> = said.lines().filter(|line| !line.contains("Read-only")).collect();
    assert_eq!(lines, ["hello", "refused"], "{said}");
    // Killed with a claim that is being deleted: the next one removes it.
    kubectl.ok(
        "patch pvc data --type=json -p [{\"op\":\"add\",\"path\":\"/metadata/finalizers/-\",\"value\":\"test/wait\"}]",
    );
    kubectl.ok("delete pvc data --wait=false");
    kubectl.server = restarted(kubectl.server, &root).await;
    eventually("its directory is removed", || !directory(&root, &uid).exists());
    kubectl.ok("patch pvc data --type=merge -p {\"metadata\":{\"finalizers\":null}}");
    kubectl.ok("wait --for=delete pvc/data --timeout=60s");
}

async fn restarted(server: Server, root: &Path) -> Server {
    drop(server);
    Server::start_node(root).await
}

/// CLAIM-2, CLAIM-5
#[tokio::test]
async fn a_claim_of_another_class_gets_no_volume_and_that_is_said() {
    let kubectl = with_node().await;
    let warned = create(&kubectl, &claim("fast", "storageClassName: fast"));
    let told = "nothing here provisions volumes of the storage class \"fast\"";
    assert!(warned.contains("Warning") && warned.replace('\\', "").contains(told), "{warned}");
    create(&kubectl, &(user("stuck", "fast", "true") + &user("lost", "nope", "true")));
    eventually("the Pod says why", || kubectl.ok("get pod stuck -o json").replace('\\', "").contains(told));
    eventually("and its event", || kubectl.ok("get events -o json").replace('\\', "").contains(told));
    eventually("a claim that does not exist", || {
        kubectl.ok("get pod lost -o json").replace('\\', "").contains("persistentvolumeclaim \"nope\" not found")
    });
    assert_eq!(jsonpath(&kubectl, "pod/stuck", ".status.phase"), "Pending");
    assert_eq!(jsonpath(&kubectl, "pvc/fast", ".status.phase"), "Pending");
    // It is not protected: nothing would take the protection away.
    kubectl.ok("delete pod stuck lost --now");
    kubectl.ok("delete pvc fast --timeout=60s");
    let warned = create(&kubectl, &claim("alone", "").replace("ReadWriteOnce", "ReadWriteOncePod"));
    assert!(warned.contains("access modes are not enforced"), "{warned}");
    create(
        &kubectl,
        &pod(
            "both",
            "volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: \
        [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]",
            &[container("main", "true")],
        ),
    );
    eventually("a generic ephemeral volume is refused", || {
        kubectl.ok("get pod both -o json").contains("has no ephemeral volumes")
    });
}

/// CLAIM-5, CLAIM-6
#[tokio::test]
async fn claims_are_validated_and_warned_about() {
    with_each_kubectl(|kubectl| async move {
        let warned = create(&kubectl, &claim("c", ""));
        assert!(warned.contains("this server has no node that provisions volumes"), "{warned}");
        assert_eq!(jsonpath(&kubectl, "pvc/c", ".status.phase"), "Pending");
        for (from, to, told) in [
            (
                "accessModes: [ReadWriteOnce]",
                "",
                "spec.accessModes: Required value: at least 1 access mode is required",
            ),
            ("[ReadWriteOnce]", "[Often]", "spec.accessModes: Unsupported value: \"Often\": supported values: "),
            ("storage: 1Gi", "", "spec.resources[storage]: Required value"),
            ("storage: 1Gi", "storage: 0", "spec.resources[storage]: Invalid value: \"0\": must be greater than zero"),
        ] {
            let said = kubectl.with_input("create -f -", &claim("d", "").replace(from, to));
            assert!(said.code == Some(1) && said.err.contains(told), "{to}: {said:?}");
        }
        let refused = kubectl.fails("patch pvc c -p {\"spec\":{\"accessModes\":[\"ReadOnlyMany\"]}}");
        assert!(refused.contains("spec is immutable after creation except resources.requests"), "{refused}");
        let refused = kubectl.fails("patch pvc c -p {\"spec\":{\"resources\":{\"requests\":{\"storage\":\"2Gi\"}}}}");
        assert!(refused.contains("spec is immutable after creation"), "{refused}");
        kubectl.ok("label pvc c a=b");
        kubectl.ok("delete pvc c --timeout=60s");
        // Nothing scales here, and the kind is not served.
        let said = kubectl.say("autoscale deployment x --max=3");
        assert_eq!(said.code, Some(1), "{said:?}");
    })
    .await;
    let kubectl = with_node().await;
    create(&kubectl, &claim("c", ""));
    kubectl.ok("wait --for=jsonpath={.status.phase}=Bound pvc/c --timeout=60s");
    kubectl.ok("patch pvc c -p {\"spec\":{\"resources\":{\"requests\":{\"storage\":\"2Gi\"}}}}");
    kubectl.ok("wait --for=jsonpath={.status.capacity.storage}=2Gi pvc/c --timeout=60s");
    let refused = kubectl.fails("patch pvc c -p {\"spec\":{\"resources\":{\"requests\":{\"storage\":\"1Gi\"}}}}");
    assert!(refused.contains("field can not be less than status.capacity"), "{refused}");
}
