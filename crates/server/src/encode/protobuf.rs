//! Lists in protobuf.
//!
//! A list begins with its length, which is known only when every item has been encoded. A short list is encoded where the
//! request is served. A long one is encoded by the threads for long work ([`Renderers`]), as much at a time as another
//! list ([`super::list`]): first to count its bytes, and then to send them. What was encoded first is kept, up to a limit;
//! the rest is encoded a second time, so that the memory of the server does not depend on the length of the list.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use tally_api::protobuf;
use tally_api::schema::Struct;
use tally_api::table;
use tally_registry::Object;
use tally_value::Value;

use crate::encode::list::{ListSending, Renderers, SHORT_LIST};
use crate::http::body::{Body, PIECE};
use crate::http::flow::FlowShare;

/// The most that is encoded and kept before the length of the list is known.
const KEPT: usize = 8 * 1024 * 1024;

/// A list that is encoded piece by piece.
pub struct ProtobufList {
    pub api_version: String,
    pub kind: String,
    pub metadata: Value,
    /// The structure of an item.
    pub structure: &'static Struct,
    /// Items are objects of which only the metadata is shown.
    pub only_metadata: bool,
    pub items: Vec<Object>,
}

/// What has been done.
struct Progress {
    list: ProtobufList,
    /// The pieces that are encoded and not sent.
    kept: VecDeque<Bytes>,
    /// How many items are in `kept` or were sent.
    encoded: usize,
    /// The bytes of these items.
    length: usize,
    step: Step,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// From this item on, bytes are counted.
    Count(usize),
    Send,
    End,
}

impl ProtobufList {
    /// The body of the response.
    pub fn body(self, sending: ListSending) -> Body {
        let is_short = self.items.len() <= SHORT_LIST;
        let mut progress = Progress { list: self, kept: VecDeque::new(), encoded: 0, length: 0, step: Step::Count(0) };
        if is_short {
            let mut whole = Vec::new();
            while let Some(piece) = progress.piece() {
                whole.extend_from_slice(&piece);
            }
            return Body::Whole(whole.into());
        }
        let ListSending { renderers, share } = sending;
        let state: (Progress, Arc<Renderers>, Option<FlowShare>) = (progress, renderers, share);
        let pieces = stream::unfold(state, |(mut progress, renderers, share)| async move {
            loop {
                let (moved, piece) = renderers
                    .run(move || {
                        let piece = progress.work();
                        (progress, piece)
                    })
                    .await;
                progress = moved;
                match piece {
                    Some(piece) if piece.is_empty() => {}
                    piece => return piece.map(|piece| (piece, (progress, renderers, share))),
                }
            }
        });
        Body::Events(Box::pin(pieces))
    }

    fn encode(&self, object: &Object, out: &mut Vec<u8>) {
        let value = object.parse();
        if self.only_metadata {
            protobuf::list_item(self.structure, &table::partial_object_metadata(&value), out);
        } else {
            protobuf::list_item(self.structure, &value, out);
        }
    }

    /// Encodes from this item on, until there are the bytes of a piece. Returns the item after the last.
    fn encode_piece(&self, from: usize, out: &mut Vec<u8>) -> usize {
        let mut at = from;
        while let Some(object) = self.items.get(at).filter(|_| out.len() < PIECE) {
            self.encode(object, out);
            at += 1;
        }
        at
    }
}

impl Progress {
    /// The next piece. None at the end.
    fn piece(&mut self) -> Option<Bytes> {
        loop {
            let piece = self.work()?;
            if !piece.is_empty() {
                return Some(piece);
            }
        }
    }

    /// Works for about as long as one piece takes. The piece may be empty before the end.
    fn work(&mut self) -> Option<Bytes> {
        match self.step {
            Step::Count(at) if at < self.list.items.len() => {
                let mut piece = Vec::with_capacity(PIECE + PIECE / 4);
                let next = self.list.encode_piece(at, &mut piece);
                let keeps = self.encoded == at && self.length < KEPT;
                self.length += piece.len();
                if keeps {
                    self.encoded = next;
                    self.kept.push_back(piece.into());
                }
                self.step = Step::Count(next);
                Some(Bytes::new())
            }
            Step::Count(_) => {
                let list = &self.list;
                self.step = Step::Send;
                Some(protobuf::list_start(&list.api_version, &list.kind, &list.metadata, self.length).into())
            }
            Step::Send => match self.kept.pop_front() {
                Some(piece) => Some(piece),
                None if self.encoded < self.list.items.len() => {
                    let mut piece = Vec::with_capacity(PIECE + PIECE / 4);
                    self.encoded = self.list.encode_piece(self.encoded, &mut piece);
                    Some(piece.into())
                }
                None => {
                    self.step = Step::End;
                    Some(Bytes::from_static(protobuf::END))
                }
            },
            Step::End => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tally_value::json;

    use super::*;

    /// The messages of the items.
    fn items(list: &[u8]) -> Vec<Vec<u8>> {
        fn varint(bytes: &mut &[u8]) -> usize {
            let length = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
            let (digits, rest) = bytes.split_at(length);
            *bytes = rest;
            digits.iter().rev().fold(0, |number, digit| number << 7 | usize::from(digit & 0x7f))
        }
        let (mut rest, mut found) = (list, Vec::new());
        while !rest.is_empty() {
            let tag = varint(&mut rest);
            assert_eq!(tag & 7, 2);
            let (message, after) = {
                let length = varint(&mut rest);
                rest.split_at(length)
            };
            rest = after;
            if tag >> 3 == 2 {
                found.push(message.to_vec());
            }
        }
        found
    }

    #[test]
    fn a_list_in_pieces_has_the_length_that_it_says() {
        let pod = |number: usize, size: usize| {
            let object = json!({"metadata": {"name": format!("p-{number}"), "annotations": {"a": "x".repeat(size)}}});
            Bytes::from(object.to_string()).into()
        };
        let structure = protobuf::structure("v1", "Pod").unwrap();
        let metadata = json!({"resourceVersion": "7", "continue": "abc", "remainingItemCount": 3});
        // The last list is longer than what is kept.
        for (count, size) in [(0, 0), (1, 10), (3, PIECE), (200, 1_000), (500, 30_000)] {
            let objects: Vec<Object> = (0..count).map(|number| pod(number, size)).collect();
            let list = ProtobufList {
                api_version: "v1".into(),
                kind: "PodList".into(),
                metadata: metadata.clone(),
                structure,
                only_metadata: false,
                items: objects.clone(),
            };
            let mut progress = Progress { list, kept: VecDeque::new(), encoded: 0, length: 0, step: Step::Count(0) };
            let mut whole = Vec::new();
            while let Some(piece) = progress.piece() {
                assert!(piece.len() <= PIECE + 2 * size + 1_000, "a piece of {} bytes", piece.len());
                whole.extend_from_slice(&piece);
            }
            let envelope = protobuf::envelope(&whole).unwrap();
            assert_eq!((envelope.api_version, envelope.kind), ("v1", "PodList"));
            assert!(whole.ends_with(&[envelope.raw, protobuf::END].concat()), "{count} items of {size} bytes");
            let found = items(envelope.raw);
            assert_eq!(found.len(), count);
            for (message, object) in found.iter().zip(&objects) {
                let mut alone = Vec::new();
                protobuf::list_item(structure, &object.parse(), &mut alone);
                assert!(alone.ends_with(message));
            }
        }
    }
}
