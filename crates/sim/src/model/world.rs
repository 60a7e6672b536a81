//! One state of the small world: a store with its history, the controllers that read it late, and the requests in
//! flight between them.
//!
//! Everything is a few bits wide, because millions of these are kept at a time and compared in full.

mod packed;

use tally_core::accounting::Outcome;
use tally_core::ids::PodUid;
use tally_core::job::Uncounted;

pub(super) use packed::Packed;

pub(super) const MAX_PODS: usize = 3;
pub(super) const MAX_CONTROLLERS: usize = 2;
/// Each Pod is created or adopted, finishes, flips, is released and deleted, and costs two status writes at most; the
/// largest setup stays below this. A run that does not is reported, not truncated.
pub(super) const MAX_EVENTS: usize = 18;
/// Requests whose sender no longer waits.
const MAX_LATE_WRITES: usize = 2;

/// Bit p stands for Pod p.
pub(super) type PodMask = u8;

pub(super) fn pods_in(mask: PodMask) -> impl Iterator<Item = usize> {
    (0..MAX_PODS).filter(move |pod| mask >> pod & 1 == 1)
}

pub(super) const UIDS: [PodUid; MAX_PODS] = [PodUid::from_u128(1), PodUid::from_u128(2), PodUid::from_u128(3)];

fn pod_of(uid: &PodUid) -> Option<usize> {
    UIDS.iter().position(|known| known == uid)
}

/// The status of the Job: two bits per Pod for the uncounted lists, three for each counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Books(u16);

impl Books {
    const SUCCEEDED: u32 = 2 * MAX_PODS as u32;
    const FAILED: u32 = Self::SUCCEEDED + 3;
    const BITS: u32 = Self::FAILED + 3;

    /// None if a UID is listed twice (I4).
    pub fn new(lists: &Uncounted, succeeded: u16, failed: u16) -> Option<Self> {
        let mut books = succeeded << Self::SUCCEEDED | failed << Self::FAILED;
        for (uids, code) in [(&lists.succeeded, 1), (&lists.failed, 2)] {
            for pod in uids.iter().filter_map(pod_of) {
                if books >> (2 * pod) & 3 != 0 {
                    return None;
                }
                books |= code << (2 * pod);
            }
        }
        Some(Self(books))
    }

    pub fn recorded_as(self, pod: usize) -> Option<Outcome> {
        match self.0 >> (2 * pod) & 3 {
            0 => None,
            1 => Some(Outcome::Succeeded),
            _ => Some(Outcome::Failed),
        }
    }

    pub fn recorded(self) -> PodMask {
        (0..MAX_PODS).fold(0, |mask, pod| mask | PodMask::from(self.0 >> (2 * pod) & 3 != 0) << pod)
    }

    pub fn succeeded(self) -> u16 {
        self.0 >> Self::SUCCEEDED & 7
    }

    pub fn failed(self) -> u16 {
        self.0 >> Self::FAILED & 7
    }

    pub fn uncounted(self) -> Uncounted {
        let mut lists = Uncounted::default();
        for (pod, uid) in UIDS.iter().enumerate() {
            match self.recorded_as(pod) {
                Some(Outcome::Succeeded) => lists.succeeded.push(uid.clone()),
                Some(Outcome::Failed) => lists.failed.push(uid.clone()),
                None => {}
            }
        }
        lists
    }
}

/// A status write: the books after it, and for the ghost which Pods it moved into a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Write(u16);

impl Write {
    pub fn new(books: Books, tallied: PodMask) -> Self {
        Self(books.0 | u16::from(tallied) << Books::BITS)
    }

    pub fn books(self) -> Books {
        Books(self.0 & ((1 << Books::BITS) - 1))
    }

    pub fn tallied(self) -> PodMask {
        (self.0 >> Books::BITS) as PodMask
    }
}

/// All Pods at one revision, four bits each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pods(u16);

impl Pods {
    const EXISTS: u16 = 0x111;
    const TRACKED: u16 = 0x222;
    const FINISHED: u16 = 0x444;
    const FAILED: u16 = 0x888;

    /// Running Pods with the finalizer.
    pub fn running(pods: usize) -> Self {
        (0..pods).fold(Self(0), |all, pod| all.after(PodEvent::Created, pod))
    }

    /// Running Pods without an owner.
    pub fn loose(pods: usize) -> Self {
        Self(Self::running(pods).0 & !Self::TRACKED)
    }

    pub fn after(self, event: PodEvent, pod: usize) -> Self {
        let only = |bits: u16| bits & 0xf << (4 * pod);
        Self(match event {
            PodEvent::Created => self.0 | only(Self::EXISTS | Self::TRACKED),
            PodEvent::Succeeded => self.0 & !only(Self::FAILED) | only(Self::FINISHED),
            PodEvent::Failed => self.0 | only(Self::FINISHED | Self::FAILED),
            PodEvent::Released => self.0 & !only(Self::TRACKED),
            PodEvent::Deleted => self.0 & !only(Self::EXISTS),
            PodEvent::Adopted => self.0 | only(Self::TRACKED),
        })
    }

    fn has(self, bits: u16, pod: usize) -> bool {
        self.0 & bits & 0xf << (4 * pod) != 0
    }

    pub fn exists(self, pod: usize) -> bool {
        self.has(Self::EXISTS, pod)
    }

    /// Without an owner: not released, because only finished Pods are.
    pub fn is_loose(self, pod: usize) -> bool {
        self.exists(pod) && !self.is_tracked(pod) && !self.is_finished(pod)
    }

    /// Absent Pods have no finalizer.
    pub fn is_tracked(self, pod: usize) -> bool {
        self.has(Self::TRACKED, pod)
    }

    pub fn is_finished(self, pod: usize) -> bool {
        self.has(Self::FINISHED, pod)
    }

    /// The outcome with which it finished. A running Pod has no outcome.
    pub fn outcome(self, pod: usize) -> Option<Outcome> {
        let as_what = if self.has(Self::FAILED, pod) { Outcome::Failed } else { Outcome::Succeeded };
        self.is_finished(pod).then_some(as_what)
    }

    pub fn tracked(self) -> PodMask {
        (0..MAX_PODS).fold(0, |mask, pod| mask | PodMask::from(self.is_tracked(pod)) << pod)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodEvent {
    Created,
    Succeeded,
    Failed,
    Released,
    Deleted,
    Adopted,
}

/// What happened at one revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Event(u16);

impl Event {
    const JOB: u16 = 1 << 15;

    fn job(books: Books) -> Self {
        Self(Self::JOB | books.0)
    }

    fn pod(event: PodEvent, pod: usize) -> Self {
        Self((event as u16) << 2 | pod as u16)
    }

    fn books(self) -> Option<Books> {
        (self.0 & Self::JOB != 0).then_some(Books(self.0 & !Self::JOB))
    }

    fn of_pod(self) -> Option<(PodEvent, usize)> {
        let event = match self.0 >> 2 {
            0 => PodEvent::Created,
            1 => PodEvent::Succeeded,
            2 => PodEvent::Failed,
            3 => PodEvent::Released,
            4 => PodEvent::Deleted,
            5 => PodEvent::Adopted,
            _ => return None,
        };
        Some((event, usize::from(self.0 & 3)))
    }
}

/// A status write of one controller, as its sender sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Status {
    #[default]
    Idle,
    /// In flight. If writes are conditional, the Job is still at the revision that this one was planned from. As soon
    /// as it is not, the status becomes `Refreshing`: a sender whose write can only conflict and one that has received
    /// the conflict can do the same things, namely no more writing before the Job has been read again.
    Sent(Write),
    /// Stored at this revision, not yet answered.
    Stored(u8),
    /// Conflict, or unknown outcome: the Job is being read again.
    Refreshing,
}

/// What one process knows, and what it waits for. All of it is lost in a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Controller {
    /// The revision of the Job in its view.
    pub job_at: u8,
    /// How far the Pods must have been observed: in production the newest revision at which another process changed
    /// the accounting of the Job, in other variants something else.
    pub gate_at: u8,
    /// `gate_at` before the newest observation, in case that turns out to be an own write. Kept only while the response
    /// that may say so is in flight.
    pub gate_before: u8,
    /// How far its Pods have been observed.
    pub pods_at: u8,
    /// Own releases that were answered and that the Pod stream has not shown yet.
    pub released: PodMask,
    /// Releases in flight, and those carried out but not answered.
    pub releasing: PodMask,
    pub release_done: PodMask,
    pub status: Status,
}

/// How many more of each fault may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Crashes with a restart, of any controller.
    pub crashes: u8,
    /// Requests or responses that get lost or whose sender gives up.
    pub losses: u8,
    /// Writes of the Job by a client that is not a controller.
    pub edits: u8,
    /// Finished Pods that change their outcome.
    pub flips: u8,
    /// How often the Pod view of a running process goes back.
    pub rewinds: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ModelState {
    // The store. Revision r is the world after the first r events.
    events: [Event; MAX_EVENTS],
    head: u8,
    first_pods: Pods,
    first_books: Books,

    pub controllers: [Controller; MAX_CONTROLLERS],
    /// Requests of senders that crashed or gave up. Each may still be carried out at any time, or get lost. No write is
    /// `Write::default()`: that would change nothing.
    late_writes: [Write; MAX_LATE_WRITES],
    pub late_releases: PodMask,
    pub faults: Faults,

    // The ghost: what is true, whether or not a controller knows it.
    pub tallied: PodMask,
    pub ever_recorded: PodMask,
}

/// The history is full: the setup is too large for this model.
#[derive(Clone, Copy, Debug)]
pub(super) struct HistoryFull;

impl ModelState {
    pub fn new(pods: Pods, faults: Faults) -> Self {
        Self {
            events: [Event::default(); MAX_EVENTS],
            head: 0,
            first_pods: pods,
            first_books: Books::default(),
            controllers: [Controller::default(); MAX_CONTROLLERS],
            late_writes: [Write::default(); MAX_LATE_WRITES],
            late_releases: 0,
            faults,
            tallied: 0,
            ever_recorded: 0,
        }
    }

    pub fn head(&self) -> u8 {
        self.head
    }

    // ---- reading ----

    fn history(&self) -> &[Event] {
        &self.events[..usize::from(self.head)]
    }

    pub fn pods_at(&self, revision: u8) -> Pods {
        self.events[..usize::from(revision)]
            .iter()
            .filter_map(|event| event.of_pod())
            .fold(self.first_pods, |pods, (event, pod)| pods.after(event, pod))
    }

    pub fn pods(&self) -> Pods {
        self.pods_at(self.head)
    }

    /// The books as written at exactly this revision, which is one of the Job's.
    pub fn books_at(&self, job_at: u8) -> Books {
        let written = usize::from(job_at).checked_sub(1).and_then(|index| self.events[index].books());
        written.unwrap_or(self.first_books)
    }

    /// The Job's own revision as of a revision of the store.
    pub fn job_revision_at(&self, revision: u8) -> u8 {
        let written = self.events[..usize::from(revision)].iter().rposition(|event| event.books().is_some());
        written.map_or(0, |index| index as u8 + 1)
    }

    pub fn job_revision(&self) -> u8 {
        self.job_revision_at(self.head)
    }

    pub fn books(&self) -> Books {
        self.books_at(self.job_revision())
    }

    pub fn next_job_revision(&self, job_at: u8) -> Option<u8> {
        let later = self.history()[usize::from(job_at)..].iter().position(|event| event.books().is_some())?;
        Some(job_at + later as u8 + 1)
    }

    pub fn next_pod_revision(&self, pods_at: u8) -> Option<u8> {
        let later = self.history()[usize::from(pods_at)..].iter().position(|event| event.books().is_none())?;
        Some(pods_at + later as u8 + 1)
    }

    pub fn release_revision(&self, pod: usize) -> u8 {
        let release = Event::pod(PodEvent::Released, pod);
        self.history().iter().position(|event| *event == release).map_or(0, |index| index as u8 + 1)
    }

    // ---- writing ----

    fn push(&mut self, event: Event) -> Result<(), HistoryFull> {
        let slot = self.events.get_mut(usize::from(self.head)).ok_or(HistoryFull)?;
        *slot = event;
        self.head += 1;
        Ok(())
    }

    pub fn push_pod(&mut self, event: PodEvent, pod: usize) -> Result<(), HistoryFull> {
        if event == PodEvent::Released {
            // A later release finds nothing to do.
            self.late_releases &= !(1 << pod);
        }
        self.push(Event::pod(event, pod))
    }

    /// Stores the Job again. Conditional writes that were in flight have failed.
    pub fn push_job(&mut self, books: Books, conditional: bool) -> Result<(), HistoryFull> {
        if conditional {
            self.late_writes = [Write::default(); MAX_LATE_WRITES];
            for controller in &mut self.controllers {
                if let Status::Sent(_) = controller.status {
                    controller.status = Status::Refreshing;
                }
            }
        }
        self.push(Event::job(books))
    }

    // ---- late requests ----

    pub fn late_writes(&self) -> impl Iterator<Item = Write> {
        self.late_writes.into_iter().filter(|write| *write != Write::default())
    }

    /// There is space for two; a third is lost.
    pub fn add_late_write(&mut self, write: Write) {
        if self.late_writes[0] == Write::default() {
            self.late_writes[0] = write;
            self.late_writes.sort();
        }
    }

    pub fn take_late_write(&mut self, write: Write) {
        if let Some(slot) = self.late_writes.iter_mut().find(|slot| **slot == write) {
            *slot = Write::default();
            self.late_writes.sort();
        }
    }

    // ---- states that have the same future ----

    /// Merges states that differ only in what can never matter again: which of two equal controllers is which, and,
    /// once no controller can go back, the gates that are open for good and the history that every controller has seen.
    pub fn reduce(&mut self, controllers: usize) {
        if self.faults.rewinds == 0 {
            for controller in &mut self.controllers[..controllers] {
                for gate in [&mut controller.gate_at, &mut controller.gate_before] {
                    *gate = if *gate <= controller.pods_at { 0 } else { *gate };
                }
            }
            if self.faults.crashes == 0 {
                self.forget_history(controllers);
            }
        }
        self.controllers[..controllers].sort();
    }

    fn forget_history(&mut self, controllers: usize) {
        let seen_by = |controller: &Controller| {
            let job_seen = self.next_job_revision(controller.job_at).map_or(self.head, |next| next - 1);
            job_seen.min(controller.pods_at)
        };
        let seen = self.controllers[..controllers].iter().map(seen_by).min().unwrap_or(0);
        if seen == 0 {
            return;
        }
        self.first_pods = self.pods_at(seen);
        self.first_books = self.books_at(self.job_revision_at(seen));
        self.events.copy_within(usize::from(seen).., 0);
        self.head -= seen;
        self.events[usize::from(self.head)..].fill(Event::default());
        // Revisions are only compared with each other. Those that every controller's Pods have passed may become one:
        // the gate is open for all of them alike, and 0 stands for the Job that every controller has seen.
        for controller in &mut self.controllers {
            for revision in
                [&mut controller.job_at, &mut controller.gate_at, &mut controller.gate_before, &mut controller.pods_at]
            {
                *revision = revision.saturating_sub(seen);
            }
            if let Status::Stored(revision) = &mut controller.status {
                *revision = revision.saturating_sub(seen);
            }
        }
    }
}
