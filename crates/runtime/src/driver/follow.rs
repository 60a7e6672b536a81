//! Follows one stream as long as the driver runs. `Reflector` decides what its events mean.

use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::time::Instant;

use super::api::{Api, Events, WatchError};
use super::reflector::{Next, Reflector, Word};
use super::{BATCH, Caller, jittered};
use crate::controller::{Input, Stream};

/// What a stream brings, in batches that are not empty. It never ends, and goes on only while its reader waits for it: a
/// stream that is faster waits at its source.
pub(super) fn follow<A: Api>(
    caller: Arc<Caller<A>>,
    controller: &'static str,
    stream: Stream,
) -> BoxStream<'static, Vec<Input>> {
    let reflector = Reflector::new(stream);
    let follower = Follower { caller, controller, reflector, events: None, asked_at: Instant::now(), ended: None };
    stream::unfold(follower, |mut follower| async move {
        let inputs = follower.next().await;
        Some((inputs, follower))
    })
    .boxed()
}

struct Follower<A: Api> {
    caller: Arc<Caller<A>>,
    controller: &'static str,
    reflector: Reflector,
    events: Option<A::Events>,
    asked_at: Instant,
    /// How the stream has ended, once all that it brought before is passed on.
    ended: Option<Option<WatchError>>,
}

impl<A: Api> Follower<A> {
    async fn next(&mut self) -> Vec<Input> {
        // Memory of one size is used again and again; a vector that grows takes some of every size.
        let mut inputs = Vec::with_capacity(BATCH);
        while inputs.is_empty() {
            if let Some(trouble) = self.ended.take() {
                self.end(trouble).await;
            }
            self.ended = match self.events {
                Some(_) => self.listen(&mut inputs).await,
                None => self.open(&mut inputs).await,
            }
            .err();
        }
        inputs
    }

    async fn open(&mut self, inputs: &mut Vec<Input>) -> Result<(), Option<WatchError>> {
        self.asked_at = Instant::now();
        let (stream, start) = (self.reflector.stream(), self.reflector.start());
        self.events = Some(self.caller.api.follow(stream, start).await.map_err(Some)?);
        inputs.extend(self.reflector.opened());
        Ok(())
    }

    /// Waits for an event, and takes those that have come with it.
    async fn listen(&mut self, inputs: &mut Vec<Input>) -> Result<(), Option<WatchError>> {
        let Some(events) = &mut self.events else { return Err(None) };
        let mut heard = events.next().await;
        loop {
            match self.reflector.hears(heard.ok_or(None)?) {
                Word::Tell(input) => inputs.push(input),
                Word::Synced(input) => {
                    self.caller.observer.synced(self.controller, self.reflector.stream());
                    inputs.push(input);
                }
                Word::Ignore => {}
                Word::Broken(trouble) => return Err(Some(trouble)),
            }
            if inputs.len() == BATCH {
                return Ok(());
            }
            heard = events.received();
            if heard.is_none() {
                return Ok(());
            }
        }
    }

    /// Waits until the stream may be opened again.
    async fn end(&mut self, trouble: Option<WatchError>) {
        self.events = None;
        let next = self.reflector.ends(trouble.as_ref(), self.asked_at.elapsed());
        if next == Next::Again {
            return;
        }
        let silent = || WatchError::Broken("the stream ended before it brought anything".to_owned());
        let (controller, stream) = (self.controller, self.reflector.stream());
        self.caller.observer.stream_broken(controller, stream, &trouble.unwrap_or_else(silent));
        if let Next::After(wait) = next {
            tokio::time::sleep(jittered(wait)).await;
        }
    }
}
