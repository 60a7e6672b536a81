//! What a client may ask for besides the object itself: options of reads, watches, writes and deletes.
//!
//! The parsers here turn query parameters and DeleteOptions bodies into these values, or into the refusal a client
//! knows. Parsing only; what the options mean is the registry's business.

/// Text of a `resourceVersion` that a read asks for, with `resourceVersionMatch` applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadAt {
    /// The newest state.
    #[default]
    Newest,
    /// Any state will do ("0").
    Any,
    /// The state at this revision or a newer one.
    NotOlderThan(u64),
    /// The state at this revision exactly.
    Exactly(u64),
}

#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    pub label_selector: String,
    pub field_selector: String,
    /// None: no limit.
    pub limit: Option<usize>,
    /// The token of the page before. Empty: the first page.
    pub continue_token: String,
    pub read_at: ReadAt,
}

#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    pub label_selector: String,
    pub field_selector: String,
    /// None: from the newest state, with synthetic ADDED events for what is there. Some(0): the same, from any state.
    pub from: Option<u64>,
    pub bookmarks: bool,
    /// `sendInitialEvents`, if given.
    pub initial_events: Option<bool>,
    pub timeout_seconds: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    pub dry_run: bool,
    pub field_validation: FieldValidation,
    /// Who writes, for managedFields. Empty: from the user agent.
    pub field_manager: String,
    /// Server-side apply: take fields over.
    pub force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    pub dry_run: bool,
    pub grace_period_seconds: Option<i64>,
    pub propagation: Option<Propagation>,
    pub orphan_dependents: Option<bool>,
    pub precondition_uid: Option<String>,
    pub precondition_resource_version: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    Json,
    Merge,
    Strategic,
    /// Server-side apply.
    Apply,
}
