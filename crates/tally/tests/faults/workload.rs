//! Jobs of every kind that can fail in its own way.

use serde_json::{Value, json};

use crate::verdict::Terms;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Plain,
    Indexed,
    /// Two indexes fail permanently.
    PerIndex,
    /// Each index fails once.
    FailsOnce,
    /// Fails too often.
    Failing,
    /// The test deletes its Pods.
    Pounded,
    PoundedIndexed,
    /// The same, and its failure policy ignores these failures.
    Ignoring,
    /// The same, and its Pods end slowly and are not replaced before they have ended.
    Reluctant,
    /// Suspended and resumed.
    Suspended,
    SuspendedIndexed,
    /// `parallelism` goes up and down.
    Scaled,
    /// `completions` goes up and down with it.
    Elastic,
    /// Some successes are enough, and the remaining Pods are ended.
    Modest,
    /// Exceeds its deadline.
    Late,
    /// Deleted in one of three ways before it ends.
    Deleted,
    /// Deleted by the TTL controller when it has ended.
    Short,
    /// Deleted without its Pods, which another Job with the same selector adopts.
    Orphaning,
    /// The Job that adopts them.
    Adopting,
}

/// All kinds but `Adopting`, which is created after an `Orphaning` Job.
pub const KINDS: [Kind; 18] = [
    Kind::Plain,
    Kind::Indexed,
    Kind::PerIndex,
    Kind::FailsOnce,
    Kind::Failing,
    Kind::Pounded,
    Kind::PoundedIndexed,
    Kind::Ignoring,
    Kind::Reluctant,
    Kind::Suspended,
    Kind::SuspendedIndexed,
    Kind::Scaled,
    Kind::Elastic,
    Kind::Modest,
    Kind::Late,
    Kind::Deleted,
    Kind::Short,
    Kind::Orphaning,
];

const HEIR: &str = "-heir";

/// The name of the Job that adopts the Pods of this one.
pub fn heir_of(name: &str) -> String {
    format!("{name}{HEIR}")
}

/// The largest size of Jobs whose size changes.
pub const WIDEST: u64 = 8;

impl Kind {
    /// Kinds that wait for back-offs of many seconds: many of them would make a storm long and uneventful.
    pub fn is_slow(self) -> bool {
        matches!(self, Kind::PerIndex | Kind::FailsOnce | Kind::Failing)
    }

    pub fn is_pounded(self) -> bool {
        matches!(self, Kind::Pounded | Kind::PoundedIndexed | Kind::Ignoring | Kind::Reluctant)
    }

    pub fn is_suspended(self) -> bool {
        matches!(self, Kind::Suspended | Kind::SuspendedIndexed)
    }

    /// Whether the Job is deleted at the end.
    pub fn goes(self) -> bool {
        matches!(self, Kind::Deleted | Kind::Short)
    }

    pub fn ends_as(self) -> &'static str {
        if matches!(self, Kind::PerIndex | Kind::Failing | Kind::Late) { "Failed" } else { "Complete" }
    }

    fn is_indexed(self) -> bool {
        matches!(
            self,
            Kind::Indexed
                | Kind::PerIndex
                | Kind::FailsOnce
                | Kind::PoundedIndexed
                | Kind::SuspendedIndexed
                | Kind::Elastic
                | Kind::Modest
        )
    }
}

#[derive(Clone, Debug)]
pub struct Made {
    pub kind: Kind,
    pub name: String,
    pub uid: String,
    /// Number of its Pods that were deleted.
    pub pounded: u32,
    /// Deleted by the test, and whether its Pods go with it.
    pub deleted: Option<bool>,
    parallelism: usize,
}

impl Made {
    pub fn new(kind: Kind, name: String, job: &Value) -> Made {
        let uid = job["metadata"]["uid"].as_str().unwrap().to_owned();
        let widest = matches!(kind, Kind::Scaled | Kind::Elastic).then_some(WIDEST);
        let parallelism = widest.or_else(|| job["spec"]["parallelism"].as_u64()).unwrap() as usize;
        Made { kind, name, uid, pounded: 0, deleted: None, parallelism }
    }

    pub fn terms(&self, instances: usize) -> Terms {
        Terms {
            parallelism: self.parallelism,
            instances,
            ignores: if self.kind == Kind::Ignoring { vec![143] } else { Vec::new() },
            fixed_indexes: self.kind != Kind::Elastic,
            adopts: self.kind == Kind::Adopting,
        }
    }
}

pub fn job(kind: Kind, name: &str, rng: &mut fastrand::Rng) -> Value {
    let run_for = format!("{}ms", rng.u32(0..150));
    let mut annotations = json!({"hollow.tally.dev/run-for": run_for});
    let parallelism = rng.u64(2..8);
    let mut spec = json!({"completions": rng.u64(15..50), "parallelism": parallelism, "backoffLimit": 1000});
    if kind.is_indexed() {
        spec["completionMode"] = "Indexed".into();
    }
    match kind {
        Kind::PerIndex => {
            spec["completions"] = 6.into();
            spec["backoffLimitPerIndex"] = 1.into();
            annotations["hollow.tally.dev/exit-code"] = "1=1,4=3".into();
        }
        Kind::FailsOnce => {
            spec["completions"] = 5.into();
            spec["backoffLimitPerIndex"] = 2.into();
            annotations["hollow.tally.dev/fail-times"] = "1".into();
        }
        Kind::Failing => {
            spec["parallelism"] = 4.into();
            spec["backoffLimit"] = 2.into();
            annotations["hollow.tally.dev/exit-code"] = "1".into();
        }
        Kind::Ignoring => {
            let rule = json!({"action": "Ignore", "onExitCodes": {"operator": "In", "values": [143]}});
            spec["podFailurePolicy"] = json!({"rules": [rule]});
        }
        Kind::Elastic => {
            spec["completions"] = parallelism.into();
            annotations["hollow.tally.dev/run-for"] = format!("{}ms", rng.u32(300..2000)).into();
        }
        Kind::Reluctant => {
            spec["podReplacementPolicy"] = "Failed".into();
            annotations["hollow.tally.dev/terminate-after"] = format!("{}ms", rng.u32(50..600)).into();
        }
        Kind::Modest => {
            spec["successPolicy"] = json!({"rules": [{"succeededCount": rng.u64(2..12)}]});
            annotations["hollow.tally.dev/run-for"] = format!("{}ms", rng.u32(100..600)).into();
        }
        Kind::Late => {
            spec["completions"] = 100.into();
            spec["activeDeadlineSeconds"] = rng.u64(1..6).into();
            annotations["hollow.tally.dev/run-for"] = format!("{}ms", rng.u32(500..900)).into();
        }
        Kind::Short => spec["ttlSecondsAfterFinished"] = rng.u64(0..2).into(),
        // Long enough for some Pods to run while they are handed over, with room for all of them in the other Job.
        Kind::Orphaning => annotations["hollow.tally.dev/run-for"] = format!("{}ms", rng.u32(200..1500)).into(),
        Kind::Adopting => spec["parallelism"] = rng.u64(15..20).into(),
        _ => {}
    }
    let mut labels = json!({});
    if matches!(kind, Kind::Orphaning | Kind::Adopting) {
        labels["storm"] = name.trim_end_matches(HEIR).into();
        spec["manualSelector"] = true.into();
        spec["selector"] = json!({"matchLabels": labels});
    }
    spec["template"] = json!({
        "metadata": {"annotations": annotations, "labels": labels},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    });
    json!({"metadata": {"name": name}, "spec": spec})
}
