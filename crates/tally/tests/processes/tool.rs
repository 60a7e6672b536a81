//! Jobs whose processes can be distinguished from all others.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Ends a test that would otherwise hang; it asserts nothing.
const GIVE_UP_AFTER: Duration = Duration::from_secs(120);

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + GIVE_UP_AFTER;
    while !holds() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A Job of one container that runs a shell script. `HERE` is the directory of the test, in the script and in the
/// environment of every process it starts.
pub fn job(name: &str, here: &Path, spec: &str, pod: &str, script: &str) -> String {
    let here = here.to_str().expect("a plain path");
    format!(
        "apiVersion: batch/v1
kind: Job
metadata: {{name: {name}}}
spec:
  {spec}
  template:
    spec:
      {pod}
      containers:
        - name: main
          image: process
          env: [{{name: HERE, value: {here}}}]
          command: [sh, -c, {script:?}]
"
    )
}

/// The processes of such Jobs that are alive, by process ID and command line.
pub fn alive(here: &Path) -> Vec<String> {
    let mark = format!("\0HERE={}\0", here.display());
    let of = |process: &Path, file: &str| {
        fs::read(process.join(file)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let process = entry.ok()?.path();
        // A process that has ended and waits to be reaped has neither.
        let environment = of(&process, "environ").ok()?;
        let number = process.file_name()?.to_string_lossy().into_owned();
        let command = || of(&process, "cmdline").unwrap_or_default().replace('\0', " ");
        format!("\0{environment}\0").contains(&mark).then(|| format!("{number} {}", command()))
    });
    processes.collect()
}

/// The complete lines of a file that may not exist yet.
pub fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(str::to_owned).collect()
}
