//! The records of attempts that have ended: how each ended, when, and what it used. They stay when the Pods are gone.
//!
//! ```text
//! ROOT/attempts/UID          a line of JSON for every attempt of the Job with this UID, after a line about the Job
//! ROOT/attempts/UID.old      the lines before those
//! ROOT/attempts/dropped      how many Jobs and attempts were removed because there were too many
//! ```
//!
//! The shim writes them (`shim/recorder.rs`) and says there why no attempt that was counted lacks its record. Any process
//! may read them at any time: lines are only appended, and a line without its newline is not complete.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

/// What a process and the descendants that it waited for have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceUsage {
    /// Processor time, of the user and of the system, in microseconds.
    pub cpu_micros: u64,
    /// The largest resident set size of one process, in KiB.
    pub peak_kib: u64,
    /// The kernel includes the memory of the shim, from which the process was started, and the process has used no more
    /// than that: the peak is less than what is given.
    pub peak_is_bound: bool,
}

/// The line about the Job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedJob {
    pub namespace: CompactString,
    pub name: CompactString,
    pub uid: CompactString,
    /// How many of its oldest records were removed.
    #[serde(default)]
    pub dropped: u64,
}

/// The line about one attempt. Names are short: there may be 100,000 of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// The name of the Pod.
    #[serde(rename = "p")]
    pub pod: CompactString,
    #[serde(rename = "u")]
    pub pod_uid: CompactString,
    #[serde(rename = "c")]
    pub container: CompactString,
    /// How often the Pod had restarted the container before.
    #[serde(rename = "r", default, skip_serializing_if = "is_zero")]
    pub restarts: u32,
    /// The completion index; in a part of a list, the index in the whole list.
    #[serde(rename = "i", default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// From 1: earlier attempts of the same index did not succeed.
    #[serde(rename = "a")]
    pub attempt: u32,
    /// In milliseconds since 1970.
    #[serde(rename = "s")]
    pub started_at: i64,
    #[serde(rename = "e")]
    pub finished_at: i64,
    /// None: the attempt is lost. Its end was not observed, or it was killed because the node stopped.
    #[serde(rename = "x", default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(rename = "g", default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    #[serde(rename = "o", default, skip_serializing_if = "std::ops::Not::not")]
    pub out_of_memory: bool,
    #[serde(rename = "t", default)]
    pub cpu_micros: u64,
    #[serde(rename = "m", default)]
    pub peak_kib: u64,
    /// It has used at most that.
    #[serde(rename = "b", default, skip_serializing_if = "std::ops::Not::not")]
    pub peak_is_bound: bool,
    /// The beginning of the termination message, or why the attempt is lost.
    #[serde(rename = "w", default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl AttemptRecord {
    pub fn succeeded(&self) -> bool {
        self.exit_code == Some(0)
    }

    pub fn millis(&self) -> u64 {
        u64::try_from(self.finished_at.saturating_sub(self.started_at)).unwrap_or(0)
    }
}

/// The records of a Job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobRecords {
    pub job: RecordedJob,
    /// In the order in which the attempts ended.
    pub attempts: Vec<AttemptRecord>,
}

/// What was removed because there were too many Jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedRecords {
    pub jobs: u64,
    pub attempts: u64,
}

/// The paths of the records below the root of a node.
#[derive(Clone, Debug)]
pub struct RecordPaths {
    directory: PathBuf,
}

impl RecordPaths {
    pub fn new(root: &Path) -> Self {
        Self { directory: root.join("attempts") }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn newer(&self, job: &str) -> PathBuf {
        self.directory.join(job)
    }

    pub fn older(&self, job: &str) -> PathBuf {
        self.directory.join(format!("{job}.old"))
    }

    pub fn dropped(&self) -> PathBuf {
        self.directory.join("dropped")
    }

    /// A UID names a file only if it can be no other path.
    pub fn is_name(job: &str) -> bool {
        (1..=100).contains(&job.len()) && job.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    }
}

/// The records of one Job, by its UID. None: there are none.
pub fn read(root: &Path, job: &str) -> io::Result<Option<JobRecords>> {
    let paths = RecordPaths::new(root);
    if !RecordPaths::is_name(job) {
        return Ok(None);
    }
    // The newer file first: if it becomes the older one meanwhile, its lines are read twice, and none is missed.
    let newer = read_file(&paths.newer(job))?;
    let older = read_file(&paths.older(job))?;
    let (Some(job), newer) = (match newer {
        Some((job, lines)) => (job, lines),
        None => (None, Vec::new()),
    }) else {
        return Ok(older.and_then(|(job, attempts)| Some(JobRecords { job: job?, attempts: last_lines(attempts) })));
    };
    let mut attempts = older.map(|(_, lines)| lines).unwrap_or_default();
    attempts.extend(newer);
    Ok(Some(JobRecords { job, attempts: last_lines(attempts) }))
}

/// The last line about an attempt holds.
fn last_lines(lines: Vec<AttemptRecord>) -> Vec<AttemptRecord> {
    let mut places: BTreeMap<(CompactString, CompactString, u32), usize> = BTreeMap::new();
    let mut attempts: Vec<AttemptRecord> = Vec::with_capacity(lines.len());
    for line in lines {
        let place =
            *places.entry((line.pod_uid.clone(), line.container.clone(), line.restarts)).or_insert(attempts.len());
        match attempts.get_mut(place) {
            Some(before) => *before = line,
            None => attempts.push(line),
        }
    }
    attempts
}

type FileLines = (Option<RecordedJob>, Vec<AttemptRecord>);

fn read_file(path: &Path) -> io::Result<Option<FileLines>> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let (mut job, mut attempts) = (None, Vec::new());
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        // The last line may be incomplete, and one that a full disk has cut may be in the middle.
        if line.ends_with(b"\n") {
            match job {
                None => job = serde_json::from_slice(&line).ok(),
                Some(_) => attempts.extend(serde_json::from_slice::<AttemptRecord>(&line).ok()),
            }
        }
        line.clear();
    }
    Ok(Some((job, attempts)))
}

/// All Jobs that have records, those that were written last at the end.
pub fn jobs(root: &Path) -> io::Result<Vec<RecordedJob>> {
    let paths = RecordPaths::new(root);
    let mut found = Vec::new();
    for (name, written_at) in job_files(&paths)? {
        let mut first = String::new();
        let read = fs::File::open(paths.newer(&name)).and_then(|file| BufReader::new(file).read_line(&mut first));
        if read.is_ok()
            && let Ok(job) = serde_json::from_str::<RecordedJob>(&first)
        {
            found.push((written_at, job));
        }
    }
    found.sort_by(|one, other| (one.0, &one.1.uid).cmp(&(other.0, &other.1.uid)));
    Ok(found.into_iter().map(|(_, job)| job).collect())
}

/// The names of the newer files, and when each was written.
pub(crate) fn job_files(paths: &RecordPaths) -> io::Result<Vec<(String, std::time::SystemTime)>> {
    let entries = match fs::read_dir(paths.directory()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "dropped"
            && RecordPaths::is_name(&name)
            && let Ok(found) = entry.metadata()
        {
            files.push((name, found.modified().unwrap_or(std::time::UNIX_EPOCH)));
        }
    }
    Ok(files)
}

pub fn dropped(root: &Path) -> DroppedRecords {
    let text = fs::read(RecordPaths::new(root).dropped()).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}
