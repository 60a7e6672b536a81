//! Validation of names, label keys and label values, with the messages of kube-apiserver.
//!
//! Each check returns all errors. Texts say "bytes" for labels and "characters" for names, as kube-apiserver does; both
//! count bytes.

use crate::field::{At, FieldError};

/// Names become DNS names: the limits of RFC 1123.
pub const SUBDOMAIN_LENGTH: usize = 253;
pub const LABEL_LENGTH: usize = 63;

/// The limit for all annotations of an object together, keys and values: the server copies them with every object.
pub const ANNOTATIONS_SIZE: usize = 256 * 1024;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
     and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
     and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const OLD_LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', \
     start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', \
     regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const KEY: &str = "must consist of alphanumeric characters, '-', '_' or '.', \
     and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', \
     regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
     and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
     regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Dotted lower-case labels: the name of most objects.
pub fn dns_subdomain_problems(name: &str) -> Vec<String> {
    subdomain(name.as_bytes(), "characters")
}

/// One lower-case label without dots.
pub fn dns_label_problems(name: &str) -> Vec<String> {
    label(name.as_bytes())
}

/// As a DNS label, starting with a letter (RFC 1035).
pub fn dns_1035_label_problems(name: &str) -> Vec<String> {
    let starts_with_letter = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    let mut problems = too_long(name.len(), LABEL_LENGTH, "characters");
    if !(starts_with_letter && is_label(name.as_bytes())) {
        problems.push(OLD_LABEL.to_owned());
    }
    problems
}

/// `name` or `prefix/name`: keys of labels and annotations, finalizers, resource names.
pub fn qualified_name_problems(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, rest)) if rest.contains('/') => {
            let whole = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {KEY} {whole}")];
        }
        Some(("", name)) => {
            problems.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            let wrong = subdomain(prefix.as_bytes(), "bytes");
            problems.extend(wrong.into_iter().map(|problem| format!("prefix part {problem}")));
            name
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    }
    let long = too_long(name.len(), LABEL_LENGTH, "bytes");
    problems.extend(long.into_iter().map(|problem| format!("name part {problem}")));
    if !is_key(name.as_bytes()) {
        problems.push(format!("name part {KEY}"));
    }
    problems
}

pub fn label_value_problems(value: &str) -> Vec<String> {
    let mut problems = too_long(value.len(), LABEL_LENGTH, "bytes");
    if !value.is_empty() && !is_key(value.as_bytes()) {
        problems.push(LABEL_VALUE.to_owned());
    }
    problems
}

/// Names that may contain everything that a path segment can, such as those of roles.
pub fn path_segment_problems(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    let forbidden = ["/", "%"].into_iter().filter(|part| name.contains(part));
    forbidden.map(|part| format!("may not contain '{part}'")).collect()
}

/// For `Rules::name_problems`. A generateName (`prefix`) may end in a dash, because the server appends more.
pub fn name_is_dns_subdomain(name: &str, prefix: bool) -> Vec<String> {
    subdomain(&completed(name, prefix), "characters")
}

/// For `Rules::name_problems` of namespaces and services.
pub fn name_is_dns_label(name: &str, prefix: bool) -> Vec<String> {
    label(&completed(name, prefix))
}

/// For `Rules::name_problems` of rbac.
pub fn name_is_path_segment(name: &str, prefix: bool) -> Vec<String> {
    path_segment_problems(name, prefix)
}

/// Validates the keys and values of a map of labels. Errors name the map, not the key.
pub fn validate_labels(labels: At<'_, '_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels.entries() {
        let value = value.as_str().unwrap_or_default();
        errors.extend(qualified_name_problems(key).into_iter().map(|problem| labels.invalid_value(key, problem)));
        errors.extend(label_value_problems(value).into_iter().map(|problem| labels.invalid_value(value, problem)));
    }
    errors
}

/// Validates the keys of a map of annotations, whatever their case, and the total size.
pub fn validate_annotations(annotations: At<'_, '_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in annotations.entries() {
        size += key.len() + value.as_str().unwrap_or_default().len();
        let problems = qualified_name_problems(&key.to_lowercase());
        errors.extend(problems.into_iter().map(|problem| annotations.invalid_value(key, problem)));
    }
    if size > ANNOTATIONS_SIZE {
        errors.push(annotations.too_long(ANNOTATIONS_SIZE));
    }
    errors
}

/// Validates one finalizer, as text: `at` is the position for errors, the list or the element.
pub fn validate_finalizer_name(at: At<'_, '_>, name: &str) -> Vec<FieldError> {
    qualified_name_problems(name).into_iter().map(|problem| at.invalid_value(name, problem)).collect()
}

/// A generateName as it would look with a suffix after its dash: the last two bytes are replaced with one valid letter.
fn completed(name: &str, prefix: bool) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    if prefix && bytes.len() > 1 && bytes.ends_with(b"-") {
        bytes.truncate(bytes.len() - 2);
        bytes.push(b'a');
    }
    bytes
}

fn too_long(length: usize, most: usize, unit: &str) -> Vec<String> {
    if length > most { vec![format!("must be no more than {most} {unit}")] } else { Vec::new() }
}

fn subdomain(name: &[u8], unit: &str) -> Vec<String> {
    let mut problems = too_long(name.len(), SUBDOMAIN_LENGTH, unit);
    if !is_subdomain(name) {
        problems.push(SUBDOMAIN.to_owned());
    }
    problems
}

fn label(name: &[u8]) -> Vec<String> {
    let mut problems = too_long(name.len(), LABEL_LENGTH, "characters");
    if is_label(name) {
        return problems;
    }
    problems.push(if is_subdomain(name) { "must not contain dots".to_owned() } else { LABEL.to_owned() });
    problems
}

fn is_subdomain(name: &[u8]) -> bool {
    name.split(|&byte| byte == b'.').all(is_label)
}

fn is_label(name: &[u8]) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    framed(name, plain, |byte| plain(byte) || byte == b'-')
}

fn is_key(name: &[u8]) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric();
    framed(name, plain, |byte| plain(byte) || matches!(byte, b'-' | b'_' | b'.'))
}

/// Whether the name is not empty, has `outer` at both ends, and `inner` between.
fn framed(name: &[u8], outer: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    match name {
        [] => false,
        [only] => outer(*only),
        [first, middle @ .., last] => outer(*first) && outer(*last) && middle.iter().all(|&byte| inner(byte)),
    }
}

/// The errors of the name of a port.
pub fn port_name_problems(name: &str) -> Vec<String> {
    let mut problems: Vec<String> = Vec::new();
    if name.len() > 15 {
        problems.push("must be no more than 15 characters".to_owned());
    }
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    for (wrong, told) in [
        (
            name.is_empty() || !name.bytes().all(known),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (!name.bytes().any(|byte| byte.is_ascii_lowercase()), "must contain at least one letter (a-z)"),
        (name.contains("--"), "must not contain consecutive hyphens"),
        (name.starts_with('-') || name.ends_with('-'), "must not begin or end with a hyphen"),
    ] {
        if wrong {
            problems.push(told.to_owned());
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use tally_value::json;

    use super::*;

    fn check(problems: Vec<String>, beginnings: &[&str]) {
        assert_eq!(problems.len(), beginnings.len(), "{problems:?}");
        for (problem, beginning) in problems.iter().zip(beginnings) {
            assert!(problem.starts_with(beginning), "{problem:?} does not begin with {beginning:?}");
        }
    }

    #[test]
    fn names_of_objects() {
        for good in ["a", "a.b", "a-b.c1", "1", &"a".repeat(253)] {
            check(dns_subdomain_problems(good), &[]);
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a..b", ".a", "a.", "ä", "a b", "a\n"] {
            check(dns_subdomain_problems(bad), &["a lowercase RFC 1123 subdomain must consist of lower case"]);
        }
        check(dns_subdomain_problems(&"a".repeat(254)), &["must be no more than 253 characters"]);
        check(
            dns_subdomain_problems(&"A".repeat(254)),
            &["must be no more than 253", "a lowercase RFC 1123 subdomain"],
        );
        check(dns_label_problems("a.b"), &["must not contain dots"]);
        check(dns_label_problems("A.b"), &["a lowercase RFC 1123 label"]);
        check(dns_label_problems(&"a".repeat(64)), &["must be no more than 63 characters"]);
        check(dns_label_problems(&"a".repeat(63)), &[]);
        check(dns_1035_label_problems("a1"), &[]);
        check(dns_1035_label_problems("1a"), &["a DNS-1035 label must consist"]);
    }

    #[test]
    fn a_generated_name_may_end_in_a_dash() {
        check(name_is_dns_subdomain("gen-", true), &[]);
        check(name_is_dns_subdomain("gen-", false), &["a lowercase"]);
        check(name_is_dns_subdomain("Gen-", true), &["a lowercase"]);
        // A single dash is not a valid prefix.
        check(name_is_dns_subdomain("-", true), &["a lowercase"]);
        check(name_is_dns_subdomain("é-", true), &["a lowercase"]);
        check(name_is_dns_label("a.b-", true), &["must not contain dots"]);
    }

    #[test]
    fn names_in_paths() {
        check(path_segment_problems("system:Node x", false), &[]);
        check(path_segment_problems("..", false), &["may not be '..'"]);
        check(path_segment_problems("..", true), &[]);
        check(path_segment_problems("%a/b", false), &["may not contain '/'", "may not contain '%'"]);
    }

    #[test]
    fn keys_and_values_of_labels() {
        for good in ["a", "A_b.c-1", "example.com/a", &format!("{}/{}", "p".repeat(253), "n".repeat(63))] {
            check(qualified_name_problems(good), &[]);
        }
        check(qualified_name_problems(""), &["name part must be non-empty", "name part must consist"]);
        check(qualified_name_problems("/a"), &["prefix part must be non-empty"]);
        check(qualified_name_problems("a/"), &["name part must be non-empty", "name part must consist"]);
        check(qualified_name_problems("a/b/c"), &["a valid label key must consist of alphanumeric"]);
        check(qualified_name_problems("A/b c"), &["prefix part a lowercase RFC", "name part must consist"]);
        check(qualified_name_problems(&"a".repeat(64)), &["name part must be no more than 63 bytes"]);
        let long = format!("{}/a", "p".repeat(254));
        check(qualified_name_problems(&long), &["prefix part must be no more than 253 bytes"]);
        check(label_value_problems(""), &[]);
        check(label_value_problems("a b"), &["a valid label must be"]);
        check(label_value_problems(&"-".repeat(64)), &["must be no more than 63 bytes", "a valid label must be"]);
    }

    #[test]
    fn annotations_are_bounded_and_their_keys_caseless() {
        let at = |value: usize| json!({"Foo.IO/x": "v".repeat(value - 8)});
        let errors = |object| validate_annotations(At::rooted("metadata.annotations", Some(&object))).len();
        assert_eq!(errors(at(ANNOTATIONS_SIZE)), 0);
        assert_eq!(errors(at(ANNOTATIONS_SIZE + 1)), 1);
        assert_eq!(errors(json!({"b d": ""})), 1);
    }
}
