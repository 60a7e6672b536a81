//! The values of an object that selectors can refer to, read from its text in one pass.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use tally_value::Value;

use crate::kinds::Resource;

use super::Filter;
use super::fields::Selectable;

/// Labels and selectable fields of one object. Borrows from its text, except for texts with escapes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Facets<'a> {
    labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// In the order of the kind's table of fields.
    fields: Vec<Cow<'a, str>>,
}

impl<'a> Facets<'a> {
    /// From the text of a stored object. None if it is not a JSON object.
    pub fn read(resource: &Resource, stored: &'a [u8]) -> Option<Self> {
        Self::read_until(Selectable::of(resource), stored, &[])
    }

    /// As `read`, but stops as soon as all values that the filter needs are read.
    pub(super) fn read_for(filter: &Filter, resource: &Resource, stored: &'a [u8]) -> Option<Self> {
        let mut wanted: Vec<&str> = filter.fields.sections(resource).collect();
        if !filter.labels.is_everything() {
            wanted.push("metadata");
        }
        Self::read_until(Selectable::of(resource), stored, &wanted)
    }

    fn read_until(selectable: &'static Selectable, stored: &'a [u8], wanted: &[&str]) -> Option<Self> {
        let mut reader = Reader {
            selectable,
            facets: Self { labels: Vec::new(), fields: vec![Cow::Borrowed(""); selectable.fields.len()] },
            wanted: wanted.to_vec(),
            satisfied: false,
        };
        let mut text = serde_json::Deserializer::from_slice(stored);
        let ended = (&mut reader).deserialize(&mut text).is_ok() && text.end().is_ok();
        (ended || reader.satisfied).then(|| reader.facets.completed(selectable))
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == key).map(|(_, value)| value.as_ref())
    }

    pub(super) fn field(&self, index: usize) -> &str {
        self.fields.get(index).map_or("", AsRef::as_ref)
    }

    /// Sets the substitutes of empty fields.
    fn completed(mut self, selectable: &'static Selectable) -> Self {
        for (index, field) in selectable.fields.iter().enumerate() {
            if !self.field(index).is_empty() {
                continue;
            }
            let otherwise = field.otherwise(selectable.fields).and_then(|other| {
                let position = selectable.fields.iter().position(|field| field.label == other.label)?;
                self.fields.get(position).cloned()
            });
            if let Some(value) = self.fields.get_mut(index) {
                *value = otherwise.unwrap_or(Cow::Borrowed(field.absent));
            }
        }
        self
    }
}

/// A value in the form that field selectors compare; lists and objects are "".
pub(super) fn scalar(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Bool(flag) => Cow::Borrowed(if *flag { "true" } else { "false" }),
        Value::Number(number) => Cow::Owned(number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => Cow::Borrowed(""),
    }
}

/// Reads the top level of an object.
struct Reader<'a, 'w> {
    selectable: &'static Selectable,
    facets: Facets<'a>,
    /// Sections still to be read. Reading stops after the last of them; if the list is empty from the start, it never
    /// stops.
    wanted: Vec<&'w str>,
    satisfied: bool,
}

impl<'a> DeserializeSeed<'a> for &mut Reader<'a, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, text: D) -> Result<(), D::Error> {
        text.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for &mut Reader<'a, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<(), M::Error> {
        let until = !self.wanted.is_empty();
        while let Some(section) = map.next_key_seed(Scalar)? {
            let fields = self.selectable.fields;
            let field = fields.iter().position(|field| field.path == (section.as_ref(), ""));
            if let Some(place) = field.and_then(|field| self.facets.fields.get_mut(field)) {
                *place = map.next_value_seed(Scalar)?;
            } else if section == "metadata" || fields.iter().any(|field| field.path.0 == section) {
                map.next_value_seed(Inside::Section(self.selectable, &section, &mut self.facets))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
            self.wanted.retain(|wanted| *wanted != section);
            if until && self.wanted.is_empty() {
                // An error is the only way to stop in the middle of a text.
                self.satisfied = true;
                return Err(M::Error::custom("enough"));
            }
        }
        Ok(())
    }
}

/// What to read of a value if it is an object. Other values are skipped.
enum Inside<'r, 'a> {
    /// `metadata`, `spec` and so on.
    Section(&'static Selectable, &'r str, &'r mut Facets<'a>),
    Labels(&'r mut Facets<'a>),
}

impl<'a> DeserializeSeed<'a> for Inside<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, text: D) -> Result<(), D::Error> {
        text.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Inside<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<(), M::Error> {
        match self {
            Self::Labels(facets) => {
                while let Some(label) = map.next_key_seed(Scalar)? {
                    facets.labels.push((label, map.next_value_seed(Scalar)?));
                }
            }
            Self::Section(selectable, section, facets) => {
                while let Some(name) = map.next_key_seed(Scalar)? {
                    let field = selectable.fields.iter().position(|field| field.path == (section, &name));
                    if let Some(place) = field.and_then(|field| facets.fields.get_mut(field)) {
                        *place = map.next_value_seed(Scalar)?;
                    } else if section == "metadata" && name == "labels" {
                        map.next_value_seed(Inside::Labels(facets))?;
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
            }
        }
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'a>>(self, list: S) -> Result<(), S::Error> {
        IgnoredAny.visit_seq(list).map(drop)
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Any value as text, as [`scalar`] does.
struct Scalar;

impl<'a> DeserializeSeed<'a> for Scalar {
    type Value = Cow<'a, str>;

    fn deserialize<D: Deserializer<'a>>(self, text: D) -> Result<Self::Value, D::Error> {
        text.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Scalar {
    type Value = Cow<'a, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(if flag { "true" } else { "false" }))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(Value::from(number).to_string()))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }

    fn visit_seq<S: SeqAccess<'a>>(self, list: S) -> Result<Self::Value, S::Error> {
        IgnoredAny.visit_seq(list).map(|_| Cow::Borrowed(""))
    }

    fn visit_map<M: MapAccess<'a>>(self, map: M) -> Result<Self::Value, M::Error> {
        IgnoredAny.visit_map(map).map(|_| Cow::Borrowed(""))
    }
}
