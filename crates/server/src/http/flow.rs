//! How much of the server one user can occupy: a small form of API priority and fairness.
//!
//! A request is processed on a seat, which it takes when its body has arrived and leaves when it is answered. A free seat
//! goes to the waiting user who has the fewest; some are reserved for administrators. Apart from seats a user has a limit for
//! open requests, for streams, for long lists that are being sent, and for bytes of bodies that are being received. What
//! exceeds a limit is answered with 429. Administrators have no limits but seats: they can do anything anyway.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tally_api::status_error::{Details, StatusError};
use tally_metrics::{Buckets, Counters, Gauges, Histograms, Label, MetricRegistry};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::auth::User;

/// How long a request may wait for a seat before the client is told to retry.
const SEAT_WITHIN: Duration = Duration::from_secs(30);
/// When a client that was refused may try again.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The limits of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowLimits {
    /// Seats: requests that are processed at once.
    pub seats: usize,
    /// Seats that only administrators can take.
    pub reserved_seats: usize,
    pub of_user: ShareLimits,
    /// Totals over all users: a user who may create service accounts can act as many users.
    pub of_all: ShareLimits,
}

/// What users can occupy, apart from seats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareLimits {
    /// Requests that are not answered yet, or whose response is being sent.
    pub requests: usize,
    /// Watches and logs.
    pub streams: usize,
    /// exec, attach and port-forward. Each has buffers, and a process.
    pub sessions: usize,
    /// Long lists that are being sent. Each holds references to all its objects.
    pub long_lists: usize,
    /// Bytes of bodies that have arrived and are not processed yet.
    pub body_bytes: usize,
}

impl Default for FlowLimits {
    fn default() -> Self {
        // A seat may need a body of 3 MiB; with two cores, more concurrency is not faster either.
        Self::with_seats(256)
    }
}

impl FlowLimits {
    /// The default limits with this number of seats, an eighth of which is reserved.
    pub const fn with_seats(seats: usize) -> Self {
        Self {
            seats,
            reserved_seats: seats / 8,
            // More streams than the informers of a control plane need.
            of_user: ShareLimits { requests: 1_024, streams: 256, sessions: 32, long_lists: 16, body_bytes: 64 << 20 },
            of_all: ShareLimits {
                requests: 8_192,
                streams: 4_096,
                sessions: 128,
                long_lists: 64,
                body_bytes: 256 << 20,
            },
        }
    }
}

impl ShareLimits {
    const fn of(&self, kind: ShareKind) -> usize {
        match kind {
            ShareKind::Request => self.requests,
            // Seats are waited for.
            ShareKind::Seat => usize::MAX,
            ShareKind::Stream => self.streams,
            ShareKind::Session => self.sessions,
            ShareKind::LongList => self.long_lists,
            ShareKind::BodyBytes => self.body_bytes,
        }
    }
}

/// What is shared between users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareKind {
    Request,
    Seat,
    Stream,
    LongList,
    BodyBytes,
    Session,
}

const KINDS: usize = 6;

impl ShareKind {
    /// The reason in the metric of rejected requests.
    const fn reason(self) -> &'static str {
        match self {
            Self::Request => "concurrency-limit",
            Self::Seat => "time-out",
            Self::Stream => "streams",
            Self::Session => "sessions",
            Self::LongList => "long-lists",
            Self::BodyBytes => "body-bytes",
        }
    }
}

pub struct FlowControl {
    limits: FlowLimits,
    state: Mutex<FlowState>,
    metrics: FlowMetrics,
}

#[derive(Default)]
struct FlowState {
    /// Only users who hold or wait for something.
    users: HashMap<FlowKey, UserShares>,
    /// Seats that administrators have.
    administrators: usize,
    /// What all others have.
    others: [usize; KINDS],
    /// Counts the seats that were given, to give them in turn.
    turn: u64,
}

/// The name of a user, and whether the user is an administrator: the name alone does not say.
type FlowKey = (String, bool);

#[derive(Default)]
struct UserShares {
    held: [usize; KINDS],
    waiting: VecDeque<(Arc<User>, oneshot::Sender<FlowShare>)>,
    last_turn: u64,
}

struct FlowMetrics {
    executing: Gauges<1>,
    queued: Gauges<1>,
    rejected: Counters<2>,
    dispatched: Counters<1>,
    waited: Histograms<1>,
}

impl FlowMetrics {
    fn new(metrics: &MetricRegistry, limits: &FlowLimits) -> Self {
        let level = "priority_level";
        let seats = metrics.gauges("apiserver_flowcontrol_nominal_limit_seats", "Seats, as configured", [level]);
        for (is_administrator, count) in [(true, limits.seats), (false, limits.seats - limits.reserved_seats)] {
            seats.set([priority_level(is_administrator)], i64::try_from(count).unwrap_or(i64::MAX));
        }
        Self {
            executing: metrics.gauges(
                "apiserver_flowcontrol_current_executing_requests",
                "Requests that have a seat",
                [level],
            ),
            queued: metrics.gauges(
                "apiserver_flowcontrol_current_inqueue_requests",
                "Requests that wait for a seat",
                [level],
            ),
            rejected: metrics.counters(
                "apiserver_flowcontrol_rejected_requests",
                "Requests answered with 429",
                [level, "reason"],
            ),
            dispatched: metrics.counters(
                "apiserver_flowcontrol_dispatched_requests",
                "Requests that got a seat",
                [level],
            ),
            waited: metrics.histograms(
                "apiserver_flowcontrol_request_wait_duration_seconds",
                "Time that requests waited for a seat",
                [level],
                Buckets::at(&[0.001, 0.01, 0.1, 1.0, 10.0, 30.0]),
            ),
        }
    }
}

/// The two priority levels, with names that Kubernetes has.
fn priority_level(is_administrator: bool) -> Label {
    if is_administrator { "exempt".into() } else { "global-default".into() }
}

/// A limit of the user is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyRequests;

impl From<TooManyRequests> for StatusError {
    fn from(_: TooManyRequests) -> Self {
        let details = Details { retry_after_seconds: RETRY_AFTER_SECONDS, ..Details::default() };
        Self::new(429, "TooManyRequests", "Too many requests, please try again later.").with(details)
    }
}

/// A part of what the user may occupy, until it is dropped.
pub struct FlowShare {
    flow: Arc<FlowControl>,
    user: Arc<User>,
    is_administrator: bool,
    kind: ShareKind,
    amount: usize,
}

impl FlowControl {
    pub fn new(limits: FlowLimits, metrics: &MetricRegistry) -> Arc<Self> {
        Arc::new(Self { limits, state: Mutex::default(), metrics: FlowMetrics::new(metrics, &limits) })
    }

    /// Takes a share, unless the user would have more than it may have. Seats are waited for instead ([`Self::seat`]).
    pub fn take(
        self: &Arc<Self>,
        user: &Arc<User>,
        kind: ShareKind,
        amount: usize,
    ) -> Result<FlowShare, TooManyRequests> {
        let (flow, user, is_administrator) = (self.clone(), user.clone(), user.is_master());
        let mut share = FlowShare { flow, user, is_administrator, kind, amount: 0 };
        share.grow(amount)?;
        Ok(share)
    }

    /// Waits for a seat.
    pub async fn seat(self: &Arc<Self>, user: &Arc<User>) -> Result<FlowShare, TooManyRequests> {
        let is_administrator = user.is_master();
        let level = priority_level(is_administrator);
        let began = Instant::now();
        let waiting = {
            let mut state = self.lock();
            if state.has_free_seat(is_administrator, &self.limits) {
                self.metrics.waited.observe([level], 0.0);
                return Ok(state.give_seat(self, user.clone(), is_administrator));
            }
            let (sender, receiver) = oneshot::channel();
            state.shares(user, is_administrator).waiting.push_back((user.clone(), sender));
            receiver
        };
        let seat = {
            let _queued = Queued::new(self, &user.name, is_administrator);
            timeout(SEAT_WITHIN, waiting).await
        };
        self.metrics.waited.observe([level], began.elapsed().as_secs_f64());
        match seat {
            Ok(Ok(seat)) => Ok(seat),
            _ => {
                self.count_rejected(ShareKind::Seat, is_administrator);
                Err(TooManyRequests)
            }
        }
    }

    fn count_rejected(&self, kind: ShareKind, is_administrator: bool) {
        self.metrics.rejected.inc([priority_level(is_administrator), kind.reason().into()]);
    }

    /// Gives back what a share held, and the free seats to requests that wait.
    fn release(self: &Arc<Self>, share: &FlowShare) {
        let given = {
            let mut state = self.lock();
            let key = (share.user.name.clone(), share.is_administrator);
            if let Some(shares) = state.users.get_mut(&key) {
                let held = &mut shares.held[share.kind as usize];
                *held = held.saturating_sub(share.amount);
            }
            if let Some(held) = state.held_by_all(share.kind, share.is_administrator) {
                *held = held.saturating_sub(share.amount);
            }
            let given = if share.kind == ShareKind::Seat {
                self.metrics.executing.add([priority_level(share.is_administrator)], -1);
                state.give_seats(self)
            } else {
                Vec::new()
            };
            state.forget_if_idle(&key);
            given
        };
        for (waiting, seat) in given {
            // If the request was cancelled meanwhile, its seat comes back and is released.
            let _ = waiting.send(seat);
        }
    }

    fn lock(&self) -> MutexGuard<'_, FlowState> {
        // Every change of the state is made of additions that cannot panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FlowState {
    fn shares(&mut self, user: &User, is_administrator: bool) -> &mut UserShares {
        self.users.entry((user.name.clone(), is_administrator)).or_default()
    }

    /// What all administrators, or all others, have of this kind. None: it is not counted.
    fn held_by_all(&mut self, kind: ShareKind, is_administrator: bool) -> Option<&mut usize> {
        match (kind, is_administrator) {
            (kind, false) => self.others.get_mut(kind as usize),
            (ShareKind::Seat, true) => Some(&mut self.administrators),
            (_, true) => None,
        }
    }

    fn has_free_seat(&self, is_administrator: bool, limits: &FlowLimits) -> bool {
        let others = self.others[ShareKind::Seat as usize];
        let is_free = self.administrators + others < limits.seats;
        is_free && (is_administrator || others < limits.seats - limits.reserved_seats)
    }

    fn give_seat(&mut self, flow: &Arc<FlowControl>, user: Arc<User>, is_administrator: bool) -> FlowShare {
        self.turn += 1;
        let turn = self.turn;
        if let Some(held) = self.held_by_all(ShareKind::Seat, is_administrator) {
            *held += 1;
        }
        let shares = self.shares(&user, is_administrator);
        shares.held[ShareKind::Seat as usize] += 1;
        shares.last_turn = turn;
        let level = priority_level(is_administrator);
        flow.metrics.executing.add([level.clone()], 1);
        flow.metrics.dispatched.inc([level]);
        FlowShare { flow: flow.clone(), user, is_administrator, kind: ShareKind::Seat, amount: 1 }
    }

    /// Gives free seats to requests that wait: first to those of administrators, then to the user with the fewest seats.
    fn give_seats(&mut self, flow: &Arc<FlowControl>) -> Vec<(oneshot::Sender<FlowShare>, FlowShare)> {
        let mut given = Vec::new();
        loop {
            let next = self.users.iter_mut().filter_map(|((_, is_administrator), shares)| {
                shares.waiting.retain(|(_, waiting)| !waiting.is_closed());
                (!shares.waiting.is_empty()).then_some((*is_administrator, shares))
            });
            let order = |(is_administrator, shares): &(bool, &mut UserShares)| {
                (!is_administrator, shares.held[ShareKind::Seat as usize], shares.last_turn)
            };
            let Some((is_administrator, shares)) = next.min_by_key(order) else { return given };
            let Some((user, waiting)) = shares.waiting.pop_front() else { return given };
            if !self.has_free_seat(is_administrator, &flow.limits) {
                self.shares(&user, is_administrator).waiting.push_front((user.clone(), waiting));
                return given;
            }
            given.push((waiting, self.give_seat(flow, user, is_administrator)));
        }
    }

    fn forget_if_idle(&mut self, key: &FlowKey) {
        let is_idle = |shares: &UserShares| shares.held == [0; KINDS] && shares.waiting.is_empty();
        if self.users.get(key).is_some_and(is_idle) {
            self.users.remove(key);
        }
    }
}

impl FlowShare {
    /// Takes more of the same.
    pub fn grow(&mut self, amount: usize) -> Result<(), TooManyRequests> {
        let FlowLimits { of_user, of_all, .. } = &self.flow.limits;
        let mut state = self.flow.lock();
        let held = state.shares(&self.user, self.is_administrator).held[self.kind as usize] + amount;
        let by_all = state.held_by_all(self.kind, self.is_administrator).map_or(0, |held| *held + amount);
        let is_within = self.is_administrator || (held <= of_user.of(self.kind) && by_all <= of_all.of(self.kind));
        if is_within {
            state.shares(&self.user, self.is_administrator).held[self.kind as usize] = held;
            if let Some(held) = state.held_by_all(self.kind, self.is_administrator) {
                *held = by_all;
            }
            self.amount += amount;
        }
        state.forget_if_idle(&(self.user.name.clone(), self.is_administrator));
        drop(state);
        if !is_within {
            self.flow.count_rejected(self.kind, self.is_administrator);
            return Err(TooManyRequests);
        }
        Ok(())
    }
}

impl Drop for FlowShare {
    fn drop(&mut self) {
        self.flow.clone().release(self);
    }
}

/// Counts a request as waiting for a seat.
struct Queued<'a> {
    flow: &'a FlowControl,
    name: &'a str,
    is_administrator: bool,
}

impl<'a> Queued<'a> {
    fn new(flow: &'a FlowControl, name: &'a str, is_administrator: bool) -> Self {
        flow.metrics.queued.add([priority_level(is_administrator)], 1);
        Self { flow, name, is_administrator }
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.flow.metrics.queued.add([priority_level(self.is_administrator)], -1);
        // The receiver has been dropped before this: a request that was cancelled or refused waits no more.
        let mut state = self.flow.lock();
        let key = (self.name.to_owned(), self.is_administrator);
        if let Some(shares) = state.users.get_mut(&key) {
            shares.waiting.retain(|(_, waiting)| !waiting.is_closed());
        }
        state.forget_if_idle(&key);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures_util::FutureExt;
    use tally_api::rbac::MASTERS;

    use super::*;

    fn user(name: &str) -> Arc<User> {
        Arc::new(User::new(name.to_owned(), String::new(), Vec::new()))
    }

    fn administrator() -> Arc<User> {
        Arc::new(User::new("admin".to_owned(), String::new(), vec![MASTERS.to_owned()]))
    }

    fn flow(seats: usize, reserved_seats: usize) -> Arc<FlowControl> {
        let of_user = ShareLimits { requests: 3, streams: 2, sessions: 1, long_lists: 1, body_bytes: 100 };
        let of_all = ShareLimits { requests: 5, streams: 3, sessions: 1, long_lists: 1, body_bytes: 150 };
        let limits = FlowLimits { seats, reserved_seats, of_user, of_all };
        FlowControl::new(limits, &MetricRegistry::default())
    }

    fn is_idle(flow: &FlowControl) -> bool {
        let state = flow.lock();
        state.users.is_empty() && state.administrators == 0 && state.others == [0; KINDS]
    }

    #[tokio::test]
    async fn some_seats_are_for_administrators_only() {
        let (flow, alice, admin) = (flow(4, 1), user("alice"), administrator());
        let mut seats = Vec::new();
        for _ in 0..3 {
            seats.push(flow.seat(&alice).now_or_never().unwrap().unwrap());
        }
        assert!(flow.seat(&alice).now_or_never().is_none(), "the fourth is reserved");
        seats.push(flow.seat(&admin).now_or_never().unwrap().unwrap());
        assert!(flow.seat(&admin).now_or_never().is_none(), "all are taken");
        seats.clear();
        assert!(is_idle(&flow));
    }

    /// What waits longest is not what is served next: the user with the fewest seats is.
    #[tokio::test]
    async fn a_free_seat_goes_to_the_user_with_the_fewest() {
        let flow = flow(4, 0);
        let (alice, bob, admin) = (user("alice"), user("bob"), administrator());
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(flow.seat(&alice).await.unwrap());
        }
        let order = Mutex::new(Vec::new());
        let waits = |who: &Arc<User>, name: &'static str| {
            let (flow, who, order) = (flow.clone(), who.clone(), &order);
            async move {
                let seat = flow.seat(&who).await.unwrap();
                order.lock().unwrap().push(name);
                seat
            }
        };
        let mut all = vec![
            waits(&alice, "alice 1").boxed_local(),
            waits(&alice, "alice 2").boxed_local(),
            waits(&bob, "bob 1").boxed_local(),
            waits(&bob, "bob 2").boxed_local(),
            waits(&admin, "admin").boxed_local(),
        ];
        let mut got = Vec::new();
        for round in 0.. {
            let mut rest = Vec::new();
            for mut waiting in all {
                match (&mut waiting).now_or_never() {
                    Some(seat) => got.push(seat),
                    None => rest.push(waiting),
                }
            }
            all = rest;
            if all.is_empty() {
                break;
            }
            assert!(round < 10, "they wait for ever");
            drop(if held.is_empty() { got.pop() } else { held.pop() });
        }
        assert_eq!(*order.lock().unwrap(), ["admin", "bob 1", "alice 1", "bob 2", "alice 2"]);
        drop(got);
        assert!(is_idle(&flow));
    }

    #[tokio::test]
    async fn a_cancelled_request_keeps_no_seat() {
        let (flow, alice, bob) = (flow(1, 0), user("alice"), user("bob"));
        let held = flow.seat(&alice).await.unwrap();
        for _ in 0..10 {
            assert!(flow.seat(&bob).now_or_never().is_none());
        }
        let mut waiting = Box::pin(flow.seat(&bob));
        assert!((&mut waiting).now_or_never().is_none());
        drop(held);
        // The seat was given and not received yet.
        drop(waiting);
        drop(flow.seat(&alice).now_or_never().expect("the seat is free").unwrap());
        assert!(is_idle(&flow));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_half_a_minute_at_most() {
        let (flow, alice) = (flow(1, 0), user("alice"));
        let _held = flow.seat(&alice).await.unwrap();
        let began = Instant::now();
        let Err(refused) = flow.seat(&alice).await else { panic!("there was no seat") };
        assert_eq!(began.elapsed(), SEAT_WITHIN);
        let status = StatusError::from(refused);
        assert_eq!((status.code, status.details.unwrap().retry_after_seconds), (429, 1));
    }

    #[test]
    fn a_user_has_as_much_as_its_limit_and_administrators_have_none() {
        let (flow, alice, bob, admin) = (flow(1, 0), user("alice"), user("bob"), administrator());
        let take = |who: &Arc<User>, kind, amount| flow.take(who, kind, amount);
        let requests: Vec<_> = (0..3).map(|_| take(&alice, ShareKind::Request, 1).unwrap()).collect();
        assert!(take(&alice, ShareKind::Request, 1).is_err());
        assert!(take(&bob, ShareKind::Request, 1).is_ok());
        assert!((0..100).all(|_| take(&admin, ShareKind::Request, 1).is_ok()));
        drop(requests);
        let mut body = take(&alice, ShareKind::BodyBytes, 60).unwrap();
        assert!(body.grow(40).is_ok());
        assert!(body.grow(1).is_err(), "one above the limit");
        let other = take(&bob, ShareKind::BodyBytes, 50).unwrap();
        assert!(take(&bob, ShareKind::BodyBytes, 1).is_err(), "one above the limit of all");
        assert!(take(&admin, ShareKind::BodyBytes, 1_000_000).is_ok());
        drop((body, other));
        assert!(is_idle(&flow));
    }
}
