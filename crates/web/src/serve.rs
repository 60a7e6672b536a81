//! Connections of browsers, and the answers to their requests.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    ORIGIN, REFERRER_POLICY, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SET_COOKIE, UPGRADE, USER_AGENT, WARNING,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use ring::rand::{SecureRandom, SystemRandom};
use tally_remote::Remote;
use tally_remote::request::Outgoing;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::connections::{ConnectionHandle, ConnectionPlace, ConnectionTable};
use crate::request::{Asked, Refused, asked, cookie};
use crate::session::{Secret, Sessions};
use crate::{Explain, assets};

/// Connections at once. If all are taken, a new one gets the place of another (`connections.rs`).
const MOST_CONNECTIONS: usize = 256;
/// Streams at once. Each is a request to the API server, whose connection has a limit of its own.
const MOST_STREAMS: usize = 128;
/// How often a stream looks whether its session is still open.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long a browser may take to send the head of a request, and between two requests.
const HEAD_WITHIN: Duration = Duration::from_secs(15);
/// How long a browser may take to send a body.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// The maximum length of a body: that of an object.
const LONGEST_BODY: usize = 3 << 20;
/// How long the API server may take to begin its response.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// If the process has no file descriptors left, retrying at once does not help.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// What browsers send on a stream has no meaning here.
const LONGEST_MESSAGE: usize = 1024;
/// A browser that reads nothing of a stream for this long is considered gone.
const STALLED_FOR: Duration = Duration::from_secs(120);
const AGENT: &str = concat!("tally-web/", env!("CARGO_PKG_VERSION"));
/// Added to the key of a handshake (RFC 6455).
const KEY_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// `10 minutes`, `30 seconds`.
pub fn lifetime(link_for: Duration) -> String {
    match link_for.as_secs() {
        seconds if seconds % 60 == 0 && seconds > 60 => format!("{} minutes", seconds / 60),
        1 => "1 second".to_owned(),
        seconds => format!("{seconds} seconds"),
    }
}

type Body = BoxBody<Bytes, hyper::Error>;

/// The page of one API server. Cheap to clone.
#[derive(Clone)]
pub struct WebServer(Arc<Inner>);

struct Inner {
    remote: Remote,
    explain: Option<Box<dyn Explain>>,
    /// As browsers write it.
    host: String,
    cookie: String,
    /// Nothing is loaded from elsewhere, and text never becomes a script or a style.
    policy: HeaderValue,
    sessions: Mutex<Sessions>,
    streams: Arc<Semaphore>,
    random: SystemRandom,
}

impl WebServer {
    /// `address`: where it listens. `remote`: with the rights of the user. `link_for`: how long a link can be used.
    pub fn new(address: SocketAddr, remote: Remote, explain: Option<Box<dyn Explain>>, link_for: Duration) -> Self {
        // Cookies are for all ports of a host: two pages on this machine need two names.
        let cookie = format!("tally-page-{}", address.port());
        let host = address.to_string();
        let policy = format!(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self' ws://{host}; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        // An address is ASCII.
        let policy = HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'"));
        let (sessions, random) = (Mutex::new(Sessions::new(link_for)), SystemRandom::new());
        let streams = Arc::new(Semaphore::new(MOST_STREAMS));
        Self(Arc::new(Inner { remote, explain, host, cookie, policy, sessions, streams, random }))
    }

    /// A new link to the page. It can be used once. None: this machine has no random numbers.
    pub fn link(&self) -> Option<String> {
        let token = self.0.secret()?;
        let link = format!("http://{}/?token={token}", self.0.host);
        self.0.sessions().add_link(&token, Instant::now());
        Some(link)
    }

    /// Serves until `stop` is ready.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let table = ConnectionTable::new(MOST_CONNECTIONS);
        let mut connections = tokio::task::JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let accept = async {
                let (stream, _) = listener.accept().await?;
                let place = table.place().await;
                Ok((stream, place.ok_or_else(|| io::Error::other("no more connections are taken"))?))
            };
            let accepted: io::Result<(TcpStream, ConnectionPlace)> = tokio::select! {
                biased;
                () = &mut stop => break,
                accepted = accept => accepted,
            };
            match accepted {
                Ok((stream, place)) => {
                    let inner = self.0.clone();
                    connections.spawn(async move {
                        tokio::select! {
                            () = place.needed() => {}
                            () = inner.connection(stream, place.handle.clone()) => {}
                        }
                    });
                }
                Err(_) => tokio::time::sleep(ACCEPT_AGAIN_AFTER).await,
            }
        }
        // All requests of the page can be repeated: its connections end with it.
        connections.shutdown().await;
    }
}

impl Inner {
    fn secret(&self) -> Option<Secret> {
        let mut bytes = [0; 32];
        self.random.fill(&mut bytes).ok()?;
        Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, handle: ConnectionHandle) {
        let _ = stream.set_nodelay(true);
        let service = service_fn(|request| {
            let (inner, handle, under_way) = (self.clone(), handle.clone(), handle.begin());
            async move {
                let answer = inner.answer(request, &handle).await;
                // The request ends with its response.
                let counted = move |frame| {
                    let _ = &under_way;
                    frame
                };
                Ok::<_, Infallible>(answer.map(|body| body.map_frame(counted)))
            }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WITHIN)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        // A browser that goes away is not an error.
        let _ = connection.await;
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>, handle: &ConnectionHandle) -> Response<Body> {
        let mut answer = match self.answer_request(request, handle).await {
            Ok(answer) => answer,
            Err(refused) => text(refused.code, &refused.why),
        };
        let headers = answer.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, self.policy.clone());
        for (name, value) in [
            (REFERRER_POLICY, "no-referrer"),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (X_FRAME_OPTIONS, "DENY"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
            (CACHE_CONTROL, "no-store"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        answer
    }

    async fn answer_request(
        self: &Arc<Self>,
        request: Request<Incoming>,
        handle: &ConnectionHandle,
    ) -> Result<Response<Body>, Refused> {
        let uri = request.uri().clone();
        let asked = asked(request.method(), &uri, request.headers(), &self.host)?;
        if let Asked::Link { token } = asked {
            return self.open_session(token);
        }
        let session = cookie(request.headers(), &self.cookie).unwrap_or_default();
        if !self.sessions().is_open(session, Instant::now()) {
            return Err(no_session());
        }
        handle.has_session();
        match asked {
            Asked::Link { .. } => Err(no_session()),
            Asked::Logout => {
                self.sessions().close(session);
                Ok(text(200, "The session is over. For a new one, follow a new link: tally web prints one."))
            }
            Asked::File { path } => match assets::find(path) {
                Some((media_type, content)) => Ok(full(200, media_type, Bytes::from_static(content))),
                None => Err(Refused { code: 404, why: "there is no such page".to_owned() }),
            },
            Asked::Explain { namespace, resource, name } => {
                let explained = match &self.explain {
                    Some(explain) => explain.explain(namespace, resource, name).await,
                    None => None,
                };
                // The page may ask for an object that is being deleted. That is no error, which a browser would report.
                Ok(full(200, "application/json", explained.unwrap_or_else(|| "null".into())))
            }
            Asked::Waits { jobs } => {
                let found = match &self.explain {
                    Some(explain) => explain.waits(&jobs).await,
                    None => None,
                };
                let missing = || Refused { code: 404, why: "Jobs are not explained here".to_owned() };
                found.map(|json| full(200, "application/json", json)).ok_or_else(missing)
            }
            Asked::Api if request.headers().contains_key(UPGRADE) => self.stream(request).await,
            Asked::Api => self.pass_on(request).await,
        }
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_session(&self, token: &str) -> Result<Response<Body>, Refused> {
        let session = self.secret().ok_or_else(|| Refused { code: 500, why: "no random numbers".to_owned() })?;
        if !self.sessions().open(token, &session, Instant::now()) {
            let time = lifetime(self.sessions().link_for());
            let why =
                format!("This link was used, or is older than {time}. For a new one, run tally web in a terminal.");
            return Err(Refused { code: 401, why });
        }
        // Not a redirect: where a link of another site was followed, the browser would not send the cookie after it.
        let page =
            "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=\"0; url=/\"><title>Tally</title>";
        let mut answer = full(200, "text/html; charset=utf-8", Bytes::from_static(page.as_bytes()));
        let cookie = format!("{}={session}; HttpOnly; SameSite=Strict; Path=/", self.cookie);
        if let Ok(cookie) = HeaderValue::try_from(cookie) {
            answer.headers_mut().insert(SET_COOKIE, cookie);
        }
        Ok(answer)
    }

    /// The same request to the API server, with the rights of the user, and its response.
    async fn pass_on(&self, request: Request<Incoming>) -> Result<Response<Body>, Refused> {
        let (head, body) = request.into_parts();
        let collected = tokio::time::timeout(BODY_WITHIN, Limited::new(body, LONGEST_BODY).collect()).await;
        let Ok(Ok(body)) = collected else {
            return Err(Refused { code: 413, why: "the body is too long, or did not arrive in time".to_owned() });
        };
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let answered = self.open(&head.method, path, &head.headers, body.to_bytes()).await?;
        let (head, body) = answered.into_parts();
        let mut answer = Response::new(body.boxed());
        *answer.status_mut() = head.status;
        for name in [CONTENT_TYPE, WARNING] {
            for value in head.headers.get_all(&name) {
                answer.headers_mut().append(&name, value.clone());
            }
        }
        Ok(answer)
    }

    async fn open(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, Refused> {
        let mut outgoing = Request::builder().method(method.clone()).uri(path).header(USER_AGENT, AGENT);
        for name in [ACCEPT, CONTENT_TYPE] {
            if let Some(value) = headers.get(&name) {
                outgoing = outgoing.header(name, value);
            }
        }
        let outgoing: Outgoing =
            outgoing.body(Full::new(body)).map_err(|error| Refused { code: 400, why: error.to_string() })?;
        match tokio::time::timeout(ANSWER_WITHIN, self.remote.open(outgoing)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                Err(Refused { code: 502, why: format!("the API server cannot be reached: {}", error.why) })
            }
            Err(_) => Err(Refused { code: 504, why: "the API server did not answer in time".to_owned() }),
        }
    }

    /// A GET whose response is sent as messages of a WebSocket. A browser has six connections for each host, with all its
    /// tabs, and a watch or a log that is followed would occupy one; WebSockets are not among them.
    async fn stream(self: &Arc<Self>, mut request: Request<Incoming>) -> Result<Response<Body>, Refused> {
        let bad = |why: &str| Refused { code: 400, why: why.to_owned() };
        let headers = request.headers();
        let is_websocket =
            headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
        let key = headers.get(SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok()).map(str::to_owned);
        let (true, true, Some(key)) = (is_websocket, *request.method() == Method::GET, key) else {
            return Err(bad("only a GET can become a WebSocket"));
        };
        // Browsers send the cookie with a WebSocket that a page on another port of this machine opens.
        if headers.get(ORIGIN).is_none_or(|origin| origin.as_bytes() != format!("http://{}", self.host).as_bytes()) {
            return Err(Refused { code: 403, why: "only the page itself may open a stream".to_owned() });
        }
        let path = request.uri().path_and_query().map_or_else(String::new, |path| path.as_str().to_owned());
        let Ok(place) = self.streams.clone().try_acquire_owned() else {
            return Err(Refused { code: 503, why: format!("there are {MOST_STREAMS} streams already") });
        };
        let session = cookie(request.headers(), &self.cookie).unwrap_or_default().to_owned();
        let upgrade = hyper::upgrade::on(&mut request);
        let inner = self.clone();
        tokio::spawn(async move {
            let _place = place;
            let Ok(upgraded) = upgrade.await else { return };
            let config = WebSocketConfig::default()
                .max_message_size(Some(LONGEST_MESSAGE))
                .max_frame_size(Some(LONGEST_MESSAGE))
                .read_buffer_size(4096)
                .write_buffer_size(0)
                .max_write_buffer_size(4 << 20);
            let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
            inner.send_stream(socket, &path, &session).await;
        });
        let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{KEY_SUFFIX}").as_bytes());
        let accept = HeaderValue::try_from(base64(hash.as_ref())).map_err(|_| bad("a key of a WebSocket is needed"))?;
        let mut answer = Response::new(Full::default().map_err(|never| match never {}).boxed());
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = answer.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
        Ok(answer)
    }

    /// The first message is the code of the response, as text; the others are its body, as bytes.
    async fn send_stream<S>(&self, socket: WebSocketStream<S>, path: &str, session: &str)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        let (mut sink, mut source) = socket.split();
        let sending = async {
            let opened = self.open(&Method::GET, path, &HeaderMap::new(), Bytes::new()).await;
            let mut send = async |message| {
                let sent = tokio::time::timeout(STALLED_FOR, sink.send(message)).await;
                matches!(sent, Ok(Ok(())))
            };
            let answer = match opened {
                Ok(answer) => answer,
                Err(refused) => {
                    let _ = send(Message::text(refused.code.to_string())).await
                        && send(Message::binary(refused.why.into_bytes())).await;
                    return;
                }
            };
            if !send(Message::text(answer.status().as_u16().to_string())).await {
                return;
            }
            let mut body = answer.into_body();
            while let Some(Ok(frame)) = body.frame().await {
                if let Ok(data) = frame.into_data()
                    && !send(Message::binary(data)).await
                {
                    return;
                }
            }
            let _ = send(Message::Close(None)).await;
        };
        // The end of the browser's side ends the stream: nothing reads it any more.
        let closed = async { while let Some(Ok(_)) = source.next().await {} };
        let session_ended = async {
            while self.sessions().exists(session, Instant::now()) {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::select! {
            () = sending => {}
            () = closed => {}
            () = session_ended => {}
        }
    }
}

fn no_session() -> Refused {
    let why =
        "There is no session. Follow the link that tally up or tally web has printed; for a new one, run tally web.";
    Refused { code: 401, why: why.to_owned() }
}

fn text(code: u16, text: &str) -> Response<Body> {
    full(code, "text/plain; charset=utf-8", Bytes::from(format!("{text}\n")))
}

fn full(code: u16, media_type: &'static str, content: Bytes) -> Response<Body> {
    let mut answer = Response::new(Full::new(content).map_err(|never| match never {}).boxed());
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    answer
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
