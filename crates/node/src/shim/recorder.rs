//! Writes the records of attempts (`crate::attempts`), and the log of `tally run --joblog`.
//!
//! A record is written before the end of the attempt is in the journal, and that is before the end is reported. So every
//! end that was acted upon has a record. A record whose attempt the journal does not know as ended is corrected at the
//! next start (`lost`).
//!
//! A record that cannot be written, because the disk is full, does not stop anything: the journal has space of its own.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::SystemTime;

use compact_str::CompactString;
use tally_core::time::Timestamp;

use crate::attempts::{self, AttemptRecord, DroppedRecords, RecordPaths, RecordedJob, ResourceUsage};
use crate::output::OutputSource;
use crate::port::{Attempt, Exit};

/// The longest file. A Job has two: about 100,000 attempts.
const LONGEST_FILE: u64 = 8 << 20;
/// The limit of all files together.
const MOST_BYTES: u64 = 64 << 20;
const MOST_JOBS: usize = 1_000;
/// Files that stay open.
const MOST_OPEN: usize = 32;
/// The part of a termination message that is kept.
const LONGEST_MESSAGE: usize = 256;

/// The limits of the records; smaller in tests.
#[derive(Clone, Copy, Debug)]
pub struct RecordLimits {
    pub file: u64,
    pub bytes: u64,
    pub jobs: usize,
}

impl Default for RecordLimits {
    fn default() -> Self {
        Self { file: LONGEST_FILE, bytes: MOST_BYTES, jobs: MOST_JOBS }
    }
}

/// How an attempt ended.
pub enum AttemptEnd<'a> {
    Exited(&'a Exit, ResourceUsage),
    Lost { started_at: Timestamp, at: Timestamp, why: &'a str },
}

pub struct AttemptRecorder {
    /// None: no records are kept.
    files: Option<RecordFiles>,
    /// Attempts that did not succeed, for the numbers of the next ones. By Job, index and container.
    unsuccessful: BTreeMap<(CompactString, Option<u32>, CompactString), u32>,
}

impl AttemptRecorder {
    /// `root`: of the node, if the records are kept.
    pub fn new(root: Option<&Path>, limits: RecordLimits) -> Self {
        let files = root.map(|root| RecordFiles::new(RecordPaths::new(root), limits));
        Self { files, unsuccessful: BTreeMap::new() }
    }

    pub fn keeps(&self) -> bool {
        self.files.is_some()
    }

    /// Records an end. Also returns why the record could not be stored.
    pub fn record(
        &mut self,
        source: &OutputSource,
        attempt: &Attempt,
        end: &AttemptEnd<'_>,
    ) -> (AttemptRecord, io::Result<()>) {
        let mut record = AttemptRecord {
            pod: source.pod.clone(),
            pod_uid: attempt.pod.to_string().into(),
            container: attempt.container.clone(),
            restarts: attempt.number,
            index: source.index,
            ..AttemptRecord::default()
        };
        match end {
            AttemptEnd::Exited(exit, usage) => {
                (record.started_at, record.finished_at) = (exit.started_at.millis(), exit.finished_at.millis());
                (record.exit_code, record.signal) = (Some(exit.code), exit.signal);
                record.out_of_memory = exit.out_of_memory;
                (record.cpu_micros, record.peak_kib) = (usage.cpu_micros, usage.peak_kib);
                record.peak_is_bound = usage.peak_is_bound;
                record.message = beginning(&exit.message);
            }
            AttemptEnd::Lost { started_at, at, why } => {
                (record.started_at, record.finished_at) = (started_at.millis(), at.millis());
                record.message = beginning(why);
            }
        }
        // Before the number is chosen: an earlier run may have had attempts of the same index.
        let opened = match &mut self.files {
            Some(files) if RecordPaths::is_name(&source.job) => files.open(source, &mut self.unsuccessful),
            _ => Ok(()),
        };
        let key = (source.job.clone(), source.index, attempt.container.clone());
        let before = self.unsuccessful.get(&key).copied().unwrap_or(0);
        record.attempt = before.saturating_add(1);
        if !record.succeeded() {
            self.unsuccessful.insert(key, record.attempt);
        } else if source.index.is_some() {
            // An index that has succeeded is not run again.
            self.unsuccessful.remove(&key);
        }
        let written = match &mut self.files {
            Some(files) if RecordPaths::is_name(&source.job) => opened.and_then(|()| files.append(source, &record)),
            _ => Ok(()),
        };
        // A process that runs for months must not remember every Job.
        for job in self.files.iter_mut().flat_map(|files| files.removed.drain(..)) {
            let first = (job.clone(), None, CompactString::default());
            let its = self.unsuccessful.range(first..).map(|(key, _)| key).take_while(|key| key.0 == job);
            for key in its.cloned().collect::<Vec<_>>() {
                self.unsuccessful.remove(&key);
            }
        }
        (record, written)
    }
}

/// The beginning of a text that comes from a process.
fn beginning(text: &str) -> String {
    text.char_indices().take_while(|(at, _)| *at < LONGEST_MESSAGE).map(|(_, letter)| letter).collect()
}

/// The files of all Jobs.
struct RecordFiles {
    paths: RecordPaths,
    limits: RecordLimits,
    /// What is on disk. Read when the first record is written. By UID.
    jobs: Option<BTreeMap<CompactString, JobFile>>,
    dropped: DroppedRecords,
    /// Jobs whose files were removed, until the recorder has forgotten them, too.
    removed: Vec<CompactString>,
    /// Counts the writes: the Job with the lowest number was written longest ago.
    clock: u64,
}

#[derive(Default)]
struct JobFile {
    /// None: it is on disk and was not written since the start.
    known: Option<KnownFile>,
    size: u64,
    written: u64,
}

struct KnownFile {
    file: Option<File>,
    length: u64,
    lines: u64,
    old_lines: u64,
    dropped: u64,
}

impl RecordFiles {
    fn new(paths: RecordPaths, limits: RecordLimits) -> Self {
        Self { paths, limits, jobs: None, dropped: DroppedRecords::default(), removed: Vec::new(), clock: 0 }
    }

    fn size(path: &Path) -> u64 {
        fs::metadata(path).map_or(0, |found| found.len())
    }

    fn load(&mut self) -> io::Result<()> {
        if self.jobs.is_some() {
            return Ok(());
        }
        DirBuilder::new().recursive(true).mode(0o700).create(self.paths.directory())?;
        let mut found: Vec<(SystemTime, String)> =
            attempts::job_files(&self.paths)?.into_iter().map(|(name, written_at)| (written_at, name)).collect();
        found.sort_unstable();
        let mut jobs = BTreeMap::new();
        for (_, name) in found {
            let size = Self::size(&self.paths.newer(&name)) + Self::size(&self.paths.older(&name));
            self.clock += 1;
            jobs.insert(name.into(), JobFile { known: None, size, written: self.clock });
        }
        let root = self.paths.directory().parent().map(attempts::dropped);
        self.dropped = root.unwrap_or_default();
        self.jobs = Some(jobs);
        Ok(())
    }

    /// Makes the file of a Job ready, and adds what it says about earlier attempts.
    fn open(
        &mut self,
        source: &OutputSource,
        unsuccessful: &mut BTreeMap<(CompactString, Option<u32>, CompactString), u32>,
    ) -> io::Result<()> {
        self.load()?;
        let Some(jobs) = &mut self.jobs else { return Ok(()) };
        if jobs.get(&source.job).is_some_and(|job| job.known.as_ref().is_some_and(|known| known.file.is_some())) {
            return Ok(());
        }
        let open = |job: &JobFile| job.known.as_ref().is_some_and(|known| known.file.is_some());
        if jobs.values().filter(|job| open(job)).count() >= MOST_OPEN
            && let Some(oldest) = jobs.values_mut().filter(|job| open(job)).min_by_key(|job| job.written)
            && let Some(known) = &mut oldest.known
        {
            known.file = None;
        }
        let path = self.paths.newer(&source.job);
        let mut file = File::options().read(true).append(true).create(true).mode(0o600).open(&path)?;
        let job = jobs.entry(source.job.clone()).or_default();
        if let Some(known) = &mut job.known {
            known.file = Some(file);
            return Ok(());
        }
        let mut text = Vec::new();
        io::Read::read_to_end(&mut file, &mut text)?;
        // A partial line, which a killed process may leave.
        let whole = memchr::memrchr(b'\n', &text).map_or(0, |end| end + 1);
        if whole < text.len() {
            file.set_len(whole as u64)?;
            text.truncate(whole);
        }
        let mut lines = 0;
        for line in text.split_inclusive(|&byte| byte == b'\n').skip(1) {
            lines += 1;
            if let Ok(record) = serde_json::from_slice::<AttemptRecord>(line)
                && !record.succeeded()
            {
                let key = (source.job.clone(), record.index, record.container);
                let known = unsuccessful.entry(key).or_default();
                *known = record.attempt.max(*known);
            }
        }
        let header = text.split(|&byte| byte == b'\n').next().and_then(|line| serde_json::from_slice(line).ok());
        let dropped = header.map_or(0, |header: RecordedJob| header.dropped);
        let old_lines = count_lines(&self.paths.older(&source.job));
        let mut known = KnownFile { file: Some(file), length: whole as u64, lines, old_lines, dropped };
        if whole == 0 {
            known.begin(source)?;
        }
        job.size = known.length + Self::size(&self.paths.older(&source.job));
        job.known = Some(known);
        self.limit(&source.job);
        Ok(())
    }

    fn append(&mut self, source: &OutputSource, record: &AttemptRecord) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        self.clock += 1;
        let Some(job) = self.jobs.as_mut().and_then(|jobs| jobs.get_mut(&source.job)) else { return Ok(()) };
        let Some(known) = &mut job.known else { return Ok(()) };
        job.written = self.clock;
        let mut turned = false;
        if known.length + line.len() as u64 > self.limits.file && known.lines > 0 {
            fs::rename(self.paths.newer(&source.job), self.paths.older(&source.job))?;
            known.dropped += known.old_lines;
            (known.old_lines, known.lines, known.length) = (known.lines, 0, 0);
            let path = self.paths.newer(&source.job);
            known.file = Some(File::options().append(true).create_new(true).mode(0o600).open(path)?);
            known.begin(source)?;
            turned = true;
        }
        let Some(file) = &mut known.file else { return Ok(()) };
        if let Err(error) = file.write_all(&line) {
            // Half a line must not become the beginning of the next one.
            let _ = file.set_len(known.length);
            return Err(error);
        }
        known.length += line.len() as u64;
        known.lines += 1;
        job.size += line.len() as u64;
        if turned {
            job.size = known.length + Self::size(&self.paths.older(&source.job));
            self.limit(&source.job);
        }
        Ok(())
    }

    /// Removes the Jobs that were written longest ago while there is too much, except for this one.
    fn limit(&mut self, current: &str) {
        let Some(jobs) = &mut self.jobs else { return };
        let mut changed = false;
        while jobs.len() > self.limits.jobs || jobs.values().map(|job| job.size).sum::<u64>() > self.limits.bytes {
            let others = jobs.iter().filter(|(name, _)| *name != current);
            let Some(oldest) = others.min_by_key(|(_, job)| job.written).map(|(name, _)| name.clone()) else { break };
            let [newer, older] = [self.paths.newer(&oldest), self.paths.older(&oldest)];
            self.dropped.jobs += 1;
            self.dropped.attempts += count_lines(&newer) + count_lines(&older);
            let _ = fs::remove_file(older);
            let _ = fs::remove_file(newer);
            jobs.remove(&oldest);
            self.removed.push(oldest);
            changed = true;
        }
        if changed && let Ok(text) = serde_json::to_vec(&self.dropped) {
            // Replaced in one step, for those who read it.
            let new = self.paths.dropped().with_extension("new");
            let _ = fs::write(&new, text).and_then(|()| fs::rename(&new, self.paths.dropped()));
        }
    }
}

impl KnownFile {
    /// Writes the line about the Job.
    fn begin(&mut self, source: &OutputSource) -> io::Result<()> {
        let job = RecordedJob {
            namespace: source.namespace.clone(),
            name: source.job_name.clone(),
            uid: source.job.clone(),
            dropped: self.dropped,
        };
        let mut line = serde_json::to_vec(&job)?;
        line.push(b'\n');
        if let Some(file) = &mut self.file {
            file.write_all(&line)?;
        }
        self.length = line.len() as u64;
        Ok(())
    }
}

/// The number of attempts in a file.
fn count_lines(path: &Path) -> u64 {
    let text = fs::read(path).unwrap_or_default();
    (memchr::memchr_iter(b'\n', &text).count() as u64).saturating_sub(1)
}

/// The log of `--joblog`: a line for every attempt, in the columns of GNU parallel.
pub struct JobLog {
    file: File,
    /// The number of the next task without an index.
    next: u64,
}

impl JobLog {
    pub const HEADER: &str = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n";

    /// Appends to an existing file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::options().read(true).append(true).create(true).open(path)?;
        let mut text = Vec::new();
        io::Read::read_to_end(&mut file, &mut text)?;
        if text.is_empty() {
            file.write_all(Self::HEADER.as_bytes())?;
        } else if !text.ends_with(b"\n") {
            file.write_all(b"\n")?;
        }
        let lines = memchr::memchr_iter(b'\n', &text).count() as u64;
        Ok(Self { file, next: lines.max(1) })
    }

    /// `received`: the number of bytes that the attempt has printed. `command`: as in a shell.
    pub fn append(&mut self, record: &AttemptRecord, received: u64, command: &str) -> io::Result<()> {
        let number = record.index.map_or(self.next, |index| u64::from(index) + 1);
        self.next += 1;
        self.file.write_all(job_log_line(number, record, received, command).as_bytes())
    }
}

/// The number begins with 1. The exit value of an attempt that a signal ended is 0, and the signal has a column of its own.
/// That of a lost attempt is -1, as for a task that was not run to its end.
fn job_log_line(number: u64, record: &AttemptRecord, received: u64, command: &str) -> String {
    let (start, millis) = (record.started_at, record.millis());
    let exit = match (record.exit_code, record.signal) {
        (None, _) => -1,
        (Some(_), Some(_)) => 0,
        (Some(code), None) => code,
    };
    format!(
        "{number}\t:\t{}.{:03}\t{:>6}.{:03}\t0\t{received}\t{exit}\t{}\t{command}\n",
        start.div_euclid(1_000),
        start.rem_euclid(1_000),
        millis / 1_000,
        millis % 1_000,
        record.signal.unwrap_or(0),
    )
}

/// The words of a command, quoted for a shell where needed. Control characters, which would spoil the columns, are
/// written as in the `$'...'` of bash.
pub fn command_line(words: &[String]) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+:@%=,".contains(letter) || !letter.is_ascii();
    let quoted = |word: &String| {
        if !word.is_empty() && word.chars().all(|letter| plain(letter) && !letter.is_control()) {
            return word.clone();
        }
        if !word.chars().any(char::is_control) {
            return format!("'{}'", word.replace('\'', "'\\''"));
        }
        let mut text = String::from("$'");
        for letter in word.chars() {
            match letter {
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                '\'' | '\\' => text.extend(['\\', letter]),
                letter if letter.is_control() => text.push_str(&format!("\\u{:04x}", u32::from(letter))),
                letter => text.push(letter),
            }
        }
        text.push('\'');
        text
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tally_core::ids::PodUid;

    use super::*;

    const LIMITS: RecordLimits = RecordLimits { file: 1_000, bytes: 4_000, jobs: 3 };

    fn source(job: &str, index: Option<u32>) -> OutputSource {
        OutputSource {
            namespace: "default".into(),
            job: job.into(),
            job_name: format!("name-{job}").into(),
            pod: format!("{job}-pod").into(),
            index,
            several: false,
        }
    }

    fn attempt(pod: u128) -> Attempt {
        Attempt { pod: PodUid::from_u128(pod), container: "main".into(), number: 0 }
    }

    fn exit(code: i32) -> Exit {
        Exit {
            code,
            signal: None,
            out_of_memory: false,
            started_at: Timestamp::from_millis(1_700_000_000_250),
            finished_at: Timestamp::from_millis(1_700_000_001_500),
            message: String::new(),
        }
    }

    const USED: ResourceUsage = ResourceUsage { cpu_micros: 1_234, peak_kib: 5_678, peak_is_bound: false };

    fn record(recorder: &mut AttemptRecorder, job: &str, index: Option<u32>, pod: u128, code: i32) -> u32 {
        let exit = exit(code);
        let (record, written) = recorder.record(&source(job, index), &attempt(pod), &AttemptEnd::Exited(&exit, USED));
        written.unwrap();
        record.attempt
    }

    #[test]
    fn jobs_without_files_are_forgotten() {
        let root = tempfile::tempdir().unwrap();
        let mut recorder = AttemptRecorder::new(Some(root.path()), LIMITS);
        for (job, pod) in ["a", "b", "c", "d", "e", "d"].into_iter().zip(1..) {
            record(&mut recorder, job, None, pod, 1);
            record(&mut recorder, job, Some(7), 10 + pod, 1);
        }
        let known: Vec<_> =
            recorder.unsuccessful.iter().map(|((job, index, _), count)| (job.as_str(), *index, *count)).collect();
        let expected = [("c", 1), ("d", 2), ("e", 1)].map(|(job, count)| [(job, None, count), (job, Some(7), count)]);
        assert_eq!(known, expected.concat());
    }

    #[test]
    fn attempts_are_numbered_by_index_also_after_a_restart() {
        let root = tempfile::tempdir().unwrap();
        let mut recorder = AttemptRecorder::new(Some(root.path()), RecordLimits::default());
        assert_eq!(record(&mut recorder, "j", Some(0), 1, 1), 1);
        assert_eq!(record(&mut recorder, "j", Some(1), 2, 0), 1);
        assert_eq!(record(&mut recorder, "j", Some(0), 3, 1), 2);
        let mut recorder = AttemptRecorder::new(Some(root.path()), RecordLimits::default());
        assert_eq!(record(&mut recorder, "j", Some(0), 4, 0), 3);
        assert_eq!(record(&mut recorder, "k", None, 5, 1), 1);
        assert_eq!(record(&mut recorder, "k", None, 6, 0), 2, "without indexes Pods replace each other");
        let read = attempts::read(root.path(), "j").unwrap().unwrap();
        assert_eq!((read.job.name.as_str(), read.job.dropped), ("name-j", 0));
        let told: Vec<_> = read.attempts.iter().map(|it| (it.index, it.attempt, it.exit_code)).collect();
        let all = [(Some(0), 1, Some(1)), (Some(1), 1, Some(0)), (Some(0), 2, Some(1)), (Some(0), 3, Some(0))];
        assert_eq!(told, all);
        assert_eq!((read.attempts[0].cpu_micros, read.attempts[0].peak_kib), (1_234, 5_678));
        assert_eq!(read.attempts[0].millis(), 1_250);
        assert_eq!(attempts::jobs(root.path()).unwrap().len(), 2);
        assert_eq!(attempts::read(root.path(), "../j").unwrap(), None);
    }

    #[test]
    fn a_torn_line_is_dropped_and_the_last_word_about_an_attempt_holds() {
        let root = tempfile::tempdir().unwrap();
        let mut recorder = AttemptRecorder::new(Some(root.path()), RecordLimits::default());
        record(&mut recorder, "j", Some(0), 1, 0);
        drop(recorder);
        let path = RecordPaths::new(root.path()).newer("j");
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [&whole[..], b"{\"p\":\"ha"].concat()).unwrap();
        assert_eq!(attempts::read(root.path(), "j").unwrap().unwrap().attempts.len(), 1);
        let mut recorder = AttemptRecorder::new(Some(root.path()), RecordLimits::default());
        let at = Timestamp::from_millis(9);
        let lost = AttemptEnd::Lost { started_at: at, at, why: "the node stopped" };
        recorder.record(&source("j", Some(0)), &attempt(1), &lost).1.unwrap();
        let read = attempts::read(root.path(), "j").unwrap().unwrap();
        assert_eq!(read.attempts.len(), 1);
        assert_eq!((read.attempts[0].exit_code, read.attempts[0].message.as_str()), (None, "the node stopped"));
    }

    #[test]
    fn a_job_has_a_limit_and_says_how_many_were_dropped() {
        let root = tempfile::tempdir().unwrap();
        let mut recorder = AttemptRecorder::new(Some(root.path()), LIMITS);
        for number in 0..100 {
            if number == 50 {
                recorder = AttemptRecorder::new(Some(root.path()), LIMITS);
            }
            record(&mut recorder, "j", Some(number), u128::from(number), 0);
        }
        let read = attempts::read(root.path(), "j").unwrap().unwrap();
        assert_eq!(read.job.dropped + read.attempts.len() as u64, 100);
        assert!((5..20).contains(&read.attempts.len()), "{}", read.attempts.len());
        assert_eq!(read.attempts.last().unwrap().index, Some(99));
        let paths = RecordPaths::new(root.path());
        assert!([paths.newer("j"), paths.older("j")].iter().all(|path| fs::metadata(path).unwrap().len() <= 1_000));
    }

    #[test]
    fn the_oldest_jobs_go_first_and_are_counted() {
        let root = tempfile::tempdir().unwrap();
        let mut recorder = AttemptRecorder::new(Some(root.path()), LIMITS);
        for (at, job) in ["a", "b", "c", "d"].into_iter().enumerate() {
            record(&mut recorder, job, Some(0), at as u128, 1);
            // `a` is written again, so that `b` is the oldest.
            record(&mut recorder, "a", Some(0), 100 + at as u128, 1);
        }
        let left: Vec<_> = attempts::jobs(root.path()).unwrap().into_iter().map(|job| job.uid).collect();
        assert!(left.len() == 3 && !left.contains(&"b".into()), "{left:?}");
        assert_eq!(attempts::dropped(root.path()), DroppedRecords { jobs: 1, attempts: 1 });
        for at in 0..40 {
            record(&mut recorder, "e", Some(at), 200 + u128::from(at), 1);
            record(&mut recorder, "f", Some(at), 300 + u128::from(at), 1);
        }
        let bytes: u64 = fs::read_dir(root.path().join("attempts"))
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum();
        assert!(bytes < 4_200, "{bytes}");
    }

    #[test]
    fn job_logs_have_the_columns_of_gnu_parallel() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let base = AttemptRecord {
            started_at: 1_700_000_000_050,
            finished_at: 1_700_000_001_300,
            exit_code: Some(3),
            ..AttemptRecord::default()
        };
        let mut log = JobLog::open(&path).unwrap();
        log.append(&AttemptRecord { index: Some(4), ..base.clone() }, 7, "a b").unwrap();
        log.append(&AttemptRecord { exit_code: Some(137), signal: Some(9), ..base.clone() }, 0, "c").unwrap();
        drop(log);
        let mut log = JobLog::open(&path).unwrap();
        log.append(&AttemptRecord { exit_code: None, ..base }, 0, "d").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], JobLog::HEADER.trim_end());
        assert_eq!(lines[1], "5\t:\t1700000000.050\t     1.250\t0\t7\t3\t0\ta b");
        assert_eq!(lines[2], "2\t:\t1700000000.050\t     1.250\t0\t0\t0\t9\tc");
        assert_eq!(lines[3], "3\t:\t1700000000.050\t     1.250\t0\t0\t-1\t0\td");
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn commands_are_one_line_that_a_shell_reads_back() {
        for (words, expected) in [
            (&["echo", "a b"][..], "echo 'a b'"),
            (&["sh", "-c", "echo 'x' $y"], r"sh -c 'echo '\''x'\'' $y'"),
            (&["printf", "a\nb\tc'\\"], r"printf $'a\nb\tc\'\\'"),
            (&["", "\u{e9}"], "'' \u{e9}"),
        ] {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(command_line(&words), expected);
        }
    }
}
