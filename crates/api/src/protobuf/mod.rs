//! Objects in protobuf: the form that Go programs prefer for the built-in kinds (rule API-34).
//!
//! It has the content of the JSON form. An object is a message whose fields have numbers (`schema/numbers.txt`) instead
//! of names; their types are in the schema. One reader and one writer, both driven by these tables, convert between
//! messages and JSON values. An envelope around the message contains `apiVersion` and `kind`.
//!
//! The bytes that [`document`] writes are those of Go's generated code: fields in order of their numbers, values that are
//! not pointers even if they are zero, keys of maps sorted. The reader accepts any order, packed numbers, and repeated
//! occurrences of a message, which are merged; it ignores numbers that the tables do not contain, as Go does.
//!
//! A value that is not in the schema, or whose type is another, has no number: the writer leaves it out.

mod read;
mod write;

pub use read::{Envelope, EventMessage, ListMessage, envelope, read, read_event, read_list, read_shown};
pub use write::{END, document, event, exact_document, list_item, list_start, object};

use crate::schema::{Struct, schema};

/// The first bytes of every document.
pub const MAGIC: &[u8] = b"k8s\0";

/// Numbers of the special messages, which are the same for all kinds.
mod number {
    /// The envelope.
    pub const TYPE: u32 = 1;
    pub const RAW: u32 = 2;
    pub const API_VERSION: u32 = 1;
    pub const KIND: u32 = 2;
    /// A list.
    pub const METADATA: u32 = 1;
    pub const ITEMS: u32 = 2;
    /// An event of a watch.
    pub const EVENT_TYPE: u32 = 1;
    pub const EVENT_OBJECT: u32 = 2;
    /// An entry of a map.
    pub const KEY: u32 = 1;
    pub const VALUE: u32 = 2;
    /// Times.
    pub const SECONDS: u32 = 1;
    pub const NANOS: u32 = 2;
    /// A number or a text: which of the two, and both.
    pub const WHICH: u32 = 1;
    pub const INT: u32 = 2;
    pub const TEXT: u32 = 3;
    /// The only field of a message: quantities, embedded JSON, lists that are values of maps.
    pub const ONLY: u32 = 1;
}

/// How a value is encoded.
mod wire {
    pub const VARINT: u8 = 0;
    pub const FIXED64: u8 = 1;
    pub const BYTES: u8 = 2;
    pub const FIXED32: u8 = 5;
}

/// The structure of a kind that can be written in this form. Metadata and options exist in more than one version, which
/// are the same.
pub fn structure(api_version: &str, kind: &str) -> Option<&'static Struct> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let version = if group == "meta.k8s.io" { "v1" } else { version };
    schema().kind(group, version, kind).filter(|structure| !structure.numbered.is_empty())
}

/// The structure of a list's metadata, which a Status has too.
fn list_metadata() -> Option<&'static Struct> {
    structure("v1", "Status")?.field("metadata")?.structure()
}
