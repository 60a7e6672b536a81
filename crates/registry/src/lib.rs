//! The verbs: create, get, list, watch, update, patch and delete, on objects held to the rules of `tally-api` and kept
//! in `tally-store`. No HTTP here; the server, the simulator and embedded controllers all come in through this door.

use bytes::Bytes;
use tally_api::failure::Failure;
use tally_api::kinds::{Resource, Subresource};
use tally_api::options::{DeleteOptions, Format, ListOptions, PatchKind, ReadAt, WatchOptions, WriteOptions};
use tally_core::time::Timestamp;
use tally_store::Store;

/// What a request is about.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub resource: &'static Resource,
    pub subresource: Option<&'static Subresource>,
    /// "" for objects without a namespace, and for reads across all namespaces.
    pub namespace: &'a str,
    /// "" for collections.
    pub name: &'a str,
}

/// An object as it is stored: JSON text without `apiVersion` and `kind`, `resourceVersion` in place.
#[derive(Clone, Debug)]
pub struct Object {
    pub bytes: Bytes,
}

pub struct Written {
    pub object: Object,
    /// The object did not exist before.
    pub created: bool,
    pub warnings: Vec<String>,
}

pub enum Deleted {
    /// It stays for now (grace, finalizers), or it is a kind that answers with the object (Pods).
    Object(Object),
    /// Gone. The uid of what was there.
    Status { uid: String },
}

pub struct DeleteAnswer {
    pub deleted: Deleted,
    pub warnings: Vec<String>,
}

pub struct Listing {
    pub items: Vec<Object>,
    pub revision: u64,
    /// Empty: this was the last page.
    pub continue_token: String,
    pub remaining: Option<usize>,
}

pub enum WatchEvent {
    Added(Object),
    Modified(Object),
    Deleted(Object),
    /// The stream has reached this revision. `initial_events_end`: the state asked for is complete.
    Bookmark { revision: u64, initial_events_end: bool },
    /// The last event of a stream: why it ended.
    Failed(Failure),
}

/// A watch under way. Dropping it ends it.
pub struct WatchStream {}

impl WatchStream {
    /// The next event; None when the time asked for is over. Safe to cancel.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        None
    }
}

/// Where instants and identifiers come from: the machine's clock and chance, or a simulation's.
pub trait World: Send + Sync {
    fn now(&self) -> Timestamp;
    fn new_uid(&self) -> String;
    /// Below `limit`, for the suffixes of generated names.
    fn random(&self, limit: u32) -> u32;
}

pub struct Registry {
    pub store: Store,
    pub world: Box<dyn World>,
}

type Result<T> = std::result::Result<T, Failure>;

impl Registry {
    pub fn new(store: Store, world: Box<dyn World>) -> Self {
        Self { store, world }
    }

    /// Creates the objects a cluster starts with, where they are missing.
    pub async fn begin(&self) -> Result<()> {
        Ok(())
    }

    pub async fn create(&self, _: Target<'_>, _body: &[u8], _: Format, _: &WriteOptions) -> Result<Written> {
        Err(Failure::internal("not built yet"))
    }

    pub fn get(&self, _: Target<'_>, _: ReadAt) -> Result<Object> {
        Err(Failure::internal("not built yet"))
    }

    pub fn list(&self, _: Target<'_>, _: &ListOptions) -> Result<Listing> {
        Err(Failure::internal("not built yet"))
    }

    pub fn watch(&self, _: Target<'_>, _: &WatchOptions) -> Result<WatchStream> {
        Err(Failure::internal("not built yet"))
    }

    pub async fn update(&self, _: Target<'_>, _body: &[u8], _: Format, _: &WriteOptions) -> Result<Written> {
        Err(Failure::internal("not built yet"))
    }

    pub async fn patch(&self, _: Target<'_>, _body: &[u8], _: PatchKind, _: &WriteOptions) -> Result<Written> {
        Err(Failure::internal("not built yet"))
    }

    pub async fn delete(&self, _: Target<'_>, _: &DeleteOptions) -> Result<DeleteAnswer> {
        Err(Failure::internal("not built yet"))
    }

    /// The objects as they were before, and warnings.
    pub async fn delete_collection(
        &self,
        _: Target<'_>,
        _: &ListOptions,
        _: &DeleteOptions,
    ) -> Result<(Listing, Vec<String>)> {
        Err(Failure::internal("not built yet"))
    }
}
