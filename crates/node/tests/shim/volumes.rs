//! Volumes, and where containers see them.

use std::path::Path;
use std::process::Command;

use tally_node::mailbox::{SendOutcome as Sent, Sink};
use tally_node::port::{Check, Content, File, Mount, Preparation, Report, ShimCommand, Signal, Start, Volume};

use tally_testing::skip;

use crate::harness::{Node, block_on, kill, shim_of, until};
use crate::start::shell;

fn files(name: &str, files: &[(&str, &str, u32)]) -> Volume {
    let file = |(path, content, mode): &(&str, &str, u32)| File {
        path: (*path).to_owned(),
        content: content.as_bytes().to_vec(),
        mode: *mode,
    };
    Volume { name: name.into(), content: Content::Files(files.iter().map(file).collect()) }
}

fn empty(name: &str, in_memory: bool) -> Volume {
    Volume { name: name.into(), content: Content::Empty { in_memory, limit: in_memory.then_some(1 << 20) } }
}

fn host(name: &str, path: &Path) -> Volume {
    Volume { name: name.into(), content: Content::Host { path: path.display().to_string(), kind: "".into() } }
}

fn mount(volume: &str, path: &str) -> Mount {
    Mount { volume: volume.into(), path: path.into(), sub_path: String::new(), read_only: false, recursive: false }
}

fn may_mount() -> bool {
    let apart = Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success())
        || Command::new("unshare").args(["-Um", "true"]).status().is_ok_and(|status| status.success());
    if !apart {
        skip("no mount namespace can be made here");
    }
    apart
}

fn with_volumes(volumes: Vec<Volume>, test: impl AsyncFnOnce(&mut Node)) {
    if !may_mount() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    block_on(async {
        let mut node = Node::start(root.path()).await;
        let report = node.prepare(volumes).await;
        assert!(matches!(report, Report::Prepared { .. }), "{report:?}");
        test(&mut node).await;
        let pod = node.pod.clone();
        node.send(ShimCommand::Clean { pod: pod.clone() }).await;
        assert_eq!(node.next().await, Report::Cleaned { pod });
        node.stop().await;
    });
}

fn with(mut start: Start, mounts: &[Mount]) -> Start {
    start.mounts = mounts.to_vec();
    start
}

/// Runs a script with mounts; it must succeed.
async fn runs(node: &mut Node, container: &str, mounts: &[Mount], script: &str) -> String {
    let start = with(shell(node.attempt(container, 0), script), mounts);
    let exit = node.run(start).await;
    let log = node.log(container).await;
    assert_eq!(exit.code, 0, "{script}: {log}");
    log
}

#[test]
fn volumes_are_mounted_where_they_are_wanted() {
    let volumes = vec![
        files("config", &[("a", "one\n", 0o644), ("deep/b", "two\n", 0o400)]),
        files("other", &[("c", "three\n", 0o644)]),
        empty("data", false),
    ];
    let machine = std::fs::read_dir("/").unwrap().count();
    with_volumes(volumes, async |node| {
        for (number, place) in [
            // On this machine: missing; existing; missing below an existing directory; below a symlink; missing at
            // several levels.
            "/config",
            "/mnt",
            "/usr/lib/not-there",
            "/var/run/not-there",
            "/not/there/at/all",
        ]
        .into_iter()
        .enumerate()
        {
            let script = format!(
                "cat {place}/a {place}/deep/b; ls / /usr/bin >/dev/null; cat /proc/self/comm; ls -ld {place}/deep/b"
            );
            let log = runs(node, &format!("c{number}"), &[mount("config", place)], &script).await;
            assert!(log.starts_with("one\ntwo\ncat\n-r--------"), "{place}: {log}");
        }
        // Several at once: next to each other, and one inside another.
        let mounts = [mount("other", "/config/nested/deeper"), mount("config", "/config"), mount("data", "/data/here")];
        let log = runs(
            node,
            "many",
            &mounts,
            "cat /config/a /config/nested/deeper/c; echo x > /data/here/x; cat /data/here/x",
        )
        .await;
        assert_eq!(log, "one\nthree\nx\n");
        // At a path that hides the very directory that contains the volumes.
        let top = format!("/{}", node.root.components().nth(1).unwrap().as_os_str().display());
        let log =
            runs(node, "hides", &[mount("config", &top), mount("other", "/config")], &format!("cat {top}/a /config/c"))
                .await;
        assert_eq!(log, "one\nthree\n");
        let log = runs(node, "name", &[mount("config", "/config")], "hostname; echo $TALLY_VOLUME_CONFIG").await;
        let volume = node.root.canonicalize().unwrap().join(format!("pods/{}/volumes/config", node.pod));
        assert_eq!(log, format!("the-host\n{}\n", volume.display()));
    });
    assert_eq!(std::fs::read_dir("/").unwrap().count(), machine, "the machine is as it was");
}

#[test]
fn what_containers_make_of_their_mounts_stays_theirs() {
    let volumes = vec![files("config", &[("a", "one\n", 0o644)]), empty("data", false)];
    with_volumes(volumes, async |node| {
        // Volumes with content from the API are read-only, whatever the mount says.
        let shut = mount("config", "/config");
        let script = "cat /config/a; echo x > /config/a && echo written; touch /config/new && echo made; touch /made-up; ls /made-up";
        let log = runs(node, "shut", &[shut, mount("data", "/data")], script).await;
        // Standard output and standard error have no order between them.
        assert!(log.lines().any(|line| line == "one") && log.lines().any(|line| line == "/made-up"), "{log}");
        assert!(!log.contains("written") && !log.contains("made\n"), "{log}");
        assert!(!Path::new("/made-up").exists());
        assert!(!Path::new("/config").exists() && !Path::new("/data").exists());
        runs(node, "mounts", &[mount("data", "/data")], "mkdir /data/m && mount -t tmpfs x /data/m || true").await;
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&node.root.display().to_string()), "{mounts}");
    });
}

#[test]
fn sub_paths_do_not_lead_out() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::create_dir(outside.path().join("in")).unwrap();
    std::fs::write(outside.path().join("in/file"), "inside\n").unwrap();
    std::os::unix::fs::symlink("/etc", outside.path().join("in/out")).unwrap();
    std::os::unix::fs::symlink("..", outside.path().join("in/up")).unwrap();
    std::os::unix::fs::symlink("file", outside.path().join("in/link")).unwrap();
    let volumes = vec![host("v", &outside.path().join("in"))];
    with_volumes(volumes, async |node| {
        for (sub_path, words) in [
            ("out", "leads out of the volume"),
            ("out/passwd", "leads out of the volume"),
            ("up", "leads out of the volume"),
            ("../x", "leads out of the volume"),
            ("/etc", "leads out of the volume"),
            ("file/x", "Not a directory"),
        ] {
            let mount = Mount { sub_path: sub_path.into(), ..mount("v", "/there") };
            let said = node.refused(with(shell(node.attempt("main", 0), "true"), &[mount])).await;
            assert!(
                said.starts_with("CreateContainerError: volume \"v\"") && said.contains(words),
                "{sub_path}: {said}"
            );
        }
        let inner = |sub_path: &str, path: &str| Mount { sub_path: sub_path.into(), ..mount("v", path) };
        let mounts = [inner("file", "/etc/one-file"), inner("link", "/linked"), inner("new/dir", "/fresh")];
        let log = runs(node, "fine", &mounts, "cat /etc/one-file /linked; touch /fresh/made; ls /etc/passwd").await;
        assert_eq!(log, "inside\ninside\n/etc/passwd\n");
        assert!(outside.path().join("in/new/dir/made").exists());
    });
}

#[test]
fn mounts_that_cannot_be_say_why() {
    with_volumes(vec![files("config", &[("a", "one\n", 0o644)])], async |node| {
        let one_file = Mount { sub_path: "a".into(), ..mount("config", "/usr") };
        for (mounts, words) in [
            (vec![mount("config", "/etc/passwd")], "/etc/passwd is a file, the volume is a directory"),
            (vec![one_file], "/usr is a directory, the volume is a file"),
            (vec![mount("config", "relative")], "must be absolute"),
            (vec![mount("config", "/a/../b")], "must not contain '..'"),
            (vec![mount("config", "/etc/passwd/below")], "Not a directory"),
            (vec![mount("missing", "/config")], "volume \"missing\" cannot be mounted at /config: No such file"),
        ] {
            let said = node.refused(with(shell(node.attempt("main", 0), "true"), &mounts)).await;
            assert!(said.contains(words), "{mounts:?}: {said}");
        }
        let mut start = with(shell(node.attempt("main", 0), "true"), &[mount("config", "/config")]);
        start.argv = vec!["/config/a".into()];
        let said = node.refused(start).await;
        assert!(said.contains("it is not executable (its mode is 0644)"), "{said}");
        let unprepared =
            Volume { name: "v".into(), content: Content::Host { path: "/no/such".into(), kind: "Directory".into() } };
        match node.prepare(vec![unprepared]).await {
            Report::Unprepared { failure, .. } => {
                let said = "volume \"v\": hostPath type check failed: /no/such is not a directory";
                assert!(failure.message.starts_with(said), "{failure:?}");
            }
            report => panic!("{report:?}"),
        }
    });
}

#[test]
fn containers_of_a_pod_share_its_volumes() {
    with_volumes(vec![empty("data", false), files("config", &[("a", "one\n", 0o644)])], async |node| {
        runs(node, "first", &[mount("data", "/out")], "echo hello > /out/said").await;
        assert_eq!(runs(node, "second", &[mount("data", "/in")], "cat /in/said").await, "hello\n");
        // A container that has mounted a ConfigMap sees its changes.
        let attempt = node.attempt("third", 0);
        let script = "cat /config/a; until grep -q two /config/a; do sleep 0.01; done; cat /config/a";
        node.launch(with(shell(attempt, script), &[mount("config", "/config")])).await;
        let log = node.root.join(format!("pods/{}/third.0.0.log", node.pod));
        until("it has read the first", || std::fs::read_to_string(&log).is_ok_and(|log| log.contains("one"))).await;
        node.prepare(vec![empty("data", false), files("config", &[("a", "two\n", 0o644)])]).await;
        assert_eq!(node.ended().await.code, 0);
        assert_eq!(node.log("third").await, "one\ntwo\n");
    });
}

#[test]
fn a_volume_in_another_stays_when_that_one_changes() {
    let volumes = |text: &str| vec![files("config", &[("a", text, 0o644)]), empty("cache", false)];
    with_volumes(volumes("one\n"), async |node| {
        let script =
            "echo mine > /config/cache/x; until grep -q two /config/a; do sleep 0.01; done; cat /config/cache/x";
        let mounts = [mount("config", "/config"), mount("cache", "/config/cache")];
        node.launch(with(shell(node.attempt("main", 0), script), &mounts)).await;
        let written = node.root.join(format!("pods/{}/volumes/cache/x", node.pod));
        until("it has written", || written.exists()).await;
        node.prepare(volumes("two\n")).await;
        assert_eq!(node.ended().await.code, 0);
        assert_eq!(node.log("main").await, "mine\n");
    });
}

#[test]
fn probes_see_what_the_container_sees() {
    with_volumes(vec![files("config", &[("a", "one\n", 0o644)])], async |node| {
        let attempt = node.attempt("main", 0);
        node.launch(with(shell(attempt.clone(), "sleep 1000"), &[mount("config", "/config")])).await;
        let exec = |script: &str| Check::Exec { argv: vec!["sh".into(), "-c".into(), script.into()] };
        assert_eq!(
            node.check(attempt.clone(), exec("cat /config/a && [ $(hostname) = the-host ]"), 10_000).await,
            Ok(())
        );
        let said = node.check(attempt.clone(), exec("cat /config/b"), 10_000).await.unwrap_err();
        assert!(said.contains("/config/b"), "{said}");
        let absent = node.check(attempt.clone(), Check::Exec { argv: vec!["/config/no".into()] }, 10_000).await;
        assert!(absent.unwrap_err().contains("/config/no does not exist"));
        node.send(ShimCommand::Signal { attempt, signal: Signal::Kill }).await;
        node.next().await;
        node.ended().await;
    });
}

#[test]
fn memory_volumes_go_with_their_pod() {
    let volumes = vec![empty("of-this-test", true)];
    with_volumes(volumes, async |node| {
        let log =
            runs(node, "main", &[mount("of-this-test", "/fast")], "stat -f -c %T /fast; echo x > /fast/x; cat /fast/x")
                .await;
        if !log.starts_with("tmpfs\n") {
            skip("this user may not mount a tmpfs, so it is a directory");
        }
        assert!(log.ends_with("x\n"));
        assert_eq!(runs(node, "next", &[mount("of-this-test", "/again")], "cat /again/x").await, "x\n");
    });
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("/volumes/of-this-test"), "{mounts}");
}

#[test]
fn memory_volumes_end_with_the_node() {
    let root = tempfile::tempdir().unwrap();
    let fast = || vec![empty("fast", true)];
    let mounted = || {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.lines().filter(|line| line.contains(&*root.path().to_string_lossy())).count()
    };
    block_on(async {
        let mut node = Node::start(root.path()).await;
        assert!(matches!(node.prepare(fast()).await, Report::Prepared { .. }));
        if mounted() == 0 {
            skip("this user may not mount a tmpfs");
            return node.stop().await;
        }
        // A killed shim cannot unmount the volume: the next one does, and mounts it again for a Pod that still needs
        // it.
        kill(shim_of(root.path()));
        node.recovered().await;
        assert_eq!(mounted(), 0);
        assert!(matches!(node.prepare(fast()).await, Report::Prepared { .. }));
        assert_eq!(mounted(), 1);
        node.stop().await;
        assert_eq!(mounted(), 0);
    });
    root.close().unwrap();
}

#[test]
fn another_user_is_another_user() {
    let root = rustix::process::geteuid().is_root();
    with_volumes(vec![empty("data", false)], async |node| {
        let script = "id -u; id -g; touch /data/x /below/x && printf bye > /dev/termination-log; umask
            echo out > /dev/stdout; echo err > /dev/stderr";
        let below = Mount { sub_path: "not/there".into(), ..mount("data", "/below") };
        let mut start = with(shell(node.attempt("main", 0), script), &[mount("data", "/data"), below]);
        (start.user, start.group) = (Some(65532), Some(65533));
        if !root {
            let said = node.refused(start).await;
            assert!(said.contains("runAsUser 65532: this node runs as user"), "{said}");
            return;
        }
        let exit = node.run(start).await;
        assert_eq!((exit.code, exit.message.as_str()), (0, "bye"), "{}", node.log("main").await);
        let umask = Command::new("sh").args(["-c", "umask"]).output().unwrap().stdout;
        let mut log: Vec<String> = node.log("main").await.lines().map(str::to_owned).collect();
        log.sort();
        let mut expected =
            ["65532", "65533", String::from_utf8(umask).unwrap().trim(), "err", "out"].map(str::to_owned);
        expected.sort();
        assert_eq!(log, expected);
    });
}

#[test]
fn too_much_for_one_deed_is_said() {
    let root = tempfile::tempdir().unwrap();
    block_on(async {
        let mut node = Node::start(root.path()).await;
        let file = File { path: "a".to_owned(), content: vec![255; 17 << 20], mode: 0o644 };
        let volumes = vec![Volume { name: "v".into(), content: Content::Files(vec![file]) }];
        let large = Preparation { pod: node.pod.clone(), volumes, group: None };
        let sent = Sink::send(&node.commands, &ShimCommand::Prepare(Box::new(large))).await;
        assert!(matches!(&sent, Sent::Unfit(why) if why.contains("are too many")), "{sent:?}");
        assert!(matches!(node.prepare(Vec::new()).await, Report::Prepared { .. }), "the others go on");
        node.stop().await;
    });
}

#[test]
fn a_full_disk_loses_output_and_no_exit() {
    let disk = tempfile::tempdir().unwrap();
    let small = Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "small"]).arg(disk.path()).status();
    if !small.is_ok_and(|status| status.success()) {
        skip("this user may not mount a small disk");
        return;
    }
    let root = disk.path().join("root");
    block_on(async {
        let mut node = Node::start(&root).await;
        assert!(matches!(node.prepare(Vec::new()).await, Report::Prepared { .. }));
        // The output fills the disk, and the termination message is longer than the space that is left.
        let script = "head -c 400000 /dev/zero | tr '\\0' x; exit 9";
        let mut start = shell(node.attempt("main", 0), script);
        start.termination_message.from_logs = true;
        assert_eq!(node.run(start).await.code, 9);
        std::fs::write(disk.path().join("rest"), vec![0; 1 << 20]).unwrap_err();
        // A few more can be recorded: the space was allocated before the disk was full.
        assert_eq!(node.run(shell(node.attempt("next", 0), "exit 7")).await.code, 7);
        node.stop().await;
        let mut node = Node::start(&root).await;
        let exits: Vec<_> = node.found[0].1.iter().map(|found| found.exit.as_ref().map(|exit| exit.code)).collect();
        assert_eq!(exits, [Some(9), Some(7)]);
        // Without free space nothing starts: its end could not be recorded.
        std::fs::write(disk.path().join("more"), vec![0; 1 << 20]).unwrap_err();
        let next = shell(node.attempt("third", 0), "true");
        for _ in 0..2 {
            let failure = node.unstarted(next.clone()).await;
            assert!(failure.message.contains("No space left on device"), "{}", failure.message);
            assert!(failure.passing && failure.reason == "CreateContainerError", "{failure:?}");
        }
        // When there is space again, the same attempt can be started.
        for name in ["rest", "more"] {
            std::fs::remove_file(disk.path().join(name)).unwrap();
        }
        assert_eq!(node.run(next).await.code, 0);
        node.stop().await;
    });
    assert!(Command::new("umount").arg(disk.path()).status().unwrap().success());
}
