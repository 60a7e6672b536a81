//! Objects that break every rule are refused without a panic.

use proptest::prelude::*;
use tally_api::catalog;
use tally_api::kinds::Part;
use tally_core::time::Timestamp;
use tally_value::Value;

/// Fields that the rules read.
const NAMES: &[&str] = &[
    "accessModes",
    "addresses",
    "allocatable",
    "annotations",
    "binaryData",
    "capacity",
    "clusterIP",
    "clusterIPs",
    "data",
    "effect",
    "eventTime",
    "finalizers",
    "generation",
    "immutable",
    "involvedObject",
    "key",
    "labels",
    "limits",
    "matchLabels",
    "max",
    "metadata",
    "minAvailable",
    "name",
    "namespace",
    "podCIDR",
    "podCIDRs",
    "port",
    "ports",
    "protocol",
    "regarding",
    "replicas",
    "resources",
    "roleRef",
    "rules",
    "selector",
    "series",
    "sessionAffinity",
    "spec",
    "status",
    "strategy",
    "stringData",
    "subjects",
    "taints",
    "targetPort",
    "template",
    "type",
    "uid",
    "updateStrategy",
    "volumeClaimTemplates",
];

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-zé./%-]{0,6}".prop_map(Value::from),
        prop::sample::select(vec![
            "None",
            "ClientIP",
            "ExternalName",
            "NodePort",
            "Container",
            "RollingUpdate",
            "10.0.0.0/8"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 5, |inner| {
        prop_oneof![prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from), any_map(inner)]
    })
}

fn any_map(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let name = prop::sample::select(NAMES).prop_map(str::to_owned);
    prop::collection::btree_map(name, inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect()))
}

proptest! {
    #[test]
    fn odd_objects_are_refused_in_peace(new in any_map(any_value()), old in any_map(any_value())) {
        let others = |kind: &str| !matches!(kind, "Pod" | "Job" | "CronJob");
        for resource in catalog::resources().iter().filter(|resource| others(resource.kind)) {
            let mut created = new.clone();
            resource.rules.default(&mut created);
            let once = created.clone();
            resource.rules.default(&mut created);
            prop_assert_eq!(&created, &once, "filling in twice is filling in once: {}", resource.kind);
            resource.rules.prepare_create(&mut created, Timestamp::from_seconds(0));
            resource.rules.validate_create(&created);
            for part in [Part::Main, Part::Status] {
                let mut changed = once.clone();
                resource.rules.prepare_update(&mut changed, &old, part);
                resource.rules.validate_update(&changed, &old, part);
            }
        }
    }
}
