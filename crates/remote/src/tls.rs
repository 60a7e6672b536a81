//! Which certificates are trusted, and which one is presented.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// A file of certificate authorities is read again after this time.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Whom to trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The certificate authorities of the system.
    System,
    /// PEM.
    Authorities(Vec<u8>),
    /// A file whose content is replaced when the authority of the cluster changes, as in a Pod.
    File(PathBuf),
    /// Any certificate (`insecure-skip-tls-verify`).
    Anyone,
}

/// `identity` is a client certificate with its key, in PEM.
pub fn client_config(trust: &Trust, identity: Option<&[u8]>) -> Result<ClientConfig> {
    let builder = ClientConfig::builder();
    let builder = match trust {
        Trust::System => builder.with_root_certificates(system_authorities()),
        Trust::Authorities(pem) => builder.with_root_certificates(authorities(pem)?),
        Trust::File(path) => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AuthorityFile::open(path.clone())?))
        }
        Trust::Anyone => builder.dangerous().with_custom_certificate_verifier(Arc::new(NoVerification)),
    };
    let Some(pem) = identity else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates(pem).context("the client certificate is not PEM")?;
    ensure!(!chain.is_empty(), "the client certificate contains no certificate");
    let key = PrivateKeyDer::from_pem_slice(pem).context("the client key cannot be read")?;
    builder.with_client_auth_cert(chain, key).context("the client key cannot be used")
}

/// Without any, every certificate is refused, with an error that names the server.
fn system_authorities() -> RootCertStore {
    let found = rustls_native_certs::load_native_certs();
    for error in found.errors {
        tracing::warn!("cannot read a certificate authority of the system: {error}");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    roots
}

fn authorities(pem: &[u8]) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem).context("the certificate authority is not PEM")? {
        roots.add(certificate).context("the certificate authority cannot be used")?;
    }
    Ok(roots)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    Ok(CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>()?)
}

/// Verifies with the authorities of a file. If the file cannot be read again, the last ones are used.
#[derive(Debug)]
struct AuthorityFile {
    path: PathBuf,
    current: Mutex<(Arc<WebPkiServerVerifier>, Instant)>,
}

impl AuthorityFile {
    fn open(path: PathBuf) -> Result<Self> {
        let current = Mutex::new((Self::read(&path)?, Instant::now()));
        Ok(Self { path, current })
    }

    fn read(path: &PathBuf) -> Result<Arc<WebPkiServerVerifier>> {
        let pem = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(WebPkiServerVerifier::builder(Arc::new(authorities(&pem)?)).build()?)
    }

    fn verifier(&self, now: Instant) -> Arc<WebPkiServerVerifier> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(current.1) >= READ_AGAIN_AFTER {
            match Self::read(&self.path) {
                Ok(verifier) => current.0 = verifier,
                Err(error) => tracing::warn!("certificate authorities are not read again: {error:#}"),
            }
            current.1 = now;
        }
        current.0.clone()
    }
}

impl ServerCertVerifier for AuthorityFile {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verifier(Instant::now()).verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier(Instant::now()).verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier(Instant::now()).verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier(Instant::now()).supported_verify_schemes()
    }
}

/// Trusts any certificate, because the kubeconfig says so.
#[derive(Debug)]
struct NoVerification;

impl ServerCertVerifier for NoVerification {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        tracing::warn!("the certificate of {server_name:?} is not verified (insecure-skip-tls-verify)");
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    /// A certificate authority, and its key.
    fn authority() -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    #[test]
    fn authorities_of_a_file_are_read_again_and_outlive_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.crt");
        std::fs::write(&path, authority().0).unwrap();
        let file = AuthorityFile::open(path.clone()).unwrap();
        let start = file.current.lock().unwrap().1;
        let first = file.verifier(start);
        std::fs::write(&path, authority().0).unwrap();
        assert!(Arc::ptr_eq(&file.verifier(start + READ_AGAIN_AFTER - Duration::from_millis(1)), &first));
        let second = file.verifier(start + READ_AGAIN_AFTER);
        assert!(!Arc::ptr_eq(&second, &first));
        std::fs::remove_file(&path).unwrap();
        assert!(Arc::ptr_eq(&file.verifier(start + READ_AGAIN_AFTER * 3), &second));
        assert!(AuthorityFile::open(path).is_err());
    }

    #[test]
    fn a_certificate_needs_its_own_key() {
        let ((certificate, key), (_, other)) = (authority(), authority());
        let identity = |key: &str| client_config(&Trust::Anyone, Some(format!("{key}{certificate}").as_bytes()));
        identity(&key).unwrap();
        for (key, hint) in [(other.as_str(), "cannot be used"), ("", "cannot be read")] {
            let error = format!("{:#}", identity(key).unwrap_err());
            assert!(error.contains(hint), "{error}");
        }
        assert!(client_config(&Trust::Authorities(b"nonsense".to_vec()), Some(key.as_bytes())).is_err());
    }
}
