//! The reasons for which a Job, a Pod or a CronJob stands still. This is the only place that puts them into words.

use std::fmt;

use tally_core::time::Timestamp;

/// How many names a sentence lists.
const NAMED: usize = 3;

/// Pods, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodNames(pub Vec<String>);

impl PodNames {
    pub fn one(name: &str) -> Self {
        Self(vec![name.to_owned()])
    }

    /// `one` or `many`, as the number requires.
    fn verb<'a>(&self, one: &'a str, many: &'a str) -> &'a str {
        if self.0.len() == 1 { one } else { many }
    }
}

impl fmt::Display for PodNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("no Pods"),
            [one] => write!(f, "Pod {one}"),
            names if names.len() <= NAMED => write!(f, "Pods {}", names.join(", ")),
            names => {
                write!(f, "{} Pods ({} and {} more)", names.len(), names[..NAMED].join(", "), names.len() - NAMED)
            }
        }
    }
}

/// Pods that failed, were counted, and are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoneFailures {
    pub pods: u32,
    /// Nothing says whether one of them failed after this time. None: none of them did.
    pub unless_after: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Cause {
    /// `spec.suspend` is set.
    Suspended {
        what: &'static str,
    },
    /// The Job waits for others (`tally.dev/after`).
    WaitsForJobs {
        jobs: Vec<String>,
    },
    /// `spec.managedBy` names a controller of which nothing is seen.
    ManagerNotSeen {
        manager: String,
    },
    UnknownCompletionMode {
        mode: String,
    },
    /// `spec.scheduling` is set.
    GangScheduling,
    /// `spec.parallelism` is 0.
    NoParallelism,
    /// Pods have failed, and the next one is delayed.
    BackOff {
        /// None: only the controller knows.
        until: Option<Timestamp>,
        /// Of the Pods that failed some are gone. A controller that has seen them may wait for longer than those show that
        /// are there: `until` at the latest.
        gone: Option<GoneFailures>,
        /// `failure 3 of 7 (last failure: exit code 1)`.
        detail: String,
    },
    QuotaExceeded {
        message: String,
    },
    /// The API refuses to create the Pods (or the Job, for a CronJob).
    CreationRefused {
        what: &'static str,
        message: String,
    },
    NamespaceTerminating,
    /// The API refuses to delete Pods.
    DeletionRefused {
        message: String,
    },
    /// The API server refuses the status, or the controller does not send it because it violates the rules of the API.
    StatusRefused {
        by_server: bool,
        message: String,
    },
    Unschedulable {
        pods: PodNames,
        message: String,
    },
    SchedulingGated {
        pods: PodNames,
        gates: Vec<String>,
    },
    /// No scheduler has looked at the Pods.
    NotScheduled {
        pods: PodNames,
        scheduler: String,
    },
    ImageError {
        pods: PodNames,
        reason: String,
        message: String,
    },
    ContainerConfigError {
        pods: PodNames,
        reason: String,
        message: String,
    },
    /// A container fails again and again, and is restarted in place.
    ContainerRestarting {
        pods: PodNames,
        message: String,
    },
    /// The node has not started the Pods.
    NotStarted {
        pods: PodNames,
        node: String,
        message: String,
    },
    /// The Pods are on a node that is lost.
    NodeLost {
        pods: PodNames,
        node: String,
        problem: String,
    },
    /// Pods terminate, and are replaced only once they have ended.
    TerminatingPods {
        pods: PodNames,
        grace_ends: Option<Timestamp>,
    },
    /// The same on a node that is lost: they will not end by themselves.
    TerminatingOnLostNode {
        pods: PodNames,
        node: String,
        problem: String,
    },
    /// The verdict is decided, and the Pods that run are being ended.
    EndingPods {
        success: bool,
        reason: String,
        message: String,
        pods: PodNames,
    },
    /// Too many indexes have failed, and the Pods that run may end first.
    Halting {
        pods: PodNames,
    },
    /// Finished Pods are deleted before new ones are created.
    DiscardingPods,
    /// Finished Pods are not counted or not released.
    UncountedPods {
        pods: PodNames,
    },
    /// The object is deleted and has finalizers of other parties.
    ForeignFinalizers {
        what: String,
        finalizers: Vec<String>,
    },
    /// The Job is deleted once its Pods are gone.
    DeletionWaitsForPods {
        pods: PodNames,
    },
    /// The garbage collector has not finished the deletion.
    DeletionPending {
        finalizers: Vec<String>,
    },
    /// The controller says that it waits until it has seen all Pods.
    RevisionGate,
    ControllerNotRunning {
        /// `Job`, `CronJob`.
        of: &'static str,
        work: String,
        why: String,
    },
    ControllerBehind {
        of: &'static str,
        work: String,
        why: String,
    },
    /// The object cannot be read.
    Unreadable {
        problem: String,
    },
    /// `spec.schedule` or `spec.timeZone` is invalid.
    InvalidSchedule {
        message: String,
    },
    /// The starting deadline of the last scheduled time has passed.
    MissedSchedule {
        slot: Timestamp,
        deadline_seconds: i64,
    },
    /// `concurrencyPolicy: Forbid`, and a Job still runs.
    ConcurrencyForbidden {
        slot: Timestamp,
        jobs: Vec<String>,
    },
    /// The schedule has no next time.
    NeverDue {
        schedule: String,
    },
    Unknown,
}

/// The names of all reasons, in the order of the variants.
pub const NAMES: [&str; 38] = [
    "Suspended",
    "WaitsForJobs",
    "ManagerNotSeen",
    "UnknownCompletionMode",
    "GangScheduling",
    "NoParallelism",
    "BackOff",
    "QuotaExceeded",
    "CreationRefused",
    "NamespaceTerminating",
    "DeletionRefused",
    "StatusRefused",
    "Unschedulable",
    "SchedulingGated",
    "NotScheduled",
    "ImageError",
    "ContainerConfigError",
    "ContainerRestarting",
    "NotStarted",
    "NodeLost",
    "TerminatingPods",
    "TerminatingOnLostNode",
    "EndingPods",
    "Halting",
    "DiscardingPods",
    "UncountedPods",
    "ForeignFinalizers",
    "DeletionWaitsForPods",
    "DeletionPending",
    "RevisionGate",
    "ControllerNotRunning",
    "ControllerBehind",
    "Unreadable",
    "InvalidSchedule",
    "MissedSchedule",
    "ConcurrencyForbidden",
    "NeverDue",
    "Unknown",
];

impl Cause {
    /// Stable: for programs, and the reason of Events.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Suspended { .. } => "Suspended",
            Self::WaitsForJobs { .. } => "WaitsForJobs",
            Self::ManagerNotSeen { .. } => "ManagerNotSeen",
            Self::UnknownCompletionMode { .. } => "UnknownCompletionMode",
            Self::GangScheduling => "GangScheduling",
            Self::NoParallelism => "NoParallelism",
            Self::BackOff { .. } => "BackOff",
            Self::QuotaExceeded { .. } => "QuotaExceeded",
            Self::CreationRefused { .. } => "CreationRefused",
            Self::NamespaceTerminating => "NamespaceTerminating",
            Self::DeletionRefused { .. } => "DeletionRefused",
            Self::StatusRefused { .. } => "StatusRefused",
            Self::Unschedulable { .. } => "Unschedulable",
            Self::SchedulingGated { .. } => "SchedulingGated",
            Self::NotScheduled { .. } => "NotScheduled",
            Self::ImageError { .. } => "ImageError",
            Self::ContainerConfigError { .. } => "ContainerConfigError",
            Self::ContainerRestarting { .. } => "ContainerRestarting",
            Self::NotStarted { .. } => "NotStarted",
            Self::NodeLost { .. } => "NodeLost",
            Self::TerminatingPods { .. } => "TerminatingPods",
            Self::TerminatingOnLostNode { .. } => "TerminatingOnLostNode",
            Self::EndingPods { .. } => "EndingPods",
            Self::Halting { .. } => "Halting",
            Self::DiscardingPods => "DiscardingPods",
            Self::UncountedPods { .. } => "UncountedPods",
            Self::ForeignFinalizers { .. } => "ForeignFinalizers",
            Self::DeletionWaitsForPods { .. } => "DeletionWaitsForPods",
            Self::DeletionPending { .. } => "DeletionPending",
            Self::RevisionGate => "RevisionGate",
            Self::ControllerNotRunning { .. } => "ControllerNotRunning",
            Self::ControllerBehind { .. } => "ControllerBehind",
            Self::Unreadable { .. } => "Unreadable",
            Self::InvalidSchedule { .. } => "InvalidSchedule",
            Self::MissedSchedule { .. } => "MissedSchedule",
            Self::ConcurrencyForbidden { .. } => "ConcurrencyForbidden",
            Self::NeverDue { .. } => "NeverDue",
            Self::Unknown => "Unknown",
        }
    }

    /// One sentence that names the cause. It has no countdown, so that it is the same as long as the cause is.
    pub fn sentence(&self) -> String {
        match self {
            Self::Suspended { what } => match *what {
                "CronJob" => "The CronJob is suspended (spec.suspend is true): it starts no Jobs.".to_owned(),
                what => format!("The {what} is suspended (spec.suspend is true): it gets no Pods."),
            },
            Self::WaitsForJobs { jobs } => {
                format!("The Job waits for the end of other Jobs (tally.dev/after): {}.", jobs.join(", "))
            }
            Self::ManagerNotSeen { manager } => format!(
                "Only the controller {manager:?} may run this Job (spec.managedBy), and it has not written any status."
            ),
            Self::UnknownCompletionMode { mode } => {
                format!("The completion mode {mode:?} is unknown to the controller, which leaves the Job alone.")
            }
            Self::GangScheduling => "The Job asks for gang scheduling (spec.scheduling), which the Job controller of Tally does \
                                     not have: it leaves the Job alone."
                .to_owned(),
            Self::NoParallelism => "spec.parallelism is 0: the Job wants no Pods.".to_owned(),
            Self::BackOff { until: Some(until), gone: None, detail } => {
                format!("Pods have failed, and the next one is not created before {until}: {detail}.")
            }
            Self::BackOff { until: Some(until), gone: Some(GoneFailures { pods, unless_after }), detail } => {
                let are = if *pods == 1 { "is" } else { "are" };
                let unless = unless_after.map(|at| format!(", unless one has failed after {at}")).unwrap_or_default();
                format!(
                    "Pods have failed, and the next one is created at {until} at the latest{unless}: {detail}; {pods} of the \
                     failed Pods {are} gone, and only the controller knows how long it waits for them."
                )
            }
            Self::BackOff { until: None, detail, .. } => {
                format!("Pods have failed and are gone; only the controller knows when it creates the next one: {detail}.")
            }
            Self::QuotaExceeded { message } => {
                format!("A ResourceQuota of the namespace refuses the Pods: {}", ended(message))
            }
            Self::CreationRefused { what, message } => {
                format!("The API server refuses to create the {what}: {}", ended(message))
            }
            Self::NamespaceTerminating => {
                "The namespace is being deleted: no Pods can be created in it, and the Job will be deleted.".to_owned()
            }
            Self::DeletionRefused { message } => {
                format!("The API server refuses to delete Pods that must go: {}", ended(message))
            }
            Self::StatusRefused { by_server: true, message } => {
                format!("The API server refuses the status of the Job: {}", ended(message))
            }
            Self::StatusRefused { by_server: false, message } => {
                format!("The controller cannot write a status that the API accepts: {}", ended(message))
            }
            Self::Unschedulable { pods, message } => {
                format!("{pods} {} on no node: {}", pods.verb("fits", "fit"), ended(message))
            }
            Self::SchedulingGated { pods, gates } => {
                let is = pods.verb("is", "are");
                format!("{pods} {is} not scheduled before these scheduling gates are removed: {}.", gates.join(", "))
            }
            Self::NotScheduled { pods, scheduler } => format!(
                "{pods} {} no node, and the scheduler {scheduler:?} has not said why: it does not run, or is behind.",
                pods.verb("has", "have")
            ),
            Self::ImageError { pods, reason, message } => {
                let text = with_message(reason, message);
                format!("The image of {pods} cannot be used: {text}")
            }
            Self::ContainerConfigError { pods, reason, message } => {
                let text = with_message(reason, message);
                format!("The containers of {pods} cannot be created: {text}")
            }
            Self::ContainerRestarting { pods, message } => format!(
                "A container of {pods} fails again and again, and waits for its next start: {}",
                ended(message)
            ),
            Self::NotStarted { pods, node, message } => {
                let what = if message.is_empty() { "it does not say why".to_owned() } else { message.clone() };
                format!("Node {node} has not started the containers of {pods}: {}", ended(&what))
            }
            Self::NodeLost { pods, node, problem } => {
                format!("{pods} {} on node {node}, which {problem}.", pods.verb("is", "are"))
            }
            Self::TerminatingPods { pods, .. } => format!(
                "{pods} {} and {} replaced only after that (podReplacementPolicy Failed).",
                pods.verb("has not ended yet", "have not ended yet"),
                pods.verb("is", "are")
            ),
            Self::TerminatingOnLostNode { pods, node, problem } => {
                let (terminates, its, ends) =
                    (pods.verb("terminates", "terminate"), pods.verb("its", "their"), pods.verb("it", "them"));
                format!("{pods} {terminates} on node {node}, which {problem}: {its} end is not reported by the node, and the Job waits for {ends}.")
            }
            Self::EndingPods { success, reason, message, pods } => {
                let verdict = if *success { "succeeded" } else { "failed" };
                let text = with_message(reason, message);
                let text = text.trim_end_matches('.');
                format!("The Job has {verdict} ({text}); it ends when its Pods have ended: {pods}.")
            }
            Self::Halting { pods } => format!(
                "More indexes have failed than maxFailedIndexes allows: no more Pods are started, and the Job fails when \
                 those that run have ended: {pods}."
            ),
            Self::DiscardingPods => {
                "Many finished Pods are to be deleted early (tally.dev/delete-finished-pods): that comes before new Pods."
                    .to_owned()
            }
            Self::UncountedPods { pods } => format!(
                "{pods} {} ended and {} not counted and released by the Job controller yet (finalizer \
                 batch.kubernetes.io/job-tracking).",
                pods.verb("has", "have"),
                pods.verb("is", "are")
            ),
            Self::ForeignFinalizers { what, finalizers } => format!(
                "{what} is deleted and stays until other controllers remove their finalizers: {}.",
                finalizers.join(", ")
            ),
            Self::DeletionWaitsForPods { pods } => {
                format!("The Job is deleted in the foreground: it stays until its Pods are gone: {pods}.")
            }
            Self::DeletionPending { finalizers } => format!(
                "The Job is deleted, and the garbage collector has not removed its finalizer yet: {}.",
                finalizers.join(", ")
            ),
            Self::RevisionGate => "The controller waits until it has seen all Pods that another writer of the Job's \
                                   status has counted (revision gate): its stream of Pods is behind."
                .to_owned(),
            Self::ControllerNotRunning { of, work, why } => {
                format!("No running {of} controller is seen that would {work}: {}", ended(why))
            },
            Self::ControllerBehind { of, work, why } => {
                format!("The {of} controller has to {work}, and has not done so: {}", ended(why))
            }
            Self::Unreadable { problem } => format!("The object cannot be understood: {}", ended(problem)),
            Self::InvalidSchedule { message } => format!("The CronJob is never due: {}", ended(message)),
            Self::MissedSchedule { slot, deadline_seconds } => format!(
                "The Job of {slot} was not started within startingDeadlineSeconds ({deadline_seconds}), and will not be."
            ),
            Self::ConcurrencyForbidden { slot, jobs } => format!(
                "The Job of {slot} is not started (concurrencyPolicy Forbid) while an earlier one runs: {}.",
                jobs.join(", ")
            ),
            Self::NeverDue { schedule } => format!("The schedule {schedule:?} has no next time."),
            Self::Unknown => {
                "It stands still, and none of the objects says why: please report this with the evidence below."
                    .to_owned()
            }
        }
    }

    /// What would change it.
    pub fn change(&self) -> String {
        let text = match self {
            Self::Suspended { .. } => "Set spec.suspend to false.",
            Self::WaitsForJobs { .. } => "It is resumed when these Jobs end as required; explain them next.",
            Self::ManagerNotSeen { .. } => {
                "Install or start that controller, or delete the Job and create it again without spec.managedBy."
            }
            Self::UnknownCompletionMode { .. } => {
                "Run a controller that knows the mode, or create the Job with Indexed or NonIndexed."
            }
            Self::GangScheduling => {
                "Delete the Job and create it again without spec.scheduling, or run a controller that has gang scheduling."
            }
            Self::NoParallelism => "Raise spec.parallelism.",
            Self::BackOff { .. } => {
                "It goes on by itself at that time. Find out why the Pods fail: tally logs, kubectl logs."
            }
            Self::QuotaExceeded { .. } => {
                "Raise the quota, let other Pods end, or lower the requests of the Pods. The controller tries again by itself."
            }
            Self::CreationRefused { .. } => {
                "Correct what the message names: the template, or the policy that refuses it. The controller tries again by \
                 itself."
            }
            Self::NamespaceTerminating => "Nothing: create the Job in another namespace.",
            Self::DeletionRefused { .. } => "Correct what the message names. The controller tries again by itself.",
            Self::StatusRefused { by_server: true, .. } => {
                "Correct what the message names: a policy, a webhook, or the rights of the controller. The controller tries \
                 again by itself, at least once a minute."
            }
            Self::StatusRefused { by_server: false, .. } => {
                "This is a bug of the controller, or the status was edited: please report it with the message."
            }
            Self::Unschedulable { .. } => {
                "Add a node that fits, free resources on one, or change the requests, the selector or the tolerations of the \
                 Pods."
            }
            Self::SchedulingGated { .. } => "The controller that set the gate has to remove it from the Pods.",
            Self::NotScheduled { .. } => "Start that scheduler, or correct spec.schedulerName of the template.",
            Self::ImageError { .. } => {
                "Correct the name of the image or the credentials of its registry; the node tries again by itself. A Job's \
                 template cannot be changed while it runs: create the Job again."
            }
            Self::ContainerConfigError { .. } => {
                "Create what is missing (ConfigMap, Secret, key), or correct the template; the node tries again by itself."
            }
            Self::ContainerRestarting { .. } => "Find out why it fails: tally logs, kubectl logs --previous.",
            Self::NotStarted { .. } => "Look at the node and at the volumes of the Pods: kubectl describe pod.",
            Self::NodeLost { .. } => {
                "Bring the node back. Otherwise its Pods are failed and replaced once the node is deleted or the Pods are \
                 evicted."
            }
            Self::TerminatingPods { .. } => {
                "The Pods end by themselves within their grace period. With podReplacementPolicy TerminatingOrFailed they \
                 would be replaced at once."
            }
            Self::TerminatingOnLostNode { .. } => {
                "Bring the node back, delete the Node, or mark it out of service (taint node.kubernetes.io/out-of-service). \
                 The annotation tally.dev/replace-terminating-after limits the wait."
            }
            Self::EndingPods { .. } => "The Pods end by themselves within their grace period.",
            Self::Halting { .. } => "The Pods end by themselves; delete them to end the Job now.",
            Self::DiscardingPods => "It goes on by itself once these Pods are deleted.",
            Self::UncountedPods { .. } => {
                "The Job controller has to write the Job's status and to remove the finalizer. If it runs, look for a webhook \
                 that refuses updates of these Pods."
            }
            Self::ForeignFinalizers { .. } => {
                "The controllers that own these finalizers have to remove them. Remove them by hand only if those controllers \
                 are gone for good."
            }
            Self::DeletionWaitsForPods { .. } => "The Pods go when they have ended and are released.",
            Self::DeletionPending { .. } => "Start the garbage collector: tally up, or kube-controller-manager.",
            Self::RevisionGate => {
                "It goes on by itself when the stream has caught up. If that takes minutes, look at the API server."
            }
            Self::ControllerNotRunning { .. } => {
                "Start the controller: tally up, tally controller (for Jobs), or kube-controller-manager."
            }
            Self::ControllerBehind { .. } => "Look at the logs and metrics of the controller, and at the API server.",
            Self::Unreadable { .. } => "Correct the object.",
            Self::InvalidSchedule { .. } => "Correct spec.schedule or spec.timeZone.",
            Self::MissedSchedule { .. } => {
                "The next time is started as usual. Raise startingDeadlineSeconds if Jobs may start later, and find out why \
                 the controller did not start this one."
            }
            Self::ConcurrencyForbidden { .. } => {
                "The Job that runs has to end; explain it next. With concurrencyPolicy Allow or Replace it would not be \
                 waited for."
            }
            Self::NeverDue { .. } => "Correct spec.schedule.",
            Self::Unknown => "Not known.",
        };
        text.to_owned()
    }

    /// When it ends by itself, or at the latest, if that is known.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::BackOff { until, .. } => *until,
            Self::TerminatingPods { grace_ends, .. } => *grace_ends,
            _ => None,
        }
    }

    /// Whether it needs the attention of a user.
    pub fn is_warning(&self) -> bool {
        !matches!(
            self,
            Self::Suspended { .. }
                | Self::WaitsForJobs { .. }
                | Self::NoParallelism
                | Self::TerminatingPods { .. }
                | Self::EndingPods { .. }
                | Self::Halting { .. }
                | Self::DiscardingPods
                | Self::DeletionWaitsForPods { .. }
                | Self::ConcurrencyForbidden { .. }
        )
    }
}

/// `REASON: message.`
fn with_message(reason: &str, message: &str) -> String {
    match (reason, message) {
        (reason, "") => format!("{reason}."),
        ("", message) => ended(message),
        (reason, message) => format!("{reason}: {}", ended(message)),
    }
}

/// On one line, with a full stop at its end.
pub(crate) fn ended(message: &str) -> String {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.ends_with(['.', '!', '?']) { line } else { format!("{line}.") }
}
