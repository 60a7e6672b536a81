//! What an earlier run of the node left behind. No other shim uses the directory now (it is locked), so processes that
//! still run belong to no node, and are killed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use tally_core::ids::PodUid;

use super::journal::{self, End, Journal, Record};
use super::layout::Layout;
use super::now;
use super::processes::{self, Process};
use super::recorder::{AttemptEnd, AttemptRecorder};
use crate::port::{Attempt, Found, Report};

/// How long to wait until killed processes are gone.
const KILL_FOR: Duration = Duration::from_secs(10);

/// Kills what runs, completes the records and reports what they contain. Blocks: nothing else may happen meanwhile.
pub fn recover(
    layout: &Layout,
    journal: &mut Journal,
    recorder: &mut AttemptRecorder,
    boot: &str,
    mut note: impl FnMut(String),
) -> io::Result<Vec<Report>> {
    let open: Vec<(Attempt, Record)> = journal
        .records()
        .iter()
        .filter(|(_, record)| record.end.is_none())
        .map(|(attempt, record)| (attempt.clone(), record.clone()))
        .collect();
    end(layout, boot, &open, &mut note);
    for (attempt, record) in &open {
        let (why, at) = ("its end was not observed; the node found it ended at its next start", now());
        if let Some(source) = &record.started.source {
            let end = AttemptEnd::Lost { started_at: record.started.at, at, why };
            if let (_, Err(error)) = recorder.record(source, attempt, &end) {
                note(format!("the record of {} cannot be written: {error}", processes::mark(attempt)));
            }
        }
        if let Err(error) = journal.lost(attempt, at, why) {
            note(format!("the end of {} cannot be recorded: {error}", processes::mark(attempt)));
        }
    }
    forget_words(layout);
    let mut pods: BTreeMap<PodUid, Vec<Found>> = BTreeMap::new();
    for (attempt, record) in journal.records() {
        pods.entry(attempt.pod.clone()).or_default().push(found(attempt, record));
    }
    // Pods that have volumes, but no attempt was started.
    for entry in fs::read_dir(layout.pods())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let pod = PodUid::new(&name);
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        match layout.pod(&pod) {
            Ok(_) if is_dir && is_uid(&name) => drop(pods.entry(pod).or_default()),
            // The shim did not create this entry and does not touch it.
            _ => note(format!("{name} in {} is not a Pod of ours and is left alone", layout.pods().display())),
        }
    }
    Ok(pods.into_iter().map(|(pod, attempts)| Report::Found { pod, attempts }).collect())
}

/// The format of UIDs in the API: a copy of a Pod's directory under another name is not a Pod.
fn is_uid(name: &str) -> bool {
    let dashed = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    name.len() == 36 && name.bytes().enumerate().all(dashed)
}

/// The attempts have ended, and the messages that have been read are in the journal.
fn forget_words(layout: &Layout) {
    for entry in fs::read_dir(layout.words()).into_iter().flatten().flatten() {
        let _ = fs::remove_file(entry.path());
    }
}

fn found(attempt: &Attempt, record: &Record) -> Found {
    let exit = match &record.end {
        Some(End::Exited(exit)) => Some(exit.clone()),
        Some(End::Lost(_)) | None => None,
    };
    Found { attempt: attempt.clone(), started_at: record.started.at, exit }
}

/// Kills until nothing is left: a process may have started another one just before it was killed.
fn end(layout: &Layout, boot: &str, open: &[(Attempt, Record)], note: &mut impl FnMut(String)) {
    let known: Vec<&journal::RunningProcess> = open
        .iter()
        .filter(|(_, record)| record.started.boot == boot)
        .filter_map(|(_, record)| record.running.as_ref())
        .collect();
    let until = Instant::now() + KILL_FOR;
    let lineage = lineage();
    loop {
        let all = processes::all();
        let ours = |process: &Process| {
            is_recorded(process, &known, &all) || processes::marked(process.pid, layout.root()).is_some()
        };
        let left = with_descendants(&all, &lineage, ours);
        for process in &left {
            processes::kill(process);
        }
        if left.is_empty() {
            break;
        }
        if Instant::now() > until {
            let left: Vec<_> = left.iter().map(|process| process.pid.as_raw_nonzero()).collect();
            note(format!("processes of an earlier life do not end: {left:?}"));
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// These processes and all their descendants, which may have left the group and lost the mark. Collected all at once,
/// while it can still be seen which process started which.
fn with_descendants<'a>(all: &'a [Process], lineage: &[Pid], ours: impl Fn(&Process) -> bool) -> Vec<&'a Process> {
    let (mut found, mut others): (Vec<_>, Vec<_>) =
        all.iter().filter(|process| !process.zombie && !lineage.contains(&process.pid)).partition(|p| ours(p));
    let mut next = 0;
    while let Some(parent) = found.get(next).map(|process| process.pid.as_raw_nonzero().get()) {
        next += 1;
        let (children, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(|process| process.parent == parent);
        found.extend(children);
        others = rest;
    }
    found
}

/// A main process is identified by its ID and start; the others by their group, as long as the group's ID has not been
/// reused.
fn is_recorded(process: &Process, known: &[&journal::RunningProcess], all: &[Process]) -> bool {
    known.iter().any(|running| {
        let main = all.iter().find(|other| other.pid.as_raw_nonzero().get() == running.pid);
        let ours = main.is_none_or(|main| (running.since..=running.until).contains(&main.ticks));
        ours && process.ticks >= running.since
            && (process.group == running.pid || process.pid.as_raw_nonzero().get() == running.pid)
    })
}

/// This process and all its ancestors. If one of them is marked as ours, a user started a node from within a Pod of the
/// same node; it must not be killed.
fn lineage() -> Vec<Pid> {
    let mut lineage = Vec::new();
    let mut next = Some(rustix::process::getpid());
    while let Some(pid) = next.filter(|pid| !lineage.contains(pid)) {
        lineage.push(pid);
        next = processes::look(pid).and_then(|process| Pid::from_raw(process.parent));
    }
    lineage
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn descendants_end_with_the_process_that_started_them() {
        let process = |pid: i32, parent| {
            let pid = Pid::from_raw(pid).unwrap();
            Process { pid, parent, group: pid.as_raw_nonzero().get(), ticks: 0, zombie: false, used: 0, resident: 0 }
        };
        // 2 is ours, 1 and 5 are ancestors of the shim, 7 belongs to another program.
        let all =
            [process(4, 3), process(3, 2), process(2, 1), process(1, 0), process(5, 2), process(6, 5), process(7, 1)];
        let lineage = [1, 5].map(|pid| Pid::from_raw(pid).unwrap());
        let found = with_descendants(&all, &lineage, |process| process.pid.as_raw_nonzero().get() == 2);
        let found: Vec<_> = found.into_iter().map(|process| process.pid.as_raw_nonzero().get()).collect();
        assert_eq!(found, [2, 3, 4]);
    }

    #[test]
    fn only_what_was_recorded_is_taken_for_it() {
        let process = |pid: i32, group, ticks| Process {
            pid: Pid::from_raw(pid).unwrap(),
            parent: 1,
            group,
            ticks,
            zombie: false,
            used: 0,
            resident: 0,
        };
        let running = journal::RunningProcess { pid: 50, since: 999, until: 1000 };
        for (process, others, expected) in [
            (process(50, 50, 1000), vec![process(50, 50, 1000)], true),
            // The process ID has been reused.
            (process(50, 50, 2000), vec![process(50, 50, 2000)], false),
            (process(51, 50, 2001), vec![process(50, 50, 2000)], false),
            // The group leader has ended, its group has not.
            (process(51, 50, 1001), vec![], true),
            (process(51, 50, 998), vec![], false),
            (process(51, 51, 1001), vec![], false),
        ] {
            assert_eq!(is_recorded(&process, &[&running], &others), expected, "{process:?} {others:?}");
        }
    }
}
