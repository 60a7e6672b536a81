//! Which Jobs wait, and for what: the first sentence of `tally explain` beside a Job in `tally ps`, `tally top` and on the page.
//!
//! Whether a Job waits is decided in one place: `tally-explain` finds a reason and no Pod that runs. That needs the Pods and more,
//! so that only Jobs are asked about whose own status leaves it open (`may_wait`). The page has the same test in `model.js`.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tally_explain::State;
use tally_runtime::controller::Kind;
use tally_runtime::driver::wall_clock;

use super::explain::{Surroundings, pods_of};
use crate::place::Place;

/// Requests that are on the way at the same time.
const AT_A_TIME: usize = 8;

/// Why a Job waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The name of the reason, as `tally explain -o json` has it.
    pub reason: &'static str,
    pub message: String,
}

/// By the UID of the Job.
pub type Waits = BTreeMap<String, Wait>;

/// Whether a Job may wait. One that has ended or ends, is suspended or deleted, or has a Pod that is ready, does not.
pub fn may_wait(job: &Value) -> bool {
    let conditions = job["status"]["conditions"].as_array().into_iter().flatten();
    let mut holds = conditions.filter(|condition| condition["status"] == "True");
    let is_decided = holds.any(|condition| {
        ["Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"].iter().any(|kind| condition["type"] == *kind)
    });
    let is_ready = job["status"]["ready"].as_i64().is_some_and(|ready| ready > 0);
    let is_deleted = job["metadata"]["deletionTimestamp"].is_string();
    !is_decided && !is_ready && !is_deleted && job["spec"]["suspend"] != true
}

/// Those of the Jobs that wait. A Job whose Pods cannot be read is not among them: it is not known.
pub async fn waits(place: &Place, jobs: &[&Value]) -> Waits {
    let asked: Vec<&Value> = jobs.iter().copied().filter(|job| may_wait(job) && !place.is_idle()).collect();
    let mut surroundings = Surroundings::new(place);
    let mut waits = Waits::new();
    for some in asked.chunks(AT_A_TIME) {
        let mut reading = Vec::new();
        for job in some {
            reading.push(pods_of(place, job));
        }
        for (job, pods) in some.iter().zip(join_all(reading).await) {
            let (Ok(pods), Some(uid)) = (pods, job["metadata"]["uid"].as_str()) else { continue };
            let evidence = surroundings.evidence_with(Kind::JOB, (*job).clone(), pods, Vec::new()).await;
            let explanation = tally_explain::explain(&evidence, wall_clock());
            if let (State::Waiting, Some(cause)) = (explanation.state, explanation.waiting_for()) {
                waits.insert(uid.to_owned(), Wait { reason: cause.name(), message: cause.sentence() });
            }
        }
    }
    waits
}

/// The same of Jobs by namespace and name, as they are now.
pub async fn waits_of(place: &Place, names: &[(String, String)]) -> Waits {
    let mut jobs = Vec::new();
    for some in names.chunks(AT_A_TIME) {
        let mut reading = Vec::new();
        for (namespace, name) in some {
            reading.push(place.get(Kind::JOB, namespace, name));
        }
        jobs.extend(join_all(reading).await.into_iter().filter_map(|read| read.ok().flatten()));
    }
    waits(place, &jobs.iter().collect::<Vec<_>>()).await
}

/// For the page.
pub fn json(waits: &Waits) -> Value {
    let one = |(uid, wait): (&String, &Wait)| {
        (uid.clone(), json!({"state": "Waiting", "reason": wait.reason, "message": wait.message}))
    };
    json!({"jobs": waits.iter().map(one).collect::<serde_json::Map<_, _>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page decides the same in `model.js`, by the same cases.
    #[test]
    fn the_status_of_a_job_says_whether_it_may_wait() {
        let cases = include_str!("../../../web/assets-tests/may-wait.json");
        let cases: Vec<Value> = serde_json::from_str(cases).unwrap();
        assert!(cases.len() > 5);
        for case in cases {
            assert_eq!(may_wait(&case["job"]), case["mayWait"] == true, "{case}");
            let row = super::super::jobs::rows(std::slice::from_ref(&case["job"]), false, &Waits::new()).remove(0);
            assert_eq!(row.state, case["state"], "{case}");
        }
    }
}
