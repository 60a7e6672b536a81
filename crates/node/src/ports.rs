//! On which ports the processes of a Pod listen. Pods have the network of the machine, so a port alone does not say whose it
//! is: the kernel's table of sockets and the open files of processes do.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::Pid;
use tally_core::ids::PodUid;

use crate::shim::processes;

/// The state of a socket that listens, in the kernel's table.
const LISTENS: &str = "0A";

/// Whether a process of the Pod listens on this TCP port. `root`: the node's directory.
pub fn listens(root: &Path, pod: &PodUid, port: u16) -> bool {
    let sockets: HashSet<u64> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| listening(&table, port))
        .collect();
    if sockets.is_empty() {
        return false;
    }
    let root = fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
    let prefix = processes::mark_of_pod(pod);
    let own = namespace(Path::new("/proc/self"));
    let (mut of_pod, mut others) = (Vec::new(), Vec::new());
    for process in processes::all() {
        let place = PathBuf::from(format!("/proc/{}", process.pid.as_raw_nonzero()));
        match is_marked(process.pid, &root, &prefix) {
            true => of_pod.push(place),
            false => others.push(place),
        }
    }
    // A process may have changed its environment. It cannot leave the PID namespace of an isolated container.
    let namespaces: HashSet<u64> =
        of_pod.iter().filter_map(|place| namespace(place)).filter(|found| Some(*found) != own).collect();
    of_pod.extend(others.into_iter().filter(|place| namespace(place).is_some_and(|found| namespaces.contains(&found))));
    of_pod.iter().any(|place| has_open(place, &sockets))
}

fn is_marked(pid: Pid, root: &Path, prefix: &str) -> bool {
    processes::marked(pid, root).is_some_and(|mark| mark.starts_with(prefix))
}

fn namespace(process: &Path) -> Option<u64> {
    fs::metadata(process.join("ns/pid")).ok().map(|about| about.ino())
}

fn has_open(process: &Path, sockets: &HashSet<u64>) -> bool {
    let Ok(files) = fs::read_dir(process.join("fd")) else { return false };
    files.filter_map(Result::ok).filter_map(|file| fs::read_link(file.path()).ok()).any(|target| {
        let number = target.to_str().and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
        number.is_some_and(|number: u64| sockets.contains(&number))
    })
}

/// The inodes of the sockets that listen on a port.
fn listening(table: &str, port: u16) -> Vec<u64> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
        let number = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
        (number == port && *state == LISTENS).then(|| inode.parse().ok())?
    };
    table.lines().filter_map(line).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_found_by_their_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 123 1 x\n\
            1: 0100007F:1F90 0100007F:1F91 01 00000000:00000000 00:00000000 00000000     0        0 124 1 x\n\
            2: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 125 1 x\n";
        assert_eq!(listening(table, 8080), [123, 125]);
        assert_eq!(listening(table, 8081), [0; 0]);
    }

    #[test]
    fn the_port_of_another_process_is_not_one_of_the_pod() {
        let root = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(!listens(root.path(), &PodUid::from_u128(7), port));
    }
}
