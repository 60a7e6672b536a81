//! Volumes: every type that a Pod can use, and the requirements of each.

use std::collections::{BTreeMap, BTreeSet};

use tally_value::Value;

use crate::field::At;
use crate::meta;

use super::checks::{
    Errors, UniqueTexts, between, dns_label, file_mode, label_selector, no_backsteps, one_of, reject, relative_path,
    required, required_one_of, unreserved_path,
};
use super::resources::quantity_of;
use super::{Scope, env};

/// The valid volumes of a Pod, by name: those that containers can mount.
pub(super) struct Volumes<'v>(BTreeMap<&'v str, &'v Value>);

impl Volumes<'_> {
    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Whether the volume comes from a claim, as devices must. None if there is no such volume.
    pub(super) fn is_claimed(&self, name: &str) -> Option<bool> {
        let volume = self.0.get(name)?;
        Some(["persistentVolumeClaim", "ephemeral"].iter().any(|source| volume.get(source).is_some()))
    }
}

/// The types of volumes in the order they are checked, and their spelling in the error about a second type: for three
/// of them kube-apiserver uses a different one.
const SOURCES: [(&str, &str); 30] = [
    ("emptyDir", "emptyDir"),
    ("hostPath", "hostPath"),
    ("gitRepo", "gitRepo"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("secret", "secret"),
    ("nfs", "nfs"),
    ("iscsi", "iscsi"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("persistentVolumeClaim", "persistentVolumeClaim"),
    ("rbd", "rbd"),
    ("cinder", "cinder"),
    ("cephfs", "cephFS"),
    ("quobyte", "quobyte"),
    ("downwardAPI", "downwarAPI"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("configMap", "configMap"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("storageos", "storageos"),
    ("projected", "projected"),
    ("scaleIO", "scaleIO"),
    ("csi", "csi"),
    ("ephemeral", "ephemeral"),
    ("image", "image"),
];

/// Required texts and lists of each type of volume.
const NEEDED: [(&str, &[&str]); 19] = [
    ("gitRepo", &["repository"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("secret", &["secretName"]),
    ("nfs", &["server", "path"]),
    ("iscsi", &["targetPortal", "iqn"]),
    ("glusterfs", &["endpoints", "path"]),
    ("persistentVolumeClaim", &["claimName"]),
    ("rbd", &["monitors", "image"]),
    ("cinder", &["volumeID"]),
    ("cephfs", &["monitors"]),
    ("flexVolume", &["driver"]),
    ("configMap", &["name"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("csi", &["driver"]),
];

pub(super) fn all<'v>(list: &At<'_, 'v>, scope: Scope<'_>, errors: &mut Errors) -> Volumes<'v> {
    let mut volumes = Volumes(BTreeMap::new());
    let is_ephemeral = |volume: &&Value| volume.get("ephemeral").is_some();
    let ephemeral: BTreeSet<&str> =
        list.list().iter().filter(is_ephemeral).filter_map(|it| it["name"].as_str()).collect();
    for volume in list.items() {
        let before = errors.len();
        source(&volume, scope, errors);
        let name = volume.at("name");
        let text = name.text_or_empty();
        if required(&name, errors) {
            dns_label(&name, errors);
        }
        if volumes.contains(text) {
            errors.push(name.duplicate());
        }
        if errors.len() == before
            && let Some(value) = volume.value
        {
            volumes.0.insert(text, value);
        }
        let claim = volume.at("persistentVolumeClaim");
        let claim = claim.at("claimName");
        // The claim of an ephemeral volume is named after the Pod and the volume.
        let made_for = claim.text_or_empty().strip_prefix(scope.name).and_then(|rest| rest.strip_prefix('-'));
        if !scope.name.is_empty() && made_for.is_some_and(|volume| ephemeral.contains(volume)) {
            errors.push(claim.invalid("must not reference a PVC that gets created for an ephemeral volume"));
        }
    }
    volumes
}

fn source(volume: &At<'_, '_>, scope: Scope<'_>, errors: &mut Errors) {
    let mut kinds = 0;
    for (kind, spelled) in SOURCES {
        let source = volume.at(kind);
        if !source.is_set() {
            continue;
        }
        kinds += 1;
        if kinds > 1 {
            errors.push(volume.at(spelled).forbidden("may not specify more than 1 volume type"));
        } else {
            for (_, fields) in NEEDED.iter().filter(|(needy, _)| *needy == kind) {
                for field in *fields {
                    let field = source.at(field);
                    if field.text_or_empty().is_empty() && field.is_empty() {
                        errors.push(field.required(""));
                    }
                }
            }
            details(kind, volume, &source, scope, errors);
        }
        if kind == "iscsi" {
            let (name, portal) = (volume.at("name"), source.at("targetPortal"));
            let length = name.text_or_empty().len() + 1 + portal.text_or_empty().len();
            if source.at("initiatorName").is_set() && length > 64 {
                errors.push(name.invalid_value(
                    name.text_or_empty(),
                    "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                     iscsi.initiatorName is specified.",
                ));
            }
        }
    }
    if kinds == 0 {
        errors.push(volume.required("must specify a volume type"));
    }
}

/// The requirements of a type beyond its required texts.
fn details(kind: &str, volume: &At<'_, '_>, source: &At<'_, '_>, scope: Scope<'_>, errors: &mut Errors) {
    match kind {
        "emptyDir" => {
            let limit = source.at("sizeLimit");
            if quantity_of(limit.value).is_some_and(|limit| limit.is_negative()) {
                errors.push(limit.forbidden("SizeLimit field must be a valid resource quantity"));
            }
        }
        "hostPath" => host_path(source, errors),
        "gitRepo" => {
            let directory = source.at("directory");
            relative_path(&directory, directory.text_or_empty(), errors);
        }
        "gcePersistentDisk" => {
            // kube-apiserver uses another name here.
            let disk = volume.at("persistentDisk");
            if source.at("pdName").text_or_empty().is_empty() {
                errors.push(disk.at("pdName").required(""));
            }
            partition(&disk.at("partition"), source.at("partition").int(), errors);
        }
        "awsElasticBlockStore" => partition(&source.at("partition"), source.at("partition").int(), errors),
        "secret" | "configMap" => {
            file_mode(&source.at("defaultMode"), errors);
            for item in source.at("items").items() {
                key_to_path(&item, errors);
            }
        }
        "nfs" => {
            let path = source.at("path");
            if !path.text_or_empty().starts_with('/') {
                errors.push(path.invalid_value(path.text_or_empty(), "must be an absolute path"));
            }
        }
        "iscsi" => iscsi(source, errors),
        "flocker" => flocker(source, errors),
        "cinder" | "storageos" => {
            if kind == "storageos" {
                let (name, namespace) = (source.at("volumeName"), source.at("volumeNamespace"));
                if required(&name, errors) {
                    dns_label(&name, errors);
                }
                if namespace.is_set() {
                    dns_label(&namespace, errors);
                }
            }
            let reference = source.at("secretRef");
            if reference.is_set() {
                required(&reference.at("name"), errors);
            }
        }
        "quobyte" => quobyte(source, errors),
        "downwardAPI" => {
            file_mode(&source.at("defaultMode"), errors);
            for item in source.at("items").items() {
                downward_file(source, &item, errors);
            }
        }
        "fc" => fibre_channel(source, errors),
        "flexVolume" => {
            let options = source.at("options");
            for (key, _) in options.entries() {
                let domain = format!(".{}", key.split('/').next().unwrap_or(key).to_lowercase());
                if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
                    let told = "kubernetes.io and k8s.io namespaces are reserved";
                    errors.push(options.key(key).invalid_value(key, told));
                }
            }
        }
        "azureDisk" => azure_disk(source, errors),
        "projected" => {
            file_mode(&source.at("defaultMode"), errors);
            projections(source, errors);
        }
        "csi" => csi(source, errors),
        "ephemeral" => {
            let template = source.at("volumeClaimTemplate");
            if !template.is_set() {
                errors.push(template.required(""));
            } else {
                claim_template(&template, errors);
            }
            let name = volume.at("name");
            if !scope.name.is_empty() && !name.text_or_empty().is_empty() {
                let claim = format!("{}-{}", scope.name, name.text_or_empty());
                let problems = meta::dns_subdomain_problems(&claim).into_iter();
                reject(&name, problems.map(|problem| format!("PVC name {claim:?}: {problem}")).collect(), errors);
            }
        }
        "image" => {
            // In a template it may be set later, when Pods are created from it.
            if scope.is_pod {
                required(&source.at("reference"), errors);
            }
            required_one_of(&source.at("pullPolicy"), &["Always", "IfNotPresent", "Never"], errors);
        }
        _ => {}
    }
}

fn partition(told_at: &At<'_, '_>, number: Option<i64>, errors: &mut Errors) {
    if let Some(number) = number.filter(|number| !(0..=255).contains(number)) {
        errors.push(told_at.invalid_value(number, "must be between 1 and 255, inclusive"));
    }
}

fn host_path(source: &At<'_, '_>, errors: &mut Errors) {
    let path = source.at("path");
    if !required(&path, errors) {
        return;
    }
    no_backsteps(&path, path.text_or_empty(), errors);
    const KINDS: [&str; 8] =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    one_of(&source.at("type"), &KINDS, errors);
}

fn key_to_path(item: &At<'_, '_>, errors: &mut Errors) {
    let path = item.at("path");
    required(&item.at("key"), errors);
    required(&path, errors);
    unreserved_path(&path, path.text_or_empty(), errors);
    file_mode(&item.at("mode"), errors);
}

fn iscsi(source: &At<'_, '_>, errors: &mut Errors) {
    let name = source.at("iqn");
    if !name.text_or_empty().is_empty() {
        iscsi_name(&name, name.text_or_empty(), errors);
    }
    between(&source.at("lun"), 0, 255, errors);
    let secret = source.at("secretRef");
    if (source.at("chapAuthDiscovery").is_true() || source.at("chapAuthSession").is_true()) && !secret.is_set() {
        errors.push(secret.required(""));
    }
    if let Some(initiator) = source.at("initiatorName").text() {
        iscsi_name(&source.at("initiatorname"), initiator, errors);
    }
}

fn iscsi_name(told_at: &At<'_, '_>, name: &str, errors: &mut Errors) {
    let sound = match name.get(..3) {
        Some("iqn") => is_iqn(name),
        Some("eui") => is_numbered(name, 16),
        Some("naa") => is_numbered(name, 32),
        _ => return errors.push(told_at.invalid_value(name, "must be valid format starting with iqn, eui, or naa")),
    };
    if !sound {
        errors.push(told_at.invalid_value(name, "must be valid format"));
    }
}

/// `iqn.2001-04.com.example:storage.disk1`: a month, the owner's reversed domain, and a name chosen by the owner.
fn is_iqn(name: &str) -> bool {
    let Some((head, given)) = name.strip_prefix("iqn.").and_then(|rest| rest.split_once(':')) else { return false };
    let Some((date, domain)) = head.split_once('.') else { return false };
    let date = date.as_bytes();
    let is_date = date.len() == 7
        && date.iter().enumerate().all(|(index, byte)| if index == 4 { *byte == b'-' } else { byte.is_ascii_digit() });
    let is_domain =
        !domain.is_empty() && domain.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'));
    let is_given = !given.is_empty() && !given.contains([',', ';', '*', '&', '$', '|', ' ', '\t', '\n', '\r']);
    is_date && is_domain && is_given
}

fn is_numbered(name: &str, digits: usize) -> bool {
    name.get(4..).is_some_and(|rest| rest.len() == digits && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

fn flocker(source: &At<'_, '_>, errors: &mut Errors) {
    let (name, uuid) = (source.at("datasetName"), source.at("datasetUUID"));
    match (name.text_or_empty().is_empty(), uuid.text_or_empty().is_empty()) {
        (true, true) => errors.push(source.required("one of datasetName and datasetUUID is required")),
        (false, false) => {
            let told = "datasetName and datasetUUID can not be specified simultaneously";
            errors.push(source.invalid_value("resource", told));
        }
        _ => {}
    }
    if name.text_or_empty().contains('/') {
        errors.push(name.invalid("must not contain '/'"));
    }
}

fn quobyte(source: &At<'_, '_>, errors: &mut Errors) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let (registry, tenant) = (source.at("registry"), source.at("tenant"));
    if registry.text_or_empty().is_empty() {
        errors.push(registry.required(PAIRS));
    } else if tenant.text_or_empty().len() >= 65 {
        errors.push(tenant.required("must be a UUID and may not exceed a length of 64 characters"));
    } else {
        let unpaired = registry.text_or_empty().split(',').filter(|pair| !is_host_port(pair));
        errors.extend(unpaired.map(|_| registry.invalid(PAIRS)));
    }
    required(&source.at("volume"), errors);
}

/// A host, in brackets if it has colons, and a port.
fn is_host_port(pair: &str) -> bool {
    match pair.strip_prefix('[') {
        Some(rest) => rest.split_once("]:").is_some_and(|(host, port)| !host.contains('[') && !port.contains(':')),
        None => pair.split_once(':').is_some_and(|(host, port)| !host.contains(']') && !port.contains([':', '[', ']'])),
    }
}

fn fibre_channel(source: &At<'_, '_>, errors: &mut Errors) {
    let (names, ids, lun) = (source.at("targetWWNs"), source.at("wwids"), source.at("lun"));
    if names.is_empty() && ids.is_empty() {
        errors.push(names.required("must specify either targetWWNs or wwids, but not both"));
    }
    if names.is_empty() {
        return;
    }
    if !ids.is_empty() {
        errors.push(names.invalid("targetWWNs and wwids can not be specified simultaneously"));
    }
    if !lun.is_set() {
        errors.push(lun.required("lun is required if targetWWNs is specified"));
    }
    between(&lun, 0, 255, errors);
}

fn azure_disk(source: &At<'_, '_>, errors: &mut Errors) {
    one_of(&source.at("cachingMode"), &["None", "ReadOnly", "ReadWrite"], errors);
    let (kind, uri) = (source.at("kind"), source.at("diskURI"));
    one_of(&kind, &["Dedicated", "Managed", "Shared"], errors);
    let (prefix, form) = match kind.text() {
        None => return,
        Some("Managed") => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        Some(_) => ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"),
    };
    if !uri.text_or_empty().starts_with(prefix) {
        errors.push(uri.not_supported(uri.text_or_empty(), &[form]));
    }
}

fn csi(source: &At<'_, '_>, errors: &mut Errors) {
    let driver = source.at("driver");
    let name = driver.text_or_empty();
    if !name.is_empty() {
        if name.len() > 63 {
            errors.push(driver.too_long(63));
        }
        reject(&driver, meta::dns_subdomain_problems(&name.to_lowercase()), errors);
    }
    let secret = source.at("nodePublishSecretRef");
    let secret_name = secret.at("name");
    if secret.is_set() && required(&secret_name, errors) {
        let problems = meta::dns_subdomain_problems(secret_name.text_or_empty()).into_iter();
        errors.extend(problems.map(|problem| source.at("name").invalid_value(secret_name.text_or_empty(), problem)));
    }
}

// ---- projected files ----

/// Errors name `source`: they do not say which of the files.
fn downward_file(source: &At<'_, '_>, file: &At<'_, '_>, errors: &mut Errors) {
    let told_path = source.at("path");
    let path = file.at("path").text_or_empty();
    if path.is_empty() {
        errors.push(told_path.required(""));
    }
    unreserved_path(&told_path, path, errors);
    // The same file at the path that errors name.
    let whole = source.path();
    let file = At::rooted(&whole, file.value);
    let (field, resource) = (file.at("fieldRef"), file.at("resourceFieldRef"));
    match (field.is_set(), resource.is_set()) {
        (true, both) => {
            env::field_ref(&field, &env::SHOWN_IN_FILES, errors);
            if both {
                let told = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.push(file.invalid_value("resource", told));
            }
        }
        (false, true) => env::resource_field_ref(&resource, true, errors),
        (false, false) => errors.push(file.required("one of fieldRef and resourceFieldRef is required")),
    }
    file_mode(&file.at("mode"), errors);
}

fn projections(projected: &At<'_, '_>, errors: &mut Errors) {
    let mut paths = UniqueTexts::default();
    let sources = projected.at("sources");
    for source in sources.items() {
        let mut kinds = 0;
        for kind in ["secret", "configMap"] {
            let part = source.at(kind);
            if !part.is_set() {
                continue;
            }
            kinds += 1;
            let name = part.at("name");
            required(&name, errors);
            for item in part.at("items").items() {
                key_to_path(&item, errors);
                let path = item.at("path").text_or_empty();
                if !path.is_empty() && !paths.insert(path) {
                    errors.push(projected.invalid_value(name.text_or_empty(), "conflicting duplicate paths"));
                }
            }
        }
        let part = source.at("downwardAPI");
        if part.is_set() {
            kinds += 1;
            for item in part.at("items").items() {
                downward_file(&part, &item, errors);
                let path = item.at("path").text_or_empty();
                if !path.is_empty() && !paths.insert(path) {
                    errors.push(projected.invalid_value(path, "conflicting duplicate paths"));
                }
            }
        }
        let part = source.at("serviceAccountToken");
        if part.is_set() {
            kinds += 1;
            token(projected, &part, errors);
        }
        if kinds > 1 {
            errors.push(source.forbidden("may not specify more than 1 volume type per source"));
        }
    }
}

fn token(projected: &At<'_, '_>, token: &At<'_, '_>, errors: &mut Errors) {
    let expiry = token.at("expirationSeconds");
    match expiry.int().unwrap_or(0) {
        ..600 => errors.push(expiry.invalid("may not specify a duration less than 10 minutes")),
        0x1_0000_0001.. => errors.push(expiry.invalid("may not specify a duration larger than 2^32 seconds")),
        _ => {}
    }
    let (path, told_at) = (token.at("path").text_or_empty(), projected.at("path"));
    if path.is_empty() {
        errors.push(told_at.required(""));
    } else {
        unreserved_path(&told_at, path, errors);
    }
}

// ---- claims ----

fn claim_template(template: &At<'_, '_>, errors: &mut Errors) {
    let metadata = template.at("metadata");
    errors.extend(meta::validate_annotations(metadata.at("annotations")));
    errors.extend(meta::validate_labels(metadata.at("labels")));
    for (field, _) in metadata.entries().filter(|(field, _)| !matches!(*field, "annotations" | "labels")) {
        errors.push(metadata.at(field).forbidden("cannot be set"));
    }
    claim_spec(&template.at("spec"), errors);
}

pub(crate) fn claim_spec(spec: &At<'_, '_>, errors: &mut Errors) {
    const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let modes = spec.at("accessModes");
    if modes.is_empty() {
        errors.push(modes.required("at least 1 access mode is required"));
    }
    label_selector(&spec.at("selector"), errors);
    let (mut alone, mut shared) = (false, false);
    for mode in modes.list().iter().filter_map(Value::as_str) {
        match mode {
            "ReadWriteOncePod" => alone = true,
            _ if MODES.contains(&mode) => shared = true,
            _ => errors.push(modes.not_supported(mode, &MODES)),
        }
    }
    if alone && shared {
        errors.push(modes.forbidden("may not use ReadWriteOncePod with other access modes"));
    }
    let resources = spec.at("resources");
    let (requests, told_at) = (resources.at("requests"), resources.key("storage"));
    match quantity_of(requests.key("storage").value) {
        None => errors.push(told_at.required("")),
        Some(amount) if amount.is_zero() || amount.is_negative() => {
            errors.push(told_at.invalid_value(amount.to_string(), "must be greater than zero"));
        }
        Some(_) => {}
    }
    for field in ["storageClassName", "volumeAttributesClassName"] {
        let class = spec.at(field);
        if !class.text_or_empty().is_empty() {
            reject(&class, meta::dns_subdomain_problems(class.text_or_empty()), errors);
        }
    }
    one_of(&spec.at("volumeMode"), &["Block", "Filesystem"], errors);
    for field in ["dataSource", "dataSourceRef"] {
        data_source(&spec.at(field), errors);
    }
}

fn data_source(source: &At<'_, '_>, errors: &mut Errors) {
    if !source.is_set() {
        return;
    }
    let (kind, group) = (source.at("kind"), source.at("apiGroup"));
    required(&source.at("name"), errors);
    required(&kind, errors);
    if !group.text_or_empty().is_empty() {
        reject(&group, meta::dns_subdomain_problems(group.text_or_empty()), errors);
    } else if kind.text_or_empty() != "PersistentVolumeClaim" {
        let told = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(source.invalid_value(kind.text_or_empty(), told));
    }
}
