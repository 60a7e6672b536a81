//! How often an attempt of a Job has ended only because the node did.
//!
//! Such a Pod is released without being counted (`NodeOptions::release_lost`), and the Job creates another one in its
//! place. Without a limit, a Pod that brings the node down would do so indefinitely. So the node counts: the loss of a
//! Pod is recorded before the Pod is released, and the Pod that replaces it continues from that count. The Pod whose
//! loss reaches the limit stays and has failed. An orderly stop is requested by a user and is not counted.
//!
//! The record is an annotation of the Node object: it exists as long as the Pods, and in the same store. Which Pod
//! replaces which is known for an index; without indexes the Pods of a Job are interchangeable, and the next one
//! continues from the highest count that is left. Which Pod continues from which count is not recorded: after a restart
//! it is computed again, perhaps with Pods of a Job in exchanged roles, and that changes no count.

use std::collections::BTreeMap;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};
use tally_core::ids::PodUid;
use tally_core::time::{Span, Timestamp};

/// The number of restarts that end an attempt for good: the loss with this number is a failure.
pub const MOST: u32 = 3;

/// The annotation that contains the record.
pub const ANNOTATION: &str = "node.tally.dev/lost-pods";

/// The maximum number of entries: twice the Pods that a node of the `tally` binary has. An annotation must stay small.
const MOST_ON_RECORD: usize = 500;

/// A Job that was deleted or suspended does not replace the Pods that were lost.
const FORGOTTEN_AFTER: Span = Span::from_seconds(3600);

/// The Job and index that an attempt belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSlot {
    /// The UID.
    pub job: CompactString,
    /// Empty if the Job is not Indexed.
    #[serde(default, skip_serializing_if = "CompactString::is_empty")]
    pub index: CompactString,
}

#[derive(Debug)]
struct Loss {
    slot: JobSlot,
    restarts: u32,
    /// The Pod that continues from this count.
    successor: Option<PodUid>,
    /// The time since which the loss has had no successor.
    since: Timestamp,
}

/// A loss as it is recorded.
#[derive(Serialize, Deserialize)]
struct Line {
    pod: PodUid,
    #[serde(flatten)]
    slot: JobSlot,
    restarts: u32,
}

#[derive(Debug, Default)]
pub struct Losses {
    /// The record of an earlier run of the node has been read.
    known: bool,
    /// By the Pod that was lost last.
    losses: BTreeMap<PodUid, Loss>,
    /// The losses as they should be recorded. Empty if there are none.
    text: String,
    /// The Node object contains `text`.
    stored: bool,
}

impl Losses {
    pub fn clock_set_back(&mut self, by: Span) {
        self.losses.values_mut().for_each(|loss| loss.since = loss.since - by);
    }

    pub fn is_known(&self) -> bool {
        self.known
    }

    /// The record as it should be stored.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Takes the stored record. True: Pods may be able to proceed now.
    pub fn read(&mut self, text: &str, now: Timestamp) -> bool {
        if !self.known {
            self.known = true;
            // Text that another writer has put there is not one of our records.
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

    /// The Pods whose release waits, or may wait, for the record.
    pub fn pods(&self) -> impl Iterator<Item = &PodUid> {
        self.losses.keys()
    }

    /// The number of restarts that ended earlier Pods of this Pod's attempt. `held`: a Pod that still has its finalizer
    /// has no successor.
    pub fn before(&mut self, pod: &PodUid, slot: &JobSlot, held: impl Fn(&PodUid) -> bool) -> u32 {
        // The Pod's loss was recorded already, and the node was killed before it released the Pod.
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

    /// Counts `restarts` losses of the attempt, including that of this Pod. True: the count is stored.
    pub fn count(&mut self, pod: &PodUid, slot: &JobSlot, restarts: u32, now: Timestamp) -> bool {
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

    /// The attempt has ended, successfully or not: the next one starts from zero.
    pub fn over(&mut self, pod: &PodUid) {
        let before = self.losses.len();
        self.losses.retain(|lost, loss| lost != pod && loss.successor.as_ref() != Some(pod));
        if self.losses.len() != before {
            self.write();
        }
    }

    /// The Pod was released: another Pod replaces it, or already has.
    pub fn left(&mut self, pod: &PodUid, now: Timestamp) {
        for loss in self.losses.values_mut().filter(|loss| loss.successor.as_ref() == Some(pod)) {
            (loss.successor, loss.since) = (None, now);
        }
    }

    /// Whether the loss of this Pod has been counted.
    pub fn has(&self, pod: &PodUid) -> bool {
        self.losses.contains_key(pod)
    }

    /// Removes losses that no Pod continues from.
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

    fn slot(job: &str, index: &str) -> JobSlot {
        JobSlot { job: job.into(), index: index.into() }
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
        // The node is killed now: the Pod is found again, and not counted twice.
        let mut next = known(&text);
        assert_eq!(next.before(&uid("a"), &slot("j", "0"), nowhere), 0);
        // While the Pod exists it has no successor; afterwards its successor is a Pod of the same index of the same
        // Job.
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
    fn a_record_without_a_pod_is_removed_and_the_annotation_stays_short() {
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
        assert!(losses.pods().any(|pod| *pod == uid("b")), "another Pod continues from it");
        assert!(!losses.pods().any(|pod| *pod == uid("p0007")) && losses.pods().any(|pod| *pod == uid("p0008")));
        assert!(losses.text().len() < 100_000);
        // Only our own format is accepted.
        for text in ["nonsense", "{}", r#"[{"pod":1}]"#] {
            assert_eq!(known(text).text(), "");
        }
    }
}
