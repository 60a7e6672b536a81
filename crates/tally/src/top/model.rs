//! What `tally top` shows, and what keys do to it. Pure: the view draws it, and effects are carried out elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::look::attempts::{self, AttemptRow};
use crate::look::jobs::{self, JobRow};
use crate::look::waiting::{Waits, may_wait};
use crate::run::progress::view::PodText;

/// How often it is asked again whether a Job waits, and of how many Jobs at once.
const ASK_EVERY: Duration = Duration::from_secs(5);
const ASKED_AT_ONCE: usize = 20;

/// Lines of a log that are kept.
const MOST_LINES: usize = 5_000;

/// A Job in the list.
#[derive(Clone, Debug, Default)]
pub struct ListedJob {
    pub row: JobRow,
    /// The same as the counts of the Job say it: whether it waits is asked for.
    counted: JobRow,
    /// Its status leaves open whether it waits.
    may_wait: bool,
    pub parallelism: i64,
    pub is_suspended: bool,
}

impl ListedJob {
    /// None: it cannot be read.
    pub fn of(job: &Value, is_idle: bool) -> Option<Self> {
        let row = jobs::rows(std::slice::from_ref(job), is_idle, &Waits::new()).into_iter().next()?;
        let name = job["metadata"]["name"].as_str()?.to_owned();
        // A part of a list has the name of the list in its row; here each part is a line.
        let row = JobRow { name, ..row };
        let parallelism = job["spec"]["parallelism"].as_i64().unwrap_or(1);
        Some(Self {
            counted: row.clone(),
            row,
            may_wait: may_wait(job) && !is_idle,
            parallelism,
            is_suspended: job["spec"]["suspend"] == true,
        })
    }

    pub fn is_finished(&self) -> bool {
        matches!(self.row.state.as_str(), "Complete" | "Failed")
    }
}

/// The order of the list. The key `o` changes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    Newest,
    Name,
    State,
    Failed,
}

impl Order {
    pub fn word(self) -> &'static str {
        match self {
            Self::Newest => "newest first",
            Self::Name => "by name",
            Self::State => "by state",
            Self::Failed => "most failures first",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Newest => Self::Name,
            Self::Name => Self::State,
            Self::State => Self::Failed,
            Self::Failed => Self::Newest,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Screen {
    #[default]
    Jobs,
    Job,
    Log,
    Help,
}

/// Something that changes a Job. It is carried out after a confirmation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Suspend,
    Resume,
    Delete,
    Parallelism(i64),
}

impl Action {
    pub fn question(&self, job: &JobRow) -> String {
        let name = format!("{}/{}", job.namespace, job.name);
        match self {
            Self::Suspend => format!("Suspend {name}? Its running Pods are deleted. (y/n)"),
            Self::Resume => format!("Resume {name}? (y/n)"),
            Self::Delete => format!("Delete {name} and its Pods? (y/n)"),
            Self::Parallelism(to) => format!("Change the parallelism of {name} to {to}? (y/n)"),
        }
    }
}

/// What the caller has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Quit,
    /// Follow the Pods of this Job, by its UID.
    OpenJob(String),
    CloseJob,
    /// Follow the log of this Pod.
    OpenLog {
        pod: String,
        container: String,
    },
    CloseLog,
    Act {
        namespace: String,
        name: String,
        action: Action,
    },
}

/// Keys as far as they have a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    Text(char),
}

#[derive(Default)]
pub struct Model {
    pub title: String,
    /// No process runs the Jobs.
    pub is_idle: bool,
    /// Why it cannot be changed. None: it can.
    pub read_only: Option<String>,
    /// By UID.
    jobs: BTreeMap<String, ListedJob>,
    /// Jobs that wait, as far as it was asked.
    waits: Waits,
    /// When it was asked of a Job whether it waits.
    asked_at: BTreeMap<String, Instant>,
    /// The UIDs in the order in which they are shown.
    shown: Vec<String>,
    pub order: Order,
    pub filter: String,
    /// The filter is being typed.
    pub types_filter: bool,
    pub screen: Screen,
    /// Where Help was opened.
    before_help: Screen,
    /// The UID of the chosen Job.
    chosen: Option<String>,
    /// The Job that is open.
    pub open: Option<OpenJob>,
    pub log: Option<OpenLog>,
    pub confirm: Option<Action>,
    /// What happened last.
    pub note: String,
    /// Lines that fit, for keys that move by a page. The view sets it.
    pub page: usize,
}

/// The Job that is looked at.
#[derive(Default)]
pub struct OpenJob {
    pub uid: String,
    /// By UID.
    pods: BTreeMap<String, PodText>,
    pub attempts: Vec<AttemptRow>,
    records: Vec<tally_node::attempts::JobRecords>,
    pub chosen: usize,
    /// Why it does not move, how it failed, or how it is.
    pub explanation: Vec<String>,
}

pub struct OpenLog {
    pub pod: String,
    pub lines: std::collections::VecDeque<String>,
    /// A line that is not complete.
    partial: String,
    /// How many lines are below the last one that is shown; 0 follows the end.
    pub above_end: usize,
}

impl OpenLog {
    fn add(&mut self, text: &str) {
        for piece in text.split_inclusive('\n') {
            self.partial.push_str(piece.trim_end_matches(['\n', '\r']));
            if piece.ends_with('\n') {
                self.lines.push_back(std::mem::take(&mut self.partial));
                if self.above_end > 0 {
                    self.above_end += 1;
                }
            }
        }
        while self.lines.len() > MOST_LINES {
            self.lines.pop_front();
        }
        self.above_end = self.above_end.min(self.lines.len());
    }
}

impl Model {
    /// `title`: where the Jobs are.
    pub fn new(title: &str, is_idle: bool) -> Self {
        Self { title: title.to_owned(), is_idle, ..Self::default() }
    }

    pub fn jobs(&self) -> impl Iterator<Item = &ListedJob> {
        self.shown.iter().filter_map(|uid| self.jobs.get(uid))
    }

    pub fn total(&self) -> usize {
        self.jobs.len()
    }

    pub fn all_jobs(&self) -> impl Iterator<Item = &ListedJob> {
        self.jobs.values()
    }

    /// The place of the chosen Job in the list.
    pub fn chosen_at(&self) -> usize {
        self.chosen.as_ref().and_then(|uid| self.shown.iter().position(|shown| shown == uid)).unwrap_or(0)
    }

    /// Chooses a Job of the list. Returns whether it is there.
    pub fn choose(&mut self, uid: &str) -> bool {
        let is_there = self.screen == Screen::Jobs && self.shown.iter().any(|shown| shown == uid);
        if is_there {
            self.chosen = Some(uid.to_owned());
        }
        is_there
    }

    pub fn chosen_job(&self) -> Option<&ListedJob> {
        match (self.screen, &self.open) {
            (Screen::Jobs, _) | (_, None) => self.jobs.get(self.shown.get(self.chosen_at())?),
            (_, Some(open)) => self.jobs.get(&open.uid),
        }
    }

    /// A Job is new or has changed; None: it was deleted. `arrange` must follow.
    pub fn set_job(&mut self, uid: &str, job: Option<&Value>) {
        match job.and_then(|job| ListedJob::of(job, self.is_idle)) {
            Some(mut job) => {
                match self.waits.get(uid).filter(|_| job.may_wait) {
                    Some(wait) => job.row.set_wait(wait),
                    None => drop(self.waits.remove(uid)),
                }
                if !job.may_wait {
                    self.asked_at.remove(uid);
                }
                self.jobs.insert(uid.to_owned(), job);
            }
            None => {
                self.jobs.remove(uid);
                self.waits.remove(uid);
                self.asked_at.remove(uid);
            }
        }
    }

    /// The Jobs of which it is to be asked now whether they wait, those first of which it was not asked for the longest time.
    pub fn ask_about(&mut self, now: Instant) -> Vec<JobRow> {
        let last = |uid: &str| self.asked_at.get(uid).copied();
        let is_due = |uid: &str| last(uid).is_none_or(|at| now.saturating_duration_since(at) >= ASK_EVERY);
        let mut due: Vec<_> = self.jobs.iter().filter(|(uid, job)| job.may_wait && is_due(uid)).collect();
        due.sort_by_key(|(uid, _)| last(uid));
        let rows: Vec<JobRow> = due.into_iter().take(ASKED_AT_ONCE).map(|(_, job)| job.row.clone()).collect();
        self.asked_at.extend(rows.iter().map(|row| (row.uid.clone(), now)));
        rows
    }

    /// What was found about these Jobs. `arrange` must follow.
    pub fn set_waits(&mut self, asked: &BTreeSet<String>, mut found: Waits) {
        for uid in asked {
            let wait = found.remove(uid);
            let Some(job) = self.jobs.get_mut(uid) else { continue };
            job.row = job.counted.clone();
            match wait.filter(|_| job.may_wait) {
                Some(wait) => {
                    job.row.set_wait(&wait);
                    self.waits.insert(uid.clone(), wait);
                }
                None => drop(self.waits.remove(uid)),
            }
        }
    }

    /// Sorts and filters the list. The chosen Job stays chosen.
    pub fn arrange(&mut self) {
        let at = self.chosen_at();
        let words: Vec<String> = self.filter.split_whitespace().map(str::to_lowercase).collect();
        let is_shown = |job: &ListedJob| {
            let text = format!("{}/{} {}", job.row.namespace, job.row.name, job.row.state).to_lowercase();
            words.iter().all(|word| text.contains(word))
        };
        let mut shown: Vec<(&String, &ListedJob)> = self.jobs.iter().filter(|(_, job)| is_shown(job)).collect();
        let name = |job: &ListedJob| (job.row.namespace.clone(), job.row.name.clone());
        shown.sort_by_cached_key(|(_, job)| {
            let first = match self.order {
                Order::Newest => -job.row.created_at.unwrap_or(0),
                Order::Name => 0,
                Order::State => match job.row.state.as_str() {
                    "Failed" => 0,
                    "Ending" => 1,
                    "Waiting" => 2,
                    "Running" => 3,
                    "Suspended" | "Stopped" => 4,
                    _ => 5,
                },
                Order::Failed => -i64::try_from(job.row.failed).unwrap_or(i64::MAX),
            };
            (first, name(job))
        });
        self.shown = shown.into_iter().map(|(uid, _)| uid.clone()).collect();
        let is_there = self.chosen.as_ref().is_some_and(|uid| self.shown.contains(uid));
        if !is_there {
            let at = at.min(self.shown.len().saturating_sub(1));
            self.chosen = self.shown.get(at).cloned();
        }
    }

    /// A Pod of the open Job is new or has changed; None: it was deleted.
    pub fn set_pod(&mut self, uid: &str, pod: Option<PodText>) {
        let Some(open) = &mut self.open else { return };
        match pod {
            Some(pod) => drop(open.pods.insert(uid.to_owned(), pod)),
            None => drop(open.pods.remove(uid)),
        }
    }

    pub fn set_records(&mut self, records: Vec<tally_node::attempts::JobRecords>) {
        if let Some(open) = &mut self.open {
            open.records = records;
        }
    }

    /// After changes of Pods or records.
    pub fn arrange_attempts(&mut self) {
        let is_idle = self.is_idle;
        let Some(open) = &mut self.open else { return };
        open.attempts = attempts::rows(&open.records, open.pods.values(), is_idle);
        // Those that run or failed are looked for first.
        open.attempts.sort_by_key(|row| std::cmp::Reverse(row.started_at.unwrap_or(i64::MAX)));
        open.chosen = open.chosen.min(open.attempts.len().saturating_sub(1));
    }

    pub fn set_explanation(&mut self, uid: &str, lines: Vec<String>) {
        if let Some(open) = self.open.as_mut().filter(|open| open.uid == uid) {
            open.explanation = lines;
        }
    }

    pub fn add_log(&mut self, text: &str) {
        if let Some(log) = &mut self.log {
            log.add(text);
        }
    }

    pub fn key(&mut self, key: Key) -> Option<Effect> {
        self.note.clear();
        if let Some(action) = self.confirm.take() {
            let job = self.chosen_job()?.row.clone();
            return (key == Key::Text('y')).then_some(Effect::Act { namespace: job.namespace, name: job.name, action });
        }
        if self.types_filter {
            self.type_filter(key);
            return None;
        }
        match (self.screen, key) {
            (Screen::Help, _) => self.screen = self.before_help,
            (_, Key::Text('q')) => return Some(Effect::Quit),
            (screen, Key::Text('?' | 'h')) => (self.before_help, self.screen) = (screen, Screen::Help),
            (Screen::Jobs | Screen::Job, Key::Text(action @ ('s' | 'd' | '+' | '-'))) => self.ask(action),
            (Screen::Jobs, Key::Text('/')) => self.types_filter = true,
            (Screen::Jobs, Key::Text('o')) => {
                self.order = self.order.next();
                self.arrange();
            }
            (Screen::Jobs, Key::Escape) => {
                self.filter.clear();
                self.arrange();
            }
            (Screen::Jobs, Key::Enter) => {
                let uid = self.shown.get(self.chosen_at())?.clone();
                self.open = Some(OpenJob { uid: uid.clone(), ..OpenJob::default() });
                self.screen = Screen::Job;
                return Some(Effect::OpenJob(uid));
            }
            (Screen::Job, Key::Escape) => {
                (self.open, self.screen) = (None, Screen::Jobs);
                return Some(Effect::CloseJob);
            }
            (Screen::Job, Key::Enter | Key::Text('l')) => {
                let open = self.open.as_ref()?;
                let row = open.attempts.get(open.chosen)?;
                let (pod, container) = (row.pod.clone(), row.container.clone());
                let lines = std::collections::VecDeque::new();
                self.log = Some(OpenLog { pod: pod.clone(), lines, partial: String::new(), above_end: 0 });
                self.screen = Screen::Log;
                return Some(Effect::OpenLog { pod, container });
            }
            (Screen::Log, Key::Escape) => {
                (self.log, self.screen) = (None, Screen::Job);
                return Some(Effect::CloseLog);
            }
            (_, key) => self.move_by(key),
        }
        None
    }

    fn type_filter(&mut self, key: Key) {
        match key {
            Key::Enter => self.types_filter = false,
            Key::Escape => {
                self.types_filter = false;
                self.filter.clear();
            }
            Key::Backspace => drop(self.filter.pop()),
            Key::Text(character) => self.filter.push(character),
            _ => {}
        }
        self.arrange();
    }

    fn ask(&mut self, key: char) {
        let Some(job) = self.chosen_job().cloned() else { return };
        if let Some(why) = &self.read_only {
            self.note = why.clone();
            return;
        }
        self.confirm = match key {
            'd' => Some(Action::Delete),
            _ if job.is_finished() => {
                self.note = "the Job has finished".to_owned();
                None
            }
            's' if job.is_suspended => Some(Action::Resume),
            's' => Some(Action::Suspend),
            '+' => Some(Action::Parallelism(job.parallelism + 1)),
            _ => Some(Action::Parallelism((job.parallelism - 1).max(0))),
        };
    }

    fn move_by(&mut self, key: Key) {
        let page = self.page.max(2) - 1;
        let moved = |at: usize, count: usize| {
            match key {
                Key::Up | Key::Text('k') => at.saturating_sub(1),
                Key::Down | Key::Text('j') => at + 1,
                Key::PageUp => at.saturating_sub(page),
                Key::PageDown => at + page,
                Key::Home | Key::Text('g') => 0,
                Key::End | Key::Text('G') => count,
                _ => at,
            }
            .min(count.saturating_sub(1))
        };
        match self.screen {
            Screen::Jobs => self.chosen = self.shown.get(moved(self.chosen_at(), self.shown.len())).cloned(),
            Screen::Job => {
                if let Some(open) = &mut self.open {
                    open.chosen = moved(open.chosen, open.attempts.len());
                }
            }
            Screen::Log => {
                if let Some(log) = &mut self.log {
                    let count = log.lines.len();
                    let at = count.saturating_sub(log.above_end).saturating_sub(1);
                    log.above_end = count.saturating_sub(moved(at, count) + 1);
                }
            }
            Screen::Help => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::waiting::Wait;
    use serde_json::json;

    fn job(name: &str, created: &str, failed: u64) -> Value {
        json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("u-{name}"), "creationTimestamp": created},
            "spec": {"completions": 3, "parallelism": 2}, "status": {"active": 1, "failed": failed}})
    }

    fn model() -> Model {
        let mut model = Model { page: 10, ..Model::default() };
        for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
            let job = job(name, &format!("2026-01-01T00:00:0{at}Z"), 3 - at as u64);
            model.set_job(&format!("u-{name}"), Some(&job));
        }
        model.arrange();
        model
    }

    fn names(model: &Model) -> Vec<&str> {
        model.jobs().map(|job| job.row.name.as_str()).collect()
    }

    fn keys(model: &mut Model, keys: &str) -> Vec<Effect> {
        keys.chars()
            .filter_map(|key| {
                model.key(if key == '\n' {
                    Key::Enter
                } else if key == '\u{1b}' {
                    Key::Escape
                } else {
                    Key::Text(key)
                })
            })
            .collect()
    }

    #[test]
    fn the_list_is_sorted_and_filtered_and_the_chosen_job_stays_chosen() {
        let mut model = model();
        assert_eq!(names(&model), ["c", "b", "a"]);
        keys(&mut model, "j");
        assert_eq!(model.chosen_job().unwrap().row.name, "b");
        keys(&mut model, "o");
        assert_eq!(names(&model), ["a", "b", "c"]);
        assert_eq!(model.chosen_job().unwrap().row.name, "b");
        keys(&mut model, "oo");
        assert_eq!((names(&model), model.order), (vec!["a", "b", "c"], Order::Failed));
        keys(&mut model, "/ns/c\n");
        assert_eq!((names(&model), model.types_filter), (vec!["c"], false));
        assert_eq!(model.chosen_job().unwrap().row.name, "c");
        keys(&mut model, "\u{1b}");
        assert_eq!(names(&model).len(), 3);
        model.set_job("u-c", None);
        model.arrange();
        assert_eq!(names(&model), ["a", "b"]);
        assert!(model.chosen_job().is_some());
    }

    #[test]
    fn it_is_asked_again_and_again_of_jobs_without_a_ready_pod_whether_they_wait() {
        let mut model = model();
        let mut ready = job("b", "2026-01-01T00:00:01Z", 0);
        ready["status"]["ready"] = 1.into();
        model.set_job("u-b", Some(&ready));
        let (now, later) = (Instant::now(), Instant::now() + ASK_EVERY * 2);
        let asked = |rows: Vec<JobRow>| rows.into_iter().map(|row| row.name).collect::<Vec<_>>();
        assert_eq!(asked(model.ask_about(now)), ["a", "c"]);
        assert_eq!(asked(model.ask_about(now)), [""; 0], "not yet again");
        assert_eq!(asked(model.ask_about(later)), ["a", "c"]);
        let wait = Wait { reason: "Unschedulable", message: "It fits nowhere.".to_owned() };
        let all: BTreeSet<String> = ["u-a", "u-c"].map(str::to_owned).into();
        let state = |model: &Model, uid: &str| {
            let row = &model.jobs[uid].row;
            (row.state.clone(), row.why())
        };
        model.set_waits(&all, [("u-a".to_owned(), wait)].into());
        assert_eq!(state(&model, "u-a"), ("Waiting".to_owned(), "It fits nowhere.".to_owned()));
        assert_eq!(state(&model, "u-c").0, "Running");
        // Another change of the Job does not forget it; a Pod that is ready does.
        model.set_job("u-a", Some(&job("a", "2026-01-01T00:00:00Z", 4)));
        assert_eq!(state(&model, "u-a").0, "Waiting");
        let mut ready = job("a", "2026-01-01T00:00:00Z", 4);
        ready["status"]["ready"] = 1.into();
        model.set_job("u-a", Some(&ready));
        assert_eq!(state(&model, "u-a"), ("Running".to_owned(), String::new()));
        // One that goes on again.
        let wait = Wait { reason: "BackOff", message: "Later.".to_owned() };
        model.set_waits(&all, [("u-c".to_owned(), wait)].into());
        assert_eq!(state(&model, "u-c").0, "Waiting");
        model.set_waits(&all, Waits::new());
        assert_eq!(state(&model, "u-c").0, "Running");
    }

    #[test]
    fn nothing_is_changed_without_a_confirmation() {
        let mut model = model();
        assert_eq!(keys(&mut model, "sn"), []);
        let act = |action| Effect::Act { namespace: "ns".into(), name: "c".into(), action };
        assert_eq!(keys(&mut model, "sy"), [act(Action::Suspend)]);
        assert_eq!(keys(&mut model, "dy"), [act(Action::Delete)]);
        assert_eq!(keys(&mut model, "+y"), [act(Action::Parallelism(3))]);
        assert_eq!(keys(&mut model, "-y"), [act(Action::Parallelism(1))]);
        model.read_only = Some("only read".into());
        assert_eq!((keys(&mut model, "s"), model.note.as_str()), (vec![], "only read"));
        assert_eq!(keys(&mut model, "y"), []);
    }

    #[test]
    fn a_job_and_the_log_of_a_pod_are_opened_and_closed() {
        let mut model = model();
        assert_eq!(keys(&mut model, "\n"), [Effect::OpenJob("u-c".into())]);
        let pod = json!({"metadata": {"name": "c-0", "uid": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"phase": "Running", "containerStatuses": [{"name": "main", "restartCount": 0,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}});
        model.set_pod("p", serde_json::from_value(pod).ok());
        model.arrange_attempts();
        assert_eq!(keys(&mut model, "l"), [Effect::OpenLog { pod: "c-0".into(), container: "main".into() }]);
        model.add_log("one\ntw");
        model.add_log("o\nthree");
        assert_eq!(model.log.as_ref().unwrap().lines, ["one", "two"]);
        keys(&mut model, "k");
        assert_eq!(model.log.as_ref().unwrap().above_end, 1);
        model.add_log("\n");
        assert_eq!(model.log.as_ref().unwrap().above_end, 2, "what is read does not move");
        assert_eq!(keys(&mut model, "\u{1b}\u{1b}q"), [Effect::CloseLog, Effect::CloseJob, Effect::Quit]);
    }
}
