//! How often an attempt of a Job has ended only because the node did.
//!
//! Such a Pod is taken out of its Job's account (`Options::release_lost`), and the Job makes another in its place. Without
//! a limit, a Pod that brings the node down would do so for ever. So the node counts: what a Pod did not survive is put
//! on record before the Pod is released, and the one that takes its place goes on from there. The Pod that does not
//! survive the last time stays and has failed. An orderly stop is asked for by a person and is not counted.
//!
//! The record is an annotation of the Node object: it lives as long as the Pods, and in the same store. Which Pod takes
//! the place of which is known for an index; without indexes Pods of a Job are alike, and the next one goes on from the
//! worst that is left. Who goes on from where is not on record: after a restart it is worked out again, perhaps with Pods
//! of a Job changing places, and that changes no count.

use std::collections::BTreeMap;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};
use tally_core::ids::PodUid;
use tally_core::time::{Span, Timestamp};

/// Restarts that an attempt may fail to survive until it has failed.
pub const MOST: u32 = 3;

/// Where the record is.
pub const ANNOTATION: &str = "node.tally.dev/lost-pods";

/// On record at once: twice the Pods that a node has at once by default. An annotation must stay small.
const MOST_ON_RECORD: usize = 500;

/// Jobs that were deleted or suspended put no Pod in place of those that were lost.
const FORGOTTEN_AFTER: Span = Span::from_seconds(3600);

/// Whose attempt it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// The UID.
    pub job: CompactString,
    /// Empty where the Job has none.
    #[serde(default, skip_serializing_if = "CompactString::is_empty")]
    pub index: CompactString,
}

#[derive(Debug)]
struct Loss {
    slot: Slot,
    restarts: u32,
    /// The Pod that goes on from here.
    successor: Option<PodUid>,
    /// Since when it has waited for one.
    since: Timestamp,
}

/// A loss as it is on record.
#[derive(Serialize, Deserialize)]
struct Line {
    pod: PodUid,
    #[serde(flatten)]
    slot: Slot,
    restarts: u32,
}

#[derive(Debug, Default)]
pub struct Losses {
    /// What an earlier life has put on record is known.
    known: bool,
    /// By the Pod that was lost last.
    losses: BTreeMap<PodUid, Loss>,
    /// As they are to be on record. Empty where there are none.
    text: String,
    /// They are.
    stored: bool,
}

impl Losses {
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// As it is to be on record.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What is on record. True: something has come of it.
    pub fn read(&mut self, text: &str, now: Timestamp) -> bool {
        if !self.known {
            self.known = true;
            // What others have written there is no count of ours.
            let lines: Vec<Line> = serde_json::from_str(text).unwrap_or_default();
            let lines = lines.into_iter().take(MOST_ON_RECORD);
            self.losses = lines
                .map(|Line { pod, slot, restarts }| (pod, Loss { slot, restarts, successor: None, since: now }))
                .collect();
            self.write();
            self.stored = self.text == text;
            return true;
        }
        let before = std::mem::replace(&mut self.stored, self.text == text);
        self.stored && !before
    }

    fn write(&mut self) {
        let line =
            |(pod, loss): (&PodUid, &Loss)| Line { pod: pod.clone(), slot: loss.slot.clone(), restarts: loss.restarts };
        let lines: Vec<_> = self.losses.iter().map(line).collect();
        let text = if lines.is_empty() { None } else { serde_json::to_string(&lines).ok() };
        self.text = text.unwrap_or_default();
        self.stored = false;
    }

    /// Those whose release waits for the record, or may.
    pub fn pods(&self) -> impl Iterator<Item = &PodUid> {
        self.losses.keys()
    }

    /// The restarts that the attempt of this Pod has not survived so far. `held`: Pods that are their Job's still have no
    /// successor.
    pub fn before(&mut self, pod: &PodUid, slot: &Slot, held: impl Fn(&PodUid) -> bool) -> u32 {
        // Counted already, and killed before it was released.
        if let Some(own) = self.losses.get(pod) {
            return own.restarts.saturating_sub(1);
        }
        let free = self.losses.iter_mut().filter(|(lost, loss)| {
            loss.slot == *slot && (loss.successor.is_none() && !held(lost) || loss.successor.as_ref() == Some(pod))
        });
        let Some((_, worst)) = free.max_by_key(|(_, loss)| loss.restarts) else { return 0 };
        worst.successor = Some(pod.clone());
        worst.restarts
    }

    /// The attempt has not survived so many restarts, with that of this Pod. True: that is on record.
    pub fn count(&mut self, pod: &PodUid, slot: &Slot, restarts: u32, now: Timestamp) -> bool {
        if restarts == 0 {
            return true;
        }
        if !self.losses.contains_key(pod) {
            self.losses.retain(|_, loss| loss.successor.as_ref() != Some(pod));
            self.losses.insert(pod.clone(), Loss { slot: slot.clone(), restarts, successor: None, since: now });
            while self.losses.len() > MOST_ON_RECORD {
                let oldest = self.losses.iter().min_by_key(|(_, loss)| (loss.successor.is_some(), loss.since));
                let Some(oldest) = oldest.map(|(lost, _)| lost.clone()) else { break };
                self.losses.remove(&oldest);
            }
            self.write();
        }
        self.stored
    }

    /// The attempt is over, one way or the other: the next one begins anew.
    pub fn over(&mut self, pod: &PodUid) {
        let before = self.losses.len();
        self.losses.retain(|lost, loss| lost != pod && loss.successor.as_ref() != Some(pod));
        if self.losses.len() != before {
            self.write();
        }
    }

    /// The Pod was released: another takes its place, or has.
    pub fn left(&mut self, pod: &PodUid, now: Timestamp) {
        for loss in self.losses.values_mut().filter(|loss| loss.successor.as_ref() == Some(pod)) {
            (loss.successor, loss.since) = (None, now);
        }
    }

    /// Whether what this Pod did not survive has been counted.
    pub fn has(&self, pod: &PodUid) -> bool {
        self.losses.contains_key(pod)
    }

    /// Forgets those that nobody goes on from.
    pub fn forget(&mut self, now: Timestamp, exists: impl Fn(&PodUid) -> bool) {
        let waits =
            |lost: &PodUid, loss: &Loss| loss.successor.is_some() || exists(lost) || loss.since + FORGOTTEN_AFTER > now;
        let before = self.losses.len();
        self.losses.retain(|lost, loss| waits(lost, loss));
        if self.losses.len() != before {
            self.write();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);

    fn slot(job: &str, index: &str) -> Slot {
        Slot { job: job.into(), index: index.into() }
    }

    fn uid(text: &str) -> PodUid {
        PodUid::new(text)
    }

    fn known(text: &str) -> Losses {
        let mut losses = Losses::default();
        losses.read(text, NOW);
        losses
    }

    fn nowhere(_: &PodUid) -> bool {
        false
    }

    #[test]
    fn an_attempt_goes_on_from_what_its_pods_before_did_not_survive() {
        let mut losses = known("");
        assert_eq!(losses.before(&uid("a"), &slot("j", "0"), nowhere), 0);
        assert!(!losses.count(&uid("a"), &slot("j", "0"), 1, NOW), "it is not on record yet");
        let text = losses.text().to_owned();
        assert_eq!(text, r#"[{"pod":"a","job":"j","index":"0","restarts":1}]"#);
        assert!(losses.read(&text, NOW));
        assert!(losses.count(&uid("a"), &slot("j", "0"), 1, NOW));
        // Killed now: it is found again, and not counted twice.
        let mut next = known(&text);
        assert_eq!(next.before(&uid("a"), &slot("j", "0"), nowhere), 0);
        // As long as it is there, nobody takes its place; then who is of the same index of the same Job.
        assert_eq!(next.before(&uid("b"), &slot("j", "0"), |pod| *pod == uid("a")), 0);
        for (other, expected) in [(slot("j", "1"), 0), (slot("k", "0"), 0), (slot("j", "0"), 1)] {
            assert_eq!(next.before(&uid("b"), &other, nowhere), expected);
        }
        assert_eq!(next.before(&uid("c"), &slot("j", "0"), nowhere), 0, "one takes its place, no more");
        next.count(&uid("b"), &slot("j", "0"), 2, NOW);
        assert_eq!(next.text(), r#"[{"pod":"b","job":"j","index":"0","restarts":2}]"#);
    }

    #[test]
    fn an_attempt_that_ended_by_itself_leaves_nothing_behind() {
        let mut losses = known(r#"[{"pod":"a","job":"j","restarts":1},{"pod":"b","job":"j","restarts":2}]"#);
        assert_eq!(losses.before(&uid("c"), &slot("j", ""), nowhere), 2, "the worst first");
        assert_eq!(losses.before(&uid("d"), &slot("j", ""), nowhere), 1);
        assert_eq!(losses.before(&uid("e"), &slot("j", ""), nowhere), 0);
        losses.over(&uid("c"));
        assert_eq!(losses.text(), r#"[{"pod":"a","job":"j","restarts":1}]"#);
        losses.left(&uid("d"), NOW);
        assert_eq!(losses.before(&uid("f"), &slot("j", ""), nowhere), 1, "it was released without having been counted");
        losses.over(&uid("f"));
        assert_eq!(losses.text(), "");
    }

    #[test]
    fn a_record_that_nobody_goes_on_from_is_forgotten_and_it_never_grows_too_long() {
        let mut losses = known(r#"[{"pod":"a","job":"j","restarts":1},{"pod":"b","job":"k","restarts":1}]"#);
        losses.before(&uid("c"), &slot("k", ""), nowhere);
        let (early, late) = (NOW + Span::from_seconds(3599), NOW + FORGOTTEN_AFTER);
        losses.forget(early, nowhere);
        assert_eq!(losses.pods().count(), 2);
        losses.forget(late, nowhere);
        assert_eq!(losses.text(), r#"[{"pod":"b","job":"k","restarts":1}]"#);
        for number in 0..MOST_ON_RECORD + 7 {
            losses.count(&uid(&format!("p{number:04}")), &slot("m", ""), 1, late + Span::from_millis(number as i64));
        }
        assert_eq!(losses.pods().count(), MOST_ON_RECORD);
        assert!(losses.pods().any(|pod| *pod == uid("b")), "somebody goes on from it");
        assert!(!losses.pods().any(|pod| *pod == uid("p0007")) && losses.pods().any(|pod| *pod == uid("p0008")));
        assert!(losses.text().len() < 100_000);
        // Ours alone.
        for text in ["nonsense", "{}", r#"[{"pod":1}]"#] {
            assert_eq!(known(text).text(), "");
        }
    }
}
