//! Containers: ordinary ones, init containers, and ephemeral containers.

use std::collections::BTreeSet;

use crate::field::At;

use super::checks::{
    Errors, UniqueTexts, duplicate, no_backsteps, not_found, one_of, one_of_or_empty, out_of_range, port_name_problems,
    reject, relative_path, required, required_dns_label, required_one_of,
};
use super::volumes::Volumes;
use super::{env, probes, resources, security};

/// The lists of containers, in the order in which they are started.
pub(super) const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The rest of the Pod, against which containers are checked.
pub(super) struct Context<'a, 'v> {
    pub(super) spec: &'a At<'a, 'v>,
    pub(super) volumes: Volumes<'v>,
    /// Names of the Pod's resource claims.
    pub(super) claims: BTreeSet<&'v str>,
}

impl Context<'_, '_> {
    fn restart_policy(&self) -> &str {
        self.spec.at("restartPolicy").text_or_empty()
    }
}

/// The names are unique across all lists: an error names the second occurrence.
pub(super) fn all(context: &Context<'_, '_>, errors: &mut Errors) {
    let containers = context.spec.at("containers");
    let init_containers = context.spec.at("initContainers");
    let ephemeral_containers = context.spec.at("ephemeralContainers");
    if containers.is_empty() {
        errors.push(containers.required(""));
    }
    let mut names = UniqueTexts::default();
    for container in containers.items() {
        common(context, &container, errors);
        let name = container.at("name");
        if !names.insert(name.text_or_empty()) {
            errors.push(duplicate(&name, name.text_or_empty()));
        }
        probes::of_container(context.spec, &container, errors);
        restart_rules(&container, errors);
    }
    host_ports(containers.items(), errors);

    for container in init_containers.items() {
        init_container(context, &container, &mut names, errors);
    }

    let mut targets = UniqueTexts::default();
    for container in containers.list().iter().chain(init_containers.list()) {
        targets.insert(container.get("name").and_then(|name| name.as_str()).unwrap_or_default());
    }
    for container in ephemeral_containers.items() {
        common(context, &container, errors);
        untrimmed_image(&container, errors);
        let name = container.at("name");
        if !names.insert(name.text_or_empty()) {
            errors.push(duplicate(&name, name.text_or_empty()));
        }
        ephemeral_only(&container, &targets, errors);
    }
}

fn common(context: &Context<'_, '_>, container: &At<'_, '_>, errors: &mut Errors) {
    required_dns_label(&container.at("name"), errors);
    required(&container.at("image"), errors);
    required_one_of(&container.at("terminationMessagePolicy"), &["File", "FallbackToLogsOnError"], errors);
    ports(&container.at("ports"), errors);
    env::variables(&container.at("env"), errors);
    env::from_sources(&container.at("envFrom"), errors);
    volume_mounts(context, container, errors);
    volume_devices(context, container, errors);
    required_one_of(&container.at("imagePullPolicy"), &["Always", "IfNotPresent", "Never"], errors);
    resources::of_container(&container.at("resources"), &context.claims, errors);
    resize_policies(&container.at("resizePolicy"), context.restart_policy(), errors);
    security::of_container(context.spec, &container.at("securityContext"), errors);
}

fn init_container<'v>(
    context: &Context<'_, 'v>,
    container: &At<'_, 'v>,
    names: &mut UniqueTexts<'v>,
    errors: &mut Errors,
) {
    common(context, container, errors);
    let (policy, rules) = (container.at("restartPolicy"), container.at("restartPolicyRules"));
    if policy.is_set() {
        restart_rules(container, errors);
    } else if !rules.is_empty() {
        errors.push(policy.required(RULES_NEED_POLICY));
    }
    let name = container.at("name");
    // For two init containers without a name, the error is that they need one, not that they are duplicates.
    if names.contains(name.text_or_empty()) {
        errors.push(duplicate(&name, name.text_or_empty()));
    } else if !name.text_or_empty().is_empty() {
        names.insert(name.text_or_empty());
    }
    // Init containers run one after the other, so only ports of the same container can conflict. kube-apiserver checks
    // a list of that one container, so its error names the first of the list, whichever it is.
    let list = context.spec.at("initContainers");
    let place = list.index(0).path();
    host_ports(std::iter::once(At::rooted(&place, container.value)), errors);
    let is_sidecar = container.at("restartPolicy").text_or_empty() == "Always";
    if is_sidecar {
        probes::of_container(context.spec, container, errors);
        return;
    }
    for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        let field = container.at(field);
        if field.is_set() {
            errors.push(field.forbidden("may not be set for init containers without restartPolicy=Always"));
        }
    }
    for policy in container.at("resizePolicy").items() {
        let restart = policy.at("restartPolicy");
        if restart.text_or_empty() == "RestartContainer" {
            errors.push(restart.invalid("must not be set to 'RestartContainer' for non-sidecar initContainers"));
        }
    }
}

/// Fields that an ephemeral container may not have.
fn ephemeral_only(container: &At<'_, '_>, targets: &UniqueTexts<'_>, errors: &mut Errors) {
    const DENIED: &str = "cannot be set for an Ephemeral Container";
    let target = container.at("targetContainerName");
    if !target.text_or_empty().is_empty() && !targets.contains(target.text_or_empty()) {
        errors.push(not_found(&target, target.text_or_empty(), ""));
    }
    for field in [
        "ports",
        "resources",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
    ] {
        let field_at = container.at(field);
        // The wire form of a container always has `resources`.
        if field_at.is_set() && (field != "resources" || !field_at.is_empty()) {
            errors.push(field_at.forbidden(DENIED));
        }
    }
    for mount in container.at("volumeMounts").items() {
        for field in ["subPath", "subPathExpr"] {
            let field = mount.at(field);
            if field.is_set() {
                errors.push(field.forbidden(DENIED));
            }
        }
    }
}

/// Templates with such names have always been accepted; Pods are not.
pub(super) fn untrimmed_image(container: &At<'_, '_>, errors: &mut Errors) {
    let image = container.at("image");
    let name = image.text_or_empty();
    if name.trim() != name {
        errors.push(image.invalid("must not have leading or trailing whitespace"));
    }
}

fn ports(list: &At<'_, '_>, errors: &mut Errors) {
    let mut names = UniqueTexts::default();
    for port in list.items() {
        let name = port.at("name");
        if !name.text_or_empty().is_empty() {
            let problems = port_name_problems(name.text_or_empty());
            if !problems.is_empty() {
                reject(&name, problems, errors);
            } else if !names.insert(name.text_or_empty()) {
                errors.push(name.duplicate());
            }
        }
        for (field, is_required) in [("containerPort", true), ("hostPort", false)] {
            let number = port.at(field);
            match number.int().unwrap_or(0) {
                0 if is_required => errors.push(number.required("")),
                0..=65_535 => {}
                _ => errors.push(number.invalid(out_of_range(1, 65_535))),
            }
        }
        required_one_of(&port.at("protocol"), &["SCTP", "TCP", "UDP"], errors);
    }
}

/// A port of the host can be used only once.
fn host_ports<'p, 'v: 'p>(containers: impl Iterator<Item = At<'p, 'v>>, errors: &mut Errors) {
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for container in containers {
        for port in container.at("ports").items() {
            let host_port = port.at("hostPort");
            let number = host_port.int().unwrap_or(0);
            if number == 0 {
                continue;
            }
            let (protocol, address) = (port.at("protocol"), port.at("hostIP"));
            let claim = format!("{}/{}/{number}", protocol.text_or_empty(), address.text_or_empty());
            if !taken.contains(&claim) {
                taken.insert(claim);
            } else {
                errors.push(duplicate(&host_port, claim));
            }
        }
    }
}

fn volume_mounts(context: &Context<'_, '_>, container: &At<'_, '_>, errors: &mut Errors) {
    let (mounts, devices) = (container.at("volumeMounts"), container.at("volumeDevices"));
    let (device_names, device_paths) = (texts(&devices, "name"), texts(&devices, "devicePath"));
    let mut paths = UniqueTexts::default();
    for mount in mounts.items() {
        let name = mount.at("name");
        required(&name, errors);
        if !context.volumes.contains(name.text_or_empty()) {
            errors.push(not_found(&name, name.text_or_empty(), ""));
        }
        let path = mount.at("mountPath");
        required(&path, errors);
        if !paths.insert(path.text_or_empty()) {
            errors.push(path.invalid_value(path.text_or_empty(), "must be unique"));
        }
        if device_names.contains(name.text_or_empty()) {
            errors.push(name.invalid_value(name.text_or_empty(), "must not already exist in volumeDevices"));
        }
        if device_paths.contains(path.text_or_empty()) {
            errors.push(path.invalid_value(path.text_or_empty(), "must not already exist as a path in volumeDevices"));
        }
        // Errors about these name the list, not the mount.
        let (sub_path, expression) = (mount.at("subPath"), mount.at("subPathExpr"));
        relative_path(&mounts.at("subPath"), sub_path.text_or_empty(), errors);
        if expression.is_set() {
            if sub_path.is_set() {
                errors.push(expression.invalid("subPathExpr and subPath are mutually exclusive"));
            }
            relative_path(&mounts.at("subPathExpr"), expression.text_or_empty(), errors);
        }
        propagation(&mounts, &mount, container, errors);
    }
}

fn propagation(mounts: &At<'_, '_>, mount: &At<'_, '_>, container: &At<'_, '_>, errors: &mut Errors) {
    const KNOWN: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];
    let propagation = mount.at("mountPropagation");
    let told_at = mounts.at("mountPropagation");
    if propagation.is_set() {
        let mode = propagation.text_or_empty();
        if !KNOWN.contains(&mode) {
            errors.push(told_at.not_supported(mode, &KNOWN));
        }
        if mode == "Bidirectional" && !container.at("securityContext").at("privileged").is_true() {
            errors
                .push(told_at.forbidden("Bidirectional mount propagation is available only to privileged containers"));
        }
    }
    let recursive = mount.at("recursiveReadOnly");
    let told_at = mounts.at("recursiveReadOnly");
    match recursive.text() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if !mount.at("readOnly").is_true() {
                errors.push(told_at.forbidden("may only be specified when readOnly is true"));
            }
            if propagation.is_set() && propagation.text_or_empty() != "None" {
                errors.push(told_at.forbidden("may only be specified when mountPropagation is None or not specified"));
            }
        }
        Some(other) => errors.push(told_at.not_supported(other, &["Disabled", "Enabled", "IfPossible"])),
    }
}

fn volume_devices(context: &Context<'_, '_>, container: &At<'_, '_>, errors: &mut Errors) {
    let (mounts, devices) = (container.at("volumeMounts"), container.at("volumeDevices"));
    let (mount_names, mount_paths) = (texts(&mounts, "name"), texts(&mounts, "mountPath"));
    let (mut names, mut paths) = (UniqueTexts::default(), UniqueTexts::default());
    for device in devices.items() {
        let (name, path) = (device.at("name"), device.at("devicePath"));
        let (name_text, path_text) = (name.text_or_empty(), path.text_or_empty());
        if required(&name, errors) && !names.insert(name_text) {
            errors.push(name.invalid("must be unique"));
        }
        match context.volumes.is_claimed(name_text) {
            None => errors.push(not_found(&name, name_text, "")),
            Some(false) => errors.push(
                name.invalid("can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"),
            ),
            Some(true) => {}
        }
        required(&path, errors);
        if paths.contains(path_text) {
            errors.push(path.invalid_value(path_text, "must be unique"));
        }
        let mut backsteps = Errors::new();
        no_backsteps(&path, path_text, &mut backsteps);
        if backsteps.is_empty() {
            paths.insert(path_text);
        } else {
            errors.push(path.invalid("can not contain backsteps ('..')"));
        }
        if mount_names.contains(name_text) {
            errors.push(name.invalid_value(name_text, "must not already exist in volumeMounts"));
        }
        if mount_paths.contains(path_text) {
            errors.push(path.invalid_value(path_text, "must not already exist as a path in volumeMounts"));
        }
    }
}

/// The texts of one field in all elements.
fn texts<'v>(list: &At<'_, 'v>, field: &str) -> UniqueTexts<'v> {
    let mut seen = UniqueTexts::default();
    for item in list.list() {
        seen.insert(item.get(field).and_then(|text| text.as_str()).unwrap_or_default());
    }
    seen
}

fn resize_policies(list: &At<'_, '_>, restart_policy: &str, errors: &mut Errors) {
    let mut resources = UniqueTexts::default();
    for policy in list.items() {
        let resource = policy.at("resourceName").text_or_empty();
        if !resources.insert(resource) {
            errors.push(duplicate(&policy, resource));
        }
        let restart = policy.at("restartPolicy").text_or_empty();
        for (choice, known) in [(resource, ["cpu", "memory"]), (restart, ["NotRequired", "RestartContainer"])] {
            match choice {
                "" => errors.push(list.required("")),
                _ if known.contains(&choice) => {}
                _ => errors.push(list.not_supported(choice, &known)),
            }
        }
        if restart_policy == "Never" && restart != "NotRequired" {
            errors.push(list.invalid_value(restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"));
        }
    }
}

const RULES_NEED_POLICY: &str = "must specify restartPolicy when restart rules are used";

/// A container's own restart policy, and its exceptions.
fn restart_rules(container: &At<'_, '_>, errors: &mut Errors) {
    let (policy, rules) = (container.at("restartPolicy"), container.at("restartPolicyRules"));
    if !policy.is_set() && !rules.is_empty() {
        errors.push(policy.required(RULES_NEED_POLICY));
    }
    one_of(&policy, &["Always", "Never", "OnFailure"], errors);
    if rules.len() > 20 {
        errors.push(rules.too_many(20));
    }
    for rule in rules.items() {
        one_of_or_empty(&rule.at("action"), &["Restart", "RestartAllContainers"], errors);
        let codes = rule.at("exitCodes");
        if !codes.is_set() {
            errors.push(codes.required("must be specified"));
            continue;
        }
        one_of_or_empty(&codes.at("operator"), &["In", "NotIn"], errors);
        let values = codes.at("values");
        if values.len() > 255 {
            errors.push(values.too_many(255));
        }
    }
}
