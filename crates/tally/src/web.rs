//! `tally web`: the page for any cluster; and the page of `tally up`.

use std::io::{self, IsTerminal, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use tally_remote::connect::{self, KubeconfigSource};
use tally_remote::{Remote, request};
use tally_runtime::controller::Kind;
use tally_web::{Explain, WebServer};
use tokio::signal::unix::SignalKind;
use tokio::sync::OnceCell;

use crate::look::{explain, waiting};
use crate::place::Place;
use crate::run;
use crate::signals::{self, Stop};
use crate::terminal;
use crate::up;

#[derive(clap::Args)]
#[command(after_help = "Examples:
  tally web                               the page of the tally up on this machine
  tally web --data-dir ./d                the same for a tally up with another data directory
  tally web --context test                the page of a cluster, with your rights there
  tally web --context test --listen 127.0.0.1:8080
  ssh -L 8080:127.0.0.1:8080 HOST         how to reach the page of another machine

The page is served on a loopback address of this machine, without encryption. The link that is printed can be used once, within
ten minutes or --link-for; it opens a session in that browser. In a terminal, Enter prints a new link. Everything that the page does is done
with your rights in the cluster.

Exit code 0: stopped by SIGINT or SIGTERM; 1: it cannot be served, or the API server cannot be reached; 2: bad usage.")]
pub struct Args {
    /// The data directory of tally up [default: ~/.local/share/tally]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["context", "kubeconfig"])]
    data_dir: Option<PathBuf>,
    /// A cluster: context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// A cluster: kubeconfig file [default: $KUBECONFIG or ~/.kube/config, if --context is given]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Loopback address and port to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0", value_parser = parse_address)]
    listen: SocketAddr,
    /// How long a link can be used, such as 30s or 1h
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_lifetime)]
    link_for: Duration,
}

fn parse_lifetime(text: &str) -> Result<Duration, String> {
    Ok(Duration::from_secs(run::timeout(text)?.unsigned_abs()))
}

/// The value of a flag that says where a page listens.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let address = up::parse_address(text)?;
    tally_web::address_error(address).map_or(Ok(address), Err)
}

/// Returns whether it was stopped gracefully.
pub fn run(args: &Args) -> Result<bool> {
    let mut directory = None;
    let kubeconfig = match (&args.kubeconfig, &args.context, &args.data_dir) {
        (Some(file), ..) => Some(file.clone()),
        (None, Some(_), _) => None,
        (None, None, data) => {
            let data = data.clone().map_or_else(up::default_data_dir, Ok)?;
            let file = data.join("kubeconfig");
            if !file.exists() {
                bail!(
                    "{} does not exist: start tally up, choose its directory with --data-dir or its kubeconfig with \
                     --kubeconfig, or a cluster with --context",
                    file.display()
                );
            }
            directory = Some(data);
            Some(file)
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let stop = signals::stop(&[SignalKind::interrupt(), SignalKind::terminate()], 1)?;
    let served = runtime.block_on(serve(args, kubeconfig, directory, stop));
    if let Err(error) = &served {
        terminal::tell(format_args!("{error:#}"));
    }
    Ok(served.is_ok())
}

async fn serve(
    args: &Args,
    kubeconfig: Option<PathBuf>,
    directory: Option<PathBuf>,
    mut stop: tokio::sync::watch::Receiver<Stop>,
) -> Result<()> {
    let source = KubeconfigSource { kubeconfig, context: args.context.clone() };
    let access = connect::access(&source)?;
    let remote = Remote::new(connect::service(&access)?);
    let version = request::plain(hyper::Method::GET, "/version", Bytes::new())?;
    let server = access.server();
    let answer = remote.ask(version).await.map_err(|error| anyhow!("cannot reach {server}: {}", error.why))?;
    if !(200..300).contains(&answer.code) {
        bail!("{server} answered {} when it was asked for its version", answer.code);
    }
    let page = Page::bind(args.listen, "--listen")?;
    let from = directory.map_or(ExplainedPlace::Cluster(source), ExplainedPlace::Directory);
    let page = page.of(remote, from, args.link_for)?;
    let mut out = io::stdout();
    let time = tally_web::lifetime(args.link_for);
    writeln!(out, "the page of {server}, once and within {time}:\n\n  {}\n", page.link)?;
    if io::stdin().is_terminal() {
        writeln!(out, "Enter prints a new link, Ctrl-C stops.")?;
        let server = page.server.clone();
        std::thread::spawn(move || print_links(&server));
    }
    out.flush()?;
    let stopped = async move {
        let _ = stop.wait_for(|stop| *stop != Stop::No).await;
    };
    page.server.serve(page.listener, stopped).await;
    Ok(())
}

/// Prints a new link for every line of the terminal.
fn print_links(server: &WebServer) {
    for _ in io::stdin().lines().map_while(Result::ok) {
        let Some(link) = server.link() else { return };
        if writeln!(io::stdout(), "  {link}\n").is_err() {
            return;
        }
    }
}

/// Where the page finds why an object does not move.
pub enum ExplainedPlace {
    /// The data directory of a tally up.
    Directory(PathBuf),
    Cluster(KubeconfigSource),
}

/// Opens the place when it is asked for the first time: the process that has the directory may be this one, and start later.
struct PageExplainer {
    from: ExplainedPlace,
    place: OnceCell<Place>,
}

impl PageExplainer {
    async fn place(&self) -> Option<&Place> {
        let open = async || match &self.from {
            ExplainedPlace::Directory(data) => Place::directory(data.clone()).await,
            ExplainedPlace::Cluster(source) => Place::cluster(source.context.clone(), source.kubeconfig.clone(), None),
        };
        self.place.get_or_try_init(open).await.ok()
    }
}

impl Explain for PageExplainer {
    fn explain<'a>(
        &'a self,
        namespace: &'a str,
        resource: &'a str,
        name: &'a str,
    ) -> Pin<Box<dyn Future<Output = Option<Bytes>> + Send + 'a>> {
        let kind = match resource {
            "pods" => Kind::POD,
            "cronjobs" => Kind::CRON_JOB,
            _ => Kind::JOB,
        };
        Box::pin(async move {
            let explained = explain::full_explanation(self.place().await?, kind, namespace, name).await?;
            Some(Bytes::from(explained.json().to_string()))
        })
    }

    fn waits<'a>(&'a self, jobs: &'a [(&'a str, &'a str)]) -> Pin<Box<dyn Future<Output = Option<Bytes>> + Send + 'a>> {
        let names: Vec<_> = jobs.iter().map(|(namespace, name)| (namespace.to_string(), name.to_string())).collect();
        Box::pin(async move {
            let found = waiting::waits_of(self.place().await?, &names).await;
            Some(Bytes::from(waiting::json(&found).to_string()))
        })
    }
}

/// An address for the page.
pub struct Page(TcpListener);

/// The page of a server.
pub struct ServedPage {
    pub server: WebServer,
    pub listener: tokio::net::TcpListener,
    /// The first link.
    pub link: String,
}

impl Page {
    /// `flag`: by which the user chose the address.
    pub fn bind(address: SocketAddr, flag: &str) -> Result<Self> {
        let listener = TcpListener::bind(address).map_err(|error| up::address_error(address, flag, &error))?;
        listener.set_nonblocking(true)?;
        Ok(Self(listener))
    }

    pub fn of(self, remote: Remote, from: ExplainedPlace, link_for: Duration) -> Result<ServedPage> {
        let listener = tokio::net::TcpListener::from_std(self.0)?;
        let explain = Box::new(PageExplainer { from, place: OnceCell::new() });
        let server = WebServer::new(listener.local_addr()?, remote, Some(explain), link_for);
        let link = server.link().context("this machine has no random numbers")?;
        Ok(ServedPage { server, listener, link })
    }

    /// The page of the tally up with this data directory.
    pub fn of_data(self, data: &Path, kubeconfig: &Path) -> Result<ServedPage> {
        let access = connect::access(&KubeconfigSource { kubeconfig: Some(kubeconfig.to_owned()), context: None })?;
        let from = ExplainedPlace::Directory(data.to_owned());
        self.of(Remote::new(connect::service(&access)?), from, tally_web::LINK_FOR)
    }
}
