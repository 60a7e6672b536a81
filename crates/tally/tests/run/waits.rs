//! Nothing hangs without an end: Pods that can never start, limits of waiting, deadlines that are not early, and how many
//! Pods run at a time. With real processes.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::tool::{Said, directory, eventually, file, said, text};

fn tally(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.arg("run").args(arguments).stdin(Stdio::null());
    command
}

fn ends(arguments: &[&str]) -> Said {
    said(tally(arguments).output().unwrap())
}

/// A Job whose Pod has these fields.
fn job(pod: &str, container: &str) -> String {
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: j}}\nspec:\n  template:\n    spec:\n      restartPolicy: Never\n      \
         {pod}\n      containers:\n      - {{name: c, image: process, command: ['true']{container}}}\n"
    )
}

#[test]
fn a_pod_that_can_never_start_here_ends_the_run_at_once() {
    let rows = [
        ("", ", resources: {requests: {cpu: 64k}}", "it requests 64k of cpu, and this machine has "),
        ("", ", resources: {requests: {memory: 1Ei}}", "it requests 1Ei of memory, and this machine has "),
        (
            "",
            ", resources: {limits: {example.com/gpu: 1}}",
            "it requests 1 of example.com/gpu, and this machine has no example.com/gpu",
        ),
        (
            "nodeSelector: {disk: ssd}",
            "",
            "this machine does not have the labels that its nodeSelector or affinity wants",
        ),
        ("volumes: [{name: v, nfs: {server: a, path: /b}}]", "", "has no nfs volumes"),
        ("volumes: [{name: v, persistentVolumeClaim: {claimName: x}}]", "", "persistentvolumeclaim \"x\" not found"),
    ];
    for (pod, container, why) in rows {
        let directory = directory();
        // Something else runs at the same time: it is not waited for.
        let other = job("", "").replace("name: j}", "name: other}").replace("['true']", "[sleep, '300']");
        let path = file(directory.path(), "j.yaml", &(job(pod, container) + "---\n" + &other));
        let began = Instant::now();
        let said = ends(&["-f", text(&path)]);
        assert_eq!(said.code, Some(3), "{}", said.err);
        assert!(said.err.contains("tally: Job j: Pod j-") && said.err.contains(why), "{}", said.err);
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    }
}

/// CLAIM-5
#[test]
fn a_run_brings_its_claims_and_ends_if_one_gets_no_volume() {
    let directory = directory();
    let claim = "---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: c}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
";
    let volumes = "volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]";
    let used = job(volumes, ", volumeMounts: [{name: v, mountPath: /data}]")
        .replace("['true']", "[sh, -c, 'echo a > /data/file && cat /data/file']");
    let path = file(directory.path(), "j.yaml", &(used.clone() + claim));
    let said = ends(&["-f", text(&path)]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let path = file(
        directory.path(),
        "j.yaml",
        &(used + &claim.replace("{accessModes", "{storageClassName: fast, accessModes")),
    );
    let said = ends(&["-f", text(&path)]);
    assert_eq!(said.code, Some(3), "{}", said.err);
    let why = "nothing here provisions volumes of the storage class \"fast\"";
    assert!(said.err.contains("tally: Job j: Pod j-") && said.err.contains(why), "{}", said.err);
}

/// PENDING-3: what might start is waited for, as long as the Job says.
#[test]
fn a_pod_that_waits_for_room_too_long_fails_its_job() {
    let directory = directory();
    let cpus = std::thread::available_parallelism().unwrap().to_string();
    let limit = "annotations: {tally.dev/pending-timeout: Unschedulable=1s}";
    let first = job("", &format!(", resources: {{requests: {{cpu: {cpus}}}}}")).replace("['true']", "[sleep, '5']");
    let [first, second] = ["j", "second"].map(|name| first.replace("name: j}", &format!("name: {name}, {limit}}}")));
    let path = file(directory.path(), "j.yaml", &(first + "---\n" + &second));
    let said = ends(&["-f", text(&path)]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    let told = said.out + &said.err;
    assert!(told.contains(": PendingTimeout: Pod ") && told.contains("Insufficient cpu"), "{told}");
    assert!(told.contains("Complete in "), "the other one has the room: {told}");
}

/// PENDING-1.
#[test]
fn the_limit_of_a_command_is_a_flag() {
    let printed = ends(&["--dry-run", "--pending-timeout", "10m", "--", "true"]).out;
    assert!(printed.contains("tally.dev/pending-timeout: 10m"), "{printed}");
    let said = ends(&["--pending-timeout", "soon", "--", "true"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("is not a duration above zero, for example \"10m\""), "{}", said.err);
}

/// DEADLINE-7: the startTime of a Job has whole seconds, and a deadline is not early by the rest.
#[test]
fn a_deadline_is_never_early() {
    for _ in 0..4 {
        let began = Instant::now();
        let said = ends(&["--deadline", "1s", "--", "sleep", "30"]);
        assert_eq!(said.code, Some(1), "{}", said.err);
        assert!(said.err.contains("DeadlineExceeded"), "{}", said.err);
        assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    }
}

/// More Pods than the usual 250 run at a time if that is asked for: each waits until all are there.
#[test]
fn as_many_pods_run_at_a_time_as_are_asked_for() {
    let directory = directory();
    let here = text(directory.path());
    let script =
        format!("touch {here}/$JOB_COMPLETION_INDEX; until [ $(ls {here} | wc -l) -ge 270 ]; do sleep 0.5; done");
    let said = ends(&["-n", "270", "-p", "270", "-i", "--logs=none", "--deadline", "100s", "--", "sh", "-c", &script]);
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
}

/// What `tally explain` says, once nothing has moved for a while.
#[test]
fn a_job_that_does_not_move_is_explained() {
    let directory = directory();
    let manifest = job("", "").replace("spec:\n  template", "spec:\n  parallelism: 0\n  template");
    let path = file(directory.path(), "j.yaml", &manifest);
    for (form, signs) in [
        ("text", &["j: spec.parallelism is 0"][..]),
        ("json", &["\"event\":\"standstill\"", "\"reason\":\"NoParallelism\"", "\"change\":\"Raise spec.parallelism"]),
    ] {
        let printed = directory.path().join(form);
        let to = || std::fs::File::options().create(true).append(true).open(&printed).unwrap();
        let mut run = tally(&["-f", text(&path), "-o", form]).stdout(to()).stderr(to()).spawn().unwrap();
        eventually("it is explained", || {
            let printed = std::fs::read_to_string(&printed).unwrap();
            signs.iter().all(|sign| printed.contains(sign))
        });
        run.kill().unwrap();
        run.wait().unwrap();
    }
}
