//! Between the half that decides and the half that does: deeds go out, reports come in.
//!
//! Neither side waits for the other here, so neither queue can stop the other. Both stay short by the rules of their
//! content: a Pod has one preparation under way, a container one start or two signals and one check of each kind, and
//! every deed is answered by one report.
//!
//! Should the half that does lose its memory, it says again what it finds on record, and `Recovered`. What it was asked
//! before it says that it drops, without a report: whatever is still to be done is asked for anew.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_core::time::Span;
use tokio::sync::Notify;

use crate::port::{Deed, Report};

#[derive(Debug, Default)]
pub struct Mailbox {
    inner: Mutex<Inner>,
    /// Wakes the node.
    pokes: Arc<Notify>,
    /// Wakes the half that does.
    work: Notify,
    drained: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    deeds: Vec<Deed>,
    reports: Vec<Report>,
    drain_within: Option<Span>,
    drained: bool,
}

impl Mailbox {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    // A panic while the lock is held leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the half that does: what to do next, in order, as soon as there is something. Safe to cancel. One reader.
    pub async fn deeds(&self) -> Vec<Deed> {
        loop {
            let deeds = self.take_deeds();
            if !deeds.is_empty() {
                return deeds;
            }
            self.work.notified().await;
        }
    }

    /// What there is to do now.
    pub fn take_deeds(&self) -> Vec<Deed> {
        std::mem::take(&mut self.lock().deeds)
    }

    /// For the half that does.
    pub fn report(&self, reports: impl IntoIterator<Item = Report>) {
        self.lock().reports.extend(reports);
        self.pokes.notify_one();
    }

    /// From now on nothing is started, and everything that runs is ended in order and reported. What still runs after
    /// `within`, or after the grace period of its Pod, is killed. There is no way back; said again, it can only become
    /// shorter: zero is at once.
    pub fn drain(&self, within: Span) {
        let mut inner = self.lock();
        inner.drain_within = Some(inner.drain_within.map_or(within, |before| before.min(within)));
        self.pokes.notify_one();
    }

    /// Waits until everything has ended and the API knows. For one waiter.
    pub async fn drained(&self) {
        while !self.is_drained() {
            self.drained.notified().await;
        }
    }

    pub fn is_drained(&self) -> bool {
        self.lock().drained
    }

    pub(crate) fn drain_within(&self) -> Option<Span> {
        self.lock().drain_within
    }

    pub(crate) fn set_drained(&self) {
        self.lock().drained = true;
        self.drained.notify_one();
    }

    pub(crate) fn pokes(&self) -> Arc<Notify> {
        self.pokes.clone()
    }

    pub(crate) fn take_reports(&self) -> Vec<Report> {
        std::mem::take(&mut self.lock().reports)
    }

    pub(crate) fn post(&self, deeds: &mut Vec<Deed>) {
        if !deeds.is_empty() {
            self.lock().deeds.append(deeds);
            self.work.notify_one();
        }
    }
}
