//! Leader election in the simulated world: production's elector, on a network and clocks that fail. An instance that
//! loses its lease ends, as its process does, and begins again as a candidate.

use std::time::Duration;

use tally_core::time::{Span, Timestamp};
use tally_runtime::controller::{Input, Outbox, Request, RequestId};
use tally_runtime::lease::{Change, Config, Elector, Step};

use crate::counters::Sometimes;
use crate::world::World;

pub(crate) struct Candidate {
    elector: Elector,
    asked: u64,
    in_flight: Option<RequestId>,
}

fn config(identity: String) -> Config {
    let seconds = Duration::from_secs;
    Config {
        namespace: "kube-system".to_owned(),
        name: "tally".to_owned(),
        identity,
        duration: seconds(15),
        renew_deadline: seconds(10),
        retry_period: seconds(2),
        runs_jobs: true,
    }
}

impl Candidate {
    pub(crate) fn new(identity: String) -> Self {
        Self { elector: Elector::new(config(identity)), asked: 0, in_flight: None }
    }

    fn leads(&self, at: Duration) -> bool {
        self.elector.leads_until().is_some_and(|until| at < until)
    }

    /// `at` is a clock that does not jump.
    pub(crate) fn handle(&mut self, input: Input, now: Timestamp, at: Duration, out: &mut Outbox) -> Change {
        let led = self.elector.leads_until().is_some();
        let mut change = Change::None;
        if let Input::Response { request, reply, .. } = input
            && self.in_flight == Some(request)
        {
            self.in_flight = None;
            change = self.elector.answered(&reply, at);
        }
        if led && change == Change::None && !self.leads(at) {
            return Change::Lost;
        }
        let mut wake_at = self.elector.leads_until();
        if self.in_flight.is_none() {
            match self.elector.next(now, at) {
                Step::Send(call) => {
                    self.asked += 1;
                    let id = RequestId(self.asked);
                    self.in_flight = Some(id);
                    out.requests.push(Request { id, call, about: 0 });
                }
                Step::Wait(until) => wake_at = wake_at.into_iter().chain([until]).min(),
            }
        }
        out.wake_at = wake_at.map(|wake_at| now + span(wake_at.saturating_sub(at)));
        change
    }
}

fn span(duration: Duration) -> Span {
    Span::from_millis(duration.as_nanos().div_ceil(1_000_000) as i64)
}

impl World {
    pub(crate) fn leadership_changed(&mut self, at: usize, change: &Change) {
        let Some(instance) = self.hosts[at].instance else { return };
        match change {
            Change::None => {}
            Change::Gained => {
                self.counters.hit(Sometimes::LeaseTaken);
                self.trace.say(|| format!("c{instance} leads"));
                let now = self.driver_now();
                // L1: a leader has stopped, by its own clock, before another instance may take over.
                let others = self.hosts.iter().filter(|host| host.instance != Some(instance));
                if others.filter_map(|host| host.candidate()).any(|candidate| candidate.leads(now)) {
                    self.oracle.fail("L1", format!("c{instance} leads, and so does another"));
                }
                for at in self.process_of(at) {
                    self.hosts[at].off = false;
                }
            }
            Change::Lost => {
                self.counters.hit(Sometimes::LeaseLost);
                self.trace.say(|| format!("c{instance} no longer leads, and ends"));
                self.crash(at);
            }
        }
    }

    /// No more elections: all instances lead, which is possible too, and only the counting is left to check.
    pub(crate) fn end_elections(&mut self) {
        for at in 0..self.hosts.len() {
            self.hosts[at].off = self.hosts[at].candidate().is_some();
        }
    }
}
