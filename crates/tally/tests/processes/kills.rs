//! `kill -9` at any moment: no Pod is counted twice, nothing that had ended runs again, and no process stays behind.
//!
//! Every process writes its index and its process ID when it begins and, as its last action, when it ends. So the truth
//! can be read from two files and from the kernel. In addition, every process leaves another one behind that would
//! never end by itself: Tally has to end it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::support::kubectl::{with_node, with_open_node};
use crate::support::server::{self, Server};
use crate::tool::{alive, eventually, job, lines};

const INDEXES: usize = 24;
const SCRIPT: &str = "setsid sleep 100000 >/dev/null 2>&1 & echo $JOB_COMPLETION_INDEX $$ >> $HERE/began; sleep 0.$((1 + $JOB_COMPLETION_INDEX % 3)); \
                      echo $JOB_COMPLETION_INDEX $$ >> $HERE/ended";

/// Number of kills; TALLY_NODE_KILLS sets it.
fn kills() -> usize {
    std::env::var("TALLY_NODE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(6)
}

fn indexes_for(kills: usize) -> usize {
    INDEXES + 6 * kills
}

/// How Tally is killed. The rounds take turns, so that a few rounds contain every way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// While Pods run.
    AtWork,
    /// Right after it was started, while it recovers what the previous process left.
    AtStart,
    /// Together with its helper, which would end everything else: the next start has to do this.
    WithHelper,
}

impl Way {
    fn of(round: usize) -> Self {
        [Self::AtWork, Self::AtStart, Self::WithHelper, Self::AtStart][round % 4]
    }
}

/// The process IDs of all that is alive. The command lines change: a shell becomes what it runs.
fn numbers(here: &Path) -> Vec<String> {
    alive(here).iter().map(|process| process.split(' ').next().unwrap().to_owned()).collect()
}

/// Whether the process of an index is alive, by the number that it has itself: in a PID namespace of its own that is another
/// number than here. A process that has ended has no environment, whether it has been reaped or not.
fn is_alive(here: &Path, index: &str, process: &str) -> bool {
    let mark = format!("\0JOB_COMPLETION_INDEX={index}\0");
    numbers(here).iter().any(|number| {
        let environment = fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
        let status = fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
        let own = status.lines().find_map(|line| line.strip_prefix("NSpid:")?.split_whitespace().last());
        format!("\0{}\0", String::from_utf8_lossy(&environment)).contains(&mark) && own == Some(process)
    })
}

/// What is known about a Job from its processes.
struct Truth {
    here: PathBuf,
    /// Indexes that had ended before a kill, and how often each had begun until then.
    settled: BTreeMap<String, usize>,
    /// Processes that no helper was left to end. A process ID identifies each: it is reused only after thousands of
    /// others.
    strays: Vec<String>,
    /// Number of lines in `ended` that may have been written while no helper was there to observe the end.
    unseen: usize,
    /// Number of kills after which only the helper ended running processes.
    ended_in_time: usize,
    dice: u64,
}

impl Truth {
    fn new(here: &Path) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let dice = std::env::var("TALLY_NODE_SEED").ok().and_then(|seed| seed.parse().ok());
        let dice = dice.unwrap_or(now.as_nanos() as u64 | 1);
        println!("TALLY_NODE_SEED={dice}");
        Self { here: here.to_owned(), settled: BTreeMap::new(), strays: Vec::new(), unseen: 0, ended_in_time: 0, dice }
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

    fn all_ended(&self, indexes: usize) -> bool {
        lines(&self.here.join("ended")).len() >= indexes
    }

    /// Sleeps for a random time.
    fn pause(&mut self, most_millis: u64) {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        std::thread::sleep(Duration::from_millis(self.dice % most_millis));
    }

    /// Waits until a new process begins or all is done, and a random time longer. Strays must be ended by then.
    fn await_moment(&mut self, indexes: usize) {
        let before = self.began().len();
        eventually("something begins", || self.began().len() > before || self.all_ended(indexes));
        self.await_end_of_strays();
        self.pause(350);
    }

    fn await_end_of_strays(&mut self) {
        let strays = std::mem::take(&mut self.strays);
        eventually("what a killed helper left is ended", || {
            let alive = numbers(&self.here);
            !strays.iter().any(|stray| alive.contains(stray))
        });
        if !strays.is_empty() {
            self.unseen = lines(&self.here.join("ended")).len();
        }
    }

    /// Waits for the right moment, kills, and checks that no process stays behind. `kill` ends Tally immediately.
    fn kill(&mut self, way: Way, indexes: usize, kill: impl FnOnce()) {
        match way {
            Way::AtStart => self.pause(120),
            Way::AtWork | Way::WithHelper => self.await_moment(indexes),
        }
        if way == Way::WithHelper {
            let helper = fs::read_to_string(self.here.join("data/node/lock")).unwrap();
            let killed = Command::new("sh").args(["-c", &format!("kill -s KILL {helper}")]).status().unwrap();
            assert!(killed.success() || self.all_ended(indexes), "there was no helper {helper}");
            kill();
            self.unseen = lines(&self.here.join("ended")).len();
            self.strays = numbers(&self.here);
            return;
        }
        if way == Way::AtWork {
            self.settle();
        }
        let ran = alive(&self.here).len();
        kill();
        // A process that was killed at its start may not have ended the strays of the one before yet.
        if self.strays.is_empty() {
            eventually("nothing runs on", || alive(&self.here).is_empty());
            self.ended_in_time += usize::from(ran > 0);
        }
    }

    /// To be called before a kill that the helper survives: indexes that have ended by now must not run again.
    fn settle(&mut self) {
        for line in lines(&self.here.join("ended")).into_iter().skip(self.unseen) {
            let (index, process) = line.split_once(' ').unwrap();
            if !is_alive(&self.here, index, process) {
                let begun = self.begun()[index];
                self.settled.entry(index.to_owned()).or_insert(begun);
            }
        }
    }

    /// The checks at the end, whatever was killed in between.
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
        assert!(self.ended_in_time > 0, "nothing ever ran when it was killed");
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
    for round in 0..kills {
        truth.kill(Way::of(round), indexes, || kubectl.server.kill_now());
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
    let here = directory.path();
    let indexes = indexes_for(kills());
    let file = here.join("job.yaml");
    fs::write(&file, work(here, indexes, "restartPolicy: OnFailure")).unwrap();
    killed_runs(here, indexes, &["-f".to_owned(), file.display().to_string()]);
}

/// Many more Pods are lost than `backoffLimit` allows failures: none of them is a failure of its own.
#[test]
fn kills_spend_no_tries() {
    let directory = server::directory();
    let here = directory.path();
    let indexes = indexes_for(kills());
    let (count, mark) = (indexes.to_string(), format!("HERE={}", here.display()));
    let flags = ["--name", "work", "-n", &count, "-p", "8", "--indexed", "--env", &mark, "--", "sh", "-c", SCRIPT];
    let summary = killed_runs(here, indexes, &flags.map(str::to_owned));
    assert_eq!(summary["failed"], 0, "{summary}");
}

/// Every line of a list is done once in the record, and no result is half written.
#[test]
fn a_list_with_results_is_done_once_whatever_is_killed() {
    let directory = server::directory();
    let here = directory.path();
    let indexes = indexes_for(kills());
    let list: String = (0..indexes).map(|line| format!("line {line} of the list\n")).collect();
    fs::write(here.join("list"), list).unwrap();
    let [list, results, log] = ["list", "results", "log"].map(|name| here.join(name).display().to_string());
    let mark = format!("HERE={}", here.display());
    let script = format!("{SCRIPT}; echo \"$0\"; echo \"$0\" >&2");
    let flags = ["--name", "work", "-p", "8", "--each", &list, "--results", &results, "--joblog", &log];
    let command = ["--env", &mark, "--", "sh", "-c", &script, "{}"];
    killed_runs(here, indexes, &flags.into_iter().chain(command).map(str::to_owned).collect::<Vec<_>>());
    let data = here.join("data");
    let mut show = Command::new(env!("CARGO_BIN_EXE_tally"));
    let shown = show.args(["show", "work", "-o", "json", "--data-dir"]).arg(data).output().unwrap();
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let mut recorded: Vec<u64> = Vec::new();
    for attempt in shown["attempts"].as_array().unwrap().iter().filter(|attempt| attempt["exitCode"] == 0) {
        recorded.push(attempt["index"].as_u64().unwrap());
    }
    recorded.sort_unstable();
    assert_eq!(recorded, (0..indexes as u64).collect::<Vec<_>>(), "{shown}");
    for index in 0..indexes {
        let result = here.join("results").join(index.to_string());
        let told: Value = serde_json::from_slice(&fs::read(result.join("result.json")).unwrap()).unwrap();
        assert_eq!(told["exitCode"], 0, "{told}");
        for stream in ["stdout", "stderr"] {
            let text = fs::read_to_string(result.join(stream)).unwrap();
            assert_eq!(text, format!("line {index} of the list\n"), "{stream} of {index}");
        }
    }
    let strays: Vec<_> = fs::read_dir(here.join("results")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(strays.len(), indexes, "{strays:?}");
    let succeeded = lines(&here.join("log")).iter().filter(|line| line.split('\t').nth(6) == Some("0")).count();
    assert_eq!(succeeded, indexes, "in the job log");
}

/// A lost Pod is not a failure at first, because another process may have killed Tally. The third loss is a failure.
#[tokio::test]
async fn a_pod_that_kills_the_cluster_has_failed_after_three_times() {
    // An isolated Pod could not kill it.
    let mut kubectl = with_open_node().await;
    let here = kubectl.directory.path().to_owned();
    // Tally is above the helper, which is the parent of the process. The sleep leaves time to report that the process has
    // started.
    let script = "echo $$ >> $HERE/began; sleep 1; tally=$PPID; \
                  until grep -qzx up /proc/$tally/cmdline; do \
                  read -r helper name state tally rest < /proc/$tally/stat; done; kill -s KILL $tally; sleep 100000";
    let killer = job("killer", &here, "backoffLimit: 0", "restartPolicy: Never", script);
    let made = kubectl.with_input("create --validate=false -f -", &killer);
    assert_eq!(made.code, Some(0), "{}", made.err);
    for round in 1..=3 {
        eventually("it runs", || lines(&here.join("began")).len() == round);
        assert_eq!(kubectl.server.ended(), None, "it was killed");
        eventually("nothing runs on", || alive(&here).is_empty());
        kubectl.server = Server::start_open_node(&here).await;
    }
    kubectl.ok("wait --for=condition=failed job/killer --timeout=60s");
    let job = kubectl.json("get job killer -o json");
    assert_eq!(job["status"]["failed"], 1, "{}", job["status"]);
    let pods = kubectl.json("get pods -o json");
    let pods = pods["items"].as_array().unwrap();
    assert_eq!(pods.len(), 1, "{pods:?}");
    let conditions = pods[0]["status"]["conditions"].as_array().unwrap();
    let target = conditions.iter().find(|condition| condition["type"] == "DisruptionTarget").unwrap();
    assert_eq!((&target["status"], &target["reason"]), (&"True".into(), &"TerminationByKubelet".into()));
    let message = target["message"].as_str().unwrap();
    assert!(message.contains("killed 3 times"), "{message}");
    assert_eq!(lines(&here.join("began")).len(), 3, "it is not run again");
    eventually("the record is closed", || {
        let node = &kubectl.json("get nodes -o json")["items"][0];
        node["metadata"]["annotations"]["node.tally.dev/lost-pods"].is_null()
    });
}

/// Killed when dropped.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kills several runs. Returns the summary of the last one, which is not killed.
fn killed_runs(here: &Path, indexes: usize, arguments: &[String]) -> Value {
    let mut truth = Truth::new(here);
    let kills = kills();
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
        command.args(["run", "--output", "json", "--data-dir"]).arg(here.join("data")).args(arguments);
        command.stdin(Stdio::null()).stdout(File::create(here.join("out")).unwrap());
        command.stderr(File::options().create(true).append(true).open(here.join("err")).unwrap());
        Run(command.spawn().unwrap())
    };
    for round in 0..kills {
        let run = run();
        truth.kill(Way::of(round), indexes, || drop(run));
    }
    let mut last = run();
    let code = last.0.wait().unwrap().code();
    let said = fs::read_to_string(here.join("err")).unwrap();
    assert_eq!(code, Some(0), "{said}");
    let summary: Value = serde_json::from_str(lines(&here.join("out")).last().unwrap()).unwrap();
    assert_eq!((&summary["result"], &summary["succeeded"]), (&"Complete".into(), &indexes.into()), "{summary}");
    truth.check(indexes, kills);
    summary
}
