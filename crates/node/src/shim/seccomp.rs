//! The seccomp profile `RuntimeDefault` of this node: what a container that mounts nothing, loads nothing into the kernel
//! and traces no other user's processes does not need. A refused call fails with EPERM; one that this version does not
//! know, with ENOSYS, so that programs use an older one.
//!
//! Two filters, of which the kernel applies the stricter answer: one has the calls that are refused, the other one the
//! numbers that are known. The second also refuses the other numbering (x32) under which the same calls exist.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::sys;
use crate::capabilities::{CapabilitySet, named};

/// Refused, unless the container has one of these capabilities.
const REFUSED: &[(i64, &[&str])] = &[
    // Mounts and namespaces.
    (libc::SYS_mount, &["SYS_ADMIN"]),
    (libc::SYS_umount2, &["SYS_ADMIN"]),
    (libc::SYS_pivot_root, &["SYS_ADMIN"]),
    (libc::SYS_open_tree, &["SYS_ADMIN"]),
    (libc::SYS_move_mount, &["SYS_ADMIN"]),
    (libc::SYS_fsopen, &["SYS_ADMIN"]),
    (libc::SYS_fsconfig, &["SYS_ADMIN"]),
    (libc::SYS_fsmount, &["SYS_ADMIN"]),
    (libc::SYS_fspick, &["SYS_ADMIN"]),
    (libc::SYS_mount_setattr, &["SYS_ADMIN"]),
    (libc::SYS_setns, &["SYS_ADMIN"]),
    (libc::SYS_sethostname, &["SYS_ADMIN"]),
    (libc::SYS_setdomainname, &["SYS_ADMIN"]),
    (libc::SYS_quotactl, &["SYS_ADMIN"]),
    (libc::SYS_fanotify_init, &["SYS_ADMIN"]),
    (libc::SYS_lookup_dcookie, &["SYS_ADMIN"]),
    // Files by handle, past all directories.
    (libc::SYS_open_by_handle_at, &["DAC_READ_SEARCH"]),
    // The kernel itself.
    (libc::SYS_init_module, &["SYS_MODULE"]),
    (libc::SYS_finit_module, &["SYS_MODULE"]),
    (libc::SYS_delete_module, &["SYS_MODULE"]),
    (libc::SYS_kexec_load, &["SYS_BOOT"]),
    (libc::SYS_kexec_file_load, &["SYS_BOOT"]),
    (libc::SYS_reboot, &["SYS_BOOT"]),
    (libc::SYS_bpf, &["BPF", "SYS_ADMIN"]),
    (libc::SYS_perf_event_open, &["PERFMON", "SYS_ADMIN"]),
    (libc::SYS_userfaultfd, &["SYS_PTRACE"]),
    (libc::SYS_kcmp, &["SYS_PTRACE"]),
    (libc::SYS_syslog, &["SYSLOG"]),
    (libc::SYS_acct, &["SYS_PACCT"]),
    (libc::SYS_swapon, &["SYS_ADMIN"]),
    (libc::SYS_swapoff, &["SYS_ADMIN"]),
    (libc::SYS_vhangup, &["SYS_TTY_CONFIG"]),
    (libc::SYS_nfsservctl, &[]),
    // The clock of the machine.
    (libc::SYS_settimeofday, &["SYS_TIME"]),
    (libc::SYS_clock_settime, &["SYS_TIME"]),
    // Keys are not in any namespace.
    (libc::SYS_add_key, &[]),
    (libc::SYS_request_key, &[]),
    (libc::SYS_keyctl, &[]),
    // Calls that pass by this filter.
    (libc::SYS_io_uring_setup, &[]),
    (libc::SYS_io_uring_enter, &[]),
    (libc::SYS_io_uring_register, &[]),
    // Memory of other nodes of the machine.
    (libc::SYS_move_pages, &["SYS_NICE"]),
    (libc::SYS_mbind, &["SYS_NICE"]),
    (libc::SYS_set_mempolicy, &["SYS_NICE"]),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_iopl, &["SYS_RAWIO"]),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_ioperm, &["SYS_RAWIO"]),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_uselib, &[]),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_ustat, &[]),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_sysfs, &[]),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS__sysctl, &[]),
];

/// The flags of clone and unshare that make a namespace.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// The same calls exist under other numbers (x32) on some machines.
#[cfg(target_arch = "x86_64")]
const NUMBERINGS: [i64; 2] = [0, 0x4000_0000];
#[cfg(not(target_arch = "x86_64"))]
const NUMBERINGS: [i64; 1] = [0];

/// The last call that this list was compared with: later ones are unknown.
const LAST_KNOWN: i64 = 462;

/// The filters for a container with these capabilities.
fn filters(capabilities: CapabilitySet) -> Result<[BpfProgram; 2], seccompiler::BackendError> {
    let arch = std::env::consts::ARCH.try_into()?;
    let allowed = |names: &[&str]| named(names) & capabilities != 0;
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().filter(|(_, names)| !allowed(names)).map(|(call, _)| (*call, Vec::new())).collect();
    if !allowed(&["SYS_ADMIN"]) {
        for call in [libc::SYS_clone, libc::SYS_unshare] {
            let has = |flag: libc::c_int| {
                let flag = u64::from(flag.cast_unsigned());
                let masked = SeccompCmpOp::MaskedEq(flag);
                SeccompRule::new(vec![SeccompCondition::new(0, SeccompCmpArgLen::Qword, masked, flag)?])
            };
            refused.insert(call, NAMESPACES.into_iter().map(has).collect::<Result<_, _>>()?);
        }
    }
    // The flags of clone3 are in memory, where a filter cannot read them. The C library then uses clone.
    let known = (0..=LAST_KNOWN).filter(|call| *call != libc::SYS_clone3 || allowed(&["SYS_ADMIN"]));
    let known = known.map(|call| (call, Vec::new())).collect();
    let not_permitted = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let not_known = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    Ok([
        SeccompFilter::new(known, not_known, SeccompAction::Allow, arch)?.try_into()?,
        SeccompFilter::new(refused, SeccompAction::Allow, not_permitted, arch)?.try_into()?,
    ])
}

/// What every isolated container has, also without a profile: no user namespace can be made. In one, a process has
/// capabilities with which it can mount the control group of the node, and end or stop the node and all other Pods.
fn without_user_namespaces() -> Result<[BpfProgram; 2], seccompiler::BackendError> {
    let arch = std::env::consts::ARCH.try_into()?;
    let flag = u64::from(libc::CLONE_NEWUSER.cast_unsigned());
    let makes_one = || {
        let condition = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)?;
        SeccompRule::new(vec![condition])
    };
    let mut refused = BTreeMap::new();
    let mut unknown = BTreeMap::new();
    for numbering in NUMBERINGS {
        refused.insert(libc::SYS_clone | numbering, vec![makes_one()?]);
        refused.insert(libc::SYS_unshare | numbering, vec![makes_one()?]);
        unknown.insert(libc::SYS_clone3 | numbering, Vec::new());
    }
    let not_permitted = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let not_known = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    Ok([
        SeccompFilter::new(unknown, SeccompAction::Allow, not_known, arch)?.try_into()?,
        SeccompFilter::new(refused, SeccompAction::Allow, not_permitted, arch)?.try_into()?,
    ])
}

/// The profile applies to this process from now on, and to the command that it executes. Needs CAP_SYS_ADMIN, or
/// no_new_privs.
pub fn install(capabilities: CapabilitySet) -> io::Result<()> {
    install_all(filters(capabilities))
}

/// The same for the filter that every isolated container has.
pub fn refuse_user_namespaces() -> io::Result<()> {
    install_all(without_user_namespaces())
}

fn install_all(programs: Result<[BpfProgram; 2], seccompiler::BackendError>) -> io::Result<()> {
    for program in programs.map_err(io::Error::other)? {
        let native: Vec<libc::sock_filter> = program
            .into_iter()
            .map(|step| libc::sock_filter { code: step.code, jt: step.jt, jf: step.jf, k: step.k })
            .collect();
        sys::install_seccomp_filter(&native)?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_short_enough_for_the_kernel() {
        for capabilities in [0, crate::capabilities::DEFAULT, crate::capabilities::ALL] {
            for program in filters(capabilities).unwrap() {
                assert!(program.len() < 4096, "{} steps", program.len());
            }
        }
    }
}
