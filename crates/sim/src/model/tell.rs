//! Counterexamples as text.

use std::fmt;

use super::rules::{Gate, Setup};
use super::steps::{Breach, Step};
use super::world::{ModelState, PodMask, Write, pods_in};

/// A step as text, with the state it starts from.
pub(super) struct DescribedStep<'a>(pub &'a Setup, pub &'a ModelState, pub Step);

fn name(who: u8) -> char {
    char::from(b'A' + who)
}

fn list(f: &mut fmt::Formatter<'_>, mask: PodMask) -> fmt::Result {
    for (nth, pod) in pods_in(mask).enumerate() {
        write!(f, "{}{pod}", if nth == 0 { "" } else { ", " })?;
    }
    Ok(())
}

fn tell_write(f: &mut fmt::Formatter<'_>, before: PodMask, write: Write) -> fmt::Result {
    let recorded = write.books().recorded() & !before;
    for (verb, mask) in [("record Pod ", recorded), ("tally Pod ", write.tallied())] {
        if mask != 0 {
            f.write_str(if verb.starts_with('t') && recorded != 0 { ", " } else { "" })?;
            f.write_str(verb)?;
            list(f, mask)?;
        }
    }
    Ok(())
}

impl fmt::Display for DescribedStep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DescribedStep(setup, world, step) = self;
        let at = world.head() + 1;
        match *step {
            Step::Create { pod } => write!(f, "Pod {pod} is created (revision {at})"),
            Step::Finish { pod } => write!(f, "Pod {pod} finishes (revision {at})"),
            Step::Flip { pod } => write!(f, "Pod {pod} changes its outcome (revision {at})"),
            Step::Delete { pod } => write!(f, "Pod {pod} is deleted (revision {at})"),
            Step::Edit => write!(f, "a user edits the Job (revision {at})"),
            Step::SeeJob { who } => {
                let job_at = world.next_job_revision(world.controllers[usize::from(who)].job_at).unwrap_or(0);
                write!(f, "{} sees the Job as of {job_at}", name(who))
            }
            Step::SeePods { who, up_to } => write!(f, "{} sees Pods up to {up_to}", name(who)),
            Step::Refresh { who } => write!(f, "{} reads the Job again: revision {}", name(who), world.job_revision()),
            Step::StatusAnswered { who } => write!(f, "{} learns that its status was written", name(who)),
            Step::ReleaseAnswered { who, pod } => write!(f, "{} learns that Pod {pod} is released", name(who)),
            Step::SendStatus { who, write } | Step::WriteStatus { who, write } => {
                let controller = &world.controllers[usize::from(who)];
                write!(f, "{} asks to ", name(who))?;
                tell_write(f, world.books_at(controller.job_at).recorded(), write)?;
                write!(f, " (Job as of {}, Pods as of {}", controller.job_at, controller.pods_at)?;
                match setup.gate {
                    Gate::Open => f.write_str(", no gate)")?,
                    _ => write!(f, ", gate at {})", controller.gate_at)?,
                }
                match step {
                    Step::WriteStatus { .. } => write!(f, ", stored as revision {at}"),
                    _ => Ok(()),
                }
            }
            Step::Release { who, pod } => write!(f, "{} releases Pod {pod} (revision {at})", name(who)),
            Step::SendRelease { who, pod } => write!(f, "{} asks to release Pod {pod}", name(who)),
            Step::Adopt { who, pod } => write!(f, "{} adopts Pod {pod} (revision {at})", name(who)),
            Step::StoreStatus { who } => write!(f, "the status of {} is stored (revision {at})", name(who)),
            Step::StoreRelease { pod, .. } if !world.pods().is_tracked(pod.into()) => {
                write!(f, "the release of Pod {pod} finds nothing to do")
            }
            Step::StoreRelease { pod, .. } => write!(f, "Pod {pod} loses its finalizer (revision {at})"),
            Step::LateStatus { write } => {
                f.write_str("a late write arrives after all: ")?;
                tell_write(f, world.books().recorded(), write)?;
                write!(f, " (revision {at})")
            }
            Step::LateRelease { pod } => {
                write!(f, "a late release arrives after all: Pod {pod} loses its finalizer (revision {at})")
            }
            Step::LateStatusLost { .. } => f.write_str("a late write gets lost"),
            Step::LateReleaseLost { pod } => write!(f, "a late release of Pod {pod} gets lost"),
            Step::LoseStatus { who, .. } => write!(f, "{} hears nothing of its status write", name(who)),
            Step::LoseRelease { who, pod, .. } => write!(f, "{} hears nothing of its release of Pod {pod}", name(who)),
            Step::Restart { who, job_at, pods_at, .. } => {
                write!(f, "{} restarts and lists the Job as of {job_at}, Pods as of {pods_at}", name(who))
            }
            Step::Rewind { who, pods_at } => write!(f, "{} lists Pods again, as of {pods_at}", name(who)),
        }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Breach::TalliedTwice { pod } => write!(f, "Pod {pod} is tallied a second time"),
            Breach::Lost { pod } => {
                write!(f, "Pod {pod} has finished, is released, and no controller can tally it any more")
            }
            Breach::ReleasedUnrecorded { pod } => write!(f, "Pod {pod} loses its finalizer before it was recorded"),
            Breach::ListedTwice => f.write_str("a UID is put on the lists twice"),
            Breach::TalliedTracked { pod } => write!(f, "Pod {pod} is tallied though its finalizer is still there"),
            Breach::Stuck { pod } => write!(f, "nothing is left to happen, and Pod {pod} is not done with"),
            Breach::Miscounted => f.write_str("at rest the counters differ from what was tallied"),
            Breach::Endless => f.write_str("without any fault this may go on for ever"),
            Breach::HistoryFull => f.write_str("the model keeps too few revisions for this setup"),
            Breach::TooManyStates => f.write_str("the model has more states than it may keep"),
        }
    }
}
