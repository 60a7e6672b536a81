//! Connections without requests.
//!
//! The number of connections is limited, and opening one costs nothing: any client can, before it has authenticated. So
//! a connection without a request is closed after a while, and sooner if the head of a request has begun and does not
//! end. The protocols do not ensure that: HTTP/1.1 has one limit for both, and HTTP/2 checks only whether the peer still
//! answers pings.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use hyper::body::{Frame, SizeHint};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::audit::AuditEvent;
use crate::encode::HttpResponse;
use crate::http::body::Body;
use crate::http::flow::FlowShare;

/// The in-flight requests of a connection.
#[derive(Clone)]
pub struct Requests {
    count: watch::Sender<usize>,
    /// When the first byte of a head arrived that is not complete yet.
    head_began_at: watch::Sender<Option<Instant>>,
}

impl Default for Requests {
    fn default() -> Self {
        Self { count: watch::Sender::new(0), head_began_at: watch::Sender::new(None) }
    }
}

impl Requests {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn count(&self) -> usize {
        *self.count.borrow()
    }

    /// Counts a request until the result is dropped.
    pub fn begin(&self) -> RequestGuard {
        self.head_began_at.send_if_modified(|began_at| began_at.take().is_some());
        self.count.send_modify(|count| *count += 1);
        RequestGuard(self.count.clone())
    }

    /// Data has arrived on an HTTP/1.1 connection. Between requests it begins the head of the next one.
    pub fn received(&self) {
        if self.count() == 0 {
            self.head_began_at.send_if_modified(|began_at| {
                let is_first = began_at.is_none();
                began_at.get_or_insert_with(Instant::now);
                is_first
            });
        }
    }

    /// Ready once the head of a request has taken this long.
    pub fn head_takes(&self, patience: Duration) -> impl Future<Output = ()> + use<> {
        let mut began_at = self.head_began_at.subscribe();
        async move {
            loop {
                let Ok(Some(began)) = began_at.wait_for(Option::is_some).await.map(|began_at| *began_at) else {
                    return std::future::pending().await;
                };
                tokio::select! {
                    _ = began_at.wait_for(|now| *now != Some(began)) => {}
                    () = sleep_until(began + patience) => return,
                }
            }
        }
    }

    /// Ready once there has been no request for this long.
    pub fn idle_for(&self, patience: Duration) -> impl Future<Output = ()> + use<> {
        let mut count = self.count.subscribe();
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
    _held: Option<HeldByResponse>,
}

/// What a response occupies until it is sent. A handler leaves it in the extensions of the response.
#[derive(Clone)]
pub struct HeldByResponse {
    _share: Option<Arc<FlowShare>>,
    _audit: Option<Arc<AuditEvent>>,
}

impl HeldByResponse {
    pub fn new(share: Option<FlowShare>, audit: Option<AuditEvent>) -> Self {
        Self { _share: share.map(Arc::new), _audit: audit.map(Arc::new) }
    }
}

impl CountedBody {
    pub fn new(mut answer: HttpResponse, under_way: RequestGuard) -> Response<Self> {
        let held = answer.extensions_mut().remove::<HeldByResponse>();
        answer.map(|body| Self { body, _under_way: under_way, _held: held })
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
    use tokio::time::sleep;

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

    #[tokio::test(start_paused = true)]
    async fn a_head_is_late_from_its_first_byte_on() {
        let requests = Requests::new();
        let mut late = std::pin::pin!(requests.head_takes(PATIENCE));
        let mut in_time = async |span: Duration| timeout(span, &mut late).await.is_err();
        assert!(in_time(10 * PATIENCE).await, "no byte has arrived");
        requests.received();
        assert!(in_time(ALMOST).await);
        requests.received();
        let request = requests.begin();
        requests.received();
        assert!(in_time(10 * PATIENCE).await, "what arrives during a request is its body");
        drop(request);
        requests.received();
        assert!(in_time(ALMOST).await);
        requests.received();
        assert!(!in_time(Duration::from_secs(2)).await, "later bytes give no more time");
    }
}
