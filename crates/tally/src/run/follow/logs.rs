//! The output of Pods. The node decides where it is stored; this is all that `tally run` needs to know.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use tally_core::ids::PodUid;
use tally_node::logs::{self, LogReadOptions, Reader};
use tally_node::port::Attempt;

/// The identity of a Pod, as the node uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodId {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub container: String,
    /// Without the line terminator.
    pub text: String,
}

/// How far a reader has read: a position in each log of a Pod, by an arbitrary name of the log. A container that
/// restarts has a new log, which is read from its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor(pub std::collections::BTreeMap<String, u64>);

pub trait Logs: Send + Sync {
    /// The last lines of a container, or of all containers if the name is empty; of the given run, or of the last one.
    /// Empty if there is no log any more.
    fn tail(&self, pod: &PodId, container: &str, number: Option<u32>, most: usize) -> Vec<String>;

    /// Returns complete lines after the cursor, at most `most`, and advances it. `ended`: nothing more will be written,
    /// so an incomplete last line is returned, too. Empty: there is no more for now.
    fn read(&self, pod: &PodId, cursor: &mut Cursor, ended: bool, most: usize) -> Vec<Line>;
}

/// A line longer than this is split: a process that prints a gigabyte without a line break writes several lines.
const LONGEST_LINE: usize = 64 * 1024;

/// The logs of the processes of this machine.
pub struct ProcessLogs {
    root: PathBuf,
    /// Logs that are being read.
    open: Mutex<BTreeMap<Attempt, Reading>>,
}

struct Reading {
    reader: Reader,
    /// Complete lines that are not returned yet.
    lines: VecDeque<String>,
    half: Vec<u8>,
}

/// In a cursor: this log has been read to its end.
const READ: u64 = 1;

impl ProcessLogs {
    pub fn new(root: PathBuf) -> Self {
        Self { root, open: Mutex::default() }
    }
}

impl Logs for ProcessLogs {
    fn tail(&self, pod: &PodId, container: &str, number: Option<u32>, most: usize) -> Vec<String> {
        let uid = PodUid::new(&pod.uid);
        let mut newest: BTreeMap<&str, &Attempt> = BTreeMap::new();
        let attempts = logs::attempts(&self.root, &uid);
        for attempt in attempts.iter().filter(|attempt| container.is_empty() || attempt.container == container) {
            if number.is_none_or(|number| number == attempt.number) {
                newest.insert(&attempt.container, attempt);
            }
        }
        let options = LogReadOptions { tail_lines: Some(most as u64), ..LogReadOptions::default() };
        let mut lines = Vec::new();
        for attempt in newest.into_values() {
            let Ok(mut reader) = logs::open(&self.root, attempt, options.clone()) else { continue };
            let mut text = Vec::new();
            while let Ok(Some(chunk)) = reader.read() {
                text.extend_from_slice(&chunk);
            }
            lines.extend(String::from_utf8_lossy(&text).lines().map(str::to_owned));
        }
        lines.split_off(lines.len().saturating_sub(most))
    }

    fn read(&self, pod: &PodId, cursor: &mut Cursor, ended: bool, most: usize) -> Vec<Line> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = Vec::new();
        let uid = PodUid::new(&pod.uid);
        let mut attempts: BTreeSet<Attempt> = logs::attempts(&self.root, &uid).into_iter().collect();
        // The directory is removed with the Pod, but an open file can still be read to its end.
        let first = Attempt { pod: uid.clone(), container: Default::default(), number: 0 };
        attempts.extend(open.range(first..).map(|(attempt, _)| attempt).take_while(|it| it.pod == uid).cloned());
        let attempts: Vec<Attempt> = attempts.into_iter().collect();
        for (at, attempt) in attempts.iter().enumerate() {
            let key = format!("{}/{}", attempt.container, attempt.number);
            if cursor.0.get(&key) == Some(&READ) {
                continue;
            }
            // A container that was restarted no longer writes to this log.
            let over = ended || attempts.get(at + 1).is_some_and(|next| next.container == attempt.container);
            if !open.contains_key(attempt) {
                let Ok(reader) = logs::open(&self.root, attempt, LogReadOptions::default()) else { continue };
                open.insert(attempt.clone(), Reading { reader, lines: VecDeque::new(), half: Vec::new() });
            }
            let Some(reading) = open.get_mut(attempt) else { continue };
            while lines.len() < most
                && let Some(text) = reading.line(over)
            {
                lines.push(Line { container: attempt.container.to_string(), text });
            }
            if lines.len() >= most {
                break;
            }
            if over {
                open.remove(attempt);
                cursor.0.insert(key, READ);
            }
        }
        lines
    }
}

impl Reading {
    /// The next complete line; with `over`, also a last line without a terminator.
    fn line(&mut self, over: bool) -> Option<String> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
            // If reading fails, the log ends here.
            let Some(chunk) = self.reader.read().ok().flatten() else { break };
            self.half.extend_from_slice(&chunk);
            while let Some(end) = memchr::memchr(b'\n', &self.half) {
                self.lines.push_back(String::from_utf8_lossy(&self.half[..end]).into_owned());
                self.half.drain(..=end);
            }
            if self.half.len() > LONGEST_LINE {
                break;
            }
        }
        let whole = (over && !self.half.is_empty()) || self.half.len() > LONGEST_LINE;
        whole.then(|| String::from_utf8_lossy(&std::mem::take(&mut self.half)).into_owned())
    }
}

/// Hollow nodes run no processes. The logs of their Pods say so, which makes the handling of logs visible.
pub struct HollowLogs;

impl HollowLogs {
    fn said(pod: &PodId) -> String {
        format!("{} ran nothing: its node is hollow", pod.name)
    }
}

impl Logs for HollowLogs {
    fn tail(&self, pod: &PodId, _: &str, _: Option<u32>, most: usize) -> Vec<String> {
        [Self::said(pod)].into_iter().take(most).collect()
    }

    fn read(&self, pod: &PodId, cursor: &mut Cursor, ended: bool, most: usize) -> Vec<Line> {
        if !ended || most == 0 || cursor.0.insert("main".to_owned(), 1).is_some() {
            return Vec::new();
        }
        vec![Line { container: "main".to_owned(), text: Self::said(pod) }]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::path::Path;

    use super::*;

    fn write(pod: &Path, log: &str, line: &str) {
        let mut file = fs::File::options().create(true).append(true).open(pod.join(log)).unwrap();
        writeln!(file, "2026-01-31T12:00:00.123456789Z stdout F {line}").unwrap();
    }

    fn texts(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn the_last_words_are_read_though_the_pod_has_gone() {
        let root = tempfile::tempdir().unwrap();
        let id = PodId { uid: "00000000-0000-0000-0000-000000000007".to_owned(), ..PodId::default() };
        let pod = root.path().join("pods").join(&id.uid);
        fs::create_dir_all(&pod).unwrap();
        fs::write(pod.join("main.0.record"), "").unwrap();
        write(&pod, "main.0.0.log", "one");
        let (logs, mut cursor) = (ProcessLogs::new(root.path().to_owned()), Cursor::default());
        assert_eq!(texts(&logs.read(&id, &mut cursor, false, 9)), ["one"]);
        write(&pod, "main.0.0.log", "last words");
        fs::rename(&pod, root.path().join("gone")).unwrap();
        assert_eq!(texts(&logs.read(&id, &mut cursor, true, 9)), ["last words"]);
        assert!(logs.read(&id, &mut cursor, true, 9).is_empty());
        assert!(logs.open.lock().unwrap().is_empty(), "nothing stays open of a Pod that has gone");
    }
}
