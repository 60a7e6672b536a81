//! The rules that the recorded conversations of `tests/golden` show.

use serde_json::Value;

use crate::repository;

pub struct Recording {
    /// `folder/name`.
    pub name: String,
    pub rules: Vec<String>,
    /// Whether Tally must give the same responses.
    pub is_held_to: bool,
}

pub fn all() -> Vec<Recording> {
    let known = repository::file("tests/golden/known-differences.txt").expect("the list is in the repository").text;
    let files = repository::files("tests/golden").into_iter().filter(|file| file.path.ends_with(".jsonl"));
    let read = |file: repository::File| {
        let folder = file.folder().to_owned();
        file.text.lines().map(|line| recording(&folder, line, &known)).collect::<Vec<_>>()
    };
    files.flat_map(read).collect()
}

fn recording(folder: &str, line: &str, known: &str) -> Recording {
    let case: Value = serde_json::from_str(line).expect("a case is one line of JSON");
    let name = format!("{folder}/{}", case["name"].as_str().unwrap_or_default());
    let rules = case["rules"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    let differs = known.lines().any(|line| line.split_once(": ").is_some_and(|(case, _)| case == name));
    Recording { name, rules, is_held_to: !differs }
}

#[test]
fn recordings_that_are_not_compared_test_nothing() {
    let check = |name: &str, more: &str, expected: bool| {
        let line = format!(r#"{{"name": "{name}", "rules": ["FIN-1", "TABLE"], "steps": [{more}]}}"#);
        let case = recording("api", &line, "# a list\napi/differs: because\n");
        assert_eq!(case.rules, ["FIN-1", "TABLE"]);
        assert_eq!(case.is_held_to, expected, "{line}");
    };
    check("same", "", true);
    check("differs", "", false);
}
