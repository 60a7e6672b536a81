//! Properties of what the server reads first, which must hold for all input bytes: paths, queries, and bodies in binary
//! form. Shared by fuzz targets and by the ordinary tests of the server, which both have the module of routes in their
//! roots.

use tally_api::decode::decode_as;
use tally_api::options::{
    DeleteOptions, FieldValidation, Format, ListOptions, Query, ReadAt, WatchOptions, Write, WriteOptions,
};
use tally_api::protobuf;
use tally_api::schema::schema;

use crate::http::route::{Route, Verb};

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
                assert!(verb.is_none() || reads == (*method == "GET"), "only GET reads, and it does nothing else");
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
}

fn check_message(body: &[u8], wanted: (&str, &str, &str)) {
    let (group, version, kind) = wanted;
    let decode = |body: &[u8]| decode_as(group, version, kind, body, Format::Protobuf, FieldValidation::Strict);
    match decode(body) {
        Ok(decoded) => {
            let written = protobuf::document(&decoded.object).expect("an object of a kind with numbers");
            let again = decode(&written).expect("what was written can be read").object;
            assert_eq!(again, decoded.object, "it is written and read as itself");
        }
        Err(failure) => {
            assert!(failure.code == 400 && !failure.message.contains("strict decoding"), "{}", failure.message);
        }
    }
}
