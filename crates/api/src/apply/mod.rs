//! Server-side apply, and who owns which fields of an object (`metadata.managedFields`).
//!
//! Every write has a manager: the name that the client gives, or that of its program. A write by `apply` gives all fields
//! that the manager wants to have; fields that it had given before and gives no longer are removed, unless another manager
//! owns them. Every other write makes its manager the owner of what it changes.
//!
//! - `fields.rs`: sets of fields
//! - `typed.rs`: the fields of an object, what differs between two objects, and what both together are
//! - `config.rs`: what a client applies
//! - this file: the managers

mod config;
mod fields;
mod typed;

use std::collections::BTreeMap;

pub use config::Config;
use tally_value::{Map, Value, json};

use crate::kinds::Resource;
use crate::schema::{Struct, schema};
use crate::status_error::{Cause, Details, StatusError};
use fields::FieldSet;
use typed::{Difference, MergeStrategy};

const APPLY: &str = "Apply";
const UPDATE: &str = "Update";
const FORM: &str = "FieldsV1";
/// The owner of everything in an object that was stored before its managers were.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The owner of what the oldest managers have written, once there are too many.
const ANCIENT: &str = "ancient-changes";
/// How many managers are listed that do not apply.
const MOST_UPDATERS: usize = 10;
/// Sets from clients that are deeper are not read. No object is as deep.
const DEEPEST: usize = 64;
/// The manager of `kubectl apply --server-side`.
const KUBECTL: &str = "kubectl";
const MANAGED: &str = "/metadata/managedFields";
/// The annotation of `kubectl apply` without `--server-side`, as a part of a JSON pointer.
const LAST_APPLIED: &str = "kubectl.kubernetes.io~1last-applied-configuration";
/// Fields of the metadata that belong to the server.
const OF_THE_SERVER: [&str; 8] = [
    "f:name",
    "f:namespace",
    "f:creationTimestamp",
    "f:selfLink",
    "f:uid",
    "f:generation",
    "f:managedFields",
    "f:resourceVersion",
];

/// Who writes.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    pub manager: &'a str,
    /// "" for the object itself.
    pub subresource: &'a str,
    /// The time of the write, as objects have it.
    pub now: &'a str,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    id: Id,
    time: String,
    fields: FieldSet,
}

/// What makes two entries one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    operation: String,
    manager: String,
    version: String,
    subresource: String,
}

/// The fields of a new object belong to its writer.
pub fn created(resource: &Resource, new: &mut Value, writer: Writer<'_>) {
    let Some(structure) = structure(resource).filter(|_| is_tracked(resource)) else { return };
    let entries = match given(new) {
        Given::Entries(entries) => entries,
        Given::Nothing | Given::Reset => Vec::new(),
    };
    let differs = typed::difference(MergeStrategy::Struct(structure), structure.zero(), new);
    let entries = updated_entries(resource, differs, entries, writer);
    write(new, entries);
}

/// What differs from the stored object belongs to the writer.
pub fn updated(resource: &Resource, old: &Value, new: &mut Value, writer: Writer<'_>) {
    let Some(structure) = structure(resource).filter(|_| is_tracked(resource)) else { return };
    let is_unchanged = old.pointer(MANAGED) == new.pointer(MANAGED);
    // A request for a subresource does not change the list.
    let given = if writer.subresource.is_empty() && !is_unchanged { given(new) } else { Given::Nothing };
    let entries = match given {
        Given::Entries(entries) => entries,
        Given::Reset => Vec::new(),
        Given::Nothing if is_unchanged => taken(new),
        Given::Nothing => entries(old).unwrap_or_default(),
    };
    // An object without managers gets them when it is applied for the first time.
    if entries.is_empty() {
        return write(new, entries);
    }
    let differs = typed::difference(MergeStrategy::Struct(structure), old, new);
    let entries = updated_entries(resource, differs, entries, writer);
    write(new, entries);
}

/// The stored object, or None, with what the writer applies. Err: other managers own some of it and have other values, or
/// it does not conform to the schema.
pub fn applied(
    resource: &Resource,
    old: Option<&Value>,
    config: &Value,
    writer: Writer<'_>,
    force: bool,
) -> Result<Value, StatusError> {
    let Some(structure) = structure(resource) else {
        return Err(StatusError::new(415, "UnsupportedMediaType", "server-side apply is not served for this kind"));
    };
    check(resource, structure, config)?;
    let strategy = MergeStrategy::Struct(structure);
    let zero = structure.zero();
    let live = old.unwrap_or(zero);
    let mut entries = old.and_then(entries).unwrap_or_default();
    if let (true, Some(old)) = (entries.is_empty(), old) {
        let writer = Writer { manager: BEFORE_FIRST_APPLY, subresource: "", now: writer.now };
        entries = updated_entries(resource, typed::difference(strategy, zero, old), entries, writer);
    }
    let own = Id::new(APPLY, resource, writer);
    let mut fields = typed::fields_of(strategy, config);
    let mut all = fields.clone();
    leave_out(&mut fields, resource, writer.subresource);
    let last = entries.iter().position(|entry| entry.id == own).map(|at| entries.remove(at));
    entries.iter().for_each(|entry| fields::add(&mut all, &entry.fields));

    let merged = typed::merged(strategy, live, config);
    let mut new = match &last {
        Some(last) => pruned(strategy, &merged, &last.fields, &all),
        None => merged,
    };
    let mut differs = typed::difference(strategy, live, &new);
    leave_out_all(&mut differs, resource, writer.subresource);
    let written = fields::union(&differs.added, &differs.changed);
    if !force {
        let mut contested = written.clone();
        if writer.manager == KUBECTL {
            contested = fields::difference(&contested, &applied_by_the_client(strategy, live));
        }
        refuse_conflicts(&entries, &contested)?;
    }
    subtract(&mut entries, &written, &differs.removed);
    // A manager that changes nothing in the object has no time of a change.
    let time = match last {
        last if written.is_empty() && differs.removed.is_empty() => last.map(|last| last.time).unwrap_or_default(),
        _ => writer.now.to_owned(),
    };
    if !fields.is_empty() {
        entries.push(Entry { id: own, time, fields });
    }
    write(&mut new, entries);
    if writer.manager == KUBECTL
        && let Some(last) = new.pointer_mut(&format!("/metadata/annotations/{LAST_APPLIED}"))
    {
        *last = format!("{config}\n").into();
    }
    Ok(new)
}

/// Whether what is applied to a subresource conforms to the schema of its kind.
pub fn check_config(resource: &Resource, config: &Value) -> Result<(), StatusError> {
    structure(resource).map_or(Ok(()), |structure| check(resource, structure, config))
}

fn check(resource: &Resource, structure: &'static Struct, config: &Value) -> Result<(), StatusError> {
    let name = config.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    typed::check(structure, config).map_err(|why| {
        let (group, version, kind) = (resource.group, resource.version, resource.kind);
        let version = if group.is_empty() { format!("/{version}") } else { format!("{group}/{version}") };
        StatusError::bad_request(format!(
            "failed to create typed patch object (/{name}; {version}, Kind={kind}): {why}"
        ))
    })
}

/// What `kubectl apply` without `--server-side` wrote last, and still has the value that it wrote. The same user takes it
/// over with `--server-side`, so that this is no conflict.
fn applied_by_the_client(strategy: MergeStrategy, live: &Value) -> FieldSet {
    let last = live.pointer(&format!("/metadata/annotations/{LAST_APPLIED}")).and_then(Value::as_str);
    let Some(last) = last.and_then(|text| serde_json::from_str::<Value>(text).ok()) else { return FieldSet::new() };
    let differs = typed::difference(strategy, &last, live);
    let own = fields::difference(&typed::fields_of(strategy, &last), &differs.changed);
    fields::difference(&own, &differs.removed)
}

/// The result without what this manager had applied before, and no manager owns now.
fn pruned(strategy: MergeStrategy, merged: &Value, last: &FieldSet, owned: &FieldSet) -> Value {
    let named = |set: &FieldSet| typed::with_named(strategy, set);
    let last = named(last);
    let of_merged = named(&typed::fields_of(strategy, merged));
    let without_last = typed::without(strategy, merged, &last);
    let kept = fields::union(&named(&typed::fields_of(strategy, &without_last)), &named(owned));
    let without_unowned = typed::without(strategy, merged, &fields::difference(&of_merged, &kept));
    // Only what this manager had is removed.
    let gone = fields::difference(&of_merged, &named(&typed::fields_of(strategy, &without_unowned)));
    typed::without(strategy, merged, &fields::intersection(&gone, &last))
}

/// Whether the objects differ in more than the times of their managers.
pub fn differ(one: &Value, other: &Value) -> bool {
    let without_times = |object: &Value| {
        let mut object = object.clone();
        let list = object.pointer_mut(MANAGED).and_then(Value::as_array_mut);
        for entry in list.into_iter().flatten().filter_map(Value::as_object_mut) {
            entry.remove("time");
        }
        object
    };
    one != other && without_times(one) != without_times(other)
}

/// Events are many, are written by programs only, and are two kinds for one object.
fn is_tracked(resource: &Resource) -> bool {
    resource.kind != "Event"
}

fn structure(resource: &Resource) -> Option<&'static Struct> {
    schema().kind(resource.group, resource.version, resource.kind)
}

impl Entry {
    fn without_fields(entry: &Value) -> Self {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (operation, manager) = (text("operation"), text("manager"));
        let id = Id { operation, manager, version: text("apiVersion"), subresource: text("subresource") };
        Self { id, time: text("time"), fields: FieldSet::new() }
    }

    /// What orders the list.
    fn place(&self) -> (&str, &str, &Id) {
        (&self.id.operation, &self.time, &self.id)
    }
}

impl Id {
    fn new(operation: &str, resource: &Resource, writer: Writer<'_>) -> Self {
        Self {
            operation: operation.to_owned(),
            manager: writer.manager.to_owned(),
            version: resource.api_version().to_string(),
            subresource: writer.subresource.to_owned(),
        }
    }

    /// As conflicts name it.
    fn shown(&self) -> String {
        let subresource = match self.subresource.as_str() {
            "" => String::new(),
            name => format!(" with subresource {name:?}"),
        };
        let version = if self.operation == UPDATE { format!(" using {}", self.version) } else { String::new() };
        format!("{:?}{subresource}{version}", self.manager)
    }
}

fn updated_entries(
    resource: &Resource,
    mut differs: Difference,
    mut entries: Vec<Entry>,
    writer: Writer<'_>,
) -> Vec<Entry> {
    leave_out_all(&mut differs, resource, writer.subresource);
    if differs.added.is_empty() && differs.changed.is_empty() && differs.removed.is_empty() {
        return entries;
    }
    let own = Id::new(UPDATE, resource, writer);
    let before = entries.iter().position(|entry| entry.id == own).map(|at| entries.remove(at));
    let mut written = differs.added;
    fields::add(&mut written, &differs.changed);
    subtract(&mut entries, &written, &differs.removed);
    let mut fields = before.map(|entry| entry.fields).unwrap_or_default();
    fields::remove(&mut fields, &differs.removed);
    if fields.is_empty() {
        fields = written;
    } else if !fields::contains(&fields, &written) {
        fields::add(&mut fields, &written);
    }
    if !fields.is_empty() {
        entries.push(Entry { id: own, time: writer.now.to_owned(), fields });
    }
    join_oldest(&mut entries);
    entries
}

/// Other managers lose what was written and what was removed.
fn subtract(entries: &mut Vec<Entry>, written: &FieldSet, removed: &FieldSet) {
    for entry in entries.iter_mut() {
        for lost in [written, removed] {
            fields::remove(&mut entry.fields, lost);
        }
    }
    entries.retain(|entry| !entry.fields.is_empty());
}

fn refuse_conflicts(entries: &[Entry], written: &FieldSet) -> Result<(), StatusError> {
    let mut conflicts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in entries {
        let paths = fields::paths(&fields::intersection(&entry.fields, written));
        if !paths.is_empty() {
            conflicts.entry(entry.id.shown()).or_default().extend(paths);
        }
    }
    let count: usize = conflicts.values().map(Vec::len).sum();
    let text = match (count, conflicts.first_key_value()) {
        (0, _) | (_, None) => return Ok(()),
        (1, Some((manager, paths))) => format!("1 conflict: conflict with {manager}: {}", paths.concat()),
        _ => {
            let listed = |(manager, paths): (&String, &Vec<String>)| {
                format!("conflicts with {manager}:\n- {}", paths.join("\n- "))
            };
            format!("{count} conflicts: {}", conflicts.iter().map(listed).collect::<Vec<_>>().join("\n"))
        }
    };
    let causes = conflicts.iter().flat_map(|(manager, paths)| {
        paths.iter().map(move |path| Cause {
            reason: "FieldManagerConflict".to_owned(),
            message: format!("conflict with {manager}"),
            field: path.clone(),
        })
    });
    let details = Details { causes: causes.collect(), ..Details::default() };
    Err(StatusError::new(409, "Conflict", format!("Apply failed with {text}")).with(details))
}

/// Too many managers that do not apply: the oldest become one.
fn join_oldest(entries: &mut Vec<Entry>) {
    let is_updater = |entry: &Entry| entry.id.operation == UPDATE;
    while entries.iter().filter(|entry| is_updater(entry)).count() > MOST_UPDATERS {
        let ancient = |entry: &Entry| is_updater(entry) && entry.id.manager == ANCIENT;
        let others = entries.iter().enumerate().filter(|(_, entry)| is_updater(entry) && !ancient(entry));
        let Some((oldest, _)) =
            others.min_by(|(_, one), (_, other)| (&one.time, &one.id).cmp(&(&other.time, &other.id)))
        else {
            return;
        };
        let oldest = entries.remove(oldest);
        match entries.iter_mut().find(|entry| ancient(entry)) {
            Some(entry) => {
                fields::add(&mut entry.fields, &oldest.fields);
                entry.time = oldest.time;
            }
            None => {
                let id = Id { manager: ANCIENT.to_owned(), subresource: String::new(), ..oldest.id };
                entries.push(Entry { id, ..oldest });
            }
        }
    }
}

fn leave_out_all(differs: &mut Difference, resource: &Resource, subresource: &str) {
    for set in [&mut differs.added, &mut differs.changed, &mut differs.removed] {
        leave_out(set, resource, subresource);
    }
}

/// TYPE-9. Fields that no manager owns: those of the server, and those that this kind of request does not write.
fn leave_out(set: &mut FieldSet, resource: &Resource, subresource: &str) {
    for part in ["f:apiVersion", "f:kind"] {
        set.remove(part);
    }
    let has_status = resource.subresources.iter().any(|subresource| subresource.name == "status");
    match subresource {
        "" if has_status => drop(set.remove("f:status")),
        "status" => drop(set.remove("f:spec")),
        _ => {}
    }
    if let Some(Value::Object(mut metadata)) = set.remove("f:metadata") {
        OF_THE_SERVER.iter().for_each(|part| drop(metadata.remove(part)));
        if subresource == "status" {
            metadata.remove("f:deletionTimestamp");
            metadata.remove("f:ownerReferences");
        }
        fields::put(set, "f:metadata", false, metadata);
    }
}

/// The list that a request has.
enum Given {
    Nothing,
    /// An empty list, or one with an empty entry: the managers are forgotten.
    Reset,
    Entries(Vec<Entry>),
}

fn given(object: &Value) -> Given {
    match object.pointer(MANAGED) {
        Some(Value::Array(list)) if list.is_empty() => Given::Reset,
        Some(Value::Array(list)) if list.len() == 1 && list[0] == json!({}) => Given::Reset,
        Some(Value::Array(_)) => {
            entries(object).filter(|entries| !entries.is_empty()).map_or(Given::Nothing, Given::Entries)
        }
        _ => Given::Nothing,
    }
}

/// None: an entry cannot be read.
fn entries(object: &Value) -> Option<Vec<Entry>> {
    let Some(Value::Array(list)) = object.pointer(MANAGED) else { return Some(Vec::new()) };
    let read =
        |entry: &Value| Some(Entry { fields: fields::read(fields(entry)?, DEEPEST)?, ..Entry::without_fields(entry) });
    list.iter().map(read).collect()
}

/// The same, but the sets are moved out of the object. None of them if one cannot be read.
fn taken(object: &mut Value) -> Vec<Entry> {
    let Some(Value::Array(list)) = object.pointer_mut(MANAGED) else { return Vec::new() };
    if !list.iter().all(|entry| fields(entry).is_some_and(|fields| fields::is_read(fields, DEEPEST))) {
        return entries(object).unwrap_or_default();
    }
    let take = |entry: &mut Value| {
        let fields = match entry.get_mut("fieldsV1").map(Value::take) {
            Some(Value::Object(fields)) => fields,
            _ => FieldSet::new(),
        };
        Entry { fields, ..Entry::without_fields(entry) }
    };
    list.iter_mut().map(take).collect()
}

/// The set of an entry whose form is known.
fn fields(entry: &Value) -> Option<&Value> {
    let is_one_of =
        |name: &str, known: &[&str]| entry.get(name).and_then(Value::as_str).is_some_and(|text| known.contains(&text));
    entry.get("fieldsV1").filter(|_| is_one_of("operation", &[APPLY, UPDATE]) && is_one_of("fieldsType", &[FORM]))
}

fn write(object: &mut Value, mut entries: Vec<Entry>) {
    let Some(object) = object.as_object_mut() else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let Some(metadata) = metadata.as_object_mut() else { return };
    if entries.is_empty() {
        metadata.remove("managedFields");
        return;
    }
    entries.sort_by(|one, other| one.place().cmp(&other.place()));
    let list = entries.into_iter().map(|Entry { id, time, fields }| {
        let mut entry = Map::new();
        let mut put = |name: &str, text: String| {
            if !text.is_empty() {
                entry.insert(name.to_owned(), text.into());
            }
        };
        put("apiVersion", id.version);
        put("fieldsType", FORM.to_owned());
        put("manager", id.manager);
        put("operation", id.operation);
        put("subresource", id.subresource);
        put("time", time);
        entry.insert("fieldsV1", fields.into());
        Value::Object(entry)
    });
    metadata.insert("managedFields", list.collect());
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
