//! The error messages when it cannot start.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::process::address;
use crate::support::server::{Server, directory};

fn refused(arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tally"))
        .arg("controller")
        .args(arguments)
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn check(arguments: &[&str], environment: &[(&str, &str)], code: i32, hints: &[&str]) {
    let (got, said) = refused(arguments, environment);
    assert_eq!(got, Some(code), "{arguments:?}: {said}");
    for hint in hints {
        assert!(said.contains(hint), "{arguments:?}: {hint:?} is missing in {said}");
    }
}

#[test]
fn bad_usage_says_what_to_do() {
    for (arguments, hint) in [
        (&["--controllers", "podgc"][..], "cluster's own controller manager"),
        (&["--controllers", "jbo"], "available controllers: after, job, ttl"),
        (&["--controllers", ""], "at least one"),
        (&["--managed-by", "tally"], "example.com/tally"),
        (&["--managed-by", "kubernetes.io/job-controller"], "without --managed-by"),
        (&["--qps=-1"], "requests per second"),
        (&["--burst", "5"], "without --qps"),
        (&["--metrics", "8080"], "127.0.0.1:8080"),
        (&["--leader-elect-lease-duration", "ten"], "such as 15s"),
        (&["--leader-elect-lease-duration", "5s"], "longer than the renew deadline"),
        (&["--leader-elect-retry-period", "9s"], "twice the retry period"),
        (&["--log-format", "xml"], "text, json"),
    ] {
        check(arguments, &[], 2, &[hint]);
    }
    let help = Command::new(env!("CARGO_BIN_EXE_tally")).args(["controller", "--help"]).output().unwrap();
    assert!(String::from_utf8_lossy(&help.stdout).contains("Examples:"));
}

fn kubeconfig(directory: &Path, server: &str) -> PathBuf {
    let path = directory.join("config");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    });
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

fn text(path: &Path) -> &str {
    path.to_str().expect("test directories have plain names")
}

#[test]
fn kubeconfigs_that_cannot_be_used_are_told_apart() {
    let directory = directory();
    let (home, file) = (text(directory.path()), directory.path().join("config"));
    let missing = directory.path().join("missing");
    check(&["--kubeconfig", text(&missing)], &[], 1, &["cannot read the kubeconfig", text(&missing)]);
    std::fs::write(&file, "{ nonsense: [").unwrap();
    check(&["--kubeconfig", text(&file)], &[], 1, &["is not a kubeconfig"]);
    check(&[], &[("HOME", home)], 1, &["no API server is named", "--kubeconfig"]);
    check(&["--context", "x"], &[("HOME", home), ("KUBERNETES_SERVICE_HOST", "h")], 1, &["needs a kubeconfig"]);

    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let file = kubeconfig(directory.path(), &format!("https://{unused}"));
    check(&["--kubeconfig", text(&file), "--context", "there"], &[], 1, &["no context \"there\"", "it has here"]);
    check(
        &["--kubeconfig", text(&file)],
        &[],
        1,
        &["cannot reach the API server", &unused.to_string(), "is it running"],
    );
    check(&[], &[("KUBECONFIG", text(&file))], 1, &["cannot reach the API server"]);
    std::fs::create_dir(directory.path().join(".kube")).unwrap();
    std::fs::copy(&file, directory.path().join(".kube/config")).unwrap();
    check(&[], &[("HOME", home)], 1, &["cannot reach the API server"]);
    std::fs::write(&file, r#"{"contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}]}"#).unwrap();
    check(&["--kubeconfig", text(&file)], &[], 1, &["no current context", "with --context; it has a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_and_certificates_that_do_not_fit_are_told() {
    let directory = directory();
    let server = Server::start(directory.path()).await;
    let (taken, kubeconfig_of_server) = (TcpListener::bind("127.0.0.1:0").unwrap(), server.kubeconfig());
    let metrics = taken.local_addr().unwrap().to_string();
    let arguments = ["--kubeconfig", text(&kubeconfig_of_server), "--metrics", &metrics];
    check(&arguments, &[], 1, &["cannot serve metrics at", &metrics, "--metrics"]);
    // The right server, but the kubeconfig has no certificate authority for it.
    let file = kubeconfig(directory.path(), &format!("https://{}", address(&server.kubeconfig())));
    check(&["--kubeconfig", text(&file)], &[], 1, &["cannot reach the API server", "certificate-authority-data"]);
}

/// A server that answers each request with what `answer` returns for its path and body.
fn fake(answer: impl Fn(&str, &Value) -> (u16, Value) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = std::sync::Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || talk(stream, &*answer));
        }
    });
    url
}

fn talk(stream: TcpStream, answer: &dyn Fn(&str, &Value) -> (u16, Value)) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
            if head.is_empty() {
                head = line;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let path = head.split(' ').nth(1).unwrap();
        let (code, body) = answer(path, &serde_json::from_slice(&body).unwrap_or_default());
        let body = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
        let length = body.len();
        if write!(writer, "HTTP/1.1 {code} x\r\ncontent-length: {length}\r\n\r\n{body}").is_err() {
            return;
        }
    }
}

fn healthy(path: &str, body: &Value) -> (u16, Value) {
    match path {
        "/version" => (200, json!({"major": "1", "minor": "34+", "gitVersion": "v1.34.2"})),
        "/apis/batch/v1" => (200, json!({"resources": [{"name": "jobs"}, {"name": "jobs/status"}]})),
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" => {
            let asked = &body["spec"]["resourceAttributes"];
            let missing = asked["verb"] == "delete" || asked["resource"] == "leases";
            (201, json!({"status": {"allowed": !missing}}))
        }
        "/apis/authentication.k8s.io/v1/selfsubjectreviews" => {
            (201, json!({"status": {"userInfo": {"username": "system:serviceaccount:a:b"}}}))
        }
        _ => (404, json!({})),
    }
}

#[test]
fn servers_that_will_not_do_are_told_apart() {
    let instead = |path: &'static str, code: u16, said: Value| {
        fake(move |asked, body| if asked == path { (code, said.clone()) } else { healthy(asked, body) })
    };
    let old = json!({"major": "1", "minor": "24", "gitVersion": "v1.24.0"});
    for (url, hints) in [
        (instead("/apis/batch/v1", 404, json!({})), &["does not serve batch/v1"][..]),
        (instead("/apis/batch/v1", 200, json!({"resources": [{"name": "jobs"}]})), &["without jobs/status"]),
        (instead("/version", 200, old), &["v1.24.0, which is too old"]),
        (instead("/version", 200, json!("<html>hello</html>")), &["not like a Kubernetes API server"]),
        (instead("/version", 401, json!({})), &["does not accept the credentials"]),
        (instead("/version", 404, json!({})), &["is it a Kubernetes API server?"]),
        (
            instead("/nothing", 404, json!({})),
            &[
                "user system:serviceaccount:a:b lacks permissions: delete pods; delete jobs.batch; get, create, update \
                 leases.coordination.k8s.io in namespace elections",
                "deploy/kustomize/base/role.yaml",
            ],
        ),
    ] {
        let directory = directory();
        let file = kubeconfig(directory.path(), &url);
        let arguments = ["--kubeconfig", text(&file), "--leader-elect-resource-namespace", "elections"];
        check(&arguments, &[], 1, hints);
    }
}

/// GANG-5: nothing in a Job of 1.36 shows that its Pods would have been scheduled as a group.
#[test]
fn a_server_with_groups_of_pods_is_told_once_that_none_are_made() {
    let serving = |resources: Value| {
        fake(move |asked, body| match asked {
            "/apis/scheduling.k8s.io" => (200, json!({"versions": [{"version": "v1"}, {"version": "v1alpha2"}]})),
            "/apis/scheduling.k8s.io/v1" => (200, json!({"resources": [{"name": "priorityclasses"}]})),
            "/apis/scheduling.k8s.io/v1alpha2" => (200, json!({"resources": resources})),
            _ => healthy(asked, body),
        })
    };
    let groups = json!([{"name": "podgroups"}, {"name": "podgroups/status"}, {"name": "workloads"}]);
    let told =
        "WARN the API server has Workloads and PodGroups (scheduling.k8s.io/v1alpha2), which Tally does not make";
    for (url, controllers, times) in [
        (serving(groups.clone()), "job,ttl", 1),
        (serving(json!([{"name": "workloads"}])), "job", 1),
        (serving(json!([{"name": "others"}])), "job", 0),
        // The group has other versions only, is not served, is hidden, or is no list.
        (fake(healthy), "job", 0),
        (
            fake(|asked, body| if asked.contains("scheduling") { (403, json!({})) } else { healthy(asked, body) }),
            "job",
            0,
        ),
        (
            fake(|asked, body| if asked.contains("scheduling") { (200, json!([7])) } else { healthy(asked, body) }),
            "job",
            0,
        ),
        // Without the Job controller no Pods are made.
        (serving(groups), "ttl", 0),
    ] {
        let directory = directory();
        let file = kubeconfig(directory.path(), &url);
        // It ends after the check of permissions, of which the server denies some.
        let (code, said) = refused(&["--kubeconfig", text(&file), "--controllers", controllers], &[]);
        assert_eq!((code, said.matches(told).count()), (Some(1), times), "{said}");
        assert!(said.contains("lacks permissions"), "{said}");
    }
}

/// `--etcd-servers-overrides`: the revisions of Jobs and Pods are of two different stores.
#[test]
fn jobs_and_pods_in_different_etcds_are_refused() {
    for (jobs, pods) in [("1000000", "5000"), ("5000", "1000000")] {
        let url = fake(move |path, body| {
            let at = match path.split('?').next().unwrap_or_default() {
                "/apis/batch/v1/jobs" => jobs,
                "/api/v1/pods" => pods,
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" => {
                    return (201, json!({"status": {"allowed": true}}));
                }
                _ => return healthy(path, body),
            };
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": at}, "items": []}))
        });
        let directory = directory();
        let file = kubeconfig(directory.path(), &url);
        let hints = ["different etcd clusters", jobs, pods, "--etcd-servers-overrides"];
        check(&["--kubeconfig", text(&file)], &[], 1, &hints);
    }
}
