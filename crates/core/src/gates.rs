//! Feature gates: which of the features of the Job API are on. Parsed once from `--feature-gates`; the API server (which
//! fields it stores) and the controllers (what they act on) are each given a copy. `docs/feature-gates.md` says what each
//! gate does when it is off, and what happens when it is on again.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

use crate::job::{JobView, PodReplacementPolicy, RESERVED_MANAGER};

/// A feature that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    ElasticIndexedJob,
    JobBackoffLimitPerIndex,
    JobManagedBy,
    JobPodReplacementPolicy,
    JobSuccessPolicy,
    JobTrackingWithFinalizers,
    PodDisruptionConditions,
    TTLAfterFinished,
}

impl Gate {
    /// In the order of their names.
    pub const ALL: [Self; 8] = [
        Self::ElasticIndexedJob,
        Self::JobBackoffLimitPerIndex,
        Self::JobManagedBy,
        Self::JobPodReplacementPolicy,
        Self::JobSuccessPolicy,
        Self::JobTrackingWithFinalizers,
        Self::PodDisruptionConditions,
        Self::TTLAfterFinished,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::ElasticIndexedJob => "ElasticIndexedJob",
            Self::JobBackoffLimitPerIndex => "JobBackoffLimitPerIndex",
            Self::JobManagedBy => "JobManagedBy",
            Self::JobPodReplacementPolicy => "JobPodReplacementPolicy",
            Self::JobSuccessPolicy => "JobSuccessPolicy",
            Self::JobTrackingWithFinalizers => "JobTrackingWithFinalizers",
            Self::PodDisruptionConditions => "PodDisruptionConditions",
            Self::TTLAfterFinished => "TTLAfterFinished",
        }
    }

    /// The stage as Kubernetes prints it in metrics: the empty text means generally available, and all of these are.
    pub fn stage(self) -> &'static str {
        ""
    }
}

/// Which gates are on. All are, unless `--feature-gates` says otherwise.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FeatureGates {
    off: u8,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self::ALL_ON
    }
}

impl fmt::Debug for FeatureGates {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let off = Gate::ALL.into_iter().filter(|gate| !self.enabled(*gate)).map(|gate| (gate.name(), false));
        formatter.debug_map().entries(off).finish()
    }
}

/// Why the value of `--feature-gates` cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum GatesError {
    #[error("{0:?} is not of the form NAME=true or NAME=false")]
    Form(String),
    #[error("unknown feature gate {name:?}; available gates: {}", Gate::ALL.map(Gate::name).join(", "))]
    Unknown { name: String },
    #[error("{gate}={value:?}: the value must be true or false")]
    Value { gate: &'static str, value: String },
}

impl FromStr for FeatureGates {
    type Err = GatesError;

    /// `NAME=true|false`, separated by commas. Of several values for a name the last one counts.
    fn from_str(text: &str) -> Result<Self, GatesError> {
        let mut gates = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').ok_or_else(|| GatesError::Form(word.to_owned()))?;
            let (name, value) = (name.trim(), value.trim());
            let gate = Gate::ALL.into_iter().find(|gate| gate.name() == name);
            let gate = gate.ok_or_else(|| GatesError::Unknown { name: name.to_owned() })?;
            gates = match value {
                "true" => gates.with(gate, true),
                "false" => gates.with(gate, false),
                _ => return Err(GatesError::Value { gate: gate.name(), value: value.to_owned() }),
            };
        }
        Ok(gates)
    }
}

impl FeatureGates {
    pub const ALL_ON: Self = Self { off: 0 };

    pub fn enabled(self, gate: Gate) -> bool {
        self.off & 1 << gate as u8 == 0
    }

    pub fn with(self, gate: Gate, on: bool) -> Self {
        let bit = 1 << gate as u8;
        Self { off: if on { self.off & !bit } else { self.off | bit } }
    }

    /// Whether nodes and the Pod garbage collector set the phase of a Pod to Failed before they delete it.
    pub fn sets_phase_before_deletion(self) -> bool {
        self.enabled(Gate::PodDisruptionConditions) || self.enabled(Gate::JobPodReplacementPolicy)
    }

    /// Whether Complete and Failed wait until no Pod of the Job is terminating, and are announced by an interim condition
    /// (KEP-4368, GATE-11).
    pub fn delays_terminal_conditions(self) -> bool {
        self.enabled(Gate::JobManagedBy) || self.enabled(Gate::JobPodReplacementPolicy)
    }

    /// A Job as a controller with these gates sees it: without the fields whose gate is off. The fields stay in the stored
    /// Job, and are effective again once their gate is on.
    pub fn apply(self, mut job: JobView) -> JobView {
        job.gates = self;
        if self == Self::ALL_ON {
            return job;
        }
        let spec = Arc::make_mut(&mut job.spec);
        if !self.enabled(Gate::JobManagedBy) {
            spec.managed_by = None;
        }
        if !self.enabled(Gate::JobPodReplacementPolicy) {
            spec.pod_replacement_policy = PodReplacementPolicy::TerminatingOrFailed;
        }
        if !self.enabled(Gate::JobSuccessPolicy) {
            spec.success_policy = None;
        }
        if !self.enabled(Gate::JobBackoffLimitPerIndex) {
            (spec.backoff_limit_per_index, spec.max_failed_indexes) = (None, None);
        }
        if !self.enabled(Gate::TTLAfterFinished) {
            spec.ttl_seconds_after_finished = None;
        }
        spec.judges_terminating = !self.enabled(Gate::PodDisruptionConditions);
        job
    }
}

/// How an upgrade to a release that tracks all Jobs with finalizers, and has these gates, would affect a Job (GATE-10). Empty:
/// not at all.
pub fn affected(job: &JobView, gates: FeatureGates) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut add = |reason: &str| reasons.push(reason.to_owned());
    let off = |gate| !gates.enabled(gate);
    if job.spec.ttl_seconds_after_finished.is_some() && off(Gate::TTLAfterFinished) {
        add("spec.ttlSecondsAfterFinished has no effect while TTLAfterFinished is off: the Job is not deleted");
    }
    if job.status.is_finished() {
        return reasons;
    }
    let mut add = |reason: &str| reasons.push(reason.to_owned());
    // Without the mark, a Job that has begun shows by its lists whether it is tracked.
    let begun = job.status.start_time.is_some() || job.status.active > 0 || job.status.succeeded > 0;
    let tracked = !job.legacy && (job.status.uncounted_terminated_pods.is_some() || !begun);
    if !tracked && gates.enabled(Gate::JobTrackingWithFinalizers) {
        add("it is not tracked with finalizers: Pods may be created again for completions whose Pods are gone");
    }
    if tracked && begun && off(Gate::JobTrackingWithFinalizers) {
        add(
            "its Pods lose their finalizers while JobTrackingWithFinalizers is off, and it is not tracked with them again",
        );
    }
    let external = job.spec.managed_by.as_deref().filter(|manager| *manager != RESERVED_MANAGER);
    if let Some(manager) = external.filter(|_| off(Gate::JobManagedBy)) {
        let why = format!("the built-in controller reconciles it beside {manager} while JobManagedBy is off");
        reasons.push(why);
    }
    let mut add = |reason: &str| reasons.push(reason.to_owned());
    if job.spec.pod_replacement_policy == PodReplacementPolicy::Failed && off(Gate::JobPodReplacementPolicy) {
        add("terminating Pods are replaced at once while JobPodReplacementPolicy is off");
    }
    if job.spec.backoff_limit_per_index.is_some() && off(Gate::JobBackoffLimitPerIndex) {
        add("spec.backoffLimitPerIndex has no effect while JobBackoffLimitPerIndex is off");
    }
    if job.spec.success_policy.is_some() && off(Gate::JobSuccessPolicy) {
        add("spec.successPolicy has no effect while JobSuccessPolicy is off");
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_read_from_a_list_of_names() {
        let off = |text: &str| -> Result<Vec<&str>, GatesError> {
            let gates: FeatureGates = text.parse()?;
            Ok(Gate::ALL.into_iter().filter(|gate| !gates.enabled(*gate)).map(Gate::name).collect())
        };
        assert_eq!(off(""), Ok(vec![]));
        assert_eq!(off("JobManagedBy=true"), Ok(vec![]));
        assert_eq!(off(" JobManagedBy=false , TTLAfterFinished=false"), Ok(vec!["JobManagedBy", "TTLAfterFinished"]));
        assert_eq!(off("JobManagedBy=false,JobManagedBy=true"), Ok(vec![]));
        for gate in Gate::ALL {
            assert_eq!(off(&format!("{}=false", gate.name())), Ok(vec![gate.name()]));
        }
        for (text, hint) in [
            ("JobManagedBy", "\"JobManagedBy\" is not of the form NAME=true or NAME=false"),
            ("JobManagedBy=yes", "JobManagedBy=\"yes\": the value must be true or false"),
            ("Nonsense=true", "unknown feature gate \"Nonsense\"; available gates: ElasticIndexedJob, JobBackoffLimit"),
        ] {
            let why = off(text).expect_err(text).to_string();
            assert!(why.contains(hint), "{text}: {why}");
        }
    }

    #[test]
    fn the_names_are_sorted_and_each_gate_has_its_own_bit() {
        assert!(Gate::ALL.is_sorted_by_key(|gate| gate.name()));
        for gate in Gate::ALL {
            let gates = FeatureGates::ALL_ON.with(gate, false);
            let off: Vec<Gate> = Gate::ALL.into_iter().filter(|gate| !gates.enabled(*gate)).collect();
            assert_eq!((off, gates.with(gate, true)), (vec![gate], FeatureGates::ALL_ON));
        }
    }

    #[test]
    fn a_controller_does_not_see_the_fields_of_gates_that_are_off() {
        let text = br#"{"metadata":{"uid":"u","name":"n","resourceVersion":"1"},"spec":{"completionMode":"Indexed",
            "completions":3,"parallelism":1,"managedBy":"a/b","podReplacementPolicy":"Failed","ttlSecondsAfterFinished":5,
            "backoffLimitPerIndex":1,"maxFailedIndexes":1,"successPolicy":{"rules":[{"succeededCount":1}]},
            "podFailurePolicy":{"rules":[]},"template":{}}}"#;
        let job = || JobView::from_json(text).expect("a Job");
        assert_eq!(FeatureGates::ALL_ON.apply(job()), job());
        let seen = |gate| {
            let spec = FeatureGates::ALL_ON.with(gate, false).apply(job()).spec;
            [
                spec.managed_by.is_some(),
                spec.pod_replacement_policy == PodReplacementPolicy::Failed,
                spec.ttl_seconds_after_finished.is_some(),
                spec.backoff_limit_per_index.is_some(),
                spec.max_failed_indexes.is_some(),
                spec.success_policy.is_some(),
                spec.waits_for_terminal_phase(),
            ]
        };
        let all = [true; 7];
        let but = |missing: &[usize]| std::array::from_fn(|at| !missing.contains(&at));
        for (gate, expected) in [
            (Gate::ElasticIndexedJob, all),
            (Gate::JobBackoffLimitPerIndex, but(&[3, 4])),
            (Gate::JobManagedBy, but(&[0])),
            // The failure policy needs final phases, whichever replacement policy there is.
            (Gate::JobPodReplacementPolicy, but(&[1])),
            (Gate::JobSuccessPolicy, but(&[5])),
            (Gate::JobTrackingWithFinalizers, all),
            (Gate::PodDisruptionConditions, but(&[])),
            (Gate::TTLAfterFinished, but(&[2])),
        ] {
            assert_eq!(seen(gate), expected, "{gate:?}");
        }
        let both = FeatureGates::ALL_ON.with(Gate::PodDisruptionConditions, false);
        let both = both.with(Gate::JobPodReplacementPolicy, false);
        assert!(!both.apply(job()).spec.waits_for_terminal_phase());
    }
}
