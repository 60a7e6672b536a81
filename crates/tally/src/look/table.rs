//! Tables of text.

use std::io::Write;

use crate::run::progress::words::{harmless, width};

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

    pub fn text(&self) -> String {
        let columns = self.rows.first().map_or(0, Vec::len);
        let widest: Vec<usize> =
            (0..columns).map(|at| self.rows.iter().map(|row| width(&row[at])).max().unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, widest) in row.iter().zip(&widest) {
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', widest - width(cell) + 3));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    pub fn print(&self) {
        print(&self.text());
    }
}

/// The reader may have closed the pipe; that is not an error.
pub fn print(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
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
}
