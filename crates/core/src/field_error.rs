//! One violated rule of an object, with the message of an API server.

use std::fmt;

/// One violated rule. Its `Display` is the text of the API's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Such as `STATUSVAL-17`; empty where no caller uses it.
    pub rule: &'static str,
    pub kind: ErrorKind,
    /// Such as `spec.template.spec.containers[0].name`.
    pub path: String,
    /// The offending value as JSON text. None where the API prints no value.
    pub value: Option<String>,
    /// Empty if the kind needs no explanation.
    pub detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    Required,
    Invalid,
    NotSupported,
    Duplicate,
    Forbidden,
    NotFound,
    TooMany,
    TooLong,
    TypeInvalid,
}

impl ErrorKind {
    /// The `reason` of a cause in the API's response, and the words with which its message begins.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Required => ("FieldValueRequired", "Required value"),
            Self::Invalid => ("FieldValueInvalid", "Invalid value"),
            Self::NotSupported => ("FieldValueNotSupported", "Unsupported value"),
            Self::Duplicate => ("FieldValueDuplicate", "Duplicate value"),
            Self::Forbidden => ("FieldValueForbidden", "Forbidden"),
            Self::NotFound => ("FieldValueNotFound", "Not found"),
            Self::TooMany => ("FieldValueTooMany", "Too many"),
            Self::TooLong => ("FieldValueTooLong", "Too long"),
            Self::TypeInvalid => ("FieldValueTypeInvalid", "Invalid value"),
        }
    }

    pub fn reason(self) -> &'static str {
        self.names().0
    }
}

impl FieldError {
    pub fn new(kind: ErrorKind, path: impl Into<String>, value: Option<String>, detail: impl Into<String>) -> Self {
        Self { rule: "", kind, path: path.into(), value, detail: detail.into() }
    }

    /// The text without the path: the `message` of a cause in the API's response.
    pub fn message(&self) -> impl fmt::Display + '_ {
        fmt::from_fn(|f| {
            f.write_str(self.kind.names().1)?;
            if let Some(value) = &self.value {
                write!(f, ": {value}")?;
            }
            if !self.detail.is_empty() {
                write!(f, ": {}", self.detail)?;
            }
            Ok(())
        })
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message())
    }
}
