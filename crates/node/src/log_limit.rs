//! How much disk space the logs of Pods that have ended may use: the oldest are removed first.
//!
//! Logs of Pods that have not ended are bounded by the limits of each log (`shim/log.rs`).

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use tally_core::ids::PodUid;

use crate::shim::layout::Layout;

/// The logs of one Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLogs {
    pub pod: PodUid,
    pub bytes: u64,
    /// When they were last written.
    pub written_at: SystemTime,
}

/// The logs under the node's root.
pub fn sizes(root: &Path) -> io::Result<Vec<PodLogs>> {
    let mut all = Vec::new();
    let pods = match fs::read_dir(Layout::new(root).pods()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(all),
        pods => pods?,
    };
    for pod in pods {
        let pod = pod?;
        let Some(uid) = pod.file_name().to_str().map(PodUid::new) else { continue };
        let mut logs = PodLogs { pod: uid, bytes: 0, written_at: SystemTime::UNIX_EPOCH };
        // The Pod may be removed meanwhile.
        for file in fs::read_dir(pod.path()).into_iter().flatten().filter_map(Result::ok) {
            let is_log = file.file_name().to_str().is_some_and(|name| name.ends_with(".log"));
            if let (true, Ok(metadata)) = (is_log, file.metadata()) {
                logs.bytes += metadata.len();
                logs.written_at = logs.written_at.max(metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH));
            }
        }
        if logs.bytes > 0 {
            all.push(logs);
        }
    }
    Ok(all)
}

/// The Pods whose logs have to go so that those of Pods that have ended have at most `most` bytes.
pub fn choose(mut logs: Vec<PodLogs>, ended: &HashSet<PodUid>, most: u64) -> Vec<PodLogs> {
    logs.retain(|logs| ended.contains(&logs.pod));
    logs.sort_by(|one, other| (one.written_at, &one.pod).cmp(&(other.written_at, &other.pod)));
    let mut left: u64 = logs.iter().map(|logs| logs.bytes).sum();
    let count = logs.iter().take_while(|logs| {
        let goes = left > most;
        left -= if goes { logs.bytes } else { 0 };
        goes
    });
    let count = count.count();
    logs.truncate(count);
    logs
}

/// Removes the logs of a Pod that has ended.
pub fn remove(root: &Path, pod: &PodUid) {
    let layout = Layout::new(root);
    for attempt in layout.attempts(pod).unwrap_or_default() {
        if let Ok(files) = layout.attempt(&attempt) {
            for number in files.logs().unwrap_or_default() {
                // A file that cannot be removed now is tried again with the next look.
                let _ = fs::remove_file(files.log(number));
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn pod(number: u128) -> PodUid {
        PodUid::from_u128(number)
    }

    #[test]
    fn the_oldest_logs_of_pods_that_have_ended_go_until_the_rest_fits() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let logs = |number, bytes, seconds| PodLogs { pod: pod(number), bytes, written_at: at(seconds) };
        let all = vec![logs(1, 10, 30), logs(2, 20, 10), logs(3, 30, 20), logs(4, 1000, 5)];
        // The fourth still runs.
        let ended: HashSet<PodUid> = (1..4).map(pod).collect();
        for (most, gone) in [
            (u64::MAX, &[][..]),
            (61, &[]),
            (60, &[]),
            (59, &[2]),
            (40, &[2]),
            (39, &[2, 3]),
            (10, &[2, 3]),
            (9, &[2, 3, 1]),
            (0, &[2, 3, 1]),
        ] {
            let chosen: Vec<PodUid> = choose(all.clone(), &ended, most).into_iter().map(|logs| logs.pod).collect();
            assert_eq!(chosen, gone.iter().copied().map(pod).collect::<Vec<_>>(), "at most {most} bytes");
        }
    }

    #[test]
    fn logs_are_measured_and_removed_and_other_files_stay() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(sizes(root.path()).unwrap(), []);
        let layout = Layout::new(root.path());
        for number in 1..3 {
            let dir = layout.pod(&pod(number)).unwrap();
            fs::create_dir_all(&dir).unwrap();
            for (name, size) in [("main.0.0.log", 100), ("main.0.1.log", 20), ("side.1.0.log", 3), ("other", 5000)] {
                fs::write(dir.join(name), vec![b'x'; size]).unwrap();
            }
        }
        assert_eq!(sizes(root.path()).unwrap().iter().map(|logs| logs.bytes).collect::<Vec<_>>(), [123, 123]);
        remove(root.path(), &pod(1));
        let left = sizes(root.path()).unwrap();
        assert_eq!(left.iter().map(|logs| &logs.pod).collect::<Vec<_>>(), [&pod(2)]);
        assert!(layout.pod(&pod(1)).unwrap().join("other").exists());
    }
}
