//! Certificates and kubeconfigs for users other than the administrator.

use std::path::Path;

use rcgen::{DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};

use crate::auth::pki::{self, PkiError};

/// The longest common name and organization of a certificate (RFC 5280).
const LONGEST_NAME: usize = 64;
const MOST_GROUPS: usize = 32;
/// The longest validity: that of the authority.
const MOST_DAYS: u32 = 3650;

/// A user whose certificate is to be issued.
pub struct NewClient<'a> {
    pub name: &'a str,
    pub groups: &'a [String],
    pub days: u32,
}

/// Why a user cannot have a certificate.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("the name of a user must not be empty or longer than {LONGEST_NAME} bytes")]
    Name,
    #[error("names that begin with \"system:\" are reserved; choose another name")]
    Reserved,
    #[error(
        "a group must not be empty or longer than {LONGEST_NAME} bytes, and a user has at most {MOST_GROUPS} groups"
    )]
    Groups,
    #[error("a certificate is valid for 1 to {MOST_DAYS} days")]
    Days,
    #[error(transparent)]
    Pki(#[from] PkiError),
}

/// A certificate and its key, and the certificate of the authority, as PEM.
pub struct ClientCertificate {
    pub authority: String,
    pub certificate: String,
    pub key: String,
}

impl NewClient<'_> {
    fn check(&self) -> Result<(), ClientError> {
        let is_good = |text: &str| !text.is_empty() && text.len() <= LONGEST_NAME;
        if !is_good(self.name) {
            return Err(ClientError::Name);
        }
        if self.name.starts_with("system:") {
            return Err(ClientError::Reserved);
        }
        if self.groups.len() > MOST_GROUPS || !self.groups.iter().all(|group| is_good(group)) {
            return Err(ClientError::Groups);
        }
        if self.days == 0 || self.days > MOST_DAYS { Err(ClientError::Days) } else { Ok(()) }
    }

    /// Issues a certificate of the authority in this directory, which must exist. It cannot be revoked: it ends with its
    /// validity or with the authority.
    pub fn issue(&self, directory: &Path) -> Result<ClientCertificate, ClientError> {
        self.check()?;
        let (authority, authority_key) = pki::existing_authority(directory)?;
        let issuer = Issuer::from_ca_cert_pem(&authority, authority_key).map_err(PkiError::Make)?;
        let key = KeyPair::generate().map_err(PkiError::Make)?;
        let mut params = pki::leaf(self.name, ExtendedKeyUsagePurpose::ClientAuth, jiff::Span::new().days(self.days))?;
        for group in self.groups {
            params.distinguished_name.push(DnType::OrganizationName, group.as_str());
        }
        let certificate = params.signed_by(&key, &issuer).map_err(PkiError::Make)?.pem();
        Ok(ClientCertificate { authority, certificate, key: key.serialize_pem() })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_name_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        crate::Pki::open(directory.path(), std::net::Ipv4Addr::LOCALHOST.into()).unwrap();
        let long = "x".repeat(LONGEST_NAME);
        let longer = "x".repeat(LONGEST_NAME + 1);
        let check = |name: &str, groups: &[&str], days: u32, good: bool| {
            let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
            let issued = NewClient { name, groups: &groups, days }.issue(directory.path());
            assert_eq!(issued.is_ok(), good, "{name} {groups:?} {days}");
        };
        check("alice", &["dev", "ops"], 1, true);
        check(&long, &[&long], MOST_DAYS, true);
        check(&longer, &[], 1, false);
        check("", &[], 1, false);
        check("system:serviceaccount:kube-system:x", &[], 1, false);
        check("alice", &[""], 1, false);
        check("alice", &[&longer], 1, false);
        check("alice", &[], 0, false);
        check("alice", &[], MOST_DAYS + 1, false);
        let elsewhere = tempfile::tempdir().unwrap();
        assert!(NewClient { name: "a", groups: &[], days: 1 }.issue(elsewhere.path()).is_err());
        assert!(std::fs::read_dir(elsewhere.path()).unwrap().next().is_none(), "nothing is created");
    }
}
