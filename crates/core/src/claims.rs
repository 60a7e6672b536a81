//! Claims for storage (`PersistentVolumeClaim`): which of them get a volume on a node that has nothing but directories.

use serde_json::Value;

/// The class of the volumes that nodes provide.
pub const CLASS: &str = "local";
/// Other names for it: manifests that were written for a test cluster name the class of that cluster.
const ALSO: [&str; 2] = ["", "standard"];
/// The finalizer that keeps a claim while Pods use its volume.
pub const PROTECTION: &str = "kubernetes.io/pvc-protection";

/// The name of the volume of a claim.
pub fn volume_name(uid: &str) -> String {
    format!("pvc-{uid}")
}

/// Why nothing here provides a volume for the claim with this UID and spec. None: a node does.
pub fn obstacle(uid: &str, spec: &Value) -> Option<String> {
    let text = |field: &str| spec.get(field).and_then(Value::as_str).unwrap_or_default();
    let is_set = |field: &str| spec.get(field).is_some_and(|value| !value.is_null());
    let class = text("storageClassName");
    if class != CLASS && !ALSO.contains(&class) {
        return Some(format!(
            "nothing here provisions volumes of the storage class {class:?}; leave out storageClassName, or use {CLASS:?}"
        ));
    }
    if !matches!(text("volumeMode"), "" | "Filesystem") {
        return Some("volumes are directories here, and volumeMode Block asks for a device".to_owned());
    }
    let volume = text("volumeName");
    if !volume.is_empty() && volume != volume_name(uid) {
        return Some(format!("there are no PersistentVolumes here, and volumeName asks for {volume:?}; leave it out"));
    }
    let wanted = ["selector", "dataSource", "dataSourceRef"].into_iter().find(|field| is_set(field));
    wanted.map(|field| format!("there are no PersistentVolumes and no snapshots here, which {field} asks for"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// CLAIM-2
    #[test]
    fn a_claim_gets_a_directory_unless_it_asks_for_something_else() {
        for spec in [
            json!({}),
            json!({"storageClassName": ""}),
            json!({"storageClassName": "local", "volumeMode": "Filesystem"}),
            json!({"storageClassName": "standard"}),
            json!({"volumeName": "pvc-u"}),
        ] {
            assert_eq!(obstacle("u", &spec), None, "{spec}");
        }
        for (spec, told) in [
            (json!({"storageClassName": "fast"}), "the storage class \"fast\""),
            (json!({"volumeMode": "Block"}), "volumeMode Block"),
            (json!({"volumeName": "pvc-other"}), "volumeName asks for \"pvc-other\""),
            (json!({"selector": {"matchLabels": {"a": "b"}}}), "which selector asks for"),
            (json!({"dataSource": {"kind": "VolumeSnapshot", "name": "s"}}), "which dataSource asks for"),
        ] {
            let why = obstacle("u", &spec);
            assert!(why.as_ref().is_some_and(|why| why.contains(told)), "{spec}: {why:?}");
        }
    }
}
