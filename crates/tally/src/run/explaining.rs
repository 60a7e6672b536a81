//! Why Jobs do not move: asked when nothing has changed for a while, and shown with their progress.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tally_runtime::controller::Kind;
use tokio::task::JoinHandle;

use super::progress::model::{Model, Standstill};
use crate::look::explain::explanation;
use crate::place::Place;

/// How long after the first question the second one comes; then twice as long each time, up to the limit. A Job may run for
/// days without a change of its counts.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(5);
const ASK_AT_LEAST_EVERY: Duration = Duration::from_secs(60);
/// How often it is looked whether a Job stands still.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Of how many Jobs at once.
const MOST_JOBS: usize = 8;

/// By the UID of the Job. None: nothing is wrong with it.
type Found = Vec<(String, Option<Standstill>)>;

pub struct Explaining {
    place: Arc<Place>,
    found: Arc<Mutex<Found>>,
    asking: Option<JoinHandle<()>>,
    ask_at: Duration,
    pace: Duration,
    /// How many Jobs of the last list were asked about.
    asked: usize,
}

impl Explaining {
    pub fn new(place: Arc<Place>) -> Self {
        Self { place, found: Arc::default(), asking: None, ask_at: Duration::ZERO, pace: ASK_AGAIN_AFTER, asked: 0 }
    }

    /// Puts what was found into the model, and asks again if it is time. Never waits for a response.
    pub fn beat(&mut self, model: &mut Model, now: Duration) {
        let found = std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner));
        found.into_iter().for_each(|(uid, why)| model.explain(&uid, why));
        if now < self.ask_at || self.asking.as_ref().is_some_and(|asking| !asking.is_finished()) {
            return;
        }
        let standing: Vec<_> = model.standing(now).collect();
        if standing.is_empty() {
            (self.ask_at, self.pace) = (now + LOOK_EVERY, ASK_AGAIN_AFTER);
            return;
        }
        self.ask_at = now + self.pace;
        if standing.len() <= MOST_JOBS {
            self.pace = (self.pace * 2).min(ASK_AT_LEAST_EVERY);
        }
        // Of many, others each time.
        let from = self.asked % standing.len();
        let jobs: Vec<_> = standing.iter().cycle().skip(from).take(MOST_JOBS.min(standing.len())).collect();
        let jobs: Vec<_> = jobs.into_iter().map(|job| job.id()).collect();
        self.asked = from + jobs.len();
        let (place, found) = (self.place.clone(), self.found.clone());
        self.asking = Some(tokio::spawn(async move {
            for (namespace, name, uid) in jobs {
                let known = explanation(&place, Kind::JOB, &namespace, &name).await;
                let why = known.and_then(|known| {
                    let cause = known.waiting_for()?;
                    let (reason, message) = (cause.name(), cause.sentence());
                    Some(Standstill { reason, message, change: known.would_change().unwrap_or_default() })
                });
                found.lock().unwrap_or_else(PoisonError::into_inner).push((uid, why));
            }
        }));
    }
}

impl Drop for Explaining {
    fn drop(&mut self) {
        self.asking.iter().for_each(JoinHandle::abort);
    }
}
