//! ResourceQuotas: what the objects of a namespace use together is known at any time, from the history of the store, and a
//! new object that does not fit is refused. A namespace without quotas costs one lookup of an empty range.
//!
//! Admission does not read `status.used`, which is for people: two creations at a time cannot both get the last place.
//! While a creation is on its way to the store, what it uses is reserved.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tally_api::catalog;
use tally_api::kinds::{AdmissionError, Resource};
use tally_api::options::{PatchKind, WriteOptions};
use tally_api::quantity::Quantity;
use tally_api::quota::{Quota, Usage, add, counted_by, subtract, usage};
use tally_api::status_error::StatusError;
use tally_store::{Entry, Store, TooOld, Watcher};
use tally_value::{Map, Value, json};

use crate::read::gone;
use crate::{Registry, Result, Target, text};

const QUOTAS: &str = "resourcequotas/";
/// How long changes are collected before `status.used` is written.
const STATUS_AFTER: Duration = Duration::from_millis(100);
/// Events of the store that are processed at a time.
const BATCH: usize = 1024;

#[derive(Default)]
pub struct Quotas(Mutex<HashMap<String, Tracker>>);

/// What the objects of one resource in one namespace use. The map has it under the common prefix of their keys.
struct Tracker {
    resource: &'static Resource,
    watcher: Watcher,
    objects: HashMap<Box<str>, Measured>,
    /// Writes on their way to the store, by number.
    reserved: BTreeMap<u64, Reserved>,
    next: u64,
    /// By the name of the quota.
    quotas: BTreeMap<String, Sums>,
}

struct Sums {
    quota: Quota,
    used: Usage,
    /// A sum was too large to be expressed. Then nothing can be subtracted from it, and it is computed anew each time.
    overflowed: bool,
}

/// A stored object.
struct Measured {
    revision: u64,
    usage: Usage,
    /// The names of the quotas that count it.
    counted_by: Vec<String>,
}

/// An object that is on its way to the store.
struct Reserved {
    key: Box<str>,
    /// The revision that it replaces, if it is an update. Once another one is stored, it is not counted twice.
    replaces: Option<u64>,
    /// What it adds, by the name of the quota.
    adds: BTreeMap<String, Usage>,
}

/// Keeps what a write needs until it is dropped.
pub struct Reservation<'a> {
    quotas: &'a Quotas,
    prefix: String,
    number: u64,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if let Some(tracker) = self.quotas.lock().get_mut(&self.prefix) {
            tracker.reserved.remove(&self.number);
        }
    }
}

impl Quotas {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Tracker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tracker {
    fn new(
        store: &Store,
        resource: &'static Resource,
        prefix: &str,
        quotas: &[Quota],
    ) -> std::result::Result<Self, TooOld> {
        let page = store.range(prefix, None, None, None)?;
        let mut tracker = Self {
            resource,
            watcher: store.watch(prefix, page.revision)?,
            objects: HashMap::new(),
            reserved: BTreeMap::new(),
            next: 0,
            quotas: quotas
                .iter()
                .map(|quota| {
                    let sums = Sums { quota: quota.clone(), used: Usage::new(), overflowed: false };
                    (quota.name.clone(), sums)
                })
                .collect(),
        };
        for entry in page.entries {
            tracker.measure(&entry);
        }
        Ok(tracker)
    }

    /// Whether it computes the sums of these quotas.
    fn is_for(&self, quotas: &[Quota]) -> bool {
        let same = |quota: &Quota| self.quotas.get(&quota.name).is_some_and(|sums| sums.quota == *quota);
        self.quotas.len() == quotas.len() && quotas.iter().all(same)
    }

    /// Processes what was written since the last time.
    fn advance(&mut self) -> std::result::Result<(), TooOld> {
        loop {
            let batch = self.watcher.take(BATCH)?;
            for event in batch.events {
                self.forget(&event.entry.key);
                if !event.deleted {
                    self.measure(&event.entry);
                }
            }
            if !batch.more {
                return Ok(());
            }
        }
    }

    fn forget(&mut self, key: &str) {
        let Some(known) = self.objects.remove(key) else { return };
        for name in &known.counted_by {
            let Some(sums) = self.quotas.get_mut(name) else { continue };
            if !sums.overflowed {
                sums.overflowed = !subtract(&mut sums.used, &known.usage, &sums.quota.hard);
            }
            if sums.overflowed {
                sums.used.clear();
                sums.overflowed = false;
                for other in self.objects.values().filter(|other| other.counted_by.contains(name)) {
                    sums.overflowed |= !add(&mut sums.used, &other.usage, &sums.quota.hard);
                }
            }
        }
    }

    fn measure(&mut self, entry: &Entry) {
        let object = text::parse(&entry.value);
        let usage = usage(self.resource, &object);
        let mut counted_by = Vec::new();
        for (name, sums) in &mut self.quotas {
            if sums.quota.applies_to(&object) {
                sums.overflowed |= !add(&mut sums.used, &usage, &sums.quota.hard);
                counted_by.push(name.clone());
            }
        }
        self.objects.insert(entry.key.clone(), Measured { revision: entry.revision, usage, counted_by });
    }

    /// What counts for a quota, with what is reserved.
    fn used(&self, name: &str) -> Usage {
        let Some(sums) = self.quotas.get(name) else { return Usage::new() };
        let mut used = sums.used.clone();
        for reserved in self.reserved.values() {
            let stored = self.objects.get(&reserved.key).map(|known| known.revision);
            if let Some(adds) = reserved.adds.get(name).filter(|_| stored == reserved.replaces) {
                add(&mut used, adds, &sums.quota.hard);
            }
        }
        used
    }
}

impl Registry {
    /// Refuses an object that does not fit into the quotas of its namespace, or reserves what it needs. `old`: the write is an
    /// update, and only what it uses in addition counts.
    pub(crate) fn reserve(
        &self,
        target: &Target<'_>,
        name: &str,
        object: &Value,
        old: Option<&Entry>,
        dry_run: bool,
    ) -> Result<Option<Reservation<'_>>> {
        let Target { resource, namespace, .. } = *target;
        let mut quotas = self.quotas_of(namespace)?;
        quotas.retain(|quota| quota.concerns(resource));
        if quotas.is_empty() {
            return Ok(None);
        }
        let forbidden = |why: AdmissionError| StatusError::forbidden(resource, name, &why.0);
        let uses = usage(resource, object);
        let before = old.map(|old| {
            let old = text::parse(&old.value);
            (usage(resource, &old), old)
        });
        // What the write adds to each quota that counts the object: everything, if the quota did not count it before.
        let mut adds = BTreeMap::new();
        for quota in quotas.iter().filter(|quota| quota.applies_to(object)) {
            let mut requested = uses.clone();
            match &before {
                Some((used, old)) if quota.applies_to(old) => {
                    subtract(&mut requested, used, &quota.hard);
                }
                _ => quota.check_stated(resource, object).map_err(forbidden)?,
            }
            requested.retain(|name, amount| quota.hard.contains_key(name) && *amount > Quantity::ZERO);
            if !requested.is_empty() {
                adds.insert(quota.name.clone(), requested);
            }
        }
        if adds.is_empty() {
            return Ok(None);
        }
        let mut trackers = self.quotas.lock();
        let prefix = format!("{}/{namespace}/", resource.storage);
        let tracker = self.tracker(&mut trackers, resource, &prefix, &quotas)?;
        for quota in &quotas {
            if let Some(requested) = adds.get(&quota.name) {
                quota.check_fits(requested, &tracker.used(&quota.name)).map_err(forbidden)?;
            }
        }
        if dry_run {
            return Ok(None);
        }
        let number = tracker.next;
        tracker.next += 1;
        let reserved = Reserved { key: format!("{prefix}{name}").into(), replaces: old.map(|old| old.revision), adds };
        tracker.reserved.insert(number, reserved);
        Ok(Some(Reservation { quotas: &self.quotas, prefix, number }))
    }

    fn quotas_of(&self, namespace: &str) -> Result<Vec<Quota>> {
        if namespace.is_empty() {
            return Ok(Vec::new());
        }
        let page = self.store.range(&format!("{QUOTAS}{namespace}/"), None, None, None).map_err(gone)?;
        Ok(page.entries.iter().map(|entry| Quota::of(&text::parse(&entry.value))).collect())
    }

    /// The tracker, with everything that has been written so far.
    fn tracker<'t>(
        &self,
        trackers: &'t mut HashMap<String, Tracker>,
        resource: &'static Resource,
        prefix: &str,
        quotas: &[Quota],
    ) -> Result<&'t mut Tracker> {
        let (mut reserved, mut next) = (BTreeMap::new(), 0);
        if let Some(known) = trackers.get_mut(prefix) {
            // If the history no longer reaches back to its position, it starts again.
            if known.is_for(quotas) && known.advance().is_ok() {
                return trackers.get_mut(prefix).ok_or_else(lost);
            }
            (reserved, next) = (std::mem::take(&mut known.reserved), known.next);
        }
        let made = Tracker::new(&self.store, resource, prefix, quotas).map_err(gone)?;
        trackers.insert(prefix.to_owned(), Tracker { reserved, next, ..made });
        trackers.get_mut(prefix).ok_or_else(lost)
    }

    /// Writes `status.hard` and `status.used` of all quotas whenever they change. Does not end; a cluster without quotas
    /// costs nothing.
    pub async fn keep_quota_status(self: Arc<Self>) {
        let Ok(mut watcher) = self.store.watch(QUOTAS, self.store.revision()) else { return };
        loop {
            // Nothing but the position is needed, and before the sums are computed: what is written meanwhile is not missed. If
            // the history does not reach back to it, there is work anyway.
            if watcher.take(usize::MAX).is_err()
                && let Ok(newer) = self.store.watch(QUOTAS, self.store.revision())
            {
                watcher = newer;
            }
            match self.write_quota_status().await {
                QuotaStatus::NoQuotas => watcher.changed().await,
                QuotaStatus::Written => watcher.moved().await,
                QuotaStatus::Refused => {}
            }
            tokio::time::sleep(STATUS_AFTER).await;
        }
    }

    async fn write_quota_status(&self) -> QuotaStatus {
        let Ok(page) = self.store.range(QUOTAS, None, None, None) else { return QuotaStatus::Refused };
        let namespaces: HashSet<&str> = page.entries.iter().filter_map(|entry| entry.key.split('/').nth(1)).collect();
        let has_quotas =
            |prefix: &str| prefix.split('/').nth(1).is_some_and(|namespace| namespaces.contains(namespace));
        self.quotas.lock().retain(|prefix, tracker| has_quotas(prefix) || !tracker.reserved.is_empty());
        let Some(resource) = catalog::find("", "v1", "resourcequotas") else { return QuotaStatus::NoQuotas };
        let subresource = resource.subresource("status");
        let mut outcome = if page.entries.is_empty() { QuotaStatus::NoQuotas } else { QuotaStatus::Written };
        for entry in &page.entries {
            let object = text::parse(&entry.value);
            let (namespace, name) = (text::text(&object, "/metadata/namespace"), text::text(&object, "/metadata/name"));
            let Ok(used) = self.used_of(namespace, &Quota::of(&object)) else {
                outcome = QuotaStatus::Refused;
                continue;
            };
            let hard = object.pointer("/spec/hard").cloned().unwrap_or_else(|| json!({}));
            let used: Map = used.into_iter().map(|(name, sum)| (name, sum.to_string())).collect();
            let is = |field: &str| object.pointer(&format!("/status/{field}")).cloned().unwrap_or_else(|| json!({}));
            if is("hard") == hard && is("used") == Value::Object(used.clone()) {
                continue;
            }
            let patch = json!([
                {"op": "test", "path": "/metadata/resourceVersion", "value": entry.revision.to_string()},
                {"op": "add", "path": "/status", "value": {"hard": hard, "used": used}},
            ]);
            let target = Target { resource, subresource, namespace, name };
            let patch = patch.to_string();
            if self.patch(target, patch.as_bytes(), PatchKind::Json, &WriteOptions::default()).await.is_err() {
                outcome = QuotaStatus::Refused;
            }
        }
        outcome
    }

    /// How much of everything that a quota limits is used, as far as it is known here who uses it.
    fn used_of(&self, namespace: &str, quota: &Quota) -> Result<Usage> {
        let mut used = Usage::new();
        let quotas = self.quotas_of(namespace)?;
        for (name, resource) in quota.hard.keys().filter_map(|name| Some((name, counted_by(name)?))) {
            let of_resource: Vec<Quota> = quotas.iter().filter(|quota| quota.concerns(resource)).cloned().collect();
            let mut trackers = self.quotas.lock();
            let prefix = format!("{}/{namespace}/", resource.storage);
            let tracker = self.tracker(&mut trackers, resource, &prefix, &of_resource)?;
            let sum = tracker.quotas.get(&quota.name).and_then(|sums| sums.used.get(name));
            used.insert(name.clone(), sum.copied().unwrap_or(Quantity::ZERO));
        }
        Ok(used)
    }
}

/// What became of the status of the quotas.
enum QuotaStatus {
    NoQuotas,
    Written,
    /// Some could not be written: another write came first, or the store accepts none now.
    Refused,
}

fn lost() -> StatusError {
    StatusError::internal("the usage of the quotas is lost")
}
