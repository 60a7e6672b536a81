//! A real browser, driven through the DevTools protocol over a pipe: messages of JSON that end with a zero byte.
//!
//! The browser is Debian's chromium, which `make tools` installs; `CHROMIUM` names another one.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::Engine;
use serde_json::{Value, json};

/// How long a page may take until a condition holds. It only ends a test that would otherwise hang.
const WITHIN: Duration = Duration::from_secs(90);

/// The program, or None if this machine has none: then a test says that it did not run.
pub fn program() -> Option<PathBuf> {
    if let Some(program) = std::env::var_os("CHROMIUM") {
        return Some(program.into());
    }
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let names = std::env::split_paths(&directories)
        .flat_map(|directory| ["chromium", "google-chrome"].map(|name| directory.join(name)));
    names.into_iter().find(|program| program.exists())
}

pub struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    /// Those that are no response.
    events: VecDeque<Value>,
    next: u64,
}

/// A tab.
#[derive(Clone, Debug)]
pub struct Tab {
    session: String,
}

impl Browser {
    pub fn start(program: &Path, directory: &Path) -> Self {
        let profile = directory.join("profile");
        // The pipe is on the descriptors 3 and 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null", "sh"])
            .arg(program)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .env("HOME", directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a browser");
        let input = child.stdin.take().expect("a pipe");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|length| length > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { return };
                if sender.send(value).is_err() {
                    return;
                }
                message.clear();
            }
        });
        Self { child, input, messages, events: VecDeque::new(), next: 0 }
    }

    #[track_caller]
    fn call(&mut self, session: Option<&str>, method: &str, parameters: Value) -> Value {
        self.try_call(session, method, parameters).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn try_call(&mut self, session: Option<&str>, method: &str, parameters: Value) -> Result<Value, Value> {
        self.next += 1;
        let id = self.next;
        let mut message = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.input.write_all(&bytes).and_then(|()| self.input.flush()).expect("the browser runs");
        loop {
            let message = self.messages.recv_timeout(WITHIN).unwrap_or_else(|_| panic!("no answer to {method}"));
            if message["id"] == id {
                return match message.get("error") {
                    Some(error) => Err(error.clone()),
                    None => Ok(message["result"].clone()),
                };
            }
            self.events.push_back(message);
        }
    }

    /// Opens a tab. `context`: with cookies of its own, as another user's browser has.
    pub fn open(&mut self, url: &str, context: Option<&str>) -> Tab {
        let mut parameters = json!({"url": "about:blank"});
        if let Some(context) = context {
            parameters["browserContextId"] = context.into();
        }
        let target = self.call(None, "Target.createTarget", parameters)["targetId"].clone();
        let attached = self.call(None, "Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        let tab = Tab { session: attached["sessionId"].as_str().expect("a session").to_owned() };
        for domain in ["Page", "Runtime", "Log"] {
            self.call(Some(&tab.session), &format!("{domain}.enable"), json!({}));
        }
        self.go(&tab, url);
        tab
    }

    pub fn context(&mut self) -> String {
        let made = self.call(None, "Target.createBrowserContext", json!({}));
        made["browserContextId"].as_str().expect("a context").to_owned()
    }

    pub fn go(&mut self, tab: &Tab, url: &str) {
        self.call(Some(&tab.session), "Page.navigate", json!({"url": url}));
    }

    /// The value of an expression in the page.
    pub fn evaluate(&mut self, tab: &Tab, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let evaluated = self.call(Some(&tab.session), "Runtime.evaluate", parameters);
        assert!(evaluated.get("exceptionDetails").is_none(), "{expression}: {}", evaluated["exceptionDetails"]);
        evaluated["result"]["value"].clone()
    }

    /// Waits until the expression is true. While a page is loaded, an expression may fail.
    #[track_caller]
    pub fn wait_for(&mut self, tab: &Tab, expression: &str) {
        let until = Instant::now() + WITHIN;
        loop {
            let guarded = format!("(() => {{ try {{ return !!({expression}) }} catch {{ return false }} }})()");
            let parameters = json!({"expression": guarded, "returnByValue": true});
            // A page that is left while it is asked gives no answer.
            let evaluated = self.try_call(Some(&tab.session), "Runtime.evaluate", parameters).unwrap_or_default();
            if evaluated["result"]["value"] == true {
                return;
            }
            if Instant::now() > until {
                let text = self.evaluate(tab, "document.body ? document.body.innerText : ''");
                panic!("{expression} does not become true; the page shows:\n{}", text.as_str().unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn resize(&mut self, tab: &Tab, width: u32, height: u32) {
        let parameters = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call(Some(&tab.session), "Emulation.setDeviceMetricsOverride", parameters);
    }

    pub fn screenshot(&mut self, tab: &Tab, file: &Path) {
        let shot = self.call(Some(&tab.session), "Page.captureScreenshot", json!({"format": "png"}));
        let picture = base64::engine::general_purpose::STANDARD.decode(shot["data"].as_str().expect("a picture"));
        std::fs::write(file, picture.expect("a picture")).expect("a file");
    }

    /// The memory of the largest process of this browser that shows pages, in bytes, after a collection of garbage.
    pub fn memory(&mut self, tab: &Tab) -> u64 {
        self.call(Some(&tab.session), "HeapProfiler.collectGarbage", json!({}));
        let mut processes = BTreeMap::new();
        for entry in std::fs::read_dir("/proc").expect("processes").flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
            processes.insert(pid, (parent.unwrap_or(0), entry.path()));
        }
        let is_ours = |pid: u32| {
            std::iter::successors(Some(pid), |pid| processes.get(pid).map(|(parent, _)| *parent))
                .take(20)
                .any(|pid| pid == self.child.id())
        };
        let memory = |path: &Path| {
            let command = std::fs::read_to_string(path.join("cmdline")).unwrap_or_default();
            let pages = std::fs::read_to_string(path.join("smaps_rollup")).unwrap_or_default();
            let line = pages.lines().find_map(|line| line.strip_prefix("Pss:"))?.trim().strip_suffix(" kB")?;
            command.contains("--type=renderer").then_some(line.trim().parse::<u64>().ok()? * 1024)
        };
        let ours = processes.iter().filter(|(pid, _)| is_ours(**pid));
        ours.filter_map(|(_, (_, path))| memory(path)).max().expect("a process that shows the page")
    }

    /// What went wrong in the scripts of this tab, and what its policy refused.
    pub fn errors(&mut self, tab: &Tab) -> Vec<String> {
        self.evaluate(tab, "0");
        let of_tab = |event: &&Value| event["sessionId"] == tab.session.as_str();
        let error = |event: &Value| match event["method"].as_str()? {
            "Runtime.exceptionThrown" => Some(event["params"]["exceptionDetails"].to_string()),
            "Log.entryAdded" if event["params"]["entry"]["level"] == "error" => {
                Some(event["params"]["entry"].to_string())
            }
            _ => None,
        };
        self.events.iter().filter(of_tab).filter_map(error).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
