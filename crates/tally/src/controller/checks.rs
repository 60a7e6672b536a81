//! Startup checks: is this an API server, does it serve what the controllers need, and are their requests permitted?

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use futures_util::StreamExt;
use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tally_runtime::controller::Kind;

use super::flags::Name;
use super::revisions::{self, RevisionError};
use tally_remote::{RawResponse, Remote, request};

/// Older versions lack fields of the Job status that Tally writes.
const OLDEST_MINOR: u32 = 30;
/// Tally is tested with this version and newer ones.
const TESTED_MINOR: u32 = 34;

/// Access reviews in flight at the same time.
const QUESTIONS: usize = 8;

/// One permission that the controllers need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    verb: &'static str,
    group: &'static str,
    /// Includes the subresource: `jobs/status`.
    resource: &'static str,
    /// "" means all namespaces.
    namespace: String,
    name: String,
}

/// The permissions that the controllers use, and no others.
pub fn rights(names: &[Name], lease: Option<(&str, &str)>) -> Vec<Permission> {
    let everywhere = |verb, kind: Kind, resource| Permission {
        verb,
        group: kind.group,
        resource,
        namespace: String::new(),
        name: String::new(),
    };
    let mut rights = Vec::new();
    for name in names {
        let reads: &[&str] = if *name == Name::After { &["list", "watch"] } else { &["get", "list", "watch"] };
        rights.extend(reads.iter().map(|verb| everywhere(verb, Kind::JOB, "jobs")));
        match name {
            Name::After => {
                rights.extend(["jobs", "jobs/status"].map(|resource| everywhere("patch", Kind::JOB, resource)));
                rights.extend(["create", "patch"].map(|verb| everywhere(verb, Kind::EVENT, "events")));
            }
            Name::Job => {
                rights.push(everywhere("patch", Kind::JOB, "jobs/status"));
                let verbs = ["get", "list", "watch", "create", "patch", "delete"];
                rights.extend(verbs.map(|verb| everywhere(verb, Kind::POD, "pods")));
                rights.push(everywhere("get", Kind::NODE, "nodes"));
                rights.extend(["create", "patch"].map(|verb| everywhere(verb, Kind::EVENT, "events")));
            }
            Name::Ttl => {
                rights.push(everywhere("delete", Kind::JOB, "jobs"));
                let verbs = ["get", "list", "watch", "delete"];
                rights.extend(verbs.map(|verb| everywhere(verb, Kind::POD, "pods")));
                rights.extend(["list", "watch"].map(|verb| everywhere(verb, Kind::NAMESPACE, "namespaces")));
            }
        }
    }
    if let Some((namespace, name)) = lease {
        rights.extend(["get", "create", "update"].map(|verb| Permission {
            namespace: namespace.to_owned(),
            // A permission to create cannot be restricted to a name.
            name: if verb == "create" { String::new() } else { name.to_owned() },
            ..everywhere(verb, Kind::LEASE, "leases")
        }));
    }
    let mut once: Vec<Permission> = Vec::new();
    for right in rights {
        if !once.contains(&right) {
            once.push(right);
        }
    }
    once
}

impl Permission {
    fn review(&self) -> Value {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": self.verb, "group": self.group, "resource": resource, "subresource": subresource,
                "namespace": self.namespace, "name": self.name,
            }},
        })
    }
}

/// `get, list pods; create leases.coordination.k8s.io in namespace kube-system`
fn named(rights: &[Permission]) -> String {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for right in rights {
        let dot = if right.group.is_empty() { "" } else { "." };
        let place =
            if right.namespace.is_empty() { String::new() } else { format!(" in namespace {}", right.namespace) };
        let what = format!("{}{dot}{}{place}", right.resource, right.group);
        match groups.iter_mut().find(|(known, _)| *known == what) {
            Some((_, verbs)) => verbs.push(right.verb),
            None => groups.push((what, vec![right.verb])),
        }
    }
    let lines: Vec<String> = groups.into_iter().map(|(what, verbs)| format!("{} {what}", verbs.join(", "))).collect();
    lines.join("; ")
}

/// Runs all checks. Returns the server's version.
pub async fn run(remote: &Remote, server: &str, names: &[Name], rights: &[Permission]) -> Result<String> {
    let version = version(remote, server).await?;
    batch(remote, server).await?;
    if names.contains(&Name::Job) {
        gang_scheduling(remote, server).await?;
    }
    permissions(remote, rights).await?;
    if names.contains(&Name::Job) {
        comparable_revisions(remote).await?;
    }
    Ok(version)
}

async fn comparable_revisions(remote: &Remote) -> Result<()> {
    match revisions::check(remote).await {
        Ok(()) => Ok(()),
        Err(RevisionError::Separate(why)) => Err(anyhow!(why)),
        // The check is repeated while the controllers run.
        Err(RevisionError::Unread(why)) => {
            tracing::warn!(
                "cannot determine whether Jobs and Pods are in the same etcd; assuming that they are: {why}"
            );
            Ok(())
        }
    }
}

async fn ask(remote: &Remote, server: &str, method: Method, path: &str, body: &Value) -> Result<RawResponse> {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let request = request::plain(method, path, body).context("cannot build the request")?;
    remote.ask(request).await.map_err(|failure| {
        let hint = if failure.why.contains("certificate") {
            "does certificate-authority-data in the kubeconfig belong to this server?"
        } else {
            "is it running, and is its address in the kubeconfig correct?"
        };
        anyhow!("cannot reach the API server at {server}: {}; {hint}", failure.why)
    })
}

async fn version(remote: &Remote, server: &str) -> Result<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        major: String,
        minor: String,
        git_version: String,
    }
    let answer = ask(remote, server, Method::GET, "/version", &Value::Null).await?;
    match answer.code {
        200 => {}
        401 => bail!("the API server at {server} does not accept the credentials of the kubeconfig; are they expired?"),
        // A server may hide its version from unknown users; the other checks run all the same.
        403 => return Ok("unknown".to_owned()),
        code => bail!("{server} answers {code} to GET /version: is it a Kubernetes API server?"),
    }
    let version: Version = serde_json::from_slice(&answer.body)
        .map_err(|_| anyhow!("{server} responds, but not like a Kubernetes API server: is its address correct?"))?;
    let minor: u32 = version.minor.trim_end_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap_or(0);
    let (text, tested) = (&version.git_version, TESTED_MINOR);
    if version.major == "1" && minor < OLDEST_MINOR {
        bail!(
            "the API server is Kubernetes {text}, which is too old: Tally needs 1.{OLDEST_MINOR} or newer, \
             1.{tested} or newer is recommended"
        );
    }
    if version.major == "1" && minor < TESTED_MINOR {
        tracing::warn!("the API server is Kubernetes {text}; Tally is tested with 1.{tested} and newer");
    }
    Ok(version.git_version)
}

/// GANG-5: a server that has groups of Pods may run with a built-in controller that made them, and whether it did cannot be seen.
async fn gang_scheduling(remote: &Remote, server: &str) -> Result<()> {
    const GROUP: &str = "/apis/scheduling.k8s.io";
    let said = |answer: RawResponse| serde_json::from_slice::<Value>(&answer.body).ok().filter(|_| answer.code == 200);
    // A server that does not serve the group, or does not tell this user, has nothing to warn of.
    let group = said(ask(remote, server, Method::GET, GROUP, &Value::Null).await?).unwrap_or_default();
    let versions = group["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    for version in versions.iter().filter_map(|version| version["version"].as_str()) {
        let list = said(ask(remote, server, Method::GET, &format!("{GROUP}/{version}"), &Value::Null).await?);
        let resources =
            list.as_ref().and_then(|list| list["resources"].as_array()).map(Vec::as_slice).unwrap_or_default();
        if resources.iter().any(|resource| ["workloads", "podgroups"].iter().any(|name| resource["name"] == *name)) {
            tracing::warn!(
                "the API server has Workloads and PodGroups (scheduling.k8s.io/{version}), which Tally does not make: the Pods of \
                 its Jobs are scheduled one by one, and a Job with spec.scheduling is left alone"
            );
            return Ok(());
        }
    }
    Ok(())
}

async fn batch(remote: &Remote, server: &str) -> Result<()> {
    #[derive(Deserialize)]
    struct List {
        resources: Vec<Resource>,
    }
    #[derive(Deserialize)]
    struct Resource {
        name: String,
    }
    let answer = ask(remote, server, Method::GET, "/apis/batch/v1", &Value::Null).await?;
    match answer.code {
        200 => {}
        401 => bail!("the API server at {server} does not accept the credentials of the kubeconfig; are they expired?"),
        403 => return Ok(()),
        404 => bail!("the API server at {server} does not serve batch/v1: Jobs are disabled, or this is no cluster"),
        code => bail!("the API server at {server} answers {code} to GET /apis/batch/v1; try again later"),
    }
    let list: List = serde_json::from_slice(&answer.body).context("cannot decode the resource list of batch/v1")?;
    for needed in ["jobs", "jobs/status"] {
        if !list.resources.iter().any(|resource| resource.name == needed) {
            bail!("the API server at {server} serves batch/v1 without {needed}");
        }
    }
    Ok(())
}

async fn permissions(remote: &Remote, rights: &[Permission]) -> Result<()> {
    let asked = rights.iter().map(|right| async move { (right, allowed(remote, right).await) });
    let answers: Vec<(&Permission, Result<bool>)> =
        futures_util::stream::iter(asked).buffered(QUESTIONS).collect().await;
    let mut missing = Vec::new();
    for (right, answer) in answers {
        match answer {
            Ok(true) => {}
            Ok(false) => missing.push(right.clone()),
            Err(error) => {
                tracing::warn!("cannot determine the permissions; assuming that all are granted: {error:#}");
                return Ok(());
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let who = whoami(remote).await;
    bail!(
        "{who} lacks permissions: {}; the roles in deploy/kustomize/base/role.yaml, and in \
         deploy/kustomize/components for after and ttl, grant all that is needed",
        named(&missing)
    )
}

async fn allowed(remote: &Remote, right: &Permission) -> Result<bool> {
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = ask(remote, "", Method::POST, path, &right.review()).await?;
    if !(200..300).contains(&answer.code) {
        bail!("the API server answers {} to a SelfSubjectAccessReview", answer.code);
    }
    let review: Value = serde_json::from_slice(&answer.body).context("cannot decode the SelfSubjectAccessReview")?;
    Ok(review["status"]["allowed"] == true)
}

/// The user name that the server has for this client, for the error message.
async fn whoami(remote: &Remote) -> String {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = ask(remote, "", Method::POST, path, &body).await.ok();
    let review: Option<Value> = answer.and_then(|answer| serde_json::from_slice(&answer.body).ok());
    let name = review.as_ref().and_then(|review| review["status"]["userInfo"]["username"].as_str());
    name.map_or_else(|| "the user of the kubeconfig".to_owned(), |name| format!("user {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_permissions_are_named() {
        let all = rights(&[Name::Job, Name::Ttl], Some(("kube-system", "l")));
        assert_eq!(
            named(&all),
            "get, list, watch, delete jobs.batch; patch jobs/status.batch; get, list, watch, create, patch, delete \
             pods; get nodes; create, patch events; list, watch namespaces; get, create, update \
             leases.coordination.k8s.io in namespace kube-system"
        );
        assert_eq!(
            named(&rights(&[Name::Ttl], None)),
            "get, list, watch, delete jobs.batch; get, list, watch, delete pods; list, watch namespaces"
        );
    }

    #[test]
    fn questions_are_as_narrow_as_the_right() {
        let all = rights(&[Name::Job], Some(("ns", "l")));
        let attributes = |right: &Permission| right.review()["spec"]["resourceAttributes"].clone();
        let of = |verb: &str, resource: &str| {
            attributes(all.iter().find(|right| right.verb == verb && right.resource == resource).unwrap())
        };
        let status = of("patch", "jobs/status");
        assert_eq!((&status["resource"], &status["subresource"]), (&"jobs".into(), &"status".into()));
        assert_eq!(of("update", "leases")["name"], "l");
        assert_eq!(of("create", "leases")["name"], "");
    }
}
