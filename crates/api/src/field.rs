//! The position of a value in an object, and errors about it.
//!
//! Validation walks an object with [`At`]: a value together with its path. The path is a chain of borrowed steps and
//! becomes text only if there is an error to report, so that checking a valid object allocates nothing.

use serde::Serialize;
pub use tally_core::field_error::{ErrorKind, FieldError};
use tally_value::{Map, Value};

/// A position in an object, and the value there if any. `null` counts as absent.
#[derive(Clone, Copy)]
pub struct At<'p, 'v> {
    pub value: Option<&'v Value>,
    parent: Option<&'p At<'p, 'v>>,
    step: Step<'p>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    /// The object itself.
    Root,
    Field(&'a str),
    Index(usize),
    /// Written in brackets: `labels[app]`.
    Key(&'a str),
}

impl<'p, 'v> At<'p, 'v> {
    pub fn root(value: &'v Value) -> Self {
        At { value: Some(value), parent: None, step: Step::Root }
    }

    /// A value shown at another path than its own: `rooted("spec.template", template)`.
    pub fn rooted(path: &'p str, value: Option<&'v Value>) -> Self {
        At { value: value.filter(|value| !value.is_null()), parent: None, step: Step::Field(path) }
    }

    pub fn at(&'p self, field: &'p str) -> At<'p, 'v> {
        let value = self.value.and_then(|value| value.get(field)).filter(|value| !value.is_null());
        At { value, parent: Some(self), step: Step::Field(field) }
    }

    /// An entry of a map, whose path is written `map[key]`.
    pub fn key(&'p self, key: &'p str) -> At<'p, 'v> {
        let value = self.value.and_then(|value| value.get(key)).filter(|value| !value.is_null());
        At { value, parent: Some(self), step: Step::Key(key) }
    }

    pub fn index(&'p self, index: usize) -> At<'p, 'v> {
        let value = self.value.and_then(|value| value.get(index)).filter(|value| !value.is_null());
        At { value, parent: Some(self), step: Step::Index(index) }
    }

    /// The elements of a list; none if there is no list.
    pub fn items(&'p self) -> impl Iterator<Item = At<'p, 'v>> {
        (0..self.len()).map(|index| self.index(index))
    }

    /// The entries of a map, in order of their keys; none if there is no map.
    pub fn entries(&self) -> impl Iterator<Item = (&'v str, &'v Value)> + use<'v> {
        self.map().into_iter().flat_map(|map| map.iter().map(|(key, value)| (key.as_str(), value)))
    }

    pub fn is_set(&self) -> bool {
        self.value.is_some()
    }

    /// The number of elements of the list or entries of the map.
    pub fn len(&self) -> usize {
        match self.value {
            Some(Value::Array(items)) => items.len(),
            Some(Value::Object(map)) => map.len(),
            _ => 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn map(&self) -> Option<&'v Map> {
        self.value.and_then(Value::as_object)
    }

    pub fn list(&self) -> &'v [Value] {
        self.value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The text, if it is text.
    pub fn text(&self) -> Option<&'v str> {
        self.value.and_then(Value::as_str)
    }

    /// The text, or "", which is what an absent text means.
    pub fn text_or_empty(&self) -> &'v str {
        self.text().unwrap_or_default()
    }

    pub fn int(&self) -> Option<i64> {
        self.value.and_then(Value::as_i64)
    }

    pub fn bool(&self) -> Option<bool> {
        self.value.and_then(Value::as_bool)
    }

    /// Whether the value is `true`.
    pub fn is_true(&self) -> bool {
        self.bool() == Some(true)
    }

    pub fn path(&self) -> String {
        let mut text = String::new();
        self.write_path(&mut text);
        text
    }

    fn write_path(&self, text: &mut String) {
        if let Some(parent) = self.parent {
            parent.write_path(text);
        }
        match self.step {
            Step::Root => {}
            Step::Field(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Step::Index(index) => text.push_str(&format!("[{index}]")),
            Step::Key(key) => text.push_str(&format!("[{key}]")),
        }
    }

    fn json(&self) -> String {
        self.value.map_or_else(|| "null".to_owned(), Value::to_string)
    }

    // ---- errors about this position ----

    pub fn required(&self, detail: impl Into<String>) -> FieldError {
        FieldError::new(ErrorKind::Required, self.path(), None, detail)
    }

    /// The value here is invalid; it is printed as JSON, `null` if it is absent.
    pub fn invalid(&self, detail: impl Into<String>) -> FieldError {
        FieldError::new(ErrorKind::Invalid, self.path(), Some(self.json()), detail)
    }

    /// As `invalid`, printing another value than the one here (an absent text is printed as `""`, a number as its
    /// default).
    pub fn invalid_value(&self, value: impl Serialize, detail: impl Into<String>) -> FieldError {
        FieldError::new(ErrorKind::Invalid, self.path(), Some(json(value)), detail)
    }

    /// As `invalid`, without the value.
    pub fn invalid_unprinted(&self, detail: impl Into<String>) -> FieldError {
        FieldError::new(ErrorKind::Invalid, self.path(), None, detail)
    }

    pub fn not_supported(&self, value: impl Serialize, supported: &[&str]) -> FieldError {
        let names: Vec<String> = supported.iter().map(json).collect();
        let detail = if names.is_empty() { String::new() } else { format!("supported values: {}", names.join(", ")) };
        FieldError::new(ErrorKind::NotSupported, self.path(), Some(json(value)), detail)
    }

    pub fn duplicate(&self) -> FieldError {
        FieldError::new(ErrorKind::Duplicate, self.path(), Some(self.json()), "")
    }

    pub fn forbidden(&self, detail: impl Into<String>) -> FieldError {
        FieldError::new(ErrorKind::Forbidden, self.path(), None, detail)
    }

    pub fn not_found(&self) -> FieldError {
        FieldError::new(ErrorKind::NotFound, self.path(), Some(self.json()), "")
    }

    pub fn too_many(&self, most: usize) -> FieldError {
        let detail = format!("must have at most {most} items");
        FieldError::new(ErrorKind::TooMany, self.path(), Some(self.len().to_string()), detail)
    }

    pub fn too_long(&self, most: usize) -> FieldError {
        FieldError::new(ErrorKind::TooLong, self.path(), None, format!("may not be more than {most} bytes"))
    }
}

fn json(value: impl Serialize) -> String {
    serde_json::to_string(&value).unwrap_or_else(|error| format!("(not JSON: {error})"))
}
