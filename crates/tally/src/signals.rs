//! Signals that request a stop: the first one a graceful stop, the second one an immediate stop.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Time from the second signal to the exit of the process: a task that has not ended by then is blocked.
const AT_ONCE_WITHIN: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    No,
    InOrder,
    AtOnce,
}

impl Stop {
    fn next(self) -> Self {
        match self {
            Self::No => Self::InOrder,
            Self::InOrder | Self::AtOnce => Self::AtOnce,
        }
    }
}

/// The stop that has been requested so far. Signals that were ignored when the process started stay ignored: `nohup`
/// and shells that start a background process rely on this. `code`: the exit code if the process does not exit by
/// itself.
pub fn stop(kinds: &[SignalKind], code: i32) -> io::Result<watch::Receiver<Stop>> {
    let ignored = std::fs::read_to_string("/proc/self/status").map_or(0, |status| ignored(&status));
    // On a dedicated thread: signals are handled even if everything else is blocked.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (asked, stop) = watch::channel(Stop::No);
    let inside = runtime.enter();
    for kind in kinds.iter().filter(|kind| ignored & bit(**kind) == 0) {
        let (mut signal, asked) = (signal(*kind)?, asked.clone());
        runtime.spawn(async move {
            while signal.recv().await.is_some() {
                asked.send_modify(|stop| *stop = stop.next());
                if *asked.borrow() == Stop::AtOnce {
                    tokio::time::sleep(AT_ONCE_WITHIN).await;
                    std::process::exit(code);
                }
            }
        });
    }
    drop(inside);
    let hear = move || {
        runtime.block_on(async {
            let _asked = asked;
            std::future::pending::<()>().await;
        });
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(hear)?;
    Ok(stop)
}

/// Waits for the first signal. The value is not held: a further signal must be able to change it.
pub async fn asked(stop: &mut watch::Receiver<Stop>) {
    let _ = stop.wait_for(|stop| *stop != Stop::No).await;
}

fn bit(kind: SignalKind) -> u64 {
    u32::try_from(kind.as_raw_value() - 1).ok().and_then(|shift| 1u64.checked_shl(shift)).unwrap_or(0)
}

/// The signals that a process ignores, from its `/proc` status.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status() {
        let status = "Name:\ttally\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001003\nSigCgt:\t0000000000000000\n";
        for (kind, expected) in
            [(SignalKind::hangup(), true), (SignalKind::interrupt(), true), (SignalKind::terminate(), false)]
        {
            assert_eq!(ignored(status) & bit(kind) != 0, expected, "{kind:?}");
        }
        assert_eq!(ignored(""), 0);
    }

    #[test]
    fn the_second_signal_is_at_once() {
        assert_eq!(
            [Stop::No, Stop::InOrder, Stop::AtOnce].map(Stop::next),
            [Stop::InOrder, Stop::AtOnce, Stop::AtOnce]
        );
    }
}
