//! `--retry-failed` and `--resume`: the Jobs that run again what has failed, or has not succeeded, of a finished Job.
//!
//! Such a Job is an ordinary one with one completion for each of these indexes. Two annotations say where they come from
//! (RETRY-1), and the node tells every task its index in the first Job (RETRY-2). The Jobs that follow each other this way
//! are a chain: an index has succeeded if it has in one of them (RETRY-3).

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tally_core::indexes::IndexSet;
use tally_core::job::HALT_ANNOTATION;
use tally_core::pod::RETRY_INDEXES_ANNOTATION;
use thiserror::Error;

use super::resume::{GENERATED, is_finished};
use super::{RunError, jobs};
use crate::run::input::documents::{Document, Origin};
use crate::run::input::flags::MOST_UNLIMITED;
use crate::run::parts::{FIRST_INDEX, ListPart, PARALLELISM, PART_OF};
use crate::run::progress::view;

/// On a Job that runs indexes again: `NAME/UID` of the Job that came before it.
pub const RETRY_OF_ANNOTATION: &str = "tally.dev/retry-of";
/// All annotations of an object may have 256 KiB. This leaves some for others.
const LONGEST_LIST: usize = 200 * 1024;
/// Longer lists of indexes are not shown in messages.
const LONGEST_SHOWN: usize = 200;

/// What is run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// `--retry-failed`: what has failed for good.
    Failed,
    /// `--resume`: all that has not succeeded, whether it has failed or was not run to the end.
    NotSucceeded,
}

impl Selection {
    pub fn flag(self) -> &'static str {
        match self {
            Self::Failed => "--retry-failed",
            Self::NotSucceeded => "--resume",
        }
    }
}

/// What to do for `--retry-failed` or `--resume`.
#[derive(Debug, PartialEq)]
pub enum Plan {
    /// Create these Jobs. `told`: what they do.
    Create { jobs: Vec<Value>, told: String },
    /// The Job of this name is not finished: it goes on.
    GoesOn(String),
    /// There is nothing to run: why.
    Done(String),
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum RetryError {
    #[error("{flag}: there is no Job {name:?} in {place}")]
    Missing { flag: &'static str, name: String, place: String },
    #[error("{flag}: there is no Job in {place}")]
    Empty { flag: &'static str, place: String },
    #[error("--retry-failed: Job {0:?} is not finished; run it to its end first")]
    Unfinished(String),
    #[error(
        "--retry-failed: Job {0:?} has no indexes, so that it is not known which of its runs have failed; --resume runs as \
         many as have not succeeded, --again all of them"
    )]
    NoIndexes(String),
    #[error(
        "--retry-failed: no finished Job in {0} has failed indexes; --resume also runs what was not run to the end"
    )]
    NoneFailed(String),
    #[error("--retry-failed: Job {name:?} has no failed indexes{left}")]
    NotFailed { name: String, left: String },
    #[error("{flag}: there is something to run again in several Jobs; name one of them: {names}")]
    Several { flag: &'static str, names: String },
    #[error("{flag}: the list of the indexes of Job {name:?} is too long for one Job")]
    TooLong { flag: &'static str, name: String },
}

impl From<RetryError> for RunError {
    fn from(error: RetryError) -> Self {
        Self::Input(error.to_string())
    }
}

/// The Jobs of a plan, to be created.
pub fn documents(planned: Vec<Value>) -> Result<Vec<Document>, RunError> {
    let resource = jobs()?;
    Ok(planned.into_iter().map(|object| Document { origin: Origin::Flags, resource, object }).collect())
}

fn name_of(job: &Value) -> &str {
    job["metadata"]["name"].as_str().unwrap_or_default()
}

fn annotation<'a>(job: &'a Value, name: &str) -> Option<&'a str> {
    job["metadata"]["annotations"][name].as_str()
}

/// It runs nothing, and will not. A part of a list is suspended when another part has failed.
fn is_over(job: &Value) -> bool {
    is_finished(job) || ListPart::of(job).is_some() && job["spec"]["suspend"] == true
}

fn is_complete(job: &Value) -> bool {
    let conditions = job["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|known| known["type"] == "Complete" && known["status"] == "True")
}

/// The indexes of a Job as those of the Job that was run first.
fn originals(job: &Value, indexes: IndexSet) -> IndexSet {
    view::originals(indexes, annotation(job, RETRY_INDEXES_ANNOTATION))
}

/// What has become of the indexes.
#[derive(Clone, Debug, Default, PartialEq)]
struct IndexResults {
    all: IndexSet,
    succeeded: IndexSet,
    failed: IndexSet,
}

impl IndexResults {
    /// Of one Job, as indexes of the first Job.
    fn of(job: &Value) -> Self {
        let (spec, status) = (&job["spec"], &job["status"]);
        let limit = spec["completions"].as_u64().and_then(|limit| u32::try_from(limit).ok()).unwrap_or(0);
        let read = |field: &str| IndexSet::read_tolerant(status[field].as_str().unwrap_or_default(), limit);
        let all = IndexSet::below(limit);
        // A success policy may have made it Complete before all were run: they are not needed.
        let succeeded = if is_complete(job) { all.clone() } else { read("completedIndexes") };
        // RETRY-1: where failures are not counted per index, it is not known which have failed.
        let failed = match spec["backoffLimitPerIndex"].is_null() && is_finished(job) {
            true => all.difference(&succeeded),
            false => read("failedIndexes").difference(&succeeded),
        };
        let [all, succeeded, failed] = [all, succeeded, failed].map(|set| originals(job, set));
        Self { all, succeeded, failed }
    }

    fn left(&self) -> IndexSet {
        self.all.difference(&self.succeeded)
    }

    fn selected(&self, which: Selection) -> IndexSet {
        match which {
            Selection::Failed => self.failed.clone(),
            Selection::NotSucceeded => self.left(),
        }
    }

    /// Adds those of another part of the same list, whose rows begin with `first`.
    fn add(&mut self, other: &Self, first: u32) {
        let sets =
            [(&mut self.all, &other.all), (&mut self.succeeded, &other.succeeded), (&mut self.failed, &other.failed)];
        for (whole, part) in sets {
            for (start, end) in part.intervals() {
                whole.insert_below(start.saturating_add(first), end.saturating_add(first).saturating_add(1));
            }
        }
    }
}

/// A Job, and those that have run its indexes again, the newest last.
struct Chain<'a> {
    jobs: Vec<&'a Value>,
}

impl<'a> Chain<'a> {
    fn root(&self) -> &'a Value {
        self.jobs.first().copied().unwrap_or(&Value::Null)
    }

    fn newest(&self) -> &'a Value {
        self.jobs.last().copied().unwrap_or(&Value::Null)
    }

    /// The Job that has not ended.
    fn open(&self) -> Option<&'a Value> {
        self.jobs.iter().find(|job| !is_over(job)).copied()
    }

    fn is_indexed(&self) -> bool {
        self.root()["spec"]["completionMode"] == "Indexed"
    }

    /// RETRY-3.
    fn results(&self) -> IndexResults {
        let mut whole = IndexResults { all: IndexResults::of(self.root()).all, ..IndexResults::default() };
        for job in &self.jobs {
            let of_job = IndexResults::of(job);
            whole.succeeded = whole.succeeded.union(&of_job.succeeded);
            whole.failed = whole.failed.union(&of_job.failed);
        }
        whole.failed = whole.failed.difference(&whole.succeeded);
        whole
    }

    /// How many runs of a Job without indexes have not succeeded.
    fn runs_left(&self) -> u64 {
        if is_complete(self.newest()) {
            return 0;
        }
        let succeeded: u64 = self.jobs.iter().filter_map(|job| job["status"]["succeeded"].as_u64()).sum();
        self.root()["spec"]["completions"].as_u64().unwrap_or(succeeded + 1).saturating_sub(succeeded)
    }

    /// The number of the first row, if it is a part of a list.
    fn first(&self) -> u32 {
        ListPart::of(self.root()).map_or(0, |part| part.first)
    }

    fn has_work(&self, which: Selection) -> bool {
        match self.is_indexed() {
            true => !self.results().selected(which).is_empty(),
            false => which == Selection::NotSucceeded && self.runs_left() > 0,
        }
    }
}

/// What a user calls a Job: the chain of a Job, or those of all parts of a list.
struct Work<'a> {
    name: String,
    chains: Vec<Chain<'a>>,
}

impl<'a> Work<'a> {
    fn open(&self) -> Option<&'a Value> {
        self.chains.iter().find_map(Chain::open)
    }

    fn has_work(&self, which: Selection) -> bool {
        self.chains.iter().any(|chain| chain.has_work(which))
    }

    fn is_indexed(&self) -> bool {
        self.chains.iter().all(Chain::is_indexed)
    }

    fn results(&self) -> IndexResults {
        let mut whole = IndexResults::default();
        self.chains.iter().for_each(|chain| whole.add(&chain.results(), chain.first()));
        whole
    }
}

fn works(all: &[Value]) -> Vec<Work<'_>> {
    let id = |job: &Value| format!("{}/{}", name_of(job), job["metadata"]["uid"].as_str().unwrap_or_default());
    let mut successors: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for job in all {
        if let Some(of) = annotation(job, RETRY_OF_ANNOTATION) {
            successors.entry(of).or_default().push(job);
        }
    }
    let ids: std::collections::BTreeSet<String> = all.iter().map(id).collect();
    let is_root = |job: &&Value| annotation(job, RETRY_OF_ANNOTATION).is_none_or(|of| !ids.contains(of));
    let mut works: Vec<Work<'_>> = Vec::new();
    let mut lists: BTreeMap<(String, String), usize> = BTreeMap::new();
    for root in all.iter().filter(is_root) {
        let mut jobs = vec![root];
        let mut at = 0;
        // A Job cannot be in two chains: it names one Job that came before it.
        while let Some(job) = jobs.get(at) {
            let next = successors.get(id(job).as_str()).into_iter().flatten().copied();
            let next: Vec<&Value> = next.filter(|next| !std::ptr::eq(*next, root)).collect();
            jobs.extend(next);
            at += 1;
        }
        let chain = Chain { jobs };
        let Some(list) = annotation(root, PART_OF) else {
            works.push(Work { name: name_of(root).to_owned(), chains: vec![chain] });
            continue;
        };
        let namespace = root["metadata"]["namespace"].as_str().unwrap_or_default();
        let at = *lists.entry((namespace.to_owned(), list.to_owned())).or_insert(works.len());
        match works.get_mut(at) {
            Some(work) => work.chains.push(chain),
            None => works.push(Work { name: list.to_owned(), chains: vec![chain] }),
        }
    }
    works
}

/// What to do, from all Jobs that are there. `name` may be empty if there is only one Job to choose. `place`: where they
/// are, for messages.
pub fn plan(all: &[Value], name: &str, which: Selection, place: &str) -> Result<Plan, RetryError> {
    let flag = which.flag();
    let mut works = works(all);
    if name.is_empty() {
        let is_ready = |work: &&Work<'_>| work.open().is_none() && work.has_work(which);
        let ready: Vec<&Work<'_>> = works.iter().filter(is_ready).collect();
        return match ready.as_slice() {
            [work] => create(all, work, which),
            [] => nothing_ready(&works, which, place),
            several => {
                let names: Vec<&str> = several.iter().map(|work| work.name.as_str()).collect();
                Err(RetryError::Several { flag, names: names.join(", ") })
            }
        };
    }
    let has = |job: &Value| name_of(job) == name || annotation(job, PART_OF) == Some(name);
    let found = works.iter().position(|work| work.chains.iter().any(|chain| chain.jobs.iter().any(|job| has(job))));
    let Some(at) = found else {
        return Err(RetryError::Missing { flag, name: name.to_owned(), place: place.to_owned() });
    };
    let mut work = works.swap_remove(at);
    // One part of a list may be meant.
    if work.chains.len() > 1
        && let Some(at) = work.chains.iter().position(|chain| name_of(chain.root()) == name)
    {
        work = Work { name: work.name, chains: vec![work.chains.swap_remove(at)] };
    }
    match (work.open(), which) {
        (Some(job), Selection::Failed) if annotation(job, RETRY_OF_ANNOTATION).is_none() => {
            return Err(RetryError::Unfinished(work.name));
        }
        (Some(job), _) => return Ok(Plan::GoesOn(name_of(job).to_owned())),
        (None, _) => {}
    }
    match (work.has_work(which), which) {
        (true, _) => create(all, &work, which),
        (false, Selection::NotSucceeded) => Ok(Plan::Done(succeeded(&work))),
        (false, Selection::Failed) if !work.is_indexed() => Err(RetryError::NoIndexes(work.name)),
        (false, Selection::Failed) => {
            let left = work.results().left();
            let left = match left.is_empty() {
                true => String::new(),
                false => format!("; {} not run to the end, and --resume runs them: {}", were(left.len()), shown(&left)),
            };
            Err(RetryError::NotFailed { name: work.name, left })
        }
    }
}

fn nothing_ready(works: &[Work<'_>], which: Selection, place: &str) -> Result<Plan, RetryError> {
    let is_meant = |job: &&Value| which == Selection::NotSucceeded || annotation(job, RETRY_OF_ANNOTATION).is_some();
    match (works.iter().filter_map(Work::open).find(is_meant), which, works) {
        (Some(job), ..) => Ok(Plan::GoesOn(name_of(job).to_owned())),
        (None, Selection::Failed, _) => Err(RetryError::NoneFailed(place.to_owned())),
        (None, _, []) => Err(RetryError::Empty { flag: which.flag(), place: place.to_owned() }),
        (None, _, [work]) => Ok(Plan::Done(succeeded(work))),
        (None, ..) => Ok(Plan::Done(format!("nothing is left to run: everything in {place} has succeeded"))),
    }
}

/// The Jobs that have Failed and of which everything has succeeded since: the last Job that ran a part of each, by UID.
pub fn succeeded_since(all: &[Value]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for work in works(all).iter().filter(|work| work.open().is_none() && !work.has_work(Selection::NotSucceeded)) {
        for chain in work.chains.iter().filter(|chain| chain.jobs.len() > 1) {
            let failed = chain.jobs.iter().filter(|job| !is_complete(job));
            let uids = failed.filter_map(|job| job["metadata"]["uid"].as_str());
            found.extend(uids.map(|uid| (uid.to_owned(), name_of(chain.newest()).to_owned())));
        }
    }
    found
}

fn succeeded(work: &Work<'_>) -> String {
    format!("nothing is left to run: everything of Job {:?} has succeeded", work.name)
}

fn were(count: usize) -> String {
    if count == 1 { "1 was".to_owned() } else { format!("{count} were") }
}

/// A set of indexes in a message.
fn shown(indexes: &IndexSet) -> String {
    let text = indexes.text();
    if text.len() <= LONGEST_SHOWN { text } else { format!("{} indexes", indexes.len()) }
}

/// What is left of the Jobs with these UIDs, now that they have ended, and the command that runs it. `flags`: those that
/// name the place. `retried`: the run was for `--retry-failed` or `--resume`.
pub fn left(all: &[Value], uids: &[&str], flags: &str, retried: bool) -> Vec<String> {
    let mut told = Vec::new();
    for work in works(all) {
        let is_meant = |job: &&Value| job["metadata"]["uid"].as_str().is_some_and(|uid| uids.contains(&uid));
        let mut jobs = work.chains.iter().flat_map(|chain| &chain.jobs);
        if work.open().is_some() || !jobs.any(is_meant) {
            continue;
        }
        let name = &work.name;
        let command = format!("`tally run{flags} --resume {name}`");
        if !work.is_indexed() {
            let left: u64 = work.chains.iter().map(Chain::runs_left).sum();
            told.extend((left > 0).then(|| format!("{command} runs again what has not succeeded")));
            continue;
        }
        let results = work.results();
        let (left, failed) = (results.left(), &results.failed);
        let not_run = left.difference(failed);
        let count = results.all.len();
        told.extend(match (failed.is_empty(), not_run.is_empty()) {
            (true, true) => retried.then(|| format!("all {count} indexes of Job {name:?} have succeeded")),
            (false, true) if !retried => Some(format!("{command} runs again what has not succeeded")),
            (false, true) => Some(format!(
                "of Job {name:?} {} of {count} indexes have not succeeded: {}; {command} runs them again",
                failed.len(),
                shown(failed)
            )),
            (true, false) => Some(format!(
                "of Job {name:?} {} of {count} indexes were not run to the end: {}; {command} runs them",
                not_run.len(),
                shown(&not_run)
            )),
            (false, false) => {
                let failed = format!("{} of {count} indexes have failed: {}; ", failed.len(), shown(failed));
                let not_run = format!("{} not run to the end: {}", were(not_run.len()), shown(&not_run));
                Some(format!("of Job {name:?} {failed}{not_run}; {command} runs all of them"))
            }
        });
    }
    told
}

/// The Jobs that run what is selected.
fn create(all: &[Value], work: &Work<'_>, which: Selection) -> Result<Plan, RetryError> {
    let name = &work.name;
    let stem = name
        .rsplit_once("-retry-")
        .filter(|(_, number)| number.parse::<u32>().is_ok())
        .map_or(name.as_str(), |(stem, _)| stem);
    let is_taken = |new: &str| all.iter().any(|job| name_of(job) == new || annotation(job, PART_OF) == Some(new));
    let mut free = (1..).map(|number: u32| format!("{stem}-retry-{number}"));
    let new_name = free.find(|new| !is_taken(new)).unwrap_or_default();
    let mut created = Vec::new();
    let mut whole = IndexResults::default();
    for chain in work.chains.iter().filter(|chain| chain.has_work(which)) {
        if !chain.is_indexed() {
            created.push(made(chain, &new_name, chain.runs_left(), None, which));
            continue;
        }
        let results = chain.results();
        let indexes = results.selected(which);
        let list = indexes.text();
        if list.len() > LONGEST_LIST {
            return Err(RetryError::TooLong { flag: which.flag(), name: name.clone() });
        }
        whole.add(&IndexResults { all: indexes.clone(), ..IndexResults::default() }, chain.first());
        let mut job = made(chain, &new_name, indexes.len() as u64, Some(&list), which);
        if let Some(part) = ListPart::of(chain.root()) {
            let number = created.len();
            job["metadata"]["name"] = format!("{new_name}-{number}").into();
            let (first, parallelism) = (part.first.to_string(), part.parallelism.to_string());
            for (annotation, value) in [(PART_OF, &new_name), (FIRST_INDEX, &first), (PARALLELISM, &parallelism)] {
                job["metadata"]["annotations"][annotation] = value.as_str().into();
            }
        }
        created.push(job);
    }
    let told = match (which, work.is_indexed()) {
        (Selection::Failed, _) => {
            format!("Job {new_name:?} runs the failed indexes of Job {name:?} again: {}", shown(&whole.all))
        }
        (Selection::NotSucceeded, true) => {
            format!("Job {new_name:?} runs the indexes of Job {name:?} that have not succeeded: {}", shown(&whole.all))
        }
        (Selection::NotSucceeded, false) => format!("Job {new_name:?} runs what has not succeeded of Job {name:?}"),
    };
    Ok(Plan::Create { jobs: created, told })
}

/// A Job with `count` completions, and everything else from the newest of the chain. `list`: the indexes.
fn made(chain: &Chain<'_>, new_name: &str, count: u64, list: Option<&str>, which: Selection) -> Value {
    let newest = chain.newest();
    let (name, uid) = (name_of(newest), newest["metadata"]["uid"].as_str().unwrap_or_default());
    let mut spec = newest["spec"].clone();
    let own_selector = spec["manualSelector"] == true;
    if let Some(fields) = spec.as_object_mut() {
        // A success policy is about the indexes of the first Job.
        fields
            .retain(|field, _| field != "suspend" && field != "successPolicy" && (own_selector || field != "selector"));
        // RETRY-6: the indexes that have failed may fail again, and must not keep the others from being run.
        if which == Selection::NotSucceeded && count <= MOST_UNLIMITED as u64 {
            fields.remove("maxFailedIndexes");
        }
    }
    if !spec["completions"].is_null() {
        spec["completions"] = count.into();
        for limit in ["parallelism", "maxFailedIndexes"] {
            if spec[limit].as_u64().is_some_and(|number| number > count) {
                spec[limit] = count.into();
            }
        }
    }
    // The parts of a list share their parallelism, of which a part that has not begun has none.
    if let Some(part) = ListPart::of(chain.root()) {
        spec["parallelism"] = u64::from(part.parallelism).min(count).max(1).into();
    }
    let has_limit = !spec["maxFailedIndexes"].is_null();
    let template = &mut spec["template"]["metadata"];
    if let Some(labels) = template["labels"].as_object_mut() {
        labels.retain(|label, _| !GENERATED.contains(&label.as_str()));
    }
    let mut annotations = newest["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    annotations.retain(|name, _| ![PART_OF, FIRST_INDEX, PARALLELISM].contains(&name.as_str()));
    if !has_limit {
        annotations.remove(HALT_ANNOTATION);
    }
    annotations.insert(RETRY_OF_ANNOTATION.to_owned(), format!("{name}/{uid}").into());
    if let Some(list) = list {
        template["annotations"][RETRY_INDEXES_ANNOTATION] = list.into();
        annotations.insert(RETRY_INDEXES_ANNOTATION.to_owned(), list.into());
    }
    let namespace = &newest["metadata"]["namespace"];
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "spec": spec,
        "metadata": {"name": new_name, "namespace": namespace, "annotations": annotations},
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn plan(all: &[Value], name: &str, which: Selection) -> Result<Plan, RetryError> {
        super::plan(all, name, which, "the data directory")
    }

    /// The one Job that is created, and what is told.
    fn created(all: &[Value], name: &str, which: Selection) -> (Value, String) {
        match plan(all, name, which).unwrap() {
            Plan::Create { jobs, told } if jobs.len() == 1 => (jobs[0].clone(), told),
            other => panic!("{other:?}"),
        }
    }

    fn stored(name: &str, failed: &str, completed: &str, end: &str) -> Value {
        let labels = json!({"controller-uid": "u", "mine": "1"});
        json!({
            "metadata": {"name": name, "uid": format!("uid-{name}"), "namespace": "default", "annotations": {"tally.dev/backoff-base": "1s"}},
            "spec": {"completionMode": "Indexed", "completions": 10, "parallelism": 4, "maxFailedIndexes": 9, "suspend": false,
                "backoffLimitPerIndex": 0,
                "selector": {"matchLabels": {"controller-uid": "u"}}, "template": {"metadata": {"labels": labels}}},
            "status": status(failed, completed, end),
        })
    }

    fn status(failed: &str, completed: &str, end: &str) -> Value {
        json!({"failedIndexes": failed, "completedIndexes": completed, "conditions": [{"type": end, "status": "True"}]})
    }

    /// A Job as it is when it has been created and has ended.
    fn ended(mut job: Value, status: Value) -> Value {
        job["metadata"]["uid"] = format!("uid-{}", name_of(&job)).into();
        job["status"] = status;
        job
    }

    const INDEXES: &str = "/metadata/annotations/tally.dev~1retry-indexes";
    const OF: &str = "/metadata/annotations/tally.dev~1retry-of";

    /// RETRY-1.
    #[test]
    fn the_failed_indexes_are_run_again_over_a_chain_of_jobs() {
        let first = stored("sum", "1,3-5", "0,2,6-9", "Failed");
        let (again, told) = created(std::slice::from_ref(&first), "", Selection::Failed);
        for (pointer, expected) in [
            ("/metadata/name", json!("sum-retry-1")),
            (OF, json!("sum/uid-sum")),
            (INDEXES, json!("1,3-5")),
            ("/metadata/annotations/tally.dev~1backoff-base", json!("1s")),
            ("/spec/completions", json!(4)),
            ("/spec/parallelism", json!(4)),
            ("/spec/maxFailedIndexes", json!(4)),
            ("/spec/template/metadata/annotations/tally.dev~1retry-indexes", json!("1,3-5")),
            ("/spec/template/metadata/labels", json!({"mine": "1"})),
        ] {
            assert_eq!(again.pointer(pointer), Some(&expected), "{pointer}");
        }
        assert!(again["spec"].get("selector").is_none() && again["spec"].get("suspend").is_none());
        assert_eq!(told, "Job \"sum-retry-1\" runs the failed indexes of Job \"sum\" again: 1,3-5");
        // It is not finished: it is resumed.
        let open = [first.clone(), ended(again.clone(), json!({}))];
        for (name, which) in [("", Selection::Failed), ("sum", Selection::Failed), ("sum", Selection::NotSucceeded)] {
            assert_eq!(plan(&open, name, which), Ok(Plan::GoesOn("sum-retry-1".to_owned())));
        }
        // It has failed in part: its indexes are those of the first Job.
        let second = ended(again.clone(), status("0,2", "1,3", "Failed"));
        for name in ["", "sum", "sum-retry-1"] {
            let (third, _) = created(&[first.clone(), second.clone()], name, Selection::Failed);
            assert_eq!(third["metadata"]["name"], "sum-retry-2");
            assert_eq!(third.pointer(OF), Some(&json!("sum-retry-1/uid-sum-retry-1")));
            assert_eq!(third.pointer(INDEXES), Some(&json!("1,4")));
        }
        let second = ended(again, status("", "0-3", "Complete"));
        let all = [first, second];
        assert_eq!(
            plan(&all, "sum", Selection::Failed).unwrap_err().to_string(),
            "--retry-failed: Job \"sum\" has no failed indexes"
        );
        let done = "nothing is left to run: everything of Job \"sum\" has succeeded".to_owned();
        assert_eq!(plan(&all, "sum", Selection::NotSucceeded), Ok(Plan::Done(done)));
    }

    /// RETRY-3.
    #[test]
    fn a_resume_runs_what_has_succeeded_in_no_job_of_the_chain() {
        let first = stored("sum", "1,3", "0,2", "Failed");
        let (resumed, told) = created(std::slice::from_ref(&first), "", Selection::NotSucceeded);
        assert_eq!(resumed.pointer(INDEXES), Some(&json!("1,3-9")));
        assert_eq!(told, "Job \"sum-retry-1\" runs the indexes of Job \"sum\" that have not succeeded: 1,3-9");
        // After --retry-failed, of which one has failed again.
        let (retried, _) = created(std::slice::from_ref(&first), "", Selection::Failed);
        let all = [first, ended(retried, status("1", "0", "Failed"))];
        let (resumed, _) = created(&all, "", Selection::NotSucceeded);
        assert_eq!(resumed.pointer(INDEXES), Some(&json!("3-9")));
        assert_eq!(resumed.pointer(OF), Some(&json!("sum-retry-1/uid-sum-retry-1")));
        assert_eq!(resumed["metadata"]["name"], "sum-retry-2");
        let told = left(&all, &["uid-sum-retry-1"], " --data-dir d", true);
        let expected = "of Job \"sum\" 1 of 10 indexes have failed: 3; 6 were not run to the end: 4-9; `tally run \
                        --data-dir d --resume sum` runs all of them";
        assert_eq!(told, [expected]);
        let [first, second] = all;
        let all = [first, second, ended(resumed, status("", "0-6", "Complete"))];
        assert!(matches!(plan(&all, "", Selection::NotSucceeded), Ok(Plan::Done(_))));
        assert_eq!(left(&all, &["uid-sum-retry-2"], "", true), ["all 10 indexes of Job \"sum\" have succeeded"]);
        assert_eq!(left(&all, &["other"], "", true), [""; 0]);
    }

    #[test]
    fn a_job_that_was_ended_has_not_failed_where_it_was_not_run() {
        // By its deadline, for example.
        let late = stored("late", "", "0-3", "Failed");
        let error = plan(std::slice::from_ref(&late), "late", Selection::Failed).unwrap_err().to_string();
        assert_eq!(
            error,
            "--retry-failed: Job \"late\" has no failed indexes; 6 were not run to the end, and --resume runs them: 4-9"
        );
        assert_eq!(created(&[late], "", Selection::NotSucceeded).0.pointer(INDEXES), Some(&json!("4-9")));
        // RETRY-1: where failures are not counted per index, it is not known which have failed.
        let mut whole = stored("whole", "", "0-3,7", "Failed");
        whole["spec"].as_object_mut().unwrap().remove("backoffLimitPerIndex");
        for which in [Selection::Failed, Selection::NotSucceeded] {
            assert_eq!(created(std::slice::from_ref(&whole), "", which).0.pointer(INDEXES), Some(&json!("4-6,8,9")));
        }
    }

    #[test]
    fn a_job_without_indexes_runs_as_often_as_has_not_succeeded() {
        let mut plain = stored("plain", "", "", "Failed");
        plain["spec"]["completionMode"] = "NonIndexed".into();
        plain["status"]["succeeded"] = 7.into();
        let (resumed, told) = created(std::slice::from_ref(&plain), "", Selection::NotSucceeded);
        assert_eq!((&resumed["spec"]["completions"], &resumed["spec"]["parallelism"]), (&json!(3), &json!(3)));
        assert_eq!((resumed.pointer(INDEXES), resumed.pointer(OF)), (None, Some(&json!("plain/uid-plain"))));
        assert_eq!(told, "Job \"plain-retry-1\" runs what has not succeeded of Job \"plain\"");
        let error = plan(&[plain], "plain", Selection::Failed).unwrap_err().to_string();
        assert!(error.contains("has no indexes") && error.contains("--resume"), "{error}");
    }

    #[test]
    fn what_cannot_be_run_again_is_refused() {
        let good = stored("good", "", "0-9", "Complete");
        let open = stored("open", "1", "", "Other");
        let all = [good, open];
        for (name, told) in [
            ("", "no finished Job in the data directory has failed indexes"),
            ("none", "there is no Job \"none\" in the data directory"),
            ("good", "has no failed indexes"),
            ("open", "is not finished"),
        ] {
            let error = plan(&all, name, Selection::Failed).unwrap_err().to_string();
            assert!(error.contains(told), "{name}: {error}");
        }
        for name in ["", "open"] {
            assert_eq!(plan(&all, name, Selection::NotSucceeded), Ok(Plan::GoesOn("open".to_owned())));
        }
        let error = plan(&[], "", Selection::NotSucceeded).unwrap_err().to_string();
        assert_eq!(error, "--resume: there is no Job in the data directory");
        let two = [stored("a", "1", "0", "Failed"), stored("b", "2", "0", "Failed")];
        for which in [Selection::Failed, Selection::NotSucceeded] {
            assert!(plan(&two, "", which).unwrap_err().to_string().ends_with("name one of them: a, b"));
        }
    }

    /// RETRY-5.
    #[test]
    fn the_parts_of_a_list_are_run_again_as_one_list() {
        let part = |number: u32, failed: &str, completed: &str, end: &str| {
            let mut part = stored(&format!("l-{number}"), failed, completed, end);
            let first = (number * 10).to_string();
            for (name, value) in [(PART_OF, "l"), (FIRST_INDEX, &first), (PARALLELISM, "8")] {
                part["metadata"]["annotations"][name] = value.into();
            }
            part
        };
        // The third one was suspended when the second one failed.
        let mut third = part(2, "", "0", "Suspended");
        third["spec"]["suspend"] = true.into();
        third["spec"]["parallelism"] = 0.into();
        let all = [part(0, "", "0-9", "Complete"), part(1, "3", "0,1", "Failed"), third];
        let Plan::Create { jobs, told } = plan(&all, "", Selection::NotSucceeded).unwrap() else { panic!() };
        assert_eq!(told, "Job \"l-retry-1\" runs the indexes of Job \"l\" that have not succeeded: 12-19,21-29");
        let of = |job: &Value| {
            let annotation = |name: &str| annotation(job, name).unwrap().to_owned();
            (
                name_of(job).to_owned(),
                annotation(FIRST_INDEX),
                annotation(RETRY_INDEXES_ANNOTATION),
                annotation(PART_OF),
            )
        };
        let expected = [("l-retry-1-0", "10", "2-9", "l-retry-1"), ("l-retry-1-1", "20", "1-9", "l-retry-1")];
        let expected = expected.map(|(name, first, indexes, list)| {
            (name.to_owned(), first.to_owned(), indexes.to_owned(), list.to_owned())
        });
        assert_eq!(jobs.iter().map(of).collect::<Vec<_>>(), expected);
        assert!(jobs.iter().all(|job| job["spec"]["parallelism"] == 8 && job["spec"].get("suspend").is_none()));
        // One part alone.
        let (one, _) = created(&all, "l-1", Selection::Failed);
        assert_eq!(of(&one), ("l-retry-1-0".into(), "10".into(), "3".into(), "l-retry-1".into()));
        // The next of the chain.
        let mut all = all.to_vec();
        all.extend([
            ended(jobs[0].clone(), status("", "0-7", "Complete")),
            ended(jobs[1].clone(), status("8", "0-7", "Failed")),
        ]);
        for name in ["", "l", "l-retry-1"] {
            let (next, _) = created(&all, name, Selection::NotSucceeded);
            assert_eq!(of(&next), ("l-retry-2-0".into(), "20".into(), "9".into(), "l-retry-2".into()));
        }
    }
}
