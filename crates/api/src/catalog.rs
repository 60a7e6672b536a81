//! The served resources: one row each, and how they are found.
//!
//! The table is the only place that lists the kinds. Routing, discovery, storage and the rules of an object all start
//! from its row.

use crate::cronjob::CronJobRules;
use crate::job::JobRules;
use crate::kinds::{Resource, Rules, Subresource};
use crate::others::{
    ConfigMapRules, EventRules, LeaseRules, LimitRangeRules, NamespaceRules, NewEventRules, NodeRules, OrdinaryRules,
    PersistentVolumeClaimRules, PodDisruptionBudgetRules, PriorityClassRules, ResourceQuotaRules, RoleBindingRules,
    RoleRules, SecretRules, ServiceAccountRules, ServiceRules, StoredOnlyRules,
};
use crate::pod::PodRules;

pub mod discovery;

/// Every resource: the core group first, then the other groups in the order of discovery, each in order of names.
pub fn resources() -> &'static [&'static Resource] {
    RESOURCES
}

pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    let found = |r: &&Resource| r.plural == plural && r.group == group && r.version == version;
    resources().iter().copied().find(found)
}

/// The resource whose objects are of this kind.
pub fn find_kind(group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
    let found = |r: &&Resource| r.kind == kind && r.group == group && r.version == version;
    resources().iter().copied().find(found)
}

/// Whether the resource has no stored objects: reviews, the collection of bindings, and figures.
pub fn is_virtual(resource: &Resource) -> bool {
    resource.storage.is_empty()
}

/// Whether the objects are figures of what Pods and nodes use, which are measured when they are asked for.
pub fn is_measured(resource: &Resource) -> bool {
    resource.group == METRICS
}

/// The deprecation warning that every response for this resource contains.
pub fn deprecation(resource: &Resource) -> Option<&'static str> {
    let endpoints = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";
    (resource.group.is_empty() && resource.plural == "endpoints").then_some(endpoints)
}

/// The named groups, in the order of discovery.
pub fn groups() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().copied()
}

/// The version of a group. Each has one.
pub fn version_of(group: &str) -> &'static str {
    if group == METRICS { "v1beta1" } else { "v1" }
}

const CORE: &str = "";
const APPS: &str = "apps";
const EVENTS: &str = "events.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const BATCH: &str = "batch";
const POLICY: &str = "policy";
const RBAC: &str = "rbac.authorization.k8s.io";
const SCHEDULING: &str = "scheduling.k8s.io";
/// Not a group that is served: only its Scale is used.
const AUTOSCALING: &str = "autoscaling";
const COORDINATION: &str = "coordination.k8s.io";
const METRICS: &str = "metrics.k8s.io";

const GROUPS: &[&str] =
    &[APPS, EVENTS, AUTHENTICATION, AUTHORIZATION, BATCH, POLICY, RBAC, SCHEDULING, COORDINATION, METRICS];

const ALL_VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// Namespaces cannot be deleted as a collection.
const NO_COLLECTION: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const CREATE: &[&str] = &["create"];
/// Streams to and from a Pod.
const CONNECT: &[&str] = &["create", "get"];

/// The category that `kubectl get all` shows.
const ALL: &[&str] = &["all"];

/// A row with the usual values: namespaced, every verb, stored under its plural.
const fn resource(
    group: &'static str,
    kind: &'static str,
    names: [&'static str; 2],
    rules: &'static dyn Rules,
) -> Resource {
    let [plural, singular] = names;
    Resource {
        group,
        version: "v1",
        kind,
        plural,
        singular,
        short_names: &[],
        categories: &[],
        namespaced: true,
        verbs: ALL_VERBS,
        subresources: &[],
        storage: plural,
        create_on_update: false,
        orphans_by_default: false,
        delete_returns_object: false,
        rules,
    }
}

/// The row of a review: clients create it, and nothing is stored.
const fn question(group: &'static str, kind: &'static str, names: [&'static str; 2]) -> Resource {
    Resource { verbs: CREATE, storage: "", namespaced: false, ..resource(group, kind, names, &OrdinaryRules) }
}

/// The row of figures: they are measured when a client reads them, and nothing is stored. Their names are those of what is
/// measured, so that `kubectl get` finds that.
const fn figures(kind: &'static str, plural: &'static str) -> Resource {
    Resource {
        version: "v1beta1",
        verbs: &["get", "list"],
        storage: "",
        ..resource(METRICS, kind, [plural, ""], &OrdinaryRules)
    }
}

const fn sub(name: &'static str, kind: &'static str, verbs: &'static [&'static str]) -> Subresource {
    Subresource { name, kind, group_version: None, verbs }
}

const fn status(kind: &'static str) -> Subresource {
    sub("status", kind, &["get", "patch", "update"])
}

/// How many Pods an object of another kind has. It is a subresource only, and is not stored.
pub(crate) static SCALE: Resource =
    Resource { namespaced: true, ..question(AUTOSCALING, "Scale", ["scales", "scale"]) };

/// The subresource of kinds that have a number of Pods.
const fn scale() -> Subresource {
    Subresource { group_version: Some((AUTOSCALING, "v1")), ..sub("scale", "Scale", &["get", "patch", "update"]) }
}

static ROLES: RoleRules = RoleRules { namespaced: true };
static CLUSTER_ROLES: RoleRules = RoleRules { namespaced: false };
static ROLE_BINDINGS: RoleBindingRules = RoleBindingRules { namespaced: true };
static CLUSTER_ROLE_BINDINGS: RoleBindingRules = RoleBindingRules { namespaced: false };

static RESOURCES: &[&Resource] = &[
    &Resource { namespaced: true, ..question(CORE, "Binding", ["bindings", "binding"]) },
    &Resource { short_names: &["cm"], ..resource(CORE, "ConfigMap", ["configmaps", "configmap"], &ConfigMapRules) },
    &Resource {
        short_names: &["ep"],
        create_on_update: true,
        ..resource(CORE, "Endpoints", ["endpoints", "endpoints"], &OrdinaryRules)
    },
    &Resource {
        short_names: &["ev"],
        create_on_update: true,
        ..resource(CORE, "Event", ["events", "event"], &EventRules)
    },
    &Resource {
        short_names: &["limits"],
        create_on_update: true,
        ..resource(CORE, "LimitRange", ["limitranges", "limitrange"], &LimitRangeRules)
    },
    &Resource {
        short_names: &["ns"],
        namespaced: false,
        verbs: NO_COLLECTION,
        subresources: &[sub("finalize", "Namespace", &["update"]), status("Namespace")],
        delete_returns_object: true,
        ..resource(CORE, "Namespace", ["namespaces", "namespace"], &NamespaceRules)
    },
    &Resource {
        short_names: &["no"],
        namespaced: false,
        subresources: &[status("Node")],
        ..resource(CORE, "Node", ["nodes", "node"], &NodeRules)
    },
    &Resource {
        short_names: &["pvc"],
        subresources: &[status("PersistentVolumeClaim")],
        delete_returns_object: true,
        ..resource(
            CORE,
            "PersistentVolumeClaim",
            ["persistentvolumeclaims", "persistentvolumeclaim"],
            &PersistentVolumeClaimRules,
        )
    },
    &Resource {
        short_names: &["po"],
        categories: ALL,
        subresources: &[
            sub("attach", "PodAttachOptions", CONNECT),
            sub("binding", "Binding", CREATE),
            Subresource { group_version: Some((POLICY, "v1")), ..sub("eviction", "Eviction", CREATE) },
            sub("exec", "PodExecOptions", CONNECT),
            sub("log", "Pod", &["get"]),
            sub("portforward", "PodPortForwardOptions", CONNECT),
            status("Pod"),
        ],
        delete_returns_object: true,
        ..resource(CORE, "Pod", ["pods", "pod"], &PodRules)
    },
    &Resource {
        delete_returns_object: true,
        ..resource(CORE, "PodTemplate", ["podtemplates", "podtemplate"], &OrdinaryRules)
    },
    &Resource {
        short_names: &["rc"],
        categories: ALL,
        subresources: &[scale(), status("ReplicationController")],
        orphans_by_default: true,
        ..resource(
            CORE,
            "ReplicationController",
            ["replicationcontrollers", "replicationcontroller"],
            &StoredOnlyRules { kind: "ReplicationController" },
        )
    },
    &Resource {
        short_names: &["quota"],
        subresources: &[status("ResourceQuota")],
        delete_returns_object: true,
        ..resource(CORE, "ResourceQuota", ["resourcequotas", "resourcequota"], &ResourceQuotaRules)
    },
    &resource(CORE, "Secret", ["secrets", "secret"], &SecretRules),
    &Resource {
        short_names: &["sa"],
        subresources: &[Subresource {
            group_version: Some((AUTHENTICATION, "v1")),
            ..sub("token", "TokenRequest", CREATE)
        }],
        delete_returns_object: true,
        ..resource(CORE, "ServiceAccount", ["serviceaccounts", "serviceaccount"], &ServiceAccountRules)
    },
    &Resource {
        short_names: &["svc"],
        categories: ALL,
        subresources: &[status("Service")],
        delete_returns_object: true,
        create_on_update: true,
        ..resource(CORE, "Service", ["services", "service"], &ServiceRules)
    },
    &Resource {
        short_names: &["ds"],
        categories: ALL,
        subresources: &[status("DaemonSet")],
        ..resource(APPS, "DaemonSet", ["daemonsets", "daemonset"], &StoredOnlyRules { kind: "DaemonSet" })
    },
    &Resource {
        short_names: &["deploy"],
        categories: ALL,
        subresources: &[scale(), status("Deployment")],
        ..resource(APPS, "Deployment", ["deployments", "deployment"], &StoredOnlyRules { kind: "Deployment" })
    },
    &Resource {
        short_names: &["rs"],
        categories: ALL,
        subresources: &[scale(), status("ReplicaSet")],
        ..resource(APPS, "ReplicaSet", ["replicasets", "replicaset"], &StoredOnlyRules { kind: "ReplicaSet" })
    },
    &Resource {
        short_names: &["sts"],
        categories: ALL,
        subresources: &[scale(), status("StatefulSet")],
        ..resource(APPS, "StatefulSet", ["statefulsets", "statefulset"], &StoredOnlyRules { kind: "StatefulSet" })
    },
    &Resource {
        short_names: &["ev"],
        create_on_update: true,
        ..resource(EVENTS, "Event", ["events", "event"], &NewEventRules)
    },
    &question(AUTHENTICATION, "SelfSubjectReview", ["selfsubjectreviews", "selfsubjectreview"]),
    &question(AUTHENTICATION, "TokenReview", ["tokenreviews", "tokenreview"]),
    &Resource {
        namespaced: true,
        ..question(AUTHORIZATION, "LocalSubjectAccessReview", ["localsubjectaccessreviews", "localsubjectaccessreview"])
    },
    &question(AUTHORIZATION, "SelfSubjectAccessReview", ["selfsubjectaccessreviews", "selfsubjectaccessreview"]),
    &question(AUTHORIZATION, "SelfSubjectRulesReview", ["selfsubjectrulesreviews", "selfsubjectrulesreview"]),
    &question(AUTHORIZATION, "SubjectAccessReview", ["subjectaccessreviews", "subjectaccessreview"]),
    &Resource {
        short_names: &["cj"],
        categories: ALL,
        subresources: &[status("CronJob")],
        ..resource(BATCH, "CronJob", ["cronjobs", "cronjob"], &CronJobRules)
    },
    &Resource {
        categories: ALL,
        subresources: &[status("Job")],
        orphans_by_default: true,
        ..resource(BATCH, "Job", ["jobs", "job"], &JobRules)
    },
    &Resource {
        short_names: &["pdb"],
        subresources: &[status("PodDisruptionBudget")],
        ..resource(
            POLICY,
            "PodDisruptionBudget",
            ["poddisruptionbudgets", "poddisruptionbudget"],
            &PodDisruptionBudgetRules,
        )
    },
    &Resource {
        namespaced: false,
        create_on_update: true,
        ..resource(RBAC, "ClusterRoleBinding", ["clusterrolebindings", "clusterrolebinding"], &CLUSTER_ROLE_BINDINGS)
    },
    &Resource {
        namespaced: false,
        create_on_update: true,
        ..resource(RBAC, "ClusterRole", ["clusterroles", "clusterrole"], &CLUSTER_ROLES)
    },
    &Resource {
        create_on_update: true,
        ..resource(RBAC, "RoleBinding", ["rolebindings", "rolebinding"], &ROLE_BINDINGS)
    },
    &Resource { create_on_update: true, ..resource(RBAC, "Role", ["roles", "role"], &ROLES) },
    &Resource {
        short_names: &["pc"],
        namespaced: false,
        ..resource(SCHEDULING, "PriorityClass", ["priorityclasses", "priorityclass"], &PriorityClassRules)
    },
    &Resource { create_on_update: true, ..resource(COORDINATION, "Lease", ["leases", "lease"], &LeaseRules) },
    &Resource { namespaced: false, ..figures("NodeMetrics", "nodes") },
    &figures("PodMetrics", "pods"),
];
