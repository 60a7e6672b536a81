//! Documents that do not change while the process runs: compressed once, with a hash by which clients ask whether they
//! have them already.

use std::io::{Read, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, VARY};
use ring::digest::{SHA512, digest};
use tally_value::Value;

use crate::encode::{self, HttpResponse};
use crate::http::body::Body;

pub struct Cached {
    /// Of the document, in hexadecimal digits.
    pub hash: String,
    compressed: Bytes,
    /// The size of the document.
    size: usize,
}

impl Cached {
    pub fn new(document: &[u8]) -> Self {
        let hash = digest(&SHA512, document).as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        // Neither can fail: it is memory that is written to.
        let compressed = encoder.write_all(document).and_then(|()| encoder.finish()).unwrap_or_default();
        Self { hash, compressed: compressed.into(), size: document.len() }
    }

    pub fn json(document: &Value) -> Self {
        Self::new(document.to_string().as_bytes())
    }

    /// The document, or 304 if the client has it.
    pub fn answer(&self, headers: &HeaderMap, media_type: &'static str) -> HttpResponse {
        let tag = format!("\"{}\"", self.hash);
        let mut answer = if is_known(headers, &tag) {
            encode::answer(304, media_type, Body::EMPTY)
        } else if accepts_gzip(headers) {
            let mut answer = encode::answer(200, media_type, Body::Whole(self.compressed.clone()));
            answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            answer
        } else {
            encode::answer(200, media_type, Body::Whole(self.document().into()))
        };
        let headers = answer.headers_mut();
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            headers.insert(ETAG, tag);
        }
        headers.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
        answer
    }

    pub fn document(&self) -> Vec<u8> {
        let mut document = Vec::with_capacity(self.size);
        // What was compressed here can be read.
        let _ = GzDecoder::new(&self.compressed[..]).read_to_end(&mut document);
        document
    }

    #[cfg(test)]
    pub fn compressed_size(&self) -> usize {
        self.compressed.len()
    }
}

/// Whether the client already has the document with this tag.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let given = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    given.flat_map(|value| value.split(',')).map(str::trim).any(|one| one == "*" || one.trim_start_matches("W/") == tag)
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let given = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    given.flat_map(|value| value.split(',')).any(|one| {
        let (name, parameters) = one.split_once(';').unwrap_or((one, ""));
        let refused = parameters.trim().strip_prefix("q=").is_some_and(|quality| quality.parse() == Ok(0.0));
        matches!(name.trim(), "gzip" | "*") && !refused
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
        given.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_client_gets_what_it_can_read_and_does_not_have() {
        let text = "a".repeat(5000);
        let cached = Cached::new(text.as_bytes());
        assert!(cached.compressed.len() < 100 && cached.document() == text.as_bytes());
        let tag = format!("\"{}\"", cached.hash);
        for (given, code, encoding) in [
            (&[][..], 200, None),
            (&[("accept-encoding", "gzip")], 200, Some("gzip")),
            (&[("accept-encoding", "br, gzip;q=0.5")], 200, Some("gzip")),
            (&[("accept-encoding", "gzip;q=0, br")], 200, None),
            (&[("if-none-match", tag.as_str())], 304, None),
            (&[("if-none-match", "\"other\"")], 200, None),
        ] {
            let answer = cached.answer(&headers(given), "application/json");
            assert_eq!(answer.status().as_u16(), code, "{given:?}");
            assert_eq!(answer.headers().get(CONTENT_ENCODING).map(|value| value.to_str().unwrap()), encoding);
            assert_eq!(answer.headers()[ETAG], tag.as_str());
            let Body::Whole(body) = answer.body() else { panic!("a body") };
            assert_eq!(
                body.len(),
                match (code, encoding) {
                    (304, _) => 0,
                    (_, None) => 5000,
                    _ => cached.compressed.len(),
                }
            );
        }
    }
}
