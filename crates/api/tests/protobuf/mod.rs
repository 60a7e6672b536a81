//! Objects in protobuf: the numbers, both directions, and that they agree with JSON.

mod independent;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use tally_api::catalog;
use tally_api::decode::{Decoded, decode_as, settle};
use tally_api::options::{FieldValidation, Format};
use tally_api::protobuf;
use tally_api::schema::{Field, Part, Shape, Struct, Type, schema};
use tally_api::status_error::StatusError;
use tally_value::{Map, Value, json};

type Kind = (&'static str, &'static str, &'static str);

const JOB: Kind = ("batch", "v1", "Job");
const POD: Kind = ("", "v1", "Pod");

fn decode(kind: (&str, &str, &str), body: &[u8], format: Format) -> Result<Decoded, StatusError> {
    decode_as(kind.0, kind.1, kind.2, body, format, FieldValidation::Strict)
}

fn read(kind: Kind, body: &[u8]) -> Value {
    decode(kind, body, Format::Protobuf).unwrap().object
}

/// What `kubectl create job a --image=busybox -- true` sends.
const FROM_KUBECTL: &str = "6b3873000a0f0a0862617463682f763112034a6f62127e0a110a016112001a0022002a0032003800420012\
    5f325d0a100a0012001a0022002a00320038004200124912260a016112 0762757379626f781a04747275652a0042006a007200800100\
    880100900100a201001a054e657665723200420 04a005200580060006800820100 8a01009a0100c201001a08200028003000 3a00\
    1a002200";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().filter(char::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

/// A field with bytes in it.
fn part(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
    bytes.extend_from_slice(content);
    bytes
}

/// An object of a kind, in its envelope.
fn sent(version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let about = [part(1, version.as_bytes()), part(2, kind.as_bytes())].concat();
    [protobuf::MAGIC.to_vec(), part(1, &about), part(2, object)].concat()
}

#[test]
fn every_field_has_a_number_and_no_number_is_used_twice() {
    // Figures have no protobuf form.
    for structure in schema().structs().iter().filter(|structure| structure.table != "metrics") {
        let name = structure.name;
        let mut numbers = BTreeSet::new();
        let mut fields: BTreeSet<&str> = BTreeSet::new();
        for numbered in &structure.numbered {
            assert!(numbered.number > 0 && numbers.insert(numbered.number), "{name}: {}", numbered.number);
            match numbered.part {
                Part::Field(position) => assert!(fields.insert(structure.fields[position].name), "{name}"),
                Part::Embedded(id) => {
                    for field in &schema().get(id).fields {
                        assert!(fields.insert(field.name), "{name}.{}", field.name);
                    }
                }
            }
        }
        // TypeMeta is in the envelope.
        let expected = structure.fields.iter().filter(|field| field.via != Some("TypeMeta"));
        let expected: BTreeSet<&str> = expected.map(|field| field.name).collect();
        assert_eq!(fields, expected, "{name}");
    }
}

/// API-34
#[test]
fn every_served_kind_can_be_written() {
    // Figures are written as text.
    for resource in catalog::resources().iter().filter(|row| !catalog::is_measured(row)) {
        assert!(protobuf::structure(&resource.api_version(), resource.kind).is_some(), "{}", resource.kind);
        // The options of streams are in the query, never in a body.
        for subresource in resource.subresources.iter().filter(|found| !found.kind.ends_with("Options")) {
            let (group, version) = subresource.group_version.unwrap_or((resource.group, resource.version));
            assert!(protobuf::structure(&format!("{group}/{version}"), subresource.kind).is_some());
        }
    }
    assert!(protobuf::document(&json!({"apiVersion": "v1", "kind": "Frob"})).is_none());
    assert!(protobuf::document(&json!({"apiVersion": "meta.k8s.io/v1", "kind": "Table"})).is_none());
    assert!(protobuf::document(&json!({"apiVersion": 1})).is_none());
}

#[test]
fn what_kubectl_sends_is_the_job_it_means_and_is_written_with_the_same_bytes() {
    let body = bytes(FROM_KUBECTL);
    let job = read(JOB, &body);
    assert_eq!((&job["apiVersion"], &job["kind"]), (&json!("batch/v1"), &json!("Job")));
    assert_eq!(job["metadata"]["name"], "a");
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod["restartPolicy"], "Never");
    let container = &pod["containers"][0];
    assert_eq!(container["command"], json!(["true"]));
    assert_eq!(container["image"], "busybox");
    assert_eq!(job["metadata"].get("creationTimestamp"), None, "no time is not the year 1");
    let written = protobuf::document(&job).unwrap();
    // A newer client writes more fields that are zero.
    let again = decode(JOB, &written, Format::Protobuf).unwrap().object;
    assert_eq!(again, job);
    let envelope = protobuf::envelope(&written).unwrap();
    let theirs = protobuf::envelope(&body).unwrap();
    assert_eq!((envelope.api_version, envelope.kind), (theirs.api_version, theirs.kind));
    assert_eq!(envelope.raw, theirs.raw);
    assert_eq!(written, body);
}

#[test]
fn values_of_every_shape_are_read() {
    let metadata = part(1, &part(1, b"x"));
    let secret = [metadata.clone(), part(2, &[part(1, b"k"), part(2, b"\x00\xff")].concat())].concat();
    let secret = read(("", "v1", "Secret"), &sent("v1", "Secret", &secret));
    assert_eq!(secret["data"], json!({"k": "AP8="}));

    let quota = part(1, &[part(1, b"pods"), part(2, &part(1, b"3"))].concat());
    let quota = read(("", "v1", "ResourceQuota"), &sent("v1", "ResourceQuota", &part(2, &quota)));
    assert_eq!(quota["spec"]["hard"], json!({"pods": "3"}));

    let budget = |value: &[u8]| {
        let object = sent("policy/v1", "PodDisruptionBudget", &part(2, &part(1, value)));
        read(("policy", "v1", "PodDisruptionBudget"), &object)["spec"]["minAvailable"].clone()
    };
    assert_eq!(budget(&[0x08, 1, 0x10, 0, 0x1a, 3, b'5', b'0', b'%']), "50%");
    assert_eq!(budget(&[0x08, 0, 0x10, 7]), 7);
    let minus_one = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    assert_eq!(budget(&[&[0x08, 0, 0x10][..], &minus_one].concat()), -1);

    let lease = part(4, &[0x08, 1, 0x10, 0xd8, 0x36]);
    let lease =
        read(("coordination.k8s.io", "v1", "Lease"), &sent("coordination.k8s.io/v1", "Lease", &part(2, &lease)));
    assert_eq!(lease["spec"]["renewTime"], "1970-01-01T00:00:01.000007Z");

    let policy = [0x0a, 2, b'I', b'n', 0x18, 5, 0x1a, 1, 6];
    let rule = part(2, &policy);
    let job = part(2, &[vec![11 << 3 | 2, 13], part(1, &rule)].concat());
    let job = read(JOB, &sent("batch/v1", "Job", &job));
    let values = &job["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"];
    assert_eq!(values, &json!([5, 6]), "numbers one by one and in one piece");

    // A list whose wire type is that of another version is absent.
    let role = read(
        ("rbac.authorization.k8s.io", "v1", "Role"),
        &sent("rbac.authorization.k8s.io/v1", "Role", &part(2, &[0x08, 1])),
    );
    assert_eq!(role["rules"], json!([{"verbs": null}]));

    // A message in two parts is one, and numbers of another version are ignored.
    let pod = [part(1, &part(1, b"x")), part(1, &part(3, b"n")), vec![0xf8, 0x7f, 1], part(15, b"?")].concat();
    let pod = read(POD, &sent("v1", "Pod", &pod));
    assert_eq!(pod["metadata"], json!({"name": "x", "namespace": "n"}));
}

#[test]
fn broken_messages_are_refused_with_a_reason() {
    let whole = bytes(FROM_KUBECTL);
    for length in 0..whole.len() {
        // Truncated or changed anywhere, the conversion returns a result, whichever it is.
        let _ = decode(JOB, &whole[..length], Format::Protobuf);
        for bit in 0..8 {
            let mut changed = whole.clone();
            changed[length] ^= 1 << bit;
            let _ = decode(JOB, &changed, Format::Protobuf);
        }
    }
    let empty_containers = [0x12, 0].repeat(100_001);
    let mut spec = vec![0x12];
    let mut length = empty_containers.len();
    while length > 0x7f {
        spec.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    spec.push(length as u8);
    spec.extend(empty_containers);
    let pod = protobuf::structure("v1", "Pod").unwrap();
    assert!(protobuf::read(pod, &spec).unwrap_err().contains("more than 100000 objects and lists"));
    let later = [0x42, 10, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    for (body, why) in [
        (&b""[..], "empty data"),
        (&b"{}"[..], "does not appear to be a protobuf message"),
        (&sent("batch/v9", "Job", b""), "no kind \"Job\" is registered for version \"batch/v9\""),
        (&sent("batch/v1", "Frob", b""), "no kind \"Frob\" is registered for version \"batch/v1\""),
        (&sent("a/b/c", "Job", b""), "unexpected GroupVersion string: a/b/c"),
        (&sent("v1", "Pod", b""), "converting (v1.Pod) to (batch.Job): unknown conversion"),
        (&sent("batch/v1", "Job", &[0x12, 0x7f]), "breaks off"),
        (&sent("batch/v1", "Job", &[0x0b]), "breaks off"),
        (&sent("batch/v1", "Job", &part(1, &part(1, b"\xff"))), "not UTF-8"),
        (&sent("batch/v1", "Job", &part(1, &later)), "outside the years"),
        (&sent("batch/v1", "Job", &part(1, &[vec![0x8a, 1, 5], part(7, &part(1, b"{"))].concat())), "is not JSON"),
    ] {
        let failure = decode(JOB, body, Format::Protobuf).unwrap_err();
        assert!(failure.code == 400 && failure.message.contains(why), "{why}: {}", failure.message);
    }
}

/// The object in protobuf and back.
#[track_caller]
fn round_trip(object: &Value) -> Value {
    let (api_version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let document = protobuf::document(object).unwrap();
    let decoded = decode((group, version, kind), &document, Format::Protobuf).unwrap().object;
    assert_eq!(shown((group, version, kind), &document), decoded);
    decoded
}

/// What a client sees of a document, without conforming it.
fn shown(kind: (&str, &str, &str), document: &[u8]) -> Value {
    let structure = schema().kind(kind.0, kind.1, kind.2).unwrap();
    let envelope = protobuf::envelope(document).unwrap();
    let mut object = protobuf::read_shown(structure, envelope.raw).unwrap();
    object.insert("apiVersion", envelope.api_version.into());
    object.insert("kind", envelope.kind.into());
    object.into()
}

#[test]
fn what_the_schema_does_not_contain_is_left_out_and_breaks_nothing() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "new": {"a": [1]},
        "metadata": {"name": "p", "labels": {"a": 1, "b": "c"}, "generation": "x", "creationTimestamp": "soon"},
        "spec": {"containers": [{"name": "c", "later": true, "args": "x"}, 5], "nodeSelector": []},
        "status": "none",
    });
    let read = round_trip(&pod);
    assert_eq!(read["metadata"], json!({"name": "p", "labels": {"a": "", "b": "c"}}));
    assert_eq!(read["spec"]["containers"], json!([{"name": "c", "resources": {}}, {"name": "", "resources": {}}]));
    assert_eq!(read["status"], json!({}));
    assert_eq!(read.get("new"), None);
}

#[test]
fn zero_and_absent_are_what_they_are_in_json() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "p", "creationTimestamp": "1970-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
            "labels": {"": "", "a": ""}, "finalizers": [""],
            "managedFields": [{
                "manager": "m", "time": "1969-12-31T23:59:59Z", "fieldsV1": {"f:metadata": {"f:labels": {".": {}}}},
            }],
        },
        "spec": {
            "containers": [{
                "name": "", "resources": {"limits": {"cpu": "0", "memory": "1Gi"}}, "securityContext": {},
                "ports": [{"containerPort": 0}],
                "livenessProbe": {"httpGet": {"port": "http"}}, "readinessProbe": {"httpGet": {"port": 0}},
                "env": [{"name": "a"}, {"name": "b", "valueFrom": {"configMapKeyRef": {"name": "n", "key": "k"}}}],
            }],
            "priority": -5, "hostUsers": false, "volumes": [{"name": "v", "emptyDir": {}}],
            "securityContext": {"runAsUser": 0, "supplementalGroups": [0, -1, i64::MAX]},
        },
        "status": {"conditions": [
            {"type": "", "status": "", "lastProbeTime": null, "lastTransitionTime": "9999-12-31T23:59:59Z"},
        ]},
    });
    assert_eq!(round_trip(&pod), pod);
}

#[test]
fn a_list_without_items_in_a_map_is_null_as_in_go() {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {},
        "spec": {"extra": {"a": ["", "b"], "c": null}}, "status": {"allowed": false},
    });
    assert_eq!(round_trip(&review), review);
}

/// All objects in a document.
fn collect(value: &Value, found: &mut Vec<Value>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(map) => {
            if map.get("apiVersion").is_some_and(Value::is_string) && map.get("kind").is_some_and(Value::is_string) {
                found.push(value.clone());
                if let (Some(kind), Some(Value::Array(items))) = (map["kind"].as_str(), map.get("items")) {
                    let kind = kind.trim_end_matches("List");
                    for mut item in items.clone() {
                        if let Some(item) = item.as_object_mut() {
                            item.insert("kind", kind.into());
                            item.insert("apiVersion", map["apiVersion"].clone());
                        }
                        found.push(item);
                    }
                }
            }
            map.values().for_each(|inner| collect(inner, found));
        }
        _ => {}
    }
}

/// API-34
#[test]
fn the_objects_of_the_recordings_are_the_same_in_both_forms() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let (mut same, mut not_decoded, mut kinds) = (0, 0, BTreeSet::new());
    for folder in ["api", "controllers", "job"] {
        for file in fs::read_dir(golden.join(folder)).unwrap() {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            for line in text.lines() {
                let mut objects = Vec::new();
                collect(&serde_json::from_str(line).unwrap(), &mut objects);
                for object in objects {
                    let (api_version, kind) =
                        (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
                    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
                    if protobuf::structure(api_version, kind).is_none() {
                        continue;
                    }
                    // The recordings have words instead of times.
                    let decoded = ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000006Z"].iter().find_map(|time| {
                        let text = object.to_string().replace("<time>", time);
                        let read =
                            decode_as(group, version, kind, text.as_bytes(), Format::Json, FieldValidation::Ignore);
                        read.ok()
                    });
                    let Some(mut decoded) = decoded else {
                        not_decoded += 1;
                        continue;
                    };
                    if let Some(resource) = catalog::find_kind(group, version, kind) {
                        settle(resource, &mut decoded.object);
                    }
                    assert_eq!(round_trip(&decoded.object), decoded.object, "{line}");
                    kinds.insert(kind.to_owned());
                    same += 1;
                }
            }
        }
    }
    println!("{same} objects of {} kinds are the same; {not_decoded} are not objects of their kind", kinds.len());
    assert!(same > 2_000 && kinds.len() >= 10 && not_decoded * 10 < same, "{same} {not_decoded} {kinds:?}");
}

/// An object of a structure, with fields chosen by the numbers.
fn object(structure: &Struct, numbers: &mut impl Iterator<Item = u32>, depth: usize) -> Map {
    let mut made = Map::new();
    let is_given = |field: &&Field| field.via != Some("TypeMeta") && structure.refuses(field.name).is_none();
    for field in structure.fields.iter().filter(is_given) {
        if numbers.next().unwrap_or_default() % 8 > 5usize.saturating_sub(depth / 2) as u32 {
            made.insert(field.name.to_owned(), value(&field.ty, numbers, depth + 1));
        }
    }
    made
}

fn value(ty: &Type, numbers: &mut impl Iterator<Item = u32>, depth: usize) -> Value {
    let number = numbers.next().unwrap_or_default();
    match &ty.shape {
        Shape::Text => ["", "a", "ü\n", "<\u{0}>"][number as usize % 4].into(),
        Shape::Int32 => [0, 1, -1, i32::MAX, i32::MIN][number as usize % 5].into(),
        Shape::Int64 => [0, 1, -1, i64::MAX, i64::MIN][number as usize % 5].into(),
        Shape::Float => (f64::from(number) / 8.0).into(),
        Shape::Bool => number.is_multiple_of(2).into(),
        Shape::Quantity => ["0", "1", "500m", "1Gi", "-3", "1e3"][number as usize % 6].into(),
        Shape::IntOrString => [json!(0), json!(-7), json!(""), json!("50%")][number as usize % 4].clone(),
        Shape::Time => {
            ["1970-01-01T00:00:00Z", "2026-01-02T03:04:05Z", "1901-01-01T00:00:00Z"][number as usize % 3].into()
        }
        Shape::MicroTime => ["1970-01-01T00:00:00.000000Z", "2026-01-02T03:04:05.000006Z"][number as usize % 2].into(),
        Shape::Bytes => ["", "AP8=", "YQ=="][number as usize % 3].into(),
        Shape::Raw => json!({"f:a": {}, "k": [1, -2.5, null, "x"]}),
        Shape::List(inner) => (0..number % 3).map(|_| value(inner, numbers, depth)).collect::<Vec<_>>().into(),
        Shape::Map(inner) => {
            let keys = ["", "a", "b.c/d"].iter().take(number as usize % 4);
            Value::Object(keys.map(|key| ((*key).to_owned(), value(inner, numbers, depth))).collect())
        }
        Shape::Struct(id) => object(schema().get(*id), numbers, depth).into(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Every object that JSON can express is the same after a way through protobuf.
    #[test]
    fn objects_are_the_same_in_both_forms(at in any::<prop::sample::Index>(), numbers in prop::collection::vec(any::<u32>(), 0..2_000)) {
        let kinds: Vec<Kind> = schema().kinds().filter(|kind| kind.0 != "metrics.k8s.io").collect();
        let kind = kinds[at.index(kinds.len())];
        let structure = schema().kind(kind.0, kind.1, kind.2).unwrap();
        let made = Value::Object(object(structure, &mut numbers.into_iter(), 0));
        let mut decoded = decode(kind, made.to_string().as_bytes(), Format::Json).unwrap().object;
        if let Some(resource) = catalog::find_kind(kind.0, kind.1, kind.2) {
            settle(resource, &mut decoded);
        } else {
            // Empty lists that are always shown are absent in protobuf.
            let again = round_trip(&decoded);
            prop_assert_eq!(round_trip(&again), again);
            return Ok(());
        }
        prop_assert_eq!(round_trip(&decoded), decoded.clone());
        // All of what a server shows can be written, and of any other object at least nothing is lost.
        prop_assert_eq!(protobuf::exact_document(&decoded), protobuf::document(&decoded));
        let mut given = made;
        given["apiVersion"] = decoded["apiVersion"].clone();
        given["kind"] = decoded["kind"].clone();
        if let Some(exact) = protobuf::exact_document(&given) {
            prop_assert_eq!(shown(kind, &exact), decoded.clone());
        }
        given["frob"] = 1.into();
        prop_assert_eq!(protobuf::exact_document(&given), None);
    }

    #[test]
    fn arbitrary_bytes_are_decoded_or_refused(at in any::<prop::sample::Index>(), message in prop::collection::vec(any::<u8>(), 0..300)) {
        let kinds: Vec<Kind> = schema().kinds().collect();
        let kind = kinds[at.index(kinds.len())];
        let _ = decode(kind, &message, Format::Protobuf);
        let _ = decode(kind, &[protobuf::MAGIC, &message].concat(), Format::Protobuf);
        let structure = schema().kind(kind.0, kind.1, kind.2).unwrap();
        let _ = protobuf::read(structure, &message);
        let _ = (protobuf::read_shown(structure, &message), protobuf::read_event(&message).is_ok());
        let _ = protobuf::read_list(&message).is_ok();
    }

    /// A changed message is refused, or is an object that is written and read as itself.
    #[test]
    fn changed_messages_are_objects_or_refused(
        numbers in prop::collection::vec(any::<u32>(), 0..1_000),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        is_pod in any::<bool>(),
    ) {
        let kind = if is_pod { POD } else { JOB };
        let structure = schema().kind(kind.0, kind.1, kind.2).unwrap();
        let made = Value::Object(object(structure, &mut numbers.into_iter(), 0));
        let version = if kind.0.is_empty() { kind.1.to_owned() } else { format!("{}/{}", kind.0, kind.1) };
        let mut document = protobuf::object(structure, &version, kind.2, &made);
        for (at, byte) in changes {
            let at = at.index(document.len());
            document[at] = byte;
        }
        if let Ok(decoded) = decode(kind, &document, Format::Protobuf) {
            let again = round_trip(&decoded.object);
            prop_assert_eq!(again, decoded.object);
        }
    }
}
