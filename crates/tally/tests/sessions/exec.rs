//! `kubectl exec` and `kubectl cp`.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;

use tally_testing::skip;

use crate::pty::Terminal;
use crate::run_pod;
use crate::support::kubectl::{Kubectl, with_node, with_open_node};
use crate::tool::eventually;

/// Whether containers of this machine are isolated by default: the tests that are about that need it.
pub fn isolates(kubectl: &Kubectl) -> bool {
    kubectl.server.said().contains("pods        isolated")
}

async fn with_both_nodes(test: impl Fn(Kubectl)) {
    test(with_node().await);
    test(with_open_node().await);
}

#[tokio::test]
async fn output_and_exit_codes_are_those_of_the_command() {
    with_both_nodes(|kubectl| {
        run_pod(&kubectl, "p", "env: [{name: COLOUR, value: blue}]", "sleep 1000");
        let said = kubectl.run(&["exec", "p", "--", "sh", "-c", "echo out; echo err >&2; echo $COLOUR; exit 3"]);
        assert_eq!((said.code, said.out.as_str()), (Some(3), "out\nblue\n"), "{said:?}");
        assert_eq!(said.err, "err\ncommand terminated with exit code 3\n");
        assert_eq!(kubectl.ok("exec p -- true"), "");
        let said = kubectl.run(&["exec", "p", "--", "sh", "-c", "kill -9 $$"]);
        assert_eq!(said.code, Some(137), "{said:?}");
        let said = kubectl.say("exec p -- /nowhere/at-all");
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.err.contains("/nowhere/at-all does not exist"), "{said:?}");
        // A process that is left in the background goes on, and is not waited for.
        let said = kubectl.run(&["exec", "p", "--", "sh", "-c", "sleep 777 & echo $!"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        let background = said.out.trim().to_owned();
        kubectl.ok(&format!("exec p -- sh -c kill${{IFS}}-0${{IFS}}{background}"));
    })
    .await;
}

#[tokio::test]
async fn input_ends_where_the_client_ends_it() {
    with_both_nodes(|kubectl| {
        run_pod(&kubectl, "p", "", "sleep 1000");
        let said = kubectl.with_input("exec -i p -- wc -c", "hello");
        assert_eq!((said.code, said.out.trim()), (Some(0), "5"), "{said:?}");
        let said = kubectl.with_input("exec -i p -- cat", "");
        assert_eq!((said.code, said.out.as_str()), (Some(0), ""), "{said:?}");
        // A command that reads nothing of much input, and one that has no input.
        let mut child = kubectl.start(&["exec", "-i", "p", "--", "true"]).stdin(Stdio::piped()).spawn().unwrap();
        // kubectl may have ended before it has read everything.
        let _ = child.stdin.take().unwrap().write_all(&[0; 3_000_000]);
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert_eq!(kubectl.ok("exec p -- cat"), "");
    })
    .await;
}

#[tokio::test]
async fn fifty_megabytes_arrive_whole_in_both_directions() {
    let kubectl = with_node().await;
    run_pod(&kubectl, "p", "", "sleep 1000");
    let mut state = 1_u32;
    let sent: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(50 << 20)
    .collect();
    let mut child =
        kubectl.start(&["exec", "-i", "p", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let expected = sent.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent));
    let mut received = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut received).unwrap();
    writer.join().unwrap().unwrap();
    assert!(child.wait().unwrap().success());
    assert!(received == expected, "{} of {} bytes", received.len(), expected.len());
}

#[tokio::test]
async fn a_terminal_has_the_size_of_the_clients() {
    with_both_nodes(|kubectl| {
        run_pod(&kubectl, "p", "", "sleep 1000");
        let terminal = Terminal::start(kubectl.start(&["exec", "-it", "p", "--", "sh"]), 91, 17);
        // The command waits a moment for the size, and not for ever.
        terminal
            .type_in("until [ \"$(stty size)\" = '17 91' ]; do sleep 0.05; done; echo si''zed; tty; echo TERM=$TERM\n");
        terminal.await_text("sized\r\n");
        terminal.await_text("/dev/pts/");
        terminal.await_text("TERM=xterm\r\n");
        // What runs in the terminal is told of another size.
        terminal.type_in("while [ \"$(stty size)\" != '33 101' ]; do sleep 0.05; done; echo re''sized\n");
        terminal.resize(101, 33);
        terminal.await_text("resized\r\n");
        // Ctrl-C ends what runs in the foreground, and not the shell.
        // A number of its own: on a node that does not isolate, the processes of other tests are seen.
        let sleep = format!("sleep 1000.{}{}", std::process::id(), u8::from(isolates(&kubectl)));
        terminal.type_in(&format!("{sleep} || echo inter''rupted\n"));
        eventually("sleep runs", || kubectl.run(&["exec", "p", "--", "pgrep", "-f", &sleep]).code == Some(0));
        terminal.type_in("\u{3}");
        terminal.type_in("exit 7\n");
        let (code, shown) = terminal.end();
        assert_eq!(code, Some(7), "{shown}");
    })
    .await;
}

/// The size is there when the command starts, unless the client takes longer than a moment to send it, as on a busy machine.
#[tokio::test]
async fn a_short_command_finds_the_size_of_the_terminal() {
    let kubectl = with_node().await;
    run_pod(&kubectl, "p", "", "sleep 1000");
    for columns in [71, 132] {
        eventually("the command finds the size", || {
            let terminal = Terminal::start(kubectl.start(&["exec", "-it", "p", "--", "stty", "size"]), columns, 11);
            let (code, shown) = terminal.end();
            assert_eq!(code, Some(0), "{shown}");
            shown.trim_end() == format!("11 {columns}")
        });
    }
}

#[tokio::test]
async fn a_command_ends_with_its_pod() {
    with_both_nodes(|kubectl| {
        let here = kubectl.directory.path().to_owned();
        let mark = format!("env: [{{name: HERE, value: {:?}}}]", here.to_str().unwrap());
        run_pod(&kubectl, "p", &mark, "sleep 1000");
        // One that ignores what a client or a terminal could send it, and one that has left its session.
        let script = "trap '' HUP TERM INT PIPE; setsid sleep 1001 & while :; do sleep 1; done";
        let mut child = kubectl.start(&["exec", "p", "--", "sh", "-c", script]).spawn().unwrap();
        let runs = |what: &str| crate::tool::alive(&here).iter().any(|process| process.contains(what));
        eventually("both run", || runs("sleep 1001") && runs("trap"));
        kubectl.ok("delete pod p --wait=true");
        child.wait().unwrap();
        eventually("nothing runs", || crate::tool::alive(&here).is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_client_that_goes_away_closes_the_streams_of_its_command() {
    with_both_nodes(|kubectl| {
        let here = kubectl.directory.path().to_owned();
        let mark = format!("env: [{{name: HERE, value: {:?}}}]", here.to_str().unwrap());
        run_pod(&kubectl, "p", &mark, "sleep 1000");
        let runs = |what: &str| crate::tool::alive(&here).iter().any(|process| process.contains(what));
        // One waits for input, one writes output, one has a terminal.
        let mut reader = kubectl.start(&["exec", "-i", "p", "--", "cat", "-u"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut writer = kubectl.start(&["exec", "p", "--", "sh", "-c", "while echo tick; do sleep 0.1; done"]);
        let mut writer = writer.stdout(Stdio::piped()).spawn().unwrap();
        let terminal = Terminal::start(kubectl.start(&["exec", "-it", "p", "--", "sleep", "1234"]), 80, 24);
        eventually("all run", || runs("cat -u") && runs("tick") && runs("sleep 1234"));
        reader.kill().unwrap();
        writer.kill().unwrap();
        drop(terminal);
        eventually("all have ended", || !runs("cat -u") && !runs("tick") && !runs("sleep 1234"));
        reader.wait().unwrap();
        writer.wait().unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_command_is_isolated_as_its_container_is() {
    let kubectl = with_node().await;
    if !isolates(&kubectl) {
        skip("containers are not isolated here");
        return;
    }
    let is_root = tally_testing::is_root();
    let context = if is_root {
        "securityContext: {runAsUser: 12345, runAsGroup: 23456, capabilities: {drop: [ALL]}}"
    } else {
        "securityContext: {allowPrivilegeEscalation: false}"
    };
    run_pod(&kubectl, "p", context, "sleep 1000");
    let data = kubectl.directory.path().join("data");
    assert!(fs::read_dir(&data).unwrap().count() > 0);
    let shown = kubectl.run(&["exec", "p", "--", "ls", "-A", data.to_str().unwrap()]);
    assert_eq!(shown.out, "", "{shown:?}");
    let kubeconfig = kubectl.server.kubeconfig();
    let shown = kubectl.run(&["exec", "p", "--", "cat", kubeconfig.to_str().unwrap()]);
    assert_eq!(shown.out, "", "{shown:?}");
    // The same rights, control groups and namespaces as the container's own processes.
    for tty in [false, true] {
        let look = |what: &str, file: &str| {
            let script = format!("sed 's/^//' /proc/{what}/{file} 2>/dev/null || readlink /proc/{what}/{file}");
            if tty {
                let command = kubectl.start(&["exec", "-it", "p", "--", "sh", "-c", &script]);
                Terminal::start(command, 80, 24).end().1.replace('\r', "")
            } else {
                kubectl.run(&["exec", "p", "--", "sh", "-c", &script]).out
            }
        };
        let main = kubectl.run(&["exec", "p", "--", "pgrep", "-f", "-o", "sleep 1000"]).out.trim().to_owned();
        let of = |status: &str, name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
            assert!(!line.is_empty(), "{name}: {status}");
            line
        };
        let (own, container) = (look("self", "status"), look(&main, "status"));
        for name in ["Uid:", "Gid:", "Groups:", "CapEff:", "CapPrm:", "CapBnd:", "CapInh:", "NoNewPrivs:", "Seccomp:"] {
            assert_eq!(of(&own, name), of(&container, name), "tty: {tty}");
        }
        assert_eq!(look("self", "cgroup"), look(&main, "cgroup"), "tty: {tty}");
        for namespace in ["mnt", "pid", "ipc", "uts", "user"] {
            let place = format!("ns/{namespace}");
            assert_eq!(look("self", &place), look(&main, &place), "{namespace}, tty: {tty}");
        }
    }
    // The device that closed streams lead to keeps its owner.
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&fs::metadata("/dev/null").unwrap()), 0);
}

fn tree(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => open.push(entry.path()),
                false => {
                    let name = entry.path().strip_prefix(directory).unwrap().display().to_string();
                    found.push((name, fs::read(entry.path()).unwrap()));
                }
            }
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn directories_are_copied_both_ways() {
    let kubectl = with_node().await;
    run_pod(&kubectl, "p", "", "sleep 1000");
    let here = kubectl.directory.path();
    let source = here.join("source");
    fs::create_dir_all(source.join("deep/er")).unwrap();
    fs::write(source.join("a b"), "text").unwrap();
    fs::write(source.join("deep/er/bytes"), (0..=255).cycle().take(1_000_000).collect::<Vec<u8>>()).unwrap();
    fs::write(source.join("empty"), "").unwrap();
    // The container's own /tmp, which is not the machine's.
    kubectl.ok(&format!("cp {} p:/tmp/there", source.display()));
    if isolates(&kubectl) {
        assert!(!Path::new("/tmp/there/deep").exists());
    }
    assert_eq!(kubectl.run(&["exec", "p", "--", "cat", "/tmp/there/a b"]).out, "text");
    let back = here.join("back");
    kubectl.ok(&format!("cp p:/tmp/there {}", back.display()));
    assert_eq!(tree(&back), tree(&source));
    assert_eq!(tree(&source).len(), 3);
}
