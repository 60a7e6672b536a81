//! Strategic merge patch: a merge patch that takes from the schema which lists are merged, and by which key.
//!
//! Elements of a merged list that the patch names are changed in place or added; `$patch: delete` removes one,
//! `$patch: replace` empties the list first. If the patch does not give the order of elements
//! (`$setElementOrder/<list>`), those it names keep their order in the patch, the others their old order, and where
//! both orders allow it a named one comes first.

use std::collections::{HashMap, HashSet};

use tally_value::{Map, Text, Value};

use super::golang::{print, type_of};
use crate::schema::{Field, Shape, Struct, Type, schema};
use crate::status_error::{Details, StatusError};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const ORDER: &str = "$setElementOrder";

type Object = Map;

pub fn apply(structure: &'static Struct, current: Value, patch: Value) -> Result<Value, StatusError> {
    match (current, patch) {
        (Value::Object(current), Value::Object(patch)) => {
            merge_map(current, patch, MapSchema::Struct(structure)).map(Value::Object).map_err(Problem::told)
        }
        (current, _) => Ok(current),
    }
}

/// An error in a patch.
#[derive(Debug)]
enum Problem {
    /// A directive does not have the right form: 400.
    Form(&'static str),
    /// 422, for which kube-apiserver gives no reason.
    ListOfLists,
    /// 500 in kube-apiserver, which has no better code for it. The message is all a client gets.
    Other(String),
}

impl Problem {
    fn told(self) -> StatusError {
        match self {
            Self::Form(what) => StatusError::bad_request(format!("invalid patch format of {what}")),
            Self::ListOfLists => super::rejected().with(Details::default()),
            Self::Other(text) => StatusError::new(500, "", text),
        }
    }
}

const BAD_ORDER: Problem = Problem::Form("setElementOrder list");
const BAD_RETAIN_KEYS: Problem = Problem::Form("retainKeys");
const BAD_DELETE_FROM: Problem = Problem::Form("primitive list");

/// The schema of the current map.
#[derive(Clone, Copy)]
enum MapSchema {
    Struct(&'static Struct),
    /// A map, or a value that should not be one.
    Other,
}

impl MapSchema {
    fn of(ty: &'static Type) -> Self {
        match &ty.shape {
            Shape::Struct(id) => Self::Struct(schema().get(*id)),
            _ => Self::Other,
        }
    }

    fn field(self, key: &str) -> Result<&'static Field, Problem> {
        let Self::Struct(structure) = self else {
            let text = "merging an object in json but data type is not struct, instead is: map";
            return Err(Problem::Other(text.to_owned()));
        };
        structure.field(key).ok_or_else(|| {
            let name = structure.name;
            Problem::Other(format!("unable to find api field in struct {name} for the json field {key:?}"))
        })
    }
}

/// How a list is merged: by which key, and the schema of its elements.
#[derive(Clone, Copy)]
struct ListRule {
    merge: bool,
    /// Empty for lists of plain values.
    key: &'static str,
    element: MapSchema,
}

impl ListRule {
    fn of(place: MapSchema, name: &str) -> Result<Self, Problem> {
        let field = place.field(name)?;
        let element = match &field.ty.shape {
            Shape::List(inner) => MapSchema::of(inner),
            _ => return Err(Problem::Other("expected slice or array type, but got: struct".to_owned())),
        };
        Ok(Self { merge: field.patch.merge, key: field.patch.key, element })
    }
}

fn merge_map(mut original: Object, mut patch: Object, place: MapSchema) -> Result<Object, Problem> {
    if let Some(directive) = patch.remove(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => Ok(patch),
            Some("delete") => Ok(Object::new()),
            _ => {
                patch.insert(DIRECTIVE, directive.clone());
                Err(unknown_directive(&directive, patch))
            }
        };
    }
    retain_keys(&mut original, &mut patch)?;
    set_orders(&mut original, &mut patch, place)?;
    for (key, value) in patch {
        merge_entry(&mut original, key, value, place)?;
    }
    Ok(original)
}

fn merge_entry(original: &mut Object, mut key: Text, value: Value, place: MapSchema) -> Result<(), Problem> {
    let deletes = key.starts_with(DELETE_FROM);
    if deletes {
        key = plain_key(&key, DELETE_FROM).ok_or(BAD_DELETE_FROM)?.into();
    }
    if value.is_null() {
        original.remove(&key);
        return Ok(());
    }
    let Some(place_of_old) = original.get_mut(&key) else {
        // There is nothing to merge with, or to delete from.
        let new = if deletes {
            None
        } else if is_as_shown(place, &key, &value) {
            Some(value)
        } else {
            cleaned(value)
        };
        original.extend(new.map(|new| (key, new)));
        return Ok(());
    };
    let merged = match (std::mem::take(place_of_old), value) {
        (Value::Object(old), Value::Object(new)) => {
            let field = place.field(&key)?;
            let below = MapSchema::of(&field.ty);
            Some(Value::Object(if field.patch.replace { new } else { merge_map(old, new, below)? }))
        }
        (Value::Array(old), Value::Array(new)) => {
            let rule = ListRule::of(place, &key)?;
            let merges = rule.merge || deletes;
            let merged = if merges { merge_list(old.to_vec(), new.to_vec(), rule, deletes)?.into() } else { new };
            Some(Value::Array(merged))
        }
        (old, _) if deletes => Some(old),
        (_, value @ (Value::Bool(_) | Value::Number(_) | Value::String(_))) => Some(value),
        // A value of another type.
        (_, value) => cleaned(value),
    };
    match merged {
        Some(merged) => *place_of_old = merged,
        None => drop(original.remove(&key)),
    }
    Ok(())
}

/// `$retainKeys` lists every key that may stay, including those of the patch.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), Problem> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let keys = keys.as_array().ok_or(BAD_RETAIN_KEYS)?;
    let retained = |key: &str| keys.iter().any(|retained| retained == key);
    let foreign = |(key, value): (&Text, &Value)| {
        !value.is_null() && !key.starts_with(DELETE_FROM) && !key.starts_with(ORDER) && !retained(key)
    };
    if patch.iter().any(foreign) {
        return Err(BAD_RETAIN_KEYS);
    }
    original.retain(|key, _| retained(key));
    Ok(())
}

/// Merges the lists whose order the patch specifies.
fn set_orders(original: &mut Object, patch: &mut Object, place: MapSchema) -> Result<(), Problem> {
    let ordered: Vec<Text> = patch.keys().filter(|key| key.starts_with(ORDER)).cloned().collect();
    for key in ordered {
        let order = match patch.remove(&key) {
            Some(Value::Array(order)) => order,
            other => {
                let given = type_of(&other.unwrap_or_default());
                return Err(Problem::Other(format!("expected a []interface {{}}, but received a {given}")));
            }
        };
        let name = plain_key(&key, ORDER).ok_or(BAD_ORDER)?;
        let (old, new) = (list(original.get(name))?, list(patch.get(name))?);
        let rule = ListRule::of(place, name)?;
        check_order(new.unwrap_or_default(), &order, rule.key)?;
        let merged = match (old, new) {
            (None, None) => continue,
            (Some(old), None) => old.to_vec(),
            (None, Some(new)) => match without_directives(new.into()) {
                Some(Value::Array(new)) => new.to_vec(),
                _ => continue,
            },
            (Some(old), Some(new)) if rule.merge => merge_list(old.to_vec(), new.to_vec(), rule, false)?,
            (Some(_), Some(new)) => new.to_vec(),
        };
        let old = old.unwrap_or_default();
        same_type(old, new.unwrap_or_default())?;
        let merged = arrange(merged, &order, old, rule.key)?;
        original.insert(name.to_owned(), merged.into());
        patch.remove(name);
    }
    Ok(())
}

fn list(value: Option<&Value>) -> Result<Option<&[Value]>, Problem> {
    match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        // kube-apiserver has the two types in the wrong order.
        Some(other) => Err(Problem::Other(format!("expected a {}, but received a []interface {{}}", type_of(other)))),
    }
}

/// `containers` of `$setElementOrder/containers`.
fn plain_key<'k>(key: &'k str, prefix: &str) -> Option<&'k str> {
    key.split_once('/').filter(|(before, _)| *before == prefix).map(|(_, name)| name)
}

/// The elements of the patch must occur in the given order; the order may contain others in between.
fn check_order(patch: &[Value], order: &[Value], key: &str) -> Result<(), Problem> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut wanted = order.iter();
    for item in patch.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        loop {
            let Some(next) = wanted.next() else {
                let (given, order) = (print(&patch.into()), print(&order.into()));
                let text = format!("The order in patch list:\n{given}\n doesn't match {ORDER} list:\n{order}\n");
                return Err(Problem::Other(text));
            };
            if identity(item, key)? == identity(next, key)? {
                break;
            }
        }
    }
    Ok(())
}

fn merge_list(old: Vec<Value>, new: Vec<Value>, rule: ListRule, deletes: bool) -> Result<Vec<Value>, Problem> {
    if old.is_empty() && new.is_empty() {
        return Ok(old);
    }
    if !same_type(&old, &new)? {
        let mut seen: HashSet<&Value> = HashSet::new();
        if deletes {
            seen.extend(&new);
            return Ok(old.iter().filter(|item| !seen.contains(item)).cloned().collect());
        }
        let merged = old.iter().chain(&new).filter(|item| seen.insert(item)).cloned().collect();
        return arrange(merged, &new, &old, "");
    }
    if rule.key.is_empty() {
        return Err(Problem::Other("cannot merge lists without merge key for struct".to_owned()));
    }
    let (old, new) = take_directives(old, new, rule.key)?;
    let mut merged = old.clone();
    let mut places = Places::of(&old, rule.key, new.as_ref().map_or(0, Vec::len));
    for item in new.iter().flatten() {
        let wanted = identity(item, rule.key)?;
        let known = places.get(wanted);
        match (known.and_then(|at| merged.get_mut(at)), item) {
            (Some(Value::Object(found)), Value::Object(item)) => {
                *found = merge_map(std::mem::take(found), item.clone(), rule.element)?;
            }
            _ => {
                if known.is_none() {
                    places.add(wanted, merged.len());
                }
                merged.push(item.clone());
            }
        }
    }
    arrange(merged, new.as_deref().unwrap_or_default(), &old, rule.key)
}

/// Applies the elements with directives, and returns the rest: the list, and what to merge into it. None if the list
/// was replaced.
type Taken = (Vec<Value>, Option<Vec<Value>>);

fn take_directives(old: Vec<Value>, new: Vec<Value>, key: &str) -> Result<Taken, Problem> {
    let (mut rest, mut replace, mut gone) = (Vec::with_capacity(new.len()), false, HashSet::new());
    for item in new {
        let Some(directive) = item.get(DIRECTIVE) else {
            rest.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let wanted = identity(&item, key)?;
                gone.insert(wanted.clone());
            }
            Some("replace") => replace = true,
            Some("merge") => {
                return Err(Problem::Other("merging lists cannot yet be specified in the patch".to_owned()));
            }
            _ => return Err(unknown_directive(directive, item.as_object().cloned().unwrap_or_default())),
        }
    }
    let old = old.into_iter().filter(|item| !item.get(key).is_some_and(|itself| gone.contains(itself))).collect();
    Ok(if replace { (rest, None) } else { (old, Some(rest)) })
}

/// The identity of an element: the value of its key, or the whole plain value.
fn identity<'v>(item: &'v Value, key: &str) -> Result<&'v Value, Problem> {
    if key.is_empty() {
        return Ok(item);
    }
    item.get(key)
        .ok_or_else(|| Problem::Other(format!("map: {} does not contain declared merge key: {key}", print(item))))
}

/// The position of each element, by its identity. Lists can be long, so they must not be searched for each element; most
/// are short, and then a search is faster than a table.
struct Places<'v> {
    few: Vec<(&'v Value, usize)>,
    table: Option<HashMap<&'v Value, usize>>,
}

impl<'v> Places<'v> {
    const FEW: usize = 16;

    /// `more`: how many may be added.
    fn of(items: &'v [Value], key: &str, more: usize) -> Self {
        let most = items.len() + more;
        let mut places = match most {
            ..=Self::FEW => Self { few: Vec::with_capacity(most), table: None },
            _ => Self { few: Vec::new(), table: Some(HashMap::with_capacity(most)) },
        };
        for (at, item) in items.iter().enumerate() {
            if let Some(itself) = if key.is_empty() { Some(item) } else { item.get(key) }
                && places.get(itself).is_none()
            {
                places.add(itself, at);
            }
        }
        places
    }

    fn get(&self, itself: &Value) -> Option<usize> {
        match &self.table {
            Some(table) => table.get(itself).copied(),
            None => self.few.iter().find(|(known, _)| *known == itself).map(|(_, at)| *at),
        }
    }

    /// One that has no position yet.
    fn add(&mut self, itself: &'v Value, at: usize) {
        match &mut self.table {
            Some(table) => drop(table.insert(itself, at)),
            None => self.few.push((itself, at)),
        }
    }
}

/// Elements in `order` have that order, the others that of `before`. The two are interleaved so that an existing
/// element keeps its position relative to other existing ones.
fn arrange(items: Vec<Value>, order: &[Value], before: &[Value], key: &str) -> Result<Vec<Value>, Problem> {
    let (in_order, in_before) = (Places::of(order, key, 0), Places::of(before, key, 0));
    let mut named: Vec<(usize, Option<usize>, Value)> = Vec::new();
    let mut others: Vec<(Option<usize>, Value)> = Vec::new();
    for item in items {
        let itself = identity(&item, key)?;
        match (in_order.get(itself), in_before.get(itself)) {
            (Some(at), old) => named.push((at, old, item)),
            (None, old) => others.push((old, item)),
        }
    }
    named.sort_by_key(|(at, ..)| *at);
    others.sort_by_key(|(old, _)| old.unwrap_or(usize::MAX));
    let mut arranged = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, old, item) in named {
        while let Some((Some(other), _)) = others.peek()
            && old.is_some_and(|old| *other < old)
        {
            arranged.extend(others.next().map(|(_, item)| item));
        }
        arranged.push(item);
    }
    arranged.extend(others.map(|(_, item)| item));
    Ok(arranged)
}

/// Checks that all elements have one type; true if they are maps.
fn same_type(old: &[Value], new: &[Value]) -> Result<bool, Problem> {
    let kind = |value: &Value| match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(number) => 2 + u8::from(number.is_f64()),
        Value::String(_) => 4,
        Value::Array(_) => 5,
        Value::Object(_) => 6,
    };
    let mut kinds = old.iter().chain(new).map(kind);
    let Some(first) = kinds.next() else {
        return Err(Problem::Other("no elements in any of the given slices".to_owned()));
    };
    if first == 5 {
        return Err(Problem::ListOfLists);
    }
    if kinds.any(|kind| kind != first) {
        let lists = print(&Value::from(vec![Value::from(old), Value::from(new)]));
        return Err(Problem::Other(format!("list element types are not identical: {lists}")));
    }
    Ok(first == 6)
}

fn unknown_directive(directive: &Value, patch: Object) -> Problem {
    Problem::Other(format!("unknown patch type: {} in map: {}", print(directive), print(&Value::Object(patch))))
}

/// A new value, without what only means something where there is an old one. None: nothing is left.
fn cleaned(value: Value) -> Option<Value> {
    if is_clean(&value) { Some(value) } else { without_directives(without_nulls(value)) }
}

fn is_clean(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.iter().all(|(key, value)| !value.is_null() && key != DIRECTIVE && is_clean(value)),
        Value::Array(items) => items.iter().all(is_clean),
        _ => true,
    }
}

/// Whether a list contains no directive, and `null` only where conforming would add it, as in the `lastProbeTime` of conditions.
fn is_as_shown(place: MapSchema, name: &str, list: &Value) -> bool {
    let MapSchema::Struct(structure) = place else { return false };
    let (Some(field), Value::Array(items)) = (structure.field(name), list) else { return false };
    let Shape::List(item) = &field.ty.shape else { return false };
    let MapSchema::Struct(item) = MapSchema::of(item) else { return false };
    let shows_null = |name: &str| item.field(name).is_some_and(|field| field.shows_zero() && field.ty.zero().is_null());
    let is_shown = |(name, value): (&Text, &Value)| {
        if value.is_null() { shows_null(name) } else { name != DIRECTIVE && is_clean(value) }
    };
    items.iter().all(|value| value.as_object().is_some_and(|object| object.iter().all(is_shown)))
}

/// In a new value there is nothing that `null` could remove.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            kept.map(|(key, value)| (key, without_nulls(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// The rest of a new value: maps with a directive are removed.
fn without_directives(value: Value) -> Option<Value> {
    Some(match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => return None,
        Value::Object(map) => {
            map.into_iter().filter_map(|(key, value)| Some((key, without_directives(value)?))).collect()
        }
        Value::Array(items) => items.into_iter().filter_map(without_directives).collect(),
        other => other,
    })
}
