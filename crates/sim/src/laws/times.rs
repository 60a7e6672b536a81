//! When things are due, implemented independently from BACKOFF, DEADLINE and TTL.

use tally_core::time::{Span, Timestamp};

use super::read::Job;

/// BACKOFF-4: 10 s after the first failure, twice as long after each further one, never more than ten minutes.
/// BACKOFF-11: unless the Job says otherwise. The shortest and the longest delay after so many failures: jitter lies
/// between them.
pub(crate) fn delays(job: &Job, failures: usize) -> (Span, Span) {
    let annotations = &job.metadata.annotations;
    let millis = |name: &str| annotations.get(name).map(|text| milliseconds(text));
    let (base, max) = match (millis("tally.dev/backoff-base"), millis("tally.dev/backoff-max")) {
        (None, None) => (10_000, 600_000),
        (None, Some(max)) => (max.min(10_000), max),
        (Some(base), None) => (base, base.max(600_000)),
        (Some(base), Some(max)) => (base, max),
    };
    let mut delay = 0;
    for failure in 0..failures {
        delay = if failure == 0 { base } else { (delay * 2).min(max) };
    }
    let jitter = annotations.get("tally.dev/backoff-jitter").map_or(0.0, |text| text.parse().unwrap_or(0.0));
    (Span::from_millis(delay), Span::from_millis(delay + (delay as f64 * jitter).floor() as i64))
}

/// The delay of an index, whose failures are known exactly: its Pods carry their number.
pub(crate) fn index_delay(job: &Job, index: u32, failures: usize) -> Span {
    let (shortest, longest) = delays(job, failures);
    let jitter = (longest.millis() - shortest.millis()) as f64 * share(job, index, failures);
    Span::from_millis(shortest.millis() + jitter.floor() as i64)
}

/// The durations that scenarios use: whole numbers of one unit.
fn milliseconds(text: &str) -> i64 {
    let unit = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let number: i64 = text[..text.len() - unit.len()].parse().unwrap_or(0);
    number
        * [("ms", 1), ("s", 1_000), ("m", 60_000)].iter().find(|(name, _)| *name == unit).map_or(0, |(_, in_ms)| *in_ms)
}

/// How much of the jitter an index gets after so many failures: the first half of a hash, as a part of one.
fn share(job: &Job, index: u32, failures: usize) -> f64 {
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211);
    let text = format!("{}/{index}/{failures}", job.metadata.uid);
    let hash = text.bytes().fold(14_695_981_039_346_656_037, fnv);
    let hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    ((hash ^ hash >> 33) >> 32) as f64 / 2f64.powi(32)
}

/// DEADLINE-1: when a Job that continues will have been active for too long.
pub(crate) fn deadline(job: &Job) -> Option<Timestamp> {
    let allowed = job.spec.active_deadline_seconds.filter(|_| !job.spec.suspend)?;
    Some(job.status.start_time? + Span::from_seconds(allowed))
}

/// PENDING-1: how long a Pod of this Job may be pending, whatever the reason. Worlds write it in seconds.
pub(crate) fn pending_limit(job: &Job) -> Option<Span> {
    let text = job.metadata.annotations.get("tally.dev/pending-timeout")?;
    text.strip_suffix('s')?.parse().ok().map(Span::from_seconds)
}

/// REPL-8: how long a Job waits for a Pod that terminates on a dead node.
pub(crate) fn gives_up_after(job: &Job) -> Option<Span> {
    let text = job.metadata.annotations.get("tally.dev/replace-terminating-after")?;
    let seconds: i64 = text.strip_suffix('s')?.parse().ok()?;
    Some(Span::from_seconds(seconds)).filter(|_| job.waits_for_the_end())
}

/// TTL-3 to TTL-5: when a finished Job is to be deleted.
pub(crate) fn expiry(job: &Job) -> Option<Timestamp> {
    let terminal = job.terminal().filter(|_| !job.deleting())?;
    let name = if terminal.kind == "Complete" { "complete" } else { "failed" };
    let annotated = job.metadata.annotations.get(format!("tally.dev/ttl-seconds-after-{name}").as_str());
    let annotated = annotated.and_then(|text| text.parse::<i64>().ok());
    let ttl = annotated.or(job.spec.ttl_seconds_after_finished)?;
    Some(terminal.last_transition_time? + Span::from_seconds(ttl))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn job(annotations: &str) -> Job {
        let text = format!(
            r#"{{"metadata": {{"uid": "u", "name": "j", "annotations": {{{annotations}}}}},
            "spec": {{"backoffLimit": 6, "selector": {{}}, "template": {{"spec": {{"restartPolicy": "Never"}}}}}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn delays_double_up_to_ten_minutes() {
        let seconds = |annotations: &str| -> Vec<i64> {
            (0..10).map(|failures| delays(&job(annotations), failures).0.millis() / 1_000).collect()
        };
        assert_eq!(seconds(""), [0, 10, 20, 40, 80, 160, 320, 600, 600, 600]);
        let set = r#""tally.dev/backoff-base": "1000ms", "tally.dev/backoff-max": "1m""#;
        assert_eq!(seconds(set), [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(seconds(r#""tally.dev/backoff-max": "15s""#), [0, 10, 15, 15, 15, 15, 15, 15, 15, 15]);
        let jitter = job(r#""tally.dev/backoff-jitter": "0.5""#);
        assert_eq!(delays(&jitter, 9), (Span::from_seconds(600), Span::from_seconds(900)));
        let longer = (0..9).map(|index| index_delay(&jitter, index, 9).millis());
        assert!(longer.clone().all(|millis| (600_000..900_000).contains(&millis)), "{longer:?}");
    }
}
