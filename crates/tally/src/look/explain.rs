//! `tally explain`: gathers the objects, and prints what `tally-explain` finds in them.

use std::collections::BTreeSet;

use serde_json::Value;
use tally_explain::{Evidence, Explanation, Host};
use tally_runtime::controller::Kind;
use tally_runtime::driver::wall_clock;
use tally_runtime::lease;

use super::{LookError, LookForm, print_json, table};
use crate::place::{Place, PlaceError, PlaceFlags};

/// The namespace in which controllers have their Leases, and the names of those that run Jobs.
const LEASES: &str = "kube-system";
const RUNS_JOBS: [&str; 2] = ["tally-job-controller", "kube-controller-manager"];
/// Of more nodes than this, none is read: the list would be shorter.
const NODES_READ: usize = 50;

const RESOURCE_QUOTA: Kind = Kind::new("", "v1", "ResourceQuota", "resourcequotas", true);

#[derive(clap::Args)]
#[command(after_help = "Examples:
  tally explain job/sum --data-dir ./d      a Job of tally run or tally up, also while that runs
  tally explain job/sum --context test      a Job of a cluster, whichever controller runs it
  tally explain pod/sum-0-x7k2p -n batch    a Pod
  tally explain cronjob/nightly             a CronJob: missed times, Forbid, suspended, time zone
  tally explain job/sum -o json | jq -r '.reasons[].reason'
                                            the reasons by name, for programs

It needs the right to read the object. Whatever else may not be read (Pods, Events, Nodes, Leases) is named at the end.

Exit code 0: it was explained; 1: there is no such object; 2: bad usage; 3: the data directory or the cluster cannot be
read.")]
pub struct ExplainArgs {
    /// What to explain: job/NAME (or NAME), pod/NAME, cronjob/NAME
    object: String,
    #[command(flatten)]
    place: PlaceFlags,
    /// Output format
    #[arg(long, short = 'o', value_name = "FORM", value_enum, default_value_t)]
    output: LookForm,
}

pub async fn run(args: &ExplainArgs) -> Result<(), LookError> {
    let (kind, name) = target(&args.object)?;
    let place = Place::open(&args.place).await?;
    let object = find(&place, kind, name).await?;
    let evidence = gather(&place, kind, object).await;
    let now = wall_clock();
    let explanation = tally_explain::explain(&evidence, now);
    match args.output {
        LookForm::Json => print_json(&explanation.json()),
        LookForm::Text => table::print(&explanation.text(now)),
    }
    Ok(())
}

/// Explains an object, as far as the caller may read what belongs to it. None: there is none, or it cannot be read.
pub async fn explanation(place: &Place, kind: Kind, namespace: &str, name: &str) -> Option<Explanation> {
    let object = place.get(kind, namespace, name).await.ok().flatten()?;
    let evidence = gather(place, kind, object).await;
    Some(tally_explain::explain(&evidence, wall_clock()))
}

/// `sum`, `job/sum`, `pod/x`, `cronjob/y`.
fn target(text: &str) -> Result<(Kind, &str), LookError> {
    let Some((kind, name)) = text.split_once('/') else { return Ok((Kind::JOB, text)) };
    let kind = match kind {
        "job" | "jobs" | "job.batch" | "jobs.batch" => Kind::JOB,
        "pod" | "pods" | "po" => Kind::POD,
        "cronjob" | "cronjobs" | "cj" | "cronjob.batch" | "cronjobs.batch" => Kind::CRON_JOB,
        _ => {
            let why = format!("{text:?} cannot be explained: write job/NAME, pod/NAME or cronjob/NAME");
            return Err(LookError::Usage(why));
        }
    };
    Ok((kind, name))
}

async fn find(place: &Place, kind: Kind, name: &str) -> Result<Value, LookError> {
    let namespace = place.namespace();
    if !namespace.is_empty() {
        let missing = || format!("there is no {} {name:?} in namespace {namespace} of {}", kind.kind, place.title());
        return place.get(kind, namespace, name).await?.ok_or_else(|| LookError::Missing(missing()));
    }
    let all = place.all(kind, "").await?;
    let text = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let found: Vec<&Value> = all.iter().filter(|object| object["metadata"]["name"] == name).collect();
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] => {
            let names: Vec<String> = all.iter().take(10).map(|object| text(object, "name")).collect();
            let there =
                if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
            Err(LookError::Missing(format!("there is no {} {name:?} in {}; {there}", kind.kind, place.title())))
        }
        several => {
            let namespaces: Vec<String> = several.iter().map(|object| text(object, "namespace")).collect();
            let what = kind.kind;
            let why = format!("{what} {name:?} is in the namespaces {}: choose with -n", namespaces.join(" and "));
            Err(LookError::Usage(why))
        }
    }
}

/// Reads what belongs to the object, as far as the caller may.
async fn gather(place: &Place, kind: Kind, mut object: Value) -> Evidence {
    let mut unread = Vec::new();
    object["kind"] = kind.kind.into();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let namespace = text(&object["metadata"]["namespace"]);
    let uid = text(&object["metadata"]["uid"]);
    let pods = match kind {
        Kind::JOB => {
            let recorded = object["status"]["uncountedTerminatedPods"].to_string();
            let owned = |pod: &Value| {
                if pod["metadata"]["uid"].as_str().is_some_and(|uid| recorded.contains(uid)) {
                    return true;
                }
                let owners = pod["metadata"]["ownerReferences"].as_array();
                let mut owners = owners.into_iter().flatten().filter(|owner| owner["controller"] == true).peekable();
                owners.peek().is_none() || owners.any(|owner| owner["uid"] == uid.as_str())
            };
            // With a selector that a user chose, Pods need not have the label.
            let is_labelled =
                object.pointer("/spec/selector/matchLabels/batch.kubernetes.io~1controller-uid").is_some();
            let read = if is_labelled { place.pods(&namespace, &uid).await } else { place.all_pods(&namespace).await };
            note(read, &mut unread).unwrap_or_default().into_iter().filter(owned).collect()
        }
        _ => Vec::new(),
    };
    let owner = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let owner = owner.clone().find(|owner| owner["controller"] == true && owner["kind"] == "Job");
    let job = match owner.filter(|_| kind == Kind::POD).map(|owner| text(&owner["name"])) {
        Some(name) => note(place.get(Kind::JOB, &namespace, &name).await, &mut unread).flatten(),
        None => None,
    };
    let names: BTreeSet<&str> = pods.iter().chain([&object]).filter_map(|it| it["metadata"]["uid"].as_str()).collect();
    let mut events = note(place.all(Kind::EVENT, &namespace).await, &mut unread).unwrap_or_default();
    events.retain(|event| {
        let about = if event["involvedObject"].is_object() { &event["involvedObject"] } else { &event["regarding"] };
        about["uid"].as_str().is_some_and(|uid| names.contains(uid))
    });
    let refused_by_quota = events.iter().any(|event| text(&event["message"]).contains("exceeded quota"));
    let quotas = match refused_by_quota {
        true => note(place.all(RESOURCE_QUOTA, &namespace).await, &mut unread).unwrap_or_default(),
        false => Vec::new(),
    };
    let nodes = nodes(place, pods.iter().chain([&object]), &mut unread).await;
    let leases = leases(place, &mut unread).await;
    let within = note(place.get(Kind::NAMESPACE, "", &namespace).await, &mut unread).flatten();
    let controller = if kind == Kind::CRON_JOB { "cronjob" } else { "job" };
    let host = match (place.runs_controller(controller).await, place.is_cluster(), place.is_idle()) {
        (_, false, true) => Host::Stopped,
        (Some(controller), _, _) => Host::Serving { controller },
        (None, true, _) => Host::Cluster,
        (None, false, false) => Host::Running,
    };
    Evidence { object, job, pods, events, nodes, leases, quotas, namespace: within, host, unread }
}

/// Those of controllers that run Jobs. One of Tally may have any name, in any namespace; it has a label.
async fn leases(place: &Place, unread: &mut Vec<String>) -> Option<Vec<Value>> {
    let known = place.all(Kind::LEASE, LEASES).await.map(|mut leases| {
        leases.retain(|lease| RUNS_JOBS.iter().any(|name| lease["metadata"]["name"] == *name));
        leases
    });
    let labelled = place.labelled(Kind::LEASE, &format!("{}={}", lease::LABEL, lease::JOB_CONTROLLER)).await;
    match (known, labelled) {
        (Ok(mut known), Ok(labelled)) => {
            let is_new = |lease: &Value| known.iter().all(|it| it["metadata"]["uid"] != lease["metadata"]["uid"]);
            let further: Vec<Value> = labelled.into_iter().filter(is_new).collect();
            known.extend(further);
            Some(known)
        }
        (Ok(some), Err(_)) | (Err(_), Ok(some)) if !some.is_empty() => Some(some),
        (known, labelled) => {
            note(known.and(labelled), unread);
            None
        }
    }
}

/// What was read. What was not is remembered.
fn note<T>(read: Result<T, PlaceError>, unread: &mut Vec<String>) -> Option<T> {
    match read {
        Ok(found) => Some(found),
        Err(PlaceError::Usage(why) | PlaceError::Unreadable(why)) => {
            unread.push(why);
            None
        }
    }
}

/// The Nodes of these Pods that exist. None: they may not be read.
async fn nodes<'a>(
    place: &Place,
    pods: impl Iterator<Item = &'a Value>,
    unread: &mut Vec<String>,
) -> Option<Vec<Value>> {
    let names: BTreeSet<&str> = pods.filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
    let names: BTreeSet<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
    if names.len() > NODES_READ {
        return note(place.all(Kind::NODE, "").await, unread);
    }
    let mut found = Vec::new();
    for name in names {
        found.extend(note(place.get(Kind::NODE, "", name).await, unread)?);
    }
    Some(found)
}
