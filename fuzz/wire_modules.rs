//! The modules of the server that are fuzzed, under the paths they have there.

#[path = "../crates/server/src/http/negotiate.rs"]
pub mod negotiate_module;
#[path = "../crates/server/src/http/route.rs"]
pub mod route_module;
#[path = "../crates/server/src/sessions/spdy/mod.rs"]
pub mod spdy_module;

pub mod http {
    pub use super::{negotiate_module as negotiate, route_module as route};
}

pub mod sessions {
    pub use super::spdy_module as spdy;
}
