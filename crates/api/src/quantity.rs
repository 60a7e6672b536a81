//! Amounts of resources. They are defined in the core, where controllers can use them.

pub use tally_core::quantity::*;
