//! One family's samples as text.

use std::fmt::{Display, Write as _};

use crate::Label;

pub struct Text<'a> {
    pub out: &'a mut String,
    pub name: &'a str,
    /// The suffix of a counter.
    pub total: &'static str,
}

impl Text<'_> {
    pub fn sample<'l>(&mut self, labels: impl Iterator<Item = (&'static str, &'l Label)>, value: impl Display) {
        let total = self.total;
        self.suffixed(total, labels.map(|(name, value)| (name, value.as_ref())), value);
    }

    pub fn suffixed<'l>(
        &mut self,
        suffix: &str,
        labels: impl Iterator<Item = (&'static str, &'l str)>,
        value: impl Display,
    ) {
        self.out.push_str(self.name);
        self.out.push_str(suffix);
        let mut open = '{';
        for (name, value) in labels {
            self.out.push(open);
            self.out.push_str(name);
            self.out.push_str("=\"");
            for letter in value.chars() {
                match letter {
                    '\\' => self.out.push_str("\\\\"),
                    '"' => self.out.push_str("\\\""),
                    '\n' => self.out.push_str("\\n"),
                    other => self.out.push(other),
                }
            }
            self.out.push('"');
            open = ',';
        }
        // Writing to a string does not fail.
        let _ = writeln!(self.out, "{} {value}", if open == ',' { "}" } else { "" });
    }
}
