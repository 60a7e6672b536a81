//! What a ledger costs: nanoseconds per observed Pod event and per planned action, bytes per tracked Pod, for Jobs of
//! 100, 10,000 and 100,000 Pods. Prints figures; asserts nothing. `make bench` runs it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tally_core::ids::{JobUid, PodUid, Revision};
use tally_core::job::JobView;
use tally_core::ledger::{Ledger, Limits, Nowhere, Plan, Sight};
use tally_core::mutation::Sound;
use tally_core::pod::{ControllerRef, Phase, PodView};
use tally_core::selector::Labels;
use tally_core::time::Timestamp;

/// Counts what is allocated, so that bytes per Pod are measured and not estimated.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

// The only way to see the heap; it adds and subtracts, and leaves the rest to the system's allocator.
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
        labels: Labels::default(),
        controller: Some(ControllerRef { uid: JobUid::from_u128(1), name: "load".into(), is_job: true }),
        tracked,
        phase,
        scheduled: true,
        ready: phase == Phase::Running,
        ready_changed_at: Some(NOW),
        finished_at: NOW,
        index,
        failure_count: 0,
        ignored_failure_count: 0,
        restarts: Default::default(),
        exits: Default::default(),
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
fn life(size: usize, indexed: bool) -> Figures {
    let mut job = job(size, indexed);
    let before = ALLOCATED.load(Ordering::Relaxed);
    let mut ledger = Ledger::new(job.clone(), Limits::default(), Sound);
    let mut revision = 1u64;
    let mut now = NOW;
    let mut actions = 0usize;
    let mut planning = std::time::Duration::ZERO;
    let mut pods: Vec<PodView> = Vec::with_capacity(size);
    let mut plan = |ledger: &mut Ledger<Sound>, now: Timestamp, revision: u64| -> Plan {
        let sight = Sight { pods_at: Revision(revision), jobs_at: Revision(revision), elsewhere: &Nowhere };
        let started = Instant::now();
        let plan = ledger.plan(now, sight);
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
            // Not in order of creation, as in life.
            let at = (at * 7919) % size;
            revision += 1;
            pods[at].revision = Revision(revision);
            pods[at].phase = phase;
            pods[at].ready = phase == Phase::Running;
            let started = Instant::now();
            ledger.observe_pod(black_box(&pods[at]), now);
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

fn main() {
    println!(
        "{:<12} {:>8} {:>16} {:>16} {:>12} {:>14}",
        "mode", "Pods", "ns per event", "ns per action", "bytes/Pod", "status writes"
    );
    for indexed in [false, true] {
        let mut first = None;
        for size in [100, 10_000, 100_000] {
            // Small Jobs many times, so that every size is measured over about as many events.
            let rounds = (200_000 / size).max(1);
            let runs: Vec<Figures> = (0..rounds).map(|_| life(size, indexed)).collect();
            let median = |of: fn(&Figures) -> f64| {
                let mut values: Vec<f64> = runs.iter().map(of).collect();
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            };
            let event = median(|run| run.event_ns);
            let base = *first.get_or_insert(event);
            println!(
                "{:<12} {size:>8} {event:>10.0} ({:.1}x) {:>16.0} {:>12.0} {:>14}",
                if indexed { "Indexed" } else { "NonIndexed" },
                event / base,
                median(|run| run.action_ns),
                median(|run| run.bytes),
                runs[0].writes,
            );
        }
    }
}
