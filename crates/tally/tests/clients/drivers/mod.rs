//! What does the things: one driver for each client. It gets a request and answers what the client saw.

mod helm;
mod kubectl;
mod script;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::table::Column;

pub use script::Script;

/// Ends a test that would otherwise hang; it asserts nothing.
pub const GIVE_UP_AFTER: Duration = Duration::from_secs(120);

pub type Answer = Result<Value, String>;

pub trait Driver: Send {
    /// Does the thing of `request`. Calls `note` when something is reached that the test waits for.
    fn ask(&mut self, request: &Value, note: &dyn Fn(Value)) -> Answer;
}

/// Where a client finds the server and its own files.
pub struct Place {
    pub kubeconfig: PathBuf,
    /// A directory of its own: home, caches, manifests.
    pub home: PathBuf,
}

/// The driver of a client, or why the client cannot run.
pub fn start(client: &Column, place: Place) -> Result<Box<dyn Driver>, String> {
    let installed = |path: PathBuf| match path.exists() {
        true => Ok(path),
        false => Err(format!("`make tools` installs it, and {} does not exist", path.display())),
    };
    let named =
        |variable: &str, path: &str| installed(std::env::var_os(variable).map_or_else(|| tool(path), Into::into));
    let script = |library: PathBuf, package: &str, file: &str| -> Result<Box<dyn Driver>, String> {
        installed(library.join(package))?;
        Ok(Box::new(Script::python(&library, file, &place)?))
    };
    match client.id {
        "kubectl" => kubectl::start(named("KUBECTL", "bin/kubectl")?, 36..=36, place),
        "kubectl-newest" => kubectl::start(newest_kubectl()?, 37..=37, place),
        "kubectl-debian" => kubectl::start(installed(tool("kubectl-debian/usr/bin/kubectl"))?, 20..=20, place),
        "kubectl-path" => kubectl::start(in_path("kubectl").ok_or("there is no kubectl in the PATH")?, 31..=99, place),
        "helm" => helm::start(named("HELM", "helm/bin/helm")?, place),
        "python" => {
            let library = std::env::var_os("PYTHON_CLIENT").map_or_else(|| tool("python"), Into::into);
            script(library, "kubernetes", "python_client.py")
        }
        "kr8s" => script(tool("python-clients"), "kr8s", "kr8s_client.py"),
        "lightkube" => script(tool("python-clients"), "lightkube", "lightkube_client.py"),
        "client-node" => {
            let library = installed(tool("node/node_modules"))?;
            let library = library.parent().expect("it has a parent").to_owned();
            Ok(Box::new(Script::node(&library, "client_node.mjs", &place)?))
        }
        "kube-rs" => Ok(Box::new(Script::program(&installed(tool("kube-rs/debug/kube-rs"))?, &place)?)),
        other => Err(format!("no driver for {other}")),
    }
}

/// What `make tools` installs beside the build.
pub fn tool(path: &str) -> PathBuf {
    let build = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is inside the build directory");
    build.join("tools").join(path)
}

/// Where Python keeps what it has compiled: for the next run, and not beside the sources.
pub fn python_cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("python")
}

/// The file of a driver, beside this one.
pub fn source(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/drivers").join(file)
}

/// Its version is in the name of its directory.
fn newest_kubectl() -> Result<PathBuf, String> {
    let entries = std::fs::read_dir(tool("")).map_err(|error| format!("`make tools` installs it: {error}"))?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("kubectl-1.")))
        .map(|path| path.join("bin/kubectl"))
        .filter(|path| path.exists())
        .collect();
    found.sort();
    found.pop().ok_or_else(|| "`make tools` installs it".to_owned())
}

fn in_path(program: &str) -> Option<PathBuf> {
    let directories = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&directories).map(|directory| directory.join(program)).find(|path| path.exists())
}

/// What a command printed, and its exit code.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Result<Said, String> {
    let text = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
            read.transpose().map(|_| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
        })
    };
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let out = text(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let err = text(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let until = Instant::now() + GIVE_UP_AFTER;
    let code = loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            break status.code();
        }
        if Instant::now() > until {
            let _ = (child.kill(), child.wait());
            return Err(format!("{command:?} has not ended after {GIVE_UP_AFTER:?}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Ok(Said { code, out: out.join().unwrap_or_default(), err: err.join().unwrap_or_default() })
}

/// Writes a manifest and returns its path.
pub fn write(directory: &Path, name: &str, text: &str) -> Result<String, String> {
    let path = directory.join(name);
    let written = std::fs::File::create(&path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| format!("{}: {error}", path.display()))?;
    path.into_os_string().into_string().map_err(|path| format!("{path:?}"))
}
