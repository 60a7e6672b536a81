//! The metrics of the server and its store.

use std::sync::Arc;
use std::time::Duration;

use tally_metrics::{Buckets, Counters, Gauges, Histograms, Label, MetricKind, MetricRegistry};
use tally_registry::{Registry, StoreStats};

/// Upper bounds of the histogram buckets, in seconds.
const BOUNDS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0];

/// The labels of a request. All values come from the server's own tables, so their number is bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestLabels {
    pub verb: &'static str,
    pub group: &'static str,
    pub resource: &'static str,
    pub subresource: &'static str,
}

pub struct ServerMetrics {
    requests: Counters<5>,
    durations: Histograms<4>,
    pub in_flight: Gauges<0>,
    pub watches: Gauges<0>,
    /// Events sent to watchers.
    pub events: Counters<0>,
    pub connections: Gauges<0>,
}

impl ServerMetrics {
    pub fn new(metrics: &MetricRegistry) -> Self {
        let [verb, group, resource, subresource] = ["verb", "group", "resource", "subresource"];
        Self {
            requests: metrics.counters(
                "apiserver_request",
                "Requests answered",
                [verb, group, resource, subresource, "code"],
            ),
            durations: metrics.histograms(
                "apiserver_request_duration_seconds",
                "Time from a request to its answer, without watches",
                [verb, group, resource, subresource],
                Buckets::at(&BOUNDS),
            ),
            in_flight: metrics.gauges("apiserver_current_inflight_requests", "Requests at work, without watches", []),
            watches: metrics.gauges("apiserver_longrunning_requests", "Watches open", []),
            events: metrics.counters("apiserver_watch_events", "Events sent to watchers", []),
            connections: metrics.gauges("tally_connections", "Connections open", []),
        }
    }

    /// Counts an answered request. `took`: None for watches, whose duration says nothing about the server.
    pub fn answered(&self, labels: RequestLabels, code: u16, took: Option<Duration>) {
        let RequestLabels { verb, group, resource, subresource } = labels;
        let [verb, group, resource, subresource] = [verb, group, resource, subresource].map(Label::from);
        if let Some(took) = took {
            let labels = [verb.clone(), group.clone(), resource.clone(), subresource.clone()];
            self.durations.observe(labels, took.as_secs_f64());
        }
        self.requests.inc([verb, group, resource, subresource, code.to_string().into()]);
    }
}

/// Registers what is known about the store.
pub fn register_store(metrics: &MetricRegistry, registry: &Arc<Registry>) {
    let gauge = |name, help, value: fn(StoreStats) -> f64| {
        let registry = registry.clone();
        metrics.read(name, help, MetricKind::Gauge, move || Some(value(registry.stats())));
    };
    gauge("tally_store_objects", "Objects stored", |stats| stats.objects as f64);
    let counted = registry.clone();
    let help = "Objects stored, by resource";
    metrics.read_each("apiserver_storage_objects", help, MetricKind::Gauge, "resource", move || {
        counted.object_counts().into_iter().map(|(resource, count)| (resource.into(), count as f64)).collect()
    });
    gauge("tally_store_poisoned", "1 while writes are refused because one has failed", |stats| {
        f64::from(u8::from(stats.poisoned))
    });
    gauge("tally_store_revision", "The newest revision", |stats| stats.revision as f64);
    gauge("tally_store_compacted_revision", "The oldest revision every watch can begin at", |stats| {
        stats.compacted as f64
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_their_buckets() {
        let registry = MetricRegistry::default();
        let metrics = ServerMetrics::new(&registry);
        let labels = RequestLabels { verb: "GET", group: "batch", resource: "jobs", subresource: "" };
        for millis in [1, 2, 700, 60_000] {
            metrics.answered(labels, 200, Some(Duration::from_millis(millis)));
        }
        metrics.answered(RequestLabels { verb: "WATCH", ..labels }, 200, None);
        registry.read("tally_store_revision", "The newest revision", MetricKind::Gauge, || Some(7.0));
        let page = registry.classic();
        for line in [
            "apiserver_request_total{verb=\"GET\",group=\"batch\",resource=\"jobs\",subresource=\"\",code=\"200\"} 4",
            "apiserver_request_total{verb=\"WATCH\",group=\"batch\",resource=\"jobs\",subresource=\"\",code=\"200\"} 1",
            "le=\"0.001\"} 1",
            "le=\"0.0025\"} 2",
            "le=\"0.5\"} 2",
            "le=\"1\"} 3",
            "le=\"+Inf\"} 4",
            "_count{verb=\"GET\",group=\"batch\",resource=\"jobs\",subresource=\"\"} 4",
            "tally_store_revision 7",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
    }
}
