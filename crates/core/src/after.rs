//! The order between Jobs: which Jobs another one waits for (`tally.dev/after`), and what is stored about the wait
//! (`tally.dev/after-state`). The rules are ORDER-1 to ORDER-7.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use crate::job::{Condition, condition};

/// The annotation that names the Jobs to wait for: `NAME[=Complete|Failed|Finished]`, separated by commas.
pub const AFTER: &str = "tally.dev/after";
/// The annotation in which the controller stores what it has seen of them. It also tells a suspension that waits for
/// other Jobs from one that a user wants.
pub const AFTER_STATE: &str = "tally.dev/after-state";
/// The Job that was waited for ended in another way, or was deleted before it ended.
pub const DEPENDENCY_FAILED: &str = "DependencyFailed";
/// Jobs wait for each other.
pub const DEPENDENCY_CYCLE: &str = "DependencyCycle";
/// The annotation cannot be read.
pub const DEPENDENCY_INVALID: &str = "DependencyInvalid";

const EXAMPLE: &str = "for example \"prepare\" or \"prepare=Complete,cleanup=Finished\"";
/// The length of the longest name that an object may have.
const LONGEST_NAME: usize = 253;

/// The name of a Job in the namespace of the one that names it.
pub type JobName = CompactString;

/// How a Job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobEnd {
    Complete,
    Failed,
}

impl JobEnd {
    pub fn of(conditions: &[Condition]) -> Option<Self> {
        conditions.iter().filter(|condition| condition.is_true()).find_map(|known| match known.kind.as_str() {
            condition::COMPLETE => Some(Self::Complete),
            condition::FAILED => Some(Self::Failed),
            _ => None,
        })
    }
}

/// How a Job must end for another one to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedEnd {
    Complete,
    Failed,
    Finished,
}

impl WantedEnd {
    pub fn is_met_by(self, end: JobEnd) -> bool {
        match self {
            Self::Complete => end == JobEnd::Complete,
            Self::Failed => end == JobEnd::Failed,
            Self::Finished => true,
        }
    }
}

impl fmt::Display for WantedEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A Job that another one waits for. Both are in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predecessor {
    pub name: JobName,
    pub wanted: WantedEnd,
}

/// Why the annotation cannot be read. The message contains an example.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AfterError {
    #[error("must name at least one Job, {EXAMPLE}")]
    Empty,
    #[error("\"{0}\" is not the name of a Job, {EXAMPLE}")]
    Name(String),
    #[error("\"{0}\" is not one of Complete, Failed, Finished, {EXAMPLE}")]
    End(String),
    #[error("names the Job \"{0}\" twice")]
    Twice(CompactString),
}

/// ORDER-1: the value of `tally.dev/after`.
pub fn parse(text: &str) -> Result<Vec<Predecessor>, AfterError> {
    let mut all: Vec<Predecessor> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, end) = part.split_once('=').map_or((part, None), |(name, end)| (name.trim(), Some(end.trim())));
        let wanted = match end {
            None | Some("Complete") => WantedEnd::Complete,
            Some("Failed") => WantedEnd::Failed,
            Some("Finished") => WantedEnd::Finished,
            Some(other) => return Err(AfterError::End(other.to_owned())),
        };
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
        if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(fits) {
            return Err(AfterError::Name(name.to_owned()));
        }
        if all.iter().any(|known| known.name == name) {
            return Err(AfterError::Twice(name.into()));
        }
        all.push(Predecessor { name: name.into(), wanted });
    }
    if all.is_empty() { Err(AfterError::Empty) } else { Ok(all) }
}

/// ORDER-6: the Jobs from `start` back to `start`, if it waits for itself. `waits_for` returns the names that a Job
/// waits for.
pub fn cycle<I>(start: &str, mut waits_for: impl FnMut(&str) -> I) -> Option<Vec<JobName>>
where
    I: IntoIterator<Item = JobName>,
{
    let mut seen: BTreeSet<CompactString> = BTreeSet::new();
    let mut path: Vec<(CompactString, Vec<CompactString>)> = Vec::new();
    path.push((start.into(), waits_for(start).into_iter().collect()));
    while let Some((_, left)) = path.last_mut() {
        let Some(next) = left.pop() else {
            path.pop();
            continue;
        };
        if next == start {
            return Some(path.into_iter().map(|(name, _)| name).chain([next]).collect());
        }
        if seen.insert(next.clone()) {
            let left = waits_for(&next).into_iter().collect();
            path.push((next, left));
        }
    }
    None
}

/// A cycle as messages show it: `a -> b -> a`.
pub fn describe_cycle(cycle: &[JobName]) -> String {
    cycle.join(" -> ")
}

/// The value of `tally.dev/after-state`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AfterState {
    /// The UID of the Job that carries the annotation: that of a copied manifest says nothing.
    #[serde(default)]
    pub job: CompactString,
    /// The controller has resumed the Job, or a user has: it is not resumed again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resumed: bool,
    /// What was seen of the Jobs that it waits for, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub seen: BTreeMap<CompactString, SeenJob>,
}

/// A Job that was seen. Another Job of the same name is not this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenJob {
    pub uid: CompactString,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<JobEnd>,
}

impl AfterState {
    /// The stored state of this Job; the empty state if there is none, or it belongs to another Job.
    pub fn read(text: Option<&str>, job: &str) -> Self {
        let stored = text.and_then(|text| serde_json::from_str::<Self>(text).ok());
        let own = stored.filter(|state| state.job == job);
        own.unwrap_or_else(|| Self { job: job.into(), ..Self::default() })
    }

    /// The Jobs whose end is still awaited.
    pub fn awaited<'a>(&self, after: &'a [Predecessor]) -> Vec<&'a str> {
        let ended = |name: &CompactString| self.seen.get(name).is_some_and(|seen| seen.end.is_some());
        after.iter().filter(|wanted| !ended(&wanted.name)).map(|wanted| wanted.name.as_str()).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// ORDER-1.
    #[test]
    fn the_annotation_names_jobs_and_how_they_end() {
        let read = |text: &str| {
            let all = parse(text).map_err(|error| error.to_string())?;
            let words: Vec<String> = all.iter().map(|one| format!("{}={}", one.name, one.wanted)).collect();
            Ok::<String, String>(words.join(" "))
        };
        let check = |text: &str, expected: &str| assert_eq!(read(text).unwrap(), expected, "{text}");
        check("a", "a=Complete");
        check("a=Complete", "a=Complete");
        check(" a = Failed , b-1.x=Finished,", "a=Failed b-1.x=Finished");
        let refuses = |text: &str, part: &str| {
            let message = read(text).unwrap_err();
            assert!(message.contains(part), "{text:?}: {message}");
        };
        refuses("", "at least one Job, for example \"prepare\"");
        refuses(" , ", "at least one Job");
        refuses("a=Done", "\"Done\" is not one of Complete, Failed, Finished, for example");
        refuses("a=complete", "\"complete\" is not one of");
        refuses("A", "\"A\" is not the name of a Job");
        refuses("a b", "\"a b\" is not the name of a Job");
        refuses("=Failed", "\"\" is not the name of a Job");
        refuses("a,b,a=Failed", "names the Job \"a\" twice");
    }

    /// ORDER-6.
    #[test]
    fn a_cycle_is_found_and_named() {
        let check = |edges: &[(&str, &[&str])], start: &str, expected: Option<&str>| {
            let waits_for = |name: &str| -> Vec<CompactString> {
                let of = edges.iter().find(|(from, _)| *from == name);
                of.map(|(_, to)| to.iter().map(|to| CompactString::from(*to)).collect()).unwrap_or_default()
            };
            assert_eq!(cycle(start, waits_for).map(|found| describe_cycle(&found)).as_deref(), expected, "{edges:?}");
        };
        check(&[("a", &["a"])], "a", Some("a -> a"));
        check(&[("a", &["b"]), ("b", &["c"]), ("c", &["a"])], "a", Some("a -> b -> c -> a"));
        check(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])], "a", None);
        check(&[("a", &["b", "c"]), ("b", &["d"]), ("c", &["d"]), ("d", &["a"])], "a", Some("a -> c -> d -> a"));
        check(&[("a", &["b", "c"]), ("b", &["c"])], "a", None);
    }

    #[test]
    fn a_state_belongs_to_one_job() {
        let seen = SeenJob { uid: "p".into(), end: Some(JobEnd::Complete) };
        let state = AfterState { job: "u".into(), resumed: false, seen: [("a".into(), seen)].into_iter().collect() };
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(text, r#"{"job":"u","seen":{"a":{"uid":"p","end":"Complete"}}}"#);
        assert_eq!(AfterState::read(Some(&text), "u"), state);
        let after = parse("a,b").unwrap();
        assert_eq!(state.awaited(&after), ["b"]);
        for (text, uid) in [(Some(text.as_str()), "other"), (Some("{"), "u"), (None, "u")] {
            assert_eq!(AfterState::read(text, uid), AfterState { job: uid.into(), ..AfterState::default() });
        }
    }
}
