//! Services.

use serde_json::{Value, json};
use tally_api::kinds::Part;

use super::{accepted, check, refused, update};

#[test]
fn service_is_filled_in() {
    let ports = json!([{"name": "p", "port": 80}]);
    check(
        "Service",
        json!({"spec": {"clusterIP": "None", "ports": ports, "selector": {"a": "b"}}}),
        Ok(json!({
            "spec": {
                "clusterIP": "None", "clusterIPs": ["None"], "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack", "ports": [{"name": "p", "port": 80, "protocol": "TCP", "targetPort": 80}],
                "selector": {"a": "b"}, "sessionAffinity": "None", "type": "ClusterIP",
            },
            "status": {"loadBalancer": {}},
        })),
    );
    check(
        "Service",
        json!({"spec": {"type": "ExternalName", "externalName": "x.example.com"}}),
        Ok(json!({
            "spec": {"externalName": "x.example.com", "sessionAffinity": "None", "type": "ExternalName"},
            "status": {"loadBalancer": {}},
        })),
    );
    let headless = accepted("Service", json!({"spec": {"clusterIP": "None"}}));
    assert_eq!(headless["spec"]["ipFamilyPolicy"], "RequireDualStack");
    assert_eq!(headless["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
}

#[test]
fn service_has_an_address_and_keeps_it() {
    let body = json!({"spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let service = accepted("Service", body.clone());
    let address: std::net::Ipv4Addr = service["spec"]["clusterIP"].as_str().unwrap().parse().unwrap();
    assert_eq!(u32::from(address) >> 20, u32::from_be_bytes([10, 96, 0, 0]) >> 20, "{address}");
    assert_eq!(service["spec"]["clusterIPs"], json!([address.to_string()]));
    let node_port = service["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
    assert!((30_000..=32_767).contains(&node_port), "{node_port}");
    assert_eq!(accepted("Service", body.clone()), service, "the address follows from the uid");

    let again = update("Service", &service, &body, Part::Main).unwrap();
    assert_eq!(again["spec"], service["spec"]);
    let other = json!({"spec": {"clusterIP": "10.96.0.9", "ports": [{"port": 80}]}});
    let text = "spec.clusterIPs[0]: Invalid value: [\"10.96.0.9\"]: may not change once set";
    assert_eq!(update("Service", &service, &other, Part::Main), Err(text.to_owned()));
}

#[test]
fn service_is_refused_with_bad_ports_and_types() {
    let spec = |ports: Value| json!({"spec": {"ports": ports}});
    for (body, message) in [
        (spec(json!([])), "spec.ports: Required value"),
        (
            spec(json!([{"port": 0}])),
            "[spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive, \
             spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive]",
        ),
        (
            spec(json!([{"port": 80}, {"port": 81}])),
            "[spec.ports[0].name: Required value, spec.ports[1].name: Required value]",
        ),
        (
            spec(json!([{"port": 80, "name": "a"}, {"port": 81, "name": "a"}])),
            "spec.ports[1].name: Duplicate value: \"a\"",
        ),
        (
            spec(json!([{"port": 80, "name": "a"}, {"port": 80, "name": "b"}])),
            "spec.ports[1]: Duplicate value: {\"port\":80,\"protocol\":\"TCP\"}",
        ),
        (
            spec(json!([{"port": 80, "protocol": "X"}])),
            "spec.ports[0].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
        ),
        (json!({"spec": {"type": "ExternalName"}}), "spec.externalName: Required value"),
        (
            json!({"spec": {"type": "X", "ports": [{"port": 80}]}}),
            "spec.type: Unsupported value: \"X\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \
             \"NodePort\"",
        ),
        (
            json!({"spec": {"sessionAffinity": "X", "ports": [{"port": 80}]}}),
            "spec.sessionAffinity: Unsupported value: \"X\": supported values: \"ClientIP\", \"None\"",
        ),
        (
            json!({"metadata": {"name": "a.b"}, "spec": {"ports": [{"port": 80}]}}),
            "metadata.name: Invalid value: \"a.b\": must not contain dots",
        ),
    ] {
        refused("Service", body, message);
    }
}
