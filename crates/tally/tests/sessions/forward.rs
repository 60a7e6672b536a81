//! `kubectl port-forward`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};

use crate::run_pod;
use crate::support::kubectl::{Kubectl, with_node, with_open_node};
use crate::tool::eventually;

/// A port that nothing listens on now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

struct Forward {
    child: Child,
    port: u16,
}

impl Forward {
    fn start(kubectl: &Kubectl, what: &str, port: u16) -> Self {
        let mut command = kubectl.start(&["port-forward", what, &format!(":{port}")]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let local = line.strip_prefix("Forwarding from 127.0.0.1:").and_then(|rest| rest.split_once(" -> "));
        let Some((local, _)) = local else {
            child.kill().unwrap();
            let mut trouble = String::new();
            child.stderr.take().unwrap().read_to_string(&mut trouble).unwrap();
            panic!("{line:?} {trouble}");
        };
        Self { child, port: local.parse().unwrap() }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).unwrap()
    }

    /// What is answered to this, when nothing more is sent.
    fn ask(&self, question: &[u8]) -> Vec<u8> {
        let mut connection = self.connect();
        let mut answer = Vec::new();
        std::thread::scope(|scope| {
            let mut writer = connection.try_clone().unwrap();
            scope.spawn(move || {
                let _ = writer.write_all(question);
                let _ = writer.shutdown(std::net::Shutdown::Write);
            });
            let _ = connection.read_to_end(&mut answer);
        });
        answer
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server in a Pod: it returns what it receives, and its own environment for `env`.
fn echo(port: u16) -> String {
    format!(
        "exec python3 -c '
import os, socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while piece := self.request.recv(65536):
            self.request.sendall(os.environ[\"COLOUR\"].encode() if piece == b\"env\" else piece)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
Server((\"127.0.0.1\", {port}), Echo).serve_forever()
'"
    )
}

fn listens(port: u16) {
    eventually("the server in the Pod listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
}

#[tokio::test]
async fn a_port_of_a_pod_is_reached() {
    for kubectl in [with_node().await, with_open_node().await] {
        let port = free_port();
        run_pod(&kubectl, "p", "env: [{name: COLOUR, value: green}]", &echo(port));
        listens(port);
        let forward = Forward::start(&kubectl, "pod/p", port);
        assert_ne!(forward.port, port);
        assert_eq!(forward.ask(b"env"), b"green");
        // Several at once, with more than any buffer holds, and one that is open meanwhile.
        let mut open = forward.connect();
        open.write_all(b"still").unwrap();
        std::thread::scope(|scope| {
            for number in 0..8_u8 {
                let forward = &forward;
                scope.spawn(move || {
                    let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8 ^ number).collect();
                    assert!(forward.ask(&sent) == sent, "connection {number}");
                });
            }
        });
        let mut answer = [0; 5];
        open.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"still");
        // When the Pod is gone, connections end.
        kubectl.ok("delete pod p");
        assert_eq!(open.read(&mut answer).unwrap_or(0), 0);
    }
}

#[tokio::test]
async fn the_pod_of_a_job_is_found() {
    let kubectl = with_node().await;
    let port = free_port();
    let script = echo(port);
    let job = format!(
        "apiVersion: batch/v1
kind: Job
metadata: {{name: server}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
        - {{name: main, image: process, env: [{{name: COLOUR, value: red}}], command: [sh, -c, {script:?}]}}
"
    );
    let file = kubectl.file("job.yaml", &job);
    kubectl.ok(&format!("create -f {file}"));
    listens(port);
    kubectl.ok("wait --for=jsonpath={.status.ready}=1 job/server --timeout=60s");
    let forward = Forward::start(&kubectl, "job/server", port);
    assert_eq!(forward.ask(b"env"), b"red");
}

/// Pods share the network of the machine. What listens there and is not of the Pod is not reached through it.
#[tokio::test]
async fn a_port_of_another_process_is_not_reached() {
    let kubectl = with_node().await;
    run_pod(&kubectl, "p", "", "sleep 1000");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut forward = Forward::start(&kubectl, "pod/p", port);
    assert_eq!(forward.ask(b"hello"), b"");
    let mut trouble = String::new();
    BufReader::new(forward.child.stderr.as_mut().unwrap()).read_line(&mut trouble).unwrap();
    assert!(trouble.contains(&format!("no process of the Pod listens on port {port}")), "{trouble}");
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "nothing has connected");
}
