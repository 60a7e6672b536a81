//! Reviews of credentials and permissions. Nothing is stored: the response is the request with its status filled in.

use tally_api::decode::decode_as;
use tally_api::field::At;
use tally_api::options::{FieldValidation, Format};
use tally_api::status_error::StatusError;
use tally_registry::TokenIssuer;
use tally_value::{Value, json};

use crate::auth::token_requests::audiences;
use crate::auth::{Authenticator, User, access_reviews};
use crate::http::route::ResourcePath;
use crate::objects::RequestContext;

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

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
            let (namespace, name) = (&*context.place.namespace, &*context.place.name);
            return authenticator(context)?.tokens.issue(context.registry(), namespace, name, question);
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
