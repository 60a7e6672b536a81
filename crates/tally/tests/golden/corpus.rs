//! The recorded conversations of `tests/golden`, and which of them this server must reproduce.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The folders of `tests/golden`, in the order of the report.
pub const FOLDERS: [&str; 3] = ["job", "api", "controllers"];

pub struct Case {
    pub folder: &'static str,
    pub name: String,
    pub rules: String,
    pub steps: Vec<Value>,
    /// The controllers that must run, by the names that `--controllers` accepts. If there are none, none may run: the
    /// recording client writes what they would write.
    pub controllers: BTreeSet<&'static str>,
    pub not_yet: Option<String>,
}

impl Case {
    pub fn id(&self) -> String {
        format!("{}/{}", self.folder, self.name)
    }

    /// How many seconds its steps sleep and may wait: an estimate of how long it takes.
    pub fn patience(&self) -> u64 {
        let seconds = |step: &Value| step["sleep"].as_f64().or(step["wait"]["timeout"].as_f64()).unwrap_or_default();
        self.steps.iter().map(seconds).sum::<f64>() as u64
    }

    fn from_line(folder: &'static str, line: &str, there_are: &BTreeSet<String>) -> Case {
        let mut case: Value = serde_json::from_str(line).expect("a case is one line of JSON");
        let name = case["name"].as_str().expect("a case has a name").to_owned();
        let Value::Array(steps) = case["steps"].take() else { panic!("{name} has no steps") };
        let texts =
            |key: &str| -> Vec<&str> { case[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect() };
        let controllers: BTreeSet<_> = texts("needs").into_iter().filter_map(controller).collect();
        let missing: Vec<_> = controllers.iter().filter(|name| !there_are.contains(**name)).copied().collect();
        let not_yet = match missing[..] {
            [] => None,
            _ => Some(format!("needs {}", missing.join(", "))),
        };
        Case { folder, rules: texts("rules").join(", "), name, steps, controllers, not_yet }
    }
}

/// The controller that a case needs, by the name it has here.
fn controller(need: &str) -> Option<&'static str> {
    match need {
        "cronjob" => Some("cronjob"),
        "gc" => Some("gc"),
        "job-controller" => Some("job"),
        "namespace-controller" => Some("namespace"),
        "podgc" => Some("podgc"),
        "serviceaccount-controller" => Some("serviceaccount"),
        "ttl" => Some("ttl"),
        // Features of the server, not controllers.
        "eviction" | "limitranger" => None,
        _ => panic!("nobody has said what {need:?} is"),
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

/// Every case, sorted by folder and name. `there_are`: the controllers of the binary.
pub fn cases(there_are: &BTreeSet<String>) -> Vec<Case> {
    let mut cases = Vec::new();
    for folder in FOLDERS {
        let directory = std::fs::read_dir(root().join(folder)).expect("the corpus is in the repository");
        let files = directory.map(|entry| entry.expect("a folder of the corpus can be read").path());
        for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "jsonl")) {
            let text = std::fs::read_to_string(&file).expect("a file of the corpus can be read");
            cases.extend(text.lines().map(|line| Case::from_line(folder, line, there_are)));
        }
    }
    cases.sort_by_key(|case| (FOLDERS.iter().position(|folder| *folder == case.folder), case.name.clone()));
    cases
}

/// The intended differences, by `folder/name`, each with its reason.
pub fn known_differences() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(root().join("known-differences.txt")).expect("the list is in the repository");
    parse_known_differences(&text)
}

fn parse_known_differences(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entries = lines.map(|line| match line.split_once(": ") {
        Some((case, reason)) if !reason.trim().is_empty() => (case.to_owned(), reason.trim().to_owned()),
        _ => panic!("a known difference has the form `folder/name: reason`, not {line:?}"),
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_cases_have_the_same_name() {
        let mut ids: Vec<_> = cases(&BTreeSet::new()).iter().map(Case::id).collect();
        let all = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), all);
        assert!(all > 1_000, "{all} cases: the corpus is not complete");
    }

    #[test]
    fn a_case_waits_for_what_it_is_about() {
        let there_are = BTreeSet::from(["job".to_owned(), "ttl".to_owned()]);
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(Case::from_line("api", text, &there_are).not_yet.as_deref(), expected, "{text}");
        };
        let needs = r#"{"name":"x","needs":["job-controller","gc","ttl","podgc"],"steps":[]}"#;
        check(needs, Some("needs gc, podgc"));
        check(r#"{"name":"x","needs":["job-controller","eviction"],"steps":[]}"#, None);
        check(r#"{"name":"x","needs":[],"steps":[]}"#, None);
        check(r#"{"name":"discovery-version","steps":[]}"#, None);
    }

    #[test]
    fn a_known_difference_names_its_reason() {
        let list = parse_known_differences("# why\n\njob/a: better so: really\n");
        assert_eq!(list.into_iter().collect::<Vec<_>>(), [("job/a".to_owned(), "better so: really".to_owned())]);
    }

    #[test]
    #[should_panic(expected = "folder/name: reason")]
    fn a_known_difference_without_a_reason_is_refused() {
        parse_known_differences("job/a:");
    }
}
