//! Between the half that decides and the half that does: deeds go out, reports come in.
//!
//! Neither side waits for the other here, so neither queue can stop the other. Both stay short by the rules of their
//! content: a Pod has one preparation under way, a container one start or two signals and one check of each kind, and
//! every deed is answered by one report.
//!
//! Should the half that does be replaced by another, that one begins with what it finds on record, and `Recovered`. What
//! the node asks for before it has heard that is decided from what no longer is: it is dropped here, and what `carry` has
//! in its hands too. The node asks anew for whatever is still to be done.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_core::time::Span;
use tokio::sync::Notify;

use crate::port::{Deed, Failure, Report};

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
    /// The node has not heard yet that the half that does begins anew.
    outdated: bool,
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
        let mut inner = self.lock();
        for report in reports {
            if begins_anew(&report) {
                inner.outdated = true;
                inner.deeds.clear();
            }
            inner.reports.push(report);
        }
        drop(inner);
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
        let mut inner = self.lock();
        let reports = std::mem::take(&mut inner.reports);
        if let Some(last) = reports.iter().rfind(|report| begins_anew(report)) {
            inner.outdated = *last != Report::Recovered;
        }
        reports
    }

    pub(crate) fn post(&self, deeds: &mut Vec<Deed>) {
        if deeds.is_empty() {
            return;
        }
        let mut inner = self.lock();
        if inner.outdated {
            deeds.clear();
        } else {
            inner.deeds.append(deeds);
        }
        drop(inner);
        self.work.notify_one();
    }
}

fn begins_anew(report: &Report) -> bool {
    matches!(report, Report::Found { .. } | Report::Recovered)
}

/// Takes deeds to where they are done.
pub trait Sink: Send + Sync {
    /// Safe to cancel: then it has not been sent.
    fn send(&self, deed: &Deed) -> impl Future<Output = Sent> + Send;
}

/// What became of a deed on its way.
#[derive(Debug, PartialEq, Eq)]
pub enum Sent {
    Done,
    /// This one cannot be sent, and why. Others can.
    Unfit(String),
    /// Nothing will ever be done again.
    Gone,
}

/// The answer to a deed that cannot be sent. Only these can be large; a signal and a name are not.
fn refusal(deed: &Deed, why: &str) -> Option<Report> {
    let failure = |reason: &str, what: &str| {
        let message = format!("{what} cannot be sent to the process that would use it: {why}");
        Failure { reason: reason.into(), message, passing: false }
    };
    match deed {
        Deed::Prepare(order) => {
            let failure = failure("FailedMount", "what its volumes hold");
            Some(Report::Unprepared { pod: order.pod.clone(), failure })
        }
        Deed::Start(order) => {
            let failure = failure("CreateContainerError", "its command and environment");
            Some(Report::Unstarted { attempt: order.attempt.clone(), failure })
        }
        Deed::Check { id, .. } => Some(Report::Checked { id: *id, outcome: Err(failure("", "the check").message) }),
        Deed::Signal { .. } | Deed::Clean { .. } => None,
    }
}

/// Where reports come from.
pub trait Source: Send {
    /// None: there will be no more. Safe to cancel.
    fn next(&mut self) -> impl Future<Output = Option<Report>> + Send;
}

/// Carries deeds and reports until one of the two ends is gone. One task for both directions: so that nothing is sent
/// between the first word of a new half that does and the moment when what is outdated is dropped; and so that whoever
/// does not take deeds because nobody takes its reports is listened to.
pub async fn carry(mailbox: &Mailbox, sink: impl Sink, mut source: impl Source) {
    let mut hands: VecDeque<Deed> = VecDeque::new();
    loop {
        let next = hands.front();
        tokio::select! {
            report = source.next() => {
                let Some(report) = report else { return };
                if begins_anew(&report) {
                    hands.clear();
                }
                mailbox.report([report]);
            }
            sent = async { match next {
                Some(deed) => sink.send(deed).await,
                None => std::future::pending().await,
            } } => {
                let deed = hands.pop_front();
                match sent {
                    Sent::Done => {}
                    Sent::Unfit(why) => mailbox.report(deed.and_then(|deed| refusal(&deed, &why))),
                    Sent::Gone => return,
                }
            }
            deeds = mailbox.deeds(), if next.is_none() => hands.extend(deeds),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use tally_core::ids::PodUid;
    use tokio::sync::mpsc;

    impl Sink for mpsc::Sender<Deed> {
        async fn send(&self, deed: &Deed) -> Sent {
            match mpsc::Sender::send(self, deed.clone()).await {
                Ok(()) => Sent::Done,
                Err(_) => Sent::Gone,
            }
        }
    }

    impl Source for mpsc::Receiver<Report> {
        async fn next(&mut self) -> Option<Report> {
            self.recv().await
        }
    }

    fn clean(number: u128) -> Deed {
        Deed::Clean { pod: PodUid::from_u128(number) }
    }

    #[tokio::test]
    async fn what_was_asked_before_a_new_beginning_was_heard_is_dropped() {
        let mailbox = Mailbox::new();
        let (sink, mut done) = mpsc::channel(1);
        let (teller, source) = mpsc::channel(1);
        let carrier = tokio::spawn({
            let mailbox = mailbox.clone();
            async move { carry(&mailbox, sink, source).await }
        });
        // One is done, one waits in the channel, the third is in the carrier's hands.
        mailbox.post(&mut vec![clean(0), clean(1), clean(2)]);
        assert_eq!(done.recv().await, Some(clean(0)));
        while done.is_empty() {
            tokio::task::yield_now().await;
        }
        teller.send(Report::Found { pod: PodUid::from_u128(0), attempts: Vec::new() }).await.unwrap();
        mailbox.pokes.notified().await;
        assert_eq!(done.recv().await, Some(clean(1)), "it was on its way");
        mailbox.post(&mut vec![clean(3)]);
        assert_eq!(mailbox.take_reports().len(), 1);
        mailbox.post(&mut vec![clean(4)]);
        teller.send(Report::Recovered).await.unwrap();
        mailbox.pokes.notified().await;
        mailbox.post(&mut vec![clean(5)]);
        assert_eq!(mailbox.take_reports(), [Report::Recovered]);
        mailbox.post(&mut vec![clean(6)]);
        assert_eq!(done.recv().await, Some(clean(6)), "decided from what is");
        drop(teller);
        carrier.await.unwrap();
    }

    /// Takes no volumes.
    struct Narrow(mpsc::Sender<Deed>);

    impl Sink for Narrow {
        async fn send(&self, deed: &Deed) -> Sent {
            if matches!(deed, Deed::Prepare(_)) {
                return Sent::Unfit("99999999 bytes are too many".to_owned());
            }
            Sink::send(&self.0, deed).await
        }
    }

    #[tokio::test]
    async fn a_deed_that_cannot_be_sent_is_answered_and_the_others_go_on() {
        let mailbox = Mailbox::new();
        let (sink, mut done) = mpsc::channel(1);
        let (_teller, source) = mpsc::channel(1);
        tokio::spawn({
            let mailbox = mailbox.clone();
            async move { carry(&mailbox, Narrow(sink), source).await }
        });
        let pod = PodUid::from_u128(7);
        let (namespace, name) = ("default".into(), "large".into());
        let large = crate::port::Preparation { pod: pod.clone(), namespace, name, volumes: Vec::new() };
        mailbox.post(&mut vec![Deed::Prepare(Box::new(large)), clean(1)]);
        assert_eq!(done.recv().await, Some(clean(1)));
        let reports = mailbox.take_reports();
        let [Report::Unprepared { pod: told, failure }] = &reports[..] else { panic!("{reports:?}") };
        assert_eq!((told, failure.reason.as_str()), (&pod, "FailedMount"));
        assert!(failure.message.contains("99999999 bytes are too many"), "{}", failure.message);
    }

    #[tokio::test]
    async fn a_drain_can_only_become_shorter_and_its_end_is_heard() {
        let mailbox = Mailbox::new();
        for (within, expected) in [(5, 5), (9, 5), (0, 0)] {
            mailbox.drain(Span::from_seconds(within));
            assert_eq!(mailbox.drain_within(), Some(Span::from_seconds(expected)));
        }
        let waiter = tokio::spawn({
            let mailbox = mailbox.clone();
            async move { mailbox.drained().await }
        });
        mailbox.set_drained();
        waiter.await.unwrap();
    }
}
