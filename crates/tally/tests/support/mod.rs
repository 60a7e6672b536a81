//! What the tests of the whole binary share: a running server, and a client of it.
//!
//! The client is small on purpose: one connection, HTTP/1.1 over TLS, nothing retried that may have had an effect. A
//! test that looks at what the server acknowledged must not have a library decide on its own to send something twice.

// Every test binary uses a part of this.
#![allow(dead_code, reason = "each test uses a part of it")]

pub mod client;
pub mod kubectl;
pub mod server;
