//! The ConfigMaps and Secrets that a Job's Pods require: a Pod that references a missing one would wait forever. Pure.

use serde_json::Value;

/// One reference to a ConfigMap or a Secret in a Job.
struct Named<'a> {
    field: String,
    kind: &'static str,
    name: &'a str,
    /// The required keys, each with its field. Only text values can be environment variables (`of_text`).
    keys: Vec<(String, &'a str)>,
    of_text: bool,
}

/// Fields that reference missing objects or keys, and what is wrong with them. `find` returns the object of a kind and
/// name.
pub fn missing(job: &Value, find: impl Fn(&str, &str) -> Option<Value>) -> Vec<(String, String)> {
    let mut wrong = Vec::new();
    for named in named(job) {
        let (kind, name) = (named.kind, named.name);
        let Some(there) = find(kind, name) else {
            let why = format!("{kind} {name:?} not found; add it to the same file, or mark it optional");
            wrong.push((named.field, why));
            continue;
        };
        for (field, key) in named.keys {
            let parts: &[&str] =
                if named.of_text { &["data", "stringData"] } else { &["data", "stringData", "binaryData"] };
            if !parts.iter().any(|part| there[part].get(key).is_some()) {
                wrong.push((field, format!("{kind} {name:?} has no key {key:?}; add the key, or mark it optional")));
            }
        }
    }
    wrong
}

fn named(job: &Value) -> Vec<Named<'_>> {
    let spec = &job["spec"]["template"]["spec"];
    let mut named = Vec::new();
    for list in ["initContainers", "containers"] {
        for (at, container) in items(&spec[list]) {
            let container_at = format!("spec.template.spec.{list}[{at}]");
            for (at, from) in items(&container["envFrom"]) {
                for (part, kind) in [("configMapRef", "ConfigMap"), ("secretRef", "Secret")] {
                    named.extend(whole(&from[part], kind, "name", format!("{container_at}.envFrom[{at}].{part}")));
                }
            }
            for (at, row) in items(&container["env"]) {
                for (part, kind) in [("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")] {
                    let source = &row["valueFrom"][part];
                    let field = format!("{container_at}.env[{at}].valueFrom.{part}");
                    let key = source["key"].as_str().map(|key| (format!("{field}.key"), key));
                    named.extend(whole(source, kind, "name", field).map(|it| Named {
                        keys: key.into_iter().collect(),
                        of_text: true,
                        ..it
                    }));
                }
            }
        }
    }
    for (at, volume) in items(&spec["volumes"]) {
        let field = format!("spec.template.spec.volumes[{at}]");
        named.extend(files(&volume["configMap"], "ConfigMap", "name", format!("{field}.configMap")));
        named.extend(files(&volume["secret"], "Secret", "secretName", format!("{field}.secret")));
        for (at, source) in items(&volume["projected"]["sources"]) {
            let field = format!("{field}.projected.sources[{at}]");
            named.extend(files(&source["configMap"], "ConfigMap", "name", format!("{field}.configMap")));
            named.extend(files(&source["secret"], "Secret", "name", format!("{field}.secret")));
        }
    }
    named
}

fn items(list: &Value) -> impl Iterator<Item = (usize, &Value)> {
    list.as_array().into_iter().flatten().enumerate()
}

/// `None` if there is no reference, or if it is optional.
fn whole<'a>(source: &'a Value, kind: &'static str, name: &str, field: String) -> Option<Named<'a>> {
    let found = source[name].as_str().filter(|_| source["optional"] != true)?;
    Some(Named { field: format!("{field}.{name}"), kind, name: found, keys: Vec::new(), of_text: false })
}

/// The same for a volume, which may require only some of the keys.
fn files<'a>(source: &'a Value, kind: &'static str, name: &str, field: String) -> Option<Named<'a>> {
    let keys = items(&source["items"])
        .filter_map(|(at, item)| Some((format!("{field}.items[{at}].key"), item["key"].as_str()?)));
    let keys = keys.collect();
    Some(Named { keys, ..whole(source, kind, name, field)? })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Only the ConfigMap `c` and the Secret `s` exist.
    fn find(kind: &str, name: &str) -> Option<Value> {
        match (kind, name) {
            ("ConfigMap", "c") => Some(json!({"data": {"k": "1"}, "binaryData": {"b": "eA=="}})),
            ("Secret", "s") => Some(json!({"data": {"k": "eA=="}})),
            _ => None,
        }
    }

    #[test]
    fn what_is_named_must_be_there() {
        let env = |source: Value| json!({"containers": [{"env": [{"name": "A", "valueFrom": source}]}]});
        let from = |source: Value| json!({"initContainers": [{}, {"envFrom": [source]}]});
        let volume = |source: Value| json!({"volumes": [{"name": "v"}, source]});
        for (spec, wrong) in [
            (json!({}), ""),
            (env(json!({"configMapKeyRef": {"name": "c", "key": "k"}})), ""),
            (
                env(json!({"configMapKeyRef": {"name": "x", "key": "k"}})),
                "containers[0].env[0].valueFrom.configMapKeyRef.name",
            ),
            (
                env(json!({"configMapKeyRef": {"name": "c", "key": "b"}})),
                "containers[0].env[0].valueFrom.configMapKeyRef.key",
            ),
            (
                env(json!({"secretKeyRef": {"name": "c", "key": "k"}})),
                "containers[0].env[0].valueFrom.secretKeyRef.name",
            ),
            (env(json!({"secretKeyRef": {"name": "c", "key": "k", "optional": true}})), ""),
            (env(json!({"fieldRef": {"fieldPath": "metadata.name"}})), ""),
            (from(json!({"configMapRef": {"name": "c"}})), ""),
            (from(json!({"secretRef": {"name": "x"}})), "initContainers[1].envFrom[0].secretRef.name"),
            (volume(json!({"configMap": {"name": "c", "items": [{"key": "b"}]}})), ""),
            (volume(json!({"configMap": {"name": "c", "items": [{"key": "x"}]}})), "volumes[1].configMap.items[0].key"),
            (volume(json!({"configMap": {"name": "x", "optional": true, "items": [{"key": "x"}]}})), ""),
            (volume(json!({"secret": {"secretName": "s"}})), ""),
            (volume(json!({"secret": {"secretName": "x"}})), "volumes[1].secret.secretName"),
            (
                volume(json!({"projected": {"sources": [{}, {"secret": {"name": "x"}}]}})),
                "volumes[1].projected.sources[1].secret.name",
            ),
        ] {
            let found = missing(&json!({"spec": {"template": {"spec": spec}}}), find);
            let fields: Vec<&str> =
                found.iter().filter_map(|(field, _)| field.strip_prefix("spec.template.spec.")).collect();
            assert_eq!(fields.join(" "), wrong, "{spec}");
        }
    }
}
