//! Pods that wait for a node, in groups of equal requirements.
//!
//! The head of a group represents the group: if there is no node for it, there is none for the others, and the group is
//! tried again only when something on a node has changed so that it fits there. So ten thousand Pods that wait for the
//! same thing cost as much as one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tally_core::ids::{PodUid, Revision};
use tally_core::time::{Span, Timestamp};
use tally_runtime::controller::bring_forward;

use super::pod::Requirements;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupId(u64);

/// A Pod's position in the queue, which it keeps as long as it waits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket {
    pub rank: (Reverse<i64>, Timestamp),
    /// Creation times are whole seconds: of two Pods of the same second, the one that was first observed at the lower
    /// revision comes first.
    pub revision: Revision,
    pub uid: PodUid,
}

#[derive(Debug)]
pub(super) struct Waiter {
    /// The reason for waiting that its status contains.
    pub told: Option<Arc<str>>,
    pub failures: u32,
    untold: Option<Timestamp>,
}

struct Group {
    requirements: Arc<Requirements>,
    waiting: BTreeMap<Ticket, Waiter>,
    blocked: bool,
    /// The Pods whose status must be given the reason, and when.
    untold: BTreeSet<(Timestamp, Ticket)>,
    reason: Option<Reason>,
    /// The group's entry among the groups that have such Pods.
    tells_at: Option<Timestamp>,
}

/// Why a group waits, for one state of the nodes.
struct Reason {
    text: Arc<str>,
    found_at: Timestamp,
    epoch: u64,
}

#[derive(Default)]
pub(super) struct Queue {
    groups: BTreeMap<GroupId, Group>,
    by_requirements: HashMap<Arc<Requirements>, GroupId, foldhash::fast::FixedState>,
    next: u64,
    /// Heads of the groups that are not blocked.
    ready: BTreeSet<(Ticket, GroupId)>,
    blocked: BTreeSet<GroupId>,
    tells: BTreeSet<(Timestamp, GroupId)>,
}

impl Queue {
    pub fn clock_set_back(&mut self, by: Span) {
        bring_forward(&mut self.tells, by);
        for group in self.groups.values_mut() {
            bring_forward(&mut group.untold, by);
            group.tells_at = group.tells_at.map(|at| at - by);
            group.reason.iter_mut().for_each(|reason| reason.found_at = reason.found_at - by);
            for waiter in group.waiting.values_mut() {
                waiter.untold = waiter.untold.map(|at| at - by);
            }
        }
    }

    pub fn join(
        &mut self,
        ticket: Ticket,
        requirements: &Arc<Requirements>,
        told: Option<Arc<str>>,
        tell_at: Timestamp,
    ) -> GroupId {
        let id = match self.by_requirements.get(requirements) {
            Some(id) => *id,
            None => {
                self.next += 1;
                let id = GroupId(self.next);
                self.by_requirements.insert(requirements.clone(), id);
                self.groups.insert(id, Group::new(requirements.clone()));
                id
            }
        };
        self.change(id, |group| {
            group.untold.insert((tell_at, ticket.clone()));
            let waiter = Waiter { told, failures: 0, untold: Some(tell_at) };
            group.waiting.insert(ticket, waiter);
        });
        id
    }

    /// Also used when the head of a group is assigned to its node.
    pub fn leave(&mut self, id: GroupId, ticket: &Ticket) -> Option<Waiter> {
        let left = self.change(id, |group| {
            let waiter = group.waiting.remove(ticket)?;
            if let Some(at) = waiter.untold {
                group.untold.remove(&(at, ticket.clone()));
            }
            Some(waiter)
        })?;
        if self.groups.get(&id).is_some_and(|group| group.waiting.is_empty())
            && let Some(group) = self.groups.remove(&id)
        {
            self.by_requirements.remove(&group.requirements);
            self.blocked.remove(&id);
        }
        left
    }

    /// Changes a group, and its position among the others.
    fn change<T>(&mut self, id: GroupId, change: impl FnOnce(&mut Group) -> T) -> Option<T> {
        let group = self.groups.get_mut(&id)?;
        if !group.blocked
            && let Some((head, _)) = group.waiting.first_key_value()
        {
            self.ready.remove(&(head.clone(), id));
        }
        let changed = change(group);
        if !group.blocked
            && let Some((head, _)) = group.waiting.first_key_value()
        {
            self.ready.insert((head.clone(), id));
        }
        if group.blocked {
            self.blocked.insert(id);
        } else {
            self.blocked.remove(&id);
        }
        let tells_at = group.untold.first().filter(|_| group.blocked).map(|(at, _)| *at);
        if tells_at != group.tells_at {
            if let Some(old) = std::mem::replace(&mut group.tells_at, tells_at) {
                self.tells.remove(&(old, id));
            }
            self.tells.extend(tells_at.map(|at| (at, id)));
        }
        Some(changed)
    }

    /// The next Pod to place.
    pub fn head(&self) -> Option<(GroupId, &Ticket, &Arc<Requirements>)> {
        let (ticket, id) = self.ready.first()?;
        Some((*id, ticket, &self.groups.get(id)?.requirements))
    }

    pub fn requirements(&self, id: GroupId) -> Option<&Arc<Requirements>> {
        self.groups.get(&id).map(|group| &group.requirements)
    }

    pub fn waiter(&mut self, id: GroupId, ticket: &Ticket) -> Option<&mut Waiter> {
        self.groups.get_mut(&id)?.waiting.get_mut(ticket)
    }

    pub fn block(&mut self, id: GroupId) {
        self.change(id, |group| group.blocked = true);
    }

    /// Unblocks the groups that fit now.
    pub fn unblock(&mut self, fits: impl Fn(&Requirements) -> bool) {
        let fit = |id: &GroupId| self.groups.get(id).is_some_and(|group| fits(&group.requirements));
        let free: Vec<_> = self.blocked.iter().copied().filter(fit).collect();
        for id in free {
            self.change(id, |group| group.blocked = false);
        }
    }

    pub fn has_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// The next Pod whose status must be given the reason.
    pub fn next_to_tell(&self, now: Timestamp) -> Option<(GroupId, Ticket)> {
        let (_, id) = self.tells.first().filter(|(at, _)| *at <= now)?;
        let ticket = self.groups.get(id)?.untold.first()?.1.clone();
        Some((*id, ticket))
    }

    pub fn next_tell_at(&self) -> Option<Timestamp> {
        self.tells.first().map(|(at, _)| *at)
    }

    /// Assumes from now on that the Pod's status contains this reason, unless the write fails.
    pub fn told(&mut self, id: GroupId, ticket: &Ticket, text: Arc<str>) {
        self.change(id, |group| {
            let waiter = group.waiting.get_mut(ticket)?;
            waiter.told = Some(text);
            let at = waiter.untold.take()?;
            group.untold.remove(&(at, ticket.clone())).then_some(())
        });
    }

    pub fn tell_again(&mut self, id: GroupId, ticket: &Ticket, at: impl Fn(u32) -> Timestamp) {
        self.change(id, |group| {
            let waiter = group.waiting.get_mut(ticket)?;
            let at = at(waiter.failures);
            waiter.failures = waiter.failures.saturating_add(1);
            waiter.told = None;
            if let Some(old) = waiter.untold.replace(at) {
                group.untold.remove(&(old, ticket.clone()));
            }
            group.untold.insert((at, ticket.clone())).then_some(())
        });
    }

    /// Why the group waits. Determined again only if the nodes have changed, and not before some time has passed: if
    /// the reason changed, it must be written to every Pod of the group.
    pub fn reason(
        &mut self,
        id: GroupId,
        (epoch, now, keep_for): (u64, Timestamp, Span),
        find: impl FnOnce(&Requirements) -> String,
    ) -> Option<Arc<str>> {
        let group = self.groups.get(&id)?;
        if let Some(reason) = &group.reason
            && (reason.epoch == epoch || now < reason.found_at + keep_for)
        {
            return Some(reason.text.clone());
        }
        let text: Arc<str> = find(&group.requirements).into();
        let changed = group.reason.as_ref().is_some_and(|reason| reason.text != text);
        let reason = Reason { text: text.clone(), found_at: now, epoch };
        self.change(id, |group| {
            group.reason = Some(reason);
            if changed {
                for (ticket, waiter) in &mut group.waiting {
                    if waiter.untold.is_none() {
                        waiter.untold = Some(now);
                        group.untold.insert((now, ticket.clone()));
                    }
                }
            }
        });
        Some(text)
    }

    /// Groups for which a reason has been determined.
    pub fn explained(&self) -> Vec<GroupId> {
        let explained = |id: &&GroupId| self.groups.get(id).is_some_and(|group| group.reason.is_some());
        self.blocked.iter().filter(explained).copied().collect()
    }
}

impl Group {
    fn new(requirements: Arc<Requirements>) -> Self {
        Self {
            requirements,
            waiting: BTreeMap::new(),
            blocked: false,
            untold: BTreeSet::new(),
            reason: None,
            tells_at: None,
        }
    }
}
