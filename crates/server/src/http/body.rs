//! Response bodies: one piece, a list that is assembled as it is sent, or a stream of events.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::Stream;
use hyper::body::{Frame, SizeHint};
use tally_registry::Object;

use crate::http::flow::FlowShare;

/// How much of a list is assembled at a time: enough to fill TLS records, and little enough that ten thousand Pods are
/// not in memory twice.
pub const PIECE: usize = 64 * 1024;

pub type Events = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

pub enum Body {
    Whole(Bytes),
    List(List),
    Events(Events),
}

impl Body {
    pub const EMPTY: Self = Self::Whole(Bytes::new());
}

/// `head`, the items with commas between them, `tail`.
pub struct List {
    head: Bytes,
    items: std::vec::IntoIter<Object>,
    first: bool,
    tail: &'static [u8],
    left: u64,
    _share: Option<FlowShare>,
}

impl List {
    pub fn new(head: Bytes, items: Vec<Object>, tail: &'static [u8]) -> Self {
        let commas = items.len().saturating_sub(1);
        let length = head.len() + items.iter().map(|item| item.bytes.len()).sum::<usize>() + commas + tail.len();
        Self { head, items: items.into_iter(), first: true, tail, left: length as u64, _share: None }
    }

    /// Holds a share until the list is sent.
    pub fn holding(self, share: Option<FlowShare>) -> Self {
        Self { _share: share, ..self }
    }

    fn piece(&mut self) -> Option<Bytes> {
        if self.left == 0 {
            return None;
        }
        let mut piece = BytesMut::with_capacity(PIECE.min(usize::try_from(self.left).unwrap_or(PIECE)));
        piece.extend_from_slice(&std::mem::take(&mut self.head));
        while piece.len() < PIECE {
            let Some(item) = self.items.next() else {
                piece.extend_from_slice(std::mem::take(&mut self.tail));
                break;
            };
            if !std::mem::take(&mut self.first) {
                piece.put_u8(b',');
            }
            piece.extend_from_slice(&item.bytes);
        }
        self.left = self.left.saturating_sub(piece.len() as u64);
        Some(piece.freeze())
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => None,
            Self::Whole(bytes) => Some(std::mem::take(bytes)),
            Self::List(list) => list.piece(),
            Self::Events(events) => match events.as_mut().poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(piece) => piece,
            },
        };
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::List(list) => list.left == 0,
            Self::Events(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::List(list) => SizeHint::with_exact(list.left),
            Self::Events(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_any_length_come_out_whole() {
        for (count, size) in [(0, 0), (1, 10), (3, PIECE - 1), (3, PIECE), (3, PIECE + 1), (10_000, 40)] {
            let item = Object::from(Bytes::from("x".repeat(size)));
            let mut list = List::new(Bytes::from_static(b"["), vec![item; count], b"]");
            let (promised, mut got, mut pieces) = (list.left, Vec::new(), 0);
            while let Some(piece) = list.piece() {
                got.extend_from_slice(&piece);
                pieces += 1;
            }
            let expected = format!("[{}]", vec!["x".repeat(size); count].join(","));
            assert!(got == expected.as_bytes(), "{count} items of {size} bytes");
            assert_eq!(promised, got.len() as u64);
            assert!(pieces <= got.len() / PIECE + 1, "{pieces} pieces for {} bytes", got.len());
        }
    }
}
