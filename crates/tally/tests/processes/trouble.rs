//! Environment errors: a full disk, a volume that cannot be mounted; and mounts are removed again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::support::server;
use crate::tool::{alive, eventually, job, lines};

const INDEXES: usize = 300;
const AT_ONCE: usize = 4;

/// A small file system, mounted at a directory until it is dropped. `None`, with a message, if the user may not mount
/// one.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    fn mount(at: &'a Path, size: &str) -> Option<Self> {
        fs::create_dir(at).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", size, "small"]).arg(at).output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            tally_testing::skip("this user may not mount a small disk");
            return None;
        }
        Some(Self(at))
    }

    fn grow(&self, size: &str) {
        assert!(Command::new("mount").args(["-o", &format!("remount,{size}")]).arg(self.0).status().unwrap().success());
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

fn tally() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.arg("run").stdin(Stdio::null());
    command
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_full_disk_is_named_and_nothing_is_lost() {
    let directory = server::directory();
    let (here, small) = (directory.path(), directory.path().join("small"));
    let Some(disk) = Disk::mount(&small, "size=1m") else { return };
    let data = small.join("data");
    let run = || {
        let mut command = tally();
        let flags = ["--name", "sum", "-n", &INDEXES.to_string(), "-p", &AT_ONCE.to_string(), "--indexed"];
        command.arg("--data-dir").arg(&data).args(flags).arg("--env").arg(format!("HERE={}", here.display()));
        // The record of its work is on another file system; its output fills the small one.
        let script = "echo $JOB_COMPLETION_INDEX >> $HERE/done; head -c 5000 /dev/zero | tr '\\0' x";
        command.args(["--", "sh", "-c", script]).output().unwrap()
    };
    let full = run();
    let told = said(&full);
    assert_eq!(full.status.code(), Some(3), "{told}");
    for part in
        ["No space left on device", data.to_str().unwrap(), "free some space, then run the same command to resume"]
    {
        assert!(told.contains(part), "{part:?} is not in: {told}");
    }
    eventually("nothing runs on", || alive(here).is_empty());
    let before = lines(&here.join("done"));
    assert!(!before.is_empty() && before.len() < INDEXES, "the disk was full too soon or too late: {told}");

    disk.grow("size=200m");
    let rest = run();
    let told = said(&rest);
    assert_eq!(rest.status.code(), Some(0), "{told}");
    assert!(told.contains(&format!("; {INDEXES}/{INDEXES} succeeded")), "{told}");
    let mut runs = BTreeMap::new();
    for index in lines(&here.join("done")) {
        *runs.entry(index).or_insert(0) += 1;
    }
    assert_eq!(runs.len(), INDEXES);
    // Only indexes that had begun when the first run gave up may have been ended and repeated.
    let again = runs.values().filter(|count| **count > 1).count();
    assert!(again <= AT_ONCE && runs.values().all(|count| *count <= 2), "{runs:?}");
}

/// Killed when dropped.
struct Run(Child);

impl Run {
    fn signal(&self, name: &str) {
        let sent = Command::new("sh").args(["-c", &format!("kill -s {name} {}", self.0.id())]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(here: &Path, job: &str) -> Run {
    fs::write(here.join("job.yaml"), job).unwrap();
    fs::create_dir_all(here.join("temporary")).unwrap();
    let mut command = tally();
    command.arg("-f").arg(here.join("job.yaml")).env("TMPDIR", here.join("temporary"));
    Run(command.stdout(Stdio::null()).stderr(File::create(here.join("err")).unwrap()).spawn().unwrap())
}

fn with_volume(here: &Path, volume: &str, script: &str) -> String {
    let pod = format!("restartPolicy: Never\n      volumes: [{{name: v, {volume}}}]");
    let job = job("w", here, "", &pod, script);
    job.replace("image: process", "image: process\n          volumeMounts: [{name: v, mountPath: /v}]")
}

#[test]
fn a_volume_that_cannot_be_had_is_named_and_waited_for() {
    let directory = server::directory();
    let here = directory.path();
    let wanted = here.join("wanted");
    let volume = format!("hostPath: {{path: {}, type: Directory}}", wanted.display());
    let mut run = start(here, &with_volume(here, &volume, "cp $HERE/wanted/x $HERE/seen"));
    let told = || fs::read_to_string(here.join("err")).unwrap();
    let expected = format!(
        "volume \"v\": hostPath type check failed: {} is not a directory (there is nothing there: make it, or let type: \
         DirectoryOrCreate make it)",
        wanted.display()
    );
    eventually("it says what it waits for", || told().contains(&expected));
    fs::create_dir(here.join("made")).unwrap();
    fs::write(here.join("made/x"), "").unwrap();
    fs::rename(here.join("made"), &wanted).unwrap();
    assert_eq!(run.0.wait().unwrap().code(), Some(0), "{}", told());
    assert!(here.join("seen").exists());
}

#[test]
fn volumes_in_memory_leave_nothing_behind() {
    let directory = server::directory();
    let here = directory.path();
    let temporary = here.join("temporary");
    let mounts = || {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.lines().filter(|line| line.contains(here.to_str().unwrap())).count()
    };
    for (ends_by_itself, code) in [(true, 0), (false, 130)] {
        let script = "echo up >> $HERE/said; until [ -e $HERE/go ]; do sleep 0.05; done";
        let mut run = start(here, &with_volume(here, "emptyDir: {medium: Memory}", script));
        eventually("it runs", || lines(&here.join("said")) == ["up"]);
        if mounts() == 0 {
            println!("SKIPPED: this user may not mount a tmpfs, so there is nothing to leave behind");
        }
        if ends_by_itself {
            fs::write(here.join("go"), "").unwrap();
        } else {
            run.signal("INT");
        }
        assert_eq!(run.0.wait().unwrap().code(), Some(code));
        assert_eq!(mounts(), 0);
        assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
        for file in ["go", "said"] {
            let _ = fs::remove_file(here.join(file));
        }
    }
}
