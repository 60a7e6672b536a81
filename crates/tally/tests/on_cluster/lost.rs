//! The server goes away while a Job is followed, and comes back.

use crate::server::Server;
use crate::tool::{Watched, text};

#[test]
fn the_view_goes_on_when_the_server_is_back() {
    let mut server = Server::start();
    let release = server.path("go");
    // A task that is stopped with its node is started again.
    let script = format!("echo begin; while [ ! -e {} ]; do sleep 0.05; done; echo end", text(&release));
    let job = ["--image", "i", "--name", "sum", "-n", "2", "-p", "2", "-i", "--", "sh", "-c", &script];
    let run = Watched::start(&mut server.command(&[&["run"], &job[..]].concat()));
    server.runs("sum", 2);
    server.stop();
    run.prints(&["cannot be reached, and is tried again"]);
    server.restart();
    server.runs("sum", 2);
    std::fs::write(&release, "").unwrap();
    let ran = run.ends();
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for told in ["cannot be reached, and is tried again", "answers again", "sum: Complete in ", "2/2 succeeded"] {
        assert!(ran.err.contains(told), "{told}: {}", ran.err);
    }
    for task in ["sum[0]", "sum[1]"] {
        assert_eq!(ran.out.lines().filter(|line| *line == format!("{task} end")).count(), 1, "{}", ran.out);
    }
}
