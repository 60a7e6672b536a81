//! Tables of text.

use std::io::IsTerminal;

use crate::run::progress::words::{harmless, width, wrapped};
use crate::terminal;

/// Spaces between columns.
const GAP: usize = 3;
/// A column of sentences is not narrower: they go below their row instead.
const NARROWEST: usize = 40;

pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(header: &[&str]) -> Self {
        Self { rows: vec![header.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| harmless(cell)).collect());
    }

    /// Leaves out the columns that are empty, or `-`, in every row.
    pub fn without_empty_columns(mut self) -> Self {
        let columns = self.rows.first().map_or(0, Vec::len);
        for at in (0..columns).rev() {
            if self.rows.iter().skip(1).all(|row| matches!(row[at].as_str(), "" | "-")) {
                self.rows.iter_mut().for_each(|row| drop(row.remove(at)));
            }
        }
        self
    }

    /// Rows of aligned cells.
    pub fn text(&self) -> String {
        lines(&self.rows).map(|line| line.trim_end().to_owned() + "\n").collect()
    }

    /// The same for a terminal of this width, the sentences of the last column wrapped.
    pub fn wrapped(&self, columns: usize) -> String {
        let head: Vec<Vec<String>> = self.rows.iter().map(|row| row[..row.len().saturating_sub(1)].to_vec()).collect();
        let mut text = String::new();
        for (at, (line, row)) in lines(&head).zip(&self.rows).enumerate() {
            let sentence = row.last().map_or("", String::as_str);
            let beside = columns.saturating_sub(width(&line));
            match beside >= NARROWEST {
                true => {
                    let indent = " ".repeat(width(&line));
                    let mut rest = wrapped(sentence, beside).into_iter();
                    text.push_str(format!("{line}{}", rest.next().unwrap_or_default()).trim_end());
                    rest.for_each(|more| text.push_str(&format!("\n{indent}{more}")));
                }
                // The header of such a column would be above nothing.
                false if at == 0 => text.push_str(line.trim_end()),
                false => {
                    text.push_str(line.trim_end());
                    let more = wrapped(sentence, columns.saturating_sub(GAP));
                    more.iter().for_each(|more| text.push_str(&format!("\n{}{more}", " ".repeat(GAP))));
                }
            }
            text.push('\n');
        }
        text
    }

    pub fn print(&self) {
        terminal::print(&self.text());
    }
}

/// Each row as a line, with spaces up to where another column would begin.
fn lines(rows: &[Vec<String>]) -> impl Iterator<Item = String> {
    let columns = rows.first().map_or(0, Vec::len);
    let widest: Vec<usize> = (0..columns).map(|at| rows.iter().map(|row| width(&row[at])).max().unwrap_or(0)).collect();
    rows.iter().map(move |row| {
        let mut line = String::new();
        for (cell, widest) in row.iter().zip(&widest) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', widest - width(cell) + GAP));
        }
        line
    })
}

/// How wide the terminal at standard output is. None: it is no terminal.
pub fn columns_of_terminal() -> Option<usize> {
    let out = std::io::stdout();
    let size = out.is_terminal().then(|| rustix::termios::tcgetwinsize(&out).ok()).flatten()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_empty_ones_left_out() {
        let mut table = Table::new(&["NAME", "X", "N"]);
        table.row(vec!["sum".into(), "-".into(), "1".into()]);
        table.row(vec!["\u{1b}[31mlonger".into(), String::new(), "22".into()]);
        assert_eq!(table.text(), "NAME     X   N\nsum      -   1\nlonger       22\n");
        assert_eq!(table.without_empty_columns().text(), "NAME     N\nsum      1\nlonger   22\n");
    }

    #[test]
    fn sentences_are_wrapped_beside_their_row_or_below_it() {
        let mut table = Table::new(&["NAME", "STATE", "WHY"]);
        table.row(vec!["sum".into(), "Running".into(), String::new()]);
        table.row(vec!["gpu".into(), "Waiting".into(), "Pod gpu-x fits on no node: it is too large for all.".into()]);
        assert_eq!(
            table.wrapped(60),
            "NAME   STATE     WHY\n\
             sum    Running\n\
             gpu    Waiting   Pod gpu-x fits on no node: it is too large\n                 for all.\n"
        );
        assert_eq!(
            table.wrapped(40),
            "NAME   STATE\n\
             sum    Running\n\
             gpu    Waiting\n   Pod gpu-x fits on no node: it is too\n   large for all.\n"
        );
        assert!(table.text().contains("Waiting   Pod gpu-x fits on no node: it is too large for all.\n"));
    }
}
