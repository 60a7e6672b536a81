//! Names of Pods. The controller chooses them, so that the same intention always has the same name.
//!
//! A retry after an unknown outcome, or a second leader with the same view, receives AlreadyExists instead of creating
//! a second Pod. The suffix looks like the five random characters that clients know, but it is a bijection of the
//! attempt number, keyed by the Job's UID: attempts of one Job never collide, and the attempt can be computed from the
//! name.

use std::hash::{BuildHasher, Hash, Hasher as _};

use compact_str::CompactString;

use crate::blueprint::generate_name;
use crate::ids::{CompletionIndex, JobUid};

const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX: usize = 5;
/// The number of suffixes: 27^5. Beyond that attempts repeat, and then receive AlreadyExists.
pub const ATTEMPTS: u32 = 27u32.pow(SUFFIX as u32);
/// The API server truncates a generateName prefix to this length.
const PREFIX: usize = 58;

/// The names of one Job's Pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodNames {
    job: CompactString,
    multiplier: u64,
    inverse: u64,
    offset: u64,
}

impl PodNames {
    pub fn new(uid: &JobUid, job: &str) -> Self {
        // Must never change: two versions of Tally that lead one after the other must agree on names.
        let mut hasher = Fnv::default();
        hasher.write(uid.to_string().as_bytes());
        let hash = hasher.finish();
        let modulus = u64::from(ATTEMPTS);
        let mut multiplier = (hash >> 32) % modulus;
        // Coprime with 27^5, and so invertible, means not divisible by 3.
        multiplier += u64::from(multiplier % 3 == 0);
        Self {
            job: job.into(),
            multiplier,
            inverse: inverse(multiplier, modulus),
            offset: (hash & 0xffff_ffff) % modulus,
        }
    }

    /// The prefix that a client sees as generateName (CREATE-1, VEC-35).
    pub fn prefix(&self, index: Option<CompletionIndex>) -> CompactString {
        prefix(&self.job, index)
    }

    pub fn name(&self, index: Option<CompletionIndex>, attempt: u32) -> CompactString {
        let modulus = u64::from(ATTEMPTS);
        let mut code = (u64::from(attempt % ATTEMPTS) * self.multiplier + self.offset) % modulus;
        let mut suffix = [0; SUFFIX];
        for slot in &mut suffix {
            *slot = ALPHABET[(code % 27) as usize];
            code /= 27;
        }
        let mut name = self.prefix(index);
        name.push_str(std::str::from_utf8(&suffix).unwrap_or_default());
        name
    }

    /// The attempt number of this name, if it is one of ours for that index.
    pub fn attempt(&self, index: Option<CompletionIndex>, name: &str) -> Option<u32> {
        let suffix = name.strip_prefix(self.prefix(index).as_str())?.as_bytes();
        if suffix.len() != SUFFIX {
            return None;
        }
        let mut code: u64 = 0;
        for byte in suffix.iter().rev() {
            code = code * 27 + ALPHABET.iter().position(|letter| letter == byte)? as u64;
        }
        let modulus = u64::from(ATTEMPTS);
        u32::try_from((code + modulus - self.offset) % modulus * self.inverse % modulus).ok()
    }
}

/// The generateName of the Pod, truncated as the API server truncates it before it adds a suffix.
fn prefix(job: &str, index: Option<CompletionIndex>) -> CompactString {
    let mut prefix = generate_name(job, index);
    prefix.truncate(prefix.floor_char_boundary(PREFIX));
    prefix.into()
}

fn inverse(value: u64, modulus: u64) -> u64 {
    let (mut old, mut new) = ((modulus as i64, 0i64), (value as i64, 1i64));
    while new.0 != 0 {
        let quotient = old.0 / new.0;
        (old, new) = (new, (old.0 - quotient * new.0, old.1 - quotient * new.1));
    }
    old.1.rem_euclid(modulus as i64) as u64
}

/// FNV-1a with a final mix. Written out because its values must never change.
#[derive(Clone, Copy)]
pub(crate) struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl std::hash::Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        let mut hash = self.0;
        hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^ hash >> 33
    }
}

/// The hash function of the tables keyed by names and UIDs. Its seed is fixed, so that a run is reproducible.
pub(crate) fn table_hash<T: Hash + ?Sized>(value: &T) -> u64 {
    foldhash::fast::FixedState::with_seed(0x7a11).hash_one(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_and_names_are_a_bijection() {
        let names = PodNames::new(&JobUid::new("3b241101-e2bb-4255-8caf-4136c566a962"), "job");
        for index in [None, Some(0), Some(99_999)] {
            for attempt in (0..2_000).chain([ATTEMPTS - 1, ATTEMPTS / 2]) {
                let name = names.name(index, attempt);
                assert_eq!(names.attempt(index, &name), Some(attempt), "{name}");
            }
        }
        assert_eq!(names.attempt(None, "job-bbbb"), None);
        assert_eq!(names.attempt(None, "job-aaaaa"), None, "letters the API server does not use");
        assert_eq!(names.attempt(Some(1), names.name(Some(2), 0).as_str()), None);
    }

    /// The value is part of the contract between one leader and the next.
    #[test]
    fn names_never_change_between_versions() {
        let names = PodNames::new(&JobUid::new("3b241101-e2bb-4255-8caf-4136c566a962"), "job");
        assert_eq!(names.name(None, 0), names.name(None, ATTEMPTS), "attempts wrap");
        assert_eq!(names.name(None, 0), "job-cqbtg");
        assert_eq!(names.name(Some(7), 3), "job-7-vtc7k");
    }

    #[test]
    fn vec_35_long_names_are_cut_so_that_the_prefix_fits() {
        let long = "n".repeat(70);
        let names = PodNames::new(&JobUid::new("u"), &long);
        assert_eq!(names.prefix(Some(1)), format!("{}-1-", "n".repeat(55)));
        assert_eq!(names.prefix(None).len(), 58);
        assert_eq!(PodNames::new(&JobUid::new("u"), "a.b").prefix(None), "a.b-");
    }
}
