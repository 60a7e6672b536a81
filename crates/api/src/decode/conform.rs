//! Conforms a parsed document to a structure of the schema: one pass that outputs known fields and reports all others.

use tally_value::{List, Map, Value};

use super::json::JsonNode;
use super::{base64, times};
use crate::quantity;
use crate::schema::{Field, Shape, Struct, Type, schema};

/// The most unknown and duplicate fields to report. A body full of errors must not fill the response.
pub const MAX_TOLD: usize = 100;

/// The deepest nesting of an object: a deeper one could be stored, but not be decoded again. Only values without a
/// structure of their own can reach it.
pub const MAX_DEPTH: usize = 100;

/// Whose messages report a wrong type: those of the JSON decoder, or those of the converter behind strategic merge
/// patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    Json,
    Converter,
}

/// The result for a document.
#[derive(Debug)]
pub struct Conformed {
    pub object: Map,
    /// `unknown field "spec.foo"`, `duplicate field "spec.bar"`.
    pub told: Vec<String>,
    /// A time had a fraction of a second, or a list that is always shown was empty.
    pub unsettled: bool,
}

/// The object, or why it is not one of this kind. Of several wrong types the first is reported, except that text which
/// is not a valid time or quantity stops decoding at once.
pub fn conform(structure: &'static Struct, node: &JsonNode<'_>, words: Words, tell: bool) -> Result<Conformed, String> {
    let mut pass = Pass { words, tell, steps: Vec::new(), told: Vec::new(), wrong: None, unsettled: false };
    let object = match node {
        JsonNode::Map(entries) => pass.structure(structure, entries)?,
        _ => structure.zero().as_object().cloned().unwrap_or_default(),
    };
    if let Some(wrong) = pass.wrong {
        return Err(wrong);
    }
    Ok(Conformed { object, told: pass.told, unsettled: pass.unsettled })
}

/// A step of the path to the current value.
enum Step<'n> {
    Field(&'static Struct, &'static Field),
    Index(usize),
    Key(&'n str),
}

struct Pass<'n> {
    words: Words,
    tell: bool,
    steps: Vec<Step<'n>>,
    told: Vec<String>,
    /// The first value of a wrong type. Decoding continues, because an error that takes precedence may follow.
    wrong: Option<String>,
    unsettled: bool,
}

/// The error that stops decoding.
type Stop = String;

impl<'n> Pass<'n> {
    fn structure(
        &mut self,
        structure: &'static Struct,
        entries: &'n [(std::borrow::Cow<'n, str>, JsonNode<'n>)],
    ) -> Result<Map, Stop> {
        let mut out = Map::with_capacity(entries.len());
        let mut seen: u128 = 0;
        for (key, node) in entries {
            if let Some(why) = structure.refuses(key).filter(|_| !matches!(node, JsonNode::Null)) {
                let text = format!("{}: {why}", self.path(key));
                self.wrong.get_or_insert(text);
                continue;
            }
            let Some(position) = structure.position(key) else {
                self.tell("unknown", key);
                continue;
            };
            let bit = 1_u128.checked_shl(position as u32).unwrap_or_default();
            if seen & bit != 0 {
                self.tell("duplicate", key);
            }
            seen |= bit;
            let field = &structure.fields[position];
            self.steps.push(Step::Field(structure, field));
            let value = self.value(&field.ty, node)?;
            self.steps.pop();
            match value.map(|value| shown(field, value)) {
                Some(Shown::Value(value)) => drop(out.insert(field.name, value)),
                Some(Shown::LeftOut) if matches!(field.ty.shape, Shape::List(_)) && !field.omit_empty => {
                    // Validation distinguishes an empty list from an absent one; storage does not.
                    self.unsettled = true;
                    out.insert(field.name, Value::Array(List::default()));
                }
                Some(Shown::LeftOut) => drop(out.remove(field.name)),
                None => {}
            }
        }
        for field in &structure.fields {
            if field.shows_zero() && !out.contains_key(field.name) {
                out.insert(field.name, field.ty.zero());
            }
        }
        Ok(out)
    }

    /// None: the value is absent, or of a wrong type.
    fn value(&mut self, ty: &'static Type, node: &'n JsonNode<'n>) -> Result<Option<Value>, Stop> {
        if matches!(node, JsonNode::Null) {
            return Ok(None);
        }
        Ok(match (&ty.shape, node) {
            (Shape::Text, JsonNode::Text(text)) => Some(Value::from(text.as_ref())),
            (Shape::Bool, JsonNode::Bool(truth)) => Some((*truth).into()),
            (Shape::Int32 | Shape::Int64, JsonNode::Number(literal)) => {
                let number = self.whole(ty, literal)?;
                number.map(Value::from)
            }
            (Shape::Float, JsonNode::Number(literal)) => literal.parse::<f64>().ok().map(Value::from),
            (Shape::Struct(id), JsonNode::Map(entries)) => {
                Some(Value::Object(self.structure(schema().get(*id), entries)?))
            }
            (Shape::List(inner), JsonNode::List(items)) => {
                let mut out = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    self.steps.push(Step::Index(index));
                    let value = self.value(inner, item)?;
                    self.steps.pop();
                    out.push(value.unwrap_or_else(|| element_zero(inner)));
                }
                Some(Value::Array(out.into()))
            }
            (Shape::Map(inner), JsonNode::Map(entries)) => {
                let mut out = Map::with_capacity(entries.len());
                for (key, item) in entries {
                    if out.contains_key(key.as_ref()) {
                        self.tell("duplicate", key);
                    }
                    self.steps.push(Step::Key(key));
                    let value = self.value(inner, item)?;
                    self.steps.pop();
                    out.insert(key.as_ref(), value.unwrap_or_else(|| element_zero(inner)));
                }
                Some(Value::Object(out))
            }
            (Shape::Raw, node) if self.steps.len() + node.depth() > MAX_DEPTH => {
                return Err("exceeded max depth".to_owned());
            }
            (Shape::Raw, node) => Some(node.to_value()),
            (Shape::Quantity, node) => {
                let text = match node {
                    JsonNode::Text(text) | JsonNode::Number(text) => text.trim(),
                    // Any other value is not a number.
                    _ => "{}",
                };
                let canonical = quantity::canonical(text).map_err(|error| error.to_string())?;
                Some(Value::from(canonical))
            }
            (Shape::Time | Shape::MicroTime, JsonNode::Text(text)) => {
                let time = times::read(text, ty.shape == Shape::MicroTime)?;
                self.unsettled |= time.as_ref().is_some_and(|time| time.below_second) && ty.shape == Shape::Time;
                time.map(|time| Value::from(time.text))
            }
            (Shape::IntOrString, JsonNode::Text(text)) => Some(Value::from(text.as_ref())),
            (Shape::IntOrString, JsonNode::Number(literal)) => match literal.parse::<i32>() {
                Ok(number) => Some(number.into()),
                Err(_) => return Err(self.mismatch(&format!("number {literal}"), "int32")),
            },
            // In Go these types decode themselves from the text of the value, and their error stops decoding.
            (Shape::IntOrString, node) => return Err(self.mismatch(node.kind(), "int32")),
            (Shape::Time | Shape::MicroTime, node) => return Err(self.mismatch(node.kind(), "string")),
            (Shape::Bytes, JsonNode::Text(text)) => match base64::canonical(text) {
                Ok(canonical) => Some(Value::from(canonical)),
                Err(at) => {
                    let text = format!("illegal base64 data at input byte {at}");
                    let told =
                        if self.words == Words::Json { text } else { format!("error decoding from json: {text}") };
                    self.wrong.get_or_insert(told);
                    None
                }
            },
            (_, node) => {
                self.wrong_type(ty, node)?;
                None
            }
        })
    }

    fn whole(&mut self, ty: &Type, literal: &str) -> Result<Option<i64>, Stop> {
        let number = literal.parse::<i64>().ok();
        if self.words == Words::Converter {
            // The converter accepts 2.0 as 2, and truncates a number that is too large to its low bits.
            let number = number.or_else(|| literal.parse::<f64>().ok().filter(|x| x.fract() == 0.0).map(|x| x as i64));
            return match number {
                Some(number) if ty.shape == Shape::Int32 => Ok(Some(i64::from(number as i32))),
                Some(number) => Ok(Some(number)),
                None => Err(format!("cannot convert float64 to {}", ty.go)),
            };
        }
        let number = number.filter(|number| ty.shape == Shape::Int64 || i32::try_from(*number).is_ok());
        if number.is_none() {
            let text = self.mismatch(&format!("number {literal}"), &ty.go);
            self.wrong.get_or_insert(text);
        }
        Ok(number)
    }

    fn wrong_type(&mut self, ty: &Type, node: &JsonNode<'_>) -> Result<(), Stop> {
        if self.words == Words::Json {
            let text = self.mismatch(node.kind(), &ty.go);
            self.wrong.get_or_insert(text);
            return Ok(());
        }
        let given = converter_kind(node);
        Err(match &ty.shape {
            Shape::List(_) | Shape::Bytes => format!("cannot restore slice from {given}"),
            Shape::Map(_) => format!("cannot restore map from {given}"),
            Shape::Struct(_) => format!("cannot restore struct from: {given}"),
            // Go could convert a whole number to a character, which no client intends.
            Shape::Text if given == "int64" => format!("cannot convert int64 to {}", ty.go),
            Shape::Text => "unrecognized type: string".to_owned(),
            _ => format!("unrecognized type: {}", ty.go),
        })
    }

    /// `json: cannot unmarshal string into Go struct field JobSpec.spec.parallelism of type int32`. List positions and
    /// map keys are not part of that path, embedded structures are.
    fn mismatch(&self, given: &str, wanted: &str) -> String {
        if self.words == Words::Converter {
            return format!("json: cannot unmarshal {given} into Go value of type {wanted}");
        }
        let (mut owner, mut path) = ("", String::new());
        for step in &self.steps {
            if let Step::Field(structure, field) = step {
                owner = structure.name;
                for name in field.via.into_iter().chain([field.name]) {
                    path.push('.');
                    path.push_str(name);
                }
            }
        }
        format!("json: cannot unmarshal {given} into Go struct field {owner}{path} of type {wanted}")
    }

    fn tell(&mut self, what: &str, key: &str) {
        if !self.tell || self.told.len() >= MAX_TOLD {
            return;
        }
        let text = format!("{what} field \"{}\"", self.path(key));
        if !self.told.contains(&text) {
            self.told.push(text);
        }
    }

    /// The path of a field of the current value.
    fn path(&self, key: &str) -> String {
        let mut path = String::new();
        for step in &self.steps {
            match step {
                Step::Field(_, field) => join(&mut path, field.name),
                Step::Key(key) => join(&mut path, key),
                Step::Index(index) => path.push_str(&format!("[{index}]")),
            }
        }
        join(&mut path, key);
        path
    }
}

fn join(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

enum Shown {
    Value(Value),
    /// Empty, and omitted; if the wire form must show something, it is the zero value of the field.
    LeftOut,
}

fn shown(field: &Field, value: Value) -> Shown {
    let empty = !field.ty.pointer
        && match (&field.ty.shape, &value) {
            (Shape::Text | Shape::Bytes, Value::String(text)) => text.is_empty(),
            (Shape::Int32 | Shape::Int64, Value::Number(number)) => number.as_i64() == Some(0),
            (Shape::Float, Value::Number(number)) => number.as_f64() == Some(0.0),
            (Shape::Bool, Value::Bool(truth)) => !truth,
            (Shape::List(_), Value::Array(items)) => items.is_empty(),
            (Shape::Map(_), Value::Object(map)) => map.is_empty(),
            _ => false,
        };
    if empty { Shown::LeftOut } else { Shown::Value(value) }
}

/// The value of `null` in a list or map.
fn element_zero(inner: &Type) -> Value {
    if inner.shape == Shape::Bytes { "".into() } else { inner.zero() }
}

/// The kind of a value as Go's reflection names it.
fn converter_kind(node: &JsonNode<'_>) -> &'static str {
    match node {
        JsonNode::Null => "nil",
        JsonNode::Bool(_) => "bool",
        JsonNode::Number(literal) if literal.parse::<i64>().is_ok() => "int64",
        JsonNode::Number(_) => "float64",
        JsonNode::Text(_) => "string",
        JsonNode::List(_) => "slice",
        JsonNode::Map(_) => "map",
    }
}
