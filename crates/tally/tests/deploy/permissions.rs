//! Least privilege in both directions: the roles grant what the controllers can request from an API server, and the
//! controllers request everything that the roles grant.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tally_controllers::after::AfterController;
use tally_controllers::wire::{self, Action, PodChange};
use tally_core::ids::{JobUid, Revision};
use tally_core::time::Timestamp;
use tally_runtime::controller::{Call, Controller, Event, Input, Kind, Outbox, Reference, Refusal, Reply, Verb};
use tally_runtime::driver::Correlator;
use tally_runtime::lease::{self, Elector, Step};

use super::renderings;

/// A group, a resource and a verb, as in a role.
type Right = (String, String, String);

fn right(group: &str, resource: &str, verb: &str) -> Right {
    (group.to_owned(), resource.to_owned(), verb.to_owned())
}

/// Enumerates all actions. A new action does not compile until it is added here.
fn after(action: Option<&Action>) -> Option<Action> {
    let (namespace, name) = (|| "ns".into(), || "name".into());
    let uid = || JobUid::new("uid");
    Some(match action {
        None => Action::CreatePod { namespace: namespace(), name: name(), body: tally_value::json!({}) },
        Some(Action::CreatePod { .. }) => Action::PatchPod {
            namespace: namespace(),
            name: name(),
            uid: None,
            revision: None,
            change: PodChange::Adopt { job: uid(), job_name: name(), track: true },
        },
        Some(Action::PatchPod { .. }) => {
            Action::DeletePod { namespace: namespace(), name: name(), uid: None, revision: None }
        }
        Some(Action::DeletePod { .. }) => Action::GetPod { namespace: namespace(), name: name() },
        Some(Action::GetPod { .. }) => Action::ListPods { namespace: namespace(), selector: String::new() },
        Some(Action::ListPods { .. }) => Action::GetNode { name: name() },
        Some(Action::GetNode { .. }) => Action::GetJob { namespace: namespace(), name: name() },
        Some(Action::GetJob { .. }) => Action::WriteJobStatus {
            namespace: namespace(),
            name: name(),
            uid: uid(),
            revision: None,
            status: Box::default(),
            ends_tracking: false,
        },
        Some(Action::WriteJobStatus { .. }) => {
            Action::DeleteJob { namespace: namespace(), name: name(), uid: uid(), revision: Revision(1) }
        }
        Some(Action::DeleteJob { .. }) => return None,
    })
}

/// The controllers that request this action.
fn askers(action: &Action) -> &'static [&'static str] {
    match action {
        Action::CreatePod { .. }
        | Action::PatchPod { .. }
        | Action::ListPods { .. }
        | Action::GetNode { .. }
        | Action::WriteJobStatus { .. } => &["job"],
        Action::DeletePod { .. } | Action::GetPod { .. } | Action::GetJob { .. } => &["job", "ttl"],
        Action::DeleteJob { .. } => &["ttl"],
    }
}

/// The rights that an API server requires in a role for this request.
fn needed(call: &Call) -> BTreeSet<Right> {
    let verb = match call.verb {
        Verb::Create => "create",
        Verb::Get => "get",
        Verb::List => "list",
        Verb::Update => "update",
        Verb::MergePatch | Verb::StrategicPatch => "patch",
        Verb::Delete => "delete",
        Verb::DeleteCollection => "deletecollection",
    };
    let resource = match call.subresource {
        "" => call.kind.plural.to_owned(),
        subresource => format!("{}/{subresource}", call.kind.plural),
    };
    let mut rights = BTreeSet::from([right(call.kind.group, &resource, verb)]);
    // blockOwnerDeletion: the writer must be allowed to set the finalizers of the owner.
    let body: Value = serde_json::from_slice(&call.body.text()).unwrap_or_default();
    let owners = body["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    for owner in owners.iter().filter(|owner| owner["blockOwnerDeletion"] == true) {
        assert_eq!((&owner["apiVersion"], &owner["kind"]), (&json!("batch/v1"), &json!("Job")));
        rights.insert(right("batch", "jobs/finalizers", "update"));
    }
    rights
}

fn asked_by(controller: &str) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    let streams: &[Kind] = match controller {
        "job" => &[Kind::JOB, Kind::POD],
        "after" => &[Kind::JOB],
        "ttl" => &[Kind::JOB, Kind::POD, Kind::NAMESPACE],
        other => panic!("what does {other} follow?"),
    };
    for kind in streams {
        rights.extend(["list", "watch"].map(|verb| right(kind.group, kind.plural, verb)));
    }
    let actions = std::iter::successors(after(None), |action| after(Some(action)));
    for action in actions.filter(|action| askers(action).contains(&controller)) {
        rights.extend(needed(&wire::call(&action)));
    }
    if controller == "after" {
        rights.extend(asked_for_order().iter().flat_map(needed));
    }
    // The TTL controller records no Events.
    if controller != "ttl" {
        let about = Reference { kind: Kind::JOB, namespace: "ns".into(), name: "j".into(), uid: "u".into() };
        let event = Event { about, warning: false, reason: "Completed".into(), message: "Job completed".to_owned() };
        let mut correlator = Correlator::new(1);
        let now = Timestamp::from_millis(0);
        // The first Event is created, the repetition is counted.
        let calls = [(); 2].map(|()| correlator.correlate("job", &event, now).expect("a call"));
        assert_ne!(calls[0].verb, calls[1].verb);
        rights.extend(calls.iter().flat_map(needed));
    }
    rights
}

/// The requests of the controller of `tally.dev/after`: a Job that begins, one that fails, and one that waits.
fn asked_for_order() -> Vec<Call> {
    let job = |name: &str, after: Option<&str>, end: Option<&str>| {
        let annotations = after.map(|after| json!({"tally.dev/after": after}));
        let conditions = end.map(|end| json!([{"type": end, "status": "True"}]));
        let meta =
            json!({"namespace": "ns", "name": name, "uid": name, "resourceVersion": "1", "annotations": annotations});
        json!({"metadata": meta, "spec": {"suspend": after.is_some()}, "status": {"conditions": conditions}})
            .to_string()
    };
    let mut out = Outbox::default();
    let mut controller = AfterController::new(None);
    let jobs = [job("a", None, Some("Complete")), job("b", Some("a"), None), job("c", Some("a=Failed"), None)];
    let inputs = jobs.into_iter().map(|job| Input::Apply(Kind::JOB, job.into()));
    let inputs = [Input::Init(Kind::JOB)].into_iter().chain(inputs).chain([Input::InitDone(Kind::JOB, Revision(1))]);
    inputs.for_each(|input| controller.handle(input, Timestamp::from_millis(0), &mut out));
    let calls: Vec<Call> = out.requests.into_iter().map(|request| request.call).collect();
    assert_eq!(calls.iter().map(|call| call.subresource).collect::<Vec<_>>(), ["", "status"]);
    calls
}

/// The requests of a leader: the lease is read, created, renewed and released.
fn asked_by_leaders() -> BTreeSet<Right> {
    let second = Duration::from_secs(1);
    let mut elector = Elector::new(lease::Config {
        namespace: "ns".to_owned(),
        name: "tally".to_owned(),
        identity: "me".to_owned(),
        duration: 15 * second,
        renew_deadline: 10 * second,
        retry_period: 2 * second,
        runs_jobs: true,
    });
    let now = Timestamp::from_millis(0);
    let mut calls = Vec::new();
    let mut made = false;
    for second_of_life in 0..20 {
        let at = second * second_of_life;
        while let Step::Send(call) = elector.next(now, at) {
            made |= call.verb == Verb::Create;
            let held = json!({"metadata": {"uid": "u", "resourceVersion": "1"}, "spec": {"holderIdentity": "me"}});
            let reply = match made {
                true => Reply::Done(held.to_string().into()),
                false => Reply::Refused(Refusal { code: 404, ..Refusal::default() }),
            };
            elector.answered(&reply, at);
            calls.push(call);
        }
    }
    calls.extend(elector.give_back(now, second * 20));
    let verbs: Vec<_> = calls.iter().map(|call| call.verb).collect();
    assert!(verbs.starts_with(&[Verb::Get, Verb::Create]) && verbs.ends_with(&[Verb::Update]), "{verbs:?}");
    calls.iter().flat_map(needed).collect()
}

/// The rights that roles grant. Resource names restrict them further and do not matter here.
pub fn given<'a>(roles: impl Iterator<Item = &'a Value>) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for rule in roles.flat_map(|role| role["rules"].as_array().unwrap()) {
        let list = |field: &str| -> Vec<&str> {
            rule[field].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect()
        };
        for group in list("apiGroups") {
            for resource in list("resources") {
                rights.extend(list("verbs").iter().map(|verb| right(group, resource, verb)));
            }
        }
    }
    rights
}

/// API-26.
#[test]
fn the_roles_give_what_the_controllers_ask_and_nothing_else() {
    for rendering in renderings::all() {
        let asked: BTreeSet<_> = rendering.controllers.iter().flat_map(|name| asked_by(name)).collect();
        assert_eq!(given(rendering.of_kind("ClusterRole")), asked, "{}", rendering.title);
        // Only in the namespace of the controller.
        assert_eq!(given(rendering.of_kind("Role")), asked_by_leaders(), "{}", rendering.title);
        assert_eq!(rendering.the("Role")["metadata"]["namespace"], rendering.namespace, "{}", rendering.title);
    }
}

#[test]
fn no_role_but_that_of_ttl_can_delete_jobs() {
    let deletes = right("batch", "jobs", "delete");
    assert!(asked_by("ttl").contains(&deletes) && !asked_by("job").contains(&deletes));
    assert!(asked_by("job").contains(&right("batch", "jobs/finalizers", "update")), "Pods hold their Job up");
}
