//! The token that leads from one page of a list to the next: which revision the pages show, and after which key the
//! next one begins. In the reference's form, so that its errors are the same.

use base64::Engine;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use tally_api::failure::Failure;

const VERSION: &str = "meta.k8s.io/v1";

#[derive(Serialize, Deserialize)]
struct Token {
    #[serde(default)]
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
}

/// `after`: the last key of the page, without the prefix of the list.
pub fn write(revision: u64, after: &str) -> String {
    let token = Token { v: VERSION.to_owned(), rv: revision as i64, start: format!("{after}\u{0}") };
    URL_SAFE_NO_PAD.encode(serde_json::to_string(&token).unwrap_or_default())
}

/// The revision, and the key (without the list's prefix) after which the page begins.
pub fn read(token: &str) -> Result<(u64, String), Failure> {
    let refuse =
        |why: String| Failure::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let bytes = URL_SAFE_NO_PAD
        .decode(token)
        .or_else(|_| URL_SAFE.decode(token))
        .map_err(|_| refuse("illegal base64 data".to_owned()))?;
    let token: Token = serde_json::from_slice(&bytes).map_err(|error| refuse(complaint(&bytes, &error)))?;
    if token.v != VERSION {
        return Err(refuse(format!("server does not recognize this encoded version {}", token.v)));
    }
    let revision = u64::try_from(token.rv).ok().filter(|revision| *revision > 0);
    let revision = revision
        .ok_or_else(|| refuse("incorrect encoded start resourceVersion (version meta.k8s.io/v1)".to_owned()))?;
    let start = token.start.trim_end_matches('\u{0}');
    if start.is_empty() {
        return Err(refuse("empty start key (version meta.k8s.io/v1)".to_owned()));
    }
    Ok((revision, start.to_owned()))
}

/// What is wrong with text that is not JSON, in the words clients know.
fn complaint(bytes: &[u8], error: &serde_json::Error) -> String {
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => "unexpected end of JSON input".to_owned(),
        Some(first) if !b"{[\"-0123456789tfn".contains(first) => {
            format!("invalid character '{}' looking for beginning of value", char::from(*first))
        }
        Some(_) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_tells_what_was_put_into_it() {
        let token = write(17, "default/a");
        assert_eq!(read(&token), Ok((17, "default/a".to_owned())));
    }

    #[test]
    fn a_token_that_is_none_is_refused_with_the_reason() {
        let told = |token: &str| read(token).map_err(|failure| failure.message);
        let not_valid = "invalid continue token: continue key is not valid: ";
        let value = "looking for beginning of value";
        assert_eq!(told("abc"), Err(format!("{not_valid}invalid character 'i' {value}")));
        assert_eq!(told("aGVsbG8"), Err(format!("{not_valid}invalid character 'h' {value}")));
        let version = "server does not recognize this encoded version x";
        assert_eq!(told("eyJ2IjoieCIsInJ2IjoxLCJzdGFydCI6ImEifQ"), Err(format!("{not_valid}{version}")));
        assert_eq!(told("%%%"), Err(format!("{not_valid}illegal base64 data")));
    }
}
