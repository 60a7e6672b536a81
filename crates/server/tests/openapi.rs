//! OpenAPI, discovery and scale as clients see them on the wire.

use std::collections::BTreeSet;

use crate::support::{Answer, Lines, Running, get, request};
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use tally_value::{Value, json};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn with(mut request: Request<Full<Bytes>>, headers: &[(&'static str, &str)]) -> Request<Full<Bytes>> {
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    request
}

async fn ask(server: &Running, path: &str, headers: &[(&'static str, &str)]) -> Answer {
    server.call(&server.admin(), with(get(path), headers)).await
}

async fn send(server: &Running, method: &str, path: &str, media: &str, body: &Value) -> Answer {
    let request = request(method, path, body.to_string());
    server.call(&server.admin(), with(request, &[("content-type", media)])).await
}

/// API-29
#[tokio::test]
async fn documents_are_fetched_once() {
    let server = Running::start().await;
    let index = ask(&server, "/openapi/v3", &[]).await;
    assert_eq!(index.headers["content-type"], "application/json");
    let link = index.value()["paths"]["apis/batch/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let document = ask(&server, &link, &[]).await;
    assert_eq!(document.headers["cache-control"], "public, max-age=31536000, immutable");
    let tag = document.headers["etag"].to_str().unwrap().to_owned();
    assert!(link.ends_with(&format!("?hash={}", tag.trim_matches('"'))), "{link} {tag}");

    let known = ask(&server, &link, &[("if-none-match", &tag)]).await;
    assert_eq!((known.code, known.body.len()), (304, 0));
    let compressed = ask(&server, &link, &[("accept-encoding", "gzip")]).await;
    assert_eq!(compressed.headers["content-encoding"], "gzip");
    assert!(compressed.body.starts_with(&[0x1f, 0x8b]) && compressed.body.len() * 4 < document.body.len());

    let path = link.split('?').next().unwrap();
    let plain = ask(&server, path, &[]).await;
    assert_eq!(
        (plain.body == document.body, &plain.headers["cache-control"]),
        (true, &"no-cache, private".parse().unwrap())
    );
    let old = ask(&server, &format!("{path}?hash=0"), &[]).await;
    assert_eq!((old.code, old.headers["location"].to_str().unwrap()), (301, link.as_str()));
    assert_eq!(ask(&server, "/openapi/v3/apis/nope/v1", &[]).await.code, 404);
    for path in [path, "/openapi/v2", "/openapi/v3"] {
        let refused = ask(&server, path, &[("accept", "text/csv")]).await;
        assert_eq!((refused.code, &refused.value()["reason"]), (406, &json!("NotAcceptable")));
    }
}

/// API-29. No version of a document refers to a schema that it does not contain.
#[tokio::test]
async fn documents_are_complete() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| match value.as_str() {
                Some(text) if key == "$ref" => drop(found.insert(text.to_owned())),
                _ => references(value, found),
            }),
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let server = Running::start().await;
    let index = ask(&server, "/openapi/v3", &[]).await.value();
    let third = index["paths"].as_object().unwrap().keys().map(|path| format!("/openapi/v3/{path}"));
    let mut operations = BTreeSet::new();
    for path in third.chain(["/openapi/v2".to_owned()]) {
        let document = ask(&server, &path, &[]).await.value();
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        assert!(found.len() > 5, "{path}");
        for reference in found {
            let pointer = reference.trim_start_matches('#');
            assert!(document.pointer(pointer).is_some_and(Value::is_object), "{path}: {reference}");
        }
        if path != "/openapi/v2" {
            for operation in document["paths"].as_object().unwrap().values().flat_map(|item| item.as_object().unwrap())
            {
                if let Some(id) = operation.1["operationId"].as_str() {
                    assert!(operations.insert(id.to_owned()), "{id} is there twice");
                }
            }
        }
    }
    for id in
        ["readBatchV1NamespacedJobStatus", "listCoreV1PodForAllNamespaces", "createRbacAuthorizationV1ClusterRole"]
    {
        assert!(operations.contains(id), "{id}");
    }
}

/// API-29
#[tokio::test]
async fn schemas_say_what_clients_merge_and_generators_need() {
    let server = Running::start().await;
    let document = ask(&server, "/openapi/v3/apis/batch/v1", &[]).await.value();
    let schema = |name: &str| document["components"]["schemas"][name].clone();
    let job = schema("io.k8s.api.batch.v1.Job");
    assert_eq!(job["x-kubernetes-group-version-kind"], json!([{"group": "batch", "version": "v1", "kind": "Job"}]));
    let reference = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(job["properties"]["metadata"]["allOf"], json!([{"$ref": reference}]));
    assert_eq!(schema("io.k8s.api.batch.v1.JobSpec")["required"], json!(["template"]));
    assert_eq!(schema("io.k8s.api.batch.v1.JobList")["required"], json!(["items"]));
    let pod = schema("io.k8s.api.core.v1.PodSpec");
    let volumes = &pod["properties"]["volumes"];
    assert_eq!(volumes["x-kubernetes-list-map-keys"], json!(["name"]));
    assert_eq!(volumes["x-kubernetes-patch-strategy"], "merge,retainKeys");
    assert_eq!(volumes["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(pod["properties"]["restartPolicy"]["enum"], json!(["Always", "OnFailure", "Never"]));
    assert_eq!(pod["properties"]["nodeSelector"]["x-kubernetes-map-type"], "atomic");
    let port = schema("io.k8s.apimachinery.pkg.util.intstr.IntOrString");
    assert_eq!((&port["format"], port["oneOf"].as_array().map(Vec::len)), (&json!("int-or-string"), Some(2)));
    assert_eq!(schema("io.k8s.apimachinery.pkg.apis.meta.v1.Time")["format"], "date-time");

    let second = ask(&server, "/openapi/v2", &[]).await.value();
    let definition = |name: &str| second["definitions"][name].clone();
    assert_eq!(definition("io.k8s.apimachinery.pkg.api.resource.Quantity")["type"], "string");
    let selector = &definition("io.k8s.api.policy.v1.PodDisruptionBudgetSpec")["properties"]["selector"];
    assert_eq!(selector["$ref"], "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector");
    assert_eq!(selector["x-kubernetes-patch-strategy"], "replace");

    for wanted in [
        "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    ] {
        let binary = ask(&server, "/openapi/v2", &[("accept", wanted)]).await;
        assert_eq!(binary.headers["content-type"], "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
        assert!(binary.body.starts_with(b"\x0a\x032.0") && binary.body.len() > 100_000);
    }
}

/// API-33
#[tokio::test]
async fn discovery_is_fetched_once() {
    let server = Running::start().await;
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    for path in ["/api", "/apis"] {
        let first = ask(&server, path, &[("accept", aggregated)]).await;
        assert_eq!(first.headers["content-type"], aggregated);
        let tag = first.headers["etag"].to_str().unwrap().to_owned();
        let again = ask(&server, path, &[("accept", aggregated), ("if-none-match", &tag)]).await;
        assert_eq!((again.code, again.body.len()), (304, 0));
        let compressed = ask(&server, path, &[("accept", aggregated), ("accept-encoding", "gzip")]).await;
        assert_eq!(compressed.headers["content-encoding"], "gzip");
        assert!(ask(&server, path, &[]).await.headers.get("etag").is_none());
    }
}

/// API-33
#[tokio::test]
async fn formats_that_are_not_served_are_refused_in_a_status() {
    let server = Running::start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    server.create(maps, &json!({"metadata": {"name": "c"}})).await;
    let one = format!("{maps}/c");
    let object = json!({"metadata": {"name": "c"}});
    for (method, path, media) in [
        ("POST", maps, "text/plain"),
        ("PUT", &one, "application/xml"),
        ("PATCH", &one, "application/json"),
        ("PATCH", &one, "application/apply-patch+cbor"),
        ("DELETE", &one, "text/plain"),
    ] {
        let refused = send(&server, method, path, media, &object).await;
        assert_eq!((refused.code, &refused.value()["kind"]), (415, &json!("Status")), "{method} {media}");
        assert_eq!(refused.value()["reason"], "UnsupportedMediaType");
    }
    assert_eq!(ask(&server, &one, &[("accept", "application/xml")]).await.code, 406);
    assert_eq!(ask(&server, &one, &[]).await.code, 200);
}

/// API-31
#[tokio::test]
async fn what_is_no_delete_options_is_told_as_the_decoder_says_it() {
    let server = Running::start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    server.create(maps, &json!({"metadata": {"name": "c"}})).await;
    let scheme = "in scheme \"pkg/apis/meta/internalversion/scheme/register.go:27\"";
    for (body, expected) in [
        (
            "not json",
            "couldn't get version/kind; json parse error: invalid character 'o' in literal null (expecting 'u')"
                .to_owned(),
        ),
        (r#"{"kind":"Pod","apiVersion":"v1"}"#, format!("no kind \"Pod\" is registered for version \"v1\" {scheme}")),
        (
            r#"{"kind":"Job","apiVersion":"batch/v1"}"#,
            format!("no kind \"Job\" is registered for version \"batch/v1\" {scheme}"),
        ),
        (
            r#"{"kind":"DeleteOptions","apiVersion":"nope/v1"}"#,
            format!("no kind \"DeleteOptions\" is registered for version \"nope/v1\" {scheme}"),
        ),
        (
            r#"{"gracePeriodSeconds":"x"}"#,
            "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64"
                .to_owned(),
        ),
    ] {
        for path in [format!("{maps}/c"), maps.to_owned()] {
            let request = with(request("DELETE", &path, body), &[("content-type", "application/json")]);
            let refused = server.call(&server.admin(), request).await;
            assert_eq!((refused.code, &refused.value()["reason"]), (400, &json!("BadRequest")), "{body}");
            assert_eq!(refused.value()["message"], expected, "{body}");
        }
    }
    let options = r#"{"kind":"DeleteOptions","apiVersion":"batch/v1","unknown":1}"#;
    let request = with(request("DELETE", &format!("{maps}/c"), options), &[("content-type", "application/json")]);
    assert_eq!(server.call(&server.admin(), request).await.code, 200);
}

/// API-32
#[tokio::test]
async fn a_bookmark_is_an_empty_object_of_its_kind() {
    let server = Running::start().await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    for (path, expected) in [
        (
            "/apis/batch/v1/jobs",
            json!({"spec": {"template": {"metadata": {}, "spec": {"containers": null}}}, "status": {}}),
        ),
        ("/api/v1/pods", json!({"spec": {"containers": null}, "status": {}})),
        ("/api/v1/secrets", json!({})),
    ] {
        let mut lines = Lines::of(server.open(&server.admin(), get(&format!("{path}?{query}"))).await);
        let mut event = lines.next().await.unwrap();
        while event["type"] != "BOOKMARK" {
            event = lines.next().await.unwrap();
        }
        let object = event["object"].as_object_mut().unwrap();
        let metadata = object.remove("metadata").unwrap();
        assert_eq!(metadata["annotations"], json!({"k8s.io/initial-events-end": "true"}));
        assert!(metadata["resourceVersion"].is_string() && metadata.as_object().unwrap().len() == 2, "{metadata}");
        object.remove("apiVersion");
        object.remove("kind");
        assert_eq!(Value::from(object.clone()), expected, "{path}");
    }
}

/// API-30
#[tokio::test]
async fn a_scale_is_read_replaced_and_patched() {
    let server = Running::start().await;
    let deployment = json!({
        "metadata": {"name": "d"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    assert_eq!(server.create(DEPLOYMENTS, &deployment).await.code, 201);
    let before = ask(&server, &format!("{DEPLOYMENTS}/d"), &[]).await.value();
    let path = format!("{DEPLOYMENTS}/d/scale");
    let mut scale = ask(&server, &path, &[]).await.value();
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!(
        (&scale["spec"], &scale["status"]),
        (&json!({"replicas": 2}), &json!({"replicas": 0, "selector": "a=b"}))
    );
    assert_eq!(scale["metadata"]["name"], "d");

    scale["spec"]["replicas"] = 3.into();
    let replaced = send(&server, "PUT", &path, "application/json", &scale).await;
    assert_eq!((replaced.code, &replaced.value()["spec"]), (200, &json!({"replicas": 3})));
    let stale = send(&server, "PUT", &path, "application/json", &scale).await;
    assert_eq!((stale.code, &stale.value()["reason"]), (409, &json!("Conflict")), "an old resourceVersion");
    for (media, patch) in [
        ("application/merge-patch+json", json!({"spec": {"replicas": 4}})),
        ("application/strategic-merge-patch+json", json!({"spec": {"replicas": 4}})),
        ("application/json-patch+json", json!([{"op": "replace", "path": "/spec/replicas", "value": 4}])),
    ] {
        let patched = send(&server, "PATCH", &path, media, &patch).await;
        assert_eq!((patched.code, &patched.value()["spec"]), (200, &json!({"replicas": 4})), "{media}");
    }
    let negative =
        send(&server, "PATCH", &path, "application/merge-patch+json", &json!({"spec": {"replicas": -1}})).await;
    assert_eq!(negative.code, 422);
    let text =
        "Scale.autoscaling \"d\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0";
    assert_eq!(negative.value()["message"], text);
    let other = json!({"metadata": {"name": "d", "uid": "x"}, "spec": {"replicas": 9}});
    assert_eq!(send(&server, "PUT", &path, "application/json", &other).await.code, 409);
    let object = ask(&server, &format!("{DEPLOYMENTS}/d"), &[]).await.value();
    assert_eq!((&object["spec"]["replicas"], &object["spec"]["template"]), (&json!(4), &before["spec"]["template"]));
    assert_eq!(ask(&server, &format!("{DEPLOYMENTS}/none/scale"), &[]).await.code, 404);
}

/// API-30
#[tokio::test]
async fn a_scale_is_applied_and_its_manager_owns_the_number() {
    let server = Running::start().await;
    let yaml = "application/apply-patch+yaml";
    let config = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    let made = send(&server, "PATCH", &format!("{DEPLOYMENTS}/d?fieldManager=me"), yaml, &config).await;
    assert_eq!(made.code, 201, "{}", made.value());
    let scale =
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 7}});
    let path = format!("{DEPLOYMENTS}/d/scale?fieldManager=scaler");
    let refused = send(&server, "PATCH", &path, yaml, &scale).await;
    assert_eq!(refused.code, 409);
    assert_eq!(refused.value()["message"], "Apply failed with 1 conflict: conflict with \"me\": .spec.replicas");
    let forced = send(&server, "PATCH", &format!("{path}&force=true"), yaml, &scale).await;
    assert_eq!(
        (forced.code, &forced.value()["kind"], &forced.value()["spec"]),
        (200, &json!("Scale"), &json!({"replicas": 7}))
    );

    let object = ask(&server, &format!("{DEPLOYMENTS}/d"), &[]).await.value();
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let scaler = entries.iter().find(|entry| entry["manager"] == "scaler").unwrap();
    assert_eq!(scaler["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    let of = |name: &str| scaler[name].as_str().unwrap();
    assert_eq!((of("subresource"), of("operation"), of("apiVersion")), ("scale", "Apply", "apps/v1"));
    let mine = entries.iter().find(|entry| entry["manager"] == "me").unwrap();
    assert_eq!(mine["fieldsV1"].pointer("/f:spec/f:replicas"), None, "it was taken over");

    // A write that is no apply takes it back; a second apply of the same changes nothing.
    let again = send(&server, "PATCH", &path, yaml, &scale).await;
    assert_eq!(again.value()["metadata"]["resourceVersion"], object["metadata"]["resourceVersion"]);
    let patch = json!({"spec": {"replicas": 1}});
    let merge = "application/merge-patch+json";
    send(&server, "PATCH", &format!("{DEPLOYMENTS}/d/scale?fieldManager=hand"), merge, &patch).await;
    let object = ask(&server, &format!("{DEPLOYMENTS}/d"), &[]).await.value();
    let owners: Vec<_> = object["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["fieldsV1"].pointer("/f:spec/f:replicas").is_some())
        .map(|entry| {
            (
                entry["manager"].as_str().unwrap(),
                entry["operation"].as_str().unwrap(),
                entry["subresource"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(owners, [("hand", "Update", "scale")]);

    for (body, code) in [
        (json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}), 400),
        (json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"nope": 1}}), 400),
        (
            json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": -2}}),
            422,
        ),
    ] {
        let refused = send(&server, "PATCH", &format!("{path}&force=true"), yaml, &body).await;
        assert_eq!(refused.code, code, "{}", refused.value());
    }
}
