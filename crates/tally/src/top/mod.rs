//! `tally top`: Jobs in a terminal, live.
//!
//! What is shown and what keys do is in `model`, which is pure; `view` draws it; `source` follows the objects and changes Jobs.

mod model;
mod source;
mod view;

use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tally_node::logs::{self, LogReadOptions};
use tally_node::port::Attempt;
use tally_remote::{Remote, WatchScope};
use tally_runtime::controller::Kind;
use tally_runtime::driver::wall_clock;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::look::LookError;
use crate::place::{Place, PlaceFlags};
use crate::run::progress::view::PodText;
use crate::terminal;
use crate::watch::{self, FollowedJob, Inbox, Streams};
use model::{Effect, Key, Model};
use source::{Changes, Following};

/// Times go on even if nothing else changes.
const REDRAW_EVERY: Duration = Duration::from_secs(1);
/// Changes that come within this time are drawn together.
const DRAW_AFTER: Duration = Duration::from_millis(50);
const MOST_KEYS: usize = 64;
/// A second Ctrl-C within this time is for the run, too.
const PRESSED_AGAIN_WITHIN: Duration = Duration::from_millis(50);
/// How often the thread that reads keys looks whether the view has been left.
const KEYS_WITHIN: Duration = Duration::from_millis(100);
/// Lines of the log of an attempt that has ended.
const TAIL: u64 = 1_000;

#[derive(clap::Args)]
#[command(after_help = "Examples:
  tally top                     the Jobs of the tally up on this machine
  tally top --data-dir ./d      those of a data directory, also while a tally run uses it
  tally top --context test      those of a cluster

Keys: Up and Down or k and j choose, Enter opens a Job and then a log, Esc goes back, / filters, ? shows all keys, q quits.
Jobs of a data directory can be changed if a tally up serves it. Everything that changes a Job asks first.

Exit code 0: it was left with q; 2: bad usage, or there is no terminal; 3: the data directory or the cluster cannot be read.")]
pub struct Args {
    #[command(flatten)]
    place: PlaceFlags,
}

pub fn run(args: &Args) -> ExitCode {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        terminal::tell("tally top needs a terminal; tally ps and tally show print the same");
        return ExitCode::from(2);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            terminal::tell(format_args!("cannot start threads: {error}"));
            return ExitCode::from(3);
        }
    };
    let shown = runtime.block_on(async {
        let place = Place::open(&args.place).await.map_err(LookError::from)?;
        JobsView::new(place, args.place.given_namespace().unwrap_or_default()).await
    });
    let shown = match shown {
        Ok(shown) => shown,
        Err(error) => return crate::look::finish(Err(error)),
    };
    let ended = show(shown).and_then(|showing| runtime.block_on(showing));
    // A thread waits for a key.
    runtime.shutdown_background();
    match ended {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::tell(format_args!("the terminal cannot be used: {error}"));
            ExitCode::from(3)
        }
    }
}

/// How the view was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    Quit,
    /// By Ctrl-C, which was pressed once or twice.
    Interrupted {
        twice: bool,
    },
}

/// Takes the terminal. It is given back when the future ends or is dropped, also if it panics.
pub fn show(shown: JobsView) -> io::Result<impl Future<Output = io::Result<Left>> + Send> {
    struct Taken(ManuallyDrop<DefaultTerminal>);
    impl Drop for Taken {
        fn drop(&mut self) {
            // The terminal itself is not dropped, and nothing is printed: it may be gone.
            let _ = self.0.show_cursor();
            let _ = ratatui::try_restore();
        }
    }
    let mut taken = Taken(ManuallyDrop::new(ratatui::try_init()?));
    Ok(async move { shown.run(&mut taken.0).await })
}

/// For messages to a view that is open.
pub struct ViewHandle(Arc<Changes>);

impl ViewHandle {
    /// Shows a line until the next key.
    pub fn tell(&self, text: &str) {
        self.0.add(|waiting| waiting.notes.push(text.to_owned()));
    }
}

/// The Jobs of a place, as the view shows them.
pub struct JobsView {
    place: Arc<Place>,
    model: Model,
    /// Jobs and Pods that have changed.
    inbox: Arc<Inbox>,
    changes: Arc<Changes>,
    /// Through which Jobs are changed.
    writer: Option<Remote>,
    _jobs: Option<Streams>,
    pods: Option<Streams>,
    log: Option<Following>,
    /// Asks again and again why the open Job does not move. It ends with this.
    explaining: Option<Following>,
    /// Asks which Jobs wait.
    asking: Option<JoinHandle<()>>,
    /// The Job with this UID is opened as soon as it is there.
    opens: Option<String>,
}

impl Drop for JobsView {
    fn drop(&mut self) {
        self.asking.iter().for_each(JoinHandle::abort);
    }
}

impl JobsView {
    /// The Jobs of a run in this process, or of one that it follows. `job`: the UID of the only one.
    pub async fn of_a_run(place: Place, namespace: &str, job: Option<String>) -> Result<Self, LookError> {
        let mut shown = Self::new(place, namespace).await?;
        if !shown.place.is_cluster() {
            // Its directory may be one that is removed at the end.
            shown.model.title = "this run".to_owned();
        }
        if shown.writer.is_none() {
            let why = "the Jobs of a run can only be looked at; Ctrl-C ends the run, q leaves the view";
            shown.model.read_only = Some(why.to_owned());
        }
        shown.opens = job;
        Ok(shown)
    }

    pub fn handle(&self) -> ViewHandle {
        ViewHandle(self.changes.clone())
    }

    async fn new(place: Place, namespace: &str) -> Result<Self, LookError> {
        let (inbox, changes) = (Arc::new(Inbox::default()), Arc::new(Changes::default()));
        let mut model = Model::new(place.title(), place.is_idle());
        let remote = place.remote();
        let scope = WatchScope { namespace: namespace.to_owned(), ..WatchScope::default() };
        let following = match &remote {
            Some(remote) => Some(watch::start(remote, vec![(Kind::JOB, scope)], &inbox)),
            None => {
                for job in place.jobs(namespace).await? {
                    let uid = job["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
                    model.set_job(&uid, Some(&job));
                }
                model.arrange();
                None
            }
        };
        let writer = if place.is_cluster() { remote } else { place.writer() };
        if writer.is_none() {
            model.read_only = Some(match place.is_idle() {
                true => "no tally runs these Jobs: they can only be looked at".to_owned(),
                false => "the Jobs of a tally run can only be looked at; Ctrl-C there ends it".to_owned(),
            });
        }
        Ok(Self {
            place: Arc::new(place),
            model,
            inbox,
            changes,
            writer,
            _jobs: following,
            pods: None,
            log: None,
            explaining: None,
            asking: None,
            opens: None,
        })
    }

    async fn run(mut self, terminal: &mut DefaultTerminal) -> io::Result<Left> {
        let (sender, mut keys) = mpsc::channel(MOST_KEYS);
        std::thread::spawn(move || {
            // What is typed after the view has been left is for others.
            while let Ok(is_there) = event::poll(KEYS_WITHIN)
                && !sender.is_closed()
            {
                if is_there && !event::read().is_ok_and(|event| sender.blocking_send(event).is_ok()) {
                    return;
                }
            }
        });
        let (inbox, changes) = (self.inbox.clone(), self.changes.clone());
        loop {
            self.ask_which_wait();
            let now = wall_clock().millis();
            terminal.draw(|frame| view::draw(frame, &mut self.model, now))?;
            tokio::select! {
                event = keys.recv() => match event {
                    Some(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                        if is_interrupt(key) {
                            let next = tokio::time::timeout(PRESSED_AGAIN_WITHIN, keys.recv()).await;
                            let twice = matches!(next, Ok(Some(Event::Key(key))) if is_interrupt(key));
                            return Ok(Left::Interrupted { twice });
                        }
                        let effect = meaning(key).and_then(|key| self.model.key(key));
                        if let Some(effect) = effect && !self.carry_out(effect).await {
                            return Ok(Left::Quit);
                        }
                    }
                    // A new size, for example.
                    Some(_) => {}
                    None => return Ok(Left::Quit),
                },
                () = inbox.changed.notified() => self.apply().await,
                () = changes.changed.notified() => self.apply().await,
                () = tokio::time::sleep(REDRAW_EVERY) => {}
            }
        }
    }

    /// Takes over what has changed, after a moment in which more may come.
    async fn apply(&mut self) {
        tokio::time::sleep(DRAW_AFTER).await;
        let source::Waiting { log, notes, explanation, waits } = self.changes.take();
        let jobs = self.inbox.take(Kind::JOB);
        if !jobs.is_empty() || !waits.is_empty() {
            for (uid, unread) in jobs {
                self.model.set_job(&uid, unread.read().filter(|_| !unread.is_deleted).as_ref());
            }
            waits.into_iter().for_each(|(asked, found)| self.model.set_waits(&asked, found));
            self.model.arrange();
        }
        let pods = self.inbox.take(Kind::POD);
        if !pods.is_empty() {
            for (uid, unread) in pods {
                self.model.set_pod(&uid, unread.read().filter(|_| !unread.is_deleted));
            }
            self.model.arrange_attempts();
        }
        if !log.is_empty() {
            self.model.add_log(&String::from_utf8_lossy(&log));
        }
        let broken = self.inbox.take_failures().into_iter();
        let broken = broken.map(|(kind, reason)| format!("cannot follow {kind}: {reason}"));
        if let Some(note) = broken.chain(notes).last() {
            self.model.note = note;
        }
        if let Some((uid, lines)) = explanation {
            self.model.set_explanation(&uid, lines);
        }
        self.open_first().await;
    }

    /// Asks which Jobs wait, if it is time; one question at a time.
    fn ask_which_wait(&mut self) {
        if self.asking.as_ref().is_some_and(|asking| !asking.is_finished()) {
            return;
        }
        let rows = self.model.ask_about(Instant::now());
        self.asking = (!rows.is_empty()).then(|| source::ask_which_wait(&self.place, rows, &self.changes));
    }

    /// Returns whether to go on.
    async fn carry_out(&mut self, effect: Effect) -> bool {
        match effect {
            Effect::Quit => return false,
            Effect::OpenJob(uid) => self.open_job(&uid).await,
            Effect::CloseJob => (self.pods, self.explaining) = (None, None),
            Effect::OpenLog { pod, container } => self.open_log(&pod, &container),
            Effect::CloseLog => self.log = None,
            Effect::Act { namespace, name, action } => {
                if let Some(writer) = self.writer.clone() {
                    let changes = self.changes.clone();
                    tokio::spawn(async move {
                        let told = source::act(&writer, &namespace, &name, &action).await;
                        changes.add(|waiting| waiting.notes.push(told));
                    });
                }
            }
        }
        true
    }

    async fn open_first(&mut self) {
        if !self.opens.as_ref().is_some_and(|uid| self.model.choose(uid)) {
            return;
        }
        self.opens = None;
        // A key of the user would remove it.
        let note = std::mem::take(&mut self.model.note);
        if let Some(effect) = self.model.key(Key::Enter) {
            self.carry_out(effect).await;
        }
        self.model.note = note;
    }

    async fn open_job(&mut self, uid: &str) {
        let Some(job) = self.model.chosen_job().map(|job| job.row.clone()) else { return };
        let namespace = job.namespace.clone();
        self.explaining = Some(source::explain(&self.place, &job, &self.changes));
        if let Ok(Some(records)) = self.place.records(uid) {
            self.model.set_records(vec![records]);
        }
        match self.place.remote() {
            Some(remote) => {
                let job = FollowedJob { namespace, name: job.name, uid: uid.to_owned() };
                let scopes = vec![(Kind::POD, watch::scope_of_pods(&job.namespace, &[&job]))];
                self.pods = Some(watch::start(&remote, scopes, &self.inbox));
            }
            None => {
                for pod in self.place.pods(&namespace, uid).await.unwrap_or_default() {
                    let pod: PodText = pod;
                    let uid = pod.metadata.uid.clone();
                    self.model.set_pod(&uid, Some(pod));
                }
            }
        }
        self.model.arrange_attempts();
    }

    fn open_log(&mut self, pod: &str, container: &str) {
        let Some(namespace) = self.model.chosen_job().map(|job| job.row.namespace.clone()) else { return };
        let row = self.model.open.as_ref().and_then(|open| open.attempts.get(open.chosen).cloned());
        // The files of a data directory have also the logs of Pods that are gone; those of a Pod that runs are followed.
        let has_ended = row.as_ref().is_some_and(|row| row.finished_at.is_some());
        if let (Some(root), Some(row)) = (self.place.node(), row.filter(|_| has_ended || self.model.is_idle)) {
            let attempt = Attempt {
                pod: tally_core::ids::PodUid::new(&row.pod_uid),
                container: row.container.as_str().into(),
                number: row.restarts,
            };
            match read_log(&root, &attempt) {
                Ok(text) => self.model.add_log(&String::from_utf8_lossy(&text)),
                Err(error) => self.model.note = format!("cannot read the log: {error}"),
            }
            return;
        }
        if let Some(remote) = self.place.remote() {
            self.log = Some(source::follow_log(&remote, &namespace, pod, container, &self.changes));
        }
    }
}

fn read_log(root: &std::path::Path, attempt: &Attempt) -> io::Result<Vec<u8>> {
    if !logs::attempts(root, &attempt.pod).contains(attempt) {
        return Err(io::Error::other("it was removed with its Pod, or is empty"));
    }
    let mut reader = logs::open(root, attempt, LogReadOptions { tail_lines: Some(TAIL), ..LogReadOptions::default() })?;
    let mut text = Vec::new();
    while let Some(piece) = reader.read()? {
        text.extend_from_slice(&piece);
    }
    Ok(text)
}

fn is_interrupt(key: KeyEvent) -> bool {
    key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c')
}

fn meaning(key: KeyEvent) -> Option<Key> {
    Some(match key.code {
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Char('d') if key.modifiers.contains(KeyModifiers::CONTROL) => Key::Text('d'),
        KeyCode::Char(character) if !key.modifiers.contains(KeyModifiers::CONTROL) => Key::Text(character),
        _ => return None,
    })
}
