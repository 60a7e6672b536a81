//! HTTP: connections, routes, content negotiation, response bodies, and the handler of one request.

pub mod body;
pub mod cached;
pub mod connections;
pub mod flow;
pub mod handler;
pub mod idle;
pub mod listen;
pub mod local;
pub mod metrics;
pub mod negotiate;
pub mod route;
