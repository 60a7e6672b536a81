//! The executable that launchers are started from: this one, even if it has been replaced on disk meanwhile.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::mount::{OpenTreeFlags, open_tree};

use super::sys;

const OWN: &str = "/proc/self/exe";

pub struct LauncherProgram {
    path: PathBuf,
    /// What the path leads to.
    _opened: Option<OwnedFd>,
}

impl LauncherProgram {
    /// For isolation, where it cannot be changed. A container can name the program that becomes its command
    /// (`/proc/self/exe`, also in the first line of a script), and through it the machine's own file, whatever the container
    /// sees of the machine's mounts.
    pub fn new(isolated: bool) -> io::Result<Self> {
        if !isolated {
            return Ok(Self { path: OWN.into(), _opened: None });
        }
        let opened = on_read_only_mount().or_else(|_| in_memory()).map_err(|error| {
            io::Error::other(format!("containers cannot be kept from changing this executable: {error}"))
        })?;
        Ok(Self { path: format!("/proc/self/fd/{}", opened.as_raw_fd()).into(), _opened: Some(opened) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A mount of the file that is attached nowhere. Only root may make one here.
fn on_read_only_mount() -> io::Result<OwnedFd> {
    let mount = open_tree(CWD, OWN, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    let attributes = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    sys::set_mount_attributes(mount.as_fd(), attributes)?;
    Ok(mount)
}

/// A copy, which takes as much memory as the file has bytes.
fn in_memory() -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know the flag, and do not need it.
    let copy = memfd_create("tally", flags | MemfdFlags::EXEC).or_else(|_| memfd_create("tally", flags))?;
    let mut copy = File::from(copy);
    io::copy(&mut File::open(OWN)?, &mut copy)?;
    let _ = fcntl_add_seals(&copy, SealFlags::EXEC);
    fcntl_add_seals(&copy, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    // A file that is open for writing cannot be executed.
    Ok(File::open(format!("/proc/self/fd/{}", copy.as_raw_fd()))?.into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn what_launchers_are_started_from_can_be_executed_and_not_changed() {
        for (kind, opened) in [("mount", on_read_only_mount()), ("memory", in_memory())] {
            // Only root may mount.
            let Ok(opened) = opened else {
                assert!(kind == "mount" && !rustix::process::geteuid().is_root(), "{kind}");
                continue;
            };
            let path = format!("/proc/self/fd/{}", opened.as_raw_fd());
            let listed = Command::new(&path).arg("--list").output().unwrap();
            assert!(String::from_utf8_lossy(&listed.stdout).contains("what_launchers_are_started_from"), "{listed:?}");
            let written = File::options().write(true).open(&path).and_then(|mut file| file.write_all(b"x"));
            assert!(written.is_err(), "{kind}");
            let own = std::fs::metadata(OWN).unwrap().permissions().mode();
            if kind == "mount" {
                let changed = std::fs::set_permissions(&path, PermissionsExt::from_mode(own));
                assert_eq!(changed.unwrap_err().raw_os_error(), Some(libc::EROFS));
            }
        }
    }
}
