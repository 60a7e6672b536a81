//! Helpers shared by the decoders of views, and what they say about input they cannot use.

use serde::{Deserialize, Deserializer};
use thiserror::Error;

use crate::ids::Revision;

/// An object that cannot be viewed. Says which object and which part, so that a person can find it.
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

/// The name of an object whose other parts do not decode, for the error message.
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

pub(crate) fn revision(kind: &'static str, name: &str, text: Option<&str>) -> Result<Revision, ViewError> {
    let text = text.unwrap_or("");
    text.parse().map(Revision).map_err(|_| {
        ViewError::field(kind, name, "metadata.resourceVersion", &format!("{text:?} is not a decimal number"))
    })
}
