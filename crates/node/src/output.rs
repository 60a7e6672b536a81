//! The output of containers on its way to a reader in the same process as the node: which attempts have output to read,
//! and which have ended. The text itself is in the log files (`shim/log.rs`, `logs.rs`).
//!
//! An attempt whose reader is too far behind waits, as a process waits that writes to a full pipe. So that the number of
//! ended attempts with unread output is bounded, too, no reports of the shim are read while the queue is full: then no
//! Pod ends and none is started. A stop lifts that limit, because a reader that never reads must not prevent it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use compact_str::CompactString;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::attempts::AttemptRecord;
use crate::port::Attempt;

/// How the output of all containers is read while they write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowOptions {
    /// The number of log files of an attempt that may be unread before its processes have to wait. None: any number.
    pub unread_files: Option<u64>,
    /// The beginning of a line is written to the log at once, not when its end arrives.
    pub partial_lines: bool,
}

/// Where the results of tasks go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultsOptions {
    pub directory: std::path::PathBuf,
    /// There are several Jobs: each has a directory of its own.
    pub by_job: bool,
}

/// The container whose output it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputSource {
    pub namespace: CompactString,
    /// The UID and the name of the Job.
    pub job: CompactString,
    pub job_name: CompactString,
    pub pod: CompactString,
    /// The completion index, if the Job is Indexed.
    pub index: Option<u32>,
    /// The Pod has other containers, too.
    pub several: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutputEvent {
    /// There is something to read. The log stays until the reader has said that it has read everything
    /// (`ShimCommand::OutputRead`).
    Began { attempt: Attempt, source: Box<OutputSource> },
    /// Nothing more will be written.
    Ended { attempt: Attempt },
    /// The shim has died, and with it every attempt that ran.
    AllEnded,
    /// The reader has read everything of the attempt, and the shim has removed what is beyond the limits of its log.
    Released { attempt: Attempt },
    /// The limits of the log have removed its oldest part: this much text since the last such event.
    Removed { pod: String, lines: u64, bytes: u64 },
    /// An attempt has ended, and its end is recorded. Sent if the shim was asked to.
    AttemptEnded { source: Box<OutputSource>, record: Box<AttemptRecord> },
    /// The results of the attempt cannot be stored. It has no recorded end.
    NoResult { pod: String, why: String },
}

/// More attempts than this wait to be read: the reader is far behind.
const MOST_EVENTS: usize = 1024;

#[derive(Debug, Default)]
pub struct OutputQueue {
    inner: Mutex<Inner>,
    pushed: Notify,
    taken: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    events: VecDeque<OutputEvent>,
    unlimited: bool,
}

impl OutputQueue {
    // A panic while the lock is held leaves no partial change.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the queue is full. One writer.
    pub(crate) async fn push(&self, event: OutputEvent) {
        loop {
            {
                let mut inner = self.lock();
                if inner.unlimited || inner.events.len() < MOST_EVENTS {
                    inner.events.push_back(event);
                    break;
                }
            }
            self.taken.notified().await;
        }
        self.pushed.notify_one();
    }

    /// A stop has been requested: the writer waits no longer.
    pub fn lift_limit(&self) {
        self.lock().unlimited = true;
        self.taken.notify_one();
    }

    pub fn try_next(&self) -> Option<OutputEvent> {
        let event = self.lock().events.pop_front();
        if event.is_some() {
            self.taken.notify_one();
        }
        event
    }

    /// Cancel safe. One reader.
    pub async fn next(&self) -> OutputEvent {
        loop {
            if let Some(event) = self.try_next() {
                return event;
            }
            self.pushed.notified().await;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn event(number: usize) -> OutputEvent {
        OutputEvent::NoResult { pod: number.to_string(), why: String::new() }
    }

    #[tokio::test]
    async fn the_writer_waits_for_the_reader_until_a_stop() {
        let queue = Arc::new(OutputQueue::default());
        for number in 0..MOST_EVENTS {
            queue.push(event(number)).await;
        }
        let writer = tokio::spawn({
            let queue = queue.clone();
            async move {
                for number in 0..3 {
                    queue.push(event(MOST_EVENTS + number)).await;
                }
            }
        });
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(!writer.is_finished());
        assert_eq!(queue.next().await, event(0));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(!writer.is_finished() && queue.lock().events.len() == MOST_EVENTS, "one was taken, one was put");
        queue.lift_limit();
        writer.await.unwrap();
        for number in 1..MOST_EVENTS + 3 {
            assert_eq!(queue.try_next(), Some(event(number)));
        }
        assert_eq!(queue.try_next(), None);
    }
}
