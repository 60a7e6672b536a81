//! Create: default, validate, and store under a name that is not taken.

use std::num::NonZeroUsize;
use std::sync::Arc;

use tally_api::decode::{Decoded, Sent, decode, decode_as, settle};
use tally_api::kinds::{AdmissionError, Resource, Siblings};
use tally_api::options::{FieldValidation, Format, WriteOptions};
use tally_api::status_error::{Cause, StatusError};
use tally_api::{apply, meta};
use tally_store::{Change, Entry, Expect, Stored, Write, WriteError};
use tally_value::Value;

use crate::decoded::{Accepted, DecodedObjects};
use crate::text::{self, metadata};
use crate::update::writer;
use crate::{MOST_ROUNDS, Registry, Result, Target, Written, check_size, decoded, key, refused, view};

fn has_controller(object: &Value) -> bool {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().any(|owner| owner.get("controller") == Some(&Value::Bool(true)))
}

/// CONST-10, API-1: how many suffixes are tried for a generated name.
const NAME_ATTEMPTS: usize = 8;
const SUFFIX: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;
const MANAGERS: &str = "managedFields";

/// The other objects of the resource of a new object.
struct StoredSiblings<'a> {
    registry: &'a Registry,
    resource: &'a Resource,
    namespace: &'a str,
}

impl Siblings for StoredSiblings<'_> {
    fn named(&self, name: &str) -> Option<Value> {
        let entry = self.registry.store.get(&key(self.resource, self.namespace, name))?;
        Some(text::parse(&entry.value))
    }
}

impl Registry {
    pub async fn create<'a>(
        &self,
        target: Target<'_>,
        body: impl Into<Sent<'a>>,
        format: Format,
        options: &WriteOptions,
    ) -> Result<Written> {
        let body = body.into();
        // A Binding is created as a subresource of a Pod or, in the older form, in a collection of its own.
        match target.subresource.map_or(target.resource.kind, |subresource| subresource.kind) {
            "Binding" => return self.bind(target, body, format, options).await,
            "Eviction" => return self.evict(target, body, format, options).await,
            "TokenRequest" => return self.issue_token(target, body, format),
            _ if target.subresource.is_some() => {
                return Err(StatusError::method_not_allowed(target.resource, "create"));
            }
            _ => {}
        }
        let decoded = decode(target.resource, body, format, options.field_validation)?;
        self.create_object(target, decoded, options).await
    }

    /// A token is the response, and nothing is stored.
    fn issue_token(&self, target: Target<'_>, body: Sent<'_>, format: Format) -> Result<Written> {
        let missing = || StatusError::new(503, "ServiceUnavailable", "this server has no tokens");
        let issuer = self.tokens.get().ok_or_else(missing)?;
        let kind = ("authentication.k8s.io/v1", "TokenRequest");
        let request = decode_as("authentication.k8s.io", "v1", kind.1, body, format, FieldValidation::Ignore)?.object;
        let issued = issuer.issue(self, target.namespace, target.name, request)?;
        let object = text::unstored(&issued).into();
        Ok(Written { object, kind: Some(kind), created: true, warnings: Vec::new() })
    }

    pub(crate) async fn create_object(
        &self,
        target: Target<'_>,
        mut decoded: Decoded,
        options: &WriteOptions,
    ) -> Result<Written> {
        self.fill_in(target.resource, &mut decoded.object);
        // Objects of this process itself and of controllers, which are most Pods, get managers when they are applied for the
        // first time.
        if !options.field_manager.is_empty() && !has_controller(&decoded.object) {
            let now = self.now().to_string();
            apply::created(target.resource, &mut decoded.object, writer(&target, options, &now));
        }
        self.create_tracked(target, decoded, options).await
    }

    /// The defaults of a new object. Fields whose gate is off are left out, also those that have a default.
    pub(crate) fn fill_in(&self, resource: &Resource, object: &mut Value) {
        resource.rules.drop_disabled(object, None, self.gates);
        resource.rules.default(object);
        resource.rules.drop_disabled(object, None, self.gates);
    }

    /// Creates an object that has its defaults and its managers.
    pub(crate) async fn create_tracked(
        &self,
        target: Target<'_>,
        decoded: Decoded,
        options: &WriteOptions,
    ) -> Result<Written> {
        let Target { resource, namespace, .. } = target;
        let Decoded { mut object, warnings, unsettled } = decoded;
        take_namespace(resource, namespace, &mut object)?;
        // A client that sends a resourceVersion means an existing object. Text that is not a number is ignored.
        let revision: u64 = text::text(&object, "/metadata/resourceVersion").parse().unwrap_or(0);
        let called = called(&object).to_owned();
        let mut namespace_seen = self.admit(target, &called)?;
        self.give_identity(&mut object);
        let forbidden = |why: AdmissionError| StatusError::forbidden(resource, &called, &why.0);
        let limits = self.limits(resource, namespace)?;
        limits.fill_in(&mut object);
        resource.rules.admit_create(&mut object, self).map_err(forbidden)?;
        let prefix = text::text(&object, "/metadata/generateName").to_owned();
        let generated = text::text(&object, "/metadata/name").is_empty() && !prefix.is_empty();
        let mut attempt = 1;
        // Set aside: no rule reads managedFields, and they are half of an object.
        let managers = metadata(&mut object).remove(MANAGERS);
        for _ in 0..MOST_ROUNDS {
            let mut candidate = object.clone();
            if generated {
                metadata(&mut candidate).insert("name", self.generate_name(&prefix).into());
            }
            let name = text::text(&candidate, "/metadata/name").to_owned();
            resource.rules.prepare_create(&mut candidate, self.now());
            let mut told = warnings.clone();
            told.extend(meta::dedupe_owner_references(&mut candidate));
            let sibling = Sibling::find(&self.decoded, resource, &candidate);
            let mut errors = meta::validate_create(resource, &candidate);
            if !sibling.is_like {
                errors.extend(resource.rules.validate_create(&candidate));
            }
            if errors.is_empty() {
                let siblings = StoredSiblings { registry: self, resource, namespace };
                errors.extend(resource.rules.validate_among(&candidate, &siblings));
            }
            if !errors.is_empty() {
                return Err(StatusError { warnings: told, ..view::invalid(resource, &name, &errors) });
            }
            if let Err(failure) = options.check(&candidate, || None) {
                return Err(StatusError { warnings: told, ..failure });
            }
            let own_warnings = if sibling.is_like { Vec::new() } else { resource.rules.create_warnings(&candidate) };
            let is_new_template = !sibling.is_like && own_warnings.is_empty();
            told.extend(own_warnings);
            told.extend(resource.rules.cluster_warnings(&candidate, self));
            if let Err(failure) = limits.check(resource, &candidate, &name) {
                return Err(StatusError { warnings: told, ..failure });
            }
            if let Err(why) = resource.rules.admit_valid(&candidate) {
                return Err(StatusError { warnings: told, ..forbidden(why) });
            }
            match self.secure_create(&target, &candidate, &name, namespace_seen.as_ref(), options) {
                Ok(warnings) => told.extend(warnings),
                Err(failure) => return Err(StatusError { warnings: told, ..failure }),
            }
            // Held until the write is committed or has failed.
            let _held = match self.reserve(&target, &name, &candidate, None, options.dry_run) {
                Ok(held) => held,
                Err(failure) => return Err(StatusError { warnings: told, ..failure }),
            };
            if revision != 0 && !options.dry_run {
                let why = "resourceVersion should not be set on objects to be created";
                return Err(StatusError { warnings: told, ..StatusError::bad_request(why) });
            }
            let incomplete = resource.rules.complete(&mut candidate);
            let is_as_checked = !incomplete && !unsettled;
            if let Some(managers) = &managers {
                metadata(&mut candidate).insert(MANAGERS, managers.clone());
            }
            if unsettled {
                settle(resource, &mut candidate);
            }
            let stored = view::to_stored(resource, candidate);
            let key = key(resource, namespace, &name);
            let written = if options.dry_run {
                match self.store.get(&key) {
                    Some(existing) => Err(WriteError::Conflict(Some(existing))),
                    None => Ok(view::shown(resource, text::unstored(&stored)).into()),
                }
            } else {
                let (body, tree) = decoded::body(stored, sibling.entry());
                check_size(&body)?;
                let body = if incomplete { text::mark_incomplete(body) } else { body };
                let write = Write { key, expect: Expect::Absent, change: Change::Put(body) };
                let committed = match &namespace_seen {
                    Some(seen) => self.store.commit_beside(write, seen.clone()).await,
                    None => self.store.commit(write).await,
                };
                committed.map(|entry| {
                    if let (Some(likeness), Some(tree)) = (sibling.likeness, &tree)
                        && is_new_template
                        && is_as_checked
                    {
                        self.decoded.accept(likeness, &entry, tree);
                    }
                    self.decoded.keep(tree, &entry, None);
                    view::object(resource, &entry)
                })
            };
            match written {
                Ok(object) => return Ok(Written { object, kind: None, created: true, warnings: told }),
                // The namespace was written since it was read. No object may be created in a terminating namespace.
                Err(WriteError::Moved) => namespace_seen = self.admit(target, &called)?,
                Err(WriteError::Conflict(_)) if generated && attempt < NAME_ATTEMPTS => attempt += 1,
                Err(WriteError::Conflict(existing)) => {
                    let mut failure = StatusError::already_exists(resource, &name);
                    if !prefix.is_empty() {
                        // This also applies if the client gave a name as well: kube-apiserver does not check which of
                        // the two was used.
                        failure.message += ", the server was not able to generate a unique name for the object";
                        if let Some(details) = &mut failure.details {
                            details.retry_after_seconds = 1;
                        }
                    }
                    if existing.is_some_and(|entry| is_deleting(&text::parse(&entry.value))) {
                        failure.message.insert_str(0, "object is being deleted: ");
                    }
                    return Err(StatusError { warnings: told, ..failure });
                }
                Err(error) => return Err(refused(error)),
            }
        }
        Err(refused(WriteError::Overloaded))
    }

    /// API-19: objects are created only in a namespace that exists and is not terminating. Returns the namespace as it
    /// was read.
    fn admit(&self, target: Target<'_>, name: &str) -> Result<Option<Entry>> {
        let Target { resource, namespace, .. } = target;
        if !resource.namespaced {
            return Ok(None);
        }
        let Some(entry) = self.store.get(&format!("namespaces/{namespace}")) else {
            let mut failure = StatusError::new(404, "NotFound", format!("namespaces \"{namespace}\" not found"));
            let kind = "namespaces".to_owned();
            let details = tally_api::status_error::Details { name: namespace.to_owned(), kind, ..Default::default() };
            failure.details = Some(details);
            return Err(failure);
        };
        if !text::contains(&entry.value, DELETION) || !is_deleting(&text::parse(&entry.value)) {
            return Ok(Some(entry));
        }
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut failure = StatusError::forbidden(resource, name, &why);
        if let Some(details) = &mut failure.details {
            details.causes.push(Cause {
                reason: "NamespaceTerminating".to_owned(),
                message: format!("namespace {namespace} is being terminated"),
                field: "metadata.namespace".to_owned(),
            });
        }
        Err(failure)
    }

    /// Metadata that the server sets on a new object, whatever the client sent.
    fn give_identity(&self, object: &mut Value) {
        meta::prepare_create(object);
        let metadata = metadata(object);
        metadata.remove("resourceVersion");
        metadata.insert("uid", self.env.new_uid().into());
        metadata.insert("creationTimestamp", self.now().truncated().to_string().into());
    }

    /// CONST-10: five characters after the prefix, which is truncated so that the name is still a label.
    fn generate_name(&self, prefix: &str) -> String {
        let draw = |_| char::from(SUFFIX[self.env.random(SUFFIX.len() as u32) as usize % SUFFIX.len()]);
        meta::generated_name(prefix, &(0..SUFFIX_LENGTH).map(draw).collect::<String>())
    }
}

/// An object of the same template that was created before.
struct Sibling {
    likeness: Option<NonZeroUsize>,
    accepted: Option<Arc<Accepted>>,
    /// The rules find nothing in the new object, because they found nothing in that one.
    is_like: bool,
}

impl Sibling {
    fn find(decoded: &DecodedObjects, resource: &Resource, candidate: &Value) -> Self {
        let rules = resource.rules;
        let likeness = rules.likeness(candidate);
        let accepted = likeness.and_then(|likeness| decoded.accepted(likeness));
        let is_like = accepted.as_ref().is_some_and(|accepted| rules.is_like(candidate, accepted.object()));
        debug_assert!(
            !is_like || rules.validate_create(candidate).is_empty() && rules.create_warnings(candidate).is_empty(),
            "an object that is like a valid one has errors or warnings"
        );
        Self { likeness, accepted, is_like }
    }

    fn entry(&self) -> Option<&Stored> {
        self.accepted.as_ref().map(|accepted| &**accepted.entry())
    }
}

/// The name for messages about an object that may have no name yet.
fn called(object: &Value) -> &str {
    let given = ["/metadata/name", "/metadata/generateName"].map(|pointer| text::text(object, pointer));
    given.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown")
}

const DELETION: &str = "\"deletionTimestamp\"";

pub fn is_deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null())
}

/// The object gets the namespace of the request; an object with a different one is refused.
pub fn take_namespace(resource: &Resource, namespace: &str, object: &mut Value) -> Result<()> {
    let metadata = metadata(object);
    if !resource.namespaced {
        metadata.remove("namespace");
        return Ok(());
    }
    match metadata.get("namespace").and_then(Value::as_str) {
        None | Some("") => {
            metadata.insert("namespace", namespace.into());
            Ok(())
        }
        Some(given) if given == namespace => Ok(()),
        Some(_) => {
            let text = "the namespace of the provided object does not match the namespace sent on the request";
            Err(StatusError::bad_request(text))
        }
    }
}
