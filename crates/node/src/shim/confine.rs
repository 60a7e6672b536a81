//! What a process may do, set before it becomes the command: groups, user, capabilities, seccomp. Runs in the launcher.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::FileType;
use rustix::process::{Gid, Uid};
use rustix::thread::{self, CapabilitySet as KernelSet, CapabilitySets};

use super::command::{self, CREATE_ERROR, failure};
use super::launch::Launch;
use super::seccomp;
use crate::capabilities;
use crate::port::OperationError;

/// The user and groups that a command gets. None: they stay as they are.
pub struct Identity {
    user: Option<u32>,
    group: Option<u32>,
    groups: Option<Vec<u32>>,
}

/// Applies everything.
pub fn apply(launch: &Launch, identity: &Identity) -> Result<(), OperationError> {
    let isolated = launch.is_isolated();
    let failed = |what: &'static str| move |error: io::Error| command::create_failure(what, &error);
    let plain = |error: rustix::io::Errno| io::Error::from(error);
    let wanted = &launch.confinement;
    let own = thread::capabilities(None).map_err(plain).map_err(failed("its capabilities cannot be read"))?;
    let is_admin = own.effective.contains(KernelSet::SYS_ADMIN);
    if wanted.no_new_privileges || ((wanted.seccomp || isolated) && !is_admin) {
        thread::set_no_new_privs(true).map_err(plain).map_err(failed("securityContext.allowPrivilegeEscalation"))?;
    }
    // Before capabilities are dropped: to install a filter takes one of them. It permits all that follows.
    if wanted.seccomp {
        let kept = wanted.capabilities.unwrap_or(own.permitted.bits());
        seccomp::install(kept).map_err(failed("securityContext.seccompProfile"))?;
    } else if isolated {
        seccomp::refuse_user_namespaces().map_err(failed("user namespaces cannot be refused"))?;
    }
    if let Some(kept) = wanted.capabilities {
        let kept = KernelSet::from_bits_retain(kept);
        limit_bounding_set(kept, &own).map_err(failed("securityContext.capabilities"))?;
        become_user(identity).map_err(failed("its user cannot be set"))?;
        // Another user has lost them by now; nothing is inherited by programs that do not ask for it.
        let now = thread::capabilities(None).map_err(plain).map_err(failed("its capabilities cannot be read"))?;
        let left = now.permitted & kept;
        let sets = CapabilitySets { effective: left, permitted: left, inheritable: KernelSet::empty() };
        thread::set_capabilities(None, sets).map_err(plain).map_err(failed("securityContext.capabilities"))
    } else {
        become_user(identity).map_err(failed("its user cannot be set"))
    }
}

/// The bounding set is what a program can gain by its file. Not every user may shorten it; then no_new_privs was set, with
/// which there is nothing to gain.
fn limit_bounding_set(kept: KernelSet, own: &CapabilitySets) -> io::Result<()> {
    if !own.effective.contains(KernelSet::SETPCAP) {
        return Ok(());
    }
    let _ = thread::clear_ambient_capability_set();
    for number in 0..64_u32 {
        let one = KernelSet::from_bits_retain(1 << number);
        // An error: the kernel has no such capability.
        if !kept.contains(one) && thread::capability_is_in_bounding_set(one).unwrap_or(false) {
            thread::remove_capability_from_bounding_set(one)?;
        }
    }
    Ok(())
}

/// By the list of users that this process sees: to be called before the container's own files are mounted, which a Pod
/// may place over the machine's. In isolation, the node's own groups are left, too.
pub fn identity(launch: &Launch) -> Result<Identity, OperationError> {
    let isolated = launch.is_isolated();
    let own = rustix::process::geteuid().as_raw();
    let user = launch.user.filter(|user| *user != own);
    if let Some(user) = user.filter(|_| own != 0) {
        return Err(failure(
            CREATE_ERROR,
            format!("runAsUser {user}: this node runs as user {own} and cannot become another"),
        ));
    }
    let own_group = rustix::process::getegid().as_raw();
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    // As container runtimes do: another user has the group that /etc/passwd gives it.
    let of_user = || user.and_then(|user| group_of(user, &read("/etc/passwd")));
    let group = launch.group.or_else(of_user).filter(|group| *group != own_group);
    if let Some(group) = group.filter(|_| own != 0) {
        let message = format!("runAsGroup {group}: this node runs as group {own_group} and cannot become another");
        return Err(failure(CREATE_ERROR, message));
    }
    let wanted = launch.confinement.groups.as_ref();
    let groups = (own == 0 && (isolated || wanted.is_some() || user.is_some())).then(|| {
        let mut groups = wanted.map(|groups| groups.ids.clone()).unwrap_or_default();
        // A container without settings of its own has the groups of its user, as the image of a container gives them.
        if wanted.map_or(isolated, |groups| !groups.strict) {
            groups.extend(groups_of(launch.user.unwrap_or(own), &read("/etc/passwd"), &read("/etc/group")));
        }
        groups.sort_unstable();
        groups.dedup();
        groups
    });
    Ok(Identity { user, group, groups })
}

/// The groups that list a user as their member.
fn groups_of(user: u32, passwd: &str, group: &str) -> Vec<u32> {
    let Some(name) = entry_of(user, passwd).and_then(|fields| fields.first().copied()) else { return Vec::new() };
    let member = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, id, members] = fields[..] else { return None };
        members.split(',').any(|member| member == name).then(|| id.parse().ok())?
    };
    group.lines().filter_map(member).collect()
}

/// The main group of a user.
fn group_of(user: u32, passwd: &str) -> Option<u32> {
    entry_of(user, passwd)?.get(3)?.parse().ok()
}

fn entry_of(user: u32, passwd: &str) -> Option<Vec<&str>> {
    let mut entries = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    entries.find(|fields| fields.get(2).and_then(|id| id.parse().ok()) == Some(user))
}

/// The home directory of a user. None: the machine does not know the user.
pub fn home_of(user: u32, passwd: &str) -> Option<&str> {
    entry_of(user, passwd).and_then(|fields| fields.get(5).copied()).filter(|home| !home.is_empty())
}

/// A pipe, or a terminal. Others, such as /dev/null, are the machine's.
fn is_of_container(stream: BorrowedFd<'_>) -> bool {
    /// The kernel's numbers for terminals of /dev/pts.
    const TERMINALS: std::ops::Range<u32> = 136..144;
    let Ok(about) = rustix::fs::fstat(stream) else { return false };
    match FileType::from_raw_mode(about.st_mode) {
        FileType::Fifo => true,
        FileType::CharacterDevice => TERMINALS.contains(&rustix::fs::major(about.st_rdev)),
        _ => false,
    }
}

fn become_user(identity: &Identity) -> io::Result<()> {
    let Identity { user, group, groups } = identity;
    if user.is_some() || group.is_some() {
        // So that the new user can open /dev/stdin and /dev/stdout. If the owner cannot be changed, the process can still
        // write to its output.
        let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
        for stream in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
            if is_of_container(stream) {
                let _ = rustix::fs::fchown(stream, user, group);
            }
        }
    }
    // The launcher has one thread, so that of a thread is that of the process.
    if let Some(groups) = groups {
        thread::set_thread_groups(&groups.iter().copied().map(Gid::from_raw).collect::<Vec<_>>())?;
    }
    if let Some(group) = group.map(Gid::from_raw) {
        thread::set_thread_res_gid(group, group, group)?;
    }
    if let Some(user) = user.map(Uid::from_raw) {
        thread::set_thread_res_uid(user, user, user)?;
    }
    Ok(())
}

/// All capabilities of this process, for the node's abilities.
pub fn own_capabilities() -> capabilities::CapabilitySet {
    thread::capabilities(None).map_or(0, |sets| sets.permitted.bits()) & capabilities::ALL
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_devices_of_the_machine_keep_their_owner() {
        use std::os::fd::AsFd;
        let (_reader, writer) = io::pipe().unwrap();
        assert!(is_of_container(writer.as_fd()));
        for path in ["/dev/null", "/dev/zero", "/"] {
            assert!(!is_of_container(fs::File::open(path).unwrap().as_fd()), "{path}");
        }
        let terminal = crate::shim::terminal::open(false, Default::default()).unwrap();
        assert!(is_of_container(terminal.inner.as_fd()));
    }

    #[test]
    fn groups_and_homes_are_found_by_the_number_of_a_user() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nodd:x:7\n";
        let group = "root:x:0:\nadm:x:4:bob,ann\naudio:x:29:ann\nann:x:1000:\nlonger:x:9:annabel\nodd\n";
        assert_eq!(groups_of(1000, passwd, group), [4, 29]);
        assert_eq!(groups_of(0, passwd, group), [0; 0]);
        assert_eq!(groups_of(5, passwd, group), [0; 0]);
        assert_eq!(home_of(1000, passwd), Some("/home/ann"));
        assert_eq!((home_of(7, passwd), home_of(8, passwd)), (None, None));
        assert_eq!((group_of(1000, passwd), group_of(7, passwd), group_of(8, passwd)), (Some(1000), None, None));
    }
}
