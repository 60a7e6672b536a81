//! Reads the output of containers, while they write it and afterwards (`shim/log.rs` defines the format).
//!
//! Memory is bounded whatever the log contains: the tail is found by reading backwards in blocks, and text is returned
//! in chunks. A following reader polls every 50 ms; its caller says when the attempt has ended.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use tally_core::ids::PodUid;
use tally_core::time::Timestamp;

use crate::port::Attempt;
use crate::shim::layout::{AttemptDir, Layout};
use crate::shim::log::{FLAG, HEADER, LONGEST_LINE, STREAM, Stream, TIME};

/// Users do not notice this delay, and a thousand followers cost a few percent of a CPU.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// The size of one read, and the approximate size of a chunk.
const BLOCK: usize = 64 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogReadOptions {
    /// Continues until the attempt has ended.
    pub follow: bool,
    /// Only this number of the last lines that exist now.
    pub tail_lines: Option<u64>,
    /// Only lines written at this time or later.
    pub since: Option<Timestamp>,
    pub limit_bytes: Option<u64>,
    /// Puts its time in front of each line.
    pub timestamps: bool,
}

/// The attempts of a Pod that have written output, by container and number.
pub fn attempts(root: &Path, pod: &PodUid) -> Vec<Attempt> {
    Layout::new(root).attempts(pod).unwrap_or_default()
}

/// Opens the log of an attempt under the node's root. An attempt that has written nothing has an empty log.
pub fn open(root: &Path, attempt: &Attempt, options: LogReadOptions) -> io::Result<Reader> {
    Reader::new(Layout::new(root).attempt(attempt)?, options)
}

/// Opens the log of an attempt for a reader that follows it from its beginning, and that the shim knows of.
pub fn follow(root: &Path, attempt: &Attempt) -> io::Result<Follower> {
    let slot = Layout::new(root).attempt(attempt)?;
    Ok(Follower { slot, number: 0, file: None, buffer: Vec::new() })
}

/// The last lines of an attempt's log, limited to the last `most` bytes.
pub(crate) fn tail(slot: &AttemptDir, lines: u64, most: usize) -> io::Result<Vec<u8>> {
    let mut reader =
        Reader::new(slot.clone(), LogReadOptions { tail_lines: Some(lines), ..LogReadOptions::default() })?;
    let mut text = Vec::new();
    while let Some(chunk) = reader.read()? {
        text.extend_from_slice(&chunk);
        text.drain(..text.len().saturating_sub(most));
    }
    Ok(text)
}

pub struct Reader {
    slot: AttemptDir,
    options: LogReadOptions,
    /// The file being read, and its number.
    file: Option<(u64, File)>,
    /// Bytes that have been read and not returned: at most one incomplete record, after a chunk has been built.
    buffer: Vec<u8>,
    /// The next text begins a line.
    fresh: bool,
    /// The number of bytes that may still be returned.
    left: u64,
}

impl Reader {
    fn new(slot: AttemptDir, options: LogReadOptions) -> io::Result<Self> {
        let left = options.limit_bytes.unwrap_or(u64::MAX);
        let mut reader = Self { slot, options, file: None, buffer: Vec::new(), fresh: true, left };
        if let Some(lines) = reader.options.tail_lines {
            reader.file = find_tail(&reader.slot, lines)?;
        }
        Ok(reader)
    }

    /// The next part of the log; None at its end. `over` tells whether nothing more will be written; it is called only
    /// when following. Cancel safe: nothing is lost if the future is dropped while it waits.
    pub async fn next(&mut self, over: impl Fn() -> bool) -> io::Result<Option<Bytes>> {
        loop {
            // Checked first: everything written before the end was known can then be read.
            let over = !self.options.follow || over();
            if let Some(chunk) = self.read()? {
                return Ok(Some(chunk));
            }
            if over || self.left == 0 {
                return Ok(None);
            }
            tokio::time::sleep(LOOK_AGAIN_AFTER).await;
        }
    }

    /// The text that is available now; None: nothing more yet.
    pub fn read(&mut self) -> io::Result<Option<Bytes>> {
        while self.left > 0 {
            let chunk = self.chunk();
            if !chunk.is_empty() {
                return Ok(Some(chunk));
            }
            // As with `over`: a file is complete once a later one exists, so this is checked before the file is read.
            let next = self.next_file()?;
            if self.fill()? > 0 {
                continue;
            }
            let Some(next) = next else { break };
            self.buffer.clear();
            match File::open(self.slot.log(next)) {
                Ok(file) => self.file = Some((next, file)),
                // The file was the oldest one and has been removed since: later ones exist.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn next_file(&self) -> io::Result<Option<u64>> {
        let numbers = match self.slot.logs() {
            Ok(numbers) => numbers,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(numbers.into_iter().find(|number| self.file.as_ref().is_none_or(|(now, _)| number > now)))
    }

    fn fill(&mut self) -> io::Result<u64> {
        let Some((_, file)) = &mut self.file else { return Ok(0) };
        // A record is never this long: the file is not a log, or it is damaged.
        if self.buffer.len() > BLOCK {
            self.buffer.clear();
        }
        Ok(file.take(BLOCK as u64).read_to_end(&mut self.buffer)? as u64)
    }

    /// Returns the text of all complete records that have been read.
    fn chunk(&mut self) -> Bytes {
        let mut text = Vec::new();
        let mut taken = 0;
        while let Some(end) = memchr::memchr(b'\n', &self.buffer[taken..]) {
            let record = &self.buffer[taken..taken + end];
            taken += end + 1;
            let Some((time, complete, line)) = parse(record) else { continue };
            if self.options.since.is_some_and(|since| Timestamp::parse(time).is_ok_and(|time| time < since)) {
                continue;
            }
            if self.options.timestamps && self.fresh {
                text.extend_from_slice(time.as_bytes());
                text.push(b' ');
            }
            text.extend_from_slice(line);
            if complete {
                text.push(b'\n');
            }
            self.fresh = complete;
        }
        self.buffer.drain(..taken);
        text.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= text.len() as u64;
        text.into()
    }
}

/// A part of a log that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Text,
    /// A file was read to its end: the shim can be told that all files before this number have been read.
    File(u64),
    /// There is nothing more now.
    Nothing,
}

/// Reads a log while the shim keeps every file until it has been read (`ShimCommand::OutputRead`): nothing is lost.
pub struct Follower {
    slot: AttemptDir,
    /// The file being read. It may not exist yet.
    number: u64,
    file: Option<File>,
    /// At most one incomplete record, after the complete ones have been passed on.
    buffer: Vec<u8>,
}

impl Follower {
    /// Reads one block and passes on its records: stream, whether the line ends here, and text.
    pub fn read(&mut self, mut record: impl FnMut(Stream, bool, &[u8])) -> io::Result<Progress> {
        if self.file.is_none() {
            match File::open(self.slot.log(self.number)) {
                Ok(file) => self.file = Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Progress::Nothing),
                Err(error) => return Err(error),
            }
        }
        let mut count = self.fill()?;
        if count == 0 {
            // A file is complete once the next one exists, so this is checked before its end is read.
            if !self.slot.log(self.number + 1).exists() {
                return Ok(Progress::Nothing);
            }
            count = self.fill()?;
        }
        if count == 0 {
            self.number += 1;
            self.file = None;
            self.buffer.clear();
            return Ok(Progress::File(self.number));
        }
        let mut taken = 0;
        while let Some(end) = memchr::memchr(b'\n', &self.buffer[taken..]) {
            let line = &self.buffer[taken..taken + end];
            taken += end + 1;
            if let Some((_, complete, text)) = parse(line) {
                let stream = if line[STREAM] == b'o' { Stream::Stdout } else { Stream::Stderr };
                record(stream, complete, text);
            }
        }
        self.buffer.drain(..taken);
        Ok(Progress::Text)
    }

    fn fill(&mut self) -> io::Result<usize> {
        let Some(file) = &mut self.file else { return Ok(0) };
        // A record is never this long: the file is damaged.
        if self.buffer.len() > HEADER + LONGEST_LINE {
            self.buffer.clear();
        }
        file.take(BLOCK as u64).read_to_end(&mut self.buffer)
    }
}

/// Time, whether the line ends here, and text.
fn parse(record: &[u8]) -> Option<(&str, bool, &[u8])> {
    let (header, text) = record.split_at_checked(HEADER)?;
    let complete = match header[FLAG] {
        b'F' => true,
        b'P' => false,
        _ => return None,
    };
    Some((std::str::from_utf8(&header[..TIME]).ok()?, complete, text))
}

/// The file and the position in it where the last lines begin. A line ends with a complete record; trailing text
/// without an end counts as a line too.
fn find_tail(slot: &AttemptDir, lines: u64) -> io::Result<Option<(u64, File)>> {
    let mut left = lines;
    let mut newest = true;
    let numbers = match slot.logs() {
        Ok(numbers) => numbers,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    for &number in numbers.iter().rev() {
        let mut file = match File::open(slot.log(number)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(error),
        };
        let mut backwards = Backwards::new(&file)?;
        // The wanted records begin after the end of the record before them.
        while let Some((record_end, record)) = backwards.next(&file)? {
            let ends_line = parse(&record).is_some_and(|(_, complete, _)| complete);
            if ends_line || newest {
                if left == 0 {
                    file.seek(SeekFrom::Start(record_end))?;
                    return Ok(Some((number, file)));
                }
                left -= 1;
            }
            newest = false;
        }
        if numbers.first() == Some(&number) {
            file.seek(SeekFrom::Start(0))?;
            return Ok(Some((number, file)));
        }
    }
    Ok(None)
}

/// The records of a file, the last one first.
struct Backwards {
    /// The position of `held` in the file.
    at: u64,
    /// Ends with a complete record, or is empty.
    held: Vec<u8>,
}

impl Backwards {
    fn new(file: &File) -> io::Result<Self> {
        let mut backwards = Self { at: file.metadata()?.len(), held: Vec::new() };
        // The bytes after the last newline are still being written and are skipped.
        while backwards.held.is_empty() && backwards.back(file)? {
            let complete = memchr::memrchr(b'\n', &backwards.held).map_or(0, |at| at + 1);
            backwards.held.truncate(complete);
        }
        Ok(backwards)
    }

    fn back(&mut self, file: &File) -> io::Result<bool> {
        let length = self.at.min(BLOCK as u64);
        if length == 0 {
            return Ok(false);
        }
        let mut block = vec![0; length as usize];
        file.read_exact_at(&mut block, self.at - length)?;
        self.at -= length;
        block.append(&mut self.held);
        self.held = block;
        Ok(true)
    }

    /// The position where the record ends, and the record without its newline.
    fn next(&mut self, file: &File) -> io::Result<Option<(u64, Vec<u8>)>> {
        loop {
            let Some(text) = self.held.strip_suffix(b"\n") else { return Ok(None) };
            let start = match memchr::memrchr(b'\n', text) {
                Some(at) => at + 1,
                None if self.at == 0 => 0,
                // Longer than any record: the file is damaged. The wanted records are after this point, or do not
                // exist.
                None if text.len() > HEADER + LONGEST_LINE + BLOCK => return Ok(None),
                None => {
                    self.back(file)?;
                    continue;
                }
            };
            let end = self.at + self.held.len() as u64;
            let record = text[start..].to_vec();
            self.held.truncate(start);
            return Ok(Some((end, record)));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::output::FollowOptions;
    use crate::shim::log::{Limits, Writer};

    struct Log {
        root: tempfile::TempDir,
        writer: Writer,
        over: Arc<AtomicBool>,
        slot: AttemptDir,
    }

    const POD: PodUid = PodUid::from_u128(7);

    fn attempt(number: u32) -> Attempt {
        Attempt { pod: POD, container: "main".into(), number }
    }

    fn log(limits: Limits) -> Log {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        std::fs::create_dir_all(layout.pods()).unwrap();
        let slot = layout.attempt(&attempt(0)).unwrap();
        let writer = Writer::new(slot.clone(), limits, None);
        Log { root, writer, over: Arc::default(), slot }
    }

    impl Log {
        fn write(&mut self, text: &str) {
            self.writer.write(Stream::Stdout, text.as_bytes());
        }

        fn end(&mut self) {
            self.writer.finish();
            self.over.store(true, Ordering::SeqCst);
        }

        fn open(&self, options: LogReadOptions) -> Reader {
            open(self.root.path(), &attempt(0), options).unwrap()
        }

        async fn read(&self, options: LogReadOptions) -> String {
            rest(&mut self.open(options), &self.over).await
        }
    }

    async fn rest(reader: &mut Reader, over: &AtomicBool) -> String {
        let mut text = Vec::new();
        while let Some(chunk) = reader.next(|| over.load(Ordering::SeqCst)).await.unwrap() {
            text.extend_from_slice(&chunk);
        }
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn every_option() {
        let mut log = log(Limits::default());
        assert_eq!(log.read(LogReadOptions::default()).await, "");
        log.write("one\ntwo\nthree\nfo");
        log.end();
        let tail = |lines| LogReadOptions { tail_lines: Some(lines), ..LogReadOptions::default() };
        let limit = |bytes| LogReadOptions { limit_bytes: Some(bytes), ..LogReadOptions::default() };
        let since =
            |since: &str| LogReadOptions { since: Some(Timestamp::parse(since).unwrap()), ..LogReadOptions::default() };
        let follow = LogReadOptions { follow: true, ..LogReadOptions::default() };
        for (options, expected) in [
            (LogReadOptions::default(), "one\ntwo\nthree\nfo"),
            (follow, "one\ntwo\nthree\nfo"),
            (tail(0), ""),
            (tail(1), "fo"),
            (tail(2), "three\nfo"),
            (tail(4), "one\ntwo\nthree\nfo"),
            (tail(9), "one\ntwo\nthree\nfo"),
            (limit(0), ""),
            (limit(5), "one\nt"),
            (limit(99), "one\ntwo\nthree\nfo"),
            (LogReadOptions { limit_bytes: Some(3), ..tail(2) }, "thr"),
            (since("2020-01-01T00:00:00Z"), "one\ntwo\nthree\nfo"),
            (since("2999-01-01T00:00:00Z"), ""),
        ] {
            assert_eq!(log.read(options.clone()).await, expected, "{options:?}");
        }
        let timed = log.read(LogReadOptions { timestamps: true, ..tail(2) }).await;
        let (first, second) = timed.split_once('\n').unwrap();
        assert!(first.ends_with("Z three") && second.ends_with("Z fo"), "{timed}");
        assert!(Timestamp::parse(&first[..TIME]).is_ok());
    }

    #[tokio::test]
    async fn long_lines_come_out_whole_and_are_one_line() {
        let mut log = log(Limits::default());
        let long = "x".repeat(3 * LONGEST_LINE + 5);
        log.write(&format!("a\n{long}\nb\n"));
        log.end();
        let with = |lines| LogReadOptions { tail_lines: Some(lines), ..LogReadOptions::default() };
        assert_eq!(log.read(LogReadOptions::default()).await, format!("a\n{long}\nb\n"));
        assert_eq!(log.read(with(2)).await, format!("{long}\nb\n"));
        assert_eq!(log.read(with(1)).await, "b\n");
        let timed = log.read(LogReadOptions { timestamps: true, ..LogReadOptions::default() }).await;
        assert_eq!(timed.len(), 3 * (TIME + 1) + 2 + long.len() + 1 + 2, "one time a line");
    }

    #[tokio::test]
    async fn the_tail_is_found_across_files_of_any_size() {
        for file_bytes in [50, 100, 1000, 100_000] {
            let mut log = log(Limits { file_bytes, files: 1000 });
            let lines: Vec<String> = (0..300).map(|number| format!("{number} {}\n", "y".repeat(number % 50))).collect();
            for line in &lines {
                log.write(line);
            }
            log.end();
            for wanted in [0, 1, 2, 17, 299, 300, 301] {
                let options = LogReadOptions { tail_lines: Some(wanted as u64), ..LogReadOptions::default() };
                let expected = lines[lines.len().saturating_sub(wanted)..].concat();
                assert_eq!(log.read(options).await, expected, "{wanted} of files of {file_bytes}");
            }
        }
    }

    #[tokio::test]
    async fn a_follower_sees_everything_across_rotation_and_stops_at_the_end() {
        let mut log = log(Limits { file_bytes: 300, files: 1000 });
        let mut reader = log.open(LogReadOptions { follow: true, ..LogReadOptions::default() });
        let over = log.over.clone();
        let following = tokio::spawn(async move { rest(&mut reader, &over).await });
        let mut expected = String::new();
        for number in 0..200 {
            let line = format!("line {number}\n");
            log.write(&line);
            expected.push_str(&line);
            if number % 10 == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        log.end();
        assert_eq!(following.await.unwrap(), expected);
    }

    #[test]
    fn a_follower_that_the_log_knows_of_gets_every_byte_of_both_streams() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        std::fs::create_dir_all(layout.pods()).unwrap();
        let slot = layout.attempt(&attempt(0)).unwrap();
        for partial_lines in [false, true] {
            slot.erase();
            let options = FollowOptions { unread_files: Some(2), partial_lines };
            let limits = Limits { file_bytes: 50_000, files: 2 };
            let mut writer = Writer::new(slot.clone(), limits, Some(options));
            let mut follower = follow(root.path(), &attempt(0)).unwrap();
            let (mut written, mut seen) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
            let mut waits = 0;
            let mut catch_up = |writer: &mut Writer| {
                loop {
                    let progress = follower.read(|stream, complete, text| {
                        seen[stream as usize].extend_from_slice(text);
                        if complete {
                            seen[stream as usize].push(b'\n');
                        }
                    });
                    match progress.unwrap() {
                        Progress::Text => {}
                        Progress::File(before) => writer.was_read(before),
                        Progress::Nothing => break,
                    }
                }
            };
            for round in 0..400_u32 {
                while writer.is_full() {
                    waits += 1;
                    catch_up(&mut writer);
                }
                let stream = if round % 3 == 0 { Stream::Stderr } else { Stream::Stdout };
                // Any byte, lines of any length, and pieces that end anywhere.
                let piece: Vec<u8> = (0..round * 7 % 5000).map(|at| (at * at * round % 257) as u8).collect();
                written[stream as usize].extend_from_slice(&piece);
                writer.write(stream, &piece);
            }
            writer.finish();
            catch_up(&mut writer);
            assert_eq!(seen, written);
            assert!(waits > 3, "{waits}");
            assert!(slot.logs().unwrap().len() <= 2);
        }
    }

    #[tokio::test]
    async fn a_follower_that_is_too_slow_loses_whole_lines_only() {
        let mut log = log(Limits { file_bytes: 100, files: 2 });
        log.write("first\n");
        let mut reader = log.open(LogReadOptions { follow: true, ..LogReadOptions::default() });
        assert_eq!(reader.next(|| false).await.unwrap().unwrap(), "first\n");
        for number in 10..30 {
            log.write(&format!("line {number}\n"));
        }
        log.end();
        // The first file contains `first` and one more record of 48 bytes; the reader still has it open. Two files are
        // left.
        assert_eq!(rest(&mut reader, &log.over).await, "line 10\nline 27\nline 28\nline 29\n");
    }

    #[tokio::test]
    async fn what_a_pod_wrote_is_read_to_its_end_though_it_is_gone() {
        let mut log = log(Limits::default());
        log.write("one\n");
        let mut reader = log.open(LogReadOptions { follow: true, ..LogReadOptions::default() });
        assert_eq!(reader.next(|| false).await.unwrap().unwrap(), "one\n");
        log.write("two\n");
        std::fs::remove_dir_all(Layout::new(log.root.path()).pod(&POD).unwrap()).unwrap();
        assert_eq!(reader.next(|| true).await.unwrap().unwrap(), "two\n");
        assert_eq!(reader.next(|| true).await.unwrap(), None);
    }

    #[tokio::test]
    async fn each_attempt_has_its_own() {
        let log = log(Limits::default());
        for number in [2, 10] {
            let slot = Layout::new(log.root.path()).attempt(&attempt(number)).unwrap();
            Writer::new(slot, Limits::default(), None).write(Stream::Stderr, format!("attempt {number}\n").as_bytes());
        }
        assert_eq!(attempts(log.root.path(), &POD), [attempt(2), attempt(10)]);
        for (number, expected) in [(2, "attempt 2\n"), (3, ""), (10, "attempt 10\n")] {
            let mut reader = open(log.root.path(), &attempt(number), LogReadOptions::default()).unwrap();
            assert_eq!(rest(&mut reader, &log.over).await, expected);
        }
        assert_eq!(attempts(log.root.path(), &PodUid::from_u128(8)), []);
    }

    #[test]
    fn the_last_words_are_short() {
        let mut log = log(Limits::default());
        for number in 0..200 {
            log.write(&format!("line {number}\n"));
        }
        let text = String::from_utf8(tail(&log.slot, 80, 2048).unwrap()).unwrap();
        assert!(text.starts_with("line 120\n") && text.ends_with("line 199\n"));
        assert_eq!(tail(&log.slot, 80, 12).unwrap(), b"98\nline 199\n");
    }
}
