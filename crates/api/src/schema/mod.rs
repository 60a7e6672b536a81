//! The fields of every kind.
