//! TokenRequests: new tokens for service accounts, for clients and for the Pods of the node.

use tally_api::catalog;
use tally_api::field::At;
use tally_api::kinds::Resource;
use tally_api::options::ReadAt;
use tally_api::status_error::{Details, StatusError};
use tally_registry::{Registry, Target, TokenIssuer};
use tally_value::{Value, json};

use crate::auth::tokens::{ISSUER, TokenGrant, Tokens};

const AUTHENTICATION: &str = "authentication.k8s.io";

/// Ten minutes: tokens with a shorter lifetime would have to be renewed at intervals at which clock skew matters.
const SHORTEST_TOKEN: i64 = 600;
const LONGEST_TOKEN: i64 = 1 << 32;
const USUAL_TOKEN: i64 = 3600;

impl TokenIssuer for Tokens {
    fn issue(
        &self,
        registry: &Registry,
        namespace: &str,
        name: &str,
        mut request: Value,
    ) -> Result<Value, StatusError> {
        let accounts =
            catalog::find("", "v1", "serviceaccounts").ok_or_else(|| StatusError::internal("no such resource"))?;
        let account = find(registry, accounts, namespace, name)?;
        let uid = account.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        let root = At::root(&request);
        let spec = root.at("spec");
        let seconds = spec.at("expirationSeconds");
        let lasts = seconds.int().filter(|seconds| *seconds != 0).unwrap_or(USUAL_TOKEN);
        let wrong = if lasts < SHORTEST_TOKEN {
            Some("may not specify a duration less than 10 minutes")
        } else if lasts > LONGEST_TOKEN {
            Some("may not specify a duration larger than 2^32 seconds")
        } else {
            None
        };
        if let Some(why) = wrong {
            let error = seconds.invalid_value(lasts, why);
            return Err(StatusError::invalid(AUTHENTICATION, "TokenRequest", "", &[error]));
        }
        let audiences = audiences(&spec);
        let bound = bound_object(registry, namespace, &spec.at("boundObjectRef"))?;
        let now = registry.now();
        let grant = TokenGrant {
            namespace,
            name,
            uid,
            audiences: &audiences,
            issued_at: now.seconds(),
            expires_at: now.seconds().saturating_add(lasts),
            bound_to: bound.as_ref().map(|(kind, name, uid)| (*kind, name.as_str(), uid.as_str())),
        };
        let issued = self.sign(&grant);
        let token = issued.map_err(|error| StatusError::internal(error.to_string()))?;
        let expires = tally_core::time::Timestamp::from_seconds(grant.expires_at);
        request["metadata"] =
            json!({"name": name, "namespace": namespace, "creationTimestamp": now.truncated().to_string()});
        request["spec"]["audiences"] = json!(audiences);
        request["spec"]["expirationSeconds"] = lasts.into();
        request["status"] = json!({"token": token, "expirationTimestamp": expires.to_string()});
        Ok(request)
    }
}

/// The audiences of a token, or those to check it for: this server, unless the request names others.
pub fn audiences(spec: &At<'_, '_>) -> Vec<String> {
    let named: Vec<String> = spec.at("audiences").list().iter().filter_map(Value::as_str).map(str::to_owned).collect();
    if named.is_empty() { vec![ISSUER.to_owned()] } else { named }
}

fn find(registry: &Registry, resource: &'static Resource, namespace: &str, name: &str) -> Result<Value, StatusError> {
    let namespace = if resource.namespaced { namespace } else { "" };
    Ok(registry.get(Target::new(resource, namespace, name), ReadAt::Newest)?.parse())
}

/// The object that the token is bound to: its key in the claims, its name and its UID.
fn bound_object(
    registry: &Registry,
    namespace: &str,
    reference: &At<'_, '_>,
) -> Result<Option<(&'static str, String, String)>, StatusError> {
    if !reference.is_set() {
        return Ok(None);
    }
    let [version, kind, name, uid] =
        ["apiVersion", "kind", "name", "uid"].map(|field| reference.at(field).text_or_empty().to_owned());
    let (claim, plural) = match (version.as_str(), kind.as_str()) {
        ("v1" | "", "Pod") => ("pod", "pods"),
        ("v1" | "", "Secret") => ("secret", "secrets"),
        ("v1" | "", "Node") => ("node", "nodes"),
        _ => {
            let text = format!("cannot bind token to object of type {kind:?}");
            return Err(StatusError::bad_request(text));
        }
    };
    let resource = catalog::find("", "v1", plural).ok_or_else(|| StatusError::internal("no such resource"))?;
    let object = find(registry, resource, namespace, &name)?;
    let found = object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
    if !uid.is_empty() && uid != found {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        );
        return Err(StatusError::conflict(resource, &name, &why).with(Details::of(resource, &name)));
    }
    Ok(Some((claim, name, found.to_owned())))
}
