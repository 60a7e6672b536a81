//! A map that is copied when it is changed and shared: the fields of an object, sorted by name, in one array. Objects have
//! few fields, and an array is found, copied and compared faster than a tree.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use compact_str::CompactString;

use crate::Value;

type Fields = Vec<(CompactString, Value)>;

const FEW: usize = 24;

#[derive(Clone, Debug, Default)]
pub struct Map(Arc<Fields>);

impl Map {
    pub fn new() -> Map {
        Map::default()
    }

    pub fn with_capacity(fields: usize) -> Map {
        Map(Arc::new(Vec::with_capacity(fields)))
    }

    /// Whether both are the same map in memory.
    pub fn is_same(&self, other: &Map) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn find(&self, name: &str) -> Result<usize, usize> {
        // Fields mostly come in order.
        match self.0.last() {
            Some((last, _)) if last.as_str() < name => Err(self.0.len()),
            None => Err(0),
            _ => self.0.binary_search_by(|(field, _)| field.as_str().cmp(name)),
        }
    }

    /// Where a field is. A look at the lengths of a few names is faster than a search that compares their order.
    fn place(&self, name: &str) -> Option<usize> {
        match self.0.len() {
            ..=FEW => self.0.iter().position(|(field, _)| field.as_str() == name),
            _ => self.find(name).ok(),
        }
    }

    fn fields(&mut self) -> &mut Fields {
        Arc::make_mut(&mut self.0)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.place(name).map(|at| &self.0[at].1)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        let at = self.place(name)?;
        Some(&mut self.fields()[at].1)
    }

    pub fn contains_key(&self, name: &str) -> bool {
        self.place(name).is_some()
    }

    pub fn insert(&mut self, name: impl Into<CompactString> + AsRef<str>, value: Value) -> Option<Value> {
        match self.find(name.as_ref()) {
            Ok(at) => Some(std::mem::replace(&mut self.fields()[at].1, value)),
            Err(at) => {
                self.fields().insert(at, (name.into(), value));
                None
            }
        }
    }

    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let at = self.place(name)?;
        Some(self.fields().remove(at).1)
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&CompactString, &mut Value) -> bool) {
        self.fields().retain_mut(|(name, value)| keep(name, value));
    }

    pub fn entry(&mut self, name: impl Into<CompactString> + AsRef<str>) -> Entry<'_> {
        match self.find(name.as_ref()) {
            Ok(at) => Entry { map: self, place: Place::Taken(at) },
            Err(at) => Entry { map: self, place: Place::Free(at, name.into()) },
        }
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&CompactString, &Value)> + ExactSizeIterator + Clone {
        self.0.iter().map(|(name, value)| (name, value))
    }

    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (&CompactString, &mut Value)> + ExactSizeIterator {
        self.fields().iter_mut().map(|(name, value)| (&*name, value))
    }

    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &CompactString> + ExactSizeIterator + Clone {
        self.0.iter().map(|(name, _)| name)
    }

    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Value> + ExactSizeIterator + Clone {
        self.0.iter().map(|(_, value)| value)
    }

    pub fn values_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Value> + ExactSizeIterator {
        self.fields().iter_mut().map(|(_, value)| value)
    }
}

enum Place {
    Taken(usize),
    Free(usize, CompactString),
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
        let fields = self.map.fields();
        let at = match self.place {
            Place::Taken(at) => at,
            Place::Free(at, name) => {
                fields.insert(at, (name, make()));
                at
            }
        };
        &mut fields[at].1
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

impl<K: Into<CompactString> + AsRef<str>, V: Into<Value>> Extend<(K, V)> for Map {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, fields: I) {
        for (name, value) in fields {
            self.insert(name, value.into());
        }
    }
}

impl<K: Into<CompactString>, V: Into<Value>> FromIterator<(K, V)> for Map {
    /// Of two fields with the same name the later one stays.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(fields: I) -> Map {
        let mut sorted: Fields = fields.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        if !sorted.is_sorted_by(|one, other| one.0 < other.0) {
            // Stable, so that the later of two is behind the other.
            sorted.sort_by(|one, other| one.0.cmp(&other.0));
            sorted.dedup_by(|later, earlier| {
                let twice = later.0 == earlier.0;
                if twice {
                    std::mem::swap(&mut later.1, &mut earlier.1);
                }
                twice
            });
        }
        Map(Arc::new(sorted))
    }
}

impl<K: Into<CompactString>, V: Into<Value>, const N: usize> From<[(K, V); N]> for Map {
    fn from(fields: [(K, V); N]) -> Map {
        fields.into_iter().collect()
    }
}

impl IntoIterator for Map {
    type Item = (CompactString, Value);
    type IntoIter = std::vec::IntoIter<(CompactString, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        Arc::unwrap_or_clone(self.0).into_iter()
    }
}

impl<'a> IntoIterator for &'a Map {
    type Item = (&'a CompactString, &'a Value);
    type IntoIter = std::iter::Map<
        std::slice::Iter<'a, (CompactString, Value)>,
        fn(&'a (CompactString, Value)) -> (&'a CompactString, &'a Value),
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().map(|(name, value)| (name, value))
    }
}

impl<'a> IntoIterator for &'a mut Map {
    type Item = (&'a CompactString, &'a mut Value);
    type IntoIter = std::iter::Map<
        std::slice::IterMut<'a, (CompactString, Value)>,
        fn(&'a mut (CompactString, Value)) -> (&'a CompactString, &'a mut Value),
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.fields().iter_mut().map(|(name, value)| (&*name, value))
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
        match self.find(name) {
            Ok(at) => &mut self.fields()[at].1,
            Err(_) => panic!("no field {name:?}"),
        }
    }
}
