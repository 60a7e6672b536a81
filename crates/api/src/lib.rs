//! What Kubernetes objects mean: which kinds there are, their defaults, their validation and its messages, patches,
//! selectors, and tables. Pure: no clock, no randomness, no I/O.
//!
//! Objects are JSON values that conform to a schema (`schema`), not Rust structures: unknown fields can be reported,
//! type errors have the messages of kube-apiserver, and patches, validation and printing work on what was sent.

pub mod apply;
pub mod catalog;
pub mod cronjob;
pub mod decode;
pub mod field;
pub mod job;
pub mod kinds;
pub mod limits;
pub mod meta;
pub mod options;
pub mod others;
pub mod patch;
pub mod pod;
pub mod pod_security;
pub mod protobuf;
pub mod quantity;
pub mod quota;
pub mod rbac;
pub mod scale;
pub mod schedule;
pub mod schema;
pub mod selector;
pub mod status_error;
pub mod table;
