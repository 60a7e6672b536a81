//! Isolated containers, and what a securityContext asks for: what their own processes see.

use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use serde_json::json;
use tally_node::capabilities::{self, named};
use tally_node::pod;
use tally_node::port::{
    Check, Confinement, Content, File, Mount, Report, ShimCommand, Signal, Start, SupplementalGroups, Volume,
};
use tally_node::security::{self, SecurityAbilities, SecurityNode};
use tally_node::shim::abilities;
use tally_node::shim_client::Config;

use crate::harness::{Node, alive, block_on, kill, program, shim_of, sign, until, wait_until};
use crate::start::shell;
use tally_testing::{is_root, scratch, skip, skip_without};

/// A node whose containers are isolated, unless this machine does not permit that.
fn with_isolation(test: impl AsyncFnOnce(&mut Node, &Path)) {
    if let Err(why) = abilities::try_isolation(&program()) {
        return skip(why);
    }
    let place = scratch();
    block_on(async {
        let mut node = start(place.path()).await;
        test(&mut node, place.path()).await;
        node.stop().await;
    });
}

async fn start(place: &Path) -> Node {
    std::fs::create_dir_all(place.join("data")).unwrap();
    std::fs::write(place.join("data/secret"), "the key").unwrap();
    std::fs::write(place.join("kubeconfig"), "the token").unwrap();
    let mut config = Config::new(program(), place.join("data/node"));
    // One of them is inside another, as the kubeconfig is inside the data directory.
    let hidden = ["data", "data/secret", "kubeconfig", "not-there"];
    config.hidden = Some(hidden.map(|name| place.join(name)).to_vec());
    Node::start_with(config).await
}

/// What `tally_node::security` decides for a Pod without a securityContext.
fn as_decided() -> Confinement {
    let capabilities = Some(if is_root() { capabilities::DEFAULT } else { 0 });
    Confinement { capabilities, no_new_privileges: !is_root(), ..Confinement::default() }
}

/// Runs a script as a container to its end; it must succeed. Returns what it printed.
async fn says(node: &mut Node, container: &str, script: &str) -> String {
    let mut start = shell(node.attempt(container, 0), script);
    start.confinement = as_decided();
    runs(node, container, start).await
}

async fn runs(node: &mut Node, container: &str, start: Start) -> String {
    let exit = node.run(start).await;
    let log = node.log(container).await;
    assert_eq!(exit.code, 0, "{container}: {log}");
    log
}

async fn confined(node: &mut Node, container: &str, confinement: Confinement, script: &str) -> String {
    let mut start = shell(node.attempt(container, 0), script);
    start.confinement = confinement;
    runs(node, container, start).await
}

#[test]
fn files_of_the_node_do_not_exist_in_a_container() {
    with_isolation(async |node, place| {
        let data = place.join("data");
        let show = data.display();
        // Readable means that a byte can be read: an empty file in place of a hidden one cannot give any.
        let script = format!(
            "ls -A {show} 2>/dev/null; cat {show}/secret {place}/kubeconfig {show}/node/journal 2>/dev/null
             find {show} -type f 2>/dev/null; cat ./secret ../secret 2>/dev/null; touch {show}/x 2>/dev/null && echo wrote
             ls {place}; ls /usr/bin/env",
            place = place.display()
        );
        assert_eq!(says(node, "reads", &script).await, "data\nkubeconfig\n/usr/bin/env\n");
        assert!(!data.join("x").exists());
        // The same for what starts in the directory itself.
        let mut start = shell(node.attempt("there", 0), "pwd; ls -A; ls -A ../data");
        start.working_dir = Some(data.display().to_string());
        if is_root() {
            assert_eq!(runs(node, "there", start).await, format!("{show}\n"));
        }
    });
}

#[test]
fn other_mounts_of_the_same_directory_are_hidden_too() {
    with_isolation(async |node, place| {
        let (all, part) = (place.join("all"), place.join("part"));
        for (from, to) in [(place.to_owned(), &all), (place.join("data"), &part)] {
            std::fs::create_dir(to).unwrap();
            if !Command::new("mount").arg("--bind").args([&from, to]).status().is_ok_and(|made| made.success()) {
                skip("this user may not mount");
                return;
            }
        }
        let script = format!(
            "cat {all}/data/secret {all}/kubeconfig {part}/secret 2>/dev/null; ls -A {part} {all}/data; ls {all}/kubeconfig",
            all = all.display(),
            part = part.display()
        );
        let said = says(node, "main", &script).await;
        for at in [&all, &part] {
            assert!(Command::new("umount").arg(at).status().unwrap().success());
        }
        let (all, part) = (all.display(), part.display());
        assert_eq!(said, format!("{all}/data:\n\n{part}:\n{all}/kubeconfig\n"));
    });
}

fn mounts(arguments: &[&str], at: &Path) -> bool {
    std::fs::create_dir_all(at).unwrap();
    Command::new("mount").args(arguments).arg(at).status().is_ok_and(|made| made.success())
}

fn unmounts(at: &Path) {
    assert!(Command::new("umount").arg(at).status().unwrap().success());
}

/// As for a chroot: through them root commands the machine, and sees its processes.
#[test]
fn file_systems_of_the_kernel_are_hidden_wherever_they_are_mounted() {
    with_isolation(async |node, place| {
        let at = ["proc", "sysfs", "cgroup2"].map(|kind| (kind, place.join(kind)));
        let made: Vec<_> = at.iter().filter(|(kind, at)| mounts(&["-t", kind, kind], at)).map(|(_, at)| at).collect();
        let script =
            format!("for at in proc sysfs cgroup2; do ls -A {}/$at; done; ls /proc/self/status", place.display());
        let start = shell(node.attempt("main", 0), &script);
        let exit = node.run(start).await;
        made.iter().for_each(|at| unmounts(at));
        assert_eq!((exit.code, node.log("main").await.as_str()), (0, "/proc/self/status\n"));
        if made.is_empty() {
            skip("this user may not mount");
        }
    });
}

#[test]
fn a_volume_is_read_only_with_what_is_mounted_below_it_if_that_is_asked_for() {
    with_isolation(async |node, place| {
        let below = place.join("host/below");
        if !mounts(&["-t", "tmpfs", "tmpfs"], &below) {
            return skip("this user may not mount");
        }
        let path = place.join("host").display().to_string();
        let volumes = vec![
            Volume { name: "v".into(), content: Content::Host { path, kind: "".into() } },
            Volume { name: "own".into(), content: Content::Empty { in_memory: false, limit: None } },
        ];
        let prepared = node.prepare(volumes).await;
        let mut said = Vec::new();
        for (container, recursive) in [("one", false), ("all", true)] {
            let script = "for at in /v /v/below /v/below/own; do touch $at/x 2>/dev/null && echo $at; done; true";
            let mut start = shell(node.attempt(container, 0), script);
            let mount = |volume: &str, path: &str, read_only, recursive| Mount {
                volume: volume.into(),
                path: path.into(),
                sub_path: String::new(),
                read_only,
                recursive,
            };
            std::fs::create_dir_all(below.join("own")).unwrap();
            start.mounts = vec![mount("v", "/v", true, recursive), mount("own", "/v/below/own", false, false)];
            let report = node.launch(start).await;
            said.push(match report {
                Report::Started { .. } => {
                    node.ended().await;
                    node.log(container).await
                }
                report => format!("{report:?}"),
            });
        }
        unmounts(&below);
        assert!(matches!(prepared, Report::Prepared { .. }));
        assert_eq!(said, ["/v/below\n/v/below/own\n", "/v/below/own\n"]);
    });
}

#[test]
fn a_directory_that_was_moved_away_is_not_shown_in_its_new_place() {
    with_isolation(async |node, place| {
        let (data, moved) = (place.join("data"), place.join("moved"));
        std::fs::rename(&data, &moved).unwrap();
        for name in ["pods", "trash", "words"] {
            std::fs::create_dir_all(data.join("node").join(name)).unwrap();
        }
        let start = shell(node.attempt("main", 0), &format!("cat {}/secret", moved.display()));
        let failure = node.unstarted(start).await;
        std::fs::remove_dir_all(&data).unwrap();
        std::fs::rename(&moved, &data).unwrap();
        assert!(failure.message.contains("another directory is at its path"), "{failure:?}");
    });
}

#[test]
fn host_paths_show_the_machine_without_the_node() {
    with_isolation(async |node, place| {
        let host = |name: &str, path: &Path| Volume {
            name: name.into(),
            content: Content::Host { path: path.display().to_string(), kind: "".into() },
        };
        for inside in
            [place.join("data"), place.join("data/node/pods"), place.join("data/new"), place.join("kubeconfig")]
        {
            let Report::Unprepared { failure, .. } = node.prepare(vec![host("v", &inside)]).await else {
                panic!("{} can be a volume", inside.display());
            };
            assert!(failure.message.contains("is not visible to Pods"), "{failure:?}");
        }
        assert!(!place.join("data/new").exists());
        std::fs::write(place.join("shared"), "shown").unwrap();
        let report =
            node.prepare(vec![host("root", Path::new("/")), host("place", place), host("tmp", Path::new("/tmp"))]);
        assert!(matches!(report.await, Report::Prepared { .. }));
        let mount = |volume: &str, path: &str| Mount {
            volume: volume.into(),
            path: path.into(),
            sub_path: String::new(),
            read_only: false,
            recursive: false,
        };
        let script = format!(
            "cat /root-of-host{p}/shared /place/shared; echo; cat /root-of-host{p}/data/secret /place/data/secret \
             /place/kubeconfig 2>/dev/null; ls -A /place/data 2>/dev/null; echo x > /place/written; test -d /host-tmp && echo tmp
             for disk in /root-of-host/dev/[sv]d? /root-of-host/dev/nvme?n?; do \
             test -b $disk && head -c 1 $disk 2>&1 | grep -v 'Permission denied\\|Operation not permitted'; done; true",
            p = place.display()
        );
        let mut start = shell(node.attempt("main", 0), &script);
        start.mounts = vec![mount("root", "/root-of-host"), mount("place", "/place"), mount("tmp", "/host-tmp")];
        assert_eq!(runs(node, "main", start).await, "shownshown\ntmp\n");
        assert_eq!(std::fs::read_to_string(place.join("written")).unwrap(), "x\n");
    });
}

#[test]
fn other_processes_are_neither_seen_nor_reached() {
    with_isolation(async |node, _| {
        let sleeps = sign();
        let mut other = Command::new("sleep").arg(&sleeps).spawn().unwrap();
        let before = shell(node.attempt("neighbour", 0), &format!("sleep {}", sign()));
        assert!(matches!(node.launch(before).await, Report::Started { .. }));
        // The brackets keep grep from finding itself.
        let (first, rest) = sleeps.split_at(1);
        let script = format!(
            "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -xc '[{first}]{rest}'; kill -9 {} {} 2>/dev/null; kill -9 1; kill -9 -1 2>/dev/null; echo on",
            other.id(),
            shim_of(&node.root)
        );
        // The last kill reaches every process of the container but the one that sends it.
        assert_eq!(says(node, "main", &script).await, "0\non\n");
        assert!(other.try_wait().unwrap().is_none(), "it was killed");
        other.kill().unwrap();
        other.wait().unwrap();
        let neighbour = node.attempt("neighbour", 0);
        node.send(ShimCommand::Signal { attempt: neighbour, signal: Signal::Kill }).await;
        assert!(matches!(node.next().await, Report::Signalled { .. }));
        assert_eq!(node.ended().await.code, 137, "it ran until it was killed here");
        // The first process of the container is the node's, and cannot be read or traced.
        let script =
            "cat /proc/1/environ /proc/1/maps 2>/dev/null | wc -c; (ls /proc/1/root/ /proc/1/cwd/; readlink /proc/1/fd/* /proc/1/exe) 2>/dev/null | wc -l
             echo /proc/$$/fd/*; test $(ls -d /proc/[0-9]* | wc -l) -le 6 && echo few";
        let said = says(node, "first", script).await;
        let (nothing, own) = said.split_at(4);
        assert_eq!(nothing, if is_root() { "0\n0\n" } else { nothing });
        let files: Vec<&str> =
            own.lines().next().unwrap().split('/').filter_map(|part| part.split(' ').next()).collect();
        assert!(files.iter().filter(|file| file.parse::<u32>().is_ok_and(|file| file < 3)).count() >= 3, "{own}");
        assert!(own.ends_with("few\n"), "{own}");
    });
}

#[test]
fn the_environment_is_not_that_of_the_node() {
    // PATH says where the programs are; PWD and the like come from the shell.
    let known = ["HOME", "HOSTNAME", "OLDPWD", "PATH", "PWD", "SHLVL", "_"];
    let is_strange = |name: &str| !known.contains(&name) && !name.starts_with("TALLY_");
    let (of_node, _) = std::env::vars().find(|(name, _)| is_strange(name)).expect("the node has such variables");
    with_isolation(async |node, _| {
        let all = "env | sort; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'";
        let said = says(node, "main", all).await;
        let names: Vec<_> = said.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
        assert!(!names.iter().any(|name| is_strange(name)), "{said}");
        let mut start = shell(node.attempt("inherits", 0), "env");
        start.inherits_env = true;
        let said = runs(node, "inherits", start).await;
        assert!(!said.lines().any(|line| line.starts_with(&format!("{of_node}="))), "{said}");
    });
}

#[test]
fn descriptors_that_the_node_inherited_are_closed() {
    let file = std::fs::File::open("/etc/passwd").unwrap();
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
    with_isolation(async |node, _| {
        let said = says(node, "main", "readlink /proc/$$/fd/* | grep -c passwd; true").await;
        assert_eq!(said, "0\n");
    });
}

/// A directory that the shell left open leads around everything that is hidden.
#[test]
fn a_directory_that_the_node_inherited_is_no_working_directory() {
    let place = scratch();
    let directory = std::fs::File::open(place.path()).unwrap();
    // A number that the node does not use for a file of its own.
    let directory = rustix::io::fcntl_dupfd_cloexec(&directory, 700).unwrap();
    rustix::io::fcntl_setfd(&directory, rustix::io::FdFlags::empty()).unwrap();
    with_isolation(async |node, _| {
        let mut start = shell(node.attempt("main", 0), "pwd");
        start.working_dir = Some(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        let refusal = node.refused(start).await;
        assert!(refusal.starts_with("StartError: the working directory") && refusal.contains("exist"), "{refusal}");
    });
}

#[test]
fn device_nodes_of_the_machine_cannot_be_changed() {
    with_isolation(async |node, place| {
        // Each is given the mode and owner that it has: if it can be, this changes nothing on the machine.
        let script = format!(
            "for node in full null random urandom zero; do
             chmod $(stat -c %a /dev/$node) /dev/$node 2>/dev/null && echo mode $node
             chown $(stat -c %u:%g /dev/$node) /dev/$node 2>/dev/null && echo owner $node; done
             for hidden in {place}/kubeconfig /proc/kcore; do chmod 666 $hidden 2>/dev/null && echo $hidden; done
             echo x > /dev/null; (echo x > /dev/full) 2>/dev/null || echo full; head -c 2 /dev/zero | wc -c",
            place = place.display()
        );
        assert_eq!(says(node, "main", &script).await, "full\n2\n");
    });
}

/// The launcher becomes the command, and is a program of the machine that /proc/self/exe names.
#[test]
fn the_executable_of_the_node_cannot_be_changed() {
    if !is_root() {
        return skip("only root changes files of others");
    }
    with_isolation(async |node, place| {
        let script = place.join("script");
        std::fs::write(&script, "#!/proc/self/exe change-itself\n").unwrap();
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
        for (container, argv) in [
            ("named", vec!["/proc/self/exe".to_owned(), "change-itself".to_owned()]),
            ("interpreter", vec![script.display().to_string()]),
        ] {
            let mut start = shell(node.attempt(container, 0), "");
            start.argv = argv;
            start.confinement.read_only_root = true;
            assert_eq!(runs(node, container, start).await, "Read-only file system (os error 30)\n", "{container}");
        }
    });
}

/// A Pod may place files of its own over the machine's list of users.
#[test]
fn groups_are_those_that_the_machine_gives_a_user() {
    if !is_root() {
        return skip("only root gives groups");
    }
    with_isolation(async |node, _| {
        let file = |name: &str, content: &str| File { path: name.into(), content: content.into(), mode: 0o644 };
        let files = vec![
            file("passwd", "root:x:0:0::/:/bin/sh\nown:x:61234:42::/:/bin/sh\n"),
            file("group", "own:x:43:own\nother:x:44:own,root\n"),
        ];
        let volumes = vec![Volume { name: "v".into(), content: Content::Files(files) }];
        assert!(matches!(node.prepare(volumes).await, Report::Prepared { .. }));
        let mount = |name: &str| Mount {
            volume: "v".into(),
            path: format!("/etc/{name}"),
            sub_path: name.into(),
            read_only: false,
            recursive: false,
        };
        let as_user = |mut start: Start| {
            start.mounts = vec![mount("passwd"), mount("group")];
            start.user = Some(61234);
            start
        };
        let start = as_user(shell(node.attempt("main", 0), "head -n 1 /etc/group; id -g; id -G"));
        assert_eq!(runs(node, "main", start).await, "own:x:43:own\n0\n0\n");
        let attempt = node.attempt("probed", 0);
        let start = as_user(shell(attempt.clone(), "sleep 1000"));
        assert!(matches!(node.launch(start).await, Report::Started { .. }));
        let check = Check::Exec { argv: ["sh", "-c", "id -G | grep '4[234]'"].map(str::to_owned).to_vec() };
        assert_eq!(
            node.check(attempt.clone(), check, 60_000).await,
            Err("command terminated with exit code 1".to_owned())
        );
        node.send(ShimCommand::Signal { attempt: attempt.clone(), signal: Signal::Kill }).await;
        assert_eq!(node.next().await, Report::Signalled { attempt });
        assert_eq!(node.ended().await.code, 137);
    });
}

/// The keys of the user who started the node are in the keyring of the session.
#[test]
fn probes_have_a_session_keyring_of_their_own() {
    let number = if cfg!(target_arch = "x86_64") { 250 } else { 219 };
    let keyring = format!("print syscall({number}, 0, -3, 0)");
    let Ok(own) = Command::new("perl").args(["-e", &keyring]).output() else {
        return skip_without("perl");
    };
    let own = String::from_utf8(own.stdout).unwrap();
    if own == "-1" {
        return skip("the kernel has no keyrings here");
    }
    with_isolation(async |node, _| {
        let attempt = node.attempt("main", 0);
        let script = format!("perl -e '{keyring}'; sleep 1000");
        assert!(matches!(node.launch(shell(attempt.clone(), &script)).await, Report::Started { .. }));
        let script = format!("test $(perl -e '{keyring}') != {own}");
        let check = Check::Exec { argv: ["sh", "-c", &script].map(str::to_owned).to_vec() };
        assert_eq!(node.check(attempt.clone(), check, 60_000).await, Ok(()));
        node.send(ShimCommand::Signal { attempt: attempt.clone(), signal: Signal::Kill }).await;
        assert_eq!(node.next().await, Report::Signalled { attempt });
        assert_eq!(node.ended().await.code, 137);
    });
}

#[test]
fn tmp_and_shared_memory_are_the_containers_own() {
    let outside = tempfile::NamedTempFile::new_in("/tmp").unwrap();
    with_isolation(async |node, _| {
        let name = outside.path().file_name().unwrap().to_str().unwrap();
        let script = format!(
            "ls /tmp/{name} /dev/shm/* 2>/dev/null; stat -c %a /tmp /dev/shm; echo x > /tmp/mine; echo y > /dev/shm/mine
             echo > /dev/null; head -c 2 /dev/urandom | wc -c; ls /dev | tr '\\n' ' '; cat /tmp/mine"
        );
        let said = says(node, "one", &script).await;
        let devices = "fd full null ptmx pts random shm stderr stdin stdout termination-log tty urandom zero";
        assert_eq!(said, format!("1777\n1777\n2\n{devices} x\n"));
        assert_eq!(says(node, "two", "ls -A /tmp /dev/shm").await, "/dev/shm:\n\n/tmp:\n");
        assert!(!Path::new("/tmp/mine").exists());
        // What a container leaves there is deleted with it.
        let left = || {
            let pod = node.root.join("pods").join(node.pod.to_string());
            let entries = std::fs::read_dir(pod).unwrap().flatten();
            entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".tmp")).count()
        };
        assert_eq!(left(), 0);
        wait_until("the trash is emptied", || std::fs::read_dir(node.root.join("trash")).unwrap().count() == 0);
    });
}

#[test]
fn the_machine_cannot_be_commanded_through_proc_and_sys() {
    with_isolation(async |node, _| {
        let script = "for file in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /proc/sys/vm/drop_caches \
             /proc/sys/kernel/hostname /sys/fs/cgroup/cpu/release_agent /sys/kernel/uevent_helper /sys/fs/cgroup/unified/cgroup.procs; do
             test -e $file && (echo 0 > $file) 2>/dev/null && echo wrote $file; done
             mkdir /sys/fs/cgroup/unified/mine 2>/dev/null && echo made
             head -c 16 /proc/kcore 2>/dev/null | wc -c; echo 0 > /proc/self/oom_score_adj && echo fine
             for device in /dev/vda /dev/sda /dev/mem /dev/kmsg; do test -e $device && echo $device; done
             mknod /tmp/disk b 254 0 2>/dev/null && head -c 1 /tmp/disk && echo disk
             mount -t tmpfs x /mnt 2>/dev/null && echo mounted; umount /proc 2>/dev/null && echo unmounted; true";
        assert_eq!(says(node, "main", script).await, "0\nfine\n");
    });
}

/// In one, a process has all capabilities, and can mount the control group that it shares with the node.
#[test]
fn no_user_namespace_can_be_made() {
    with_isolation(async |node, _| {
        let script = "unshare -Ur true && echo made; unshare -UrCm true && echo made; unshare -U true && echo made
            sh -c 'true'; sleep 0; (true) && echo fine";
        assert_eq!(
            says(node, "main", script).await.lines().filter(|line| !line.contains("unshare")).collect::<Vec<_>>(),
            ["fine"]
        );
        if !is_root() {
            return;
        }
        // With other settings of its own, too.
        for (container, confinement) in [
            ("dropped", Confinement { capabilities: Some(0), ..Confinement::default() }),
            (
                "profile",
                Confinement { seccomp: true, capabilities: Some(capabilities::DEFAULT), ..Confinement::default() },
            ),
            ("bound", Confinement { no_new_privileges: true, capabilities: Some(0), ..Confinement::default() }),
        ] {
            let said =
                confined(node, container, confinement, "unshare -Ur echo made 2>/dev/null || echo refused").await;
            assert_eq!(said, "refused\n", "{container}");
        }
    });
}

/// Nothing has to be raced for: a directory above the file is renamed, and the file is not found by its path.
#[test]
fn a_file_whose_directory_was_renamed_is_not_shown_in_its_new_place() {
    if let Err(why) = abilities::try_isolation(&program()) {
        return skip(why);
    }
    let place = scratch();
    let (before, after) = (place.path().join("kc"), place.path().join("kc2"));
    std::fs::create_dir_all(&before).unwrap();
    std::fs::write(before.join("config"), "the token").unwrap();
    block_on(async {
        let mut config = Config::new(program(), place.path().join("data/node"));
        config.hidden = Some(vec![place.path().join("data"), before.join("config")]);
        let mut node = Node::start_with(config).await;
        for again in [false, true] {
            std::fs::rename(&before, &after).unwrap();
            if again {
                std::fs::create_dir(&before).unwrap();
                std::fs::write(before.join("config"), "another").unwrap();
            }
            let script = format!("cat {}/config", after.display());
            let failure = node.unstarted(shell(node.attempt("main", 0), &script)).await;
            assert!(failure.message.contains("another directory is at its path"), "{failure:?}");
            if again {
                std::fs::remove_dir_all(&before).unwrap();
            }
            std::fs::rename(&after, &before).unwrap();
        }
        // A file that its owner replaces is hidden as before; one that is deleted needs nothing.
        std::fs::write(before.join("new"), "a new token").unwrap();
        std::fs::rename(before.join("new"), before.join("config")).unwrap();
        let script = format!("cat {}/config 2>/dev/null; echo end", before.display());
        assert_eq!(says(&mut node, "replaced", &script).await, "end\n");
        std::fs::remove_file(before.join("config")).unwrap();
        assert_eq!(says(&mut node, "deleted", "echo end").await, "end\n");
        node.stop().await;
    });
}

/// The command has run, whatever it finds in /proc.
#[test]
fn a_volume_over_proc_does_not_hide_that_the_command_ran() {
    with_isolation(async |node, _| {
        let volumes = vec![Volume { name: "v".into(), content: Content::Empty { in_memory: false, limit: None } }];
        assert!(matches!(node.prepare(volumes).await, Report::Prepared { .. }));
        let mut start = shell(node.attempt("main", 0), "exit 6");
        start.mounts = vec![Mount {
            volume: "v".into(),
            path: "/proc/self".into(),
            sub_path: String::new(),
            read_only: false,
            recursive: false,
        }];
        assert_eq!(node.run(start).await.code, 6);
    });
}

#[test]
fn ends_are_reported_as_without_isolation() {
    with_isolation(async |node, _| {
        let exit = node.script("code", "echo out; echo err >&2; printf bye > $TALLY_TERMINATION_LOG; exit 7").await;
        assert_eq!((exit.code, exit.signal, exit.message.as_str()), (7, None, "bye"));
        let mut said: Vec<String> = node.log("code").await.lines().map(str::to_owned).collect();
        said.sort();
        assert_eq!(said, ["err", "out"]);
        let exit = node.script("signal", "kill -9 $$").await;
        assert_eq!((exit.code, exit.signal), (137, Some(9)));
        let exit = node.script("segv", "kill -SEGV $$").await;
        assert_eq!((exit.code, exit.signal), (139, Some(11)));
        // Most programs do not handle SIGTERM.
        for (container, argv, number, code) in [
            ("plain", vec!["sleep", "1000"], 15, 143),
            ("handles", vec!["sh", "-c", "trap 'exit 5' TERM; while :; do sleep 0.02; done"], 15, 5),
            ("interrupt", vec!["sleep", "1000"], 2, 130),
        ] {
            let mut start = shell(node.attempt(container, 0), "");
            start.argv = argv.into_iter().map(str::to_owned).collect();
            let attempt = start.attempt.clone();
            assert!(matches!(node.launch(start).await, Report::Started { .. }));
            // The shell needs a moment to set its trap.
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            node.send(ShimCommand::Signal { attempt: attempt.clone(), signal: Signal::Number(number) }).await;
            assert_eq!(node.next().await, Report::Signalled { attempt });
            assert_eq!(node.ended().await.code, code, "{container}");
        }
        // A large output is complete.
        let exit = node.script("large", "head -c 3000000 /dev/zero | tr '\\0' x").await;
        assert_eq!((exit.code, node.log("large").await.len()), (0, 3_000_000));
        for (argv, dir, told) in [
            (vec!["no-such-command"], None, "was not found in PATH="),
            (
                vec!["true"],
                Some("/no/such/directory"),
                "the working directory \"/no/such/directory\" cannot be entered",
            ),
            (vec!["/etc/passwd"], None, "it is not executable"),
        ] {
            let mut start = shell(node.attempt("wrong", 0), "");
            start.argv = argv.into_iter().map(str::to_owned).collect();
            start.working_dir = dir.map(str::to_owned);
            let refusal = node.refused(start).await;
            assert!(refusal.starts_with("StartError: ") && refusal.contains(told), "{refusal}");
        }
        let mut start = shell(node.attempt("dir", 0), "pwd");
        start.working_dir = Some("/usr/bin".to_owned());
        assert!(runs(node, "dir", start).await.ends_with("/bin\n"));
    });
}

/// The launcher and the first process tell the shim of themselves; a command may have ended before either has said it.
#[test]
fn commands_that_end_at_once_on_a_busy_machine_were_started() {
    with_isolation(async |node, _| {
        let mut busy: Vec<_> = (0..4).map(|_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn()).collect();
        for number in 0..40 {
            assert_eq!(says(node, &format!("c{number}"), "echo x").await, "x\n");
        }
        for process in busy.iter_mut().flatten() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    });
}

#[test]
fn what_a_container_leaves_running_ends_with_it() {
    with_isolation(async |node, _| {
        let (one, two) = (sign(), sign());
        let script = format!("env -i setsid nohup sleep {one} >/dev/null 2>&1 & (sleep {two} &) ; sleep 0.1");
        assert_eq!(node.script("main", &script).await.code, 0);
        assert_eq!((alive(&one), alive(&two)), (vec![], vec![]));
        // A process that many others have lost as their parent: they are reaped.
        let script = "i=0; while [ $i -lt 50 ]; do (sh -c 'sleep 0.01 &'); i=$((i+1)); done; sleep 0.3; ls -d /proc/[0-9]* | wc -l";
        let left: usize = says(node, "reaps", script).await.trim().parse().unwrap();
        assert!(left < 6, "{left} processes are left");
    });
}

#[test]
fn probes_run_in_the_container() {
    with_isolation(async |node, place| {
        let script = "echo mine > /tmp/own; echo ready; sleep 1000";
        let mut start = shell(node.attempt("main", 0), script);
        start.confinement.no_new_privileges = true;
        assert!(matches!(node.launch(start).await, Report::Started { .. }));
        let attempt = node.attempt("main", 0);
        let exec = |script: &str| Check::Exec { argv: ["sh", "-c", script].map(str::to_owned).to_vec() };
        let mut ready = Err(String::new());
        for _ in 0..200 {
            ready = node.check(attempt.clone(), exec("test -s /tmp/own"), 60_000).await;
            if ready.is_ok() {
                break;
            }
        }
        assert_eq!(ready, Ok(()));
        let data = place.join("data");
        let hidden = format!("cat {}/secret", data.display());
        assert!(node.check(attempt.clone(), exec(&hidden), 60_000).await.is_err());
        let own = "grep -q sleep /proc/[0-9]*/comm && grep -q 'NoNewPrivs:.1' /proc/self/status && kill -0 1";
        assert_eq!(node.check(attempt.clone(), exec(own), 60_000).await, Ok(()));
        let failed = node.check(attempt.clone(), exec("exit 3"), 60_000).await;
        assert_eq!(failed, Err("command terminated with exit code 3".to_owned()));
        let failed = node.check(attempt.clone(), exec("kill -9 $$"), 60_000).await;
        assert_eq!(failed, Err("command terminated by signal 9".to_owned()));
        let failed = node.check(attempt.clone(), exec("echo words; exit 1"), 60_000).await;
        assert_eq!(failed, Err("words\n".to_owned()));
        let late = sign();
        let failed = node.check(attempt.clone(), exec(&format!("sleep {late}")), 300).await;
        assert!(failed.unwrap_err().starts_with("command timed out"));
        until("it is killed", || alive(&late).is_empty()).await;
        node.send(ShimCommand::Signal { attempt: attempt.clone(), signal: Signal::Kill }).await;
        assert_eq!(node.next().await, Report::Signalled { attempt: attempt.clone() });
        assert_eq!(node.ended().await.code, 137);
        assert_eq!(node.check(attempt, exec("true"), 1000).await, Err("the container is not running".to_owned()));
    });
}

#[test]
fn volumes_are_where_they_are_wanted() {
    with_isolation(async |node, _| {
        let file = File { path: "a".into(), content: b"one\n".to_vec(), mode: 0o644 };
        let volumes = vec![
            Volume { name: "config".into(), content: Content::Files(vec![file]) },
            Volume { name: "data".into(), content: Content::Empty { in_memory: false, limit: None } },
            Volume { name: "fast".into(), content: Content::Empty { in_memory: true, limit: Some(1 << 20) } },
        ];
        assert!(matches!(node.prepare(volumes).await, Report::Prepared { .. }));
        let mount = |volume: &str, path: &str, sub_path: &str| Mount {
            volume: volume.into(),
            path: path.into(),
            sub_path: sub_path.into(),
            read_only: false,
            recursive: false,
        };
        let places = vec![
            mount("config", "/config", ""),
            mount("data", "/tmp/cache", ""),
            mount("data", "/not/there/at/all", "sub"),
            mount("fast", "/dev/shm", ""),
            mount("config", "/usr/lib/not-there", ""),
        ];
        // An ordinary user may not mount a tmpfs for several containers: the volume is a directory of the node.
        let in_memory = Command::new("stat").args(["-f", "-c", "%T"]).arg(&node.root).output().unwrap().stdout;
        let in_memory = if is_root() { "tmpfs\n".to_owned() } else { String::from_utf8(in_memory).unwrap() };
        for (container, read_only_root) in [("plain", false), ("read-only", true)] {
            let script = "cat /config/a /usr/lib/not-there/a; echo x > /tmp/cache/x; echo y > /not/there/at/all/y; cat /tmp/cache/x \
                 /tmp/cache/sub/y; echo z > /dev/shm/z; stat -f -c %T /dev/shm; (echo w > /config/w) 2>/dev/null || echo shut
                 echo $TALLY_VOLUME_CONFIG; printf said > /var/last-words; ls /usr/bin/env; echo > /dev/null";
            let mut start = shell(node.attempt(container, 0), script);
            start.mounts = places.clone();
            start.termination_message.path = "/var/last-words".into();
            start.confinement.read_only_root = read_only_root;
            let exit = node.run(start).await;
            let said = node.log(container).await;
            assert_eq!((exit.code, exit.message.as_str()), (0, "said"), "{container}: {said}");
            let config = "/usr/lib/not-there";
            assert_eq!(said, format!("one\none\nx\ny\n{in_memory}shut\n{config}\n/usr/bin/env\n"), "{container}");
        }
        assert!(!Path::new("/var/last-words").exists() && !Path::new("/config").exists());
        let pod = node.pod.clone();
        node.send(ShimCommand::Clean { pod: pod.clone() }).await;
        assert_eq!(node.next().await, Report::Cleaned { pod });
    });
}

fn both(test: impl AsyncFn(&mut Node, bool)) {
    with_isolation(async |node, _| test(node, true).await);
    let root = tempfile::tempdir().unwrap();
    block_on(async {
        let mut node = Node::start(root.path()).await;
        test(&mut node, false).await;
        node.stop().await;
    });
}

const STATUS: &str = "grep -E '^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp):' /proc/self/status";

/// The lines of /proc/self/status that are asked for.
fn status(said: &str, name: &str) -> String {
    let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} in {said}")).trim().to_owned()
}

#[test]
fn capabilities_are_those_of_the_settings() {
    if !is_root() {
        return skip("this user has no capabilities");
    }
    both(async |node, isolated| {
        let own = capabilities_of_this_process();
        for (container, wanted) in [
            ("none", Some(0)),
            ("default", Some(capabilities::DEFAULT)),
            ("one", Some(named(&["CHOWN"]))),
            ("all", None),
        ] {
            let confinement = Confinement { capabilities: wanted, ..Confinement::default() };
            let said = confined(node, container, confinement, STATUS).await;
            let expected = format!("{:016x}", wanted.unwrap_or(own));
            for set in ["CapPrm", "CapEff", "CapBnd"] {
                assert_eq!(status(&said, set), expected, "{container} {set}, isolated: {isolated}");
            }
            assert_eq!(status(&said, "CapInh"), "0000000000000000");
            assert_eq!(status(&said, "CapAmb"), "0000000000000000");
        }
        // Another user has none, and a program that root owns gives it no more than the bounding set.
        let mut start = shell(node.attempt("user", 0), STATUS);
        (start.user, start.group) = (Some(65532), Some(65532));
        start.confinement.capabilities = Some(named(&["NET_BIND_SERVICE"]));
        let said = runs(node, "user", start).await;
        assert_eq!(status(&said, "CapEff"), "0000000000000000");
        assert_eq!(status(&said, "CapPrm"), "0000000000000000");
        assert_eq!(status(&said, "CapBnd"), format!("{:016x}", named(&["NET_BIND_SERVICE"])));
    });
}

fn capabilities_of_this_process() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    u64::from_str_radix(&status(&text, "CapPrm"), 16).unwrap()
}

#[test]
fn no_new_privileges_and_seccomp_are_in_force() {
    both(async |node, isolated| {
        // Isolated containers have a filter of their own, without a profile.
        let filtered = if isolated { "2" } else { "0" };
        let said = confined(node, "plain", Confinement::default(), STATUS).await;
        assert_eq!((status(&said, "NoNewPrivs").as_str(), status(&said, "Seccomp").as_str()), ("0", filtered));
        let confinement = Confinement { no_new_privileges: true, ..Confinement::default() };
        let said = confined(node, "nnp", confinement, STATUS).await;
        assert_eq!((status(&said, "NoNewPrivs").as_str(), status(&said, "Seccomp").as_str()), ("1", filtered));
        let confinement = Confinement { seccomp: true, no_new_privileges: false, ..as_decided() };
        let script = format!(
            "{STATUS}; unshare -m true 2>/dev/null && echo mounts; unshare -U true 2>/dev/null && echo users
             mount -t tmpfs x /mnt 2>/dev/null && echo mounted; ls / >/dev/null && (sleep 0.01 & wait) && id -u >/dev/null && echo works"
        );
        let said = confined(node, "seccomp", confinement, &script).await;
        assert_eq!(status(&said, "Seccomp"), "2", "isolated: {isolated}");
        assert!(said.ends_with("\nworks\n") && !said.contains("mount") && !said.contains("users"), "{said}");
        // As in a container runtime, the filter alone does not forbid setuid programs.
        assert_eq!(status(&said, "NoNewPrivs"), if is_root() || isolated { "0" } else { "1" });
        let confinement = Confinement { seccomp: true, no_new_privileges: true, ..Confinement::default() };
        let said = confined(node, "all", confinement, STATUS).await;
        assert_eq!((status(&said, "NoNewPrivs").as_str(), status(&said, "Seccomp").as_str()), ("1", "2"));
    });
}

#[test]
fn the_root_is_read_only_and_devices_work() {
    if abilities::try_isolation(&program()).is_err() {
        return skip("no mount namespace can be made here");
    }
    both(async |node, isolated| {
        let confinement = Confinement { read_only_root: true, ..Confinement::default() };
        let script =
            "for place in / /etc /usr /var /home; do (echo > $place/.tally-test) 2>/dev/null && echo wrote $place; done
            (echo > /tmp/x) 2>/dev/null && echo wrote /tmp; echo > /dev/null && head -c 1 /dev/zero | wc -c
            cat /proc/self/comm; echo 0 > /proc/self/oom_score_adj; grep -c ' / / ro' /proc/self/mountinfo";
        let said = confined(node, "main", confinement, script).await;
        assert_eq!(said, "1\ncat\n1\n", "isolated: {isolated}");
        let said =
            confined(node, "plain", Confinement::default(), "grep -c ' / / ro' /proc/self/mountinfo; true").await;
        assert_eq!(said, "0\n");
    });
    assert!(!Path::new("/.tally-test").exists());
}

#[test]
fn groups_are_those_of_the_settings() {
    if !is_root() {
        return skip("only root can have other groups");
    }
    both(async |node, isolated| {
        let script = "grep ^Groups: /proc/self/status | cut -f2";
        for (container, user, ids, strict, expected) in [
            ("some", None, vec![3000, 2000], true, "2000 3000"),
            ("user", Some(65532), vec![2000], false, "2000"),
            ("none", Some(65532), vec![], true, ""),
        ] {
            let mut start = shell(node.attempt(container, 0), script);
            start.user = user;
            start.confinement.groups = Some(SupplementalGroups { ids, strict });
            assert_eq!(runs(node, container, start).await.trim(), expected, "{container}, isolated: {isolated}");
        }
    });
}

#[test]
fn volumes_belong_to_the_group_of_the_pod() {
    if !is_root() {
        return skip("only root can change the group of files");
    }
    both(async |node, isolated| {
        node.volume_group = Some(4321);
        let file = File { path: "deep/a".into(), content: b"one\n".to_vec(), mode: 0o400 };
        let volumes = vec![
            Volume { name: "config".into(), content: Content::Files(vec![file]) },
            Volume { name: "data".into(), content: Content::Empty { in_memory: false, limit: None } },
            Volume { name: "fast".into(), content: Content::Empty { in_memory: true, limit: None } },
        ];
        assert!(matches!(node.prepare(volumes).await, Report::Prepared { .. }));
        let mount = |volume: &str| Mount {
            volume: volume.into(),
            path: format!("/v-{volume}"),
            sub_path: String::new(),
            read_only: false,
            recursive: false,
        };
        let script = "id -u; cat /v-config/deep/a; stat -c '%g %a' /v-config/deep/a; for v in data fast; do touch /v-$v/new; \
             stat -c '%g %a' /v-$v; stat -c %g /v-$v/new; done";
        let mut start = shell(node.attempt("main", 0), script);
        (start.user, start.group) = (Some(65532), Some(65532));
        start.confinement.groups = Some(SupplementalGroups { ids: vec![4321], strict: true });
        start.mounts = ["config", "data", "fast"].map(mount).to_vec();
        let said = runs(node, "main", start).await;
        let expected = "65532\none\n4321 440\n4321 2777\n4321\n4321 2777\n4321\n";
        assert_eq!(said, expected, "isolated: {isolated}");
        let data = node.root.join("pods").join(node.pod.to_string()).join("volumes/data");
        assert_eq!(std::fs::metadata(&data).unwrap().gid(), 4321);
        assert_eq!(std::fs::metadata(&data).unwrap().permissions().mode() & 0o7777, 0o2777);
        let pod = node.pod.clone();
        node.send(ShimCommand::Clean { pod: pod.clone() }).await;
        assert_eq!(node.next().await, Report::Cleaned { pod });
        node.volume_group = None;
    });
}

#[test]
fn nothing_outlives_a_killed_shim() {
    with_isolation(async |node, _| {
        let left = sign();
        let script = format!("env -i setsid nohup sleep {left} >/dev/null 2>&1 & sleep {left}");
        assert!(matches!(node.launch(shell(node.attempt("main", 0), &script)).await, Report::Started { .. }));
        until("both sleep", || alive(&format!("sleep\0{left}")).len() == 2).await;
        kill(shim_of(&node.root));
        // Without the next shim: the first process of the namespace notices.
        until("everything ends", || alive(&left).is_empty()).await;
        node.recovered().await;
    });
}

/// Without isolation, a process that has left its group, its session, its parents and its environment.
#[test]
fn nothing_outlives_the_next_start_without_isolation() {
    let root = tempfile::tempdir().unwrap();
    let left = sign();
    block_on(async {
        let mut node = Node::start(root.path()).await;
        if !root.path().join("cgroup").exists() {
            skip("no control group can be made here");
            return node.stop().await;
        }
        let script =
            format!("(env -i setsid sh -c 'env -i setsid nohup sleep {left} >/dev/null 2>&1 &' &); sleep {left}");
        assert!(matches!(node.launch(shell(node.attempt("main", 0), &script)).await, Report::Started { .. }));
        until("both sleep", || alive(&format!("sleep\0{left}")).len() == 2).await;
        kill(shim_of(root.path()));
        node.recovered().await;
        assert_eq!(alive(&left), [0; 0]);
        let group = std::fs::read_to_string(root.path().join("cgroup")).unwrap();
        assert!(Path::new(&group).is_dir());
        node.stop().await;
        assert!(!root.path().join("cgroup").exists() && !Path::new(&group).exists(), "{group} is left");
    });
}

/// A node of a user without any rights, where the kernel permits user namespaces. `test` gets a directory that the user can
/// read, and in it the node's data, which are hidden.
fn with_another_user(test: impl AsyncFnOnce(&mut Node, &Path)) {
    let place = scratch();
    let wrapper = place.path().join("as-user");
    let drop = format!("exec setpriv --reuid=65534 --regid=65534 --clear-groups '{}' \"$@\"", program().display());
    std::fs::write(&wrapper, format!("#!/bin/sh\n{drop}\n")).unwrap();
    for (path, mode) in [(place.path(), 0o755), (wrapper.as_path(), 0o755)] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    if Command::new("setpriv").arg("--version").output().is_err() {
        return skip_without("setpriv");
    }
    let tried = is_root().then(|| abilities::try_isolation(&wrapper));
    if !matches!(tried, Some(Ok(()))) {
        return skip(format!("an ordinary user cannot isolate: {tried:?}"));
    }
    let data = place.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("secret"), "the key").unwrap();
    for path in [&data, &data.join("secret")] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    }
    block_on(async {
        let mut config = Config::new(wrapper, data.join("node"));
        config.hidden = Some(vec![data.clone()]);
        let mut node = Node::start_with(config).await;
        test(&mut node, place.path()).await;
        node.stop().await;
    });
}

#[test]
fn a_node_of_another_user_isolates_with_a_user_namespace() {
    with_another_user(async |node, place| {
        let script = format!(
            "id -u; ls -A {data} 2>/dev/null; cat {data}/secret 2>/dev/null; ls -d /proc/[0-9]* | wc -l | tr -d '[3-6]'; echo x > /tmp/x; cat /tmp/x
             grep CapEff /proc/self/status | cut -f2",
            data = place.join("data").display()
        );
        assert_eq!(says(node, "main", &script).await, "65534\n\nx\n0000000000000000\n");
        let left = sign();
        let script = format!("env -i setsid nohup sleep {left} >/dev/null 2>&1 & exec sleep {left}");
        let attempt = node.attempt("probed", 0);
        assert!(matches!(node.launch(shell(attempt.clone(), &script)).await, Report::Started { .. }));
        let check = Check::Exec { argv: ["sh", "-c", "test -d /proc/1 && id -u"].map(str::to_owned).to_vec() };
        assert_eq!(node.check(attempt.clone(), check, 60_000).await, Ok(()));
        node.send(ShimCommand::Signal { attempt: attempt.clone(), signal: Signal::Number(15) }).await;
        assert_eq!(node.next().await, Report::Signalled { attempt });
        assert_eq!(node.ended().await.code, 143);
        assert_eq!(alive(&left), [0; 0]);
    });
}

/// What `tally_node::security` decides on a node of an ordinary user.
fn decided_for_a_user(security_context: &serde_json::Value) -> Confinement {
    let abilities = SecurityAbilities { isolates: true, capabilities: 0, group: 65534, ..SecurityAbilities::default() };
    let spec = serde_json::json!({"name": "c", "securityContext": security_context});
    let (pod, container) = (pod::Spec::default(), serde_json::from_value::<pod::Container>(spec).unwrap());
    security::confinement(&pod, &container, SecurityNode { is_root: false, abilities: &abilities }, "who").unwrap()
}

/// In its user namespace a program with file capabilities could uncover what the mounts hide.
#[test]
fn containers_of_a_node_of_another_user_gain_no_privileges() {
    with_another_user(async |node, place| {
        let data = place.join("data").display().to_string();
        let umount = place.join("umount-with-capabilities");
        let found = Command::new("sh").args(["-c", "command -v umount"]).output().unwrap();
        std::fs::copy(String::from_utf8(found.stdout).unwrap().trim(), &umount).unwrap();
        let set =
            Command::new("setcap").arg("cap_sys_admin,cap_dac_override,cap_dac_read_search+ep").arg(&umount).status();
        let has_capabilities = set.as_ref().is_ok_and(std::process::ExitStatus::success);
        match set {
            Ok(set) if set.success() => {}
            Ok(set) => skip(format!("setcap cannot give capabilities to {}: {set}", umount.display())),
            Err(_) => skip_without("setcap"),
        }
        let has_perl = Command::new("perl").args(["-e", "1"]).status().is_ok_and(|ran| ran.success());
        if !has_perl {
            skip_without("perl");
        }
        let allowed = json!({"allowPrivilegeEscalation": true});
        let filtered = json!({"seccompProfile": {"type": "RuntimeDefault"}});
        let both = json!({"allowPrivilegeEscalation": true, "seccompProfile": {"type": "RuntimeDefault"}});
        for (name, context, no_new_privileges) in
            [("plain", json!({}), "1"), ("allowed", allowed, "0"), ("filtered", filtered, "1"), ("both", both, "0")]
        {
            let decided = decided_for_a_user(&context);
            let is_filtered = decided.seccomp;
            let said = confined(node, name, decided, STATUS).await;
            let shown = ["NoNewPrivs", "Seccomp"].map(|field| status(&said, field));
            assert_eq!(shown, [no_new_privileges, "2"], "{name}: {said}");
            for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
                assert_eq!(status(&said, set), "0000000000000000", "{name}: {set}");
            }
            if has_capabilities {
                let script = format!(
                    "{} {data} 2>/dev/null && echo uncovered; cat {data}/secret 2>/dev/null; echo done",
                    umount.display()
                );
                let said = confined(node, &format!("{name}-file"), decided_for_a_user(&context), &script).await;
                assert_eq!(said, "done\n", "{name}");
            }
            if has_perl {
                // Where the kernel would say that the descriptor is none (EBADF), the filter has refused before.
                let calls = [
                    format!(
                        "my $at = \"{data}\"; print syscall({}, $at, 0), \" \", $!{{EPERM}} ? \"refused\" : $!, \"\\n\";",
                        libc::SYS_umount2
                    ),
                    format!(
                        "open(my $own, \"<\", \"/proc/self/ns/mnt\"); print syscall({}, fileno($own), 0), \" \", $!{{EPERM}} ? \"refused\" : $!, \"\\n\";",
                        libc::SYS_setns
                    ),
                    format!(
                        "print syscall({}, -1, 0), \" \", $!{{EPERM}} ? \"refused\" : $!, \"\\n\";",
                        libc::SYS_setns
                    ),
                    format!(
                        "print syscall({}, -1, 0, 0), \" \", $!{{EPERM}} ? \"refused\" : $!, \"\\n\";",
                        libc::SYS_bpf
                    ),
                ];
                let count = if is_filtered { 4 } else { 2 };
                let script = format!("perl -e 'use Errno; {}'", calls[..count].concat());
                let said = confined(node, &format!("{name}-calls"), decided_for_a_user(&context), &script).await;
                assert_eq!(said, "-1 refused\n".repeat(count), "{name}");
            }
        }
    });
}
