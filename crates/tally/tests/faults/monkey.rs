//! Simulated users: they create Jobs, change and delete them, and delete Pods.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;

use crate::cluster::{JOBS, PODS, ask, patch};
use crate::support::client::{Api, Call};
use crate::truth::Truth;
use crate::workload::{KINDS, Kind, Made, WIDEST, heir_of, job};

/// Number of unfinished Jobs to maintain as long as there are kills to come.
const AT_WORK: usize = 20;
/// Maximum number of these that wait for back-offs.
const SLOW_AT_WORK: usize = 3;

pub struct Monkey {
    api: Api,
    truth: Arc<Truth>,
    made: Mutex<Vec<Made>>,
    rng: Mutex<fastrand::Rng>,
    /// Maximum number of Pods deleted per Job: many deletions in a row lead to long back-offs.
    blows: u32,
}

impl Monkey {
    pub fn new(api: &Api, truth: Arc<Truth>, seed: u64, blows: u32) -> Monkey {
        let rng = Mutex::new(fastrand::Rng::with_seed(seed));
        Monkey { api: api.clone(), truth, made: Mutex::default(), rng, blows }
    }

    pub fn made(&self) -> MutexGuard<'_, Vec<Made>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rng(&self) -> MutexGuard<'_, fastrand::Rng> {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs until `stop` is true.
    pub async fn work(self: Arc<Self>, mut stop: tokio::sync::watch::Receiver<bool>) {
        let mut kinds: Vec<Kind> = KINDS.to_vec();
        self.rng().shuffle(&mut kinds);
        while !*stop.borrow() {
            self.keep_busy(&mut kinds).await;
            for _ in 0..4 {
                self.meddle().await;
            }
            let pause = Duration::from_millis(self.rng().u64(20..150));
            let _ = tokio::time::timeout(pause, stop.wait_for(|stop| *stop)).await;
        }
        // At the end suspended Jobs are resumed: they would never finish.
        let suspended: Vec<Made> = self.made().iter().filter(|made| made.kind.is_suspended()).cloned().collect();
        for made in suspended {
            patch(&self.api, &made.name, &json!({"spec": {"suspend": false}})).await;
        }
        // Jobs that were to be deleted are deleted now.
        let left: Vec<usize> = self.undeleted();
        for at in left {
            self.delete(at).await;
        }
    }

    fn undeleted(&self) -> Vec<usize> {
        let made = self.made();
        made.iter()
            .enumerate()
            .filter(|(_, made)| made.kind == Kind::Deleted && made.deleted.is_none())
            .map(|(at, _)| at)
            .collect()
    }

    fn unfinished(&self) -> Vec<usize> {
        let finished: BTreeSet<String> = {
            let told = self.truth.told();
            let ended = told.jobs.iter().filter(|(_, job)| job.finished() || job.gone);
            ended.map(|(uid, _)| uid.clone()).collect()
        };
        let made = self.made();
        let open = |made: &Made| made.deleted.is_none() && !finished.contains(&made.uid);
        made.iter().enumerate().filter(|(_, made)| open(made)).map(|(at, _)| at).collect()
    }

    async fn keep_busy(&self, first: &mut Vec<Kind>) {
        let unfinished = self.unfinished();
        let slow = unfinished.iter().filter(|at| self.made()[**at].kind.is_slow()).count();
        for _ in unfinished.len()..AT_WORK {
            // Every kind once, and then random kinds.
            let kind = first.pop().unwrap_or_else(|| KINDS[self.rng().usize(0..KINDS.len())]);
            if kind.is_slow() && slow >= SLOW_AT_WORK {
                continue;
            }
            let name = format!("{}-{}", format!("{kind:?}").to_lowercase(), self.made().len());
            self.make(kind, name).await;
        }
    }

    async fn make(&self, kind: Kind, name: String) {
        let body = job(kind, &name, &mut self.rng());
        let answer = ask(&self.api, &Call::new("POST", JOBS).body(&body)).await;
        // A Job that is being deleted may still have the name.
        if answer.code == 409 {
            return;
        }
        assert_eq!(answer.code, 201, "{}", answer.text);
        let made = Made::new(kind, name, &answer.value());
        self.made().push(made);
    }

    /// Changes one random unfinished Job, if its kind is one that is changed.
    async fn meddle(&self) {
        let unfinished = self.unfinished();
        if unfinished.is_empty() {
            return;
        }
        let at = unfinished[self.rng().usize(0..unfinished.len())];
        let made = self.made()[at].clone();
        match made.kind {
            kind if kind.is_pounded() => self.pound(at, &made).await,
            kind if kind.is_suspended() => {
                let suspend = self.rng().bool();
                patch(&self.api, &made.name, &json!({"spec": {"suspend": suspend}})).await;
            }
            Kind::Scaled => {
                let parallelism = self.rng().u64(1..=WIDEST);
                patch(&self.api, &made.name, &json!({"spec": {"parallelism": parallelism}})).await;
            }
            Kind::Elastic => {
                let size = self.rng().u64(2..=WIDEST);
                let spec = json!({"parallelism": size, "completions": size});
                patch(&self.api, &made.name, &json!({"spec": spec})).await;
            }
            // Not before there are Pods to orphan.
            Kind::Orphaning if self.has_live_pods(&made) && self.rng().u32(0..3) == 0 => {
                self.delete_as(at, "Orphan").await;
                // One command right after the other, or with a pause between them.
                let pause = self.rng().u64(0..400).saturating_sub(200);
                tokio::time::sleep(Duration::from_millis(pause)).await;
                self.make(Kind::Adopting, heir_of(&made.name)).await;
            }
            Kind::Deleted if self.rng().u32(0..4) == 0 => {
                self.delete(at).await;
                if self.rng().bool() {
                    // Another Job of the same name.
                    self.make(Kind::Plain, made.name).await;
                }
            }
            _ => {}
        }
    }

    async fn pound(&self, at: usize, made: &Made) {
        if made.pounded >= self.blows {
            return;
        }
        let live: Vec<String> = {
            let told = self.truth.told();
            let pods = told.pods_of(&made.uid).filter(|pod| !pod.gone && !pod.ended() && !pod.deleting);
            pods.map(|pod| pod.name.clone()).collect()
        };
        if live.is_empty() {
            return;
        }
        let (which, grace) = {
            let mut rng = self.rng();
            (rng.usize(0..live.len()), rng.bool().then_some(0))
        };
        let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
        if let Some(grace) = grace {
            options["gracePeriodSeconds"] = grace.into();
        }
        let answer = ask(&self.api, &Call::new("DELETE", format!("{PODS}/{}", live[which])).body(&options)).await;
        if answer.code < 300 {
            self.made()[at].pounded += 1;
        }
    }

    fn has_live_pods(&self, made: &Made) -> bool {
        self.truth.told().pods_of(&made.uid).any(|pod| !pod.gone && !pod.ended())
    }

    async fn delete(&self, at: usize) {
        let policy = ["Background", "Foreground", "Orphan"][self.rng().usize(0..3)];
        self.delete_as(at, policy).await;
    }

    async fn delete_as(&self, at: usize, policy: &str) {
        let made = self.made()[at].clone();
        let options = json!({
            "kind": "DeleteOptions", "apiVersion": "v1",
            "propagationPolicy": policy, "preconditions": {"uid": made.uid},
        });
        let answer = ask(&self.api, &Call::new("DELETE", format!("{JOBS}/{}", made.name)).body(&options)).await;
        assert!(matches!(answer.code, 200 | 202), "{} {}", answer.code, answer.text);
        self.made()[at].deleted = Some(policy != "Orphan");
    }
}
