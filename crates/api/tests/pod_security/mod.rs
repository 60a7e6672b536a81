//! `recorded.json` has what kube-apiserver 1.36 said about each Pod, at both levels, for every version of the rules from
//! v1.0 to v1.36 and `latest`: a row for each version from which on it said something else. kube-apiserver sets the
//! field `appArmorProfile` from the annotation before it judges a Pod; the Pod `apparmor-ann` has it set.

use tally_api::pod_security::{
    NamespaceSecurity, PodIds, RulesVersion, SecurityLevel, SecurityPolicy, in_full, label_errors, violations,
    warnings_about_existing,
};
use tally_value::{Value, json};

fn policy(level: &str, version: &str) -> SecurityPolicy {
    let level = if level == "baseline" { SecurityLevel::Baseline } else { SecurityLevel::Restricted };
    SecurityPolicy { level, version: RulesVersion::parse(version).unwrap() }
}

/// PODSEC-2.
#[test]
fn every_recorded_pod_is_judged_as_by_kube_apiserver() {
    let recorded: Vec<Value> = serde_json::from_str(include_str!("recorded.json")).unwrap();
    let versions: Vec<String> = (0..=36).map(|minor| format!("v1.{minor}")).chain(["latest".to_owned()]).collect();
    let (mut compared, mut differences) = (0, Vec::new());
    for case in &recorded {
        let rows = case["violations"].as_array().unwrap();
        for level in ["baseline", "restricted"] {
            let mut expected = "";
            for version in &versions {
                if let Some(row) = rows.iter().find(|row| row[0] == level && row[1] == version.as_str()) {
                    expected = row[2].as_str().unwrap();
                }
                let found = in_full(&violations(policy(level, version), &case["pod"], &PodIds::all()));
                compared += 1;
                if found != expected {
                    differences.push(format!(
                        "{} {level}:{version}\n  said:     {found}\n  recorded: {expected}",
                        case["name"]
                    ));
                }
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {compared} differ:\n{}",
        differences.len(),
        differences[..differences.len().min(8)].join("\n")
    );
    assert!(compared > 4000, "{compared}");
}

/// PODSEC-1.
#[test]
fn labels_choose_the_policies() {
    let security = |labels: Value| NamespaceSecurity::of(&json!({"metadata": {"labels": labels}}));
    let texts = |security: NamespaceSecurity| {
        [security.enforce, security.audit, security.warn].map(|policy| policy.to_string())
    };
    for (labels, expected) in [
        (json!({}), ["privileged:latest"; 3]),
        // Without a level of its own, `warn` is that of `enforce`.
        (
            json!({"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/enforce-version": "v1.30"}),
            ["baseline:v1.30", "privileged:latest", "baseline:v1.30"],
        ),
        (
            json!({
                "pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "privileged",
                "pod-security.kubernetes.io/audit": "baseline", "pod-security.kubernetes.io/audit-version": "latest",
            }),
            ["restricted:latest", "baseline:latest", "privileged:latest"],
        ),
        // Stored before labels were checked.
        (
            json!({"pod-security.kubernetes.io/enforce": "no"}),
            ["restricted:latest", "privileged:latest", "restricted:latest"],
        ),
    ] {
        assert_eq!(texts(security(labels.clone())), expected, "{labels}");
    }
}

/// PODSEC-1.
#[test]
fn labels_are_validated() {
    for (labels, expected) in [
        (
            json!({"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "v1.99"}),
            &[][..],
        ),
        (
            json!({"pod-security.kubernetes.io/enforce": "bogus"}),
            &[
                "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"bogus\": must be one of privileged, baseline, restricted",
            ],
        ),
        (
            json!({"pod-security.kubernetes.io/audit": "", "pod-security.kubernetes.io/warn-version": "v9"}),
            &[
                "metadata.labels[pod-security.kubernetes.io/audit]: Invalid value: \"\": must be one of privileged, baseline, restricted",
                "metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \"v9\": must be \"latest\" or \"v1.x\"",
            ],
        ),
    ] {
        let errors = label_errors(&json!({"metadata": {"name": "n", "labels": labels}}));
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expected, "{labels}");
    }
    for wrong in ["1.2", "v1.", "v1.x", "v1.01", "v1.-1", "v2.0", "v1.+3", ""] {
        assert_eq!(RulesVersion::parse(wrong), None, "{wrong}");
    }
}

/// PODSEC-4.
#[test]
fn a_new_level_names_the_pods_that_it_would_not_accept() {
    let pod = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    let container = json!([{"name": "a"}]);
    let good = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let pods = [
        pod("p0", json!({"containers": container})),
        pod("p1", json!({"containers": container})),
        pod("p2", json!({"containers": container, "hostNetwork": true})),
        pod(
            "p3",
            json!({
                "containers": [{"name": "a", "securityContext": good}],
                "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            }),
        ),
        pod("p4", json!({"containers": container})),
    ];
    let warnings = |policy, count| warnings_about_existing("m", policy, &PodIds::all(), pods[..count].iter());
    let reasons = "allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, seccompProfile";
    assert_eq!(
        warnings(policy("restricted", "latest"), 5),
        [
            "existing pods in namespace \"m\" violate the new PodSecurity enforce level \"restricted:latest\""
                .to_owned(),
            format!("p0 (and 2 other pods): {reasons}"),
            format!("p2: host namespaces, {reasons}"),
        ]
    );
    assert_eq!(warnings(policy("restricted", "latest"), 2)[1], format!("p0 (and 1 other pod): {reasons}"));
    assert_eq!(warnings(policy("baseline", "latest"), 2), Vec::<String>::new());
}

const OF_USERS: &str = "without an image, the number is that of a user of this machine; use 65534, or start tally up with \
                        --pod-users=";
const OF_GROUPS: &str = "without an image, the number is that of a group of this machine; use 65534, or start tally up \
                         with --pod-groups=";

/// PODSEC-5.
#[test]
fn users_and_groups_of_the_machine_are_refused_unless_they_are_allowed() {
    let few = PodIds { users: "1000".parse().unwrap(), groups: "2000-2009".parse().unwrap() };
    for (context, own, refused, refused_by_few) in [
        (json!({}), json!({}), String::new(), false),
        (
            json!({"runAsUser": 65534, "runAsGroup": 65534, "fsGroup": 65534, "supplementalGroups": [65534]}),
            json!({}),
            String::new(),
            false,
        ),
        (json!({"runAsUser": null, "supplementalGroups": null}), json!({"runAsUser": null}), String::new(), false),
        (
            json!({"runAsUser": 1000}),
            json!({}),
            format!("users of the machine (pod must not set runAsUser=1000: {OF_USERS}1000)"),
            false,
        ),
        (
            json!({"runAsUser": 1001}),
            json!({"runAsUser": 1000}),
            format!(
                "users of the machine (pod must not set runAsUser=1001; container \"c\" must not set runAsUser=1000: \
                  {OF_USERS}1000,1001)"
            ),
            true,
        ),
        (
            json!({"fsGroup": 2000, "supplementalGroups": [65534, 2009]}),
            json!({"runAsGroup": 2000}),
            format!(
                "groups of the machine (pod must not set fsGroup=2000; pod must not set supplementalGroups=2009; \
                  container \"c\" must not set runAsGroup=2000: {OF_GROUPS}2000,2009)"
            ),
            false,
        ),
        (
            json!({"runAsGroup": 42}),
            json!({}),
            format!("groups of the machine (pod must not set runAsGroup=42: {OF_GROUPS}42)"),
            true,
        ),
        (
            json!({"fsGroup": 42}),
            json!({}),
            format!("groups of the machine (pod must not set fsGroup=42: {OF_GROUPS}42)"),
            true,
        ),
        (
            json!({"supplementalGroups": [42]}),
            json!({}),
            format!("groups of the machine (pod must not set supplementalGroups=42: {OF_GROUPS}42)"),
            true,
        ),
    ] {
        for list in ["containers", "initContainers"] {
            let pod = json!({"spec": {"securityContext": context, list: [{"name": "c", "securityContext": own}]}});
            for version in ["v1.0", "v1.36", "latest"] {
                let found = |ids: &PodIds| in_full(&violations(policy("baseline", version), &pod, ids));
                assert_eq!(found(&PodIds::default()), refused, "{pod}");
                assert_eq!(!found(&few).is_empty(), refused_by_few, "{pod}");
                assert_eq!(found(&PodIds::all()), "", "{pod}");
                // The level restricted refuses the same, beside what else it refuses.
                let restricted = in_full(&violations(policy("restricted", version), &pod, &PodIds::default()));
                assert!(restricted.ends_with(&refused), "{restricted}");
            }
            let open = SecurityPolicy { level: SecurityLevel::Privileged, version: RulesVersion::Latest };
            assert_eq!(violations(open, &pod, &PodIds::default()), []);
        }
    }
}
