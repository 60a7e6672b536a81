//! Leader election: a Lease that one process holds and renews. Pure; the caller sends the requests and provides the
//! time.
//!
//! There are two clocks. The wall clock is only written into the Lease for users to read. Whether the lease of another
//! process has expired is decided by the monotonic clock, from the time at which a change of the lease was last
//! observed: the clocks of two machines are never compared. A holder counts from before it sent a successful renewal,
//! and stops earlier than others may take over. Even so two processes may lead for a moment (a process may be paused
//! between reading the clock and acting); the controllers are built for that, and the Lease only keeps them from doing
//! everything twice.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tally_core::time::Timestamp;

use crate::controller::{Call, Kind, Reply, Verb};

/// The label of the Leases of Tally's controllers, whatever their names are, and its value for those that run Jobs.
pub const LABEL: &str = "tally.dev/lease-of";
pub const JOB_CONTROLLER: &str = "job-controller";

#[derive(Clone, Debug)]
pub struct Config {
    pub namespace: String,
    pub name: String,
    /// Identifies this process and no other.
    pub identity: String,
    /// How long others wait for a holder that does not renew.
    pub duration: Duration,
    /// How long a holder continues without a renewal.
    pub renew_deadline: Duration,
    /// The interval between attempts to renew, or to become the holder.
    pub retry_period: Duration,
    /// The holder runs all Jobs without another manager. Then the Lease has a label that says so.
    pub runs_jobs: bool,
}

/// Why the settings of a lease would not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseConfigError {
    #[error("the retry period must be at least 10ms")]
    RetryPeriod,
    #[error("the lease duration must be of whole seconds, at least one: the Lease has no finer field")]
    Duration,
    #[error(
        "the lease duration ({duration:?}) must be longer than the renew deadline ({renew_deadline:?}): a holder must \
         have stopped before others take over"
    )]
    RenewDeadlineTooLong { duration: Duration, renew_deadline: Duration },
    #[error(
        "the renew deadline ({renew_deadline:?}) must be at least twice the retry period ({retry_period:?}): one failed \
         renewal must not end a leadership"
    )]
    RenewDeadlineTooShort { renew_deadline: Duration, retry_period: Duration },
}

impl Config {
    pub fn check(&self) -> Result<(), LeaseConfigError> {
        let Self { duration, renew_deadline, retry_period, .. } = self;
        if *retry_period < Duration::from_millis(10) {
            return Err(LeaseConfigError::RetryPeriod);
        }
        if *duration < Duration::from_secs(1) || duration.subsec_nanos() != 0 {
            return Err(LeaseConfigError::Duration);
        }
        if duration <= renew_deadline {
            let (duration, renew_deadline) = (*duration, *renew_deadline);
            return Err(LeaseConfigError::RenewDeadlineTooLong { duration, renew_deadline });
        }
        if *renew_deadline < 2 * *retry_period {
            let (renew_deadline, retry_period) = (*renew_deadline, *retry_period);
            return Err(LeaseConfigError::RenewDeadlineTooShort { renew_deadline, retry_period });
        }
        Ok(())
    }
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub enum Step {
    Send(Call),
    /// Nothing, until this time on the monotonic clock.
    Wait(Duration),
}

/// How a response changed the leadership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    None,
    Gained,
    /// Another process leads.
    Lost,
}

pub struct Elector {
    config: Config,
    seen: Option<ObservedLease>,
    /// The observed lease is recent enough to build on: it was read, or written, in this very attempt.
    fresh: bool,
    sent: Option<LeaseRequest>,
    /// When the last successful renewal was sent.
    renewed_at: Option<Duration>,
    next_at: Duration,
}

struct ObservedLease {
    object: Value,
    lease: Lease,
    /// When it was first observed in this state.
    changed_at: Duration,
}

#[derive(Clone, Copy)]
struct LeaseRequest {
    at: Duration,
    what: LeaseVerb,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LeaseVerb {
    Read,
    Write,
    GiveBack,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Lease {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    uid: String,
    resource_version: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i32>,
    lease_transitions: Option<i32>,
}

impl Elector {
    pub fn new(config: Config) -> Self {
        Self { config, seen: None, fresh: false, sent: None, renewed_at: None, next_at: Duration::ZERO }
    }

    /// Until when this process leads; None if it does not.
    pub fn leads_until(&self) -> Option<Duration> {
        self.renewed_at.map(|at| at + self.config.renew_deadline)
    }

    /// The known holder of the lease, for users to read.
    pub fn holder(&self) -> &str {
        self.seen.as_ref().and_then(|seen| seen.lease.spec.holder_identity.as_deref()).unwrap_or_default()
    }

    /// Call it again after a response, and at the time that it returned.
    pub fn next(&mut self, now: Timestamp, at: Duration) -> Step {
        if at < self.next_at {
            return Step::Wait(self.next_at);
        }
        let (what, call) = if !self.fresh {
            (LeaseVerb::Read, self.call(Verb::Get, &self.config.name))
        } else if let Some(seen) = &self.seen {
            (LeaseVerb::Write, self.call(Verb::Update, &self.config.name).body(&self.held(seen, now)))
        } else {
            let spec = json!({
                "holderIdentity": self.config.identity, "leaseDurationSeconds": self.config.duration.as_secs(),
                "acquireTime": micro_time(now), "renewTime": micro_time(now), "leaseTransitions": 0,
            });
            let metadata = json!({"namespace": self.config.namespace, "name": self.config.name});
            let mut lease =
                json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec});
            self.label(&mut lease);
            (LeaseVerb::Write, self.call(Verb::Create, "").body(&lease))
        };
        self.sent = Some(LeaseRequest { at, what });
        // Even if no response is ever delivered, the next attempt is due.
        self.next_at = at + self.config.retry_period;
        self.fresh = false;
        Step::Send(call)
    }

    pub fn answered(&mut self, reply: &Reply, at: Duration) -> Change {
        let Some(sent) = self.sent.take() else { return Change::None };
        match (sent.what, reply) {
            (LeaseVerb::Read, Reply::Done(bytes)) => {
                if !self.see(bytes, at) {
                    return Change::None;
                }
                if self.is_held_by_another(at) {
                    let led = self.renewed_at.take().is_some();
                    return if led { Change::Lost } else { Change::None };
                }
                self.go_on(at);
                Change::None
            }
            (LeaseVerb::Read, reply) if reply.is_not_found() => {
                self.seen = None;
                self.go_on(at);
                Change::None
            }
            (LeaseVerb::Write, Reply::Done(bytes)) if self.see(bytes, at) => {
                self.fresh = true;
                self.next_at = sent.at + self.config.retry_period;
                let led = self.renewed_at.replace(sent.at).is_some();
                if led { Change::None } else { Change::Gained }
            }
            // Another process was faster, or an earlier write of ours succeeded and its response was lost. A holder
            // that cannot renew reads the lease soon: after a quarter of the period.
            (LeaseVerb::Write, _) if self.renewed_at.is_some() => {
                self.next_at = at + self.config.retry_period / 4;
                Change::None
            }
            _ => Change::None,
        }
    }

    /// Releases the lease, so that no process has to wait for it to expire. None if this process does not hold it.
    pub fn give_back(&mut self, now: Timestamp, at: Duration) -> Option<Call> {
        self.renewed_at.take()?;
        let seen = self.seen.as_ref()?;
        if seen.lease.spec.holder_identity.as_deref() != Some(&self.config.identity) {
            return None;
        }
        let mut lease = seen.object.clone();
        // A duration of zero is not valid.
        lease["spec"]["holderIdentity"] = "".into();
        lease["spec"]["leaseDurationSeconds"] = 1.into();
        lease["spec"]["renewTime"] = micro_time(now).into();
        self.sent = Some(LeaseRequest { at, what: LeaseVerb::GiveBack });
        Some(self.call(Verb::Update, &self.config.name).body(&lease))
    }

    fn call(&self, verb: Verb, name: &str) -> Call {
        Call::new(verb, Kind::LEASE, &self.config.namespace, name)
    }

    /// The lease as it was observed, but held by us. It contains its revision: no change of another writer is
    /// overwritten.
    fn label(&self, lease: &mut Value) {
        let labels = &mut lease["metadata"]["labels"];
        match (self.config.runs_jobs, labels.as_object_mut()) {
            (true, Some(labels)) => drop(labels.insert(LABEL.to_owned(), JOB_CONTROLLER.into())),
            (true, None) => *labels = json!({LABEL: JOB_CONTROLLER}),
            // Of a holder before this one.
            (false, Some(labels)) => drop(labels.remove(LABEL)),
            (false, None) => {}
        }
    }

    fn held(&self, seen: &ObservedLease, now: Timestamp) -> Value {
        let mut lease = seen.object.clone();
        if !lease["spec"].is_object() {
            lease["spec"] = json!({});
        }
        self.label(&mut lease);
        let spec = &mut lease["spec"];
        if seen.lease.spec.holder_identity.as_deref() != Some(&self.config.identity) {
            spec["holderIdentity"] = self.config.identity.as_str().into();
            spec["acquireTime"] = micro_time(now).into();
            spec["leaseTransitions"] = seen.lease.spec.lease_transitions.unwrap_or(0).saturating_add(1).into();
        }
        spec["leaseDurationSeconds"] = self.config.duration.as_secs().into();
        spec["renewTime"] = micro_time(now).into();
        lease
    }

    /// False: not a lease that can be built on.
    fn see(&mut self, bytes: &[u8], at: Duration) -> bool {
        let Ok(object) = serde_json::from_slice::<Value>(bytes) else { return false };
        let Ok(lease) = Lease::deserialize(&object) else { return false };
        if lease.metadata.resource_version.is_empty() {
            return false;
        }
        let known = self.seen.as_ref().filter(|seen| seen.lease.metadata == lease.metadata);
        let changed_at = known.map_or(at, |seen| seen.changed_at);
        self.seen = Some(ObservedLease { object, lease, changed_at });
        true
    }

    fn is_held_by_another(&self, at: Duration) -> bool {
        let Some(seen) = &self.seen else { return false };
        let spec = &seen.lease.spec;
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let promised = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
        // The holder has stated for how long it holds the lease; we wait that long.
        !holder.is_empty() && holder != self.config.identity && at < seen.changed_at + Duration::from_secs(promised)
    }

    /// The second half of an attempt follows the first one at once.
    fn go_on(&mut self, at: Duration) {
        self.fresh = true;
        self.next_at = at;
    }
}

/// The times of Leases have microseconds.
fn micro_time(now: Timestamp) -> String {
    let whole = now.truncated().to_string();
    let micros = (now.millis() - now.truncated().millis()) * 1000;
    format!("{}.{micros:06}Z", whole.trim_end_matches('Z'))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {

    use super::*;
    use crate::controller::Refusal;

    const SECOND: Duration = Duration::from_secs(1);

    fn config(identity: &str) -> Config {
        Config {
            namespace: "kube-system".into(),
            name: "l".into(),
            identity: identity.into(),
            duration: 15 * SECOND,
            renew_deadline: 10 * SECOND,
            retry_period: 2 * SECOND,
            runs_jobs: identity != "ttl",
        }
    }

    /// A server with a single Lease.
    #[derive(Default)]
    struct Server {
        lease: Option<Value>,
        revision: u64,
    }

    impl Server {
        fn refuse(code: u16) -> Reply {
            Reply::Refused(Refusal { code, ..Refusal::default() })
        }

        fn perform(&mut self, call: &Call) -> Reply {
            let stored = self.lease.as_ref().map(|lease| lease["metadata"]["resourceVersion"].clone());
            let mut body: Value = serde_json::from_slice(&call.body.text()).unwrap_or_default();
            match (call.verb, stored) {
                (Verb::Get, Some(_)) => return self.show(),
                (Verb::Get | Verb::Update, None) => return Self::refuse(404),
                (Verb::Create, Some(_)) => return Self::refuse(409),
                (Verb::Update, Some(stored)) if body["metadata"]["resourceVersion"] != stored => {
                    return Self::refuse(409);
                }
                _ => {}
            }
            self.revision += 1;
            body["metadata"]["resourceVersion"] = self.revision.to_string().into();
            self.lease = Some(body);
            self.show()
        }

        fn show(&self) -> Reply {
            Reply::Done(self.lease.as_ref().unwrap().to_string().into())
        }

        fn spec(&self, field: &str) -> Value {
            self.lease.as_ref().map(|lease| lease["spec"][field].clone()).unwrap_or_default()
        }
    }

    fn wall(at: Duration) -> Timestamp {
        Timestamp::from_millis(at.as_millis() as i64)
    }

    /// Carries out everything that is due now. Returns what changed.
    fn run(elector: &mut Elector, server: &mut Server, at: Duration) -> Vec<Change> {
        let mut changes = Vec::new();
        while let Step::Send(call) = elector.next(wall(at), at) {
            let reply = server.perform(&call);
            let change = elector.answered(&reply, at);
            if change != Change::None {
                changes.push(change);
            }
        }
        changes
    }

    #[test]
    fn the_first_becomes_the_holder_and_renews() {
        let (mut server, mut one) = (Server::default(), Elector::new(config("one")));
        assert_eq!(run(&mut one, &mut server, SECOND), [Change::Gained]);
        assert_eq!(one.leads_until(), Some(11 * SECOND));
        assert_eq!(
            server.lease.as_ref().unwrap()["spec"],
            json!({
                "holderIdentity": "one", "leaseDurationSeconds": 15, "leaseTransitions": 0,
                "acquireTime": "1970-01-01T00:00:01.000000Z", "renewTime": "1970-01-01T00:00:01.000000Z",
            })
        );
        assert!(run(&mut one, &mut server, Duration::from_millis(2_999)).is_empty());
        assert_eq!(server.revision, 1, "not yet");
        run(&mut one, &mut server, Duration::from_millis(3_250));
        assert_eq!((server.revision, one.leads_until()), (2, Some(Duration::from_millis(13_250))));
        assert_eq!(server.spec("renewTime"), "1970-01-01T00:00:03.250000Z");
        assert_eq!(server.spec("acquireTime"), "1970-01-01T00:00:01.000000Z");
    }

    #[test]
    fn others_wait_for_as_long_as_the_holder_has_promised_from_when_they_saw_it_change() {
        let (mut server, mut one, mut two) =
            (Server::default(), Elector::new(config("one")), Elector::new(config("two")));
        run(&mut one, &mut server, Duration::ZERO);
        // Its own clock shows a much later time: that means nothing.
        for at in [100, 102, 114] {
            assert!(run(&mut two, &mut server, at * SECOND).is_empty(), "{at}");
            assert_eq!(two.holder(), "one");
        }
        assert_eq!(run(&mut two, &mut server, 116 * SECOND), [Change::Gained]);
        assert_eq!((server.spec("holderIdentity"), server.spec("leaseTransitions")), ("two".into(), 1.into()));
        // The old holder resumes and learns that it has lost the lease.
        assert!(run(&mut one, &mut server, 200 * SECOND).is_empty(), "it only learns that something has changed");
        assert_eq!(run(&mut one, &mut server, 201 * SECOND), [Change::Lost]);
        assert_eq!(one.leads_until(), None);
    }

    #[test]
    fn a_lease_has_ended_once_the_promised_time_has_passed() {
        let (mut server, mut one, mut two) =
            (Server::default(), Elector::new(config("one")), Elector::new(config("two")));
        run(&mut one, &mut server, Duration::ZERO);
        assert!(run(&mut two, &mut server, 100 * SECOND).is_empty());
        assert_eq!(run(&mut two, &mut server, 115 * SECOND), [Change::Gained]);
    }

    /// Only a holder is in a hurry.
    #[test]
    fn a_candidate_that_came_too_late_waits_for_the_whole_period() {
        let (mut server, mut one, mut two) =
            (Server::default(), Elector::new(config("one")), Elector::new(config("two")));
        let Step::Send(read) = two.next(wall(SECOND), SECOND) else { panic!("a read is due") };
        two.answered(&server.perform(&read), SECOND);
        run(&mut one, &mut server, SECOND);
        let Step::Send(create) = two.next(wall(SECOND), SECOND) else { panic!("a write is due") };
        assert_eq!(two.answered(&server.perform(&create), SECOND), Change::None);
        assert_eq!(two.next(wall(SECOND), SECOND), Step::Wait(3 * SECOND));
    }

    #[test]
    fn a_lease_that_is_given_back_is_taken_at_once() {
        let (mut server, mut one, mut two) =
            (Server::default(), Elector::new(config("one")), Elector::new(config("two")));
        run(&mut one, &mut server, Duration::ZERO);
        run(&mut two, &mut server, Duration::ZERO);
        let call = one.give_back(wall(SECOND), SECOND).unwrap();
        server.perform(&call);
        assert_eq!(one.leads_until(), None);
        assert_eq!((server.spec("holderIdentity"), server.spec("leaseDurationSeconds")), ("".into(), 1.into()));
        assert_eq!(run(&mut two, &mut server, 2 * SECOND), [Change::Gained]);
        assert_eq!(server.spec("leaseDurationSeconds"), 15);
        assert!(one.give_back(wall(SECOND), SECOND).is_none(), "only what one has can be given back");
    }

    #[test]
    fn what_others_wrote_into_the_lease_stays() {
        let mut server = Server::default();
        run(&mut Elector::new(config("one")), &mut server, Duration::ZERO);
        let lease = server.lease.as_mut().unwrap();
        lease["metadata"]["labels"] = json!({"a": "b"});
        lease["spec"]["strategy"] = "OldestEmulationVersion".into();
        lease["spec"]["holderIdentity"] = Value::Null;
        assert_eq!(run(&mut Elector::new(config("two")), &mut server, Duration::ZERO), [Change::Gained]);
        let lease = server.lease.unwrap();
        assert_eq!(lease["metadata"]["labels"][LABEL], JOB_CONTROLLER);
        // A holder that does not run Jobs.
        let mut other = Server { lease: Some(lease.clone()), ..Server::default() };
        other.lease.as_mut().unwrap()["spec"]["holderIdentity"] = Value::Null;
        run(&mut Elector::new(config("ttl")), &mut other, Duration::ZERO);
        assert_eq!(other.lease.unwrap()["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(
            (&lease["metadata"]["labels"]["a"], &lease["spec"]["strategy"]),
            (&"b".into(), &"OldestEmulationVersion".into())
        );
    }

    #[test]
    fn a_holder_that_does_not_hear_of_its_renewal_reads_and_goes_on() {
        let (mut server, mut one) = (Server::default(), Elector::new(config("one")));
        run(&mut one, &mut server, Duration::ZERO);
        let Step::Send(renewal) = one.next(wall(2 * SECOND), 2 * SECOND) else { panic!("a renewal is due") };
        server.perform(&renewal);
        one.answered(&Reply::Unknown, 3 * SECOND);
        assert_eq!(one.leads_until(), Some(10 * SECOND), "what is not known does not count");
        assert!(run(&mut one, &mut server, 4 * SECOND).is_empty());
        assert_eq!(one.leads_until(), Some(14 * SECOND));
        assert_eq!(server.spec("leaseTransitions"), 0);
    }

    /// Others count from when they see the renewal, which is never before it was sent, and may be long before its
    /// response is read: a holder that counted from the response would still lead when another takes over.
    #[test]
    fn leadership_counts_from_the_request_and_not_from_its_answer() {
        let (mut server, mut one, mut two) =
            (Server::default(), Elector::new(config("one")), Elector::new(config("two")));
        let Step::Send(read) = one.next(wall(SECOND), SECOND) else { panic!("a read is due") };
        one.answered(&server.perform(&read), SECOND);
        // The creation takes eight seconds to be answered, and so does the renewal after it.
        for (sent, answered) in [(SECOND, 9 * SECOND), (10 * SECOND, 18 * SECOND)] {
            let Step::Send(write) = one.next(wall(sent), sent) else { panic!("a write is due at {sent:?}") };
            let reply = server.perform(&write);
            run(&mut two, &mut server, sent);
            let change = one.answered(&reply, answered);
            assert_eq!(change, if sent == SECOND { Change::Gained } else { Change::None });
            assert_eq!(one.leads_until(), Some(sent + 10 * SECOND));
        }
        // The next renewal never arrives: one has stopped before two takes over.
        assert!(matches!(one.next(wall(20 * SECOND), 20 * SECOND), Step::Send(_)));
        assert!(run(&mut two, &mut server, 24 * SECOND).is_empty());
        assert_eq!(run(&mut two, &mut server, 26 * SECOND), [Change::Gained]);
        assert!(one.leads_until().is_some_and(|until| until <= 25 * SECOND), "{:?}", one.leads_until());
    }

    #[test]
    fn refusals_are_waited_out() {
        let mut one = Elector::new(config("one"));
        for reply in [Server::refuse(403), Server::refuse(503), Reply::Unknown, Reply::Done("{}".into())] {
            let at = one.next_at;
            assert!(matches!(one.next(wall(at), at), Step::Send(_)));
            assert_eq!(one.answered(&reply, at), Change::None);
            assert_eq!(one.next(wall(at), at), Step::Wait(at + 2 * SECOND), "{reply:?}");
        }
    }

    /// Three processes, each with its own clock, and requests and responses that are late or get lost: as long as a
    /// process checks its clock before it acts, there is never more than one leader.
    #[test]
    fn there_is_one_leader_at_most_whatever_is_late_or_lost() {
        let mut gained = 0;
        for seed in 0..30_u64 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut dice = |sides: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % sides
            };
            let mut server = Server::default();
            let offsets = [dice(100), dice(100), dice(100)].map(|seconds| seconds as u32 * SECOND);
            let mut electors = ["a", "b", "c"].map(|identity| Elector::new(config(identity)));
            let mut down_until = [Duration::ZERO; 3];
            let mut coming: [Option<(Reply, Duration)>; 3] = [const { None }; 3];
            for step in 0..800_u32 {
                let true_time = step * SECOND / 4;
                for who in 0..3 {
                    let at = true_time + offsets[who];
                    if dice(200) == 0 {
                        down_until[who] = true_time + dice(30) as u32 * SECOND;
                    }
                    if let Some((heard, _)) = coming[who].take_if(|(_, due)| *due <= true_time) {
                        gained += usize::from(electors[who].answered(&heard, at) == Change::Gained);
                    }
                    if coming[who].is_some() {
                        continue;
                    }
                    let Step::Send(call) = electors[who].next(wall(at), at) else { continue };
                    let (down, before, after) = (true_time < down_until[who], dice(10) == 0, dice(10) == 0);
                    let reply = if down || before { Reply::Unknown } else { server.perform(&call) };
                    let heard = if after { Reply::Unknown } else { reply };
                    let takes = if dice(4) == 0 { dice(40) as u32 * SECOND / 4 } else { Duration::ZERO };
                    coming[who] = Some((heard, true_time + takes));
                }
                let leaders = (0..3)
                    .filter(|who| electors[*who].leads_until().is_some_and(|until| true_time + offsets[*who] < until));
                assert!(leaders.count() <= 1, "seed {seed}, {true_time:?}");
            }
        }
        assert!(gained > 60, "leadership moves in these runs: {gained}");
    }

    #[test]
    fn settings_that_would_not_work_are_refused() {
        let with = |duration: u64, deadline: u64, retry: u64| Config {
            duration: Duration::from_millis(duration),
            renew_deadline: Duration::from_millis(deadline),
            retry_period: Duration::from_millis(retry),
            ..config("one")
        };
        for (settings, hint) in [
            (with(15_000, 10_000, 2_000), ""),
            (with(2_000, 1_000, 500), ""),
            (with(1_000, 20, 10), ""),
            (with(10_000, 10_000, 2_000), "longer than the renew deadline"),
            (with(15_000, 3_999, 2_000), "at least twice the retry period"),
            (with(15_500, 10_000, 2_000), "whole seconds"),
            (with(0, 0, 2_000), "whole seconds"),
            (with(15_000, 10_000, 9), "at least 10ms"),
        ] {
            match settings.check() {
                Ok(()) => assert_eq!(hint, "", "{settings:?}"),
                Err(why) => assert!(!hint.is_empty() && why.to_string().contains(hint), "{settings:?}: {why}"),
            }
        }
    }
}
