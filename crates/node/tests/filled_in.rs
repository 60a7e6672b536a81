//! The environment of containers and the content of volumes, one row per rule.

use serde_json::{Value, json};
use tally_node::env::environment;
use tally_node::options::NodeOptions;
use tally_node::pod::Pod;
use tally_node::port::Content;
use tally_node::sources::{Source, Sources, TokenSource};
use tally_node::volumes::{VolumeError, mounts, volumes};

fn pod(container: &Value, volumes: &Value) -> Pod {
    let mut container = container.clone();
    container["name"] = "c".into();
    let pod = json!({
        "metadata": {
            "name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "1",
            "labels": {"app": "x", "b": "say \"hi\""},
            "annotations": {"batch.kubernetes.io/job-completion-index": "7"},
        },
        "spec": {
            "nodeName": "n", "serviceAccountName": "sa", "volumes": volumes,
            "containers": [container, {"name": "d", "resources": {"limits": {"cpu": "250m", "memory": "3Mi"}}}],
        },
    });
    Pod::read(&pod.to_string().into()).unwrap()
}

fn node() -> NodeOptions {
    NodeOptions { cpu_millis: 4000, memory: 1 << 30, address: "192.0.2.1".to_owned(), ..NodeOptions::new("n") }
}

fn sources() -> Sources {
    let settings = json!({"data": {"A": "1", "B": "two", "A=": "never"}, "binaryData": {"bin": "AAE="}});
    let password = json!({"data": {"P": "c2VjcmV0"}});
    let mut sources = Sources::default();
    sources.0.insert(Source::ConfigMap("settings".into()), Some(settings));
    sources.0.insert(Source::Secret("password".into()), Some(password));
    sources.0.insert(Source::ConfigMap("absent".into()), None);
    sources.0.insert(Source::Secret("absent".into()), None);
    let token =
        |audience: &str| Source::Token(TokenSource { account: "sa".into(), audience: audience.into(), seconds: 3600 });
    sources.0.insert(token(""), Some(json!({"status": {"token": "signed"}})));
    sources.0.insert(token("x"), None);
    for (name, metadata, spec) in [
        ("data", json!({}), json!({"volumeName": "pvc-u"})),
        ("new", json!({}), json!({})),
        ("old", json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), json!({"volumeName": "pvc-u"})),
        ("fast", json!({}), json!({"storageClassName": "fast"})),
    ] {
        let mut claim = json!({"metadata": metadata, "spec": spec});
        claim["metadata"]["uid"] = "u".into();
        sources.0.insert(Source::Claim(name.into()), Some(claim));
    }
    sources
}

/// The environment as one line, or the error.
fn env_of(container: &Value) -> String {
    let pod = pod(container, &json!([]));
    match environment(&pod, &pod.spec.containers[0], &node(), &sources()) {
        Ok(env) => env.into_variables().into_iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" "),
        Err(problem) => format!("! {problem}"),
    }
}

#[test]
fn variables() {
    let from = |source: Value| json!({"env": [{"name": "X", "valueFrom": source}]});
    let field = |path: &str| from(json!({"fieldRef": {"fieldPath": path}}));
    let resource = |what: &str, divisor: &str| {
        from(json!({"resourceFieldRef": {"resource": what, "divisor": divisor, "containerName": "d"}}))
    };
    let key = |kind: &str, name: &str, key: &str| from(json!({kind: {"name": name, "key": key}}));
    let optional =
        |kind: &str, name: &str, key: &str| from(json!({kind: {"name": name, "key": key, "optional": true}}));
    let table = [
        (json!({"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)$(A)"}]}), "A=1 B=11"),
        // Only earlier variables are known; a reference to an unknown one stays as it is written.
        (json!({"env": [{"name": "B", "value": "$(A)"}, {"name": "A", "value": "1"}]}), "B=$(A) A=1"),
        (
            json!({"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "$$(A) $ $x $(A"}]}),
            "A=1 B=$(A) $ $x $(A",
        ),
        // A later value replaces an earlier one.
        (json!({"env": [{"name": "A", "value": "1"}, {"name": "B"}, {"name": "A", "value": "2"}]}), "A=2 B="),
        (field("metadata.name"), "X=p"),
        (field("metadata.namespace"), "X=ns"),
        (field("metadata.uid"), "X=u"),
        (field("metadata.labels['app']"), "X=x"),
        (field("metadata.labels['none']"), "X="),
        (field("metadata.annotations['batch.kubernetes.io/job-completion-index']"), "X=7"),
        (field("spec.nodeName"), "X=n"),
        (field("spec.serviceAccountName"), "X=sa"),
        (field("status.podIP"), "X=192.0.2.1"),
        (field("status.hostIP"), "X=192.0.2.1"),
        (field("spec.other"), "! spec.other is not a field that a Pod can be told"),
        (resource("limits.cpu", "1"), "X=1"),
        (resource("limits.cpu", "1m"), "X=250"),
        (resource("limits.cpu", "0"), "X=1"),
        (resource("limits.memory", "1"), "X=3145728"),
        (resource("limits.memory", "2Mi"), "X=2"),
        (resource("requests.memory", "1"), "X=0"),
        // A limit that is not set is the capacity of the node.
        (from(json!({"resourceFieldRef": {"resource": "limits.cpu"}})), "X=4"),
        (from(json!({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Gi"}})), "X=1"),
        (from(json!({"resourceFieldRef": {"resource": "limits.ephemeral-storage", "divisor": "1Gi"}})), "X=1024"),
        (from(json!({"resourceFieldRef": {"resource": "requests.ephemeral-storage"}})), "X=0"),
        (key("configMapKeyRef", "settings", "B"), "X=two"),
        (key("secretKeyRef", "password", "P"), "X=secret"),
        (key("configMapKeyRef", "settings", "C"), "! couldn't find key C in ConfigMap ns/settings"),
        (key("secretKeyRef", "password", "C"), "! couldn't find key C in Secret ns/password"),
        (key("configMapKeyRef", "absent", "A"), "! configmap \"absent\" not found"),
        (key("secretKeyRef", "absent", "A"), "! secret \"absent\" not found"),
        (optional("configMapKeyRef", "settings", "C"), ""),
        (optional("secretKeyRef", "absent", "A"), ""),
        (json!({"envFrom": [{"configMapRef": {"name": "settings"}}]}), "A=1 B=two"),
        (json!({"envFrom": [{"prefix": "S_", "secretRef": {"name": "password"}}]}), "S_P=secret"),
        (json!({"envFrom": [{"configMapRef": {"name": "absent"}}]}), "! configmap \"absent\" not found"),
        (json!({"envFrom": [{"secretRef": {"name": "absent", "optional": true}}]}), ""),
        (
            json!({"envFrom": [{"configMapRef": {"name": "settings"}}], "env": [{"name": "A", "value": "$(B)!"}]}),
            "A=two! B=two",
        ),
    ];
    for (container, expected) in table {
        assert_eq!(env_of(&container), expected, "{container}");
    }
}

#[test]
fn commands_and_paths_are_filled_in() {
    let container = json!({
        "command": ["echo", "$(A)"], "args": ["$(B)", "$$(A)"], "env": [{"name": "A", "value": "1"}],
        "volumeMounts": [
            {"name": "v", "mountPath": "/v", "subPathExpr": "of-$(A)", "readOnly": true},
            {"name": "w", "mountPath": "/w", "subPath": "$(A)"},
        ],
    });
    let pod = pod(&container, &json!([]));
    let container = &pod.spec.containers[0];
    let env = environment(&pod, container, &node(), &sources()).unwrap();
    assert_eq!(env.argv(container), ["echo", "1", "$(B)", "$(A)"]);
    let mounts = mounts(container, &env).unwrap();
    assert_eq!((mounts[0].sub_path.as_str(), mounts[0].read_only), ("of-1", true));
    assert_eq!((mounts[1].sub_path.as_str(), mounts[1].read_only), ("$(A)", false), "only an expression is filled in");
}

#[test]
fn a_path_that_cannot_be_filled_in_is_no_path() {
    for (expression, expected) in [
        ("$(B)/x", Err("subPathExpr of volume mount \"v\": missing value for \"B\"".to_owned())),
        ("$(A)/$(C)", Err("subPathExpr of volume mount \"v\": missing value for \"C\"".to_owned())),
        ("$(A)/$$(B)", Ok("1/$(B)".to_owned())),
    ] {
        let mount = json!([{"name": "v", "mountPath": "/v", "subPathExpr": expression}]);
        let pod = pod(&json!({"env": [{"name": "A", "value": "1"}], "volumeMounts": mount}), &json!([]));
        let container = &pod.spec.containers[0];
        let env = environment(&pod, container, &node(), &sources()).unwrap();
        let sub_path = mounts(container, &env).map(|mounts| mounts[0].sub_path.clone());
        let sub_path = sub_path.map_err(|error| error.to_string());
        assert_eq!(sub_path, expected, "{expression}");
    }
}

/// A volume as one line, or the error.
fn content_of(volume: Value) -> String {
    let mut volume = volume;
    volume["name"] = "v".into();
    match volumes(&pod(&json!({}), &json!([volume])), None, &node(), &sources()) {
        Ok(volumes) => match &volumes[0].content {
            Content::Empty { in_memory, limit } => format!("empty {in_memory} {limit:?}"),
            Content::Host { path, kind } => format!("host {path} {kind}"),
            Content::Claim { uid } => format!("claim {uid}"),
            Content::Files(files) => {
                let line = |file: &tally_node::port::File| {
                    format!("{}={} {:o}", file.path, String::from_utf8_lossy(&file.content), file.mode)
                };
                files.iter().map(line).collect::<Vec<_>>().join(", ")
            }
        },
        Err((volume, VolumeError::Missing(what))) => format!("! {volume}: {what}"),
        Err((volume, VolumeError::Unsupported(what))) => format!("!! {volume}: {what}"),
    }
}

#[test]
fn what_volumes_hold() {
    let items = json!([{"key": "A", "path": "x/a", "mode": 0o400}, {"key": "A", "path": "again"}]);
    let missing = json!([{"key": "C", "path": "c"}]);
    let downward = json!({"items": [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "cpu", "resourceFieldRef": {"containerName": "d", "resource": "limits.cpu", "divisor": "1m"}},
    ]});
    let table = [
        (json!({"emptyDir": {}}), "empty false None"),
        (json!({}), "empty false None"),
        (json!({"emptyDir": {"medium": "Memory", "sizeLimit": "1Ki"}}), "empty true Some(1024)"),
        (json!({"hostPath": {"path": "/x", "type": "Directory"}}), "host /x Directory"),
        (json!({"configMap": {"name": "settings"}}), "A=1 644, A==never 644, B=two 644, bin=\0\u{1} 644"),
        (json!({"configMap": {"name": "settings", "items": items, "defaultMode": 0o440}}), "again=1 440, x/a=1 400"),
        (
            json!({"configMap": {"name": "settings", "items": missing}}),
            "! v: settings has no key \"C\"; add it there, or mark the volume's source as optional",
        ),
        (json!({"configMap": {"name": "settings", "items": missing, "optional": true}}), ""),
        (json!({"configMap": {"name": "absent"}}), "! v: configmap \"absent\" not found"),
        (json!({"configMap": {"name": "absent", "optional": true}}), ""),
        (json!({"secret": {"secretName": "password", "defaultMode": 0o600}}), "P=secret 600"),
        (json!({"secret": {"secretName": "absent"}}), "! v: secret \"absent\" not found"),
        (json!({"downwardAPI": downward}), "cpu=250 644, labels=app=\"x\"\nb=\"say \\\"hi\\\"\" 644"),
        (
            json!({"projected": {"defaultMode": 0o400, "sources": [
                {"configMap": {"name": "settings", "items": [{"key": "A", "path": "a"}]}},
                {"secret": {"name": "password"}},
                {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            ]}}),
            "P=secret 400, a=1 400, name=p 400",
        ),
        (
            json!({"projected": {"defaultMode": 0o400, "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
                {"configMap": {"name": "settings", "items": [{"key": "A", "path": "a"}]}},
            ]}}),
            "a=1 400, token=signed 400",
        ),
        (
            json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "x", "expirationSeconds": 3600}}]}}),
            "! v: the API server issues no token for serviceaccount \"sa\"",
        ),
        (
            json!({"projected": {"sources": [{"clusterTrustBundle": {"path": "token"}}]}}),
            "!! v: projected volumes of this node have configMap, secret, downwardAPI and serviceAccountToken sources, not \
             clusterTrustBundle",
        ),
        (
            json!({"csi": {"driver": "x"}}),
            "!! v: this node runs Pods as plain processes and has no csi volumes; it offers emptyDir, hostPath, \
             persistentVolumeClaim, configMap, secret, downwardAPI and projected",
        ),
        (json!({"persistentVolumeClaim": {"claimName": "data"}}), "claim u"),
        (json!({"persistentVolumeClaim": {"claimName": "new"}}), "! v: persistentvolumeclaim \"new\" is not bound yet"),
        (json!({"persistentVolumeClaim": {"claimName": "old"}}), "! v: persistentvolumeclaim \"old\" is being deleted"),
        (json!({"persistentVolumeClaim": {"claimName": "nope"}}), "! v: persistentvolumeclaim \"nope\" not found"),
        (
            json!({"persistentVolumeClaim": {"claimName": "fast"}}),
            "!! v: persistentvolumeclaim \"fast\" gets no volume: nothing here provisions volumes of the storage class \
             \"fast\"; leave out storageClassName, or use \"local\"",
        ),
    ];
    for (volume, expected) in table {
        assert_eq!(content_of(volume.clone()), expected, "{volume}");
    }
}
