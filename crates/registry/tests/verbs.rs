//! The verbs where no recording of a real server exists: concurrent requests, generated names that run out, and lists
//! that are older than the history.

use crate::support::{Cluster, now};
use tally_api::options::{DeleteOptions, Format, ListOptions, Propagation, ReadAt, WriteOptions};
use tally_registry::{Deleted, Env, MAX_OBJECT, Target};
use tally_store::{Store, StoreOptions};
use tally_value::json;

#[test]
fn a_cluster_begins_with_its_namespaces_and_its_own_service_once() {
    let cluster = Cluster::new();
    let revision = cluster.store.revision();
    now(cluster.registry.begin()).unwrap();
    assert_eq!(cluster.store.revision(), revision, "beginning again changes nothing");
    assert_eq!(cluster.store.compacted(), revision, "history begins when all that is there");
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        let namespace = cluster.get(cluster.target("", "namespaces", "", name)).unwrap();
        assert_eq!(namespace["status"]["phase"], "Active");
    }
    assert!(cluster.get(cluster.target("", "services", "default", "kubernetes")).is_ok());
}

#[test]
fn a_generated_name_that_is_taken_is_drawn_again_and_then_given_up() {
    struct Stuck;
    impl Env for Stuck {
        fn now(&self) -> tally_core::time::Timestamp {
            tally_core::time::Timestamp::from_seconds(0)
        }
        fn new_uid(&self) -> String {
            "00000000-0000-4000-8000-000000000000".to_owned()
        }
        fn random(&self, _: u32) -> u32 {
            0
        }
    }
    let cluster = Cluster::on(Store::memory(StoreOptions::default()), Box::new(Stuck));
    now(cluster.registry.begin()).unwrap();
    let object = json!({"metadata": {"generateName": "c-"}});
    let first = cluster.create(cluster.configmaps(), &object).unwrap().object.parse();
    assert_eq!(first["metadata"]["name"], "c-bbbbb");
    let second = cluster.create(cluster.configmaps(), &object).map(|_| ()).unwrap_err();
    assert_eq!((second.code, second.reason), (409, "AlreadyExists"));
    let told =
        "configmaps \"c-bbbbb\" already exists, the server was not able to generate a unique name for the object";
    assert_eq!((second.message.as_str(), second.details.unwrap().retry_after_seconds), (told, 1));
}

#[test]
fn a_create_that_is_refused_is_warned_about_as_well() {
    let cluster = Cluster::new();
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"});
    let pods = cluster.target("", "pods", "default", "");
    let told = |metadata: tally_value::Value| {
        let mut pod = Cluster::pod("a.b", None);
        pod["metadata"] = metadata;
        let answer = cluster.create(pods, &pod);
        let (code, warnings) = match answer {
            Ok(written) => (201, written.warnings),
            Err(failure) => (failure.code, failure.warnings),
        };
        let words: Vec<String> = warnings.iter().map(|it| it.split(' ').next().unwrap().to_owned()).collect();
        (code, words.join(" "))
    };
    let (owners, name) = (".metadata.ownerReferences", "metadata.name:");
    assert_eq!(told(json!({"name": "a_b", "ownerReferences": [owner, owner]})), (422, owners.to_owned()));
    // A resourceVersion is refused only if the object is otherwise valid; text that is not a number is ignored.
    assert_eq!(told(json!({"name": "a_b", "resourceVersion": "5"})), (422, String::new()));
    assert_eq!(told(json!({"name": "a.b", "resourceVersion": "5"})), (400, name.to_owned()));
    assert_eq!(told(json!({"name": "a.b", "resourceVersion": "x"})), (201, name.to_owned()));
    assert_eq!(told(json!({"name": "a.b", "ownerReferences": [owner, owner]})), (409, format!("{owners} {name}")));
}

#[test]
fn a_replacement_says_what_it_replaces() {
    let cluster = Cluster::new();
    cluster.create(cluster.configmaps(), &json!({"metadata": {"name": "a"}})).unwrap();
    let leases = |name| cluster.target("coordination.k8s.io", "leases", "default", name);
    let put = |target: Target<'_>, body: tally_value::Value| {
        let body = body.to_string();
        let written = now(cluster.registry.update(target, body.as_bytes(), Format::Json, &WriteOptions::default()));
        written.map(|written| written.created).map_err(|failure| (failure.code, failure.message))
    };
    let nameless = "the name of the object (a based on URL) was undeterminable: name must be provided";
    let elsewhere = "the namespace of the provided object does not match the namespace sent on the request";
    for (body, code, told) in [
        (json!({}), 400, nameless),
        (json!({"metadata": {"name": ""}}), 400, nameless),
        (json!({"metadata": {"name": "b"}}), 400, "the name of the object (b) does not match the name on the URL (a)"),
        (json!({"metadata": {"name": "b", "namespace": "x"}}), 400, elsewhere),
    ] {
        assert_eq!(put(cluster.configmap("a"), body), Err((code, told.to_owned())));
    }
    let failed = cluster.merge(cluster.configmap("a"), &json!({"metadata": {"name": null}})).map(|_| ());
    assert_eq!(failed.unwrap_err().message, nameless);
    // A PUT creates a Lease, but not if it contains the UID of an earlier one.
    let uid = json!({"metadata": {"name": "l", "uid": "u"}});
    assert_eq!(put(leases("l"), uid).map_err(|(code, _)| code), Err(409));
    assert_eq!(put(leases("l"), json!({"metadata": {"name": "l", "resourceVersion": "1"}})), Ok(true));
}

#[test]
fn some_kinds_are_shown_once_more_when_they_go() {
    let cluster = Cluster::new();
    for (group, plural, shown) in [
        ("", "configmaps", false),
        ("", "serviceaccounts", true),
        ("", "services", true),
        ("", "podtemplates", true),
        ("coordination.k8s.io", "leases", false),
    ] {
        let object = json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}});
        let object = if plural == "podtemplates" {
            let template = Cluster::pod("p", None);
            json!({"metadata": {"name": "a"}, "template": {"spec": template["spec"]}})
        } else {
            object
        };
        cluster.create(cluster.target(group, plural, "default", ""), &object).unwrap();
        let target = cluster.target(group, plural, "default", "a");
        let gone = now(cluster.registry.delete(target, &DeleteOptions::default())).unwrap();
        assert_eq!(matches!(gone, Deleted::Object(_)), shown, "{plural}");
        assert_eq!(cluster.get(target).unwrap_err().code, 404);
    }
}

#[test]
fn a_page_of_a_selection_ends_where_there_is_nothing_more_to_look_at() {
    let cluster = Cluster::new();
    for (name, chosen) in [("a", "y"), ("b", "n"), ("c", "y"), ("d", "n")] {
        let object = json!({"metadata": {"name": name, "labels": {"chosen": chosen}}});
        cluster.create(cluster.configmaps(), &object).unwrap();
    }
    let page = |selector: &str, limit| {
        let options = ListOptions { label_selector: selector.to_owned(), limit: Some(limit), ..ListOptions::default() };
        let page = cluster.registry.list(cluster.configmaps(), &options).unwrap();
        (page.items.len(), !page.continue_token.is_empty(), page.remaining)
    };
    assert_eq!(page("chosen=y", 2), (2, true, None), "one more is there, though it is not chosen");
    assert_eq!(page("chosen=n", 2), (2, false, None));
    assert_eq!(page("chosen=y", 3), (2, false, None));
    assert_eq!(page("", 2), (2, true, Some(2)));
}

/// API-19.
#[test]
fn a_terminating_namespace_takes_nothing_new() {
    let cluster = Cluster::new();
    cluster.create(cluster.target("", "namespaces", "", ""), &json!({"metadata": {"name": "n"}})).unwrap();
    let inside = cluster.target("", "configmaps", "n", "");
    cluster.create(inside, &json!({"metadata": {"name": "a"}})).unwrap();
    let gone = now(cluster.registry.delete(cluster.target("", "namespaces", "", "n"), &DeleteOptions::default()));
    assert!(matches!(gone, Ok(Deleted::Object(_))), "it stays until it is empty");
    let refused = cluster.create(inside, &json!({"metadata": {"name": "b"}})).map(|_| ()).unwrap_err();
    assert_eq!((refused.code, refused.reason), (403, "Forbidden"));
    assert_eq!(refused.details.unwrap().causes[0].reason, "NamespaceTerminating");
    for (metadata, called) in [(json!({"generateName": "c-"}), "c-"), (json!({}), "Unknown")] {
        let refused = cluster.create(inside, &json!({"metadata": metadata})).map(|_| ()).unwrap_err();
        let told = "is forbidden: unable to create new content in namespace n because it is being terminated";
        assert_eq!(refused.message, format!("configmaps \"{called}\" {told}"));
    }
    // Removing the last finalizer removes the namespace.
    let finalize = cluster.target("", "namespaces", "", "n");
    let finalize = Target { subresource: finalize.resource.subresource("finalize"), ..finalize };
    let bad = json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["bad"]}}).to_string();
    let refused = now(cluster.registry.update(finalize, bad.as_bytes(), Format::Json, &WriteOptions::default()));
    assert_eq!(refused.map(|_| ()).unwrap_err().code, 422);
    let empty = json!({"metadata": {"name": "n"}, "spec": {}}).to_string();
    now(cluster.registry.update(finalize, empty.as_bytes(), Format::Json, &WriteOptions::default())).unwrap();
    assert_eq!(cluster.get(cluster.target("", "namespaces", "", "n")).unwrap_err().code, 404);
}

#[test]
fn pages_show_one_moment_whatever_is_written_in_between() {
    let cluster = Cluster::new();
    for number in 0..7 {
        cluster.create(cluster.configmaps(), &json!({"metadata": {"name": format!("c{number}")}})).unwrap();
    }
    let mut options = ListOptions { limit: Some(3), ..ListOptions::default() };
    let mut names = Vec::new();
    for number in 0.. {
        let page = cluster.registry.list(cluster.configmaps(), &options).unwrap();
        names.extend(page.items.iter().map(|object| object.parse()["metadata"]["name"].as_str().unwrap().to_owned()));
        // Objects deleted and created between the pages do not affect them.
        let name = format!("c{}", 6 - number);
        now(cluster.registry.delete(cluster.configmap(&name), &DeleteOptions::default())).unwrap();
        cluster.create(cluster.configmaps(), &json!({"metadata": {"name": format!("d{number}")}})).unwrap();
        if page.continue_token.is_empty() {
            break;
        }
        options.continue_token = page.continue_token;
    }
    assert_eq!(names, ["c0", "c1", "c2", "c3", "c4", "c5", "c6"]);
}

#[test]
fn the_largest_object_can_be_deleted_and_let_go() {
    let cluster = Cluster::new();
    let pods = |name| cluster.target("", "pods", "default", name);
    let with = |fill: usize| {
        let mut pod = Cluster::pod("p", None);
        pod["metadata"]["finalizers"] = json!(["x.io/a", "x.io/b"]);
        pod["spec"]["containers"][0]["args"] = json!(["x".repeat(fill)]);
        pod
    };
    let change = |metadata: tally_value::Value| cluster.merge(pods("p"), &json!({"metadata": metadata})).map(|_| ());
    let delete = || now(cluster.registry.delete(pods("p"), &DeleteOptions::default())).map(|_| ());
    let shell = cluster.create(pods(""), &with(1)).unwrap().object.bytes.len() - 1;
    let revision = cluster.store.revision().to_string().len();
    change(json!({"finalizers": null})).unwrap();
    delete().unwrap();
    let most = MAX_OBJECT - (shell - revision);
    let refused = cluster.create(pods(""), &with(most + 1)).map(|_| ()).unwrap_err();
    assert_eq!((refused.code, refused.reason), (413, "RequestEntityTooLarge"));
    cluster.create(pods(""), &with(most)).unwrap();
    assert_eq!(change(json!({"annotations": {"a": "b"}})).unwrap_err().code, 413);
    delete().unwrap();
    assert_eq!(change(json!({"annotations": {"a": "b"}})).unwrap_err().code, 413);
    change(json!({"finalizers": ["x.io/b"]})).unwrap();
    change(json!({"finalizers": null})).unwrap();
    assert_eq!(cluster.get(pods("p")).unwrap_err().code, 404);
}

#[test]
fn a_page_of_a_store_that_is_lost_is_not_taken_for_one_of_this() {
    let (lost, cluster) = (Cluster::new(), Cluster::new());
    for name in ["a", "b"] {
        lost.create(lost.configmaps(), &json!({"metadata": {"name": name}})).unwrap();
    }
    cluster.create(cluster.configmaps(), &json!({"metadata": {"name": "z"}})).unwrap();
    let first = ListOptions { limit: Some(1), ..ListOptions::default() };
    let page = lost.registry.list(lost.configmaps(), &first).unwrap();
    let next = ListOptions { continue_token: page.continue_token, ..first };
    let expired = cluster.registry.list(cluster.configmaps(), &next).map(|_| ()).unwrap_err();
    assert_eq!((expired.code, expired.reason), (410, "Expired"));
}

#[test]
fn a_list_that_is_too_old_to_go_on_says_so() {
    let cluster = Cluster::new();
    for name in ["a", "b", "c"] {
        cluster.create(cluster.configmaps(), &json!({"metadata": {"name": name}})).unwrap();
    }
    let first = ListOptions { limit: Some(1), ..ListOptions::default() };
    let page = cluster.registry.list(cluster.configmaps(), &first).unwrap();
    cluster.merge(cluster.configmap("a"), &json!({"data": {"k": "v"}})).unwrap();
    cluster.store.compact(cluster.store.revision());
    let next = ListOptions { continue_token: page.continue_token, ..first.clone() };
    let gone = cluster.registry.list(cluster.configmaps(), &next).map(|_| ()).unwrap_err();
    assert_eq!((gone.code, gone.reason), (410, "Expired"));
    assert_eq!(gone.to_json()["metadata"]["continue"], gone.continue_token.as_str());
    // A client that accepts an inconsistent list can continue with the current state.
    let next = ListOptions { continue_token: gone.continue_token, limit: None, ..first };
    let rest = cluster.registry.list(cluster.configmaps(), &next).unwrap();
    let names: Vec<_> = rest.items.iter().map(|object| object.parse()["metadata"]["name"].clone()).collect();
    assert_eq!((names, rest.revision), (vec![json!("b"), json!("c")], cluster.store.revision()));
    let past = ListOptions { read_at: ReadAt::Exactly(page.revision), ..ListOptions::default() };
    let gone = cluster.registry.list(cluster.configmaps(), &past).map(|_| ()).unwrap_err();
    assert_eq!((gone.code, gone.reason), (410, "Expired"));
}

#[test]
fn nothing_is_stored_by_a_dry_run() {
    let cluster = Cluster::new();
    cluster.create(cluster.configmaps(), &json!({"metadata": {"name": "a", "finalizers": ["x.io/f"]}})).unwrap();
    let revision = cluster.store.revision();
    let dry = WriteOptions { dry_run: true, ..WriteOptions::default() };
    let body = json!({"metadata": {"name": "a"}, "data": {"k": "v"}}).to_string();
    let shown = now(cluster.registry.update(cluster.configmap("a"), body.as_bytes(), Format::Json, &dry)).unwrap();
    assert_eq!(shown.object.parse()["data"]["k"], "v");
    for propagation in [Propagation::Background, Propagation::Foreground, Propagation::Orphan] {
        let options = DeleteOptions { dry_run: true, propagation: Some(propagation), ..DeleteOptions::default() };
        now(cluster.registry.delete(cluster.configmap("a"), &options)).unwrap();
    }
    assert_eq!(cluster.store.revision(), revision);
}

#[test]
fn objects_are_counted_by_resource() {
    let cluster = Cluster::new();
    let count = |resource: &str| {
        let counts = cluster.registry.object_counts();
        counts.into_iter().find(|(name, _)| name == resource).map(|(_, count)| count)
    };
    assert_eq!((count("namespaces"), count("configmaps"), count("jobs.batch")), (Some(4), None, None));
    for name in ["a", "b", "c"] {
        cluster.create(cluster.configmaps(), &json!({"metadata": {"name": name}})).unwrap();
    }
    let body = json!({"metadata": {"name": "a"}, "data": {"k": "v"}}).to_string();
    let options = WriteOptions::default();
    now(cluster.registry.update(cluster.configmap("a"), body.as_bytes(), Format::Json, &options)).unwrap();
    assert_eq!(count("configmaps"), Some(3));
    now(cluster.registry.delete(cluster.configmap("b"), &DeleteOptions::default())).unwrap();
    assert_eq!(count("configmaps"), Some(2));
    let total: usize = cluster.registry.object_counts().into_iter().map(|(_, count)| count).sum();
    assert_eq!(total, cluster.store.len());
}

#[test]
fn a_pod_that_runs_nowhere_goes_at_once_and_one_that_runs_is_given_time() {
    let cluster = Cluster::new();
    let pods = cluster.target("", "pods", "default", "");
    cluster.create(pods, &Cluster::pod("idle", None)).unwrap();
    cluster.create(pods, &Cluster::pod("busy", Some("n"))).unwrap();
    let delete = |name, grace| {
        let options = DeleteOptions { grace_period_seconds: grace, ..DeleteOptions::default() };
        now(cluster.registry.delete(cluster.target("", "pods", "default", name), &options)).unwrap()
    };
    let there = |name| cluster.get(cluster.target("", "pods", "default", name)).ok();
    delete("idle", None);
    assert!(there("idle").is_none());
    let period = || there("busy").unwrap()["metadata"]["deletionGracePeriodSeconds"].as_i64();
    delete("busy", None);
    assert_eq!(period(), Some(30));
    delete("busy", Some(10));
    assert_eq!(period(), Some(10), "shorter is possible");
    delete("busy", Some(20));
    assert_eq!(period(), Some(10), "longer is not");
    delete("busy", Some(0));
    assert!(there("busy").is_none());
}

/// Managers that a client gives are stored as every other part of an object, and are not lost when a name is drawn again.
#[test]
fn managers_of_a_new_object_are_stored_in_their_final_form() {
    let cluster = Cluster::new();
    let options = |dry_run| WriteOptions { field_manager: "me".to_owned(), dry_run, ..WriteOptions::default() };
    let entry = json!({"manager": "zz", "operation": "Update", "apiVersion": "v1", "time": "2019-01-01T00:00:00.5Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:immutable": {}}});
    let object = json!({"metadata": {"name": "c", "managedFields": [entry]}, "data": {"a": "b"}});
    for dry_run in [true, false] {
        let (body, options) = (object.to_string(), options(dry_run));
        let created = cluster.registry.create(cluster.configmaps(), body.as_bytes(), Format::Json, &options);
        let created = now(created).unwrap().object.parse();
        let managers = created["metadata"]["managedFields"].as_array().unwrap();
        assert_eq!(managers.iter().map(|entry| entry["manager"].as_str().unwrap()).collect::<Vec<_>>(), ["zz", "me"]);
        assert_eq!(managers[0]["time"], "2019-01-01T00:00:00Z");
    }
}
