//! Update and patch: decide from the stored object, write if it is unchanged, otherwise decide again.

use bytes::Bytes;
use tally_api::apply::{self, Config, Writer};
use tally_api::decode::{Decoded, Sent, conform, decode, settle};
use tally_api::kinds::{Part, Resource};
use tally_api::options::{Format, PatchKind, WriteOptions};
use tally_api::others::validate_finalize;
use tally_api::scale::{self, SCALE};
use tally_api::status_error::StatusError;
use tally_api::{meta, patch};
use tally_core::gates::FeatureGates;
use tally_store::{Change, Entry, Expect, Write, WriteError};
use tally_value::{Value, json};

use crate::create::{is_deleting, take_namespace};
use crate::text::{self, metadata};
use crate::{MOST_ROUNDS, Object, Registry, Result, Target, Written, check_size, decoded, refused, view};

/// The manager of a write by this process itself: a controller, or the node.
const OWN_MANAGER: &str = "tally";

/// The new state of an object that a client requests.
enum RequestedState<'a> {
    Replace(Decoded),
    Patch(PatchKind, Sent<'a>),
    Apply(Config),
    /// The Scale of the object is replaced, or patched.
    Scale(Decoded),
    PatchScale(PatchKind, Sent<'a>),
}

impl Registry {
    pub async fn update<'a>(
        &self,
        target: Target<'_>,
        body: impl Into<Sent<'a>>,
        format: Format,
        options: &WriteOptions,
    ) -> Result<Written> {
        let scales = target.is_subresource(SCALE);
        let resource = if scales { scale::resource() } else { target.resource };
        let mut decoded = decode(resource, body, format, options.field_validation)?;
        take_namespace(target.resource, target.namespace, &mut decoded.object)?;
        check_name(&target, &decoded.object)?;
        if scales {
            return self.modify(target, RequestedState::Scale(decoded), options).await;
        }
        if !target.resource.create_on_update || target.subresource.is_some() {
            return self.modify(target, RequestedState::Replace(decoded), options).await;
        }
        // The object may be created or deleted between the read and the write.
        for _ in 0..MOST_ROUNDS {
            let wanted = decoded.clone();
            let (done, other_way) = if self.store.get(&target.key()).is_some() {
                (self.modify(target, RequestedState::Replace(wanted), options).await, "NotFound")
            } else {
                (self.create_in_place(target, wanted, options).await, "AlreadyExists")
            };
            match done {
                Err(failure) if failure.reason == other_way => {}
                done => return done,
            }
        }
        Err(StatusError::modified(target.resource, target.name))
    }

    /// An update of an object that does not exist, for kinds that allow create on update.
    async fn create_in_place(
        &self,
        target: Target<'_>,
        mut decoded: Decoded,
        options: &WriteOptions,
    ) -> Result<Written> {
        // A client that sends a UID means an object that no longer exists. A resourceVersion also refers to an earlier
        // object, but kube-apiserver accepts it.
        match text::text(&decoded.object, "/metadata/uid") {
            "" => {}
            uid => return Err(other_uid(&target, uid, "")),
        }
        metadata(&mut decoded.object).remove("resourceVersion");
        self.create_object(target, decoded, options).await
    }

    pub async fn patch<'a>(
        &self,
        target: Target<'_>,
        body: impl Into<Sent<'a>>,
        kind: PatchKind,
        options: &WriteOptions,
    ) -> Result<Written> {
        let body = body.into();
        if kind == PatchKind::Apply {
            return match body {
                Sent::Text(text) => self.apply(target, text, options).await,
                Sent::Tree(tree) => self.apply(target, tree.to_string().as_bytes(), options).await,
            };
        }
        let requested = match target.is_subresource(SCALE) {
            true => RequestedState::PatchScale(kind, body),
            false => RequestedState::Patch(kind, body),
        };
        self.modify(target, requested, options).await
    }

    /// Server-side apply: an object that does not exist is created.
    async fn apply(&self, target: Target<'_>, body: &[u8], options: &WriteOptions) -> Result<Written> {
        let config = match target.is_subresource(SCALE) {
            true => {
                let config = Config::read(scale::resource(), body, options.field_validation)?;
                apply::check_config(scale::resource(), &config.object)?;
                scale::applied(target.resource, config)
            }
            false => Config::read(target.resource, body, options.field_validation)?,
        };
        check_name(&target, &config.object)?;
        let namespace = text::text(&config.object, "/metadata/namespace");
        if !namespace.is_empty() && namespace != target.namespace {
            let why = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(StatusError::bad_request(why));
        }
        // The object may be created or deleted between the read and the write.
        for _ in 0..MOST_ROUNDS {
            let wanted = config.clone();
            let (done, other_way) = if target.subresource.is_some() || self.store.get(&target.key()).is_some() {
                let may_create = if target.subresource.is_some() { "" } else { "NotFound" };
                (self.modify(target, RequestedState::Apply(wanted), options).await, may_create)
            } else {
                (self.create_applied(target, wanted, options).await, "AlreadyExists")
            };
            match done {
                Err(failure) if failure.reason == other_way => {}
                done => return done,
            }
        }
        Err(StatusError::modified(target.resource, target.name))
    }

    async fn create_applied(&self, target: Target<'_>, config: Config, options: &WriteOptions) -> Result<Written> {
        let Config { object, warnings } = config;
        match text::text(&object, "/metadata/uid") {
            "" => {}
            uid => {
                let why =
                    format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
                return Err(StatusError::conflict(target.resource, target.name, &why));
            }
        }
        let now = self.now().to_string();
        let mut object = apply::applied(target.resource, None, &object, writer(&target, options, &now), options.force)?;
        metadata(&mut object).remove("resourceVersion");
        let mut decoded = conform(target.resource, object, options.field_validation)?;
        decoded.warnings.extend(warnings);
        self.fill_in(target.resource, &mut decoded.object);
        self.create_tracked(target, decoded, options).await
    }

    async fn modify(
        &self,
        target: Target<'_>,
        requested: RequestedState<'_>,
        options: &WriteOptions,
    ) -> Result<Written> {
        let key = target.key();
        for _ in 0..MOST_ROUNDS {
            let Some(entry) = self.store.get(&key) else {
                return Err(StatusError::not_found(target.resource, target.name));
            };
            let stored = decoded::value(&entry);
            let now = self.now().to_string();
            let mut decision = decide(&target, &requested, &entry, stored, options, self.gates, &now)?;
            if let Outcome::Put(new) = &decision.outcome
                && let Err(failure) = options
                    .check(new, || Some(text::parse(&entry.value)))
                    .and_then(|()| self.admit_update(&target, new))
            {
                return Err(StatusError { warnings: decision.warnings, ..failure });
            }
            if let Outcome::Put(new) = &decision.outcome {
                match self.secure_update(&target, new, &entry, options) {
                    Ok(warnings) => decision.warnings.extend(warnings),
                    Err(failure) => return Err(StatusError { warnings: decision.warnings, ..failure }),
                }
            }
            let _held = match &decision.outcome {
                Outcome::Put(new) if target.subresource.is_none() => {
                    match self.reserve(&target, target.name, new, Some(&entry), options.dry_run) {
                        Ok(held) => held,
                        Err(failure) => return Err(StatusError { warnings: decision.warnings, ..failure }),
                    }
                }
                _ => None,
            };
            let shown = |bytes: Bytes| match target.is_subresource(SCALE) {
                true => text::unstored(&scale::of(&text::parse(&bytes))).into(),
                false => Object::from(view::shown(target.resource, bytes)),
            };
            let done = |bytes: Bytes, warnings| Written { object: shown(bytes), kind: None, created: false, warnings };
            let (change, answer, kept) = match decision.outcome {
                Outcome::Nothing => return Ok(done(entry.value.clone(), decision.warnings)),
                Outcome::Put(new) if options.dry_run => return Ok(done(text::unstored(&new), decision.warnings)),
                Outcome::Put(new) => {
                    let (body, tree) = decoded::body(new, Some(&entry));
                    // An object that already exceeds the limit, because it was marked as deleted, may still shrink.
                    if body.bytes.len() > entry.value.len() {
                        check_size(&body)?;
                    }
                    (Change::Put(body), None, tree)
                }
                // API-8: removing the last finalizer removes the object. Watchers see the state before that.
                Outcome::Remove { new, old } => {
                    let (body, last) = decoded::body(old, Some(&entry));
                    (Change::Delete(body), Some(text::unstored(&new)), last)
                }
            };
            if options.dry_run {
                return Ok(done(answer.unwrap_or_default(), decision.warnings));
            }
            match self.store.commit(Write { key: key.clone(), expect: Expect::At(entry.revision), change }).await {
                Ok(written) => {
                    match answer {
                        None => self.decoded.keep(kept, &written, Some(&entry)),
                        Some(_) => self.decoded.keep_removed(kept, &entry),
                    }
                    let answer = match answer {
                        None if !target.is_subresource(SCALE) => view::object(target.resource, &written),
                        answer => shown(answer.unwrap_or_else(|| written.value.clone())),
                    };
                    return Ok(Written { object: answer, kind: None, created: false, warnings: decision.warnings });
                }
                // Another write came first. A client that sent a resourceVersion is refused in the next round.
                Err(WriteError::Conflict(_)) => {}
                Err(error) => return Err(refused(error)),
            }
        }
        Err(StatusError::modified(target.resource, target.name))
    }
}

/// Who makes this request.
pub(crate) fn writer<'a>(target: &Target<'a>, options: &'a WriteOptions, now: &'a str) -> Writer<'a> {
    let manager = if options.field_manager.is_empty() { OWN_MANAGER } else { &options.field_manager };
    Writer { manager, subresource: target.subresource.map_or("", |subresource| subresource.name), now }
}

struct Decision {
    outcome: Outcome,
    warnings: Vec<String>,
}

enum Outcome {
    /// The object already has the requested state.
    Nothing,
    Put(Value),
    Remove {
        new: Value,
        old: Value,
    },
}

fn decide(
    target: &Target<'_>,
    requested: &RequestedState<'_>,
    entry: &Entry,
    stored: Value,
    options: &WriteOptions,
    gates: FeatureGates,
    now: &str,
) -> Result<Decision> {
    let resource = target.resource;
    let old = view::from_stored(resource, &stored);
    let (mut new, mut warnings, unsettled) = match requested {
        RequestedState::Scale(decoded) => {
            check_scale(target, &old, &decoded.object)?;
            (scale::put(&old, &decoded.object), decoded.warnings.clone(), false)
        }
        RequestedState::PatchScale(kind, body) => {
            let mut current = scale::of(&old);
            current["apiVersion"] = scale::resource().api_version().into();
            current["kind"] = scale::resource().kind.into();
            let decoded = patch::patched(scale::resource(), *kind, current, *body, options.field_validation)?;
            check_name(target, &decoded.object)?;
            check_scale(target, &old, &decoded.object)?;
            (scale::put(&old, &decoded.object), decoded.warnings, false)
        }
        RequestedState::Replace(decoded) => (decoded.object.clone(), decoded.warnings.clone(), decoded.unsettled),
        RequestedState::Patch(kind, body) => {
            let mut current = old.as_ref().clone();
            current["apiVersion"] = resource.api_version().into();
            current["kind"] = resource.kind.into();
            let decoded = patch::patched(resource, *kind, current, *body, options.field_validation)?;
            (decoded.object, decoded.warnings, decoded.unsettled)
        }
        RequestedState::Apply(config) => {
            let writer = writer(target, options, now);
            let object = apply::applied(resource, Some(&old), &config.object, writer, options.force)?;
            let mut decoded = conform(resource, object, options.field_validation)?;
            decoded.warnings.extend(config.warnings.iter().cloned());
            (decoded.object, decoded.warnings, decoded.unsettled)
        }
    };
    text::remove_type(&mut new);
    take_namespace(resource, target.namespace, &mut new)?;
    check_name(target, &new)?;
    check_revision(target, &new, entry)?;
    let unconditional = matches!(text::text(&new, "/metadata/resourceVersion"), "" | "0");
    if unconditional && matches!(requested, RequestedState::Replace(_)) && meta::needs_resource_version(resource) {
        return Err(meta::resource_version_missing(resource, target.name));
    }
    let uid = text::text(&new, "/metadata/uid").to_owned();
    if matches!(requested, RequestedState::Replace(_)) && !uid.is_empty() && uid != text::text(&old, "/metadata/uid") {
        return Err(other_uid(target, &uid, text::text(&old, "/metadata/uid")));
    }
    metadata(&mut new).insert("resourceVersion", entry.revision.to_string().into());

    let part = if target.is_subresource("status") { Part::Status } else { Part::Main };
    let finalizes = target.is_subresource("finalize");
    let gated = part == Part::Main && !finalizes;
    if gated {
        resource.rules.drop_disabled(&mut new, Some(&old), gates);
    }
    resource.rules.default_update(&mut new, &old);
    if gated {
        resource.rules.drop_disabled(&mut new, Some(&old), gates);
    }
    if !matches!(requested, RequestedState::Apply(_)) {
        apply::updated(resource, &old, &mut new, writer(target, options, now));
    }
    meta::prepare_update(&mut new, &old);
    let spec = finalizes.then(|| new.get("spec").cloned().unwrap_or_else(|| json!({})));
    resource.rules.prepare_update(&mut new, &old, part);
    // Only this subresource may change `spec.finalizers`, the list of what must happen before the object is removed.
    if let Some(spec) = spec {
        new["spec"] = spec;
    }
    warnings.extend(meta::dedupe_owner_references(&mut new));
    if target.is_subresource(SCALE) {
        let errors = scale::validate(&new);
        if !errors.is_empty() {
            return Err(StatusError { warnings, ..view::invalid(scale::resource(), target.name, &errors) });
        }
    }
    let mut errors = meta::validate_update(resource, &new, &old);
    if finalizes {
        errors.extend(validate_finalize(&new));
    } else {
        errors.extend(resource.rules.validate_gated(&new, &old, part, gates));
    }
    if !errors.is_empty() {
        return Err(StatusError { warnings, ..view::invalid(resource, target.name, &errors) });
    }
    warnings.extend(resource.rules.update_warnings(&new, &old, part));
    resource.rules.complete(&mut new);
    if unsettled {
        settle(resource, &mut new);
    }
    let new = view::to_stored(resource, new);
    let is_same = match requested {
        RequestedState::Apply(_) => !apply::differ(&new, &stored),
        _ => new == stored,
    };
    let outcome = if is_same && !text::is_incomplete(&entry.value) {
        Outcome::Nothing
    } else if is_deleting(&new) && may_go(resource, &new) {
        Outcome::Remove { new, old: stored }
    } else {
        Outcome::Put(new)
    };
    Ok(Decision { outcome, warnings })
}

/// Whether an object that is being deleted has no grace period and no finalizers left.
pub fn may_go(resource: &Resource, object: &Value) -> bool {
    let none = |pointer| object.pointer(pointer).and_then(Value::as_array).is_none_or(Vec::is_empty);
    let grace = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    grace == 0 && none("/metadata/finalizers") && !resource.rules.blocks_removal(object)
}

/// API-3: a resourceVersion in the request must match. A patch without one contains the stored one.
fn check_revision(target: &Target<'_>, new: &Value, entry: &Entry) -> Result<()> {
    let told = text::text(new, "/metadata/resourceVersion");
    if matches!(told, "" | "0") {
        return Ok(());
    }
    let unreadable = |_| StatusError::bad_request(format!("strconv.ParseUint: parsing {told:?}: invalid syntax"));
    let revision: u64 = told.parse().map_err(unreadable)?;
    if revision == entry.revision { Ok(()) } else { Err(StatusError::modified(target.resource, target.name)) }
}

fn other_uid(target: &Target<'_>, wanted: &str, found: &str) -> StatusError {
    let path = format!("/registry/{}", target.key());
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {path}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
    );
    StatusError::conflict(target.resource, target.name, &why)
}

/// A Scale that names a UID means this object only.
fn check_scale(target: &Target<'_>, old: &Value, scale: &Value) -> Result<()> {
    match (text::text(scale, "/metadata/uid"), text::text(old, "/metadata/uid")) {
        ("", _) => Ok(()),
        (wanted, found) if wanted == found => Ok(()),
        (wanted, found) => {
            let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}");
            Err(StatusError::conflict(target.resource, target.name, &why))
        }
    }
}

/// The name in the URL is the object's name: an object with another name, or without one, is refused.
fn check_name(target: &Target<'_>, object: &Value) -> Result<()> {
    let named = target.name;
    match text::text(object, "/metadata/name") {
        given if given == named => Ok(()),
        "" => Err(StatusError::bad_request(format!(
            "the name of the object ({named} based on URL) was undeterminable: name must be provided"
        ))),
        given => Err(StatusError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({named})"
        ))),
    }
}
