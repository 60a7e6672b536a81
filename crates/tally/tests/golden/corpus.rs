//! The recorded conversations of `tests/golden`, and which of them this server is held to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The folders of `tests/golden`, in the order of the report.
pub const FOLDERS: [&str; 3] = ["job", "api", "controllers"];

pub struct Case {
    pub folder: &'static str,
    pub name: String,
    pub rules: String,
    pub steps: Vec<Value>,
    pub not_yet: Option<&'static str>,
}

impl Case {
    pub fn id(&self) -> String {
        format!("{}/{}", self.folder, self.name)
    }

    fn from_line(folder: &'static str, line: &str) -> Case {
        let mut case: Value = serde_json::from_str(line).expect("a case is one line of JSON");
        let name = case["name"].as_str().expect("a case has a name").to_owned();
        let Value::Array(steps) = case["steps"].take() else { panic!("{name} has no steps") };
        let needs = case["needs"].as_array().is_some_and(|needs| !needs.is_empty());
        let rules: Vec<_> = case["rules"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let not_yet = not_yet(needs, &name, &steps);
        Case { folder, rules: rules.join(", "), name, steps, not_yet }
    }
}

/// Why a case cannot be the same yet. Such cases are counted, and never as the same.
fn not_yet(needs: bool, name: &str, steps: &[Value]) -> Option<&'static str> {
    let applies = |step: &Value| {
        let headers = step["request"]["headers"].as_object();
        headers.into_iter().flatten().any(|(_, value)| value == "application/apply-patch+yaml")
    };
    if needs {
        Some("needs a controller")
    } else if name.starts_with("discovery-openapi-") {
        Some("OpenAPI")
    } else if name.starts_with("managedfields-") || steps.iter().any(|step| step["managedFields"] == true) {
        Some("managedFields")
    } else if name.starts_with("ssa-") || steps.iter().any(applies) {
        Some("server-side apply")
    } else {
        None
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

/// Every case, by folder and name.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for folder in FOLDERS {
        let directory = std::fs::read_dir(root().join(folder)).expect("the corpus is in the repository");
        let files = directory.map(|entry| entry.expect("a folder of the corpus can be read").path());
        for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "jsonl")) {
            let text = std::fs::read_to_string(&file).expect("a file of the corpus can be read");
            cases.extend(text.lines().map(|line| Case::from_line(folder, line)));
        }
    }
    cases.sort_by_key(|case| (FOLDERS.iter().position(|folder| *folder == case.folder), case.name.clone()));
    cases
}

/// The differences that are meant, by `folder/name`, each with its reason.
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
        let mut ids: Vec<_> = cases().iter().map(Case::id).collect();
        let all = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), all);
        assert!(all > 1_000, "{all} cases: the corpus is not complete");
    }

    #[test]
    fn a_case_waits_for_what_it_is_about() {
        let case = |text: &str| Case::from_line("api", text).not_yet;
        assert_eq!(case(r#"{"name":"x","needs":["gc"],"steps":[]}"#), Some("needs a controller"));
        assert_eq!(case(r#"{"name":"x","needs":[],"steps":[]}"#), None);
        assert_eq!(case(r#"{"name":"ssa-x","steps":[]}"#), Some("server-side apply"));
        assert_eq!(case(r#"{"name":"discovery-openapi-v3","steps":[]}"#), Some("OpenAPI"));
        assert_eq!(case(r#"{"name":"discovery-version","steps":[]}"#), None);
        assert_eq!(case(r#"{"name":"x","steps":[{"managedFields":true}]}"#), Some("managedFields"));
        assert_eq!(
            case(r#"{"name":"x","steps":[{"request":{"headers":{"Content-Type":"application/apply-patch+yaml"}}}]}"#),
            Some("server-side apply")
        );
        assert_eq!(
            case(r#"{"name":"x","steps":[{"request":{"headers":{"Content-Type":"application/merge-patch+json"}}}]}"#),
            None
        );
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
