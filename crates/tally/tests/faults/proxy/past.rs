//! Earlier states, as a lagging replica would still send them.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use serde_json::Value;

/// Number of states kept per path: a few seconds of a storm.
const KEPT: usize = 12;

#[derive(Default)]
pub struct Past {
    /// By path.
    states: BTreeMap<String, VecDeque<State>>,
}

#[derive(Clone)]
pub struct State {
    pub at: u64,
    /// The events of a streaming list, up to and with the bookmark that ends it.
    pub text: Bytes,
}

impl Past {
    pub fn keep(&mut self, path: &str, state: State) {
        let states = self.states.entry(path.to_owned()).or_default();
        if states.back().is_none_or(|last| last.at < state.at) {
            states.push_back(state);
        }
        while states.len() > KEPT {
            states.pop_front();
        }
    }

    /// The states that are not older than the requested revision.
    pub fn not_older_than(&self, path: &str, at: u64) -> Vec<State> {
        self.states.get(path).into_iter().flatten().filter(|state| state.at >= at).cloned().collect()
    }
}

/// Records a streaming list as it passes, until it is complete.
#[derive(Default)]
pub struct Recorder {
    text: Vec<u8>,
    searched: usize,
}

impl Recorder {
    pub fn push(&mut self, piece: &[u8]) -> Option<State> {
        self.text.extend_from_slice(piece);
        while let Some(end) = self.text[self.searched..].iter().position(|byte| *byte == b'\n') {
            let line = &self.text[self.searched..=self.searched + end];
            self.searched += end + 1;
            if line.windows(25).any(|part| part == b"k8s.io/initial-events-end") {
                let event: Value = serde_json::from_slice(line).ok()?;
                let at = event["object"]["metadata"]["resourceVersion"].as_str()?.parse().ok()?;
                let text = Bytes::copy_from_slice(&self.text[..self.searched]);
                return Some(State { at, text });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_what_comes_before_its_bookmark() {
        let state = b"{\"type\":\"ADDED\"}\n{\"object\":{\"metadata\":{\"resourceVersion\":\"7\",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}}}}\n";
        let mut recorder = Recorder::default();
        let (first, rest) = state.split_at(30);
        assert!(recorder.push(first).is_none());
        let read = recorder.push(&[rest, b"{\"type\":\"MODIFIED\"}\n"].concat()).unwrap();
        assert_eq!((read.at, read.text.as_ref()), (7, &state[..]));
        let mut past = Past::default();
        past.keep("p", read);
        assert_eq!(past.not_older_than("p", 7).len(), 1);
        assert!(past.not_older_than("p", 8).is_empty() && past.not_older_than("q", 0).is_empty());
    }
}
