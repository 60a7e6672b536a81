use std::ops::Deref;

use bytes::Bytes;
use serde::Deserialize;

use crate::Value;

/// An object as an API server shows it: its JSON text and, if it was written in this process a moment ago, the tree of that
/// text. Its readers need not know which of the two they read.
#[derive(Clone, Debug)]
pub struct Object {
    pub bytes: Bytes,
    pub tree: Option<Value>,
}

impl Object {
    /// The whole object; null if its text is none.
    pub fn parse(&self) -> Value {
        match &self.tree {
            Some(tree) => tree.clone(),
            None => serde_json::from_slice(&self.bytes).unwrap_or_default(),
        }
    }

    /// The same, for readers with the other kind of value.
    pub fn plain(&self) -> serde_json::Value {
        self.read().unwrap_or_default()
    }

    /// Reads what is wanted of the object. A part that is kept as text (`RawValue`) can be read from [`Self::bytes`] only.
    pub fn read<'de, T: Deserialize<'de>>(&'de self) -> serde_json::Result<T> {
        match &self.tree {
            Some(tree) => T::deserialize(tree),
            None => serde_json::from_slice(&self.bytes),
        }
    }
}

/// The text decides: the same object may come with its tree, or without.
impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Deref for Object {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.bytes
    }
}

impl<T: Into<Bytes>> From<T> for Object {
    fn from(bytes: T) -> Self {
        Self { bytes: bytes.into(), tree: None }
    }
}
