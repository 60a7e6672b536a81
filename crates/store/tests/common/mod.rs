//! Helpers for the tests of the store: small writes, and a way to wait for them.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, reason = "each test uses a part of it")]

use tally_store::{Body, Change, Entry, Expect, Store, Write, WriteError};

/// The text of an object as it is read: with the revision in it.
pub fn text(value: &str, revision: u64) -> String {
    format!(r#"{{"rv":"{revision}","v":"{value}"}}"#)
}

/// The same text as it is written: with a place for the revision.
pub fn body(value: &str) -> Body {
    Body { bytes: format!(r#"{{"rv":"","v":"{value}"}}"#).into_bytes(), stamp_at: 7, handle: None }
}

pub fn put(key: &str, expect: Expect, value: &str) -> Write {
    Write { key: key.into(), expect, change: Change::Put(body(value)) }
}

pub fn delete(key: &str, revision: u64, value: &str) -> Write {
    Write { key: key.into(), expect: Expect::At(revision), change: Change::Delete(body(value)) }
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Commits and waits, without a runtime.
pub fn commit(store: &Store, write: Write) -> Result<Entry, WriteError> {
    wait(store.commit(write))
}

/// Waits for a future on this thread.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(done) => return done,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

/// All entries, as key, revision and text.
pub fn dump(store: &Store) -> Vec<(String, u64, String)> {
    let page = store.range("", None, None, None).unwrap();
    page.entries
        .iter()
        .map(|entry| (entry.key.to_string(), entry.revision, String::from_utf8(entry.value.to_vec()).unwrap()))
        .collect()
}
