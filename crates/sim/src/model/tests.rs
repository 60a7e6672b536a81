use std::collections::{BTreeSet, HashSet};

use super::rows::{FURTHER, Row, TABLE, Verdict};
use super::rules::{Gate, Grain, Overlay, Setup};
use super::search::search;
use super::world::Faults;
use super::{ModelOptions, grouped, run_rows};

fn all_rows() -> impl Iterator<Item = &'static Row> {
    TABLE.iter().chain(&FURTHER)
}

fn check(variant: &str) {
    let row = all_rows().find(|row| row.variant == variant).expect("a row of this name");
    assert_eq!(search(&row.setup(true), |_| {}).verdict(), row.expected, "{variant}");
}

macro_rules! row_tests {
    ($($name:ident: $variant:literal;)*) => {
        $(
            #[test]
            fn $name() {
                check($variant);
            }
        )*

        #[test]
        fn every_row_has_its_test() {
            let tested: BTreeSet<&str> = [$($variant),*].into();
            assert_eq!(tested, all_rows().map(|row| row.variant).collect());
        }
    };
}

row_tests! {
    no_gate_counts_twice: "no gate, one controller, no crash";
    expectations_lost_at_a_restart_count_twice: "in-memory expectations, one restart with a stale list";
    two_controllers_that_read_only_their_own_writes_count_twice:
        "expectations, read your own writes, consistent list; 2 controllers";
    strict_gate_is_safe: "strict gate, 2 controllers, 2 restarts, stale lists";
    foreign_gate_is_safe: "foreign gate and own releases overlaid, same";
    foreign_gate_is_safe_with_two_pods:
        "foreign gate and own releases overlaid, 2 Pods, 2 controllers, 1 crash";
    foreign_gate_without_overlay_counts_twice: "foreign gate without the overlay of own releases";
    unconditional_status_counts_twice: "strict gate, but status written unconditionally";
    foreign_gate_over_a_view_that_goes_back_counts_twice:
        "foreign gate, 2 Pods, the Pod view may go back within one process";
    strict_gate_over_a_view_that_goes_back_is_safe: "strict gate, same";
    expectations_are_enough_without_restarts: "in-memory expectations, no restart";
    one_controller_that_reads_its_own_writes_is_safe:
        "expectations, read your own writes, consistent list; 1 controller";
    ignoring_answers_to_releases_never_counts_twice:
        "foreign gate, answers to releases ignored (at most once only)";
    releasing_before_the_record_is_committed_loses_a_pod: "finalizer released before the record is committed";
    without_bookmarks_the_gate_stays_closed: "foreign gate without bookmarks";
    overlooked_counters_count_twice: "accounting gate that overlooks the counters, 2 controllers";
    overlooked_lists_count_a_new_pod_twice:
        "accounting gate that overlooks the lists, 1 Pod created late, 2 controllers";
    overlooked_lists_count_an_adopted_pod_twice:
        "accounting gate that overlooks the lists, 1 Pod adopted, 2 controllers";
    no_gate_at_first_sight_counts_twice: "accounting gate, none for what was accounted before a restart";
    without_bookmarks_the_gate_on_accounting_stays_closed: "accounting gate without bookmarks";
    production_survives_two_restarts_with_stale_lists:
        "production: 1 Pod, 2 controllers, 2 restarts, stale lists; fine steps";
    production_survives_edits: "production: 1 Pod created late, 2 controllers, a crash, 2 edits";
    production_survives_an_adopted_pod:
        "production: 1 Pod adopted, 2 controllers, crash, loss, edit; fine steps";
    production_survives_two_adopted_pods: "production: 2 Pods adopted, 2 controllers, a loss";
    production_survives_each_fault_in_fine_steps:
        "production: 1 Pod, 2 controllers, a crash, a loss, an edit; fine steps";
    production_survives_a_pod_created_late:
        "production: 1 Pod created late, 2 controllers, 2 crashes, a loss, an edit";
    production_survives_a_pod_that_flips: "production: 1 Pod that flips, 2 controllers, a crash, a loss, an edit";
    production_survives_two_crashes_alone: "production: 2 Pods, 1 controller, 2 crashes, a loss; fine steps";
    production_survives_full_lists: "production: 2 Pods created late, 2 controllers, a crash, lists of one";
    production_survives_a_crash_and_a_loss: "production: 2 Pods, 2 controllers, a crash, a loss";
    production_counts_three_pods_alone: "production: 3 Pods, 1 controller, a loss, an edit";
    production_counts_three_pods_together: "production: 3 Pods, 2 controllers, lists of one";
}

/// The larger rows rely on these claims: neither merging states nor coarse steps change the result.
fn check_reductions(setup: Setup) {
    let fine = search(&Setup { grain: Grain::Fine, ..setup }, |_| {});
    let coarse = search(&setup, |_| {});
    let full = search(&Setup { grain: Grain::Fine, reduce: false, ..setup }, |_| {});
    assert_eq!(fine.verdict(), full.verdict(), "{setup:?}");
    assert_eq!(fine.verdict(), coarse.verdict(), "{setup:?}");
    if fine.verdict() == Verdict::Safe {
        assert_eq!(fine.at_rest, coarse.at_rest, "{setup:?}");
        assert!(coarse.states < fine.states && fine.states < full.states, "{setup:?}");
    }
}

/// Each kind of rule, safe or not, in a world with these faults.
fn check_reductions_of_every_rule(setup: Setup) {
    for setup in [
        setup,
        Setup { gate: Gate::Foreign, ..setup },
        Setup { gate: Gate::Strict, overlay: Overlay::UntilTallied, ..setup },
        Setup { gate: Gate::Open, ..setup },
        Setup { gate: Gate::OwnReleases, ..setup },
        Setup { overlay: Overlay::UntilTallied, ..setup },
        Setup { bookmarks: false, ..setup },
    ] {
        check_reductions(setup);
    }
}

#[test]
fn reductions_change_neither_verdicts_nor_rests() {
    let faults = Faults { crashes: 1, ..Faults::default() };
    check_reductions_of_every_rule(Setup { faults, ..Setup::production(1, 1) });
}

#[test]
#[cfg_attr(debug_assertions, ignore = "a minute without optimisation; make test runs it with")]
fn reductions_change_neither_verdicts_nor_rests_in_larger_worlds() {
    let faults = Faults { crashes: 1, losses: 1, edits: 1, flips: 1, rewinds: 0 };
    check_reductions_of_every_rule(Setup { creation: true, faults, ..Setup::production(1, 1) });
    let faults = Faults { crashes: 1, ..Faults::default() };
    check_reductions_of_every_rule(Setup { faults, ..Setup::production(1, 2) });
    check_reductions_of_every_rule(Setup { deletion: false, faults, ..Setup::production(2, 1) });
    check_reductions_of_every_rule(Setup { adoption: true, faults, ..Setup::production(1, 2) });
    let faults = Faults { losses: 1, rewinds: 1, ..Faults::default() };
    check_reductions_of_every_rule(Setup { faults, ..Setup::production(1, 1) });
}

/// A search in which some fault never happens would prove less than it claims.
#[test]
fn every_kind_of_step_is_taken() {
    let kinds = |grain| {
        let mut seen = HashSet::new();
        let mut taken = BTreeSet::new();
        let quiet = Faults::default();
        let some =
            [Faults { edits: 1, flips: 1, ..quiet }, Faults { crashes: 1, losses: 1, rewinds: 1, ..quiet }, quiet];
        for (faults, (creation, adoption)) in some.into_iter().zip([(true, false), (false, false), (false, true)]) {
            let setup = Setup { gate: Gate::Strict, creation, adoption, faults, grain, ..Setup::production(1, 1) };
            search(&setup, |step| {
                if seen.insert(std::mem::discriminant(&step)) {
                    taken.insert(format!("{step:?}").split(' ').next().unwrap_or_default().to_owned());
                }
            });
        }
        taken.into_iter().collect::<Vec<String>>().join(" ")
    };
    assert_eq!(
        kinds(Grain::Fine),
        "Adopt Create Delete Edit Finish Flip LateRelease LateReleaseLost LateStatus LateStatusLost LoseRelease LoseStatus \
         Refresh ReleaseAnswered Restart Rewind SeeJob SeePods SendRelease SendStatus StatusAnswered StoreRelease \
         StoreStatus"
    );
    assert_eq!(
        kinds(Grain::Coarse),
        "Adopt Create Delete Edit Finish Flip LateRelease LateReleaseLost LateStatus LateStatusLost LoseRelease LoseStatus \
         Release ReleaseAnswered Restart Rewind SeeJob SeePods StatusAnswered WriteStatus"
    );
}

#[test]
fn counterexample_can_be_read() {
    let mut text = Vec::new();
    let row = TABLE.iter().find(|row| row.variant.starts_with("no gate")).expect("the first row");
    super::tell(&row.setup, &search(&row.setup, |_| {}), &mut text).expect("memory takes everything");
    let text = String::from_utf8(text).expect("words");
    assert!(text.contains(" 1. Pod 0 finishes (revision 1)"), "{text}");
    assert!(text.contains("A asks to record Pod 0 (Job as of 4, Pods as of 2, no gate)"), "{text}");
    assert!(text.ends_with("Pod 0 is tallied a second time\n"), "{text}");
}

#[test]
fn numbers_are_grouped_by_thousands() {
    for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (12_450_300, "12,450,300")] {
        assert_eq!(grouped(number), text);
    }
}

#[test]
fn row_that_surprises_is_told() {
    let wrong = Row { expected: Verdict::Safe, ..TABLE[0] };
    let mut text = Vec::new();
    let summary =
        run_rows("two", &[TABLE[0], wrong], &ModelOptions::default(), &mut text).expect("memory takes everything");
    assert_eq!(summary.surprises, 1);
    let text = String::from_utf8(text).expect("words");
    assert_eq!(text.matches("not as expected").count(), 1, "{text}");
    assert_eq!(text.matches("tallied a second time").count(), 1, "{text}");
}
