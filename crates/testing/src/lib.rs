//! What tests of several crates share. No code of the product depends on it.

use std::fs::File;
use std::io::Write;

use tempfile::TempDir;

/// A directory for one test, on a disk, so that syncing means something. It is not in the checkout: an isolated Pod has
/// a `/tmp` of its own, scripts of tests contain the path without quotes, and another user may run the tests.
pub fn scratch() -> TempDir {
    let made = tempfile::Builder::new().prefix("tally-test-").tempdir_in("/var/tmp");
    made.unwrap_or_else(|error| panic!("no directory for a test can be made in /var/tmp: {error}"))
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A test, or the rest of it, is not run because this user or this machine cannot: no root, no control groups, no
/// namespaces. `make test` prints these lines at its end.
pub fn skip(reason: impl std::fmt::Display) {
    let thread = std::thread::current();
    let line = format!("skipped: {}: {reason}", thread.name().unwrap_or("a test"));
    println!("{line}");
    let Some(list) = std::env::var_os("TALLY_SKIPPED") else { return };
    let written = File::options().create(true).append(true).open(&list).and_then(|mut file| writeln!(file, "{line}"));
    assert!(written.is_ok(), "{}: {written:?}", list.display());
}

/// The same because a program is not installed, which in CI is a failure: `make tools` installs all of them there.
pub fn skip_without(tool: &str) {
    let reason = format!("{tool} is not installed; `make tools` installs it where it can");
    assert!(std::env::var_os("CI").is_none(), "{reason}");
    skip(reason);
}
