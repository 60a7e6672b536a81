//! What the commands refuse, what they say, and which credentials are valid after a restore.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::load::start;
use crate::support::client::{Api, Call};
use crate::support::server::{self, Server};
use crate::tool::{Said, data_directory, fails, files, number_after, ok, said, tally, text};

async fn call(api: &Api, call: Call) -> Value {
    let answer = api.connection().call(&call).await.unwrap();
    assert!(answer.code < 300, "{} {}", answer.code, answer.text);
    answer.value()
}

#[test]
fn a_backup_is_private_and_replaces_nothing_unless_told() {
    let directory = server::directory();
    let (data, file) = (directory.path().join("d"), directory.path().join("b.bak"));
    data_directory(&data, 100, 500);
    let told = ok(&["backup", text(&file), "--data-dir", text(&data)]);
    assert!(told.contains("100 objects at revision 101, without keys"), "{told}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let before = fs::read(&file).unwrap();
    let told = fails(&["backup", text(&file), "--data-dir", text(&data)]);
    assert!(told.contains("exists") && told.contains("--force"), "{told}");
    assert_eq!(fs::read(&file).unwrap(), before);
    fs::write(&file, "another file").unwrap();
    ok(&["backup", text(&file), "--data-dir", text(&data), "--force"]);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let told = fails(&["backup", text(&directory.path().join("c")), "--data-dir", text(&directory.path().join("no"))]);
    assert!(told.contains("has no state of tally"), "{told}");
    let mut names: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["b.bak", "d"], "nothing is left beside it");

    let new = directory.path().join("new");
    ok(&["restore", text(&file), "--data-dir", text(&new)]);
    let told = fails(&["restore", text(&file), "--data-dir", text(&new)]);
    assert!(told.contains("has a store"), "{told}");
    assert!(ok(&["check", text(&new)]).contains("100 objects at revision"), "a restored directory is sound");
    assert_eq!(fs::read_dir(&new).unwrap().count(), 1);
    let again = directory.path().join("again.bak");
    let told = ok(&["backup", text(&again), "--data-dir", text(&new)]);
    assert_eq!(number_after(&told, "at revision"), 101 + 1_000_000_000_000);
}

#[test]
fn a_backup_that_was_cut_or_edited_is_refused_with_words_and_nothing_is_made() {
    let directory = server::directory();
    let (data, file, new) = (directory.path().join("d"), directory.path().join("b.bak"), directory.path().join("new"));
    data_directory(&data, 50, 200);
    ok(&["backup", text(&file), "--data-dir", text(&data)]);
    let whole = fs::read(&file).unwrap();
    let mut edited = whole.clone();
    let at = edited.windows(7).rposition(|window| window == b"filling").unwrap();
    edited[at..at + 7].copy_from_slice(b"fulling");
    for (bytes, words) in [
        (&whole[..whole.len() - 20], "is cut short"),
        (&whole[..3], "is not a backup of tally"),
        (&edited[..], "is damaged or was edited at byte"),
        (&[&whole[..], b"more"].concat()[..], "more data after its end"),
    ] {
        fs::write(&file, bytes).unwrap();
        let told = fails(&["restore", text(&file), "--data-dir", text(&new)]);
        assert!(told.contains(words), "{words:?} is not in {told:?}");
        assert!(!new.exists() || fs::read_dir(&new).unwrap().count() == 0, "nothing is left in the directory");
    }
}

#[test]
fn a_damaged_directory_is_refused_with_the_commands_that_help_and_they_do() {
    let directory = server::directory();
    let data = directory.path().join("d");
    data_directory(&data, 200, 300);
    assert!(ok(&["check", text(&data)]).contains("nothing is damaged"));
    let holds = |path: &PathBuf| fs::read(path).unwrap().windows(7).any(|window| window == b"c000100");
    let log = files(&data.join("store/log")).into_iter().find(holds).unwrap();
    let mut bytes = fs::read(&log).unwrap();
    let at = bytes.windows(7).position(|window| window == b"c000100").unwrap() + 300;
    bytes[at] ^= 1;
    fs::write(&log, bytes).unwrap();

    let listen = ["up", "--no-node", "--listen", "127.0.0.1:0", "--data-dir", text(&data)];
    let told = fails(&listen);
    for part in ["is damaged", "`tally check`", "`tally salvage`", "`tally restore`"] {
        assert!(told.contains(part), "{part:?} is not in {told:?}");
    }
    let told = fails(&["check", text(&data)]);
    for part in [text(&log), "configmaps/default/c000100: cannot be read", "199 of 200 objects", "tally salvage"] {
        assert!(told.contains(part), "{part:?} is not in {told:?}");
    }
    assert!(fails(&["backup", text(&directory.path().join("b")), "--data-dir", text(&data)]).contains("is damaged"));
    let new = directory.path().join("new");
    let told = fails(&["salvage", text(&data), "--to", text(&new)]);
    assert!(told.contains("c000100: cannot be read") && told.contains("199 objects are in"), "{told}");
    assert!(ok(&["check", text(&new)]).contains("199 objects"));
    assert!(fails(&["salvage", text(&data), "--to", text(&new)]).contains("has a store"));
    // Of a directory that is not damaged everything is copied, and the exit code says so.
    let told = ok(&["salvage", text(&new), "--to", text(&directory.path().join("copy"))]);
    assert!(told.contains("199 objects are in"), "{told}");
    assert_eq!(tally(&["salvage", text(&new)]).code, Some(2));
}

/// The kubeconfig of a server, as it would be if the other server listened on its address.
fn moved(old: &Path, new: &Path) -> String {
    let url = |text: &str| text.lines().find(|line| line.trim().starts_with("server:")).unwrap().to_owned();
    let (old, new) = (fs::read_to_string(old).unwrap(), fs::read_to_string(new).unwrap());
    old.replace(&url(&old), &url(&new))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubeconfigs_and_tokens_are_valid_after_a_restore_unless_the_keys_were_left_out() {
    let directory = server::directory();
    let data = directory.path().join("data");
    let server = start(directory.path(), &data).await;
    let account = json!({"metadata": {"name": "ci"}});
    call(&server.api, Call::new("POST", "/api/v1/namespaces/default/serviceaccounts").body(&account)).await;
    let path = "/api/v1/namespaces/default/serviceaccounts/ci/token";
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = call(&server.api, Call::new("POST", path).body(&request)).await["status"]["token"].clone();
    // The server has no such path: a backup has the keys, so it is made only on the socket in the data directory.
    let answer = server.api.connection().call(&Call::get("/backup")).await.unwrap();
    assert_eq!(answer.code, 404, "{}", answer.text);
    let old = directory.path().join("old.kubeconfig");
    fs::copy(server.kubeconfig(), &old).unwrap();
    let (full, bare) = (directory.path().join("full.bak"), directory.path().join("bare.bak"));
    assert!(ok(&["backup", text(&full), "--data-dir", text(&data)]).contains("and the keys"));
    assert!(ok(&["backup", text(&bare), "--data-dir", text(&data), "--without-keys"]).contains("without keys"));
    let mut server = server;
    server.signal("TERM");
    assert_eq!(server.ended(), Some(0));
    // A cluster that is stopped gives the same.
    let stopped = directory.path().join("stopped.bak");
    assert!(ok(&["backup", text(&stopped), "--data-dir", text(&data)]).contains("and the keys"));

    for (file, valid) in [(&full, true), (&stopped, true), (&bare, false)] {
        let place = directory.path().join(file.file_stem().unwrap());
        let new = place.join("data");
        ok(&["restore", text(file), "--data-dir", text(&new)]);
        let keys = new.join("pki");
        assert_eq!(keys.exists(), valid);
        if valid {
            for path in files(&keys) {
                assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
            }
        }
        let server = start(&place, &new).await;
        let kubeconfig = place.join("old.kubeconfig");
        fs::write(&kubeconfig, moved(&old, &server.kubeconfig())).unwrap();
        let with_old = Api::from_kubeconfig(&kubeconfig).unwrap();
        let answer = with_old.connection().call(&Call::get("/api/v1/namespaces/default/serviceaccounts/ci")).await;
        assert_eq!(answer.is_ok_and(|answer| answer.code == 200), valid, "the kubeconfig of before");
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let review = call(&server.api, Call::new("POST", path).body(&review)).await;
        assert_eq!(review["status"]["authenticated"] == true, valid, "the token of before: {review}");
    }

    // A directory with the keys of another cluster is refused, one with the same keys is not: an interrupted restore.
    let mixed = directory.path().join("mixed");
    fs::create_dir_all(mixed.join("pki")).unwrap();
    fs::write(mixed.join("pki/ca.crt"), "another").unwrap();
    assert!(fails(&["restore", text(&full), "--data-dir", text(&mixed)]).contains("keys of another cluster"));
    assert!(!mixed.join("store").exists());
    let interrupted = directory.path().join("interrupted");
    fs::create_dir_all(interrupted.join("pki")).unwrap();
    for path in files(&directory.path().join("full/data/pki")) {
        fs::copy(&path, interrupted.join("pki").join(path.file_name().unwrap())).unwrap();
    }
    ok(&["restore", text(&full), "--data-dir", text(&interrupted)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_ran_when_the_backup_was_made_is_finished_after_the_restore() {
    let directory = server::directory();
    let (data, go) = (directory.path().join("data"), directory.path().join("go"));
    let server = Server::start_with(directory.path(), &["--data-dir", text(&data)]).await;
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done", text(&go));
    let container = json!({"name": "c", "image": "process", "command": ["sh", "-c", script]});
    let spec = json!({"restartPolicy": "Never", "containers": [container]});
    let job = json!({"metadata": {"name": "j"}, "spec": {"completions": 2, "parallelism": 2, "backoffLimit": 0, "template": {"spec": spec}}});
    call(&server.api, Call::new("POST", "/apis/batch/v1/namespaces/default/jobs").body(&job)).await;
    until(&server.api, |job| job["status"]["ready"] == 2).await;
    let file = directory.path().join("b.bak");
    ok(&["backup", text(&file), "--data-dir", text(&data)]);
    // The old cluster goes on for a while, and is lost.
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.kill();
    let place = directory.path().join("new");
    let new = place.join("data");
    ok(&["restore", text(&file), "--data-dir", text(&new)]);
    let server = Server::start_with(&place, &["--data-dir", text(&new)]).await;
    fs::write(&go, "").unwrap();
    let job = until(&server.api, |job| job["status"]["succeeded"] == 2).await;
    assert_eq!(job["status"]["conditions"].as_array().unwrap().last().unwrap()["type"], "Complete", "{job}");
}

/// The Job `j`, when it is so.
async fn until(api: &Api, is_so: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..1200 {
        let job = call(api, Call::get("/apis/batch/v1/namespaces/default/jobs/j")).await;
        if is_so(&job) {
            return job;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the Job is not as it should be within a minute");
}

/// Runs commands of tally, each in a line, where the data directory is on a file system that cannot be written. None:
/// it cannot be done here.
fn on_read_only(data: &Path, there: &Path, commands: &[&[&str]]) -> Option<Vec<Said>> {
    fs::create_dir_all(there).unwrap();
    let bind = format!("mount --bind {0} {1} && mount -o remount,ro,bind {1}", text(data), text(there));
    let mounts = |then: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &format!("{bind} && {then}"), "sh"]).stdin(Stdio::null());
        command
    };
    let refuses = mounts(&format!("! touch {}/probe 2>/dev/null", text(there))).output();
    if !refuses.is_ok_and(|tried| tried.status.success()) {
        return None;
    }
    let run = |command: &&[&str]| {
        let mut mounts = mounts("exec \"$@\"");
        said(mounts.arg(env!("CARGO_BIN_EXE_tally")).args(*command).output().unwrap())
    };
    Some(commands.iter().map(run).collect())
}

#[test]
fn everything_that_only_reads_works_on_a_read_only_file_system() {
    let directory = server::directory();
    let at = |name: &str| directory.path().join(name);
    let (data, there) = (at("d"), at("m"));
    let run = ["run", "--data-dir", text(&data), "--name", "sum", "-n", "2", "--indexed", "--logs=none", "--"];
    ok(&[&run[..], &["sh", "-c", "echo hello $JOB_COMPLETION_INDEX"]].concat());
    let before: Vec<_> = files(&data).into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect();
    let (backup, new, place) = (at("b"), at("new"), ["--data-dir", text(&there)]);
    let commands: [&[&str]; 7] = [
        &["check", text(&there)],
        &[&["ps"], &place[..]].concat(),
        &[&["show", "sum"], &place[..]].concat(),
        &[&["logs", "sum"], &place[..]].concat(),
        &[&["explain", "job/sum"], &place[..]].concat(),
        &[&["backup", text(&backup)], &place[..]].concat(),
        &["salvage", text(&there), "--to", text(&new)],
    ];
    let Some(told) = on_read_only(&data, &there, &commands) else {
        return tally_testing::skip("no read-only mount can be made in a mount namespace");
    };
    for (command, said) in commands.iter().zip(&told) {
        assert_eq!(said.code, Some(0), "{command:?}: {}{}", said.out, said.err);
    }
    let [_, ps, show, logs, ..] = &told[..] else { unreachable!() };
    assert!(ps.out.contains("sum") && ps.out.contains("Complete"), "{}", ps.out);
    assert!(show.out.contains("Complete"), "{}", show.out);
    assert_eq!(logs.out, "sum[0] hello 0\nsum[1] hello 1\n");
    let after: Vec<_> = files(&data).into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect();
    assert!(before == after, "nothing is changed");
    // What was copied from there is whole.
    let restored = at("restored");
    ok(&["restore", text(&backup), "--data-dir", text(&restored)]);
    for copy in [&restored, &new] {
        ok(&["check", text(copy)]);
        assert!(ok(&["ps", "--data-dir", text(copy)]).contains("sum"));
    }
    // A damaged store is not read as if it were whole, and salvage says what is lost.
    for path in files(&data.join("store/log")) {
        let mut bytes = fs::read(&path).unwrap();
        bytes.iter_mut().skip(64).step_by(97).for_each(|byte| *byte ^= 0x5a);
        fs::write(path, bytes).unwrap();
    }
    let damaged: [&[&str]; 2] = [&["check", text(&there)], &[&["ps"], &place[..]].concat()];
    let told = on_read_only(&data, &there, &damaged).unwrap();
    assert_eq!(told[0].code, Some(1), "{}", told[0].out);
    assert!(told[1].code == Some(3) && !told[1].out.contains("sum"), "{}{}", told[1].out, told[1].err);
}
