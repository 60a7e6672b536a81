//! kubectl: every thing is a command, or a few.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Instant;

use serde_json::{Value, json};

use super::{Answer, Driver, GIVE_UP_AFTER, Place, Said, run, write};
use crate::pty::Terminal;

pub struct Kubectl {
    program: PathBuf,
    /// 36 for version 1.36.
    minor: u32,
    place: Place,
}

/// The row of a client says which versions it is about; another one that is found in its place does not run.
pub fn start(program: PathBuf, versions: RangeInclusive<u32>, place: Place) -> Result<Box<dyn Driver>, String> {
    let mut kubectl = Kubectl { program, minor: 0, place };
    let version = kubectl.ok(&Value::Null, "version --client -o json")?;
    let version: Value = serde_json::from_str(&version).map_err(|error| error.to_string())?;
    let minor = version["clientVersion"]["minor"].as_str().unwrap_or_default().trim_end_matches('+');
    kubectl.minor = minor.parse().map_err(|_| format!("no version in {version}"))?;
    crate::announce(&format!("{} is 1.{}", kubectl.program.display(), kubectl.minor));
    match versions.contains(&kubectl.minor) {
        true => Ok(Box::new(kubectl)),
        false => Err(format!("{} is version 1.{}", kubectl.program.display(), kubectl.minor)),
    }
}

impl Driver for Kubectl {
    fn ask(&mut self, request: &Value, note: &dyn Fn(Value)) -> Answer {
        match request["thing"].as_str().unwrap_or_default() {
            "objects" => self.objects(request),
            "conflict" => self.conflict(request),
            "owners" => self.owners(request),
            "rollback" => self.rollback(request),
            "paging" => self.paging(request),
            "watch" => self.watch(request, note),
            "terminal" => self.terminal(request),
            "logs" => self.logs(request),
            "job" => self.job(request),
            other => Err(format!("kubectl has no {other}")),
        }
    }
}

impl Kubectl {
    fn command(&self, request: &Value, arguments: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env("KUBECONFIG", &self.place.kubeconfig)
            .env("HOME", &self.place.home)
            .env("KUBECACHEDIR", self.place.home.join("cache"))
            .args(["-n", request["namespace"].as_str().unwrap_or("default")])
            .args(arguments.split_whitespace());
        command
    }

    fn say(&self, request: &Value, arguments: &str) -> Result<Said, String> {
        run(&mut self.command(request, arguments))
    }

    fn ok(&self, request: &Value, arguments: &str) -> Result<String, String> {
        let said = self.say(request, arguments)?;
        match said.code {
            Some(0) => Ok(said.out),
            _ => Err(format!("kubectl {arguments}: {said:?}")),
        }
    }

    fn file(&self, name: &str, manifest: &Value) -> Result<String, String> {
        write(&self.place.home, &format!("{name}.json"), &manifest.to_string())
    }

    /// The names in the output of `-o name`.
    fn names(&self, request: &Value, selection: &str) -> Result<Vec<String>, String> {
        let out = self.ok(request, &format!("get configmaps -o name {selection}"))?;
        let mut names: Vec<_> = out.lines().map(|line| line.trim_start_matches("configmap/").to_owned()).collect();
        names.sort();
        Ok(names)
    }

    fn objects(&self, request: &Value) -> Answer {
        let make = json!({"apiVersion": "v1", "kind": "List", "items": request["make"]});
        self.ok(request, &format!("create -f {}", self.file("make", &make)?))?;
        let got = self.ok(request, "get configmap red-1 -o jsonpath={.data.colour}")?;
        let red = self.names(request, "-l colour=red")?;
        let field = self.names(request, "--field-selector metadata.name=blue-1")?;
        self.ok(request, "delete configmap red-2")?;
        let left = self.names(request, "-l suite=objects")?;
        Ok(json!({"got": got, "red": red, "field": field, "left": left}))
    }

    fn apply(&self, request: &Value, manifest: &Value, manager: &str, more: &str) -> Result<Said, String> {
        let file = self.file("applied", manifest)?;
        // Old versions validate the file themselves, and ask for fields that another manager owns.
        let validate = if self.minor < 25 { "--validate=false" } else { "" };
        self.say(request, &format!("apply --server-side --field-manager={manager} {validate} {more} -f {file}"))
    }

    fn applied(&self, request: &Value, manifest: &Value, manager: &str, more: &str) -> Result<(), String> {
        match self.apply(request, manifest, manager, more)? {
            said if said.code == Some(0) => Ok(()),
            said => Err(format!("apply by {manager}: {said:?}")),
        }
    }

    fn conflict(&self, request: &Value) -> Answer {
        self.applied(request, &request["alice"], "alice", "")?;
        let refused = self.apply(request, &request["bob"], "bob", "")?;
        self.applied(request, &request["bob"], "bob", "--force-conflicts")?;
        // kubectl prints the reason instead of the code.
        let code = if refused.code == Some(1) { "409" } else { "no error" };
        Ok(json!({"conflict": format!("{code} {}", refused.err)}))
    }

    fn owners(&self, request: &Value) -> Answer {
        for step in request["steps"].as_array().into_iter().flatten() {
            self.applied(request, &step[1], step[0].as_str().unwrap_or_default(), "")?;
        }
        Ok(json!({}))
    }

    fn rollback(&self, request: &Value) -> Answer {
        self.applied(request, &request["first"], "user", "")?;
        self.applied(request, &request["second"], "user", "")?;
        let name = request["second"]["metadata"]["name"].as_str().unwrap_or_default();
        let second = self.ok(request, &format!("get configmap {name} -o json"))?;
        let second: Value = serde_json::from_str(&second).map_err(|error| error.to_string())?;
        self.applied(request, &request["first"], "user", "")?;
        Ok(json!({"second": second["data"]}))
    }

    fn paging(&self, request: &Value) -> Answer {
        let arguments = format!("get configmaps -l suite=paging --chunk-size={} -o json", request["limit"]);
        let listed: Value = serde_json::from_str(&self.ok(request, &arguments)?).map_err(|error| error.to_string())?;
        let items = listed["items"].as_array().into_iter().flatten();
        let found: Vec<_> = items.map(|item| json!([item["metadata"]["name"], item["data"]["n"]])).collect();
        Ok(json!({"found": found}))
    }

    fn watch(&self, request: &Value, note: &dyn Fn(Value)) -> Answer {
        let columns = "custom-columns=TYPE:.type,NAME:.object.metadata.name,V:.object.data.v";
        let arguments = format!("get configmaps -l suite=watch -w --output-watch-events --no-headers -o {columns}");
        let (mut waiting, said) = self.wait_for_deletion(request)?;
        let mut state: BTreeMap<String, String>;
        let mut deleted = Vec::new();
        let mut before = BTreeMap::new();
        let until = Instant::now() + GIVE_UP_AFTER;
        loop {
            if Instant::now() > until {
                return Err(format!("it has only seen {before:?}"));
            }
            state = BTreeMap::new();
            let mut command = self.command(request, &arguments);
            let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::null()).spawn();
            let mut child = Running(child.map_err(|error| error.to_string())?);
            let lines = BufReader::new(child.0.stdout.take().ok_or("no output")?).lines();
            for line in lines.map_while(Result::ok) {
                let words: Vec<_> = line.split_whitespace().collect();
                match words[..] {
                    ["DELETED", name, _] => drop((state.remove(name), deleted.push(name.to_owned()))),
                    [_, name, value] => drop(state.insert(name.to_owned(), value.to_owned())),
                    _ => return Err(format!("a line of get -w: {line:?}")),
                }
                note(json!({"seen": state}));
                if state.contains_key("end") {
                    break;
                }
            }
            if state.contains_key("end") {
                break;
            }
            before.append(&mut state);
        }
        deleted.extend(before.into_keys().filter(|name| !state.contains_key(name)));
        // It has listed again by itself: b was deleted while it had no connection.
        let waited = waiting.0.wait().map_err(|error| error.to_string())?;
        if !waited.success() {
            let said = said.join().unwrap_or_default();
            return Err(format!("wait --for=delete: {waited}: {said:?}"));
        }
        // What a watch from before is answered, in words.
        let version = request["version"].as_str().unwrap_or_default();
        let namespace = request["namespace"].as_str().unwrap_or_default();
        let path =
            format!("/api/v1/namespaces/{namespace}/configmaps?watch=1&resourceVersion={version}&timeoutSeconds=5");
        let said = self.say(request, &format!("get --raw {path}"))?;
        let words = format!("{}{}", said.out, said.err);
        Ok(
            json!({"state": state, "deleted": deleted, "expired": words.contains("too old resource version"), "words": words}),
        )
    }

    /// A `wait` that is watching.
    fn wait_for_deletion(&self, request: &Value) -> Result<(Running, JoinHandle<Vec<String>>), String> {
        let mut command = self.command(request, "wait --for=delete configmap/b --timeout=110s -v=6");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = Running(child.map_err(|error| error.to_string())?);
        let mut lines = BufReader::new(child.0.stderr.take().ok_or("no output")?).lines().map_while(Result::ok);
        let mut said = Vec::new();
        loop {
            let line = lines.next().ok_or_else(|| format!("wait --for=delete has ended: {said:?}"))?;
            if line.contains("watch=true") {
                break;
            }
            said.push(line);
        }
        // What it prints must be read, or it would wait for that.
        let rest = std::thread::spawn(move || lines.collect::<Vec<_>>());
        Ok((child, rest))
    }

    fn terminal(&self, request: &Value) -> Answer {
        let mut command = self.command(request, "exec -it");
        command.arg(request["pod"].as_str().unwrap_or_default()).arg("--");
        command.args(request["command"].as_array().into_iter().flatten().filter_map(Value::as_str));
        let terminal = Terminal::start(command, 91, 17);
        terminal.type_in(request["input"].as_str().unwrap_or_default());
        let (code, out) = terminal.end();
        Ok(json!({"out": out, "code": code}))
    }

    fn logs(&self, request: &Value) -> Answer {
        let out = self.ok(request, &format!("logs -f {}", request["pod"].as_str().unwrap_or_default()))?;
        Ok(json!({"lines": out.lines().collect::<Vec<_>>()}))
    }

    fn job(&self, request: &Value) -> Answer {
        self.ok(request, &format!("create -f {}", self.file("job", &request["job"])?))?;
        let name = request["job"]["metadata"]["name"].as_str().unwrap_or_default();
        self.ok(request, &format!("wait --for=condition=complete --timeout=110s job/{name}"))?;
        Ok(json!({}))
    }
}

/// Killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
