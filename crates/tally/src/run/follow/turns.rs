//! Whose output is shown next. Pure.

use std::collections::{BTreeMap, BTreeSet};

use tally_node::port::Attempt;

/// In which order the output of tasks is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputOrder {
    /// In the order of the indexes, and of the Jobs.
    pub by_index: bool,
    /// A task is shown when it has ended, in one piece.
    pub grouped: bool,
}

impl OutputOrder {
    /// Output may have to wait for other tasks: it is kept on disk until then, however much it is.
    pub fn waits(self) -> bool {
        self.by_index || self.grouped
    }
}

/// The position of a task: the position of its Job, and its index. Without an index, tasks come after those with one.
pub type Place = (usize, u32);

/// The Jobs of a run, in their order.
#[derive(Debug, Default)]
pub struct JobOrder {
    /// Their positions and shown names, by UID.
    jobs: BTreeMap<String, (usize, String)>,
    /// Those that have not finished.
    open: BTreeSet<usize>,
}

impl JobOrder {
    /// The UID, the position and the shown name of each Job.
    pub fn new<'a>(jobs: impl Iterator<Item = (&'a str, usize, &'a str)>) -> Self {
        let jobs: BTreeMap<_, _> = jobs.map(|(uid, at, name)| (uid.to_owned(), (at, name.to_owned()))).collect();
        let open = jobs.values().map(|(at, _)| *at).collect();
        Self { jobs, open }
    }

    /// The name under which a Job is shown: a part of a list has the name of the list.
    pub fn name(&self, uid: &str) -> Option<&str> {
        self.jobs.get(uid).map(|(_, name)| name.as_str())
    }

    pub fn place(&self, uid: &str, index: Option<u32>) -> Place {
        let job = self.jobs.get(uid).map_or(usize::MAX, |(at, _)| *at);
        (job, index.unwrap_or(u32::MAX))
    }

    /// A Job has finished, or its tasks before this index. Returns the place before which everything has finished.
    pub fn finished_before(&mut self, job: usize, finished: bool, first_open: u32) -> Place {
        if finished {
            self.open.remove(&job);
        }
        // A Job has its turn when those before it have finished.
        match self.open.first() {
            None => LAST,
            Some(first) if *first == job => (job, first_open),
            Some(first) => (*first, 0),
        }
    }
}

/// Behind all tasks.
pub const LAST: Place = (usize::MAX, u32::MAX);

/// The tasks that have output to show.
#[derive(Debug, Default)]
pub struct Turns {
    order: OutputOrder,
    tasks: BTreeMap<Attempt, Task>,
    /// The same, in the order in which they are shown.
    sequence: BTreeSet<(Place, u64, Attempt)>,
    /// Tasks up to this place may be shown.
    reached: Place,
    /// Counts beginnings, or ends if tasks are shown at their end.
    count: u64,
}

#[derive(Debug)]
struct Task {
    place: Place,
    number: u64,
    has_ended: bool,
}

impl Turns {
    pub fn new(order: OutputOrder) -> Self {
        Self { order, ..Self::default() }
    }

    pub fn began(&mut self, attempt: &Attempt, place: Place) {
        let place = if self.order.by_index { place } else { (0, 0) };
        self.count += 1;
        self.sequence.insert((place, self.count, attempt.clone()));
        self.tasks.insert(attempt.clone(), Task { place, number: self.count, has_ended: false });
    }

    pub fn ended(&mut self, attempt: &Attempt) {
        let Some(task) = self.tasks.get_mut(attempt) else { return };
        if self.order.grouped && !std::mem::replace(&mut task.has_ended, true) {
            // The first to end is the first to be shown.
            self.sequence.remove(&(task.place, task.number, attempt.clone()));
            self.count += 1;
            task.number = self.count;
            self.sequence.insert((task.place, task.number, attempt.clone()));
        }
        task.has_ended = true;
    }

    pub fn shown(&mut self, attempt: &Attempt) {
        if let Some(task) = self.tasks.remove(attempt) {
            self.sequence.remove(&(task.place, task.number, attempt.clone()));
        }
    }

    /// All tasks before this place have finished and will write nothing more.
    pub fn reach(&mut self, place: Place) {
        self.reached = self.reached.max(place);
    }

    /// The tasks that may be shown now: in a given order, one after the other; otherwise all together.
    pub fn current(&self) -> Vec<Attempt> {
        let most = if self.order.waits() { 1 } else { usize::MAX };
        let may = |(place, _, attempt): &&(Place, u64, Attempt)| {
            let has_ended = self.tasks.get(attempt).is_some_and(|task| task.has_ended);
            (!self.order.by_index || *place <= self.reached) && (!self.order.grouped || has_ended)
        };
        self.sequence.iter().filter(may).take(most).map(|(_, _, attempt)| attempt.clone()).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use tally_core::ids::PodUid;

    use super::*;

    fn task(number: u32) -> Attempt {
        Attempt { pod: PodUid::from_u128(number.into()), container: "main".into(), number }
    }

    fn current(turns: &Turns) -> Vec<u32> {
        turns.current().iter().map(|attempt| attempt.number).collect()
    }

    fn turns(by_index: bool, grouped: bool, places: &[Place]) -> Turns {
        let mut turns = Turns::new(OutputOrder { by_index, grouped });
        for (number, place) in (0..).zip(places) {
            turns.began(&task(number), *place);
        }
        turns
    }

    #[test]
    fn without_an_order_all_are_shown_together() {
        let mut turns = turns(false, false, &[(0, 1), (0, 0)]);
        assert_eq!(current(&turns), [0, 1]);
        turns.ended(&task(0));
        assert_eq!(current(&turns), [0, 1], "it may not be read to its end yet");
        turns.shown(&task(0));
        assert_eq!(current(&turns), [1]);
    }

    #[test]
    fn in_groups_the_first_to_end_is_shown_first() {
        let mut turns = turns(false, true, &[(0, 0), (0, 1), (0, 2)]);
        assert_eq!(current(&turns), [0; 0]);
        turns.ended(&task(2));
        turns.ended(&task(0));
        assert_eq!(current(&turns), [2]);
        turns.shown(&task(2));
        assert_eq!(current(&turns), [0]);
    }

    #[test]
    fn by_index_the_first_that_has_not_finished_is_shown_as_it_runs() {
        // The fourth is another attempt of the second index.
        let mut turns = turns(true, false, &[(0, 2), (0, 1), (1, 0), (0, 1)]);
        assert_eq!(current(&turns), [0; 0], "index 0 has written nothing and has not finished");
        turns.reach((0, 1));
        assert_eq!(current(&turns), [1]);
        turns.shown(&task(1));
        assert_eq!(current(&turns), [3]);
        turns.reach((0, 2));
        assert_eq!(current(&turns), [3], "the rest of an earlier index first");
        turns.shown(&task(3));
        assert_eq!(current(&turns), [0]);
        turns.reach((1, 0));
        turns.shown(&task(0));
        assert_eq!(current(&turns), [2]);
        turns.shown(&task(2));
        assert!(turns.is_empty());
    }

    #[test]
    fn by_index_in_groups_waits_for_both() {
        let mut turns = turns(true, true, &[(0, 1), (0, 0)]);
        turns.ended(&task(0));
        assert_eq!(current(&turns), [0; 0]);
        turns.ended(&task(1));
        assert_eq!(current(&turns), [1]);
        turns.shown(&task(1));
        assert_eq!(current(&turns), [0; 0]);
        turns.reach((0, 1));
        assert_eq!(current(&turns), [0]);
    }
}
