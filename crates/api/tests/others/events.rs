//! Events through both API groups.

use tally_api::others::event;
use tally_value::{Value, json};

use super::{accepted, check_update, create, refused, without_metadata};

#[test]
fn event_of_old_clients_is_where_its_object_is() {
    let about = |object: Value| json!({"involvedObject": object});
    let mismatch = |namespace: &str| {
        format!("involvedObject.namespace: Invalid value: \"{namespace}\": does not match event.namespace")
    };
    accepted("Event", about(json!({"namespace": "ns"})));
    refused("Event", about(json!({"namespace": "other", "kind": "Pod"})), &mismatch("other"));
    refused("Event", about(json!({"kind": "Node", "name": "n"})), &mismatch(""));
    accepted("Event", json!({"metadata": {"name": "A_b:c"}, "involvedObject": {"namespace": "ns"}}));
}

fn new_event() -> Value {
    json!({
        "eventTime": "2024-01-01T00:00:00.000001Z", "action": "Act", "reason": "R", "type": "Normal", "note": "n",
        "reportingController": "x.io/c", "reportingInstance": "i", "regarding": {"kind": "Pod", "name": "p", "namespace": "ns"},
    })
}

#[test]
fn event_of_new_clients_says_who_reports_what() {
    accepted("NewEvent", new_event());
    refused("NewEvent", json!({"regarding": {"namespace": "ns"}}), {
        "[eventTime: Required value, type: Invalid value: \"\": has invalid value: ]"
    });
    let with = |field: &str, value: Value| {
        let mut event = new_event();
        event[field] = value;
        event
    };
    for (field, value, message) in [
        ("action", "A".repeat(129).into(), "action: Invalid value: \"\": can have at most 128 characters"),
        ("action", "".into(), "action: Required value"),
        ("reason", "R".repeat(129).into(), "reason: Invalid value: \"\": can have at most 128 characters"),
        ("reportingInstance", "".into(), "reportingInstance: Required value"),
        ("note", "n".repeat(1025).into(), "message: Invalid value: \"\": can have at most 1024 characters"),
        ("type", "Frob".into(), "type: Invalid value: \"\": has invalid value: Frob"),
        ("deprecatedCount", 1.into(), "count: Invalid value: \"\": needs to be unset"),
        ("deprecatedSource", json!({"host": "h"}), "source: Invalid value: \"\": needs to be unset"),
        (
            "deprecatedLastTimestamp",
            "2024-01-01T00:00:00Z".into(),
            "lastTimestamp: Invalid value: \"\": needs to be unset",
        ),
        (
            "series",
            json!({"count": 1}),
            "[series.count: Invalid value: \"\": should be at least 2, series.lastObservedTime: Required value]",
        ),
        (
            "reportingController",
            "Bad Name".into(),
            "reportingController: Invalid value: \"Bad Name\": name part must consist of alphanumeric characters, '-', '_' \
             or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', \
             regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
    ] {
        refused("NewEvent", with(field, value), message);
    }
    // The same in the other group, with its messages.
    let mut core = without_metadata(&event::to_core(&accepted("NewEvent", new_event())));
    accepted("Event", core.clone());
    core["reportingComponent"] = "".into();
    core["reportingInstance"] = "".into();
    let message = create("Event", &core).unwrap_err();
    assert!(message.starts_with("[reportingComponent: Required value, reportingComponent: Invalid"), "{message}");
    assert!(message.ends_with("reportingInstance: Required value]"), "{message}");
}

#[test]
fn only_the_series_of_a_new_event_goes_on() {
    let series = json!({"count": 2, "lastObservedTime": "2024-01-01T00:05:00.000000Z"});
    let mut again = new_event();
    again["series"] = series;
    check_update("NewEvent", new_event(), again, Ok(()));
    let mut other = new_event();
    other["note"] = "m".into();
    check_update("NewEvent", new_event(), other, Err("message: Invalid value: \"m\": field is immutable"));
    let mut other = new_event();
    other["reportingController"] = "x.io/d".into();
    check_update(
        "NewEvent",
        new_event(),
        other,
        Err("reportingController: Invalid value: \"x.io/d\": field is immutable"),
    );
    // Old clients increment the count.
    let count = |count: i64| json!({"count": count, "involvedObject": {"namespace": "ns"}});
    check_update("Event", count(3), count(4), Ok(()));
}

#[test]
fn event_has_two_forms_and_loses_nothing_between_them() {
    let core = json!({
        "count": 3, "eventTime": null, "firstTimestamp": "2024-01-01T00:00:00Z", "lastTimestamp": "2024-01-01T00:01:00Z",
        "involvedObject": {"kind": "Pod", "name": "p"}, "message": "msg", "metadata": {"name": "e"}, "reason": "Started",
        "reportingComponent": "", "reportingInstance": "", "source": {"component": "kubelet"}, "type": "Normal",
    });
    let new = json!({
        "deprecatedCount": 3, "eventTime": null, "deprecatedFirstTimestamp": "2024-01-01T00:00:00Z",
        "deprecatedLastTimestamp": "2024-01-01T00:01:00Z", "regarding": {"kind": "Pod", "name": "p"}, "note": "msg",
        "metadata": {"name": "e"}, "reason": "Started", "deprecatedSource": {"component": "kubelet"}, "type": "Normal",
    });
    assert_eq!(event::to_events(&core), new);
    assert_eq!(event::to_core(&new), core);
    // Each form shows unset fields in its own way.
    let bare = json!({"metadata": {"name": "e"}, "apiVersion": "v1", "kind": "Event"});
    assert_eq!(
        event::to_events(&bare),
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "eventTime": null,
            "regarding": {}, "deprecatedSource": {}, "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null,
        })
    );
    assert_eq!(
        event::to_core(&event::to_events(&bare)),
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "eventTime": null, "involvedObject": {},
            "source": {}, "firstTimestamp": null, "lastTimestamp": null, "reportingComponent": "", "reportingInstance": "",
        })
    );
}
