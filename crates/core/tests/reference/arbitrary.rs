//! Jobs and Pods at random: mostly plausible, sometimes invalid, always small, so that all combinations occur.

use std::sync::Arc;

use compact_str::{CompactString, format_compact};
use proptest::collection::vec;
use proptest::option::{of, weighted};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::value::RawValue;
use smallvec::SmallVec;
use tally_core::backoff::BackoffPolicy;
use tally_core::gates::FeatureGates;
use tally_core::ids::{JobUid, PodUid, Revision};
use tally_core::job::{
    CompletionMode, Condition, JobSpec, JobStatus, JobView, PodReplacementPolicy, Template, Uncounted, condition,
};
use tally_core::ledger::Limits;
use tally_core::lifetime::EarlyDeletion;
use tally_core::names::PodNames;
use tally_core::pending::{PendingReason, parse};
use tally_core::pod::{Exit, Phase, PodView, Restarts};
use tally_core::policy::{FailurePolicy, FailureRule, OnExitCodes, OnPodCondition, SuccessPolicy, SuccessRule};
use tally_core::selector::{Labels, Selector};
use tally_core::time::{Span, Timestamp};

use super::Facts;

/// The current time in all cases: not a whole second, so that truncation has an effect.
pub const NOW: Timestamp = Timestamp::from_millis(1_000_000_250);
/// The revision of the Job, with Pods older and newer.
pub const JOB_AT: u64 = 1_000;
const JOB: &str = "3b241101-e2bb-4255-8caf-4136c566a962";
const PODS: u128 = 10;

pub fn ago(seconds: i64) -> Timestamp {
    NOW - Span::from_seconds(seconds)
}

pub fn uid(number: u128) -> PodUid {
    PodUid::from_u128(number)
}

pub fn names() -> PodNames {
    PodNames::new(&JobUid::new(JOB), "job")
}

/// Times around the steps of the back-off; sometimes the future.
fn past() -> impl Strategy<Value = Timestamp> {
    select(vec![1_000, 601, 600, 599, 100, 41, 40, 39, 20, 11, 10, 9, 5, 1, 0, 0, -50]).prop_map(ago)
}

fn rarely(chance: f64) -> impl Strategy<Value = bool> {
    proptest::bool::weighted(chance)
}

// ---- by hand ----

/// A Job that requires three successes, one after the other.
pub fn plain_job(change: impl FnOnce(&mut JobSpec, &mut JobStatus)) -> JobView {
    let mut spec = JobSpec {
        parallelism: 1,
        completions: Some(3),
        completion_mode: CompletionMode::NonIndexed,
        backoff_limit: 6,
        backoff_limit_per_index: None,
        max_failed_indexes: None,
        active_deadline_seconds: None,
        ttl_seconds_after_finished: None,
        suspend: false,
        pod_replacement_policy: PodReplacementPolicy::TerminatingOrFailed,
        pod_failure_policy: None,
        success_policy: None,
        managed_by: None,
        selector: Selector::default(),
        restart_policy_on_failure: false,
        judges_terminating: false,
        pending_timeouts: None,
        template: Template::new(RawValue::from_string("{}".into()).expect("is JSON")),
    };
    let mut status = JobStatus::default();
    change(&mut spec, &mut status);
    JobView {
        uid: JobUid::new(JOB),
        namespace: "space".into(),
        name: "job".into(),
        revision: Revision(JOB_AT),
        generation: 1,
        created_at: ago(2_000),
        deleting: false,
        legacy: false,
        gang: false,
        gates: FeatureGates::default(),
        halts_soon: false,
        early_deletion: EarlyDeletion::Nothing,
        pods_expire: false,
        ttl_after: Default::default(),
        replace_terminating_after: None,
        backoff: BackoffPolicy::default(),
        invalid_backoff: None,
        spec: Arc::new(spec),
        status,
    }
}

/// A running Pod with the finalizer.
pub fn plain_pod(number: u128, change: impl FnOnce(&mut PodView)) -> PodView {
    let seed = PodSeed {
        phase: Phase::Running,
        deleting: false,
        tracked: true,
        start_gated: false,
        scheduled: true,
        ready: false,
        index: None,
        attempt: None,
        failure_count: 0,
        ignored_failure_count: 0,
        restarts: 0,
        finished_at: ago(100),
        ready_changed_at: None,
        code: None,
        side_code: None,
        disrupted: false,
        newer: false,
    };
    let mut pod = pod(number, &seed, false);
    change(&mut pod);
    pod
}

pub fn plain_facts(job: JobView, pods: Vec<PodView>) -> Facts {
    Facts {
        job,
        pods,
        now: NOW,
        limits: Limits::default(),
        window: 1,
        pods_at: Revision(u64::MAX),
        jobs_at: Revision(u64::MAX),
        unknown: Vec::new(),
        unknown_removals: Default::default(),
    }
}

// ---- the spec ----

fn failure_rule() -> impl Strategy<Value = FailureRule> {
    let action = select(vec!["FailJob", "FailIndex", "Ignore", "Ignore", "Count", "Dance"]);
    let codes = (of(select(vec!["main", "side"])), select(vec!["In", "NotIn", "Near"]), vec(1..4i32, 0..3));
    let patterns = vec((select(vec!["DisruptionTarget", "Ready"]), select(vec!["True", "False"])), 0..3);
    (action, rarely(0.6), codes, patterns).prop_map(|(action, by_code, (container, operator, values), patterns)| {
        let pattern = |(kind, status): (&str, &str)| OnPodCondition { kind: kind.into(), status: status.into() };
        FailureRule {
            action: action.into(),
            on_exit_codes: by_code.then(|| OnExitCodes {
                container_name: container.map(CompactString::from),
                operator: operator.into(),
                values,
            }),
            on_pod_conditions: patterns.into_iter().filter(|_| !by_code).map(pattern).collect(),
        }
    })
}

fn success_rule() -> impl Strategy<Value = SuccessRule> {
    (of(select(vec!["0", "0,1", "1-3", "5", "9", "2,x"])), of(0..4i32)).prop_map(|(indexes, count)| SuccessRule {
        succeeded_indexes: indexes.map(String::from),
        succeeded_count: count,
    })
}

prop_compose! {
    fn mode()(number in 0..100) -> CompletionMode {
        match number {
            0 => CompletionMode::Unknown("Sideways".into()),
            1..65 => CompletionMode::Indexed,
            _ => CompletionMode::NonIndexed,
        }
    }
}

prop_compose! {
    fn limits_of_spec()(
        completions in weighted(0.85, prop_oneof![1 => Just(0), 9 => 1..7i32]),
        parallelism in prop_oneof![1 => Just(0), 9 => 1..7i32],
        backoff_limit in prop_oneof![3 => 0..5i32, 4 => Just(6), 2 => Just(i32::MAX)],
        per_index in weighted(0.5, 0..4i32),
        max_failed_indexes in weighted(0.3, 0..4i32),
        deadline in weighted(0.2, select(vec![0i64, 1, 10, 100, 1_000, i64::MAX])),
    ) -> (Option<i32>, i32, i32, Option<i32>, Option<i32>, Option<i64>) {
        (completions, parallelism, backoff_limit, per_index, max_failed_indexes, deadline)
    }
}

/// Limits of pending Pods; most Jobs have none.
const TIMEOUTS: [&str; 4] = ["20m", "30m", "Unschedulable=10m", "1h,Unschedulable=15m"];

pub fn spec() -> impl Strategy<Value = JobSpec> {
    let policies = (weighted(0.35, vec(failure_rule(), 0..4)), weighted(0.2, vec(success_rule(), 0..3)), rarely(0.35));
    (mode(), limits_of_spec(), policies, rarely(0.12), rarely(0.15)).prop_map(
        |(completion_mode, limits, (failure, success, failed_only), suspend, on_failure)| {
            let (completions, parallelism, backoff_limit, per_index, max_failed_indexes, deadline) = limits;
            let plain = plain_job(|_, _| {});
            JobSpec {
                parallelism,
                completions,
                completion_mode,
                backoff_limit,
                backoff_limit_per_index: per_index,
                max_failed_indexes,
                active_deadline_seconds: deadline,
                suspend,
                pod_replacement_policy: match failed_only {
                    true => PodReplacementPolicy::Failed,
                    false => PodReplacementPolicy::TerminatingOrFailed,
                },
                pod_failure_policy: failure.map(|rules| FailurePolicy { rules }),
                success_policy: success.map(|rules| SuccessPolicy { rules }),
                restart_policy_on_failure: on_failure,
                judges_terminating: false,
                // Drawn from what is drawn already, so that the cases of a seed stay what they were.
                pending_timeouts: TIMEOUTS
                    .get((parallelism.unsigned_abs() as usize + usize::from(suspend)) % 16)
                    .and_then(|text| parse(text).ok())
                    .map(Arc::new),
                ..JobSpec::clone(&plain.spec)
            }
        },
    )
}

// ---- the status ----

fn one_condition() -> impl Strategy<Value = Condition> {
    let kinds: Vec<(&str, &str)> = [
        (8, condition::SUSPENDED, "True"),
        (4, condition::SUSPENDED, "False"),
        (2, condition::SUSPENDED, "Unknown"),
        (5, condition::FAILURE_TARGET, "True"),
        (2, condition::FAILURE_TARGET, "False"),
        (5, condition::SUCCESS_CRITERIA_MET, "True"),
        (2, condition::SUCCESS_CRITERIA_MET, "False"),
        (1, condition::COMPLETE, "True"),
        (2, condition::COMPLETE, "False"),
        (1, condition::FAILED, "True"),
        (2, condition::FAILED, "Unknown"),
        (2, "Custom", "True"),
    ]
    .into_iter()
    .flat_map(|(weight, kind, status)| std::iter::repeat_n((kind, status), weight))
    .collect();
    (select(kinds), rarely(0.7)).prop_map(|((kind, status), usual)| {
        let (reason, message) = match (kind, status) {
            (condition::SUSPENDED, "True") if usual => ("JobSuspended", "Job suspended"),
            (condition::SUSPENDED, "False") if usual => ("JobResumed", "Job resumed"),
            _ => ("BecauseISaidSo", "said somebody"),
        };
        Condition {
            kind: kind.into(),
            status: status.into(),
            last_probe_time: Some(ago(500).truncated()),
            last_transition_time: Some(ago(500).truncated()),
            reason: reason.into(),
            message: message.into(),
        }
    })
}

fn index_text() -> impl Strategy<Value = &'static str> {
    select(vec![
        "", "", "", "0", "1", "0,1", "0-2", "2,4,5", "1,3-9", "7", "3,1", "0,x,2", "2-2,4", "0-1-5", "+1,,-2", "00,1",
    ])
}

fn uncounted() -> impl Strategy<Value = Uncounted> {
    let lists = vec((1..PODS + 4, any::<bool>()), 0..5);
    (lists, rarely(0.15)).prop_map(|(mut uids, nonsense)| {
        if !nonsense {
            // As the API requires: no UID twice.
            uids.sort();
            uids.dedup_by_key(|(number, _)| *number);
        }
        let list =
            |succeeded: bool| uids.iter().filter(|(_, to)| *to == succeeded).map(|(number, _)| uid(*number)).collect();
        Uncounted { succeeded: list(true), failed: list(false) }
    })
}

prop_compose! {
    fn counters()(
        active in prop_oneof![6 => 0..4i32, 1 => Just(-1)],
        succeeded in prop_oneof![12 => 0..5i32, 1 => Just(i32::MAX), 1 => Just(-2)],
        failed in prop_oneof![12 => 0..5i32, 1 => Just(i32::MAX), 1 => Just(-1)],
        ready in of(0..3i32),
        terminating in of(0..3i32),
    ) -> (i32, i32, i32, Option<i32>, Option<i32>) {
        (active, succeeded, failed, ready, terminating)
    }
}

pub fn status() -> impl Strategy<Value = JobStatus> {
    let conditions = prop_oneof![5 => Just(vec![]), 5 => vec(one_condition(), 1..3), 1 => vec(one_condition(), 3..5)];
    let indexes = prop_oneof![3 => Just(("", None)), 5 => (index_text(), of(index_text()))];
    let times = (weighted(0.7, past()), weighted(0.02, past()));
    (conditions, times, counters(), indexes, of(uncounted())).prop_map(
        |(conditions, (start_time, completion_time), counters, (completed, failed_indexes), uncounted)| {
            let (active, succeeded, failed, ready, terminating) = counters;
            JobStatus {
                conditions,
                start_time: start_time.map(Timestamp::truncated),
                completion_time: completion_time.map(Timestamp::truncated),
                active,
                succeeded,
                failed,
                terminating,
                completed_indexes: completed.into(),
                failed_indexes: failed_indexes.map(Into::into),
                uncounted_terminated_pods: uncounted,
                ready,
            }
        },
    )
}

// ---- the Job ----

fn backoff() -> impl Strategy<Value = BackoffPolicy> {
    let base = select(vec![None, Some("0s"), Some("1s"), Some("9999ms"), Some("20s"), Some("39s")]);
    let max = select(vec![None, Some("39s"), Some("40s"), Some("1m40s"), Some("24h")]);
    let jitter = select(vec![None, Some("0"), Some("0.3"), Some("1")]);
    (rarely(0.4), base, max, jitter).prop_map(|(annotated, base, max, jitter)| match annotated {
        true => BackoffPolicy::read(base, max, jitter).unwrap(),
        false => BackoffPolicy::default(),
    })
}

pub fn job() -> impl Strategy<Value = JobView> {
    let status = prop_oneof![1 => Just(JobStatus::default()), 3 => status()];
    let deleting = (rarely(0.1), rarely(0.7), rarely(0.5));
    let annotations = (backoff(), rarely(0.3));
    (spec(), status, deleting, annotations).prop_map(|(mut spec, mut status, (deleting, tidy, calm), annotations)| {
        let (backoff, halts_soon) = annotations;
        if tidy {
            tidy_up(&spec, &mut status);
        }
        if tidy && calm {
            go_on(&mut spec, &mut status);
        }
        let deleting = deleting && !calm;
        JobView { deleting, halts_soon, backoff, spec: Arc::new(spec), status, ..plain_job(|_, _| {}) }
    })
}

/// Changes a status into one that a controller could have written: otherwise hardly any Job would be undecided and
/// valid.
fn tidy_up(spec: &JobSpec, status: &mut JobStatus) {
    use super::text;
    let limit = spec.index_limit();
    let completed = text::read(&status.completed_indexes, limit);
    let mut failed = text::read(status.failed_indexes.as_deref().unwrap_or(""), limit);
    failed.retain(|index| !completed.contains(index));
    let indexed = spec.is_indexed();
    status.completed_indexes = if indexed { text::write(&completed).into() } else { "".into() };
    status.failed_indexes = spec.limits_each_index().then(|| text::write(&failed).into());
    status.succeeded = if indexed { completed.len() as i32 } else { status.succeeded.clamp(0, 3) };
    status.failed = status.failed.clamp(0, 3);
    status.active = status.active.max(0);
    status.ready = status.ready.map(|ready| ready.min(status.active));
    status.completion_time = None;
    let mut kinds = Vec::new();
    status.conditions.retain(|known| {
        let first = !kinds.contains(&known.kind);
        kinds.push(known.kind.clone());
        first
    });
    if status.is_true(condition::SUCCESS_CRITERIA_MET) {
        status.conditions.retain(|known| known.kind != condition::FAILURE_TARGET && known.kind != condition::FAILED);
    }
}

/// Removes what would end or delay the Job: otherwise few Jobs would ever replace a Pod.
fn go_on(spec: &mut JobSpec, status: &mut JobStatus) {
    spec.parallelism += 3;
    spec.completions = spec.completions.map(|completions| completions + 2);
    spec.backoff_limit_per_index = spec.backoff_limit_per_index.map(|limit| limit + 2);
    spec.suspend = false;
    spec.backoff_limit = i32::MAX;
    spec.active_deadline_seconds = None;
    spec.max_failed_indexes = None;
    status.conditions.clear();
    for rule in spec.pod_failure_policy.iter_mut().flat_map(|policy| &mut policy.rules) {
        if rule.action == "FailJob" {
            rule.action = "Count".into();
        }
    }
}

// ---- Pods ----

/// The generated properties of a Pod; the rest follows from its number.
#[derive(Clone, Debug)]
pub struct PodSeed {
    pub phase: Phase,
    pub deleting: bool,
    pub tracked: bool,
    pub start_gated: bool,
    pub scheduled: bool,
    pub ready: bool,
    pub index: Option<u32>,
    pub attempt: Option<u32>,
    pub failure_count: u32,
    pub ignored_failure_count: u32,
    pub restarts: u32,
    pub finished_at: Timestamp,
    pub ready_changed_at: Option<Timestamp>,
    pub code: Option<i32>,
    pub side_code: Option<i32>,
    pub disrupted: bool,
    pub newer: bool,
}

pub fn phase() -> impl Strategy<Value = Phase> {
    select(vec![
        Phase::Pending,
        Phase::Running,
        Phase::Running,
        Phase::Unknown,
        Phase::Succeeded,
        Phase::Succeeded,
        Phase::Failed,
        Phase::Failed,
        Phase::Failed,
    ])
}

prop_compose! {
    pub fn pod_seed()(
        (phase, deleting, tracked) in (phase(), rarely(0.25), rarely(0.8)),
        (start_gated, scheduled, ready, ready_changed_at) in (rarely(0.1), rarely(0.8), rarely(0.5), of(past())),
        index in weighted(0.95, prop_oneof![9 => 0..6u32, 1 => 6..9u32]),
        attempt in weighted(0.9, 0..6u32),
        (failure_count, ignored_failure_count) in (0..5u32, prop_oneof![3 => Just(0u32), 1 => 1..4u32]),
        restarts in prop_oneof![3 => Just(0u32), 1 => 1..4u32],
        finished_at in past(),
        (code, side_code) in (of(1..5i32), weighted(0.2, 1..5i32)),
        (disrupted, newer) in (rarely(0.3), rarely(0.2)),
    ) -> PodSeed {
        let seed = PodSeed {
            phase, deleting, tracked, start_gated, scheduled, ready, index, attempt, failure_count,
            ignored_failure_count, restarts, finished_at, ready_changed_at, code, side_code, disrupted, newer,
        };
        match start_gated {
            true => PodSeed { phase: Phase::Pending, scheduled: false, ready: false, code: None, ..seed },
            false => seed,
        }
    }
}

/// The Pod with that number. Creation times differ, so that RM-2 decides between any two.
pub fn pod(number: u128, seed: &PodSeed, indexed: bool) -> PodView {
    let name = match seed.attempt {
        Some(attempt) => names().name(seed.index.filter(|_| indexed), attempt),
        None => format_compact!("stranger-{number}"),
    };
    let exit = |container: &str, code: i32| Exit { container: container.into(), code };
    let exits = seed.code.map(|code| exit("main", code)).into_iter();
    let mut conditions: SmallVec<[(CompactString, CompactString); 2]> = SmallVec::new();
    if seed.disrupted {
        conditions.push(("DisruptionTarget".into(), "True".into()));
    }
    conditions.push(("Ready".into(), if seed.ready { "True" } else { "False" }.into()));
    PodView {
        uid: uid(number),
        namespace: "space".into(),
        name,
        revision: Revision(if seed.newer { JOB_AT + number as u64 } else { JOB_AT - number as u64 }),
        created_at: if number == 7 { Timestamp::default() } else { ago(1_500 + (number as i64 * 37) % 101) },
        deletion_asked_at: seed.deleting.then_some(seed.finished_at),
        generation: None,
        deletion_grace: None,
        owners: Default::default(),
        finalizers: Default::default(),
        odd_phase: false,
        evicted: false,
        labels: Labels::default(),
        controller: None,
        tracked: seed.tracked,
        phase: seed.phase,
        start_gated: seed.start_gated,
        scheduled: seed.scheduled,
        ready: seed.ready,
        ready_changed_at: seed.ready_changed_at,
        ttl_after_finished: None,
        node_name: Default::default(),
        finished_at: seed.finished_at,
        index: seed.index,
        failure_count: seed.failure_count,
        ignored_failure_count: seed.ignored_failure_count,
        restarts: Restarts {
            regular: seed.restarts,
            sidecar: seed.restarts % 2,
            sum: seed.restarts + seed.restarts % 2,
        },
        pending: (seed.phase == Phase::Pending && seed.disrupted).then(|| {
            let since = ago(700 + number as i64);
            Box::new(PendingReason { reason: "Unschedulable".into(), message: "no room".to_owned(), since })
        }),
        exits: exits.chain(seed.side_code.map(|code| exit("side", code))).collect(),
        reason: CompactString::default(),
        conditions,
    }
}

/// A Job, its Pods, and the revisions up to which they have been observed.
pub fn facts() -> impl Strategy<Value = Facts> {
    let limits = (
        prop_oneof![1 => 1..4usize, 2 => Just(500)],
        prop_oneof![1 => 1..4usize, 2 => Just(500)],
        select(vec![1usize, 1, 2, 4, 8]),
    );
    let horizon = (rarely(0.95), prop_oneof![Just(0), Just(JOB_AT + 5), Just(u64::MAX), Just(u64::MAX)]);
    let pods = prop_oneof![vec(pod_seed(), 0..5), vec(pod_seed(), 0..PODS as usize)];
    (job(), pods, limits, horizon).prop_map(|(job, seeds, (uncounted, batch, window), (open, jobs_at))| {
        let indexed = job.spec.is_indexed();
        let pods = seeds.iter().zip(1..).map(|(seed, number)| pod(number, seed, indexed)).collect();
        Facts {
            job,
            pods,
            now: NOW,
            limits: Limits { uncounted, batch },
            window: window.min(1 << batch.ilog2()),
            pods_at: Revision(if open { u64::MAX } else { JOB_AT - 1 }),
            jobs_at: Revision(jobs_at),
            unknown: Vec::new(),
            unknown_removals: Default::default(),
        }
    })
}
