//! What the user sees of a run: a model of its Jobs (`model`), drawn (`render`, `screen`) or printed as lines (`report`,
//! `output`). `view` is the part of an object that is shown.

pub mod model;
pub mod output;
pub mod render;
pub mod report;
pub mod screen;
pub mod view;
pub mod words;
