//! Readers of the logs of Pods: each line is printed once.

use std::collections::{BTreeMap, BTreeSet};

use super::logs::{Cursor, Line, Logs, PodId};
use crate::run::progress::view::PodText;

/// Maximum number of lines read from one Pod at a time: a Pod that writes endlessly does not delay the others.
const LINES_AT_ONCE: usize = 256;

/// The log readers: one per Pod that is running, or has ended and is not read to its end.
#[derive(Debug, Default)]
pub struct Readers {
    reading: BTreeMap<String, Reader>,
    /// Pods whose logs are read to the end. Forgotten when the Pod is deleted.
    read: BTreeSet<String>,
}

#[derive(Debug)]
pub struct Reader {
    pub pod: PodId,
    pub job: String,
    pub index: Option<u32>,
    pub several: bool,
    cursor: Cursor,
    ended: bool,
    /// The Pod is deleted: that its log was read need not be remembered.
    gone: bool,
}

impl Reader {
    /// Reads the available lines, or all lines if the Pod has ended. Returns whether the log is read to its end.
    fn read(&mut self, logs: &dyn Logs, tell: &mut impl FnMut(&Self, &Line)) -> bool {
        let mut cursor = std::mem::take(&mut self.cursor);
        loop {
            let lines = logs.read(&self.pod, &mut cursor, self.ended, LINES_AT_ONCE);
            lines.iter().for_each(|line| tell(self, line));
            if lines.is_empty() || !self.ended {
                break;
            }
        }
        self.cursor = cursor;
        self.ended
    }
}

impl Readers {
    /// Readers that skip these Pods.
    pub fn without(over: Vec<String>) -> Self {
        Self { reading: BTreeMap::new(), read: over.into_iter().collect() }
    }

    /// Returns whether the Pod has just started or has ended, so that its log should be read now.
    pub fn saw(&mut self, text: &PodText) -> bool {
        let metadata = &text.metadata;
        let (Some(job), false) = (metadata.job(), self.read.contains(&metadata.uid)) else { return false };
        if !text.status.has_started() {
            return false;
        }
        let begins = !self.reading.contains_key(&metadata.uid);
        let reader = self.reading.entry(metadata.uid.clone()).or_insert_with(|| Reader {
            pod: PodId {
                namespace: metadata.namespace.clone(),
                name: metadata.name.clone(),
                uid: metadata.uid.clone(),
            },
            job: job.to_owned(),
            index: metadata.index(),
            several: false,
            cursor: Cursor::default(),
            ended: false,
            gone: false,
        });
        reader.several = text.status.has_several();
        reader.ended |= text.status.has_ended();
        begins || reader.ended
    }

    pub fn lost(&mut self, text: &PodText) {
        self.read.remove(&text.metadata.uid);
        if let Some(reader) = self.reading.get_mut(&text.metadata.uid) {
            (reader.ended, reader.gone) = (true, true);
        }
    }

    /// No Pod writes any more.
    pub fn end(&mut self) {
        self.reading.values_mut().for_each(|reader| reader.ended = true);
    }

    /// Reads the logs of all Pods.
    pub fn read(&mut self, logs: &dyn Logs, mut tell: impl FnMut(&Reader, &Line)) {
        let read = &mut self.read;
        self.reading.retain(|uid, reader| {
            let over = reader.read(logs, &mut tell);
            if over && !reader.gone {
                read.insert(uid.clone());
            }
            !over
        });
    }

    /// Reads the log of one Pod.
    pub fn read_one(&mut self, uid: &str, logs: &dyn Logs, mut tell: impl FnMut(&Reader, &Line)) {
        let Some(reader) = self.reading.get_mut(uid) else { return };
        if reader.read(logs, &mut tell) {
            let gone = reader.gone;
            self.reading.remove(uid);
            if !gone {
                self.read.insert(uid.to_owned());
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Logs in which every Pod has written this many lines.
    struct Written(u64);

    impl Logs for Written {
        fn tail(&self, _: &PodId, _: &str, _: Option<u32>, _: usize) -> Vec<String> {
            Vec::new()
        }

        fn read(&self, _: &PodId, cursor: &mut Cursor, _: bool, most: usize) -> Vec<Line> {
            let at = cursor.0.entry("log".to_owned()).or_default();
            let until = self.0.min(*at + most as u64);
            let lines = (*at..until).map(|number| Line { container: "c".to_owned(), text: number.to_string() });
            let lines = lines.collect();
            *at = until;
            lines
        }
    }

    fn pod(phase: &str) -> PodText {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "p", "ownerReferences": [{"kind": "Job", "uid": "u", "controller": true}]},
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    fn told(readers: &mut Readers, written: u64) -> usize {
        let mut count = 0;
        readers.read(&Written(written), |_, _| count += 1);
        count
    }

    #[test]
    fn every_line_is_read_once() {
        let mut readers = Readers::default();
        readers.saw(&pod("Pending"));
        assert_eq!(told(&mut readers, 5), 0, "nothing runs yet");
        readers.saw(&pod("Running"));
        assert_eq!(told(&mut readers, 5), 5);
        assert_eq!(told(&mut readers, 7), 2);
        assert_eq!(told(&mut readers, 1000), LINES_AT_ONCE, "a Pod that writes much has its turn like the others");
        readers.saw(&pod("Succeeded"));
        assert_eq!(told(&mut readers, 1000), 1000 - 7 - LINES_AT_ONCE, "at the end, all of it");
        readers.saw(&pod("Succeeded"));
        assert_eq!(told(&mut readers, 1000), 0);
        readers.lost(&pod("Succeeded"));
        assert!(readers.read.is_empty() && readers.reading.is_empty());
    }

    #[test]
    fn a_pod_that_is_gone_is_read_to_its_end() {
        let mut readers = Readers::default();
        readers.saw(&pod("Running"));
        readers.lost(&pod("Running"));
        assert_eq!(told(&mut readers, 3), 3);
        assert!(readers.reading.is_empty() && readers.read.is_empty(), "nothing is remembered of it");
    }

    #[test]
    fn a_pod_is_looked_at_when_it_begins_and_when_it_ends() {
        let mut readers = Readers::default();
        let seen = ["Pending", "Running", "Running", "Succeeded"].map(|phase| readers.saw(&pod(phase)));
        assert_eq!(seen, [false, true, false, true]);
        let mut count = 0;
        readers.read_one("p", &Written(300), |_, _| count += 1);
        assert_eq!(count, 300);
        assert!(!readers.saw(&pod("Succeeded")), "it has been read");
    }
}
