//! What the Pods of a default `tally up` can reach, and what is made of their securityContext.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use tally_testing::{is_root, skip};

use crate::support::kubectl::{Kubectl, with_node, with_node_and, with_open_node};
use crate::support::server::{self, Server};
use crate::tool::{eventually, job};

/// Creates a Pod of one container that runs a shell script.
pub fn create(kubectl: &Kubectl, name: &str, pod: Value, own: Value, script: &str) {
    let mut container = json!({"name": "main", "image": "process", "command": ["sh", "-c", script]});
    let mut spec = json!({"restartPolicy": "Never"});
    for (object, more) in [(&mut container, own), (&mut spec, pod)] {
        for (field, value) in more.as_object().unwrap() {
            object[field] = value.clone();
        }
    }
    spec["containers"] = json!([container]);
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    let made = kubectl.with_input("create --validate=false -f -", &object.to_string());
    assert_eq!(made.code, Some(0), "{object}: {}", made.err);
}

/// Waits until the Pod has ended. Returns what it printed.
pub fn said_by(kubectl: &Kubectl, name: &str) -> String {
    let phase = || kubectl.ok(&format!("get pod {name} -o jsonpath={{.status.phase}}"));
    eventually("it ends", || ["Succeeded", "Failed"].contains(&phase().as_str()));
    kubectl.ok(&format!("logs {name}"))
}

fn says(kubectl: &Kubectl, name: &str, pod: Value, own: Value, script: &str) -> String {
    create(kubectl, name, pod, own, script);
    said_by(kubectl, name)
}

#[tokio::test]
async fn a_default_pod_reaches_no_credentials_and_no_other_pod() {
    let kubectl = with_node().await;
    if !kubectl.server.said().contains("pods        isolated") {
        return skip("Pods cannot be isolated here");
    }
    let here = kubectl.directory.path().display().to_string();
    // Another Pod, with a Secret and output.
    kubectl.ok("create secret generic words --from-literal=key=hidden-words");
    let volumes = json!({"volumes": [{"name": "v", "secret": {"secretName": "words"}}]});
    let mounts = json!({"volumeMounts": [{"name": "v", "mountPath": "/words"}]});
    create(&kubectl, "other", volumes, mounts, "echo printed by the other; exec sleep 4242.4242");
    eventually("the other Pod runs", || kubectl.say("logs other").out.contains("printed"));
    let own = std::process::id();
    // The server inherits it.
    let known = ["HOME", "HOSTNAME", "OLDPWD", "PATH", "PWD", "SHLVL", "_"];
    let (of_server, _) = std::env::vars().find(|(name, _)| !known.contains(&name.as_str())).unwrap();
    let script = format!(
        "find {here}/data -type f 2>/dev/null | while read -r file; do head -c 1 \"$file\" >/dev/null && echo $file; done
         ls -A {here}/data 2>/dev/null; head -c 1 {here}/kubeconfig 2>/dev/null | wc -c
         grep -rl 'hidden-words\\|printed by the other' {here}/data /tmp /dev/shm 2>/dev/null
         cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 4242.42[4]2; kill -9 {own} 2>/dev/null && echo killed
         cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c '^{of_server}='
         for root in /proc/[0-9]*/root; do head -c 1 $root{here}/data/pki/token 2>/dev/null; done
         for socket in {here}/data/*.sock; do test -e \"$socket\" && echo $socket; done; echo end"
    );
    assert_eq!(says(&kubectl, "curious", json!({}), json!({}), &script), "0\n0\n0\nend\n");
    // The same for another user, and for root with all that may be added.
    let users = json!({"securityContext": {"runAsUser": 65532}});
    if is_root() {
        assert_eq!(says(&kubectl, "user", users, json!({}), &script), "0\n0\n0\nend\n");
        let added = json!({"securityContext": {"capabilities": {"add": ["NET_ADMIN", "SYS_NICE", "SYS_CHROOT"]}}});
        assert_eq!(says(&kubectl, "added", json!({}), added, &script), "0\n0\n0\nend\n");
    }
    assert_eq!(kubectl.ok("get pod other -o jsonpath={.status.phase}"), "Running");
}

#[tokio::test]
async fn pods_that_are_not_isolated_are_announced() {
    let kubectl = with_open_node().await;
    let said = kubectl.server.said();
    assert!(
        said.contains("pods        not isolated: they can read the keys and the kubeconfig of this cluster"),
        "{said}"
    );
    let here = kubectl.directory.path().display().to_string();
    let script = format!("test -r {here}/data/pki/token && echo readable");
    assert_eq!(says(&kubectl, "curious", json!({}), json!({}), &script), "readable\n");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    let refused = command.args(["up", "--ephemeral", "--no-node", "--isolate"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--isolate needs a node"), "{refused:?}");
}

#[tokio::test]
async fn what_a_security_context_asks_for_is_what_the_processes_have() {
    let kubectl = with_node().await;
    if !is_root() || !kubectl.server.said().contains("pods        isolated") {
        return skip("this needs root and namespaces");
    }
    let status = |name: &str| format!("grep ^{name}: /proc/self/status | cut -f2");
    let context = |value: Value| json!({ "securityContext": value });
    let default = format!("{:016x}\n", tally_node::capabilities::DEFAULT);
    for (number, (pod, own, script, expected)) in [
        (json!({}), json!({}), status("CapEff"), default.as_str()),
        (json!({}), context(json!({"capabilities": {"drop": ["ALL"]}})), status("CapBnd"), "0000000000000000\n"),
        (
            json!({}),
            context(json!({"capabilities": {"drop": ["ALL"], "add": ["KILL"]}})),
            status("CapEff"),
            "0000000000000020\n",
        ),
        (json!({}), context(json!({"allowPrivilegeEscalation": false})), status("NoNewPrivs"), "1\n"),
        (json!({}), json!({}), status("NoNewPrivs"), "0\n"),
        (json!({}), context(json!({"seccompProfile": {"type": "RuntimeDefault"}})), status("Seccomp"), "2\n"),
        (
            context(json!({"seccompProfile": {"type": "RuntimeDefault"}})),
            context(json!({"seccompProfile": {"type": "Unconfined"}})),
            // The filter of every isolated container is left, which refuses user namespaces.
            status("Seccomp")
                + "; unshare -m true 2>/dev/null || echo refused; unshare -U true 2>/dev/null || echo refused",
            "2\nrefused\nrefused\n",
        ),
        (
            json!({}),
            context(json!({"readOnlyRootFilesystem": true})),
            "touch /etc/x /tmp/x /x 2>/dev/null || echo shut; echo > /dev/null".to_owned(),
            "shut\n",
        ),
        (
            context(json!({"runAsUser": 65532, "runAsGroup": 65533, "runAsNonRoot": true})),
            json!({}),
            "id -u; id -g".to_owned(),
            "65532\n65533\n",
        ),
        (
            context(json!({"supplementalGroups": [5001, 5000], "supplementalGroupsPolicy": "Strict"})),
            json!({}),
            status("Groups") + " | xargs",
            "5000 5001\n",
        ),
        (
            context(
                json!({"fsGroup": 5002, "fsGroupChangePolicy": "OnRootMismatch", "supplementalGroupsPolicy": "Strict"}),
            ),
            json!({}),
            status("Groups") + " | xargs",
            "5002\n",
        ),
        (
            json!({}),
            context(json!({"procMount": "Default", "privileged": false})),
            "head -c 1 /proc/kcore 2>/dev/null | wc -c".to_owned(),
            "0\n",
        ),
        (json!({"hostUsers": true, "shareProcessNamespace": false}), json!({}), "hostname".to_owned(), "obeyed-12\n"),
        (context(json!({"appArmorProfile": {"type": "Unconfined"}})), json!({}), "echo fine".to_owned(), "fine\n"),
    ]
    .into_iter()
    .enumerate()
    {
        let said = says(&kubectl, &format!("obeyed-{number}"), pod.clone(), own.clone(), &script);
        assert_eq!(said, expected, "{pod} {own}");
    }
}

#[tokio::test]
async fn what_cannot_be_obeyed_holds_the_pod_and_names_the_field() {
    let kubectl = with_node().await;
    if !is_root() || !kubectl.server.said().contains("pods        isolated") {
        return skip("this needs root and namespaces");
    }
    let context = |value: Value| json!({ "securityContext": value });
    let rows = [
        ("securityContext.privileged", json!({}), context(json!({"privileged": true}))),
        ("securityContext.capabilities", json!({}), context(json!({"capabilities": {"add": ["SYS_ADMIN"]}}))),
        ("securityContext.procMount", json!({"hostUsers": false}), context(json!({"procMount": "Unmasked"}))),
        (
            "securityContext.seccompProfile",
            json!({}),
            context(json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"}})),
        ),
        ("securityContext.appArmorProfile", json!({}), context(json!({"appArmorProfile": {"type": "RuntimeDefault"}}))),
        ("securityContext.seLinuxOptions", context(json!({"seLinuxOptions": {"level": "s0:c1"}})), json!({})),
        ("securityContext.windowsOptions", context(json!({"windowsOptions": {"runAsUserName": "me"}})), json!({})),
        (
            "securityContext.sysctls",
            context(json!({"sysctls": [{"name": "net.ipv4.ip_forward", "value": "1"}]})),
            json!({}),
        ),
        ("runAsNonRoot", context(json!({"runAsNonRoot": true})), json!({})),
        ("hostPID", json!({"hostPID": true}), json!({})),
        ("hostIPC", json!({"hostIPC": true}), json!({})),
        ("shareProcessNamespace", json!({"shareProcessNamespace": true}), json!({})),
        ("hostUsers", json!({"hostUsers": false}), json!({})),
    ];
    for (number, (_, pod, own)) in rows.iter().enumerate() {
        create(&kubectl, &format!("held-{number}"), pod.clone(), own.clone(), "echo ran");
    }
    for (number, (field, pod, own)) in rows.iter().enumerate() {
        // Both are refused; the one that is looked at first is named.
        let field = if *field == "securityContext.procMount" { "hostUsers" } else { field };
        let name = format!("held-{number}");
        let waiting = format!("get pod {name} -o jsonpath={{.status.containerStatuses[0].state.waiting}}");
        eventually("it waits", || kubectl.ok(&waiting).contains("CreateContainerConfigError"));
        let told: Value = serde_json::from_str(&kubectl.ok(&waiting)).unwrap();
        assert_eq!(told["reason"], "CreateContainerConfigError");
        assert!(told["message"].as_str().unwrap().contains(field), "{pod} {own}: {told}");
        eventually("an event says so", || {
            let events = kubectl.json(&format!("get events --field-selector involvedObject.name={name} -o json"));
            let says =
                |event: &Value| event["reason"] == "Failed" && event["message"].as_str().unwrap().contains(field);
            events["items"].as_array().unwrap().iter().any(says)
        });
        assert_eq!(kubectl.ok(&format!("get pod {name} -o jsonpath={{.status.phase}}")), "Pending");
    }
}

/// Daemons that have left everything but their PID namespace or their control group.
const DAEMONS: &str = "env -i setsid nohup sh -c 'while :; do sleep 0.3; done' STAY >/dev/null 2>&1 & \
                       (env -i setsid sh -c 'env -i setsid nohup sleep 100000.STAY >/dev/null 2>&1 &' &); echo up >> HERE/up; sleep 100000";

/// Processes whose arguments contain this text.
pub fn with_argument(text: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        (line.contains(text) && entry.file_name() != "self" && entry.file_name() != "thread-self")
            .then(|| format!("{} {line}", entry.file_name().display()))
    });
    processes.filter(|process| !process.starts_with(&format!("{} ", std::process::id()))).collect()
}

/// Number of kills; TALLY_NODE_KILLS sets it.
fn kills() -> usize {
    std::env::var("TALLY_NODE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(3)
}

fn kill(pid: &str) {
    let killed = Command::new("sh").args(["-c", &format!("kill -s KILL {}", pid.trim())]).status().unwrap();
    assert!(killed.success(), "there was no process {pid}");
}

fn ups(here: &Path) -> usize {
    fs::read_to_string(here.join("up")).unwrap_or_default().lines().count()
}

/// A number that only the processes of one test have among their arguments.
pub fn stay(here: &Path) -> String {
    let name = here.file_name().unwrap().to_string_lossy();
    format!(
        "{}7",
        name.bytes().map(u64::from).fold(1_u64, |all, byte| all.wrapping_mul(131).wrapping_add(byte)) % 1_000_000_007
    )
}

#[tokio::test]
async fn no_daemon_outlives_a_cluster_and_its_helper() {
    for open in [false, true] {
        let start = async |here: &Path| match open {
            true => Server::start_open_node(here).await,
            false => Server::start_node(here).await,
        };
        let mut kubectl = if open { with_open_node().await } else { with_node().await };
        let here = kubectl.directory.path().to_owned();
        let mark = stay(&here);
        let script = DAEMONS.replace("STAY", &mark).replace("HERE", &here.display().to_string());
        // A Job for each round: a Pod that is lost three times has failed, and the next one would wait.
        let create = |kubectl: &Kubectl, round: usize| {
            let work = job(
                &format!("work-{round}"),
                &here,
                "completions: 3\n  parallelism: 3",
                "restartPolicy: Never",
                &script,
            );
            let made = kubectl.with_input("create --validate=false -f -", &work);
            assert_eq!(made.code, Some(0), "{}", made.err);
        };
        for round in 1..=kills() {
            let before = ups(&here);
            create(&kubectl, round);
            eventually("the Pods run", || ups(&here) >= before + 3);
            eventually("their daemons run", || with_argument(&mark).len() >= 6);
            let old = with_argument(&mark);
            let helper = fs::read_to_string(here.join("data/node/lock")).unwrap();
            kill(&helper);
            kubectl.server.kill_now();
            kubectl.server = start(&here).await;
            eventually("nothing of before is left", || {
                let now = with_argument(&mark);
                !old.iter().any(|process| now.contains(process))
            });
            kubectl.ok(&format!("delete job work-{round} --wait=true"));
            eventually("nothing is left", || with_argument(&mark).is_empty());
        }
    }
}

#[test]
fn no_daemon_outlives_a_run_and_its_helper() {
    for isolate in [false, true] {
        let directory = server::directory();
        let here = directory.path();
        let mark = stay(here);
        let script = DAEMONS.replace("STAY", &mark).replace("HERE", &here.display().to_string());
        let data = here.join("data");
        let start = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
            command.args(["run", "-n", "2", "-p", "2", "--backoff-limit", "1000", "--data-dir"]).arg(&data);
            command.args(isolate.then_some("--isolate")).args(["--", "sh", "-c", &script]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let mut run = start();
        // The arguments of the run itself contain the text, too.
        let daemons = |run: u32| -> Vec<String> {
            let own = format!("{run} ");
            with_argument(&mark).into_iter().filter(|process| !process.starts_with(&own)).collect()
        };
        for round in 1..=kills() {
            let before = if round == 1 { 0 } else { ups(here) };
            eventually("it runs", || ups(here) >= before + 2 || run.try_wait().unwrap().is_some());
            if run.try_wait().unwrap().is_some() {
                return skip("this machine does not isolate");
            }
            eventually("its daemons run", || daemons(run.id()).len() >= 6);
            let old = daemons(run.id());
            kill(&fs::read_to_string(data.join("node/lock")).unwrap());
            run.kill().unwrap();
            run.wait().unwrap();
            run = start();
            eventually("nothing of before is left", || {
                let now = daemons(run.id());
                !old.iter().any(|process| now.contains(process))
            });
        }
        run.kill().unwrap();
        run.wait().unwrap();
        eventually("nothing is left", || with_argument(&mark).is_empty());
    }
}

/// Tally may be run without HOME, and the first credentials of its user may be written while a Pod runs.
#[test]
fn credentials_that_are_written_while_a_pod_runs_are_hidden() {
    let directory = server::directory();
    let here = directory.path();
    let home = here.join("home");
    fs::create_dir(&home).unwrap();
    let script = format!(
        "echo > {here}/ready; while [ ! -e {here}/go ]; do sleep 0.05; done; cat {here}/home/.kube/config || echo hidden",
        here = here.display()
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.args(["run", "--isolate", "--backoff-limit", "0", "--", "sh", "-c", &script]).stdin(Stdio::null());
    let mut run = command.env("HOME", &home).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("it runs", || here.join("ready").exists() || run.try_wait().unwrap().is_some());
    fs::create_dir_all(home.join(".kube")).unwrap();
    fs::write(home.join(".kube/config"), "the token").unwrap();
    fs::write(here.join("go"), "").unwrap();
    let told = run.wait_with_output().unwrap();
    if told.status.code() == Some(3) {
        return skip("this machine does not isolate");
    }
    let said = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(said.contains("hidden") && !said.contains("the token"), "{told:?}");
}

/// Every task has a `/tmp` of its own, in which it sees nothing of the machine's but that directory.
#[test]
fn a_working_directory_below_tmp_is_seen_by_isolated_tasks() {
    let (beside, dir) = (tempfile::tempdir_in("/tmp").unwrap(), tempfile::tempdir_in("/tmp").unwrap());
    let here = dir.path().join("with a space");
    fs::create_dir(&here).unwrap();
    fs::write(here.join("input"), "read\n").unwrap();
    // A list, which has volumes of its own.
    let script = "pwd; cat input; echo written > output; ls -A .. /tmp; test -e $0 && echo beside; echo {}";
    let run = |here: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
        command.args(["run", "--isolate", "--logs=raw", "--", "sh", "-c", script]).arg(beside.path());
        let told = command.args([":::", "once"]).current_dir(here).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (told.status.code(), text(&told.stdout), text(&told.stderr))
    };
    let (code, out, err) = run(&here);
    if code == Some(3) {
        return skip(err);
    }
    let name = dir.path().file_name().unwrap().display();
    let seen = format!("{}\nread\n..:\nwith a space\n\n/tmp:\n{name}\nonce\n", here.display());
    assert_eq!(out, seen, "{err}");
    assert_eq!(fs::read_to_string(here.join("output")).unwrap(), "written\n");
    let in_memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let (code, out, err) = run(in_memory.path());
    assert!(code == Some(2) && out.is_empty() && err.contains("every task has its own /dev"), "{code:?} {out} {err}");
}

#[test]
fn a_run_isolates_if_it_is_asked_to() {
    let directory = server::directory();
    let run = |options: &[&str], script: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
        let command = command.arg("run").args(options).args(["--", "sh", "-c", script]).stdin(Stdio::null());
        let told = command.env("OF_THE_SHELL", "yes").current_dir(directory.path()).output().unwrap();
        (
            told.status.code(),
            String::from_utf8_lossy(&told.stdout).into_owned(),
            String::from_utf8_lossy(&told.stderr).into_owned(),
        )
    };
    let script = "echo $OF_THE_SHELL; test $(ls -d /proc/[0-9]* | wc -l) -lt 7 && echo few; pwd; exit 4";
    let (code, out, err) = run(&["--backoff-limit", "0"], script);
    let here = directory.path().canonicalize().unwrap();
    assert_eq!((code, out), (Some(1), format!("yes\n{}\n", here.display())), "{err}");
    let (code, out, err) = run(&["--isolate", "--backoff-limit", "0"], script);
    if code == Some(3) {
        return skip(err);
    }
    assert_eq!((code, out), (Some(1), format!("\nfew\n{}\n", here.display())), "{err}");
    let (code, out, err) = run(&["--isolate", "-n", "3", "-i", "--logs=raw"], "echo line $JOB_COMPLETION_INDEX");
    let mut lines: Vec<_> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!((code, lines), (Some(0), vec!["line 0", "line 1", "line 2"]), "{err}");
}

/// PODSEC-5: with the group of /etc/shadow, nobody could read it.
#[tokio::test]
async fn a_namespace_with_a_level_gives_no_users_and_groups_of_the_machine() {
    let kubectl = with_node_and(&["--pod-users=1000", "--pod-groups=20000-20009"]).await;
    kubectl.ok("create namespace strict");
    kubectl.ok("label namespace strict pod-security.kubernetes.io/enforce=restricted");
    let pod = |name: &str, more: Value| {
        let mut context =
            json!({"runAsUser": 65534, "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
        for (field, value) in more.as_object().unwrap() {
            context[field] = value.clone();
        }
        let own = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
        let script = "id -u; id -g; id -G; head -c 1 /etc/shadow 2>/dev/null | wc -c";
        let container =
            json!({"name": "main", "image": "process", "command": ["sh", "-c", script], "securityContext": own});
        let spec = json!({"restartPolicy": "Never", "securityContext": context, "containers": [container]});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}).to_string()
    };
    for (more, what, flag) in [
        (json!({"supplementalGroups": [42]}), "pod must not set supplementalGroups=42", "--pod-groups=42"),
        (json!({"fsGroup": 42}), "pod must not set fsGroup=42", "--pod-groups=42"),
        (json!({"runAsGroup": 42}), "pod must not set runAsGroup=42", "--pod-groups=42"),
        (json!({"runAsUser": 54321}), "pod must not set runAsUser=54321", "--pod-users=54321"),
    ] {
        let said = kubectl.with_input("create -n strict -f -", &pod("refused", more));
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.err.contains("violates PodSecurity \"restricted:latest\""), "{said:?}");
        assert!(said.err.contains(what) && said.err.contains(flag), "{said:?}");
    }
    if !is_root() {
        return skip("only root can run Pods as other users");
    }
    // What is allowed, and a namespace without a level.
    for (namespace, name, more, expected) in [
        ("strict", "nobody", json!({}), "65534\n65534\n65534\n0\n"),
        (
            "strict",
            "allowed",
            json!({"runAsUser": 1000, "runAsGroup": 20000, "supplementalGroupsPolicy": "Strict"}),
            "1000\n20000\n20000\n0\n",
        ),
        (
            "default",
            "ordinary",
            json!({"runAsUser": 1000, "runAsGroup": 1000, "supplementalGroupsPolicy": "Strict"}),
            "1000\n1000\n1000\n0\n",
        ),
    ] {
        let made = kubectl.with_input(&format!("create -n {namespace} -f -"), &pod(name, more));
        assert_eq!(made.code, Some(0), "{made:?}");
        let in_namespace = format!("{name} -n {namespace}");
        assert_eq!(said_by(&kubectl, &in_namespace), expected, "{name}");
    }
}

#[tokio::test]
async fn a_volume_at_the_root_is_refused_however_the_path_is_written() {
    let kubectl = with_node().await;
    if !kubectl.server.said().contains("pods        isolated") {
        return skip("Pods cannot be isolated here");
    }
    let volumes = json!({"volumes": [{"name": "v", "emptyDir": {}}]});
    let mount = |path: &str| json!({"volumeMounts": [{"name": "v", "mountPath": path}]});
    create(&kubectl, "root", volumes.clone(), mount("/"), "echo ran");
    let waits = "get pod root -o jsonpath={.status.containerStatuses[0].state.waiting.message}";
    eventually("it is refused", || kubectl.ok(waits).contains("a volume cannot be mounted at /"));
    // A link to it, of the machine and of the kernel.
    let link = kubectl.directory.path().join("link");
    std::os::unix::fs::symlink("/", &link).unwrap();
    for (name, path) in [("link", link.to_str().unwrap()), ("magic", "/proc/self/root")] {
        create(&kubectl, name, volumes.clone(), mount(path), "echo ran");
        let state = || kubectl.json(&format!("get pod {name} -o json"))["status"].to_string();
        eventually("it is refused", || state().contains("it leads to /, at which no volume can be mounted"));
        assert!(!kubectl.say(&format!("logs {name}")).out.contains("ran"));
    }
}
