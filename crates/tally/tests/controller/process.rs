//! A running `tally controller`.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Ends a test that would otherwise hang; it asserts nothing.
pub const GIVE_UP_AFTER: Duration = Duration::from_secs(120);

pub struct Controller {
    child: Child,
    log: PathBuf,
}

impl Controller {
    /// `name` distinguishes the instances of one test. Metrics are served on a free port.
    pub fn start(kubeconfig: &Path, name: &str, arguments: &[&str]) -> Controller {
        let log = kubeconfig.with_file_name(format!("{name}.log"));
        let file = File::create(&log).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_tally"))
            .args(["controller", "--metrics", "127.0.0.1:0", "--kubeconfig"])
            .arg(kubeconfig)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Controller { child, log }
    }

    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until the log contains this text.
    pub fn until_it_says(&mut self, text: &str) {
        self.until(text, |controller| controller.said().contains(text));
    }

    pub fn until(&mut self, what: &str, mut is: impl FnMut(&Controller) -> bool) {
        let until = Instant::now() + GIVE_UP_AFTER;
        while !is(self) {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended with {ended:?} before {what:?}:\n{}", self.said());
            assert!(Instant::now() < until, "not {what:?}:\n{}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Where it serves metrics and health: `127.0.0.1:12345`.
    pub fn address(&self) -> String {
        let said = self.said();
        said.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("it says where").to_owned()
    }

    /// Sends a GET to its own server. Returns the code and the whole response.
    pub fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let code = text.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("an answer");
        (code, text)
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("sh").args(["-c", &format!("kill -s {name} {}", self.child.id())]).status();
        assert!(sent.unwrap().success());
    }

    #[allow(dead_code, reason = "of use where a process may end by itself")]
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The exit code, once the process has ended.
    pub fn ended(&mut self) -> Option<i32> {
        let until = Instant::now() + GIVE_UP_AFTER;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < until, "it goes on:\n{}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address of the server in a kubeconfig: `127.0.0.1:12345`.
pub fn address(kubeconfig: &Path) -> String {
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    let server = text.split("https://").nth(1).expect("a server");
    server.chars().take_while(|letter| !letter.is_whitespace() && *letter != '"').collect()
}

/// A `tally up` with arguments chosen by the test.
pub struct Up(Child);

impl Up {
    pub fn start(directory: &Path, arguments: &[&str]) -> Up {
        let child = Command::new(env!("CARGO_BIN_EXE_tally"))
            .arg("up")
            .args(arguments)
            .arg("--kubeconfig")
            .arg(directory.join("kubeconfig"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Up(child)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
