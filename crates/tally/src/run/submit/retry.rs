//! `--retry-failed`: the Job that runs the failed indexes of a finished Job again.
//!
//! It is an ordinary Job with one completion for each of these indexes. Two annotations say where they come from
//! (RETRY-1), and the node tells every task its index in the first Job (RETRY-2).

use serde_json::{Value, json};
use tally_api::options::ListOptions;
use tally_core::indexes::IndexSet;
use tally_core::pod::RETRY_INDEXES_ANNOTATION;
use tally_registry::{Object, Registry, Target};

use super::resume::{GENERATED, is_finished};
use super::{RunError, jobs};
use crate::run::input::documents::{Document, Origin};
use crate::run::parts::{FIRST_INDEX, PARALLELISM, PART_OF};

/// On a Job that runs failed indexes again: `NAME/UID` of the Job that they are from.
pub const RETRY_OF_ANNOTATION: &str = "tally.dev/retry-of";
/// All annotations of an object may have 256 KiB. This leaves some for others.
const LONGEST_LIST: usize = 200 * 1024;

/// The Job to create; None: an earlier run has created it, and it is not finished.
pub fn document(registry: &Registry, name: &str) -> Result<Option<Document>, RunError> {
    let listing = registry.list(Target::new(jobs()?, "", ""), &ListOptions::default());
    let listing = listing.map_err(|failure| RunError::Environment(failure.message))?;
    let all: Vec<Value> = listing.items.iter().map(Object::parse).collect();
    let object = job(&all, name, "the data directory").map_err(RunError::Input)?;
    Ok(match object {
        Some(object) => Some(Document { origin: Origin::Flags, resource: jobs()?, object }),
        None => None,
    })
}

/// What a message says about the Job that runs failed indexes again.
pub fn told(job: &Value) -> Option<String> {
    let annotation = |name: &str| job["metadata"]["annotations"][name].as_str();
    let (of, _) = annotation(RETRY_OF_ANNOTATION)?.split_once('/')?;
    let name = job["metadata"]["name"].as_str()?;
    Some(format!("Job {name:?} runs the failed indexes of Job {of:?} again: {}", annotation(RETRY_INDEXES_ANNOTATION)?))
}

fn name_of(job: &Value) -> &str {
    job["metadata"]["name"].as_str().unwrap_or_default()
}

/// The Job that runs the failed indexes of this one again, if there is one.
fn successor<'a>(all: &'a [Value], job: &Value) -> Option<&'a Value> {
    let of = format!("{}/{}", name_of(job), job["metadata"]["uid"].as_str().unwrap_or_default());
    all.iter().find(|other| other["metadata"]["annotations"][RETRY_OF_ANNOTATION] == of)
}

/// The new Job, from all that are there. `name` may be empty if one Job alone has failed indexes. `place`: where they are, for
/// messages. None: it is there, and is not finished.
pub fn job(all: &[Value], name: &str, place: &str) -> Result<Option<Value>, String> {
    let failed = if name.is_empty() {
        let left: Vec<&Value> = all
            .iter()
            .filter(|job| is_finished(job) && successor(all, job).is_none())
            .filter(|job| failed_indexes(job).is_ok_and(|failed| !failed.is_empty()))
            .collect();
        match left.as_slice() {
            [job] => *job,
            [] if all.iter().any(|job| !is_finished(job) && told(job).is_some()) => return Ok(None),
            [] => return Err(format!("--retry-failed: no finished Job in {place} has failed indexes")),
            several => {
                let names: Vec<&str> = several.iter().map(|job| name_of(job)).collect();
                return Err(format!(
                    "--retry-failed: several Jobs have failed indexes; name one of them: {}",
                    names.join(", ")
                ));
            }
        }
    } else {
        all.iter().find(|job| name_of(job) == name).ok_or_else(|| {
            let part = all.iter().find(|job| job["metadata"]["annotations"][PART_OF] == name);
            match part {
                Some(part) => {
                    format!("--retry-failed: {name:?} is a list of several Jobs; name one, such as {:?}", name_of(part))
                }
                None => format!("--retry-failed: there is no Job {name:?} in {place}"),
            }
        })?
    };
    let name = name_of(failed);
    if !is_finished(failed) {
        return Err(format!("--retry-failed: Job {name:?} is not finished; run it to its end first"));
    }
    if let Some(other) = successor(all, failed) {
        let other_name = name_of(other);
        return match is_finished(other) {
            false => Ok(None),
            true if failed_indexes(other).is_ok_and(|failed| !failed.is_empty()) => Err(format!(
                "--retry-failed: Job {other_name:?} has run the failed indexes of Job {name:?} again; use --retry-failed \
                 {other_name}"
            )),
            true => Err(format!(
                "--retry-failed: Job {other_name:?} has run the failed indexes of Job {name:?} again, and is Complete"
            )),
        };
    }
    let indexes = failed_indexes(failed).map_err(|why| format!("--retry-failed: Job {name:?} {why}"))?;
    if indexes.is_empty() {
        return Err(format!("--retry-failed: Job {name:?} has no failed indexes"));
    }
    let list = originals(failed, &indexes).text();
    if list.len() > LONGEST_LIST {
        return Err(format!("--retry-failed: the list of the failed indexes of Job {name:?} is too long for one Job"));
    }
    Ok(Some(made(all, failed, indexes.len() as u64, &list)))
}

/// RETRY-1: the indexes that have failed for good, or all that have not succeeded if failures are not limited for each
/// index, or if the Job ended before any index failed for good.
fn failed_indexes(job: &Value) -> Result<IndexSet, &'static str> {
    let (spec, status) = (&job["spec"], &job["status"]);
    if spec["completionMode"] != "Indexed" {
        return Err("has no indexes: only an Indexed Job can be retried in part; use --again to run it again");
    }
    let limit = spec["completions"].as_u64().and_then(|limit| u32::try_from(limit).ok()).unwrap_or(0);
    let read = |field: &str| IndexSet::read_tolerant(status[field].as_str().unwrap_or_default(), limit);
    let failed = read("failedIndexes");
    if !failed.is_empty() {
        return Ok(failed);
    }
    let complete = status["conditions"].as_array().into_iter().flatten();
    let complete = complete.into_iter().any(|known| known["type"] == "Complete" && known["status"] == "True");
    Ok(if complete { IndexSet::new() } else { IndexSet::below(limit).difference(&read("completedIndexes")) })
}

/// The indexes in the Job that was run first.
fn originals(job: &Value, indexes: &IndexSet) -> IndexSet {
    let Some(list) = job["metadata"]["annotations"][RETRY_INDEXES_ANNOTATION].as_str() else { return indexes.clone() };
    let all: Vec<u32> = IndexSet::read_tolerant(list, u32::MAX).iter().collect();
    indexes.iter().filter_map(|index| all.get(index as usize).copied()).collect()
}

fn made(all: &[Value], failed: &Value, count: u64, list: &str) -> Value {
    let (name, uid) = (name_of(failed), failed["metadata"]["uid"].as_str().unwrap_or_default());
    let stem =
        name.rsplit_once("-retry-").filter(|(_, number)| number.parse::<u32>().is_ok()).map_or(name, |(stem, _)| stem);
    let free = (1..).map(|number: u32| format!("{stem}-retry-{number}"));
    let new_name = free.into_iter().find(|new| all.iter().all(|job| name_of(job) != new)).unwrap_or_default();
    let mut spec = failed["spec"].clone();
    let own_selector = spec["manualSelector"] == true;
    if let Some(fields) = spec.as_object_mut() {
        // A success policy is about the indexes of the first Job.
        fields
            .retain(|field, _| field != "suspend" && field != "successPolicy" && (own_selector || field != "selector"));
    }
    spec["completions"] = count.into();
    for limit in ["parallelism", "maxFailedIndexes"] {
        if spec[limit].as_u64().is_some_and(|number| number > count) {
            spec[limit] = count.into();
        }
    }
    let annotations = &failed["metadata"]["annotations"];
    // The parts of a list share their parallelism, of which a part that has not begun has none.
    if let Some(parallelism) = annotations[PARALLELISM].as_str().and_then(|text| text.parse::<u64>().ok()) {
        spec["parallelism"] = parallelism.min(count).max(1).into();
    }
    let template = &mut spec["template"]["metadata"];
    if let Some(labels) = template["labels"].as_object_mut() {
        labels.retain(|label, _| !GENERATED.contains(&label.as_str()));
    }
    template["annotations"][RETRY_INDEXES_ANNOTATION] = list.into();
    let mut annotations = annotations.as_object().cloned().unwrap_or_default();
    annotations.retain(|name, _| ![PART_OF, FIRST_INDEX, PARALLELISM].contains(&name.as_str()));
    annotations.insert(RETRY_OF_ANNOTATION.to_owned(), format!("{name}/{uid}").into());
    annotations.insert(RETRY_INDEXES_ANNOTATION.to_owned(), list.into());
    let namespace = &failed["metadata"]["namespace"];
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "spec": spec,
        "metadata": {"name": new_name, "namespace": namespace, "annotations": annotations},
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn job(all: &[Value], name: &str) -> Result<Option<Value>, String> {
        super::job(all, name, "the data directory")
    }

    fn stored(name: &str, failed: &str, completed: &str, end: &str) -> Value {
        let labels = json!({"controller-uid": "u", "mine": "1"});
        json!({
            "metadata": {"name": name, "uid": format!("uid-{name}"), "namespace": "default", "annotations": {"tally.dev/backoff-base": "1s"}},
            "spec": {"completionMode": "Indexed", "completions": 10, "parallelism": 4, "maxFailedIndexes": 9, "suspend": false,
                "selector": {"matchLabels": {"controller-uid": "u"}}, "template": {"metadata": {"labels": labels}}},
            "status": {"failedIndexes": failed, "completedIndexes": completed, "conditions": [{"type": end, "status": "True"}]},
        })
    }

    #[test]
    fn the_failed_indexes_are_run_again_and_only_once() {
        let first = stored("sum", "1,3-5", "0,2,6-9", "Failed");
        let again = job(std::slice::from_ref(&first), "").unwrap().unwrap();
        for (pointer, expected) in [
            ("/metadata/name", json!("sum-retry-1")),
            ("/metadata/annotations/tally.dev~1retry-of", json!("sum/uid-sum")),
            ("/metadata/annotations/tally.dev~1retry-indexes", json!("1,3-5")),
            ("/metadata/annotations/tally.dev~1backoff-base", json!("1s")),
            ("/spec/completions", json!(4)),
            ("/spec/parallelism", json!(4)),
            ("/spec/maxFailedIndexes", json!(4)),
            ("/spec/template/metadata/annotations/tally.dev~1retry-indexes", json!("1,3-5")),
            ("/spec/template/metadata/labels", json!({"mine": "1"})),
        ] {
            assert_eq!(again.pointer(pointer), Some(&expected), "{pointer}");
        }
        assert!(again["spec"].get("selector").is_none() && again["spec"].get("suspend").is_none());
        assert_eq!(told(&again).unwrap(), "Job \"sum-retry-1\" runs the failed indexes of Job \"sum\" again: 1,3-5");
        // It is not finished: it is resumed.
        let mut second = again;
        second["metadata"]["uid"] = "uid-2".into();
        for name in ["", "sum"] {
            assert_eq!(job(&[first.clone(), second.clone()], name), Ok(None));
        }
        // It has failed in part: its indexes are those of the first Job.
        second["status"] = json!({"failedIndexes": "0,2", "completedIndexes": "1,3", "conditions": [{"type": "Failed", "status": "True"}]});
        let third = job(&[first.clone(), second.clone()], "").unwrap().unwrap();
        assert_eq!(third["metadata"]["name"], "sum-retry-2");
        assert_eq!(third["metadata"]["annotations"]["tally.dev/retry-of"], "sum-retry-1/uid-2");
        assert_eq!(third["metadata"]["annotations"]["tally.dev/retry-indexes"], "1,4");
        let error = job(&[first.clone(), second.clone()], "sum").unwrap_err();
        assert!(error.ends_with("use --retry-failed sum-retry-1"), "{error}");
        second["status"] = json!({"completedIndexes": "0-3", "conditions": [{"type": "Complete", "status": "True"}]});
        assert!(job(&[first, second], "sum").unwrap_err().ends_with("and is Complete"));
    }

    #[test]
    fn what_cannot_be_run_again_is_refused() {
        let good = stored("good", "", "0-9", "Complete");
        let open = stored("open", "1", "", "Other");
        let mut plain = stored("plain", "", "", "Failed");
        plain["spec"]["completionMode"] = "NonIndexed".into();
        let all = [good, open, plain];
        for (name, told) in [
            ("", "no finished Job in the data directory has failed indexes"),
            ("none", "there is no Job \"none\""),
            ("good", "has no failed indexes"),
            ("open", "is not finished"),
            ("plain", "has no indexes"),
        ] {
            let error = job(&all, name).unwrap_err();
            assert!(error.contains(told), "{name}: {error}");
        }
        let two = [stored("a", "1", "0", "Failed"), stored("b", "2", "0", "Failed")];
        assert!(job(&two, "").unwrap_err().ends_with("name one of them: a, b"));
    }

    /// RETRY-1.
    #[test]
    fn without_a_limit_for_each_index_those_that_have_not_succeeded_have_failed() {
        let job = stored("sum", "", "0-3,7", "Failed");
        assert_eq!(failed_indexes(&job).unwrap().text(), "4-6,8,9");
    }
}
