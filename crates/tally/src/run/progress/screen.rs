//! The part of the terminal that is redrawn.

use std::io::{IsTerminal, Write};

use super::render::{Size, Style};
use super::words::width;

/// Used if the terminal does not report its size.
const USUAL: Size = Size { columns: 80, rows: 24 };

/// Lines that are on the terminal now, the cursor at the end of the last.
#[derive(Debug, Default)]
pub struct Screen {
    drawn: Vec<String>,
    size: Option<Size>,
}

impl Screen {
    /// The text to write so that these lines replace the previous ones. Empty if nothing has changed.
    pub fn draw(&mut self, lines: Vec<String>, size: Size) -> String {
        if lines == self.drawn && self.size == Some(size) {
            return String::new();
        }
        let mut text = self.back(size);
        for (index, line) in lines.iter().enumerate() {
            if index > 0 {
                text += "\r\n";
            }
            // The rest of the old line is erased after the new text is written, which avoids flicker.
            text += line;
            text += "\u{1b}[K";
        }
        text += "\u{1b}[J";
        (self.drawn, self.size) = (lines, Some(size));
        text
    }

    /// The text to write to erase the lines and to move the cursor to where they began.
    pub fn clear(&mut self, size: Size) -> String {
        if self.drawn.is_empty() {
            return String::new();
        }
        let text = self.back(size) + "\u{1b}[J";
        self.drawn.clear();
        text
    }

    pub fn is_empty(&self) -> bool {
        self.drawn.is_empty()
    }

    /// Moves the cursor to the beginning of the first line. A terminal that became narrower has wrapped the lines.
    fn back(&self, size: Size) -> String {
        let columns = size.columns.max(1);
        let rows: usize =
            self.drawn.iter().map(|line| width(&super::words::harmless(line)).div_ceil(columns).max(1)).sum();
        match rows {
            0 | 1 => "\r".to_owned(),
            rows => format!("\r\u{1b}[{}A", rows - 1),
        }
    }
}

/// The current size of the terminal at standard error.
pub fn size() -> Size {
    let Ok(found) = rustix::termios::tcgetwinsize(std::io::stderr()) else { return USUAL };
    match (found.ws_col, found.ws_row) {
        (0, _) | (_, 0) => USUAL,
        (columns, rows) => Size { columns: columns.into(), rows: rows.into() },
    }
}

/// What the terminal can do, according to the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// Lines can be redrawn.
    pub live: bool,
    pub style: Style,
}

/// Pure: `env` gives the value of a variable.
pub fn terminal(is_terminal: bool, env: impl Fn(&str) -> Option<String>) -> Terminal {
    let dumb = env("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    let live = is_terminal && !dumb;
    let unwanted = env("NO_COLOR").is_some_and(|value| !value.is_empty()) || env("CLICOLOR").as_deref() == Some("0");
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().filter_map(|name| env(name)).find(|value| !value.is_empty());
    let unicode = locale.is_some_and(|locale| {
        let locale = locale.to_uppercase();
        locale.contains("UTF-8") || locale.contains("UTF8")
    });
    Terminal { live, style: Style { colour: live && !unwanted, unicode } }
}

pub fn this_terminal() -> Terminal {
    terminal(std::io::stderr().is_terminal(), |name| std::env::var(name).ok())
}

/// Writes to standard error. The reader may have closed it; that is not an error.
pub fn say(text: &str) {
    let mut out = std::io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(columns: usize) -> Size {
        Size { columns, rows: 24 }
    }

    fn lines(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn lines_take_the_place_of_lines() {
        let mut screen = Screen::default();
        assert_eq!(screen.draw(lines(&["one", "two"]), sized(80)), "\rone\u{1b}[K\r\ntwo\u{1b}[K\u{1b}[J");
        assert_eq!(screen.draw(lines(&["one", "two"]), sized(80)), "", "nothing has changed");
        assert_eq!(screen.draw(lines(&["three"]), sized(80)), "\r\u{1b}[1Athree\u{1b}[K\u{1b}[J");
        assert_eq!(screen.clear(sized(80)), "\r\u{1b}[J");
        assert_eq!(screen.clear(sized(80)), "", "nothing is there");
    }

    #[test]
    fn lines_that_a_narrow_terminal_broke_are_found_again() {
        let mut screen = Screen::default();
        screen.draw(lines(&["\u{1b}[31mtwenty-four columns wide\u{1b}[0m", "short"]), sized(80));
        // The lines take three rows and one row: the cursor is in the fourth.
        assert!(screen.draw(lines(&["x"]), sized(10)).starts_with("\r\u{1b}[3Ax"));
        let again = screen.draw(lines(&["x"]), sized(11));
        assert!(again.starts_with("\rx"), "another size is another drawing: {again:?}");
    }

    #[test]
    fn the_environment_decides_about_colours() {
        let plain = |live| Terminal { live, style: Style { colour: false, unicode: false } };
        let full = Terminal { live: true, style: Style { colour: true, unicode: false } };
        for (is_terminal, env, expected) in [
            (true, &[("TERM", "xterm")][..], full),
            (true, &[("TERM", "xterm"), ("NO_COLOR", "")], full),
            (true, &[("TERM", "xterm"), ("NO_COLOR", "1")], plain(true)),
            (true, &[("TERM", "xterm"), ("CLICOLOR", "0")], plain(true)),
            (true, &[("TERM", "dumb")], plain(false)),
            (true, &[], plain(false)),
            (false, &[("TERM", "xterm")], plain(false)),
        ] {
            let get = |name: &str| env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            assert_eq!(terminal(is_terminal, get), expected, "{env:?}");
        }
        let unicode = |name: &'static str, value: &'static str| {
            terminal(true, move |asked| (asked == name).then(|| value.to_owned())).style.unicode
        };
        assert!(unicode("LANG", "de_DE.UTF-8") && unicode("LC_ALL", "C.utf8") && !unicode("LANG", "C"));
    }
}
