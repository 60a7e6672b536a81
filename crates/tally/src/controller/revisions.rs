//! Whether the revisions of Jobs and of Pods can be compared.
//!
//! Accounting compares them: Pods known up to the revision of a Job are the Pods that existed when the Job was written.
//! This holds if both are stored in the same etcd. An API server can be configured to store a resource in another etcd
//! (`--etcd-servers-overrides`), whose revisions are counted from its own beginning; then a Job would get no Pods, or a
//! Pod would be counted twice. No field of the API shows this, but the revisions of consistent lists do: with one etcd,
//! of three lists read one after the other none is older than the one before.

use std::time::Duration;

use tally_core::ids::Revision;
use tally_runtime::controller::Kind;

use tally_remote::{Remote, request};

/// Interval of the check while running. The API servers may be reconfigured to store Pods elsewhere at any time.
const EVERY: Duration = Duration::from_secs(180);
/// Interval after a check whose lists could not be read.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// An etcd that is restored from a backup between two lists also shows a step back, but only once.
const LOOKS: u32 = 3;

/// The revisions of three consistent lists, read in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lists {
    jobs: Revision,
    pods: Revision,
    jobs_again: Revision,
}

impl Lists {
    /// With two stores, a Pod revision between the two Job revisions may be a coincidence, but not in every check: both
    /// stores keep counting.
    fn are_comparable(&self) -> bool {
        self.jobs <= self.pods && self.pods <= self.jobs_again
    }
}

#[derive(Debug)]
pub enum RevisionError {
    /// Jobs and Pods are in different etcd clusters.
    Separate(String),
    /// The lists could not be read.
    Unread(String),
}

fn separate(lists: Lists) -> RevisionError {
    let Lists { jobs, pods, jobs_again } = lists;
    RevisionError::Separate(format!(
        "Jobs and Pods have revisions of different etcd clusters (Jobs {jobs}, then Pods {pods}, then Jobs {jobs_again}), \
         but exact counting has to compare them: start kube-apiserver with both in the same etcd, without \
         --etcd-servers-overrides for batch/jobs and /pods, or leave the Jobs to the built-in controller"
    ))
}

/// One check of up to `LOOKS` attempts.
pub async fn check(remote: &Remote) -> Result<(), RevisionError> {
    let mut last = None;
    for _ in 0..LOOKS {
        let lists = Lists {
            jobs: newest(remote, Kind::JOB).await?,
            pods: newest(remote, Kind::POD).await?,
            jobs_again: newest(remote, Kind::JOB).await?,
        };
        if lists.are_comparable() {
            return Ok(());
        }
        last = Some(separate(lists));
    }
    last.map_or(Ok(()), Err)
}

/// Resolves when the revisions turn out not to be comparable, with the message to report.
pub async fn watch(remote: &Remote) -> String {
    watch_every(remote, EVERY, RETRY_AFTER).await
}

async fn watch_every(remote: &Remote, every: Duration, retry_after: Duration) -> String {
    let mut wait = every;
    loop {
        tokio::time::sleep(wait).await;
        wait = match check(remote).await {
            Ok(()) => every,
            Err(RevisionError::Unread(_)) => retry_after.min(every),
            Err(RevisionError::Separate(why)) => return why,
        };
    }
}

/// The revision of a consistent list: a list request without a revision is answered from the store, not from a cache
/// that may be stale.
async fn newest(remote: &Remote, kind: Kind) -> Result<Revision, RevisionError> {
    let request = request::one(kind).map_err(|error| RevisionError::Unread(error.to_string()))?;
    let answer = remote.ask(request).await.map_err(|failure| RevisionError::Unread(failure.why))?;
    if answer.code != 200 {
        return Err(RevisionError::Unread(format!(
            "the API server answers {} to a list of {}",
            answer.code, kind.plural
        )));
    }
    tally_remote::list_revision(&answer.body).map_err(|error| RevisionError::Unread(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tally_remote::fake::server;

    #[test]
    fn three_lists_of_one_etcd_do_not_go_back() {
        for (jobs, pods, jobs_again, comparable) in [
            (5, 5, 5, true),
            (5, 6, 9, true),
            // Pods in an etcd that is behind or ahead, and Jobs in an etcd that went back.
            (1_000_000, 5_000, 1_000_000, false),
            (5_000, 1_000_000, 5_001, false),
            (5, 4, 5, false),
            (5, 6, 5, false),
            (9, 9, 8, false),
        ] {
            let [jobs, pods, jobs_again] = [jobs, pods, jobs_again].map(Revision);
            let lists = Lists { jobs, pods, jobs_again };
            assert_eq!(lists.are_comparable(), comparable, "{lists:?}");
        }
    }

    /// A server whose Pods are this much ahead of its Jobs, from the given request on.
    async fn two_stores(ahead: i64, from: i64) -> Remote {
        let asked = std::sync::atomic::AtomicI64::new(0);
        let (remote, _) = server(move |target| {
            let nth = asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let pods = target.contains("/pods?") && nth >= from;
            let at = 1_000 + nth + if pods { ahead } else { 0 };
            assert!(target.ends_with("?limit=1"), "{target}");
            Some((200, format!(r#"{{"kind":"List","metadata":{{"resourceVersion":"{at}"}},"items":[]}}"#)))
        })
        .await;
        remote
    }

    #[tokio::test]
    async fn two_stores_are_told_apart() {
        assert!(check(&two_stores(0, 0).await).await.is_ok());
        for ahead in [-500, 500] {
            let told = check(&two_stores(ahead, 0).await).await;
            let Err(RevisionError::Separate(why)) = told else { panic!("{told:?}") };
            assert!(why.contains("--etcd-servers-overrides"), "{why}");
        }
        let (away, _) = server(|_| None).await;
        assert!(matches!(check(&away).await, Err(RevisionError::Unread(_))));
        let (proxy, _) = server(|_| Some((404, "<html>".to_owned()))).await;
        assert!(matches!(check(&proxy).await, Err(RevisionError::Unread(_))));
    }

    /// As when an etcd is restored from a backup: not comparable once, and comparable after that.
    #[tokio::test]
    async fn one_step_back_is_not_enough() {
        let asked = std::sync::atomic::AtomicU64::new(0);
        let (remote, _) = server(move |_| {
            let nth = asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let at = if nth == 0 { 9_000 } else { 1_000 + nth };
            Some((200, format!(r#"{{"kind":"List","metadata":{{"resourceVersion":"{at}"}},"items":[]}}"#)))
        })
        .await;
        assert!(check(&remote).await.is_ok());
    }

    #[tokio::test]
    async fn a_store_that_is_moved_while_running_is_noticed() {
        let remote = two_stores(500, 20).await;
        let pause = Duration::from_millis(1);
        let why = tokio::time::timeout(Duration::from_secs(20), watch_every(&remote, pause, pause)).await.unwrap();
        assert!(why.contains("different etcd clusters"), "{why}");
    }
}
