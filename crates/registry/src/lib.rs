//! The verbs create, get, list, watch, update, patch and delete, on objects that follow the rules of `tally-api` and
//! are stored in `tally-store`. There is no HTTP here: the server, the simulator and embedded controllers all call the
//! registry.
//!
//! Every write is conditional on the revision its decision was made from (`Expect`), and is decided again if another
//! write came first: there is no get-then-put.

mod budgets;
mod continuation;
mod create;
mod decoded;
mod delete;
mod expiry;
mod limits;
mod pod_security;
mod pods;
mod quotas;
mod read;
mod start;
mod text;
mod update;
mod view;
mod watch;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tally_api::kinds::{Resource, Subresource};
use tally_api::pod_security::PodIds;
use tally_api::status_error::StatusError;
use tally_core::gates::FeatureGates;
use tally_core::time::Timestamp;
use tally_store::backend::BackendError;
use tally_store::backup::{Backup, BackupFile};
use tally_store::{Body, Store, WriteError};
pub use tally_value::Object;
use tally_value::Value;

use decoded::DecodedObjects;
pub use expiry::EVENT_TTL;
use quotas::Quotas;
pub use text::body as stored_form;
pub use watch::{WatchEvent, WatchStream};

/// How often a write is decided again because another came first, before the client gets an error and must retry later.
/// In each round another write has succeeded, so this limit is reached only on an object that is written all the time.
const MOST_ROUNDS: usize = 64;

/// The longest text of an object that clients may create. The store accepts a little more, so that the largest object
/// can still be marked as deleted.
pub const MAX_OBJECT: usize = 3 * 1024 * 1024;

/// The object or collection that a request addresses.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub resource: &'static Resource,
    pub subresource: Option<&'static Subresource>,
    /// "" for objects without a namespace, and for reads across all namespaces.
    pub namespace: &'a str,
    /// "" for collections.
    pub name: &'a str,
}

pub struct Written {
    pub object: Object,
    /// `apiVersion` and `kind` of the object, if they differ from the resource's: a binding is answered with a Status.
    pub kind: Option<(&'static str, &'static str)>,
    /// The object did not exist before.
    pub created: bool,
    pub warnings: Vec<String>,
}

pub enum Deleted {
    /// The object stays for now (grace period, finalizers), or its kind is answered with the object (Pods).
    Object(Object),
    /// The object is removed. The UID it had.
    Status { uid: String },
}

pub struct Listing {
    pub items: Vec<Object>,
    pub revision: u64,
    /// Empty for the last page.
    pub continue_token: String,
    pub remaining: Option<usize>,
}

/// The source of times and identifiers: the machine's clock and random numbers, or those of a simulation.
pub trait Env: Send + Sync {
    fn now(&self) -> Timestamp;
    fn new_uid(&self) -> String;
    /// A number below `limit`, for the suffixes of generated names.
    fn random(&self, limit: u32) -> u32;
}

/// The source of service account tokens.
pub trait TokenIssuer: Send + Sync {
    /// Answers a TokenRequest for the service account of this namespace and name: the request with its status.
    fn issue(&self, registry: &Registry, namespace: &str, name: &str, request: Value) -> Result<Value>;
}

pub struct Registry {
    store: Store,
    decoded: DecodedObjects,
    quotas: Quotas,
    env: Box<dyn Env>,
    tokens: OnceLock<Arc<dyn TokenIssuer>>,
    /// There is a node that gives claims their volumes.
    provisions_claims: AtomicBool,
    gates: FeatureGates,
    pod_ids: PodIds,
}

/// What is known about the store, for metrics.
pub struct StoreStats {
    pub objects: usize,
    /// A write or sync has failed, and no writes are accepted: for now, or until a restart.
    pub poisoned: bool,
    pub revision: u64,
    /// From this revision on, every watch can start.
    pub compacted: u64,
}

type Result<T> = std::result::Result<T, StatusError>;

impl Registry {
    pub fn new(store: Store, env: Box<dyn Env>) -> Self {
        Self {
            store,
            decoded: DecodedObjects::default(),
            quotas: Quotas::default(),
            env,
            tokens: OnceLock::new(),
            provisions_claims: AtomicBool::new(false),
            gates: FeatureGates::default(),
            pod_ids: PodIds::default(),
        }
    }

    /// The feature gates that decide which fields are stored. All are on unless this is called.
    #[must_use]
    pub fn with_gates(self, gates: FeatureGates) -> Self {
        Self { gates, ..self }
    }

    /// The users and groups of the machine that Pods may name where a Pod security level applies. None unless this is
    /// called.
    #[must_use]
    pub fn with_pod_ids(self, pod_ids: PodIds) -> Self {
        Self { pod_ids, ..self }
    }

    /// Sets the source of service account tokens. Only the first call has an effect.
    pub fn add_tokens(&self, issuer: Arc<dyn TokenIssuer>) {
        let _ = self.tokens.set(issuer);
    }

    /// A node gives claims their volumes from now on: clients that create one are not warned.
    pub fn add_provisioner(&self) {
        self.provisions_claims.store(true, Ordering::Relaxed);
    }

    /// The time of the registry's environment. Everything that answers for it uses this clock.
    pub fn now(&self) -> Timestamp {
        self.env.now()
    }

    /// The revision of the newest write.
    pub fn revision(&self) -> u64 {
        self.store.revision()
    }

    /// A backup of all objects at the newest revision, and of these files.
    pub fn backup(&self, files: Vec<BackupFile>) -> Backup {
        self.store.backup(files, self.now().seconds())
    }

    /// Why the store accepts no writes, if a write or sync has failed: for now, if the error is recoverable, or until a
    /// restart.
    pub fn poisoned(&self) -> Option<Arc<BackendError>> {
        self.store.poisoned()
    }

    pub fn stats(&self) -> StoreStats {
        let store = &self.store;
        StoreStats {
            objects: store.len(),
            poisoned: store.poisoned().is_some(),
            revision: store.revision(),
            compacted: store.compacted(),
        }
    }

    /// The number of objects of each resource that has some, by its full name, such as `jobs.batch`.
    pub fn object_counts(&self) -> Vec<(String, usize)> {
        let mut counts = BTreeMap::new();
        for resource in tally_api::catalog::resources() {
            let count = self.store.count(resource.storage);
            if count > 0 {
                // Events are served by two groups and stored once.
                counts.entry(resource.storage).or_insert_with(|| (resource.qualified(), count));
            }
        }
        counts.into_values().collect()
    }

    /// Stops the store: writes are refused from now on, and those that were accepted are on disk when this returns.
    pub fn close(&self) {
        self.store.close();
    }
}

impl<'a> Target<'a> {
    pub fn new(resource: &'static Resource, namespace: &'a str, name: &'a str) -> Self {
        Self { resource, subresource: None, namespace, name }
    }

    /// The key of the object in the store.
    fn key(&self) -> String {
        key(self.resource, self.namespace, self.name)
    }

    /// The common prefix of the keys of the collection.
    fn prefix(&self) -> String {
        if self.namespace.is_empty() {
            format!("{}/", self.resource.storage)
        } else {
            format!("{}/{}/", self.resource.storage, self.namespace)
        }
    }

    pub(crate) fn is_subresource(&self, name: &str) -> bool {
        self.subresource.is_some_and(|subresource| subresource.name == name)
    }
}

fn key(resource: &Resource, namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        format!("{}/{name}", resource.storage)
    } else {
        format!("{}/{namespace}/{name}", resource.storage)
    }
}

fn check_size(body: &Body) -> Result<()> {
    let size = body.bytes.len();
    if size > MAX_OBJECT { Err(refused(WriteError::TooLarge { size, limit: MAX_OBJECT })) } else { Ok(()) }
}

/// The status error for a write that the store refused, other than because another write came first.
fn refused(error: WriteError) -> StatusError {
    match error {
        WriteError::Overloaded => {
            let mut failure =
                StatusError::new(429, "TooManyRequests", "the store has too many writes waiting, try again later");
            failure.details = Some(tally_api::status_error::Details { retry_after_seconds: 1, ..Default::default() });
            failure
        }
        WriteError::TooLarge { .. } => StatusError::new(413, "RequestEntityTooLarge", error.to_string()),
        WriteError::Closed => StatusError::new(503, "ServiceUnavailable", "the server is stopping"),
        other => StatusError::internal(other.to_string()),
    }
}
