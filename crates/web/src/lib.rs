//! The web page: static files, and the part of the Kubernetes API that they need, for one user on this machine.
//!
//! The page is plain HTTP on a loopback address. Every process of this machine can connect to it, and every page that the
//! user's browser shows can send requests to it; so there is nothing without a session:
//!
//! - a link with a token, which is valid once, becomes a cookie that scripts cannot read (`session.rs`);
//! - a request must name this server as its host, so that a foreign name that resolves to this machine is refused, and a
//!   request that changes something must come from the page itself (`request.rs`);
//! - only the resources that the page shows can be reached, with the rights of the user who started the server.

mod assets;
mod connections;
mod request;
mod serve;
mod session;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

use bytes::Bytes;

pub use serve::{WebServer, lifetime};
pub use session::LINK_FOR;

/// Explains why an object does not move, as JSON.
pub trait Explain: Send + Sync {
    /// None: there is no such object.
    fn explain<'a>(
        &'a self,
        namespace: &'a str,
        resource: &'a str,
        name: &'a str,
    ) -> Pin<Box<dyn Future<Output = Option<Bytes>> + Send + 'a>>;

    /// Which of the Jobs wait, and for what. Each is a namespace and a name.
    fn waits<'a>(&'a self, jobs: &'a [(&'a str, &'a str)]) -> Pin<Box<dyn Future<Output = Option<Bytes>> + Send + 'a>>;
}

/// Why this address is not one for the page. None: it is.
pub fn address_error(address: SocketAddr) -> Option<String> {
    (!address.ip().is_loopback()).then(|| {
        format!(
            "{address} is not a loopback address: the page has no encryption; choose 127.0.0.1:PORT, and reach it from \
             elsewhere through ssh -L"
        )
    })
}
