//! The kubeconfig: how clients find the server and authenticate.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::Pki;
use crate::auth::clients::ClientCertificate;
use crate::auth::files;

/// The first bytes of a file that Tally wrote. A file that begins otherwise belongs to the user and is not replaced.
const MARK: &str = "# Written by tally up";

#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    #[error(
        "{0} is there already and was not written by tally up; name another file with --kubeconfig (it would replace \
         yours)"
    )]
    NotOurs(PathBuf),
    #[error("{0} is there already; name another file with --kubeconfig")]
    Exists(PathBuf),
    #[error("cannot write the kubeconfig {path}")]
    Write { path: PathBuf, source: io::Error },
}

/// Whether `write` would be allowed to write there. Called early, before anything is created.
pub fn check(path: &Path) -> Result<(), KubeconfigError> {
    // A file that cannot be read is not checked; if it prevents the write, the write fails with the reason.
    match fs::read(path) {
        Ok(text) if !text.is_empty() && !text.starts_with(MARK.as_bytes()) => {
            Err(KubeconfigError::NotOurs(path.to_owned()))
        }
        _ => Ok(()),
    }
}

/// Writes the administrator's kubeconfig, readable by its owner only.
pub fn write(path: &Path, listen: SocketAddr, pki: &Pki) -> Result<(), KubeconfigError> {
    check(path)?;
    files::write_private(path, text(listen, pki))
        .map_err(|source| KubeconfigError::Write { path: path.to_owned(), source })
}

/// The URL for clients on this machine: clients cannot connect to the unspecified address.
pub fn url(listen: SocketAddr) -> String {
    let address = match listen.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        other => other,
    };
    format!("https://{}", SocketAddr::new(address, listen.port()))
}

fn text(listen: SocketAddr, pki: &Pki) -> String {
    let head = format!("{MARK}, and written anew at every start.");
    config(&head, &url(listen), "tally", [&pki.authority, &pki.admin_certificate, &pki.admin_key])
}

/// Writes the kubeconfig of a user to a file that does not exist, readable by its owner only.
pub fn write_user(path: &Path, url: &str, user: &str, client: &ClientCertificate) -> Result<(), KubeconfigError> {
    if path.exists() {
        return Err(KubeconfigError::Exists(path.to_owned()));
    }
    // In quotes every name is one word of YAML.
    let quoted = serde_json::Value::from(user).to_string();
    let head = "# Written by tally user add.";
    let text = config(head, url, &quoted, [&client.authority, &client.certificate, &client.key]);
    files::write_private(path, &text).map_err(|source| KubeconfigError::Write { path: path.to_owned(), source })
}

/// The URL in a kubeconfig that `tally up` wrote.
pub fn url_in(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok().filter(|text| text.starts_with(MARK))?;
    text.lines().find_map(|line| line.trim().strip_prefix("server: ").map(str::to_owned))
}

/// The client certificate in a kubeconfig that Tally wrote, as PEM.
pub fn certificate_in(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let data = text.lines().find_map(|line| line.trim().strip_prefix("client-certificate-data: "))?;
    String::from_utf8(STANDARD.decode(data).ok()?).ok()
}

fn config(head: &str, url: &str, user: &str, pems: [&String; 3]) -> String {
    let [authority, certificate, key] = pems.map(|pem| STANDARD.encode(pem));
    format!(
        "{head}
apiVersion: v1
kind: Config
clusters:
- name: tally
  cluster:
    server: {url}
    certificate-authority-data: {authority}
users:
- name: {user}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: tally
  context:
    cluster: tally
    user: {user}
current-context: tally
"
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_sent_to_an_address_they_can_reach() {
        for (listen, client) in [
            ("127.0.0.1:6443", "https://127.0.0.1:6443"),
            ("0.0.0.0:1", "https://127.0.0.1:1"),
            ("[::]:1", "https://[::1]:1"),
            ("192.0.2.1:80", "https://192.0.2.1:80"),
        ] {
            assert_eq!(url(listen.parse().unwrap()), client);
        }
    }

    #[test]
    fn the_work_of_others_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let pki = Pki::open(&directory.path().join("pki"), Ipv4Addr::LOCALHOST.into()).unwrap();
        let (path, listen) = (directory.path().join("config"), "127.0.0.1:6443".parse().unwrap());
        write(&path, listen, &pki).unwrap();
        write(&path, listen, &pki).unwrap();
        fs::write(&path, "apiVersion: v1\n").unwrap();
        assert!(matches!(write(&path, listen, &pki), Err(KubeconfigError::NotOurs(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "apiVersion: v1\n");
    }
}
