//! Text for people, on standard output and standard error. Names and messages of an API server, and what tasks have
//! printed, are not trusted: a control sequence could change the title, the clipboard or what is on the screen. On a
//! terminal such sequences are removed; a file or a pipe gets the text unchanged.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use clap::ValueEnum;

use crate::run::progress::words::{harmless, tame};

/// The values of `--control-sequences`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ControlSequences {
    /// Colours are kept, everything else that a terminal acts upon is removed
    Remove,
    /// The terminal gets what was printed
    Pass,
}

/// Several lines without control sequences.
pub fn cleaned(text: &str) -> String {
    text.split('\n').map(harmless).collect::<Vec<_>>().join("\n")
}

/// Says something to the user, on standard error. The reader may have closed it; that is not an error.
pub fn tell<T: Display>(text: T) {
    let mut text = format!("tally: {text}");
    let out = std::io::stderr();
    if out.is_terminal() {
        text = cleaned(&text);
    }
    text.push('\n');
    let _ = out.lock().write_all(text.as_bytes());
}

/// Prints to standard output. The reader may have closed the pipe; that is not an error.
pub fn print(text: &str) {
    let mut out = std::io::stdout();
    let cleaned = out.is_terminal().then(|| cleaned(text));
    let _ = out.write_all(cleaned.as_deref().unwrap_or(text).as_bytes()).and_then(|()| out.flush());
}

/// Cleans what a task prints, which comes in pieces of any length. A character or a sequence that is divided between
/// two pieces waits for the second.
#[derive(Debug, Default)]
pub struct OutputFilter {
    colours: bool,
    held: Vec<u8>,
}

/// A longer sequence is not waited for.
const LONGEST_SEQUENCE: usize = 4096;

impl OutputFilter {
    pub fn new(colours: bool) -> Self {
        Self { colours, held: Vec::new() }
    }

    pub fn add(&mut self, piece: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(piece);
        let whole = whole_part(&self.held);
        let rest = self.held.split_off(whole);
        self.clean(rest)
    }

    /// What is left.
    pub fn end(&mut self) -> Vec<u8> {
        self.clean(Vec::new())
    }

    fn clean(&mut self, rest: Vec<u8>) -> Vec<u8> {
        let text = std::mem::replace(&mut self.held, rest);
        let lines = text.split(|byte| *byte == b'\n').map(|line| tame(&String::from_utf8_lossy(line), self.colours));
        lines.collect::<Vec<_>>().join("\n").into_bytes()
    }
}

/// How much of the text is followed by something, or complete in itself: not the beginning of a character, nor that of
/// a sequence, nor a carriage return that may belong to the end of a line. A sequence ends with its line.
fn whole_part(text: &[u8]) -> usize {
    let line = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let last = &text[line..];
    let mut whole = last.len();
    if let Some(at) = last.iter().rposition(|byte| *byte == 0x1b) {
        let is_open = match &last[at + 1..] {
            [] => true,
            [b'[', rest @ ..] => rest.iter().all(|byte| (0x20..=0x3f).contains(byte)),
            [b']', rest @ ..] => !rest.contains(&7),
            _ => false,
        };
        if is_open {
            whole = at;
        }
    }
    if let Err(error) = std::str::from_utf8(&last[..whole])
        && error.error_len().is_none()
    {
        whole = error.valid_up_to();
    }
    while whole > 0 && last[whole - 1] == b'\r' {
        whole -= 1;
    }
    if last.len() - whole > LONGEST_SEQUENCE { text.len() } else { line + whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TITLE: &str = "\u{1b}]0;owned\u{7}";
    const CLIPBOARD: &str = "\u{1b}]52;c;ZWNobyBvd25lZA==\u{1b}\\";

    fn filtered(pieces: &[&[u8]]) -> String {
        let mut filter = OutputFilter::new(true);
        let mut text: Vec<u8> = pieces.iter().flat_map(|piece| filter.add(piece)).collect();
        text.extend(filter.end());
        String::from_utf8_lossy(&text).into_owned()
    }

    #[test]
    fn messages_have_no_control_sequences() {
        let text = format!("Job \"{TITLE}a{CLIPBOARD}\u{1b}[2J\u{9b}2Jb\u{7f}\u{202e}\"\nnext\tline\r");
        assert_eq!(cleaned(&text), "Job \"a2Jb\"\nnext  line");
    }

    /// However the text is divided, the terminal gets the same: nothing that it acts upon, but colours.
    #[test]
    fn what_a_task_prints_is_cleaned_in_pieces_of_any_length() {
        let text = format!(
            "a{TITLE}b{CLIPBOARD}c\u{1b}[2J\u{1b}[1;1H\u{1b}cd\te\r\n50%\r60%\nh\u{e9}\u{20ac}\u{1b}]0;no end\nf\u{1b}[12"
        );
        let expected = "abcd\te\n50% 60%\nh\u{e9}\u{20ac}\nf";
        assert_eq!(filtered(&[text.as_bytes()]), expected);
        for length in 1..text.len() {
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(length).collect();
            assert_eq!(filtered(&pieces), expected, "pieces of {length}");
        }
        assert_eq!(filtered(&[b"\x1b[31mred\x1b[0m\xff\n"]), "\u{1b}[31mred\u{1b}[0m\u{fffd}\u{1b}[0m\n");
        assert_eq!(OutputFilter::new(false).add(b"\x1b[31mred\x1b[0m\n"), b"red\n");
    }

    #[test]
    fn a_sequence_without_an_end_does_not_hold_the_output_for_ever() {
        let mut filter = OutputFilter::new(true);
        assert_eq!(filter.add(b"a\x1b]0;"), b"a");
        let mut text = Vec::new();
        for _ in 0..10_000 {
            text.extend(filter.add(b"x"));
        }
        text.extend(filter.add(b"\nb\n"));
        assert!(text.ends_with(b"\nb\n") && !text.contains(&0x1b), "{}", text.len());
        assert!(filter.held.is_empty());
    }
}
