//! The state and the logs of a store, read across damaged places.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::{Acknowledged, Damage, Findings};
use crate::FIRST;
use crate::backend::Account;
use crate::log::{self, ACCOUNT_MAGIC, Group, HEADER_LEN, Item, Kind, Rest, items, newer_account};
use crate::record;

/// A part of a file that is not a whole group.
struct Broken {
    path: PathBuf,
    at: usize,
    bytes: Vec<u8>,
}

/// Reads all files. `acknowledged`: what the head says, if it can be read.
pub fn read(dir: &Path, acknowledged: Option<Acknowledged>, found: &mut Findings) -> io::Result<()> {
    let files = match log::files(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            found.damage(dir, None, "is missing");
            return Ok(());
        }
        files => files?,
    };
    if let Some(missing) = files.missing() {
        found.damage(&missing.path(dir), None, "is missing");
    }
    if files.current.first().is_some_and(|first| first.kind == Kind::Log) {
        found.take_account(Account { revision: FIRST, follows: FIRST, objects: 0, digest: 0 });
    }
    let last = files.last(dir)?.or(files.current.last().copied());
    // The revision that the next group follows, if what is before it could be read.
    let mut follows = Some(FIRST);
    // At the end of the last file: perhaps a group that was never acknowledged.
    let mut open = None;
    for &name in &files.current {
        if last.is_some_and(|last| name > last) {
            // It was only begun.
            continue;
        }
        let path = name.path(dir);
        let bytes = std::fs::read(&path)?;
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let mut at = HEADER_LEN.min(end);
        if !name.begins(&bytes) {
            // A crash before the first group was written leaves this, and no damage that can matter.
            let was_begun = Some(name) == last && name.kind == Kind::Log && end <= HEADER_LEN;
            follows = None;
            if let Some(newer) = log::newer_file(&bytes, name) {
                found.newer = Some(newer);
                return Ok(());
            }
            if !was_begun {
                found.damage(&path, Some(0), "does not begin as it should");
            }
        }
        let mut is_complete = name.kind == Kind::Log;
        while at < end {
            if let Some(group) = Group::parse(&bytes[at..]) {
                if let Some(account) = group.account {
                    let is_next = match name.kind {
                        Kind::Log => {
                            follows.is_none_or(|it| it == account.follows) && account.revision > account.follows
                        }
                        Kind::State => !is_complete && [0, account.revision].contains(&account.follows),
                    };
                    if !is_next {
                        found.damage(&path, Some(at as u64), "does not follow what is before it");
                    }
                    follows = Some(account.revision);
                }
                take(&group, name.kind, &bytes[at..], found);
                is_complete |= group.account.is_some_and(|account| account.follows == 0);
                at += group.length;
                continue;
            }
            let next = (at + 1..end).find(|next| {
                bytes[*next..].starts_with(&ACCOUNT_MAGIC[..ACCOUNT_MAGIC.len() - 1])
                    && Group::parse(&bytes[*next..]).is_some()
            });
            follows = None;
            let to = next.unwrap_or(end);
            let broken = Broken { path: path.clone(), at, bytes: bytes[at..to].to_vec() };
            if next.is_none() && Some(name) == last {
                open = Some(broken)
            } else {
                damaged(&broken, found)
            }
            at = to;
        }
        let is_named = found.damages.iter().any(|damage| damage.path == path);
        if !is_complete && !is_named && open.as_ref().is_none_or(|open| open.path != path) {
            found.damage(&path, Some(end as u64), "has no end");
        }
    }
    let newest = found.account.map_or(FIRST, |account| account.revision);
    let Some(broken) = open else {
        let is_short = found.damages.is_empty() && acknowledged.is_some_and(|head| head.revision() > newest);
        if let (Some(last), true) = (last, is_short) {
            found.damage(&last.path(dir), None, "ends before what was acknowledged");
        }
        return Ok(());
    };
    let is_log = last.is_some_and(|last| last.kind == Kind::Log);
    let is_unfinished = is_log && Rest::new(broken.at as u64, &broken.bytes).is_unfinished(newest);
    if is_unfinished && acknowledged.is_none_or(|head| head.revision() <= newest) {
        let what = "ends with a write that was not finished and not acknowledged".to_owned();
        found.unfinished = Some(Damage { path: broken.path, at: Some(broken.at as u64), what });
    } else {
        damaged(&broken, found);
    }
    Ok(())
}

/// Takes a group whose checksum is correct.
fn take(group: &Group<'_>, kind: Kind, bytes: &[u8], found: &mut Findings) {
    let Some(account) = group.account else {
        found.newer = newer_account(bytes);
        return;
    };
    // In a state, the others are about what comes before them.
    if kind == Kind::Log || account.follows == 0 {
        found.take_account(account);
    }
    for (_, item) in items(group.items) {
        take_item(&item, account.revision, true, found);
    }
}

/// `revision`: that of the group, as far as it is known. Returns whether the item can be used.
fn take_item(item: &Item<'_>, revision: u64, is_sound: bool, found: &mut Findings) -> bool {
    match record::read(item.key, item.record).ok().filter(|_| item.deletes) {
        // It has a checksum of its own.
        Some(deletion) => found.take(item.key, None, deletion.revision, true),
        None => found.take(item.key, Some(item.record), revision, is_sound),
    }
}

/// Takes what is sound in a damaged part.
fn damaged(broken: &Broken, found: &mut Findings) {
    found.damage(&broken.path, Some(broken.at as u64), "is damaged");
    let revision = found.account.map_or(0, |account| account.revision).saturating_add(1);
    let mut at = 0;
    while at < broken.bytes.len() {
        let item = Item::parse(&broken.bytes[at..]).filter(|item| !item.key.is_empty() && !item.record.is_empty());
        // The length of one that is damaged may be wrong.
        at += match item {
            Some(item) if take_item(&item, revision, false, found) => item.length,
            _ => 1,
        };
    }
}
