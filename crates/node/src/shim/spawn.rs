//! How processes are started: in a process group of their own, with pipes for their output, and with the limit of open
//! files that the node was started with. The node itself needs several files for every container and raises its own
//! limit to the maximum; programs that still use select(2) must not inherit that.
//!
//! The pipes can be read before the process exists: once a process runs, nothing that it needs can fail.

use std::cell::RefCell;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use tokio::net::unix::pipe;

use super::sys;
use super::variables::Variables;

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

/// A program to start, in the forms that the kernel takes.
pub struct Program {
    pub path: CString,
    pub argv: Vec<CString>,
    pub env: Variables,
    pub dir: Option<CString>,
}

impl Program {
    pub fn new<T: AsRef<str>>(
        path: &Path,
        argv: impl IntoIterator<Item = T>,
        env: Variables,
        dir: Option<&str>,
    ) -> io::Result<Self> {
        Ok(Self {
            path: CString::new(path.as_os_str().as_bytes())?,
            argv: argv.into_iter().map(|word| CString::new(word.as_ref())).collect::<Result<_, _>>()?,
            env,
            dir: dir.map(CString::new).transpose()?,
        })
    }
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

    pub fn spawn(&self, program: &Program, stdin: OwnedFd, group: ProcessGroup) -> io::Result<(Pid, Pipes)> {
        let (stdout, stdout_end) = io::pipe()?;
        let (stderr, stderr_end) = io::pipe()?;
        let pipes = Pipes {
            stdout: pipe::Receiver::from_owned_fd(stdout.into())?,
            stderr: pipe::Receiver::from_owned_fd(stderr.into())?,
        };
        let pid = self.spawn_with(program, [stdin, stdout_end.into(), stderr_end.into()], group)?;
        Ok((pid, pipes))
    }

    /// The same with the standard streams that are given.
    pub fn spawn_with(&self, program: &Program, streams: [OwnedFd; 3], group: ProcessGroup) -> io::Result<Pid> {
        let streams = self.passed_on(streams)?;
        let pid = self.with_its_limit(|| sys::spawn(program, streams.each_ref().map(AsFd::as_fd), group));
        drop(streams);
        // If that fails, the next process may find no low number; this one runs.
        let _ = self.restock();
        pid
    }

    /// The C library passes on no descriptor whose number is beyond the limit, even if it is open. Those of the standard
    /// streams would be overwritten before they are passed on.
    fn passed_on(&self, ends: [OwnedFd; 3]) -> io::Result<[OwnedFd; 3]> {
        let limit = self.files.and_then(|files| files.current).unwrap_or(u64::MAX);
        if ends.iter().all(|end| u64::try_from(end.as_raw_fd()).is_ok_and(|number| (3..limit).contains(&number))) {
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
    fn with_its_limit(&self, spawn: impl Fn() -> io::Result<Pid>) -> io::Result<Pid> {
        let Some(files) = self.files else { return spawn() };
        let ours = prlimit(None, Resource::Nofile, files)?;
        let spawned = spawn();
        setrlimit(Resource::Nofile, ours)?;
        match spawned {
            // No low number was available, or one more was needed after all: then the limit is set after the start.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::EBADF)) => {
                let pid = spawn()?;
                let _ = prlimit(Some(pid), Resource::Nofile, files);
                Ok(pid)
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
