//! How processes are started: in a process group of their own, with pipes for their output, and with the limit of open
//! files that the node was started with. The node itself needs several files for every container and raises its own
//! limit to the maximum; programs that still use select(2) must not inherit that.
//!
//! The pipes can be read before the process exists: once a process runs, nothing that it needs can fail.

use std::ffi::CString;
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
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
pub struct Program<'a> {
    pub path: CString,
    pub argv: Vec<CString>,
    pub env: &'a Variables,
    pub dir: Option<CString>,
}

impl<'a> Program<'a> {
    pub fn new<T: AsRef<str>>(
        path: &Path,
        argv: impl IntoIterator<Item = T>,
        env: &'a Variables,
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
    starter: sys::ProcessStarter,
    /// What is empty to every process that reads it.
    nothing: OwnedFd,
}

impl Spawner {
    /// Raises the limit of this process.
    pub fn new() -> io::Result<Self> {
        let files = getrlimit(Resource::Nofile);
        let most = Rlimit { current: files.maximum, ..files };
        let raised = files.current != files.maximum && setrlimit(Resource::Nofile, most).is_ok();
        let nothing = std::fs::File::open("/dev/null")?.into();
        Ok(Self { files: raised.then_some(files), starter: sys::ProcessStarter::new()?, nothing })
    }

    /// The standard input of commands that get none: empty.
    pub fn nothing(&self) -> BorrowedFd<'_> {
        self.nothing.as_fd()
    }

    pub fn spawn(&self, program: &Program<'_>, stdin: BorrowedFd<'_>, group: ProcessGroup) -> io::Result<(Pid, Pipes)> {
        let (stdout, stdout_end) = io::pipe()?;
        let (stderr, stderr_end) = io::pipe()?;
        let pipes = Pipes { stdout: receiver(stdout)?, stderr: receiver(stderr)? };
        let pid = self.spawn_with(program, [stdin, stdout_end.as_fd(), stderr_end.as_fd()], group)?;
        Ok((pid, pipes))
    }

    /// The same with the standard streams that are given.
    pub fn spawn_with(
        &self,
        program: &Program<'_>,
        streams: [BorrowedFd<'_>; 3],
        group: ProcessGroup,
    ) -> io::Result<Pid> {
        if streams.iter().all(|stream| stream.as_raw_fd() >= 3) {
            return self.starter.start(program, streams, group, self.files);
        }
        // A standard stream of this process would be replaced by another one before it is passed on.
        let [stdin, stdout, stderr] = streams.map(|stream| fcntl_dupfd_cloexec(stream, 3));
        let copies = [stdin?, stdout?, stderr?];
        self.starter.start(program, copies.each_ref().map(AsFd::as_fd), group, self.files)
    }
}

/// The end of a new pipe that this process reads. The process at the other end may block.
fn receiver(end: PipeReader) -> io::Result<pipe::Receiver> {
    rustix::io::ioctl_fionbio(&end, true)?;
    pipe::Receiver::from_owned_fd_unchecked(end.into())
}

/// The output of commands that nothing reads.
pub fn nowhere() -> io::Result<OwnedFd> {
    Ok(std::fs::File::options().write(true).open("/dev/null")?.into())
}
