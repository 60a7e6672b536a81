//! `tally ps`, `tally show`, `tally logs` and `tally report`, with real processes: what is kept, in which words, and that nothing that was
//! counted is missing.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod in_use;
mod kept;
mod report;
mod tool;
