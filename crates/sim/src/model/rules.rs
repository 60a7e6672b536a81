//! What a controller does with what it knows. The decisions are production's own: [`plan`] only chooses what to pass to
//! them, and that choice is the only difference between the variants.

use std::cmp::Ordering;

use tally_core::accounting::{Accounting, CausalSnapshot, PodFacts};
use tally_core::ids::{PodUid, Revision};
use tally_core::job::Uncounted;

use super::world::{Books, Controller, Faults, MAX_PODS, ModelState, PodMask, Pods, Status, UIDS, Write};

/// A part of the accounting of a Job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Counters,
    Uncounted,
}

/// How far the Pods must have been observed before a process may account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Not at all: revision 0 is passed.
    Open,
    /// Up to the revision of the Job, whichever process wrote it.
    Strict,
    /// Up to the newest revision of the Job that another writer wrote, whatever it changed.
    Foreign,
    /// Up to the newest revision at which another writer changed the accounting; not at all for a Job that was never
    /// accounted. Production, which is stricter with Jobs that it sees for the first time.
    Accounting,
    /// The same, but changes of this part are ignored.
    Overlooks(Part),
    /// The same, but everything that was accounted before a process started counts as its own.
    SinceStart,
    /// Up to the newest own release: "read your own writes".
    OwnReleases,
}

/// How long the response to an own release counts as knowledge about the Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlay {
    /// Until the Pod stream shows the same. Production, and equivalent to upstream's expectations.
    UntilSeen,
    /// Until the Pod has left the ledger: used for the tally, then forgotten.
    UntilTallied,
    /// Responses are ignored, only the stream counts.
    Never,
}

/// How finely requests are divided into steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// Sending, storing and responding are three steps.
    Fine,
    /// A request is stored when it is sent; only the response comes later. Requests that outlive their sender remain
    /// separate steps.
    Coarse,
}

/// One variant of the rule in one small world.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub pods: usize,
    pub controllers: usize,
    pub gate: Gate,
    pub overlay: Overlay,
    /// Status writes are conditional on the revision they were planned from.
    pub conditional: bool,
    /// After a restart both lists may be of any age, each independent of the other. Otherwise they are current.
    pub stale_lists: bool,
    /// The Pod stream reports its revision even when no Pod changes.
    pub bookmarks: bool,
    /// Releases wait until the record is committed. Otherwise the ledger of the in-flight write is trusted.
    pub write_ahead: bool,
    /// Pods are created during the run, so that a stale view may not have them yet.
    pub creation: bool,
    /// Pods have no owner at first, and no finalizer, and must be adopted before they finish.
    pub adoption: bool,
    /// Finished Pods without the finalizer may be deleted, so that a view may no longer have them.
    pub deletion: bool,
    /// How many UIDs the lists may contain.
    pub uncounted_limit: usize,
    pub faults: Faults,
    pub grain: Grain,
    /// Check only that no Pod is tallied twice.
    pub at_most_once_only: bool,
    /// Merge equivalent states. Off if a counterexample is wanted, so that its revisions stay correct.
    pub reduce: bool,
}

impl Setup {
    /// The rule of production, without faults.
    pub const fn production(pods: usize, controllers: usize) -> Self {
        Self {
            pods,
            controllers,
            gate: Gate::Accounting,
            overlay: Overlay::UntilSeen,
            conditional: true,
            stale_lists: true,
            bookmarks: true,
            write_ahead: true,
            creation: false,
            adoption: false,
            deletion: true,
            uncounted_limit: MAX_PODS,
            faults: Faults { crashes: 0, losses: 0, edits: 0, flips: 0, rewinds: 0 },
            grain: Grain::Coarse,
            at_most_once_only: false,
            reduce: true,
        }
    }
}

/// The Pods as one process knows them.
struct Sight {
    pods: Pods,
    released: PodMask,
}

impl PodFacts for Sight {
    fn is_tracked(&self, uid: &PodUid) -> bool {
        UIDS.iter()
            .position(|known| known == uid)
            .is_some_and(|pod| self.pods.is_tracked(pod) && self.released >> pod & 1 == 0)
    }
}

/// What a controller may do now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Plan {
    pub write: Option<Write>,
    pub releases: PodMask,
    pub adoptions: PodMask,
    /// The write would list a UID twice (I4).
    pub lists_twice: bool,
}

/// Plans like production: tally, then record, both in one write; and release what is recorded.
pub(super) fn plan(setup: &Setup, world: &ModelState, controller: &Controller) -> Plan {
    let mut plan = Plan::default();
    let books = world.books_at(controller.job_at);
    let sight = Sight { pods: world.pods_at(controller.pods_at), released: controller.released };
    let pods_at = Revision(controller.pods_at.into());
    let gate_at = Revision(controller.gate_at.into());

    // Conditional on the Pod being as it was seen: the only thing that happens to a Pod without an owner is its
    // adoption.
    for pod in (0..setup.pods).filter(|pod| sight.pods.is_loose(*pod) && world.pods().is_loose(*pod)) {
        plan.adoptions |= 1 << pod;
    }

    let committed = books.uncounted();
    if let Status::Idle = controller.status
        && let Some(snapshot) = CausalSnapshot::take(&committed, &sight, pods_at, gate_at)
    {
        let tally = snapshot.tally();
        let succeeded = books.succeeded() + tally.succeeded.len() as u16;
        let failed = books.failed() + tally.failed.len() as u16;
        let mut lists = tally.left;
        for (pod, uid) in UIDS.iter().enumerate().take(setup.pods) {
            if lists.len() >= setup.uncounted_limit {
                break;
            }
            if let Some(outcome) = sight.pods.outcome(pod).filter(|_| sight.pods.exists(pod)) {
                snapshot.record(&mut lists, uid, outcome);
            }
        }
        match Books::new(&lists, succeeded, failed) {
            Some(next) if next != books => {
                let moved = tally.succeeded.iter().chain(&tally.failed);
                let tallied = moved.filter_map(|uid| UIDS.iter().position(|known| known == uid));
                plan.write = Some(Write::new(next, tallied.fold(0, |mask, pod| mask | 1 << pod)));
            }
            Some(_) => {}
            None => plan.lists_twice = true,
        }
    }

    let believed = match controller.status {
        Status::Sent(write) if !setup.write_ahead => write.books().uncounted(),
        _ => committed,
    };
    if let Some(snapshot) = CausalSnapshot::take(&believed, &sight, pods_at, gate_at) {
        let under_way = controller.releasing | controller.release_done;
        for (pod, uid) in UIDS.iter().enumerate().take(setup.pods) {
            if under_way >> pod & 1 == 0 && snapshot.may_release(uid) {
                plan.releases |= 1 << pod;
            }
        }
    }
    plan
}

impl Gate {
    /// Whether an observed Job moves the gate, by the function that production calls.
    fn moves(self, before: Books, after: Books) -> bool {
        fn accounting(books: Books, uncounted: &Uncounted) -> Accounting<'_> {
            let counters = (books.succeeded().into(), books.failed().into());
            Accounting { counters, uncounted, indexes: ("", ""), verdict: [false; 4], deleting: false }
        }
        let (old, new) = (before.uncounted(), after.uncounted());
        let (mut before, after) = (accounting(before, &old), accounting(after, &new));
        match self {
            Gate::Open | Gate::Strict | Gate::OwnReleases => return false,
            Gate::Foreign => return true,
            Gate::Accounting | Gate::SinceStart => {}
            Gate::Overlooks(Part::Counters) => before.counters = after.counters,
            Gate::Overlooks(Part::Uncounted) => before.uncounted = after.uncounted,
        }
        before != after
    }
}

/// How a process updates its knowledge. Mirrors what the production ledger does with the same input.
impl Controller {
    /// A process that has just listed Jobs and Pods.
    pub fn started(setup: &Setup, world: &ModelState, job_at: u8, pods_at: u8) -> Self {
        let mut controller = Self { pods_at, ..Self::default() };
        controller.adopt_job(setup, world, job_at);
        controller.gate_at = match setup.gate {
            Gate::Accounting | Gate::Overlooks(_) if world.books_at(job_at) == Books::default() => 0,
            Gate::Open | Gate::OwnReleases | Gate::SinceStart => 0,
            Gate::Strict | Gate::Foreign | Gate::Accounting | Gate::Overlooks(_) => job_at,
        };
        controller
    }

    /// The Job as a stream, a list or a GET shows it.
    pub fn observe_job(&mut self, setup: &Setup, world: &ModelState, job_at: u8) {
        if job_at < self.job_at {
            return;
        }
        if job_at > self.job_at && setup.gate.moves(world.books_at(self.job_at), world.books_at(job_at)) {
            let answer_will_claim_it = self.status == Status::Stored(job_at);
            self.gate_before = if answer_will_claim_it { self.gate_at } else { 0 };
            self.gate_at = job_at;
        }
        self.adopt_job(setup, world, job_at);
    }

    /// The status write was stored at this revision, and the response says so.
    pub fn status_written(&mut self, setup: &Setup, world: &ModelState, written_at: u8) {
        self.status = Status::Idle;
        let gate_before = std::mem::take(&mut self.gate_before);
        match written_at.cmp(&self.job_at) {
            Ordering::Greater => self.adopt_job(setup, world, written_at),
            _ if setup.gate != Gate::Strict && self.gate_at == written_at => self.gate_at = gate_before,
            _ => {}
        }
    }

    fn adopt_job(&mut self, setup: &Setup, world: &ModelState, job_at: u8) {
        self.job_at = job_at;
        if setup.gate == Gate::Strict {
            self.gate_at = job_at;
        }
        self.forget_releases(setup, world);
    }

    /// The write conflicted, or its outcome is unknown.
    pub fn status_unwritten(&mut self) {
        self.status = Status::Refreshing;
        self.gate_before = 0;
    }

    pub fn observe_pods(&mut self, setup: &Setup, world: &ModelState, pods_at: u8) {
        self.pods_at = pods_at;
        self.forget_releases(setup, world);
    }

    /// The Pod no longer has the finalizer, and the response says so.
    pub fn release_answered(&mut self, setup: &Setup, world: &ModelState, pod: usize) {
        self.release_done &= !(1 << pod);
        if setup.gate == Gate::OwnReleases {
            self.gate_at = self.gate_at.max(world.release_revision(pod));
        }
        self.released |= 1 << pod;
        self.forget_releases(setup, world);
    }

    /// Drops what the overlay need not, or must not, contain any longer.
    fn forget_releases(&mut self, setup: &Setup, world: &ModelState) {
        if self.released == 0 {
            return;
        }
        self.released &= world.pods_at(self.pods_at).tracked();
        match setup.overlay {
            Overlay::UntilSeen => {}
            Overlay::UntilTallied => self.released &= world.books_at(self.job_at).recorded(),
            Overlay::Never => self.released = 0,
        }
    }
}
