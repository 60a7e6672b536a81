//! Under construction.
#[derive(Clone)]
pub struct Store;
