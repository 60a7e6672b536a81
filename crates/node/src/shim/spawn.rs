//! How processes are started: in a process group of their own, with pipes for their output, and with the limit of open
//! files that the node was started with. The node itself needs several files for every container and raises its own
//! limit to the maximum; programs that still use select(2) must not inherit that.
//!
//! The pipes can be read before the process exists: once a process runs, nothing that it needs can fail.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use tokio::net::unix::pipe;

/// The output of a process.
pub struct Pipes {
    pub stdout: pipe::Receiver,
    pub stderr: pipe::Receiver,
}

/// The process group of a new process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessGroup {
    Own,
    /// It will begin a session, which is a group of its own, too. The leader of a group cannot.
    LeftToIt,
}

pub struct Spawner {
    /// The original limit, if it could be raised.
    files: Option<Rlimit>,
    /// Low descriptor numbers, reserved for when all others are taken: see `low`.
    reserve: RefCell<Vec<OwnedFd>>,
}

/// Three are needed. Another thread may open a file just when they are released.
const RESERVE: usize = 8;

impl Spawner {
    /// Raises the limit of this process.
    pub fn new() -> io::Result<Self> {
        let files = getrlimit(Resource::Nofile);
        let most = Rlimit { current: files.maximum, ..files };
        let raised = files.current != files.maximum && setrlimit(Resource::Nofile, most).is_ok();
        let spawner = Self { files: raised.then_some(files), reserve: RefCell::default() };
        spawner.restock()?;
        Ok(spawner)
    }

    /// Consumes the command, and with it the shim's copies of the write ends.
    pub fn spawn(&self, command: Command, stdin: OwnedFd, group: ProcessGroup) -> io::Result<(Pid, Pipes)> {
        let (stdout, stdout_end) = io::pipe()?;
        let (stderr, stderr_end) = io::pipe()?;
        let pipes = Pipes {
            stdout: pipe::Receiver::from_owned_fd(stdout.into())?,
            stderr: pipe::Receiver::from_owned_fd(stderr.into())?,
        };
        let pid = self.spawn_with(command, [stdin, stdout_end.into(), stderr_end.into()], group)?;
        Ok((pid, pipes))
    }

    /// The same with the standard streams that are given.
    pub fn spawn_with(&self, mut command: Command, streams: [OwnedFd; 3], group: ProcessGroup) -> io::Result<Pid> {
        let [stdin, stdout, stderr] = self.low(streams)?;
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        if group == ProcessGroup::Own {
            command.process_group(0);
        }
        let child = self.with_its_limit(&mut command);
        drop(command);
        // If that fails, the next process may find no low number; this one runs.
        let _ = self.restock();
        Ok(Pid::from_child(&child?))
    }

    /// The C library passes on no descriptor whose number is beyond the limit, even if it is open.
    fn low(&self, ends: [OwnedFd; 3]) -> io::Result<[OwnedFd; 3]> {
        let beyond = |end: &OwnedFd| {
            let limit = self.files.and_then(|files| files.current);
            limit.is_some_and(|limit| u64::try_from(end.as_raw_fd()).is_ok_and(|number| number >= limit))
        };
        if !ends.iter().any(beyond) {
            return Ok(ends);
        }
        self.reserve.borrow_mut().clear();
        let [stdin, stdout, stderr] = ends.map(|end| fcntl_dupfd_cloexec(end, 3));
        Ok([stdin?, stdout?, stderr?])
    }

    fn restock(&self) -> io::Result<()> {
        let mut reserve = self.reserve.borrow_mut();
        while self.files.is_some() && reserve.len() < RESERVE {
            reserve.push(nothing()?);
        }
        Ok(())
    }

    /// A limit is inherited, so the shim's own is lowered for a moment. Everything that is needed is open by then.
    fn with_its_limit(&self, command: &mut Command) -> io::Result<Child> {
        let Some(files) = self.files else { return command.spawn() };
        let ours = prlimit(None, Resource::Nofile, files)?;
        let spawned = command.spawn();
        setrlimit(Resource::Nofile, ours)?;
        match spawned {
            // No low number was available, or one more was needed after all: then the limit is set after the start.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::EBADF)) => {
                let child = command.spawn()?;
                let _ = prlimit(Some(Pid::from_child(&child)), Resource::Nofile, files);
                Ok(child)
            }
            outcome => outcome,
        }
    }
}

/// The standard input of commands: empty.
pub fn nothing() -> io::Result<OwnedFd> {
    Ok(std::fs::File::open("/dev/null")?.into())
}

/// The output of commands that nothing reads.
pub fn nowhere() -> io::Result<OwnedFd> {
    Ok(std::fs::File::options().write(true).open("/dev/null")?.into())
}
