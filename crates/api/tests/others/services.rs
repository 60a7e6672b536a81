//! Services.

use tally_api::kinds::Part;
use tally_value::json;

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
    refused("Service", json!({"metadata": {"name": "a.b"}}), {
        "metadata.name: Invalid value: \"a.b\": must not contain dots"
    });
}

#[test]
fn service_has_an_address_and_keeps_it() {
    let body = json!({"spec": {"ports": [{"port": 80}]}});
    let service = accepted("Service", body.clone());
    let address: std::net::Ipv4Addr = service["spec"]["clusterIP"].as_str().unwrap().parse().unwrap();
    assert_eq!(u32::from(address) >> 20, u32::from_be_bytes([10, 96, 0, 0]) >> 20, "{address}");
    assert_eq!(service["spec"]["clusterIPs"], json!([address.to_string()]));
    assert_eq!(accepted("Service", body.clone()), service, "the address follows from the uid");

    let again = update("Service", &service, &body, Part::Main).unwrap();
    assert_eq!(again["spec"], service["spec"]);
}
