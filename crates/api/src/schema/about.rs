//! What structures and fields are for, in words, and the values that some strings may have.
//!
//! The texts are in `about/`, one file for each table that has any. They are our own: what Tally does with a field. A file
//! begins with `@ batch`, the name of the table. A line that begins with a structure's name says what the structure is,
//! the lines below it, indented, what its fields are; `*` is the structure of which every kind has the fields. A line
//! `= v1.RestartPolicy Always OnFailure Never` lists the values of a type. Texts are read when a document is made, and
//! not kept.

use std::collections::BTreeMap;

use super::{Field, Struct};

const TEXTS: [&str; 5] = [
    include_str!("about/meta.txt"),
    include_str!("about/core.txt"),
    include_str!("about/pod.txt"),
    include_str!("about/batch.txt"),
    include_str!("about/others.txt"),
];

/// The structure of which every kind has the fields.
const EVERY_KIND: &str = "*";

/// A structure with the fields of another one.
const SAME: [(&str, &str); 1] = [("EphemeralContainerCommon", "Container")];

/// All texts.
pub struct About {
    structs: BTreeMap<(&'static str, &'static str), &'static str>,
    fields: BTreeMap<(&'static str, &'static str, &'static str), &'static str>,
    values: BTreeMap<&'static str, Vec<&'static str>>,
}

impl About {
    pub fn read() -> Self {
        let mut about = Self { structs: BTreeMap::new(), fields: BTreeMap::new(), values: BTreeMap::new() };
        for text in TEXTS {
            let (mut table, mut structure) = ("", "");
            for line in text.lines() {
                let (head, rest) = line.trim_start().split_once(' ').unwrap_or((line.trim_start(), ""));
                if head == "@" {
                    table = rest;
                } else if head == "=" {
                    let mut words = rest.split(' ');
                    about.values.insert(words.next().unwrap_or_default(), words.collect());
                } else if line.starts_with(' ') {
                    about.fields.insert((table, structure, head), rest);
                } else {
                    structure = head;
                    about.structs.insert((table, structure), rest);
                }
            }
        }
        about
    }

    /// What the structure is.
    pub fn structure(&self, structure: &Struct) -> Option<&'static str> {
        self.structs.get(&(structure.table, structure.name)).copied().filter(|text| !text.is_empty())
    }

    /// What a field of the structure is for. A field of an embedded structure is described there.
    pub fn field(&self, structure: &Struct, field: &Field, is_kind: bool) -> Option<&'static str> {
        let find = |table, name| self.fields.get(&(table, name, field.name)).copied();
        let embedded = || {
            let via = field.via?;
            let via = SAME.iter().find(|(name, _)| *name == via).map_or(via, |(_, same)| *same);
            find(structure.table, via).or_else(|| find("meta", via))
        };
        let every_kind = || find("meta", EVERY_KIND).filter(|_| is_kind);
        find(structure.table, structure.name).or_else(embedded).or_else(every_kind)
    }

    /// The values that a string of this type may have, if they are known.
    pub fn values(&self, go_type: &str) -> Option<&[&'static str]> {
        self.values.get(go_type).map(Vec::as_slice)
    }

    /// Table, structure and field of every text, for a test that finds those without a field.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> + '_ {
        self.fields.keys().copied().filter(|(_, structure, _)| *structure != EVERY_KIND)
    }

    /// Table and structure of every text.
    pub fn structs(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        self.structs.keys().copied().filter(|(_, structure)| *structure != EVERY_KIND)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::schema::schema;

    fn find(table: &str, name: &str) -> Option<&'static Struct> {
        schema().structs().iter().find(|structure| (structure.table, structure.name) == (table, name))
    }

    #[test]
    fn all_texts_are_about_something_that_exists() {
        let about = About::read();
        for (table, name) in about.structs() {
            assert!(find(table, name).is_some(), "there is no {table}.{name}");
        }
        for (table, name, field) in about.fields() {
            assert!(find(table, name).unwrap().field(field).is_some(), "{table}.{name} has no {field}");
        }
        let types = |wanted: &str| {
            let fields = schema().structs().iter().flat_map(|structure| &structure.fields);
            fields.into_iter().any(|field| field.ty.go.trim_start_matches("[]") == wanted)
        };
        for (name, values) in &about.values {
            assert!(types(name) && values.len() > 1, "{name}");
        }
    }

    #[test]
    fn every_kind_is_described_and_jobs_and_pods_are_in_all_their_fields() {
        let about = About::read();
        for resource in crate::catalog::resources() {
            let structure = schema().kind(resource.group, resource.version, resource.kind).unwrap();
            assert!(about.structure(structure).is_some(), "{}", resource.kind);
            for field in &structure.fields {
                assert!(about.field(structure, field, true).is_some(), "{}.{}", resource.kind, field.name);
            }
        }
        for name in ["PodSpec", "PodStatus", "Container", "ContainerStatus", "EphemeralContainer", "Probe", "Lifecycle"]
        {
            check(&about, find("core", name).unwrap());
        }
        for structure in schema().structs().iter().filter(|structure| matches!(structure.table, "batch" | "meta")) {
            check(&about, structure);
        }
    }

    fn check(about: &About, structure: &'static Struct) {
        assert!(about.structure(structure).is_some(), "{}", structure.name);
        for field in &structure.fields {
            let text = about.field(structure, field, structure.fields.iter().any(|field| field.name == "apiVersion"));
            let text = text.unwrap_or_else(|| panic!("{}.{}", structure.name, field.name));
            assert!(text.ends_with('.') && text.len() > 4, "{}.{}: {text}", structure.name, field.name);
        }
    }
}
