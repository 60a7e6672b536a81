//! What can be read of a Pod whose view cannot be made: which Pod it is, its node, its phase, its deletion, and the types of
//! its conditions. A time that cannot be read is one long ago.
//!
//! The Job rules must not use this: what a Pod counts for, and when it finished, is left out.

use super::*;

#[derive(Deserialize)]
struct PartialPod<'a> {
    #[serde(borrow)]
    metadata: PartialMeta<'a>,
    #[serde(borrow, default, deserialize_with = "null_default")]
    spec: PartialSpec<'a>,
    #[serde(borrow, default, deserialize_with = "null_default")]
    status: PartialStatus<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PartialMeta<'a> {
    uid: Option<PodUid>,
    #[serde(borrow)]
    namespace: Option<Text<'a>>,
    name: Option<Text<'a>>,
    resource_version: Option<Text<'a>>,
    #[serde(deserialize_with = "if_usual")]
    generation: Option<i64>,
    creation_timestamp: Option<Text<'a>>,
    deletion_timestamp: Option<Text<'a>>,
    deletion_grace_period_seconds: Option<i64>,
    #[serde(borrow, deserialize_with = "if_usual")]
    annotations: Option<WireAnnotations<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PartialSpec<'a> {
    #[serde(borrow)]
    node_name: Option<Text<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PartialStatus<'a> {
    #[serde(borrow)]
    phase: Option<Text<'a>>,
    reason: Option<Text<'a>>,
    #[serde(deserialize_with = "null_default")]
    conditions: Vec<PartialCondition<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PartialCondition<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<Text<'a>>,
    status: Option<Text<'a>>,
}

pub(super) fn read(object: &Object) -> Option<PodView> {
    let PartialPod { metadata, spec, status } = object.read().ok()?;
    let time = |text: Option<Text>| text.map(|text| Timestamp::parse(&text).unwrap_or_default());
    let conditions = status.conditions.into_iter();
    let pod = WirePod {
        metadata: WireMeta {
            uid: metadata.uid,
            namespace: metadata.namespace,
            name: metadata.name,
            resource_version: metadata.resource_version,
            generation: metadata.generation,
            creation_timestamp: time(metadata.creation_timestamp),
            deletion_timestamp: time(metadata.deletion_timestamp),
            deletion_grace_period_seconds: metadata.deletion_grace_period_seconds,
            annotations: metadata.annotations.unwrap_or_default(),
            ..WireMeta::default()
        },
        spec: WireSpec { node_name: spec.node_name, ..WireSpec::default() },
        status: WireStatus {
            phase: status.phase,
            reason: status.reason,
            conditions: conditions
                .map(|PartialCondition { kind, status }| WireCondition { kind, status, ..WireCondition::default() })
                .collect(),
            ..WireStatus::default()
        },
    };
    pod.into_view().ok()
}
