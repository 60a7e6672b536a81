//! YAML and JSON as a tree with source positions, so that an error about a field can name its line.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Error, Options, Spanned};
use tally_value::Value;

use super::json::{self, JsonNode};

/// The deepest nesting of a document. It is twice what the deepest object of the API needs, and less than the limit of
/// JSON: a level costs the YAML parser twenty kilobytes of stack in a build without optimisation, and a stack overflow
/// in one thread aborts the whole server.
const MAX_DEPTH: usize = 50;

const NOT_A_KEY: &str = "unsupported map key";

/// `P`: [`Position`], or `()` for a reader that needs no positions, which saves stack.
#[derive(Debug)]
pub struct Tree<P = Position> {
    pub position: P,
    content: TreeContent<P>,
}

/// Both start at 1; 0 means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

#[derive(Debug)]
enum TreeContent<P> {
    /// No list and no map.
    Scalar(JsonNode<'static>),
    List(Vec<Tree<P>>),
    /// In order, with duplicates if the policy allows them.
    Map(Vec<(Cow<'static, str>, Tree<P>)>),
}

/// Text that cannot be parsed.
#[derive(Debug, PartialEq, Eq)]
pub struct SourceError {
    pub position: Position,
    pub why: String,
}

impl Tree {
    /// Reads one YAML document. A duplicate key is an error.
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        let read = serde_saphyr::from_str_with_options::<Self>(text, options(DuplicateKeyPolicy::Error));
        read.map_err(|error| source_error(&error))
    }

    /// JSON that was parsed elsewhere: it has no positions.
    pub fn of(value: Value) -> Self {
        let content = match value {
            Value::Array(items) => TreeContent::List(items.into_iter().map(Self::of).collect()),
            Value::Object(map) => TreeContent::Map(
                map.into_iter().map(|(key, value)| (String::from(key).into(), Self::of(value))).collect(),
            ),
            Value::Null => TreeContent::Scalar(JsonNode::Null),
            Value::Bool(truth) => TreeContent::Scalar(JsonNode::Bool(truth)),
            Value::Number(number) => TreeContent::Scalar(JsonNode::Number(number.to_string().into())),
            Value::String(text) => TreeContent::Scalar(JsonNode::Text(String::from(text).into())),
        };
        Self { position: Position::default(), content }
    }

    pub fn value(&self) -> Value {
        match &self.content {
            // Numbers above the largest signed integer stay exact.
            TreeContent::Scalar(JsonNode::Number(literal)) => {
                literal.parse::<u64>().map_or_else(|_| json::number(literal), Value::from)
            }
            TreeContent::Scalar(node) => node.to_value(),
            TreeContent::List(items) => items.iter().map(Self::value).collect(),
            TreeContent::Map(entries) => {
                entries.iter().map(|(key, tree)| (key.clone().into_owned(), tree.value())).collect()
            }
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self.content, TreeContent::Scalar(JsonNode::Null))
    }

    pub fn is_map(&self) -> bool {
        matches!(self.content, TreeContent::Map(_))
    }

    /// The type, for messages.
    pub fn described(&self) -> &'static str {
        match &self.content {
            TreeContent::Scalar(JsonNode::Text(_)) => "a string",
            TreeContent::Scalar(_) => "a scalar",
            TreeContent::List(_) => "a list",
            TreeContent::Map(_) => "an object",
        }
    }

    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.content {
            TreeContent::Map(entries) => entries.iter().find(|(known, _)| known == key).map(|(_, tree)| tree),
            _ => None,
        }
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        match &self.get(key)?.content {
            TreeContent::Scalar(JsonNode::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Adds a string field in front that does not exist yet.
    pub fn with(mut self, key: &str, text: &str) -> Self {
        if let TreeContent::Map(entries) = &mut self.content {
            let content = TreeContent::Scalar(JsonNode::Text(text.to_owned().into()));
            entries.insert(0, (key.to_owned().into(), Self { position: self.position, content }));
        }
        self
    }

    /// Takes the items out of a list.
    pub fn into_items(self, key: &str) -> Vec<Self> {
        let TreeContent::Map(entries) = self.content else { return Vec::new() };
        match entries.into_iter().find(|(known, _)| known == key) {
            Some((_, Self { content: TreeContent::List(items), .. })) => items,
            _ => Vec::new(),
        }
    }

    /// The position of a field such as `spec.containers[0].name`, or of the nearest existing part of its path.
    pub fn position_of(&self, field: &str) -> Position {
        let mut tree = self;
        let mut nearest = self.position;
        for step in field.split(['.', '[', ']']).filter(|step| !step.is_empty()) {
            let next = match &tree.content {
                TreeContent::List(items) => step.parse::<usize>().ok().and_then(|index| items.get(index)),
                _ => tree.get(step),
            };
            let Some(next) = next else { break };
            tree = next;
            if tree.position != Position::default() {
                nearest = tree.position;
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
        if self.position.line > 0 {
            self.position.line += lines;
        }
        match &mut self.content {
            TreeContent::Scalar(_) => {}
            TreeContent::List(items) => items.iter_mut().for_each(|tree| tree.lower(lines)),
            TreeContent::Map(entries) => entries.iter_mut().for_each(|(_, tree)| tree.lower(lines)),
        }
    }
}

impl Tree<()> {
    /// Reads the first document of a YAML text.
    pub(super) fn parse_first(text: &str, duplicate_keys: DuplicateKeyPolicy) -> Result<Self, Error> {
        match serde_saphyr::from_str_with_options::<Self>(text, options(duplicate_keys)) {
            Err(error) if matches!(error.without_snippet(), Error::MultipleDocuments { .. }) => {
                let all = serde_saphyr::from_multiple_with_options::<Self>(text, options(duplicate_keys))?;
                let empty = || Self { position: (), content: TreeContent::Scalar(JsonNode::Null) };
                Ok(all.into_iter().next().unwrap_or_else(empty))
            }
            read => read,
        }
    }

    /// As JSON: keys in order; the last of duplicate keys wins.
    pub(super) fn into_node(self) -> JsonNode<'static> {
        match self.content {
            TreeContent::Scalar(node) => node,
            TreeContent::List(items) => JsonNode::List(items.into_iter().map(Self::into_node).collect()),
            TreeContent::Map(entries) => {
                let mut entries: Vec<_> = entries.into_iter().map(|(key, tree)| (key, tree.into_node())).collect();
                // The sort is stable, so that of equal keys the last stays last.
                entries.sort_by(|left, right| left.0.cmp(&right.0));
                entries.reverse();
                entries.dedup_by(|earlier, later| earlier.0 == later.0);
                entries.reverse();
                JsonNode::Map(entries)
            }
        }
    }
}

fn options(duplicate_keys: DuplicateKeyPolicy) -> Options {
    let mut options = Options::default();
    options.duplicate_keys = duplicate_keys;
    options.with_snippet = false;
    // File modes: users who write 0644 mean an octal number.
    options.legacy_octal_numbers = true;
    if let Some(budget) = &mut options.budget {
        budget.max_depth = MAX_DEPTH;
    }
    options
}

fn source_error(error: &Error) -> SourceError {
    let error = error.without_snippet();
    let (at, why) = match error {
        Error::DuplicateMappingKey { key, location } => {
            (Some(*location), format!("duplicate key {:?}", key.as_deref().unwrap_or_default()))
        }
        Error::ExternalMessage { msg, .. } | Error::Message { msg, .. } => (error.location(), msg.clone()),
        other => (other.location(), other.to_string()),
    };
    let position =
        at.map_or(Position::default(), |at| Position { line: at.line() as usize, column: at.column() as usize });
    // The position is printed in front of the message.
    let why = match why.split(" at line ").next().unwrap_or_default() {
        NOT_A_KEY => "a key must be a scalar".to_owned(),
        why => why.to_owned(),
    };
    SourceError { position, why }
}

/// What is known about where a part of a tree is in its text.
pub trait Locate: Sized {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Tree<Self>, D::Error>;
}

impl Locate for Position {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Tree<Self>, D::Error> {
        let Spanned { value: content, referenced: at, .. } = Spanned::<TreeContent<Self>>::deserialize(deserializer)?;
        Ok(Tree { position: Self { line: at.line() as usize, column: at.column() as usize }, content })
    }
}

impl Locate for () {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Tree<Self>, D::Error> {
        Ok(Tree { position: (), content: TreeContent::deserialize(deserializer)? })
    }
}

impl<'de, P: Locate> Deserialize<'de> for Tree<P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        P::read(deserializer)
    }
}

impl<'de, P: Locate> Deserialize<'de> for TreeContent<P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor(PhantomData))
    }
}

struct TreeVisitor<P>(PhantomData<P>);

impl<'de, P: Locate> Visitor<'de> for TreeVisitor<P> {
    type Value = TreeContent<P>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML that has a JSON form")
    }

    fn visit_unit<E>(self) -> Result<TreeContent<P>, E> {
        Ok(TreeContent::Scalar(JsonNode::Null))
    }

    fn visit_none<E>(self) -> Result<TreeContent<P>, E> {
        Ok(TreeContent::Scalar(JsonNode::Null))
    }

    fn visit_bool<E>(self, truth: bool) -> Result<TreeContent<P>, E> {
        Ok(TreeContent::Scalar(JsonNode::Bool(truth)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<TreeContent<P>, E> {
        Ok(TreeContent::Scalar(JsonNode::Number(number.to_string().into())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<TreeContent<P>, E> {
        Ok(TreeContent::Scalar(JsonNode::Number(number.to_string().into())))
    }

    fn visit_f64<E>(self, number: f64) -> Result<TreeContent<P>, E> {
        // Without the ".0" of a whole number, as in JSON.
        Ok(TreeContent::Scalar(JsonNode::Number(number.to_string().into())))
    }

    fn visit_str<E>(self, text: &str) -> Result<TreeContent<P>, E> {
        Ok(TreeContent::Scalar(JsonNode::Text(text.to_owned().into())))
    }

    fn visit_string<E>(self, text: String) -> Result<TreeContent<P>, E> {
        Ok(TreeContent::Scalar(JsonNode::Text(text.into())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<TreeContent<P>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(TreeContent::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<TreeContent<P>, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = access.next_key::<TreeContent<P>>()? {
            let key = match key {
                TreeContent::Scalar(JsonNode::Text(text) | JsonNode::Number(text)) => text,
                TreeContent::Scalar(JsonNode::Bool(truth)) => truth.to_string().into(),
                TreeContent::Scalar(JsonNode::Null) => "null".into(),
                TreeContent::Scalar(_) | TreeContent::List(_) | TreeContent::Map(_) => {
                    return Err(serde::de::Error::custom(NOT_A_KEY));
                }
            };
            entries.push((key, access.next_value()?));
        }
        Ok(TreeContent::Map(entries))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tally_value::json;

    use super::*;

    const JOB: &str = "kind: Job\nspec:\n  completions: 3\n  mode: 0644\n  half: 0.5\n  template:\n    containers:\n    - name: a\n    - name: b\n      image: x\n";

    #[test]
    fn fields_have_positions() {
        let tree = Tree::parse(JOB).unwrap();
        for (field, line) in [
            ("spec.completions", 3),
            ("spec.template.containers[1].image", 10),
            ("spec.template.containers[1].command", 9),
            ("spec.template.containers[7]", 8),
            ("spec.nonsense", 3),
            ("status", 1),
        ] {
            assert_eq!(tree.position_of(field).line, line, "{field}");
        }
        assert_eq!(tree.lowered(100).position_of("spec.completions").line, 103);
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
    fn what_cannot_be_read_is_told_with_its_position() {
        for (text, line, told) in [
            ("a: 1\nb: [1, 2\n", 3, ""),
            ("a: 1\na: 2\n", 2, "duplicate key \"a\""),
            ("a: 1\n\tb: 2\n", 2, ""),
            ("a: *b\n", 1, "anchor"),
        ] {
            let error = Tree::parse(text).unwrap_err();
            assert!(error.why.contains(told) && !error.why.contains("at line"), "{text:?}: {error:?}");
            assert!(error.position.line > 0 && error.position.line <= line, "{text:?}: {error:?}");
        }
        assert!(Tree::parse(&"[".repeat(60)).is_err());
    }
}
