//! The output of an attempt: from its pipes to its log, and to its results.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use tally_core::ids::PodUid;
use tokio::net::unix::pipe;
use tokio::sync::Notify;

use super::Shim;
use super::layout::AttemptDir;
use super::log::{self, Stream};
use super::results::ResultFiles;
use super::spawn::Pipes;
use super::viewers::Viewers;
use super::wire::Frame;
use crate::attempts::ResourceUsage;
use crate::output::{OutputEvent, OutputSource};
use crate::port::{Attempt, Exit, Start};

/// The log of an attempt, shared with the reader's messages about it.
pub struct AttemptLog {
    slot: AttemptDir,
    writer: RefCell<log::Writer>,
    /// The reader has read something.
    was_read: Notify,
    /// The log is no longer needed once it has been read.
    superseded: Cell<bool>,
}

/// The attempt's output, on its way to the log.
pub struct Output {
    attempt: Attempt,
    source: Option<Box<OutputSource>>,
    stdout: Option<pipe::Receiver>,
    stderr: Option<pipe::Receiver>,
    /// Comes as standard output.
    terminal: Option<pipe::Receiver>,
    viewers: Rc<Viewers>,
    log: Rc<AttemptLog>,
    results: Option<ResultFiles>,
    /// The reader has been told of the attempt.
    announced: bool,
    /// The processes have ended: nothing is left to wait for a reader.
    draining: bool,
    /// The number of bytes that were read from both pipes.
    received: u64,
}

thread_local! {
    /// One buffer for all: what is read is written before any other task runs.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; 64 * 1024]);
}

impl Output {
    pub fn new(
        shim: &Shim,
        start: &Start,
        slot: AttemptDir,
        pipes: Pipes,
        results: Option<ResultFiles>,
        viewers: Rc<Viewers>,
    ) -> Self {
        // Without a source no reader is told of the attempt, so none could be waited for.
        let follow = shim.output.follow.filter(|_| start.source.is_some());
        let writer = log::Writer::new(slot.clone(), shim.output.log_limits, follow);
        let log =
            AttemptLog { slot, writer: RefCell::new(writer), was_read: Notify::new(), superseded: Cell::new(false) };
        Self {
            attempt: start.attempt.clone(),
            source: start.source.clone(),
            stdout: Some(pipes.stdout),
            stderr: Some(pipes.stderr),
            terminal: None,
            viewers,
            log: Rc::new(log),
            results,
            announced: shim.output.follow.is_none(),
            draining: false,
            received: 0,
        }
    }

    pub fn source(&self) -> Option<&OutputSource> {
        self.source.as_deref()
    }

    /// It must not block.
    pub fn add_terminal(&mut self, terminal: OwnedFd) -> io::Result<()> {
        self.terminal = Some(pipe::Receiver::from_owned_fd_unchecked(terminal)?);
        Ok(())
    }

    pub fn received(&self) -> u64 {
        self.received
    }

    /// Runs until no process can write any more. Cancel safe, and can be called again.
    pub async fn pump(&mut self, shim: &Shim) {
        while self.stdout.is_some() || self.stderr.is_some() || self.terminal.is_some() {
            if !self.draining {
                self.viewers.caught_up().await;
            }
            while !self.draining && self.log.writer.borrow().is_full() {
                self.log.was_read.notified().await;
            }
            let (stream, pipe) = tokio::select! {
                () = readable(&self.stdout) => (Stream::Stdout, &mut self.stdout),
                () = readable(&self.stderr) => (Stream::Stderr, &mut self.stderr),
                () = readable(&self.terminal) => (Stream::Stdout, &mut self.terminal),
            };
            let Some(open) = pipe else { continue };
            let read = BUFFER.with_borrow_mut(|buffer| {
                let read = open.try_read(buffer);
                if let Ok(length @ 1..) = read {
                    self.log.writer.borrow_mut().write(stream, &buffer[..length]);
                    self.viewers.write(stream, &buffer[..length]);
                    if let Some(results) = &mut self.results {
                        results.write(stream, &buffer[..length]);
                    }
                }
                read
            });
            match read {
                Ok(0) => *pipe = None,
                Ok(length) => {
                    self.received += length as u64;
                    self.announce(shim);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => *pipe = None,
            }
        }
    }

    /// Reads what is left in the pipes. It is at most what they hold, so no reader is waited for.
    pub async fn drain(&mut self, shim: &Shim) {
        self.draining = true;
        self.pump(shim).await;
    }

    fn announce(&mut self, shim: &Shim) {
        if std::mem::replace(&mut self.announced, true) {
            return;
        }
        let Some(source) = self.source.clone() else { return };
        shim.unread.borrow_mut().insert(self.attempt.clone(), self.log.clone());
        shim.say(Frame::Output(OutputEvent::Began { attempt: self.attempt.clone(), source }));
    }

    pub fn finish(&mut self, shim: &Shim) {
        self.viewers.end();
        self.log.writer.borrow_mut().finish();
        if let Some((lost, error)) = self.log.writer.borrow_mut().take_trouble() {
            let name = shim.name_of(&self.attempt.pod);
            shim.note(format!("{} bytes of the output of {name} were lost: {error}", lost.bytes));
        }
        if shim.unread.borrow().contains_key(&self.attempt) {
            shim.say(Frame::Output(OutputEvent::Ended { attempt: self.attempt.clone() }));
        }
        shim.tell_removed(&self.attempt, &self.log);
    }

    /// Puts the results in their place, if there are any.
    pub fn publish(&mut self, exit: &Exit, usage: ResourceUsage) -> io::Result<()> {
        let (Some(results), Some(source)) = (self.results.take(), &self.source) else { return Ok(()) };
        results.publish(&self.attempt, source, exit, usage)
    }
}

async fn readable(pipe: &Option<pipe::Receiver>) {
    match pipe {
        Some(pipe) => {
            let _ = pipe.readable().await;
        }
        None => std::future::pending().await,
    }
}

impl Shim {
    /// The reader has read all files of a log before this one, or everything.
    pub(super) fn output_read(&self, attempt: &Attempt, before: Option<u64>) {
        let Some(log) = self.unread.borrow().get(attempt).cloned() else { return };
        log.writer.borrow_mut().was_read(before.unwrap_or(u64::MAX));
        log.was_read.notify_one();
        if before.is_some() {
            return;
        }
        self.tell_removed(attempt, &log);
        self.unread.borrow_mut().remove(attempt);
        if log.superseded.get() {
            log.slot.erase();
        }
        self.say(Frame::Output(OutputEvent::Released { attempt: attempt.clone() }));
        if !self.is_unread(&attempt.pod) && self.unread_trash.borrow_mut().remove(&attempt.pod) {
            self.discard(&attempt.pod);
        }
    }

    /// The log of an attempt is no longer needed, once it has been read.
    pub(super) fn erase_log(&self, attempt: &Attempt) {
        match self.unread.borrow().get(attempt) {
            Some(log) => log.superseded.set(true),
            None => self.layout.attempt(attempt).iter().for_each(AttemptDir::erase),
        }
    }

    pub(super) fn is_unread(&self, pod: &PodUid) -> bool {
        let first = Attempt { pod: pod.clone(), container: Default::default(), number: 0 };
        self.unread.borrow().range(first..).next().is_some_and(|(attempt, _)| attempt.pod == *pod)
    }

    fn tell_removed(&self, attempt: &Attempt, log: &AttemptLog) {
        if let Some(removed) = log.writer.borrow_mut().take_removed() {
            let (pod, lines, bytes) = (self.name_of(&attempt.pod), removed.lines, removed.bytes);
            self.say(Frame::Output(OutputEvent::Removed { pod, lines, bytes }));
        }
    }

    pub(super) fn no_result(&self, attempt: &Attempt, error: &io::Error) {
        let (pod, why) = (self.name_of(&attempt.pod), error.to_string());
        self.say(Frame::Output(OutputEvent::NoResult { pod, why }));
    }

    /// The namespace and name of a Pod, for users.
    fn name_of(&self, pod: &PodUid) -> String {
        self.names.borrow().get(pod).cloned().unwrap_or_else(|| pod.to_string())
    }
}
