//! The system calls that have no safe wrapper in the libraries we use. All `unsafe` code of this crate is here.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;

use rustix::process::{Pid, Signal};
use rustix::thread::UnshareFlags;

use crate::attempts::ResourceUsage;

/// A child that has ended and is not reaped yet. It stays in that state: until it is reaped, its ID refers to no other
/// process and no other group, so that a signal to its group reaches no other process.
pub fn ended_child() -> io::Result<Option<Pid>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: `info` is valid for a write of a siginfo_t, which is what the kernel writes.
    let outcome =
        unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), libc::WEXITED | libc::WNOHANG | libc::WNOWAIT) };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all zeroes is a valid siginfo_t, and si_pid is the member that waitid fills in; zero means none.
    let pid = unsafe { info.assume_init().si_pid() };
    Ok(Pid::from_raw(pid))
}

/// Reaps a child that has ended: its wait status, and what it has used. None: it has not ended, or there is no such child.
pub fn reap(pid: Pid) -> Option<(i32, ResourceUsage)> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both are valid for writes of what the kernel writes.
    let reaped = unsafe { libc::wait4(pid.as_raw_nonzero().get(), &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
    if reaped != pid.as_raw_nonzero().get() {
        return None;
    }
    // SAFETY: all zeroes is a valid rusage, and wait4 has filled it in.
    let usage = unsafe { usage.assume_init() };
    let micros = |time: libc::timeval| (time.tv_sec * 1_000_000 + time.tv_usec).unsigned_abs();
    let cpu_micros = micros(usage.ru_utime).saturating_add(micros(usage.ru_stime));
    let peak_kib = usage.ru_maxrss.unsigned_abs();
    Some((status, ResourceUsage { cpu_micros, peak_kib, peak_is_bound: peak_kib <= own_peak_kib() }))
}

/// The largest resident set size of this process so far.
fn own_peak_kib() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is valid for a write of a rusage, and all zeroes, which is what a failed call leaves, is one.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_maxrss.unsigned_abs()
}

/// Any existing signal, including those without a name: `stopSignal` may be SIGRTMIN+3.
pub fn signal(number: i32) -> Option<Signal> {
    let last = libc::SIGRTMAX();
    // SAFETY: the number is one that kill(2) accepts. Those that the C library reserves for itself do no harm here:
    // they are sent to another process, which has them at their default.
    (1..=last).contains(&number).then(|| unsafe { Signal::from_raw_unchecked(number) })
}

/// Leaves namespaces. Refuses to unshare file descriptors, which is what makes the call unsafe in general.
pub fn unshare(flags: UnshareFlags) -> io::Result<()> {
    if flags.intersects(UnshareFlags::FILES | UnshareFlags::FS) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the table of file descriptors stays shared, so no OwnedFd loses what it owns.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(io::Error::from)
}
