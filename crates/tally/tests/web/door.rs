//! What the server of the page answers, and to whom.

use std::process::{Child, Command, Stdio};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::server::{self, Server};

/// The link that the server has printed.
pub fn link(server: &Server) -> String {
    let said = server.said();
    let line = said.lines().find_map(|line| line.trim().strip_prefix("page"));
    line.unwrap_or_else(|| panic!("no link in {said}")).trim().to_owned()
}

/// `127.0.0.1:PORT` and the token.
fn parts(link: &str) -> (String, String) {
    let rest = link.strip_prefix("http://").expect("a link");
    let (host, token) = rest.split_once("/?token=").expect("a token");
    (host.to_owned(), token.to_owned())
}

/// The code, the head and the body of the response. Headers are given as `Name: value`.
async fn ask(host: &str, line: &str, headers: &[&str]) -> (u16, String, String) {
    let mut stream = TcpStream::connect(host).await.unwrap();
    let mut text = format!("{line} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|header| header.starts_with("Host:")) {
        text += &format!("Host: {host}\r\n");
    }
    headers.iter().for_each(|header| text += &format!("{header}\r\n"));
    stream.write_all(format!("{text}\r\n").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a code");
    (code, head.to_ascii_lowercase(), body.to_owned())
}

/// Follows the link; returns the cookie.
async fn log_in(host: &str, token: &str) -> String {
    let (code, head, _) = ask(host, &format!("GET /?token={token}"), &[]).await;
    assert_eq!(code, 200, "{head}");
    let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    assert!(cookie.contains("httponly") && cookie.contains("samesite=strict"), "{cookie}");
    format!("Cookie: {}", cookie.split(';').next().unwrap())
}

/// WEB-8
#[tokio::test]
async fn connections_that_send_nothing_shut_nobody_out() {
    let directory = server::directory();
    let server = Server::start(directory.path()).await;
    let (host, token) = parts(&link(&server));
    let mut silent = Vec::new();
    let mut flood = async || {
        for _ in 0..300 {
            silent.push(TcpStream::connect(&host).await.unwrap());
        }
    };
    flood().await;
    let cookie = log_in(&host, &token).await;
    // A connection of a session stays while others are closed for those that come.
    let mut kept = TcpStream::connect(&host).await.unwrap();
    let mut ask_again = async |more: &str, times: usize| {
        let text = format!("GET /nothing HTTP/1.1\r\nHost: {host}\r\n{cookie}\r\n{more}\r\n");
        kept.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        while answer.matches("there is no such page").count() < times {
            let mut piece = [0; 1024];
            let count = kept.read(&mut piece).await.unwrap();
            assert!(count > 0, "it was closed after {answer:?}");
            answer += &String::from_utf8_lossy(&piece[..count]);
        }
    };
    ask_again("", 1).await;
    flood().await;
    // Connections are accepted in their order: all of those before were.
    let (code, ..) = ask(&host, "GET /", &[&cookie]).await;
    assert_eq!(code, 200);
    ask_again("Connection: close\r\n", 1).await;
}

/// WEB-1, WEB-2
#[tokio::test]
async fn there_is_nothing_without_a_session_and_a_link_opens_one() {
    let directory = server::directory();
    let server = Server::start(directory.path()).await;
    let (host, token) = parts(&link(&server));
    for path in ["/", "/assets/index.html", "/apis/batch/v1/jobs", "/explain/default/jobs/x", "/nothing"] {
        let (code, _, body) = ask(&host, &format!("GET {path}"), &[]).await;
        assert_eq!(code, 401, "{path}");
        assert!(body.contains("tally web"), "{body}");
    }
    let (code, ..) = ask(&host, &format!("GET /?token={}", "0".repeat(64)), &[]).await;
    assert_eq!(code, 401);
    let cookie = log_in(&host, &token).await;
    let (code, _, body) = ask(&host, &format!("GET /?token={token}"), &[]).await;
    assert_eq!(code, 401, "the link was used");
    assert!(body.contains("tally web"), "{body}");

    let (code, head, body) = ask(&host, "GET /apis/batch/v1/jobs", &[&cookie]).await;
    assert_eq!(code, 200, "{body}");
    assert!(body.contains("JobList"), "{body}");
    for header in ["content-security-policy: default-src 'none'", "x-content-type-options: nosniff", "no-store"] {
        assert!(head.contains(header), "{header}: {head}");
    }
    let (code, ..) = ask(&host, "POST /logout", &[&cookie, "X-Tally-Page: 1", "Content-Length: 0"]).await;
    assert_eq!(code, 200);
    let (code, ..) = ask(&host, "GET /apis/batch/v1/jobs", &[&cookie]).await;
    assert_eq!(code, 401, "the session is over");
}

/// WEB-3
#[tokio::test]
async fn foreign_pages_and_other_resources_are_refused() {
    let directory = server::directory();
    let server = Server::start(directory.path()).await;
    let (host, token) = parts(&link(&server));
    let cookie = log_in(&host, &token).await;
    let origin = format!("Origin: http://{host}");
    let websocket = ["Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13"];
    let with = |more: &[&'static str]| -> Vec<String> {
        [cookie.clone()].into_iter().chain(more.iter().map(|header| (*header).to_owned())).collect()
    };
    for (line, headers, expected) in [
        ("GET /", with(&["Host: evil.example"]), 421),
        ("GET /api/v1/secrets", with(&[]), 403),
        ("GET /api/v1/namespaces/default/pods/p/exec?command=sh", with(&[]), 403),
        ("DELETE /apis/batch/v1/namespaces/default/jobs/j", with(&[]), 403),
        (
            "DELETE /apis/batch/v1/namespaces/default/jobs/j",
            with(&["X-Tally-Page: 1", "Origin: http://evil.example"]),
            403,
        ),
        ("DELETE /apis/batch/v1/namespaces/default/jobs/j", with(&["X-Tally-Page: 1"]), 404),
        ("GET /apis/batch/v1/jobs?watch=true", with(&[websocket[0], websocket[1], websocket[2]]), 403),
        (
            "GET /apis/batch/v1/jobs?watch=true",
            with(&[websocket[0], websocket[1], websocket[2], "Origin: http://127.0.0.1:1"]),
            403,
        ),
    ] {
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        let (code, _, body) = ask(&host, line, &headers).await;
        assert_eq!(code, expected, "{line} {headers:?}: {body}");
    }
    let mut stream = TcpStream::connect(&host).await.unwrap();
    let request = format!(
        "GET /apis/batch/v1/jobs HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\n{cookie}\r\n{origin}\r\n{}\r\n\r\n",
        websocket.join("\r\n")
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 101 ") && answer.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{answer}");
    assert!(answer.contains("200") && answer.contains("JobList"), "{answer}");
}

#[tokio::test]
async fn an_address_that_others_can_reach_is_refused_and_no_page_is_possible() {
    let up = |address: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
        command.args(["up", "--ephemeral", "--listen", "127.0.0.1:0", "--web-listen", address]);
        command.stdin(Stdio::null()).output().expect("the binary under test starts")
    };
    let refused = up("0.0.0.0:0");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("loopback"), "{refused:?}");
    let directory = server::directory();
    let server = Server::start_with(directory.path(), &["--no-node", "--ephemeral", "--web-listen", ""]).await;
    assert!(!server.said().contains("http://"), "{}", server.said());
}

/// `tally web` for this server, and the link that it prints.
pub fn tally_web(server: &Server, options: &[&str]) -> (Child, String) {
    let mut web = Command::new(env!("CARGO_BIN_EXE_tally"));
    web.args(["web", "--kubeconfig"])
        .arg(server.kubeconfig())
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = web.spawn().expect("the binary under test starts");
    let out = child.stdout.take().expect("a pipe");
    let lines = std::io::BufRead::lines(std::io::BufReader::new(out));
    let link = lines.map_while(Result::ok).find(|line| line.contains("http://")).expect("a link");
    (child, link.trim().to_owned())
}

/// `tally web` for a server that a kubeconfig names.
#[tokio::test]
async fn tally_web_serves_the_page_of_any_cluster() {
    let directory = server::directory();
    let server = Server::start(directory.path()).await;
    let (mut child, link) = tally_web(&server, &[]);
    let (host, token) = parts(&link);
    let cookie = log_in(&host, &token).await;
    let (code, _, body) = ask(&host, "GET /api/v1/namespaces", &[&cookie]).await;
    assert!(code == 200 && body.contains("kube-system"), "{code} {body}");
    let (code, ..) = ask(&host, "GET /", &[&cookie]).await;
    assert_eq!(code, 200);
    // Sessions are of one server.
    let (other, _) = parts(&self::link(&server));
    let (code, ..) = ask(&other, "GET /", &[&cookie]).await;
    assert_eq!(code, 401);
    let sent = Command::new("sh").args(["-c", &format!("kill -s TERM {}", child.id())]).status();
    assert!(sent.unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));

    let directory = server::directory();
    let missing = Command::new(env!("CARGO_BIN_EXE_tally")).args(["web", "--data-dir"]).arg(directory.path()).output();
    let missing = missing.expect("the binary under test starts");
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("tally up"), "{missing:?}");
}
