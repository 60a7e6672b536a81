//! What the tests and the program that they start both use.

use tally_core::ids::PodUid;
use tally_node::port::{Attempt, Start, TerminationMessage};

pub fn plain(attempt: Attempt, argv: &[&str]) -> Start {
    Start {
        attempt,
        pod_name: "default/pod".to_owned(),
        argv: argv.iter().map(|arg| (*arg).to_owned()).collect(),
        env: Vec::new(),
        working_dir: None,
        hostname: "the-host".to_owned(),
        mounts: Vec::new(),
        limits: Default::default(),
        user: None,
        group: None,
        confinement: Default::default(),
        stdin: false,
        stdin_once: false,
        tty: false,
        termination_message: TerminationMessage { path: "/dev/termination-log".to_owned(), from_logs: false },
        inherits_env: false,
        source: None,
        results: None,
    }
}

pub fn shell(attempt: Attempt, script: &str) -> Start {
    plain(attempt, &["sh", "-c", script])
}

/// The exit code of a Pod that the decider runs.
pub fn code_of(pod: &PodUid) -> i32 {
    i32::from_str_radix(&pod.to_string()[34..], 16).unwrap() % 100
}
