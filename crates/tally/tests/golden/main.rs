//! Recorded conversations with a real Kubernetes, replayed against the real binary.
//!
//! `GOLDEN=substring` plays only the cases whose `folder/name` holds it. What the cases are and how they are compared is
//! told in `tests/golden/README.md`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod corpus;
mod normal;
mod path;
mod run;
mod same;
#[path = "../support/mod.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use corpus::{Case, FOLDERS};
use run::Outcome;
use support::server::Server;

/// Conversations at a time. Most of their length is waiting for a watch to end, so there may be many.
const AT_A_TIME: usize = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_recorded_conversation_is_answered_the_same() {
    let filter = std::env::var("GOLDEN").unwrap_or_default();
    let known = corpus::known_differences();
    let cases: Vec<_> = corpus::cases().into_iter().filter(|case| case.id().contains(&filter)).collect();
    assert!(!cases.is_empty(), "no case has {filter:?} in its name");

    let directory = support::server::directory();
    let server = Server::start(directory.path()).await;
    let (cases, outcomes) = replay_all(&server, cases).await;

    let mut wrong = Vec::new();
    for folder in FOLDERS {
        let report = Report::of(folder, &cases, &outcomes, &known);
        println!("{}", report.summary);
        wrong.extend(report.wrong);
    }
    if filter.is_empty() {
        let ids: BTreeSet<_> = cases.iter().map(Case::id).collect();
        let unknown = known.keys().filter(|id| !ids.contains(*id));
        wrong.extend(unknown.map(|id| format!("{id}: a known difference of a case that does not exist")));
    }
    for wrong in &wrong {
        println!("{wrong}\n");
    }
    assert!(wrong.is_empty(), "{} cases are not as recorded or not as known, see above", wrong.len());
}

/// Plays every case that can be played; the outcomes by the place of their case.
async fn replay_all(server: &Server, cases: Vec<Case>) -> (Arc<Vec<Case>>, BTreeMap<usize, Outcome>) {
    let cases = Arc::new(cases);
    let queue = Arc::new(Mutex::new(0..cases.len()));
    let workers: Vec<_> = (0..AT_A_TIME)
        .map(|_| {
            let (api, cases, queue) = (server.api.clone(), cases.clone(), queue.clone());
            tokio::spawn(async move {
                let mut outcomes = Vec::new();
                loop {
                    let Some(place) = queue.lock().expect("no worker panics with it").next() else { break outcomes };
                    if cases[place].not_yet.is_none() {
                        outcomes.push((place, run::replay(&api, &cases[place]).await));
                    }
                }
            })
        })
        .collect();
    let mut outcomes = BTreeMap::new();
    for worker in workers {
        outcomes.extend(worker.await.expect("a worker does not panic"));
    }
    (cases, outcomes)
}

/// What came of one folder.
struct Report {
    summary: String,
    /// Differences nobody wrote down, and written-down ones that are none any more.
    wrong: Vec<String>,
}

impl Report {
    fn of(
        folder: &str,
        cases: &[Case],
        outcomes: &BTreeMap<usize, Outcome>,
        known: &BTreeMap<String, String>,
    ) -> Report {
        let (mut same, mut all, mut meant) = (0, 0, 0);
        let mut not_yet: BTreeMap<&str, usize> = BTreeMap::new();
        let mut allowed: BTreeMap<String, usize> = BTreeMap::new();
        let mut wrong = Vec::new();
        for (place, case) in cases.iter().enumerate().filter(|(_, case)| case.folder == folder) {
            all += 1;
            if let Some(reason) = case.not_yet {
                *not_yet.entry(reason).or_default() += 1;
                continue;
            }
            let outcome = &outcomes[&place];
            for allowed_here in &outcome.allowed {
                *allowed.entry(format!("{allowed_here:?}")).or_default() += 1;
            }
            match (outcome.differences.is_empty(), known.get(&case.id())) {
                (true, None) => same += 1,
                (false, Some(_)) => meant += 1,
                (true, Some(reason)) => wrong.push(format!(
                    "STALE {}: it is the same now; take it off the known differences ({reason})",
                    case.id()
                )),
                (false, None) => {
                    wrong.push(format!(
                        "DIFFERS {} ({})\n  {}",
                        case.id(),
                        case.rules,
                        outcome.differences.join("\n  ")
                    ));
                }
            }
        }
        let mut summary = format!("{folder}: {same} same of {all}, {meant} known differences, {} wrong", wrong.len());
        for (reason, count) in not_yet {
            summary += &format!(", {count} not yet ({reason})");
        }
        for (allowed, count) in allowed {
            summary += &format!("; {count} better than recorded ({allowed})");
        }
        Report { summary, wrong }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(differences: &[&str], known: &[&str]) -> Report {
        let case = |name: &str, not_yet| Case {
            folder: "job",
            name: name.to_owned(),
            rules: String::new(),
            steps: Vec::new(),
            not_yet,
        };
        let cases = [case("a", None), case("b", None), case("ssa-c", Some("server-side apply"))];
        let outcome = |name: &str| Outcome {
            differences: differences
                .iter()
                .filter(|differs| **differs == name)
                .map(|_| "it differs".to_owned())
                .collect(),
            allowed: BTreeSet::new(),
        };
        let outcomes = BTreeMap::from([(0, outcome("a")), (1, outcome("b"))]);
        let known = known.iter().map(|id| ((*id).to_owned(), "better".to_owned())).collect();
        Report::of("job", &cases, &outcomes, &known)
    }

    #[test]
    fn what_is_not_played_is_not_the_same() {
        let report = report(&[], &[]);
        assert_eq!(report.summary, "job: 2 same of 3, 0 known differences, 0 wrong, 1 not yet (server-side apply)");
        assert!(report.wrong.is_empty());
    }

    #[test]
    fn a_difference_is_wrong_unless_it_is_known() {
        assert_eq!(report(&["a"], &[]).wrong.len(), 1);
        let known = report(&["a"], &["job/a"]);
        assert!(known.wrong.is_empty());
        assert!(known.summary.starts_with("job: 1 same of 3, 1 known differences, 0 wrong"), "{}", known.summary);
    }

    #[test]
    fn a_known_difference_that_is_none_is_wrong() {
        let report = report(&[], &["job/b"]);
        assert!(report.wrong[0].starts_with("STALE job/b"), "{}", report.wrong[0]);
    }
}
