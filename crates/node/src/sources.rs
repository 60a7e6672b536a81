//! The ConfigMaps and Secrets that a Pod refers to, and their content.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use compact_str::CompactString;
use serde_json::Value;
use tally_runtime::controller::Kind;

use crate::pod::Pod;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    ConfigMap(CompactString),
    Secret(CompactString),
}

impl Source {
    pub fn kind(&self) -> Kind {
        match self {
            Self::ConfigMap(_) => Kind::CONFIG_MAP,
            Self::Secret(_) => Kind::SECRET,
        }
    }

    pub fn name(&self) -> &CompactString {
        let (Self::ConfigMap(name) | Self::Secret(name)) = self;
        name
    }

    /// As in `configmap "settings" not found`.
    pub fn not_found(&self) -> String {
        let kind = match self {
            Self::ConfigMap(_) => "configmap",
            Self::Secret(_) => "secret",
        };
        format!("{kind} {:?} not found", self.name().as_str())
    }

    /// All objects that the environment and the volumes of a Pod refer to, except those of the volume `without`.
    pub fn of(pod: &Pod, without: Option<&str>) -> BTreeSet<Self> {
        let mut named = BTreeSet::new();
        for (_, container) in pod.containers() {
            for from in &container.env_from {
                named.extend(from.config_map_ref.iter().map(|it| Self::ConfigMap(it.name.clone())));
                named.extend(from.secret_ref.iter().map(|it| Self::Secret(it.name.clone())));
            }
            for from in container.env.iter().filter_map(|variable| variable.value_from.as_ref()) {
                named.extend(from.config_map_key_ref.iter().map(|it| Self::ConfigMap(it.name.clone())));
                named.extend(from.secret_key_ref.iter().map(|it| Self::Secret(it.name.clone())));
            }
        }
        for volume in pod.spec.volumes.iter().filter(|volume| Some(volume.name.as_str()) != without) {
            named.extend(volume.config_map.iter().map(|it| Self::ConfigMap(it.name.clone())));
            named.extend(volume.secret.iter().map(|it| Self::Secret(it.secret_name.clone())));
            for from in volume.projected.iter().flat_map(|projected| &projected.sources) {
                named.extend(from.config_map.iter().map(|it| Self::ConfigMap(it.name.clone())));
                named.extend(from.secret.iter().map(|it| Self::Secret(it.secret_name.clone())));
            }
        }
        named
    }
}

/// The objects that have been read. None: the object does not exist.
#[derive(Clone, Debug, Default)]
pub struct Sources(pub BTreeMap<Source, Option<Value>>);

impl Sources {
    /// None: the object does not exist.
    pub fn get(&self, source: Source) -> Option<SourceObject<'_>> {
        let object = self.0.get(&source)?.as_ref()?;
        Some(SourceObject { object, secret: matches!(source, Source::Secret(_)) })
    }
}

/// The content of a ConfigMap or Secret.
#[derive(Clone, Copy)]
pub struct SourceObject<'a> {
    object: &'a Value,
    secret: bool,
}

impl<'a> SourceObject<'a> {
    /// Text for the environment: from a ConfigMap only `data`, not `binaryData`.
    pub fn text(&self, key: &str) -> Option<Cow<'a, str>> {
        let written = self.object.get("data")?.get(key)?.as_str()?;
        if !self.secret {
            return Some(written.into());
        }
        Some(String::from_utf8_lossy(&STANDARD.decode(written).ok()?).into_owned().into())
    }

    /// The keys of `data`, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let data = self.object.get("data").and_then(Value::as_object);
        let sorted: BTreeSet<&str> = data.into_iter().flat_map(|data| data.keys().map(String::as_str)).collect();
        sorted.into_iter()
    }

    /// All keys and their content, for a volume.
    pub fn files(&self) -> BTreeMap<&'a str, Vec<u8>> {
        let mut files = BTreeMap::new();
        let of = |field: &str| self.object.get(field).and_then(Value::as_object).into_iter().flatten();
        for (key, value) in of("data") {
            let Some(written) = value.as_str() else { continue };
            let bytes = if self.secret { STANDARD.decode(written).ok() } else { Some(written.into()) };
            files.extend(bytes.map(|bytes| (key.as_str(), bytes)));
        }
        for (key, value) in of("binaryData").filter(|_| !self.secret) {
            let bytes = value.as_str().and_then(|written| STANDARD.decode(written).ok());
            files.extend(bytes.map(|bytes| (key.as_str(), bytes)));
        }
        files
    }
}
