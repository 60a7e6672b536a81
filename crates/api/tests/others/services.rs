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
            json!({"spec": {"ports": [{"port": 80, "targetPort": "x_y"}]}}),
            "spec.ports[0].targetPort: Invalid value: \"x_y\": must contain only alpha-numeric characters (a-z, 0-9), and \
             hyphens (-)",
        ),
        (
            spec(json!([{"port": 80, "nodePort": 30_000}])),
            "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
        ),
        (
            json!({"metadata": {"name": "a.b"}, "spec": {"ports": [{"port": 80}]}}),
            "metadata.name: Invalid value: \"a.b\": must not contain dots",
        ),
    ] {
        refused("Service", body, message);
    }
}

/// A Service with one port and these other fields.
fn with(fields: Value) -> Value {
    let mut spec = json!({"ports": [{"port": 80}]});
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"spec": spec})
}

#[test]
fn fields_have_a_meaning_for_some_types_only() {
    let balancers = "may only be used when `type` is 'LoadBalancer'";
    for (fields, told) in [
        (
            json!({"type": "NodePort", "clusterIP": "None"}),
            "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services",
        ),
        (
            json!({"type": "ExternalName", "externalName": "a.b", "clusterIP": "None"}),
            "spec.clusterIPs: Forbidden: may not be set for ExternalName services",
        ),
        (
            json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}}),
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 0: must be greater than 0 and less than 86400",
        ),
        (
            json!({"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.8"]}),
            "spec.clusterIPs: Invalid value: [\"10.96.0.8\"]: first value must match `clusterIP`",
        ),
        (
            json!({"clusterIPs": ["10.96.0.8"]}),
            "spec.clusterIPs: Invalid value: [\"10.96.0.8\"]: must be empty when `clusterIP` is not specified",
        ),
        (json!({"ipFamilies": ["IPv6"], "clusterIP": "fd00::1"}), {
            "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster"
        }),
        (
            json!({"ipFamilyPolicy": "RequireDualStack"}),
            "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
        ),
        (json!({"externalIPs": ["127.0.0.1"]}), {
            "spec.externalIPs[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)"
        }),
        (
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 5}]}),
            "spec.ports[0].nodePort: Invalid value: 5: provided port is not in the valid range. The range of valid ports is \
             30000-32767",
        ),
        (
            json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]}),
            &format!("spec.LoadBalancerSourceRanges: Forbidden: {balancers}"),
        ),
        (
            json!({"allocateLoadBalancerNodePorts": true}),
            &format!("spec.allocateLoadBalancerNodePorts: Forbidden: {balancers}"),
        ),
        (json!({"loadBalancerClass": "x.io/y"}), &format!("spec.loadBalancerClass: Forbidden: {balancers}")),
        (
            json!({"externalTrafficPolicy": "Local"}),
            "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible services",
        ),
        (
            json!({"internalTrafficPolicy": "X"}),
            "spec.internalTrafficPolicy: Unsupported value: \"X\": supported values: \"Cluster\", \"Local\"",
        ),
        (
            json!({"trafficDistribution": "X"}),
            "spec.trafficDistribution: Unsupported value: \"X\": supported values: \"PreferClose\", \"PreferSameZone\", \
             \"PreferSameNode\"",
        ),
    ] {
        refused("Service", with(fields), told);
    }
    let local = accepted("Service", with(json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"})));
    assert!(local["spec"]["healthCheckNodePort"].as_i64().is_some_and(|port| port >= 30_000));
}

#[test]
fn a_service_of_another_type_loses_what_it_has_no_use_for() {
    let stored = accepted("Service", with(json!({"type": "LoadBalancer", "loadBalancerClass": "x.io/y"})));
    let mut plain = json!({"spec": stored["spec"]});
    plain["spec"]["type"] = "ClusterIP".into();
    let plain = update("Service", &stored, &plain, Part::Main).unwrap();
    for gone in ["externalTrafficPolicy", "allocateLoadBalancerNodePorts", "loadBalancerClass"] {
        assert_eq!(plain["spec"].get(gone), None, "{gone}");
    }
    assert_eq!(plain["spec"]["ports"][0].get("nodePort"), None);
    assert_eq!(plain["spec"]["clusterIP"], stored["spec"]["clusterIP"]);
    let mut name = json!({"spec": stored["spec"]});
    name["spec"]["type"] = "ExternalName".into();
    name["spec"]["externalName"] = "a.b".into();
    let name = update("Service", &stored, &name, Part::Main).unwrap();
    for gone in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
        assert_eq!(name["spec"].get(gone), None, "{gone}");
    }
    let changed = with(json!({"type": "ClusterIP", "loadBalancerClass": "x.io/z"}));
    let told = "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'";
    let changed = update("Service", &stored, &changed, Part::Main);
    assert_eq!(changed, Err(told.to_owned()), "what the client changed is not silently dropped");
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}});
    assert!(update("Service", &stored, &status, Part::Status).is_ok());
    let told = "status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'";
    assert_eq!(update("Service", &plain, &status, Part::Status), Err(told.to_owned()));
}

#[test]
fn services_with_fields_that_do_nothing_are_warned_of() {
    let warned = |fields| super::of("Service").rules.create_warnings(&accepted("Service", with(fields)));
    for (fields, told) in [
        (
            json!({"clusterIP": "None", "sessionAffinity": "ClientIP"}),
            "spec.SessionAffinity is ignored for headless services",
        ),
        (json!({"externalName": "a.b"}), "spec.externalName is ignored when spec.type is not \"ExternalName\""),
        (
            json!({"trafficDistribution": "PreferClose"}),
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
        ),
        (
            json!({"externalIPs": ["9.9.9.9"]}),
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
        ),
    ] {
        assert_eq!(warned(fields), [told]);
    }
    assert_eq!(warned(json!({})), Vec::<String>::new());
}

#[test]
fn endpoints_are_addresses_that_mean_the_same_everywhere() {
    let subset = |subset: Value| json!({"subsets": [subset]});
    let made = accepted("Endpoints", subset(json!({"addresses": [{"ip": "10.1.1.1"}], "ports": [{"port": 80}]})));
    assert_eq!(made["subsets"][0]["ports"], json!([{"port": 80, "protocol": "TCP"}]));
    for (body, told) in [
        (json!({}), "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"),
        (
            json!({"addresses": [{"ip": "127.0.0.1"}]}),
            "subsets[0].addresses[0].ip: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
        ),
        (
            json!({"addresses": [{"ip": "x"}]}),
            "[subsets[0].addresses[0].ip: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or \
             2001:db8::ffff), subsets[0].addresses[0].ip: Invalid value: \"x\": must be a valid IP address]",
        ),
        (
            json!({"notReadyAddresses": [{"ip": "10.1.1.1"}], "ports": [{"port": 80, "name": "a"}, {"port": 0}]}),
            "[subsets[0].ports[1].name: Required value, \
             subsets[0].ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive]",
        ),
    ] {
        refused("Endpoints", subset(body), told);
    }
}
