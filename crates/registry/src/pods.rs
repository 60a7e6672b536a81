//! The verbs that only Pods have: binding to a node, and eviction.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use tally_api::decode::{Sent, decode_as};
use tally_api::kinds::{ClusterObjects, Resource};
use tally_api::options::{DeleteOptions, Format, Propagation, WriteOptions};
use tally_api::status_error::StatusError;
use tally_api::{catalog, pod};
use tally_core::gates::Gate;
use tally_store::{Change, Entry, Expect, Write, WriteError};
use tally_value::Value;

use crate::create::take_namespace;
use crate::delete::check_preconditions;
use crate::{MOST_ROUNDS, Registry, Result, Target, Written, decoded, refused, text};

impl Registry {
    /// Assigns a Pod to a node. The legacy collection `bindings` takes the Pod's name from the body.
    pub(crate) async fn bind(
        &self,
        target: Target<'_>,
        body: Sent<'_>,
        format: Format,
        options: &WriteOptions,
    ) -> Result<Written> {
        let decoded = decode_as("", "v1", "Binding", body, format, options.field_validation)?;
        let mut binding = decoded.object;
        take_namespace(pods()?, target.namespace, &mut binding)?;
        let named = text::text(&binding, "/metadata/name");
        let name = if target.name.is_empty() { named } else { target.name };
        if named != name {
            return Err(StatusError::bad_request("name in URL does not match name in Binding object"));
        }
        pod::validate_binding(&binding)?;
        let now = self.now();
        let pod = Target::new(pods()?, target.namespace, name);
        self.change_pod(pod, options.dry_run, |_, object| pod::bind(object, &binding, now)).await?;
        Ok(success(decoded.warnings))
    }

    /// API-22: if its disruption budget allows it, adds the condition `DisruptionTarget` to the Pod and deletes it.
    pub(crate) async fn evict(
        &self,
        target: Target<'_>,
        body: Sent<'_>,
        format: Format,
        options: &WriteOptions,
    ) -> Result<Written> {
        let decoded = decode_as("policy", "v1", "Eviction", body, format, options.field_validation)?;
        let mut eviction = decoded.object;
        take_namespace(target.resource, target.namespace, &mut eviction)?;
        if text::text(&eviction, "/metadata/name") != target.name {
            return Err(StatusError::bad_request("name in URL does not match name in Eviction object"));
        }
        let mut asked = delete_options(&eviction, options.dry_run);
        let pod = Target { subresource: None, ..target };
        let now = self.now();
        let entry = self.store.get(&pod.key()).ok_or_else(|| StatusError::not_found(pod.resource, pod.name))?;
        let seen = text::parse(&entry.value);
        if counts_for_budgets(&seen) {
            let sound = || check_preconditions(&pod, &asked, &entry, &seen);
            self.ask_budgets(&pod, &seen, asked.dry_run, sound).await?;
        }
        // The Pod that the budget allowed to be evicted is marked and deleted, not one that has taken its name since.
        asked.precondition_uid.get_or_insert_with(|| text::text(&seen, "/metadata/uid").to_owned());
        self.change_pod(pod, asked.dry_run, |entry, object| {
            check_preconditions(&pod, &asked, entry, object)?;
            if self.gates.enabled(Gate::PodDisruptionConditions) {
                pod::add_disruption_target(object, now);
            }
            Ok(())
        })
        .await?;
        // The requested revision was that of the Pod before it was marked.
        asked.precondition_resource_version = None;
        self.delete(pod, &asked).await?;
        Ok(success(decoded.warnings))
    }

    async fn change_pod(
        &self,
        target: Target<'_>,
        dry_run: bool,
        change: impl Fn(&Entry, &mut Value) -> Result<()>,
    ) -> Result<()> {
        let key = target.key();
        for _ in 0..MOST_ROUNDS {
            let entry = self.store.get(&key).ok_or_else(|| StatusError::not_found(target.resource, target.name))?;
            let old = decoded::value(&entry);
            let mut new = old.clone();
            change(&entry, &mut new)?;
            if dry_run || new == old {
                return Ok(());
            }
            let (body, tree) = decoded::body(new, Some(&entry));
            let change = Change::Put(body);
            match self.store.commit(Write { key: key.clone(), expect: Expect::At(entry.revision), change }).await {
                Ok(written) => {
                    self.decoded.keep(tree, &written, Some(&entry));
                    return Ok(());
                }
                Err(WriteError::Conflict(_)) => {}
                Err(error) => return Err(refused(error)),
            }
        }
        Err(StatusError::modified(target.resource, target.name))
    }
}

const PRIORITY_CLASSES: &str = "priorityclasses/";

impl ClusterObjects for Registry {
    fn priority_class(&self, name: &str) -> Option<Value> {
        self.store.get(&format!("{PRIORITY_CLASSES}{name}")).map(|entry| text::parse(&entry.value))
    }

    fn default_priority_class(&self) -> Option<Value> {
        let classes = self.store.range(PRIORITY_CLASSES, None, None, None).ok()?.entries;
        classes.iter().map(|entry| text::parse(&entry.value)).find(|class| class["globalDefault"] == true)
    }

    fn has_service_account(&self, namespace: &str, name: &str) -> bool {
        self.store.get(&format!("serviceaccounts/{namespace}/{name}")).is_some()
    }

    fn provisions_claims(&self) -> bool {
        self.provisions_claims.load(Ordering::Relaxed)
    }
}

fn pods() -> Result<&'static Resource> {
    catalog::find("", "v1", "pods").ok_or_else(|| StatusError::internal("pods are not served"))
}

/// The eviction of Pods that do not run, or are being deleted, is not a disruption.
fn counts_for_budgets(pod: &Value) -> bool {
    let phase = text::text(pod, "/status/phase");
    !matches!(phase, "Succeeded" | "Failed" | "Pending") && !crate::create::is_deleting(pod)
}

fn delete_options(eviction: &Value, dry_run: bool) -> DeleteOptions {
    let at = |pointer: &str| eviction.pointer(pointer);
    let words = |pointer: &str| at(pointer).and_then(Value::as_str).map(str::to_owned);
    let propagation = match words("/deleteOptions/propagationPolicy").as_deref() {
        Some("Foreground") => Some(Propagation::Foreground),
        Some("Orphan") => Some(Propagation::Orphan),
        Some("Background") => Some(Propagation::Background),
        _ => None,
    };
    DeleteOptions {
        dry_run: dry_run || at("/deleteOptions/dryRun").and_then(Value::as_array).is_some_and(|list| !list.is_empty()),
        grace_period_seconds: at("/deleteOptions/gracePeriodSeconds").and_then(Value::as_i64),
        propagation,
        orphan_dependents: at("/deleteOptions/orphanDependents").and_then(Value::as_bool),
        precondition_uid: words("/deleteOptions/preconditions/uid"),
        precondition_resource_version: words("/deleteOptions/preconditions/resourceVersion"),
    }
}

fn success(warnings: Vec<String>) -> Written {
    let bytes = Bytes::from_static(br#"{"metadata":{},"status":"Success","code":201}"#);
    Written { object: bytes.into(), kind: Some(("v1", "Status")), created: true, warnings }
}
