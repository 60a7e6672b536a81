//! The main loop of `tally run` and `tally attach`: changes update the model, and the model is shown to the user, with what
//! tasks print. Where both come from is an [`EventSource`]: this process (`local`), or a server (`on_cluster::served`).
//!
//! What tasks print is chosen by `display`, read by `outputs`, put in order by `turns`, split by `lines` and shown by
//! `tasks`.

pub mod display;
pub mod lines;
pub mod local;
pub mod logs;
mod never;
pub mod outputs;
pub mod tasks;
pub mod turns;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tally_core::backoff::BackoffNotice;
use tally_runtime::controller::{Call, Kind, Refusal, Reply, Verb};
use tally_runtime::driver::wall_clock;
use tokio::sync::watch::Receiver;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::explaining::Explaining;
use super::outcome::RunError;
use super::progress::model::{Model, PodFailure};
use super::progress::output::Output;
use super::progress::view::PodText;
use super::tui::RunView;
use crate::place::Place;
use crate::signals::{Stop, asked};

/// Interval for drawing and printing plain lines.
const BEAT: Duration = Duration::from_millis(100);

/// How the run ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    Finished,
    Interrupted,
}

/// How the run ended, and what to print about it.
pub type Ended = (End, Vec<String>);

/// Where the changes of the Jobs and the output of their tasks come from.
pub trait EventSource {
    type Event;

    /// Safe to cancel.
    fn next(&mut self) -> impl Future<Output = Self::Event>;

    /// Returns whether there may be more output to show right now.
    fn handle(&mut self, reporter: &mut Reporter<'_>, event: Self::Event) -> Result<bool, RunError>;

    /// Shows a part of the output. Returns whether there may be more right now.
    fn show_tasks(&mut self, output: &mut Output) -> bool;

    /// Before each beat.
    fn catch_up(&mut self, _: &mut Reporter<'_>) -> Result<(), RunError> {
        Ok(())
    }

    /// After each beat. The error is why the run cannot continue. Returns whether there may be more output to show.
    fn check(&mut self, reporter: &mut Reporter<'_>) -> impl Future<Output = Result<bool, RunError>>;

    /// All Jobs have finished. False: a stop is under way.
    fn may_finish(&mut self) -> bool {
        true
    }

    /// Shows what is left.
    fn finish(
        &mut self,
        reporter: &mut Reporter<'_>,
        stop: &Receiver<Stop>,
    ) -> impl Future<Output = Result<Ended, RunError>>;

    /// The user has ended the run.
    fn stopped(&mut self, _: &mut Reporter<'_>) {}
}

/// What is known of the Jobs, and how the user sees it.
pub struct Reporter<'a> {
    pub place: Arc<Place>,
    pub model: &'a mut Model,
    pub output: &'a mut Output,
    pub began: Instant,
    /// The parts of a list begin and stop as this process says.
    pub runs_parts: bool,
    pub explaining: Explaining,
    /// The view over the run. None: there is none.
    pub view: Option<RunView>,
}

impl Reporter<'_> {
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    async fn beat(&mut self, stop: &Receiver<Stop>) {
        let now = self.now();
        self.model.tick(now);
        self.explaining.beat(self.model, now);
        self.output.beat(self.model, now);
        if let Some(view) = &mut self.view {
            view.beat(stop, self.output).await;
        }
    }

    async fn stopping(&mut self) {
        self.model.stopping = true;
        if let Some(view) = &mut self.view {
            view.close(self.output).await;
        }
    }

    pub fn failed(&mut self, pod: &PodText, failure: &PodFailure) {
        if let Some(job) = pod.metadata.job().and_then(|uid| self.model.job(uid)) {
            self.output.failed(job, failure);
        }
    }

    /// Shows what a Job waits for before it retries.
    pub fn waits(&mut self, job: &str, notice: BackoffNotice) {
        let left = (notice.retry_at - wall_clock()).millis();
        if let Some(left) = u64::try_from(left).ok().filter(|left| *left > 0) {
            self.model.waits(job, notice, self.now() + Duration::from_millis(left));
        }
    }

    /// Lets the parts of a list begin when those before them leave room, and stops them when one has failed.
    async fn run_parts(&mut self) -> Result<(), RunError> {
        while self.runs_parts
            && let Some((namespace, change)) = self.model.next_change()
        {
            let call = Call::new(Verb::MergePatch, Kind::JOB, &namespace, &change.job).body(&change.patch);
            match self.place.call(&call).await? {
                // Another user may have deleted the Job; the stream shows that.
                Reply::Refused(Refusal { code: 404 | 409, .. }) => {}
                Reply::Refused(refusal) => {
                    let reason = format!("cannot change Job {:?}: {}", change.job, refusal.message);
                    return Err(RunError::Environment(reason));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Follows Jobs to their end. `ending` does what a stop needs when the user requests one, and returns what to print about it.
pub async fn follow<S: EventSource>(
    source: &mut S,
    reporter: &mut Reporter<'_>,
    stop: &Receiver<Stop>,
    ending: JoinHandle<Result<Vec<String>, RunError>>,
) -> Result<Ended, RunError> {
    let ended = follow_to_the_end(source, reporter, stop, ending).await;
    if let Some(mut view) = reporter.view.take() {
        match &ended {
            Ok((End::Finished, _)) => view.end(stop.clone(), reporter.output).await,
            _ => view.close(reporter.output).await,
        }
    }
    ended
}

async fn follow_to_the_end<S: EventSource>(
    source: &mut S,
    reporter: &mut Reporter<'_>,
    stop: &Receiver<Stop>,
    mut ending: JoinHandle<Result<Vec<String>, RunError>>,
) -> Result<Ended, RunError> {
    let mut beat = tokio::time::interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // There may be more to show right now.
    let mut more = false;
    let mut stopping = stop.clone();
    loop {
        tokio::select! {
            ended = &mut ending => {
                reporter.model.stopping = true;
                let notes = ended.map_err(|error| RunError::Environment(error.to_string()))??;
                source.stopped(reporter);
                return Ok((End::Interrupted, notes));
            }
            () = asked(&mut stopping), if !reporter.model.stopping => reporter.stopping().await,
            event = source.next() => {
                // What a stop deletes has not been deleted by others.
                if *stop.borrow() != Stop::No && !reporter.model.stopping {
                    reporter.stopping().await;
                }
                more |= source.handle(reporter, event)?;
            }
            () = std::future::ready(()), if more => more = source.show_tasks(reporter.output),
            _ = beat.tick() => {
                source.catch_up(reporter)?;
                reporter.beat(stop).await;
                more |= source.check(reporter).await?;
            }
        }
        if *stop.borrow() != Stop::No {
            continue;
        }
        // A server that does not answer must not keep a stop waiting.
        tokio::select! {
            biased;
            () = asked(&mut stopping) => continue,
            changed = reporter.run_parts() => changed?,
        }
        if reporter.model.is_finished() && source.may_finish() {
            // Nothing is left that a stop could delete or leave running.
            ending.abort();
            return source.finish(reporter, stop).await;
        }
    }
}

/// The UIDs of those of these Pods that have ended: their output and their failures were reported before, or elsewhere.
pub fn over(pods: Vec<PodText>) -> impl Iterator<Item = String> {
    pods.into_iter().filter(|pod| pod.status.has_ended()).map(|pod| pod.metadata.uid)
}
