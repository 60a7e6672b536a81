//! Delete: at once, after a grace period, or when the last finalizer is removed.

use tally_api::kinds::Resource;
use tally_api::options::{DeleteOptions, ListOptions, Propagation};
use tally_api::status_error::{Details, StatusError};
use tally_core::time::{Span, Timestamp};
use tally_store::{Change, Entry, Expect, Write, WriteError};
use tally_value::Value;

use crate::create::is_deleting;
use crate::text::{self, metadata};
use crate::update::may_go;
use crate::{Deleted, Listing, MOST_ROUNDS, Object, Registry, Result, Target, decoded, refused, view};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// WARN-4.
const PRESERVES_PODS: &str = "child pods are preserved by default when jobs are deleted; set \
    propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

impl Registry {
    /// The warnings of a delete request. They do not depend on its result, nor on whether the object exists.
    pub fn delete_warnings(resource: &Resource, options: &DeleteOptions) -> Vec<String> {
        let silent = options.propagation.is_some() || options.orphan_dependents.is_some();
        if resource.orphans_by_default && !silent { vec![PRESERVES_PODS.to_owned()] } else { Vec::new() }
    }

    pub async fn delete(&self, target: Target<'_>, options: &DeleteOptions) -> Result<Deleted> {
        self.delete_this(target, None, options).await
    }

    /// `uid`: the one object to delete. If another object has its name now, that object is not found.
    async fn delete_this(&self, target: Target<'_>, uid: Option<&str>, options: &DeleteOptions) -> Result<Deleted> {
        let resource = target.resource;
        if let Some(why) = resource.rules.delete_forbidden(target.name) {
            return Err(StatusError::forbidden(resource, target.name, why));
        }
        let key = target.key();
        for _ in 0..MOST_ROUNDS {
            let Some(entry) = self.store.get(&key) else {
                return Err(StatusError::not_found(resource, target.name));
            };
            let old = decoded::value(&entry);
            if uid.is_some_and(|uid| uid != text::text(&old, "/metadata/uid")) {
                return Err(StatusError::not_found(resource, target.name));
            }
            check_preconditions(&target, options, &entry, &old)?;
            let planned = match plan(resource, options, &old, self.now()) {
                Plan::Nothing => return Ok(Deleted::Object(view::object(resource, &entry))),
                planned => planned,
            };
            let goes = !matches!(planned, Plan::Mark { then_remove: false, .. });
            let uid = || text::text(&old, "/metadata/uid").to_owned();
            let deleted = |object: Object| match goes && !resource.delete_returns_object {
                true => Deleted::Status { uid: uid() },
                false => Deleted::Object(object),
            };
            if options.dry_run {
                return Ok(deleted(match &planned {
                    Plan::Mark { object, .. } => view::shown(resource, text::unstored(object)).into(),
                    Plan::Nothing | Plan::Remove => view::object(resource, &entry),
                }));
            }
            match self.carry_out(planned, &key, &entry, &old).await {
                // An object that is removed without being marked first is returned as it was.
                Ok(None) => return Ok(deleted(view::object(resource, &entry))),
                Ok(Some(marked)) => return Ok(deleted(view::object(resource, &marked))),
                Err(WriteError::Conflict(_)) => {}
                Err(error) => return Err(refused(error)),
            }
        }
        Err(StatusError::modified(resource, target.name))
    }

    /// Returns the entry of the object that was marked.
    async fn carry_out(
        &self,
        planned: Plan,
        key: &str,
        entry: &Entry,
        old: &Value,
    ) -> std::result::Result<Option<Entry>, WriteError> {
        let write = |change| Write { key: key.to_owned(), expect: Expect::At(entry.revision), change };
        match planned {
            Plan::Nothing => Ok(None),
            Plan::Remove => {
                let (body, last) = decoded::body(old.clone(), Some(entry));
                self.store.commit(write(Change::Delete(body))).await?;
                self.decoded.keep_removed(last, entry);
                Ok(None)
            }
            Plan::Mark { object, then_remove: false } => {
                let (body, tree) = decoded::body(object, Some(entry));
                let marked = self.store.commit(write(Change::Put(body))).await?;
                self.decoded.keep(tree, &marked, Some(entry));
                Ok(Some(marked))
            }
            // In one write: no controller would remove a Pod that a crash left behind marked, but without grace period and
            // finalizers.
            Plan::Mark { object, then_remove: true } => {
                let (body, handle, [tree, last]) = decoded::marked_and_removed(object, entry);
                let marked = self.store.commit(write(Change::PutAndDelete(body, Some(handle)))).await?;
                self.decoded.keep(tree, &marked, Some(entry));
                self.decoded.keep_removed(last, &marked);
                Ok(Some(marked))
            }
        }
    }

    /// API-21: the objects are deleted one by one, not atomically. Returns them as they were before.
    pub async fn delete_collection(
        &self,
        target: Target<'_>,
        selection: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Listing> {
        let listing = self.list(target, selection)?;
        for object in &listing.items {
            let object = object.parse();
            let at = |pointer| text::text(&object, pointer);
            let one = Target::new(target.resource, at("/metadata/namespace"), at("/metadata/name"));
            // An object that has taken the name since the list was not selected.
            match self.delete_this(one, Some(at("/metadata/uid")), options).await {
                Ok(_) => {}
                Err(failure) if failure.code == 404 => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(listing)
    }
}

enum Plan {
    /// The deletion is in progress, and this request does not shorten it.
    Nothing,
    /// The object is removed: it has no grace period and no finalizers.
    Remove,
    /// The object gets a deletion timestamp; `then_remove`: and is removed in the same write.
    Mark { object: Value, then_remove: bool },
}

fn plan(resource: &Resource, options: &DeleteOptions, old: &Value, now: Timestamp) -> Plan {
    let mut new = old.clone();
    let graceful = match resource.rules.grace_period(old, options.grace_period_seconds) {
        None => false,
        Some(wanted) => match grace(wanted, options, old, now, &mut new) {
            Grace::Pending => return Plan::Nothing,
            Grace::Set => true,
            Grace::Over => false,
        },
    };
    let finalizers = finalizers(resource, options, old);
    let held = !finalizers.is_empty();
    if held {
        metadata(&mut new).insert("finalizers", finalizers.into());
    } else {
        metadata(&mut new).remove("finalizers");
    }
    if !graceful && !held && !resource.rules.blocks_removal(&new) {
        return Plan::Remove;
    }
    if !graceful && !is_deleting(old) {
        mark(&mut new, now, 0);
    }
    resource.rules.mark_terminating(&mut new);
    if new == *old {
        return Plan::Nothing;
    }
    let then_remove = graceful && may_go(resource, &new);
    Plan::Mark { object: new, then_remove }
}

enum Grace {
    /// A longer or equal grace period is running already.
    Pending,
    Set,
    /// The grace period is over: only finalizers can keep the object.
    Over,
}

/// API-10 and API-11: the grace period of a Pod. Repeated deletes can only shorten it.
fn grace(wanted: i64, options: &DeleteOptions, old: &Value, now: Timestamp, new: &mut Value) -> Grace {
    if !is_deleting(old) {
        mark(new, now, wanted);
        return Grace::Set;
    }
    let running = old.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    if running == 0 {
        return Grace::Over;
    }
    if options.grace_period_seconds.is_none() || wanted >= running {
        return Grace::Pending;
    }
    let ends = Timestamp::parse(text::text(old, "/metadata/deletionTimestamp")).unwrap_or(now);
    let ends = ends + Span::from_seconds(wanted - running);
    let metadata = metadata(new);
    metadata.insert("deletionTimestamp", ends.to_string().into());
    metadata.insert("deletionGracePeriodSeconds", wanted.into());
    Grace::Set
}

fn mark(object: &mut Value, now: Timestamp, grace: i64) {
    let metadata = metadata(object);
    let ends = now.truncated() + Span::from_seconds(grace);
    metadata.insert("deletionTimestamp", ends.to_string().into());
    metadata.insert("deletionGracePeriodSeconds", grace.into());
    // API-7: an object that stays after its deletion request has changed.
    if let Some(generation) = metadata.get("generation").and_then(Value::as_i64).filter(|generation| *generation > 0) {
        metadata.insert("generation", (generation + 1).into());
    }
}

/// API-13, API-14: the finalizers after a delete. An option overrides existing finalizers, which override the kind's
/// default.
fn finalizers(resource: &Resource, options: &DeleteOptions, old: &Value) -> Vec<Value> {
    let existing = old.pointer("/metadata/finalizers").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let has = |name: &str| existing.iter().any(|finalizer| finalizer == name);
    let wanted = match (options.orphan_dependents, options.propagation) {
        _ if !resource.rules.has_dependents() => None,
        (Some(true), _) | (None, Some(Propagation::Orphan)) => Some(ORPHAN),
        (None, Some(Propagation::Foreground)) => Some(FOREGROUND),
        (Some(false), _) | (None, Some(Propagation::Background)) => None,
        (None, None) if has(ORPHAN) => Some(ORPHAN),
        (None, None) if has(FOREGROUND) => Some(FOREGROUND),
        (None, None) => resource.orphans_by_default.then_some(ORPHAN),
    };
    let standing = |finalizer: &&Value| {
        let ours = *finalizer == ORPHAN || *finalizer == FOREGROUND;
        !ours || wanted.is_some_and(|wanted| *finalizer == wanted)
    };
    let mut finalizers: Vec<Value> = existing.iter().filter(standing).cloned().collect();
    if let Some(wanted) = wanted.filter(|wanted| !has(wanted)) {
        finalizers.push(wanted.into());
    }
    finalizers
}

/// API-15.
pub fn check_preconditions(target: &Target<'_>, options: &DeleteOptions, entry: &Entry, old: &Value) -> Result<()> {
    let uid = text::text(old, "/metadata/uid");
    if let Some(wanted) = options.precondition_uid.as_deref().filter(|wanted| *wanted != uid) {
        return Err(other_uid(target, wanted, uid));
    }
    let revision = entry.revision.to_string();
    if let Some(wanted) = options.precondition_resource_version.as_deref().filter(|wanted| *wanted != revision) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
             ({revision}). The object might have been modified"
        );
        return Err(precondition_failed(target.resource, target.name, &why));
    }
    Ok(())
}

fn other_uid(target: &Target<'_>, wanted: &str, found: &str) -> StatusError {
    let why = format!(
        "the UID in the precondition ({wanted}) does not match the UID in record ({found}). \
         The object might have been deleted and then recreated"
    );
    precondition_failed(target.resource, target.name, &why)
}

/// Failed preconditions name the kind, other conflicts name the resource.
fn precondition_failed(resource: &Resource, name: &str, why: &str) -> StatusError {
    let kind = if resource.group.is_empty() {
        resource.kind.to_owned()
    } else {
        format!("{}.{}", resource.kind, resource.group)
    };
    let text = format!("Operation cannot be fulfilled on {kind} \"{name}\": {why}");
    let details = Details { kind: resource.kind.to_owned(), ..Details::of(resource, name) };
    StatusError::new(409, "Conflict", text).with(details)
}

#[cfg(test)]
mod tests {
    use tally_api::catalog;
    use tally_value::json;

    use super::*;

    #[test]
    fn a_deletion_leaves_the_finalizers_it_is_asked_for() {
        let check = |plural: &str, group: &str, existing: Value, options: DeleteOptions, expected: Value| {
            let object = json!({"metadata": {"finalizers": existing}});
            let resource = catalog::find(group, "v1", plural).map(|resource| finalizers(resource, &options, &object));
            assert_eq!(resource.map(Value::from), Some(expected), "{plural} {existing} {options:?}");
        };
        let asked = |propagation| DeleteOptions { propagation, ..DeleteOptions::default() };
        let (foreground, orphan) = (Some(Propagation::Foreground), Some(Propagation::Orphan));
        check("secrets", "", json!(["x.io/f"]), asked(None), json!(["x.io/f"]));
        check("secrets", "", json!([ORPHAN]), asked(foreground), json!([FOREGROUND]));
        check("secrets", "", json!([FOREGROUND]), asked(Some(Propagation::Background)), json!([]));
        check("jobs", "batch", json!([]), asked(None), json!([ORPHAN]));
        check("events", "", json!(["x.io/f"]), asked(foreground), json!(["x.io/f"]));
        check("events", "events.k8s.io", json!([]), asked(orphan), json!([]));
    }
}
