//! Lines out of the records of a log. Pure.
//!
//! A line is shown when its end has arrived, so that lines of different tasks do not mix. A line that is longer than
//! what is kept in memory is passed on in pieces as it comes.

use tally_node::shim::log::Stream;

/// The most that is kept of a line whose end has not arrived.
const LONGEST_KEPT: usize = 64 * 1024;

/// A line, or a part of a long one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    pub stream: Stream,
    /// The line begins here.
    pub begins: bool,
    pub text: &'a [u8],
    /// The line ends here: a newline follows.
    pub ends: bool,
}

/// The incomplete lines of one container: of its standard output and of its standard error.
#[derive(Debug, Default)]
pub struct Lines([PartialLine; 2]);

#[derive(Debug, Default)]
struct PartialLine {
    text: Vec<u8>,
    /// The beginning of the line has been passed on.
    is_shown: bool,
}

impl Lines {
    /// `complete`: the line ends after this text.
    pub fn record(&mut self, stream: Stream, complete: bool, text: &[u8], mut show: impl FnMut(Piece<'_>)) {
        let line = &mut self.0[stream as usize];
        if !complete && line.text.len() + text.len() <= LONGEST_KEPT {
            line.text.extend_from_slice(text);
            return;
        }
        let begins = !line.is_shown;
        if line.text.is_empty() {
            show(Piece { stream, begins, text, ends: complete });
        } else {
            line.text.extend_from_slice(text);
            show(Piece { stream, begins, text: &line.text, ends: complete });
            line.text.clear();
        }
        line.is_shown = !complete;
    }

    /// Nothing more will be written. What is left of a line has no newline.
    pub fn end(&mut self, mut show: impl FnMut(Piece<'_>)) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let line = std::mem::take(&mut self.0[stream as usize]);
            if line.is_shown || !line.text.is_empty() {
                show(Piece { stream, begins: !line.is_shown, text: &line.text, ends: false });
            }
        }
    }

    /// The stream in which the beginning of a line has been passed on, and its end has not.
    pub fn open_line(&self) -> Option<Stream> {
        [Stream::Stdout, Stream::Stderr].into_iter().find(|stream| self.0[*stream as usize].is_shown)
    }

    /// What comes next begins a new line.
    pub fn break_line(&mut self, stream: Stream) {
        self.0[stream as usize].is_shown = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Stream::{Stderr, Stdout};

    /// `<` and `>` where a line begins and ends; long texts by their length.
    fn shown(records: &[(Stream, bool, &[u8])]) -> Vec<String> {
        let (mut lines, mut shown) = (Lines::default(), Vec::new());
        let mut show = |piece: Piece<'_>| {
            let text = match piece.text.len() {
                0..20 => String::from_utf8_lossy(piece.text).into_owned(),
                length => length.to_string(),
            };
            let [begins, ends] = [(piece.begins, "<"), (piece.ends, ">")].map(|(is, mark)| if is { mark } else { "" });
            shown.push(format!("{}{begins}{text}{ends}", if piece.stream == Stderr { "err " } else { "" }));
        };
        for (stream, complete, text) in records {
            lines.record(*stream, *complete, text, &mut show);
        }
        lines.end(&mut show);
        shown
    }

    #[test]
    fn lines_are_whole() {
        assert_eq!(shown(&[(Stdout, true, b"one"), (Stdout, true, b"")]), ["<one>", "<>"]);
        assert_eq!(
            shown(&[(Stdout, false, b"on"), (Stderr, true, b"bad"), (Stdout, true, b"e")]),
            ["err <bad>", "<one>"]
        );
        assert_eq!(shown(&[(Stdout, true, b"a"), (Stdout, false, b"rest")]), ["<a>", "<rest"]);
    }

    #[test]
    fn long_lines_are_passed_on_in_pieces() {
        let most = vec![b'x'; LONGEST_KEPT];
        assert_eq!(shown(&[(Stdout, true, &most), (Stdout, true, b"y")]), ["<65536>", "<y>"]);
        assert_eq!(shown(&[(Stdout, false, &most), (Stdout, true, b"y")]), ["<65537>"]);
        assert_eq!(
            shown(&[(Stdout, false, &most), (Stdout, false, b"y"), (Stdout, false, b"z"), (Stdout, true, b"end")]),
            ["<65537", "zend>"]
        );
        assert_eq!(shown(&[(Stdout, false, &most), (Stdout, false, b"y")]), ["<65537", ""]);
    }
}
