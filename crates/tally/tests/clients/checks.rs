//! Whether a thing is done: what the client answered, and what the API shows. The same for all clients.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::drivers::GIVE_UP_AFTER;
use crate::suite::OBJECTS;
use crate::support::client::{Api, Call, Connection};
use crate::table::Cell;

/// Reads the API without any of the clients.
pub struct Truth {
    connection: Connection,
    namespace: String,
}

impl Truth {
    pub fn new(api: &Api, namespace: &str) -> Truth {
        Truth { connection: api.connection(), namespace: namespace.to_owned() }
    }

    /// `path` is that of an object, or that inside the namespace of the client.
    pub async fn get(&mut self, path: &str) -> Value {
        let group = if path.starts_with("jobs") { "/apis/batch/v1" } else { "/api/v1" };
        let path = match path.starts_with('/') {
            true => path.to_owned(),
            false => format!("{group}/namespaces/{}/{path}", self.namespace),
        };
        self.connection.call(&Call::get(path)).await.expect("an answer").value()
    }

    pub async fn eventually(&mut self, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + GIVE_UP_AFTER;
        loop {
            let found = self.get(path).await;
            if holds(&found) {
                return found;
            }
            assert!(Instant::now() < until, "never true of {path}: {found}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn same(what: &str, found: &Value, wanted: &Value) -> Result<(), String> {
    match found == wanted {
        true => Ok(()),
        false => Err(format!("{what}: {found}, not {wanted}")),
    }
}

fn holds(what: &str, holds: bool, shown: &Value) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("{what}: {shown}")) }
}

/// The managers that own a field.
fn owners(object: &Value, path: &[&str]) -> Value {
    let entries = object["metadata"]["managedFields"].as_array();
    let owns = |entry: &&Value| {
        let fields = path.iter().try_fold(&entry["fieldsV1"], |fields, name| fields.get(format!("f:{name}")));
        fields.is_some()
    };
    let owners: BTreeSet<_> =
        entries.into_iter().flatten().filter(owns).map(|entry| entry["manager"].to_string()).collect();
    owners.iter().map(|owner| owner.trim_matches('"').to_owned()).collect()
}

pub async fn check(thing: &str, cell: Cell, answer: &Value, truth: &mut Truth) -> Result<(), String> {
    match thing {
        "objects" => {
            let seen =
                json!({"got": "red", "red": ["red-1", "red-2"], "field": ["blue-1"], "left": ["blue-1", "red-1"]});
            same("seen", answer, &seen)?;
            let there = truth.get("configmaps?labelSelector=suite%3Dobjects").await;
            let names: Value =
                there["items"].as_array().into_iter().flatten().map(|item| item["metadata"]["name"].clone()).collect();
            same("there", &names, &json!(["blue-1", "red-1"]))
        }
        "conflict" => {
            let said = answer["conflict"].as_str().unwrap_or_default();
            let names_both = said.contains("alice") && said.contains(".data.key") && !said.contains(".data.other");
            holds("the conflict", said.starts_with("409") && names_both, answer)?;
            let there = truth.get("configmaps/shared").await;
            same("data", &there["data"], &json!({"key": "two", "other": "kept"}))?;
            same("owners of key", &owners(&there, &["data", "key"]), &json!(["bob"]))?;
            same("owners of other", &owners(&there, &["data", "other"]), &json!(["alice"]))
        }
        "owners" => {
            // The Job controller of the server is the third owner: that of the status.
            let there = truth.eventually("jobs/shared", |job| job["status"]["conditions"].is_array()).await;
            let spec = &there["spec"];
            same("spec", &json!([spec["backoffLimit"], spec["parallelism"], spec["suspend"]]), &json!([5, 4, true]))?;
            same("annotation", &there["metadata"]["annotations"]["clients.test/seen"], &json!("yes"))?;
            same("owners of backoffLimit", &owners(&there, &["spec", "backoffLimit"]), &json!(["user"]))?;
            same("owners of suspend", &owners(&there, &["spec", "suspend"]), &json!(["user"]))?;
            same("owners of parallelism", &owners(&there, &["spec", "parallelism"]), &json!(["controller"]))?;
            let annotation = ["metadata", "annotations", "clients.test/seen"];
            same("owners of the annotation", &owners(&there, &annotation), &json!(["controller"]))?;
            let status = owners(&there, &["status", "conditions"]);
            let is_other =
                status.as_array().is_some_and(|all| all.len() == 1 && all[0] != "user" && all[0] != "controller");
            holds("owners of the status", is_other, &status)
        }
        "rollback" => {
            if matches!(cell, Cell::Does(_)) {
                same("after the second", &answer["second"], &json!({"a": "1", "c": "3"}))?;
            }
            let there = truth.get("configmaps/rolled").await;
            same("data", &there["data"], &json!({"a": "1", "b": "2"}))?;
            same("label", &there["metadata"]["labels"]["tier"], &json!("one"))
        }
        "paging" => paging(answer),
        "watch" => {
            same("state", &answer["state"], &json!({"a": "2", "c": "1", "end": "1"}))?;
            same("deleted", &answer["deleted"], &json!(["b"]))?;
            holds("was told that its version is too old", answer["expired"] != json!(false), answer)?;
            let there = truth.get("configmaps?labelSelector=suite%3Dwatch").await;
            let there = there["items"].as_array().into_iter().flatten();
            let there: BTreeMap<_, _> =
                there.map(|item| (item["metadata"]["name"].as_str(), item["data"]["v"].clone())).collect();
            let there: Value = there.into_iter().filter_map(|(name, value)| Some((name?.to_owned(), value))).collect();
            same("there", &there, &answer["state"])
        }
        "terminal" => terminal(cell, answer, truth).await,
        "logs" => {
            same("lines", &answer["lines"], &json!(["one", "two", "three"]))?;
            same("there", &truth.get("pods/talker/log").await, &json!("one\ntwo\nthree\n"))
        }
        "job" => {
            let there = truth.get("jobs/runs").await;
            same("succeeded", &there["status"]["succeeded"], &json!(1))?;
            let complete = there["status"]["conditions"].as_array().into_iter().flatten();
            let complete = complete.into_iter().any(|one| one["type"] == "Complete" && one["status"] == "True");
            holds("complete", complete, &there["status"])
        }
        other => Err(format!("no check for {other}")),
    }
}

/// Every object that existed all the time is there once, and all pages are of one moment.
fn paging(answer: &Value) -> Result<(), String> {
    let mut found = BTreeMap::new();
    for pair in answer["found"].as_array().into_iter().flatten() {
        let name = pair[0].as_str().unwrap_or_default();
        let number: i64 = pair[1].as_str().and_then(|number| number.parse().ok()).ok_or_else(|| format!("{pair}"))?;
        if found.insert(name, number).is_some() {
            return Err(format!("{name} is there twice"));
        }
    }
    let fixed = (0..OBJECTS).filter(|number| found.contains_key(format!("fixed-{number:05}").as_str())).count();
    holds("objects that existed all the time", fixed == OBJECTS, &json!(fixed))?;
    let (first, last) = (found.get("a-first"), found.get("z-last"));
    let ahead = first.zip(last).map(|(first, last)| first - last);
    holds("the first and the last are of one moment", matches!(ahead, Some(0 | 1)), &json!([first, last]))?;
    let versions = answer["versions"].as_array();
    holds("one resourceVersion", versions.is_none_or(|versions| versions.len() == 1), &answer["versions"])?;
    holds("pages", answer["pages"].as_u64().is_none_or(|pages| pages > 10), &answer["pages"])
}

async fn terminal(cell: Cell, answer: &Value, truth: &mut Truth) -> Result<(), String> {
    let out = answer["out"].as_str().unwrap_or_default();
    if matches!(cell, Cell::Refused(_)) {
        holds("what it is told", out.contains("1.31"), answer)?;
        return same("exit code", &answer["code"], &json!(1));
    }
    holds("output", out.contains("got hello"), answer)?;
    same("exit code", &answer["code"], &json!(3))?;
    // What the command found where it ran.
    let told = truth.eventually("pods/shell/log", |log| log.as_str().is_some_and(|log| log.ends_with("end\n"))).await;
    let told_text = told.as_str().unwrap_or_default();
    match cell {
        Cell::Partly(_) => holds("no terminal", told_text == "not a tty\nend\n", &told),
        _ => holds(
            "a terminal of 17 rows and 91 columns",
            told_text.starts_with("/dev/pts/") && told_text.contains("17 91"),
            &told,
        ),
    }
}

/// A check that accepts everything would be a test of nothing.
#[test]
fn a_list_that_lacks_repeats_or_mixes_is_found() {
    let list = |first: u32, last: u32, change: fn(&mut Vec<Value>)| {
        let mut found: Vec<_> = (0..OBJECTS).map(|number| json!([format!("fixed-{number:05}"), "0"])).collect();
        found.push(json!(["a-first", first.to_string()]));
        found.push(json!(["z-last", last.to_string()]));
        change(&mut found);
        paging(&json!({"found": found, "versions": ["7"], "pages": 11}))
    };
    assert_eq!(list(4, 4, |_| {}), Ok(()));
    assert_eq!(list(5, 4, |_| {}), Ok(()));
    assert!(list(4, 5, |_| {}).is_err(), "a later page is newer than the first");
    assert!(list(6, 4, |_| {}).is_err(), "a later page is older than the first");
    assert!(list(4, 4, |found| drop(found.remove(2_000))).is_err(), "one is missing");
    assert!(list(4, 4, |found| found.push(found[2_000].clone())).is_err(), "one is there twice");
    let some = json!({"found": [["a-first", "1"], ["z-last", "1"]], "versions": ["7", "8"]});
    assert!(paging(&some).is_err());
}

#[test]
fn owners_are_read_from_managed_fields() {
    let object = json!({"metadata": {"managedFields": [
        {"manager": "alice", "fieldsV1": {"f:data": {".": {}, "f:other": {}}}},
        {"manager": "bob", "fieldsV1": {"f:data": {"f:key": {}}}},
    ]}});
    assert_eq!(owners(&object, &["data", "key"]), json!(["bob"]));
    assert_eq!(owners(&object, &["data", "other"]), json!(["alice"]));
    assert_eq!(owners(&object, &["data", "none"]), json!([]));
}
