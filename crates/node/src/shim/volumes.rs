//! A Pod's directory and the content of its volumes.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::fs::{chown, fchown, symlink};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use tally_core::ids::PodUid;

use super::command::failure;
use super::isolate::HiddenPath;
use super::layout::Layout;
use super::mounts;
use crate::port::{self, Content, OperationError, Preparation, Volume};

/// The kubelet's reason for volumes that cannot be set up.
const MOUNT_ERROR: &str = "FailedMount";

/// Creates what is missing and updates what exists. Nothing outside the Pod's directory changes, except where a
/// hostPath requests the creation of a path.
pub fn prepare(layout: &Layout, preparation: &Preparation, hidden: &[HiddenPath]) -> Result<(), OperationError> {
    base(layout, preparation).map_err(|error| {
        let root = layout.root().display();
        failure("FailedCreatePodSandBox", format!("the Pod's directory in {root} cannot be made: {error}"))
    })?;
    for volume in &preparation.volumes {
        fill(layout, preparation, volume, hidden)
            .map_err(|why| failure(MOUNT_ERROR, format!("volume {:?}: {why}", volume.name)))?;
    }
    Ok(())
}

fn base(layout: &Layout, preparation: &Preparation) -> io::Result<()> {
    if !preparation.volumes.is_empty() {
        layout.make_pod(&preparation.pod)?;
        make_dir(&layout.volumes(&preparation.pod)?, 0o755)?;
    }
    Ok(())
}

fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        outcome => outcome,
    }
}

fn fill(layout: &Layout, preparation: &Preparation, volume: &Volume, hidden: &[HiddenPath]) -> Result<(), String> {
    let (pod, group) = (&preparation.pod, preparation.group);
    let dir = layout.volume(pod, &volume.name).map_err(|error| error.to_string())?;
    match &volume.content {
        Content::Empty { in_memory, limit } => {
            empty(&dir, *in_memory, *limit, group).map_err(|error| error.to_string())
        }
        Content::Files(files) => write_files(layout, pod, &volume.name, &dir, files, group),
        Content::Claim { uid } => claim(layout, uid, &dir, group).map_err(|error| error.to_string()),
        Content::Host { path, kind } => {
            // A path that does not exist would be created there.
            if is_hidden(Path::new(path), hidden) {
                return Err(format!("the hostPath {path} is not visible to Pods: it contains the node's own files"));
            }
            host(path, kind, hidden)?;
            match symlink(path, &dir) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                outcome => outcome.map_err(|error| error.to_string()),
            }
        }
    }
}

/// Makes the directory of a claim, if it does not exist, and a symlink to it.
fn claim(layout: &Layout, uid: &str, dir: &Path, group: Option<u32>) -> io::Result<()> {
    let place = layout.claim(uid)?;
    make_dir(&layout.claims(), 0o700)?;
    empty(&place, false, None, group)?;
    match symlink(&place, dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        outcome => outcome,
    }
}

/// Moves the directory of a claim to the trash. False: there was nothing to remove.
pub fn remove_claim(layout: &Layout, uid: &str) -> io::Result<bool> {
    move_away(&layout.claim(uid)?, &layout.trash().join(format!("{uid}.claim")))
}

/// The longest existing part of the path is, or is in, a hidden directory or file.
fn is_hidden(path: &Path, hidden: &[HiddenPath]) -> bool {
    let real = path.ancestors().find_map(|there| fs::canonicalize(there).ok());
    let is_in = |hidden: &HiddenPath| {
        let hidden = fs::canonicalize(&hidden.path).unwrap_or_else(|_| hidden.path.clone());
        real.as_ref().is_some_and(|real| real.starts_with(hidden))
    };
    hidden.iter().any(is_in)
}

fn empty(dir: &Path, in_memory: bool, limit: Option<u64>, group: Option<u32>) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    make_dir(dir, 0o777)?;
    // The umask was applied to the mode above.
    fs::set_permissions(dir, Permissions::from_mode(0o777))?;
    if in_memory {
        let mut options = "mode=0777".to_owned();
        if let Some(limit) = limit {
            options.push_str(&format!(",size={limit}"));
        }
        let options = std::ffi::CString::new(options)?;
        // If that is not permitted, the directory is used as it is: it is slower, but correct.
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        let _ = rustix::mount::mount("tmpfs", dir, "tmpfs", flags, Some(options.as_c_str()));
    }
    if let Some(group) = group {
        give(dir, group, 0o2777)?;
    }
    Ok(())
}

/// The files that are created in a directory with the setgid bit have its group.
fn give(path: &Path, group: u32, mode: u32) -> io::Result<()> {
    chown(path, None, Some(group))?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// A relative path that stays inside the volume.
pub fn within(path: &str) -> Result<PathBuf, String> {
    let mut inside = PathBuf::new();
    for step in Path::new(path).components() {
        match step {
            Component::Normal(name) => inside.push(name),
            Component::CurDir => {}
            _ => return Err(format!("the path {path:?} leads out of the volume")),
        }
    }
    if inside.as_os_str().is_empty() || path.contains('\0') {
        return Err(format!("the path {path:?} names nothing in the volume"));
    }
    Ok(inside)
}

/// Volumes of files are read-only to containers, whatever they request: their content comes from another object.
pub fn is_of_files(layout: &Layout, pod: &PodUid, volume: &str) -> bool {
    layout.written(pod, volume).is_ok_and(|list| list.exists())
}

/// Removes files of an earlier version that are not in this one, and nothing else: a directory in the volume may be the
/// mount point of another volume, which the containers would lose. So there is a list of the files that the shim wrote;
/// it contains a file before it exists and until it is removed.
fn write_files(
    layout: &Layout,
    pod: &PodUid,
    name: &str,
    dir: &Path,
    files: &[port::File],
    group: Option<u32>,
) -> Result<(), String> {
    let plainly = |error: io::Error| error.to_string();
    let (list, fresh) = (layout.written(pod, name).map_err(plainly)?, layout.fresh(pod).map_err(plainly)?);
    let keep = |paths: &BTreeSet<PathBuf>| {
        let text = serde_json::to_vec(paths)?;
        write_file(&fresh, &list, &text, 0o600, None)
    };
    let wanted: BTreeSet<PathBuf> = files.iter().map(|file| within(&file.path)).collect::<Result<_, _>>()?;
    let before: BTreeSet<PathBuf> =
        fs::read(&list).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    make_dir(dir, 0o755).map_err(plainly)?;
    if let Some(group) = group {
        give(dir, group, 0o2755).map_err(plainly)?;
    }
    keep(&before.union(&wanted).cloned().collect()).map_err(plainly)?;
    for file in files {
        let path = within(&file.path)?;
        // A group that owns the volume can read its files.
        let mode = if group.is_some() { file.mode | 0o440 } else { file.mode };
        write_file(&fresh, &dir.join(&path), &file.content, mode, group)
            .map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
    }
    for path in before.difference(&wanted) {
        remove_file(dir, path).map_err(|error| format!("{} cannot be removed: {error}", path.display()))?;
    }
    keep(&wanted).map_err(plainly)
}

/// Readers see the old file or the new one, never a partial one, and never with a wider mode than intended.
fn write_file(fresh: &Path, target: &Path, content: &[u8], mode: u32, group: Option<u32>) -> io::Result<()> {
    let mode = mode & 0o7777;
    if let Ok(there) = fs::symlink_metadata(target)
        && there.is_file()
        && there.mode() & 0o7777 == mode
        && there.len() == content.len() as u64
        && fs::read(target).is_ok_and(|old| old == content)
    {
        return Ok(());
    }
    if let Some(parent) = target.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    let _ = fs::remove_file(fresh);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(fresh)?;
    file.write_all(content)?;
    if group.is_some() {
        fchown(&file, None, group)?;
    }
    file.set_permissions(Permissions::from_mode(mode))?;
    drop(file);
    fs::rename(fresh, target)
}

/// Also removes the directories that become empty. Directories that are not empty cannot be removed, which is intended.
fn remove_file(volume: &Path, path: &Path) -> io::Result<()> {
    match fs::remove_file(volume.join(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let above = path.ancestors().skip(1).take_while(|above| !above.as_os_str().is_empty());
    for dir in above {
        if fs::remove_dir(volume.join(dir)).is_err() {
            break;
        }
    }
    Ok(())
}

/// Makes what is missing of a path below a directory. No symlink that another process puts there meanwhile is followed.
pub fn make_below(start: OwnedFd, missing: &Path, is_dir: bool) -> io::Result<OwnedFd> {
    let mut at = start;
    let mut steps = missing.components().peekable();
    while let Some(step) = steps.next() {
        let name = step.as_os_str();
        at = if is_dir || steps.peek().is_some() {
            match mkdirat(&at, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(&at, name, flags, Mode::empty())?
        } else {
            // Nothing that another process puts there is opened: a pipe would keep the node waiting.
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(&at, name, flags, Mode::from_raw_mode(0o644))?
        };
    }
    Ok(at)
}

/// Makes a path of the machine: a directory and those above it, or a file in a directory that exists.
fn make_host(path: &Path, is_dir: bool, hidden: &[HiddenPath]) -> io::Result<()> {
    let (real, missing) = mounts::nearest(path)?;
    let Some(missing) = missing else { return Err(io::ErrorKind::AlreadyExists.into()) };
    if !is_dir && missing.components().count() > 1 {
        return Err(io::ErrorKind::NotFound.into());
    }
    // What is checked has no symlinks, and what is opened is the same.
    if is_hidden(&real, hidden) {
        return Err(io::Error::other("it is not visible to Pods"));
    }
    make_below(mounts::open_real(&real)?, &missing, is_dir).map(drop)
}

/// Checks `hostPath.type` as the kubelet does, with its messages.
fn host(path: &str, kind: &str, hidden: &[HiddenPath]) -> Result<(), String> {
    let at = Path::new(path);
    if !at.is_absolute() || at.components().any(|step| step == Component::ParentDir) {
        return Err(format!("the hostPath {path:?} must be absolute and must not contain '..'"));
    }
    let there = fs::metadata(at).ok();
    let hint = match kind {
        _ if there.is_some() => "",
        "Directory" => " (there is nothing there: make it, or let type: DirectoryOrCreate make it)",
        "File" => " (there is nothing there: make it, or let type: FileOrCreate make it)",
        _ => " (there is nothing there)",
    };
    let failed = |what: &str| Err(format!("hostPath type check failed: {path} is not {what}{hint}"));
    let made = |outcome: io::Result<()>| outcome.map_err(|error| format!("hostPath {path} cannot be made: {error}"));
    let is = |test: fn(&fs::FileType) -> bool| there.as_ref().is_some_and(|about| test(&about.file_type()));
    match kind {
        "" if there.is_some() => Ok(()),
        // Container runtimes create a directory if the path does not exist.
        "" => made(make_host(at, true, hidden)),
        "DirectoryOrCreate" if there.is_none() => made(make_host(at, true, hidden)),
        "FileOrCreate" if there.is_none() => made(make_host(at, false, hidden)),
        "Directory" | "DirectoryOrCreate" if !is(fs::FileType::is_dir) => failed("a directory"),
        "File" | "FileOrCreate" if !is(fs::FileType::is_file) => failed("a file"),
        "Socket" if !is(|kind| kind.is_socket()) => failed("a socket file"),
        "CharDevice" if !is(|kind| kind.is_char_device()) => failed("a character device"),
        "BlockDevice" if !is(|kind| kind.is_block_device()) => failed("a block device"),
        "Directory" | "DirectoryOrCreate" | "File" | "FileOrCreate" | "Socket" | "CharDevice" | "BlockDevice" => Ok(()),
        other => Err(format!("{other:?} is not a type of hostPath")),
    }
}

/// Unmounts the volumes of Pods, and removes their directories: Pods that need them prepare them again. No process of
/// any Pod may be running.
pub fn unmount_all(layout: &Layout) {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    for path in mounted(&table, &layout.pods()) {
        let _ = rustix::mount::unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        let _ = fs::remove_dir(&path);
    }
}

/// The volumes in memory: `UID/volumes/NAME`, and only mounts that the shim made itself.
fn mounted(table: &[u8], pods: &Path) -> Vec<PathBuf> {
    let ours = |line: &[u8]| {
        let mut fields = line.split(|&byte| byte == b' ');
        let path = PathBuf::from(OsString::from_vec(unescaped(fields.nth(4)?)));
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        let mut steps = path.strip_prefix(pods).ok()?.components().skip(1);
        let is_volume = steps.next()?.as_os_str() == "volumes" && steps.count() == 1;
        (is_volume && kind == b"tmpfs").then_some(path)
    };
    table.split(|&byte| byte == b'\n').filter_map(ours).collect()
}

/// The kernel writes spaces and similar characters as a backslash and three octal digits.
pub fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| byte == b'\\').and_then(|code| std::str::from_utf8(code).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 8).ok());
        text.push(code.unwrap_or(byte));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    text
}

/// Moves a Pod to the trash in one step. It is deleted later: that may take a while, and nothing waits for it. False:
/// there was nothing to remove.
pub fn discard(layout: &Layout, pod: &PodUid) -> io::Result<bool> {
    unmount(layout, pod);
    move_away(&layout.pod(pod)?, &layout.trash().join(pod.to_string()))
}

/// The same for the volumes alone.
pub fn remove(layout: &Layout, pod: &PodUid) -> io::Result<bool> {
    unmount(layout, pod);
    move_away(&layout.volumes(pod)?, &layout.trash().join(format!("{pod}.volumes")))
}

fn unmount(layout: &Layout, pod: &PodUid) {
    for entry in layout.volumes(pod).and_then(fs::read_dir).into_iter().flatten().flatten() {
        // A symlink leads to the machine's own directories, which the shim must not unmount.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let _ = rustix::mount::unmount(entry.path(), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
    }
}

fn move_away(dir: &Path, away: &Path) -> io::Result<bool> {
    match fs::rename(dir, away) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        // An earlier directory with this UID could not be deleted. UIDs are not reused, so it does not matter how long
        // this takes.
        // The directory is on a disk of its own, as claims may be: it is deleted in place.
        Err(error) if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::CrossesDevices) => {
            delete(dir).map(|()| true)
        }
        outcome => outcome.map(|()| true),
    }
}

/// Deletes everything in the trash. A failure is reported once, and the entry stays until the next start: a retry after
/// every Pod would take longer and longer.
pub fn empty_trash(trash: &Path, resists: &mut BTreeSet<OsString>) -> Vec<String> {
    let mut trouble = Vec::new();
    let mut tell = |name: &OsStr, error: io::Error, resists: &mut BTreeSet<OsString>| {
        if resists.insert(name.to_owned()) {
            trouble.push(format!("{} cannot be deleted: {error}", trash.join(name).display()));
        }
    };
    // Not what a symlink leads to.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let listed = rustix::fs::open(trash, flags, Mode::empty()).and_then(|opened| {
        let names =
            Dir::read_from(&opened)?.map(|entry| Ok(OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned()));
        Ok((names.collect::<Result<Vec<_>, Errno>>()?, opened))
    });
    let (names, opened) = match listed {
        Ok(listed) => listed,
        // Its directory is being removed.
        Err(Errno::NOENT) => return trouble,
        Err(error) => {
            tell(OsStr::new(""), error.into(), resists);
            return trouble;
        }
    };
    for name in names.iter().filter(|name| *name != "." && *name != "..") {
        if resists.contains(name) {
            continue;
        }
        if let Err(error) = delete_in(&opened, name)
            && error.kind() != io::ErrorKind::NotFound
        {
            tell(name, error, resists);
        }
    }
    trouble
}

/// How often a directory is read again if entries appear in it while it is deleted.
const MOST_ROUNDS: usize = 10;

/// Deletes a file, or a directory of any depth. Containers decide how deep it is: a directory that contains others is
/// taken apart level by level, each moved next to it first, so that neither the stack nor the number of open files nor
/// the length of a path grows with the depth.
///
/// A process of another container may have the directory open, and change it meanwhile: everything is reached by
/// descriptors, and what is not a directory when it is opened is not entered, whatever it was when it was listed.
pub fn delete(path: &Path) -> io::Result<()> {
    let (Some(beside), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let beside = rustix::fs::open(beside, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    delete_in(&beside, name)
}

fn delete_in(beside: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let mut parts = Parts { beside, of: name, made: None, moved: 0 };
    delete_level(beside, name, &mut parts)?;
    for done in 0.. {
        match &parts.made {
            Some((_, made)) if done < parts.moved => {
                let made = made.try_clone()?;
                delete_level(&made, OsStr::new(&done.to_string()), &mut parts)?;
            }
            Some((name, _)) => return Ok(unlinkat(beside, name, AtFlags::REMOVEDIR)?),
            None => return Ok(()),
        }
    }
    Ok(())
}

/// Deletes an entry of a directory, except the directories in it that are not empty: those are moved away.
fn delete_level(parent: &OwnedFd, name: &OsStr, parts: &mut Parts<'_>) -> io::Result<()> {
    let Some(opened) = open_dir(parent, name)? else {
        return Ok(unlinkat(parent, name, AtFlags::empty())?);
    };
    let mut dir = Dir::new(opened)?;
    for _ in 0..MOST_ROUNDS {
        while let Some(entry) = dir.read() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                delete_entry(dir.fd()?, name, parts)?;
            }
        }
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => dir.rewind(),
            outcome => return Ok(outcome?),
        }
    }
    Err(io::ErrorKind::DirectoryNotEmpty.into())
}

/// Deletes one entry that was listed, whatever it is by now, or moves it away.
fn delete_entry(dir: BorrowedFd<'_>, name: &OsStr, parts: &mut Parts<'_>) -> io::Result<()> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => {}
        Err(Errno::NOENT) => return Ok(()),
        outcome => return Ok(outcome?),
    }
    match unlinkat(dir, name, AtFlags::REMOVEDIR) {
        // No longer a directory: it is found again, because the one that contains it is not empty.
        Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        Err(_) => {}
    }
    // Moving a directory changes it, too.
    let _ = open_dir(dir, name);
    parts.take(dir, name)
}

/// Directories that were moved away, to be deleted later: numbered entries of a directory beside the first one.
struct Parts<'a> {
    beside: &'a OwnedFd,
    of: &'a OsStr,
    made: Option<(String, OwnedFd)>,
    moved: u64,
}

impl Parts<'_> {
    fn take(&mut self, dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
        let (_, parts) = match &self.made {
            Some(made) => made,
            None => self.made.insert(make_parts(self.beside, self.of)?),
        };
        match renameat(dir, name, parts, self.moved.to_string()) {
            Err(Errno::NOENT) => {}
            outcome => {
                outcome?;
                self.moved += 1;
            }
        }
        Ok(())
    }
}

/// A new directory beside another one. One that a killed process has left is deleted like anything else.
fn make_parts(beside: &OwnedFd, of: &OsStr) -> io::Result<(String, OwnedFd)> {
    for number in 0.. {
        let name = format!("{}.{number}", of.to_string_lossy());
        match mkdirat(beside, &name, Mode::RWXU) {
            Err(Errno::EXIST) => {}
            outcome => {
                outcome?;
                let made = open_dir(beside, OsStr::new(&name))?.ok_or(io::ErrorKind::NotADirectory)?;
                return Ok((name, made));
            }
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Opens a directory to be deleted. None: it is something else; a symlink is not followed.
fn open_dir(parent: impl AsFd, name: &OsStr) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = match openat(parent, name, flags, Mode::empty()) {
        Err(Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        found => found?,
    };
    open_up(&found);
    Ok(Some(openat(&found, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
}

/// Some programs remove their own write permission from directories that they have created. A failure shows up later.
fn open_up(dir: &OwnedFd) {
    if rustix::process::geteuid().is_root() {
        return;
    }
    if let Ok(about) = rustix::fs::fstat(dir)
        && about.st_mode & 0o700 != 0o700
    {
        let mode = Permissions::from_mode(about.st_mode & 0o777 | 0o700);
        let _ = fs::set_permissions(format!("/proc/self/fd/{}", dir.as_raw_fd()), mode);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn pod() -> PodUid {
        PodUid::from_u128(7)
    }

    fn ready(root: &Path, volumes: Vec<Volume>) -> Result<Layout, String> {
        let layout = Layout::new(root);
        fs::create_dir_all(layout.pods()).unwrap();
        fs::create_dir_all(layout.trash()).unwrap();
        let preparation = Preparation { pod: pod(), volumes, group: None };
        prepare(&layout, &preparation, &[]).map_err(|failure| failure.message)?;
        Ok(layout)
    }

    fn files(files: &[(&str, &str, u32)]) -> Vec<Volume> {
        let file = |(path, content, mode): &(&str, &str, u32)| port::File {
            path: (*path).to_owned(),
            content: content.as_bytes().to_vec(),
            mode: *mode,
        };
        vec![Volume { name: "v".into(), content: Content::Files(files.iter().map(file).collect()) }]
    }

    #[test]
    fn files_are_written_with_their_modes_and_brought_up_to_date() {
        let root = tempfile::tempdir().unwrap();
        let layout =
            ready(root.path(), files(&[("a", "1", 0o400), ("d/e/b", "2", 0o644), ("old", "x", 0o644)])).unwrap();
        let dir = layout.volume(&pod(), "v").unwrap();
        let mode = |path: &str| fs::metadata(dir.join(path)).unwrap().mode() & 0o7777;
        assert_eq!((mode("a"), mode("d/e/b")), (0o400, 0o644));
        assert_eq!(fs::metadata(layout.pod(&pod()).unwrap()).unwrap().mode() & 0o777, 0o700);
        let untouched = fs::metadata(dir.join("a")).unwrap().ino();
        ready(root.path(), files(&[("a", "1", 0o400), ("d/c", "22", 0o600)])).unwrap();
        assert_eq!(fs::metadata(dir.join("a")).unwrap().ino(), untouched);
        assert_eq!(fs::read_to_string(dir.join("d/c")).unwrap(), "22");
        assert!(!dir.join("old").exists() && !dir.join("d/e").exists());
    }

    #[test]
    fn what_others_put_into_a_volume_stays() {
        let root = tempfile::tempdir().unwrap();
        let layout = ready(root.path(), files(&[("a", "1", 0o644), ("d/b", "2", 0o644)])).unwrap();
        let dir = layout.volume(&pod(), "v").unwrap();
        // Mount points for other volumes.
        fs::create_dir(dir.join("cache")).unwrap();
        fs::create_dir(dir.join("d/cache")).unwrap();
        ready(root.path(), files(&[("a", "2", 0o644)])).unwrap();
        assert!(dir.join("cache").is_dir() && dir.join("d/cache").is_dir() && !dir.join("d/b").exists());
    }

    #[test]
    fn every_name_that_a_key_may_have_is_a_file() {
        let root = tempfile::tempdir().unwrap();
        let long = "k".repeat(253);
        let keys = [long.as_str(), ".a.new", "a", ".fresh", ".v"];
        let all: Vec<_> = keys.map(|key| (key, key, 0o644)).to_vec();
        let layout = ready(root.path(), files(&all)).unwrap();
        ready(root.path(), files(&all)).unwrap();
        for key in keys {
            assert_eq!(fs::read_to_string(layout.volume(&pod(), "v").unwrap().join(key)).unwrap(), key);
        }
    }

    #[test]
    fn no_file_leaves_its_volume() {
        for path in ["", "..", "../x", "/etc/x", "a/../../x", "a/..", "./a", "a\0b"] {
            let root = tempfile::tempdir().unwrap();
            let outcome = ready(root.path(), files(&[(path, "1", 0o644)]));
            // A leading `./` changes nothing.
            assert_eq!(outcome.is_err(), path != "./a", "{path:?}");
        }
    }

    #[test]
    fn host_paths_are_held_to_their_type() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name).display().to_string();
        fs::write(at("file"), "").unwrap();
        symlink(at("elsewhere"), at("dangling")).unwrap();
        fs::create_dir(at("real")).unwrap();
        symlink(at("real"), at("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for (path, kind, outcome) in [
            (at("file"), "", "ok"),
            (at("file"), "File", "ok"),
            (at("file"), "Directory", "is not a directory"),
            (at("file"), "Socket", "is not a socket file"),
            (at("socket"), "Socket", "ok"),
            (at("."), "Directory", "ok"),
            (at("."), "File", "is not a file"),
            (at("missing"), "Directory", "is not a directory"),
            (at("missing"), "File", "is not a file"),
            (at("made/here"), "DirectoryOrCreate", "ok"),
            (at("made/file"), "FileOrCreate", "ok"),
            (at("made/file"), "DirectoryOrCreate", "is not a directory"),
            ("relative".to_owned(), "", "must be absolute"),
            (at("../x"), "", "must not contain"),
            ("/dev/null".to_owned(), "CharDevice", "ok"),
            ("/dev/null".to_owned(), "BlockDevice", "is not a block device"),
            (at("file"), "Folder", "is not a type"),
            // A symlink to nothing is not a place where something is made.
            (at("dangling"), "", "cannot be made"),
            (at("dangling/x"), "DirectoryOrCreate", "cannot be made"),
            (at("dangling"), "FileOrCreate", "cannot be made"),
            (at("not/there"), "FileOrCreate", "cannot be made"),
            (at("link/new"), "DirectoryOrCreate", "ok"),
        ] {
            let said = host(&path, kind, &[]).err().unwrap_or_else(|| "ok".to_owned());
            assert!(said.contains(outcome), "{path} {kind}: {said}");
        }
        assert!(Path::new(&at("real/new")).is_dir() && !Path::new(&at("elsewhere")).exists());
    }

    #[test]
    fn only_our_own_mounts_are_taken_off() {
        let line = |path: &str, kind: &str| format!("36 35 0:33 / {path} rw,nosuid shared:9 - {kind} tmpfs rw\n");
        let table = [
            line("/my\\040data/pods/u/volumes/fast", "tmpfs"),
            line("/my\\040data/pods/u/volumes/v\\134w", "tmpfs"),
            line("/my\\040data/pods/u/volumes/disk", "ext4"),
            line("/my\\040data/pods/u/volumes/fast/below", "tmpfs"),
            line("/my\\040data/pods/u", "tmpfs"),
            line("/elsewhere/pods/u/volumes/fast", "tmpfs"),
            "nonsense\n".to_owned(),
        ];
        let found = mounted(table.concat().as_bytes(), Path::new("/my data/pods"));
        assert_eq!(found, [Path::new("/my data/pods/u/volumes/fast"), Path::new("/my data/pods/u/volumes/v\\w")]);
    }

    /// Only users other than root need the permissions; root deletes all the same.
    #[test]
    fn directories_without_write_permission_are_deleted() {
        let place = tempfile::tempdir().unwrap();
        let deep = place.path().join("a/b/c");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("file"), "").unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("kept"), "").unwrap();
        symlink(outside.path(), deep.join("out")).unwrap();
        for dir in ["a/b/c", "a/b", "a"] {
            fs::set_permissions(place.path().join(dir), Permissions::from_mode(0o444)).unwrap();
        }
        delete(&place.path().join("a")).unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        assert!(outside.path().join("kept").exists(), "not where a symlink leads");
    }

    #[test]
    fn nothing_is_made_behind_a_symlink_that_appears_meanwhile() {
        let place = tempfile::tempdir().unwrap();
        let (volume, outside) = (place.path().join("volume"), place.path().join("outside"));
        fs::create_dir_all(&volume).unwrap();
        fs::create_dir_all(&outside).unwrap();
        symlink(&outside, volume.join("a")).unwrap();
        for (missing, is_dir) in [("a/b", true), ("a/b", false), ("a", true), ("a", false)] {
            let start = mounts::open_real(&volume).unwrap();
            assert!(make_below(start, Path::new(missing), is_dir).is_err(), "{missing} {is_dir}");
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        assert!(mounts::open_real(&volume.join("a")).is_err());
        for (missing, is_dir) in [("c/d", true), ("c/e", false)] {
            make_below(mounts::open_real(&volume).unwrap(), Path::new(missing), is_dir).unwrap();
            assert_eq!(volume.join(missing).is_dir(), is_dir);
        }
    }

    /// Another container that has the directory open replaces entries after they were listed.
    #[test]
    fn what_became_a_symlink_after_it_was_listed_is_not_entered() {
        let place = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("kept"), "").unwrap();
        let trash = place.path().join("trash");
        fs::create_dir_all(trash.join("pod/full/deep/er")).unwrap();
        let opened = rustix::fs::open(&trash, OFlags::RDONLY, Mode::empty()).unwrap();
        let pod = open_dir(&opened, OsStr::new("pod")).unwrap().unwrap();
        let mut parts = Parts { beside: &opened, of: OsStr::new("pod"), made: None, moved: 0 };
        // Moved as a directory, and as a symlink that took its place just before.
        symlink(outside.path(), trash.join("pod/link")).unwrap();
        parts.take(pod.as_fd(), OsStr::new("full")).unwrap();
        parts.take(pod.as_fd(), OsStr::new("link")).unwrap();
        parts.take(pod.as_fd(), OsStr::new("gone")).unwrap();
        assert_eq!(parts.moved, 2);
        let made = parts.made.as_ref().unwrap().1.try_clone().unwrap();
        for number in ["0", "1"] {
            delete_level(&made, OsStr::new(number), &mut parts).unwrap();
        }
        // Listed as a directory, and a symlink when it is deleted.
        symlink(outside.path(), trash.join("pod/listed")).unwrap();
        delete_entry(pod.as_fd(), OsStr::new("listed"), &mut parts).unwrap();
        delete_entry(pod.as_fd(), OsStr::new("gone"), &mut parts).unwrap();
        // The directory itself.
        symlink(outside.path(), trash.join("other")).unwrap();
        delete_level(&opened, OsStr::new("other"), &mut parts).unwrap();
        assert!(outside.path().join("kept").exists());
        assert!(!trash.join("pod/listed").exists() && !trash.join("other").exists());
        assert_eq!(fs::read_dir(trash.join("pod.0")).unwrap().count(), 1, "what was in the directory");
        symlink(outside.path(), trash.join("pod.0/link")).unwrap();
        for entry in ["pod", "pod.0"] {
            delete(&trash.join(entry)).unwrap();
        }
        assert_eq!(fs::read_dir(&trash).unwrap().count(), 0);
        assert!(outside.path().join("kept").exists());
    }

    /// A path of this length cannot be named, and one stack frame or open file for each level would be too many.
    #[test]
    fn a_directory_of_any_depth_is_deleted() {
        let place = tempfile::tempdir().unwrap();
        let (top, below) = (place.path().join("top"), place.path().join("below"));
        fs::create_dir(&below).unwrap();
        for level in 0..20_000 {
            fs::create_dir(&top).unwrap();
            fs::rename(&below, top.join("d")).unwrap();
            if level % 1000 == 0 {
                fs::write(top.join("file"), "").unwrap();
                fs::create_dir_all(top.join("wide/er")).unwrap();
            }
            fs::rename(&top, &below).unwrap();
        }
        // Left by a process that was killed.
        fs::create_dir_all(place.path().join("below.0/7")).unwrap();
        delete(&below).unwrap();
        delete(&place.path().join("below.0")).unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_resists_is_told_once() {
        let place = tempfile::tempdir().unwrap();
        let mut resists = BTreeSet::from(["one".into()]);
        for name in ["one", "two"] {
            fs::write(place.path().join(name), "").unwrap();
        }
        assert_eq!(empty_trash(place.path(), &mut resists), [""; 0]);
        assert!(place.path().join("one").exists() && !place.path().join("two").exists());
        // The same in a place where no user can delete anything.
        let place = Path::new("/proc/sys/kernel/random");
        let mut resists = BTreeSet::new();
        let told = empty_trash(place, &mut resists);
        assert!(!told.is_empty() && told.len() == resists.len(), "{told:?}");
        assert_eq!(empty_trash(place, &mut resists), [""; 0]);
    }

    #[test]
    fn a_trash_that_is_a_symlink_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("kept"), "").unwrap();
        let trash = place.path().join("trash");
        symlink(outside.path(), &trash).unwrap();
        let mut resists = BTreeSet::new();
        let told = empty_trash(&trash, &mut resists);
        assert!(told.len() == 1 && told[0].contains("trash") && told[0].contains("cannot be deleted"), "{told:?}");
        assert!(outside.path().join("kept").exists());
        assert_eq!(empty_trash(&trash, &mut resists), [""; 0], "it is told once");
    }

    #[test]
    fn a_pod_goes_in_one_step_and_then_for_good() {
        let root = tempfile::tempdir().unwrap();
        let layout = ready(root.path(), files(&[("a/b/c", "1", 0o400)])).unwrap();
        assert!(discard(&layout, &pod()).unwrap());
        assert!(!layout.pod(&pod()).unwrap().exists());
        assert_eq!(empty_trash(&layout.trash(), &mut BTreeSet::new()), [""; 0]);
        assert_eq!(fs::read_dir(layout.trash()).unwrap().count(), 0);
        assert!(!discard(&layout, &pod()).unwrap());
    }
}
