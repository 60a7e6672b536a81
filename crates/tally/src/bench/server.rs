//! The processes under load: this binary, started again as a server on a temporary directory and as a controller.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use hyper::Method;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, HeaderValue};
use tally_remote::{RawResponse, Remote, connect, request};
use tally_runtime::controller::Call;

use super::proc;

/// A store of 100,000 Jobs with their Pods is read at the start.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// A server that is asked to stop writes what it has.
const STOPPED_WITHIN: Duration = Duration::from_secs(60);

/// How to reach the server under load.
#[derive(Clone)]
pub struct Api(connect::Access);

/// A client with its own connections.
pub struct Client(Remote);

impl Api {
    pub fn of(kubeconfig: &Path) -> Result<Api> {
        let place = connect::KubeconfigSource { kubeconfig: Some(kubeconfig.to_owned()), context: None };
        Ok(Api(connect::access(&place)?))
    }

    pub fn connection(&self) -> Result<Client> {
        Ok(Client(Remote::new(connect::service(&self.0)?)))
    }
}

impl Client {
    pub async fn call(&self, call: &Call) -> Result<RawResponse> {
        answered(self.0.ask(request::of_call(call)?).await)
    }

    pub async fn get(&self, path: &str) -> Result<RawResponse> {
        answered(self.0.ask(request::plain(Method::GET, path, Default::default())?).await)
    }

    /// The body of a response in this format.
    pub async fn open_as(&self, path: &str, accept: &'static str) -> Result<Incoming> {
        let mut request = request::plain(Method::GET, path, Default::default())?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(accept));
        let answer = answered(self.0.open(request).await)?;
        if answer.status() != 200 {
            bail!("{path} as {accept}: {}", answer.status());
        }
        Ok(answer.into_body())
    }

    /// The body of a watch.
    pub async fn watch(&self, path: &str) -> Result<Incoming> {
        let opened = self.0.open(request::plain(Method::GET, path, Default::default())?).await;
        let answer = answered(opened)?;
        if answer.status() != 200 {
            bail!("{path}: {}", answer.status());
        }
        Ok(answer.into_body())
    }
}

fn answered<T>(outcome: Result<T, tally_remote::RequestError>) -> Result<T> {
    outcome.map_err(|failure| anyhow::Error::msg(failure.why))
}

/// Removed when dropped.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// When dropped, the process is killed and its directory is removed.
pub struct Server {
    process: Process,
    directory: Directory,
    pub api: Api,
}

impl Server {
    pub async fn start(parent: &Path, arguments: &[&str]) -> Result<Server> {
        let directory = parent.join(format!("tally-bench-{}", std::process::id()));
        std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        Server::start_in(Directory(directory), arguments).await
    }

    pub async fn stop(self) -> Result<StoppedServer> {
        let Server { process, directory, .. } = self;
        process.stop().await.context("the server does not stop")?;
        Ok(StoppedServer(directory))
    }

    async fn start_in(directory: Directory, arguments: &[&str]) -> Result<Server> {
        let kubeconfig = directory.0.join("kubeconfig");
        // A kubeconfig left by an earlier run would be taken for that of the new server.
        let _ = std::fs::remove_file(&kubeconfig);
        let mut command = own_command()?;
        command.args(["up", "--no-node", "--listen", "127.0.0.1:0", "--data-dir"]).arg(directory.0.join("data"));
        command.arg("--kubeconfig").arg(&kubeconfig).args(arguments);
        let mut process = Process::start(command)?;
        let until = Instant::now() + READY_WITHIN;
        loop {
            if let Ok(api) = Api::of(&kubeconfig)
                && let Ok(answer) = api.connection()?.get("/readyz").await
                && answer.code == 200
            {
                return Ok(Server { process, directory, api });
            }
            process.check("the server")?;
            if Instant::now() > until {
                bail!("the server is not ready after {} s", READY_WITHIN.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Starts the Job and TTL controllers against this server. 0: without a limit of requests.
    pub fn start_controller(&self, qps: u32) -> Result<Process> {
        let log = self.directory.0.join("controller.log");
        let mut command = own_command()?;
        command.args(["controller", "--leader-elect", "false", "--qps", &qps.to_string(), "--kubeconfig"]);
        command.arg(self.directory.0.join("kubeconfig"));
        command.stderr(std::fs::File::create(&log).with_context(|| format!("cannot create {}", log.display()))?);
        let mut process = Process::start(command)?;
        process.log = Some(log);
        Ok(process)
    }

    pub fn memory(&self) -> Option<u64> {
        proc::memory(self.id())
    }

    pub fn cpu(&self) -> Option<f64> {
        proc::processor_seconds(self.id())
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    pub fn check(&mut self) -> Result<()> {
        self.process.check("the server")
    }
}

/// The data of a server. Removed when dropped.
pub struct StoppedServer(Directory);

impl StoppedServer {
    /// Starts another server on them.
    pub async fn start(self, arguments: &[&str]) -> Result<Server> {
        Server::start_in(self.0, arguments).await
    }
}

pub fn own_command() -> Result<Command> {
    Ok(Command::new(std::env::current_exe().context("cannot find the path of this executable")?))
}

/// The process is killed when this is dropped.
pub struct Process {
    child: Child,
    /// What it says, if that is nothing for the user to read.
    log: Option<PathBuf>,
}

impl Process {
    fn start(mut command: Command) -> Result<Process> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("cannot start a process")?;
        Ok(Process { child, log: None })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// An error if the process has ended by itself.
    pub fn check(&mut self, name: &str) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let said = self.log.as_ref().and_then(|log| std::fs::read_to_string(log).ok()).unwrap_or_default();
        bail!("{name} ended: {status} {}", said.lines().next_back().unwrap_or_default());
    }

    /// Asks it to stop, and waits until it has.
    async fn stop(mut self) -> Result<()> {
        let id = i32::try_from(self.id()).ok().and_then(rustix::process::Pid::from_raw).context("no process id")?;
        rustix::process::kill_process(id, rustix::process::Signal::TERM)?;
        let until = Instant::now() + STOPPED_WITHIN;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > until {
                bail!("it runs after {} s", STOPPED_WITHIN.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
