//! Objects as rows of a table: what `kubectl get` shows.
//!
//! A resource's table is a list of columns, and a column computes its cell from an object; so there are always as many
//! cells as columns. Cells are computed from whatever is in the object: an invalid object prints something odd, never
//! an error, because users find such objects with a table.

mod cluster;
pub mod duration;
mod jobs;
mod pods;
mod row;
mod workloads;

use tally_core::time::Timestamp;
use tally_value::{Value, json};

use crate::kinds::Resource;
use crate::status_error::StatusError;
use row::Row;

/// How much of each object a row contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

impl IncludeObject {
    /// From the query parameter `includeObject`; "" if it is absent.
    pub fn parse(text: &str) -> Result<Self, StatusError> {
        match text {
            "None" => Ok(Self::None),
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            other => Err(StatusError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', \
                 'Object', 'None', or empty"
            ))),
        }
    }
}

struct Column {
    name: &'static str,
    /// `string`, `integer`, `boolean` or `date`. Cells need not have this type: clients print what they get.
    kind: &'static str,
    /// Shown only with `-o wide`.
    wide: bool,
    about: &'static str,
    cell: fn(&Row) -> Value,
}

impl Column {
    const fn new(name: &'static str, kind: &'static str, about: &'static str, cell: fn(&Row) -> Value) -> Self {
        Self { name, kind, wide: false, about, cell }
    }

    const fn text(name: &'static str, about: &'static str, cell: fn(&Row) -> Value) -> Self {
        Self::new(name, "string", about, cell)
    }

    const fn integer(name: &'static str, about: &'static str, cell: fn(&Row) -> Value) -> Self {
        Self::new(name, "integer", about, cell)
    }

    const fn wide(self) -> Self {
        Self { wide: true, ..self }
    }

    fn to_json(&self) -> Value {
        // Clients find the name of an object by this format, not by the column's name.
        let format = if self.name == "Name" { "name" } else { "" };
        let priority = i32::from(self.wide);
        json!({"name": self.name, "type": self.kind, "format": format, "description": self.about, "priority": priority})
    }
}

const NAME: Column =
    Column::text("Name", "The name, unique among objects of its kind and namespace.", |row| row.name());
const AGE: Column = Column::text("Age", "Time since the object was created.", |row| row.age());

/// The columns of kinds without a table of their own.
static PLAIN: &[Column] = &[
    NAME,
    Column::new("Created At", "date", "When the object was created.", |row| {
        row.text("/metadata/creationTimestamp").into()
    }),
];

/// The columns of a table. Usually they are the resource's, but a column may depend on the objects.
#[derive(Clone, Copy)]
struct Layout(&'static [Column]);

impl Layout {
    fn of<'v>(resource: &Resource, objects: impl IntoIterator<Item = &'v Value>) -> Self {
        let is_managed = is_jobs(resource) && objects.into_iter().any(jobs::is_managed_elsewhere);
        Layout(if is_managed { jobs::MANAGED_JOBS } else { printer(resource) })
    }

    fn to_json(self) -> Value {
        self.0.iter().map(Column::to_json).collect()
    }

    fn cells(self, resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
        let core;
        let object = if resource.group == "events.k8s.io" {
            // Both views of an Event have the same table.
            core = crate::others::event::to_core(object);
            &core
        } else {
            object
        };
        let row = Row { object, now };
        self.0.iter().map(|column| (column.cell)(&row)).collect()
    }
}

/// Whether some objects of the resource need more columns than others.
pub fn depends_on_objects(resource: &Resource) -> bool {
    is_jobs(resource)
}

/// Whether an object, as text, may need more columns. Most objects are excluded without parsing them.
pub fn may_need_more(object: &[u8]) -> bool {
    let word = b"\"managedBy\"";
    object.windows(word.len()).any(|window| window == word)
}

fn is_jobs(resource: &Resource) -> bool {
    (resource.group, resource.plural) == ("batch", "jobs")
}

fn printer(resource: &Resource) -> &'static [Column] {
    match (resource.group, resource.plural) {
        ("batch", "jobs") => jobs::JOBS,
        ("autoscaling", "scales") => workloads::SCALES,
        ("batch", "cronjobs") => jobs::CRONJOBS,
        ("", "pods") => pods::PODS,
        ("", "nodes") => cluster::NODES,
        ("", "namespaces") => cluster::NAMESPACES,
        ("" | "events.k8s.io", "events") => cluster::EVENTS,
        ("coordination.k8s.io", "leases") => cluster::LEASES,
        ("", "services") => cluster::SERVICES,
        ("", "endpoints") => cluster::ENDPOINTS,
        ("", "serviceaccounts") => cluster::SERVICE_ACCOUNTS,
        ("", "configmaps") => cluster::CONFIG_MAPS,
        ("", "secrets") => cluster::SECRETS,
        ("", "persistentvolumeclaims") => cluster::CLAIMS,
        ("", "resourcequotas") => cluster::QUOTAS,
        ("", "podtemplates") => workloads::POD_TEMPLATES,
        ("", "replicationcontrollers") => workloads::REPLICATION_CONTROLLERS,
        ("apps", "deployments") => workloads::DEPLOYMENTS,
        ("apps", "replicasets") => workloads::REPLICA_SETS,
        ("apps", "statefulsets") => workloads::STATEFUL_SETS,
        ("apps", "daemonsets") => workloads::DAEMON_SETS,
        ("policy", "poddisruptionbudgets") => cluster::DISRUPTION_BUDGETS,
        ("scheduling.k8s.io", "priorityclasses") => cluster::PRIORITY_CLASSES,
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => cluster::ROLE_BINDINGS,
        _ => PLAIN,
    }
}

/// The usual `columnDefinitions` of a resource.
pub fn columns(resource: &Resource) -> Value {
    Layout(printer(resource)).to_json()
}

/// One row with these columns: a cell for each.
pub fn cells(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    Layout(printer(resource)).cells(resource, object, now)
}

/// The whole `Table` of a list. `list_meta` is the metadata of the list: `resourceVersion`, `continue`,
/// `remainingItemCount`.
pub fn table(resource: &Resource, items: &[Value], list_meta: Value, include: IncludeObject, now: Timestamp) -> Value {
    let table = ListTable::new(resource, items, include, now);
    table.document(items.iter().map(|object| table.row(object)).collect(), list_meta)
}

/// The table of a list, row by row.
pub struct ListTable<'a> {
    resource: &'a Resource,
    layout: Layout,
    include: IncludeObject,
    now: Timestamp,
}

impl<'a> ListTable<'a> {
    /// `objects`: those of the list which may need more columns than others ([`may_need_more`]).
    pub fn new<'v>(
        resource: &'a Resource,
        objects: impl IntoIterator<Item = &'v Value>,
        include: IncludeObject,
        now: Timestamp,
    ) -> Self {
        Self { resource, layout: Layout::of(resource, objects), include, now }
    }

    pub fn row(&self, object: &Value) -> Value {
        row(self.layout, self.resource, object, self.include, self.now)
    }

    pub fn document(&self, rows: Vec<Value>, list_meta: Value) -> Value {
        document(self.layout.to_json(), rows, list_meta)
    }
}

/// The `Table` of one object, as the response to a read or a write.
pub fn table_of_one(resource: &Resource, object: &Value, include: IncludeObject, now: Timestamp) -> Value {
    Heading::default().table(resource, object, include, now)
}

/// The columns that the tables of one watch have sent. Only the first table contains them, and one that needs more
/// columns: an added column stays, so that the rows of a watch never lose one.
#[derive(Default)]
pub struct Heading {
    layout: Option<Layout>,
    told: bool,
}

impl Heading {
    /// For a watch that continues from a list of these objects.
    pub fn after<'v>(resource: &Resource, objects: impl IntoIterator<Item = &'v Value>) -> Self {
        Heading { layout: Some(Layout::of(resource, objects)), told: false }
    }

    /// The `Table` in the next event.
    pub fn table(&mut self, resource: &Resource, object: &Value, include: IncludeObject, now: Timestamp) -> Value {
        let needed = Layout::of(resource, [object]);
        let layout = match self.layout {
            Some(layout) if layout.0.len() >= needed.0.len() => layout,
            _ => {
                self.told = false;
                *self.layout.insert(needed)
            }
        };
        let columns = if std::mem::replace(&mut self.told, true) { Value::Null } else { layout.to_json() };
        let mut meta = json!({});
        if let Some(version) = object.pointer("/metadata/resourceVersion") {
            meta["resourceVersion"] = version.clone();
        }
        document(columns, vec![row(layout, resource, object, include, now)], meta)
    }
}

fn document(columns: Value, rows: Vec<Value>, meta: Value) -> Value {
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "columnDefinitions": columns, "rows": rows,
    })
}

fn row(layout: Layout, resource: &Resource, object: &Value, include: IncludeObject, now: Timestamp) -> Value {
    let shown = match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Metadata => partial_object_metadata(object),
        IncludeObject::Object => {
            // Stored objects and list items have no `apiVersion` and `kind`; an object by itself needs them.
            let mut whole = object.clone();
            if let Some(fields) = whole.as_object_mut() {
                fields.insert("apiVersion", resource.api_version().into());
                fields.insert("kind", resource.kind.into());
            }
            whole
        }
    };
    let mut row = json!({"cells": layout.cells(resource, object, now), "object": shown});
    if (resource.group, resource.plural) == ("", "pods")
        && let Some(condition) = pods::completed(object)
    {
        row["conditions"] = json!([condition]);
    }
    row
}

/// The part of an object for a client that requests metadata only.
pub fn partial_object_metadata(object: &Value) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

pub fn partial_object_metadata_list(items: &[Value], list_meta: Value) -> Value {
    let items: Vec<Value> = items.iter().map(partial_object_metadata).collect();
    json!({
        "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": list_meta, "items": items,
    })
}
