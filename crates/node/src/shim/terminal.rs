//! A terminal for a command: made by the launcher in the container's own /dev, so that the command finds it there by its
//! name. The launcher sends the other end to the shim.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::variables::Variables;
use crate::port::TerminalSize;

/// Tells the command what kind of terminal it has, unless it is told already.
pub fn name(env: &mut Variables) {
    if env.get("TERM").is_none() {
        // Only a NUL byte is refused.
        let _ = env.insert("TERM", "xterm");
    }
}

pub struct Terminal {
    /// What is written here is the command's input, and its output is read here.
    pub outer: OwnedFd,
    /// The command's own end.
    pub inner: OwnedFd,
}

/// `isolated`: the process has entered the mount namespace of an isolated container. There, /dev/ptmx is a link that a
/// process of the container can replace, and what it leads to is not.
pub fn open(isolated: bool, size: TerminalSize) -> io::Result<Terminal> {
    let outer = if isolated {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::open("/dev/pts/ptmx", flags, Mode::empty())?
    } else {
        openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?
    };
    unlockpt(&outer)?;
    let inner = ioctl_tiocgptpeer(&outer, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    resize(&outer, size)?;
    Ok(Terminal { outer, inner })
}

/// Zero leaves the size as it is.
pub fn resize(terminal: impl AsFd, size: TerminalSize) -> io::Result<()> {
    if size == TerminalSize::default() {
        return Ok(());
    }
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(tcsetwinsize(terminal, size)?)
}

/// This process, which must not lead a process group, begins a session, and the terminal is that of the session.
pub fn enter(inner: &OwnedFd) -> io::Result<()> {
    rustix::process::setsid()?;
    rustix::process::ioctl_tiocsctty(inner)?;
    rustix::stdio::dup2_stdin(inner)?;
    rustix::stdio::dup2_stdout(inner)?;
    rustix::stdio::dup2_stderr(inner)?;
    Ok(())
}
