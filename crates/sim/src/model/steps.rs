//! All possible next steps, and their results.

use super::rules::{Grain, Plan, Setup, plan};
use super::world::{Controller, HistoryFull, ModelState, PodEvent, PodMask, Status, Write, pods_in};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    // The world around.
    Create { pod: u8 },
    Finish { pod: u8 },
    Flip { pod: u8 },
    Delete { pod: u8 },
    Edit,
    // A controller learns something.
    SeeJob { who: u8 },
    SeePods { who: u8, up_to: u8 },
    Refresh { who: u8 },
    StatusAnswered { who: u8 },
    ReleaseAnswered { who: u8, pod: u8 },
    // A controller sends a request.
    SendStatus { who: u8, write: Write },
    SendRelease { who: u8, pod: u8 },
    // Carried out at once: nothing else happens to a Pod without an owner, so a later time makes no difference.
    Adopt { who: u8, pod: u8 },
    // The same, carried out at once.
    WriteStatus { who: u8, write: Write },
    Release { who: u8, pod: u8 },
    // The store carries out a request.
    StoreStatus { who: u8 },
    StoreRelease { who: u8, pod: u8 },
    LateStatus { write: Write },
    LateRelease { pod: u8 },
    LateStatusLost { write: Write },
    LateReleaseLost { pod: u8 },
    // Faults.
    LoseStatus { who: u8, left: Left },
    LoseRelease { who: u8, pod: u8, left: Left },
    Restart { who: u8, job_at: u8, pods_at: u8, left: Left },
    Rewind { who: u8, pods_at: u8 },
}

/// In-flight requests whose sender no longer waits for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    write: Option<Write>,
    releases: PodMask,
}

/// How a run went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Breach {
    /// I1.
    TalliedTwice {
        pod: usize,
    },
    /// I2: finished, without finalizer, in no list, and never tallied.
    Lost {
        pod: usize,
    },
    /// I3.
    ReleasedUnrecorded {
        pod: usize,
    },
    /// I4.
    ListedTwice,
    /// S03: release must come before tally.
    TalliedTracked {
        pod: usize,
    },
    /// I9: nothing can happen any more, and this Pod is not finished with.
    Stuck {
        pod: usize,
    },
    /// I9: the counters differ from the ghost's.
    Miscounted,
    /// I9: a run without faults need not end.
    Endless,
    /// The model is too small for the setup.
    HistoryFull,
    TooManyStates,
}

impl From<HistoryFull> for Breach {
    fn from(_: HistoryFull) -> Self {
        Breach::HistoryFull
    }
}

impl Step {
    /// Steps that happen by themselves once faults have stopped: controllers read, send requests and receive responses.
    /// Pods need not finish, and no user has to edit or delete anything.
    pub fn is_ordinary(self) -> bool {
        match self {
            Step::Create { .. } | Step::Finish { .. } | Step::Flip { .. } | Step::Delete { .. } | Step::Edit => false,
            Step::LoseStatus { .. } | Step::LoseRelease { .. } | Step::Restart { .. } | Step::Rewind { .. } => false,
            Step::SeeJob { .. }
            | Step::SeePods { .. }
            | Step::Refresh { .. }
            | Step::StatusAnswered { .. }
            | Step::ReleaseAnswered { .. }
            | Step::SendStatus { .. }
            | Step::SendRelease { .. }
            | Step::Adopt { .. }
            | Step::WriteStatus { .. }
            | Step::Release { .. }
            | Step::StoreStatus { .. }
            | Step::StoreRelease { .. }
            | Step::LateStatus { .. }
            | Step::LateRelease { .. }
            | Step::LateStatusLost { .. }
            | Step::LateReleaseLost { .. } => true,
        }
    }
}

/// All steps that are possible in this state.
pub(super) fn steps(setup: &Setup, world: &ModelState, out: &mut Vec<Step>) -> Result<(), Breach> {
    out.clear();
    environment_steps(setup, world, out);
    for write in world.late_writes() {
        out.push(Step::LateStatus { write });
        out.push(Step::LateStatusLost { write });
    }
    for pod in each(world.late_releases) {
        out.push(Step::LateRelease { pod });
        out.push(Step::LateReleaseLost { pod });
    }
    for (who, controller) in (0..).zip(&world.controllers[..setup.controllers]) {
        let plan = plan(setup, world, controller);
        if plan.lists_twice {
            return Err(Breach::ListedTwice);
        }
        controller_steps(setup, world, who, controller, &plan, out);
        fault_steps(setup, world, who, controller, &plan, out);
    }
    Ok(())
}

fn each(mask: PodMask) -> impl Iterator<Item = u8> {
    pods_in(mask).map(|pod| pod as u8)
}

fn environment_steps(setup: &Setup, world: &ModelState, out: &mut Vec<Step>) {
    let pods = world.pods();
    for (index, pod) in (0..setup.pods).zip(0..) {
        match (pods.exists(index), pods.is_finished(index)) {
            (false, false) => out.push(Step::Create { pod }),
            (true, false) if pods.is_loose(index) => {}
            (true, false) => out.push(Step::Finish { pod }),
            (true, true) if world.faults.flips > 0 => out.push(Step::Flip { pod }),
            _ => {}
        }
        let over = pods.exists(index) && pods.is_finished(index) && !pods.is_tracked(index);
        if setup.deletion && over {
            out.push(Step::Delete { pod });
        }
    }
    if world.faults.edits > 0 {
        out.push(Step::Edit);
    }
}

fn controller_steps(
    setup: &Setup,
    world: &ModelState,
    who: u8,
    controller: &Controller,
    plan: &Plan,
    out: &mut Vec<Step>,
) {
    if world.next_job_revision(controller.job_at).is_some() {
        out.push(Step::SeeJob { who });
    }
    let next_pods = match setup.bookmarks {
        true => (controller.pods_at < world.head()).then_some(controller.pods_at + 1),
        false => world.next_pod_revision(controller.pods_at),
    };
    out.extend(next_pods.map(|up_to| Step::SeePods { who, up_to }));
    match controller.status {
        Status::Idle => {}
        Status::Sent(_) => out.push(Step::StoreStatus { who }),
        Status::Stored(_) => out.push(Step::StatusAnswered { who }),
        Status::Refreshing => out.push(Step::Refresh { who }),
    }
    out.extend(each(controller.releasing).map(|pod| Step::StoreRelease { who, pod }));
    out.extend(each(controller.release_done).map(|pod| Step::ReleaseAnswered { who, pod }));
    out.extend(each(plan.adoptions).map(|pod| Step::Adopt { who, pod }));
    match setup.grain {
        Grain::Fine => {
            out.extend(plan.write.map(|write| Step::SendStatus { who, write }));
            out.extend(each(plan.releases).map(|pod| Step::SendRelease { who, pod }));
        }
        Grain::Coarse => {
            let current = controller.job_at == world.job_revision();
            out.extend(plan.write.filter(|_| current).map(|write| Step::WriteStatus { who, write }));
            out.extend(each(plan.releases).map(|pod| Step::Release { who, pod }));
        }
    }
}

/// The requests that a controller has in flight, or may have.
fn under_way(setup: &Setup, world: &ModelState, controller: &Controller, plan: &Plan) -> Left {
    match setup.grain {
        Grain::Fine => {
            let write = if let Status::Sent(write) = controller.status { Some(write) } else { None };
            Left { write, releases: controller.releasing }
        }
        Grain::Coarse => {
            let current = controller.job_at == world.job_revision();
            Left { write: plan.write.filter(|_| current), releases: plan.releases }
        }
    }
}

fn fault_steps(setup: &Setup, world: &ModelState, who: u8, controller: &Controller, plan: &Plan, out: &mut Vec<Step>) {
    let left = under_way(setup, world, controller, plan);
    if world.faults.losses > 0 {
        if left.write.is_some() || matches!(controller.status, Status::Stored(_)) {
            out.push(Step::LoseStatus { who, left });
        }
        out.extend(each(left.releases | controller.release_done).map(|pod| Step::LoseRelease { who, pod, left }));
    }
    if world.faults.crashes > 0 {
        let (mut job_at, oldest, newest) = match (setup.stale_lists, setup.reduce) {
            (false, _) => (Some(world.job_revision()), world.head(), world.head()),
            (true, false) => (Some(0), 0, world.head()),
            // A controller that starts with the oldest lists and reads on reaches the same state as one that started
            // with newer lists.
            (true, true) => (Some(0), 0, 0),
        };
        while let Some(at) = job_at {
            out.extend((oldest..=newest).map(|pods_at| Step::Restart { who, job_at: at, pods_at, left }));
            job_at = world.next_job_revision(at).filter(|_| !setup.reduce);
        }
    }
    if world.faults.rewinds > 0 {
        out.extend((0..controller.pods_at).map(|pods_at| Step::Rewind { who, pods_at }));
    }
}

/// The state after one step, before equivalent states are merged.
pub(super) fn after(setup: &Setup, world: &ModelState, step: Step) -> Result<ModelState, Breach> {
    let mut next = *world;
    match step {
        Step::Create { pod } => next.push_pod(PodEvent::Created, pod.into())?,
        Step::Finish { pod } => next.push_pod(verdict_of(pod), pod.into())?,
        Step::Flip { pod } => {
            next.faults.flips -= 1;
            let failed = world.pods().outcome(pod.into()) == Some(tally_core::accounting::Outcome::Failed);
            next.push_pod(if failed { PodEvent::Succeeded } else { PodEvent::Failed }, pod.into())?;
        }
        Step::Delete { pod } => next.push_pod(PodEvent::Deleted, pod.into())?,
        Step::Edit => {
            next.faults.edits -= 1;
            next.push_job(world.books(), setup.conditional)?;
        }
        Step::LateStatus { write } => {
            next.take_late_write(write);
            store_status(setup, &mut next, write)?;
        }
        Step::LateStatusLost { write } => next.take_late_write(write),
        Step::LateRelease { pod } => store_release(setup, &mut next, pod)?,
        Step::LateReleaseLost { pod } => next.late_releases &= !(1 << pod),
        Step::SeeJob { who }
        | Step::SeePods { who, .. }
        | Step::Refresh { who }
        | Step::StatusAnswered { who }
        | Step::ReleaseAnswered { who, .. }
        | Step::SendStatus { who, .. }
        | Step::SendRelease { who, .. }
        | Step::Adopt { who, .. }
        | Step::WriteStatus { who, .. }
        | Step::Release { who, .. }
        | Step::StoreStatus { who }
        | Step::StoreRelease { who, .. }
        | Step::LoseStatus { who, .. }
        | Step::LoseRelease { who, .. }
        | Step::Restart { who, .. }
        | Step::Rewind { who, .. } => {
            let mut controller = next.controllers[usize::from(who)];
            // Hide this controller's in-flight write: its own write must not be treated as another controller's.
            next.controllers[usize::from(who)].status = Status::Idle;
            step_of_controller(setup, &mut next, &mut controller, step)?;
            next.controllers[usize::from(who)] = controller;
        }
    }
    Ok(next)
}

fn step_of_controller(
    setup: &Setup,
    world: &mut ModelState,
    controller: &mut Controller,
    step: Step,
) -> Result<(), Breach> {
    match step {
        Step::SeeJob { .. } => {
            if let Some(job_at) = world.next_job_revision(controller.job_at) {
                controller.observe_job(setup, world, job_at);
            }
        }
        Step::SeePods { up_to, .. } => controller.observe_pods(setup, world, up_to),
        Step::Refresh { .. } => {
            controller.status = Status::Idle;
            controller.observe_job(setup, world, world.job_revision());
        }
        Step::StatusAnswered { .. } => {
            if let Status::Stored(written_at) = controller.status {
                controller.status_written(setup, world, written_at);
            }
        }
        Step::ReleaseAnswered { pod, .. } => controller.release_answered(setup, world, pod.into()),
        Step::SendStatus { write, .. } => {
            let will_conflict = setup.conditional && controller.job_at != world.job_revision();
            controller.status = if will_conflict { Status::Refreshing } else { Status::Sent(write) };
        }
        Step::SendRelease { pod, .. } => controller.releasing |= 1 << pod,
        Step::Adopt { pod, .. } => world.push_pod(PodEvent::Adopted, pod.into())?,
        Step::WriteStatus { write, .. } => {
            store_status(setup, world, write)?;
            controller.status = Status::Stored(world.head());
        }
        Step::StoreStatus { .. } => {
            if let Status::Sent(write) = controller.status {
                store_status(setup, world, write)?;
                controller.status = Status::Stored(world.head());
            }
        }
        Step::StoreRelease { pod, .. } | Step::Release { pod, .. } => {
            controller.releasing &= !(1 << pod);
            controller.release_done |= 1 << pod;
            store_release(setup, world, pod)?;
        }
        Step::LoseStatus { left, .. } => {
            world.faults.losses -= 1;
            leave(world, Left { releases: 0, ..left });
            controller.status_unwritten();
            if setup.grain == Grain::Coarse {
                controller.status = Status::Idle;
            }
        }
        Step::LoseRelease { pod, left, .. } => {
            world.faults.losses -= 1;
            leave(world, Left { write: None, releases: left.releases & 1 << pod });
            controller.releasing &= !(1 << pod);
            controller.release_done &= !(1 << pod);
        }
        Step::Restart { job_at, pods_at, left, .. } => {
            world.faults.crashes -= 1;
            leave(world, left);
            *controller = Controller::started(setup, world, job_at, pods_at);
        }
        Step::Rewind { pods_at, .. } => {
            world.faults.rewinds -= 1;
            controller.observe_pods(setup, world, pods_at);
        }
        _ => {}
    }
    Ok(())
}

/// The outcome with which a Pod finishes. Fixed, so that both lists are used and no state is spent on the choice.
fn verdict_of(pod: u8) -> PodEvent {
    if pod.is_multiple_of(2) { PodEvent::Succeeded } else { PodEvent::Failed }
}

fn leave(world: &mut ModelState, left: Left) {
    if let Some(write) = left.write {
        world.add_late_write(write);
    }
    world.late_releases |= left.releases & world.pods().tracked();
}

fn store_status(setup: &Setup, world: &mut ModelState, write: Write) -> Result<(), Breach> {
    world.push_job(write.books(), setup.conditional)?;
    if let Some(pod) = pods_in(world.tallied & write.tallied()).next() {
        return Err(Breach::TalliedTwice { pod });
    }
    let too_early = write.tallied() & world.pods().tracked();
    if let Some(pod) = pods_in(too_early).next().filter(|_| !setup.at_most_once_only) {
        return Err(Breach::TalliedTracked { pod });
    }
    world.tallied |= write.tallied();
    world.ever_recorded |= write.books().recorded();
    Ok(())
}

/// Without the finalizer there is nothing to do, and the response is the same.
fn store_release(setup: &Setup, world: &mut ModelState, pod: u8) -> Result<(), Breach> {
    let pod = usize::from(pod);
    if !world.pods().is_tracked(pod) {
        return Ok(());
    }
    if setup.write_ahead && !setup.at_most_once_only && world.ever_recorded >> pod & 1 == 0 {
        return Err(Breach::ReleasedUnrecorded { pod });
    }
    Ok(world.push_pod(PodEvent::Released, pod)?)
}

/// A state in which no ordinary step is left: everything about finished Pods is done, and nothing else.
pub(super) fn check_at_rest(setup: &Setup, world: &ModelState) -> Result<(), Breach> {
    let (pods, books) = (world.pods(), world.books());
    let mut counted = (0, 0);
    for pod in 0..setup.pods {
        let tallied = world.tallied >> pod & 1 == 1;
        let listed = books.recorded_as(pod).is_some();
        if !pods.is_finished(pod) {
            if tallied || listed || (pods.exists(pod) && !pods.is_tracked(pod)) {
                return Err(Breach::Stuck { pod });
            }
            continue;
        }
        if !tallied && !listed && !pods.is_tracked(pod) {
            return Err(Breach::Lost { pod });
        }
        if !tallied || listed || pods.is_tracked(pod) {
            return Err(Breach::Stuck { pod });
        }
        match verdict_of(pod as u8) {
            PodEvent::Succeeded => counted.0 += 1,
            _ => counted.1 += 1,
        }
    }
    let stored = (books.succeeded(), books.failed());
    let agrees = match setup.faults.flips {
        0 => stored == counted,
        _ => stored.0 + stored.1 == counted.0 + counted.1,
    };
    if agrees { Ok(()) } else { Err(Breach::Miscounted) }
}
