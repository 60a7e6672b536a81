//! The messages between the half of the node that decides and the half that acts.
//!
//! Every command except `OutputRead`, `RemoveVolumes` and `Session` is answered by one report about the same subject; an attempt that was started sends
//! a second report when it has ended. Commands about different Pods may be answered in any order.

use std::path::PathBuf;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};
use tally_core::ids::PodUid;
use tally_core::time::Timestamp;

use crate::capabilities::CapabilitySet;
use crate::output::OutputSource;

/// One run of one container. Restarts in place count up from 0.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Attempt {
    pub pod: PodUid,
    pub container: CompactString,
    pub number: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ShimCommand {
    /// Creates the Pod's directory and fills its volumes. If repeated, updates the content of the volumes.
    Prepare(Box<Preparation>),
    Start(Box<Start>),
    /// Sends a signal to all processes of this attempt; `kill` also reaches processes that have left its process group.
    Signal {
        attempt: Attempt,
        signal: Signal,
    },
    /// Runs a probe or a hook.
    Check {
        id: u64,
        attempt: Attempt,
        check: Check,
        timeout_millis: u64,
    },
    /// Removes everything of a Pod, including its logs. No process of the Pod may be running. Logs that a reader has not
    /// read to their end are removed when it has.
    Clean {
        pod: PodUid,
    },
    /// Measures the disk space that a Pod uses.
    Measure {
        pod: PodUid,
    },
    /// Removes the volumes of a Pod that has ended. Not answered.
    RemoveVolumes {
        pod: PodUid,
    },
    /// Removes the directory of a claim. No Pod may be using it.
    RemoveClaim {
        uid: CompactString,
    },
    /// The reader of an attempt's output has read all log files before this one. None: it has read everything, and the
    /// attempt has ended. Not answered.
    OutputRead {
        attempt: Attempt,
        before: Option<u64>,
    },
    /// A client runs a command in a container, or connects to its input and output. Descriptors come with it: a socket,
    /// on which it is answered (`SessionReport`), and then its streams.
    Session(Box<SessionRequest>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRequest {
    pub attempt: Attempt,
    pub kind: SessionKind,
    /// Which streams come with it, in this order.
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
}

impl SessionRequest {
    /// How many descriptors come with it.
    pub fn descriptors(&self) -> usize {
        1 + [self.stdin, self.stdout, self.stderr].into_iter().filter(|given| *given).count()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionKind {
    /// Runs a command like the container's own processes: same namespaces, control groups, user and environment. With a
    /// terminal, no streams come with the request.
    Exec { argv: Vec<String>, terminal: Option<TerminalSize> },
    /// What the container writes from now on goes to the streams that came with the request. `input`: the container's
    /// standard input is wanted.
    Attach { input: bool },
}

/// In characters. Zero: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    pub columns: u16,
    pub rows: u16,
}

/// The answers to a `Session`, on its socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionReport {
    /// With a descriptor, if there is a terminal, or if the input of a container was asked for: where input is written.
    Started {
        is_terminal: bool,
    },
    Failed(SessionFailure),
    /// The command, or the container, has ended. What it wrote is in the streams.
    Ended(SessionEnd),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionFailure {
    /// The container does not run.
    NotRunning,
    /// The command cannot be run.
    Other(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionEnd {
    /// 128 + the signal number if a signal ended the command. 0 for a container.
    Exited(i32),
    /// It does not read what the container writes.
    TooSlow,
}

/// What is said to the shim on the socket of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionOrder {
    /// The client sends no more input.
    InputEnded,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Report {
    /// Sent before all other reports, once for every Pod that has a record: what an earlier run of the node left
    /// behind. No process of it runs any more.
    Found {
        pod: PodUid,
        attempts: Vec<Found>,
    },
    /// All `Found` reports have been sent.
    Recovered,
    Prepared {
        pod: PodUid,
    },
    Unprepared {
        pod: PodUid,
        failure: OperationError,
    },
    Started {
        attempt: Attempt,
        at: Timestamp,
    },
    /// Before `Started`: limits of a container of this Pod have no effect on this machine.
    LimitsNotEnforced {
        pod: PodUid,
        message: String,
    },
    /// The attempt does not run and has no record. If the failure is temporary, the same attempt can be started again;
    /// if not, it will never run.
    Unstarted {
        attempt: Attempt,
        failure: OperationError,
    },
    /// The attempt and all processes that it started have ended, its output is in the log, and the end is recorded.
    Ended {
        attempt: Attempt,
        exit: Exit,
    },
    Signalled {
        attempt: Attempt,
    },
    Checked {
        id: u64,
        outcome: Result<(), String>,
    },
    Cleaned {
        pod: PodUid,
    },
    Measured {
        pod: PodUid,
        usage: StorageUsage,
    },
    /// The directory of a claim does not exist any more.
    ClaimRemoved {
        uid: CompactString,
    },
}

/// The disk space that a Pod uses, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageUsage {
    /// By volume, without those that are paths of the machine.
    pub volumes: Vec<(CompactString, u64)>,
    /// By container: its logs and its own /tmp.
    pub containers: Vec<(CompactString, u64)>,
}

impl StorageUsage {
    pub fn volume(&self, name: &str) -> u64 {
        bytes_of(&self.volumes, name)
    }

    pub fn container(&self, name: &str) -> u64 {
        bytes_of(&self.containers, name)
    }
}

fn bytes_of(list: &[(CompactString, u64)], wanted: &str) -> u64 {
    list.iter().find(|(name, _)| name == wanted).map_or(0, |(_, bytes)| *bytes)
}

/// An operation cannot be done. `reason` is one word for a container's `state.waiting` or `state.terminated`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationError {
    pub reason: CompactString,
    pub message: String,
    /// The machine lacks a resource now (disk, memory, processes, open files). The Pod is not at fault; a retry may
    /// succeed.
    #[serde(default)]
    pub passing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    pub attempt: Attempt,
    pub started_at: Timestamp,
    /// None: the attempt was still running, or its end was not observed; it has been killed.
    pub exit: Option<Exit>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// 128 + the signal number if a signal ended the attempt.
    pub code: i32,
    pub signal: Option<i32>,
    /// The kernel killed a process of the attempt because memory ran out.
    pub out_of_memory: bool,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
    /// The termination message.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Signal {
    /// By number: SIGTERM, or the container's `stopSignal`. To its process group.
    Number(i32),
    Kill,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preparation {
    pub pod: PodUid,
    pub volumes: Vec<Volume>,
    /// The group that owns the volumes, except those of the machine.
    #[serde(default)]
    pub group: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    pub name: CompactString,
    pub content: Content,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Content {
    /// An empty directory that exists as long as the Pod. `in_memory`: a tmpfs where that is permitted.
    Empty { in_memory: bool, limit: Option<u64> },
    /// Files that are written for the volume: a ConfigMap, a Secret, fields of the Pod, or several of these together.
    Files(Vec<File>),
    /// A path on this machine; `kind` as in `hostPath.type`.
    Host { path: String, kind: CompactString },
    /// The directory of a claim, which stays when the Pod ends.
    Claim { uid: CompactString },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct File {
    /// Relative to the root of the volume.
    pub path: String,
    pub content: Vec<u8>,
    pub mode: u32,
}

/// What most containers do not have is left out of a message.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    pub attempt: Attempt,
    /// The namespace and name of the Pod, for users who read messages and records.
    pub pod_name: String,
    /// With variables expanded; the first word is looked up in PATH of `env`, or else in PATH of the node.
    pub argv: Vec<String>,
    /// The complete environment, apart from the variables that every process gets (PATH, HOME ...).
    #[serde(default, skip_serializing_if = "is_default")]
    pub env: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub working_dir: Option<String>,
    pub hostname: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub mounts: Vec<Mount>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: ResourceLimits,
    #[serde(default, skip_serializing_if = "is_default")]
    pub user: Option<u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub group: Option<u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub confinement: Confinement,
    pub termination_message: TerminationMessage,
    /// The container has a standard input: that which the node was given, if no other has got it, or, where clients can
    /// connect to containers, what they send.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stdin: bool,
    /// The input ends with that of the first client.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stdin_once: bool,
    /// The container has a terminal, where clients can connect to containers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tty: bool,
    /// The environment of the node's own process comes first: that of the shell which started it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub inherits_env: bool,
    /// Whose output it is. None: the output is not followed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub source: Option<Box<OutputSource>>,
    /// The directory for the results: output, exit code and times.
    #[serde(default, skip_serializing_if = "is_default")]
    pub results: Option<PathBuf>,
}

/// What a container may use. CPUs are in thousandths, memory is in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    pub cpu: Option<u64>,
    pub memory: Option<u64>,
    /// The container's share, and that of all containers of its Pod, when there is not enough for all.
    pub cpu_request: u64,
    pub pod_cpu_request: u64,
}

impl ResourceLimits {
    pub fn any(&self) -> bool {
        self.cpu.is_some() || self.memory.is_some()
    }
}

/// How the processes of a container are confined; `crate::security` decides. The default changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Confinement {
    pub groups: Option<SupplementalGroups>,
    /// The capabilities that its processes can have. None: those of the node.
    pub capabilities: Option<CapabilitySet>,
    /// No process gains rights by executing a file (`no_new_privs`).
    pub no_new_privileges: bool,
    /// All mounts but the volumes are read-only.
    pub read_only_root: bool,
    /// The node's own seccomp profile applies.
    pub seccomp: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SupplementalGroups {
    pub ids: Vec<u32>,
    /// Those that /etc/group gives the user are left out.
    pub strict: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mount {
    pub volume: CompactString,
    pub path: String,
    /// Relative to the root of the volume; "" for the whole volume.
    pub sub_path: String,
    pub read_only: bool,
    /// Read-only with everything that is mounted below it on the machine.
    pub recursive: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminationMessage {
    pub path: String,
    /// If the container failed and wrote no message, use the end of its log.
    pub from_logs: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Check {
    /// Runs like the container's own processes: same environment, mounts and user.
    Exec {
        argv: Vec<String>,
    },
    Http {
        scheme: CompactString,
        host: String,
        port: u16,
        path: String,
        headers: Vec<(String, String)>,
    },
    Tcp {
        host: String,
        port: u16,
    },
    Sleep {
        seconds: u64,
    },
}
