//! Helpers shared by the decoders of views, and the error for input that cannot be decoded.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;

use compact_str::CompactString;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use thiserror::Error;

use crate::ids::Revision;

/// An object that cannot be decoded into a view. Names the object and the field, so that a user can find it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("cannot read {kind} {name:?}: {problem}")]
pub struct ViewError {
    pub kind: &'static str,
    pub name: String,
    pub problem: String,
}

impl ViewError {
    pub(crate) fn job(bytes: &[u8], source: &serde_json::Error) -> Self {
        Self::decoding("Job", bytes, source)
    }

    pub(crate) fn pod(bytes: &[u8], source: &serde_json::Error) -> Self {
        Self::decoding("Pod", bytes, source)
    }

    fn decoding(kind: &'static str, bytes: &[u8], source: &serde_json::Error) -> Self {
        Self { kind, name: name_of(bytes).unwrap_or_default(), problem: source.to_string() }
    }

    pub(crate) fn field(kind: &'static str, name: &str, field: &str, source: &dyn std::fmt::Display) -> Self {
        Self { kind, name: name.to_owned(), problem: format!("{field}: {source}") }
    }
}

/// The name of an object whose other fields cannot be decoded, for the error message.
fn name_of(bytes: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        metadata: Name,
    }
    #[derive(Deserialize)]
    struct Name {
        name: String,
    }
    serde_json::from_slice::<Named>(bytes).ok().map(|named| named.metadata.name)
}

/// `null` and absence mean the default, as everywhere in the Kubernetes API.
pub(crate) fn null_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A field that the Job rules do without: one of another type than the API has does not make the object unreadable.
pub(crate) fn if_usual<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Field<T> {
        Usual(T),
        Other(IgnoredAny),
    }
    Ok(match Field::deserialize(deserializer)? {
        Field::Usual(value) => Some(value),
        Field::Other(_) => None,
    })
}

/// A text that is borrowed from what it is read from, unless it is written there in another form.
#[derive(Clone, Debug, Default)]
pub(crate) struct Text<'a>(Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyText;

        impl<'de> Visitor<'de> for AnyText {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(AnyText)
    }
}

/// A map of strings; a `null` value is the empty string.
pub(crate) fn text_map<'de, D, M>(deserializer: D) -> Result<M, D::Error>
where
    D: Deserializer<'de>,
    M: FromIterator<(CompactString, CompactString)>,
{
    deserializer.deserialize_option(TextMap).map(|texts| texts.into_iter().collect())
}

struct TextMap;

impl<'de> Visitor<'de> for TextMap {
    type Value = Vec<(CompactString, CompactString)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut texts = Vec::with_capacity(map.size_hint().unwrap_or(0).min(16));
        while let Some((name, text)) = map.next_entry::<CompactString, Option<CompactString>>()? {
            texts.push((name, text.unwrap_or_default()));
        }
        // An API server writes them in order, each once. Of two with the same name the later one counts.
        if !texts.is_sorted_by(|one, next| one.0 < next.0) {
            texts = BTreeMap::from_iter(texts).into_iter().collect();
        }
        Ok(texts)
    }
}

/// Reads a string and converts it, without keeping a copy of the string.
pub(crate) fn read_text<'de, D, T>(
    deserializer: D,
    expected: &'static str,
    make: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
{
    struct Text<F>(&'static str, F);

    impl<T, F: FnOnce(&str) -> Result<T, String>> Visitor<'_> for Text<F> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            (self.1)(text).map_err(E::custom)
        }
    }

    deserializer.deserialize_str(Text(expected, make))
}

pub(crate) fn revision(kind: &'static str, name: &str, text: Option<&str>) -> Result<Revision, ViewError> {
    let text = text.unwrap_or("");
    text.parse().ok().filter(|_| !text.starts_with('+')).map(Revision).ok_or_else(|| {
        ViewError::field(kind, name, "metadata.resourceVersion", &format!("{text:?} is not a decimal number"))
    })
}

/// The UID, which is required: without it an object cannot be distinguished from another one of the same name.
pub(crate) fn required_uid<T>(
    kind: &'static str,
    name: &str,
    uid: Option<T>,
    is_empty: impl FnOnce(&T) -> bool,
) -> Result<T, ViewError> {
    uid.filter(|uid| !is_empty(uid)).ok_or_else(|| ViewError::field(kind, name, "metadata.uid", &"is missing"))
}
