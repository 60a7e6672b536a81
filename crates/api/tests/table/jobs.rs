//! Rows of Jobs and CronJobs.

use tally_api::kinds::Resource;
use tally_api::table::{self, Heading, IncludeObject};
use tally_value::{Value, json};

use super::{check, conditions, now, object, of};

fn jobs() -> &'static Resource {
    of("batch", "jobs")
}

fn job(status: Value) -> Value {
    json!({
        "spec": {
            "completions": 1, "parallelism": 1, "selector": {"matchLabels": {"u": "1"}},
            "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
        "status": status,
    })
}

#[test]
fn job_status_is_the_first_that_holds_print_2() {
    for (kinds, deleting, expected) in [
        ("", false, "Running"),
        ("!Complete !Failed", false, "Running"),
        ("SuccessCriteriaMet", false, "SuccessCriteriaMet"),
        ("SuccessCriteriaMet FailureTarget", false, "FailureTarget"),
        ("FailureTarget Suspended", false, "Suspended"),
        ("!Suspended", false, "Running"),
        ("!Suspended Suspended", false, "Running"),
        ("Suspended", true, "Terminating"),
        ("", true, "Terminating"),
        ("Failed", true, "Failed"),
        ("Failed Complete", false, "Complete"),
    ] {
        let mut job = job(json!({"conditions": conditions(kinds)}));
        if deleting {
            job["metadata"] = json!({"deletionTimestamp": "2026-05-01T10:05:00Z"});
        }
        check(jobs(), job, &format!("a | {expected} | 0/1 |  | 10m | c | i | u=1"));
    }
}

#[test]
fn job_completions_print_3() {
    for (completions, parallelism, succeeded, expected) in [
        (json!(5), 2, 2, "2/5"),
        (json!(0), 1, 0, "0/0"),
        (json!(null), 3, 2, "2/1 of 3"),
        (json!(null), 1, 1, "1/1"),
        (json!(null), 0, 0, "0/1"),
    ] {
        let mut job = job(json!({"succeeded": succeeded}));
        job["spec"]["completions"] = completions;
        job["spec"]["parallelism"] = parallelism.into();
        check(jobs(), job, &format!("a | Running | {expected} |  | 10m | c | i | u=1"));
    }
}

#[test]
fn job_duration_ends_with_the_job_print_4() {
    let started = |rest: Value| {
        let mut status = json!({"startTime": "2026-05-01T10:00:05Z"});
        status.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        job(status)
    };
    let failed = |at: &str| json!({"conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": at}]});
    for (job, status, duration) in [
        (started(json!({})), "Running", "9m55s"),
        (started(json!({"completionTime": "2026-05-01T10:02:10Z"})), "Running", "2m5s"),
        (started(json!({"completionTime": "2026-05-01T10:00:04Z"})), "Running", "0s"),
        (started(json!({"completionTime": "2026-05-01T10:00:03Z"})), "Running", "<invalid>"),
        // DEFECT-18: in Kubernetes the duration continues to grow.
        (started(failed("2026-05-01T10:01:05Z")), "Failed", "60s"),
        (started(json!({"conditions": [{"type": "Failed", "status": "True"}]})), "Failed", "9m55s"),
    ] {
        check(jobs(), job, &format!("a | {status} | 0/1 | {duration} | 10m | c | i | u=1"));
    }
}

#[test]
fn job_containers_images_and_selector_print_6() {
    let mut job = job(json!({}));
    job["spec"]["template"]["spec"] = json!({
        "initContainers": [{"name": "i", "image": "no"}],
        "containers": [{"name": "c1", "image": "i1:v1"}, {"name": "c2", "image": "i2"}],
    });
    job["spec"]["selector"] = json!({"matchLabels": {"x": "y", "b": "c"}, "matchExpressions": [
        {"key": "x", "operator": "In", "values": ["z", "y"]}, {"key": "q", "operator": "DoesNotExist"},
        {"key": "r", "operator": "Exists"}, {"key": "s", "operator": "NotIn", "values": ["t"]},
    ]});
    check(jobs(), job.clone(), "a | Running | 0/1 |  | 10m | c1,c2 | i1:v1,i2 | b=c,!q,r,s notin (t),x=y,x in (y,z)");
    job["spec"]["selector"] = json!({});
    check(jobs(), job.clone(), "a | Running | 0/1 |  | 10m | c1,c2 | i1:v1,i2 | <none>");
    job["spec"]["selector"] = json!({"matchExpressions": [{"key": "x", "operator": "Near"}]});
    check(jobs(), job, "a | Running | 0/1 |  | 10m | c1,c2 | i1:v1,i2 | <error>");
}

#[test]
fn cronjobs() {
    let cron = of("batch", "cronjobs");
    let mut object = json!({"spec": {"schedule": "*/5 * * * *", "suspend": false, "jobTemplate": {"spec": {"template": {"spec":
        {"containers": [{"name": "x", "image": "y"}, {"name": "z", "image": "w:1"}]}}}}}});
    check(cron, object.clone(), "a | */5 * * * * | <none> | False | 0 | <none> | 10m | x,z | y,w:1 | <none>");
    object["spec"]["suspend"] = true.into();
    object["spec"]["timeZone"] = "Etc/UTC".into();
    object["status"] = json!({"active": [{}, {}], "lastScheduleTime": "2026-05-01T10:09:00Z"});
    check(cron, object, "a | */5 * * * * | Etc/UTC | True | 2 | 60s | 10m | x,z | y,w:1 | <none>");
}

/// The number of columns, and the number of cells and the last cell of each row: `8: 8 <none>`.
fn shape(table: &Value) -> String {
    let columns = table["columnDefinitions"].as_array();
    let rows = table["rows"].as_array().unwrap().iter().map(|row| row["cells"].as_array().unwrap());
    let cells = rows.map(|cells| format!("{} {}", cells.len(), cells.last().unwrap().as_str().unwrap()));
    let columns = columns.map_or("-".to_owned(), |columns| columns.len().to_string());
    format!("{columns}: {}", cells.collect::<Vec<_>>().join(", "))
}

fn managed_by(manager: Value) -> Value {
    object(json!({"spec": {"managedBy": manager, "selector": {"matchLabels": {"a": "b"}}}}))
}

#[test]
fn a_job_of_another_controller_brings_a_column_that_names_it() {
    let (ours, named) = (managed_by(json!(null)), managed_by(json!("kubernetes.io/job-controller")));
    let theirs = managed_by(json!("example.com/x"));
    for (items, expected) in [
        (vec![], "8: "),
        (vec![&ours, &named], "8: 8 a=b, 8 a=b"),
        (vec![&ours, &theirs], "9: 9 <none>, 9 example.com/x"),
        (vec![&theirs, &named], "9: 9 example.com/x, 9 kubernetes.io/job-controller"),
    ] {
        let items: Vec<Value> = items.into_iter().cloned().collect();
        let table = table::table(jobs(), &items, json!({}), IncludeObject::None, now());
        assert_eq!(shape(&table), expected);
        let last = table["columnDefinitions"].as_array().unwrap().last().unwrap();
        let expected = if expected.starts_with('9') { "Managed-By" } else { "Selector" };
        assert_eq!((&last["name"], &last["priority"]), (&json!(expected), &json!(1)));
    }
}

#[test]
fn a_watch_of_jobs_keeps_the_columns_it_has_and_says_when_there_are_more() {
    let (ours, theirs) = (managed_by(json!(null)), managed_by(json!("example.com/x")));
    let mut heading = Heading::default();
    let mut next = |job: &Value| shape(&heading.table(jobs(), job, IncludeObject::None, now()));
    let seen = [&ours, &ours, &theirs, &ours, &theirs].map(&mut next);
    assert_eq!(seen, ["8: 8 a=b", "-: 8 a=b", "9: 9 example.com/x", "-: 9 <none>", "-: 9 example.com/x"]);
    let mut heading = Heading::after(jobs(), [&ours, &theirs]);
    let mut next = |job: &Value| shape(&heading.table(jobs(), job, IncludeObject::None, now()));
    assert_eq!([&ours, &theirs].map(&mut next), ["9: 9 <none>", "-: 9 example.com/x"], "as in the list before");
}
