//! Amounts of resources. They live in the core, where controllers can read them.

pub use tally_core::quantity::*;
