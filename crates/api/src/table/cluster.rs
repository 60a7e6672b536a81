//! Nodes, namespaces, events, and the kinds that provide data to Pods.

use std::collections::BTreeSet;

use tally_value::{Text, Value};

use super::row::{NONE, Row, or};
use super::{AGE, Column, NAME};

const UNKNOWN: &str = "<unknown>";

pub(super) static NODES: &[Column] = &[
    NAME,
    Column::text("Status", "Whether the node is ready, and takes new Pods.", node_status),
    Column::text("Roles", "What the node is for, by its labels.", node_roles),
    AGE,
    Column::text("Version", "The version of the node's agent.", |row| {
        row.text("/status/nodeInfo/kubeletVersion").into()
    }),
    Column::text("Internal-IP", "The address inside the cluster.", |row| node_address(row, "InternalIP")).wide(),
    Column::text("External-IP", "The address from outside.", |row| node_address(row, "ExternalIP")).wide(),
    Column::text("OS-Image", "The operating system.", |row| row.text_or("/status/nodeInfo/osImage", UNKNOWN).into())
        .wide(),
    Column::text("Kernel-Version", "The kernel.", |row| row.text_or("/status/nodeInfo/kernelVersion", UNKNOWN).into())
        .wide(),
    Column::text("Container-Runtime", "What runs the containers, and its version.", |row| {
        row.text_or("/status/nodeInfo/containerRuntimeVersion", UNKNOWN).into()
    })
    .wide(),
];

pub(super) static NAMESPACES: &[Column] =
    &[NAME, Column::text("Status", "Whether it is in use or going away.", |row| row.text("/status/phase").into()), AGE];

pub(super) static EVENTS: &[Column] = &[
    Column::text("Last Seen", "Time since it happened last.", |row| last_seen(row).into()),
    Column::text("Type", "How serious it is.", |row| row.text("/type").into()),
    Column::text("Reason", "What happened, in one word.", |row| row.text("/reason").into()),
    Column::text("Object", "What it happened to.", event_object),
    Column::text("Subobject", "The part it happened to.", |row| row.text("/involvedObject/fieldPath").into()).wide(),
    Column::text("Source", "Who reports it.", event_source).wide(),
    Column::text("Message", "What happened.", |row| row.text("/message").trim().into()),
    Column::text("First Seen", "Time since it happened first.", |row| first_seen(row).into()).wide(),
    Column::text("Count", "How often it happened.", event_count).wide(),
    NAME.wide(),
];

pub(super) static LEASES: &[Column] =
    &[NAME, Column::text("Holder", "Who holds it.", |row| row.text("/spec/holderIdentity").into()), AGE];

pub(super) static SERVICES: &[Column] = &[
    NAME,
    Column::text("Type", "How the service is reached.", |row| row.text("/spec/type").into()),
    Column::text("Cluster-IP", "Its address inside the cluster.", cluster_ip),
    Column::text("External-IP", "Its addresses from outside.", external_ip),
    Column::text("Port(s)", "The ports it listens on.", service_ports),
    AGE,
    Column::text("Selector", "The labels of the Pods behind it.", |row| row.labels("/spec/selector")).wide(),
];

pub(super) static ENDPOINTS: &[Column] =
    &[NAME, Column::text("Endpoints", "The addresses behind the service.", endpoints), AGE];

pub(super) static SERVICE_ACCOUNTS: &[Column] = &[NAME, AGE];

pub(super) static CONFIG_MAPS: &[Column] = &[
    NAME,
    Column::text("Data", "How many entries it has.", |row| (row.count("/data") + row.count("/binaryData")).into()),
    AGE,
];

pub(super) static SECRETS: &[Column] = &[
    NAME,
    Column::text("Type", "What kind of secret it is.", |row| row.text("/type").into()),
    Column::text("Data", "How many entries it has.", |row| row.count("/data").into()),
    AGE,
];

pub(super) static CLAIMS: &[Column] = &[
    NAME,
    Column::text("Status", "Whether it has got its volume.", claim_status),
    Column::text("Volume", "The volume it is bound to.", |row| row.text("/spec/volumeName").into()),
    Column::text("Capacity", "The size of that volume.", |row| {
        if row.text("/spec/volumeName").is_empty() { "".into() } else { row.text("/status/capacity/storage").into() }
    }),
    Column::text("Access Modes", "Who may use that volume at a time.", access_modes),
    Column::text("StorageClass", "The class of storage it asks for.", storage_class),
    Column::text("VolumeAttributesClass", "The class of changeable attributes it asks for.", |row| {
        row.text_or("/spec/volumeAttributesClassName", "<unset>").into()
    }),
    AGE,
    Column::text("VolumeMode", "File system or raw device.", |row| row.text_or("/spec/volumeMode", "<unset>").into())
        .wide(),
];

pub(super) static QUOTAS: &[Column] = &[
    NAME,
    Column::text("Request", "Used of what may be requested.", |row| quota(row, false)),
    Column::text("Limit", "Used of what limits may add up to.", |row| quota(row, true)),
    AGE,
];

pub(super) static PRIORITY_CLASSES: &[Column] = &[
    NAME,
    Column::integer("Value", "The priority; higher goes first.", |row| row.int("/value").into()),
    Column::new("Global-Default", "boolean", "Whether Pods without a class get it.", |row| {
        (row.object.get("globalDefault") == Some(&Value::Bool(true))).into()
    }),
    AGE,
    Column::text("PreemptionPolicy", "Whether Pods of it push others out.", |row| row.text("/preemptionPolicy").into()),
];

pub(super) static DISRUPTION_BUDGETS: &[Column] = &[
    NAME,
    Column::text("Min Available", "How many Pods must stay.", |row| number_or_share(row, "/spec/minAvailable")),
    Column::text("Max Unavailable", "How many Pods may be missing.", |row| {
        number_or_share(row, "/spec/maxUnavailable")
    }),
    Column::integer("Allowed Disruptions", "How many Pods may be evicted now.", |row| {
        row.int("/status/disruptionsAllowed").into()
    }),
    AGE,
];

pub(super) static ROLE_BINDINGS: &[Column] = &[
    NAME,
    Column::text("Role", "What it allows.", |row| {
        format!("{}/{}", row.text("/roleRef/kind"), row.text("/roleRef/name")).into()
    }),
    AGE,
    Column::text("Users", "The users it allows that.", |row| subjects(row, "User")).wide(),
    Column::text("Groups", "The groups it allows that.", |row| subjects(row, "Group")).wide(),
    Column::text("ServiceAccounts", "The service accounts it allows that.", |row| subjects(row, "ServiceAccount"))
        .wide(),
];

fn node_status(row: &Row) -> Value {
    let ready = row.list("/status/conditions").iter().rfind(|condition| condition["type"] == "Ready");
    let ready = match ready {
        Some(condition) if condition["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let cordoned = row.object.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
    if cordoned { format!("{ready},SchedulingDisabled").into() } else { ready.into() }
}

fn node_roles(row: &Row) -> Value {
    let labels = row.object.pointer("/metadata/labels").and_then(Value::as_object);
    let roles =
        labels.into_iter().flatten().filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        });
    let roles: BTreeSet<&str> = roles.filter(|role| !role.is_empty()).collect();
    or(&roles.into_iter().collect::<Vec<_>>().join(","), NONE).into()
}

fn node_address(row: &Row, kind: &str) -> Value {
    let address = row.list("/status/addresses").iter().find(|address| address["type"] == kind);
    address.and_then(|address| address["address"].as_str()).unwrap_or(NONE).into()
}

fn first_seen(row: &Row) -> String {
    let place = if row.instant("/firstTimestamp").is_some() { "/firstTimestamp" } else { "/eventTime" };
    row.since(place)
}

/// For a series, its last observation; an Event of the new API that happened once has only its own time.
fn last_seen(row: &Row) -> String {
    if row.is_set("/series") {
        row.since("/series/lastObservedTime")
    } else if row.instant("/lastTimestamp").is_some() {
        row.since("/lastTimestamp")
    } else {
        first_seen(row)
    }
}

fn event_count(row: &Row) -> Value {
    if row.is_set("/series") { row.int("/series/count").into() } else { row.int("/count").max(1).into() }
}

fn event_object(row: &Row) -> Value {
    let kind = row.text("/involvedObject/kind").to_lowercase();
    let name = row.text("/involvedObject/name");
    if name.is_empty() { kind.into() } else { format!("{kind}/{name}").into() }
}

fn event_source(row: &Row) -> Value {
    let component = or(row.text("/source/component"), row.text("/reportingComponent"));
    let instance = or(row.text("/source/host"), row.text("/reportingInstance"));
    if instance.is_empty() { component.into() } else { format!("{component}, {instance}").into() }
}

fn cluster_ip(row: &Row) -> Value {
    or(row.text("/spec/clusterIPs/0"), row.text_or("/spec/clusterIP", NONE)).into()
}

fn external_ip(row: &Row) -> Value {
    let mut addresses: Vec<&str> = row.list("/spec/externalIPs").iter().filter_map(Value::as_str).collect();
    match row.text("/spec/type") {
        "ClusterIP" | "NodePort" => or(&addresses.join(","), NONE).into(),
        "ExternalName" => row.text("/spec/externalName").into(),
        "LoadBalancer" => {
            let given = row.list("/status/loadBalancer/ingress").iter();
            let given = given.filter_map(|ingress| ingress["ip"].as_str().or_else(|| ingress["hostname"].as_str()));
            let given: BTreeSet<&str> = given.filter(|text| !text.is_empty()).collect();
            addresses.splice(0..0, given);
            or(&addresses.join(","), "<pending>").into()
        }
        _ => UNKNOWN.into(),
    }
}

fn service_ports(row: &Row) -> Value {
    let number = |port: &Value, field: &str| port[field].as_i64().unwrap_or_default();
    let ports = row.list("/spec/ports").iter().map(|port| {
        let protocol = port["protocol"].as_str().unwrap_or_default();
        match number(port, "nodePort") {
            node_port if node_port > 0 => format!("{}:{node_port}/{protocol}", number(port, "port")),
            _ => format!("{}/{protocol}", number(port, "port")),
        }
    });
    or(&ports.collect::<Vec<_>>().join(","), NONE).into()
}

/// How many endpoints are listed before the rest is only counted: a Service may have thousands.
const MOST_ENDPOINTS: usize = 3;

fn endpoints(row: &Row) -> Value {
    let subsets = row.list("/subsets");
    if subsets.is_empty() {
        return NONE.into();
    }
    let (mut listed, mut count) = (Vec::new(), 0_usize);
    for subset in subsets {
        let part = |field: &str| subset[field].as_array().map_or(&[][..], Vec::as_slice);
        let ports: Vec<Option<i64>> = match part("ports") {
            [] => vec![None],
            ports => ports.iter().map(|port| Some(port["port"].as_i64().unwrap_or_default())).collect(),
        };
        for port in ports {
            for address in part("addresses") {
                count += 1;
                if listed.len() < MOST_ENDPOINTS {
                    listed.push(host_and_port(address["ip"].as_str().unwrap_or_default(), port));
                }
            }
        }
    }
    let text = listed.join(",");
    if count > MOST_ENDPOINTS { format!("{text} + {} more...", count - MOST_ENDPOINTS).into() } else { text.into() }
}

fn host_and_port(host: &str, port: Option<i64>) -> String {
    match port {
        None => host.to_owned(),
        Some(port) if host.contains(':') => format!("[{host}]:{port}"),
        Some(port) => format!("{host}:{port}"),
    }
}

fn claim_status(row: &Row) -> Value {
    if row.is_being_deleted() { "Terminating".into() } else { row.text("/status/phase").into() }
}

fn access_modes(row: &Row) -> Value {
    if row.text("/spec/volumeName").is_empty() {
        return "".into();
    }
    let modes = row.list("/status/accessModes");
    let known =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let short = known.into_iter().filter(|(mode, _)| modes.iter().any(|one| one == mode)).map(|(_, short)| short);
    short.collect::<Vec<_>>().join(",").into()
}

fn storage_class(row: &Row) -> Value {
    // The annotation is older than the field, and takes precedence where it is still set.
    let annotation = row.text("/metadata/annotations/volume.beta.kubernetes.io~1storage-class");
    or(annotation, row.text("/spec/storageClassName")).into()
}

fn quota(row: &Row, of_limits: bool) -> Value {
    let hard = row.object.pointer("/status/hard").and_then(Value::as_object).into_iter().flatten();
    let shown = hard.filter(|(name, _)| name.starts_with("limits.") == of_limits).map(|(name, hard)| {
        let used = row.object.pointer("/status/used").and_then(|used| used.get(name)).and_then(Value::as_str);
        (name, format!("{name}: {}/{}", used.unwrap_or("0"), hard.as_str().unwrap_or("0")))
    });
    let shown: std::collections::BTreeMap<&Text, String> = shown.collect();
    shown.into_values().collect::<Vec<_>>().join(", ").into()
}

fn number_or_share(row: &Row, pointer: &str) -> Value {
    match row.object.pointer(pointer) {
        Some(Value::String(share)) => share.as_str().into(),
        Some(Value::Number(number)) => number.to_string().into(),
        _ => "N/A".into(),
    }
}

fn subjects(row: &Row, kind: &str) -> Value {
    let of_kind = row.list("/subjects").iter().filter(|subject| subject["kind"] == kind);
    let names = of_kind.map(|subject| {
        let part = |field: &str| subject[field].as_str().unwrap_or_default();
        if kind == "ServiceAccount" {
            format!("{}/{}", part("namespace"), part("name"))
        } else {
            part("name").to_owned()
        }
    });
    names.collect::<Vec<_>>().join(", ").into()
}
