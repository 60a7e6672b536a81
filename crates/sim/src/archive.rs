//! Every version of every object, as bytes: what the streams of controllers behind bytes are served from, and what the
//! judge of the cluster looks things up in.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use compact_str::CompactString;
use serde_json::{Value, json};
use tally_controllers::controller::Kind;
use tally_core::ids::Revision;
use tally_store::{Event, Watcher};

use crate::api::Actor;

/// An object as it was from one revision on.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) at: Revision,
    pub(crate) namespace: CompactString,
    pub(crate) name: CompactString,
    pub(crate) uid: CompactString,
    pub(crate) bytes: Bytes,
    /// For streams that want no more.
    pub(crate) metadata: Bytes,
    pub(crate) object: Value,
    pub(crate) gone: bool,
}

/// One committed write.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) plural: CompactString,
    pub(crate) before: Option<Arc<Version>>,
    pub(crate) after: Arc<Version>,
    pub(crate) actor: Actor,
}

type Place = (CompactString, CompactString);

pub(crate) struct Archive {
    watcher: Watcher,
    logs: BTreeMap<CompactString, Log>,
    /// Committed since the judge last looked.
    pub(crate) written: Vec<Written>,
}

#[derive(Default)]
struct Log {
    versions: Vec<Arc<Version>>,
    newest: BTreeMap<Place, Arc<Version>>,
}

impl Version {
    fn of(event: &Event) -> Self {
        let object: Value = match serde_json::from_slice(&event.entry.value) {
            Ok(object) => object,
            Err(error) => unreachable!("the registry stored what is no JSON: {error}"),
        };
        let metadata = &object["metadata"];
        let text = |name: &str| metadata[name].as_str().unwrap_or_default().into();
        Self {
            at: Revision(event.revision),
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            bytes: event.entry.value.clone(),
            metadata: json!({"metadata": metadata}).to_string().into(),
            gone: event.deleted,
            object,
        }
    }

    pub(crate) fn text(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn deleting(&self) -> bool {
        !self.text("/metadata/deletionTimestamp").is_empty()
    }

    pub(crate) fn has_finalizer(&self, name: &str) -> bool {
        self.list("/metadata/finalizers").iter().any(|finalizer| finalizer == name)
    }

    pub(crate) fn list(&self, pointer: &str) -> &[Value] {
        self.object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn owners(&self) -> &[Value] {
        self.list("/metadata/ownerReferences")
    }

    /// Of a Pod.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.text("/status/phase"), "Succeeded" | "Failed")
    }
}

impl Archive {
    pub(crate) fn new(watcher: Watcher) -> Self {
        Self { watcher, logs: BTreeMap::new(), written: Vec::new() }
    }

    /// Takes in what has been committed since.
    pub(crate) fn drain(&mut self, actor: Actor) {
        let batch = match self.watcher.take(usize::MAX) {
            Ok(batch) => batch,
            Err(too_old) => unreachable!("read after every write: {too_old}"),
        };
        for event in batch.events {
            let plural: CompactString = event.entry.key.split('/').next().unwrap_or_default().into();
            let after = Arc::new(Version::of(&event));
            let log = self.logs.entry(plural.clone()).or_default();
            log.versions.push(after.clone());
            let place = (after.namespace.clone(), after.name.clone());
            let before = if after.gone { log.newest.remove(&place) } else { log.newest.insert(place, after.clone()) };
            self.written.push(Written { plural, before, after, actor });
        }
    }

    pub(crate) fn log(&self, kind: &Kind) -> &[Arc<Version>] {
        self.logs.get(kind.plural).map(|log| log.versions.as_slice()).unwrap_or_default()
    }

    /// The objects there are now, by namespace and name.
    pub(crate) fn all(&self, kind: &Kind) -> impl Iterator<Item = &Arc<Version>> {
        self.logs.get(kind.plural).into_iter().flat_map(|log| log.newest.values())
    }

    pub(crate) fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Option<&Arc<Version>> {
        self.logs.get(kind.plural)?.newest.get(&(namespace.into(), name.into()))
    }

    /// Everything there is now.
    pub(crate) fn everything(&self) -> impl Iterator<Item = (&CompactString, &Arc<Version>)> {
        self.logs.iter().flat_map(|(plural, log)| log.newest.values().map(move |version| (plural, version)))
    }

    /// The objects there were at a revision, in the order of a list.
    pub(crate) fn state_at(&self, kind: &Kind, at: Revision) -> BTreeMap<Place, Arc<Version>> {
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
