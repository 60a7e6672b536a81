//! `kill -9` at any moment: nothing is counted twice, nothing that had ended runs again, and nothing runs on.
//!
//! Every process writes its index and its number when it begins and, as the last thing it does, when it ends. So what is
//! true can be read from two files and from the kernel.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::support::kubectl::with_node;
use crate::support::server::{self, Server};
use crate::tool::{alive, eventually, job, lines};

const INDEXES: usize = 24;
const SCRIPT: &str = "echo $JOB_COMPLETION_INDEX $$ >> $HERE/began; sleep 0.$((1 + $JOB_COMPLETION_INDEX % 3)); \
                      echo $JOB_COMPLETION_INDEX $$ >> $HERE/ended";

/// How often to kill; more by hand.
fn kills() -> usize {
    std::env::var("TALLY_NODE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(6)
}

fn indexes_for(kills: usize) -> usize {
    INDEXES + 6 * kills
}

/// What is known of a Job from its processes.
struct Truth {
    here: PathBuf,
    /// Indexes that had ended when something was killed, and how often each had begun until then.
    settled: BTreeMap<String, usize>,
    dice: u64,
}

impl Truth {
    fn new(here: &Path) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let dice = std::env::var("TALLY_NODE_SEED").ok().and_then(|seed| seed.parse().ok());
        let dice = dice.unwrap_or(now.as_nanos() as u64 | 1);
        println!("TALLY_NODE_SEED={dice}");
        Self { here: here.to_owned(), settled: BTreeMap::new(), dice }
    }

    fn began(&self) -> Vec<String> {
        lines(&self.here.join("began"))
    }

    fn begun(&self) -> BTreeMap<String, usize> {
        let mut begun = BTreeMap::new();
        for line in self.began() {
            *begun.entry(line.split(' ').next().unwrap().to_owned()).or_default() += 1;
        }
        begun
    }

    /// Waits until something new runs, or all is done, and then for a moment that nobody can foretell.
    fn await_moment(&mut self, done: impl Fn() -> bool) {
        let before = self.began().len();
        eventually("something begins", || self.began().len() > before || done());
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        std::thread::sleep(Duration::from_millis(self.dice % 350));
    }

    /// To be called before a kill: these indexes must not run again.
    fn settle(&mut self) {
        for line in lines(&self.here.join("ended")) {
            let (index, process) = line.split_once(' ').unwrap();
            // A process that has ended has no command line, whether it has been reaped or not.
            let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            if command.is_empty() {
                let begun = self.begun()[index];
                self.settled.entry(index.to_owned()).or_insert(begun);
            }
        }
    }

    /// At the end, whatever happened in between.
    fn check(&self, indexes: usize, kills: usize) {
        let begun = self.begun();
        for (index, before) in &self.settled {
            assert_eq!(begun[index], *before, "index {index} had ended and was run again");
        }
        let ended = lines(&self.here.join("ended"));
        for index in 0..indexes {
            let ended = ended.iter().filter(|line| line.split(' ').next() == Some(&index.to_string())).count();
            assert!(ended >= 1, "index {index} never came to its end");
        }
        eventually("nothing runs on", || alive(&self.here).is_empty());
        let again = self.began().len() - indexes;
        println!(
            "{kills} kills: {indexes} indexes, {again} had to be run again, {} had ended before",
            self.settled.len()
        );
    }
}

fn work(here: &Path, indexes: usize, pod: &str) -> String {
    let spec = format!("completions: {indexes}\n  parallelism: 4\n  completionMode: Indexed\n  backoffLimit: 1000");
    job("work", here, &spec, pod, SCRIPT)
}

#[tokio::test]
async fn a_cluster_killed_at_any_moment_counts_every_index_once() {
    let mut kubectl = with_node().await;
    let here = kubectl.directory.path().to_owned();
    let mut truth = Truth::new(&here);
    let (kills, indexes) = (kills(), indexes_for(kills()));
    let made = kubectl.with_input("create --validate=false -f -", &work(&here, indexes, "restartPolicy: OnFailure"));
    assert_eq!(made.code, Some(0), "{}", made.err);
    for _ in 0..kills {
        truth.await_moment(|| lines(&here.join("ended")).len() >= indexes);
        truth.settle();

        kubectl.server.kill_now();
        kubectl.server = Server::start_node(&here).await;
    }
    kubectl.ok("wait --for=condition=complete job/work --timeout=300s");
    let job = kubectl.json("get job work -o json");
    assert_eq!(job["status"]["succeeded"], indexes, "{}", job["status"]);
    assert_eq!(job["status"]["completedIndexes"], format!("0-{}", indexes - 1), "{}", job["status"]);
    assert_eq!(job["status"]["uncountedTerminatedPods"], serde_json::json!({}), "{}", job["status"]);
    truth.check(indexes, kills);
}

#[test]
fn a_run_killed_at_any_moment_goes_on() {
    let directory = server::directory();
    killed_runs(directory.path(), kills(), "restartPolicy: OnFailure");
}

/// Pods that are replaced: the Job waits ten seconds and longer after each failure, so not as often.
#[test]
fn a_run_killed_at_any_moment_replaces_its_pods() {
    let directory = server::directory();
    killed_runs(directory.path(), kills().div_ceil(10), "restartPolicy: Never");
}

/// Killed if the test forgets it.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn killed_runs(here: &Path, kills: usize, pod: &str) {
    let mut truth = Truth::new(here);
    let indexes = indexes_for(kills);
    let file = here.join("job.yaml");
    fs::write(&file, work(here, indexes, pod)).unwrap();
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
        command.args(["run", "--output", "json", "--data-dir"]).arg(here.join("data")).arg("-f").arg(&file);
        command.stdin(Stdio::null()).stdout(File::create(here.join("out")).unwrap());
        command.stderr(File::options().create(true).append(true).open(here.join("err")).unwrap());
        Run(command.spawn().unwrap())
    };
    for _ in 0..kills {
        let run = run();
        truth.await_moment(|| lines(&here.join("ended")).len() >= indexes);
        truth.settle();
        drop(run);
    }
    let mut last = run();
    let code = last.0.wait().unwrap().code();
    let said = fs::read_to_string(here.join("err")).unwrap();
    assert_eq!(code, Some(0), "{said}");
    let summary: Value = serde_json::from_str(lines(&here.join("out")).last().unwrap()).unwrap();
    assert_eq!((&summary["result"], &summary["succeeded"]), (&"Complete".into(), &indexes.into()), "{summary}");
    truth.check(indexes, kills);
}
