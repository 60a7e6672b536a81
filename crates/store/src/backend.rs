//! The interface between the writer and a disk. [`crate::disk`] implements it; tests implement backends that fail.

pub use crate::group::{Account, Planned};

/// A failed write, as text for a person. Whether any part of it reached the disk is unknown.
pub type Failure = Box<str>;

pub trait Backend: Send {
    /// Makes all of these writes durable together with the account, or none of them. Never called again after a
    /// failure.
    fn write(&mut self, writes: &[Planned], account: &Account) -> Result<(), Failure>;

    /// Whether [`Backend::rest`] has something to do.
    fn is_restless(&self) -> bool {
        false
    }

    /// Work that can be deferred until there are no writes.
    fn rest(&mut self) {}
}
