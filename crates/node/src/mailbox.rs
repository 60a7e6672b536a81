//! The queues between the half that decides and the half that acts: commands go out, reports come in.
//!
//! Neither side waits for the other here, so neither queue can block the other. Both stay short because of the rules
//! for their content: a Pod has one preparation in progress, a container one start or two signals and one check of each
//! kind, and every command is answered by one report. A reader of output sends one message for every log file.
//!
//! If the shim is replaced by another one, the new one begins with what it finds in its record, and `Recovered`.
//! Commands that the node issues before it has read those reports are based on outdated state: they are dropped here,
//! as are those that `carry` holds. The node issues a new command for everything that is still to be done.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_core::time::Span;
use tokio::sync::Notify;

use crate::port::{Attempt, OperationError, Report, ShimCommand};

#[derive(Debug, Default)]
pub struct Mailbox {
    inner: Mutex<Inner>,
    /// Wakes the node.
    pokes: Arc<Notify>,
    /// Wakes the half that acts.
    work: Notify,
    drained: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    commands: Vec<ShimCommand>,
    reports: Vec<Report>,
    /// The node has not read yet that the shim has restarted.
    outdated: bool,
    drain_within: Option<Span>,
    drained: bool,
}

impl Mailbox {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    // A panic while the lock is held leaves no partial change.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the half that acts: the next commands, in order, as soon as there are any. Cancel safe. One reader.
    pub async fn commands(&self) -> Vec<ShimCommand> {
        loop {
            let commands = self.take_deeds();
            if !commands.is_empty() {
                return commands;
            }
            self.work.notified().await;
        }
    }

    /// The commands that are queued now.
    pub fn take_deeds(&self) -> Vec<ShimCommand> {
        std::mem::take(&mut self.lock().commands)
    }

    /// For the half that acts.
    pub fn report(&self, reports: impl IntoIterator<Item = Report>) {
        let mut inner = self.lock();
        for report in reports {
            if begins_anew(&report) {
                inner.outdated = true;
                inner.commands.clear();
            }
            inner.reports.push(report);
        }
        drop(inner);
        self.pokes.notify_one();
    }

    /// From now on nothing is started, and everything that runs is stopped in order and reported. Processes that still
    /// run after `within`, or after the grace period of their Pod, are killed. A drain cannot be revoked; a later call
    /// can only make the time shorter: zero is at once.
    pub fn drain(&self, within: Span) {
        let mut inner = self.lock();
        inner.drain_within = Some(inner.drain_within.map_or(within, |before| before.min(within)));
        self.pokes.notify_one();
    }

    /// Waits until everything has ended and the API has stored it. For one waiter.
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

    /// For the reader of an attempt's output: see `ShimCommand::OutputRead`. A shim that has been replaced since needs no
    /// such message.
    pub fn output_read(&self, attempt: Attempt, before: Option<u64>) {
        self.post(&mut vec![ShimCommand::OutputRead { attempt, before }]);
    }

    pub(crate) fn post(&self, commands: &mut Vec<ShimCommand>) {
        if commands.is_empty() {
            return;
        }
        let mut inner = self.lock();
        if inner.outdated {
            commands.clear();
        } else {
            inner.commands.append(commands);
        }
        drop(inner);
        self.work.notify_one();
    }
}

fn begins_anew(report: &Report) -> bool {
    matches!(report, Report::Found { .. } | Report::Recovered)
}

/// Sends commands to the half that acts.
pub trait Sink: Send + Sync {
    /// Cancel safe: if cancelled, the command has not been sent.
    fn send(&self, command: &ShimCommand) -> impl Future<Output = SendOutcome> + Send;
}

/// The outcome of sending a command.
#[derive(Debug, PartialEq, Eq)]
pub enum SendOutcome {
    Done,
    /// This command cannot be sent, and why. Others can.
    Unfit(String),
    /// No command will be carried out any more.
    Gone,
}

/// The report for a command that cannot be sent. Only these commands can be too large; signals and names are small.
fn refusal(command: &ShimCommand, why: &str) -> Option<Report> {
    let failure = |reason: &str, what: &str| {
        let message = format!("{what} cannot be sent to the process that would use it: {why}");
        OperationError { reason: reason.into(), message, passing: false }
    };
    match command {
        ShimCommand::Prepare(order) => {
            let failure = failure("FailedMount", "what its volumes hold");
            Some(Report::Unprepared { pod: order.pod.clone(), failure })
        }
        ShimCommand::Start(order) => {
            let failure = failure("CreateContainerError", "its command and environment");
            Some(Report::Unstarted { attempt: order.attempt.clone(), failure })
        }
        ShimCommand::Check { id, .. } => {
            Some(Report::Checked { id: *id, outcome: Err(failure("", "the check").message) })
        }
        ShimCommand::Signal { .. }
        | ShimCommand::Clean { .. }
        | ShimCommand::Measure { .. }
        | ShimCommand::RemoveVolumes { .. }
        | ShimCommand::RemoveClaim { .. }
        | ShimCommand::Session(_)
        | ShimCommand::OutputRead { .. } => None,
    }
}

/// Receives reports.
pub trait Source: Send {
    /// None: there will be no more. Cancel safe.
    fn next(&mut self) -> impl Future<Output = Option<Report>> + Send;
}

/// Carries commands and reports until one of the two ends is closed. One task serves both directions, for two reasons:
/// nothing is sent between the first report of a new shim and the moment when outdated commands are dropped; and a shim
/// that stops reading commands because its reports are not read is still read from.
pub async fn carry(mailbox: &Mailbox, sink: impl Sink, mut source: impl Source) {
    let mut hands: VecDeque<ShimCommand> = VecDeque::new();
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
                Some(command) => sink.send(command).await,
                None => std::future::pending().await,
            } } => {
                let command = hands.pop_front();
                match sent {
                    SendOutcome::Done => {}
                    SendOutcome::Unfit(why) => mailbox.report(command.and_then(|command| refusal(&command, &why))),
                    SendOutcome::Gone => return,
                }
            }
            commands = mailbox.commands(), if next.is_none() => hands.extend(commands),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use tally_core::ids::PodUid;
    use tokio::sync::mpsc;

    impl Sink for mpsc::Sender<ShimCommand> {
        async fn send(&self, command: &ShimCommand) -> SendOutcome {
            match mpsc::Sender::send(self, command.clone()).await {
                Ok(()) => SendOutcome::Done,
                Err(_) => SendOutcome::Gone,
            }
        }
    }

    impl Source for mpsc::Receiver<Report> {
        async fn next(&mut self) -> Option<Report> {
            self.recv().await
        }
    }

    fn clean(number: u128) -> ShimCommand {
        ShimCommand::Clean { pod: PodUid::from_u128(number) }
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
        // The first command is carried out, the second waits in the channel, the third is held by `carry`.
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

    /// Refuses preparations.
    struct Narrow(mpsc::Sender<ShimCommand>);

    impl Sink for Narrow {
        async fn send(&self, command: &ShimCommand) -> SendOutcome {
            if matches!(command, ShimCommand::Prepare(_)) {
                return SendOutcome::Unfit("99999999 bytes are too many".to_owned());
            }
            Sink::send(&self.0, command).await
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
        let large = crate::port::Preparation { pod: pod.clone(), volumes: Vec::new(), group: None };
        mailbox.post(&mut vec![ShimCommand::Prepare(Box::new(large)), clean(1)]);
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
