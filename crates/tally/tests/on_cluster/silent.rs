//! A server that accepts connections and does not answer, at once or from some request on.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::server::signal;
use crate::tool::{Watched, command, directory, text};

/// A test that would otherwise hang ends after this time.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);

fn kubeconfig(directory: &Path, server: &str) -> String {
    let path = directory.join("kubeconfig");
    let content = format!(
        "{{clusters: [{{name: c, cluster: {{server: '{server}', insecure-skip-tls-verify: true}}}}], users: [{{name: u, \
         user: {{token: t}}}}], contexts: [{{name: c, context: {{cluster: c, user: u}}}}], current-context: c}}"
    );
    std::fs::write(&path, content).unwrap();
    text(&path).to_owned()
}

#[test]
fn ctrl_c_is_obeyed_while_the_server_does_not_answer() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let directory = directory();
    let kubeconfig = kubeconfig(directory.path(), &format!("https://{}", silent.local_addr().unwrap()));
    for (arguments, told) in [
        (&["attach", "job/x", "--kubeconfig", &kubeconfig][..], "nothing was changed"),
        (&["run", "--kubeconfig", &kubeconfig, "--image", "i", "--", "true"], "the Job may have been created"),
    ] {
        let waits = Watched::start(&mut command(arguments));
        // It has asked by then, and waits.
        let (_connection, _) = silent.accept().unwrap();
        signal(waits.id(), "INT");
        let ended = waits.ends();
        assert_eq!(ended.code, Some(130), "{arguments:?}: {}", ended.err);
        assert!(ended.err.contains(told), "{}", ended.err);
    }
}

enum Answer {
    Object(u16, Value),
    /// The state of a watch, which then stays open.
    State(Vec<Value>),
    /// Never.
    None,
}

/// A server in plain HTTP. The second value: the requests that it does not answer.
fn server(answer: impl Fn(&str, &str) -> Answer + Send + Sync + 'static) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (unanswered, told) = channel();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let (answer, unanswered) = (answer.clone(), unanswered.clone());
            std::thread::spawn(move || {
                let mut connection = connection.unwrap();
                while let Some((method, target)) = request(&connection) {
                    let body = match answer(&method, &target) {
                        Answer::Object(code, object) => {
                            let body = object.to_string();
                            format!(
                                "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                                body.len()
                            )
                        }
                        Answer::State(objects) => {
                            let event = |object: &Value| format!("{}\n", json!({"type": "ADDED", "object": object}));
                            let end = json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9",
                                "annotations": {"k8s.io/initial-events-end": "true"}}}});
                            let lines = objects.iter().map(event).collect::<String>() + &format!("{end}\n");
                            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
                            format!("{head}{:x}\r\n{lines}\r\n", lines.len())
                        }
                        Answer::None => {
                            let _ = unanswered.send(format!("{method} {target}"));
                            continue;
                        }
                    };
                    if connection.write_all(body.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (url, told)
}

/// Reads a request with its body. None: the client has closed the connection.
fn request(connection: &TcpStream) -> Option<(String, String)> {
    let mut reader = BufReader::new(connection);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok().filter(|read| *read > 0)?;
        match header.trim().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.trim().parse().ok()?,
            Some(_) => {}
            None => break,
        }
    }
    reader.read_exact(&mut vec![0; length]).ok()?;
    let mut words = first.split(' ');
    Some((words.next()?.to_owned(), words.next()?.to_owned()))
}

/// No Job is older: of one that has stood still for a while it is asked why, in requests of their own.
const NOW: &str = "2100-01-01T00:00:00Z";

fn job(status: &Value) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "sum", "namespace": "default", "uid": "u", "resourceVersion": "7", "generation": 1,
            "creationTimestamp": NOW},
        "spec": {"completions": 1, "parallelism": 1, "completionMode": "Indexed", "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}}},
        "status": status,
    })
}

fn finished(condition: &str, counts: &Value) -> Value {
    let mut status = json!({
        "startTime": NOW,
        "conditions": [{"type": condition, "status": "True", "lastTransitionTime": NOW, "reason": "R"}],
    });
    status.as_object_mut().unwrap().extend(counts.as_object().unwrap().clone());
    status
}

fn list(kind: &str, items: &[Value]) -> Answer {
    let metadata = json!({"resourceVersion": "8"});
    Answer::Object(200, json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "items": items}))
}

fn not_found(group: &str, plural: &str) -> Answer {
    let details = json!({"group": group, "kind": plural, "name": "sum"});
    Answer::Object(
        404,
        json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "not found", "reason": "NotFound",
            "code": 404, "details": details}),
    )
}

/// The Job has finished, and the server does not answer one of the last requests.
#[test]
fn ctrl_c_is_obeyed_after_the_job_has_finished() {
    const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
    let attach = &["attach", "job/sum"][..];
    let run = &["run", "--name", "sum", "--image", "i", "--rm"][..];
    let lost = finished("Complete", &json!({"succeeded": 1}));
    let failed = finished("Failed", &json!({"failed": 0, "failedIndexes": "0"}));
    let done = finished("Complete", &json!({}));
    for (arguments, before, after, unanswered, told) in [
        // A Pod was counted that no stream has shown: the Pods are listed.
        (attach, json!({}), lost, "GET /api/v1/namespaces/default/pods?", "the Job has finished"),
        // The line of a failed index is read from the list of the Job.
        (attach, json!({}), failed.clone(), "GET /apis/batch/v1/namespaces/default/jobs/sum", "sum: Failed"),
        (attach, failed.clone(), failed, "GET /apis/batch/v1/namespaces/default/jobs/sum", "sum: Failed"),
        (run, json!({}), done, "DELETE /apis/batch/v1/namespaces/default/jobs/sum", "may not have been deleted"),
    ] {
        let lists = std::sync::atomic::AtomicU32::new(0);
        let is_run = arguments == run;
        let (url, waits) = server(move |method, target| {
            let path = target.split('?').next().unwrap();
            let is_watch = target.contains("watch=true");
            match (method, path) {
                ("GET", JOBS) if is_watch => Answer::State(vec![job(&after)]),
                ("GET", _) if is_watch => Answer::State(Vec::new()),
                ("GET", JOBS) => list("JobList", &[job(&before)]),
                ("POST", JOBS) => Answer::Object(201, job(&before)),
                // The first tells `tally attach` which Pods have ended before.
                ("GET", path)
                    if path.ends_with("/pods") && lists.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 =>
                {
                    list("PodList", &[])
                }
                ("GET", path) if is_run && path.ends_with("/jobs/sum") => not_found("batch", "jobs"),
                ("GET", path) if path.ends_with("/pods") || path.ends_with("/jobs/sum") => Answer::None,
                ("DELETE", _) => Answer::None,
                _ => not_found("", "other"),
            }
        });
        let directory = directory();
        let kubeconfig = kubeconfig(directory.path(), &url);
        let mut words = [arguments, &["--kubeconfig", &kubeconfig]].concat();
        if is_run {
            words.extend(["--", "true"]);
        }
        let ends = Watched::start(&mut command(&words));
        let asked = waits.recv_timeout(GIVE_UP_AFTER).expect("the request that is not answered");
        assert!(asked.starts_with(unanswered), "{asked}");
        let began = std::time::Instant::now();
        signal(ends.id(), "INT");
        let ended = ends.ends();
        // Far below the time limit of a request.
        assert!(began.elapsed() < Duration::from_secs(15), "{unanswered}: {:?}", began.elapsed());
        assert_eq!(ended.code, Some(130), "{unanswered}: {}", ended.err);
        assert!((ended.out + &ended.err).contains(told), "{unanswered}");
    }
}
