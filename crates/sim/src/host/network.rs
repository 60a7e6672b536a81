//! Requests on their way to the API server, and responses on their way back.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use tally_core::ids::{JobUid, PodUid};
use tally_core::job::JobView;
use tally_core::pod::Phase;
use tally_runtime::cache::Meta;
use tally_runtime::controller::{Call, Kind, Reply, RequestId, Verb};
use tally_runtime::driver::api::Response;

use super::Sent;
use super::faults::unknown;
use crate::action::{Action, PodChange};
use crate::api::{Actor, LogEntry, POLICY};
use crate::cluster::Role;
use crate::counters::Sometimes;
use crate::oracle::Context;
use crate::trace::{describe_call, describe_reply};
use crate::world::World;

fn is_of_policy(reply: &Reply) -> bool {
    matches!(reply, Reply::Refused(refusal) if refusal.message == POLICY)
}

impl World {
    pub(super) fn choose_sent(&mut self, hosts: &Range<usize>, wanted: impl Fn(&Sent) -> bool) -> Option<usize> {
        let count = self.sent.len();
        if count == 0 {
            return None;
        }
        let first = self.choices.below(count);
        let mut turns = (0..count).map(|turn| (first + turn) % count);
        turns.find(|at| hosts.contains(&self.sent[*at].host) && wanted(&self.sent[*at]))
    }

    pub(crate) fn carry_out_any(&mut self, hosts: Range<usize>) -> bool {
        let step = self.steps;
        let open = |sent: &Sent| sent.response.is_none() && sent.hold.is_over(step, false);
        let Some(at) = self.choose_sent(&hosts, open) else { return false };
        let (host, id) = (self.sent[at].host, self.sent[at].request.id);
        let loses = self.loses_response(&self.sent[at].request.call.clone());
        self.carry_out(at);
        if loses {
            self.forget_response(host, id);
        }
        true
    }

    /// The response of a request that was carried out is lost.
    pub(super) fn forget_response(&mut self, host: usize, id: RequestId) {
        let now = self.api.now;
        let mut sent = self.sent.iter_mut();
        if let Some(sent) = sent.find(|sent| sent.host == host && sent.request.id == id && sent.response.is_some()) {
            sent.response = Some((unknown(), now));
            self.counters.hit(Sometimes::ReplyLost);
            self.trace.say(|| "  ... and the reply is lost".to_owned());
        }
    }

    pub(crate) fn carry_out(&mut self, at: usize) {
        let Sent { host, incarnation, known, given_up, request, .. } = &self.sent[at];
        let (host, incarnation, given_up, known) = (*host, *incarnation, *given_up, known.clone());
        let call = request.call.clone();
        let role = self.hosts[host].role;
        // An instance that sent a request long ago also counts as acting when the request is carried out now.
        let context = Context { incarnations: self.starts.incarnations, given_up, ..known.context };
        if role == Role::Job {
            self.check_removal_resumed(&call, host, incarnation, context);
        }
        let head = self.api.head();
        let actor = match role.counts() {
            true => Actor::Controller { instance: host, incarnation },
            false => Actor::Hosted { host, incarnation },
        };
        let reply = self.api.perform(&call, actor);
        self.trace.mix(self.api.head().0);
        if self.trace.lines.is_some() {
            let (name, told) = (self.host_name(host), describe_call(&call));
            self.trace.say(|| format!("  api for {name}: {told} -> {}", describe_reply(call.kind, &reply)));
        }
        let wrote = self.api.head() > head;
        if given_up && wrote {
            self.counters.hit(Sometimes::CarriedOutLate);
        }
        let dead = self.hosts[host].incarnation != incarnation;
        if role.counts() {
            if wrote && (dead || self.hosts[host].paused) {
                self.counters.hit(Sometimes::ZombieWrite);
            }
            self.note_reply(&call, &reply, host);
            self.settle_changes(context);
        } else {
            self.judge.carried_out(role, &call, &reply, &mut self.counters);
            self.evidence.asking = known.asking.map(|asking| *asking);
            self.settle_changes(Context::default());
            self.evidence.asking = None;
        }
        if given_up || dead {
            self.sent.swap_remove(at);
        } else {
            let now = self.api.now;
            self.sent[at].hold = self.hold_response(&call);
            self.sent[at].response = Some((Response { reply, served_at: Some(now), retry_after: None }, now));
        }
        if role.counts() && wrote {
            self.evidence.writes += 1;
            if self.setup.crash_after_write == Some(self.evidence.writes) {
                self.crash(host);
            }
        }
    }

    fn note_reply(&mut self, call: &Call, reply: &Reply, host: usize) {
        let refusal = match reply {
            Reply::Refused(refusal) => Some((refusal.code, refusal.reason.as_str())),
            _ => None,
        };
        match (call.kind, call.verb, refusal) {
            (Kind::JOB, Verb::MergePatch, Some((409, _))) => self.counters.hit(Sometimes::Conflict),
            (Kind::JOB, Verb::MergePatch, Some((422, _))) if is_of_policy(reply) => {
                self.counters.hit(Sometimes::StatusRefused);
            }
            (Kind::JOB, Verb::MergePatch, Some((403 | 422, _))) => {
                // The write was valid for the status it was planned from; an edit by another writer may have made it
                // invalid.
                if let (Action::WriteJobStatus { name, revision: Some(_), .. }, Reply::Refused(refusal)) =
                    (Action::of(call), reply)
                    && !refusal.causes.iter().any(|(field, _)| field == "metadata.uid")
                {
                    self.oracle.fail("I13", format!("the status of {name} was refused: {}", refusal.message));
                }
            }
            (Kind::JOB, Verb::MergePatch, None) if reply.is_done() => {
                let job = (call.namespace.clone(), call.name.clone());
                if self.evidence.last_status_writer.insert(job, host).is_some_and(|last| last != host) {
                    self.counters.hit(Sometimes::TwoWriters);
                }
            }
            (Kind::EVENT, Verb::MergePatch, None) if reply.is_done() => self.counters.hit(Sometimes::EventCounted),
            (Kind::POD, Verb::Create, Some((409, "AlreadyExists"))) => self.counters.hit(Sometimes::AlreadyExists),
            (Kind::POD, Verb::StrategicPatch, Some((403, _))) => self.counters.hit(Sometimes::ReleaseRefused),
            (Kind::POD, Verb::StrategicPatch, None) if reply.is_done() => {
                if let Action::PatchPod { change: PodChange::Adopt { .. }, .. } = Action::of(call) {
                    self.counters.hit(Sometimes::Adopted);
                }
            }
            _ => {}
        }
    }

    /// H2: while a Pod that a dead instance began to remove still runs, no other is removed in its place.
    fn check_removal_resumed(&mut self, call: &Call, host: usize, incarnation: u32, context: Context) {
        if (call.kind, call.verb) != (Kind::POD, Verb::StrategicPatch) {
            return;
        }
        let Action::PatchPod { namespace, name, revision: Some(revision), change: PodChange::Release, .. } =
            Action::of(call)
        else {
            return;
        };
        let Some(victim) = self.api.pods.get(&(namespace, name.clone())) else {
            return;
        };
        let Some(job) = victim.view.job().and_then(|uid| self.api.job_by_uid(uid)) else {
            return;
        };
        // TTL-24: a work queue that has a success starts none of those behind the gate, and removes them all.
        let has_success = || {
            let status = &job.view.status;
            let mut pods = self.api.pods_of(&job.view.uid);
            let counted = status.succeeded > 0 || !status.uncounted().succeeded.is_empty();
            counted || pods.any(|stored| stored.view.phase == Phase::Succeeded)
        };
        let none_starts = victim.view.start_gated && job.view.spec.completions.is_none() && has_success();
        let any_order = job.view.spec.is_indexed() || self.oracle.was_suspended(&job.view.uid) || none_starts;
        // Pods of a Job that is being deleted, and failures that are ignored, are released at their revision as well.
        let is_removal = victim.view.is_active() && !job.view.deleting;
        if victim.view.revision != revision || any_order || !is_removal {
            return;
        }
        let dead = |actor: Actor| match actor {
            Actor::Controller { instance, incarnation } => self.hosts[instance].incarnation != incarnation,
            _ => false,
        };
        let forgotten = self.api.pods_of(&job.view.uid).find(|stored| {
            let pod = &stored.view;
            pod.revision <= context.pods_at.min(context.jobs_at)
                && job.view.spec.selector.matches(&pod.labels)
                && self.oracle.half_removed(pod).is_some_and(dead)
                && !self.evidence.removals_asked.contains(&(host, incarnation, pod.name.clone()))
        });
        if let Some(forgotten) = forgotten {
            let text = format!("{name} is removed while {}, half removed, runs on", forgotten.view.name);
            self.oracle.fail("H2", text);
        }
    }

    pub(crate) fn answer_any(&mut self, hosts: Range<usize>) -> bool {
        let awake: Vec<bool> = self.hosts.iter().map(|host| !host.is_idle()).collect();
        let (step, pieces) = (self.steps, self.setup.bias.pieces);
        let listing: Vec<bool> = self.hosts.iter().map(|host| !pieces || host.is_listing()).collect();
        let due = |sent: &Sent| sent.hold.is_over(step, listing[sent.host]);
        let answered = |sent: &Sent| sent.response.is_some() && awake[sent.host] && due(sent);
        let Some(at) = self.choose_sent(&hosts, answered) else { return false };
        self.answer(at);
        true
    }

    pub(crate) fn answer(&mut self, at: usize) {
        let Sent { host, incarnation, request, response, .. } = self.sent.swap_remove(at);
        let Some((response, _)) = response else { return };
        if self.hosts[host].incarnation != incarnation {
            return;
        }
        if self.trace.lines.is_some() {
            let (name, call) = (self.host_name(host), describe_call(&request.call));
            let told = describe_reply(request.call.kind, &response.reply);
            self.trace.say(|| format!("{name} hears of {call}: {told}"));
        }
        let (role, now) = (self.hosts[host].role, self.driver_now());
        if !role.counts() {
            self.judge.heard((host, incarnation), role, &request.call, &response.reply);
        }
        if let (Role::Job, Kind::JOB, Verb::MergePatch, Reply::Done(job)) =
            (role, request.call.kind, request.call.verb, &response.reply)
            && let Some(job) = Meta::of(job)
        {
            let actor = Actor::Controller { instance: host, incarnation };
            self.oracle.laws.told_of_job(&JobUid::new(&job.uid), job.revision(), actor, self.steps);
        }
        let told_at = self.host_now(host);
        self.note_response(host, &request.call, &response.reply, told_at);
        let is_status = (request.call.kind, request.call.verb) == (Kind::JOB, Verb::MergePatch);
        let may_decide = if is_status && role == Role::Job { self.uncontrolled_of(host, &request.call) } else { 0 };
        let decisions = |world: &mut Self| world.hosts[host].job_controller().map(|controller| controller.decisions());
        let before = decisions(self);
        self.heard_of(host, request.id, response, now);
        if is_status {
            let made = decisions(self).zip(before).map_or(0, |(after, before)| after.saturating_sub(before));
            self.oracle.check_decisions(&request.call.name, may_decide, made);
        }
    }

    /// How many Pods without a controller the writer of a status knows that are in the lists of the status which it
    /// replaces, or of the one which it has sent.
    fn uncontrolled_of(&mut self, host: usize, call: &Call) -> u64 {
        let Action::WriteJobStatus { uid, revision, status, .. } = Action::of(call) else { return 0 };
        let replaced = |entry: &&LogEntry<JobView>| entry.object.uid == uid && Some(entry.at) == revision;
        let replaced = self.api.job_log.iter().rfind(replaced).map(|entry| entry.object.clone());
        let lists = replaced.iter().map(|job| job.status.uncounted()).chain([status.uncounted()]);
        let listed: BTreeSet<&PodUid> = lists.flat_map(|list| list.succeeded.iter().chain(&list.failed)).collect();
        let Some(controller) = self.hosts[host].job_controller() else { return 0 };
        listed.into_iter().filter(|uid| controller.knows_uncontrolled(uid)).count() as u64
    }

    pub(super) fn heard_of(&mut self, host: usize, request: RequestId, response: Response, now: Duration) {
        match self.hosts[host].requests.answered(request, response, now, 0.5) {
            Some(input) => {
                self.hosts[host].known.remove(&request);
                self.tell(host, input);
            }
            None => self.counters.hit(Sometimes::SentAgain),
        }
    }
}
