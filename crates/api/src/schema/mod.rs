//! The fields of objects, and their types.
//!
//! The data is in the text tables next to this file, one per group, parsed once. A table begins with a line that names
//! the group, `@ batch batch v1 batch`: the name by which other tables refer to it, the group (`-` for core), the
//! version, and the name of Kubernetes' internal package. Then one paragraph per structure: its name (with `kind` if
//! clients send it by itself, `atomic` if server-side apply owns it as a whole) and one line per field, in order of
//! declaration:
//!
//! ```text
//!  conditions []batch.JobCondition o p=merge k=type l=atomic
//!  & ProbeHandler core.ProbeHandler
//! ```
//!
//! A type is `*T` (may be absent), `[]T`, `map[K]T`, a structure (`batch.JobSpec`) or one of the words below;
//! `string=v1.RestartPolicy` is a string with a type name of its own, which error messages use. Flags: `o` and `z` omit
//! what is empty or zero, `p=` and `k=` are strategy and key of strategic merge patches, `l=` how server-side apply
//! merges the list, `a` owned as a whole, `r` required, `n` not required although it is always shown. `&`: the fields of
//! another structure, as if they were declared here.
//!
//! What structures and fields are for is in `about/`, for people who ask.
//! `numbers.txt` has the field numbers of the protobuf form, one line per structure.

pub mod about;
mod read;

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

use tally_value::Value;

/// Every structure of every table.
pub struct Schema {
    structs: Vec<Struct>,
    kinds: BTreeMap<KindName, StructId>,
    /// The same. It is asked several times for each request, and a search compares many texts.
    by_kind: HashMap<KindName, StructId>,
}

/// Group, version and kind.
type KindName = (&'static str, &'static str, &'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StructId(u16);

pub struct Struct {
    /// The name in Go: `JobSpec`.
    pub name: &'static str,
    /// The table that contains it: `batch`.
    pub table: &'static str,
    /// The internal package of Kubernetes, which conversion errors name.
    pub internal: &'static str,
    /// Server-side apply owns it as a whole.
    pub atomic: bool,
    /// In order of declaration, with the fields of embedded structures at their position.
    pub fields: Vec<Field>,
    /// Positions in `fields`, by their names.
    by_name: NameTable,
    /// The fields of the protobuf form, in order of their numbers. Empty if it has none.
    pub numbered: Vec<Numbered>,
    zero: OnceLock<Value>,
}

/// A field of the protobuf form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered {
    pub number: u32,
    pub part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A position in `fields`.
    Field(usize),
    /// A message of its own, whose fields the JSON form has inline.
    Embedded(StructId),
}

pub struct Field {
    pub name: &'static str,
    pub ty: Type,
    /// Omitted from the wire form if empty.
    pub omit_empty: bool,
    /// Omitted from the wire form if zero.
    pub omit_zero: bool,
    /// As OpenAPI documents say it. Whether an object is refused without it is for the rules of its kind.
    pub required: bool,
    /// Server-side apply owns it as a whole.
    pub atomic: bool,
    /// The embedded structure that declares it, which is part of the path in error messages.
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
    /// An object is replaced, not merged.
    pub replace: bool,
    pub retain_keys: bool,
    /// The key that identifies an element; empty for lists of plain values.
    pub key: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// Not specified, which means atomic.
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
    /// The type as Go prints it, without the pointer: `[]v1.Container`.
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

/// The tables, parsed at the first call.
pub fn schema() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(|| read::tables(&TABLES, include_str!("numbers.txt")))
}

const TABLES: [&str; 15] = [
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
    include_str!("metrics.txt"),
];

/// The group of kinds that every group has: DeleteOptions, Status.
const EVERYWHERE: (&str, &str) = ("meta.k8s.io", "v1");

impl Schema {
    /// The structure of a kind; options and statuses are found in every group.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<&Struct> {
        let found = self.by_kind.get(&(group, version, kind));
        let found = found.or_else(|| {
            let known = self.kinds.keys().any(|key| (key.0, key.1) == (group, version));
            if known { self.kinds.get(&(EVERYWHERE.0, EVERYWHERE.1, kind)) } else { None }
        });
        found.map(|id| self.get(*id))
    }

    /// Group, version and kind of all objects that clients can send.
    pub fn kinds(&self) -> impl Iterator<Item = KindName> + '_ {
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
    /// Why a field is refused that it does not have, or that nothing here acts upon, where leaving the field out would change
    /// what the object means.
    pub fn refuses(&self, field: &str) -> Option<&'static str> {
        // GANG-5.
        let gang = match field {
            "scheduling" => self.table == "batch" && self.name == "JobSpec",
            "schedulingGroup" => self.table == "core" && self.name == "PodSpec",
            _ => false,
        };
        gang.then_some("gang scheduling is not supported; remove the field to have the Pods scheduled one by one")
    }

    /// The name in OpenAPI documents: `io.k8s.api.batch.v1.JobSpec`.
    pub fn reference_name(&self) -> String {
        match self.table {
            "meta" => format!("io.k8s.apimachinery.pkg.apis.meta.v1.{}", self.name),
            "metrics" => format!("io.k8s.metrics.pkg.apis.metrics.v1beta1.{}", self.name),
            table => format!("io.k8s.api.{table}.v1.{}", self.name),
        }
    }

    pub fn field(&self, name: &str) -> Option<&Field> {
        self.position(name).map(|position| &self.fields[position])
    }

    /// The position in `fields`.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.by_name.candidates(name).find(|at| self.fields[*at].name == name)
    }

    /// What a number of the protobuf form stands for.
    pub fn numbered(&self, number: u32) -> Option<Part> {
        let found = self.numbered.binary_search_by_key(&number, |numbered| numbered.number);
        found.ok().map(|at| self.numbered[at].part)
    }

    /// The wire form if nothing is set.
    pub fn zero(&self) -> &Value {
        self.zero.get_or_init(|| {
            let shown = self.fields.iter().filter_map(|field| Some((field.name.to_owned(), field.zero()?)));
            Value::Object(shown.collect())
        })
    }
}

/// A hash table of names that does not change. Every field of every object that is decoded is looked up, so it hashes three
/// bytes and the length, which differ for almost all names of a structure.
struct NameTable(Box<[Option<u16>]>);

impl NameTable {
    fn new<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> Self {
        let mut table = Self(vec![None; (names.len() * 2).next_power_of_two()].into());
        for (at, name) in (0..).zip(names) {
            let free = table.places(name).find(|place| table.0[*place].is_none());
            // A table is at most half full.
            if let Some(place) = free {
                table.0[place] = Some(at);
            }
        }
        table
    }

    /// Every place, beginning with that of the name.
    fn places(&self, name: &str) -> impl Iterator<Item = usize> + use<> {
        let bytes = name.as_bytes();
        let byte = |at: usize| bytes.get(at).map_or(0, |byte| usize::from(*byte));
        let hash = byte(0) * 7 + byte(bytes.len() / 2) * 31 + byte(bytes.len().wrapping_sub(1)) * 3 + bytes.len() * 5;
        let mask = self.0.len() - 1;
        (0..=mask).map(move |step| (hash + step) & mask)
    }

    /// The positions that were given to names with the same hash or one near it.
    fn candidates(&self, name: &str) -> impl Iterator<Item = usize> {
        self.places(name).map_while(|place| self.0[place]).map(usize::from)
    }
}

impl Field {
    /// The value that the wire form shows if the field is not set; None if it is omitted.
    pub fn zero(&self) -> Option<Value> {
        self.shows_zero().then(|| self.ty.zero())
    }

    /// Whether the wire form shows the field if it is not set.
    pub fn shows_zero(&self) -> bool {
        if self.ty.pointer {
            return !self.omit_empty;
        }
        // In Go a structure is never empty, so `omitempty` does not omit it.
        !(self.omit_zero || self.omit_empty && !self.ty.is_struct_in_go())
    }

    /// The structure of the field, of its elements or of its values.
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
            Shape::Struct(id) => schema().get(*id).zero().clone(),
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
