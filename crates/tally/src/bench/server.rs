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

const READY_WITHIN: Duration = Duration::from_secs(20);

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
        Ok(answered(opened)?.into_body())
    }
}

fn answered<T>(outcome: Result<T, tally_remote::RequestError>) -> Result<T> {
    outcome.map_err(|failure| anyhow::Error::msg(failure.why))
}

/// When dropped, the process is killed and its directory is removed.
pub struct Server {
    process: Process,
    directory: PathBuf,
    pub api: Api,
}

impl Server {
    pub async fn start(parent: &Path, arguments: &[&str]) -> Result<Server> {
        let directory = parent.join(format!("tally-bench-{}", std::process::id()));
        std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let kubeconfig = directory.join("kubeconfig");
        // A kubeconfig left by an earlier run would be taken for that of the new server.
        let _ = std::fs::remove_file(&kubeconfig);
        let mut command = own_command()?;
        command.args(["up", "--no-node", "--listen", "127.0.0.1:0", "--data-dir"]).arg(directory.join("data"));
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
            if let Some(status) = process.0.try_wait()? {
                bail!("the server exited with {status}");
            }
            if Instant::now() > until {
                bail!("the server is not ready after {} s", READY_WITHIN.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    pub fn memory(&self) -> Option<u64> {
        self.process.memory()
    }

    pub fn cpu(&self) -> Option<f64> {
        self.process.cpu()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.end();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn own_command() -> Result<Command> {
    Ok(Command::new(std::env::current_exe().context("cannot find the path of this executable")?))
}

/// The process is killed when this is dropped.
pub struct Process(Child);

impl Process {
    fn start(mut command: Command) -> Result<Process> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("cannot start a process")?;
        Ok(Process(child))
    }

    /// Starts the Job and TTL controllers against the server of this kubeconfig.
    pub fn controller(kubeconfig: PathBuf) -> Result<Process> {
        let mut command = own_command()?;
        command.args(["controller", "--leader-elect", "false", "--kubeconfig"]).arg(kubeconfig);
        Process::start(command)
    }

    /// Resolves when the process exits by itself.
    pub async fn ends(&mut self) -> String {
        loop {
            match self.0.try_wait() {
                Ok(None) => tokio::time::sleep(Duration::from_millis(50)).await,
                Ok(Some(status)) => return status.to_string(),
                Err(error) => return error.to_string(),
            }
        }
    }

    /// Resident memory (RSS) in bytes, if the system reports it.
    pub fn memory(&self) -> Option<u64> {
        self.kilobytes("VmRSS:")
    }

    /// Peak resident memory in bytes.
    pub fn peak_memory(&self) -> Option<u64> {
        self.kilobytes("VmHWM:")
    }

    fn kilobytes(&self, name: &str) -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
    }

    /// CPU time used so far in seconds, if the system reports it.
    pub fn cpu(&self) -> Option<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).ok()?;
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks: f64 = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
        // Linux reports 100 ticks per second (USER_HZ).
        Some(ticks / 100.0)
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
