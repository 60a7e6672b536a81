//! Messages for the user that are not about a single Pod: limits are not applied here, output was lost. Each message is
//! given once, and their number is bounded.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The number of different messages. A user who has read that many knows that something is wrong.
const MOST: usize = 32;

#[derive(Debug, Default)]
pub struct Notes {
    inner: Mutex<Inner>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    said: BTreeSet<String>,
    waiting: VecDeque<String>,
}

impl Notes {
    // A panic while the lock is held leaves no partial change.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn say(&self, note: impl Into<String>) {
        let mut inner = self.lock();
        if inner.said.len() > MOST {
            return;
        }
        let last = inner.said.len() == MOST;
        let note = if last { "there is more of this kind, which is not told".to_owned() } else { note.into() };
        if inner.said.insert(note.clone()) {
            inner.waiting.push_back(note);
            self.news.notify_one();
        }
    }

    /// The messages since the last call.
    pub fn take(&self) -> Vec<String> {
        self.lock().waiting.drain(..).collect()
    }

    /// The same, as soon as there are any. One reader.
    pub async fn next(&self) -> Vec<String> {
        loop {
            let notes = self.take();
            if !notes.is_empty() {
                return notes;
            }
            self.news.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_thing_is_said_once_and_not_without_end() {
        let notes = Notes::default();
        notes.say("a");
        notes.say("a");
        assert_eq!(notes.next().await, ["a"]);
        notes.say("a");
        assert_eq!(notes.take(), [""; 0]);
        for number in 1..MOST {
            notes.say(number.to_string());
        }
        assert_eq!(notes.take().len(), MOST - 1);
        for number in 0..3 {
            notes.say(format!("more {number}"));
        }
        assert_eq!(notes.take(), ["there is more of this kind, which is not told"]);
    }
}
