//! The annotations that Tally reads.

use tally_api::job::JobRules;
use tally_api::kinds::{Part, Rules, Siblings};
use tally_value::{Value, json};

use super::{create, job, update};

fn after(text: &str) -> Value {
    json!({"metadata": {"annotations": {"tally.dev/after": text}}})
}

/// ORDER-2.
#[test]
fn a_job_that_waits_for_others_is_created_suspended() {
    let created = create(job(after("b=Failed"))).unwrap();
    assert_eq!(created["spec"]["suspend"], true);
    assert_eq!(create(job(json!({}))).unwrap()["spec"]["suspend"], false);
    let mut elsewhere = after("b");
    elsewhere["spec"] = json!({"managedBy": "example.com/other"});
    assert_eq!(create(job(elsewhere)).unwrap()["spec"]["suspend"], false, "its manager may not know the annotation");
    let mut copied = after("b");
    copied["metadata"]["annotations"]["tally.dev/after-state"] = "{}".into();
    let copied = create(job(copied)).unwrap();
    assert_eq!(copied["metadata"]["annotations"], json!({"tally.dev/after": "b"}), "the state of another Job");
    let resumed = update(&created, Part::Main, json!({"spec": {"suspend": false}})).unwrap();
    assert_eq!(resumed["spec"]["suspend"], false, "it is suspended once, not by every write");
}

/// ORDER-1.
#[test]
fn the_value_is_validated_when_it_is_new_or_changes() {
    let refused = |text: &str| create(job(after(text))).unwrap_err();
    assert_eq!(
        refused("b=Done"),
        ["metadata.annotations[tally.dev/after]: Invalid value: \"b=Done\": \"Done\" is not one of Complete, Failed, \
          Finished, for example \"prepare\" or \"prepare=Complete,cleanup=Finished\""]
    );
    assert_eq!(
        refused("b,a"),
        [
            "metadata.annotations[tally.dev/after]: Invalid value: \"b,a\": a Job cannot wait for itself; name another Job"
        ]
    );
    let mut stored = create(job(json!({}))).unwrap();
    for part in [Part::Main, Part::Status] {
        assert!(update(&stored, part, after("")).is_err(), "{part:?}");
        assert!(update(&stored, part, after("b")).is_ok(), "{part:?}");
    }
    stored["metadata"]["annotations"] = json!({"tally.dev/after": "b=Done"});
    for part in [Part::Main, Part::Status] {
        let label = json!({"metadata": {"labels": {"x": "y"}}});
        assert!(update(&stored, part, label).is_ok(), "it was stored before the rule existed: {part:?}");
    }
}

/// ORDER-6.
#[test]
fn a_job_that_closes_a_cycle_is_refused() {
    struct Stored(Value);
    impl Siblings for Stored {
        fn named(&self, name: &str) -> Option<Value> {
            let text = self.0.get(name)?;
            let suspend = !text["resumed"].as_bool().unwrap_or(false);
            let annotations = json!({"tally.dev/after": text["after"]});
            Some(json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"suspend": suspend}}))
        }
    }
    let check = |text: &str, stored: Value, expected: Option<&str>| {
        let new = create(job(after(text))).unwrap();
        let errors = JobRules.validate_among(&new, &Stored(stored));
        let told: Vec<String> = errors.iter().map(|error| error.detail.clone()).collect();
        assert_eq!(told, expected.into_iter().collect::<Vec<_>>(), "{text}");
    };
    check("b", json!({}), None);
    check("b", json!({"b": {"after": "c"}}), None);
    check("b", json!({"b": {"after": "a"}}), Some("the Jobs would wait for each other: a -> b -> a"));
    let longer = json!({"b": {"after": "x"}, "c": {"after": "d=Failed"}, "d": {"after": "a"}});
    check("b,c", longer, Some("the Jobs would wait for each other: a -> c -> d -> a"));
    check("b", json!({"b": {"after": "a", "resumed": true}}), None);
}

/// PENDING-1.
#[test]
fn the_limits_of_pending_pods_are_durations() {
    let limits = |text: &str| job(json!({"metadata": {"annotations": {"tally.dev/pending-timeout": text}}}));
    for text in ["10m", "1h30m,Unschedulable=90s", "ImagePullBackOff=2m"] {
        assert!(create(limits(text)).is_ok(), "{text}");
    }
    assert_eq!(
        create(limits("soon")).unwrap_err(),
        [
            "metadata.annotations[tally.dev/pending-timeout]: Invalid value: \"soon\": \"soon\" is not a duration above zero, \
          for example \"10m\" or \"Unschedulable=10m,ImagePullBackOff=2m\""
        ]
    );
}
