//! Selectors: the grammar with the messages of kube-apiserver, matching, and the reading of stored objects.

use proptest::prelude::*;
use tally_api::field::At;
use tally_api::kinds::{Resource, Rules};
use tally_api::selector::{Facets, FieldSelector, Filter, LabelSelector, selector_column, validate_label_selector};
use tally_value::{Value, json};

struct Plain;
impl Rules for Plain {}

fn resource(group: &'static str, plural: &'static str) -> Resource {
    Resource {
        group,
        version: "v1",
        kind: "Kind",
        plural,
        singular: "",
        short_names: &[],
        categories: &[],
        namespaced: true,
        verbs: &[],
        subresources: &[],
        storage: plural,
        create_on_update: false,
        orphans_by_default: false,
        delete_returns_object: false,
        rules: &Plain,
    }
}

fn labels(text: &str) -> Value {
    text.split(' ').filter_map(|label| label.split_once('=')).map(|(k, v)| (k.to_owned(), Value::from(v))).collect()
}

#[test]
fn label_selectors_select() {
    let all = ["app=x n=1 tier=f", "app=y n=5", "app=x n=word", "other="];
    let rows = [
        ("", "0123"),
        ("  ", "0123"),
        ("app=x", "02"),
        ("app==x", "02"),
        ("app = x", "02"),
        ("app!=x", "13"),
        ("app in (x,y)", "012"),
        (" app  in ( y ) ", "1"),
        ("app notin (x)", "13"),
        ("app notin (x,y)", "3"),
        ("app", "012"),
        ("!app", "3"),
        ("app=x,tier=f", "0"),
        ("app=x,!tier", "2"),
        ("app in (x),tier notin (f)", "2"),
        ("app=", ""),
        ("other=", "3"),
        ("other in (,x)", "3"),
        ("other in (x,)", "3"),
        ("other in (x,,y)", "3"),
        ("app in ()", ""),
        ("n>3", "1"),
        ("n<3", "0"),
        ("app=x,app=y", ""),
        ("x.io/none!=1", "0123"),
        // Keywords of the grammar are valid labels too.
        ("in", ""),
        ("notin in (in,notin)", ""),
    ];
    for (selector, expected) in rows {
        let parsed = LabelSelector::parse(selector).unwrap();
        let matching = (0..all.len()).filter(|&at| parsed.matches(labels(all[at]).as_object()));
        let matching: String = matching.map(|at| at.to_string()).collect();
        assert_eq!(matching, expected, "{selector:?}");
    }
}

#[test]
fn label_selectors_that_cannot_be_read() {
    let rows = [
        ("app in x", "unable to parse requirement: found 'x' expected: '('"),
        ("app in (x", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("app in (x y)", "unable to parse requirement: found 'y', expected: ',' or ')'"),
        ("app in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("app in (x,=)", "unable to parse requirement: found '=', expected: ',', or identifier"),
        ("=x", "found '=', expected: !, identifier, or 'end of string'"),
        ("(", "found '(', expected: !, identifier, or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a!", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
        ("app=(x)", "unable to parse requirement: found '(', expected: identifier"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!!a", "unable to parse requirement: found '!', expected: identifier"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("app=x,", "found '', expected: identifier after ','"),
        ("app=x,,tier=f", "found ',', expected: identifier after ','"),
        (
            "n>abc",
            "unable to parse requirement: values[0]: Invalid value: \"abc\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ];
    for (selector, expected) in rows {
        let failure = LabelSelector::parse(selector).unwrap_err();
        assert_eq!((failure.code, failure.reason, failure.message.as_str()), (400, "BadRequest", expected));
    }
    let beginnings = [
        ("app=$$", "unable to parse requirement: values[0][app]: Invalid value: \"$$\": a valid label must be"),
        // A number, but not a valid label value.
        ("n>+3", "unable to parse requirement: values[0][n]: Invalid value: \"+3\": a valid label must be"),
        ("-bad=x", "unable to parse requirement: <nil>: Invalid value: \"-bad\": name part must consist"),
        ("a in (b,!)", "unable to parse requirement: found '!'"),
        (
            "n>-",
            "unable to parse requirement: [values[0]: Invalid value: \"-\": for 'Gt', 'Lt' operators, the value must be an integer, values[0][n]: Invalid value: \"-\": a valid label",
        ),
    ];
    for (selector, expected) in beginnings {
        let message = LabelSelector::parse(selector).unwrap_err().message;
        assert!(message.starts_with(expected), "{message}");
    }
}

#[test]
fn selectors_of_objects() {
    let parse = |selector: Value| LabelSelector::from_json(Some(&selector)).unwrap();
    let rows = [
        (json!({}), true, "<none>"),
        (json!({"matchLabels": {"app": "x", "tier": "f"}}), true, "app=x,tier=f"),
        (json!({"matchLabels": {"app": "y"}}), false, "app=y"),
        (
            json!({"matchLabels": {"tier": "f"}, "matchExpressions": [
                {"key": "app", "operator": "In", "values": ["z", "x"]}, {"key": "old", "operator": "DoesNotExist"}]}),
            true,
            "app in (x,z),!old,tier=f",
        ),
        (json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}), false, "app notin (x)"),
        (json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}), true, "app"),
    ];
    for (selector, expected, column) in rows {
        assert_eq!(parse(selector.clone()).matches(labels("app=x tier=f").as_object()), expected, "{selector}");
        assert_eq!(selector_column(Some(&selector)), column);
    }
    assert!(!LabelSelector::from_json(None).unwrap().matches(None), "no selector selects nothing");
    assert!(parse(json!({})).matches(None), "an empty one selects all");
    assert_eq!(selector_column(None), "<none>");
    assert_eq!(selector_column(Some(&json!({"matchExpressions": [{"key": "a", "operator": "Is"}]}))), "<error>");
}

#[test]
fn what_is_wrong_with_selectors_of_objects() {
    let selector = json!({"matchLabels": {"a": "b c"}, "matchExpressions": [
        {"key": "a", "operator": "In"},
        {"key": "a", "operator": "Exists", "values": ["x"]},
        {"key": "a b", "operator": "Is"},
        {"key": "a", "operator": "NotIn", "values": ["x", "y z"]},
        {"key": "a", "operator": "DoesNotExist"},
    ]});
    let errors = validate_label_selector(At::rooted("spec.selector", Some(&selector)));
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let expected = [
        r#"spec.selector.matchLabels: Invalid value: "b c": a valid label must"#,
        "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
        "spec.selector.matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        r#"spec.selector.matchExpressions[2].operator: Invalid value: "Is": not a valid selector operator"#,
        r#"spec.selector.matchExpressions[2].key: Invalid value: "a b": name part must"#,
        r#"spec.selector.matchExpressions[3].values[1]: Invalid value: "y z": a valid label must"#,
    ];
    assert_eq!(texts.len(), expected.len(), "{texts:#?}");
    for (text, expected) in texts.iter().zip(expected) {
        assert!(text.starts_with(expected), "{text}\nshould begin\n{expected}");
    }
    assert!(validate_label_selector(At::rooted("spec.selector", None)).is_empty());
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "n", "labels": {"app": "x", "q\"": "é\n"}, "annotations": {"labels": "no"}},
        "spec": {"containers": [{"name": "c", "nodeName": "no"}], "nodeName": "nd", "restartPolicy": "Never",
            "schedulerName": "mine", "hostNetwork": true},
        "status": {"phase": "Running", "podIP": "10.9.9.9", "podIPs": [{"ip": "10.9.9.9"}]},
    })
}

fn event(reporting: &str, source: Value) -> Value {
    json!({"kind": "Event", "metadata": {"name": "e", "namespace": "n"}, "reason": "Started", "type": "Normal",
        "involvedObject": {"kind": "Pod", "name": "p", "apiVersion": "v1", "fieldPath": "spec.containers{c}"},
        "reportingComponent": reporting, "source": source})
}

#[test]
fn field_selectors_select() {
    let pods = || resource("", "pods");
    let rows = [
        (pods(), pod(), "metadata.name=p", true),
        (pods(), pod(), "metadata.name==p", true),
        (pods(), pod(), "metadata.name!=p", false),
        (pods(), pod(), "metadata.namespace=n,metadata.name=p", true),
        (pods(), pod(), "metadata.name=p,metadata.name=q", false),
        (pods(), pod(), ",", true),
        (pods(), pod(), "spec.nodeName=nd", true),
        (pods(), pod(), "spec.host=nd", true),
        (pods(), pod(), "spec.nodeName=", false),
        (pods(), pod(), "spec.restartPolicy=Never,spec.schedulerName=mine", true),
        (pods(), pod(), "spec.hostNetwork=true", true),
        (pods(), json!({}), "spec.hostNetwork=false", true),
        (pods(), json!({"spec": 1, "metadata": []}), "spec.nodeName=", true),
        (pods(), pod(), "spec.serviceAccountName=", true),
        (pods(), pod(), "status.phase=Running,status.podIP=10.9.9.9", true),
        (pods(), pod(), "status.podIPs=", true),
        (pods(), pod(), "status.nominatedNodeName!=", false),
        (resource("batch", "jobs"), json!({"status": {}}), "status.successful=0", true),
        (resource("batch", "jobs"), json!({"status": {"succeeded": 2}}), "status.successful=2", true),
        (resource("batch", "jobs"), json!({"status": {"succeeded": 2}}), "status.successful!=0", true),
        (resource("", "nodes"), json!({"spec": {"unschedulable": true}}), "spec.unschedulable=true", true),
        (resource("", "nodes"), json!({"spec": {}}), "spec.unschedulable=true", false),
        (resource("", "namespaces"), json!({"status": {"phase": "Active"}}), "status.phase=Active", true),
        (resource("", "secrets"), json!({"type": "Opaque"}), "type=Opaque", true),
        (resource("", "secrets"), json!({"type": r"a,b=c\"}), r"type=a\,b\=c\\", true),
        (resource("", "services"), json!({"spec": {"type": "ClusterIP"}}), "spec.type=ClusterIP", true),
        (resource("", "replicationcontrollers"), json!({}), "status.replicas=0", true),
        (resource("", "events"), event("", json!({"component": "kubelet"})), "source=kubelet,reason=Started", true),
        (resource("", "events"), event("job-controller", json!({})), "source=job-controller", true),
        (resource("", "events"), event("job-controller", json!({})), "reportingComponent=job-controller", true),
        (
            resource("", "events"),
            event("", json!({})),
            "involvedObject.fieldPath=spec.containers{c},type!=Normal",
            false,
        ),
        (resource("events.k8s.io", "events"), event("c", json!({})), "regarding.kind=Pod,reportingController=c", true),
    ];
    for (resource, object, selector, expected) in rows {
        let filter = Filter::parse(&resource, "", selector).unwrap();
        let stored = object.to_string();
        assert_eq!(filter.matches_object(&resource, &object), expected, "{selector} on {object}");
        assert_eq!(filter.matches_stored(&resource, stored.as_bytes()), expected, "{selector} on {object}");
    }
}

#[test]
fn field_selectors_that_cannot_be_read() {
    let rows = [
        (
            "batch",
            "jobs",
            "status.successful",
            "invalid selector: 'status.successful'; can't understand 'status.successful'",
        ),
        ("batch", "jobs", "b=1,a", "invalid selector: 'b=1,a'; can't understand 'a'"),
        ("batch", "jobs", "spec.parallelism=1", r#"field label "spec.parallelism" not supported for Job"#),
        (
            "batch",
            "cronjobs",
            "status.successful=0",
            r#""status.successful" is not a known field selector: only "metadata.name", "metadata.namespace""#,
        ),
        ("", "pods", "metadata.nothing=1", "field label not supported: metadata.nothing"),
        ("", "nodes", "metadata.namespace=1", "field label not supported: metadata.namespace"),
        ("", "events", "regarding.kind=Pod", "field label not supported: regarding.kind"),
        ("", "pods", r"metadata.name=a\b", r"invalid field selector: invalid escape sequence: \b"),
        ("", "pods", r"metadata.name=a\", r"invalid field selector: invalid escape sequence: \"),
        ("", "pods", "metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        ("", "pods", "metadata.name===b", "invalid field selector: unescaped character in value: 61"),
        // Syntax errors come before unsupported fields.
        ("", "pods", "a=1,b", "invalid selector: 'a=1,b'; can't understand 'b'"),
        ("", "pods", "z=1,b=2", "field label not supported: b"),
    ];
    for (group, plural, selector, expected) in rows {
        let failure = FieldSelector::parse(&resource(group, plural), selector).unwrap_err();
        assert_eq!((failure.code, failure.reason, failure.message.as_str()), (400, "BadRequest", expected));
    }
}

#[test]
fn exact_names_are_seen() {
    let filter = |fields| Filter::parse(&resource("", "pods"), "", fields).unwrap();
    assert_eq!(filter("metadata.name=a,status.phase=b").exact_name(), Some("a"));
    assert_eq!(filter("metadata.name!=a").exact_name(), None);
    assert_eq!(filter("metadata.namespace==n").exact_namespace(), Some("n"));
    assert!(filter("").is_everything());
    assert!(!Filter::parse(&resource("", "pods"), "a", "").unwrap().is_everything());
}

#[test]
fn stored_text_is_read_no_further_than_needed() {
    let pods = resource("", "pods");
    let by_label = Filter::parse(&pods, "app=x", "").unwrap();
    // The end of the text is missing, but is not needed.
    assert!(by_label.matches_stored(&pods, br#"{"kind":"Pod","metadata":{"labels":{"app":"x"}},"spec":"#));
    let by_phase = Filter::parse(&pods, "", "status.phase=").unwrap();
    assert!(!by_phase.matches_stored(&pods, br#"{"kind":"Pod","metadata":{"labels":{"app":"x"}},"spec":"#));
    assert!(by_phase.matches_stored(&pods, b"{}"), "a section that never comes is no reason not to match");
    for bad in [&b""[..], b"[]", b"1", b"{} {}", b"\xff"] {
        assert!(!by_label.matches_stored(&pods, bad));
        assert!(Facets::read(&pods, bad).is_none());
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        "metadata|spec|status|type|reason|source|involvedObject|reportingComponent",
        "name|namespace|labels|nodeName|phase|component|kind|hostNetwork|podIPs",
        ".{0,4}"
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..8).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// What there is at the ends of a value, with its key.
fn scalars(value: &Value, key: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, inner)| scalars(inner, key, found)),
        Value::Array(items) => items.iter().for_each(|inner| scalars(inner, key, found)),
        Value::String(text) => found.push((key.to_owned(), text.to_string())),
        other => found.push((key.to_owned(), other.to_string())),
    }
}

proptest! {
    #[test]
    fn an_object_is_selected_by_its_text_as_by_its_tree(
        fields in json_value(),
        labels in prop::collection::btree_map("[a-c]{1,2}", "[a-c]{0,2}", 0..4),
    ) {
        let labels: Value = labels.into_iter().collect();
        let text = json!({"metadata": {"labels": labels}}).to_string();
        // The values of stored labels are texts.
        for (text, has_labels) in [(fields.to_string(), false), (text, true)] {
            // Converted to text and back, because a number may lose digits.
            let object: Value = serde_json::from_str(&text).unwrap();
            if !object.is_object() {
                continue;
            }
            let mut values = vec![(String::new(), String::new())];
            scalars(&object, "", &mut values);
            for (resource, fields) in [
                (resource("", "pods"), &["metadata.name", "spec.nodeName", "spec.hostNetwork", "status.phase", "status.podIPs"][..]),
                (resource("", "events"), &["type", "reason", "source", "involvedObject.kind", "reportingComponent"]),
                (resource("x", "y"), &["metadata.namespace"]),
            ] {
                for (key, value) in &values {
                    let value = value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
                    let by_field = fields.iter().map(|field| Filter::parse(&resource, "", &format!("{field}={value}")));
                    let by_label = [format!("{key}={value}"), format!("!{key}"), format!("{key} in (a,b)")];
                    let by_label = by_label.iter().filter(|_| has_labels).map(|label| Filter::parse(&resource, label, ""));
                    for filter in by_field.chain(by_label).filter_map(Result::ok) {
                        let by_text = filter.matches_stored(&resource, text.as_bytes());
                        prop_assert_eq!(by_text, filter.matches_object(&resource, &object), "{:?} {}", filter, text);
                    }
                }
            }
        }
    }

    #[test]
    fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        Facets::read(&resource("", "pods"), &bytes);
    }

    #[test]
    fn no_text_does_harm(text in "([a-c=!<>(), ]|in|notin|\\\\|é|\\PC){0,24}") {
        let parsed = LabelSelector::parse(&text);
        if let Ok(selector) = &parsed {
            // The printed form is parsed to the same selector.
            prop_assert_eq!(&LabelSelector::parse(&selector.to_string()).unwrap(), selector);
        }
        let _ = FieldSelector::parse(&resource("", "pods"), &text);
    }

    #[test]
    fn names_survive_escaping(name in "\\PC{0,12}") {
        let escaped = name.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
        let pods = resource("", "pods");
        let filter = Filter::parse(&pods, "", &format!("metadata.name={escaped}")).unwrap();
        prop_assert_eq!(filter.exact_name(), Some(name.as_str()));
        let pod = json!({"metadata": {"name": name}});
        prop_assert!(filter.matches_object(&pods, &pod));
    }
}
