//! A container's termination message.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::layout::AttemptDir;
use crate::logs;

/// The maximum length in a container's status.
const LONGEST: usize = 4096;
/// The maximum length if the message is taken from the log.
const LONGEST_OF_LOG: usize = 2048;
const LINES_OF_LOG: u64 = 80;

/// From the file that the container may have written, or else, if `from_log`, the end of its output. Also whether there may
/// be a file: most containers write none.
pub fn message(slot: &AttemptDir, from_log: bool) -> (String, bool) {
    let read = end_of(slot.termination_log(), LONGEST as u64);
    let is_there = !matches!(&read, Err(error) if error.kind() == io::ErrorKind::NotFound);
    let mut written = read.unwrap_or_default();
    if written.is_empty() && from_log {
        written = logs::tail(slot, LINES_OF_LOG, LONGEST_OF_LOG).unwrap_or_default();
    }
    (shorten(String::from_utf8_lossy(&written).into_owned(), LONGEST), is_there)
}

/// The file may be anything that the container created: a pipe must not block the shim, and a symlink must not be
/// followed.
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

/// Each invalid byte has been replaced by a character of three bytes.
fn shorten(mut text: String, most: usize) -> String {
    while text.len() > most {
        text.pop();
    }
    text
}
