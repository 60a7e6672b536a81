//! A watch as it arrives: chunks of bytes, split into lines, each of them an event.

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;
use tally_core::ids::Revision;
use tally_runtime::controller::Object;
use tally_runtime::driver::api::{StreamEvent, WatchError};

use crate::answer;

/// No object of a Kubernetes API is nearly this long: etcd accepts 1.5 MB. Without a limit, a stream that is not a
/// watch would be buffered forever.
pub const LONGEST_EVENT: usize = 32 << 20;

/// How servers begin their lines. An event in another form only costs parsing each of its bytes.
const CHANGED: [&[u8]; 2] = [br#"{"type":"ADDED","object":"#, br#"{"type":"MODIFIED","object":"#];
const DELETED: &[u8] = br#"{"type":"DELETED","object":"#;

const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

#[derive(Default)]
pub struct Lines {
    buffer: BytesMut,
    /// Up to here the buffer contains no end of a line.
    searched: usize,
}

impl Lines {
    pub fn push(&mut self, piece: &[u8]) -> Result<(), WatchError> {
        if self.buffer.len() + piece.len() > LONGEST_EVENT {
            return Err(WatchError::Broken("an event of the stream is too long".to_owned()));
        }
        self.buffer.extend_from_slice(piece);
        Ok(())
    }

    /// The next event, if it has been received completely.
    pub fn next(&mut self) -> Option<StreamEvent> {
        loop {
            let Some(at) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
                self.searched = self.buffer.len();
                return None;
            };
            let line = self.buffer.split_to(self.searched + at + 1).freeze();
            self.searched = 0;
            if let Some(heard) = event(&line) {
                return Some(heard);
            }
        }
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// None: an empty line.
fn event(line: &Bytes) -> Option<StreamEvent> {
    let text = line.trim_ascii();
    if text.is_empty() {
        return None;
    }
    if let [.., b'}'] = text {
        let object = |prefix: &[u8]| Some(line.slice_ref(text.strip_prefix(prefix)?.strip_suffix(b"}")?));
        if let Some(object) = CHANGED.into_iter().find_map(object) {
            return Some(StreamEvent::Object(object.into()));
        }
        if let Some(object) = object(DELETED) {
            return Some(StreamEvent::Gone(object.into()));
        }
    }
    let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(text) else {
        return Some(StreamEvent::Failed(WatchError::Broken("the stream has a line that is no event".to_owned())));
    };
    Some(event_of(envelope.r#type, line.slice_ref(envelope.object.get().as_bytes()).into()))
}

/// What an event means, in whatever form it came.
pub fn event_of(kind: &str, object: Object) -> StreamEvent {
    match kind {
        "ADDED" | "MODIFIED" => StreamEvent::Object(object),
        "DELETED" => StreamEvent::Gone(object),
        "BOOKMARK" => bookmark(&object),
        "ERROR" => StreamEvent::Failed(answer::trouble(None, &object)),
        // Skipping it would lose an event.
        other => {
            StreamEvent::Failed(WatchError::Broken(format!("the stream has an event of the unknown type {other:?}")))
        }
    }
}

fn bookmark(object: &Object) -> StreamEvent {
    #[derive(Deserialize)]
    struct Shown {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        resource_version: String,
        annotations: Option<std::collections::BTreeMap<String, String>>,
    }
    let read = object.read::<Shown>().ok();
    let read =
        read.and_then(|Shown { metadata }| Some((metadata.resource_version.parse().ok()?, metadata.annotations)));
    let Some((at, annotations)) = read else {
        return StreamEvent::Failed(WatchError::Broken("the stream has a bookmark without a revision".to_owned()));
    };
    let complete = annotations.is_some_and(|all| all.get(INITIAL_EVENTS_END).is_some_and(|value| value == "true"));
    StreamEvent::Reached { at: Revision(at), complete }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(heard: &StreamEvent) -> String {
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        match heard {
            StreamEvent::Object(object) => format!("object {}", text(object)),
            StreamEvent::Gone(object) => format!("gone {}", text(object)),
            StreamEvent::Reached { at, complete } => format!("reached {at} {complete}"),
            StreamEvent::Failed(WatchError::TooOld) => "too old".to_owned(),
            StreamEvent::Failed(WatchError::Refused(refusal)) => format!("refused {}", refusal.code),
            StreamEvent::Failed(WatchError::Broken(why)) => format!("broken: {why}"),
        }
    }

    fn all(pieces: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut heard) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.push(piece).unwrap();
            while let Some(event) = lines.next() {
                heard.push(short(&event));
            }
        }
        heard
    }

    #[test]
    fn events_are_read_in_whatever_form_they_come() {
        for (line, expected) in [
            (r#"{"type":"ADDED","object":{"a":1}}"#, r#"object {"a":1}"#),
            (r#"{"type":"MODIFIED","object":{"a":"}\n"}}"#, r#"object {"a":"}\n"}"#),
            (r#"{"type":"DELETED","object":{"a":1}}"#, r#"gone {"a":1}"#),
            (r#" { "object" : {"a": 1} , "type":"ADDED" } "#, r#"object {"a": 1}"#),
            (r#"{"type":"DELETED", "object":{"a":1}}"#, r#"gone {"a":1}"#),
            (r#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"9"}}}"#, "reached 9 false"),
            (
                r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
                "reached 9 true",
            ),
            (
                r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410,"reason":"Expired"}}"#,
                "too old",
            ),
            (r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":500}}"#, "refused 500"),
            (r#"{"type":"SHOUTED","object":{}}"#, r#"broken: the stream has an event of the unknown type "SHOUTED""#),
            ("<html>", "broken: the stream has a line that is no event"),
            (r#"{"type":"BOOKMARK","object":{}}"#, "broken: the stream has a bookmark without a revision"),
        ] {
            assert_eq!(all(&[line.as_bytes(), b"\n"]), [expected], "{line}");
            assert_eq!(all(&[line.as_bytes(), b"\r\n\n\n"]), [expected], "{line}");
        }
    }

    #[test]
    fn it_does_not_matter_how_the_bytes_are_cut() {
        let text =
            "{\"type\":\"ADDED\",\"object\":{\"a\":1}}\n{\"type\":\"DELETED\",\"object\":{\"b\":2}}\n{\"ty".as_bytes();
        let expected = [r#"object {"a":1}"#, r#"gone {"b":2}"#];
        for cut in 0..text.len() {
            assert_eq!(all(&[&text[..cut], &text[cut..]]), expected, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(all(&bytes), expected);
    }

    #[test]
    fn a_line_without_end_is_not_collected_for_ever() {
        let piece = vec![b'x'; LONGEST_EVENT / 4];
        let mut lines = Lines::default();
        for _ in 0..4 {
            lines.push(&piece).unwrap();
            assert!(lines.next().is_none());
        }
        assert!(matches!(lines.push(b"x"), Err(WatchError::Broken(_))));
    }
}
