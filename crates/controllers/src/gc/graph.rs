//! Which objects exist, and who owns whom. By UID: names are reused, UIDs are not.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use compact_str::CompactString;
use tally_core::ids::{ObjectUid, Revision};
use tally_core::pod::PodView;

use tally_runtime::cache::Meta;
use tally_runtime::controller::Kind;

pub const FOREGROUND: &str = "foregroundDeletion";
pub const ORPHAN: &str = "orphan";

type Table<V> = HashMap<ObjectUid, V, foldhash::fast::FixedState>;

/// One object, reduced to what ownership needs.
#[derive(Debug)]
pub struct GraphNode {
    pub kind: u16,
    pub namespace: CompactString,
    pub name: CompactString,
    pub revision: Revision,
    pub deleting: bool,
    /// What its finalizers say about its dependents.
    pub policy: Policy,
    /// Only for an object that waits for us: a patch must name the finalizers that stay.
    pub finalizers: Vec<CompactString>,
    /// The revision at which it was first observed to wait for us.
    pub waits_since: Revision,
    pub owners: Vec<OwnerRef>,
    /// The Event about it is recorded once.
    pub reported: bool,
    pub queued: bool,
    seen: u32,
}

/// What ownership needs of an object, as it is now.
pub struct Observed<'a> {
    pub uid: ObjectUid,
    pub namespace: &'a CompactString,
    pub name: &'a CompactString,
    pub revision: Revision,
    pub deleting: bool,
    pub finalizers: &'a [CompactString],
    pub owners: Vec<ObservedOwner<'a>>,
}

pub struct ObservedOwner<'a> {
    pub uid: ObjectUid,
    pub api_version: &'a str,
    pub kind: &'a str,
    pub name: &'a CompactString,
    pub blocks: bool,
}

impl<'a> From<&'a Meta> for Observed<'a> {
    fn from(meta: &'a Meta) -> Self {
        let owners = meta.owner_references.iter().map(|owner| ObservedOwner {
            uid: ObjectUid::new(&owner.uid),
            api_version: &owner.api_version,
            kind: &owner.kind,
            name: &owner.name,
            blocks: owner.block_owner_deletion,
        });
        Self {
            uid: ObjectUid::new(&meta.uid),
            namespace: &meta.namespace,
            name: &meta.name,
            revision: meta.revision(),
            deleting: meta.deleting(),
            finalizers: &meta.finalizers,
            owners: owners.collect(),
        }
    }
}

impl<'a> From<&'a PodView> for Observed<'a> {
    fn from(pod: &'a PodView) -> Self {
        let owners = pod.owners.iter().map(|owner| ObservedOwner {
            uid: owner.uid.clone(),
            api_version: &owner.api_version,
            kind: &owner.kind,
            name: &owner.name,
            blocks: owner.blocks_deletion,
        });
        Self {
            uid: pod.uid.clone().into(),
            namespace: &pod.namespace,
            name: &pod.name,
            revision: pod.revision,
            deleting: pod.deleting(),
            finalizers: &pod.finalizers,
            owners: owners.collect(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    #[default]
    Background,
    Foreground,
    Orphan,
}

impl Policy {
    pub fn name(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }

    fn of(finalizers: &[CompactString]) -> Self {
        let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
        match (has(ORPHAN), has(FOREGROUND)) {
            (true, _) => Self::Orphan,
            (_, true) => Self::Foreground,
            _ => Self::Background,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerRef {
    pub uid: ObjectUid,
    pub claim: Claim,
    pub blocks: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The owner should exist there.
    At(Arc<OwnerLocation>),
    /// An object in a namespace cannot own an object without one: it is not defined which namespace is meant.
    Misplaced(Arc<OwnerLocation>),
    /// The dependent itself, which exists as long as the reference does.
    Itself,
    /// Of a kind that is not followed. Nothing is known about such an owner.
    Unknown,
}

impl OwnerRef {
    pub fn place(&self) -> Option<&Arc<OwnerLocation>> {
        match &self.claim {
            Claim::At(place) => Some(place),
            Claim::Misplaced(_) | Claim::Itself | Claim::Unknown => None,
        }
    }
}

/// Where an owner is said to be. Shared by all references that agree about it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnerLocation {
    pub kind: u16,
    pub namespace: CompactString,
    pub name: CompactString,
}

/// About a UID that objects name as that of their owner, whether or not there is such an object.
#[derive(Debug, Default)]
pub struct Owned {
    pub dependents: BTreeSet<ObjectUid>,
    /// How many of them block its deletion.
    pub blocking: usize,
    /// It existed, and its stream has shown its deletion.
    pub gone: bool,
    /// The results of reading it at the places that its dependents name. Wrong references must not mislead the others.
    pub looked: BTreeMap<OwnerLocation, Look>,
    /// How often it was found, or the outcome was unknown, while its stream did not show it.
    pub looks: u32,
    /// The place that was named last.
    place: Option<Arc<OwnerLocation>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    Asked,
    Absent,
    /// The stream is behind, or the outcome is unknown. To be read again after a delay.
    Unclear,
}

/// What an owner means to its dependent.
#[derive(Debug, PartialEq, Eq)]
pub enum Standing {
    /// It exists.
    Solid,
    /// It exists, is being deleted, and its dependents must be deleted first.
    Waiting,
    /// It is being deleted and orphans its dependents.
    Orphaning,
    /// It is gone, or never existed.
    Dangling,
    /// It must be read.
    Unverified(Arc<OwnerLocation>),
    /// It is being read.
    Pending,
    /// It is of a kind that is not followed, or cannot be an owner here.
    Unresolvable,
}

/// The effect of a change of an object on its relatives.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Its dependents must be examined.
    pub dependents: bool,
    /// These owners have fewer dependents, or fewer that block them.
    pub owners: Vec<ObjectUid>,
}

#[derive(Default)]
pub struct Graph {
    pub kinds: Vec<Kind>,
    nodes: Table<GraphNode>,
    owned: Table<Owned>,
    streams: Vec<Progress>,
}

#[derive(Clone, Default)]
struct Progress {
    epoch: u32,
    listing: bool,
    reached: Option<Revision>,
}

impl Graph {
    pub fn new(kinds: Vec<Kind>) -> Self {
        let streams = vec![Progress::default(); kinds.len()];
        Self { kinds, streams, ..Self::default() }
    }

    pub fn kind(&self, kind: Kind) -> Option<u16> {
        self.kinds.iter().position(|known| *known == kind).and_then(|at| u16::try_from(at).ok())
    }

    pub fn node(&self, uid: &ObjectUid) -> Option<&GraphNode> {
        self.nodes.get(uid)
    }

    pub fn node_mut(&mut self, uid: &ObjectUid) -> Option<&mut GraphNode> {
        self.nodes.get_mut(uid)
    }

    pub fn owned(&self, uid: &ObjectUid) -> Option<&Owned> {
        self.owned.get(uid)
    }

    pub fn owned_mut(&mut self, uid: &ObjectUid) -> Option<&mut Owned> {
        self.owned.get_mut(uid)
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.owned.is_empty()
    }

    /// Whether every kind has been listed once.
    pub fn is_complete(&self) -> bool {
        self.streams.iter().all(|stream| stream.reached.is_some())
    }

    /// Whether a kind is being listed again: until that is done, its existing objects are not known.
    pub fn is_listing(&self) -> bool {
        self.streams.iter().any(|stream| stream.listing)
    }

    /// Everything that happened up to here has been observed.
    pub fn reached(&self) -> Revision {
        self.streams.iter().map(|stream| stream.reached.unwrap_or_default()).min().unwrap_or_default()
    }

    pub fn list_begins(&mut self, kind: u16) {
        let stream = &mut self.streams[usize::from(kind)];
        stream.epoch = stream.epoch.wrapping_add(1);
        stream.listing = true;
    }

    /// Returns what the list did not contain. An object that is newer than the list stays: an earlier list, which broke off,
    /// has shown it, and the watch will show it again.
    pub fn list_ends(&mut self, kind: u16, at: Revision) -> Vec<ObjectUid> {
        let stream = &mut self.streams[usize::from(kind)];
        stream.listing = false;
        stream.reached = stream.reached.max(Some(at));
        let epoch = stream.epoch;
        #[allow(clippy::disallowed_methods, reason = "sorted below")]
        let missing =
            self.nodes.iter().filter(|(_, node)| node.kind == kind && node.seen != epoch && node.revision <= at);
        let mut missing: Vec<_> = missing.map(|(uid, _)| uid.clone()).collect();
        missing.sort_unstable();
        missing
    }

    pub fn reaches(&mut self, kind: u16, at: Revision) {
        let stream = &mut self.streams[usize::from(kind)];
        // A list is in the order of names: until it is complete, its revisions say nothing.
        if !stream.listing {
            stream.reached = stream.reached.max(Some(at));
        }
    }

    pub fn observe(&mut self, kind: u16, object: &Observed<'_>) -> Effect {
        let uid = object.uid.clone();
        let seen = self.streams[usize::from(kind)].epoch;
        if let Some(known) = self.nodes.get_mut(&uid)
            && known.revision > object.revision
        {
            known.seen = seen;
            return Effect::default();
        }
        let owners = self.references(kind, object);
        let policy = Policy::of(object.finalizers);
        let waits = object.deleting && policy != Policy::Background;
        let mut node = GraphNode {
            kind,
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            revision: object.revision,
            deleting: object.deleting,
            policy,
            finalizers: if waits { object.finalizers.to_vec() } else { Vec::new() },
            waits_since: object.revision,
            owners,
            reported: false,
            queued: false,
            seen,
        };
        let Some(known) = self.nodes.remove(&uid) else {
            self.link(&uid, &node.owners);
            self.nodes.insert(uid.clone(), node);
            return Effect { dependents: self.appeared(&uid), owners: Vec::new() };
        };
        let was = (known.deleting && known.policy != Policy::Background).then_some(known.policy);
        let is = waits.then_some(policy);
        if was == is {
            node.waits_since = known.waits_since;
        }
        node.queued = known.queued;
        let mut effect = Effect { dependents: was != is, owners: Vec::new() };
        if known.owners == node.owners {
            node.reported = known.reported;
        } else {
            self.link(&uid, &node.owners);
            self.unlink(&uid, &known.owners, &node.owners);
            effect.owners = known.owners.into_iter().map(|owner| owner.uid).collect();
        }
        self.nodes.insert(uid, node);
        effect
    }

    /// Returns whether it has dependents, which may have waited for it.
    fn appeared(&mut self, uid: &ObjectUid) -> bool {
        let Some(owned) = self.owned.get_mut(uid) else { return false };
        owned.gone = false;
        owned.looked.retain(|_, look| *look == Look::Absent);
        owned.looks = 0;
        true
    }

    /// None: it was not known.
    pub fn remove(&mut self, uid: &ObjectUid) -> Option<Effect> {
        let node = self.nodes.remove(uid)?;
        self.unlink(uid, &node.owners, &[]);
        let owned = self.owned.get_mut(uid);
        let dependents = owned.is_some();
        if let Some(owned) = owned {
            owned.gone = true;
            owned.looked.clear();
        }
        Some(Effect { dependents, owners: node.owners.into_iter().map(|owner| owner.uid).collect() })
    }

    fn link(&mut self, uid: &ObjectUid, owners: &[OwnerRef]) {
        for owner in owners {
            let Some(place) = owner.place() else { continue };
            let owned = self.owned.entry(owner.uid.clone()).or_default();
            owned.dependents.insert(uid.clone());
            owned.blocking += usize::from(owner.blocks);
            owned.place = Some(place.clone());
        }
    }

    /// Called after `link`, so that an owner that keeps its dependent keeps what is known about it.
    fn unlink(&mut self, uid: &ObjectUid, owners: &[OwnerRef], still: &[OwnerRef]) {
        for owner in owners.iter().filter(|owner| owner.place().is_some()) {
            let Some(owned) = self.owned.get_mut(&owner.uid) else { continue };
            owned.blocking -= usize::from(owner.blocks);
            if !still.iter().any(|other| other.uid == owner.uid && other.place().is_some()) {
                owned.dependents.remove(uid);
            }
            if owned.dependents.is_empty() {
                self.owned.remove(&owner.uid);
            }
        }
    }

    fn references(&self, kind: u16, object: &Observed<'_>) -> Vec<OwnerRef> {
        let mut references: Vec<OwnerRef> = Vec::with_capacity(object.owners.len());
        for owner in &object.owners {
            // A UID belongs to one owner: of two references to it, at most one is correct.
            match references.iter_mut().find(|known| known.uid == owner.uid) {
                Some(known) => known.blocks |= owner.blocks,
                None => {
                    let claim = self.claim(kind, object, owner);
                    references.push(OwnerRef { uid: owner.uid.clone(), claim, blocks: owner.blocks });
                }
            }
        }
        references
    }

    fn claim(&self, kind: u16, object: &Observed<'_>, owner: &ObservedOwner<'_>) -> Claim {
        // Not its own dependent, or it would wait for its own deletion.
        if owner.uid == object.uid {
            return Claim::Itself;
        }
        let (group, _) = owner.api_version.rsplit_once('/').unwrap_or_default();
        let is = |known: &Kind| known.kind == owner.kind && known.group == group;
        // Nearly always the dependents of an owner agree about its place, and share it.
        if let Some(place) = self.owned.get(&owner.uid).and_then(|owned| owned.place.as_ref())
            && is(&self.kinds[usize::from(place.kind)])
            && (&place.name, &*place.namespace) == (owner.name, self.home(place.kind, object))
        {
            return Claim::At(place.clone());
        }
        let Some(found) = self.kinds.iter().position(is).and_then(|at| u16::try_from(at).ok()) else {
            return Claim::Unknown;
        };
        let namespace = self.home(found, object).into();
        let place = Arc::new(OwnerLocation { kind: found, namespace, name: owner.name.clone() });
        let misplaced = self.kinds[usize::from(found)].namespaced && !self.kinds[usize::from(kind)].namespaced;
        if misplaced { Claim::Misplaced(place) } else { Claim::At(place) }
    }

    /// The namespace in which an owner of this kind must be.
    fn home<'a>(&self, kind: u16, dependent: &Observed<'a>) -> &'a str {
        if self.kinds[usize::from(kind)].namespaced { dependent.namespace } else { "" }
    }

    pub fn standing(&self, owner: &OwnerRef) -> Standing {
        let place = match &owner.claim {
            Claim::At(place) => place,
            Claim::Itself => return Standing::Solid,
            Claim::Misplaced(_) | Claim::Unknown => return Standing::Unresolvable,
        };
        if let Some(node) = self.nodes.get(&owner.uid)
            && (node.kind, &node.namespace, &node.name) == (place.kind, &place.namespace, &place.name)
        {
            return match (node.deleting, node.policy) {
                (true, Policy::Foreground) => Standing::Waiting,
                (true, Policy::Orphan) => Standing::Orphaning,
                _ => Standing::Solid,
            };
        }
        let Some(owned) = self.owned.get(&owner.uid) else { return Standing::Unverified(place.clone()) };
        match owned.looked.get(&**place) {
            _ if owned.gone => Standing::Dangling,
            Some(Look::Absent) => Standing::Dangling,
            Some(Look::Asked | Look::Unclear) => Standing::Pending,
            None => Standing::Unverified(place.clone()),
        }
    }
}
