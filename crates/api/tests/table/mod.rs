//! Tables as `kubectl get` shows them, one row per check.

mod jobs;
mod pods;

use proptest::prelude::*;
use tally_api::catalog;
use tally_api::kinds::Resource;
use tally_api::table::{self, Heading, IncludeObject, cells, columns};
use tally_core::time::Timestamp;
use tally_value::{Value, json};

fn of(group: &str, plural: &str) -> &'static Resource {
    catalog::find(group, "v1", plural).unwrap_or_else(|| panic!("{plural} are not served"))
}

fn pods() -> &'static Resource {
    of("", "pods")
}

fn now() -> Timestamp {
    Timestamp::parse("2026-05-01T10:10:00Z").unwrap()
}

/// An object that is ten minutes old.
fn object(mut object: Value) -> Value {
    let created = json!({"name": "a", "creationTimestamp": "2026-05-01T10:00:00Z"});
    for (field, value) in created.as_object().unwrap() {
        object["metadata"][field] = value.clone();
    }
    object
}

/// The cells, joined with ` | `.
fn row(resource: &Resource, given: Value) -> String {
    let cells = cells(resource, &object(given), now());
    let text = |cell: &Value| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned);
    cells.iter().map(text).collect::<Vec<_>>().join(" | ")
}

#[track_caller]
fn check(resource: &Resource, given: Value, expected: &str) {
    assert_eq!(row(resource, given.clone()), expected, "{given}");
}

#[test]
fn every_table_names_its_columns() {
    for (group, plural, expected) in [
        ("batch", "jobs", "Name Status Completions Duration Age Containers* Images* Selector*"),
        ("", "pods", "Name Ready Status Restarts Age IP* Node* Nominated Node* Readiness Gates*"),
        (
            "batch",
            "cronjobs",
            "Name Schedule Timezone Suspend:boolean Active:integer Last Schedule Age Containers* Images* Selector*",
        ),
        (
            "",
            "nodes",
            "Name Status Roles Age Version Internal-IP* External-IP* OS-Image* Kernel-Version* Container-Runtime*",
        ),
        ("", "namespaces", "Name Status Age"),
        ("", "events", "Last Seen Type Reason Object Subobject* Source* Message First Seen* Count* Name*"),
        ("events.k8s.io", "events", "Last Seen Type Reason Object Subobject* Source* Message First Seen* Count* Name*"),
        ("coordination.k8s.io", "leases", "Name Holder Age"),
        ("", "services", "Name Type Cluster-IP External-IP Port(s) Age Selector*"),
        ("", "endpoints", "Name Endpoints Age"),
        ("", "serviceaccounts", "Name Age"),
        ("", "configmaps", "Name Data Age"),
        ("", "secrets", "Name Type Data Age"),
        (
            "",
            "persistentvolumeclaims",
            "Name Status Volume Capacity Access Modes StorageClass VolumeAttributesClass Age VolumeMode*",
        ),
        ("", "resourcequotas", "Name Request Limit Age"),
        ("", "podtemplates", "Name Containers Images Pod Labels"),
        (
            "",
            "replicationcontrollers",
            "Name Desired:integer Current:integer Ready:integer Age Containers* Images* Selector*",
        ),
        ("apps", "deployments", "Name Ready Up-to-date Available Age Containers* Images* Selector*"),
        ("apps", "replicasets", "Name Desired:integer Current:integer Ready:integer Age Containers* Images* Selector*"),
        ("apps", "statefulsets", "Name Ready Age Containers* Images*"),
        (
            "apps",
            "daemonsets",
            "Name Desired:integer Current:integer Ready:integer Up-to-date:integer Available:integer Node Selector Age Containers* \
         Images* Selector*",
        ),
        ("policy", "poddisruptionbudgets", "Name Min Available Max Unavailable Allowed Disruptions:integer Age"),
        ("scheduling.k8s.io", "priorityclasses", "Name Value:integer Global-Default:boolean Age PreemptionPolicy"),
        ("rbac.authorization.k8s.io", "rolebindings", "Name Role Age Users* Groups* ServiceAccounts*"),
        ("", "limitranges", "Name Created At:date"),
    ] {
        let resource = of(group, plural);
        let columns = columns(resource);
        let shown = columns.as_array().unwrap().iter().map(|column| {
            let (name, kind) = (column["name"].as_str().unwrap(), column["type"].as_str().unwrap());
            assert_eq!(column["format"], if name == "Name" { "name" } else { "" });
            assert!(column["description"].as_str().is_some_and(|about| !about.is_empty()), "{name}");
            let kind = if kind == "string" { String::new() } else { format!(":{kind}") };
            format!("{name}{kind}{}", if column["priority"] == 1 { "*" } else { "" })
        });
        assert_eq!(shown.collect::<Vec<_>>().join(" "), expected, "{}", resource.plural);
    }
}

fn conditions(kinds: &str) -> Value {
    let condition = |kind: &str| match kind.strip_prefix('!') {
        Some(kind) => json!({"type": kind, "status": "False"}),
        None => json!({"type": kind, "status": "True"}),
    };
    kinds.split_whitespace().map(condition).collect()
}

#[test]
fn nodes_and_namespaces() {
    let nodes = of("", "nodes");
    check(nodes, json!({}), "a | Unknown | <none> | 10m |  | <none> | <none> | <unknown> | <unknown> | <unknown>");
    let node = json!({
        "metadata": {"labels": {"kubernetes.io/role": "db", "node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/": "x"}},
        "spec": {"unschedulable": true},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}, {"type": "ExternalIP", "address": "1.2.3.4"},
                {"type": "InternalIP", "address": "10.0.0.10"}],
            "conditions": conditions("DiskPressure Ready"),
            "nodeInfo": {"kubeletVersion": "v1.36.4", "osImage": "OS", "kernelVersion": "6.1", "containerRuntimeVersion": "cri://1"},
        },
    });
    check(
        nodes,
        node,
        "a | Ready,SchedulingDisabled | db,worker | 10m | v1.36.4 | 10.0.0.9 | 1.2.3.4 | OS | 6.1 | cri://1",
    );
    let node = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    assert!(row(nodes, node).starts_with("a | NotReady | "));
    check(of("", "namespaces"), json!({"status": {"phase": "Terminating"}}), "a | Terminating | 10m");
}

#[test]
fn events_of_old_and_new_clients() {
    let core = json!({
        "count": 3, "firstTimestamp": "2026-05-01T10:00:00Z", "lastTimestamp": "2026-05-01T10:05:00Z", "eventTime": null,
        "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{c}"}, "type": "Normal", "reason": "Started",
        "source": {"component": "kubelet", "host": "h1"}, "message": " msg\n",
    });
    let expected = "5m | Normal | Started | pod/p | spec.containers{c} | kubelet, h1 | msg | 10m | 3 | a";
    check(of("", "events"), core.clone(), expected);
    let new = tally_api::others::event::to_events(&object(core));
    check(of("events.k8s.io", "events"), new, expected);

    let new = json!({
        "eventTime": "2026-05-01T10:09:00.500000Z", "regarding": {"kind": "Node"}, "type": "Warning", "reason": "R", "note": "n",
        "reportingController": "x.io/c", "reportingInstance": "i",
    });
    check(of("events.k8s.io", "events"), new.clone(), "59s | Warning | R | node |  | x.io/c, i | n | 59s | 1 | a");
    let mut series = new;
    series["series"] = json!({"count": 9, "lastObservedTime": "2026-05-01T10:09:50.000000Z"});
    check(of("events.k8s.io", "events"), series, "10s | Warning | R | node |  | x.io/c, i | n | 59s | 9 | a");
    check(of("", "events"), json!({}), "<unknown> |  |  |  |  |  |  | <unknown> | 1 | a");
}

#[test]
fn services_and_endpoints() {
    let services = of("", "services");
    let service = |kind: &str, more: Value| {
        let mut spec = json!({"type": kind, "clusterIP": "10.96.0.9", "ports": [{"port": 80, "protocol": "TCP"}]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"spec": spec})
    };
    for (given, expected) in [
        (
            service("ClusterIP", json!({"clusterIP": "None", "selector": {"x": "y", "a": "b"}})),
            "a | ClusterIP | None | <none> | 80/TCP | 10m | a=b,x=y",
        ),
        (
            service("ClusterIP", json!({"externalIPs": ["1.2.3.4", "5.6.7.8"]})),
            "a | ClusterIP | 10.96.0.9 | 1.2.3.4,5.6.7.8 | 80/TCP | 10m | <none>",
        ),
        (
            service(
                "NodePort",
                json!({"ports": [{"port": 80, "nodePort": 30001, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}),
            ),
            "a | NodePort | 10.96.0.9 | <none> | 80:30001/TCP,53/UDP | 10m | <none>",
        ),
        (service("LoadBalancer", json!({})), "a | LoadBalancer | 10.96.0.9 | <pending> | 80/TCP | 10m | <none>"),
        (
            json!({"spec": {"type": "ExternalName", "externalName": "x.example.com"}}),
            "a | ExternalName | <none> | x.example.com | <none> | 10m | <none>",
        ),
    ] {
        check(services, given, expected);
    }
    let mut balanced = service("LoadBalancer", json!({"externalIPs": ["9.9.9.9"]}));
    balanced["status"] = json!({"loadBalancer": {"ingress": [{"ip": "2.2.2.2"}, {"hostname": "h.example"}]}});
    check(services, balanced, "a | LoadBalancer | 10.96.0.9 | 2.2.2.2,h.example,9.9.9.9 | 80/TCP | 10m | <none>");

    let subsets = |addresses: &[&str], ports: Value| {
        let addresses: Vec<Value> = addresses.iter().map(|address| json!({"ip": address})).collect();
        json!({"subsets": [{"addresses": addresses, "ports": ports}]})
    };
    let endpoints = of("", "endpoints");
    check(endpoints, json!({}), "a | <none> | 10m");
    check(endpoints, subsets(&["1.1.1.1", "fd00::1"], json!([{"port": 80}])), "a | 1.1.1.1:80,[fd00::1]:80 | 10m");
    check(endpoints, subsets(&["1", "2", "3"], json!([])), "a | 1,2,3 | 10m");
    check(endpoints, subsets(&["1", "2", "3", "4", "5"], json!([])), "a | 1,2,3 + 2 more... | 10m");
}

#[test]
fn the_other_kinds() {
    for ((group, plural), given, expected) in [
        (("coordination.k8s.io", "leases"), json!({"spec": {"holderIdentity": "me"}}), "a | me | 10m"),
        (("coordination.k8s.io", "leases"), json!({"spec": {}}), "a |  | 10m"),
        (("", "serviceaccounts"), json!({"secrets": [{"name": "x"}]}), "a | 10m"),
        (("", "configmaps"), json!({"data": {"a": "1", "b": "2"}, "binaryData": {"z": "eA=="}}), "a | 3 | 10m"),
        (("", "secrets"), json!({"type": "Opaque", "data": {"k": "dg=="}}), "a | Opaque | 1 | 10m"),
        (("", "limitranges"), json!({}), "a | 2026-05-01T10:00:00Z"),
        (
            ("", "persistentvolumeclaims"),
            json!({"spec": {"volumeName": "v", "storageClassName": "fast", "volumeMode": "Filesystem"}, "status": {"phase": "Bound",
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"]}}),
            "a | Bound | v | 1Gi | RWO,RWX | fast | <unset> | 10m | Filesystem",
        ),
        (
            ("", "persistentvolumeclaims"),
            json!({"metadata": {"deletionTimestamp": "2026-05-01T10:05:00Z"}, "status": {"capacity": {"storage": "1Gi"}}}),
            "a | Terminating |  |  |  |  | <unset> | 10m | <unset>",
        ),
        (
            ("", "resourcequotas"),
            json!({"status": {"hard": {"pods": "4", "limits.cpu": "2", "cpu": "1"}, "used": {"pods": "1"}}}),
            "a | cpu: 0/1, pods: 1/4 | limits.cpu: 0/2 | 10m",
        ),
        (
            ("", "podtemplates"),
            json!({"template": {"metadata": {"labels": {"x": "y"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}),
            "a | c | i | x=y",
        ),
        (
            ("", "replicationcontrollers"),
            json!({"spec": {"replicas": 3, "selector": {"x": "y"}}, "status": {"replicas": 2, "readyReplicas": 1}}),
            "a | 3 | 2 | 1 | 10m |  |  | x=y",
        ),
        (
            ("apps", "deployments"),
            json!({"spec": {"replicas": 3, "selector": {"matchLabels": {"x": "y"}}},
                "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1}}),
            "a | 1/3 | 2 | 1 | 10m |  |  | x=y",
        ),
        (("apps", "replicasets"), json!({"spec": {"replicas": 3}}), "a | 3 | 0 | 0 | 10m |  |  | <none>"),
        (("apps", "statefulsets"), json!({"spec": {"replicas": 3}}), "a | 0/3 | 10m |  | "),
        (
            ("apps", "daemonsets"),
            json!({"spec": {"template": {"spec": {"nodeSelector": {"x": "y"}}}}, "status": {"desiredNumberScheduled": 5,
                "currentNumberScheduled": 4, "numberReady": 3, "updatedNumberScheduled": 2, "numberAvailable": 1}}),
            "a | 5 | 4 | 3 | 2 | 1 | x=y | 10m |  |  | <none>",
        ),
        (
            ("policy", "poddisruptionbudgets"),
            json!({"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}}),
            "a | 50% | N/A | 1 | 10m",
        ),
        (
            ("scheduling.k8s.io", "priorityclasses"),
            json!({"value": 7, "globalDefault": true, "preemptionPolicy": "Never"}),
            "a | 7 | true | 10m | Never",
        ),
        (
            ("rbac.authorization.k8s.io", "rolebindings"),
            json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}, {"kind": "User", "name": "v"},
                {"kind": "Group", "name": "g"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]}),
            "a | Role/r | 10m | u, v | g | n/s",
        ),
    ] {
        check(of(group, plural), given, expected);
    }
}

#[test]
fn table_carries_as_much_of_the_object_as_asked_for() {
    let secrets = of("", "secrets");
    let secret = object(json!({"metadata": {"resourceVersion": "7"}, "type": "Opaque"}));
    let metadata =
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": secret["metadata"]});
    let mut whole = secret.clone();
    whole["apiVersion"] = "v1".into();
    whole["kind"] = "Secret".into();
    for (asked, expected) in [("", &metadata), ("Metadata", &metadata), ("None", &Value::Null), ("Object", &whole)] {
        let include = IncludeObject::parse(asked).unwrap();
        let list = table::table(
            secrets,
            std::slice::from_ref(&secret),
            json!({"resourceVersion": "9", "continue": "x"}),
            include,
            now(),
        );
        assert_eq!(
            list,
            json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "Table", "metadata": {"resourceVersion": "9", "continue": "x"},
                "columnDefinitions": columns(secrets), "rows": [{"cells": ["a", "Opaque", 0, "10m"], "object": expected}],
            })
        );
        let one = table::table_of_one(secrets, &secret, include, now());
        assert_eq!(one["metadata"], json!({"resourceVersion": "7"}));
        assert_eq!(one["rows"], list["rows"]);
    }
    let refused = IncludeObject::parse("Frob").unwrap_err();
    let text = "Unable to convert to Table as requested: includeObject: Invalid value: \"Frob\": must be 'Metadata', 'Object', \
         'None', or empty";
    assert_eq!((refused.code, refused.message.as_str()), (400, text));
    let list = table::partial_object_metadata_list(&[secret], json!({"resourceVersion": "9"}));
    let kind = "PartialObjectMetadataList";
    assert_eq!(
        list,
        json!({
            "apiVersion": "meta.k8s.io/v1", "kind": kind, "metadata": {"resourceVersion": "9"}, "items": [metadata],
        })
    );
}

#[test]
fn watch_tells_the_columns_once() {
    let mut heading = Heading::default();
    let first = heading.table(pods(), &object(json!({})), IncludeObject::None, now());
    assert_eq!(first["columnDefinitions"], columns(pods()));
    let second = heading.table(pods(), &object(json!({})), IncludeObject::None, now());
    assert_eq!(second["columnDefinitions"], Value::Null);
    assert_eq!(second["rows"], first["rows"]);
}

#[test]
fn rows_of_pods_that_are_through_say_so() {
    let conditions = |phase: &str| {
        let pod = object(json!({"status": {"phase": phase}}));
        table::table_of_one(pods(), &pod, IncludeObject::None, now())["rows"][0].get("conditions").cloned()
    };
    let condition = |reason: &str, message: &str| {
        Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
    };
    assert_eq!(conditions("Running"), None);
    assert_eq!(conditions("Succeeded"), condition("Succeeded", "The pod has completed successfully."));
    assert_eq!(conditions("Failed"), condition("Failed", "The pod failed."));
}

/// Any JSON, with the names that tables read more often than others.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-zA-Zé-]{0,6}".prop_map(Value::from),
        Just(Value::from("2026-05-01T10:00:00Z")),
        prop::sample::select(vec!["Ready", "True", "In", "Always", "LoadBalancer", "Failed"]).prop_map(Value::from),
    ];
    let name = prop::sample::select(vec![
        "metadata",
        "spec",
        "status",
        "conditions",
        "type",
        "containers",
        "initContainers",
        "containerStatuses",
        "initContainerStatuses",
        "state",
        "terminated",
        "waiting",
        "running",
        "lastState",
        "restartCount",
        "reason",
        "exitCode",
        "signal",
        "ports",
        "port",
        "subsets",
        "addresses",
        "selector",
        "matchExpressions",
        "operator",
        "key",
        "values",
        "hard",
        "used",
        "name",
        "creationTimestamp",
        "startTime",
        "series",
        "template",
        "subjects",
        "kind",
        "ingress",
    ]);
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn odd_objects_print_a_cell_for_each_column(object in any_json(), seconds in any::<i64>()) {
        for resource in catalog::resources() {
            let cells = cells(resource, &object, Timestamp::from_seconds(seconds));
            prop_assert_eq!(cells.len(), columns(resource).as_array().unwrap().len());
            table::table_of_one(resource, &object, IncludeObject::Object, Timestamp::from_seconds(seconds));
        }
    }
}
