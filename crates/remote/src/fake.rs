//! A server whose responses are defined by each test.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::{ContentType, Remote, connect};

/// The requests received: path, query and accepted media types.
pub type RequestLog = Arc<Mutex<Vec<String>>>;

/// Responds with code and body; None closes the connection.
pub async fn server(answer: impl Fn(&str) -> Option<(u16, String)> + Send + Sync + 'static) -> (Remote, RequestLog) {
    let (url, asked) =
        serve("application/json", move |target| answer(target).map(|(code, body)| (code, body.into()))).await;
    (remote(&url), asked)
}

/// The same for a client that speaks protobuf; all responses claim to be of this media type.
pub async fn server_of(
    media: &'static str,
    answer: impl Fn(&str) -> Option<(u16, Bytes)> + Send + Sync + 'static,
) -> (Remote, RequestLog) {
    let (url, asked) = serve(media, answer).await;
    let access = connect::Access::to(url.parse().unwrap());
    (Remote::with_content_type(connect::service(&access).unwrap(), ContentType::Auto), asked)
}

async fn serve(
    media: &'static str,
    answer: impl Fn(&str) -> Option<(u16, Bytes)> + Send + Sync + 'static,
) -> (String, RequestLog) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, answer) = (RequestLog::default(), Arc::new(answer));
    let seen = asked.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (answer, seen) = (answer.clone(), seen.clone());
            let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                let target = request.uri().to_string();
                seen.lock().unwrap().push(format!("{target} {}", request.headers()["accept"].to_str().unwrap()));
                let said = answer(&target).map(|(code, body)| {
                    let mut response = Response::new(Full::new(body));
                    response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static(media));
                    *response.status_mut() = hyper::StatusCode::from_u16(code).unwrap();
                    response
                });
                std::future::ready(said.ok_or("hung up"))
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    (format!("http://{address}"), asked)
}

pub fn remote(url: &str) -> Remote {
    let access = connect::Access::to(url.parse().unwrap());
    Remote::new(connect::service(&access).unwrap())
}
