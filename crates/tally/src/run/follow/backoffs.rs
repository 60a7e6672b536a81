//! What Jobs wait for before they retry, as the Job controller of this process has just decided it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tally_core::backoff::BackoffNotice;
use tally_core::ids::JobUid;
use tally_runtime::controller::Metric;
use tally_runtime::driver::Observer;

/// Notices that were not read yet. Older ones are dropped: they are for a display.
const MOST: usize = 64;

#[derive(Default)]
pub struct BackoffNotices(Mutex<Vec<(JobUid, BackoffNotice)>>);

impl BackoffNotices {
    pub fn take(&self) -> Vec<(JobUid, BackoffNotice)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Observer for BackoffNotices {
    fn metric(&self, _: &'static str, metric: &Metric, _: Duration) {
        if let Metric::BackoffStarted { job, notice } = metric {
            let mut notices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if notices.len() == MOST {
                notices.remove(0);
            }
            notices.push((job.clone(), (**notice).clone()));
        }
    }
}
