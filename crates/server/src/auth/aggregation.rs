//! Writes the rules of aggregating ClusterRoles into them, so that clients see what the roles contain. Authorization does
//! not depend on it: it computes these rules itself (RBAC-5).

use tally_api::catalog;
use tally_api::kinds::Resource;
use tally_api::options::{Format, ListOptions, WatchOptions, WriteOptions};
use tally_api::rbac::{self, PolicyRule};
use tally_registry::{Registry, Target, WatchEvent};
use tally_value::{Value, json};
use tokio::sync::watch;
use tokio::time::{Duration, sleep};

use crate::auth::authorizer::Authorizer;

/// Changes that come together are written together.
const QUIET_FOR: Duration = Duration::from_millis(100);
/// After a failure of the stream or of a write.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

fn cluster_roles() -> Option<&'static Resource> {
    catalog::find(rbac::GROUP, "v1", "clusterroles")
}

/// Follows the ClusterRoles until the server stops.
pub async fn keep_aggregated(registry: &Registry, authorizer: &Authorizer, mut stopping: watch::Receiver<bool>) {
    tokio::select! {
        _ = stopping.wait_for(|stopping| *stopping) => {}
        () = follow(registry, authorizer) => {}
    }
}

async fn follow(registry: &Registry, authorizer: &Authorizer) {
    let Some(resource) = cluster_roles() else { return };
    loop {
        let options = WatchOptions { from: Some(registry.revision()), ..WatchOptions::default() };
        let Ok(mut stream) = registry.watch(Target::new(resource, "", ""), &options) else { return };
        // What changed before the stream began.
        write_aggregated(registry, authorizer).await;
        loop {
            match stream.next().await {
                Some(WatchEvent::Failed(_)) | None => break,
                Some(_) => {}
            }
            sleep(QUIET_FOR).await;
            while stream.try_next().is_some() {}
            write_aggregated(registry, authorizer).await;
        }
        sleep(AGAIN_AFTER).await;
    }
}

/// Writes the rules of each aggregating role that has others. A role that changes meanwhile is written when the stream
/// shows the change.
pub async fn write_aggregated(registry: &Registry, authorizer: &Authorizer) {
    let Some(resource) = cluster_roles() else { return };
    let Ok(listing) = registry.list(Target::new(resource, "", ""), &ListOptions::default()) else { return };
    for object in &listing.items {
        let mut role = object.parse();
        let name = role.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !role.get("aggregationRule").is_some_and(Value::is_object) {
            continue;
        }
        let rules = authorizer.with_policy(|policy| policy.cluster_role(&name).map(<[PolicyRule]>::to_vec));
        let Some(rules) = rules.filter(|rules| *rules != PolicyRule::read_all(role.get("rules"))) else { continue };
        role["rules"] = json!(rules.iter().map(PolicyRule::to_json).collect::<Vec<_>>());
        let target = Target::new(resource, "", &name);
        // A conflict means that the role was changed: the stream shows that, and it is looked at again.
        let _ = registry.update(target, role.to_string().as_bytes(), Format::Json, &WriteOptions::default()).await;
    }
}
