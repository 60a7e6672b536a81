//! What a Pod asks for in its `securityContext`, and what this node makes of it: settings that are obeyed, or a refusal
//! that names the field. Nothing is ignored.
//!
//! Every field of the API has one row in [`ROWS`]. A field without a row is refused, and a test compares the rows with
//! the schema, so that a field that a later version of the API adds is noticed there.

use std::collections::BTreeMap;

use compact_str::CompactString;
use serde_json::Value;

use crate::capabilities::{self, CapabilitySet};
use crate::pod;
use crate::port::Confinement;

/// A `securityContext` as it is written, by field.
pub type Fields = BTreeMap<CompactString, Value>;

/// What this node can do about the security of containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecurityAbilities {
    /// Every container has mount, PID and IPC namespaces of its own, in which the node's files do not exist.
    pub isolates: bool,
    /// Containers can have a mount namespace of their own.
    pub mount_namespaces: bool,
    /// The node's capabilities: it can give no others.
    pub capabilities: CapabilitySet,
    /// There is a seccomp profile for this machine.
    pub seccomp: bool,
    /// The node's own group.
    pub group: u32,
}

impl Default for SecurityAbilities {
    /// Those of root without isolation.
    fn default() -> Self {
        Self {
            isolates: false,
            mount_namespaces: true,
            capabilities: capabilities::ALL,
            seccomp: cfg!(any(target_arch = "x86_64", target_arch = "aarch64")),
            group: 0,
        }
    }
}

/// The node: its abilities, and whether it is root.
#[derive(Clone, Copy, Debug)]
pub struct SecurityNode<'a> {
    pub is_root: bool,
    pub abilities: &'a SecurityAbilities,
}

/// Why a container is not started: the message of its waiting reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SecurityRefusal(String);

/// The objects in which a field occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Pod,
    Container,
    /// In both; the container's value applies if it has one.
    Both,
}

/// A value of a field, with what it may depend on.
struct Request<'a> {
    value: &'a Value,
    fields: Merged<'a>,
    node: SecurityNode<'a>,
}

/// The fields of a container and of its Pod.
#[derive(Clone, Copy)]
struct Merged<'a> {
    pod: &'a Fields,
    own: &'a Fields,
}

impl<'a> Merged<'a> {
    /// A null means that the field is not set.
    fn get(self, name: &str) -> Option<&'a Value> {
        let set = |fields: &'a Fields| fields.get(name).filter(|value| !value.is_null());
        set(self.own).or_else(|| set(self.pod))
    }

    fn id(self, name: &str) -> Option<i64> {
        self.get(name).and_then(Value::as_i64)
    }
}

/// How one field is treated. The rule adds what it obeys to the settings, or says why it cannot.
pub struct Row {
    pub field: &'static str,
    pub place: Place,
    rule: fn(&Request<'_>, &mut Confinement) -> Result<(), String>,
}

/// In the order in which the rules apply.
pub const ROWS: &[Row] = &[
    // The launcher changes the user and the group, and refuses what it may not.
    Row { field: "runAsUser", place: Place::Both, rule: obeyed_elsewhere },
    Row { field: "runAsGroup", place: Place::Both, rule: obeyed_elsewhere },
    Row { field: "runAsNonRoot", place: Place::Both, rule: run_as_non_root },
    Row { field: "privileged", place: Place::Container, rule: privileged },
    Row { field: "capabilities", place: Place::Container, rule: capability_lists },
    Row { field: "allowPrivilegeEscalation", place: Place::Container, rule: allow_privilege_escalation },
    Row { field: "readOnlyRootFilesystem", place: Place::Container, rule: read_only_root },
    Row { field: "procMount", place: Place::Container, rule: proc_mount },
    Row { field: "seccompProfile", place: Place::Both, rule: seccomp_profile },
    Row { field: "appArmorProfile", place: Place::Both, rule: app_armor_profile },
    Row { field: "seLinuxOptions", place: Place::Both, rule: se_linux_options },
    // Without seLinuxOptions, which are refused, no volume is relabelled.
    Row { field: "seLinuxChangePolicy", place: Place::Pod, rule: obeyed_elsewhere },
    Row { field: "windowsOptions", place: Place::Both, rule: windows_options },
    Row { field: "supplementalGroups", place: Place::Pod, rule: supplemental_groups },
    Row { field: "supplementalGroupsPolicy", place: Place::Pod, rule: supplemental_groups_policy },
    Row { field: "fsGroup", place: Place::Pod, rule: fs_group },
    // It concerns volumes that exist before the Pod, and this node has none that it changes the owner of.
    Row { field: "fsGroupChangePolicy", place: Place::Pod, rule: obeyed_elsewhere },
    Row { field: "sysctls", place: Place::Pod, rule: sysctls },
];

/// How the processes of a container are confined, or which field prevents its start. `who` names the Pod and the
/// container, for messages.
pub fn confinement(
    pod: &pod::Spec,
    own: &pod::Container,
    node: SecurityNode<'_>,
    who: &str,
) -> Result<Confinement, SecurityRefusal> {
    namespaces(pod, node)?;
    let fields = Merged { pod: &pod.security_context, own: &own.security_context };
    for (context, place, owner) in [
        (fields.pod, Place::Pod, "the Pod".to_owned()),
        (fields.own, Place::Container, format!("container {:?}", own.name.as_str())),
    ] {
        let unknown = |(name, value): &(&CompactString, &Value)| {
            let known = |row: &Row| row.field == name.as_str() && (row.place == place || row.place == Place::Both);
            !value.is_null() && !ROWS.iter().any(known)
        };
        if let Some((name, _)) = context.iter().find(unknown) {
            let message = format!("securityContext.{name} of {owner}: this node does not know the field");
            return Err(SecurityRefusal(message));
        }
    }
    let mut settings = Confinement { capabilities: default_capabilities(node), ..Confinement::default() };
    // The programs of the machine with which a user becomes root (su, sudo) are there, and a container can mount files
    // over those that say who may.
    let is_unprivileged = !node.is_root || fields.id("runAsUser").is_some_and(|user| user != 0);
    settings.no_new_privileges =
        node.abilities.isolates && is_unprivileged && fields.get("allowPrivilegeEscalation").is_none();
    for row in ROWS {
        let Some(value) = fields.get(row.field) else { continue };
        let request = Request { value, fields, node };
        (row.rule)(&request, &mut settings).map_err(|why| match row.field {
            // In the words of the kubelet, which name the policy.
            "runAsNonRoot" => SecurityRefusal(format!("{why} ({who})")),
            field => SecurityRefusal(format!("securityContext.{field}: {why}")),
        })?;
    }
    Ok(settings)
}

/// The group that owns the volumes. None: none is requested, or the request is refused.
pub fn volume_group(pod: &pod::Spec, node: SecurityNode<'_>) -> Option<u32> {
    let fields = Merged { pod: &pod.security_context, own: &Fields::new() };
    let group = fields.id("fsGroup").and_then(|group| u32::try_from(group).ok())?;
    may_use_group(group, node).then_some(group)
}

/// The fields of the Pod itself that say which namespaces its containers share.
fn namespaces(pod: &pod::Spec, node: SecurityNode<'_>) -> Result<(), SecurityRefusal> {
    let own = "every container of this node has its own; start Tally with --isolate=false to share the machine's";
    for (field, wanted) in [
        ("hostPID", pod.host_pid),
        ("hostIPC", pod.host_ipc),
        ("shareProcessNamespace", pod.share_process_namespace == Some(true)),
    ] {
        if wanted && node.abilities.isolates {
            return Err(SecurityRefusal(format!("{field}: {own}")));
        }
    }
    if pod.host_users == Some(false) {
        return Err(SecurityRefusal("hostUsers: this node has no user namespaces for Pods".to_owned()));
    }
    Ok(())
}

/// None: the capabilities stay as they are. A container that an ordinary user isolates has none to gain either: in its user
/// namespace, a program with file capabilities could uncover what the mounts hide.
fn default_capabilities(node: SecurityNode<'_>) -> Option<CapabilitySet> {
    let default = if node.is_root { capabilities::DEFAULT } else { 0 };
    node.abilities.isolates.then_some(default & node.abilities.capabilities)
}

fn obeyed_elsewhere(_: &Request<'_>, _: &mut Confinement) -> Result<(), String> {
    Ok(())
}

fn run_as_non_root(request: &Request<'_>, _: &mut Confinement) -> Result<(), String> {
    if request.value != &Value::Bool(true) {
        return Ok(());
    }
    match request.fields.id("runAsUser") {
        Some(0) => Err("container's runAsUser breaks non-root policy".to_owned()),
        None if request.node.is_root => Err("container has runAsNonRoot and image will run as root".to_owned()),
        _ => Ok(()),
    }
}

/// A container of a node that does not isolate has all rights of the node.
fn privileged(request: &Request<'_>, _: &mut Confinement) -> Result<(), String> {
    match (request.value, request.node.is_root, request.node.abilities.isolates) {
        (Value::Bool(true), true, true) => Err("no container of this node has the rights of the machine; start Tally \
                                                with --isolate=false for Pods that need them"
            .to_owned()),
        (Value::Bool(true), false, _) => Err("this node is not run by root, and can give no rights".to_owned()),
        _ => Ok(()),
    }
}

fn capability_lists(request: &Request<'_>, settings: &mut Confinement) -> Result<(), String> {
    let list = |name: &str| -> Result<CapabilitySet, String> {
        let names = request.value.get(name).and_then(Value::as_array).into_iter().flatten();
        names.map(|name| capabilities::parse(name.as_str().unwrap_or_default())).try_fold(0, |all, one| Ok(all | one?))
    };
    let (add, drop) = (list("add")?, list("drop")?);
    // The word, not a list of all names: with it, what is added is all there is.
    let drops = request.value.get("drop").and_then(Value::as_array).into_iter().flatten();
    let drops_all = drops.filter_map(Value::as_str).any(capabilities::is_all);
    let node = request.node;
    if add != 0 {
        if !node.is_root {
            return Err(format!("add {}: this node is not run by root, and has none to give", capabilities::list(add)));
        }
        let unsafe_here = if node.abilities.isolates { add & capabilities::UNSAFE } else { 0 };
        if unsafe_here != 0 && !(add == capabilities::ALL && drops_all) {
            return Err(format!(
                "add {}: a process with it could leave its isolation; start Tally with --isolate=false for Pods that need it",
                capabilities::list(unsafe_here)
            ));
        }
        let lacking = add & !node.abilities.capabilities;
        if add != capabilities::ALL && lacking != 0 {
            return Err(format!("add {}: the node does not have it", capabilities::list(lacking)));
        }
    }
    if add | drop == 0 {
        return Ok(());
    }
    // As container runtimes do: `ALL` on one side is the start, from which the names of the other side differ.
    let start = settings.capabilities.unwrap_or(node.abilities.capabilities);
    let result = match (add == capabilities::ALL, drops_all) {
        (_, true) if add != capabilities::ALL => add,
        (true, _) => node.abilities.capabilities & !drop,
        _ => (start | add) & !drop,
    };
    settings.capabilities = Some(result & node.abilities.capabilities);
    // Only root can shorten the list of what a setuid program gains; without the right to gain anything, it is short.
    settings.no_new_privileges |= drop != 0 && !node.is_root;
    Ok(())
}

fn allow_privilege_escalation(request: &Request<'_>, settings: &mut Confinement) -> Result<(), String> {
    settings.no_new_privileges |= request.value == &Value::Bool(false);
    Ok(())
}

fn read_only_root(request: &Request<'_>, settings: &mut Confinement) -> Result<(), String> {
    settings.read_only_root = request.value == &Value::Bool(true);
    if settings.read_only_root && !request.node.abilities.mount_namespaces {
        return Err("this user may not make a mount namespace here; run Tally as root".to_owned());
    }
    Ok(())
}

/// Without isolation /proc is the machine's own, with nothing masked; the API's default does not ask for more.
fn proc_mount(request: &Request<'_>, _: &mut Confinement) -> Result<(), String> {
    match request.value.as_str() {
        Some("Default" | "") => Ok(()),
        Some("Unmasked") if !request.node.abilities.isolates => Ok(()),
        _ => Err(format!("{} is not possible here: parts of /proc concern the whole machine", request.value)),
    }
}

fn seccomp_profile(request: &Request<'_>, settings: &mut Confinement) -> Result<(), String> {
    match kind(request.value) {
        "Unconfined" => Ok(()),
        "RuntimeDefault" if request.node.abilities.seccomp => {
            settings.seccomp = true;
            Ok(())
        }
        "RuntimeDefault" => Err("this node has no seccomp profile for this machine".to_owned()),
        other => Err(format!("type {other}: this node has RuntimeDefault and Unconfined, and reads no profiles")),
    }
}

fn app_armor_profile(request: &Request<'_>, _: &mut Confinement) -> Result<(), String> {
    match kind(request.value) {
        "Unconfined" => Ok(()),
        other => Err(format!("type {other}: this node does not use AppArmor")),
    }
}

fn kind(profile: &Value) -> &str {
    profile.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn se_linux_options(request: &Request<'_>, _: &mut Confinement) -> Result<(), String> {
    if is_empty(request.value) { Ok(()) } else { Err("this node does not use SELinux".to_owned()) }
}

fn windows_options(request: &Request<'_>, _: &mut Confinement) -> Result<(), String> {
    if is_empty(request.value) { Ok(()) } else { Err("this node runs Linux".to_owned()) }
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(serde_json::Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

fn supplemental_groups(request: &Request<'_>, settings: &mut Confinement) -> Result<(), String> {
    for group in request.value.as_array().into_iter().flatten() {
        add_group(group, request.node, settings)?;
    }
    Ok(())
}

fn supplemental_groups_policy(request: &Request<'_>, settings: &mut Confinement) -> Result<(), String> {
    let merges = match request.value.as_str() {
        Some("Merge" | "") => true,
        Some("Strict") => false,
        _ => return Err(format!("{} is not Merge or Strict", request.value)),
    };
    if !merges && !request.node.is_root {
        return Err("Strict: this node is not run by root, and cannot leave its own groups".to_owned());
    }
    if !merges {
        settings.groups.get_or_insert_default().strict = true;
    }
    Ok(())
}

fn fs_group(request: &Request<'_>, settings: &mut Confinement) -> Result<(), String> {
    add_group(request.value, request.node, settings)
}

fn add_group(group: &Value, node: SecurityNode<'_>, settings: &mut Confinement) -> Result<(), String> {
    let group = group.as_u64().and_then(|group| u32::try_from(group).ok());
    let group = group.ok_or("it is not the number of a group")?;
    if !may_use_group(group, node) {
        let own = node.abilities.group;
        return Err(format!("{group}: this node runs as group {own} and cannot become another"));
    }
    settings.groups.get_or_insert_default().ids.push(group);
    Ok(())
}

fn may_use_group(group: u32, node: SecurityNode<'_>) -> bool {
    node.is_root || group == node.abilities.group
}

fn sysctls(request: &Request<'_>, _: &mut Confinement) -> Result<(), String> {
    let first = request.value.get(0).and_then(|sysctl| sysctl.get("name")).and_then(Value::as_str);
    match first {
        None => Ok(()),
        Some(name) => Err(format!("{name}: Pods of this node share the kernel parameters of the machine")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
