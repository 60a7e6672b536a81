//! A watch in protobuf as it arrives: chunks of bytes, split into frames, each of them an event.

use bytes::{Buf, BytesMut};
use tally_api::protobuf;
use tally_runtime::driver::api::StreamEvent;

use crate::content;
use crate::lines::{LONGEST_EVENT, event_of};

/// A frame begins with its length in four bytes, the most significant first.
const LENGTH: usize = 4;

const TOO_LONG: &str = "an event of the stream is too long";

#[derive(Default)]
pub struct Frames {
    buffer: BytesMut,
    /// The first event has been received completely.
    begun: bool,
}

impl Frames {
    pub fn push(&mut self, piece: &[u8]) -> Result<(), String> {
        self.buffer.extend_from_slice(piece);
        // Checked before the frame has come: of a stream that is none, nothing is kept.
        match self.length() {
            Some(length) if length > LONGEST_EVENT => Err(TOO_LONG.to_owned()),
            _ => Ok(()),
        }
    }

    /// Nothing has been received but a part of the first frame.
    pub fn breaks_off_at_once(&self) -> bool {
        !self.begun && !self.buffer.is_empty()
    }

    /// Of the frame at the beginning.
    fn length(&self) -> Option<usize> {
        let length = self.buffer.first_chunk::<LENGTH>()?;
        usize::try_from(u32::from_be_bytes(*length)).ok()
    }

    /// The next event, if it has been received completely. The error says why a frame is no event; it is the last that is
    /// returned, because where the next frame begins is not known.
    pub fn next(&mut self) -> Option<Result<StreamEvent, String>> {
        let length = self.length()?;
        if length > LONGEST_EVENT {
            self.buffer.clear();
            return Some(Err(TOO_LONG.to_owned()));
        }
        if self.buffer.len() - LENGTH < length {
            return None;
        }
        self.begun = true;
        self.buffer.advance(LENGTH);
        let frame = self.buffer.split_to(length);
        let event = event(&frame);
        if event.is_err() {
            self.buffer.clear();
        }
        Some(event)
    }
}

fn event(frame: &[u8]) -> Result<StreamEvent, String> {
    let no_event = |why: &dyn std::fmt::Display| format!("the stream has a frame that is no event: {why}");
    let event = protobuf::read_event(frame).map_err(|why| no_event(&why))?;
    let object = content::read_document(event.document).map_err(|error| no_event(&error))?;
    Ok(event_of(event.kind, object))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tally_runtime::controller::Object;
    use tally_runtime::driver::api::WatchError;
    use tally_value::{Value, json};

    use super::*;
    use crate::lines::Lines;

    fn frame(kind: &str, object: &Value) -> Vec<u8> {
        let mut frame = Vec::new();
        protobuf::event(kind, &protobuf::document(object).unwrap(), &mut frame);
        frame
    }

    fn pod(name: &str, annotations: Value) -> Value {
        let metadata = json!({"name": name, "resourceVersion": "9", "annotations": annotations});
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"containers": [{"name": "c", "resources": {}}]}, "status": {},
        })
    }

    fn status(code: u16, reason: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "message": "m",
            "reason": reason, "code": code,
        })
    }

    fn short(heard: &Result<StreamEvent, String>) -> String {
        let name = |object: &Object| object.parse()["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match heard {
            Ok(StreamEvent::Object(object)) => format!("object {}", name(object)),
            Ok(StreamEvent::Gone(object)) => format!("gone {}", name(object)),
            Ok(StreamEvent::Reached { at, complete }) => format!("reached {at} {complete}"),
            Ok(StreamEvent::Failed(WatchError::TooOld)) => "too old".to_owned(),
            Ok(StreamEvent::Failed(WatchError::Refused(refusal))) => format!("refused {}", refusal.code),
            Ok(StreamEvent::Failed(WatchError::Broken(why))) => format!("broken: {why}"),
            Err(why) => format!("unreadable: {why}"),
        }
    }

    fn all(pieces: &[&[u8]]) -> Vec<String> {
        let (mut frames, mut heard) = (Frames::default(), Vec::new());
        for piece in pieces {
            if frames.push(piece).is_err() {
                heard.push("too long".to_owned());
                return heard;
            }
            while let Some(event) = frames.next() {
                heard.push(short(&event));
                if event.is_err() {
                    assert!(frames.next().is_none(), "nothing follows it");
                    return heard;
                }
            }
        }
        heard
    }

    #[test]
    fn events_mean_what_they_mean_as_lines() {
        let end = json!({"k8s.io/initial-events-end": "true"});
        for (kind, object, expected) in [
            ("ADDED", pod("p", json!({})), "object p"),
            ("MODIFIED", pod("p", json!({})), "object p"),
            ("DELETED", pod("p", json!({})), "gone p"),
            ("BOOKMARK", pod("", json!({})), "reached 9 false"),
            ("BOOKMARK", pod("", end), "reached 9 true"),
            (
                "BOOKMARK",
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}}),
                "broken: the stream has a bookmark without a revision",
            ),
            ("ERROR", status(410, "Expired"), "too old"),
            ("ERROR", status(500, "InternalError"), "refused 500"),
            ("SHOUTED", pod("p", json!({})), r#"broken: the stream has an event of the unknown type "SHOUTED""#),
        ] {
            assert_eq!(all(&[&frame(kind, &object)]), [expected], "{kind} {object}");
            let mut lines = Lines::default();
            lines.push(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").as_bytes()).unwrap();
            assert_eq!(short(&Ok(lines.next().unwrap())), expected, "{kind} {object}");
        }
    }

    #[test]
    fn it_does_not_matter_how_the_bytes_are_cut() {
        let text = [frame("ADDED", &pod("a", json!({}))), frame("DELETED", &pod("b", json!({})))].concat();
        for cut in 0..text.len() {
            assert_eq!(all(&[&text[..cut], &text[cut..]]), ["object a", "gone b"], "cut at {cut}");
            // What breaks off is no event, and no error either: the stream has ended, as streams do.
            assert_eq!(all(&[&text[..cut]]).len(), usize::from(cut >= frame("ADDED", &pod("a", json!({}))).len()));
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(all(&bytes), ["object a", "gone b"]);
    }

    #[test]
    fn a_frame_that_is_too_long_is_not_collected() {
        let length = |length: usize| u32::try_from(length).unwrap().to_be_bytes();
        let mut frames = Frames::default();
        frames.push(&length(LONGEST_EVENT)).unwrap();
        frames.push(&vec![0; LONGEST_EVENT - 1]).unwrap();
        assert!(frames.next().is_none());
        frames.push(&[0]).unwrap();
        assert!(frames.next().is_some(), "it is read, and is no event");
        let broken = Frames::default().push(&length(LONGEST_EVENT + 1));
        assert!(matches!(broken, Err(why) if why.contains("too long")));
        assert_eq!(all(&[b"<html>"]), ["too long"]);
        // The second frame of a piece.
        let two = [&frame("ADDED", &pod("a", json!({})))[..], &length(LONGEST_EVENT + 1)].concat();
        assert_eq!(all(&[&two]), ["object a", "unreadable: an event of the stream is too long"]);
    }

    #[test]
    fn what_is_no_event_is_reported() {
        let framed = |bytes: &[u8]| [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat();
        let mut unknown = Vec::new();
        let document = protobuf::object(protobuf::structure("v1", "Pod").unwrap(), "v1", "Frob", &json!({}));
        protobuf::event("ADDED", &document, &mut unknown);
        let mut cut = Vec::new();
        let whole = protobuf::document(&pod("p", json!({}))).unwrap();
        protobuf::event("ADDED", &whole[..whole.len() / 2], &mut cut);
        for (bytes, hint) in [
            (framed(b""), "empty data"),
            (framed(b"{\"type\":\"ADDED\"}"), "no event"),
            (framed(&[0xff; 9]), "breaks off"),
            (unknown, "unknown kind Frob of v1"),
            (cut, "breaks off"),
        ] {
            let heard = all(&[&bytes]);
            assert!(heard.len() == 1 && heard[0].starts_with("unreadable") && heard[0].contains(hint), "{heard:?}");
        }
    }

    proptest! {
        /// Neither garbage nor a damaged stream makes it panic, or bring more than it was given.
        #[test]
        fn no_bytes_make_it_panic(
            at in 0usize..400, change in any::<u8>(), garbage in proptest::collection::vec(any::<u8>(), 0..200), size in 1usize..50,
        ) {
            let mut text = [frame("ADDED", &pod("a", json!({}))), frame("ERROR", &status(410, "Expired"))].concat();
            let at = at % text.len();
            text[at] ^= change;
            for bytes in [&text, &garbage] {
                let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
                prop_assert!(all(&pieces).len() <= bytes.len() / LENGTH + 1);
            }
        }
    }
}
