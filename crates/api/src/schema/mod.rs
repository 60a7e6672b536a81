//! Which fields objects have, and what each may hold.
//!
//! The facts are in the text tables beside this file, one a group, read once. A table begins with a line that names the
//! group, `@ batch batch v1 batch`: the name other tables refer to it by, the group (`-` for core), the version, and
//! what the reference calls its internal package. Then one paragraph a structure: its name (with `kind` if clients send
//! it by itself, `atomic` if server-side apply owns it as a whole) and a line a field, in order of declaration:
//!
//! ```text
//!  conditions []batch.JobCondition o p=merge k=type l=atomic
//!  & ProbeHandler core.ProbeHandler
//! ```
//!
//! A type is `*T` (may be absent), `[]T`, `map[K]T`, a structure (`batch.JobSpec`) or one of the words below;
//! `string=v1.RestartPolicy` is a string with a name of its own, which error messages use. Flags: `o` and `z` leave out
//! what is empty or zero, `p=` and `k=` strategy and key of strategic merge patches, `l=` how server-side apply merges
//! the list, `a` owned as a whole, `r` required. `&`: the fields of another structure, as if they were declared here.

mod read;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::{Map, Value};

/// Every structure of every table.
pub struct Schema {
    structs: Vec<Struct>,
    kinds: BTreeMap<(&'static str, &'static str, &'static str), StructId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StructId(u16);

pub struct Struct {
    /// As Go names it: `JobSpec`.
    pub name: &'static str,
    /// The table it stands in: `batch`.
    pub table: &'static str,
    /// The reference's internal package, which conversion errors name.
    pub internal: &'static str,
    /// Server-side apply owns it as a whole.
    pub atomic: bool,
    /// In order of declaration, with the fields of embedded structures in their place.
    pub fields: Vec<Field>,
    /// Positions in `fields`, sorted by field name.
    by_name: Vec<u16>,
}

pub struct Field {
    pub name: &'static str,
    pub ty: Type,
    /// Left out of the wire form if empty.
    pub omit_empty: bool,
    /// Left out of the wire form if zero.
    pub omit_zero: bool,
    pub required: bool,
    /// Server-side apply owns it as a whole.
    pub atomic: bool,
    /// The embedded structure that declares it, which error messages have in the path.
    pub via: Option<&'static str>,
    /// How strategic merge patches treat it.
    pub patch: Patch,
    /// How server-side apply treats it.
    pub list: ListType,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// Elements are merged, not replaced.
    pub merge: bool,
    pub retain_keys: bool,
    /// What identifies an element; empty for lists of plain values.
    pub key: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// Nothing is said, which means atomic.
    #[default]
    Unsaid,
    Atomic,
    Set,
    Map(Vec<&'static str>),
}

#[derive(Debug, PartialEq)]
pub struct Type {
    pub shape: Shape,
    /// It may be absent, which differs from zero.
    pub pointer: bool,
    /// As Go prints the type, without the pointer: `[]v1.Container`.
    pub go: Box<str>,
}

#[derive(Debug, PartialEq)]
pub enum Shape {
    Text,
    Int32,
    Int64,
    Float,
    Bool,
    Quantity,
    IntOrString,
    /// To the second.
    Time,
    /// To the microsecond.
    MicroTime,
    /// Base64.
    Bytes,
    /// Any object.
    Raw,
    List(Box<Type>),
    Map(Box<Type>),
    Struct(StructId),
}

/// The tables, read at the first call.
pub fn schema() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(|| read::tables(&TABLES))
}

const TABLES: [&str; 14] = [
    include_str!("meta.txt"),
    include_str!("core.txt"),
    include_str!("batch.txt"),
    include_str!("apps.txt"),
    include_str!("coordination.txt"),
    include_str!("events.txt"),
    include_str!("policy.txt"),
    include_str!("rbac.txt"),
    include_str!("scheduling.txt"),
    include_str!("autoscaling.txt"),
    include_str!("authentication.txt"),
    include_str!("authorization.txt"),
    include_str!("discovery.txt"),
    include_str!("networking.txt"),
];

/// The group of what every group has: DeleteOptions, Status.
const EVERYWHERE: (&str, &str) = ("meta.k8s.io", "v1");

impl Schema {
    /// The structure of a kind; options and statuses count for every group.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<&Struct> {
        let found = self.kinds.get(&(group, version, kind));
        let found = found.or_else(|| {
            let known = self.kinds.keys().any(|key| (key.0, key.1) == (group, version));
            if known { self.kinds.get(&(EVERYWHERE.0, EVERYWHERE.1, kind)) } else { None }
        });
        found.map(|id| self.get(*id))
    }

    /// Group, version and kind of all that clients can send.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> + '_ {
        self.kinds.keys().copied()
    }

    pub fn structs(&self) -> &[Struct] {
        &self.structs
    }

    pub fn get(&self, id: StructId) -> &Struct {
        &self.structs[usize::from(id.0)]
    }
}

impl Struct {
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.position(name).map(|position| &self.fields[position])
    }

    /// Where in `fields` it is.
    pub fn position(&self, name: &str) -> Option<usize> {
        let found = self.by_name.binary_search_by(|at| self.fields[usize::from(*at)].name.cmp(name));
        found.ok().map(|at| usize::from(self.by_name[at]))
    }

    /// The wire form when nothing is set.
    pub fn zero(&self) -> Map<String, Value> {
        let shown = self.fields.iter().filter_map(|field| Some((field.name.to_owned(), field.zero()?)));
        shown.collect()
    }
}

impl Field {
    /// What the wire form shows when the field is not set; None if it is left out.
    pub fn zero(&self) -> Option<Value> {
        if self.ty.pointer {
            return if self.omit_empty { None } else { Some(Value::Null) };
        }
        // A structure is never empty, so that `omitempty` does not leave it out.
        if self.omit_zero || self.omit_empty && !self.ty.is_struct_in_go() {
            return None;
        }
        Some(self.ty.zero())
    }

    /// The structure in it, in its elements or in its values.
    pub fn structure(&self) -> Option<&'static Struct> {
        self.ty.structure()
    }
}

impl Type {
    pub fn zero(&self) -> Value {
        if self.pointer {
            return Value::Null;
        }
        match &self.shape {
            Shape::Text => "".into(),
            Shape::Int32 | Shape::Int64 | Shape::IntOrString => 0.into(),
            Shape::Float => 0.0.into(),
            Shape::Bool => false.into(),
            Shape::Quantity => "0".into(),
            Shape::Time | Shape::MicroTime | Shape::Bytes | Shape::Raw | Shape::List(_) | Shape::Map(_) => Value::Null,
            Shape::Struct(id) => schema().get(*id).zero().into(),
        }
    }

    fn is_struct_in_go(&self) -> bool {
        matches!(
            self.shape,
            Shape::Struct(_) | Shape::Time | Shape::MicroTime | Shape::Quantity | Shape::IntOrString | Shape::Raw
        )
    }

    pub fn structure(&self) -> Option<&'static Struct> {
        match &self.shape {
            Shape::Struct(id) => Some(schema().get(*id)),
            Shape::List(inner) | Shape::Map(inner) => inner.structure(),
            _ => None,
        }
    }
}
