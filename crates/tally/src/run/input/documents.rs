//! Reads files into objects: the documents in a file, the kind of each, and whether `tally run` accepts it.

use std::io::Read;

use serde::Deserialize;
use serde_json::Value;
use tally_api::catalog;
use tally_api::decode::tree::{Position, SourceError, Tree};
use tally_api::kinds::Resource;

/// Larger files are rejected: no manifest is this large.
const LARGEST_FILE: u64 = 64 * 1024 * 1024;

/// Kinds that no controller here acts on: Jobs use them, or they are only stored.
const BESIDE: [&str; 13] = [
    "ConfigMap",
    "LimitRange",
    "Namespace",
    "PriorityClass",
    "ResourceQuota",
    "Secret",
    "Service",
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "PersistentVolumeClaim",
];

/// One object, and where it came from.
pub struct Document {
    pub origin: Origin,
    pub resource: &'static Resource,
    pub object: Value,
}

/// The location that an error about an object points at.
pub enum Origin {
    File {
        file: String,
        /// From 1. A list counts as one document.
        number: usize,
        tree: Tree,
    },
    /// The flags: they have no lines.
    Flags,
}

impl Document {
    pub fn is_job(&self) -> bool {
        (self.resource.group, self.resource.kind) == ("batch", "Job")
    }

    /// A ConfigMap with rows of `--each`.
    pub fn is_list(&self) -> bool {
        self.resource.kind == "ConfigMap" && matches!(self.origin, Origin::Flags)
    }

    pub fn namespace(&self) -> &str {
        let given = self.object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
        match (self.resource.namespaced, given) {
            (false, _) => "",
            (true, "") => "default",
            (true, given) => given,
        }
    }

    /// Empty: the server generates the name.
    pub fn name(&self) -> &str {
        self.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
    }

    /// `Job "sum"`, for messages.
    pub fn title(&self) -> String {
        let prefix = || self.object.pointer("/metadata/generateName").and_then(Value::as_str).unwrap_or_default();
        let name = if self.name().is_empty() { prefix() } else { self.name() };
        match name {
            "" => format!("{} without a name", self.resource.kind),
            name => format!("{} {name:?}", self.resource.kind),
        }
    }
}

impl Origin {
    /// `jobs.yaml:12:3: `, in the format of compilers, for a field; empty if there is no file.
    pub fn at(&self, field: &str) -> String {
        match self {
            Self::File { file, tree, .. } => located(file, tree.position_of(field)),
            Self::Flags => String::new(),
        }
    }

    /// `jobs.yaml:5:1: document 2, `
    pub fn whole(&self) -> String {
        match self {
            Self::File { file, number, tree } => format!("{}document {number}, ", located(file, tree.position)),
            Self::Flags => String::new(),
        }
    }
}

fn located(file: &str, position: Position) -> String {
    match position {
        Position { line: 0, .. } => format!("{file}: "),
        Position { line, column } => format!("{file}:{line}:{column}: "),
    }
}

/// Reads files; `-` is standard input. The error describes the first file that cannot be used.
pub fn read(files: &[String]) -> Result<Vec<Document>, String> {
    let mut documents = Vec::new();
    for file in files {
        let (name, text) = load(file)?;
        documents.extend(parse(&name, &text)?);
    }
    if documents.is_empty()
        && let [file] = files
    {
        return Err(format!("{} is empty; a Job begins with `apiVersion: batch/v1` and `kind: Job`", shown(file)));
    }
    if !documents.iter().any(Document::is_job) {
        let there = match documents.len() {
            0 => "nothing".to_owned(),
            _ => documents.iter().map(Document::title).collect::<Vec<_>>().join(", "),
        };
        let names: Vec<_> = files.iter().map(|file| shown(file)).collect();
        return Err(format!(
            "no Job found in {} (found {there}); a Job begins with `apiVersion: batch/v1` and `kind: Job`",
            names.join(", ")
        ));
    }
    Ok(documents)
}

fn shown(file: &str) -> &str {
    if file == "-" { "standard input" } else { file }
}

fn load(file: &str) -> Result<(String, String), String> {
    let name = shown(file);
    let mut bytes = Vec::new();
    let taken = if file == "-" {
        std::io::stdin().lock().take(LARGEST_FILE + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|open| open.take(LARGEST_FILE + 1).read_to_end(&mut bytes))
    };
    taken.map_err(|error| format!("cannot read {name}: {error}; -f takes a file, or - for standard input"))?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(format!("{name} is larger than the limit of {} MiB", LARGEST_FILE >> 20));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("{name}:{line}: invalid UTF-8; the file must be YAML or JSON")
    })?;
    Ok((name.to_owned(), text))
}

/// The objects in a text. Lists are split into their items.
pub fn parse(file: &str, text: &str) -> Result<Vec<Document>, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut documents = Vec::new();
    let trees = trees(text)
        .map_err(|error| format!("{}{}; the file must be YAML or JSON", located(file, error.position), error.why))?;
    for (index, tree) in trees.into_iter().filter(|tree| !tree.is_null()).enumerate() {
        take(file, index + 1, tree, &mut documents)?;
    }
    Ok(documents)
}

fn take(file: &str, number: usize, tree: Tree, documents: &mut Vec<Document>) -> Result<(), String> {
    let here = |position| format!("{}document {number}", located(file, position));
    const BEGINS: &str = "a Job begins with `apiVersion: batch/v1` and `kind: Job`";
    if !tree.is_map() {
        return Err(format!("{} is {}, not an object; {BEGINS}", here(tree.position), tree.described()));
    }
    let Some(kind) = tree.text("kind").map(str::to_owned) else {
        return Err(format!("{} has no kind; {BEGINS}", here(tree.position)));
    };
    let Some(api_version) = tree.text("apiVersion").map(str::to_owned) else {
        return Err(format!("{} has no apiVersion; {BEGINS}", here(tree.position)));
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let list_of = |kind: &str| catalog::find_kind(group, version, kind).is_some();
    if (kind == "List" && api_version == "v1") || kind.strip_suffix("List").is_some_and(list_of) {
        let of = kind.strip_suffix("List").filter(|of| !of.is_empty()).map(str::to_owned);
        for item in tree.into_items("items") {
            // The items of a JobList may omit `kind` and `apiVersion`.
            let item = match &of {
                Some(of) if item.get("kind").is_none() => item.with("kind", of).with("apiVersion", &api_version),
                _ => item,
            };
            take(file, number, item, documents)?;
        }
        return Ok(());
    }
    let Some(resource) = catalog::find_kind(group, version, &kind) else {
        let elsewhere: Vec<_> = catalog::resources().iter().filter(|row| row.kind == kind).collect();
        let hint = match elsewhere.first() {
            Some(row) => format!("{kind} is in {}", row.api_version()),
            None => BEGINS.to_owned(),
        };
        return Err(format!(
            "{}: no matches for kind {kind:?} in version {api_version:?}; {hint}",
            here(tree.position_of("kind"))
        ));
    };
    let is_job = (group, kind.as_str()) == ("batch", "Job");
    if !is_job && !BESIDE.contains(&kind.as_str()) {
        return Err(format!(
            "{} is a {kind}; tally run accepts Jobs and the objects that they use ({}). For a {kind}, use \
             `tally up` and kubectl",
            here(tree.position_of("kind")),
            BESIDE[..6].join(", ")
        ));
    }
    let object = tree.value().into();
    documents.push(Document { origin: Origin::File { file: file.to_owned(), number, tree }, resource, object });
    Ok(())
}

/// One tree per document.
fn trees(text: &str) -> Result<Vec<Tree>, SourceError> {
    if text.trim_start().starts_with('{') {
        // JSON, possibly several objects in sequence. If it can be read as YAML, its fields have positions.
        let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text)
            .into_iter::<serde::de::IgnoredAny>()
            .map(|value| value.map(|_| Value::Null))
            .collect();
        let yaml = yaml(text);
        return match (values, yaml) {
            (_, Ok(trees)) => Ok(trees),
            (Ok(_), Err(_)) => Ok(json(text)),
            (Err(error), Err(_)) => {
                let why = error.to_string();
                let why = why.split(" at line ").next().unwrap_or_default().to_owned();
                Err(SourceError { position: Position { line: error.line(), column: error.column() }, why })
            }
        };
    }
    yaml(text)
}

fn json(text: &str) -> Vec<Tree> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let mut trees = Vec::new();
    while let Ok(value) = tally_value::Value::deserialize(&mut reader) {
        trees.push(Tree::of(value));
    }
    trees
}

fn yaml(text: &str) -> Result<Vec<Tree>, SourceError> {
    let mut trees = Vec::new();
    for (above, text) in split(text) {
        let read = Tree::parse(&text).map_err(|error| {
            let position = Position {
                line: if error.position.line > 0 { error.position.line + above } else { 0 },
                ..error.position
            };
            SourceError { position, ..error }
        });
        trees.push(read?.lowered(above));
    }
    Ok(trees)
}

/// The documents of a YAML text, each with the number of lines above it. No value can contain a line that begins with
/// the marker, so it is sufficient to look at lines.
fn split(text: &str) -> Vec<(usize, String)> {
    let mut parts: Vec<(usize, String)> = vec![(0, String::new())];
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let bare = line.trim_end();
        let marks = |marker: &str| {
            line.strip_prefix(marker).is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
        };
        if marks("---") {
            // Text after the marker on the same line belongs to the document and keeps its column.
            parts.push((number, format!("   {}\n", &bare[3..])));
        } else if marks("...") {
            parts.push((number + 1, String::new()));
        } else if let Some((_, part)) = parts.last_mut() {
            // Directives precede the marker and do not affect objects.
            part.push_str(if line.starts_with('%') && part.trim().is_empty() { "\n" } else { line });
        }
    }
    let says_something =
        |text: &str| text.lines().any(|line| !matches!(line.trim_start().bytes().next(), None | Some(b'#')));
    parts.retain(|(_, part)| says_something(part));
    parts
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const JOB: &str = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: sum\n";
    const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: other}\n";

    fn titles(text: &str) -> Result<Vec<String>, String> {
        parse("f", text)
            .map(|documents| documents.iter().map(|document| document.origin.whole() + &document.title()).collect())
    }

    #[test]
    fn documents_are_found() {
        let job_json = r#"{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "sum-"}}"#;
        for (text, expected) in [
            (JOB.to_owned(), vec!["f:1:1: document 1, Job \"sum\""]),
            (
                format!("---\n{MAP}---\n# nothing\n---\n{JOB}"),
                vec!["f:2:1: document 1, ConfigMap \"c\"", "f:8:1: document 2, Job \"sum\""],
            ),
            (format!("%YAML 1.2\n---\n{JOB}...\n"), vec!["f:3:1: document 1, Job \"sum\""]),
            (format!("\u{feff}{job_json}"), vec!["f:1:1: document 1, Job \"sum-\""]),
            (format!("{job_json}\n{job_json}"), vec!["f: document 1, Job \"sum-\"", "f: document 2, Job \"sum-\""]),
            (format!("--- {job_json}"), vec!["f:1:5: document 1, Job \"sum-\""]),
            (
                "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: batch/v1, kind: Job}\n".to_owned(),
                vec!["f:4:3: document 1, Job without a name"],
            ),
            (
                "apiVersion: batch/v1\nkind: JobList\nitems:\n- metadata: {name: x}\n".to_owned(),
                vec!["f:4:3: document 1, Job \"x\""],
            ),
            (String::new(), vec![]),
            ("# only a remark\n---\n".to_owned(), vec![]),
        ] {
            assert_eq!(titles(&text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn namespaces_are_those_of_the_object_or_the_usual_one() {
        let documents = parse("f", &format!("{MAP}---\n{JOB}")).unwrap();
        assert_eq!(documents.iter().map(Document::namespace).collect::<Vec<_>>(), ["other", "default"]);
    }

    #[test]
    fn what_is_no_object_is_told() {
        for (text, told) in [
            ("just a word", "f:1:1: document 1 is a string, not an object; a Job begins with"),
            ("- 1\n- 2\n", "f:1:1: document 1 is a list"),
            ("a: [1,\nb: 2\n", "f:1:4: unclosed bracket"),
            ("{\"a\": ]", "f:1:7: expected value"),
            ("metadata: {}\n", "document 1 has no kind"),
            ("kind: Job\n", "document 1 has no apiVersion"),
            (
                "apiVersion: v1\nkind: Job\n",
                "f:2:7: document 1: no matches for kind \"Job\" in version \"v1\"; Job is in batch/v1",
            ),
            ("apiVersion: x.io/v2\nkind: Frob\n", "no matches for kind \"Frob\" in version \"x.io/v2\""),
            ("apiVersion: v1\nkind: Pod\n", "f:2:7: document 1 is a Pod; tally run accepts Jobs"),
            ("apiVersion: batch/v1\nkind: CronJob\n", "use `tally up`"),
        ] {
            let said = titles(text).unwrap_err();
            assert!(said.contains(told), "{text:?}: {said}");
        }
        let later = titles(&format!("{JOB}---\nkind: [\n")).unwrap_err();
        assert!(later.starts_with("f:6") || later.starts_with("f:7"), "{later}");
    }
}
