//! Linux capabilities: their names in the API, and which of them containers have.

/// One bit for each capability, as the kernel numbers them.
pub type CapabilitySet = u64;

/// In the kernel's order.
pub const NAMES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

pub const ALL: CapabilitySet = (1 << NAMES.len()) - 1;

/// What a container of a node that isolates has: the default of container runtimes, without two. MKNOD: there is no
/// list of permitted devices here, so the disk could be opened. NET_RAW: containers share the machine's network, whose
/// packets they could read.
pub const DEFAULT: CapabilitySet = named(&[
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "AUDIT_WRITE",
    "SETFCAP",
]);

/// With any of these a process could read what isolation hides: by a mount, a file handle, a device, a traced process,
/// or the kernel itself.
pub const UNSAFE: CapabilitySet = named(&[
    "DAC_READ_SEARCH",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_PTRACE",
    "SYS_ADMIN",
    "SYS_BOOT",
    "MKNOD",
    "AUDIT_CONTROL",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
]);

/// The set of one capability, by its name in the kernel. Names that do not exist are in no set.
pub const fn named(names: &[&str]) -> CapabilitySet {
    let (mut set, mut at) = (0, 0);
    while at < names.len() {
        let mut number = 0;
        while number < NAMES.len() {
            if same(names[at], NAMES[number]) {
                set |= 1 << number;
            }
            number += 1;
        }
        at += 1;
    }
    set
}

const fn same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// `NET_ADMIN`, `CAP_NET_ADMIN` or `ALL`, in any case.
pub fn parse(name: &str) -> Result<CapabilitySet, String> {
    let upper = name.to_ascii_uppercase();
    let plain = upper.strip_prefix("CAP_").unwrap_or(&upper);
    if is_all(name) {
        return Ok(ALL);
    }
    match NAMES.iter().position(|known| *known == plain) {
        Some(number) => Ok(1 << number),
        None => Err(format!("{name:?} is not a capability")),
    }
}

/// The word for all of them, with or without the prefix.
pub fn is_all(name: &str) -> bool {
    name.eq_ignore_ascii_case("ALL") || name.eq_ignore_ascii_case("CAP_ALL")
}

/// The names, for messages.
pub fn list(set: CapabilitySet) -> String {
    if set == ALL {
        return "ALL".to_owned();
    }
    let names = NAMES.iter().enumerate().filter(|(number, _)| set & (1 << number) != 0).map(|(_, name)| *name);
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_kernel() {
        // The numbers are part of the kernel's interface.
        for (name, number) in [("CHOWN", 0), ("SYS_ADMIN", 21), ("MKNOD", 27), ("CHECKPOINT_RESTORE", 40)] {
            assert_eq!(parse(name), Ok(1 << number));
        }
        assert_eq!(parse("cap_net_admin"), Ok(1 << 12));
        assert_eq!(parse("all"), Ok(ALL));
        assert!(parse("NET").unwrap_err().contains("is not a capability"));
        assert_eq!(DEFAULT.count_ones(), 12, "every name exists");
        assert_eq!(UNSAFE.count_ones(), 13, "every name exists");
        assert_eq!(DEFAULT & UNSAFE, 0);
        assert_eq!(list(DEFAULT & 7), "CHOWN, DAC_OVERRIDE");
        assert_eq!(list(ALL), "ALL");
    }
}
