//! What is known of one attempt, on disk: a file of up to three lines of JSON that only grows.
//!
//! 1. `started`, before there is a process. A record without this line is of an attempt that never ran.
//! 2. `running`, with the process's number, once there is one.
//! 3. `ended` or `lost`, when nothing of it runs any more and its output is in the log.
//!
//! A line counts when it is complete, with its newline, and nothing else does: half a line, which a full disk or a
//! killed process may leave, says nothing. Lines are small and the first one claims the block they all fit in, so
//! that an exit can be recorded even where the disk has filled up meanwhile.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tally_core::time::Timestamp;

use crate::port::Exit;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Started {
        at: Timestamp,
        /// Numbers of processes mean nothing after a reboot.
        boot: String,
        /// `namespace/name`, for people.
        pod: String,
    },
    Running(Running),
    Ended(Exit),
    Lost {
        at: Timestamp,
        why: String,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Running {
    pub pid: i32,
    /// Between which clock ticks since boot it started: with `pid` it names one process for ever.
    pub since: u64,
    pub until: u64,
    pub cgroup: Option<PathBuf>,
}

/// What the lines say together.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub started_at: Timestamp,
    pub boot: String,
    pub running: Option<Running>,
    pub end: Option<End>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum End {
    Exited(Exit),
    /// Nobody saw how it ended, or it was killed for want of a node.
    Lost,
}

/// Longer than any record we write: a termination message is at most 4096 bytes, at most six times that as JSON.
const MOST: u64 = 64 * 1024;

/// A record that is being written.
pub struct Journal {
    file: File,
    /// The length of its complete lines.
    length: u64,
}

impl Journal {
    /// The record of an attempt that is about to start. There must be none.
    pub fn begin(path: &Path, started_at: Timestamp, boot: &str, pod: &str) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        let mut journal = Self { file, length: 0 };
        journal.append(&Line::Started { at: started_at, boot: boot.to_owned(), pod: pod.to_owned() })?;
        Ok(journal)
    }

    /// One that somebody else began. Half a line at its end is as good as none.
    pub fn resume(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let mut text = Vec::new();
        (&file).take(MOST).read_to_end(&mut text)?;
        let length = memchr::memrchr(b'\n', &text).map_or(0, |at| at as u64 + 1);
        file.set_len(length)?;
        Ok(Self { file, length })
    }

    pub fn running(&mut self, running: Running) -> io::Result<()> {
        self.append(&Line::Running(running))
    }

    /// Where the message does not fit on the disk any more, the exit does.
    pub fn ended(&mut self, exit: &Exit) -> io::Result<()> {
        self.append(&Line::Ended(exit.clone()))
            .or_else(|_| self.append(&Line::Ended(Exit { message: String::new(), ..exit.clone() })))
    }

    pub fn lost(&mut self, at: Timestamp, why: &str) -> io::Result<()> {
        self.append(&Line::Lost { at, why: why.to_owned() })
    }

    /// Writes a line after the last complete one. Half a line goes: it must not become the beginning of another.
    fn append(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        if let Err(error) = self.file.write_all_at(&text, self.length) {
            let _ = self.file.set_len(self.length);
            return Err(error);
        }
        self.length += text.len() as u64;
        Ok(())
    }
}

/// None: nothing ever ran.
pub fn read(path: &Path) -> io::Result<Option<Record>> {
    let mut text = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(MOST).read_to_end(&mut text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(parse(&text))
}

fn parse(text: &[u8]) -> Option<Record> {
    let complete = text.split_inclusive(|&byte| byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"));
    let mut lines = complete.map_while(|line| serde_json::from_slice(line).ok());
    let Some(Line::Started { at, boot, .. }) = lines.next() else { return None };
    let mut record = Record { started_at: at, boot, running: None, end: None };
    for line in lines {
        match line {
            Line::Started { .. } => {}
            Line::Running(running) => record.running = Some(running),
            // The first word about the end is the last.
            Line::Ended(exit) => record.end = record.end.or(Some(End::Exited(exit))),
            Line::Lost { .. } => record.end = record.end.or(Some(End::Lost)),
        }
    }
    Some(record)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn exit(message: &str) -> Exit {
        let at = Timestamp::from_seconds(1_800_000_000);
        Exit { code: 3, signal: None, out_of_memory: false, started_at: at, finished_at: at, message: message.into() }
    }

    #[test]
    fn every_torn_record_says_less_and_never_something_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        let at = Timestamp::from_seconds(1_800_000_000);
        let mut journal = Journal::begin(&path, at, "boot", "default/pod").unwrap();
        let first = journal.length as usize;
        journal.running(Running { pid: 7, since: 9, until: 9, cgroup: None }).unwrap();
        let second = journal.length as usize;
        journal.ended(&exit("so \"it\"\nended")).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for length in 0..=whole.len() {
            let record = parse(&whole[..length]);
            assert_eq!(record.is_some(), length >= first, "{length}");
            let Some(record) = record else { continue };
            assert_eq!(record.running.is_some(), length >= second, "{length}");
            assert_eq!(record.end.is_some(), length == whole.len(), "{length}");
            assert_eq!(record.started_at, at);
        }
        assert_eq!(parse(&whole).unwrap().end, Some(End::Exited(exit("so \"it\"\nended"))));
    }

    #[test]
    fn what_follows_half_a_line_takes_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        Journal::begin(&path, Timestamp::from_seconds(1), "boot", "default/pod").unwrap();
        let mut torn = std::fs::read(&path).unwrap();
        torn.extend_from_slice(b"{\"ended\":{\"code\":0,\"sig");
        std::fs::write(&path, torn).unwrap();
        let mut journal = Journal::resume(&path).unwrap();
        journal.lost(Timestamp::from_seconds(2), "killed, and nobody saw it happen").unwrap();
        journal.ended(&exit("")).unwrap();
        assert_eq!(read(&path).unwrap().unwrap().end, Some(End::Lost), "what was said first holds");
    }

    #[test]
    fn an_attempt_is_begun_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        assert_eq!(read(&path).unwrap(), None);
        Journal::begin(&path, Timestamp::from_seconds(1), "boot", "default/pod").unwrap();
        assert!(Journal::begin(&path, Timestamp::from_seconds(1), "boot", "default/pod").is_err());
    }
}
