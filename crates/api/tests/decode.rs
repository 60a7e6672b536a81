//! Bodies are decoded as in kube-apiserver, with its error messages.

use proptest::prelude::*;
use tally_api::catalog;
use tally_api::decode::{Decoded, conform, decode, decode_as, settle};
use tally_api::kinds::Resource;
use tally_api::options::{FieldValidation, Format, PatchKind};
use tally_api::patch::patched;
use tally_api::schema::{Shape, Type, schema};
use tally_api::status_error::StatusError;
use tally_value::{Map, Value, json};

fn resource(plural: &str) -> &'static Resource {
    catalog::resources().iter().find(|resource| resource.plural == plural).unwrap()
}

fn read(plural: &str, body: &str) -> Result<Decoded, StatusError> {
    decode(resource(plural), body.as_bytes(), Format::Json, FieldValidation::Warn)
}

/// The body is refused with 400 and this text.
#[track_caller]
fn refused(plural: &str, body: &str, text: &str) {
    let failure = read(plural, body).expect_err("refused");
    assert_eq!((failure.code, failure.reason, failure.message.as_str()), (400, "BadRequest", text));
}

/// As `refused`, without the usual prefix.
#[track_caller]
fn unfit(plural: &str, body: Value, text: &str) {
    let kind = resource(plural).kind;
    refused(plural, &body.to_string(), &format!("{kind} in version \"v1\" cannot be handled as a {kind}: {text}"));
}

/// The body is decoded to this object, except for `apiVersion` and `kind`.
#[track_caller]
fn becomes(plural: &str, body: Value, object: Value) {
    let mut read = read(plural, &body.to_string()).expect("fit");
    for key in ["apiVersion", "kind"] {
        assert!(read.object.as_object_mut().unwrap().remove(key).is_some());
    }
    assert_eq!(read.object, object);
    assert_eq!(read.warnings, Vec::<String>::new());
}

#[test]
fn what_is_not_json_is_told_where() {
    let lead = "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: ";
    for (body, why) in [
        ("", "unexpected end of JSON input (<empty>)"),
        ("hello", "invalid character 'h' looking for beginning of value (68656c6c6f)"),
        (r#"{"kind":"#, r#"unexpected end of JSON input ({"kind":)"#),
        ("{not json", "invalid character 'n' looking for beginning of object key string ({not json)"),
        ("{\"a\" 1}", "invalid character '1' after object key ({\"a\" 1})"),
        ("{\"a\":1 2}", "invalid character '2' after object key:value pair ({\"a\":1 2})"),
        ("{\"a\":[1 2]}", "invalid character '2' after array element ({\"a\":[1 2]})"),
        ("{\"a\":[1,]}", "invalid character ']' looking for beginning of value ({\"a\":[1,]})"),
        ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string ({\"a\":1,})"),
        ("{\"a\":tru}", "invalid character '}' in literal true (expecting 'e') ({\"a\":tru})"),
        ("{\"a\":-x}", "invalid character 'x' in numeric literal ({\"a\":-x})"),
        ("{\"a\":1.x}", "invalid character 'x' after decimal point in numeric literal ({\"a\":1.x})"),
        ("{\"a\":1ex}", "invalid character 'x' in exponent of numeric literal ({\"a\":1ex})"),
        ("{\"a\":01}", "invalid character '1' after object key:value pair ({\"a\":01})"),
        ("{\"a\":\"\n\"}", "invalid character '\\n' in string literal ({\"a\":\"\n\"})"),
        (r#"{"a":"\x"}"#, r#"invalid character 'x' in string escape code ({"a":"\x"})"#),
        (r#"{"a":"\u00g0"}"#, r#"invalid character 'g' in \u hexadecimal character escape ({"a":"\u00g0"})"#),
        ("{} x", "invalid character 'x' after top-level value ({} x)"),
        (
            r#"{"apiVersion":"v1","kind":"ConfigMap"} x"#,
            r#"invalid character 'x' after top-level value ({"apiVersion":"v1","kind":"Con ...)"#,
        ),
        ("{\"kind\":5}", "json: cannot unmarshal number into Go struct field .kind of type string ({\"kind\":5})"),
        (
            "[]",
            r#"json: cannot unmarshal array into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" } (5b5d)"#,
        ),
    ] {
        refused("configmaps", body, &format!("{lead}{why}"));
    }
}

#[test]
fn depth_is_bounded() {
    let nested = |levels: usize| format!("{{\"x\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
    assert!(read("configmaps", &nested(511)).is_ok());
    let failure = read("configmaps", &nested(512)).expect_err("too deep");
    assert!(failure.message.contains("exceeded max depth"), "{}", failure.message);
    assert!(read("configmaps", &"[".repeat(1_000_000)).is_err());
    // A YAML parser needs more stack; on the stack of a test it would overflow for documents that it does not refuse.
    let told = |body: &str| yaml("configmaps", body, FieldValidation::Ignore).map(|_| ()).map_err(|it| it.message);
    assert_eq!(told(&nested(49)), Ok(()));
    for levels in [51, 500, 5_000] {
        assert!(told(&nested(levels)).is_err(), "{levels}");
        let indented: String = (0..levels).map(|level| format!("{}x:\n", " ".repeat(level))).collect();
        assert!(told(&indented).is_err(), "{levels}");
    }
    let doubled = |times: usize| {
        let lines = (1..times).map(|at| format!("a{at}: &a{at} [*a{before}, *a{before}]\n", before = at - 1));
        format!("a0: &a0 x\n{}", lines.collect::<String>())
    };
    assert!(told(&doubled(60)).is_err(), "a document may not unfold to more than it is");
    for endless in ["[".repeat(1_000_000), "{a: ".repeat(100_000), "- ".repeat(100_000), "? ".repeat(100_000)] {
        assert!(told(&endless).is_err(), "{}", &endless[..4]);
    }
}

/// A deeper object could be stored and not be decoded again: the parser of stored objects has its own limit.
#[test]
fn what_has_no_structure_is_not_deeper_than_storage_reads() {
    // The path to it has four levels.
    let nested = |levels: usize| {
        let fields = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"metadata":{{"managedFields":[{{"fieldsV1":{{"f":{fields}}}}}]}}}}"#)
    };
    let read_at = |levels: usize| read("configmaps", &nested(levels));
    let deepest = (1..512).take_while(|levels| read_at(*levels).is_ok()).last().unwrap();
    assert!((90..100).contains(&deepest), "{deepest}");
    let stored = read_at(deepest).unwrap().object.to_string();
    serde_json::from_str::<Value>(&stored).unwrap();
    assert!(read_at(deepest + 1).unwrap_err().message.contains("exceeded max depth"));
    // A patch can nest one in the other.
    let (half, config_maps) = (nested(60), resource("configmaps"));
    let current = read("configmaps", &half).unwrap().object;
    let path = format!("/metadata/managedFields/0/fieldsV1/f{}/-", "/0".repeat(59));
    let value: Value = serde_json::from_str(&format!("{}{}", "[".repeat(60), "]".repeat(60))).unwrap();
    let patch = json!([{"op": "add", "path": path, "value": value}]).to_string();
    let patched = patched(config_maps, PatchKind::Json, current, patch.as_bytes(), FieldValidation::Warn);
    assert!(patched.unwrap_err().message.contains("exceeded max depth"));
}

#[test]
fn a_body_has_a_limited_number_of_parts() {
    // The body, its metadata and the list are three parts.
    let body = |items: usize| format!(r#"{{"metadata":{{"finalizers":[{}]}}}}"#, vec!["[]"; items].join(","));
    assert!(read("configmaps", &body(99_997)).unwrap_err().message.contains("cannot unmarshal array"));
    let failure = read("configmaps", &body(99_998)).unwrap_err();
    assert!(failure.message.contains("more than 100000 objects and lists"), "{}", failure.message);
}

#[test]
fn kinds_and_versions_that_do_not_fit() {
    for (plural, body, text) in [
        (
            "configmaps",
            r#"{"apiVersion":"v1","kind":"Secret"}"#,
            "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion",
        ),
        (
            "jobs",
            r#"{"apiVersion":"batch/v1","kind":"JobList"}"#,
            "JobList in version \"v1\" cannot be handled as a Job: converting (v1.JobList) to (batch.Job): unknown conversion",
        ),
        (
            "configmaps",
            r#"{"apiVersion":"v1","kind":"Frob"}"#,
            "Frob in version \"v1\" cannot be handled as a ConfigMap: no kind \"Frob\" is registered for version \"v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        ),
        (
            "jobs",
            r#"{"apiVersion":"batch/v9","kind":"Job"}"#,
            "Job in version \"v9\" cannot be handled as a Job: no kind \"Job\" is registered for version \"batch/v9\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        ),
        (
            "configmaps",
            r#"{"apiVersion":"a/b/c","kind":"ConfigMap"}"#,
            "the object provided is unrecognized (must be of type ConfigMap): unexpected GroupVersion string: a/b/c ({\"apiVersion\":\"a/b/c\",\"kind\":\" ...)",
        ),
        (
            "cronjobs",
            r#"{"apiVersion":"batch/v1beta1","kind":"CronJob"}"#,
            "the API version in the data (batch/v1beta1) does not match the expected API version (batch/v1)",
        ),
        (
            "events",
            r#"{"apiVersion":"events.k8s.io/v1","kind":"Event"}"#,
            "the API version in the data (events.k8s.io/v1) does not match the expected API version (v1)",
        ),
    ] {
        refused(plural, body, text);
    }
}

#[test]
fn kind_and_version_may_be_left_out() {
    for body in ["{}", "null", r#"{"kind":"Job"}"#, r#"{"apiVersion":"batch/v1"}"#, r#"{"kind":null}"#] {
        let object = read("jobs", body).unwrap().object;
        assert_eq!((&object["apiVersion"], &object["kind"]), (&json!("batch/v1"), &json!("Job")), "{body}");
    }
}

#[test]
fn wrong_types_are_told_in_the_words_of_the_decoder() {
    let pod = |spec: Value| json!({"spec": spec});
    let container = |container: Value| json!({"spec": {"containers": [container]}});
    for (plural, body, text) in [
        (
            "jobs",
            json!({"spec": {"parallelism": "two"}}),
            "string into Go struct field JobSpec.spec.parallelism of type int32",
        ),
        (
            "jobs",
            json!({"spec": {"parallelism": 3_000_000_000_i64}}),
            "number 3000000000 into Go struct field JobSpec.spec.parallelism of type int32",
        ),
        (
            "jobs",
            json!({"spec": {"parallelism": 1.5}}),
            "number 1.5 into Go struct field JobSpec.spec.parallelism of type int32",
        ),
        ("jobs", json!({"spec": {"suspend": "yes"}}), "string into Go struct field JobSpec.spec.suspend of type bool"),
        ("jobs", json!({"spec": "x"}), "string into Go struct field Job.spec of type v1.JobSpec"),
        (
            "pods",
            pod(json!({"restartPolicy": 5})),
            "number into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy",
        ),
        (
            "pods",
            pod(json!({"containers": {"a": 1}})),
            "object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            "pods",
            pod(json!({"containers": ["x"]})),
            "string into Go struct field PodSpec.spec.containers of type v1.Container",
        ),
        (
            "pods",
            pod(json!({"nodeSelector": ["a"]})),
            "array into Go struct field PodSpec.spec.nodeSelector of type map[string]string",
        ),
        (
            "pods",
            container(json!({"livenessProbe": {"httpGet": {"port": true}}})),
            "bool into Go struct field HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32",
        ),
        (
            "configmaps",
            json!({"metadata": {"labels": {"a": 1}}}),
            "number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            "configmaps",
            json!({"metadata": {"creationTimestamp": 5}}),
            "number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
        ),
    ] {
        unfit(plural, body, &format!("json: cannot unmarshal {text}"));
    }
}

#[test]
fn of_several_mistakes_the_first_is_told_unless_the_reading_stops() {
    let body = r#"{"metadata":{"name":5,"labels":7}}"#;
    let name = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string";
    refused("configmaps", body, name);
    let body = r#"{"metadata":{"name":5,"creationTimestamp":"x"}}"#;
    assert!(read("configmaps", body).unwrap_err().message.contains("parsing time \"x\""));
}

#[test]
fn text_that_is_no_quantity_time_or_base64() {
    let limits = |amount: Value| json!({"spec": {"containers": [{"resources": {"limits": {"cpu": amount}}}]}});
    let quantities = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    for amount in [json!("lots"), json!(""), json!({}), json!(true)] {
        unfit("pods", limits(amount), quantities);
    }
    unfit("pods", limits(json!("1Q")), quantities);
    unfit("pods", limits(json!("1Kn")), "unable to parse quantity's suffix");
    unfit("secrets", json!({"data": {"a": "%%%"}}), "illegal base64 data at input byte 0");
    unfit("secrets", json!({"data": {"a": "YQ"}}), "illegal base64 data at input byte 0");
    unfit("secrets", json!({"data": {"a": "YQ==x"}}), "illegal base64 data at input byte 4");
    let created = |text: &str| json!({"metadata": {"creationTimestamp": text}});
    for (text, why) in [
        ("x", r#" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#),
        ("2024-01-01", r#" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#),
        ("2024-01-01T00:00:00", r#" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00""#),
        ("2024-13-01T00:00:00Z", ": month out of range"),
        ("2023-02-29T00:00:00Z", ": day out of range"),
        ("2024-01-01T25:00:00Z", ": hour out of range"),
        ("2024-01-01T00:00:00Zx", r#": extra text: "x""#),
    ] {
        unfit("configmaps", created(text), &format!("parsing time \"{text}\"{why}"));
    }
    unfit(
        "leases",
        json!({"spec": {"renewTime": "2024-01-01T00:00:00Z"}}),
        r#"parsing time "2024-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#,
    );
}

#[test]
fn what_is_empty_is_left_out_and_what_cannot_be_is_shown() {
    becomes(
        "configmaps",
        json!({"metadata": {"name": "c", "labels": {}, "generation": 0}, "data": null, "immutable": null}),
        json!({"metadata": {"name": "c"}}),
    );
    becomes(
        "jobs",
        json!({"spec": {"suspend": false, "template": {"spec": {"containers": [{}], "hostNetwork": false, "nodeSelector": {}}}}}),
        json!({"metadata": {}, "status": {}, "spec": {"suspend": false, "template": {
            "metadata": {}, "spec": {"containers": [{"name": "", "resources": {}}]}}}}),
    );
    becomes(
        "jobs",
        json!({"spec": {"podFailurePolicy": {"rules": []}}, "status": {"conditions": [{"type": "Complete"}], "active": 0}}),
        json!({"metadata": {},
            "spec": {"podFailurePolicy": {"rules": []}, "template": {"metadata": {}, "spec": {"containers": null}}},
            "status": {"conditions": [{"type": "Complete", "status": "", "lastProbeTime": null, "lastTransitionTime": null}]}}),
    );
}

#[test]
fn an_empty_list_is_told_from_none_until_storage_makes_it_none() {
    let mut read = read("jobs", r#"{"spec":{"podFailurePolicy":{"rules":[]}}}"#).unwrap();
    assert!(read.unsettled);
    assert_eq!(read.object["spec"]["podFailurePolicy"], json!({"rules": []}));
    settle(resource("jobs"), &mut read.object);
    assert_eq!(read.object["spec"]["podFailurePolicy"], json!({"rules": null}));
}

#[test]
fn null_in_a_map_or_list_stands_for_the_empty_value() {
    becomes(
        "configmaps",
        json!({"data": {"a": null}, "metadata": {"finalizers": [null, "x"]}}),
        json!({"metadata": {"finalizers": ["", "x"]}, "data": {"a": ""}}),
    );
    becomes("secrets", json!({"data": {"a": null}}), json!({"metadata": {}, "data": {"a": ""}}));
}

#[test]
fn quantities_times_and_bytes_are_written_in_one_way() {
    let read = |body: Value| read("pods", &body.to_string()).unwrap().object;
    let pod = read(json!({
        "metadata": {"creationTimestamp": "2024-01-01T02:00:00+02:00"},
        "spec": {"containers": [{
            "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}, "requests": {"cpu": "2000m", "memory": null}},
            "livenessProbe": {"httpGet": {"port": 80}}, "readinessProbe": {"httpGet": {"port": "http"}},
        }]},
    }));
    assert_eq!(pod["metadata"]["creationTimestamp"], "2024-01-01T00:00:00Z");
    let container = &pod["spec"]["containers"][0];
    assert_eq!(
        container["resources"],
        json!({"limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": "2", "memory": "0"}})
    );
    assert_eq!(container["livenessProbe"]["httpGet"]["port"], 80);
    assert_eq!(container["readinessProbe"]["httpGet"]["port"], "http");
    becomes("secrets", json!({"data": {"a": "YW\nI=\r\n"}}), json!({"metadata": {}, "data": {"a": "YWI="}}));
    // The bits that padding discards have no meaning.
    becomes("secrets", json!({"data": {"a": "YX=="}}), json!({"metadata": {}, "data": {"a": "YQ=="}}));
}

#[test]
fn times_keep_their_fractions_until_storage_cuts_them() {
    let body = r#"{"status":{"startTime":"2024-01-01T00:00:00.950+01:00"}}"#;
    let read_job = read("jobs", body).unwrap();
    assert!(read_job.unsettled);
    let mut object = read_job.object;
    assert_eq!(object["status"]["startTime"], "2023-12-31T23:00:00.95Z");
    settle(resource("jobs"), &mut object);
    assert_eq!(object["status"]["startTime"], "2023-12-31T23:00:00Z");

    assert!(!read("jobs", r#"{"status":{"startTime":"2024-01-01T00:00:00.000Z"}}"#).unwrap().unsettled);
    let mut lease = read("leases", r#"{"spec":{"renewTime":"2024-01-01T00:00:00.123456Z"}}"#).unwrap();
    assert!(!lease.unsettled, "microseconds are kept");
    settle(resource("leases"), &mut lease.object);
    assert_eq!(lease.object["spec"]["renewTime"], "2024-01-01T00:00:00.123456Z");
}

#[test]
fn the_zero_time_is_no_time() {
    becomes("configmaps", json!({"metadata": {"creationTimestamp": "0001-01-01T00:00:00Z"}}), json!({"metadata": {}}));
}

#[test]
fn unknown_and_duplicate_fields_are_told_dropped_or_refused() {
    let body = r#"{"bogus":true,"spec":{"surprise":1,"parallelism":1,"parallelism":2,
        "template":{"spec":{"containers":[{"imag":"z","Name":"c"}],"nodeSelector":{"a":"1","a":"2"}}}}}"#;
    let told = [
        r#"unknown field "bogus""#,
        r#"unknown field "spec.surprise""#,
        r#"duplicate field "spec.parallelism""#,
        r#"unknown field "spec.template.spec.containers[0].imag""#,
        r#"unknown field "spec.template.spec.containers[0].Name""#,
        r#"duplicate field "spec.template.spec.nodeSelector.a""#,
    ];
    let read = |validation| decode(resource("jobs"), body.as_bytes(), Format::Json, validation);
    let warned = read(FieldValidation::Warn).unwrap();
    assert_eq!(warned.warnings, told);
    assert_eq!(warned.object["spec"]["parallelism"], 2);
    assert_eq!(warned.object["spec"]["template"]["spec"]["nodeSelector"], json!({"a": "2"}));
    assert_eq!(warned.object.get("bogus"), None);
    let ignored = read(FieldValidation::Ignore).unwrap();
    assert_eq!((ignored.warnings.len(), &ignored.object), (0, &warned.object));
    let failure = read(FieldValidation::Strict).unwrap_err();
    let text = format!("Job in version \"v1\" cannot be handled as a Job: strict decoding error: {}", told.join(", "));
    assert_eq!((failure.code, failure.message), (400, text));
}

/// GANG-5: without the field the Job would mean something else.
#[test]
fn gang_scheduling_is_refused_with_a_sentence() {
    let why = "gang scheduling is not supported; remove the field to have the Pods scheduled one by one";
    let job = |scheduling: Value| json!({"spec": {"scheduling": scheduling, "template": {}}});
    for scheduling in [json!({}), json!({"policy": {"gang": {"minCount": 2}}}), json!("gang")] {
        unfit("jobs", job(scheduling.clone()), &format!("spec.scheduling: {why}"));
        let cron = json!({"spec": {"jobTemplate": job(scheduling)}});
        unfit("cronjobs", cron, &format!("spec.jobTemplate.spec.scheduling: {why}"));
    }
    let unset = read("jobs", &job(Value::Null).to_string()).expect("no value");
    assert_eq!(unset.warnings, ["unknown field \"spec.scheduling\""]);
    // In other places it is a field like any other that does not exist.
    let elsewhere =
        read("jobs", &json!({"spec": {"template": {"spec": {"scheduling": {}}}}}).to_string()).expect("a Job");
    assert_eq!(elsewhere.warnings, ["unknown field \"spec.template.spec.scheduling\""]);
    let ignored =
        decode(resource("jobs"), job(json!({})).to_string().as_bytes(), Format::Json, FieldValidation::Ignore);
    assert!(ignored.expect_err("refused all the same").message.contains(why));
}

/// GANG-5: the schema has this field, and the Kubernetes release that Tally follows drops it without a word.
#[test]
fn a_scheduling_group_is_refused_in_pods_and_in_templates() {
    let why =
        "schedulingGroup: gang scheduling is not supported; remove the field to have the Pods scheduled one by one";
    let spec = |group: Value| json!({"spec": {"schedulingGroup": group}});
    let job = |group: Value| json!({"spec": {"template": spec(group)}});
    for group in [json!({}), json!({"podGroupName": "g"}), json!("g")] {
        unfit("pods", spec(group.clone()), &format!("spec.{why}"));
        unfit("jobs", job(group.clone()), &format!("spec.template.spec.{why}"));
        let cron = json!({"spec": {"jobTemplate": job(group)}});
        unfit("cronjobs", cron, &format!("spec.jobTemplate.spec.template.spec.{why}"));
    }
    let unset = read("jobs", &job(Value::Null).to_string()).expect("no value");
    assert_eq!((unset.warnings.len(), unset.object["spec"]["template"]["spec"].get("schedulingGroup")), (0, None));
    // As a tree from a controller of the same process, and in protobuf.
    let mut whole = spec(json!({"podGroupName": "g"}));
    whole["apiVersion"] = "v1".into();
    whole["kind"] = "Pod".into();
    let tree = decode(resource("pods"), &whole, Format::Json, FieldValidation::Strict);
    let structure = tally_api::protobuf::structure("v1", "Pod").unwrap();
    let document = tally_api::protobuf::object(structure, "v1", "Pod", &whole);
    let message = decode(resource("pods"), document.as_slice(), Format::Protobuf, FieldValidation::Strict);
    for refused in [tree, message] {
        assert!(refused.expect_err("refused").message.contains(why));
    }
}

#[test]
fn no_more_than_a_hundred_unknown_fields_are_told() {
    let fields: Map = (0..250).map(|number| (format!("x{number}"), json!(1))).collect();
    assert_eq!(read("configmaps", &Value::Object(fields).to_string()).unwrap().warnings.len(), 100);
}

#[test]
fn other_kinds_than_those_of_resources_can_be_read() {
    let read = |kind: (&str, &str, &str), body: &str| {
        decode_as(kind.0, kind.1, kind.2, body.as_bytes(), Format::Json, FieldValidation::Strict)
    };
    let options = ("", "v1", "DeleteOptions");
    for body in [
        r#"{"gracePeriodSeconds":0}"#,
        r#"{"apiVersion":"meta.k8s.io/v1","kind":"DeleteOptions","gracePeriodSeconds":0}"#,
        r#"{"apiVersion":"batch/v1","kind":"DeleteOptions","gracePeriodSeconds":0}"#,
    ] {
        assert_eq!(read(options, body).unwrap().object["gracePeriodSeconds"], 0, "{body}");
    }
    let failure = read(("policy", "v1", "Eviction"), r#"{"apiVersion":"v1","kind":"Pod"}"#).unwrap_err();
    let text = "Pod in version \"v1\" cannot be handled as a Eviction: converting (v1.Pod) to (policy.Eviction): unknown conversion";
    assert_eq!(failure.message, text);
    let older = r#"{"apiVersion":"policy/v1beta1","kind":"Eviction"}"#;
    assert_eq!(read(("policy", "v1", "Eviction"), older).unwrap().object["apiVersion"], "policy/v1");
    assert!(read(("autoscaling", "v1", "Scale"), r#"{"spec":{"replicas":3}}"#).is_ok());
    assert!(read(("authentication.k8s.io", "v1", "TokenRequest"), r#"{"spec":{"audiences":["x"]}}"#).is_ok());
}

fn yaml(plural: &str, body: &str, validation: FieldValidation) -> Result<Decoded, StatusError> {
    decode(resource(plural), body.as_bytes(), Format::Yaml, validation)
}

#[test]
fn yaml_means_what_its_json_form_means() {
    let body = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\n  labels: {on: 'y', 8: eight}\ndata:\n  a: \"1\"\n  b: |\n    x\n    y\n";
    let object = yaml("configmaps", body, FieldValidation::Strict).unwrap().object;
    assert_eq!(object["metadata"]["labels"], json!({"true": "y", "8": "eight"}));
    assert_eq!(object["data"], json!({"a": "1", "b": "x\ny\n"}));
    // A number is a number in YAML too.
    let failure = yaml("configmaps", "data:\n  a: 1\n", FieldValidation::Warn).unwrap_err();
    assert!(
        failure.message.ends_with("json: cannot unmarshal number into Go struct field ConfigMap.data of type string")
    );
    let job = yaml("jobs", "spec:\n  parallelism: 2.0\n  suspend: yes\n", FieldValidation::Strict).unwrap().object;
    assert_eq!((&job["spec"]["parallelism"], &job["spec"]["suspend"]), (&json!(2), &json!(true)));
    let several = yaml("configmaps", "data: {a: one}\n---\ndata: {a: two}\n", FieldValidation::Strict).unwrap();
    assert_eq!(several.object["data"]["a"], "one", "only the first document counts");
    let volume = "spec: {volumes: [{name: v, configMap: {defaultMode: 0644}}]}";
    let pod = yaml("pods", volume, FieldValidation::Strict).unwrap().object;
    assert_eq!(pod["spec"]["volumes"][0]["configMap"]["defaultMode"], 0o644);
    assert_eq!(yaml("jobs", "", FieldValidation::Strict).unwrap().object["kind"], "Job");
}

#[test]
fn bad_yaml_is_told_in_the_words_of_its_decoder() {
    for (body, told) in [
        ("a: b: c", "mapping values are not allowed in this context"),
        ("x: y\na: b: c", "line 2: mapping values are not allowed in this context"),
        ("data: *m", "unknown anchor 'm' referenced"),
        ("kind: {}\n\tdata: x", "line 2: found character that cannot start any token"),
        ("kind: x\n\tdata: x", "line 2: found a tab character that violates indentation"),
        ("x: @y", "found character that cannot start any token"),
        ("x: `y", "found character that cannot start any token"),
        ("metadata: {name: \"c}", "found unexpected end of stream"),
        ("metadata: {name: c", "did not find expected ',' or '}'"),
        ("metadata: {name: c\n", "line 1: did not find expected ',' or '}'"),
        ("metadata: [a", "did not find expected ',' or ']'"),
        ("metadata:\n  name: c\n name: d\n", "line 2: did not find expected key"),
    ] {
        let failure = yaml("configmaps", body, FieldValidation::Warn).unwrap_err();
        let expected = format!("the object provided is unrecognized (must be of type ConfigMap): yaml: {told} (");
        assert!(failure.message.starts_with(&expected), "{body:?}: {}", failure.message);
    }
    let failure = yaml("configmaps", "a: b: c", FieldValidation::Warn).unwrap_err();
    let text = "the object provided is unrecognized (must be of type ConfigMap): yaml: mapping values are not allowed in this context (613a20623a2063)";
    assert_eq!((failure.code, failure.message.as_str()), (400, text));
    let twice = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\ndata:\n  a: \"1\"\n  a: \"2\"\n";
    let told = "yaml: unmarshal errors:\n  line 7: key \"a\" already set in map";
    let warned = yaml("configmaps", twice, FieldValidation::Warn).unwrap();
    assert_eq!(
        (warned.warnings.as_slice(), &warned.object["data"]),
        ([told.to_owned()].as_slice(), &json!({"a": "2"}))
    );
    let failure = yaml("configmaps", twice, FieldValidation::Strict).unwrap_err();
    assert!(failure.message.ends_with(&format!("strict decoding error: {told}")), "{}", failure.message);
}

#[test]
fn what_a_patch_made_is_refused_as_the_patch() {
    let patched = json!({"kind": "Job", "apiVersion": "batch/v1", "spec": {"parallelism": "x"}});
    let failure = conform(resource("jobs"), patched, FieldValidation::Warn).unwrap_err();
    let cause = &failure.details.as_ref().unwrap().causes[0];
    assert_eq!((failure.code, cause.field.as_str(), cause.reason.as_str()), (422, "patch", "FieldValueInvalid"));
    assert!(failure.message.starts_with(" \"\" is invalid: patch: Invalid value: \"{"), "{}", failure.message);
    assert!(failure.message.ends_with("JobSpec.spec.parallelism of type int32"), "{}", failure.message);
}

// ---- properties of every body ----

/// Any JSON, with names of real fields often enough to get past the first checks.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-5.0..5.0_f64).prop_map(Value::from),
        "[a-zA-Z0-9:.é+-]{0,12}".prop_map(Value::from),
        Just(json!("2024-01-01T00:00:00.5Z")),
        Just(json!("1.5Gi")),
    ];
    let name = prop_oneof![
        Just("metadata"),
        Just("spec"),
        Just("status"),
        Just("template"),
        Just("containers"),
        Just("name"),
        Just("labels"),
        Just("kind"),
        Just("conditions"),
        Just("x"),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name.clone(), inner), 0..5).prop_map(|entries| Value::Object(
                entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            )),
        ]
    })
}

/// A value of this type, as clients might write it.
fn fitting(ty: &'static Type, depth: u32) -> BoxedStrategy<Value> {
    match &ty.shape {
        Shape::Text => "[a-z]{0,3}".prop_map(Value::from).boxed(),
        Shape::Int32 => any::<i32>().prop_map(Value::from).boxed(),
        Shape::Int64 => any::<i64>().prop_map(Value::from).boxed(),
        Shape::Float => (0.0..9.0_f64).prop_map(Value::from).boxed(),
        Shape::Bool => any::<bool>().prop_map(Value::from).boxed(),
        Shape::IntOrString => prop_oneof![Just(json!(0)), Just(json!("x")), Just(json!(80))].boxed(),
        Shape::Quantity => "[0-9]{1,3}(\\.[0-9]{1,4})?(m|k|Ki|Gi|e3)?".prop_map(Value::from).boxed(),
        Shape::Time => {
            "20[0-9]{2}-0[1-9]-1[0-9]T1[0-9]:00:00(\\.[0-9]{1,9})?(Z|[+-]0[0-9]:30)".prop_map(Value::from).boxed()
        }
        Shape::MicroTime => "20[0-9]{2}-0[1-9]-1[0-9]T1[0-9]:00:00\\.[0-9]{6}Z".prop_map(Value::from).boxed(),
        Shape::Bytes => "([A-Za-z0-9+/]{4}){0,2}".prop_map(Value::from).boxed(),
        Shape::Raw => Just(json!({"a": [1]})).boxed(),
        Shape::List(_) | Shape::Map(_) | Shape::Struct(_) if depth == 0 => Just(Value::Null).boxed(),
        Shape::List(inner) => prop::collection::vec(fitting(inner, depth - 1), 0..3).prop_map(Value::from).boxed(),
        Shape::Map(inner) => prop::collection::btree_map("[a-z]{1,2}", fitting(inner, depth - 1), 0..3)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
            .boxed(),
        Shape::Struct(id) => {
            let structure = schema().get(*id);
            let accepted = structure.fields.iter().filter(|field| structure.refuses(field.name).is_none());
            let fields: Vec<_> = accepted
                .map(|field| {
                    let value = prop_oneof![3 => Just(None), 1 => fitting(&field.ty, depth - 1).prop_map(Some)];
                    value.prop_map(|value| value.map(|value| (field.name.to_owned(), value)))
                })
                .collect();
            fields.prop_map(|entries| Value::Object(entries.into_iter().flatten().collect())).boxed()
        }
    }
}

fn fitting_job() -> impl Strategy<Value = Value> {
    let structure = schema().kind("batch", "v1", "Job").unwrap();
    let field = |name: &str| fitting(&structure.field(name).unwrap().ty, 5);
    (field("metadata"), field("spec"), field("status"))
        .prop_map(|(metadata, spec, status)| json!({"metadata": metadata, "spec": spec, "status": status}))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_json_makes_the_decoder_panic(body in any_json()) {
        for (group, version, kind) in schema().kinds() {
            let text = body.to_string();
            for validation in [FieldValidation::Strict, FieldValidation::Ignore] {
                let read = |decoded: Result<Decoded, StatusError>| decoded.map(|read| read.object).map_err(|error| error.message);
                let tree: tally_value::Value = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(
                    read(decode_as(group, version, kind, &tree, Format::Json, validation)),
                    read(decode_as(group, version, kind, text.as_bytes(), Format::Json, validation))
                );
            }
        }
    }

    #[test]
    fn no_text_makes_the_decoder_panic(body in "[ -~é\n\"\\\\{}\\[\\]:,]{0,40}", yaml in any::<bool>()) {
        let format = if yaml { Format::Yaml } else { Format::Json };
        let _ = decode(resource("jobs"), body.as_bytes(), format, FieldValidation::Strict);
    }

    #[test]
    fn what_has_been_read_reads_the_same(body in fitting_job()) {
        let first = read("jobs", &body.to_string()).unwrap();
        prop_assert!(first.warnings.is_empty());
        let second = read("jobs", &first.object.to_string()).unwrap();
        prop_assert_eq!(&second.object, &first.object);
        let third = conform(resource("jobs"), first.object.clone(), FieldValidation::Strict).unwrap();
        prop_assert_eq!(third.object, first.object);
        prop_assert_eq!(third.unsettled, first.unsettled);
    }
}
