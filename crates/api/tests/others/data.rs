//! ConfigMaps and Secrets.

use tally_value::{Value, json};

use super::{accepted, check, check_update, refused};

const BAD_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
     'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

#[test]
fn keys_of_data_can_be_file_names() {
    for kind in ["ConfigMap", "Secret"] {
        let data = |key: &str| json!({"data": {key: "eA=="}});
        refused(kind, data("a b"), &format!("data[a b]: Invalid value: \"a b\": {BAD_KEY}"));
        refused(kind, data(".."), "data[..]: Invalid value: \"..\": must not be '..'");
        refused(kind, data("."), "data[.]: Invalid value: \".\": must not be '.'");
        refused(kind, data("..a"), "data[..a]: Invalid value: \"..a\": must not start with '..'");
        accepted(kind, data(&"a".repeat(253)));
        let long = "a".repeat(254);
        let text = format!("data[{long}]: Invalid value: \"{long}\": must be no more than 253 characters");
        refused(kind, data(&long), &text);
    }
    refused("ConfigMap", json!({"data": {"a": "1"}, "binaryData": {"a": "eA=="}}), {
        "data[a]: Invalid value: \"a\": duplicate of key present in binaryData"
    });
}

#[test]
fn data_of_more_than_a_mebibyte_is_refused() {
    let data = |bytes: usize| json!({"data": {"a": "x".repeat(bytes)}});
    accepted("ConfigMap", data(1024 * 1024));
    refused("ConfigMap", data(1024 * 1024 + 1), "[]: Too long: may not be more than 1048576 bytes");
    let data = |bytes: usize| json!({"stringData": {"a": "x".repeat(bytes)}});
    accepted("Secret", data(1024 * 1024));
    refused("Secret", data(1024 * 1024 + 1), "data: Too long: may not be more than 1048576 bytes");
}

#[test]
fn immutable_data_stays() {
    let frozen = "field is immutable when `immutable` is set";
    let map = |data: &str| json!({"immutable": true, "data": {"a": data}, "binaryData": {"b": "eA=="}});
    check_update("ConfigMap", map("1"), map("1"), Ok(()));
    check_update("ConfigMap", map("1"), map("2"), Err(&format!("data: Forbidden: {frozen}")));
    let all = format!("[immutable: Forbidden: {frozen}, data: Forbidden: {frozen}, binaryData: Forbidden: {frozen}]");
    check_update("ConfigMap", map("1"), json!({}), Err(&all));
    let secret = |data: &str| json!({"immutable": true, "stringData": {"a": data}});
    check_update("Secret", secret("1"), secret("2"), Err(&format!("data: Forbidden: {frozen}")));
    check_update("Secret", json!({"immutable": true}), json!({"immutable": true}), Ok(()));
    check_update("Secret", json!({}), json!({"immutable": true, "stringData": {"a": "1"}}), Ok(()));
}

#[test]
fn secret_is_opaque_unless_typed_and_takes_plain_text() {
    check("Secret", json!({}), Ok(json!({"type": "Opaque"})));
    check("Secret", json!({"data": {"a": "b2xk", "b": "eA=="}, "stringData": {"a": "new"}}), {
        Ok(json!({"data": {"a": "bmV3", "b": "eA=="}, "type": "Opaque"}))
    });
    check_update("Secret", json!({}), json!({"type": "x.io/other"}), {
        Err("type: Invalid value: \"x.io/other\": field is immutable")
    });
}

#[test]
fn typed_secret_has_the_keys_its_type_promises() {
    let typed = |kind: &str, data: Value| json!({"type": format!("kubernetes.io/{kind}"), "stringData": data});
    let redacted = "Invalid value: \"<secret contents redacted>\"";
    for (kind, data, message) in [
        ("tls", json!({}), "[data[tls.crt]: Required value, data[tls.key]: Required value]".to_owned()),
        ("tls", json!({"tls.crt": ""}), "data[tls.key]: Required value".to_owned()),
        ("basic-auth", json!({}), "[data[username]: Required value, data[password]: Required value]".to_owned()),
        ("ssh-auth", json!({"ssh-privatekey": ""}), "data[ssh-privatekey]: Required value".to_owned()),
        ("dockercfg", json!({}), "data[.dockercfg]: Required value".to_owned()),
        (
            "dockercfg",
            json!({".dockercfg": "{"}),
            format!("data[.dockercfg]: {redacted}: unexpected end of JSON input"),
        ),
        (
            "dockerconfigjson",
            json!({".dockerconfigjson": "7"}),
            format!(
                "data[.dockerconfigjson]: {redacted}: json: cannot unmarshal number into Go value of type map[string]interface {{}}"
            ),
        ),
        (
            "service-account-token",
            json!({}),
            "metadata.annotations[kubernetes.io/service-account.name]: Required value".to_owned(),
        ),
    ] {
        refused("Secret", typed(kind, data), &message);
    }
    accepted("Secret", typed("tls", json!({"tls.crt": "", "tls.key": ""})));
    accepted("Secret", typed("basic-auth", json!({"username": "u"})));
    accepted("Secret", typed("dockerconfigjson", json!({".dockerconfigjson": "{}"})));
    accepted("Secret", json!({"type": "x.io/any"}));
}

#[test]
fn a_pair_that_cannot_be_one_is_warned_of() {
    let block = "-----BEGIN X-----\n-----END X-----\n";
    for (certificate, key, told) in [
        ("x", "x", &["tls: failed to find any PEM data in certificate input"][..]),
        (block, "", &["tls: failed to find any PEM data in key input"][..]),
        (block, block, &[][..]),
    ] {
        let body = json!({"type": "kubernetes.io/tls", "stringData": {"tls.crt": certificate, "tls.key": key}});
        assert_eq!(super::of("Secret").rules.create_warnings(&accepted("Secret", body)), told);
    }
    assert_eq!(super::of("Secret").rules.create_warnings(&accepted("Secret", json!({}))), Vec::<String>::new());
}
