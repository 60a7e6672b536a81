//! A client that is a library: a script or a program beside this file uses it. It runs as long as the test, because
//! loading such a library takes longer than using it.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;

use super::{Answer, Driver, GIVE_UP_AFTER, Place, python_cache, source};

pub struct Script {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Script {
    pub fn python(library: &Path, file: &str, place: &Place) -> Result<Script, String> {
        let mut command = Command::new("python3");
        command.arg(source(file)).arg(&place.kubeconfig).env("PYTHONPATH", library);
        command.env("PYTHONPYCACHEPREFIX", python_cache());
        Self::start(command, place)
    }

    pub fn node(library: &Path, file: &str, place: &Place) -> Result<Script, String> {
        let mut command = Command::new("node");
        command.arg(source(file)).arg(&place.kubeconfig).arg(library);
        Self::start(command, place)
    }

    /// A program that `make tools` has built.
    pub fn program(path: &Path, place: &Place) -> Result<Script, String> {
        let mut command = Command::new(path);
        command.arg(&place.kubeconfig);
        Self::start(command, place)
    }

    fn start(mut command: Command, place: &Place) -> Result<Script, String> {
        let log = std::fs::File::create(place.home.join("log")).map_err(|error| error.to_string())?;
        command.env("HOME", &place.home).env_remove("KUBECONFIG").current_dir(&place.home);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let (sender, lines) = channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Ok(Script { child, input, lines })
    }
}

impl Driver for Script {
    fn ask(&mut self, request: &Value, note: &dyn Fn(Value)) -> Answer {
        writeln!(self.input, "{request}").map_err(|error| format!("the driver has ended: {error}"))?;
        loop {
            let line = self.lines.recv_timeout(GIVE_UP_AFTER).map_err(|error| format!("no answer: {error}"))?;
            let mut line: Value = serde_json::from_str(&line).map_err(|error| format!("{error}: {line}"))?;
            if let Some(error) = line["error"].as_str() {
                return Err(error.to_owned());
            }
            match line["note"].take() {
                Value::Null => return Ok(line["answer"].take()),
                reached => note(reached),
            }
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
