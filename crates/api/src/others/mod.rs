//! Kinds with few rules of their own.
