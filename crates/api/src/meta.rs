//! Metadata every object has.

mod names;

pub use names::*;
