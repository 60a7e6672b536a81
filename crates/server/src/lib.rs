//! The Kubernetes API over HTTPS, in front of a registry.
//!
//! A connection is accepted and its certificate verified ([`listen`]). For each request the server determines the user
//! ([`auth`]), the resource and verb ([`route`]) and the response format ([`negotiate`]). The verbs ([`objects`],
//! [`watching`], [`logs`]) pass it to the registry and encode the stored bytes as the response ([`forms`], [`body`]).
//! There is no rule about Jobs or Pods here.
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
