//! The continue token of a list: the revision of all pages, and the key after which the next one begins. It has the
//! format of kube-apiserver's token, so that the errors are the same.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tally_api::decode::syntax_error;
use tally_api::status_error::StatusError;
use tally_value::{Value, json};

const VERSION: &str = "meta.k8s.io/v1";

/// `after`: the last key of the page, without the prefix of the list. Without a revision the next page shows the state
/// at the time of its request.
pub fn write(revision: Option<u64>, after: &str) -> String {
    let revision = revision.map_or(Value::from(-1), Value::from);
    let token = json!({"v": VERSION, "rv": revision, "start": format!("{after}\u{0}")});
    URL_SAFE_NO_PAD.encode(token.to_string())
}

/// The revision, and the key (without the list's prefix) after which the page begins.
pub fn read(token: &str) -> Result<(Option<u64>, String), StatusError> {
    let refuse =
        |why: String| StatusError::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let bytes = decode(token).map_err(|at| refuse(format!("illegal base64 data at input byte {at}")))?;
    let token = parse(&bytes).map_err(refuse)?;
    let text = |key: &str| token.get(key).and_then(Value::as_str).unwrap_or_default();
    if text("v") != VERSION {
        return Err(refuse(format!("server does not recognize this encoded version {}", text("v"))));
    }
    let revision = token.get("rv").and_then(Value::as_i64).unwrap_or(0);
    if revision == 0 {
        return Err(refuse(format!("incorrect encoded start resourceVersion (version {VERSION})")));
    }
    let start = text("start");
    if start.is_empty() {
        return Err(refuse(format!("encoded start key empty (version {VERSION})")));
    }
    let path = start.strip_prefix('/').unwrap_or(start);
    // The server never writes such a key: its path differs from what its text suggests.
    if path.split('/').any(|part| part.is_empty() || matches!(part, "." | "..")) {
        return Err(refuse(start.to_owned()));
    }
    Ok((u64::try_from(revision).ok(), path.trim_end_matches('\u{0}').to_owned()))
}

/// Decodes URL-safe base64 without padding; the error is the position of the first illegal byte.
fn decode(token: &str) -> Result<Vec<u8>, usize> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    };
    let (mut bytes, mut bits, mut held) = (Vec::with_capacity(token.len() * 3 / 4), 0_u32, 0_u32);
    for (at, byte) in token.bytes().enumerate() {
        bits = bits << 6 | u32::from(digit(byte).ok_or(at)?);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.extend(u8::try_from(bits >> held & 0xff));
        }
    }
    // A single digit at the end does not encode a byte.
    if held == 6 { Err(token.len() - 1) } else { Ok(bytes) }
}

/// The token's object, or the syntax error in the words of kube-apiserver.
fn parse(bytes: &[u8]) -> Result<Value, String> {
    if let Some(why) = syntax_error(bytes) {
        return Err(why);
    }
    let token: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let kind = |value: &Value| match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if !(token.is_object() || token.is_null()) {
        return Err(format!("json: cannot unmarshal {} into Go value of type storage.continueToken", kind(&token)));
    }
    for (key, wanted) in [("v", "string"), ("rv", "int64"), ("start", "string")] {
        let given = token.get(key).unwrap_or(&Value::Null);
        let fits = if wanted == "string" { given.is_string() } else { given.is_i64() };
        if !fits && !given.is_null() {
            let text = format!("into Go struct field continueToken.{key} of type {wanted}");
            let number = if given.is_number() && wanted == "int64" { format!(" {given}") } else { String::new() };
            return Err(format!("json: cannot unmarshal {}{number} {text}", kind(given)));
        }
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_tells_what_was_put_into_it() {
        for revision in [Some(17), None] {
            assert_eq!(read(&write(revision, "default/a")), Ok((revision, "default/a".to_owned())));
        }
    }

    #[test]
    fn a_token_that_is_none_is_refused_with_the_reason() {
        let check = |token: &str, why: &str| {
            let expected = format!("invalid continue token: continue key is not valid: {why}");
            assert_eq!(read(token).map_err(|failure| failure.message), Err(expected), "{token}");
        };
        check("abc", "invalid character 'i' looking for beginning of value");
        check("aGVsbG8", "invalid character 'h' looking for beginning of value");
        check("%%%", "illegal base64 data at input byte 0");
        check("abcde", "illegal base64 data at input byte 4");
        check("ab==", "illegal base64 data at input byte 2");
        let plain = |text: &str, why: &str| check(&URL_SAFE_NO_PAD.encode(text), why);
        plain("", "unexpected end of JSON input");
        plain("{", "unexpected end of JSON input");
        plain("[]", "json: cannot unmarshal array into Go value of type storage.continueToken");
        plain(r#"{"v":5}"#, "json: cannot unmarshal number into Go struct field continueToken.v of type string");
        plain(r#"{"rv":1.5}"#, "json: cannot unmarshal number 1.5 into Go struct field continueToken.rv of type int64");
        plain(r#"{"v":"x","rv":1,"start":"a"}"#, "server does not recognize this encoded version x");
        plain("{}", "server does not recognize this encoded version ");
        let version = "(version meta.k8s.io/v1)";
        plain(r#"{"v":"meta.k8s.io/v1"}"#, &format!("incorrect encoded start resourceVersion {version}"));
        plain(r#"{"v":"meta.k8s.io/v1","rv":1}"#, &format!("encoded start key empty {version}"));
        plain(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../a"}"#, "../a");
        plain(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"a//b"}"#, "a//b");
    }
}
