//! The roles and bindings that every cluster has: created at the start if they are missing, and completed if they lack
//! something (RBAC-12, RBAC-13).

use std::sync::Arc;

use tally_api::catalog;
use tally_api::kinds::Resource;
use tally_api::options::{DeleteOptions, Format, ReadAt, WriteOptions};
use tally_api::rbac::{self, builtin};
use tally_api::status_error::StatusError;
use tally_registry::{Registry, Target};
use tally_value::Value;

use crate::auth::aggregation;
use crate::auth::authorizer::Authorizer;

/// Brings the built-in roles and bindings to what they should be. The history starts after them.
pub async fn install_roles(registry: &Arc<Registry>) -> Result<(), StatusError> {
    let wanted =
        [("clusterroles", builtin::cluster_roles()), ("clusterrolebindings", builtin::cluster_role_bindings())];
    for (plural, objects) in wanted {
        let resource = catalog::find(rbac::GROUP, "v1", plural)
            .ok_or_else(|| StatusError::internal(format!("no {plural} served")))?;
        let installs = objects.iter().map(|object| install(registry, resource, object));
        futures_util::future::try_join_all(installs).await?;
    }
    aggregation::write_aggregated(registry, &Authorizer::new(registry.clone())).await;
    registry.start_history();
    Ok(())
}

async fn install(registry: &Registry, resource: &'static Resource, wanted: &Value) -> Result<(), StatusError> {
    let name = wanted.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let target = Target::new(resource, "", name);
    let options = WriteOptions::default();
    let stored = match registry.get(target, ReadAt::Newest) {
        Ok(object) => object.parse(),
        Err(failure) if failure.reason == "NotFound" => return create(registry, resource, wanted).await,
        Err(failure) => return Err(failure),
    };
    let Some(restored) = builtin::restored(&stored, wanted) else { return Ok(()) };
    if wanted.get("roleRef") != stored.get("roleRef") {
        // The role of a binding cannot be changed.
        registry.delete(target, &DeleteOptions::default()).await?;
        return create(registry, resource, wanted).await;
    }
    registry.update(target, restored.to_string().as_bytes(), Format::Json, &options).await.map(|_| ())
}

async fn create(registry: &Registry, resource: &'static Resource, wanted: &Value) -> Result<(), StatusError> {
    let target = Target::new(resource, "", "");
    registry.create(target, wanted.to_string().as_bytes(), Format::Json, &WriteOptions::default()).await.map(|_| ())
}
