//! Properties of what the server reads first, which must hold for all input bytes: paths, queries, headers, bodies in
//! binary form, and the frames of port-forward. Shared by fuzz targets and by the ordinary tests of the server, which
//! both have these modules of the server in their roots.

use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use tally_api::decode::decode_as;
use tally_api::options::{
    DeleteOptions, FieldValidation, Format, ListOptions, Query, ReadAt, WatchOptions, Write, WriteOptions,
};
use tally_api::protobuf;
use tally_api::schema::schema;

use crate::http::negotiate::{self, View};
use crate::http::route::{Route, Verb, is_session};
use crate::sessions::spdy::{ClientFrame, SpdyDecoder};

const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Input: a path with its query.
pub fn address(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let route = Route::parse(path);
    let open = path.strip_prefix('/').unwrap_or(path).split('/').next().unwrap_or_default();
    match &route {
        Route::Health { .. } => assert!(matches!(open, "healthz" | "livez" | "readyz")),
        Route::Version => assert_eq!(open, "version"),
        Route::Objects(place) => {
            assert!(matches!(open, "api" | "apis"));
            assert!(place.resource.namespaced || place.namespace.is_empty());
            assert!(place.subresource.is_none() || !place.name.is_empty());
            for (method, watch) in METHODS.iter().flat_map(|method| [(method, false), (method, true)]) {
                let verb = place.verb(method, watch);
                let reads = matches!(verb, Some(Verb::Get | Verb::List | Verb::Watch));
                // The upgrade to a stream to a Pod is a GET by which commands are run.
                let upgrades = place.subresource.is_some_and(|subresource| is_session(subresource.name));
                let may_read = *method == "GET" && !upgrades;
                assert!(verb.is_none() || reads == may_read, "only GET reads, and it does nothing else");
                let named = matches!(verb, Some(Verb::List | Verb::DeleteCollection));
                assert!(!named || place.name.is_empty(), "a collection has no name");
            }
        }
        _ => {}
    }
    let query = Query::parse(query);
    let _ = (ReadAt::of_get(&query).is_ok(), ListOptions::parse(&query).is_ok());
    let _ = (WatchOptions::parse(&query, "batch", "jobs").is_ok(), WriteOptions::parse(&query, Write::Create).is_ok());
    let _ = DeleteOptions::of_query(&query).is_ok();
}

/// Input: an Accept header, a Content-Type, a user agent and a query, one a line.
pub fn headers(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let mut headers = HeaderMap::new();
    let mut insert = |name: HeaderName| {
        if let Some(value) = lines.next().and_then(|line| HeaderValue::from_bytes(line).ok()) {
            headers.insert(name, value);
        }
    };
    [ACCEPT, CONTENT_TYPE, USER_AGENT].into_iter().for_each(&mut insert);
    let query = lines.next().and_then(|line| std::str::from_utf8(line).ok()).unwrap_or_default();
    let query = Query::parse(query);
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    for binary in [true, false] {
        match negotiate::output(&headers, &query, binary) {
            Ok(chosen) => {
                let named = accept.contains(chosen.media_type());
                assert!(named || accept.trim().is_empty() || accept.contains("/*"), "{accept}: {chosen:?}");
                assert!(binary || chosen.format != Format::Protobuf);
                assert!(
                    chosen.format != Format::Protobuf || !chosen.pretty && !matches!(chosen.view, View::Table { .. })
                );
            }
            Err(failure) => assert_eq!(failure.code, 406),
        }
    }
    if let Ok((chosen, _)) = negotiate::discovery(&headers, &query) {
        assert!(chosen.format != Format::Protobuf && chosen.view == View::Plain);
    }
    let failed = negotiate::of_failure(&headers);
    assert!(failed.view == View::Plain && failed.format != Format::Yaml);
    let _ = negotiate::check_accept(&headers, negotiate::OBJECTS, true);
    let (body, patch) = (negotiate::input(&headers), negotiate::patch(&headers));
    assert!(body.is_err() || patch.is_err(), "a patch is no object");
    assert!(body.err().into_iter().chain(patch.err()).all(|failure| failure.code == 415));
}

/// Input: the size of the pieces in which the bytes of a client of port-forward arrive, and these bytes.
pub fn spdy(data: &[u8]) {
    let Some((size, bytes)) = data.split_first() else { return };
    let whole = read_frames(bytes, bytes.len().max(1));
    let pieces = read_frames(bytes, usize::from(*size).max(1));
    assert_eq!(pieces, whole, "it makes no difference how the bytes are cut");
}

/// What the frames say, with the content of a stream joined, and whether they ended in an error.
fn read_frames(bytes: &[u8], size: usize) -> (Vec<ClientFrame>, bool) {
    let mut decoder = SpdyDecoder::default();
    let mut frames: Vec<ClientFrame> = Vec::new();
    for piece in bytes.chunks(size) {
        decoder.push(piece);
        loop {
            match decoder.next() {
                Ok(Some(ClientFrame::Data { stream, content, is_last })) => match frames.last_mut() {
                    Some(ClientFrame::Data { stream: same, content: before, is_last: false }) if *same == stream => {
                        let joined = [&before[..], &content[..]].concat();
                        frames.pop();
                        frames.push(ClientFrame::Data { stream, content: joined.into(), is_last });
                    }
                    _ => frames.push(ClientFrame::Data { stream, content, is_last }),
                },
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(_) => return (frames, true),
            }
        }
    }
    (frames, false)
}

/// Input: the number of a kind, and a message.
pub fn binary(data: &[u8]) {
    let Some((number, message)) = data.split_first() else { return };
    let kinds = schema().kinds().count();
    let Some(wanted) = schema().kinds().nth(usize::from(*number) % kinds) else { return };
    // The envelope is added here: it would only make it harder for the fuzzer to find new messages.
    let mut body = b"k8s\0\x12".to_vec();
    let mut length = message.len();
    while length > 0x7f {
        body.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    body.push(length as u8);
    body.extend_from_slice(message);
    check_message(&body, wanted);
    check_message(data, wanted);
    // What clients read: lists, and the frames of watches.
    let _ = (protobuf::read_list(message).is_ok(), protobuf::read_event(message).is_ok());
}

fn check_message(body: &[u8], wanted: (&str, &str, &str)) {
    let (group, version, kind) = wanted;
    let decode = |body: &[u8]| decode_as(group, version, kind, body, Format::Protobuf, FieldValidation::Strict);
    match decode(body) {
        Ok(decoded) => {
            let Some(written) = protobuf::document(&decoded.object) else {
                assert_eq!(group, "metrics.k8s.io", "{kind} has no numbers");
                return;
            };
            let again = decode(&written).expect("what was written can be read").object;
            assert_eq!(again, decoded.object, "it is written and read as itself");
            let envelope = protobuf::envelope(&written).expect("it was read");
            let structure = protobuf::structure(envelope.api_version, envelope.kind).expect("it was written");
            let mut shown = protobuf::read_shown(structure, envelope.raw).expect("it was read");
            shown.insert("apiVersion", envelope.api_version.into());
            shown.insert("kind", envelope.kind.into());
            assert_eq!(tally_value::Value::Object(shown), again, "a client sees the same");
        }
        Err(failure) => {
            assert!(failure.code == 400 && !failure.message.contains("strict decoding"), "{}", failure.message);
        }
    }
}
