//! The configuration of a node.

use compact_str::CompactString;
use tally_core::time::Span;

use crate::output::ResultsOptions;
use crate::security::{SecurityAbilities, SecurityNode};

#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The name of the Node object. Pods are bound to it, so it stays the same as long as the Pods are kept.
    pub name: CompactString,
    /// The current host name of this machine.
    pub hostname: CompactString,
    /// In thousandths of a CPU.
    pub cpu_millis: u64,
    /// In bytes.
    pub memory: u64,
    /// Disk space in bytes.
    pub storage: u64,
    /// The maximum number of Pods at the same time.
    pub pods: u64,
    /// Containers without a user of their own run as root here.
    pub is_root: bool,
    pub security: SecurityAbilities,
    /// The address of this machine. It is also the address of its Pods: they have no network of their own.
    pub address: String,
    /// As in `kubernetes.io/arch`: amd64, arm64.
    pub arch: CompactString,
    /// The version of this program.
    pub version: CompactString,
    /// The delay before the status of a Pod that has not ended is written: a Pod that has ended by then needs one write
    /// only.
    pub report_after: Span,
    /// How often the disk space of a Pod is measured, if it has a limit.
    pub measure_storage_every: Span,
    /// How to treat Pods of Jobs that failed only because the node was stopped, or whose end was not observed because
    /// the node was killed. False: they have failed, as on any node. True: they are released and removed without being
    /// counted, as on a scale-down, so they neither count against `backoffLimit` nor delay the next Pod. The number of
    /// times is limited: see `losses`.
    pub release_lost: bool,
    /// Pods that end because of the node get the condition DisruptionTarget (the gate PodDisruptionConditions).
    pub disruption_conditions: bool,
    /// Pods whose annotations ask for it get the environment of the node's own process.
    pub shares_env: bool,
    /// The shim is told to which task an attempt belongs: its output is followed, or its end is recorded.
    pub tells_source: bool,
    pub results: Option<ResultsOptions>,
}

impl NodeOptions {
    pub fn security_node(&self) -> SecurityNode<'_> {
        SecurityNode { is_root: self.is_root, abilities: &self.security }
    }

    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            hostname: name.into(),
            cpu_millis: 1000,
            memory: 1 << 30,
            storage: 1 << 40,
            pods: 110,
            is_root: false,
            security: SecurityAbilities::default(),
            address: "127.0.0.1".to_owned(),
            arch: match std::env::consts::ARCH {
                "x86_64" => "amd64",
                "aarch64" => "arm64",
                other => other,
            }
            .into(),
            version: env!("CARGO_PKG_VERSION").into(),
            report_after: Span::from_millis(200),
            measure_storage_every: Span::from_seconds(10),
            release_lost: false,
            disruption_conditions: true,
            shares_env: false,
            tells_source: false,
            results: None,
        }
    }
}
