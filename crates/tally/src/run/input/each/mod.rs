//! `--each`: the command is run once for every row of a list.
//!
//! The list becomes ConfigMaps, and the command an Indexed Job whose Pods take the row of their index from them
//! (`tally_node::each`). The API limits the size of both, so a long list is divided into several Jobs, its parts. `tally
//! run` runs them as one (`run/parts.rs`).

mod placeholders;
mod rows;

use serde_json::{Value, json};
use tally_api::catalog;
use tally_node::each::{self, Placeholder};
use xxhash_rust::xxh3::Xxh3;

use super::documents::{Document, Origin};
use super::flags::{Caller, Flags, letters, literal};
use crate::run::parts::{FIRST_INDEX, PARALLELISM, PART_OF};
use placeholders::{PlaceholderError, Placeholders};
use rows::{TaskList, TaskValues};

/// The API accepts more completions, but has other limits for `backoffLimitPerIndex` above this number, and every write of
/// the status contains the completed indexes as text.
const MOST_ROWS: usize = 100_000;
/// The API's limit for the values of a ConfigMap is 1 MiB; the first one has the script, too.
const MOST_BYTES: usize = 1024 * 1024 - 16 * 1024;
/// On a cluster every Pod gets a copy of all ConfigMaps of its Job.
const MOST_MAPS: usize = 8;
/// Separates the command from the values of a list.
const VALUES: &str = ":::";
/// Letters of the hash in the names of ConfigMaps.
const HASH_LENGTH: usize = 8;

#[derive(clap::Args, Clone, Debug, Default)]
pub struct EachFlags {
    /// Run the command once for every line of a file; - is standard input; may be repeated: every line with every line of the
    /// others. In the command {} is the line, {.} without its extension, {/} its base name, {//} its directory, {/.} its base
    /// name without extension, {#} its number from 1; {1} {1.} {1/} {1//} {1/.} are those of the first list
    #[arg(long, value_name = "FILE")]
    pub each: Vec<String>,
    /// Run the command once for every file that matches a pattern, such as '*.csv'
    #[arg(long, value_name = "PATTERN")]
    pub each_glob: Vec<String>,
    /// The values in the files of --each end with NUL bytes, as those of find -print0, not with lines
    #[arg(long, short = '0', requires = "each")]
    pub null: bool,
    /// The files of --each are CSV or TSV with a header: {name} in the command is the value of that column, and {name.},
    /// {name/}, {name//}, {name/.} are parts of it
    #[arg(long, requires = "each", conflicts_with = "null")]
    pub columns: bool,
    /// Combine several lists line by line: the first with the first, the second with the second
    #[arg(long)]
    pub zip: bool,
    /// Leave TEXT in the command as it is, such as '{4}' in a regular expression, though it looks like a placeholder; may be
    /// repeated
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub literal: Vec<String>,
}

impl EachFlags {
    /// The first given flag.
    pub fn first(&self) -> Option<&'static str> {
        let given = [
            ("--each", !self.each.is_empty()),
            ("--each-glob", !self.each_glob.is_empty()),
            ("--zip", self.zip),
            ("--literal", !self.literal.is_empty()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
    }

    /// Whether there is a list, in the flags or after the command.
    pub fn is_given(&self, command: &[String]) -> bool {
        !self.each.is_empty() || !self.each_glob.is_empty() || command.iter().any(|word| word == VALUES)
    }

    pub fn reads_stdin(&self) -> bool {
        self.each.iter().any(|file| file == "-")
    }

    fn lists(&self, command: &[String]) -> Result<Vec<TaskList>, String> {
        if self.each.iter().filter(|file| *file == "-").count() > 1 {
            return Err("--each -: standard input can be read only once".to_owned());
        }
        let mut lists = Vec::new();
        for file in &self.each {
            lists.push(if self.columns { rows::records(file)? } else { rows::lines(file, self.null)? });
        }
        for pattern in &self.each_glob {
            lists.push(rows::glob(pattern)?);
        }
        lists.extend(command.split(|word| word == VALUES).skip(1).map(rows::values));
        if self.zip && lists.len() < 2 {
            return Err("--zip applies to several lists; give another --each, or remove it".to_owned());
        }
        Ok(lists)
    }
}

/// The command without the values after it.
pub fn words(command: &[String]) -> &[String] {
    command.split(|word| word == VALUES).next().unwrap_or_default()
}

/// The ConfigMaps and Jobs for a command with a list.
pub fn documents(
    each: &EachFlags,
    flags: &Flags,
    command: &[String],
    caller: &Caller,
) -> Result<Vec<Document>, String> {
    if flags.completions.is_some() {
        return Err("--completions cannot be combined with --each: every line is run once".to_owned());
    }
    let combined = rows::combine(each.lists(command)?, each.zip)?;
    let (names, join) = (combined.names.clone(), combined.join);
    let job_words = Placeholders::new(&names, each.columns, &each.literal).job_words(words(command));
    let job_words =
        job_words.map_err(|errors| errors.iter().map(PlaceholderError::to_string).collect::<Vec<_>>().join("\n"))?;
    let mut list = ListText::default();
    combined.for_each(|row| {
        list.add(row);
        Ok(())
    })?;
    if !job_words.is_basic {
        // Earlier versions have written ConfigMaps of the same rows with a script that does not know these placeholders.
        list.hash.update(b"parts of paths");
    }
    let names: Vec<String> = names.into_iter().map(|(_, name)| name).collect();
    let completions = i32::try_from(list.rows).map_err(|_| format!("a list of {} lines is too long", list.rows))?;
    let flags = Flags { indexed: true, completions: Some(completions), ..flags.clone() };
    let hash = letters(list.hash.digest(), HASH_LENGTH);
    let job = flags.job(&job_words.words, caller, &format!("{hash}{join}{}", names.join(",")))?;
    Ok(divided(job, list.parts, &hash, |first| each::command(first, join, &names)))
}

/// Whether each task gets its row: by a placeholder, or because the command mentions a variable.
pub fn is_used(documents: &[Document]) -> bool {
    let Some(job) = documents.iter().find(|document| document.is_job()) else { return true };
    let container = &job.object["spec"]["template"]["spec"]["containers"][0];
    let names: Vec<&str> = container["command"][4].as_str().unwrap_or_default().split('\t').collect();
    let variables = ["TALLY_LINE", "TALLY_COLUMN_", "TALLY_INDEX"];
    let mut words = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    words.any(|word| {
        let mut placeholders = Placeholder::all(word, &names).into_iter();
        placeholders.any(|placeholder| placeholder != Placeholder::Brace)
            || variables.iter().any(|variable| word.contains(variable))
    })
}

/// The text of a list, in pieces that fit into ConfigMaps.
#[derive(Default)]
struct ListText {
    parts: Vec<PartText>,
    rows: usize,
    hash: Xxh3,
}

/// What one Job contains.
#[derive(Default)]
struct PartText {
    /// The index of its first row in the list.
    first: usize,
    rows: usize,
    /// One for each ConfigMap, with the index of its first row in this part.
    maps: Vec<(usize, String)>,
}

impl ListText {
    fn add(&mut self, row: &TaskValues) {
        let mut line = String::new();
        each::write_row(row.iter().map(Vec::as_slice), &mut line);
        self.hash.update(line.as_bytes());
        let fits = |map: &(usize, String)| map.1.len() + line.len() <= MOST_BYTES;
        let part = match self.parts.last_mut() {
            Some(part)
                if part.rows < MOST_ROWS && (part.maps.len() < MOST_MAPS || part.maps.last().is_some_and(fits)) =>
            {
                part
            }
            _ => {
                self.parts.push(PartText { first: self.rows, ..PartText::default() });
                let Some(part) = self.parts.last_mut() else { return };
                part
            }
        };
        match part.maps.last_mut() {
            Some(map) if fits(map) => map.1.push_str(&line),
            _ => part.maps.push((part.rows, line)),
        }
        part.rows += 1;
        self.rows += 1;
    }
}

/// One Job for each part, after its ConfigMaps.
fn divided(job: Value, mut parts: Vec<PartText>, hash: &str, command: impl Fn(usize) -> [String; 5]) -> Vec<Document> {
    if parts.is_empty() {
        // A list without rows is a Job that is complete at once.
        parts.push(PartText { maps: vec![(0, String::new())], ..PartText::default() });
    }
    let name = job["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let several = parts.len() > 1;
    let mut documents = Vec::new();
    let document = |kind: &str, object: Value| {
        let resource = catalog::find_kind(if kind == "Job" { "batch" } else { "" }, "v1", kind)?;
        Some(Document { origin: Origin::Flags, resource, object })
    };
    let mut maps = 0;
    for (number, part) in parts.into_iter().enumerate() {
        let mut job = job.clone();
        let mut sources = Vec::new();
        for (at, (first, text)) in part.maps.into_iter().enumerate() {
            let map = format!("{name}-{hash}-{maps}");
            maps += 1;
            let mut items = vec![json!({"key": first.to_string(), "path": first.to_string()})];
            let mut data = json!({first.to_string(): text});
            if at == 0 {
                items.push(json!({"key": each::RUN, "path": each::RUN}));
                data[each::RUN] = each::SCRIPT.into();
            }
            sources.push(json!({"configMap": {"name": map, "items": items}}));
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": map}, "immutable": true, "data": data,
            });
            documents.extend(document("ConfigMap", object));
        }
        let spec = &mut job["spec"];
        spec["completions"] = part.rows.into();
        if spec["maxFailedIndexes"].as_u64().is_some_and(|most| most > part.rows as u64) {
            spec["maxFailedIndexes"] = part.rows.into();
        }
        let pod = &mut spec["template"]["spec"];
        pod["volumes"] = json!([{"name": each::VOLUME, "projected": {"sources": sources}}]);
        let container = &mut pod["containers"][0];
        container["args"] = container["command"].take();
        container["command"] = command(part.first).iter().map(|word| literal(word)).collect();
        container["volumeMounts"] = json!([{"name": each::VOLUME, "mountPath": each::MOUNT, "readOnly": true}]);
        if several {
            let first = part.first.to_string();
            spec["template"]["metadata"]["annotations"][FIRST_INDEX] = first.as_str().into();
            let parallelism = spec["parallelism"].to_string();
            let metadata = &mut job["metadata"];
            metadata["name"] = format!("{name}-{number}").into();
            for (annotation, value) in [(PART_OF, &name), (FIRST_INDEX, &first), (PARALLELISM, &parallelism)] {
                metadata["annotations"][annotation] = value.as_str().into();
            }
        }
        documents.extend(document("Job", job));
    }
    documents
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn list(rows: impl IntoIterator<Item = String>) -> ListText {
        let mut list = ListText::default();
        rows.into_iter().for_each(|row| list.add(&vec![row.into_bytes()]));
        list
    }

    #[test]
    fn a_list_is_divided_where_the_api_ends() {
        let shape = |list: &ListText| -> Vec<(usize, usize, usize)> {
            list.parts.iter().map(|part| (part.first, part.rows, part.maps.len())).collect()
        };
        for (rows, expected) in [
            (MOST_ROWS - 1, vec![(0, MOST_ROWS - 1, 1)]),
            (MOST_ROWS, vec![(0, MOST_ROWS, 1)]),
            (MOST_ROWS + 1, vec![(0, MOST_ROWS, 1), (MOST_ROWS, 1, 1)]),
        ] {
            assert_eq!(shape(&list((0..rows).map(|row| row.to_string()))), expected);
        }
        // With the line break, eight rows fit into a ConfigMap.
        let long = |rows: usize| list((0..rows).map(|_| "x".repeat(MOST_BYTES / 8 - 1)));
        for (rows, expected) in [
            (8, vec![(0, 8, 1)]),
            (9, vec![(0, 9, 2)]),
            (8 * MOST_MAPS, vec![(0, 8 * MOST_MAPS, MOST_MAPS)]),
            (8 * MOST_MAPS + 1, vec![(0, 8 * MOST_MAPS, MOST_MAPS), (8 * MOST_MAPS, 1, 1)]),
        ] {
            let list = long(rows);
            assert_eq!(shape(&list), expected);
            let starts: Vec<usize> = list.parts[0].maps.iter().map(|(first, _)| *first).collect();
            assert_eq!(starts, (0..list.parts[0].maps.len()).map(|map| 8 * map).collect::<Vec<_>>());
        }
    }
}
