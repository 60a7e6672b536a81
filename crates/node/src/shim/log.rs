//! Writes the output of a container. One record per line: time, stream, whether the line is complete, text.
//!
//! ```text
//! 2026-01-31T12:00:00.123456789Z stdout F a whole line
//! 2026-01-31T12:00:00.123456789Z stderr P the beginning of a long one, or an end without a newline
//! ```
//!
//! The part before the text is always 40 bytes long, which readers rely on. Rotation: files are numbered upwards and never
//! renamed: a reader goes from one to the next and cannot mistake one for another.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tally_core::time::Timestamp;

use super::layout::AttemptDir;
use crate::output::FollowOptions;

/// How much is kept of the log of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub file_bytes: u64,
    pub files: u64,
}

impl Default for Limits {
    /// The default of clusters, so that a user loses no lines by moving here or away.
    fn default() -> Self {
        Self { file_bytes: 10 << 20, files: 5 }
    }
}

/// Longer lines are split, as container runtimes do: one line must not need more memory than this.
pub const LONGEST_LINE: usize = 16 * 1024;

/// The length of the part before the text.
pub const HEADER: usize = 40;
/// The position of the letter that tells the two streams apart.
pub const STREAM: usize = 34;
/// The position of the flag in a record.
pub const FLAG: usize = 38;
/// The length of the time.
pub const TIME: usize = 30;

/// Text that was removed, or could not be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextCount {
    pub lines: u64,
    pub bytes: u64,
}

impl TextCount {
    fn add(&mut self, other: Self) {
        self.lines += other.lines;
        self.bytes += other.bytes;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

pub struct Writer {
    slot: AttemptDir,
    limits: Limits,
    /// A reader follows the log: files that it has not read are not removed.
    follow: Option<FollowOptions>,
    /// The reader has read all files before this one.
    read: u64,
    /// Created when there is something to write.
    file: Option<File>,
    number: u64,
    /// The length of the file once the batch is written.
    written: u64,
    /// Its current length.
    flushed: u64,
    /// By stream: the beginning of a line whose end has not arrived yet.
    pending: [Vec<u8>; 2],
    clock: Clock,
    /// Records to be written to the file.
    batch: Vec<u8>,
    /// The text of every file that exists, the last one being written.
    files: VecDeque<TextCount>,
    /// What the limits have removed since it was last asked for.
    removed: TextCount,
    /// What is in the batch.
    batched: TextCount,
    lost: TextCount,
    /// A full disk loses output, not Pods. The first error.
    trouble: Option<io::Error>,
}

impl Writer {
    pub fn new(slot: AttemptDir, limits: Limits, follow: Option<FollowOptions>) -> Self {
        Self {
            slot,
            limits,
            follow,
            read: 0,
            file: None,
            number: 0,
            written: 0,
            flushed: 0,
            pending: [Vec::new(), Vec::new()],
            clock: Clock::default(),
            batch: Vec::new(),
            files: VecDeque::from([TextCount::default()]),
            removed: TextCount::default(),
            batched: TextCount::default(),
            lost: TextCount::default(),
            trouble: None,
        }
    }

    pub fn write(&mut self, stream: Stream, mut bytes: &[u8]) {
        let time = self.clock.now();
        let mut pending = std::mem::take(&mut self.pending[stream as usize]);
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            pending.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            self.split(&time, stream, &mut pending);
            self.record(&time, stream, b'F', &pending);
            pending.clear();
        }
        pending.extend_from_slice(bytes);
        self.split(&time, stream, &mut pending);
        if self.follow.is_some_and(|follow| follow.partial_lines) && !pending.is_empty() {
            self.record(&time, stream, b'P', &pending);
            pending.clear();
        }
        self.pending[stream as usize] = pending;
        self.flush();
    }

    /// Text without a final newline is written as a partial record.
    pub fn finish(&mut self) {
        let time = self.clock.now();
        for stream in [Stream::Stdout, Stream::Stderr] {
            let pending = std::mem::take(&mut self.pending[stream as usize]);
            if !pending.is_empty() {
                self.record(&time, stream, b'P', &pending);
            }
        }
        self.flush();
        // The writer stays until its reader has read everything.
        self.file = None;
        self.batch = Vec::new();
    }

    /// The reader is so far behind that the processes should wait.
    pub fn is_full(&self) -> bool {
        self.follow.and_then(|follow| follow.unread_files).is_some_and(|most| self.number - self.read >= most)
    }

    /// The reader has read all files before this one.
    pub fn was_read(&mut self, before: u64) {
        self.read = self.read.max(before.min(self.number));
        self.remove_oldest();
    }

    /// What the limits have removed since the last call.
    pub fn take_removed(&mut self) -> Option<TextCount> {
        Some(std::mem::take(&mut self.removed)).filter(|removed| removed.bytes > 0)
    }

    /// What could not be written, and the first reason.
    pub fn take_trouble(&mut self) -> Option<(TextCount, io::Error)> {
        self.trouble.take().map(|error| (std::mem::take(&mut self.lost), error))
    }

    /// Writes the parts that are too long for one record.
    fn split(&mut self, time: &[u8; TIME], stream: Stream, pending: &mut Vec<u8>) {
        let mut taken = 0;
        while pending.len() - taken > LONGEST_LINE {
            self.record(time, stream, b'P', &pending[taken..taken + LONGEST_LINE]);
            taken += LONGEST_LINE;
        }
        pending.drain(..taken);
    }

    fn record(&mut self, time: &[u8; TIME], stream: Stream, flag: u8, text: &[u8]) {
        let length = (HEADER + text.len() + 1) as u64;
        if self.written > 0 && self.written + length > self.limits.file_bytes {
            self.flush();
            self.next_file();
        }
        self.written += length;
        self.batch.extend_from_slice(time);
        self.batch.extend_from_slice(match stream {
            Stream::Stdout => b" stdout ",
            Stream::Stderr => b" stderr ",
        });
        self.batch.extend_from_slice(&[flag, b' ']);
        self.batch.extend_from_slice(text);
        self.batch.push(b'\n');
        let ends = u64::from(flag == b'F');
        self.batched.add(TextCount { lines: ends, bytes: text.len() as u64 + ends });
    }

    fn next_file(&mut self) {
        self.file = None;
        (self.written, self.flushed) = (0, 0);
        self.number += 1;
        self.files.push_back(TextCount::default());
        // The new file exists before an old one is removed: readers can always find the next one.
        self.open();
        self.remove_oldest();
    }

    /// Removes the files that are too many, unless they are still to be read.
    fn remove_oldest(&mut self) {
        while self.files.len() as u64 > self.limits.files {
            let oldest = self.number + 1 - self.files.len() as u64;
            if self.follow.is_some() && oldest >= self.read {
                break;
            }
            let _ = fs::remove_file(self.slot.log(oldest));
            self.removed.add(self.files.pop_front().unwrap_or_default());
        }
    }

    fn open(&mut self) {
        let path = self.slot.log(self.number);
        let open = || File::options().create(true).append(true).mode(0o600).open(&path);
        let opened = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.slot.make_dir().and_then(|()| open()),
            opened => opened,
        };
        match opened {
            Ok(file) => self.file = Some(file),
            Err(error) => self.trouble = self.trouble.take().or(Some(error)),
        }
    }

    fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        if self.file.is_none() {
            self.open();
        }
        match self.file.as_mut().map(|file| (file.write_all(&self.batch), file)) {
            Some((Ok(()), _)) => {
                self.flushed = self.written;
                self.files.back_mut().into_iter().for_each(|file| file.add(self.batched));
            }
            // A partial record must not become the beginning of the next one.
            Some((Err(error), file)) => {
                let _ = file.set_len(self.flushed);
                self.trouble = self.trouble.take().or(Some(error));
                self.lost.add(self.batched);
            }
            None => self.lost.add(self.batched),
        }
        self.batched = TextCount::default();
        self.written = self.flushed;
        self.batch.clear();
    }
}

/// Caches the text of the current second: usually many lines share one.
#[derive(Default)]
struct Clock {
    second: Option<u64>,
    text: String,
}

impl Clock {
    fn now(&mut self) -> [u8; TIME] {
        self.text_of(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    fn text_of(&mut self, since: Duration) -> [u8; TIME] {
        if self.second != Some(since.as_secs()) {
            self.second = Some(since.as_secs());
            self.text = Timestamp::from_seconds(since.as_secs() as i64).to_string();
        }
        let mut text = *b"0000-00-00T00:00:00.000000000Z";
        text[..19].copy_from_slice(&self.text.as_bytes()[..19]);
        let mut nanos = since.subsec_nanos();
        for digit in text[20..29].iter_mut().rev() {
            *digit = b'0' + (nanos % 10) as u8;
            nanos /= 10;
        }
        text
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tally_core::ids::PodUid;

    use super::*;
    use crate::port::Attempt;
    use crate::shim::layout::Layout;

    fn slot(root: &std::path::Path) -> AttemptDir {
        let layout = Layout::new(root);
        let pod = PodUid::from_u128(7);
        fs::create_dir_all(layout.pods()).unwrap();
        layout.attempt(&Attempt { pod, container: "main".into(), number: 0 }).unwrap()
    }

    /// The records, as `stream flag text` per line.
    fn written(slot: &AttemptDir) -> Vec<String> {
        let mut lines = Vec::new();
        for number in slot.logs().unwrap() {
            let text = fs::read_to_string(slot.log(number)).unwrap();
            for line in text.lines() {
                assert!(Timestamp::parse(&line[..TIME]).is_ok(), "{line}");
                let text = &line[TIME + 1..];
                let short = if text.len() > 40 { format!("{}..{}", &text[..12], text.len() - 9) } else { text.into() };
                lines.push(short);
            }
        }
        lines
    }

    #[test]
    fn lines_are_split_where_they_end_and_where_they_are_too_long() {
        let long = "x".repeat(LONGEST_LINE);
        type Case<'a> = (&'a [(Stream, &'a str)], &'a [&'a str]);
        let cases: [Case<'_>; 6] = [
            (&[(Stream::Stdout, "one\ntwo\n")], &["stdout F one", "stdout F two"]),
            (
                &[(Stream::Stdout, "on"), (Stream::Stderr, "err\n"), (Stream::Stdout, "e\n")],
                &["stderr F err", "stdout F one"],
            ),
            (&[(Stream::Stdout, "end")], &["stdout P end"]),
            (&[(Stream::Stdout, "\n\n")], &["stdout F ", "stdout F "]),
            (&[(Stream::Stdout, &format!("{long}\n"))], &["stdout F xxx..16384"]),
            (
                &[(Stream::Stdout, &format!("{long}{long}y\n"))],
                &["stdout P xxx..16384", "stdout P xxx..16384", "stdout F y"],
            ),
        ];
        for (writes, expected) in cases {
            let dir = tempfile::tempdir().unwrap();
            let slot = slot(dir.path());
            let mut writer = Writer::new(slot.clone(), Limits::default(), None);
            for (stream, text) in writes {
                writer.write(*stream, text.as_bytes());
            }
            writer.finish();
            assert_eq!(written(&slot), expected);
        }
    }

    #[test]
    fn files_are_bounded_in_size_and_number() {
        let dir = tempfile::tempdir().unwrap();
        let slot = slot(dir.path());
        let mut writer = Writer::new(slot.clone(), Limits { file_bytes: 100, files: 3 }, None);
        for number in 0..20 {
            writer.write(Stream::Stdout, format!("line {number:02}\n").as_bytes());
        }
        writer.finish();
        // Two records of 48 bytes fit into a file.
        assert_eq!(slot.logs().unwrap(), [7, 8, 9]);
        let kept: Vec<_> = (14..20).map(|number| format!("stdout F line {number}")).collect();
        assert_eq!(written(&slot), kept);
        assert_eq!(writer.take_removed(), Some(TextCount { lines: 14, bytes: 14 * 8 }));
        assert_eq!(writer.take_removed(), None, "it is told once");
    }

    #[test]
    fn what_is_not_read_is_not_removed_and_the_processes_wait() {
        let dir = tempfile::tempdir().unwrap();
        let slot = slot(dir.path());
        let follow = FollowOptions { unread_files: Some(4), partial_lines: false };
        let mut writer = Writer::new(slot.clone(), Limits { file_bytes: 100, files: 2 }, Some(follow));
        for number in 0..10 {
            assert_eq!(writer.is_full(), number > 8, "{number}");
            writer.write(Stream::Stdout, format!("line {number:02}\n").as_bytes());
        }
        assert_eq!(slot.logs().unwrap(), [0, 1, 2, 3, 4]);
        writer.was_read(1);
        assert_eq!((slot.logs().unwrap(), writer.is_full()), (vec![1, 2, 3, 4], false));
        assert_eq!(writer.take_removed(), Some(TextCount { lines: 2, bytes: 16 }));
        writer.was_read(99);
        writer.finish();
        assert_eq!(slot.logs().unwrap(), [3, 4], "the newest ones are kept");
    }

    #[test]
    fn the_beginning_of_a_line_is_written_at_once_if_that_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let slot = slot(dir.path());
        let follow = FollowOptions { unread_files: None, partial_lines: true };
        let mut writer = Writer::new(slot.clone(), Limits::default(), Some(follow));
        writer.write(Stream::Stdout, b"one\ntw");
        writer.write(Stream::Stderr, b"e");
        assert_eq!(written(&slot), ["stdout F one", "stdout P tw", "stderr P e"]);
        writer.write(Stream::Stdout, b"o\n");
        writer.finish();
        assert_eq!(written(&slot)[3..], ["stdout F o"]);
    }

    #[test]
    fn times_have_nine_digits() {
        let mut clock = Clock::default();
        for (since, text) in [
            (Duration::new(0, 0), "1970-01-01T00:00:00.000000000Z"),
            (Duration::new(0, 7), "1970-01-01T00:00:00.000000007Z"),
            (Duration::new(1_800_000_000, 120_000_000), "2027-01-15T08:00:00.120000000Z"),
        ] {
            assert_eq!(std::str::from_utf8(&clock.text_of(since)).unwrap(), text);
        }
    }
}
