//! The two watches of a case, each on a connection of its own, and the lines in them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::tracker::Tracker;
use crate::bench::server::Api;

/// How often to check that the processes still run while nothing is observed.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Longer than the longest case. Servers end watches earlier if they are asked for nothing.
const WATCH_SECONDS: u32 = 7_200;

/// Ended when dropped.
pub struct Streams {
    shared: Arc<Shared>,
    readers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    tracker: Mutex<Tracker>,
    changed: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Tracker> {
        self.tracker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Streams {
    /// Follows the Jobs of a namespace and, if asked for, its Pods that succeed.
    pub async fn open(api: &Api, namespace: &str, pods: bool) -> Result<Streams> {
        let shared = Arc::new(Shared::default());
        let jobs = format!("/apis/batch/v1/namespaces/{namespace}/jobs?watch=true&timeoutSeconds={WATCH_SECONDS}");
        let jobs = api.connection()?.watch(&jobs).await?;
        let mut readers = vec![tokio::spawn(follow(jobs, shared.clone(), Tracker::job_event))];
        if pods {
            let selected = "fieldSelector=status.phase%3DSucceeded";
            let pods =
                format!("/api/v1/namespaces/{namespace}/pods?watch=true&timeoutSeconds={WATCH_SECONDS}&{selected}");
            let pods = api.connection()?.watch(&pods).await?;
            readers.push(tokio::spawn(follow(pods, shared.clone(), Tracker::pod_event)));
        }
        Ok(Streams { shared, readers })
    }

    pub fn tracker(&self) -> MutexGuard<'_, Tracker> {
        self.shared.lock()
    }

    /// Waits until the streams have shown it. `alive` says why it will never come.
    pub async fn until(&self, shown: impl Fn(&Tracker) -> bool, mut alive: impl FnMut() -> Result<()>) -> Result<()> {
        loop {
            let changed = self.shared.changed.notified();
            {
                let mut tracker = self.tracker();
                if shown(&tracker) {
                    return Ok(());
                }
                if let Some(problem) = tracker.problem.take() {
                    bail!(problem);
                }
            }
            alive()?;
            let _ = tokio::time::timeout(LOOK_EVERY, changed).await;
        }
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.readers.iter().for_each(JoinHandle::abort);
    }
}

type Take = fn(&mut Tracker, &[u8], Instant) -> Result<()>;

async fn follow(mut body: Incoming, shared: Arc<Shared>, take: Take) {
    let read = lines(&mut body, |line| take(&mut shared.lock(), line, Instant::now()), || shared.changed.notify_one());
    if let Err(error) = read.await {
        shared.lock().problem = Some(format!("{error:#}"));
        shared.changed.notify_one();
    }
}

/// Passes on the lines of a body; `read` is called after those of each frame. Returns only after an error.
pub async fn lines(
    body: &mut Incoming,
    mut take: impl FnMut(&[u8]) -> Result<()>,
    mut read: impl FnMut(),
) -> Result<()> {
    let mut rest = Vec::new();
    loop {
        let frame = body.frame().await.context("a watch ended early")?.context("a watch broke")?;
        let Some(mut data) = frame.data_ref().map(|data| &data[..]) else { continue };
        while let Some(end) = memchr::memchr(b'\n', data) {
            let (line, after) = (&data[..end], &data[end + 1..]);
            if rest.is_empty() {
                take(line)?;
            } else {
                rest.extend_from_slice(line);
                take(&rest)?;
                rest.clear();
            }
            data = after;
        }
        rest.extend_from_slice(data);
        read();
    }
}
