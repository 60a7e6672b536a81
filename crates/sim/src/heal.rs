//! After the chaos: faults stop, and the world must settle, finish every Job and come to rest.

use tally_core::mutation::Soundness;
use tally_core::time::Span;

use crate::oracle::Violation;
use crate::trace::describe_job;
use crate::world::World;

/// A healed world that is still busy after this many steps has not settled (I9).
const HEAL_STEPS: usize = 60_000;

impl<S: Soundness> World<S> {
    /// Faults stop. The system must settle, finish every Job, and then write nothing at all (I9).
    pub(crate) fn heal(&mut self) -> Result<(), Violation> {
        self.healing = true;
        self.choices.next_strip();
        self.trace.say(|| "--- faults stop ---".to_owned());
        for at in 0..self.instances.len() {
            self.instances[at].paused = false;
            self.instances[at].clock = Span::ZERO;
        }
        self.heal_hosts();
        self.users_make_up();
        self.cluster_makes_up();
        self.oracle.laws.heals(self.api.now);
        let mut quiet = false;
        for _ in 0..HEAL_STEPS {
            self.steps += 1;
            if let Some(violation) = self.oracle.violation.take() {
                return Err(violation);
            }
            if self.calm_step() {
                continue;
            }
            let wake_at = self.next_wake();
            self.oracle.check_waits(self.api.now, wake_at, self.clocks_sane);
            match wake_at {
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
            return Err(Violation { invariant: "I9", text: format!("still busy after {HEAL_STEPS} calm steps") });
        }
        self.rest()
    }

    /// One step of a world without faults; false when there is nothing to do but wait.
    fn calm_step(&mut self) -> bool {
        if !self.flights.is_empty() {
            let at = self.flights.len() - 1;
            if self.flights[at].answer.is_some() {
                self.answer(at);
            } else {
                self.apply(at);
            }
            return true;
        }
        for at in 0..self.instances.len() {
            for stream in 0..2 {
                if self.deliver(at, stream) || self.bookmark(at, stream) {
                    return true;
                }
            }
            if self.tick(at) {
                return true;
            }
        }
        if self.setup.cluster.is_some() {
            return self.calm_host_step() || self.users_end_a_stray();
        }
        self.collector_acts() || self.node_makes_up()
    }

    fn rest(&mut self) -> Result<(), Violation> {
        let unfinished =
            self.api.jobs.values().find(|stored| {
                self.is_ours(&stored.view) && (stored.view.deleting || !stored.view.status.is_finished())
            });
        if let Some(stored) = unfinished {
            let text = format!("at rest {} is unfinished: {}", stored.view.name, describe_job(&stored.view));
            return Err(Violation { invariant: "I9", text });
        }
        self.oracle.at_rest(&self.api, |job| job.spec.managed_by.is_none());
        self.cluster_at_rest();
        let (head, told) = (self.api.head(), self.told);
        self.pass(Span::from_seconds(86_400));
        while self.calm_step() {}
        if self.api.head() != head {
            let text = format!("{} writes at rest", self.api.head().0 - head.0);
            self.oracle.fail("I9", text);
        }
        if self.told != told {
            self.oracle.fail("I9", "a cluster at rest has something to tell".to_owned());
        }
        for at in 0..self.instances.len() {
            let sizes = self.instances[at].machine.sizes();
            if sizes[0] > 0 || sizes[1] > 0 || sizes[3] > 0 {
                let text = format!("at rest c{at} keeps {sizes:?} ledgers, Pods, strays, requests");
                self.oracle.fail("I9", text);
            }
        }
        match self.oracle.violation.take() {
            Some(violation) => Err(violation),
            None => Ok(()),
        }
    }
}
