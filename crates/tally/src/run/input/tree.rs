//! YAML and JSON as a tree with source positions, so that an error about a field can name its line.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, Error, Options, Spanned};

/// Maximum nesting depth of a document: the same as the API accepts.
const MAX_DEPTH: usize = 50;

#[derive(Debug)]
pub struct Tree {
    pub place: Place,
    node: Node,
}

/// Both start at 1; 0 means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

#[derive(Debug)]
enum Node {
    Leaf(Value),
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
}

/// Text that cannot be parsed.
#[derive(Debug, PartialEq, Eq)]
pub struct Unreadable {
    pub place: Place,
    pub why: String,
}

impl Tree {
    /// Reads one YAML document.
    pub fn parse(text: &str) -> Result<Self, Unreadable> {
        serde_saphyr::from_str_with_options::<Self>(text, options()).map_err(|error| unreadable(&error))
    }

    /// JSON that was parsed elsewhere: it has no positions.
    pub fn of(value: Value) -> Self {
        let node = match value {
            Value::Array(items) => Node::List(items.into_iter().map(Self::of).collect()),
            Value::Object(map) => Node::Map(map.into_iter().map(|(key, value)| (key, Self::of(value))).collect()),
            leaf => Node::Leaf(leaf),
        };
        Self { place: Place::default(), node }
    }

    pub fn value(&self) -> Value {
        match &self.node {
            Node::Leaf(value) => value.clone(),
            Node::List(items) => items.iter().map(Self::value).collect(),
            Node::Map(entries) => entries.iter().map(|(key, tree)| (key.clone(), tree.value())).collect(),
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self.node, Node::Leaf(Value::Null))
    }

    pub fn is_map(&self) -> bool {
        matches!(self.node, Node::Map(_))
    }

    /// The type of the node, for messages.
    pub fn described(&self) -> &'static str {
        match &self.node {
            Node::Leaf(Value::String(_)) => "a string",
            Node::Leaf(_) => "a scalar",
            Node::List(_) => "a list",
            Node::Map(_) => "an object",
        }
    }

    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.node {
            Node::Map(entries) => entries.iter().find(|(known, _)| known == key).map(|(_, tree)| tree),
            _ => None,
        }
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        match &self.get(key)?.node {
            Node::Leaf(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// Adds a string field in front that does not exist yet.
    pub fn with(mut self, key: &str, text: &str) -> Self {
        if let Node::Map(entries) = &mut self.node {
            entries.insert(0, (key.to_owned(), Self { place: self.place, node: Node::Leaf(text.into()) }));
        }
        self
    }

    /// Takes the items out of a list.
    pub fn into_items(self, key: &str) -> Vec<Self> {
        let Node::Map(entries) = self.node else { return Vec::new() };
        match entries.into_iter().find(|(known, _)| known == key) {
            Some((_, Self { node: Node::List(items), .. })) => items,
            _ => Vec::new(),
        }
    }

    /// The position of a field such as `spec.containers[0].name`, or of the nearest existing part of its path.
    pub fn place_of(&self, field: &str) -> Place {
        let mut tree = self;
        let mut nearest = self.place;
        for step in field.split(['.', '[', ']']).filter(|step| !step.is_empty()) {
            let next = match &tree.node {
                Node::List(items) => step.parse::<usize>().ok().and_then(|index| items.get(index)),
                _ => tree.get(step),
            };
            let Some(next) = next else { break };
            tree = next;
            if tree.place != Place::default() {
                nearest = tree.place;
            }
        }
        nearest
    }

    /// The same tree, moved down by `lines` lines.
    pub fn lowered(mut self, lines: usize) -> Self {
        self.lower(lines);
        self
    }

    fn lower(&mut self, lines: usize) {
        if self.place.line > 0 {
            self.place.line += lines;
        }
        match &mut self.node {
            Node::Leaf(_) => {}
            Node::List(items) => items.iter_mut().for_each(|tree| tree.lower(lines)),
            Node::Map(entries) => entries.iter_mut().for_each(|(_, tree)| tree.lower(lines)),
        }
    }
}

fn options() -> Options {
    let mut options = Options::default();
    options.duplicate_keys = DuplicateKeyPolicy::Error;
    options.with_snippet = false;
    // File modes: 0644 is octal, as users expect.
    options.legacy_octal_numbers = true;
    if let Some(budget) = &mut options.budget {
        budget.max_depth = MAX_DEPTH;
    }
    options
}

fn unreadable(error: &Error) -> Unreadable {
    let error = error.without_snippet();
    let (at, why) = match error {
        Error::DuplicateMappingKey { key, location } => {
            (Some(*location), format!("duplicate key {:?}", key.as_deref().unwrap_or_default()))
        }
        Error::ExternalMessage { msg, .. } | Error::Message { msg, .. } => (error.location(), msg.clone()),
        other => (other.location(), other.to_string()),
    };
    let place = at.map_or(Place::default(), |at| Place { line: at.line() as usize, column: at.column() as usize });
    // The position is printed in front of the message.
    let why = why.split(" at line ").next().unwrap_or_default().to_owned();
    Unreadable { place, why }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value: node, referenced: at, .. } = Spanned::<Node>::deserialize(deserializer)?;
        Ok(Self { place: Place { line: at.line() as usize, column: at.column() as usize }, node })
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Build)
    }
}

struct Build;

impl<'de> Visitor<'de> for Build {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML that can be represented as JSON")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf(Value::Null))
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Node, E> {
        Ok(Node::Leaf(truth.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node, E> {
        Ok(Node::Leaf(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node, E> {
        Ok(Node::Leaf(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Node, E> {
        // A whole number is an integer, however it is written.
        let whole = number.fract() == 0.0 && number.abs() < 9e15;
        Ok(Node::Leaf(if whole { (number as i64).into() } else { number.into() }))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Leaf(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = access.next_key::<Node>()? {
            let key = match key {
                Node::Leaf(Value::String(text)) => text,
                Node::Leaf(other) => other.to_string(),
                Node::List(_) | Node::Map(_) => return Err(serde::de::Error::custom("a key must be a scalar")),
            };
            entries.push((key, access.next_value()?));
        }
        Ok(Node::Map(entries))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    const JOB: &str = "kind: Job\nspec:\n  completions: 3\n  mode: 0644\n  half: 0.5\n  template:\n    containers:\n    - name: a\n    - name: b\n      image: x\n";

    #[test]
    fn fields_have_places() {
        let tree = Tree::parse(JOB).unwrap();
        for (field, line) in [
            ("spec.completions", 3),
            ("spec.template.containers[1].image", 10),
            ("spec.template.containers[1].command", 9),
            ("spec.template.containers[7]", 8),
            ("spec.nonsense", 3),
            ("status", 1),
        ] {
            assert_eq!(tree.place_of(field).line, line, "{field}");
        }
        assert_eq!(tree.lowered(100).place_of("spec.completions").line, 103);
    }

    #[test]
    fn values_are_those_of_json() {
        let value = Tree::parse(JOB).unwrap().value();
        assert_eq!(value["spec"]["mode"], 420);
        assert_eq!(value["spec"]["half"], 0.5);
        assert_eq!(value["spec"]["template"]["containers"][1], json!({"name": "b", "image": "x"}));
        assert_eq!(Tree::of(value.clone()).value(), value);
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_place() {
        for (text, line, told) in [
            ("a: 1\nb: [1, 2\n", 3, ""),
            ("a: 1\na: 2\n", 2, "duplicate key \"a\""),
            ("a: 1\n\tb: 2\n", 2, ""),
            ("a: *b\n", 1, "anchor"),
        ] {
            let error = Tree::parse(text).unwrap_err();
            assert!(error.why.contains(told) && !error.why.contains("at line"), "{text:?}: {error:?}");
            assert!(error.place.line > 0 && error.place.line <= line, "{text:?}: {error:?}");
        }
        assert!(Tree::parse(&"[".repeat(60)).is_err());
    }
}
