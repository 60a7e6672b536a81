//! What is left when processes are killed, at any moment and in any combination.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command};
use std::time::Duration;

use tally_core::ids::PodUid;

use crate::harness::{Node, alive, block_on, kill, program, shim_of, sign, until, wait_until};
use crate::start::{code_of, shell};

struct World {
    root: tempfile::TempDir,
    dir: tempfile::TempDir,
    sign: String,
}

impl World {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap(), dir: tempfile::tempdir().unwrap(), sign: sign() }
    }

    fn decide(&self) -> Child {
        let mut command = Command::new(program());
        command.arg("decider").args([self.root.path(), self.dir.path()]).arg(&self.sign);
        command.spawn().unwrap()
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn wait_for(&self, name: &str, lines: usize) {
        wait_until(name, || self.lines(name).len() >= lines);
    }

    /// The processes of running containers: the sleeping processes they leave behind, and their shells.
    fn left(&self) -> Vec<i32> {
        alive(&self.sign).into_iter().filter(|pid| !self.is_decider(*pid)).collect()
    }

    fn is_decider(&self, pid: i32) -> bool {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains("\0decider\0"))
    }
}

#[test]
fn everything_ends_with_the_one_who_decides() {
    let world = World::new();
    let mut decider = world.decide();
    world.wait_for("told", 5);
    let shim = shim_of(world.root.path());
    decider.kill().unwrap();
    decider.wait().unwrap();
    // Without another start: the shim ends everything, and then itself.
    let gone = || std::fs::read(format!("/proc/{shim}/cmdline")).unwrap_or_default().is_empty();
    wait_until("the shim ends", gone);
    assert_eq!(world.left(), [0; 0]);
    block_on(judge(&world, &mut BTreeMap::new()));
}

#[test]
fn strays_of_a_killed_shim_are_found() {
    let world = World::new();
    let mut decider = world.decide();
    world.wait_for("began", 5);
    wait_until("something runs", || !world.left().is_empty());
    kill(shim_of(world.root.path()));
    decider.kill().unwrap();
    decider.wait().unwrap();
    block_on(judge(&world, &mut BTreeMap::new()));
}

#[test]
fn strays_that_forgot_whose_they_are_are_found_by_their_parents() {
    let root = tempfile::tempdir().unwrap();
    block_on(async {
        let mut node = Node::start(root.path()).await;
        let sign = sign();
        // A session of its own, no environment; and another such process below it.
        let script = format!("env -i setsid sh -c 'env -i setsid sleep {sign} & wait' & wait");
        node.launch(shell(node.attempt("main", 0), &script)).await;
        until("it sleeps", || !alive(&format!("sleep\0{sign}")).is_empty()).await;
        kill(shim_of(root.path()));
        node.recovered().await;
        assert_eq!(alive(&sign), [0; 0]);
        node.stop().await;
    });
}

#[test]
fn what_is_no_pod_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let pods = root.path().join("pods");
    std::fs::create_dir_all(pods.join("..data")).unwrap();
    let pod = PodUid::from_u128(9);
    std::fs::create_dir_all(pods.join(pod.to_string())).unwrap();
    std::fs::create_dir_all(pods.join(format!("{pod}.bak"))).unwrap();
    std::fs::write(pods.join("notes.txt"), "mine").unwrap();
    std::os::unix::fs::symlink("/", pods.join("link")).unwrap();
    block_on(async {
        let node = Node::start(root.path()).await;
        assert_eq!(node.found, [(pod, Vec::new())]);
        node.stop().await;
    });
    assert!(pods.join("notes.txt").exists() && pods.join("..data").exists());
}

#[test]
fn no_exit_is_lost_or_made_up_at_any_moment() {
    let world = World::new();
    let mut known = BTreeMap::new();
    let (mut exits, mut unseen) = (0, 0);
    for round in 0..30 {
        let told = world.lines("told").len();
        let mut decider = world.decide();
        // Sometimes before the decider has done anything.
        if round % 5 != 0 {
            world.wait_for("told", told + 1);
        }
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..60_000)));
        match round % 3 {
            0 => decider.kill().unwrap(),
            1 => {
                kill_shim(&world);
                decider.kill().unwrap();
            }
            _ => {
                decider.kill().unwrap();
                kill_shim(&world);
            }
        }
        decider.wait().unwrap();
        (exits, unseen) = block_on(judge(&world, &mut known));
    }
    println!("30 kills: {exits} exits on record, {unseen} that nobody saw, {} told before", world.lines("told").len());
    assert!(exits > 30);
}

fn kill_shim(world: &World) {
    if let Ok(text) = std::fs::read_to_string(world.root.path().join("lock"))
        && let Ok(pid) = text.trim().parse::<i32>()
        // The process ID may belong to a shim that ended long ago.
        && std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains("node-shim"))
    {
        kill(pid);
    }
}

/// Starts the node again and compares its reports with what was observed. Returns the numbers of exits and of
/// unobserved ends.
async fn judge(world: &World, known: &mut BTreeMap<String, Option<i32>>) -> (usize, usize) {
    let node = Node::start(world.root.path()).await;
    assert_eq!(world.left(), [0; 0], "nothing runs on");
    let mut found = BTreeMap::new();
    for (pod, attempts) in &node.found {
        assert!(attempts.len() <= 1);
        for attempt in attempts {
            found.insert(pod.to_string(), attempt.exit.as_ref().map(|exit| exit.code));
        }
    }
    node.stop().await;
    for line in world.lines("told") {
        let (pod, code) = line.split_once(' ').unwrap();
        assert_eq!(found.get(pod), Some(&Some(code.parse().unwrap())), "{pod}: what was told stays on record");
    }
    let done: BTreeSet<String> = world.lines("done").into_iter().collect();
    for (pod, code) in found.iter().filter_map(|(pod, code)| Some((pod, (*code)?))) {
        assert!(done.contains(pod), "{pod}: no exit without its work");
        assert_eq!(code, code_of(&PodUid::new(pod)), "{pod}: and with its own code");
    }
    let began = world.lines("began");
    assert_eq!(began.iter().collect::<BTreeSet<_>>().len(), began.len(), "nothing runs twice");
    for pod in &began {
        assert!(found.contains_key(pod), "{pod}: what ran is known");
    }
    for (pod, exit) in known.iter() {
        assert_eq!(found.get(pod), Some(exit), "{pod}: what was found once is found again");
    }
    *known = found;
    (known.values().flatten().count(), known.values().filter(|exit| exit.is_none()).count())
}
