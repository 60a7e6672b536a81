//! Every version of every object, as bytes: the streams of controllers are served from it, and the judge of the cluster
//! looks up past states in it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use compact_str::CompactString;
use serde_json::{Value, json};
use tally_core::ids::Revision;
use tally_runtime::controller::Kind;
use tally_store::{Event, Watcher};

use crate::api::Actor;

/// An object as it was from one revision on.
#[derive(Debug)]
pub struct Version {
    pub at: Revision,
    pub(crate) namespace: CompactString,
    pub(crate) name: CompactString,
    pub bytes: Bytes,
    pub gone: bool,
    /// Decoded when first needed: most versions are only passed on.
    object: OnceLock<Value>,
    metadata: OnceLock<Bytes>,
}

/// One committed write.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) plural: CompactString,
    pub(crate) before: Option<Arc<Version>>,
    pub(crate) after: Arc<Version>,
    pub(crate) actor: Actor,
}

pub type ObjectName = (CompactString, CompactString);

pub struct Archive {
    watcher: Watcher,
    logs: BTreeMap<CompactString, Log>,
    /// Writes committed since the judge last looked, if there is a judge.
    pub(crate) written: Option<Vec<Written>>,
}

#[derive(Default)]
struct Log {
    versions: Vec<Arc<Version>>,
    newest: BTreeMap<ObjectName, Arc<Version>>,
}

impl Version {
    fn of(event: &Event, namespace: &str, name: &str) -> Self {
        Self {
            at: Revision(event.revision),
            namespace: namespace.into(),
            name: name.into(),
            bytes: event.entry.value.clone(),
            gone: event.deleted,
            object: OnceLock::new(),
            metadata: OnceLock::new(),
        }
    }

    pub(crate) fn object(&self) -> &Value {
        self.object.get_or_init(|| match serde_json::from_slice(&self.bytes) {
            Ok(object) => object,
            Err(error) => unreachable!("the registry stored what is no JSON: {error}"),
        })
    }

    /// For streams that need only the metadata.
    pub(crate) fn metadata(&self) -> Bytes {
        self.metadata.get_or_init(|| json!({"metadata": self.object()["metadata"]}).to_string().into()).clone()
    }

    pub(crate) fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    pub(crate) fn text(&self, pointer: &str) -> &str {
        self.object().pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn deleting(&self) -> bool {
        !self.text("/metadata/deletionTimestamp").is_empty()
    }

    pub(crate) fn has_finalizer(&self, name: &str) -> bool {
        self.list("/metadata/finalizers").iter().any(|finalizer| finalizer == name)
    }

    pub(crate) fn list(&self, pointer: &str) -> &[Value] {
        self.object().pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn owners(&self) -> &[Value] {
        self.list("/metadata/ownerReferences")
    }

    /// For a Pod.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.text("/status/phase"), "Succeeded" | "Failed")
    }
}

impl Archive {
    pub(crate) fn new(watcher: Watcher) -> Self {
        Self { watcher, logs: BTreeMap::new(), written: None }
    }

    /// Adds what has been committed since the last call.
    pub(crate) fn drain(&mut self, actor: Actor) {
        let batch = match self.watcher.take(usize::MAX) {
            Ok(batch) => batch,
            Err(too_old) => unreachable!("read after every write: {too_old}"),
        };
        for event in batch.events {
            // plural/namespace/name, or plural/name.
            let (plural, place) = event.entry.key.split_once('/').unwrap_or_default();
            let (namespace, name) = place.split_once('/').unwrap_or(("", place));
            let after = Arc::new(Version::of(&event, namespace, name));
            if !self.logs.contains_key(plural) {
                self.logs.insert(plural.into(), Log::default());
            }
            let Some(log) = self.logs.get_mut(plural) else { continue };
            log.versions.push(after.clone());
            let place = (after.namespace.clone(), after.name.clone());
            let before = if after.gone { log.newest.remove(&place) } else { log.newest.insert(place, after.clone()) };
            if let Some(written) = &mut self.written {
                written.push(Written { plural: plural.into(), before, after, actor });
            }
        }
    }

    pub fn log(&self, kind: &Kind) -> &[Arc<Version>] {
        self.logs.get(kind.plural).map(|log| log.versions.as_slice()).unwrap_or_default()
    }

    /// The current objects, by namespace and name.
    pub(crate) fn all(&self, kind: &Kind) -> impl Iterator<Item = &Arc<Version>> {
        self.logs.get(kind.plural).into_iter().flat_map(|log| log.newest.values())
    }

    pub(crate) fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Option<&Arc<Version>> {
        self.logs.get(kind.plural)?.newest.get(&(namespace.into(), name.into()))
    }

    /// All current objects.
    pub(crate) fn everything(&self) -> impl Iterator<Item = (&CompactString, &Arc<Version>)> {
        self.logs.iter().flat_map(|(plural, log)| log.newest.values().map(move |version| (plural, version)))
    }

    /// The objects that existed at a revision, in the order of a list.
    pub fn state_at(&self, kind: &Kind, at: Revision) -> BTreeMap<ObjectName, Arc<Version>> {
        let mut state = BTreeMap::new();
        for version in self.log(kind).iter().take_while(|version| version.at <= at) {
            let place = (version.namespace.clone(), version.name.clone());
            if version.gone {
                state.remove(&place);
            } else {
                state.insert(place, version.clone());
            }
        }
        state
    }

    /// One object as it was at a revision.
    pub(crate) fn get_at(&self, kind: &Kind, namespace: &str, name: &str, at: Revision) -> Option<&Arc<Version>> {
        let seen = self.log(kind).iter().take_while(|version| version.at <= at);
        seen.filter(|version| version.namespace == namespace && version.name == name)
            .last()
            .filter(|version| !version.gone)
    }
}
