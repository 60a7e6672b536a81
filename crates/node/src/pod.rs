//! The fields of a Pod that the node uses. Other fields are not decoded.

use std::collections::BTreeMap;

use compact_str::CompactString;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tally_core::ids::{PodUid, Revision};
use tally_core::indexes::task_index;
use tally_core::pod::Phase;
use tally_core::pod::{INDEX_ANNOTATION, RETRY_INDEXES_ANNOTATION};
use tally_core::quantity::Quantity;
use tally_core::time::Timestamp;
use tally_runtime::controller::Object;

use crate::security::Fields;

pub type Labels = BTreeMap<CompactString, String>;
/// Quantities as they are written, by resource.
pub type Resources = BTreeMap<CompactString, Value>;

#[derive(Clone, Debug, Deserialize)]
pub struct Pod {
    pub metadata: Metadata,
    #[serde(default)]
    pub spec: Spec,
    #[serde(default)]
    pub status: Status,
    /// What is invalid, if the node cannot decode the Pod. Such a Pod has no containers.
    #[serde(skip)]
    pub unreadable: Option<String>,
}

impl Pod {
    /// None: the Pod cannot even be identified.
    pub fn read(object: &Object) -> Option<Self> {
        if let Ok(pod) = object.read() {
            return Some(pod);
        }
        // A null means that a field is not set, wherever it occurs. It is rare, so it is handled in a second pass.
        let mut object: Value = serde_json::from_slice(object).ok()?;
        drop_nulls(&mut object);
        match Self::deserialize(&object) {
            Ok(pod) => Some(pod),
            Err(problem) => Self::stand_in(&object, problem.to_string()),
        }
    }

    /// Enough of the Pod to report what is invalid, and to remove it.
    fn stand_in(object: &Value, problem: String) -> Option<Self> {
        let node_name = object["spec"]["nodeName"].as_str().unwrap_or_default().into();
        let phase = Status { phase: phase(&object["status"]["phase"]).unwrap_or_default(), ..Status::default() };
        Some(Self {
            metadata: Metadata::deserialize(&object["metadata"]).ok()?,
            spec: Spec { node_name, ..Spec::default() },
            status: Status::deserialize(&object["status"]).unwrap_or(phase),
            unreadable: Some(problem),
        })
    }

    pub fn uid(&self) -> &PodUid {
        &self.metadata.uid
    }

    /// The index that its task is told, in its own Job or in the one whose failed indexes are run again.
    pub fn task_index(&self) -> Option<u32> {
        let annotations = &self.metadata.annotations;
        let retried = annotations.get(RETRY_INDEXES_ANNOTATION).map(String::as_str);
        task_index(annotations.get(INDEX_ANNOTATION)?, retried)
    }

    /// None: the Pod is not being deleted. Some(0): it must end now.
    pub fn grace(&self) -> Option<i64> {
        self.metadata.deletion_timestamp?;
        Some(self.metadata.deletion_grace_period_seconds.unwrap_or(0).max(0))
    }

    /// The init containers and sidecars, then the main containers.
    pub fn containers(&self) -> impl Iterator<Item = (Role, &Container)> {
        let init = self.spec.init_containers.iter().map(|container| {
            let stays = container.restart_policy.as_deref() == Some("Always");
            (if stays { Role::Sidecar } else { Role::Init }, container)
        });
        init.chain(self.spec.containers.iter().map(|container| (Role::Main, container)))
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs to completion before the next container starts.
    Init,
    /// An init container that runs as long as the main containers.
    Sidecar,
    Main,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    #[serde(default)]
    pub namespace: CompactString,
    pub name: CompactString,
    pub uid: PodUid,
    #[serde(deserialize_with = "revision")]
    pub resource_version: Revision,
    #[serde(default)]
    pub generation: i64,
    #[serde(default)]
    pub labels: Labels,
    #[serde(default)]
    pub annotations: Labels,
    #[serde(default)]
    pub finalizers: Vec<CompactString>,
    pub deletion_timestamp: Option<Timestamp>,
    pub deletion_grace_period_seconds: Option<i64>,
}

pub(crate) fn revision<'de, D: Deserializer<'de>>(from: D) -> Result<Revision, D::Error> {
    let text = CompactString::deserialize(from)?;
    text.parse().map(Revision).map_err(|_| serde::de::Error::custom("a resourceVersion is a number here"))
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    pub node_name: CompactString,
    pub containers: Vec<Container>,
    pub init_containers: Vec<Container>,
    pub restart_policy: RestartPolicy,
    pub active_deadline_seconds: Option<i64>,
    pub termination_grace_period_seconds: Option<i64>,
    pub volumes: Vec<Volume>,
    pub hostname: CompactString,
    pub host_network: bool,
    pub service_account_name: CompactString,
    pub security_context: Fields,
    #[serde(rename = "hostPID")]
    pub host_pid: bool,
    #[serde(rename = "hostIPC")]
    pub host_ipc: bool,
    pub share_process_namespace: Option<bool>,
    pub host_users: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum RestartPolicy {
    #[default]
    Always,
    OnFailure,
    Never,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    pub name: CompactString,
    pub image: CompactString,
    pub command: Vec<String>,
    pub args: Vec<String>,
    pub working_dir: String,
    pub restart_policy: Option<CompactString>,
    pub restart_policy_rules: Vec<RestartRule>,
    pub env: Vec<EnvVar>,
    pub env_from: Vec<EnvFrom>,
    pub ports: Vec<Port>,
    pub resources: Requirements,
    pub volume_mounts: Vec<VolumeMount>,
    pub startup_probe: Option<Probe>,
    pub readiness_probe: Option<Probe>,
    pub liveness_probe: Option<Probe>,
    pub lifecycle: Lifecycle,
    pub security_context: Fields,
    pub stdin: bool,
    pub stdin_once: bool,
    pub tty: bool,
    pub termination_message_path: String,
    pub termination_message_policy: CompactString,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestartRule {
    pub action: CompactString,
    pub exit_codes: Option<ExitCodes>,
}

impl RestartRule {
    pub fn matches(&self, code: i32) -> bool {
        self.exit_codes.as_ref().is_some_and(|codes| match codes.operator.as_str() {
            "In" => codes.values.contains(&code),
            "NotIn" => !codes.values.contains(&code),
            _ => false,
        })
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ExitCodes {
    pub operator: CompactString,
    pub values: Vec<i32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvVar {
    pub name: String,
    pub value: String,
    pub value_from: Option<EnvSource>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvSource {
    pub field_ref: Option<FieldRef>,
    pub resource_field_ref: Option<ResourceFieldRef>,
    pub config_map_key_ref: Option<KeyRef>,
    pub secret_key_ref: Option<KeyRef>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FieldRef {
    pub field_path: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceFieldRef {
    pub container_name: CompactString,
    pub resource: String,
    pub divisor: Option<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct KeyRef {
    pub name: CompactString,
    pub key: String,
    pub optional: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvFrom {
    pub prefix: String,
    pub config_map_ref: Option<NameRef>,
    pub secret_ref: Option<NameRef>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NameRef {
    pub name: CompactString,
    pub optional: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    pub name: CompactString,
    pub container_port: u16,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Requirements {
    pub limits: Resources,
    pub requests: Resources,
}

/// None: the value is missing or invalid.
pub fn quantity(written: Option<&Value>) -> Option<Quantity> {
    match written? {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeMount {
    pub name: CompactString,
    pub mount_path: String,
    pub sub_path: String,
    pub sub_path_expr: String,
    pub read_only: bool,
    pub recursive_read_only: Option<CompactString>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Probe {
    #[serde(flatten)]
    pub handler: Handler,
    pub initial_delay_seconds: i64,
    pub period_seconds: Option<i64>,
    pub timeout_seconds: Option<i64>,
    pub success_threshold: Option<u32>,
    pub failure_threshold: Option<u32>,
    pub termination_grace_period_seconds: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Handler {
    pub exec: Option<Exec>,
    pub http_get: Option<HttpGet>,
    pub tcp_socket: Option<TcpSocket>,
    pub sleep: Option<Sleep>,
    pub grpc: Option<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Exec {
    pub command: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpGet {
    pub scheme: CompactString,
    pub host: String,
    pub port: Value,
    pub path: String,
    pub http_headers: Vec<Header>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Header {
    pub name: String,
    pub value: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct TcpSocket {
    pub host: String,
    pub port: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Sleep {
    pub seconds: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Lifecycle {
    pub post_start: Option<Handler>,
    pub pre_stop: Option<Handler>,
    pub stop_signal: Option<CompactString>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    pub name: CompactString,
    pub empty_dir: Option<EmptyDir>,
    pub host_path: Option<HostPath>,
    pub config_map: Option<ConfigMapVolume>,
    pub secret: Option<SecretVolume>,
    #[serde(rename = "downwardAPI")]
    pub downward_api: Option<DownwardVolume>,
    pub projected: Option<Projected>,
    pub persistent_volume_claim: Option<ClaimVolume>,
    /// Kinds of volumes that this node does not support; only the names matter.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimVolume {
    pub claim_name: CompactString,
    pub read_only: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EmptyDir {
    pub medium: CompactString,
    pub size_limit: Option<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct HostPath {
    pub path: String,
    #[serde(rename = "type")]
    pub kind: CompactString,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigMapVolume {
    pub name: CompactString,
    pub items: Vec<Item>,
    pub default_mode: Option<u32>,
    pub optional: bool,
}

/// A volume of its own has `secretName`, a projected source has `name`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecretVolume {
    #[serde(alias = "name")]
    pub secret_name: CompactString,
    pub items: Vec<Item>,
    pub default_mode: Option<u32>,
    pub optional: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Item {
    pub key: String,
    pub path: String,
    pub mode: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DownwardVolume {
    pub items: Vec<DownwardItem>,
    pub default_mode: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DownwardItem {
    pub path: String,
    pub field_ref: Option<FieldRef>,
    pub resource_field_ref: Option<ResourceFieldRef>,
    pub mode: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Projected {
    pub sources: Vec<Projection>,
    pub default_mode: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Projection {
    pub config_map: Option<ConfigMapVolume>,
    pub secret: Option<SecretVolume>,
    #[serde(rename = "downwardAPI")]
    pub downward_api: Option<DownwardVolume>,
    pub service_account_token: Option<TokenProjection>,
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// A token of the Pod's service account, as a file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TokenProjection {
    /// "" for the API server.
    pub audience: CompactString,
    pub expiration_seconds: i64,
    pub path: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    #[serde(deserialize_with = "phase")]
    pub phase: Phase,
    pub start_time: Option<Timestamp>,
    pub conditions: Vec<Condition>,
    pub container_statuses: Vec<ContainerStatus>,
    pub init_container_statuses: Vec<ContainerStatus>,
}

fn phase<'de, D: Deserializer<'de>>(from: D) -> Result<Phase, D::Error> {
    let text = Option::<CompactString>::deserialize(from)?;
    Ok(match text.as_deref() {
        Some("Running") => Phase::Running,
        Some("Succeeded") => Phase::Succeeded,
        Some("Failed") => Phase::Failed,
        _ => Phase::Pending,
    })
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: CompactString,
    pub status: CompactString,
    pub reason: CompactString,
    pub message: String,
    pub last_transition_time: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    pub name: CompactString,
    pub restart_count: u32,
    #[serde(rename = "containerID")]
    pub container_id: String,
    pub state: ContainerState,
    pub last_state: ContainerState,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    pub running: Option<ContainerStateRunning>,
    pub terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStateRunning {
    pub started_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    pub exit_code: i32,
    pub signal: Option<i32>,
    pub reason: CompactString,
    pub message: String,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    #[serde(rename = "containerID")]
    pub container_id: String,
}
