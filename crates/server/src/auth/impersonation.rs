//! Requests in the name of another user (RBAC-11): `kubectl --as`.
//!
//! The headers are never ignored: a request that would run as its sender, although the sender asked for the rights of
//! another user, could do what it was not meant to.

use std::sync::Arc;

use hyper::header::HeaderMap;
use tally_api::rbac::{AccessRequest, ResourceAttributes};
use tally_api::status_error::StatusError;

use crate::auth::access::refusal;
use crate::auth::authorizer::{Authorizer, Verdict};
use crate::auth::{SERVICE_ACCOUNTS, User};

const PREFIX: &str = "impersonate-";
const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";

/// Each group is a question to the authorizer.
const MOST_GROUPS: usize = 64;

/// Who a request wants to be.
#[derive(Debug, Default, PartialEq, Eq)]
struct WantedUser {
    name: String,
    groups: Vec<String>,
    uid: String,
}

/// The user to act as, if the request asks for another than its sender and the sender may do that.
pub fn impersonated(
    authorizer: &Authorizer,
    sender: &User,
    headers: &HeaderMap,
) -> Result<Option<Arc<User>>, StatusError> {
    let Some(wanted) = wanted(headers)? else { return Ok(None) };
    for attributes in wanted.attributes() {
        let request = AccessRequest::resource("impersonate", attributes);
        if let Verdict::Denied { reason } = authorizer.decide(sender, &request) {
            return Err(refusal(sender, &request, &reason));
        }
    }
    Ok(Some(Arc::new(wanted.user())))
}

fn wanted(headers: &HeaderMap) -> Result<Option<WantedUser>, StatusError> {
    let mut wanted = WantedUser::default();
    let mut any = false;
    for (name, value) in headers {
        let name = name.as_str();
        if !name.starts_with(PREFIX) {
            continue;
        }
        any = true;
        let unreadable = |_| StatusError::bad_request(format!("the header {name} is not text"));
        let value = value.to_str().map_err(unreadable)?.to_owned();
        match name {
            USER if wanted.name.is_empty() => wanted.name = value,
            UID if wanted.uid.is_empty() => wanted.uid = value,
            GROUP => wanted.groups.push(value),
            USER | UID => return Err(StatusError::bad_request(format!("the header {name} is there twice"))),
            _ => {
                let text = format!("the header {name} is not supported: a user, groups and a UID can be impersonated");
                return Err(StatusError::bad_request(text));
            }
        }
    }
    if any && wanted.name.is_empty() {
        let text = "the header impersonate-user is missing: groups and a UID can be impersonated with a user only";
        return Err(StatusError::bad_request(text));
    }
    if wanted.groups.len() > MOST_GROUPS {
        return Err(StatusError::bad_request(format!("more than {MOST_GROUPS} headers {GROUP}")));
    }
    Ok(any.then_some(wanted))
}

impl WantedUser {
    /// Namespace and name, if the user is a service account.
    fn service_account(&self) -> Option<(&str, &str)> {
        let (namespace, name) = self.name.strip_prefix("system:serviceaccount:")?.split_once(':')?;
        (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
    }

    /// What the sender must be allowed to impersonate.
    fn attributes(&self) -> Vec<ResourceAttributes<'_>> {
        let user = match self.service_account() {
            Some((namespace, name)) => {
                ResourceAttributes { resource: "serviceaccounts", namespace, name, ..ResourceAttributes::default() }
            }
            None => ResourceAttributes { resource: "users", name: &self.name, ..ResourceAttributes::default() },
        };
        let mut all = vec![user];
        for group in &self.groups {
            all.push(ResourceAttributes { resource: "groups", name: group, ..ResourceAttributes::default() });
        }
        if !self.uid.is_empty() {
            let group = "authentication.k8s.io";
            all.push(ResourceAttributes { group, resource: "uids", name: &self.uid, ..ResourceAttributes::default() });
        }
        all
    }

    fn user(self) -> User {
        let mut groups = self.groups.clone();
        if let Some((namespace, _)) = self.service_account().filter(|_| self.groups.is_empty()) {
            groups = vec![SERVICE_ACCOUNTS.to_owned(), format!("{SERVICE_ACCOUNTS}:{namespace}")];
        }
        if self.name == User::ANONYMOUS {
            return User { name: self.name, uid: self.uid, groups: User::anonymous().groups };
        }
        groups.retain(|group| group != crate::auth::AUTHENTICATED);
        User::new(self.name, self.uid, groups)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn check(headers: &[(&'static str, &str)], expected: Result<Option<(&str, &[&str])>, &str>) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let found = wanted(&map).map(|wanted| wanted.map(WantedUser::user)).map_err(|failure| failure.message);
        let shown = |user: &User| (user.name.clone(), user.groups.clone());
        let expected = expected.map(|user| {
            user.map(|(name, groups)| (name.to_owned(), groups.iter().map(|group| (*group).to_owned()).collect()))
        });
        assert_eq!(found.map(|user| user.as_ref().map(shown)), expected.map_err(str::to_owned), "{headers:?}");
    }

    /// RBAC-11.
    #[test]
    fn the_headers_say_who_a_request_wants_to_be() {
        check(&[("accept", "x")], Ok(None));
        check(&[(USER, "u")], Ok(Some(("u", &["system:authenticated"]))));
        check(&[(USER, "u"), (GROUP, "g"), (GROUP, "h")], Ok(Some(("u", &["g", "h", "system:authenticated"]))));
        check(
            &[(USER, "system:serviceaccount:n:s")],
            Ok(Some((
                "system:serviceaccount:n:s",
                &["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"],
            ))),
        );
        check(&[(USER, "system:anonymous")], Ok(Some(("system:anonymous", &["system:unauthenticated"]))));
        let alone = "the header impersonate-user is missing: groups and a UID can be impersonated with a user only";
        check(&[(GROUP, "system:masters")], Err(alone));
        check(&[(USER, ""), (GROUP, "system:masters")], Err(alone));
        check(&[(USER, "a"), (USER, "b")], Err("the header impersonate-user is there twice"));
        check(&[(USER, "a"), ("impersonate-extra-x", "b")], {
            Err("the header impersonate-extra-x is not supported: a user, groups and a UID can be impersonated")
        });
    }
}
