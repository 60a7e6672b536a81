//! The field numbers, checked with code that was generated from the definitions of Kubernetes by others (`k8s-pb`).
//!
//! Every field of every kind is set to a value that is derived from its path. What the generated code decodes is printed
//! with the names that it knows, and must have the values of these names; what it encodes again must be the object.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_pb::api::{
    apps, authentication, authorization, autoscaling, batch, coordination, core, discovery, events, networking, policy,
    rbac, scheduling,
};
use k8s_pb::apimachinery::pkg::apis::meta::v1 as meta;
use prost::Message;
use tally_api::protobuf;
use tally_api::schema::{Shape, Struct, Type, schema};
use tally_core::time::Timestamp;
use tally_value::{Map, Value, json};

/// Fields that are newer than the generated code.
const NOT_GENERATED: [&str; 5] = [
    "ListMeta.shardInfo",
    "PodSpec.schedulingGroup",
    "PodStatus.nodeAllocatableResourceClaimStatuses",
    "ResourceHealth.message",
    "VolumeMountStatus.volumeStatus",
];

/// Names of messages that JSON has inline.
const INLINE: [&str; 6] = [
    "handler",
    "localobjectreference",
    "volumesource",
    "persistentvolumesource",
    "ephemeralcontainercommon",
    "ingressrulevalue",
];

/// Two bools cannot be told apart in one object; those of a structure have different patterns in this many.
const ROUNDS: u32 = 4;

struct Made {
    round: u32,
    /// The bools, by path.
    truths: BTreeMap<String, bool>,
    /// Paths whose content is printed as bytes.
    opaque: BTreeSet<String>,
}

/// The name without its spelling: `hostIPs` and `host_i_ps`.
fn plain(name: &str) -> String {
    name.trim_start_matches("r#").replace('_', "").to_lowercase()
}

fn hash(path: &str) -> i64 {
    let hash = path
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    (hash >> 34) as i64 + 2
}

impl Made {
    fn structure(&mut self, structure: &Struct, path: &str) -> Map {
        let mut made = Map::new();
        let mut bools = 0;
        for field in structure.fields.iter().filter(|field| field.via != Some("TypeMeta")) {
            let path = if path.is_empty() { plain(field.name) } else { format!("{path}.{}", plain(field.name)) };
            if field.ty.shape == Shape::Bool {
                bools += 1;
                assert!(bools < 1 << ROUNDS, "{}", structure.name);
                self.truths.insert(path.clone(), bools >> self.round & 1 == 1);
            }
            made.insert(field.name.to_owned(), self.value(&field.ty, &path));
        }
        made
    }

    fn value(&mut self, ty: &Type, path: &str) -> Value {
        match &ty.shape {
            Shape::Text | Shape::IntOrString => path.into(),
            Shape::Int32 | Shape::Int64 => hash(path).into(),
            Shape::Float => 1.5.into(),
            Shape::Bool => self.truths[path].into(),
            Shape::Quantity => hash(path).to_string().into(),
            Shape::Time => Timestamp::from_seconds(hash(path)).to_string().into(),
            Shape::MicroTime => {
                let seconds = Timestamp::from_seconds(hash(path)).to_string();
                format!("{}.000000Z", seconds.trim_end_matches('Z')).into()
            }
            Shape::Bytes => {
                self.opaque.insert(path.to_owned());
                STANDARD.encode(path).into()
            }
            Shape::Raw => {
                self.opaque.insert(format!("{path}.raw"));
                json!({ path: {} })
            }
            Shape::List(inner) => vec![self.value(inner, path)].into(),
            Shape::Map(inner) => json!({"k": self.value(inner, path)}),
            Shape::Struct(id) => self.structure(schema().get(*id), path).into(),
        }
    }

    /// Checks every value in the text of a decoded object. Returns how many there were.
    fn check(&self, text: &str) -> usize {
        let (mut names, mut checked): (Vec<(usize, String)>, usize) = (Vec::new(), 0);
        for line in text.lines() {
            let indent = line.len() - line.trim_start().len();
            let mut rest = line.trim();
            if let Some((name, after)) = rest.split_once(": ")
                && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_' || letter == '#')
            {
                names.retain(|(at, _)| *at < indent);
                names.push((indent, plain(name)));
                rest = after;
            }
            names.retain(|(at, _)| *at <= indent);
            // The key of a map.
            rest = rest.strip_prefix("\"k\": ").unwrap_or(rest);
            let value = rest.trim_end_matches(',').trim_start_matches("Some(").trim_end_matches(')');
            let is_text = value.len() > 1 && value.starts_with('"') && value.ends_with('"');
            let is_number = value.parse::<i64>().is_ok();
            if !is_text && !is_number && value != "true" && value != "false" {
                continue;
            }
            let path: Vec<&str> =
                names.iter().map(|(_, name)| name.as_str()).filter(|name| !INLINE.contains(name)).collect();
            if self.opaque.contains(&path.join(".")) {
                continue;
            }
            let text = value.trim_matches('"');
            let is_right = |path: &[&str]| {
                let path = path.join(".");
                match text {
                    "true" | "false" => self.truths.get(&path).is_some_and(|truth| text == truth.to_string()),
                    _ => text == path || text == hash(&path).to_string(),
                }
            };
            // Some messages stand for one value.
            let is_part = match path.as_slice() {
                [.., "nanos" | "intval"] => value == "0",
                [.., "type"] => value == "1",
                [of @ .., "seconds" | "strval" | "string"] | [of @ .., "items"] => is_right(of),
                _ => false,
            };
            assert!(is_part || is_right(&path), "{} is {value}", path.join("."));
            checked += 1;
        }
        checked
    }
}

/// The values that are in the first and not the same in the second, as `Struct.field`.
fn differences(structure: &Struct, first: &Value, second: Option<&Value>, found: &mut BTreeSet<String>) {
    for field in &structure.fields {
        let Some(before) = first.get(field.name) else { continue };
        let after = second.and_then(|second| second.get(field.name));
        match (field.structure(), after) {
            _ if after == Some(before) => {}
            (Some(inner), Some(after)) => match (&field.ty.shape, before, after) {
                (Shape::List(_), before, after) => differences(inner, &before[0], after.get(0), found),
                (Shape::Map(_), before, after) => differences(inner, &before["k"], after.get("k"), found),
                (_, before, after) => differences(inner, before, Some(after), found),
            },
            _ => drop(found.insert(format!("{}.{}", structure.name, field.name))),
        }
    }
}

fn check<M: Message + Default + Debug>(group: &str, kind: &str, unknown: &mut BTreeSet<String>) {
    let structure = schema().kind(group, "v1", kind).unwrap();
    for round in 0..ROUNDS {
        let mut made = Made { round, truths: BTreeMap::new(), opaque: BTreeSet::new() };
        let object = Value::Object(made.structure(structure, ""));
        let document = protobuf::object(structure, "v", "k", &object);
        let envelope = protobuf::envelope(&document).unwrap();
        assert_eq!(Value::Object(protobuf::read(structure, envelope.raw).unwrap()), object, "{kind}");
        let decoded = M::decode(envelope.raw).unwrap_or_else(|error| panic!("{kind}: {error}"));
        let checked = made.check(&format!("{decoded:#?}"));
        assert!(checked > 0, "{kind}");
        let again = protobuf::read(structure, &decoded.encode_to_vec()).unwrap();
        differences(structure, &object, Some(&again.into()), unknown);
    }
}

#[test]
fn generated_code_reads_what_is_written_and_writes_what_is_read() {
    let mut unknown = BTreeSet::new();
    let mut kinds = BTreeSet::new();
    macro_rules! check {
        ($group:literal $table:ident: $($kind:ident)*) => {
            $(
                check::<$table::v1::$kind>($group, stringify!($kind), &mut unknown);
                kinds.insert(($group, stringify!($kind)));
            )*
        };
    }
    check!("" core: Binding ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume PersistentVolumeClaim Pod
        PodTemplate ReplicationController ResourceQuota Secret Service ServiceAccount);
    check!("apps" apps: ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet);
    check!("authentication.k8s.io" authentication: SelfSubjectReview TokenRequest TokenReview);
    check!("authorization.k8s.io" authorization: LocalSubjectAccessReview SelfSubjectAccessReview
        SelfSubjectRulesReview SubjectAccessReview);
    check!("autoscaling" autoscaling: HorizontalPodAutoscaler Scale);
    check!("batch" batch: CronJob Job);
    check!("coordination.k8s.io" coordination: Lease);
    check!("discovery.k8s.io" discovery: EndpointSlice);
    check!("events.k8s.io" events: Event);
    check!("networking.k8s.io" networking: Ingress IngressClass NetworkPolicy);
    check!("policy" policy: Eviction PodDisruptionBudget);
    check!("rbac.authorization.k8s.io" rbac: ClusterRole ClusterRoleBinding Role RoleBinding);
    check!("scheduling.k8s.io" scheduling: PriorityClass);
    check::<meta::DeleteOptions>("", "DeleteOptions", &mut unknown);
    check::<meta::PartialObjectMetadata>("meta.k8s.io", "PartialObjectMetadata", &mut unknown);
    check::<meta::Status>("", "Status", &mut unknown);
    for (group, _, kind) in schema().kinds().filter(|(group, ..)| !matches!(*group, "meta.k8s.io" | "metrics.k8s.io")) {
        assert!(kinds.contains(&(group, kind)), "{group} {kind} is not checked");
    }
    assert_eq!(unknown.into_iter().collect::<Vec<_>>(), NOT_GENERATED);
}

#[test]
fn lists_and_events_are_those_of_generated_code() {
    let metadata = json!({"resourceVersion": "7", "continue": "abc", "remainingItemCount": 3});
    let structure = protobuf::structure("v1", "Pod").unwrap();
    let mut items = Vec::new();
    for name in ["a", "b"] {
        protobuf::list_item(structure, &json!({"metadata": {"name": name}}), &mut items);
    }
    let list = [&protobuf::list_start("v1", "PodList", &metadata, items.len())[..], &items, protobuf::END].concat();
    let unknown =
        k8s_pb::apimachinery::pkg::runtime::Unknown::decode(list.strip_prefix(protobuf::MAGIC).unwrap()).unwrap();
    let about = unknown.type_meta.unwrap();
    assert_eq!((about.api_version(), about.kind()), ("v1", "PodList"));
    let list = core::v1::PodList::decode(&unknown.raw.unwrap()[..]).unwrap();
    let names: Vec<&str> = list.items.iter().map(|pod| pod.metadata.as_ref().unwrap().name()).collect();
    assert_eq!(names, ["a", "b"]);
    let metadata = list.metadata.unwrap();
    assert_eq!((metadata.resource_version(), metadata.r#continue(), metadata.remaining_item_count()), ("7", "abc", 3));

    let mut frame = Vec::new();
    protobuf::event("ADDED", b"an object", &mut frame);
    let (length, event) = frame.split_at(4);
    assert_eq!(length, u32::try_from(event.len()).unwrap().to_be_bytes());
    let event = meta::WatchEvent::decode(event).unwrap();
    assert_eq!((event.r#type(), event.object.as_ref().unwrap().raw()), ("ADDED", &b"an object"[..]));
}
