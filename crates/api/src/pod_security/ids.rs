//! Which users and groups a Pod may name where a level applies.
//!
//! A container has no image with users of its own: a number in its `securityContext` is a user or a group of the
//! machine, and opens the files of that user or group. Numbers without a name count, too: other sources than
//! `/etc/passwd` may give it one, and files can have an owner without a name.

use std::ops::RangeInclusive;
use std::str::FromStr;

use tally_value::Value;

use super::checks::{Names, Pod, Violation};

/// The user and the group that own nothing.
pub const NOBODY: u32 = 65_534;

/// The numbers that Pods may name in namespaces with the level `baseline` or `restricted`, besides [`NOBODY`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodIds {
    pub users: IdRanges,
    pub groups: IdRanges,
}

/// Numbers of users or groups, written as `1000,20000-29999`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdRanges(Vec<RangeInclusive<u32>>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a number such as 1000, nor a range such as 20000-29999")]
pub struct IdRangesError(String);

impl PodIds {
    /// Every number: what kube-apiserver accepts.
    pub fn all() -> Self {
        let all = || IdRanges(vec![0..=u32::MAX]);
        Self { users: all(), groups: all() }
    }
}

impl IdRanges {
    pub fn add(&mut self, id: u32) {
        self.0.push(id..=id);
    }

    fn accepts(&self, id: i64) -> bool {
        let id = u32::try_from(id);
        id.is_ok_and(|id| id == NOBODY || self.0.iter().any(|range| range.contains(&id)))
    }
}

impl FromStr for IdRanges {
    type Err = IdRangesError;

    fn from_str(text: &str) -> Result<Self, IdRangesError> {
        let parse = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = first.trim().parse().ok()?..=last.trim().parse().ok()?;
            (!range.is_empty()).then_some(range)
        };
        let parts = text.split(',').filter(|_| !text.trim().is_empty());
        parts.map(|part| parse(part).ok_or_else(|| IdRangesError(part.to_owned()))).collect::<Result<_, _>>().map(Self)
    }
}

/// The user of a container may be the Pod's or its own; both are judged, as for the other checks.
pub(super) fn users(pod: &Pod<'_>, allowed: &PodIds) -> Option<Violation> {
    judge(pod, "runAsUser", &[], &allowed.users, "user")
}

pub(super) fn groups(pod: &Pod<'_>, allowed: &PodIds) -> Option<Violation> {
    judge(pod, "runAsGroup", &["fsGroup", "supplementalGroups"], &allowed.groups, "group")
}

/// `of_both`: the field that the Pod and its containers have. `of_pod`: the fields that only the Pod has.
fn judge(
    pod: &Pod<'_>,
    of_both: &'static str,
    of_pod: &[&'static str],
    allowed: &IdRanges,
    what: &str,
) -> Option<Violation> {
    let refused = |value: Option<&Value>| -> Vec<i64> {
        let ids = value.map_or(&[][..], |value| value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice));
        ids.iter().filter_map(Value::as_i64).filter(|id| !allowed.accepts(*id)).collect()
    };
    let mut texts = Vec::new();
    let mut all = std::collections::BTreeSet::new();
    let mut add = |who: String, field: &str, ids: Vec<i64>| {
        for id in ids {
            texts.push(format!("{who} must not set {field}={id}"));
            all.insert(id);
        }
    };
    for field in [of_both].iter().chain(of_pod) {
        add("pod".to_owned(), field, refused(pod.context(&format!("/{field}"))));
    }
    for container in pod.containers() {
        let ids = refused(container.context(&format!("/{of_both}")));
        add(Names(vec![container.name()]).text(), of_both, ids);
    }
    if texts.is_empty() {
        return None;
    }
    let all: Vec<_> = all.iter().map(i64::to_string).collect();
    let detail = format!(
        "{}: without an image, the number is that of a {what} of this machine; use {NOBODY}, or start tally up with \
         --pod-{what}s={}",
        texts.join("; "),
        all.join(",")
    );
    let reason = if what == "user" { "users of the machine" } else { "groups of the machine" };
    Some(Violation { reason, detail })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_numbers_are_read() {
        let parse = |text: &str| text.parse::<IdRanges>();
        assert_eq!(parse("").unwrap(), IdRanges::default());
        let ids = parse("1000, 20000-20002,0").unwrap();
        let accepted: Vec<i64> =
            [-1, 0, 1, 999, 1000, 1001, 19_999, 20_000, 20_002, 20_003, 65_534, 65_535, 1 << 32].to_vec();
        let accepted: Vec<i64> = accepted.into_iter().filter(|id| ids.accepts(*id)).collect();
        assert_eq!(accepted, [0, 1000, 20_000, 20_002, 65_534]);
        for (text, part) in
            [("x", "x"), ("1,", ""), ("-1", "-1"), ("5-4", "5-4"), ("1-", "1-"), ("4294967296", "4294967296")]
        {
            assert_eq!(parse(text).unwrap_err(), IdRangesError(part.to_owned()), "{text}");
        }
    }
}
