//! The structures of objects as OpenAPI schemas, from the schema table and its descriptions.

use std::collections::BTreeMap;

use tally_api::catalog;
use tally_api::schema::about::About;
use tally_api::schema::{Field, ListType, Shape, Struct, Type, schema};
use tally_value::{Map, Value, json};

/// The two versions of OpenAPI differ in the place of schemas and in what a schema may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    V2,
    V3,
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const RAW: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

/// The schemas of a document, by name, with all that they refer to. Each is encoded as soon as it is known: a whole
/// document as JSON values takes twenty times the memory of its text.
pub struct Schemas {
    pub dialect: Dialect,
    about: About,
    encode: fn(&Value) -> Vec<u8>,
    found: BTreeMap<String, Vec<u8>>,
}

impl Dialect {
    pub fn reference(self, name: &str) -> Value {
        let place = match self {
            Self::V2 => "#/definitions/",
            Self::V3 => "#/components/schemas/",
        };
        json!({"$ref": format!("{place}{name}")})
    }
}

impl Schemas {
    pub fn new(dialect: Dialect, encode: fn(&Value) -> Vec<u8>) -> Self {
        Self { dialect, about: About::read(), encode, found: BTreeMap::new() }
    }

    /// All of them, encoded.
    pub fn into_found(self) -> BTreeMap<String, Vec<u8>> {
        self.found
    }

    fn add(&mut self, name: &str, schema: &Value) {
        self.found.insert(name.to_owned(), (self.encode)(schema));
    }

    /// Adds the schema of a kind and returns its name.
    pub fn kind(&mut self, group: &str, version: &str, kind: &str) -> String {
        schema().kind(group, version, kind).map(|structure| self.structure(structure)).unwrap_or_default()
    }

    /// Adds the schema of the list of a kind and returns its name.
    pub fn list(&mut self, group: &str, version: &str, kind: &str) -> String {
        let item = self.kind(group, version, kind);
        let metadata = self.structure_named("ListMeta");
        let name = format!("{item}List");
        let text = |field| self.text_of_every_kind(field);
        let list = json!({
            "description": format!("A list of objects of the kind {kind}."),
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string", "description": text("apiVersion")},
                "kind": {"type": "string", "description": text("kind")},
                "metadata": self.described(self.dialect.reference(&metadata), Some("What holds for the list as a whole: \
                    its revision, and how to go on if it is only a part.")),
                "items": {"type": "array", "description": "The objects.", "items": self.dialect.reference(&item)},
            },
            "x-kubernetes-group-version-kind": [{"group": group, "version": version, "kind": format!("{kind}List")}],
        });
        self.add(&name, &list);
        name
    }

    /// Adds the schema of the body of a patch and returns its name.
    pub fn patch(&mut self) -> String {
        self.plain(
            &format!("{META}Patch"),
            || json!({"type": "object", "description": "A patch in one of the forms that the content type names."}),
        )
    }

    /// Adds the schema of an event of a watch and returns its name.
    pub fn watch_event(&mut self) -> String {
        let name = format!("{META}WatchEvent");
        let object = self.raw();
        let event = json!({
            "description": "One line of a watch.",
            "type": "object",
            "required": ["type", "object"],
            "properties": {
                "type": {"type": "string", "description": "ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."},
                "object": self.described(self.dialect.reference(&object), Some("The object after the change, or before \
                    its deletion; for BOOKMARK, an object of which only the revision is set; for ERROR, a Status.")),
            },
            "x-kubernetes-group-version-kind": everywhere("WatchEvent"),
        });
        self.add(&name, &event);
        name
    }

    pub fn structure_named(&mut self, name: &str) -> String {
        let found = schema().structs().iter().find(|structure| (structure.table, structure.name) == ("meta", name));
        found.map(|structure| self.structure(structure)).unwrap_or_default()
    }

    fn text_of_every_kind(&self, field: &str) -> &'static str {
        let kind = schema().kind("", "v1", "Pod");
        let found = kind.and_then(|kind| self.about.field(kind, kind.field(field)?, true));
        found.unwrap_or_default()
    }

    fn structure(&mut self, structure: &'static Struct) -> String {
        let name = structure.reference_name();
        if self.found.contains_key(&name) {
            return name;
        }
        // Structures may refer to themselves.
        self.found.insert(name.clone(), Vec::new());
        let kinds = kinds(structure);
        let mut properties = Map::new();
        let mut required: Vec<&str> = Vec::new();
        for field in &structure.fields {
            let text = self.about.field(structure, field, !kinds.is_empty());
            properties.insert(field.name.to_owned(), self.property(field, text));
            if field.required {
                required.push(field.name);
            }
        }
        let mut made = json!({"type": "object"});
        if let Some(text) = self.about.structure(structure) {
            made["description"] = text.into();
        }
        if !properties.is_empty() {
            made["properties"] = properties.into();
        }
        if !required.is_empty() {
            required.sort_unstable();
            made["required"] = required.into();
        }
        if structure.atomic {
            made["x-kubernetes-map-type"] = "atomic".into();
        }
        if !kinds.is_empty() {
            made["x-kubernetes-group-version-kind"] = kinds.into();
        }
        self.add(&name, &made);
        name
    }

    fn property(&mut self, field: &Field, text: Option<&str>) -> Value {
        let plain = match (&field.ty.shape, field.name) {
            (Shape::Raw, "fieldsV1") => {
                let name = self.plain(&format!("{META}FieldsV1"), || {
                    json!({"type": "object", "description": "A set of fields, as a tree: `f:` and a field's name, `k:` \
                        and the keys of a list's element, `v:` and a value."})
                });
                self.dialect.reference(&name)
            }
            _ => self.of_type(&field.ty),
        };
        let mut made = self.described(plain, text);
        let mut mark = |name: &str, value: Value| made[format!("x-kubernetes-{name}")] = value;
        match &field.list {
            ListType::Unsaid => {}
            ListType::Atomic => mark("list-type", "atomic".into()),
            ListType::Set => mark("list-type", "set".into()),
            ListType::Map(keys) => {
                mark("list-type", "map".into());
                mark("list-map-keys", keys.as_slice().into());
            }
        }
        if field.atomic {
            mark("map-type", "atomic".into());
        }
        let patch = &field.patch;
        let strategies = [(patch.merge, "merge"), (patch.replace, "replace"), (patch.retain_keys, "retainKeys")];
        let strategies: Vec<&str> = strategies.into_iter().filter(|one| one.0).map(|one| one.1).collect();
        if !strategies.is_empty() {
            mark("patch-strategy", strategies.join(",").into());
        }
        if !field.patch.key.is_empty() {
            mark("patch-merge-key", field.patch.key.into());
        }
        made
    }

    /// In OpenAPI 3, what stands beside a `$ref` is ignored.
    fn described(&self, plain: Value, text: Option<&str>) -> Value {
        let Some(text) = text else { return plain };
        let mut made = match self.dialect {
            Dialect::V3 if plain.get("$ref").is_some() => json!({"allOf": [plain]}),
            _ => plain,
        };
        made["description"] = text.into();
        made
    }

    fn of_type(&mut self, ty: &Type) -> Value {
        let v3 = self.dialect == Dialect::V3;
        let named = match &ty.shape {
            Shape::Text => {
                let mut text = json!({"type": "string"});
                if let Some(values) = self.about.values(&ty.go) {
                    text["enum"] = values.into();
                }
                return text;
            }
            Shape::Int32 => return json!({"type": "integer", "format": "int32"}),
            Shape::Int64 => return json!({"type": "integer", "format": "int64"}),
            Shape::Float => return json!({"type": "number", "format": "double"}),
            Shape::Bool => return json!({"type": "boolean"}),
            Shape::Bytes => return json!({"type": "string", "format": "byte"}),
            Shape::List(inner) => return json!({"type": "array", "items": self.of_type(inner)}),
            Shape::Map(inner) => return json!({"type": "object", "additionalProperties": self.of_type(inner)}),
            Shape::Struct(id) => self.structure(schema().get(*id)),
            Shape::Raw => self.raw(),
            Shape::Quantity => self.plain(QUANTITY, || {
                let mut made = json!({"description": "An amount: a number, and a unit such as m, k, M, G, Ki, Mi or Gi."});
                match v3 {
                    true => made["oneOf"] = json!([{"type": "string"}, {"type": "number"}]),
                    false => made["type"] = "string".into(),
                }
                made
            }),
            Shape::IntOrString => self.plain(INT_OR_STRING, || {
                let mut made = json!({"description": "A number, or a string such as a name or a percentage.", "format": "int-or-string"});
                match v3 {
                    true => made["oneOf"] = json!([{"type": "integer"}, {"type": "string"}]),
                    false => made["type"] = "string".into(),
                }
                made
            }),
            Shape::Time => self.plain(&format!("{META}Time"), || {
                json!({"type": "string", "format": "date-time", "description": "A point in time, to the second (RFC 3339)."})
            }),
            Shape::MicroTime => self.plain(&format!("{META}MicroTime"), || {
                json!({"type": "string", "format": "date-time", "description": "A point in time, to the microsecond \
                    (RFC 3339)."})
            }),
        };
        self.dialect.reference(&named)
    }

    fn raw(&mut self) -> String {
        self.plain(RAW, || json!({"type": "object", "description": "Any object."}))
    }

    fn plain(&mut self, name: &str, make: impl FnOnce() -> Value) -> String {
        if !self.found.contains_key(name) {
            self.add(name, &make());
        }
        name.to_owned()
    }
}

/// The kinds that have this structure.
fn kinds(structure: &Struct) -> Vec<Value> {
    let is_kind = |(group, version, kind): &(&str, &str, &str)| {
        *kind == structure.name
            && schema().kind(group, version, kind).is_some_and(|found| std::ptr::eq(found, structure))
    };
    let Some((group, version, kind)) = schema().kinds().find(is_kind) else { return Vec::new() };
    match (structure.table, kind) {
        ("meta", "DeleteOptions") => everywhere(kind),
        // Responses have this one whatever the group.
        ("meta", _) => vec![json!({"group": "", "version": "v1", "kind": kind})],
        _ => vec![json!({"group": group, "version": version, "kind": kind})],
    }
}

/// A kind that every group has.
fn everywhere(kind: &str) -> Vec<Value> {
    let groups = std::iter::once("").chain(catalog::groups());
    groups.map(|group| json!({"group": group, "version": catalog::version_of(group), "kind": kind})).collect()
}
