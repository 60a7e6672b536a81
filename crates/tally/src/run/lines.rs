//! The lines of a list that have failed, for the summary: they are read from the ConfigMaps of the list when the run
//! ends.

use std::collections::BTreeMap;

use serde_json::Value;
use tally_core::indexes::IndexSet;
use tally_node::each;
use tally_runtime::controller::Kind;

use super::progress::model::Model;
use super::submit::SubmittedJob;
use crate::place::Place;

/// How many lines of a Job are named.
const MOST_LINES: usize = 20;

/// Adds the lines that have failed to the model. What cannot be read is left out: the indexes are known.
pub async fn read_failed(place: &Place, jobs: &[SubmittedJob], model: &mut Model) {
    let failed = model.jobs().iter().filter(|job| !job.failed_indexes.is_empty());
    let failed: Vec<(String, String, String)> =
        failed.map(|job| (job.uid.clone(), job.name.clone(), job.failed_indexes.clone())).collect();
    for (uid, name, indexes) in failed {
        let is_meant = |job: &&SubmittedJob| job.uid == uid || job.part.as_ref().is_some_and(|part| part.of == name);
        let mut parts: Vec<&SubmittedJob> = jobs.iter().filter(is_meant).collect();
        let first = |job: &SubmittedJob| job.part.as_ref().map_or(0, |part| part.first);
        parts.sort_by_key(|job| first(job));
        let mut lists = Lists::default();
        let mut lines = Vec::new();
        for index in IndexSet::read_tolerant(&indexes, u32::MAX).iter().take(MOST_LINES) {
            let Some(job) = parts.iter().rev().find(|job| first(job) <= index) else { continue };
            match lists.line(place, job, index - first(job)).await {
                Some(line) => lines.push((index, line)),
                None => break,
            }
        }
        model.failed_lines(&uid, lines);
    }
}

/// What has been read of the lists.
#[derive(Default)]
struct Lists {
    /// By UID.
    jobs: BTreeMap<String, Option<Value>>,
    /// By name.
    maps: BTreeMap<String, Option<Value>>,
}

impl Lists {
    /// A line, by its number in the list of the Job. None: the Job has no list, or it cannot be read.
    async fn line(&mut self, place: &Place, job: &SubmittedJob, number: u32) -> Option<String> {
        if !self.jobs.contains_key(&job.uid) {
            let read = place.get(Kind::JOB, &job.namespace, &job.name).await.ok().flatten();
            self.jobs.insert(job.uid.clone(), read);
        }
        let pod = &self.jobs.get(&job.uid)?.as_ref()?["spec"]["template"]["spec"];
        let (map, first) = source(pod, number)?;
        let join = join(pod)?.to_owned();
        if !self.maps.contains_key(&map) {
            let read = place.get(Kind::CONFIG_MAP, &job.namespace, &map).await.ok().flatten();
            self.maps.insert(map.clone(), read);
        }
        let text = self.maps.get(&map)?.as_ref()?["data"][first.to_string()].as_str()?;
        let row = text.lines().nth(number.checked_sub(first)? as usize)?;
        Some(String::from_utf8_lossy(&each::values(row).join(join.as_bytes())).into_owned())
    }
}

/// The ConfigMap with a row, and the number of its first row, which is the key.
fn source(pod: &Value, number: u32) -> Option<(String, u32)> {
    let volumes = pod["volumes"].as_array()?.iter().filter(|volume| volume["name"] == each::VOLUME);
    let sources = volumes.filter_map(|volume| volume["projected"]["sources"].as_array()).flatten();
    let maps = sources.filter_map(|source| {
        let map = &source["configMap"];
        Some((map["name"].as_str()?.to_owned(), map["items"][0]["key"].as_str()?.parse().ok()?))
    });
    maps.filter(|(_, first)| *first <= number).max_by_key(|(_, first)| *first)
}

/// What is between the values of a row. The words of the script may follow others, which `tally run --context` has put in
/// front.
fn join(pod: &Value) -> Option<&str> {
    let words = pod["containers"][0]["command"].as_array()?;
    let script = format!("{}/{}", each::MOUNT, each::RUN);
    let at = words.iter().position(|word| *word == script)?;
    words.get(at + 2)?.as_str()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_is_in_the_map_that_begins_before_it() {
        let source_of = |name: &str, key: &str| json!({"configMap": {"name": name, "items": [{"key": key}]}});
        let sources = json!([source_of("a", "0"), source_of("b", "10"), source_of("c", "200")]);
        let command = json!(["/bin/sh", "-c", "x", "sh", "/bin/sh", "/tally/each/run", "0", ",", "x\ty"]);
        let volumes = json!([{"name": "other"}, {"name": "tally-each", "projected": {"sources": sources}}]);
        let pod = json!({"volumes": volumes, "containers": [{"command": command}]});
        for (number, expected) in [(0, ("a", 0)), (9, ("a", 0)), (10, ("b", 10)), (199, ("b", 10)), (201, ("c", 200))] {
            assert_eq!(source(&pod, number), Some((expected.0.to_owned(), expected.1)));
        }
        assert_eq!(join(&pod), Some(","));
        assert_eq!(source(&json!({"containers": [{"command": ["x"]}]}), 0), None);
    }
}
