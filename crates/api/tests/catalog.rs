//! The table of resources is consistent, and discovery matches the recordings of a real server.

use std::collections::BTreeSet;

use tally_api::catalog::{self, discovery};
use tally_api::kinds::Resource;
use tally_value::{Value, json};

#[test]
fn rows_are_in_order_and_found_again() {
    let rows = catalog::resources();
    let position = |group: &str| catalog::groups().position(|known| known == group).map_or(0, |at| at + 1);
    let order: Vec<(usize, &str)> = rows.iter().map(|row| (position(row.group), row.plural)).collect();
    assert!(order.is_sorted(), "{order:?}");
    for row in rows {
        assert!(row.group.is_empty() || catalog::groups().any(|group| group == row.group), "{}", row.group);
        let found = catalog::find(row.group, row.version, row.plural).unwrap();
        assert!(std::ptr::eq(found, *row), "{} is there twice", row.plural);
        let found = catalog::find_kind(row.group, row.version, row.kind).unwrap();
        assert!(std::ptr::eq(found, *row), "{} is there twice", row.kind);
        assert!(row.verbs.is_sorted(), "{}", row.plural);
        assert!(row.subresources.is_sorted_by_key(|sub| sub.name), "{}", row.plural);
        assert_eq!(row.version, catalog::version_of(row.group), "{}", row.plural);
        let is_virtual = row.verbs == ["create"] || catalog::is_measured(row);
        assert_eq!(catalog::is_virtual(row), is_virtual, "{}", row.plural);
    }
    assert!(catalog::find("batch", "v9", "jobs").is_none());
    assert!(catalog::find("", "v1", "jobs").is_none());
}

#[test]
fn only_events_share_a_place() {
    let stored: Vec<&Resource> = catalog::resources().iter().copied().filter(|row| !catalog::is_virtual(row)).collect();
    let places: BTreeSet<&str> = stored.iter().map(|row| row.storage).collect();
    assert_eq!(stored.len(), places.len() + 1);
    assert_eq!(catalog::find("events.k8s.io", "v1", "events").unwrap().storage, "events");
}

#[test]
fn what_a_put_creates_and_a_delete_leaves_alone() {
    let named = |keep: fn(&Resource) -> bool| -> Vec<&str> {
        catalog::resources().iter().filter(|row| keep(row)).map(|row| row.plural).collect()
    };
    assert_eq!(
        named(|row| row.create_on_update),
        [
            "endpoints",
            "events",
            "limitranges",
            "services",
            "events",
            "clusterrolebindings",
            "clusterroles",
            "rolebindings",
            "roles",
            "leases",
        ]
    );
    assert_eq!(named(|row| row.orphans_by_default), ["replicationcontrollers", "jobs"]);
    assert_eq!(
        named(catalog::is_virtual),
        [
            "bindings",
            "selfsubjectreviews",
            "tokenreviews",
            "localsubjectaccessreviews",
            "selfsubjectaccessreviews",
            "selfsubjectrulesreviews",
            "subjectaccessreviews",
            "nodes",
            "pods",
        ]
    );
}

fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    list["resources"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap()
}

const ALL: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

#[test]
fn plain_discovery() {
    let status = ["get", "patch", "update"];
    assert_eq!(
        discovery::resource_list("batch", "v1").unwrap(),
        json!({"apiVersion": "v1", "groupVersion": "batch/v1", "kind": "APIResourceList", "resources": [
            {"categories": ["all"], "kind": "CronJob", "name": "cronjobs", "namespaced": true, "shortNames": ["cj"],
                "singularName": "cronjob", "verbs": ALL},
            {"kind": "CronJob", "name": "cronjobs/status", "namespaced": true, "singularName": "", "verbs": status},
            {"categories": ["all"], "kind": "Job", "name": "jobs", "namespaced": true, "singularName": "job", "verbs": ALL},
            {"kind": "Job", "name": "jobs/status", "namespaced": true, "singularName": "", "verbs": status},
        ]})
    );
    let core = discovery::resource_list("", "v1").unwrap();
    assert_eq!((&core["groupVersion"], &core["kind"]), (&json!("v1"), &json!("APIResourceList")));
    let rows = [
        json!({"kind": "Binding", "name": "bindings", "namespaced": true, "singularName": "binding", "verbs": ["create"]}),
        json!({"kind": "Binding", "name": "pods/binding", "namespaced": true, "singularName": "", "verbs": ["create"]}),
        json!({"group": "policy", "kind": "Eviction", "name": "pods/eviction", "namespaced": true, "singularName": "",
            "verbs": ["create"], "version": "v1"}),
        json!({"kind": "Pod", "name": "pods/log", "namespaced": true, "singularName": "", "verbs": ["get"]}),
        json!({"group": "authentication.k8s.io", "kind": "TokenRequest", "name": "serviceaccounts/token",
            "namespaced": true, "singularName": "", "verbs": ["create"], "version": "v1"}),
        json!({"kind": "Namespace", "name": "namespaces/finalize", "namespaced": false, "singularName": "",
            "verbs": ["update"]}),
        json!({"kind": "Namespace", "name": "namespaces", "namespaced": false, "shortNames": ["ns"],
            "singularName": "namespace", "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"]}),
        json!({"categories": ["all"], "kind": "Service", "name": "services", "namespaced": true, "shortNames": ["svc"],
            "singularName": "service", "verbs": ALL}),
        json!({"kind": "Endpoints", "name": "endpoints", "namespaced": true, "shortNames": ["ep"],
            "singularName": "endpoints", "verbs": ALL}),
        json!({"kind": "Secret", "name": "secrets", "namespaced": true, "singularName": "secret", "verbs": ALL}),
    ];
    for row in rows {
        assert_eq!(named(&core, row["name"].as_str().unwrap()), &row);
    }
    assert_eq!(discovery::resource_list("batch", "v9"), None);
    assert_eq!(discovery::resource_list("nope", "v1"), None);
}

#[test]
fn groups_and_versions() {
    let version = json!({"groupVersion": "batch/v1", "version": "v1"});
    let batch = json!({"name": "batch", "preferredVersion": version, "versions": [version]});
    let groups = discovery::api_groups();
    assert!(groups["groups"].as_array().unwrap().contains(&batch));
    let group = discovery::api_group("batch").unwrap();
    assert_eq!(
        (&group["kind"], &group["name"], &group["versions"]),
        (&json!("APIGroup"), &json!("batch"), &batch["versions"])
    );
    assert_eq!(discovery::api_group("nope"), None);
    assert_eq!(discovery::api_group(""), None);
    let versions = discovery::api_versions("127.0.0.1:6443");
    assert_eq!((&versions["kind"], &versions["versions"]), (&json!("APIVersions"), &json!(["v1"])));
}

#[test]
fn aggregated_discovery() {
    let form = discovery::Aggregated::from_version("v2").unwrap();
    let document = discovery::aggregated_groups(form);
    assert_eq!(document["apiVersion"], "apidiscovery.k8s.io/v2");
    let items = document["items"].as_array().unwrap();
    let batch = items.iter().find(|item| item["metadata"] == json!({"name": "batch"})).unwrap();
    let status = |kind: &str| {
        json!([{"responseKind": {"group": "", "kind": kind, "version": ""}, "subresource": "status",
            "verbs": ["get", "patch", "update"]}])
    };
    assert_eq!(
        batch["versions"],
        json!([{"freshness": "Current", "version": "v1", "resources": [
            {"categories": ["all"], "resource": "cronjobs", "responseKind": {"group": "", "kind": "CronJob", "version": ""},
                "scope": "Namespaced", "shortNames": ["cj"], "singularResource": "cronjob",
                "subresources": status("CronJob"), "verbs": ALL},
            {"categories": ["all"], "resource": "jobs", "responseKind": {"group": "", "kind": "Job", "version": ""},
                "scope": "Namespaced", "singularResource": "job", "subresources": status("Job"), "verbs": ALL},
        ]}])
    );
    let core = discovery::aggregated_core(discovery::Aggregated::V2Beta1);
    assert_eq!(core["apiVersion"], "apidiscovery.k8s.io/v2beta1");
    let named = |name: &str| {
        let rows = core["items"][0]["versions"][0]["resources"].as_array().unwrap();
        rows.iter().find(|row| row["resource"] == name).unwrap().clone()
    };
    assert_eq!(named("nodes")["scope"], "Cluster");
    assert_eq!(
        named("pods")["subresources"][2]["responseKind"],
        json!({"group": "policy", "kind": "Eviction", "version": "v1"})
    );
    assert_eq!(discovery::Aggregated::from_version("v9"), None);
}
