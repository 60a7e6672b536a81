//! The row of a list that the Pod's command is run for, if there is one (`each.rs`).

use std::sync::Arc;

use compact_str::CompactString;

use super::PodWorker;
use super::setup::Setup;
use crate::each::{ListRow, RowList, RowSource};
use crate::pod::Pod;
use crate::row_lists::ListName;

#[derive(Debug)]
pub enum RowState {
    /// An ordinary Pod.
    None,
    /// The lists are not read yet.
    Wanted(RowSource),
    Known(RowSource, ListRow),
}

impl RowState {
    pub fn of(pod: &Pod) -> Self {
        RowSource::of(pod).map_or(Self::None, Self::Wanted)
    }

    pub fn is_pending(&self) -> bool {
        matches!(self, Self::Wanted(_))
    }

    /// The volume that is not needed, because the node does what its script would do.
    pub fn unmounted(&self) -> Option<CompactString> {
        match self {
            Self::None => None,
            Self::Wanted(source) | Self::Known(source, _) => Some(source.volume.clone()),
        }
    }

    pub fn row(&self) -> Option<&ListRow> {
        match self {
            Self::Known(_, row) => Some(row),
            Self::None | Self::Wanted(_) => None,
        }
    }
}

impl PodWorker {
    /// The lists that the Pod waits for: the one with the script, and the one with the row.
    pub fn wanted_lists(&self) -> Option<[ListName; 2]> {
        let RowState::Wanted(source) = &self.row else { return None };
        if self.termination.verdict().is_some() {
            return None;
        }
        Some([&source.script, &source.list].map(|name| (self.pod.metadata.namespace.clone(), name.clone())))
    }

    /// The lists with the script and with the row. If there are none, or the script is not the known one, the Pod is an
    /// ordinary one: its volume is mounted and its own script is run.
    pub fn set_row(&mut self, lists: Option<(Arc<RowList>, Arc<RowList>)>) {
        let RowState::Wanted(source) = &self.row else { return };
        let row = lists.and_then(|(script, list)| ListRow::new(source, &script, list));
        self.row = match row {
            Some(row) => RowState::Known(source.clone(), row),
            None => {
                self.setup = Setup::of(&self.pod, None);
                RowState::None
            }
        };
    }
}
