//! All actors except the controllers: the node, the garbage collector, and users, including those that cause trouble.

use serde_json::json;
use tally_core::ids::JobUid;
use tally_core::job::JobSpec;
use tally_core::pod::{Exit, Phase, PodView};
use tally_core::selector::Labels;

use crate::api::{Actor, Api, Hold, Key, Propagation, plain_pod};
use crate::counters::Sometimes;
use crate::oracle::Context;
use crate::setup::{JobSetup, NAMESPACE};
use crate::world::World;

impl World {
    fn choose_pod(&mut self, wanted: impl Fn(&Api, &PodView) -> bool) -> Option<Key> {
        let count = self.api.pods.len();
        if count == 0 {
            return None;
        }
        let first = self.choices.below(count);
        let (head, tail): (Vec<_>, Vec<_>) = self.api.pods.iter().enumerate().partition(|(at, _)| *at >= first);
        head.into_iter()
            .chain(tail)
            .find(|(_, (_, stored))| wanted(&self.api, &stored.view))
            .map(|(_, (key, _))| key.clone())
    }

    pub(crate) fn choose_job(&mut self) -> Option<Key> {
        let count = self.api.jobs.len();
        let at = self.choices.below(count);
        self.api.jobs.keys().nth(at).cloned()
    }

    fn fate(&self, pod: &PodView) -> Option<&JobSetup> {
        pod.job().and_then(|uid| self.fates.get(uid))
    }

    // ---- the node ----

    pub(crate) fn node_acts(&mut self) -> bool {
        let Some(key) = self.choose_pod(|_, pod| !pod.phase.is_terminal() || pod.deleting()) else {
            return false;
        };
        let stored = self.api.pods[&key].clone();
        let pod = stored.view;
        let fate = self.fate(&pod).cloned();
        let fails = fate.as_ref().map_or(10, |fate| fate.fail_percent);
        let hangs = fate.as_ref().is_some_and(|fate| fate.hangs);
        if pod.deleting() {
            if !pod.phase.is_terminal() && stored.awaits_node {
                let succeeded = self.choices.one_in(4);
                self.end_pod(&key, succeeded, 143);
            } else if stored.awaits_node {
                self.trace.say(|| format!("node ends {}", key.1));
                self.api.node_confirms(&key);
            } else if !pod.phase.is_terminal() && self.choices.one_in(3) {
                // Pod GC: never scheduled, or the node is gone.
                self.end_pod(&key, false, 1);
            } else {
                return false;
            }
        } else if pod.start_gated {
            return false;
        } else if !pod.scheduled {
            self.start_pod(&key);
        } else {
            match self.choices.below(8) {
                0..=3 if !hangs => {
                    let succeeds = self.choices.below(100) >= fails;
                    let code = *self.choices.pick(&[1, 3, 42]);
                    self.end_pod(&key, succeeds, code);
                }
                4 if fate.is_some_and(|fate| fate.on_failure) => {
                    self.trace.say(|| format!("node restarts a container of {}", key.1));
                    self.api.edit_pod(&key, Actor::Node, |pod| {
                        pod.restarts.regular += 1;
                        pod.restarts.sum += 1;
                    });
                }
                5 if self.choices.one_in(4) => self.lose_node(&key),
                6 if !hangs && self.choices.one_in(4) => {
                    // The process ended while the node was down: its exit code is unknown.
                    self.counters.hit(Sometimes::ExitLost);
                    self.end_pod(&key, false, 137);
                }
                _ => {
                    let now = self.api.now.truncated();
                    self.trace.say(|| format!("node flips readiness of {}", key.1));
                    self.api.edit_pod(&key, Actor::Node, |pod| {
                        pod.ready = !pod.ready;
                        pod.ready_changed_at = Some(now);
                    });
                }
            }
        }
        self.settle_changes(Context::default());
        true
    }

    fn start_pod(&mut self, key: &Key) {
        self.trace.say(|| format!("node starts {}", key.1));
        self.api.edit_pod(key, Actor::Node, |pod| {
            pod.scheduled = true;
            pod.phase = Phase::Running;
        });
    }

    fn end_pod(&mut self, key: &Key, succeeded: bool, code: i32) {
        let now = self.api.now.truncated();
        self.trace.say(|| format!("node: {} {}", key.1, if succeeded { "succeeds" } else { "fails" }));
        self.api.edit_pod(key, Actor::Node, |pod| {
            pod.phase = if succeeded { Phase::Succeeded } else { Phase::Failed };
            pod.ready = false;
            pod.finished_at = now;
            if !succeeded {
                pod.exits = [Exit { container: "c".into(), code }].into_iter().collect();
            }
        });
    }

    /// What Pod GC does when a node is gone: the Pod is Failed with a reason, then deleted by force (GC-2).
    fn lose_node(&mut self, key: &Key) {
        self.counters.hit(Sometimes::NodeLost);
        let now = self.api.now.truncated();
        self.trace.say(|| format!("the node of {} is lost", key.1));
        self.api.edit_pod(key, Actor::Node, |pod| {
            pod.phase = Phase::Failed;
            pod.ready = false;
            pod.finished_at = now;
            pod.conditions.push(("DisruptionTarget".into(), "True".into()));
        });
        self.api.delete_pod(key, Actor::Node, true);
    }

    /// In a healed world every Pod makes progress.
    pub(crate) fn node_makes_up(&mut self) -> bool {
        let ready = self.api.pods.iter().find(|(_, stored)| {
            let pod = &stored.view;
            let hangs = self.fate(pod).is_some_and(|fate| fate.hangs);
            if pod.deleting() {
                stored.awaits_node || !pod.phase.is_terminal()
            } else {
                let waits = !pod.scheduled && (self.setup.stays_pending || pod.start_gated);
                !pod.phase.is_terminal() && !hangs && !waits
            }
        });
        let Some((key, stored)) = ready.map(|(key, stored)| (key.clone(), stored.clone())) else {
            return false;
        };
        let pod = stored.view;
        if pod.deleting() && pod.phase.is_terminal() {
            self.api.node_confirms(&key);
        } else if pod.deleting() {
            self.end_pod(&key, false, 143);
        } else if !pod.scheduled {
            self.start_pod(&key);
        } else {
            let fails = self.fate(&pod).is_some_and(|fate| fate.fail_percent == 100);
            if fails && self.setup.loses_nodes && self.choices.one_in(2) {
                self.lose_node(&key);
            } else {
                self.end_pod(&key, !fails, 1);
            }
        }
        self.settle_changes(Context::default());
        true
    }

    // ---- the garbage collector ----

    pub(crate) fn collector_acts(&mut self) -> bool {
        let acted = self.collect_pod() || self.collect_job();
        self.settle_changes(Context::default());
        acted
    }

    fn collect_pod(&mut self) -> bool {
        let doomed = self.api.pods.iter().find(|(_, stored)| {
            let pod = &stored.view;
            let Some(uid) = pod.job() else { return false };
            let owner = self.api.job_by_uid(uid);
            !pod.deleting() && owner.is_none_or(|owner| owner.foreground)
        });
        let Some(key) = doomed.map(|(key, _)| key.clone()) else {
            return false;
        };
        self.trace.say(|| format!("gc deletes {}", key.1));
        self.api.delete_pod(&key, Actor::Collector, false);
        true
    }

    fn collect_job(&mut self) -> bool {
        let orphaning = self.api.jobs.values().find(|stored| stored.orphan).map(|stored| stored.view.clone());
        if let Some(job) = orphaning {
            let key = (job.namespace.clone(), job.name.clone());
            let child = self.api.pods.iter().find(|(_, stored)| stored.view.job() == Some(&job.uid));
            match child.map(|(key, _)| key.clone()) {
                Some(child) => {
                    self.trace.say(|| format!("gc orphans {}", child.1));
                    self.api.edit_pod(&child, Actor::Collector, |pod| pod.controller = None);
                }
                None => self.api.unhold_job(&key, Actor::Collector, Hold::Orphan),
            }
            return true;
        }
        let emptied = self.api.jobs.values().find(|stored| {
            stored.foreground && !self.api.pods.values().any(|pod| pod.view.job() == Some(&stored.view.uid))
        });
        let Some(job) = emptied.map(|stored| stored.view.clone()) else {
            return false;
        };
        self.trace.say(|| format!("gc finishes the deletion of {}", job.name));
        let key = (job.namespace.clone(), job.name.clone());
        self.api.unhold_job(&key, Actor::Collector, Hold::Foreground);
        true
    }

    // ---- users ----

    pub(crate) fn third_party_writes(&mut self) -> bool {
        let Some(key) = self.choose_job() else {
            return false;
        };
        if self.setup.meddles && self.user_edits_status(&key) {
            self.settle_changes(Context::default());
            return true;
        }
        self.trace.say(|| format!("a user annotates {}", key.1));
        self.api.touch_job(&key, Actor::User);
        self.settle_changes(Context::default());
        true
    }

    /// Edits counts that are only observations. (UIDs that a user writes into the uncounted lists are trusted once
    /// those Pods have ended, and no law can say what would have been right.)
    fn user_edits_status(&mut self, key: &Key) -> bool {
        let active = self.choices.below(4);
        let status =
            json!({"active": active, "ready": self.choices.below(active + 1), "terminating": self.choices.below(3)});
        self.trace.say(|| format!("user edits the status of {}: {status}", key.1));
        if self.api.edit_status(key, Actor::User, &status) {
            self.counters.hit(Sometimes::StatusEdited);
        }
        true
    }

    pub(crate) fn pod_monkey(&mut self) -> bool {
        let flips = self.setup.bias.flips && self.choices.below(2) == 1;
        let acted = match if flips { 3 } else { self.choices.below(10) } {
            0 => self.user_deletes_pod(false),
            1 => self.user_deletes_pod(true),
            2 => self.user_strips(),
            3 => self.user_flips(),
            4 => self.user_relabels(),
            5 => self.user_adds_pod(),
            6 => self.user_recreates_pod(),
            7 => self.webhook_changes_its_mind(),
            8 => self.user_removes_owner(),
            _ => self.user_deletes_finished_pod(),
        };
        self.settle_changes(Context::default());
        acted
    }

    fn user_deletes_pod(&mut self, force: bool) -> bool {
        let Some(key) = self.choose_pod(|_, pod| !pod.deleting()) else {
            return false;
        };
        self.counters.hit(Sometimes::PodDeletedByUser);
        self.trace.say(|| format!("user deletes {}{}", key.1, if force { " by force" } else { "" }));
        self.api.delete_pod(&key, Actor::User, force);
        true
    }

    fn user_deletes_finished_pod(&mut self) -> bool {
        let Some(key) = self.choose_pod(|_, pod| pod.phase.is_terminal() && !pod.deleting()) else {
            return false;
        };
        self.trace.say(|| format!("user deletes the finished {}", key.1));
        self.api.delete_pod(&key, Actor::User, false);
        true
    }

    fn user_strips(&mut self) -> bool {
        let Some(key) = self.choose_pod(|_, pod| pod.tracked) else {
            return self.user_tracks_again();
        };
        self.counters.hit(Sometimes::Stripped);
        self.trace.say(|| format!("user strips the finalizer of {}", key.1));
        self.api.edit_pod(&key, Actor::User, |pod| pod.tracked = false);
        true
    }

    /// The API server refuses it (TRACK-19): the Pod would be counted again.
    fn user_tracks_again(&mut self) -> bool {
        // A Pod whose owner a user has removed before is one of them: a Job may adopt it.
        let Some(key) = self.choose_pod(|_, pod| pod.phase.is_terminal() && !pod.tracked) else {
            return false;
        };
        self.counters.hit(Sometimes::TrackedAgain);
        self.trace.say(|| format!("user puts the finalizer of {} back", key.1));
        self.api.edit_pod(&key, Actor::User, |pod| pod.tracked = true);
        true
    }

    /// No node should do this; some have done it.
    fn user_flips(&mut self) -> bool {
        let Some(key) = self.choose_pod(|_, pod| pod.phase.is_terminal()) else {
            return false;
        };
        let to = match self.api.pods[&key].view.phase {
            Phase::Succeeded => Phase::Failed,
            _ => Phase::Succeeded,
        };
        self.counters.hit(match to {
            Phase::Failed => Sometimes::FlippedToFailed,
            _ => Sometimes::FlippedToSucceeded,
        });
        self.trace.say(|| format!("{} flips to {to:?}", key.1));
        self.api.edit_pod(&key, Actor::Node, |pod| {
            pod.phase = to;
            if to == Phase::Succeeded {
                pod.exits.clear();
            }
        });
        true
    }

    fn user_relabels(&mut self) -> bool {
        let Some(key) = self.choose_pod(|_, pod| pod.job().is_some()) else {
            return false;
        };
        self.trace.say(|| format!("user takes the labels off {}", key.1));
        self.api.edit_pod(&key, Actor::User, |pod| pod.labels = Labels::default());
        true
    }

    /// The Pod then has no owner, whether it is finished or not, counted or not.
    fn user_removes_owner(&mut self) -> bool {
        // A Pod that is about to be recorded may be counted by its Job and by another that selects it: a known limit.
        let selected = self.setup.jobs.iter().any(|job| job.manual_selector.is_some());
        let due = move |pod: &PodView| selected && pod.tracked && pod.phase.is_terminal();
        let Some(key) = self.choose_pod(|_, pod| pod.job().is_some() && !due(pod)) else {
            return false;
        };
        self.counters.hit(Sometimes::OwnerRemoved);
        self.trace.say(|| format!("user removes the owner of {}", key.1));
        self.api.edit_pod(&key, Actor::User, |pod| pod.controller = None);
        true
    }

    /// A Pod without a controller, with the labels of a Job: to be adopted.
    fn user_adds_pod(&mut self) -> bool {
        let Some(key) = self.choose_job() else {
            return false;
        };
        let job = self.api.jobs[&key].view.clone();
        let uid = self.api.new_uid();
        let mut pod = plain_pod(uid, NAMESPACE, &format!("hand-made-{uid}"));
        let word = self.fates.get(&job.uid).and_then(|setup| setup.manual_selector);
        pod.labels =
            word.map_or_else(|| labels_of(&job.uid), |word| [("app".into(), word.into())].into_iter().collect());
        pod.tracked = self.choices.one_in(3);
        pod.index = job.spec.is_indexed().then(|| self.choices.below(9) as u32);
        self.trace.say(|| format!("user makes a Pod for {}", key.1));
        self.api.insert_pod(pod, Actor::User);
        true
    }

    /// Same name, different Pod: a precondition on the name alone does not notice.
    fn user_recreates_pod(&mut self) -> bool {
        let Some(key) = self.choose_pod(|_, pod| pod.job().is_some()) else {
            return false;
        };
        let old = self.api.pods[&key].view.clone();
        self.api.edit_pod(&key, Actor::User, |pod| pod.tracked = false);
        self.api.delete_pod(&key, Actor::User, true);
        if self.api.pods.contains_key(&key) {
            return true;
        }
        self.settle_changes(Context::default());
        let uid = self.api.new_uid();
        let mut pod = plain_pod(uid, NAMESPACE, &old.name);
        pod.labels = old.labels.clone();
        pod.controller = old.controller.clone();
        pod.index = old.index;
        pod.tracked = true;
        self.counters.hit(Sometimes::PodRecreated);
        self.trace.say(|| format!("user replaces {} by another Pod of that name", key.1));
        self.api.insert_pod(pod, Actor::User);
        true
    }

    fn webhook_changes_its_mind(&mut self) -> bool {
        let Some(key) = self.choose_pod(|_, _| true) else {
            return false;
        };
        if let Some(stored) = self.api.pods.get_mut(&key) {
            stored.refuses = !stored.refuses;
            self.trace.say(|| format!("a webhook changes its mind about {}", key.1));
        }
        true
    }

    pub(crate) fn job_monkey(&mut self) -> bool {
        let Some(key) = self.choose_job() else {
            let number = self.choices.below(self.setup.jobs.len());
            self.create_job(number);
            return true;
        };
        let view = self.api.jobs[&key].view.clone();
        let kind = self.choices.below(10);
        match if self.setup.only_scales { 2 } else { kind } {
            0 | 1 => self.edit_spec(&key, "toggles suspend of", |spec| spec.suspend = !spec.suspend),
            2 | 3 => {
                let parallelism = self.choices.below(5) as i32;
                self.counters.hit(Sometimes::Scaled);
                let indexed = view.spec.is_indexed();
                self.edit_spec(&key, "scales", |spec| {
                    spec.parallelism = parallelism;
                    if indexed && spec.success_policy.is_none() {
                        spec.completions = Some(parallelism);
                    }
                });
                if indexed && view.status.succeeded > parallelism {
                    self.counters.hit(Sometimes::ElasticDown);
                }
            }
            4 => {
                let deadline = *self.choices.pick(&[None, Some(5), Some(60), Some(0)]);
                let hangs = self.fates.get(&view.uid).is_some_and(|fate| fate.hangs);
                if deadline.is_some() || !hangs {
                    self.edit_spec(&key, "sets a deadline for", |spec| spec.active_deadline_seconds = deadline);
                }
            }
            5 => {
                let ttl = *self.choices.pick(&[None, Some(0), Some(30)]);
                self.edit_spec(&key, "sets a TTL for", |spec| spec.ttl_seconds_after_finished = ttl);
            }
            6 => {
                let limit = self.choices.below(4) as i32;
                self.edit_spec(&key, "changes the back-off limit of", |spec| spec.backoff_limit = limit);
            }
            7 if !self.setup.orphans => self.user_deletes_job(&key, Propagation::Background),
            8 if !self.setup.orphans => self.user_deletes_job(&key, Propagation::Foreground),
            _ => self.user_deletes_job(&key, Propagation::Orphan),
        }
        self.settle_changes(Context::default());
        true
    }

    fn edit_spec(&mut self, key: &Key, verb: &str, change: impl FnOnce(&mut JobSpec)) {
        self.trace.say(|| format!("user {verb} {}", key.1));
        if !self.api.edit_job(key, Actor::User, change) {
            self.trace.say(|| "  ... and is refused".to_owned());
        }
    }

    fn user_deletes_job(&mut self, key: &Key, propagation: Propagation) {
        self.trace.say(|| format!("user deletes {} ({propagation:?})", key.1));
        self.counters.hit(match propagation {
            Propagation::Background => Sometimes::JobDeletedBackground,
            Propagation::Foreground => Sometimes::JobDeletedForeground,
            Propagation::Orphan => Sometimes::JobDeletedOrphan,
        });
        let gone = self.api.delete_job(key, Actor::User, propagation);
        self.settle_changes(Context::default());
        if gone && self.choices.below(2) == 1 {
            self.counters.hit(Sometimes::JobRecreated);
            let number = key.1.strip_prefix("job-").and_then(|number| number.parse().ok()).unwrap_or(0);
            self.create_job(number);
        }
    }

    /// Users undo everything that would keep a Job from ever finishing.
    pub(crate) fn users_make_up(&mut self) {
        for stored in self.api.pods.values_mut() {
            stored.refuses = false;
        }
        let keys: Vec<Key> = self.api.jobs.keys().cloned().collect();
        for key in keys {
            if self.api.jobs[&key].held {
                self.api.unhold_job(&key, Actor::User, Hold::Other);
                self.settle_changes(Context::default());
            }
            let Some(stored) = self.api.jobs.get(&key) else {
                continue;
            };
            let spec = &stored.view.spec;
            // A Job that waits for others is resumed by its controller.
            let waits = self.oracle.laws.waits_in_order(&stored.view.uid);
            if (spec.suspend && !waits || spec.parallelism <= 0) && !self.setup.stays_suspended {
                self.edit_spec(&key, "resumes", |spec| {
                    spec.suspend &= waits;
                    if spec.parallelism <= 0 && !(spec.is_indexed() && spec.completions == Some(0)) {
                        spec.parallelism = 1;
                    }
                });
            }
            // Managers that were missing finally report, or the waiting for them would never end.
            if self.api.jobs.get(&key).is_some_and(|stored| !self.is_ours(&stored.view)) {
                self.api.report_on_job(&key, Actor::User);
            }
            self.settle_changes(Context::default());
        }
    }
}

fn labels_of(job: &JobUid) -> Labels {
    [("batch.kubernetes.io/controller-uid".into(), job.to_string().into())].into_iter().collect()
}
