//! `kubectl port-forward`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};

use crate::run_pod;
use crate::support::kubectl::{Kubectl, with_node, with_open_node};
use crate::tool::eventually;

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
        let (answer, _) = self.answer(question);
        answer
    }

    /// What is answered, and how the connection ended.
    fn answer(&self, question: &[u8]) -> (Vec<u8>, [std::io::Result<()>; 2]) {
        let mut connection = self.connect();
        let mut answer = Vec::new();
        let ends = std::thread::scope(|scope| {
            let mut writer = connection.try_clone().unwrap();
            let sent = scope.spawn(move || {
                writer.write_all(question)?;
                writer.shutdown(std::net::Shutdown::Write)
            });
            let received = connection.read_to_end(&mut answer).map(drop);
            [sent.join().unwrap(), received]
        });
        (answer, ends)
    }

    /// Ends it. What kubectl has said of troubles.
    fn troubles(mut self) -> String {
        self.child.kill().unwrap();
        let mut troubles = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut troubles).unwrap();
        troubles
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server in a Pod: it says on which port it listens, returns what it receives, and its own environment for `env`.
const ECHO: &str = "exec python3 -c '
import os, socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while piece := self.request.recv(65536):
            self.request.sendall(os.environ[\"COLOUR\"].encode() if piece == b\"env\" else piece)
class Server(socketserver.ThreadingTCPServer):
    request_queue_size = 64
server = Server((\"127.0.0.1\", 0), Echo)
print(server.server_address[1], flush=True)
server.serve_forever()
'";

/// The port on which `ECHO` listens in `what`. The system chose it: one that is free now can be taken before a Pod uses it.
fn port_of(kubectl: &Kubectl, what: &str) -> u16 {
    let mut port = None;
    eventually("the server in the Pod says its port", || {
        port = kubectl.say(&format!("logs {what}")).out.trim().parse().ok();
        port.is_some()
    });
    port.unwrap()
}

#[tokio::test]
async fn a_port_of_a_pod_is_reached() {
    for kubectl in [with_node().await, with_open_node().await] {
        run_pod(&kubectl, "p", "env: [{name: COLOUR, value: green}]", ECHO);
        let port = port_of(&kubectl, "pod/p");
        let forward = Forward::start(&kubectl, "pod/p", port);
        assert_ne!(forward.port, port);
        assert_eq!(forward.ask(b"env"), b"green");
        // Several at once, with more than any buffer holds, and one that is open meanwhile.
        let mut open = forward.connect();
        open.write_all(b"still").unwrap();
        let failed: Vec<String> = std::thread::scope(|scope| {
            let ask = |number: u8| {
                let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8 ^ number).collect();
                let (answer, ends) = forward.answer(&sent);
                (answer != sent).then(|| format!("connection {number}: {} bytes, {ends:?}", answer.len()))
            };
            let all: Vec<_> = (0..8).map(|number| scope.spawn(move || ask(number))).collect();
            all.into_iter().filter_map(|one| one.join().unwrap()).collect()
        });
        assert!(failed.is_empty(), "{failed:?} {}", forward.troubles());
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
    let job = format!(
        "apiVersion: batch/v1
kind: Job
metadata: {{name: server}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
        - {{name: main, image: process, env: [{{name: COLOUR, value: red}}], command: [sh, -c, {ECHO:?}]}}
"
    );
    let file = kubectl.file("job.yaml", &job);
    kubectl.ok(&format!("create -f {file}"));
    kubectl.ok("wait --for=jsonpath={.status.ready}=1 job/server --timeout=60s");
    let port = port_of(&kubectl, "job/server");
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
