//! Connections without requests.
//!
//! The number of connections is limited, and opening one costs nothing: any client can, before it has authenticated. So
//! a connection without a request is closed after a while. The protocols do not ensure that: HTTP/1.1 measures from the
//! first byte, and HTTP/2 checks only whether the peer still answers pings.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::http::body::Body;

/// The in-flight requests of a connection.
pub struct Requests(watch::Sender<usize>);

impl Requests {
    pub fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    /// Counts a request until the result is dropped.
    pub fn begin(&self) -> RequestGuard {
        self.0.send_modify(|count| *count += 1);
        RequestGuard(self.0.clone())
    }

    /// Ready once there has been no request for this long.
    pub fn idle_for(&self, patience: Duration) -> impl Future<Output = ()> + use<> {
        let mut count = self.0.subscribe();
        async move {
            // The connection that waits for this future owns the sender, so neither of the two calls fails.
            while count.wait_for(|count| *count == 0).await.is_ok() {
                if timeout(patience, count.changed()).await.is_err() {
                    return;
                }
            }
        }
    }
}

pub struct RequestGuard(watch::Sender<usize>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// A body whose request counts as in flight until the body is sent or dropped.
pub struct CountedBody {
    body: Body,
    _under_way: RequestGuard,
}

impl CountedBody {
    pub fn new(body: Body, under_way: RequestGuard) -> Self {
        Self { body, _under_way: under_way }
    }
}

impl hyper::body::Body for CountedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(120);
    const ALMOST: Duration = Duration::from_secs(119);

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_only_between_requests() {
        let requests = Requests::new();
        let began = Instant::now();
        let mut idle = std::pin::pin!(requests.idle_for(PATIENCE));
        let mut stays = async |span: Duration| timeout(span, &mut idle).await.is_err();
        assert!(stays(ALMOST).await);
        let (one, other) = (requests.begin(), requests.begin());
        assert!(stays(10 * PATIENCE).await, "two requests");
        drop(one);
        assert!(stays(10 * PATIENCE).await, "one request");
        drop(other);
        assert!(stays(ALMOST).await);
        drop(requests.begin());
        assert!(stays(ALMOST).await, "there was another in between");
        assert!(!stays(2 * PATIENCE).await);
        assert_eq!(began.elapsed(), 3 * ALMOST + 20 * PATIENCE + Duration::from_secs(1));
        sleep(PATIENCE).await;
    }
}
