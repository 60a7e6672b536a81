//! Authentication and authorization over HTTPS.

use crate::support::{Credentials, Running, get, issue, request};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd,
};
use tally_value::json;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Requests that need credentials (reads, writes, watches), and the status code that the administrator gets.
const DOORS: [(&str, &str, u16); 17] = [
    ("GET", "/", 200),
    ("GET", "/api", 200),
    ("GET", "/apis", 200),
    ("GET", "/api/v1", 200),
    ("GET", "/apis/batch", 200),
    ("GET", "/metrics", 200),
    ("GET", "/openapi/v3", 200),
    ("GET", "/nope", 404),
    ("GET", "/apis/nope/v1/x", 404),
    ("GET", "/api/v1/namespaces", 200),
    ("GET", "/api/v1/namespaces/default", 200),
    ("GET", "/api/v1/namespaces/default/configmaps?watch=1", 200),
    ("GET", "/api/v1/watch/namespaces/default/configmaps", 200),
    ("POST", "/api/v1/namespaces/default/configmaps", 400),
    ("DELETE", "/api/v1/namespaces/default/configmaps", 200),
    ("PATCH", "/api/v1/namespaces/default/configmaps/c", 415),
    ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 400),
];

/// Paths that need no credentials.
const WINDOWS: [&str; 6] = ["/healthz", "/livez", "/readyz", "/readyz/ping", "/livez?verbose", "/version"];

async fn check_refused(server: &Running, who: &str, credentials: &Credentials) {
    for (method, path, _) in DOORS {
        let answer = server.call(credentials, request(method, path, "")).await;
        assert_eq!(answer.code, 401, "{who}: {method} {path}");
        let unauthorized = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "Unauthorized",
            "reason": "Unauthorized", "code": 401,
        });
        assert_eq!(answer.value(), unauthorized, "{who}: {method} {path}");
    }
    let object = json!({"metadata": {"name": "burglar"}}).to_string();
    assert_eq!(server.call(credentials, request("POST", CONFIG_MAPS, object)).await.code, 401, "{who}");
    let there = server.call(&server.admin(), get(&format!("{CONFIG_MAPS}/burglar"))).await;
    assert_eq!(there.code, 404, "{who} wrote something");
}

async fn check_admitted(server: &Running, who: &str, credentials: &Credentials) {
    for (method, path, code) in DOORS {
        // The status code is enough; the body of a watch has no end to wait for.
        let answer = server.open(credentials, request(method, path, "")).await;
        assert_eq!(answer.status(), code, "{who}: {method} {path}");
    }
}

/// A certificate of an authority with the same name and another key.
fn foreign(change: impl FnOnce(&mut CertificateParams)) -> Credentials {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "tally authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    issue(&Issuer::new(params, key), change)
}

fn expired(params: &mut CertificateParams) {
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
}

fn not_yet(params: &mut CertificateParams) {
    (params.not_before, params.not_after) = (date_time_ymd(2400, 1, 1), date_time_ymd(2401, 1, 1));
}

fn for_servers(params: &mut CertificateParams) {
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
}

fn nameless(params: &mut CertificateParams) {
    params.distinguished_name.remove(DnType::CommonName);
}

#[tokio::test]
async fn requests_without_valid_credentials_reach_only_the_open_paths() {
    let server = Running::start().await;
    check_refused(&server, "nobody", &Credentials::default()).await;
    for path in WINDOWS {
        assert_eq!(server.call(&Credentials::default(), get(path)).await.code, 200, "{path}");
    }
    for (who, credentials) in [
        ("a guessed token", server.token("guess")),
        ("an empty token", server.token("")),
        ("almost the token", server.token(&server.pki.token[..server.pki.token.len() - 1])),
        ("more than the token", server.token(&format!("{}x", server.pki.token))),
        ("an expired certificate", server.issue(expired)),
        ("a certificate from the future", server.issue(not_yet)),
        ("a certificate for servers", server.issue(for_servers)),
        ("a certificate without a name", server.issue(nameless)),
        ("a foreign certificate", foreign(|_| {})),
        ("a foreign, expired certificate", foreign(expired)),
    ] {
        check_refused(&server, who, &credentials).await;
        // A client with invalid credentials gets 401 on the open paths too.
        assert_eq!(server.call(&credentials, get("/version")).await.code, 401, "{who}");
    }
}

#[tokio::test]
async fn the_administrator_comes_with_a_certificate_or_with_the_token() {
    let server = Running::start().await;
    check_admitted(&server, "the certificate of the kubeconfig", &server.admin()).await;
    check_admitted(&server, "the token", &server.token(&server.pki.token)).await;
    check_admitted(&server, "another certificate of the group", &server.issue(|_| {})).await;
    let both = Credentials { token: Some(server.pki.token.clone()), ..foreign(|_| {}) };
    check_admitted(&server, "a foreign certificate and the token", &both).await;
    let both = Credentials { token: Some("guess".to_owned()), ..server.admin() };
    check_admitted(&server, "the certificate and a guess", &both).await;
}

#[tokio::test]
async fn others_may_look_around_and_ask_about_themselves() {
    let server = Running::start().await;
    let group = |params: &mut CertificateParams| {
        params.distinguished_name.remove(DnType::OrganizationName);
    };
    let token = service_account_token(&server, "default", "s").await;
    for (name, credentials) in
        [("somebody", server.issue(group)), ("system:serviceaccount:default:s", server.token(&token))]
    {
        for (method, path, code) in DOORS {
            let answer = server.call(&credentials, request(method, path, "")).await;
            let is_open = matches!(path, "/api" | "/apis" | "/api/v1" | "/apis/batch" | "/openapi/v3")
                || path.contains("selfsubject");
            assert_eq!(answer.code, if is_open { code } else { 403 }, "{name}: {method} {path}");
        }
        let text = |answer: &crate::support::Answer| answer.value()["message"].as_str().unwrap_or_default().to_owned();
        let answer = server.call(&credentials, get("/apis/batch/v1/namespaces/n/jobs/j")).await;
        let expected = format!(
            "jobs.batch \"j\" is forbidden: User \"{name}\" cannot get resource \"jobs\" in API group \"batch\" in the \
             namespace \"n\""
        );
        assert_eq!(text(&answer), expected);
        let answer = server.call(&credentials, get("/metrics")).await;
        assert_eq!(text(&answer), format!("forbidden: User \"{name}\" cannot get path \"/metrics\""));

        let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}).to_string();
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer = server.call(&credentials, request("POST", path, review)).await;
        assert_eq!(answer.value()["status"], json!({"allowed": false}), "{name}");
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let answer = server.call(&credentials, request("POST", path, "{}")).await;
        assert_eq!(answer.value()["status"]["userInfo"]["username"], name);
    }
}

#[tokio::test]
async fn an_impersonated_user_has_only_its_own_rights() {
    let server = Running::start().await;
    let mut asked = get("/api/v1/namespaces");
    asked.headers_mut().insert("impersonate-user", "root".parse().unwrap());
    assert_eq!(server.call(&server.admin(), asked).await.code, 403);
}

async fn service_account_token(server: &Running, namespace: &str, name: &str) -> String {
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    server.create(&accounts, &json!({"metadata": {"name": name}})).await;
    let answer = server.create(&format!("{accounts}/{name}/token"), &json!({})).await;
    assert_eq!(answer.code, 201, "{}", answer.value());
    answer.value()["status"]["token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_service_account_token_ends_with_its_account_and_is_for_its_audience() {
    let server = Running::start().await;
    let token = server.token(&service_account_token(&server, "default", "s").await);
    assert_eq!(server.call(&token, get("/api")).await.code, 200);
    let account = "/api/v1/namespaces/default/serviceaccounts/s";

    let other = json!({"spec": {"audiences": ["somebody-else"]}});
    let other = server.create(&format!("{account}/token"), &other).await.value();
    let other = server.token(other["status"]["token"].as_str().unwrap());
    assert_eq!(server.call(&other, get("/api")).await.code, 401, "a token for somebody else");

    let review = json!({"spec": {"token": token.token}});
    let review = server.create("/apis/authentication.k8s.io/v1/tokenreviews", &review).await.value();
    assert_eq!(review["status"]["user"]["username"], "system:serviceaccount:default:s");

    let asked = async |token: &str, audiences: &[&str]| {
        let review = json!({"spec": {"token": token, "audiences": audiences}});
        server.create("/apis/authentication.k8s.io/v1/tokenreviews", &review).await.value()["status"].clone()
    };
    let (token_for_us, admin) = (token.token.clone().unwrap(), server.pki.token.clone());
    let other = other.token.unwrap();
    let us = "https://kubernetes.default.svc.cluster.local";
    for (who, token, audiences, meant) in [
        ("a token for us", &token_for_us, &[][..], json!([us])),
        ("a token for us", &token_for_us, &["x", us], json!([us])),
        ("a token for us", &token_for_us, &["somebody-else"], json!(null)),
        ("a token for somebody else", &other, &[], json!(null)),
        ("a token for somebody else", &other, &["somebody-else", us], json!(["somebody-else"])),
        ("the administrator's", &admin, &[], json!([us])),
        ("the administrator's", &admin, &["somebody-else"], json!(null)),
    ] {
        let status = asked(token, audiences).await;
        assert_eq!(status["audiences"], meant, "{who} for {audiences:?}");
        assert_eq!(status["authenticated"] == true, meant != json!(null), "{who} for {audiences:?}");
    }

    assert_eq!(server.call(&server.admin(), request("DELETE", account, "")).await.code, 200);
    assert_eq!(server.call(&token, get("/api")).await.code, 401, "the account is gone");
    service_account_token(&server, "default", "s").await;
    assert_eq!(server.call(&token, get("/api")).await.code, 401, "another account of the same name");
}
