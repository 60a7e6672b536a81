//! What the writer needs of a disk. One is in [`crate::disk`]; tests bring others that fail.

pub use crate::group::{Account, Planned};

/// A failed write, in words for a person. Whether anything of it reached the disk is unknown.
pub type Failure = Box<str>;

pub trait Backend: Send {
    /// Makes all of these writes durable, or none, and the account with them. Never called again after a failure.
    fn write(&mut self, writes: &[Planned], account: &Account) -> Result<(), Failure>;

    /// Whether [`Backend::rest`] has something to do.
    fn is_restless(&self) -> bool {
        false
    }

    /// Work that can wait until there are no writes.
    fn rest(&mut self) {}
}
