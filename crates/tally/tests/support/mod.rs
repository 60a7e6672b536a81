//! What the tests of the whole binary share: a running server, and a client of it.
//!
//! The client is deliberately small: one connection, HTTP/1.1 over TLS, no retry of a request that may have had an
//! effect. A test that checks what the server acknowledged must not use a library that may send a request twice on its
//! own.

// Every test binary uses a part of this.
#![allow(dead_code, reason = "each test uses a part of it")]

pub mod client;
pub mod kubectl;
pub mod server;
