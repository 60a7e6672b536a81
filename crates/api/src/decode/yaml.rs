//! YAML bodies. They are equivalent to their JSON form: keys become strings, of duplicates the last one is used.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Error, Options};

use super::json::Node;

/// The deepest nesting of a document. It is twice what the deepest object of the API needs, and less than the limit of
/// JSON: a level costs the YAML parser twenty kilobytes of stack in a build without optimisation, and a stack overflow
/// in one thread aborts the whole server.
const MAX_DEPTH: usize = 50;

pub struct Parsed {
    /// Keys in alphabetical order, as in the JSON form.
    pub node: Node<'static>,
    /// Duplicate keys, with the messages of the YAML decoder.
    pub told: Vec<String>,
}

pub fn parse(body: &[u8]) -> Result<Parsed, String> {
    let text = String::from_utf8_lossy(body);
    if text.trim().is_empty() {
        return Ok(Parsed { node: Node::Null, told: Vec::new() });
    }
    // The text is parsed twice, because the second parse stops at a duplicate: it only determines where that is.
    let read = |policy| match serde_saphyr::from_str_with_options::<Yaml>(&text, options(policy)) {
        // Only the first document is used.
        Err(error) if matches!(error.without_snippet(), Error::MultipleDocuments { .. }) => {
            let all = serde_saphyr::from_multiple_with_options::<Yaml>(&text, options(policy))?;
            Ok(all.into_iter().next().unwrap_or(Yaml(Node::Null)))
        }
        read => read,
    };
    let node = read(DuplicateKeyPolicy::LastWins).map_err(|error| format!("yaml: {}", words(&error, &text)))?.0;
    let told = match read(DuplicateKeyPolicy::Error) {
        Err(error) => duplicate(&error).into_iter().collect(),
        Ok(_) => Vec::new(),
    };
    Ok(Parsed { node, told })
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

/// The error, with the message of Kubernetes' YAML decoder as far as it is known.
fn words(error: &Error, text: &str) -> String {
    let error = error.without_snippet();
    let message = match error {
        Error::ExternalMessage { msg, .. } | Error::Message { msg, .. } => msg.clone(),
        other => other.to_string(),
    };
    let place = error.location().map(|location| (location.line() as usize, location.column() as usize));
    let rest = place.and_then(|(line, column)| {
        let line = text.lines().nth(line.checked_sub(1)?)?;
        Some(line.chars().skip(column.saturating_sub(1)).collect::<String>())
    });
    let (line, rest) = (place.map_or(0, |(line, _)| line), rest.unwrap_or_default());
    let end = text.matches('\n').count() + 1;
    // The scanner of that decoder counts lines from one and does not mention the first; its parser counts from zero.
    let (line, message) = if message.contains("unknown anchor") {
        let name = rest.trim_start_matches('*').chars().take_while(|letter| letter.is_alphanumeric());
        (1, format!("unknown anchor '{}' referenced", name.collect::<String>()))
    } else if message.contains("found a tab") {
        let tab =
            text.lines().skip(line).position(|line| line.starts_with('\t')).map_or(line, |lines| line + 1 + lines);
        (tab, "found a tab character that violates indentation".to_owned())
    } else if ["tabs disallowed", "unexpected character"].iter().any(|told| message.starts_with(told)) {
        (line, "found character that cannot start any token".to_owned())
    } else if message.starts_with("unclosed quote") {
        (end, "found unexpected end of stream".to_owned())
    } else if message.starts_with("unclosed bracket") {
        let bracket = if message.contains('{') { '}' } else { ']' };
        (end - 1, format!("did not find expected ',' or '{bracket}'"))
    } else if let Some((_, wanted)) = message.split_once("did not find expected ") {
        (line.saturating_sub(1), format!("did not find expected {wanted}"))
    } else {
        (if line > 1 { line } else { 0 }, message)
    };
    let scanned = message.starts_with("found ") || message.starts_with("unknown ");
    if line > usize::from(scanned) { format!("line {line}: {message}") } else { message }
}

fn duplicate(error: &Error) -> Option<String> {
    match error.without_snippet() {
        Error::DuplicateMappingKey { key, location } => {
            let (line, key) = (location.line(), key.as_deref().unwrap_or_default());
            Some(format!("yaml: unmarshal errors:\n  line {line}: key {key:?} already set in map"))
        }
        _ => None,
    }
}

struct Yaml(Node<'static>);

impl<'de> Deserialize<'de> for Yaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Build).map(Yaml)
    }
}

struct Build;

impl<'de> Visitor<'de> for Build {
    type Value = Node<'static>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML that has a JSON form")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Node::Null)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Self::Value, E> {
        Ok(Node::Bool(truth))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Node::Number(number.to_string().into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Node::Number(number.to_string().into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        // Without the ".0" of a whole number, as in JSON.
        Ok(Node::Number(number.to_string().into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Node::Text(text.to_owned().into()))
    }

    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(Node::Text(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Yaml(item)) = access.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut entries: Vec<(Cow<'static, str>, Node<'static>)> = Vec::new();
        while let Some(Yaml(key)) = access.next_key()? {
            let key = match key {
                Node::Text(text) | Node::Number(text) => text,
                Node::Bool(truth) => truth.to_string().into(),
                Node::Null => "null".into(),
                Node::List(_) | Node::Map(_) => return Err(serde::de::Error::custom("unsupported map key")),
            };
            let Yaml(value) = access.next_value()?;
            entries.push((key, value));
        }
        // The sort is stable, so that of equal keys the last stays last.
        entries.sort_by(|left, right| left.0.cmp(&right.0));
        entries.reverse();
        entries.dedup_by(|earlier, later| earlier.0 == later.0);
        entries.reverse();
        Ok(Node::Map(entries))
    }
}
