//! The figures of a case: what was read, what follows from it, and the one line that says so. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::cases::{Case, Target};

/// What the processes of a case have used and been asked until a moment.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    pub processor_seconds: BTreeMap<String, f64>,
    /// Requests of controllers by verb and resource. None: the server does not say.
    pub requests: Option<BTreeMap<String, u64>>,
}

/// What a case has shown.
#[derive(Default)]
pub struct Observed {
    pub wall: Duration,
    /// From the first Pod that finished to the end.
    pub counting: Option<Duration>,
    pub before: Usage,
    pub after: Usage,
    pub peak_memory: BTreeMap<String, u64>,
    /// From the end of a Pod to the status that contains it, in order of length.
    pub counted_after: Vec<Duration>,
    /// From the creation of a small Job to its completion, in order of length.
    pub small: Vec<Duration>,
    pub most_active: u64,
    pub most_pods: Option<u64>,
    pub disk_sync: Option<Duration>,
}

/// One object of `-o json`. A figure that does not exist for a case is left out.
#[derive(Serialize)]
pub struct Figures {
    case: &'static str,
    about: String,
    jobs: u32,
    completions: u32,
    mode: &'static str,
    parallelism: u32,
    /// The Pods that the figures are related to.
    pods: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<&'static str>,
    wall_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pods_per_minute: Option<f64>,
    processor_seconds: BTreeMap<String, f64>,
    /// Without this process.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    processor_us_per_pod: BTreeMap<String, f64>,
    peak_memory_bytes: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests_per_pod: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<BTreeMap<String, u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    counted_ms: Option<Spread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    small_jobs: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    small_job_ms: Option<Spread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    most_active: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    most_pods: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_sync_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Outcome>,
}

#[derive(Clone, Copy, Serialize)]
struct Spread {
    p50: f64,
    p99: f64,
}

#[derive(Serialize)]
struct Outcome {
    what: String,
    reached: f64,
    met: bool,
}

/// The name of this process among those that are measured: it watches, and plays the user.
pub const BENCH: &str = "bench";

/// Requests of nodes, of the scheduler and of the user, which are the same whatever the Job controller does.
const OF_OTHERS: [&str; 4] = ["create jobs", "create pods/binding", "patch pods/status", "update pods/status"];

impl Figures {
    pub fn new(case: &Case, observed: &Observed) -> Figures {
        let pods = f64::from(case.pods());
        let seconds = observed.wall.as_secs_f64();
        // Beside large Jobs, the costs are mostly theirs, and they do not end.
        let is_beside = case.small > 0 && case.jobs > 0;
        let a_minute = |time: Duration| pods / time.as_secs_f64().max(f64::EPSILON) * 60.0;
        let Observed { before, after, .. } = observed;
        let used = |(name, after): (&String, &f64)| {
            (name.clone(), (after - before.processor_seconds.get(name).copied().unwrap_or(0.0)).max(0.0))
        };
        let processor_seconds: BTreeMap<String, f64> = after.processor_seconds.iter().map(used).collect();
        let each = |(name, seconds): (&String, &f64)| (name.clone(), seconds / pods * 1e6);
        let others = processor_seconds.iter().filter(|(name, _)| *name != BENCH && !is_beside);
        let requests = sent(before, after);
        let all = requests.as_ref().map(|requests| requests.values().sum::<u64>() as f64);
        let target = case.target.map(|target| {
            let (reached, met) = match target {
                Target::PodsAMinute(least) => at_least(a_minute(observed.wall), least),
                Target::CountedAMinute(least) => at_least(observed.counting.map_or(0.0, a_minute), least),
                Target::ActiveAtATime(least) => at_least(observed.most_active as f64, least),
                Target::WithinSeconds(most) => (seconds, seconds <= f64::from(most)),
            };
            Outcome { what: target.describe(), reached, met }
        });
        Figures {
            case: case.name,
            about: case.describe(),
            jobs: case.jobs,
            completions: case.completions,
            mode: case.mode.name(),
            parallelism: case.parallelism.min(case.completions),
            pods: case.pods(),
            series: case.series(),
            wall_seconds: seconds,
            pods_per_minute: (!is_beside).then(|| a_minute(observed.wall)),
            processor_us_per_pod: others.map(each).collect(),
            processor_seconds,
            peak_memory_bytes: observed.peak_memory.clone(),
            requests_per_pod: all.map(|all| all / pods).filter(|_| !is_beside),
            requests,
            counted_ms: spread(&observed.counted_after),
            small_jobs: (case.small > 0).then(|| u32::try_from(observed.small.len()).unwrap_or(u32::MAX)),
            small_job_ms: spread(&observed.small),
            most_active: Some(observed.most_active).filter(|_| case.small == 0 && !case.expire),
            most_pods: observed.most_pods,
            disk_sync_ms: observed.disk_sync.map(millis),
            target,
        }
    }

    /// Whether no target was missed.
    pub fn are_good(&self) -> bool {
        self.target.as_ref().is_none_or(|target| target.met)
    }

    /// One line.
    pub fn line(&self) -> String {
        let mut text = format!("{:<19} {:>7.2} s", self.case, self.wall_seconds);
        let mut add = |part: String| {
            text += "  ";
            text += &part;
        };
        if let Some(rate) = self.pods_per_minute {
            add(format!("{rate:>7.0} Pods/min"));
        }
        for (name, seconds) in self.processor_seconds.iter().filter(|(name, _)| *name != BENCH) {
            let mut part = format!("{name} {seconds:.2} s");
            // Writing to a String cannot fail.
            if let Some(each) = self.processor_us_per_pod.get(name) {
                let _ = write!(part, ", {each:.0} us/Pod");
            }
            if let Some(peak) = self.peak_memory_bytes.get(name) {
                let _ = write!(part, ", {} MB", peak / 1_000_000);
            }
            add(part);
        }
        if let Some(each) = self.requests_per_pod {
            add(format!("{each:.3} requests/Pod"));
        }
        if let Some(Spread { p50, p99 }) = self.counted_ms {
            add(format!("counted p50 {p50:.1} ms, p99 {p99:.1} ms"));
        }
        if let (Some(count), Some(Spread { p50, p99 })) = (self.small_jobs, self.small_job_ms) {
            add(format!("{count} small Jobs p50 {p50:.1} ms, p99 {p99:.1} ms"));
        }
        if let Some(most) = self.most_pods {
            add(format!("{most} Pods at most"));
        }
        if let Some(Outcome { what, reached, met }) = &self.target {
            add(format!("target {what}: {} ({reached:.0})", if *met { "met" } else { "MISSED" }));
        }
        text
    }
}

fn at_least(reached: f64, least: u32) -> (f64, bool) {
    (reached, reached >= f64::from(least))
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// `sorted`: in order of length.
fn spread(sorted: &[Duration]) -> Option<Spread> {
    Some(Spread { p50: millis(percentile(sorted, 50)?), p99: millis(percentile(sorted, 99)?) })
}

/// The shortest time that is not exceeded by so many of a hundred. `sorted`: in order of length.
fn percentile(sorted: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

/// What controllers have sent between two moments.
fn sent(before: &Usage, after: &Usage) -> Option<BTreeMap<String, u64>> {
    let (old, new) = (before.requests.as_ref()?, after.requests.as_ref()?);
    let more = |what: &String, count: &u64| count.saturating_sub(old.get(what).copied().unwrap_or(0));
    let more = new.iter().map(|(what, count)| (what.clone(), more(what, count)));
    Some(more.filter(|(what, count)| *count > 0 && !OF_OTHERS.contains(&what.as_str())).collect())
}

/// Reads what a page of metrics says about requests: those over HTTP, and those of controllers in the process of the
/// server. Watches are left out, and what is not about objects.
pub fn requests(page: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in page.lines() {
        let Some(labels) =
            ["apiserver_request_total{", "tally_requests_total{"].iter().find_map(|name| line.strip_prefix(name))
        else {
            continue;
        };
        let Some((labels, count)) = labels.rsplit_once("} ") else { continue };
        let label = |name: &str| {
            let at = labels.match_indices(name).find(|(at, _)| *at == 0 || labels[..*at].ends_with(','))?.0;
            let (value, _) = labels[at + name.len()..].strip_prefix("=\"")?.split_once('"')?;
            Some(value)
        };
        let verb = match label("verb").unwrap_or_default().to_lowercase().as_str() {
            "watch" => continue,
            "post" => "create".to_owned(),
            "put" => "update".to_owned(),
            verb => verb.to_owned(),
        };
        let Some(resource) = label("resource").filter(|name| !name.is_empty()) else { continue };
        let subresource = label("subresource").filter(|name| !name.is_empty()).map(|name| format!("/{name}"));
        let what = format!("{verb} {resource}{}", subresource.unwrap_or_default());
        *counts.entry(what).or_default() += count.trim().parse::<f64>().map_or(0, |count| count as u64);
    }
    counts
}

/// How many objects of a resource a server stores.
pub fn stored(page: &str, resource: &str) -> Option<u64> {
    let wanted = format!("apiserver_storage_objects{{resource=\"{resource}\"}} ");
    let count = page.lines().find_map(|line| line.strip_prefix(&wanted))?;
    count.trim().parse::<f64>().ok().map(|count| count as u64)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::cases::CASES;
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn case(name: &str) -> Case {
        *CASES.iter().find(|case| case.name == name).unwrap()
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let hundred: Vec<Duration> = (1..=100).map(ms).collect();
        for (percent, millis) in [(50, 50), (99, 99), (100, 100), (1, 1), (0, 1)] {
            assert_eq!(percentile(&hundred, percent), Some(ms(millis)), "{percent}");
        }
        assert_eq!((percentile(&[ms(7)], 50), percentile(&[ms(7)], 99)), (Some(ms(7)), Some(ms(7))));
        assert_eq!((percentile(&[ms(1), ms(2)], 50), percentile(&[], 50)), (Some(ms(1)), None));
    }

    fn observed(seconds: u64) -> Observed {
        let used = |server: f64, bench: f64, requests: &str| Usage {
            processor_seconds: [("server".to_owned(), server), (BENCH.to_owned(), bench)].into(),
            requests: Some(super::requests(requests)),
        };
        let page = "tally_requests_total{verb=\"create\",resource=\"pods\",code=\"2xx\"} 1010\n\
                    tally_requests_total{verb=\"patch\",resource=\"pods\",code=\"2xx\"} 1000\n\
                    tally_requests_total{verb=\"patch\",resource=\"pods/status\",code=\"2xx\"} 1000\n\
                    apiserver_request_total{verb=\"POST\",group=\"batch\",resource=\"jobs\",subresource=\"\",code=\"201\"} 1\n";
        Observed {
            wall: Duration::from_secs(seconds),
            before: used(1.0, 0.5, "tally_requests_total{verb=\"create\",resource=\"pods\",code=\"2xx\"} 10\n"),
            after: used(1.5, 0.7, page),
            peak_memory: [("server".to_owned(), 50_000_000)].into(),
            counted_after: (1..=100).map(ms).collect(),
            disk_sync: Some(Duration::from_micros(250)),
            ..Observed::default()
        }
    }

    #[test]
    fn figures_follow_from_what_was_observed() {
        let figures = Figures::new(&case("1x1000-indexed"), &observed(2));
        let json = serde_json::to_value(&figures).unwrap();
        assert_eq!(json["pods_per_minute"], 30_000.0);
        assert_eq!(json["processor_us_per_pod"], serde_json::json!({"server": 500.0}));
        assert_eq!(json["requests_per_pod"], 2.0, "of the Job controller: {}", json["requests"]);
        assert_eq!((&json["counted_ms"]["p99"], &json["disk_sync_ms"]), (&99.0.into(), &0.25.into()));
        assert!(json.get("target").is_none() && json.get("small_job_ms").is_none() && figures.are_good());
        let line = figures.line();
        assert!(
            line.contains("server 0.50 s, 500 us/Pod, 50 MB  2.000 requests/Pod") && !line.contains('\n'),
            "{line}"
        );
    }

    #[test]
    fn a_missed_target_is_told() {
        let of = |name: &str, change: fn(&mut Observed)| {
            let mut observed = observed(2);
            change(&mut observed);
            let figures = Figures::new(&case(name), &observed);
            assert_eq!(figures.are_good(), !figures.line().contains("MISSED"), "{}", figures.line());
            figures.are_good()
        };
        assert!(of("1000x1", |_| {}));
        assert!(of("1000x1", |observed| observed.wall = Duration::from_secs(12)));
        assert!(!of("1000x1", |observed| observed.wall = Duration::from_millis(12_100)));
        assert!(of("1x100000-indexed", |observed| observed.wall = Duration::from_secs(600)));
        assert!(!of("1x100000-indexed", |observed| observed.wall = Duration::from_millis(600_100)));
        assert!(of("100000-at-a-time", |observed| observed.most_active = 100_000));
        assert!(!of("100000-at-a-time", |observed| observed.most_active = 99_999));
        assert!(of("qps-50", |observed| observed.counting = Some(Duration::from_secs(60))));
        assert!(!of("qps-50", |observed| observed.counting = Some(Duration::from_millis(60_100))));
        assert!(!of("qps-50", |_| {}), "nothing was counted");
    }

    #[test]
    fn beside_large_jobs_nothing_is_related_to_the_small_ones_but_their_times() {
        let observed = Observed { small: vec![ms(5), ms(9)], ..observed(2) };
        let json = serde_json::to_value(Figures::new(&case("beside-10"), &observed)).unwrap();
        assert_eq!((&json["small_jobs"], &json["small_job_ms"]["p99"]), (&2.into(), &9.0.into()));
        for name in ["pods_per_minute", "processor_us_per_pod", "requests_per_pod"] {
            assert!(json.get(name).is_none(), "{name}");
        }
    }

    #[test]
    fn metrics_of_both_kinds_of_servers_are_read() {
        let page = "# HELP apiserver_request_total x\n\
            apiserver_request_total{code=\"201\",component=\"apiserver\",resource=\"pods\",subresource=\"\",verb=\"POST\"} 7\n\
            apiserver_request_total{verb=\"POST\",group=\"\",resource=\"pods\",subresource=\"binding\",code=\"201\"} 3\n\
            apiserver_request_total{verb=\"WATCH\",group=\"\",resource=\"pods\",subresource=\"\",code=\"200\"} 9\n\
            apiserver_request_total{verb=\"GET\",group=\"\",resource=\"\",subresource=\"/metrics\",code=\"200\"} 9\n\
            tally_requests_total{verb=\"create\",resource=\"pods\",code=\"2xx\"} 2\n\
            tally_requests_total{verb=\"patch\",resource=\"jobs/status\",code=\"409\"} 1e3\n\
            apiserver_storage_objects{resource=\"pods\"} 12\n";
        let expected = [("create pods", 9), ("create pods/binding", 3), ("patch jobs/status", 1000)];
        assert_eq!(requests(page), expected.map(|(what, count)| (what.to_owned(), count)).into());
        assert_eq!((stored(page, "pods"), stored(page, "jobs")), (Some(12), None));
    }
}
