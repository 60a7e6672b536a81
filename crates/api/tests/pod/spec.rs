//! The errors of a spec, part by part.

use tally_value::json;

use super::{check, check_container, merge};

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
    // For an init container only the first error is reported.
    let rules = json!([{ "action": "Restart", "exitCodes": { "operator": "Is" } }]);
    check(
        json!({ "initContainers": [{ "name": "n", "image": "i", "restartPolicyRules": rules }] }),
        &[
            "spec.initContainers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used",
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
    let ports = json!([{ "containerPort": 1, "hostPort": 9 }, { "containerPort": 2, "hostPort": 9 }]);
    check(
        json!({ "initContainers": [{ "name": "a", "image": "i" }, { "name": "b", "image": "i", "ports": ports }] }),
        &["spec.initContainers[0].ports[1].hostPort: Duplicate value: \"TCP//9\""],
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
        json!({ "os": { "name": "windows" }, "hostPID": true, "hostUsers": false, "shareProcessNamespace": false,
            "securityContext": { "seLinuxOptions": {}, "fsGroup": 1, "runAsUser": 1 } }),
        &[
            "spec.HostPID: Forbidden: when `hostUsers` is false",
            "spec.securityContext.seLinuxOptions: Forbidden: cannot be set for a windows pod",
            "spec.hostUsers: Forbidden: cannot be set for a windows pod",
            "spec.hostPID: Forbidden: cannot be set for a windows pod",
            "spec.securityContext.fsGroup: Forbidden: cannot be set for a windows pod",
            "spec.shareProcessNamespace: Forbidden: cannot be set for a windows pod",
            "spec.securityContext.runAsUser: Forbidden: cannot be set for a windows pod",
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
