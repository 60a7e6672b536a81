//! What a node is told about itself.

use compact_str::CompactString;
use tally_core::time::Span;

#[derive(Clone, Debug)]
pub struct Options {
    /// Of the Node object. Pods are bound to it, so it stays the same as long as they are kept.
    pub name: CompactString,
    /// Of this machine, today.
    pub hostname: CompactString,
    /// Thousandths of a CPU.
    pub cpu_millis: u64,
    /// Bytes.
    pub memory: u64,
    /// Bytes on disk.
    pub storage: u64,
    /// Pods at once.
    pub pods: u64,
    /// What runs here without a user of its own runs as root.
    pub is_root: bool,
    /// Where this machine is reached. Its Pods are reached there too: they have no network of their own.
    pub address: String,
    /// As in `kubernetes.io/arch`: amd64, arm64.
    pub arch: CompactString,
    /// Of this program.
    pub version: CompactString,
    /// A Pod that is not running yet, or runs quietly, is reported this late: what has ended by then needs one report
    /// only.
    pub report_after: Span,
    /// What becomes of Pods of Jobs that failed only because the node was stopped, or whose end nobody saw because it was
    /// killed. False: they have failed, as on any node. True: they are taken out of their Job's account and removed, as
    /// when it is scaled down; so they neither cost a try nor delay the next one. Not without end: see `losses`.
    pub release_lost: bool,
}

impl Options {
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            hostname: name.into(),
            cpu_millis: 1000,
            memory: 1 << 30,
            storage: 1 << 40,
            pods: 110,
            is_root: false,
            address: "127.0.0.1".to_owned(),
            arch: match std::env::consts::ARCH {
                "x86_64" => "amd64",
                "aarch64" => "arm64",
                other => other,
            }
            .into(),
            version: env!("CARGO_PKG_VERSION").into(),
            report_after: Span::from_millis(200),
            release_lost: false,
        }
    }
}
