//! A server in this process, on a memory store, and clients with every kind of credentials.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, reason = "each test uses a part of it")]

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use tally_api::options::{Format, WriteOptions};
use tally_registry::{Env, Registry};
use tally_server::{Pki, Server, ServerOptions, SystemEnv};
use tally_store::{Store, StoreOptions};
use tally_value::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// No answer takes this long; the limit ends a test that would otherwise hang.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Running {
    pub address: SocketAddr,
    pub pki: Pki,
    pub registry: Arc<Registry>,
    directory: tempfile::TempDir,
    stop: Option<oneshot::Sender<()>>,
    served: Option<JoinHandle<()>>,
}

/// The credentials of a client.
#[derive(Clone, Default)]
pub struct Credentials {
    pub certificate: Option<(CertificateDer<'static>, Vec<u8>)>,
    pub token: Option<String>,
}

pub struct Answer {
    pub code: u16,
    pub headers: hyper::HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| String::from_utf8_lossy(&self.body).into())
    }
}

impl Running {
    pub async fn start() -> Running {
        Running::with(StoreOptions::default()).await
    }

    pub async fn with(options: StoreOptions) -> Running {
        Running::in_world(options, Box::new(SystemEnv)).await
    }

    /// With limits of its own.
    pub async fn limited(options: ServerOptions) -> Running {
        Running::make(StoreOptions::default(), Box::new(SystemEnv), options).await
    }

    pub async fn in_world(options: StoreOptions, world: Box<dyn Env>) -> Running {
        Running::make(options, world, ServerOptions::default()).await
    }

    async fn make(options: StoreOptions, world: Box<dyn Env>, server: ServerOptions) -> Running {
        let directory = tempfile::tempdir().unwrap();
        let pki = Pki::open(&directory.path().join("pki"), Ipv4Addr::LOCALHOST.into()).unwrap();
        let registry = Arc::new(Registry::new(Store::memory(options), world));
        registry.begin().await.expect("a cluster begins");
        tally_server::install_roles(&registry).await.expect("a cluster has its roles");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::with_options(registry.clone(), &pki, address.to_string(), server).unwrap();
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(server.serve(listener, async move {
            let _ = stopped.await;
        }));
        Running { address, pki, registry, directory, stop: Some(stop), served: Some(served) }
    }

    pub fn keys(&self) -> PathBuf {
        self.directory.path().join("pki")
    }

    /// Tells the server to stop; the handle is ready when it has.
    pub fn stop(&mut self) -> JoinHandle<()> {
        let _ = self.stop.take().expect("stopped once").send(());
        self.served.take().expect("stopped once")
    }

    pub fn admin(&self) -> Credentials {
        let certificate = CertificateDer::from_pem_slice(self.pki.admin_certificate.as_bytes()).unwrap();
        let key = KeyPair::from_pem(&self.pki.admin_key).unwrap().serialize_der();
        Credentials { certificate: Some((certificate, key)), token: None }
    }

    pub fn token(&self, token: &str) -> Credentials {
        Credentials { token: Some(token.to_owned()), certificate: None }
    }

    /// A certificate of the server's own authority.
    pub fn issue(&self, change: impl FnOnce(&mut CertificateParams)) -> Credentials {
        let key = KeyPair::from_pem(&std::fs::read_to_string(self.keys().join("ca.key")).unwrap()).unwrap();
        issue(&Issuer::from_ca_cert_pem(&self.pki.authority, key).unwrap(), change)
    }

    pub async fn connect(&self, credentials: &Credentials, protocol: &[u8]) -> TlsStream<TcpStream> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pki.authority.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match &credentials.certificate {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.clone()));
                config.with_client_auth_cert(vec![certificate.clone()], key).unwrap()
            }
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("the handshake succeeds for everybody")
    }

    /// Sends a request on its own connection and returns the response as soon as its head has arrived.
    pub async fn open(&self, credentials: &Credentials, request: Request<Full<Bytes>>) -> Response<Incoming> {
        let stream = self.connect(credentials, b"http/1.1").await;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        tokio::time::timeout(PATIENCE, sender.send_request(self.signed(credentials, request)))
            .await
            .expect("an answer")
            .expect("a sound answer")
    }

    /// A client that uses HTTP/2.
    pub async fn http2<B>(&self, credentials: &Credentials) -> hyper::client::conn::http2::SendRequest<B>
    where
        B: hyper::body::Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
    {
        let stream = self.connect(credentials, b"h2").await;
        let executor = TokioExecutor::new();
        let (sender, connection) = hyper::client::conn::http2::handshake(executor, TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    pub fn signed(&self, credentials: &Credentials, mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
        if let Some(token) = &credentials.token {
            request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        if request.version() != hyper::Version::HTTP_2 {
            request.headers_mut().insert("host", "localhost".parse().unwrap());
        }
        request
    }

    pub async fn call(&self, credentials: &Credentials, request: Request<Full<Bytes>>) -> Answer {
        collect(self.open(credentials, request).await).await
    }

    /// Creates a ConfigMap without HTTP.
    pub async fn store(&self, object: &Value) {
        let resource = tally_api::catalog::find("", "v1", "configmaps").expect("there are ConfigMaps");
        let target = tally_registry::Target::new(resource, "default", "");
        let (body, options) = (object.to_string(), WriteOptions::default());
        let written = self.registry.create(target, body.as_bytes(), Format::Json, &options).await;
        assert!(written.is_ok());
    }

    pub async fn create(&self, path: &str, object: &Value) -> Answer {
        self.call(&self.admin(), request("POST", path, object.to_string())).await
    }
}

pub async fn collect(response: Response<Incoming>) -> Answer {
    let (code, headers) = (response.status().as_u16(), response.headers().clone());
    let body = tokio::time::timeout(PATIENCE, response.into_body().collect()).await.expect("an end of the answer");
    Answer { code, headers, body: body.expect("a sound body").to_bytes() }
}

pub fn request(method: &str, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::builder().method(method).uri(path).body(Full::new(body.into())).unwrap()
}

pub fn get(path: &str) -> Request<Full<Bytes>> {
    request("GET", path, "")
}

/// A client certificate with all permissions, unless `change` removes them.
pub fn issue(issuer: &Issuer<'_, KeyPair>, change: impl FnOnce(&mut CertificateParams)) -> Credentials {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "somebody");
    params.distinguished_name.push(DnType::OrganizationName, "system:masters");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    change(&mut params);
    let certificate = params.signed_by(&key, issuer).unwrap().der().clone();
    Credentials { certificate: Some((certificate, key.serialize_der())), token: None }
}

/// The lines of a watch, as they arrive.
pub struct Lines {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Lines {
    pub fn of(response: Response<Incoming>) -> Lines {
        assert_eq!(response.status(), 200);
        Lines { body: response.into_body(), buffer: Vec::new() }
    }

    /// The next event. None if the stream has ended in order.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("a line is an event"));
            }
            match tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("an event or the end") {
                None => {
                    assert!(self.buffer.is_empty(), "half a line at the end");
                    return None;
                }
                Some(frame) => self.buffer.extend_from_slice(&frame.expect("a sound stream").into_data().unwrap()),
            }
        }
    }
}
