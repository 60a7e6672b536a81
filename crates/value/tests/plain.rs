//! A shared value behaves as a plain one: the same operations give the same text, and what was cloned before stays as it
//! was.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value as Plain;
use tally_value::{Map, Value, json};

const NAMES: [&str; 7] =
    ["a", "b", "metadata", "zz", "", "with/slash~", "a name that is longer than twenty-four bytes"];

fn plain() -> impl Strategy<Value = Plain> {
    let leaf = prop_oneof![
        Just(Plain::Null),
        any::<bool>().prop_map(Plain::from),
        any::<i64>().prop_map(Plain::from),
        any::<u64>().prop_map(Plain::from),
        (-1e300..1e300).prop_map(Plain::from),
        "[a-zé\"\\\\\n]{0,30}".prop_map(Plain::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let name = prop::sample::select(&NAMES[..]).prop_map(str::to_owned);
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Plain::from),
            vec((name, inner), 0..4).prop_map(|fields| Plain::Object(fields.into_iter().collect())),
        ]
    })
}

#[derive(Clone, Debug)]
enum Step {
    Set(Vec<usize>, Plain),
    Take(Vec<usize>),
    Insert(Vec<usize>, usize, Plain),
    Remove(Vec<usize>, usize),
    Push(Vec<usize>, Plain),
    Default(Vec<usize>, usize, Plain),
    Retain(Vec<usize>, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let path = || vec(0..NAMES.len(), 0..4);
    prop_oneof![
        (path(), plain()).prop_map(|(path, value)| Step::Set(path, value)),
        path().prop_map(Step::Take),
        (path(), 0..NAMES.len(), plain()).prop_map(|(path, name, value)| Step::Insert(path, name, value)),
        (path(), 0..NAMES.len()).prop_map(|(path, name)| Step::Remove(path, name)),
        (path(), plain()).prop_map(|(path, value)| Step::Push(path, value)),
        (path(), 0..NAMES.len(), plain()).prop_map(|(path, name, value)| Step::Default(path, name, value)),
        (path(), 0..NAMES.len()).prop_map(|(path, name)| Step::Retain(path, name)),
    ]
}

/// A pointer to a place: a name in a map, a position in a list.
fn pointer(root: &Plain, path: &[usize]) -> String {
    let mut pointer = String::new();
    for at in path {
        let step = match root.pointer(&pointer) {
            Some(Plain::Array(_)) => at.to_string(),
            _ => NAMES[*at].replace('~', "~0").replace('/', "~1"),
        };
        pointer = format!("{pointer}/{step}");
    }
    pointer
}

fn apply(step: &Step, plain: &mut Plain, shared: &mut Value) {
    let (Step::Set(path, _)
    | Step::Take(path)
    | Step::Insert(path, ..)
    | Step::Remove(path, _)
    | Step::Push(path, _)
    | Step::Default(path, ..)
    | Step::Retain(path, _)) = step;
    let pointer = pointer(plain, path);
    let (plain, shared) = match (plain.pointer_mut(&pointer), shared.pointer_mut(&pointer)) {
        (Some(plain), Some(shared)) => (plain, shared),
        (None, None) => return,
        (plain, shared) => panic!("{pointer}: {plain:?} and {shared:?}"),
    };
    match step {
        Step::Set(_, value) => (*plain, *shared) = (value.clone(), value.clone().into()),
        Step::Take(_) => assert_eq!(shared.take(), plain.take()),
        Step::Insert(_, name, value) => {
            let name = NAMES[*name];
            match (plain.as_object_mut(), shared.as_object_mut()) {
                (Some(plain), Some(shared)) => {
                    let old = shared.insert(name, value.clone().into());
                    assert_eq!(old.map(Plain::from), plain.insert(name.to_owned(), value.clone()));
                }
                (None, None) => {}
                other => panic!("{other:?}"),
            }
        }
        Step::Remove(_, name) => {
            let name = NAMES[*name];
            let old = shared.as_object_mut().and_then(|map| map.remove(name));
            assert_eq!(old.map(Plain::from), plain.as_object_mut().and_then(|map| map.remove(name)));
        }
        Step::Push(_, value) => {
            if let (Some(plain), Some(shared)) = (plain.as_array_mut(), shared.as_array_mut()) {
                plain.push(value.clone());
                shared.push(value.clone().into());
            }
        }
        Step::Default(_, name, value) => {
            let name = NAMES[*name];
            if let (Some(plain), Some(shared)) = (plain.as_object_mut(), shared.as_object_mut()) {
                plain.entry(name).or_insert_with(|| value.clone());
                shared.entry(name).or_insert_with(|| value.clone().into());
            }
        }
        Step::Retain(_, name) => {
            let name = NAMES[*name];
            if let (Some(plain), Some(shared)) = (plain.as_object_mut(), shared.as_object_mut()) {
                plain.retain(|key, _| key != name);
                shared.retain(|key, _| key != name);
            }
        }
    }
}

proptest! {
    #[test]
    fn the_same_operations_give_the_same_text(start in plain(), steps in vec(step(), 0..24)) {
        let (mut plain, mut shared) = (start.clone(), Value::from(start));
        let mut before = Vec::new();
        for step in &steps {
            before.push((plain.clone(), shared.clone()));
            apply(step, &mut plain, &mut shared);
            prop_assert_eq!(&shared, &plain);
            prop_assert_eq!(shared.to_string(), plain.to_string());
        }
        // Nothing that was cloned has changed.
        for (plain, shared) in before {
            prop_assert_eq!(shared, plain);
        }
    }

    #[test]
    fn text_is_read_as_a_plain_value_reads_it(plain in plain(), other in plain()) {
        let text = plain.to_string();
        let read: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&read, &plain);
        prop_assert_eq!(&read, &Value::from(plain.clone()));
        let mut written = Vec::new();
        read.write_to(&mut written);
        prop_assert_eq!(&written, text.as_bytes());
        prop_assert_eq!(serde_json::to_vec(&read).unwrap(), text.into_bytes());
        prop_assert_eq!(format!("{read:#}"), format!("{plain:#}"));
        prop_assert_eq!(read == other.clone(), plain == other);
        let again: Plain = serde::Deserialize::deserialize(&read).unwrap();
        prop_assert_eq!(again, plain);
    }
}

#[test]
fn a_map_of_any_size_finds_its_fields() {
    for size in [0, 1, 5, 23, 24, 25, 26, 100] {
        let name = |number: usize| format!("field-{number:03}");
        let mut map: Map = (0..size).map(|number| (name(2 * number), Value::from(number))).collect();
        for number in 0..size {
            assert_eq!(map.get(&name(2 * number)), Some(&Value::from(number)), "{number} of {size}");
            assert!(!map.contains_key(&name(2 * number + 1)), "{number} of {size}");
        }
        assert_eq!(map.insert(name(1), Value::Null), None);
        assert_eq!(map.remove(&name(1)), Some(Value::Null));
        assert_eq!((map.remove(&name(1)), map.len()), (None, size));
    }
}

#[test]
fn of_two_fields_with_the_same_name_the_later_one_stays() {
    let text = r#"{"b":1,"a":2,"b":3,"a":4,"c":5}"#;
    assert_eq!(serde_json::from_str::<Value>(text).unwrap().to_string(), r#"{"a":4,"b":3,"c":5}"#);
    assert_eq!(serde_json::from_str::<Plain>(text).unwrap().to_string(), r#"{"a":4,"b":3,"c":5}"#);
    let map: Map = [("b", 1), ("b", 2), ("a", 3), ("b", 4)].into_iter().collect();
    assert_eq!(Value::from(map), json!({"a": 3, "b": 4}));
}

#[test]
fn what_did_not_change_is_shared_and_a_look_copies_nothing() {
    let old =
        json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}, "status": {}});
    let mut new = old.clone();
    assert!(new.is_same(&old));
    assert_eq!(new.pointer_mut("/spec/nothing/here"), None);
    assert!(new.is_same(&old), "there was nothing to change");
    new["metadata"]["labels"]["c"] = "d".into();
    new["status"]["phase"] = "Running".into();
    assert!(new["spec"].is_same(&old["spec"]));
    assert!(
        !new["metadata"].is_same(&old["metadata"]) && !new["metadata"]["labels"].is_same(&old["metadata"]["labels"])
    );
    assert_eq!(old["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(new["metadata"]["labels"], json!({"a": "b", "c": "d"}));
    // A value that another one takes in stays shared.
    let taken = json!({"items": [new, &old["spec"]]});
    assert!(taken["items"][1].is_same(&old["spec"]) && taken["items"][0].is_same(&new));
}

#[test]
fn json_is_written_as_elsewhere() {
    let (name, list) = ("n", vec!["x", "y"]);
    let value = json!({
        "null": null, "list": [1, -2, 2.5, null, [], {}, name], "map": {"deep": {"er": [true, false]}},
        (format!("{name}ame")): format!("{name}{}", 1), "of": list, "none": None::<i64>, "some": Some("s"),
        "sum": 1 + 2, "call": name.len(), "array": [1, 2].map(|n| n * 2),
    });
    let plain = serde_json::json!({
        "null": null, "list": [1, -2, 2.5, null, [], {}, "n"], "map": {"deep": {"er": [true, false]}},
        "name": "n1", "of": ["x", "y"], "none": null, "some": "s", "sum": 3, "call": 1, "array": [2, 4],
    });
    assert_eq!(value, plain);
    assert_eq!(json!(null), Plain::Null);
    assert_eq!(json!([]), serde_json::json!([]));
    assert_eq!(json!("text"), serde_json::json!("text"));
}

/// Also with a second name for a field, parts that are collected, and fields that no one wants.
#[test]
fn structures_are_read_from_a_tree_as_from_its_text() {
    #[derive(Debug, Default, PartialEq, serde::Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Read {
        #[serde(alias = "name")]
        secret_name: String,
        count: Option<u32>,
        inner: Option<Box<Read>>,
        list: Vec<Read>,
    }
    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Collected {
        count: u32,
        #[serde(flatten)]
        rest: std::collections::BTreeMap<String, serde_json::Value>,
    }
    for text in [
        r#"{"secretName":"a","count":1,"other":[1],"inner":{"name":"b"},"list":[{"count":null},{"name":"c","list":[]}]}"#,
        r#"{"name":"a","count":3}"#,
        r#"{"name":"a","secretName":"b"}"#,
        r#"{"count":"1"}"#,
        r#"{"inner":[],"list":null}"#,
        r#"{}"#,
        r#"[]"#,
        r#"[["a",1]]"#,
        r#"null"#,
    ] {
        let tree: Value = serde_json::from_str(text).unwrap();
        let read = <Read as serde::Deserialize>::deserialize(&tree).ok();
        assert_eq!(read, serde_json::from_str(text).ok(), "{text}");
        let collected = <Collected as serde::Deserialize>::deserialize(&tree).ok();
        assert_eq!(collected, serde_json::from_str(text).ok(), "{text}");
    }
}

#[test]
fn every_byte_of_a_text_is_looked_at() {
    for length in 0..40 {
        for at in 0..length {
            for changed in ['\u{1f}', '\u{0}', '"', '\\', ' ', '!', '#', '[', ']', '\u{7f}', 'é', '\u{a2}'] {
                let text: String = (0..length).map(|place| if place == at { changed } else { 'a' }).collect();
                let mut written = Vec::new();
                tally_value::write_text(&text, &mut written);
                assert_eq!(String::from_utf8(written).unwrap(), serde_json::to_string(&text).unwrap());
            }
        }
    }
}

#[test]
fn names_of_every_length_are_told_apart_by_every_byte() {
    for length in 1..40 {
        let name = |at: usize| -> String { (0..length).map(|place| if place == at { 'b' } else { 'a' }).collect() };
        let map: Map = (0..=length).map(|at| (name(at), Value::from(at))).collect();
        assert_eq!(map.len(), length + 1);
        for at in 0..=length {
            assert_eq!(map.get(&name(at)), Some(&Value::from(at)));
        }
        assert_eq!(map.get(&"a".repeat(length + 1)), None);
    }
}

/// The order of names decides where they are found, also of those that begin alike or contain zeros.
#[test]
fn fields_are_in_the_order_of_their_names_whatever_these_are() {
    let parts = ["", "\0", "a", "ab", "abc", "abcd", "abcdefg", "abcdefgh", "é", "\u{10ffff}", "z"];
    let mut names: Vec<String> =
        parts.iter().flat_map(|one| parts.iter().map(move |other| format!("{one}{other}"))).collect();
    let mut map = Map::new();
    for (at, name) in names.iter().enumerate().rev() {
        map.insert(name, at.into());
    }
    names.sort();
    names.dedup();
    assert!(map.keys().map(|name| name.as_str()).eq(names.iter().map(String::as_str)));
    let collected: Map = names.iter().rev().map(|name| (name, 1)).collect();
    assert!(collected.keys().eq(map.keys()) && names.iter().all(|name| collected.contains_key(name)));
}
