//! The handshake of a WebSocket (RFC 6455), and the connection after it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{
    CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Method, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use tally_api::status_error::StatusError;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::encode::HttpResponse;
use crate::http::body::Body;
use crate::http::handler::ClientConnection;
use crate::sessions::BoxFuture;

pub type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// The longest message of a client. kubectl sends 32 KiB at once; a program can send its whole input as one message.
const LONGEST_MESSAGE: usize = 4 << 20;
/// What is appended to a key before it is hashed.
const KEY_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// For clients that ask for SPDY, as kubectl did before.
pub const EXEC_ADVICE: &str = "this server does not speak SPDY: use kubectl 1.31 or newer, or set \
     KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true with kubectl 1.29 or 1.30";
pub const FORWARD_ADVICE: &str = "this server does not speak SPDY outside of a WebSocket: use kubectl 1.31 or newer, or set \
     KUBECTL_PORT_FORWARD_WEBSOCKETS=true with kubectl 1.30";

/// A request that can be upgraded.
#[derive(Debug)]
pub struct UpgradeRequest {
    on_upgrade: OnUpgrade,
    accept: HeaderValue,
    protocol: &'static str,
}

/// Whether a comma-separated header contains this token.
fn has_token(headers: &HeaderMap, name: hyper::header::HeaderName, token: &str) -> bool {
    tokens(headers, name).any(|found| found.eq_ignore_ascii_case(token))
}

fn tokens(headers: &HeaderMap, name: hyper::header::HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

impl UpgradeRequest {
    /// `protocols`: those that are spoken here, the preferred one first. `advice`: for a client that asks for SPDY.
    pub fn of(parts: &Parts, protocols: &[&'static str], advice: &str) -> Result<Self, StatusError> {
        let headers = &parts.headers;
        if tokens(headers, UPGRADE).any(|token| token.to_ascii_uppercase().starts_with("SPDY/")) {
            return Err(StatusError::bad_request(advice));
        }
        let is_asked = has_token(headers, CONNECTION, "upgrade") && has_token(headers, UPGRADE, "websocket");
        if !is_asked {
            return Err(StatusError::bad_request("Upgrade request required: this path speaks WebSocket only"));
        }
        let key = headers.get(SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok()).unwrap_or_default();
        let is_key = STANDARD.decode(key).is_ok_and(|key| key.len() == 16);
        let is_13 = has_token(headers, SEC_WEBSOCKET_VERSION, "13");
        if parts.method != Method::GET || parts.version != Version::HTTP_11 || !is_key || !is_13 {
            return Err(StatusError::bad_request("the WebSocket handshake must be a GET of version 13 with a key"));
        }
        let offered: Vec<&str> = tokens(headers, SEC_WEBSOCKET_PROTOCOL).collect();
        let Some(protocol) = protocols.iter().copied().find(|protocol| offered.contains(protocol)) else {
            let (known, offered) = (protocols.join(", "), offered.join(", "));
            let text = format!("none of the WebSocket protocols {offered:?} is served here; these are: {known}");
            return Err(StatusError::bad_request(text));
        };
        let Some(on_upgrade) = parts.extensions.get::<OnUpgrade>().cloned() else {
            return Err(StatusError::bad_request("this connection cannot be upgraded"));
        };
        let hash =
            ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{KEY_SUFFIX}").as_bytes());
        let accept = HeaderValue::from_str(&STANDARD.encode(hash));
        let accept = accept.map_err(|error| StatusError::internal(error.to_string()))?;
        Ok(Self { on_upgrade, accept, protocol })
    }

    /// The response that upgrades the connection. `held` is kept until the session is over.
    pub fn accept<H, F>(self, client: &ClientConnection, held: H, session: F) -> HttpResponse
    where
        H: Send + 'static,
        F: FnOnce(Socket, &'static str) -> BoxFuture<'static, ()> + Send + 'static,
    {
        let Self { on_upgrade, accept, protocol } = self;
        client.continue_with(Box::pin(async move {
            let _held = held;
            let Ok(upgraded) = on_upgrade.await else { return };
            let config = WebSocketConfig::default()
                .max_message_size(Some(LONGEST_MESSAGE))
                .max_frame_size(Some(LONGEST_MESSAGE))
                .read_buffer_size(64 * 1024)
                .write_buffer_size(0)
                .max_write_buffer_size(1 << 20);
            let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
            session(socket, protocol).await;
        }));
        let mut answer = Response::new(Body::EMPTY);
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = answer.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
        answer
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sessions::channels::ChannelProtocol;

    fn refused(headers: &[(&str, &str)]) -> String {
        let mut request = hyper::Request::builder().method("GET");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        UpgradeRequest::of(&parts, ChannelProtocol::NAMES, EXEC_ADVICE).unwrap_err().message
    }

    #[test]
    fn a_request_that_cannot_be_upgraded_is_told_why() {
        let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        let asked = [("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")];
        let version = ("sec-websocket-version", "13");
        assert!(refused(&[("connection", "Upgrade"), ("upgrade", "SPDY/3.1")]).contains("kubectl 1.31"));
        assert!(refused(&[]).contains("Upgrade request required"));
        assert!(refused(&[asked[0], asked[1], version]).contains("with a key"));
        assert!(refused(&[asked[0], asked[1], version, ("sec-websocket-key", "short")]).contains("with a key"));
        let other = ("sec-websocket-protocol", "base64.channel.k8s.io");
        let text = refused(&[asked[0], asked[1], version, key, other]);
        assert!(text.contains("base64.channel.k8s.io") && text.contains("v5.channel.k8s.io"), "{text}");
        let known = ("sec-websocket-protocol", "v9.channel.k8s.io, v4.channel.k8s.io");
        assert_eq!(refused(&[asked[0], asked[1], version, key, known]), "this connection cannot be upgraded");
    }
}
