//! The log of a container, read from the server of a cluster.

use std::fmt;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use serde_json::Value;
use tally_remote::{Remote, request};

/// Which log is read, and how much of it.
#[derive(Clone, Debug, Default)]
pub struct PodLogRequest {
    pub namespace: String,
    pub pod: String,
    /// "": the only container.
    pub container: String,
    /// Only this number of the last lines.
    pub tail_lines: Option<u64>,
    /// Goes on while the container runs.
    pub follow: bool,
    /// Of the run before the last restart.
    pub previous: bool,
}

/// Why a log cannot be read.
#[derive(Debug)]
pub struct PodLogError {
    pod: String,
    /// The code of the response. None: there was none.
    pub code: Option<u16>,
    why: String,
}

impl fmt::Display for PodLogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read the log of Pod {}: {}", self.pod, self.why)
    }
}

impl PodLogRequest {
    /// The same of this container.
    pub fn of(self, namespace: &str, pod: &str, container: &str) -> Self {
        Self { namespace: namespace.to_owned(), pod: pod.to_owned(), container: container.to_owned(), ..self }
    }

    fn path(&self) -> String {
        let Self { namespace, pod, container, .. } = self;
        let mut query = Vec::new();
        if !container.is_empty() {
            query.push(format!("container={container}"));
        }
        query.extend(self.tail_lines.map(|lines| format!("tailLines={lines}")));
        query.extend(self.follow.then(|| "follow=true".to_owned()));
        query.extend(self.previous.then(|| "previous=true".to_owned()));
        format!("/api/v1/namespaces/{namespace}/pods/{pod}/log?{}", query.join("&"))
    }

    /// Begins to read the log.
    pub async fn open(&self, remote: &Remote) -> Result<Incoming, PodLogError> {
        let error = |code: Option<u16>, why: String| PodLogError { pod: self.pod.clone(), code, why };
        let request = request::plain(Method::GET, &self.path(), Bytes::new());
        let request = request.map_err(|failure| error(None, failure.to_string()))?;
        let response = remote.open(request).await.map_err(|failure| error(None, failure.why))?;
        let (head, body) = response.into_parts();
        if head.status.is_success() {
            return Ok(body);
        }
        let text = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let status: Value = serde_json::from_slice(&text).unwrap_or_default();
        let why = status["message"].as_str().filter(|why| !why.is_empty());
        Err(error(Some(head.status.as_u16()), why.map_or_else(|| head.status.to_string(), str::to_owned)))
    }
}

/// The next piece of a log. One that breaks off ends: what has been printed cannot be taken back.
pub async fn next_piece(log: &mut Incoming) -> Option<Bytes> {
    try_next_piece(log).await.ok().flatten()
}

/// The same; the error is that the log has broken off.
pub async fn try_next_piece(log: &mut Incoming) -> Result<Option<Bytes>, hyper::Error> {
    while let Some(frame) = log.frame().await {
        if let Ok(data) = frame?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_what_was_asked_for() {
        let request = PodLogRequest { tail_lines: Some(5), follow: true, ..PodLogRequest::default() };
        let path = request.of("ns", "p", "main").path();
        assert_eq!(path, "/api/v1/namespaces/ns/pods/p/log?container=main&tailLines=5&follow=true");
        let request = PodLogRequest { previous: true, ..PodLogRequest::default() };
        assert_eq!(request.of("ns", "p", "").path(), "/api/v1/namespaces/ns/pods/p/log?previous=true");
    }
}
