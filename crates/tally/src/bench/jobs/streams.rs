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
        let jobs = Lines::open(api, format!("/apis/batch/v1/namespaces/{namespace}/jobs?watch=true")).await?;
        let mut readers = vec![tokio::spawn(follow(jobs, shared.clone(), Tracker::job_event))];
        if pods {
            let selected = "fieldSelector=status.phase%3DSucceeded";
            let pods = Lines::open(api, format!("/api/v1/namespaces/{namespace}/pods?watch=true&{selected}")).await?;
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

async fn follow(watch: Lines, shared: Arc<Shared>, take: Take) {
    let read = watch.read(|line| take(&mut shared.lock(), line, Instant::now()), || shared.changed.notify_one());
    if let Err(error) = read.await {
        shared.lock().problem = Some(format!("{error:#}"));
        shared.changed.notify_one();
    }
}

/// The lines of a watch. A server may end it at any time, as kube-apiserver does when it is
/// busy: the next watch goes on from the last object.
pub struct Lines {
    api: Api,
    path: String,
    body: Incoming,
    /// The revision of the last object.
    at: Option<u64>,
}

impl Lines {
    pub async fn open(api: &Api, path: String) -> Result<Lines> {
        let path = format!("{path}&timeoutSeconds={WATCH_SECONDS}");
        Ok(Lines { api: api.clone(), body: api.connection()?.watch(&path).await?, path, at: None })
    }

    /// Passes on the lines; `read` is called after those of each frame. Returns only after an error.
    pub async fn read(mut self, mut take: impl FnMut(&[u8]) -> Result<()>, mut read: impl FnMut()) -> Result<()> {
        loop {
            let before = self.at;
            lines(&mut self.body, |line| self.at = revision(line).max(self.at), &mut take, &mut read).await?;
            // A server that ends every watch at once is not asked without a pause.
            if self.at == before {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            let after = self.at.map_or_else(String::new, |at| format!("&resourceVersion={at}"));
            self.body = self.api.connection()?.watch(&format!("{}{after}", self.path)).await?;
        }
    }
}

/// The revision of the object in a line. Nothing else in a Job or Pod has a field of this name.
fn revision(line: &[u8]) -> Option<u64> {
    const FIELD: &[u8] = br#""resourceVersion":""#;
    let digits = &line[memchr::memmem::find(line, FIELD)? + FIELD.len()..];
    let end = memchr::memchr(b'"', digits)?;
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

/// Passes on the lines of a body until it ends.
async fn lines(
    body: &mut Incoming,
    mut seen: impl FnMut(&[u8]),
    take: &mut impl FnMut(&[u8]) -> Result<()>,
    read: &mut impl FnMut(),
) -> Result<()> {
    let mut rest = Vec::new();
    let mut take = |line: &[u8]| {
        seen(line);
        take(line)
    };
    while let Some(frame) = body.frame().await {
        let frame = frame.context("a watch broke")?;
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::revision;

    #[test]
    fn the_revision_of_a_line_is_that_of_its_object() {
        let line = br#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"17","uid":"u"}}}"#;
        assert_eq!(revision(line), Some(17));
        assert_eq!(revision(br#"{"type":"ERROR","object":{"metadata":{},"code":410}}"#), None);
    }
}
