//! A stream of changes: a watch, preceded by the pages of a list if necessary.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tally_runtime::controller::{Call, Reply, Stream, Verb};
use tally_runtime::driver::api::{Events, Response, Start, StreamEvent, WatchError};
use tokio::time::Instant;

use crate::answer::{self, Page};
use crate::content::{self, Form};
use crate::frames::Frames;
use crate::lines::Lines;
use crate::{RawResponse, Remote, WatchScope, request};

/// Servers end watches after a while; ours end after five to ten minutes, so that a server that was restarted receives
/// its share of streams again, and not all of them at once.
const SECONDS: std::ops::Range<u32> = 300..600;

/// Bookmarks arrive about once per minute. A stream that is silent for longer than this is considered broken.
const SILENT_FOR: Duration = Duration::from_secs(180);

/// The server may need a while for a list.
const OPEN_WITHIN: Duration = Duration::from_secs(60);

type PendingStream<T> = Pin<Box<dyn Future<Output = Result<T, WatchError>> + Send>>;

pub struct Watch {
    remote: Remote,
    stream: Stream,
    scope: WatchScope,
    state: State,
    /// Received, and not yet delivered.
    ready: VecDeque<StreamEvent>,
}

enum State {
    /// More pages follow.
    Listing(PendingStream<Page>),
    Opening(PendingStream<OpenStream>),
    Reading {
        stream: OpenStream,
        silent_since: Instant,
    },
    Over,
}

/// A response without end.
struct OpenStream {
    body: Incoming,
    events: Splitter,
}

/// What has been received of the next event, in the form of the response.
enum Splitter {
    Lines(Lines),
    Frames(Frames),
}

impl Splitter {
    fn push(&mut self, piece: &[u8], remote: &Remote) -> Result<(), WatchError> {
        match self {
            Self::Lines(lines) => lines.push(piece),
            Self::Frames(frames) => frames.push(piece).map_err(|why| unreadable(remote, why)),
        }
    }

    /// The next event, if it has been received completely.
    fn next(&mut self, remote: &Remote) -> Option<StreamEvent> {
        match self {
            Self::Lines(lines) => lines.next(),
            Self::Frames(frames) => Some(match frames.next()? {
                Ok(event) => {
                    // Not by the head of the response: whether the server's protobuf can be read is known by the events.
                    remote.0.content.was_answered_in_protobuf();
                    event
                }
                Err(why) => StreamEvent::Failed(unreadable(remote, why)),
            }),
        }
    }

    /// The response has ended. A stream that ends within its first event would end there each time.
    fn ended(&self, remote: &Remote) -> Option<WatchError> {
        match self {
            Self::Frames(frames) if frames.breaks_off_at_once() => {
                Some(unreadable(remote, "the stream ends within its first event".to_owned()))
            }
            _ => None,
        }
    }
}

fn unreadable(remote: &Remote, why: String) -> WatchError {
    remote.0.content.read_json_only(&why);
    WatchError::Broken(why)
}

pub async fn follow(remote: &Remote, stream: Stream, scope: WatchScope, from: Start) -> Result<Watch, WatchError> {
    let watch = |state| Watch { remote: remote.clone(), stream, scope: scope.clone(), state, ready: VecDeque::new() };
    let not_older_than = match from {
        Start::Changes { after } => {
            let open = open(remote.clone(), stream, scope.clone(), request::WatchStart::After(after)).await?;
            return Ok(watch(reading(open)));
        }
        Start::State { not_older_than } => not_older_than,
    };
    if remote.streams_lists() {
        match open(remote.clone(), stream, scope.clone(), request::WatchStart::State(not_older_than)).await {
            Ok(open) => return Ok(watch(reading(open))),
            Err(WatchError::Refused(refusal)) if answer::no_streaming_lists(&refusal) => remote.list_by_pages(),
            Err(trouble) => return Err(trouble),
        }
    }
    let first = page(remote.clone(), stream, scope.clone(), String::new()).await?;
    if first.at < not_older_than {
        let (at, seen) = (first.at, not_older_than);
        return Err(WatchError::Broken(format!("the server's list is of revision {at}, but {seen} was seen before")));
    }
    let mut watch = watch(State::Over);
    watch.take(first);
    Ok(watch)
}

fn reading(stream: OpenStream) -> State {
    State::Reading { stream, silent_since: Instant::now() }
}

impl Watch {
    /// Delivers a page, and continues with what follows it.
    fn take(&mut self, page: Page) {
        self.ready.extend(page.items.into_iter().map(StreamEvent::Object));
        let (remote, stream, scope) = (self.remote.clone(), self.stream, self.scope.clone());
        self.state = if page.token.is_empty() {
            self.ready.push_back(StreamEvent::Reached { at: page.at, complete: true });
            State::Opening(Box::pin(open(remote, stream, scope, request::WatchStart::After(page.at))))
        } else {
            State::Listing(Box::pin(self::page(remote, stream, scope, page.token)))
        };
    }

    /// Makes events ready, or none if only a part of a line arrived. None: the stream has ended.
    async fn read(&mut self) -> Option<Result<(), WatchError>> {
        match &mut self.state {
            State::Listing(coming) => match coming.await {
                Ok(page) => self.take(page),
                Err(trouble) => return Some(Err(trouble)),
            },
            State::Opening(coming) => match coming.await {
                Ok(open) => self.state = reading(open),
                Err(trouble) => return Some(Err(trouble)),
            },
            State::Reading { stream: OpenStream { body, events }, silent_since } => {
                let Ok(frame) = tokio::time::timeout_at(*silent_since + SILENT_FOR, body.frame()).await else {
                    let silence = format!("the server said nothing for {} s", SILENT_FOR.as_secs());
                    return Some(Err(WatchError::Broken(silence)));
                };
                *silent_since = Instant::now();
                let Some(frame) = frame else { return events.ended(&self.remote).map(Err) };
                match frame {
                    Ok(frame) => {
                        if let Some(data) = frame.data_ref() {
                            if let Err(trouble) = events.push(data, &self.remote) {
                                return Some(Err(trouble));
                            }
                            self.ready.extend(std::iter::from_fn(|| events.next(&self.remote)));
                        }
                    }
                    Err(error) => return Some(Err(WatchError::Broken(super::connect::reasons(&error)))),
                }
            }
            State::Over => return None,
        }
        Some(Ok(()))
    }
}

impl Events for Watch {
    /// All received data is in `self`: a future that is dropped loses nothing.
    async fn next(&mut self) -> Option<StreamEvent> {
        loop {
            if let Some(heard) = self.ready.pop_front() {
                if let StreamEvent::Failed(trouble) = &heard {
                    // Some servers accept the watch, and then say by an event that they cannot send the state.
                    if matches!(trouble, WatchError::Refused(refusal) if answer::no_streaming_lists(refusal)) {
                        self.remote.list_by_pages();
                    }
                    self.ready.clear();
                    self.state = State::Over;
                }
                return Some(heard);
            }
            match self.read().await {
                Some(Ok(())) => {}
                Some(Err(trouble)) => {
                    self.state = State::Over;
                    return Some(StreamEvent::Failed(trouble));
                }
                None => {
                    self.state = State::Over;
                    return None;
                }
            }
        }
    }
}

async fn open(
    remote: Remote,
    stream: Stream,
    scope: WatchScope,
    from: request::WatchStart,
) -> Result<OpenStream, WatchError> {
    let seconds = fastrand::u32(SECONDS);
    let request = |accept| {
        request::watch(stream, &scope, from, seconds, accept).map_err(|error| WatchError::Broken(error.to_string()))
    };
    let accept = request::accept(remote.0.content.accept(stream.kind), stream.metadata_only);
    let mut opened = opened(head(&remote, request(accept)?).await?).await?;
    if let Err(refused) = &opened
        && remote.note_refused_form(refused, &Form { accept, document: None })
    {
        opened = self::opened(head(&remote, request(content::JSON)?).await?).await?;
    }
    opened.map_err(|refused| answer::trouble(Some(refused.code), &remote.object_of(&refused)))
}

/// The stream, or the whole response if it is none.
async fn opened(response: hyper::Response<Incoming>) -> Result<Result<OpenStream, RawResponse>, WatchError> {
    let (head, body) = response.into_parts();
    let code = head.status.as_u16();
    if code == 200 {
        let is_protobuf = content::is_protobuf(&head.headers);
        let events = if is_protobuf { Splitter::Frames(Frames::default()) } else { Splitter::Lines(Lines::default()) };
        return Ok(Ok(OpenStream { body, events }));
    }
    let body = tokio::time::timeout(OPEN_WITHIN, super::collect(body)).await;
    let body = body.map_err(|_| no_answer())?.unwrap_or_default();
    Ok(Err(RawResponse { code, body, headers: head.headers }))
}

async fn page(remote: Remote, stream: Stream, scope: WatchScope, token: String) -> Result<Page, WatchError> {
    let WatchScope { namespace, label_selector, field_selector } = scope;
    let call = Call { label_selector, ..Call::new(Verb::List, stream.kind, &namespace, "") };
    remote.page(&call, &field_selector, stream.metadata_only, &token).await.map_err(|failed| match failed {
        failed if failed.is_expired() => WatchError::TooOld,
        super::PageError::Refused(Response { reply: Reply::Refused(refusal), .. }) => WatchError::Refused(refusal),
        super::PageError::Refused(_) => WatchError::Broken("a page of the list was not sent".to_owned()),
        super::PageError::Failed(failure) => WatchError::Broken(failure.why),
    })
}

async fn head(remote: &Remote, request: request::Outgoing) -> Result<hyper::Response<Incoming>, WatchError> {
    let response = tokio::time::timeout(OPEN_WITHIN, remote.open(request)).await;
    response.map_err(|_| no_answer())?.map_err(|failure| WatchError::Broken(failure.why))
}

fn no_answer() -> WatchError {
    WatchError::Broken(format!("no answer within {} s", OPEN_WITHIN.as_secs()))
}
