//! Service account tokens: JSON Web Tokens, signed with ES256.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use tally_api::catalog;
use tally_api::kinds::Resource;
use tally_api::options::ReadAt;
use tally_registry::{Registry, Target};
use tally_value::{Value, json};

use crate::auth::{SERVICE_ACCOUNTS, User};
use crate::env;

/// The issuer of service account tokens, and their audience unless the request names others.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// A longer text is not a token of this server and is not decoded.
const LONGEST_TOKEN: usize = 8 * 1024;

pub struct Tokens {
    key: EcdsaKeyPair,
    random: SystemRandom,
}

/// The content of a token.
pub struct TokenGrant<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    pub audiences: &'a [String],
    pub issued_at: i64,
    pub expires_at: i64,
    /// Kind (`pod`, `secret`, `node`), name and UID of an object; the token is invalid once the object is gone.
    pub bound_to: Option<(&'a str, &'a str, &'a str)>,
}

/// Why tokens cannot be issued.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("{0}")]
    Key(ring::error::KeyRejected),
    #[error("cannot sign a token")]
    Sign,
}

impl Tokens {
    /// `key` is PKCS#8.
    pub fn new(key: &[u8]) -> Result<Self, TokenError> {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key, &random).map_err(TokenError::Key)?;
        Ok(Self { key, random })
    }

    pub fn sign(&self, grant: &TokenGrant<'_>) -> Result<String, TokenError> {
        let (namespace, name) = (grant.namespace, grant.name);
        let mut claims = json!({
            "aud": grant.audiences, "iss": ISSUER, "sub": format!("system:serviceaccount:{namespace}:{name}"),
            "iat": grant.issued_at, "nbf": grant.issued_at, "exp": grant.expires_at, "jti": env::uuid(),
            "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": grant.uid}},
        });
        if let Some((kind, name, uid)) = grant.bound_to {
            claims["kubernetes.io"][kind] = json!({"name": name, "uid": uid});
        }
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(json!({"alg": "ES256", "typ": "JWT"})), part(claims));
        let signature = self.key.sign(&self.random, signed.as_bytes()).map_err(|_| TokenError::Sign)?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The service account of this token, and which of `audiences` it is for, if the token is valid now and its account
    /// and the object it is bound to still exist.
    pub fn user(&self, token: &str, audiences: &[String], registry: &Registry) -> Option<(User, Vec<String>)> {
        let claims = self.claims(token)?;
        let now = registry.now().seconds();
        let time = |name: &str| claims.get(name).and_then(Value::as_i64);
        let named = claims.get("aud")?.as_array()?;
        let meant: Vec<String> =
            audiences.iter().filter(|audience| named.iter().any(|name| name == *audience)).cloned().collect();
        if claims.get("iss")? != ISSUER || meant.is_empty() || now < time("nbf")? || now >= time("exp")? {
            return None;
        }
        let about = claims.get("kubernetes.io")?;
        let namespace = about.get("namespace")?.as_str()?;
        let named = |kind: &str| -> Option<(&str, &str)> {
            let object = about.get(kind)?;
            Some((object.get("name")?.as_str()?, object.get("uid")?.as_str()?))
        };
        let (name, uid) = named("serviceaccount")?;
        for (kind, plural) in
            [("serviceaccount", "serviceaccounts"), ("pod", "pods"), ("secret", "secrets"), ("node", "nodes")]
        {
            if about.get(kind).is_some() {
                let (name, uid) = named(kind)?;
                let resource = catalog::find("", "v1", plural)?;
                if uid_of(registry, resource, namespace, name)? != uid {
                    return None;
                }
            }
        }
        let groups = vec![SERVICE_ACCOUNTS.to_owned(), format!("{SERVICE_ACCOUNTS}:{namespace}")];
        Some((User::new(format!("system:serviceaccount:{namespace}:{name}"), uid.to_owned(), groups), meant))
    }

    /// The claims of a token, if this server signed it.
    fn claims(&self, token: &str) -> Option<Value> {
        if token.len() > LONGEST_TOKEN {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        let header: Value = serde_json::from_slice(&decode(header)?).ok()?;
        if header.get("alg")? != "ES256" {
            return None;
        }
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref());
        key.verify(signed.as_bytes(), &decode(signature)?).ok()?;
        serde_json::from_slice(&decode(claims)?).ok()
    }
}

/// The UID of an object, if it exists.
pub fn uid_of(registry: &Registry, resource: &'static Resource, namespace: &str, name: &str) -> Option<String> {
    let namespace = if resource.namespaced { namespace } else { "" };
    let target = Target { resource, subresource: None, namespace, name };
    let object = registry.get(target, ReadAt::Newest).ok()?;
    let object: Value = serde_json::from_slice(&object.bytes).ok()?;
    Some(object.pointer("/metadata/uid")?.as_str()?.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn tokens() -> Tokens {
        Tokens::new(&rcgen::KeyPair::generate().unwrap().serialize_der()).unwrap()
    }

    #[test]
    fn only_what_we_signed_is_read() {
        let (ours, theirs) = (tokens(), tokens());
        let audiences = [ISSUER.to_owned()];
        let grant = TokenGrant {
            namespace: "n",
            name: "s",
            uid: "u",
            audiences: &audiences,
            issued_at: 1,
            expires_at: 2,
            bound_to: Some(("pod", "p", "v")),
        };
        let token = ours.sign(&grant).unwrap();
        let claims = ours.claims(&token).unwrap();
        assert_eq!(claims["sub"], "system:serviceaccount:n:s");
        assert_eq!(claims["kubernetes.io"]["pod"], json!({"name": "p", "uid": "v"}));
        assert!(theirs.claims(&token).is_none());

        let (signed, signature) = token.rsplit_once('.').unwrap();
        let (header, body) = signed.split_once('.').unwrap();
        let forged = URL_SAFE_NO_PAD.encode(json!({"sub": "admin"}).to_string());
        let unsigned = URL_SAFE_NO_PAD.encode(json!({"alg": "none"}).to_string());
        for bad in [
            format!("{header}.{forged}.{signature}"),
            format!("{unsigned}.{body}."),
            format!("{unsigned}.{body}.{signature}"),
            format!("{signed}."),
            signed.to_owned(),
            String::new(),
            "..".to_owned(),
            format!("{token}{}", "x".repeat(LONGEST_TOKEN)),
        ] {
            assert!(ours.claims(&bad).is_none(), "{bad}");
        }
    }
}
