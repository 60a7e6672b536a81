//! The contract in `docs/spec` and everything that cites it: each cited rule is defined, once, and each rule of a
//! contract chapter has a test, or a reason why not. Files, tests and links that documents name are there.
//!
//! This reads files of the whole repository. It is in this crate because this crate is the quickest to build.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod citations;
mod coverage;
mod names;
mod pages;
mod recordings;
mod repository;
mod wrapping;

use std::collections::{BTreeMap, BTreeSet};

use citations::Citation;
use names::Code;
use repository::{File, files};

/// Prefixes that look like ids but are not ours: encodings, standards, proposals.
const FOREIGN: [&str; 4] = ["DNS", "KEP", "SSH", "UTF"];

fn spec() -> pages::Spec {
    let pages = files("docs/spec").into_iter().map(|file| (file.name().to_owned(), file.text)).collect();
    pages::Spec::read(&pages).unwrap_or_else(|problems| panic!("docs/spec:\n{}", problems.join("\n")))
}

/// The ids in these files are examples.
fn is_this_test(file: &File) -> bool {
    file.path.starts_with("crates/core/tests/specification/")
}

/// Everything that may cite a rule.
fn citing() -> Vec<File> {
    let root = ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"]
        .into_iter()
        .filter_map(repository::file);
    pages::FOLDERS.into_iter().flat_map(files).chain(root).filter(|file| !is_this_test(file)).collect()
}

/// Where each rule is tested.
fn tests(prefixes: &BTreeSet<&str>) -> BTreeMap<String, BTreeSet<String>> {
    let mut tested: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let sources = files("crates").into_iter().chain(files("fuzz"));
    for file in sources.filter(|file| file.is_rust() && !is_this_test(file)) {
        let text = file.tests();
        let full = citations::of(text).into_iter().filter(|citation| citation.full).map(|citation| citation.id);
        for id in full.chain(citations::in_names(text, prefixes)) {
            tested.entry(id).or_default().insert(file.path.clone());
        }
    }
    for case in recordings::all().into_iter().filter(|case| case.is_held_to) {
        for rule in case.rules {
            tested.entry(rule).or_default().insert(format!("tests/golden/{}", case.name));
        }
    }
    tested
}

#[test]
fn the_pages_are_what_their_table_says() {
    let spec = spec();
    assert!(spec.rules.len() > 500, "only {} rules", spec.rules.len());
    assert!(spec.chapters.len() > 20, "only {} chapters", spec.chapters.len());
}

#[test]
fn every_rule_that_is_cited_is_defined() {
    let spec = spec();
    let (mut cited, mut problems) = (BTreeMap::<String, usize>::new(), Vec::new());
    for file in citing() {
        // In a document an id and the end of its range may be on two lines.
        let text = match file.path.ends_with(".md") {
            true => &file.text.split_whitespace().collect::<Vec<_>>().join(" "),
            false => &file.text,
        };
        for Citation { id, .. } in citations::of(text) {
            let prefix = id.rsplit_once('-').map_or("", |(prefix, _)| prefix);
            if spec.rules.contains_key(&id) {
                *cited.entry(id).or_default() += usize::from(!file.path.starts_with("docs/spec/"));
            } else if !FOREIGN.contains(&prefix) {
                problems.push(format!("{}: {id} is not in docs/spec", file.path));
            }
        }
    }
    for case in recordings::all() {
        let unknown = case.rules.iter().filter(|rule| !spec.rules.contains_key(*rule));
        problems.extend(unknown.map(|rule| format!("{}: {rule} is not in docs/spec", case.name)));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let (by, citations) = (cited.values().filter(|times| **times > 0).count(), cited.values().sum::<usize>());
    println!("{} rules, {by} of them cited elsewhere, {citations} times", spec.rules.len());
    assert!(by > 300, "only {by} rules are cited: is everything read?");
}

#[test]
fn every_rule_of_a_contract_has_a_test_or_a_reason() {
    let spec = spec();
    let tested = tests(&spec.prefixes());
    let mut problems = Vec::new();
    for (id, rule) in &spec.rules {
        let page = &rule.page;
        match (spec.is_contract(rule), tested.contains_key(id), spec.untested.contains_key(id)) {
            (true, false, false) => problems.push(format!("{id} ({page}): no test cites it")),
            (_, true, true) => problems.push(format!("{id}: listed in untested.md, and tested in {:?}", tested[id])),
            (false, _, true) => problems.push(format!("{id} ({page}): needs no test, and is listed in untested.md")),
            _ => {}
        }
    }
    problems.extend(spec.untested.keys().filter(|id| !spec.rules.contains_key(*id)).map(|id| format!("no rule {id}")));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let contract = spec.rules.values().filter(|rule| spec.is_contract(rule)).count();
    println!("{contract} rules of contracts, {} without a test", spec.untested.len());
}

#[test]
fn every_link_between_the_pages_leads_somewhere() {
    let spec = spec();
    let mut links = 0;
    for file in files("docs/spec") {
        for (page, anchor) in pages::links(&file.text) {
            let target = format!("docs/spec/{page}");
            let is_there = repository::file(&target).is_some();
            assert!(is_there, "{}: a link to {page}", file.path);
            if let Some(anchor) = anchor {
                let rule = spec.rules.get(anchor);
                assert!(rule.is_some_and(|rule| rule.page == page), "{}: a link to {page}#{anchor}", file.path);
            }
            links += 1;
        }
    }
    assert!(links > 20, "only {links} links");
}

/// Past bugs (S, H) and invariants of the simulator (I, G, L, E, M).
#[test]
fn every_scenario_and_invariant_that_is_cited_is_a_row_of_the_scenarios() {
    let scenarios = repository::file("docs/scenarios.md").expect("docs/scenarios.md").text;
    let rows = pages::rows(&scenarios).unwrap_or_else(|twice| panic!("docs/scenarios.md has two rows {twice}"));
    let (mut cited, mut named) = (0, BTreeSet::new());
    let sources = ["crates/controllers", "crates/core", "crates/sim", "crates/tally", "docs"];
    let architecture = repository::file("ARCHITECTURE.md");
    for file in sources.into_iter().flat_map(files).chain(architecture).filter(|file| !is_this_test(file)) {
        for id in citations::of_scenarios(&file.text) {
            assert!(rows.contains(&id), "{}: {id} is no row of docs/scenarios.md", file.path);
            cited += 1;
        }
        if file.is_rust() {
            for id in citations::scenarios_in_names(file.tests()) {
                assert!(rows.contains(&id), "{}: a test is named after {id}, which is no row", file.path);
                named.insert(id);
            }
        }
    }
    assert!(cited > 200, "only {cited} citations: is everything read?");
    let lacks_test = |row: &&String| row.starts_with(['S', 'H']) && !named.contains(*row);
    let untested: Vec<_> = rows.iter().filter(lacks_test).collect();
    assert!(untested.is_empty(), "rows of docs/scenarios.md without a test of that name: {untested:?}");
}

/// The table is for readers of the documents, the headers are for readers of the code.
#[test]
fn the_headers_of_the_oracle_name_the_same_invariants_as_the_table() {
    let scenarios = repository::file("docs/scenarios.md").expect("docs/scenarios.md").text;
    let rows = pages::rows(&scenarios).unwrap_or_else(|twice| panic!("docs/scenarios.md has two rows {twice}"));
    let sources = ["oracle.rs", "laws/mod.rs", "judge.rs", "late.rs"].map(|name| format!("crates/sim/src/{name}"));
    let headers =
        sources.iter().filter_map(|path| repository::file(path)).flat_map(|file| citations::in_header(&file.text));
    let invariants = rows.into_iter().filter(|row| !row.starts_with(['S', 'H'])).collect::<BTreeSet<_>>();
    assert_eq!(headers.collect::<BTreeSet<_>>(), invariants);
}

/// Names in the column of tests that are neither a test nor a recording: a metric, a subresource.
const NOT_TESTS: [&str; 2] = ["jobs/status", "tally_requests_total"];

#[test]
fn every_file_test_and_recording_on_the_coverage_page_exists() {
    let page = repository::file("docs/coverage.md").expect("docs/coverage.md").text;
    let sources: String = files("crates").into_iter().filter(File::is_rust).map(|file| file.text).collect();
    let functions: BTreeSet<&str> = sources
        .split("fn ")
        .skip(1)
        .filter_map(|after| after.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next())
        .collect();
    let recordings: BTreeSet<String> = recordings::all().into_iter().map(|case| case.name).collect();
    let (mut problems, mut checked) = (Vec::new(), 0);
    for row in coverage::rows(&page) {
        let is_file = |name: &&str| name.ends_with(".rs");
        for name in row.held_by.iter().filter(|name| !NOT_TESTS.contains(name) && !is_file(name)) {
            let exists = match (coverage::function(name), name.split_once('/')) {
                (Some(function), _) => functions.contains(function),
                (None, Some(("api" | "controllers" | "job", _))) => recordings.contains(*name),
                _ => continue,
            };
            checked += 1;
            if !exists {
                problems.push(format!("row {}: no test and no recording {name}", row.number));
            }
        }
        for (path, name) in coverage::places(&row.code) {
            let paths = coverage::paths(path).into_iter().flatten();
            let texts: Vec<_> = paths.filter_map(|path| repository::file(&path)).collect();
            checked += 1;
            if !texts.is_empty() && !texts.iter().any(|file| file.text.contains(name)) {
                problems.push(format!("row {}: no {name} in {path}", row.number));
            }
        }
        for name in row.code.into_iter().chain(row.held_by.into_iter().filter(is_file)) {
            let Some(paths) = coverage::paths(name) else { continue };
            checked += 1;
            if !paths.iter().any(|path| repository::exists(path)) {
                problems.push(format!("row {}: no file {name}", row.number));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(checked > 400, "only {checked} names: is everything read?");
}

/// A playbook is read when something is broken: every metric and test that it names exists, and every alert leads to one.
#[test]
fn playbooks_name_metrics_alerts_and_tests_that_exist() {
    let text = |path: &str| repository::file(path).unwrap_or_else(|| panic!("{path}")).text;
    let (page, metrics) = (text("docs/playbooks.md"), text("docs/metrics.md"));
    let sources: String = files("crates").into_iter().filter(File::is_rust).map(|file| file.text).collect();
    let prefixes =
        ["tally_", "job_controller_", "ttl_after_finished_", "workqueue_", "leader_election_", "kubernetes_"];
    let names = page.split('`').skip(1).step_by(2).map(|name| name.split('{').next().unwrap_or_default());
    let (mut problems, mut checked) = (Vec::new(), 0);
    for name in names.filter_map(|name| coverage::function(name).map(|_| name)) {
        let exists = match prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            true => metrics.contains(&format!("`{name}`")) || sources.contains(&format!("fn {name}(")),
            false => sources.contains(&format!("fn {}(", name.rsplit("::").next().unwrap_or_default())),
        };
        checked += 1;
        if !exists {
            problems.push(format!("no metric and no test {name}"));
        }
    }
    for alert in text("deploy/kustomize/components/alerts/prometheusrule.yaml").lines() {
        if let Some((_, alert)) = alert.split_once("- alert: ")
            && !page.contains(&format!("`{alert}`"))
        {
            problems.push(format!("no playbook for the alert {alert}"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(checked > 20, "only {checked} names: is everything read?");
}

/// What a test that fails writes, and git ignores; and folders of users, of builds and of data directories.
const NOT_IN_THE_REPOSITORY: [&str; 6] =
    ["crates/core/tests/reference/regressions.txt", "a", "artifacts", "pki", "proptest-regressions", "target"];

#[test]
fn every_path_and_link_in_the_documents_leads_to_a_file() {
    let mut everything = BTreeSet::new();
    for file in pages::FOLDERS.into_iter().flat_map(files) {
        let folders = file.path.match_indices('/').map(|(at, _)| file.path[..at].to_owned());
        everything.extend(folders.collect::<Vec<_>>());
        everything.insert(file.path);
    }
    let (mut problems, mut checked) = (Vec::new(), 0);
    for page in documents() {
        let text = pages::without_comments(&page.text);
        let mut paths = pages::paths(&text);
        // The coverage page shortens paths in its own way, and has its own test.
        if page.path != "docs/coverage.md" {
            paths.extend(pages::ends_of_paths(&text));
        }
        let folder = page.path.rsplit_once('/').map_or(".", |(folder, _)| folder);
        for path in paths.into_iter().filter(|path| !NOT_IN_THE_REPOSITORY.contains(path)) {
            checked += 1;
            let is_there = |path: &str| repository::exists(path) || repository::exists(&format!("{folder}/{path}"));
            if !is_there(path) && !pages::is_among(&everything, path) {
                problems.push(format!("{}: no file {path}", page.path));
            }
        }
        for link in pages::all_links(&page.text) {
            checked += 1;
            if !repository::exists(&format!("{folder}/{link}")) {
                problems.push(format!("{}: a link to {link}", page.path));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(checked > 1000, "only {checked} paths and links: is everything read?");
}

/// All pages but the list of changes, which is about the past.
fn documents() -> Vec<File> {
    let root =
        ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"].into_iter().filter_map(repository::file);
    pages::FOLDERS.into_iter().flat_map(files).chain(root).filter(|file| file.path.ends_with(".md")).collect()
}

/// `UPDATE_DOCS=1` wraps them.
#[test]
fn no_line_of_a_paragraph_is_too_wide() {
    let (mut problems, mut checked) = (Vec::new(), 0);
    for page in documents().into_iter().chain(repository::file("CHANGELOG.md")) {
        let wrapped = wrapping::wrapped(&page.text);
        checked += 1;
        if wrapped == page.text {
            continue;
        }
        if std::env::var_os("UPDATE_DOCS").is_some() {
            repository::write(&page.path, &wrapped);
            continue;
        }
        let line = page.text.lines().zip(wrapped.lines()).position(|(is, wanted)| is != wanted).unwrap_or_default();
        problems.push(format!(
            "{}: the paragraph of line {} is too wide; wrap it with UPDATE_DOCS=1",
            page.path,
            line + 1
        ));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(checked > 70, "only {checked} pages: is everything read?");
}

fn code() -> Code {
    // The examples of the modules of this test are no code, and the test itself is.
    let is_code = |file: &File| file.is_rust() && (!is_this_test(file) || file.name() == "main.rs");
    Code::of(["crates", "fuzz"].into_iter().flat_map(files).filter(is_code))
}

/// A file stays where it is while a function moves to another, or gets another name.
#[test]
fn every_name_of_the_code_in_the_documents_exists() {
    let code = code();
    let (mut problems, mut beside, mut telling) = (Vec::new(), 0, 0);
    for page in documents() {
        for (path, name) in names::beside_paths(&page.text) {
            beside += 1;
            let parts = names::identifiers(&name).unwrap_or_default();
            // The type of a method may be in another file.
            if code.has_path(&path) && !parts.last().is_some_and(|name| code.has_in(&path, name)) {
                problems.push(format!("{}: no {name} in {path}", page.path));
            }
        }
        for name in names::telling(&page.text) {
            telling += 1;
            let parts = names::identifiers(&name).unwrap_or_default();
            if !code.has(&parts[parts.len().saturating_sub(2)..]) && !code.has_regression(&name) {
                problems.push(format!("{}: no {name} in the code", page.path));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(beside > 50 && telling > 200, "only {beside} and {telling} names: is everything read?");
}

#[test]
fn every_name_in_the_glossary_exists() {
    let code = code();
    let architecture = repository::file("ARCHITECTURE.md").expect("ARCHITECTURE.md").text;
    let (mut problems, mut checked) = (Vec::new(), 0);
    for (term, names) in names::glossary(&architecture) {
        for name in names {
            checked += 1;
            let exists = match names::identifiers(&name) {
                Some(parts) => code.has(&parts) && parts.iter().all(|name| code.defines(name)),
                None => code.has_path(&name),
            };
            if !exists {
                problems.push(format!("{term}: no {name}"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(checked > 80, "only {checked} names: is everything read?");
}

#[test]
fn documents_state_the_number_of_put_back_bugs() {
    let table = repository::file("crates/sim/src/bugs.rs").unwrap();
    let bugs = table.text.lines().filter(|line| line.trim_start().starts_with("bug(")).count();
    let mut checked = 0;
    for page in documents() {
        for number in names::numbers_of_bugs(&page.text) {
            checked += 1;
            assert_eq!(number, bugs, "{}", page.path);
        }
    }
    assert!(checked > 0, "no page states it");
}

#[test]
fn every_anchor_of_a_link_is_on_its_page() {
    let pages: BTreeMap<String, File> = documents().into_iter().map(|page| (page.path.clone(), page)).collect();
    let (mut problems, mut checked) = (Vec::new(), 0);
    for page in pages.values() {
        for (path, anchor) in names::anchored_links(&page.text) {
            let mut folders: Vec<_> = page.path.split('/').collect();
            if !path.is_empty() {
                folders.pop();
            }
            for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
                match part {
                    ".." => drop(folders.pop()),
                    part => folders.push(part),
                }
            }
            let target = folders.join("/");
            checked += 1;
            if pages.get(&target).is_none_or(|page| !names::anchors(&page.text).contains(anchor)) {
                problems.push(format!("{}: no #{anchor} in {target}", page.path));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(checked > 50, "only {checked} anchors: is everything read?");
}
