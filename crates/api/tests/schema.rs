//! The tables are correct, and everything in them is parsed.

use tally_api::catalog;
use tally_api::schema::{Field, ListType, Shape, Struct, schema};

fn field<'s>(kind: &str, path: &str) -> (&'s Struct, &'s Field) {
    let (group_version, kind) = kind.rsplit_once('/').unwrap();
    let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
    let mut owner = schema().kind(group, version, kind).unwrap();
    let (way, last) = path.rsplit_once('.').map_or((None, path), |(way, last)| (Some(way), last));
    for step in way.into_iter().flat_map(|way| way.split('.')) {
        owner = owner.field(step).unwrap().structure().unwrap();
    }
    (owner, owner.field(last).unwrap())
}

#[test]
fn every_resource_has_a_structure() {
    for resource in catalog::resources() {
        let structure = schema().kind(resource.group, resource.version, resource.kind);
        assert!(structure.is_some(), "{} {} {}", resource.group, resource.version, resource.kind);
        // The options of a stream are in the query, and never in a body.
        let streams = ["attach", "exec", "portforward"];
        for subresource in resource.subresources.iter().filter(|subresource| !streams.contains(&subresource.name)) {
            let (group, version) = subresource.group_version.unwrap_or((resource.group, resource.version));
            assert!(
                schema().kind(group, version, subresource.kind).is_some(),
                "{group} {version} {}",
                subresource.kind
            );
        }
    }
}

#[test]
fn only_what_is_opaque_by_nature_is_opaque() {
    let mut opaque: Vec<String> = Vec::new();
    for structure in schema().structs() {
        for field in &structure.fields {
            if field.ty.shape == Shape::Raw {
                opaque.push(format!("{}.{}", structure.name, field.name));
            }
        }
    }
    assert_eq!(opaque, ["ManagedFieldsEntry.fieldsV1", "ControllerRevision.data"]);
}

#[test]
fn fields_are_named_once_and_can_be_counted() {
    for structure in schema().structs() {
        assert!(structure.fields.len() <= 128, "{} has more fields than the decoder has bits", structure.name);
        for (position, field) in structure.fields.iter().enumerate() {
            assert_eq!(structure.position(field.name), Some(position), "{}.{}", structure.name, field.name);
        }
    }
}

#[test]
fn types_have_the_names_that_messages_use() {
    for (kind, path, owner, go) in [
        ("batch/v1/Job", "spec", "Job", "v1.JobSpec"),
        ("batch/v1/Job", "spec.parallelism", "JobSpec", "int32"),
        ("batch/v1/Job", "spec.completionMode", "JobSpec", "v1.CompletionMode"),
        ("batch/v1/Job", "spec.template.spec.containers", "PodSpec", "[]v1.Container"),
        ("batch/v1/Job", "status.uncountedTerminatedPods.failed", "UncountedTerminatedPods", "[]types.UID"),
        ("v1/Pod", "spec.nodeSelector", "PodSpec", "map[string]string"),
        ("v1/Pod", "spec.containers.resources.limits", "ResourceRequirements", "v1.ResourceList"),
        ("v1/Pod", "metadata.uid", "ObjectMeta", "types.UID"),
        ("v1/Secret", "data", "Secret", "map[string][]uint8"),
        ("authentication.k8s.io/v1/TokenReview", "status.user.extra", "UserInfo", "map[string]v1.ExtraValue"),
    ] {
        let (structure, found) = field(kind, path);
        assert_eq!((structure.name, found.ty.go.as_ref()), (owner, go), "{kind} {path}");
    }
}

#[test]
fn lists_merge_by_their_keys() {
    for (kind, path, merge, key) in [
        ("v1/Pod", "spec.containers", true, "name"),
        ("v1/Pod", "spec.containers.ports", true, "containerPort"),
        ("v1/Pod", "spec.containers.volumeMounts", true, "mountPath"),
        ("v1/Pod", "spec.tolerations", false, ""),
        ("v1/Pod", "metadata.finalizers", true, ""),
        ("v1/Pod", "metadata.ownerReferences", true, "uid"),
        ("batch/v1/Job", "status.conditions", true, "type"),
        ("v1/Node", "spec.taints", false, ""),
        ("v1/Service", "spec.ports", true, "port"),
    ] {
        let patch = field(kind, path).1.patch;
        assert_eq!((patch.merge, patch.key), (merge, key), "{kind} {path}");
    }
    assert!(field("v1/Pod", "spec.volumes").1.patch.retain_keys);
    let ports = &field("v1/Pod", "spec.containers.ports").1.list;
    assert_eq!(*ports, ListType::Map(vec!["containerPort", "protocol"]));
    assert_eq!(field("v1/Pod", "metadata.finalizers").1.list, ListType::Set);
    assert_eq!(field("batch/v1/Job", "status.conditions").1.list, ListType::Atomic);
}

#[test]
fn embedded_fields_are_in_their_owners() {
    assert_eq!(field("v1/Pod", "spec.containers.livenessProbe.httpGet").1.via, Some("ProbeHandler"));
    assert_eq!(field("v1/Pod", "spec.volumes.emptyDir").1.via, Some("VolumeSource"));
    assert_eq!(field("v1/Pod", "spec.volumes.name").1.via, None);
}

#[test]
fn an_empty_object_shows_what_the_wire_shows() {
    let zero = |group, version, kind| schema().kind(group, version, kind).unwrap().zero().to_string();
    assert_eq!(
        zero("batch", "v1", "Job"),
        r#"{"metadata":{},"spec":{"template":{"metadata":{},"spec":{"containers":null}}},"status":{}}"#
    );
    assert_eq!(zero("", "v1", "ConfigMap"), r#"{"metadata":{}}"#);
    assert_eq!(zero("rbac.authorization.k8s.io", "v1", "Role"), r#"{"metadata":{},"rules":null}"#);
    let event = zero("", "v1", "Event");
    assert_eq!(
        event,
        r#"{"eventTime":null,"firstTimestamp":null,"involvedObject":{},"lastTimestamp":null,"metadata":{},"reportingComponent":"","reportingInstance":"","source":{}}"#
    );
}

#[test]
fn options_belong_to_every_group() {
    assert!(schema().kind("batch", "v1", "DeleteOptions").is_some());
    assert!(schema().kind("", "v1", "DeleteOptions").is_some());
    assert!(schema().kind("nowhere.example", "v1", "DeleteOptions").is_none());
    assert!(schema().kind("batch", "v1", "Pod").is_none());
}

/// API-29. What is always shown is required, with the exceptions of the table.
#[test]
fn required_fields_are_those_of_the_reference() {
    for (kind, path, required) in [
        ("batch/v1/Job", "spec", false),
        ("batch/v1/Job", "spec.template", true),
        ("batch/v1/Job", "spec.podFailurePolicy.rules", true),
        ("batch/v1/Job", "spec.podFailurePolicy.rules.onPodConditions.status", false),
        ("batch/v1/CronJob", "spec", true),
        ("batch/v1/CronJob", "spec.schedule", true),
        ("v1/Pod", "spec.containers", true),
        ("v1/Pod", "spec.volumes.projected.sources", false),
        ("v1/Pod", "status", false),
        ("apps/v1/Deployment", "spec.selector", true),
        ("rbac.authorization.k8s.io/v1/Role", "rules", false),
        ("rbac.authorization.k8s.io/v1/RoleBinding", "roleRef.name", true),
    ] {
        assert_eq!(field(kind, path).1.required, required, "{kind} {path}");
    }
}
