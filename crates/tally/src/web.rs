//! `tally web`: the page for any cluster; and the page of `tally up`.

use std::io::{self, IsTerminal, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use tally_remote::connect::{self, KubeconfigSource};
use tally_remote::{Remote, request};
use tally_web::WebServer;
use tokio::signal::unix::SignalKind;

use crate::signals::{self, Stop};
use crate::up;

#[derive(clap::Args)]
#[command(after_help = "Examples:
  tally web                               the page of the tally up on this machine
  tally web --data-dir ./d                the same for a tally up with another data directory
  tally web --context test                the page of a cluster, with your rights there
  tally web --context test --listen 127.0.0.1:8080
  ssh -L 8080:127.0.0.1:8080 HOST         how to reach the page of another machine

The page is served on a loopback address of this machine, without encryption. The link that is printed can be used once, within
ten minutes; it opens a session in that browser. In a terminal, Enter prints a new link. Everything that the page does is done
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
}

/// The value of a flag that says where a page listens.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let address = up::parse_address(text)?;
    tally_web::address_error(address).map_or(Ok(address), Err)
}

/// Returns whether it was stopped gracefully.
pub fn run(args: &Args) -> Result<bool> {
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
            Some(file)
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let stop = signals::stop(&[SignalKind::interrupt(), SignalKind::terminate()], 1)?;
    let served = runtime.block_on(serve(args, kubeconfig, stop));
    if let Err(error) = &served {
        eprintln!("tally: {error:#}");
    }
    Ok(served.is_ok())
}

async fn serve(args: &Args, kubeconfig: Option<PathBuf>, mut stop: tokio::sync::watch::Receiver<Stop>) -> Result<()> {
    let access = connect::access(&KubeconfigSource { kubeconfig, context: args.context.clone() })?;
    let remote = Remote::new(connect::service(&access)?);
    let version = request::plain(hyper::Method::GET, "/version", bytes::Bytes::new())?;
    let server = access.server();
    let answer = remote.ask(version).await.map_err(|error| anyhow!("cannot reach {server}: {}", error.why))?;
    if !(200..300).contains(&answer.code) {
        bail!("{server} answered {} when it was asked for its version", answer.code);
    }
    let page = Page::bind(args.listen, "--listen")?;
    let page = page.of(remote)?;
    let mut out = io::stdout();
    writeln!(out, "the page of {server}, once and within ten minutes:\n\n  {}\n", page.link)?;
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

    pub fn of(self, remote: Remote) -> Result<ServedPage> {
        let listener = tokio::net::TcpListener::from_std(self.0)?;
        let server = WebServer::new(listener.local_addr()?, remote, None);
        let link = server.link().context("this machine has no random numbers")?;
        Ok(ServedPage { server, listener, link })
    }

    /// The page of the server that this kubeconfig is for.
    pub fn of_kubeconfig(self, kubeconfig: &Path) -> Result<ServedPage> {
        let access = connect::access(&KubeconfigSource { kubeconfig: Some(kubeconfig.to_owned()), context: None })?;
        self.of(Remote::new(connect::service(&access)?))
    }
}
