//! Processes: how they end, what they write, what they leave behind, and the probes that check them.

use std::io::{Read, Write};
use std::time::Duration;

use tally_node::logs::LogReadOptions as Options;
use tally_node::port::{Check, Report, ShimCommand, Signal};
use tally_node::shim::OutputSettings;
use tally_node::shim::log::Limits;
use tally_node::shim_client::{Config, ShimClient};

use tally_testing::skip;

use crate::harness::{Node, alive, block_on, program, shim_of, sign, until};
use crate::start::{plain, shell};

fn with_node(test: impl AsyncFnOnce(&mut Node)) {
    let root = tempfile::tempdir().unwrap();
    block_on(async {
        let mut node = Node::start(root.path()).await;
        assert!(node.found.is_empty());
        let report = node.prepare(Vec::new()).await;
        assert!(matches!(report, Report::Prepared { .. }), "{report:?}");
        test(&mut node).await;
        node.stop().await;
    });
}

#[test]
fn exit_codes_and_signals_are_told() {
    with_node(async |node| {
        for (number, (script, code, signal)) in [
            ("exit 0", 0, None),
            ("exit 7", 7, None),
            ("exit 255", 255, None),
            ("kill -TERM $$", 143, Some(15)),
            ("kill -KILL $$", 137, Some(9)),
            ("kill -SEGV $$", 139, Some(11)),
        ]
        .into_iter()
        .enumerate()
        {
            let exit = node.script(&format!("c{number}"), script).await;
            assert_eq!((exit.code, exit.signal), (code, signal), "{script}");
            assert!(!exit.out_of_memory && exit.started_at <= exit.finished_at);
        }
    });
}

#[test]
fn what_cannot_be_started_says_why() {
    with_node(async |node| {
        let dir = node.root.join("files");
        std::fs::create_dir(&dir).unwrap();
        let put = |name: &str, text: &str, mode| {
            let path = dir.join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            path.display().to_string()
        };
        let plain_file = put("plain", "#!/bin/sh\n", 0o644);
        let lost = put("lost", "#!/no/such/interpreter\n", 0o755);
        let noise = put("noise", "\u{1}\u{2}", 0o755);
        for (argv, dir, words) in [
            (vec!["no-such-command", "x"], None, "StartError: the command \"no-such-command\" was not found in PATH=/"),
            (vec!["/no/such"], None, "/no/such does not exist"),
            (vec![&plain_file], None, "it is not executable (its mode is 0644)"),
            (vec![&lost], None, "the interpreter named in its first line"),
            (vec![&noise], None, "neither a program for this machine nor a script"),
            (
                vec!["true"],
                Some("/no/such/dir"),
                "working directory \"/no/such/dir\" cannot be entered: it does not exist",
            ),
            (vec![], None, "there is no command to run"),
        ] {
            let mut start = plain(node.attempt("main", 0), &argv);
            start.working_dir = dir.map(str::to_owned);
            let said = node.refused(start).await;
            assert!(said.contains(words), "{said}");
        }
        // None of these has used up its number.
        assert_eq!(node.script("main", "exit 3").await.code, 3);
    });
}

#[test]
fn a_command_is_found_anew_when_what_was_found_is_over() {
    with_node(async |node| {
        let place = |name: &str| node.root.join(name);
        let (first, second, work) = (place("first"), place("second"), place("work"));
        for dir in [&first, &second, &work] {
            std::fs::create_dir(dir).unwrap();
        }
        let search = format!("{}:{}:/usr/bin:/bin", first.display(), second.display());
        let dir = work.display().to_string();
        let mut number = 0;
        let mut tool = |node: &Node| {
            number += 1;
            let mut start = plain(node.attempt(&format!("c{number}"), 0), &["the-tool"]);
            start.env = vec![("PATH".into(), search.clone())];
            start.working_dir = Some(dir.clone());
            start
        };
        let put = |dir: &std::path::Path, first_line: &str, code: i32| {
            // By a rename: a file that is open for writing cannot be executed.
            let (new, path) = (dir.join("new"), dir.join("the-tool"));
            std::fs::write(&new, format!("{first_line}\nexit {code}\n")).unwrap();
            std::fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            std::fs::rename(new, path).unwrap();
        };
        put(&second, "#!/bin/sh", 2);
        assert_eq!(node.run(tool(node)).await.code, 2);
        put(&first, "#!/bin/sh", 1);
        // Not before that, and no later.
        tokio::time::sleep(Duration::from_millis(1_010)).await;
        assert_eq!(node.run(tool(node)).await.code, 1);
        // What cannot be executed any more is noticed at once, and told as if it had been found so.
        std::fs::remove_file(first.join("the-tool")).unwrap();
        assert_eq!(node.run(tool(node)).await.code, 2);
        put(&second, "#!/no/such/interpreter", 0);
        let said = node.refused(tool(node)).await;
        assert!(said.contains("the interpreter named in its first line"), "{said}");
        put(&second, "#!/bin/sh", 3);
        assert_eq!(node.run(tool(node)).await.code, 3);
        std::fs::set_permissions(second.join("the-tool"), std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        let said = node.refused(tool(node)).await;
        assert!(said.contains("was not found in PATH=") && said.contains("(its mode is 0644)"), "{said}");
        put(&second, "#!/bin/sh", 4);
        assert_eq!(node.run(tool(node)).await.code, 4);
        std::fs::remove_dir(&work).unwrap();
        let said = node.refused(tool(node)).await;
        assert!(said.ends_with("cannot be entered: it does not exist"), "{said}");
    });
}

#[test]
fn commands_begin_with_default_signals() {
    /// The sets of signals of a process, by name.
    fn sets(status: &str) -> Vec<(&str, u64)> {
        let set = |line: &'_ str| line.split_once(":\t").map(|(name, set)| (name.to_owned(), set.to_owned()));
        ["SigBlk", "SigIgn", "SigCgt"]
            .map(|name| {
                let of = status.lines().filter_map(set).find(|(of, _)| of == name).unwrap();
                (name, u64::from_str_radix(&of.1, 16).unwrap())
            })
            .to_vec()
    }
    with_node(async |node| {
        // Those that the tests were started with stay ignored, apart from those that the shim handles or ignores itself, and
        // those of the C library.
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        let changed = [libc::SIGPIPE, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];
        let changed = changed.into_iter().chain(32..libc::SIGRTMIN());
        let changed = changed.fold(0, |set, signal| set | 1_u64 << (signal - 1));
        let ignored = sets(&own)[1].1 & !changed;
        let mut launched = plain(node.attempt("launched", 0), &["cat", "/proc/self/status"]);
        launched.termination_message.path = "/some/where/else".into();
        for start in [plain(node.attempt("direct", 0), &["cat", "/proc/self/status"]), launched] {
            let container = start.attempt.container.to_string();
            assert_eq!(node.run(start).await.code, 0);
            let log = node.log(&container).await;
            assert_eq!(sets(&log), [("SigBlk", 0), ("SigIgn", ignored), ("SigCgt", 0)], "{container}");
        }
    });
}

#[test]
fn want_of_room_may_pass() {
    use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    with_node(async |node| {
        let shim = Pid::from_raw(shim_of(&node.root));
        let mut seen = Vec::new();
        // From no additional file to all but one of the needed files: whatever fails, nothing of the attempt is left.
        for most in 3.. {
            assert!(most < 1000, "it does not start with any number of files");
            let few = Rlimit { current: Some(most), maximum };
            let before = prlimit(shim, Resource::Nofile, few).unwrap();
            let report = node.launch(shell(node.attempt("main", 0), "exit 7")).await;
            prlimit(shim, Resource::Nofile, before).unwrap();
            let Report::Unstarted { failure, .. } = report else { break };
            assert!(failure.passing && failure.reason == "CreateContainerError", "{failure:?}");
            assert!(failure.message.contains("Too many open files"), "{failure:?}");
            seen.push(failure.message);
        }
        assert!(seen.iter().any(|message| message.contains("the command \"sh\" ")), "{seen:?}");
        assert_eq!(node.ended().await.code, 7);
    });
}

#[test]
fn many_containers_have_files_enough() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const FEW: u64 = 100;
    let ours = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(FEW), ..ours }).unwrap();
    with_node(async |node| {
        // Two pipes and a log for each.
        for number in 0..60 {
            let report = node.launch(shell(node.attempt(&format!("c{number}"), 0), "ulimit -n; exec sleep 1000")).await;
            assert!(matches!(report, Report::Started { .. }), "{number}: {report:?}");
        }
        // No container sees the raised limit: its limit is the one that the node was started with.
        let log = |container: &str| node.root.join(format!("pods/{}/{container}.0.0.log", node.pod));
        for container in ["c0", "c59"] {
            let said = format!(" {FEW}\n");
            until("it says its limit", || {
                let text = std::fs::read_to_string(log(container)).unwrap_or_default();
                assert!(text.is_empty() || text.ends_with(&said), "{text}");
                !text.is_empty()
            })
            .await;
        }
        let argv = vec!["sh".into(), "-c".into(), format!("ulimit -n; test $(ulimit -n) = {FEW}")];
        assert_eq!(node.check(node.attempt("c59", 0), Check::Exec { argv }, 20_000).await, Ok(()));
        let mut launched = shell(node.attempt("launched", 0), "ulimit -n");
        launched.termination_message.path = "/some/where/else".into();
        assert_eq!(node.run(launched).await.code, 0);
        assert_eq!(node.log("launched").await, format!("{FEW}\n"));
    });
    setrlimit(Resource::Nofile, ours).unwrap();
}

#[test]
fn the_environment_is_what_was_asked_for() {
    with_node(async |node| {
        let mut start = shell(node.attempt("main", 0), "env; pwd; readlink /proc/self/fd/0");
        start.env = vec![("A".into(), "one".into()), ("HOME".into(), "/elsewhere".into())];
        start.working_dir = Some("/usr".into());
        assert_eq!(node.run(start).await.code, 0);
        let log = node.log("main").await;
        let mut names: Vec<&str> = log.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
        names.retain(|name| !["PWD", "SHLVL", "_", "OLDPWD"].contains(name));
        names.sort_unstable();
        assert_eq!(names, ["A", "HOME", "HOSTNAME", "PATH", "TALLY_ATTEMPT", "TALLY_NODE", "TALLY_TERMINATION_LOG"]);
        for line in ["A=one", "HOME=/elsewhere", "HOSTNAME=the-host", "/usr", "/dev/null"] {
            assert!(log.lines().any(|said| said == line), "{line} in {log}");
        }
    });
}

#[test]
fn output_comes_out_in_order_and_whole() {
    with_node(async |node| {
        let exit =
            node.script("main", "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; printf end").await;
        assert_eq!(exit.code, 0);
        let expected: String = (0..2000).map(|number| format!("line {number}\n")).collect::<String>() + "end";
        assert_eq!(node.log("main").await, expected);
        // More than a pipe can contain, without a single newline, and then a second stream.
        node.script("big", "head -c 300000 /dev/zero | tr '\\0' x; echo done >&2").await;
        let log = node.log("big").await;
        assert_eq!(log.bytes().filter(|byte| *byte == b'x').count(), 300_000);
        assert!(log.contains("done\n"));
    });
}

#[test]
fn logs_rotate() {
    let root = tempfile::tempdir().unwrap();
    block_on(async {
        let output =
            OutputSettings { log_limits: Limits { file_bytes: 10_000, files: 3 }, ..OutputSettings::default() };
        let mut node = Node::start_with(Config { output, ..Config::new(program(), root.path().to_owned()) }).await;
        node.prepare(Vec::new()).await;
        node.script("main", "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done").await;
        let log = node.log("main").await;
        let first: u32 = log.lines().next().unwrap().strip_prefix("line ").unwrap().parse().unwrap();
        assert!(first > 1000, "{first}");
        let expected: String = (first..2000).map(|number| format!("line {number}\n")).collect();
        assert_eq!(log, expected);
        let files = std::fs::read_dir(root.path().join(format!("pods/{}", node.pod))).unwrap();
        let logs = files.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().ends_with(".log")).count();
        assert_eq!(logs, 3);
        node.stop().await;
    });
}

#[test]
fn a_log_can_be_followed_to_its_end() {
    with_node(async |node| {
        let script = "i=0; while [ $i -lt 30 ]; do echo line $i; i=$((i+1)); sleep 0.01; done; echo last; exit 1";
        node.launch(shell(node.attempt("main", 0), script)).await;
        let log = node.log_with("main", Options { follow: true, ..Options::default() }).await;
        assert!(log.starts_with("line 0\n") && log.ends_with("line 29\nlast\n"), "{log}");
        assert_eq!(node.ended().await.code, 1);
    });
}

#[test]
fn last_words_are_kept() {
    with_node(async |node| {
        let rows = [
            ("printf why > $TALLY_TERMINATION_LOG; exit 1", true, "why"),
            ("echo said; exit 1", true, "said\n"),
            ("echo said; exit 1", false, ""),
            ("echo said; exit 0", true, ""),
            ("for i in $(seq 200); do echo $i; done; exit 1", true, "200\n"),
            // Bind-mounted at the expected path, and nothing is left on the machine.
            ("printf bound > /dev/termination-log; exit 2", true, "bound"),
        ];
        for (number, (script, from_logs, expected)) in rows.into_iter().enumerate() {
            let mut start = shell(node.attempt("main", number as u32), script);
            start.termination_message.from_logs = from_logs;
            let message = node.run(start).await.message;
            assert!(message.ends_with(expected) && message.len() <= 4096, "{script}: {message}");
            assert!(!expected.is_empty() || message.is_empty(), "{script}: {message}");
        }
        assert!(!std::path::Path::new("/dev/termination-log").exists());
        let mut start = shell(node.attempt("long", 0), "head -c 9000 /dev/zero | tr '\\0' y > $TALLY_TERMINATION_LOG");
        start.termination_message.path = "/some/where/else".into();
        assert_eq!(node.run(start).await.message, "y".repeat(4096));
    });
}

#[test]
fn signals_reach_the_whole_group() {
    with_node(async |node| {
        let script = "trap 'echo parent; wait; exit 5' TERM
            sh -c 'trap \"echo child; exit\" TERM; echo ready; while :; do sleep 0.02; done' & wait; wait";
        let attempt = node.attempt("main", 0);
        node.launch(shell(attempt.clone(), script)).await;
        let root = node.root.join(format!("pods/{}/main.0.0.log", node.pod));
        until("it is ready", || std::fs::read_to_string(&root).is_ok_and(|log| log.contains("ready"))).await;
        node.send(ShimCommand::Signal { attempt: attempt.clone(), signal: Signal::Number(15) }).await;
        assert_eq!(node.next().await, Report::Signalled { attempt: attempt.clone() });
        assert_eq!(node.ended().await.code, 5);
        let log = node.log("main").await;
        assert!(log.contains("parent\n") && log.contains("child\n"), "{log}");
        // A signal to an attempt that has ended does nothing.
        node.send(ShimCommand::Signal { attempt: attempt.clone(), signal: Signal::Kill }).await;
        assert_eq!(node.next().await, Report::Signalled { attempt });
        let stubborn = node.attempt("stubborn", 0);
        node.launch(shell(stubborn.clone(), "trap '' TERM; echo ready; while :; do sleep 0.02; done")).await;
        let log = node.root.join(format!("pods/{}/stubborn.0.0.log", node.pod));
        until("it is stubborn", || std::fs::read_to_string(&log).is_ok_and(|log| log.contains("ready"))).await;
        for signal in [Signal::Number(15), Signal::Kill] {
            node.send(ShimCommand::Signal { attempt: stubborn.clone(), signal }).await;
            assert!(matches!(node.next().await, Report::Signalled { .. }));
        }
        assert_eq!(node.ended().await.signal, Some(9));
    });
}

#[test]
fn nothing_outlives_its_attempt() {
    with_node(async |node| {
        for (number, script) in [
            "sleep SIGN & exit 0",
            "sh -c 'trap \"\" TERM HUP; sleep SIGN' & exit 0",
            "setsid sleep SIGN & sleep 0.05",
            // A daemon: it has left its session and its parents.
            "setsid sh -c 'setsid sleep SIGN & exit' & sleep 0.05; exit 3",
            "setsid sh -c 'sleep SIGN >/dev/null 2>&1 </dev/null & exit' >/dev/null 2>&1; exit 0",
            // A process without its environment, and so without its mark.
            "setsid env -i sh -c 'sleep SIGN >/dev/null 2>&1 & exit' ; exit 0",
            // A tree of processes.
            "setsid sh -c 'sleep SIGN & setsid sleep SIGN & sleep SIGN' & sleep 0.05",
        ]
        .into_iter()
        .enumerate()
        {
            let sign = sign();
            node.script(&format!("c{number}"), &script.replace("SIGN", &sign)).await;
            assert_eq!(alive(&sign), [0; 0], "{script}");
        }
    });
}

#[test]
fn others_are_left_alone() {
    with_node(async |node| {
        let (mine, other) = (sign(), sign());
        let script = format!("(setsid sleep {other} &); (setsid env -i sleep {other} &); sleep 1000");
        node.launch(shell(node.attempt("other", 0), &script)).await;
        until("both are there", || alive(&format!("sleep\0{other}")).len() == 2).await;
        node.script("mine", &format!("setsid sleep {mine} & exit")).await;
        assert_eq!(alive(&mine), [0; 0]);
        assert_eq!(alive(&format!("sleep\0{other}")).len(), 2);
        node.send(ShimCommand::Signal { attempt: node.attempt("other", 0), signal: Signal::Kill }).await;
        node.next().await;
        node.ended().await;
        assert_eq!(alive(&other), [0; 0]);
    });
}

#[test]
fn an_attempt_runs_once() {
    with_node(async |node| {
        assert_eq!(node.script("main", "exit 4").await.code, 4);
        let again = node.refused(shell(node.attempt("main", 0), "exit 0")).await;
        assert!(again.contains("has been started before"), "{again}");
    });
}

#[test]
fn probes_and_hooks() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap_or(0);
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            let code = if request.starts_with("GET /good HTTP/1.1\r\n") && request.contains("X-Probe: yes\r\n") {
                204
            } else {
                500
            };
            let _ = stream.write_all(format!("HTTP/1.1 {code} Whatever\r\n\r\n").as_bytes());
        }
    });
    with_node(async |node| {
        let attempt = node.attempt("main", 0);
        let mut start = shell(attempt.clone(), "sleep 1000");
        start.env = vec![("COLOUR".into(), "green".into())];
        start.working_dir = Some("/usr".into());
        node.launch(start).await;
        let http = |path: &str, port| Check::Http {
            scheme: "HTTP".into(),
            host: String::new(),
            port,
            path: path.into(),
            headers: vec![("X-Probe".into(), "yes".into())],
        };
        let exec = |script: &str| Check::Exec { argv: vec!["sh".into(), "-c".into(), script.into()] };
        let https = Check::Http { scheme: "HTTPS".into(), host: "".into(), port, path: "/".into(), headers: vec![] };
        for (check, millis, expected) in [
            (http("/good", port), 10_000, "ok"),
            (http("/bad", port), 10_000, "HTTP probe failed with statuscode: 500"),
            (http("/good", 1), 10_000, "dial tcp 127.0.0.1:1: Connection refused"),
            (https, 10_000, "HTTPS checks are not supported"),
            (Check::Tcp { host: "".into(), port }, 10_000, "ok"),
            (Check::Tcp { host: "".into(), port: 1 }, 10_000, "Connection refused"),
            (Check::Sleep { seconds: 0 }, 10_000, "ok"),
            (Check::Sleep { seconds: 1000 }, 10, "no answer within"),
            (exec("[ $COLOUR = green ] && [ $(pwd) = /usr ]"), 10_000, "ok"),
            (exec("echo not yet; exit 3"), 10_000, "not yet\n"),
            (exec("exit 3"), 10_000, "command terminated with exit code 3"),
            (exec("kill -9 $$"), 10_000, "command terminated by signal 9"),
            (exec("sleep 1000"), 50, "command timed out after 50ms"),
            (Check::Exec { argv: vec!["no-such-probe".into()] }, 10_000, "\"no-such-probe\" was not found"),
        ] {
            let outcome = node.check(attempt.clone(), check.clone(), millis).await;
            let said = outcome.err().unwrap_or_else(|| "ok".to_owned());
            assert!(said.contains(expected), "{check:?}: {said}");
        }
        let absent = node.check(node.attempt("absent", 0), exec("true"), 1000).await;
        assert_eq!(absent, Err("the container is not running".to_owned()));
    });
}

#[test]
fn probes_end_with_their_container() {
    with_node(async |node| {
        let sign = sign();
        let attempt = node.attempt("main", 0);
        node.launch(shell(attempt.clone(), "sleep 1000")).await;
        let argv = ["sh", "-c", &format!("setsid sleep {sign} & sleep {sign}")].map(str::to_owned).to_vec();
        node.send(ShimCommand::Check {
            id: 1,
            attempt: attempt.clone(),
            check: Check::Exec { argv },
            timeout_millis: 100_000,
        })
        .await;
        until("it runs", || alive(&format!("sleep\0{sign}")).len() == 2).await;
        node.send(ShimCommand::Signal { attempt, signal: Signal::Kill }).await;
        let mut reports = [node.next().await, node.next().await, node.next().await];
        reports.sort_by_key(|report| format!("{report:?}"));
        assert!(matches!(&reports[0], Report::Checked { outcome: Err(_), .. }), "{reports:?}");
        assert!(matches!(&reports[1], Report::Ended { .. }), "{reports:?}");
        until("nothing is left", || alive(&sign).is_empty()).await;
    });
}

#[test]
fn no_probe_begins_in_what_is_over() {
    with_node(async |node| {
        let sign = sign();
        // Many processes, so that it takes a moment until all are gone.
        let crowd = "i=0; while [ $i -lt 60 ]; do sleep 1000 & i=$((i+1)); done; echo all; wait";
        for round in 0..5 {
            let attempt = node.attempt("main", round);
            node.launch(shell(attempt.clone(), crowd)).await;
            let log = node.root.join(format!("pods/{}/main.{round}.0.log", node.pod));
            until("all are there", || std::fs::read_to_string(&log).is_ok_and(|log| log.contains("all"))).await;
            node.send(ShimCommand::Signal { attempt: attempt.clone(), signal: Signal::Kill }).await;
            let (mut asked, mut answered, mut over) = (0, 0, false);
            while answered < asked || !over {
                if !over && asked < 200 {
                    let check = Check::Exec { argv: vec!["sleep".into(), sign.clone()] };
                    let attempt = attempt.clone();
                    node.send(ShimCommand::Check { id: asked, attempt, check, timeout_millis: 20_000 }).await;
                    asked += 1;
                }
                match tokio::time::timeout(Duration::from_micros(200), node.next()).await {
                    Ok(Report::Checked { .. }) => answered += 1,
                    Ok(Report::Ended { .. }) => {
                        assert_eq!(alive(&sign), [0; 0], "round {round}");
                        over = true;
                    }
                    _ => {}
                }
            }
        }
    });
}

#[test]
fn a_cleaned_pod_leaves_nothing() {
    with_node(async |node| {
        node.script("main", "echo hello").await;
        let pod = node.pod.clone();
        for _ in 0..2 {
            node.send(ShimCommand::Clean { pod: pod.clone() }).await;
            assert_eq!(node.next().await, Report::Cleaned { pod: pod.clone() });
            assert_eq!(std::fs::read_dir(node.root.join("pods")).unwrap().count(), 0);
            until("the trash is empty", || std::fs::read_dir(node.root.join("trash")).unwrap().count() == 0).await;
        }
    });
}

#[test]
fn limits_are_applied_where_they_can_be() {
    with_node(async |node| {
        let mut start = shell(node.attempt("main", 0), "cat /proc/self/cgroup; exit 6");
        (start.limits.cpu, start.limits.memory) = (Some(500), Some(64 << 20));
        let report = node.launch(start).await;
        if let Report::LimitsNotEnforced { message, .. } = report {
            assert!(matches!(node.next().await, Report::Started { .. }));
            assert_eq!(node.ended().await.code, 6, "it runs without limits");
            return skip(message);
        }
        assert_eq!(node.ended().await.code, 6, "it runs with limits");
        let log = node.log("main").await;
        let Some(group) =
            log.lines().find_map(|line| line.strip_prefix("0::").filter(|group| group.contains("tally-")))
        else {
            skip("no control groups of version 2 can be made here");
            return;
        };
        // With a control group no process escapes, even without its environment.
        let sign = sign();
        let mut start = shell(node.attempt("forgetful", 0), &format!("setsid env -i setsid sleep {sign} & sleep 0.05"));
        start.limits.cpu = Some(500);
        node.run(start).await;
        assert_eq!(alive(&sign), [0; 0]);
        let controllers = std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
        if !controllers.split_ascii_whitespace().any(|name| name == "memory") {
            skip(format!("{group} has no memory controller, so nothing can run out of it"));
            return;
        }
        let mut start = shell(node.attempt("hungry", 0), "x=x; while :; do x=$x$x; done");
        start.limits.memory = Some(32 << 20);
        let exit = node.run(start).await;
        assert!(exit.out_of_memory && exit.signal == Some(9), "{exit:?}");
    });
}

#[test]
fn a_record_with_a_torn_line_is_told_and_used() {
    let root = tempfile::tempdir().unwrap();
    block_on(async {
        let mut node = crate::harness::Node::start(root.path()).await;
        assert_eq!(node.script("main", "exit 9").await.code, 9);
        node.stop().await;
        let journal = root.path().join("journal");
        let mut text = std::fs::read(&journal).unwrap();
        text.extend_from_slice(b"{\"ended\":[{\"po");
        std::fs::write(&journal, text).unwrap();
        let config = Config::new(program(), root.path().to_owned());
        let notes = config.notes.clone();
        let node = crate::harness::Node::start_with(config).await;
        assert_eq!(
            notes.take(),
            [format!(
                "the last 14 bytes of {} say nothing",
                root.path().canonicalize().unwrap().join("journal").display()
            )]
        );
        assert_eq!(node.found[0].1[0].exit.as_ref().map(|exit| exit.code), Some(9));
        node.stop().await;
    });
}

#[test]
fn a_second_node_on_one_directory_is_refused() {
    with_node(async |node| {
        let second = ShimClient::start(Config::new(program(), node.root.clone())).await;
        let message = second.err().unwrap().to_string();
        assert!(message.contains("another tally uses it"), "{message}");
        assert_eq!(node.script("main", "exit 0").await.code, 0);
    });
    let blocked = tempfile::NamedTempFile::new().unwrap();
    let outcome = block_on(ShimClient::start(Config::new(program(), blocked.path().join("root"))));
    let message = outcome.err().unwrap().to_string();
    assert!(message.contains("cannot be used: Not a directory"), "{message}");
}

#[test]
fn a_shim_that_dies_is_replaced() {
    with_node(async |node| {
        let sign = sign();
        assert_eq!(node.script("done", "exit 9").await.code, 9);
        node.launch(shell(node.attempt("main", 0), &format!("setsid sleep {sign} & sleep {sign}"))).await;
        until("it runs", || alive(&format!("sleep\0{sign}")).len() == 2).await;
        let old = shim_of(&node.root);
        crate::harness::kill(old);
        // Decided before the first report of the new shim was read: never carried out.
        for _ in 0..10 {
            node.send(ShimCommand::Start(Box::new(shell(node.attempt("late", 0), "exit 0")))).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        node.recovered().await;
        assert_ne!(shim_of(&node.root), old);
        assert_eq!(alive(&sign), [0; 0]);
        let (pod, attempts) = &node.found[0];
        assert_eq!(*pod, node.pod);
        let told: Vec<_> = attempts
            .iter()
            .map(|found| (found.attempt.container.as_str(), found.exit.as_ref().map(|exit| exit.code)))
            .filter(|(name, _)| *name != "late")
            .collect();
        assert_eq!(told, [("done", Some(9)), ("main", None)]);
        assert_eq!(node.script("next", "exit 8").await.code, 8);
    });
}
