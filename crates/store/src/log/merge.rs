//! Logs become a state, beside the writer: the files up to a log that is no longer written are read twice. First where the
//! newest record of each object is; then these records, in the order in which they were written, into the new state. It is
//! compared with the account of the last group before it takes the place of what it was made from.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use foldhash::fast::RandomState;

use super::{Fault, Place, StateWriter, files, read};
use crate::backend::Account;
use crate::record;

/// A merge under way. It is given up if this is dropped.
pub(crate) struct Merge {
    thread: Option<JoinHandle<Result<u64, Fault>>>,
    stop: Arc<AtomicBool>,
    /// How many bytes of logs it takes.
    pub logs: u64,
}

impl Merge {
    pub fn start(dir: PathBuf, up_to: u64, logs: u64) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("store-merge".into()).spawn({
            let stop = stop.clone();
            move || merge(&dir, up_to, &stop)
        })?;
        Ok(Self { thread: Some(thread), stop, logs })
    }

    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end. The result is the length of the state.
    pub fn finish(mut self) -> Result<u64, Fault> {
        let panicked = || Err(Fault::Damaged("the thread that merges the logs gave up".into()));
        self.thread.take().map_or(Err(Fault::Stopped), |thread| thread.join().unwrap_or_else(|_| panicked()))
    }
}

impl Drop for Merge {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A state that is not complete does not count.
            let _ = thread.join();
        }
    }
}

/// Makes the state of all files up to this log, and removes them.
fn merge(dir: &Path, up_to: u64, stop: &AtomicBool) -> Result<u64, Fault> {
    let goes_on = || if stop.load(Ordering::Relaxed) { Err(Fault::Stopped) } else { Ok(()) };
    let mut newest: HashMap<Box<[u8]>, Place, RandomState> = HashMap::default();
    let contents = read(dir, Some(up_to), |place, item| {
        goes_on()?;
        match newest.get_mut(item.key) {
            Some(known) if !item.deletes => *known = place,
            Some(_) => drop(newest.remove(item.key)),
            None if item.deletes => {}
            None => drop(newest.insert(item.key.into(), place)),
        }
        Ok(())
    })?;
    let wrong = || Fault::Damaged("the logs do not contain what their accounts say".into());
    let mut state = StateWriter::create(dir, up_to, contents.account.revision)?;
    read(dir, Some(up_to), |place, item| {
        goes_on()?;
        if newest.get(item.key) == Some(&place) {
            let key = std::str::from_utf8(item.key).map_err(|_| wrong())?;
            state.add(key, item.record, record::sum(item.record).ok_or_else(wrong)?)?;
        }
        Ok(())
    })?;
    let counted = |account: &Account| (account.objects, account.digest);
    if counted(state.account()) != counted(&contents.account) {
        return Err(wrong());
    }
    let length = state.finish()?;
    // What cannot be removed now does not count, and goes later.
    for path in files(dir).map(|files| files.stale).unwrap_or_default() {
        let _ = std::fs::remove_file(path);
    }
    Ok(length)
}
