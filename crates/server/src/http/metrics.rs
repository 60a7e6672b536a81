//! The metrics of the server, in the Prometheus format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Upper bounds of the histogram buckets, in seconds.
const CLASSES: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0];

/// The labels of a request. All values come from the server's own tables, so their number is bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct About {
    pub verb: &'static str,
    pub group: &'static str,
    pub resource: &'static str,
    pub subresource: &'static str,
}

#[derive(Default)]
struct Durations {
    /// One more than `CLASSES`: the last bucket is for all longer durations.
    classes: [u64; CLASSES.len() + 1],
    sum: f64,
    count: u64,
}

#[derive(Default)]
struct Requests {
    codes: BTreeMap<(About, u16), u64>,
    durations: BTreeMap<About, Durations>,
}

#[derive(Default)]
pub struct Metrics {
    requests: Mutex<Requests>,
    pub in_flight: Level,
    pub connections: Level,
    pub watches: Level,
    /// Events sent to watchers.
    pub events: Level,
}

/// A number that goes up and down (a gauge).
#[derive(Default)]
pub struct Level(AtomicU64);

impl Level {
    pub fn up(&self) {
        self.add(1);
    }

    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn down(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Metrics {
    /// Counts an answered request. `took`: None for watches, whose duration says nothing about the server.
    pub fn answered(&self, about: About, code: u16, took: Option<Duration>) {
        let mut requests = self.lock();
        *requests.codes.entry((about, code)).or_default() += 1;
        if let Some(took) = took.map(|took| took.as_secs_f64()) {
            let durations = requests.durations.entry(about).or_default();
            let class = CLASSES.iter().position(|end| took <= *end).unwrap_or(CLASSES.len());
            if let Some(count) = durations.classes.get_mut(class) {
                *count += 1;
            }
            durations.sum += took;
            durations.count += 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Requests> {
        // Counters are consistent even if a thread panicked while it held the lock.
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The content of `/metrics`. `store`: name, help and value of the store's metrics.
    pub fn page(&self, store: &[(&str, &str, u64)]) -> String {
        let mut page = String::new();
        let requests = self.lock();
        head(&mut page, "apiserver_request_total", "counter", "Requests answered.");
        for ((about, code), count) in &requests.codes {
            let _ = writeln!(page, "apiserver_request_total{{{},code=\"{code}\"}} {count}", about.labels());
        }
        let name = "apiserver_request_duration_seconds";
        head(&mut page, name, "histogram", "Time from a request to its answer, without watches.");
        for (about, durations) in &requests.durations {
            let (labels, mut total) = (about.labels(), 0);
            for (class, count) in durations.classes.iter().enumerate() {
                total += count;
                let end = CLASSES.get(class).map_or_else(|| "+Inf".to_owned(), f64::to_string);
                let _ = writeln!(page, "{name}_bucket{{{labels},le=\"{end}\"}} {total}");
            }
            let _ = writeln!(page, "{name}_sum{{{labels}}} {}", durations.sum);
            let _ = writeln!(page, "{name}_count{{{labels}}} {}", durations.count);
        }
        drop(requests);
        for (name, kind, help, value) in [
            ("apiserver_current_inflight_requests", "gauge", "Requests at work, without watches.", &self.in_flight),
            ("apiserver_longrunning_requests", "gauge", "Watches open.", &self.watches),
            ("apiserver_watch_events_total", "counter", "Events sent to watchers.", &self.events),
            ("tally_connections", "gauge", "Connections open.", &self.connections),
        ] {
            head(&mut page, name, kind, help);
            let _ = writeln!(page, "{name} {}", value.get());
        }
        for (name, help, value) in store {
            head(&mut page, name, "gauge", help);
            let _ = writeln!(page, "{name} {value}");
        }
        page
    }
}

fn head(page: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

impl About {
    fn labels(&self) -> String {
        let Self { verb, group, resource, subresource } = self;
        format!("verb=\"{verb}\",group=\"{group}\",resource=\"{resource}\",subresource=\"{subresource}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_their_classes() {
        let metrics = Metrics::default();
        let about = About { verb: "GET", group: "batch", resource: "jobs", subresource: "" };
        for millis in [1, 2, 700, 60_000] {
            metrics.answered(about, 200, Some(Duration::from_millis(millis)));
        }
        metrics.answered(About { verb: "WATCH", ..about }, 200, None);
        let page = metrics.page(&[("tally_store_revision", "The newest revision.", 7)]);
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
