//! What should happen to one object, given its owners and its dependents.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use tally_core::ids::ObjectUid;

use super::graph::{Claim, FOREGROUND, Graph, GraphNode, ORPHAN, Owned, OwnerLocation, Policy, Standing};
use tally_runtime::controller::{Call, Event, Reference, Verb};

#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    Nothing,
    /// Read whether the owner with this UID exists.
    Look(ObjectUid, Arc<OwnerLocation>),
    /// Remove these owners from its references.
    Release(Vec<ObjectUid>),
    /// It and its dependents wait for each other: these owners must not wait for it.
    Unblock(Vec<ObjectUid>),
    Delete(Policy),
    /// Nothing is left to wait for: remove the finalizer. Only when all its dependents are known.
    Finish(&'static str),
}

pub fn decide(graph: &Graph, uid: &ObjectUid, node: &GraphNode) -> Decision {
    let mut owners = Owners::default();
    for owner in &node.owners {
        match graph.standing(owner) {
            Standing::Solid => owners.stays = true,
            Standing::Unresolvable => owners.unresolvable = true,
            Standing::Orphaning => owners.orphaning.push(owner.uid.clone()),
            Standing::Waiting => owners.waiting.push(owner.uid.clone()),
            Standing::Dangling => owners.dangling.push(owner.uid.clone()),
            Standing::Pending => owners.pending = true,
            Standing::Unverified(place) => {
                owners.unverified.get_or_insert_with(|| (owner.uid.clone(), place));
            }
        }
    }
    if node.deleting { of_deleted(graph, uid, node, owners) } else { of_living(graph, uid, node, owners) }
}

#[derive(Default)]
struct Owners {
    stays: bool,
    unresolvable: bool,
    pending: bool,
    unverified: Option<(ObjectUid, Arc<OwnerLocation>)>,
    orphaning: Vec<ObjectUid>,
    waiting: Vec<ObjectUid>,
    dangling: Vec<ObjectUid>,
}

fn of_deleted(graph: &Graph, uid: &ObjectUid, node: &GraphNode, owners: Owners) -> Decision {
    // An owner with the orphan policy waits until all dependents are released, including those that are being deleted.
    if !owners.orphaning.is_empty() {
        return Decision::Release(owners.orphaning);
    }
    let owned = graph.owned(uid);
    match node.policy {
        Policy::Orphan if owned.is_none_or(|owned| owned.dependents.is_empty()) => Decision::Finish(ORPHAN),
        Policy::Foreground if owned.is_none_or(|owned| owned.blocking == 0) => Decision::Finish(FOREGROUND),
        Policy::Foreground => match owners_in_cycle(graph, uid, node, &owners.waiting) {
            cycle if cycle.is_empty() => Decision::Nothing,
            cycle => Decision::Unblock(cycle),
        },
        _ => Decision::Nothing,
    }
}

/// The owners that wait for this object while it waits for them, directly or through others: all of them are being
/// deleted in the foreground, and none would ever be gone.
fn owners_in_cycle(graph: &Graph, uid: &ObjectUid, node: &GraphNode, waiting: &[ObjectUid]) -> Vec<ObjectUid> {
    let mut owners: Vec<ObjectUid> = waiting.to_vec();
    owners.retain(|owner| node.owners.iter().any(|known| known.uid == *owner && known.blocks));
    if owners.is_empty() {
        return owners;
    }
    let mut reached = BTreeSet::new();
    let mut open = vec![uid.clone()];
    while let Some(at) = open.pop() {
        let waits_for = |dependent: &&ObjectUid| {
            graph.node(dependent).is_some_and(|node| {
                let blocks = node.owners.iter().any(|owner| owner.uid == at && owner.blocks);
                blocks && node.deleting && node.policy == Policy::Foreground
            })
        };
        let dependents = graph.owned(&at).into_iter().flat_map(|owned| &owned.dependents);
        let next: Vec<ObjectUid> = dependents.filter(waits_for).cloned().collect();
        open.extend(next.into_iter().filter(|dependent| reached.insert(dependent.clone())));
    }
    owners.retain(|owner| reached.contains(owner));
    owners
}

fn of_living(graph: &Graph, uid: &ObjectUid, node: &GraphNode, owners: Owners) -> Decision {
    if node.owners.is_empty() {
        return Decision::Nothing;
    }
    if let Some((owner, place)) = owners.unverified {
        return Decision::Look(owner, place);
    }
    // If nothing is known about one of its owners, the object is left as it is. Unless another owner orphans it: that
    // owner waits for the release.
    if (owners.pending || owners.unresolvable) && owners.orphaning.is_empty() {
        return Decision::Nothing;
    }
    // An object that one owner orphans must not be deleted because of another.
    if owners.stays || !owners.orphaning.is_empty() {
        let released = [owners.dangling, owners.waiting, owners.orphaning].concat();
        return if released.is_empty() { Decision::Nothing } else { Decision::Release(released) };
    }
    let owned = graph.owned(uid);
    if owners.waiting.is_empty() || owned.is_none() {
        return Decision::Delete(node.policy);
    }
    let blocks: Vec<_> = node.owners.iter().filter(|owner| owner.blocks).map(|owner| owner.uid.clone()).collect();
    if !blocks.is_empty() && owned.is_some_and(|owned| any_in_foreground(graph, owned)) {
        return Decision::Unblock(blocks);
    }
    Decision::Delete(Policy::Foreground)
}

fn any_in_foreground(graph: &Graph, owned: &Owned) -> bool {
    let mut dependents = owned.dependents.iter().filter_map(|uid| graph.node(uid));
    dependents.any(|node| node.deleting && node.policy == Policy::Foreground)
}

/// The request for a decision. None: there is nothing to do.
pub fn call(graph: &Graph, uid: &ObjectUid, node: &GraphNode, decision: &Decision) -> Option<Call> {
    let revision = || node.revision.to_string();
    let references = |entry: fn(&ObjectUid) -> Value, owners: &[ObjectUid]| {
        let references: Vec<Value> = owners.iter().map(entry).collect();
        json!({"metadata": {"uid": uid, "ownerReferences": references}})
    };
    let (verb, body) = match decision {
        Decision::Nothing => return None,
        Decision::Look(_, place) => {
            let kind = graph.kinds[usize::from(place.kind)];
            return Some(Call::new(Verb::Get, kind, &place.namespace, &place.name));
        }
        Decision::Release(owners) => {
            (Verb::StrategicPatch, references(|owner| json!({"$patch": "delete", "uid": owner}), owners))
        }
        Decision::Unblock(owners) => {
            (Verb::StrategicPatch, references(|owner| json!({"uid": owner, "blockOwnerDeletion": false}), owners))
        }
        // At this revision only: it may have another owner since.
        Decision::Delete(policy) => {
            let preconditions = json!({"uid": uid, "resourceVersion": revision()});
            let policy = policy.name();
            let body = json!({
                "apiVersion": "v1", "kind": "DeleteOptions",
                "preconditions": preconditions, "propagationPolicy": policy,
            });
            (Verb::Delete, body)
        }
        Decision::Finish(finalizer) => {
            let stay: Vec<_> = node.finalizers.iter().filter(|known| *known != finalizer).collect();
            let metadata = json!({"uid": uid, "resourceVersion": revision(), "finalizers": stay});
            (Verb::MergePatch, json!({"metadata": metadata}))
        }
    };
    let kind = graph.kinds[usize::from(node.kind)];
    Some(Call::new(verb, kind, &node.namespace, &node.name).body(&body))
}

/// The Event about an object whose owners cannot be where it says.
pub fn misplaced_owner(graph: &Graph, uid: &ObjectUid, node: &GraphNode) -> Option<Event> {
    let wrong = node.owners.iter().find_map(|owner| match &owner.claim {
        Claim::Misplaced(place) => Some((owner, place)),
        Claim::At(place) => {
            let elsewhere = graph.node(&owner.uid).is_some_and(|owner| owner.namespace != place.namespace);
            elsewhere.then_some((owner, place))
        }
        Claim::Itself | Claim::Unknown => None,
    });
    let (owner, place) = wrong?;
    let kind = graph.kinds[usize::from(place.kind)];
    let (namespace, name) = (&place.namespace, &place.name);
    let claimed =
        format!("[{}/{}, namespace: {namespace}, name: {name}, uid: {}]", kind.api_version(), kind.kind, owner.uid);
    let about = Reference {
        kind: graph.kinds[usize::from(node.kind)],
        namespace: node.namespace.clone(),
        name: node.name.clone(),
        uid: uid.to_string().into(),
    };
    let message = format!("ownerRef {claimed} does not exist in namespace {:?}", node.namespace.as_str());
    Some(Event { about, warning: true, reason: "OwnerRefInvalidNamespace".into(), message })
}
