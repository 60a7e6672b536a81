//! What a case works with: a namespace of its own, and the recorded history of its Pods.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tally_core::time::Timestamp;

use crate::api::{Answer, Api};
use crate::cluster::Cluster;
use crate::expect::{Expected, without_times};
use crate::job::Job;
use crate::truth::{Life, Truth};

pub const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Limit for a step that waits only for the machine or for one back-off. It only ends a case that would otherwise hang.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Longest pause between two polls.
const PAUSE: Duration = Duration::from_millis(250);

/// From this many similar Events on, they may be combined.
const COMBINED: usize = 10;

/// Polls until `look` returns a value.
pub async fn until<T>(what: &str, within: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let (end, mut pause) = (Instant::now() + within, Duration::from_millis(10));
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < end, "not within {within:?}: {what}");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE);
    }
}

pub struct Space<'a> {
    pub cluster: &'a Cluster,
    pub api: Api,
    pub namespace: String,
    pub truth: Truth,
}

pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

pub fn phase(pod: &Value) -> &str {
    text(pod, "/status/phase")
}

/// The completion index of a Pod.
pub fn index(pod: &Value) -> Option<usize> {
    pod["metadata"]["annotations"][INDEX].as_str()?.parse().ok()
}

pub fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|all| all.iter().any(|it| it == finalizer))
}

/// The condition of that type, if it is True.
pub fn holds<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// Seconds since 1970 of a stored time.
pub fn seconds(time: &Value) -> i64 {
    let time = time.as_str().unwrap_or_default();
    Timestamp::parse(time).unwrap_or_else(|problem| panic!("{time:?}: {problem}")).seconds()
}

/// When its first container ended, in seconds since 1970.
pub fn ended_at(pod: &Value) -> i64 {
    seconds(&pod["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"])
}

impl<'a> Space<'a> {
    pub async fn new(cluster: &'a Cluster, case: &str) -> Self {
        let api = Api::to(&cluster.kubeconfig).await;
        let (_, short) = case.split_once("::").expect("area and case");
        let short: String = short.replace('_', "-").chars().take(40).collect();
        let made = json!({"metadata": {"generateName": format!("e2e-{}-", short.trim_end_matches('-'))}});
        let namespace = name(&api.post("/api/v1/namespaces", &made).await).to_owned();
        cluster.has_namespace(&namespace);
        let space = Self { cluster, api, namespace, truth: Truth::default() };
        // Without it no Pod can be created, and Jobs would get Events about that.
        let account = space.core("serviceaccounts/default");
        space.until("there is a default service account", async || space.api.get(&account).await.found()).await;
        space.truth.follow(space.api.clone(), space.core("pods")).await;
        space
    }

    pub async fn until<T>(&self, what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
        until(what, PATIENCE, look).await
    }

    /// The path of a core resource in the namespace.
    pub fn core(&self, what: &str) -> String {
        format!("/api/v1/namespaces/{}/{what}", self.namespace)
    }

    pub fn batch(&self, what: &str) -> String {
        format!("/apis/batch/v1/namespaces/{}/{what}", self.namespace)
    }

    fn job_path(&self, job: &str) -> String {
        self.batch(&format!("jobs/{job}"))
    }

    pub async fn create(&self, job: &Job) -> Value {
        self.api.post(&self.batch("jobs"), &job.in_cluster(self.cluster)).await
    }

    pub async fn job(&self, job: &str) -> Option<Value> {
        self.api.get(&self.job_path(job)).await.found()
    }

    pub async fn patch_job(&self, job: &str, patch: Value) -> Answer {
        self.api.patch(&self.job_path(job), &patch).await
    }

    pub async fn change(&self, job: &str, spec: Value) -> Value {
        self.patch_job(job, json!({"spec": spec})).await.ok()
    }

    pub async fn delete_job(&self, job: &str, propagation: &str) {
        let options = json!({"propagationPolicy": propagation});
        self.api.delete(&self.job_path(job), &options).await.ok();
    }

    pub async fn job_until(&self, job: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let path = self.job_path(job);
        let end = Instant::now() + PATIENCE;
        self.until(&format!("Job {job}: {what}"), async || {
            last = self.api.get(&path).await.found()?;
            if Instant::now() + Duration::from_secs(1) > end {
                println!("Job {job}, not {what}: {:#}", last["status"]);
            }
            is(&last).then(|| last.clone())
        })
        .await
    }

    pub async fn job_gone(&self, job: &str) {
        let path = self.job_path(job);
        let gone = async || self.api.get(&path).await.found().is_none().then_some(());
        self.until(&format!("Job {job} is gone"), gone).await;
    }

    /// All Pods of the namespace.
    pub async fn pods(&self) -> Vec<Value> {
        let list = self.api.get(&self.core("pods")).await.ok();
        list["items"].as_array().expect("a list").clone()
    }

    pub async fn pod(&self, pod: &str) -> Option<Value> {
        self.api.get(&self.core(&format!("pods/{pod}"))).await.found()
    }

    pub async fn pod_gone(&self, pod: &Value) {
        let path = self.core(&format!("pods/{}", name(pod)));
        self.until(&format!("Pod {} is gone", name(pod)), async || {
            self.api.get(&path).await.found().is_none_or(|now| uid(&now) != uid(pod)).then_some(())
        })
        .await;
    }

    pub async fn no_pods(&self) {
        self.until("there are no Pods", async || self.pods().await.is_empty().then_some(())).await;
    }

    /// Waits until exactly this many Pods of the Job run and are not being deleted. Sorted by completion index and
    /// name.
    pub async fn running(&self, job: &Value, count: usize) -> Vec<Value> {
        self.until(&format!("{count} Pods of Job {} run", name(job)), async || {
            let mut pods = self.pods().await;
            pods.retain(|pod| {
                let owner = crate::truth::controller(pod);
                let ours = owner.is_some_and(|owner| owner["uid"] == uid(job));
                ours && phase(pod) == "Running" && pod["metadata"]["deletionTimestamp"].is_null()
            });
            pods.sort_by_key(|pod| (index(pod), name(pod).to_owned()));
            (pods.len() == count).then_some(pods)
        })
        .await
    }

    /// Waits until `is` holds for a Pod.
    pub async fn pod_until(&self, pod: &Value, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let what = format!("Pod {}: {what}", name(pod));
        self.until(&what, async || self.pod(name(pod)).await.filter(|now| uid(now) == uid(pod) && is(now))).await
    }

    /// Changes what a Pod does, by its annotations.
    pub async fn steer(&self, pod: &Value, does: &[(&str, &str)]) {
        let annotations: serde_json::Map<_, _> =
            does.iter().map(|(what, how)| (format!("hollow.tally.dev/{what}"), json!(how))).collect();
        let path = self.core(&format!("pods/{}", name(pod)));
        self.api.patch(&path, &json!({"metadata": {"uid": uid(pod), "annotations": annotations}})).await.ok();
    }

    /// Lets a running Pod end with this code, and waits until it has ended.
    pub async fn end(&self, pod: &Value, exit_code: i32) {
        self.steer(pod, &[("run-for", "0s"), ("exit-code", &exit_code.to_string())]).await;
        self.pod_until(pod, "it ends", |pod| ["Succeeded", "Failed"].contains(&phase(pod))).await;
    }

    pub async fn end_all(&self, pods: &[Value], exit_code: i32) {
        for pod in pods {
            self.end(pod, exit_code).await;
        }
    }

    pub async fn delete_pod(&self, pod: &Value, grace_seconds: Option<u32>) {
        let mut options = json!({"preconditions": {"uid": uid(pod)}});
        if let Some(seconds) = grace_seconds {
            options["gracePeriodSeconds"] = seconds.into();
        }
        self.api.delete(&self.core(&format!("pods/{}", name(pod))), &options).await.ok();
    }

    /// The number of events of this type and reason about an object, repetitions included; and the messages.
    pub async fn events(&self, of: &Value, kind: &str, reason: &str) -> (usize, Vec<String>) {
        let list = self.api.get(&self.core("events")).await.ok();
        let events = list["items"].as_array().expect("a list").iter();
        let these = events.filter(|event| {
            event["involvedObject"]["uid"] == of["metadata"]["uid"]
                && event["type"] == kind
                && event["reason"] == reason
        });
        these.fold((0, Vec::new()), |(count, mut messages), event| {
            messages.push(text(event, "/message").to_owned());
            (count + usize::try_from(event["count"].as_u64().unwrap_or(1)).expect("a count"), messages)
        })
    }

    pub async fn event(&self, of: &Value, kind: &str, reason: &str, message: &str) {
        self.until(&format!("an event {kind} {reason} {message:?}"), async || {
            let (_, messages) = self.events(of, kind, reason).await;
            messages.iter().any(|said| said == message).then_some(())
        })
        .await;
    }

    /// Waits until the watch of Pods has caught up with all events so far.
    async fn catch_up(&self) {
        // A Pod that no node runs: once the watch shows it, it has shown everything before it.
        let pod = json!({
            "metadata": {"generateName": "marker-"},
            "spec": {
                "schedulingGates": [{"name": "e2e.tally.dev/marker"}],
                "containers": [{"name": "main", "image": "hollow"}],
            },
        });
        let marker = self.api.post(&self.core("pods"), &pod).await;
        self.until("the watch has caught up", async || self.truth.has(uid(&marker)).then_some(())).await;
        self.delete_pod(&marker, Some(0)).await;
    }

    /// Every Pod the Job ever had.
    pub async fn lives(&self, job: &Value) -> Vec<Life> {
        self.catch_up().await;
        self.truth.of(uid(job))
    }

    /// Waits for the end of a Job and compares it with the expected one: the whole status, the Pods there were, the
    /// Events.
    pub async fn ends(&self, job: &Value, expected: Expected) -> Value {
        let is_finished = |job: &Value| holds(job, "Complete").or(holds(job, "Failed")).is_some();
        let ended = self.job_until(name(job), "it ends", is_finished).await;
        assert_eq!(uid(&ended), uid(job), "another Job took its name");
        let status = without_times(&ended["status"]);
        assert!(status == expected.status, "expected {:#}\nbut it is {status:#}", expected.status);

        let lives = self.lives(job).await;
        let names: Vec<_> = lives.iter().map(|life| (name(&life.last), life.phase())).collect();
        assert_eq!(lives.len(), expected.pods, "Pods there ever were: {names:#?}");
        let succeeded = lives.iter().filter(|life| life.phase() == "Succeeded");
        let counted = ended["status"]["succeeded"].as_u64().unwrap_or(0);
        match ended["status"]["completedIndexes"].as_str() {
            None => assert_eq!(succeeded.count() as u64, counted, "{names:#?}"),
            Some(indexes) => {
                let completions = ended["spec"]["completions"].as_u64().unwrap_or(0) as usize;
                let those = succeeded.filter_map(|life| index(&life.last)).filter(|index| *index < completions);
                assert_eq!(listed(those.collect()), indexes, "{names:#?}");
            }
        }

        let (kind, reason, message) = &expected.event;
        self.event(job, kind, reason, message).await;
        let created = expected.pods - expected.adopted;
        if created < COMBINED {
            self.until(&format!("{created} events of Pods created"), async || {
                let (count, messages) = self.events(job, "Normal", "SuccessfulCreate").await;
                assert!(count <= created, "{messages:?}");
                (count == created).then_some(())
            })
            .await;
        }
        ended
    }

    /// After the case: no Pod may need any further work.
    pub async fn leave(self) {
        self.until("no Pod keeps the tracking finalizer", async || {
            let pods = self.pods().await;
            (!pods.iter().any(|pod| has_finalizer(pod, FINALIZER))).then_some(())
        })
        .await;
        self.catch_up().await;
        assert_eq!(self.truth.problems(), Vec::<String>::new());
    }
}

/// Formats indexes as in a status.
fn listed(mut indexes: Vec<usize>) -> String {
    indexes.sort_unstable();
    indexes.dedup();
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for index in indexes {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == index => *last = index,
            _ => runs.push((index, index)),
        }
    }
    let texts = runs.into_iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    });
    texts.collect::<Vec<_>>().join(",")
}
