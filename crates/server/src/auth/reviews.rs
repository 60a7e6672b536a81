//! Reviews of credentials and permissions. Nothing is stored: the response is the request with its status filled in.

use serde_json::{Value, json};
use tally_api::catalog;
use tally_api::decode::decode_as;
use tally_api::field::At;
use tally_api::kinds::Resource;
use tally_api::options::{FieldValidation, Format, ReadAt};
use tally_api::status_error::{Details, StatusError};
use tally_registry::Target;

use crate::auth::tokens::{ISSUER, TokenGrant};
use crate::auth::{Authenticator, User, access_reviews};
use crate::http::route::ResourcePath;
use crate::objects::RequestContext;

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// Ten minutes: tokens with a shorter lifetime would have to be renewed at intervals at which clock skew matters.
const SHORTEST_TOKEN: i64 = 600;
const LONGEST_TOKEN: i64 = 1 << 32;
const USUAL_TOKEN: i64 = 3600;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewKind {
    /// The identity of the caller.
    SelfSubject,
    /// Whether the caller may do something.
    SelfAccess,
    /// Everything the caller may do in a namespace.
    SelfRules,
    /// Whether another user may do something.
    Access,
    /// Whether another user may do something in the namespace of the review.
    LocalAccess,
    /// The user of a token.
    TokenReview,
    /// A new token for a service account.
    TokenRequest,
}

impl ReviewKind {
    pub fn of(place: &ResourcePath<'_>) -> Option<Self> {
        let subresource = place.subresource.map_or("", |subresource| subresource.name);
        match (place.resource.group, place.resource.plural, subresource) {
            (AUTHENTICATION, "selfsubjectreviews", "") => Some(Self::SelfSubject),
            (AUTHENTICATION, "tokenreviews", "") => Some(Self::TokenReview),
            (AUTHORIZATION, "selfsubjectaccessreviews", "") => Some(Self::SelfAccess),
            (AUTHORIZATION, "selfsubjectrulesreviews", "") => Some(Self::SelfRules),
            (AUTHORIZATION, "subjectaccessreviews", "") => Some(Self::Access),
            (AUTHORIZATION, "localsubjectaccessreviews", "") => Some(Self::LocalAccess),
            ("", "serviceaccounts", "token") => Some(Self::TokenRequest),
            _ => None,
        }
    }

    pub fn answer(self, context: &RequestContext<'_>, body: &[u8], format: Format) -> Result<Value, StatusError> {
        let (group, kind) = match self {
            Self::TokenRequest => (AUTHENTICATION, "TokenRequest"),
            _ => (context.place.resource.group, context.place.resource.kind),
        };
        let mut question = decode_as(group, "v1", kind, body, format, FieldValidation::Ignore)?.object;
        if self == Self::TokenRequest {
            return token(context, question);
        }
        let authorizer = &context.handler.authorizer;
        question["status"] = match self {
            Self::SelfSubject => json!({"userInfo": user_info(context.user)}),
            Self::SelfAccess => access_reviews::own_access(authorizer, context.user, &question)?,
            Self::SelfRules => access_reviews::own_rules(authorizer, context.user, &question)?,
            Self::Access => access_reviews::access(authorizer, &question)?,
            Self::LocalAccess => access_reviews::local_access(authorizer, &context.place.namespace, &question)?,
            _ => {
                let token = question.pointer("/spec/token").and_then(Value::as_str).unwrap_or_default();
                let audiences = audiences(&At::root(&question).at("spec"));
                match authenticator(context)?.bearer(token, &audiences, context.registry()) {
                    Some((user, meant)) => {
                        json!({"authenticated": true, "user": user_info(&user), "audiences": meant})
                    }
                    None => json!({"user": {}, "error": "invalid bearer token"}),
                }
            }
        };
        Ok(question)
    }
}

fn authenticator<'a>(context: &RequestContext<'a>) -> Result<&'a Authenticator, StatusError> {
    let missing = || StatusError::new(503, "ServiceUnavailable", "this server has no tokens");
    context.handler.authenticator.as_ref().ok_or_else(missing)
}

fn user_info(user: &User) -> Value {
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        info["uid"] = user.uid.as_str().into();
    }
    info
}

fn token(context: &RequestContext<'_>, mut request: Value) -> Result<Value, StatusError> {
    let (namespace, name) = (&*context.place.namespace, &*context.place.name);
    let account = find(context, context.place.resource, name)?;
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
    let bound = bound_object(context, &spec.at("boundObjectRef"))?;
    let now = context.registry().now();
    let grant = TokenGrant {
        namespace,
        name,
        uid,
        audiences: &audiences,
        issued_at: now.seconds(),
        expires_at: now.seconds().saturating_add(lasts),
        bound_to: bound.as_ref().map(|(kind, name, uid)| (*kind, name.as_str(), uid.as_str())),
    };
    let issued = authenticator(context)?.tokens.issue(&grant);
    let token = issued.map_err(|error| StatusError::internal(error.to_string()))?;
    let expires = tally_core::time::Timestamp::from_seconds(grant.expires_at);
    request["metadata"] =
        json!({"name": name, "namespace": namespace, "creationTimestamp": now.truncated().to_string()});
    request["spec"]["audiences"] = json!(audiences);
    request["spec"]["expirationSeconds"] = lasts.into();
    request["status"] = json!({"token": token, "expirationTimestamp": expires.to_string()});
    Ok(request)
}

/// The audiences of a token, or those to check it for: this server, unless the request names others.
fn audiences(spec: &At<'_, '_>) -> Vec<String> {
    let named: Vec<String> = spec.at("audiences").list().iter().filter_map(Value::as_str).map(str::to_owned).collect();
    if named.is_empty() { vec![ISSUER.to_owned()] } else { named }
}

fn find(context: &RequestContext<'_>, resource: &'static Resource, name: &str) -> Result<Value, StatusError> {
    let namespace = if resource.namespaced { &*context.place.namespace } else { "" };
    Ok(context.registry().get(Target::new(resource, namespace, name), ReadAt::Newest)?.parse())
}

/// The object that the token is bound to: its key in the claims, its name and its UID.
fn bound_object(
    context: &RequestContext<'_>,
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
    let object = find(context, resource, &name)?;
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
