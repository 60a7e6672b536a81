//! What `/proc` tells about a process: its processor time, its memory, its children.

use std::fs;

/// Linux reports 100 ticks per second (USER_HZ) on every architecture that Tally runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor time used so far in seconds, of all threads. None: there is no such process.
pub fn processor_seconds(pid: u32) -> Option<f64> {
    of_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Resident memory (RSS) in bytes.
pub fn memory(pid: u32) -> Option<u64> {
    of_status(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmRSS:")
}

/// The most resident memory so far, in bytes.
pub fn peak_memory(pid: u32) -> Option<u64> {
    of_status(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmHWM:")
}

/// The processes that a thread of this one has started.
pub fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_thread = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).unwrap_or_default();
    threads.flat_map(|thread| numbers(&of_thread(thread))).collect()
}

/// User and system time. The name of the command is in parentheses and may contain anything, also `) `.
fn of_stat(text: &str) -> Option<f64> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

fn of_status(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

fn numbers(text: &str) -> Vec<u32> {
    text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_whatever_the_command_is_called() {
        let rest = "S 1 2 3 0 -1 4194560 100 0 0 0 150 25 7 8 20 0 9 0 12345 1000 200";
        for name in ["tally", "a b", "odd) name (", ") R 1 1"] {
            assert_eq!(of_stat(&format!("4711 ({name}) {rest}")), Some(1.75), "{name}");
        }
        for wrong in ["", "4711 tally S 1", "4711 (tally) S 1 2 3", "4711 (tally) S 1 2 3 0 -1 0 0 0 0 0 x y"] {
            assert_eq!(of_stat(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let text = "Name:\ttally\nVmHWM:\t   2048 kB\nVmRSS:\t      1 kB\nThreads:\t3\n";
        assert_eq!((of_status(text, "VmHWM:"), of_status(text, "VmRSS:")), (Some(2048 * 1024), Some(1024)));
        assert_eq!((of_status(text, "Threads:"), of_status("", "VmRSS:")), (None, None));
    }

    #[test]
    fn this_process_is_found() {
        let own = std::process::id();
        assert!(memory(own).unwrap() > 0 && peak_memory(own).unwrap() > 0 && processor_seconds(own).unwrap() >= 0.0);
        assert_eq!(processor_seconds(u32::MAX), None);
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let found = children(own);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&child.id()), "{found:?}");
    }
}
