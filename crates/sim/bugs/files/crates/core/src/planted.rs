//! Which known bug is active in this thread.

use std::cell::Cell;

thread_local! {
    static ACTIVE: Cell<Option<&'static str>> = const { Cell::new(None) };
    static NOTED: Cell<bool> = const { Cell::new(false) };
}

pub fn set(bug: Option<&'static str>) {
    ACTIVE.set(bug);
}

pub fn is(bug: &str) -> bool {
    ACTIVE.get() == Some(bug)
}

/// What one place tells a bug in another.
pub fn note(holds: bool) {
    NOTED.set(holds);
}

pub fn noted() -> bool {
    NOTED.get()
}
