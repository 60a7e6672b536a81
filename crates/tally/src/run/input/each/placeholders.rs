//! The placeholders in the command of a list.
//!
//! Users write `{}`, `{2/}` or `{file name.}` among braces that belong to awk, shells and format strings. What is meant is
//! decided here, once and before anything runs: the words of the Job have only placeholders that the node and the script
//! replace without looking at what is around them (`tally_node::each::Placeholder`). What looks like a placeholder and is
//! none is refused.

use std::cmp::Reverse;
use std::path::Path;

use tally_node::each::{PathPart, Placeholder};

use crate::data_dir::quoted;

/// The number of columns that a message names.
const NAMED: usize = 20;
const SHELL: &str = "let a shell do it, which has the value in $1: sh -c '...' sh {}";

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceholderError {
    #[error("{text} in the command: there is no such value; there {known}; {}", literally(.text))]
    Value { text: String, known: String },
    #[error("{text} in the command: there is no such column; {known}; {}", literally(.text))]
    Column { text: String, known: String },
    #[error("{text} in the command: tally run does not have this string of GNU parallel; {advice}; {}", literally(.text))]
    Foreign { text: String, advice: &'static str },
    #[error("--literal {}: the command does not contain it", in_quotes(.text))]
    UnusedLiteral { text: String },
}

fn literally(text: &str) -> String {
    format!("if it is only text, add --literal {}", in_quotes(text))
}

fn in_quotes(text: &str) -> String {
    quoted(Path::new(text))
}

/// What can stand between braces.
pub struct Placeholders<'a> {
    /// What users write for each value, and its name in the Job.
    given: &'a [(String, String)],
    names: Vec<&'a str>,
    /// A list has a header.
    columns: bool,
    /// Texts that stay as they are.
    literals: &'a [String],
}

/// The words of the Job.
#[derive(Debug, PartialEq, Eq)]
pub struct JobWords {
    pub words: Vec<String>,
    /// They have only the placeholders that every version of the script replaces: `{}`, `{name}` and `{1}`.
    pub is_basic: bool,
}

enum Meaning<'a> {
    /// The text between the braces in the Job, and what follows.
    Placeholder(String, &'a str),
    Text,
    Refused(PlaceholderError),
}

/// A word of the Job, and where it has braces that are text.
#[derive(Default)]
struct Word {
    text: String,
    braces: Vec<usize>,
}

impl<'a> Placeholders<'a> {
    /// `given`: empty if there is a single value without a name.
    pub fn new(given: &'a [(String, String)], columns: bool, literals: &'a [String]) -> Self {
        let names = if given.is_empty() { vec![""] } else { given.iter().map(|(_, name)| name.as_str()).collect() };
        Self { given, names, columns, literals }
    }

    /// The error is about everything that is refused.
    pub fn job_words(&self, words: &[String]) -> Result<JobWords, Vec<PlaceholderError>> {
        let mut errors = Vec::new();
        let unused = |text: &&String| !words.iter().any(|word| word.contains(text.as_str()));
        let unused = self.literals.iter().filter(unused);
        errors.extend(unused.map(|text| PlaceholderError::UnusedLiteral { text: text.clone() }));
        let word = |(at, word): (usize, &String)| self.word(word, &words[at + 1..], &mut errors);
        let words: Vec<String> = words.iter().enumerate().map(word).collect();
        if !errors.is_empty() {
            return Err(errors);
        }
        let basic = |placeholder| {
            matches!(placeholder, Placeholder::Line(PathPart::Whole) | Placeholder::Value(_, PathPart::Whole))
        };
        let is_basic = words.iter().flat_map(|word| Placeholder::all(word, &self.names)).all(basic);
        Ok(JobWords { words, is_basic })
    }

    fn word(&self, word: &str, later: &[String], errors: &mut Vec<PlaceholderError>) -> String {
        let mut result = Word::default();
        let (mut rest, mut before) = (word, None);
        while let Some(letter) = rest.chars().next() {
            let literals = self.literals.iter().filter(|text| rest.starts_with(text.as_str()));
            let mut length = letter.len_utf8();
            if let Some(text) = literals.max_by_key(|text| text.len()) {
                // The text says nothing about what is behind it: after a literal `$`, `{x}` is not the shell's.
                (length, before) = (text.len(), None);
            } else {
                match self.meaning(rest, before, later) {
                    Meaning::Placeholder(key, behind) => {
                        result.text.extend(["{", &key, "}"]);
                        (rest, before) = (behind, Some('}'));
                        continue;
                    }
                    Meaning::Refused(error) if !errors.contains(&error) => errors.push(error),
                    Meaning::Refused(_) | Meaning::Text => {}
                }
                before = Some(letter);
            }
            let (text, behind) = rest.split_at(length);
            result.push_text(text);
            rest = behind;
        }
        result.finish(&self.names)
    }

    /// What the text begins with.
    fn meaning<'w>(&self, text: &'w str, before: Option<char>, later: &[String]) -> Meaning<'w> {
        let Some(inside) = text.strip_prefix('{') else { return Meaning::Text };
        let of_shell = before == Some('$');
        if let Some((key, behind)) = self.placeholder(inside) {
            let of_template = key == "." && before == Some('{') && behind.starts_with('}');
            let is_text = of_shell && !key.is_empty() || of_template;
            return if is_text { Meaning::Text } else { Meaning::Placeholder(key, behind) };
        }
        let refused = if of_shell { None } else { self.refused(text, inside, before, later) };
        refused.map_or(Meaning::Text, Meaning::Refused)
    }

    /// The longest placeholder that the text begins with, as it is in the Job, and what follows.
    fn placeholder<'w>(&self, inside: &'w str) -> Option<(String, &'w str)> {
        let suffixes = || PathPart::SUFFIXES.iter().map(|(suffix, _)| *suffix).chain([""]);
        let columns = self.given.iter().flat_map(|column| suffixes().map(move |suffix| (column, suffix)));
        let written = columns.filter_map(|((given, name), suffix)| {
            let behind = inside.strip_prefix(given.as_str())?.strip_prefix(suffix)?.strip_prefix('}')?;
            // The name of a column is stronger than a part of another one.
            Some(((Reverse(behind.len()), given.len()), (format!("{name}{suffix}"), behind)))
        });
        if let Some((_, found)) = written.max_by_key(|(length, _)| *length) {
            return Some(found);
        }
        let (key, behind) = inside.split_once('}')?;
        match Placeholder::of(key, &self.names)? {
            Placeholder::Brace => None,
            _ => Some((key.to_owned(), behind)),
        }
    }

    fn refused(&self, text: &str, inside: &str, before: Option<char>, later: &[String]) -> Option<PlaceholderError> {
        if let Some(code) = inside.strip_prefix('=') {
            let end = code.find("=}");
            if end.is_none() && !later.iter().any(|word| word.contains("=}")) {
                return None;
            }
            let text = text[..end.map_or(2, |end| end + 4)].to_owned();
            return Some(PlaceholderError::Foreign { text, advice: SHELL });
        }
        let (key, behind) = inside.split_once('}')?;
        let text = format!("{{{key}}}");
        let (value, _) = PathPart::split(key);
        let is_number = |value: &str| !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        if is_number(value.strip_prefix('-').unwrap_or(value)) {
            return Some(PlaceholderError::Value { text, known: self.known() });
        }
        // `%{x}` is of curl, `@{x}` of git, `#{x}` of Ruby, `{{x}}` of a template.
        let of_others = matches!(before, Some('%' | '@' | '#')) || before == Some('{') && behind.starts_with('}');
        if let Some(advice) = self.foreign(key).filter(|_| !of_others) {
            return Some(PlaceholderError::Foreign { text, advice });
        }
        let nearest = self.nearest(value);
        let is_column = match nearest {
            // awk's `{print a}` is near to a column `print`, too.
            Some(name) => is_word(value) || !is_word(name) || value.trim().to_lowercase() == name.to_lowercase(),
            None => is_word(value) && !of_others,
        };
        if !self.columns || !is_column {
            return None;
        }
        let perhaps = nearest.map(|name| format!("perhaps {{{name}}} is meant; ")).unwrap_or_default();
        Some(PlaceholderError::Column { text, known: format!("{perhaps}there {}", self.known()) })
    }

    /// What can be used instead, if this is a string of GNU parallel, also with a number or a column in front.
    fn foreign(&self, key: &str) -> Option<&'static str> {
        let number = key.strip_prefix('-').unwrap_or(key).trim_start_matches(|letter: char| letter.is_ascii_digit());
        let columns = self.given.iter().filter_map(|(given, _)| key.strip_prefix(given.as_str()));
        let parts = columns.chain([number]).filter(|part| part.starts_with(['.', '/', '+', '%', '#']));
        std::iter::once(key).chain(parts).find_map(foreign)
    }

    fn nearest(&self, key: &str) -> Option<&'a str> {
        let key = key.to_lowercase();
        let length = key.chars().count();
        let distance = |given: &str| {
            let given = given.to_lowercase();
            let other = given.chars().count();
            let most = length.max(other) / 3;
            // Between braces of other languages there may be much text.
            let distance = (length.abs_diff(other) <= most).then(|| strsim::osa_distance(&key, &given))?;
            (distance <= most).then_some(distance)
        };
        let near = self.given.iter().filter_map(|(given, _)| Some((distance(given)?, given.as_str())));
        near.min_by_key(|(distance, _)| *distance).map(|(_, given)| given)
    }

    /// What a line has.
    fn known(&self) -> String {
        let all: Vec<String> = match self.given {
            [] => vec!["{1}".to_owned()],
            given => given.iter().map(|(given, _)| format!("{{{given}}}")).collect(),
        };
        let more = all.len().saturating_sub(NAMED);
        let named = all[..all.len() - more].join(", ");
        match (all.len(), more) {
            (1, _) => format!("is only {named}"),
            (_, 0) => format!("are {named}"),
            _ => format!("are {named} and {more} more"),
        }
    }
}

/// Letters and digits, as the name of a column has them; not only digits.
fn is_word(key: &str) -> bool {
    let letter = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-');
    key.chars().all(letter) && key.contains(char::is_alphanumeric)
}

/// The strings of GNU parallel that are not placeholders here, with those of `--plus`. Those that take an argument are used
/// by others, too (`{:5}`, `{/x/d}`, `{^a}`); only an extension that is to be removed looks like nothing else.
fn foreign(key: &str) -> Option<&'static str> {
    match key {
        "%" | "0%" | "slot" => Some("tasks have no slots"),
        "##" => Some("a task does not know the number of lines"),
        "0#" => Some("{#} has no zeros in front"),
        "choose_k" | "uniq" => Some("remove such lines from the list"),
        "host" | "sshlogin" | "hgrp" | "agrp" => Some("tasks are not distributed over hosts"),
        ".." | "..." | "/.." | "/..." | "+/" | "+." | "+.." | "+..." => Some(SHELL),
        _ => {
            let suffix = key.strip_prefix('%').map(|suffix| suffix.strip_prefix('%').unwrap_or(suffix));
            let extension = suffix.and_then(|suffix| suffix.strip_prefix('.'));
            extension.is_some_and(|name| name.starts_with(char::is_alphabetic)).then_some(SHELL)
        }
    }
}

impl Word {
    fn push_text(&mut self, text: &str) {
        self.braces.extend(text.match_indices('{').map(|(at, _)| self.text.len() + at));
        self.text.push_str(text);
    }

    /// Marks the braces that are text where they would begin a placeholder.
    fn finish(self, names: &[&str]) -> String {
        let mut result = String::with_capacity(self.text.len());
        let mut written = 0;
        for at in self.braces {
            let key = self.text[at + 1..].split_once('}').map(|(key, _)| key);
            if key.is_some_and(|key| Placeholder::of(key, names).is_some()) {
                result.push_str(&self.text[written..at]);
                Placeholder::write_brace(&mut result);
                written = at + 1;
            }
        }
        result.push_str(&self.text[written..]);
        result
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn columns(names: &[&str]) -> Vec<(String, String)> {
        let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
        names.iter().map(|name| ((*name).to_owned(), name.chars().map(plain).collect())).collect()
    }

    fn own(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    /// The words of the Job, or the messages.
    fn words(names: &[&str], literals: &[&str], words: &[&str]) -> Result<Vec<String>, String> {
        let (given, literals) = (columns(names), own(literals));
        let has_header = names.iter().any(|name| name.parse::<usize>().is_err());
        let words = Placeholders::new(&given, has_header, &literals).job_words(&own(words));
        let told =
            |errors: Vec<PlaceholderError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        words.map(|words| words.words).map_err(told)
    }

    /// What a brace looks like that is text and would begin a placeholder.
    const BRACE: &str = "{\\{}";

    #[test]
    fn braces_of_others_pass_as_they_are() {
        // Ours; of shells; of awk and sed; of regular expressions; of formats; of templates; and odd ones.
        let table: &[(&[&str], &str)] = &[
            (&[], "{}  {.}  {/}  {//}  {/.}  {#}  {1}  {1.}  {1/}  {1//}  {1/.}  x{}{.}y  @{1}"),
            (&[], "{a,b}  {1..3}  ${x}  ${x%.*}  ${2}  ${10}  ${1%.*}  { ls; }  f() { :; }  stash@{u}"),
            (&[], "{print $1}  {print}  {print $1; next}  /a/{/b/d}  {n;d}  a{1,3}  a{2,}  a\\{4\\}"),
            (&[], "{name}  {:02d}  {:5}  {0:x}  {!r}  {%s}  {%.2f}  {%d %s}  %{http_code}  @{u}  #{x}  {host:?}"),
            (&[], "{{.Name}}  {{ item }}  {{item}}  {{range .x}}{{.y}}{{end}}  {% if x %}  {# note #}  {{#each x}}"),
            (&[], "{{}}  {{1}}  {{host}}  {\"a\":{\"b\":1}}  {=x}  {^a}  {,x}  {:-x}  {.x}  {/x}  {\n}  { }  { 1 }"),
            (&[], "{  }  {{  }}  }{  {}{  \u{e4}{}  {\\}"),
            (&["1", "2"], "{2.}  {2/}{1//}  {}  {.}  ${3}  {name}"),
            (&["name", "size", "2"], "{name}  {name.}  {size//}  {2}  {3}  {}  {{name}}  @{name}"),
            (
                &["name", "size", "2"],
                "{print $1}  {print name}  ${HOME}  %{http_code}  @{u}  #{x}  {{item}}  {{.Name}}",
            ),
            (&["name", "size", "2"], "{a,b}  {name,size}  {name:>5}  {name=1}  {.name}"),
        ];
        for (names, texts) in table {
            for text in texts.split("  ") {
                assert_eq!(words(names, &[], &[text]), Ok(own(&[text])), "with {names:?}");
            }
        }
    }

    #[test]
    fn braces_that_are_text_are_marked_where_they_would_be_replaced() {
        for (names, text, expected) in [
            (&[][..], "${1} ${#} ${1/.}", "$B1} $B#} $B1/.}"),
            (&[], "${} ${.}", "${} $B.}"),
            (&[], "{{.}} {{.} {.}}", "{B.}} {{.} {.}}"),
            (&["name"], "${name} ${name%.*} ${name//}", "$Bname} ${name%.*} $Bname//}"),
            // What means a brace in a Job is two braces for users.
            (&[], "{\\{}", "B\\{}"),
            (
                &["file name", "n"],
                "a{file name}{n}{file_name}{x y}{file name/.}",
                "a{file_name}{n}{file_name}{x y}{file_name/.}",
            ),
            // A column is stronger than a part of another one, and than the number of the line.
            (&["a", "a.", "#"], "{a.}{a/}{#}{a..}", "{a_}{a/}{_}{a_.}"),
            (&["a}b", "c{d"], "{a}b}{a}b.}{c{d}", "{a_b}{a_b.}{c_d}"),
        ] {
            assert_eq!(words(names, &[], &[text]), Ok(own(&[&expected.replace('B', BRACE)])));
        }
    }

    #[test]
    fn what_is_only_text_is_said() {
        for (names, literals, text, expected) in [
            (&[][..], &["{4}"][..], "a{4}{}", "a{4}{}"),
            (&[], &["{}"], "{1} {}", "{1} B}"),
            (&[], &["{}", "x{}y"], "x{}y{}", "xB}yB}"),
            (&[], &["{.}", "{#}"], "{.}{#}{/}", "B.}B#}{/}"),
            (&[], &["{\\{}"], "{\\{}", "B\\B}"),
            (&[], &["{="], "{=1=}", "{=1=}"),
            (&["x"], &["$"], "${x} $", "${x} $"),
            (&["x"], &["{print}"], "{print}{x}", "{print}{x}"),
            (&["x"], &["{{x}}"], "{{x}}{x}", "{Bx}}{x}"),
        ] {
            assert_eq!(words(names, literals, &[text]), Ok(own(&[&expected.replace('B', BRACE)])));
        }
        let unused = words(&[], &["{5}"], &["{4}"]).unwrap_err();
        let unused: Vec<&str> = unused.lines().collect();
        assert_eq!(unused[0], "--literal '{5}': the command does not contain it");
        assert!(unused[1].starts_with("{4} in the command: "));
    }

    #[test]
    fn what_looks_like_a_placeholder_and_is_none_is_refused() {
        let table: &[(&[&str], &str, &str)] = &[
            (&[], "{2} {0} {01} {-1} {-1.} {2.} {10//} x{4}y {{2}}", "no such value; there is only {1};"),
            (&["1", "2"], "{3} {3/.}", "no such value; there are {1}, {2};"),
            (&["name", "size"], "{3} {0.}", "no such value; there are {name}, {size};"),
            (&[], "{%} {0%} {slot}", "string of GNU parallel; tasks have no slots;"),
            (&[], "{##}", "string of GNU parallel; a task does not know the number of lines;"),
            (&[], "{0#}", "string of GNU parallel; {#} has no zeros in front;"),
            (&[], "{..} {...} {/..} {/...} {+/} {+.} {+..} {+...} {%.gz} {%%.tar.gz}", "let a shell do it"),
            (&[], "{1..} {2+/} {-1/..}", "let a shell do it"),
            (&["name"], "{name..} {name+/} {name%.gz}", "let a shell do it"),
            (&[], "{choose_k} {uniq}", "remove such lines from the list;"),
            (&[], "{host} {sshlogin} {hgrp} {agrp}", "tasks are not distributed over hosts;"),
            (&["name", "size"], "{nmae} {Name} {names} {nmae.} {{nmae}} @{nmae}", "perhaps {name} is meant; there are"),
            (&["name", "size"], "{other} {print} {x-y} {\u{e4}} {2nd}", "no such column; there are {name}, {size};"),
            (&["a;b"], "{a} {b}", "no such column; there is only {a;b};"),
            (&["user name"], "{user_nmae} {username} {user-name}", "perhaps {user name} is meant;"),
        ];
        let spaced = [("name", "{ name }"), ("user name", "{user nmae}"), ("user name", "{User Name}")];
        let spaced = spaced.map(|(name, text)| ([name], text));
        let rows =
            table.iter().flat_map(|(names, texts, told)| texts.split(' ').map(move |text| (*names, text, *told)));
        for (names, text, told) in rows.chain(spaced.iter().map(|(name, text)| (&name[..], *text, "perhaps {"))) {
            let error = words(names, &[], &["{}", text]).unwrap_err();
            assert!(error.contains(told), "{text} with {names:?}: {error}");
            let literal = text.trim_matches(['x', 'y', '@']).replace("{{", "{").replace("}}", "}");
            assert!(error.starts_with(&format!("{literal} in the command: ")), "{text}: {error}");
            assert!(error.ends_with(&format!("if it is only text, add --literal '{literal}'")), "{text}: {error}");
            assert_eq!(words(names, &[&literal], &["{}", text]), Ok(own(&["{}", text])), "as it says");
        }
        let perl = words(&[], &[], &["a{= s/{x}// =}", "{=", "$_++", "=}"]).unwrap_err();
        let told: Vec<&str> = perl.lines().map(|line| line.split(" in the command").next().unwrap()).collect();
        assert_eq!(told, ["{= s/{x}// =}", "{="]);
        let twice = words(&[], &[], &["{4}{3}", "{4}"]).unwrap_err();
        assert_eq!(twice.lines().count(), 2, "each once: {twice}");
        let many: Vec<String> = (0..25).map(|column| format!("c{column}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(words(&many, &[], &["{x}"]).unwrap_err().contains("{c18}, {c19} and 5 more;"));
    }
}
