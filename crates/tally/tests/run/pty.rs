//! A pseudo-terminal: the binary on one end, the test on the other.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::tool::eventually;

pub struct Terminal {
    child: Child,
    /// The end of the user at the terminal.
    near: OwnedFd,
    shown: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

/// Starts a command as the foreground process of a new terminal, which nothing reads yet.
pub fn unread(mut command: Command, columns: u16, rows: u16) -> (Child, OwnedFd) {
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&near).unwrap();
    unlockpt(&near).unwrap();
    let name = ptsname(&near, Vec::new()).unwrap().into_string().unwrap();
    let far = File::options().read(true).write(true).open(name).unwrap();
    resize(&near, columns, rows);
    let end = || Stdio::from(far.try_clone().unwrap());
    command.stdin(end()).stdout(end()).stderr(end());
    become_foreground(&mut command);
    let child = command.spawn().unwrap();
    (child, near)
}

impl Terminal {
    /// Starts a command as the foreground process of a new terminal.
    pub fn start(command: Command, columns: u16, rows: u16) -> Self {
        let (child, near) = unread(command, columns, rows);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, sink) = (File::from(near.try_clone().unwrap()), shown.clone());
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // An error means that no process has the other end open any more.
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                sink.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Self { child, near, shown, reader: Some(reader) }
    }

    /// Everything that was written to it so far.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    pub fn await_text(&self, text: &str) {
        eventually(&format!("{text:?} is shown"), || self.shown().contains(text));
    }

    pub fn type_in(&self, text: &str) {
        File::from(self.near.try_clone().unwrap()).write_all(text.as_bytes()).unwrap();
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        resize(&self.near, columns, rows);
    }

    /// The exit code, and everything shown up to the end.
    pub fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        // The reader ends when no process has the other end open any more, and then it has read everything.
        let reader = self.reader.take().unwrap();
        eventually("no process writes to the terminal any more", || reader.is_finished());
        reader.join().unwrap();
        (code, self.shown())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn resize(terminal: impl AsFd, columns: u16, rows: u16) {
    tcsetwinsize(terminal, Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}

/// Gives the command a session of its own on this terminal, so that Ctrl-C reaches only this command.
#[allow(unsafe_code)]
fn become_foreground(command: &mut Command) {
    // SAFETY: between fork and exec only two system calls are made; nothing is allocated and no lock is taken.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
            Ok(())
        });
    }
}
