//! The files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

pub struct File {
    /// From the root of the repository, with `/`.
    pub path: String,
    pub text: String,
}

impl File {
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The name of the folder it is in.
    pub fn folder(&self) -> &str {
        self.path.rsplit('/').nth(1).unwrap_or_default()
    }

    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The part of a Rust file that contains tests: all of it, or everything from the start of its test module.
    pub fn tests(&self) -> &str {
        let is_tests =
            self.path.contains("/tests/") || self.path.ends_with("/tests.rs") || self.path.starts_with("fuzz/");
        if is_tests { &self.text } else { test_module(&self.text) }
    }
}

fn test_module(text: &str) -> &str {
    let is_module = |after: &str| {
        let mut lines = after.lines().map(str::trim).filter(|line| !line.is_empty());
        let item = lines.find(|line| !line.starts_with("#["));
        item.is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'))
    };
    let begins = text.match_indices("#[cfg(test)]").find(|(at, found)| is_module(&text[at + found.len()..]));
    begins.map_or("", |(at, _)| &text[at..])
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn file(path: &str) -> Option<File> {
    let text = fs::read_to_string(root().join(path)).ok()?;
    Some(File { path: path.to_owned(), text })
}

pub fn write(path: &str, text: &str) {
    fs::write(root().join(path), text).expect("a document can be written");
}

pub fn exists(path: &str) -> bool {
    root().join(path).exists()
}

/// Every text file in a folder and its subfolders. Build output and the results of fuzzing are left out.
pub fn files(folder: &str) -> Vec<File> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(root().join(&folder)) else { continue };
        for entry in entries.filter_map(Result::ok) {
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            match is_folder {
                true if ["fuzz/corpus", "fuzz/target", "fuzz/artifacts"].contains(&path.as_str()) => {}
                true => folders.push(path),
                false => found.extend(file(&path)),
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

#[test]
fn tests_are_told_from_what_they_test() {
    let part = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() }.tests().to_owned();
    let module = "#[cfg(test)]\n#[allow(x)]\nmod tests {\n    // FIN-1\n}\n";
    assert_eq!(part("crates/a/src/b.rs", &format!("// FIN-2\n{module}")), module);
    assert_eq!(part("crates/a/src/b.rs", "#[cfg(test)]\nmod tests;\n// FIN-2\n"), "");
    assert_eq!(part("crates/a/src/b.rs", "#[cfg(test)]\nfn helper() {}\n// FIN-2\n"), "");
    for path in ["crates/a/tests/b.rs", "crates/a/src/b/tests.rs", "crates/a/src/b/tests/c.rs", "fuzz/b.rs"] {
        assert_eq!(part(path, "// FIN-2\n"), "// FIN-2\n", "{path}");
    }
}
