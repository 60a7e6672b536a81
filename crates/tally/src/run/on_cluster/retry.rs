//! `--resume` and `--retry-failed` for a Job of a cluster: the Job that runs indexes of a finished Job again.
//!
//! It is the Job that a data directory would get. The node of Tally tells every task its index in the first Job; a kubelet
//! does not, so there the command gets it from a small shell script in front of it.

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};
use tally_core::pod::RETRY_INDEXES_ANNOTATION;
use tally_remote::{Remote, request};

use super::flags::ClusterFlags;
use super::text;
use crate::place::Place;
use crate::run::input::documents::Document;
use crate::run::outcome::RunError;
use crate::run::submit::retry::{self, Plan, Selection};

/// Takes the index of the task from the list, by its position in it. `1,3-5`: the position 2 is the index 4.
const SCRIPT: &str = r#"p=$TALLY_RETRY_POSITION
IFS=,
for r in $TALLY_RETRY_INDEXES; do
  a=${r%-*} b=${r#*-}
  n=$((b - a + 1))
  if [ "$p" -lt "$n" ]; then JOB_COMPLETION_INDEX=$((a + p)); break; fi
  p=$((p - n))
done
unset IFS
export JOB_COMPLETION_INDEX
exec "$@""#;
const POSITION: &str = "TALLY_RETRY_POSITION";
const INDEXES: &str = "TALLY_RETRY_INDEXES";

/// The Jobs to create, and what to tell about them. No Jobs: there is nothing to run.
pub async fn documents(
    place: &Place,
    remote: &Remote,
    (which, name): (Selection, &str),
    flags: &ClusterFlags,
) -> Result<(Vec<Document>, String), RunError> {
    let all = place.jobs(place.namespace()).await?;
    let title = format!("namespace {} of {}", place.namespace(), place.title());
    let (mut objects, told) = match retry::plan(&all, name, which, &title)? {
        Plan::Create { jobs, told } => (jobs, told),
        Plan::GoesOn(name) => {
            let (flag, attach) = (which.flag(), flags.words(place.namespace()));
            return Err(RunError::Input(format!(
                "{flag}: Job {name:?} is not finished; follow it with `tally attach job/{name}{attach}`"
            )));
        }
        Plan::Done(why) => (Vec::new(), why),
    };
    if !is_tally(remote).await {
        objects.iter_mut().try_for_each(|object| give_indexes(object, which.flag())).map_err(RunError::Input)?;
    }
    Ok((retry::documents(objects)?, told))
}

/// Whether the server is `tally up`: its node knows the annotation.
async fn is_tally(remote: &Remote) -> bool {
    let Ok(request) = request::plain(Method::GET, "/version", Bytes::new()) else { return false };
    let Ok(response) = remote.ask(request).await else { return false };
    let version: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    text(&version, "/gitVersion").contains("+tally.")
}

/// Puts the script in front of the commands of a Job.
fn give_indexes(job: &mut Value, flag: &str) -> Result<(), String> {
    let list = job["metadata"]["annotations"][RETRY_INDEXES_ANNOTATION].clone();
    if list.is_null() {
        return Ok(());
    }
    let pod = &mut job["spec"]["template"]["spec"];
    for container in pod["containers"].as_array_mut().into_iter().flatten() {
        let name = container["name"].as_str().unwrap_or_default().to_owned();
        let words = |field: &str| container[field].as_array().cloned().unwrap_or_default();
        let (command, args) = (words("command"), words("args"));
        if command.is_empty() {
            return Err(format!(
                "{flag}: container {name:?} has no command, so its tasks cannot be told their indexes; set \
                 `command` in the Job, or run these indexes yourself"
            ));
        }
        let is_index = |word: &Value| word.as_str().is_some_and(|word| word.contains("$(JOB_COMPLETION_INDEX)"));
        if command.iter().chain(&args).any(is_index) {
            return Err(format!(
                "{flag}: container {name:?} has $(JOB_COMPLETION_INDEX) in its command, where the cluster writes the \
                 index of the new Job; use a shell and \"$JOB_COMPLETION_INDEX\" in the Job"
            ));
        }
        if command.get(2).is_none_or(|word| word != SCRIPT) {
            let mut wrapped: Vec<Value> = ["/bin/sh", "-c", SCRIPT, "sh"].map(Value::from).to_vec();
            wrapped.extend(command);
            container["command"] = wrapped.into();
        }
        let path = "metadata.annotations['batch.kubernetes.io/job-completion-index']";
        let mut env = container["env"].as_array().cloned().unwrap_or_default();
        env.retain(|row| row["name"] != POSITION && row["name"] != INDEXES);
        env.push(json!({"name": POSITION, "valueFrom": {"fieldRef": {"fieldPath": path}}}));
        env.push(json!({"name": INDEXES, "value": list}));
        container["env"] = env.into();
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::Command;

    use super::*;

    fn job(command: Value) -> Value {
        json!({
            "metadata": {"annotations": {RETRY_INDEXES_ANNOTATION: "1,3-5,9"}},
            "spec": {"template": {"spec": {"containers": [{"name": "main", "command": command, "args": ["x y"]}]}}},
        })
    }

    #[test]
    fn every_task_is_told_its_index_in_the_first_job() {
        let mut job = job(json!(["/bin/sh", "-c", "echo $JOB_COMPLETION_INDEX \"$@\"", "sh"]));
        for list in ["1,3-5,9", "9"] {
            job["metadata"]["annotations"][RETRY_INDEXES_ANNOTATION] = list.into();
            give_indexes(&mut job, "--resume").unwrap();
        }
        let container = &job["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["env"].as_array().unwrap().len(), 2, "a retry of a retry changes the list");
        assert_eq!(container["env"][1]["value"], "9");
        let words: Vec<&str> =
            container["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
        assert_eq!(words.len(), 8);
        for (position, index) in [("0", "1"), ("1", "3"), ("3", "5"), ("4", "9")] {
            let mut shell = Command::new(words[0]);
            shell.args(&words[1..]).arg("x y").env(INDEXES, "1,3-5,9").env(POSITION, position);
            let output = shell.env("JOB_COMPLETION_INDEX", position).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{index} x y\n"));
        }
    }

    #[test]
    fn what_cannot_be_told_its_index_is_refused() {
        for (command, told) in [
            (json!(null), "has no command"),
            (json!(["work", "$(JOB_COMPLETION_INDEX)"]), "has $(JOB_COMPLETION_INDEX) in its command"),
        ] {
            assert!(give_indexes(&mut job(command), "--resume").unwrap_err().contains(told), "{told}");
        }
    }
}
