//! The machine's clock and random numbers.

use std::time::{SystemTime, UNIX_EPOCH};

use tally_core::time::Timestamp;
use tally_registry::Env;

/// The environment of production.
pub struct SystemEnv;

impl Env for SystemEnv {
    fn now(&self) -> Timestamp {
        let millis = |span: std::time::Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => Timestamp::from_millis(millis(since)),
            Err(before) => Timestamp::from_millis(-millis(before.duration())),
        }
    }

    fn new_uid(&self) -> String {
        uuid()
    }

    fn random(&self, limit: u32) -> u32 {
        fastrand::u32(..limit.max(1))
    }
}

/// A random UUID. Identifiers must be unique, not secret: the thread's generator, seeded by the system, is sufficient.
pub fn uuid() -> String {
    // The bits of version 4 and of the variant of RFC 9562 are fixed.
    let bits = fastrand::u128(..) & !(0xf << 76 | 0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let text = format!("{bits:032x}");
    let mut parts = [0..8, 8..12, 12..16, 16..20, 20..32].into_iter().filter_map(|range| text.get(range));
    let mut written = String::with_capacity(36);
    if let Some(first) = parts.next() {
        written.push_str(first);
    }
    for part in parts {
        written.push('-');
        written.push_str(part);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_random_uuids_of_version_4() {
        let (one, other) = (uuid(), uuid());
        assert_ne!(one, other);
        for uuid in [one, other] {
            let parts: Vec<&str> = uuid.split('-').collect();
            assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{uuid}");
            assert!(parts[2].starts_with('4') && parts[3].starts_with(['8', '9', 'a', 'b']), "{uuid}");
        }
    }

    #[test]
    fn chance_stays_below_its_limit() {
        assert_eq!(SystemEnv.random(0), 0);
        assert_eq!(SystemEnv.random(1), 0);
        assert!((0..1_000).all(|_| SystemEnv.random(7) < 7));
    }
}
