//! What is known of one attempt, on disk: a file of up to three lines of JSON that only grows.
//!
//! 1. `started`, before there is a process. A directory without this line never ran anything.
//! 2. `running`, with the process's number, once there is one.
//! 3. `ended` or `lost`, when nothing of it runs any more and its output is in the log.
//!
//! A line counts when it is complete, with its newline, and nothing else does: half a line, which a full disk or a
//! killed process may leave, says nothing. Lines are small and the first one claims the block they all fit in, so
//! that an exit can be recorded even where the disk has filled up meanwhile.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
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
    /// When it started, in clock ticks since boot: with `pid` it names one process for ever.
    pub ticks: u64,
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

fn path(dir: &Path) -> PathBuf {
    dir.join("record")
}

/// Opens the record of an attempt that is about to start. There must be none.
pub fn begin(dir: &Path, started_at: Timestamp, boot: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path(dir))?;
    append(&mut file, &Line::Started { at: started_at, boot: boot.to_owned() })
}

pub fn running(dir: &Path, running: Running) -> io::Result<()> {
    append(&mut open(dir)?, &Line::Running(running))
}

/// Where the message does not fit on the disk any more, the exit does.
pub fn ended(dir: &Path, exit: &Exit) -> io::Result<()> {
    let mut file = open(dir)?;
    append(&mut file, &Line::Ended(exit.clone()))
        .or_else(|_| append(&mut file, &Line::Ended(Exit { message: String::new(), ..exit.clone() })))
}

pub fn lost(dir: &Path, at: Timestamp, why: &str) -> io::Result<()> {
    append(&mut open(dir)?, &Line::Lost { at, why: why.to_owned() })
}

/// None: nothing ever ran here.
pub fn read(dir: &Path) -> io::Result<Option<Record>> {
    let mut text = Vec::new();
    match File::open(path(dir)) {
        Ok(file) => file.take(MOST).read_to_end(&mut text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(parse(&text))
}

fn parse(text: &[u8]) -> Option<Record> {
    let complete = text.split_inclusive(|&byte| byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"));
    let mut lines = complete.map_while(|line| serde_json::from_slice(line).ok());
    let Some(Line::Started { at, boot }) = lines.next() else { return None };
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

fn open(dir: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path(dir))
}

/// Writes a line after the last complete one, over whatever half of a line may be there.
fn append(file: &mut File, line: &Line) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    let mut there = Vec::new();
    if file.seek(SeekFrom::End(0))? > 0 {
        file.seek(SeekFrom::Start(0))?;
        file.take(MOST).read_to_end(&mut there)?;
    }
    let complete = memchr::memrchr(b'\n', &there).map_or(0, |at| at + 1);
    if complete < there.len() {
        file.set_len(complete as u64)?;
    }
    file.seek(SeekFrom::Start(complete as u64))?;
    file.write_all(&text)
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
        let at = Timestamp::from_seconds(1_800_000_000);
        begin(dir.path(), at, "boot").unwrap();
        let first = std::fs::metadata(path(dir.path())).unwrap().len() as usize;
        running(dir.path(), Running { pid: 7, ticks: 9, cgroup: None }).unwrap();
        let second = std::fs::metadata(path(dir.path())).unwrap().len() as usize;
        ended(dir.path(), &exit("so \"it\"\nended")).unwrap();
        let whole = std::fs::read(path(dir.path())).unwrap();
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
        begin(dir.path(), Timestamp::from_seconds(1), "boot").unwrap();
        let mut file = OpenOptions::new().append(true).open(path(dir.path())).unwrap();
        file.write_all(b"{\"ended\":{\"code\":0,\"sig").unwrap();
        lost(dir.path(), Timestamp::from_seconds(2), "killed").unwrap();
        ended(dir.path(), &exit("")).unwrap();
        assert_eq!(read(dir.path()).unwrap().unwrap().end, Some(End::Lost), "what was said first holds");
    }

    #[test]
    fn an_attempt_is_begun_once() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
        begin(dir.path(), Timestamp::from_seconds(1), "boot").unwrap();
        assert!(begin(dir.path(), Timestamp::from_seconds(1), "boot").is_err());
    }
}
