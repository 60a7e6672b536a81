//! Control groups of both versions, as far as this machine has them: limits, and that no group is left.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tally_node::port::{Exit, Report, ResourceLimits};
use tally_node::shim::PidsLimit;
use tally_node::shim_client::{Config, ShimClient};

use tally_testing::skip;

use crate::harness::{Node, alive, block_on, kill, program, shim_of, sign, until};
use crate::start::shell;

/// What the shim sees of the control groups of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Machine {
    AsItIs,
    /// No cgroups v2.
    V1,
    /// No cgroups.
    Without,
}

impl Machine {
    /// The shim, in a mount namespace in which some hierarchies are not mounted. None: this user may not make one.
    fn program(self, here: &Path) -> Option<PathBuf> {
        let kinds = match self {
            Self::AsItIs => return Some(program()),
            Self::V1 => "cgroup2",
            Self::Without => "cgroup2\\?",
        };
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let script = here.join("shim.sh");
        let text = format!(
            "#!/bin/sh\nexec unshare --mount sh -c 'grep \" - {kinds} \" /proc/self/mountinfo | cut -d\" \" -f5 | \
             while read -r point; do umount -l $point; done; exec \"$0\" \"$@\"' '{}' \"$@\"\n",
            program().display()
        );
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        Some(script)
    }
}

/// The groups of a node with this root, in all hierarchies.
fn groups(root: &Path) -> Vec<PathBuf> {
    let root = fs::metadata(root).unwrap();
    let name = format!("tally-{}-{}", root.dev(), root.ino());
    let mut found = Vec::new();
    let mut ahead = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = ahead.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_name() == name.as_str() {
                found.push(entry.path());
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                ahead.push(entry.path());
            }
        }
    }
    found
}

/// The files with these names in the groups of the node's only Pod.
fn written(root: &Path, names: &[&str]) -> Vec<String> {
    fn walk(dir: &Path, names: &[&str], found: &mut Vec<String>) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                walk(&entry.path(), names, found);
            } else if names.iter().any(|name| entry.file_name() == *name) {
                let text = fs::read_to_string(entry.path()).unwrap_or_default();
                found.push(format!("{} {}", entry.file_name().display(), text.trim()));
            }
        }
    }
    let mut found = Vec::new();
    for tree in groups(root) {
        walk(&tree.join("00000000-0000-0000-0000-000000000007"), names, &mut found);
    }
    found.sort();
    found
}

/// Runs the test where the shim has groups of processes, memory and CPUs.
fn with_groups(machine: Machine, pids: u64, isolate: bool, test: impl AsyncFn(&mut Node)) {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = machine.program(directory.path()) else { return skip("this needs root") };
    let root = directory.path().join("root");
    block_on(async {
        let mut config = Config::new(program, root.clone());
        config.pids_limit = Some(PidsLimit { most: pids, required: true });
        config.hidden = isolate.then(|| vec![root.clone()]);
        match ShimClient::start(config.clone()).await {
            Ok(first) => first.stop().await,
            Err(error) => return skip(error),
        }
        assert_eq!(groups(&root), Vec::<PathBuf>::new(), "an idle node leaves no groups");
        let mut node = Node::start_with(config).await;
        test(&mut node).await;
        node.stop().await;
        assert_eq!(groups(&root), Vec::<PathBuf>::new(), "no groups are left");
        assert!(!root.join("cgroup").exists());
    });
}

const LIMITS: ResourceLimits =
    ResourceLimits { cpu: Some(500), memory: Some(64 << 20), cpu_request: 250, pod_cpu_request: 1000 };

#[test]
fn limits_of_memory_and_cpu_hold() {
    for (machine, isolate) in
        [(Machine::AsItIs, true), (Machine::AsItIs, false), (Machine::V1, true), (Machine::V1, false)]
    {
        with_groups(machine, 100, isolate, async |node| {
            let mut start = shell(node.attempt("waits", 0), "sleep 1000");
            start.limits = LIMITS;
            assert!(matches!(node.launch(start).await, Report::Started { .. }));
            let v1 = ["cpu.shares", "cpu.cfs_quota_us", "memory.limit_in_bytes", "pids.max"];
            let v2 = ["cpu.weight", "cpu.max", "memory.max"];
            let found = written(&node.root, &[&v1[..], &v2[..]].concat());
            for one in [
                ["cpu.cfs_quota_us 50000", "cpu.max 50000 100000"],
                ["cpu.shares 256", "cpu.weight 10"],
                ["cpu.shares 1024", "cpu.weight 39"],
                ["memory.limit_in_bytes 67108864", "memory.max 67108864"],
                ["pids.max 100", "pids.max 100"],
            ] {
                assert!(one.iter().any(|line| found.contains(&(*line).to_owned())), "{one:?} in {found:?}");
            }
            node.send(tally_node::port::ShimCommand::Signal {
                attempt: node.attempt("waits", 0),
                signal: tally_node::port::Signal::Kill,
            })
            .await;
            assert!(matches!(node.next().await, Report::Signalled { .. }));
            assert_eq!(node.ended().await.code, 137);
            assert_eq!(written(&node.root, &["cgroup.procs"]), [""; 0], "the groups go with the last container");

            let mut start = shell(node.attempt("hungry", 0), "x=x; while :; do x=$x$x; done");
            start.limits.memory = Some(32 << 20);
            let exit = node.run(start).await;
            assert!(matches!(exit, Exit { out_of_memory: true, signal: Some(9), code: 137, .. }), "{exit:?}");
            // What stays below its limit ends as usual.
            let mut start = shell(node.attempt("modest", 0), "exit 6");
            start.limits.memory = Some(32 << 20);
            let exit = node.run(start).await;
            assert!(!exit.out_of_memory && exit.code == 6, "{exit:?}");

            // A second of work by a tenth of a CPU.
            let mut start = shell(node.attempt("slow", 0), "timeout 1 sh -c 'while :; do :; done'; cat /proc/$$/stat");
            start.limits.cpu = Some(100);
            let begun = Instant::now();
            assert_eq!(node.run(start).await.code, 0);
            assert!(begun.elapsed() >= Duration::from_millis(900));
            let stat = node.log("slow").await;
            // User and system time of the children that it waited for, in hundredths of a second.
            let used: u64 = stat.split_whitespace().skip(15).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
            assert!(used <= 60, "{used} of 100 ticks: {stat}");
        });
    }
}

#[test]
fn processes_of_a_pod_are_limited_together() {
    for (machine, isolate) in
        [(Machine::AsItIs, true), (Machine::AsItIs, false), (Machine::V1, true), (Machine::V1, false)]
    {
        with_groups(machine, 40, isolate, async |node| {
            let sign = sign();
            let script = format!("i=0; while [ $i -lt 25 ]; do sleep {sign} & i=$((i+1)); done; echo all; wait");
            assert!(matches!(node.launch(shell(node.attempt("first", 0), &script)).await, Report::Started { .. }));
            until("the first has all", || alive(&format!("sleep\0{sign}")).len() == 25).await;
            // There is no room for the same number again in this Pod, whose containers share the limit.
            let exit = node.run(shell(node.attempt("second", 0), &script)).await;
            assert_ne!(exit.code, 0, "{exit:?}");
            assert!(!node.log("second").await.contains("all"));
            // Another Pod has its own.
            let mut other = node.attempt("other", 0);
            other.pod = tally_core::ids::PodUid::from_u128(8);
            assert_eq!(
                node.run(shell(other, "for i in 1 2 3 4 5 6 7 8; do sleep 0.01 & done; wait; exit 5")).await.code,
                5
            );
            // It can be ended as any other, although it cannot start a process.
            kill_attempt(node, "first").await;
            assert_eq!(alive(&sign), [0; 0]);
            // So can one that does nothing but start processes.
            let churn = format!("sh -c 'while :; do sleep 0.001; done' {sign} & ").repeat(10);
            assert!(matches!(
                node.launch(shell(node.attempt("churn", 0), &format!("{churn} wait"))).await,
                Report::Started { .. }
            ));
            until("all of it runs", || alive(&sign).len() > 10).await;
            kill_attempt(node, "churn").await;
            assert_eq!(alive(&sign), [0; 0]);
        });
    }
}

async fn kill_attempt(node: &mut Node, container: &str) {
    let attempt = node.attempt(container, 0);
    node.send(tally_node::port::ShimCommand::Signal { attempt, signal: tally_node::port::Signal::Kill }).await;
    assert!(matches!(node.next().await, Report::Signalled { .. }));
    node.ended().await;
}

#[test]
fn a_killed_shim_leaves_neither_processes_nor_groups() {
    for machine in [Machine::AsItIs, Machine::V1] {
        with_groups(machine, 100, false, async |node| {
            let sign = sign();
            for container in ["one", "two"] {
                // The processes have left everything that they can leave.
                let daemon = format!(
                    "env -i setsid nohup sleep {sign} >/dev/null 2>&1 & env -i setsid sleep {sign} & sleep {sign}"
                );
                let mut start = shell(node.attempt(container, 0), &daemon);
                start.limits = LIMITS;
                assert!(matches!(node.launch(start).await, Report::Started { .. }));
            }
            until("they run", || alive(&format!("sleep\0{sign}")).len() == 6).await;
            assert!(!written(&node.root, &["cgroup.procs"]).is_empty());
            kill(shim_of(&node.root));
            node.recovered().await;
            assert_eq!(alive(&sign), [0; 0]);
            assert_eq!(written(&node.root, &["cgroup.procs"]), [""; 0]);
            assert_eq!(node.script("next", "exit 8").await.code, 8);
        });
    }
}

#[test]
fn limits_without_effect_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = Machine::Without.program(directory.path()) else { return skip("this needs root") };
    let root = directory.path().join("root");
    block_on(async {
        let mut config = Config::new(program, root.clone());
        config.pids_limit = Some(PidsLimit { most: 100, required: true });
        let refused = ShimClient::start(config.clone()).await.err().unwrap().to_string();
        let why = "--pod-pids-limit: the processes of a Pod cannot be limited here: this machine has no control groups";
        assert!(refused.contains(why), "{refused}");
        config.pids_limit = Some(PidsLimit { most: 100, required: false });
        let notes = config.notes.clone();
        let mut node = Node::start_with(config).await;
        let mut start = shell(node.attempt("main", 0), "exit 6");
        start.limits = LIMITS;
        let message =
            "limits of cpu and memory are not enforced on this node: this machine has no control groups".to_owned();
        assert_eq!(
            node.launch(start).await,
            Report::LimitsNotEnforced { pod: node.pod.clone(), message: message.clone() }
        );
        assert!(matches!(node.next().await, Report::Started { .. }));
        assert_eq!(node.ended().await.code, 6);
        let told = notes.take();
        let no_pids =
            "the number of processes of a Pod is not limited here: this machine has no control groups".to_owned();
        assert_eq!(told, [no_pids, message]);
        // Without limits nothing is said.
        assert_eq!(node.script("free", "exit 5").await.code, 5);
        node.stop().await;
        assert!(!root.join("cgroup").exists());
    });
}
