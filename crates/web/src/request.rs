//! What a request asks for, and whether the page may ask for it. Pure.

use hyper::header::{COOKIE, HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::{Method, Uri};

/// A header that only scripts of the page itself can set: a request with it from elsewhere needs a permission that this
/// server never gives.
pub const FROM_PAGE: HeaderName = HeaderName::from_static("x-tally-page");

/// Jobs in one question about what they wait for.
const MOST_JOBS: usize = 20;

/// What the page shows: the group ("" for the core), the resource, its subresources, and whether it can be changed.
const SHOWN: [(&str, &str, &[&str], bool); 6] = [
    ("", "events", &[], false),
    ("", "namespaces", &[], false),
    ("", "nodes", &[], false),
    ("", "pods", &["log"], false),
    ("batch", "cronjobs", &[], true),
    ("batch", "jobs", &[], true),
];

#[derive(Debug, PartialEq, Eq)]
pub enum Asked<'a> {
    /// A link was followed.
    Link {
        token: &'a str,
    },
    /// A file of the page.
    File {
        path: &'a str,
    },
    /// The end of the session.
    Logout,
    /// The same request to the API server.
    Api,
    Explain {
        namespace: &'a str,
        resource: &'a str,
        name: &'a str,
    },
    /// Which of these Jobs wait: each as its namespace and name.
    Waits {
        jobs: Vec<(&'a str, &'a str)>,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    pub code: u16,
    pub why: String,
}

impl Refused {
    fn new(code: u16, why: impl Into<String>) -> Self {
        Self { code, why: why.into() }
    }
}

/// What the request asks for. `host`: the address of this server, as browsers write it.
pub fn asked<'a>(method: &Method, uri: &'a Uri, headers: &HeaderMap, host: &str) -> Result<Asked<'a>, Refused> {
    if headers.get(HOST).is_none_or(|given| given != host) {
        return Err(Refused::new(421, format!("this page is at http://{host}/ only")));
    }
    let reads = matches!(*method, Method::GET | Method::HEAD);
    if !reads {
        let own_origin = format!("http://{host}");
        let is_foreign = headers.get(ORIGIN).is_some_and(|origin| origin != own_origin.as_str());
        if is_foreign || headers.get(FROM_PAGE).is_none_or(|value| value != "1") {
            return Err(Refused::new(403, "only the page itself may change something"));
        }
    }
    let path = uri.path();
    match (path, reads) {
        ("/", true) => {
            let token = uri.query().and_then(|query| query.strip_prefix("token="));
            Ok(token.map_or(Asked::File { path: "index.html" }, |token| Asked::Link { token }))
        }
        ("/favicon.ico", true) => Ok(Asked::File { path: "icon.svg" }),
        ("/version", true) => Ok(Asked::Api),
        ("/logout", false) if *method == Method::POST => Ok(Asked::Logout),
        _ if path.starts_with("/api/") || path.starts_with("/apis/") => api(method, path).map(|()| Asked::Api),
        ("/explain/jobs", true) => {
            let of = uri.query().and_then(|query| query.strip_prefix("of=")).unwrap_or_default();
            let jobs: Option<Vec<_>> = of.split(',').map(|job| job.split_once('/')).collect();
            let are_names = |jobs: &Vec<_>| jobs.iter().all(|(namespace, name)| is_name(namespace) && is_name(name));
            match jobs.filter(|jobs| jobs.len() <= MOST_JOBS && are_names(jobs)) {
                Some(jobs) => Ok(Asked::Waits { jobs }),
                None => Err(Refused::new(400, format!("ask for at most {MOST_JOBS} Jobs: ?of=NAMESPACE/NAME,..."))),
            }
        }
        (_, true) if path.starts_with("/explain/") => {
            let parts: Vec<&str> = path.split('/').skip(2).collect();
            match parts[..] {
                [namespace, resource @ ("jobs" | "pods" | "cronjobs"), name]
                    if [namespace, name].iter().all(is_name) =>
                {
                    Ok(Asked::Explain { namespace, resource, name })
                }
                _ => Err(Refused::new(404, "explained are /explain/NAMESPACE/(jobs|pods|cronjobs)/NAME")),
            }
        }
        (_, true) => Ok(Asked::File { path: path.strip_prefix("/assets/").unwrap_or_default() }),
        _ => Err(Refused::new(405, "the page has nothing to change there")),
    }
}

fn is_name(text: &&str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    (1..=253).contains(&text.len()) && text.bytes().all(is_allowed) && !text.starts_with('.')
}

/// Whether the page may send this request to the API server.
fn api(method: &Method, path: &str) -> Result<(), Refused> {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let (group, rest) = match parts[..] {
        ["api", "v1", ref rest @ ..] => ("", rest),
        ["apis", group, "v1", ref rest @ ..] => (group, rest),
        _ => ("?", &[][..]),
    };
    // Escapes are refused too: no name that the page uses needs one, and the server could read the path differently.
    let (resource, below) = match rest {
        ["namespaces", namespace, resource, below @ ..] if is_name(namespace) => (*resource, below),
        [resource, below @ ..] => (*resource, below),
        [] => ("", &[][..]),
    };
    let (name, subresource) = match below {
        [] => ("", ""),
        [name] if is_name(name) => (*name, ""),
        [name, subresource] if is_name(name) => (*name, *subresource),
        _ => ("", "?"),
    };
    let shown = SHOWN.iter().find(|(of_group, shown, ..)| *of_group == group && *shown == resource);
    let Some((_, _, subresources, can_change)) = shown else {
        return Err(Refused::new(403, format!("{path} is not shown by the page; use kubectl")));
    };
    if !subresource.is_empty() && !subresources.contains(&subresource) {
        return Err(Refused::new(403, format!("{path} is not shown by the page; use kubectl")));
    }
    let may = match *method {
        Method::GET => true,
        Method::POST => *can_change && name.is_empty(),
        Method::PATCH | Method::DELETE => *can_change && !name.is_empty(),
        _ => false,
    };
    if may { Ok(()) } else { Err(Refused::new(405, format!("the page cannot {method} {path}; use kubectl"))) }
}

/// The value of this cookie.
pub fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let values = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST_NAME: &str = "127.0.0.1:9000";

    fn ask(line: &str, headers: &[(&'static str, &str)]) -> Result<String, u16> {
        let (method, uri) = line.split_once(' ').unwrap();
        let mut map = HeaderMap::new();
        map.insert(HOST, HOST_NAME.parse().unwrap());
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        let uri = uri.parse().unwrap();
        let found = asked(&method.parse().unwrap(), &uri, &map, HOST_NAME);
        found.map(|asked| format!("{asked:?}")).map_err(|refused| refused.code)
    }

    #[test]
    fn what_the_page_shows_can_be_reached_and_nothing_else() {
        let page = [("x-tally-page", "1")];
        for (line, expected) in [
            ("GET /", Ok("File { path: \"index.html\" }")),
            ("GET /?token=abc", Ok("Link { token: \"abc\" }")),
            ("GET /assets/list.js", Ok("File { path: \"list.js\" }")),
            ("GET /favicon.ico", Ok("File { path: \"icon.svg\" }")),
            ("GET /robots.txt", Ok("File { path: \"\" }")),
            ("GET /apis/batch/v1/jobs?watch=true", Ok("Api")),
            ("GET /apis/batch/v1/namespaces/a/jobs/b", Ok("Api")),
            ("GET /api/v1/namespaces/a/pods/b/log?follow=true", Ok("Api")),
            ("GET /api/v1/nodes", Ok("Api")),
            ("GET /version", Ok("Api")),
            ("POST /version", Err(405)),
            ("GET /api/v1/namespaces", Ok("Api")),
            ("PATCH /apis/batch/v1/namespaces/a/jobs/b", Ok("Api")),
            ("DELETE /apis/batch/v1/namespaces/a/jobs/b", Ok("Api")),
            ("POST /apis/batch/v1/namespaces/a/jobs", Ok("Api")),
            ("POST /logout", Ok("Logout")),
            ("GET /explain/a/jobs/b", Ok("Explain { namespace: \"a\", resource: \"jobs\", name: \"b\" }")),
            ("GET /explain/a/secrets/b", Err(404)),
            ("GET /explain/jobs?of=a/b,c/d.e", Ok("Waits { jobs: [(\"a\", \"b\"), (\"c\", \"d.e\")] }")),
            ("GET /explain/jobs", Err(400)),
            ("GET /explain/jobs?of=a", Err(400)),
            ("GET /explain/jobs?of=a/b/c", Err(400)),
            ("GET /explain/jobs?of=a/..", Err(400)),
            ("GET /explain/jobs?of=a/b%2fc", Err(400)),
            ("POST /explain/jobs?of=a/b", Err(405)),
            ("GET /explain/a/jobs/b/c", Err(404)),
            ("GET /api/v1/secrets", Err(403)),
            ("GET /api/v1/namespaces/a/secrets/b", Err(403)),
            ("GET /api/v1/namespaces/a/pods/b/exec?command=sh", Err(403)),
            ("GET /api/v1/namespaces/a/pods/b/proxy/x", Err(403)),
            ("POST /api/v1/namespaces/a/serviceaccounts/b/token", Err(403)),
            ("GET /api/v1/watch/jobs", Err(403)),
            ("GET /api/v1/namespaces/a/pods/..%2f..%2fsecrets", Err(403)),
            ("GET /api/v1/namespaces/../secrets", Err(403)),
            ("GET /apis/batch/v1/namespaces/a/jobs/../secrets", Err(403)),
            ("GET /apis/batch/v2/jobs", Err(403)),
            ("GET /apis", Ok("File { path: \"\" }")),
            ("POST /api/v1/namespaces/a/pods", Err(405)),
            ("DELETE /apis/batch/v1/namespaces/a/jobs", Err(405)),
            ("PUT /apis/batch/v1/namespaces/a/jobs/b", Err(405)),
            ("POST /", Err(405)),
        ] {
            let found = ask(line, &page);
            assert_eq!(found.as_deref(), expected.as_deref().map_err(|code: &u16| code), "{line}");
        }
    }

    #[test]
    fn a_foreign_page_changes_nothing() {
        let patch = "PATCH /apis/batch/v1/namespaces/a/jobs/b";
        assert_eq!(ask(patch, &[]), Err(403));
        assert_eq!(ask(patch, &[("x-tally-page", "1"), ("origin", "http://evil.example")]), Err(403));
        assert_eq!(ask(patch, &[("x-tally-page", "1"), ("origin", "null")]), Err(403));
        assert_eq!(ask(patch, &[("x-tally-page", "1"), ("origin", "http://127.0.0.1:9000")]), Ok("Api".into()));
        for host in ["evil.example:9000", "localhost:9000", "127.0.0.1"] {
            assert_eq!(ask("GET /", &[("host", host)]), Err(421), "{host}");
        }
    }

    #[test]
    fn cookies_are_found_by_name() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, "a=1; tally=x".parse().unwrap());
        headers.append(COOKIE, "b=2".parse().unwrap());
        assert_eq!(cookie(&headers, "tally"), Some("x"));
        assert_eq!((cookie(&headers, "b"), cookie(&headers, "c")), (Some("2"), None));
    }
}
