//! A container's last words.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::layout::Slot;
use crate::logs;

/// What the status of a container may carry.
const LONGEST: usize = 4096;
/// Of a log, less is taken.
const LONGEST_OF_LOG: usize = 2048;
const LINES_OF_LOG: u64 = 80;

/// From the file it may have written, or else, if `from_log`, the end of what it said.
pub fn message(slot: &Slot, from_log: bool) -> String {
    let mut written = end_of(slot.termination_log(), LONGEST as u64).unwrap_or_default();
    if written.is_empty() && from_log {
        written = logs::tail(slot, LINES_OF_LOG, LONGEST_OF_LOG).unwrap_or_default();
    }
    shorten(String::from_utf8_lossy(&written).into_owned(), LONGEST)
}

/// Whatever the container put there: a pipe must not keep us waiting, nor a link lead us elsewhere.
fn end_of(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path)?;
    let about = file.metadata()?;
    let mut text = Vec::new();
    if about.is_file() {
        file.seek(SeekFrom::Start(about.len().saturating_sub(most)))?;
        file.take(most).read_to_end(&mut text)?;
    }
    Ok(text)
}

/// What is not text takes three bytes where it took one.
fn shorten(mut text: String, most: usize) -> String {
    while text.len() > most {
        text.pop();
    }
    text
}
