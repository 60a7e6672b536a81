//! The store against a plain model: for every sequence of operations, in memory and on disk, across restarts, both give
//! the same results.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::common::{body, commit, text};
use proptest::prelude::*;
use tally_store::{Batch, Change, Event, Expect, Page, Store, StoreOptions, TooOld, Watcher, Write, WriteError};

const KEYS: [&str; 7] = ["jobs/a/1", "jobs/b/1", "pods/a-b/1", "pods/a/1", "pods/a/2", "pods/b/1", "podtemplates/a/1"];
const PREFIXES: [&str; 8] = ["", "pods", "pods/", "pods/a/", "pods/a", "jobs/", "podtemplates/", "none/"];
const HISTORY: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Put,
    Delete,
    PutAndDelete,
}

#[derive(Clone, Debug)]
enum Op {
    /// `slip` is added to the current revision: a write with 0 succeeds.
    Write {
        key: usize,
        kind: Kind,
        slip: u64,
    },
    Create {
        key: usize,
        kind: Kind,
    },
    Range {
        prefix: usize,
        after: Option<usize>,
        limit: Option<usize>,
        back: Option<i64>,
    },
    Watch {
        prefix: usize,
        back: i64,
    },
    Take {
        watcher: usize,
        most: usize,
    },
    Compact {
        back: i64,
    },
    Reopen,
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![6 => Just(Kind::Put), 3 => Just(Kind::Delete), 1 => Just(Kind::PutAndDelete)]
}

fn op() -> impl Strategy<Value = Op> {
    let slip = prop_oneof![9 => Just(0), 1 => 1..3_u64];
    prop_oneof![
        8 => (0..KEYS.len(), kind(), slip).prop_map(|(key, kind, slip)| Op::Write { key, kind, slip }),
        6 => (0..KEYS.len(), kind()).prop_map(|(key, kind)| Op::Create { key, kind }),
        6 => (
            0..PREFIXES.len(),
            proptest::option::of(0..KEYS.len()),
            proptest::option::of(0..5_usize),
            proptest::option::of(-2..16_i64)
        )
            .prop_map(|(prefix, after, limit, back)| Op::Range { prefix, after, limit, back }),
        2 => (0..PREFIXES.len(), -2..16_i64).prop_map(|(prefix, back)| Op::Watch { prefix, back }),
        8 => (0..4_usize, 0..6_usize).prop_map(|(watcher, most)| Op::Take { watcher, most }),
        1 => (-2..10_i64).prop_map(|back| Op::Compact { back }),
        1 => Just(Op::Reopen),
    ]
}

/// The store in its simplest form: every event ever, and which of them may still be requested.
struct Model {
    events: Vec<Seen>,
    first: u64,
    kept: VecDeque<(&'static str, u64)>,
    floors: HashMap<&'static str, u64>,
    floor: u64,
}

#[derive(Clone, Debug, PartialEq)]
struct Seen {
    revision: u64,
    key: &'static str,
    text: String,
    deleted: bool,
    previous: Option<String>,
}

impl Model {
    fn revision(&self) -> u64 {
        self.events.last().map_or(self.first, |event| event.revision)
    }

    fn at(&self, revision: u64) -> BTreeMap<&'static str, (u64, String)> {
        let mut state = BTreeMap::new();
        for event in self.events.iter().filter(|event| event.revision <= revision) {
            state.remove(event.key);
            if !event.deleted {
                state.insert(event.key, (event.revision, event.text.clone()));
            }
        }
        state
    }

    fn write(&mut self, key: &'static str, value: &str, deleted: bool) {
        let revision = self.revision() + 1;
        let previous = self.at(revision).remove(key).map(|(_, text)| text);
        self.events.push(Seen { revision, key, text: text(value, revision), deleted, previous });
        self.kept.push_back((segment(key), revision));
        if self.kept.len() > HISTORY {
            self.forget();
        }
    }

    fn forget(&mut self) {
        let (segment, revision) = self.kept.pop_front().unwrap();
        self.floors.insert(segment, revision);
    }

    fn compact(&mut self, before: u64) {
        let before = before.min(self.revision());
        while self.kept.front().is_some_and(|(_, revision)| *revision <= before) {
            self.forget();
        }
        self.floor = self.floor.max(before);
    }

    fn reaches(&self, prefix: &str, requested: u64) -> Result<(), TooOld> {
        let of_it = |name: &str| if prefix.contains('/') { name == segment(prefix) } else { name.starts_with(prefix) };
        let floors = self.floors.iter().filter(|(name, _)| of_it(name)).map(|(_, floor)| *floor);
        let oldest = floors.fold(self.floor, u64::max);
        if requested < oldest { Err(TooOld { requested, oldest }) } else { Ok(()) }
    }

    fn after(&self, prefix: &str, position: u64) -> Vec<Seen> {
        let wanted = |event: &&Seen| event.revision > position && event.key.starts_with(prefix);
        self.events.iter().filter(wanted).cloned().collect()
    }
}

fn segment(key: &str) -> &str {
    key.split('/').next().unwrap()
}

fn seen(event: &Event) -> Seen {
    let string = |entry: &tally_store::Entry| String::from_utf8(entry.value.to_vec()).unwrap();
    assert_eq!(event.revision, event.entry.revision);
    Seen {
        revision: event.revision,
        key: KEYS.iter().find(|key| ***key == *event.entry.key).unwrap(),
        text: string(&event.entry),
        deleted: event.deleted,
        previous: event.previous.as_ref().map(string),
    }
}

/// Applies all of `ops` to a store and to the model, and compares every result.
fn check(ops: Vec<Op>, mut store: Store, reopen: impl Fn(Store) -> Store) {
    let first = store.revision();
    let mut model = Model { events: Vec::new(), first, kept: VecDeque::new(), floors: HashMap::new(), floor: first };
    let mut watchers: Vec<(Watcher, &str, u64)> = Vec::new();
    for (step, op) in ops.into_iter().enumerate() {
        let now = model.revision();
        let ago = |back: i64| now.saturating_add_signed(-back);
        match op {
            Op::Create { key, kind } => write(&store, &mut model, KEYS[key], Expect::Absent, kind, step),
            Op::Write { key, kind, slip } => {
                let there = model.at(now).get(KEYS[key]).map_or(now, |(revision, _)| *revision);
                write(&store, &mut model, KEYS[key], Expect::At(there + slip), kind, step);
            }
            Op::Range { prefix, after, limit, back } => {
                let (prefix, after, at) = (PREFIXES[prefix], after.map(|key| KEYS[key]), back.map(ago));
                let got = store.range(prefix, after, limit, at);
                compare_range(got, &model, prefix, after, limit, at.unwrap_or(now).min(now));
            }
            Op::Watch { prefix, back } => {
                let (prefix, after) = (PREFIXES[prefix], ago(back));
                match store.watch(prefix, after) {
                    Ok(watcher) => {
                        assert_eq!(model.reaches(prefix, after), Ok(()));
                        watchers.insert(0, (watcher, prefix, after));
                        watchers.truncate(4);
                    }
                    Err(too_old) => assert_eq!(model.reaches(prefix, after), Err(too_old)),
                }
            }
            Op::Take { watcher, most } => {
                let Some((watcher, prefix, position)) = watchers.get_mut(watcher) else { continue };
                let Batch { events, more } = match watcher.take(most) {
                    Ok(batch) => batch,
                    Err(too_old) => {
                        assert_eq!(model.reaches(prefix, *position), Err(too_old));
                        assert_eq!(watcher.position(), *position, "a refused watcher stays where it is");
                        continue;
                    }
                };
                let expected = model.after(prefix, *position);
                let taken: Vec<Seen> = events.iter().map(seen).collect();
                assert_eq!(taken, expected[..expected.len().min(most)], "of {prefix:?} after {position}");
                assert_eq!(more, expected.len() > most);
                *position = match taken.last() {
                    _ if !more => now.max(*position),
                    Some(last) => last.revision,
                    None => *position,
                };
                assert_eq!(watcher.position(), *position);
            }
            Op::Compact { back } => {
                store.compact(ago(back));
                model.compact(ago(back));
            }
            Op::Reopen => {
                watchers.clear();
                store = reopen(store);
                model.compact(now);
            }
        }
        assert_eq!(store.revision(), model.revision());
        assert_eq!(store.len(), model.at(model.revision()).len());
        assert_eq!(store.compacted(), model.floors.values().copied().fold(model.floor, u64::max));
        for key in KEYS {
            let got = store.get(key).map(|entry| (entry.revision, String::from_utf8(entry.value.to_vec()).unwrap()));
            assert_eq!(got.as_ref(), model.at(model.revision()).get(key));
        }
    }
}

fn write(store: &Store, model: &mut Model, key: &'static str, expect: Expect, kind: Kind, step: usize) {
    let value = format!("step {step}");
    let change = match kind {
        Kind::Put => Change::Put(body(&value)),
        Kind::Delete => Change::Delete(body(&value)),
        Kind::PutAndDelete => Change::PutAndDelete(body(&value), None),
    };
    let there = model.at(model.revision()).remove(key);
    let fits = match (expect, &there) {
        (Expect::Absent, None) => kind != Kind::Delete,
        (Expect::At(expected), Some((revision, _))) => expected == *revision,
        _ => false,
    };
    match commit(store, Write { key: key.into(), expect, change }) {
        Ok(entry) => {
            assert!(fits, "{expect:?} was accepted where {there:?}");
            model.write(key, &value, kind == Kind::Delete);
            assert_eq!((&*entry.key, entry.revision), (key, model.revision()));
            if kind == Kind::PutAndDelete {
                model.write(key, &value, true);
            }
            assert_eq!(entry.value, text(&value, entry.revision));
        }
        Err(WriteError::Conflict(found)) => {
            assert!(!fits, "{expect:?} was refused where {there:?}");
            assert_eq!(found.map(|entry| entry.revision), there.map(|(revision, _)| revision));
        }
        Err(error) => panic!("{error}"),
    }
}

fn compare_range(
    got: Result<Page, TooOld>,
    model: &Model,
    prefix: &str,
    after: Option<&str>,
    limit: Option<usize>,
    at: u64,
) {
    let page = match got {
        Ok(page) => page,
        Err(too_old) => return assert_eq!(model.reaches(prefix, at), Err(too_old)),
    };
    assert_eq!(model.reaches(prefix, at), Ok(()));
    let all: Vec<(String, u64, String)> = model
        .at(at)
        .into_iter()
        .filter(|(key, _)| key.starts_with(prefix) && after.is_none_or(|after| *key > after))
        .map(|(key, (revision, text))| (key.into(), revision, text))
        .collect();
    let entries: Vec<(String, u64, String)> = page
        .entries
        .iter()
        .map(|entry| (entry.key.to_string(), entry.revision, String::from_utf8(entry.value.to_vec()).unwrap()))
        .collect();
    let most = all.len().min(limit.unwrap_or(usize::MAX));
    assert_eq!(entries, all[..most], "of {prefix:?} after {after:?} at {at}");
    assert_eq!((page.revision, page.remaining, page.more), (at, all.len() - most, all.len() > most));
}

fn options() -> StoreOptions {
    StoreOptions { history: HISTORY, merge_bytes: 2048, ..StoreOptions::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_in_memory_does_as_the_model(ops in proptest::collection::vec(op(), 0..120)) {
        check(ops, Store::memory(options()), |store| {
            store.compact(store.revision());
            store
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_on_disk_does_as_the_model(ops in proptest::collection::vec(op(), 0..120)) {
        let dir = tempfile::tempdir().unwrap();
        check(ops, Store::open(dir.path(), options()).unwrap(), |store| {
            drop(store);
            Store::open(dir.path(), options()).unwrap()
        });
    }
}
