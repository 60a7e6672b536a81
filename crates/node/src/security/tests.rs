use serde_json::json;

use super::*;
use crate::pod::{Container, Spec};

/// The fields of a structure in the table of the API.
fn schema(structure: &str) -> Vec<String> {
    let table = include_str!("../../../api/src/schema/core.txt");
    let block = table.lines().skip_while(|line| *line != structure).skip(1).take_while(|line| line.starts_with(' '));
    block.map(|line| line.split_ascii_whitespace().next().unwrap().to_owned()).collect()
}

#[test]
fn every_field_of_the_api_has_a_row() {
    for (structure, place) in [("PodSecurityContext", Place::Pod), ("SecurityContext", Place::Container)] {
        let fields = schema(structure);
        assert!(fields.len() > 10, "{structure}: {fields:?}");
        let mut rows: Vec<_> = ROWS.iter().filter(|row| row.place == place || row.place == Place::Both).collect();
        for field in &fields {
            assert!(rows.iter().any(|row| row.field == field), "{structure}.{field} is neither obeyed nor refused");
        }
        rows.retain(|row| !fields.iter().any(|field| row.field == field));
        assert_eq!(rows.len(), 0, "{structure} has no {}", rows[0].field);
    }
    // The rules look into these.
    assert_eq!(schema("Capabilities"), ["add", "drop"]);
    assert_eq!(schema("SeccompProfile"), ["type", "localhostProfile"]);
    assert_eq!(schema("AppArmorProfile"), ["type", "localhostProfile"]);
    // And these say which namespaces are shared.
    let spec = schema("PodSpec");
    for field in ["hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"] {
        assert!(spec.iter().any(|known| known == field), "{field}");
    }
}

/// A kind of node, by what it is called in the tables below.
fn node(kind: &str) -> (bool, SecurityAbilities) {
    let plain = SecurityAbilities::default();
    match kind {
        "root" => (true, plain),
        "isolated" => (true, SecurityAbilities { isolates: true, ..plain }),
        "user" => (false, SecurityAbilities { capabilities: 0, group: 1000, mount_namespaces: false, ..plain }),
        "user in namespaces" => (false, SecurityAbilities { capabilities: 0, group: 1000, isolates: true, ..plain }),
        "no seccomp" => (true, SecurityAbilities { seccomp: false, ..plain }),
        other => panic!("{other}"),
    }
}

fn decide(kind: &str, pod: Value, own: Value) -> Result<Confinement, String> {
    let (is_root, abilities) = node(kind);
    let spec: Spec = serde_json::from_value(pod).unwrap();
    let container = Container { security_context: serde_json::from_value(own).unwrap(), ..Container::default() };
    let node = SecurityNode { is_root, abilities: &abilities };
    confinement(&spec, &container, node, "who").map_err(|refusal| refusal.to_string())
}

#[test]
fn what_cannot_be_done_is_refused_with_the_name_of_its_field() {
    for (kind, pod, own, told) in [
        ("isolated", json!({}), json!({"privileged": true}), "securityContext.privileged: no container of this node"),
        ("user", json!({}), json!({"privileged": true}), "securityContext.privileged: this node is not run by root"),
        (
            "isolated",
            json!({}),
            json!({"capabilities": {"add": ["SYS_ADMIN"]}}),
            "securityContext.capabilities: add SYS_ADMIN: a process with it could leave",
        ),
        (
            "isolated",
            json!({}),
            json!({"capabilities": {"add": ["ALL"]}}),
            "securityContext.capabilities: add DAC_READ_SEARCH, ",
        ),
        (
            "user",
            json!({}),
            json!({"capabilities": {"add": ["NET_RAW"]}}),
            "securityContext.capabilities: add NET_RAW: this node is not run by root",
        ),
        (
            "root",
            json!({}),
            json!({"capabilities": {"drop": ["NO_SUCH"]}}),
            "securityContext.capabilities: \"NO_SUCH\" is not a capability",
        ),
        (
            "user",
            json!({}),
            json!({"readOnlyRootFilesystem": true}),
            "securityContext.readOnlyRootFilesystem: this user may not",
        ),
        (
            "isolated",
            json!({}),
            json!({"procMount": "Unmasked"}),
            "securityContext.procMount: \"Unmasked\" is not possible",
        ),
        (
            "root",
            json!({}),
            json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "x"}}),
            "securityContext.seccompProfile: type Localhost",
        ),
        (
            "no seccomp",
            json!({}),
            json!({"seccompProfile": {"type": "RuntimeDefault"}}),
            "securityContext.seccompProfile: this node has no seccomp profile",
        ),
        (
            "root",
            json!({}),
            json!({"appArmorProfile": {"type": "RuntimeDefault"}}),
            "securityContext.appArmorProfile: type RuntimeDefault",
        ),
        (
            "root",
            json!({"securityContext": {"appArmorProfile": {"type": "Localhost"}}}),
            json!({}),
            "securityContext.appArmorProfile: type Localhost",
        ),
        (
            "root",
            json!({}),
            json!({"seLinuxOptions": {"level": "s0"}}),
            "securityContext.seLinuxOptions: this node does not use SELinux",
        ),
        (
            "root",
            json!({}),
            json!({"windowsOptions": {"hostProcess": true}}),
            "securityContext.windowsOptions: this node runs Linux",
        ),
        (
            "root",
            json!({"securityContext": {"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}]}}),
            json!({}),
            "securityContext.sysctls: kernel.shm_rmid_forced: ",
        ),
        (
            "user",
            json!({"securityContext": {"fsGroup": 5}}),
            json!({}),
            "securityContext.fsGroup: 5: this node runs as group 1000",
        ),
        (
            "user",
            json!({"securityContext": {"supplementalGroups": [1000, 6]}}),
            json!({}),
            "securityContext.supplementalGroups: 6: this node",
        ),
        (
            "user",
            json!({"securityContext": {"supplementalGroupsPolicy": "Strict"}}),
            json!({}),
            "securityContext.supplementalGroupsPolicy: Strict: ",
        ),
        (
            "root",
            json!({}),
            json!({"runAsNonRoot": true}),
            "container has runAsNonRoot and image will run as root (who)",
        ),
        (
            "root",
            json!({}),
            json!({"fsGroup": 1}),
            "securityContext.fsGroup of container \"\": this node does not know",
        ),
        (
            "root",
            json!({"securityContext": {"hover": true}}),
            json!({}),
            "securityContext.hover of the Pod: this node does not know",
        ),
        ("isolated", json!({"hostPID": true}), json!({}), "hostPID: every container of this node has its own"),
        ("isolated", json!({"hostIPC": true}), json!({}), "hostIPC: every container of this node has its own"),
        ("isolated", json!({"shareProcessNamespace": true}), json!({}), "shareProcessNamespace: every container"),
        ("root", json!({"hostUsers": false}), json!({}), "hostUsers: this node has no user namespaces for Pods"),
    ] {
        let decided = decide(kind, pod.clone(), own.clone());
        let refusal = decided.expect_err(&format!("{kind} {pod} {own}"));
        assert!(refusal.starts_with(told), "{kind} {pod} {own}: {refusal}");
    }
}

#[test]
fn what_can_be_done_becomes_a_setting() {
    let plain = Confinement::default();
    let capped = |capabilities| Confinement { capabilities: Some(capabilities), ..Confinement::default() };
    let grouped = |ids: &[u32], strict| Confinement {
        groups: Some(crate::port::SupplementalGroups { ids: ids.to_vec(), strict }),
        ..Confinement::default()
    };
    let default = capabilities::DEFAULT;
    let (chown, raw) = (capabilities::named(&["CHOWN"]), capabilities::named(&["NET_RAW"]));
    for (kind, pod, own, settings) in [
        ("root", json!({}), json!({}), plain.clone()),
        ("user", json!({}), json!({}), plain.clone()),
        ("isolated", json!({}), json!({}), capped(default)),
        ("user in namespaces", json!({}), json!({}), Confinement { no_new_privileges: true, ..capped(0) }),
        ("user in namespaces", json!({}), json!({"allowPrivilegeEscalation": true}), capped(0)),
        // The names of one side differ from ALL of the other.
        ("isolated", json!({}), json!({"capabilities": {"drop": ["ALL"]}}), capped(0)),
        ("isolated", json!({}), json!({"capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}}), capped(chown)),
        ("isolated", json!({}), json!({"capabilities": {"drop": ["cap_all"], "add": ["CAP_CHOWN"]}}), capped(chown)),
        ("isolated", json!({}), json!({"capabilities": {"drop": ["chown"]}}), capped(default & !chown)),
        ("isolated", json!({}), json!({"capabilities": {"add": ["CAP_NET_RAW"]}}), capped(default | raw)),
        ("root", json!({}), json!({"capabilities": {"add": ["ALL"]}}), capped(capabilities::ALL)),
        (
            "root",
            json!({}),
            json!({"capabilities": {"add": ["ALL"], "drop": ["CHOWN"]}}),
            capped(capabilities::ALL & !chown),
        ),
        ("root", json!({}), json!({"capabilities": {"drop": ["CHOWN"]}}), capped(capabilities::ALL & !chown)),
        ("root", json!({}), json!({"capabilities": {}}), plain.clone()),
        (
            "user",
            json!({}),
            json!({"capabilities": {"drop": ["ALL"]}}),
            Confinement { no_new_privileges: true, ..capped(0) },
        ),
        ("root", json!({}), json!({"privileged": true}), plain.clone()),
        ("user", json!({}), json!({"privileged": false}), plain.clone()),
        (
            "user",
            json!({}),
            json!({"allowPrivilegeEscalation": false}),
            Confinement { no_new_privileges: true, ..plain.clone() },
        ),
        ("user", json!({}), json!({"allowPrivilegeEscalation": true}), plain.clone()),
        // Another user does not become root with the machine's own programs, unless that is wanted.
        (
            "isolated",
            json!({"securityContext": {"runAsUser": 1000}}),
            json!({}),
            Confinement { no_new_privileges: true, ..capped(default) },
        ),
        ("isolated", json!({}), json!({"runAsUser": 1000, "allowPrivilegeEscalation": true}), capped(default)),
        ("isolated", json!({}), json!({"runAsUser": 0}), capped(default)),
        ("root", json!({}), json!({"runAsUser": 1000}), plain.clone()),
        // All names are not the word ALL.
        (
            "isolated",
            json!({}),
            json!({"capabilities": {"drop": capabilities::NAMES.as_slice(), "add": ["CHOWN"]}}),
            capped(0),
        ),
        (
            "root",
            json!({}),
            json!({"readOnlyRootFilesystem": true}),
            Confinement { read_only_root: true, ..plain.clone() },
        ),
        ("user", json!({}), json!({"readOnlyRootFilesystem": false}), plain.clone()),
        ("isolated", json!({}), json!({"procMount": "Default"}), capped(default)),
        ("root", json!({}), json!({"procMount": "Unmasked"}), plain.clone()),
        (
            "root",
            json!({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}),
            json!({}),
            Confinement { seccomp: true, ..plain.clone() },
        ),
        // The container's own value applies.
        (
            "root",
            json!({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}),
            json!({"seccompProfile": {"type": "Unconfined"}}),
            plain.clone(),
        ),
        ("root", json!({}), json!({"appArmorProfile": {"type": "Unconfined"}}), plain.clone()),
        (
            "root",
            json!({"securityContext": {"fsGroup": 7, "fsGroupChangePolicy": "OnRootMismatch"}}),
            json!({}),
            grouped(&[7], false),
        ),
        (
            "root",
            json!({"securityContext": {"fsGroup": 7, "supplementalGroups": [8, 9], "supplementalGroupsPolicy": "Strict"}}),
            json!({}),
            grouped(&[8, 9, 7], true),
        ),
        ("user", json!({"securityContext": {"fsGroup": 1000}}), json!({}), grouped(&[1000], false)),
        (
            "root",
            json!({"securityContext": {"seLinuxOptions": {}, "sysctls": [], "windowsOptions": {}, "seLinuxChangePolicy": "Recursive"}}),
            json!({}),
            plain.clone(),
        ),
        (
            "root",
            json!({"securityContext": {"fsGroup": null}}),
            json!({"privileged": null, "hover": null}),
            plain.clone(),
        ),
        (
            "root",
            json!({"hostPID": true, "hostIPC": true, "shareProcessNamespace": true, "hostUsers": true}),
            json!({}),
            plain.clone(),
        ),
        ("isolated", json!({"shareProcessNamespace": false}), json!({}), capped(default)),
    ] {
        let decided = decide(kind, pod.clone(), own.clone());
        assert_eq!(decided, Ok(settings), "{kind} {pod} {own}");
    }
}

#[test]
fn volumes_belong_to_a_group_that_the_node_may_give_them() {
    for (kind, group, given) in [("root", 7, Some(7)), ("user", 7, None), ("user", 1000, Some(1000))] {
        let (is_root, abilities) = node(kind);
        let spec: Spec = serde_json::from_value(json!({"securityContext": {"fsGroup": group}})).unwrap();
        assert_eq!(volume_group(&spec, SecurityNode { is_root, abilities: &abilities }), given, "{kind} {group}");
    }
}
