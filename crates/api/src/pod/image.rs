//! The names of container images, as far as the pull policy depends on them.

/// The default pull policy of an image: `Always` if its tag is `latest`, explicitly or by default. An invalid name is
/// left for validation or the node to refuse.
pub(super) fn pull_policy(image: &str) -> &'static str {
    if tag(image) == Some("latest") { "Always" } else { "IfNotPresent" }
}

/// The tag of a well-formed reference `[host[:port]/]path[:tag][@digest]`; `latest` if it has neither tag nor digest.
fn tag(image: &str) -> Option<&str> {
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    // A colon before the last slash belongs to the port of the host.
    let path_at = rest.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match rest[path_at..].split_once(':') {
        Some((last, tag)) => (&rest[..path_at + last.len()], Some(tag)),
        None => (rest, None),
    };
    let sound = is_name(name) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest);
    match (tag, digest) {
        _ if !sound => None,
        (None, None) => Some("latest"),
        (tag, _) => tag,
    }
}

fn is_name(name: &str) -> bool {
    let (host, path) = match name.split_once('/') {
        // The first part is a host only if it looks like one; otherwise it belongs to the path.
        Some((first, path)) if first.contains(['.', ':']) || first == "localhost" || has_upper(first) => {
            (Some(first), path)
        }
        _ => (None, name),
    };
    // 64 hexadecimal digits are an image ID, not a name.
    let is_identity = host.is_none() && path.len() == 64 && path.bytes().all(|byte| byte.is_ascii_hexdigit());
    host.is_none_or(is_host) && !is_identity && path.split('/').all(is_path_part)
}

fn has_upper(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn is_host(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (host, None),
    };
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    name.split('.').all(label) && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
}

/// Lower-case letters and digits, separated by `.`, `_`, `__` or dashes.
fn is_path_part(part: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    let (Some(&first), Some(&last)) = (bytes.first(), bytes.last()) else { return false };
    inner(first)
        && inner(last)
        && bytes.split(|&byte| inner(byte)).all(|parting| match parting {
            [] | [b'.' | b'_'] | [b'_', b'_'] => true,
            dashes => dashes.iter().all(|&byte| byte == b'-'),
        })
}

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|byte| word(byte) || matches!(byte, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let known = match algorithm {
        "sha256" => hex.len() == 64,
        "sha384" => hex.len() == 96,
        "sha512" => hex.len() == 128,
        _ => return false,
    };
    known && hex.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::pull_policy;

    #[test]
    fn only_latest_is_pulled_each_time() {
        let digest = format!("reg.io/a@sha256:{}", "0".repeat(64));
        let tagged = format!("a:latest@sha256:{}", "0".repeat(64));
        for (image, policy) in [
            ("i", "Always"),
            ("busybox:1.36", "IfNotPresent"),
            ("x:latest", "Always"),
            ("localhost:5000/a", "Always"),
            ("localhost:5000/a:v1", "IfNotPresent"),
            ("reg.io:443/deep/er/a-b__c", "Always"),
            (&digest, "IfNotPresent"),
            (&tagged, "Always"),
            ("Upper", "IfNotPresent"),
            ("a b", "IfNotPresent"),
            ("", "IfNotPresent"),
            ("a//b", "IfNotPresent"),
            ("ä:latest", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image:?}");
        }
    }
}
