//! Objects are one line each: `pod a @5 <job:j` is the Pod `a` in the namespace `ns`, with the UID `a`, at revision 5,
//! owned by the Job `j`. `<job:j!` blocks its owner, `<job:x:j` says that the owner with the UID `j` is called `x`;
//! `del` is being deleted, `f=orphan` has this finalizer, `ns=other` and `uid=u` set the namespace and the UID.

use serde_json::{Value, json};
use tally_core::ids::Revision;

use super::graph::{FOREGROUND, ORPHAN};
use super::*;
use tally_runtime::controller::Kind;
use tally_runtime::testing::{Probe, done, refused};

const KINDS: [Kind; 4] = [Kind::CONFIG_MAP, Kind::JOB, Kind::NODE, Kind::POD];

fn kind(word: &str) -> Kind {
    match word {
        "cm" => Kind::CONFIG_MAP,
        "job" => Kind::JOB,
        "node" => Kind::NODE,
        "pod" => Kind::POD,
        // Not followed.
        _ => Kind::new("example.com", "v1", "Thing", "things", true),
    }
}

fn object(line: &str) -> (Kind, Value) {
    let mut words = line.split(' ');
    let kind_ = kind(words.next().unwrap());
    let name = words.next().unwrap();
    let mut meta = json!({"name": name, "uid": name});
    if kind_.namespaced {
        meta["namespace"] = "ns".into();
    }
    let (mut owners, mut finalizers) = (Vec::new(), Vec::new());
    for word in words {
        if let Some(revision) = word.strip_prefix('@') {
            meta["resourceVersion"] = revision.into();
        } else if let Some(owner) = word.strip_prefix('<') {
            let parts: Vec<_> = owner.trim_end_matches('!').split(':').collect();
            let of = kind(parts[0]);
            owners.push(json!({
                "apiVersion": of.api_version(), "kind": of.kind, "name": parts[1], "uid": parts[parts.len() - 1],
                "blockOwnerDeletion": owner.ends_with('!'),
            }));
        } else if let Some(finalizer) = word.strip_prefix("f=") {
            let short = [("fg", FOREGROUND), ("orphan", ORPHAN)];
            let long = short.iter().find(|(short, _)| *short == finalizer).map_or(finalizer, |(_, long)| long);
            finalizers.push(long.to_owned());
        } else if word == "del" {
            meta["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        } else if let Some((field, value)) = word.split_once('=') {
            meta[if field == "ns" { "namespace" } else { field }] = value.into();
        } else {
            panic!("{word}");
        }
    }
    meta["ownerReferences"] = owners.into();
    meta["finalizers"] = finalizers.into();
    (kind_, json!({"metadata": meta}))
}

/// A collector that has observed these objects, up to revision 100.
fn started(lines: &[&str]) -> Probe<GarbageCollector> {
    let mut probe = Probe::new(GarbageCollector::new(KINDS.to_vec()));
    let objects: Vec<_> = lines.iter().map(|line| object(line)).collect();
    for (nth, kind) in KINDS.into_iter().enumerate() {
        assert!(asks(&mut probe).is_empty(), "only {nth} kinds have been listed");
        let of_kind: Vec<_> = objects.iter().filter(|(of, _)| *of == kind).map(|(_, object)| object.clone()).collect();
        probe.lists(kind, &of_kind, 100);
    }
    probe
}

fn asks(probe: &mut Probe<GarbageCollector>) -> Vec<String> {
    let asked = probe.asks();
    let with_body = |(nth, line): (usize, String)| {
        if line.starts_with("get") { line } else { format!("{line} {}", brief(&probe.body(nth))) }
    };
    asked.into_iter().enumerate().map(with_body).collect()
}

/// A body in short, without its preconditions: those are checked here.
fn brief(body: &Value) -> String {
    if let Some(policy) = body.get("propagationPolicy") {
        let conditions = &body["preconditions"];
        assert!(conditions["uid"].is_string() && conditions["resourceVersion"].is_string(), "{body}");
        return policy.as_str().unwrap().to_owned();
    }
    let meta = &body["metadata"];
    assert!(meta["uid"].is_string(), "{body}");
    if let Some(finalizers) = meta.get("finalizers") {
        assert!(meta["resourceVersion"].is_string(), "{body}");
        return format!("finalizers {finalizers}");
    }
    let owner = |owner: &Value| {
        let sign = if owner["$patch"] == "delete" { "-" } else { "unblock " };
        format!("{sign}{}", owner["uid"].as_str().unwrap())
    };
    meta["ownerReferences"].as_array().unwrap().iter().map(owner).collect::<Vec<_>>().join(" ")
}

fn sees(probe: &mut Probe<GarbageCollector>, line: &str) {
    let (kind, object) = object(line);
    probe.sees(kind, object);
}

fn loses(probe: &mut Probe<GarbageCollector>, line: &str) {
    let (kind, object) = object(line);
    probe.gone(kind, object);
}

fn answer(probe: &mut Probe<GarbageCollector>, nth: usize, line: &str) {
    probe.answer(nth, done(object(line).1));
}

fn reach(probe: &mut Probe<GarbageCollector>, at: u64) {
    KINDS.into_iter().for_each(|kind| probe.input(Input::Bookmark(kind, Revision(at))));
}

const NOTHING: [&str; 0] = [];

#[test]
fn a_clock_that_was_ahead_makes_no_retry_later() {
    const DAY: i64 = 86_400_000;
    let mut probe = started(&["pod a @5 <job:j"]);
    assert_eq!(asks(&mut probe), ["get jobs ns/j"]);
    probe.answer(0, refused(404, "NotFound"));
    assert_eq!(probe.asks(), ["delete pods ns/a"]);
    probe.passes(DAY);
    probe.answer(0, Reply::Unknown);
    probe.clock_is_set_back(DAY);
    assert!(probe.asks().is_empty());
    probe.passes(250);
    assert_eq!(probe.asks(), ["delete pods ns/a"]);
}

#[test]
fn what_is_asked_first_about_a_cluster() {
    let check = |objects: &[&str], expected: &[&str]| {
        assert_eq!(asks(&mut started(objects)), expected, "{objects:?}");
    };
    // Owners that exist, or about which nothing is known.
    check(&["cm a @1"], &[]);
    check(&["job j @1", "pod p @2 <job:j"], &[]);
    check(&["node n @1", "pod p @2 <node:n"], &[]);
    check(&["job j @1 del f=example.com/hold", "pod p @2 <job:j"], &[]);
    check(&["pod p @2 <thing:t"], &[]);
    check(&["pod p @2 <thing:t <job:gone"], &["get jobs ns/gone"]);
    check(&["pod p @2 <pod:p"], &[]);
    // Owners that no stream has shown are read, once each.
    check(&["pod p @2 <job:j"], &["get jobs ns/j"]);
    check(&["pod p @2 <job:j", "pod q @3 <job:j"], &["get jobs ns/j"]);
    check(&["pod p @2 <node:n"], &["get nodes /n"]);
    check(&["pod p @2 <job:j", "pod q @3 <job:other:j"], &["get jobs ns/j", "get jobs ns/other"]);
    // Owners that differ from what their dependents state.
    check(&["job j @1", "pod p @2 <job:other:j"], &["get jobs ns/other"]);
    check(&["job j @1", "pod p @2 <cm:j"], &["get configmaps ns/j"]);
    check(&["job j @1 ns=other", "pod p @2 <job:j"], &["get jobs ns/j"]);
    // Foreground: dependents first, and only those that block are waited for.
    check(&["job j @1 del f=fg"], &["merge jobs ns/j finalizers []"]);
    check(&["job j @1 del f=fg f=x.io/f"], &[r#"merge jobs ns/j finalizers ["x.io/f"]"#]);
    check(&["job j @1 del f=fg", "pod p @2 <job:j!"], &["delete pods ns/p Background"]);
    check(&["job j @1 del f=fg", "pod p @2 <job:j"], &["merge jobs ns/j finalizers []", "delete pods ns/p Background"]);
    check(&["job j @1 del f=fg", "pod p @2 del <job:j!"], &[]);
    check(&["job j @1 del f=fg", "pod p @2 <job:j! f=orphan"], &["delete pods ns/p Orphan"]);
    // An object that has dependents itself is deleted in the foreground, too.
    check(&["cm c @1 del f=fg", "job j @2 <cm:c!", "pod p @3 <job:j"], &["delete jobs ns/j Foreground"]);
    check(&["job j @1 f=fg"], &[]);
    // An owner that stays keeps its dependents, the other references are removed.
    check(&["job j @1 del f=fg", "cm c @1", "pod p @2 <job:j! <cm:c"], &["patch pods ns/p -j"]);
    // Orphans.
    check(&["job j @1 del f=orphan"], &["merge jobs ns/j finalizers []"]);
    check(&["job j @1 del f=orphan", "pod p @2 <job:j"], &["patch pods ns/p -j"]);
    check(&["job j @1 del f=orphan", "pod p @2 del <job:j"], &["patch pods ns/p -j"]);
    check(&["job j @1 del f=orphan", "pod p @2 <job:j <thing:t"], &["patch pods ns/p -j"]);
    check(&["job j @1 del f=orphan f=fg", "pod p @2 <job:j!"], &["patch pods ns/p -j"]);
    check(
        &["job j @1 del f=orphan", "cm c @1 del f=fg", "pod p @2 <job:j <cm:c"],
        &["merge configmaps ns/c finalizers []", "patch pods ns/p -c -j"],
    );
    // Objects that wait for each other.
    check(&["cm a @1 del f=fg <cm:b!", "cm b @2 <cm:a!"], &["patch configmaps ns/b unblock a"]);
    check(&["cm a @1 del f=fg <cm:a!"], &["merge configmaps ns/a finalizers []"]);
}

#[test]
fn an_absent_owner_takes_its_dependents_along() {
    let mut probe = started(&["pod p @2 <job:j", "pod q @3 <job:j f=orphan"]);
    assert_eq!(asks(&mut probe), ["get jobs ns/j"]);
    probe.answer(0, refused(404, "NotFound"));
    assert_eq!(asks(&mut probe), ["delete pods ns/p Background", "delete pods ns/q Orphan"]);
    assert_eq!(probe.body(0)["preconditions"], json!({"uid": "p", "resourceVersion": "2"}));
    answer(&mut probe, 0, "pod p @101 del <job:j");
    probe.answer(1, Reply::DoneWithStatus);
    assert_eq!((asks(&mut probe), probe.wakes_in()), (Vec::new(), None), "the streams will show it");
    sees(&mut probe, "pod p @101 del <job:j");
    loses(&mut probe, "pod q @102");
    assert_eq!(asks(&mut probe), NOTHING);
    // For a later dependent the known state of its owner is used at once, and for the one after that the owner is read
    // again.
    sees(&mut probe, "pod r @103 <job:j");
    assert_eq!(asks(&mut probe), ["delete pods ns/r Background"]);
    loses(&mut probe, "pod r @104");
    loses(&mut probe, "pod p @105");
    sees(&mut probe, "pod s @106 <job:j");
    assert_eq!(asks(&mut probe), NOTHING, "the stream of Jobs may be behind");
    reach(&mut probe, 106);
    assert_eq!(asks(&mut probe), ["get jobs ns/j"], "nothing is kept of owners without dependents");
}

#[test]
fn an_owner_of_the_same_name_is_another() {
    let mut probe = started(&["pod p @2 <job:j:old", "job j @3 uid=new"]);
    assert_eq!(asks(&mut probe), ["get jobs ns/j"]);
    answer(&mut probe, 0, "job j @3 uid=new");
    assert_eq!(asks(&mut probe), ["delete pods ns/p Background"]);
}

#[test]
fn a_dependent_that_is_wrong_about_its_owner_does_not_mislead_the_others() {
    let mut probe = started(&["job j @1", "pod p @2 <job:other:j", "pod q @3 <job:j"]);
    assert_eq!(asks(&mut probe), ["get jobs ns/other"]);
    probe.answer(0, refused(404, "NotFound"));
    assert_eq!(asks(&mut probe), ["delete pods ns/p Background"]);
}

#[test]
fn an_owner_that_the_stream_has_not_shown_yet_is_asked_after_again() {
    for reply in [done(object("job j @99").1), refused(500, "InternalError"), Reply::Unknown] {
        let mut probe = started(&["pod p @2 <job:j"]);
        assert_eq!(asks(&mut probe), ["get jobs ns/j"]);
        probe.answer(0, reply);
        sees(&mut probe, "pod p @101 <job:j");
        reach(&mut probe, 101);
        assert_eq!((asks(&mut probe), probe.wakes_in()), (Vec::new(), Some(250)));
        probe.passes(250);
        assert_eq!(asks(&mut probe), ["get jobs ns/j"]);
        probe.answer(0, done(object("job j @99").1));
        assert_eq!(probe.wakes_in(), Some(500));
        sees(&mut probe, "job j @102");
        probe.passes(500);
        assert_eq!((asks(&mut probe), probe.wakes_in()), (Vec::new(), None));
        loses(&mut probe, "job j @103");
        assert_eq!(asks(&mut probe), ["delete pods ns/p Background"]);
    }
}

#[test]
fn an_owner_that_goes_takes_its_dependents_along_step_by_step() {
    let mut probe = started(&["cm c @1", "job j @2 <cm:c", "pod p @3 <job:j", "pod q @4 <job:j <cm:c"]);
    loses(&mut probe, "cm c @101");
    assert_eq!(asks(&mut probe), ["delete jobs ns/j Background", "patch pods ns/q -c"]);
    answer(&mut probe, 1, "pod q @102 <job:j");
    sees(&mut probe, "pod q @102 <job:j");
    probe.answer(0, Reply::DoneWithStatus);
    assert_eq!(asks(&mut probe), NOTHING);
    loses(&mut probe, "job j @103");
    assert_eq!(asks(&mut probe), ["delete pods ns/p Background", "delete pods ns/q Background"]);
}

#[test]
fn an_owner_that_is_seen_a_little_later_is_not_asked_for() {
    let mut probe = started(&[]);
    sees(&mut probe, "pod p @102 <job:j");
    assert_eq!((asks(&mut probe), probe.wakes_in()), (Vec::new(), Some(1000)));
    sees(&mut probe, "job j @101");
    reach(&mut probe, 102);
    probe.passes(1000);
    assert_eq!((asks(&mut probe), probe.wakes_in()), (Vec::new(), None));

    let mut probe = started(&[]);
    sees(&mut probe, "pod p @102 <job:j");
    probe.passes(1000);
    assert_eq!(asks(&mut probe), ["get jobs ns/j"], "a server without bookmarks");
}

#[test]
fn what_a_new_list_lacks_is_gone() {
    let mut probe = started(&["job j @1", "pod p @2 <job:j"]);
    probe.lists(Kind::JOB, &[], 200);
    assert_eq!(asks(&mut probe), ["delete pods ns/p Background"]);
}

#[test]
fn a_foreground_deletion_ends_when_the_last_that_blocks_it_is_gone() {
    let mut probe = started(&["job j @1", "pod p @2 <job:j!", "pod q @3 <job:j!", "pod r @4 <job:j"]);
    sees(&mut probe, "job j @101 del f=fg");
    assert_eq!(asks(&mut probe).len(), 3);
    (0..3).for_each(|nth| probe.answer(nth, Reply::DoneWithStatus));
    reach(&mut probe, 110);
    loses(&mut probe, "pod p @102 <job:j!");
    assert_eq!(asks(&mut probe), NOTHING);
    // A dependent that has a finalizer of another controller blocks the owner.
    sees(&mut probe, "pod q @103 del f=x.io/f <job:j!");
    assert_eq!(asks(&mut probe), NOTHING);
    loses(&mut probe, "pod q @104 <job:j!");
    assert_eq!(asks(&mut probe), ["merge jobs ns/j finalizers []"]);
    assert_eq!(probe.body(0)["metadata"]["resourceVersion"], "101");
    // Another client has changed it: the stream delivers the current version.
    probe.answer(0, refused(409, "Conflict"));
    assert_eq!(asks(&mut probe), NOTHING);
    sees(&mut probe, "job j @105 del f=fg f=x.io/f");
    assert_eq!(asks(&mut probe), [r#"merge jobs ns/j finalizers ["x.io/f"]"#]);
}

/// Their users have deleted all of them in the foreground, each before the others were seen to wait.
#[test]
fn deletions_in_the_foreground_that_wait_for_each_other_come_to_an_end() {
    let mut probe = started(&["cm a @1 del f=fg <cm:c!", "cm b @2 del f=fg <cm:a!", "cm c @3 del f=fg <cm:b!"]);
    let unblock =
        ["patch configmaps ns/a unblock c", "patch configmaps ns/b unblock a", "patch configmaps ns/c unblock b"];
    assert_eq!(asks(&mut probe), unblock);
    answer(&mut probe, 0, "cm a @101 del f=fg <cm:c");
    sees(&mut probe, "cm a @101 del f=fg <cm:c");
    answer(&mut probe, 2, "cm c @102 del f=fg <cm:b");
    sees(&mut probe, "cm c @102 del f=fg <cm:b");
    reach(&mut probe, 102);
    assert_eq!(asks(&mut probe), ["merge configmaps ns/c finalizers []"]);
    // A chain is no cycle: the owner goes last.
    let mut probe = started(&["cm a @1", "cm b @2 <cm:a!", "cm c @3 f=x.io/f <cm:b!"]);
    for line in ["cm a @101 del f=fg", "cm b @102 del f=fg <cm:a!", "cm c @103 del f=fg f=x.io/f <cm:b!"] {
        sees(&mut probe, line);
    }
    reach(&mut probe, 103);
    assert!(!asks(&mut probe).iter().any(|line| line.contains("unblock")));
}

/// Each of the three is needed: that it blocks its owner, is being deleted, and waits for its dependents.
#[test]
fn what_does_not_wait_is_no_part_of_a_cycle() {
    for (between, unblocks) in [
        ("cm b @2 del f=fg <cm:a", None),
        ("cm b @2 f=fg <cm:a!", Some("patch configmaps ns/b unblock a")),
        ("cm b @2 del f=x.io/f <cm:a!", None),
    ] {
        let mut probe = started(&["cm a @1 del f=fg <cm:c!", between, "cm c @3 del f=fg <cm:b!"]);
        let asked = asks(&mut probe);
        let unblocked: Vec<&str> = asked.iter().map(String::as_str).filter(|line| line.contains("unblock")).collect();
        assert_eq!(unblocked, Vec::from_iter(unblocks), "{between}");
    }
}

/// A dependent that only would be deleted in the foreground, or is deleted in the background, needs no help.
#[test]
fn a_dependent_is_unblocked_only_for_one_that_waits_for_its_own() {
    for dependent in ["pod d @3 f=fg <cm:c", "pod d @3 del f=x.io/f <cm:c"] {
        let mut probe = started(&["job j @1 del f=fg", "cm c @2 <job:j!", dependent]);
        assert_eq!(asks(&mut probe), ["delete configmaps ns/c Foreground"], "{dependent}");
    }
}

#[test]
fn an_older_state_of_an_object_changes_nothing() {
    let mut probe = started(&["pod p @50"]);
    sees(&mut probe, "pod p @40 <job:j");
    reach(&mut probe, 101);
    assert_eq!(asks(&mut probe), NOTHING);
}

/// A user may have added the finalizer long before.
#[test]
fn a_finalizer_that_was_there_before_the_deletion_counts_from_the_deletion_on() {
    let mut probe = started(&["job j @1 f=fg", "pod p @2 <job:j!"]);
    assert_eq!(asks(&mut probe), NOTHING);
    sees(&mut probe, "job j @101 del f=fg");
    assert_eq!(asks(&mut probe), ["delete pods ns/p Background"]);
}

#[test]
fn an_orphaning_owner_does_not_wait_for_one_that_has_another_owner() {
    let mut probe = started(&["cm c @1", "job j @2", "pod p @3 <job:j <cm:c"]);
    sees(&mut probe, "job j @101 del f=orphan");
    assert_eq!(asks(&mut probe), ["patch pods ns/p -j"]);
    answer(&mut probe, 0, "pod p @102 <cm:c");
    sees(&mut probe, "pod p @102 <cm:c");
    reach(&mut probe, 102);
    assert_eq!(asks(&mut probe), ["merge jobs ns/j finalizers []"]);
}

#[test]
fn an_owner_that_is_named_twice_is_blocked_if_one_of_the_two_says_so() {
    for dependent in ["pod p @2 <job:j <job:j!", "pod p @2 <job:j! <job:j"] {
        let mut probe = started(&["job j @1 del f=fg", dependent]);
        assert_eq!(asks(&mut probe), ["delete pods ns/p Background"], "{dependent}");
    }
}

#[test]
fn those_that_wait_for_each_other_come_to_an_end() {
    let mut probe = started(&["cm a @1 <cm:b!", "cm b @2 <cm:a!"]);
    sees(&mut probe, "cm a @101 del f=fg <cm:b!");
    assert_eq!(asks(&mut probe), ["patch configmaps ns/b unblock a"]);
    answer(&mut probe, 0, "cm b @102 <cm:a");
    assert_eq!(asks(&mut probe), NOTHING, "until it is seen");
    sees(&mut probe, "cm b @102 <cm:a");
    reach(&mut probe, 102);
    assert_eq!(asks(&mut probe), ["delete configmaps ns/b Foreground", "merge configmaps ns/a finalizers []"]);
}

/// The object exists, so another owner does not wait for its deletion, which would be forever.
#[test]
fn who_names_itself_stays_and_lets_go_of_its_other_owners() {
    let mut probe = started(&["job j @1", "cm a @2 <cm:a! <job:j!"]);
    assert_eq!(asks(&mut probe), NOTHING);
    sees(&mut probe, "job j @101 del f=fg");
    assert_eq!(asks(&mut probe), ["patch configmaps ns/a -j"]);
    answer(&mut probe, 0, "cm a @102 <cm:a!");
    sees(&mut probe, "cm a @102 <cm:a!");
    reach(&mut probe, 102);
    assert_eq!(asks(&mut probe), ["merge jobs ns/j finalizers []"]);
    loses(&mut probe, "job j @103");
    // Nor does it wait for itself.
    sees(&mut probe, "cm a @104 del f=fg <cm:a!");
    reach(&mut probe, 104);
    assert_eq!(asks(&mut probe), ["merge configmaps ns/a finalizers []"]);
}

#[test]
fn an_orphaning_owner_goes_when_it_has_let_go_of_all() {
    let mut probe = started(&["job j @1", "pod p @2 <job:j!", "pod q @3 <job:j!"]);
    sees(&mut probe, "job j @101 del f=orphan");
    assert_eq!(asks(&mut probe), ["patch pods ns/p -j", "patch pods ns/q -j"]);
    answer(&mut probe, 0, "pod p @102");
    answer(&mut probe, 1, "pod q @103");
    sees(&mut probe, "pod p @102");
    reach(&mut probe, 102);
    assert_eq!(asks(&mut probe), NOTHING);
    sees(&mut probe, "pod q @103");
    assert_eq!(asks(&mut probe), ["merge jobs ns/j finalizers []"]);
    loses(&mut probe, "job j @104");
    assert_eq!((asks(&mut probe), probe.wakes_in()), (Vec::new(), None));
}

#[test]
fn a_changed_mind_counts() {
    let mut probe = started(&["job j @1", "pod p @2 <job:j!"]);
    sees(&mut probe, "job j @101 del f=orphan");
    assert_eq!(asks(&mut probe), ["patch pods ns/p -j"]);
    sees(&mut probe, "job j @102 del f=fg");
    probe.answer(0, Reply::Unknown);
    assert_eq!(asks(&mut probe), NOTHING);
    probe.passes(250);
    assert_eq!(asks(&mut probe), ["delete pods ns/p Background"]);
}

/// The Pod was created before the Job was deleted, but its stream is behind.
#[test]
fn a_finalizer_stays_until_the_streams_have_caught_up() {
    let wait = |line: &str| {
        let mut probe = started(&["job j @1"]);
        sees(&mut probe, line);
        KINDS.into_iter().filter(|kind| *kind != Kind::POD).for_each(|kind| {
            probe.input(Input::Bookmark(kind, Revision(120)));
        });
        assert_eq!(asks(&mut probe), NOTHING);
        probe
    };
    let mut probe = wait("job j @110 del f=orphan");
    sees(&mut probe, "pod p @109 <job:j");
    assert_eq!(asks(&mut probe), ["patch pods ns/p -j"]);

    let mut probe = wait("job j @110 del f=fg");
    sees(&mut probe, "pod p @109 <job:j!");
    assert_eq!(asks(&mut probe), ["delete pods ns/p Background"]);

    let mut probe = wait("job j @110 del f=orphan");
    probe.input(Input::Bookmark(Kind::POD, Revision(110)));
    assert_eq!(asks(&mut probe), ["merge jobs ns/j finalizers []"]);

    // A server without bookmarks.
    let mut probe = wait("job j @110 del f=orphan");
    probe.passes(999);
    assert_eq!(asks(&mut probe), NOTHING);
    probe.passes(1);
    assert_eq!(asks(&mut probe), ["merge jobs ns/j finalizers []"]);

    // A stream that is known to be behind.
    let mut probe = wait("job j @110 del f=orphan");
    probe.input(Input::Init(Kind::POD));
    probe.passes(1000);
    assert_eq!((asks(&mut probe), probe.wakes_in()), (Vec::new(), Some(1000)));
    sees(&mut probe, "pod p @109 <job:j");
    probe.input(Input::InitDone(Kind::POD, Revision(130)));
    assert_eq!(asks(&mut probe), ["patch pods ns/p -j"]);
}

#[test]
fn a_refused_or_lost_request_is_made_again_later_and_later() {
    let mut probe = started(&["job j @1", "pod p @2 <job:j"]);
    loses(&mut probe, "job j @101");
    for wait in [250, 500, 1000] {
        assert_eq!(asks(&mut probe), ["delete pods ns/p Background"]);
        probe.answer(0, if wait == 500 { Reply::Unknown } else { refused(403, "Forbidden") });
        sees(&mut probe, "pod p @2 <job:j");
        assert_eq!((asks(&mut probe), probe.wakes_in()), (Vec::new(), Some(wait)));
        probe.passes(wait);
    }
    assert_eq!(asks(&mut probe), ["delete pods ns/p Background"]);
    probe.answer(0, refused(409, "Conflict"));
    assert_eq!((asks(&mut probe), probe.wakes_in()), (Vec::new(), None));
    sees(&mut probe, "pod p @102 <job:j");
    assert_eq!(asks(&mut probe), ["delete pods ns/p Background"]);
    assert_eq!(probe.body(0)["preconditions"]["resourceVersion"], "102");
}

#[test]
fn a_patch_that_changed_nothing_is_not_waited_for() {
    let mut probe = started(&["job j @1", "cm c @1", "pod p @2 <job:j <cm:c"]);
    loses(&mut probe, "job j @101");
    assert_eq!(asks(&mut probe), ["patch pods ns/p -j"]);
    answer(&mut probe, 0, "pod p @2 <job:j <cm:c");
    assert_eq!(probe.wakes_in(), Some(250));
}

#[test]
fn an_owner_in_another_namespace_is_none_and_users_are_told() {
    let mut probe = started(&["job j @1 ns=other", "pod p @2 <job:j"]);
    let told = r#"p OwnerRefInvalidNamespace: ownerRef [batch/v1/Job, namespace: ns, name: j, uid: j] does not exist in namespace "ns""#;
    assert_eq!(probe.events(), [told]);
    assert_eq!(asks(&mut probe), ["get jobs ns/j"]);
    sees(&mut probe, "pod p @101 <job:j");
    assert_eq!(probe.events(), NOTHING, "once");
    probe.answer(0, refused(404, "NotFound"));
    assert_eq!(asks(&mut probe), ["delete pods ns/p Background"]);
}

#[test]
fn what_is_in_no_namespace_cannot_belong_to_what_is_in_one() {
    let mut probe = started(&["job j @1", "node n @2 <job:j!"]);
    let told = r#"n OwnerRefInvalidNamespace: ownerRef [batch/v1/Job, namespace: , name: j, uid: j] does not exist in namespace """#;
    assert_eq!(probe.events(), [told]);
    sees(&mut probe, "job j @101 del f=fg");
    reach(&mut probe, 101);
    assert_eq!(asks(&mut probe), ["merge jobs ns/j finalizers []"], "it does not hold up the Job either");
    loses(&mut probe, "job j @102");
    assert_eq!(asks(&mut probe), NOTHING);
}

#[test]
fn requests_under_way_are_bounded() {
    for (pods, first) in [(63, 63), (64, 64), (65, 64)] {
        let lines: Vec<_> = (0..pods).map(|nth| format!("pod p{nth} @{} <job:j", nth + 2)).collect();
        let mut lines: Vec<_> = lines.iter().map(String::as_str).collect();
        lines.push("job j @1");
        let mut probe = started(&lines);
        loses(&mut probe, "job j @101");
        assert_eq!(asks(&mut probe).len(), first);
        (0..first).for_each(|nth| probe.answer(nth, Reply::DoneWithStatus));
        assert_eq!(asks(&mut probe).len(), pods - first);
    }
}

#[test]
fn what_went_is_forgotten() {
    let mut probe = started(&["job j @1", "pod p @2 <job:j! <job:gone", "cm c @1 del f=fg f=x.io/f"]);
    asks(&mut probe);
    loses(&mut probe, "pod p @101");
    loses(&mut probe, "job j @102");
    probe.answer(1, refused(404, "NotFound"));
    probe.answer(0, refused(500, "InternalError"));
    loses(&mut probe, "cm c @103");
    probe.passes(70_000);
    let collector = &probe.controller;
    assert!(collector.graph.is_empty() && collector.conduct.is_empty() && collector.timers.is_empty());
    assert!(collector.behind.is_empty() && collector.asked.is_empty() && collector.queue.is_empty());
    assert_eq!(asks(&mut probe), NOTHING);
}

/// The first list of Jobs breaks off, and the second one comes from an API server that is behind.
#[test]
fn an_owner_that_is_newer_than_a_list_is_not_missing_from_it() {
    let mut probe = Probe::new(GarbageCollector::new(KINDS.to_vec()));
    for kind in [Kind::CONFIG_MAP, Kind::NODE] {
        probe.lists(kind, &[], 100);
    }
    probe.lists(Kind::POD, &[object("pod a @60 <job:j").1], 100);
    probe.input(Input::Init(Kind::JOB));
    sees(&mut probe, "job j @50");
    probe.input(Input::Init(Kind::JOB));
    probe.input(Input::InitDone(Kind::JOB, Revision(40)));
    assert_eq!(asks(&mut probe), NOTHING);
    // A list that is not older says that it is gone.
    probe.lists(Kind::JOB, &[], 110);
    assert_eq!(asks(&mut probe), ["delete pods ns/a Background"]);
}
