//! Keys and certificates.
//!
//! What must persist is stored in a directory of its own: the key and certificate of one authority, a bearer token, and
//! the key that signs service account tokens. Certificates for the server and for its administrator are issued at every
//! start: none of them needs renewal, and they contain the address in use.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use jiff::civil::Date;
use jiff::{Span, Timestamp, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType, date_time_ymd,
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::auth::files;

/// The authority is valid as long as a data directory may last. So is the certificate of the server: clients of a
/// server that runs for years must continue to accept it.
const AUTHORITY_YEARS: i32 = 10;
/// The administrator's certificate is in a file that users copy. It is issued again at every start.
const ADMIN_YEARS: i32 = 1;
/// An authority with less validity left is replaced at start, when every kubeconfig is written anyway.
const RENEWAL_DAYS: i64 = 30;

/// The names under which Pods and users reach an API server.
const NAMES: [&str; 5] =
    ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];

/// All keys and certificates of a server.
pub struct Pki {
    /// The authority's certificate, with which clients verify the server.
    pub authority: String,
    pub admin_certificate: String,
    pub admin_key: String,
    /// A bearer token of the administrator, for clients that cannot use certificates.
    pub token: String,
    pub(crate) roots: CertificateDer<'static>,
    pub(crate) server_certificate: CertificateDer<'static>,
    pub(crate) server_key: PrivateKeyDer<'static>,
    /// PKCS#8, ECDSA P-256: signs service account tokens.
    pub(crate) token_key: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("cannot keep keys in {path}")]
    Directory { path: PathBuf, source: io::Error },
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot remove {path}")]
    Remove { path: PathBuf, source: io::Error },
    #[error("cannot write {path}")]
    Write { path: PathBuf, source: io::Error },
    #[error(
        "{path} is not what was written there: {why}; restore it, or remove the directory {} to have new keys made \
         (every kubeconfig in use must then be replaced)",
        .path.parent().unwrap_or(.path).display()
    )]
    Broken { path: PathBuf, why: String },
    #[error("{0} has no certificate authority; tally up creates it at its first start")]
    NoAuthority(PathBuf),
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
    #[error("the system gives no random numbers")]
    NoRandomness,
}

type Result<T> = std::result::Result<T, PkiError>;

impl Pki {
    /// Reads the keys in `directory`, creates missing ones, and issues the certificates of this run. `listen` is the
    /// address that clients will use.
    pub fn open(directory: &Path, listen: IpAddr) -> Result<Self> {
        files::private_directory(directory)
            .map_err(|source| PkiError::Directory { path: directory.to_owned(), source })?;
        let today = today();
        let (authority, key) = open_authority(directory, today)?;
        let issuer = Issuer::from_ca_cert_pem(&authority, key)?;
        let token = read_or_make(&directory.join("token"), || Ok(format!("{}\n", random_token()?)))?;
        let path = directory.join("serviceaccounts.key");
        let token_key = read_or_make(&path, || Ok(KeyPair::generate()?.serialize_pem()))?;
        let token_key = parse_key(&path, &token_key)?.serialize_der();

        let server_key = KeyPair::generate()?;
        let lasting = Span::new().years(AUTHORITY_YEARS);
        let mut server = leaf("tally", ExtendedKeyUsagePurpose::ServerAuth, lasting)?;
        for name in NAMES {
            server.subject_alt_names.push(SanType::DnsName(name.try_into()?));
        }
        for address in [IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]), listen] {
            let name = SanType::IpAddress(address);
            if !address.is_unspecified() && !server.subject_alt_names.contains(&name) {
                server.subject_alt_names.push(name);
            }
        }
        let server_certificate = server.signed_by(&server_key, &issuer)?;

        let admin_key = KeyPair::generate()?;
        let lasting = Span::new().years(ADMIN_YEARS);
        let mut admin = leaf("kubernetes-admin", ExtendedKeyUsagePurpose::ClientAuth, lasting)?;
        admin.distinguished_name.push(DnType::OrganizationName, "system:masters");
        let admin_certificate = admin.signed_by(&admin_key, &issuer)?;

        let path = directory.join("ca.crt");
        let roots = CertificateDer::from_pem_slice(authority.as_bytes())
            .map_err(|error| PkiError::Broken { path, why: error.to_string() })?;
        Ok(Self {
            authority,
            admin_certificate: admin_certificate.pem(),
            admin_key: admin_key.serialize_pem(),
            token: token.trim().to_owned(),
            roots,
            server_certificate: server_certificate.der().clone(),
            server_key: PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(server_key.serialize_der())),
            token_key,
        })
    }
}

/// The files that are kept, the authority's certificate first: without it the next start makes a new authority, also if
/// the removal of the others is interrupted.
const KEPT: [&str; 4] = ["ca.crt", "ca.key", "token", "serviceaccounts.key"];

/// The files that a backup needs so that kubeconfigs and tokens stay valid: names relative to the data directory, and
/// content. Files that do not exist are left out.
pub fn kept_files(directory: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for name in KEPT {
        let path = directory.join(name);
        match fs::read(&path) {
            Ok(content) => files.push((format!("{DIRECTORY}/{name}"), content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(PkiError::Read { path, source }),
        }
    }
    Ok(files)
}

/// The name of the directory of the keys in a data directory.
const DIRECTORY: &str = "pki";

/// Writes a file of a backup below `data`. Returns false if it is none that [`kept_files`] returns.
pub fn restore_file(data: &Path, path: &str, content: &[u8]) -> Result<bool> {
    let Some(name) = path.strip_prefix("pki/").filter(|name| KEPT.contains(name)) else { return Ok(false) };
    let directory = data.join(DIRECTORY);
    let made = files::private_directory(&directory);
    made.map_err(|source| PkiError::Directory { path: directory.clone(), source })?;
    let path = directory.join(name);
    files::write_private(&path, content).map_err(|source| PkiError::Write { path, source })?;
    Ok(true)
}

/// Removes all keys, so that the next start makes new ones. No server may be using them.
pub fn discard(directory: &Path) -> Result<()> {
    for name in KEPT {
        let path = directory.join(name);
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(PkiError::Remove { path, source }),
        }
    }
    Ok(())
}

/// What a certificate says about itself.
#[derive(Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    pub subject: String,
    /// In seconds of Unix time.
    pub valid_from: i64,
    pub valid_until: i64,
}

impl CertificateFacts {
    /// `pem` is the text of the file at `path`, or a part of it.
    pub fn read(path: &Path, pem: &str) -> Result<Self> {
        let broken = |why: String| PkiError::Broken { path: path.to_owned(), why };
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| broken(error.to_string()))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).map_err(|error| broken(error.to_string()))?;
        let validity = parsed.validity();
        let (valid_from, valid_until) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        Ok(Self { subject: parsed.subject().to_string(), valid_from, valid_until })
    }

    /// The authority in this directory.
    pub fn of_authority(directory: &Path) -> Result<Self> {
        let path = directory.join("ca.crt");
        let pem = read(&path)?.ok_or_else(|| PkiError::NoAuthority(directory.to_owned()))?;
        Self::read(&path, &pem)
    }
}

fn today() -> Date {
    Timestamp::now().to_zoned(TimeZone::UTC).date()
}

/// Certificates are valid from yesterday, for clients whose clock is behind, until the start of a day.
fn validity(params: &mut CertificateParams, today: Date, lasting: Span) {
    let date = |date: Date| {
        let part = |number: i8| u8::try_from(number).unwrap_or(1);
        date_time_ymd(date.year().into(), part(date.month()), part(date.day()))
    };
    params.not_before = date(today.saturating_sub(Span::new().days(1)));
    params.not_after = date(today.saturating_add(lasting));
}

/// A certificate that is no authority, valid from now on.
pub(super) fn leaf(name: &str, purpose: ExtendedKeyUsagePurpose, lasting: Span) -> Result<CertificateParams> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    params.use_authority_key_identifier_extension = true;
    validity(&mut params, today(), lasting);
    Ok(params)
}

/// The authority's certificate and key, as stored or created now.
fn open_authority(directory: &Path, today: Date) -> Result<(String, KeyPair)> {
    if let Some(authority) = stored_authority(directory)? {
        return Ok(authority);
    }
    let (key_path, path) = (directory.join("ca.key"), directory.join("ca.crt"));
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "tally authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    validity(&mut params, today, Span::new().years(AUTHORITY_YEARS));
    let certificate = params.self_signed(&key)?.pem();
    write(&key_path, &key.serialize_pem())?;
    write(&path, &certificate)?;
    Ok((certificate, key))
}

/// The authority that a start has created.
pub(super) fn existing_authority(directory: &Path) -> Result<(String, KeyPair)> {
    stored_authority(directory)?.ok_or_else(|| PkiError::NoAuthority(directory.to_owned()))
}

/// None if there is none, or it is about to expire.
fn stored_authority(directory: &Path) -> Result<Option<(String, KeyPair)>> {
    let (key_path, path) = (directory.join("ca.key"), directory.join("ca.crt"));
    // The key is written first: a certificate without its key means that the key was removed.
    let Some(certificate) = read(&path)? else { return Ok(None) };
    let broken = |why: String| PkiError::Broken { path: path.clone(), why };
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|error| broken(error.to_string()))?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).map_err(|error| broken(error.to_string()))?;
    let days_left = (parsed.validity().not_after.timestamp() - Timestamp::now().as_second()) / 86_400;
    // An expiring authority is replaced whatever its key: a replacement may have been interrupted between the two
    // files.
    if days_left < RENEWAL_DAYS {
        return Ok(None);
    }
    let key = read(&key_path)?.ok_or_else(|| broken("its key ca.key is gone".to_owned()))?;
    let key = parse_key(&key_path, &key)?;
    if parsed.public_key().raw != key_info(&key) {
        return Err(broken("ca.key is the key of another certificate".to_owned()));
    }
    Ok(Some((certificate, key)))
}

/// The public key in the form of certificates.
fn key_info(key: &KeyPair) -> Vec<u8> {
    use rcgen::PublicKeyData;
    key.subject_public_key_info()
}

fn parse_key(path: &Path, text: &str) -> Result<KeyPair> {
    KeyPair::from_pem(text).map_err(|error| PkiError::Broken { path: path.to_owned(), why: error.to_string() })
}

/// 256 bits that cannot be guessed.
fn random_token() -> Result<String> {
    use base64::Engine;
    let mut bytes = [0_u8; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| PkiError::NoRandomness)?;
    Ok(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes))
}

fn read_or_make(path: &Path, make: impl FnOnce() -> Result<String>) -> Result<String> {
    if let Some(text) = read(path)? {
        if text.trim().is_empty() {
            return Err(PkiError::Broken { path: path.to_owned(), why: "it is empty".to_owned() });
        }
        return Ok(text);
    }
    let text = make()?;
    write(path, &text)?;
    Ok(text)
}

fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PkiError::Read { path: path.to_owned(), source }),
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    files::write_private(path, text).map_err(|source| PkiError::Write { path: path.to_owned(), source })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    #[test]
    fn keys_last_and_certificates_are_made_anew() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pki");
        let (first, second) = (Pki::open(&path, HERE).unwrap(), Pki::open(&path, HERE).unwrap());
        assert_eq!((&first.authority, &first.token), (&second.authority, &second.token));
        assert_eq!(first.token_key, second.token_key);
        assert_ne!(first.admin_key, second.admin_key);
        assert!(first.token.len() >= 43, "256 bits");
        for entry in fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.path());
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn an_authority_about_to_end_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let ages_ago = today().saturating_sub(Span::new().years(AUTHORITY_YEARS));
        for (days, kept) in [(RENEWAL_DAYS - 1, false), (RENEWAL_DAYS + 1, true)] {
            let (made, _) = open_authority(directory.path(), ages_ago.saturating_add(Span::new().days(days))).unwrap();
            if !kept {
                // As if the last replacement had been interrupted.
                fs::write(directory.path().join("ca.key"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
            }
            let (now, _) = open_authority(directory.path(), today()).unwrap();
            assert_eq!(made == now, kept, "{days} days left");
            fs::remove_file(directory.path().join("ca.crt")).unwrap();
        }
    }

    #[test]
    fn damage_is_explained_and_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let opened = |why: &str| {
            let error = Pki::open(path, HERE).err().expect("damage").to_string();
            assert!(error.contains(why) && error.contains("remove the directory"), "{error}");
        };
        Pki::open(path, HERE).unwrap();
        let (certificate, key) = (path.join("ca.crt"), path.join("ca.key"));
        let (kept_certificate, kept_key) = (fs::read(&certificate).unwrap(), fs::read(&key).unwrap());
        fs::remove_file(&key).unwrap();
        opened("its key ca.key is gone");
        fs::write(&key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
        opened("the key of another certificate");
        fs::write(&key, "junk").unwrap();
        opened("ca.key is not what was written there");
        fs::write(&key, kept_key).unwrap();
        fs::write(&certificate, "junk").unwrap();
        opened("ca.crt is not what was written there");
        fs::write(&certificate, kept_certificate).unwrap();
        fs::write(path.join("token"), "\n").unwrap();
        opened("it is empty");
        fs::write(path.join("token"), "t").unwrap();
        Pki::open(path, HERE).unwrap();
    }
}
