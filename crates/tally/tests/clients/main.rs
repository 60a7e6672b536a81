//! One list of things, done by several clients against the real binary.
//!
//! `table.rs` has the list, the clients, and by what means each client does each thing. A driver (`drivers/`) does a thing
//! in the way of its client and answers what the client saw. `checks.rs` decides whether that is right, the same for all
//! clients, with what the API itself shows. `kopf.rs` runs an operator of that framework.
//!
//! A client that is not installed is NOT RUN, and said to be so in the table that the test prints. With `CI` in the
//! environment that is a failure. `THING=watch` does one thing only.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod checks;
mod drivers;
mod gap;
mod kopf;
#[path = "../run/pty.rs"]
#[allow(dead_code, reason = "some of it is for other tests")]
mod pty;
mod suite;
#[path = "../support/mod.rs"]
mod support;
mod table;
#[path = "../processes/tool.rs"]
#[allow(dead_code, reason = "some of it is for other tests")]
mod tool;

use std::io::Write;
use std::path::Path;

/// Written past the capture of the test runner: what was not run must be seen in a run that passes.
pub fn announce(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Whether a client that is not installed is a failure.
pub fn all_are_required() -> bool {
    std::env::var_os("CI").is_some()
}

/// `UPDATE_DOCS=1` writes the table into the document.
#[test]
fn the_document_has_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/clients.md");
    let mut text = std::fs::read_to_string(&path).unwrap();
    for (name, table) in [("overview", table::overview()), ("means", table::markdown())] {
        let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
        let from = text.find(&begin).unwrap_or_else(|| panic!("no {begin:?}")) + begin.len();
        let to = text.find(&end).unwrap_or_else(|| panic!("no {end:?}"));
        let wanted = format!("\n{}\n", table.trim_end());
        if std::env::var_os("UPDATE_DOCS").is_some() {
            text.replace_range(from..to, &wanted);
            std::fs::write(&path, &text).unwrap();
        } else {
            assert!(text[from..to] == wanted, "docs/clients.md: write the table with UPDATE_DOCS=1");
        }
    }
}
