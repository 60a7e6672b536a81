//! A map that is copied when it is changed and shared: the fields of an object, sorted by name, in one array. Objects have
//! few fields, and an array is found, copied and compared faster than a tree.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use ecow::EcoVec;

use crate::{Text, Value};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// The beginning of the name: see `prefix`.
    prefix: u64,
    name: Text,
    value: Value,
}

impl Field {
    fn new(name: Text, value: Value) -> Field {
        Field { prefix: prefix(&name), name, value }
    }

    fn into_pair(self) -> (Text, Value) {
        (self.name, self.value)
    }

    /// Whether this is the field of this name, whose prefix it has: that and its length are all of a short name.
    fn is_named(&self, name: &str) -> bool {
        let own = self.name.as_bytes();
        own.len() == name.len() && (own.len() <= 8 || own[8..] == name.as_bytes()[8..])
    }

    fn order(&self, prefix: u64, name: &str) -> Ordering {
        self.prefix.cmp(&prefix).then_with(|| self.name.as_str().cmp(name))
    }
}

/// With its reference count in the same allocation.
type Fields = EcoVec<Field>;

const FEW: usize = 24;

#[derive(Clone, Debug, Default)]
pub struct Map(Fields);

/// The first eight bytes of a name as a number, whose order is that of the names. Fields are looked up all the time, and most
/// differ in it. Of a name that is constant, so is this.
#[inline]
fn prefix(name: &str) -> u64 {
    let bytes = name.as_bytes();
    match (bytes.first_chunk(), bytes.first_chunk(), bytes.last_chunk()) {
        (Some(eight), ..) => u64::from_be_bytes(*eight),
        (None, Some(first), Some(last)) => {
            // The last four bytes overlap the first four.
            let rest = u64::from(u32::from_be_bytes(*last)) << (8 * (8 - bytes.len()));
            u64::from(u32::from_be_bytes(*first)) << 32 | rest & u64::from(u32::MAX)
        }
        _ => bytes.iter().zip([56, 48, 40]).fold(0, |prefix, (byte, shift)| prefix | u64::from(*byte) << shift),
    }
}

impl Map {
    pub fn new() -> Map {
        Map::default()
    }

    pub fn with_capacity(fields: usize) -> Map {
        Map(EcoVec::with_capacity(fields))
    }

    /// Whether both are the same map in memory.
    pub fn is_same(&self, other: &Map) -> bool {
        self.0.as_ptr() == other.0.as_ptr() && self.len() == other.len()
    }

    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }

    fn find(&self, prefix: u64, name: &str) -> Result<usize, usize> {
        // Fields mostly come in order.
        match self.0.last() {
            Some(last) if last.order(prefix, name).is_lt() => Err(self.0.len()),
            None => Err(0),
            _ => self.0.binary_search_by(|field| field.order(prefix, name)),
        }
    }

    #[inline]
    fn place(&self, name: &str) -> Option<usize> {
        self.place_of(prefix(name), name)
    }

    /// Where a field is. A look at the beginnings of a few names is faster than a search.
    fn place_of(&self, prefix: u64, name: &str) -> Option<usize> {
        match self.0.len() {
            ..=FEW => self.0.iter().position(|field| field.prefix == prefix && field.is_named(name)),
            _ => self.find(prefix, name).ok(),
        }
    }

    /// Copied if they are shared.
    fn fields(&mut self) -> &mut [Field] {
        self.0.make_mut()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.place(name).map(|at| &self.0[at].value)
    }

    #[inline]
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        let at = self.place(name)?;
        Some(&mut self.fields()[at].value)
    }

    #[inline]
    pub fn contains_key(&self, name: &str) -> bool {
        self.place(name).is_some()
    }

    pub fn insert(&mut self, name: impl Into<Text> + AsRef<str>, value: Value) -> Option<Value> {
        let prefix = prefix(name.as_ref());
        match self.find(prefix, name.as_ref()) {
            Ok(at) => Some(std::mem::replace(&mut self.fields()[at].value, value)),
            Err(at) => {
                self.0.insert(at, Field { prefix, name: name.into(), value });
                None
            }
        }
    }

    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let at = self.place(name)?;
        Some(self.0.remove(at).value)
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&Text, &mut Value) -> bool) {
        self.0.retain(|field| keep(&field.name, &mut field.value));
    }

    pub fn entry(&mut self, name: impl Into<Text> + AsRef<str>) -> Entry<'_> {
        match self.find(prefix(name.as_ref()), name.as_ref()) {
            Ok(at) => Entry { map: self, place: Place::Taken(at) },
            Err(at) => Entry { map: self, place: Place::Free(at, name.into()) },
        }
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&Text, &Value)> + ExactSizeIterator + Clone {
        self.0.iter().map(|field| (&field.name, &field.value))
    }

    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (&Text, &mut Value)> + ExactSizeIterator {
        self.fields().iter_mut().map(|field| (&field.name, &mut field.value))
    }

    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &Text> + ExactSizeIterator + Clone {
        self.0.iter().map(|field| &field.name)
    }

    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Value> + ExactSizeIterator + Clone {
        self.0.iter().map(|field| &field.value)
    }

    pub fn values_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Value> + ExactSizeIterator {
        self.fields().iter_mut().map(|field| &mut field.value)
    }
}

enum Place {
    Taken(usize),
    Free(usize, Text),
}

/// The place of a field, taken or free.
pub struct Entry<'a> {
    map: &'a mut Map,
    place: Place,
}

impl<'a> Entry<'a> {
    pub fn or_insert(self, value: Value) -> &'a mut Value {
        self.or_insert_with(|| value)
    }

    pub fn or_insert_with(self, make: impl FnOnce() -> Value) -> &'a mut Value {
        let at = match self.place {
            Place::Taken(at) => at,
            Place::Free(at, name) => {
                self.map.0.insert(at, Field::new(name, make()));
                at
            }
        };
        &mut self.map.fields()[at].value
    }

    pub fn or_default(self) -> &'a mut Value {
        self.or_insert(Value::Null)
    }
}

impl PartialEq for Map {
    fn eq(&self, other: &Map) -> bool {
        self.is_same(other) || self.0 == other.0
    }
}

impl Eq for Map {}

impl Hash for Map {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<K: Into<Text> + AsRef<str>, V: Into<Value>> Extend<(K, V)> for Map {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, fields: I) {
        for (name, value) in fields {
            self.insert(name, value.into());
        }
    }
}

impl<K: Into<Text>, V: Into<Value>> FromIterator<(K, V)> for Map {
    /// Of two fields with the same name the later one stays.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(fields: I) -> Map {
        let mut sorted: Vec<Field> =
            fields.into_iter().map(|(name, value)| Field::new(name.into(), value.into())).collect();
        let order = |one: &Field, other: &Field| one.order(other.prefix, &other.name);
        if !sorted.is_sorted_by(|one, other| order(one, other).is_lt()) {
            // Stable, so that the later of two is behind the other.
            sorted.sort_by(order);
            sorted.dedup_by(|later, earlier| {
                let twice = later.name == earlier.name;
                if twice {
                    std::mem::swap(&mut later.value, &mut earlier.value);
                }
                twice
            });
        }
        Map(sorted.into())
    }
}

impl<K: Into<Text>, V: Into<Value>, const N: usize> From<[(K, V); N]> for Map {
    fn from(fields: [(K, V); N]) -> Map {
        fields.into_iter().collect()
    }
}

impl IntoIterator for Map {
    type Item = (Text, Value);
    type IntoIter = std::iter::Map<ecow::vec::IntoIter<Field>, fn(Field) -> (Text, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().map(Field::into_pair)
    }
}

impl<'a> IntoIterator for &'a Map {
    type Item = (&'a Text, &'a Value);
    type IntoIter = std::iter::Map<std::slice::Iter<'a, Field>, fn(&'a Field) -> (&'a Text, &'a Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().map(|field| (&field.name, &field.value))
    }
}

impl<'a> IntoIterator for &'a mut Map {
    type Item = (&'a Text, &'a mut Value);
    type IntoIter = std::iter::Map<std::slice::IterMut<'a, Field>, fn(&'a mut Field) -> (&'a Text, &'a mut Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.fields().iter_mut().map(|field| (&field.name, &mut field.value))
    }
}

impl std::ops::Index<&str> for Map {
    type Output = Value;

    fn index(&self, name: &str) -> &Value {
        match self.get(name) {
            Some(value) => value,
            None => panic!("no field {name:?}"),
        }
    }
}

impl std::ops::IndexMut<&str> for Map {
    fn index_mut(&mut self, name: &str) -> &mut Value {
        match self.place(name) {
            Some(at) => &mut self.fields()[at].value,
            None => panic!("no field {name:?}"),
        }
    }
}
