//! The lists of rows that Pods need, each read once for all Pods that take rows of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use compact_str::CompactString;
use tally_core::ids::PodUid;
use tally_runtime::controller::{Call, Kind, Verb};

use crate::each::RowList;

/// The number of lists that are kept, each of about a megabyte. The Pods of a Job take rows in order, so few lists are
/// in use at a time.
const KEPT: usize = 8;

/// The namespace and the name of a ConfigMap.
pub type ListName = (CompactString, CompactString);

#[derive(Default)]
pub struct RowLists {
    known: BTreeMap<ListName, Arc<RowList>>,
    /// The names of the known lists, the least recently used first.
    order: VecDeque<ListName>,
    /// Lists that are being read, and the Pods that wait for them.
    asked: BTreeMap<ListName, BTreeSet<PodUid>>,
}

impl RowLists {
    /// None: it is not known yet; then the Pod waits for it, and the request must be sent if there is one.
    pub fn get(&mut self, name: &ListName, pod: &PodUid) -> Result<Arc<RowList>, Option<Call>> {
        if let Some(list) = self.known.get(name) {
            if self.order.back() != Some(name) {
                self.order.retain(|known| known != name);
                self.order.push_back(name.clone());
            }
            return Ok(list.clone());
        }
        let first = !self.asked.contains_key(name);
        self.asked.entry(name.clone()).or_default().insert(pod.clone());
        Err(first.then(|| Call::new(Verb::Get, Kind::CONFIG_MAP, &name.0, &name.1)))
    }

    /// The response to a request; None if the list cannot be used. Returns the Pods that wait for it.
    pub fn read(&mut self, name: ListName, list: Option<RowList>) -> BTreeSet<PodUid> {
        let waiting = self.asked.remove(&name).unwrap_or_default();
        if let Some(list) = list {
            self.known.insert(name.clone(), Arc::new(list));
            self.order.push_back(name);
        }
        while self.order.len() > KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        waiting
    }
}
