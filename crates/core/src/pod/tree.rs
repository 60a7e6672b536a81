//! The fields of a Pod, from its tree: each map is walked once.
//!
//! Only what is usual is read here. None: something is of another type than the API has, or null where that says something,
//! and the caller reads the tree as it reads a text.

use super::*;

/// A function that reads a map: what is under which name becomes which field, and how. A field that is null is absent.
macro_rules! reads {
    ($made:ident as $function:ident { $($name:pat => $field:ident: $read:expr,)* }) => {
        pub(super) fn $function(value: &Value) -> Option<$made<'_>> {
            let mut made = $made::default();
            for (name, value) in value.as_object()? {
                if value.is_null() {
                    continue;
                }
                match name.as_str() {
                    $($name => made.$field = $read(value)?.into(),)*
                    _ => {}
                }
            }
            Some(made)
        }
    };
}

reads!(WirePod as pod {
    "metadata" => metadata: metadata,
    "spec" => spec: spec,
    "status" => status: status,
});

reads!(WireMeta as metadata {
    "uid" => uid: |value: &Value| value.as_str().map(PodUid::new),
    "namespace" => namespace: text,
    "name" => name: text,
    "resourceVersion" => resource_version: text,
    "generation" => generation: |value: &Value| Some(value.as_i64()),
    "creationTimestamp" => creation_timestamp: time,
    "deletionTimestamp" => deletion_timestamp: time,
    "deletionGracePeriodSeconds" => deletion_grace_period_seconds: Value::as_i64,
    "labels" => labels: labels,
    "annotations" => annotations: annotations,
    "finalizers" => finalizers: |value| list(value, text),
    "ownerReferences" => owner_references: |value| list(value, owner),
});

reads!(WireAnnotations as annotations {
    INDEX_ANNOTATION => index: text,
    FAILURE_COUNT_ANNOTATION => failure_count: text,
    IGNORED_FAILURE_COUNT_ANNOTATION => ignored_failure_count: text,
    POD_TTL => ttl_after_finished: text,
});

reads!(WireOwner as owner {
    "apiVersion" => api_version: text,
    "kind" => kind: text,
    "name" => name: text,
    "uid" => uid: |value: &Value| value.as_str().map(ObjectUid::new),
    "controller" => controller: Value::as_bool,
    "blockOwnerDeletion" => block_owner_deletion: |value: &Value| Some(value.as_bool()),
});

reads!(WireSpec as spec {
    "nodeName" => node_name: text,
    "initContainers" => init_containers: |value| list(value, init_container),
    "schedulingGates" => scheduling_gates: |value| list(value, gate),
});

reads!(WireInitContainer as init_container {
    "name" => name: text,
    "restartPolicy" => restart_policy: text,
});

reads!(WireGate as gate {
    "name" => name: text,
});

reads!(WireStatus as status {
    "phase" => phase: text,
    "reason" => reason: text,
    "conditions" => conditions: |value| list(value, condition),
    "containerStatuses" => container_statuses: |value| list(value, container),
    "initContainerStatuses" => init_container_statuses: |value| list(value, container),
});

reads!(WireCondition as condition {
    "type" => kind: text,
    "status" => status: text,
    "lastTransitionTime" => last_transition_time: text,
    "reason" => reason: text,
    "message" => message: text,
});

reads!(WireContainer as container {
    "name" => name: text,
    "restartCount" => restart_count: number,
    "state" => state: state,
});

reads!(WireState as state {
    "waiting" => waiting: waiting,
    "terminated" => terminated: terminated,
});

reads!(WireWaiting as waiting {
    "reason" => reason: text,
    "message" => message: text,
});

reads!(WireTerminated as terminated {
    "exitCode" => exit_code: number,
    "reason" => reason: text,
    "finishedAt" => finished_at: text,
});

fn list<'a, T>(value: &'a Value, read: impl Fn(&'a Value) -> Option<T>) -> Option<Vec<T>> {
    let items = value.as_array()?;
    let mut made = Vec::with_capacity(items.len());
    for item in items {
        made.push(read(item)?);
    }
    Some(made)
}

fn text(value: &Value) -> Option<Text<'_>> {
    value.as_str().map(Text::from)
}

fn time(value: &Value) -> Option<Timestamp> {
    Timestamp::parse(value.as_str()?).ok()
}

fn number(value: &Value) -> Option<i32> {
    value.as_i64()?.try_into().ok()
}

fn labels(value: &Value) -> Option<Labels> {
    let map = value.as_object()?;
    map.values().all(Value::is_string).then(|| Labels::from(map.clone()))
}
