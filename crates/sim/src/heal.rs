//! After the faults: they stop, and the world must settle, finish every Job and come to rest.

use tally_core::job::JobView;
use tally_core::pod::Phase;
use tally_core::time::Span;
use tally_runtime::controller::Kind;

use crate::counters::Sometimes;
use crate::oracle::Violation;
use crate::setup::TrackingGate;
use crate::trace::describe_job;
use crate::world::World;

impl World {
    /// Faults stop. The system must settle, finish every Job, and then write nothing at all (I9).
    pub(crate) fn heal(&mut self) -> Result<(), Violation> {
        self.healing = true;
        self.choices.next_strip();
        self.trace.say(|| "--- faults stop ---".to_owned());
        if self.setup.tracking == TrackingGate::EndsOff {
            self.tracking.fill(false);
            (0..self.setup.instances).for_each(|at| self.crash(at));
        }
        self.refuse_by_wrong_clocks();
        self.heal_hosts();
        self.end_elections();
        self.users_make_up();
        self.cluster_makes_up();
        self.policy_stays();
        // What a policy refuses may be as late as what was refused during the faults.
        self.oracle.laws.heals(self.policy_ends_at.unwrap_or(self.api.now));
        self.punctuality.heals(self.api.now, self.crons_go_on());
        let mut quiet = false;
        let most = self.setup.heal_steps;
        for _ in 0..most {
            self.steps += 1;
            if let Some(violation) = self.oracle.violation.take() {
                return Err(violation);
            }
            if self.calm_step() {
                continue;
            }
            let wake_at = self.next_wake();
            let closed = |namespace: &str| self.api.is_terminating(namespace);
            self.oracle.check_waits(self.api.now, wake_at, self.clocks_sane, closed);
            self.check_explained(wake_at);
            self.cluster_waits(wake_at);
            if self.crons_end() || self.policy_acts(wake_at) {
                continue;
            }
            match self.punctuality.crons_end_at.into_iter().chain(self.policy_ends_at).chain(wake_at).min() {
                Some(at) => {
                    let by = (at - self.api.now).max(Span::from_millis(1));
                    self.pass(by);
                }
                None => {
                    quiet = true;
                    break;
                }
            }
        }
        if !quiet {
            return Err(Violation { invariant: "I9", text: format!("still busy after {most} calm steps") });
        }
        self.rest()
    }

    /// One step of a world without faults; false when there is nothing to do but wait.
    fn calm_step(&mut self) -> bool {
        if self.calm_host_step() {
            return true;
        }
        if self.setup.cluster.is_some() {
            return self.users_end_a_stray();
        }
        self.collector_acts() || self.node_makes_up()
    }

    fn rest(&mut self) -> Result<(), Violation> {
        let stays = |job: &JobView| {
            // O3 says whether it may wait.
            self.oracle.laws.waits_in_order(&job.uid)
                || self.setup.stays_suspended && !job.deleting && (job.spec.suspend || job.spec.parallelism <= 0)
        };
        let unfinished = self.api.jobs.values().find(|stored| {
            let job = &stored.view;
            self.is_ours(job) && !stays(job) && (job.deleting || !job.status.is_finished())
        });
        if let Some(stored) = unfinished {
            let text = format!("at rest {} is unfinished: {}", stored.view.name, describe_job(&stored.view));
            return Err(Violation { invariant: "I9", text });
        }
        let kept: Vec<_> = self.api.jobs.values().map(|stored| stored.view.clone()).collect();
        let kept: Vec<_> = kept.into_iter().filter(|job| self.is_ours(job) && !job.status.is_finished()).collect();
        for job in &kept {
            self.check_rests(job);
        }
        self.check_events();
        self.oracle.check_order_at_rest();
        let side_by_side = self.setup.side_by_side;
        self.oracle.at_rest(&self.api, |job| job.spec.managed_by.is_none() || side_by_side);
        self.cluster_at_rest();
        let (head, told) = (self.api.head(), self.evidence.emitted);
        self.pass(Span::from_seconds(86_400));
        while self.calm_step() {}
        if self.api.head() != head {
            let text = format!("{} writes at rest", self.api.head().0 - head.0);
            self.oracle.fail("I9", text);
        }
        if self.evidence.emitted != told {
            self.oracle.fail("I9", "a cluster at rest has something to tell".to_owned());
        }
        for at in 0..self.setup.instances {
            let Some(sizes) = self.hosts[at].job_controller().map(|controller| controller.sizes()) else { continue };
            if sizes[0] > kept.len() || (kept.is_empty() && sizes[1] > 0) || sizes[3] > 0 {
                let text = format!("at rest c{at} keeps {sizes:?} ledgers, Pods, unclaimed Pods, requests");
                self.oracle.fail("I9", text);
            }
        }
        match self.oracle.violation.take() {
            Some(violation) => Err(violation),
            None => Ok(()),
        }
    }

    /// I9: a Job that is suspended, or has no parallelism, has no running Pods, and has counted those that have ended.
    fn check_rests(&mut self, job: &JobView) {
        self.counters.hit(Sometimes::RestedSuspended);
        let live = self.api.live_pods(job, |_| true);
        // BLPI-3: a failed Pod is kept until its index has another Pod.
        let may_be_kept = job.spec.limits_each_index();
        let held = self.api.pods_of(&job.uid).any(|pod| {
            let kept = may_be_kept && pod.view.phase == Phase::Failed;
            pod.view.tracked && pod.view.phase.is_terminal() && !kept
        });
        let uncounted = !job.status.uncounted().is_empty();
        if live > 0 || job.status.active != 0 || uncounted || held {
            let text = format!("at rest {} has {live} Pods that run: {}", job.name, describe_job(job));
            self.oracle.fail("I9", text);
        }
    }

    /// E1: no event is reported more often than it happened. Fewer reports are permitted: Events are best effort.
    fn check_events(&mut self) {
        let counted: u64 =
            self.api.archive.all(&Kind::EVENT).filter_map(|event| event.object()["count"].as_u64()).sum();
        if counted > self.evidence.posted {
            self.oracle.fail("E1", format!("{counted} events are told of {} that happened", self.evidence.posted));
        }
    }
}
