//! The protocols of exec and attach: each message of the WebSocket begins with a byte that names its channel.

use serde::Deserialize;
use tally_value::{Value, json};

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelProtocol {
    V4,
    /// Adds the end of a channel.
    V5,
}

impl ChannelProtocol {
    /// The newest first.
    pub const NAMES: &[&str] = &["v5.channel.k8s.io", "v4.channel.k8s.io"];

    pub fn named(name: &str) -> Option<Self> {
        match name {
            "v5.channel.k8s.io" => Some(Self::V5),
            "v4.channel.k8s.io" => Some(Self::V4),
            _ => None,
        }
    }
}

const STDIN: u8 = 0;
pub const STDOUT: u8 = 1;
pub const STDERR: u8 = 2;
/// How it ended.
pub const STATUS: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// A message of the client.
#[derive(Debug, PartialEq, Eq)]
pub enum ClientMessage<'a> {
    Input(&'a [u8]),
    InputEnded,
    /// Columns and rows.
    Resize(u16, u16),
    /// Nothing that concerns the server.
    Other,
}

impl<'a> ClientMessage<'a> {
    pub fn parse(protocol: ChannelProtocol, message: &'a [u8]) -> Self {
        match message {
            [STDIN, input @ ..] => Self::Input(input),
            [RESIZE, size @ ..] => match serde_json::from_slice(size) {
                Ok(Size { width, height }) => Self::Resize(width, height),
                Err(_) => Self::Other,
            },
            [CLOSE, STDIN] if protocol == ChannelProtocol::V5 => Self::InputEnded,
            _ => Self::Other,
        }
    }
}

#[derive(Deserialize)]
struct Size {
    #[serde(alias = "Width")]
    width: u16,
    #[serde(alias = "Height")]
    height: u16,
}

/// A message to the client.
pub fn message(channel: u8, content: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(content.len() + 1);
    message.push(channel);
    message.extend_from_slice(content);
    message
}

/// How a command ended.
pub fn ended(code: i32) -> Value {
    if code == 0 {
        return json!({"metadata": {}, "status": "Success"});
    }
    json!({
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": format!("command terminated with non-zero exit code: exit status {code}"),
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
    })
}

/// Why there is no command, or why its end is not known.
pub fn failed(message: &str) -> Value {
    json!({
        "metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
        "message": format!("Internal error occurred: {message}"), "details": {"causes": [{"message": message}]},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart_by_their_first_byte() {
        use ChannelProtocol::{V4, V5};
        use ClientMessage::{Input, InputEnded, Other, Resize};
        for (protocol, message, expected) in [
            (V4, &b"\x00abc"[..], Input(b"abc")),
            (V4, b"\x00", Input(b"")),
            (V4, b"", Other),
            (V4, b"\x01x", Other),
            (V4, b"\xff\x00", Other),
            (V5, b"\xff\x00", InputEnded),
            (V5, b"\xff\x01", Other),
            (V5, b"\xff", Other),
            (V5, b"\xff\x00\x00", Other),
            (V5, b"\x04{\"Width\":80,\"Height\":24}", Resize(80, 24)),
            (V5, b"\x04{\"width\":1,\"height\":2}", Resize(1, 2)),
            (V5, b"\x04{\"Width\":80}", Other),
            (V5, b"\x04{\"Width\":-1,\"Height\":70000}", Other),
            (V5, b"\x04", Other),
            (V5, b"\x07", Other),
        ] {
            assert_eq!(ClientMessage::parse(protocol, message), expected, "{message:?}");
        }
    }

    #[test]
    fn any_bytes_are_some_message() {
        for round in 0..20_000_u32 {
            let length = fastrand::usize(..40);
            let mut message: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(length).collect();
            if round % 2 == 0 && length > 0 {
                message[0] = [0, 4, 255][fastrand::usize(..3)];
            }
            if let ClientMessage::Input(input) = ClientMessage::parse(ChannelProtocol::V5, &message) {
                assert_eq!(input, &message[1..]);
            }
        }
    }

    #[test]
    fn the_end_is_a_status() {
        assert_eq!(ended(0)["status"], "Success");
        assert_eq!(ended(3)["details"]["causes"][0], json!({"reason": "ExitCode", "message": "3"}));
        assert_eq!(failed("x")["code"], 500);
    }
}
