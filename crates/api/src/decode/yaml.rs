//! YAML bodies. They are equivalent to their JSON form: keys become strings, and the last of duplicate keys wins.

use serde_saphyr::{DuplicateKeyPolicy, Error};

use super::json::JsonNode;
use super::tree::Tree;

pub struct Parsed {
    /// Keys in alphabetical order, as in the JSON form.
    pub node: JsonNode<'static>,
    /// Duplicate keys, with the messages of the YAML decoder.
    pub told: Vec<String>,
}

pub fn parse(body: &[u8]) -> Result<Parsed, String> {
    let text = String::from_utf8_lossy(body);
    if text.trim().is_empty() {
        return Ok(Parsed { node: JsonNode::Null, told: Vec::new() });
    }
    // The text is parsed twice, because the second parse stops at a duplicate: it only determines where that is.
    let tree = Tree::parse_first(&text, DuplicateKeyPolicy::LastWins);
    let node = tree.map_err(|error| format!("yaml: {}", words(&error, &text)))?.into_node();
    let told = match Tree::parse_first(&text, DuplicateKeyPolicy::Error) {
        Err(error) => duplicate(&error).into_iter().collect(),
        Ok(_) => Vec::new(),
    };
    Ok(Parsed { node, told })
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
