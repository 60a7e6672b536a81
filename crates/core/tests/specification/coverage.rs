//! The names on `docs/coverage.md`: files, functions in them, tests and recordings.

/// One row of a table, without its requirement.
pub struct Row<'a> {
    pub number: &'a str,
    pub code: Vec<&'a str>,
    pub held_by: Vec<&'a str>,
}

pub fn rows(page: &str) -> Vec<Row<'_>> {
    let is_row = |line: &&str| line.starts_with("| ") && line[2..].starts_with(|first: char| first.is_ascii_digit());
    page.lines().filter(is_row).map(row).collect()
}

fn row(line: &str) -> Row<'_> {
    let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
    let [number, _, code, held_by] = cells[..] else { panic!("not four columns: {line}") };
    Row { number, code: quoted(code), held_by: quoted(held_by) }
}

/// What stands between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// What a column of places names after a file: `core/ledger/plan.rs` `plan_releases`.
pub fn places<'a>(code: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
    let mut file = None;
    let mut found = Vec::new();
    for name in code {
        match file {
            Some(file) if is_name(name) => found.push((file, name.rsplit("::").next().unwrap_or_default())),
            _ => file = name.ends_with(".rs").then_some(*name),
        }
    }
    found
}

/// A function of a test: `a_job_runs`, or `area::a_job_runs`.
pub fn function(name: &str) -> Option<&str> {
    let last = name.rsplit("::").next()?;
    let is_name = last.contains('_') && last.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    is_name.then_some(last)
}

/// A file of a crate, as the page shortens it, or any other file of the repository.
pub fn paths(name: &str) -> Option<[String; 2]> {
    let (first, rest) = name.split_once('/')?;
    let is_path = !name.contains([' ', '.']) || name.ends_with(".rs") || name.ends_with(".txt");
    is_path.then(|| [name.to_owned(), format!("crates/{first}/src/{rest}")])
}
