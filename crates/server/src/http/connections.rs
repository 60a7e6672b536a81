//! Which connections are open, and which one is closed when a new client needs its place.
//!
//! Any client can open connections before it has authenticated. If new connections were refused while all places are
//! taken, one client could shut out all others. So a new connection gets a place, and the client that has most
//! connections loses one. Connections are counted by user once a request or a certificate has shown who the user is, and
//! by address before that. Those of administrators are closed last, and only while they are idle.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_metrics::{Counters, MetricRegistry};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::http::idle::Requests;

/// Who uses a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionOwner {
    /// A client that has not authenticated, at this address.
    Unknown(Option<IpAddr>),
    User(String),
    Administrator,
}

/// The open connections of a listener.
pub struct ConnectionTable {
    places: Arc<Semaphore>,
    limit: u32,
    open: Mutex<OpenConnections>,
    closed: Counters<1>,
}

#[derive(Default)]
struct OpenConnections {
    next_id: u64,
    /// By age: the oldest first.
    by_id: BTreeMap<u64, OpenConnection>,
}

struct OpenConnection {
    owner: ConnectionOwner,
    requests: Requests,
    close: Arc<Notify>,
}

impl ConnectionTable {
    /// `limit`: connections at once.
    pub fn new(limit: u32, metrics: &MetricRegistry) -> Arc<Self> {
        let closed = metrics.counters("tally_connections_closed", "Connections closed by the server", ["reason"]);
        let places = Arc::new(Semaphore::new(limit as usize));
        Arc::new(Self { places, limit, open: Mutex::default(), closed })
    }

    /// A place for a connection that has been accepted. If all are taken, another connection is closed for it; if none may
    /// be closed, this waits until one ends. None: the table was closed.
    pub async fn place(self: &Arc<Self>, address: Option<IpAddr>) -> Option<ConnectionPlace> {
        let permit = match self.places.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                self.close_one();
                self.places.clone().acquire_owned().await.ok()?
            }
        };
        let (requests, close) = (Requests::new(), Arc::new(Notify::new()));
        let mut open = self.lock();
        let id = open.next_id;
        open.next_id += 1;
        let owner = ConnectionOwner::Unknown(address.map(network));
        open.by_id.insert(id, OpenConnection { owner, requests: requests.clone(), close: close.clone() });
        let handle = ConnectionHandle { id, table: self.clone() };
        Some(ConnectionPlace { handle, requests, close, _permit: permit })
    }

    /// Resolves when all connections have ended.
    pub async fn all_ended(&self) {
        let _ = self.places.acquire_many(self.limit).await;
    }

    /// Counts a connection that the server closes.
    pub fn count_closed(&self, reason: &'static str) {
        self.closed.inc([reason.into()]);
    }

    fn close_one(&self) {
        let mut open = self.lock();
        let Some(id) = open.least_deserving() else { return };
        if let Some(connection) = open.by_id.remove(&id) {
            connection.close.notify_one();
            drop(open);
            self.count_closed("place_needed");
        }
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        // Every change is a single insertion, removal or assignment: it is whole even if a thread panicked.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnections {
    /// The connection to close: of the owner with most connections, an idle one before a busy one, the oldest first.
    fn least_deserving(&self) -> Option<u64> {
        let mut counts: HashMap<&ConnectionOwner, usize> = HashMap::new();
        for connection in self.by_id.values() {
            *counts.entry(&connection.owner).or_default() += 1;
        }
        let greedy = counts
            .into_iter()
            .filter(|(owner, _)| **owner != ConnectionOwner::Administrator)
            .max_by_key(|(owner, count)| (*count, matches!(owner, ConnectionOwner::Unknown(_))))
            .map(|(owner, _)| owner.clone());
        let owner = greedy.clone().unwrap_or(ConnectionOwner::Administrator);
        let mut candidates = self.by_id.iter().filter(|(_, connection)| connection.owner == owner);
        let oldest = candidates.clone().next().map(|(id, _)| *id);
        let idle = candidates.find(|(_, connection)| connection.requests.count() == 0).map(|(id, _)| *id);
        // Without another owner, all connections are of administrators.
        idle.or(oldest.filter(|_| greedy.is_some()))
    }
}

/// What counts as one address: a client with IPv6 usually has a network of 64 bits to choose addresses from.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address => address,
    }
}

/// The place of one connection, taken until this is dropped.
pub struct ConnectionPlace {
    pub handle: ConnectionHandle,
    /// The requests in flight on it.
    pub requests: Requests,
    close: Arc<Notify>,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionPlace {
    /// Resolves when another client needs the place.
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
    /// The client has authenticated.
    pub fn identify(&self, owner: ConnectionOwner) {
        if let Some(connection) = self.table.lock().by_id.get_mut(&self.id)
            && connection.owner != owner
        {
            connection.owner = owner;
        }
    }

    pub fn is_identified(&self) -> bool {
        let open = self.table.lock();
        open.by_id.get(&self.id).is_some_and(|open| !matches!(open.owner, ConnectionOwner::Unknown(_)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::Ipv4Addr;

    use futures_util::FutureExt;

    use super::*;

    const LIMIT: u32 = 8;

    struct Places {
        table: Arc<ConnectionTable>,
        open: Vec<ConnectionPlace>,
    }

    impl Places {
        fn new() -> Self {
            Self { table: ConnectionTable::new(LIMIT, &MetricRegistry::default()), open: Vec::new() }
        }

        /// Opens connections of an owner.
        async fn open(&mut self, count: usize, owner: ConnectionOwner) {
            for _ in 0..count {
                let address = match owner {
                    ConnectionOwner::Unknown(address) => address,
                    _ => address(1),
                };
                let place = self.table.place(address).await.unwrap();
                if !matches!(owner, ConnectionOwner::Unknown(_)) {
                    place.handle.identify(owner.clone());
                }
                self.open.push(place);
            }
        }

        /// Which connections are closed when one more is opened. None if it must wait.
        async fn closed_for_another(&mut self) -> Option<Vec<usize>> {
            let table = self.table.clone();
            let mut waiting = std::pin::pin!(table.place(address(9)));
            let mut place = waiting.as_mut().now_or_never();
            let mut closed = Vec::new();
            for (at, open) in self.open.iter().enumerate() {
                if open.needed().now_or_never().is_some() {
                    closed.push(at);
                }
            }
            for at in closed.iter().rev() {
                self.open.remove(*at);
            }
            if place.is_none() {
                place = waiting.now_or_never();
            }
            self.open.push(place??);
            Some(closed)
        }
    }

    fn address(number: u8) -> Option<IpAddr> {
        Some(Ipv4Addr::new(10, 0, 0, number).into())
    }

    fn unknown(number: u8) -> ConnectionOwner {
        ConnectionOwner::Unknown(address(number))
    }

    fn user(name: &str) -> ConnectionOwner {
        ConnectionOwner::User(name.to_owned())
    }

    #[tokio::test]
    async fn while_there_is_room_no_connection_is_closed() {
        let mut places = Places::new();
        places.open(LIMIT as usize - 1, unknown(1)).await;
        assert_eq!(places.closed_for_another().await, Some(vec![]));
        assert_eq!(places.closed_for_another().await, Some(vec![0]), "at the limit the oldest is closed");
    }

    #[tokio::test]
    async fn the_client_with_most_connections_loses_its_oldest_one() {
        for (owners, closed) in [
            (vec![(2, unknown(1)), (5, unknown(2)), (1, unknown(1))], 2),
            (vec![(3, unknown(1)), (5, user("a"))], 3),
            (vec![(4, user("a")), (4, unknown(1))], 4),
            (vec![(7, ConnectionOwner::Administrator), (1, unknown(1))], 7),
            (vec![(7, ConnectionOwner::Administrator), (1, user("a"))], 7),
            (vec![(8, ConnectionOwner::Administrator)], 0),
        ] {
            let mut places = Places::new();
            for (count, owner) in owners.clone() {
                places.open(count, owner).await;
            }
            assert_eq!(places.closed_for_another().await, Some(vec![closed]), "{owners:?}");
        }
    }

    #[tokio::test]
    async fn idle_connections_are_closed_first_and_busy_ones_of_administrators_never() {
        let mut places = Places::new();
        places.open(8, user("a")).await;
        let busy: Vec<_> = places.open[..3].iter().map(|place| place.requests.begin()).collect();
        assert_eq!(places.closed_for_another().await, Some(vec![3]));
        drop(busy);

        let mut places = Places::new();
        places.open(8, ConnectionOwner::Administrator).await;
        let _busy: Vec<_> = places.open.iter().map(|place| place.requests.begin()).collect();
        assert_eq!(places.closed_for_another().await, None);
    }
}
