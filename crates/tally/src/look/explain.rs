//! `tally explain`: gathers the objects, and prints what `tally-explain` finds in them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tally_explain::{Evidence, Explanation, Host};
use tally_runtime::controller::Kind;
use tally_runtime::driver::wall_clock;
use tally_runtime::lease;

use super::{LookError, LookForm, failures, print_json};
use crate::place::{Place, PlaceError, PlaceFlags};
use crate::run::progress::words::harmless;
use crate::terminal;

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

A Job that has failed says how its Pods failed, with the last lines of their logs.

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
    let explanation = failures::told(&place, explain(&place, kind, object).await).await;
    match args.output {
        LookForm::Json => print_json(&explanation.json()),
        LookForm::Text => {
            // Logs and messages are not for the terminal to obey.
            let text = explanation.text(wall_clock());
            terminal::print(&text.lines().map(|line| harmless(line) + "\n").collect::<String>());
        }
    }
    Ok(())
}

async fn explain(place: &Place, kind: Kind, object: Value) -> Explanation {
    let evidence = Surroundings::new(place).evidence(kind, object).await;
    tally_explain::explain(&evidence, wall_clock())
}

/// Explains an object, as far as the caller may read what belongs to it. None: there is none, or it cannot be read.
pub async fn explanation(place: &Place, kind: Kind, namespace: &str, name: &str) -> Option<Explanation> {
    let object = place.get(kind, namespace, name).await.ok().flatten()?;
    Some(explain(place, kind, object).await)
}

/// The same, with the last lines of the logs of what has failed.
pub async fn full_explanation(place: &Place, kind: Kind, namespace: &str, name: &str) -> Option<Explanation> {
    Some(failures::told(place, explanation(place, kind, namespace, name).await?).await)
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

/// What was read, and what could not be.
#[derive(Clone, Default)]
struct Noted<T> {
    found: T,
    unread: Vec<String>,
}

impl<T: Default> Noted<T> {
    fn of(read: Result<T, PlaceError>) -> Self {
        match read {
            Ok(found) => Self { found, unread: Vec::new() },
            Err(PlaceError::Usage(why) | PlaceError::Unreadable(why)) => {
                Self { found: T::default(), unread: vec![why] }
            }
        }
    }

    /// What was found. What was not read is added to the list, once.
    fn take(self, unread: &mut Vec<String>) -> T {
        for why in self.unread {
            if !unread.contains(&why) {
                unread.push(why);
            }
        }
        self.found
    }
}

/// Reads what belongs to objects, as far as the caller may. What several objects share is read once.
pub struct Surroundings<'a> {
    place: &'a Place,
    /// By namespace.
    events: BTreeMap<String, Noted<Vec<Value>>>,
    quotas: BTreeMap<String, Noted<Vec<Value>>>,
    namespaces: BTreeMap<String, Noted<Option<Value>>>,
    /// By name; an empty one: there is none.
    nodes: BTreeMap<String, Noted<Vec<Value>>>,
    leases: Option<Noted<Option<Vec<Value>>>>,
    /// By the name of the controller.
    hosts: BTreeMap<&'static str, Host>,
}

impl<'a> Surroundings<'a> {
    pub fn new(place: &'a Place) -> Self {
        Self {
            place,
            events: BTreeMap::new(),
            quotas: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            nodes: BTreeMap::new(),
            leases: None,
            hosts: BTreeMap::new(),
        }
    }

    async fn evidence(&mut self, kind: Kind, object: Value) -> Evidence {
        let pods = match kind {
            Kind::JOB => Noted::of(pods_of(self.place, &object).await),
            _ => Noted::default(),
        };
        let mut unread = Vec::new();
        let pods = pods.take(&mut unread);
        self.evidence_with(kind, object, pods, unread).await
    }

    /// With the Pods of the Job, or what could not be read of them.
    pub async fn evidence_with(
        &mut self,
        kind: Kind,
        mut object: Value,
        pods: Vec<Value>,
        mut unread: Vec<String>,
    ) -> Evidence {
        let place = self.place;
        object["kind"] = kind.kind.into();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let namespace = text(&object["metadata"]["namespace"]);
        let owner = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let owner = owner.clone().find(|owner| owner["controller"] == true && owner["kind"] == "Job");
        let job = match owner.filter(|_| kind == Kind::POD).map(|owner| text(&owner["name"])) {
            Some(name) => Noted::of(place.get(Kind::JOB, &namespace, &name).await).take(&mut unread),
            None => None,
        };
        let uids: BTreeSet<&str> =
            pods.iter().chain([&object]).filter_map(|it| it["metadata"]["uid"].as_str()).collect();
        if !self.events.contains_key(&namespace) {
            let read = Noted::of(place.all(Kind::EVENT, &namespace).await);
            self.events.insert(namespace.clone(), read);
        }
        let all = &self.events[&namespace];
        let about = |event: &Value| {
            let about =
                if event["involvedObject"].is_object() { &event["involvedObject"] } else { &event["regarding"] };
            about["uid"].as_str().is_some_and(|uid| uids.contains(uid))
        };
        let own = all.found.iter().filter(|event| about(event)).cloned().collect::<Vec<_>>();
        let events = Noted { found: own, unread: all.unread.clone() }.take(&mut unread);
        let refused_by_quota = events.iter().any(|event| text(&event["message"]).contains("exceeded quota"));
        if refused_by_quota && !self.quotas.contains_key(&namespace) {
            let read = Noted::of(place.all(RESOURCE_QUOTA, &namespace).await);
            self.quotas.insert(namespace.clone(), read);
        }
        let quotas = self.quotas.get(&namespace).filter(|_| refused_by_quota).cloned();
        let quotas = quotas.unwrap_or_default().take(&mut unread);
        let nodes = self.nodes(pods.iter().chain([&object]), &mut unread).await;
        if self.leases.is_none() {
            self.leases = Some(leases(place).await);
        }
        let leases = self.leases.clone().unwrap_or_default().take(&mut unread);
        if !self.namespaces.contains_key(&namespace) {
            let read = Noted::of(place.get(Kind::NAMESPACE, "", &namespace).await);
            self.namespaces.insert(namespace.clone(), read);
        }
        let within = self.namespaces[&namespace].clone().take(&mut unread);
        let controller = if kind == Kind::CRON_JOB { "cronjob" } else { "job" };
        if !self.hosts.contains_key(controller) {
            let host = match (place.runs_controller(controller).await, place.is_cluster(), place.is_idle()) {
                (_, false, true) => Host::Stopped,
                (Some(controller), _, _) => Host::Serving { controller },
                (None, true, _) => Host::Cluster,
                (None, false, false) => Host::Running,
            };
            self.hosts.insert(controller, host);
        }
        let host = self.hosts[controller];
        Evidence { object, job, pods, events, nodes, leases, quotas, namespace: within, host, unread }
    }

    /// The Nodes of these Pods that exist. None: they may not be read.
    async fn nodes<'p>(
        &mut self,
        pods: impl Iterator<Item = &'p Value>,
        unread: &mut Vec<String>,
    ) -> Option<Vec<Value>> {
        let names: BTreeSet<&str> = pods.filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
        let names: BTreeSet<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
        if names.len() > NODES_READ {
            let all = Noted::of(self.place.all(Kind::NODE, "").await.map(Some));
            return all.take(unread);
        }
        let mut found = Vec::new();
        for name in names {
            if !self.nodes.contains_key(name) {
                let read = self.place.get(Kind::NODE, "", name).await;
                self.nodes.insert(name.to_owned(), Noted::of(read.map(|node| node.into_iter().collect())));
            }
            let node = &self.nodes[name];
            if !node.unread.is_empty() {
                node.clone().take(unread);
                return None;
            }
            found.extend(node.found.iter().cloned());
        }
        Some(found)
    }
}

/// The Pods of a Job, and those that it has recorded.
pub async fn pods_of(place: &Place, job: &Value) -> Result<Vec<Value>, PlaceError> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, uid) = (text(&job["metadata"]["namespace"]), text(&job["metadata"]["uid"]));
    let recorded = job["status"]["uncountedTerminatedPods"].to_string();
    let owned = |pod: &Value| {
        if pod["metadata"]["uid"].as_str().is_some_and(|uid| recorded.contains(uid)) {
            return true;
        }
        let owners = pod["metadata"]["ownerReferences"].as_array();
        let mut owners = owners.into_iter().flatten().filter(|owner| owner["controller"] == true).peekable();
        owners.peek().is_none() || owners.any(|owner| owner["uid"] == uid.as_str())
    };
    // With a selector that a user chose, Pods need not have the label.
    let is_labelled = job.pointer("/spec/selector/matchLabels/batch.kubernetes.io~1controller-uid").is_some();
    let pods = if is_labelled { place.pods(&namespace, &uid).await } else { place.all_pods(&namespace).await };
    Ok(pods?.into_iter().filter(owned).collect())
}

/// Those of controllers that run Jobs. One of Tally may have any name, in any namespace; it has a label.
async fn leases(place: &Place) -> Noted<Option<Vec<Value>>> {
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
            Noted::of(Ok(Some(known)))
        }
        (Ok(some), Err(_)) | (Err(_), Ok(some)) if !some.is_empty() => Noted::of(Ok(Some(some))),
        (known, labelled) => Noted::of(known.and(labelled).map(|_| None)),
    }
}
