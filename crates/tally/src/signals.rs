//! Signals that ask for an end: the first in order, the second at once.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// After the second signal: whoever has not ended by then waits for something that does not come.
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

/// What has been asked for so far. Signals that were ignored when the process began stay so: `nohup` and shells that start
/// something in the background mean it. `code`: how the process ends if it does not by itself.
pub fn stop(kinds: &[SignalKind], code: i32) -> io::Result<watch::Receiver<Stop>> {
    let ignored = std::fs::read_to_string("/proc/self/status").map_or(0, |status| ignored(&status));
    // With a thread of its own: whatever else is stuck, somebody hears.
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

fn bit(kind: SignalKind) -> u64 {
    u32::try_from(kind.as_raw_value() - 1).ok().and_then(|shift| 1u64.checked_shl(shift)).unwrap_or(0)
}

/// The signals that a process ignores, of the kernel's words about it.
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
