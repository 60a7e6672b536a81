//! Whether an object is as conforming leaves it. Most objects are, because a controller in this process or the last write
//! made them, and such an object need not be built again.

use tally_value::{Map, Value};

use super::json::JsonNode;
use super::{base64, times};
use crate::quantity;
use crate::schema::{Field, Shape, Struct, Type, schema};

/// Whether conforming this object would change nothing and report nothing. It may say no where that is so.
pub fn is_conformed(structure: &Struct, object: &Map) -> bool {
    let mut always_shown = 0;
    for (name, value) in object {
        let Some(field) = accepted(structure, name) else { return false };
        if !is_conformed_field(field, value) {
            return false;
        }
        always_shown += usize::from(field.shows_zero());
    }
    structure.zero().as_object().is_some_and(|zero| zero.len() == always_shown)
}

/// A map of a patch: its fields, and the maps in it.
pub trait Patch {
    /// None: it is no map.
    fn fields(&self) -> Option<impl Iterator<Item = (&str, &Self)>>;
}

impl Patch for Value {
    fn fields(&self) -> Option<impl Iterator<Item = (&str, &Self)>> {
        Some(self.as_object()?.iter().map(|(name, value)| (name.as_str(), value)))
    }
}

impl Patch for JsonNode<'_> {
    fn fields(&self) -> Option<impl Iterator<Item = (&str, &Self)>> {
        let Self::Map(entries) = self else { return None };
        Some(entries.iter().map(|(name, value)| (name.as_ref(), value)))
    }
}

/// Whether the result of a patch to a conformed object conforms: only what the patch names can have changed. Removes what
/// conforming leaves out, such as a list without items. `directives`: the names that begin with `$` are those of a strategic
/// merge patch.
pub fn leave_out_where_patched(structure: &Struct, object: &mut Map, patch: &impl Patch, directives: bool) -> bool {
    let Some(mut fields) = patch.fields() else { return false };
    let all_conform = fields.all(|(given_name, given)| {
        let (name, is_directive) = match given_name.strip_prefix('$') {
            Some(directive) if directives => match directive.split_once('/') {
                // A directive that is none, or that found nothing to direct, is still there.
                Some((_, name)) if !object.contains_key(given_name) => (name, true),
                _ => return false,
            },
            _ => (given_name, false),
        };
        let Some(field) = accepted(structure, name) else { return false };
        let Some(value) = object.get(name) else { return !field.shows_zero() };
        if let (Shape::Struct(id), Value::Object(_)) = (&field.ty.shape, value)
            && !is_directive
            && given.fields().is_some()
        {
            let Some(Value::Object(inner)) = object.get_mut(name) else { return false };
            return leave_out_where_patched(schema().get(*id), inner, given, directives);
        }
        let is_left_out = is_left_out(field, value) && !field.shows_zero() && is_conformed_value(&field.ty, value);
        if is_left_out {
            object.remove(name);
        }
        is_left_out || object.get(name).is_some_and(|value| is_conformed_field(field, value))
    });
    // The patch may have made the structure, without the fields that are always shown.
    let mut shown = structure.zero().as_object().into_iter().flat_map(Map::keys);
    all_conform && shown.all(|name| object.contains_key(name))
}

/// A field that conforming neither reports nor refuses.
fn accepted<'s>(structure: &'s Struct, name: &str) -> Option<&'s Field> {
    structure.field(name).filter(|_| structure.refuses(name).is_none())
}

fn is_conformed_field(field: &Field, value: &Value) -> bool {
    let zero = || field.shows_zero() && field.ty.zero() == *value;
    if value.is_null() {
        return zero();
    }
    is_conformed_value(&field.ty, value) && (!is_left_out(field, value) || zero())
}

/// Whether the wire form does not show the value, unless it shows the zero value of the field.
pub(crate) fn is_left_out(field: &Field, value: &Value) -> bool {
    !field.ty.pointer
        && match (&field.ty.shape, value) {
            (Shape::Text | Shape::Bytes, Value::String(text)) => text.is_empty(),
            (Shape::Int32 | Shape::Int64 | Shape::Float, Value::Number(number)) => number.as_f64() == Some(0.0),
            (Shape::Bool, Value::Bool(truth)) => !truth,
            (Shape::List(_), Value::Array(items)) => items.is_empty(),
            (Shape::Map(_), Value::Object(map)) => map.is_empty(),
            _ => false,
        }
}

fn is_conformed_value(ty: &Type, value: &Value) -> bool {
    match (&ty.shape, value) {
        (Shape::Text | Shape::IntOrString, Value::String(_)) | (Shape::Bool, Value::Bool(_)) => true,
        (Shape::Int64, Value::Number(number)) => number.as_i64().is_some(),
        (Shape::Int32 | Shape::IntOrString, Value::Number(number)) => {
            number.as_i64().is_some_and(|number| i32::try_from(number).is_ok())
        }
        (Shape::Struct(id), Value::Object(object)) => is_conformed(schema().get(*id), object),
        (Shape::List(inner), Value::Array(items)) => {
            items.iter().all(|item| !item.is_null() && is_conformed_value(inner, item))
        }
        (Shape::Map(inner), Value::Object(map)) => {
            map.values().all(|item| !item.is_null() && is_conformed_value(inner, item))
        }
        (Shape::Quantity, Value::String(text)) => quantity::canonical(text.trim()).is_ok_and(|it| it == **text),
        (Shape::Time | Shape::MicroTime, Value::String(text)) => {
            let is_micro = ty.shape == Shape::MicroTime;
            let is_it = |read: times::Read| read.text == **text && (is_micro || !read.below_second);
            !is_micro && times::is_canonical(text)
                || times::read(text, is_micro).is_ok_and(|read| read.is_some_and(is_it))
        }
        (Shape::Bytes, Value::String(text)) => base64::canonical(text).is_ok_and(|canonical| canonical == **text),
        // Anything else is rare.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use tally_core::blueprint::{NewPod, pod_body};
    use tally_core::job::JobView;
    use tally_value::json;

    use super::*;
    use crate::catalog;
    use crate::decode::conform;
    use crate::options::FieldValidation;

    #[test]
    fn a_pod_that_the_job_controller_makes_of_a_stored_job_needs_no_conforming() {
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
            "spec": {"template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"},
            }},
        });
        let jobs = catalog::resources().iter().find(|resource| resource.plural == "jobs").unwrap();
        let stored = conform(jobs, job, FieldValidation::Strict).unwrap().object;
        let view = JobView::from_json(stored.to_string().as_bytes()).unwrap();
        for (index, start_gate) in [(None, false), (Some(3), false), (None, true)] {
            let pod = NewPod { name: "j-x".into(), index, failure_count: index, ignored_failure_count: 0 };
            let body = pod_body(&view, &pod, start_gate).unwrap();
            let structure = schema().kind("", "v1", "Pod").unwrap();
            assert!(is_conformed(structure, body.as_object().unwrap()), "{body}");
        }
    }
}
