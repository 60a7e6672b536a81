//! Base64 as in Secrets: the standard alphabet, padded; line breaks are ignored.

use std::borrow::Cow;

/// The text without line breaks, or the position of the first illegal byte.
pub fn canonical(text: &str) -> Result<Cow<'_, str>, usize> {
    let bytes = text.as_bytes();
    let blank = |byte: u8| byte == b'\n' || byte == b'\r';
    let (mut filled, mut at, mut leftover) = (0_usize, 0, 0_u8);
    while at < bytes.len() {
        let byte = bytes[at];
        if blank(byte) {
            at += 1;
            continue;
        }
        if byte == b'=' {
            return padding(text, at, filled).and_then(|()| check_leftover(leftover, filled, text));
        }
        let Some(digit) = digit(byte) else { return Err(at) };
        (leftover, filled, at) = (digit, filled + 1, at + 1);
    }
    if filled % 4 == 0 { Ok(without_line_ends(text)) } else { Err(bytes.len() - filled % 4) }
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

/// Checks that the padding that begins here completes a group of four, and that nothing follows.
fn padding(text: &str, at: usize, filled: usize) -> Result<(), usize> {
    let wanted = match filled % 4 {
        2 => 2,
        3 => 1,
        _ => return Err(at),
    };
    let mut found = 0;
    for (offset, byte) in text.bytes().enumerate().skip(at) {
        match byte {
            b'\n' | b'\r' => {}
            b'=' if found < wanted => found += 1,
            _ => return Err(offset),
        }
    }
    if found == wanted { Ok(()) } else { Err(text.len()) }
}

/// Bits that the padding discards need not be zero, but they are cleared.
fn check_leftover(leftover: u8, filled: usize, text: &str) -> Result<Cow<'_, str>, usize> {
    let kept = if filled % 4 == 2 { leftover & 0b11_0000 } else { leftover & 0b11_1100 };
    let clean = without_line_ends(text);
    if kept == leftover {
        return Ok(clean);
    }
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut owned = clean.into_owned();
    let tail = if filled % 4 == 2 { "==" } else { "=" };
    owned.truncate(filled - 1);
    owned.push(char::from(ALPHABET[usize::from(kept)]));
    owned.push_str(tail);
    Ok(Cow::Owned(owned))
}

fn without_line_ends(text: &str) -> Cow<'_, str> {
    if text.contains(['\n', '\r']) { Cow::Owned(text.replace(['\n', '\r'], "")) } else { Cow::Borrowed(text) }
}
