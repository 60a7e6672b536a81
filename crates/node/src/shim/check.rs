//! Probes and hooks.

use std::rc::Rc;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::unix::pipe;
use tokio::time::timeout;

use super::attempt::{KILL_FOR, Launcher, RunningAttempt, launched, spawn_launcher};
use super::cgroup::AttemptGroups;
use super::launch::Launch;
use super::reaper::Status;
use super::spawn::{Pipes, ProcessGroup, Program};
use super::{Shim, command};
use crate::port::{Attempt, Check, Confinement, Report};

/// The amount of a probe's output that the kubelet shows.
const MOST_OUTPUT: usize = 10 * 1024;
/// A status line is much shorter.
const MOST_HEAD: usize = 8 * 1024;

pub fn check(shim: &Rc<Shim>, id: u64, attempt: Attempt, check: Check, within: Duration) {
    let shim = shim.clone();
    tokio::task::spawn_local(async move {
        let outcome = match check {
            Check::Exec { argv } => exec(&shim, &attempt, argv, within).await,
            other => match timeout(within, ask(other)).await {
                Ok(outcome) => outcome,
                Err(_) => Err(format!("no answer within {within:?}")),
            },
        };
        shim.report(Report::Checked { id, outcome });
    });
}

async fn ask(check: Check) -> Result<(), String> {
    match check {
        Check::Sleep { seconds } => {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(())
        }
        Check::Tcp { host, port } => connect(&host, port).await.map(drop),
        Check::Http { scheme, .. } if !scheme.eq_ignore_ascii_case("http") => Err(format!(
            "{scheme} checks are not supported by the process runtime: use scheme HTTP, a tcpSocket or an exec check"
        )),
        Check::Http { host, port, path, headers, .. } => http(&host, port, &path, &headers).await,
        Check::Exec { .. } => Err("not a question".to_owned()),
    }
}

async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    // A process of this node has no address of its own and is reached at the machine's.
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    TcpStream::connect((host, port)).await.map_err(|error| format!("dial tcp {host}:{port}: {error}"))
}

async fn http(host: &str, port: u16, path: &str, headers: &[(String, String)]) -> Result<(), String> {
    let mut stream = connect(host, port).await?;
    let request = request(host, port, path, headers)?;
    stream.write_all(request.as_bytes()).await.map_err(|error| format!("Get {path:?}: {error}"))?;
    let mut head = Vec::new();
    while !head.contains(&b'\n') && head.len() < MOST_HEAD {
        match stream.read_buf(&mut head).await {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => return Err(format!("Get {path:?}: {error}")),
        }
    }
    match status(&head) {
        Some(code) if (200..400).contains(&code) => Ok(()),
        Some(code) => Err(format!("HTTP probe failed with statuscode: {code}")),
        None => Err(format!("Get {path:?}: the answer is not HTTP")),
    }
}

fn request(host: &str, port: u16, path: &str, headers: &[(String, String)]) -> Result<String, String> {
    let given = |wanted: &str| headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let mut request = format!("GET {path} HTTP/1.1\r\n");
    if !given("host") {
        let host = if host.is_empty() { "127.0.0.1" } else { host };
        request.push_str(&format!("Host: {host}:{port}\r\n"));
    }
    if !given("user-agent") {
        request.push_str("User-Agent: kube-probe/tally\r\n");
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("Connection: close\r\n\r\n");
    // Exactly one request, whatever the names and values contain.
    let lines = headers.len() + 2 + usize::from(!given("host")) + usize::from(!given("user-agent")) + 1;
    let breaks = request.bytes().filter(|byte| matches!(byte, b'\r' | b'\n')).count();
    if breaks == 2 * lines { Ok(request) } else { Err("the path or a header contains a line break".to_owned()) }
}

fn status(head: &[u8]) -> Option<u16> {
    let line = head.split(|&byte| byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    words.next()?.starts_with("HTTP/1.").then(|| words.next()?.parse().ok())?
}

/// Runs a command next to the container's own processes; it ends with them at the latest.
async fn exec(shim: &Rc<Shim>, attempt: &Attempt, argv: Vec<String>, within: Duration) -> Result<(), String> {
    let running = shim.attempts.borrow().get(attempt).cloned();
    let running = running.filter(|running| !running.over.get()).ok_or("the container is not running")?;
    let (pid, pipes, launcher) = spawn(shim, &running, argv)?;
    let mut ended = shim.reaper.expect(pid);
    running.helpers.borrow_mut().insert(pid);
    let mut said = Vec::new();
    let work = async {
        if let Some(launcher) = launcher
            && let Some(Err(failure)) = launched(launcher).await
        {
            return Err(failure.message);
        }
        let reading = read(pipes, &mut said);
        tokio::pin!(reading);
        let mut drained = false;
        let ended = tokio::select! {
            ended = &mut ended => ended,
            () = &mut reading => { drained = true; (&mut ended).await }
        };
        // Everything the command wrote before it ended can be read now.
        if !drained {
            let _ = timeout(Duration::from_millis(100), reading).await;
        }
        Ok(ended.map_or(Status::Signalled(libc::SIGKILL), |ended| ended.status))
    };
    let outcome = timeout(within, work).await;
    shim.reaper.signal(pid, Signal::KILL);
    // Until the command is gone it counts as part of the container: its children become orphans only then.
    if shim.reaper.knows(pid) {
        let _ = timeout(KILL_FOR, &mut ended).await;
    }
    running.helpers.borrow_mut().remove(&pid);
    match outcome {
        Ok(Ok(Status::Exited(0))) => Ok(()),
        Ok(Ok(_)) if !said.is_empty() => Err(String::from_utf8_lossy(&said).into_owned()),
        Ok(Ok(Status::Exited(code))) => Err(format!("command terminated with exit code {code}")),
        Ok(Ok(Status::Signalled(signal))) => Err(format!("command terminated by signal {signal}")),
        Ok(Err(failure)) => Err(failure),
        Err(_) => Err(format!("command timed out after {within:?}")),
    }
}

fn spawn(shim: &Shim, running: &RunningAttempt, argv: Vec<String>) -> Result<(Pid, Pipes, Option<Launcher>), String> {
    let name = argv.first().ok_or("there is no command")?.clone();
    let dir = running.working_dir.as_deref();
    if running.apart || running.cgroups.is_some() || running.confinement != Confinement::default() {
        let launch = Launch {
            argv,
            env: running.env.clone(),
            working_dir: running.working_dir.clone(),
            mounts: running.namespaces(),
            cgroups: running.cgroups.iter().flat_map(AttemptGroups::dirs).cloned().collect(),
            user: running.user,
            group: running.group,
            confinement: running.confinement.clone(),
            stdin: false,
            terminal: None,
            apart: false,
        };
        let (pid, pipes, launcher) = spawn_launcher(shim, &launch, None).map_err(|error| error.to_string())?;
        return Ok((pid, pipes, Some(launcher)));
    }
    let program = command::resolve(&name, &running.env, dir).map_err(|failure| failure.message)?;
    let spawned = Program::new(&program, &argv, &running.env, dir)
        .and_then(|program| shim.spawner.spawn(&program, shim.spawner.nothing(), ProcessGroup::Own));
    let (pid, pipes) = spawned.map_err(|error| command::not_executed(&name, &program, &error).message)?;
    Ok((pid, pipes, None))
}

/// Keeps the beginning of the output, and reads the rest so that the command does not block.
async fn read(pipes: Pipes, said: &mut Vec<u8>) {
    let said = std::cell::RefCell::new(said);
    let keep = async |mut pipe: pipe::Receiver| {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = pipe.read(&mut buffer).await {
            let mut said = said.borrow_mut();
            let room = MOST_OUTPUT.saturating_sub(said.len());
            said.extend_from_slice(&buffer[..length.min(room)]);
        }
    };
    tokio::join!(keep(pipes.stdout), keep(pipes.stderr));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_judged_by_their_status_line() {
        for (head, code) in [
            ("HTTP/1.1 200 OK\r\n", Some(200)),
            ("HTTP/1.0 404\r\n", Some(404)),
            ("HTTP/1.1 503 Service Unavailable\r\nx: y\r\n", Some(503)),
            ("SSH-2.0-OpenSSH\r\n", None),
            ("HTTP/1.1\r\n", None),
            ("", None),
        ] {
            assert_eq!(status(head.as_bytes()), code, "{head:?}");
        }
    }

    #[test]
    fn a_check_is_one_request() {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let made = request("", 80, "healthz", &[header("host", "example"), header("X-A", "b")]).unwrap();
        assert_eq!(
            made,
            "GET /healthz HTTP/1.1\r\nUser-Agent: kube-probe/tally\r\nhost: example\r\nX-A: b\r\nConnection: close\r\n\r\n"
        );
        assert!(request("", 80, "/ HTTP/1.1\r\n\r\nGET /", &[]).is_err());
        assert!(request("", 80, "/", &[header("a", "b\r\nc: d")]).is_err());
    }
}
