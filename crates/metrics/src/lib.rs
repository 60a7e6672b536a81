//! The metrics of a process: one registry, in which every part of the process registers what it counts.
//!
//! A family is a metric with labels: [`Counters`], [`Gauges`], [`Histograms`]. Its label values are chosen when it is
//! changed, so the caller must bound their number. [`MetricRegistry::classic`] and [`MetricRegistry::openmetrics`] show
//! all families in the order in which they were registered. A family without values is not shown.

mod family;
mod text;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use family::{Buckets, Counters, Gauges, Histograms, Label};
use text::Text;

/// Cloning gives another handle to the same registry.
#[derive(Clone, Default)]
pub struct MetricRegistry(Arc<Mutex<Vec<Registered>>>);

struct Registered {
    name: String,
    help: &'static str,
    kind: MetricKind,
    family: Box<dyn Family>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// Writes its values.
trait Family: Send + Sync {
    /// The names of its labels.
    fn labels(&self) -> Vec<&'static str>;
    fn write(&self, samples: &mut Text<'_>);
}

impl MetricRegistry {
    /// `name` is without `_total`, which the formats add; `help` is without a full stop.
    pub fn counters<const N: usize>(&self, name: &str, help: &'static str, labels: [&'static str; N]) -> Counters<N> {
        let family = Counters::new(labels);
        self.register(name, help, MetricKind::Counter, family.clone());
        family
    }

    pub fn gauges<const N: usize>(&self, name: &str, help: &'static str, labels: [&'static str; N]) -> Gauges<N> {
        let family = Gauges::new(labels);
        self.register(name, help, MetricKind::Gauge, family.clone());
        family
    }

    pub fn histograms<const N: usize>(
        &self,
        name: &str,
        help: &'static str,
        labels: [&'static str; N],
        buckets: Buckets,
    ) -> Histograms<N> {
        let family = Histograms::new(labels, buckets);
        self.register(name, help, MetricKind::Histogram, family.clone());
        family
    }

    /// A value that is read whenever the metrics are. None: it is not known.
    pub fn read(
        &self,
        name: &str,
        help: &'static str,
        kind: MetricKind,
        value: impl Fn() -> Option<f64> + Send + Sync + 'static,
    ) {
        self.register(name, help, kind, family::Read(value));
    }

    /// The same for values with one label.
    pub fn read_each(
        &self,
        name: &str,
        help: &'static str,
        kind: MetricKind,
        label: &'static str,
        values: impl Fn() -> Vec<(Label, f64)> + Send + Sync + 'static,
    ) {
        self.register(name, help, kind, family::ReadEach { label, values });
    }

    fn register(&self, name: &str, help: &'static str, kind: MetricKind, family: impl Family + 'static) {
        self.lock().push(Registered { name: name.to_owned(), help, kind, family: Box::new(family) });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Registered>> {
        // A family is pushed as a whole, so the list is consistent even if a thread panicked while it held the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A table of all metrics in Markdown, sorted by name: also of those that have no value yet.
    pub fn table(&self) -> String {
        let mut rows: Vec<String> = Vec::new();
        for Registered { name, help, kind, family } in self.lock().iter() {
            let total = if *kind == MetricKind::Counter { "_total" } else { "" };
            let labels = family.labels().join(", ");
            rows.push(format!("| `{name}{total}` | {} | {labels} | {help} |\n", kind.name()));
        }
        rows.sort();
        format!("| metric | type | labels | meaning |\n|---|---|---|---|\n{}", rows.concat())
    }

    /// The text format of Prometheus, which every scraper reads.
    pub fn classic(&self) -> String {
        self.text(true)
    }

    /// The OpenMetrics format, which scrapers request by its content type.
    pub fn openmetrics(&self) -> String {
        self.text(false) + "# EOF\n"
    }

    fn text(&self, classic: bool) -> String {
        let mut out = String::new();
        for Registered { name, help, kind, family } in self.lock().iter() {
            let total = if *kind == MetricKind::Counter { "_total" } else { "" };
            // In the classic format the HELP and TYPE lines of a counter have the same name as its samples.
            let described = if classic { total } else { "" };
            let head = format!("# HELP {name}{described} {help}.\n# TYPE {name}{described} {}\n", kind.name());
            let before = out.len();
            out.push_str(&head);
            family.write(&mut Text { out: &mut out, name, total });
            if out.len() == before + head.len() {
                out.truncate(before);
            }
        }
        out
    }
}

impl MetricKind {
    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry() -> MetricRegistry {
        let registry = MetricRegistry::default();
        let requests = registry.counters("requests", "Requests", ["verb", "code"]);
        requests.add(["get".into(), "200".into()], 2);
        requests.add(["get".into(), "\"\\\n".into()], 1);
        registry.gauges("open", "Connections", []).set([], -3);
        registry.gauges("unused", "Nothing", ["name"]);
        let buckets = Buckets::exponential(0.5, 3);
        registry.histograms("took_seconds", "Durations", ["verb"], buckets).observe(["get".into()], 0.75);
        registry.read("cpu_seconds", "Processor time", MetricKind::Counter, || Some(1.5));
        let parts = || vec![("a".into(), 1.0), ("b".into(), 2.5)];
        registry.read_each("parts", "Parts", MetricKind::Gauge, "name", parts);
        registry.read("memory_bytes", "Memory", MetricKind::Gauge, || None);
        registry
    }

    #[test]
    fn the_classic_format_names_counters_as_their_samples() {
        let expected = r#"# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{verb="get",code="\"\\\n"} 1
requests_total{verb="get",code="200"} 2
# HELP open Connections.
# TYPE open gauge
open -3
# HELP took_seconds Durations.
# TYPE took_seconds histogram
took_seconds_bucket{verb="get",le="0.5"} 0
took_seconds_bucket{verb="get",le="1"} 1
took_seconds_bucket{verb="get",le="2"} 1
took_seconds_bucket{verb="get",le="+Inf"} 1
took_seconds_sum{verb="get"} 0.75
took_seconds_count{verb="get"} 1
# HELP cpu_seconds_total Processor time.
# TYPE cpu_seconds_total counter
cpu_seconds_total 1.5
# HELP parts Parts.
# TYPE parts gauge
parts{name="a"} 1
parts{name="b"} 2.5
"#;
        assert_eq!(registry().classic(), expected);
    }

    #[test]
    fn openmetrics_names_counters_without_their_suffix() {
        let text = registry().openmetrics();
        for line in ["# TYPE requests counter", "requests_total{verb=\"get\",code=\"200\"} 2", "cpu_seconds_total 1.5"]
        {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn a_value_on_a_bound_is_within_it() {
        let registry = MetricRegistry::default();
        let family = registry.histograms("h", "H", [], Buckets::at(&[1.0, 2.0]).le_first());
        [1.0, 2.0, 2.5].into_iter().for_each(|value| family.observe([], value));
        let text = registry.classic();
        assert!(text.contains("h_bucket{le=\"1\"} 1\nh_bucket{le=\"2\"} 2\nh_bucket{le=\"+Inf\"} 3\n"), "{text}");
    }
}
