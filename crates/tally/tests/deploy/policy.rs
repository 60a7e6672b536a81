//! Evaluates the policy that protects the status of Jobs (KEP-2307 relies on a single writer).

use serde_json::{Value, json};

use super::expression::PolicyExpression;
use super::renderings::{self, Rendering};

/// Whether a write of a Job's status passes, as an API server decides it.
fn passes(policy: &Value, user: &str, managed_by: Option<&str>) -> bool {
    let spec = managed_by.map_or(json!({"parallelism": 1}), |name| json!({"managedBy": name}));
    let variables = json!({
        "oldObject": {"spec": spec},
        // What the request says about the Job must not matter.
        "object": {"spec": {"managedBy": "example.com/lie"}},
        "request": {"userInfo": {"username": user}},
    });
    let holds = |rule: &Value| PolicyExpression::read(rule["expression"].as_str().unwrap()).holds(&variables);
    let concerns = policy["spec"]["matchConditions"].as_array().unwrap().iter().all(holds);
    !concerns || policy["spec"]["validations"].as_array().unwrap().iter().all(holds)
}

fn account(rendering: &Rendering) -> String {
    let name = rendering.the("ServiceAccount")["metadata"]["name"].as_str().unwrap();
    format!("system:serviceaccount:{}:{name}", rendering.namespace)
}

#[test]
fn only_tally_writes_the_status_of_the_jobs_it_serves() {
    const BUILT_IN: &str = "system:serviceaccount:kube-system:job-controller";
    let mut seen = 0;
    for rendering in renderings::all() {
        for policy in rendering.of_kind("ValidatingAdmissionPolicy") {
            seen += 1;
            let tally = account(rendering);
            let jobs = [
                None,
                Some("kubernetes.io/job-controller"),
                Some("tally.dev/job-controller"),
                Some("example.com/tally"),
            ];
            for managed_by in jobs {
                let served = match rendering.managed_by {
                    Some(name) => managed_by == Some(name),
                    None => managed_by.is_none_or(|name| name == "kubernetes.io/job-controller"),
                };
                for user in [tally.as_str(), BUILT_IN, "kubernetes-admin", "system:serviceaccount:default:tally", ""] {
                    let expected = !served || user == tally;
                    assert_eq!(
                        passes(policy, user, managed_by),
                        expected,
                        "{}: {user} {managed_by:?}",
                        rendering.title
                    );
                }
            }
            let binding = rendering.the("ValidatingAdmissionPolicyBinding");
            assert_eq!(
                binding["spec"],
                json!({"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]})
            );
            let rules = json!([{
                "apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["jobs/status"],
            }]);
            assert_eq!(policy["spec"]["matchConstraints"]["resourceRules"], rules, "and nothing else is held up");
            assert_eq!(policy["spec"]["failurePolicy"], "Fail");
        }
    }
    assert!(seen >= 2, "{seen}");
}

#[test]
fn others_who_write_it_can_be_let_in() {
    let kueue = "system:serviceaccount:kueue-system:kueue-controller-manager";
    for rendering in renderings::charts() {
        let Some(policy) = rendering.of_kind("ValidatingAdmissionPolicy").next() else { continue };
        let listed = policy["spec"]["validations"][0]["expression"].as_str().unwrap().contains(kueue);
        assert_eq!(passes(policy, kueue, rendering.managed_by), listed, "{}", rendering.title);
        assert_eq!(listed, rendering.title.contains("alsoAllow"), "{}", rendering.title);
    }
}
