//! The door: the Kubernetes API over HTTPS, in front of a registry.
//!
//! A connection is accepted, its certificate noted ([`listen`]); each request is told who asks ([`auth`]), what it is
//! about ([`route`]) and in which form the answer is wanted ([`negotiate`]); the verbs ([`objects`], [`watching`], [`logs`]) hand
//! it to the registry and dress the stored bytes for the wire ([`body`]). No rule about Jobs or Pods lives here.
//!
//! The caller owns the listener and decides when to stop.

mod auth;
mod body;
mod door;
mod extras;
mod files;
mod forms;
#[cfg(test)]
mod fuzz_corpus;
mod idle;
pub mod kubeconfig;
mod listen;
mod logs;
mod metrics;
mod negotiate;
mod objects;
mod openapi;
pub mod pki;
mod protobuf;
mod reviews;
mod route;
mod tokens;
mod watching;
mod world;
mod yaml;

pub use listen::Server;
pub use logs::{Log, Logs, Over, Wanted};
pub use pki::Pki;
pub use world::Machine;
