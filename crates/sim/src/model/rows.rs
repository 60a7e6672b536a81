//! The table of the design, row by row, and the rows that go further.

use std::fmt;

use super::rules::{Gate, Grain, Overlay, Part, Setup};
use super::steps::Breach;
use super::world::Faults;

/// The possible results of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Safe,
    CountsTwice,
    LosesPod,
    /// Nothing is lost, but the counters are wrong.
    Miscounts,
    GetsStuck,
    NeverRests,
    /// Lists, releases or tallies out of order, without a wrong result so far.
    BreaksRules,
    Unfinished,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Safe => "safe",
            Verdict::CountsTwice => "counts twice",
            Verdict::LosesPod => "loses a Pod",
            Verdict::Miscounts => "miscounts",
            Verdict::GetsStuck => "gets stuck",
            Verdict::NeverRests => "never rests",
            Verdict::BreaksRules => "breaks rules",
            Verdict::Unfinished => "unfinished",
        })
    }
}

impl From<Breach> for Verdict {
    fn from(breach: Breach) -> Self {
        match breach {
            Breach::TalliedTwice { .. } => Verdict::CountsTwice,
            Breach::Lost { .. } => Verdict::LosesPod,
            Breach::Miscounted => Verdict::Miscounts,
            Breach::Stuck { .. } => Verdict::GetsStuck,
            Breach::Endless => Verdict::NeverRests,
            Breach::ReleasedUnrecorded { .. } | Breach::ListedTwice | Breach::TalliedTracked { .. } => {
                Verdict::BreaksRules
            }
            Breach::HistoryFull | Breach::TooManyStates => Verdict::Unfinished,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub variant: &'static str,
    pub expected: Verdict,
    pub setup: Setup,
    /// A smaller world of the same kind, if this one takes too long for a test.
    pub quick: Option<Setup>,
}

const NONE: Faults = Faults { crashes: 0, losses: 0, edits: 0, flips: 0, rewinds: 0 };

/// Every phase of every request is a separate step.
const fn fine(pods: usize, controllers: usize, faults: Faults) -> Setup {
    Setup { grain: Grain::Fine, faults, ..Setup::production(pods, controllers) }
}

/// To production's functions deleted Pods look like released ones, so the large rows have no deletion.
const fn large(pods: usize, controllers: usize, faults: Faults) -> Setup {
    Setup { deletion: false, faults, ..Setup::production(pods, controllers) }
}

/// Pods are created during the run.
const fn late(pods: usize, controllers: usize, faults: Faults) -> Setup {
    Setup { creation: true, faults, ..Setup::production(pods, controllers) }
}

/// Every write of another writer moves the gate.
const fn foreign(setup: Setup) -> Setup {
    Setup { gate: Gate::Foreign, ..setup }
}

/// Pods have no owner at first.
const fn adopted(setup: Setup) -> Setup {
    Setup { adoption: true, ..setup }
}

/// A bad rule that might stop at a lesser violation must show that it counts twice.
const fn counted(gate: Gate, setup: Setup) -> Setup {
    Setup { gate, at_most_once_only: true, ..setup }
}

/// A batch is full with the first Pod.
const fn short_lists(setup: Setup) -> Setup {
    Setup { uncounted_limit: 1, ..setup }
}

const fn bad(variant: &'static str, expected: Verdict, setup: Setup) -> Row {
    Row { variant, expected, setup: Setup { reduce: false, ..setup }, quick: None }
}

const fn good(variant: &'static str, setup: Setup) -> Row {
    Row { variant, expected: Verdict::Safe, setup, quick: None }
}

/// The rows of the table.
pub const TABLE: [Row; 10] = [
    bad(
        "no gate, one controller, no crash",
        Verdict::CountsTwice,
        Setup { gate: Gate::Open, overlay: Overlay::UntilTallied, ..fine(1, 1, NONE) },
    ),
    bad(
        "in-memory expectations, one restart with a stale list",
        Verdict::CountsTwice,
        Setup { gate: Gate::Open, ..fine(1, 1, Faults { crashes: 1, ..NONE }) },
    ),
    bad(
        "expectations, read your own writes, consistent list; 2 controllers",
        Verdict::CountsTwice,
        Setup { gate: Gate::OwnReleases, stale_lists: false, ..fine(1, 2, NONE) },
    ),
    Row {
        quick: Some(Setup {
            gate: Gate::Strict,
            overlay: Overlay::UntilTallied,
            ..Setup { faults: Faults { crashes: 2, ..NONE }, ..Setup::production(1, 2) }
        }),
        ..good(
            "strict gate, 2 controllers, 2 restarts, stale lists",
            Setup { gate: Gate::Strict, overlay: Overlay::UntilTallied, ..fine(1, 2, Faults { crashes: 2, ..NONE }) },
        )
    },
    Row {
        quick: Some(foreign(Setup { faults: Faults { crashes: 2, ..NONE }, ..Setup::production(1, 2) })),
        ..good("foreign gate and own releases overlaid, same", foreign(fine(1, 2, Faults { crashes: 2, ..NONE })))
    },
    Row {
        quick: Some(foreign(large(2, 1, Faults { crashes: 1, ..NONE }))),
        ..good(
            "foreign gate and own releases overlaid, 2 Pods, 2 controllers, 1 crash",
            foreign(large(2, 2, Faults { crashes: 1, ..NONE })),
        )
    },
    bad(
        "foreign gate without the overlay of own releases",
        Verdict::CountsTwice,
        Setup { overlay: Overlay::UntilTallied, ..foreign(fine(1, 1, NONE)) },
    ),
    bad(
        "strict gate, but status written unconditionally",
        Verdict::CountsTwice,
        Setup { gate: Gate::Strict, conditional: false, ..fine(1, 2, NONE) },
    ),
    bad(
        "foreign gate, 2 Pods, the Pod view may go back within one process",
        Verdict::CountsTwice,
        foreign(fine(2, 1, Faults { rewinds: 1, ..NONE })),
    ),
    Row {
        quick: Some(Setup { gate: Gate::Strict, ..large(2, 1, Faults { rewinds: 1, ..NONE }) }),
        ..good("strict gate, same", Setup { gate: Gate::Strict, ..fine(2, 1, Faults { rewinds: 1, ..NONE }) })
    },
];

/// What the table does not cover: the controls that show where a hole is, the holes that are not double counting, and
/// the rule of production in larger and harsher worlds.
pub const FURTHER: [Row; 22] = [
    good("in-memory expectations, no restart", Setup { gate: Gate::Open, ..fine(1, 1, Faults { losses: 1, ..NONE }) }),
    good(
        "expectations, read your own writes, consistent list; 1 controller",
        Setup { gate: Gate::OwnReleases, stale_lists: false, ..fine(1, 1, Faults { crashes: 2, losses: 1, ..NONE }) },
    ),
    Row {
        quick: Some(Setup { overlay: Overlay::Never, at_most_once_only: true, ..foreign(fine(1, 2, NONE)) }),
        ..good(
            "foreign gate, answers to releases ignored (at most once only)",
            Setup {
                overlay: Overlay::Never,
                at_most_once_only: true,
                ..foreign(fine(1, 2, Faults { crashes: 1, losses: 1, ..NONE }))
            },
        )
    },
    bad(
        "finalizer released before the record is committed",
        Verdict::LosesPod,
        Setup { write_ahead: false, ..fine(1, 1, Faults { crashes: 1, ..NONE }) },
    ),
    bad(
        "foreign gate without bookmarks",
        Verdict::GetsStuck,
        Setup { bookmarks: false, ..foreign(fine(1, 1, Faults { crashes: 1, ..NONE })) },
    ),
    bad(
        "accounting gate that overlooks the counters, 2 controllers",
        Verdict::CountsTwice,
        counted(Gate::Overlooks(Part::Counters), fine(1, 2, NONE)),
    ),
    bad(
        "accounting gate that overlooks the lists, 1 Pod created late, 2 controllers",
        Verdict::CountsTwice,
        counted(Gate::Overlooks(Part::Uncounted), late(1, 2, NONE)),
    ),
    bad(
        "accounting gate that overlooks the lists, 1 Pod adopted, 2 controllers",
        Verdict::CountsTwice,
        counted(Gate::Overlooks(Part::Uncounted), adopted(fine(1, 2, NONE))),
    ),
    bad(
        "accounting gate, none for what was accounted before a restart",
        Verdict::CountsTwice,
        counted(Gate::SinceStart, fine(1, 1, Faults { crashes: 1, ..NONE })),
    ),
    bad(
        "accounting gate without bookmarks",
        Verdict::GetsStuck,
        Setup { bookmarks: false, ..fine(1, 1, Faults { crashes: 1, ..NONE }) },
    ),
    Row {
        quick: Some(Setup { faults: Faults { crashes: 2, ..NONE }, ..Setup::production(1, 2) }),
        ..good(
            "production: 1 Pod, 2 controllers, 2 restarts, stale lists; fine steps",
            fine(1, 2, Faults { crashes: 2, ..NONE }),
        )
    },
    Row {
        quick: Some(late(1, 2, Faults { edits: 2, ..NONE })),
        ..good(
            "production: 1 Pod created late, 2 controllers, a crash, 2 edits",
            late(1, 2, Faults { crashes: 1, edits: 2, ..NONE }),
        )
    },
    Row {
        quick: Some(adopted(fine(1, 1, Faults { crashes: 1, losses: 1, edits: 1, ..NONE }))),
        ..good(
            "production: 1 Pod adopted, 2 controllers, crash, loss, edit; fine steps",
            adopted(fine(1, 2, Faults { crashes: 1, losses: 1, edits: 1, ..NONE })),
        )
    },
    Row {
        quick: Some(adopted(large(2, 1, Faults { crashes: 1, ..NONE }))),
        ..good("production: 2 Pods adopted, 2 controllers, a loss", adopted(large(2, 2, Faults { losses: 1, ..NONE })))
    },
    Row {
        quick: Some(fine(1, 1, Faults { crashes: 1, losses: 1, edits: 1, ..NONE })),
        ..good(
            "production: 1 Pod, 2 controllers, a crash, a loss, an edit; fine steps",
            fine(1, 2, Faults { crashes: 1, losses: 1, edits: 1, ..NONE }),
        )
    },
    Row {
        quick: Some(late(1, 2, Faults { crashes: 1, ..NONE })),
        ..good(
            "production: 1 Pod created late, 2 controllers, 2 crashes, a loss, an edit",
            late(1, 2, Faults { crashes: 2, losses: 1, edits: 1, ..NONE }),
        )
    },
    Row {
        quick: Some(late(1, 1, Faults { crashes: 1, flips: 1, ..NONE })),
        ..good(
            "production: 1 Pod that flips, 2 controllers, a crash, a loss, an edit",
            late(1, 2, Faults { crashes: 1, losses: 1, edits: 1, flips: 1, ..NONE }),
        )
    },
    Row {
        quick: Some(fine(1, 1, Faults { crashes: 2, losses: 1, ..NONE })),
        ..good(
            "production: 2 Pods, 1 controller, 2 crashes, a loss; fine steps",
            Setup { deletion: false, ..fine(2, 1, Faults { crashes: 2, losses: 1, ..NONE }) },
        )
    },
    Row {
        quick: Some(short_lists(Setup { creation: true, ..large(2, 1, Faults { crashes: 1, ..NONE }) })),
        ..good(
            "production: 2 Pods created late, 2 controllers, a crash, lists of one",
            short_lists(Setup { creation: true, ..large(2, 2, Faults { crashes: 1, ..NONE }) }),
        )
    },
    Row {
        quick: Some(large(1, 2, Faults { crashes: 1, losses: 1, ..NONE })),
        ..good(
            "production: 2 Pods, 2 controllers, a crash, a loss",
            large(2, 2, Faults { crashes: 1, losses: 1, ..NONE }),
        )
    },
    Row {
        quick: Some(large(2, 1, Faults { losses: 1, edits: 1, ..NONE })),
        ..good("production: 3 Pods, 1 controller, a loss, an edit", large(3, 1, Faults { losses: 1, edits: 1, ..NONE }))
    },
    Row {
        quick: Some(short_lists(large(3, 1, NONE))),
        ..good("production: 3 Pods, 2 controllers, lists of one", short_lists(large(3, 2, NONE)))
    },
];
