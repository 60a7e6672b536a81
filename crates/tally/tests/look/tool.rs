//! The real binary, as a user starts it.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Ends a test that would otherwise hang; it asserts nothing.
const GIVE_UP_AFTER: Duration = Duration::from_secs(120);

pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }
}

pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.args(arguments).stdin(Stdio::null());
    command
}

pub fn said(output: Output) -> Said {
    let lossy = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Said { code: output.status.code(), out: lossy(output.stdout), err: lossy(output.stderr) }
}

pub fn tally(arguments: &[&str]) -> Said {
    said(command(arguments).output().unwrap())
}

pub fn directory() -> tempfile::TempDir {
    tally_testing::scratch()
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Killed when dropped.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command whose output can be read while it runs. Killed when dropped.
pub struct Watched {
    child: Child,
    output: tempfile::TempDir,
}

impl Watched {
    pub fn start(command: &mut Command) -> Self {
        let output = directory();
        let file = |name: &str| std::fs::File::create(output.path().join(name)).unwrap();
        let child = command.stdout(file("out")).stderr(file("err")).spawn().unwrap();
        Self { child, output }
    }

    fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.output.path().join(name)).unwrap()).into_owned()
    }

    /// Waits until it has printed all of these.
    pub fn prints(&self, texts: &[&str]) {
        eventually(&format!("it prints {texts:?}"), || {
            let all = self.read("out") + &self.read("err");
            texts.iter().all(|text| all.contains(text)).then_some(())
        });
    }

    #[allow(dead_code, reason = "not every test sends signals")]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn ends(mut self) -> Said {
        let code = self.child.wait().unwrap().code();
        Said { code, out: self.read("out"), err: self.read("err") }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + GIVE_UP_AFTER;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The attempts of `tally show -o json`: index, number, exit code.
pub fn attempts(shown: &Value) -> Vec<(Option<u64>, u64, Option<i64>)> {
    let all = shown["attempts"].as_array().unwrap();
    all.iter().map(|it| (it["index"].as_u64(), it["attempt"].as_u64().unwrap(), it["exitCode"].as_i64())).collect()
}
