//! The Job that the flags describe. Pure: the environment of the caller is passed in as a value.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde_json::{Map, Value, json};
use tally_core::backoff::{BASE_ANNOTATION, BackoffPolicy, MAX_ANNOTATION};
use tally_core::job::{DEFAULT_BACKOFF_LIMIT, HALT_ANNOTATION, HALT_SOON};
use tally_core::pending::{self, PENDING_TIMEOUT};
use tally_core::quantity::Quantity;
use tally_core::schedule;
use tally_node::env::ENVIRONMENT_ANNOTATION;
use xxhash_rust::xxh3::xxh3_64;

use super::types::no_quantity;

/// Environment variables that programs usually need: with `--clean-env` these alone are copied from the caller if set,
/// unless `--env` overrides them.
pub const TAKEN_OVER: [&str; 10] =
    ["HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER"];

/// Longer program names are truncated, so that a Pod name with index and suffix is still a valid host name.
const LONGEST_STEM: usize = 40;
/// How long Jobs of flags wait before a retry: their users wait for them, which those of the reference rarely do.
const RETRY_DELAY: &str = "1s";
const RETRY_MAX_DELAY: &str = "1m";
/// With more completions than this, the API wants a limit of failed indexes beside one of retries per index, at most
/// `MOST_FAILED`.
pub const MOST_UNLIMITED: i32 = 100_000;
pub const MOST_FAILED: i32 = 10_000;
const SUFFIX: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;

#[derive(clap::Args, Clone, Debug, Default)]
pub struct Flags {
    /// Name of the Job [default: derived from the command; the same command gets the same name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Number of successful runs required [default: 1]
    #[arg(long, short = 'n', value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(0..))]
    pub completions: Option<i32>,
    /// Maximum number of concurrent runs [default: the number of CPUs, at most the number of completions]
    #[arg(long, short = 'p', value_name = "P", allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(1..))]
    pub parallelism: Option<i32>,
    /// Give every run its own index, from 0, in $JOB_COMPLETION_INDEX; every index has to succeed
    #[arg(long, short = 'i')]
    pub indexed: bool,
    /// Number of times that what fails is tried again: each index or line for itself with --indexed or a list, otherwise
    /// the whole Job [default: 0]
    #[arg(long, value_name = "N", conflicts_with_all = ["backoff_limit", "backoff_limit_per_index"], allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(0..))]
    pub retries: Option<i32>,
    /// Number of retries of the whole Job: one failure more, of whatever index or line, ends all of it
    #[arg(long, value_name = "R", allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(0..))]
    pub backoff_limit: Option<i32>,
    /// Number of retries per index or line, as --retries with --indexed or --each: the name that the API has for it
    #[arg(long, value_name = "R", allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(0..))]
    pub backoff_limit_per_index: Option<i32>,
    /// Number of indexes that may fail before the Job is stopped
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(0..))]
    pub max_failed_indexes: Option<i32>,
    /// How long to wait before the first retry of --retries, such as 500ms, 10s or 1m30s; the wait doubles with every
    /// failure [default: 1s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = delay)]
    pub retry_delay: Option<String>,
    /// The longest wait before a retry [default: 1m]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = delay)]
    pub retry_max_delay: Option<String>,
    /// When so many runs have failed for good, end the Job: now,fail=N stops the others, soon,fail=N starts no more and lets
    /// those that run end; N may be a percentage, such as 10%. With --indexed or a list
    #[arg(long, value_name = "WHEN", conflicts_with_all = ["max_failed_indexes", "backoff_limit"])]
    pub halt: Option<Halt>,
    /// Time limit for every attempt of every run, such as 90s, rounded up to whole seconds; an attempt that exceeds it is
    /// stopped and has failed
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = timeout)]
    pub timeout: Option<i64>,
    /// Time limit for the whole Job, such as 90s, 10m or 1h30m; after that all Pods are stopped and the Job fails
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = seconds)]
    pub deadline: Option<i64>,
    /// Fail the Job if one of its runs has not started after this time, such as 10m; by reason: Unschedulable=10m
    #[arg(long, value_name = "DURATION", value_parser = pending_timeout)]
    pub pending_timeout: Option<String>,
    /// Do not give the command the environment of the shell, only HOME, LANG, LC_ALL, LC_CTYPE, LOGNAME, PATH, SHELL,
    /// TMPDIR, TZ, USER and --env
    #[arg(long)]
    pub clean_env: bool,
    /// Set an environment variable; NAME alone copies it from the current environment; may be repeated
    #[arg(long, short = 'e', value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Working directory of the command [default: the current directory]
    #[arg(long, short = 'C', value_name = "DIR")]
    pub workdir: Option<String>,
    /// CPU request of each run, such as 2 or 500m; runs that do not fit wait
    #[arg(long, value_name = "CPUS", value_parser = quantity)]
    pub cpu: Option<String>,
    /// Memory request of each run, such as 512Mi; runs that do not fit wait
    #[arg(long, value_name = "BYTES", value_parser = quantity)]
    pub memory: Option<String>,
    /// Whether a failed run is replaced by a new Pod (Never) or restarted in the same Pod (OnFailure), up to 6 times
    /// unless --retries says otherwise
    #[arg(long, value_name = "POLICY", value_enum, ignore_case = true)]
    pub restart: Option<Restart>,
    /// How long a finished Job is kept in the data directory or on the cluster, such as 1h
    #[arg(long, value_name = "DURATION", value_parser = seconds, requires = "lasting")]
    pub ttl: Option<i64>,
}

/// The value of `--halt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halt {
    /// Those that run may end.
    soon: bool,
    failures: u32,
    /// Of all runs, in percent.
    percent: bool,
}

impl std::str::FromStr for Halt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let halt = || {
            let (when, number) = text.split_once(",fail=")?;
            let soon = ["now", "soon"].iter().position(|known| *known == when)? == 1;
            let (number, percent) = number.strip_suffix('%').map_or((number, false), |number| (number, true));
            let failures = number.parse().ok().filter(|failures| *failures > 0 && (!percent || *failures <= 100))?;
            Some(Self { soon, failures, percent })
        };
        halt().ok_or_else(|| format!("{text:?} must be now or soon with a number of failures, such as now,fail=1, soon,fail=3 or soon,fail=10%"))
    }
}

impl Halt {
    /// How many runs may fail before the Job ends.
    fn may_fail(self, completions: i32) -> i64 {
        let (failures, completions) = (i64::from(self.failures), i64::from(completions));
        let failures = if self.percent { (failures * completions + 99) / 100 } else { failures };
        (failures - 1).clamp(0, completions.max(0))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Restart {
    #[value(name = "Never")]
    Never,
    #[value(name = "OnFailure")]
    OnFailure,
}

/// The environment of the caller, on which the meaning of the flags depends.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    pub directory: String,
    pub env: BTreeMap<String, String>,
    pub processors: i32,
}

/// Parses `90`, `90s` or `1h30m` into whole seconds.
pub fn seconds(text: &str) -> Result<i64, String> {
    let nanoseconds = match text.parse::<i64>() {
        Ok(seconds) => seconds.saturating_mul(1_000_000_000),
        Err(_) => schedule::duration(text).map_err(|_| format!("{text:?} is not a duration such as 90s or 1h30m"))?,
    };
    if nanoseconds < 0 {
        return Err(format!("{text:?} must not be negative"));
    }
    // Rounded up: the API has only whole seconds, and a short duration does not mean zero.
    Ok(nanoseconds.saturating_add(999_999_999) / 1_000_000_000)
}

/// A time limit of at least a second, in whole seconds.
pub fn timeout(text: &str) -> Result<i64, String> {
    match seconds(text)? {
        0 => Err(format!("{text:?} must be longer than 0")),
        seconds => Ok(seconds),
    }
}

/// A delay, as the annotations of a Job have it. A plain number is in seconds.
fn delay(text: &str) -> Result<String, String> {
    let text = if text.parse::<u64>().is_ok() { format!("{text}s") } else { text.to_owned() };
    match BackoffPolicy::read(Some(&text), None, None) {
        Ok(_) => Ok(text),
        Err(errors) => Err(errors.first().map(|error| format!("{text:?} {}", error.detail)).unwrap_or_default()),
    }
}

/// The value of the annotation, as it is written.
fn pending_timeout(text: &str) -> Result<String, String> {
    pending::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// A quantity, as it is written.
fn quantity(text: &str) -> Result<String, String> {
    Quantity::parse(text).map(|_| text.to_owned()).map_err(|_| no_quantity(text))
}

impl Flags {
    /// The first given flag that describes the Job itself. Such flags cannot be combined with files, which describe it,
    /// too.
    pub fn first(&self) -> Option<&'static str> {
        let given = [
            ("--name", self.name.is_some()),
            ("--completions", self.completions.is_some()),
            ("--parallelism", self.parallelism.is_some()),
            ("--indexed", self.indexed),
            ("--retries", self.retries.is_some()),
            ("--backoff-limit", self.backoff_limit.is_some()),
            ("--backoff-limit-per-index", self.backoff_limit_per_index.is_some()),
            ("--max-failed-indexes", self.max_failed_indexes.is_some()),
            ("--retry-delay", self.retry_delay.is_some()),
            ("--retry-max-delay", self.retry_max_delay.is_some()),
            ("--halt", self.halt.is_some()),
            ("--timeout", self.timeout.is_some()),
            ("--deadline", self.deadline.is_some()),
            ("--pending-timeout", self.pending_timeout.is_some()),
            ("--clean-env", self.clean_env),
            ("--env", !self.env.is_empty()),
            ("--workdir", self.workdir.is_some()),
            ("--cpu", self.cpu.is_some()),
            ("--memory", self.memory.is_some()),
            ("--restart", self.restart.is_some()),
            ("--ttl", self.ttl.is_some()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
    }

    /// The Job that runs the command.
    ///
    /// `input` identifies the input of the command, such as its list; empty if there is none.
    pub fn job(&self, command: &[String], caller: &Caller, input: &str) -> Result<Value, String> {
        let completions = self.completions.unwrap_or(1);
        let env = self.env(caller)?;
        let mut container = json!({
            "name": "main",
            "image": "process",
            "command": command.iter().map(|word| literal(word)).collect::<Vec<_>>(),
            "workingDir": self.directory(caller),
        });
        let asked: Map<String, Value> = [("cpu", &self.cpu), ("memory", &self.memory)]
            .into_iter()
            .filter_map(|(name, quantity)| Some((name.to_owned(), quantity.as_deref()?.into())))
            .collect();
        if !asked.is_empty() {
            container["resources"] = json!({"requests": asked});
        }
        let restart = match self.restart.unwrap_or(Restart::Never) {
            Restart::Never => "Never",
            Restart::OnFailure => "OnFailure",
        };
        if self.halt.is_some() && !self.indexed {
            return Err("--halt counts the runs that have failed for good; add --indexed, or --each FILE".to_owned());
        }
        if self.max_failed_indexes.is_some() && !self.indexed {
            return Err(
                "--max-failed-indexes counts the indexes that have failed; add --indexed, or --each FILE".to_owned()
            );
        }
        if self.max_failed_indexes.is_some() && self.backoff_limit.is_some() && self.backoff_limit_per_index.is_none() {
            return Err(
                "--max-failed-indexes needs retries that are counted per index: replace --backoff-limit by --retries"
                    .to_owned(),
            );
        }
        let may_fail = self.halt.map(|halt| halt.may_fail(completions));
        // What is typed was retried in earlier versions: names are made of what it said then, so that the same command goes
        // on with what they have left unfinished.
        let per_index = self.halt.map(|_| DEFAULT_BACKOFF_LIMIT);
        let mut spec = json!({
            "completions": completions,
            "completionMode": if self.indexed { "Indexed" } else { "NonIndexed" },
            "template": {"spec": {"restartPolicy": restart, "containers": [container]}},
        });
        for (field, value) in [
            ("backoffLimit", self.backoff_limit.map(i64::from)),
            ("backoffLimitPerIndex", self.backoff_limit_per_index.or(per_index).map(i64::from)),
            ("maxFailedIndexes", self.max_failed_indexes.map(i64::from).or(may_fail)),
            ("activeDeadlineSeconds", self.deadline),
            ("ttlSecondsAfterFinished", self.ttl),
        ] {
            if let Some(value) = value {
                spec[field] = value.into();
            }
        }
        if let Some(timeout) = self.timeout {
            if restart == "OnFailure" {
                return Err(
                    "--timeout is the limit of one attempt, and --restart OnFailure makes all attempts in one \
                            Pod: use --deadline, or --restart Never"
                        .to_owned(),
                );
            }
            spec["template"]["spec"]["activeDeadlineSeconds"] = timeout.into();
        }
        // The name is derived from everything that identifies the work. It does not depend on the parallelism or on the
        // variables that the shell happens to have set.
        let mut said = json!([spec, self.env]).to_string() + input;
        if self.halt.is_some_and(|halt| halt.soon) {
            said += "--halt soon";
        }
        if self.clean_env {
            said += "--clean-env";
        } else {
            // The variables are taken when a process starts. They are not part of the Job: nothing of them is stored.
            spec["template"]["metadata"] = json!({"annotations": {ENVIRONMENT_ANNOTATION: "shell"}});
        }
        let name = self.name.clone().unwrap_or_else(|| name(command, said.as_bytes()));
        self.limit_retries(&mut spec, completions);
        spec["parallelism"] = self.parallelism.unwrap_or(caller.processors.min(completions).max(1)).into();
        spec["template"]["spec"]["containers"][0]["env"] = env;
        if restart == "Never" {
            // A Pod that ends because Tally was stopped or killed has not failed by itself: it does not count against
            // backoffLimit. The API allows this policy only with restartPolicy Never.
            let disrupted = json!([{"type": "DisruptionTarget", "status": "True"}]);
            spec["podFailurePolicy"] = json!({"rules": [{"action": "Ignore", "onPodConditions": disrupted}]});
        }
        let mut annotations = self.waits()?;
        if self.halt.is_some_and(|halt| halt.soon) {
            annotations[HALT_ANNOTATION] = HALT_SOON.into();
        }
        if let Some(limits) = &self.pending_timeout {
            annotations[PENDING_TIMEOUT] = limits.as_str().into();
        }
        let metadata = json!({"name": name, "annotations": annotations});
        Ok(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}))
    }

    /// What is typed is tried once unless retries are asked for. An index or line that fails ends only itself.
    fn limit_retries(&self, spec: &mut Value, completions: i32) {
        if self.backoff_limit.is_some() || self.backoff_limit_per_index.is_some() {
            return;
        }
        let restarts = self.restart == Some(Restart::OnFailure);
        // Restarts in place are counted for the whole Job, unless a limit of failed indexes needs them by index.
        let per_index = self.indexed && (!restarts || self.halt.is_some() || self.max_failed_indexes.is_some());
        // `--restart OnFailure` asks for restarts.
        let retries = self.retries.unwrap_or(if restarts { DEFAULT_BACKOFF_LIMIT } else { 0 });
        spec[if per_index { "backoffLimitPerIndex" } else { "backoffLimit" }] = retries.into();
        if per_index && completions > MOST_UNLIMITED && spec.get("maxFailedIndexes").is_none() {
            spec["maxFailedIndexes"] = MOST_FAILED.into();
        }
    }

    /// A flag that has no effect because nothing is retried.
    pub fn wait_without_retries(&self) -> Option<&'static str> {
        let limits = [self.retries, self.backoff_limit, self.backoff_limit_per_index];
        let waits = [("--retry-delay", &self.retry_delay), ("--retry-max-delay", &self.retry_max_delay)];
        let given = waits.into_iter().find(|(_, given)| given.is_some()).map(|(flag, _)| flag);
        given.filter(|_| {
            self.restart != Some(Restart::OnFailure) && limits.into_iter().flatten().all(|limit| limit == 0)
        })
    }

    /// The annotations that say how long to wait before a retry.
    fn waits(&self) -> Result<Value, String> {
        let read = |base: Option<&str>, max: Option<&str>| BackoffPolicy::read(base, max, None).ok();
        let (given, longest) = (self.retry_delay.as_deref(), self.retry_max_delay.as_deref());
        let (base, max) = match (given, longest) {
            (None, None) => (RETRY_DELAY, RETRY_MAX_DELAY),
            // What is not given gives way to what is.
            (Some(base), None) => (base, read(Some(base), Some(RETRY_MAX_DELAY)).map_or(base, |_| RETRY_MAX_DELAY)),
            (None, Some(max)) => (read(Some(RETRY_DELAY), Some(max)).map_or(max, |_| RETRY_DELAY), max),
            (Some(base), Some(max)) => (base, max),
        };
        if read(Some(base), Some(max)).is_none() {
            return Err(format!("--retry-max-delay {max} must not be less than --retry-delay {base}"));
        }
        Ok(json!({BASE_ANNOTATION: base, MAX_ANNOTATION: max}))
    }

    fn directory(&self, caller: &Caller) -> String {
        let Some(given) = &self.workdir else { return caller.directory.clone() };
        let path = std::path::Path::new(&caller.directory).join(given);
        path.to_string_lossy().into_owned()
    }

    fn env(&self, caller: &Caller) -> Result<Value, String> {
        let copied = TAKEN_OVER.into_iter().filter(|_| self.clean_env);
        let taken = copied.filter_map(|name| Some((name.to_owned(), caller.env.get(name)?.clone())));
        let mut env: BTreeMap<String, String> = taken.collect();
        let mut order: Vec<String> = env.keys().cloned().collect();
        for given in &self.env {
            let (name, value) = match given.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None => match caller.env.get(given) {
                    Some(value) => (given.as_str(), value.clone()),
                    None => {
                        return Err(format!("--env {given}: not set in the current environment; use {given}=VALUE"));
                    }
                },
            };
            if name.is_empty() {
                return Err(format!("--env {given}: the name before = is empty"));
            }
            // If a variable is given twice, the last value counts.
            order.retain(|known| known != name);
            order.push(name.to_owned());
            env.insert(name.to_owned(), value);
        }
        let row = |name: String| json!({"value": literal(&env[&name]), "name": name});
        Ok(order.into_iter().map(row).collect())
    }
}

/// Doubles `$$`, because Kubernetes replaces it by one dollar. In a shell it means something else.
pub fn literal(word: &str) -> String {
    word.replace("$$", "$$$$")
}

/// A name that no other Job has.
pub fn unique_name(command: &[String]) -> String {
    name(command, &fastrand::u64(..).to_le_bytes())
}

/// The name of the program, converted to a valid object and host name, with a suffix that identifies this Job.
fn name(command: &[String], said: &[u8]) -> String {
    let program = command.first().map_or("", String::as_str);
    let program = program.rsplit('/').next().unwrap_or_default().to_lowercase();
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let mut stem = String::new();
    for letter in program.chars().map(plain) {
        if letter != '-' || !stem.is_empty() && !stem.ends_with('-') {
            stem.push(letter);
        }
    }
    stem.truncate(LONGEST_STEM);
    let stem = match stem.trim_end_matches('-') {
        "" => "job",
        stem => stem,
    };
    format!("{stem}-{}", letters(xxh3_64(said), SUFFIX_LENGTH))
}

/// A hash as letters that a name may contain.
pub fn letters(hash: u64, count: usize) -> String {
    let mut rest = hash;
    let mut draw = || {
        let letter = SUFFIX[(rest % SUFFIX.len() as u64) as usize];
        rest /= SUFFIX.len() as u64;
        char::from(letter)
    };
    (0..count).map(|_| draw()).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn caller() -> Caller {
        let env = [("PATH", "/bin"), ("HOME", "/root"), ("SECRET", "s"), ("FOO", "$$1")];
        let env = env.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Caller { directory: "/here".to_owned(), env, processors: 4 }
    }

    fn job(flags: Flags, command: &[&str]) -> Value {
        flags.job(&command.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), &caller(), "").unwrap()
    }

    fn env_of(job: &Value) -> Vec<String> {
        let env = job["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
        let row = |row: &Value| format!("{}={}", row["name"].as_str().unwrap(), row["value"].as_str().unwrap());
        env.iter().map(row).collect()
    }

    #[test]
    fn a_plain_command_is_one_run_of_it_here() {
        let job = job(Flags::default(), &["make", "-j", "$$", "$(nproc)"]);
        let spec = &job["spec"];
        let container = &spec["template"]["spec"]["containers"][0];
        assert_eq!((&spec["completions"], &spec["parallelism"]), (&json!(1), &json!(1)));
        assert_eq!(spec["completionMode"], "NonIndexed");
        assert_eq!(container["command"], json!(["make", "-j", "$$$$", "$(nproc)"]));
        assert_eq!(container["workingDir"], "/here");
        assert_eq!(container["image"], "process");
        assert_eq!(env_of(&job), [""; 0], "the variables of the shell are not part of the Job");
        assert_eq!(spec["template"]["metadata"]["annotations"], json!({"tally.dev/environment": "shell"}));
        assert_eq!(spec["template"]["spec"]["restartPolicy"], "Never");
        let rule = json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]});
        assert_eq!(spec["podFailurePolicy"], json!({"rules": [rule]}));
    }

    #[test]
    fn every_flag_is_a_field() {
        let flags = Flags {
            name: Some("n".to_owned()),
            completions: Some(9),
            parallelism: Some(3),
            indexed: true,
            retries: None,
            backoff_limit: Some(1),
            backoff_limit_per_index: Some(2),
            max_failed_indexes: Some(4),
            retry_delay: Some("3s".to_owned()),
            retry_max_delay: Some("2m".to_owned()),
            halt: None,
            timeout: None,
            deadline: Some(90),
            pending_timeout: Some("10m".to_owned()),
            clean_env: true,
            env: vec!["A=b=c".to_owned(), "FOO".to_owned(), "PATH=/mine".to_owned()],
            workdir: Some("sub".to_owned()),
            cpu: Some("500m".to_owned()),
            memory: None,
            restart: Some(Restart::OnFailure),
            ttl: Some(60),
        };
        let job = job(flags, &["x"]);
        for (pointer, expected) in [
            ("/metadata/name", json!("n")),
            ("/spec/completions", json!(9)),
            ("/spec/parallelism", json!(3)),
            ("/spec/completionMode", json!("Indexed")),
            ("/spec/backoffLimit", json!(1)),
            ("/spec/backoffLimitPerIndex", json!(2)),
            ("/spec/maxFailedIndexes", json!(4)),
            ("/spec/activeDeadlineSeconds", json!(90)),
            ("/metadata/annotations/tally.dev~1backoff-base", json!("3s")),
            ("/metadata/annotations/tally.dev~1backoff-max", json!("2m")),
            ("/metadata/annotations/tally.dev~1pending-timeout", json!("10m")),
            ("/spec/ttlSecondsAfterFinished", json!(60)),
            ("/spec/template/spec/restartPolicy", json!("OnFailure")),
            ("/spec/template/spec/containers/0/workingDir", json!("/here/sub")),
            ("/spec/template/spec/containers/0/resources", json!({"requests": {"cpu": "500m"}})),
        ] {
            assert_eq!(job.pointer(pointer), Some(&expected), "{pointer}");
        }
        assert_eq!(job["spec"].get("podFailurePolicy"), None, "the API refuses it for Pods that start again in place");
        assert_eq!(env_of(&job), ["HOME=/root", "A=b=c", "FOO=$$$$1", "PATH=/mine"]);
        assert_eq!(job["spec"]["template"].get("metadata"), None, "it does not get the environment of the shell");
    }

    #[test]
    fn only_variables_that_are_given_are_part_of_the_job() {
        let job = job(Flags { env: vec!["A=b".to_owned(), "SECRET".to_owned()], ..Flags::default() }, &["x"]);
        assert_eq!(env_of(&job), ["A=b", "SECRET=s"]);
    }

    #[test]
    fn parallelism_is_what_the_machine_has_and_the_work_needs() {
        for (completions, expected) in [(None, 1), (Some(0), 1), (Some(3), 3), (Some(100), 4)] {
            assert_eq!(job(Flags { completions, ..Flags::default() }, &["x"])["spec"]["parallelism"], expected);
        }
    }

    #[test]
    fn variables_must_be_there_to_be_taken_over() {
        for (given, told) in [("NOPE", "not set in the current environment"), ("=x", "the name before = is empty")] {
            let flags = Flags { env: vec![given.to_owned()], ..Flags::default() };
            assert!(flags.job(&["x".to_owned()], &caller(), "").unwrap_err().contains(told));
        }
    }

    #[test]
    fn names_are_made_of_commands() {
        for (program, stem) in [
            ("make", "make-"),
            ("/usr/bin/Python3.11", "python3-11-"),
            ("./.hidden.sh", "hidden-sh-"),
            ("---", "job-"),
            ("", "job-"),
            (&"x".repeat(90), &format!("{}-", "x".repeat(LONGEST_STEM))),
        ] {
            let name = name(&[program.to_owned()], b"");
            assert_eq!(name.len(), stem.len() + SUFFIX_LENGTH, "{name}");
            assert!(name.starts_with(stem), "{program}: {name}");
        }
    }

    #[test]
    fn the_same_work_has_the_same_name() {
        let named = |flags: Flags, command: &[&str]| job(flags, command)["metadata"]["name"].clone();
        let plain = named(Flags::default(), &["make"]);
        assert_eq!(plain, named(Flags { parallelism: Some(2), ..Flags::default() }, &["make"]));
        for (flags, command) in [
            (Flags::default(), &["make", "test"][..]),
            (Flags { completions: Some(2), ..Flags::default() }, &["make"]),
            (Flags { env: vec!["A=1".to_owned()], ..Flags::default() }, &["make"]),
            (Flags { clean_env: true, ..Flags::default() }, &["make"]),
            (Flags { workdir: Some("/there".to_owned()), ..Flags::default() }, &["make"]),
        ] {
            assert_ne!(plain, named(flags, command), "{command:?}");
        }
    }

    /// A data directory outlives versions: the same command must find what an earlier one has left unfinished there.
    #[test]
    fn names_are_those_that_earlier_versions_gave() {
        let named =
            |flags: Flags| job(Flags { workdir: Some("/".to_owned()), ..flags }, &["true"])["metadata"]["name"].clone();
        let indexed = || Flags { completions: Some(3), indexed: true, ..Flags::default() };
        for (flags, expected) in [
            (Flags::default(), "true-n2c75"),
            (Flags { backoff_limit: Some(2), ..Flags::default() }, "true-f9vxv"),
            (Flags { restart: Some(Restart::OnFailure), ..Flags::default() }, "true-55gj9"),
            (indexed(), "true-hgvn5"),
            (Flags { backoff_limit_per_index: Some(2), ..indexed() }, "true-4z7rv"),
            (Flags { halt: Some("now,fail=2".parse().unwrap()), ..indexed() }, "true-h6kjw"),
            // Retries do not make it other work.
            (Flags { retries: Some(2), ..Flags::default() }, "true-n2c75"),
            (Flags { retries: Some(2), ..indexed() }, "true-hgvn5"),
        ] {
            assert_eq!(named(flags.clone()), expected, "{flags:?}");
        }
    }

    #[test]
    fn what_is_typed_is_tried_once_and_an_index_that_fails_ends_only_itself() {
        let limits = |flags: Flags| {
            let spec = job(flags, &["x"])["spec"].clone();
            ["backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes"].map(|field| spec[field].as_i64())
        };
        let plain = Flags::default;
        let indexed = || Flags { completions: Some(9), indexed: true, ..plain() };
        let restart = Some(Restart::OnFailure);
        for (flags, expected) in [
            (plain(), [Some(0), None, None]),
            (Flags { completions: Some(9), ..plain() }, [Some(0), None, None]),
            (Flags { retries: Some(3), ..plain() }, [Some(3), None, None]),
            (Flags { backoff_limit: Some(3), ..plain() }, [Some(3), None, None]),
            (indexed(), [None, Some(0), None]),
            (Flags { retries: Some(3), ..indexed() }, [None, Some(3), None]),
            (Flags { backoff_limit_per_index: Some(3), ..indexed() }, [None, Some(3), None]),
            (Flags { backoff_limit: Some(3), ..indexed() }, [Some(3), None, None]),
            (Flags { max_failed_indexes: Some(2), ..indexed() }, [None, Some(0), Some(2)]),
            (Flags { completions: Some(100_000), ..indexed() }, [None, Some(0), None]),
            (Flags { completions: Some(100_001), ..indexed() }, [None, Some(0), Some(10_000)]),
            (Flags { restart, ..plain() }, [Some(6), None, None]),
            (Flags { restart, retries: Some(2), ..indexed() }, [Some(2), None, None]),
            (Flags { restart, max_failed_indexes: Some(1), ..indexed() }, [None, Some(6), Some(1)]),
        ] {
            assert_eq!(limits(flags.clone()), expected, "{flags:?}");
        }
        let max = Flags { max_failed_indexes: Some(2), ..plain() };
        assert!(max.job(&["x".to_owned()], &caller(), "").unwrap_err().contains("add --indexed"));
        let both = Flags { max_failed_indexes: Some(2), backoff_limit: Some(1), ..indexed() };
        assert!(
            both.job(&["x".to_owned()], &caller(), "").unwrap_err().contains("replace --backoff-limit by --retries")
        );
    }

    #[test]
    fn a_wait_before_retries_needs_retries() {
        let delay = || Some("5s".to_owned());
        for (flags, expected) in [
            (Flags::default(), None),
            (Flags { retry_delay: delay(), ..Flags::default() }, Some("--retry-delay")),
            (Flags { retry_max_delay: delay(), retries: Some(0), ..Flags::default() }, Some("--retry-max-delay")),
            (Flags { retry_delay: delay(), retries: Some(1), ..Flags::default() }, None),
            (Flags { retry_delay: delay(), backoff_limit: Some(1), ..Flags::default() }, None),
        ] {
            assert_eq!(flags.wait_without_retries(), expected, "{flags:?}");
        }
    }

    #[test]
    fn retries_wait_a_second_and_no_more_than_a_minute_unless_told_otherwise() {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        for (delay, max, expected) in [
            ("", "", ("1s", "1m")),
            ("5s", "", ("5s", "1m")),
            ("2m", "", ("2m", "2m")),
            ("", "500ms", ("500ms", "500ms")),
            ("", "10m", ("1s", "10m")),
            ("0s", "0s", ("0s", "0s")),
        ] {
            let flags = Flags { retry_delay: text(delay), retry_max_delay: text(max), ..Flags::default() };
            let (base, max) = expected;
            let annotations = json!({"tally.dev/backoff-base": base, "tally.dev/backoff-max": max});
            assert_eq!(job(flags, &["x"])["metadata"]["annotations"], annotations);
        }
        let flags = Flags { retry_delay: text("5s"), retry_max_delay: text("4s"), ..Flags::default() };
        let error = flags.job(&["x".to_owned()], &caller(), "").unwrap_err();
        assert_eq!(error, "--retry-max-delay 4s must not be less than --retry-delay 5s");
        for (given, expected) in [("7", Ok("7s")), ("1m30s", Ok("1m30s")), ("0s", Ok("0s"))] {
            assert_eq!(delay(given), expected.map(str::to_owned).map_err(str::to_owned));
        }
        for given in ["soon", "-1s", "25h", ""] {
            assert!(delay(given).is_err(), "{given}");
        }
    }

    #[test]
    fn a_job_ends_when_too_many_runs_have_failed() {
        for (halt, completions, may_fail, soon) in [
            ("now,fail=1", 10, 0, false),
            ("now,fail=3", 10, 2, false),
            ("soon,fail=3", 10, 2, true),
            ("soon,fail=10%", 25, 2, true),
            ("now,fail=100%", 7, 6, false),
            ("now,fail=1%", 7, 0, false),
            ("now,fail=99", 7, 7, false),
        ] {
            let (indexed, completions) = (true, Some(completions));
            let halted = Flags { halt: Some(halt.parse().unwrap()), indexed, completions, ..Flags::default() };
            let made = job(halted, &["x"]);
            assert_eq!(made["spec"]["maxFailedIndexes"], may_fail, "{halt}");
            assert_eq!(made["spec"]["backoffLimitPerIndex"], 0, "{halt}");
            assert_eq!(made["metadata"]["annotations"]["tally.dev/halt"] == "soon", soon, "{halt}");
        }
        for halt in ["now", "soon", "now,fail=0", "never,fail=1", "now,fail=101%", "now,success=1", "2", ""] {
            assert!(halt.parse::<Halt>().unwrap_err().contains("now,fail=1, soon,fail=3 or soon,fail=10%"), "{halt}");
        }
        let error = Flags { halt: Some("now,fail=1".parse().unwrap()), ..Flags::default() };
        assert!(error.job(&["x".to_owned()], &caller(), "").unwrap_err().contains("add --indexed, or --each FILE"));
    }

    #[test]
    fn a_time_limit_is_that_of_every_attempt() {
        let limited = |flags: Flags| flags.job(&["x".to_owned()], &caller(), "");
        let made = limited(Flags { timeout: Some(5), ..Flags::default() }).unwrap();
        assert_eq!(made["spec"]["template"]["spec"]["activeDeadlineSeconds"], 5);
        assert_eq!(made["spec"].get("activeDeadlineSeconds"), None);
        let error = limited(Flags { timeout: Some(5), restart: Some(Restart::OnFailure), ..Flags::default() });
        assert!(error.unwrap_err().contains("--restart Never"));
        assert_eq!((timeout("100ms"), timeout("90")), (Ok(1), Ok(90)));
        assert!(timeout("0s").is_err() && timeout("-1s").is_err());
    }

    #[test]
    fn durations_are_whole_seconds() {
        for (text, expected) in [("90", 90), ("90s", 90), ("1h30m", 5400), ("100ms", 1), ("0", 0)] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in ["", "-1s", "soon", "5x"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
