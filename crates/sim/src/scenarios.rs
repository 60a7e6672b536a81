//! Named worlds: the general world of a seed, tuned towards one kind of fault.

use tally_core::ledger::Limits;

use crate::bias::Preference;
use crate::choices::Choices;
use crate::cluster::ClusterSetup;
use crate::setup::{FailurePolicyKind, GatesOff, JobSetup, Setup, TrackingGate, Weights};

pub struct Scenario {
    pub name: &'static str,
    /// The faults and regressions it is for.
    pub about: &'static str,
    pub tune: fn(&mut Setup),
}

impl Scenario {
    /// Whether it is a whole cluster, with laws and events of its own.
    pub fn is_cluster(&self) -> bool {
        let mut setup = Setup::draw(&mut Choices::from_seed(0));
        (self.tune)(&mut setup);
        setup.cluster.is_some()
    }

    /// Whether everything that must happen sometimes can happen in it. The others are tuned towards a part of it.
    pub fn has_everything(&self) -> bool {
        matches!(self.name, "any" | "cluster-faults")
    }
}

fn calm(setup: &mut Setup) {
    let Weights { deliver, apply, answer, node, time, bookmark, collector, .. } = setup.weights;
    setup.weights = Weights { deliver, apply, answer, node, time, bookmark, collector, ..Weights::default() };
    setup.lease = false;
    setup.events = false;
    setup.stays_suspended = false;
}

fn each_job(setup: &mut Setup, change: impl Fn(&mut JobSetup)) {
    setup.jobs.iter_mut().for_each(change);
}

/// A policy by which a Pod that is disrupted fails its index.
const DISRUPTION_FAILS_INDEX: &str =
    r#"[{"action": "FailIndex", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]"#;

/// A Job without special features: completions, parallelism, retries.
fn plain(job: &mut JobSetup) {
    *job = JobSetup {
        indexed: job.indexed,
        completions: job.completions.map(|completions| completions.max(2)),
        parallelism: job.parallelism.max(1),
        backoff_limit: 6,
        backoff: [None; 3],
        halts_soon: false,
        per_index: None,
        max_failed_indexes: None,
        deadline: None,
        ttl: None,
        suspend: false,
        replace_when_failed: job.replace_when_failed,
        failure_policy: FailurePolicyKind::None,
        success_count: None,
        failure_rules: None,
        success_rules: None,
        managed_elsewhere: false,
        manual_selector: job.manual_selector,
        on_failure: false,
        fail_percent: 10,
        hangs: false,
        held: false,
        after: None,
        pending_timeout: None,
        after_later: None,
        annotations: Vec::new(),
        pod_annotations: Vec::new(),
    };
}

/// Jobs that run long enough for the gate of tracking to change in the middle.
fn gates(setup: &mut Setup, tracking: TrackingGate) {
    calm(setup);
    setup.tracking = tracking;
    let at = setup.chaos_steps;
    for (number, job) in setup.jobs.iter_mut().enumerate() {
        plain(job);
        job.manual_selector = None;
        job.completions = Some(4 + (at % 5) as i32);
        (job.fail_percent, job.backoff_limit) = ([10, 40][at / 5 % 2], [6, 20][at / 10 % 2]);
        if (at + number) % 7 == 3 && job.indexed {
            (job.per_index, job.backoff_limit) = (Some(2), i32::MAX);
        }
    }
}

/// Several rules that match the same Pods, so that their order matters.
const RULES: &str = r#"[
    {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "False"}]},
    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    {"action": "Count", "onExitCodes": {"operator": "In", "values": [1, 137, 143]}},
    {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [3]}},
    {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [137, 143]}}
]"#;
/// The same for a Job that limits each index.
const INDEX_RULES: &str = r#"[
    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
    {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [3]}},
    {"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [42]}},
    {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}}
]"#;
const SUCCESS_RULES: &str = r#"[{"succeededIndexes": "1,3"}, {"succeededIndexes": "0-2", "succeededCount": 2}]"#;

/// One Job for every way to end.
fn ends(setup: &mut Setup) {
    let at = setup.chaos_steps;
    for (number, job) in setup.jobs.iter_mut().enumerate() {
        plain(job);
        job.completions = Some(4);
        job.parallelism = job.parallelism.max(2);
        job.fail_percent = 40;
        let kind = (at + 5 * number) % 12;
        job.indexed = kind >= 5;
        match kind {
            0 => job.backoff_limit = 1,
            1 => job.completions = None,
            2 => (job.on_failure, job.backoff_limit) = (true, 1),
            3 => job.failure_rules = Some(RULES),
            4 => job.backoff_limit = 2,
            5 => job.backoff_limit = 3,
            6 => job.success_rules = Some(SUCCESS_RULES),
            7 => job.success_count = Some(2),
            _ => {
                job.per_index = Some((at / 12 % 3) as i32);
                job.backoff_limit = i32::MAX;
                job.max_failed_indexes = [None, Some(1), Some(2), None][kind - 8];
                job.failure_rules = kind.is_multiple_of(2).then_some(INDEX_RULES);
                job.success_rules = (kind == 11).then_some(SUCCESS_RULES);
            }
        }
    }
}

/// One Job for everything that becomes due at a time.
fn due(setup: &mut Setup) {
    let at = setup.chaos_steps;
    for (number, job) in setup.jobs.iter_mut().enumerate() {
        plain(job);
        job.completions = Some(2);
        job.parallelism = 2;
        match (at + 3 * number) % 6 {
            0 => (job.hangs, job.deadline) = (true, Some(30)),
            1 => (job.hangs, job.deadline, job.suspend) = (true, Some(30), true),
            2 => job.ttl = Some(20),
            3 => (job.fail_percent, job.backoff_limit) = (100, 12),
            4 => {
                (job.indexed, job.per_index) = (true, Some(3));
                (job.backoff_limit, job.fail_percent) = (i32::MAX, 60);
            }
            _ => (job.ttl, job.deadline, job.fail_percent) = (Some(300), Some(600), 40),
        }
    }
}

/// Jobs that wait for each other: chains, alternatives, Jobs that are missing, cycles.
fn order(setup: &mut Setup) {
    calm(setup);
    setup.order = true;
    let at = setup.chaos_steps;
    setup.jobs.truncate(1);
    let Some(mut first) = setup.jobs.pop() else { return };
    plain(&mut first);
    first.manual_selector = None;
    (first.completions, first.parallelism, first.backoff_limit) = (Some(1), 1, 0);
    first.fail_percent = [0, 100, 50][at % 3];
    let job = |after: Option<&'static str>| JobSetup { after, fail_percent: 0, ..first.clone() };
    let after = |text: &'static str| job(Some(text));
    setup.jobs = match at / 3 % 6 {
        0 => vec![first.clone(), after("job-0"), after("job-1")],
        1 => vec![first.clone(), after("job-0=Failed"), after("job-0=Finished"), after("job-1,job-2")],
        2 => vec![first.clone(), after("job-0"), after("job-0=Finished"), after("job-1=Finished,job-2=Complete")],
        3 => vec![first.clone(), after("job-9"), after("job-0,job-1")],
        4 => {
            let closes = JobSetup { after_later: Some("job-2=Finished"), ..after("job-9") };
            vec![closes, after("job-0=Finished"), after("job-1=Finished"), after("job-2=Failed")]
        }
        _ => vec![JobSetup { ttl: Some(0), ..first.clone() }, after("job-0=Finished"), after("job-1=Finished,job-0")],
    };
}

/// All controllers instead of models, and users who create work for them.
fn cluster(setup: &mut Setup, replicas: usize) {
    calm(setup);
    setup.instances = replicas;
    setup.cluster = Some(ClusterSetup::of(replicas, 1));
    setup.chaos_steps *= 3;
    setup.weights.node = 0;
    setup.weights.collector = 0;
    setup.weights.hosts = 160;
    setup.weights.time = 12;
    setup.weights.steer = 3;
    setup.weights.things_monkey = 4;
    setup.weights.job_monkey = 1;
}

/// A few of all faults of a cluster; the seed decides which.
fn faults(setup: &mut Setup) {
    let some = |weight: &mut u32, at: usize| *weight = u32::from((setup.chaos_steps / 3) >> at & 1 == 1) * 2;
    let weights = &mut setup.weights;
    let all = [
        &mut weights.drop_request,
        &mut weights.drop_reply,
        &mut weights.refuse,
        &mut weights.crash,
        &mut weights.pause,
        &mut weights.cut,
    ];
    for (at, weight) in all.into_iter().enumerate() {
        some(weight, at);
    }
    weights.host_fault = 6;
    weights.pod_monkey = 1;
    weights.cron_monkey = 1;
    weights.node_monkey = 1;
    weights.compact = 1;
}

/// Jobs whose finished Pods go as soon as they are counted, of every kind.
fn early_deletion(setup: &mut Setup) {
    let at = setup.chaos_steps;
    calm(setup);
    (setup.weights.crash, setup.weights.pause, setup.weights.cut) = (2, 2, 1);
    (setup.weights.drop_request, setup.weights.drop_reply) = (1, 2);
    setup.weights.refuse = u32::from(at.is_multiple_of(5));
    setup.weights.pod_monkey = u32::from(at.is_multiple_of(7)) * 2;
    setup.weights.job_monkey = u32::from(at.is_multiple_of(4));
    setup.weights.time = 8;
    // As `tally up` runs it: one controller, whose requests end with its process.
    setup.gates_pods = setup.instances > 1 || !at.is_multiple_of(4);
    for (number, job) in setup.jobs.iter_mut().enumerate() {
        let at = at + 5 * number;
        plain(job);
        job.annotations =
            vec![("tally.dev/delete-finished-pods", if at.is_multiple_of(3) { "succeeded" } else { "all" })];
        job.completions = Some(6);
        job.parallelism = 1 + (at / 2 % 3) as i32;
        (job.fail_percent, job.backoff_limit) = ([30, 50, 0][at % 3], 12);
        match at / 3 % 8 {
            0 if job.indexed => (job.per_index, job.backoff_limit) = (Some(2), i32::MAX),
            1 if job.indexed => job.success_rules = Some(SUCCESS_RULES),
            2 => job.failure_rules = Some(RULES),
            3 if !job.indexed => job.completions = None,
            4 => job.failure_policy = FailurePolicyKind::Ignore,
            _ => {}
        }
    }
}

/// One small Job, for longer, and few faults: the order of events is what matters.
fn rare_orders(setup: &mut Setup, preference: Preference) {
    let at = setup.chaos_steps;
    calm(setup);
    setup.preference = preference;
    setup.jobs.truncate(1);
    setup.chaos_steps *= 2;
    setup.weights =
        Weights { apply: 36, answer: 36, node: 24, crash: u32::from(at.is_multiple_of(3)), ..setup.weights };
    setup.weights.pause = u32::from(at.is_multiple_of(2)) * 2;
    setup.weights.pod_monkey = u32::from(at.is_multiple_of(2)) * 4;
    setup.weights.job_monkey = u32::from(at % 4 == 1) * 2;
    setup.weights.conflict = u32::from(at % 4 == 2);
    each_job(setup, |job| {
        let at = at / 2;
        plain(job);
        job.manual_selector = None;
        (job.completions, job.parallelism) = (Some(2 + (at % 3) as i32), 1 + (at / 3 % 2) as i32);
        (job.fail_percent, job.backoff_limit) = ([10, 40][at / 3 % 2], 8);
        if at.is_multiple_of(2) {
            job.annotations = vec![("tally.dev/delete-finished-pods", "all")];
        }
    });
}

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "any", about: "everything, as the seed has it", tune: |_| {} },
    Scenario {
        name: "calm",
        about: "no faults at all: at most `parallelism` Pods, no conflict",
        tune: |setup| {
            calm(setup);
            setup.instances = 1;
        },
    },
    Scenario {
        name: "stale-views",
        about: "S01 S04 S05 S06 S09 H5: streams that lag, old lists, slow bookmarks",
        tune: |setup| {
            setup.preference = Preference::Anything;
            calm(setup);
            setup.weights.deliver = 12;
            setup.weights.bookmark = 2;
            setup.weights.crash = 2;
            setup.weights.cut = 3;
            each_job(setup, plain);
        },
    },
    Scenario {
        name: "list-pieces",
        about: "S06 S40: lists that are read in pieces, and break; bookmarks and late responses between the pieces",
        tune: |setup| {
            rare_orders(setup, Preference::ListsInPieces);
            setup.chaos_steps += setup.chaos_steps / 2;
            // As with `tally up`: Pods that start at once come and go between two pieces.
            setup.gates_pods = false;
            each_job(setup, |job| job.annotations = vec![("tally.dev/delete-finished-pods", "all")]);
        },
    },
    Scenario {
        name: "late-responses",
        about: "S05 S33: creations, status writes and reads that are answered when much has happened since",
        tune: |setup| rare_orders(setup, Preference::LateResponses),
    },
    Scenario {
        name: "late-requests",
        about: "S05 S38 H3: creations, releases and deletions that are carried out long after they were sent, or given up",
        tune: |setup| {
            rare_orders(setup, Preference::LateRequests);
            setup.weights.job_monkey = u32::from(setup.chaos_steps.is_multiple_of(4)) * 4;
        },
    },
    Scenario {
        name: "lost-writes",
        about: "S02 S18 S33: status writes whose response is lost, with two leaders and Pods that change their phase",
        tune: |setup| {
            rare_orders(setup, Preference::LostWrites);
            setup.weights.pod_monkey = 6;
            let indexed = !setup.chaos_steps.is_multiple_of(3);
            each_job(setup, |job| job.indexed |= indexed);
        },
    },
    Scenario {
        name: "crash",
        about: "S32 S34 H2: a crash after any write, with what was sent still on its way",
        tune: |setup| {
            calm(setup);
            setup.weights.crash = 6;
            setup.weights.job_monkey = 2;
            setup.instances = 1;
        },
    },
    Scenario {
        name: "two-leaders",
        about: "S02 and the zombie leader: two instances write, pause and wake",
        tune: |setup| {
            setup.preference = Preference::Anything;
            calm(setup);
            setup.instances = 2;
            setup.weights.pause = 5;
            setup.weights.crash = 1;
            each_job(setup, plain);
        },
    },
    Scenario {
        name: "unknown-outcome",
        about: "S05 S38: requests and replies are lost",
        tune: |setup| {
            setup.preference = Preference::Anything;
            calm(setup);
            setup.weights.drop_request = 4;
            setup.weights.drop_reply = 6;
        },
    },
    Scenario {
        name: "gates-switch",
        about: "F1 F2 F3: every restart switches the tracking with finalizers off or on",
        tune: |setup| {
            gates(setup, TrackingGate::Switches);
            setup.instances = 1;
            setup.weights.crash = 5;
        },
    },
    Scenario {
        name: "gates-skew",
        about: "F1 F2 F3: two leaders, and only one of them tracks with finalizers",
        tune: |setup| {
            gates(setup, TrackingGate::Skewed);
            setup.instances = 2;
            setup.weights.pause = 5;
            setup.weights.crash = 1;
        },
    },
    Scenario {
        name: "gates-off",
        about: "F1 F2 F3 I6: as gates-switch, with lost requests and Pods that others delete; off at the end, as other gates",
        tune: |setup| {
            gates(setup, TrackingGate::EndsOff);
            let at = setup.chaos_steps;
            setup.gates_off = GatesOff { interim: at % 2 == 0, success_policy: at / 2 % 2 == 0 };
            setup.weights.crash = 4;
            setup.weights.drop_request = 2;
            setup.weights.drop_reply = 2;
            setup.weights.refuse = 1;
            setup.weights.cut = 2;
            setup.weights.pod_monkey = 2;
            setup.weights.job_monkey = 1;
        },
    },
    Scenario {
        name: "conflicts",
        about: "S02 S33: another writer changes the Job between read and write",
        tune: |setup| {
            calm(setup);
            setup.weights.conflict = 8;
            each_job(setup, plain);
        },
    },
    Scenario {
        name: "refusals",
        about: "S13 S15 S41: 403 and 429 on single Pods, quotas, webhooks that change their minds",
        tune: |setup| {
            calm(setup);
            setup.weights.refuse = 6;
            setup.weights.pod_monkey = 3;
        },
    },
    Scenario {
        name: "refused-statuses",
        about: "CONST-1 I28: a policy refuses the status of a Job for a time, until it ends or a user changes the Job",
        tune: |setup| {
            let at = setup.chaos_steps;
            calm(setup);
            setup.refuses_statuses = true;
            (setup.weights.policy, setup.weights.time) = (2, 12);
            setup.weights.crash = u32::from(at.is_multiple_of(3));
            setup.weights.conflict = u32::from(at.is_multiple_of(2));
            each_job(setup, |job| {
                plain(job);
                job.manual_selector = None;
                job.completions = Some(1 + (at % 4) as i32);
                job.fail_percent = [0, 20][at / 2 % 2];
            });
        },
    },
    Scenario {
        name: "pod-monkey",
        about: "S08 S17 S18 S19 H3: Pods deleted, stripped, flipped, relabelled, replaced under their name",
        tune: |setup| {
            calm(setup);
            setup.weights.pod_monkey = 10;
            setup.weights.drop_request = 2;
            setup.weights.crash = 1;
        },
    },
    Scenario {
        name: "job-monkey",
        about: "S08 S10 S12 S23 S36 S37: Jobs deleted in every way, re-created, scaled, suspended",
        tune: |setup| {
            calm(setup);
            setup.weights.job_monkey = 8;
            setup.weights.crash = 1;
        },
    },
    Scenario {
        name: "limits",
        about: "S03 S11 I4: more finished Pods than fit into one write",
        tune: |setup| {
            setup.limits = Limits { uncounted: 2, batch: 4 };
            each_job(setup, |job| {
                plain(job);
                job.completions = Some(8);
                job.parallelism = 8;
                job.fail_percent = 40;
                job.indexed = false;
                job.backoff_limit = 20;
            });
        },
    },
    Scenario {
        name: "backoff",
        about: "S20 S34 S35 S36: Pods that keep failing",
        tune: |setup| {
            calm(setup);
            setup.weights.crash = 2;
            setup.weights.time = 10;
            each_job(setup, |job| {
                plain(job);
                job.completions = Some(3);
                job.parallelism = 2;
                job.fail_percent = 60;
            });
        },
    },
    Scenario {
        name: "retries",
        about: "S34 BACKOFF-11 BACKOFF-13 BLPI-6: Pods that keep failing, of Jobs that say how long to wait",
        tune: |setup| {
            let at = setup.chaos_steps;
            let jobs = u32::from(at.is_multiple_of(4));
            calm(setup);
            setup.weights.crash = 2;
            setup.weights.time = 12;
            setup.weights.job_monkey = jobs;
            setup.events = at.is_multiple_of(3);
            setup.loses_nodes = at.is_multiple_of(2);
            let bases = [None, Some("1s"), Some("500ms"), Some("30s"), Some("0s")];
            let longest = [Some("1m"), None, Some("30s"), Some("20m")];
            let jitters = [None, Some("0.5"), Some("1"), Some("0")];
            for (number, job) in setup.jobs.iter_mut().enumerate() {
                plain(job);
                let at = at + 7 * number;
                job.backoff = [bases[at % 5], longest[at / 5 % 4], jitters[at / 20 % 4]];
                job.completions = Some(3);
                job.parallelism = 2;
                (job.fail_percent, job.backoff_limit) = ([60, 100][at % 2], 12);
                if at / 3 % 2 == 1 {
                    job.failure_policy = FailurePolicyKind::Ignore;
                }
                if at % 3 == 1 {
                    (job.indexed, job.per_index) = (true, Some(5));
                    job.backoff_limit = i32::MAX;
                    if at % 2 == 1 {
                        (job.halts_soon, job.max_failed_indexes, job.per_index) = (true, Some(0), Some(1));
                        job.completions = Some(5);
                    }
                }
            }
        },
    },
    Scenario {
        name: "early-deletion",
        about: "TTL-14 to TTL-17: finished Pods are deleted once they are counted, with crashes and two leaders",
        tune: early_deletion,
    },
    Scenario {
        name: "early-deletion-leaders",
        about: "I14 TTL-23 TTL-24: two or three live leaders whose requests come late, and names that are free again",
        tune: |setup| {
            let at = setup.chaos_steps;
            early_deletion(setup);
            (setup.instances, setup.gates_pods) = (2 + usize::from(at.is_multiple_of(3)), true);
            (setup.weights.pause, setup.weights.crash, setup.weights.drop_request) = (4, 1, 3);
            (setup.weights.pod_monkey, setup.weights.job_monkey) = (0, 0);
            (setup.weights.apply, setup.weights.node) = (16, 24);
            setup.chaos_steps += 200;
            setup.jobs.truncate(1);
            for job in &mut setup.jobs {
                (job.completions, job.parallelism) = (Some(4 + (at % 3) as i32), 1 + (at / 3 % 3) as i32);
                job.fail_percent = [0, 0, 20][at / 9 % 3];
            }
        },
    },
    Scenario {
        name: "ttl-pods",
        about: "TTL-18 to TTL-21: Pods and outcomes with a TTL of their own, with crashes and two leaders",
        tune: |setup| {
            let at = setup.chaos_steps;
            early_deletion(setup);
            setup.weights.time = 14;
            for (number, job) in setup.jobs.iter_mut().enumerate() {
                let at = at + 5 * number;
                job.pod_annotations = vec![("tally.dev/ttl-seconds-after-finished", ["0", "5", "60"][at % 3])];
                if !at.is_multiple_of(4) {
                    job.annotations.clear();
                }
                if at.is_multiple_of(2) {
                    job.annotations.push(("tally.dev/ttl-seconds-after-complete", ["300", "0"][at / 2 % 2]));
                    job.annotations.push(("tally.dev/ttl-seconds-after-failed", "600"));
                    job.ttl = (at / 4).is_multiple_of(2).then_some(100);
                }
                job.backoff_limit = if job.per_index.is_none() { (at % 5) as i32 } else { i32::MAX };
            }
        },
    },
    Scenario {
        name: "dead-node-wait",
        about: "REPL-8 REPL-9: Pods that terminate for too long are fenced and replaced, also with a limit for each index",
        tune: |setup| {
            let at = setup.chaos_steps;
            calm(setup);
            (setup.weights.crash, setup.weights.pause, setup.weights.cut) = (2, 2, 1);
            (setup.weights.drop_reply, setup.weights.conflict) = (2, u32::from(at.is_multiple_of(3)));
            setup.weights.clock = u32::from(at % 2 == 1) * 8;
            (setup.weights.pod_monkey, setup.weights.time) = (6, 12);
            setup.weights.node = 8;
            setup.weights.job_monkey = u32::from(at.is_multiple_of(5)) * 2;
            for (number, job) in setup.jobs.iter_mut().enumerate() {
                let at = at + 3 * number;
                plain(job);
                let wait = ["1s", "5s", "30s"][at % 3];
                job.annotations = vec![("tally.dev/replace-terminating-after", wait)];
                if at.is_multiple_of(4) {
                    job.annotations.push(("tally.dev/delete-finished-pods", "all"));
                }
                (job.replace_when_failed, job.completions, job.backoff_limit) = (true, Some(5), 12);
                job.parallelism = 1 + (at % 3) as i32;
                job.failure_policy = if at % 5 == 1 { FailurePolicyKind::Ignore } else { FailurePolicyKind::None };
                if at % 4 >= 2 {
                    (job.indexed, job.per_index, job.backoff_limit) = (true, Some((at / 4 % 4) as i32), i32::MAX);
                    job.failure_policy =
                        if at / 8 % 3 == 1 { FailurePolicyKind::Ignore } else { FailurePolicyKind::None };
                    job.failure_rules = (at / 8 % 3 == 2).then_some(DISRUPTION_FAILS_INDEX);
                }
            }
        },
    },
    Scenario {
        name: "per-index",
        about: "BLPI: failures limited for each index, kept Pods, failed indexes",
        tune: |setup| {
            each_job(setup, |job| {
                job.indexed = true;
                job.completions = Some(4);
                job.parallelism = 3;
                job.per_index = Some(1);
                job.backoff_limit = i32::MAX;
                job.fail_percent = 40;
                job.on_failure = false;
            });
        },
    },
    Scenario {
        name: "policies",
        about: "S30 S31 S35: failure policy with each action, success policy",
        tune: |setup| {
            let kinds = [
                FailurePolicyKind::FailJob,
                FailurePolicyKind::Ignore,
                FailurePolicyKind::FailIndex,
                FailurePolicyKind::Count,
            ];
            let at = setup.chaos_steps;
            each_job(setup, |job| {
                job.indexed = true;
                job.completions = Some(4);
                job.parallelism = 2;
                job.per_index = Some(2);
                job.backoff_limit = i32::MAX;
                job.failure_policy = kinds[at % 4];
                job.success_count = (at % 3 == 0).then_some(2);
                job.fail_percent = 40;
                job.on_failure = false;
            });
            setup.weights.pod_monkey = 2;
        },
    },
    Scenario {
        name: "suspend",
        about: "S21 S22 SUSP: suspended and resumed in the middle of things",
        tune: |setup| {
            calm(setup);
            setup.weights.job_monkey = 12;
            setup.weights.crash = 1;
            each_job(setup, plain);
        },
    },
    Scenario {
        name: "scale-down",
        about: "H1 H2: removals, and crashes between their two halves",
        tune: |setup| {
            calm(setup);
            setup.only_scales = true;
            setup.weights.job_monkey = 10;
            setup.weights.crash = 8;
            setup.weights.node = 6;
            setup.weights.deliver = 60;
            each_job(setup, |job| {
                plain(job);
                job.indexed = false;
                job.completions = Some(8);
                job.parallelism = 4;
            });
        },
    },
    Scenario {
        name: "elastic",
        about: "ELASTIC: Indexed Jobs that get more indexes and fewer, seen late",
        tune: |setup| {
            calm(setup);
            setup.only_scales = true;
            setup.weights.job_monkey = 12;
            setup.weights.deliver = 24;
            setup.weights.node = 24;
            setup.weights.crash = 1;
            each_job(setup, |job| {
                plain(job);
                job.indexed = true;
                job.completions = Some(4);
                job.parallelism = 4;
            });
        },
    },
    Scenario {
        name: "replacement",
        about: "S26 S27 S28 S29: slow termination with both replacement policies",
        tune: |setup| {
            calm(setup);
            setup.weights.pod_monkey = 6;
            setup.weights.node = 8;
            let failed = setup.chaos_steps.is_multiple_of(2);
            each_job(setup, |job| job.replace_when_failed = failed);
        },
    },
    Scenario {
        name: "clocks",
        about: "H4 H6 I11: clocks that jump, freeze and disagree",
        tune: |setup| {
            calm(setup);
            setup.weights.clock = 8;
            setup.weights.time = 8;
            each_job(setup, |job| {
                job.ttl = Some(20);
                job.deadline = job.deadline.or(Some(60));
            });
        },
    },
    Scenario {
        name: "deadline",
        about: "S32: Pods that never end, a deadline that must fire also after a restart",
        tune: |setup| {
            calm(setup);
            setup.weights.crash = 2;
            each_job(setup, |job| {
                plain(job);
                job.hangs = true;
                job.deadline = Some(30);
            });
        },
    },
    Scenario {
        name: "verdicts",
        about: "I15-I18 I21: every way in which a Job may end, with limits that are met",
        tune: |setup| {
            let monkeys = u32::from(setup.chaos_steps.is_multiple_of(3));
            calm(setup);
            setup.weights.crash = 1;
            setup.weights.time = 8;
            setup.weights.pod_monkey = monkeys;
            ends(setup);
        },
    },
    Scenario {
        name: "verdicts-outright",
        about: "GATE-11 GATE-12 I5 I15-I17: as verdicts, without the gates of interim conditions and of success policies",
        tune: |setup| {
            let at = setup.chaos_steps;
            calm(setup);
            setup.weights.crash = 2;
            setup.weights.time = 8;
            setup.weights.drop_request = 1;
            setup.weights.drop_reply = 1;
            setup.gates_off = GatesOff { interim: true, success_policy: at % 2 == 0 };
            ends(setup);
            if at % 5 == 0 {
                due(setup);
            }
        },
    },
    Scenario {
        name: "times",
        about: "I11 I19 I20 S34: deadlines, TTLs and back-offs, suspended and resumed meanwhile",
        tune: |setup| {
            let monkeys = u32::from(setup.chaos_steps.is_multiple_of(2));
            calm(setup);
            setup.weights.time = 16;
            setup.weights.crash = 1;
            setup.weights.job_monkey = monkeys;
            due(setup);
        },
    },
    Scenario {
        name: "watch",
        about: "S06 S40: watches cut, compacted, listed again; lives that fit between two lists",
        tune: |setup| {
            setup.preference = Preference::Anything;
            calm(setup);
            setup.weights.cut = 8;
            setup.weights.compact = 3;
            setup.weights.pod_monkey = 3;
        },
    },
    Scenario {
        name: "lease",
        about: "L1 E1: instances that wait for a lease, lose it and take it; events are recorded",
        tune: |setup| {
            setup.instances = 2;
            setup.lease = true;
            setup.events = true;
            setup.chaos_steps *= 2;
            setup.weights.time = 10;
            setup.weights.pause = 2;
        },
    },
    Scenario {
        name: "orphans",
        about: "OWN ORPH: selectors of users that overlap, Jobs deleted without their Pods and made anew, owners removed",
        tune: |setup| {
            each_job(setup, |job| job.manual_selector = Some("a"));
            setup.weights.pod_monkey = 6;
            setup.weights.job_monkey = 6;
            setup.orphans = true;
            // With two leaders a Pod may be counted by the Job that is deleted and by the one that adopts it: a known
            // limit.
            setup.instances = 1;
        },
    },
    Scenario {
        name: "side-by-side",
        about: "MANAGED: two instances, each with Jobs of its own, and neither touches the other's",
        tune: |setup| {
            setup.instances = 2;
            setup.side_by_side = true;
            setup.lease = false;
            setup.jobs.push(setup.jobs[0].clone());
            for (number, job) in setup.jobs.iter_mut().enumerate() {
                job.managed_elsewhere = number % 2 == 1;
            }
            setup.weights.pod_monkey = 3;
            setup.weights.job_monkey = 3;
        },
    },
    Scenario {
        name: "meddling",
        about: "users edit statuses, as far as validation lets them",
        tune: |setup| {
            setup.meddles = true;
            setup.weights.conflict = 6;
            // The controller trusts a user who edits a status and removes finalizers.
            setup.weights.pod_monkey = 0;
        },
    },
    Scenario {
        name: "large",
        about: "tens of Jobs with hundreds of Pods, and every fault that the seed has",
        tune: |setup| {
            let kinds = setup.jobs.clone();
            setup.jobs = (0..24).map(|at| kinds[at % kinds.len()].clone()).collect();
            each_job(setup, |job| {
                if let Some(completions) = &mut job.completions {
                    *completions = (*completions * 4).max(8);
                }
                job.parallelism = job.parallelism.max(1) * 4;
                job.max_failed_indexes = job.max_failed_indexes.map(|most| most * 2);
            });
            setup.limits = Limits { uncounted: 10, batch: 20 };
            setup.chaos_steps = 1_500;
            setup.heal_steps *= 10;
            setup.weights.node = 60;
            setup.weights.apply = 60;
            setup.weights.answer = 60;
        },
    },
    Scenario {
        name: "cluster",
        about: "G1-G8: all controllers together, on nodes, without faults",
        tune: |setup| {
            let go_on = setup.chaos_steps.is_multiple_of(4);
            cluster(setup, 1);
            if let Some(cluster) = &mut setup.cluster {
                cluster.crons_go_on = go_on;
            }
        },
    },
    Scenario {
        name: "cluster-faults",
        about: "G1-G8: all controllers together; streams lag and break, requests are lost or late, crashes",
        tune: |setup| {
            // Sometimes with a second leader, otherwise events that need two leaders would never happen.
            let replicas = 1 + usize::from(setup.chaos_steps.is_multiple_of(3));
            cluster(setup, replicas);
            faults(setup);
            setup.weights.namespace_monkey = 1;
            setup.weights.time = 24;
        },
    },
    Scenario {
        name: "cluster-two-leaders",
        about: "G1-G8: two of every controller, which pause and wake",
        tune: |setup| {
            cluster(setup, 2);
            setup.weights.host_fault = 8;
            setup.weights.pause = 5;
            setup.weights.crash = 1;
            setup.weights.drop_reply = 1;
            setup.weights.node_monkey = 1;
        },
    },
    Scenario {
        name: "cluster-clocks",
        about: "G1-G8: clocks of controllers and nodes that jump and disagree",
        tune: |setup| {
            let at = setup.chaos_steps;
            cluster(setup, 1);
            setup.weights.host_fault = 4;
            setup.weights.clock = 3;
            if at.is_multiple_of(2) {
                // A retry after a refusal is a timer of every controller.
                (setup.weights.host_fault, setup.weights.refuse, setup.weights.time) = (16, 6, 24);
            }
            setup.weights.node_monkey = 1;
            setup.weights.cron_monkey = 1;
            if let Some(cluster) = &mut setup.cluster {
                (cluster.nodes_stay_lost, cluster.crons_go_on) = (at.is_multiple_of(3), true);
                cluster.crons = 2;
            }
        },
    },
    Scenario {
        name: "pending",
        about: "PENDING: Pods that do not start in time, with clocks that agree",
        tune: |setup| {
            calm(setup);
            setup.weights.crash = 1;
            setup.weights.cut = 1;
            setup.weights.conflict = 1;
            setup.weights.node = 6;
            setup.weights.time = 10;
            setup.stays_pending = setup.chaos_steps % 2 == 0;
            let limit = ["30s", "12s", "1s"][setup.chaos_steps / 2 % 3];
            each_job(setup, |job| {
                plain(job);
                job.pending_timeout = Some(limit);
            });
        },
    },
    Scenario {
        name: "after",
        about: "O1-O4: Jobs that begin after others, while users delete, suspend and resume them",
        tune: |setup| {
            order(setup);
            setup.weights.job_monkey = 1;
            setup.weights.conflict = 1;
            setup.weights.crash = 1;
            setup.weights.cut = 1;
        },
    },
    Scenario {
        name: "after-two-leaders",
        about: "O1-O4: the same with two leaders, one of which is behind, and requests that are lost",
        tune: |setup| {
            order(setup);
            setup.instances = 2;
            setup.weights.job_monkey = 2;
            setup.weights.pause = 3;
            setup.weights.drop_request = 1;
            setup.weights.drop_reply = 2;
            setup.weights.cut = 1;
        },
    },
    Scenario {
        name: "owners",
        about: "G1: everything owns everything; owners go in every way, and change",
        tune: |setup| {
            cluster(setup, 1);
            faults(setup);
            setup.weights.things_monkey = 40;
            setup.weights.node_monkey = 0;
        },
    },
    Scenario {
        name: "namespace-deletion",
        about: "G3: a namespace is deleted in the middle of things, and created again",
        tune: |setup| {
            cluster(setup, 1);
            faults(setup);
            setup.weights.namespace_monkey = 6;
            setup.weights.time = 24;
        },
    },
    Scenario {
        name: "lost-node",
        about: "G2 G4: nodes are deleted, come back, are cordoned and put out of service",
        tune: |setup| {
            let stay_lost = setup.chaos_steps.is_multiple_of(4);
            cluster(setup, 1);
            faults(setup);
            setup.weights.node_monkey = 6;
            setup.weights.time = 24;
            if let Some(cluster) = &mut setup.cluster {
                cluster.nodes_stay_lost = stay_lost;
            }
        },
    },
    Scenario {
        name: "cron",
        about: "G7: CronJobs with every policy, suspended, deleted and made anew",
        tune: |setup| {
            cluster(setup, 1);
            faults(setup);
            setup.weights.cron_monkey = 3;
            setup.weights.time = 40;
            if let Some(cluster) = &mut setup.cluster {
                cluster.crons = 2;
            }
        },
    },
];

pub fn find(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.name == name)
}
