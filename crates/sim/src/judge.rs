//! The laws of a whole cluster, checked for every write, and again when everything is at rest:
//!
//! - G1: an object with a living owner is not collected, and one without does not stay; an owner that is deleted in the
//!   foreground is removed after its dependents, one that orphans its dependents releases them first.
//! - G2: a scheduler assigns no more than a node has, as far as it can know; a Pod that fits somewhere does not wait. A
//!   Pod has one node in its life.
//! - G3: a namespace is removed only when nothing is left in it, and then it must be removed.
//! - G4: the Pod garbage collector removes a Pod only once its end is stored, and reports its node as lost only after
//!   it has read the node and the node did not exist.
//! - G5: no controller changes how an ended Pod has ended; a node removes only Pods that were deleted.
//! - G6: every living namespace has the objects that every namespace has.
//! - G7: a CronJob starts one Job for each time, as far as it can know, and none next to another if it forbids that.
//!
//! G8, that nothing is late, is in `late.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use compact_str::CompactString;
use serde_json::Value;
use tally_core::ids::Revision;
use tally_core::quantity::Quantity;
use tally_core::time::Timestamp;
use tally_runtime::controller::{Call, Kind, Reply, Verb};

use crate::api::Actor;
use crate::archive::{Archive, Version, Written};
use crate::cluster::{CERTIFICATE, KINDS, Role};
use crate::counters::{Counters, Sometimes};
use crate::host::SenderView;

/// The violated law, and how it was violated.
pub(crate) type Found = Option<(&'static str, String)>;

/// One incarnation of one controller.
type Who = (usize, u32);

pub(crate) const FOREGROUND: &str = "foregroundDeletion";
pub(crate) const ORPHAN: &str = "orphan";
const SCHEDULED_AT: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

#[derive(Default)]
pub(crate) struct Judge {
    roles: Vec<Role>,
    /// Since when an object has named another as its owner, by both UIDs.
    named: BTreeMap<(CompactString, CompactString), Revision>,
    /// When an owner was first observed to wait for its dependents, or to orphan them.
    leaving: BTreeMap<CompactString, Revision>,
    /// When each Pod was bound to its node, and by which decision of a scheduler.
    bound: BTreeMap<CompactString, (Revision, Option<Decision>)>,
    /// Nodes that a Pod garbage collector has read and that did not exist.
    missed: BTreeMap<Who, BTreeSet<CompactString>>,
    /// The newest state of a CronJob that its controller has received in a response, by name.
    read: BTreeMap<(Who, CompactString), Arc<Value>>,
    /// What a scheduler knew when it first requested a binding that it may have to request again, and its turn.
    placed: BTreeMap<(Who, Bytes), (Vec<Revision>, u64)>,
    turns: u64,
}

/// A scheduler's decision to bind a Pod.
#[derive(Clone, Copy)]
struct Decision {
    by: Who,
    turn: u64,
    nodes_seen: Revision,
    pods_seen: Revision,
}

impl Judge {
    pub(crate) fn begin(&mut self, roles: Vec<Role>) {
        self.roles = roles;
    }

    /// What the sender of this request can know.
    pub(crate) fn asks(&mut self, who: Who, role: Role, call: &Call, known: &SenderView) -> SenderView {
        let mut asking = known.clone();
        match (role, call.verb) {
            // A retried request was decided when it was first sent.
            (Role::Scheduler, Verb::Create) => {
                self.turns += 1;
                let this = || (asking.seen.clone(), self.turns);
                let (seen, turn) = self.placed.entry((who, call.body.text())).or_insert_with(this).clone();
                (asking.seen, asking.turn) = (seen, turn);
            }
            (Role::CronJobs, Verb::Create) => {
                let body: Value = serde_json::from_slice(&call.body.text()).unwrap_or_default();
                let owner = body["metadata"]["ownerReferences"][0]["name"].as_str().unwrap_or_default();
                asking.read = self.read.get(&(who, owner.into())).cloned();
            }
            // The node may come back while the report is in flight.
            (Role::PodCollector, Verb::StrategicPatch) => {
                asking.missed = self.missed.get(&who).cloned().unwrap_or_default();
            }
            _ => {}
        }
        asking
    }

    /// A request of a controller was carried out.
    pub(crate) fn carried_out(&self, role: Role, call: &Call, reply: &Reply, counters: &mut Counters) {
        let conflict = reply.is_conflict();
        let hit = match (role, call.verb) {
            (Role::Collector, Verb::Get) if reply.is_not_found() => Some(Sometimes::OwnerLookedFor),
            (Role::Collector, Verb::Delete) if conflict => Some(Sometimes::CollectorConflict),
            (Role::PodCollector, Verb::Get) if reply.is_done() => Some(Sometimes::NodeStillThere),
            (Role::PodCollector, Verb::StrategicPatch) if conflict => Some(Sometimes::PodCollectorConflict),
            (Role::Scheduler, Verb::Create) if conflict => Some(Sometimes::BindingConflict),
            (Role::Scheduler, Verb::StrategicPatch) if reply.is_done() => Some(Sometimes::Unschedulable),
            (Role::Node, Verb::StrategicPatch) if conflict => Some(Sometimes::NodeConflict),
            (Role::CronJobs, Verb::Create) if conflict => Some(Sometimes::ScheduledTwice),
            _ => None,
        };
        if let Reply::Refused(refusal) = reply
            && refusal.causes.iter().any(|(_, reason)| reason == "NamespaceTerminating")
        {
            counters.hit(Sometimes::NamespaceRefuses);
        }
        hit.into_iter().for_each(|hit| counters.hit(hit));
    }

    /// A controller receives the response to its request.
    pub(crate) fn heard(&mut self, who: Who, role: Role, call: &Call, reply: &Reply) {
        match (role, reply) {
            (Role::PodCollector, Reply::Done(_)) if call.verb == Verb::Get => {
                self.missed.entry(who).or_default().remove(&call.name);
            }
            (Role::PodCollector, reply) if call.verb == Verb::Get && reply.is_not_found() => {
                self.missed.entry(who).or_default().insert(call.name.clone());
            }
            (Role::CronJobs, Reply::Done(bytes)) if call.kind == Kind::CRON_JOB => {
                if let Ok(object) = serde_json::from_slice(bytes) {
                    self.read.insert((who, call.name.clone()), Arc::new(object));
                }
            }
            (Role::Scheduler, reply) if !matches!(reply, Reply::Unknown) => {
                self.placed.remove(&(who, call.body.text()));
            }
            _ => {}
        }
    }

    pub(crate) fn observe(
        &mut self,
        written: &Written,
        archive: &Archive,
        asking: Option<&SenderView>,
        counters: &mut Counters,
    ) -> Found {
        let who = match written.actor {
            Actor::Hosted { host, incarnation } => Some((host, incarnation)),
            _ => None,
        };
        let role = who.and_then(|(host, _)| self.roles.get(host).copied());
        let found = match role {
            Some(Role::Collector) => self.collected(written, archive, asking, counters),
            Some(Role::PodCollector) => pod_collected(written, asking, counters),
            Some(Role::Node) => node_reported(written, counters),
            Some(Role::CronJobs) => cron_acted(written, archive, asking, counters),
            Some(Role::ServiceAccounts) => {
                counters.hit(Sometimes::ServiceAccountRestored);
                None
            }
            Some(Role::RootCa) => {
                counters.hit(Sometimes::CertificateRestored);
                None
            }
            Some(_) | None => None,
        };
        let found = found.or_else(|| match written.plural.as_str() {
            "pods" => self.pod_bound(written, archive, who.filter(|_| role == Some(Role::Scheduler)), asking, counters),
            "namespaces" if written.after.gone => namespace_gone(&written.after, archive, counters),
            _ => None,
        });
        self.note(written);
        found
    }

    /// Updates the judge's records.
    fn note(&mut self, written: &Written) {
        let Version { at, gone, .. } = &*written.after;
        let uid: CompactString = written.after.uid().into();
        if *gone {
            self.leaving.remove(&uid);
            return;
        }
        let waits = written.after.deleting()
            && (written.after.has_finalizer(FOREGROUND) || written.after.has_finalizer(ORPHAN));
        if waits {
            self.leaving.entry(uid.clone()).or_insert(*at);
        }
        for owner in uids(written.after.owners()) {
            self.named.entry((uid.clone(), owner.into())).or_insert(*at);
        }
        if let Some(before) = &written.before {
            for owner in uids(before.owners()) {
                if !uids(written.after.owners()).any(|still| still == owner) {
                    self.named.remove(&(uid.clone(), owner.into()));
                }
            }
        }
    }

    /// G1.
    fn collected(
        &mut self,
        written: &Written,
        archive: &Archive,
        asking: Option<&SenderView>,
        counters: &mut Counters,
    ) -> Found {
        let Written { before: Some(before), after, .. } = written else {
            return broken("G1", format!("the collector created {}", written.after.name));
        };
        let goes = after.gone || after.deleting();
        if goes && !before.deleting() {
            // An owner that is being deleted may still change its propagation policy, and the collector may see that
            // too late.
            let living = before.owners().iter().find(|owner| {
                let known = |known: &[Revision]| stays_at(archive, before, owner, known);
                stays(archive, before, owner)
                    && asking.is_none_or(|asking| known(&asking.seen) && known(&asking.glimpsed))
            });
            if let Some(owner) = living {
                return broken("G1", format!("{} was collected though {} lives", before.name, owner["name"]));
            }
            if before.owners().is_empty() {
                return broken("G1", format!("{} was collected and had no owner", before.name));
            }
            let waited = before.owners().iter().any(|owner| find(archive, before, owner).is_some());
            counters.hit(if waited { Sometimes::CollectedInForeground } else { Sometimes::Collected });
            return None;
        }
        if after.gone {
            return self.left(before, archive, asking);
        }
        for owner in before.owners() {
            let still = after.owners().iter().any(|other| other["uid"] == owner["uid"]);
            if still {
                continue;
            }
            counters.hit(Sometimes::LetGo);
            let lives = find(archive, before, owner).is_some_and(|owner| !self.leaving.contains_key(owner.uid()));
            if lives {
                return broken("G1", format!("{} was let go though {} lives", before.name, owner["name"]));
            }
        }
        None
    }

    /// The collector removed the last finalizer: no object that named this owner before its deletion is left behind.
    fn left(&self, owner: &Version, archive: &Archive, asking: Option<&SenderView>) -> Found {
        let since = self.leaving.get(owner.uid()).copied()?;
        // A collector that has waited long enough for its streams acts on what they have shown.
        if asking.is_some_and(|asking| asking.seen.iter().any(|seen| *seen < since)) {
            return None;
        }
        let orphaner = owner.has_finalizer(ORPHAN);
        let left = archive.everything().find(|(_, other)| {
            let named = self.named.get(&(other.uid().into(), owner.uid().into())).is_some_and(|named| *named < since);
            let by = other.owners().iter().find(|reference| reference["uid"] == owner.uid());
            named && by.is_some_and(|by| orphaner || by["blockOwnerDeletion"] == true)
        });
        let (plural, left) = left?;
        broken("G1", format!("{} went before {plural} {}, which names it", owner.name, left.name))
    }

    /// G2, for single writes.
    fn pod_bound(
        &mut self,
        written: &Written,
        archive: &Archive,
        scheduler: Option<Who>,
        asking: Option<&SenderView>,
        counters: &mut Counters,
    ) -> Found {
        let pod = &written.after;
        let node = pod.text("/spec/nodeName");
        let had = written.before.as_ref().map_or("", |before| before.text("/spec/nodeName"));
        if node == had || pod.gone {
            return None;
        }
        if !had.is_empty() {
            return broken("G2", format!("{} had {had} and was given {node}", pod.name));
        }
        let decision = scheduler.zip(asking).and_then(|(by, asking)| match asking.seen[..] {
            [nodes_seen, pods_seen] => Some(Decision { by, turn: asking.turn, nodes_seen, pods_seen }),
            _ => None,
        });
        self.bound.insert(pod.uid().into(), (pod.at, decision));
        let decision = decision?;
        counters.hit(Sometimes::Bound);
        // Requests overtake each other: a binding that was decided after this one and carried out before it must have
        // taken this one into account.
        let there =
            || archive.all(&Kind::POD).filter(|other| other.text("/spec/nodeName") == node && !other.has_ended());
        for other in there() {
            if let Some((_, Some(later))) = self.bound.get(other.uid())
                && later.by == decision.by
                && later.turn >= decision.turn
            {
                let found = self.gave_too_much(other, *later, archive, there());
                if found.is_some() {
                    return found;
                }
            }
        }
        let seen = archive.get_at(&Kind::NODE, "", node, decision.nodes_seen)?;
        let all = there().map(|pod| Amount::of_pod(pod)).fold(Amount::default(), Amount::plus);
        if !all.fits(Amount::of_node(seen)) {
            counters.hit(Sometimes::Overcommitted);
        }
        None
    }

    /// Whether a decision assigned more than the node had, as far as the scheduler could know: from what its streams
    /// had shown, and from its own decisions up to this one.
    fn gave_too_much<'a>(
        &self,
        pod: &Version,
        decision: Decision,
        archive: &Archive,
        there: impl Iterator<Item = &'a Arc<Version>>,
    ) -> Found {
        let node = pod.text("/spec/nodeName");
        let Some(seen) = archive.get_at(&Kind::NODE, "", node, decision.nodes_seen) else {
            return broken("G2", format!("{} was given {node}, which is not there", pod.name));
        };
        let knows = |other: &&Arc<Version>| {
            let own = |other: &Decision| other.by == decision.by && other.turn <= decision.turn;
            let bound = self.bound.get(other.uid());
            bound.is_some_and(|(at, by)| *at <= decision.pods_seen || by.as_ref().is_some_and(own))
        };
        let mut known = there.filter(knows).map(|pod| Amount::of_pod(pod)).fold(Amount::default(), Amount::plus);
        // A Pod that requests no CPU takes none: CPU that others have overcommitted does not matter to it.
        if Amount::of_pod(pod).milli_cpu == 0 {
            known.milli_cpu = 0;
        }
        let has = Amount::of_node(seen);
        (!known.fits(has)).then(|| ("G2", format!("{node} has {has:?} and was given {known:?} with {}", pod.name)))
    }

    // ---- at rest ----

    pub(crate) fn at_rest(&self, archive: &Archive) -> Found {
        for (plural, object) in archive.everything() {
            if object.deleting() {
                let law = if plural == "namespaces" { "G3" } else { "G1" };
                return broken(law, format!("at rest {plural} {} is still being deleted", object.name));
            }
            let orphan =
                !object.owners().is_empty() && !object.owners().iter().any(|owner| stays(archive, object, owner));
            if orphan {
                return broken("G1", format!("at rest {plural} {} is there, and its owners are gone", object.name));
            }
        }
        for namespace in archive.all(&Kind::NAMESPACE) {
            if archive.get(&Kind::SERVICE_ACCOUNT, &namespace.name, "default").is_none() {
                return broken("G6", format!("at rest {} has no default service account", namespace.name));
            }
            let certificate = archive.get(&Kind::CONFIG_MAP, &namespace.name, "kube-root-ca.crt");
            if certificate.is_none_or(|map| map.object()["data"]["ca.crt"] != CERTIFICATE) {
                return broken("G6", format!("at rest {} lacks the certificate", namespace.name));
            }
        }
        pods_at_rest(archive).or_else(|| crons_at_rest(archive))
    }
}

fn broken(law: &'static str, text: String) -> Found {
    Some((law, text))
}

fn uids(owners: &[Value]) -> impl Iterator<Item = &str> {
    owners.iter().filter_map(|owner| owner["uid"].as_str())
}

/// The object that a reference refers to, if it exists.
fn find<'a>(archive: &'a Archive, dependent: &Version, owner: &Value) -> Option<&'a Version> {
    let kind = KINDS.iter().find(|kind| owner["kind"] == kind.kind)?;
    let namespace = if kind.namespaced { dependent.namespace.as_str() } else { "" };
    let found = archive.get(kind, namespace, owner["name"].as_str()?)?;
    (owner["uid"] == found.uid()).then_some(found)
}

/// Whether an owner keeps its dependent: the owner exists, and does not wait for its dependents to be removed first.
pub(crate) fn stays(archive: &Archive, dependent: &Version, owner: &Value) -> bool {
    let known = KINDS.iter().any(|kind| owner["kind"] == kind.kind);
    let found = find(archive, dependent, owner);
    !known || found.is_some_and(|owner| !waits_for_dependents(owner))
}

/// The same, for the owner as it was when the streams of all kinds had come this far.
fn stays_at(archive: &Archive, dependent: &Version, owner: &Value, known: &[Revision]) -> bool {
    let Some(at) = KINDS.iter().position(|kind| owner["kind"] == kind.kind) else { return true };
    let namespace = if KINDS[at].namespaced { dependent.namespace.as_str() } else { "" };
    let found = archive.get_at(&KINDS[at], namespace, owner["name"].as_str().unwrap_or_default(), known[at]);
    found.is_none_or(|found| owner["uid"] != found.uid() || !waits_for_dependents(found))
}

fn waits_for_dependents(owner: &Version) -> bool {
    owner.deleting() && owner.has_finalizer(FOREGROUND)
}

/// G4.
fn pod_collected(written: &Written, asking: Option<&SenderView>, counters: &mut Counters) -> Found {
    let Written { before: Some(before), after, .. } = written else { return None };
    let (name, node) = (&before.name, before.text("/spec/nodeName"));
    let phase = (before.text("/status/phase"), after.text("/status/phase"));
    if after.gone || after.deleting() != before.deleting() {
        if before.has_ended() && !before.deleting() {
            counters.hit(Sometimes::SurplusRemoved);
        }
        let told = before.has_ended();
        return (!told).then(|| ("G4", format!("{name} was removed and is not on record as ended")));
    }
    if before.has_ended() && phase.0 != phase.1 {
        return broken("G5", format!("{name} had {} and was made {}", phase.0, phase.1));
    }
    if phase.1 != "Failed" || phase.0 == phase.1 {
        return None;
    }
    let disrupted = after
        .list("/status/conditions")
        .iter()
        .any(|condition| condition["type"] == "DisruptionTarget" && condition["reason"] == "DeletionByPodGC");
    if node.is_empty() {
        counters.hit(Sometimes::UnscheduledPodEnded);
    } else if disrupted {
        counters.hit(Sometimes::PodOfLostNodeFailed);
        let looked = asking.is_some_and(|asking| asking.missed.contains(node));
        if !looked {
            return broken("G4", format!("{name} was said to have lost {node}, and no controller had read that Node"));
        }
    } else if !before.deleting() {
        return broken("G4", format!("{name} runs on {node} and was said to have failed"));
    }
    None
}

/// G5.
fn node_reported(written: &Written, counters: &mut Counters) -> Found {
    let Written { before: Some(before), after, .. } = written else { return None };
    if written.plural != "pods" {
        return None;
    }
    if after.gone || after.deleting() != before.deleting() {
        counters.hit(Sometimes::NodeRemoved);
        let removed = before.deleting() && before.has_ended();
        return (!removed)
            .then(|| ("G5", format!("{} was removed by its node without a request to delete it", before.name)));
    }
    let phase = (before.text("/status/phase"), after.text("/status/phase"));
    if before.has_ended() && phase.0 != phase.1 {
        return broken("G5", format!("{} had {} and was made {}", before.name, phase.0, phase.1));
    }
    None
}

/// G7.
fn cron_acted(written: &Written, archive: &Archive, asking: Option<&SenderView>, counters: &mut Counters) -> Found {
    let job = &written.after;
    if written.plural != "jobs" {
        return None;
    }
    if written.before.is_some() {
        counters.hit(Sometimes::Pruned);
        return None;
    }
    counters.hit(Sometimes::Scheduled);
    let (asking, owner) = (asking?, job.owners().first()?);
    let name = owner["name"].as_str().unwrap_or_default();
    let slot = job.object()["metadata"]["annotations"][SCHEDULED_AT].as_str();
    let slot = slot.and_then(|slot| Timestamp::parse(slot).ok())?;
    let other = archive.all(&Kind::JOB).find(|other| {
        other.uid() != job.uid()
            && other.owners().iter().any(|of| of["uid"] == owner["uid"])
            && other.object()["metadata"]["annotations"][SCHEDULED_AT]
                == job.object()["metadata"]["annotations"][SCHEDULED_AT]
    });
    if let Some(other) = other {
        return broken("G7", format!("{} was started beside {} for the same time", job.name, other.name));
    }
    let Some(read) = &asking.read else {
        return broken("G7", format!("{} was started without a look at {name}", job.name));
    };
    if read["metadata"]["uid"] != owner["uid"] {
        return broken("G7", format!("{} was started for a {name} that is gone", job.name));
    }
    let last = read["status"]["lastScheduleTime"].as_str().and_then(|last| Timestamp::parse(last).ok());
    if last.is_some_and(|last| last >= slot) {
        return broken("G7", format!("{} was started again", job.name));
    }
    let active = read["status"]["active"].as_array().is_some_and(|active| {
        active.iter().any(|active| {
            let there = archive.get(&Kind::JOB, &job.namespace, active["name"].as_str().unwrap_or_default());
            there.is_some_and(|there| active["uid"] == there.uid() && !is_finished(there))
        })
    });
    if active && read["spec"]["concurrencyPolicy"] == "Forbid" {
        return broken("G7", format!("{} was started beside another", job.name));
    }
    None
}

/// G3.
fn namespace_gone(namespace: &Version, archive: &Archive, counters: &mut Counters) -> Found {
    counters.hit(Sometimes::NamespaceDeleted);
    let (plural, left) = archive.everything().find(|(_, object)| object.namespace == namespace.name)?;
    broken("G3", format!("{} went, and {plural} {} is left in it", namespace.name, left.name))
}

/// G2 and G4: a Pod that fits does not wait, and a Pod that has lost its node does not stay.
fn pods_at_rest(archive: &Archive) -> Found {
    let mut free: BTreeMap<&str, Amount> = BTreeMap::new();
    for node in archive.all(&Kind::NODE) {
        let open = node.object().pointer("/spec/unschedulable") != Some(&Value::Bool(true));
        if open && node.list("/spec/taints").is_empty() {
            free.insert(&node.name, Amount::of_node(node));
        }
    }
    let running = || archive.all(&Kind::POD).filter(|pod| !pod.has_ended());
    for pod in running() {
        let node = pod.text("/spec/nodeName");
        if let Some(left) = free.get_mut(node) {
            *left = left.minus(Amount::of_pod(pod));
        }
        if !node.is_empty() && archive.get(&Kind::NODE, "", node).is_none() {
            return broken("G4", format!("at rest {} is on {node}, which is not there", pod.name));
        }
    }
    let waits = running().filter(|pod| pod.text("/spec/nodeName").is_empty());
    for pod in waits {
        let amount = Amount::of_pod(pod);
        if let Some((node, _)) = free.iter().find(|(_, left)| amount.fits(**left)) {
            return broken("G2", format!("at rest {} waits, and {node} has room", pod.name));
        }
    }
    None
}

/// G7: no CronJob lists a Job as active that has ended or is gone.
fn crons_at_rest(archive: &Archive) -> Found {
    for cron in archive.all(&Kind::CRON_JOB) {
        for active in cron.list("/status/active") {
            let name = active["name"].as_str().unwrap_or_default();
            let there = archive.get(&Kind::JOB, &cron.namespace, name);
            if there.is_none_or(|job| active["uid"] != job.uid() || is_finished(job)) {
                return broken("G7", format!("at rest {} takes {name} for active", cron.name));
            }
        }
    }
    None
}

pub(crate) fn is_finished(job: &Version) -> bool {
    job.list("/status/conditions").iter().any(|condition| {
        condition["status"] == "True" && matches!(condition["type"].as_str(), Some("Complete" | "Failed"))
    })
}

/// What Pods request and nodes have, as far as it is ever scarce here.
#[derive(Clone, Copy, Debug, Default)]
struct Amount {
    milli_cpu: i64,
    pods: i64,
}

impl Amount {
    fn of_pod(pod: &Version) -> Self {
        let containers = pod.list("/spec/containers").iter();
        let cpus = containers.filter_map(|container| container["resources"]["requests"]["cpu"].as_str());
        Self { milli_cpu: cpus.map(|cpu| amount(cpu).0).sum(), pods: 1 }
    }

    fn of_node(node: &Version) -> Self {
        Self {
            milli_cpu: amount(node.text("/status/allocatable/cpu")).0,
            pods: amount(node.text("/status/allocatable/pods")).1,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self { milli_cpu: self.milli_cpu + other.milli_cpu, pods: self.pods + other.pods }
    }

    fn minus(self, other: Self) -> Self {
        Self { milli_cpu: self.milli_cpu - other.milli_cpu, pods: self.pods - other.pods }
    }

    fn fits(self, into: Self) -> bool {
        self.pods <= into.pods && (self.milli_cpu == 0 || self.milli_cpu <= into.milli_cpu)
    }
}

/// A quantity, in thousandths and in ones.
fn amount(text: &str) -> (i64, i64) {
    Quantity::parse(text).map_or((0, 0), |quantity| (quantity.milli_value(), quantity.value()))
}
