//! The manifests as kustomize and Helm render them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// What a user would install, and how it was rendered.
pub struct Rendering {
    pub title: String,
    pub namespace: &'static str,
    /// The controllers that it runs.
    pub controllers: &'static [&'static str],
    /// The Jobs it serves; `None`: those without the field.
    pub managed_by: Option<&'static str>,
    pub objects: Vec<Value>,
}

impl Rendering {
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    /// The only object of a kind.
    pub fn the(&self, kind: &str) -> &Value {
        let mut found = self.of_kind(kind);
        let one = found.next().unwrap_or_else(|| panic!("{}: no {kind}", self.title));
        assert!(found.next().is_none(), "{}: more than one {kind}", self.title);
        one
    }

    pub fn container(&self) -> &Value {
        &self.the("Deployment")["spec"]["template"]["spec"]["containers"][0]
    }

    pub fn arguments(&self) -> Vec<&str> {
        self.container()["args"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect()
    }
}

const TALLY: Option<&str> = Some("tally.dev/job-controller");
const BESIDE: &[&str] = &["after", "job"];
const IN_PLACE: &[&str] = &["after", "job", "ttl"];

pub fn all() -> impl Iterator<Item = &'static Rendering> {
    kustomized().iter().chain(charts())
}

/// The overlays, each with and without the optional components.
pub fn kustomized() -> &'static [Rendering] {
    static ONCE: OnceLock<Vec<Rendering>> = OnceLock::new();
    ONCE.get_or_init(render_overlays)
}

fn render_overlays() -> Vec<Rendering> {
    let rows: [(&str, &[&str], _, _); 4] = [
        ("beside", &[], BESIDE, TALLY),
        ("beside", &["protect-status-beside", "service-monitor", "alerts"], BESIDE, TALLY),
        ("in-place", &[], IN_PLACE, None),
        ("in-place", &["protect-status-in-place", "service-monitor", "alerts"], IN_PLACE, None),
    ];
    let render = |(overlay, components, controllers, managed_by): (&str, &[&str], _, _)| Rendering {
        title: format!("kustomize {overlay} {components:?}"),
        namespace: "tally-system",
        controllers,
        managed_by,
        objects: kustomize(overlay, components),
    };
    rows.map(render).into()
}

/// The chart with the values that users set. The first rows have the release and namespace of the overlays.
pub fn charts() -> &'static [Rendering] {
    static ONCE: OnceLock<Vec<Rendering>> = OnceLock::new();
    ONCE.get_or_init(render_charts)
}

fn render_charts() -> Vec<Rendering> {
    let everything = "protectStatus.enabled=true,serviceMonitor.enabled=true,prometheusRule.enabled=true";
    let busy = "qps=50,burst=100,replicas=3,image.repository=registry.example.com/tally,image.tag=1.2.3,\
                image.pullPolicy=Always,imagePullSecrets[0].name=pull,priorityClassName=system-node-critical,\
                nodeSelector.disk=ssd,tolerations[0].operator=Exists,podAnnotations.a=b,serviceAccount.annotations.c=d,\
                serviceMonitor.enabled=true,serviceMonitor.labels.team=batch,prometheusRule.enabled=true,protectStatus.enabled=true,\
                protectStatus.alsoAllow[0]=system:serviceaccount:kueue-system:kueue-controller-manager";
    let rows = [
        ("tally", "tally-system", String::new(), BESIDE, TALLY),
        ("tally", "tally-system", everything.to_owned(), BESIDE, TALLY),
        ("tally", "tally-system", "managedBy=".to_owned(), IN_PLACE, None),
        ("tally", "tally-system", format!("managedBy=,{everything}"), IN_PLACE, None),
        ("batch", "other", format!("managedBy=example.com/tally,{busy}"), BESIDE, Some("example.com/tally")),
        ("batch", "other", "controllers={ttl}".to_owned(), &["ttl"], TALLY),
    ];
    let Some(helm) = helm() else { return Vec::new() };
    let render = |(release, namespace, values, controllers, managed_by): (&str, _, String, _, _)| Rendering {
        title: format!("helm template {release} --set {values}"),
        namespace,
        controllers,
        managed_by,
        objects: template(&helm, release, namespace, &values),
    };
    rows.map(render).into()
}

fn kustomize(overlay: &str, components: &[&str]) -> Vec<Value> {
    // A layer on top, as a user who installs it would write one.
    let directory = super::support::server::directory();
    let copied = Command::new("cp").arg("-r").arg(deploy().join("kustomize")).arg(directory.path()).status();
    assert!(copied.expect("cp").success());
    let layer = directory.path().join("kustomize/layer");
    std::fs::create_dir(&layer).unwrap();
    let list: String = components.iter().map(|name| format!("- ../components/{name}\n")).collect();
    let text = format!("resources:\n- ../overlays/{overlay}\ncomponents:\n{list}");
    std::fs::write(layer.join("kustomization.yaml"), text).unwrap();
    let mut command = Command::new(kubectl());
    documents(&succeeds(command.arg("kustomize").arg(&layer)))
}

fn template(helm: &Path, release: &str, namespace: &str, values: &str) -> Vec<Value> {
    let mut command = Command::new(helm);
    command.args(["template", release]).arg(chart()).args(["--namespace", namespace, "--kube-version", "1.36.4"]);
    documents(&succeeds(command.args(["--set", values])))
}

pub fn documents(yaml: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap_or_else(|error| panic!("{error}\n{yaml}"));
    all.into_iter().filter(|one| !one.is_null()).collect()
}

/// The embedded server's warning about Deployments: it runs none, and the objects are for a cluster that does.
pub const STORED_ONLY: &str = "this server only stores a Deployment";

pub fn succeeds(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().expect("it starts");
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {out}{err}");
    // For example, a warning about a deprecated field.
    let mut warnings =
        err.lines().filter(|line| line.to_lowercase().contains("warning") && !line.contains(STORED_ONLY));
    assert_eq!(warnings.next(), None, "{command:?}: {err}");
    out.into_owned()
}

pub fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

pub fn chart() -> PathBuf {
    deploy().join("helm/tally")
}

/// A kubectl that supports components; the one in the PATH may be older.
pub fn kubectl() -> PathBuf {
    tool("KUBECTL", "kubectl", "tools/bin")
        .expect("these tests need kubectl 1.21 or newer: run `make tools`, or set KUBECTL to one")
}

/// The helm package exists only for x86-64; on other machines the user can set HELM.
pub fn helm() -> Option<PathBuf> {
    let found = tool("HELM", "helm", "tools/helm/bin");
    assert!(found.is_some() || !cfg!(target_arch = "x86_64"), "these tests need helm: run `make tools`, or set HELM");
    found
}

pub fn tool(variable: &str, name: &str, installed: &str) -> Option<PathBuf> {
    if let Some(program) = std::env::var_os(variable) {
        return Some(program.into());
    }
    let build = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is inside the build directory");
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&directories).map(|directory| directory.join(name));
    std::iter::once(build.join(installed).join(name)).chain(in_path).find(|program| program.exists())
}
