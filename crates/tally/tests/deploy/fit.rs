//! The objects reference each other correctly: labels, ports, accounts, the lease; and they agree with the image and
//! the binary.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::renderings::{self, Rendering, deploy};

fn labels(value: &Value) -> BTreeMap<&str, &str> {
    let fields = value.as_object().expect("labels");
    fields.iter().map(|(name, value)| (name.as_str(), value.as_str().expect("a label"))).collect()
}

/// Whether a selector matches these labels; an empty one would match everything.
fn finds(selector: &Value, labels_of: &Value) -> bool {
    let (selector, labels) = (labels(selector), labels(labels_of));
    !selector.is_empty() && selector.iter().all(|wanted| labels.iter().any(|has| has == wanted))
}

#[test]
fn everything_finds_the_pods_of_the_deployment() {
    for rendering in renderings::all() {
        let Rendering { title, .. } = rendering;
        let deployment = &rendering.the("Deployment")["spec"];
        let pods = &deployment["template"]["metadata"]["labels"];
        let template = &deployment["template"]["spec"];
        assert!(finds(&deployment["selector"]["matchLabels"], pods), "{title}");
        assert!(finds(&rendering.the("PodDisruptionBudget")["spec"]["selector"]["matchLabels"], pods), "{title}");
        let service = rendering.the("Service");
        assert!(finds(&service["spec"]["selector"], pods), "{title}");
        for spread in template["topologySpreadConstraints"].as_array().unwrap() {
            assert!(finds(&spread["labelSelector"]["matchLabels"], pods), "{title}");
        }
        for monitor in rendering.of_kind("ServiceMonitor") {
            assert!(finds(&monitor["spec"]["selector"]["matchLabels"], &service["metadata"]["labels"]), "{title}");
            assert_eq!(monitor["spec"]["endpoints"][0]["port"], service["spec"]["ports"][0]["name"], "{title}");
        }
        let port = &rendering.container()["ports"][0];
        assert_eq!(service["spec"]["ports"][0]["targetPort"], port["name"], "{title}");
        for (probe, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
            assert_eq!(rendering.container()[probe]["httpGet"], json!({"path": path, "port": port["name"]}), "{title}");
        }
        assert!(rendering.arguments().contains(&format!("--metrics=0.0.0.0:{}", port["containerPort"]).as_str()));
    }
}

#[test]
fn the_roles_are_bound_to_the_account_of_the_pods_and_the_lease_is_the_one_they_use() {
    for rendering in renderings::all() {
        let Rendering { title, namespace, .. } = rendering;
        let account = &rendering.the("ServiceAccount")["metadata"]["name"];
        assert_eq!(rendering.the("Deployment")["spec"]["template"]["spec"]["serviceAccountName"], *account, "{title}");
        let subject = json!([{"kind": "ServiceAccount", "name": account, "namespace": namespace}]);
        for (binding, role) in [("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")] {
            let named = |object: &Value| object["metadata"]["name"].clone();
            let roles: Vec<_> = rendering.of_kind(role).map(named).collect();
            let bound: Vec<_> = rendering.of_kind(binding).map(|binding| binding["roleRef"]["name"].clone()).collect();
            assert_eq!(bound, roles, "{title}: every {role} once");
            for binding in rendering.of_kind(binding) {
                assert_eq!(binding["subjects"], subject, "{title}");
                assert_eq!(binding["roleRef"]["kind"], role, "{title}");
            }
        }
        let leases = &rendering.the("Role")["rules"][1]["resourceNames"];
        let flag = format!("--leader-elect-resource-name={}", leases[0].as_str().unwrap());
        assert!(rendering.arguments().contains(&flag.as_str()), "{title}: {flag}");
    }
}

#[test]
fn the_pods_serve_the_jobs_they_are_meant_to() {
    for rendering in renderings::all() {
        let arguments = rendering.arguments();
        let value = |flag: &str| arguments.iter().find_map(|argument| argument.strip_prefix(flag));
        assert_eq!(arguments[0], "controller");
        assert_eq!(value("--controllers="), Some(rendering.controllers.join(",").as_str()), "{}", rendering.title);
        assert_eq!(value("--managed-by="), rendering.managed_by, "{}", rendering.title);
    }
}

/// The restricted Pod security standard, and a root file system that cannot be written.
#[test]
fn the_pods_may_do_nothing_they_need_not() {
    for rendering in renderings::all() {
        let pod = &rendering.the("Deployment")["spec"]["template"]["spec"];
        let container = rendering.container();
        assert_eq!(pod["containers"].as_array().unwrap().len(), 1);
        let expected = json!({
            "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"},
        });
        assert_eq!(pod["securityContext"], expected, "{}", rendering.title);
        let expected = json!({
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
        });
        assert_eq!(container["securityContext"], expected, "{}", rendering.title);
        for given in ["volumes", "hostNetwork", "hostPID", "hostIPC", "initContainers"] {
            assert!(pod[given].is_null(), "{}: {given}", rendering.title);
        }
        assert!(pod["terminationGracePeriodSeconds"].as_i64().unwrap() >= 30);
        assert!(container["resources"]["requests"]["memory"].is_string());
        assert!(container["resources"]["limits"]["memory"].is_string());
    }
}

#[test]
fn versions_and_the_user_of_the_image_agree() {
    let version = env!("CARGO_PKG_VERSION");
    let read = |path: &str| std::fs::read_to_string(deploy().join(path)).unwrap();
    let chart: Value = serde_saphyr::from_str(&read("helm/tally/Chart.yaml")).unwrap();
    assert_eq!((chart["version"].as_str(), chart["appVersion"].as_str()), (Some(version), Some(version)));
    let image = format!("tally:{version}");
    for rendering in renderings::kustomized() {
        assert_eq!(rendering.container()["image"], image.as_str());
        let user = &rendering.the("Deployment")["spec"]["template"]["spec"]["securityContext"];
        let dockerfile = read("Dockerfile");
        assert!(dockerfile.contains(&format!("\nUSER {}:{}\n", user["runAsUser"], user["runAsGroup"])));
        assert!(dockerfile.contains(&format!("FROM rust:{}-", env!("CARGO_PKG_RUST_VERSION"))));
        assert!(dockerfile.contains("cargo build --profile dist --locked"));
    }
}
