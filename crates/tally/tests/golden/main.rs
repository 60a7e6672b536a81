//! Recorded conversations with a real Kubernetes, replayed against the real binary.
//!
//! `GOLDEN=substring` replays only the cases whose `folder/name` contains it. `tests/golden/README.md` describes what
//! the cases are and how they are compared.

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
use std::time::Duration;

use corpus::{Case, FOLDERS};
use run::Outcome;
use support::server::Server;

/// Concurrent conversations with the API alone. They mostly wait for a watch to end, so there may be many.
const AT_A_TIME: usize = 16;
/// Concurrent conversations with controllers: they mostly wait for back-offs of ten, twenty and forty seconds.
const AT_A_TIME_WITH_CONTROLLERS: usize = 100;
/// These do not all begin at the same time: a back-off continues while a busy machine delays the conversation.
const BEGIN_EVERY: Duration = Duration::from_millis(100);
/// Up to this many differences may be caused by a busy machine.
const PLAYED_AGAIN: usize = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_recorded_conversation_is_answered_the_same() {
    let filter = std::env::var("GOLDEN").unwrap_or_default();
    let known = corpus::known_differences();
    let there_are = support::server::controllers();
    let cases = corpus::cases(&there_are).into_iter().filter(|case| case.id().contains(&filter));
    let cases: Arc<Vec<_>> = Arc::new(cases.collect());
    assert!(!cases.is_empty(), "no case has {filter:?} in its name");

    let directories = [(); 2].map(|()| support::server::directory());
    let alone = Server::start(directories[0].path()).await;
    let cluster = Server::start_cluster(directories[1].path()).await;
    let (with, without): (Vec<_>, Vec<_>) = (0..cases.len())
        .filter(|place| cases[*place].not_yet.is_none())
        .partition(|place| !cases[*place].controllers.is_empty());
    let mut outcomes = replay_all(&alone, &cases, without, AT_A_TIME, Duration::ZERO).await;
    outcomes.extend(replay_all(&cluster, &cases, with.clone(), AT_A_TIME_WITH_CONTROLLERS, BEGIN_EVERY).await);

    // Controllers need real time, and so does this test: on a machine that is busy with other work some waits are too
    // short. Cases that differed are replayed once, a few at a time, and printed.
    let differs = |place: &usize| !outcomes[place].differences.is_empty() && !known.contains_key(&cases[*place].id());
    let again: Vec<_> = with.into_iter().filter(differs).collect();
    if again.len() <= PLAYED_AGAIN {
        for place in &again {
            println!("played again: {}, which differed at\n  {}", cases[*place].id(), outcomes[place].first());
        }
        outcomes.extend(replay_all(&cluster, &cases, again, 4, Duration::ZERO).await);
    }

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

/// Replays the cases at these places. Returns the outcomes by place.
async fn replay_all(
    server: &Server,
    cases: &Arc<Vec<Case>>,
    mut places: Vec<usize>,
    at_a_time: usize,
    begin_every: Duration,
) -> BTreeMap<usize, Outcome> {
    // The longest first, so that none of them begins when all others have ended.
    places.sort_by_key(|place| std::cmp::Reverse(cases[*place].patience()));
    let queue = Arc::new(Mutex::new(places.into_iter()));
    let workers: Vec<_> = (0..at_a_time)
        .map(|worker| {
            let (api, cases, queue) = (server.api.clone(), cases.clone(), queue.clone());
            tokio::spawn(async move {
                tokio::time::sleep(begin_every * worker as u32).await;
                let mut outcomes = Vec::new();
                loop {
                    let Some(place) = queue.lock().expect("no worker panics with it").next() else { break outcomes };
                    outcomes.push((place, run::replay(&api, &cases[place]).await));
                }
            })
        })
        .collect();
    let mut outcomes = BTreeMap::new();
    for worker in workers {
        outcomes.extend(worker.await.expect("a worker does not panic"));
    }
    outcomes
}

/// The result of one folder.
struct Report {
    summary: String,
    /// Differences that are not known, and known differences that no longer exist.
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
            if let Some(reason) = case.not_yet.as_deref() {
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
            controllers: BTreeSet::new(),
            not_yet,
        };
        let apply = Some("server-side apply".to_owned());
        let cases = [case("a", None), case("b", None), case("ssa-c", apply)];
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
