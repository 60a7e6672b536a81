//! Kinds with few rules of their own.

use crate::kinds::Rules;

pub mod event;

pub use event::{EventRules, NewEventRules};

pub struct NamespaceRules;
pub struct NodeRules;
pub struct LeaseRules;
pub struct SecretRules;
pub struct ConfigMapRules;
pub struct ServiceRules;
pub struct ServiceAccountRules;
pub struct EndpointsRules;
pub struct PersistentVolumeClaimRules;
pub struct PodDisruptionBudgetRules;
pub struct PriorityClassRules;
pub struct DeploymentRules;
pub struct ReplicaSetRules;
pub struct StatefulSetRules;
pub struct DaemonSetRules;
pub struct ReplicationControllerRules;
pub struct PodTemplateRules;
pub struct LimitRangeRules;
/// Deployments, ReplicaSets and so on have rules of their own above.
pub struct WorkloadRules;
/// Roles, RoleBindings and those of the cluster.
pub struct RbacRules;
/// Everything else.
pub struct OrdinaryRules;

impl Rules for NamespaceRules {}
impl Rules for NodeRules {}
impl Rules for LeaseRules {}
impl Rules for SecretRules {}
impl Rules for ConfigMapRules {}
impl Rules for ServiceRules {}
impl Rules for ServiceAccountRules {}
impl Rules for EndpointsRules {}
impl Rules for PersistentVolumeClaimRules {}
impl Rules for PodDisruptionBudgetRules {}
impl Rules for PriorityClassRules {}
impl Rules for DeploymentRules {}
impl Rules for ReplicaSetRules {}
impl Rules for StatefulSetRules {}
impl Rules for DaemonSetRules {}
impl Rules for ReplicationControllerRules {}
impl Rules for PodTemplateRules {}
impl Rules for LimitRangeRules {}
impl Rules for WorkloadRules {}
impl Rules for RbacRules {}
impl Rules for OrdinaryRules {}
