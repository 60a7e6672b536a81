//! Authentication of clients, and what they may do.
//!
//! A client authenticates with a certificate of the server's authority or with a bearer token. TLS requests a
//! certificate and verifies that the client has its key, but leaves the verification of the certificate to
//! [`Authenticator::peer`]. So a client with an expired or foreign certificate gets a 401 that it can print, instead of losing
//! its connection for a reason it cannot see.

pub mod access;
pub mod access_reviews;
pub mod aggregation;
pub mod authorizer;
pub mod clients;
pub mod escalation;
pub mod files;
pub mod impersonation;
pub mod kubeconfig;
pub mod pki;
pub mod reviews;
pub mod roles;
pub mod token_requests;
pub mod tokens;

use std::fmt;
use std::sync::Arc;

use hyper::header::{AUTHORIZATION, HeaderMap};
use ring::hmac;
use ring::rand::SystemRandom;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use tally_api::rbac::{MASTERS, Requester};
use tally_registry::Registry;

use crate::Pki;
use crate::auth::tokens::{ISSUER, TokenError, Tokens};

pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of all service accounts, and the start of the name of the group of a namespace's.
pub const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

#[derive(Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
}

impl User {
    pub const ANONYMOUS: &str = "system:anonymous";

    pub fn new(name: String, uid: String, mut groups: Vec<String>) -> Self {
        groups.push(AUTHENTICATED.to_owned());
        Self { name, uid, groups }
    }

    /// A client without credentials, where none are needed.
    pub fn anonymous() -> Self {
        let groups = vec!["system:unauthenticated".to_owned()];
        Self { name: Self::ANONYMOUS.to_owned(), uid: String::new(), groups }
    }

    /// Whether the user is an administrator, who may do everything. What all other users may do is in the roles that
    /// are bound to them and to their groups.
    pub fn is_master(&self) -> bool {
        self.requester().is_master()
    }

    /// The user in the terms of authorization.
    pub fn requester(&self) -> Requester<'_> {
        Requester { name: &self.name, groups: &self.groups }
    }
}

/// What the TLS connection shows about a client.
#[derive(Clone)]
pub enum Peer {
    /// No certificate.
    Unknown,
    /// A certificate of the server's authority, valid until this second.
    Known { user: Arc<User>, until: i64 },
    /// A certificate that the server does not accept.
    Refused,
    /// The user who runs this process, on a socket that no other user can connect to.
    Owner(Arc<User>),
}

impl Peer {
    pub fn owner() -> Self {
        let groups = vec![MASTERS.to_owned()];
        Self::Owner(Arc::new(User::new("owner".to_owned(), String::new(), groups)))
    }
}

/// The client sent credentials, and they are invalid.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidCredentials;

/// The authenticator: determines the user of a request.
pub struct Authenticator {
    verifier: Arc<dyn ClientCertVerifier>,
    key: hmac::Key,
    /// The tag of the administrator's token. Comparing tags takes the same time whatever the client sends.
    tag: hmac::Tag,
    admin: Arc<User>,
    pub tokens: Arc<Tokens>,
}

#[derive(Debug, thiserror::Error)]
pub enum AuthenticatorError {
    #[error("cannot use the authority's certificate: {0}")]
    Authority(String),
    #[error("the system gives no random numbers")]
    NoRandomness,
    #[error("cannot use the key for service account tokens: {0}")]
    TokenKey(#[from] TokenError),
}

impl Authenticator {
    pub fn new(pki: &Pki, provider: &Arc<CryptoProvider>) -> Result<Self, AuthenticatorError> {
        let mut roots = RootCertStore::empty();
        roots.add(pki.roots.clone()).map_err(|error| AuthenticatorError::Authority(error.to_string()))?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .map_err(|error| AuthenticatorError::Authority(error.to_string()))?;
        let random = SystemRandom::new();
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &random).map_err(|_| AuthenticatorError::NoRandomness)?;
        let tag = hmac::sign(&key, pki.token.as_bytes());
        let admin = User::new("kubernetes-admin".to_owned(), String::new(), vec![MASTERS.to_owned()]);
        let tokens = Arc::new(Tokens::new(&pki.token_key)?);
        Ok(Self { verifier, key, tag, admin: Arc::new(admin), tokens })
    }

    /// The verifier for the TLS handshake.
    pub fn asker(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::new(OptionalClientCert(self.verifier.clone()))
    }

    /// Verifies the certificates of a client: signed by the server's authority, issued for clients, and valid now.
    pub fn peer(&self, certificates: Option<&[CertificateDer<'_>]>, now_seconds: i64) -> Peer {
        let Some([certificate, intermediates @ ..]) = certificates else {
            return Peer::Unknown;
        };
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(u64::try_from(now_seconds).unwrap_or(0)));
        if self.verifier.verify_client_cert(certificate, intermediates, now).is_err() {
            return Peer::Refused;
        }
        let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else {
            return Peer::Refused;
        };
        let subject = parsed.subject();
        let name = subject.iter_common_name().find_map(|name| name.as_str().ok()).unwrap_or_default();
        if name.is_empty() {
            return Peer::Refused;
        }
        let groups = subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned).collect();
        let user = Arc::new(User::new(name.to_owned(), String::new(), groups));
        Peer::Known { user, until: parsed.validity().not_after.timestamp() }
    }

    /// The user of this request. None if there are no credentials. Valid credentials count even next to invalid ones.
    pub fn user(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        registry: &Registry,
    ) -> Result<Option<Arc<User>>, InvalidCredentials> {
        let now = registry.now().seconds();
        // Connections outlive certificates, so the expiry is checked for each request.
        let mut refused = match peer {
            Peer::Known { user, until } if now <= *until => return Ok(Some(user.clone())),
            Peer::Owner(user) => return Ok(Some(user.clone())),
            Peer::Known { .. } | Peer::Refused => true,
            Peer::Unknown => false,
        };
        if let Some(header) = headers.get(AUTHORIZATION) {
            refused = true;
            let header = header.to_str().unwrap_or_default();
            if let Some((scheme, token)) = header.split_once(' ')
                && scheme.eq_ignore_ascii_case("bearer")
                && let Some((user, _)) = self.bearer(token.trim(), &[ISSUER.to_owned()], registry)
            {
                return Ok(Some(user));
            }
        }
        if refused { Err(InvalidCredentials) } else { Ok(None) }
    }

    /// The user of this token, and which of `audiences` it is for. The administrator's token is for this server only.
    pub fn bearer(&self, token: &str, audiences: &[String], registry: &Registry) -> Option<(Arc<User>, Vec<String>)> {
        if hmac::verify(&self.key, token.as_bytes(), self.tag.as_ref()).is_ok() {
            let for_us = audiences.iter().find(|audience| *audience == ISSUER)?;
            return Some((self.admin.clone(), vec![for_us.clone()]));
        }
        let (user, meant) = self.tokens.user(token, audiences, registry)?;
        Some((Arc::new(user), meant))
    }
}

/// Accepts every certificate in the handshake if the client has its key; see the module documentation.
struct OptionalClientCert(Arc<dyn ClientCertVerifier>);

impl fmt::Debug for OptionalClientCert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OptionalClientCert")
    }
}

impl ClientCertVerifier for OptionalClientCert {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
