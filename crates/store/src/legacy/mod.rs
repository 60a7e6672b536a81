//! Reads a store of the first format, whose engine was `fjall` 3: journals (`journals.rs`), tables and their lists
//! (`tables.rs`). Nothing writes it any more. It is read to convert it, and by `tally check` and `tally salvage`.
//!
//! A key of the engine is [`OBJECT`] and the key of an object, or [`ACCOUNT_KEY`]. Its records and accounts are those of
//! today.

mod journals;
mod tables;

use std::io::{self, ErrorKind};
use std::path::Path;

use crate::log::{decode_account, newer_account, newer_format};
use crate::salvage::{Acknowledged, Findings};

const OBJECT: u8 = b'o';
const ACCOUNT_KEY: &[u8] = b"account";
/// The content of the engine's file `version`.
const VERSION: &[u8] = b"FJL\x03";

pub fn read(engine: &Path, acknowledged: Option<Acknowledged>, found: &mut Findings) -> io::Result<()> {
    version(&engine.join("version"), found)?;
    tables::read(engine, found)?;
    journals::read(engine, acknowledged, found)
}

fn version(path: &Path, found: &mut Findings) -> io::Result<()> {
    match std::fs::read(path) {
        Ok(bytes) if bytes == VERSION => {}
        Ok(bytes) => {
            found.newer_engine = newer_format(&bytes, VERSION);
            found.damage(path, None, "does not have the version of the engine");
        }
        Err(error) if error.kind() == ErrorKind::NotFound => found.damage(path, None, "is missing"),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Takes an item of the engine. `is_sound`: it is in a place whose checksum is correct. Returns whether it can be used.
fn take(found: &mut Findings, key: &[u8], value: Option<&[u8]>, seqno: u64, is_sound: bool) -> bool {
    if is_sound {
        found.seqno = found.seqno.max(seqno);
    }
    if key != ACCOUNT_KEY {
        return key.strip_prefix(&[OBJECT]).is_some_and(|key| found.take(key, value, seqno, is_sound));
    }
    let account = value.and_then(decode_account);
    match account {
        Some(account) => found.take_account(account),
        None => found.newer = found.newer.or(value.and_then(newer_account).filter(|_| is_sound)),
    }
    account.is_some()
}

/// A number of `N` bytes at a place in a slice, with its bytes in ascending order.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u128> {
    let mut all = [0; 16];
    all[..N].copy_from_slice(bytes.get(at..at.checked_add(N)?)?);
    Some(u128::from_le_bytes(all))
}
