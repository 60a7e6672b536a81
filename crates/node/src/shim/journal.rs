//! The record of all attempts on disk: one append-only file of JSON lines, which is rewritten when most of it is
//! obsolete. One file per attempt would be simpler, but creating and removing it costs more than everything else about
//! a short process.
//!
//! An attempt has up to three lines:
//!
//! 1. `started`, before the process exists.
//! 2. `running`, with the process ID, once the process exists.
//! 3. `ended` or `lost`, when no process of the attempt runs any more and its output is in the log.
//!
//! A line is valid if it is complete, with its newline, and no invalid line precedes it: a partial line, which a full
//! disk or a killed process may leave, is ignored. Disk space is allocated before an attempt starts, so that its exit
//! can be recorded even if the disk has filled up meanwhile.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tally_core::ids::PodUid;
use tally_core::time::Timestamp;

use crate::output::OutputSource;
use crate::port::{Attempt, Exit};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Started(Attempt, Started),
    Running(Attempt, RunningProcess),
    Ended(Attempt, Exit),
    Lost(Attempt, Lost),
    /// The attempt never ran.
    Erased(Attempt),
    /// All records of this Pod are obsolete.
    Gone(PodUid),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Started {
    pub at: Timestamp,
    /// Process IDs are meaningless after a reboot or in another container.
    pub boot: String,
    /// `namespace/name`, for users.
    pub pod: String,
    /// Whose attempt it is, if records of attempts are kept. Needed only until its end is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Box<OutputSource>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunningProcess {
    pub pid: i32,
    /// The process started between these clock ticks since boot: together with `pid` they identify one process
    /// uniquely.
    pub since: u64,
    pub until: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lost {
    pub at: Timestamp,
    pub why: String,
}

/// What the lines about one attempt say together.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub started: Started,
    pub running: Option<RunningProcess>,
    pub end: Option<End>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum End {
    Exited(Exit),
    /// The end was not observed, or the attempt was killed because the node stopped.
    Lost(Lost),
}

/// Longer than any line without a message.
const LINE: u64 = 1024;
/// The amount of space allocated at once.
const CLAIM: u64 = 64 * 1024;
/// A shorter journal is not worth rewriting.
const RENEW_FROM: u64 = 1024 * 1024;

pub struct Journal {
    path: PathBuf,
    file: File,
    /// The length of the valid lines.
    length: u64,
    /// Disk space is allocated up to this position.
    claimed: u64,
    renew_at: u64,
    records: BTreeMap<Attempt, Record>,
    /// The number of records without an end.
    open: u64,
    /// Lines that are written with the next one, or with `write_pending`.
    pending: Vec<u8>,
}

impl Journal {
    /// Reads the existing journal. Also returns how many bytes of it were invalid.
    pub fn open(path: &Path) -> io::Result<(Self, u64)> {
        let mut file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let mut journal = Self {
            path: path.to_owned(),
            file,
            length: 0,
            claimed: 0,
            renew_at: RENEW_FROM,
            records: BTreeMap::new(),
            open: 0,
            pending: Vec::new(),
        };
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            let complete = line.strip_suffix(b"\n").and_then(|line| serde_json::from_slice(line).ok());
            let Some(parsed) = complete else { break };
            journal.take_in(parsed);
            journal.length += line.len() as u64;
        }
        journal.file.set_len(journal.length)?;
        let silent = text.len() as u64 - journal.length;
        Ok((journal, silent))
    }

    /// An attempt is about to start. It must not have been started before.
    pub fn begin(&mut self, attempt: &Attempt, started: Started) -> io::Result<()> {
        if self.records.contains_key(attempt) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.claim(0)?;
        self.append(Line::Started(attempt.clone(), started))
    }

    /// Not written yet: while several attempts start, the line of one is written with the next one's `started`. It only
    /// helps to find the process; if it cannot be written, the process is found by its environment.
    pub fn running(&mut self, attempt: &Attempt, running: RunningProcess) {
        let line = Line::Running(attempt.clone(), running);
        let length = self.pending.len();
        if serde_json::to_writer(&mut self.pending, &line).is_err() {
            self.pending.truncate(length);
            return;
        }
        self.pending.push(b'\n');
        self.take_in(line);
    }

    /// Writes the lines that have waited. If that fails, they are written with the next one.
    pub fn write_pending(&mut self) {
        if !self.pending.is_empty() && self.file.write_all_at(&self.pending, self.length).is_ok() {
            self.length += self.pending.len() as u64;
            self.pending.clear();
        }
    }

    /// If there is no space for the message, there is for the exit: space allocated for other attempts is not used.
    pub fn ended(&mut self, attempt: &Attempt, exit: &Exit) -> io::Result<()> {
        // In JSON, a byte takes at most six bytes.
        let message = 6 * exit.message.len() as u64;
        if self.claim(message).is_ok() && self.append(Line::Ended(attempt.clone(), exit.clone())).is_ok() {
            return Ok(());
        }
        self.append(Line::Ended(attempt.clone(), Exit { message: String::new(), ..exit.clone() }))
    }

    pub fn lost(&mut self, attempt: &Attempt, at: Timestamp, why: &str) -> io::Result<()> {
        self.append(Line::Lost(attempt.clone(), Lost { at, why: why.to_owned() }))
    }

    /// The attempt never ran: its number is free again. If this cannot be written, the next shim will report it as
    /// lost.
    pub fn erase(&mut self, attempt: &Attempt) {
        let line = Line::Erased(attempt.clone());
        if self.append(line.clone()).is_err() {
            self.take_in(line);
        }
    }

    /// If this cannot be written, the next shim will be told to clean up the Pod again.
    pub fn forget(&mut self, pod: &PodUid) {
        let line = Line::Gone(pod.clone());
        if of_pod(&self.records, pod).next().is_some() && self.append(line.clone()).is_err() {
            self.take_in(line);
        }
    }

    pub fn records(&self) -> &BTreeMap<Attempt, Record> {
        &self.records
    }

    fn take_in(&mut self, line: Line) {
        match line {
            Line::Started(attempt, started) => {
                // Of a container that is restarted repeatedly, the last two attempts are kept.
                if let Some(past) = before_last(&attempt) {
                    self.drop_record(&past);
                }
                self.records.insert(attempt, Record { started, running: None, end: None });
                self.open += 1;
            }
            Line::Running(attempt, running) => {
                if let Some(record) = self.records.get_mut(&attempt) {
                    record.running = Some(running);
                }
            }
            Line::Ended(attempt, exit) => self.end(&attempt, End::Exited(exit)),
            Line::Lost(attempt, lost) => self.end(&attempt, End::Lost(lost)),
            Line::Erased(attempt) => self.drop_record(&attempt),
            Line::Gone(pod) => {
                let gone: Vec<_> = of_pod(&self.records, &pod).map(|(attempt, _)| attempt.clone()).collect();
                gone.iter().for_each(|attempt| self.drop_record(attempt));
            }
        }
    }

    /// The first recorded end is final.
    fn end(&mut self, attempt: &Attempt, end: End) {
        if let Some(record) = self.records.get_mut(attempt)
            && record.end.is_none()
        {
            record.end = Some(end);
            record.started.source = None;
            self.open -= 1;
        }
    }

    fn drop_record(&mut self, attempt: &Attempt) {
        if self.records.remove(attempt).is_some_and(|record| record.end.is_none()) {
            self.open -= 1;
        }
    }

    /// Allocates space for the end of everything that runs and of one more attempt, and for `besides`.
    fn claim(&mut self, besides: u64) -> io::Result<()> {
        let needed = self.length + self.pending.len() as u64 + (self.open + 4) * LINE + besides;
        if needed <= self.claimed {
            return Ok(());
        }
        for until in [needed + CLAIM, needed] {
            let claim = || fallocate(&self.file, FallocateFlags::KEEP_SIZE, self.length, until - self.length);
            // SIGCHLD may interrupt the call.
            match rustix::io::retry_on_intr(claim) {
                Ok(()) => {
                    self.claimed = until;
                    return Ok(());
                }
                Err(Errno::NOSPC | Errno::DQUOT) if until > needed => {}
                // Not every file system supports allocation.
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    self.claimed = u64::MAX;
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Writes a line after the last valid one, and those that have waited before it. If that fails a partial line may
    /// remain: the next line is written over it, and a remainder beyond that has no newline.
    fn append(&mut self, line: Line) -> io::Result<()> {
        let waiting = self.pending.len();
        let text = &mut self.pending;
        let written = serde_json::to_writer(&mut *text, &line).map_err(io::Error::from).and_then(|()| {
            text.push(b'\n');
            self.file.write_all_at(text, self.length)
        });
        if let Err(error) = written {
            self.pending.truncate(waiting);
            return Err(error);
        }
        self.length += self.pending.len() as u64;
        self.pending.clear();
        self.take_in(line);
        if self.length >= self.renew_at {
            // The old file is still valid; the next attempt is made when it has doubled in size.
            if self.renew().is_err() {
                let _ = fs::remove_file(self.fresh());
            }
            self.renew_at = RENEW_FROM.max(2 * self.length);
        }
        Ok(())
    }

    fn fresh(&self) -> PathBuf {
        self.path.with_extension("new")
    }

    /// Writes only the current records. A single rename, so that either the old or the new file exists.
    fn renew(&mut self) -> io::Result<()> {
        let mut text = Vec::new();
        for (attempt, record) in &self.records {
            let mut line = |line: &Line| serde_json::to_writer(&mut text, line).map(|()| text.push(b'\n'));
            line(&Line::Started(attempt.clone(), record.started.clone()))?;
            match (&record.end, &record.running) {
                (Some(End::Exited(exit)), _) => line(&Line::Ended(attempt.clone(), exit.clone()))?,
                (Some(End::Lost(lost)), _) => line(&Line::Lost(attempt.clone(), lost.clone()))?,
                (None, Some(running)) => line(&Line::Running(attempt.clone(), running.clone()))?,
                (None, None) => {}
            }
        }
        let file = File::options().read(true).write(true).create(true).truncate(true).mode(0o600).open(self.fresh())?;
        file.write_all_at(&text, 0)?;
        let mut fresh = Self {
            path: self.path.clone(),
            file,
            length: text.len() as u64,
            claimed: 0,
            renew_at: self.renew_at,
            records: BTreeMap::new(),
            open: self.open,
            pending: Vec::new(),
        };
        // The space that was allocated in the old file must be allocated in the new one.
        fresh.claim(0)?;
        fs::rename(self.fresh(), &self.path)?;
        // They are in the records.
        self.pending.clear();
        (self.file, self.length, self.claimed) = (fresh.file, fresh.length, fresh.claimed);
        Ok(())
    }
}

/// The attempt that is no longer needed once this one has started.
pub fn before_last(attempt: &Attempt) -> Option<Attempt> {
    Some(Attempt { number: attempt.number.checked_sub(2)?, ..attempt.clone() })
}

/// All attempts of a Pod, in order.
pub fn of_pod<'a>(
    records: &'a BTreeMap<Attempt, Record>,
    pod: &'a PodUid,
) -> impl Iterator<Item = (&'a Attempt, &'a Record)> {
    let first = Attempt { pod: pod.clone(), container: "".into(), number: 0 };
    records.range(first..).take_while(move |(attempt, _)| attempt.pod == *pod)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const AT: Timestamp = Timestamp::from_seconds(1_800_000_000);

    fn attempt(pod: u128, number: u32) -> Attempt {
        Attempt { pod: PodUid::from_u128(pod), container: "main".into(), number }
    }

    fn started() -> Started {
        Started { at: AT, boot: "boot".into(), pod: "default/pod".into(), source: None }
    }

    fn running() -> RunningProcess {
        RunningProcess { pid: 7, since: 9, until: 9 }
    }

    fn exit(message: &str) -> Exit {
        Exit { code: 3, signal: None, out_of_memory: false, started_at: AT, finished_at: AT, message: message.into() }
    }

    fn open(dir: &tempfile::TempDir) -> Journal {
        Journal::open(&dir.path().join("journal")).unwrap().0
    }

    #[test]
    fn every_torn_journal_says_less_and_never_something_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let mut journal = open(&dir);
        journal.begin(&attempt(1, 0), started()).unwrap();
        let first = journal.length as usize;
        journal.running(&attempt(1, 0), running());
        journal.write_pending();
        let second = journal.length as usize;
        journal.ended(&attempt(1, 0), &exit("so \"it\"\nended")).unwrap();
        let whole = fs::read(&path).unwrap();
        for length in 0..=whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let (journal, silent) = Journal::open(&path).unwrap();
            assert_eq!(journal.length + silent, length as u64);
            let record = journal.records.get(&attempt(1, 0));
            assert_eq!(record.is_some(), length >= first, "{length}");
            let Some(record) = record else { continue };
            assert_eq!(record.running.is_some(), length >= second, "{length}");
            assert_eq!(record.end.is_some(), length == whole.len(), "{length}");
            assert_eq!(record.started, started());
        }
        let journal = open(&dir);
        assert_eq!(journal.records[&attempt(1, 0)].end, Some(End::Exited(exit("so \"it\"\nended"))));
        assert_eq!(journal.open, 0);
    }

    #[test]
    fn a_line_that_waits_is_written_before_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = open(&dir);
        journal.begin(&attempt(1, 0), started()).unwrap();
        journal.running(&attempt(1, 0), running());
        assert_eq!(open(&dir).records[&attempt(1, 0)].running, None, "it waits");
        assert_eq!(journal.records[&attempt(1, 0)].running, Some(running()));
        journal.begin(&attempt(2, 0), started()).unwrap();
        assert_eq!(open(&dir).records, journal.records);
        journal.running(&attempt(2, 0), running());
        journal.write_pending();
        assert_eq!(open(&dir).records, journal.records);
        let whole = fs::read_to_string(dir.path().join("journal")).unwrap();
        let kinds: Vec<_> = whole.lines().map(|line| line.split('"').nth(1).unwrap()).collect();
        assert_eq!(kinds, ["started", "running", "started", "running"]);
        assert!(journal.claimed >= journal.length + journal.open * LINE);
    }

    #[test]
    fn what_follows_half_a_line_takes_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        open(&dir).begin(&attempt(1, 0), started()).unwrap();
        let mut torn = fs::read(&path).unwrap();
        torn.extend_from_slice(b"{\"ended\":[{\"code\":0,\"sig");
        fs::write(&path, torn).unwrap();
        let mut journal = open(&dir);
        journal.lost(&attempt(1, 0), AT, "killed, and nobody saw it happen").unwrap();
        journal.ended(&attempt(1, 0), &exit("")).unwrap();
        let end = open(&dir).records[&attempt(1, 0)].end.clone();
        assert!(matches!(end, Some(End::Lost(_))), "what was said first holds");
    }

    #[test]
    fn an_attempt_is_begun_once_unless_it_never_ran() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = open(&dir);
        journal.begin(&attempt(1, 0), started()).unwrap();
        let again = journal.begin(&attempt(1, 0), started()).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        let mut journal = open(&dir);
        assert!(journal.begin(&attempt(1, 0), started()).is_err(), "in another life, too");
        journal.erase(&attempt(1, 0));
        journal.begin(&attempt(1, 0), started()).unwrap();
    }

    #[test]
    fn a_pod_is_forgotten_with_all_its_attempts_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = open(&dir);
        for attempt in [attempt(1, 0), attempt(1, 1), attempt(2, 0)] {
            journal.begin(&attempt, started()).unwrap();
        }
        journal.forget(&PodUid::from_u128(1));
        for journal in [journal, open(&dir)] {
            assert_eq!(journal.records.keys().collect::<Vec<_>>(), [&attempt(2, 0)]);
            assert_eq!(journal.open, 1);
        }
    }

    #[test]
    fn what_is_written_anew_says_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = open(&dir);
        for pod in 0..4 {
            journal.begin(&attempt(pod, 0), started()).unwrap();
        }
        journal.running(&attempt(1, 0), running());
        journal.ended(&attempt(2, 0), &exit("words")).unwrap();
        journal.lost(&attempt(3, 0), AT, "lost").unwrap();
        let (before, length) = (journal.records.clone(), journal.length);
        journal.begin(&attempt(9, 0), started()).unwrap();
        journal.forget(&PodUid::from_u128(9));
        journal.renew().unwrap();
        assert!(journal.length <= length);
        for journal in [&journal, &open(&dir)] {
            assert_eq!(journal.records, before);
            assert_eq!(journal.open, 2);
        }
        journal.ended(&attempt(0, 0), &exit("later")).unwrap();
        assert_eq!(open(&dir).records[&attempt(0, 0)].end, Some(End::Exited(exit("later"))));
    }

    #[test]
    fn of_many_restarts_the_last_two_are_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = open(&dir);
        for number in 0..5 {
            journal.begin(&attempt(1, number), started()).unwrap();
            journal.ended(&attempt(1, number), &exit("")).unwrap();
        }
        for journal in [&journal, &open(&dir)] {
            assert_eq!(journal.records.keys().collect::<Vec<_>>(), [&attempt(1, 3), &attempt(1, 4)]);
        }
    }

    #[test]
    fn long_messages_take_no_room_from_others() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = open(&dir);
        for pod in 0..20 {
            journal.begin(&attempt(pod, 0), started()).unwrap();
        }
        for pod in 0..20 {
            journal.ended(&attempt(pod, 0), &exit(&"\u{1}".repeat(4096))).unwrap();
            assert!(journal.claimed >= journal.length + journal.open * LINE, "after {pod}");
        }
    }

    #[test]
    fn the_past_is_let_go() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = open(&dir);
        let mut longest = 0;
        for pod in 0..20_000 {
            journal.begin(&attempt(pod, 0), started()).unwrap();
            journal.ended(&attempt(pod, 0), &exit("")).unwrap();
            journal.forget(&PodUid::from_u128(pod));
            longest = longest.max(fs::metadata(dir.path().join("journal")).unwrap().len());
        }
        assert!(longest < 2 * RENEW_FROM, "{longest}");
        assert!(open(&dir).records.is_empty());
    }
}
