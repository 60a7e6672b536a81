//! `kubectl top`: what the server asks for, and what the node measures.

use std::sync::Arc;

use tally_node::meter::{Usage, UsageMeter};
use tally_server::{BoxFuture, UsageFigure, UsageFigures, UsageSource};

/// What this node's Pods use.
pub struct NodeUsage {
    pub node: String,
    pub meter: Arc<UsageMeter>,
}

impl UsageSource for NodeUsage {
    fn node(&self) -> &str {
        &self.node
    }

    fn measure(&self) -> BoxFuture<'static, UsageFigures> {
        let meter = self.meter.clone();
        Box::pin(async move {
            let report = meter.read().await;
            let containers = report.attempts.iter().map(|(attempt, usage)| {
                ((attempt.pod.to_string(), attempt.container.to_string(), attempt.number), figure(*usage))
            });
            UsageFigures { at: report.at, machine: report.machine.map(figure), containers: containers.collect() }
        })
    }
}

fn figure(usage: Usage) -> UsageFigure {
    UsageFigure { cpu: usage.cpu, memory: usage.memory, window: usage.window }
}
