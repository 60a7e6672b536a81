//! Field selectors: `metadata.name=a,status.phase!=Running`, and the selectable fields of each kind.

use std::borrow::Cow;

use tally_value::Value;

use crate::kinds::Resource;
use crate::status_error::StatusError;

use super::Facets;
use super::facets::scalar;

/// Conditions on selectable fields, all of which must hold. The default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    /// The index in the kind's table of fields.
    field: usize,
    label: &'static str,
    equal: bool,
    value: String,
}

impl FieldSelector {
    pub fn parse(resource: &Resource, text: &str) -> Result<Self, StatusError> {
        let selectable = Selectable::of(resource);
        // kube-apiserver sorts the terms first, which decides which error it reports.
        let mut parts = split_unescaped(text);
        parts.sort_unstable();
        let mut found = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let Some((label, equal, value)) = split_term(part) else {
                return Err(StatusError::bad_request(format!("invalid selector: '{text}'; can't understand '{part}'")));
            };
            found.push((label, equal, unescape(value).map_err(StatusError::bad_request)?));
        }
        let terms = found.into_iter().map(|(label, equal, value)| {
            let field = selectable.find(label).ok_or_else(|| StatusError::bad_request(selectable.unknown(label)))?;
            let label = selectable.fields.get(field).map_or("", |field| field.label);
            Ok(Term { field, label, equal, value: value.into_owned() })
        });
        Ok(Self { terms: terms.collect::<Result<_, StatusError>>()? })
    }

    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn matches(&self, facets: &Facets<'_>) -> bool {
        self.terms.iter().all(|term| (facets.field(term.field) == term.value) == term.equal)
    }

    /// Looks at no other fields than those that are asked for.
    pub(super) fn matches_object(&self, resource: &Resource, object: &Value) -> bool {
        let fields = Selectable::of(resource).fields;
        self.terms.iter().all(|term| {
            let value = fields.get(term.field).map(|field| field.value(fields, object)).unwrap_or_default();
            (value == term.value) == term.equal
        })
    }

    /// The value this field must have, if there is one.
    pub(super) fn exact(&self, label: &str) -> Option<&str> {
        self.terms.iter().find(|term| term.equal && term.label == label).map(|term| term.value.as_str())
    }

    /// The sections of objects that must be read to decide.
    pub(super) fn sections(&self, resource: &Resource) -> impl Iterator<Item = &'static str> {
        let fields = Selectable::of(resource).fields;
        let asked = self.terms.iter().filter_map(|term| fields.get(term.field));
        asked.flat_map(|field| [Some(field), field.otherwise(fields)]).flatten().map(|field| field.path.0)
    }
}

/// Splits at commas without a backslash before them.
fn split_unescaped(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|character| {
        let comma = character == ',' && !escaped;
        escaped = character == '\\' && !escaped;
        comma
    })
    .collect()
}

/// Field, whether it must be equal, value: split at the first operator.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.find('=')?;
    let (before, after) = term.split_at(at);
    match before.strip_suffix('!') {
        Some(label) => Some((label, false, after.strip_prefix('=')?)),
        None => Some((before, true, after.strip_prefix("==").or_else(|| after.strip_prefix('='))?)),
    }
}

/// A value may contain `\`, `,` and `=` after a backslash; no other escapes are allowed.
fn unescape(value: &str) -> Result<Cow<'_, str>, String> {
    if !value.contains(['\\', ',', '=']) {
        return Ok(Cow::Borrowed(value));
    }
    let mut text = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => text.push(escaped),
                Some(other) => return Err(format!("invalid field selector: invalid escape sequence: \\{other}")),
                None => return Err("invalid field selector: invalid escape sequence: \\".to_owned()),
            },
            // kube-apiserver prints the number of the character.
            ',' | '=' => {
                let number = u32::from(character);
                return Err(format!("invalid field selector: unescaped character in value: {number}"));
            }
            other => text.push(other),
        }
    }
    Ok(Cow::Owned(text))
}

/// A selectable field of a kind.
pub(super) struct Field {
    /// The name that clients use.
    pub label: &'static str,
    /// The path in the stored object; the second part is empty for a top-level field.
    pub path: (&'static str, &'static str),
    /// The value if the object has none.
    pub absent: &'static str,
}

impl Field {
    /// As the object has it, or its substitute.
    fn value<'a>(&self, fields: &'static [Field], object: &'a Value) -> Cow<'a, str> {
        let text = |field: &Field| field.find(object).map(scalar).unwrap_or_default();
        match (text(self), self.otherwise(fields)) {
            (value, _) if !value.is_empty() => value,
            (_, Some(other)) => text(other),
            (_, None) => Cow::Borrowed(self.absent),
        }
    }

    pub(super) fn find<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        let section = object.get(self.path.0)?;
        if self.path.1.is_empty() { Some(section) } else { section.get(self.path.1) }
    }

    /// The field whose value is used if this one is empty.
    pub(super) fn otherwise(&self, fields: &'static [Field]) -> Option<&'static Field> {
        // The reporter of an Event is in one of two fields.
        let other = if self.path == ("source", "component") { "reportingComponent" } else { return None };
        fields.iter().find(|field| field.path.0 == other)
    }
}

pub(super) struct Selectable {
    pub fields: &'static [Field],
    unknown: Unknown,
}

/// The error of a kind for a field that is not selectable.
enum Unknown {
    /// Kinds that do not define their selectable fields.
    Common,
    Plain,
    Named,
}

impl Selectable {
    pub(super) fn of(resource: &Resource) -> &'static Self {
        match (resource.group, resource.plural) {
            ("", "pods") => &PODS,
            ("", "nodes") => &NODES,
            ("", "namespaces") => &NAMESPACES,
            ("", "events") => &EVENTS,
            ("events.k8s.io", "events") => &NEW_EVENTS,
            ("", "secrets") => &SECRETS,
            ("", "services") => &SERVICES,
            ("", "replicationcontrollers") => &REPLICATION_CONTROLLERS,
            ("batch", "jobs") => &JOBS,
            _ => &COMMON,
        }
    }

    fn find(&self, label: &str) -> Option<usize> {
        // Clients of the first versions send `spec.host`.
        let label = if label == "spec.host" { "spec.nodeName" } else { label };
        self.fields.iter().position(|field| field.label == label)
    }

    fn unknown(&self, label: &str) -> String {
        match self.unknown {
            Unknown::Plain => format!("field label not supported: {label}"),
            Unknown::Named => format!("field label {label:?} not supported for Job"),
            Unknown::Common => {
                format!("{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            }
        }
    }
}

const fn field(label: &'static str, section: &'static str, name: &'static str, absent: &'static str) -> Field {
    Field { label, path: (section, name), absent }
}

const NAME: Field = field("metadata.name", "metadata", "name", "");
const NAMESPACE: Field = field("metadata.namespace", "metadata", "namespace", "");
const REPLICAS: Field = field("status.replicas", "status", "replicas", "0");

static COMMON: Selectable = Selectable { fields: &[NAME, NAMESPACE], unknown: Unknown::Common };

static JOBS: Selectable = Selectable {
    fields: &[NAME, NAMESPACE, field("status.successful", "status", "succeeded", "0")],
    unknown: Unknown::Named,
};

static PODS: Selectable = Selectable {
    fields: &[
        NAME,
        NAMESPACE,
        field("spec.nodeName", "spec", "nodeName", ""),
        field("spec.restartPolicy", "spec", "restartPolicy", ""),
        field("spec.schedulerName", "spec", "schedulerName", ""),
        field("spec.serviceAccountName", "spec", "serviceAccountName", ""),
        field("spec.hostNetwork", "spec", "hostNetwork", "false"),
        field("status.phase", "status", "phase", ""),
        field("status.podIP", "status", "podIP", ""),
        // Accepted, but a list: its value is always "".
        field("status.podIPs", "status", "podIPs", ""),
        field("status.nominatedNodeName", "status", "nominatedNodeName", ""),
    ],
    unknown: Unknown::Plain,
};

static NODES: Selectable = Selectable {
    fields: &[NAME, field("spec.unschedulable", "spec", "unschedulable", "false")],
    unknown: Unknown::Plain,
};

static NAMESPACES: Selectable =
    Selectable { fields: &[NAME, field("status.phase", "status", "phase", "")], unknown: Unknown::Plain };

static SECRETS: Selectable =
    Selectable { fields: &[NAME, NAMESPACE, field("type", "type", "", "")], unknown: Unknown::Plain };

static SERVICES: Selectable = Selectable {
    fields: &[
        NAME,
        NAMESPACE,
        field("spec.clusterIP", "spec", "clusterIP", ""),
        field("spec.type", "spec", "type", ""),
    ],
    unknown: Unknown::Plain,
};

static REPLICATION_CONTROLLERS: Selectable =
    Selectable { fields: &[NAME, NAMESPACE, REPLICAS], unknown: Unknown::Plain };

static EVENTS: Selectable = Selectable {
    fields: &[
        NAME,
        NAMESPACE,
        field("involvedObject.kind", "involvedObject", "kind", ""),
        field("involvedObject.namespace", "involvedObject", "namespace", ""),
        field("involvedObject.name", "involvedObject", "name", ""),
        field("involvedObject.uid", "involvedObject", "uid", ""),
        field("involvedObject.apiVersion", "involvedObject", "apiVersion", ""),
        field("involvedObject.resourceVersion", "involvedObject", "resourceVersion", ""),
        field("involvedObject.fieldPath", "involvedObject", "fieldPath", ""),
        field("reason", "reason", "", ""),
        field("reportingComponent", "reportingComponent", "", ""),
        field("source", "source", "component", ""),
        field("type", "type", "", ""),
    ],
    unknown: Unknown::Plain,
};

/// The names of `events.k8s.io`; Events are stored in the form of `v1`.
static NEW_EVENTS: Selectable = Selectable {
    fields: &[
        NAME,
        NAMESPACE,
        field("regarding.kind", "involvedObject", "kind", ""),
        field("regarding.namespace", "involvedObject", "namespace", ""),
        field("regarding.name", "involvedObject", "name", ""),
        field("regarding.uid", "involvedObject", "uid", ""),
        field("regarding.apiVersion", "involvedObject", "apiVersion", ""),
        field("regarding.resourceVersion", "involvedObject", "resourceVersion", ""),
        field("regarding.fieldPath", "involvedObject", "fieldPath", ""),
        field("reason", "reason", "", ""),
        field("reportingController", "reportingComponent", "", ""),
        field("type", "type", "", ""),
    ],
    unknown: Unknown::Plain,
};
