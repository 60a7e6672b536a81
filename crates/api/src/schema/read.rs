//! Parses the tables. They are part of the program and a test parses them all, so nothing here can fail at run time: an
//! unknown word would become an arbitrary value.

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

use super::{Field, ListType, NameTable, Numbered, Part, Patch, Schema, Shape, Struct, StructId, Type};

/// A structure whose fields are not parsed yet.
struct Paragraph {
    table: Table,
    name: &'static str,
    marks: &'static str,
    lines: Vec<&'static str>,
}

#[derive(Clone, Copy, Default)]
struct Table {
    name: &'static str,
    group: &'static str,
    version: &'static str,
    internal: &'static str,
}

/// From `batch.JobSpec` to its position.
type Names = HashMap<(&'static str, &'static str), StructId>;

pub(super) fn tables(texts: &[&'static str], numbers: &'static str) -> Schema {
    let paragraphs: Vec<Paragraph> = texts.iter().flat_map(|text| paragraphs(text)).collect();
    let ids = |at: usize| StructId(at as u16);
    let names: Names =
        paragraphs.iter().enumerate().map(|(at, found)| ((found.table.name, found.name), ids(at))).collect();
    let mut kinds = BTreeMap::new();
    for (at, found) in paragraphs.iter().enumerate() {
        if found.marks.contains("kind") {
            kinds.insert((found.table.group, found.table.version, found.name), ids(at));
        }
    }
    let mut structs: Vec<Struct> = paragraphs.iter().map(|found| structure(found, &paragraphs, &names)).collect();
    for line in numbers.lines().filter(|line| !line.starts_with('#')) {
        let (name, fields) = line.split_once(' ').unwrap_or((line, ""));
        if let Some(id) = name.split_once('.').and_then(|name| names.get(&name)) {
            let structure = &mut structs[usize::from(id.0)];
            structure.numbered = numbered(structure, fields, &names);
        }
    }
    let by_kind = kinds.iter().map(|(name, id)| (*name, *id)).collect();
    Schema { structs, kinds, by_kind }
}

/// A line of the numbers: `type status reason=4 &core.ProbeHandler`.
fn numbered(structure: &Struct, fields: &str, names: &Names) -> Vec<Numbered> {
    let mut number = 0;
    let words = fields.split(' ').filter_map(|word| {
        let (field, given) = word.split_once('=').unwrap_or((word, ""));
        number = given.parse().unwrap_or(number + 1);
        let part = match field.strip_prefix('&') {
            Some(embedded) => Part::Embedded(*names.get(&embedded.split_once('.')?)?),
            None => Part::Field(structure.position(field)?),
        };
        Some(Numbered { number, part })
    });
    let mut found: Vec<Numbered> = words.collect();
    found.sort_by_key(|numbered| numbered.number);
    found
}

fn paragraphs(text: &'static str) -> Vec<Paragraph> {
    let mut table = Table::default();
    let mut found: Vec<Paragraph> = Vec::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("@ ") {
            let mut words = head.split(' ').map(|word| if word == "-" { "" } else { word });
            let mut next = || words.next().unwrap_or_default();
            table = Table { name: next(), group: next(), version: next(), internal: next() };
        } else if let Some(field) = line.strip_prefix(' ') {
            if let Some(last) = found.last_mut() {
                last.lines.push(field);
            }
        } else {
            let (name, marks) = line.split_once(' ').unwrap_or((line, ""));
            found.push(Paragraph { table, name, marks, lines: Vec::new() });
        }
    }
    found
}

fn structure(paragraph: &Paragraph, all: &[Paragraph], names: &Names) -> Struct {
    let mut fields = Vec::new();
    push_fields(paragraph, None, all, names, &mut fields);
    let by_name = NameTable::new(fields.iter().map(|field| field.name));
    Struct {
        name: paragraph.name,
        table: paragraph.table.name,
        internal: paragraph.table.internal,
        atomic: paragraph.marks.contains("atomic"),
        fields,
        by_name,
        numbered: Vec::new(),
        zero: OnceLock::new(),
    }
}

fn push_fields(
    paragraph: &Paragraph,
    via: Option<&'static str>,
    all: &[Paragraph],
    names: &Names,
    fields: &mut Vec<Field>,
) {
    for line in &paragraph.lines {
        let mut words = line.split(' ');
        let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if first == "&" {
            let embedded = words.next().and_then(|name| name.split_once('.')).and_then(|name| names.get(&name));
            if let Some(id) = embedded {
                push_fields(&all[usize::from(id.0)], Some(second), all, names, fields);
            }
            continue;
        }
        let (ty, _) = parse_type(second, names);
        let mut field = Field {
            name: first,
            ty,
            omit_empty: false,
            omit_zero: false,
            required: false,
            atomic: false,
            via,
            patch: Patch::default(),
            list: ListType::default(),
        };
        // What the wire form always shows is required, unless the table says otherwise.
        let flags: Vec<&str> = words.collect();
        field.required = !flags.contains(&"o") && !field.ty.pointer && !flags.contains(&"n");
        flags.into_iter().for_each(|flag| set_flag(&mut field, flag));
        fields.push(field);
    }
}

fn set_flag(field: &mut Field, flag: &'static str) {
    match flag.split_once('=') {
        None => match flag {
            "o" => field.omit_empty = true,
            "z" => field.omit_zero = true,
            "r" => field.required = true,
            "n" => field.required = false,
            _ => field.atomic = true,
        },
        Some(("p", strategies)) => {
            let has = |name| strategies.split(',').any(|strategy| strategy == name);
            (field.patch.merge, field.patch.replace) = (has("merge"), has("replace"));
            field.patch.retain_keys = has("retainKeys");
        }
        Some(("k", key)) => field.patch.key = key,
        Some((_, list)) => {
            field.list = match list.split_once(':') {
                Some((_, keys)) => ListType::Map(keys.split(',').collect()),
                None if list == "set" => ListType::Set,
                None => ListType::Atomic,
            }
        }
    }
}

/// The type at the beginning of the text, and the rest of the text.
fn parse_type<'t>(text: &'t str, names: &Names) -> (Type, &'t str) {
    if let Some(rest) = text.strip_prefix('*') {
        let (inner, rest) = parse_type(rest, names);
        return (Type { pointer: true, ..inner }, rest);
    }
    if let Some(rest) = text.strip_prefix("[]") {
        let (inner, rest) = parse_type(rest, names);
        let go = format!("[]{}", inner.go);
        return (typed(Shape::List(Box::new(inner)), go), rest);
    }
    if let Some(rest) = text.strip_prefix("map[") {
        let (key, rest) = parse_type(rest, names);
        let (inner, rest) = parse_type(rest.strip_prefix(']').unwrap_or(rest), names);
        let go = format!("map[{}]{}", key.go, inner.go);
        return (typed(Shape::Map(Box::new(inner)), go), rest);
    }
    if let Some(rest) = text.strip_prefix('(') {
        let (inner, rest) = parse_type(rest, names);
        return named(inner, rest.strip_prefix(')').unwrap_or(rest));
    }
    let (word, rest) = text.split_at(text.find(['=', ')', ']']).unwrap_or(text.len()));
    let (shape, go) = match word {
        "string" => (Shape::Text, "string"),
        "int32" => (Shape::Int32, "int32"),
        "int64" => (Shape::Int64, "int64"),
        "float64" => (Shape::Float, "float64"),
        "bool" => (Shape::Bool, "bool"),
        "quantity" => (Shape::Quantity, "resource.Quantity"),
        "intstr" => (Shape::IntOrString, "intstr.IntOrString"),
        "time" => (Shape::Time, "v1.Time"),
        "microtime" => (Shape::MicroTime, "v1.MicroTime"),
        "bytes" => (Shape::Bytes, "[]uint8"),
        _ => match word.split_once('.').and_then(|name| names.get(&(name.0, name.1)).map(|id| (name.1, *id))) {
            Some((name, id)) => return named(typed(Shape::Struct(id), format!("v1.{name}")), rest),
            None => (Shape::Raw, "runtime.RawExtension"),
        },
    };
    named(typed(shape, go.to_owned()), rest)
}

/// Sets the type name after `=`, if there is one.
fn named(inner: Type, rest: &str) -> (Type, &str) {
    match rest.strip_prefix('=') {
        None => (inner, rest),
        Some(rest) => {
            let (name, rest) = rest.split_at(rest.find([')', ']']).unwrap_or(rest.len()));
            (Type { go: name.into(), ..inner }, rest)
        }
    }
}

fn typed(shape: Shape, go: String) -> Type {
    Type { shape, pointer: false, go: go.into_boxed_str() }
}
