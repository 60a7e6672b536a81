//! What Pods may use: processes, memory, disk space, and the space for logs.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use tally_testing::{is_root, skip};

use crate::isolation::{create, said_by, stay, with_argument};
use crate::support::kubectl::{Kubectl, with_node, with_node_and};
use crate::tool::{eventually, job};

fn field(kubectl: &Kubectl, pod: &str, path: &str) -> String {
    kubectl.ok(&format!("get pod {pod} -o jsonpath={{{path}}}"))
}

fn limits(of: Value) -> Value {
    json!({"resources": {"limits": of}})
}

/// The user asked for a limit of processes, so that the start would have failed without one.
#[tokio::test]
async fn a_fork_bomb_leaves_the_cluster_usable() {
    let here = crate::support::server::directory();
    let mut tried = std::process::Command::new(env!("CARGO_BIN_EXE_tally"));
    tried.args(["up", "--ephemeral", "--listen", "127.0.0.1:0", "--isolate", "--pod-pids-limit", "15"]);
    let refused = tried.current_dir(here.path()).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    if !is_root() {
        return skip("this needs root");
    }
    for isolate in ["--isolate=true", "--isolate=false"] {
        let kubectl = with_node_and(&["--pod-pids-limit", "100", isolate]).await;
        let mark = stay(kubectl.directory.path());
        // Some processes that stay, and then as many as it gets.
        let script = format!(
            "d=$(mktemp -d); mkfifo $d/f; exec 3<>$d/f; i=0; while [ $i -lt 50 ]; do sleep 1000.{mark} & i=$((i+1)); done; \
             sh -c 'while :; do sh -c \"while :; do sleep 0.2 & done\"; done' {mark} 2>/dev/null & read forever <&3"
        );
        create(&kubectl, "bomb", json!({"terminationGracePeriodSeconds": 1}), json!({}), &script);
        eventually("it runs", || with_argument(&format!("1000.{mark}")).len() >= 50);
        assert!(with_argument(&mark).len() <= 100);
        create(&kubectl, "other", json!({}), json!({}), "for i in 1 2 3 4 5; do sleep 0.01 & done; wait; echo done");
        assert_eq!(said_by(&kubectl, "other"), "done\n");
        assert_eq!(field(&kubectl, "bomb", ".status.phase"), "Running");
        kubectl.ok("delete pod bomb --timeout=60s");
        eventually("nothing of it is left", || with_argument(&mark).is_empty());
    }
}

#[tokio::test]
async fn a_container_that_needs_too_much_memory_is_killed_and_says_so() {
    let kubectl = with_node().await;
    let memory = limits(json!({"memory": "32Mi", "cpu": "1"}));
    // Asked of a Pod that needs none: without limits, the other one would take the memory of the machine.
    create(&kubectl, "modest", json!({}), memory.clone(), "true");
    said_by(&kubectl, "modest");
    let unenforced = field(&kubectl, "modest", ".status.conditions[?(@.type==\"tally.dev/LimitsEnforced\")].message");
    if !unenforced.is_empty() {
        return skip(unenforced);
    }
    create(&kubectl, "hungry", json!({}), memory, "x=x; while :; do x=$x$x; done");
    said_by(&kubectl, "hungry");
    let ended = ".status.containerStatuses[0].state.terminated";
    assert_eq!(field(&kubectl, "hungry", &format!("{ended}.reason")), "OOMKilled");
    assert_eq!(field(&kubectl, "hungry", &format!("{ended}.exitCode")), "137");
}

fn evicted(kubectl: &Kubectl, pod: &str, message: &str) {
    eventually("it is evicted", || field(kubectl, pod, ".status.phase") == "Failed");
    assert_eq!(field(kubectl, pod, ".status.reason"), "Evicted");
    assert_eq!(field(kubectl, pod, ".status.message"), message);
    let condition = ".status.conditions[?(@.type==\"DisruptionTarget\")]";
    assert_eq!(field(kubectl, pod, &format!("{condition}.reason")), "TerminationByKubelet");
    assert_eq!(field(kubectl, pod, &format!("{condition}.message")), message);
    eventually("there is an Event", || {
        let events = kubectl.json("get events -o json");
        let about = |event: &Value| event["involvedObject"]["name"] == pod && event["reason"] == "Evicted";
        events["items"].as_array().unwrap().iter().any(|event| about(event) && event["message"] == message)
    });
}

#[tokio::test]
async fn pods_that_use_too_much_disk_are_evicted() {
    let kubectl = with_node_and(&["--housekeeping-interval", "1s"]).await;
    let node = kubectl.directory.path().join("data/node");
    let volume = |medium: &str| json!({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi", "medium": medium}}]});
    let mounts = json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]});
    let fill = "dd if=/dev/zero of=/v/x bs=1M count=2 2>/dev/null; echo full; sleep 1000";
    create(&kubectl, "volume", volume(""), mounts.clone(), fill);
    evicted(&kubectl, "volume", "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ");
    assert_eq!(kubectl.ok("logs volume"), "full\n", "its logs stay");
    let uid = field(&kubectl, "volume", ".metadata.uid");
    eventually("its volumes are gone", || !node.join(format!("pods/{uid}/volumes")).exists());
    eventually("so is their content", || fs::read_dir(node.join("trash")).unwrap().count() == 0);

    // What it prints, and what it writes to its own /tmp, if it has one.
    create(
        &kubectl,
        "logs",
        json!({}),
        limits(json!({"ephemeral-storage": "1Mi"})),
        "head -c 2000000 /dev/zero | tr '\\0' '\\n'; sleep 1000",
    );
    evicted(&kubectl, "logs", "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ");
    if kubectl.server.said().contains("pods        isolated") {
        let fill = "head -c 2000000 /dev/zero > /tmp/x; sleep 1000";
        create(&kubectl, "tmp", json!({}), limits(json!({"ephemeral-storage": "1Mi"})), fill);
        evicted(&kubectl, "tmp", "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ");
    }

    // Below their limits Pods end as usual. A volume in memory cannot become larger than its limit.
    let modest = "head -c 500000 /dev/zero > /v/x; echo fits; sleep 3";
    create(&kubectl, "modest", volume(""), mounts.clone(), modest);
    create(&kubectl, "memory", volume("Memory"), mounts, "head -c 2000000 /dev/zero > /v/x || echo no room; sleep 3");
    assert_eq!(said_by(&kubectl, "modest"), "fits\n");
    let said = said_by(&kubectl, "memory");
    assert!(said.contains("no room") || field(&kubectl, "memory", ".status.reason") == "Evicted", "{said}");
    assert_eq!(field(&kubectl, "modest", ".status.phase"), "Succeeded");
}

/// The bytes of the logs of a Pod.
fn logged(node: &Path, uid: &str) -> u64 {
    let files = fs::read_dir(node.join("pods").join(uid)).into_iter().flatten().flatten();
    let logs = files.filter(|file| file.file_name().to_string_lossy().ends_with(".log"));
    logs.map(|file| file.metadata().map_or(0, |metadata| metadata.len())).sum()
}

#[tokio::test]
async fn the_oldest_logs_of_ended_pods_are_removed_first() {
    let kubectl = with_node_and(&["--ended-logs", "100Ki", "--housekeeping-interval", "1s"]).await;
    let node = kubectl.directory.path().join("data/node");
    let print = "i=0; while [ $i -lt 1000 ]; do echo line $i of some logs of this Pod; i=$((i+1)); done";
    create(&kubectl, "runs", json!({}), json!({}), &format!("{print}; sleep 1000"));
    let uid = |pod: &str| field(&kubectl, pod, ".metadata.uid");
    let running = uid("runs");
    eventually("it has printed", || kubectl.say("logs runs --tail=1").out.starts_with("line 999"));
    let mut ended = Vec::new();
    for number in 0..5 {
        let name = format!("ended-{number}");
        create(&kubectl, &name, json!({}), json!({}), print);
        assert!(said_by(&kubectl, &name).lines().count() == 1000 || number > 0);
        ended.push(uid(&name));
        // The times of files have to differ.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let sizes = || ended.iter().map(|uid| logged(&node, uid)).collect::<Vec<_>>();
    let most = 100 << 10;
    eventually("the rest fits", || sizes().iter().sum::<u64>() <= most);
    let left = sizes();
    let gone = left.iter().take_while(|bytes| **bytes == 0).count();
    assert!((1..5).contains(&gone) && left[gone..].iter().all(|bytes| *bytes > 0), "{left:?}");
    assert!(left.iter().sum::<u64>() + left[gone] > most, "no more than necessary: {left:?}");
    assert!(logged(&node, &running) > 0, "a Pod that runs keeps its logs");
    assert_eq!(kubectl.ok("logs ended-4").lines().count(), 1000);
    eventually("it is said", || {
        kubectl.server.said().contains(" that have ended were removed: they used more than 102400")
    });
}

#[tokio::test]
async fn jobs_that_are_deleted_leave_no_files_and_no_control_groups() {
    let kubectl = with_node().await;
    let node = kubectl.directory.path().join("data/node");
    let pod = "restartPolicy: Never\n      volumes: [{name: v, emptyDir: {sizeLimit: 10Mi}}]";
    let spec = "completions: 30\n  parallelism: 6\n  backoffLimit: 100";
    let script = "echo out; head -c 100000 /dev/zero > /v/x; test $(($$ % 4)) != 0";
    let work = job("work", kubectl.directory.path(), spec, pod, script);
    let container = "image: process\n          volumeMounts: [{name: v, mountPath: /v}]\n          \
                     resources: {limits: {memory: 100Mi, cpu: 500m}}";
    let made = kubectl.with_input("create --validate=false -f -", &work.replace("image: process", container));
    assert_eq!(made.code, Some(0), "{}", made.err);
    // All of it, or a part: some fail, and are waited for.
    eventually("many have ended", || {
        kubectl.ok("get job work -o jsonpath={.status.succeeded}").parse::<u32>().is_ok_and(|count| count >= 10)
    });
    kubectl.ok("delete job work --cascade=foreground --timeout=120s");
    for directory in ["pods", "trash", "words"] {
        eventually(directory, || fs::read_dir(node.join(directory)).unwrap().count() == 0);
    }
    let trees = fs::read_to_string(node.join("cgroup")).unwrap_or_default();
    for tree in trees.lines() {
        let groups = || fs::read_dir(tree).unwrap().flatten().filter(|entry| entry.file_type().unwrap().is_dir());
        let of_pods = || groups().filter(|entry| !entry.file_name().to_string_lossy().starts_with("shim-")).count();
        eventually(tree, || of_pods() == 0);
    }
}
