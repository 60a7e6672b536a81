//! Parsers for the values of the command-line flags.

use std::net::SocketAddr;
use std::time::Duration;

use tally_controllers::after::AfterController;
use tally_controllers::job::{Config, JobController};
use tally_controllers::ttl::TtlController;
use tally_core::gates::{FeatureGates, Gate};
use tally_remote::ContentType;
use tally_runtime::controller::Controller;

/// The controllers that `tally controller` can run. All others are part of the cluster's own controller manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    After,
    Job,
    Ttl,
}

const ELSEWHERE: [&str; 7] = ["cronjob", "gc", "namespace", "podgc", "root-ca", "scheduler", "serviceaccount"];

/// The value of `managedBy` that means the cluster's own controller.
const RESERVED: &str = "kubernetes.io/job-controller";
const LONGEST_MANAGER: usize = 63;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(pub Vec<Name>);

pub fn controllers(text: &str) -> Result<Names, String> {
    let mut names = Vec::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match word {
            "*" => names.extend([Name::After, Name::Job, Name::Ttl]),
            "after" => names.push(Name::After),
            "job" => names.push(Name::Job),
            "ttl" => names.push(Name::Ttl),
            _ if ELSEWHERE.contains(&word) => {
                return Err(format!(
                    "{word} runs in the cluster's own controller manager; available controllers: after, job, ttl (`tally \
                     up` runs all of them)"
                ));
            }
            _ => return Err(format!("unknown controller {word:?}; available controllers: after, job, ttl")),
        }
    }
    names.sort();
    names.dedup();
    if names.is_empty() {
        return Err("at least one controller is required: after, job, ttl".to_owned());
    }
    Ok(Names(names))
}

impl Names {
    /// What is run if no list is given. TTL makes no difference between managers, so beside another one it is left to
    /// that.
    pub fn served_by(managed_by: Option<&str>) -> Self {
        Self(match managed_by {
            None => vec![Name::After, Name::Job, Name::Ttl],
            Some(_) => vec![Name::After, Name::Job],
        })
    }

    pub fn make(
        &self,
        managed_by: Option<&str>,
        default_ttl: Option<i32>,
        gates: FeatureGates,
    ) -> Vec<Box<dyn Controller>> {
        let make = |name: &Name| -> Box<dyn Controller> {
            match name {
                Name::After => Box::new(AfterController::new(managed_by.map(Into::into))),
                Name::Job => {
                    let managed_by = managed_by.map(Into::into);
                    // Other controllers may lead too, or have led: what they have requested may be carried out late.
                    let config = Config { managed_by, gates, gates_pods: true, ..Config::default() };
                    Box::new(JobController::new(config))
                }
                Name::Ttl => Box::new(TtlController::new(default_ttl)),
            }
        };
        let on = |name: &&Name| **name != Name::Ttl || gates.enabled(Gate::TTLAfterFinished);
        self.0.iter().filter(on).map(make).collect()
    }
}

/// Validates like the API validates `spec.managedBy`: a domain, a slash, a path.
pub fn manager(text: &str) -> Result<String, String> {
    if text == RESERVED {
        return Err(format!("Jobs with {RESERVED} are served without --managed-by"));
    }
    let wrong = || format!("{text:?} is not a valid spec.managedBy; expected a value like example.com/tally");
    if text.len() > LONGEST_MANAGER {
        return Err(format!("{} of at most {LONGEST_MANAGER} characters", wrong()));
    }
    let (domain, path) = text.split_once('/').ok_or_else(wrong)?;
    let is_label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        !label.is_empty()
            && label.bytes().all(|byte| plain(byte) || byte == b'-')
            && label.bytes().next().is_some_and(plain)
            && label.bytes().last().is_some_and(plain)
    };
    let in_path = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    if domain.split('.').all(is_label) && !path.is_empty() && path.bytes().all(in_path) {
        Ok(text.to_owned())
    } else {
        Err(wrong())
    }
}

/// `15s`, `1m30s`, `500ms`.
/// A default TTL, in whole seconds (TTL-22).
pub fn default_ttl(text: &str) -> Result<i32, String> {
    let time = duration(text)?;
    let seconds = i32::try_from(time.as_secs()).ok().filter(|_| time.subsec_nanos() == 0);
    seconds.ok_or_else(|| format!("{text:?} is not a whole number of seconds, at most 2147483647s, such as 24h"))
}

pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration such as 15s, 1m30s or 500ms");
    let (mut rest, mut sum) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = rest.split_at(digits);
        let letters = unit.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, after) = unit.split_at(letters);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let millis = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(wrong()),
        };
        let part = number.checked_mul(millis).map(Duration::from_millis).ok_or_else(wrong)?;
        sum = sum.checked_add(part).ok_or_else(wrong)?;
        rest = after;
    }
    if text.is_empty() { Err(wrong()) } else { Ok(sum) }
}

pub fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| (0.0..=1e6).contains(rate));
    rate.ok_or_else(|| format!("{text:?} is not a number of requests per second; 0 sets no limit"))
}

/// `None`: metrics and health are not served.
pub fn address(text: &str) -> Result<Option<SocketAddr>, String> {
    use std::net::ToSocketAddrs;
    if text.is_empty() || text == "off" {
        return Ok(None);
    }
    let full = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
    let wrong = |_| format!("{text:?} is not an address such as 127.0.0.1:8080; '' disables it");
    full.to_socket_addrs().map_err(wrong)?.next().map(Some).ok_or_else(|| format!("{text:?} resolves to no address"))
}

/// As kube-controller-manager names them. The short names are for people who type.
pub fn content_type(text: &str) -> Result<ContentType, String> {
    match text {
        "auto" => Ok(ContentType::Auto),
        "json" | "application/json" => Ok(ContentType::Json),
        "protobuf" | "application/vnd.kubernetes.protobuf" => Ok(ContentType::Protobuf),
        _ => Err(format!(
            "{text:?} is not a media type that API servers have for objects; use auto, application/json or \
             application/vnd.kubernetes.protobuf"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_named() {
        for (text, expected) in [
            ("job,ttl", Ok(vec![Name::Job, Name::Ttl])),
            (" ttl , job,ttl", Ok(vec![Name::Job, Name::Ttl])),
            ("*", Ok(vec![Name::After, Name::Job, Name::Ttl])),
            ("after", Ok(vec![Name::After])),
            ("job", Ok(vec![Name::Job])),
            ("", Err("at least one")),
            ("podgc", Err("cluster's own controller manager")),
            ("jobs", Err("\"jobs\"; available controllers: after, job, ttl")),
        ] {
            match (controllers(text), expected) {
                (Ok(Names(names)), Ok(expected)) => assert_eq!(names, expected, "{text}"),
                (Err(why), Err(hint)) => assert!(why.contains(hint), "{text}: {why}"),
                (got, expected) => panic!("{text}: {got:?} instead of {expected:?}"),
            }
        }
        let made: Vec<&str> = Names(vec![Name::After, Name::Job, Name::Ttl])
            .make(None, None, FeatureGates::default())
            .iter()
            .map(|made| made.name())
            .collect();
        assert_eq!(made, ["after-controller", "job-controller", "ttl-after-finished-controller"]);
    }

    #[test]
    fn managers_are_names_that_a_job_can_have() {
        for text in ["example.com/tally", "a/b", "a.b-c.d/E_f/g".trim_end_matches("_f/g"), "tally.dev/x/y"] {
            assert_eq!(manager(text), Ok(text.to_owned()));
        }
        let long = format!("example.com/{}", "x".repeat(52));
        for (text, hint) in [
            ("tally", "example.com/tally"),
            ("", "example.com/tally"),
            ("/x", "example.com/tally"),
            ("Example.com/x", "example.com/tally"),
            ("-a/x", "example.com/tally"),
            ("a/", "example.com/tally"),
            ("a/b c", "example.com/tally"),
            ("kubernetes.io/job-controller", "without --managed-by"),
            (long.as_str(), "at most 63"),
        ] {
            let why = manager(text).unwrap_err();
            assert!(why.contains(hint), "{text}: {why}");
        }
        assert!(manager(&long[..63]).is_ok());
    }

    #[test]
    fn durations_are_as_other_controllers_take_them() {
        for (text, millis) in [("15s", 15_000), ("1m30s", 90_000), ("500ms", 500), ("1h", 3_600_000), ("0s", 0)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "15", "s", "1.5s", "-1s", "1 s", "99999999999999999999h", "99999999999999999h", "1d"] {
            assert!(duration(text).unwrap_err().contains("such as 15s"), "{text}");
        }
    }

    #[test]
    fn media_types_are_named_as_by_other_controllers() {
        for (text, expected) in [
            ("auto", ContentType::Auto),
            ("application/json", ContentType::Json),
            ("json", ContentType::Json),
            ("application/vnd.kubernetes.protobuf", ContentType::Protobuf),
            ("protobuf", ContentType::Protobuf),
        ] {
            assert_eq!(content_type(text), Ok(expected), "{text}");
        }
        for text in ["", "JSON", "application/yaml", "application/json;q=1"] {
            assert!(content_type(text).unwrap_err().contains("use auto"), "{text}");
        }
    }

    #[test]
    fn rates_and_addresses() {
        assert_eq!((rate("0"), rate("20.5")), (Ok(0.0), Ok(20.5)));
        for text in ["-1", "many", "NaN", "inf"] {
            assert!(rate(text).is_err(), "{text}");
        }
        assert_eq!(address(""), Ok(None));
        assert_eq!(address(":8080"), Ok(Some(([0, 0, 0, 0], 8080).into())));
        assert_eq!(address("127.0.0.1:0"), Ok(Some(([127, 0, 0, 1], 0).into())));
        assert!(address("8080").unwrap_err().contains("127.0.0.1:8080"));
    }
}
