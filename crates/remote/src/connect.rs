//! How to find the API server and authenticate: kubeconfig and credentials by `kube`, the connection by hyper.
//!
//! HTTP/2 if the server supports it: all requests share one connection, which costs both sides far less than one
//! connection for each request in flight. `kube`'s own client uses HTTP/1.1 and repeats requests by itself; which
//! requests may be repeated is for the controllers to decide.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceBuilder};

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

pub async fn config(source: &KubeconfigSource) -> Result<Config> {
    let kubeconfig = match (&source.kubeconfig, default_file()) {
        (Some(file), _) => read(file)?,
        (None, Some(_)) => {
            Kubeconfig::read().map_err(|error| anyhow!("{error}; set KUBECONFIG or use --kubeconfig"))?
        }
        (None, None) if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() => return in_cluster(source),
        (None, None) => bail!(
            "no API server is named: give a kubeconfig with --kubeconfig or KUBECONFIG, put one at ~/.kube/config, or \
             run in a Pod with a service account"
        ),
    };
    let contexts: Vec<String> = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect();
    let current = kubeconfig.current_context.clone();
    let options = KubeConfigOptions { context: source.context.clone(), ..KubeConfigOptions::default() };
    let wanted = source.context.clone().or(current).filter(|name| !name.is_empty());
    match wanted {
        None => bail!("the kubeconfig has no current context; choose one with --context: {}", contexts.join(", ")),
        Some(wanted) if !contexts.contains(&wanted) => {
            bail!("the kubeconfig has no context {wanted:?}; it has {}", or_none(&contexts))
        }
        Some(_) => {}
    }
    Config::from_custom_kubeconfig(kubeconfig, &options).await.context("the kubeconfig cannot be used")
}

fn read(file: &Path) -> Result<Kubeconfig> {
    // For a missing file, the error of `Kubeconfig::read_from` does not say which of its layers could not find it.
    std::fs::metadata(file).with_context(|| format!("cannot read the kubeconfig {}", file.display()))?;
    Kubeconfig::read_from(file).with_context(|| format!("{} is not a kubeconfig", file.display()))
}

fn in_cluster(source: &KubeconfigSource) -> Result<Config> {
    if let Some(context) = &source.context {
        bail!("--context {context} needs a kubeconfig, and there is none");
    }
    Config::incluster().context("cannot use the Pod's service account; is automountServiceAccountToken off?")
}

/// The file that is used if none is specified.
fn default_file() -> Option<PathBuf> {
    if std::env::var_os("KUBECONFIG").is_some_and(|files| !files.is_empty()) {
        return Some(PathBuf::from("KUBECONFIG"));
    }
    let file = std::env::home_dir()?.join(".kube/config");
    file.exists().then_some(file)
}

fn or_none(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

pub fn service(config: &Config) -> Result<Service> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_WITHIN));
    connector.set_keepalive(Some(Duration::from_secs(30)));
    match &config.proxy_url {
        None => over(config, connector),
        Some(proxy) if proxy.scheme_str() == Some("http") => over(config, Tunnel::new(proxy.clone(), connector)),
        Some(proxy) => bail!(
            "cannot use the proxy {proxy}: only http:// proxies are supported; change proxy-url in the kubeconfig, or \
             HTTPS_PROXY"
        ),
    }
}

fn over<C>(config: &Config, connector: C) -> Result<Service>
where
    C: tower::Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let tls = config.rustls_client_config().context("the certificates of the kubeconfig cannot be used")?;
    let mut builder = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
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
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().context("the credentials of the kubeconfig cannot be used")?)
        .layer(config.extra_headers_layer().context(
            "the user or groups that the kubeconfig impersonates (as, as-groups) are not valid HTTP header values",
        )?)
        .map_err(BoxError::from)
        .service(client);
    Ok(BoxCloneSyncService::new(service))
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
