//! The one thread that writes to the disk.
//!
//! It takes all writes that wait, checks and numbers them ([`Group`]), passes them to the backend as one atomic and
//! durable write, and only then shows them to readers and answers. After a failed write or sync the content of the disk is
//! unknown, and a further write could follow something that was never acknowledged. So a failure poisons the store
//! permanently, with one exception: after a failure that the backend can recover from, a full disk above all, writes are
//! refused until the backend has brought the disk back to exactly what was acknowledged.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::backend::{Backend, BackendError};
use crate::group::Group;
use crate::record::Entry;
use crate::{Change, Shared, StoreOptions, Write, WriteError};

/// The most writes in one group: far fewer already amortize an fsync, and the first write must not wait for the rest.
const GROUP: usize = 1024;
/// The most bytes in one group, except for a single larger write: a group is in memory twice while it is written.
const GROUP_BYTES: usize = 8 * 1024 * 1024;
/// How long the writer must have been idle before it does deferred work.
const REST_AFTER: Duration = Duration::from_millis(200);
/// How often the backend tries to recover. An attempt costs a small write if the disk is still full.
const RECOVER_EVERY: Duration = Duration::from_secs(1);

fn unexpected() -> Arc<BackendError> {
    Arc::new("the writer stopped unexpectedly".into())
}

type WriteResult = Result<Entry, WriteError>;

struct Request {
    write: Write,
    beside: Option<Entry>,
    size: usize,
    answer: oneshot::Sender<WriteResult>,
}

/// Why the queue accepts no more writes.
#[derive(Clone)]
enum End {
    Closed,
    Poisoned(Arc<BackendError>),
}

impl From<End> for WriteError {
    fn from(end: End) -> WriteError {
        match end {
            End::Closed => WriteError::Closed,
            End::Poisoned(error) => WriteError::Poisoned(error),
        }
    }
}

#[derive(Default)]
struct Waiting {
    requests: VecDeque<Request>,
    bytes: usize,
    end: Option<End>,
    /// Why no writes are accepted for now.
    suspended: Option<Arc<BackendError>>,
    /// The writer sleeps, and a new write must wake it. While the writer is busy with the disk no wake-up is needed.
    asleep: bool,
}

/// The writes that wait for the disk.
struct Queue {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    options: StoreOptions,
}

impl Queue {
    // No code under this lock can panic half-way, so the data of a poisoned lock is consistent.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, write: Write, beside: Option<Entry>) -> Result<oneshot::Receiver<WriteResult>, WriteError> {
        let size = write.size();
        let (answer, receiver) = oneshot::channel();
        let mut waiting = self.lock();
        if let Some(end) = &waiting.end {
            return Err(end.clone().into());
        }
        if let Some(error) = &waiting.suspended {
            return Err(WriteError::Suspended(error.clone()));
        }
        let full = waiting.requests.len() >= self.options.queue
            || (!waiting.requests.is_empty() && waiting.bytes + size > self.options.queue_bytes);
        if full {
            return Err(WriteError::Overloaded);
        }
        waiting.bytes += size;
        waiting.requests.push_back(Request { write, beside, size, answer });
        if std::mem::take(&mut waiting.asleep) {
            drop(waiting);
            self.wake.notify_one();
        }
        Ok(receiver)
    }

    /// The next group. Empty if `restless` and there was nothing to do for a while; none if the queue is closed and
    /// drained.
    fn take(&self, restless: bool) -> Option<Vec<Request>> {
        let mut waiting = self.lock();
        while waiting.requests.is_empty() {
            if waiting.end.is_some() {
                return None;
            }
            waiting.asleep = true;
            if restless {
                let (guard, slept) =
                    self.wake.wait_timeout(waiting, REST_AFTER).unwrap_or_else(PoisonError::into_inner);
                waiting = guard;
                if slept.timed_out() && waiting.requests.is_empty() {
                    return Some(Vec::new());
                }
            } else {
                waiting = self.wake.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
        }
        waiting.asleep = false;
        let mut group = Vec::with_capacity(waiting.requests.len().min(GROUP));
        let mut bytes = 0;
        while let Some(next) = waiting.requests.front() {
            if group.len() == GROUP || (!group.is_empty() && bytes + next.size > GROUP_BYTES) {
                break;
            }
            bytes += next.size;
            group.extend(waiting.requests.pop_front());
        }
        waiting.bytes -= bytes;
        Some(group)
    }

    /// Refuses writes for now, and those that wait: none of them has been sent to the disk.
    fn suspend(&self, error: &Arc<BackendError>) {
        let mut waiting = self.lock();
        waiting.suspended = Some(error.clone());
        waiting.bytes = 0;
        let refused = std::mem::take(&mut waiting.requests);
        drop(waiting);
        for request in refused {
            // The caller may have dropped its receiver; a closed channel is not an error.
            let _ = request.answer.send(Err(WriteError::Suspended(error.clone())));
        }
    }

    fn resume(&self) {
        self.lock().suspended = None;
    }

    /// Waits. Returns whether the queue was closed meanwhile.
    fn closes_within(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut waiting = self.lock();
        while waiting.end.is_none() {
            let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
                return false;
            };
            waiting = self.wake.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Accepts no more writes. The first reason given stays.
    fn end(&self, end: End) {
        self.lock().end.get_or_insert(end);
        self.wake.notify_one();
    }

    /// The error for a write that was dropped without an answer: an orderly end answers every write.
    fn broken_off(&self) -> WriteError {
        match self.lock().end.clone() {
            Some(end @ End::Poisoned(_)) => end.into(),
            _ => End::Poisoned(unexpected()).into(),
        }
    }
}

impl Write {
    fn size(&self) -> usize {
        let (body, times) = match &self.change {
            Change::Put(body) | Change::Delete(body) => (body, 1),
            Change::PutAndDelete(body, _) => (body, 2),
        };
        times * (self.key.len() + body.bytes.len())
    }
}

/// The handle to the writer thread.
pub(crate) struct Writer {
    queue: Arc<Queue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    pub fn start(shared: Arc<Shared>, backend: Box<dyn Backend>, options: StoreOptions) -> std::io::Result<Writer> {
        let queue = Arc::new(Queue { waiting: Mutex::default(), wake: Condvar::new(), options });
        let thread = std::thread::Builder::new().name("store".into()).spawn({
            let queue = queue.clone();
            move || run(&queue, &shared, backend)
        })?;
        Ok(Writer { queue, thread: Mutex::new(Some(thread)) })
    }

    pub async fn commit(&self, write: Write, beside: Option<Entry>) -> WriteResult {
        let answer = self.queue.push(write, beside)?;
        answer.await.unwrap_or_else(|_| Err(self.queue.broken_off()))
    }

    pub fn poisoned(&self) -> Option<Arc<BackendError>> {
        let waiting = self.queue.lock();
        match &waiting.end {
            Some(End::Poisoned(error)) => Some(error.clone()),
            _ => waiting.suspended.clone(),
        }
    }

    /// Finishes the accepted writes, and waits until the thread has ended.
    pub fn close(&self) {
        self.queue.end(End::Closed);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the thread was already reported to the waiting writers; no other caller needs the result.
            let _ = thread.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

fn run(queue: &Queue, shared: &Shared, mut backend: Box<dyn Backend>) {
    let _guard = Unserved(queue);
    while let Some(requests) = queue.take(backend.is_restless()) {
        if requests.is_empty() {
            backend.rest();
        } else if let Err(error) = write_group(shared, &mut *backend, requests) {
            match recover(queue, shared, &mut *backend, error) {
                Recovery::Done => {}
                Recovery::Closed => return,
                Recovery::Failed(error) => {
                    queue.end(End::Poisoned(error));
                    return;
                }
            }
        }
    }
    backend.rest();
}

/// What became of a backend that failed.
enum Recovery {
    Done,
    /// The store was closed first.
    Closed,
    Failed(Arc<BackendError>),
}

/// Refuses writes until the backend has recovered.
fn recover(queue: &Queue, shared: &Shared, backend: &mut dyn Backend, failed: Arc<BackendError>) -> Recovery {
    let acknowledged = shared.read().account();
    let mut error = failed;
    while error.recoverable {
        queue.suspend(&error);
        if queue.closes_within(RECOVER_EVERY) {
            return Recovery::Closed;
        }
        match backend.recover(&acknowledged) {
            Ok(()) => {
                queue.resume();
                return Recovery::Done;
            }
            Err(still) => error = Arc::new(still),
        }
    }
    Recovery::Failed(error)
}

/// Takes one group from check to answer; returns the error if the backend failed.
fn write_group(shared: &Shared, backend: &mut dyn Backend, requests: Vec<Request>) -> Result<(), Arc<BackendError>> {
    let mut answers = Vec::with_capacity(requests.len());
    let (writes, account) = {
        let state = shared.read();
        let mut group = Group::new(&state, requests.len());
        for request in requests {
            // The caller no longer waits, so the write is not sent to the disk.
            if !request.answer.is_closed() {
                answers.push((request.answer, group.add(request.write, request.beside.as_ref())));
            }
        }
        group.finish()
    };
    let outcome = if writes.is_empty() { Ok(()) } else { backend.write(&writes, &account) };
    match outcome {
        Ok(()) => {
            if !writes.is_empty() {
                shared.publish(shared.write(), writes);
            }
            for (waiting, answer) in answers {
                // The caller may have dropped its receiver; a closed channel is not an error.
                let _ = waiting.send(answer);
            }
            Ok(())
        }
        Err(error) => {
            // This includes refused writes: the refusal may be due to a write of this group, which is not applied.
            let error = Arc::new(error);
            let refusal = || match error.recoverable {
                true => WriteError::Suspended(error.clone()),
                false => WriteError::Poisoned(error.clone()),
            };
            for (waiting, _) in answers {
                let _ = waiting.send(Err(refusal()));
            }
            Err(error)
        }
    }
}

/// However the writer ends, every waiting caller gets an answer.
struct Unserved<'a>(&'a Queue);

impl Drop for Unserved<'_> {
    fn drop(&mut self) {
        // Has no effect after an orderly end, which has set its reason already.
        self.0.end(End::Poisoned(unexpected()));
        let mut waiting = self.0.lock();
        let unserved = std::mem::take(&mut waiting.requests);
        waiting.bytes = 0;
        drop(waiting);
        drop(unserved);
    }
}
