//! How fast processes go through. Figures only: they hold for the machine they were taken on.

use std::time::Instant;

use tally_core::ids::PodUid;
use tally_node::port::{Attempt, Deed, Report};

use crate::harness::{Node, Test, block_on, plain};

pub fn tests() -> Vec<Test> {
    vec![("how_many_processes_a_second", how_many_processes_a_second)]
}

const PROCESSES: u128 = 1000;
const PARALLEL: u128 = 8;

fn how_many_processes_a_second() {
    let root = tempfile::tempdir().unwrap();
    block_on(async {
        let mut node = Node::start(root.path()).await;
        let began_at = Instant::now();
        let mut next = 1;
        while next <= PARALLEL {
            begin(&node, next).await;
            next += 1;
        }
        let mut ended = 0;
        while ended < PROCESSES {
            match node.next().await {
                Report::Ended { attempt, exit } => {
                    assert_eq!(exit.code, 0);
                    node.send(Deed::Clean { pod: attempt.pod }).await;
                    ended += 1;
                    if next <= PROCESSES {
                        begin(&node, next).await;
                        next += 1;
                    }
                }
                Report::Prepared { .. } | Report::Started { .. } | Report::Cleaned { .. } => {}
                report => panic!("{report:?}"),
            }
        }
        let took = began_at.elapsed();
        println!("{PROCESSES} processes, {PARALLEL} at a time: {:.0} a second", PROCESSES as f64 / took.as_secs_f64());
        node.stop().await;
    });
    let plain = Instant::now();
    let mut running = Vec::new();
    for _ in 0..PROCESSES {
        if running.len() as u128 == PARALLEL {
            let mut child: std::process::Child = running.remove(0);
            child.wait().unwrap();
        }
        running.push(std::process::Command::new("/bin/true").spawn().unwrap());
    }
    for mut child in running {
        child.wait().unwrap();
    }
    println!("without a node: {:.0} a second", PROCESSES as f64 / plain.elapsed().as_secs_f64());
}

async fn begin(node: &Node, number: u128) {
    let pod = PodUid::from_u128(number);
    let preparation = tally_node::port::Preparation {
        pod: pod.clone(),
        namespace: "default".into(),
        name: "pod".into(),
        volumes: Vec::new(),
    };
    node.send(Deed::Prepare(Box::new(preparation))).await;
    let attempt = Attempt { pod, container: "main".into(), number: 0 };
    node.send(Deed::Start(Box::new(plain(attempt, &["true"])))).await;
}
