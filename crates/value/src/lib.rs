//! A JSON value whose lists and maps are shared: a clone costs a reference count, a change copies the path to it, and two
//! values that share a part are equal there without a look inside.
//!
//! The names are those of `serde_json::Value`, so that code reads the same with either. What differs: `Value::Array` holds
//! a [`List`] and `Value::Object` a [`Map`], which behave like `&Vec<Value>` and like a sorted map until they are changed;
//! texts are [`Text`]s, short in place and longer ones shared.

mod de;
mod list;
mod macros;
mod map;
mod object;
mod ser;

use std::fmt;
use std::num::NonZeroUsize;
use std::ops::{Index, IndexMut};

use compact_str::CompactString;

pub use list::List;
pub use map::{Entry, Map};
pub use object::{Object, SharedView};
pub use ser::write_text;
pub use serde_json::Number;
pub use smol_str::SmolStr as Text;

#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    String(Text),
    Array(List),
    Object(Map),
}

static NULL: Value = Value::Null;

impl Value {
    pub const NULL: Value = Value::Null;

    pub fn get<I: ValueIndex>(&self, index: I) -> Option<&Value> {
        index.find(self)
    }

    /// Copies what is shared on the way, if there is something to change.
    pub fn get_mut<I: ValueIndex>(&mut self, index: I) -> Option<&mut Value> {
        index.find_mut(self)
    }

    /// By a JSON pointer: `/metadata/name`.
    pub fn pointer(&self, pointer: &str) -> Option<&Value> {
        let mut value = self;
        let mut rest = pointer;
        while let Some(after) = rest.strip_prefix('/') {
            // Steps are short, and a byte at a time is faster than a searcher.
            let end = match after.bytes().position(|byte| byte == b'/' || byte == b'~') {
                Some(at) if after.as_bytes()[at] == b'~' => {
                    return steps(rest)?.try_fold(value, |value, step| value.child(&step));
                }
                end => end.unwrap_or(after.len()),
            };
            let (step, others) = after.split_at(end);
            (value, rest) = (value.child(step)?, others);
        }
        rest.is_empty().then_some(value)
    }

    pub fn pointer_mut(&mut self, pointer: &str) -> Option<&mut Value> {
        // First only a look: nothing is copied on the way to what is not there.
        self.pointer(pointer)?;
        steps(pointer)?.try_fold(self, |value, step| match value {
            Value::Object(map) => map.get_mut(&step),
            Value::Array(list) => list.get_mut(position(&step)?),
            _ => None,
        })
    }

    fn child(&self, step: &str) -> Option<&Value> {
        match self {
            Value::Object(map) => map.get(step),
            Value::Array(list) => list.get(position(step)?),
            _ => None,
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    pub fn is_string(&self) -> bool {
        matches!(self, Value::String(_))
    }

    pub fn is_number(&self) -> bool {
        matches!(self, Value::Number(_))
    }

    pub fn is_boolean(&self) -> bool {
        matches!(self, Value::Bool(_))
    }

    pub fn is_array(&self) -> bool {
        matches!(self, Value::Array(_))
    }

    pub fn is_object(&self) -> bool {
        matches!(self, Value::Object(_))
    }

    pub fn is_i64(&self) -> bool {
        self.as_i64().is_some()
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Number(number) => number.as_i64(),
            _ => None,
        }
    }

    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Value::Number(number) => number.as_u64(),
            _ => None,
        }
    }

    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Number(number) => number.as_f64(),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<&Vec<Value>> {
        match self {
            Value::Array(list) => Some(list),
            _ => None,
        }
    }

    /// The list is copied if it is shared.
    pub fn as_array_mut(&mut self) -> Option<&mut Vec<Value>> {
        match self {
            Value::Array(list) => Some(list),
            _ => None,
        }
    }

    pub fn as_object(&self) -> Option<&Map> {
        match self {
            Value::Object(map) => Some(map),
            _ => None,
        }
    }

    pub fn as_object_mut(&mut self) -> Option<&mut Map> {
        match self {
            Value::Object(map) => Some(map),
            _ => None,
        }
    }

    pub fn take(&mut self) -> Value {
        std::mem::take(self)
    }

    /// Whether both are the same list or map in memory, or the same scalar: equal, found without a look at what they contain.
    pub fn is_same(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Array(one), Value::Array(other)) => one.is_same(other),
            (Value::Object(one), Value::Object(other)) => one.is_same(other),
            (Value::Array(_) | Value::Object(_), _) | (_, Value::Array(_) | Value::Object(_)) => false,
            (one, other) => one == other,
        }
    }

    /// Where a list or a map is in memory; None: it is empty, or something else. Of two that live, only the same have the same
    /// address.
    pub fn address(&self) -> Option<NonZeroUsize> {
        match self {
            Value::Array(list) if !list.is_empty() => NonZeroUsize::new(list.address()),
            Value::Object(map) if !map.is_empty() => NonZeroUsize::new(map.address()),
            _ => None,
        }
    }
}

/// The steps of a JSON pointer; None if it does not begin with a slash.
fn steps(pointer: &str) -> Option<impl Iterator<Item = std::borrow::Cow<'_, str>>> {
    let mut rest = match pointer {
        "" => None,
        _ => Some(pointer.strip_prefix('/')?),
    };
    Some(std::iter::from_fn(move || {
        // Steps are short, and a byte at a time is faster than a searcher.
        let step = match rest?.bytes().position(|byte| byte == b'/') {
            Some(end) => {
                let (step, after) = rest?.split_at(end);
                rest = Some(&after[1..]);
                step
            }
            None => rest.take()?,
        };
        Some(match step.bytes().any(|byte| byte == b'~') {
            true => step.replace("~1", "/").replace("~0", "~").into(),
            false => step.into(),
        })
    }))
}

fn position(step: &str) -> Option<usize> {
    let canonical = step == "0" || !step.starts_with(['0', '+']);
    step.parse().ok().filter(|_| canonical)
}

/// What a value can be asked by: the name of a field, or a position.
pub trait ValueIndex {
    fn find<'a>(&self, value: &'a Value) -> Option<&'a Value>;
    fn find_mut<'a>(&self, value: &'a mut Value) -> Option<&'a mut Value>;
    /// Panics if the value has no such place and cannot get one.
    fn place<'a>(&self, value: &'a mut Value) -> &'a mut Value;
}

impl ValueIndex for str {
    #[inline]
    fn find<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        value.as_object()?.get(self)
    }

    #[inline]
    fn find_mut<'a>(&self, value: &'a mut Value) -> Option<&'a mut Value> {
        value.as_object_mut()?.get_mut(self)
    }

    fn place<'a>(&self, value: &'a mut Value) -> &'a mut Value {
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        match value {
            Value::Object(map) => map.entry(self).or_insert(Value::Null),
            other => panic!("{other} has no field {self:?}"),
        }
    }
}

impl ValueIndex for usize {
    fn find<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        value.as_array()?.get(*self)
    }

    fn find_mut<'a>(&self, value: &'a mut Value) -> Option<&'a mut Value> {
        value.as_array_mut()?.get_mut(*self)
    }

    fn place<'a>(&self, value: &'a mut Value) -> &'a mut Value {
        match value {
            Value::Array(list) => &mut list[*self],
            other => panic!("{other} is no list"),
        }
    }
}

impl ValueIndex for String {
    fn find<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        ValueIndex::find(self.as_str(), value)
    }

    fn find_mut<'a>(&self, value: &'a mut Value) -> Option<&'a mut Value> {
        self.as_str().find_mut(value)
    }

    fn place<'a>(&self, value: &'a mut Value) -> &'a mut Value {
        self.as_str().place(value)
    }
}

impl ValueIndex for Text {
    fn find<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        ValueIndex::find(self.as_str(), value)
    }

    fn find_mut<'a>(&self, value: &'a mut Value) -> Option<&'a mut Value> {
        self.as_str().find_mut(value)
    }

    fn place<'a>(&self, value: &'a mut Value) -> &'a mut Value {
        self.as_str().place(value)
    }
}

impl<T: ValueIndex + ?Sized> ValueIndex for &T {
    fn find<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        (**self).find(value)
    }

    fn find_mut<'a>(&self, value: &'a mut Value) -> Option<&'a mut Value> {
        (**self).find_mut(value)
    }

    fn place<'a>(&self, value: &'a mut Value) -> &'a mut Value {
        (**self).place(value)
    }
}

impl<I: ValueIndex> Index<I> for Value {
    type Output = Value;

    /// Null for what is not there.
    fn index(&self, index: I) -> &Value {
        index.find(self).unwrap_or(&NULL)
    }
}

impl<I: ValueIndex> IndexMut<I> for Value {
    fn index_mut(&mut self, index: I) -> &mut Value {
        index.place(self)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match f.alternate() {
            true => serde_json::to_string_pretty(self),
            false => serde_json::to_string(self),
        };
        f.write_str(&text.map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! from {
    ($($kind:ty => $value:ident $make:expr),+ $(,)?) => {$(
        impl From<$kind> for Value {
            fn from($value: $kind) -> Value {
                $make
            }
        }
    )+};
}

from! {
    bool => value Value::Bool(value),
    i32 => value Value::Number(value.into()),
    i64 => value Value::Number(value.into()),
    u8 => value Value::Number(value.into()),
    u16 => value Value::Number(value.into()),
    u32 => value Value::Number(value.into()),
    u64 => value Value::Number(value.into()),
    usize => value Value::Number(value.into()),
    f64 => value Number::from_f64(value).map_or(Value::Null, Value::Number),
    Number => value Value::Number(value),
    String => value Value::String(value.into()),
    &String => value Value::String(value.into()),
    Text => value Value::String(value),
    &Text => value Value::String(value.clone()),
    CompactString => value Value::String(value.as_str().into()),
    &CompactString => value Value::String(value.as_str().into()),
    &str => value Value::String(value.into()),
    std::borrow::Cow<'_, str> => value Value::String(value.into()),
    List => value Value::Array(value),
    Map => value Value::Object(value),
    () => _value Value::Null,
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(items: Vec<T>) -> Value {
        items.into_iter().collect()
    }
}

impl<T: Clone + Into<Value>> From<&[T]> for Value {
    fn from(items: &[T]) -> Value {
        items.iter().cloned().collect()
    }
}

impl<T: Into<Value>, const N: usize> From<[T; N]> for Value {
    fn from(items: [T; N]) -> Value {
        items.into_iter().collect()
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

impl<T: Into<Value>> FromIterator<T> for Value {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Value {
        Value::Array(items.into_iter().map(Into::into).collect())
    }
}

impl<K: Into<Text>, V: Into<Value>> FromIterator<(K, V)> for Value {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(fields: I) -> Value {
        Value::Object(fields.into_iter().collect())
    }
}

impl From<serde_json::Value> for Value {
    fn from(value: serde_json::Value) -> Value {
        match value {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(value) => Value::Bool(value),
            serde_json::Value::Number(number) => Value::Number(number),
            serde_json::Value::String(text) => Value::String(text.into()),
            serde_json::Value::Array(items) => items.into_iter().map(Value::from).collect(),
            serde_json::Value::Object(fields) => {
                fields.into_iter().map(|(name, value)| (name, Value::from(value))).collect()
            }
        }
    }
}

impl From<&Value> for serde_json::Value {
    fn from(value: &Value) -> serde_json::Value {
        match value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => serde_json::Value::Bool(*value),
            Value::Number(number) => serde_json::Value::Number(number.clone()),
            Value::String(text) => serde_json::Value::String(text.to_string()),
            Value::Array(items) => items.iter().map(serde_json::Value::from).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (name.to_string(), serde_json::Value::from(value))).collect()
            }
        }
    }
}

impl From<Value> for serde_json::Value {
    fn from(value: Value) -> serde_json::Value {
        (&value).into()
    }
}

macro_rules! equals {
    ($($kind:ty, $other:ident, $value:ident => $equals:expr);+ $(;)?) => {$(
        impl PartialEq<$kind> for Value {
            fn eq(&self, $other: &$kind) -> bool {
                let $value = self;
                $equals
            }
        }

        impl PartialEq<Value> for $kind {
            fn eq(&self, value: &Value) -> bool {
                value == self
            }
        }
    )+};
}

equals! {
    str, other, value => value.as_str() == Some(other);
    &str, other, value => value.as_str() == Some(*other);
    String, other, value => value.as_str() == Some(other.as_str());
    bool, other, value => value.as_bool() == Some(*other);
    i32, other, value => value.as_i64() == Some(i64::from(*other));
    i64, other, value => value.as_i64() == Some(*other);
    u32, other, value => value.as_u64() == Some(u64::from(*other));
    u64, other, value => value.as_u64() == Some(*other);
    usize, other, value => value.as_u64() == Some(*other as u64);
    f64, other, value => value.as_f64() == Some(*other);
    serde_json::Value, other, value => same_as_plain(value, other);
}

macro_rules! equals_behind {
    ($($kind:ty),+) => {$(
        impl PartialEq<$kind> for &Value {
            fn eq(&self, other: &$kind) -> bool {
                **self == *other
            }
        }

        impl PartialEq<$kind> for &mut Value {
            fn eq(&self, other: &$kind) -> bool {
                **self == *other
            }
        }
    )+};
}

equals_behind!(bool, i32, i64, u32, u64, usize, f64);

fn same_as_plain(value: &Value, other: &serde_json::Value) -> bool {
    match (value, other) {
        (Value::Null, serde_json::Value::Null) => true,
        (Value::Bool(one), serde_json::Value::Bool(other)) => one == other,
        (Value::Number(one), serde_json::Value::Number(other)) => one == other,
        (Value::String(one), serde_json::Value::String(other)) => one == other,
        (Value::Array(one), serde_json::Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same_as_plain(one, other))
        }
        (Value::Object(one), serde_json::Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|((name, value), (key, plain))| name == key && same_as_plain(value, plain))
        }
        _ => false,
    }
}

/// What `json!` can take in: a value that is shared stays shared.
pub trait ToValue {
    fn to_value(&self) -> Value;
}

macro_rules! to_value {
    ($($kind:ty),+ $(,)?) => {$(
        impl ToValue for $kind {
            fn to_value(&self) -> Value {
                Value::from(self.clone())
            }
        }
    )+};
}

to_value!(
    bool,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
    usize,
    f64,
    Number,
    String,
    Text,
    CompactString,
    List,
    Map,
    serde_json::Value
);

impl ToValue for Value {
    fn to_value(&self) -> Value {
        self.clone()
    }
}

impl ToValue for () {
    fn to_value(&self) -> Value {
        Value::Null
    }
}

impl ToValue for str {
    fn to_value(&self) -> Value {
        Value::from(self)
    }
}

impl ToValue for std::borrow::Cow<'_, str> {
    fn to_value(&self) -> Value {
        Value::from(&**self)
    }
}

impl<T: ToValue + ?Sized> ToValue for &T {
    fn to_value(&self) -> Value {
        (**self).to_value()
    }
}

impl<T: ToValue> ToValue for Option<T> {
    fn to_value(&self) -> Value {
        self.as_ref().map_or(Value::Null, ToValue::to_value)
    }
}

impl<T: ToValue> ToValue for [T] {
    fn to_value(&self) -> Value {
        self.iter().map(ToValue::to_value).collect()
    }
}

impl<T: ToValue> ToValue for Vec<T> {
    fn to_value(&self) -> Value {
        self[..].to_value()
    }
}

impl<T: ToValue, const N: usize> ToValue for [T; N] {
    fn to_value(&self) -> Value {
        self[..].to_value()
    }
}

impl<K: AsRef<str>, V: ToValue> ToValue for std::collections::BTreeMap<K, V> {
    fn to_value(&self) -> Value {
        self.iter().map(|(name, value)| (name.as_ref(), value.to_value())).collect()
    }
}
