//! Objects as server-side apply sees them: which parts have an owner of their own.
//!
//! A structure has its fields, a map its keys, a list with key fields its elements by these, a set its values. Everything
//! else is owned as a whole. What decides is in the schema (`crate::schema`).

use std::collections::{BTreeMap, BTreeSet};

use tally_value::{Map, Value, json};

use super::fields::{self, FieldSet};
use crate::schema::{Field, ListType, Shape, Struct, Type, schema};

/// How the parts of a value are owned.
#[derive(Clone, Copy)]
pub enum MergeStrategy {
    /// As a whole.
    Atomic,
    Struct(&'static Struct),
    /// By its keys.
    Map(&'static Type),
    /// By its values.
    Set,
    /// By the key fields of its elements.
    ListMap(&'static [&'static str], &'static Struct),
}

/// What differs between two values.
#[derive(Debug, Default)]
pub struct Difference {
    pub added: FieldSet,
    pub changed: FieldSet,
    pub removed: FieldSet,
}

impl MergeStrategy {
    fn of_field(field: &'static Field) -> Self {
        if field.atomic { Self::Atomic } else { Self::of(&field.ty, &field.list) }
    }

    fn of(ty: &'static Type, list: &'static ListType) -> Self {
        match (&ty.shape, list) {
            (Shape::Struct(id), _) => Self::of_struct(schema().get(*id)),
            (Shape::Map(inner), _) => Self::Map(inner),
            (Shape::List(_), ListType::Set) => Self::Set,
            (Shape::List(inner), ListType::Map(keys)) => match &inner.shape {
                Shape::Struct(id) => Self::ListMap(keys, schema().get(*id)),
                _ => Self::Atomic,
            },
            _ => Self::Atomic,
        }
    }

    fn of_struct(structure: &'static Struct) -> Self {
        if structure.atomic { Self::Atomic } else { Self::Struct(structure) }
    }

    /// The part of a path is in the schema: a field, not the key of a map.
    fn names(self, part: &str) -> bool {
        matches!((self, part.strip_prefix("f:")), (Self::Struct(structure), Some(name)) if structure.field(name).is_some())
    }

    /// What a part of a path leads to.
    fn inner(self, part: &str) -> Self {
        match (self, part.strip_prefix("f:")) {
            (Self::Struct(structure), Some(name)) => structure.field(name).map_or(Self::Atomic, Self::of_field),
            (Self::Map(ty), Some(_)) => Self::of(ty, &ListType::Unsaid),
            (Self::ListMap(_, structure), None) => Self::of_struct(structure),
            _ => Self::Atomic,
        }
    }

    /// The parts of a value, in its order: which part of a path leads to them.
    fn parts(self, value: &Value) -> Vec<(String, &Value)> {
        match (self, value) {
            (Self::Struct(_) | Self::Map(_), Value::Object(map)) => {
                map.iter().map(|(name, value)| (format!("f:{name}"), value)).collect()
            }
            (Self::Set, Value::Array(items)) => items.iter().map(|item| (format!("v:{item}"), item)).collect(),
            (Self::ListMap(keys, structure), Value::Array(items)) => {
                items.iter().map(|item| (key_part(keys, structure, item), item)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The parts in which two values differ.
    fn differing_parts<'a>(
        self,
        old: &'a Value,
        new: &'a Value,
    ) -> Vec<(String, Option<&'a Value>, Option<&'a Value>)> {
        let mut both: BTreeMap<String, Pair<'a>> = BTreeMap::new();
        if let (Self::Struct(_) | Self::Map(_), Value::Object(old), Value::Object(new)) = (self, old, new) {
            // Most fields are the same in both.
            let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(name)));
            let pairs = names.map(|name| (name, old.get(name), new.get(name)));
            let differ = pairs.filter(|(_, old, new)| old != new);
            return differ.map(|(name, old, new)| (format!("f:{name}"), old, new)).collect();
        }
        for (part, value) in self.parts(old) {
            both.entry(part).or_default().0 = Some(value);
        }
        for (part, value) in self.parts(new) {
            both.entry(part).or_default().1 = Some(value);
        }
        let pairs = both.into_iter().map(|(part, (old, new))| (part, old, new));
        pairs.filter(|(_, old, new)| old != new).collect()
    }
}

type Pair<'a> = (Option<&'a Value>, Option<&'a Value>);

/// The value of a key field of an element that does not have it.
fn default_key(structure: &Struct, key: &str) -> Option<Value> {
    // Ports of containers and of Services.
    if key == "protocol" { Some("TCP".into()) } else { structure.field(key)?.zero() }
}

fn key_part(keys: &[&str], structure: &Struct, item: &Value) -> String {
    let value = |key: &str| item.get(key).filter(|value| !value.is_null()).cloned();
    let found = keys.iter().filter_map(|key| Some((*key, value(key).or_else(|| default_key(structure, key))?)));
    let keys: Map = found.map(|(key, value)| (key.to_owned(), value)).collect();
    format!("k:{}", Value::Object(keys))
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    }
}

/// All fields that a value has.
pub fn fields_of(strategy: MergeStrategy, value: &Value) -> FieldSet {
    let mut set = FieldSet::new();
    for (part, value) in strategy.parts(value) {
        let inner = strategy.inner(&part);
        let is_empty = matches!(value, Value::Null) || matches!(value, Value::Object(map) if map.is_empty());
        let member =
            matches!(inner, MergeStrategy::Atomic) || is_empty || !matches!(strategy, MergeStrategy::Struct(_));
        fields::put(&mut set, part, member, fields_of(inner, value));
    }
    set
}

pub fn difference(strategy: MergeStrategy, old: &Value, new: &Value) -> Difference {
    let mut found = Difference::default();
    if old == new {
        return found;
    }
    for (part, old, new) in strategy.differing_parts(old, new) {
        let inner = strategy.inner(&part);
        // Two empty values differ as a whole: an absent map and an empty one.
        let whole = matches!(inner, MergeStrategy::Atomic) || is_empty(old) && is_empty(new);
        let below = match whole {
            true => Difference::default(),
            false => difference(inner, old.unwrap_or(&Value::Null), new.unwrap_or(&Value::Null)),
        };
        fields::put(&mut found.changed, part.as_str(), whole && old.is_some() && new.is_some(), below.changed);
        fields::put(&mut found.added, part.as_str(), old.is_none(), below.added);
        fields::put(&mut found.removed, part, new.is_none(), below.removed);
    }
    found
}

/// The live value with everything that the applied one has.
pub fn merged(strategy: MergeStrategy, live: &Value, applied: &Value) -> Value {
    match strategy {
        MergeStrategy::Atomic => applied.clone(),
        _ if is_empty(Some(live)) => applied.clone(),
        _ if applied.is_null() => live.clone(),
        MergeStrategy::Struct(_) | MergeStrategy::Map(_) => {
            let mut all = live.clone();
            if let (Value::Object(all), Value::Object(applied)) = (&mut all, applied) {
                for (name, value) in applied {
                    let inner = strategy.inner(&format!("f:{name}"));
                    let value = all.get(name).map_or_else(|| value.clone(), |live| merged(inner, live, value));
                    all.insert(name.clone(), value);
                }
            }
            all
        }
        MergeStrategy::Set | MergeStrategy::ListMap(..) => merged_elements(strategy, live, applied).into(),
    }
}

/// The elements of both lists. Those that both have are in the order of the applied list; those that only the live list has
/// stay between the elements that they are between now.
fn merged_elements(strategy: MergeStrategy, live: &Value, applied: &Value) -> Vec<Value> {
    let (live, applied) = (strategy.parts(live), strategy.parts(applied));
    let place: BTreeMap<&str, usize> = live.iter().enumerate().map(|(at, (part, _))| (part.as_str(), at)).collect();
    let is_applied: BTreeSet<&str> = applied.iter().map(|(part, _)| part.as_str()).collect();
    let only_live = |at: &usize| !is_applied.contains(live[*at].0.as_str());
    let mut all = Vec::with_capacity(live.len() + applied.len());
    // Live elements in front of it have their place in the result.
    let mut next = 0;
    for (part, value) in &applied {
        let (until, after) = match place.get(part.as_str()) {
            Some(at) if *at >= next => (*at, at + 1),
            Some(_) => (next, next),
            None => {
                let until = (next..live.len()).find(|at| !only_live(at)).unwrap_or(live.len());
                (until, until)
            }
        };
        all.extend((next..until).filter(only_live).map(|at| live[at].1.clone()));
        next = after;
        all.push(match place.get(part.as_str()) {
            Some(at) => merged(strategy.inner(part), live[*at].1, value),
            None => (*value).clone(),
        });
    }
    all.extend((next..live.len()).filter(only_live).map(|at| live[at].1.clone()));
    all
}

/// The value without the fields of a set.
pub fn without(strategy: MergeStrategy, value: &Value, set: &FieldSet) -> Value {
    if set.is_empty() {
        return value.clone();
    }
    let kept = |part: &str, value: &Value| match fields::below(set, part) {
        _ if fields::has(set, part) => None,
        Some(below) => Some(without(strategy.inner(part), value, below)),
        None => Some(value.clone()),
    };
    match (strategy, value) {
        (MergeStrategy::Struct(_) | MergeStrategy::Map(_), Value::Object(map)) => {
            let left = map.iter().filter_map(|(name, value)| Some((name.clone(), kept(&format!("f:{name}"), value)?)));
            let left: Map = left.collect();
            if left.is_empty() { Value::Null } else { Value::Object(left) }
        }
        (MergeStrategy::Set | MergeStrategy::ListMap(..), Value::Array(_)) => {
            let left: Vec<_> =
                strategy.parts(value).into_iter().filter_map(|(part, value)| kept(&part, value)).collect();
            if left.is_empty() { Value::Null } else { left.into() }
        }
        _ => value.clone(),
    }
}

/// The set with every field of a structure in it that has others below it.
pub fn with_named(strategy: MergeStrategy, set: &FieldSet) -> FieldSet {
    let mut named = FieldSet::new();
    for (part, below) in fields::parts(set) {
        let member = strategy.names(part) || fields::is_member(below);
        fields::put(&mut named, part, member, with_named(strategy.inner(part), below));
    }
    named
}

/// Why an applied value does not conform to the schema. The path ends with the field that the message is about.
pub fn check(structure: &'static Struct, value: &Value) -> Result<(), String> {
    check_struct(structure, value, "")
}

fn check_struct(structure: &'static Struct, value: &Value, path: &str) -> Result<(), String> {
    let Value::Object(map) = value else {
        return if value.is_null() { Ok(()) } else { Err(unexpected(path, "map", value)) };
    };
    for (name, value) in map {
        let path = format!("{path}.{name}");
        let field = structure.field(name).ok_or_else(|| format!("{path}: field not declared in schema"))?;
        check_type(&field.ty, MergeStrategy::of_field(field), value, &path)?;
    }
    Ok(())
}

fn check_type(ty: &'static Type, strategy: MergeStrategy, value: &Value, path: &str) -> Result<(), String> {
    let expect = |kind, is: bool| if is { Ok(()) } else { Err(unexpected(path, kind, value)) };
    match (&ty.shape, value) {
        (_, Value::Null) => Ok(()),
        (Shape::Struct(id), _) => check_struct(schema().get(*id), value, path),
        (Shape::Text | Shape::Time | Shape::MicroTime | Shape::Bytes, _) => expect("string", value.is_string()),
        (Shape::Int32 | Shape::Int64 | Shape::Float, _) => expect("numeric (int or float)", value.is_number()),
        (Shape::Bool, _) => expect("boolean", value.is_boolean()),
        (Shape::Quantity | Shape::IntOrString, _) => expect("string or number", value.is_string() || value.is_number()),
        (Shape::Raw, _) => Ok(()),
        (Shape::Map(inner), Value::Object(map)) => {
            let mut values = map.iter();
            values
                .try_for_each(|(key, value)| check_type(inner, MergeStrategy::Atomic, value, &format!("{path}.{key}")))
        }
        (Shape::Map(_), _) => Err(unexpected(path, "map", value)),
        (Shape::List(inner), Value::Array(items)) => {
            let mut seen = BTreeSet::new();
            for (part, _) in strategy.parts(value) {
                if !seen.insert(part.clone()) {
                    let key = fields::paths(&FieldSet::from_iter([(part, json!({}))])).concat();
                    return Err(format!("{path}: duplicate entries for key {key}"));
                }
            }
            let mut items = items.iter().enumerate();
            items.try_for_each(|(at, item)| check_type(inner, MergeStrategy::Atomic, item, &format!("{path}[{at}]")))
        }
        (Shape::List(_), _) => Err(unexpected(path, "list", value)),
    }
}

fn unexpected(path: &str, expected: &str, value: &Value) -> String {
    let got = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "map",
    };
    format!("{path}: expected {expected}, got {got}")
}
