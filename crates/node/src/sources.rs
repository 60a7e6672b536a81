//! The ConfigMaps, Secrets and claims that a Pod refers to, the tokens that its volumes contain, and their content.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use compact_str::CompactString;
use serde_json::{Value, json};
use tally_core::time::Timestamp;
use tally_runtime::controller::{Call, Kind, Verb};

use crate::pod::{Pod, TokenProjection};

/// A token of longer validity is replaced after this many seconds.
const DAY: i64 = 24 * 3600;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    ConfigMap(CompactString),
    Secret(CompactString),
    Token(TokenSource),
    /// A claim for storage.
    Claim(CompactString),
}

/// A token of a service account. It is requested, not read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenSource {
    pub account: CompactString,
    /// "" for the API server.
    pub audience: CompactString,
    pub seconds: i64,
}

impl TokenSource {
    pub fn of(pod: &Pod, projection: &TokenProjection) -> Self {
        let account = match pod.spec.service_account_name.as_str() {
            "" => "default".into(),
            named => named.into(),
        };
        Self { account, audience: projection.audience.clone(), seconds: projection.expiration_seconds }
    }

    /// A new token that is valid while the Pod exists.
    fn request(&self, pod: &Pod) -> Call {
        let metadata = &pod.metadata;
        let audiences: Vec<&str> = [self.audience.as_str()].into_iter().filter(|name| !name.is_empty()).collect();
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": metadata.name, "uid": metadata.uid.to_string()});
        let spec = json!({"audiences": audiences, "expirationSeconds": self.seconds, "boundObjectRef": bound});
        let call = Call::new(Verb::Create, Kind::SERVICE_ACCOUNT, &metadata.namespace, &self.account);
        call.subresource("token").body(&json!({"spec": spec}))
    }

    /// Whether less than a fifth of the token's time is left, or it is a day old.
    fn is_due(&self, issued: &Value, now: Timestamp) -> bool {
        let expires = issued.pointer("/status/expirationTimestamp").and_then(Value::as_str);
        let Some(expires) = expires.and_then(|text| Timestamp::parse(text).ok()) else { return true };
        let left = expires.seconds().saturating_sub(now.seconds());
        left < self.seconds / 5 || self.seconds.saturating_sub(left) > DAY
    }
}

impl Source {
    pub fn kind(&self) -> Kind {
        match self {
            Self::ConfigMap(_) => Kind::CONFIG_MAP,
            Self::Secret(_) => Kind::SECRET,
            Self::Token(_) => Kind::SERVICE_ACCOUNT,
            Self::Claim(_) => Kind::PERSISTENT_VOLUME_CLAIM,
        }
    }

    pub fn name(&self) -> &CompactString {
        let (Self::ConfigMap(name)
        | Self::Secret(name)
        | Self::Claim(name)
        | Self::Token(TokenSource { account: name, .. })) = self;
        name
    }

    /// The request with which it is read.
    pub fn request(&self, pod: &Pod) -> Call {
        match self {
            Self::Token(token) => token.request(pod),
            _ => Call::new(Verb::Get, self.kind(), &pod.metadata.namespace, self.name()),
        }
    }

    /// Whether it must be read again. What is only read may have changed; a token is valid for its time.
    pub fn is_due(&self, known: Option<&Value>, now: Timestamp) -> bool {
        match (self, known) {
            (Self::Token(token), Some(issued)) => token.is_due(issued, now),
            _ => true,
        }
    }

    /// As in `configmap "settings" not found`.
    pub fn not_found(&self) -> String {
        let kind = match self {
            Self::ConfigMap(_) => "configmap",
            Self::Secret(_) => "secret",
            Self::Claim(_) => "persistentvolumeclaim",
            Self::Token(token) => {
                return format!("the API server issues no token for serviceaccount {:?}", token.account);
            }
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
            named.extend(volume.persistent_volume_claim.iter().map(|it| Self::Claim(it.claim_name.clone())));
            for from in volume.projected.iter().flat_map(|projected| &projected.sources) {
                named.extend(from.config_map.iter().map(|it| Self::ConfigMap(it.name.clone())));
                named.extend(from.secret.iter().map(|it| Self::Secret(it.secret_name.clone())));
                let token = from.service_account_token.iter();
                named.extend(token.map(|it| Self::Token(TokenSource::of(pod, it))));
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

    /// None: it does not exist.
    pub fn claim(&self, name: CompactString) -> Option<&Value> {
        self.0.get(&Source::Claim(name))?.as_ref()
    }

    /// None: it was not issued.
    pub fn token(&self, token: TokenSource) -> Option<&str> {
        self.0.get(&Source::Token(token))?.as_ref()?.pointer("/status/token")?.as_str()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_requested_for_its_pod_and_again_before_it_expires() {
        let pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
            "spec": {"serviceAccountName": "sa", "containers": [], "volumes": [{"name": "v", "projected": {"sources": [
                {"serviceAccountToken": {"path": "t", "audience": "a", "expirationSeconds": 1000}}]}}]}});
        let pod = Pod::read(&pod.to_string().into()).unwrap();
        let wanted = Source::of(&pod, None);
        let source = wanted.first().unwrap();
        let call = source.request(&pod);
        assert_eq!((call.verb, call.name.as_str(), call.subresource), (Verb::Create, "sa", "token"));
        let body: Value = serde_json::from_slice(&call.body.text()).unwrap();
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
        assert_eq!(body["spec"], json!({"audiences": ["a"], "expirationSeconds": 1000, "boundObjectRef": bound}));

        let at = Timestamp::from_seconds;
        let until = |seconds: i64| json!({"status": {"expirationTimestamp": at(seconds).to_string()}});
        for (known, now, due) in [
            (None, 0, true),
            (Some(until(1000)), 0, false),
            (Some(until(1000)), 800, false),
            (Some(until(1000)), 801, true),
            (Some(until(1000)), 2000, true),
            (Some(json!({})), 0, true),
        ] {
            assert_eq!(source.is_due(known.as_ref(), at(now)), due, "{known:?} {now}");
        }
        let long = Source::Token(TokenSource { account: "sa".into(), audience: "".into(), seconds: 30 * DAY });
        assert!(!long.is_due(Some(&until(30 * DAY)), at(DAY)));
        assert!(long.is_due(Some(&until(30 * DAY)), at(DAY + 1)));
    }
}
