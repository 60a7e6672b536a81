//! The system calls that have no safe wrapper in the libraries we use. All `unsafe` code of this crate is here.
#![allow(unsafe_code)]

use std::cell::{Cell, OnceCell};
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use rustix::process::{Pid, Rlimit, Signal, WaitOptions};
use rustix::thread::UnshareFlags;

use super::spawn::{ProcessGroup, Program};
use crate::attempts::ResourceUsage;

/// Starts programs as posix_spawn(3) does: this process is not forked, the new one borrows its memory until it executes the
/// program. The C library takes more steps for that: it maps a stack for each process, asks for the action of every signal,
/// and cannot set a limit, so that this process would have to change its own.
pub struct ProcessStarter {
    /// For the new process, which does not return from its function.
    stack: Stack,
    /// The signals whose action is not the default, apart from those that were ignored when this process was started.
    changed: OnceCell<Vec<c_int>>,
}

impl ProcessStarter {
    pub fn new() -> io::Result<Self> {
        Ok(Self { stack: Stack::new()?, changed: OnceCell::new() })
    }

    /// Starts a program with these standard streams, whose numbers are above theirs, with default signals, an empty signal
    /// mask and, if that is given, this limit of open files. What cannot be done in the new process is the error here.
    pub fn start(
        &self,
        program: &Program<'_>,
        streams: [BorrowedFd<'_>; 3],
        group: ProcessGroup,
        files: Option<Rlimit>,
    ) -> io::Result<Pid> {
        let words = |word: &CString| word.as_ptr();
        let argv: Vec<_> = program.argv.iter().map(words).chain([ptr::null()]).collect();
        let envp: Vec<_> = program.env.as_c_strings().map(CStr::as_ptr).chain([ptr::null()]).collect();
        let streams = streams.map(|stream| stream.as_raw_fd());
        if streams.iter().any(|number| *number < 3) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let number = |limit: Option<u64>| limit.unwrap_or(libc::RLIM_INFINITY);
        let mut steps = Steps {
            path: program.path.as_ptr(),
            argv: argv.as_ptr(),
            envp: envp.as_ptr(),
            dir: program.dir.as_ref().map_or(ptr::null(), |dir| dir.as_ptr()),
            streams,
            group,
            files: files.map(|files| libc::rlimit { rlim_cur: number(files.current), rlim_max: number(files.maximum) }),
            changed: self.changed.get_or_init(changed_signals),
            failure: 0,
        };
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the kernel holds this thread until the new process has executed the program or has ended. So the new process
        // is the only one that uses `steps`, what it points to, this thread's errno, and the stack: `self` is used by one
        // thread only, and no signal handler runs on it. Handlers of this process do not run in the new one either: signals are
        // blocked when it begins, and have their default actions when it lifts that. (The C library does not block its own two;
        // their handlers ignore what others send.) Other threads go on, but it takes no lock and allocates nothing. The table
        // of descriptors, the actions of signals and the limits are its own.
        let (pid, error) = unsafe {
            let mut all = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            let pid = libc::clone(take_steps, self.stack.top(), flags, (&raw mut steps).cast());
            let error = io::Error::last_os_error();
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
            (pid, error)
        };
        let Some(pid) = (if pid > 0 { Pid::from_raw(pid) } else { None }) else { return Err(error) };
        // SAFETY: the new process has written it, or nobody. It is read once more from memory.
        match unsafe { (&raw const steps.failure).read_volatile() } {
            0 => Ok(pid),
            failure => {
                // It has ended. Nobody else knows it, so it is reaped here.
                let _ = rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(pid), WaitOptions::empty()));
                Err(io::Error::from_raw_os_error(failure))
            }
        }
    }
}

/// What a new process does before it executes its program.
struct Steps<'a> {
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    /// Null: it stays in the directory of this process.
    dir: *const c_char,
    streams: [c_int; 3],
    group: ProcessGroup,
    files: Option<libc::rlimit>,
    changed: &'a [c_int],
    /// The number of the error, if a step has failed.
    failure: c_int,
}

/// The function of the new process. It must not allocate, take a lock or panic: other threads of the process whose memory it
/// uses go on.
extern "C" fn take_steps(steps: *mut libc::c_void) -> c_int {
    // SAFETY: it is the `Steps` of `start`, which waits and does not touch it.
    unsafe {
        let steps = steps.cast::<Steps<'_>>();
        (*steps).failure = execute(&*steps);
        libc::_exit(127)
    }
}

/// Returns only if a step fails.
///
/// # Safety
/// The pointers must be valid, and the arrays end with a null pointer. The process loses its standard streams.
unsafe fn execute(steps: &Steps<'_>) -> c_int {
    // SAFETY: as the caller says. All functions are async-signal-safe system calls without state in the C library.
    unsafe {
        let mut none = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        let done = steps.changed.iter().all(|signal| set_default_action(*signal))
            && (steps.group != ProcessGroup::Own || libc::setpgid(0, 0) == 0)
            && steps.streams.iter().zip(0..).all(|(stream, number)| libc::dup2(*stream, number) == number)
            && (steps.dir.is_null() || libc::chdir(steps.dir) == 0)
            && steps.files.as_ref().is_none_or(|files| libc::setrlimit(libc::RLIMIT_NOFILE, files) == 0)
            && libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut()) == 0;
        if done {
            libc::execve(steps.path, steps.argv, steps.envp);
        }
        *libc::__errno_location()
    }
}

/// By the system call itself: the C library refuses to change the actions of the signals that it uses.
fn set_default_action(signal: c_int) -> bool {
    /// Larger than the structure of the kernel, in which zero means the default action, no flags and no other signals.
    const DEFAULT: [u64; 8] = [0; 8];
    /// The size of a set of 64 signals.
    const SET: usize = 8;
    let old = ptr::null_mut::<libc::c_void>();
    // SAFETY: the kernel reads the structure, and is told to write none.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, DEFAULT.as_ptr(), old, SET) == 0 }
}

/// The signals that this process handles; SIGPIPE, which Rust programs ignore; and those that the C library uses, about which
/// it tells nothing: it starts processes, as this one was, with these ignored. A handler that is added later would be in
/// force in a new process for the moment between its signal mask and its program, which has no handlers.
fn changed_signals() -> Vec<c_int> {
    let is_changed = |signal: &c_int| {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: nothing is changed; `action` is valid for the write, and all zeroes is an action.
        let (told, action) = unsafe {
            let told = libc::sigaction(*signal, ptr::null(), action.as_mut_ptr()) == 0;
            (told, action.assume_init().sa_sigaction)
        };
        !told || *signal == libc::SIGPIPE || (action != libc::SIG_DFL && action != libc::SIG_IGN)
    };
    (1..=libc::SIGRTMAX()).filter(is_changed).collect()
}

/// Memory for a stack, with some below it that cannot be used: a stack that grows too large ends the process.
struct Stack {
    bottom: *mut libc::c_void,
}

/// The new process needs less than a tenth of it. A page has at most 64 KiB.
const STACK: usize = 64 * 1024;
const GUARD: usize = 64 * 1024;

impl Stack {
    fn new() -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
        // SAFETY: new memory, which nobody else has.
        let bottom = unsafe { libc::mmap(ptr::null_mut(), GUARD + STACK, libc::PROT_NONE, flags, -1, 0) };
        if bottom == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let stack = Self { bottom };
        // SAFETY: the upper part of it.
        let opened = unsafe { libc::mprotect(bottom.byte_add(GUARD), STACK, libc::PROT_READ | libc::PROT_WRITE) };
        if opened == 0 { Ok(stack) } else { Err(io::Error::last_os_error()) }
    }

    /// Its end, where a stack begins. It is a multiple of the size of a page.
    fn top(&self) -> *mut libc::c_void {
        self.bottom.wrapping_byte_add(GUARD + STACK)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: nothing runs on it: `start` returns when the new process has left it.
        unsafe { libc::munmap(self.bottom, GUARD + STACK) };
    }
}

/// A descriptor that can be read when a child has ended: SIGCHLD does not interrupt this thread any more, but waits there.
/// To be called before there are other threads, which would be interrupted instead.
pub fn ends_of_children() -> io::Result<OwnedFd> {
    let mut signals = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is initialised by the first call, and the descriptor is new.
    unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        libc::sigaddset(signals.as_mut_ptr(), libc::SIGCHLD);
        match libc::pthread_sigmask(libc::SIG_BLOCK, signals.as_ptr(), ptr::null_mut()) {
            0 => {}
            code => return Err(io::Error::from_raw_os_error(code)),
        }
        match libc::signalfd(-1, signals.as_ptr(), libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            number => Ok(OwnedFd::from_raw_fd(number)),
        }
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
    Some((status, ResourceUsage { cpu_micros, peak_kib, peak_is_bound: is_below_own_peak(peak_kib) }))
}

/// Whether this process has had as much memory. Its peak only grows, so the kernel is asked only for what is above the last
/// known one: most children have that of this process, with which they were started.
fn is_below_own_peak(peak_kib: u64) -> bool {
    thread_local!(static KNOWN: Cell<u64> = const { Cell::new(0) });
    if peak_kib > KNOWN.get() {
        KNOWN.set(own_peak_kib());
    }
    peak_kib <= KNOWN.get()
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
