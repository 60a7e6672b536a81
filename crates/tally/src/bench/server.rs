//! The server under load: this very binary in a process of its own, on a temporary directory.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::client::{Api, Call};

const READY_WITHIN: Duration = Duration::from_secs(20);

/// Ends, and takes its directory along, when dropped.
pub struct Server {
    child: Child,
    directory: PathBuf,
    pub api: Api,
}

impl Server {
    pub async fn start(parent: &Path) -> Result<Server> {
        let directory = parent.join(format!("tally-bench-{}", std::process::id()));
        std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let kubeconfig = directory.join("kubeconfig");
        let child = Command::new(std::env::current_exe().context("cannot find this program's own file")?)
            .args(["up", "--no-node", "--controllers", "", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(directory.join("data"))
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start a server")?;
        let until = Instant::now() + READY_WITHIN;
        let mut starting = Some(child);
        loop {
            if let Some(api) = Api::from_kubeconfig(&kubeconfig)
                && let Ok(answer) = api.connection().call(&Call::get("/readyz")).await
                && answer.code == 200
                && let Some(child) = starting.take()
            {
                return Ok(Server { child, directory, api });
            }
            if let Some(child) = &mut starting
                && let Some(status) = child.try_wait()?
            {
                bail!("the server ended with {status}");
            }
            if Instant::now() > until {
                if let Some(child) = &mut starting {
                    let _ = child.kill();
                }
                bail!("the server is not ready after {} s", READY_WITHIN.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Bytes of memory that are really there (RSS), where the system tells.
    pub fn memory(&self) -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
    }

    /// Seconds of processor time used so far, where the system tells.
    pub fn cpu(&self) -> Option<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks: f64 = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
        // A hundred ticks a second on every Linux.
        Some(ticks / 100.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
