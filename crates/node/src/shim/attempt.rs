//! One attempt from its start to its record.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::cgroup::AttemptGroups;
use super::command::{self, CREATE_ERROR, FoundCommand, START_ERROR, create_failure, failure};
use super::journal::{self, before_last};
use super::launch::{Launch, LaunchReport, MountNamespace};
use super::layout::AttemptDir;
use super::mounts::{Bind, View};
use super::output::Output;
use super::reaper::{Ended, Status};
use super::recorder::{AttemptEnd, command_line};
use super::spawn::{Pipes, ProcessGroup, Program};
use super::variables::Variables;
use super::viewers::Viewers;
use super::wire::Frame;
use super::{Shim, now, processes, terminal, termination, volumes};
use crate::attempts::ResourceUsage;
use crate::descriptors::{self, DescriptorReader};
use crate::output::OutputEvent;
use crate::port::{self, Confinement, Exit, OperationError, Report, Start, TerminalSize};

/// How long to wait until killed processes are gone. Only a process that is stuck in the kernel takes longer.
pub const KILL_FOR: Duration = Duration::from_secs(5);
/// How long another process may keep a container's output open after the container's last process has ended.
const DRAIN_FOR: Duration = Duration::from_secs(2);
/// The default path of the termination message.
const DEFAULT_TERMINATION_LOG: &str = "/dev/termination-log";

/// A running attempt: what probes and signals need to know about it.
pub struct RunningAttempt {
    pub pid: Pid,
    pub ticks: u64,
    pub env: Variables,
    pub working_dir: Option<String>,
    pub user: Option<u32>,
    pub group: Option<u32>,
    pub confinement: Confinement,
    /// The attempt has a mount namespace of its own.
    pub apart: bool,
    /// The first process of an isolated attempt, once the command runs.
    pub init: RefCell<Option<InitProcess>>,
    pub cgroups: Option<AttemptGroups>,
    /// The command has been executed.
    pub is_up: Cell<bool>,
    /// Where clients write the container's input: a pipe or its terminal. None: it has none, or no more.
    pub input: RefCell<Option<OwnedFd>>,
    pub has_terminal: Cell<bool>,
    pub stdin_once: bool,
    pub viewers: Rc<Viewers>,
    /// The main process has been reaped: no probe or hook may start any more.
    pub over: Cell<bool>,
    /// Probes and hooks that run for the attempt.
    pub helpers: RefCell<HashSet<Pid>>,
}

/// The first process of an isolated attempt (`init.rs`).
pub struct InitProcess {
    pub pid: i32,
    pub pid_namespace: String,
    writer: OwnedWriteHalf,
}

impl InitProcess {
    /// It sends the signal to the command's process group. The socket has room: a line is sent for each signal, and it
    /// reads them at once.
    pub fn signal(&self, number: i32) {
        let _ = self.writer.try_write(format!("{number}\n").as_bytes());
    }
}

/// The socket for the launcher's answers, and the line to send to it.
pub type Launcher = (UnixStream, Vec<u8>);

/// What the launcher still says after the command runs.
pub type LaunchReports = Lines<BufReader<DescriptorReader>>;

/// A command that was launched.
pub struct Launched {
    /// Some: it is isolated, and this is the first process of its namespace.
    pub isolated: Option<(InitProcess, LaunchReports)>,
    /// The other end of its terminal.
    pub terminal: Option<OwnedFd>,
}

struct Started {
    running: Rc<RunningAttempt>,
    ended: oneshot::Receiver<Ended>,
    output: Output,
    launcher: Option<Launcher>,
    started_at: tally_core::time::Timestamp,
    slot: AttemptDir,
    termination: port::TerminationMessage,
    /// For the job log.
    command: String,
}

impl Started {
    /// Records the end, in the records of attempts and in the job log, and tells it to the reader of the output.
    fn record(&self, shim: &Shim, attempt: &port::Attempt, end: &AttemptEnd<'_>) {
        let Some(source) = self.output.source().filter(|source| !source.job.is_empty()) else { return };
        if shim.job_log.is_none() && !shim.output.tell_ends && !shim.recorder.borrow().keeps() {
            return;
        }
        let (record, recorded) = shim.recorder.borrow_mut().record(source, attempt, end);
        let logged = match &shim.job_log {
            Some(log) => log.borrow_mut().append(&record, self.output.received(), &self.command),
            None => Ok(()),
        };
        for error in [recorded.err(), logged.err()].into_iter().flatten() {
            shim.complain(attempt, &error);
        }
        if shim.output.tell_ends {
            shim.say(Frame::Output(OutputEvent::AttemptEnded {
                source: Box::new(source.clone()),
                record: Box::new(record),
            }));
        }
    }

    /// The output comes from the terminal, and clients write to it.
    fn add_terminal(&mut self, shim: &Shim, terminal: OwnedFd) {
        let added = rustix::io::ioctl_fionbio(&terminal, true).map_err(io::Error::from).and_then(|()| {
            let input = terminal.try_clone()?;
            self.output.add_terminal(terminal)?;
            Ok(input)
        });
        match added {
            Ok(input) => {
                self.running.has_terminal.set(true);
                self.running.input.replace(Some(input));
            }
            Err(error) => shim.note(format!("the output of a terminal cannot be read: {error}")),
        }
    }

    fn record_lost(&self, shim: &Shim, attempt: &port::Attempt, at: tally_core::time::Timestamp, why: &str) {
        self.record(shim, attempt, &AttemptEnd::Lost { started_at: self.started_at, at, why });
    }
}

/// Starts the attempt, or reports why it will never run. In that case nothing of it is left on disk.
pub fn start(shim: &Rc<Shim>, start: Start) {
    let attempt = start.attempt.clone();
    match begin(shim, start) {
        Ok(started) => {
            if started.launcher.is_none() {
                started.running.is_up.set(true);
                shim.report(Report::Started { attempt: attempt.clone(), at: started.started_at });
            }
            shim.attempts.borrow_mut().insert(attempt.clone(), started.running.clone());
            shim.begun();
            tokio::task::spawn_local(run(shim.clone(), attempt, started));
        }
        Err(failure) => shim.report(Report::Unstarted { attempt, failure }),
    }
}

fn begin(shim: &Rc<Shim>, start: Start) -> Result<Started, OperationError> {
    let slot =
        shim.layout.attempt(&start.attempt).map_err(|error| create_failure("the attempt has no name", &error))?;
    let isolated = shim.hidden.is_some();
    let env = command::environment(&start, &shim.env, &shim.layout, &slot, isolated)?;
    let Some(name) = start.argv.first() else { return Err(failure(START_ERROR, "there is no command to run")) };
    let other_user = start.user.is_some_and(|user| user != rustix::process::geteuid().as_raw())
        || start.group.is_some_and(|group| group != rustix::process::getegid().as_raw());
    let apart = isolated
        || !start.mounts.is_empty()
        || other_user
        || start.confinement.read_only_root
        || mentions_termination_log(&start);
    // The common case needs no launcher and is started directly.
    let confined = start.confinement != Confinement::default();
    let grouped = shim.pids_limit.is_some() || start.limits.any() && !shim.cgroups.limits().are_impossible();
    let terminal = (start.tty && shim.attachable).then(TerminalSize::default);
    let launched = apart || confined || grouped || terminal.is_some();
    if start.limits.any()
        && let Some(message) = shim.cgroups.limits().unenforced(&start.limits)
    {
        shim.note(message.clone());
        shim.report(Report::LimitsNotEnforced { pod: start.attempt.pod.clone(), message });
    }
    // Checked before anything is created, so that most failures leave nothing behind.
    let program = if launched { None } else { Some(shim.commands.find(name, &env, start.working_dir.as_deref())?) };
    let started_at = now();
    shim.names.borrow_mut().insert(start.attempt.pod.clone(), start.pod_name.clone());
    let source = start.source.clone().filter(|_| shim.recorder.borrow().keeps());
    let started = journal::Started { at: started_at, boot: shim.boot.clone(), pod: start.pod_name.clone(), source };
    shim.journal.borrow_mut().begin(&start.attempt, started).map_err(|error| match error.kind() {
        // An attempt runs at most once, whatever happens to the deciding half.
        io::ErrorKind::AlreadyExists => failure(CREATE_ERROR, "this attempt has been started before"),
        _ => create_failure(&format!("{} cannot be written", shim.layout.journal().display()), &error),
    })?;
    if let Some(past) = before_last(&start.attempt) {
        shim.erase_log(&past);
    }
    let never_ran = || {
        slot.erase();
        shim.journal.borrow_mut().erase(&start.attempt);
    };
    let results = shim.results.as_ref().zip(start.results.clone());
    let results = results.map(|(results, to)| results.begin(&start.attempt, to)).transpose();
    let results = results
        .map_err(|error| create_failure("its results cannot be written", &error))
        .inspect_err(|_| never_ran())?;
    let how = HowToSpawn { program, apart, grouped, terminal };
    let spawned = spawn(shim, &start, &slot, &env, how);
    let Spawned { pid, pipes, launcher, cgroups, since, input } = spawned.inspect_err(|_| never_ran())?;
    let ended = shim.reaper.expect(pid);
    // The line only helps to find the process if the shim is killed; the process can also be found by its environment.
    let until = processes::ticks();
    let running = journal::RunningProcess { pid: pid.as_raw_nonzero().get(), since, until };
    shim.journal.borrow_mut().running(&start.attempt, running);
    shim.lines_wait.notify_one();
    let viewers = Rc::new(Viewers::default());
    let output = Output::new(shim, &start, slot.clone(), pipes, results, viewers.clone());
    let running = Rc::new(RunningAttempt {
        pid,
        ticks: since,
        env,
        working_dir: start.working_dir,
        user: start.user,
        group: start.group,
        confinement: start.confinement,
        apart,
        init: RefCell::default(),
        cgroups,
        is_up: Cell::new(false),
        input: RefCell::new(input),
        has_terminal: Cell::new(false),
        stdin_once: start.stdin_once,
        viewers,
        over: Cell::new(false),
        helpers: RefCell::default(),
    });
    let termination = start.termination_message;
    let command = if shim.job_log.is_some() { command_line(&start.argv) } else { String::new() };
    Ok(Started { running, ended, output, launcher, started_at, slot, termination, command })
}

struct Spawned {
    pid: Pid,
    pipes: Pipes,
    launcher: Option<Launcher>,
    cgroups: Option<AttemptGroups>,
    /// A moment before the process started, in clock ticks.
    since: u64,
    /// The other end of its standard input, if clients can write to it.
    input: Option<OwnedFd>,
}

struct HowToSpawn {
    /// Some: no launcher is needed.
    program: Option<FoundCommand>,
    apart: bool,
    grouped: bool,
    terminal: Option<TerminalSize>,
}

/// The standard input of a container: its own end, and the one for clients.
fn make_input(shim: &Shim, start: &Start, how: &HowToSpawn) -> io::Result<Option<(OwnedFd, OwnedFd)>> {
    if !(start.stdin && shim.attachable) || how.terminal.is_some() {
        return Ok(None);
    }
    let (reader, writer) = io::pipe()?;
    Ok(Some((reader.into(), writer.into())))
}

fn spawn(
    shim: &Rc<Shim>,
    start: &Start,
    slot: &AttemptDir,
    env: &Variables,
    how: HowToSpawn,
) -> Result<Spawned, OperationError> {
    let since = processes::ticks();
    let input = make_input(shim, start, &how).map_err(|error| create_failure("its standard input", &error))?;
    let (stdin, input) = input.unzip();
    if let Some(program) = how.program {
        let (pid, pipes) = spawn_directly(shim, start, env, program, stdin)?;
        return Ok(Spawned { pid, pipes, launcher: None, cgroups: None, since, input });
    }
    let cgroups = make_cgroups(shim, start, how.grouped)?;
    let launched = launch_of(shim, start, slot, env.clone(), how.apart, cgroups.as_ref()).and_then(|mut launch| {
        launch.stdin = stdin.is_some();
        launch.terminal = how.terminal;
        if launch.terminal.is_some() {
            terminal::name(&mut launch.env);
        }
        spawn_launcher(shim, &launch, stdin).map_err(|error| create_failure("the launcher cannot be started", &error))
    });
    if let (Err(_), Some(cgroups)) = (&launched, &cgroups) {
        cgroups.remove();
    }
    let (pid, pipes, launcher) = launched?;
    Ok(Spawned { pid, pipes, launcher: Some(launcher), cgroups, since, input })
}

/// The path is bind-mounted if it is not the default, and if the command names it: a plain process that wrote there
/// would write to the machine's own /dev. All other processes find the file through TALLY_TERMINATION_LOG.
fn mentions_termination_log(start: &Start) -> bool {
    let path = start.termination_message.path.as_str();
    !path.is_empty()
        && (path != DEFAULT_TERMINATION_LOG
            || start.argv.iter().chain(start.env.iter().map(|(_, value)| value)).any(|text| text.contains(path)))
}

fn spawn_directly(
    shim: &Shim,
    start: &Start,
    env: &Variables,
    found: FoundCommand,
    stdin: Option<OwnedFd>,
) -> Result<(Pid, Pipes), OperationError> {
    let given = stdin.or_else(|| if start.stdin { shim.stdin.take() } else { None });
    let stdin = given.as_ref().map_or_else(|| shim.spawner.nothing(), AsFd::as_fd);
    let (name, dir) = (&start.argv[0], start.working_dir.as_deref());
    let spawn = |path: &Path| {
        let program = Program::new(path, &start.argv, env, dir)?;
        shim.spawner.spawn(&program, stdin, ProcessGroup::Own)
    };
    let mut path = found.path;
    let mut spawned = spawn(&path);
    // What was true of it a moment ago may not be true any more: the file or the directory has changed, and another file may
    // have the name now. If there is none, the search says what is wrong.
    if spawned.is_err() && found.was_kept {
        path = shim.commands.find_anew(name, env, dir)?;
        spawned = spawn(&path);
    }
    spawned.map_err(|error| command::not_executed(name, &path, &error))
}

fn make_cgroups(shim: &Shim, start: &Start, grouped: bool) -> Result<Option<AttemptGroups>, OperationError> {
    if !grouped {
        return Ok(None);
    }
    let made = shim.cgroups.limits().make(&start.attempt, &start.limits, shim.pids_limit);
    made.map(Some).map_err(|error| create_failure("its limits cannot be set", &error))
}

fn launch_of(
    shim: &Shim,
    start: &Start,
    slot: &AttemptDir,
    env: Variables,
    apart: bool,
    cgroups: Option<&AttemptGroups>,
) -> Result<Launch, OperationError> {
    let unmade = |error: io::Error| create_failure("its files cannot be made", &error);
    let mounts = if apart {
        let read_only_root = start.confinement.read_only_root;
        let mut binds = Vec::new();
        slot.make_dir().map_err(unmade)?;
        if shim.hidden.is_some() {
            binds.push(own_tmp(slot, read_only_root).map_err(unmade)?);
        }
        for mount in &start.mounts {
            let source = shim.layout.volume(&start.attempt.pod, &mount.volume).map_err(unmade)?;
            // A volume that is a path of the machine, or the directory of a claim, is a symlink to it.
            let link = fs::read_link(&source).ok();
            binds.push(Bind {
                what: format!("volume {:?}", mount.volume),
                host: link.as_ref().is_some_and(|link| link.parent() != Some(&shim.layout.claims())),
                source: link.unwrap_or(source),
                sub_path: mount.sub_path.clone(),
                target: mount.path.clone(),
                read_only: mount.read_only || volumes::is_of_files(&shim.layout, &start.attempt.pod, &mount.volume),
                recursive: mount.recursive,
                optional: false,
            });
        }
        let last_words = slot.termination_log().to_owned();
        fs::write(&last_words, "").map_err(unmade)?;
        fs::set_permissions(&last_words, fs::Permissions::from_mode(0o666)).map_err(unmade)?;
        binds.push(Bind {
            what: "the termination message".to_owned(),
            source: last_words,
            sub_path: String::new(),
            target: start.termination_message.path.clone(),
            read_only: false,
            recursive: false,
            optional: true,
            host: false,
        });
        let stage = slot.stage();
        // An isolated container does not see the node's files; its launcher works elsewhere.
        if shim.hidden.is_none() {
            fs::create_dir(&stage).map_err(unmade)?;
        }
        let view = View { binds, stage, read_only_root, hidden: shim.hidden.clone(), node: shim.own_directory.clone() };
        MountNamespace::Apart { hostname: start.hostname.clone(), view }
    } else {
        MountNamespace::Machine
    };
    Ok(Launch {
        argv: start.argv.clone(),
        env,
        working_dir: start.working_dir.clone(),
        mounts,
        cgroups: cgroups.into_iter().flat_map(AttemptGroups::dirs).cloned().collect(),
        user: start.user,
        group: start.group,
        confinement: start.confinement.clone(),
        stdin: false,
        terminal: None,
        apart: false,
    })
}

/// On the disk of the node, and not in memory: a container may write more there than the memory holds.
fn own_tmp(slot: &AttemptDir, read_only: bool) -> io::Result<Bind> {
    let source = slot.tmp();
    fs::create_dir(&source)?;
    fs::set_permissions(&source, fs::Permissions::from_mode(0o1777))?;
    let (what, target) = ("its own /tmp".to_owned(), "/tmp".to_owned());
    let sub_path = String::new();
    Ok(Bind { what, source, sub_path, target, read_only, recursive: false, optional: false, host: false })
}

/// Starts this executable in place of the command. Its instructions are sent over the socket.
pub fn spawn_launcher(shim: &Shim, launch: &Launch, stdin: Option<OwnedFd>) -> io::Result<(Pid, Pipes, Launcher)> {
    let env = marks_of(launch)?;
    let (program, theirs, launcher) = launcher(shim, launch, &env, stdin)?;
    let (pid, pipes) = shim.spawner.spawn(&program, theirs.as_fd(), group_of(launch))?;
    Ok((pid, pipes, launcher))
}

/// The same for the command of a client, which has streams of its own.
pub fn spawn_session(
    shim: &Shim,
    launch: &Launch,
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: OwnedFd,
) -> io::Result<(Pid, Launcher)> {
    let env = marks_of(launch)?;
    let (program, theirs, launcher) = launcher(shim, launch, &env, stdin)?;
    let streams = [theirs.as_fd(), stdout.as_fd(), stderr.as_fd()];
    let pid = shim.spawner.spawn_with(&program, streams, group_of(launch))?;
    Ok((pid, launcher))
}

/// A launcher that becomes the command itself, with a terminal, begins a session.
fn group_of(launch: &Launch) -> ProcessGroup {
    if launch.terminal.is_some() && !launch.is_isolated() { ProcessGroup::LeftToIt } else { ProcessGroup::Own }
}

/// The environment of the launcher. The process is marked as part of the attempt from the beginning, so that it is found like
/// any other process of it.
fn marks_of(launch: &Launch) -> io::Result<Variables> {
    let mut env = Variables::default();
    for mark in [processes::ATTEMPT, processes::NODE] {
        launch.env.get(mark).map_or(Ok(()), |value| env.insert(mark, value))?;
    }
    Ok(env)
}

/// The command line of the launcher, its end of the socket, and what is sent to it.
fn launcher<'a>(
    shim: &Shim,
    launch: &Launch,
    env: &'a Variables,
    stdin: Option<OwnedFd>,
) -> io::Result<(Program<'a>, OwnedFd, Launcher)> {
    let (ours, theirs) = StdUnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let path = shim.program.path();
    let program = Program::new(path, [&path.to_string_lossy(), super::COMMAND, super::LAUNCH], env, None)?;
    let mut text = serde_json::to_vec(launch)?;
    text.push(b'\n');
    if let Some(stdin) = stdin {
        // With the first byte. There is room for it: the socket is new.
        descriptors::send(ours.as_fd(), &text[..1], &[stdin.as_fd()])?;
        text.remove(0);
    }
    Ok((program, theirs.into(), (UnixStream::from_std(ours)?, text)))
}

/// Waits until the command is executed, or the launcher says why not. None: the launcher ended without an answer.
pub async fn launched((socket, text): Launcher) -> Option<Result<Launched, OperationError>> {
    let (reader, mut writer) = socket.into_split();
    let (reader, groups) = DescriptorReader::new(reader);
    let mut terminal = None;
    // A failed write shows in the answer.
    let _ = writer.write_all(&text).await;
    let mut lines = BufReader::new(reader).lines();
    let (mut ready, mut pid, mut namespace) = (false, None, None);
    while let Ok(Some(line)) = lines.next_line().await {
        match serde_json::from_str(&line) {
            Ok(LaunchReport::Executing) => ready = true,
            Ok(LaunchReport::Terminal) => terminal = groups.take(1).and_then(|mut group| group.pop()),
            Ok(LaunchReport::Failed(failure)) => return Some(Err(failure)),
            // The launcher tells this before its first process tells anything else than a failure.
            Ok(LaunchReport::Init { pid: first }) => pid = Some(first),
            Ok(LaunchReport::Running { pid_namespace }) => namespace = Some(pid_namespace),
            Ok(LaunchReport::Ended { .. }) | Err(_) => return None,
        }
        if let (Some(pid), Some(pid_namespace)) = (pid, &namespace) {
            let pid_namespace = pid_namespace.clone();
            let isolated = Some((InitProcess { pid, pid_namespace, writer }, lines));
            return Some(Ok(Launched { isolated, terminal }));
        }
    }
    ready.then_some(Ok(Launched { isolated: None, terminal }))
}

/// How an isolated command ended. None: the first process of its namespace was killed.
async fn told_end(mut lines: LaunchReports) -> Option<(Status, ResourceUsage)> {
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(LaunchReport::Ended { status, usage }) = serde_json::from_str(&line) {
            return Some((status, usage));
        }
    }
    None
}

/// From here to the record nothing depends on whether the deciding process is alive.
async fn run(shim: Rc<Shim>, attempt: port::Attempt, mut started: Started) {
    let mut reports = None;
    if let Some(launcher) = started.launcher.take() {
        match launched(launcher).await {
            Some(Ok(Launched { isolated, terminal })) => {
                let (init, lines) = isolated.unzip();
                *started.running.init.borrow_mut() = init;
                reports = lines;
                if let Some(terminal) = terminal {
                    started.add_terminal(&shim, terminal);
                }
                started.running.is_up.set(true);
                shim.report(Report::Started { attempt: attempt.clone(), at: started.started_at });
            }
            outcome => {
                let failure = match outcome {
                    Some(Err(failure)) => failure,
                    _ => failure(CREATE_ERROR, "its launcher was killed"),
                };
                shim.reaper.signal(started.running.pid, Signal::KILL);
                let _ = started.ended.await;
                end_everything(&shim, &attempt, &started.running, false).await;
                // Nothing ran: the next attempt to start it may have the same number.
                started.slot.erase();
                shim.journal.borrow_mut().erase(&attempt);
                shim.done();
                return shim.report(Report::Unstarted { attempt, failure });
            }
        }
    }
    let ended = tokio::select! {
        biased;
        ended = &mut started.ended => ended,
        () = started.output.pump(&shim) => (&mut started.ended).await,
    };
    let mut ended = ended.unwrap_or(Ended {
        status: Status::Signalled(libc::SIGKILL),
        alone: false,
        usage: ResourceUsage::default(),
    });
    if let Some(reports) = reports {
        // All processes that have the other end have ended: what was said is there.
        let told = timeout(DRAIN_FOR, told_end(reports)).await.ok().flatten();
        let (status, usage) = told.unwrap_or((Status::Signalled(libc::SIGKILL), ended.usage));
        (ended.status, ended.usage) = (status, usage);
    }
    let finished_at = now();
    let out_of_memory = started.running.cgroups.as_ref().is_some_and(AttemptGroups::out_of_memory);
    end_everything(&shim, &attempt, &started.running, ended.alone).await;
    if shim.hidden.is_some() && started.slot.discard_tmp(&shim.layout.trash()) {
        shim.discarded.notify_one();
    }
    let _ = timeout(DRAIN_FOR, started.output.drain(&shim)).await;
    started.output.finish(&shim);
    // The shim killed the attempt because the deciding process is gone. An attempt that ended by itself at the same
    // moment counts as ended.
    if shim.stopping.get() && ended.status == Status::Signalled(libc::SIGKILL) {
        started.record_lost(&shim, &attempt, finished_at, "the node stopped");
        if let Err(error) = shim.journal.borrow_mut().lost(&attempt, finished_at, "the node stopped") {
            shim.complain(&attempt, &error);
        }
    } else {
        let (code, signal) = match ended.status {
            Status::Exited(code) => (code, None),
            Status::Signalled(signal) => (128 + signal, Some(signal)),
        };
        let (message, is_there) = termination::message(&started.slot, started.termination.from_logs && code != 0);
        if is_there {
            started.slot.forget_words();
        }
        let exit = Exit { code, signal, out_of_memory, started_at: started.started_at, finished_at, message };
        if let Err(error) = started.output.publish(&exit, ended.usage) {
            started.record_lost(&shim, &attempt, finished_at, "its results were not written");
            // An attempt without its result has not ended: the run is about to end, and the next one repeats the attempt.
            if let Err(error) = shim.journal.borrow_mut().lost(&attempt, finished_at, "its results were not written") {
                shim.complain(&attempt, &error);
            }
            shim.no_result(&attempt, &error);
            return shim.done();
        }
        // Before the journal: an end that the journal has must be in the records.
        started.record(&shim, &attempt, &AttemptEnd::Exited(&exit, ended.usage));
        // Before the report: what has been reported must not be lost.
        if let Err(error) = shim.journal.borrow_mut().ended(&attempt, &exit) {
            shim.complain(&attempt, &error);
        }
        shim.report(Report::Ended { attempt, exit });
    }
    shim.done();
}

/// The main process has been reaped. Ends all other processes of this attempt.
async fn end_everything(shim: &Rc<Shim>, attempt: &port::Attempt, running: &RunningAttempt, alone: bool) {
    let until = Instant::now() + KILL_FOR;
    // Set before the helpers are listed: later ones are refused.
    running.over.set(true);
    let helpers: Vec<Pid> = running.helpers.borrow().iter().copied().collect();
    for helper in &helpers {
        shim.reaper.signal(*helper, Signal::KILL);
    }
    if let Some(groups) = &running.cgroups {
        groups.kill();
    }
    while !alone && !shim.reaper.group_is_gone(running.pid) && Instant::now() < until {
        shim.reaper.round().await;
    }
    if let Some(groups) = &running.cgroups {
        while !groups.is_empty() && Instant::now() < until {
            groups.kill();
            shim.reaper.round().await;
        }
        groups.remove();
    }
    // Processes that the helpers had started become orphans only after the helpers' end.
    while helpers.iter().any(|helper| shim.reaper.knows(*helper)) && Instant::now() < until {
        shim.reaper.round().await;
    }
    shim.attempts.borrow_mut().remove(attempt);
    let mut left = shim.sweep();
    while !left.is_empty() && Instant::now() < until {
        shim.reaper.round().await;
        left = shim.sweep();
    }
    shim.reaper.give_up(left);
}
