//! The modules of the server that are fuzzed, under the paths they have there.

pub mod encode {
    #[path = "../../crates/server/src/encode/protobuf.rs"]
    pub mod protobuf;
}

pub mod http {
    #[path = "../../crates/server/src/http/route.rs"]
    pub mod route;
}
