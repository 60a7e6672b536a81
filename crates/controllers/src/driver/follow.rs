//! One stream, followed for as long as the driver runs: whatever breaks is taken up again where it was left, or from the
//! state if the server no longer remembers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tally_core::ids::Revision;
use tokio::sync::mpsc;

use super::api::{Api, Events, Heard, Start, Trouble};
use super::{Caller, jittered};
use crate::controller::{Kind, Stream};
use crate::kit::Meta;

/// After so many failures in a row: 50 ms, 100 ms, 200 ms ... 25.6 s.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const DOUBLINGS: u32 = 9;

/// What a stream tells its controller.
#[derive(Debug)]
pub enum News {
    Listing(Kind),
    Observed(Kind, Bytes),
    Gone(Kind, Bytes),
    Listed(Kind, Revision),
    Reached(Kind, Revision),
}

/// How far a stream has been followed. The newest object stands for its revision, which is read only when it is wanted.
#[derive(Default)]
struct Position {
    revision: Revision,
    newest: Option<Bytes>,
    /// The state has been heard to its end.
    complete: bool,
    /// Never asked for an older state than this again.
    seen: Revision,
}

impl Position {
    fn settle(&mut self) {
        if let Some(object) = self.newest.take() {
            self.revision = revision_of(&object).max(self.revision);
        }
        if self.complete {
            self.seen = self.seen.max(self.revision);
        }
    }

    fn start(&mut self) -> Start {
        self.settle();
        if self.complete { Start::Changes { after: self.revision } } else { Start::State { not_older_than: self.seen } }
    }

    fn forget(&mut self) {
        self.settle();
        self.complete = false;
        self.revision = Revision(0);
    }
}

fn revision_of(object: &[u8]) -> Revision {
    #[derive(serde::Deserialize)]
    struct Object {
        metadata: Meta,
    }
    serde_json::from_slice::<Object>(object).map_or(Revision(0), |object| object.metadata.revision())
}

/// Ends when nobody listens any more.
pub(super) async fn follow<A: Api>(
    caller: Arc<Caller<A>>,
    controller: &'static str,
    stream: Stream,
    told: mpsc::Sender<News>,
) {
    let mut position = Position::default();
    let mut failures = 0;
    while !told.is_closed() {
        let trouble = match caller.api.follow(stream, position.start()).await {
            Ok(mut events) => {
                let heard = listen(&caller, controller, stream, &mut events, &mut position, &told).await;
                if heard.something {
                    failures = 0;
                }
                match heard.end {
                    End::Unheard => return,
                    // Streams end now and then; that is no trouble if this one was of use.
                    End::Over if heard.something => continue,
                    End::Over => Trouble::Broken("the stream ended before it began".to_owned()),
                    End::Trouble(trouble) => trouble,
                }
            }
            Err(trouble) => trouble,
        };
        caller.observer.stream_broken(controller, stream, &trouble);
        if matches!(trouble, Trouble::TooOld) && position.complete {
            position.forget();
            continue;
        }
        tokio::time::sleep(jittered(FIRST_WAIT * (1 << failures.min(DOUBLINGS)))).await;
        failures += 1;
    }
}

struct Listened {
    something: bool,
    end: End,
}

enum End {
    Over,
    Trouble(Trouble),
    /// The controller is gone.
    Unheard,
}

async fn listen<A: Api>(
    caller: &Caller<A>,
    controller: &'static str,
    stream: Stream,
    events: &mut A::Events,
    position: &mut Position,
    told: &mpsc::Sender<News>,
) -> Listened {
    let kind = stream.kind;
    let mut something = false;
    if !position.complete && told.send(News::Listing(kind)).await.is_err() {
        return Listened { something, end: End::Unheard };
    }
    while let Some(heard) = events.next().await {
        let news = match heard {
            Heard::Object(object) => {
                if position.complete {
                    position.newest = Some(object.clone());
                }
                News::Observed(kind, object)
            }
            Heard::Gone(object) => {
                if position.complete {
                    position.newest = Some(object.clone());
                }
                News::Gone(kind, object)
            }
            Heard::Reached { at, complete } => {
                position.settle();
                position.revision = position.revision.max(at);
                if complete && !position.complete && at < position.seen {
                    let older = format!("the state is of revision {}, but {} was seen before", at.0, position.seen.0);
                    return Listened { something: false, end: End::Trouble(Trouble::Broken(older)) };
                }
                if complete && !position.complete {
                    position.complete = true;
                    caller.observer.synced(controller, stream);
                    News::Listed(kind, at)
                } else {
                    News::Reached(kind, at)
                }
            }
            Heard::Failed(trouble) => return Listened { something, end: End::Trouble(trouble) },
        };
        something = true;
        if told.send(news).await.is_err() {
            return Listened { something, end: End::Unheard };
        }
    }
    Listened { something, end: End::Over }
}
