//! Security contexts, host namespaces, and rules that depend on the operating system.

use crate::field::At;

use super::checks::{
    Errors, UniqueTexts, between, dns_subdomain, one_of, one_of_or_empty, relative_path, required, required_one_of,
};
use super::containers::LISTS;

const LARGEST_ID: i64 = i32::MAX as i64;
const PROFILES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

pub(super) fn of_container(spec: &At<'_, '_>, context: &At<'_, '_>, errors: &mut Errors) {
    if !context.is_set() {
        return;
    }
    between(&context.at("runAsUser"), 0, LARGEST_ID, errors);
    between(&context.at("runAsGroup"), 0, LARGEST_ID, errors);
    let proc_mount = context.at("procMount");
    one_of(&proc_mount, &["Default", "Unmasked"], errors);
    if proc_mount.text() == Some("Unmasked") && spec.at("hostUsers").bool() != Some(false) {
        errors.push(proc_mount.invalid("`hostUsers` must be false to use `Unmasked`"));
    }
    seccomp(&context.at("seccompProfile"), errors);
    if context.at("allowPrivilegeEscalation").bool() == Some(false) {
        let mut contradiction = |what: &str| {
            errors.push(context.invalid(format!("cannot set `allowPrivilegeEscalation` to false and {what}")));
        };
        if context.at("privileged").is_true() {
            contradiction("`privileged` to true");
        }
        for capability in context.at("capabilities").at("add").list() {
            if capability == "CAP_SYS_ADMIN" {
                contradiction("`capabilities.Add` CAP_SYS_ADMIN");
            }
        }
    }
    windows_options(&context.at("windowsOptions"), errors);
    app_armor(&context.at("appArmorProfile"), errors);
}

pub(super) fn of_pod(spec: &At<'_, '_>, errors: &mut Errors) {
    let context = spec.at("securityContext");
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        between(&context.at(field), 0, LARGEST_ID, errors);
    }
    for group in context.at("supplementalGroups").items() {
        between(&group, 0, LARGEST_ID, errors);
    }
    if spec.at("shareProcessNamespace").is_true() && spec.at("hostPID").is_true() {
        let shared = context.at("shareProcessNamespace");
        errors.push(shared.invalid_value(true, "ShareProcessNamespace and HostPID cannot both be enabled"));
    }
    sysctls(spec, &context.at("sysctls"), errors);
    one_of(&context.at("fsGroupChangePolicy"), &["Always", "OnRootMismatch"], errors);
    seccomp(&context.at("seccompProfile"), errors);
    windows_options(&context.at("windowsOptions"), errors);
    app_armor(&context.at("appArmorProfile"), errors);
    one_of(&context.at("supplementalGroupsPolicy"), &["Merge", "Strict"], errors);
    one_of(&context.at("seLinuxChangePolicy"), &["MountOption", "Recursive"], errors);
}

fn sysctls(spec: &At<'_, '_>, list: &At<'_, '_>, errors: &mut Errors) {
    let mut names = UniqueTexts::default();
    for sysctl in list.items() {
        let name = sysctl.at("name");
        let text = name.text_or_empty();
        if required(&name, errors) {
            if !is_sysctl(text) {
                errors.push(name.invalid(
                    "must have at most 253 characters and match regex \
                     ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
                ));
            } else if names.contains(text) {
                errors.push(name.duplicate());
            }
        }
        names.insert(text);
        // In the host's namespace the sysctl would change the host.
        let dotted = text.replace('/', ".");
        let is_ipc = dotted == "kernel.sem"
            || ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|it| dotted.starts_with(it));
        if dotted.starts_with("net.") && spec.at("hostNetwork").is_true() {
            errors.push(name.invalid("may not be specified when 'hostNetwork' is true"));
        } else if is_ipc && spec.at("hostIPC").is_true() {
            errors.push(name.invalid("may not be specified when 'hostIPC' is true"));
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= 253
        && name.split(['.', '/']).all(|part| {
            let bytes = part.as_bytes();
            bytes.first().is_some_and(|&byte| letter(byte))
                && bytes.last().is_some_and(|&byte| letter(byte))
                && bytes.iter().all(|&byte| letter(byte) || matches!(byte, b'-' | b'_'))
        })
}

fn seccomp(profile: &At<'_, '_>, errors: &mut Errors) {
    if !profile.is_set() {
        return;
    }
    let (kind, file) = (profile.at("type"), profile.at("localhostProfile"));
    if kind.text_or_empty().is_empty() {
        errors.push(kind.required("type is required when seccompProfile is set"));
    } else {
        one_of_or_empty(&kind, &PROFILES, errors);
    }
    match (kind.text_or_empty() == "Localhost", file.is_set()) {
        (true, false) => errors.push(file.required("must be set when seccomp type is Localhost")),
        (true, true) => relative_path(&file, file.text_or_empty(), errors),
        (false, true) => {
            errors.push(file.invalid_value(profile.value, "can only be set when seccomp type is Localhost"))
        }
        (false, false) => {}
    }
}

fn app_armor(profile: &At<'_, '_>, errors: &mut Errors) {
    if !profile.is_set() {
        return;
    }
    const NEEDED: &str = "must be set when AppArmor type is Localhost";
    let (kind, file) = (profile.at("type"), profile.at("localhostProfile"));
    match kind.text_or_empty() {
        "Localhost" if !file.is_set() => errors.push(file.required(NEEDED)),
        "Localhost" => {
            let name = file.text_or_empty();
            if name.trim() != name {
                errors.push(file.invalid("must not be padded with whitespace"));
            } else if name.is_empty() {
                errors.push(file.required(NEEDED));
            }
            // The longest path that the kernel accepts.
            if name.len() > 4095 {
                errors.push(file.too_long(4095));
            }
        }
        "" => errors.push(kind.required("type is required when appArmorProfile is set")),
        known if PROFILES.contains(&known) => {
            if file.is_set() {
                errors.push(file.invalid("can only be set when AppArmor type is Localhost"));
            }
        }
        other => errors.push(kind.not_supported(other, &PROFILES)),
    }
}

fn windows_options(options: &At<'_, '_>, errors: &mut Errors) {
    let spec_name = options.at("gmsaCredentialSpecName");
    if spec_name.is_set() {
        dns_subdomain(&spec_name, errors);
    }
    let credentials = options.at("gmsaCredentialSpec");
    match credentials.text().map(str::len) {
        Some(0) => errors.push(credentials.invalid("gmsaCredentialSpec cannot be an empty string")),
        Some(length) if length > 64 * 1024 => {
            errors.push(credentials.invalid("gmsaCredentialSpec size must be under 64 KiB"));
        }
        _ => {}
    }
    let user = options.at("runAsUserName");
    if let Some(name) = user.text() {
        errors.extend(windows_user_problems(name).into_iter().map(|problem| user.invalid(problem)));
    }
}

fn windows_user_problems(name: &str) -> Vec<&'static str> {
    if name.is_empty() {
        return vec!["runAsUserName cannot be an empty string"];
    }
    if name.bytes().any(|byte| byte.is_ascii_control()) {
        return vec!["runAsUserName cannot contain control characters"];
    }
    let parts: Vec<&str> = name.split('\\').collect();
    let (domain, user) = match parts.as_slice() {
        [user] => (None, *user),
        [domain, user] => (Some(*domain), *user),
        _ => return vec!["runAsUserName cannot contain more than one backslash"],
    };
    let mut problems = Vec::new();
    if let Some(domain) = domain {
        if domain.len() >= 256 {
            problems.push("runAsUserName's Domain length must be under 256 characters");
        }
        if !is_windows_domain(domain) {
            problems.push("runAsUserName's Domain doesn't match the NetBios nor the DNS format");
        }
    }
    if user.is_empty() {
        problems.push("runAsUserName's User cannot be empty");
    } else if user.len() > 104 {
        problems.push("runAsUserName's User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.bytes().all(|byte| matches!(byte, b'.' | b' ')) {
        problems.push("runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        problems.push(r#"runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#);
    }
    problems
}

fn is_windows_domain(domain: &str) -> bool {
    let dns_label = |label: &str| {
        let inner = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        (1..=63).contains(&label.len()) && inner && !label.starts_with('-') && !label.ends_with('-')
    };
    let net_bios = !domain.starts_with('.')
        && (1..=15).contains(&domain.chars().count())
        && !domain.contains(['\\', '/', ':', '*', '?', '"', '<', '>', '|']);
    net_bios || domain.split('.').all(dns_label)
}

/// If Windows containers run as host processes, all of a Pod must, and on the host network.
pub(super) fn host_processes(spec: &At<'_, '_>, errors: &mut Errors) {
    let of_pod = spec.at("securityContext").at("windowsOptions").at("hostProcess").bool();
    let (mut containers, mut on_host) = (0, 0);
    for list in LISTS {
        for container in spec.at(list).items() {
            containers += 1;
            let context = container.at("securityContext");
            let options = context.at("windowsOptions");
            let own = options.at("hostProcess");
            if let (Some(of_pod), Some(of_container)) = (of_pod, own.bool())
                && of_pod != of_container
            {
                let told = format!("pod hostProcess value must be identical if both are specified, was {of_pod}");
                errors.push(own.invalid(told));
            }
            on_host += i32::from(own.bool().or(of_pod) == Some(true));
        }
    }
    if on_host == 0 {
        return;
    }
    if on_host != containers {
        let told = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.push(spec.invalid_value("", told));
    }
    if !spec.at("hostNetwork").is_true() {
        let told = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.push(spec.at("hostNetwork").invalid_value(false, told));
    }
}

/// A Pod with its own user namespace cannot share the host's namespaces.
pub(super) fn own_users(spec: &At<'_, '_>, errors: &mut Errors) {
    if spec.at("hostUsers").bool() != Some(false) {
        return;
    }
    const DENIED: &str = "when `hostUsers` is false";
    for (field, told_as) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.at(field).is_true() {
            errors.push(spec.at(told_as).forbidden(DENIED));
        }
    }
    for list in LISTS {
        for container in spec.at(list).items() {
            let devices = container.at("volumeDevices");
            if !devices.is_empty() {
                errors.push(devices.forbidden(DENIED));
            }
        }
    }
}

/// `spec.os`, and the fields that cannot be set on that operating system.
pub(super) fn operating_system(spec: &At<'_, '_>, errors: &mut Errors) {
    let os = spec.at("os");
    if !os.is_set() {
        return;
    }
    match os.at("name").text_or_empty() {
        "" => errors.push(os.at("name").required("")),
        "linux" => deny(
            spec,
            &["windowsOptions"],
            &["windowsOptions"],
            "windows options cannot be set for a linux pod",
            errors,
        ),
        "windows" => deny(
            spec,
            &[
                "appArmorProfile",
                "seLinuxOptions",
                "hostUsers",
                "hostPID",
                "hostIPC",
                "seccompProfile",
                "fsGroup",
                "fsGroupChangePolicy",
                "sysctls",
                "shareProcessNamespace",
                "runAsUser",
                "runAsGroup",
                "supplementalGroups",
                "supplementalGroupsPolicy",
                "seLinuxChangePolicy",
            ],
            &[
                "appArmorProfile",
                "seLinuxOptions",
                "seccompProfile",
                "capabilities",
                "readOnlyRootFilesystem",
                "privileged",
                "allowPrivilegeEscalation",
                "procMount",
                "runAsUser",
                "runAsGroup",
            ],
            "cannot be set for a windows pod",
            errors,
        ),
        other => errors.push(os.not_supported(other, &["linux", "windows"])),
    }
}

/// Security fields of the Pod that are in the spec itself.
const OUTSIDE_OF_CONTEXT: [&str; 4] = ["hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"];

/// Adds an error for each of these security fields of the Pod and of its containers that is set.
fn deny(spec: &At<'_, '_>, of_pod: &[&str], of_container: &[&str], told: &str, errors: &mut Errors) {
    let mut refuse = |field: At<'_, '_>| {
        if field.is_set() {
            errors.push(field.forbidden(told));
        }
    };
    let context = spec.at("securityContext");
    for field in of_pod {
        refuse(if OUTSIDE_OF_CONTEXT.contains(field) { spec.at(field) } else { context.at(field) });
    }
    for list in LISTS {
        for container in spec.at(list).items() {
            let context = container.at("securityContext");
            of_container.iter().for_each(|field| refuse(context.at(field)));
        }
    }
}

pub(super) fn host_name_override(spec: &At<'_, '_>, errors: &mut Errors) {
    let name = spec.at("hostnameOverride");
    if !name.is_set() {
        return;
    }
    for (field, told) in [
        ("setHostnameAsFQDN", "may not be specified when setHostnameAsFQDN is true"),
        ("hostNetwork", "may not be specified when hostNetwork is true"),
    ] {
        if spec.at(field).is_true() {
            errors.push(name.forbidden(told));
        }
    }
    if name.text_or_empty().len() > 64 {
        errors.push(name.too_long(64));
    }
    dns_subdomain(&name, errors);
}

pub(super) fn preemption_policy(spec: &At<'_, '_>, errors: &mut Errors) {
    let policy = spec.at("preemptionPolicy");
    if policy.is_set() {
        required_one_of(&policy, &["PreemptLowerPriority", "Never"], errors);
    }
}
