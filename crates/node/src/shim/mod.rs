//! The half of the node that acts: a small separate process between the one that decides and the Pods' processes.
//!
//! The shim starts them, reads their output, reaps them and records how they ended. It is the parent of all of them,
//! including those that lose their own parent (it is a subreaper). It ignores signals that are meant for interactive
//! programs and ends when its socket closes: when the process that decides has ended, in whatever way. Then it first
//! kills everything it has started.
//!
//! # Layout
//!
//! ```text
//! ROOT/lock                        locked (flock) by the shim: never two on one directory
//! ROOT/journal                     the record of all attempts: started, running, ended (`journal.rs`)
//! ROOT/attempts/UID                the records of the attempts of a Job that have ended (`recorder.rs`)
//! ROOT/cgroup                      the control groups of the shim that used the directory last (`cgroup.rs`)
//! ROOT/words/UID.NAME.NUMBER       the termination messages of running attempts, if any
//! ROOT/pods/UID/                   mode 0700; the files of one Pod; does not exist if there are none
//!     volumes/NAME                 a directory, or a symlink to a hostPath or to the directory of a claim
//!     volumes/.NAME                the list of files in it that the shim wrote, if any
//!     NAME.NUMBER.tmp/             the /tmp of an isolated attempt
//!     NAME.NUMBER.0.log ...        the output of an attempt (`log.rs`); numbers grow, the oldest files are removed, but
//!                                  not before the reader of the output has read them, if there is one
//! ROOT/claims/UID/                 the files of a claim, as long as the claim exists
//! ROOT/trash/UID/                  Pods that are being removed
//! ```
//!
//! # Order of writes, and why nothing is lost
//!
//! 1. `started` is written to the journal. This is possible only once: no attempt runs twice, even if it is requested
//!    twice.
//! 2. The process is started, with the attempt's name in its environment; then its process ID is recorded. After a
//!    crash in between, the process is found by its environment; after a later crash, by both. The line is written with the
//!    next one, at the latest before the shim says anything or waits.
//! 3. The process ends. The kernel keeps its exit status until the shim reads it, so no exit can be missed in between.
//! 4. All other processes of the attempt are killed, and their output is written to the log. Results appear (`results.rs`).
//! 5. If records are kept, that of the attempt is written (`recorder.rs`).
//! 6. `ended` is recorded, with exit code and termination message. A crash before this leaves a record without an end:
//!    the next start makes sure that nothing runs and reports that the end was not observed. It is never reported as an
//!    exit.
//! 7. The exit is reported. A crash of either process before this loses nothing: the next start reads the record and
//!    reports it again (`Found`), and the deciding half identifies an attempt by its name.
//!
//! Records need no fsync: they have to survive processes, not the machine. After a power failure a record may be
//! missing or truncated, which is never read as an exit; then the Pod's status in the API applies. A Pod is removed by
//! one rename, so it exists completely or not at all.

pub mod abilities;
mod attempt;
pub(crate) mod cgroup;
mod check;
mod command;
mod confine;
mod guard;
mod init;
mod isolate;
mod journal;
mod launch;
pub mod layout;
pub mod log;
mod mounts;
mod output;
pub(crate) mod processes;
mod program;
mod reaper;
mod recorder;
mod recover;
mod results;
mod seccomp;
mod session;
mod spawn;
mod sys;
mod terminal;
mod termination;
mod usage;
mod variables;
mod viewers;
mod volumes;
pub mod wire;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::FlockOperation;
use rustix::process::Signal as KernelSignal;
use serde::{Deserialize, Serialize};
use tally_core::ids::PodUid;
use tally_core::time::Timestamp;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf, pipe};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::descriptors::DescriptorReader;
use crate::output::FollowOptions;
use crate::port::{Attempt, Report, ShimCommand, Signal};
use isolate::{HiddenPath, KnownDirectory};
use journal::Journal;
use layout::Layout;
use recorder::{AttemptRecorder, JobLog, RecordLimits};
pub use terminal::resize;
use wire::Frame;

/// How long a new shim waits for the directory: an old one may still be killing what it had started.
const LOCK_FOR: Duration = Duration::from_secs(15);
/// How long ending all processes may take after the parent has ended.
const STOP_FOR: Duration = Duration::from_secs(10);
/// What is read about a signal (`struct signalfd_siginfo`).
const SIGNAL: usize = 128;
/// No more commands are read while this many messages wait to be sent. Every command leads to at most two.
const MOST_WORDS: usize = 4096;

/// The first argument that makes a program the shim.
pub const COMMAND: &str = "node-shim";
/// An argument of the shim: containers are isolated, and the paths that follow are hidden.
const ISOLATE: &str = "--isolate";
/// The first argument of a launcher.
pub(crate) const LAUNCH: &str = "--launch";
/// The first argument of the process that tries whether containers can be isolated.
const TRY_ISOLATION: &str = "--try-isolation";

/// The command line of the shim, after that argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    pub root: PathBuf,
    pub output: OutputSettings,
    /// The directory for the results of tasks.
    pub results: Option<PathBuf>,
    /// The file for a line about each attempt, in the columns of GNU parallel.
    pub job_log: Option<PathBuf>,
    pub pids_limit: Option<PidsLimit>,
    /// What containers must not see. None: they are not isolated.
    pub hidden: Option<Vec<PathBuf>>,
    /// Clients can connect to the input of containers, and containers can have terminals.
    pub attachable: bool,
}

/// How many processes and threads a Pod may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PidsLimit {
    pub most: u64,
    /// The node does not start where this cannot be limited.
    pub required: bool,
}

/// What happens to the output of attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputSettings {
    pub log_limits: log::Limits,
    /// A reader follows it.
    pub follow: Option<FollowOptions>,
    /// The reader is told how attempts ended (`OutputEvent::AttemptEnded`).
    #[serde(default)]
    pub tell_ends: bool,
    /// Records of attempts are kept (`crate::attempts`).
    #[serde(default)]
    pub keep_records: bool,
}

impl Arguments {
    pub fn to_args(&self) -> Vec<OsString> {
        let settings = serde_json::to_string(&(self.output, self.pids_limit, self.attachable)).unwrap_or_default();
        let path = |path: &Option<PathBuf>| path.as_ref().map(OsString::from).unwrap_or_default();
        let mut args = vec![self.root.clone().into(), settings.into(), path(&self.results), path(&self.job_log)];
        if let Some(hidden) = &self.hidden {
            args.push(ISOLATE.into());
            args.extend(hidden.iter().map(OsString::from));
        }
        args
    }

    fn parse(args: &[OsString]) -> Option<Self> {
        let [root, settings, results, job_log, rest @ ..] = args else { return None };
        let hidden = match rest {
            [] => None,
            [first, hidden @ ..] if first == ISOLATE => Some(hidden.iter().map(PathBuf::from).collect()),
            _ => return None,
        };
        let (output, pids_limit, attachable) = serde_json::from_str(settings.to_str()?).ok()?;
        let path = |path: &OsString| Some(PathBuf::from(path)).filter(|path| !path.as_os_str().is_empty());
        let (results, job_log) = (path(results), path(job_log));
        Some(Self { root: root.into(), output, results, job_log, pids_limit, hidden, attachable })
    }
}

/// The main function of the shim. `args` are those after `node-shim`. Must be called before any threads or a runtime
/// are created: the launcher enters namespaces, which the kernel permits only to single-threaded processes.
pub fn main(args: &[OsString]) -> ExitCode {
    if args.first().is_some_and(|arg| arg == LAUNCH) {
        return launch::main();
    }
    if args.first().is_some_and(|arg| arg == TRY_ISOLATION) {
        return abilities::main();
    }
    let Some(arguments) = Arguments::parse(args) else {
        eprintln!("tally: node-shim is started by tally itself");
        return ExitCode::from(2);
    };
    // A container names them by its paths in /proc, until its command is executed.
    if arguments.hidden.is_some()
        && let Err(error) = sys::close_inherited()
    {
        eprintln!("tally: node-shim: descriptors of the shell cannot be closed: {error}");
        return ExitCode::FAILURE;
    }
    // Detach from the terminal: Ctrl-C is for the parent process, which then stops everything in order, and processes
    // that ask for a password find no terminal. Fails only for a group leader, which is detached already.
    let _ = rustix::process::setsid();
    if let Some(code) = guard::stand() {
        return code;
    }
    // After the panic of one task, others would wait forever. The next shim finds everything in the journal.
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::abort();
    }));
    match serve(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tally: node-shim: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(arguments: &Arguments) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let served = local.block_on(&runtime, async {
        let socket = StdUnixStream::from(rustix::stdio::stdin().try_clone_to_owned()?);
        socket.set_nonblocking(true)?;
        let (reader, mut writer) = UnixStream::from_std(socket)?.into_split();
        match Shim::open(arguments) {
            Ok((shim, lock)) => {
                let outcome = shim.run(reader, writer).await;
                drop(lock);
                outcome
            }
            Err(error) => {
                let mut refusal = Vec::new();
                wire::encode(&Frame::Refused(error.to_string()), &mut refusal)?;
                let _ = writer.write_all(&refusal).await;
                Err(error)
            }
        }
    });
    // Remaining work (such as a DNS lookup) is not worth waiting for.
    runtime.shutdown_background();
    served
}

/// The process that started the shim passes the input of its containers as the standard output, which the shim does not
/// use: a child can be given no more than three descriptors without unsafe code.
fn take_input() -> io::Result<OwnedFd> {
    let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    rustix::stdio::dup2_stdout(File::options().write(true).open("/dev/null")?)?;
    Ok(input)
}

struct Shim {
    layout: Layout,
    journal: RefCell<Journal>,
    /// Lines of the journal are not written yet.
    lines_wait: Notify,
    output: OutputSettings,
    /// Logs that their reader has not read to the end.
    unread: RefCell<BTreeMap<Attempt, Rc<output::AttemptLog>>>,
    /// Pods that are removed once their logs have been read.
    unread_trash: RefCell<BTreeSet<PodUid>>,
    results: Option<results::PartialResults>,
    recorder: RefCell<AttemptRecorder>,
    job_log: Option<RefCell<JobLog>>,
    boot: String,
    program: program::LauncherProgram,
    spawner: spawn::Spawner,
    commands: command::KnownCommands,
    /// The environment of this process.
    env: variables::Variables,
    reaper: reaper::Reaper,
    attempts: RefCell<BTreeMap<Attempt, Rc<attempt::RunningAttempt>>>,
    /// The names of Pods with attempts, for users who read messages.
    names: RefCell<BTreeMap<PodUid, String>>,
    /// The number of attempts whose end is not recorded yet.
    open: Cell<usize>,
    all_done: Notify,
    words: RefCell<VecDeque<Frame>>,
    said: Notify,
    heard: Notify,
    discarded: Notify,
    stopping: Cell<bool>,
    cgroups: cgroup::Cgroups,
    /// The processes and threads that a Pod may have. None: there is no limit, or none can be set.
    pids_limit: Option<u64>,
    /// Held while the disk space of a Pod is measured.
    measuring: tokio::sync::Mutex<()>,
    /// What containers must not see. None: they are not isolated.
    hidden: Option<Vec<HiddenPath>>,
    /// Where the files of Pods are, if containers are isolated.
    own_directory: Option<KnownDirectory>,
    /// The standard input for the first container that asks for it.
    stdin: Cell<Option<OwnedFd>>,
    /// Clients can connect to the input of containers, and containers can have terminals.
    attachable: bool,
}

impl Shim {
    fn open(arguments: &Arguments) -> io::Result<(Rc<Self>, File)> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let root = &arguments.root;
        let explain = |error: io::Error| io::Error::other(format!("{} cannot be used: {error}", root.display()));
        DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(explain)?;
        let layout = Layout::new(&fs::canonicalize(root).map_err(explain)?);
        let lock = lock(&layout).map_err(explain)?;
        for dir in [layout.pods(), layout.trash(), layout.words()] {
            DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(explain)?;
        }
        if layout.trash().is_symlink() {
            let trash = layout.trash();
            let why =
                format!("{} is a symbolic link, and what it leads to would be deleted; remove it", trash.display());
            return Err(io::Error::other(why));
        }
        // Before anything is started: every process is in the group from its beginning.
        let cgroups = cgroup::Cgroups::enter(&layout);
        let no_pids = arguments.pids_limit.and_then(|_| cgroups.limits().no_pids().map(str::to_owned));
        if let (Some(PidsLimit { required: true, .. }), Some(why)) = (arguments.pids_limit, &no_pids) {
            return Err(io::Error::other(format!(
                "--pod-pids-limit: the processes of a Pod cannot be limited here: {why}"
            )));
        }
        let (journal, silent) = Journal::open(&layout.journal()).map_err(explain)?;
        let boot = processes::boot();
        let results = arguments.results.as_deref().map(|directory| {
            let unusable =
                |error| io::Error::other(format!("{} cannot be used for results: {error}", directory.display()));
            results::PartialResults::new(directory, &boot).map_err(unusable)
        });
        let job_log = arguments.job_log.as_deref().map(|path| {
            let unusable = |error| io::Error::other(format!("--joblog: cannot write {}: {error}", path.display()));
            JobLog::open(path).map(RefCell::new).map_err(unusable)
        });
        let keeper = arguments.output.keep_records.then(|| layout.root().to_owned());
        let own_directory = arguments.hidden.as_ref().map(|_| KnownDirectory::new(layout.root()));
        let shim = Self {
            recorder: RefCell::new(AttemptRecorder::new(keeper.as_deref(), RecordLimits::default())),
            job_log: job_log.transpose()?,
            layout,
            journal: RefCell::new(journal),
            lines_wait: Notify::new(),
            output: arguments.output,
            unread: RefCell::default(),
            unread_trash: RefCell::default(),
            results: results.transpose()?,
            boot,
            program: program::LauncherProgram::new(arguments.hidden.is_some())?,
            spawner: spawn::Spawner::new()?,
            commands: command::KnownCommands::default(),
            env: variables::Variables::own()?,
            reaper: reaper::Reaper::default(),
            attempts: RefCell::default(),
            names: RefCell::default(),
            open: Cell::new(0),
            all_done: Notify::new(),
            words: RefCell::default(),
            said: Notify::new(),
            heard: Notify::new(),
            discarded: Notify::new(),
            stopping: Cell::new(false),
            cgroups,
            pids_limit: arguments.pids_limit.filter(|_| no_pids.is_none()).map(|limit| limit.most),
            measuring: tokio::sync::Mutex::new(()),
            hidden: arguments.hidden.as_ref().map(|hidden| hidden.iter().map(|path| HiddenPath::new(path)).collect()),
            own_directory: own_directory.transpose()?,
            stdin: Cell::new(Some(take_input()?)),
            attachable: arguments.attachable,
        };
        if let Some(why) = no_pids {
            shim.note(format!("the number of processes of a Pod is not limited here: {why}"));
        }
        if silent > 0 {
            shim.note(format!("the last {silent} bytes of {} say nothing", shim.layout.journal().display()));
        }
        Ok((Rc::new(shim), lock))
    }

    async fn run(self: &Rc<Self>, reader: OwnedReadHalf, writer: OwnedWriteHalf) -> io::Result<()> {
        // Handled, by doing nothing: an ignored signal would stay ignored in every process that the shim starts.
        let _deaf = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()]
            .map(signal)
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?;
        // It is read like a pipe.
        let ended = pipe::Receiver::from_owned_fd_unchecked(sys::ends_of_children()?)?;
        tokio::task::spawn_local(self.clone().write(writer));
        tokio::task::spawn_local(self.clone().write_journal());
        self.say(Frame::Ready);
        // Let the message be sent before the recovery, which may take a while.
        tokio::task::yield_now().await;
        let found = {
            let mut journal = self.journal.borrow_mut();
            let mut recorder = self.recorder.borrow_mut();
            recover::recover(&self.layout, &mut journal, &mut recorder, &self.boot, |note| self.note(note))?
        };
        volumes::unmount_all(&self.layout);
        found.into_iter().for_each(|report| self.report(report));
        self.report(Report::Recovered);
        let shim = self.clone();
        tokio::task::spawn_local(async move {
            loop {
                shim.reaper.reap();
                if ended.readable().await.is_err() {
                    break;
                }
                // One signal stands for any number of children, and is read before they are reaped.
                while ended.try_read(&mut [0; SIGNAL]).is_ok() {}
            }
        });
        tokio::task::spawn_local(self.clone().empty_trash());
        let (reader, groups) = DescriptorReader::new(reader);
        let mut reader = BufReader::with_capacity(64 * 1024, reader);
        loop {
            while self.words.borrow().len() > MOST_WORDS {
                self.heard.notified().await;
            }
            match wire::read(&mut reader).await {
                Ok(Some(ShimCommand::Session(request))) => {
                    let descriptors = groups.take(request.descriptors());
                    session::begin(self, *request, descriptors);
                }
                Ok(Some(command)) => self.carry_out(command),
                Ok(None) => break,
                // The parent ended without reading the last messages.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                Err(error) => {
                    eprintln!("tally: node-shim: {error}");
                    break;
                }
            }
        }
        self.stop().await;
        Ok(())
    }

    fn carry_out(self: &Rc<Self>, command: ShimCommand) {
        match command {
            ShimCommand::Prepare(preparation) => {
                let pod = preparation.pod.clone();
                let hidden = self.hidden.as_deref().unwrap_or_default();
                self.report(match volumes::prepare(&self.layout, &preparation, hidden) {
                    Ok(()) => Report::Prepared { pod },
                    Err(failure) => Report::Unprepared { pod, failure },
                });
            }
            ShimCommand::Start(start) => attempt::start(self, *start),
            ShimCommand::Signal { attempt, signal } => {
                self.send_signal(&attempt, signal);
                self.report(Report::Signalled { attempt });
            }
            ShimCommand::Check { id, attempt, check, timeout_millis } => {
                check::check(self, id, attempt, check, Duration::from_millis(timeout_millis));
            }
            ShimCommand::Measure { pod } => {
                tokio::task::spawn_local(self.clone().measure(pod));
            }
            ShimCommand::RemoveVolumes { pod } => match volumes::remove(&self.layout, &pod) {
                Ok(true) => self.discarded.notify_one(),
                Ok(false) => {}
                Err(error) => self.note(format!("the volumes of Pod {pod} cannot be removed: {error}")),
            },
            ShimCommand::RemoveClaim { uid } => match volumes::remove_claim(&self.layout, &uid) {
                Ok(was_there) => {
                    if was_there {
                        self.discarded.notify_one();
                    }
                    self.report(Report::ClaimRemoved { uid });
                }
                Err(error) => self.note(format!("the directory of claim {uid} cannot be removed: {error}")),
            },
            // Its descriptors were taken when it was read.
            ShimCommand::Session(_) => {}
            ShimCommand::OutputRead { attempt, before } => self.output_read(&attempt, before),
            ShimCommand::Clean { pod } => {
                if self.is_unread(&pod) {
                    self.unread_trash.borrow_mut().insert(pod.clone());
                } else {
                    self.discard(&pod);
                }
                self.journal.borrow_mut().forget(&pod);
                self.names.borrow_mut().remove(&pod);
                self.report(Report::Cleaned { pod });
            }
        }
    }

    /// One Pod after the other, beside everything else: it may have many files.
    async fn measure(self: Rc<Self>, pod: PodUid) {
        let (layout, of) = (self.layout.clone(), pod.clone());
        let usage = {
            let _turn = self.measuring.lock().await;
            tokio::task::spawn_blocking(move || usage::measure(&layout, &of)).await
        };
        self.report(Report::Measured { pod, usage: usage.unwrap_or_default() });
    }

    fn discard(&self, pod: &PodUid) {
        match volumes::discard(&self.layout, pod) {
            Ok(true) => self.discarded.notify_one(),
            Ok(false) => {}
            Err(error) => self.note(format!("what is left of Pod {pod} cannot be removed: {error}")),
        }
    }

    fn send_signal(&self, attempt: &Attempt, signal: Signal) {
        let Some(running) = self.attempts.borrow().get(attempt).cloned() else { return };
        match signal {
            Signal::Number(number) => match (&*running.init.borrow(), sys::signal(number)) {
                (Some(init), _) => init.signal(number),
                (None, Some(signal)) => self.reaper.signal(running.pid, signal),
                (None, None) => {}
            },
            Signal::Kill => self.kill(&running),
        }
    }

    /// Processes that have left the group are killed when the main process has been reaped.
    fn kill(&self, running: &attempt::RunningAttempt) {
        if let Some(groups) = &running.cgroups {
            groups.kill();
        }
        self.reaper.signal(running.pid, KernelSignal::KILL);
    }

    /// The deciding process has ended. Attempts that have ended by now are recorded as ended; the rest is killed, and
    /// that is recorded.
    async fn stop(self: &Rc<Self>) {
        self.reaper.reap();
        self.stopping.set(true);
        let until = Instant::now() + STOP_FOR;
        let running: Vec<_> = self.attempts.borrow().values().cloned().collect();
        for running in running {
            self.kill(&running);
        }
        while self.open.get() > 0 {
            if timeout_at(until, self.all_done.notified()).await.is_err() {
                eprintln!("tally: node-shim: {} containers do not end", self.open.get());
                break;
            }
        }
        // Probes, and processes that probes started.
        while Instant::now() < until {
            let children = processes::children();
            for process in children.iter().filter_map(|pid| processes::look(*pid)).filter(|process| !process.zombie) {
                processes::kill(&process);
            }
            if children.is_empty() {
                break;
            }
            self.reaper.round().await;
        }
        volumes::unmount_all(&self.layout);
        self.cgroups.leave();
    }

    fn begun(&self) {
        self.open.set(self.open.get() + 1);
    }

    fn done(&self) {
        self.open.set(self.open.get().saturating_sub(1));
        if self.open.get() == 0 {
            self.all_done.notify_one();
        }
    }

    fn sweep(&self) -> Vec<processes::Name> {
        self.reaper.sweep(self.layout.root(), || {
            let attempts = self.attempts.borrow();
            attempts.iter().map(|(attempt, running)| (processes::mark(attempt), running.ticks)).collect()
        })
    }

    fn report(&self, report: Report) {
        self.say(Frame::Report(Box::new(report)));
    }

    fn note(&self, note: String) {
        self.say(Frame::Note(note));
    }

    fn complain(&self, attempt: &Attempt, error: &io::Error) {
        self.note(format!("the record of {} cannot be written: {error}", processes::mark(attempt)));
    }

    /// Concurrent work, as measuring is: deleting a directory may take longer than running a process.
    async fn empty_trash(self: Rc<Self>) {
        let mut resists = BTreeSet::new();
        loop {
            let trash = self.layout.trash();
            let emptied = tokio::task::spawn_blocking(move || {
                let trouble = volumes::empty_trash(&trash, &mut resists);
                (trouble, resists)
            });
            let trouble;
            (trouble, resists) = emptied.await.unwrap_or_default();
            trouble.into_iter().for_each(|trouble| self.note(trouble));
            self.discarded.notified().await;
        }
    }

    fn say(&self, word: Frame) {
        // After the stop there is no receiver.
        if !self.stopping.get() {
            self.words.borrow_mut().push_back(word);
            self.said.notify_one();
        }
    }

    /// Writes the lines that wait when everything that can be done now is done.
    async fn write_journal(self: Rc<Self>) {
        loop {
            self.lines_wait.notified().await;
            self.journal.borrow_mut().write_pending();
        }
    }

    async fn write(self: Rc<Self>, mut writer: OwnedWriteHalf) {
        let mut buffer = Vec::new();
        loop {
            while buffer.len() < 64 * 1024 {
                let Some(word) = self.words.borrow_mut().pop_front() else { break };
                if let Err(error) = wire::encode(&word, &mut buffer) {
                    eprintln!("tally: node-shim: a report cannot be sent: {error}");
                }
            }
            self.heard.notify_one();
            // Before anything is told.
            self.journal.borrow_mut().write_pending();
            if buffer.is_empty() {
                self.said.notified().await;
                continue;
            }
            // The reader notices a broken socket too, and stops everything.
            let _ = writer.write_all(&buffer).await;
            buffer.clear();
        }
    }
}

/// Kills what a node with this directory has started, where the kernel keeps a list of it. For a directory whose processes
/// have all been killed.
pub fn end_left_behind(root: &std::path::Path) {
    if let Ok(root) = fs::canonicalize(root) {
        cgroup::end_left_behind(&Layout::new(&root));
    }
}

/// Waits a little: the previous shim may still be ending what it had started.
fn lock(layout: &Layout) -> io::Result<File> {
    let mut file =
        File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(layout.lock())?;
    let until = std::time::Instant::now() + LOCK_FOR;
    while let Err(error) = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK {
            return Err(error.into());
        }
        if std::time::Instant::now() > until {
            let holder = fs::read_to_string(layout.lock()).unwrap_or_default();
            let holder = holder.trim();
            return Err(io::Error::other(format!(
                "another tally uses it (its node-shim is process {holder}); stop that one or choose another directory"
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // Only for the message above: a full disk is no reason to fail.
    let _ = file.set_len(0);
    let _ = writeln!(file, "{}", rustix::process::getpid().as_raw_nonzero());
    Ok(file)
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
