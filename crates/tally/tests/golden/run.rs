//! One conversation: its steps are sent to the server in turn, and each response is compared with the recorded one.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use similar::TextDiff;

use super::corpus::Case;
use super::normal::{Normal, Shape};
use super::path;
use super::same::{Allowed, Same};
use super::support::client::{Answer, Api, Call, Connection};

/// Pauses between two polls: short at first, then longer, because most of a back-off passes without a change.
const LOOK_AFTER: Duration = Duration::from_millis(50);
const LOOK_EVERY: Duration = Duration::from_millis(400);
/// A longer diff is truncated: its beginning says as much.
const DIFF_LINES: usize = 60;

/// The result of a case.
pub struct Outcome {
    /// One text for every step that differed; none if the conversation is the recorded one.
    pub differences: Vec<String>,
    pub allowed: BTreeSet<Allowed>,
}

impl Outcome {
    /// The beginning of the first difference.
    pub fn first(&self) -> String {
        self.differences.first().map(|text| text.chars().take(600).collect()).unwrap_or_default()
    }
}

/// Replays a case in a namespace of its own.
pub async fn replay(api: &Api, case: &Case) -> Outcome {
    let suffix: String = std::iter::repeat_with(fastrand::lowercase).take(12).collect();
    let namespace = format!("g-{suffix}");
    let mut run = Run {
        connection: api.connection(),
        normal: Normal::new(&namespace),
        answers: HashMap::from([("ns".to_owned(), namespace.clone().into())]),
        namespace,
    };
    let mut outcome = Outcome { differences: Vec::new(), allowed: BTreeSet::new() };
    let mut same = Same::default();
    if let Err(error) = run.begin().await {
        outcome.differences.push(format!("namespace: {error}"));
        return outcome;
    }
    for (place, step) in case.steps.iter().enumerate() {
        match run.step(step).await {
            Ok(None) => {}
            Ok(Some(answer)) => match same.compare(&step["expect"], &answer) {
                Some(allowed) => outcome.allowed.extend(allowed),
                None => outcome.differences.push(format!("step {place}:\n{}", diff(&step["expect"], &answer))),
            },
            // The following steps depend on this one.
            Err(error) => {
                outcome.differences.push(format!("step {place}: {error}"));
                break;
            }
        }
    }
    run.end().await;
    outcome
}

struct Run {
    connection: Connection,
    normal: Normal,
    namespace: String,
    /// What `${name.path}` refers to.
    answers: HashMap<String, Value>,
}

impl Run {
    async fn begin(&mut self) -> Result<(), String> {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}});
        let answer = self.call(&Call::new("POST", "/api/v1/namespaces").body(&body)).await?;
        if answer.code == 201 { Ok(()) } else { Err(format!("{} {}", answer.code, answer.text)) }
    }

    /// Without a namespace controller the namespace stays, terminating; the server and its data are removed soon after.
    async fn end(&mut self) {
        let path = format!("/api/v1/namespaces/{}", self.namespace);
        let _ = self.call(&Call::new("DELETE", path)).await;
    }

    async fn call(&mut self, call: &Call) -> Result<Answer, String> {
        self.connection.call(call).await.map_err(|error| format!("{} {}: {error:#}", call.method, call.path))
    }

    /// The response in the form in which it was recorded, or `None` for a step that records nothing.
    async fn step(&mut self, step: &Value) -> Result<Option<Value>, String> {
        let mut step = step.clone();
        // The recorded response is not part of the step, and may contain text that looks like a reference.
        step.as_object_mut().ok_or("a step is an object")?.remove("expect");
        let step = self.substitute(&step)?;
        if let Some(seconds) = step["sleep"].as_f64() {
            tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
            return Ok(None);
        }
        if step["pods"].is_object() {
            self.pods(&step["pods"]).await?;
            return Ok(None);
        }
        let answer = match &step["wait"] {
            Value::Null => self.call(&request(&step["request"])?).await?,
            wait => self.wait(wait).await?,
        };
        let body = answer.value();
        if let Some(name) = step["as"].as_str() {
            self.answers.insert(name.to_owned(), body.clone());
        }
        if step["record"] == false {
            return Ok(None);
        }
        let paths = |key: &str| -> Vec<String> {
            step[key].as_array().into_iter().flatten().filter_map(|path| path.as_str().map(str::to_owned)).collect()
        };
        let shape = Shape {
            managed_fields: step["managedFields"] == true,
            ignore: paths("ignore"),
            only: paths("only"),
            sort: step["sort"] != false,
        };
        Ok(Some(self.normal.answer(answer.code, &answer.warnings, body, &shape)))
    }

    /// Polls until all conditions hold, or the object is gone.
    async fn wait(&mut self, wait: &Value) -> Result<Answer, String> {
        let call = Call { query: query(&wait["query"]), ..Call::get(text(wait, "path")?) };
        let until = Instant::now() + Duration::from_secs_f64(wait["timeout"].as_f64().unwrap_or(20.0));
        let mut look_after = LOOK_AFTER;
        loop {
            let answer = self.call(&call).await?;
            let reached = if wait["gone"] == true {
                answer.code == 404
            } else {
                let body = answer.value();
                let mut conditions = wait["until"].as_array().into_iter().flatten();
                answer.code == 200
                    && conditions.try_fold(true, |all, one| path::holds(&body, one).map(|one| all && one))?
            };
            if reached {
                return Ok(answer);
            }
            if Instant::now() > until {
                let shown: String = answer.text.chars().take(600).collect();
                return Err(format!("waited for {} at {}: {} {shown}", wait["until"], call.path, answer.code));
            }
            tokio::time::sleep(look_after).await;
            look_after = LOOK_EVERY.min(look_after * 5 / 4);
        }
    }

    /// Acts as the node: waits for Pods, then writes their status, patches or deletes them.
    async fn pods(&mut self, wanted: &Value) -> Result<(), String> {
        let all = format!("/api/v1/namespaces/{}/pods", self.namespace);
        let selector = vec![("labelSelector".to_owned(), text(wanted, "selector")?)];
        let list = Call { query: selector, ..Call::get(&all) };
        let count = wanted["count"].as_u64().unwrap_or(1) as usize;
        let until = Instant::now() + Duration::from_secs_f64(wanted["timeout"].as_f64().unwrap_or(20.0));
        let mut look_after = LOOK_AFTER;
        let pods = loop {
            let pods = matching_pods(&self.call(&list).await?.value(), wanted);
            if pods.len() >= count {
                break pods;
            }
            if Instant::now() > until {
                return Err(format!("{count} Pods wanted for {wanted}, {} there", pods.len()));
            }
            tokio::time::sleep(look_after).await;
            look_after = LOOK_EVERY.min(look_after * 5 / 4);
        };
        for pod in pods.into_iter().take(count) {
            let path = format!("{all}/{pod}");
            if let Some(options) = wanted["delete"].as_object() {
                let mut body = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
                body.as_object_mut().expect("it is one").extend(options.clone());
                self.call(&Call::new("DELETE", path).body(&body)).await?;
                continue;
            }
            let (path, body) = match &wanted["status"] {
                Value::Null => (path, wanted["patch"].clone()),
                status => (format!("{path}/status"), json!({ "status": status })),
            };
            let patch = Call::new("PATCH", path).header("Content-Type", "application/merge-patch+json").body(&body);
            let answer = self.call(&patch).await?;
            if answer.code != 200 {
                return Err(format!("patch of a Pod: {} {}", answer.code, answer.text));
            }
        }
        Ok(())
    }

    /// Replaces `${name.path}` in every string; a string that is nothing else becomes the value itself.
    fn substitute(&self, value: &Value) -> Result<Value, String> {
        Ok(match value {
            Value::Object(fields) => {
                let pair = |(key, field): (&String, &Value)| {
                    let key = match self.substitute(&key.clone().into())? {
                        Value::String(key) => key,
                        other => other.to_string(),
                    };
                    Ok::<_, String>((key, self.substitute(field)?))
                };
                Value::Object(fields.iter().map(pair).collect::<Result<_, _>>()?)
            }
            Value::Array(items) => {
                Value::Array(items.iter().map(|item| self.substitute(item)).collect::<Result<_, _>>()?)
            }
            Value::String(text) => self.substitute_text(text)?,
            other => other.clone(),
        })
    }

    fn substitute_text(&self, text: &str) -> Result<Value, String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, (name, after))) =
            rest.split_once("${").and_then(|(before, after)| Some((before, after.split_once('}')?)))
        {
            let value = self.variable(name)?;
            if before.is_empty() && after.is_empty() && filled.is_empty() {
                return Ok(value);
            }
            filled.push_str(before);
            filled.push_str(value.as_str().map(str::to_owned).unwrap_or_else(|| value.to_string()).as_str());
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled.into())
    }

    fn variable(&self, name: &str) -> Result<Value, String> {
        let (answer, path) = name.split_once('.').unwrap_or((name, ""));
        let answer = self.answers.get(answer).ok_or_else(|| format!("no answer was saved as {answer:?}"))?;
        Ok(path::get(answer, path))
    }
}

/// The names of the Pods that a `pods` step selects, sorted by index, age and name.
fn matching_pods(list: &Value, wanted: &Value) -> Vec<String> {
    let index = |pod: &Value| -> i64 {
        let index = pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"].as_str();
        index.and_then(|index| index.parse().ok()).unwrap_or(-1)
    };
    let fits = |pod: &&Value| {
        let phase = pod["status"]["phase"].as_str().unwrap_or("Pending");
        let phase_fits = match wanted["phase"].as_str() {
            Some(wanted) => phase == wanted,
            None => matches!(phase, "Pending" | "Running"),
        };
        let terminating = pod["metadata"].get("deletionTimestamp").is_some();
        phase_fits
            && terminating == (wanted["terminating"] == true)
            && wanted["index"].as_i64().is_none_or(|wanted| index(pod) == wanted)
    };
    let mut pods: Vec<_> = list["items"].as_array().into_iter().flatten().filter(fits).collect();
    pods.sort_by_key(|pod| {
        let text = |key: &str| pod["metadata"][key].as_str().unwrap_or_default();
        (index(pod), text("creationTimestamp"), text("name"))
    });
    pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

fn request(request: &Value) -> Result<Call, String> {
    let body = match (&request["raw"], request.get("body")) {
        (Value::String(raw), _) => Some(raw.clone()),
        (_, Some(body)) if !body.is_null() => Some(as_sent(body)),
        _ => None,
    };
    let headers = query(&request["headers"]);
    Ok(Call {
        method: text(request, "method")?,
        path: text(request, "path")?,
        query: query(&request["query"]),
        headers,
        body,
    })
}

/// A body as the recording client wrote it, with a blank after every comma and colon: some errors quote its beginning.
fn as_sent(body: &Value) -> String {
    match body {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, field)| format!("{}: {}", Value::from(key.as_str()), as_sent(field)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(as_sent).collect::<Vec<_>>().join(", ")),
        scalar => scalar.to_string(),
    }
}

/// Names and values; a list of values gives one pair for each.
fn query(fields: &Value) -> Vec<(String, String)> {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let pairs = fields.as_object().into_iter().flatten().flat_map(|(name, value)| match value {
        Value::Array(values) => values.iter().map(|value| (name.clone(), plain(value))).collect(),
        value => vec![(name.clone(), plain(value))],
    });
    pairs.collect()
}

fn text(value: &Value, key: &str) -> Result<String, String> {
    value[key].as_str().map(str::to_owned).ok_or_else(|| format!("a step without {key}"))
}

/// A diff of the recorded and the actual response, line by line.
fn diff(recorded: &Value, answered: &Value) -> String {
    let pretty = |value: &Value| serde_json::to_string_pretty(&sorted(value)).unwrap_or_default() + "\n";
    let (recorded, answered) = (pretty(recorded), pretty(answered));
    let diff = TextDiff::from_lines(&recorded, &answered);
    let text = diff.unified_diff().context_radius(1).header("recorded", "answered").to_string();
    let mut lines: Vec<_> = text.lines().skip(2).map(|line| format!("    {line}")).collect();
    if lines.len() > DIFF_LINES {
        let more = lines.len() - DIFF_LINES;
        lines.truncate(DIFF_LINES);
        lines.push(format!("    ... and {more} lines more"));
    }
    lines.join("\n")
}

/// Sorts fields by name, whichever map serde_json was built with.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().map(|(key, field)| (key.clone(), sorted(field))).collect();
            fields.sort_by(|one, other| one.0.cmp(&other.0));
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_chosen_by_phase_index_and_termination() {
        let pod = |name: &str, index: &str, phase: &str, deleted: bool| {
            let mut pod = json!({"metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {"batch.kubernetes.io/job-completion-index": index}}, "status": {"phase": phase}});
            if deleted {
                pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            }
            pod
        };
        let list = json!({"items": [pod("c", "10", "Running", false), pod("a", "2", "Pending", false),
            pod("d", "1", "Failed", false), pod("e", "0", "Running", true)]});
        assert_eq!(matching_pods(&list, &json!({})), ["a", "c"]);
        assert_eq!(matching_pods(&list, &json!({"index": 10})), ["c"]);
        assert_eq!(matching_pods(&list, &json!({"phase": "Failed"})), ["d"]);
        assert_eq!(matching_pods(&list, &json!({"terminating": true})), ["e"]);
    }

    #[test]
    fn bodies_are_sent_as_they_were_when_recorded() {
        let body = json!({"apiVersion": "v1", "data": {"a": [1, "b,c:d"], "e": {}}});
        assert_eq!(as_sent(&body), r#"{"apiVersion": "v1", "data": {"a": [1, "b,c:d"], "e": {}}}"#);
    }

    #[test]
    fn a_diff_shows_what_was_recorded_and_what_was_answered() {
        let text = diff(&json!({"b": 1, "a": 2}), &json!({"a": 2, "b": 3}));
        assert_eq!(text.lines().map(str::trim).collect::<Vec<_>>()[2..], ["-  \"b\": 1", "+  \"b\": 3", "}"]);
    }
}
