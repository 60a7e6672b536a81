//! `kubectl attach` and `kubectl run -it`.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::pty::Terminal;
use crate::run_pod;
use crate::support::kubectl::{with_node, with_open_node};

#[tokio::test]
async fn a_terminal_of_a_container_is_used_from_elsewhere() {
    for kubectl in [with_node().await, with_open_node().await] {
        run_pod(&kubectl, "p", "stdin: true\n      tty: true", "exec sh");
        let terminal = Terminal::start(kubectl.start(&["attach", "-it", "p"]), 83, 19);
        // What is typed may arrive before the size, which the container gets by a way of its own.
        terminal.type_in("until [ \"$(stty size)\" = '19 83' ]; do sleep 0.05; done; echo si''zed; tty\n");
        terminal.await_text("sized\r\n");
        terminal.await_text("/dev/pts/");
        terminal.resize(84, 20);
        terminal.type_in("echo un''til; while [ \"$(stty size)\" != '20 84' ]; do sleep 0.05; done; echo re''sized\n");
        terminal.await_text("resized");
        drop(terminal);
        // The container goes on without the client, and the next one finds it as it was left.
        let terminal = Terminal::start(kubectl.start(&["attach", "-it", "p"]), 83, 19);
        terminal.type_in("echo ba''ck\n");
        terminal.await_text("back");
        assert!(!terminal.shown().contains("resized"), "only what is written from now on: {}", terminal.shown());
        terminal.type_in("exit 5\n");
        let (code, shown) = terminal.end();
        assert_eq!(code, Some(0), "{shown}");
        kubectl.ok("wait --for=jsonpath={.status.phase}=Failed pod/p --timeout=60s");
        let status = kubectl.json("get pod p -o json");
        assert_eq!(status["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 5, "{status}");
        assert!(kubectl.ok("logs p").contains("resized"));
    }
}

#[tokio::test]
async fn output_from_now_on_is_shown_to_all_and_logged() {
    let kubectl = with_node().await;
    run_pod(&kubectl, "p", "stdin: true", "echo early; while read line; do echo got $line; echo bad $line >&2; done");
    let mut clients: Vec<_> = (0..2)
        .map(|_| {
            let mut command = kubectl.start(&["attach", "-i", "p"]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let mut lines: Vec<_> =
        clients.iter_mut().map(|client| BufReader::new(client.stdout.take().unwrap()).lines()).collect();
    // Both must be connected before anything is said: each repeats its word until it sees an answer to it.
    for (number, (client, lines)) in clients.iter_mut().zip(&mut lines).enumerate() {
        let word = format!("hello-{number}");
        writeln!(client.stdin.as_mut().unwrap(), "{word}").unwrap();
        let answer = lines.map(Result::unwrap).find(|line| line.contains(&word));
        assert_eq!(answer, Some(format!("got {word}")));
    }
    writeln!(clients[0].stdin.as_mut().unwrap(), "to all").unwrap();
    for lines in &mut lines {
        assert_eq!(lines.map(Result::unwrap).find(|line| line.contains("to all")), Some("got to all".to_owned()));
    }
    let log = kubectl.ok("logs p");
    assert!(log.starts_with("early\n") && log.contains("got to all\n") && log.contains("bad to all\n"), "{log}");
    for mut client in clients {
        client.kill().unwrap();
        client.wait().unwrap();
    }
    // Without `stdinOnce` the input outlives its clients.
    assert_eq!(kubectl.ok("get pod p -o jsonpath={.status.phase}"), "Running");
}

#[tokio::test]
async fn the_input_of_a_container_ends_with_that_of_its_first_client() {
    let kubectl = with_node().await;
    let said =
        kubectl.with_input("run once --image=process -i --rm --restart=Never --quiet --command -- wc -c", "12345678");
    assert_eq!((said.code, said.out.trim()), (Some(0), "8"), "{said:?}");
    assert_eq!(kubectl.ok("get pods"), "");
}

#[tokio::test]
async fn a_pod_is_run_in_the_terminal_of_the_user() {
    let kubectl = with_node().await;
    let arguments = ["run", "shell", "--image=process", "-it", "--rm", "--restart=Never", "--command", "--", "sh"];
    let terminal = Terminal::start(kubectl.start(&arguments), 90, 30);
    // kubectl asks for Enter if the prompt came before it was connected.
    terminal.type_in("\necho $((6*7)) is the ans''wer\n");
    terminal.await_text("42 is the answer");
    terminal.type_in("exit 4\n");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(4), "{shown}");
    assert!(shown.contains("pod \"shell\" deleted"), "{shown}");
    assert_eq!(kubectl.ok("get pods"), "");
}
