//! Kubeconfig files: which clusters, users and contexts they define.
//!
//! Several files are merged as the Kubernetes documentation says: the first definition of a name is used as a whole.
//! Relative paths are relative to the file that contains them. Fields that are not needed here are ignored.

use std::collections::BTreeMap;
use std::path::{MAIN_SEPARATOR, Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

#[derive(Default, Deserialize)]
pub struct Kubeconfig {
    kind: Option<String>,
    #[serde(rename = "apiVersion")]
    api_version: Option<String>,
    #[serde(rename = "current-context")]
    pub current_context: Option<String>,
    #[serde(default, deserialize_with = "null_is_empty")]
    clusters: Vec<NamedCluster>,
    #[serde(default, deserialize_with = "null_is_empty")]
    users: Vec<NamedUser>,
    #[serde(default, deserialize_with = "null_is_empty")]
    contexts: Vec<NamedContext>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    #[serde(default)]
    cluster: Option<KubeconfigCluster>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: Option<KubeconfigUser>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    #[serde(default)]
    context: Option<KubeconfigContext>,
}

#[derive(Clone, Default, Deserialize)]
struct KubeconfigContext {
    cluster: String,
    user: Option<String>,
    namespace: Option<String>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct KubeconfigCluster {
    pub server: Option<String>,
    pub insecure_skip_tls_verify: Option<bool>,
    pub certificate_authority: Option<PathBuf>,
    pub certificate_authority_data: Option<String>,
    pub proxy_url: Option<String>,
    pub tls_server_name: Option<String>,
    pub extensions: Option<Vec<Extension>>,
}

#[derive(Clone, Deserialize)]
pub struct Extension {
    name: String,
    extension: Value,
}

/// Contains secrets, and therefore cannot be printed.
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct KubeconfigUser {
    pub username: Option<String>,
    pub password: Option<String>,
    pub token: Option<String>,
    #[serde(rename = "tokenFile")]
    pub token_file: Option<PathBuf>,
    pub client_certificate: Option<PathBuf>,
    pub client_certificate_data: Option<String>,
    pub client_key: Option<PathBuf>,
    pub client_key_data: Option<String>,
    #[serde(rename = "as")]
    pub as_user: Option<String>,
    pub as_uid: Option<String>,
    pub as_groups: Option<Vec<String>>,
    pub as_user_extra: Option<BTreeMap<String, Vec<String>>>,
    pub auth_provider: Option<AuthProvider>,
    pub exec: Option<CredentialPlugin>,
}

#[derive(Clone, Deserialize)]
pub struct AuthProvider {
    pub name: String,
    #[serde(default)]
    pub config: BTreeMap<String, String>,
}

/// A credential plugin: a command that prints an `ExecCredential`.
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CredentialPlugin {
    pub api_version: Option<String>,
    pub command: Option<String>,
    pub args: Option<Vec<String>>,
    pub env: Option<Vec<PluginVariable>>,
    pub install_hint: Option<String>,
    pub interactive_mode: Option<InteractiveMode>,
    pub provide_cluster_info: bool,
}

#[derive(Clone, Deserialize)]
pub struct PluginVariable {
    pub name: String,
    #[serde(default)]
    pub value: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum InteractiveMode {
    Never,
    IfAvailable,
    Always,
}

fn null_is_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Kubeconfig {
    /// One file, which may consist of several YAML documents.
    pub fn read(file: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read the kubeconfig {}", file.display()))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let documents: Vec<Self> =
            serde_saphyr::from_multiple(text).with_context(|| format!("{} is not a kubeconfig", file.display()))?;
        let directory = file.parent().unwrap_or(Path::new(""));
        documents.into_iter().try_fold(Self::default(), |merged, mut document| {
            document.resolve_paths(directory);
            merged.merge(document)
        })
    }

    /// The files of `KUBECONFIG`, of which the first that defines a name wins.
    pub fn read_all(files: impl Iterator<Item = PathBuf>) -> Result<Self> {
        let named = files.filter(|file| !file.as_os_str().is_empty());
        named.map(|file| Self::read(&file)).try_fold(Self::default(), |merged, next| merged.merge(next?))
    }

    fn merge(mut self, next: Self) -> Result<Self> {
        let differ = |one: &Option<String>, other: &Option<String>| one.is_some() && other.is_some() && one != other;
        if differ(&self.kind, &next.kind) || differ(&self.api_version, &next.api_version) {
            bail!("the kubeconfig files have different kinds or versions and cannot be combined");
        }
        self.kind = self.kind.or(next.kind);
        self.api_version = self.api_version.or(next.api_version);
        self.current_context = self.current_context.or(next.current_context);
        append(&mut self.clusters, next.clusters, |entry| &entry.name);
        append(&mut self.users, next.users, |entry| &entry.name);
        append(&mut self.contexts, next.contexts, |entry| &entry.name);
        Ok(self)
    }

    fn resolve_paths(&mut self, directory: &Path) {
        let resolve = |path: &mut Option<PathBuf>| {
            if let Some(path) = path {
                *path = directory.join(&*path);
            }
        };
        for cluster in self.clusters.iter_mut().filter_map(|entry| entry.cluster.as_mut()) {
            resolve(&mut cluster.certificate_authority);
        }
        for user in self.users.iter_mut().filter_map(|entry| entry.user.as_mut()) {
            resolve(&mut user.client_certificate);
            resolve(&mut user.client_key);
            resolve(&mut user.token_file);
            // A command without a directory is looked up in PATH.
            if let Some(command) = user.exec.as_mut().and_then(|plugin| plugin.command.as_mut())
                && command.contains(MAIN_SEPARATOR)
            {
                *command = directory.join(&*command).to_string_lossy().into_owned();
            }
        }
    }

    pub fn context_names(&self) -> Vec<String> {
        self.contexts.iter().map(|entry| entry.name.clone()).collect()
    }

    /// The namespace of a context.
    pub fn namespace(&self, context: &str) -> Option<String> {
        let named = self.contexts.iter().find(|entry| entry.name == context)?;
        named.context.as_ref()?.namespace.clone().filter(|name| !name.is_empty())
    }

    /// The cluster and the user of a context. A context without a user, or with one that is not defined, has no
    /// credentials.
    pub fn select(&self, context: &str) -> Result<(KubeconfigCluster, KubeconfigUser)> {
        let named = self.contexts.iter().find(|entry| entry.name == context);
        let Some(found) = named.and_then(|entry| entry.context.clone()) else {
            bail!("the kubeconfig does not define the context {context:?}");
        };
        let named = self.clusters.iter().find(|entry| entry.name == found.cluster);
        let Some(cluster) = named.and_then(|entry| entry.cluster.clone()) else {
            bail!("the kubeconfig does not define the cluster {:?} of the context {context:?}", found.cluster);
        };
        let named = self.users.iter().find(|entry| Some(&entry.name) == found.user.as_ref());
        Ok((cluster, named.and_then(|entry| entry.user.clone()).unwrap_or_default()))
    }
}

fn append<T>(all: &mut Vec<T>, more: Vec<T>, name: impl Fn(&T) -> &String) {
    let known = all.len();
    for entry in more {
        if !all[..known].iter().any(|other| name(other) == name(&entry)) {
            all.push(entry);
        }
    }
}

impl KubeconfigCluster {
    /// PEM. None means the certificate authorities of the system.
    pub fn authority(&self) -> Result<Option<Vec<u8>>> {
        data_or_file(&self.certificate_authority_data, &self.certificate_authority)
            .context("certificate-authority cannot be used")
    }

    /// What a plugin that asks for it is told about the cluster.
    pub fn for_plugins(&self) -> Result<Value> {
        let mut told = serde_json::Map::new();
        let extension =
            self.extensions.iter().flatten().find(|entry| entry.name == "client.authentication.k8s.io/exec");
        for (field, value) in [
            ("server", self.server.clone().map(Value::from)),
            ("insecure-skip-tls-verify", self.insecure_skip_tls_verify.map(Value::from)),
            ("certificate-authority-data", self.authority()?.map(|pem| STANDARD.encode(pem).into())),
            ("proxy-url", self.proxy_url.clone().map(Value::from)),
            ("tls-server-name", self.tls_server_name.clone().map(Value::from)),
            ("config", extension.map(|entry| entry.extension.clone())),
        ] {
            told.extend(value.map(|value| (field.to_owned(), value)));
        }
        Ok(told.into())
    }
}

impl KubeconfigUser {
    /// A user whose token is in a file, as in a Pod.
    pub fn with_token_file(file: PathBuf) -> Self {
        Self { token_file: Some(file), ..Self::default() }
    }

    /// The client certificate and its key, in PEM.
    pub fn identity(&self) -> Result<Option<Vec<u8>>> {
        let certificate = data_or_file(&self.client_certificate_data, &self.client_certificate)
            .context("client-certificate cannot be used")?;
        let key = data_or_file(&self.client_key_data, &self.client_key).context("client-key cannot be used")?;
        match (certificate, key) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Ok(Some([key, certificate].join(&b'\n'))),
            (Some(_), None) => bail!("the user has client-certificate but no client-key"),
            (None, Some(_)) => bail!("the user has client-key but no client-certificate"),
        }
    }
}

/// Data in the kubeconfig itself is used before a file.
fn data_or_file(data: &Option<String>, file: &Option<PathBuf>) -> Result<Option<Vec<u8>>> {
    match (data, file) {
        (Some(data), _) => Ok(Some(STANDARD.decode(data).context("its data is not base64")?)),
        (None, Some(file)) => Ok(Some(std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?)),
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    const ONE: &str = "
apiVersion: v1
kind: Config
current-context: here
preferences: {}
contexts:
- {name: here, context: {cluster: c, user: u, namespace: n}}
- {name: nobody, context: {cluster: c}}
- {name: unknown, context: {cluster: c, user: who}}
- {name: lost, context: {cluster: elsewhere, user: u}}
clusters:
- name: c
  cluster: {server: 'https://one', certificate-authority: ca.pem, unknown-field: 1}
users:
- name: u
  user: {tokenFile: secrets/token, client-key: /k, exec: {command: ./plugin, args: [a]}}
";
    const OTHER: &str = "
current-context: there
contexts: [{name: there, context: {cluster: d, user: u}}]
clusters: [{name: c, cluster: {server: 'https://two'}}, {name: d, cluster: {server: 'https://three'}}]
users:
";

    fn file(directory: &Path, name: &str, text: &str) -> PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn files_are_merged_and_the_first_definition_wins() {
        let directory = tempfile::tempdir().unwrap();
        let files = [file(directory.path(), "one", ONE), PathBuf::new(), file(directory.path(), "other", OTHER)];
        let merged = Kubeconfig::read_all(files.into_iter()).unwrap();
        assert_eq!(merged.current_context.as_deref(), Some("here"));
        assert_eq!(merged.context_names(), ["here", "nobody", "unknown", "lost", "there"]);
        assert_eq!(merged.select("here").unwrap().0.server.as_deref(), Some("https://one"));
        let (cluster, user) = merged.select("there").unwrap();
        assert_eq!((cluster.server.as_deref(), user.exec.is_some()), (Some("https://three"), true));
        for nobody in ["nobody", "unknown"] {
            assert!(merged.select(nobody).unwrap().1.exec.is_none(), "{nobody}");
        }
        let error = merged.select("lost").err().unwrap().to_string();
        assert!(error.contains("the cluster \"elsewhere\" of the context \"lost\""), "{error}");
        // The same in one file.
        let both = file(directory.path(), "both", &format!("{ONE}---{OTHER}"));
        assert_eq!(Kubeconfig::read(&both).unwrap().context_names().len(), 5);
        let pod = file(directory.path(), "pod", "{kind: Pod}");
        let files = [file(directory.path(), "one", ONE), pod];
        let error = Kubeconfig::read_all(files.into_iter()).err().unwrap().to_string();
        assert!(error.contains("different kinds"), "{error}");
    }

    #[test]
    fn paths_are_relative_to_their_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = file(directory.path(), "one", ONE);
        let (cluster, user) = Kubeconfig::read(&path).unwrap().select("here").unwrap();
        assert_eq!(cluster.certificate_authority, Some(directory.path().join("ca.pem")));
        assert_eq!(user.token_file, Some(directory.path().join("secrets/token")));
        assert_eq!(user.client_key, Some(PathBuf::from("/k")));
        let command = user.exec.as_ref().and_then(|plugin| plugin.command.clone()).unwrap();
        assert_eq!(PathBuf::from(command), directory.path().join("./plugin"));
        let text = ONE.replace("./plugin", "plugin");
        let (_, user) = Kubeconfig::read(&file(directory.path(), "one", &text)).unwrap().select("here").unwrap();
        assert_eq!(user.exec.unwrap().command.as_deref(), Some("plugin"), "is looked up in PATH");
    }

    #[test]
    fn data_is_used_before_files_and_what_is_missing_is_named() {
        let user = |yaml: &str| serde_saphyr::from_str::<KubeconfigUser>(yaml).unwrap().identity();
        let both = "{client-certificate-data: Yw==, client-certificate: /nowhere, client-key-data: aw==}";
        assert_eq!(user(both).unwrap().unwrap(), b"k\nc");
        assert!(user("{}").unwrap().is_none());
        for (yaml, hint) in [
            ("{client-certificate-data: Yw==}", "no client-key"),
            ("{client-key-data: aw==}", "no client-certificate"),
            ("{client-certificate: /nowhere}", "cannot read /nowhere"),
            ("{client-certificate-data: '?'}", "not base64"),
        ] {
            let error = format!("{:#}", user(yaml).unwrap_err());
            assert!(error.contains(hint), "{yaml}: {error}");
        }
    }

    #[test]
    fn a_plugin_is_told_of_the_cluster() {
        let cluster: KubeconfigCluster = serde_saphyr::from_str(
            "{server: s, tls-server-name: n, certificate-authority-data: Y2E=, extensions: \
             [{name: client.authentication.k8s.io/exec, extension: {audience: a}}, {name: x, extension: 1}]}",
        )
        .unwrap();
        let told = serde_json::json!({
            "server": "s", "tls-server-name": "n", "certificate-authority-data": "Y2E=", "config": {"audience": "a"},
        });
        assert_eq!(cluster.for_plugins().unwrap(), told);
    }
}
