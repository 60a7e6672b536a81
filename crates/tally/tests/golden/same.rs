//! Whether a response is the recorded one.
//!
//! Equal means equal in every character, up to a one-to-one renaming of uids that holds for the whole conversation.
//! Three differences are allowed because they are defects of the recorded server. Each is defined as narrowly as
//! possible: it converts the recorded response into the better one, or the response into the recorded form, and the two
//! must then be equal like any others.
//!
//! 1. [`Allowed::WireValue`]: an offending value printed as an internal structure (`{"SucceededCount":1}`) may be
//!    printed as it is on the wire (`{"succeededCount":1}`), if it is the same value.
//! 2. [`Allowed::CauseOnce`]: a cause listed several times may be listed once.
//! 3. [`Allowed::ClearRefusal`]: where the recorded server fails with 500, a status error in the 400s that says why.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Allowed {
    WireValue,
    CauseOnce,
    ClearRefusal,
}

/// The renaming of uids in one conversation, in both directions.
#[derive(Clone, Default)]
pub struct Same {
    to: HashMap<String, String>,
    back: HashMap<String, String>,
}

impl Same {
    /// The differences that had to be allowed for the response to be the recorded one, or `None` if it is another one.
    pub fn compare(&mut self, recorded: &Value, answered: &Value) -> Option<BTreeSet<Allowed>> {
        if self.equal(recorded, answered) {
            return Some(BTreeSet::new());
        }
        if is_clear_refusal(recorded, answered) {
            return Some([Allowed::ClearRefusal].into());
        }
        let mut allowed = BTreeSet::new();
        let (mut recorded, mut answered) = (recorded.clone(), answered.clone());
        if list_causes_once(&mut recorded, &answered) {
            allowed.insert(Allowed::CauseOnce);
        }
        if print_as_recorded(&recorded, &mut answered) {
            allowed.insert(Allowed::WireValue);
        }
        (!allowed.is_empty() && self.equal(&recorded, &answered)).then_some(allowed)
    }

    /// A failed comparison does not change the renaming.
    fn equal(&mut self, recorded: &Value, answered: &Value) -> bool {
        let mut trial = self.clone();
        let equal = trial.values(recorded, answered);
        if equal {
            *self = trial;
        }
        equal
    }

    fn values(&mut self, recorded: &Value, answered: &Value) -> bool {
        match (recorded, answered) {
            (Value::Object(recorded), Value::Object(answered)) => {
                // Keys may contain uids, too; they are paired by the rest of their text.
                let keyed = |fields: &serde_json::Map<String, Value>| -> BTreeMap<String, String> {
                    fields.keys().map(|key| (split(key).0, key.clone())).collect()
                };
                let (ours, theirs) = (keyed(recorded), keyed(answered));
                recorded.len() == answered.len()
                    && ours.keys().eq(theirs.keys())
                    && ours
                        .values()
                        .zip(theirs.values())
                        .all(|(one, other)| self.texts(one, other) && self.values(&recorded[one], &answered[other]))
            }
            (Value::Array(recorded), Value::Array(answered)) => {
                recorded.len() == answered.len()
                    && recorded.iter().zip(answered).all(|(one, other)| self.values(one, other))
            }
            (Value::String(recorded), Value::String(answered)) => self.texts(recorded, answered),
            _ => recorded == answered,
        }
    }

    fn texts(&mut self, recorded: &str, answered: &str) -> bool {
        let ((text, uids), (other_text, other_uids)) = (split(recorded), split(answered));
        text == other_text
            && uids.into_iter().zip(other_uids).all(|(uid, other)| {
                *self.to.entry(uid.clone()).or_insert_with(|| other.clone()) == other
                    && *self.back.entry(other).or_insert_with(|| uid.clone()) == uid
            })
    }
}

/// A text without its uids, and the uids in their order.
fn split(text: &str) -> (String, Vec<String>) {
    let (mut rest, mut left, mut uids) = (text, String::new(), Vec::new());
    while let Some(start) = rest.find("<uid-") {
        let (before, uid) = rest.split_at(start);
        let digits = uid[5..].bytes().take_while(u8::is_ascii_digit).count();
        let end = 5 + digits;
        left.push_str(before);
        if digits > 0 && uid[end..].starts_with('>') {
            left.push_str("<uid>");
            uids.push(uid[..=end].to_owned());
            rest = &uid[end + 1..];
        } else {
            left.push_str(&uid[..end]);
            rest = &uid[end..];
        }
    }
    left.push_str(rest);
    (left, uids)
}

/// The recorded server failed with 500; the response is a Status that says what is wrong with the request. Only the
/// fields that the step compares can be checked.
fn is_clear_refusal(recorded: &Value, answered: &Value) -> bool {
    let (failed, body) = (&recorded["body"], &answered["body"]);
    let compared = |key: &str| failed.get(key).is_some() || failed["kind"] == "Status";
    let text = |key: &str| body[key].as_str().is_some_and(|text| !text.is_empty());
    recorded["code"] == 500
        && answered["code"].as_u64().is_some_and(|code| (400..500).contains(&code))
        && failed.is_object()
        && (!compared("kind") || body["kind"] == "Status")
        && (!compared("status") || body["status"] == "Failure")
        && (!compared("code") || body["code"] == answered["code"])
        && (!compared("reason") || text("reason"))
        && (!compared("message") || text("message"))
        && (compared("message") || compared("code"))
}

/// Removes repeated causes from the recorded response, if the response then has as many.
fn list_causes_once(recorded: &mut Value, answered: &Value) -> bool {
    let answered = answered.pointer("/body/details/causes").and_then(Value::as_array).map_or(0, Vec::len);
    let Some(causes) = recorded.pointer_mut("/body/details/causes").and_then(Value::as_array_mut) else {
        return false;
    };
    let mut once: Vec<Value> = Vec::new();
    for cause in causes.iter() {
        if !once.contains(cause) {
            once.push(cause.clone());
        }
    }
    let fits = once.len() < causes.len() && once.len() == answered;
    if fits {
        *causes = once;
    }
    fits
}

/// Replaces a value that the response prints in its wire form by the recorded form of the same value.
fn print_as_recorded(recorded: &Value, answered: &mut Value) -> bool {
    let causes = recorded.pointer("/body/details/causes").and_then(Value::as_array).map_or(0, Vec::len);
    let in_causes = (0..causes).map(|place| format!("/body/details/causes/{place}/message"));
    let mut changed = false;
    for pointer in std::iter::once("/body/message".to_owned()).chain(in_causes) {
        if let Some(Value::String(recorded)) = recorded.pointer(&pointer)
            && let Some(Value::String(answered)) = answered.pointer_mut(&pointer)
            && let Some(text) = with_internal_values(recorded, answered)
        {
            *answered = text;
            changed = true;
        }
    }
    changed
}

/// `answered` with the internal structures of `recorded` in the places of its own values, if they correspond.
fn with_internal_values(recorded: &str, answered: &str) -> Option<String> {
    let (theirs, ours) = (printed_values(recorded), printed_values(answered));
    if theirs.len() != ours.len() {
        return None;
    }
    let (mut text, mut from, mut changed) = (String::new(), 0, false);
    for ((their_text, their_value, _), (our_text, our_value, start)) in theirs.into_iter().zip(ours) {
        let is_same = is_internal(&their_value) && leaves(&their_value) == leaves(&our_value);
        text.push_str(&answered[from..start]);
        text.push_str(if is_same { their_text } else { our_text });
        changed |= is_same && their_text != our_text;
        from = start + our_text.len();
    }
    text.push_str(&answered[from..]);
    changed.then_some(text)
}

/// The objects and lists that are printed as offending values: text, value and offset.
fn printed_values(message: &str) -> Vec<(&str, Value, usize)> {
    const BEFORE: &str = "Invalid value: ";
    let (mut values, mut from) = (Vec::new(), 0);
    while let Some(found) = message[from..].find(BEFORE) {
        from += found + BEFORE.len();
        let rest = &message[from..];
        let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        if rest.starts_with(['{', '['])
            && let Some(Ok(value)) = stream.next()
        {
            let text = &rest[..stream.byte_offset()];
            values.push((text, value, from));
            from += text.len();
        }
    }
    values
}

/// Field names of the wire never begin with a capital letter; those of an internal structure always do.
fn is_internal(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.keys().any(|key| key.starts_with(|first: char| first.is_ascii_uppercase())),
        Value::Array(items) => items.iter().any(is_internal),
        _ => false,
    }
}

/// The content of a value, independent of how its fields are spelled: every scalar that is not the zero of its type, by
/// its path. An internal structure prints every zero and has the fields of `metadata` beside those of the object.
fn leaves(value: &Value) -> BTreeMap<String, Value> {
    fn walk(value: &Value, path: &str, leaves: &mut BTreeMap<String, Value>) {
        match value {
            Value::Object(fields) => {
                for (key, field) in fields {
                    let key = key.to_ascii_lowercase();
                    let path = if key == "metadata" { path.to_owned() } else { format!("{path}.{key}") };
                    walk(field, &path, leaves);
                }
            }
            Value::Array(items) => {
                for (place, item) in items.iter().enumerate() {
                    walk(item, &format!("{path}[{place}]"), leaves);
                }
            }
            Value::Null | Value::Bool(false) => {}
            Value::String(text) if text.is_empty() => {}
            Value::Number(number) if number.as_f64() == Some(0.0) => {}
            scalar => {
                leaves.insert(path.to_owned(), scalar.clone());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(value, "", &mut found);
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn compare(recorded: Value, answered: Value) -> Option<Vec<Allowed>> {
        Same::default().compare(&recorded, &answered).map(Vec::from_iter)
    }

    fn invalid(code: u16, message: &str, causes: &[(&str, &str)]) -> Value {
        let causes: Vec<_> = causes
            .iter()
            .map(|(field, message)| json!({"field": field, "message": message, "reason": "FieldValueInvalid"}))
            .collect();
        json!({"code": code, "body": {"kind": "Status", "status": "Failure", "code": code, "reason": "Invalid",
            "message": message, "details": {"causes": causes}}})
    }

    #[test]
    fn every_difference_is_noticed() {
        let recorded = json!({"code": 200, "body": {"a": 1, "b": [1, "x"], "c": null, "d": {}}});
        assert_eq!(compare(recorded.clone(), recorded.clone()), Some(vec![]));
        for (pointer, other) in [
            ("/code", json!(201)),
            ("/body/a", json!(2)),
            ("/body/a", json!(1.0)),
            ("/body/a", json!("1")),
            ("/body/a", json!(true)),
            ("/body/b", json!([1])),
            ("/body/b", json!([1, "x", 2])),
            ("/body/b", json!(["x", 1])),
            ("/body/b/1", json!("X")),
            ("/body/c", json!({})),
            ("/body/d", json!(null)),
            ("/body", json!([])),
        ] {
            let mut answered = recorded.clone();
            *answered.pointer_mut(pointer).expect("the path exists") = other.clone();
            assert_eq!(compare(recorded.clone(), answered), None, "{pointer} {other}");
        }
        let with = |key: &str| {
            let mut value = recorded.clone();
            value["body"][key] = json!(null);
            value
        };
        assert_eq!(compare(recorded.clone(), with("e")), None, "one field more");
        assert_eq!(compare(with("e"), recorded.clone()), None, "one field less");
        assert_eq!(
            compare(json!({"code": 200, "body": {}}), json!({"code": 200, "body": {}, "warnings": ["w"]})),
            None
        );
    }

    #[test]
    fn uids_are_renamed_one_to_one_through_the_whole_conversation() {
        let mut same = Same::default();
        let none = Some(BTreeSet::new());
        assert_eq!(same.compare(&json!("<uid-1> <uid-2>"), &json!("<uid-2> <uid-1>")), none);
        assert_eq!(same.compare(&json!("<uid-1>"), &json!("<uid-1>")), None, "it was another one before");
        assert_eq!(same.compare(&json!("<uid-3>"), &json!("<uid-2>")), None, "two become one");
        assert_eq!(same.compare(&json!({"<uid-1>": 1}), &json!({"<uid-2>": 1})), none, "keys too");
        assert_eq!(same.compare(&json!({"<uid-1>": 1}), &json!({"<uid-2>": 2})), None);
        assert_eq!(same.compare(&json!("a <uid-3> b"), &json!("a <uid-3> c")), None);
        assert_eq!(same.compare(&json!("<uid-4>"), &json!("<uid-3>")), none, "what failed left nothing behind");
        assert_eq!(compare(json!("<uid-x>"), json!("<uid-y>")), None, "not a uid");
    }

    const RECORDED: &str = r#"spec.policy: Invalid value: {"Rules":[{"SucceededIndexes":null,"SucceededCount":1}]}: requires indexed mode"#;

    #[test]
    fn an_internal_structure_may_be_printed_as_on_the_wire() {
        let wire = r#"spec.policy: Invalid value: {"rules":[{"succeededCount":1}]}: requires indexed mode"#;
        let short = |text: &str| text.replacen("spec.policy: ", "", 1);
        let recorded = invalid(422, RECORDED, &[("spec.policy", &short(RECORDED))]);
        let answered = invalid(422, wire, &[("spec.policy", &short(wire))]);
        assert_eq!(compare(recorded.clone(), answered), Some(vec![Allowed::WireValue]));
        for other in [
            r#"spec.policy: Invalid value: {"rules":[{"succeededCount":2}]}: requires indexed mode"#,
            r#"spec.policy: Invalid value: {"rules":[{"succeededCount":1,"succeededIndexes":"1"}]}: requires indexed mode"#,
            r#"spec.policy: Invalid value: {"rules":[]}: requires indexed mode"#,
            r#"spec.policy: Invalid value: {"rules":[{"succeededCount":1}]}: requires Indexed mode"#,
            r#"spec.policy: Invalid value: "{...}": requires indexed mode"#,
            r#"spec.other: Invalid value: {"rules":[{"succeededCount":1}]}: requires indexed mode"#,
            "spec.policy: Invalid value: requires indexed mode",
        ] {
            let answered = invalid(422, other, &[("spec.policy", &short(other))]);
            assert_eq!(compare(recorded.clone(), answered), None, "{other}");
        }
        let only_message = invalid(422, wire, &[("spec.policy", "something else")]);
        assert_eq!(compare(recorded, only_message), None, "the cause is compared as well");
    }

    #[test]
    fn a_value_of_the_wire_is_compared_to_the_letter() {
        let text = |value: &str| invalid(422, &format!("spec.selector: Invalid value: {value}: immutable"), &[]);
        assert_eq!(compare(text(r#"{"matchLabels":{"a":"b"}}"#), text(r#"{"matchLabels":{"a":"b","c":""}}"#)), None);
        assert_eq!(
            compare(text(r#"{"labels":{"A":"b"},"Spec":{}}"#), text(r#"{"metadata":{"labels":{"A":"b"}}}"#)),
            Some(vec![Allowed::WireValue])
        );
        assert_eq!(
            compare(text(r#"{"labels":{"A":"b"},"Spec":{}}"#), text(r#"{"metadata":{"labels":{"A":"c"}}}"#)),
            None
        );
    }

    #[test]
    fn a_repeated_cause_may_be_listed_once() {
        let (one, two) = (("spec.a", "Required value"), ("spec.b", "Required value"));
        let recorded = invalid(422, "m", &[one, two, one, two]);
        assert_eq!(compare(recorded.clone(), invalid(422, "m", &[one, two])), Some(vec![Allowed::CauseOnce]));
        assert_eq!(compare(recorded.clone(), recorded.clone()), Some(vec![]));
        for causes in [&[two, one][..], &[one], &[one, two, one], &[one, two, two, one], &[]] {
            assert_eq!(compare(recorded.clone(), invalid(422, "m", causes)), None, "{causes:?}");
        }
        assert_eq!(compare(recorded, invalid(422, "n", &[one, two])), None, "the message stays as it is");
        let plain = invalid(422, "m", &[one, two]);
        assert_eq!(compare(plain.clone(), invalid(422, "m", &[one])), None, "nothing was repeated");
        assert_eq!(compare(plain, invalid(422, "m", &[one, two, one])), None, "nothing may be added");
    }

    #[test]
    fn a_failure_of_the_recorded_server_may_be_a_clear_refusal() {
        let recorded =
            json!({"code": 500, "body": {"kind": "Status", "status": "Failure", "code": 500, "message": "strconv"}});
        let refusal = |code: u16, inner: u16, reason: &str, message: &str| json!({"code": code, "body": {"kind": "Status", "status": "Failure", "code": inner, "reason": reason, "message": message}});
        let clear = refusal(400, 400, "BadRequest", "resourceVersion: not a number");
        assert_eq!(compare(recorded.clone(), clear.clone()), Some(vec![Allowed::ClearRefusal]));
        for answered in [
            refusal(200, 200, "BadRequest", "m"),
            refusal(503, 503, "ServiceUnavailable", "m"),
            refusal(400, 422, "BadRequest", "m"),
            refusal(400, 400, "", "m"),
            refusal(400, 400, "BadRequest", ""),
            json!({"code": 400, "body": "bad request"}),
        ] {
            assert_eq!(compare(recorded.clone(), answered.clone()), None, "{answered}");
        }
        let timeout = json!({"code": 504, "body": {"kind": "Status", "code": 504}});
        assert_eq!(compare(timeout, clear.clone()), None, "504 is an answer, not a failure");
        assert_eq!(compare(refusal(422, 422, "Invalid", "m"), clear), None);
        let only = json!({"code": 500, "body": {"message": "x", "reason": null, "spec.x": null}});
        assert_eq!(
            compare(only, json!({"code": 400, "body": {"message": "y", "reason": "BadRequest", "spec.x": null}})),
            Some(vec![Allowed::ClearRefusal])
        );
    }
}
