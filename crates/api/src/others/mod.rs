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
/// Deployments, ReplicaSets, StatefulSets, DaemonSets, ReplicationControllers.
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
impl Rules for WorkloadRules {}
impl Rules for RbacRules {}
impl Rules for OrdinaryRules {}
