//! `tally logs`: what the attempts of a Job have printed.
//!
//! Of a data directory the log files are read; the logs of a cluster come from its server.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use tally_core::ids::PodUid;
use tally_node::logs::{self, LogReadOptions};
use tally_node::port::Attempt;
use tally_remote::Remote;
use tokio::sync::{Semaphore, mpsc};

use super::attempts::{self, AttemptRow, AttemptState};
use super::{JobParts, LookError, job_name};
use crate::place::{Place, PlaceFlags};
use crate::pod_log::{PodLogRequest, next_piece};
use crate::run::progress::screen;
use crate::run::progress::view::PodText;
use crate::run::progress::words::harmless;
use crate::terminal::{self, ControlSequences, OutputFilter};

/// How often to look for new Pods.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// Logs that are followed at the same time.
const MOST_FOLLOWED: usize = 48;
/// Pieces that wait to be printed.
const MOST_PIECES: usize = 256;

#[derive(clap::Args)]
#[command(after_help = "Examples:
  tally logs sum --data-dir ./d               the last attempt of every index, each line with its index in front
  tally logs sum --data-dir ./d --index 3     the last attempt of index 3, nothing in front
  tally logs sum --data-dir ./d --index 3 --attempt 1
                                              an earlier attempt; tally show lists them
  tally logs sum --data-dir ./d -f            what is printed while it runs, until the Job has finished
  tally logs pod/sum-3-x7k2p --context test --tail 20
                                              the last 20 lines of a Pod of a cluster

Logs are removed with their Pods; a data directory has the newest 50 MiB of each attempt.

Exit code 0: the logs were printed; 1: there is no such Job, Pod or attempt, or its logs were removed; 2: bad usage; 3: the
data directory or the cluster cannot be read.")]
pub struct LogsArgs {
    /// The Job, as NAME or job/NAME; or pod/NAME
    name: String,
    #[command(flatten)]
    place: PlaceFlags,
    /// Only this index
    #[arg(long, value_name = "N")]
    index: Option<u32>,
    /// This attempt, from 1 [default: the last one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    attempt: Option<u32>,
    /// Only this container
    #[arg(long, short = 'c', value_name = "NAME")]
    container: Option<String>,
    /// Go on while the Job runs
    #[arg(long, short = 'f', conflicts_with = "attempt")]
    follow: bool,
    /// Only the last N lines of each attempt
    #[arg(long, value_name = "N")]
    tail: Option<u64>,
    /// What to do on a terminal with control sequences in what tasks have printed, other than colours: remove or pass
    #[arg(long, value_name = "HOW", value_enum, default_value = "remove", hide_possible_values = true)]
    control_sequences: ControlSequences,
}

impl LogsArgs {
    /// For the log of an attempt. Standard output gets what was printed, unless it is a terminal.
    fn lines(&self, prefix: &str) -> PrefixedLines {
        let cleans = std::io::stdout().is_terminal() && self.control_sequences == ControlSequences::Remove;
        let colours = screen::terminal(cleans, |name| std::env::var(name).ok()).style.colour;
        PrefixedLines::new(prefix, cleans.then(|| OutputFilter::new(colours)))
    }
}

pub async fn run(args: &LogsArgs) -> Result<(), LookError> {
    let place = Place::open(&args.place).await?;
    let mut printer = Printer::default();
    if let Some(pod) = args.name.strip_prefix("pod/").or_else(|| args.name.strip_prefix("pods/")) {
        return of_pod(args, &place, pod, &mut printer).await;
    }
    let name = job_name(&args.name)?;
    let wanted = JobParts::find(&place, name).await?;
    if args.follow
        && let Some(remote) = place.remote()
    {
        return follow(args, &place, name, &remote).await;
    }
    let chosen = choose(args, &wanted.attempts);
    if chosen.is_empty() {
        return Err(none_chosen(args, name, &wanted.attempts));
    }
    let single = is_single(&chosen);
    let present: BTreeSet<&str> = wanted.pods.iter().map(|pod| pod.metadata.uid.as_str()).collect();
    let mut gone = Vec::new();
    for row in chosen.iter().filter(|row| row.state != AttemptState::Waiting) {
        let prefix = if single { String::new() } else { prefix(&wanted.row.name, row) };
        let printed = print(args, &place, &wanted.row.namespace, row, &prefix, &mut printer).await?;
        if !printed && !present.contains(row.pod_uid.as_str()) {
            gone.push(*row);
        }
    }
    let Some(first) = gone.first() else { return Ok(()) };
    let more = if gone.len() > 1 { format!(" and of {} more attempts", gone.len() - 1) } else { String::new() };
    let text = format!("the logs of Pod {}{more} were removed with the Pods, or they printed nothing", first.pod);
    if gone.len() == chosen.len() {
        return Err(LookError::Missing(text));
    }
    terminal::tell(text);
    Ok(())
}

/// The attempts whose logs are printed: that which was asked for, or the last one of each index, or of each Pod if there
/// are no indexes.
fn choose<'a>(args: &LogsArgs, rows: &'a [AttemptRow]) -> Vec<&'a AttemptRow> {
    let mut chosen: Vec<&AttemptRow> = Vec::new();
    for row in rows {
        let is_meant = args.index.is_none_or(|index| row.index == Some(index))
            && args.attempt.is_none_or(|attempt| row.attempt == attempt)
            && args.container.as_ref().is_none_or(|container| row.container == *container);
        if !is_meant {
            continue;
        }
        let same = |other: &&AttemptRow| {
            let together = if row.index.is_some() { other.index == row.index } else { other.pod_uid == row.pod_uid };
            together && other.container == row.container
        };
        // A container that has not started has no log that could replace an earlier one.
        match chosen.iter().position(same) {
            Some(_) if row.state == AttemptState::Waiting => {}
            Some(at) => chosen[at] = row,
            None => chosen.push(row),
        }
    }
    chosen
}

fn none_chosen(args: &LogsArgs, name: &str, rows: &[AttemptRow]) -> LookError {
    let mut what = format!("Job {name:?} has no attempt");
    if let Some(attempt) = args.attempt {
        what.push_str(&format!(" {attempt}"));
    }
    if let Some(index) = args.index {
        what.push_str(&format!(" of index {index}"));
    }
    if let Some(container) = &args.container {
        what.push_str(&format!(" of container {container:?}"));
    }
    let hint = if rows.is_empty() { "" } else { "; tally show lists those there are" };
    LookError::Missing(format!("{what}{hint}"))
}

fn is_single(rows: &[&AttemptRow]) -> bool {
    rows.len() < 2
}

/// As `tally run` prints it.
fn prefix(job: &str, row: &AttemptRow) -> String {
    let mut prefix = match row.index {
        Some(index) => format!("{job}[{index}]"),
        None => row.pod.clone(),
    };
    if row.several {
        prefix.push_str(&format!("/{}", row.container));
    }
    prefix.push(' ');
    prefix
}

/// Prints the log of one attempt. Returns whether there was one.
async fn print(
    args: &LogsArgs,
    place: &Place,
    namespace: &str,
    row: &AttemptRow,
    prefix: &str,
    printer: &mut Printer,
) -> Result<bool, LookError> {
    match (place.node(), place.remote()) {
        (Some(root), _) => print_files(&root, row, args.tail, args.lines(prefix), printer),
        (None, Some(remote)) => {
            let source =
                LogSource { namespace: namespace.to_owned(), row: row.clone(), tail: args.tail, follow: false };
            print_remote(&remote, &source, args.lines(prefix), printer).await.map(|()| true)
        }
        (None, None) => Ok(false),
    }
}

fn attempt_of(row: &AttemptRow) -> Attempt {
    Attempt { pod: PodUid::new(&row.pod_uid), container: row.container.as_str().into(), number: row.restarts }
}

fn print_files(
    root: &Path,
    row: &AttemptRow,
    tail: Option<u64>,
    mut lines: PrefixedLines,
    printer: &mut Printer,
) -> Result<bool, LookError> {
    let attempt = attempt_of(row);
    if !logs::attempts(root, &attempt.pod).contains(&attempt) {
        return Ok(false);
    }
    let unreadable = |error| LookError::Unreadable(format!("cannot read the log of Pod {}: {error}", row.pod));
    let options = LogReadOptions { tail_lines: tail, ..LogReadOptions::default() };
    let mut reader = logs::open(root, &attempt, options).map_err(unreadable)?;
    while let Some(piece) = reader.read().map_err(unreadable)? {
        lines.add(&piece, |text| printer.write(text));
        if printer.closed {
            break;
        }
    }
    lines.end(|text| printer.write(text));
    Ok(true)
}

/// A Pod, whether a Job has it or not.
async fn of_pod(args: &LogsArgs, place: &Place, name: &str, printer: &mut Printer) -> Result<(), LookError> {
    let pods = place.all_pods(place.namespace()).await?;
    let found: Vec<PodText> = pods.into_iter().filter(|pod: &PodText| pod.metadata.name == name).collect();
    let namespace = found.first().map(|pod| pod.metadata.namespace.clone()).unwrap_or_default();
    let mut rows = attempts::rows(&[], &found, place.is_idle());
    if rows.is_empty() {
        // The Pod may be gone and have records.
        let records = place.all_records()?;
        rows = attempts::rows(&records, &[], true);
        rows.retain(|row| row.pod == name);
    }
    if rows.is_empty() {
        return Err(LookError::Missing(format!("there is no Pod {name:?} in {}", place.title())));
    }
    let mut printed = false;
    for row in choose(args, &rows) {
        let prefix = if row.several && args.container.is_none() { prefix(name, row) } else { String::new() };
        match place.remote().filter(|_| args.follow && row.state != AttemptState::Waiting) {
            Some(remote) => {
                let source =
                    LogSource { namespace: namespace.clone(), row: row.clone(), tail: args.tail, follow: true };
                print_remote(&remote, &source, args.lines(&prefix), printer).await?;
                printed = true;
            }
            None => printed |= print(args, place, &namespace, row, &prefix, printer).await?,
        }
    }
    match printed || !found.is_empty() {
        true => Ok(()),
        false => Err(LookError::Missing(format!("the logs of Pod {name} were removed with the Pod"))),
    }
}

/// Which log is read from a server.
#[derive(Clone)]
struct LogSource {
    namespace: String,
    row: AttemptRow,
    tail: Option<u64>,
    follow: bool,
}

/// Begins to read a log.
async fn open_remote(remote: &Remote, source: &LogSource) -> Result<Incoming, LookError> {
    let LogSource { namespace, row, tail, follow } = source;
    let request = PodLogRequest { tail_lines: *tail, follow: *follow, ..PodLogRequest::default() };
    let opened = request.of(namespace, &row.pod, &row.container).open(remote).await;
    opened.map_err(|error| LookError::Unreadable(error.to_string()))
}

async fn print_remote(
    remote: &Remote,
    source: &LogSource,
    mut lines: PrefixedLines,
    printer: &mut Printer,
) -> Result<(), LookError> {
    let mut log = open_remote(remote, source).await?;
    while let Some(piece) = next_piece(&mut log).await
        && !printer.closed
    {
        lines.add(&piece, |text| printer.write(text));
    }
    lines.end(|text| printer.write(text));
    Ok(())
}

/// Prints the logs of all Pods of a Job while they run, until the Job has finished.
async fn follow(args: &LogsArgs, place: &Place, name: &str, remote: &Remote) -> Result<(), LookError> {
    let (sender, mut pieces) = mpsc::channel::<Vec<u8>>(MOST_PIECES);
    let room = Arc::new(Semaphore::new(MOST_FOLLOWED));
    let mut followed: BTreeMap<(String, String, u32), Arc<AtomicBool>> = BTreeMap::new();
    let looking = async move {
        loop {
            let wanted = JobParts::find(place, name).await?;
            // Read first, so that the last Pods of a Job that has finished are in the list.
            let over = !matches!(wanted.row.state.as_str(), "Running" | "Waiting" | "Suspended" | "Ending");
            let meant = |row: &&AttemptRow| {
                args.index.is_none_or(|index| row.index == Some(index))
                    && args.container.as_ref().is_none_or(|container| row.container == *container)
                    && row.state != AttemptState::Waiting
            };
            let single = args.index.is_some() || wanted.row.total == Some(1);
            let key = |row: &AttemptRow| (row.pod_uid.clone(), row.container.clone(), row.restarts);
            let runs = |row: &&AttemptRow| !over && row.state == AttemptState::Running;
            let running: BTreeSet<_> = wanted.attempts.iter().filter(runs).map(key).collect();
            for (_, ended) in followed.iter().filter(|(key, _)| !running.contains(*key)) {
                ended.store(true, Ordering::Release);
            }
            for row in wanted.attempts.iter().filter(meant) {
                let key = key(row);
                if followed.contains_key(&key) {
                    continue;
                }
                // If too many are followed, the others wait for the next look, at which some may have ended.
                let permit = match room.clone().try_acquire_owned() {
                    Ok(permit) => permit,
                    Err(_) if !over => break,
                    Err(_) => match room.clone().acquire_owned().await {
                        Ok(permit) => permit,
                        Err(_) => break,
                    },
                };
                let ended = Arc::new(AtomicBool::new(!running.contains(&key)));
                let log = match place.node() {
                    // The process that runs the Job ends with it, and its streams break off. Its files do not.
                    Some(root) => match logs::open(
                        &root,
                        &attempt_of(row),
                        LogReadOptions { follow: true, tail_lines: args.tail, ..LogReadOptions::default() },
                    ) {
                        Ok(reader) => FollowedLog::File(reader, ended.clone()),
                        Err(_) => continue,
                    },
                    None => {
                        let (namespace, tail) = (wanted.row.namespace.clone(), args.tail);
                        let source = LogSource { namespace, row: row.clone(), tail, follow: true };
                        FollowedLog::Remote(remote.clone(), source)
                    }
                };
                followed.insert(key, ended);
                let prefix = if single { String::new() } else { prefix(&wanted.row.name, row) };
                let (sender, lines) = (sender.clone(), args.lines(&prefix));
                tokio::spawn(async move {
                    log.send(lines, &sender).await;
                    drop(permit);
                });
            }
            if over {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let printing = async {
        let mut printer = Printer::default();
        while let Some(piece) = pieces.recv().await {
            printer.write(&piece);
        }
    };
    let (looked, ()) = tokio::join!(looking, printing);
    looked
}

/// The log of an attempt that may still run.
enum FollowedLog {
    /// And whether the attempt has ended.
    File(logs::Reader, Arc<AtomicBool>),
    Remote(Remote, LogSource),
}

impl FollowedLog {
    /// Sends whole lines until the log ends, or no one reads them.
    async fn send(self, mut lines: PrefixedLines, sender: &mpsc::Sender<Vec<u8>>) {
        let mut ready = Vec::new();
        match self {
            Self::File(mut reader, ended) => {
                while let Ok(Some(piece)) = reader.next(|| ended.load(Ordering::Acquire)).await {
                    lines.add(&piece, |text| ready.extend_from_slice(text));
                    if sender.send(std::mem::take(&mut ready)).await.is_err() {
                        return;
                    }
                }
            }
            Self::Remote(remote, source) => {
                // A Pod may be removed before its log is asked for.
                let Ok(mut log) = open_remote(&remote, &source).await else { return };
                while let Some(piece) = next_piece(&mut log).await {
                    lines.add(&piece, |text| ready.extend_from_slice(text));
                    if sender.send(std::mem::take(&mut ready)).await.is_err() {
                        return;
                    }
                }
            }
        }
        lines.end(|text| ready.extend_from_slice(text));
        let _ = sender.send(ready).await;
    }
}

/// Whole lines with something in front of each; without it, what comes.
struct PrefixedLines {
    prefix: String,
    filter: Option<OutputFilter>,
    partial: Vec<u8>,
}

impl PrefixedLines {
    fn new(prefix: &str, filter: Option<OutputFilter>) -> Self {
        // It has names, which may be those of another server.
        let prefix = if filter.is_some() { harmless(prefix) } else { prefix.to_owned() };
        Self { prefix, filter, partial: Vec::new() }
    }

    fn add(&mut self, piece: &[u8], mut write: impl FnMut(&[u8])) {
        let clean = self.filter.as_mut().map(|filter| filter.add(piece));
        let piece = clean.as_deref().unwrap_or(piece);
        if self.prefix.is_empty() {
            return write(piece);
        }
        let mut text = Vec::with_capacity(piece.len() + 64);
        for line in piece.split_inclusive(|&byte| byte == b'\n') {
            self.partial.extend_from_slice(line);
            if line.ends_with(b"\n") {
                text.extend_from_slice(self.prefix.as_bytes());
                text.append(&mut self.partial);
            }
        }
        write(&text);
    }

    /// A line that was not ended is ended: another one follows.
    fn end(&mut self, mut write: impl FnMut(&[u8])) {
        if let Some(mut filter) = self.filter.take() {
            self.add(&filter.end(), &mut write);
        }
        if !self.partial.is_empty() {
            let mut text = self.prefix.as_bytes().to_vec();
            text.append(&mut self.partial);
            text.push(b'\n');
            write(&text);
        }
    }
}

/// Standard output, until its reader closes it.
#[derive(Default)]
struct Printer {
    closed: bool,
}

impl Printer {
    fn write(&mut self, text: &[u8]) {
        let mut out = std::io::stdout();
        if !self.closed && out.write_all(text).and_then(|()| out.flush()).is_err() {
            self.closed = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_its_prefix_also_if_it_comes_in_pieces() {
        let mut lines = PrefixedLines::new("s[1] ", None);
        let mut text = Vec::new();
        for piece in ["one\ntw", "o\n", "\nlast"] {
            lines.add(piece.as_bytes(), |part| text.extend_from_slice(part));
        }
        lines.end(|part| text.extend_from_slice(part));
        assert_eq!(String::from_utf8_lossy(&text), "s[1] one\ns[1] two\ns[1] \ns[1] last\n");
    }

    #[test]
    fn for_a_terminal_lines_and_what_is_in_front_of_them_are_cleaned() {
        for (prefix, expected) in [("\u{1b}]0;x\u{7}s[1] ", "s[1] one\ns[1] two\n"), ("", "one\ntwo")] {
            let mut lines = PrefixedLines::new(prefix, Some(OutputFilter::new(true)));
            let mut text = Vec::new();
            for piece in ["o\u{1b}]52;c;", "eA==\u{7}ne\nt\u{1b}[2", "Jwo"] {
                lines.add(piece.as_bytes(), |part| text.extend_from_slice(part));
            }
            lines.end(|part| text.extend_from_slice(part));
            assert_eq!(String::from_utf8_lossy(&text), expected);
        }
    }
}
