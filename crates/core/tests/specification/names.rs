//! Names of the code in documents: those beside a path, qualified ones, those that sound like tests, and the glossary.

use std::collections::{BTreeMap, BTreeSet};

use super::repository::File;

/// What is known of one Rust file.
struct Words {
    /// Its identifiers, also those within strings and comments.
    all: BTreeSet<String>,
    /// The names of its items, fields and variants.
    defined: BTreeSet<String>,
}

pub struct Code {
    files: BTreeMap<String, Words>,
    /// What is defined in files and parts of files that are no tests.
    defined: BTreeSet<String>,
}

pub fn is_identifier(word: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    word.starts_with(is_letter) && word.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}

/// `name`, `Type::name`, `Type::name(..)`, `name!`: the identifiers in it. None: it is something else.
pub fn identifiers(word: &str) -> Option<Vec<&str>> {
    let word = word.strip_suffix('!').unwrap_or(word);
    let word = word.split_once('(').filter(|(_, rest)| rest.ends_with(')')).map_or(word, |(name, _)| name);
    let parts: Vec<_> = word.split("::").collect();
    parts.iter().all(|part| is_identifier(part)).then_some(parts)
}

impl Code {
    pub fn of(files: impl Iterator<Item = File>) -> Self {
        let words = |text: &str| {
            let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            words.filter(|word| is_identifier(word)).map(str::to_owned).collect()
        };
        let (mut known, mut defined) = (BTreeMap::new(), BTreeSet::new());
        for file in files {
            defined.extend(definitions(&file.text[..file.text.len() - file.tests().len()]));
            known.insert(file.path, Words { all: words(&file.text), defined: definitions(&file.text) });
        }
        Self { files: known, defined }
    }

    /// The files for which a path, or the end of one, stands; of a folder those that are in it.
    fn named(&self, path: &str) -> impl Iterator<Item = &Words> {
        let is_file = move |whole: &str| {
            whole.strip_suffix(path).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
                || path.ends_with('/') && (whole.starts_with(path) || whole.contains(&format!("/{path}")))
        };
        self.files.iter().filter(move |(whole, _)| is_file(whole)).map(|(_, words)| words)
    }

    /// One of the files for which the path stands defines this name. A module is its file, and a folder.
    pub fn has_in(&self, path: &str, name: &str) -> bool {
        self.named(path).any(|words| words.defined.contains(name))
    }

    /// One file has all these names: that of a type has what belongs to it, or one that uses it does.
    pub fn has(&self, names: &[&str]) -> bool {
        self.files.values().any(|words| names.iter().all(|name| words.all.contains(*name)))
    }

    /// A test of a regression whose name ends with the number of an issue of Kubernetes, which documents leave out.
    pub fn has_regression(&self, name: &str) -> bool {
        let start = format!("{name}_k8s_");
        self.files
            .values()
            .any(|words| words.all.range(start.clone()..).next().is_some_and(|word| word.starts_with(&start)))
    }

    /// The code that is no test defines it.
    pub fn defines(&self, name: &str) -> bool {
        self.defined.contains(name)
    }

    pub fn has_path(&self, path: &str) -> bool {
        self.named(path).next().is_some()
    }
}

/// Names of items, fields and variants: more than a local variable that happens to have the name.
fn definitions(text: &str) -> BTreeSet<String> {
    const KEYWORDS: [&str; 10] =
        ["fn", "struct", "enum", "trait", "mod", "const", "static", "type", "union", "macro_rules"];
    let mut found = BTreeSet::new();
    for line in text.lines().map(str::trim_start).filter(|line| !line.starts_with("//")) {
        let words: Vec<&str> =
            line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
        let items = words.windows(2).filter(|two| KEYWORDS.contains(&two[0])).map(|two| two[1]);
        found.extend(items.filter(|word| is_identifier(word)).map(str::to_owned));
        // A field is `name: Type,` at the beginning of its line, a variant `Name,`, `Name(`, `Name {` or `Name = `.
        let line = line.strip_prefix("pub ").unwrap_or_else(|| line.strip_prefix("pub(super) ").unwrap_or(line));
        let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
        let name = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
        let rest = &line[name.len()..];
        let is_variant = name.starts_with(|c: char| c.is_ascii_uppercase());
        let is_field = rest.starts_with(": ") && rest.ends_with(',');
        if is_identifier(name) && (is_field || is_variant && !rest.starts_with("::")) {
            found.insert(name.to_owned());
        }
    }
    found
}

/// What stands between backticks on a page, with the text before each. Blocks of code, which are indented, are left out.
fn quoted(page: &str) -> Vec<(String, String)> {
    let text: Vec<&str> = page.lines().filter(|line| !line.starts_with("    ")).collect();
    // A paragraph or a row of a table begins anew, whatever the one before has left open.
    let mut found = Vec::new();
    for paragraph in
        text.join("\n").split("\n\n").flat_map(|part| part.split("\n|").flat_map(|part| part.split("\n- ")))
    {
        let parts: Vec<&str> = paragraph.split('`').collect();
        let words = parts.chunks_exact(2).map(|two| (two[0].replace('\n', " "), two[1].replace('\n', " ")));
        found.extend([("\n".to_owned(), String::new())].into_iter().chain(words));
    }
    found
}

/// Names that stand beside the path of a Rust file: `a.rs` (`one`, `two`), or `a.rs`: `one`, `two`.
pub fn beside_paths(page: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let (mut path, mut is_listed): (Option<String>, bool) = (None, false);
    for (before, word) in quoted(page) {
        let opens = matches!(before.trim(), "(" | ":") || before == " ";
        let goes_on = matches!(before.trim(), "," | "and" | ", and" | "or");
        if word.ends_with(".rs") && !word.contains([' ', '*']) {
            (path, is_listed) = (Some(word), false);
        } else if let Some(of) =
            path.clone().filter(|_| identifiers(&word).is_some() && (opens && !is_listed || goes_on && is_listed))
        {
            is_listed = true;
            found.push((of, word));
        } else {
            path = None;
        }
    }
    found
}

/// Qualified names, and those that are no metric (there may be one of Kubernetes that Tally does not have)
/// and are long enough to be the sentence of a test.
pub fn telling(page: &str) -> Vec<String> {
    let is_qualified = |word: &str| word.contains("::");
    let is_metric = |word: &str| ["_total", "_seconds", "_bytes"].iter().any(|unit| word.ends_with(unit));
    let is_lower = |word: &str| !word.chars().any(|c| c.is_ascii_uppercase());
    let is_sentence = |word: &str| word.matches('_').count() > 3 && is_lower(word) && !is_metric(word);
    let words = quoted(page).into_iter().map(|(_, word)| word);
    words.filter(|word| identifiers(word).is_some() && (is_qualified(word) || is_sentence(word))).collect()
}

/// The third column of the glossary, row by row: everything between backticks.
pub fn glossary(architecture: &str) -> Vec<(String, Vec<String>)> {
    let table = architecture.split_once("\n## Glossary\n").map(|(_, rest)| rest).unwrap_or_default();
    let table = table.split("\n## ").next().unwrap_or_default();
    let row = |line: &str| {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").collect();
        let [term, .., names] = cells[..] else { return None };
        (cells.len() == 3)
            .then(|| (term.trim().to_owned(), names.split('`').skip(1).step_by(2).map(str::to_owned).collect()))
    };
    table.lines().filter(|line| line.starts_with("| ")).skip(1).filter_map(row).collect()
}

/// The numbers of known bugs that a page states: `133 known bugs`.
pub fn numbers_of_bugs(page: &str) -> Vec<usize> {
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let before = ["known bugs", "put-back bugs"]
        .into_iter()
        .flat_map(|words| page.match_indices(words).filter_map(|(at, _)| page[..at].split_whitespace().next_back()));
    before.filter_map(|word| word.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok()).collect()
}

/// The anchors of a page: its headings as GitHub makes them, and `<a id="...">`.
pub fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut is_code = false;
    for line in page.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        anchors.extend(line.split("<a id=\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
        let heading = line.trim_start_matches('#');
        if is_code || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let is_kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let text = heading.trim().to_lowercase().chars().filter(is_kept).collect::<String>().replace(' ', "-");
        let again = (1..).map(|number| format!("{text}-{number}"));
        let free = [text.clone()].into_iter().chain(again).find(|anchor| !anchors.contains(anchor));
        anchors.extend(free);
    }
    anchors
}

/// Links with an anchor: the file ("" for the page itself) and the anchor.
pub fn anchored_links(page: &str) -> Vec<(&str, &str)> {
    let targets = page.match_indices("](").filter_map(|(at, _)| page[at + 2..].split_once(')').map(|(to, _)| to));
    targets.filter(|to| !to.contains("://") && !to.contains(' ')).filter_map(|to| to.split_once('#')).collect()
}

#[test]
fn names_beside_paths_are_found() {
    let page = "`a.rs` (`one`, `T::two`): `b/c.rs`: `three`,\n`four` and `five`; world `six`. `d.rs`, `seven`\n\n`e.rs`\n\n`eight`";
    let found = beside_paths(page);
    let found: Vec<_> = found.iter().map(|(path, name)| format!("{path} {name}")).collect();
    assert_eq!(found, ["a.rs one", "a.rs T::two", "b/c.rs three", "b/c.rs four", "b/c.rs five"]);
    assert_eq!(telling("`a_b` `T::a` `a_test_is_a_sentence` `A_B_C_D_E` `--a::b`"), ["T::a", "a_test_is_a_sentence"]);
    assert_eq!(identifiers("Bug::A(..)"), Some(vec!["Bug", "A"]));
    assert_eq!((identifiers("require!"), identifiers("a b"), identifiers("a.rs")), (Some(vec!["require"]), None, None));
}

#[test]
fn code_is_searched_by_path_and_name() {
    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    let code = Code::of(
        [file("crates/a/src/b.rs", "fn one() {}"), file("crates/a/src/c/b.rs", "fn two(t: T) {}")].into_iter(),
    );
    assert!(code.has_in("b.rs", "one") && code.has_in("c/b.rs", "two") && !code.has_in("c/b.rs", "one"));
    assert!(code.has(&["T", "two"]) && !code.has(&["one", "two"]) && !code.has(&["on"]));
    assert!(code.has_path("c/") && code.has_path("a/src/b.rs") && !code.has_path("d/") && !code.has_path("rc/b.rs"));
}

#[test]
fn what_is_defined_is_told_from_what_is_used() {
    let text = "pub(super) struct A {\n    pub b: u8,\n}\nenum C {\n    D,\n    E(u8),\n}\nfn f() {\n    let g = H::I;\n    // j: k,\n}\n\
        #[cfg(test)]\nmod tests {\n    fn l() {}\n}\n";
    let code = Code::of([File { path: "crates/a/src/a.rs".to_owned(), text: text.to_owned() }].into_iter());
    let defined: Vec<_> = code.defined.iter().map(String::as_str).collect();
    assert_eq!(defined, ["A", "C", "D", "E", "b", "f"]);
    let regression = "fn s01_a_b_k8s_1() {} fn s01_a_c() {}".to_owned();
    let code = Code::of([File { path: "crates/a/tests/a.rs".to_owned(), text: regression }].into_iter());
    assert!(code.has_regression("s01_a_b") && !code.has_regression("s01_a") && !code.has_regression("s01_a_c"));
}

#[test]
fn tables_numbers_and_anchors_are_read() {
    let page = "## Glossary\n\n| a | b | c |\n|---|---|---|\n| one | x | `A`, `b/` |\n| two | y | none |\n\n## Next\n\n| d | e | `F` |\n";
    let rows = glossary(&format!("# T\n\n{page}"));
    assert_eq!(rows, [("one".to_owned(), vec!["A".to_owned(), "b/".to_owned()]), ("two".to_owned(), vec![])]);
    assert_eq!(numbers_of_bugs("| 132 known\nbugs put back | all put-back bugs; (7 put-back bugs)"), [132, 7]);
    let page = "# A `tally up`: one, two\n## B\n## B\n```\n# no\n```\n#no\nx <a id=\"FIN-1\"></a> y";
    let anchors: Vec<_> = anchors(page).into_iter().collect();
    assert_eq!(anchors, ["FIN-1", "a-tally-up-one-two", "b", "b-1"]);
    assert_eq!(anchored_links("[a](b.md#c) [d](#e) [f](g.md) [h](https://i#j)"), [("b.md", "c"), ("", "e")]);
}
