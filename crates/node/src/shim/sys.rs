//! The system calls that have no safe wrapper in the libraries we use. All `unsafe` code of this crate is here.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::process::{Pid, Signal};
use rustix::thread::UnshareFlags;

use super::spawn::{ProcessGroup, Program};
use crate::attempts::ResourceUsage;

/// Starts a program with these standard streams, default signals and an empty signal mask. This process is not forked: the
/// new one borrows its memory until it executes the program, whose failure is the error here.
pub fn spawn(program: &Program, streams: [BorrowedFd<'_>; 3], group: ProcessGroup) -> io::Result<Pid> {
    let check = |code| if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) };
    let argv: Vec<_> = program.argv.iter().map(|word| word.as_ptr().cast_mut()).chain([ptr::null_mut()]).collect();
    let variables = program.env.as_c_strings().map(|variable| variable.as_ptr().cast_mut());
    let envp: Vec<_> = variables.chain([ptr::null_mut()]).collect();
    let actions = FileActions::new()?;
    let attributes = Attributes::new()?;
    // SAFETY: both are initialised; the descriptors are open, and the library keeps copies of what it is given.
    unsafe {
        for (stream, number) in streams.iter().zip(0..) {
            check(libc::posix_spawn_file_actions_adddup2(actions.0.get(), stream.as_raw_fd(), number))?;
        }
        if let Some(dir) = &program.dir {
            check(libc::posix_spawn_file_actions_addchdir_np(actions.0.get(), dir.as_ptr()))?;
        }
        let mut signals = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(signals.as_mut_ptr());
        check(libc::posix_spawnattr_setsigmask(attributes.0.get(), signals.as_ptr()))?;
        // Rust programs ignore it.
        libc::sigaddset(signals.as_mut_ptr(), libc::SIGPIPE);
        check(libc::posix_spawnattr_setsigdefault(attributes.0.get(), signals.as_ptr()))?;
        let mut flags = libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF;
        if group == ProcessGroup::Own {
            check(libc::posix_spawnattr_setpgroup(attributes.0.get(), 0))?;
            flags |= libc::POSIX_SPAWN_SETPGROUP;
        }
        check(libc::posix_spawnattr_setflags(attributes.0.get(), flags as libc::c_short))?;
    }
    let mut pid = 0;
    // SAFETY: both arrays end with a null pointer, and what they point to outlives the call.
    let code = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            program.path.as_ptr(),
            actions.0.get(),
            attributes.0.get(),
            argv.as_ptr(),
            envp.as_ptr(),
        )
    };
    check(code)?;
    Pid::from_raw(pid).ok_or_else(|| io::Error::other("a process without a number was started"))
}

struct FileActions(UnsafeCell<libc::posix_spawn_file_actions_t>);

impl FileActions {
    fn new() -> io::Result<Self> {
        let mut actions = MaybeUninit::uninit();
        // SAFETY: it is valid for the write; on success it is initialised.
        match unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) } {
            0 => Ok(Self(UnsafeCell::new(unsafe { actions.assume_init() }))),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

impl Drop for FileActions {
    fn drop(&mut self) {
        // SAFETY: it was initialised, and is not used again.
        unsafe { libc::posix_spawn_file_actions_destroy(self.0.get()) };
    }
}

struct Attributes(UnsafeCell<libc::posix_spawnattr_t>);

impl Attributes {
    fn new() -> io::Result<Self> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: it is valid for the write; on success it is initialised.
        match unsafe { libc::posix_spawnattr_init(attributes.as_mut_ptr()) } {
            0 => Ok(Self(UnsafeCell::new(unsafe { attributes.assume_init() }))),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: it was initialised, and is not used again.
        unsafe { libc::posix_spawnattr_destroy(self.0.get()) };
    }
}

/// A child that has ended and is not reaped yet. It stays in that state: until it is reaped, its ID refers to no other
/// process and no other group, so that a signal to its group reaches no other process.
pub fn ended_child() -> io::Result<Option<Pid>> {
    look_for_ended_child(libc::WNOHANG)
}

/// The same, and waits for one. Some, unless this process has no children.
pub fn wait_for_ended_child() -> io::Result<Option<Pid>> {
    loop {
        match look_for_ended_child(0) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

fn look_for_ended_child(how: i32) -> io::Result<Option<Pid>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: `info` is valid for a write of a siginfo_t, which is what the kernel writes.
    let outcome = unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), libc::WEXITED | libc::WNOWAIT | how) };
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

/// Says that this process has one thread. The launcher, which is the only one to ask, starts no others.
pub struct OnlyThread(());

impl OnlyThread {
    pub fn check() -> io::Result<Self> {
        match std::fs::read_dir("/proc/self/task")?.count() {
            1 => Ok(Self(())),
            _ => Err(io::Error::other("the launcher has several threads")),
        }
    }
}

/// A copy of this process. None in the copy.
pub fn fork(_: &OnlyThread) -> io::Result<Option<Pid>> {
    // SAFETY: this process has one thread, so no lock is held by another one, and the copy may do everything.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Sets attributes of a mount that was opened, and of all mounts below it: `MOUNT_ATTR_RDONLY` and the like.
pub fn set_mount_attributes(mount: BorrowedFd<'_>, attributes: u64) -> io::Result<()> {
    mount_setattr(mount, attributes, libc::AT_EMPTY_PATH | libc::AT_RECURSIVE)
}

/// Makes a mount that was opened read-only, and none of those below it.
pub fn shut_mount(mount: BorrowedFd<'_>) -> io::Result<()> {
    mount_setattr(mount, libc::MOUNT_ATTR_RDONLY, libc::AT_EMPTY_PATH)
}

fn mount_setattr(mount: BorrowedFd<'_>, attributes: u64, flags: i32) -> io::Result<()> {
    let wanted = MountAttributes { set: attributes, clear: 0, propagation: 0, user_namespace: 0 };
    // SAFETY: the path is an empty C string, and the kernel reads a structure of the given size.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const wanted,
            size_of::<MountAttributes>(),
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `struct mount_attr` of the kernel.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Descriptors beyond the standard ones are closed when the command is executed. Those of this process are, but it may have
/// inherited others from the shell that started the node.
pub fn close_others_on_exec() -> io::Result<()> {
    let flags = libc::CLOSE_RANGE_CLOEXEC.cast_signed();
    // SAFETY: nothing is closed now, so no OwnedFd loses what it owns.
    let outcome = unsafe { libc::close_range(3, libc::c_uint::MAX, flags) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Closes descriptors beyond the standard ones, which this process has inherited from the shell that started the node. To
/// be called first, while it has opened none itself.
pub fn close_inherited() -> io::Result<()> {
    // SAFETY: no OwnedFd exists yet that could lose what it owns.
    let outcome = unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The kernel's keyring of this session is replaced by an empty one: its keys are those of the user who started the node.
pub fn leave_session_keyring() {
    const JOIN_SESSION_KEYRING: i32 = 1;
    // SAFETY: a null pointer asks for a keyring without a name. Kernels without keyrings answer with an error.
    unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>()) };
}

/// Installs a seccomp filter for this thread and all processes that it starts.
pub fn install_seccomp_filter(program: &[libc::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: the kernel copies a program of the given length, and changes nothing.
    let outcome =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0_u64, 0_u64) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Leaves namespaces. Refuses to unshare file descriptors, which is what makes the call unsafe in general.
pub fn unshare(flags: UnshareFlags) -> io::Result<()> {
    if flags.intersects(UnshareFlags::FILES | UnshareFlags::FS) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the table of file descriptors stays shared, so no OwnedFd loses what it owns.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(io::Error::from)
}
