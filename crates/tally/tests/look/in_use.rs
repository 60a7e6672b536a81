//! A data directory that another process uses, and a cluster.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::tool::{Running, Watched, attempts, command, directory, eventually, tally, text};

fn job(data: &str, state: &str) -> Option<Value> {
    let said = tally(&["ps", "--data-dir", data, "-o", "json"]);
    let listed: Value = serde_json::from_str(&said.out).ok()?;
    let job = listed["jobs"][0].clone();
    (job["state"] == state).then_some(job)
}

#[test]
fn a_run_is_looked_at_while_it_goes_on() {
    let directory = directory();
    // Longer than the path of a socket may be.
    let data = directory.path().join("a-long-name-".repeat(12)).join("d");
    let release = directory.path().join("go");
    let script = format!(
        "echo begin $JOB_COMPLETION_INDEX; while [ ! -e {} ]; do sleep 0.05; done; echo end $JOB_COMPLETION_INDEX",
        text(&release)
    );
    let arguments =
        ["run", "--data-dir", text(&data), "--name", "sum", "-n", "2", "-i", "-p", "2", "--logs=none", "--"];
    let mut run = command(&arguments);
    let mut run = Running(run.args(["sh", "-c", &script]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let running = eventually("it runs", || job(text(&data), "Running").filter(|job| job["active"] == 2));
    assert_eq!(running["succeeded"], 0);
    let shown = eventually("both have started", || {
        let shown = tally(&["show", "sum", "--data-dir", text(&data), "-o", "json"]).json();
        let all = shown["attempts"].as_array().unwrap().iter().all(|it| it["state"] == "Running");
        all.then_some(shown)
    });
    assert_eq!(attempts(&shown), [(Some(0), 1, None), (Some(1), 1, None)]);
    let so_far = || tally(&["logs", "sum", "--data-dir", text(&data)]).out;
    eventually("both have printed", || (so_far() == "sum[0] begin 0\nsum[1] begin 1\n").then_some(()));

    let follow = ["logs", "sum", "--data-dir", text(&data), "-f"];
    let follow = Watched::start(&mut command(&follow));
    let one = ["logs", "sum", "--data-dir", text(&data), "-f", "--index", "1"];
    let one = Watched::start(&mut command(&one));
    follow.prints(&["sum[0] begin 0", "sum[1] begin 1"]);
    one.prints(&["begin 1"]);
    std::fs::write(&release, "").unwrap();
    let followed = follow.ends();
    let mut lines: Vec<&str> = followed.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["sum[0] begin 0", "sum[0] end 0", "sum[1] begin 1", "sum[1] end 1"], "{}", followed.err);
    assert_eq!(one.ends().out, "begin 1\nend 1\n");
    assert!(run.0.wait().unwrap().success());
    let after = tally(&["show", "sum", "--data-dir", text(&data), "-o", "json"]).json();
    assert_eq!((&after["job"]["state"], attempts(&after).len()), (&json!("Complete"), 2));
}

#[test]
fn a_job_that_was_stopped_is_not_called_running() {
    let directory = directory();
    let data = directory.path().join("d");
    let arguments = ["run", "--data-dir", text(&data), "--name", "long", "--logs=none", "--", "sleep", "1000"];
    let run = Running(command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    eventually("it runs", || {
        let shown = tally(&["show", "long", "--data-dir", text(&data), "-o", "json"]);
        let shown: Value = serde_json::from_str(&shown.out).ok()?;
        (shown["attempts"][0]["state"] == "Running").then_some(())
    });
    drop(run);
    let stopped = eventually("it was killed", || job(text(&data), "Stopped"));
    assert_eq!(stopped["active"], 0);
    let shown = eventually("the shim has recorded it", || {
        let shown = tally(&["show", "long", "--data-dir", text(&data), "-o", "json"]).json();
        (shown["attempts"][0]["message"] == "the node stopped").then_some(shown)
    });
    assert_eq!((&shown["attempts"][0]["state"], &shown["attempts"][0]["exitCode"]), (&json!("Lost"), &json!(null)));
    let table = tally(&["show", "long", "--data-dir", text(&data)]).out;
    assert!(table.contains("Stopped: unfinished, and no tally runs it"), "{table}");
}

#[test]
fn looking_does_not_keep_a_run_from_its_directory() {
    let directory = directory();
    let data = directory.path().join("d");
    let run = |name: &str| tally(&["run", "--data-dir", text(&data), "--name", name, "--quiet", "--", "true"]);
    assert_eq!(run("first").code, Some(0));
    let data_text = text(&data).to_owned();
    let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let lookers: Vec<_> = (0..2)
        .map(|_| {
            let (data, over) = (data_text.clone(), over.clone());
            std::thread::spawn(move || {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    let said = tally(&["ps", "--data-dir", &data]);
                    assert!(said.code == Some(0) && said.out.contains("first"), "{}{}", said.out, said.err);
                }
            })
        })
        .collect();
    for round in 0..6 {
        let said = run(&format!("job-{round}"));
        assert_eq!(said.code, Some(0), "{}", said.err);
    }
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    lookers.into_iter().for_each(|looker| looker.join().unwrap());
}

#[test]
fn a_cluster_is_looked_at_in_the_same_way() {
    let directory = directory();
    let data = directory.path().join("d");
    let script = "echo out $JOB_COMPLETION_INDEX; exit $JOB_COMPLETION_INDEX";
    let arguments =
        ["run", "--data-dir", text(&data), "--name", "sum", "-n", "2", "-i", "--backoff-limit-per-index", "0"];
    let ran = tally(&[&arguments[..], &["--logs=none", "--", "sh", "-c", script]].concat());
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let up = ["up", "--data-dir", text(&data), "--listen", "127.0.0.1:0"];
    let _up = Running(command(&up).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let kubeconfig = data.join("kubeconfig");
    eventually("it serves", || kubeconfig.exists().then_some(()));
    let place = ["--kubeconfig", text(&kubeconfig)];
    let with = |arguments: &[&str]| tally(&[arguments, &place[..]].concat());
    let listed = eventually("it answers", || Some(with(&["ps", "-o", "json"])).filter(|said| said.code == Some(0)));
    assert_eq!(
        (&listed.json()["jobs"][0]["name"], &listed.json()["jobs"][0]["state"]),
        (&json!("sum"), &json!("Failed"))
    );
    let shown = with(&["show", "sum", "-o", "json"]).json();
    assert_eq!(attempts(&shown), [(Some(0), 1, Some(0)), (Some(1), 1, Some(1))]);
    assert_eq!(shown["attempts"][0]["cpuSeconds"], json!(null));
    assert_eq!(with(&["logs", "sum"]).out, "sum[0] out 0\nsum[1] out 1\n");
    assert_eq!(with(&["logs", "sum", "--index", "1", "-f"]).out, "out 1\n");
    assert_eq!(with(&["ps", "-n", "other"]).out, "");
    let missing = with(&["show", "nothing"]);
    assert!(missing.code == Some(1) && missing.err.contains("it has sum"), "{}", missing.err);
    // The same process, through the socket in its directory: there are records.
    let local = tally(&["show", "sum", "--data-dir", text(&data), "-o", "json"]).json();
    assert!(local["attempts"][0]["cpuSeconds"].is_number(), "{local}");
    let unknown = tally(&["ps", "--context", "nowhere", "--kubeconfig", text(&kubeconfig)]);
    assert!(unknown.code == Some(3) && unknown.err.contains("no context \"nowhere\""), "{}", unknown.err);
}
