//! Clients that are connected to a container (`kubectl attach`): each gets what the container writes from then on.
//!
//! What a client has not read yet is kept in memory, up to a limit. Then the container's output is not read on, so that
//! nothing is lost; a client that reads nothing for a while is left behind.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::log::Stream;
use crate::port::SessionEnd;

/// Bytes that wait for one client. What is in the pipes of a container when it ends is added to that.
const MOST_PENDING: usize = 256 * 1024;
/// How long a client may read nothing.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// The clients of one attempt.
#[derive(Default)]
pub struct Viewers {
    list: RefCell<Vec<Rc<Viewer>>>,
    /// A client has read something, or is gone.
    moved: Notify,
    ended: Cell<bool>,
}

#[derive(Default)]
struct Viewer {
    pending: RefCell<VecDeque<(Stream, Vec<u8>)>>,
    bytes: Cell<usize>,
    /// There is more to write, or there will be no more.
    more: Notify,
    over: Cell<bool>,
}

impl Viewers {
    /// Runs until the container has ended and the client has received everything, or the client is gone.
    pub async fn show(
        &self,
        mut stdout: Option<pipe::Sender>,
        mut stderr: Option<pipe::Sender>,
    ) -> Result<(), SessionEnd> {
        if self.ended.get() {
            return Ok(());
        }
        let viewer = Rc::new(Viewer::default());
        self.list.borrow_mut().push(viewer.clone());
        let _leave = Leave { viewers: self, viewer: &viewer };
        loop {
            let next = viewer.pending.borrow_mut().pop_front();
            let Some((stream, bytes)) = next else {
                if viewer.over.get() {
                    return Ok(());
                }
                viewer.more.notified().await;
                continue;
            };
            let pipe = match stream {
                Stream::Stdout => &mut stdout,
                Stream::Stderr => &mut stderr,
            };
            for part in bytes.chunks(16 * 1024) {
                let Some(open) = pipe else { break };
                match timeout(READ_WITHIN, open.write_all(part)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => *pipe = None,
                    Err(_) => return Err(SessionEnd::TooSlow),
                }
            }
            viewer.bytes.set(viewer.bytes.get() - bytes.len());
            self.moved.notify_waiters();
        }
    }

    /// The container has written this.
    pub fn write(&self, stream: Stream, bytes: &[u8]) {
        for viewer in self.list.borrow().iter() {
            viewer.bytes.set(viewer.bytes.get() + bytes.len());
            viewer.pending.borrow_mut().push_back((stream, bytes.to_vec()));
            viewer.more.notify_one();
        }
    }

    /// Waits until no client is too far behind. Cancel safe.
    pub async fn caught_up(&self) {
        loop {
            let moved = self.moved.notified();
            if self.list.borrow().iter().all(|viewer| viewer.bytes.get() < MOST_PENDING) {
                return;
            }
            moved.await;
        }
    }

    /// Nothing more will be written.
    pub fn end(&self) {
        self.ended.set(true);
        for viewer in self.list.borrow().iter() {
            viewer.over.set(true);
            viewer.more.notify_one();
        }
    }
}

struct Leave<'a> {
    viewers: &'a Viewers,
    viewer: &'a Rc<Viewer>,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.viewers.list.borrow_mut().retain(|other| !Rc::ptr_eq(other, self.viewer));
        self.viewers.moved.notify_waiters();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_left_behind_and_others_get_everything() {
        let viewers = Viewers::default();
        let (slow, _kept) = pipe::pipe().unwrap();
        let (fast, mut reader) = pipe::pipe().unwrap();
        let written: Vec<u8> = (0..2_000_000_u32).map(|number| (number % 251) as u8).collect();
        let write = async {
            tokio::task::yield_now().await;
            for part in written.chunks(60_000) {
                viewers.caught_up().await;
                viewers.write(Stream::Stdout, part);
            }
            viewers.end();
        };
        let mut read = Vec::new();
        let (slow, fast, (), _) = tokio::join!(
            viewers.show(Some(slow), None),
            viewers.show(Some(fast), None),
            write,
            reader.read_to_end(&mut read)
        );
        assert_eq!((slow, fast), (Err(SessionEnd::TooSlow), Ok(())));
        assert!(read == written, "{} of {}", read.len(), written.len());
        assert!(viewers.list.borrow().is_empty());
    }
}
