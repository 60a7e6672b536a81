//! The lists of `--each`: where they come from, how they are combined, and the rows that result.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A process takes no argument and no variable longer than this, less some room for the name of the variable.
const LONGEST_LINE: usize = 128 * 1024 - 1024;
const LONGEST_NAME: usize = 200;

/// The values of one task.
pub type TaskValues = Vec<Vec<u8>>;
type Rows = Box<dyn Iterator<Item = Result<TaskValues, String>>>;

/// One list.
pub struct TaskList {
    /// For messages.
    title: String,
    /// The names of the columns; empty if the list has none.
    header: Vec<String>,
    /// What separates the values in the file.
    separator: &'static str,
    rows: Rows,
}

/// All lists together: every row with every row of the others, or the first with the first and so on.
pub struct Combined {
    /// What users write between braces, and the name for it: only letters, digits and `_`.
    pub names: Vec<(String, String)>,
    /// The text between the values of a row.
    pub join: &'static str,
    rows: Rows,
}

impl TaskList {
    fn plain(title: String, rows: Rows) -> Self {
        Self { title, header: Vec::new(), separator: " ", rows }
    }
}

/// The values after `:::`.
pub fn values(values: &[String]) -> TaskList {
    let rows: Vec<_> = values.iter().map(|value| Ok(vec![value.clone().into_bytes()])).collect();
    TaskList::plain(":::".to_owned(), Box::new(rows.into_iter()))
}

/// The files that match a pattern, sorted.
pub fn glob(pattern: &str) -> Result<TaskList, String> {
    let title = format!("--each-glob {pattern}");
    let found = glob::glob(pattern).map_err(|error| format!("{title}: {error}"))?;
    let found: Result<Vec<_>, _> = found.collect();
    let found = found.map_err(|error| format!("{title}: {error}"))?;
    if found.is_empty() {
        return Err(format!(
            "{title}: no file matches; put the pattern in quotes, so that the shell does not expand it"
        ));
    }
    let rows = found.into_iter().map(|path| Ok(vec![path.as_os_str().as_bytes().to_vec()]));
    Ok(TaskList::plain(title, Box::new(rows)))
}

/// The lines of a file; `-` is standard input.
pub fn lines(file: &str, null: bool) -> Result<TaskList, String> {
    let (title, reader) = open(file)?;
    let name = title.clone();
    let end = if null { 0 } else { b'\n' };
    let lines = reader.split(end).enumerate().map(move |(at, line)| {
        let line = line.map_err(|error| format!("cannot read {name}: {error}"))?;
        if line.contains(&0) {
            let advice = "if the values end with NUL bytes, use --null";
            return Err(format!("{name}:{}: a value cannot contain a NUL byte; {advice}", at + 1));
        }
        Ok(vec![line])
    });
    Ok(TaskList::plain(title, Box::new(lines)))
}

/// The records of a CSV or TSV file with a header.
pub fn records(file: &str) -> Result<TaskList, String> {
    let (title, mut reader) = open(file)?;
    let mut first = Vec::new();
    reader.read_until(b'\n', &mut first).map_err(|error| format!("cannot read {title}: {error}"))?;
    if first.is_empty() {
        return Err(format!("{title} is empty; with --columns, its first line must have the names of the columns"));
    }
    let separator = separator(file, &first);
    let mut options = csv::ReaderBuilder::new();
    options.delimiter(separator.as_bytes()[0]).quoting(separator != "\t");
    let mut reader = options.from_reader(io::Cursor::new(first).chain(reader));
    let name = title.clone();
    let unreadable = move |error: csv::Error| match error.kind() {
        csv::ErrorKind::UnequalLengths { pos, expected_len, len } => {
            let line = pos.as_ref().map_or(0, csv::Position::line);
            format!("{name}:{line}: {len} values, and the header has {expected_len}")
        }
        _ => format!("cannot read {name}: {error}"),
    };
    let header = reader.byte_headers().map_err(&unreadable)?;
    let header: Vec<String> = header.iter().map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect();
    let name = title.clone();
    let rows = reader.into_byte_records().map(move |record| {
        let record = record.map_err(&unreadable)?;
        if record.as_slice().contains(&0) {
            let line = record.position().map_or(0, csv::Position::line);
            return Err(format!("{name}:{line}: a value cannot contain a NUL byte"));
        }
        Ok(record.iter().map(<[u8]>::to_vec).collect())
    });
    Ok(TaskList { title, header, separator, rows: Box::new(rows) })
}

/// What separates the values of a file with a header. Semicolons are what spreadsheets write where numbers have a decimal
/// comma, so only the header can tell.
fn separator(file: &str, header: &[u8]) -> &'static str {
    let extension = Path::new(file).extension().and_then(|extension| extension.to_str());
    let tabs = matches!(extension, Some("tsv" | "tab")) || extension != Some("csv") && header.contains(&b'\t');
    // The second, the fourth and so on are in quotes.
    let plain = || header.split(|byte| *byte == b'"').step_by(2);
    let has = |letter: u8| plain().any(|text| text.contains(&letter));
    match (tabs, has(b';') && !has(b',')) {
        (true, _) => "\t",
        (false, true) => ";",
        (false, false) => ",",
    }
}

fn open(file: &str) -> Result<(String, BufReader<Box<dyn Read>>), String> {
    if file == "-" {
        return Ok(("standard input".to_owned(), BufReader::new(Box::new(io::stdin()))));
    }
    let opened = File::open(file).and_then(|open| match open.metadata()?.is_dir() {
        true => Err(io::Error::from(io::ErrorKind::IsADirectory)),
        false => Ok(open),
    });
    let opened =
        opened.map_err(|error| format!("--each {file}: {error}; --each takes a file, or - for standard input"));
    Ok((file.to_owned(), BufReader::with_capacity(1 << 16, Box::new(opened?))))
}

pub fn combine(mut lists: Vec<TaskList>, zip: bool) -> Result<Combined, String> {
    let names = names(&lists)?;
    let join = match lists.as_slice() {
        [only] => only.separator,
        _ => " ",
    };
    let first = lists.remove(0);
    let rows = if zip { zipped(first, lists) } else { product(first.rows, lists)? };
    Ok(Combined { names, join, rows })
}

/// Numbers for values without a name, unless there is only one.
fn names(lists: &[TaskList]) -> Result<Vec<(String, String)>, String> {
    if let [only] = lists
        && only.header.is_empty()
    {
        return Ok(Vec::new());
    }
    let mut names: Vec<(String, String)> = Vec::new();
    for list in lists {
        if list.header.is_empty() {
            let number = (names.len() + 1).to_string();
            names.push((number.clone(), number));
        }
        for given in &list.header {
            let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
            let name: String = given.chars().map(plain).collect();
            let (title, column) = (&list.title, names.len() + 1);
            if name.is_empty() {
                return Err(format!("{title}:1: column {column} has no name"));
            }
            if name.len() > LONGEST_NAME {
                return Err(format!("{title}:1: the name of column {column} is longer than {LONGEST_NAME} letters"));
            }
            if let Some((other, _)) = names.iter().find(|(_, known)| *known == name) {
                return Err(format!(
                    "{title}:1: the columns {other:?} and {given:?} both become $TALLY_COLUMN_{name}; rename one of them"
                ));
            }
            names.push((given.clone(), name));
        }
    }
    Ok(names)
}

/// The first list varies slowest. All others are kept in memory.
fn product(first: Rows, others: Vec<TaskList>) -> Result<Rows, String> {
    let mut rows = first;
    for other in others {
        let other: Vec<TaskValues> = other.rows.collect::<Result<_, _>>()?;
        rows = Box::new(rows.flat_map(move |row| -> Vec<Result<TaskValues, String>> {
            match row {
                Ok(row) => other.iter().map(|more| Ok([row.as_slice(), more.as_slice()].concat())).collect(),
                Err(error) => vec![Err(error)],
            }
        }));
    }
    Ok(rows)
}

fn zipped(first: TaskList, others: Vec<TaskList>) -> Rows {
    let mut lists: Vec<TaskList> = std::iter::once(first).chain(others).collect();
    let mut number = 0_usize;
    let mut ended = false;
    Box::new(std::iter::from_fn(move || {
        if ended {
            return None;
        }
        let mut row = TaskValues::new();
        let mut missing = Vec::new();
        for list in &mut lists {
            match list.rows.next() {
                Some(Ok(values)) => row.extend(values),
                Some(Err(error)) => {
                    ended = true;
                    return Some(Err(error));
                }
                None => missing.push(list.title.clone()),
            }
        }
        number += 1;
        ended = !missing.is_empty();
        match missing.len() {
            0 => Some(Ok(row)),
            all if all == lists.len() => None,
            _ => Some(Err(format!(
                "--zip: the lists must have the same number of values; {} has {} and another has more",
                missing[0],
                number - 1
            ))),
        }
    }))
}

impl Combined {
    /// Passes on every row. The error is about the first that cannot be used.
    pub fn for_each(self, mut take: impl FnMut(&TaskValues) -> Result<(), String>) -> Result<(), String> {
        for (at, row) in self.rows.enumerate() {
            let row = row?;
            let length = row.iter().map(|value| value.len() + self.join.len()).sum::<usize>();
            if length > LONGEST_LINE {
                return Err(format!(
                    "line {} of the list has {length} bytes; a command takes at most {LONGEST_LINE}: put them into a file",
                    at + 1
                ));
            }
            take(&row)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn list(title: &str, header: &[&str], rows: &[&[&str]]) -> TaskList {
        let own = |values: &&[&str]| Ok(values.iter().map(|value| value.as_bytes().to_vec()).collect());
        let rows: Vec<_> = rows.iter().map(own).collect();
        let header = header.iter().map(|name| (*name).to_owned()).collect();
        TaskList { header, ..TaskList::plain(title.to_owned(), Box::new(rows.into_iter())) }
    }

    fn rows(lists: Vec<TaskList>, zip: bool) -> Result<Vec<String>, String> {
        let mut rows = Vec::new();
        let text = |value: &Vec<u8>| String::from_utf8(value.clone()).unwrap();
        combine(lists, zip)?.for_each(|row| {
            rows.push(row.iter().map(text).collect::<Vec<_>>().join("|"));
            Ok(())
        })?;
        Ok(rows)
    }

    #[test]
    fn lists_are_combined_each_with_each_or_line_by_line() {
        let [letters, numbers] = [&[&["a"][..], &["b"]][..], &[&["1"][..], &["2"]]];
        let two = || vec![list("l", &[], letters), list("n", &["x", "y"], &[&["1", "2"], &["3", "4"]])];
        assert_eq!(rows(vec![list("l", &[], letters)], false).unwrap(), ["a", "b"]);
        assert_eq!(rows(two(), false).unwrap(), ["a|1|2", "a|3|4", "b|1|2", "b|3|4"]);
        assert_eq!(rows(two(), true).unwrap(), ["a|1|2", "b|3|4"]);
        assert_eq!(rows(vec![list("l", &[], letters), list("n", &[], &[])], false).unwrap(), [""; 0]);
        let uneven = vec![list("l", &[], letters), list("n", &[], &numbers[..1])];
        assert!(rows(uneven, true).unwrap_err().contains("n has 1 and another has more"));
        let long = "x".repeat(LONGEST_LINE);
        assert!(rows(vec![list("l", &[], &[&[long.as_str()]])], false).unwrap_err().starts_with("line 1 of the list"));
    }

    #[test]
    fn values_have_a_name_or_a_number() {
        let named = |lists: Vec<TaskList>| {
            let names = combine(lists, false)?.names;
            Ok::<_, String>(names.into_iter().map(|(given, name)| format!("{given}={name}")).collect::<Vec<_>>())
        };
        assert_eq!(named(vec![list("l", &[], &[])]).unwrap(), [""; 0]);
        let two = vec![list("l", &[], &[]), list("t", &["file name", "n"], &[])];
        assert_eq!(named(two).unwrap(), ["1=1", "file name=file_name", "n=n"]);
        for (header, told) in [
            (&["a b", "a-b"][..], "t:1: the columns \"a b\" and \"a-b\" both become $TALLY_COLUMN_a_b"),
            (&["a", ""], "t:1: column 2 has no name"),
        ] {
            assert!(named(vec![list("t", header, &[])]).unwrap_err().contains(told), "{told}");
        }
    }
}
