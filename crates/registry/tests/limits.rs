//! LimitRanges: which defaults they set, what they refuse, and the messages.

use crate::support::Cluster;
use tally_value::{Value, json};

/// A cluster whose namespace `default` has these limits, each in its own LimitRange.
fn limited(ranges: &[Value]) -> Cluster {
    let cluster = Cluster::new();
    for (number, limits) in ranges.iter().enumerate() {
        let range = json!({"metadata": {"name": format!("l{number}")}, "spec": {"limits": limits}});
        cluster.create(cluster.target("", "limitranges", "default", ""), &range).unwrap();
    }
    cluster
}

fn pod(resources: &Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "c", "image": "i", "resources": resources}]}})
}

/// The stored object, or the error message without its common prefix.
fn make(cluster: &Cluster, plural: &str, object: &Value) -> Result<Value, String> {
    let made = cluster.create(cluster.target("", plural, "default", ""), object);
    let refused = |failure: tally_api::status_error::StatusError| {
        assert_eq!((failure.code, failure.reason), (403, "Forbidden"));
        let begins = format!("{plural} \"{}\" is forbidden: ", object["metadata"]["name"].as_str().unwrap());
        failure.message.strip_prefix(&begins).expect(&failure.message).to_owned()
    };
    made.map(|written| written.object.parse()).map_err(refused)
}

#[test]
fn containers_out_of_bounds_are_refused() {
    let max = json!([{"type": "Container", "max": {"memory": "1Gi"}}]);
    let min = json!([{"type": "Container", "min": {"cpu": "100m"}}]);
    let ratio = json!([{"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}]);
    let pods = json!([{"type": "Pod", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}]);
    let both = json!([{"type": "Container", "max": {"memory": "1Gi"}, "min": {"cpu": "1"}}]);
    let of = |requests: Value, limits: Value| json!({"requests": requests, "limits": limits});
    for (range, resources, told) in [
        (&max, of(json!({}), json!({"memory": "1Gi"})), ""),
        (&max, of(json!({}), json!({"memory": "2Gi"})), "maximum memory usage per Container is 1Gi, but limit is 2Gi"),
        (&max, of(json!({}), json!({})), ""),
        (&min, of(json!({"cpu": "100m"}), json!({})), ""),
        (&min, of(json!({"cpu": "99m"}), json!({})), "minimum cpu usage per Container is 100m, but request is 99m"),
        (&ratio, of(json!({"cpu": "1"}), json!({"cpu": "2"})), ""),
        (
            &ratio,
            of(json!({"cpu": "1"}), json!({"cpu": "2500m"})),
            "cpu max limit to request ratio per Container is 2, but provided ratio is 2.500000",
        ),
        (
            &ratio,
            of(json!({}), json!({})),
            "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
        ),
        (
            &ratio,
            of(json!({"cpu": "1"}), json!({})),
            "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
        ),
        (&pods, of(json!({}), json!({"cpu": "2", "memory": "1Mi"})), ""),
        (
            &pods,
            of(json!({}), json!({})),
            "[minimum memory usage per Pod is 1Mi.  No request is specified, maximum cpu usage per Pod is 2.  No limit is \
             specified]",
        ),
        (
            &both,
            of(json!({"cpu": "500m"}), json!({"cpu": "800m", "memory": "2Gi"})),
            "[minimum cpu usage per Container is 1, but request is 500m, maximum memory usage per Container is 1Gi, but \
             limit is 2Gi]",
        ),
    ] {
        let cluster = limited(std::slice::from_ref(range));
        let found = make(&cluster, "pods", &pod(&resources)).err().unwrap_or_default();
        assert_eq!(found, told, "{range} {resources}");
    }
}

#[test]
fn a_pod_is_as_large_as_its_containers_together() {
    let container = |name: &str| json!({"name": name, "image": "i", "resources": {"limits": {"cpu": "1"}}});
    let mut pod = pod(&json!({}));
    pod["spec"]["containers"] = json!([container("a"), container("b")]);
    let allowed = |most: &str| {
        let cluster = limited(&[json!([{"type": "Pod", "max": {"cpu": most}}])]);
        make(&cluster, "pods", &pod).map(|_| ())
    };
    assert_eq!(allowed("2"), Ok(()));
    assert_eq!(allowed("1999m"), Err("maximum cpu usage per Pod is 1999m, but limit is 2".to_owned()));
}

#[test]
fn what_containers_leave_out_is_filled_in_and_said() {
    let range =
        json!([{"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "500m"}}]);
    let cluster = limited(&[range]);
    let mut object = pod(&json!({"limits": {"memory": "2Gi"}}));
    object["spec"]["initContainers"] = json!([{"name": "n", "image": "i"}]);
    let stored = make(&cluster, "pods", &object).unwrap();
    assert_eq!(
        stored["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c; \
         cpu, memory request for init container n; cpu, memory limit for init container n"
    );
    assert_eq!(
        stored["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "1", "memory": "2Gi"}, "requests": {"cpu": "500m", "memory": "2Gi"}})
    );
    assert_eq!(stored["status"]["qosClass"], "Burstable", "the class is that of what was filled in");
    let plain = make(&limited(&[]), "pods", &pod(&json!({}))).unwrap();
    assert_eq!(
        (plain["metadata"].get("annotations"), &plain["spec"]["containers"][0]["resources"]),
        (None, &json!({}))
    );
}

#[test]
fn a_default_that_does_not_fit_what_was_asked_for_is_invalid() {
    let cluster = limited(&[json!([{"type": "Container", "default": {"cpu": "1"}}])]);
    let failure = cluster.create(cluster.target("", "pods", "default", ""), &pod(&json!({"requests": {"cpu": "2"}})));
    let failure = failure.map(|_| ()).unwrap_err();
    assert_eq!(failure.code, 422);
    assert!(failure.message.contains("must be less than or equal to cpu limit of 1"), "{}", failure.message);
}

#[test]
fn limits_are_those_of_the_namespace_and_the_refusal_names_the_pod() {
    let cluster = limited(&[json!([{"type": "Pod", "max": {"cpu": "1"}}])]);
    let generated = json!({"metadata": {"generateName": "a-"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let failure = cluster.create(cluster.target("", "pods", "default", ""), &generated).map(|_| ()).unwrap_err();
    let name = failure.message.split('"').nth(1).unwrap();
    assert!(name.starts_with("a-") && name.len() == "a-x7k2p".len(), "{}", failure.message);
    let elsewhere = cluster.target("", "pods", "kube-system", "");
    assert!(cluster.create(elsewhere, &generated).is_ok());
}

#[test]
fn claims_are_bounded_when_made_and_when_they_grow() {
    let range = json!([{"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}]);
    let cluster = limited(&[range]);
    let claim = |size: &str| {
        json!({"metadata": {"name": "v"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}})
    };
    for (size, told) in [
        ("512Mi", "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 512Mi"),
        ("3Gi", "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"),
    ] {
        assert_eq!(make(&cluster, "persistentvolumeclaims", &claim(size)).unwrap_err(), told);
    }
    make(&cluster, "persistentvolumeclaims", &claim("1Gi")).unwrap();
    let target = cluster.target("", "persistentvolumeclaims", "default", "v");
    let status = tally_registry::Target { subresource: target.resource.subresource("status"), ..target };
    cluster.merge(status, &json!({"status": {"phase": "Bound"}})).unwrap();
    let grow = |size: &str| {
        let grown = cluster.merge(target, &json!({"spec": {"resources": {"requests": {"storage": size}}}}));
        grown.map(|_| ()).map_err(|failure| failure.code)
    };
    assert_eq!((grow("3Gi"), grow("2Gi")), (Err(403), Ok(())));
}
