//! A scheduler that prefers orders of events which a uniform choice rarely makes: a response between two pieces of a
//! list, a request that is carried out long after it was sent, a write whose response is lost, a watch that is behind.
//! A schedule gets some of these, and the same ones from its beginning to its end.

use tally_runtime::controller::{Call, Kind, Verb};

use crate::choices::Choices;
use crate::setup::Weights;
use crate::world::World;

/// What is late is late by this many steps at most: about the life of a Pod.
const LATE_STEPS: usize = 120;
/// A response that waits for a list to interrupt is delivered after this many further steps at the latest.
const PATIENCE: usize = 150;
/// A watch that is behind delivers something once in so many times.
const BEHIND: usize = 8;

/// Requests of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    Creation,
    Deletion,
    /// Releases and adoptions.
    PodPatch,
    Status,
    Read,
}

impl Traffic {
    fn of(call: &Call) -> Option<Self> {
        Some(match (call.kind, call.verb) {
            (Kind::POD, Verb::Create) => Self::Creation,
            (Kind::POD, Verb::Delete) => Self::Deletion,
            (Kind::POD, Verb::StrategicPatch) => Self::PodPatch,
            (Kind::JOB, Verb::MergePatch) => Self::Status,
            (Kind::POD | Kind::JOB, Verb::Get | Verb::List) => Self::Read,
            _ => return None,
        })
    }

    fn draw(choices: &mut Choices) -> Self {
        *choices.pick(&[Self::Creation, Self::Status, Self::PodPatch, Self::Deletion, Self::Read])
    }
}

/// What a world is biased towards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preference {
    Nothing,
    /// Some of all, or none.
    Anything,
    /// Responses between two pieces of a list.
    ListsInPieces,
    /// Responses that come when much has happened since.
    LateResponses,
    /// Requests that are carried out when their senders have given them up.
    LateRequests,
    /// Status writes whose response is lost, and Pods that change their phase meanwhile.
    LostWrites,
}

/// What is late or lost in a schedule.
#[derive(Clone, Debug, Default)]
pub struct Bias {
    slow_responses: Option<Traffic>,
    slow_requests: Option<Traffic>,
    lost_responses: Option<Traffic>,
    /// Watch events of this kind arrive late.
    slow_watch: Option<Kind>,
    /// Lists happen often and are read object by object, with bookmarks and late responses between the objects.
    pub pieces: bool,
    /// Pods often change from one final phase to the other.
    pub flips: bool,
}

impl Bias {
    pub fn draw(choices: &mut Choices, preference: Preference) -> Self {
        if preference == Preference::Nothing || preference == Preference::Anything && choices.below(4) == 0 {
            return Self::default();
        }
        let mut some = |of: usize| (choices.below(of) == 1).then(|| Traffic::draw(choices));
        let (slow_responses, slow_requests, lost_responses) = (some(2), some(3), some(3));
        let slow_watch = (choices.below(3) == 1).then(|| *choices.pick(&[Kind::POD, Kind::JOB]));
        let pieces = choices.below(2) == 1;
        let bias = Self { slow_responses, slow_requests, lost_responses, slow_watch, pieces, ..Self::default() };
        match preference {
            Preference::Nothing | Preference::Anything => bias,
            Preference::ListsInPieces => Self {
                slow_responses: Some(Traffic::Creation),
                pieces: true,
                slow_requests: None,
                lost_responses: None,
                ..bias
            },
            Preference::LateResponses => {
                let late = [Traffic::Creation, Traffic::Creation, Traffic::Status, Traffic::Read];
                let slow_responses = Some(*choices.pick(&late));
                Self { slow_responses, slow_requests: None, lost_responses: None, slow_watch: None, ..bias }
            }
            Preference::LateRequests => {
                let late = [Traffic::Creation, Traffic::PodPatch, Traffic::Deletion, Traffic::Creation];
                let slow_requests = Some(*choices.pick(&late));
                Self { slow_responses: None, slow_requests, lost_responses: None, slow_watch: None, ..bias }
            }
            Preference::LostWrites => {
                let slow_responses = slow_responses.map(|_| Traffic::Status);
                let lost_responses = Some(Traffic::Status);
                Self { slow_responses, lost_responses, slow_requests: None, flips: true, ..bias }
            }
        }
    }

    /// The faults without which the orders would not come about.
    pub fn tune(&self, weights: &mut Weights) {
        if self.pieces {
            weights.cut += 16;
            weights.bookmark += 6;
        }
        if self.slow_requests.is_some() {
            // Their senders give up before they are carried out.
            weights.drop_request += 3;
        }
    }
}

/// The step until which a request or a response waits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hold(usize);

impl Hold {
    /// `listing`: the receiver is reading a list, and this response would interrupt it.
    pub(crate) fn is_over(self, step: usize, listing: bool) -> bool {
        step >= if listing { self.0 } else { self.0 + PATIENCE.min(self.0) }
    }
}

impl World {
    fn hold(&mut self, slow: Option<Traffic>, call: &Call) -> Hold {
        match slow.filter(|slow| Traffic::of(call) == Some(*slow)) {
            None => Hold::default(),
            Some(_) => Hold(self.steps + self.choices.below(LATE_STEPS)),
        }
    }

    pub(crate) fn hold_request(&mut self, call: &Call) -> Hold {
        self.hold(self.setup.bias.slow_requests, call)
    }

    pub(crate) fn hold_response(&mut self, call: &Call) -> Hold {
        self.hold(self.setup.bias.slow_responses, call)
    }

    /// Whether requests of this kind are carried out late.
    pub(crate) fn is_slow(&self, call: &Call) -> bool {
        self.setup.bias.slow_requests.is_some() && Traffic::of(call) == self.setup.bias.slow_requests
    }

    /// The kind whose watches deliver nothing for now.
    pub(crate) fn watch_behind(&mut self) -> Option<Kind> {
        self.setup.bias.slow_watch.filter(|_| self.choices.below(BEHIND) > 0)
    }

    /// Whether the response to a request that was carried out is lost.
    pub(crate) fn loses_response(&mut self, call: &Call) -> bool {
        let lost = self.setup.bias.lost_responses;
        lost.is_some() && Traffic::of(call) == lost && self.choices.below(2) == 1
    }
}
