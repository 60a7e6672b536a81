//! The audit log of `tally up`: what is in it, what is never in it, and what happens when it cannot be written.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::client::{Api, Call};
use support::server::{Server, directory};

const GIVE_UP_AFTER: Duration = Duration::from_secs(60);
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

async fn start(directory: &Path, options: &[&str]) -> Server {
    let fixed = ["--no-node", "--controllers", "", "--ephemeral", "--audit-log"];
    let log = log_in(directory);
    let mut all: Vec<&str> = fixed.to_vec();
    all.push(log.to_str().unwrap());
    all.extend(options);
    Server::start_with(directory, &all).await
}

fn log_in(directory: &Path) -> PathBuf {
    directory.join("audit.log")
}

fn events(directory: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log_in(directory)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).expect("a line is an event")).collect()
}

/// The events, once there is one for this path and stage.
async fn events_with(directory: &Path, uri: &str, stage: &str) -> Vec<Value> {
    let until = Instant::now() + GIVE_UP_AFTER;
    loop {
        let found = events(directory);
        if found.iter().any(|event| event["requestURI"] == uri && event["stage"] == stage) {
            return found;
        }
        assert!(Instant::now() < until, "no {stage} of {uri} in {found:#?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn find<'a>(events: &'a [Value], verb: &str, uri: &str) -> &'a Value {
    let found = events.iter().find(|event| event["verb"] == verb && event["requestURI"] == uri);
    found.unwrap_or_else(|| panic!("no {verb} {uri} in {events:#?}"))
}

async fn create(api: &Api, path: &str, object: &Value) -> u16 {
    let call = Call::new("POST", path).body(object).header("user-agent", "a-test/1.0").header("audit-id", "my-own-id");
    api.connection().call(&call).await.unwrap().code
}

/// AUDIT-1, AUDIT-3, AUDIT-5.
#[tokio::test]
async fn writes_are_recorded_with_user_object_and_decision_and_without_bodies() {
    let directory = directory();
    let server = start(directory.path(), &[]).await;
    let object = json!({"metadata": {"generateName": "made-"}, "data": {"k": "content of a ConfigMap"}});
    assert_eq!(create(&server.api, CONFIG_MAPS, &object).await, 201);
    let secret =
        json!({"metadata": {"name": "s"}, "stringData": {"k": "content-of-a-secret"}, "type": "\u{7}not valid"});
    create(&server.api, SECRETS, &secret).await;
    let mut admin = server.api.connection();
    let token_path = "/api/v1/namespaces/default/serviceaccounts/a/token";
    create(&server.api, "/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "a"}})).await;
    let token = admin.call(&Call::new("POST", token_path).body(&json!({"spec": {}}))).await.unwrap().value();
    let token = token["status"]["token"].as_str().unwrap().to_owned();
    // Reads are not recorded, except those of Secrets.
    for path in ["/healthz", "/version", CONFIG_MAPS, "/api", "/metrics", SECRETS] {
        assert_eq!(admin.call(&Call::get(path)).await.unwrap().code, 200);
    }
    let others = server.api.without_certificate();
    let denied = Call::new("DELETE", format!("{CONFIG_MAPS}/x")).header("authorization", &format!("Bearer {token}"));
    assert_eq!(others.connection().call(&denied).await.unwrap().code, 403);
    let as_alice = Call::new("POST", format!("{CONFIG_MAPS}?dryRun=All"))
        .body(&json!({"metadata": {"name": "d"}}))
        .header("impersonate-user", "alice");
    assert_eq!(admin.call(&as_alice).await.unwrap().code, 403);
    assert_eq!(others.connection().call(&Call::new("POST", SECRETS).body(&secret)).await.unwrap().code, 401);
    server.signal("TERM");
    let mut server = server;
    assert_eq!(server.ended(), Some(0), "{}", server.said());

    let events = events(directory.path());
    for event in &events {
        assert_eq!((&event["kind"], &event["apiVersion"]), (&json!("Event"), &json!("audit.k8s.io/v1")));
        assert_eq!((&event["level"], &event["stage"]), (&json!("Metadata"), &json!("ResponseComplete")));
        assert_eq!(event["sourceIPs"], json!(["127.0.0.1"]));
        for field in ["requestReceivedTimestamp", "stageTimestamp"] {
            let text = event[field].as_str().unwrap();
            assert!(text.len() == 27 && text.ends_with('Z'), "{text}");
        }
    }
    let made = find(&events, "create", CONFIG_MAPS);
    assert_eq!((&made["auditID"], &made["userAgent"]), (&json!("my-own-id"), &json!("a-test/1.0")));
    assert_eq!(made["user"]["username"], "kubernetes-admin");
    assert_eq!(made["user"]["groups"], json!(["system:masters", "system:authenticated"]));
    assert_eq!(made["responseStatus"], json!({"metadata": {}, "code": 201}));
    assert_eq!(
        made["annotations"],
        json!({"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""})
    );
    let reference = &made["objectRef"];
    assert_eq!((&reference["resource"], &reference["namespace"]), (&json!("configmaps"), &json!("default")));
    assert_eq!((&reference["apiVersion"], reference.get("apiGroup")), (&json!("v1"), None));
    assert!(reference["name"].as_str().unwrap().starts_with("made-") && reference["uid"].is_string(), "{reference}");

    let denied = find(&events, "delete", &format!("{CONFIG_MAPS}/x"));
    assert_eq!(denied["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(denied["user"]["username"], "system:serviceaccount:default:a");
    let status = &denied["responseStatus"];
    assert_eq!(
        (&status["code"], &status["status"], &status["reason"]),
        (&json!(403), &json!("Failure"), &json!("Forbidden"))
    );
    assert!(status["message"].as_str().unwrap().contains("cannot delete resource"), "{status}");

    let impersonated = find(&events, "create", &format!("{CONFIG_MAPS}?dryRun=All"));
    assert_eq!(impersonated["user"]["username"], "kubernetes-admin");
    assert_eq!(impersonated["impersonatedUser"]["username"], "alice");

    find(&events, "list", SECRETS);
    assert_eq!(find(&events, "create", token_path)["objectRef"]["subresource"], "token");
    let unknown = events.iter().filter(|event| event["user"]["username"] == "").collect::<Vec<_>>();
    assert_eq!(unknown.len(), 1);
    assert_eq!(unknown[0]["responseStatus"]["code"], 401);
    let verbs: Vec<&str> = events.iter().map(|event| event["verb"].as_str().unwrap()).collect();
    assert_eq!(verbs.iter().filter(|verb| **verb == "list").count(), 1, "{verbs:?}");
    assert!(!verbs.contains(&"get"), "{verbs:?}");

    let text = std::fs::read_to_string(log_in(directory.path())).unwrap();
    for hidden in ["content-of-a-secret", "content of a ConfigMap", "not valid", &token, "Bearer"] {
        assert!(!text.contains(hidden), "{hidden} is in the log:\n{text}");
    }
    let mode = std::fs::metadata(log_in(directory.path())).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// AUDIT-2, AUDIT-4.
#[tokio::test]
async fn a_policy_decides_what_is_recorded_and_a_watch_is_recorded_twice() {
    let directory = directory();
    let policy = directory.path().join("policy.yaml");
    let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n  verbs: [create]\n- level: Metadata\n  \
                resources: [{group: '', resources: [configmaps]}]\n";
    std::fs::write(&policy, text).unwrap();
    let server = start(directory.path(), &["--audit-policy", policy.to_str().unwrap()]).await;
    assert_eq!(create(&server.api, CONFIG_MAPS, &json!({"metadata": {"name": "a"}})).await, 201);
    let uri = format!("{CONFIG_MAPS}?watch=1");
    let mut connection = server.api.connection();
    let watch = connection.open(&Call::get(uri.as_str())).await.unwrap();
    let before = events_with(directory.path(), &uri, "ResponseStarted").await;
    assert_eq!(before.len(), 1, "{before:#?}");
    drop((watch, connection));
    let after = events_with(directory.path(), &uri, "ResponseComplete").await;
    assert_eq!(after.len(), 2, "{after:#?}");
    assert_eq!(after[0]["auditID"], after[1]["auditID"]);
}

/// AUDIT-5.
#[tokio::test]
async fn the_log_is_rotated_by_size_and_old_files_are_removed() {
    let directory = directory();
    let server = start(directory.path(), &["--audit-log-maxsize", "1", "--audit-log-maxbackup", "2"]).await;
    // The user agent is recorded, so that a few thousand events fill several files.
    let mut connection = server.api.connection();
    let agent = "x".repeat(1_000);
    for _ in 0..3_000 {
        let call = Call::new("DELETE", format!("{CONFIG_MAPS}/none")).header("user-agent", &agent);
        assert_eq!(connection.call(&call).await.unwrap().code, 404);
    }
    let logs = || {
        let entries = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap());
        let logs = entries.filter(|entry| entry.file_name().to_str().unwrap().starts_with("audit"));
        logs.map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap())).collect::<Vec<_>>()
    };
    let until = Instant::now() + GIVE_UP_AFTER;
    while logs().len() < 3 {
        assert!(Instant::now() < until, "{:?}", logs());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for (name, about) in logs() {
        assert!(about.len() <= 1_000_000 && about.permissions().mode() & 0o777 == 0o600, "{name}: {about:?}");
    }
    assert_eq!(logs().len(), 3, "{:?}", logs());
}

/// AUDIT-6: a full disk costs events, never requests; both are told.
#[tokio::test]
async fn requests_are_served_while_the_log_cannot_be_written() {
    let directory = directory();
    std::os::unix::fs::symlink("/dev/full", log_in(directory.path())).unwrap();
    let server = start(directory.path(), &[]).await;
    assert_eq!(create(&server.api, CONFIG_MAPS, &json!({"metadata": {"name": "a"}})).await, 201);
    let until = Instant::now() + GIVE_UP_AFTER;
    loop {
        let page = server.api.connection().call(&Call::get("/metrics")).await.unwrap().text;
        if page.contains("apiserver_audit_error_total{plugin=\"log\"} 1\n") {
            break;
        }
        assert!(Instant::now() < until, "{page}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(server.said().contains("cannot write the audit log"), "{}", server.said());
    assert_eq!(create(&server.api, CONFIG_MAPS, &json!({"metadata": {"name": "b"}})).await, 201);
}

#[test]
fn what_cannot_be_used_is_refused_at_the_start() {
    let directory = directory();
    let policy = directory.path().join("policy.yaml");
    std::fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Request}]\n").unwrap();
    let policy = policy.to_str().unwrap();
    let log = log_in(directory.path());
    let log = log.to_str().unwrap();
    for (options, code, told) in [
        (&["--audit-policy", policy][..], 2, "--audit-log"),
        (&["--audit-log", log, "--audit-policy", policy], 1, "rules[0].level: Request is not supported"),
        (&["--audit-log", log, "--audit-policy", "/no/such"], 1, "--audit-policy: cannot read /no/such"),
        (&["--audit-log", "/no/such/directory/log"], 1, "/no/such/directory/log"),
        (&["--audit-log-maxsize", "0", "--audit-log", log], 2, "--audit-log-maxsize"),
        (&["--max-connections", "1000000"], 1, "--max-connections 1000000"),
        (&["--max-requests-inflight", "1"], 2, "--max-requests-inflight"),
    ] {
        let data = directory.path().join("data");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
        command.args(["up", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data).args(options);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{options:?}: {said}");
        assert!(said.contains(told), "{options:?}: {said}");
        assert!(!data.exists(), "{options:?} left a data directory");
    }
}

/// PODSEC-3: the annotations of the level `audit`, of a Pod that is accepted, of one that is refused, and of a Job.
#[tokio::test]
async fn violations_of_the_audit_level_are_annotations_of_the_event() {
    let directory = directory();
    let server = start(directory.path(), &[]).await;
    let mut admin = server.api.connection();
    let labels = json!({"metadata": {"labels": {
        "pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/audit": "restricted"
    }}});
    let patch = Call::new("PATCH", "/api/v1/namespaces/default").body(&labels);
    let patch = patch.header("content-type", "application/merge-patch+json");
    assert_eq!(admin.call(&patch).await.unwrap().code, 200);
    let pod = |name: &str, host_network: bool| {
        json!({"metadata": {"name": name}, "spec": {"hostNetwork": host_network, "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i", "command": ["true"]}]}})
    };
    let (pods, jobs) = ("/api/v1/namespaces/default/pods", "/apis/batch/v1/namespaces/default/jobs");
    for (path, body, code) in [
        (pods, pod("accepted", false), 201),
        (pods, pod("refused", true), 403),
        (jobs, json!({"metadata": {"name": "j"}, "spec": {"template": pod("", false)}}), 201),
        (CONFIG_MAPS, json!({"metadata": {"name": "c"}}), 201),
    ] {
        assert_eq!(create(&server.api, path, &body).await, code, "{path}");
    }
    let events = events_with(directory.path(), CONFIG_MAPS, "ResponseComplete").await;
    let made = |uri: &str| events.iter().filter(|event| event["requestURI"] == uri).collect::<Vec<_>>();
    let notes = |event: &Value| {
        let note = |name: &str| event["annotations"][format!("pod-security.kubernetes.io/{name}")].clone();
        (note("enforce-policy"), note("audit-violations").as_str().map(str::to_owned))
    };
    for event in made(pods) {
        let (enforced, violations) = notes(event);
        assert_eq!(enforced, "baseline:latest");
        let violations = violations.unwrap();
        assert!(violations.starts_with("would violate PodSecurity \"restricted:latest\": "), "{violations}");
        assert_eq!(violations.contains("host namespaces"), event["responseStatus"]["code"] == 403, "{violations}");
    }
    assert_eq!(made(pods).len(), 2);
    assert!(matches!(notes(made(jobs)[0]), (Value::Null, Some(_))));
    assert_eq!(notes(made(CONFIG_MAPS)[0]), (Value::Null, None));
}

/// AUDIT-7.
#[tokio::test]
async fn requests_without_credentials_do_not_roll_the_log_over() {
    let directory = directory();
    let mut server = start(directory.path(), &["--audit-log-maxsize", "1", "--audit-log-maxbackup", "1"]).await;
    assert_eq!(create(&server.api, CONFIG_MAPS, &json!({"metadata": {"name": "important"}})).await, 201);
    let mut unknown = server.api.without_certificate().connection();
    // 18 MB of addresses: without a bound, the log of two files of a megabyte would be rolled over several times.
    let long = format!("/{}", "a".repeat(60_000));
    for _ in 0..300 {
        assert_eq!(unknown.call(&Call::new("POST", long.as_str())).await.unwrap().code, 401);
    }
    let metrics = server.api.connection().call(&Call::get("/metrics")).await.unwrap().text;
    let omitted = metrics.lines().find_map(|line| line.strip_prefix("tally_audit_omitted_total "));
    let omitted: usize = omitted.expect("it is counted").parse().unwrap();
    server.signal("TERM");
    assert_eq!(server.ended(), Some(0), "{}", server.said());
    let rotated = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(rotated.filter(|name| name.to_string_lossy().starts_with("audit-")).count(), 0);
    let events = events(directory.path());
    assert!(events.iter().any(|event| event["objectRef"]["name"] == "important"), "{events:#?}");
    let unknown = events.iter().filter(|event| event["responseStatus"]["code"] == 401).count();
    assert!(unknown > 0 && omitted > 0 && unknown + omitted == 300, "{unknown} are recorded, {omitted} are not");
    let cut = |event: &&Value| event["requestURI"].as_str().is_some_and(|uri| uri.ends_with("aaa...TRUNCATED"));
    assert_eq!(events.iter().filter(cut).count(), unknown, "long URIs are cut");
    let told = "unauthenticated requests have filled their part of the audit log";
    assert!(server.said().contains(told), "{}", server.said());
}
