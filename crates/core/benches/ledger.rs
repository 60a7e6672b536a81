//! What a ledger costs: nanoseconds per observed Pod event and per planned action, bytes per tracked Pod, for Jobs of
//! 100, 10,000 and 100,000 Pods. Prints figures; asserts nothing. `make bench` runs it.

#![allow(clippy::unwrap_used, clippy::expect_used)]
// A benchmark must read the clock.
#![allow(clippy::disallowed_methods)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tally_core::ids::{JobUid, PodUid, Revision};
use tally_core::job::JobView;
use tally_core::ledger::{Horizon, Ledger, Limits, Nowhere, Plan};
use tally_core::pod::{ControllerRef, Phase, PodView};
use tally_core::selector::Labels;
use tally_core::time::Timestamp;

/// Counts allocated bytes, so that bytes per Pod are measured and not estimated.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

// The only way to measure the heap; it adds and subtracts, and delegates the rest to the system's allocator.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);

fn job(size: usize, indexed: bool) -> Arc<JobView> {
    let uid = JobUid::from_u128(1);
    let mode = if indexed { ",\"completionMode\":\"Indexed\"" } else { "" };
    let text = format!(
        "{{\"metadata\":{{\"name\":\"load\",\"namespace\":\"bench\",\"uid\":\"{uid}\",\"resourceVersion\":\"1\"}},\
         \"spec\":{{\"parallelism\":{size},\"completions\":{size},\"backoffLimit\":1000000{mode},\
         \"selector\":{{\"matchLabels\":{{\"a\":\"b\"}}}},\"template\":{{\"metadata\":{{\"labels\":{{\"a\":\"b\"}}}},\
         \"spec\":{{\"restartPolicy\":\"Never\",\"containers\":[{{\"name\":\"c\",\"image\":\"i\"}}]}}}}}}}}"
    );
    Arc::new(JobView::from_json(text.as_bytes()).expect("the bench's own Job decodes"))
}

fn pod(number: usize, name: &str, index: Option<u32>, phase: Phase, tracked: bool, revision: u64) -> PodView {
    PodView {
        uid: PodUid::from_u128(number as u128 * 0x9e37_79b9_7f4a_7c15 + 7),
        namespace: "bench".into(),
        name: name.into(),
        revision: Revision(revision),
        created_at: NOW,
        deletion_asked_at: None,
        generation: None,
        deletion_grace: None,
        owners: Default::default(),
        finalizers: Default::default(),
        odd_phase: false,
        evicted: false,
        labels: Labels::default(),
        controller: Some(ControllerRef { uid: JobUid::from_u128(1), name: "load".into(), is_job: true }),
        tracked,
        phase,
        start_gated: false,
        scheduled: true,
        ready: phase == Phase::Running,
        ready_changed_at: Some(NOW),
        ttl_after_finished: None,
        node_name: Default::default(),
        finished_at: NOW,
        index,
        failure_count: 0,
        ignored_failure_count: 0,
        restarts: Default::default(),
        exits: Default::default(),
        reason: Default::default(),
        pending: None,
        conditions: Default::default(),
    }
}

struct Figures {
    event_ns: f64,
    action_ns: f64,
    bytes: f64,
    writes: usize,
}

/// The whole life of a Job in which every Pod runs, becomes ready, succeeds, is recorded, released and tallied.
fn life(size: usize, indexed: bool, shuffled: bool) -> Figures {
    let mut job = job(size, indexed);
    let before = ALLOCATED.load(Ordering::Relaxed);
    let mut ledger = Ledger::new(job.clone(), Limits::default());
    let mut revision = 1u64;
    let mut now = NOW;
    let mut actions = 0usize;
    let mut planning = std::time::Duration::ZERO;
    let mut pods: Vec<PodView> = Vec::with_capacity(size);
    let mut plan = |ledger: &mut Ledger, now: Timestamp, revision: u64| -> Plan {
        let horizon =
            Horizon { pods_at: Revision(revision), jobs_at: Revision(revision), elsewhere: &Nowhere, crowded: false };
        let started = Instant::now();
        let plan = ledger.plan(now, horizon);
        planning += started.elapsed();
        actions += plan.creations.len() + plan.releases.len() + usize::from(plan.status.is_some());
        plan
    };
    // Creation, batch by batch.
    while pods.len() < size {
        let made = plan(&mut ledger, now, revision).creations;
        for new in made {
            revision += 1;
            let created = pod(pods.len(), &new.name, new.index, Phase::Pending, true, revision);
            ledger.created(&created, Revision(revision - 1), now);
            pods.push(created);
        }
    }
    let bytes = (ALLOCATED.load(Ordering::Relaxed) - before) as f64
        - pods.capacity() as f64 * size_of::<PodView>() as f64
        - pods.iter().map(|pod| pod.name.capacity().saturating_sub(24)).sum::<usize>() as f64;
    // Each Pod starts, then ends: two events each.
    let mut observing = std::time::Duration::ZERO;
    let mut writes = 0;
    for phase in [Phase::Running, Phase::Succeeded] {
        for at in 0..size {
            // Pods start and end roughly in the order of their creation; the worst case is no order at all.
            let at = match shuffled {
                true => (at * 7919) % size,
                false if at / 64 * 64 + 64 <= size => at / 64 * 64 + (at % 64 * 37) % 64,
                false => at,
            };
            revision += 1;
            pods[at].revision = Revision(revision);
            pods[at].phase = phase;
            pods[at].ready = phase == Phase::Running;
            // A decoded event is fresh in the CPU cache; the ledger's own memory is not.
            let event = pods[at].clone();
            let started = Instant::now();
            ledger.observe_pod(black_box(&event), now);
            observing += started.elapsed();
        }
    }
    // Accounting: record, release, tally, until the Job is complete.
    let by_name: std::collections::HashMap<_, _> =
        pods.iter().enumerate().map(|(at, pod)| (pod.uid.clone(), at)).collect();
    while !job.status.is_finished() {
        now = now + tally_core::time::Span::from_millis(60);
        let plan = plan(&mut ledger, now, revision);
        for release in plan.releases {
            let at = by_name[&release.uid];
            revision += 1;
            pods[at].revision = Revision(revision);
            pods[at].tracked = false;
            ledger.observe_pod(&pods[at], now);
            ledger.pod_answered(&release.uid);
        }
        if let Some(write) = plan.status {
            writes += 1;
            revision += 1;
            let mut next = (*job).clone();
            next.status = write.status;
            next.revision = Revision(revision);
            job = Arc::new(next);
            ledger.status_written(job.clone(), now);
        }
    }
    assert_eq!(job.status.succeeded as usize, size, "the bench counts right or its figures mean nothing");
    Figures {
        event_ns: observing.as_nanos() as f64 / (2 * size) as f64,
        action_ns: planning.as_nanos() as f64 / actions as f64,
        bytes: bytes / size as f64,
        writes,
    }
}

/// Decoding a Pod from JSON, which each event costs before the ledger observes it.
fn decoding_ns() -> f64 {
    let text = br#"{"metadata":{"name":"load-7-abcde","generateName":"load-7-","namespace":"bench","uid":"3b241101-e2bb-4255-8caf-4136c566a962","resourceVersion":"4711","creationTimestamp":"2026-01-31T12:00:00Z","labels":{"batch.kubernetes.io/controller-uid":"3b241101-e2bb-4255-8caf-4136c566a962","batch.kubernetes.io/job-completion-index":"7","batch.kubernetes.io/job-name":"load","controller-uid":"3b241101-e2bb-4255-8caf-4136c566a962","job-name":"load"},"annotations":{"batch.kubernetes.io/job-completion-index":"7"},"finalizers":["batch.kubernetes.io/job-tracking"],"ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"load","uid":"3b241101-e2bb-4255-8caf-4136c566a962","controller":true,"blockOwnerDeletion":true}]},"spec":{"nodeName":"n1","restartPolicy":"Never","containers":[{"name":"c","image":"busybox","command":["sh","-c","exit 0"],"resources":{"requests":{"cpu":"100m","memory":"64Mi"}},"volumeMounts":[{"name":"kube-api-access","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]}],"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}]},"status":{"phase":"Running","conditions":[{"type":"PodScheduled","status":"True","lastTransitionTime":"2026-01-31T12:00:00Z"},{"type":"Ready","status":"True","lastTransitionTime":"2026-01-31T12:00:01Z"}],"hostIP":"10.0.0.1","podIP":"10.1.0.7","startTime":"2026-01-31T12:00:00Z","containerStatuses":[{"name":"c","ready":true,"restartCount":0,"image":"busybox","state":{"running":{"startedAt":"2026-01-31T12:00:01Z"}}}]}}"#;
    const ROUNDS: u32 = 20_000;
    let started = Instant::now();
    for _ in 0..ROUNDS {
        black_box(PodView::from_json(black_box(text)).expect("the bench's own Pod decodes"));
    }
    started.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
}

fn main() {
    let decoding = decoding_ns();
    println!("decoding a Pod of 2 KB into its view: {decoding:.0} ns");
    println!(
        "event: decode + file; file alone in brackets, Pods ending roughly in order of creation, then in no order"
    );
    println!(
        "{:<11} {:>7} {:>30} {:>30} {:>14} {:>10} {:>7}",
        "mode", "Pods", "ns per event, in order", "ns per event, no order", "ns per action", "bytes/Pod", "writes"
    );
    for indexed in [false, true] {
        let mut base: Option<[f64; 2]> = None;
        for size in [100, 10_000, 100_000] {
            // Small Jobs run many times, so that every size is measured over about as many events.
            let rounds = (200_000 / size).max(3);
            let orders = [false, true]
                .map(|shuffled| (0..rounds).map(|_| life(size, indexed, shuffled)).collect::<Vec<Figures>>());
            let median = |runs: &[Figures], of: fn(&Figures) -> f64| {
                let mut values: Vec<f64> = runs.iter().map(of).collect();
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            };
            let filing = [0, 1].map(|order| median(&orders[order], |run| run.event_ns));
            let first = *base.get_or_insert(filing);
            let cell = |order: usize| {
                format!(
                    "{:.0} ({:.1}x) [{:.0} {:.1}x]",
                    decoding + filing[order],
                    (decoding + filing[order]) / (decoding + first[order]),
                    filing[order],
                    filing[order] / first[order]
                )
            };
            println!(
                "{:<11} {size:>7} {:>30} {:>30} {:>14.0} {:>10.0} {:>7}",
                if indexed { "Indexed" } else { "NonIndexed" },
                cell(0),
                cell(1),
                median(&orders[1], |run| run.action_ns),
                median(&orders[1], |run| run.bytes),
                orders[0][0].writes,
            );
        }
    }
}
