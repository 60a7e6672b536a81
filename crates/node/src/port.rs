//! What goes between the half of the node that decides and the half that does.
//!
//! Every deed is answered by one report about the same thing; an attempt that was started reports once more when it has
//! ended. Deeds about different Pods may be answered in any order.

use compact_str::CompactString;
use serde::{Deserialize, Serialize};
use tally_core::ids::PodUid;
use tally_core::time::Timestamp;

/// One run of one container. Restarts in place count up from 0.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Attempt {
    pub pod: PodUid,
    pub container: CompactString,
    pub number: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Deed {
    /// Makes the Pod's directory and fills its volumes. A second time: brings what they hold up to date.
    Prepare(Box<Preparation>),
    Start(Box<Start>),
    /// Sends a signal to everything of this attempt; `kill` also reaches what has left its process group.
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
    /// Removes everything of a Pod, its logs too. Nothing of it may be running.
    Clean {
        pod: PodUid,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Report {
    /// Before all else, once for every Pod of which there is a record: what an earlier life of the node left behind.
    /// Nothing of it runs any more.
    Found {
        pod: PodUid,
        attempts: Vec<Found>,
    },
    /// All of that has been told.
    Recovered,
    Prepared {
        pod: PodUid,
    },
    Unprepared {
        pod: PodUid,
        failure: Failure,
    },
    Started {
        attempt: Attempt,
        at: Timestamp,
    },
    /// It does not run, and nothing of it is on record. Where the failure may pass, the same attempt can be started
    /// once more; where not, it will never run.
    Unstarted {
        attempt: Attempt,
        failure: Failure,
    },
    /// It has ended, with everything it had started, its output is in the log, and that is on record.
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
}

/// Something cannot be done. `reason` is one word for a container's `state.waiting` or `state.terminated`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub reason: CompactString,
    pub message: String,
    /// The machine has no room for it now (disk, memory, processes, open files). No fault of the Pod's, and it may pass.
    #[serde(default)]
    pub passing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    pub attempt: Attempt,
    pub started_at: Timestamp,
    /// None: it was still running, or nobody saw how it ended; it has been killed.
    pub exit: Option<Exit>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// 128 + the signal where one ended it.
    pub code: i32,
    pub signal: Option<i32>,
    /// The kernel killed something of it for want of memory.
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
    /// For people who look at the directory.
    pub namespace: CompactString,
    pub name: CompactString,
    pub volumes: Vec<Volume>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    pub name: CompactString,
    pub content: Content,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Content {
    /// An empty directory that lives as long as the Pod. In memory: a tmpfs where that is allowed.
    Empty { in_memory: bool, limit: Option<u64> },
    /// Files that are written for it: a ConfigMap, a Secret, facts of the Pod, or all of these together.
    Files(Vec<File>),
    /// A path of this machine; `kind` as in `hostPath.type`.
    Host { path: String, kind: CompactString },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct File {
    /// Within the volume.
    pub path: String,
    pub content: Vec<u8>,
    pub mode: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    pub attempt: Attempt,
    /// Expanded; the first is found in PATH of `env`, or else of the node.
    pub argv: Vec<String>,
    /// All there is to be, apart from what every process gets (PATH, HOME ...).
    pub env: Vec<(String, String)>,
    pub working_dir: Option<String>,
    pub hostname: String,
    pub mounts: Vec<Mount>,
    /// Thousandths of a CPU.
    pub cpu_limit: Option<u64>,
    pub memory_limit: Option<u64>,
    pub user: Option<u32>,
    pub group: Option<u32>,
    pub termination_message: TerminationMessage,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mount {
    pub volume: CompactString,
    pub path: String,
    /// Within the volume; "" for all of it.
    pub sub_path: String,
    pub read_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminationMessage {
    pub path: String,
    /// The end of the log where it failed and said nothing.
    pub from_logs: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Check {
    /// As the container's own processes: same environment, mounts and user.
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
