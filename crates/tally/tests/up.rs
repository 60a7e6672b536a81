//! `tally up` as a user sees it: what it prints, what it leaves behind, and how it ends.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use support::client::{Api, Call};

fn directory() -> tempfile::TempDir {
    tally_testing::scratch()
}

fn up(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.arg("up").args(arguments).stdin(Stdio::null());
    command
}

fn text(path: &Path) -> &str {
    path.to_str().expect("test directories have plain names")
}

/// A server that has printed that it is ready. Killed when dropped.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
    said: String,
}

impl Running {
    fn start(command: &mut Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        // The block ends with the command to try.
        while !said.contains("get jobs\n") {
            if out.read_line(&mut said).unwrap() == 0 {
                child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                panic!("it ended with {:?}: {said}", child.wait());
            }
        }
        Running { child, out, said }
    }

    fn address(&self) -> String {
        let at = self.said.find("https://").unwrap();
        self.said[at + 8..].lines().next().unwrap().to_owned()
    }

    fn signal(&self, name: &str) {
        // `kill` is built into every shell; not every machine has it as a program.
        let sent = Command::new("sh").args(["-c", &format!("kill -s {name} {}", self.child.id())]).status().unwrap();
        assert!(sent.success());
    }

    fn end(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command that must not start. Returns the exit code and everything it printed.
fn refused(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr))
}

#[test]
fn it_says_where_it_is_and_stops_cleanly() {
    for signal in ["INT", "TERM"] {
        let directory = directory();
        let data = directory.path().join("data");
        let server = Running::start(&mut up(&["--data-dir", text(&data), "--listen", "127.0.0.1:0"]));
        let kubeconfig = data.join("kubeconfig");
        assert!(
            server.said.contains(&format!("kubectl --kubeconfig {} get jobs", kubeconfig.display())),
            "{}",
            server.said
        );
        assert_eq!(fs::metadata(&kubeconfig).unwrap().permissions().mode() & 0o777, 0o600);
        for private in [&data, &data.join("pki")] {
            assert_eq!(fs::metadata(private).unwrap().permissions().mode() & 0o777, 0o700, "{private:?}");
        }
        // A connection without a request does not delay the stop.
        let _silent = TcpStream::connect(server.address()).unwrap();
        server.signal(signal);
        assert_eq!(server.end().code(), Some(0), "SIG{signal}");
    }
}

#[test]
fn it_says_whether_pods_run() {
    for (options, told) in [
        (&[][..], "Pods run as processes of this machine: kubectl create job hello --image=process -- echo hi"),
        (&["--no-node"], "Jobs are stored, but nothing runs their Pods: no node."),
        (&["--controllers", "gc"], "Jobs are stored, but nothing runs their Pods: no Job controller."),
        (&["--controllers", "job"], "Jobs are stored, but nothing runs their Pods: no scheduler."),
        (&["--hollow", "1"], "Pods run on hollow nodes: they succeed and no process is started."),
    ] {
        let mut server = Running::start(up(&["--ephemeral", "--listen", "127.0.0.1:0"]).args(options));
        server.signal("TERM");
        let mut rest = String::new();
        server.out.read_to_string(&mut rest).unwrap();
        assert_eq!(rest.trim(), told, "{options:?}");
        assert_eq!(server.end().code(), Some(0));
    }
}

#[test]
fn objects_keys_and_addresses_survive_a_restart() {
    let directory = directory();
    let arguments = ["--data-dir", text(directory.path()), "--listen", "127.0.0.1:0"];
    let key = directory.path().join("pki/ca.key");
    let mut kept = None;
    for _ in 0..2 {
        let server = Running::start(&mut up(&arguments));
        let now = fs::read(&key).unwrap();
        assert_eq!(kept.get_or_insert_with(|| now.clone()), &now);
        server.signal("TERM");
        assert_eq!(server.end().code(), Some(0));
    }
}

#[test]
fn a_port_in_use_leaves_nothing_behind() {
    let directory = directory();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (data, kubeconfig) = (directory.path().join("data"), directory.path().join("kubeconfig"));
    let (code, said) =
        refused(&mut up(&["--data-dir", text(&data), "--kubeconfig", text(&kubeconfig), "--listen", &address]));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&address) && said.contains("--listen"), "{said}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "something was made");
}

#[test]
fn a_directory_that_cannot_be_used_is_explained() {
    let directory = directory();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    for data in [file.clone(), file.join("below"), PathBuf::from("/proc/tally")] {
        let (code, said) = refused(&mut up(&["--data-dir", text(&data), "--listen", "127.0.0.1:0"]));
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(text(&data)) && said.contains("--data-dir"), "{said}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_kubeconfig_that_cannot_be_written_takes_back_what_was_made() {
    let directory = directory();
    let data = directory.path().join("deep/data");
    let nowhere = directory.path().join("no/such/kubeconfig");
    let (code, said) =
        refused(&mut up(&["--data-dir", text(&data), "--kubeconfig", text(&nowhere), "--listen", "127.0.0.1:0"]));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(text(&nowhere)), "{said}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "something was left");
}

#[test]
fn the_kubeconfig_of_another_cluster_stays() {
    let directory = directory();
    let (data, kubeconfig) = (directory.path().join("data"), directory.path().join("config"));
    fs::write(&kubeconfig, "apiVersion: v1\n").unwrap();
    let (code, said) =
        refused(&mut up(&["--data-dir", text(&data), "--kubeconfig", text(&kubeconfig), "--listen", "127.0.0.1:0"]));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("--kubeconfig"), "{said}");
    assert_eq!(fs::read_to_string(&kubeconfig).unwrap(), "apiVersion: v1\n");
    assert!(!data.exists());
}

#[test]
fn two_cannot_share_a_directory() {
    let directory = directory();
    let arguments = ["--data-dir", text(directory.path()), "--listen", "127.0.0.1:0"];
    let first = Running::start(&mut up(&arguments));
    let kubeconfig = fs::read(directory.path().join("kubeconfig")).unwrap();
    let (code, said) = refused(&mut up(&arguments));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("in use by another process"), "{said}");
    assert_eq!(fs::read(directory.path().join("kubeconfig")).unwrap(), kubeconfig, "the first one's kubeconfig");
    TcpStream::connect(first.address()).expect("the first still serves");
}

/// The mode of every file, socket and directory below a directory that is not the Pod's own: its volumes, its /tmp and its
/// termination message have the modes that the Pod asks for, in directories that are closed.
fn modes(top: &Path) -> BTreeMap<PathBuf, (bool, u32)> {
    let (mut found, mut ahead) = (BTreeMap::new(), vec![top.to_owned()]);
    while let Some(path) = ahead.pop() {
        // What is gone again was temporary.
        let Ok(about) = fs::symlink_metadata(&path) else { continue };
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_of_a_pod = path.ancestors().any(|at| at.ends_with("node/pods"));
        let is_own = is_of_a_pod && (name == "volumes" || name.ends_with(".tmp"));
        if is_own || path.parent().is_some_and(|parent| parent.ends_with("node/words")) {
            continue;
        }
        if about.is_dir() {
            ahead.extend(fs::read_dir(&path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())));
        }
        found.insert(path, (about.is_dir(), about.permissions().mode() & 0o777));
    }
    found
}

/// Waits until a container below the directory has written this line.
fn until_a_log_says(line: &str, top: &Path) {
    let until = Instant::now() + Duration::from_secs(120);
    let says = |path: &PathBuf| {
        path.extension().is_some_and(|end| end == "log")
            && fs::read_to_string(path).is_ok_and(|text| text.contains(line))
    };
    while !modes(top).keys().any(says) {
        assert!(Instant::now() < until, "no container says {line}: {:?}", modes(top));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[track_caller]
fn are_closed(top: &Path, least: &[&str]) {
    let all = modes(top);
    for (path, (is_directory, mode)) in &all {
        assert_eq!(*mode, if *is_directory { 0o700 } else { 0o600 }, "{mode:o} {}", path.display());
    }
    for name in least {
        assert!(all.keys().any(|path| path.ends_with(name)), "no {name}: {all:?}");
    }
}

fn with_umask_000(arguments: &[&str], parent: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "umask 000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_tally")]).args(arguments);
    command.env("TMPDIR", parent).stdin(Stdio::null());
    command
}

/// Another user could put a kubeconfig of their own in the place of this one, or connect to the socket.
#[tokio::test]
async fn a_temporary_directory_is_closed_to_others_whatever_the_umask() {
    let parent = directory();
    let server = Running::start(&mut with_umask_000(&["up", "--ephemeral", "--listen", "127.0.0.1:0"], parent.path()));
    let top = fs::read_dir(parent.path()).unwrap().next().unwrap().unwrap().path();
    let api = Api::from_kubeconfig(&top.join("kubeconfig")).unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"restartPolicy": "Never", "volumes": [{"name": "v", "emptyDir": {}}], "containers": [{
            "name": "c", "image": "process", "command": ["sh", "-c", "echo begun; exec sleep 1000"],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        }]},
    });
    let made = api.connection().call(&Call::new("POST", "/api/v1/namespaces/default/pods").body(&pod)).await.unwrap();
    assert_eq!(made.code, 201, "{}", made.text);
    until_a_log_says("begun", &top);
    are_closed(&top, &["kubeconfig", "pki/ca.key", "pki/token", "api.sock", "node/journal", "node/lock"]);
    server.signal("TERM");
    assert!(server.end().success());
}

#[test]
fn the_files_of_a_run_are_closed_to_others_whatever_the_umask() {
    // A directory that was there before keeps its mode, and what is in it does not depend on that.
    let open = directory();
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o777)).unwrap();
    for data in [None, Some(open.path())] {
        let parent = directory();
        let go = parent.path().join("go");
        let script = format!("echo begun; while ! test -e {}; do sleep 0.05; done", go.display());
        let mut arguments = vec!["run"];
        arguments.extend(data.iter().flat_map(|data| ["--data-dir", text(data)]));
        arguments.extend(["--", "sh", "-c", &script]);
        let mut run =
            with_umask_000(&arguments, parent.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until_a_log_says("begun", data.unwrap_or(parent.path()));
        match data {
            None => {
                let made: Vec<_> = fs::read_dir(parent.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
                assert_eq!(made.len(), 1);
                are_closed(&made[0], &["node/journal", "node/lock"]);
            }
            Some(data) => {
                let made = modes(data).into_keys().filter(|path| path.parent() == Some(data));
                made.for_each(|path| are_closed(&path, &[]));
                let (all, needed) =
                    (modes(data), ["api.sock", "node/journal", "store/lock", "store/head", "store/log/1.log"]);
                assert!(needed.iter().all(|name| all.contains_key(&data.join(name))), "{all:?}");
            }
        }
        fs::write(&go, "").unwrap();
        assert!(run.wait().unwrap().success());
    }
}

#[test]
fn an_ephemeral_server_leaves_nothing() {
    let directory = directory();
    let mut command = up(&["--ephemeral", "--listen", "127.0.0.1:0"]);
    let server = Running::start(command.env("TMPDIR", directory.path()));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    server.signal("TERM");
    assert_eq!(server.end().code(), Some(0));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn data_is_kept_where_the_system_says() {
    let (home, data) = (directory(), directory());
    for (xdg, place) in [(None, home.path().join(".local/share/tally")), (Some(data.path()), data.path().join("tally"))]
    {
        let mut command = up(&["--listen", "127.0.0.1:0"]);
        command.env("HOME", home.path()).env_remove("XDG_DATA_HOME");
        if let Some(xdg) = xdg {
            command.env("XDG_DATA_HOME", xdg);
        }
        let server = Running::start(&mut command);
        assert!(place.join("kubeconfig").exists(), "{}", server.said);
    }
}

#[test]
fn bad_usage_exits_with_2_and_says_what_is_right() {
    for (arguments, hint) in [
        (&["--listen", "nowhere"][..], "127.0.0.1:6443"),
        (&["--controllers", "job,bob"], "available controllers: after, cronjob, gc, job"),
        (&["--ephemeral", "--data-dir", "x"], "cannot be used with"),
        (&["--frob"], "--help"),
    ] {
        let (code, said) = refused(&mut up(arguments));
        assert_eq!(code, Some(2), "{arguments:?}: {said}");
        assert!(said.contains(hint), "{arguments:?}: {said}");
    }
    let (code, said) = refused(&mut up(&["--help"]));
    for told in ["Examples:", "This machine is the only node", "a container needs a command"] {
        assert!(code == Some(0) && said.contains(told), "{told}: {said}");
    }
}

fn certs(arguments: &[&str], data: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.arg("certs").args(arguments).arg("--data-dir").arg(data).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn certificates_are_shown_and_replaced_when_the_server_is_stopped() {
    let directory = directory();
    let data = directory.path().join("data");
    let shown = |output: Output| {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let missing = certs(&["show"], &data);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("has no certificate authority"));

    let server = Running::start(&mut up(&["--no-node", "--data-dir", text(&data), "--listen", "127.0.0.1:0"]));
    let told = shown(certs(&["show"], &data));
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0].starts_with("authority: CN=tally authority, valid "), "{told}");
    assert!(lines[1].contains("CN=kubernetes-admin, O=system:masters") && lines[1].ends_with("days left"), "{told}");
    assert_eq!(lines.len(), 2, "{told}");

    let key = data.join("pki/ca.key");
    let before = fs::read(&key).unwrap();
    let refused = certs(&["rotate"], &data);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("tally up must be stopped first") && said.contains("in use by another process"), "{said}");
    assert_eq!(fs::read(&key).unwrap(), before);
    server.signal("TERM");
    server.end();

    shown(certs(&["rotate"], &data));
    assert!(!key.exists());
    let server = Running::start(&mut up(&["--no-node", "--data-dir", text(&data), "--listen", "127.0.0.1:0"]));
    assert_ne!(fs::read(&key).unwrap(), before);
    server.signal("TERM");
    assert_eq!(server.end().code(), Some(0));
}
