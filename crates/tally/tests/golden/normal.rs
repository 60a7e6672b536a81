//! Removes from a response what a client cannot rely on: uids, times, revisions, the name of the namespace, random name
//! suffixes. The rest is the same on every run.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

use super::path;

const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Compared only if a step requests it (`managedFields`), or never.
const MANAGED: [&str; 3] = ["metadata.managedFields", "items.metadata.managedFields", "object.metadata.managedFields"];
const IGNORED: [&str; 4] =
    ["metadata.generateName", "items.metadata.generateName", "object.metadata.generateName", "metadata.selfLink"];

/// Cells that change with time, by the name of their column.
const AGES: [&str; 5] = ["Age", "Duration", "Last Seen", "First Seen", "Last Schedule"];

/// The state of one conversation: a uid keeps its number, and a generated name keeps its pattern, from the first step
/// to the last.
pub struct Normal {
    namespace: String,
    uids: HashMap<String, String>,
    names: BTreeMap<String, String>,
}

/// How a step says that its response is compared.
#[derive(Default)]
pub struct Shape {
    pub managed_fields: bool,
    pub ignore: Vec<String>,
    pub only: Vec<String>,
    pub sort: bool,
}

impl Normal {
    pub fn new(namespace: &str) -> Normal {
        Normal { namespace: namespace.to_owned(), uids: HashMap::new(), names: BTreeMap::new() }
    }

    /// The response in the recorded form: code, body, and the warnings if there are any.
    pub fn answer(&mut self, code: u16, warnings: &[String], mut body: Value, shape: &Shape) -> Value {
        self.learn(&body);
        if shape.sort {
            self.sort(&mut body);
        }
        let managed = MANAGED.iter().filter(|_| !shape.managed_fields);
        let ignored = managed.chain(&IGNORED).copied().chain(shape.ignore.iter().map(String::as_str));
        // A list applies a path to its elements, so that the events of a watch need no paths of their own.
        ignored.for_each(|ignored| path::drop(&mut body, ignored));
        if !shape.only.is_empty() {
            let only = shape.only.iter().map(|only| (only.clone(), path::get(&body, only)));
            body = Value::Object(only.collect());
        }
        let mut answer = Map::from_iter([("code".into(), code.into()), ("body".into(), self.value(&body))]);
        if !warnings.is_empty() {
            let mut warnings: Vec<_> = warnings.iter().map(|warning| self.text(warning)).collect();
            warnings.sort();
            answer.insert("warnings".into(), warnings.into());
        }
        Value::Object(answer)
    }

    /// Learns the generated names in a body: by their generateName, or as those of a Job's Pods.
    fn learn(&mut self, body: &Value) {
        match body {
            Value::Array(items) => items.iter().for_each(|item| self.learn(item)),
            Value::Object(fields) => {
                let metadata = &body["metadata"];
                if let Some(name) = metadata["name"].as_str() {
                    let prefix = metadata["generateName"].as_str().unwrap_or_default();
                    if !prefix.is_empty() && name.starts_with(prefix) {
                        self.names.insert(name.to_owned(), format!("{prefix}*"));
                    }
                    for owner in metadata["ownerReferences"].as_array().into_iter().flatten() {
                        let job = owner["name"].as_str().unwrap_or_default();
                        if owner["kind"] == "Job" && name.strip_prefix(job).is_some_and(|rest| rest.starts_with('-')) {
                            let index = metadata["annotations"][INDEX].as_str().map(|index| format!("{index}-"));
                            self.names.insert(name.to_owned(), format!("{job}-{}*", index.unwrap_or_default()));
                        }
                    }
                }
                fields.values().for_each(|field| self.learn(field));
            }
            _ => {}
        }
    }

    /// Lists are ordered by names that are partly random; completion index, name, phase and age give a stable order.
    fn sort(&mut self, body: &mut Value) {
        if !body["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) {
            return;
        }
        if let Some(items) = body.get_mut("items").and_then(Value::as_array_mut) {
            items.sort_by_cached_key(|item| {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let index = item["metadata"]["annotations"][INDEX].as_str().unwrap_or("~");
                let name = self.text(item["metadata"]["name"].as_str().unwrap_or_default());
                (
                    format!("{index:0>9}"),
                    name,
                    text(&item["status"]["phase"]),
                    text(&item["metadata"]["creationTimestamp"]),
                )
            });
        }
    }

    fn value(&mut self, value: &Value) -> Value {
        match value {
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::String(text) => self.text(text).into(),
            Value::Object(fields) => {
                let mut normal: Map<_, _> = fields.iter().map(|(key, field)| self.field(key, field)).collect();
                if value["kind"] == "Table" {
                    ages(value, &mut normal);
                }
                Value::Object(normal)
            }
            other => other.clone(),
        }
    }

    fn field(&mut self, key: &str, value: &Value) -> (String, Value) {
        let given = value.as_str().is_some_and(|text| !text.is_empty());
        match key {
            "resourceVersion" if given => (key.to_owned(), "<rv>".into()),
            "continue" if given => (key.to_owned(), "<continue>".into()),
            // The descriptions of columns are prose; clients use the other fields.
            "columnDefinitions" if value.is_array() => (key.to_owned(), columns(value)),
            _ => (self.text(key), self.value(value)),
        }
    }

    fn text(&mut self, text: &str) -> String {
        let mut text = text.replace(&self.namespace, "<ns>");
        // In reverse order: a Pod's name begins with its Job's name, and is replaced first.
        for (name, pattern) in self.names.iter().rev() {
            text = text.replace(name, pattern);
        }
        let mut normal = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(first) = rest.chars().next() {
            let length = if let Some(uid) = uid_at(rest) {
                let next = self.uids.len() + 1;
                normal.push_str(self.uids.entry(uid.to_owned()).or_insert_with(|| format!("<uid-{next}>")));
                uid.len()
            } else if let Some(length) = time_at(rest) {
                normal.push_str("<time>");
                length
            } else {
                normal.push(first);
                first.len_utf8()
            };
            rest = &rest[length..];
        }
        normal
    }
}

fn columns(definitions: &Value) -> Value {
    let definitions = definitions.as_array().into_iter().flatten();
    definitions
        .map(|column| {
            let kept = ["name", "type", "format", "priority"].into_iter().filter(|key| column.get(key).is_some());
            Value::Object(kept.map(|key| (key.to_owned(), column[key].clone())).collect())
        })
        .collect()
}

fn ages(table: &Value, normal: &mut Map<String, Value>) {
    let columns = table["columnDefinitions"].as_array().map(Vec::as_slice).unwrap_or_default();
    for row in normal.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        let cells = row.get_mut("cells").and_then(Value::as_array_mut).into_iter().flatten();
        for (cell, column) in cells.zip(columns) {
            let fixed = ["<unknown>", "<none>", ""].iter().any(|fixed| cell == fixed);
            if AGES.iter().any(|age| column["name"] == *age) && !fixed {
                *cell = "<dur>".into();
            }
        }
    }
}

/// The uid at the beginning of a text.
fn uid_at(text: &str) -> Option<&str> {
    let uid = text.get(..36)?;
    let fits = uid.bytes().enumerate().all(|(place, byte)| match place {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    });
    fits.then_some(uid)
}

/// The length of the RFC 3339 time at the beginning of a text.
fn time_at(text: &str) -> Option<usize> {
    let fits = |text: &[u8], pattern: &[u8]| {
        text.len() >= pattern.len()
            && text.iter().zip(pattern).all(|(byte, pattern)| match pattern {
                b'0' => byte.is_ascii_digit(),
                b'+' => matches!(byte, b'+' | b'-'),
                other => byte == other,
            })
    };
    let bytes = text.as_bytes();
    if !fits(bytes, b"0000-00-00T00:00:00") {
        return None;
    }
    let mut length = 19;
    if bytes.get(length) == Some(&b'.') {
        let digits = bytes[length + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        length += if digits > 0 { 1 + digits } else { 0 };
    }
    match &bytes[length..] {
        [b'Z', ..] => Some(length + 1),
        zone if fits(zone, b"+00:00") => Some(length + 6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(shape: Shape, body: Value, expected: Value) {
        let answer = Normal::new("g-xyz").answer(200, &[], body, &shape);
        assert_eq!(answer["body"], expected);
    }

    #[test]
    fn uids_times_revisions_and_names_become_patterns() {
        check(
            Shape::default(),
            json!({
                "metadata": {"name": "j-b7x", "generateName": "j-", "namespace": "g-xyz", "resourceVersion": "12"},
                "text": "0a1b2c3d-0000-1111-2222-333344445555, 0a1b2c3d-0000-1111-2222-333344445556 and again \
                    0a1b2c3d-0000-1111-2222-333344445555 at 2026-01-02T03:04:05.678901+01:00 or 2026-01-02T03:04:05Z of j-b7x",
                "empty": {"resourceVersion": "", "continue": ""},
                "page": {"continue": "abc"},
                "not": "2026-01-02T03:04 0a1b2c3d-0000 ünïcode",
            }),
            json!({
                "metadata": {"name": "j-*", "namespace": "<ns>", "resourceVersion": "<rv>"},
                "text": "<uid-1>, <uid-2> and again <uid-1> at <time> or <time> of j-*",
                "empty": {"resourceVersion": "", "continue": ""},
                "page": {"continue": "<continue>"},
                "not": "2026-01-02T03:04 0a1b2c3d-0000 ünïcode",
            }),
        );
    }

    #[test]
    fn pods_of_a_job_are_named_by_job_and_index() {
        let pod = |name: &str, index: Option<&str>| {
            let annotations = index.map_or(json!({}), |index| json!({ INDEX: index }));
            json!({"metadata": {"name": name, "annotations": annotations, "ownerReferences": [{"kind": "Job", "name": "j"}]}})
        };
        let names = |body: Value| -> Vec<Value> {
            let answer = Normal::new("g-xyz").answer(200, &[], body, &Shape { sort: true, ..Shape::default() });
            answer["body"]["items"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|item| item["metadata"]["name"].clone())
                .collect()
        };
        let list = json!({"kind": "PodList", "items": [pod("j-10-abcde", Some("10")), pod("j-2-vwxyz", Some("2"))]});
        assert_eq!(names(list), ["j-2-*", "j-10-*"]);
        let list = json!({"kind": "PodList", "items": [pod("other", None), pod("j-zz", None)]});
        assert_eq!(names(list), ["j-*", "other"]);
        // The Job's name is generated too.
        let job = json!({"metadata": {"name": "j-b7x", "generateName": "j-"}});
        let pod = json!({"metadata": {"name": "j-b7x-zz", "ownerReferences": [{"kind": "Job", "name": "j-b7x"}]}});
        assert_eq!(names(json!({"kind": "List", "items": [job, pod]})), ["j-*", "j-*-*"]);
    }

    #[test]
    fn only_keeps_what_is_named_and_says_what_is_absent() {
        let shape = Shape { only: vec!["a.b".into(), "c".into()], ..Shape::default() };
        check(shape, json!({"a": {"b": 1, "d": 2}}), json!({"a.b": 1, "c": null}));
    }

    #[test]
    fn managed_fields_are_left_out_unless_asked_for() {
        let body = json!({"metadata": {"managedFields": [1]}, "items": [{"metadata": {"managedFields": [1]}}]});
        check(Shape::default(), body.clone(), json!({"metadata": {}, "items": [{"metadata": {}}]}));
        check(Shape { managed_fields: true, ..Shape::default() }, body.clone(), body);
        check(
            Shape::default(),
            json!([{"object": {"metadata": {"managedFields": [1]}}}]),
            json!([{"object": {"metadata": {}}}]),
        );
    }

    #[test]
    fn tables_keep_their_cells_but_for_ages() {
        let table = json!({"kind": "Table",
            "columnDefinitions": [{"name": "Name", "type": "string", "format": "name", "description": "x", "priority": 0}, {"name": "Age"}],
            "rows": [{"cells": ["a", "5s"]}, {"cells": ["b", "<unknown>"]}]});
        let expected = json!({"kind": "Table",
            "columnDefinitions": [{"name": "Name", "type": "string", "format": "name", "priority": 0}, {"name": "Age"}],
            "rows": [{"cells": ["a", "<dur>"]}, {"cells": ["b", "<unknown>"]}]});
        check(Shape::default(), table, expected);
    }

    #[test]
    fn warnings_are_sorted() {
        let warnings = ["b of g-xyz".to_owned(), "a".to_owned()];
        let answer = Normal::new("g-xyz").answer(201, &warnings, json!({}), &Shape::default());
        assert_eq!(answer, json!({"code": 201, "body": {}, "warnings": ["a", "b of <ns>"]}));
    }
}
