//! The pages of `docs/spec`: the table of chapters, the rules, the list of rules without a test.

use std::collections::{BTreeMap, BTreeSet};

use crate::citations::is_of_scenarios;

const INDEX: &str = "README.md";
const UNTESTED: &str = "untested.md";

pub struct Chapter {
    pub prefixes: Vec<String>,
    pub page: String,
    pub contract: bool,
}

pub struct Rule {
    pub page: String,
}

pub struct Spec {
    pub chapters: Vec<Chapter>,
    pub rules: BTreeMap<String, Rule>,
    /// Rules without a test, and why.
    pub untested: BTreeMap<String, String>,
}

impl Spec {
    /// Reads all pages, by name. Err: everything that is wrong with them.
    pub fn read(pages: &BTreeMap<String, String>) -> Result<Self, Vec<String>> {
        let text = |name: &str| pages.get(name).map(String::as_str).unwrap_or_default();
        let mut problems = Vec::new();
        let chapters = chapters(text(INDEX));
        let listed: BTreeSet<&str> = chapters.iter().map(|chapter| chapter.page.as_str()).collect();
        let there: BTreeSet<&str> =
            pages.keys().map(String::as_str).filter(|page| ![INDEX, UNTESTED].contains(page)).collect();
        problems.extend(
            there.symmetric_difference(&listed).map(|page| format!("{page} or its row in the table is missing")),
        );
        let mut rules: BTreeMap<String, Rule> = BTreeMap::new();
        for chapter in &chapters {
            for line in text(&chapter.page).lines() {
                let id = match rule(line) {
                    Ok(Some(id)) => id,
                    Ok(None) => continue,
                    Err(problem) => {
                        problems.push(format!("{}: {problem}", chapter.page));
                        continue;
                    }
                };
                if let Some((prefix, _)) = numbered(id)
                    && !chapter.prefixes.iter().any(|known| known == prefix)
                {
                    problems.push(format!("{}: {id} does not belong here", chapter.page));
                }
                if let Some(before) = rules.insert(id.to_owned(), Rule { page: chapter.page.clone() }) {
                    problems.push(format!("{id} is defined twice: {}, {}", before.page, chapter.page));
                }
            }
        }
        let mut prefixes: Vec<_> = chapters.iter().flat_map(|chapter| &chapter.prefixes).collect();
        prefixes.sort_unstable();
        problems.extend(
            prefixes.windows(2).filter(|two| two[0] == two[1]).map(|two| format!("{} has two chapters", two[0])),
        );
        let untested = untested(text(UNTESTED)).unwrap_or_else(|line| {
            problems.push(format!("{UNTESTED}: not `- [ID](page.md#ID): reason`: {line}"));
            BTreeMap::new()
        });
        if problems.is_empty() { Ok(Self { chapters, rules, untested }) } else { Err(problems) }
    }

    pub fn prefixes(&self) -> BTreeSet<&str> {
        self.chapters.iter().flat_map(|chapter| &chapter.prefixes).map(String::as_str).collect()
    }

    pub fn is_contract(&self, rule: &Rule) -> bool {
        self.chapters.iter().any(|chapter| chapter.page == rule.page && chapter.contract)
    }
}

/// The id that a line defines: `- <a id="TRACK-3"></a>**TRACK-3** ...`. Err: it has an anchor, and not this form.
pub fn rule(line: &str) -> Result<Option<&str>, String> {
    if !line.contains("<a id=") || line.starts_with("    ") {
        return Ok(None);
    }
    let parse = || {
        let (id, rest) = line.strip_prefix(r#"- <a id=""#)?.split_once(r#""></a>**"#)?;
        let said = rest.strip_prefix(id)?.strip_prefix("** ")?;
        let sound = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'-';
        (!said.trim().is_empty() && id.bytes().all(sound)).then_some(id)
    };
    parse().map(Some).ok_or_else(|| format!("not the form of a rule: {line}"))
}

/// Prefix and number of an id; None for a topic.
fn numbered(id: &str) -> Option<(&str, u32)> {
    let (prefix, number) = id.rsplit_once('-')?;
    Some((prefix, number.parse().ok()?))
}

/// The rows `| chapter | PREFIX, PREFIX | [page.md](page.md) | contract |`.
fn chapters(index: &str) -> Vec<Chapter> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
        let [_, prefixes, page, kind, _] = cells[..] else { return None };
        let page = page.split_once("](")?.1.strip_suffix(')')?;
        let is_prefix = |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase());
        let prefixes = prefixes.split(", ").filter(is_prefix).map(str::to_owned).collect();
        Some(Chapter { prefixes, page: page.to_owned(), contract: kind == "contract" })
    };
    index.lines().filter_map(row).collect()
}

/// The items `- [ID](page.md#ID): reason`, on one line or several. Err: an item without id or reason.
fn untested(text: &str) -> Result<BTreeMap<String, String>, String> {
    let item = |line: &str| {
        let (id, rest) = line.strip_prefix("- [")?.split_once("](")?;
        let (link, reason) = rest.split_once("): ")?;
        let fits = link.ends_with(&format!("#{id}")) && reason.len() > 10;
        fits.then(|| (id.to_owned(), reason.to_owned()))
    };
    let items = text.replace("\n  ", " ");
    let items = items.lines().filter(|line| line.starts_with("- "));
    items.map(|line| item(line).ok_or_else(|| line.to_owned())).collect()
}

/// Links to other pages of the folder, and their anchors.
pub fn links(text: &str) -> Vec<(&str, Option<&str>)> {
    let targets =
        text.match_indices("](").filter_map(|(at, _)| text[at + 2..].split_once(')').map(|(target, _)| target));
    let targets = targets.filter(|target| !target.contains('/') && !target.contains(' '));
    targets.map(|target| target.split_once('#').map_or((target, None), |(page, anchor)| (page, Some(anchor)))).collect()
}

/// Links to other files, without their anchors.
pub fn all_links(text: &str) -> Vec<&str> {
    let targets = text.match_indices("](").filter_map(|(at, _)| text[at + 2..].split_once(')').map(|(to, _)| to));
    let files = targets.filter(|target| !target.contains("://") && !target.contains(' '));
    files.filter_map(|target| target.split('#').next()).filter(|path| !path.is_empty()).collect()
}

/// The folders of the repository.
pub const FOLDERS: [&str; 7] = ["benches", "crates", "deploy", "docs", "examples", "fuzz", "tests"];

/// Words that begin with a folder of the repository, wherever they stand: in text, in code, in commands.
pub fn paths(page: &str) -> BTreeSet<&str> {
    let of_a_path = |c: char| c.is_ascii_alphanumeric() || "_-./*".contains(c);
    let is_path = |word: &&str| {
        let folder = word.split_once('/').map(|(folder, rest)| (folder, !rest.is_empty()));
        folder.is_some_and(|(folder, is_path)| is_path && FOLDERS.contains(&folder))
    };
    // What stands before a word may belong to it: `/etc/tests/a` and `target/docs/a` are other paths.
    let words = page.split(|c: char| !of_a_path(c) && !"~$<>{}".contains(c));
    let words = words.filter(|word| !word.contains(['~', '$', '<', '>', '{', '}']));
    words.filter(is_path).map(|word| word.trim_end_matches(['.', '/'])).collect()
}

/// What stands between backticks and is the end of a path: `ledger/plan.rs`, `shim/`, `schema/*.txt`, `api/src/rbac`.
pub fn ends_of_paths(page: &str) -> BTreeSet<&str> {
    // Files that users have, too, are ours only in a folder.
    let kinds = ["css", "html", "js", "md", "mjs", "patch", "py", "rs", "sh", "svg", "toml", "txt"];
    let common = ["json", "tpl", "yaml"];
    let is_end = |word: &&str| {
        let kind = word.rsplit_once('.').map(|(_, kind)| kind).unwrap_or_default();
        let of_a_path = |c: char| c.is_ascii_alphanumeric() || "_-./*".contains(c);
        let of_a_folder = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-/".contains(c);
        let is_file = kinds.contains(&kind) || common.contains(&kind) && word.contains('/');
        let is_folder = word.ends_with('/') && word.len() > 1 && word.chars().all(of_a_folder);
        let is_in_a_crate = ["/src/", "/tests/"].iter().any(|folder| word.contains(folder));
        word.chars().all(of_a_path) && !word.starts_with('/') && (is_file || is_folder || is_in_a_crate)
    };
    let quoted = page.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let words = quoted.map(|word| word.split('#').next().unwrap_or_default()).filter(is_end);
    // In a folder whose files are named, `../lease.rs` is beside it.
    words.map(|word| word.trim_start_matches("../").trim_end_matches('/')).collect()
}

/// Text without comments of HTML: they are about what is not there yet.
pub fn without_comments(page: &str) -> String {
    let mut parts = page.split("<!--");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once("-->").map_or("", |(_, rest)| rest))
}

/// Whether a path, or the end of one, is among these paths. A star stands for a part of a name.
pub fn is_among(paths: &BTreeSet<String>, path: &str) -> bool {
    let fits = |whole: &str| match path.split_once('*') {
        None => whole == path || whole.strip_suffix(path).is_some_and(|rest| rest.ends_with('/')),
        Some((before, after)) => {
            let middle = whole.strip_suffix(after).and_then(|rest| rest.rfind(before).map(|at| rest.split_at(at)));
            middle.is_some_and(|(folder, name)| {
                (folder.is_empty() || folder.ends_with('/')) && !name[before.len()..].contains('/')
            })
        }
    };
    paths.iter().any(|whole| fits(whole))
}

/// The ids in the first column of tables: `| S01 | ...`. Err: an id that occurs twice.
pub fn rows(text: &str) -> Result<BTreeSet<String>, String> {
    let mut rows = BTreeSet::new();
    for line in text.lines() {
        let Some((id, _)) = line.strip_prefix("| ").and_then(|line| line.split_once(" |")) else { continue };
        if is_of_scenarios(id) && !rows.insert(id.to_owned()) {
            return Err(id.to_owned());
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "| chapter | prefixes | page | kind |\n|---|---|---|---|\n\
        | The end | FIN, SUCC | [end.md](end.md) | contract |\n\
        | Others | E, and topics | [other.md](other.md) | background |\n";
    const END: &str =
        "# The end\n\n- <a id=\"FIN-1\"></a>**FIN-1** First\n  and more.\n- <a id=\"SUCC-1\"></a>**SUCC-1** Second.\n";
    const OTHER: &str = "- <a id=\"E-1\"></a>**E-1** One.\n- <a id=\"PATCH-JSON\"></a>**PATCH-JSON** Patches.\n";

    fn read(change: impl Fn(&mut BTreeMap<String, String>)) -> Result<Spec, Vec<String>> {
        let untested = "# Without\n\n- [FIN-1](end.md#FIN-1): because it cannot be\n  seen.\n";
        let pages = [("README.md", TABLE), ("end.md", END), ("other.md", OTHER), ("untested.md", untested)];
        let mut pages = pages.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
        change(&mut pages);
        Spec::read(&pages)
    }

    fn add(page: &str, text: &str) -> Option<String> {
        let spec = read(|pages| *pages.get_mut(page).unwrap() += text);
        spec.err().map(|problems| problems.join("; "))
    }

    #[test]
    fn a_specification_is_read() {
        let spec = read(|_| {}).unwrap_or_else(|problems| panic!("{problems:?}"));
        assert_eq!(spec.rules.keys().collect::<Vec<_>>(), ["E-1", "FIN-1", "PATCH-JSON", "SUCC-1"]);
        assert_eq!(spec.prefixes().into_iter().collect::<Vec<_>>(), ["E", "FIN", "SUCC"]);
        assert!(spec.is_contract(&spec.rules["FIN-1"]) && !spec.is_contract(&spec.rules["E-1"]));
        assert_eq!(spec.untested["FIN-1"], "because it cannot be seen.");
    }

    #[test]
    fn what_is_wrong_with_a_specification_is_said() {
        let check = |page: &str, text: &str, expected: &str| {
            assert_eq!(add(page, text).as_deref(), Some(expected), "{text}");
        };
        assert_eq!(add("end.md", "- <a id=\"FIN-2\"></a>**FIN-2** Third.\n"), None);
        check("other.md", "- <a id=\"E-1\"></a>**E-1** Again.\n", "E-1 is defined twice: other.md, other.md");
        check("end.md", "- <a id=\"RM-1\"></a>**RM-1** Else.\n", "end.md: RM-1 does not belong here");
        for wrong in [
            "- <a id=\"FIN-2\"></a>**FIN-3** x",
            "- <a id=\"FIN-2\"></a>FIN-2 x",
            "<a id=\"FIN-2\"></a>**FIN-2** x",
            "- <a id=\"FIN-2\"></a>**FIN-2** ",
            "- <a id=\"fin-2\"></a>**fin-2** x",
        ] {
            check("end.md", &format!("{wrong}\n"), &format!("end.md: not the form of a rule: {wrong}"));
        }
        assert_eq!(rule("    - <a id=\"FIN-2\"></a>**FIN-3** an example"), Ok(None));
        let wrong = "- [FIN-1](end.md#FIN-2): for some reason or other";
        let form = "untested.md: not `- [ID](page.md#ID): reason`: ";
        check("untested.md", &format!("{wrong}\n"), &format!("{form}{wrong}"));
        check("untested.md", "- [FIN-1](end.md#FIN-1): \n", &format!("{form}- [FIN-1](end.md#FIN-1): "));
        let twice = add("README.md", "| x | FIN | [end.md](end.md) | contract |\n");
        assert!(twice.is_some_and(|problems| problems.contains("FIN has two chapters")));
        check("README.md", "| x | RM | [rm.md](rm.md) | contract |\n", "rm.md or its row in the table is missing");
        let spec = read(|pages| {
            pages.insert("more.md".to_owned(), String::new());
        });
        assert_eq!(spec.err(), Some(vec!["more.md or its row in the table is missing".to_owned()]));
    }

    #[test]
    fn links_and_rows_are_found() {
        assert_eq!(links("[a](b.md#FIN-1) and [c](d.md), [e](../f.md)"), [("b.md", Some("FIN-1")), ("d.md", None)]);
        let text = "[a](b.md#FIN-1), [c](../d.md), [e](#f), [g](https://h.i/j.rs)";
        assert_eq!(all_links(text), ["b.md", "../d.md"]);
        let table = "| id | what |\n|---|---|\n| S01 | a |\n| I1 | b |\n| - | c |\nS02";
        assert_eq!(rows(table).map(|rows| rows.into_iter().collect::<Vec<_>>().join(" ")), Ok("I1 S01".to_owned()));
        assert_eq!(rows("| S01 | a |\n| S01 | b |\n"), Err("S01".to_owned()));
    }

    #[test]
    fn paths_are_found_wherever_they_stand() {
        let list = |found: BTreeSet<&str>| found.into_iter().collect::<Vec<_>>().join(" ");
        let page = "See crates/a, (docs/b.md#c). `cd deploy/d/ && cat tests/e`; /docs/f target/docs/g ~/docs/h\n    fuzz/*.rs docs/";
        assert_eq!(list(paths(page)), "crates/a deploy/d docs/b.md fuzz/*.rs tests/e");
        let page = "`a.rs`, `b/`, `b/c`, `D/`, `/e.rs`, `f.yaml`, `g/h.yaml`, `i/src/j`, `../k.rs#l`, `m n.rs`, `o/*.txt`, p.rs";
        assert_eq!(list(ends_of_paths(page)), "a.rs b g/h.yaml i/src/j k.rs o/*.txt");
        assert_eq!(without_comments("a <!-- b\n-->c<!-- d -->e"), "a ce");
    }

    #[test]
    fn a_dead_path_is_told_from_one_that_leads_to_a_file() {
        let all =
            ["crates/a", "crates/a/src", "crates/a/src/b.rs", "crates/a/src/c/d.rs", "crates/a/src/c", "Makefile"];
        let all = all.map(str::to_owned).into();
        for there in [
            "crates/a/src/b.rs",
            "b.rs",
            "src/b.rs",
            "c/d.rs",
            "c",
            "c/*.rs",
            "src/c/*",
            "crates/a/src/*.rs",
            "Makefile",
        ] {
            assert!(is_among(&all, there), "{there}");
        }
        for dead in ["crates/a/src/e.rs", "e.rs", "a/b.rs", "/b.rs", ".rs", "d", "c/*.txt", "e/*.rs", "a/*.rs", "make"]
        {
            assert!(!is_among(&all, dead), "{dead}");
        }
    }
}
