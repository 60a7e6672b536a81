//! The interface between the writer and a disk. [`crate::disk`] implements it; tests implement backends that fail.

use std::io;

pub use crate::group::{Account, Planned};

/// A failed write. Whether any part of it reached the disk is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct BackendError {
    /// For a person.
    pub reason: Box<str>,
    /// The disk, or the quota of the user, is full.
    pub disk_full: bool,
    /// [`Backend::recover`] may bring the disk back to what was acknowledged.
    pub recoverable: bool,
}

impl BackendError {
    /// `reason`: what failed, with the text of the error.
    pub fn io(error: &io::Error, reason: String) -> Self {
        let disk_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        Self { reason: reason.into(), disk_full, recoverable: false }
    }
}

impl From<&str> for BackendError {
    fn from(reason: &str) -> Self {
        Self { reason: reason.into(), disk_full: false, recoverable: false }
    }
}

pub trait Backend: Send {
    /// Makes all of these writes durable together with the account, or none of them. After a failure it is called again
    /// only if [`Backend::recover`] has succeeded.
    fn write(&mut self, writes: &[Planned], account: &Account) -> Result<(), BackendError>;

    /// Called after a failure that is [`BackendError::recoverable`]: removes from the disk whatever the failed write has
    /// left there, and checks that the disk has exactly the state that this account describes, which is the last one that
    /// was acknowledged. If it fails with a recoverable error, it is called again later.
    fn recover(&mut self, _acknowledged: &Account) -> Result<(), BackendError> {
        Err("this backend cannot recover".into())
    }

    /// Whether [`Backend::rest`] has something to do.
    fn is_restless(&self) -> bool {
        false
    }

    /// Work that can be deferred until there are no writes.
    fn rest(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_an_exhausted_quota_are_told_apart_from_other_errors() {
        for (code, full) in [(28, true), (122, true), (5, false)] {
            let error = io::Error::from_raw_os_error(code);
            assert_eq!(BackendError::io(&error, error.to_string()).disk_full, full, "{error}");
        }
    }
}
