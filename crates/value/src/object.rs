use std::any::Any;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::Deserialize;

use crate::Value;

/// An object as an API server shows it: its JSON text and, if it was written in this process a moment ago, the tree of that
/// text. Its readers need not know which of the two they read.
#[derive(Clone, Debug)]
pub struct Object {
    pub bytes: Bytes,
    pub tree: Option<Value>,
    /// None: it has one reader.
    view: Option<SharedView>,
}

/// What the first reader made of an object, for the others: the response and the stream show the same object to several
/// controllers.
#[derive(Clone, Debug, Default)]
pub struct SharedView(Arc<OnceLock<Arc<dyn Any + Send + Sync>>>);

impl Object {
    /// An object that is shown to several readers. All that share the view have this text.
    pub fn shared(bytes: Bytes, tree: Option<Value>, view: SharedView) -> Self {
        Self { bytes, tree, view: Some(view) }
    }

    /// What `make` reads from the object, unless another reader has made one of this type before.
    pub fn view<T: Any + Send + Sync, E>(&self, make: impl FnOnce(&Self) -> Result<T, E>) -> Result<Arc<T>, E> {
        let known = self.view.as_ref().and_then(|SharedView(view)| view.get());
        if let Some(known) = known.and_then(|known| known.clone().downcast().ok()) {
            return Ok(known);
        }
        let made = Arc::new(make(self)?);
        if let Some(SharedView(view)) = &self.view {
            // Another reader may have been faster.
            let _ = view.set(made.clone());
        }
        Ok(made)
    }

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
        Self { bytes: bytes.into(), tree: None, view: None }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn readers_of_one_type_share_what_the_first_one_made() {
        let shared = Object::shared(Bytes::from_static(b"[1,2]"), None, SharedView::default());
        let numbers = |object: &Object| object.view(|object| object.read::<Vec<u8>>()).unwrap();
        let (first, second) = (numbers(&shared), numbers(&shared.clone()));
        assert!(Arc::ptr_eq(&first, &second));
        let (other, again) = (
            shared.view(|object| object.read::<Vec<i64>>()).unwrap(),
            shared.view(|object| object.read::<Vec<i64>>()).unwrap(),
        );
        assert!(other.iter().eq(&[1, 2]) && !Arc::ptr_eq(&other, &again), "there is room for one type");
        let own = Object::from(shared.bytes.clone());
        assert!(!Arc::ptr_eq(&numbers(&own), &numbers(&own)));
        let unreadable = Object::shared(Bytes::from_static(b"["), None, SharedView::default());
        assert!(unreadable.view(|object| object.read::<Vec<u8>>()).is_err());
    }
}
