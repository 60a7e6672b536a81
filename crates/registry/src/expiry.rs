//! Events expire: each is deleted a fixed time after it was last written, as with the leases of etcd. Watchers see the
//! deletion.
//!
//! The sweep knows when each Event expires. It learns of writes from a watch, and sleeps until the next one is due: its cost
//! follows the Events that are written and expire, not those that are there.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tally_core::time::Timestamp;
use tally_store::{Change, Entry, Expect, Write, WriteError};
use tally_value::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::{Registry, text};

/// How long Events are kept by default, as in Kubernetes.
pub const EVENT_TTL: Duration = Duration::from_secs(3600);

const PREFIX: &str = "events/";
/// Events that are taken from the watch, or deleted, at a time.
const BATCH: usize = 256;
/// The time between two batches of deletions. After a restart everything may be due at once; the deletions should not
/// delay other writes.
const PACE: Duration = Duration::from_millis(100);
/// When to try again if the store accepts no writes.
const RETRY_AFTER: Duration = Duration::from_secs(5);

impl Registry {
    /// Deletes Events `ttl` after they were last written. Ends when the store is closed.
    pub async fn expire_events(self: std::sync::Arc<Self>, ttl: Duration) {
        let mut leases = Leases::default();
        loop {
            let Ok(page) = self.store.range(PREFIX, None, None, None) else { return };
            let mut listed = Leases::default();
            for entry in &page.entries {
                let known = leases.by_key.get(&*entry.key).filter(|(_, revision)| *revision == entry.revision);
                let expires_at = known.map_or_else(|| Instant::now() + self.remaining(entry, ttl), |(at, _)| *at);
                listed.set(&entry.key, expires_at, entry.revision);
            }
            leases = listed;
            let Ok(mut watcher) = self.store.watch(PREFIX, page.revision) else { continue };
            // Ends if more was written than the history keeps, before this task ran again: it lists again.
            while let Ok(batch) = watcher.take(BATCH) {
                for event in &batch.events {
                    match event.deleted {
                        true => leases.remove(&event.entry.key),
                        false => leases.set(&event.entry.key, Instant::now() + ttl, event.revision),
                    }
                }
                if batch.more {
                    continue;
                }
                let due = leases.due(Instant::now(), BATCH);
                if due.is_empty() {
                    let next = leases.next();
                    tokio::select! {
                        () = watcher.changed() => {}
                        () = until(next) => {}
                    }
                    continue;
                }
                match self.expire(due, &mut leases).await {
                    Swept::All => sleep(PACE).await,
                    Swept::Refused => sleep(RETRY_AFTER).await,
                    Swept::Closed => return,
                }
            }
        }
    }

    /// How long an Event that was found at start is kept: as if this process had seen its last write. A time in the future
    /// does not keep it longer than a new one.
    fn remaining(&self, entry: &Entry, ttl: Duration) -> Duration {
        let age = self.now() - last_written(&text::parse(&entry.value));
        ttl.saturating_sub(Duration::from_millis(u64::try_from(age.millis()).unwrap_or(0)))
    }

    /// Deletes Events that are as they were when they became due. They are submitted together, so that they are written to
    /// the disk together.
    async fn expire(self: &std::sync::Arc<Self>, due: Vec<(Box<str>, u64)>, leases: &mut Leases) -> Swept {
        let mut deletions = JoinSet::new();
        for (key, revision) in due {
            let Some(entry) = self.store.get(&key).filter(|entry| entry.revision == revision) else {
                // It was written or deleted since: the watch says so.
                leases.remove(&key);
                continue;
            };
            let registry = self.clone();
            deletions.spawn(async move {
                let change = Change::Delete(text::body(&text::parse(&entry.value)));
                let write = Write { key: key.to_string(), expect: Expect::At(revision), change };
                (key, registry.store.commit(write).await)
            });
        }
        let mut swept = Swept::All;
        while let Some(deleted) = deletions.join_next().await {
            match deleted {
                Ok((key, Ok(_) | Err(WriteError::Conflict(_)))) => leases.remove(&key),
                Ok((_, Err(WriteError::Closed))) => return Swept::Closed,
                Ok((_, Err(_))) | Err(_) => swept = Swept::Refused,
            }
        }
        swept
    }
}

enum Swept {
    All,
    /// The store refused some deletions.
    Refused,
    Closed,
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The newest time in an Event: every client that counts a repetition writes one of them.
fn last_written(event: &Value) -> Timestamp {
    ["/metadata/creationTimestamp", "/firstTimestamp", "/lastTimestamp", "/eventTime", "/series/lastObservedTime"]
        .into_iter()
        .filter_map(|pointer| Timestamp::parse(text::text(event, pointer)).ok())
        .max()
        .unwrap_or(Timestamp::from_seconds(0))
}

/// When each Event expires, and the revision for which that holds.
#[derive(Default)]
struct Leases {
    by_key: HashMap<Box<str>, (Instant, u64)>,
    /// A revision belongs to one Event only.
    by_time: BTreeMap<(Instant, u64), Box<str>>,
}

impl Leases {
    fn set(&mut self, key: &str, expires_at: Instant, revision: u64) {
        self.remove(key);
        self.by_key.insert(key.into(), (expires_at, revision));
        self.by_time.insert((expires_at, revision), key.into());
    }

    fn remove(&mut self, key: &str) {
        if let Some(lease) = self.by_key.remove(key) {
            self.by_time.remove(&lease);
        }
    }

    fn due(&self, now: Instant, most: usize) -> Vec<(Box<str>, u64)> {
        let due = self.by_time.iter().take_while(|((expires_at, _), _)| *expires_at <= now).take(most);
        due.map(|((_, revision), key)| (key.clone(), *revision)).collect()
    }

    fn next(&self) -> Option<Instant> {
        self.by_time.first_key_value().map(|((expires_at, _), _)| *expires_at)
    }
}
