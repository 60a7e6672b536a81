//! One connection to the server named by a kubeconfig.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Longer than any watch that a test opens; a request without a response by then has failed.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// The address of the server and the credentials.
#[derive(Clone)]
pub struct Api {
    authority: String,
    tls: Arc<rustls::ClientConfig>,
    /// The same without a client certificate.
    anonymous: Arc<rustls::ClientConfig>,
}

/// A request, with the fields of the recorded conversations.
#[derive(Clone, Debug, Default)]
pub struct Call {
    pub method: String,
    pub path: String,
    pub query: Vec<(String, String)>,
    pub headers: Vec<(String, String)>,
    pub body: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub code: u16,
    /// The texts of the Warning headers.
    pub warnings: Vec<String>,
    pub text: String,
}

impl Call {
    pub fn new(method: &str, path: impl Into<String>) -> Call {
        Call { method: method.to_owned(), path: path.into(), ..Call::default() }
    }

    pub fn get(path: impl Into<String>) -> Call {
        Call::new("GET", path)
    }

    pub fn body(mut self, body: &Value) -> Call {
        self.body = Some(body.to_string());
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Call {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn target(&self) -> String {
        let mut target = self.path.clone();
        for (place, (name, value)) in self.query.iter().enumerate() {
            target.push(if place == 0 { '?' } else { '&' });
            escape(name, &mut target);
            target.push('=');
            escape(value, &mut target);
        }
        target
    }
}

impl Answer {
    /// The body as JSON; a body of several JSON lines, a watch, as the list of them; anything else as a string.
    pub fn value(&self) -> Value {
        if let Ok(value) = serde_json::from_str(&self.text) {
            return value;
        }
        let lines = self.text.lines().filter(|line| !line.trim().is_empty());
        match lines.map(serde_json::from_str).collect::<Result<Vec<Value>, _>>() {
            Ok(lines) => Value::Array(lines),
            Err(_) => Value::String(self.text.clone()),
        }
    }
}

fn escape(text: &str, into: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            into.push(char::from(byte));
        } else {
            into.push_str(&format!("%{byte:02X}"));
        }
    }
}

impl Api {
    /// `None` while the file does not exist or is not complete.
    pub fn from_kubeconfig(path: &Path) -> Option<Api> {
        let text = std::fs::read_to_string(path).ok()?;
        let config: Value = serde_saphyr::from_str(&text).ok()?;
        let named = |list: &str, name: &Value, what: &str| -> Option<Value> {
            let all = config[list].as_array()?;
            all.iter().find(|entry| entry["name"] == *name).map(|entry| entry[what].clone())
        };
        let context = named("contexts", &config["current-context"], "context")?;
        let cluster = named("clusters", &context["cluster"], "cluster")?;
        let user = named("users", &context["user"], "user")?;
        let pem = |value: &Value| STANDARD.decode(value.as_str()?).ok();

        let mut roots = rustls::RootCertStore::empty();
        let authorities = pem(&cluster["certificate-authority-data"])?;
        for authority in CertificateDer::pem_slice_iter(&authorities) {
            roots.add(authority.ok()?).ok()?;
        }
        let chain = pem(&user["client-certificate-data"])?;
        let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<Vec<_>, _>>().ok()?;
        let key = PrivateKeyDer::from_pem_slice(&pem(&user["client-key-data"])?).ok()?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .ok()?
            .with_root_certificates(roots);
        let anonymous = builder.clone().with_no_client_auth();
        let tls = builder.with_client_auth_cert(chain, key).ok()?;
        let authority = cluster["server"].as_str()?.strip_prefix("https://")?.trim_end_matches('/').to_owned();
        Some(Api { authority, tls: Arc::new(tls), anonymous: Arc::new(anonymous) })
    }

    /// The same server, for a client without a certificate.
    pub fn without_certificate(&self) -> Api {
        Api { tls: self.anonymous.clone(), ..self.clone() }
    }

    /// `host:port`
    pub fn authority(&self) -> &str {
        &self.authority
    }

    pub fn connection(&self) -> Connection {
        Connection { api: self.clone(), sender: None }
    }

    /// A connection on which nothing has been sent yet.
    pub async fn stream(&self) -> Result<TlsStream<TcpStream>> {
        self.secured(self.tls.clone()).await
    }

    /// The same for HTTP/2.
    pub async fn http2_stream(&self) -> Result<TlsStream<TcpStream>> {
        let mut tls = (*self.tls).clone();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        self.secured(Arc::new(tls)).await
    }

    async fn secured(&self, tls: Arc<rustls::ClientConfig>) -> Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(&self.authority).await.context("cannot connect")?;
        stream.set_nodelay(true).context("cannot set nodelay")?;
        let (host, _) = self.authority.rsplit_once(':').context("the server has no port")?;
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).context("the server has no name")?;
        let connector = tokio_rustls::TlsConnector::from(tls);
        connector.connect(name, stream).await.context("no TLS")
    }
}

/// One connection, opened when first used and again after it was closed.
pub struct Connection {
    api: Api,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Connection {
    pub async fn call(&mut self, call: &Call) -> Result<Answer> {
        let asked = async {
            let response = self.open(call).await?;
            let code = response.status().as_u16();
            let headers = response.headers().get_all("warning").iter();
            let warnings = headers.map(|value| warning_text(&String::from_utf8_lossy(value.as_bytes()))).collect();
            let body = response.into_body().collect().await.context("the body ended early")?.to_bytes();
            Ok(Answer { code, warnings, text: String::from_utf8_lossy(&body).into_owned() })
        };
        let Ok(answer) = tokio::time::timeout(ANSWER_WITHIN, asked).await else {
            self.sender = None;
            bail!("no answer to {} {} within {ANSWER_WITHIN:?}", call.method, call.path);
        };
        if answer.is_err() {
            self.sender = None;
        }
        answer
    }

    /// The head of the response; the caller reads the body. For a watch, for example.
    pub async fn open(&mut self, call: &Call) -> Result<hyper::Response<Incoming>> {
        let mut kept = self.sender.take();
        if let Some(sender) = &mut kept
            && sender.ready().await.is_err()
        {
            kept = None;
        }
        let mut sender = match kept {
            Some(sender) => sender,
            None => self.dial().await?,
        };
        let mut request = hyper::Request::builder()
            .method(call.method.as_str())
            .uri(call.target())
            .header("host", &self.api.authority);
        let given = |name: &str| call.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        if !given("accept") {
            request = request.header("accept", "application/json");
        }
        if call.body.is_some() && !given("content-type") {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in &call.headers {
            request = request.header(name, value);
        }
        let body = Full::new(Bytes::from(call.body.clone().unwrap_or_default()));
        let request = request.body(body).context("the request cannot be written")?;
        let response = sender.send_request(request).await.context("no answer")?;
        self.sender = Some(sender);
        Ok(response)
    }

    async fn dial(&self) -> Result<SendRequest<Full<Bytes>>> {
        let stream = self.api.stream().await?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// `299 - "text"` is the only form an API server uses.
fn warning_text(header: &str) -> String {
    let text = header.strip_prefix("299 - \"").and_then(|rest| rest.strip_suffix('"'));
    text.unwrap_or(header).to_owned()
}
