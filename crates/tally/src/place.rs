//! Where Jobs are: in a data directory, or in a cluster.
//!
//! A data directory that another process uses is read through that process, on the socket in it; otherwise its store is
//! opened, read into memory and closed again. Records of attempts and logs are files, which are read directly.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Method;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tally_node::attempts::{self, DroppedRecords, JobRecords};
use tally_registry::Registry;
use tally_remote::{Remote, connect, request};
use tally_runtime::controller::{Call, Kind, Refusal, Reply, Verb};
use tally_runtime::driver::api::Api;
use tally_server::SystemEnv;
use tally_store::{OpenError, Store, StoreOptions};

use crate::data_dir::quoted;
use crate::local_api;
use crate::up;

/// A process that has just taken the directory serves its socket soon.
const SERVED_WITHIN: Duration = Duration::from_secs(3);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// How often a request is sent that a cluster does not accept for now.
const ATTEMPTS: u32 = 5;
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How often a directory is opened again because its process has ended.
const REOPENED_AT_MOST: u32 = 5;

#[derive(clap::Args)]
pub struct PlaceFlags {
    /// The data directory of tally run or tally up [default: that of tally up, ~/.local/share/tally]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["context", "kubeconfig"])]
    data_dir: Option<PathBuf>,
    /// A cluster: context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// A cluster: kubeconfig file [default: $KUBECONFIG or ~/.kube/config, if --context is given]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace [default: that of the context; all of a data directory]
    #[arg(long, short = 'n', value_name = "NAME")]
    namespace: Option<String>,
}

impl PlaceFlags {
    /// The namespace that was given. None: all are meant.
    pub fn given_namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The same place, as the flags of a command that a message proposes.
    pub fn words(&self) -> String {
        words(self.data_dir.as_deref(), self.context.as_deref(), self.kubeconfig.as_deref(), self.namespace.as_deref())
    }
}

/// Flags that name a place, each after a space.
pub fn words(
    data_dir: Option<&Path>,
    context: Option<&str>,
    kubeconfig: Option<&Path>,
    namespace: Option<&str>,
) -> String {
    let given = [
        ("--data-dir", data_dir.map(quoted)),
        ("--context", context.map(str::to_owned)),
        ("--kubeconfig", kubeconfig.map(quoted)),
        ("--namespace", namespace.map(str::to_owned)),
    ];
    let word = |(flag, value): (&str, Option<String>)| Some(format!(" {flag} {}", value?));
    given.into_iter().filter_map(word).collect()
}

#[derive(Debug)]
pub enum PlaceError {
    Usage(String),
    Unreadable(String),
}

pub struct Place {
    objects: Mutex<Objects>,
    /// The data directory. None: a cluster.
    data: Option<PathBuf>,
    namespace: String,
    title: String,
}

/// Where objects are read. Cheap to clone.
#[derive(Clone)]
enum Objects {
    /// The state of a data directory that no process uses.
    Closed(Arc<Registry>),
    /// The state of this process, which runs it.
    Own(Arc<Registry>),
    /// A server: of a cluster, or of the process that uses the data directory.
    Served(Remote),
}

impl Place {
    pub async fn open(flags: &PlaceFlags) -> Result<Self, PlaceError> {
        let namespace = flags.namespace.clone();
        if flags.context.is_some() || flags.kubeconfig.is_some() {
            return Self::cluster(flags.context.clone(), flags.kubeconfig.clone(), namespace);
        }
        let data = match &flags.data_dir {
            Some(data) => data.clone(),
            None => up::default_data_dir().ok().filter(|data| has_state(data)).ok_or_else(|| {
                PlaceError::Usage(
                    "there is no data directory to look at: choose one with --data-dir, or a cluster with --context. \
                     tally run keeps nothing beyond the run unless it has --data-dir"
                        .to_owned(),
                )
            })?,
        };
        Ok(Self { namespace: namespace.unwrap_or_default(), ..Self::directory(data).await? })
    }

    /// A data directory, with all its namespaces.
    pub async fn directory(data: PathBuf) -> Result<Self, PlaceError> {
        let objects = Mutex::new(open_directory(&data).await?);
        Ok(Self { objects, namespace: String::new(), title: quoted(&data), data: Some(data) })
    }

    /// The data directory of this process.
    pub fn own(data: PathBuf, registry: Arc<Registry>) -> Self {
        let objects = Mutex::new(Objects::Own(registry));
        Self { objects, namespace: String::new(), title: quoted(&data), data: Some(data) }
    }

    /// A cluster that a kubeconfig describes. Nothing is sent yet.
    pub fn cluster(
        context: Option<String>,
        kubeconfig: Option<PathBuf>,
        namespace: Option<String>,
    ) -> Result<Self, PlaceError> {
        let source = connect::KubeconfigSource { kubeconfig, context };
        let unusable = |error: anyhow::Error| PlaceError::Unreadable(format!("{error:#}"));
        let access = connect::access(&source).map_err(unusable)?;
        let remote = Remote::new(connect::service(&access).map_err(unusable)?);
        let namespace = namespace.or_else(|| access.namespace().map(str::to_owned));
        Ok(Self {
            objects: Mutex::new(Objects::Served(remote)),
            data: None,
            namespace: namespace.unwrap_or_else(|| "default".to_owned()),
            title: access.server().to_string(),
        })
    }

    /// "": all namespaces.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// For messages.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// No process uses the data directory: nothing runs.
    pub fn is_idle(&self) -> bool {
        matches!(self.objects(), Objects::Closed(_))
    }

    pub fn is_cluster(&self) -> bool {
        self.data.is_none()
    }

    /// The root of the node's files.
    pub fn node(&self) -> Option<PathBuf> {
        Some(self.data.as_ref()?.join("node"))
    }

    fn objects(&self) -> Objects {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// None: no process runs here.
    pub fn remote(&self) -> Option<Remote> {
        match self.objects() {
            Objects::Closed(_) | Objects::Own(_) => None,
            Objects::Served(remote) => Some(remote),
        }
    }

    /// The server of a tally up that uses this data directory, with the rights of its kubeconfig. The socket in the directory is
    /// only for reading.
    pub fn writer(&self) -> Option<Remote> {
        let kubeconfig = Some(self.data.as_ref()?.join("kubeconfig")).filter(|file| file.exists());
        let source = connect::KubeconfigSource { kubeconfig: Some(kubeconfig?), context: None };
        if self.is_idle() {
            return None;
        }
        Some(Remote::new(connect::service(&connect::access(&source).ok()?).ok()?))
    }

    /// "" for all namespaces.
    pub async fn jobs(&self, namespace: &str) -> Result<Vec<Value>, PlaceError> {
        self.list(Call::new(Verb::List, Kind::JOB, namespace, "")).await
    }

    /// The Pods of the Job with this UID.
    pub async fn pods<T: DeserializeOwned>(&self, namespace: &str, job: &str) -> Result<Vec<T>, PlaceError> {
        let label_selector = format!("batch.kubernetes.io/controller-uid={job}");
        self.list(Call { label_selector, ..Call::new(Verb::List, Kind::POD, namespace, "") }).await
    }

    pub async fn all_pods<T: DeserializeOwned>(&self, namespace: &str) -> Result<Vec<T>, PlaceError> {
        self.list(Call::new(Verb::List, Kind::POD, namespace, "")).await
    }

    /// All objects of a kind. "" for all namespaces.
    pub async fn all(&self, kind: Kind, namespace: &str) -> Result<Vec<Value>, PlaceError> {
        self.list(Call::new(Verb::List, kind, namespace, "")).await
    }

    /// The objects of a kind with these labels, in all namespaces.
    pub async fn labelled(&self, kind: Kind, selector: &str) -> Result<Vec<Value>, PlaceError> {
        let label_selector = selector.to_owned();
        self.list(Call { label_selector, ..Call::new(Verb::List, kind, "", "") }).await
    }

    /// One object. None: there is none.
    pub async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Option<Value>, PlaceError> {
        let why = match self.call(&Call::new(Verb::Get, kind, namespace, name)).await? {
            Reply::Done(object) => return Ok(serde_json::from_slice(&object).ok()),
            reply if reply.is_not_found() => return Ok(None),
            Reply::Refused(refusal) => refusal.message,
            _ => "there was no answer".to_owned(),
        };
        Err(PlaceError::Unreadable(format!("cannot read {} {name:?} in {}: {why}", kind.kind, self.title)))
    }

    /// Whether a controller of this name runs in the process that serves the API. None: the server does not say, as
    /// other servers than Tally.
    pub async fn runs_controller(&self, name: &str) -> Option<bool> {
        if matches!(self.objects(), Objects::Own(_)) {
            // `tally run`, which runs Jobs.
            return Some(name == "job");
        }
        let request = request::plain(Method::GET, "/readyz?verbose", Bytes::new()).ok()?;
        let answer = self.remote()?.ask(request).await.ok()?;
        let text = String::from_utf8_lossy(&answer.body);
        let is_told = |check: &str| text.lines().any(|line| line == format!("[+]{check} ok"));
        is_told("controllers").then(|| is_told(&format!("controllers/{name}")))
    }

    /// Carries out a request. A cluster that does not accept it for now is asked again.
    pub async fn call(&self, call: &Call) -> Result<Reply, PlaceError> {
        let objects = self.objects();
        let mut reply = reply(&objects, call, if self.is_cluster() { ATTEMPTS } else { 1 }).await;
        if matches!(objects, Objects::Own(_)) {
            return Ok(reply);
        }
        // The process that had the directory may have ended since, and another one may have started.
        for _ in 0..REOPENED_AT_MOST {
            let (Some(data), Reply::Unknown | Reply::Refused(Refusal { code: 503, .. })) = (&self.data, &reply) else {
                break;
            };
            let objects = open_directory(data).await?;
            *self.objects.lock().unwrap_or_else(PoisonError::into_inner) = objects.clone();
            reply = self::reply(&objects, call, 1).await;
        }
        Ok(reply)
    }

    /// An object that cannot be decoded is left out.
    async fn list<T: DeserializeOwned>(&self, call: Call) -> Result<Vec<T>, PlaceError> {
        let what = call.kind.plural;
        let why = match self.call(&call).await? {
            Reply::Listed { items, .. } => {
                return Ok(items.iter().filter_map(|item| item.read().ok()).collect());
            }
            Reply::Refused(refusal) => refusal.message,
            _ => "there was no answer".to_owned(),
        };
        Err(PlaceError::Unreadable(format!("cannot list {what} in {}: {why}", self.title)))
    }

    /// The records of a Job, by its UID.
    pub fn records(&self, job: &str) -> Result<Option<JobRecords>, PlaceError> {
        let Some(root) = self.node() else { return Ok(None) };
        attempts::read(&root, job).map_err(|error| self.unreadable(&error))
    }

    /// The records of all Jobs, those that were written last at the end.
    pub fn all_records(&self) -> Result<Vec<JobRecords>, PlaceError> {
        let Some(root) = self.node() else { return Ok(Vec::new()) };
        let jobs = attempts::jobs(&root).map_err(|error| self.unreadable(&error))?;
        let mut all = Vec::new();
        for job in jobs {
            all.extend(self.records(&job.uid)?);
        }
        Ok(all)
    }

    fn unreadable(&self, error: &std::io::Error) -> PlaceError {
        PlaceError::Unreadable(format!("cannot read the records of attempts in {}: {error}", self.title))
    }

    pub fn dropped(&self) -> DroppedRecords {
        self.node().map(|root| attempts::dropped(&root)).unwrap_or_default()
    }
}

async fn reply(objects: &Objects, call: &Call, attempts: u32) -> Reply {
    let remote = match objects {
        Objects::Closed(registry) | Objects::Own(registry) => return tally_embedded::perform(registry, call).await,
        Objects::Served(remote) => remote,
    };
    let mut attempt = 1;
    loop {
        let response = remote.call(call).await;
        let (Some(wait), true) = (response.retry_after, attempt < attempts) else { return response.reply };
        attempt += 1;
        tokio::time::sleep(wait.min(LONGEST_WAIT)).await;
    }
}

fn has_state(data: &Path) -> bool {
    data.join("store/head").exists()
}

async fn open_directory(data: &Path) -> Result<Objects, PlaceError> {
    let name = quoted(data);
    // That of a run that keeps nothing has no store.
    if let Some(remote) = local_api::connect(data).await {
        return Ok(Objects::Served(remote));
    }
    if !has_state(data) {
        let why = if data.exists() { "has no state of tally" } else { "does not exist" };
        return Err(PlaceError::Unreadable(format!(
            "{name} {why}. tally run keeps nothing beyond the run unless it has --data-dir"
        )));
    }
    let until = Instant::now() + SERVED_WITHIN;
    loop {
        if let Some(remote) = local_api::connect(data).await {
            return Ok(Objects::Served(remote));
        }
        match Store::open_to_read(&data.join("store"), StoreOptions::default()) {
            Ok(store) => {
                // Everything is in memory: others may have the directory.
                store.close();
                return Ok(Objects::Closed(Arc::new(Registry::new(store, Box::new(SystemEnv)))));
            }
            Err(OpenError::Held { .. }) if Instant::now() < until => {}
            Err(OpenError::Held { pid, .. }) => {
                let holder = pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
                return Err(PlaceError::Unreadable(format!(
                    "{holder} uses {name} and does not answer on its socket, api.sock: it is stopping, or is of an \
                     earlier version. Try again, or when it has ended"
                )));
            }
            Err(error) => return Err(PlaceError::Unreadable(format!("{:#}", anyhow::Error::from(error)))),
        }
        tokio::time::sleep(LOOK_AGAIN_AFTER).await;
    }
}
