//! The registry as the API of a driver.

use std::sync::Arc;
use std::time::Duration;

use tally_api::options::WatchOptions;
use tally_core::ids::Revision;
use tally_registry::{Registry, Target, WatchEvent, WatchStream};
use tally_runtime::controller::{Call, Stream};
use tally_runtime::driver::api::{Api, Events, Response, Start, StreamEvent, WatchError};

use crate::{perform, refusal, resource};

/// For streams that work waits for: a bookmark costs no more than a wake-up here.
const BOOKMARK_EVERY: Duration = Duration::from_millis(2);

pub struct Embedded(pub Arc<Registry>);

impl Api for Embedded {
    type Events = Watched;

    async fn call(&self, call: &Call) -> Response {
        let reply = perform(&self.0, call).await;
        Response { reply, served_at: Some(self.0.now()), retry_after: None }
    }

    async fn follow(&self, stream: Stream, from: Start) -> Result<Watched, WatchError> {
        let Some(resource) = resource(stream.kind) else {
            return Err(WatchError::Broken(format!("the embedded cluster does not serve {}", stream.kind.plural)));
        };
        let options = match from {
            // The newest state is never older than anything observed: this is the only replica.
            Start::State { .. } => WatchOptions { initial_events: Some(true), bookmarks: true, ..Default::default() },
            Start::Changes { after } => {
                WatchOptions { from: Some(after.0), bookmarks: true, ..WatchOptions::default() }
            }
        };
        match self.0.watch(Target::new(resource, "", ""), &options) {
            Ok(events) if stream.soon => Ok(Watched(events.bookmarks_every(BOOKMARK_EVERY))),
            Ok(events) => Ok(Watched(events)),
            Err(failure) => Err(trouble(failure)),
        }
    }
}

fn trouble(failure: tally_api::status_error::StatusError) -> WatchError {
    if failure.code == 410 { WatchError::TooOld } else { WatchError::Refused(refusal(failure)) }
}

pub struct Watched(WatchStream);

impl Events for Watched {
    async fn next(&mut self) -> Option<StreamEvent> {
        self.0.next().await.map(stream_event)
    }

    fn received(&mut self) -> Option<StreamEvent> {
        self.0.next_ready().map(stream_event)
    }
}

fn stream_event(event: WatchEvent) -> StreamEvent {
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => StreamEvent::Object(object),
        WatchEvent::Deleted(object) => StreamEvent::Gone(object),
        WatchEvent::Bookmark { revision, initial_events_end } => {
            StreamEvent::Reached { at: Revision(revision), complete: initial_events_end }
        }
        WatchEvent::Failed(failure) => StreamEvent::Failed(trouble(failure)),
    }
}
