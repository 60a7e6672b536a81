//! The records of attempts: what is in them, and that none is missing.

use std::path::Path;

use tally_node::attempts::{self, AttemptRecord};
use tally_node::output::OutputSource;
use tally_node::port::{Report, Start};
use tally_node::shim_client::Config;

use crate::harness::{Node, block_on, program, until};
use crate::start::shell;

const JOB: &str = "7f1c0d6e-0000-4000-8000-000000000001";

fn config(root: &Path) -> Config {
    let mut config = Config::new(program(), root.to_owned());
    config.output.keep_records = true;
    config.job_log = Some(root.join("joblog"));
    config
}

fn start(node: &Node, number: u32, script: &str) -> Start {
    let source = OutputSource {
        namespace: "default".into(),
        job: JOB.into(),
        job_name: "sum".into(),
        pod: "sum-3-x".into(),
        index: Some(3),
        several: false,
    };
    Start { source: Some(Box::new(source)), ..shell(node.attempt("main", number), script) }
}

fn records(root: &Path) -> Vec<AttemptRecord> {
    attempts::read(root, JOB).unwrap().map(|found| found.attempts).unwrap_or_default()
}

#[test]
fn an_attempt_that_was_reported_has_its_record_with_what_it_used() {
    let root = tempfile::tempdir().unwrap();
    block_on(async {
        let mut node = Node::start_with(config(root.path())).await;
        node.prepare(Vec::new()).await;
        // About 64 MiB, and some processor time.
        let script =
            "x=$(head -c 67108864 /dev/zero | tr '\\0' x); i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 4";
        let exit = node.run(start(&node, 0, script)).await;
        assert_eq!(exit.code, 4);
        let found = records(root.path());
        assert_eq!(found.len(), 1);
        let record = &found[0];
        assert_eq!(
            (record.exit_code, record.index, record.attempt, record.pod.as_str()),
            (Some(4), Some(3), 1, "sum-3-x")
        );
        // Reports have whole seconds.
        let seconds = [record.started_at, record.finished_at].map(|millis| millis.div_euclid(1_000));
        assert_eq!(seconds, [exit.started_at.seconds(), exit.finished_at.seconds()]);
        assert!(record.peak_kib > 60_000 && !record.peak_is_bound, "{record:?}");
        assert!((1_000..60_000_000).contains(&record.cpu_micros), "{record:?}");
        let exit = node.run(start(&node, 1, "kill -9 $$")).await;
        assert_eq!(exit.signal, Some(9));
        let record = records(root.path()).pop().unwrap();
        assert_eq!((record.attempt, record.restarts, record.signal), (2, 1, Some(9)));
        assert!(record.peak_is_bound, "a shell is smaller than the shim: {record:?}");
        let log = std::fs::read_to_string(root.path().join("joblog")).unwrap();
        let lines: Vec<Vec<&str>> = log.lines().map(|line| line.split('\t').collect()).collect();
        assert_eq!(lines.len(), 3, "{log}");
        assert_eq!((lines[1][0], lines[1][6], lines[1][7]), ("4", "4", "0"));
        assert_eq!((lines[2][6], lines[2][7], lines[2][8]), ("0", "9", "sh -c 'kill -9 $$'"));
    });
}

#[test]
fn attempts_that_a_stop_or_a_kill_has_ended_are_recorded_as_lost() {
    let root = tempfile::tempdir().unwrap();
    block_on(async {
        let mut node = Node::start_with(config(root.path())).await;
        node.prepare(Vec::new()).await;
        let report = node.launch(start(&node, 0, "sleep 1000")).await;
        assert!(matches!(report, Report::Started { .. }));
        // The socket closes, as if the process that decides had been killed.
        node.stop().await;
        let told = |at: usize| (records(root.path())[at].exit_code, records(root.path())[at].message.clone());
        assert_eq!(told(0), (None, "the node stopped".to_owned()));

        let mut node = Node::start_with(config(root.path())).await;
        node.prepare(Vec::new()).await;
        let report = node.launch(start(&node, 1, "sleep 1000")).await;
        assert!(matches!(report, Report::Started { .. }));
        let shim: i32 = std::fs::read_to_string(root.path().join("lock")).unwrap().trim().parse().unwrap();
        let shim = rustix::process::Pid::from_raw(shim).unwrap();
        rustix::process::kill_process(shim, rustix::process::Signal::KILL).unwrap();
        node.recovered().await;
        until("it is recorded", || records(root.path()).len() == 2).await;
        assert!(told(1).0.is_none() && told(1).1.contains("was not observed"), "{:?}", told(1));
        assert_eq!(records(root.path())[1].attempt, 2);
        node.stop().await;
    });
}
