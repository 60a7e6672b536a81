//! The modules of the server that are fuzzed, under the paths they have there.

#[path = "../crates/server/src/http/route.rs"]
pub mod route_module;

pub mod http {
    pub use super::route_module as route;
}
