//! What Pods write. Where it is kept is the node's business; this is all that `tally run` needs of it.

/// One Pod, as the node knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodId {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub container: String,
    /// Without the end of the line.
    pub text: String,
}

/// How far somebody has read: a place in each of the logs of a Pod, by whatever name they have. A container that
/// starts again has a new log, which is read from its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor(pub std::collections::BTreeMap<String, u64>);

pub trait Logs: Send + Sync {
    /// The last lines of a container, or of all of them where none is named. Nothing where there is no log any more.
    fn tail(&self, pod: &PodId, container: &str, most: usize) -> Vec<String>;

    /// Whole lines after the cursor, at most `most`, and moves it. `ended`: nothing more will be written,
    /// so that half a line is one, too. Nothing: there is no more for now.
    fn read(&self, pod: &PodId, cursor: &mut Cursor, ended: bool, most: usize) -> Vec<Line>;
}

/// Hollow nodes run nothing. Their Pods say that, so that what is done with logs can be seen.
pub struct HollowLogs;

impl HollowLogs {
    fn said(pod: &PodId) -> String {
        format!("{} ran nothing: its node is hollow", pod.name)
    }
}

impl Logs for HollowLogs {
    fn tail(&self, pod: &PodId, _: &str, most: usize) -> Vec<String> {
        [Self::said(pod)].into_iter().take(most).collect()
    }

    fn read(&self, pod: &PodId, cursor: &mut Cursor, ended: bool, most: usize) -> Vec<Line> {
        if !ended || most == 0 || cursor.0.insert("main".to_owned(), 1).is_some() {
            return Vec::new();
        }
        vec![Line { container: "main".to_owned(), text: Self::said(pod) }]
    }
}
