//! What a kubeconfig may say about certificates, against a real server.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use serde_json::{Value, json};
use tally_remote::{Remote, connect, request};

use crate::support::server::{Server, directory};

/// The code of the response, or why there is none.
async fn reach(file: &Path, cluster: Value, user: Value) -> Result<u16, String> {
    let config = json!({
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    });
    std::fs::write(file, config.to_string()).unwrap();
    let place = connect::KubeconfigSource { kubeconfig: Some(file.to_owned()), context: None };
    let access = connect::access(&place).map_err(|error| format!("{error:#}"))?;
    let remote = Remote::new(connect::service(&access).map_err(|error| format!("{error:#}"))?);
    let get = request::plain(Method::GET, "/api/v1/namespaces", Default::default()).unwrap();
    remote.ask(get).await.map(|answer| answer.code).map_err(|failure| failure.why)
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_come_from_data_files_and_plugins() {
    let directory = directory();
    let server = Server::start(directory.path()).await;
    let written: Value = serde_saphyr::from_str(&std::fs::read_to_string(server.kubeconfig()).unwrap()).unwrap();
    let (cluster, user) = (&written["clusters"][0]["cluster"], &written["users"][0]["user"]);
    let url = &cluster["server"];
    let authority = &cluster["certificate-authority-data"];
    let pem = |value: &Value| String::from_utf8(STANDARD.decode(value.as_str().unwrap()).unwrap()).unwrap();
    let (certificate, key) = (pem(&user["client-certificate-data"]), pem(&user["client-key-data"]));
    for (name, text) in [("ca.pem", &pem(authority)), ("cert.pem", &certificate), ("key.pem", &key)] {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let printed = json!({"status": {"clientCertificateData": certificate, "clientKeyData": key}});
    std::fs::write(directory.path().join("printed.json"), printed.to_string()).unwrap();
    let printed = directory.path().join("printed.json").display().to_string();
    let file = directory.path().join("config");
    let files = json!({"client-certificate": "cert.pem", "client-key": "key.pem"});
    let plugin = json!({"exec": {"command": "cat", "args": [printed], "interactiveMode": "Never"}});
    for (cluster, user, code) in [
        (json!({"server": url, "certificate-authority-data": authority}), user.clone(), 200),
        (json!({"server": url, "certificate-authority": "ca.pem"}), files.clone(), 200),
        (json!({"server": url, "certificate-authority": "ca.pem"}), plugin, 200),
        (json!({"server": url, "insecure-skip-tls-verify": true}), files.clone(), 200),
        (json!({"server": url, "certificate-authority": "ca.pem", "tls-server-name": "localhost"}), files.clone(), 200),
        // A user without credentials, and one whose token is wrong.
        (json!({"server": url, "certificate-authority": "ca.pem"}), json!({}), 401),
        (json!({"server": url, "certificate-authority": "ca.pem"}), json!({"token": "t"}), 401),
    ] {
        assert_eq!(reach(&file, cluster.clone(), user.clone()).await, Ok(code), "{cluster} {user}");
    }
    for (cluster, user, hint) in [
        (json!({"server": url}), files.clone(), "certificate"),
        (json!({"server": url, "certificate-authority": "ca.pem", "tls-server-name": "other"}), files, "certificate"),
        (json!({"server": url, "certificate-authority": "gone.pem"}), json!({}), "gone.pem"),
        (json!({"server": url}), json!({"client-certificate": "cert.pem", "client-key": "ca.pem"}), "client key"),
    ] {
        let why = reach(&file, cluster.clone(), user).await.unwrap_err();
        assert!(why.contains(hint), "{cluster}: {why}");
    }
}
