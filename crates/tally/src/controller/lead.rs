//! Leader election: `Elector` decides, this module sends the requests and waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tally_runtime::controller::{Call, Reply};
use tally_runtime::driver::api::Api;
use tally_runtime::driver::{Observer, wall_clock};
use tally_runtime::lease::{Change, Config, Elector, Step};
use tokio::sync::watch;

/// A request for the lease is abandoned after this time: by then the next one is due.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

pub struct Candidate<A> {
    api: A,
    observer: Arc<dyn Observer>,
    config: Config,
    elector: Elector,
    begun: Instant,
    /// The last message logged about the lease, so that each message is logged once.
    said: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Leads,
    Lost,
    Stopped,
}

impl<A: Api> Candidate<A> {
    pub fn new(api: A, config: Config, observer: Arc<dyn Observer>) -> Self {
        Self {
            api,
            observer,
            elector: Elector::new(config.clone()),
            config,
            begun: Instant::now(),
            said: String::new(),
        }
    }

    /// Waits until this process leads.
    pub async fn run(&mut self, stop: &mut watch::Receiver<bool>) -> Outcome {
        loop {
            match self.step(stop).await {
                Some(Change::Gained) => return Outcome::Leads,
                Some(_) => self.tell_holder(),
                None => return Outcome::Stopped,
            }
        }
    }

    /// Keeps renewing the lease. Returns when leadership is no longer certain.
    pub async fn hold(&mut self, stop: &mut watch::Receiver<bool>) -> Outcome {
        loop {
            let left = self.elector.leads_until().map_or(Duration::ZERO, |until| until.saturating_sub(self.clock()));
            if left.is_zero() {
                return Outcome::Lost;
            }
            match self.step(stop).await {
                Some(Change::Lost) => return Outcome::Lost,
                Some(_) => {}
                None => return Outcome::Stopped,
            }
        }
    }

    /// Releases the lease, so that other instances need not wait for it to expire.
    pub async fn give_back(mut self) {
        let Some(call) = self.elector.give_back(wall_clock(), self.clock()) else { return };
        match self.send(&call, ANSWER_WITHIN).await {
            reply if reply.is_done() => tracing::info!(lease = self.config.name, "the lease was released"),
            reply => tracing::warn!(lease = self.config.name, "the lease could not be released: {}", why(&reply)),
        }
    }

    fn clock(&self) -> Duration {
        self.begun.elapsed()
    }

    /// `None`: stopped. Only a wait is interrupted, never a request: a renewal whose response is not read would leave a
    /// lease behind that cannot be released.
    async fn step(&mut self, stop: &mut watch::Receiver<bool>) -> Option<Change> {
        let at = self.clock();
        let leads_until = self.elector.leads_until();
        match self.elector.next(wall_clock(), at) {
            Step::Wait(until) => {
                let until = leads_until.map_or(until, |end| until.min(end));
                // Jitter, so that waiting instances do not all send their requests at the same time.
                let jitter = if leads_until.is_some() { 1.0 } else { 1.0 + fastrand::f64() / 5.0 };
                tokio::select! {
                    () = tokio::time::sleep(until.saturating_sub(at).mul_f64(jitter)) => Some(Change::None),
                    _ = stop.wait_for(|stop| *stop) => None,
                }
            }
            Step::Send(call) => {
                if *stop.borrow() {
                    return None;
                }
                // A request that is never answered must leave time for another attempt.
                let patience = ANSWER_WITHIN.min(self.config.renew_deadline / 2);
                let within = leads_until.map_or(patience, |end| end.saturating_sub(at).min(patience));
                let reply = self.send(&call, within).await;
                let took = self.clock() - at;
                let change = self.elector.answered(&reply, at + took);
                self.tell_trouble(&reply);
                if let Some(end) = leads_until.filter(|_| !reply.is_done()) {
                    let left = end.saturating_sub(at + took);
                    let lease = &self.config.name;
                    tracing::warn!(lease, ?took, ?left, "the lease was not renewed: {}", why(&reply));
                }
                Some(change)
            }
        }
    }

    async fn send(&self, call: &Call, within: Duration) -> Reply {
        let begun = Instant::now();
        let asked = tokio::time::timeout(within, self.api.call(call)).await;
        let reply = asked.map_or(Reply::Unknown, |response| response.reply);
        self.observer.request(call, &reply, begun.elapsed());
        reply
    }

    fn tell_holder(&mut self) {
        let holder = self.elector.holder();
        if !holder.is_empty() && holder != self.config.identity {
            let text = format!("{holder} leads; this process waits for the lease");
            self.say(text);
        }
    }

    fn tell_trouble(&mut self, reply: &Reply) {
        let ordinary = reply.is_done() || reply.is_not_found() || reply.is_conflict();
        // That the API server cannot be reached is logged elsewhere.
        let unreachable =
            matches!(reply, Reply::Unknown) || matches!(reply, Reply::Refused(refusal) if refusal.code >= 500);
        if !ordinary && !unreachable {
            let text = format!("the request for the lease was refused: {}", why(reply));
            self.say(text);
        }
    }

    fn say(&mut self, text: String) {
        if self.said != text {
            tracing::info!(lease = self.config.name, "{text}");
            self.said = text;
        }
    }
}

fn why(reply: &Reply) -> String {
    match reply {
        Reply::Refused(refusal) => format!("{} {}", refusal.code, refusal.message),
        _ => "no response".to_owned(),
    }
}

/// A name that no other process has.
pub fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = host.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    let host = if host.trim().is_empty() { "tally" } else { host.trim() };
    format!("{host}_{:016x}", fastrand::u64(..))
}
