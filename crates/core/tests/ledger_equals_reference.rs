//! Compares the ledger with a planner that keeps no state: see `reference`.
//!
//! Everything that a plan contains is compared: the next status, which Pods are recorded in it, which are released,
//! deleted and removed, which Pods are created under which names and with which failure counts, and when to plan again.
//! Where the rules leave a choice (which Pods, if more are due than fit into a batch), any correct one is accepted.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, FileFailurePersistence, RngSeed, TestError, TestRunner};
use tally_core::blueprint::NewPod;
use tally_core::gates::{FeatureGates, Gate};
use tally_core::job::{CompletionMode, Condition, JobSpec, JobStatus, PodReplacementPolicy, Uncounted, condition};
use tally_core::ledger::{Limits, Plan};
use tally_core::names::ATTEMPTS;
use tally_core::pod::{Phase, PodView};
use tally_core::policy::{FailurePolicy, FailureRule, OnPodCondition};
use tally_core::time::Span;

use crate::reference::Facts;
use crate::reference::arbitrary::{self, plain_facts, plain_job, plain_pod, uid};
use crate::reference::compare::{self, Memory, check_rules, fresh_ledger};
use crate::reference::world::{Reply, World, steps};

/// The number of Jobs that are checked in one state. Raise it to search further; the time of a run grows in proportion.
const CASES: u32 = 4_000;
/// The number of simulated lives of Jobs, of up to sixty events, each run twice.
const LIVES: u32 = 1_200;

/// All runs are identical. Another seed gives another run: `TALLY_SEED=7 cargo test -p tally-core --test
/// ledger_equals_reference`.
#[expect(clippy::disallowed_methods, reason = "a person who looks for differences chooses the seed")]
fn seed() -> RngSeed {
    RngSeed::Fixed(std::env::var("TALLY_SEED").ok().map_or(1, |seed| seed.parse().unwrap()))
}

fn try_all<S: Strategy>(
    cases: u32,
    strategy: &S,
    property: impl Fn(S::Value) -> Result<(), String>,
) -> Result<(), TestError<S::Value>> {
    let config = Config {
        cases,
        rng_seed: seed(),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/reference/regressions.txt"))),
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    TestRunner::new(config).run(strategy, |value| property(value).map_err(TestCaseError::fail))
}

fn holds<S: Strategy>(cases: u32, strategy: &S, property: impl Fn(S::Value) -> Result<(), String>) {
    match try_all(cases, strategy, property) {
        Err(TestError::Fail(reason, minimal)) => panic!("{reason}\nwith {minimal:?}"),
        Err(TestError::Abort(reason)) => panic!("{reason}"),
        Ok(()) => {}
    }
}

/// Counts what the cases contained: a generator that no longer produces something must not go unnoticed.
#[derive(Default)]
struct Met(RefCell<BTreeMap<&'static str, u32>>);

impl Met {
    fn count(&self, what: &'static str, met: bool) {
        *self.0.borrow_mut().entry(what).or_default() += u32::from(met);
    }

    fn plan(&self, plan: &Plan, facts: &Facts) {
        let write = plan.status.as_deref();
        let ends = |write: &&tally_core::ledger::StatusWrite| write.status.is_finished();
        self.count("a status", write.is_some());
        self.count(
            "a record",
            write.is_some_and(|write| write.status.uncounted().len() > facts.job.status.uncounted().len()),
        );
        self.count("an end", write.filter(ends).is_some());
        self.count("a release", !plan.releases.is_empty());
        self.count("a deletion", !plan.deletions.is_empty());
        self.count("a removal", !plan.removals.is_empty());
        self.count("a creation", !plan.creations.is_empty());
        self.count("a replacement", plan.creations.iter().any(|new| new.failure_count > Some(0)));
        self.count("a wake-up", plan.wake_at.is_some());
    }

    #[track_caller]
    fn at_least(&self, least: u32) {
        let met = self.0.borrow();
        assert!(met.values().all(|count| *count >= least), "some are hardly ever met: {met:?}");
    }
}

/// When no write at all can succeed: the server allows neither condition to be withdrawn (STATUSVAL-22, STATUSVAL-27),
/// nor both to be present (STATUSVAL-20).
fn contradicts_itself(old: &JobStatus) -> bool {
    old.is_true(condition::SUCCESS_CRITERIA_MET) && old.is_true(condition::FAILURE_TARGET)
}

/// Whether the status that the ledger plans from these facts must satisfy the rules of the server (I13).
pub fn may_be_written(facts: &Facts) -> bool {
    !contradicts_itself(&facts.job.status)
}

/// The first plan from these facts is the expected one, the server would accept it, and there is no second one (I10).
fn check_fresh(facts: &Facts, met: &Met) -> Result<(), String> {
    let expected = crate::reference::plan(facts);
    let mut ledger = fresh_ledger(facts);
    let plan = compare::plan(&mut ledger, facts);
    met.plan(&plan, facts);
    compare::check(&plan, &expected, facts, Memory::default())?;
    if let Some(write) = plan.status.as_ref().filter(|_| may_be_written(facts)) {
        check_rules(&facts.job, &write.status)?;
    }
    let again = compare::plan(&mut ledger, facts);
    if again.is_empty() { Ok(()) } else { Err(format!("planned twice: {plan:?}, then {again:?}")) }
}

#[test]
fn a_fresh_ledger_plans_what_the_rules_say_and_only_once() {
    let met = Met::default();
    holds(CASES, &arbitrary::facts(), |facts| check_fresh(&facts, &met));
    met.at_least(CASES / 500);
}

/// GATE-5, GATE-11, GATE-12: the same while gates of verdicts are off.
fn gates_off() -> impl Strategy<Value = Facts> {
    let [replacement, managed, policy] = [Gate::JobPodReplacementPolicy, Gate::JobManagedBy, Gate::JobSuccessPolicy];
    let off = select(vec![vec![replacement], vec![replacement, managed], vec![replacement, managed, policy]]);
    (arbitrary::facts(), off).prop_map(|(mut facts, off)| {
        let gates = off.into_iter().fold(FeatureGates::ALL_ON, |gates, gate| gates.with(gate, false));
        facts.job = gates.apply(facts.job);
        if !facts.job.spec.is_indexed() {
            // SPECVAL-18: there is no such Job, and no end that both rules allow (STATUSVAL-21, STATUSVAL-31).
            Arc::make_mut(&mut facts.job.spec).success_policy = None;
        }
        facts
    })
}

#[test]
fn a_fresh_ledger_plans_what_the_rules_say_while_gates_are_off() {
    let met = Met::default();
    holds(CASES, &gates_off(), |facts| check_fresh(&facts, &met));
    met.at_least(CASES / 500);
}

/// The pace of writes no longer delays anything, but a back-off may.
const SHORTLY: Span = Span::from_seconds(2);
/// No delay is left.
const MUCH_LATER: Span = Span::from_seconds(3 * 3600);

#[test]
fn after_any_events_the_ledger_plans_as_if_it_had_just_been_told() {
    let limits = select(vec![2usize, 500]).prop_map(|uncounted| Limits { uncounted, ..Limits::default() });
    let met = Met::default();
    let creations = select(vec![Reply::Done, Reply::Lost]);
    holds(LIVES, &(arbitrary::job(), limits, steps(), creations), |(job, limits, steps, creations)| {
        for later in [SHORTLY, MUCH_LATER] {
            let mut world = World::new(job.clone(), limits);
            for step in &steps {
                world.take(step)?;
            }
            world.settle(creations);
            let facts = world.facts(world.now + later);
            let expected = crate::reference::plan(&facts);
            let waits = later == MUCH_LATER || world.waits_are_derivable();
            let comparable = waits && world.bookings_are_derivable() && world.batch_is_derivable();
            met.count("a comparison", comparable);
            if comparable {
                compare::widen(&mut world.ledger, facts.window);
                let plan = compare::plan(&mut world.ledger, &facts);
                met.plan(&plan, &facts);
                let unknown = |new: &NewPod| facts.unknown.iter().any(|creation| creation.name == new.name);
                met.count("an unknown creation", !facts.unknown.is_empty());
                met.count("a creation again", plan.creations.iter().any(unknown));
                met.count("a list", plan.must_list_pods);
                compare::check(&plan, &expected, &facts, world.memory)
                    .map_err(|problem| format!("{problem}\nfrom {facts:?}"))?;
            }
        }
        Ok(())
    });
    met.at_least(LIVES / 500);
}

// ---- where the ledger was wrong ----

fn indexed(spec: &mut JobSpec, completions: i32, parallelism: i32) {
    spec.completion_mode = CompletionMode::Indexed;
    spec.completions = Some(completions);
    spec.parallelism = parallelism;
}

fn pod_of_index(number: u128, index: u32) -> PodView {
    plain_pod(number, |pod| pod.index = Some(index))
}

#[track_caller]
fn check_by_hand(facts: &Facts) {
    let plan = compare::plan(&mut fresh_ledger(facts), facts);
    if let Err(problem) = compare::check(&plan, &crate::reference::plan(facts), facts, Memory::default()) {
        panic!("{problem}");
    }
}

#[track_caller]
fn check_write_by_hand(facts: &Facts) {
    let plan = compare::plan(&mut fresh_ledger(facts), facts);
    let write = plan.status.expect("there is something to write");
    if let Err(problem) = check_rules(&facts.job, &write.status) {
        panic!("{problem}");
    }
}

/// CONST-4, DEFECT-12: one Job must not send an unlimited number of requests at once.
#[test]
fn misfits_are_removed_so_many_at_a_time() {
    let job = plain_job(|spec, _| indexed(spec, 2, 2));
    let pods = vec![pod_of_index(1, 7), pod_of_index(2, 8), pod_of_index(3, 9)];
    let mut facts = plain_facts(job, pods);
    facts.limits.batch = 2;
    let plan = compare::plan(&mut fresh_ledger(&facts), &facts);
    assert_eq!(plan.removals.len(), 2);
}

/// RM-1: two Pods are wanted, and there are two in addition to the misfit.
#[test]
fn a_misfit_newer_than_the_job_costs_no_good_pod() {
    let job = plain_job(|spec, _| indexed(spec, 3, 2));
    let mut misfit = pod_of_index(3, 7);
    misfit.revision.0 = job.revision.0 + 1;
    misfit.ready = true;
    let mut facts = plain_facts(job, vec![pod_of_index(1, 0), pod_of_index(2, 1), misfit]);
    facts.jobs_at.0 = 0;
    check_by_hand(&facts);
}

/// RM-1: one Pod is wanted of four. The newest, which our view of the Job cannot judge yet, is one of two Pods of an index, and
/// the first of all to be removed: it is one of three.
#[test]
fn a_pod_that_cannot_be_judged_is_one_of_those_that_are_too_many() {
    let job = plain_job(|spec, _| indexed(spec, 5, 1));
    let mut newest = pod_of_index(4, 0);
    (newest.revision.0, newest.phase) = (job.revision.0 + 1, Phase::Pending);
    let pods = vec![pod_of_index(1, 0), pod_of_index(2, 1), pod_of_index(3, 2), newest];
    let mut facts = plain_facts(job, pods);
    facts.jobs_at.0 = 0;
    check_by_hand(&facts);
    let plan = compare::plan(&mut fresh_ledger(&facts), &facts);
    assert_eq!((plan.removals.len(), plan.must_reread_job), (2, true));
}

#[test]
fn names_in_use_are_not_taken_again_where_their_numbers_wrap_around() {
    let job = plain_job(|spec, status| {
        spec.completions = None;
        spec.parallelism = 3;
        spec.backoff_limit = i32::MAX;
        status.failed = ATTEMPTS as i32 - 1;
    });
    let first = plain_pod(1, |pod| pod.name = arbitrary::names().name(None, 0));
    let mut facts = plain_facts(job, vec![first]);
    facts.window = 2;
    check_by_hand(&facts);
}

/// A Pod that is being deleted and has not failed is not ignored, whatever its conditions are.
#[test]
fn a_pod_that_has_not_failed_yet_is_not_ignored_when_names_are_chosen() {
    let job = plain_job(|spec, status| {
        (spec.completions, spec.parallelism, spec.backoff_limit) = (None, 3, i32::MAX);
        let on_pod_conditions = vec![OnPodCondition { kind: "Ready".into(), status: "False".into() }];
        let rule = FailureRule { action: "Ignore".into(), on_exit_codes: None, on_pod_conditions };
        spec.pod_failure_policy = Some(FailurePolicy { rules: vec![rule] });
        spec.pod_replacement_policy = PodReplacementPolicy::Failed;
        status.uncounted_terminated_pods = Some(Uncounted { succeeded: vec![], failed: vec![uid(2)] });
    });
    let removed = plain_pod(1, |pod| {
        (pod.phase, pod.tracked) = (Phase::Pending, false);
        pod.deletion_asked_at = Some(arbitrary::ago(5));
        pod.conditions = [("Ready".into(), "False".into())].into_iter().collect();
    });
    check_by_hand(&plain_facts(job, vec![removed]));
}

/// STATUSVAL-2. No server stores such lists, but a controller that reads them must repair them: otherwise every write
/// is refused.
#[test]
fn a_uid_that_is_listed_twice_is_listed_once_in_the_next_write() {
    let job = plain_job(|spec, status| {
        spec.parallelism = 0;
        let lists = Uncounted { succeeded: vec![uid(1)], failed: vec![uid(1)] };
        status.uncounted_terminated_pods = Some(lists);
    });
    check_write_by_hand(&plain_facts(job, vec![plain_pod(1, |pod| pod.phase = Phase::Succeeded)]));
}

/// STATUSVAL-7, STATUSVAL-25: null repairs it, another time does not. No server stores this either.
#[test]
fn a_completion_time_without_complete_is_no_obstacle() {
    let job = plain_job(|_, status| {
        let met = Condition {
            kind: condition::SUCCESS_CRITERIA_MET.into(),
            status: "True".into(),
            last_probe_time: None,
            last_transition_time: None,
            reason: "CompletionsReached".into(),
            message: "Reached expected number of succeeded pods".into(),
        };
        status.conditions.push(met);
        status.start_time = Some(arbitrary::ago(900).truncated());
        status.completion_time = Some(arbitrary::ago(500).truncated());
    });
    check_write_by_hand(&plain_facts(job, vec![]));
}

/// STATUSVAL-24 allows `succeeded` to decrease while completions and parallelism are equal. A user who scales both down
/// from five to two, and then parallelism to one, before the ledger has written anything, must not leave a Job that no
/// write can change.
#[test]
fn a_job_scaled_down_and_then_narrowed_can_still_be_written() {
    let job = plain_job(|spec, status| {
        indexed(spec, 2, 1);
        status.completed_indexes = "0-4".into();
        status.succeeded = 5;
    });
    check_write_by_hand(&plain_facts(job, vec![]));
}

/// BLPI-2. The ledger must not act on them, not even after it has repaired the status: a success of such an index would
/// be lost.
#[test]
fn failed_indexes_of_a_job_that_limits_none_mean_nothing() {
    let job = plain_job(|spec, status| {
        indexed(spec, 2, 2);
        status.failed_indexes = Some("1".into());
    });
    check_by_hand(&plain_facts(
        job,
        vec![plain_pod(1, |pod| {
            pod.index = Some(1);
            pod.phase = Phase::Succeeded;
        })],
    ));
}

/// The stream shows the Pod, then the response to its creation is lost: the outcome is known nevertheless.
#[test]
fn a_pod_that_was_seen_settles_its_creation_though_the_answer_is_lost() {
    let job = plain_job(|spec, _| spec.parallelism = 2);
    let facts = plain_facts(job, vec![]);
    let mut ledger = fresh_ledger(&facts);
    let first = compare::plan(&mut ledger, &facts).creations.remove(0);
    ledger.observe_pod(&plain_pod(1, |pod| pod.name = first.name.clone()), facts.now);
    ledger.creation_unknown(&first.name, facts.now);
    let second = compare::plan(&mut ledger, &facts).creations;
    assert_eq!(second.len(), 1, "the other of two is due");
}

/// S05: the index of a lost creation has another Pod by now. Repeating the creation would give it a second one, although
/// the Job wants one Pod more, for another index.
#[test]
fn a_creation_of_unknown_outcome_is_not_repeated_for_an_index_that_has_a_pod() {
    let mut facts = plain_facts(plain_job(|spec, _| indexed(spec, 2, 2)), vec![]);
    let mut ledger = fresh_ledger(&facts);
    let first = compare::plan(&mut ledger, &facts).creations.remove(0);
    assert_eq!(first.index, Some(0));
    ledger.creation_unknown(&first.name, facts.now);
    ledger.observe_pod(&pod_of_index(1, 0), facts.now);
    facts.now = facts.now + Span::from_seconds(2);
    let plan = compare::plan(&mut ledger, &facts);
    assert_eq!((plan.creations, plan.must_list_pods), (vec![], true));
}

/// Scaled down from five to two with three indexes complete, then narrowed: `succeeded` must stay three (STATUSVAL-24),
/// and the two remaining indexes must still be recorded. Otherwise their Pods are never released.
#[test]
fn indexes_are_recorded_though_the_number_of_successes_may_not_fall() {
    let job = plain_job(|spec, status| {
        indexed(spec, 2, 1);
        status.completed_indexes = "2-4".into();
        status.succeeded = 3;
    });
    let succeeded = |number, index| PodView { phase: Phase::Succeeded, ..pod_of_index(number, index) };
    check_by_hand(&plain_facts(job, vec![succeeded(1, 0), succeeded(2, 1)]));
}

/// METRIC-7 counts the policy's verdicts on failures.
#[test]
fn a_success_is_no_ignored_failure() {
    let job = plain_job(|spec, status| {
        indexed(spec, 2, 1);
        let disrupted = OnPodCondition { kind: "DisruptionTarget".into(), status: "True".into() };
        let ignore =
            FailureRule { action: "Ignore".into(), on_pod_conditions: vec![disrupted], ..FailureRule::default() };
        spec.pod_failure_policy = Some(FailurePolicy { rules: vec![ignore] });
        status.completed_indexes = "0".into();
    });
    let pod = plain_pod(1, |pod| {
        pod.index = Some(0);
        pod.phase = Phase::Succeeded;
        pod.deletion_asked_at = Some(arbitrary::ago(10));
        pod.conditions.push(("DisruptionTarget".into(), "True".into()));
    });
    let facts = plain_facts(job, vec![pod]);
    let plan = compare::plan(&mut fresh_ledger(&facts), &facts);
    assert!(!plan.releases[0].ignored);
}

/// A user empties the status by hand: the recorded Pod and its completed index are both removed from it. The Pod still
/// has its finalizer, so it counts again.
#[test]
fn a_success_counts_again_after_its_record_and_its_index_are_taken_away_at_once() {
    let job = plain_job(|spec, status| {
        indexed(spec, 2, 1);
        status.completed_indexes = "0".into();
        status.uncounted_terminated_pods = Some(Uncounted { succeeded: vec![uid(1)], failed: vec![] });
    });
    let pod = PodView { phase: Phase::Succeeded, ..pod_of_index(1, 0) };
    let mut facts = plain_facts(job, vec![pod]);
    let mut ledger = fresh_ledger(&facts);
    facts.job.status = JobStatus::default();
    facts.job.revision.0 += 1;
    ledger.observe_job(std::sync::Arc::new(facts.job.clone()));
    let plan = compare::plan(&mut ledger, &facts);
    if let Err(problem) = compare::check(&plan, &crate::reference::plan(&facts), &facts, Memory::default()) {
        panic!("{problem}");
    }
    let write = plan.status.expect("the index is complete");
    assert_eq!(&*write.status.completed_indexes, "0");
}
