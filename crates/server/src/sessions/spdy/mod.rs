//! The part of SPDY/3.1 that port-forward needs, on the side of a server: frames in, frames out.
//!
//! Only the frames that open, close and fill streams have a meaning here; others are read and ignored. There is no flow control:
//! clients of port-forward have none. Everything is bounded: a control frame has a limit, and the content of a data frame is
//! passed on as it arrives.

mod headers;

use bytes::{Buf, Bytes, BytesMut};
pub use headers::HeaderList;
use headers::{HeaderInflater, stored_headers};

/// A control frame that is longer ends the connection. Those of clients have a few dozen bytes.
const LONGEST_CONTROL: usize = 16 * 1024;
/// The most of a data frame that is passed on at once.
const PIECE: usize = 64 * 1024;
const HEAD: usize = 8;

const VERSION: u16 = 3;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
const FIN: u8 = 1;

/// Why a stream is refused, in a RST_STREAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    Protocol = 1,
    Refused = 3,
}

/// A frame of the client.
#[derive(Debug, PartialEq, Eq)]
pub enum ClientFrame {
    Open {
        stream: u32,
        headers: HeaderList,
        is_last: bool,
    },
    /// A part of a data frame. `is_last`: the client sends no more on this stream.
    Data {
        stream: u32,
        content: Bytes,
        is_last: bool,
    },
    Reset {
        stream: u32,
    },
    Ping {
        id: u32,
    },
    GoAway,
}

/// What arrives is not SPDY, or more than is accepted. The connection cannot be used any more.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpdyError {
    #[error("a frame of version {0}")]
    Version(u16),
    #[error("a control frame of {0} bytes")]
    TooLong(usize),
    #[error("a frame of type {0} that is too short")]
    TooShort(u16),
    #[error("headers that cannot be decompressed")]
    Headers,
}

/// Cuts bytes into frames.
pub struct SpdyDecoder {
    buffer: BytesMut,
    /// The data frame that is being passed on: its stream, what is left of it, and whether it is the last one.
    data: Option<(u32, usize, bool)>,
    inflater: HeaderInflater,
}

impl Default for SpdyDecoder {
    fn default() -> Self {
        Self { buffer: BytesMut::new(), data: None, inflater: HeaderInflater::new() }
    }
}

impl SpdyDecoder {
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame that has arrived. To be called until there is none, after each push: then what is kept is less than
    /// one control frame.
    pub fn next(&mut self) -> Result<Option<ClientFrame>, SpdyError> {
        loop {
            if let Some((stream, left, is_last)) = self.data.take() {
                let length = left.min(self.buffer.len()).min(PIECE);
                if length < left {
                    self.data = Some((stream, left - length, is_last));
                    if length == 0 {
                        return Ok(None);
                    }
                }
                let content = self.buffer.split_to(length).freeze();
                return Ok(Some(ClientFrame::Data { stream, content, is_last: is_last && length == left }));
            }
            let Some(head) = self.buffer.first_chunk::<HEAD>() else { return Ok(None) };
            let [a, b, c, d, flags, lengths @ ..] = *head;
            let length = lengths.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            if a & 0x80 == 0 {
                self.buffer.advance(HEAD);
                self.data = Some((u32::from_be_bytes([a, b, c, d]), length, flags & FIN != 0));
                continue;
            }
            let (version, kind) = (u16::from_be_bytes([a & 0x7f, b]), u16::from_be_bytes([c, d]));
            if version != VERSION {
                return Err(SpdyError::Version(version));
            }
            if length > LONGEST_CONTROL {
                return Err(SpdyError::TooLong(length));
            }
            if self.buffer.len() < HEAD + length {
                return Ok(None);
            }
            self.buffer.advance(HEAD);
            let content = self.buffer.split_to(length);
            if let Some(frame) = self.control(kind, flags, &content)? {
                return Ok(Some(frame));
            }
        }
    }

    /// None: it has no meaning here.
    fn control(&mut self, kind: u16, flags: u8, content: &[u8]) -> Result<Option<ClientFrame>, SpdyError> {
        let number = || {
            let bytes = content.first_chunk::<4>().ok_or(SpdyError::TooShort(kind))?;
            Ok(u32::from_be_bytes(*bytes))
        };
        let stream = || number().map(|number| number & 0x7fff_ffff);
        let rest = |from: usize| content.get(from..).ok_or(SpdyError::TooShort(kind));
        Ok(match kind {
            SYN_STREAM => {
                let headers = self.inflater.read(rest(10)?).ok_or(SpdyError::Headers)?;
                Some(ClientFrame::Open { stream: stream()?, headers, is_last: flags & FIN != 0 })
            }
            // All headers are one compressed text: each part must be read.
            SYN_REPLY | HEADERS => {
                self.inflater.read(rest(4)?).ok_or(SpdyError::Headers)?;
                None
            }
            RST_STREAM => Some(ClientFrame::Reset { stream: stream()? }),
            PING => Some(ClientFrame::Ping { id: number()? }),
            GOAWAY => Some(ClientFrame::GoAway),
            _ => None,
        })
    }
}

/// Makes the frames of the server.
#[derive(Default)]
pub struct SpdyEncoder {
    has_begun: bool,
}

impl SpdyEncoder {
    /// The stream is accepted.
    pub fn reply(&mut self, stream: u32) -> Vec<u8> {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let mut content = stream.to_be_bytes().to_vec();
        content.extend(stored_headers(is_first));
        control(SYN_REPLY, &content)
    }

    pub fn reset(stream: u32, why: Reset) -> Vec<u8> {
        control(RST_STREAM, &[stream.to_be_bytes(), (why as u32).to_be_bytes()].concat())
    }

    pub fn ping(id: u32) -> Vec<u8> {
        control(PING, &id.to_be_bytes())
    }

    /// At most 16 MiB. `is_last`: nothing more is sent on this stream.
    pub fn data(stream: u32, content: &[u8], is_last: bool) -> Vec<u8> {
        let mut frame = Vec::with_capacity(HEAD + content.len());
        frame.extend_from_slice(&(stream & 0x7fff_ffff).to_be_bytes());
        put_length(&mut frame, if is_last { FIN } else { 0 }, content.len());
        frame.extend_from_slice(content);
        frame
    }
}

fn control(kind: u16, content: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD + content.len());
    frame.extend_from_slice(&(VERSION | 0x8000).to_be_bytes());
    frame.extend_from_slice(&kind.to_be_bytes());
    put_length(&mut frame, 0, content.len());
    frame.extend_from_slice(content);
    frame
}

fn put_length(frame: &mut Vec<u8>, flags: u8, length: usize) {
    let [.., a, b, c] = length.to_be_bytes();
    frame.extend_from_slice(&[flags, a, b, c]);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// What kubectl sent at its first two streams and their first content.
    pub const RECORDED: &[u8] = include_bytes!("recorded.bin");

    fn frames(decoder: &mut SpdyDecoder, bytes: &[u8]) -> Result<Vec<ClientFrame>, SpdyError> {
        decoder.push(bytes);
        let mut frames = Vec::new();
        while let Some(frame) = decoder.next()? {
            frames.push(frame);
        }
        Ok(frames)
    }

    fn content(frames: &[ClientFrame], of: u32) -> (Vec<u8>, bool) {
        let mut all = (Vec::new(), false);
        for frame in frames {
            if let ClientFrame::Data { stream, content, is_last } = frame
                && *stream == of
            {
                all.0.extend_from_slice(content);
                all.1 |= is_last;
            }
        }
        all
    }

    #[test]
    fn frames_are_the_same_however_they_are_cut() {
        let bytes = [
            SpdyEncoder::data(1, b"hello", false),
            SpdyEncoder::ping(7),
            control(4, &[0; 12]),
            SpdyEncoder::data(3, b"", true),
            SpdyEncoder::data(1, &[9; 100_000], true),
            SpdyEncoder::reset(3, Reset::Refused),
            control(GOAWAY, &[0; 8]),
        ]
        .concat();
        for size in [1, 2, 3, 7, 64, 1000, bytes.len()] {
            let mut decoder = SpdyDecoder::default();
            let mut seen = Vec::new();
            for piece in bytes.chunks(size) {
                seen.extend(frames(&mut decoder, piece).unwrap());
                assert!(decoder.buffer.len() < HEAD + LONGEST_CONTROL);
            }
            let mut expected = b"hello".to_vec();
            expected.extend([9; 100_000]);
            assert_eq!(content(&seen, 1), (expected, true), "pieces of {size}");
            assert_eq!(content(&seen, 3), (Vec::new(), true));
            assert!(seen.contains(&ClientFrame::Ping { id: 7 }));
            assert!(seen.contains(&ClientFrame::Reset { stream: 3 }));
            assert_eq!(seen.last(), Some(&ClientFrame::GoAway));
        }
    }

    #[test]
    fn what_is_too_long_or_of_another_protocol_is_refused() {
        let mut long = control(4, &[]);
        long[5..8].copy_from_slice(&[0xff; 3]);
        assert_eq!(frames(&mut SpdyDecoder::default(), &long), Err(SpdyError::TooLong(0xff_ffff)));
        assert!(matches!(
            frames(&mut SpdyDecoder::default(), &[0x80, 2, 0, 1, 0, 0, 0, 0]),
            Err(SpdyError::Version(2))
        ));
        for kind in [SYN_STREAM, SYN_REPLY, RST_STREAM, PING, HEADERS] {
            let refused = frames(&mut SpdyDecoder::default(), &control(kind, &[0; 3]));
            assert_eq!(refused, Err(SpdyError::TooShort(kind)));
        }
    }

    /// Any bytes, and frames of a client with bytes changed: no panic, and no more memory than a frame needs.
    #[test]
    fn any_bytes_are_frames_or_refused() {
        for round in 0..3_000_u32 {
            let bytes = match round % 3 {
                0 => std::iter::repeat_with(|| fastrand::u8(..)).take(fastrand::usize(..200)).collect(),
                1 => {
                    let kind = fastrand::u16(..12);
                    let length = fastrand::usize(..80);
                    control(kind, &std::iter::repeat_with(|| fastrand::u8(..)).take(length).collect::<Vec<_>>())
                }
                _ => {
                    let mut bytes = RECORDED.to_vec();
                    for _ in 0..=fastrand::usize(..4) {
                        let at = fastrand::usize(..bytes.len());
                        bytes[at] = fastrand::u8(..);
                    }
                    bytes
                }
            };
            let mut decoder = SpdyDecoder::default();
            for piece in bytes.chunks(fastrand::usize(1..100)) {
                if frames(&mut decoder, piece).is_err() {
                    break;
                }
                assert!(decoder.buffer.len() < HEAD + LONGEST_CONTROL);
            }
        }
    }

    #[test]
    fn what_kubectl_sends_is_understood() {
        let seen = frames(&mut SpdyDecoder::default(), RECORDED).unwrap();
        let opened: Vec<_> = seen
            .iter()
            .filter_map(|frame| match frame {
                ClientFrame::Open { stream, headers, .. } => {
                    let of = |name: &str| headers.get(name).unwrap_or_default();
                    Some((*stream, of("streamtype"), of("port"), of("requestid")))
                }
                _ => None,
            })
            .collect();
        assert_eq!(opened, [(1, "error", "18080", "0"), (3, "data", "18080", "0")]);
        assert_eq!(content(&seen, 1), (Vec::new(), true));
        assert!(content(&seen, 3).0.starts_with(b"GET / HTTP/1.1\r\n"));
    }
}
