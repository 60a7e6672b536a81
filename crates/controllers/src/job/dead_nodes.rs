//! REPL-8: Pods that terminate on a node that is dead. The Pod and its Node are read only once the Pod has terminated for
//! as long as its Job waits; no Job that does not ask for it costs a request.

use tally_core::ids::{JobUid, PodUid};
use tally_core::time::{Span, Timestamp};

use super::{JobController, Pending};
use crate::wire::{Action, Answer, Object};
use tally_runtime::controller::Outbox;

/// A node that is alive, or a Pod that could not be read, is looked at again after this time at the latest.
const LOOK_AGAIN: Span = Span::from_seconds(60);

impl JobController {
    /// How long this Job waits, if it still does.
    fn gives_up_after(&mut self, job: &JobUid) -> Option<Span> {
        self.ledger_mut(job)?.1.job().gives_up_after()
    }

    /// The Pod as it is now, `judged_at` by the earlier of the two clocks.
    pub(super) fn pod_seen(
        &mut self,
        job: &JobUid,
        uid: &PodUid,
        answer: Answer,
        [judged_at, now]: [Timestamp; 2],
        out: &mut Outbox,
    ) {
        let Some(wait) = self.gives_up_after(job) else { return };
        let mut again_at = now + LOOK_AGAIN.min(wait);
        if let Answer::Done(Object::Pod(pod)) = answer
            && pod.uid == *uid
            && let Some(asked_at) = pod.deletion_asked_at
        {
            let left = asked_at + wait - judged_at;
            if left <= Span::ZERO && !pod.node_name.is_empty() {
                let action = Action::GetNode { name: pod.node_name.clone() };
                self.send(out, Pending::LookAtNode { job: job.clone(), pod: uid.clone() }, action);
                return;
            }
            again_at = now + left.max(Span::from_seconds(1));
        }
        self.look_again(job, uid, again_at, now, out);
    }

    /// A Node that does not exist is dead, too.
    pub(super) fn node_seen(
        &mut self,
        job: &JobUid,
        uid: &PodUid,
        answer: Answer,
        [judged_at, now]: [Timestamp; 2],
        out: &mut Outbox,
    ) {
        let Some(wait) = self.gives_up_after(job) else { return };
        let left = match answer {
            Answer::Gone => Span::ZERO,
            Answer::Node { not_ready_since: Some(since) } => since + wait - judged_at,
            _ => LOOK_AGAIN.min(wait),
        };
        if left > Span::ZERO {
            return self.look_again(job, uid, now + left, now, out);
        }
        let Some((slot, ledger)) = self.ledger_mut(job) else { return };
        ledger.pod_given_up(uid);
        self.plan(slot, now, out);
    }

    fn look_again(&mut self, job: &JobUid, uid: &PodUid, at: Timestamp, now: Timestamp, out: &mut Outbox) {
        let Some((slot, ledger)) = self.ledger_mut(job) else { return };
        ledger.look_again_at(uid, at);
        self.plan(slot, now, out);
    }
}
