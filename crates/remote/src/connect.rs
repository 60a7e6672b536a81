//! How to find the API server, and the connection to it.
//!
//! HTTP/2 if the server supports it: all requests share one connection, which costs both sides far less than one
//! connection for each request in flight. No request is repeated: which requests may be is for the controllers to
//! decide.

use std::future::Future;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::UnixStream;
use tower::BoxError;
use tower::util::BoxCloneSyncService;

use crate::credentials::{Credentials, impersonation};
use crate::kubeconfig::{Kubeconfig, KubeconfigCluster, KubeconfigUser};
use crate::tls::{self, Trust};

pub type Service = BoxCloneSyncService<Request<Full<Bytes>>, Response<Incoming>, BoxError>;

const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// How often the connection is checked, and how long it may take to respond. Otherwise it is closed, even if requests
/// wait for it.
const PING_EVERY: Duration = Duration::from_secs(15);
const PONG_WITHIN: Duration = Duration::from_secs(10);

/// How much unread data the server may send: limited for the connection and for each stream, so that a slow stream does
/// not block the others.
const CONNECTION_WINDOW: u32 = 16 << 20;
const STREAM_WINDOW: u32 = 2 << 20;

/// Which API server to connect to.
#[derive(Clone, Debug, Default)]
pub struct KubeconfigSource {
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
}

/// What is mounted into a Pod with a service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// How to reach an API server.
#[derive(Clone)]
pub struct Access {
    server: Uri,
    proxy: Option<Uri>,
    trust: Trust,
    tls_server_name: Option<String>,
    user: KubeconfigUser,
    cluster: KubeconfigCluster,
    namespace: Option<String>,
}

pub fn access(source: &KubeconfigSource) -> Result<Access> {
    let kubeconfig = match (&source.kubeconfig, default_files()) {
        (Some(file), _) => Kubeconfig::read(file)?,
        (None, Some(files)) => {
            let merged = Kubeconfig::read_all(files.into_iter());
            merged.map_err(|error| anyhow!("{error:#}; set KUBECONFIG or use --kubeconfig"))?
        }
        (None, None) if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() => return in_cluster(source),
        (None, None) => bail!(
            "no API server is named: give a kubeconfig with --kubeconfig or KUBECONFIG, put one at ~/.kube/config, or \
             run in a Pod with a service account"
        ),
    };
    let contexts = kubeconfig.context_names();
    let wanted = source.context.clone().or(kubeconfig.current_context.clone()).filter(|name| !name.is_empty());
    let Some(wanted) = wanted else {
        bail!("the kubeconfig has no current context; choose one with --context; it has {}", or_none(&contexts));
    };
    if !contexts.contains(&wanted) {
        bail!("the kubeconfig has no context {wanted:?}; it has {}", or_none(&contexts));
    }
    Access::of_context(&kubeconfig, &wanted).context("the kubeconfig cannot be used")
}

impl Access {
    /// Without credentials.
    pub fn to(server: Uri) -> Self {
        Self {
            server,
            proxy: None,
            trust: Trust::System,
            tls_server_name: None,
            user: KubeconfigUser::default(),
            cluster: KubeconfigCluster::default(),
            namespace: None,
        }
    }

    /// The namespace of the context, or of the Pod, if it has one.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    pub fn server(&self) -> &Uri {
        &self.server
    }

    fn of_context(kubeconfig: &Kubeconfig, context: &str) -> Result<Self> {
        let (cluster, user) = kubeconfig.select(context)?;
        let url = cluster.server.as_deref().context("the cluster has no server")?;
        let server: Uri = url.parse().with_context(|| format!("server: {url:?} is not a URL"))?;
        let trust = match (cluster.authority()?, cluster.insecure_skip_tls_verify) {
            (_, Some(true)) => Trust::Anyone,
            (Some(pem), _) => Trust::Authorities(pem),
            (None, _) => Trust::System,
        };
        let proxy = proxy(&cluster, &server, |name| std::env::var(name).ok())?;
        let tls_server_name = cluster.tls_server_name.clone();
        let namespace = kubeconfig.namespace(context);
        Ok(Self { server, proxy, trust, tls_server_name, user, cluster, namespace })
    }

    /// As the service account of a Pod. The files are replaced while the Pod runs.
    fn of_service_account(directory: &Path, host: &str, port: &str) -> Result<Self> {
        let port: u16 = port.parse().with_context(|| format!("KUBERNETES_SERVICE_PORT: {port:?} is not a port"))?;
        let host = match host.parse() {
            Ok(IpAddr::V6(address)) => format!("[{address}]"),
            _ => host.to_owned(),
        };
        let server = format!("https://{host}:{port}").parse().context("KUBERNETES_SERVICE_HOST is not a host")?;
        let (token, authority) = (directory.join("token"), directory.join("ca.crt"));
        std::fs::metadata(&authority).with_context(|| format!("cannot read {}", authority.display()))?;
        let user = KubeconfigUser::with_token_file(token);
        let namespace = std::fs::read_to_string(directory.join("namespace")).ok().map(|text| text.trim().to_owned());
        Ok(Self { trust: Trust::File(authority), user, namespace, ..Self::to(server) })
    }
}

fn in_cluster(source: &KubeconfigSource) -> Result<Access> {
    if let Some(context) = &source.context {
        bail!("--context {context} needs a kubeconfig, and there is none");
    }
    let variable = |name: &str| std::env::var(name).with_context(|| format!("{name} is not set"));
    let of_pod = || {
        let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
        Access::of_service_account(Path::new(SERVICE_ACCOUNT), &host, &port)
    };
    of_pod().context("cannot use the Pod's service account; is automountServiceAccountToken off?")
}

/// `proxy-url` of the cluster, or the proxy of the environment unless NO_PROXY lists the server.
fn proxy(cluster: &KubeconfigCluster, server: &Uri, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Uri>> {
    let set = |names: [&str; 2]| names.into_iter().filter_map(&variable).find(|value| !value.is_empty());
    let parse = |url: &str| url.parse().with_context(|| format!("{url:?} is not the URL of a proxy"));
    if let Some(url) = cluster.proxy_url.as_deref().filter(|url| !url.is_empty()) {
        return parse(url).map(Some);
    }
    let Some(url) = set(["HTTPS_PROXY", "https_proxy"]) else { return Ok(None) };
    let rules = Matcher::builder().all(url.clone()).no(set(["NO_PROXY", "no_proxy"]).unwrap_or_default()).build();
    let excepted = rules.intercept(server).is_none();
    parse(&url).map(|proxy| Some(proxy).filter(|_| !excepted))
}

/// The files that are used if none is specified.
fn default_files() -> Option<Vec<PathBuf>> {
    if let Some(files) = std::env::var_os("KUBECONFIG").filter(|files| !files.is_empty()) {
        return Some(std::env::split_paths(&files).collect());
    }
    let file = std::env::home_dir()?.join(".kube/config");
    file.exists().then(|| vec![file])
}

fn or_none(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Reads the certificates and the credentials, and runs the credential plugin if there is one.
pub fn service(access: &Access) -> Result<Service> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_WITHIN));
    connector.set_keepalive(Some(Duration::from_secs(30)));
    match &access.proxy {
        None => over(access, connector),
        Some(proxy) if proxy.scheme_str() == Some("http") => over(access, Tunnel::new(proxy.clone(), connector)),
        Some(proxy) => bail!(
            "cannot use the proxy {proxy}: only http:// proxies are supported; change proxy-url in the kubeconfig, or \
             HTTPS_PROXY"
        ),
    }
}

fn over<C>(access: &Access, connector: C) -> Result<Service>
where
    C: tower::Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let told = || access.cluster.for_plugins();
    let asked = access.user.exec.as_ref().is_some_and(|plugin| plugin.provide_cluster_info);
    let (credentials, identity) = Credentials::load(&access.user, asked.then(told).transpose()?)
        .context("the credentials of the kubeconfig cannot be used")?;
    let headers = impersonation(&access.user).context(
        "the user or groups that the kubeconfig impersonates (as, as-groups) are not valid HTTP header values",
    )?;
    let of_files = || -> Result<_> {
        let identity = identity.map_or_else(|| access.user.identity(), |identity| Ok(Some(identity)))?;
        tls::client_config(&access.trust, identity.as_deref())
    };
    let tls = of_files().context("the certificates of the kubeconfig cannot be used")?;
    let mut builder = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &access.tls_server_name {
        let name = name.clone().try_into().with_context(|| format!("{name:?} is not the name of a server"))?;
        builder = builder.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name));
    }
    let connector = builder.enable_all_versions().wrap_connector(connector);
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(90))
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PONG_WITHIN)
        .http2_keep_alive_while_idle(true)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .build(connector);
    let server = access.server.clone();
    Ok(BoxCloneSyncService::new(tower::service_fn(move |mut request: Request<Full<Bytes>>| {
        let (client, credentials, headers) = (client.clone(), credentials.clone(), headers.clone());
        let uri = below(&server, request.uri().path_and_query());
        async move {
            *request.uri_mut() = uri?;
            request.headers_mut().extend(headers);
            // anyhow's error would hide its source.
            credentials.add_to(request.headers_mut()).await.map_err(|error| BoxError::from(format!("{error:#}")))?;
            client.request(request).await.map_err(BoxError::from)
        }
    })))
}

/// An API server on a Unix socket, without TLS and without credentials: the kernel says who the client is.
pub fn local(socket: &Path) -> Service {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(SocketConnector(socket.into()));
    BoxCloneSyncService::new(tower::service_fn(move |mut request: Request<Full<Bytes>>| {
        let client = client.clone();
        let uri = below(&Uri::from_static("http://localhost"), request.uri().path_and_query());
        async move {
            *request.uri_mut() = uri?;
            client.request(request).await.map_err(BoxError::from)
        }
    }))
}

/// Connects to a socket whatever the host is.
#[derive(Clone)]
struct SocketConnector(Arc<Path>);

impl tower::Service<Uri> for SocketConnector {
    type Response = TokioIo<UnixStream>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<TokioIo<UnixStream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let socket = self.0.clone();
        Box::pin(async move { UnixStream::connect(&*socket).await.map(TokioIo::new) })
    }
}

/// A path of the API below the URL of the server, which may itself have a path.
fn below(server: &Uri, path: Option<&PathAndQuery>) -> Result<Uri, hyper::http::Error> {
    let base = server.path().trim_end_matches('/');
    let path = path.map_or("/", PathAndQuery::as_str);
    let mut builder = Uri::builder().path_and_query(format!("{base}{path}"));
    if let (Some(scheme), Some(authority)) = (server.scheme(), server.authority()) {
        builder = builder.scheme(scheme.clone()).authority(authority.clone());
    }
    builder.build()
}

/// An error with its causes, each only once: the outer layers repeat the inner ones.
pub fn reasons(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut inner = error.source();
    while let Some(error) = inner {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        inner = error.source();
    }
    text
}

/// Whether an error means that nothing was sent: there was no connection, or there were no credentials to send.
pub fn is_unsent(error: &BoxError) -> bool {
    match find::<hyper_util::client::legacy::Error>(&**error) {
        Some(error) => error.is_connect(),
        None => true,
    }
}

fn find<'a, E: std::error::Error + 'static>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a E> {
    let mut error = Some(error);
    while let Some(this) = error {
        if let Some(found) = this.downcast_ref() {
            return Some(found);
        }
        error = this.source();
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    #[test]
    fn paths_are_below_the_url_of_the_server() {
        for (server, path, expected) in [
            ("https://h", "/api?x=1", "https://h/api?x=1"),
            ("https://h:6443/", "/api", "https://h:6443/api"),
            ("https://h/k8s/clusters/c-1", "/api", "https://h/k8s/clusters/c-1/api"),
            ("https://h/k8s/", "/api", "https://h/k8s/api"),
        ] {
            let found = below(&server.parse().unwrap(), Some(&path.parse().unwrap())).unwrap();
            assert_eq!(found.to_string(), expected);
        }
    }

    #[test]
    fn the_kubeconfig_decides_on_the_proxy_then_the_environment() {
        let server = "https://api.example.com:6443".parse().unwrap();
        for (url, environment, expected) in [
            ("", &[][..], None),
            ("", &[("HTTPS_PROXY", "http://p:1")], Some("http://p:1/")),
            ("", &[("HTTPS_PROXY", ""), ("https_proxy", "http://p:1")], Some("http://p:1/")),
            ("http://q:2", &[("HTTPS_PROXY", "http://p:1")], Some("http://q:2/")),
            ("", &[("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", "example.org")], Some("http://p:1/")),
            ("", &[("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", ".example.com")], None),
            ("", &[("HTTPS_PROXY", "http://p:1"), ("no_proxy", "*")], None),
            ("http://q:2", &[("NO_PROXY", "*")], Some("http://q:2/")),
            ("socks5://q:2", &[], Some("socks5://q:2/")),
            ("", &[("HTTPS_PROXY", "socks5://q:2")], Some("socks5://q:2/")),
        ] {
            let cluster = KubeconfigCluster { proxy_url: Some(url.to_owned()), ..KubeconfigCluster::default() };
            let variable =
                |name: &str| environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            let found = proxy(&cluster, &server, variable).unwrap();
            assert_eq!(found.map(|uri| uri.to_string()).as_deref(), expected, "{url} {environment:?}");
        }
    }

    #[tokio::test]
    async fn a_pod_uses_the_files_of_its_service_account() {
        let directory = tempfile::tempdir().unwrap();
        let access = |host: &str| Access::of_service_account(directory.path(), host, "443");
        let error = format!("{:#}", access("10.0.0.1").err().unwrap());
        assert!(error.contains("ca.crt"), "{error}");
        std::fs::write(directory.path().join("ca.crt"), "").unwrap();
        for (host, expected) in
            [("10.0.0.1", "https://10.0.0.1:443/"), ("fd00::1", "https://[fd00::1]:443/"), ("h", "https://h:443/")]
        {
            assert_eq!(access(host).unwrap().server.to_string(), expected);
        }
        let access = access("h").unwrap();
        assert_eq!(access.trust, Trust::File(directory.path().join("ca.crt")));
        let error = format!("{:#}", service(&access).err().unwrap());
        assert!(error.contains("token"), "{error}");
        assert!(Access::of_service_account(directory.path(), "h", "x").is_err());
    }
}
