//! Identities and revisions. Newtypes for values that are easily confused.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A UID as the API server assigned it. Opaque: the canonical form (lower-case hexadecimal with dashes) is stored in
/// sixteen bytes, any other form as text, so that a foreign UID survives a round trip unchanged.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Uid {
    /// Stored as bytes: a `u128` has an alignment of sixteen and would make the enum eight bytes larger.
    Canonical([u8; 16]),
    Other(Box<str>),
}

const DASHES: [usize; 4] = [8, 13, 18, 23];
/// Where the two digits of each byte begin.
const PAIRS: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];
const DIGITS: &[u8; 16] = b"0123456789abcdef";
/// The value of each lower-case hexadecimal digit; 255 for every other byte.
const DIGIT_VALUES: [u8; 256] = {
    let mut values = [255; 256];
    let mut value = 0;
    while value < 16 {
        values[DIGITS[value] as usize] = value as u8;
        value += 1;
    }
    values
};

impl Uid {
    fn new(text: &str) -> Self {
        Self::canonical(text).map_or_else(|| Uid::Other(text.into()), Uid::Canonical)
    }

    fn canonical(text: &str) -> Option<[u8; 16]> {
        let bytes = text.as_bytes();
        if bytes.len() != 36 {
            return None;
        }
        if DASHES.iter().any(|at| bytes[*at] != b'-') {
            return None;
        }
        let mut value = [0; 16];
        let mut bad = 0;
        for (byte, at) in value.iter_mut().zip(PAIRS) {
            let (high, low) = (DIGIT_VALUES[usize::from(bytes[at])], DIGIT_VALUES[usize::from(bytes[at + 1])]);
            bad |= high | low;
            *byte = high << 4 | low & 15;
        }
        (bad < 16).then_some(value)
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Uid::Other(text) => f.write_str(text),
            Uid::Canonical(bytes) => {
                let mut text = [b'-'; 36];
                for (byte, at) in bytes.iter().zip(PAIRS) {
                    text[at] = DIGITS[usize::from(byte >> 4)];
                    text[at + 1] = DIGITS[usize::from(byte & 15)];
                }
                f.write_str(std::str::from_utf8(&text).unwrap_or_default())
            }
        }
    }
}

impl Hash for Uid {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Uid::Canonical(bytes) => state.write_u128(u128::from_be_bytes(*bytes)),
            Uid::Other(text) => text.hash(state),
        }
    }
}

macro_rules! uid_newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uid);

        impl $name {
            pub fn new(text: &str) -> Self {
                Self(Uid::new(text))
            }

            /// A canonical UID from a number: for simulators and tests, which number UIDs instead of drawing random
            /// ones.
            pub const fn from_u128(value: u128) -> Self {
                Self(Uid::Canonical(value.to_be_bytes()))
            }

            pub fn is_empty(&self) -> bool {
                matches!(&self.0, Uid::Other(text) if text.is_empty())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::view::read_text(deserializer, "a UID", |text| Ok(Self::new(text)))
            }
        }
    };
}

uid_newtype!(
    /// Identifies one Job permanently. Names are reused; UIDs are not, so state in memory is keyed by UID.
    JobUid
);
uid_newtype!(
    /// Identifies one Pod permanently.
    PodUid
);
uid_newtype!(
    /// Identifies one object of any kind permanently.
    ObjectUid
);

impl From<PodUid> for ObjectUid {
    fn from(PodUid(uid): PodUid) -> Self {
        Self(uid)
    }
}

impl From<ObjectUid> for JobUid {
    fn from(ObjectUid(uid): ObjectUid) -> Self {
        Self(uid)
    }
}

/// A point in the revision sequence that Jobs and Pods share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A completion index of an Indexed Job. `spec.completions` is an int32, so every valid index fits.
pub type CompletionIndex = u32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_survive_a_round_trip_whatever_their_form() {
        for text in [
            "3b241101-e2bb-4255-8caf-4136c566a962",
            "3B241101-E2BB-4255-8CAF-4136C566A962",
            "3b241101e2bb42558caf4136c566a962",
            "",
            "pod-7",
            "3b241101-e2bb-4255-8caf-4136c566a96g",
        ] {
            assert_eq!(PodUid::new(text).to_string(), text);
        }
        assert_ne!(
            PodUid::new("3b241101-e2bb-4255-8caf-4136c566a962"),
            PodUid::new("3B241101-E2BB-4255-8CAF-4136C566A962"),
            "UIDs are opaque: no case folding"
        );
    }
}
