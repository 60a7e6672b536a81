//! The results of tasks: a directory for each, with its output, exit code and times.
//!
//! ```text
//! DIR/INDEX/stdout, stderr          every byte that its processes wrote
//! DIR/INDEX/result.json             how it ended
//! DIR/.partial-BOOT-PID/...         what is being written; PID is the shim
//! ```
//!
//! A result is written under another name and appears by one rename, before the end of the attempt is recorded. So after
//! a crash at any point a result is complete or absent, and an attempt that is recorded as ended has a result.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::process::Pid;
use serde_json::json;
use tally_core::time::Timestamp;

use super::log::Stream;
use super::processes;
use crate::attempts::ResourceUsage;
use crate::output::OutputSource;
use crate::port::{Attempt, Exit};

const PREFIX: &str = ".partial-";

/// The directory for results that are not complete.
pub struct PartialResults {
    path: PathBuf,
}

impl PartialResults {
    /// `directory`: where the results go. Removes what killed processes of this machine have left there.
    pub fn new(directory: &Path, boot: &str) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let boot: String = boot.chars().filter(char::is_ascii_hexdigit).take(8).collect();
        let own = format!("{PREFIX}{boot}-");
        for entry in fs::read_dir(directory)?.flatten() {
            let name = entry.file_name();
            let pid =
                name.to_str().and_then(|name| name.strip_prefix(&own)?.parse::<i32>().ok()).and_then(Pid::from_raw);
            // A process that was killed and not reaped writes nothing more.
            if pid.is_some_and(|pid| processes::look(pid).is_none_or(|process| process.zombie)) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let path = directory.join(format!("{own}{}", std::process::id()));
        // A process that had the same number may have been killed here.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path)?;
        Ok(Self { path })
    }

    pub fn begin(&self, attempt: &Attempt, to: PathBuf) -> io::Result<ResultFiles> {
        let partial = self.path.join(processes::mark(attempt).replace('/', "."));
        fs::create_dir(&partial)?;
        let files = [File::create(partial.join("stdout"))?, File::create(partial.join("stderr"))?];
        Ok(ResultFiles { partial, to, files, trouble: None })
    }
}

impl Drop for PartialResults {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The result of one attempt, which is not complete. Removed when dropped.
pub struct ResultFiles {
    partial: PathBuf,
    to: PathBuf,
    files: [File; 2],
    /// The first error.
    trouble: Option<io::Error>,
}

impl ResultFiles {
    pub fn write(&mut self, stream: Stream, bytes: &[u8]) {
        if self.trouble.is_none() {
            self.trouble = self.files[stream as usize].write_all(bytes).err();
        }
    }

    /// Puts the result in its place. It replaces that of an earlier attempt.
    pub fn publish(
        mut self,
        attempt: &Attempt,
        source: &OutputSource,
        exit: &Exit,
        usage: ResourceUsage,
    ) -> io::Result<()> {
        if let Some(error) = self.trouble.take() {
            return Err(error);
        }
        let seconds = (exit.finished_at.millis() - exit.started_at.millis()) as f64 / 1e3;
        let told = json!({
            "namespace": source.namespace, "job": source.job_name, "pod": source.pod, "index": source.index,
            "container": attempt.container, "restarts": attempt.number, "exitCode": exit.code, "signal": exit.signal,
            "outOfMemory": exit.out_of_memory, "startedAt": precise(exit.started_at),
            "finishedAt": precise(exit.finished_at), "seconds": seconds,
            "cpuSeconds": usage.cpu_micros as f64 / 1e6, "peakMemoryBytes": usage.peak_kib << 10,
            "peakMemoryIsBound": usage.peak_is_bound,
        });
        fs::write(self.partial.join("result.json"), format!("{told}\n"))?;
        if let Some(parent) = self.to.parent() {
            fs::create_dir_all(parent)?;
        }
        match fs::rename(&self.partial, &self.to) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTEMPTY | libc::EEXIST)) => {}
            outcome => return outcome,
        }
        // The result of an earlier attempt goes where the new one was, and is removed with it.
        let exchanged = renameat_with(CWD, &self.partial, CWD, &self.to, RenameFlags::EXCHANGE);
        if exchanged.is_err() {
            // Not every file system can exchange two names. Then there is no result for a moment, never half of one.
            let old = self.partial.with_extension("old");
            fs::rename(&self.to, &old)?;
            fs::rename(&self.partial, &self.to)?;
            self.partial = old;
        }
        Ok(())
    }
}

impl Drop for ResultFiles {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.partial);
    }
}

/// With milliseconds.
fn precise(at: Timestamp) -> String {
    at.to_string().replace('Z', &format!(".{:03}Z", at.millis().rem_euclid(1000)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tally_core::ids::PodUid;

    use super::*;

    fn attempt(number: u32) -> Attempt {
        Attempt { pod: PodUid::from_u128(7), container: "main".into(), number }
    }

    fn exit(code: i32) -> Exit {
        Exit {
            code,
            signal: None,
            out_of_memory: false,
            started_at: Timestamp::from_millis(1_000),
            finished_at: Timestamp::from_millis(3_250),
            message: String::new(),
        }
    }

    #[test]
    fn a_result_is_there_when_it_is_complete_and_replaces_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let results = PartialResults::new(dir.path(), "0123-4567-89").unwrap();
        let to = dir.path().join("3");
        let source = OutputSource { pod: "sum-3-x".into(), index: Some(3), ..OutputSource::default() };
        for (number, text) in [(0, &b"one\xff"[..]), (1, b"two"), (2, b"three")] {
            let mut files = results.begin(&attempt(number), to.clone()).unwrap();
            let before = fs::read(to.join("stdout")).ok();
            files.write(Stream::Stdout, text);
            files.write(Stream::Stderr, b"e");
            assert_eq!(fs::read(to.join("stdout")).ok(), before, "nothing shows before its end");
            let usage = ResourceUsage { cpu_micros: 1_500_000, peak_kib: 2, peak_is_bound: false };
            files.publish(&attempt(number), &source, &exit(number as i32), usage).unwrap();
            assert_eq!(fs::read(to.join("stdout")).unwrap(), text);
            assert_eq!(fs::read(to.join("stderr")).unwrap(), b"e");
            let told: serde_json::Value = serde_json::from_slice(&fs::read(to.join("result.json")).unwrap()).unwrap();
            assert_eq!(
                (&told["exitCode"], &told["seconds"], &told["index"]),
                (&number.into(), &2.25.into(), &3.into())
            );
            assert_eq!((&told["cpuSeconds"], &told["peakMemoryBytes"]), (&1.5.into(), &2048.into()));
            assert_eq!((&told["startedAt"], &told["pod"]), (&"1970-01-01T00:00:01.000Z".into(), &"sum-3-x".into()));
        }
        drop(results.begin(&attempt(3), dir.path().join("4")).unwrap());
        drop(results);
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["3"], "nothing else is left");
    }

    #[test]
    fn what_killed_processes_left_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let alive = format!(".partial-01234567-{}", std::os::unix::process::parent_id());
        let mut killed = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::from_child(&killed);
        while !processes::look(pid).unwrap().zombie {
            std::thread::yield_now();
        }
        let killed_name = format!(".partial-01234567-{}", killed.id());
        let names = [".partial-01234567-2147483647", alive.as_str(), ".partial-ffffffff-1", "7", killed_name.as_str()];
        for name in names {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let _results = PartialResults::new(dir.path(), "01234567-89ab").unwrap();
        assert_eq!(names.map(|name| dir.path().join(name).exists()), [false, true, true, true, false]);
        killed.wait().unwrap();
    }
}
