//! A container's last words.

use super::attempt;
use super::layout::Slot;
use crate::logs;

/// What the status of a container may carry.
const LONGEST: usize = 4096;
/// Of a log, less is taken.
const LONGEST_OF_LOG: usize = 2048;
const LINES_OF_LOG: u64 = 80;

/// From the file it may have written, or else, if `from_log`, the end of what it said.
pub fn message(slot: &Slot, from_log: bool) -> String {
    let mut written = attempt::beginning(&slot.termination_log(), LONGEST as u64);
    if written.is_empty() && from_log {
        written = logs::tail(slot, LINES_OF_LOG, LONGEST_OF_LOG).unwrap_or_default();
    }
    shorten(String::from_utf8_lossy(&written).into_owned(), LONGEST)
}

/// What is not text takes three bytes where it took one.
fn shorten(mut text: String, most: usize) -> String {
    while text.len() > most {
        text.pop();
    }
    text
}
