//! What hosts hear: lists, watch events and bookmarks.

use std::ops::Range;
use std::time::Duration;

use tally_core::ids::Revision;
use tally_core::time::Span;
use tally_runtime::controller::{Input, Kind, Stream};
use tally_runtime::driver::api::{Start, StreamEvent as Heard, WatchError};
use tally_runtime::driver::reflector::{Next, Word};

use super::{Followed, Host, Source};
use crate::archive::Version;
use crate::cluster::Role;
use crate::counters::Sometimes;
use crate::trace::describe_bytes;
use crate::world::World;

impl World {
    /// Whether a response is delivered instead of the next piece of a list.
    pub(crate) fn interrupts_lists(&mut self) -> bool {
        self.setup.bias.pieces
            && self.hosts.iter().any(|host| !host.is_idle() && host.is_listing())
            && self.choices.below(2) == 1
    }

    pub(crate) fn hear_any(&mut self, hosts: Range<usize>) -> bool {
        let behind = self.watch_behind();
        let count = hosts.len();
        let first = self.choices.below(count);
        for turn in 0..count {
            let at = hosts.start + (first + turn) % count;
            let streams = self.hosts[at].streams.len();
            if streams == 0 {
                continue;
            }
            let first = self.choices.below(streams);
            for turn in 0..streams {
                let stream = (first + turn) % streams;
                // Mostly a few at a time: a burst is what a stream that was behind delivers.
                let most = [1, 3, 1000][self.choices.below(3)];
                let followed = &self.hosts[at].streams[stream];
                if behind == Some(followed.reflector.stream().kind) {
                    continue;
                }
                let most = if self.setup.bias.pieces && followed.is_listing() { 1 } else { most };
                if self.hear(at, stream, most) {
                    return true;
                }
            }
        }
        false
    }

    /// Delivers up to `most` events of one stream to its controller. False: there were none.
    pub(super) fn hear(&mut self, at: usize, stream: usize, most: usize) -> bool {
        if self.hosts[at].is_idle() || self.hosts[at].streams[stream].stalled {
            return false;
        }
        let mut heard = 0;
        while heard < most && self.hear_one(at, stream) {
            heard += 1;
        }
        heard > 0
    }

    fn hear_one(&mut self, at: usize, stream: usize) -> bool {
        let now = self.api.now;
        let followed = &mut self.hosts[at].streams[stream];
        let Stream { kind, metadata_only, .. } = followed.reflector.stream();
        let shown = |version: &Version| if metadata_only { version.metadata() } else { version.bytes.clone() };
        match &mut followed.source {
            Source::Closed if followed.opens_at > now => return false,
            Source::Closed => self.open(at, stream),
            Source::State { at: revision, rest } => {
                let revision = *revision;
                if let Some(version) = rest.pop_front() {
                    self.hears(at, stream, Heard::Object(shown(&version).into()));
                    return true;
                }
                let log = self.api.archive.log(&kind);
                followed.source = Source::Changes(log.partition_point(|version| version.at <= revision));
                self.hears(at, stream, Heard::Reached { at: revision, complete: true });
            }
            Source::Changes(next) => {
                let Some(version) = self.api.archive.log(&kind).get(*next).cloned() else { return false };
                *next += 1;
                followed.seen = version.at;
                if self.trace.lines.is_some() {
                    let name = self.host_name(at);
                    let end = if version.gone { "the end of " } else { "" };
                    self.trace.say(|| format!("{name} sees {end}{}", describe_bytes(kind, &version.bytes)));
                }
                let bytes = shown(&version);
                let heard = if version.gone { Heard::Gone(bytes.into()) } else { Heard::Object(bytes.into()) };
                self.hears(at, stream, heard);
            }
        }
        true
    }

    fn hears(&mut self, at: usize, stream: usize, heard: Heard) {
        let followed = &mut self.hosts[at].streams[stream];
        match followed.reflector.hears(heard) {
            Word::Tell(input) => {
                self.note_shown(at, &input);
                self.tell(at, input);
            }
            Word::Synced(input) => {
                if let Input::InitDone(_, revision) = &input {
                    followed.seen = *revision;
                }
                self.tell(at, input);
            }
            Word::Ignore => {}
            Word::Broken(trouble) => self.breaks(at, stream, Some(&trouble)),
        }
    }

    /// Opens a stream. A list may be of the past: never older than what the server keeps. If it is older than what the
    /// reflector asked for, as a server that is behind may send it, the reflector must handle that.
    fn open(&mut self, at: usize, stream: usize) {
        self.hosts[at].streams[stream].opened_at = self.api.now;
        let start = self.hosts[at].streams[stream].reflector.start();
        let kind = self.hosts[at].streams[stream].reflector.stream().kind;
        let source = match start {
            Start::Changes { after } if after < self.api.compacted => {
                self.counters.hit(Sometimes::TooOld);
                self.breaks(at, stream, Some(&WatchError::TooOld));
                return;
            }
            Start::Changes { after } => {
                self.counters.hit(Sometimes::StreamResumed);
                let log = self.api.archive.log(&kind);
                Source::Changes(log.partition_point(|version| version.at <= after))
            }
            Start::State { not_older_than } => {
                let behind = !self.healing && self.setup.weights.cut > 0 && self.choices.one_in(16);
                let floor = if behind { self.api.compacted } else { self.api.compacted.max(not_older_than) };
                let head = self.api.head();
                let span = (head.0 - floor.0.min(head.0)) as usize;
                let back = if self.healing { 0 } else { [0, 0, self.choices.below(span + 1)][self.choices.below(3)] };
                let back = if back == 0 && self.setup.bias.pieces && !self.healing {
                    self.choices.below(2) * self.choices.below(span.min(8) + 1)
                } else {
                    back
                };
                let revision = Revision(head.0 - back as u64);
                if back > 0 {
                    self.counters.hit(Sometimes::TimeTravel);
                }
                if revision < not_older_than {
                    self.counters.hit(Sometimes::OlderState);
                }
                self.note_hidden_life(at, stream, kind, revision);
                if self.trace.lines.is_some() {
                    let name = self.host_name(at);
                    self.trace.say(|| format!("{name} lists {} as of {revision}", kind.plural));
                }
                let rest = self.api.archive.state_at(&kind, revision).into_values().collect();
                Source::State { at: revision, rest }
            }
        };
        let followed = &mut self.hosts[at].streams[stream];
        followed.source = source;
        if let Some(input) = followed.reflector.opened() {
            self.tell(at, input);
        }
    }

    fn note_hidden_life(&mut self, at: usize, stream: usize, kind: Kind, until: Revision) {
        let seen = self.hosts[at].streams[stream].seen;
        if kind != Kind::POD || seen == Revision(0) || self.hosts[at].role != Role::Job {
            return;
        }
        let log = &self.api.pod_log;
        let hidden = log.iter().any(|entry| {
            let gone_unseen = entry.gone && entry.at > seen && entry.at <= until;
            let born = || log.iter().find(|other| other.object.uid == entry.object.uid).map(|birth| birth.at);
            gone_unseen && born().is_some_and(|born| born > seen)
        });
        if hidden {
            self.counters.hit(Sometimes::HiddenLife);
        }
    }

    /// A stream has ended.
    pub(super) fn breaks(&mut self, at: usize, stream: usize, trouble: Option<&WatchError>) {
        let now = self.api.now;
        let followed = &mut self.hosts[at].streams[stream];
        followed.source = Source::Closed;
        let open_for = Duration::from_millis((now - followed.opened_at).millis().max(0) as u64);
        followed.opens_at = match followed.reflector.ends(trouble, open_for) {
            Next::Again | Next::Relist => now,
            Next::After(wait) => now + Span::from_millis(wait.as_millis() as i64),
        };
    }

    pub(crate) fn bookmark_any(&mut self, hosts: Range<usize>) -> bool {
        if self.setup.bias.pieces && self.choices.below(2) == 1 {
            let listing = |host: &Host| host.streams.iter().position(Followed::is_listing);
            let found = (hosts.clone()).find_map(|at| Some((at, listing(&self.hosts[at])?)));
            return found.is_some_and(|(at, stream)| self.bookmark(at, stream));
        }
        let at = hosts.start + self.choices.below(hosts.len());
        let streams = self.hosts[at].streams.len();
        streams > 0 && {
            let stream = self.choices.below(streams);
            self.bookmark(at, stream)
        }
    }

    pub(super) fn bookmark(&mut self, at: usize, stream: usize) -> bool {
        let followed = &self.hosts[at].streams[stream];
        if self.hosts[at].is_idle() || followed.stalled {
            return false;
        }
        let next = match followed.source {
            Source::Changes(next) => next,
            // No server of ours sends one inside a list. It says nothing: objects may still follow.
            Source::State { at: reached, .. } if self.setup.bias.pieces && !self.healing => {
                self.counters.hit(Sometimes::BookmarkInList);
                self.hears(at, stream, Heard::Reached { at: reached, complete: false });
                return true;
            }
            Source::State { .. } | Source::Closed => return false,
        };
        let kind = followed.reflector.stream().kind;
        let reached = match self.api.archive.log(&kind).get(next) {
            Some(version) => Revision(version.at.0 - 1),
            None => self.api.head(),
        };
        if reached <= followed.seen {
            return false;
        }
        self.hosts[at].streams[stream].seen = reached;
        self.hears(at, stream, Heard::Reached { at: reached, complete: false });
        true
    }
}
