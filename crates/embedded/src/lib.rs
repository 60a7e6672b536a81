//! The registry of the same process as the API of the controllers: the requests that they would send over HTTP, without
//! sockets.

mod api;

use tally_api::catalog;
use tally_api::decode::Sent;
use tally_api::kinds::Resource;
use tally_api::options::{DeleteOptions, FieldValidation, Format, ListOptions, PatchKind, ReadAt, WriteOptions};
use tally_api::status_error::StatusError;
use tally_core::ids::Revision;
use tally_registry::{Deleted, Registry, Target};
use tally_runtime::controller::{Body, Call, Kind, Refusal, Reply, Verb};

pub use api::Embedded;

/// None: the embedded cluster does not serve it.
pub fn resource(kind: Kind) -> Option<&'static Resource> {
    catalog::find(kind.group, kind.version, kind.plural)
}

/// The kinds that are stored: each once, although some are served in two ways.
pub fn kinds() -> Vec<Kind> {
    let mut storages = std::collections::BTreeSet::new();
    let kept = catalog::resources().iter().filter(|resource| !catalog::is_virtual(resource));
    kept.filter(|resource| storages.insert(resource.storage))
        .map(|resource| {
            Kind::new(resource.group, resource.version, resource.kind, resource.plural, resource.namespaced)
        })
        .collect()
}

/// Carries out one request.
pub async fn perform(registry: &Registry, call: &Call) -> Reply {
    match outcome(registry, call).await {
        Ok(reply) => reply,
        Err(failure) => Reply::Refused(refusal(failure)),
    }
}

async fn outcome(registry: &Registry, call: &Call) -> Result<Reply, StatusError> {
    let unserved = || StatusError::new(404, "NotFound", "the server could not find the requested resource");
    let resource = resource(call.kind).ok_or_else(unserved)?;
    let subresource = if call.subresource.is_empty() {
        None
    } else {
        Some(resource.subresource(call.subresource).ok_or_else(unserved)?)
    };
    let target = Target { resource, subresource, namespace: &call.namespace, name: &call.name };
    // Controllers read no warnings of the API server.
    let options = WriteOptions { field_validation: FieldValidation::Ignore, ..WriteOptions::default() };
    let body = match &call.body {
        Body::Text(text) => Sent::Text(text),
        Body::Tree(tree) => Sent::Tree(tree),
    };
    let object = match call.verb {
        Verb::Create => registry.create(target, body, Format::Json, &options).await?.object,
        Verb::Get => registry.get(target, ReadAt::Newest)?,
        Verb::Update => registry.update(target, body, Format::Json, &options).await?.object,
        Verb::MergePatch => registry.patch(target, body, PatchKind::Merge, &options).await?.object,
        Verb::StrategicPatch => registry.patch(target, body, PatchKind::Strategic, &options).await?.object,
        Verb::Delete => match registry.delete(target, &delete_options(body)?).await? {
            Deleted::Object(object) => object,
            Deleted::Status { .. } => return Ok(Reply::DoneWithStatus),
        },
        Verb::List => {
            let options = ListOptions { label_selector: call.label_selector.clone(), ..ListOptions::default() };
            let listing = registry.list(target, &options)?;
            let items = listing.items;
            return Ok(Reply::Listed { items, at: Revision(listing.revision) });
        }
        Verb::DeleteCollection => {
            let selected = ListOptions { label_selector: call.label_selector.clone(), ..ListOptions::default() };
            registry.delete_collection(target, &selected, &delete_options(body)?).await?;
            return Ok(Reply::DoneWithStatus);
        }
    };
    Ok(Reply::Done(object))
}

fn delete_options(body: Sent<'_>) -> Result<DeleteOptions, StatusError> {
    match body {
        Sent::Text([]) => Ok(DeleteOptions::default()),
        Sent::Text(text) => {
            let tree = serde_json::from_slice(text).map_err(|error| StatusError::bad_request(error.to_string()))?;
            DeleteOptions::of_body(&tree)
        }
        Sent::Tree(tree) => DeleteOptions::of_body(tree),
    }
}

fn refusal(failure: StatusError) -> Refusal {
    let causes = failure.details.map(|details| details.causes).unwrap_or_default();
    Refusal {
        code: failure.code,
        reason: failure.reason.to_owned(),
        message: failure.message,
        causes: causes.into_iter().map(|cause| (cause.field, cause.reason)).collect(),
    }
}
