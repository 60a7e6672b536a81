//! How requests authenticate: with a fixed token or password, with a token file that is read again, or with the token of
//! a credential plugin that is run again before the token expires. Client certificates are used by the connection
//! (`tls.rs`).

use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Value, json};
use tally_core::time::{Span, Timestamp};
use tokio::sync::Mutex;

use crate::kubeconfig::{CredentialPlugin, InteractiveMode, KubeconfigUser};

/// A token file is read again after this time: the kubelet replaces tokens well before they expire.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(50);

/// A plugin is run again this long before its token expires, so that no request carries an expired one.
const BEFORE_EXPIRY: Span = Span::from_seconds(60);

/// What a plugin may print: an ExecCredential with a certificate chain is a few kilobytes.
const OUTPUT_LIMIT: u64 = 1 << 20;

#[derive(Clone)]
pub enum Credentials {
    /// None, or only a client certificate.
    None,
    Fixed(HeaderValue),
    File(Arc<Mutex<TokenFile>>),
    Plugin(Arc<Mutex<PluginToken>>),
}

pub struct TokenFile {
    path: PathBuf,
    header: HeaderValue,
    read_at: Instant,
}

pub struct PluginToken {
    run: PluginRun,
    header: HeaderValue,
    /// None: it does not expire.
    expires_at: Option<Timestamp>,
}

/// What a plugin printed.
struct PluginAnswer {
    token: Option<String>,
    expires_at: Option<Timestamp>,
    identity: Option<Vec<u8>>,
}

/// A plugin, and what it is told about the cluster.
#[derive(Clone)]
struct PluginRun {
    plugin: CredentialPlugin,
    cluster: Option<Value>,
}

impl Credentials {
    /// Reads the file or runs the plugin for the first time. Also returns the client certificate with its key, if the
    /// plugin provides one.
    pub fn load(user: &KubeconfigUser, cluster: Option<Value>) -> Result<(Self, Option<Vec<u8>>)> {
        let fixed = |header| Ok((Self::Fixed(header), None));
        if let Some(provider) = &user.auth_provider {
            return match (provider.name.as_str(), provider.config.get("id-token")) {
                ("oidc", Some(token)) => fixed(bearer(token)?),
                ("oidc", None) => bail!("the auth-provider oidc has no id-token"),
                (name, _) => bail!("the auth-provider {name} is not supported; use a credential plugin (exec)"),
            };
        }
        if let (Some(name), Some(password)) = (&user.username, &user.password) {
            return fixed(secret(&format!("Basic {}", STANDARD.encode(format!("{name}:{password}"))))?);
        }
        if let Some(token) = &user.token {
            return fixed(bearer(token)?);
        }
        if let Some(path) = &user.token_file {
            return Ok((Self::File(Arc::new(Mutex::new(TokenFile::open(path.clone())?))), None));
        }
        let Some(plugin) = user.exec.clone() else { return Ok((Self::None, None)) };
        let cluster = cluster.filter(|_| plugin.provide_cluster_info);
        let run = PluginRun { plugin, cluster };
        let PluginAnswer { token, expires_at, identity } = run.answer()?;
        let credentials = match token {
            None => Self::None,
            Some(token) => Self::Plugin(Arc::new(Mutex::new(PluginToken { run, header: bearer(&token)?, expires_at }))),
        };
        Ok((credentials, identity))
    }

    /// The value of the header `Authorization` for a request that is sent now.
    pub async fn header(&self) -> Result<Option<HeaderValue>> {
        match self {
            Self::None => Ok(None),
            Self::Fixed(header) => Ok(Some(header.clone())),
            Self::File(file) => Ok(Some(file.lock().await.current(Instant::now()))),
            Self::Plugin(token) => {
                let mut token = token.lock().await;
                if token.expires_at.is_some_and(|expires_at| now() + BEFORE_EXPIRY >= expires_at) {
                    token.renew().await?;
                }
                Ok(Some(token.header.clone()))
            }
        }
    }

    pub async fn add_to(&self, headers: &mut HeaderMap) -> Result<()> {
        headers.extend(self.header().await?.map(|value| (AUTHORIZATION, value)));
        Ok(())
    }
}

impl TokenFile {
    fn open(path: PathBuf) -> Result<Self> {
        let header = Self::read(&path)?;
        Ok(Self { path, header, read_at: Instant::now() })
    }

    fn read(path: &PathBuf) -> Result<HeaderValue> {
        let token = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        bearer(&token)
    }

    /// If the file cannot be read again, the last token is used: the file may have been removed on purpose after the
    /// start.
    fn current(&mut self, now: Instant) -> HeaderValue {
        if now.saturating_duration_since(self.read_at) >= READ_AGAIN_AFTER {
            self.header = Self::read(&self.path).unwrap_or_else(|_| self.header.clone());
            self.read_at = now;
        }
        self.header.clone()
    }
}

impl PluginToken {
    async fn renew(&mut self) -> Result<()> {
        let run = self.run.clone();
        let answer = tokio::task::spawn_blocking(move || run.answer()).await;
        let answer = answer.context("the credential plugin was interrupted")??;
        let token = answer.token.context("the credential plugin no longer provides a token")?;
        self.header = bearer(&token)?;
        self.expires_at = answer.expires_at;
        Ok(())
    }
}

impl PluginRun {
    fn answer(&self) -> Result<PluginAnswer> {
        let CredentialPlugin { api_version, command, args, env, install_hint, interactive_mode, .. } = &self.plugin;
        let program = command.as_deref().context("the credential plugin (exec) of the kubeconfig has no command")?;
        let interactive = *interactive_mode != Some(InteractiveMode::Never) && std::io::stdin().is_terminal();
        let mut spec = json!({"interactive": interactive});
        if let Some(cluster) = &self.cluster {
            spec["cluster"] = cluster.clone();
        }
        let exec_info = json!({"kind": "ExecCredential", "apiVersion": api_version, "spec": spec});
        let mut command = Command::new(program);
        command.args(args.iter().flatten());
        command.envs(env.iter().flatten().map(|variable| (&variable.name, &variable.value)));
        command.env("KUBERNETES_EXEC_INFO", exec_info.to_string());
        command.stdin(if interactive { Stdio::inherit() } else { Stdio::null() });
        command.stdout(Stdio::piped());
        command.stderr(if interactive { Stdio::inherit() } else { Stdio::piped() });
        let hint = install_hint.iter().fold(String::new(), |_, hint| format!("; {}", hint.trim()));
        let cannot_run = || format!("cannot run the credential plugin {program}{hint}");
        let mut child = command.spawn().with_context(cannot_run)?;
        let stderr = child.stderr.take().map(|stderr| std::thread::spawn(move || read_all_keep_some(stderr)));
        let mut printed = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            // Closes the pipe at its end, which stops a plugin that prints more.
            stdout.take(OUTPUT_LIMIT + 1).read_to_end(&mut printed).with_context(cannot_run)?;
        }
        if printed.len() as u64 > OUTPUT_LIMIT {
            child.kill().and_then(|()| child.wait()).with_context(cannot_run)?;
            bail!(
                "the credential plugin {program} printed more than {OUTPUT_LIMIT} bytes; it must print one ExecCredential"
            );
        }
        let status = child.wait().with_context(cannot_run)?;
        if !status.success() {
            let message = stderr.and_then(|reader| reader.join().ok()).unwrap_or_default();
            bail!("the credential plugin {program} failed ({status}): {}", String::from_utf8_lossy(&message).trim());
        }
        read_answer(&printed).with_context(|| format!("the credential plugin {program} printed no credentials"))
    }
}

/// Reads to the end, so that the plugin is not blocked, and keeps what an error message can show.
fn read_all_keep_some(mut stderr: impl Read) -> Vec<u8> {
    let mut kept = Vec::new();
    // What cannot be read is missing from the message.
    let _ = stderr.by_ref().take(4096).read_to_end(&mut kept);
    let _ = std::io::copy(&mut stderr, &mut std::io::sink());
    kept
}

fn read_answer(printed: &[u8]) -> Result<PluginAnswer> {
    #[derive(Deserialize)]
    struct Printed {
        status: Option<Status>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Status {
        expiration_timestamp: Option<String>,
        token: Option<String>,
        client_certificate_data: Option<String>,
        client_key_data: Option<String>,
    }
    let printed: Printed = serde_saphyr::from_slice(printed)?;
    let status = printed.status.context("there is no status")?;
    let expires_at = status.expiration_timestamp.map(|text| Timestamp::parse(&text)).transpose();
    let identity = match (status.client_key_data, status.client_certificate_data) {
        (Some(key), Some(certificate)) => Some(format!("{key}\n{certificate}\n").into_bytes()),
        _ => None,
    };
    Ok(PluginAnswer { token: status.token, expires_at: expires_at.map_err(|why| anyhow!(why))?, identity })
}

fn bearer(token: &str) -> Result<HeaderValue> {
    secret(&format!("Bearer {}", token.trim()))
}

fn secret(text: &str) -> Result<HeaderValue> {
    // The error does not contain the text.
    let mut value =
        HeaderValue::from_str(text).context("the token or password contains characters that HTTP forbids")?;
    value.set_sensitive(true);
    Ok(value)
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_seconds(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// The headers with which a request acts for another user.
pub fn impersonation(user: &KubeconfigUser) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    let mut add = |name: &str, value: &str| -> Result<()> {
        headers.append(name.parse::<HeaderName>()?, value.parse()?);
        Ok(())
    };
    for (name, value) in [("impersonate-user", &user.as_user), ("impersonate-uid", &user.as_uid)] {
        value.iter().try_for_each(|value| add(name, value))?;
    }
    user.as_groups.iter().flatten().try_for_each(|group| add("impersonate-group", group))?;
    for (key, values) in user.as_user_extra.iter().flatten() {
        let name = format!("impersonate-extra-{}", escaped(key));
        values.iter().try_for_each(|value| add(&name, value))?;
    }
    Ok(headers)
}

/// What a header name may not contain is percent-encoded, and so is `%` itself.
fn escaped(key: &str) -> String {
    let mut name = String::new();
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte) {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02X}"));
        }
    }
    name
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    fn user(yaml: &str) -> KubeconfigUser {
        serde_saphyr::from_str(yaml).unwrap()
    }

    async fn header(yaml: &str) -> Result<String, String> {
        let (credentials, _) = Credentials::load(&user(yaml), None).map_err(|error| format!("{error:#}"))?;
        let header = credentials.header().await.map_err(|error| format!("{error:#}"))?;
        Ok(header.map_or("none".to_owned(), |value| value.to_str().unwrap().to_owned()))
    }

    #[tokio::test]
    async fn every_kind_of_credentials_gives_its_header() {
        for (yaml, expected) in [
            ("{}", "none"),
            ("{token: t}", "Bearer t"),
            ("{username: u, password: p}", "Basic dTpw"),
            ("{username: u, password: p, token: t}", "Basic dTpw"),
            ("{token: t, tokenFile: /nowhere}", "Bearer t"),
            ("{auth-provider: {name: oidc, config: {id-token: i}}}", "Bearer i"),
            ("{exec: {command: sh, args: [-c, \"echo '{status: {token: x}}'\"]}}", "Bearer x"),
            ("{exec: {command: sh, args: [-c, \"echo '{\\\"status\\\": {}}'\"]}}", "none"),
        ] {
            assert_eq!(header(yaml).await.as_deref(), Ok(expected), "{yaml}");
        }
        for (yaml, hint) in [
            ("{token: \"a\\nb\"}", "HTTP forbids"),
            ("{tokenFile: /nowhere}", "cannot read /nowhere"),
            ("{auth-provider: {name: gcp}}", "use a credential plugin"),
            ("{exec: {args: [a]}}", "no command"),
            ("{exec: {command: no-such-plugin, installHint: install it}}", "no-such-plugin; install it"),
            ("{exec: {command: sh, args: [-c, \"echo why >&2; exit 3\"]}}", "why"),
            ("{exec: {command: sh, args: [-c, \"echo '{}'\"]}}", "there is no status"),
            ("{exec: {command: sh, args: [-c, \"echo '{status: {expirationTimestamp: soon}}'\"]}}", "RFC 3339"),
        ] {
            let error = header(yaml).await.unwrap_err();
            assert!(error.contains(hint), "{yaml}: {error}");
        }
    }

    #[test]
    fn a_token_file_is_read_again_and_its_last_token_outlives_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, "first\n").unwrap();
        let mut file = TokenFile::open(path.clone()).unwrap();
        let start = file.read_at;
        std::fs::write(&path, "second\n").unwrap();
        assert_eq!(file.current(start + READ_AGAIN_AFTER - Duration::from_millis(1)), "Bearer first");
        assert_eq!(file.current(start + READ_AGAIN_AFTER), "Bearer second");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.current(start + READ_AGAIN_AFTER * 3), "Bearer second");
    }

    /// The plugin counts its runs, and prints what it is told.
    fn counting(directory: &std::path::Path, expires: &str) -> KubeconfigUser {
        let script = r#"echo run >> "$DIR/runs"; echo "$KUBERNETES_EXEC_INFO" > "$DIR/told"
            echo "{\"status\": {\"token\": \"$(wc -l < "$DIR/runs")\", \"expirationTimestamp\": \"$EXPIRES\"}}""#;
        let variable =
            |name: &str, value: &str| crate::kubeconfig::PluginVariable { name: name.into(), value: value.into() };
        let plugin = CredentialPlugin {
            api_version: Some("client.authentication.k8s.io/v1".into()),
            command: Some("sh".into()),
            args: Some(vec!["-c".into(), script.into()]),
            env: Some(vec![variable("DIR", directory.to_str().unwrap()), variable("EXPIRES", expires)]),
            provide_cluster_info: true,
            ..CredentialPlugin::default()
        };
        KubeconfigUser { exec: Some(plugin), ..KubeconfigUser::default() }
    }

    #[tokio::test]
    async fn a_plugin_that_prints_without_end_is_stopped() {
        let error = header("{exec: {command: 'yes'}}").await.unwrap_err();
        assert!(error.contains("the credential plugin yes printed more than 1048576 bytes"), "{error}");
        // Much on standard error blocks nothing, and the message shows its beginning.
        let noisy = "{exec: {command: sh, args: [-c, 'echo first >&2; seq 100000 >&2; exit 3']}}";
        let error = header(noisy).await.unwrap_err();
        assert!(error.contains("failed (exit status: 3): first"), "{error}");
        assert!(error.len() < 5_000, "{}", error.len());
    }

    #[tokio::test]
    async fn a_plugin_runs_again_only_when_its_token_expires() {
        let directory = tempfile::tempdir().unwrap();
        let cluster = json!({"server": "https://there"});
        for (expires, tokens) in [("2100-01-01T00:00:00Z", ["1", "1"]), ("2020-01-01T00:00:00Z", ["3", "4"])] {
            let user = counting(directory.path(), expires);
            let (credentials, _) = Credentials::load(&user, Some(cluster.clone())).unwrap();
            for token in tokens {
                assert_eq!(credentials.header().await.unwrap().unwrap(), format!("Bearer {token}"), "{expires}");
            }
        }
        let told = std::fs::read_to_string(directory.path().join("told")).unwrap();
        let mut told: Value = serde_json::from_str(&told).unwrap();
        told["spec"]["interactive"] = Value::Null;
        let version = "client.authentication.k8s.io/v1";
        let spec = json!({"interactive": null, "cluster": {"server": "https://there"}});
        assert_eq!(told, json!({"kind": "ExecCredential", "apiVersion": version, "spec": spec}));
    }

    #[test]
    fn a_plugin_may_provide_a_certificate() {
        let answer = read_answer(br#"{"status": {"clientKeyData": "k", "clientCertificateData": "c"}}"#).unwrap();
        assert_eq!(answer.identity.unwrap(), b"k\nc\n");
    }

    #[test]
    fn a_user_acts_for_another_one() {
        let user = user("{as: me, as-uid: '7', as-groups: [a, b], as-user-extra: {x.io/%: [1, 2]}}");
        let headers = impersonation(&user).unwrap();
        let mut found: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect();
        found.sort();
        let expected = [
            "impersonate-extra-x.io%2f%25=1",
            "impersonate-extra-x.io%2f%25=2",
            "impersonate-group=a",
            "impersonate-group=b",
            "impersonate-uid=7",
            "impersonate-user=me",
        ];
        assert_eq!(found, expected);
    }
}
