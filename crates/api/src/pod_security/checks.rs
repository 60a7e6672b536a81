//! The checks of the levels `baseline` and `restricted`, in the order in which their violations are told.

use std::collections::BTreeSet;

use tally_value::{Text, Value};

use super::ids::{self, PodIds};
use super::{RulesVersion, SecurityLevel, SecurityPolicy};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub reason: &'static str,
    pub detail: String,
}

/// A check, and the minor versions in which it applies: from the first to the one before the second, if there is one.
struct Check {
    since: u32,
    until: Option<u32>,
    check: fn(&Pod<'_>) -> Option<Violation>,
}

const fn since(since: u32, check: fn(&Pod<'_>) -> Option<Violation>) -> Check {
    Check { since, until: None, check }
}

const BASELINE: [Check; 12] = [
    since(0, app_armor),
    since(0, default_capabilities),
    since(0, host_namespaces),
    since(0, host_path_volumes),
    since(0, host_ports),
    since(34, probe_hosts),
    since(0, privileged),
    since(0, proc_mount),
    since(0, selinux),
    since(19, unconfined_seccomp),
    since(0, sysctls),
    since(0, host_process),
];

/// At this level some checks of the baseline are replaced by stricter ones.
const RESTRICTED: [Check; 17] = [
    since(0, app_armor),
    Check { since: 0, until: Some(22), check: default_capabilities },
    since(0, host_namespaces),
    since(0, host_ports),
    since(34, probe_hosts),
    since(0, privileged),
    Check { since: 0, until: Some(35), check: proc_mount },
    since(0, selinux),
    since(0, sysctls),
    since(0, host_process),
    since(8, privilege_escalation),
    since(22, all_capabilities),
    since(35, proc_mount_of_all),
    since(0, volume_types),
    since(0, run_as_non_root),
    since(23, run_as_user),
    since(19, seccomp),
];

const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// The sysctls that a Pod may set, and the minor version since which it may.
const SYSCTLS: [(&str, u32); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];
const SELINUX_TYPES: [(&str, u32); 5] =
    [("", 0), ("container_t", 0), ("container_init_t", 0), ("container_kvm_t", 0), ("container_engine_t", 31)];
const VOLUME_TYPES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Everything about a Pod, or the template of one, that its policy forbids. The users and groups of the machine are
/// told last: Kubernetes does not judge them.
pub fn violations(policy: SecurityPolicy, pod: &Value, allowed: &PodIds) -> Vec<Violation> {
    let checks: &[Check] = match policy.level {
        SecurityLevel::Privileged => return Vec::new(),
        SecurityLevel::Baseline => &BASELINE,
        SecurityLevel::Restricted => &RESTRICTED,
    };
    let pod = Pod { pod, version: policy.version };
    let applies = |check: &&Check| pod.is_since(check.since) && check.until.is_none_or(|until| !pod.is_since(until));
    let of_level = checks.iter().filter(applies).filter_map(|check| (check.check)(&pod));
    of_level.chain(ids::users(&pod, allowed)).chain(ids::groups(&pod, allowed)).collect()
}

pub fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["/spec/initContainers", "/spec/containers", "/spec/ephemeralContainers"];
    lists.into_iter().filter_map(|list| pod.pointer(list)?.as_array()).flatten()
}

pub fn app_armor_annotations(pod: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let annotations = pod.pointer("/metadata/annotations").and_then(Value::as_object);
    let all = annotations.into_iter().flatten().map(|(key, value)| (key.as_str(), value));
    all.filter(|(key, _)| key.starts_with(APP_ARMOR))
}

pub(super) struct Pod<'a> {
    pod: &'a Value,
    version: RulesVersion,
}

impl<'a> Pod<'a> {
    fn is_since(&self, minor: u32) -> bool {
        self.version >= RulesVersion::Minor(minor)
    }

    fn spec(&self, field: &str) -> Option<&'a Value> {
        self.pod.get("spec")?.get(field)
    }

    /// A field of the Pod's own security context.
    pub(super) fn context(&self, pointer: &str) -> Option<&'a Value> {
        self.spec("securityContext")?.pointer(pointer)
    }

    pub(super) fn containers(&self) -> impl Iterator<Item = Container<'a>> {
        containers(self.pod).map(Container)
    }

    /// The names of the containers for which this holds.
    fn names(&self, holds: impl Fn(&Container<'a>) -> bool) -> Names<'a> {
        Names(self.containers().filter(holds).map(|container| container.name()).collect())
    }

    fn is_windows(&self) -> bool {
        self.is_since(25) && self.spec("os").and_then(|os| os.get("name")).is_some_and(|name| name == "windows")
    }

    /// The users of the Pod are not those of the machine.
    fn has_own_users(&self) -> bool {
        self.is_since(35) && self.spec("hostUsers") == Some(&Value::Bool(false))
    }

    fn volumes(&self) -> impl Iterator<Item = &'a tally_value::Map> {
        self.spec("volumes").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
    }
}

pub(super) struct Container<'a>(&'a Value);

impl<'a> Container<'a> {
    pub(super) fn name(&self) -> &'a str {
        self.0.get("name").and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn context(&self, pointer: &str) -> Option<&'a Value> {
        self.0.get("securityContext")?.pointer(pointer)
    }

    fn capabilities(&self, list: &str) -> impl Iterator<Item = &'a str> {
        let list = self.context("/capabilities").and_then(|capabilities| capabilities.get(list)?.as_array());
        list.into_iter().flatten().filter_map(Value::as_str)
    }
}

/// The names of containers, for a message.
pub(super) struct Names<'a>(pub(super) Vec<&'a str>);

impl Names<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `container "a"` or `containers "a", "b"`.
    pub(super) fn text(&self) -> String {
        format!("{} {}", plural("container", self.0.len()), quoted(&self.0))
    }

    /// With the Pod in front, if it is meant too: `pod and container "a"`.
    fn with_pod(&self, pod: bool) -> String {
        match (pod, self.is_empty()) {
            (true, true) => "pod".to_owned(),
            (true, false) => format!("pod and {}", self.text()),
            (false, _) => self.text(),
        }
    }
}

fn plural(word: &str, count: usize) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}

fn sorted<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    words.collect::<BTreeSet<_>>().into_iter().collect()
}

fn violation(reason: &'static str, detail: String) -> Option<Violation> {
    Some(Violation { reason, detail })
}

fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    let kind = |profile: Option<&Value>| profile.and_then(Value::as_str).filter(|kind| *kind == "Unconfined").is_some();
    let of_pod = kind(pod.context("/appArmorProfile/type"));
    let of_containers = pod.names(|container| kind(container.context("/appArmorProfile/type")));
    let allowed = |value: &str| matches!(value, "" | "runtime/default") || value.starts_with("localhost/");
    let annotations: Vec<_> = app_armor_annotations(pod.pod)
        .filter_map(|(key, value)| Some((key, value.as_str().filter(|value| !allowed(value))?)))
        .map(|(key, value)| format!("{key}=\"{value}\""))
        .collect();
    let (mut who, mut what) = (Vec::new(), Vec::new());
    if of_pod || !of_containers.is_empty() {
        who.push(of_containers.with_pod(of_pod));
        what.push("\"Unconfined\"".to_owned());
    }
    if !annotations.is_empty() {
        who.push(plural("annotation", annotations.len()));
        what.extend(annotations.iter().map(|annotation| format!("\"{annotation}\"")));
    }
    if what.is_empty() {
        return None;
    }
    let reason = if what.len() == 1 { "forbidden AppArmor profile" } else { "forbidden AppArmor profiles" };
    violation(reason, format!("{} must not set AppArmor profile type to {}", who.join(" and "), what.join(", ")))
}

fn must_not_add(pod: &Pod<'_>, allowed: &[&str]) -> Option<String> {
    let added = |container: &Container<'_>| container.capabilities("add").any(|added| !allowed.contains(&added));
    let names = pod.names(added);
    if names.is_empty() {
        return None;
    }
    let all = pod.containers().flat_map(|container| container.capabilities("add").collect::<Vec<_>>());
    let forbidden = sorted(all.filter(|added| !allowed.contains(added)));
    Some(format!("{} must not include {} in securityContext.capabilities.add", names.text(), quoted(&forbidden)))
}

fn default_capabilities(pod: &Pod<'_>) -> Option<Violation> {
    violation("non-default capabilities", must_not_add(pod, &DEFAULT_CAPABILITIES)?)
}

fn all_capabilities(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    let kept = pod.names(|container| !container.capabilities("drop").any(|dropped| dropped == "ALL"));
    let dropped =
        (!kept.is_empty()).then(|| format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", kept.text()));
    let texts: Vec<_> = [dropped, must_not_add(pod, &["NET_BIND_SERVICE"])].into_iter().flatten().collect();
    if texts.is_empty() { None } else { violation("unrestricted capabilities", texts.join("; ")) }
}

fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let used =
        ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|name| pod.spec(name) == Some(&Value::Bool(true)));
    let used: Vec<_> = used.map(|name| format!("{name}=true")).collect();
    if used.is_empty() { None } else { violation("host namespaces", used.join(", ")) }
}

fn host_path_volumes(pod: &Pod<'_>) -> Option<Violation> {
    let names: Vec<_> = pod.volumes().filter(|volume| volume.contains_key("hostPath")).map(volume_name).collect();
    if names.is_empty() {
        return None;
    }
    violation("hostPath volumes", format!("{} {}", plural("volume", names.len()), quoted(&names)))
}

fn volume_name(volume: &tally_value::Map) -> &str {
    volume.get("name").and_then(Value::as_str).unwrap_or_default()
}

fn volume_types(pod: &Pod<'_>) -> Option<Violation> {
    let kind = |volume: &tally_value::Map| {
        volume.keys().map(Text::as_str).find(|key| *key != "name" && !VOLUME_TYPES.contains(key)).map(str::to_owned)
    };
    let forbidden: Vec<_> = pod.volumes().filter_map(|volume| Some((volume_name(volume), kind(volume)?))).collect();
    if forbidden.is_empty() {
        return None;
    }
    let names: Vec<_> = forbidden.iter().map(|(name, _)| *name).collect();
    let kinds = sorted(forbidden.iter().map(|(_, kind)| kind.as_str()));
    let (volumes, use_, types) = (
        plural("volume", names.len()),
        if names.len() == 1 { "uses" } else { "use" },
        plural("restricted volume type", kinds.len()),
    );
    violation("restricted volume types", format!("{volumes} {} {use_} {types} {}", quoted(&names), quoted(&kinds)))
}

fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let ports = |container: &Container<'_>| -> Vec<i64> {
        let ports = container.0.get("ports").and_then(Value::as_array).into_iter().flatten();
        ports.filter_map(|port| port.get("hostPort")?.as_i64()).filter(|port| *port != 0).collect()
    };
    let names = pod.names(|container| !ports(container).is_empty());
    let all: BTreeSet<String> =
        pod.containers().flat_map(|container| ports(&container)).map(|port| port.to_string()).collect();
    if all.is_empty() {
        return None;
    }
    let use_ = if names.0.len() == 1 { "uses" } else { "use" };
    let list: Vec<_> = all.into_iter().collect();
    violation("hostPort", format!("{} {use_} {} {}", names.text(), plural("hostPort", list.len()), list.join(", ")))
}

/// The hosts that the probes and hooks of a container name, instead of the Pod itself.
fn hosts<'a>(container: &Container<'a>) -> Vec<&'a str> {
    let handlers = ["/livenessProbe", "/readinessProbe", "/startupProbe", "/lifecycle/postStart", "/lifecycle/preStop"];
    let actions = handlers.into_iter().filter_map(|handler| container.0.pointer(handler));
    let named =
        actions.flat_map(|handler| ["httpGet", "tcpSocket"].map(|action| handler.get(action)?.get("host")?.as_str()));
    named.flatten().filter(|host| !host.is_empty()).collect()
}

fn probe_hosts(pod: &Pod<'_>) -> Option<Violation> {
    let mut names = pod.names(|container| !hosts(container).is_empty());
    names.0.sort_unstable();
    let all = pod.containers().flat_map(|container| hosts(&container)).collect::<Vec<_>>();
    let all = sorted(all.into_iter());
    if all.is_empty() {
        return None;
    }
    let use_ = if names.0.len() == 1 { "uses" } else { "use" };
    let what = plural("probe or lifecycle host", all.len());
    violation("probe or lifecycle host", format!("{} {use_} {what} {}", names.text(), quoted(&all)))
}

fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let names = pod.names(|container| container.context("/privileged") == Some(&Value::Bool(true)));
    if names.is_empty() {
        return None;
    }
    violation("privileged", format!("{} must not set securityContext.privileged=true", names.text()))
}

fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    if pod.has_own_users() { None } else { proc_mount_of_all(pod) }
}

fn proc_mount_of_all(pod: &Pod<'_>) -> Option<Violation> {
    let kind = |container: &Container<'_>| match container.context("/procMount").and_then(Value::as_str) {
        None | Some("" | "Default") => None,
        Some(other) => Some(other.to_owned()),
    };
    let names = pod.names(|container| kind(container).is_some());
    let kinds: Vec<_> = pod.containers().filter_map(|container| kind(&container)).collect();
    let kinds = sorted(kinds.iter().map(String::as_str));
    if kinds.is_empty() {
        return None;
    }
    violation("procMount", format!("{} must not set securityContext.procMount to {}", names.text(), quoted(&kinds)))
}

fn selinux(pod: &Pod<'_>) -> Option<Violation> {
    let allowed = |kind: &str| SELINUX_TYPES.iter().any(|(known, since)| *known == kind && pod.is_since(*since));
    let text = |options: &Value, field: &str| options.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let bad_type = |options: &Value| Some(text(options, "type")).filter(|kind| !allowed(kind));
    let is_bad = |options: &Value| {
        bad_type(options).is_some() || ["user", "role"].iter().any(|field| !text(options, field).is_empty())
    };
    let of_pod = pod.context("/seLinuxOptions").filter(|options| is_bad(options));
    let names = pod.names(|container| container.context("/seLinuxOptions").is_some_and(is_bad));
    let of_containers = pod.containers().filter_map(|container| container.context("/seLinuxOptions"));
    let all: Vec<&Value> = of_pod.into_iter().chain(of_containers.filter(|options| is_bad(options))).collect();
    if all.is_empty() {
        return None;
    }
    let kinds: Vec<String> = all.iter().filter_map(|options| bad_type(options)).collect();
    let kinds = sorted(kinds.iter().map(String::as_str));
    let mut texts = Vec::new();
    if !kinds.is_empty() {
        texts.push(format!("{} {}", plural("type", kinds.len()), quoted(&kinds)));
    }
    for field in ["user", "role"] {
        if all.iter().any(|options| !text(options, field).is_empty()) {
            texts.push(format!("{field} may not be set"));
        }
    }
    let who = names.with_pod(of_pod.is_some());
    violation("seLinuxOptions", format!("{who} set forbidden securityContext.seLinuxOptions: {}", texts.join("; ")))
}

/// Who sets a seccomp profile that is not allowed.
fn bad_seccomp<'a>(pod: &Pod<'a>) -> (bool, Names<'a>) {
    let bad = |kind: Option<&Value>| {
        kind.and_then(Value::as_str).is_some_and(|kind| !matches!(kind, "RuntimeDefault" | "Localhost"))
    };
    (bad(pod.context("/seccompProfile/type")), pod.names(|container| bad(container.context("/seccompProfile/type"))))
}

fn unconfined_seccomp(pod: &Pod<'_>) -> Option<Violation> {
    let (of_pod, names) = bad_seccomp(pod);
    if !of_pod && names.is_empty() {
        return None;
    }
    let who = names.with_pod(of_pod);
    violation("seccompProfile", format!("{who} must not set securityContext.seccompProfile.type to \"Unconfined\""))
}

fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    if let Some(unconfined) = unconfined_seccomp(pod) {
        return Some(unconfined);
    }
    if pod.context("/seccompProfile/type").is_some() {
        return None;
    }
    let without = pod.names(|container| container.context("/seccompProfile/type").is_none());
    if without.is_empty() {
        return None;
    }
    let must = "must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"";
    violation("seccompProfile", format!("pod or {} {must}", without.text()))
}

fn sysctls(pod: &Pod<'_>) -> Option<Violation> {
    let set = pod.context("/sysctls").and_then(Value::as_array).into_iter().flatten();
    let names = set.filter_map(|sysctl| sysctl.get("name")?.as_str());
    let allowed = |name: &str| SYSCTLS.iter().any(|(known, since)| *known == name && pod.is_since(*since));
    let forbidden: Vec<_> = names.filter(|name| !allowed(name)).collect();
    if forbidden.is_empty() { None } else { violation("forbidden sysctls", forbidden.join(", ")) }
}

fn host_process(pod: &Pod<'_>) -> Option<Violation> {
    let set = |value: Option<&Value>| value == Some(&Value::Bool(true));
    let of_pod = set(pod.context("/windowsOptions/hostProcess"));
    let names = pod.names(|container| set(container.context("/windowsOptions/hostProcess")));
    if !of_pod && names.is_empty() {
        return None;
    }
    let who = names.with_pod(of_pod);
    violation("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true"))
}

fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    let names = pod.names(|container| container.context("/allowPrivilegeEscalation") != Some(&Value::Bool(false)));
    if names.is_empty() {
        return None;
    }
    let must = "must set securityContext.allowPrivilegeEscalation=false";
    violation("allowPrivilegeEscalation != false", format!("{} {must}", names.text()))
}

fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
    if pod.has_own_users() {
        return None;
    }
    let reason = "runAsNonRoot != true";
    let is = |value: Option<&Value>, wanted: bool| value == Some(&Value::Bool(wanted));
    let of_pod = pod.context("/runAsNonRoot");
    let as_root = pod.names(|container| is(container.context("/runAsNonRoot"), false));
    if is(of_pod, false) || !as_root.is_empty() {
        let who = as_root.with_pod(is(of_pod, false));
        return violation(reason, format!("{who} must not set securityContext.runAsNonRoot=false"));
    }
    let open = pod.names(|container| container.context("/runAsNonRoot").is_none());
    if is(of_pod, true) || open.is_empty() {
        return None;
    }
    violation(reason, format!("pod or {} must set securityContext.runAsNonRoot=true", open.text()))
}

fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    if pod.has_own_users() {
        return None;
    }
    let is_root = |user: Option<&Value>| user.and_then(Value::as_i64) == Some(0);
    let of_pod = is_root(pod.context("/runAsUser"));
    let names = pod.names(|container| is_root(container.context("/runAsUser")));
    if !of_pod && names.is_empty() {
        return None;
    }
    violation("runAsUser=0", format!("{} must not set runAsUser=0", names.with_pod(of_pod)))
}
