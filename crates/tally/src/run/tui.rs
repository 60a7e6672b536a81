//! `tally run --tui`: the view of `tally top` over a run. The run goes on behind it, and what it has to say waits.

use std::io::{self, IsTerminal};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::outcome::RunError;
use super::progress::output::Output;
use super::submit::SubmittedJob;
use crate::local_api::LocalApi;
use crate::look::LookError;
use crate::place::Place;
use crate::signals::{Stop, asked};
use crate::top::{self, JobsView, Left, ViewHandle};

/// A view that is told to close has drawn its last picture within this time.
const CLOSES_WITHIN: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A signal that this process sends to itself has arrived within this time.
const SIGNALLED_WITHIN: Duration = Duration::from_secs(5);

/// Refuses early: nothing has been run yet.
pub fn check() -> Result<(), RunError> {
    if io::stdout().is_terminal() && io::stderr().is_terminal() {
        return Ok(());
    }
    let why =
        "--tui needs a terminal; without it, progress is printed as lines, and `tally top` can look from elsewhere";
    Err(RunError::Input(why.to_owned()))
}

/// The view over a run. Nothing else may write to the terminal until it has been left.
pub struct RunView {
    showing: JoinHandle<io::Result<Left>>,
    handle: ViewHandle,
    is_open: bool,
    /// What the view reads from. None: a server elsewhere.
    _api: Option<LocalApi>,
}

impl RunView {
    /// `place`: where these Jobs of the run are, which `api` serves.
    pub async fn open(
        place: Place,
        api: Option<LocalApi>,
        jobs: &[SubmittedJob],
        output: &mut Output,
    ) -> Result<Self, RunError> {
        let namespace = place.namespace().to_owned();
        let only = if let [job] = jobs { Some(job.uid.clone()) } else { None };
        let unusable = |error: String| RunError::Environment(format!("cannot show the run: {error}"));
        let shown = JobsView::of_a_run(place, &namespace, only).await;
        let shown = shown.map_err(|error| match error {
            LookError::Missing(why) | LookError::Usage(why) | LookError::Unreadable(why) => unusable(why),
        })?;
        let handle = shown.handle();
        let showing = top::show(shown).map_err(|error| unusable(error.to_string()))?;
        output.lend_terminal();
        Ok(Self { showing: tokio::spawn(showing), handle, is_open: true, _api: api })
    }

    /// Looks whether the user has left it.
    pub async fn beat(&mut self, stop: &watch::Receiver<Stop>, output: &mut Output) {
        if !self.is_open || !self.showing.is_finished() {
            return;
        }
        if let Left::Interrupted { twice } = self.left(output).await {
            // As if Ctrl-C had been pressed without a view: the terminal made no signal of it.
            let _ = kill_process(getpid(), Signal::INT);
            // Two signals at the same time would be one.
            if twice && tokio::time::timeout(SIGNALLED_WITHIN, asked(&mut stop.clone())).await.is_ok() {
                let _ = kill_process(getpid(), Signal::INT);
            }
        }
    }

    /// The run has ended: the view stays until the user leaves it, or until a signal comes.
    pub async fn end(&mut self, mut stop: watch::Receiver<Stop>, output: &mut Output) {
        if !self.is_open {
            return;
        }
        self.handle.tell("All Jobs have finished. q leaves this view and prints the summary.");
        let view = self.showing.abort_handle();
        let closing = tokio::spawn(async move {
            asked(&mut stop).await;
            view.abort();
        });
        self.left(output).await;
        closing.abort();
    }

    /// Gives the terminal back.
    pub async fn close(&mut self, output: &mut Output) {
        if self.is_open {
            self.showing.abort();
            // A terminal that nothing reads blocks it.
            if tokio::time::timeout(CLOSES_WITHIN, self.left(output)).await.is_err() {
                self.is_open = false;
                output.take_terminal_back();
            }
        }
    }

    /// Waits until it has been left.
    async fn left(&mut self, output: &mut Output) -> Left {
        let left = (&mut self.showing).await;
        self.is_open = false;
        output.take_terminal_back();
        match left {
            Ok(Ok(left)) => left,
            Ok(Err(error)) => {
                output.note(&format!("the view was closed: the terminal cannot be used: {error}"));
                Left::Quit
            }
            // It was closed from here.
            Err(_) => Left::Quit,
        }
    }
}

impl Drop for RunView {
    /// The process ends at once: the terminal is given back before anything else is printed.
    fn drop(&mut self) {
        self.showing.abort();
        let until = std::time::Instant::now() + CLOSES_WITHIN;
        while self.is_open && !self.showing.is_finished() && std::time::Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}
