//! The environment of a process.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Variables as the kernel takes them, `NAME=VALUE`, sorted by name. Names and values may be any bytes: those that a shell
/// exports are passed on as they are. A copy shares them: most are the same for all processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables(Vec<Rc<CStr>>);

impl Variables {
    /// Those of this process.
    pub fn own() -> io::Result<Self> {
        let mut own = Self::default();
        for (name, value) in std::env::vars_os() {
            own.insert(name, value)?;
        }
        Ok(own)
    }

    /// Replaces one that has the same name.
    pub fn insert(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> io::Result<()> {
        let (name, value) = (name.as_ref().as_bytes(), value.as_ref().as_bytes());
        let variable = CString::new([name, b"=", value].concat()).map_err(|_| {
            let name = String::from_utf8_lossy(name);
            io::Error::new(io::ErrorKind::InvalidInput, format!("the environment variable {name:?} has a NUL byte"))
        })?;
        match self.find(name) {
            Ok(at) => self.0[at] = variable.into(),
            Err(at) => self.0.insert(at, variable.into()),
        }
        Ok(())
    }

    pub fn get(&self, name: &str) -> Option<&OsStr> {
        let at = self.find(name.as_bytes()).ok()?;
        Some(OsStr::from_bytes(&self.0[at].to_bytes()[name.len() + 1..]))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|variable| {
            let name = name_of(variable);
            (OsStr::from_bytes(name), OsStr::from_bytes(&variable.to_bytes()[name.len() + 1..]))
        })
    }

    pub fn as_c_strings(&self) -> impl ExactSizeIterator<Item = &CStr> {
        self.0.iter().map(|variable| &**variable)
    }

    fn find(&self, name: &[u8]) -> Result<usize, usize> {
        self.0.binary_search_by(|variable| name_of(variable).cmp(name))
    }
}

/// A name may begin with the sign, as it may for the shell.
fn name_of(variable: &CStr) -> &[u8] {
    let text = variable.to_bytes();
    let sign = text.iter().skip(1).position(|&byte| byte == b'=');
    &text[..sign.map_or(0, |at| at + 1)]
}

impl Serialize for Variables {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.as_c_strings())
    }
}

impl<'de> Deserialize<'de> for Variables {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let variables = Vec::<CString>::deserialize(deserializer)?;
        Ok(Self(variables.into_iter().map(Rc::from).collect()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_sorted_and_replaced_by_name() {
        let mut variables = Variables::default();
        let odd = OsStr::from_bytes(b"\xff=");
        for (name, value) in [("B", "1"), ("A", "x=y"), ("AB", ""), ("=C:", "2"), ("B", "3")] {
            variables.insert(name, value).unwrap();
        }
        variables.insert("Z", odd).unwrap();
        let all: Vec<_> = variables.iter().map(|(name, value)| (name.to_str().unwrap(), value)).collect();
        let expected =
            [("=C:", "2"), ("A", "x=y"), ("AB", ""), ("B", "3")].map(|(name, value)| (name, OsStr::new(value)));
        assert_eq!(all, [&expected[..], &[("Z", odd)]].concat());
        assert_eq!((variables.get("A"), variables.get("Z")), (Some(OsStr::new("x=y")), Some(odd)));
        assert_eq!(variables.get("C"), None);
        let sent = serde_json::to_string(&variables).unwrap();
        assert_eq!(serde_json::from_str::<Variables>(&sent).unwrap(), variables);
        let refused = variables.insert("N", "a\0b").unwrap_err().to_string();
        assert_eq!(refused, "the environment variable \"N\" has a NUL byte");
    }

    #[test]
    fn the_variables_of_this_process_are_what_a_child_would_get() {
        let own = Variables::own().unwrap();
        let mut expected: Vec<_> = std::env::vars_os().collect();
        expected.sort();
        assert!(own.iter().eq(expected.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))));
    }
}
