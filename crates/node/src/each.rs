//! A Pod that runs a command for one row of a list (`tally run --each`).
//!
//! The list is in ConfigMaps, which a projected volume of the Pod contains together with a script. On any cluster the
//! container is `/bin/sh /tally/each/run FIRST JOIN NAMES` with the words of the command as arguments: the script reads
//! the row of the Pod's completion index and puts its values in the place of placeholders such as `{}`, `{name}` and `{2.}`
//! (`Placeholder`). A shell and a mount for every row would cost more than most commands, so this node does what the script
//! does, if the ConfigMap has exactly the script that it knows. The script of an earlier version, whose list is not finished,
//! is run, but without the mount; any other script is run as it is written.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use compact_str::CompactString;
use serde::Deserialize;

use crate::env::Environment;
use crate::pod::{Container, Pod};

/// The script, for any POSIX shell. The functions below do the same; the tests compare them.
pub const SCRIPT: &str = include_str!("each.sh");
/// The scripts of earlier versions. They, too, take the row from `TALLY_EACH_ROW`.
pub const EARLIER_SCRIPTS: [&str; 1] = [include_str!("each_first.sh")];
/// The key of the script in the first ConfigMap.
pub const RUN: &str = "run";
/// Where the volume is mounted.
pub const MOUNT: &str = "/tally/each";
/// The name that `tally run` gives the volume.
pub const VOLUME: &str = "tally-each";
/// On a Job and its Pods: the index of the Job's first row in a list that several Jobs share.
pub const FIRST_INDEX_ANNOTATION: &str = "tally.dev/first-index";
const SHELL: &str = "/bin/sh";
/// In the environment of the script: the row itself, as it is in the file.
const ROW: &str = "TALLY_EACH_ROW";
const INDEX: &str = "JOB_COMPLETION_INDEX";

/// The command of a container that runs the script, without the words that the script gets as arguments.
pub fn command(first: usize, join: &str, names: &[String]) -> [String; 5] {
    [SHELL.to_owned(), format!("{MOUNT}/{RUN}"), first.to_string(), join.to_owned(), names.join("\t")]
}

/// Appends a row to a list. The text is valid UTF-8 and has no control characters, whatever the values are.
pub fn write_row<'a>(values: impl IntoIterator<Item = &'a [u8]>, list: &mut String) {
    for (at, value) in values.into_iter().enumerate() {
        if at > 0 {
            list.push('\t');
        }
        for chunk in value.utf8_chunks() {
            for letter in chunk.valid().chars() {
                match letter {
                    '\\' => list.push_str("\\\\"),
                    '\n' => list.push_str("\\n"),
                    '\t' => list.push_str("\\t"),
                    letter if letter.is_ascii_control() => write_octal(letter as u8, list),
                    letter => list.push(letter),
                }
            }
            chunk.invalid().iter().for_each(|byte| write_octal(*byte, list));
        }
    }
    list.push('\n');
}

fn write_octal(byte: u8, list: &mut String) {
    // Writing to a String cannot fail.
    let _ = write!(list, "\\0{byte:03o}");
}

/// The values of a row, as `write_row` got them.
pub fn values(row: &str) -> Vec<Vec<u8>> {
    row.split('\t').map(decode).collect()
}

fn decode(text: &str) -> Vec<u8> {
    let mut value = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'\\' {
            value.push(*byte);
            continue;
        }
        let (byte, after) = match rest {
            [b'n', after @ ..] => (b'\n', after),
            [b't', after @ ..] => (b'\t', after),
            [b'\\', after @ ..] => (b'\\', after),
            [b'0', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), after)
            }
            // `write_row` writes no other escape.
            after => (b'\\', after),
        };
        value.push(byte);
        rest = after;
    }
    value
}

/// The rows of one ConfigMap.
#[derive(Debug)]
pub struct RowList {
    text: String,
    /// Where each row begins, and the end of the text.
    bounds: Vec<u32>,
    /// The script in the ConfigMap, if this node knows it.
    script: Option<&'static str>,
}

#[derive(Deserialize)]
struct ConfigMapText {
    #[serde(default)]
    immutable: bool,
    #[serde(default)]
    data: BTreeMap<CompactString, String>,
}

impl RowList {
    /// None: the ConfigMap can change, or has another form.
    pub fn read(config_map: &[u8]) -> Option<Self> {
        let ConfigMapText { immutable: true, mut data } = serde_json::from_slice(config_map).ok()? else { return None };
        let known = |script: String| [SCRIPT].into_iter().chain(EARLIER_SCRIPTS).find(|known| *known == script);
        let script = data.remove(RUN).and_then(known);
        let (_, text) = data.pop_first().filter(|_| data.is_empty())?;
        let ends = memchr::memchr_iter(b'\n', text.as_bytes()).map(|end| u32::try_from(end + 1));
        let bounds = std::iter::once(Ok(0)).chain(ends).collect::<Result<Vec<_>, _>>().ok()?;
        Some(Self { text, bounds, script })
    }

    fn row(&self, number: usize) -> Option<&str> {
        let (begin, end) = (*self.bounds.get(number)?, *self.bounds.get(number + 1)?);
        self.text.get(begin as usize..end as usize - 1)
    }
}

/// Where the row of a Pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowSource {
    /// The volume that need not be mounted.
    pub volume: CompactString,
    /// The ConfigMap with the script, and the one with the row.
    pub script: CompactString,
    pub list: CompactString,
    /// The position of the row in its list.
    number: usize,
}

impl RowSource {
    /// None: this is an ordinary Pod.
    pub fn of(pod: &Pod) -> Option<Self> {
        let [container] = pod.spec.containers.as_slice() else { return None };
        let [shell, script, _, _, _] = container.command.as_slice() else { return None };
        let runs = shell == SHELL && script.strip_prefix(MOUNT).and_then(|path| path.strip_prefix('/')) == Some(RUN);
        // An init container may use the volume, too.
        if !runs || !pod.spec.init_containers.is_empty() {
            return None;
        }
        let mount = container.volume_mounts.iter().find(|mount| mount.mount_path == MOUNT)?;
        let volume = pod.spec.volumes.iter().find(|volume| volume.name == mount.name)?;
        let index = usize::try_from(pod.task_index()?).ok()?;
        let (mut script, mut list): (_, Option<(usize, _)>) = (None, None);
        for source in &volume.projected.as_ref()?.sources {
            let map = source.config_map.as_ref()?;
            for item in &map.items {
                if item.key != item.path {
                    return None;
                }
                if item.key == RUN {
                    script = Some(map.name.clone());
                    continue;
                }
                let first = item.key.parse().ok()?;
                if first <= index && list.as_ref().is_none_or(|(best, _)| *best < first) {
                    list = Some((first, map.name.clone()));
                }
            }
        }
        let (first, list) = list?;
        Some(Self { volume: volume.name.clone(), script: script?, list, number: index - first })
    }
}

/// The row of a Pod.
#[derive(Clone, Debug)]
pub struct ListRow {
    list: Arc<RowList>,
    number: usize,
    script: &'static str,
}

impl ListRow {
    /// None: the script is not a known one, or there is no such row.
    pub fn new(source: &RowSource, script: &RowList, list: Arc<RowList>) -> Option<Self> {
        list.row(source.number)?;
        Some(Self { number: source.number, list, script: script.script? })
    }

    /// What the script would execute: the words, and more variables.
    pub fn run(&self, container: &Container, env: &mut Environment) -> Vec<String> {
        let words: Vec<String> = container.args.iter().map(|word| env.expand(word)).collect();
        let row = self.list.row(self.number).unwrap_or_default();
        let [_, _, first, join, names] = container.command.as_slice() else { return words };
        let [first, join, names] = [first, join, names].map(|word| env.expand(word));
        let expansion = if self.script == SCRIPT { Expansion::of(row, &join, &names) } else { None };
        let Some(expansion) = expansion else {
            // A command of this node is valid UTF-8; the script can make any other. An earlier script knows other placeholders.
            env.set(ROW, row.to_owned());
            let script = [SHELL, "-c", self.script, RUN, &first, &join, &names].map(str::to_owned);
            return script.into_iter().chain(words).collect();
        };
        let own = env.get(INDEX).and_then(|index| index.parse::<u64>().ok()).unwrap_or(0);
        let index = first.parse::<u64>().unwrap_or(0).saturating_add(own);
        let words = words.iter().map(|word| expansion.word(word, index)).collect();
        env.set("TALLY_INDEX", index.to_string());
        for (name, value) in expansion.names.iter().zip(expansion.values).filter(|(name, _)| !name.is_empty()) {
            env.set(&format!("TALLY_COLUMN_{name}"), value);
        }
        env.set("TALLY_LINE", expansion.line);
        words
    }
}

/// What stands in the place of a text between braces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placeholder {
    /// A brace that is text, though a placeholder seems to follow it.
    Brace,
    /// The number of the row in the whole list, from 1.
    Number,
    /// All values of the row, or the same part of each of them.
    Line(PathPart),
    /// One value, by its position.
    Value(usize, PathPart),
}

/// The part of a value that is the path of a file. What belongs to which part is as in GNU parallel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathPart {
    Whole,
    WithoutExtension,
    Base,
    Directory,
    BaseWithoutExtension,
}

/// What is between the braces of `Placeholder::Brace`.
const BRACE: &str = "\\{";

impl Placeholder {
    /// `names`: those of the columns, or a single empty name. None: the text and its braces stay as they are.
    pub fn of(key: &str, names: &[&str]) -> Option<Self> {
        match key {
            "" => return Some(Self::Line(PathPart::Whole)),
            "#" => return Some(Self::Number),
            BRACE => return Some(Self::Brace),
            _ => {}
        }
        let (value, part) = PathPart::split(key);
        if value.is_empty() {
            return Some(Self::Line(part));
        }
        let named = names.iter().position(|name| *name == value);
        let numbered = || match value.as_bytes() {
            [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit) => value.parse().ok(),
            _ => None,
        };
        let at = named.or_else(|| numbered().map(|number: usize| number - 1))?;
        (at < names.len()).then_some(Self::Value(at, part))
    }

    /// The placeholders of a word.
    pub fn all(word: &str, names: &[&str]) -> Vec<Self> {
        let mut all = Vec::new();
        replace(word, |key, _| Self::of(key, names).map(|placeholder| all.push(placeholder)).is_some());
        all
    }

    /// The text for a brace that is not the beginning of a placeholder.
    pub fn write_brace(word: &mut String) {
        word.extend(["{", BRACE, "}"]);
    }
}

impl PathPart {
    /// How each is written after the name or the number of a value. What ends with another comes before it.
    pub const SUFFIXES: [(&str, Self); 4] =
        [("/.", Self::BaseWithoutExtension), (".", Self::WithoutExtension), ("//", Self::Directory), ("/", Self::Base)];

    /// What is before the suffix, and which part the suffix asks for.
    pub fn split(key: &str) -> (&str, Self) {
        let suffixed = |(suffix, part)| Some((key.strip_suffix(suffix)?, part));
        Self::SUFFIXES.into_iter().find_map(suffixed).unwrap_or((key, Self::Whole))
    }

    pub fn of(self, path: &str) -> &str {
        let base = || path.rfind('/').map_or(0, |at| at + 1);
        match self {
            Self::Whole => path,
            Self::WithoutExtension => &path[..path[base()..].rfind('.').map_or(path.len(), |at| base() + at)],
            Self::Base => &path[base()..],
            Self::BaseWithoutExtension => Self::WithoutExtension.of(&path[base()..]),
            Self::Directory => {
                let own = path.trim_end_matches('/');
                match own.rfind('/').map(|at| own[..at].trim_end_matches('/')) {
                    Some("") => "/",
                    Some(directory) => directory,
                    None if own.is_empty() && !path.is_empty() => "/",
                    None => ".",
                }
            }
        }
    }
}

/// `put` appends what belongs in the place of the text between two braces, or returns false.
fn replace(word: &str, mut put: impl FnMut(&str, &mut String) -> bool) -> String {
    let mut result = String::with_capacity(word.len());
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('{')
        && let Some((key, behind)) = after.split_once('}')
    {
        result.push_str(before);
        rest = if put(key, &mut result) {
            behind
        } else {
            result.push('{');
            after
        };
    }
    result.push_str(rest);
    result
}

struct Expansion<'a> {
    names: Vec<&'a str>,
    values: Vec<String>,
    join: &'a str,
    line: String,
}

impl<'a> Expansion<'a> {
    /// None: a value is not valid UTF-8.
    fn of(row: &str, join: &'a str, names: &'a str) -> Option<Self> {
        let values: Result<Vec<String>, _> = values(row).into_iter().map(String::from_utf8).collect();
        let values = values.ok()?;
        Some(Self { names: names.split('\t').collect(), line: values.join(join), values, join })
    }

    /// `index`: that of the row in the whole list, from 0.
    fn word(&self, word: &str, index: u64) -> String {
        replace(word, |key, result| {
            match Placeholder::of(key, &self.names) {
                None => return false,
                Some(Placeholder::Brace) => result.push('{'),
                Some(Placeholder::Number) => result.push_str(&index.saturating_add(1).to_string()),
                Some(Placeholder::Line(PathPart::Whole)) => result.push_str(&self.line),
                Some(Placeholder::Line(part)) => {
                    for (at, value) in self.values.iter().enumerate() {
                        result.extend([if at > 0 { self.join } else { "" }, part.of(value)]);
                    }
                }
                Some(Placeholder::Value(at, part)) => match self.values.get(at) {
                    Some(value) => result.push_str(part.of(value)),
                    None => return false,
                },
            }
            true
        })
    }
}
