//! Which connections are open, and which one is closed when a new one needs its place.
//!
//! Every process of this machine can connect, before it has shown a session. If new connections were refused while all
//! places are taken, 256 that send nothing would shut out the user. So, as in the API server, a new connection gets a
//! place, and another one loses it: one without a session before one with a session, an idle one before a busy one, the
//! oldest first. A request of a session is never cut off.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

pub struct ConnectionTable {
    places: Arc<Semaphore>,
    open: Mutex<OpenConnections>,
}

#[derive(Default)]
struct OpenConnections {
    next_id: u64,
    /// By age: the oldest first.
    by_id: BTreeMap<u64, OpenConnection>,
}

struct OpenConnection {
    has_session: bool,
    /// Requests whose response is not sent.
    requests: usize,
    close: Arc<Notify>,
}

impl ConnectionTable {
    /// `limit`: connections at once.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { places: Arc::new(Semaphore::new(limit)), open: Mutex::default() })
    }

    /// A place for a connection that has been accepted. If none may be closed for it, this waits until one ends. None:
    /// no more connections are taken.
    pub async fn place(self: &Arc<Self>) -> Option<ConnectionPlace> {
        let permit = match self.places.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                self.close_one();
                self.places.clone().acquire_owned().await.ok()?
            }
        };
        let close = Arc::new(Notify::new());
        let mut open = self.lock();
        let id = open.next_id;
        open.next_id += 1;
        open.by_id.insert(id, OpenConnection { has_session: false, requests: 0, close: close.clone() });
        Some(ConnectionPlace { handle: ConnectionHandle { id, table: self.clone() }, close, _permit: permit })
    }

    fn close_one(&self) {
        let mut open = self.lock();
        let rank = |(id, it): (&u64, &OpenConnection)| (it.has_session, it.requests > 0, *id);
        let first = open.by_id.iter().map(rank).min().filter(|rank| !matches!(rank, (true, true, _)));
        if let Some(closed) = first.and_then(|(.., id)| open.by_id.remove(&id)) {
            closed.close.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        // Every change is a single insertion, removal or assignment: it is whole even if a thread panicked.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one connection, taken until this is dropped.
pub struct ConnectionPlace {
    pub handle: ConnectionHandle,
    close: Arc<Notify>,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionPlace {
    /// Resolves when another connection needs the place.
    pub async fn needed(&self) {
        self.close.notified().await;
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.handle.table.lock().by_id.remove(&self.handle.id);
    }
}

/// Names a connection of the table.
#[derive(Clone)]
pub struct ConnectionHandle {
    id: u64,
    table: Arc<ConnectionTable>,
}

impl ConnectionHandle {
    /// A request has shown an open session.
    pub fn has_session(&self) {
        self.change(|connection| connection.has_session = true);
    }

    /// Counts a request until the result is dropped.
    pub fn begin(&self) -> RequestGuard {
        self.change(|connection| connection.requests += 1);
        RequestGuard(self.clone())
    }

    /// A connection that is being closed is no longer in the table.
    fn change(&self, change: impl FnOnce(&mut OpenConnection)) {
        if let Some(connection) = self.table.lock().by_id.get_mut(&self.id) {
            change(connection);
        }
    }
}

pub struct RequestGuard(ConnectionHandle);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.change(|connection| connection.requests -= 1);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// Connections as letters: `i` idle, `b` busy, capital letters with a session. Returns which one is closed for
    /// another.
    async fn closed(connections: &str) -> Option<usize> {
        let table = ConnectionTable::new(connections.len());
        let mut open = Vec::new();
        for letter in connections.chars() {
            let Some(place) = table.place().await else { panic!("there is room") };
            if letter.is_uppercase() {
                place.handle.has_session();
            }
            let busy = letter.eq_ignore_ascii_case(&'b').then(|| place.handle.begin());
            // A request that has been answered leaves no trace.
            drop(place.handle.begin());
            open.push((place, busy));
        }
        let mut another = std::pin::pin!(table.place());
        assert!(another.as_mut().now_or_never().is_none(), "the place is not free yet");
        let needed = open.iter().position(|(place, _)| place.needed().now_or_never().is_some());
        open.truncate(needed.unwrap_or(open.len()));
        assert_eq!(another.now_or_never().is_some(), needed.is_some());
        needed
    }

    #[tokio::test]
    async fn a_connection_without_a_session_is_closed_first_and_a_request_of_a_session_never() {
        for (connections, expected) in [
            ("iii", Some(0)),
            ("Iii", Some(1)),
            ("bi", Some(1)),
            ("Bb", Some(1)),
            ("IB", Some(0)),
            ("BI", Some(1)),
            ("IBb", Some(2)),
            ("BB", None),
        ] {
            assert_eq!(closed(connections).await, expected, "{connections}");
        }
    }
}
