//! Content negotiation: the format of the response, and the format of the request body.
//!
//! There are two checks, in the order that clients expect. The first considers media types only and answers 406 or 415
//! before anything is looked up; the second considers each clause of the Accept header in order of preference, with its
//! parameters.

use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use tally_api::catalog::discovery::Aggregated;
use tally_api::options::{Format, PatchKind, Query};
use tally_api::status_error::{Details, StatusError};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
/// For objects and their lists, not for tables and discovery.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PROTOBUF_STREAM: &str = "application/vnd.kubernetes.protobuf;stream=watch";
/// Further clauses are ignored.
const MOST_WISHES: usize = 32;

/// The form into which the object is converted for the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The object itself.
    Plain,
    Table {
        version: &'static str,
    },
    /// `PartialObjectMetadata`, or its list.
    Metadata {
        version: &'static str,
        list: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseFormat {
    pub format: Format,
    pub view: View,
    pub pretty: bool,
}

impl ResponseFormat {
    pub const PLAIN: Self = Self { format: Format::Json, view: View::Plain, pretty: false };

    pub const fn media_type(self) -> &'static str {
        match self.format {
            Format::Json => JSON,
            Format::Yaml => YAML,
            Format::Protobuf => PROTOBUF,
        }
    }

    /// The media type of a watch, which is a line of JSON or a frame per event.
    pub const fn stream_type(self) -> &'static str {
        match self.format {
            Format::Json | Format::Yaml => JSON,
            Format::Protobuf => PROTOBUF_STREAM,
        }
    }
}

/// A clause of an Accept header: `application/json;as=Table;v=v1;q=0.9`.
struct Clause<'a> {
    media: &'a str,
    parameters: &'a str,
    quality: f32,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let (media, parameters) = text.split_once(';').unwrap_or((text, ""));
        let mut clause = Self { media: media.trim(), parameters, quality: 1.0 };
        if let Some(quality) = clause.parameter("q") {
            clause.quality = quality.parse().unwrap_or(1.0);
        }
        clause
    }

    fn parameter(&self, name: &str) -> Option<&'a str> {
        let pairs = self.parameters.split(';').filter_map(|pair| pair.split_once('='));
        pairs
            .map(|(key, value)| (key.trim(), value.trim().trim_matches('"')))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    }

    /// The format that it asks for.
    fn format(&self) -> Option<Format> {
        match self.media {
            "*/*" | "application/*" | JSON => Some(Format::Json),
            YAML => Some(Format::Yaml),
            PROTOBUF => Some(Format::Protobuf),
            _ => None,
        }
    }

    fn specific(&self) -> u8 {
        match self.media {
            "*/*" => 0,
            media if media.ends_with("/*") => 1,
            _ => 2,
        }
    }
}

/// The clauses of the Accept header, the most preferred first.
fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> =
        accept.split(',').filter(|text| !text.trim().is_empty()).take(MOST_WISHES).map(Clause::parse).collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality).then(b.specific().cmp(&a.specific())));
    clauses
}

pub fn accept(headers: &HeaderMap) -> Result<&str, StatusError> {
    let header = headers.get(ACCEPT).map_or(Ok("*/*"), |value| value.to_str());
    let header = header.map_err(|_| only_accepted("", true))?;
    Ok(if header.trim().is_empty() { "*/*" } else { header })
}

/// The first check. `streams`: the collection can be watched, and the error lists the stream types too.
pub fn check_accept(headers: &HeaderMap, produces: &[&str], streams: bool) -> Result<(), StatusError> {
    let media = |clause: &str| clause.split(';').next().unwrap_or_default().trim().to_owned();
    let known = |media: String| media == "*/*" || media == PROTOBUF || produces.contains(&media.as_str());
    if accept(headers)?.split(',').map(media).any(known) {
        return Ok(());
    }
    let mut available: Vec<String> = produces.iter().map(|media| (*media).to_owned()).collect();
    available.push(PROTOBUF.to_owned());
    if streams {
        available.extend([JSON, PROTOBUF].map(|media| format!("{media};stream=watch")));
    }
    let text = format!("406: Not Acceptable\n\nAvailable representations: {}", available.join(", "));
    Err(StatusError::new(406, "NotAcceptable", text).with(Details::default()))
}

/// Whether the client names one of the media types.
pub fn accepts_one_of(headers: &HeaderMap, media_types: &[&str]) -> Result<bool, StatusError> {
    let media = |clause: &str| clause.split(';').next().unwrap_or_default().trim().to_owned();
    Ok(accept(headers)?.split(',').map(media).any(|media| media_types.contains(&media.as_str())))
}

/// The media types of objects.
pub const OBJECTS: &[&str] = &[JSON, YAML];

/// `binary`: protobuf is available.
fn only_accepted(accept: &str, binary: bool) -> StatusError {
    // Where it is not, a message that it is accepted does not help a client that accepts nothing else.
    let also = if binary || !accept.contains(PROTOBUF) { format!(", {PROTOBUF}") } else { String::new() };
    let text = format!("only the following media types are accepted: {JSON}, {YAML}{also}");
    StatusError::new(406, "NotAcceptable", text)
}

/// The status error for an object that cannot be written in protobuf.
pub fn only_text() -> StatusError {
    only_accepted(PROTOBUF, false)
}

/// The status error for a watch in a format that cannot be streamed.
pub fn only_streams() -> StatusError {
    let streams = [JSON, PROTOBUF].map(|media| format!("{media};stream=watch"));
    StatusError::new(
        406,
        "NotAcceptable",
        format!("only the following media types are accepted: {}", streams.join(", ")),
    )
}

/// The second check: the first clause that can be satisfied. `offered` returns the view for a format and a conversion
/// (kind, group, version), or None if it is not available here. `binary`: protobuf is available.
fn choose<T>(
    headers: &HeaderMap,
    binary: bool,
    offered: impl Fn(Format, Option<(&str, &str, &str)>) -> Option<T>,
) -> Result<(Format, T, bool), StatusError> {
    let accept = accept(headers)?;
    for clause in clauses(accept) {
        let [kind, group, version] = ["as", "g", "v"].map(|name| clause.parameter(name));
        let conversion = (kind.is_some() || group.is_some() || version.is_some())
            .then(|| (kind.unwrap_or_default(), group.unwrap_or_default(), version.unwrap_or_default()));
        let pretty = clause.parameter("pretty") == Some("1");
        if let Some(format) = clause.format().filter(|format| binary || *format != Format::Protobuf)
            && let Some(view) = offered(format, conversion)
        {
            return Ok((format, view, pretty));
        }
    }
    Err(only_accepted(accept, binary))
}

fn view(conversion: Option<(&str, &str, &str)>) -> Option<View> {
    let Some((kind, group, version)) = conversion else {
        return Some(View::Plain);
    };
    let version = ["v1", "v1beta1"].into_iter().find(|known| *known == version)?;
    match (kind, group) {
        ("Table", "meta.k8s.io") => Some(View::Table { version }),
        ("PartialObjectMetadata", "meta.k8s.io") => Some(View::Metadata { version, list: false }),
        ("PartialObjectMetadataList", "meta.k8s.io") => Some(View::Metadata { version, list: true }),
        _ => None,
    }
}

/// The requested format of an object or a list. `binary`: it can be written in protobuf.
pub fn output(headers: &HeaderMap, query: &Query<'_>, binary: bool) -> Result<ResponseFormat, StatusError> {
    let offered = |format, conversion: Option<(&str, &str, &str)>| {
        // Tables are for people: they have no form in protobuf.
        view(conversion).filter(|view| format != Format::Protobuf || !matches!(view, View::Table { .. }))
    };
    let (format, view, pretty) = choose(headers, binary, offered)?;
    let pretty = format != Format::Protobuf && (pretty || wants_pretty(headers, query));
    Ok(ResponseFormat { format, view, pretty })
}

/// The format of an error that comes before the format of the response is known: that of most clients, unless this one
/// prefers protobuf.
pub fn of_failure(headers: &HeaderMap) -> ResponseFormat {
    match choose(headers, true, |_, conversion| conversion.is_none().then_some(())) {
        Ok((Format::Protobuf, ..)) => ResponseFormat { format: Format::Protobuf, ..ResponseFormat::PLAIN },
        _ => ResponseFormat::PLAIN,
    }
}

/// The requested format of a discovery document, and whether it is the aggregated one.
pub fn discovery(headers: &HeaderMap, query: &Query<'_>) -> Result<(ResponseFormat, Option<Aggregated>), StatusError> {
    let offered = |_, conversion: Option<(&str, &str, &str)>| match conversion {
        None => Some(None),
        Some(("APIGroupDiscoveryList", "apidiscovery.k8s.io", version)) => Aggregated::from_version(version).map(Some),
        Some(_) => None,
    };
    let (format, aggregated, pretty) = choose(headers, false, offered)?;
    let pretty = pretty || wants_pretty(headers, query);
    Ok((ResponseFormat { format, view: View::Plain, pretty }, aggregated))
}

/// Users with curl or a browser read the response themselves.
fn wants_pretty(headers: &HeaderMap, query: &Query<'_>) -> bool {
    if let Some(asked) = query.get("pretty") {
        return !matches!(asked, "" | "0" | "false");
    }
    let agent = headers.get(hyper::header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|known| agent.starts_with(known))
}

/// The media type of the body, and its parameters.
fn content_type(headers: &HeaderMap) -> (String, &str) {
    let header = headers.get(CONTENT_TYPE).map_or("", |value| value.to_str().unwrap_or("?"));
    let (media, parameters) = header.split_once(';').unwrap_or((header, ""));
    (media.trim().to_ascii_lowercase(), parameters)
}

/// Whether the text is a list of `name=value` and nothing else. The meaning is ignored: everything is UTF-8.
fn are_parameters(text: &str) -> bool {
    let text = text.trim().strip_suffix(';').unwrap_or(text.trim());
    let is_pair =
        |pair: &str| pair.split_once('=').is_some_and(|(name, value)| !name.trim().is_empty() && !value.is_empty());
    text.is_empty() || text.split(';').all(is_pair)
}

/// The format of the request body.
pub fn input(headers: &HeaderMap) -> Result<Format, StatusError> {
    let (media, parameters) = content_type(headers);
    match media.as_str() {
        "" | JSON if are_parameters(parameters) => Ok(Format::Json),
        YAML if are_parameters(parameters) => Ok(Format::Yaml),
        PROTOBUF if are_parameters(parameters) => Ok(Format::Protobuf),
        _ => {
            let text = format!(
                "the body of the request was in an unknown format - accepted media types include: {JSON}, {YAML}, \
                 {PROTOBUF}"
            );
            Err(StatusError::new(415, "UnsupportedMediaType", text))
        }
    }
}

/// The media types of patches.
pub const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// The type of the patch in the request body.
pub fn patch(headers: &HeaderMap) -> Result<PatchKind, StatusError> {
    let kinds = [PatchKind::Json, PatchKind::Merge, PatchKind::Strategic, PatchKind::Apply];
    // Unlike the media types of objects, these are case-sensitive.
    let header = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = header.split(';').next().unwrap_or_default();
    let found = PATCHES.iter().zip(kinds).find(|(name, _)| **name == media);
    found.map(|(_, kind)| kind).ok_or_else(|| {
        let failure = StatusError::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
        failure.with(Details::default())
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn headers(accept: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        headers
    }

    #[test]
    fn the_first_wish_that_can_be_fulfilled_counts() {
        let table = View::Table { version: "v1" };
        for (accept, expected) in [
            ("", Some((Format::Json, View::Plain))),
            ("*/*", Some((Format::Json, View::Plain))),
            ("application/*", Some((Format::Json, View::Plain))),
            ("application/yaml", Some((Format::Yaml, View::Plain))),
            ("application/vnd.kubernetes.protobuf,application/json", Some((Format::Protobuf, View::Plain))),
            ("application/vnd.kubernetes.protobuf", Some((Format::Protobuf, View::Plain))),
            ("application/vnd.kubernetes.protobuf;stream=watch", Some((Format::Protobuf, View::Plain))),
            ("application/json,application/vnd.kubernetes.protobuf", Some((Format::Json, View::Plain))),
            ("application/json;q=0.8,application/vnd.kubernetes.protobuf;q=0.9", Some((Format::Protobuf, View::Plain))),
            ("application/vnd.kubernetes.protobuf;q=0.1,*/*;q=0.5", Some((Format::Json, View::Plain))),
            (
                "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json",
                Some((Format::Json, View::Plain)),
            ),
            ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", None),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                Some((Format::Protobuf, View::Metadata { version: "v1", list: false })),
            ),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some((Format::Json, table))),
            ("application/json, application/json;as=Table;v=v1;g=meta.k8s.io", Some((Format::Json, View::Plain))),
            ("application/json;as=Table;g=meta.k8s.io;v=v9,application/json", Some((Format::Json, View::Plain))),
            ("application/json;as=Table;g=meta.k8s.io;v=v9", None),
            ("application/json;as=Table;v=v1", None),
            ("application/json;as=Frob;g=meta.k8s.io;v=v1,application/json", Some((Format::Json, View::Plain))),
            ("application/json;q=0.5,application/yaml;q=0.9", Some((Format::Yaml, View::Plain))),
            ("*/*,application/yaml", Some((Format::Yaml, View::Plain))),
            (
                "application/yaml;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1",
                Some((Format::Yaml, View::Metadata { version: "v1beta1", list: true })),
            ),
        ] {
            let response_format = output(&headers(accept), &Query::default(), true);
            assert_eq!(
                response_format.ok().map(|response_format| (response_format.format, response_format.view)),
                expected,
                "{accept}"
            );
        }
    }

    #[test]
    fn where_there_is_no_protobuf_the_next_wish_counts() {
        let chosen = |accept: &str| output(&headers(accept), &Query::default(), false).map(|chosen| chosen.format);
        assert_eq!(chosen("application/vnd.kubernetes.protobuf,application/yaml").unwrap(), Format::Yaml);
        let refused = chosen("application/vnd.kubernetes.protobuf").unwrap_err();
        let told = "only the following media types are accepted: application/json, application/yaml";
        assert_eq!((refused.code, refused.message.as_str()), (406, told));
        assert!(discovery(&headers("application/vnd.kubernetes.protobuf"), &Query::default()).is_err());
        assert_eq!(of_failure(&headers("application/vnd.kubernetes.protobuf,*/*")).format, Format::Protobuf);
        assert_eq!(of_failure(&headers("application/yaml")), ResponseFormat::PLAIN);
    }

    #[test]
    fn the_first_gate_looks_at_media_types_alone() {
        for (accept, passes) in [
            ("text/csv", false),
            ("text/html,application/xhtml+xml,*/*;q=0.8", true),
            ("application/*", false),
            ("application/json;as=Frob", true),
            ("", true),
        ] {
            assert_eq!(check_accept(&headers(accept), OBJECTS, true).is_ok(), passes, "{accept}");
        }
        let text = check_accept(&headers("text/csv"), OBJECTS, false).unwrap_err().message;
        assert!(text.ends_with(": application/json, application/yaml, application/vnd.kubernetes.protobuf"), "{text}");
    }

    #[test]
    fn only_people_get_line_breaks() {
        let pretty = |query: &str, agent: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(hyper::header::USER_AGENT, agent.parse().unwrap());
            output(&headers, &Query::parse(query), true).unwrap().pretty
        };
        assert!(pretty("", "curl/8.0") && pretty("pretty=true", "kubectl/v1"));
        assert!(!pretty("", "kubectl/v1") && !pretty("pretty=false", "curl/8.0") && !pretty("pretty=0", "curl/8.0"));
    }

    #[test]
    fn bodies_are_what_their_header_says() {
        let mut headers = HeaderMap::new();
        for (text, format) in [
            ("application/json; charset=utf-8", Some(Format::Json)),
            ("Application/JSON;", Some(Format::Json)),
            ("", Some(Format::Json)),
            ("application/yaml", Some(Format::Yaml)),
            ("application/vnd.kubernetes.protobuf", Some(Format::Protobuf)),
            ("application/json;;;=", None),
            ("application/json;x", None),
            ("text/plain", None),
        ] {
            headers.insert(CONTENT_TYPE, text.parse().unwrap());
            assert_eq!(input(&headers).ok(), format, "{text}");
            assert_eq!(patch(&headers).unwrap_err().code, 415);
        }
        for (text, kind) in [
            ("application/merge-patch+json", Some(PatchKind::Merge)),
            ("application/json-patch+json; charset=utf-8", Some(PatchKind::Json)),
            ("application/Merge-Patch+json", None),
        ] {
            headers.insert(CONTENT_TYPE, text.parse().unwrap());
            assert_eq!(patch(&headers).ok(), kind, "{text}");
        }
    }
}
