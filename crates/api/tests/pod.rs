//! Pods at the door: what is filled in, what is refused and in which words, what may change.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Value, json};
use tally_api::decode::decode_as;
use tally_api::field::{At, FieldError};
use tally_api::kinds::{Part, Rules};
use tally_api::options::{FieldValidation, Format};
use tally_api::pod::{self, PodRules};
use tally_core::time::Timestamp;

const NOW: Timestamp = Timestamp::from_seconds(1_714_557_600);

/// A Pod as a client sends it, filled in.
fn received(pod: &Value) -> Value {
    let body = serde_json::to_vec(pod).unwrap();
    let mut pod = decode_as("", "v1", "Pod", &body, Format::Json, FieldValidation::Strict).expect("decodes").object;
    PodRules.default(&mut pod);
    pod
}

/// A Pod named `p` with one container; `spec` adds to it or overrides.
fn written(spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" },
        "spec": { "containers": [{ "name": "c", "image": "i" }] },
    });
    merge(&mut pod["spec"], spec);
    pod
}

fn merge(into: &mut Value, from: Value) {
    for (key, value) in from.as_object().unwrap().clone() {
        into[key] = value;
    }
}

fn created(spec: Value) -> Value {
    let mut pod = received(&written(spec));
    PodRules.prepare_create(&mut pod, NOW);
    pod
}

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// What a Pod with this spec is refused for. Where a text ends in `...`, its beginning is enough.
fn check(spec: Value, told: &[&str]) {
    let pod = created(spec.clone());
    compare(&texts(&PodRules.validate_create(&pod)), told, &spec);
}

/// The same of one container that has these fields besides name and image.
fn check_container(fields: Value, told: &[&str]) {
    let mut container = json!({ "name": "c", "image": "i" });
    merge(&mut container, fields);
    check(json!({ "containers": [container], "volumes": [{ "name": "v" }] }), told);
}

fn compare(found: &[String], told: &[&str], what: &Value) {
    let fits = |(found, told): (&String, &&str)| match told.strip_suffix("...") {
        Some(beginning) => found.starts_with(beginning),
        None => found == told,
    };
    assert!(
        found.len() == told.len() && found.iter().zip(told).all(fits),
        "{what}\n found {found:#?}\n told {told:#?}"
    );
}

#[test]
fn containers_are_checked() {
    check(json!({}), &[]);
    check(json!({ "containers": [] }), &["spec.containers: Required value"]);
    check(
        json!({ "containers": [{ "image": " i" }, { "name": "c", "image": "" }, { "name": "c", "image": "i" }] }),
        &[
            "spec.containers[0].name: Required value",
            "spec.containers[1].image: Required value",
            "spec.containers[2].name: Duplicate value: \"c\"",
            "spec.containers[0].image: Invalid value: \" i\": must not have leading or trailing whitespace",
        ],
    );
    check(
        json!({ "initContainers": [{ "name": "c", "image": "i", "livenessProbe": { "exec": { "command": ["a"] } } },
                                   { "name": "s", "image": "i", "restartPolicy": "Always", "lifecycle": { "preStop": {} } }] }),
        &[
            "spec.initContainers[0].name: Duplicate value: \"c\"",
            "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
            "spec.initContainers[1].lifecycle.preStop: Required value: must specify a handler type",
        ],
    );
    check(
        json!({ "ephemeralContainers": [{ "name": "e", "image": "i", "ports": [{ "containerPort": 1 }], "targetContainerName": "x" }] }),
        &[
            "spec.ephemeralContainers[0].targetContainerName: Not found: \"x\"",
            "spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container",
            "spec.ephemeralContainers: Forbidden: cannot be set on create",
        ],
    );
    check_container(
        json!({ "restartPolicy": "Sometimes" }),
        &[
            "spec.containers[0].restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"Never\", \"OnFailure\"",
        ],
    );
    check_container(
        json!({ "restartPolicyRules": [{ "action": "Restart", "exitCodes": { "operator": "Is" } }] }),
        &[
            "spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used",
            "spec.containers[0].restartPolicyRules[0].exitCodes.operator: Unsupported value: \"Is\": supported values: \"In\", \"NotIn\"",
        ],
    );
    check_container(
        json!({ "terminationMessagePolicy": "Tell", "resizePolicy": [{ "resourceName": "disk", "restartPolicy": "NotRequired" }] }),
        &[
            "spec.containers[0].terminationMessagePolicy: Unsupported value: \"Tell\": supported values: \"File\", \"FallbackToLogsOnError\"",
            "spec.containers[0].resizePolicy: Unsupported value: \"disk\": supported values: \"cpu\", \"memory\"",
        ],
    );
}

#[test]
fn ports_are_checked() {
    check_container(
        json!({ "ports": [{ "containerPort": 1, "name": "a" }, { "containerPort": 65536, "name": "a" }, { "containerPort": 3, "name": "-B-", "hostPort": -1 }] }),
        &[
            "spec.containers[0].ports[1].name: Duplicate value: \"a\"",
            "spec.containers[0].ports[1].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive",
            "spec.containers[0].ports[2].name: Invalid value: \"-B-\": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
            "spec.containers[0].ports[2].name: Invalid value: \"-B-\": must contain at least one letter (a-z)",
            "spec.containers[0].ports[2].name: Invalid value: \"-B-\": must not begin or end with a hyphen",
            "spec.containers[0].ports[2].hostPort: Invalid value: -1: must be between 1 and 65535, inclusive",
        ],
    );
    check(
        json!({ "containers": [{ "name": "a", "image": "i", "ports": [{ "containerPort": 1, "hostPort": 9 }] },
                               { "name": "b", "image": "i", "ports": [{ "containerPort": 2, "hostPort": 9 }] }] }),
        &["spec.containers[1].ports[0].hostPort: Duplicate value: \"TCP//9\""],
    );
    check(
        json!({ "hostNetwork": true, "containers": [{ "name": "a", "image": "i", "ports": [{ "containerPort": 1, "hostPort": 9 }, { "containerPort": 2 }] }] }),
        &[
            "spec.containers[0].ports[0].hostPort: Invalid value: 9: must match `containerPort` when `hostNetwork` is true",
        ],
    );
}

#[test]
fn variables_are_checked() {
    let path = "spec.containers[0].env[0].valueFrom";
    for (source, told) in [
        (
            json!({}),
            ": Invalid value: \"\": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        ),
        (json!({ "fieldRef": { "fieldPath": "metadata.labels['a']" } }), ""),
        (
            json!({ "fieldRef": { "fieldPath": "metadata.labels['a b']" } }),
            ".fieldRef: Invalid value: \"a b\": name part must consist of...",
        ),
        (
            json!({ "fieldRef": { "fieldPath": "metadata.uid['a']" } }),
            ".fieldRef.fieldPath: Invalid value: \"metadata.uid['a']\": error converting fieldPath: field label does not support subscript: metadata.uid['a']",
        ),
        (json!({ "fieldRef": { "fieldPath": "spec.host" } }), ""),
        (json!({ "resourceFieldRef": { "resource": "limits.hugepages-2Mi" } }), ""),
        (json!({ "resourceFieldRef": { "resource": "" } }), ".resourceFieldRef.resource: Required value"),
        (
            json!({ "resourceFieldRef": { "resource": "limits.disk" } }),
            ".resourceFieldRef.resource: Unsupported value: \"limits.disk\": supported values: \"limits.cpu\", \"limits.ephemeral-storage\", \"limits.memory\", \"requests.cpu\", \"requests.ephemeral-storage\", \"requests.memory\"",
        ),
        (
            json!({ "resourceFieldRef": { "resource": "limits.cpu", "divisor": "1k" } }),
            ".resourceFieldRef.divisor: Invalid value: \"limits.cpu\": only divisor's values 1m and 1 are supported with the cpu resource",
        ),
        (json!({ "secretKeyRef": { "name": "s", "key": "" } }), ".secretKeyRef.key: Required value"),
        (
            json!({ "configMapKeyRef": { "name": "s", "key": "a b" } }),
            ".configMapKeyRef.key: Invalid value: \"a b\": a valid config key must consist of...",
        ),
        (
            json!({ "configMapKeyRef": { "name": "s", "key": "k" }, "secretKeyRef": { "name": "s", "key": "k" } }),
            ": Invalid value: \"\": may not have more than one field specified at a time",
        ),
        (
            json!({ "fileKeyRef": { "volumeName": "w", "path": "f", "key": "k" } }),
            ".fileKeyRef.volumeName: Not found: \"w\"",
        ),
        (json!({ "fileKeyRef": { "volumeName": "v", "path": "f", "key": "k" } }), ""),
    ] {
        let told = if told.is_empty() { vec![] } else { vec![format!("{path}{told}")] };
        let told: Vec<&str> = told.iter().map(String::as_str).collect();
        check_container(json!({ "env": [{ "name": "A", "valueFrom": source }] }), &told);
    }
    check_container(
        json!({ "env": [{ "name": "A=" }, { "name": "B", "value": "b", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }] }),
        &[
            "spec.containers[0].env[0].name: Invalid value: \"A=\": a valid environment variable name must consist only of printable ASCII characters other than '='",
            "spec.containers[0].env[1].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty",
        ],
    );
    check_container(
        json!({ "envFrom": [{}, { "configMapRef": { "name": "" } }, { "secretRef": { "name": "a" }, "configMapRef": { "name": "a-" } }] }),
        &[
            "spec.containers[0].envFrom: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`",
            "spec.containers[0].envFrom[1].configMapRef.name: Required value",
            "spec.containers[0].envFrom: Invalid value: \"\": may not have more than one field specified at a time",
        ],
    );
}

#[test]
fn mounts_are_checked() {
    check_container(
        json!({ "volumeMounts": [{ "name": "v", "mountPath": "/a", "subPath": "../x" }, { "name": "", "mountPath": "" },
                                 { "name": "v", "mountPath": "/b", "subPath": "/a", "subPathExpr": "b", "mountPropagation": "Bidirectional" }] }),
        &[
            "spec.containers[0].volumeMounts.subPath: Invalid value: \"../x\": must not contain '..'",
            "spec.containers[0].volumeMounts[1].name: Required value",
            "spec.containers[0].volumeMounts[1].name: Not found: \"\"",
            "spec.containers[0].volumeMounts[1].mountPath: Required value",
            "spec.containers[0].volumeMounts.subPath: Invalid value: \"/a\": must be a relative path",
            "spec.containers[0].volumeMounts[2].subPathExpr: Invalid value: \"b\": subPathExpr and subPath are mutually exclusive",
            "spec.containers[0].volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers",
        ],
    );
    check_container(
        json!({ "volumeMounts": [{ "name": "v", "mountPath": "/a" }], "volumeDevices": [{ "name": "v", "devicePath": "/a" }] }),
        &[
            "spec.containers[0].volumeMounts[0].name: Invalid value: \"v\": must not already exist in volumeDevices",
            "spec.containers[0].volumeMounts[0].mountPath: Invalid value: \"/a\": must not already exist as a path in volumeDevices",
            "spec.containers[0].volumeDevices[0].name: Invalid value: \"v\": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
            "spec.containers[0].volumeDevices[0].name: Invalid value: \"v\": must not already exist in volumeMounts",
            "spec.containers[0].volumeDevices[0].devicePath: Invalid value: \"/a\": must not already exist as a path in volumeMounts",
        ],
    );
}

#[test]
fn resources_are_checked() {
    let path = "spec.containers[0].resources";
    for (resources, told) in [
        (json!({ "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "500m" } }), vec![]),
        (
            json!({ "limits": { "cpu": "1" }, "requests": { "cpu": "1500m" } }),
            vec![".requests: Invalid value: \"1500m\": must be less than or equal to cpu limit of 1"],
        ),
        (
            json!({ "limits": { "memory": "-1" }, "requests": { "memory": "-1" } }),
            vec![
                ".limits[memory]: Invalid value: \"-1\": must be greater than or equal to 0",
                ".requests[memory]: Invalid value: \"-1\": must be greater than or equal to 0",
            ],
        ),
        (
            json!({ "limits": { "gpu": "1" } }),
            vec![
                ".limits[gpu]: Invalid value: \"gpu\": must be a standard resource type or fully qualified",
                ".limits[gpu]: Invalid value: \"gpu\": must be a standard resource for containers",
                ".requests[gpu]: Invalid value: \"gpu\": must be a standard resource type or fully qualified",
                ".requests[gpu]: Invalid value: \"gpu\": must be a standard resource for containers",
            ],
        ),
        (
            json!({ "limits": { "x.io/gpu": "2" }, "requests": { "x.io/gpu": "1" } }),
            vec![".requests: Invalid value: \"1\": must be equal to x.io/gpu limit of 2"],
        ),
        (
            json!({ "limits": { "x.io/gpu": "500m" } }),
            vec![
                ".limits[x.io/gpu]: Invalid value: \"500m\": must be an integer",
                ".requests[x.io/gpu]: Invalid value: \"500m\": must be an integer",
            ],
        ),
        (
            json!({ "limits": { "hugepages-2Mi": "3Mi" } }),
            vec![
                ".limits[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
                ".requests[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
                ": Forbidden: HugePages require cpu or memory",
            ],
        ),
        (
            json!({ "claims": [{ "name": "a" }] }),
            vec![".claims[0]: Not found: \"a\": must be one of the names in pod.spec.resourceClaims which is empty"],
        ),
    ] {
        let told: Vec<String> = told.iter().map(|told| format!("{path}{told}")).collect();
        let told: Vec<&str> = told.iter().map(String::as_str).collect();
        check_container(json!({ "resources": resources }), &told);
    }
    check(
        json!({ "resources": { "limits": { "cpu": "1", "x.io/a": "1" }, "requests": { "cpu": "1" } },
                "containers": [{ "name": "c", "image": "i", "resources": { "requests": { "cpu": "2" } } }] }),
        &[
            "spec.resources.limits[x.io/a]: Unsupported value: \"x.io/a\": supported values: \"cpu\", \"hugepages-\", \"memory\"",
            "spec.resources.requests[x.io/a]: Unsupported value: \"x.io/a\": supported values: \"cpu\", \"hugepages-\", \"memory\"",
            "spec.resources.requests[cpu]: Invalid value: \"1\": must be greater than or equal to aggregate container requests of 2",
        ],
    );
    check(
        json!({ "overhead": { "disk": "1" } }),
        &[
            "spec.overhead.limits[disk]: Invalid value: \"disk\": must be a standard resource type or fully qualified",
            "spec.overhead.limits[disk]: Invalid value: \"disk\": must be a standard resource for containers",
        ],
    );
}

#[test]
fn probes_are_checked() {
    check_container(
        json!({
            "livenessProbe": { "periodSeconds": -1, "successThreshold": 2, "httpGet": { "port": 0, "scheme": "GOPHER" } },
            "readinessProbe": { "tcpSocket": { "port": "Bad" }, "exec": { "command": ["a"] }, "terminationGracePeriodSeconds": 0 },
            "startupProbe": {},
            "lifecycle": { "preStop": { "sleep": { "seconds": 31 } } },
        }),
        &[
            "spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)",
            "spec.containers[0].livenessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive",
            "spec.containers[0].livenessProbe.httpGet.scheme: Unsupported value: \"GOPHER\": supported values: \"HTTP\", \"HTTPS\"",
            "spec.containers[0].livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
            "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
            "spec.containers[0].readinessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
            "spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
            "spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 0: must not be set for readinessProbes",
            "spec.containers[0].startupProbe: Required value: must specify a handler type",
        ],
    );
}

#[test]
fn volumes_are_checked() {
    for (source, told) in [
        (
            json!({ "emptyDir": { "sizeLimit": "-1" } }),
            vec![".emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity"],
        ),
        (
            json!({ "emptyDir": {}, "secret": { "secretName": "s" } }),
            vec![".secret: Forbidden: may not specify more than 1 volume type"],
        ),
        (json!({ "hostPath": { "path": "" } }), vec![".hostPath.path: Required value"]),
        (
            json!({ "hostPath": { "path": "/a/../b" } }),
            vec![".hostPath.path: Invalid value: \"/a/../b\": must not contain '..'"],
        ),
        (json!({ "secret": {} }), vec![".secret.secretName: Required value"]),
        (
            json!({ "configMap": { "defaultMode": 512, "items": [{ "key": "", "path": "..a" }] } }),
            vec![
                ".configMap.name: Required value",
                ".configMap.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
                ".configMap.items[0].key: Required value",
                ".configMap.items[0].path: Invalid value: \"..a\": must not start with '..'",
            ],
        ),
        (
            json!({ "nfs": { "server": "s", "path": "a" } }),
            vec![".nfs.path: Invalid value: \"a\": must be an absolute path"],
        ),
        (
            json!({ "persistentVolumeClaim": { "claimName": "" } }),
            vec![".persistentVolumeClaim.claimName: Required value"],
        ),
        (
            json!({ "downwardAPI": { "items": [{ "path": "a", "fieldRef": { "fieldPath": "status.podIP" } }, { "path": "b" }, { "path": "c", "resourceFieldRef": { "resource": "limits.cpu" } }] } }),
            vec![
                ".downwardAPI.fieldRef.fieldPath: Unsupported value: \"status.podIP\": supported values: \"metadata.annotations\", \"metadata.labels\", \"metadata.name\", \"metadata.namespace\", \"metadata.uid\"",
                ".downwardAPI: Required value: one of fieldRef and resourceFieldRef is required",
                ".downwardAPI.resourceFieldRef.containerName: Required value",
            ],
        ),
        (
            json!({ "projected": { "sources": [{ "secret": { "name": "a", "items": [{ "key": "k", "path": "p" }] } }, { "configMap": { "name": "b", "items": [{ "key": "k", "path": "p" }] } }] } }),
            vec![".projected: Invalid value: \"b\": conflicting duplicate paths"],
        ),
        (
            json!({ "csi": { "driver": "bad_driver" } }),
            vec![".csi.driver: Invalid value: \"bad_driver\": a lowercase RFC 1123 subdomain must consist of..."],
        ),
        (
            json!({ "ephemeral": { "volumeClaimTemplate": { "spec": { "accessModes": ["ReadWriteOncePod", "ReadOnlyMany"] } } } }),
            vec![
                ".ephemeral.volumeClaimTemplate.spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
                ".ephemeral.volumeClaimTemplate.spec.resources[storage]: Required value",
            ],
        ),
        (json!({ "iscsi": { "targetPortal": "a", "iqn": "iqn.2001-04.com.example:disk", "lun": 1 } }), vec![]),
        (
            json!({ "iscsi": { "targetPortal": "a", "iqn": "other", "lun": 1 } }),
            vec![".iscsi.iqn: Invalid value: \"other\": must be valid format starting with iqn, eui, or naa"],
        ),
        (json!({ "image": {} }), vec![".image.reference: Required value"]),
    ] {
        let mut volume = json!({ "name": "w" });
        merge(&mut volume, source);
        let told: Vec<String> = told.iter().map(|told| format!("spec.volumes[0]{told}")).collect();
        let told: Vec<&str> = told.iter().map(String::as_str).collect();
        check(json!({ "volumes": [volume] }), &told);
    }
    check(
        json!({ "volumes": [{ "name": "a" }, { "name": "a" }, { "name": "t", "projected": { "sources": [{ "serviceAccountToken": { "path": "t", "expirationSeconds": 599 } }] } }] }),
        &[
            "spec.volumes[1].name: Duplicate value: \"a\"",
            "spec.volumes[2].projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
            "spec.volumes[2].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set",
        ],
    );
}

#[test]
fn scheduling_is_checked() {
    check(
        json!({ "affinity": { "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [{
                "matchExpressions": [{ "key": "a", "operator": "In" }, { "key": "b", "operator": "Gt", "values": ["1", "2"] }, { "key": "c", "operator": "Near" }],
                "matchFields": [{ "key": "spec.x", "operator": "In", "values": ["a"] }] }] },
            "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 101, "preference": {} }] } } }),
        &[
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1].values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'",
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[2].operator: Invalid value: \"Near\": not a valid selector operator",
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].key: Invalid value: \"spec.x\": not a valid field selector key",
            "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must be in the range 1-100",
        ],
    );
    check(
        json!({ "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": "", "matchLabelKeys": ["a"], "namespaces": ["B"] }] } } }),
        &[
            "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].namespace: Invalid value: \"B\": a lowercase RFC 1123 label must...",
            "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set",
            "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Required value: can not be empty",
            "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Invalid value: \"\": name part must be non-empty",
            "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Invalid value: \"\": name part must consist of...",
        ],
    );
    check(
        json!({ "tolerations": [{ "value": "v" }, { "key": "a", "operator": "Exists", "value": "v" }, { "key": "a", "operator": "Lt" }, { "key": "a", "effect": "Never", "tolerationSeconds": 1 }] }),
        &[
            "spec.tolerations[0].operator: Invalid value: \"\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            "spec.tolerations[1].operator: Invalid value: \"v\": value must be empty when `operator` is 'Exists'",
            "spec.tolerations[2].operator: Unsupported value: \"Lt\": supported values: \"Equal\", \"Exists\", \"Lt\", \"Gt\"",
            "spec.tolerations[3].effect: Invalid value: \"Never\": effect must be 'NoExecute' when `tolerationSeconds` is set",
            "spec.tolerations[3].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
        ],
    );
    check(
        json!({ "topologySpreadConstraints": [{ "maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2 },
                                              { "maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway" }] }),
        &[
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
            "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: \"{z, ScheduleAnyway}\"",
            "spec.topologySpreadConstraints[0].minDomains: Invalid value: 2: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
        ],
    );
    check(
        json!({ "schedulingGates": [{ "name": "a" }, { "name": "a" }], "nodeName": "n", "readinessGates": [{ "conditionType": "a b" }] }),
        &[
            "spec.readinessGates[0].conditionType: Invalid value: \"a b\": name part must...",
            "spec.schedulingGates[1]: Duplicate value: \"a\"",
            "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
        ],
    );
}

#[test]
fn the_rest_of_a_spec_is_checked() {
    check(
        json!({ "dnsPolicy": "None" }),
        &["spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"],
    );
    check(
        json!({ "dnsConfig": { "nameservers": ["1.2.3.4", "1.2.3", "01.2.3.4", "::ffff:1.2.3.4"], "searches": [".", "_a.b.", "-"], "options": [{}] } }),
        &[
            "spec.dnsConfig.nameservers: Invalid value: [\"1.2.3.4\",\"1.2.3\",\"01.2.3.4\",\"::ffff:1.2.3.4\"]: must not have more than 3 nameservers",
            "spec.dnsConfig.nameservers[1]: Invalid value: \"1.2.3\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            "spec.dnsConfig.nameservers[2]: Invalid value: \"01.2.3.4\": must not have leading 0s",
            "spec.dnsConfig.nameservers[3]: Invalid value: \"::ffff:1.2.3.4\": must not be an IPv4-mapped IPv6 address",
            "spec.dnsConfig.searches[2]: Invalid value: \"-\": a lowercase RFC 1123 subdomain must consist of...",
            "spec.dnsConfig.options[0]: Required value: must not be empty",
        ],
    );
    check(
        json!({ "hostAliases": [{ "ip": "x", "hostnames": ["A"] }], "os": { "name": "beos" }, "preemptionPolicy": "Ask", "hostnameOverride": "h", "hostNetwork": true }),
        &[
            "spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true",
            "spec.hostAliases[0].ip: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            "spec.hostAliases[0].hostnames[0]: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of...",
            "spec.preemptionPolicy: Unsupported value: \"Ask\": supported values: \"PreemptLowerPriority\", \"Never\"",
            "spec.os: Unsupported value: \"beos\": supported values: \"linux\", \"windows\"",
        ],
    );
    check(
        json!({ "securityContext": { "runAsUser": -1, "sysctls": [{ "name": "A" }], "seccompProfile": { "type": "Localhost" }, "fsGroupChangePolicy": "Soon" } }),
        &[
            "spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
            "spec.securityContext.sysctls[0].name: Invalid value: \"A\": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
            "spec.securityContext.fsGroupChangePolicy: Unsupported value: \"Soon\": supported values: \"Always\", \"OnRootMismatch\"",
            "spec.securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
        ],
    );
    check_container(
        json!({ "securityContext": { "allowPrivilegeEscalation": false, "privileged": true, "procMount": "Unmasked" } }),
        &[
            "spec.containers[0].securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`",
            "spec.containers[0].securityContext: Invalid value: ...",
        ],
    );
    check(
        json!({ "resourceClaims": [{ "name": "a", "resourceClaimName": "x" }, { "name": "a" }] }),
        &[
            "spec.resourceClaims[1].name: Duplicate value: \"a\"",
            "spec.resourceClaims[1]: Invalid value: {\"name\":\"a\"}: must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
        ],
    );
}

#[test]
fn templates_leave_more_open_than_pods() {
    let mut template = json!({
        "metadata": { "labels": { "a": "b c" } },
        "spec": { "containers": [{ "name": "c", "image": " i ", "ports": [{ "containerPort": 80, "protocol": "TCP" }] }],
                  "hostNetwork": true, "terminationGracePeriodSeconds": -1 },
    });
    pod::default_template(&mut template);
    assert_eq!(template["spec"].get("enableServiceLinks"), None);
    assert_eq!(template["spec"]["containers"][0]["ports"][0].get("hostPort"), None);
    let told = texts(&pod::validate_template(&At::rooted("spec.template", Some(&template))));
    compare(&told, &["spec.template.labels: Invalid value: \"b c\": a valid label must be..."], &template);
    let told = pod::template_warnings(&At::rooted("spec.template", Some(&template)));
    let grace = "spec.template.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1";
    assert_eq!(told, [grace]);
}

#[test]
fn the_server_decides_status_class_and_tolerations() {
    for (resources, class) in [
        (json!({}), "BestEffort"),
        (json!({ "limits": { "cpu": "1", "memory": "1Gi" } }), "Guaranteed"),
        (json!({ "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "500m" } }), "Burstable"),
        (json!({ "requests": { "cpu": "500m" } }), "Burstable"),
        (json!({ "limits": { "ephemeral-storage": "1Gi" } }), "BestEffort"),
    ] {
        let pod = created(json!({ "containers": [{ "name": "c", "image": "i", "resources": resources }] }));
        assert_eq!(pod["status"], json!({ "phase": "Pending", "qosClass": class }), "{resources}");
    }
    let mut pod = received(&written(
        json!({ "containers": [{ "name": "c", "image": "i", "resources": { "limits": { "cpu": "0.0001" } } }] }),
    ));
    assert_eq!(
        pod["spec"]["containers"][0]["resources"],
        json!({ "limits": { "cpu": "1m" }, "requests": { "cpu": "1m" } })
    );
    let again = pod.clone();
    PodRules.default(&mut pod);
    assert_eq!(pod, again, "filling in twice changes nothing");
    let pod = created(
        json!({ "tolerations": [{ "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute" }] }),
    );
    let keys: Vec<&Value> = pod["spec"]["tolerations"].as_array().unwrap().iter().map(|it| &it["key"]).collect();
    assert_eq!(keys, ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"]);
}

#[test]
fn label_keys_take_the_pods_labels() {
    let constraint = json!({ "maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["app", "none"], "labelSelector": {} });
    let mut body = written(json!({ "topologySpreadConstraints": [constraint] }));
    body["metadata"]["labels"] = json!({ "app": "x" });
    let mut pod = received(&body);
    PodRules.prepare_create(&mut pod, NOW);
    let expressions = &pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"];
    assert_eq!(*expressions, json!([{ "key": "app", "operator": "In", "values": ["x"] }]));
    assert_eq!(texts(&PodRules.validate_create(&pod)), [""; 0]);
}

/// What a change of a stored Pod's spec is refused for, and the generation it has then.
fn check_change(stored: Value, spec: Value, told: &[&str], generation: i64) {
    let old = created(stored);
    let mut new = old.clone();
    merge(&mut new["spec"], spec.clone());
    PodRules.default(&mut new);
    PodRules.prepare_update(&mut new, &old, Part::Main);
    compare(&texts(&PodRules.validate_update(&new, &old, Part::Main)), told, &spec);
    assert_eq!(new["metadata"]["generation"], generation, "{spec}");
}

#[test]
fn almost_all_of_a_spec_is_settled() {
    const SETTLED: &str = "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,\
         `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
         tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n...";
    let gated = || json!({ "schedulingGates": [{ "name": "g" }], "nodeSelector": { "a": "b" } });
    check_change(json!({}), json!({}), &[], 1);
    check_change(
        json!({}),
        json!({ "containers": [{ "name": "c", "image": "other", "imagePullPolicy": "Always" }] }),
        &[],
        2,
    );
    check_change(json!({}), json!({ "containers": [{ "name": "d", "image": "i" }] }), &[SETTLED], 2);
    check_change(json!({}), json!({ "restartPolicy": "Never" }), &[SETTLED], 2);
    check_change(
        json!({}),
        json!({ "tolerations": [{ "operator": "Exists" }] }),
        &["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"],
        2,
    );
    check_change(json!({}), json!({ "tolerations": [] }), &[], 1);
    check_change(
        json!({ "activeDeadlineSeconds": 5 }),
        json!({ "activeDeadlineSeconds": null }),
        &["spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value"],
        2,
    );
    check_change(json!({ "terminationGracePeriodSeconds": -5 }), json!({ "terminationGracePeriodSeconds": 1 }), &[], 2);
    check_change(
        json!({ "terminationGracePeriodSeconds": 5 }),
        json!({ "terminationGracePeriodSeconds": 1 }),
        &[SETTLED],
        2,
    );
    check_change(gated(), json!({ "nodeSelector": { "a": "b", "c": "d" } }), &[], 2);
    check_change(
        gated(),
        json!({ "nodeSelector": { "c": "d" } }),
        &[
            "spec.nodeSelector: Invalid value: {\"c\":\"d\"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)",
        ],
        2,
    );
    check_change(gated(), json!({ "schedulingGates": [] }), &[], 2);
    check_change(
        gated(),
        json!({ "schedulingGates": [{ "name": "h" }] }),
        &["spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'h'"],
        2,
    );
    let required = |terms: Value| json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } });
    let term = |keys: &[&str]| {
        let expressions: Vec<Value> = keys.iter().map(|key| json!({ "key": key, "operator": "Exists" })).collect();
        json!({ "matchExpressions": expressions })
    };
    check_change(gated(), json!({ "affinity": required(json!([term(&["a"])])) }), &[], 2);
    let mut with_term = gated();
    with_term["affinity"] = required(json!([term(&["a"])]));
    check_change(with_term.clone(), json!({ "affinity": required(json!([term(&["a", "b"])])) }), &[], 2);
    check_change(
        with_term.clone(),
        json!({ "affinity": required(json!([term(&["a"]), term(&["b"])])) }),
        &[
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Invalid value: ...",
        ],
        2,
    );
    check_change(
        with_term,
        json!({ "affinity": required(json!([term(&["b"])])) }),
        &[
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]: Invalid value: ...",
        ],
        2,
    );
}

#[test]
fn a_refused_change_is_shown() {
    let old = created(json!({}));
    let mut new = old.clone();
    new["spec"]["restartPolicy"] = "Never".into();
    let told = texts(&PodRules.validate_update(&new, &old, Part::Main)).join("");
    let difference: Vec<&str> = told.lines().filter(|line| line.starts_with(['+', '-'])).collect();
    assert_eq!(difference, ["- \"restartPolicy\": \"Always\",", "+ \"restartPolicy\": \"Never\","]);
}

#[test]
fn amounts_that_mean_the_same_are_no_change() {
    let with = |memory: &str| json!({ "containers": [{ "name": "c", "image": "i", "resources": { "limits": { "memory": memory } } }] });
    let (old, mut new) = (created(with("1Gi")), created(with("1073741824")));
    PodRules.prepare_update(&mut new, &old, Part::Main);
    assert_eq!(
        (&new["metadata"]["generation"], texts(&PodRules.validate_update(&new, &old, Part::Main))),
        (&json!(1), vec![])
    );
}

/// What a new status is refused for, on a Pod that never restarts and ran on node `n` with status `stored`.
fn check_status(stored: Value, status: Value, told: &[&str]) {
    let mut old = created(json!({ "restartPolicy": "Never", "nodeName": "n" }));
    merge(&mut old["status"], stored);
    let mut new = old.clone();
    merge(&mut new["status"], status.clone());
    PodRules.default(&mut new);
    PodRules.prepare_update(&mut new, &old, Part::Status);
    compare(&texts(&PodRules.validate_update(&new, &old, Part::Status)), told, &status);
}

#[test]
fn what_a_status_may_not_say() {
    let ended =
        |code: i64| json!({ "containerStatuses": [{ "name": "c", "state": { "terminated": { "exitCode": code } } }] });
    let running = json!({ "containerStatuses": [{ "name": "c", "state": { "running": {} } }] });
    check_status(json!({}), ended(1), &[]);
    check_status(running.clone(), ended(0), &[]);
    check_status(
        ended(0),
        running,
        &["status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"],
    );
    check_status(
        json!({}),
        json!({ "qosClass": "Guaranteed" }),
        &["status.qosClass: Invalid value: \"Guaranteed\": field is immutable"],
    );
    check_status(
        json!({}),
        json!({ "conditions": [{ "type": "a b", "status": "True" }] }),
        &["status.conditions[0].Type: Invalid value: \"a b\": name part must..."],
    );
    check_status(
        json!({}),
        json!({ "nominatedNodeName": "m" }),
        &["status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node"],
    );
    check_status(
        json!({}),
        json!({ "podIPs": [{ "ip": "x" }] }),
        &["status.podIPs[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"],
    );
    check_status(json!({}), json!({ "podIPs": [{ "ip": "1.2.3.4" }, { "ip": "::1" }] }), &[]);
    check_status(
        json!({}),
        json!({ "podIPs": [{ "ip": "1.2.3.4" }, { "ip": "1.2.3.5" }] }),
        &["status.podIPs: Invalid value: ..."],
    );
    check_status(
        json!({}),
        json!({ "hostIP": "1.2.3.4", "hostIPs": [{ "ip": "1.2.3.5" }] }),
        &["status.hostIPs[0].ip: Invalid value: \"1.2.3.5\": must be equal to `hostIP`"],
    );
}

#[test]
fn a_status_write_keeps_spec_owners_and_class() {
    let old = created(json!({}));
    let mut new = old.clone();
    new["spec"]["restartPolicy"] = "Never".into();
    new["metadata"]["ownerReferences"] = json!([{ "uid": "u" }]);
    new["metadata"]["labels"] = json!({ "a": "b" });
    new["status"] = json!({ "phase": "Running", "podIP": "1.2.3.4" });
    PodRules.default(&mut new);
    PodRules.prepare_update(&mut new, &old, Part::Status);
    assert_eq!(new["spec"], old["spec"]);
    assert_eq!(new["metadata"]["labels"], json!({ "a": "b" }));
    assert_eq!(new["metadata"].get("ownerReferences"), None);
    let status =
        json!({ "phase": "Running", "podIP": "1.2.3.4", "podIPs": [{ "ip": "1.2.3.4" }], "qosClass": "BestEffort" });
    assert_eq!(new["status"], status);
}

#[test]
fn pods_are_warned_about() {
    let pod = created(json!({
        "nodeSelector": { "beta.kubernetes.io/os": "linux" },
        "imagePullSecrets": [{ "name": "a" }, { "name": "a" }],
        "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule" }],
        "containers": [{ "name": "c", "image": "i", "resources": { "limits": { "memory": "100m" } },
            "env": [{ "name": "A", "value": "1" }, { "name": "A", "value": "$(A)2" }, { "name": "A", "value": "3" }],
            "ports": [{ "containerPort": 80, "name": "w" }, { "containerPort": 80, "name": "w2" }] }],
        "volumes": [{ "name": "g", "gitRepo": { "repository": "r" } },
                    { "name": "m", "configMap": { "name": "x", "items": [{ "key": "a", "path": "p" }, { "key": "b", "path": "p/q" }] } }],
    }));
    assert_eq!(
        PodRules.create_warnings(&pod),
        [
            "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
            "spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
            "spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
            "volume \"m\" (ConfigMap \"x\"): overlapping paths: \"p/q\" with \"p\"",
            "spec.imagePullSecrets[1].name: duplicate name \"a\"",
            "spec.containers[0].resources.limits[memory]: fractional byte value \"100m\" is invalid, must be an integer",
            "spec.containers[0].resources.requests[memory]: fractional byte value \"100m\" is invalid, must be an integer",
            "spec.containers[0].env[2]: hides previous definition of \"A\", which may be dropped when using apply",
            "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
        ]
    );
}

#[test]
fn warnings_about_pairs_have_an_end() {
    let ports: Vec<Value> = (0..2000).map(|_| json!({ "containerPort": 80 })).collect();
    let pod = created(json!({ "containers": [{ "name": "c", "image": "i", "ports": ports }] }));
    assert!((100..2000).contains(&PodRules.create_warnings(&pod).len()));
}

#[test]
fn a_pod_is_bound_once() {
    let binding =
        json!({ "metadata": { "name": "p", "labels": { "zone": "z" } }, "target": { "kind": "Node", "name": "n" } });
    let mut bound = created(json!({}));
    pod::bind(&mut bound, &binding, NOW).unwrap();
    assert_eq!((&bound["spec"]["nodeName"], &bound["metadata"]["labels"]["zone"]), (&json!("n"), &json!("z")));
    let condition = json!({ "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2024-05-01T10:00:00Z" });
    assert_eq!(bound["status"]["conditions"], json!([condition]));
    assert_eq!(bound["metadata"]["generation"], 1);
    let gated = created(json!({ "schedulingGates": [{ "name": "g" }] }));
    let mut of_another = created(json!({}));
    of_another["metadata"]["uid"] = "one".into();
    let mut for_another = binding.clone();
    for_another["metadata"]["uid"] = "two".into();
    for (mut pod, binding, told) in [
        (
            bound,
            &binding,
            "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\"",
        ),
        (
            gated,
            &binding,
            "Operation cannot be fulfilled on pods/binding \"p\": pod p has non-empty .spec.schedulingGates",
        ),
        (
            of_another,
            &for_another,
            "Operation cannot be fulfilled on pods \"p\": StorageError: invalid object, Code: 4, Key: /registry/pods//p, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: two, UID in object meta: one",
        ),
        (created(json!({})), &json!({ "target": {} }), "target.name: Required value"),
    ] {
        let before = pod.clone();
        assert_eq!(pod::bind(&mut pod, binding, NOW).unwrap_err().message, told);
        assert_eq!(pod, before);
    }
}

#[test]
fn grace_is_for_pods_that_run() {
    for (spec, phase, asked, seconds) in [
        (json!({}), "Pending", Some(60), 0),
        (json!({ "nodeName": "n" }), "Pending", None, 30),
        (json!({ "nodeName": "n" }), "Running", Some(5), 5),
        (json!({ "nodeName": "n" }), "Running", Some(-5), 1),
        (json!({ "nodeName": "n", "terminationGracePeriodSeconds": -1 }), "Running", None, 1),
        (json!({ "nodeName": "n" }), "Succeeded", Some(60), 0),
        (json!({ "nodeName": "n" }), "Failed", None, 0),
    ] {
        let mut pod = created(spec.clone());
        pod["status"]["phase"] = phase.into();
        assert_eq!(pod::grace_period(&pod, asked), seconds, "{spec} {phase} {asked:?}");
    }
}

#[test]
fn an_evicted_pod_is_marked_once() {
    let mut pod = created(json!({}));
    pod::add_disruption_target(&mut pod, NOW);
    let marked = pod.clone();
    pod::add_disruption_target(&mut pod, Timestamp::from_seconds(1_800_000_000));
    assert_eq!(pod, marked);
    assert_eq!(pod["status"]["conditions"][0]["reason"], "EvictionByEvictionAPI");
}

#[test]
fn priority_comes_from_the_class() {
    let class = |name: &str| {
        (name == "high").then(|| json!({ "metadata": { "name": "high" }, "value": 7, "preemptionPolicy": "Never" }))
    };
    for (spec, answer) in [
        (json!({}), Ok((0, "PreemptLowerPriority"))),
        (json!({ "priorityClassName": "high" }), Ok((7, "Never"))),
        (json!({ "priorityClassName": "system-node-critical" }), Ok((2_000_001_000, "PreemptLowerPriority"))),
        (json!({ "priorityClassName": "none" }), Err("no PriorityClass with name none was found")),
        (
            json!({ "priority": 5 }),
            Err(
                "the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name",
            ),
        ),
    ] {
        let mut pod = received(&written(spec.clone()));
        let found = pod::admit_priority(&mut pod, class, || None);
        match answer {
            Err(told) => assert_eq!(found, Err(told.to_owned())),
            Ok((priority, policy)) => {
                assert_eq!(found, Ok(()), "{spec}");
                assert_eq!(
                    (&pod["spec"]["priority"], &pod["spec"]["preemptionPolicy"]),
                    (&json!(priority), &json!(policy))
                );
            }
        }
    }
}
